/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the inside of a JSON string: ill-formed UTF-8 is replaced as utf8_replace() does it. Pure. */
#ifndef WEIR_CORE_ESCAPE_H
#define WEIR_CORE_ESCAPE_H

#include <stddef.h>

/* What one byte can become, and the least room with which escape_json() gets on. */
#define ESCAPE_MAX 6

/*
 * Writes as many of the `len` bytes as fit into `room`, and nothing by halves. Returns how much was written; *ret_used is how
 * much of the text that was. `len` reaches to the text's end, or to a place between two characters.
 */
size_t escape_json(char *to, size_t room, const char *text, size_t len, size_t *ret_used);

/* How much escape_json() would write of all of it. */
size_t escape_json_len(const char *text, size_t len);

#endif
