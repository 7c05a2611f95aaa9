/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "auditor/schema.h"
#include "core/clock.h"

uint64_t store_now_ns(void)
{
	return clock_wall_ns();
}

/* ---- what could not be written ---- */

void store_loss_clear(struct store_loss *loss)
{
	json_decref(loss->begin);
	json_decref(loss->end);
	memset(loss, 0, sizeof *loss);
}

/*
 * For one more: a free one, else one whose row says already what is missing, else one that is not the only one to know that its
 * run has ended, which would be running for ever.
 */
static struct store_loss *loss_room(struct store *s)
{
	struct store_loss *told = NULL, *open = NULL, *next = &s->losses[s->next_loss];

	for (size_t i = 0; i < STORE_LOSSES_MAX; i++) {
		struct store_loss *l = &s->losses[(s->next_loss + i) % STORE_LOSSES_MAX];

		if (!l->run_id[0])
			return l;
		told = told || l->records ? told : l;
		open = open || l->end ? open : l;
	}
	s->next_loss = (s->next_loss + 1) % STORE_LOSSES_MAX;
	return told ? told : open ? open : next;
}

static void loss_add(struct store *s, const struct store_pending *p)
{
	struct store_loss *loss;

	s->stats.unwritten++;
	s->lost_since_gap++;
	if (!p->run_id[0])
		return;
	loss = (struct store_loss *)store_loss_of(s, p->run_id);
	if (!loss) {
		loss = loss_room(s);
		store_loss_clear(loss);
		memcpy(loss->run_id, p->run_id, sizeof loss->run_id);
	}
	loss->records++;
	if (p->type == RECORD_RUN_BEGIN && !loss->begin)
		loss->begin = json_incref(p->body);
	if (p->type == RECORD_RUN_END && !loss->end)
		loss->end = json_incref(p->body);
}

void store_fail(struct store *s, const struct err *e)
{
	if (!s->failed.code)
		s->failed = *e;
}

void store_fail_sql(struct store *s, const char *what)
{
	struct err e;

	schema_err(s->q->db, &e, what);
	store_fail(s, &e);
}

/* ---- transactions ---- */

static void txn_undo(struct store *s)
{
	/* SQLite may have done so by itself already. */
	if (!sqlite3_get_autocommit(s->q->db))
		(void)sql_run(s->q, SQL_ROLLBACK, "");
	s->open = false;
	s->ntouched = 0;
	s->project = -1;
}

static int txn_open(struct store *s, struct err *e)
{
	int r = s->locked ? 0 : store_lock_for_writing(s->lock);
	uint64_t last;

	if (r < 0)
		return err_errno(e, -r, "audit",
				 "can't lock the record for writing: another auditor holds it; stop it or give this one "
				 "another state directory");
	s->locked = true;
	if (sql_run(s->q, SQL_BEGIN, "") < 0)
		return schema_err(s->q->db, e, "can't write to the record");
	s->open = true;
	s->ntouched = 0;
	s->project = -1;
	s->changes = sqlite3_total_changes64(s->q->db);
	/* Others may have written. Numbers that a failed batch of ours had are not given out again. */
	last = (uint64_t)sql_number(s->q, SQL_SEQUENCE, 0, &r, "t", "record");
	if (r < 0)
		return schema_err(s->q->db, e, "can't read the record");
	if (s->next_seq <= last)
		s->next_seq = last + 1;
	return 0;
}

static void txn_unlock(struct store *s)
{
	if (s->locked)
		(void)store_lock_once(s->lock, F_UNLCK, STORE_LOCK_WRITE);
	s->locked = false;
}

static int txn_close(struct store *s, struct err *e)
{
	int r = store_settle(s);

	if (r == 0)
		r = sql_run(s->q, SQL_COMMIT, "");
	if (r < 0)
		return schema_err(s->q->db, e, "can't write to the record");
	s->open = false;
	s->dirty |= sqlite3_total_changes64(s->q->db) != s->changes;
	return 0;
}

