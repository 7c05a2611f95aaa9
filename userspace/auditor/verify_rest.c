/* SPDX-License-Identifier: Apache-2.0 */
/* What no entry vouches for: runs without one, rows that belong to nothing; and the tables that count what others have. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "auditor/store.h"
#include "auditor/verify_internal.h"

#define THE_RUNS "the table of runs"
#define LEFT_NS (10 * 60 * 1000000000ull) /* nobody leaves an ended run without an entry for so long, and makes others */

/* ---- runs that have no entry ---- */

/* Written in one go with its first record; and where others were given theirs long after its end, it would have had one. */
static void check_unchained(struct verify *v, sqlite3_stmt *st)
{
	const char *id = verify_text(st, 1), *state = verify_text(st, 2);
	const bool running = state && strcmp(state, store_state_names[STORE_RUNNING]) == 0;
	const uint64_t ended = (uint64_t)sqlite3_column_int64(st, 3);
	struct verify_records r = {0};

	v->report->running += running;
	v->report->ended += !running;
	if (!id) {
		verify_find(v->report, VERIFY_INSERTED, 0, NULL, "a run without a name is there, which no entry knows");
		return;
	}
	(void)verify_records(v, 0, id, sqlite3_column_int64(st, 0), &r);
	if (!r.there)
		verify_find(v->report, VERIFY_INSERTED, 0, id, "a run is there that has no records");
	else if ((uint64_t)sqlite3_column_int64(st, 4) != r.there)
		verify_find(v->report, VERIFY_CHANGED, 0, id, "%" PRIu64 " records are there of a run whose row counts %lld",
			    r.there, sqlite3_column_int64(st, 4));
	if (!running && ended < v->newest_ns && v->newest_ns - ended > LEFT_NS)
		verify_find(v->report, VERIFY_INSERTED, 0, id,
			    "a run is there that has ended and that no entry knows, and entries were made long after");
}

static void check_all_unchained(struct verify *v)
{
	sqlite3_stmt *st = verify_prepare(
	    v, "SELECT id, run_id, state, ended_ns, records FROM run WHERE chain_n IS NULL ORDER BY id", THE_RUNS);

	while (verify_step(v, st, THE_RUNS))
		check_unchained(v, st);
	sqlite3_finalize(st);
}

/* One that names an entry which is another's, or none. Its own, if it has one, has said so already. */
static void check_claims(struct verify *v)
{
	uint64_t most = verify_number(v, "SELECT seq FROM sqlite_sequence WHERE name = 'chain'", 0, THE_RUNS);
	sqlite3_stmt *st = verify_prepare(v,
					  "SELECT r.run_id, r.chain_n, c.n FROM run r LEFT JOIN chain c ON c.n = r.chain_n"
					  " WHERE r.chain_n IS NOT NULL AND (c.n IS NULL OR c.run_id IS NOT r.run_id)",
					  THE_RUNS);

	if (v->opts->head && v->opts->head->n > most)
		most = v->opts->head->n;
	while (verify_step(v, st, THE_RUNS)) {
		const char *id = verify_text(st, 0);
		const uint64_t n = (uint64_t)sqlite3_column_int64(st, 1);
		/* Of an entry that is gone it was said already; but not of one that never was, or was pruned, with its run. */
		const bool gone =
		    sqlite3_column_type(st, 2) == SQLITE_NULL && n <= most && n > v->prefix && !verify_range_of(&v->rows, n);

		if (!id || (!gone && !json_object_get(v->misplaced, id)))
			verify_find(v->report, VERIFY_INSERTED, n, id,
				    "a run is there that no entry knows: the one that it names is another run's, or not there");
	}
	sqlite3_finalize(st);
}

/* ---- rows that should be none ---- */

