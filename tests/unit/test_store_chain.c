/* SPDX-License-Identifier: Apache-2.0 */
/* The chain: what is summed up, when, over what; who signs it; what is said when it is not what was signed. */
#include "store_fixture.h"

/* The keeper of the key, as the supervisor is one: it signs what follows on what it remembers, and nothing else. */
struct keeper {
	struct chain_head head;
	uint8_t hash[64][CHAIN_HASH]; /* of what it has signed; zeros: that is not known */
};

static struct keeper keeper(uint8_t key)
{
	struct keeper k = {0};

	k.head.key_id[0] = key;
	return k;
}

static bool keeper_signs(struct keeper *k, struct store *s, const struct sign_ask *ask, struct err *e)
{
	uint8_t signature[CHAIN_SIGNATURE] = {7}, again[CHAIN_HASH];

	if (ask->n <= k->head.n) {
		/* once more, as what it was */
		chain_hash(ask->n, k->hash[ask->n - 1], ask->body, again);
		return memcmp(again, k->hash[ask->n], CHAIN_HASH) == 0 && store_signed(s, ask->n, again, signature, e) == 0;
	}
	if (ask->n != k->head.n + 1 && !ask->after_break)
		return false;
	chain_hash(ask->n, k->head.hash, ask->body, k->head.hash);
	k->head.n = ask->n;
	memcpy(k->hash[ask->n], k->head.hash, CHAIN_HASH);
	return store_signed(s, ask->n, k->head.hash, signature, e) == 0;
}

/* As the auditor does: compares, then asks for everything that waits, each once. Returns how many were signed. */
static size_t sign_all(struct keeper *k, struct store *s, int want_break)
{
	struct sign_ask asks[8];
	struct err e = {0};
	uint64_t after = 0;
	size_t n, total = 0;

	assert_int_equal(store_check_head(s, &k->head, &e), want_break);
	assert_int_equal(store_sync(s, &e), 0);
	while ((n = store_unsigned(s, after, asks, 8))) {
		for (size_t i = 0; i < n; i++)
			total += keeper_signs(k, s, &asks[i], &e);
		after = asks[n - 1].n;
	}
	return total;
}

static void run(struct store *s, const char *id)
{
	struct note n = note(NOTE_RUN_BEGIN, id);

	store_begin(s);
	store_append(s, &n);
	n = event(id, key(8, 53, WEIR_DENY), "\7example\3com", 13);
	store_append(s, &n);
	n = run_end(id, 1, 1, 0);
	store_append(s, &n);
	store_finish(s, id);
	assert_int_equal(store_commit(s, NULL), 0);
}

static json_t *body_of(long long n)
{
	sqlite3 *db = look();
	sqlite3_stmt *st = NULL;
	json_t *body;

	assert_int_equal(sqlite3_prepare_v2(db, "SELECT body FROM chain WHERE n = ?", -1, &st, NULL), SQLITE_OK);
	sqlite3_bind_int64(st, 1, n);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	body = json_loads((const char *)sqlite3_column_text(st, 0), 0, NULL);
	sqlite3_finalize(st);
	sqlite3_close(db);
	assert_non_null(body);
	return body;
}

/* The digest over what a query of bodies gives. */
static void digest_of(const char *sql, char ret[2 * CHAIN_HASH + 1])
{
	sqlite3 *db = look();
	sqlite3_stmt *st = NULL;
	struct chain_records r = {0};
	uint8_t hash[CHAIN_HASH];

	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
	while (sqlite3_step(st) == SQLITE_ROW)
		assert_int_equal(
		    chain_records_add(&r, (const char *)sqlite3_column_text(st, 0), (size_t)sqlite3_column_bytes(st, 0)), 0);
	sqlite3_finalize(st);
	sqlite3_close(db);
	assert_int_equal(chain_records_end(&r, hash), 0);
	chain_hex(hash, ret);
}

