/* SPDX-License-Identifier: Apache-2.0 */
/* Records of attachments: written and read back whole, damage told by file and member, locks, and who is in the list. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "attach/attachment.h"

#define ID "attached-a1b2c3d4e5"
#define DOCUMENT "{\"name\": \"p\"}"

static char top[64], dir[96], pins[96];

static int set_up(void **state)
{
	(void)state;
	strcpy(top, "/tmp/weir-test-attached-XXXXXX");
	if (!mkdtemp(top))
		return -1;
	snprintf(dir, sizeof dir, "%s/run/attached", top);
	snprintf(pins, sizeof pins, "%s/pins", top);
	attachment_dir = dir;
	attachment_pins = pins;
	return mkdir(pins, 0700);
}

static int tear_down(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof command, "rm -rf %s", top);
	return system(command);
}

static struct attachment *one(const char *id)
{
	struct attachment *a = calloc(1, sizeof *a);

	assert_non_null(a);
	snprintf(a->id, sizeof a->id, "%s", id);
	a->target = (struct target){.kind = TARGET_CONTAINER, .fd = -1, .id = 8589934592u + 77, .level = 3};
	strcpy(a->target.ref, "4f5e6d7c8b9a");
	strcpy(a->target.path, "/machine.slice/libpod-4f5e6d7c8b9a.scope/container");
	strcpy(a->policy, "/etc/weir/policies/caf\xc3\xa9.json");
	strcpy(a->policy_name, "caf\xc3\xa9");
	for (size_t i = 0; i < sizeof a->policy_hash; i++)
		a->policy_hash[i] = (uint8_t)(i * 9);
	a->generation = 4;
	strcpy(a->resolvers[0], "10.89.0.1");
	strcpy(a->resolvers[1], "fd00::1");
	a->resolver_count = 2;
	a->force = true;
	coverage_add(&a->found, WEAK_SECCOMP, "%s", "");
	coverage_add(&a->found, WEAK_NET_RAW, "pid %d (%s)", 812, "nginx \"q\"");
	a->coverage = COVERAGE_PARTIAL;
	a->canary = (struct canary){.proven = true, .attempts = 5, .denied = 3};
	strcpy(a->canary.leaf, "/machine.slice/libpod-4f5e6d7c8b9a.scope/container");
	a->attached_ns = 1893456000123456789u;
	a->record = 2;
	a->foreign[0] = 17;
	a->foreign[1] = 4000000000u;
	a->foreign_count = 2;
	a->sockets_beyond = 3;
	a->socket_count = 2;
	a->sockets = calloc(2, sizeof *a->sockets);
	assert_non_null(a->sockets);
	a->sockets[0] = (struct open_socket){.pid = 4711,
					     .comm = "a name of 15 ch",
					     .family = 6,
					     .protocol = 6,
					     .state = 1,
					     .local = {0xfd, [15] = 1},
					     .local_port = 40000,
					     .remote = {0xfd, 0x12, [15] = 9},
					     .remote_port = 65535,
					     .connected = true,
					     .verdict = WEIR_WOULD_DENY};
	a->sockets[1] = (struct open_socket){.pid = 1, .comm = "x", .elsewhere = true};
	return a;
}

static void drop(struct attachment *a)
{
	attachment_clear(a);
	free(a);
}

static void assert_same(const struct attachment *a, const struct attachment *b)
{
	struct attachment x = *a, y = *b;

	assert_int_equal(x.socket_count, y.socket_count);
	if (x.socket_count)
		assert_memory_equal(x.sockets, y.sockets, x.socket_count * sizeof *x.sockets);
	x.sockets = y.sockets = NULL;
	x.target.workload = y.target.workload = (struct workload){0};
	assert_memory_equal(&x, &y, sizeof x);
}

static void put(const char *id, const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s/%s", dir, id, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void test_round_trip(void **state)
{
	struct attachment *a = one(ID), *b = calloc(1, sizeof *b);
	struct attachment_list l;
	struct err e = {0};
	struct stat st;
	char path[256];

	(void)state;
	assert_int_equal(attachment_save(a, DOCUMENT, strlen(DOCUMENT), &e), 0);
	assert_int_equal(attachment_load(ID, b, &e), 0);
	assert_same(a, b);
	/* Root's alone, and nothing beside it. */
	snprintf(path, sizeof path, "%s/%s", dir, ID);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	snprintf(path, sizeof path, "%s/%s/attachment.json", dir, ID);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);

	/* The list does without sockets, and goes by age. */
	a->attached_ns++;
	strcpy(a->id, "attached-0000000000");
	assert_int_equal(attachment_save(a, DOCUMENT, strlen(DOCUMENT), &e), 0);
	assert_int_equal(attachment_list(&l, &e), 0);
	assert_int_equal(l.count, 2);
	assert_int_equal(l.broken_count, 0);
	assert_string_equal(l.each[0].id, ID);
	assert_int_equal(l.each[0].socket_count, 0);
	assert_int_equal(l.each[0].sockets_beyond, 3);
	attachment_list_clear(&l);

	assert_int_equal(attachment_forget(ID, &e), 0);
	assert_int_equal(attachment_forget(ID, &e), 0);
	assert_int_equal(attachment_load(ID, b, &e), -ENOENT);
	assert_int_equal(attachment_list(&l, &e), 0);
	assert_int_equal(l.count, 1);
	attachment_list_clear(&l);
	drop(a);
	drop(b);
}

