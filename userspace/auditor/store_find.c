/* SPDX-License-Identifier: Apache-2.0 */
/* Searching runs, and following records. What an asker may not see is left out before anything is counted. */
#include "auditor/store_internal.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "auditor/schema.h"
#include "core/event.h"
#include "core/limits.h"

#define FOLLOW_SPAN 2000       /* numbers looked at in one call: others wait for it */
#define FOLLOW_BYTES (1 << 20) /* of text in one answer */
#define COMMON 2000	       /* destinations: of what so many have, one is soon met among the newest runs */
#define PARAMETERS_MAX 24
#define TEXT_MAX 4096

/* ---- what is asked for, as SQL: constants of ours, and parameters ---- */

struct asked {
	char sql[TEXT_MAX];
	size_t len;
	struct {
		const char *text; /* NULL: the number */
		int64_t number;
	} of[PARAMETERS_MAX];
	int n;
};

static void say(struct asked *a, const char *sql)
{
	int n = snprintf(a->sql + a->len, sizeof a->sql - a->len, "%s", sql);

	a->len += n > 0 ? (size_t)n : 0;
}

static void with_text(struct asked *a, const char *text)
{
	if (a->n < PARAMETERS_MAX)
		a->of[a->n++].text = text;
}

static void with_number(struct asked *a, int64_t number)
{
	if (a->n < PARAMETERS_MAX)
		a->of[a->n++].number = number;
}

static sqlite3_stmt *ask(const struct store *s, const struct asked *a)
{
	sqlite3_stmt *st = NULL;
	int rc = a->len < sizeof a->sql ? sqlite3_prepare_v2(s->q->db, a->sql, -1, &st, NULL) : SQLITE_TOOBIG;

	for (int i = 0; rc == SQLITE_OK && i < a->n; i++)
		rc = a->of[i].text ? sqlite3_bind_text(st, i + 1, a->of[i].text, -1, SQLITE_STATIC)
				   : sqlite3_bind_int64(st, i + 1, a->of[i].number);
	if (rc == SQLITE_OK)
		return st;
	sqlite3_finalize(st);
	return NULL;
}

/* ---- destinations ---- */

enum match { MATCH_NONE, MATCH_WHOLE, MATCH_BEGIN, MATCH_END };
struct sought {
	enum match how;
	char text[320];	   /* in lower case; of MATCH_END backwards, as `mirrored` is */
	char beyond[322];  /* the first text that does not begin with it */
	char address[320]; /* as addresses are written; text when it is none */
};

static void lower(char *text)
{
	for (; *text; text++)
		*text = (char)tolower((unsigned char)*text);
}

static void mirror(char *text)
{
	size_t n = strlen(text);

	for (size_t i = 0; i < n / 2; i++) {
		char c = text[i];

		text[i] = text[n - 1 - i];
		text[n - 1 - i] = c;
	}
}

static void seek(struct sought *ret, const char *wanted)
{
	size_t len = strlen(wanted);
	unsigned char address[16];

	*ret = (struct sought){.how = MATCH_NONE};
	if (!len)
		return;
	ret->how = wanted[0] == '*' && len > 1 ? MATCH_END : wanted[len - 1] == '*' ? MATCH_BEGIN : MATCH_WHOLE;
	snprintf(ret->text, sizeof ret->text, "%.300s", wanted + (ret->how == MATCH_END));
	if (ret->how == MATCH_BEGIN)
		ret->text[strlen(ret->text) - 1] = 0;
	lower(ret->text);
	if (ret->how == MATCH_END)
		mirror(ret->text);
	/* Texts are ASCII: nothing that begins with it comes after it with the highest byte at its end. */
	snprintf(ret->beyond, sizeof ret->beyond, "%s\x7f", ret->text);
	snprintf(ret->address, sizeof ret->address, "%s", ret->text);
	for (const int *f = (const int[]){AF_INET, AF_INET6, 0}; ret->how == MATCH_WHOLE && *f; f++)
		if (inet_pton(*f, ret->text, address) == 1)
			(void)inet_ntop(*f, address, ret->address, sizeof ret->address);
}

