/* SPDX-License-Identifier: Apache-2.0 */
#include "core/escape.h"

#include <stdbool.h>
#include <string.h>

#include "core/utf8.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* Most of what there is, and the same in JSON. */
static bool plain(char c)
{
	unsigned char u = (unsigned char)c;

	return u >= 0x20 && u < 0x80 && u != '"' && u != '\\';
}

/* One character, or what is none, that is not plain. Returns how much was written, *ret_used how much it was. */
static size_t escape_one(char to[ESCAPE_MAX], const char *text, size_t len, size_t *ret_used)
{
	static const char hex[] = "0123456789ABCDEF", named[] = "\bb\ff\nn\rr\tt\"\"\\\\";
	bool valid;
	size_t n = utf8_next(text, len, &valid);

	*ret_used = n;
	if (!valid) {
		memcpy(to, replacement, sizeof replacement - 1);
		return sizeof replacement - 1;
	}
	if (n > 1) {
		memcpy(to, text, n);
		return n;
	}
	to[0] = '\\';
	for (size_t i = 0; i + 1 < sizeof named; i += 2)
		if (named[i] == *text) {
			to[1] = named[i + 1];
			return 2;
		}
	to[1] = 'u';
	to[2] = to[3] = '0';
	to[4] = hex[(unsigned char)*text >> 4];
	to[5] = hex[*text & 15];
	return 6;
}

size_t escape_json(char *to, size_t room, const char *text, size_t len, size_t *ret_used)
{
	size_t at = 0, done = 0, used;

	while (at < len && done < room) {
		if (plain(text[at])) {
			to[done++] = text[at++];
			continue;
		}
		if (room - done < ESCAPE_MAX)
			break;
		done += escape_one(to + done, text + at, len - at, &used);
		at += used;
	}
	*ret_used = at;
	return done;
}

size_t escape_json_len(const char *text, size_t len)
{
	char one[ESCAPE_MAX];
	size_t at = 0, total = 0, used;

	while (at < len) {
		if (plain(text[at])) {
			at++;
			total++;
			continue;
		}
		total += escape_one(one, text + at, len - at, &used);
		at += used;
	}
	return total;
}
