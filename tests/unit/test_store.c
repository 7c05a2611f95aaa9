/* SPDX-License-Identifier: Apache-2.0 */
/* The record: what is acknowledged stays, what is lost shows, whoever dies or fills the disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "auditor/record.h"
#include "auditor/store.h"

#define BIG (1u << 30)

static char dir_path[64];
static int dir = -1;

static int setup(void **state)
{
	(void)state;
	strcpy(dir_path, "/tmp/weir-test-store-XXXXXX");
	if (!mkdtemp(dir_path))
		return -1;
	dir = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	unlinkat(dir, STORE_FILE, 0);
	unlinkat(dir, STORE_OLD_FILE, 0);
	unlinkat(dir, STORE_LOCK_FILE, 0);
	close(dir);
	return rmdir(dir_path);
}

/* ---- notes ---- */

static struct note note(uint32_t type, const char *run_id)
{
	struct note n = {.type = type, .wall_ns = 1738324800000000000u, .boot_ns = 9000};

	snprintf(n.run_id, sizeof n.run_id, "%s", run_id);
	snprintf(n.sandbox_id, sizeof n.sandbox_id, "%s", run_id);
	strcpy(n.project, "dev");
	return n;
}

static struct weir_flow_key key(uint8_t last, uint16_t port, uint8_t verdict)
{
	struct weir_flow_key k = {.cgroup = 1, .family = 4, .protocol = 17, .hook = WEIR_HOOK_EGRESS, .verdict = verdict};

	memcpy(k.daddr, "\0\0\0\0\0\0\0\0\0\0\377\377\12\0\0", 15);
	k.daddr[15] = last;
	k.dport_be = (uint16_t)(port >> 8 | port << 8);
	return k;
}

static struct note event(const char *run_id, struct weir_flow_key k, const char *wire, uint16_t len)
{
	struct note n = note(NOTE_EVENT, run_id);

	n.event.key = k;
	n.event.attribution = WEIR_ATTR_CURRENT;
	n.event.pid = 2;
	strcpy(n.event.comm, "python3");
	n.event.dns_len = len;
	n.event.dns_qtype = 1;
	memcpy(n.event.dns, wire, len);
	return n;
}

static struct note flow(const char *run_id, struct weir_flow_key k, uint64_t count)
{
	struct note n = note(NOTE_FLOW, run_id);

	n.flow.key = k;
	n.flow.count = (struct weir_flow){.count = count, .bytes = 40 * count, .first_ns = 8000, .last_ns = 8500};
	return n;
}

static struct note run_end(const char *run_id, uint64_t attempts, uint64_t denied, uint64_t unlisted)
{
	struct note n = note(NOTE_RUN_END, run_id);

	n.end = (struct tell_end){.end = RUN_END_EXIT, .ran = 1, .attempts = attempts, .denied = denied, .unlisted = unlisted};
	n.end.allowed = attempts - denied;
	return n;
}

static int put(struct store *s, struct note n)
{
	store_begin(s);
	store_append(s, &n);
	return store_commit(s, NULL);
}

static struct store *open_store(uint64_t max)
{
	struct store *s = NULL;
	struct err e = {0};

	if (store_open(&s, dir, max, &e) < 0)
		fail_msg("store_open: %s", e.msg);
	return s;
}

static json_t *run_json(struct store *s, const char *run_id, bool summary)
{
	struct view *v = NULL;
	json_t *json;

	assert_int_equal(store_run(s, run_id, &v), 0);
	json = summary ? view_summary(v) : view_run(v, store_state_names[store_state(s, run_id)]);
	view_free(v);
	assert_non_null(json);
	return json;
}

static long long number(const json_t *json, const char *name)
{
	assert_true(json_is_integer(json_object_get(json, name)));
	return json_integer_value(json_object_get(json, name));
}

static void assert_text(const json_t *json, const char *name, const char *want)
{
	assert_non_null(json_string_value(json_object_get(json, name)));
	assert_string_equal(json_string_value(json_object_get(json, name)), want);
}

/* Calls fn with each line of the record, both files, oldest first; every line must parse. Returns how many. */
static size_t each_line(void (*fn)(void *ctx, const json_t *record), void *ctx)
{
	static const char *const names[] = {STORE_OLD_FILE, STORE_FILE};
	char *line = NULL;
	size_t room = 0, n = 0;

	for (size_t i = 0; i < 2; i++) {
		int fd = openat(dir, names[i], O_RDONLY);
		FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

		while (f && getline(&line, &room, f) > 0) {
			json_t *record = json_loads(line, 0, NULL);

			assert_non_null(record);
			if (fn)
				fn(ctx, record);
			json_decref(record);
			n++;
		}
		if (f)
			fclose(f);
	}
	free(line);
	return n;
}

