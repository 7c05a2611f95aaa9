/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record: `audit.ndjson` and, one generation back, `audit.ndjson.1`, in a directory of the auditor's own.
 *
 * Append only. Several auditors may share one directory (a service, and `weir run` beside it): a lock file orders their
 * writes, and each reads what the others appended before it takes the next sequence number. A line that a crash cut off
 * is removed by whoever writes next, and a gap record says so. A sequence number is never used twice, and a hole in
 * them means that records are missing; a gap record then says why.
 *
 * A record counts as kept once store_commit() has returned 0: from then on it outlives the death of this process. It
 * outlives a power cut from the next store_sync() on.
 *
 * One thread. Nothing here logs; counters and errors say what happened.
 */
#ifndef WEIR_AUDITOR_STORE_H
#define WEIR_AUDITOR_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "auditor/view.h"
#include "core/err.h"
#include "ipc/ipc.h"

#define STORE_FILE "audit.ndjson"
#define STORE_OLD_FILE "audit.ndjson.1"
#define STORE_LOCK_FILE "audit.lock"
#define STORE_LOCK_WAIT_MS 2000	 /* for another auditor that is writing; then the records count as not written */
#define STORE_RUN_LINES_MAX 8192 /* of one run, read for one answer */

struct store;

enum store_state { STORE_UNKNOWN, STORE_RUNNING, STORE_ENDED, STORE_INTERRUPTED };
extern const char *const store_state_names[4]; /* [STORE_UNKNOWN] is "unknown" */

struct store_stats {
	uint64_t written;      /* records, by this process */
	uint64_t unwritten;    /* records that are lost because a write failed */
	uint64_t write_errors; /* failed commits */
	uint64_t sync_errors;
	uint64_t torn;	     /* cut-off lines removed */
	uint64_t rotations;  /* by this process */
	uint64_t unreadable; /* lines in the files that are no records */
	uint64_t last_seq;
};

/*
 * Opens the record in `dir` (borrowed; must stay open) for writing: makes the files, removes a torn line, indexes what is
 * there, and when no other auditor lives, marks runs without an end as interrupted. `max_bytes` per file.
 */
int store_open(struct store **ret, int dir, uint64_t max_bytes, struct err *e);

/* Opens it for reading, beside a writer or without. -ENOENT when there is no record. */
int store_open_readonly(struct store **ret, int dir, struct err *e);

/* Accepts NULL. Does not sync. Returns NULL. */
struct store *store_free(struct store *s);

/*
 * A batch: begin, any number of appends, commit. Locks from begin to commit, so keep it short. append takes a note
 * without a problem (record_note_problem) and keeps nothing of it. When anything fails, commit returns the negative
 * errno of the first failure; the records it concerns are gone, which answers about their runs show from then on and
 * the next commit that works records.
 */
void store_begin(struct store *s);
void store_append(struct store *s, const struct note *note);
void store_append_gap(struct store *s, const char *kind, uint64_t count, const char *text);
int store_commit(struct store *s, struct err *e);

/* Makes everything committed durable; does nothing when it is. A failure is counted and becomes a gap record. */
int store_sync(struct store *s, struct err *e);

/* Whether something is committed but not yet durable. */
bool store_dirty(const struct store *s);

enum store_state store_state(const struct store *s, const char *run_id);

/* Whether this run's end was appended, written or not. */
bool store_run_ended(const struct store *s, const char *run_id);

/* The project of a run, from its first record. -ENOENT when nothing is known of it. */
int store_run_project(const struct store *s, const char *run_id, char ret[IPC_PROJECT_MAX]);

/* Reads a run. -ENOENT when nothing is known of it. *ret is the caller's. */
int store_run(const struct store *s, const char *run_id, struct view **ret);

/*
 * Calls fn with the id of each run, in the order in which they began, without those that a file before lists already.
 * Stops when fn returns other than 0 and returns that.
 */
int store_each_run(const struct store *s, int (*fn)(void *ctx, const char *run_id), void *ctx);

/* Borrowed; up to date as of the last call of any function here. */
const struct store_stats *store_stats(struct store *s);

#endif
