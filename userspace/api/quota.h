/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may ask for a sandbox now, who waits and who is turned away: per project LIMIT_PROJECT_RUNNING at once, the others
 * first in first out, LIMIT_PROJECT_WAITING waiting in all; between projects turn by turn, so that one that floods does not
 * make another wait. Pure; no allocation per run.
 */
#ifndef WEIR_API_QUOTA_H
#define WEIR_API_QUOTA_H

#include <stdbool.h>
#include <stddef.h>

#include "ipc/ipc.h"

struct quota_project;
struct quota_slot;

struct quota {
	struct quota_project *projects; /* ring, only those with slots; the next turn is the first's */
	unsigned queued;		/* of all of them */
};

/* One request's place; embedded in whatever stands for the request. All zero: holds no place. */
struct quota_slot {
	struct quota_project *project;
	struct quota_slot *prev, *next; /* in its project's queue */
	enum { QUOTA_OUT, QUOTA_PARKED, QUOTA_QUEUED, QUOTA_ASKED, QUOTA_RUNNING } state;
};

/*
 * Takes a place for `slot`. Returns 1 when it may ask for a sandbox at once, 0 when it is queued, -EDQUOT when the project's
 * waiting places are all taken, -ENOMEM. `project` is copied.
 */
int quota_enter(struct quota *q, struct quota_slot *slot, const char *project);

/*
 * The same for one that waits for something else first: it takes a waiting place, and no turn. Returns 0, -EDQUOT or -ENOMEM.
 * Then quota_unpark(), which returns as quota_enter() and can't fail.
 */
int quota_park(struct quota *q, struct quota_slot *slot, const char *project);
int quota_unpark(struct quota *q, struct quota_slot *slot);

/* It got its sandbox: it is running and no longer waiting. */
void quota_granted(struct quota_slot *slot);

/* Gives its place back, whatever it was. A slot without a place is fine. */
void quota_leave(struct quota *q, struct quota_slot *slot);

/* The next queued slot that may ask now (it then counts as asking), or NULL. Call until NULL after quota_leave(). */
struct quota_slot *quota_next(struct quota *q);

#endif
