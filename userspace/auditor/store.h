/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record: an SQLite database (schema.h) in a directory of the auditor's own.
 *
 * Several auditors may write it at once (a service, and `weir run` beside it); each batch is a transaction, and a lock file
 * orders them and tells whether any auditor lives. A sequence number is never used twice, and a hole in them means that records
 * are missing; a gap record then says why. Each run that has ended becomes an entry of a chain of hashes (core/chain.h), which
 * somebody else signs.
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

#include "auditor/auditor.h"
#include "auditor/view.h"
#include "core/chain.h"
#include "core/err.h"
#include "ipc/ipc.h"

#define STORE_FILE "audit.db"
#define STORE_WAL_FILE "audit.db-wal"
#define STORE_SHM_FILE "audit.db-shm"
#define STORE_LOCK_FILE "audit.lock"
#define STORE_LOCK_WAIT_MS 2000	       /* for another auditor that is writing; then the records count as not written */
#define STORE_ENTRY_BYTES 240	       /* what an entry of the chain takes beside its text */
#define STORE_RUN_LINES_MAX 8192       /* of one run, read for one answer */
#define STORE_GAP_OLDER "older-format" /* of a gap: files of an earlier Weir lie beside the record and are not read */

struct store;

enum store_state { STORE_UNKNOWN, STORE_RUNNING, STORE_ENDED, STORE_INTERRUPTED };
extern const char *const store_state_names[4]; /* [STORE_UNKNOWN] is "unknown" */

struct store_stats {
	uint64_t written;      /* records, by this process */
	uint64_t unwritten;    /* records that are lost because a write failed */
	uint64_t write_errors; /* failed transactions */
	uint64_t sync_errors;
	uint64_t pruned_runs; /* by this process */
	uint64_t last_seq;
};

/*
 * Opens the record in `dir` (borrowed; must stay open) for writing, makes it when there is none, and when no other auditor
 * lives, marks runs without an end as interrupted. A record that can't be read is an error that says what to do, never the
 * beginning of another one; what a killed auditor left half written is undone.
 */
int store_open(struct store **ret, int dir, const struct audit_opts *opts, struct err *e);

/*
 * Opens it for reading, beside a writer or without; needs to be able to write to the directory unless it is a complete copy
 * without a log. -ENOENT when there is no record.
 */
int store_open_readonly(struct store **ret, int dir, struct err *e);

/* Whether an auditor lives that writes the record in `dir`. */
bool store_somebody_writes(int dir);
/* A copy that is complete without a log, where nobody can write: SQLite need not look for writers, and could not. */
bool store_is_still(int dir);

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

/*
 * Makes everything committed durable, of other auditors also; does nothing when it is. A failure is counted and becomes a gap
 * record. Only durable entries of the chain are given out to be signed: what a power cut takes was never signed.
 */
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

/* Calls fn with the id of each run, in the order in which they began. Stops when fn returns other than 0 and returns that. */
int store_each_run(const struct store *s, int (*fn)(void *ctx, const char *run_id), void *ctx);

/* What the client has seen of a run: a record of type "content", and with `bytes` (LIMIT_AUDIT_CONTENT_BYTES of each kind, one
 * after the other) what of it is stored. Of a batch. */
void store_append_content(struct store *s, const char *run_id, const struct content_told *content, const char *bytes);

/*
 * Of a batch: the run has ended and its record is complete: its summary (view_chained()) becomes the next entry of the chain.
 * Once only; later calls do nothing. What still comes of it is in the record and not in the sum. 0, or a negative errno: it
 * can't be summed up, for example because a page of it is damaged; the rest of the batch does not suffer from that.
 */
int store_finish(struct store *s, const char *run_id);
/* Ended runs that are not finished and ended before `wall_ns`: at most `max` ids into `ret`, the oldest first but `skip` of
 * them. */
size_t store_unfinished(struct store *s, uint64_t wall_ns, size_t skip, char (*ret)[IPC_ID_MAX], size_t max);
/* The hash of a finished run's entry: 0, or -ENOENT. */
int store_run_hash(const struct store *s, const char *run_id, uint8_t ret[CHAIN_HASH]);

