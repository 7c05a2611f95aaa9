/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of the head file, of which it has HEADTEXT_PLACES, HEADTEXT_SIZE bytes each. Lines:
 *
 *   weir-audit-head 1 TURN(20 digits) KEY-ID
 *   N HASH           the newest entry
 *   N HASH           .. and those before, the next older each
 *   end DIGEST       SHA-256 over all the lines above
 *
 * and empty lines to its end. Pure.
 */
#ifndef WEIR_SUPERVISOR_HEADTEXT_H
#define WEIR_SUPERVISOR_HEADTEXT_H

#include "supervisor/keyfiles.h"

#define HEADTEXT_PLACES 2
#define HEADTEXT_SIZE 16384 /* whole pages: what was torn shows in the digest, and only one place is ever torn */
#define HEADTEXT_FIRST 48   /* bytes that have the turn */

void headtext_write(char ret[HEADTEXT_SIZE], const struct signed_head *r);
/* The turn that a text claims, from its first bytes; 0: none. */
uint64_t headtext_turn(const char first[HEADTEXT_FIRST]);
/* The whole one of the latest turn. -EBADMSG: there is none. */
int headtext_read(const char *text, size_t len, struct signed_head *ret);

#endif