int store_txn_begin(struct store *s, bool *ret_joined, struct err *e)
{
	int r;

	*ret_joined = s->open;
	if (s->open)
		return 0;
	r = txn_open(s, e);
	if (r < 0) {
		txn_undo(s);
		txn_unlock(s);
	}
	return r;
}

int store_txn_end(struct store *s, bool joined, int r, struct err *e)
{
	int c;

	if (joined)
		return r;
	if (r >= 0 && (c = txn_close(s, e)) < 0)
		r = c;
	if (r < 0) {
		txn_undo(s);
		s->stats.write_errors++;
	}
	txn_unlock(s);
	return r;
}

/* ---- batches ---- */

static struct store_pending *pending_add(struct store *s)
{
	if (s->npending == s->pending_room) {
		size_t room = s->pending_room ? 2 * s->pending_room : 64;
		struct store_pending *p = reallocarray(s->pending, room, sizeof *p);

		if (!p)
			return NULL;
		s->pending = p;
		s->pending_room = room;
	}
	memset(&s->pending[s->npending], 0, sizeof *s->pending);
	return &s->pending[s->npending++];
}

static void no_memory(struct store *s)
{
	struct err e;

	err_set(&e, ENOMEM, "audit", "no memory for a record");
	store_fail(s, &e);
}

void store_append_body(struct store *s, const struct note *note, enum record_type type, const char *run_id, json_t *body)
{
	struct store_pending *p = pending_add(s), lost = {.type = type, .body = body};
	const char *kind = type == RECORD_GAP ? json_string_value(json_object_get(body, "kind")) : NULL;

	if (!p) {
		/* Not even room to remember it: counted at once. */
		snprintf(lost.run_id, sizeof lost.run_id, "%s", run_id);
		loss_add(s, &lost);
		no_memory(s);
		json_decref(body);
		return;
	}
	p->type = type;
	snprintf(p->run_id, sizeof p->run_id, "%s", run_id);
	snprintf(p->gap_kind, sizeof p->gap_kind, "%s", kind ? kind : "");
	p->body = type == RECORD_RUN_BEGIN || type == RECORD_RUN_END ? json_incref(body) : NULL;
	if (!body)
		no_memory(s);
	/* The number is used up whether or not the record makes it: a hole in the numbers is a loss that shows. */
	if (!s->failed.code && store_put(s, note, type, run_id, s->next_seq, body) < 0)
		store_fail_sql(s, "can't write to the record");
	s->next_seq++;
	json_decref(body);
}

/* Tells the rows of runs what is missing of them. One whose end could not be written has ended all the same. */
static void tell_losses(struct store *s)
{
	for (size_t i = 0; i < STORE_LOSSES_MAX && !s->failed.code; i++) {
		struct store_loss *loss = &s->losses[i];

		loss->telling = 0;
		if (!loss->run_id[0] || !loss->records)
			continue;
		if (sql_run(s->q, SQL_RUN_UNWRITTEN, "tiii", loss->run_id, (int64_t)loss->records, (int64_t)(loss->end != NULL),
			    (int64_t)store_now_ns()) < 0)
			store_fail_sql(s, "can't write to the record");
		else if (sqlite3_changes(s->q->db) > 0)
			loss->telling = loss->records;
	}
}

/* Puts what was lost before at the head of the batch. */
static void append_owed(struct store *s)
{
	if (s->lost_since_gap) {
		store_append_gap(s, RECORD_GAP_UNWRITTEN, s->lost_since_gap, "records could not be written and are missing");
		tell_losses(s);
	}
	if (s->unsynced_since_gap)
		store_append_gap(s, RECORD_GAP_UNSYNCED, s->unsynced_since_gap,
				 "the disk did not confirm records before this one");
	s->nowed = s->npending;
}

void store_begin(struct store *s)
{
	struct err e;

	s->failed.code = 0;
	if (!s->open && txn_open(s, &e) < 0)
		store_fail(s, &e);
	append_owed(s);
}

