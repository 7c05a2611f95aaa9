/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figures of GET /metrics as Prometheus reads them (text format 0.0.4). No label has a value that a client chooses: names
 * of projects are none, since there is no end to them. Pure.
 */
#ifndef WEIR_API_METRICS_TEXT_H
#define WEIR_API_METRICS_TEXT_H

#include <jansson.h>
#include <stddef.h>

#include "ipc/metrics.h"

/* What the api process itself has counted. */
enum metrics_stage { STAGE_QUEUE, STAGE_SEND, STAGE_RUN, STAGE_COLLECT, METRICS_STAGES };
struct api_counts {
	uint64_t replies;			 /* of whatever status */
	uint64_t refused[600];			 /* by status, from 400 on */
	struct histogram stages[METRICS_STAGES]; /* of runs that were answered */
};

/* All that is to be told. Borrowed. */
struct metrics_view {
	const struct metrics *supervisor; /* NULL: it did not answer */
	const json_t *auditor;		  /* its answer to QUERY_STATS; NULL likewise */
	const struct api_counts *counts;
	bool collector_up, has_collector;
	unsigned connections, followers, waiting; /* waiting: for their project's quota or their session */
	uint64_t request_bytes, answer_bytes;	  /* held */
};

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* malloc'd, NUL-terminated, *ret_len without the NUL. NULL: no memory. */
char *metrics_text(const struct metrics_view *v, size_t *ret_len);

#endif