struct gaps {
	const char *kind;
	size_t n;
	long long count;
};

static void find_gap(void *ctx, const json_t *record)
{
	struct gaps *g = ctx;
	const char *kind = json_string_value(json_object_get(record, "kind"));

	if (kind && strcmp(kind, g->kind) == 0) {
		g->n++;
		g->count = number(record, "count");
	}
}

static struct gaps gaps(const char *kind)
{
	struct gaps g = {.kind = kind};

	each_line(find_gap, &g);
	return g;
}

/* ---- tests ---- */

static void test_summary(void **state)
{
	struct store *s = open_store(BIG);
	struct weir_flow_key dns = key(8, 53, WEIR_DENY), tcp = key(9, 443, WEIR_DENY);
	json_t *json, *d;

	(void)state;
	tcp.protocol = 6;
	dns.name_hash = 5;
	assert_int_equal(put(s, note(NOTE_RUN_BEGIN, "r1")), 0);
	assert_int_equal(put(s, event("r1", dns, "\7example\3com", 13)), 0);
	assert_int_equal(put(s, event("r1", tcp, "", 0)), 0);
	tcp.hook = WEIR_HOOK_CONNECT4; /* another flow, the same destination */
	assert_int_equal(put(s, event("r1", tcp, "", 0)), 0);
	assert_int_equal(store_state(s, "r1"), STORE_RUNNING);
	assert_false(store_run_ended(s, "r1"));
	json = run_json(s, "r1", false);
	assert_text(json, "state", "running");
	assert_true(json_is_false(json_object_get(json_object_get(json, "egress"), "exact")));
	json_decref(json);

	assert_int_equal(put(s, flow("r1", tcp, 4)), 0);
	tcp.hook = WEIR_HOOK_EGRESS;
	assert_int_equal(put(s, flow("r1", tcp, 2)), 0);
	assert_int_equal(put(s, flow("r1", dns, 100)), 0);
	assert_int_equal(put(s, flow("r1", key(7, 9, WEIR_ALLOW), 3)), 0); /* its first attempt never came */
	assert_int_equal(put(s, run_end("r1", 114, 106, 5)), 0);
	assert_true(store_run_ended(s, "r1"));

	json = run_json(s, "r1", true);
	assert_int_equal(json_object_size(json), 5);
	assert_int_equal(number(json, "attempts"), 114);
	assert_int_equal(number(json, "denied"), 106);
	assert_int_equal(number(json, "allowed"), 8);
	assert_int_equal(number(json, "lost"), 6);
	assert_int_equal(json_array_size(json_object_get(json, "destinations")), 3);
	d = json_array_get(json_object_get(json, "destinations"), 0);
	assert_text(d, "dns_name", "example.com");
	assert_text(d, "address", "10.0.0.8");
	assert_text(d, "protocol", "udp");
	assert_text(d, "verdict", "denied");
	assert_int_equal(number(d, "port"), 53);
	assert_int_equal(number(d, "count"), 100);
	d = json_array_get(json_object_get(json, "destinations"), 1);
	assert_int_equal(number(d, "count"), 6);
	assert_true(json_is_null(json_object_get(d, "dns_name")));
	json_decref(json);

	json = run_json(s, "r1", false);
	assert_text(json, "state", "ended");
	assert_int_equal(json_array_size(json_object_get(json, "events")), 4);
	d = json_array_get(json_object_get(json, "events"), 0);
	assert_text(d, "command", "python3");
	assert_int_equal(number(d, "count"), 100);
	assert_int_equal(number(d, "bytes"), 4000);
	d = json_array_get(json_object_get(json, "events"), 3);
	assert_text(d, "attribution", "unknown");
	json_decref(json);
	assert_int_equal(store_state(s, "r2"), STORE_UNKNOWN);
	assert_int_equal(store_run(s, "r2", &(struct view *){NULL}), -ENOENT);
	store_free(s);
}

static void test_first_sixteen(void **state)
{
	struct store *s = open_store(BIG);
	json_t *json, *list;

	(void)state;
	store_begin(s);
	for (int i = 0; i < 40; i++) {
		struct note n = event("r1", key((uint8_t)(i % 20), 53, WEIR_DENY), "", 0);

		store_append(s, &n);
	}
	assert_int_equal(store_commit(s, NULL), 0);
	assert_int_equal(put(s, run_end("r1", 40, 40, 0)), 0);
	json = run_json(s, "r1", true);
	list = json_object_get(json, "destinations");
	assert_int_equal(json_array_size(list), 16);
	assert_text(json_array_get(list, 15), "address", "10.0.0.15");
	assert_int_equal(number(json_array_get(list, 15), "count"), 2);
	assert_int_equal(number(json, "lost"), 0);
	json_decref(json);
	store_free(s);
}

