/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the page of one run, each with its own heading and nothing when there is nothing to say. Inside of report/. */
#ifndef WEIR_REPORT_PARTS_H
#define WEIR_REPORT_PARTS_H

#include <jansson.h>
#include <stdbool.h>

#include "report/html.h"

/* What is missing, contradicts itself, or is not to be relied on: before everything else, and said also when it is nothing. */
void part_missing(struct html *h, const json_t *run);
/* Who ran what, when, and where it ended. */
void part_who(struct html *h, const json_t *run);
/* Of something that had the policy put on it while it ran. */
void part_target(struct html *h, const json_t *run);
void part_policy(struct html *h, const json_t *run, const json_t *policies);
/* Limits against use, and both sources of each figure. */
void part_use(struct html *h, const json_t *run);
void part_timeline(struct html *h, const json_t *run);
void part_destinations(struct html *h, const json_t *run);
void part_programs(struct html *h, const json_t *run);
void part_killed(struct html *h, const json_t *run);
void part_refused(struct html *h, const json_t *run);
void part_evidence(struct html *h, const json_t *run);

/* One figure of a run's use and the second source that it is checked against. */
enum agreement { AGREE_UNKNOWN, AGREE_SAME, AGREE_NEAR, AGREE_BOUND, AGREE_DIFFER };
struct figure {
	const char *title, *name, *member; /* "CPU time" at the head of a row, and within a sentence */
	bool is_time;			   /* milliseconds; else bytes */
	enum agreement (*compare)(double value, double checked);
	const char *bound; /* what the second source says, when it is no second measurement of the same */
};
#define FIGURES 4
extern const struct figure figures[FIGURES];
/* How far the two sources of one agree. */
enum agreement figure_agreement(const struct figure *f, const json_t *run);

#endif
