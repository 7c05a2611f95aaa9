/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking the supervisor, which keeps the key, to sign what the chain has new: in order, answered in order. Several auditors may
 * write one record, and each asks for whatever is unsigned, so that another one's supervisor may have signed it meanwhile.
 */
#ifndef WEIR_AUDITOR_ASKING_H
#define WEIR_AUDITOR_ASKING_H

#include <stdbool.h>
#include <stdint.h>

#include "auditor/store.h"

#define ASKING_MAX 64	    /* entries on their way at once */
#define ASKING_AGAIN_MS 200 /* after one was not the next, or there was no room for it */

struct asking {
	bool key;	  /* there is one; without, nothing is asked */
	bool look;	  /* there may be entries to be asked for */
	bool again;	  /* one was not the next: all of them once more, when those on their way are answered */
	uint64_t asked;	  /* the last that was asked for */
	uint64_t settled; /* up to here all are signed, or never will be: another stands there in the keeper's memory */
	uint64_t on_way[ASKING_MAX]; /* a ring */
	unsigned first, count;
	int64_t not_before_ms;
};

/*
 * NOTE_HEAD: at the start, or as the answer to an entry that is not signed. Returns as store_check_head(). Outside a batch, as
 * all of these.
 */
int asking_head(struct asking *a, struct store *s, const struct chain_head *head, int64_t now_ms, struct err *e);
/* NOTE_SIGNED: keeps it. Returns as store_signed(). */
int asking_signed(struct asking *a, struct store *s, const struct note *note, int64_t now_ms, struct err *e);
/* What was kept of signatures may be lost: what has none then is asked for again. */
void asking_lost(struct asking *a, int64_t now_ms);
/* Asks for what can be asked for. Never blocks. */
void asking_send(struct asking *a, struct store *s, int supervisor, int64_t now_ms);
/* When asking_send() has something to do although nothing came; INT64_MAX for never. */
int64_t asking_deadline(const struct asking *a);
/* Whether a signature may still come. */
bool asking_waits(const struct asking *a);

#endif
