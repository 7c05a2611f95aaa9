/* SPDX-License-Identifier: Apache-2.0 */
/* What auditor.c (the process, its loop, its clients) and auditor_notes.c (its supervisor, and what it keeps) share. */
#ifndef WEIR_AUDITOR_AUDITOR_INTERNAL_H
#define WEIR_AUDITOR_AUDITOR_INTERNAL_H

#include "auditor/asking.h"
#include "auditor/client.h"
#include "auditor/ending.h"
#include "auditor/store.h"

struct auditor {
	int epoll;
	int supervisor; /* -1 once it has gone */
	bool flushed;	/* it said NOTE_FLUSH before */
	bool batch;	/* one of the store is open */
	bool pruning;	/* what goes next waits for its entry's signature */
	bool heard_head;
	struct store *store;
	struct client *clients;	    /* AUDITOR_CLIENTS_MAX */
	size_t nclients, next_slow; /* next_slow: whose long answer is next */
	struct ending *ending;
	struct asking asking;
	uint64_t ends;	     /* of runs that were told, and 1 */
	uint64_t refused;    /* bad notes since the last gap record about them */
	uint64_t late;	     /* runs since then whose content came when they were summed up already */
	uint64_t flushed_n;  /* the chain's end, when it was last made durable after NOTE_FLUSH */
	size_t left_skip;    /* of the runs that are left: the first so many can't be summed up */
	uint64_t last_seq;   /* of the record, as of the last look */
	uint64_t started_ns; /* CLOCK_REALTIME */
	int64_t sync_at, quit_at, log_at, flush_until, prune_at, pruned_ms, left_at, look_at;
};

int64_t auditor_now_ms(void);
uint64_t auditor_wall_ns(void);

/* A batch of the store, of which one is open at most. */
void auditor_begin(struct auditor *a);
bool auditor_commit(struct auditor *a); /* whether everything in it is kept; logs when not */
void auditor_wrote(struct auditor *a);	/* something may have to be synced */
void auditor_sync(struct auditor *a);
void auditor_owes(struct auditor *a); /* .. within a second, a gap record or more */

/* All that the supervisor has sent. What was tried goes before what is asked. */
void auditor_read_notes(struct auditor *a);
/* After NOTE_FLUSH: finishes what has ended and waits for signatures; then closes the connection, which is the answer. */
void auditor_flush(struct auditor *a);

/* A piece of the runs whose client has had its time; with INT64_MAX, whose ever. Whether there are more. */
bool auditor_finish_ended(struct auditor *a, int64_t now);
/* A piece of those of an auditor that died. */
void auditor_finish_left(struct auditor *a);

#endif