static void test_finish(void **state)
{
	struct store *s = open_store(BIG);
	char hex[2 * CHAIN_HASH + 1], ids[4][IPC_ID_MAX];
	uint8_t hash[CHAIN_HASH], again[CHAIN_HASH];
	json_t *body, *json;

	(void)state;
	put(s, note(NOTE_RUN_BEGIN, "open"));
	run(s, "r1");
	assert_int_equal(store_run_hash(s, "r1", hash), 0);
	assert_int_equal(store_run_hash(s, "open", again), -ENOENT);
	body = body_of(1);
	assert_text(body, "kind", "run");
	assert_text(body, "run_id", "r1");
	assert_int_equal(number(body, "records"), 3);
	digest_of("SELECT body FROM record WHERE run = (SELECT id FROM run WHERE run_id = 'r1') ORDER BY seq", hex);
	assert_text(body, "records_sha256", hex);
	json_decref(body);
	json = run_json(s, "r1", false);
	assert_int_equal(number(json_object_get(json, "chain"), "n"), 1);
	json_decref(json);

	/* once only, never before the end, and what comes later is in the record all the same */
	store_begin(s);
	store_finish(s, "r1");
	store_finish(s, "open");
	store_finish(s, "nobody's");
	assert_int_equal(store_commit(s, NULL), 0);
	put(s, flow("r1", key(8, 53, WEIR_DENY), 2));
	assert_int_equal(store_run_hash(s, "r1", again), 0);
	assert_memory_equal(hash, again, sizeof hash);
	assert_int_equal(look_number("SELECT count(*) FROM chain"), 1);
	assert_int_equal(look_number("SELECT late FROM run WHERE run_id = 'r1'"), 1);
	assert_int_equal(look_number("SELECT records FROM run WHERE run_id = 'r1'"), 4);

	/* ended, and nobody has asked for its sum */
	put(s, run_end("open", 0, 0, 0));
	assert_int_equal(store_unfinished(s, UINT64_MAX, 0, ids, 4), 1);
	assert_string_equal(ids[0], "open");
	assert_int_equal(store_unfinished(s, 1, 0, ids, 4), 0);
	store_free(s);
}

/* A batch that can't be written leaves no entry; those that were interrupted can be summed up, too. */
static void test_interrupted(void **state)
{
	struct store *s = open_store(BIG);
	char ids[4][IPC_ID_MAX];
	json_t *body;

	(void)state;
	put(s, note(NOTE_RUN_BEGIN, "cut"));
	assert_int_equal(store_unfinished(s, UINT64_MAX, 0, ids, 4), 0);
	store_free(s);
	s = open_store(BIG);
	assert_true(store_alone(s));
	assert_int_equal(store_unfinished(s, UINT64_MAX, 0, ids, 4), 1);
	store_begin(s);
	store_finish(s, ids[0]);
	assert_int_equal(store_commit(s, NULL), 0);
	assert_int_equal(store_unfinished(s, UINT64_MAX, 0, ids, 4), 0);
	body = body_of(1);
	assert_text(body, "run_id", "cut");
	json_decref(body);
	store_free(s);
}

/* Records of nobody are under the digest of the next entry, each once. */
static void test_others(void **state)
{
	struct store *s = open_store(BIG);
	char hex[2 * CHAIN_HASH + 1];
	json_t *body, *others;

	(void)state;
	store_begin(s);
	store_append_gap(s, RECORD_GAP_REFUSED, 1, "one");
	store_append_gap(s, RECORD_GAP_REFUSED, 1, "two");
	assert_int_equal(store_commit(s, NULL), 0);
	run(s, "r1");
	run(s, "r2");
	body = body_of(1);
	others = json_object_get(body, "others");
	assert_int_equal(number(others, "count"), 2);
	assert_int_equal(number(others, "first_seq"), 1);
	assert_int_equal(number(others, "last_seq"), 2);
	digest_of("SELECT body FROM record WHERE run IS NULL ORDER BY seq", hex);
	assert_text(others, "sha256", hex);
	json_decref(body);
	body = body_of(2);
	assert_null(json_object_get(body, "others"));
	json_decref(body);
	store_free(s);
}

static void test_signing(void **state)
{
	struct store *s = open_store(BIG);
	struct keeper k = keeper(1);
	struct sign_ask asks[8];
	struct chain_head head;
	uint8_t wrong[CHAIN_HASH] = {1}, signature[CHAIN_SIGNATURE] = {0};
	json_t *json;
	struct err e;

	(void)state;
	for (const char *const *id = (const char *const[]){"a", "b", "c", NULL}; *id; id++)
		run(s, *id);
	assert_int_equal(store_unsigned(s, 0, asks, 8), 0); /* nobody has said who signs */
	assert_int_equal(store_check_head(s, &(struct chain_head){0}, &e), 0);
	assert_int_equal(store_unsigned(s, 0, asks, 8), 0); /* nobody does */
	assert_int_equal(store_check_head(s, &k.head, &e), 0);
	assert_int_equal(store_unsigned(s, 0, asks, 2), 0); /* a power cut could still take them */
	assert_int_equal(store_sync(s, &e), 0);
	assert_int_equal(store_unsigned(s, 0, asks, 2), 2);
	assert_int_equal(asks[0].n, 1);
	assert_int_equal(store_unsigned(s, 2, asks, 8), 1);
	assert_int_equal(asks[0].n, 3);
	assert_int_equal(store_signed(s, 1, wrong, signature, &e), -EBADMSG);
	assert_int_equal(store_signed(s, 9, wrong, signature, &e), -EBADMSG);
	assert_int_equal(sign_all(&k, s, 0), 3);
	assert_int_equal(store_head(s, &head), 0);
	assert_int_equal(head.n, 3);
	assert_memory_equal(head.hash, k.head.hash, CHAIN_HASH);
	assert_int_equal(look_number("SELECT count(*) FROM chain WHERE signature IS NOT NULL"), 3);
	json = run_json(s, "b", false);
	assert_true(json_is_true(json_object_get(json_object_get(json, "chain"), "signed")));
	json_decref(json);
	/* signed and not told, since the auditor that asked is dead: the keeper says it again */
	run(s, "d");
	assert_int_equal(store_sync(s, &e), 0);
	assert_int_equal(store_unsigned(s, k.head.n, asks, 1), 1);
	chain_hash(4, k.head.hash, asks[0].body, k.head.hash);
	k.head.n = 4;
	memcpy(k.hash[4], k.head.hash, CHAIN_HASH);
	run(s, "e");
	assert_int_equal(sign_all(&k, s, 0), 2);
	assert_int_equal(look_number("SELECT count(*) FROM chain WHERE signature IS NULL"), 0);
	/* the keeper forgot the last ones in a power cut: they are signed again */
	k = keeper(1);
	assert_int_equal(sign_all(&k, s, 0), 5);
	store_free(s);
}

