/* SPDX-License-Identifier: Apache-2.0 */
/* Several auditors on one record, and the death of any of them at any moment: nothing acknowledged is lost. */
#include "store_fixture.h"

#include <poll.h>

#define BATCH 16
#define KILLS 200

/*
 * Writes runs for ever, ends and sums up each, and says after each commit which was the last. Now and then it syncs, which
 * moves the log. In a process that had no record open before: SQLite's locks are a process's own.
 */
static void write_for_ever(int ack, const char *prefix, uint32_t from)
{
	struct store *s = open_store(BIG);
	char id[40];

	for (uint32_t i = from;; i++) {
		store_begin(s);
		for (uint32_t j = 0; j < BATCH; j++) {
			struct note n;

			snprintf(id, sizeof id, "%s-%u", prefix, i * BATCH + j);
			n = event(id, key(1, 53, WEIR_DENY), "\7example\3com", 13);
			store_append(s, &n);
			n = run_end(id, 1, 1, 0);
			store_append(s, &n);
			store_finish(s, id);
		}
		if (store_commit(s, NULL) < 0)
			_exit(1);
		if (i % 3 == 0)
			(void)store_sync(s, NULL);
		if (write(ack, &i, sizeof i) != sizeof i)
			_exit(1);
	}
}

static pid_t start_writer(int *ret_ack, const char *prefix, uint32_t from)
{
	int p[2];
	pid_t pid;

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		close(p[0]);
		write_for_ever(p[1], prefix, from);
	}
	close(p[1]);
	*ret_ack = p[0];
	return pid;
}

static void pause_us(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* The last batch that was acknowledged, `last` when there was none. */
static long drain_acks(int ack, long last)
{
	uint32_t i;

	while (read(ack, &i, sizeof i) == sizeof i)
		last = i;
	close(ack);
	return last;
}

static void kill_one(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void assert_there(struct store *s, const char *prefix, long from, long to)
{
	uint8_t hash[CHAIN_HASH];
	char id[40];

	for (long i = from * BATCH; i < (to + 1) * BATCH; i++) {
		snprintf(id, sizeof id, "%s-%ld", prefix, i);
		assert_int_equal(store_state(s, id), STORE_ENDED);
		assert_int_equal(store_run_hash(s, id, hash), 0);
	}
}

/* The chain holds together from its first entry to its last. */
static long long check_chain(void)
{
	sqlite3 *db = look();
	sqlite3_stmt *st = NULL;
	uint8_t last[CHAIN_HASH] = {0}, hash[CHAIN_HASH], digest[CHAIN_HASH];
	long long n = 0;

	assert_int_equal(sqlite3_prepare_v2(db, "SELECT n, body, before, hash FROM chain ORDER BY n", -1, &st, NULL),
			 SQLITE_OK);
	while (sqlite3_step(st) == SQLITE_ROW) {
		assert_int_equal(sqlite3_column_int64(st, 0), ++n);
		assert_memory_equal(sqlite3_column_blob(st, 2), last, CHAIN_HASH);
		chain_body_digest(sqlite3_column_text(st, 1), (size_t)sqlite3_column_bytes(st, 1), digest);
		chain_hash((uint64_t)n, last, digest, hash);
		assert_memory_equal(sqlite3_column_blob(st, 3), hash, CHAIN_HASH);
		memcpy(last, hash, CHAIN_HASH);
	}
	sqlite3_finalize(st);
	sqlite3_close(db);
	return n;
}

/* SIGKILL in the middle of writing, again and again, on the same record: nothing acknowledged is missing. */
static void test_kill(void **state)
{
	long next = 0, acked = -1, last = 0;
	struct store *s;

	(void)state;
	srandom(5);
	for (int round = 0; round < KILLS; round++) {
		int ack;
		pid_t pid = start_writer(&ack, "k", (uint32_t)next);
		struct pollfd p = {.fd = ack, .events = POLLIN};

		/* At any moment from its first breath on; at times only when it has got somewhere. */
		if (round % 2)
			assert_int_equal(poll(&p, 1, 20000), 1);
		pause_us(random() % 8000);
		kill_one(pid);
		acked = drain_acks(ack, acked);
		/* One may have been kept without a word of it: never the same run twice. */
		next = acked + 2 > next + 1 ? acked + 2 : next + 1;
	}
	assert_intact();
	s = open_store(BIG);
	store_free(s);
	s = open_store(BIG);
	/* A batch is there whole or not at all. */
	assert_int_equal(look_number("SELECT count(*) FROM run WHERE state <> 'ended' OR records <> 2 OR chain_n IS NULL"), 0);
	assert_int_equal(look_number("SELECT count(*) % 16 FROM run"), 0);
	assert_int_equal(look_number("SELECT count(*) - 2 * (SELECT count(*) FROM run) FROM record WHERE run IS NOT NULL"), 0);
	assert_there(s, "k", acked, acked);
	last = (long)check_chain();
	print_message("%d kills, %ld runs, %ld batches acknowledged\n", KILLS, last, acked);
	store_free(s);
}

static void test_every_acknowledged_one(void **state)
{
	long acked[20];
	char prefix[20];
	struct store *s;

	(void)state;
	srandom(7);
	for (int round = 0; round < 20; round++) {
		int ack;
		pid_t pid;

		snprintf(prefix, sizeof prefix, "r%d", round);
		pid = start_writer(&ack, prefix, 0);
		pause_us(20000 + random() % 30000);
		kill_one(pid);
		acked[round] = drain_acks(ack, -1);
	}
	s = open_store(BIG);
	for (int round = 0; round < 20; round++) {
		snprintf(prefix, sizeof prefix, "r%d", round);
		assert_there(s, prefix, 0, acked[round]);
	}
	store_free(s);
}

/* Two auditors on one directory: one order, no number twice, each sees the other's, and one's death is the other's to mend. */
static void test_two_writers(void **state)
{
	long long last = 0;
	int ack[2];
	pid_t pid[2];
	struct store *s;
	char id[40];

	(void)state;
	pid[0] = start_writer(&ack[0], "a", 0);
	pid[1] = start_writer(&ack[1], "b", 0);
	s = open_store(BIG);
	for (int i = 0; i < 50; i++) {
		snprintf(id, sizeof id, "mine-%d", i);
		assert_int_equal(put(s, note(NOTE_RUN_BEGIN, id)), 0);
		pause_us(2000);
	}
	for (int i = 0; i < 2; i++)
		kill_one(pid[i]);
	assert_int_equal(put(s, note(NOTE_RUN_BEGIN, "last")), 0);
	for (int i = 0; i < 2; i++) {
		long n = drain_acks(ack[i], -1);

		assert_true(n >= 0);
		assert_there(s, i ? "b" : "a", 0, n);
	}
	assert_int_equal(gaps(RECORD_GAP_INTERRUPTED).n, 0); /* nobody was alone at any time */
	store_free(s);
	each_record(check_order, &last);
	check_chain();
}

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(test_kill), TEST(test_every_acknowledged_one), TEST(test_two_writers)};

	return cmocka_run_group_tests_name("store_crash", tests, NULL, NULL);
}
