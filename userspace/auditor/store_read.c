/* SPDX-License-Identifier: Apache-2.0 */
/* Single runs, and figures. */
#include "auditor/store_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/event.h"

const char *const store_state_names[4] = {
    [STORE_UNKNOWN] = "unknown",
    [STORE_RUNNING] = "running",
    [STORE_ENDED] = "ended",
    [STORE_INTERRUPTED] = "interrupted",
};

enum store_state store_state_by_name(const char *name)
{
	for (int i = STORE_RUNNING; i <= STORE_INTERRUPTED; i++)
		if (strcmp(name, store_state_names[i]) == 0)
			return (enum store_state)i;
	return STORE_UNKNOWN;
}

const struct store_loss *store_loss_of(const struct store *s, const char *run_id)
{
	for (size_t i = 0; i < STORE_LOSSES_MAX; i++)
		if (s->losses[i].run_id[0] && strcmp(s->losses[i].run_id, run_id) == 0)
			return &s->losses[i];
	return NULL;
}

int store_row(const struct store *s, const char *run_id, struct store_row *ret)
{
	sqlite3_stmt *st = sql_start(s->q, SQL_RUN_ROW, "t", run_id);
	int r = sql_row(s->q, st);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	*ret = (struct store_row){.id = sqlite3_column_int64(st, 0),
				  .state = store_state_by_name(sql_text(st, 1)),
				  .unwritten = (uint64_t)sqlite3_column_int64(st, 2),
				  .chain_n = sqlite3_column_int64(st, 3),
				  .is_signed = sqlite3_column_type(st, 6) != SQLITE_NULL,
				  .records = (uint64_t)sqlite3_column_int64(st, 7),
				  .project_id = sqlite3_column_int64(st, 9),
				  .last_seq = sqlite3_column_int64(st, 10)};
	snprintf(ret->project, sizeof ret->project, "%s", sql_text(st, 4));
	snprintf(ret->sandbox_id, sizeof ret->sandbox_id, "%s", sql_text(st, 8));
	if (sqlite3_column_bytes(st, 5) == CHAIN_HASH)
		memcpy(ret->hash, sqlite3_column_blob(st, 5), CHAIN_HASH);
	else
		ret->chain_n = 0; /* its entry is gone: the chain's own check says so */
	/* Signatures come in order, and each covers what is before: one that got lost on its way here is no loss. */
	ret->is_signed |= ret->chain_n && (uint64_t)ret->chain_n <= s->signed_to;
	sql_done(st);
	return 0;
}

bool store_run_ended(const struct store *s, const char *run_id)
{
	const struct store_loss *loss = store_loss_of(s, run_id);
	struct store_row row;

	return (loss && loss->end) || (store_row(s, run_id, &row) == 0 && row.state == STORE_ENDED);
}

enum store_state store_state(const struct store *s, const char *run_id)
{
	const struct store_loss *loss = store_loss_of(s, run_id);
	struct store_row row;

	if (store_row(s, run_id, &row) < 0)
		return loss ? (loss->end ? STORE_ENDED : STORE_RUNNING) : STORE_UNKNOWN;
	if (row.state == STORE_RUNNING && loss && loss->end)
		return STORE_ENDED;
	return row.state == STORE_RUNNING && !s->alive ? STORE_INTERRUPTED : row.state;
}

int store_run_project(const struct store *s, const char *run_id, char ret[IPC_PROJECT_MAX])
{
	const struct store_loss *loss = store_loss_of(s, run_id);
	struct store_row row;
	const char *project;

	if (store_row(s, run_id, &row) == 0) {
		memcpy(ret, row.project, IPC_PROJECT_MAX);
		return 0;
	}
	project = loss ? json_string_value(json_object_get(loss->begin ? loss->begin : loss->end, "project")) : NULL;
	if (project)
		snprintf(ret, IPC_PROJECT_MAX, "%s", project);
	return project ? 0 : -ENOENT;
}

/* ---- folding ---- */

static int add_record(struct view *v, sqlite3_stmt *st, bool late)
{
	size_t len = (size_t)sqlite3_column_bytes(st, 1);
	json_t *record = len < RECORD_TEXT_MAX ? json_loadb(sql_text(st, 1), len, 0, NULL) : NULL;
	int r;

	if (!json_is_object(record)) {
		/* Somebody changed it: no record is that long, or no JSON. */
		json_decref(record);
		view_unwritten(v, 1);
		return 0;
	}
	r = json_object_set_new(record, "seq", json_integer(sqlite3_column_int64(st, 0))) < 0 ? -ENOMEM
	    : late									      ? view_add_late(v, record)
											      : view_add(v, record);
	json_decref(record);
	return r;
}

static int fold_rows(const struct store *s, const struct store_row *row, struct chain_records *hash, struct view *v)
{
	sqlite3_stmt *st = sql_start(s->q, SQL_RUN_RECORDS, "i", row->id);
	unsigned left = STORE_RUN_LINES_MAX;
	int r;

	while ((r = sql_row(s->q, st)) > 0) {
		bool end = strcmp(sql_text(st, 2), record_type_names[RECORD_RUN_END]) == 0;
		bool late = row->last_seq && sqlite3_column_int64(st, 0) > row->last_seq;

		if (hash && chain_records_add(hash, sql_text(st, 1), (size_t)sqlite3_column_bytes(st, 1)) < 0)
			r = -ENOMEM;
		if (r > 0 && !left && !end)
			view_unwritten(v, 1);
		else if (r > 0 && add_record(v, st, late) < 0)
			r = -ENOMEM;
		left -= left > 0;
		if (r < 0) {
			sql_done(st);
			break;
		}
	}
	return r;
}

