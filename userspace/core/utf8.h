/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 as the Unicode standard defines it (no surrogates, no overlong forms, nothing above U+10FFFF). Pure. */
#ifndef WEIR_CORE_UTF8_H
#define WEIR_CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Looks at the character at the start of `text` (len > 0). Returns its length and sets *ret_valid; when it is not a
 * character, the length is that of the longest prefix that could have started one (at least 1): what is replaced as a unit.
 */
size_t utf8_next(const char *text, size_t len, bool *ret_valid);

/* Writes code point `cp` (not a surrogate, at most 0x10FFFF) and returns the 1 to 4 bytes used. */
size_t utf8_encode(uint32_t cp, char ret[4]);

/* The longest length <= max at which `text` of valid UTF-8 can be cut without splitting a character. */
size_t utf8_cut(const char *text, size_t len, size_t max);

/*
 * A copy of `text` with every ill-formed unit replaced by U+FFFD, exactly as Python's bytes.decode("utf-8", "replace").
 * malloc'd with a final NUL, which *ret_len does not count; NUL characters inside are kept. Returns NULL without memory.
 */
char *utf8_replace(const char *text, size_t len, size_t *ret_len);

#endif
