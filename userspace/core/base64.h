/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 of RFC 4648, section 4, without line breaks; decoding is strict: one spelling for each content. Pure. */
#ifndef WEIR_CORE_BASE64_H
#define WEIR_CORE_BASE64_H

#include <stddef.h>
#include <sys/types.h>

/* Bytes of the text that `len` bytes make, without a terminator. */
#define BASE64_LEN(len) (((size_t)(len) + 2) / 3 * 4)

/* Writes exactly BASE64_LEN(len) bytes, no terminator. */
void base64_encode(char *ret, const void *data, size_t len);

/*
 * How many bytes `len` bytes of text stand for, or -EINVAL: a length that is no multiple of four, a character outside the
 * alphabet (white space and the URL-safe ones too), padding anywhere but at the end, or bits set that padding leaves unused.
 */
ssize_t base64_decoded_len(const char *text, size_t len);

/* Decodes text that base64_decoded_len() has accepted, into that many bytes; ret may be `text` itself. */
void base64_decode(void *ret, const char *text, size_t len);

#endif