/* The rows of `destination` that match, as SELECTs of `column`, joined. */
static void say_matches(struct asked *a, const struct sought *w, const char *column, uint32_t verdicts, const char *more)
{
	static const struct {
		const char *where;
		bool range, address;
	} branches[][2] = {
	    [MATCH_WHOLE] = {{"name <> '' AND name = ?", false, false}, {"address = ?", false, true}},
	    [MATCH_BEGIN] = {{"name <> '' AND name >= ? AND name < ?", true, false},
			     {"address >= ? AND address < ?", true, false}},
	    [MATCH_END] = {{"mirrored <> '' AND mirrored >= ? AND mirrored < ?", true, false}, {NULL, false, false}},
	};

	for (int i = 0; i < 2 && branches[w->how][i].where; i++) {
		say(a, i ? " UNION ALL SELECT " : "SELECT ");
		say(a, column);
		say(a, " FROM destination WHERE ");
		say(a, branches[w->how][i].where);
		with_text(a, branches[w->how][i].address ? w->address : w->text);
		if (branches[w->how][i].range)
			with_text(a, w->beyond);
		if (verdicts) {
			say(a, " AND (1 << verdict) & ?");
			with_number(a, verdicts);
		}
		say(a, more);
	}
}

/* Whether so many destinations match that looking through the newest runs for one is quicker than gathering all. */
static bool is_common(const struct store *s, const struct sought *w, uint32_t verdicts)
{
	struct asked a = {.n = 0};
	sqlite3_stmt *st;
	bool common = false;

	say(&a, "SELECT count(*) FROM (");
	say_matches(&a, w, "1", verdicts, "");
	say(&a, " LIMIT ?)");
	with_number(&a, COMMON);
	st = ask(s, &a);
	if (st && sqlite3_step(st) == SQLITE_ROW)
		common = sqlite3_column_int64(st, 0) >= COMMON;
	sqlite3_finalize(st);
	return common;
}

static void say_destination(const struct store *s, struct asked *a, const struct sought *w, uint32_t verdicts)
{
	if (is_common(s, w, verdicts)) {
		say(a, " AND EXISTS (");
		say_matches(a, w, "1", verdicts, " AND run = r.id");
	} else {
		say(a, " AND r.id IN (");
		say_matches(a, w, "run", verdicts, "");
	}
	say(a, ")");
}

/* ---- runs ---- */

/* The project that both the asker may see and the filter wants: its id, -1 for all, -2 when there is none. */
static int64_t project_of(const struct store *s, const char *may_see, const char *wanted)
{
	const char *name = may_see[0] ? may_see : wanted;

	if (may_see[0] && wanted[0] && strcmp(may_see, wanted) != 0)
		return -2;
	return name[0] ? sql_number(s->q, SQL_PROJECT, -2, NULL, "t", name) : -1;
}

static void say_ends(struct asked *a, uint32_t ends)
{
	const char *between = "";

	if (!ends)
		return;
	say(a, " AND r.kind <> 'attached' AND r.\"end\" IN (");
	for (int i = 0; i < RUN_END_COUNT; i++) {
		if (!(ends & 1u << i))
			continue;
		say(a, between);
		say(a, "?");
		with_text(a, run_end_names[i]);
		between = ", ";
	}
	say(a, ")");
}

static int64_t bounded(uint64_t ns, int64_t otherwise)
{
	return !ns ? otherwise : ns > INT64_MAX ? INT64_MAX : (int64_t)ns;
}

