/* SPDX-License-Identifier: Apache-2.0 */
/* Retention: what goes, whose it is, and that every bit of it is accounted for. */
#include "store_fixture.h"

#define DAY 86400u
#define SECOND 1000000000u

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec;
}

static struct note dated(struct note n, const char *project, uint64_t wall_ns)
{
	snprintf(n.project, sizeof n.project, "%s", project);
	n.wall_ns = wall_ns;
	return n;
}

static void run(struct store *s, const char *id, const char *project, uint64_t wall_ns)
{
	struct note n = dated(note(NOTE_RUN_BEGIN, id), project, wall_ns);

	store_begin(s);
	store_append(s, &n);
	n = dated(event(id, key(8, 53, WEIR_DENY), "\7example\3com", 13), project, wall_ns);
	store_append(s, &n);
	n = dated(run_end(id, 1, 1, 0), project, wall_ns);
	store_append(s, &n);
	store_finish(s, id);
	assert_int_equal(store_commit(s, NULL), 0);
}

static void runs(struct store *s, const char *project, int from, int to)
{
	char id[40];

	for (int i = from; i < to; i++) {
		snprintf(id, sizeof id, "%s-%d", project, i);
		run(s, id, project, now_ns());
	}
}

/* Has everything signed, as a keeper of a key would. */
static void sign_all(struct store *s)
{
	static const uint8_t signature[CHAIN_SIGNATURE];
	struct chain_head head = {.key_id = {1}};
	sqlite3 *db = look();
	sqlite3_stmt *st = NULL;

	assert_int_equal(sqlite3_prepare_v2(db, "SELECT n, hash FROM chain WHERE signature IS NULL", -1, &st, NULL), SQLITE_OK);
	store_begin(s);
	while (sqlite3_step(st) == SQLITE_ROW)
		assert_int_equal(
		    store_signed(s, (uint64_t)sqlite3_column_int64(st, 0), sqlite3_column_blob(st, 1), signature, NULL), 0);
	assert_int_equal(store_commit(s, NULL), 0);
	sqlite3_finalize(st);
	sqlite3_close(db);
	assert_int_equal(store_head(s, &head), 0);
	head.key_id[0] = 1;
	assert_int_equal(store_check_head(s, &head, NULL), 0);
}

/* Nothing goes before its entry is signed. Where the keeper has no key, at once. */
static int prune_all(struct store *s, uint64_t wall_ns)
{
	int calls = 0, r;

	while ((r = store_prune(s, wall_ns, NULL)) > 0) {
		if (r == STORE_PRUNE_WAITS)
			sign_all(s);
		assert_in_range(calls += r == STORE_PRUNED, 0, 1000);
	}
	assert_int_equal(r, 0);
	return calls;
}

/* Nobody signs. */
static struct store *open_keyless(struct audit_opts opts)
{
	struct store *s = open_as(opts);

	assert_int_equal(store_check_head(s, &(struct chain_head){0}, NULL), 0);
	return s;
}

struct account {
	long long runs, records, bytes, entries, prefix;
	size_t prunes;
	char last_reason[16], last_project[32], prefix_hash[2 * CHAIN_HASH + 1];
};

/* What the chain says was pruned. */
static struct account account(void)
{
	sqlite3 *db = look();
	sqlite3_stmt *st = NULL;
	struct account a = {0};

	sqlite3_prepare_v2(db, "SELECT body FROM chain WHERE kind = 'prune' ORDER BY n", -1, &st, NULL);
	for (; sqlite3_step(st) == SQLITE_ROW; a.prunes++) {
		json_t *body = json_loads((const char *)sqlite3_column_text(st, 0), 0, NULL), *range;
		const char *project = json_string_value(json_object_get(body, "project"));
		size_t i;

		a.runs += number(body, "runs");
		a.records += number(body, "records");
		a.bytes += number(body, "bytes");
		json_array_foreach(json_object_get(body, "entries"), i, range)
		{
			a.entries +=
			    json_integer_value(json_array_get(range, 1)) - json_integer_value(json_array_get(range, 0)) + 1;
		}
		if (number(body, "prefix")) {
			a.prefix = number(body, "prefix");
			snprintf(a.prefix_hash, sizeof a.prefix_hash, "%s",
				 json_string_value(json_object_get(body, "prefix_hash")));
		}
		snprintf(a.last_reason, sizeof a.last_reason, "%s", json_string_value(json_object_get(body, "reason")));
		snprintf(a.last_project, sizeof a.last_project, "%s", project ? project : "");
		json_decref(body);
	}
	sqlite3_finalize(st);
	sqlite3_close(db);
	return a;
}

