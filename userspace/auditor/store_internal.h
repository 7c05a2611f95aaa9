/* SPDX-License-Identifier: Apache-2.0 */
/* What store.c (writing) and store_read.c (answering) share. */
#ifndef WEIR_AUDITOR_STORE_INTERNAL_H
#define WEIR_AUDITOR_STORE_INTERNAL_H

#include "auditor/segment.h"
#include "auditor/store.h"

#define STORE_LOSSES_MAX 256 /* runs whose unwritten records are remembered; the oldest makes room */

/* A record on its way into the file. */
struct store_pending {
	struct record_head head;
	uint32_t offset, len; /* in the batch; len without the newline */
	const char *gap_kind; /* literal; NULL for other types */
	json_t *body;	      /* of run_begin and run_end: kept for the case that it can't be written */
};

/* Runs with records that could not be written. */
struct store_loss {
	char run_id[IPC_ID_MAX]; /* "" for a free slot */
	uint64_t records;
	json_t *begin, *end; /* bodies of those records, if it was them; NULL otherwise */
};

struct store {
	int dir;  /* borrowed */
	int lock; /* owned; -1 when read-only and there is none */
	bool readonly;
	bool alive; /* some auditor lives: this one, or when read-only, another */
	uint64_t max_bytes;
	struct segment old, now;
	uint64_t next_seq;

	/* the open batch */
	bool locked;
	struct err failed; /* code 0: nothing has failed */
	char *buf;
	size_t len, room;
	struct store_pending *pending;
	size_t npending, pending_room;
	size_t ngaps; /* leading records of the batch that report earlier losses */

	bool dirty;
	uint64_t lost_since_gap, unsynced_since_gap, torn_since_gap;
	char torn_text[128];
	struct store_loss losses[STORE_LOSSES_MAX];
	size_t next_loss;
	struct store_stats stats;
};

const struct store_loss *store_loss_of(const struct store *s, const char *run_id);

/* Byte ranges of the lock file. */
#define STORE_LOCK_WRITE 0
#define STORE_LOCK_ALIVE 1
#define STORE_LOCK_NEXT 2 /* held by the one who gets STORE_LOCK_WRITE next */

#endif
