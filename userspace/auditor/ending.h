/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs that have ended and are kept open for what their client has seen: for AUDITOR_CONTENT_WAIT_MS each, and no more of them
 * than there is room for. First in, first out. Whoever is completed before its time stays in here; it is none of this queue's.
 */
#ifndef WEIR_AUDITOR_ENDING_H
#define WEIR_AUDITOR_ENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/ipc.h"

#define ENDING_MAX 1024 /* three hundred runs a second, for as long as one is waited for */

struct ending {
	char ids[ENDING_MAX][IPC_ID_MAX];
	int64_t at_ms[ENDING_MAX]; /* CLOCK_MONOTONIC */
	size_t first, count;
};

/* False when it is full: then ending_take() first. */
bool ending_add(struct ending *q, const char *run_id, int64_t at_ms);
/* The oldest whose time has come, or with INT64_MAX of all; NULL when there is none. Valid until the next ending_add(). */
const char *ending_take(struct ending *q, int64_t now_ms);
/* When ending_take() has something; INT64_MAX for never. */
int64_t ending_deadline(const struct ending *q);

#endif
