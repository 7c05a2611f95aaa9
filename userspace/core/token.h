/* SPDX-License-Identifier: Apache-2.0 */
/* Bearer tokens: only their SHA-256 is ever kept or compared, and comparing takes the same time for every input. Pure. */
#ifndef WEIR_CORE_TOKEN_H
#define WEIR_CORE_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKEN_DIGEST_LEN 32
#define TOKEN_TEXT_MAX 512 /* bytes of a token's text */

/* SHA-256 of the token's text. */
void token_digest(const char *text, size_t len, uint8_t ret[TOKEN_DIGEST_LEN]);

/* In constant time. */
bool token_digest_equal(const uint8_t a[TOKEN_DIGEST_LEN], const uint8_t b[TOKEN_DIGEST_LEN]);

/*
 * The token inside an `Authorization` header's value: scheme `Bearer` in any case, then 1 to TOKEN_TEXT_MAX characters of
 * RFC 6750's set. Returns false for anything else. The text is borrowed from `value`, not terminated.
 */
bool token_from_header(const char *value, const char **ret_text, size_t *ret_len);

/* Whether `text` could be sent as a Bearer token at all. */
bool token_text_ok(const char *text, size_t len);

#endif