static void test_parent(void **state)
{
	struct attachment *a = one(ID), *b = calloc(1, sizeof *b);
	struct err e = {0};

	(void)state;
	a->target.kind = TARGET_PARENT;
	a->parent = a->unknown_passes = true;
	a->policy[0] = a->policy_name[0] = 0;
	a->generation = 0;
	memset(a->policy, 0, sizeof a->policy);
	memset(a->policy_name, 0, sizeof a->policy_name);
	assert_int_equal(attachment_save(a, NULL, 0, &e), 0);
	assert_int_equal(attachment_load(ID, b, &e), 0);
	assert_same(a, b);
	drop(a);
	drop(b);
}

/* What strangers chose is no reason not to write it down. */
static void test_names_of_strangers(void **state)
{
	struct attachment *a = one(ID), *b = calloc(1, sizeof *b);
	struct err e = {0};

	(void)state;
	memcpy(a->sockets[0].comm, "\xff\x01\"\\\n", 6);
	strcpy(a->canary.leaf, "/x/\xc3(");
	assert_int_equal(attachment_save(a, NULL, 0, &e), 0);
	assert_int_equal(attachment_load(ID, b, &e), 0);
	assert_string_equal(b->sockets[0].comm, "\xef\xbf\xbd\x01\"\\\n");
	assert_string_equal(b->canary.leaf, "/x/\xef\xbf\xbd(");
	drop(a);
	drop(b);
}

/* A name that becomes longer when it is cleaned must still be read. */
static void test_longest_names_of_strangers(void **state)
{
	struct attachment *a = one(ID), *b = calloc(1, sizeof *b);
	struct err e = {0};

	(void)state;
	memset(a->sockets[0].comm, 0xff, sizeof a->sockets[0].comm);
	memset(a->canary.leaf, 0xfe, sizeof a->canary.leaf - 1);
	memset(a->canary.why, 0xfe, sizeof a->canary.why - 1);
	memset(a->target.ref, 0xfe, sizeof a->target.ref - 1);
	memset(a->found.detail[WEAK_NET_RAW], 0xfe, WEAKNESS_DETAIL - 1);
	memset(a->policy, 0xfe, sizeof a->policy - 1);
	assert_int_equal(attachment_save(a, NULL, 0, &e), 0);
	if (attachment_load(ID, b, &e) < 0)
		fail_msg("%s", e.msg);
	drop(a);
	drop(b);
}

/* ---- damage ---- */

/* Sets (or with NULL removes) the member at `path` ("target/level") to a JSON text. */
static char *edit(const char *text, const char *path, const char *value)
{
	json_t *root = json_loads(text, 0, NULL), *o = root;
	char words[64], *name = words, *slash, *out;

	snprintf(words, sizeof words, "%s", path);
	for (; (slash = strchr(name, '/')); name = slash + 1) {
		*slash = 0;
		o = json_is_array(o) ? json_array_get(o, (size_t)atoi(name)) : json_object_get(o, name);
	}
	assert_non_null(o);
	if (value)
		json_object_set_new(o, name, json_loads(value, JSON_DECODE_ANY, NULL));
	else
		json_object_del(o, name);
	out = json_dumps(root, 0);
	json_decref(root);
	return out;
}

