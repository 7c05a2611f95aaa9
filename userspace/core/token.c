/* SPDX-License-Identifier: Apache-2.0 */
#include "core/token.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void token_digest(const char *text, size_t len, uint8_t ret[TOKEN_DIGEST_LEN])
{
	/* Fails only where the library itself is broken; then nobody may pass as anybody. */
	if (gnutls_hash_fast(GNUTLS_DIG_SHA256, text, len, ret) < 0)
		abort();
}

bool token_digest_equal(const uint8_t a[TOKEN_DIGEST_LEN], const uint8_t b[TOKEN_DIGEST_LEN])
{
	return gnutls_memcmp(a, b, TOKEN_DIGEST_LEN) == 0;
}

bool token_text_ok(const char *text, size_t len)
{
	static const char set[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/";
	size_t body = len;

	if (len == 0 || len > TOKEN_TEXT_MAX)
		return false;
	while (body > 0 && text[body - 1] == '=')
		body--; /* padding, at the end only */
	if (body == 0)
		return false;
	for (size_t i = 0; i < body; i++)
		if (!memchr(set, text[i], sizeof set - 1))
			return false;
	return true;
}

bool token_from_header(const char *value, const char **ret_text, size_t *ret_len)
{
	static const char scheme[] = "Bearer";
	size_t len;

	if (strncasecmp(value, scheme, sizeof scheme - 1) != 0)
		return false;
	value += sizeof scheme - 1;
	if (*value != ' ')
		return false;
	while (*value == ' ')
		value++;
	len = strlen(value);
	while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
		len--;
	if (!token_text_ok(value, len))
		return false;
	*ret_text = value;
	*ret_len = len;
	return true;
}
