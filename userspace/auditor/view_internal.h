/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a view share: view.c gathers, view_egress.c has what was tried, view_use.c what was used, view_run.c all.
 */
#ifndef WEIR_AUDITOR_VIEW_INTERNAL_H
#define WEIR_AUDITOR_VIEW_INTERNAL_H

#include <stddef.h>

#include "auditor/view.h"

struct entry {
	json_t *event;		 /* the object that answers list, but for its counts */
	uint64_t first_attempts; /* egress records seen; usually one */
	uint64_t count, bytes;	 /* from flow records */
	bool counted;		 /* there was one */
};

/* What a record has any number of, and an answer at most so many. */
enum list {
	LIST_REASONS,
	LIST_SOCKETS,
	LIST_DRIFT,
	LIST_GAPS,
	LIST_PROGRAMS,
	LIST_CALLS,
	LIST_OOM,
	LIST_MOMENTS,
	LIST_LATE,
	LISTS
};

struct view {
	json_t *begin, *end, *first; /* records: references */
	json_t *content;	     /* .. what only the client saw; NULL: it said nothing */
	json_t *by_flow;	     /* flow identity -> index into entries */
	json_t *changes;	     /* policies that took another's place while it ran */
	json_t *cgroups;	     /* of a carried parent: who is below it, id -> path; NULL: none that tried anything */
	json_t *target;		     /* of an attachment: what has the policy; NULL: it is none */
	json_t *lists[LISTS];	     /* NULL where there is nothing */
	uint64_t omitted_of[LISTS];
	struct entry *entries;
	size_t n, room;
	uint64_t omitted; /* records beyond VIEW_EVENTS_MAX */
	uint64_t unwritten;
	uint64_t changes_omitted;		       /* of the policy, beyond LIMIT_POLICY_CHANGES */
	uint64_t numbered;			       /* the cgroup whose events are looked at for that: */
	uint64_t seen_events, first_event, last_event; /* numbers that the kernel gave: how many, the least, the greatest */
	uint64_t calls_omitted;			       /* of refused system calls: their count */
	uint64_t chain_n;			       /* 0: not in the chain yet */
	char chain_hash[2 * CHAIN_HASH + 1];
	bool chain_signed;
	bool quiet; /* a policy of this run's wants allowed attempts counted, not listed */
};

struct totals {
	uint64_t attempts, denied, allowed, would_deny, lost;
	uint64_t inbound; /* what came from outside and was refused: among the events, not among the attempts */
	bool exact;	  /* from the kernel's counters; else from what is listed so far */
};

/* ---- records ---- */

const char *view_text(const json_t *record, const char *name);				      /* "" for none */
uint64_t view_number(const json_t *record, const char *name);				      /* 0 for none */
int view_set_copy(json_t *into, const char *name, const json_t *from, const char *from_name); /* null for none */
/* Of an attachment's window, which goes on while it ends. */
bool view_is_window(const struct view *v);

/* ---- what was used: view_use.c ---- */

/* Of a run_end record and a `content` one, which may be NULL; takes `flow_bytes`, null where it is not known. */
json_t *view_usage(const json_t *end, const json_t *content, json_t *flow_bytes);

/* ---- what was tried: view_egress.c ---- */

int view_add_attempt(struct view *v, const json_t *record, bool flow); /* 0 or -ENOMEM */
struct totals view_totals(const struct view *v);
json_t *view_totals_json(const struct totals *t);
json_t *view_events(const struct view *v);
uint64_t view_flow_bytes(const struct view *v);
/* Of a run that has ended: numbers of events that never came to the record, by the kernel's count or by the holes in it. */
uint64_t view_events_missing(const struct view *v);

/* ---- what there are many of: view_lists.c ---- */

/* Adds a record to the list of its kind, or to what is known of an attachment. 1: it is of none; or -ENOMEM. */
int view_add_listed(struct view *v, const char *type, const json_t *record);
int view_list_late(struct view *v, const json_t *record); /* 0 or -ENOMEM */
/* The list under its name, and how many there are beyond it where there are. Not 0: no memory. */
int view_put_list(json_t *into, const struct view *v, enum list which);
/* What an attachment's record has beside a run's. */
int view_put_attached(json_t *run, const struct view *v);
/* "281474976712345", as a name in `cgroups`. */
const char *view_cgroup_key(char ret[24], const json_t *with_id);

/* ---- what was used: view_use.c ---- */

/*
 * usage, processes, threads, execs, refused_syscalls, oom_victims, packets, limits, content, boot_id; with `lists` also what
 * there are many of: programs, calls, moments. Not 0: no memory.
 */
int view_put_use(json_t *run, const struct view *v, bool lists);

#endif
