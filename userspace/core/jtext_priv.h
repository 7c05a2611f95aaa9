/* SPDX-License-Identifier: Apache-2.0 */
/* How the inside of a JSON string is read: what jtext.c and jcheck.c share. */
#ifndef WEIR_CORE_JTEXT_PRIV_H
#define WEIR_CORE_JTEXT_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What may stand behind a backslash, but for `u`, and what each means; 0: nothing. */
extern const char jtext_meanings[256];

/*
 * After "\u": one code unit, or a surrogate pair with its second "\u". Moves *at behind it. Returns 0, -EINVAL (four digits are
 * not there) or -EILSEQ (a lone surrogate).
 */
int jtext_unicode(const char **at, const char *end, uint32_t *ret);

/* The next character of a checked string's inside, escapes undone. Returns its bytes. */
size_t jtext_next_plain(const char **at, const char *end, char ret[4]);

#define JTEXT_EACH_BYTE(b) (0x0101010101010101u * (uint64_t)(b))

/* Not 0 when some byte of `w` is 0. The lowest bit that is set is right; those above it may not be. */
static inline uint64_t jtext_zero_byte(uint64_t w)
{
	return (w - JTEXT_EACH_BYTE(1)) & ~w & JTEXT_EACH_BYTE(0x80);
}

/*
 * Behind what is certainly plain inside a string: everything up to a quote or a backslash, and, when the text is not checked
 * yet, only ASCII without control characters. Eight bytes at a time: bodies are megabytes of this, read several times over.
 */
static inline const char *jtext_skip_plain(const char *p, const char *end, bool checked)
{
	while (end - p >= (ptrdiff_t)sizeof(uint64_t)) {
		uint64_t w, special;

		memcpy(&w, p, sizeof w);
		special = jtext_zero_byte(w ^ JTEXT_EACH_BYTE('"')) | jtext_zero_byte(w ^ JTEXT_EACH_BYTE('\\'));
		if (!checked)
			special |= (w & JTEXT_EACH_BYTE(0x80)) | ((w - JTEXT_EACH_BYTE(0x20)) & ~w & JTEXT_EACH_BYTE(0x80));
		if (special)
			break;
		p += sizeof w;
	}
	while (p < end && *p != '"' && *p != '\\' && (checked || ((unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80)))
		p++;
	return p;
}

#endif