/* Nothing is left of a run that is gone, and each project's sum is that of its runs. */
static void check_books(void)
{
	assert_int_equal(look_number("SELECT count(*) FROM record WHERE run NOT IN (SELECT id FROM run)"), 0);
	assert_int_equal(look_number("SELECT count(*) FROM destination WHERE run NOT IN (SELECT id FROM run)"), 0);
	assert_int_equal(look_number("SELECT count(*) FROM content WHERE run NOT IN (SELECT id FROM run)"), 0);
	assert_int_equal(look_number("SELECT count(*) FROM project WHERE bytes <>"
				     " (SELECT coalesce(sum(bytes), 0) FROM run WHERE run.project = project.id)"),
			 0);
	assert_int_equal(look_number("SELECT count(*) FROM chain WHERE kind = 'run' AND"
				     " (body IS NULL) <> (n NOT IN (SELECT chain_n FROM run WHERE chain_n IS NOT NULL))"),
			 0);
	assert_intact();
}

static void test_age(void **state)
{
	struct store *s = open_keyless((struct audit_opts){.keep_s = 10 * DAY});
	uint64_t now = now_ns(), long_ago = now - (uint64_t)11 * DAY * SECOND;
	struct account a;

	(void)state;
	run(s, "old-1", "dev", long_ago);
	run(s, "new-1", "dev", now - (uint64_t)9 * DAY * SECOND);
	run(s, "old-2", "other", long_ago);
	put(s, dated(note(NOTE_RUN_BEGIN, "running"), "dev", long_ago));
	assert_int_equal(store_prune(s, now, NULL), 1);
	assert_int_equal(store_prune(s, now, NULL), 0);
	assert_int_equal(store_state(s, "old-1"), STORE_UNKNOWN);
	assert_int_equal(store_state(s, "old-2"), STORE_UNKNOWN);
	assert_int_equal(store_state(s, "new-1"), STORE_ENDED);
	assert_int_equal(store_state(s, "running"), STORE_RUNNING); /* whatever its age */
	a = account();
	assert_int_equal(a.prunes, 1);
	assert_int_equal(a.runs, 2);
	assert_int_equal(a.records, 6);
	assert_int_equal(a.entries, 2);
	assert_string_equal(a.last_reason, "age");
	assert_string_equal(a.last_project, "");
	assert_int_equal(store_stats(s)->pruned_runs, 2);
	/* the skeleton of what is gone stays while anything before it is wanted */
	assert_int_equal(a.prefix, 1);
	assert_int_equal(look_number("SELECT count(*) FROM chain WHERE body IS NULL"), 1);
	/* a number is never used twice, however much is gone */
	run(s, "after", "dev", now);
	assert_int_equal(look_number("SELECT min(seq) FROM record WHERE run = (SELECT id FROM run WHERE run_id = 'after')"),
			 11);
	check_books();
	store_free(s);
}

