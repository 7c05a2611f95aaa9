/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Retention. What goes first is what is too old, then the oldest of a project that has more than its share, then, while the
 * whole is too large, the oldest of whoever has most: a flood costs the one who floods. Runs go whole; their entries of the
 * chain lose their bodies and keep number, digest, hash and signature until everything before them is gone, too.
 *
 * Each piece of work is an entry of the chain itself, written first: what it names goes only when it is signed
 * (prune_apply.c), so that nothing is ever missing that the keeper of the key has not put his name to. Here it is found out
 * what goes, and said.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auditor/prune.h"
#include "auditor/schema.h"
#include "core/event.h"

#define SKELETON_BYTES 260 /* an entry without its body, as measured */
#define SKELETONS_PART 16  /* of the whole record: what they may take */

enum why { WHY_AGE, WHY_PROJECT, WHY_ROOM };
static const char *const why_names[] = {[WHY_AGE] = "age", [WHY_PROJECT] = "project", [WHY_ROOM] = "room"};

/* A piece of work. */
struct prune {
	enum why why;
	int64_t project; /* -1: whoever's it is */
	char project_name[IPC_PROJECT_MAX];
	int64_t spare; /* bytes to get rid of; INT64_MAX: all that were found */
	int64_t runs, records, bytes, others, others_to;
	int64_t oldest_ns, newest_ns;
	int64_t numbers[PRUNE_RUNS_MAX]; /* of their entries, in order */
	uint64_t prefix;
	uint8_t prefix_hash[CHAIN_HASH];
	int64_t skeletons[PRUNE_ENTRIES_MAX]; /* entries that go without being the beginning */
	size_t skeleton_count;
	json_t *kept; /* digests over nobody's records that stay, of entries that go; owned */
};

/* ---- finding what goes ---- */

static int project_over(struct store *s, enum sql_id which, int64_t limit, struct prune *p)
{
	sqlite3_stmt *st = which == SQL_OVER ? sql_start(s->q, which, "i", limit) : sql_start(s->q, which, "");
	int r = sql_row(s->q, st);

	if (r <= 0)
		return r;
	p->project = sqlite3_column_int64(st, 0);
	snprintf(p->project_name, sizeof p->project_name, "%s", sql_text(st, 1));
	p->spare = sqlite3_column_int64(st, 2) - limit;
	sql_done(st);
	return 1;
}

/* 1: something goes, and *p says of whom and how much. 0: no run; of what is nobody's, what is too old may. */
static int choose(struct store *s, int64_t old_ns, struct prune *p)
{
	int64_t over;
	int r;

	*p = (struct prune){.why = WHY_AGE, .project = -1, .spare = INT64_MAX};
	if (sql_number(s->q, SQL_OLD, -1, &r, "ii", old_ns, (int64_t)1) >= 0 || r < 0)
		return r < 0 ? r : 1;
	r = project_over(s, SQL_OVER, (int64_t)s->opts.project_bytes, p);
	if (r != 0) {
		p->why = WHY_PROJECT;
		return r;
	}
	over = (int64_t)store_used_bytes(s) - (int64_t)s->opts.max_bytes;
	if (over <= 0)
		return 0;
	r = project_over(s, SQL_LARGEST, 0, p);
	p->spare = over;
	p->why = r > 0 ? WHY_ROOM : WHY_AGE;
	return r;
}