/* Runs (their summaries' rows) as QUERY_SEARCH answers them; `project` and `agent` as in a struct query. The caller's. */
int store_search(const struct store *s, const struct find *f, const char *project, const char *agent, json_t **ret);
/* Records, each with its seq, as QUERY_FOLLOW answers them: 0, also when there is none yet. The caller's. */
int store_follow(const struct store *s, const struct find *f, const char *project, const char *agent, json_t **ret);
uint64_t store_last_seq(const struct store *s);
/* The text of a policy's document by its hash (hex); -ENOENT. malloc'd. */
int store_policy_text(const struct store *s, const char *hash, char **ret);
/* What was stored of a run's content: -ENOENT when nothing was. malloc'd. */
int store_content(const struct store *s, const char *run_id, enum content_kind kind, char **ret, size_t *ret_len);

/*
 * Retention, a bounded piece of it: what is too old, then what is too much, of whoever has most. First a CHAIN_PRUNE entry
 * names it; it goes when that entry is signed (at once where nobody signs), so that whoever finds something gone finds who says
 * so. Nothing goes before the keeper's head is known (store_check_head()), and nothing ever with opts.shared. Returns
 * STORE_PRUNED when there may be more to do, STORE_PRUNE_WAITS for a signature, 0, or a negative errno. Outside a batch.
 */
enum { STORE_PRUNED = 1, STORE_PRUNE_WAITS = 2 };
int store_prune(struct store *s, uint64_t wall_ns, struct err *e);
/* Whether there is more than may be, so that store_prune() should not be waited with. */
bool store_is_over(const struct store *s);

/*
 * Entry n of the chain: {"n", "hash", "signed", "signature": hex or null, "body": its JSON; null when it was pruned}. -ENOENT.
 * The caller's.
 */
int store_entry(const struct store *s, uint64_t n, json_t **ret);

/* Where the chain ends, signed or not. */
int store_head(const struct store *s, struct chain_head *ret);
/*
 * Entries to be signed, in order: those after `after` that have no signature, or that are beyond what the keeper of the key
 * remembers (its head file may be older than the record after a power cut). Fills at most `max`, returns how many.
 */
size_t store_unsigned(const struct store *s, uint64_t after, struct sign_ask *ret, size_t max);
/* The signature of entry n, whose hash it is over. -EBADMSG: that entry has another hash. */
int store_signed(struct store *s, uint64_t n, const uint8_t hash[CHAIN_HASH], const uint8_t signature[CHAIN_SIGNATURE],
		 struct err *e);
/*
 * What the keeper of the key remembers (NOTE_HEAD). When the chain here ends before it, or has another hash there, a
 * CHAIN_BREAK entry follows that says so: returns STORE_BROKEN then. Entries that were beyond it already when this auditor
 * started, alone, are signed only behind such an entry, too, which says that nobody vouches for who wrote them: STORE_ADOPTED.
 * Else 0 or a negative errno.
 */
enum { STORE_BROKEN = 1, STORE_ADOPTED = 2 };
int store_check_head(struct store *s, const struct chain_head *head, struct err *e);

/* Whether no other auditor lived when this one opened the record: what has no end then never will have one. */
bool store_alone(const struct store *s);

/*
 * The figures that QUERY_STATS answers: {"written", "unwritten", "write_errors", "sync_errors", "gaps": {kind: records of this
 * process}, "runs", "bytes", "bytes_limit", "pruned_runs", "unsigned", "chain_n", "last_seq", "oldest": RFC 3339 or null}. 0 or
 * a negative errno. The caller's.
 */
int store_figures(struct store *s, json_t **ret);

/*
 * What of a time a reader of many runs should not miss, newest first, at most `max`: gap records of nobody ({"kind": "gap",
 * "gap": its kind, "time", "seq", …}) and the chain's entries that are no run's ({"kind": "prune" or "break", "time", "n", …}).
 * until_ns 0: to the end. 0 or a negative errno. The caller's.
 */
int store_notices(const struct store *s, uint64_t since_ns, uint64_t until_ns, size_t max, json_t **ret);

/* Borrowed; up to date as of the last call of any function here. */
const struct store_stats *store_stats(struct store *s);

#endif