/* Somebody floods: it is the flood that goes, oldest first, and nothing of anybody else's. */
static void test_flood(void **state)
{
	struct store *s = open_keyless((struct audit_opts){.project_bytes = 400000});
	long long kept, total;
	struct account a;

	(void)state;
	runs(s, "quiet", 0, 20);
	for (int i = 0; i < 10; i++) {
		runs(s, "flood", 100 * i, 100 * i + 100);
		prune_all(s, now_ns());
	}
	assert_int_equal(look_number("SELECT count(*) FROM run WHERE run_id LIKE 'quiet-%'"), 20);
	kept = look_number("SELECT count(*) FROM run WHERE run_id LIKE 'flood-%'");
	assert_in_range(kept, 50, 900);
	assert_int_equal(store_state(s, "flood-999"), STORE_ENDED);
	assert_int_equal(store_state(s, "flood-0"), STORE_UNKNOWN);
	/* what is left is the newest of it, without a hole */
	assert_int_equal(look_number("SELECT max(id) - min(id) + 1 - count(*) FROM run WHERE run_id LIKE 'flood-%'"), 0);
	assert_in_range(look_number("SELECT bytes FROM project WHERE name = 'flood'"), 200000, 400000);
	a = account();
	assert_string_equal(a.last_reason, "project");
	assert_string_equal(a.last_project, "flood");
	assert_int_equal(a.runs, 1000 - kept);
	assert_int_equal(a.records, 3 * (1000 - kept));
	assert_int_equal(a.entries, 1000 - kept);
	total = look_number("SELECT value FROM meta WHERE key = 'pruned_bytes'");
	assert_int_equal(a.bytes, total);
	check_books();
	store_free(s);
}

/* The whole is too large: whoever has most gives way. */
static void test_room(void **state)
{
	struct store *s = open_keyless((struct audit_opts){.max_bytes = 3u << 20});
	struct account a;

	(void)state;
	runs(s, "small", 0, 100);
	for (int i = 0; i < 10; i++) {
		runs(s, "large", 100 * i, 100 * i + 100);
		prune_all(s, now_ns());
	}
	a = account();
	assert_string_equal(a.last_reason, "room");
	assert_string_equal(a.last_project, "large");
	assert_int_equal(look_number("SELECT count(*) FROM run WHERE run_id LIKE 'small-%'"), 100);
	assert_in_range(look_number("SELECT count(*) FROM run WHERE run_id LIKE 'large-%'"), 100, 900);
	assert_int_equal(a.runs + look_number("SELECT count(*) FROM run"), 1100);
	check_books();
	store_free(s);
	/* pages that pruning gave back are written on again: the file stays about as large as it may be */
	{
		struct stat st;

		assert_int_equal(fstatat(dir, STORE_FILE, &st, 0), 0);
		assert_in_range(st.st_size, 1u << 20, 5u << 20);
	}
}

/* The beginning of the chain goes once nothing before it is wanted and all of it is signed; what is left goes on from its hash.
 */
static void test_prefix(void **state)
{
	struct store *s = open_as((struct audit_opts){.keep_s = 10 * DAY});
	uint64_t now = now_ns();
	struct account a;
	char hex[2 * CHAIN_HASH + 1];
	sqlite3 *db;
	sqlite3_stmt *st = NULL;

	(void)state;
	for (int i = 0; i < 300; i++) {
		char id[20];

		snprintf(id, sizeof id, "old-%d", i);
		run(s, id, "dev", now - (uint64_t)11 * DAY * SECOND);
	}
	runs(s, "dev", 0, 5);
	sign_all(s);
	assert_int_equal(store_prune(s, now, NULL), STORE_PRUNE_WAITS);
	assert_int_equal(store_prune(s, now, NULL), STORE_PRUNE_WAITS);
	assert_int_equal(look_number("SELECT count(*) FROM run"), 305); /* named, and nobody has signed that */
	sign_all(s);
	assert_int_equal(store_prune(s, now, NULL), STORE_PRUNED);
	assert_int_equal(look_number("SELECT count(*) FROM run"), 105); /* 200 a call, not more */
	assert_int_equal(prune_all(s, now), 1);
	assert_int_equal(look_number("SELECT count(*) FROM run"), 5);
	a = account();
	assert_int_equal(a.runs, 300);
	assert_int_equal(a.prefix, 300);
	assert_int_equal(look_number("SELECT min(n) FROM chain"), 301);
	db = look();
	sqlite3_prepare_v2(db, "SELECT before FROM chain WHERE n = 301", -1, &st, NULL);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	chain_hex(sqlite3_column_blob(st, 0), hex);
	sqlite3_finalize(st);
	sqlite3_close(db);
	assert_string_equal(hex, a.prefix_hash);
	check_books();
	store_free(s);
}

