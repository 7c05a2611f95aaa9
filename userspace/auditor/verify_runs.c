/* SPDX-License-Identifier: Apache-2.0 */
/* What a run's entry vouches for: its row, its records, what is stored of its content, the documents of its policies. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "auditor/store.h"
#include "auditor/verify_internal.h"
#include "core/rfc3339.h"

#define THE_RUNS "the table of runs"
#define THE_CONTENT "stored content"
#define THE_POLICIES "the policies"

/* ---- a run's row: what a search finds must be what the entry says ---- */

/*
 * A column, and where the entry's text has the same. Null and not there are the same. What changes with records that come later
 * (records, late, bytes, verdicts) is counted.
 */
static const struct column {
	const char *name, *parent, *member; /* parent NULL: the text itself */
	enum { AS_TEXT, AS_NUMBER, AS_TIME } as;
} columns[] = {
    {"run_id", NULL, "run_id", AS_TEXT},
    {"(SELECT name FROM project WHERE project.id = run.project)", NULL, "project", AS_TEXT},
    {"sandbox_id", NULL, "sandbox_id", AS_TEXT},
    {"agent", NULL, "agent", AS_TEXT},
    {"caller", NULL, "caller", AS_TEXT},
    {"policy", NULL, "policy", AS_TEXT},
    {"policy_hash", NULL, "policy_hash", AS_TEXT},
    {"\"end\"", "termination", "reason", AS_TEXT},
    {"attempts", "egress", "attempts", AS_NUMBER},
    {"denied", "egress", "denied", AS_NUMBER},
    {"would_deny", "egress", "would_deny", AS_NUMBER},
    {"lost", "egress", "lost", AS_NUMBER},
    {"began_ns", NULL, "began", AS_TIME},
    {"ended_ns", NULL, "ended", AS_TIME},
    {"kind", "row", "kind", AS_TEXT},
    {"state", "row", "state", AS_TEXT},
    {"began_ns", "row", "began_ns", AS_NUMBER},
    {"ended_ns", "row", "ended_ns", AS_NUMBER},
    {"ref", "row", "ref", AS_TEXT},
    {"target", "row", "target", AS_TEXT},
    {"unwritten", "row", "unwritten", AS_NUMBER},
    {"last_seq", "row", "last_seq", AS_NUMBER},
};
#define COLUMNS (sizeof columns / sizeof columns[0])
enum { AT_ID = COLUMNS, AT_CHAIN_N, AT_RECORDS, AT_LATE, AT_VERDICTS, AT_BYTES };

static const char *bare(const struct column *c)
{
	return c->name[0] == '(' ? "project" : c->name[0] == '"' ? "end" : c->name;
}

static sqlite3_stmt *prepare_row(struct verify *v)
{
	char sql[1024] = "SELECT ";

	for (size_t i = 0; i < COLUMNS; i++) {
		strncat(sql, columns[i].name, sizeof sql - strlen(sql) - 1);
		strncat(sql, ", ", sizeof sql - strlen(sql) - 1);
	}
	strncat(sql, "id, chain_n, records, late, verdicts, bytes FROM run WHERE run_id = ?", sizeof sql - strlen(sql) - 1);
	return verify_prepare(v, sql, THE_RUNS);
}

/* Times in a text may be coarser than a column: to what the text says, it must be the same. */
static bool same_time(const char *text, uint64_t ns)
{
	const char *dot = strchr(text, '.');
	size_t digits = dot ? strspn(dot + 1, "0123456789") : 0;
	uint64_t told, unit = 1;

	for (size_t i = digits; i < 9; i++)
		unit *= 10;
	return rfc3339_parse(text, &told) == 0 && told / unit == ns / unit;
}

/* Of its own kind, too: what is no number reads as one all the same. */
static bool column_fits(sqlite3_stmt *st, int i, const json_t *told, const struct column *c)
{
	const char *text = json_string_value(told), *column = verify_text(st, i);
	const int type = sqlite3_column_type(st, i);

	switch (c->as) {
	case AS_TEXT:
		return type == SQLITE_TEXT ? text && strcmp(text, column) == 0 : type == SQLITE_NULL && !text;
	case AS_NUMBER:
		return json_is_integer(told) ? type == SQLITE_INTEGER && json_integer_value(told) == sqlite3_column_int64(st, i)
					     : type == SQLITE_NULL;
	default:
		return text ? type == SQLITE_INTEGER && same_time(text, (uint64_t)sqlite3_column_int64(st, i)) : true;
	}
}

