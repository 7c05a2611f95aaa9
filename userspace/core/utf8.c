/* SPDX-License-Identifier: Apache-2.0 */
#include "core/utf8.h"

#include <stdlib.h>
#include <string.h>

static const char REPLACEMENT[] = "\xef\xbf\xbd"; /* U+FFFD */
#define REPLACEMENT_LEN (sizeof REPLACEMENT - 1)

size_t utf8_next(const char *text, size_t len, bool *ret_valid)
{
	const uint8_t *p = (const uint8_t *)text;
	uint8_t low = 0x80, high = 0xbf; /* what the second byte may be: narrower after four of the first bytes */
	size_t want;

	*ret_valid = true;
	if (p[0] < 0x80)
		return 1;
	*ret_valid = false;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 1;
	if (p[0] < 0xe0) {
		want = 2;
	} else if (p[0] < 0xf0) {
		want = 3;
		if (p[0] == 0xe0)
			low = 0xa0; /* below: overlong */
		else if (p[0] == 0xed)
			high = 0x9f; /* above: surrogates */
	} else {
		want = 4;
		if (p[0] == 0xf0)
			low = 0x90; /* below: overlong */
		else if (p[0] == 0xf4)
			high = 0x8f; /* above: no such code point */
	}
	for (size_t i = 1; i < want; i++) {
		if (i >= len || p[i] < low || p[i] > high)
			return i;
		low = 0x80;
		high = 0xbf;
	}
	*ret_valid = true;
	return want;
}

size_t utf8_encode(uint32_t cp, char ret[4])
{
	if (cp < 0x80) {
		ret[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		ret[0] = (char)(0xc0 | cp >> 6);
		ret[1] = (char)(0x80 | (cp & 0x3f));
		return 2;
	}
	if (cp < 0x10000) {
		ret[0] = (char)(0xe0 | cp >> 12);
		ret[1] = (char)(0x80 | (cp >> 6 & 0x3f));
		ret[2] = (char)(0x80 | (cp & 0x3f));
		return 3;
	}
	ret[0] = (char)(0xf0 | cp >> 18);
	ret[1] = (char)(0x80 | (cp >> 12 & 0x3f));
	ret[2] = (char)(0x80 | (cp >> 6 & 0x3f));
	ret[3] = (char)(0x80 | (cp & 0x3f));
	return 4;
}

size_t utf8_cut(const char *text, size_t len, size_t max)
{
	if (len <= max)
		return len;
	while (max > 0 && ((uint8_t)text[max] & 0xc0) == 0x80)
		max--;
	return max;
}

char *utf8_replace(const char *text, size_t len, size_t *ret_len)
{
	size_t total = 0, at = 0, n;
	bool valid, all_valid = true;
	char *out;

	/* Measured first: output is mostly valid, and a guess of three times the input would be 8 MiB too much for it. */
	for (size_t i = 0; i < len; i += n) {
		n = utf8_next(text + i, len - i, &valid);
		total += valid ? n : REPLACEMENT_LEN;
		all_valid = all_valid && valid;
	}
	out = malloc(total + 1);
	if (!out)
		return NULL;
	if (all_valid && len > 0)
		memcpy(out, text, len);
	for (size_t i = 0; !all_valid && i < len; i += n) {
		n = utf8_next(text + i, len - i, &valid);
		memcpy(out + at, valid ? text + i : REPLACEMENT, valid ? n : REPLACEMENT_LEN);
		at += valid ? n : REPLACEMENT_LEN;
	}
	out[total] = 0;
	*ret_len = total;
	return out;
}