/* A quiet project's old run keeps the chain's beginning; what a flood leaves behind it is bounded all the same. */
static void test_skeletons(void **state)
{
	const uint32_t most = (3u << 20) / 16 / 260;
	struct store *s = open_as((struct audit_opts){.max_bytes = 3u << 20, .project_bytes = 400000});
	json_t *entry = NULL;

	(void)state;
	runs(s, "quiet", 0, 1);
	for (int i = 0; i < 13; i++) {
		runs(s, "flood", 100 * i, 100 * i + 100);
		sign_all(s);
		prune_all(s, now_ns());
	}
	assert_int_equal(store_state(s, "quiet-0"), STORE_ENDED);
	assert_int_equal(look_number("SELECT min(n) FROM chain"), 1);
	assert_in_range(look_number("SELECT count(*) FROM chain WHERE body IS NULL"), most / 2, most);
	assert_in_range(look_number("SELECT max(n) FROM chain"), 1300, 1400);
	/* each number that is not there is in a prune's list */
	assert_int_equal(look_number("WITH gone AS (SELECT json_extract(r.value, '$[0]') a, json_extract(r.value, '$[1]') b"
				     " FROM chain, json_each(chain.body, '$.skeletons') r WHERE chain.kind = 'prune')"
				     " SELECT (SELECT sum(b - a + 1) FROM gone) + (SELECT count(*) FROM chain)"
				     " - (SELECT max(n) FROM chain)"),
			 0);
	assert_int_equal(store_entry(s, 1, &entry), 0);
	assert_text(json_object_get(entry, "body"), "run_id", "quiet-0");
	assert_true(json_is_true(json_object_get(entry, "signed")));
	assert_int_equal(strlen(json_string_value(json_object_get(entry, "signature"))), 128);
	json_decref(entry);
	assert_int_equal(store_entry(s, 2, &entry), -ENOENT);
	store_free(s);
}

/* Gaps and policies are nobody's: they go by age, and only after an entry has their digest. */
static void test_nobodys(void **state)
{
	struct store *s = open_keyless((struct audit_opts){.keep_s = DAY});
	uint64_t later = now_ns() + (uint64_t)2 * DAY * SECOND;

	(void)state;
	store_begin(s);
	for (int i = 0; i < 5; i++)
		store_append_gap(s, RECORD_GAP_REFUSED, 1, "something");
	assert_int_equal(store_commit(s, NULL), 0);
	assert_int_equal(store_prune(s, later, NULL), 0);
	assert_int_equal(look_number("SELECT count(*) FROM record"), 5); /* under no digest yet */
	runs(s, "dev", 0, 1);
	assert_int_equal(prune_all(s, later), 1);
	assert_string_equal(account().last_reason, "age");
	assert_int_equal(look_number("SELECT count(*) FROM record"), 0);
	assert_int_equal(look_number("SELECT count(*) FROM project"), 0);
	store_free(s);
}

/* The keeper's head: what stands beyond it at a start is nobody's word. */
static int hear_head(struct store *s, uint64_t n)
{
	struct chain_head head = {.n = n, .key_id = {1}};
	sqlite3 *db = look();
	sqlite3_stmt *st = NULL;

	sqlite3_prepare_v2(db, "SELECT hash FROM chain WHERE n = ?", -1, &st, NULL);
	sqlite3_bind_int64(st, 1, (sqlite3_int64)n);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	memcpy(head.hash, sqlite3_column_blob(st, 0), CHAIN_HASH);
	sqlite3_finalize(st);
	sqlite3_close(db);
	return store_check_head(s, &head, NULL);
}