static void check_order(void *ctx, const json_t *record)
{
	long long *last = ctx, seq = number(record, "seq");

	assert_true(seq > *last);
	*last = seq;
}

static void test_restart(void **state)
{
	struct store *s = open_store(BIG);
	long long last = 0;
	json_t *json;

	(void)state;
	put(s, note(NOTE_RUN_BEGIN, "ended"));
	put(s, run_end("ended", 0, 0, 0));
	put(s, note(NOTE_RUN_BEGIN, "cut"));
	store_free(s);

	s = open_store(BIG);
	assert_int_equal(store_stats(s)->last_seq, 4); /* three, and the gap record about the run that was cut */
	assert_int_equal(gaps(RECORD_GAP_INTERRUPTED).n, 1);
	assert_int_equal(store_state(s, "ended"), STORE_ENDED);
	assert_int_equal(store_state(s, "cut"), STORE_INTERRUPTED);
	json = run_json(s, "cut", false);
	assert_text(json, "state", "interrupted");
	json_decref(json);
	put(s, note(NOTE_RUN_BEGIN, "new"));
	assert_int_equal(store_state(s, "new"), STORE_RUNNING);
	put(s, run_end("new", 0, 0, 0));
	store_free(s);
	s = open_store(BIG);
	assert_int_equal(gaps(RECORD_GAP_INTERRUPTED).n, 1); /* said once is enough */
	store_free(s);
	each_line(check_order, &last);
}

