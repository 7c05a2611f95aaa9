/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one run did, folded from its records: the objects that answers carry. Pure: no files here.
 *
 * An `egress` record (first attempt: who, which name) and a `flow` record (final count) of the same flow become one
 * event. "lost" counts what the listing can't show: attempts nobody listed, flows whose first attempt never arrived, and
 * attempts the counters know but no listed flow accounts for.
 */
#ifndef WEIR_AUDITOR_VIEW_H
#define WEIR_AUDITOR_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* More flows than a run can list (LIMIT_AUDIT_FLOWS), since an event may come without one; the rest is counted as lost. */
#define VIEW_EVENTS_MAX 2048

struct view;

/* NULL without memory. */
struct view *view_new(void);

/* Accepts NULL. Returns NULL. */
struct view *view_free(struct view *view);

/* Adds one record, which is borrowed and not changed; call in the order of seq. Ignores what it does not know. Returns 0 or
 * -ENOMEM. */
int view_add(struct view *view, const json_t *record);

/* Says that `records` of this run's records could not be written. */
void view_unwritten(struct view *view, uint64_t records);

/* The run's project, from its first record; NULL before any. Borrowed. */
const char *view_project(const struct view *view);

/* Whose call it is; NULL when it is none. Borrowed. */
const char *view_agent(const struct view *view);

/* Whether a run_end was added. */
bool view_ended(const struct view *view);

/* {"attempts", "denied", "allowed", "would_deny", "lost", "destinations"}. NULL without memory. The caller's. */
json_t *view_summary(const struct view *view);

/* The whole run; `state` is "running", "ended" or "interrupted". NULL without memory. The caller's. */
json_t *view_run(const struct view *view, const char *state);

#endif
