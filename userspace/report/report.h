/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages for somebody who reviews what runs did: one self-contained HTML document each, without scripts and without anything
 * that a browser would fetch. Pure: from the record's JSON (auditor/view.h) to text.
 *
 * A record is taken as it comes. What it does not have is said to be unknown, never made up, and what is known to be missing
 * stands at the top of the page.
 */
#ifndef WEIR_REPORT_REPORT_H
#define WEIR_REPORT_REPORT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Of one page: rows of runs, and of destinations that were denied. What is beyond is in the sums, and which projects' it is is
 * said. Each project has the same share of the rows, and of that each of its runs: a flood takes no place but its own.
 */
#define REPORT_RUNS_MAX 1000
#define REPORT_DESTINATIONS_MAX 1000

/* Said at the foot of a page. Borrowed. */
struct report_about {
	const char *version; /* of Weir */
	const char *made;    /* when, RFC 3339 */
	const char *place;   /* the record that was read; may be "" */
};

/*
 * The page of one run, as view_run() gives it, with {"checked": what verify_report_json() gave when the record was checked, or
 * {"problem": why it was not}}; without that the page says that it was not. `policies`: policy hash (hex) -> document text, for
 * the run's own policy and those that took its place; may be NULL. malloc'd; NULL without memory. `ret_len` may be NULL.
 */
char *report_run(const json_t *run, const json_t *policies, const struct report_about *about, size_t *ret_len);

/* Many runs on one page, added one by one, so that none of them is kept whole. */
struct report_period;

/* NULL without memory. */
struct report_period *report_period_new(void);
/* NULL-safe, returns NULL. */
struct report_period *report_period_free(struct report_period *p);
/* The next run, newest first; borrowed. 0 or -ENOMEM. */
int report_period_add(struct report_period *p, const json_t *run);
/* That there are so many more, older ones, which are not added. */
void report_period_not_read(struct report_period *p, uint64_t runs);

/*
 * `period`: {"since", "until", "project"} (what was asked for; null or missing: everything), {"attachment": id} (the runs are
 * the parts of its record), {"notices": [{"kind": "gap" | "prune" | "break", "time", "text", …}], "notices_more": bool} newest
 * first, {"chain": {"n", "hash", "signed"}} where the chain ends, {"limit": n} (only the newest n runs were to be read, and
 * there are more), {"checked"} as above; all optional. Nothing may be added to *p afterwards. As report_run() otherwise.
 */
char *report_period_page(struct report_period *p, const json_t *period, const struct report_about *about, size_t *ret_len);

#endif