static void append_raw(const char *text)
{
	int fd = openat(dir, STORE_FILE, O_WRONLY | O_APPEND);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void test_torn(void **state)
{
	static const char torn[] = "{\"seq\":2,\"type\":\"egress\",\"run_id\":\"r1\",\"dns_na";
	struct store *s = open_store(BIG);

	(void)state;
	put(s, note(NOTE_RUN_BEGIN, "r1"));
	store_free(s);
	append_raw(torn);
	assert_int_equal(store_open_readonly(&s, dir, NULL), 0); /* a reader takes no notice */
	assert_int_equal(store_state(s, "r1"), STORE_INTERRUPTED);
	store_free(s);
	s = open_store(BIG);
	assert_int_equal(store_stats(s)->torn, 1);
	assert_int_equal(gaps(RECORD_GAP_TORN).n, 1);
	assert_int_equal(gaps(RECORD_GAP_TORN).count, strlen(torn));
	assert_int_equal(store_state(s, "r1"), STORE_INTERRUPTED);
	/* and while we are running: the other writer died in the middle */
	append_raw("{\"se");
	assert_int_equal(put(s, note(NOTE_RUN_BEGIN, "r2")), 0);
	assert_int_equal(gaps(RECORD_GAP_TORN).n, 2);
	assert_int_equal(store_state(s, "r2"), STORE_RUNNING);
	store_free(s);
}

static void test_garbage(void **state)
{
	struct store *s;
	char *long_line = malloc(3000001);

	(void)state;
	memset(long_line, 'x', 3000000);
	long_line[3000000] = 0;
	s = open_store(BIG);
	put(s, note(NOTE_RUN_BEGIN, "r1"));
	store_free(s);
	append_raw("not json\n\n{\"seq\":true}\n");
	append_raw(long_line);
	append_raw("\n");
	append_raw(long_line); /* torn, and longer than the scan's buffer */
	s = open_store(BIG);
	assert_int_equal(store_stats(s)->unreadable, 4);
	assert_int_equal(store_stats(s)->torn, 1);
	assert_int_equal(store_state(s, "r1"), STORE_INTERRUPTED);
	assert_int_equal(put(s, run_end("r1", 0, 0, 0)), 0);
	assert_int_equal(store_state(s, "r1"), STORE_ENDED);
	store_free(s);
	free(long_line);
}

static void test_rotation(void **state)
{
	struct store *s = open_store(20000);
	struct stat st;
	long long last = 0;
	char id[32];
	json_t *json;

	(void)state;
	for (int i = 0; i < 200; i++) {
		snprintf(id, sizeof id, "run-%d", i);
		assert_int_equal(put(s, note(NOTE_RUN_BEGIN, id)), 0);
		if (i == 199)
			break;
		assert_int_equal(put(s, run_end(id, 0, 0, 0)), 0);
	}
	assert_in_range(store_stats(s)->rotations, 2, 10);
	assert_int_equal(fstatat(dir, STORE_FILE, &st, 0), 0);
	assert_in_range(st.st_size, 1, 20000);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(fstatat(dir, STORE_OLD_FILE, &st, 0), 0);
	assert_in_range(st.st_size, 10000, 20000);
	assert_int_equal(store_state(s, "run-0"), STORE_UNKNOWN);
	assert_int_equal(store_state(s, "run-198"), STORE_ENDED);
	/* a run that lies in both files */
	for (int i = 0; i < 30; i++)
		put(s, event("run-199", key((uint8_t)i, 1, WEIR_DENY), "", 0));
	put(s, run_end("run-199", 30, 30, 0));
	json = run_json(s, "run-199", true);
	assert_int_equal(number(json, "lost"), 0);
	json_decref(json);
	store_free(s);
	each_line(check_order, &last);

	s = open_store(20000);
	assert_int_equal(store_stats(s)->last_seq, last);
	json = run_json(s, "run-199", false);
	assert_int_equal(json_array_size(json_object_get(json, "events")), 30);
	assert_text(json, "state", "ended");
	json_decref(json);
	store_free(s);
}

/* A disk without room, played by a file size limit: in a child, since lowering it is for good. */
static void full_disk(void)
{
	struct store *s = open_store(BIG);
	struct rlimit limit = {3000, 3000};
	struct rlimit back = {RLIM_INFINITY, RLIM_INFINITY};
	uint64_t before;
	json_t *json;
	struct stat st;

	getrlimit(RLIMIT_FSIZE, &back);
	limit.rlim_max = back.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	put(s, note(NOTE_RUN_BEGIN, "r1"));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	for (int i = 0; i < 20; i++)
		put(s, event("r1", key((uint8_t)i, 1, WEIR_DENY), "", 0));
	assert_int_equal(put(s, run_end("r1", 20, 20, 0)), -EFBIG);
	before = store_stats(s)->unwritten;
	assert_in_range(before, 10, 20);
	assert_int_equal(fstatat(dir, STORE_FILE, &st, 0), 0);
	assert_true(st.st_size <= 3000);

	/* the answers say what is missing, and the exact counters are there all the same */
	assert_true(store_run_ended(s, "r1"));
	json = run_json(s, "r1", true);
	assert_int_equal(number(json, "attempts"), 20);
	assert_in_range(number(json, "lost"), before - 1, before);
	json_decref(json);
	json = run_json(s, "r1", false);
	assert_int_equal(number(json, "records_unwritten"), before);
	assert_text(json, "state", "ended");
	json_decref(json);

	/* room again: the record itself says so */
	setrlimit(RLIMIT_FSIZE, &back);
	assert_int_equal(put(s, note(NOTE_RUN_BEGIN, "r2")), 0);
	assert_int_equal(gaps(RECORD_GAP_UNWRITTEN).n, 1);
	assert_int_equal(gaps(RECORD_GAP_UNWRITTEN).count, before);
	assert_int_equal(store_stats(s)->unwritten, before);
	store_free(s);
}

static void in_child(void (*fn)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_full_disk(void **state)
{
	(void)state;
	in_child(full_disk);
}

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

static void test_cut_by_stranger(void **state)
{
	struct store *s = open_store(BIG);
	uint64_t seq;

	(void)state;
	put(s, note(NOTE_RUN_BEGIN, "r1"));
	put(s, note(NOTE_RUN_BEGIN, "r2"));
	seq = store_stats(s)->last_seq;
	{
		int fd = openat(dir, STORE_FILE, O_WRONLY);

		assert_int_equal(ftruncate(fd, 0), 0);
		close(fd);
	}
	assert_int_equal(put(s, note(NOTE_RUN_BEGIN, "r3")), 0);
	assert_int_equal(store_state(s, "r1"), STORE_UNKNOWN);
	assert_int_equal(store_state(s, "r3"), STORE_RUNNING);
	assert_int_equal(store_stats(s)->last_seq, seq + 1); /* the hole in the numbers stays visible */
	store_free(s);
}

static void test_readonly(void **state)
{
	struct store *w = NULL, *r = NULL;

	(void)state;
	assert_int_equal(store_open_readonly(&r, dir, NULL), -ENOENT);
	w = open_store(BIG);
	put(w, note(NOTE_RUN_BEGIN, "r1"));
	assert_int_equal(store_open_readonly(&r, dir, NULL), 0);
	assert_int_equal(store_state(r, "r1"), STORE_RUNNING);
	r = store_free(r);
	store_free(w);
	assert_int_equal(store_open_readonly(&r, dir, NULL), 0);
	assert_int_equal(store_state(r, "r1"), STORE_INTERRUPTED); /* nobody lives who could end it */
	store_free(r);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_summary),	    TEST(test_first_sixteen),	  TEST(test_restart),	      TEST(test_torn),
	    TEST(test_garbage),	    TEST(test_rotation),	  TEST(test_full_disk),	      TEST(test_kill),
	    TEST(test_two_writers), TEST(test_rotation_by_other), TEST(test_cut_by_stranger), TEST(test_readonly),
	};

	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