static void say_filters(const struct store *s, struct asked *a, const struct find *f, int64_t project, const char *agent,
			const struct sought *w)
{
	say(a, " WHERE r.id > 0 AND r.id < ?"); /* no number of ours is less: a cursor would go round for ever */
	with_number(a, bounded(f->after, INT64_MAX));
	if (project >= 0) {
		say(a, " AND r.project = ?");
		with_number(a, project);
	}
	if (agent[0]) {
		say(a, " AND (r.agent IS NULL OR r.agent = ?)");
		with_text(a, agent);
	}
	if (f->since_ns || f->until_ns) {
		say(a, " AND r.began_ns >= ? AND r.began_ns < ?");
		with_number(a, bounded(f->since_ns, 0));
		with_number(a, bounded(f->until_ns, INT64_MAX));
	}
	if (f->policy[0]) {
		say(a, " AND r.policy = ?");
		with_text(a, f->policy);
	}
	if (f->caller[0]) {
		say(a, " AND r.caller = ?");
		with_text(a, f->caller);
	}
	if (f->agent[0]) {
		say(a, " AND r.agent = ?");
		with_text(a, f->agent);
	}
	if (f->verdicts && w->how == MATCH_NONE) {
		say(a, " AND r.verdicts & ?");
		with_number(a, f->verdicts);
	}
	say_ends(a, f->ends);
	if (w->how != MATCH_NONE)
		say_destination(s, a, w, f->verdicts);
}

static json_t *text_or_null(sqlite3_stmt *st, int column)
{
	char plain[256];
	json_t *text;

	if (sqlite3_column_type(st, column) == SQLITE_NULL)
		return json_null();
	text = json_string(sql_text(st, column));
	if (text)
		return text;
	/* Not what was written: no text of ours has such bytes. One changed row must not hide the others. */
	event_safe_text(plain, sizeof plain, sql_text(st, column), strnlen(sql_text(st, column), 60));
	return json_string(plain);
}

static json_t *time_json(sqlite3_stmt *st, int column)
{
	char text[EVENT_TIME_MAX];

	if (sqlite3_column_type(st, column) == SQLITE_NULL)
		return json_null();
	event_time_text(text, (uint64_t)sqlite3_column_int64(st, column));
	return json_string(text);
}

/* The columns of a run's row as an answer has them, in the order of the SELECT. */
enum column_kind { COLUMN_TEXT, COLUMN_TIME, COLUMN_NUMBER, COLUMN_HASH };
static const struct {
	const char *name, *sql;
	enum column_kind kind;
} columns[] = {
    {"run_id", "r.run_id", COLUMN_TEXT},
    {"sandbox_id", "r.sandbox_id", COLUMN_TEXT},
    {"project", "p.name", COLUMN_TEXT},
    {"agent", "r.agent", COLUMN_TEXT},
    {"kind", "r.kind", COLUMN_TEXT},
    {"began", "r.began_ns", COLUMN_TIME},
    {"ended", "r.ended_ns", COLUMN_TIME},
    {"state", "r.state", COLUMN_TEXT},
    {"end", "r.\"end\"", COLUMN_TEXT},
    {"policy", "r.policy", COLUMN_TEXT},
    {"policy_hash", "r.policy_hash", COLUMN_TEXT},
    {"attempts", "r.attempts", COLUMN_NUMBER},
    {"denied", "r.denied", COLUMN_NUMBER},
    {"would_deny", "r.would_deny", COLUMN_NUMBER},
    {"lost", "r.lost", COLUMN_NUMBER},
    {"audit_hash", "c.hash", COLUMN_HASH},
    {"ref", "r.ref", COLUMN_TEXT},
    {"target", "r.target", COLUMN_TEXT},
    {"caller", "r.caller", COLUMN_TEXT},
};
#define COLUMNS ((int)(sizeof columns / sizeof columns[0]))

