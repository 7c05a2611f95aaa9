/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/verify.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "auditor/schema.h"
#include "auditor/verify_internal.h"

#define INTEGRITY "PRAGMA integrity_check(20)"

sqlite3_stmt *verify_prepare(struct verify *v, const char *sql, const char *what)
{
	sqlite3_stmt *st = NULL;

	if (sqlite3_prepare_v2(v->db, sql, -1, &st, NULL) != SQLITE_OK)
		verify_find(v->report, VERIFY_DAMAGED, 0, NULL, "%s can't be read: %s", what, sqlite3_errmsg(v->db));
	return st;
}

bool verify_step(struct verify *v, sqlite3_stmt *st, const char *what)
{
	int rc = st ? sqlite3_step(st) : SQLITE_DONE;

	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		verify_find(v->report, VERIFY_DAMAGED, 0, NULL, "%s can't be read to the end: %s", what, sqlite3_errmsg(v->db));
	return rc == SQLITE_ROW;
}

uint64_t verify_number(struct verify *v, const char *sql, uint64_t otherwise, const char *what)
{
	sqlite3_stmt *st = verify_prepare(v, sql, what);

	if (verify_step(v, st, what) && sqlite3_column_type(st, 0) == SQLITE_INTEGER)
		otherwise = (uint64_t)sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return otherwise;
}

const char *verify_text(sqlite3_stmt *st, int column)
{
	return sqlite3_column_type(st, column) == SQLITE_TEXT ? (const char *)sqlite3_column_text(st, column) : NULL;
}

bool verify_hash(sqlite3_stmt *st, int column, size_t size, uint8_t *ret)
{
	if (sqlite3_column_type(st, column) != SQLITE_BLOB || (size_t)sqlite3_column_bytes(st, column) != size)
		return false;
	memcpy(ret, sqlite3_column_blob(st, column), size);
	return true;
}

/* ---- the parts ---- */

/* What SQLite itself has to say: pages, indexes. Whatever can still be read is checked all the same. */
static void check_database(struct verify *v)
{
	sqlite3_stmt *st = verify_prepare(v, INTEGRITY, "the database");

	while (verify_step(v, st, "the database")) {
		const char *text = verify_text(st, 0);

		if (!text || strcmp(text, "ok") != 0)
			verify_find(v->report, VERIFY_DAMAGED, 0, NULL, "the database is at odds with itself: %s",
				    text ? text : "?");
	}
	sqlite3_finalize(st);
}

static void say_difference(void *ctx, const char *type, const char *name, const char *what)
{
	struct verify *v = ctx;

	verify_find(v->report, strcmp(what, "is too much") ? VERIFY_CHANGED : VERIFY_INSERTED, 0, NULL,
		    "the database's %.20s %.60s %s: it is not what this Weir makes", type, name, what);
}

/* Every answer is read through tables and indexes: they must be those. */
static void check_schema(struct verify *v)
{
	if (schema_compare(v->db, say_difference, v) < 0)
		verify_find(v->report, VERIFY_DAMAGED, 0, NULL, "the list of its tables can't be read: %s",
			    sqlite3_errmsg(v->db));
}

/* The end that the keeper of the key remembers, and the one that is here. */
static void check_end(struct verify *v)
{
	const uint64_t counted =
	    verify_number(v, "SELECT seq FROM sqlite_sequence WHERE name = 'chain'", 0, "the chain's number");
	const struct chain_head *head = v->opts->head;
	struct verify_report *r = v->report;

	if (counted < r->last)
		verify_find(r, VERIFY_CHANGED, r->last, NULL,
			    "the database's own count of entries is %llu: a number could be given twice",
			    (unsigned long long)counted);
	if (counted > r->last)
		verify_find(r, VERIFY_TRUNCATED, r->last + 1, NULL,
			    "entries %llu to %llu were here and are gone: the end of the chain is cut off",
			    (unsigned long long)r->last + 1, (unsigned long long)counted);
	if (!head) {
		verify_note(
		    r, NOTED_NO_HEAD, 0, NULL,
		    "audit-head is not there: whether the end was cut off, or all of it put back to an earlier state, is "
		    "seen only as far as signatures and the database's own count show it");
		return;
	}
	if (head->n > r->last && counted <= r->last)
		verify_find(r, VERIFY_ROLLED_BACK, r->last + 1, NULL,
			    "%llu entries were signed and there are %llu: the record is an earlier state of itself",
			    (unsigned long long)head->n, (unsigned long long)r->last);
}

static void check_key_ids(struct verify *v)
{
	const struct chain_head *head = v->opts->head;
	struct verify_report *r = v->report;
	uint8_t told[CHAIN_HASH];
	sqlite3_stmt *st;

	if (!r->has_key)
		return;
	if (head && memcmp(head->key_id, r->key_id, CHAIN_HASH) != 0)
		verify_find(r, VERIFY_OTHER_KEY, 0, NULL,
			    "audit-head was written with another key than this public one: was one of them replaced?");
	st = verify_prepare(v, "SELECT value FROM meta WHERE key = 'key_id'", "the name of the key");
	if (!verify_step(v, st, "the name of the key") || !verify_text(st, 0) || chain_from_hex(verify_text(st, 0), told) < 0)
		v->nameless = true;
	else if (memcmp(told, r->key_id, CHAIN_HASH) != 0)
		verify_find(r, VERIFY_OTHER_KEY, 0, NULL, "the record names another key than this public one as its own");
	sqlite3_finalize(st);
}

