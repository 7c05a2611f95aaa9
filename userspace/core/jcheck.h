/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a text is one JSON value that every client can read: RFC 8259, UTF-8 without lone surrogates (escaped ones too), no
 * name twice in an object (compared as decoded), numbers of at most LIMIT_JSON_DIGITS digits and finite as doubles when they
 * are no integers, nested within bounds. Pure, one pass, no recursion, no tree; memory grows with the names of objects that are
 * open, and time with the text, whatever it says: names are hashed with a key that nobody knows.
 */
#ifndef WEIR_CORE_JCHECK_H
#define WEIR_CORE_JCHECK_H

#include <stddef.h>

/* What it has to be. */
enum jcheck_kind { JCHECK_ANY, JCHECK_OBJECT };

/*
 * 0, or -EINVAL with *ret_why (a literal, what is wrong) and *ret_at (byte), or -ENOMEM. Blanks around the value are fine.
 * `depth`: levels of arrays and objects, at most JTEXT_DEPTH_MAX. Of two members with one name, *ret_at is where the second's
 * begins.
 */
int jcheck(const char *text, size_t len, unsigned depth, enum jcheck_kind kind, const char **ret_why, size_t *ret_at);

#endif