static void add_victim(struct prune *p, sqlite3_stmt *st)
{
	int64_t began_ns = sqlite3_column_int64(st, 3);

	p->numbers[p->runs++] = sqlite3_column_int64(st, 2);
	p->records += sqlite3_column_int64(st, 0);
	p->bytes += sqlite3_column_int64(st, 1);
	if (p->runs == 1 || began_ns < p->oldest_ns)
		p->oldest_ns = began_ns;
	if (began_ns > p->newest_ns)
		p->newest_ns = began_ns;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* However much they are: their going is done in pieces, and the signature that it waits for may be long in coming. */
static int find_victims(struct store *s, struct prune *p, int64_t old_ns)
{
	sqlite3_stmt *st = p->project < 0 ? sql_start(s->q, SQL_OLD, "ii", old_ns, (int64_t)PRUNE_RUNS_MAX)
					  : sql_start(s->q, SQL_OF_PROJECT, "ii", p->project, (int64_t)PRUNE_RUNS_MAX);
	int r;

	while ((r = sql_row(s->q, st)) > 0) {
		add_victim(p, st);
		if (p->bytes >= p->spare) {
			sql_done(st);
			r = 0;
			break;
		}
	}
	qsort(p->numbers, (size_t)p->runs, sizeof p->numbers[0], compare);
	return r;
}

/* Nobody's records go by age, in order, and only those that some entry has a digest of. */
static int find_others(struct store *s, struct prune *p, int64_t old_ns)
{
	int64_t to = sql_number(s->q, SQL_META, 0, NULL, "t", "others_seq");
	sqlite3_stmt *st = sql_start(s->q, SQL_OTHERS_OLD, "i", to);
	int r;

	while ((r = sql_row(s->q, st)) > 0) {
		if (sqlite3_column_int64(st, 1) >= old_ns) {
			sql_done(st);
			return 0;
		}
		p->others_to = sqlite3_column_int64(st, 0);
		p->others++;
	}
	return r;
}

/* Digests over nobody's records stay while those do: entries that go leave theirs to the one that says so. */
static int keep_others(struct prune *p, sqlite3_stmt *st, int column)
{
	int bad = p->kept ? 0 : -1;

	for (int i = column; i < column + 2; i++) {
		json_t *found = json_loads(sql_text(st, i), 0, NULL), *list = json_is_array(found) ? found : NULL, *one;
		size_t k;

		if (json_is_object(found))
			bad |= json_array_append(p->kept, found);
		json_array_foreach(list, k, one)
		{
			bad |= json_array_append(p->kept, one);
		}
		json_decref(found);
	}
	return bad ? -ENOMEM : 0;
}

static int keep_others_of_runs(struct store *s, struct prune *p)
{
	int r = 0;

	for (int64_t i = 0; r == 0 && i < p->runs; i++) {
		sqlite3_stmt *st = sql_start(s->q, SQL_ENTRY_OTHERS, "i", p->numbers[i]);

		r = sql_row(s->q, st);
		if (r <= 0)
			continue;
		r = keep_others(p, st, 0);
		sql_done(st);
	}
	return r;
}

/*
 * The chain's beginning, up to the first entry that somebody may still want: what is there of a run, or the news of a break
 * before it is old. What is not signed yet stays, or its signer would wait for it for ever.
 */
static int find_prefix(struct store *s, struct prune *p, int64_t old_ns)
{
	sqlite3_stmt *st = sql_start(s->q, SQL_CHAIN_FIRST, "i", (int64_t)PRUNE_ENTRIES_MAX);
	int r;

	while ((r = sql_row(s->q, st)) > 0) {
		int64_t n = sqlite3_column_int64(st, 0);
		bool is_run = strcmp(sql_text(st, 1), chain_kind_names[CHAIN_RUN]) == 0;
		bool is_break = strcmp(sql_text(st, 1), chain_kind_names[CHAIN_BREAK]) == 0;
		bool named = bsearch(&n, p->numbers, (size_t)p->runs, sizeof p->numbers[0], compare) != NULL;
		bool goes = named || sqlite3_column_int(st, 2);
		bool settled = s->keyless || sqlite3_column_int(st, 3) || (uint64_t)n <= s->signed_to;

		if (!settled || (is_run && !goes) || (is_break && sqlite3_column_int64(st, 5) >= old_ns) ||
		    sqlite3_column_bytes(st, 4) != CHAIN_HASH) {
			sql_done(st);
			return 0;
		}
		if (!named && keep_others(p, st, 6) < 0) {
			sql_done(st);
			return -ENOMEM;
		}
		p->prefix = (uint64_t)n;
		memcpy(p->prefix_hash, sqlite3_column_blob(st, 4), CHAIN_HASH);
	}
	return r;
}

/*
 * One run that is still wanted keeps the skeleton of every entry after it, and somebody quiet may have one for as long as
 * somebody busy makes millions: beyond their part of the record the oldest go, and leave a hole that the prune's entry tells
 * of.
 */
static int find_skeletons(struct store *s, struct prune *p)
{
	int64_t most = (int64_t)(s->opts.max_bytes / SKELETONS_PART / SKELETON_BYTES), over;
	sqlite3_stmt *st;
	int r;

	over = sql_number(s->q, SQL_SKELETONS, 0, &r, "") + p->runs - most;
	if (r < 0 || over <= 0)
		return r;
	st = sql_start(s->q, SQL_SKELETON_OLDEST, "ii", s->keyless ? INT64_MAX : (int64_t)s->signed_to,
		       over < PRUNE_ENTRIES_MAX ? over : PRUNE_ENTRIES_MAX);
	while ((r = sql_row(s->q, st)) > 0)
		p->skeletons[p->skeleton_count++] = sqlite3_column_int64(st, 0);
	return r;
}

/* ---- saying so ---- */

/* [[from, to], …] of numbers in order. */
static json_t *ranges(const int64_t *numbers, size_t n)
{
	json_t *list = json_array();

	for (size_t i = 0, from = 0; list && i < n; i++) {
		if (i + 1 < n && numbers[i + 1] == numbers[i] + 1)
			continue;
		json_array_append_new(list, json_pack("[I, I]", (json_int_t)numbers[from], (json_int_t)numbers[i]));
		from = i + 1;
	}
	return list;
}

static json_t *time_json(int64_t ns)
{
	char text[EVENT_TIME_MAX];

	if (!ns)
		return json_null();
	event_time_text(text, (uint64_t)ns);
	return json_string(text);
}

/* Of all that went before, and this. */
static json_t *totals_json(struct store *s, const struct prune *p)
{
	int64_t runs = sql_number(s->q, SQL_META, 0, NULL, "t", "pruned_runs");
	int64_t records = sql_number(s->q, SQL_META, 0, NULL, "t", "pruned_records");
	int64_t bytes = sql_number(s->q, SQL_META, 0, NULL, "t", "pruned_bytes");

	runs += p->runs;
	records += p->records;
	bytes += p->bytes;
	return json_pack("{s:I, s:I, s:I}", "runs", (json_int_t)runs, "records", (json_int_t)records, "bytes",
			 (json_int_t)bytes);
}

/* Of those, what is over records that stay. */
static json_t *kept_json(const struct prune *p)
{
	json_t *kept = json_array(), *one;
	size_t i;

	json_array_foreach(p->kept, i, one)
	{
		if (json_integer_value(json_object_get(one, "last_seq")) > p->others_to)
			json_array_append(kept, one);
	}
	return kept;
}

static json_t *body_json(struct store *s, const struct prune *p, uint64_t wall_ns)
{
	char hex[2 * CHAIN_HASH + 1] = "";
	json_t *body;

	if (p->prefix)
		chain_hex(p->prefix_hash, hex);
	body = json_pack("{s:s, s:o, s:s, s:s?, s:I, s:I, s:I, s:o, s:I, s:s, s:o, s:o, s:o}", "kind",
			 chain_kind_names[CHAIN_PRUNE], "time", time_json((int64_t)wall_ns), "reason", why_names[p->why],
			 "project", p->project < 0 ? NULL : p->project_name, "runs", (json_int_t)p->runs, "records",
			 (json_int_t)p->records, "bytes", (json_int_t)p->bytes, "entries", ranges(p->numbers, (size_t)p->runs),
			 "prefix", (json_int_t)p->prefix, "prefix_hash", hex, "oldest", time_json(p->oldest_ns), "newest",
			 time_json(p->newest_ns), "total", totals_json(s, p));
	if (body && p->others)
		json_object_set_new(body, "others_pruned",
				    json_pack("{s:I, s:I}", "count", (json_int_t)p->others, "to", (json_int_t)p->others_to));
	if (body && json_array_size(p->kept))
		json_object_set_new(body, "others_kept", kept_json(p));
	if (body && p->skeleton_count)
		json_object_set_new(body, "skeletons", ranges(p->skeletons, p->skeleton_count));
	return body;
}

static int say_so(struct store *s, const struct prune *p, uint64_t wall_ns)
{
	json_t *body = body_json(s, p, wall_ns);
	uint64_t n;
	size_t bytes;
	int r;

	if (!body)
		return -ENOMEM;
	r = store_chain_add(s, CHAIN_PRUNE, NULL, body, 0, NULL, &n, &bytes);
	json_decref(body);
	return r == 0 ? sql_run(s->q, SQL_META_SET, "ti", PRUNE_PENDING, (int64_t)n) : r;
}

static int plan_it(struct store *s, struct prune *p, int64_t old_ns, uint64_t wall_ns)
{
	int r = choose(s, old_ns, p);

	p->kept = json_array();
	if (r > 0)
		r = find_victims(s, p, old_ns);
	if (r == 0)
		r = find_others(s, p, old_ns);
	if (r < 0 || (!p->runs && !p->others))
		return r;
	r = keep_others_of_runs(s, p);
	if (r == 0)
		r = find_prefix(s, p, old_ns);
	if (r == 0 && !p->prefix)
		r = find_skeletons(s, p);
	if (r == 0)
		r = say_so(s, p, wall_ns);
	return r < 0 ? r : 1;
}

/* 1: an entry says what goes next; 0: nothing does. */
static int plan(struct store *s, int64_t old_ns, uint64_t wall_ns)
{
	struct prune p = {.kept = NULL};
	int r = plan_it(s, &p, old_ns, wall_ns);

	json_decref(p.kept);
	return r;
}

/* ---- all of it ---- */

static int step(struct store *s, int64_t old_ns, uint64_t wall_ns, int64_t *ret_runs)
{
	int r = prune_apply(s, old_ns, ret_runs);

	if (r == PRUNE_NONE) {
		r = plan(s, old_ns, wall_ns);
		if (r <= 0)
			return r;
		r = prune_apply(s, old_ns, ret_runs); /* without a key nobody is waited for */
	}
	if (r < 0)
		return r;
	return r == PRUNE_WAITS ? STORE_PRUNE_WAITS : STORE_PRUNED;
}

bool store_is_over(const struct store *s)
{
	return !s->opts.shared && store_used_bytes(s) > s->opts.max_bytes;
}

int store_prune(struct store *s, uint64_t wall_ns, struct err *e)
{
	int64_t old_ns = (int64_t)(wall_ns - s->opts.keep_s * 1000000000u), runs = 0;
	bool joined;
	int r;

	if (s->opts.shared || !s->head_known)
		return 0;
	store_set_ceiling(s, true);
	r = store_txn_begin(s, &joined, e);
	if (r < 0)
		return r;
	r = step(s, old_ns, wall_ns, &runs);
	if (r == -EBADMSG)
		err_set(e, EBADMSG, "audit",
			"the record names what is to be pruned in a way that Weir does not: see `weir audit verify`");
	else if (r < 0)
		schema_err(s->q->db, e, "can't prune the record");
	r = store_txn_end(s, joined, r, e);
	store_set_ceiling(s, false);
	if (r >= 0)
		s->stats.pruned_runs += (uint64_t)runs;
	return r;
}