/* What was signed before a crash is done after it; what was not is void, and nothing of it has gone. */
static void test_crash_between(void **state)
{
	const struct audit_opts opts = {.keep_s = 10 * DAY};
	struct store *s = open_as(opts);
	uint64_t now = now_ns();
	long long first;

	(void)state;
	run(s, "old-1", "dev", now - (uint64_t)11 * DAY * SECOND);
	run(s, "new", "dev", now);
	assert_int_equal(store_prune(s, now, NULL), 0); /* nobody knows yet who signs */
	sign_all(s);
	assert_int_equal(store_prune(s, now, NULL), STORE_PRUNE_WAITS);
	sign_all(s);
	store_free(s);
	s = open_as(opts);
	assert_int_equal(store_state(s, "old-1"), STORE_ENDED);
	assert_int_equal(hear_head(s, 3), 0);
	assert_int_equal(store_prune(s, now, NULL), STORE_PRUNED);
	assert_int_equal(store_state(s, "old-1"), STORE_UNKNOWN);
	assert_int_equal(store_prune(s, now, NULL), 0);

	run(s, "old-2", "dev", now - (uint64_t)11 * DAY * SECOND);
	sign_all(s);
	assert_int_equal(store_prune(s, now, NULL), STORE_PRUNE_WAITS);
	first = look_number("SELECT value FROM meta WHERE key = 'prune_n'");
	assert_int_equal(first, 5);
	store_free(s);
	s = open_as(opts);
	assert_int_equal(hear_head(s, 4), STORE_ADOPTED); /* 6 says of 5 that nobody had signed it */
	assert_int_equal(store_prune(s, now, NULL), STORE_PRUNE_WAITS);
	assert_true(look_number("SELECT value FROM meta WHERE key = 'prune_n'") > first);
	assert_int_equal(store_state(s, "old-2"), STORE_ENDED);
	sign_all(s);
	assert_int_equal(store_prune(s, now, NULL), STORE_PRUNED);
	assert_int_equal(store_state(s, "old-2"), STORE_UNKNOWN);
	assert_int_equal(store_state(s, "new"), STORE_ENDED);
	check_books();
	store_free(s);
}

/* Who writes a service's record beside it leaves alone what is in it, whatever its own figures are. */
static void test_shared(void **state)
{
	struct store *s = open_keyless((struct audit_opts){.keep_s = DAY, .project_bytes = 1, .max_bytes = 1, .shared = true});
	uint64_t now = now_ns();

	(void)state;
	run(s, "old", "dev", now - (uint64_t)11 * DAY * SECOND);
	run(s, "new", "dev", now);
	assert_int_equal(store_prune(s, now, NULL), 0);
	assert_false(store_is_over(s));
	assert_int_equal(look_number("SELECT count(*) FROM run"), 2);
	store_free(s);
	s = open_keyless((struct audit_opts){.keep_s = DAY});
	assert_int_equal(store_prune(s, now, NULL), STORE_PRUNED);
	assert_int_equal(look_number("SELECT count(*) FROM run"), 1);
	store_free(s);
}

/* A piece is a transaction that others wait for, however large the runs are. */
static void test_pieces(void **state)
{
	struct store *s = open_keyless((struct audit_opts){.keep_s = 10 * DAY});
	uint64_t now = now_ns(), long_ago = now - (uint64_t)11 * DAY * SECOND;
	struct note n;

	(void)state;
	for (int i = 0; i < 12; i++) {
		char id[20];

		snprintf(id, sizeof id, "old-%d", i);
		store_begin(s);
		for (int k = 0; k < 5000; k++) {
			n = dated(note(NOTE_RUN_BEGIN, id), "dev", long_ago);
			store_append(s, &n);
		}
		n = dated(run_end(id, 0, 0, 0), "dev", long_ago);
		store_append(s, &n);
		store_finish(s, id);
		assert_int_equal(store_commit(s, NULL), 0);
	}
	assert_int_equal(store_prune(s, now, NULL), STORE_PRUNED);
	assert_int_equal(look_number("SELECT count(*) FROM run"), 5); /* 7 x 5,001 records */
	assert_int_equal(prune_all(s, now), 1);
	assert_int_equal(look_number("SELECT count(*) FROM run"), 0);
	store_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(test_age),	     TEST(test_flood),	 TEST(test_room),
					   TEST(test_prefix),	     TEST(test_nobodys), TEST(test_skeletons),
					   TEST(test_crash_between), TEST(test_shared),	 TEST(test_pieces)};

	return cmocka_run_group_tests_name("prune", tests, NULL, NULL);
}
