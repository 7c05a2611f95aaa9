/* SPDX-License-Identifier: Apache-2.0 */
/* Several auditors on one record, and the death of any of them at any moment: nothing acknowledged is lost. */
#include "store_fixture.h"

/* Writes records for ever and says after each commit which was the last. */
#define BATCH 64
static void write_for_ever(int ack, const char *prefix)
{
	struct store *s = open_store(BIG);
	char id[40];

	for (uint32_t i = 0;; i++) {
		store_begin(s);
		for (int j = 0; j < BATCH; j++) {
			snprintf(id, sizeof id, "%s-%u", prefix, i * BATCH + (uint32_t)j);
			struct note n = event(id, key(1, 53, WEIR_DENY), "\7example\3com", 13);

			store_append(s, &n);
		}
		if (store_commit(s, NULL) < 0)
			_exit(1);
		if (i == 100)
			(void)store_sync(s, NULL);
		if (write(ack, &i, sizeof i) != sizeof i)
			_exit(1);
	}
}

static pid_t start_writer(int *ret_ack, const char *prefix)
{
	int p[2];
	pid_t pid;

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		close(p[0]);
		write_for_ever(p[1], prefix);
	}
	close(p[1]);
	*ret_ack = p[0];
	return pid;
}

static void pause_us(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* The last batch that was acknowledged, -1 for none. */
static long drain_acks(int ack)
{
	uint32_t i;
	long last = -1;

	while (read(ack, &i, sizeof i) == sizeof i)
		last = i;
	close(ack);
	return last;
}

/* SIGKILL in the middle of writing, again and again, on the same files: nothing acknowledged is missing. */
static void test_kill(void **state)
{
	long acked[60], total = 0;
	char id[40];
	struct store *s;

	(void)state;
	srandom(5);
	for (int round = 0; round < 60; round++) {
		int ack;
		pid_t pid;

		snprintf(id, sizeof id, "k%d", round);
		pid = start_writer(&ack, id);
		pause_us(2000 + random() % 15000);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		acked[round] = drain_acks(ack);
	}
	s = open_store(BIG);
	for (int round = 0; round < 60; round++)
		for (long i = 0; i <= acked[round]; i++)
			for (int j = 0; j < BATCH; j++) {
				snprintf(id, sizeof id, "k%d-%ld", round, i * BATCH + j);
				assert_int_not_equal(store_state(s, id), STORE_UNKNOWN);
				total++;
			}
	print_message("%ld acknowledged records, none lost; %zu torn lines mended\n", total, gaps(RECORD_GAP_TORN).n);
	store_free(s);
}

/* Two auditors on one directory: one order, no number twice, each sees the other's, and one's death is the other's to mend. */
static void test_two_writers(void **state)
{
	struct store *s = open_store(BIG);
	long long last = 0;
	int ack[2];
	pid_t pid[2];
	char id[40];

	(void)state;
	pid[0] = start_writer(&ack[0], "a");
	pid[1] = start_writer(&ack[1], "b");
	for (int i = 0; i < 50; i++) {
		snprintf(id, sizeof id, "mine-%d", i);
		assert_int_equal(put(s, note(NOTE_RUN_BEGIN, id)), 0);
		pause_us(2000);
	}
	for (int i = 0; i < 2; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	assert_int_equal(put(s, note(NOTE_RUN_BEGIN, "last")), 0);
	for (int i = 0; i < 2; i++) {
		long n = drain_acks(ack[i]);

		assert_true(n >= 0);
		for (long j = 0; j <= n; j++) {
			snprintf(id, sizeof id, "%c-%ld", "ab"[i], j * BATCH);
			assert_int_equal(store_state(s, id), STORE_RUNNING);
		}
	}
	assert_int_equal(gaps(RECORD_GAP_INTERRUPTED).n, 0); /* nobody was alone at any time */
	store_free(s);
	each_line(check_order, &last);
}

/* The other auditor moves the full file aside: we follow it, and what is in either file is found. */
static void test_rotation_by_other(void **state)
{
	struct store *a = open_store(10000), *b = open_store(10000);
	long long last = 0;
	char id[40];

	(void)state;
	for (int i = 0; i < 100; i++) {
		snprintf(id, sizeof id, "x%d", i);
		assert_int_equal(put(i % 7 ? a : b, note(NOTE_RUN_BEGIN, id)), 0);
	}
	assert_true(store_stats(a)->rotations + store_stats(b)->rotations > 0);
	put(a, note(NOTE_RUN_BEGIN, "end"));
	put(b, note(NOTE_RUN_BEGIN, "end2"));
	for (int i = 70; i < 100; i++) {
		snprintf(id, sizeof id, "x%d", i);
		assert_int_equal(store_state(a, id), STORE_RUNNING);
		assert_int_equal(store_state(b, id), STORE_RUNNING);
	}
	store_free(a);
	store_free(b);
	each_line(check_order, &last);
}

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(test_kill), TEST(test_two_writers), TEST(test_rotation_by_other)};

	return cmocka_run_group_tests_name("store_crash", tests, NULL, NULL);
}