int store_fold(const struct store *s, const char *run_id, const struct store_row *row, struct chain_records *hash,
	       struct view **ret)
{
	const struct store_loss *loss = store_loss_of(s, run_id);
	struct view *v = view_new();
	int r = v ? 0 : -ENOMEM;

	if (r == 0 && loss && loss->begin)
		r = view_add(v, loss->begin);
	if (r == 0 && row)
		r = fold_rows(s, row, hash, v);
	if (r == 0 && loss && loss->end)
		r = view_add(v, loss->end);
	if (r < 0) {
		view_free(v);
		return r;
	}
	/* What the open batch tells the row of is there and here; each is counted once. */
	view_unwritten(v, (row ? row->unwritten : 0) + (loss ? loss->records - loss->telling : 0));
	*ret = v;
	return 0;
}

int store_run(const struct store *s, const char *run_id, struct view **ret)
{
	struct store_row row;
	int r = store_row(s, run_id, &row);
	bool there = r == 0;

	if (r == -ENOENT && store_loss_of(s, run_id))
		r = 0;
	if (r == 0)
		r = store_fold(s, run_id, there ? &row : NULL, NULL, ret);
	if (r == 0 && there && row.chain_n)
		view_set_chain(*ret, (uint64_t)row.chain_n, row.hash, row.is_signed);
	return r;
}

/* ---- all of them ---- */

#define RUNS_AT_ONCE 64

/* In pieces, so that fn may ask for whatever it likes, and no reader keeps the log from being moved for long. */
int store_each_run(const struct store *s, int (*fn)(void *ctx, const char *run_id), void *ctx)
{
	char ids[RUNS_AT_ONCE][IPC_ID_MAX];
	int64_t after = 0;
	size_t n;
	int r;

	do {
		sqlite3_stmt *st = sql_start(s->q, SQL_RUNS_AFTER, "ii", after, (int64_t)RUNS_AT_ONCE);

		for (n = 0; (r = sql_row(s->q, st)) > 0; n++) {
			after = sqlite3_column_int64(st, 0);
			snprintf(ids[n], sizeof ids[n], "%s", sql_text(st, 1));
		}
		for (size_t i = 0; r == 0 && i < n; i++)
			r = fn(ctx, ids[i]);
	} while (r == 0 && n);
	return r;
}

/* ---- what is kept beside the records ---- */

int store_policy_text(const struct store *s, const char *hash, char **ret)
{
	sqlite3_stmt *st = sql_start(s->q, SQL_POLICY, "t", hash);
	int r = sql_row(s->q, st);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	*ret = strdup(sql_text(st, 0));
	sql_done(st);
	return *ret ? 0 : -ENOMEM;
}

int store_content(const struct store *s, const char *run_id, enum content_kind kind, char **ret, size_t *ret_len)
{
	sqlite3_stmt *st = sql_start(s->q, SQL_CONTENT, "ti", run_id, (int64_t)kind);
	int r = sql_row(s->q, st);
	size_t len;

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	len = (size_t)sqlite3_column_bytes(st, 0);
	*ret = malloc(len + 1);
	if (*ret && len)
		memcpy(*ret, sqlite3_column_blob(st, 0), len);
	if (*ret)
		(*ret)[len] = 0;
	*ret_len = len;
	sql_done(st);
	return *ret ? 0 : -ENOMEM;
}

/* ---- figures ---- */

uint64_t store_last_seq(const struct store *s)
{
	return (uint64_t)sql_number(s->q, SQL_SEQUENCE, 0, NULL, "t", "record");
}

/* What is in use: pages that pruning gave back will be written on again. */
uint64_t store_used_bytes(const struct store *s)
{
	int64_t pages = sql_number(s->q, SQL_PAGES, 0, NULL, ""), free_pages = sql_number(s->q, SQL_FREE_PAGES, 0, NULL, "");

	return (uint64_t)(pages - free_pages) * 4096;
}

const struct store_stats *store_stats(struct store *s)
{
	s->stats.last_seq = s->next_seq - 1;
	return &s->stats;
}

static json_t *oldest(struct store *s)
{
	int64_t ns = sql_number(s->q, SQL_RUN_OLDEST, -1, NULL, "");
	char text[EVENT_TIME_MAX];

	if (ns < 0)
		return json_null();
	event_time_text(text, (uint64_t)ns);
	return json_string(text);
}

int store_figures(struct store *s, json_t **ret)
{
	const struct store_stats *st = &s->stats;
	int64_t waiting =
	    s->head_known && !s->keyless ? sql_number(s->q, SQL_CHAIN_WAITING_COUNT, 0, NULL, "i", (int64_t)s->signed_to) : 0;
	struct chain_head head;
	int r = store_head(s, &head);

	if (r < 0)
		return r;
	*ret = json_pack("{s:o, s:o, s:o, s:o, s:O, s:I, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:I, s:I}", "written",
			 event_u64(st->written), "unwritten", event_u64(st->unwritten), "write_errors",
			 event_u64(st->write_errors), "sync_errors", event_u64(st->sync_errors), "gaps", s->gaps, "runs",
			 (json_int_t)sql_number(s->q, SQL_RUNS, 0, NULL, ""), "bytes", event_u64(store_used_bytes(s)),
			 "bytes_limit", event_u64(s->opts.max_bytes), "pruned_runs", event_u64(st->pruned_runs), "unsigned",
			 (json_int_t)waiting, "chain_n", event_u64(head.n), "last_seq", event_u64(store_last_seq(s)), "oldest",
			 oldest(s), "breaks", (json_int_t)sql_number(s->q, SQL_BREAKS_COUNT, 0, NULL, ""), "adopted",
			 (json_int_t)sql_number(s->q, SQL_ADOPTED_COUNT, 0, NULL, ""));
	return *ret ? 0 : -ENOMEM;
}