static void test_damage(void **state)
{
	static const struct {
		const char *path, *value, *told;
	} rows[] = {
	    {"id", "\"attached-other\"", "/id: expected the directory's name"},
	    {"id", "7", "/id: expected a string"},
	    {"id", NULL, "/id: expected to be there"},
	    {"more", "1", "/more: there is no such member"},
	    {"target", "[]", "/target: expected an object"},
	    {"target/kind", "\"house\"", "/target/kind: expected one of the known words"},
	    {"target/kind", "\"parent\"", "/parent: expected what /target/kind says"},
	    {"target/cgroup", "\"\"", "/target/cgroup: expected a path below the root"},
	    {"target/cgroup", "\"/\"", "/target/cgroup: expected a path below the root"},
	    {"target/cgroup", "\"a/b\"", "/target/cgroup: expected a path below the root"},
	    {"target/cgroup", "\"/a/../b\"", "/target/cgroup: expected a path below the root"},
	    {"target/cgroup", "\"/a/..\"", "/target/cgroup: expected a path below the root"},
	    {"target/cgroup_id", "-1", "/target/cgroup_id: expected a whole number from 0"},
	    {"target/cgroup_id", "0", "/target: expected the cgroup's id"},
	    {"target/cgroup_id", "1.5", "/target/cgroup_id: expected a whole number"},
	    {"target/level", "4294967296", "/target/level: expected a whole number from 0 to 4294967295"},
	    {"target/color", "1", "/target/color: there is no such member"},
	    {"parent", "true", "/parent: expected what /target/kind says"},
	    {"parent", "0", "/parent: expected true or false"},
	    {"policy", "null", "/policy: expected an object"},
	    {"policy/sha256", "\"00\"", "/policy/sha256: expected 64 hexadecimal digits"},
	    {"policy/sha256", "\"zz00000000000000000000000000000000000000000000000000000000000000\"",
	     "/policy/sha256: expected 64 hexadecimal digits"},
	    {"policy/generation", "0", "/policy: expected its name and generation"},
	    {"policy/name", "\"\"", "/policy: expected its name and generation"},
	    {"resolvers", "[1]", "/resolvers: expected a string"},
	    {"resolvers", "[\"a\",\"b\",\"c\",\"d\"]", "/resolvers: expected a list of at most three addresses"},
	    {"coverage", "\"none\"", "/coverage: expected one of the known words"},
	    {"found", "[{\"name\":\"nothing\",\"detail\":\"\"}]", "/found: expected objects with the name of a weakness"},
	    {"found", "[1]", "/found: expected objects"},
	    {"canary/proven", "\"yes\"", "/canary/proven: expected true or false"},
	    {"foreign", "[-1]", "/foreign: expected a whole number"},
	    {"foreign", "{}", "/foreign: expected a short list of numbers"},
	    {"sockets", "[{}]", "/sockets/0/pid: expected to be there"},
	    {"sockets", "[5]", "/sockets/0: expected an object"},
	    {"sockets/1/family", "256", "/sockets/1/family: expected a whole number from 0 to 255"},
	    {"sockets/1/family", "5", "/sockets/1/family: expected 0, 4 or 6"},
	    {"sockets/1/local_port", "65536", "/sockets/1/local_port: expected a whole number from 0 to 65535"},
	    {"sockets/1/local", "\"0\"", "/sockets/1/local: expected 32 hexadecimal digits"},
	    {"sockets/1/verdict", "3", "/sockets/1/verdict: expected a whole number from 0 to 2"},
	    {"attached_ns", "\"now\"", "/attached_ns: expected a whole number"},
	};
	struct attachment *a = one(ID), *b = calloc(1, sizeof *b);
	char *good = attachment_text(a), *bad;
	struct attachment_list l;
	struct err e = {0};

	(void)state;
	assert_int_equal(attachment_save(a, DOCUMENT, strlen(DOCUMENT), &e), 0);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		bad = edit(good, rows[i].path, rows[i].value);
		put(ID, "attachment.json", bad);
		if (attachment_load(ID, b, &e) != -EINVAL || !strstr(e.msg, rows[i].told) ||
		    !strstr(e.msg, ID "/attachment.json"))
			fail_msg("row %zu (%s = %s): %s", i, rows[i].path, rows[i].value ? rows[i].value : "nothing", e.msg);
		/* One damaged is told beside the others, and keeps nobody from reading those. */
		assert_int_equal(attachment_list(&l, &e), 0);
		assert_int_equal(l.count, 0);
		assert_int_equal(l.broken_count, 1);
		assert_string_equal(l.broken[0].id, ID);
		assert_non_null(strstr(l.broken[0].why, rows[i].told));
		attachment_list_clear(&l);
		free(bad);
	}
	put(ID, "attachment.json", good);
	assert_int_equal(attachment_load(ID, b, &e), 0);
	free(good);
	drop(a);
	drop(b);
}

