/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The auditor as a process, over its real sockets: what it answers and when, and what a hostile or sleeping client and a
 * confused supervisor can do to it. As root it drops to a uid of its own; without root it stays who it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "auditor/auditor.h"
#include "auditor/store.h"
#include "ipc/ipc.h"

#define BUFFER (1 << 20)
#define NOBODY 65534

struct box {
	char path[64];
	int dir, supervisor, client[2];
	pid_t pid;
};

static struct box box;

static void start(void)
{
	int sup[2], c0[2], c1[2];

	assert_int_equal(ipc_pair(sup, BUFFER), 0);
	assert_int_equal(ipc_pair(c0, BUFFER), 0);
	assert_int_equal(ipc_pair(c1, BUFFER), 0);
	box.pid = fork();
	if (box.pid == 0) {
		bool root = geteuid() == 0;
		struct auditor_config config = {.supervisor_fd = sup[1],
						.client_fds = {c0[1], c1[1]},
						.clients = 2,
						.dir_fd = box.dir,
						.uid = root ? NOBODY : getuid(),
						.gid = root ? NOBODY : getgid()};

		_exit(auditor_main(&config));
	}
	close(sup[1]);
	close(c0[1]);
	close(c1[1]);
	box.supervisor = sup[0];
	box.client[0] = c0[0];
	box.client[1] = c1[0];
}

