/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that a sandbox's filter refused: its init counts them in memory that it shares with us (struct refused_calls),
 * and here they become records. Nothing is asked of init, so what was frozen or killed has its counts as well.
 */
#ifndef WEIR_SUPERVISOR_REFUSED_H
#define WEIR_SUPERVISOR_REFUSED_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

struct supervisor;
struct box;
struct tell_meter;

#define REFUSED_UNKNOWN UINT64_MAX /* in the place of a count */

/* Step CHANNELS: what init will count in. */
int refused_make(struct box *b, struct err *e);
int refused_fd(const struct box *b); /* of that; `b`'s. -1: there is none */

/* Init has started: `error` is 0, or why it can't count. Only EBUSY is an answer, see refused_is_counted(). */
void refused_started(struct box *b, int error);
/* Whether it has to have a listener. False only where none is to be had. */
bool refused_is_counted(const struct box *b);

/* What was refused up to here is nobody's: the set-up's, or that of an interpreter that starts. */
void refused_begin(struct box *b);
/*
 * NOTE_SYSCALL for each number that was refused or interrupted since the last time (or refused_begin()), into the record that
 * note_init() says; before its end. Sets ret->syscalls_refused and ->syscalls_interrupted: how many there were, those of
 * numbers beyond the list too; or REFUSED_UNKNOWN. All of it is frozen or dead.
 */
void refused_report(struct supervisor *s, struct box *b, struct tell_meter *ret);
/* How many there were since then, as it runs: for a timeline, nothing is concluded from it. 0: none, or not known. */
uint64_t refused_so_far(const struct box *b);
void refused_drop(struct box *b);

#endif