/* Every cut of the file, and every single byte of it another one: never a crash, never half of it. */
static void test_torn(void **state)
{
	struct attachment *a = one(ID), *b = calloc(1, sizeof *b);
	char *good = attachment_text(a);
	size_t len = strlen(good);
	struct err e;

	(void)state;
	for (size_t n = 0; n < len; n++)
		assert_true(attachment_parse(good, n, true, b, &e) < 0);
	for (size_t n = 0; n < len; n++) {
		char kept = good[n];

		good[n] = (char)(kept ^ (1 << n % 7));
		if (attachment_parse(good, len, true, b, &e) == 0)
			attachment_clear(b);
		good[n] = kept;
	}
	assert_int_equal(attachment_parse(good, len, true, b, &e), 0);
	free(good);
	drop(a);
	drop(b);
}

static void test_twice_in_one_object(void **state)
{
	struct attachment *b = calloc(1, sizeof *b);
	struct err e = {0};
	const char *twice = "{\"id\": \"a\", \"id\": \"b\"}";

	(void)state;
	assert_int_equal(attachment_parse(twice, strlen(twice), true, b, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "duplicate"));
	free(b);
}

/* ---- what stands where a record should ---- */

static void test_links_and_others(void **state)
{
	struct attachment *a = one(ID), *b = calloc(1, sizeof *b);
	char path[256], other[256];
	struct attachment_list l;
	struct err e = {0};

	(void)state;
	assert_int_equal(attachment_save(a, DOCUMENT, strlen(DOCUMENT), &e), 0);
	snprintf(path, sizeof path, "%s/%s/attachment.json", dir, ID);
	snprintf(other, sizeof other, "%s/elsewhere.json", top);
	assert_int_equal(rename(path, other), 0);
	assert_int_equal(symlink(other, path), 0);
	assert_int_equal(attachment_load(ID, b, &e), -ELOOP);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(attachment_load(ID, b, &e), -EINVAL);
	assert_int_equal(attachment_list(&l, &e), 0);
	assert_int_equal(l.broken_count, 1);
	attachment_list_clear(&l);

	assert_int_equal(attachment_load("../elsewhere", b, &e), -EINVAL);
	assert_int_equal(attachment_load("", b, &e), -EINVAL);
	assert_int_equal(attachment_load(".", b, &e), -EINVAL);
	assert_int_equal(attachment_forget("..", &e), -EINVAL);

	/* What others can write is nobody's word. */
	assert_int_equal(chmod(dir, 0777), 0);
	assert_int_equal(attachment_list(&l, &e), -EPERM);
	assert_non_null(strstr(e.msg, "written by others"));
	assert_int_equal(chmod(dir, 0700), 0);
	drop(a);
	drop(b);
}

/* Pins without a record are told, but not while somebody is at work. */
static void test_pins_without_record(void **state)
{
	struct attachment_list l;
	struct err e = {0};
	char path[256];
	int fd = -1;

	(void)state;
	snprintf(path, sizeof path, "%s/%s", pins, ID);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(attachment_list(&l, &e), 0);
	assert_int_equal(l.broken_count, 1);
	assert_string_equal(l.broken[0].id, ID);
	assert_non_null(strstr(l.broken[0].why, "no record"));
	attachment_list_clear(&l);
	assert_int_equal(attachment_lock(0, &fd, &e), 0);
	assert_int_equal(attachment_list(&l, &e), 0);
	assert_int_equal(l.broken_count, 0);
	attachment_list_clear(&l);
	assert_int_equal(attachment_list_locked(&l, &e), 0);
	assert_int_equal(l.broken_count, 1);
	attachment_list_clear(&l);
	close(fd);
}

