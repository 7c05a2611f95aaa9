/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store's files share: store_open.c, store_lock.c, store.c (batches), store_write.c (rows), store_chain.c,
 * store_read.c (runs), store_find.c, store_notices.c, prune.c.
 */
#ifndef WEIR_AUDITOR_STORE_INTERNAL_H
#define WEIR_AUDITOR_STORE_INTERNAL_H

#include "auditor/auditor.h"
#include "auditor/record.h"
#include "auditor/sql.h"
#include "auditor/store.h"

#define STORE_LOSSES_MAX 1024 /* runs whose unwritten records are remembered; who can be done without makes room */
#define STORE_TOUCHED_MAX 64  /* runs of a batch whose sums wait for its end; then those written so far go into the rows */
#define STORE_ROW_BYTES 96    /* what a record takes beside its text, as measured: row, keys, index */

/* A record of the open batch, for the case that it can't be written. */
struct store_pending {
	enum record_type type;
	char run_id[IPC_ID_MAX];
	char gap_kind[24]; /* "" for other types */
	json_t *body;	   /* of run_begin and run_end; else NULL */
};

/* Runs with records that could not be written. */
struct store_loss {
	char run_id[IPC_ID_MAX]; /* "" for a free slot */
	uint64_t records;	 /* since the run's row last said so */
	uint64_t telling;	 /* those of them that the open batch tells the row of */
	json_t *begin, *end;	 /* bodies of those records, if it was them; NULL otherwise */
};

/* A run of the open batch, and what its row is to grow by. */
struct store_touched {
	char run_id[IPC_ID_MAX];
	int64_t id, project;
	bool finished; /* its row is what its entry says, and stays that */
	int64_t records, bytes, attempts, denied, would_deny, verdicts;
};

/* A policy's document on its way: the parts come one after the other. */
struct store_text {
	uint8_t hash[32];
	uint32_t len, total;
	char *text; /* owned; NULL: none is under way */
};

struct store {
	int dir;  /* borrowed */
	int lock; /* owned; -1 when read-only and there is none */
	bool readonly;
	bool alive;		/* some auditor lives: this one, or when read-only, another */
	bool alone;		/* none lived when this one opened */
	struct audit_opts opts; /* without zeros */
	struct sql *q;		/* owned */
	uint64_t next_seq;
	int64_t opened_ns; /* CLOCK_REALTIME */

	/* the open batch */
	bool locked, open; /* open: within a transaction */
	struct err failed; /* code 0: nothing has failed */
	struct store_pending *pending;
	size_t npending, pending_room;
	size_t nowed; /* leading records of the batch that report earlier losses */
	struct store_touched touched[STORE_TOUCHED_MAX];
	size_t ntouched;
	int64_t project; /* the id of project_name, -1 for none: notes come in rows of one project */
	char project_name[IPC_PROJECT_MAX];
	struct store_text text;

	/* the chain */
	bool head_known, keyless, compared; /* compared: with what the keeper remembered at the start */
	uint64_t opened_n;		    /* the last entry that was there when this one opened the record */
	uint64_t keeper_n;		    /* the last one that the keeper of the key has signed */
	uint64_t durable_to;		    /* entries up to here outlive a power cut */
	uint64_t signed_to;		    /* up to here all are signed, or never will be: after a break, the one before it */

	bool dirty;
	sqlite3_int64 changes; /* of the connection, when the transaction began */
	uint64_t lost_since_gap, unsynced_since_gap;
	struct store_loss losses[STORE_LOSSES_MAX];
	size_t next_loss;
	struct store_stats stats;
	json_t *gaps; /* kind -> records of this process */
};

const struct store_loss *store_loss_of(const struct store *s, const char *run_id);

/* One byte of the lock file: at once (-EAGAIN), or within STORE_LOCK_WAIT_MS. For writing: in turn with others. */
int store_lock_once(int fd, short type, off_t byte);
int store_lock_wait(int fd, short type, off_t byte);
int store_lock_for_writing(int fd);

void store_loss_clear(struct store_loss *loss);
void store_batch_clear(struct store *s);

/* Remembers the first failure of a batch. */
void store_fail(struct store *s, const struct err *e);
/* .. which is SQLite's last one. */
void store_fail_sql(struct store *s, const char *what);

/* A transaction under the lock, without what store_begin() adds; for what is no batch of notes. Joins an open batch. */
int store_txn_begin(struct store *s, bool *ret_joined, struct err *e);
/* Commits when r is 0 or more, else undoes it; returns r or the commit's own failure. Does nothing when it was joined. */
int store_txn_end(struct store *s, bool joined, int r, struct err *e);

/* The row of a run, made when it is new. NULL: it failed, which the batch knows. */
struct store_touched *store_touch(struct store *s, const char *run_id, const char *sandbox_id, const char *project,
				  uint64_t wall_ns);
/* Brings the sums of the batch into the rows. 0 or a negative errno. */
int store_settle(struct store *s);
/* Writes one record of the batch: body, row, destination. 0 or a negative errno; `note` is NULL for a gap or content. */
int store_put(struct store *s, const struct note *note, enum record_type type, const char *run_id, uint64_t seq,
	      const json_t *body);
void store_put_text(struct store *s, const struct note *note);
/* Appends to the batch, taking `body` (NULL: there was no memory for it). */
void store_append_body(struct store *s, const struct note *note, enum record_type type, const char *run_id, json_t *body);

/*
 * Appends an entry to the chain, within a transaction; adds to `body` (borrowed) what is new of nobody's records. `at` 0: after
 * the last; with `before` NULL its hash. Returns 0 or a negative errno.
 */
int store_chain_add(struct store *s, enum chain_kind kind, const char *run_id, json_t *body, uint64_t at, const uint8_t *before,
		    uint64_t *ret_n, size_t *ret_bytes);

/* A run's row, and its records folded. `hash` (may be NULL) gets each record. -ENOENT: there is no row. */
struct store_row {
	int64_t id, project_id;
	int64_t chain_n; /* 0: not finished */
	enum store_state state;
	uint64_t unwritten, records;
	int64_t last_seq; /* of a finished one: what is beyond came late */
	char project[IPC_PROJECT_MAX], sandbox_id[IPC_ID_MAX];
	bool is_signed;
	uint8_t hash[CHAIN_HASH]; /* of its entry */
};
int store_row(const struct store *s, const char *run_id, struct store_row *ret);
int store_fold(const struct store *s, const char *run_id, const struct store_row *row, struct chain_records *hash,
	       struct view **ret);

uint64_t store_now_ns(void); /* CLOCK_REALTIME */
enum store_state store_state_by_name(const char *name);
uint64_t store_used_bytes(const struct store *s);
void store_set_ceiling(struct store *s, bool spare); /* spare: for what makes room; not within a transaction */

/* Byte ranges of the lock file. */
#define STORE_LOCK_WRITE 0
#define STORE_LOCK_ALIVE 1
#define STORE_LOCK_NEXT 2 /* held by the one who gets STORE_LOCK_WRITE next */

#endif