/* Who finds what a dead instance left knows its runs by their ids alone. */
static json_t *with_project(struct store *s, const struct note *note, json_t *body)
{
	const bool asks = !note->project[0] && note->run_id[0] && !s->failed.code;
	sqlite3_stmt *st = asks ? sql_start(s->q, SQL_PROJECT_OF, "t", note->run_id) : NULL;

	if (!st)
		return body;
	if (sql_row(s->q, st) > 0)
		json_object_set_new(body, "project", json_string(sql_text(st, 0)));
	sql_done(st);
	return body;
}

void store_append(struct store *s, const struct note *note)
{
	enum record_type type = record_type_of(note);

	if (note->type == NOTE_POLICY_TEXT)
		store_put_text(s, note);
	else if (type != RECORD_OTHER)
		store_append_body(s, note, type, note->run_id, with_project(s, note, record_body(note)));
}

void store_append_gap(struct store *s, const char *kind, uint64_t count, const char *text)
{
	store_append_body(s, NULL, RECORD_GAP, "", record_gap(kind, count, text));
}

static void batch_written(struct store *s)
{
	for (size_t i = 0; i < s->npending; i++) {
		const char *kind = s->pending[i].gap_kind;

		if (kind[0])
			json_object_set_new(s->gaps, kind,
					    json_integer(json_integer_value(json_object_get(s->gaps, kind)) + 1));
	}
	for (size_t i = 0; s->nowed && i < STORE_LOSSES_MAX; i++) {
		s->losses[i].records -= s->losses[i].telling;
		s->losses[i].telling = 0;
	}
	s->stats.written += s->npending;
	s->lost_since_gap = s->unsynced_since_gap = 0;
}

void store_batch_clear(struct store *s)
{
	for (size_t i = 0; i < s->npending; i++)
		json_decref(s->pending[i].body);
	s->npending = s->nowed = 0;
}

int store_commit(struct store *s, struct err *e)
{
	struct err why;
	int r = 0;

	if (!s->failed.code && txn_close(s, &why) == 0) {
		batch_written(s);
	} else {
		if (!s->failed.code)
			store_fail(s, &why);
		for (size_t i = 0; i < STORE_LOSSES_MAX; i++)
			s->losses[i].telling = 0;
		for (size_t i = s->nowed; i < s->npending; i++)
			loss_add(s, &s->pending[i]);
		s->stats.write_errors++;
		r = -s->failed.code;
		if (e)
			*e = s->failed;
	}
	if (s->open)
		txn_undo(s);
	store_batch_clear(s);
	txn_unlock(s);
	return r;
}

/* ---- durability ---- */

/* The log onto the disk: SQLite does that itself only before it moves it into the database. */
static int sync_log(struct store *s)
{
	sqlite3_file *log = NULL;
	int rc = sqlite3_file_control(s->q->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);

	if (rc != SQLITE_OK || !log || !log->pMethods)
		return rc;
	return log->pMethods->xSync(log, SQLITE_SYNC_NORMAL);
}

int store_sync(struct store *s, struct err *e)
{
	struct chain_head end = {.n = 0};
	int rc;

	(void)store_head(s, &end); /* can't be read: then nothing new is signed, and whoever writes learns why */
	if (!s->dirty && end.n <= s->durable_to)
		return 0;
	s->dirty = false;
	rc = sync_log(s);
	if (rc == SQLITE_OK) {
		/* Nobody waits for this one: somebody who reads, or moves it himself, only puts it off. */
		rc = sqlite3_wal_checkpoint_v2(s->q->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
		if ((rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED)
			rc = SQLITE_OK;
	}
	if (rc == SQLITE_OK) {
		s->durable_to = end.n;
		return 0;
	}
	/* The kernel forgets which pages failed, so trying again would only look like success. */
	s->stats.sync_errors++;
	s->unsynced_since_gap++;
	return err_set(e, EIO, "audit", "the disk did not confirm the record (%s): %s", STORE_FILE, sqlite3_errstr(rc));
}

bool store_dirty(const struct store *s)
{
	return s->dirty;
}