/* Another key's signatures are one finding, and not one for each entry. */
static void check_signatures(struct verify *v)
{
	struct verify_report *r = v->report;

	if (v->nameless && v->good)
		verify_find(r, VERIFY_CHANGED, 0, NULL, "the record does not name its key any more");
	if (!v->good && v->bad && (r->found[VERIFY_OTHER_KEY] || v->bad > 1)) {
		verify_find(r, VERIFY_OTHER_KEY, 0, NULL, "none of %llu signatures is this key's", (unsigned long long)v->bad);
		return;
	}
	for (size_t i = 0; i < v->bad && i < VERIFY_LISTED_MAX; i++)
		verify_find(r, VERIFY_BAD_SIGNATURE, v->bad_n[i], NULL, "its signature is not the key's over this entry");
	if (v->bad > VERIFY_LISTED_MAX)
		verify_find(r, VERIFY_BAD_SIGNATURE, 0, NULL, ".. nor are %llu more",
			    (unsigned long long)v->bad - VERIFY_LISTED_MAX);
}

static void check_expected(struct verify *v, const struct verify_expected *x)
{
	struct verify_report *r = v->report;
	char hex[2 * CHAIN_HASH + 1];

	if (x->n)
		return;
	chain_hex(x->hash, hex);
	if (v->prefix)
		verify_find(r, VERIFY_EXPECTED, 0, NULL,
			    "no entry has the hash %s (entries 1 to %llu were removed for their age or for room, as entry %llu "
			    "says: it "
			    "may have been one of those)",
			    hex, (unsigned long long)v->prefix, (unsigned long long)v->prefix_by);
	else
		verify_find(r, VERIFY_EXPECTED, 0, NULL, "no entry has the hash %s", hex);
}

static uint64_t entries_in(const struct verify_ranges *r)
{
	uint64_t n = 0;

	for (size_t i = 0; i < r->count; i++)
		n += r->of[i].to - r->of[i].from + 1;
	return n;
}

static void note_pruned(struct verify *v)
{
	const uint64_t bodies = entries_in(&v->bodies), rows = entries_in(&v->rows);

	if (v->prefix)
		verify_note(v->report, NOTED_PRUNED, v->prefix_by, NULL,
			    "entries 1 to %llu were removed for their age or for room, as entry %llu says",
			    (unsigned long long)v->prefix, (unsigned long long)v->prefix_by);
	if (bodies)
		verify_note(v->report, NOTED_PRUNED, 0, NULL, "the runs of %llu entries were removed, as prune entries say%s",
			    (unsigned long long)bodies,
			    rows ? "; those of them of which the entry is gone, too, could not be checked" : "");
}

static int check_all(struct verify *v, struct err *e)
{
	int r;

	check_database(v);
	check_schema(v);
	check_key_ids(v);
	r = verify_claims(v, e);
	if (r == 0)
		r = verify_chain(v, e);
	if (r < 0)
		return r;
	check_signatures(v);
	check_end(v);
	verify_rest(v);
	for (size_t i = 0; i < v->report->expected_count; i++)
		check_expected(v, &v->report->expected[i]);
	note_pruned(v);
	return 0;
}

static void count_signature(void *ctx, uint64_t n, bool good)
{
	struct verify *v = ctx;

	if (good) {
		v->good++;
		return;
	}
	if (v->bad < VERIFY_LISTED_MAX)
		v->bad_n[v->bad] = n;
	v->bad++;
}

static int begin(struct verify *v, struct err *e)
{
	const struct verify_opts *opts = v->opts;
	struct verify_report *r = v->report;
	int rc;

	r->has_key = opts->public_key != NULL;
	r->has_head = opts->head != NULL;
	if (opts->public_key)
		signing_key_id(opts->public_key, r->key_id);
	if (opts->head)
		r->head = *opts->head;
	for (; r->expected_count < opts->expect_count && r->expected_count < VERIFY_EXPECT_MAX; r->expected_count++)
		memcpy(r->expected[r->expected_count].hash, opts->expect[r->expected_count], CHAIN_HASH);
	if (!opts->public_key)
		return 0;
	rc = signing_checker_new(&v->checker, opts->public_key, e);
	return rc < 0 ? rc : signatures_new(&v->signatures, opts->public_key, count_signature, v, e);
}

int verify_record(sqlite3 *db, const struct verify_opts *opts, struct verify_report *report, struct err *e)
{
	struct verify v = {.db = db, .opts = opts, .report = report, .misplaced = json_object()};
	int r = begin(&v, e);

	/* All of it in one snapshot: a service may be writing. A database that can't do that has findings soon enough. */
	if (r == 0 && sqlite3_exec(db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK)
		verify_find(report, VERIFY_DAMAGED, 0, NULL, "the database can't be read: %s", sqlite3_errmsg(db));
	if (r == 0)
		r = check_all(&v, e);
	sqlite3_finalize(v.records);
	sqlite3_finalize(v.run_row);
	sqlite3_finalize(v.stored);
	sqlite3_finalize(v.destinations);
	sqlite3_finalize(v.documents);
	(void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	signatures_free(v.signatures);
	signing_checker_free(v.checker);
	free(v.bodies.of);
	free(v.rows.of);
	free(v.adopted.of);
	free(v.digests.of);
	json_decref(v.misplaced);
	return r;
}