/* In the open batch: committed with it, or not at all. */
static void test_signing_in_a_batch(void **state)
{
	struct store *s = open_store(BIG);
	struct keeper k = keeper(1);
	struct note n = note(NOTE_RUN_BEGIN, "b");

	(void)state;
	run(s, "a");
	store_begin(s);
	assert_int_equal(sign_all(&k, s, 0), 1);
	store_append(s, &n);
	assert_int_equal(store_commit(s, NULL), 0);
	assert_int_equal(look_number("SELECT count(*) FROM chain WHERE signature IS NOT NULL"), 1);
	assert_int_equal(store_state(s, "b"), STORE_RUNNING);
	store_free(s);
}

static void copy_file(const char *from, const char *to)
{
	char buf[65536];
	int in = openat(dir, from, O_RDONLY), out = openat(dir, to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ssize_t n;

	assert_true(in >= 0 && out >= 0);
	while ((n = read(in, buf, sizeof buf)) > 0)
		assert_int_equal(write(out, buf, (size_t)n), n);
	close(in);
	close(out);
}

static void assert_break(long long n, const char *reason, long long expected)
{
	json_t *body = body_of(n);

	assert_text(body, "kind", "break");
	assert_text(body, "reason", reason);
	assert_int_equal(number(json_object_get(body, "expected"), "n"), expected);
	json_decref(body);
}

/* An earlier state put back, and other runs written on it. */
static void test_rolled_back(void **state)
{
	struct store *s = open_store(BIG);
	struct keeper k = keeper(1);

	(void)state;
	run(s, "a");
	sign_all(&k, s, 0);
	store_free(s);
	copy_file(STORE_FILE, "copy");
	s = open_store(BIG);
	run(s, "b");
	run(s, "c");
	assert_int_equal(sign_all(&k, s, 0), 2);
	store_free(s);
	copy_file("copy", STORE_FILE);
	s = open_store(BIG);
	assert_int_equal(sign_all(&k, s, STORE_BROKEN), 1); /* the break itself */
	assert_int_equal(k.head.n, 4);
	assert_break(4, "missing", 3);
	run(s, "d");
	assert_int_equal(sign_all(&k, s, 0), 1);
	assert_int_equal(store_check_head(s, &k.head, NULL), 0); /* said once is enough */
	store_free(s);

	copy_file("copy", STORE_FILE);
	s = open_store(BIG);
	for (int i = 0; i < 6; i++) {
		char id[16];

		snprintf(id, sizeof id, "x%d", i);
		run(s, id);
	}
	assert_int_equal(sign_all(&k, s, 1), 1);
	assert_break(8, "other", 5);
	store_free(s);
}

/* A break that was written and not signed is not written again, by whomever. */
static void test_break_once(void **state)
{
	struct store *s = open_store(BIG), *other = open_store(BIG);
	struct keeper k = keeper(1);

	(void)state;
	k.head.n = 10;
	k.head.hash[0] = 9;
	run(s, "a");
	assert_int_equal(store_check_head(s, &k.head, NULL), 1);
	assert_int_equal(store_check_head(other, &k.head, NULL), 0);
	store_free(s);
	s = open_store(BIG);
	assert_int_equal(sign_all(&k, s, 0), 1);
	assert_int_equal(k.head.n, 11);
	store_free(s);
	store_free(other);
}

/* Beyond the head at a start: signed behind an entry that says so, with a digest over them; their prunes are void. */
static void test_adopted(void **state)
{
	struct store *s = open_store(BIG);
	struct keeper k = keeper(1);
	json_t *body;

	(void)state;
	run(s, "a");
	assert_int_equal(sign_all(&k, s, 0), 1);
	run(s, "b");
	run(s, "c");
	store_free(s); /* killed before anybody signed */
	s = open_store(BIG);
	assert_int_equal(sign_all(&k, s, STORE_ADOPTED), 1);
	assert_int_equal(k.head.n, 4);
	assert_break(4, "unsigned", 1);
	body = body_of(4);
	assert_int_equal(json_integer_value(json_array_get(json_array_get(json_object_get(body, "entries"), 0), 0)), 2);
	assert_int_equal(json_array_size(json_object_get(body, "void")), 0);
	json_decref(body);
	run(s, "d");
	assert_int_equal(sign_all(&k, s, 0), 1);
	assert_int_equal(look_number("SELECT count(*) FROM chain WHERE signature IS NULL"), 2);
	store_free(s);
	s = open_store(BIG);
	assert_int_equal(sign_all(&k, s, 0), 0); /* once */
	store_free(s);
}

/* Numbers that nothing could follow are nobody's: they go, and the chain goes on from the head. */
static void test_numbers_out_of_reason(void **state)
{
	struct store *s = open_store(BIG);
	struct keeper k = keeper(1);
	sqlite3 *db = NULL;
	json_t *body;

	(void)state;
	run(s, "a");
	assert_int_equal(sign_all(&k, s, 0), 1);
	store_free(s);
	assert_int_equal(schema_open(&db, dir, false, false, NULL), 0);
	assert_int_equal(sqlite3_exec(db,
				      "INSERT INTO chain SELECT 9223372036854775807, 'break', NULL, body, body_digest, before,"
				      " hash, NULL, 0 FROM chain",
				      NULL, NULL, NULL),
			 SQLITE_OK);
	sqlite3_close(db);
	s = open_store(BIG);
	run(s, "b");
	assert_int_equal(sign_all(&k, s, STORE_ADOPTED), 1);
	assert_int_equal(k.head.n, 3);
	body = body_of(3);
	assert_int_equal(number(body, "beyond"), 1);
	json_decref(body);
	assert_int_equal(look_number("SELECT max(n) FROM chain"), 3);
	run(s, "c");
	assert_int_equal(sign_all(&k, s, 0), 1);
	store_free(s);
}

/* What comes behind the sum is listed as that, and says nothing else; where it went can be searched for. */
static void test_late(void **state)
{
	struct store *s = open_store(BIG);
	struct note n = run_end("r1", 0, 0, 0);
	json_t *json, *found = NULL, *late;
	struct find f = {.verdicts = 1 << WEIR_ALLOW};

	(void)state;
	run(s, "r1");
	n.end.end = RUN_END_TIMEOUT;
	put(s, n);
	put(s, note(NOTE_RUN_BEGIN, "r1"));
	put(s, event("r1", key(9, 53, WEIR_ALLOW), "\4late\3com", 10));
	json = run_json(s, "r1", false);
	assert_text(json_object_get(json, "termination"), "reason", "exit");
	assert_int_equal(number(json_object_get(json, "egress"), "denied"), 1);
	assert_int_equal(number(json_object_get(json, "egress"), "attempts"), 1);
	late = json_object_get(json, "late");
	assert_int_equal(json_array_size(late), 3);
	assert_text(json_array_get(late, 0), "type", "run_end");
	json_decref(json);
	assert_int_equal(look_number("SELECT attempts FROM run WHERE \"end\" = 'exit' AND records = 6 AND late = 3"), 1);
	strcpy(f.destination, "late.com");
	assert_int_equal(store_search(s, &f, "", "", &found), 0);
	assert_int_equal(json_array_size(json_object_get(found, "runs")), 1);
	json_decref(found);
	assert_int_equal(store_follow(s, &(struct find){0}, "", "", &found), 0);
	assert_true(json_is_true(json_object_get(json_array_get(json_object_get(found, "records"), 3), "late")));
	assert_null(json_object_get(json_array_get(json_object_get(found, "records"), 2), "late"));
	json_decref(found);
	store_free(s);
}

static void test_other_key(void **state)
{
	struct store *s = open_store(BIG);
	struct keeper k = keeper(1);

	(void)state;
	run(s, "a");
	sign_all(&k, s, 0);
	k = keeper(2); /* knows of nothing */
	assert_int_equal(sign_all(&k, s, 1), 1);
	assert_break(2, "key", 0);
	run(s, "b");
	assert_int_equal(sign_all(&k, s, 0), 1);
	store_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_finish),	    TEST(test_interrupted),	      TEST(test_others),     TEST(test_signing),
	    TEST(test_rolled_back), TEST(test_signing_in_a_batch),    TEST(test_break_once), TEST(test_other_key),
	    TEST(test_adopted),	    TEST(test_numbers_out_of_reason), TEST(test_late),
	};

	return cmocka_run_group_tests_name("store_chain", tests, NULL, NULL);
}
