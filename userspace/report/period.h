/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of many runs. Inside of report/. */
#ifndef WEIR_REPORT_PERIOD_H
#define WEIR_REPORT_PERIOD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "report/html.h"
#include "report/report.h"

#define PERIOD_GROUPS_MAX 200 /* projects, policies: rows of their own; the rest is one row */
#define PERIOD_RUNS_NAMED 3   /* of those that tried one destination */
/* Kept while runs are added, so that what is tried again later still counts: about 2 KB each. */
#define PERIOD_RUNS_KEPT (2 * REPORT_RUNS_MAX)
#define PERIOD_DESTINATIONS_KEPT (16 * REPORT_DESTINATIONS_MAX)

/* Sums, as numbers of a JSON object; the order is the tables'. */
enum sum { SUM_RUNS, SUM_ATTEMPTS, SUM_DENIED, SUM_WOULD_DENY, SUM_ALLOWED, SUM_LOST, SUMS };
extern const char *const sum_names[SUMS];

struct report_period {
	json_t *runs;			    /* run id -> row: a run without its lists */
	json_t *projects, *policies, *ends; /* name -> sums */
	json_t *use;	      /* project -> {"measured": runs, "cpu_ms", "memory_peak_bytes": the largest, "net_bytes"} */
	json_t *destinations; /* what was denied or would have been: project and all else as key -> row */
	json_t *left_out;     /* project -> {"runs", "destinations", "attempts"}: counted, without a row */
	uint64_t sums[SUMS];
	uint64_t runs_left_out, destinations_left_out;
	uint64_t not_read; /* runs in no sum either */
	uint64_t order;	   /* of the row that was made last */
	bool thinned;	   /* destinations were left out before all were known: counts of others can be too low */
	uint64_t interrupted, running, unchained, is_unsigned, unwritten, gaps, late;
	uint64_t first_n, last_n; /* of the chain, among these runs; 0: none */
};

/* Adds to a number of an object. */
int period_count(json_t *object, const char *name, uint64_t n);
/* The sums of one name, made when it is the first of it; of all beyond PERIOD_GROUPS_MAX together. NULL without memory. */
json_t *period_group(json_t *groups, const char *name);
/*
 * Leaves `room` rows of a table of *p's, those that places_sort() puts first; the others are counted as left out. A row has
 * "project", "part", "kind", "order" and, of a destination, "count". 0 or -ENOMEM.
 */
int period_thin(struct report_period *p, json_t **table, size_t room);
/*
 * Leaves the rows that one page has room for, with a fair share for each project and run (places.h), and gives them as lists to
 * go through: runs newest first, destinations by how often they were tried. 0 or -ENOMEM.
 */
int period_settle(struct report_period *p, json_t **ret_runs, json_t **ret_destinations);

/* What is missing, changed or not to be relied on, before everything else. */
void period_missing(struct html *h, const struct report_period *p, const json_t *period);
/* Why something was removed; the record's own word when it is not known. */
const char *period_prune_words(const char *reason);

#endif