static int finish(void)
{
	int status;

	close(box.supervisor);
	close(box.client[0]);
	close(box.client[1]);
	assert_int_equal(waitpid(box.pid, &status, 0), box.pid);
	box.pid = 0;
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int setup(void **state)
{
	(void)state;
	strcpy(box.path, "/tmp/weir-test-auditor-XXXXXX");
	if (!mkdtemp(box.path))
		return -1;
	box.dir = open(box.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	start();
	return 0;
}

static int teardown(void **state)
{
	static const char *const names[] = {STORE_FILE, STORE_OLD_FILE, STORE_LOCK_FILE};
	int dir = openat(box.dir, AUDITOR_DIR, O_RDONLY | O_DIRECTORY);

	(void)state;
	if (box.pid)
		finish();
	for (size_t i = 0; i < 3; i++)
		unlinkat(dir, names[i], 0);
	close(dir);
	unlinkat(box.dir, AUDITOR_DIR, AT_REMOVEDIR);
	close(box.dir);
	return rmdir(box.path);
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Sends as a patient peer would. */
static void say(int fd, const void *msg, size_t len)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int r;

	while ((r = ipc_send(fd, msg, len, NULL, 0)) == -EAGAIN)
		assert_int_equal(poll(&p, 1, 5000), 1);
	assert_int_equal(r, 0);
}

static struct note note(uint32_t type, const char *run_id)
{
	struct note n = {.type = type, .wall_ns = 1738324800000000000u, .boot_ns = 9000};

	snprintf(n.run_id, sizeof n.run_id, "%s", run_id);
	snprintf(n.sandbox_id, sizeof n.sandbox_id, "%s", run_id);
	strcpy(n.project, "dev");
	return n;
}

static void say_run(const char *run_id, unsigned flows)
{
	struct note n = note(NOTE_RUN_BEGIN, run_id);

	say(box.supervisor, &n, sizeof n);
	n = note(NOTE_EVENT, run_id);
	n.event.key = (struct weir_flow_key){.family = 4, .protocol = 17, .hook = WEIR_HOOK_EGRESS};
	n.event.dns_len = 13;
	memcpy(n.event.dns, "\7example\3com", 13);
	for (unsigned i = 0; i < flows; i++) {
		n.event.key.daddr[14] = (uint8_t)(i >> 8);
		n.event.key.daddr[15] = (uint8_t)i;
		say(box.supervisor, &n, sizeof n);
	}
}

static void say_end(const char *run_id, unsigned attempts)
{
	struct note n = note(NOTE_RUN_END, run_id);

	n.end = (struct tell_end){.ran = 1, .attempts = attempts, .denied = attempts};
	say(box.supervisor, &n, sizeof n);
}

static void ask(int fd, uint32_t type, uint64_t req, const char *run_id, const char *project)
{
	struct query q = {.type = type, .req = req};

	snprintf(q.run_id, sizeof q.run_id, "%s", run_id);
	snprintf(q.project, sizeof q.project, "%s", project);
	say(fd, &q, sizeof q);
}

#define SERVED_OR_TOLD UINT32_MAX /* answered, or told to come back: whole records are bounded */

/* Waits for an answer. Returns its JSON, NULL when it has none. */
static json_t *hear(int fd, uint64_t want_req, uint32_t want_status, bool *ret_memfd)
{
	static char buf[sizeof(struct answer) + ANSWER_INLINE_MAX];
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct answer head;
	size_t nfds = 1;
	json_t *json;
	int memfd = -1;
	ssize_t n;

	assert_int_equal(poll(&p, 1, 8000), 1);
	n = ipc_recv(fd, buf, sizeof buf, &memfd, &nfds);
	assert_true(n >= (ssize_t)sizeof head);
	memcpy(&head, buf, sizeof head);
	assert_int_equal(head.req, want_req);
	if (want_status == SERVED_OR_TOLD)
		assert_true(head.status == 0 || head.status == EAGAIN);
	else
		assert_int_equal(head.status, want_status);
	if (ret_memfd)
		*ret_memfd = nfds == 1;
	if (nfds == 0) {
		assert_int_equal(n, sizeof head + head.len);
		return head.len ? json_loadb(buf + sizeof head, head.len, 0, NULL) : NULL;
	}
	assert_int_equal(n, sizeof head);
	assert_int_equal(fcntl(memfd, F_GET_SEALS), F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	{
		char *text = mmap(NULL, head.len, PROT_READ, MAP_PRIVATE, memfd, 0);

		assert_true(text != MAP_FAILED);
		json = json_loadb(text, head.len, 0, NULL);
		munmap(text, head.len);
	}
	close(memfd);
	return json;
}

static long long number(const json_t *json, const char *name)
{
	assert_true(json_is_integer(json_object_get(json, name)));
	return json_integer_value(json_object_get(json, name));
}

/* ---- answers ---- */

static void test_answers(void **state)
{
	struct pollfd p = {.fd = box.client[0], .events = POLLIN};
	json_t *json;

	(void)state;
	say_run("r1", 3);
	ask(box.client[0], QUERY_SUMMARY, 7, "r1", "dev");
	assert_int_equal(poll(&p, 1, 300), 0); /* parked: the end is not there yet */
	ask(box.client[0], QUERY_RUN, 8, "r1", "dev");
	json = hear(box.client[0], 8, 0, NULL);
	assert_string_equal(json_string_value(json_object_get(json, "state")), "running");
	json_decref(json);
	say_end("r1", 3);
	json = hear(box.client[0], 7, 0, NULL);
	assert_int_equal(number(json, "attempts"), 3);
	assert_int_equal(number(json, "lost"), 0);
	assert_int_equal(json_array_size(json_object_get(json, "destinations")), 3);
	json_decref(json);

	ask(box.client[1], QUERY_RUN, 1, "r1", "");
	json = hear(box.client[1], 1, 0, NULL);
	assert_string_equal(json_string_value(json_object_get(json, "state")), "ended");
	json_decref(json);
	ask(box.client[1], QUERY_RUN, 2, "r1", "other");
	assert_null(hear(box.client[1], 2, ENOENT, NULL));
	ask(box.client[1], QUERY_RUN, 3, "r2", "dev");
	assert_null(hear(box.client[1], 3, ENOENT, NULL));
	ask(box.client[1], QUERY_RUN, 4, "../\"\n", "dev");
	assert_null(hear(box.client[1], 4, ENOENT, NULL));
	ask(box.client[1], QUERY_RUN, 5, "", "");
	assert_null(hear(box.client[1], 5, ENOENT, NULL));
}

/* The names of what judged, and of what took its place meanwhile, arrive where they are asked for. */
static void test_policy_in_answers(void **state)
{
	struct note n = note(NOTE_RUN_BEGIN, "r1");
	json_t *json, *change, *d;

	(void)state;
	strcpy(n.begin.policy.name, "first");
	n.begin.policy.hash[0] = 0xab;
	n.begin.policy.generation = 1;
	strcpy(n.begin.agent, "weather");
	strcpy(n.begin.image, "sha256:0123");
	say(box.supervisor, &n, sizeof n);
	n = note(NOTE_EVENT, "r1");
	n.event.key = (struct weir_flow_key){.family = 4,
					     .protocol = 17,
					     .hook = WEIR_HOOK_EGRESS,
					     .reason = WEIR_REASON_RULE,
					     .rule = 2,
					     .verdict = WEIR_WOULD_DENY,
					     .generation = 1};
	strcpy(n.judged.rule_name, "private");
	say(box.supervisor, &n, sizeof n);
	n = note(NOTE_POLICY, ""); /* for everybody */
	n.sandbox_id[0] = n.project[0] = 0;
	strcpy(n.policy.old.name, "first");
	strcpy(n.policy.now.name, "second");
	n.policy.now.generation = 2;
	say(box.supervisor, &n, sizeof n);
	strcpy(n.run_id, "r1");
	say(box.supervisor, &n, sizeof n);
	n = note(NOTE_RUN_END, "r1");
	n.end = (struct tell_end){.ran = 1, .attempts = 1, .would_deny = 1};
	say(box.supervisor, &n, sizeof n);

	ask(box.client[0], QUERY_SUMMARY, 1, "r1", "dev");
	json = hear(box.client[0], 1, 0, NULL);
	assert_int_equal(number(json, "would_deny"), 1);
	assert_int_equal(number(json, "denied"), 0);
	assert_int_equal(number(json, "allowed"), 0);
	d = json_array_get(json_object_get(json, "destinations"), 0);
	assert_string_equal(json_string_value(json_object_get(d, "rule")), "private");
	assert_string_equal(json_string_value(json_object_get(d, "reason")), "rule");
	assert_string_equal(json_string_value(json_object_get(d, "verdict")), "would_deny");
	json_decref(json);

	ask(box.client[0], QUERY_RUN, 2, "r1", "dev");
	json = hear(box.client[0], 2, 0, NULL);
	assert_string_equal(json_string_value(json_object_get(json, "policy")), "first");
	assert_memory_equal(json_string_value(json_object_get(json, "policy_hash")), "ab00", 4);
	assert_string_equal(json_string_value(json_object_get(json, "agent")), "weather");
	assert_string_equal(json_string_value(json_object_get(json, "image")), "sha256:0123");
	assert_int_equal(json_array_size(json_object_get(json, "policy_changes")), 1); /* its own; the other is nobody's */
	change = json_array_get(json_object_get(json, "policy_changes"), 0);
	assert_string_equal(json_string_value(json_object_get(change, "policy")), "second");
	assert_int_equal(number(change, "policy_generation"), 2);
	assert_string_equal(json_string_value(json_object_get(change, "reason")), "reload");
	d = json_array_get(json_object_get(json, "events"), 0);
	assert_int_equal(number(d, "rule"), 2);
	assert_string_equal(json_string_value(json_object_get(d, "rule_name")), "private");
	json_decref(json);
}

static void test_late(void **state)
{
	int64_t begin = now_ms();

	(void)state;
	say_run("r1", 1);
	say_run("r2", 1);
	say_end("r2", 1);
	ask(box.client[0], QUERY_SUMMARY, 1, "r1", "dev");
	ask(box.client[0], QUERY_SUMMARY, 2, "r2", "other"); /* looks like a run whose end never comes */
	assert_null(hear(box.client[0], 1, ETIMEDOUT, NULL));
	assert_null(hear(box.client[0], 2, ETIMEDOUT, NULL));
	assert_in_range(now_ms() - begin, AUDITOR_SUMMARY_WAIT_MS - 50, AUDITOR_SUMMARY_WAIT_MS + 1500);
}

static void test_big_answer(void **state)
{
	bool memfd;
	json_t *json;

	(void)state;
	say_run("r1", 1024);
	say_end("r1", 1024);
	ask(box.client[0], QUERY_SUMMARY, 1, "r1", "dev");
	json = hear(box.client[0], 1, 0, &memfd);
	assert_false(memfd);
	assert_int_equal(json_array_size(json_object_get(json, "destinations")), 16);
	json_decref(json);
	ask(box.client[0], QUERY_RUN, 2, "r1", "dev");
	json = hear(box.client[0], 2, 0, &memfd);
	assert_true(memfd);
	assert_int_equal(json_array_size(json_object_get(json, "events")), 1024);
	json_decref(json);
}

/* ---- peers that misbehave ---- */

static void assert_closed(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char byte;

	assert_int_equal(poll(&p, 1, 5000), 1);
	assert_int_equal(ipc_recv(fd, &byte, 1, NULL, NULL), 0);
}

static void assert_serves(int fd)
{
	json_t *json;

	ask(fd, QUERY_RUN, 99, "r1", "dev");
	json = hear(fd, 99, 0, NULL);
	assert_non_null(json);
	json_decref(json);
}

static void test_wrong_size(void **state)
{
	struct query q = {.type = QUERY_RUN};

	(void)state;
	say_run("r1", 1);
	say_end("r1", 1);
	ask(box.client[0], QUERY_SUMMARY, 1, "r1", "dev");
	json_decref(hear(box.client[0], 1, 0, NULL));
	say(box.client[0], &q, sizeof q - 1);
	assert_closed(box.client[0]);
	assert_serves(box.client[1]);
}

static void test_bad_type(void **state)
{
	(void)state;
	say_run("r1", 1);
	say_end("r1", 1);
	ask(box.client[1], QUERY_SUMMARY, 1, "r1", "dev");
	json_decref(hear(box.client[1], 1, 0, NULL));
	ask(box.client[0], 77, 1, "r1", "dev");
	assert_closed(box.client[0]);
	assert_serves(box.client[1]);
}

static void test_unterminated(void **state)
{
	struct query q = {.type = QUERY_RUN, .req = 3};

	(void)state;
	memset(q.run_id, 'x', sizeof q.run_id);
	say(box.client[0], &q, sizeof q);
	assert_null(hear(box.client[0], 3, EINVAL, NULL));
	q = (struct query){.type = QUERY_SUMMARY, .req = 4};
	memset(q.project, 0xff, sizeof q.project);
	say(box.client[0], &q, sizeof q);
	assert_null(hear(box.client[0], 4, EINVAL, NULL));
}

/* Malformed notes are refused one by one; the record says how many there were. */
static void test_bad_notes(void **state)
{
	struct note n = note(NOTE_EVENT, "r1");
	json_t *json;

	(void)state;
	srandom(6);
	say_run("r1", 1);
	n.event.dns_len = 300;
	say(box.supervisor, &n, sizeof n);
	for (int i = 0; i < 500; i++) {
		for (size_t j = 0; j < sizeof n; j++)
			((char *)&n)[j] = (char)random();
		n.type = NOTE_RUN_BEGIN + (uint32_t)random() % (NOTE_FLUSH - NOTE_RUN_BEGIN);
		say(box.supervisor, &n, sizeof n);
	}
	say_end("r1", 2);
	ask(box.client[0], QUERY_SUMMARY, 1, "r1", "dev");
	json = hear(box.client[0], 1, 0, NULL);
	assert_int_equal(number(json, "attempts"), 2);
	assert_int_equal(number(json, "lost"), 1); /* the attempt whose note was refused */
	json_decref(json);
}

static long rss_kib(void)
{
	char path[64], line[256];
	long kib = -1;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/status", (int)box.pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	fclose(f);
	return kib;
}

/* Asks and asks and never reads: its own connection fills up, and nothing else notices. */
static void test_sleeping_client(void **state)
{
	struct query big = {.type = QUERY_RUN, .req = 1, .run_id = "big"},
		     summary = {.type = QUERY_SUMMARY, .req = 1, .run_id = "big"};
	unsigned sent = 0;
	int64_t begin;
	long before;

	(void)state;
	say_run("big", 300);
	say_end("big", 300);
	say_run("r1", 1);
	say_end("r1", 1);
	ask(box.client[1], QUERY_SUMMARY, 1, "r1", "dev");
	json_decref(hear(box.client[1], 1, 0, NULL));
	before = rss_kib();
	for (int idle = 0; idle < 20;) {
		int r = ipc_send(box.client[0], sent % 2 ? &big : &summary, sizeof big, NULL, 0);

		assert_true(r == 0 || r == -EAGAIN);
		sent += r == 0;
		idle = r == 0 ? 0 : idle + 1;
		if (r == -EAGAIN)
			poll(NULL, 0, 20);
		if (sent % 500 == 0)
			assert_serves(box.client[1]);
	}
	begin = now_ms();
	for (int i = 0; i < 20; i++)
		assert_serves(box.client[1]);
	assert_in_range(now_ms() - begin, 0, 1000);
	/* and when it wakes up, its answers are there */
	for (unsigned i = 0; i < 40; i++)
		json_decref(hear(box.client[0], 1, SERVED_OR_TOLD, NULL));
	print_message("%u queries sent and none read; memory %ld KiB, then %ld KiB\n", sent, before, rss_kib());
#ifndef __SANITIZE_ADDRESS__
	assert_in_range(rss_kib(), 0, before + 32768);
#endif
}

/* One who reads records as fast as it can delays neither what is written nor the other's summaries. */
static void test_reading_does_not_stop_writing(void **state)
{
	struct query big = {.type = QUERY_RUN, .req = 1, .run_id = "big"};
	int whole = 0, heard = 0;

	(void)state;
	say_run("big", 1000);
	say_end("big", 1000);
	for (int i = 0; i < 64; i++)
		assert_int_equal(ipc_send(box.client[0], &big, sizeof big, NULL, 0), 0);
	say_run("r2", 1);
	say_end("r2", 1);
	ask(box.client[1], QUERY_SUMMARY, 9, "r2", "dev");
	json_decref(hear(box.client[1], 9, 0, NULL));
	/* Sixteen records were in line when it was asked; had they gone first, they would all be here. */
	for (int i = 0; i < 64; i++) {
		struct pollfd p = {.fd = box.client[0], .events = POLLIN};
		json_t *json;

		if (poll(&p, 1, 0) != 1)
			break;
		json = hear(box.client[0], 1, SERVED_OR_TOLD, NULL);
		whole += json != NULL;
		heard++;
		json_decref(json);
	}
	assert_in_range(whole, 0, 8);
	for (; heard < 64; heard++)
		json_decref(hear(box.client[0], 1, SERVED_OR_TOLD, NULL));
}

/* ---- its end ---- */

static void test_flush(void **state)
{
	struct note flush = {.type = NOTE_FLUSH};
	char byte;
	struct pollfd p = {.fd = box.supervisor, .events = POLLIN};

	(void)state;
	say_run("r1", 1);
	say_end("r1", 1);
	say(box.supervisor, &flush, sizeof flush);
	assert_int_equal(poll(&p, 1, 5000), 1);
	assert_int_equal(ipc_recv(box.supervisor, &byte, 1, NULL, NULL), 0);
	assert_serves(box.client[0]); /* for a while yet */
	assert_int_equal(finish(), 0);
}

static void test_supervisor_dies(void **state)
{
	json_t *json;

	(void)state;
	say_run("r1", 100);
	assert_serves(box.client[0]); /* it is up, and past the point where signals end it */
	kill(box.pid, SIGTERM);
	kill(box.pid, SIGINT);
	assert_int_equal(finish(), 1);
	/* and starts again on the same record */
	start();
	ask(box.client[0], QUERY_RUN, 1, "r1", "dev");
	json = hear(box.client[0], 1, 0, NULL);
	assert_string_equal(json_string_value(json_object_get(json, "state")), "interrupted");
	assert_int_equal(json_array_size(json_object_get(json, "events")), 100);
	json_decref(json);
}

static void test_out_of_step(void **state)
{
	struct note n = note(77, "r1");

	(void)state;
	say_run("r1", 1);
	say(box.supervisor, &n, sizeof n);
	assert_closed(box.supervisor);
	assert_int_equal(finish(), 1);
}

/* ---- what it is left with ---- */

static bool status_has(const char *want)
{
	char path[64], line[512];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/status", (int)box.pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (!found && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = 0;
		found = strcmp(line, want) == 0;
	}
	fclose(f);
	return found;
}

static unsigned open_fds(void)
{
	char path[64];
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof path, "/proc/%d/fd", (int)box.pid);
	d = opendir(path);
	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static void test_confined(void **state)
{
	struct stat st;

	(void)state;
	say_run("r1", 1);
	say_end("r1", 1);
	ask(box.client[0], QUERY_SUMMARY, 1, "r1", "dev");
	json_decref(hear(box.client[0], 1, 0, NULL));
	assert_true(status_has("NoNewPrivs:\t1"));
	assert_true(status_has("CapEff:\t0000000000000000"));
	assert_true(status_has("CapPrm:\t0000000000000000"));
#ifndef __SANITIZE_ADDRESS__
	assert_true(status_has("Seccomp:\t2"));
#endif
	if (geteuid() != 0)
		return;
	assert_true(status_has("Uid:\t65534\t65534\t65534\t65534"));
	assert_true(status_has("Gid:\t65534\t65534\t65534\t65534"));
	assert_true(status_has("Groups:\t "));
	assert_true(status_has("CapBnd:\t0000000000000000"));
	/* three standard files, three connections, epoll, directory, lock, record */
	assert_int_equal(open_fds(), 10);
	assert_int_equal(fstatat(box.dir, AUDITOR_DIR, &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(st.st_uid, NOBODY);
	assert_int_equal(fstatat(box.dir, AUDITOR_DIR "/" STORE_FILE, &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_uid, NOBODY);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_answers),
	    TEST(test_policy_in_answers),
	    TEST(test_late),
	    TEST(test_big_answer),
	    TEST(test_wrong_size),
	    TEST(test_bad_type),
	    TEST(test_unterminated),
	    TEST(test_bad_notes),
	    TEST(test_sleeping_client),
	    TEST(test_reading_does_not_stop_writing),
	    TEST(test_flush),
	    TEST(test_supervisor_dies),
	    TEST(test_out_of_step),
	    TEST(test_confined),
	};

	return cmocka_run_group_tests_name("auditor", tests, NULL, NULL);
}
