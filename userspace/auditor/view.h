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

#include "core/chain.h"
#include "ipc/ipc.h"

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

/* The same of a record that came after the run was summed up: it is listed as such, and changes nothing else. */
int view_add_late(struct view *view, const json_t *record);

/* Says that `records` of this run's records could not be written. */
void view_unwritten(struct view *view, uint64_t records);

/* The run's project, from its first record; NULL before any. Borrowed. */
const char *view_project(const struct view *view);

/* Whose call it is; NULL when it is none. Borrowed. */
const char *view_agent(const struct view *view);

/* Whether a run_end was added. */
bool view_ended(const struct view *view);

/* It is entry n of the chain. */
void view_set_chain(struct view *view, uint64_t n, const uint8_t hash[CHAIN_HASH], bool is_signed);

/* {"attempts", "denied", "allowed", "would_deny", "lost", "destinations"}. NULL without memory. The caller's. */
json_t *view_summary(const struct view *view);

/*
 * What the chain has of a run: {"kind": "run", "run_id", … "records", "records_sha256"}: who ran what under which policy, how
 * it ended, sums, usage with both sources, content's hashes, what was lost. Everything but the events themselves, which the
 * digest over the records covers. NULL without memory. The caller's.
 */
json_t *view_chained(const struct view *view, uint64_t records, const char *records_sha256);

/*
 * Puts the figures so far into what view_run() gave of one that is "running": "live": true, usage, processes, exact counters.
 * `output`: what was read of both its streams; NULL: not known. Returns 0 or -ENOMEM, and then has put some.
 */
int view_put_live(json_t *run, const struct tell_usage *now, const uint64_t *output);

/* The whole run; `state` is "running", "ended" or "interrupted". NULL without memory. The caller's. */
json_t *view_run(const struct view *view, const char *state);

#endif
