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
#include <sqlite3.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "auditor/auditor.h"
#include "auditor/store.h"
#include "core/limits.h"
#include "ipc/ipc.h"

#define BUFFER (1 << 20)
#define NOBODY 65534

struct box {
	char path[64];
	int dir, supervisor, client[2];
	struct audit_opts opts;
	pid_t pid;
};

static struct box box;

static void ask(int fd, uint32_t type, uint64_t req, const char *run_id, const char *project);
static json_t *hear(int fd, uint64_t want_req, uint32_t want_status, bool *ret_memfd);

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
						.opts = box.opts,
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
	/* It listens: what is told from here on comes after its start. */
	ask(box.client[0], QUERY_STATS, 0, "", "");
	json_decref(hear(box.client[0], 0, 0, NULL));
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
	memset(&box.opts, 0, sizeof box.opts);
	strcpy(box.path, "/tmp/weir-test-auditor-XXXXXX");
	if (!mkdtemp(box.path))
		return -1;
	box.dir = open(box.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	start();
	return 0;
}

static int teardown(void **state)
{
	DIR *d;

	(void)state;
	if (box.pid)
		finish();
	d = fdopendir(openat(box.dir, AUDITOR_DIR, O_RDONLY | O_DIRECTORY));
	for (struct dirent *e; d && (e = readdir(d));)
		unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
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
	struct note n = {.type = type, .boot_ns = 9000};
	struct timespec ts;

	/* Not long ago, or it is pruned. */
	clock_gettime(CLOCK_REALTIME, &ts);
	n.wall_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
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

static void ask_find(int fd, uint32_t type, uint64_t req, const char *project, uint64_t after)
{
	struct query q = {.type = type, .req = req, .find.after = after};

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

/* The answer to a QUERY_SUMMARY: what it has of the record. */
static json_t *hear_summary(int fd, uint64_t req, bool *ret_memfd)
{
	json_t *json = hear(fd, req, 0, ret_memfd), *egress = json_incref(json_object_get(json, "egress"));

	assert_non_null(egress);
	assert_non_null(json_object_get(json, "audit_hash"));
	json_decref(json);
	return egress;
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
	json = hear_summary(box.client[0], 7, NULL);
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
	json = hear_summary(box.client[0], 1, NULL);
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
	assert_true(now_ms() - begin >= AUDITOR_SUMMARY_WAIT_MS - 50);
}

static void test_big_answer(void **state)
{
	bool memfd;
	json_t *json;

	(void)state;
	say_run("r1", 1024);
	say_end("r1", 1024);
	ask(box.client[0], QUERY_SUMMARY, 1, "r1", "dev");
	json = hear_summary(box.client[0], 1, &memfd);
	assert_false(memfd);
	assert_int_equal(json_array_size(json_object_get(json, "destinations")), 16);
	json_decref(json);
	ask(box.client[0], QUERY_RUN, 2, "r1", "dev");
	json = hear(box.client[0], 2, 0, &memfd);
	assert_true(memfd);
	assert_int_equal(json_array_size(json_object_get(json, "events")), 1024);
	json_decref(json);
}

/* ---- records are completed, chained and signed ---- */

static json_t *run_of(const char *run_id)
{
	ask(box.client[1], QUERY_RUN, 555, run_id, "");
	return hear(box.client[1], 555, 0, NULL);
}

/* Until all that was said before has been read: clients do not wait for that. */
static void wait_for(const char *run_id)
{
	for (int i = 0; i < 2000; i++) {
		static char buf[sizeof(struct answer) + ANSWER_INLINE_MAX];
		struct pollfd p = {.fd = box.client[0], .events = POLLIN};
		struct answer head;
		size_t nfds = 1;
		int memfd = -1;

		ask(box.client[0], QUERY_RUN, 77, run_id, "");
		assert_int_equal(poll(&p, 1, 8000), 1);
		assert_true(ipc_recv(box.client[0], buf, sizeof buf, &memfd, &nfds) >= (ssize_t)sizeof head);
		if (nfds)
			close(memfd);
		memcpy(&head, buf, sizeof head);
		if (head.status == 0)
			return;
		assert_int_equal(head.status, ENOENT);
		usleep(5000);
	}
	fail_msg("%s is not known", run_id);
}

static bool is_chained(const char *run_id)
{
	json_t *run = run_of(run_id);
	bool yes = json_is_object(json_object_get(run, "chain"));

	json_decref(run);
	return yes;
}

static void tell(struct content_told *c, enum content_kind kind, uint64_t bytes, uint8_t hash)
{
	c->told |= 1u << kind;
	c->of[kind].bytes = c->of[kind].kept = bytes;
	memset(c->of[kind].sha256, hash, sizeof c->of[kind].sha256);
}

static void ask_content(int fd, uint64_t req, const char *run_id, const char *project, const struct content_told *c)
{
	struct query q = {.type = QUERY_SUMMARY, .req = req, .content = *c};

	snprintf(q.run_id, sizeof q.run_id, "%s", run_id);
	snprintf(q.project, sizeof q.project, "%s", project);
	say(fd, &q, sizeof q);
}

/* The answer's `audit_hash`; "" for null. */
static void hear_hash(int fd, uint64_t req, char ret[65])
{
	json_t *json = hear(fd, req, 0, NULL), *hash = json_object_get(json, "audit_hash");

	assert_non_null(hash);
	snprintf(ret, 65, "%s", json_is_string(hash) ? json_string_value(hash) : "");
	json_decref(json);
}

/* How many records of that type there are, of all of them. */
static unsigned records_of(const char *type)
{
	struct query q = {.type = QUERY_FOLLOW, .req = 556, .find.limit = LIMIT_AUDIT_SEARCH};
	json_t *json, *record;
	unsigned n = 0;
	size_t i;

	say(box.client[1], &q, sizeof q);
	json = hear(box.client[1], 556, 0, NULL);
	json_array_foreach(json_object_get(json, "records"), i, record)
	{
		n += !strcmp(json_string_value(json_object_get(record, "type")), type);
	}
	json_decref(json);
	return n;
}

/* What a client says it saw is believed once, of its own project's run, and before the record is complete. */
static void test_content(void **state)
{
	struct content_told first = {0}, second = {0};
	char hash[65], again[65];
	json_t *run, *code;

	(void)state;
	tell(&first, CONTENT_CODE, 12, 0xab);
	tell(&first, CONTENT_STDOUT, 7, 0xcd);
	tell(&first, CONTENT_STDERR, 5, 0xef);
	tell(&second, CONTENT_CODE, 99, 0x11);
	say_run("r1", 1);
	ask_content(box.client[0], 1, "r1", "dev", &first); /* before its end: waits for it */
	ask_content(box.client[0], 2, "r1", "other", &second);
	say_end("r1", 1);
	hear_hash(box.client[0], 1, hash);
	assert_int_equal(strlen(hash), 64);
	ask_content(box.client[0], 3, "r1", "dev", &second);
	hear_hash(box.client[0], 3, again);
	assert_string_equal(hash, again);
	assert_int_equal(records_of("content"), 1);
	assert_null(hear(box.client[0], 2, ETIMEDOUT, NULL));

	run = run_of("r1");
	code = json_object_get(json_object_get(run, "content"), "code");
	assert_int_equal(number(code, "bytes"), 12);
	assert_memory_equal(json_string_value(json_object_get(code, "sha256")), "abababab", 8);
	assert_null(json_object_get(code, "stored"));
	assert_int_equal(number(json_object_get(json_object_get(run, "usage"), "output_bytes"), "value"), 12);
	assert_string_equal(json_string_value(json_object_get(run, "audit_hash")), hash);
	assert_string_equal(json_string_value(json_object_get(json_object_get(run, "chain"), "hash")), hash);
	assert_int_equal(number(json_object_get(run, "chain"), "n"), 1);
	json_decref(run);
}

/* What comes after the sum was made is not kept, and the record says so. */
static void test_content_too_late(void **state)
{
	struct content_told told = {0};
	char hash[65];
	json_t *json;

	(void)state;
	tell(&told, CONTENT_CODE, 12, 0xab);
	say_run("r1", 1);
	say_end("r1", 1);
	ask(box.client[0], QUERY_SUMMARY, 1, "r1", "dev");
	hear_hash(box.client[0], 1, hash);
	ask_content(box.client[0], 2, "r1", "dev", &told);
	hear_hash(box.client[0], 2, hash);
	for (int64_t begin = now_ms(), n = 0; !n; poll(NULL, 0, 50)) {
		ask(box.client[0], QUERY_STATS, 3, "", "");
		json = hear(box.client[0], 3, 0, NULL);
		n = json_integer_value(json_object_get(json_object_get(json, "gaps"), "late-content"));
		json_decref(json);
		assert_in_range(now_ms() - begin, 0, 8000);
	}
	assert_int_equal(records_of("content"), 0);
}

static void test_content_refused(void **state)
{
	struct content_told c = {0};

	(void)state;
	say_run("r1", 0);
	say_end("r1", 0);
	tell(&c, CONTENT_CODE, 12, 1);
	c.of[CONTENT_CODE].kept = 13;
	ask_content(box.client[0], 1, "r1", "dev", &c);
	assert_null(hear(box.client[0], 1, EINVAL, NULL));
	c = (struct content_told){.told = 1u << CONTENT_KINDS};
	ask_content(box.client[0], 2, "r1", "dev", &c);
	assert_null(hear(box.client[0], 2, EINVAL, NULL));
	c = (struct content_told){0};
	tell(&c, CONTENT_CODE, 12, 1);
	c.stored = 1 << CONTENT_CODE; /* and no file with it */
	c.of[CONTENT_CODE].stored = 12;
	ask_content(box.client[0], 3, "r1", "dev", &c);
	assert_null(hear(box.client[0], 3, EINVAL, NULL));
	assert_false(is_chained("r1"));
}

static int content_file(const char *text, int seals)
{
	int fd = memfd_create("content", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void ask_stored(uint64_t req, const char *run_id, const struct content_told *c, int fd)
{
	struct query q = {.type = QUERY_SUMMARY, .req = req, .project = "dev", .content = *c};

	snprintf(q.run_id, sizeof q.run_id, "%s", run_id);
	assert_int_equal(ipc_send(box.client[0], &q, sizeof q, &fd, 1), 0);
	close(fd);
}

/* Not while the auditor has it: the record as somebody else opens it. */
static struct store *reader(void)
{
	struct store *s = NULL;
	struct err e;
	int dir = openat(box.dir, AUDITOR_DIR, O_RDONLY | O_DIRECTORY);

	assert_int_equal(store_open_readonly(&s, dir, &e), 0);
	return s; /* the directory stays open with it */
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

static void stored_content(bool wanted)
{
	struct content_told c = {0};
	struct store *s;
	char *text = NULL;
	size_t len = 0;
	json_t *run;

	tell(&c, CONTENT_CODE, 5, 1);
	tell(&c, CONTENT_STDOUT, 3, 1);
	c.stored = 1 << CONTENT_CODE | 1 << CONTENT_STDOUT;
	c.of[CONTENT_CODE].stored = 5;
	c.of[CONTENT_STDOUT].stored = 3;
	say_run("r1", 0);
	say_end("r1", 0);
	ask_stored(1, "r1", &c, content_file("print999", F_SEAL_SHRINK | F_SEAL_GROW)); /* could still be written to */
	assert_null(hear(box.client[0], 1, EINVAL, NULL));
	ask_stored(2, "r1", &c, content_file("print99", SEALS)); /* shorter than it says */
	assert_null(hear(box.client[0], 2, EINVAL, NULL));
	ask_stored(3, "r1", &c, content_file("print999", SEALS));
	json_decref(hear(box.client[0], 3, 0, NULL));
	run = run_of("r1");
	assert_int_equal(json_is_integer(json_object_get(json_object_get(json_object_get(run, "content"), "code"), "stored")),
			 wanted);
	json_decref(run);
	s = reader();
	if (wanted) {
		assert_int_equal(store_content(s, "r1", CONTENT_STDOUT, &text, &len), 0);
		assert_int_equal(len, 3);
		assert_memory_equal(text, "999", 3);
		free(text);
	} else {
		assert_int_equal(store_content(s, "r1", CONTENT_STDOUT, &text, &len), -ENOENT);
	}
	store_free(s);
}

/* The operator has not asked for it: then no client can. */
static void test_content_not_stored(void **state)
{
	(void)state;
	stored_content(false);
}

static void test_content_stored(void **state)
{
	(void)state;
	finish();
	box.opts.content = true;
	start();
	stored_content(true);
}

/* Nobody waits for a window's or a session's own record; of a run that nobody asks about the time runs out. */
static void test_unasked(void **state)
{
	struct note n = note(NOTE_RUN_BEGIN, "session");
	int64_t begin;

	(void)state;
	say(box.supervisor, &n, sizeof n);
	n = note(NOTE_RUN_END, "session");
	n.end = (struct tell_end){.ran = 1, .cell = 3, .over = 1};
	say(box.supervisor, &n, sizeof n);
	assert_true(is_chained("session"));
	n = note(NOTE_RUN_BEGIN, "attached-1.1");
	say(box.supervisor, &n, sizeof n);
	n = note(NOTE_WINDOW_END, "attached-1.1");
	say(box.supervisor, &n, sizeof n);
	assert_true(is_chained("attached-1.1"));

	say_run("r1", 1);
	say_end("r1", 1);
	assert_false(is_chained("r1"));
	for (begin = now_ms(); !is_chained("r1"); poll(NULL, 0, 50))
		assert_in_range(now_ms() - begin, 0, AUDITOR_CONTENT_WAIT_MS + 20000);
}

/* More ends at once than are kept open: the oldest are completed before their time, and none is forgotten. */
static void test_many_ends(void **state)
{
	enum { MANY = 1024 + 3 };
	char run_id[32];

	(void)state;
	for (int i = 0; i < MANY; i++) {
		snprintf(run_id, sizeof run_id, "r%d", i);
		say_run(run_id, 0);
		say_end(run_id, 0);
	}
	wait_for("r1026");
	assert_true(is_chained("r2"));
	assert_false(is_chained("r1026"));
}

static void say_head(uint64_t n, const uint8_t hash[CHAIN_HASH], bool key)
{
	struct note head = {.type = NOTE_HEAD, .head.n = n};

	memcpy(head.head.hash, hash, CHAIN_HASH);
	memset(head.head.key_id, key ? 7 : 0, sizeof head.head.key_id);
	say(box.supervisor, &head, sizeof head);
}

/* 1, or 0 when none comes. */
static int hear_ask(struct sign_ask *ret, int wait_ms)
{
	struct pollfd p = {.fd = box.supervisor, .events = POLLIN};

	if (poll(&p, 1, wait_ms) == 0)
		return 0;
	assert_int_equal(ipc_recv(box.supervisor, ret, sizeof *ret, NULL, NULL), sizeof *ret);
	return 1;
}

static void say_signed(const struct sign_ask *asked, const uint8_t before[CHAIN_HASH], uint8_t ret[CHAIN_HASH])
{
	struct note n = {.type = NOTE_SIGNED, .is_signed.n = asked->n};

	chain_hash(asked->n, before, asked->body, ret);
	memcpy(n.is_signed.hash, ret, CHAIN_HASH);
	memset(n.is_signed.signature, 0x5a, sizeof n.is_signed.signature);
	say(box.supervisor, &n, sizeof n);
}

static bool is_signed(const char *run_id)
{
	json_t *run = run_of(run_id);
	bool yes = json_is_true(json_object_get(json_object_get(run, "chain"), "signed"));

	json_decref(run);
	return yes;
}

static void complete_run(const char *run_id)
{
	char hash[65];

	say_run(run_id, 1);
	say_end(run_id, 1);
	ask(box.client[0], QUERY_SUMMARY, 1, run_id, "dev");
	hear_hash(box.client[0], 1, hash);
	assert_int_equal(strlen(hash), 64);
}

/* In order; what is not signed is asked for again; what is signed with another hash is not believed. */
static void test_signing(void **state)
{
	uint8_t before[CHAIN_HASH] = {0}, hash[CHAIN_HASH], wrong[CHAIN_HASH] = {1};
	struct sign_ask asked;

	(void)state;
	say_head(0, before, true);
	complete_run("r1");
	assert_int_equal(hear_ask(&asked, 2000), 1);
	assert_int_equal(asked.n, 1);
	say_signed(&asked, wrong, hash);
	assert_false(is_signed("r1"));
	complete_run("r2");
	assert_int_equal(hear_ask(&asked, 2000), 1);
	assert_int_equal(asked.n, 2);
	say_head(0, before, true); /* not the next one */
	assert_int_equal(hear_ask(&asked, 2000), 1);
	assert_int_equal(asked.n, 1);
	say_signed(&asked, before, hash);
	assert_true(is_signed("r1"));
	assert_int_equal(hear_ask(&asked, 2000), 1);
	assert_int_equal(asked.n, 2);
	say_signed(&asked, hash, hash);
	assert_true(is_signed("r2"));
	assert_int_equal(hear_ask(&asked, 300), 0);
}

static void test_no_key(void **state)
{
	uint8_t none[CHAIN_HASH] = {0};
	struct sign_ask asked;

	(void)state;
	say_head(0, none, false);
	complete_run("r1");
	assert_int_equal(hear_ask(&asked, 300), 0);
	assert_false(is_signed("r1"));
}

/* What has ended is complete and signed before the auditor says that it is done. */
static void test_flush_finishes(void **state)
{
	uint8_t before[CHAIN_HASH] = {0}, hash[CHAIN_HASH];
	struct note flush = {.type = NOTE_FLUSH};
	struct pollfd p = {.fd = box.supervisor, .events = POLLIN};
	struct sign_ask asked;
	char byte;

	(void)state;
	say_head(0, before, true);
	say_run("r1", 1);
	say_end("r1", 1);
	say(box.supervisor, &flush, sizeof flush);
	assert_int_equal(hear_ask(&asked, 2000), 1);
	say_signed(&asked, before, hash);
	assert_int_equal(poll(&p, 1, 5000), 1);
	assert_int_equal(ipc_recv(box.supervisor, &byte, 1, NULL, NULL), 0);
	assert_true(is_signed("r1"));
	assert_int_equal(finish(), 0);
}

/* A keeper that does not sign any more holds nobody up for long. */
static void test_flush_without_signatures(void **state)
{
	uint8_t before[CHAIN_HASH] = {0};
	struct note flush = {.type = NOTE_FLUSH};
	struct sign_ask asked;
	struct pollfd p = {.fd = box.supervisor, .events = POLLIN};
	char byte;

	(void)state;
	say_head(0, before, true);
	say_run("r1", 1);
	say_end("r1", 1);
	say(box.supervisor, &flush, sizeof flush);
	assert_int_equal(hear_ask(&asked, 5000), 1);
	assert_int_equal(poll(&p, 1, 20000), 1);
	assert_int_equal(ipc_recv(box.supervisor, &byte, 1, NULL, NULL), 0);
	assert_true(is_chained("r1"));
	assert_false(is_signed("r1"));
	assert_int_equal(finish(), 0);
}

/* Killed between a run's end and its client's word: the next one finishes it. */
static void test_left_unfinished(void **state)
{
	int64_t begin = now_ms();
	int status;

	(void)state;
	say_run("r1", 5);
	say_end("r1", 5);
	say_run("r2", 5);
	assert_false(is_chained("r1"));
	kill(box.pid, SIGKILL);
	assert_int_equal(waitpid(box.pid, &status, 0), box.pid);
	close(box.supervisor);
	close(box.client[0]);
	close(box.client[1]);
	start();
	while (!is_chained("r1") || !is_chained("r2"))
		assert_in_range(now_ms() - begin, 0, 60000);
}

static void kill_auditor(void)
{
	int status;

	kill(box.pid, SIGKILL);
	assert_int_equal(waitpid(box.pid, &status, 0), box.pid);
	close(box.supervisor);
	close(box.client[0]);
	close(box.client[1]);
}

static long long stat_of(const char *name)
{
	json_t *json;
	long long n;

	ask_find(box.client[0], QUERY_STATS, 77, "", 0);
	json = hear(box.client[0], 77, 0, NULL);
	n = json_is_integer(json_object_get(json, name))
		? number(json, name)
		: json_integer_value(json_object_get(json_object_get(json, "gaps"), name));
	json_decref(json);
	return n;
}

/* Signed, and killed before it was written down: it is asked for again, and got. */
static void test_lost_signature(void **state)
{
	uint8_t none[CHAIN_HASH] = {0}, hash[CHAIN_HASH];
	struct sign_ask asked;

	(void)state;
	say_head(0, none, true);
	complete_run("r1");
	assert_int_equal(hear_ask(&asked, 4000), 1);
	chain_hash(1, none, asked.body, hash);
	kill_auditor();
	start();
	say_head(1, hash, true);
	assert_int_equal(hear_ask(&asked, 4000), 1);
	assert_int_equal(asked.n, 1);
	say_signed(&asked, none, hash);
	assert_true(is_signed("r1"));
	assert_int_equal(hear_ask(&asked, 300), 0);
}

/* What is too old goes when the entry that says so is signed, and not before. */
static void test_prune_waits_for_its_signature(void **state)
{
	uint8_t none[CHAIN_HASH] = {0}, hash[CHAIN_HASH];
	struct sign_ask asked;

	(void)state;
	say_head(0, none, true);
	complete_run("r1");
	assert_int_equal(hear_ask(&asked, 4000), 1);
	say_signed(&asked, none, hash);
	assert_true(is_signed("r1"));
	kill_auditor();
	box.opts.keep_s = 1;
	poll(NULL, 0, 1100);
	start();
	say_head(1, hash, true);
	assert_int_equal(hear_ask(&asked, 4000), 1);
	assert_int_equal(asked.n, 2);
	assert_true(is_signed("r1"));
	assert_int_equal(stat_of("pruned_runs"), 0);
	say_signed(&asked, hash, hash);
	for (int64_t begin = now_ms(); stat_of("pruned_runs") != 1; poll(NULL, 0, 20))
		assert_in_range(now_ms() - begin, 0, 8000);
	ask(box.client[0], QUERY_RUN, 5, "r1", "");
	assert_null(hear(box.client[0], 5, ENOENT, NULL));
}

/* A flood is pruned as it comes and not each ten seconds: nothing that anybody did is refused for want of room. */
static void test_flood_is_pruned_at_once(void **state)
{
	uint8_t none[CHAIN_HASH] = {0};
	char run_id[32];

	(void)state;
	kill_auditor();
	box.opts.max_bytes = 1 << 20;
	start();
	say_head(0, none, false);
	assert_int_equal(stat_of("runs"), 0);
	for (int i = 0; i < 12; i++) {
		snprintf(run_id, sizeof run_id, "r%d", i);
		say_run(run_id, 800);
		say_end(run_id, 800);
		ask(box.client[0], QUERY_SUMMARY, 1, run_id, "dev");
		json_decref(hear(box.client[0], 1, 0, NULL));
	}
	for (int64_t begin = now_ms(); stat_of("pruned_runs") < 6; poll(NULL, 0, 20))
		assert_in_range(now_ms() - begin, 0, 6000);
	assert_int_equal(stat_of("unwritten"), 0);
}

/* With a change to the database of a dead auditor. */
static void change(const char *sql)
{
	char path[160];
	sqlite3 *db = NULL;

	snprintf(path, sizeof path, "%s/" AUDITOR_DIR "/" STORE_FILE, box.path);
	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	sqlite3_close(db);
}

/* One that can't be summed up does not keep others from it, nor what was noted with them. */
static void test_one_that_can_not_be_finished(void **state)
{
	uint8_t none[CHAIN_HASH] = {0};
	char run_id[32];
	int64_t begin;

	(void)state;
	for (int i = 0; i < 70; i++) {
		snprintf(run_id, sizeof run_id, "r%d", i);
		say_run(run_id, 1);
		say_end(run_id, 1);
	}
	assert_false(is_chained("r69"));
	kill_auditor();
	change("UPDATE run SET ref = CAST(x'ff' AS TEXT) WHERE run_id <> 'r69'");
	start();
	say_head(0, none, false);
	for (begin = now_ms(); !is_chained("r69"); poll(NULL, 0, 50))
		assert_in_range(now_ms() - begin, 0, 20000);
	assert_int_equal(stat_of("chain_n"), 1);
	assert_int_equal(stat_of("unwritten"), 0);
}

/* ---- the record as a whole ---- */

static void test_follow(void **state)
{
	struct pollfd p = {.fd = box.client[0], .events = POLLIN};
	json_t *json, *record;
	uint64_t cursor;

	(void)state;
	say_run("r1", 1);
	assert_false(is_chained("r1")); /* all of it is in */
	ask_find(box.client[0], QUERY_FOLLOW, 1, "dev", UINT64_MAX);
	json = hear(box.client[0], 1, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(json, "records")), 0);
	cursor = (uint64_t)number(json, "cursor");
	assert_true(cursor >= 2);
	json_decref(json);
	ask_find(box.client[0], QUERY_FOLLOW, 2, "dev", cursor);
	ask_find(box.client[0], QUERY_FOLLOW, 3, "other", cursor);
	assert_int_equal(poll(&p, 1, 300), 0);
	say_end("r1", 1);
	json = hear(box.client[0], 2, 0, NULL); /* and not 3 */
	record = json_array_get(json_object_get(json, "records"), 0);
	assert_string_equal(json_string_value(json_object_get(record, "type")), "run_end");
	assert_true(number(record, "seq") > (long long)cursor);
	assert_true(number(json, "cursor") >= number(record, "seq"));
	json_decref(json);
	assert_int_equal(poll(&p, 1, 300), 0);
	/* More of them than there is room for are told so. */
	for (unsigned i = 0; i < 8; i++)
		ask_find(box.client[0], QUERY_FOLLOW, 10 + i, "dev", cursor + 1000);
	assert_null(hear(box.client[0], 17, EAGAIN, NULL));
}

/* A filter that little passes goes through what is there without waiting for more. */
static void test_follow_from_far_back(void **state)
{
	struct pollfd p = {.fd = box.client[0], .events = POLLIN};
	struct note n = note(NOTE_RUN_BEGIN, "r9");
	json_t *json;

	(void)state;
	for (int i = 0; i < 7000; i++) {
		n = note(NOTE_RUN_BEGIN, "r1");
		say(box.supervisor, &n, sizeof n);
	}
	n = note(NOTE_RUN_BEGIN, "r9");
	strcpy(n.project, "other");
	say(box.supervisor, &n, sizeof n);
	wait_for("r9");
	ask_find(box.client[0], QUERY_FOLLOW, 2, "other", 0);
	assert_int_equal(poll(&p, 1, AUDITOR_FOLLOW_WAIT_MS / 2), 1);
	json = hear(box.client[0], 2, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(json, "records")), 1);
	json_decref(json);
}

static void test_search(void **state)
{
	json_t *json, *runs;

	(void)state;
	complete_run("r1");
	complete_run("r2");
	ask_find(box.client[0], QUERY_SEARCH, 1, "dev", 0);
	json = hear(box.client[0], 1, 0, NULL);
	runs = json_object_get(json, "runs");
	assert_int_equal(json_array_size(runs), 2);
	assert_string_equal(json_string_value(json_object_get(json_array_get(runs, 0), "run_id")), "r2");
	json_decref(json);
	ask_find(box.client[0], QUERY_SEARCH, 2, "other", 0);
	json = hear(box.client[0], 2, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(json, "runs")), 0);
	json_decref(json);
}

static void test_stats(void **state)
{
	json_t *json;

	(void)state;
	complete_run("r1");
	ask_find(box.client[0], QUERY_STATS, 1, "", 0);
	json = hear(box.client[0], 1, 0, NULL);
	assert_in_range(number(json, "written"), 3, 100);
	assert_int_equal(number(json, "unwritten"), 0);
	assert_int_equal(number(json, "runs"), 1);
	assert_int_equal(number(json, "chain_n"), 1);
	assert_true(json_is_object(json_object_get(json, "gaps")));
	json_decref(json);
}

/* A policy's document comes in parts, is no record, and is found by its hash. */
static void test_policy_text(void **state)
{
	static const char text[] = "{\"name\": \"x\", \"default\": \"deny\"}";
	uint8_t hash[CHAIN_HASH];
	char name[2 * CHAIN_HASH + 1], *found = NULL;
	const size_t len = sizeof text - 1;
	struct store *s;

	(void)state;
	chain_body_digest(text, len, hash);
	chain_hex(hash, name);
	for (size_t at = 0; at < len; at += 10) {
		struct note n = {.type = NOTE_POLICY_TEXT};
		size_t part = len - at < 10 ? len - at : 10;

		memcpy(n.text.hash, hash, sizeof n.text.hash);
		strcpy(n.text.name, "x");
		n.text.offset = (uint32_t)at;
		n.text.len = (uint32_t)part;
		n.text.total = (uint32_t)len;
		memcpy(n.text.text, text + at, part);
		say(box.supervisor, &n, sizeof n);
	}
	complete_run("r1");
	s = reader();
	assert_int_equal(store_policy_text(s, name, &found), 0);
	assert_string_equal(found, text);
	free(found);
	store_free(s);
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
	json = hear_summary(box.client[0], 1, NULL);
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
	for (int i = 0; i < 20; i++)
		assert_serves(box.client[1]);
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
	/* three standard files, three connections, epoll, directory, lock, database, its log and the log's index */
	assert_int_equal(open_fds(), 12);
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
	    TEST(test_content),
	    TEST(test_content_too_late),
	    TEST(test_content_refused),
	    TEST(test_content_not_stored),
	    TEST(test_content_stored),
	    TEST(test_unasked),
	    TEST(test_many_ends),
	    TEST(test_signing),
	    TEST(test_no_key),
	    TEST(test_flush_finishes),
	    TEST(test_flush_without_signatures),
	    TEST(test_left_unfinished),
	    TEST(test_lost_signature),
	    TEST(test_prune_waits_for_its_signature),
	    TEST(test_flood_is_pruned_at_once),
	    TEST(test_one_that_can_not_be_finished),
	    TEST(test_follow),
	    TEST(test_follow_from_far_back),
	    TEST(test_search),
	    TEST(test_stats),
	    TEST(test_policy_text),
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
