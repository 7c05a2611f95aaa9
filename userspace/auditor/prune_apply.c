/* SPDX-License-Identifier: Apache-2.0 */
/* The second half of pruning: what a signed entry names goes, whoever wrote it and however often we died in between. */
#include <errno.h>
#include <string.h>

#include "auditor/prune.h"

#define FORGOTTEN 1024 /* entries that were signed since: far more than the keeper of the key can sign again */
#define DAY_NS (86400 * 1000000000ll)

/* A piece: what it costs is a transaction of about 0.2 s, for which notes and other auditors wait. */
#define PIECE_RECORDS 32768
#define PIECE_BYTES (24 << 20)

/* What has gone. `left`: of what an entry may name; one that names more is none that was written here. */
struct work {
	int64_t runs, records, bytes, left;
};

static bool is_enough(const struct work *w)
{
	return w->records >= PIECE_RECORDS || w->bytes >= PIECE_BYTES;
}

typedef int range_fn(struct store *s, int64_t from, int64_t to, struct work *w);

static int each_range(struct store *s, const json_t *list, struct work *w, range_fn *fn)
{
	const json_t *range;
	size_t i;
	int r = 0;

	json_array_foreach(list, i, range)
	{
		json_int_t from = json_integer_value(json_array_get(range, 0)),
			   to = json_integer_value(json_array_get(range, 1));

		if (from <= 0 || to < from || to - from >= w->left)
			return -EBADMSG;
		w->left -= to - from + 1;
		r = fn(s, from, to, w);
		if (r < 0)
			return r;
	}
	return r;
}

static int remove_run(struct store *s, int64_t n, struct work *w)
{
	static const enum sql_id drops[] = {SQL_DROP_RECORDS, SQL_DROP_DESTINATIONS, SQL_DROP_CONTENT, SQL_DROP_RUN};
	sqlite3_stmt *st = sql_start(s->q, SQL_ENTRY_RUN, "i", n);
	int64_t id, project, bytes;
	int r = sql_row(s->q, st);

	if (r <= 0)
		return r;
	id = sqlite3_column_int64(st, 0);
	project = sqlite3_column_int64(st, 1);
	bytes = sqlite3_column_int64(st, 2);
	sql_done(st);
	r = 0;
	for (size_t i = 0; r == 0 && i < sizeof drops / sizeof drops[0]; i++) {
		r = sql_run(s->q, drops[i], "i", id);
		w->records += i == 0 ? sqlite3_changes64(s->q->db) : 0;
	}
	if (r == 0)
		r = sql_run(s->q, SQL_PROJECT_BYTES, "ii", project, -bytes);
	if (r == 0)
		r = sql_run(s->q, SQL_DROP_PROJECT, "i", project);
	w->runs++;
	w->bytes += bytes;
	return r;
}

static int remove_runs(struct store *s, int64_t from, int64_t to, struct work *w)
{
	int r = 0;

	for (int64_t n = from; r == 0 && n <= to && !is_enough(w); n++) {
		r = remove_run(s, n, w);
		if (r == 0)
			r = sql_run(s->q, SQL_DROP_BODY, "i", n);
	}
	return r;
}

static int remove_entries(struct store *s, int64_t from, int64_t to, struct work *w)
{
	(void)w;
	return sql_run(s->q, SQL_DROP_ENTRIES, "ii", from, to);
}

static int64_t member(const json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

static int count(struct store *s, const json_t *body)
{
	int r = sql_run(s->q, SQL_META_ADD, "ti", "pruned_runs", member(body, "runs"));

	if (r == 0)
		r = sql_run(s->q, SQL_META_ADD, "ti", "pruned_records", member(body, "records"));
	if (r == 0)
		r = sql_run(s->q, SQL_META_ADD, "ti", "pruned_bytes", member(body, "bytes"));
	return r;
}

/*
 * Documents that nothing newer names; which a supervisor that lives tells again once a day. While runs go for their age, one of
 * them may still name one.
 */
static int remove_policies(struct store *s, int64_t old_ns)
{
	int r;

	if (sql_number(s->q, SQL_OLD, -1, &r, "ii", old_ns, (int64_t)1) >= 0 || r < 0)
		return r;
	return sql_run(s->q, SQL_DROP_POLICIES, "i", old_ns - DAY_NS);
}

static int apply(struct store *s, const json_t *body, int64_t old_ns, struct work *w)
{
	int r = each_range(s, json_object_get(body, "entries"), w, remove_runs);

	if (r < 0 || is_enough(w))
		return r;
	w->left = PRUNE_ENTRIES_MAX;
	if (r == 0)
		r = each_range(s, json_object_get(body, "skeletons"), w, remove_entries);
	if (r == 0)
		r = sql_run(s->q, SQL_DROP_OTHERS, "i", member(json_object_get(body, "others_pruned"), "to"));
	if (r == 0)
		r = sql_run(s->q, SQL_DROP_PREFIX, "i", member(body, "prefix"));
	if (r == 0)
		r = count(s, body);
	return r == 0 ? remove_policies(s, old_ns) : r;
}

/*
 * What is known of the pending entry: its text (the caller's), or NULL and PRUNE_WAITS or PRUNE_NONE. Behind a break, or so far
 * back that the keeper of the key has forgotten it, it is signed never.
 */
static int pending_body(struct store *s, uint64_t n, json_t **ret)
{
	sqlite3_stmt *st = sql_start(s->q, SQL_CHAIN_ENTRY, "i", (int64_t)n);
	int r = sql_row(s->q, st);
	bool is_signed;

	*ret = NULL;
	if (r <= 0)
		return r < 0 ? r : PRUNE_NONE;
	is_signed = s->keyless || sqlite3_column_bytes(st, 1) == CHAIN_SIGNATURE;
	if (is_signed)
		*ret = json_loadb(sql_text(st, 2), (size_t)sqlite3_column_bytes(st, 2), 0, NULL);
	sql_done(st);
	if (is_signed)
		return PRUNE_NONE;
	if (n + FORGOTTEN < s->keeper_n || sql_number(s->q, SQL_BREAK_BEHIND, 0, &r, "i", (int64_t)n))
		return PRUNE_NONE;
	return r < 0 ? r : PRUNE_WAITS;
}

int prune_apply(struct store *s, int64_t old_ns, int64_t *ret_runs)
{
	struct work w = {.left = PRUNE_RUNS_MAX};
	json_t *body;
	int r, done;
	uint64_t n = (uint64_t)sql_number(s->q, SQL_META, 0, &r, "t", PRUNE_PENDING);

	if (r < 0 || !n)
		return r < 0 ? r : PRUNE_NONE;
	r = pending_body(s, n, &body);
	if (r != PRUNE_NONE)
		return r;
	done = body ? PRUNE_APPLIED : PRUNE_NONE;
	if (body)
		r = apply(s, body, old_ns, &w);
	json_decref(body);
	if (r == 0 && !is_enough(&w)) /* else there may be more of it */
		r = sql_run(s->q, SQL_META_DROP, "t", PRUNE_PENDING);
	*ret_runs = w.runs;
	return r < 0 ? r : done;
}
