/* SPDX-License-Identifier: Apache-2.0 */
#include "core/chain.h"

#include <endian.h>
#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>

const char *const chain_kind_names[CHAIN_KINDS] = {"run", "prune", "break"};

/* So that no hash made for another purpose is ever one of ours. Its NUL belongs to it. */
static const char domain[] = "weir-audit-chain-1";

static void sha256(const void *data, size_t len, uint8_t ret[CHAIN_HASH])
{
	/* It needs no memory: it fails only where the library has no SHA-256, or a self-test of it failed. Going on would chain
	 * records to nothing. */
	if (gnutls_hash_fast(GNUTLS_DIG_SHA256, data, len, ret) < 0)
		abort();
}

void chain_body_digest(const void *body, size_t len, uint8_t ret[CHAIN_HASH])
{
	sha256(body, len, ret);
}

void chain_hash(uint64_t n, const uint8_t before[CHAIN_HASH], const uint8_t body[CHAIN_HASH], uint8_t ret[CHAIN_HASH])
{
	struct {
		char domain[sizeof domain];
		uint8_t n[sizeof n], before[CHAIN_HASH], body[CHAIN_HASH];
	} text;
	const uint64_t n_be = htobe64(n);

	_Static_assert(sizeof text == sizeof domain + sizeof n + 2 * CHAIN_HASH, "nothing between them");
	memcpy(text.domain, domain, sizeof domain);
	memcpy(text.n, &n_be, sizeof n_be);
	memcpy(text.before, before, CHAIN_HASH);
	memcpy(text.body, body, CHAIN_HASH);
	sha256(&text, sizeof text, ret);
}

void chain_hex(const uint8_t hash[CHAIN_HASH], char ret[2 * CHAIN_HASH + 1])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < CHAIN_HASH; i++) {
		ret[2 * i] = digits[hash[i] >> 4];
		ret[2 * i + 1] = digits[hash[i] & 15];
	}
	ret[2 * CHAIN_HASH] = '\0';
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int chain_from_hex(const char *text, uint8_t ret[CHAIN_HASH])
{
	uint8_t hash[CHAIN_HASH];

	if (strnlen(text, 2 * CHAIN_HASH + 1) != 2 * CHAIN_HASH)
		return -EINVAL;
	for (size_t i = 0; i < CHAIN_HASH; i++) {
		int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -EINVAL;
		hash[i] = (uint8_t)(high << 4 | low);
	}
	memcpy(ret, hash, CHAIN_HASH);
	return 0;
}

int chain_records_add(struct chain_records *r, const char *body, size_t len)
{
	const uint64_t len_be = htobe64(len);
	gnutls_hash_hd_t hash = r->hash;

	if (!hash && gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) < 0)
		return -ENOMEM;
	r->hash = hash;
	if (gnutls_hash(hash, &len_be, sizeof len_be) < 0 || gnutls_hash(hash, body, len) < 0)
		return -ENOMEM;
	r->count++;
	return 0;
}

int chain_records_end(struct chain_records *r, uint8_t ret[CHAIN_HASH])
{
	if (r->hash)
		gnutls_hash_deinit(r->hash, ret);
	else
		sha256("", 0, ret);
	memset(r, 0, sizeof *r);
	return 0;
}