/* Each gives how many there are, and one of them. */
static const struct stray {
	enum verify_kind kind;
	const char *sql, *what, *text;
} strays[] = {
    {VERIFY_REMOVED,
     "SELECT count(*), min(seq) FROM record d WHERE run IS NOT NULL AND NOT EXISTS (SELECT 1 FROM run WHERE id = d.run)",
     "records", "are of runs that are gone"},
    {VERIFY_INSERTED, "SELECT count(*), min(run) FROM destination d WHERE NOT EXISTS (SELECT 1 FROM run WHERE id = d.run)",
     "destinations", "are of runs that are not there"},
    {VERIFY_INSERTED, "SELECT count(*), min(run) FROM content d WHERE NOT EXISTS (SELECT 1 FROM run WHERE id = d.run)",
     "pieces of stored content", "are of runs that are not there"},
    {VERIFY_INSERTED,
     "SELECT count(*), min(run) FROM content d WHERE run IN (SELECT id FROM run WHERE chain_n IS NULL AND state = 'running')",
     "pieces of stored content", "are of runs that go on"},
    {VERIFY_INSERTED, "SELECT count(*), min(id) FROM run WHERE id < 1", "runs", "have numbers that none can have"},
    {VERIFY_CHANGED, "SELECT count(*), min(id) FROM run r WHERE NOT EXISTS (SELECT 1 FROM project p WHERE p.id = r.project)",
     "runs", "are of projects that are not there"},
    {VERIFY_INSERTED, "SELECT count(*), min(id) FROM project p WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.project = p.id)",
     "projects", "have no runs"},
    {VERIFY_CHANGED,
     "SELECT count(*), min(id) FROM project p WHERE bytes IS NOT (SELECT coalesce(sum(r.bytes), 0) FROM run r WHERE r.project "
     "= p.id)",
     "projects", "have other sums than their runs"},
    {VERIFY_CHANGED,
     "SELECT count(*), min(seq) FROM record WHERE seq > coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'record'), 0)",
     "records", "are beyond the database's own count of them: a number could be given twice"},
    {VERIFY_CHANGED,
     "SELECT count(*), min(id) FROM run WHERE id > coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'run'), 0)", "runs",
     "are beyond the database's own count of them: a number could be given twice"},
};

static void check_strays(struct verify *v, const struct stray *s)
{
	sqlite3_stmt *st = verify_prepare(v, s->sql, "a table");

	if (verify_step(v, st, "a table") && sqlite3_column_int64(st, 0))
		verify_find(v->report, s->kind, 0, NULL, "%lld %s (the first is number %lld) %s",
			    (long long)sqlite3_column_int64(st, 0), s->what, (long long)sqlite3_column_int64(st, 1), s->text);
	sqlite3_finalize(st);
}

static void check_policies(struct verify *v)
{
	sqlite3_stmt *st = verify_prepare(v, "SELECT hash, name, text FROM policy WHERE text IS NOT NULL", "the policies");

	while (verify_step(v, st, "the policies")) {
		const char *told = verify_text(st, 0), *text = verify_text(st, 2);
		uint8_t hash[CHAIN_HASH];
		char hex[2 * CHAIN_HASH + 1];

		chain_body_digest(text ? text : "", (size_t)sqlite3_column_bytes(st, 2), hash);
		chain_hex(hash, hex);
		if (!told || strcmp(hex, told) != 0)
			verify_find(v->report, VERIFY_CHANGED, 0, NULL,
				    "the document of policy %s is not the one of its hash %.16s",
				    verify_text(st, 1) ? verify_text(st, 1) : "?", told ? told : "?");
	}
	sqlite3_finalize(st);
}

/* ---- what the record counts of itself ---- */

static const struct {
	const char *key;
	int pruned; /* which of the last prune's sums it is; -1: none */
} meta[] = {{"schema", -1},	{"key_id", -1},	       {"others_seq", -1}, {"prune_n", -1},
	    {"pruned_runs", 0}, {"pruned_records", 1}, {"pruned_bytes", 2}};
#define META (sizeof meta / sizeof meta[0])

static void check_meta_row(struct verify *v, const char *key, sqlite3_stmt *st)
{
	const uint64_t last = v->digests.count ? v->digests.of[v->digests.count - 1].last : 0;
	size_t i = 0;

	while (i < META && (!key || strcmp(meta[i].key, key) != 0))
		i++;
	if (i == META)
		verify_find(v->report, VERIFY_INSERTED, 0, NULL,
			    "the record says something of itself that it never does: %.40s", key ? key : "?");
	else if (meta[i].pruned >= 0 && !v->pending && (uint64_t)sqlite3_column_int64(st, 1) != v->pruned[meta[i].pruned])
		verify_find(v->report, VERIFY_CHANGED, 0, NULL, "the record's own count of %s is not what its last prune says",
			    key);
	else if (strcmp(key, "others_seq") == 0 && (uint64_t)sqlite3_column_int64(st, 1) < last)
		verify_find(v->report, VERIFY_CHANGED, 0, NULL,
			    "up to which record of no run there is a digest is not what the last of them says");
}

static void check_meta(struct verify *v)
{
	sqlite3_stmt *st = verify_prepare(v, "SELECT key, value FROM meta", "what the record says of itself");

	while (verify_step(v, st, "what the record says of itself"))
		check_meta_row(v, verify_text(st, 0), st);
	sqlite3_finalize(st);
}

void verify_rest(struct verify *v)
{
	v->pending = verify_number(v, "SELECT value FROM meta WHERE key = 'prune_n'", 0, "what the record says of itself") != 0;
	check_all_unchained(v);
	check_claims(v);
	verify_others(v);
	for (size_t i = 0; i < sizeof strays / sizeof strays[0]; i++)
		check_strays(v, &strays[i]);
	check_policies(v);
	check_meta(v);
}