static json_t *column_json(sqlite3_stmt *st, int i)
{
	char hex[2 * CHAIN_HASH + 1];

	switch (columns[i].kind) {
	case COLUMN_TIME:
		return time_json(st, i + 1);
	case COLUMN_NUMBER:
		return json_integer(sqlite3_column_int64(st, i + 1));
	case COLUMN_HASH:
		if (sqlite3_column_bytes(st, i + 1) != CHAIN_HASH)
			return json_null();
		chain_hex(sqlite3_column_blob(st, i + 1), hex);
		return json_string(hex);
	case COLUMN_TEXT:
	default:
		return text_or_null(st, i + 1);
	}
}

static json_t *run_json(const struct store *s, sqlite3_stmt *st)
{
	json_t *run = json_object();
	bool attached = strcmp(sql_text(st, 5), "attached") == 0;

	for (int i = 0; run && i < COLUMNS; i++) {
		const char *name = columns[i].name;

		if (!attached && (!strcmp(name, "ref") || !strcmp(name, "target")))
			continue;
		if (json_object_set_new(run, name, column_json(st, i)) < 0) {
			json_decref(run);
			return NULL;
		}
	}
	/* Nobody lives who could end it. */
	if (run && !s->alive && store_state_by_name(sql_text(st, 8)) == STORE_RUNNING)
		json_object_set_new(run, "state", json_string(store_state_names[STORE_INTERRUPTED]));
	return run;
}

static int gather_runs(const struct store *s, sqlite3_stmt *st, uint32_t limit, json_t *runs, int64_t *ret_next)
{
	int64_t last = 0;
	int rc;

	*ret_next = 0;
	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		if (json_array_size(runs) == limit) {
			*ret_next = last; /* there is at least one more */
			return 0;
		}
		last = sqlite3_column_int64(st, 0);
		if (json_array_append_new(runs, run_json(s, st)) < 0)
			return -ENOMEM;
	}
	return rc == SQLITE_DONE ? 0 : -EIO;
}

static uint32_t limit_of(const struct find *f)
{
	return f->limit && f->limit < LIMIT_AUDIT_SEARCH ? f->limit : LIMIT_AUDIT_SEARCH;
}

int store_search(const struct store *s, const struct find *f, const char *project, const char *agent, json_t **ret)
{
	int64_t in_project = project_of(s, project, f->project), next = 0;
	json_t *runs = json_array();
	struct asked a = {.n = 0};
	sqlite3_stmt *st = NULL;
	char cursor[24];
	struct sought w;
	int r = runs ? 0 : -ENOMEM;

	seek(&w, f->destination);
	say(&a, "SELECT r.id");
	for (int i = 0; i < COLUMNS; i++) {
		say(&a, ", ");
		say(&a, columns[i].sql);
	}
	say(&a, " FROM run r CROSS JOIN project p ON p.id = r.project LEFT JOIN chain c ON c.n = r.chain_n");
	say_filters(s, &a, f, in_project, agent, &w);
	say(&a, " ORDER BY r.id DESC LIMIT ?");
	with_number(&a, (int64_t)limit_of(f) + 1);
	if (r == 0 && in_project != -2 && !(st = ask(s, &a)))
		r = schema_errno(s->q->db);
	if (st)
		r = gather_runs(s, st, limit_of(f), runs, &next);
	sqlite3_finalize(st);
	if (r < 0) {
		json_decref(runs);
		return r;
	}
	snprintf(cursor, sizeof cursor, "%lld", (long long)next);
	*ret = json_pack("{s:o, s:s?}", "runs", runs, "next", next ? cursor : NULL);
	return *ret ? 0 : -ENOMEM;
}

/* ---- records ---- */

static bool text_matches(const struct sought *w, const char *text, bool address)
{
	char copy[1100];
	size_t len = strlen(w->text);

	snprintf(copy, sizeof copy, "%s", text ? text : "");
	lower(copy);
	if (!copy[0] || (address && w->how == MATCH_END))
		return false;
	if (w->how == MATCH_WHOLE)
		return strcmp(copy, address ? w->address : w->text) == 0;
	if (w->how == MATCH_END)
		mirror(copy);
	return strncmp(copy, w->text, len) == 0;
}

