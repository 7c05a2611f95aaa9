/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far the record of each attachment is, kept where it outlives the process that writes it: a file in memory, mapped. So the
 * next service knows since when nobody drained, and what the kernel had counted by then, whatever ended the one before.
 */
#ifndef WEIR_SUPERVISOR_PROGRESS_H
#define WEIR_SUPERVISOR_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"
#include "core/err.h"

struct progress;
struct progress_slot;

struct progress_at {
	uint64_t wall_ns;		/* CLOCK_REALTIME when it was looked at last */
	uint64_t began_ns;		/* likewise, the window's beginning */
	uint32_t record;		/* the window's number */
	uint32_t open;			/* it has no end yet */
	struct weir_sandbox base, seen; /* counters at its beginning, and when it was looked at last */
	uint64_t base_lost, seen_lost;	/* likewise events that did not fit the ring */
};

/* Of one service at a time: whoever holds ATTACHED_DIR "/drain". `path`: the file; one of another form is made anew. */
int progress_open(struct progress **ret, const char *path, struct err *e);
struct progress *progress_close(struct progress *p);

/* That of an attachment; a free one when there is none yet. NULL: none is free, and nothing is remembered of it. */
struct progress_slot *progress_of(struct progress *p, const char *id);
/* False when nothing was ever written to it. */
bool progress_read(const struct progress_slot *slot, struct progress_at *ret);
/* Whole or not at all, whenever this process is killed. */
void progress_write(struct progress_slot *slot, const struct progress_at *at);
void progress_forget(struct progress_slot *slot);
/* Frees those of attachments that `known` says are no more. */
void progress_prune(struct progress *p, bool (*known)(void *ctx, const char *id), void *ctx);

#endif
