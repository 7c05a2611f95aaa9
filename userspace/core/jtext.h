/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON as text: checked once, then read in place. No tree is built, so a hostile document costs no more memory than its
 * own bytes, and every error can name the place as a JSON pointer. Pure.
 *
 *   jtext_check()                 the whole document: grammar, UTF-8, surrogates, depth; constant memory, no recursion
 *   jtext_root(), jtext_next()    walk what jtext_check() has passed; nothing else may be given to them
 */
#ifndef WEIR_CORE_JTEXT_H
#define WEIR_CORE_JTEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"

/* Levels that jtext_check() can follow, whatever its caller allows. */
#define JTEXT_DEPTH_MAX 64

enum jtext_kind { JTEXT_OBJECT, JTEXT_ARRAY, JTEXT_STRING, JTEXT_NUMBER, JTEXT_TRUE, JTEXT_FALSE, JTEXT_NULL };

/* With its article: "an object". */
extern const char *const jtext_kind_names[];

/* One value: a slice of the document, quotes and brackets included. Borrowed. */
struct jtext {
	enum jtext_kind kind;
	const char *text;
	size_t len;
};

/*
 * RFC 8259, and stricter: UTF-8 only, no byte order mark, no lone surrogate, no NUL in a member's name, one value and
 * nothing after it, at most `max_depth` (<= JTEXT_DEPTH_MAX) levels of arrays and objects. Duplicate names are left to whoever
 * knows the names. On failure `e` has EINVAL, or E2BIG for the depth, the JSON pointer in `where`, and what was expected.
 */
int jtext_check(const char *text, size_t len, unsigned max_depth, struct err *e);

/* The document's only value. */
struct jtext jtext_root(const char *text, size_t len);

/*
 * The members of an object or elements of an array, in order: start with *at == NULL. `*ret_name` (a string; for an array
 * it is not touched, and may be NULL) and `*ret_value` borrow from the document. Returns false at the end.
 */
bool jtext_next(const struct jtext *parent, const char **at, struct jtext *ret_name, struct jtext *ret_value);

/* The text of a string, escapes undone: malloc'd, NUL-terminated, may hold NUL. Returns NULL without memory. */
char *jtext_string(const struct jtext *value, size_t *ret_len);

/*
 * The same without a copy: escapes are undone inside the document, `text`, so that neither this value nor one around it may
 * be read again (jtext_next() of those around it goes on behind it). Borrowed, not terminated.
 */
char *jtext_string_in_place(char *text, const struct jtext *value, size_t *ret_len);

/* Whether a string's text, escapes undone, is `text`. */
bool jtext_is(const struct jtext *value, const char *text);

/*
 * Appends one reference token to the JSON pointer in `where` (`size` bytes), `~` and `/` escaped, control characters left
 * as the document's own escapes; cut with "…" where there is no room.
 */
void jtext_point(char *where, size_t size, const char *token, size_t len);

#endif