static bool verdict_matches(uint32_t verdicts, const char *name)
{
	for (int i = 0; name && i < WEIR_VERDICT_COUNT; i++)
		if (verdicts & 1u << i && strcmp(name, event_verdict_names[i]) == 0)
			return true;
	return false;
}

static bool record_matches(const struct find *f, const struct sought *w, sqlite3_stmt *st, const json_t *record)
{
	const char *verdict = json_string_value(json_object_get(record, "verdict"));
	const char *name = json_string_value(json_object_get(record, "dns_name"));
	const char *address = json_string_value(json_object_get(record, "address"));
	bool ends = !f->ends;

	if (f->policy[0] && strcmp(sql_text(st, 2), f->policy) != 0)
		return false;
	if (f->caller[0] && strcmp(sql_text(st, 6), f->caller) != 0)
		return false;
	for (int i = 0; !ends && i < RUN_END_COUNT; i++)
		ends =
		    f->ends & 1u << i && !strcmp(sql_text(st, 3), run_end_names[i]) && strcmp(sql_text(st, 4), "attached") != 0;
	if (!ends || (f->verdicts && !verdict_matches(f->verdicts, verdict)))
		return false;
	return w->how == MATCH_NONE || text_matches(w, name, false) || text_matches(w, address, true);
}

/* One row. 1: it is in the answer. */
static int follow_row(const struct find *f, const struct sought *w, sqlite3_stmt *st, json_t *records)
{
	size_t len = (size_t)sqlite3_column_bytes(st, 1);
	json_t *record = len < RECORD_TEXT_MAX ? json_loadb(sql_text(st, 1), len, 0, NULL) : NULL;
	int r = 0;

	if (json_is_object(record) && record_matches(f, w, st, record)) {
		r = json_object_set_new(record, "seq", json_integer(sqlite3_column_int64(st, 0))) < 0 ||
			    (sqlite3_column_int(st, 5) && json_object_set_new(record, "late", json_true()) < 0) ||
			    json_array_append(records, record) < 0
			? -ENOMEM
			: 1;
	}
	json_decref(record);
	return r;
}

static int gather_records(const struct store *s, const struct find *f, int64_t project, const char *agent, uint64_t to,
			  json_t *records, uint64_t *ret_cursor)
{
	sqlite3_stmt *st = sql_start(s->q, SQL_FOLLOW, "iiitii", (int64_t)f->after, (int64_t)to, project, agent,
				     bounded(f->since_ns, 0), bounded(f->until_ns, INT64_MAX));
	size_t bytes = 0;
	struct sought w;
	int r;

	seek(&w, f->destination);
	while ((r = sql_row(s->q, st)) > 0) {
		r = follow_row(f, &w, st, records);
		bytes += r > 0 ? (size_t)sqlite3_column_bytes(st, 1) : 0;
		if (r < 0 || json_array_size(records) == limit_of(f) || bytes > FOLLOW_BYTES) {
			*ret_cursor = (uint64_t)sqlite3_column_int64(st, 0);
			sql_done(st);
			return r < 0 ? r : 0;
		}
	}
	*ret_cursor = to;
	return r;
}

int store_follow(const struct store *s, const struct find *f, const char *project, const char *agent, json_t **ret)
{
	uint64_t last = store_last_seq(s), from = f->after < last ? f->after : last, cursor = last;
	uint64_t to = last - from > FOLLOW_SPAN ? from + FOLLOW_SPAN : last;
	int64_t in_project = project_of(s, project, f->project);
	json_t *records = json_array();
	int r = records ? 0 : -ENOMEM;

	if (r == 0 && from < last && in_project != -2)
		r = gather_records(s, f, in_project, agent, to, records, &cursor);
	if (r < 0) {
		json_decref(records);
		return r;
	}
	*ret = json_pack("{s:o, s:I}", "records", records, "cursor", (json_int_t)cursor);
	return *ret ? 0 : -ENOMEM;
}