static void test_many(void **state)
{
	struct attachment *a = one(ID);
	struct attachment_list l;
	struct err e = {0};

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		snprintf(a->id, sizeof a->id, "attached-%010u", i);
		a->attached_ns = 1000 - i;
		assert_int_equal(attachment_save(a, NULL, 0, &e), 0);
	}
	assert_int_equal(attachment_list(&l, &e), 0);
	assert_int_equal(l.count, 100);
	for (size_t i = 1; i < l.count; i++)
		assert_true(l.each[i - 1].attached_ns < l.each[i].attached_ns);
	attachment_list_clear(&l);
	drop(a);
}

/* ---- locks ---- */

static void test_lock(void **state)
{
	struct err e = {0};
	char path[256];
	int one_fd = -1, other = -1;

	(void)state;
	assert_int_equal(attachment_lock(0, &one_fd, &e), 0);
	assert_int_equal(attachment_lock(30, &other, &e), -EBUSY);
	assert_int_equal(attachment_lock(0, &other, &e), -EBUSY);
	/* Who does not wait any more lets go of what it gets. */
	close(one_fd);
	assert_int_equal(attachment_lock(5000, &other, &e), 0);
	/* Removed by an uninstall: the next one locks another file, and nobody waits for this one. */
	snprintf(path, sizeof path, "%s/lock", dir);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(attachment_lock(0, &one_fd, &e), 0);
	close(one_fd);
	close(other);
}

/* The first to wait is the first to get it, however often others ask. */
static void test_lock_in_order(void **state)
{
	struct err e = {0};
	int held = -1, status, got[2];
	char order[3] = "";

	(void)state;
	assert_int_equal(attachment_lock(0, &held, &e), 0);
	assert_int_equal(pipe(got), 0);
	for (char name = 'a'; name <= 'b'; name++) {
		pid_t child = fork();

		assert_true(child >= 0);
		if (!child) {
			int fd = -1;

			close(held);
			_exit(attachment_lock(20000, &fd, NULL) < 0 || write(got[1], &name, 1) != 1);
		}
		usleep(100000);
	}
	close(held);
	assert_int_equal(read(got[0], order, 1), 1);
	assert_int_equal(read(got[0], order + 1, 1), 1);
	assert_string_equal(order, "ab");
	for (int i = 0; i < 2; i++) {
		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	close(got[0]);
	close(got[1]);
}

/* Whoever waited for a lock file that is gone by then takes the one that is there. */
static void test_lock_of_removed_file(void **state)
{
	struct err e = {0};
	char path[256];
	int held = -1, status;
	struct stat st;
	pid_t child;

	(void)state;
	assert_int_equal(attachment_lock(0, &held, &e), 0);
	snprintf(path, sizeof path, "%s/lock", dir);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		struct stat got, there;
		int fd = -1;

		close(held); /* a copy of the same lock */
		if (attachment_lock(5000, &fd, NULL) < 0 || fstat(fd, &got) < 0 || stat(path, &there) < 0)
			_exit(1);
		_exit(got.st_ino == there.st_ino ? 0 : 2);
	}
	usleep(50000);
	assert_int_equal(unlink(path), 0);
	close(held);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(stat(path, &st), 0);
}

static void test_drained_by(void **state)
{
	struct err e = {0};
	char path[256];
	int fd = -1, lock = -1;

	(void)state;
	assert_int_equal(attachment_drained_by(), 0);
	assert_int_equal(attachment_lock(0, &lock, &e), 0);
	snprintf(path, sizeof path, "%s/drain", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "4711\n", 5), 5);
	assert_int_equal(attachment_drained_by(), 0);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(attachment_drained_by(), 4711);
	close(fd);
	assert_int_equal(attachment_drained_by(), 0);
	close(lock);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
	    EACH(test_round_trip),
	    EACH(test_parent),
	    EACH(test_names_of_strangers),
	    EACH(test_longest_names_of_strangers),
	    EACH(test_damage),
	    EACH(test_torn),
	    EACH(test_twice_in_one_object),
	    EACH(test_links_and_others),
	    EACH(test_pins_without_record),
	    EACH(test_many),
	    EACH(test_lock),
	    EACH(test_lock_in_order),
	    EACH(test_lock_of_removed_file),
	    EACH(test_drained_by),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