static void check_columns(struct verify *v, const struct verify_entry *entry, sqlite3_stmt *st)
{
	const char *said = NULL;

	for (size_t i = 0; i < COLUMNS; i++) {
		const struct column *c = &columns[i];
		const json_t *in = c->parent ? json_object_get(entry->json, c->parent) : entry->json;

		if (column_fits(st, (int)i, json_object_get(in, c->member), c) || (said && strcmp(said, c->name) == 0))
			continue;
		said = c->name;
		verify_find(v->report, VERIFY_CHANGED, entry->n, entry->run_id,
			    "the run's column %s is not what its entry says", bare(c));
	}
}

/* ---- its records ---- */

/* Those columns that go on with records that come late. */
struct counted {
	sqlite3_int64 records, late, verdicts, bytes;
};

static void check_late(struct verify *v, const struct verify_entry *entry, const struct counted *c,
		       const struct verify_records *r)
{
	const uint64_t late = r->there - r->should;

	if (r->late_once || c->records != (sqlite3_int64)r->there || c->late != (sqlite3_int64)late)
		verify_find(v->report, VERIFY_INSERTED, entry->n, entry->run_id,
			    "%" PRIu64
			    " records stand behind those that were hashed%s, and the run's row counts %lld of %lld as such",
			    late, r->late_once ? ", of a kind that nobody writes there" : "", c->late, c->records);
	else if (late)
		verify_note(v->report, NOTED_LATE, entry->n, entry->run_id,
			    "%" PRIu64 " of its records came after its end was summed up", late);
	v->report->late += late;
}

static void check_counted(struct verify *v, const struct verify_entry *entry, const struct counted *c,
			  const struct verify_records *r)
{
	const json_int_t before = json_integer_value(json_object_get(json_object_get(entry->json, "row"), "bytes"));
	const sqlite3_int64 whole = before + (sqlite3_int64)entry->body_len + STORE_ENTRY_BYTES;
	const json_t *last = json_object_get(json_object_get(entry->json, "row"), "last_seq");

	if (c->verdicts != r->verdicts)
		verify_find(v->report, VERIFY_CHANGED, entry->n, entry->run_id,
			    "the run's column verdicts is not what its records say");
	if (c->bytes < whole || (c->bytes != whole && r->there == r->should))
		verify_find(v->report, VERIFY_CHANGED, entry->n, entry->run_id,
			    "the run's column bytes is not what its entry says");
	if (r->last_seq != (uint64_t)json_integer_value(last))
		verify_find(v->report, VERIFY_CHANGED, entry->n, entry->run_id, "its records have other numbers than they had");
}

static void check_records(struct verify *v, const struct verify_entry *entry, sqlite3_int64 id, const struct counted *c)
{
	struct verify_records r = {.should = verify_member(entry->json, "records"),
				   .sha256 = json_string_value(json_object_get(entry->json, "records_sha256")),
				   .chained = true};

	if (!verify_records(v, entry->n, entry->run_id, id, &r))
		return;
	check_late(v, entry, c, &r);
	check_counted(v, entry, c, &r);
}

/* ---- what is stored of its content ---- */

static bool is_told(sqlite3_stmt *st, const json_t *one)
{
	const char *told = json_string_value(json_object_get(one, "sha256"));
	const int len = sqlite3_column_bytes(st, 1);
	char hex[2 * CHAIN_HASH + 1];
	uint8_t hash[CHAIN_HASH];

	chain_body_digest(len ? sqlite3_column_blob(st, 1) : "", (size_t)len, hash);
	chain_hex(hash, hex);
	return sqlite3_column_type(st, 1) == SQLITE_BLOB && told && strcmp(hex, told) == 0 &&
	       json_integer_value(json_object_get(one, "bytes")) == len;
}

