/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/headtext.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "weir-audit-head 1 "
#define TURN_DIGITS 20

_Static_assert(HEADTEXT_FIRST >= sizeof MAGIC + TURN_DIGITS, "the turn is within the first bytes");
/* The first line, the last, and each remembered one: a number of 20 digits, a hash, two separators. */
_Static_assert(HEADTEXT_SIZE > 256 + KEYFILES_REMEMBERED * (20 + 2 * CHAIN_HASH + 2), "all of it has room");

const uint8_t *signed_hash(const struct signed_head *r, uint64_t n)
{
	return n <= r->n && r->n - n < r->count ? r->hash[n % KEYFILES_REMEMBERED] : NULL;
}

void signed_add(struct signed_head *r, uint64_t n, const uint8_t hash[CHAIN_HASH])
{
	if (n != r->n + 1)
		r->count = 0;
	r->n = n;
	memcpy(r->hash[n % KEYFILES_REMEMBERED], hash, CHAIN_HASH);
	if (r->count < KEYFILES_REMEMBERED)
		r->count++;
}

void headtext_write(char ret[HEADTEXT_SIZE], const struct signed_head *r)
{
	char hex[2 * CHAIN_HASH + 1];
	uint8_t digest[CHAIN_HASH];
	int len;

	memset(ret, '\n', HEADTEXT_SIZE);
	chain_hex(r->key_id, hex);
	len = snprintf(ret, HEADTEXT_SIZE, MAGIC "%020" PRIu64 " %s\n", r->turn, hex);
	for (uint32_t i = 0; i < r->count; i++) {
		chain_hex(signed_hash(r, r->n - i), hex);
		len += snprintf(ret + len, (size_t)(HEADTEXT_SIZE - len), "%" PRIu64 " %s\n", r->n - i, hex);
	}
	chain_body_digest(ret, (size_t)len, digest);
	chain_hex(digest, hex);
	len += snprintf(ret + len, (size_t)(HEADTEXT_SIZE - len), "end %s\n", hex);
	ret[len] = '\n'; /* in the place of the NUL */
}

/* At most 20 digits, then `after`; *p moves behind it. */
static bool number(const char **p, char after, uint64_t *ret)
{
	char *end;

	if (**p < '0' || **p > '9')
		return false;
	errno = 0;
	*ret = strtoull(*p, &end, 10);
	if (errno || *end != after)
		return false;
	*p = end + 1;
	return true;
}

static bool hash(const char **p, uint8_t ret[CHAIN_HASH])
{
	char hex[2 * CHAIN_HASH + 1] = {0};

	if (strnlen(*p, 2 * CHAIN_HASH + 1) <= 2 * CHAIN_HASH || (*p)[2 * CHAIN_HASH] != '\n')
		return false;
	memcpy(hex, *p, 2 * CHAIN_HASH);
	*p += 2 * CHAIN_HASH + 1;
	return chain_from_hex(hex, ret) == 0;
}

uint64_t headtext_turn(const char first[HEADTEXT_FIRST])
{
	char text[HEADTEXT_FIRST + 1] = {0};
	const char *p = text + strlen(MAGIC);
	uint64_t turn;

	memcpy(text, first, HEADTEXT_FIRST);
	return strncmp(text, MAGIC, strlen(MAGIC)) == 0 && number(&p, ' ', &turn) ? turn : 0;
}

/* `text` ends with a NUL. */
static bool read_one(const char *text, struct signed_head *ret)
{
	const char *p = text + strlen(MAGIC);
	uint8_t digest[CHAIN_HASH], told[CHAIN_HASH];
	uint64_t n;

	memset(ret, 0, sizeof *ret);
	if (strncmp(text, MAGIC, strlen(MAGIC)) != 0 || !number(&p, ' ', &ret->turn) || !hash(&p, ret->key_id))
		return false;
	while (*p >= '0' && *p <= '9' && ret->count < KEYFILES_REMEMBERED) {
		if (!number(&p, ' ', &n) || (ret->count && n != ret->n - ret->count))
			return false;
		if (!ret->count)
			ret->n = n;
		if (!hash(&p, ret->hash[n % KEYFILES_REMEMBERED]))
			return false;
		ret->count++;
	}
	chain_body_digest(text, (size_t)(p - text), digest);
	if (!ret->turn || !ret->count || strncmp(p, "end ", 4) != 0)
		return false;
	p += 4;
	return hash(&p, told) && memcmp(digest, told, sizeof told) == 0;
}

int headtext_read(const char *text, size_t len, struct signed_head *ret)
{
	struct signed_head *one = calloc(1, sizeof *one);
	char *copy = calloc(1, HEADTEXT_SIZE + 1);
	bool found = false;

	for (int i = 0; one && copy && i < HEADTEXT_PLACES && len >= (size_t)(i + 1) * HEADTEXT_SIZE; i++) {
		memcpy(copy, text + (size_t)i * HEADTEXT_SIZE, HEADTEXT_SIZE);
		if (!read_one(copy, one) || (found && one->turn < ret->turn))
			continue;
		*ret = *one;
		found = true;
	}
	free(one);
	free(copy);
	return found ? 0 : -EBADMSG;
}
