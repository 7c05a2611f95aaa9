/* SPDX-License-Identifier: Apache-2.0 */
/* What prune.c (what goes, and the entry that says so) and prune_apply.c (its going) share. */
#ifndef WEIR_AUDITOR_PRUNE_H
#define WEIR_AUDITOR_PRUNE_H

#include "auditor/store_internal.h"

#define PRUNE_RUNS_MAX 200	/* that one entry names */
#define PRUNE_ENTRIES_MAX 2000	/* of the chain, without runs, that one entry names */
#define PRUNE_PENDING "prune_n" /* in meta: the entry whose work is still to be done; not there: none */

enum prune_pending { PRUNE_NONE, PRUNE_APPLIED, PRUNE_WAITS };

/*
 * Within a transaction: removes a piece of what the pending entry names, when it is signed or when nobody signs; one that will
 * never be signed is forgotten. PRUNE_NONE: there is none (any more); or a negative errno.
 */
int prune_apply(struct store *s, int64_t old_ns, int64_t *ret_runs);

#endif