static void check_stored(struct verify *v, const struct verify_entry *entry, sqlite3_int64 id)
{
	json_t *stored = json_copy(json_object_get(entry->json, "stored"));
	const json_t *one;
	const char *name;

	if (!v->stored)
		v->stored = verify_prepare(v, "SELECT kind, bytes FROM content WHERE run = ?", THE_CONTENT);
	if (!v->stored || sqlite3_bind_int64(v->stored, 1, id) != SQLITE_OK) {
		json_decref(stored);
		return;
	}
	while (verify_step(v, v->stored, THE_CONTENT)) {
		sqlite3_int64 kind =
		    sqlite3_column_type(v->stored, 0) == SQLITE_INTEGER ? sqlite3_column_int64(v->stored, 0) : -1;

		name = kind >= 0 && kind < CONTENT_KINDS ? content_names[kind] : "?";
		one = json_object_get(stored, name);
		if (!one)
			verify_find(v->report, VERIFY_INSERTED, entry->n, entry->run_id,
				    "of its %s nothing was stored, and is there", name);
		else if (!is_told(v->stored, one))
			verify_find(v->report, VERIFY_CHANGED, entry->n, entry->run_id, "its stored %s is not what was hashed",
				    name);
		json_object_del(stored, name);
	}
	sqlite3_reset(v->stored);
	json_object_foreach(stored, name, one)
	{
		verify_find(v->report, VERIFY_REMOVED, entry->n, entry->run_id, "its stored %.20s is gone", name);
	}
	json_decref(stored);
}

/* ---- the documents of its policies ---- */

static void check_document(struct verify *v, const struct verify_entry *entry, const char *hash)
{
	bool there;

	if (!hash || strcmp(hash, v->document) == 0)
		return;
	if (!v->documents)
		v->documents = verify_prepare(v, "SELECT 1 FROM policy WHERE hash = ? AND text IS NOT NULL", THE_POLICIES);
	if (!v->documents || sqlite3_bind_text(v->documents, 1, hash, -1, SQLITE_STATIC) != SQLITE_OK)
		return;
	there = verify_step(v, v->documents, THE_POLICIES);
	sqlite3_reset(v->documents);
	if (there)
		snprintf(v->document, sizeof v->document, "%s", hash);
	else
		verify_find(v->report, VERIFY_REMOVED, entry->n, entry->run_id,
			    "the document of its policy (%.16s) was there, and is gone", hash);
}

/* ---- all of it ---- */

static void check_row(struct verify *v, const struct verify_entry *entry, sqlite3_stmt *st)
{
	const sqlite3_int64 id = sqlite3_column_int64(st, AT_ID);
	const struct counted counted = {sqlite3_column_int64(st, AT_RECORDS), sqlite3_column_int64(st, AT_LATE),
					sqlite3_column_int64(st, AT_VERDICTS), sqlite3_column_int64(st, AT_BYTES)};
	const json_t *document;
	size_t i;

	if ((uint64_t)sqlite3_column_int64(st, AT_CHAIN_N) != entry->place)
		verify_find(v->report, VERIFY_CHANGED, entry->n, entry->run_id, "the run's row names another entry as its own");
	if ((uint64_t)sqlite3_column_int64(st, AT_CHAIN_N) != entry->n)
		json_object_set_new(v->misplaced, entry->run_id, json_true());
	for (int at = AT_ID; at <= AT_BYTES; at++)
		if (sqlite3_column_type(st, at) != SQLITE_INTEGER)
			verify_find(v->report, VERIFY_CHANGED, entry->n, entry->run_id, "the run's column %s is no number",
				    sqlite3_column_name(st, at));
	if (id < 1)
		verify_find(v->report, VERIFY_CHANGED, entry->n, entry->run_id,
			    "the run's row has a number that none can have");
	check_columns(v, entry, st);
	sqlite3_reset(st);
	check_records(v, entry, id, &counted);
	check_stored(v, entry, id);
	json_array_foreach(json_object_get(entry->json, "documents"), i, document)
	{
		check_document(v, entry, json_string_value(document));
	}
	v->report->runs++;
}

void verify_run(struct verify *v, const struct verify_entry *entry)
{
	const char *run_id = json_string_value(json_object_get(entry->json, "run_id"));

	if (!entry->run_id || !run_id || strcmp(entry->run_id, run_id) != 0) {
		verify_find(v->report, VERIFY_CHANGED, entry->n, entry->run_id,
			    "the run that it names is not the one of its text");
		return;
	}
	if (!v->run_row)
		v->run_row = prepare_row(v);
	if (!v->run_row || sqlite3_bind_text(v->run_row, 1, run_id, -1, SQLITE_STATIC) != SQLITE_OK)
		return;
	if (verify_step(v, v->run_row, THE_RUNS)) {
		check_row(v, entry, v->run_row);
		return;
	}
	sqlite3_reset(v->run_row);
	verify_find(v->report, VERIFY_REMOVED, entry->n, run_id, "the run is gone, with its records, and no prune says so");
}
