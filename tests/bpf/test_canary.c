/* SPDX-License-Identifier: Apache-2.0 */
/* The try from inside: what it proves of every kind of policy, what it says when a program is missing, and where it can prove
 * nothing. Needs root. */
#include "scratch.h"

#include "attach/canary.h"
#include "core/clock.h"
#include "core/policy.h"

static struct policy_image *canary_image;

/* A shipped policy, or a document's own text. */
static void use_policy(const char *what, uint32_t more_flags)
{
	char path[64], text[16384];
	struct policy *p = NULL;
	struct err e = {0};
	size_t len = strlen(what);
	FILE *f;

	snprintf(text, sizeof text, "%s", what);
	if (what[0] != '{') {
		snprintf(path, sizeof path, "policies/%s.json", what);
		f = fopen(path, "re");
		if (!f)
			fail_msg("%s: run this from the top of the tree", path);
		len = fread(text, 1, sizeof text, f);
		fclose(f);
	}
	must(policy_parse(text, len, &p, &e), &e);
	canary_image = image_free(canary_image);
	must(image_compile(p, NULL, &canary_image, &e), &e);
	policy_free(p);
	canary_image->head.flags |= more_flags;
	must(guard_set_policy(t.guard, WHOLE_SLOT, canary_image, NULL, &e), &e);
	govern(BOX_A, WHOLE_SLOT, 0);
}

static struct target target_of(enum box box)
{
	struct target target = {.kind = TARGET_CGROUP, .fd = t.fd[box], .id = t.id[box], .level = t.level};

	snprintf(target.path, sizeof target.path, "%s", strrchr(t.path, '/'));
	strcat(target.path, box_names[box]);
	return target;
}

static int try_canary(struct canary *ret, struct err *e)
{
	struct target target = target_of(BOX_A);
	int rc = canary_try(&target, t.guard, canary_image, ret, e);

	/* Whatever happened, none of its processes is left. */
	assert_int_equal(waitpid(-1, NULL, __WCLONE | WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	return rc;
}

static void count_flow(void *ctx, const struct weir_flow_key *key, const struct weir_flow *flow)
{
	(void)flow;
	*(int *)ctx += key->cgroup == t.id[BOX_A];
}

static int flows_left(void)
{
	int n = 0;

	guard_walk_flows(t.guard, count_flow, &n);
	return n;
}

static void expect_proof(const char *what, bool denies, bool passes)
{
	struct canary c = {0};
	struct weir_sandbox sb;
	struct err e = {0};
	int i;

	must(try_canary(&c, &e), &e);
	if (!c.proven)
		fail_msg("%s: %s", what, c.why);
	sb = counters(BOX_A);
	assert_int_equal(sb.attempts, c.attempts);
	assert_int_equal(sb.denied, c.denied);
	if ((c.denied != 0) != denies || (c.denied < c.attempts) != passes)
		fail_msg("%s: %u attempts, %u denied", what, c.attempts, c.denied);
	assert_int_equal(sb.sockets, 0);
	assert_int_equal(sb.unlisted, 0);
	assert_int_equal(flows_left(), 0);
	drain();
	for (i = 0; i < seen.n; i++)
		if (seen.ev[i].key.hook != WEIR_HOOK_INGRESS)
			assert_string_equal(seen.ev[i].comm, "weir-canary");
}

#define WATCHING "{\"name\": \"x\", \"default\": \"deny\", \"mode\": \"monitor\"}"
#define ANYTHING "{\"name\": \"x\", \"default\": \"allow\"}"
#define ITSELF "{\"name\": \"x\", \"default\": \"deny\", \"loopback\": \"self\"}"
#define ONE_PORT                                                                                                               \
	"{\"name\": \"x\", \"default\": \"deny\", \"rules\": [{\"verdict\": \"allow\", \"to\": \"198.18.4.0/24\", "            \
	"\"protocol\": "                                                                                                       \
	"\"tcp\", \"ports\": 443}]}"
#define INVITING "{\"name\": \"x\", \"default\": \"deny\", \"inbound\": \"allow\"}"

static void test_canary(void **state)
{
	static const struct {
		const char *policy;
		uint32_t flags;
		bool denies, passes;
	} all[] = {
	    {"snippet", 0, true, false},
	    {"tool-call", 0, true, true},
	    {"web-client-allowlist", 0, true, true},
	    {"monitor-only", 0, false, true},
	    {WATCHING, 0, false, true},
	    {ANYTHING, 0, false, true},
	    {ANYTHING, WEIR_IMG_QUIET_ALLOW, false, true},
	    {ITSELF, 0, true, true},
	    {ONE_PORT, 0, true, true},
	    {INVITING, 0, true, false},
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof all / sizeof *all; i++) {
		use_policy(all[i].policy, all[i].flags);
		expect_proof(all[i].policy, all[i].denies, all[i].passes);
		assert_int_equal(counters(BOX_A).would_deny != 0, (canary_image->head.flags & WEIR_IMG_MONITOR) != 0);
	}
}

static pid_t sleeper(enum box box)
{
	pid_t pid = spawn(box, 0);

	if (pid == 0)
		for (;;)
			pause();
	return pid;
}

static void end_sleeper(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Where it goes: to those who live there, else into the target. */
static void test_canary_leaf(void **state)
{
	struct canary c = {0};
	struct err e = {0};
	struct target target;
	pid_t pid;

	(void)state;
	use_policy("snippet", 0);
	must(try_canary(&c, &e), &e);
	target = target_of(BOX_A);
	assert_string_equal(c.leaf, target.path);
	pid = sleeper(BOX_DEEP);
	must(canary_try(&target, t.guard, canary_image, &c, &e), &e);
	end_sleeper(pid);
	assert_true(c.proven);
	assert_string_equal(c.leaf, strcat(target.path, "/deep"));
	/* What the workload has done is its own, also where the canary does the same. */
	assert_int_equal(udp_from(BOX_DEEP, "192.0.2.7", 9), EPERM);
	must(try_canary(&c, &e), &e);
	assert_int_equal(flows_left(), 1);
}

/* Without one of the programs. */
static void expect_blind(const char *policy, const char *hook)
{
	char pin[32];
	struct canary c = {0};
	struct err e = {0};

	use_policy(policy, 0);
	snprintf(pin, sizeof pin, "link_%s", hook);
	detach_pin(pin);
	if (try_canary(&c, &e) != -ENOLINK)
		fail_msg("%s is detached, and the canary says: %s", hook, c.proven ? "well" : c.why);
	assert_string_equal(e.where, "policy");
	if (!strstr(e.msg, hook))
		fail_msg("%s is detached, and the canary says: %s", hook, e.msg);
	assert_false(c.proven);
	guard_free(t.guard);
	must(guard_unpin(t.pins, &e), &e);
	t.guard = whole_guard(t.pins, BOX_A, t.level, SMALL_RING);
}

static void test_canary_blind(void **state)
{
	static const char *const hooks[] = {"connect4", "connect6", "sendmsg4",	  "sendmsg6",
					    "egress",	"release",  "setsockopt", "ingress"};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof hooks / sizeof *hooks; i++) {
		expect_blind("snippet", hooks[i]);
		expect_blind("tool-call", hooks[i]);
		/* A policy that allows what comes over loopback lets nobody see who lets it in. */
		if (i + 1 < sizeof hooks / sizeof *hooks)
			expect_blind(ANYTHING, hooks[i]);
	}
}

/* Another policy than the one that is in force. */
static void test_canary_other_policy(void **state)
{
	struct canary c = {0};
	struct err e = {0};

	(void)state;
	use_policy("snippet", 0);
	set_policy(WHOLE_SLOT, WEIR_ALLOW, ANY_PACKET);
	assert_int_equal(try_canary(&c, &e), -ENOLINK);
	use_policy(ANYTHING, 0);
	set_policy(WHOLE_SLOT, WEIR_DENY, ANY_PACKET);
	assert_int_equal(try_canary(&c, &e), -ENOLINK);
	/* No policy at all. */
	govern(BOX_A, EMPTY_SLOT, 0);
	assert_int_equal(try_canary(&c, &e), -ENOLINK);
}

static void expect_no_proof(const char *why)
{
	struct canary c = {0};
	struct err e = {0};

	must(try_canary(&c, &e), &e);
	if (c.proven || !strstr(c.why, why))
		fail_msg("\"%s\" instead of \"%s\"", c.proven ? c.leaf : c.why, why);
	assert_int_equal(flows_left(), 0);
}

static void write_to(int dir, const char *name, const char *text)
{
	int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		fail_msg("%s to %s: %s", text, name, strerror(errno));
	close(fd);
}

static void test_canary_frozen(void **state)
{
	(void)state;
	use_policy("snippet", 0);
	write_to(t.fd[BOX_A], "cgroup.freeze", "1");
	expect_no_proof("frozen");
	write_to(t.fd[BOX_A], "cgroup.freeze", "0");
	expect_proof("thawed", true, false);
	/* One of two: the other is taken. */
	use_policy("snippet", 0);
	write_to(t.fd[BOX_DEEP], "cgroup.freeze", "1");
	expect_proof("half frozen", true, false);
	write_to(t.fd[BOX_DEEP], "cgroup.freeze", "0");
}

static void *freeze_soon(void *arg)
{
	usleep(*(const unsigned *)arg);
	write_to(t.fd[BOX_A], "cgroup.freeze", "1");
	return NULL;
}

/* Frozen while it runs: given up in time, killed and reaped. */
static void test_canary_frozen_midway(void **state)
{
	unsigned us, unproven = 0;

	(void)state;
	for (us = 200; us <= 2600 && unproven < 2; us += 400) {
		struct canary c = {0};
		struct err e = {0};
		int64_t start = now_ms();
		pthread_t th;

		use_policy("snippet", 0);
		pthread_create(&th, NULL, freeze_soon, &us);
		must(try_canary(&c, &e), &e);
		pthread_join(th, NULL);
		assert_true(now_ms() - start < CANARY_MS + 1000);
		unproven += !c.proven;
		write_to(t.fd[BOX_A], "cgroup.freeze", "0");
	}
	print_message("  frozen in time %u times\n", unproven);
}

static void test_canary_gone(void **state)
{
	struct guard_opts o = {.pin_dir = t.pins, .level = t.level, .whole = true, .sandboxes_max = 1};
	struct target target = {.kind = TARGET_CGROUP, .path = "/gone"};
	struct canary c = {0};
	struct err e = {0};

	(void)state;
	o.cgroup_fd = make_below(BOX_ROOT, "fresh");
	target.id = inode_of(o.cgroup_fd);
	target.fd = dup(o.cgroup_fd);
	must(guard_create(&t.guard, &o, &e), &e);
	use_policy("snippet", 0);
	must(guard_del_sandbox(t.guard, t.id[BOX_A], &e), &e);
	must(guard_set_sandbox(t.guard, target.id, WHOLE_SLOT, 0, &e), &e);
	must(canary_try(&target, t.guard, canary_image, &c, &e), &e);
	assert_true(c.proven);
	remove_below(BOX_ROOT, "fresh", o.cgroup_fd);
	must(canary_try(&target, t.guard, canary_image, &c, &e), &e);
	assert_false(c.proven);
	assert_non_null(strstr(c.why, "gone"));
	close(target.fd);
}

static bool has_controllers(int dir)
{
	char text[256] = "";
	int fd = openat(dir, "cgroup.controllers", O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, text, sizeof text - 1);

	close(fd);
	return n > 0 && strstr(text, "pids") && strstr(text, "memory");
}

#define HAND_ON(dir) write_to(dir, "cgroup.subtree_control", "+memory +pids")
#define KEEP(dir) write_to(dir, "cgroup.subtree_control", "-memory -pids")

/* Where version 2 has the controllers: a cgroup that hands them on takes no process itself, and a full one none at all. */
static void test_canary_controllers(void **state)
{
	int top = openat(t.fd[BOX_ROOT], "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	pid_t pid;

	(void)state;
	use_policy("snippet", 0);
	if (!has_controllers(top)) {
		close(top);
		print_message("skip: no controllers of version 2 on this host\n");
		skip();
	}
	HAND_ON(top);
	close(top);
	HAND_ON(t.fd[BOX_ROOT]);
	HAND_ON(t.fd[BOX_A]);
	expect_proof("in the cgroup below", true, false);
	use_policy("snippet", 0);
	pid = sleeper(BOX_DEEP);
	write_to(t.fd[BOX_DEEP], "pids.max", "1");
	expect_no_proof("started there");
	write_to(t.fd[BOX_DEEP], "pids.max", "2");
	expect_proof("the last place", true, false);
	end_sleeper(pid);
	use_policy("snippet", 0);
	write_to(t.fd[BOX_DEEP], "pids.max", "0");
	expect_no_proof("started there");
	KEEP(t.fd[BOX_A]);
	write_to(t.fd[BOX_A], "pids.max", "0");
	expect_no_proof("limit of processes");
	write_to(t.fd[BOX_A], "pids.max", "max");
	write_to(t.fd[BOX_A], "memory.max", "1");
	use_policy("snippet", 0);
	(void)try_canary(&(struct canary){0}, &(struct err){0}); /* either way, it comes back */
	write_to(t.fd[BOX_A], "memory.max", "max");
	KEEP(t.fd[BOX_ROOT]);
}

/* In the child: one flow more than can be listed. */
static int fill_flows(void)
{
	pid_t pid = spawn(BOX_A, 0);

	if (pid == 0) {
		int i;

		for (i = 0; i <= WEIR_FLOWS_PER_SANDBOX; i++)
			MUST(udp_to("192.0.2.1", (uint16_t)(1000 + i), "x", 1) == EPERM);
		_exit(0);
	}
	return reap(pid);
}

/* With all its places taken, and beside a workload that tries things all the time. */
static void test_canary_busy(void **state)
{
	struct canary c = {0};
	struct err e = {0};
	struct target target = target_of(BOX_A);
	int64_t start;
	pid_t pid;
	int i;

	(void)state;
	use_policy("snippet", 0);
	assert_int_equal(fill_flows(), 0);
	must(try_canary(&c, &e), &e);
	assert_true(c.proven);
	use_policy("tool-call", 0);
	pid = spawn(BOX_A, 0);
	for (i = 0; pid == 0; i++)
		(void)udp_to(i % 2 ? "192.0.2.7" : "11.0.0.7", (uint16_t)(1000 + i % 200), "x", 1);
	start = now_ms();
	for (i = 0; i < 20; i++) {
		must(canary_try(&target, t.guard, canary_image, &c, &e), &e);
		if (!c.proven)
			fail_msg("%s", c.why);
	}
	print_message("  beside a busy workload: %d us each\n", (int)(now_ms() - start) * 1000 / 20);
	end_sleeper(pid);
}

static void hold_socket(void)
{
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	union addr a;
	socklen_t len = addr_of(&a, AF_INET, "11.0.0.7", 1000);

	(void)sendto(s, "x", 1, 0, &a.sa, len);
	usleep(2000);
	close(s);
	usleep(2000);
}

/* The workload takes the last socket now and then: that is not a verdict on where the canary sends. */
static void test_canary_crowded(void **state)
{
	struct canary c = {0};
	struct err e = {0};
	struct target target = target_of(BOX_A);
	pid_t pid;
	int i;

	(void)state;
	use_policy("tool-call", 0);
	canary_image->head.sockets_max = 1;
	must(guard_set_policy(t.guard, WHOLE_SLOT, canary_image, NULL, &e), &e);
	pid = spawn(BOX_A, 0);
	while (pid == 0)
		hold_socket();
	for (i = 0; i < 20; i++)
		must(canary_try(&target, t.guard, canary_image, &c, &e), &e);
	end_sleeper(pid);
	assert_true(c.proven);
}

static void test_canary_time(void **state)
{
	struct canary c = {0};
	struct err e = {0};
	uint64_t start = clock_now_ns();
	int i;

	(void)state;
	use_policy("tool-call", 0);
	for (i = 0; i < 20; i++)
		must(try_canary(&c, &e), &e);
	print_message("  %d us each, %u attempts, %u denied\n", (int)((clock_now_ns() - start) / 20000), c.attempts, c.denied);
}

/* ---- */

#define WITH(f, setup) cmocka_unit_test_setup_teardown(f, setup, teardown_guard)

static int setup_nothing(void **state)
{
	(void)state;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    WITH(test_canary, setup_whole),	   WITH(test_canary_leaf, setup_whole),
	    WITH(test_canary_blind, setup_whole),  WITH(test_canary_other_policy, setup_whole),
	    WITH(test_canary_frozen, setup_whole), WITH(test_canary_frozen_midway, setup_whole),
	    WITH(test_canary_gone, setup_nothing), WITH(test_canary_controllers, setup_whole),
	    WITH(test_canary_busy, setup_whole),   WITH(test_canary_crowded, setup_whole),
	    WITH(test_canary_time, setup_whole),
	};

	if (geteuid() != 0) {
		fprintf(stderr, "test_canary: needs root\n");
		return 1;
	}
	return cmocka_run_group_tests(tests, setup_all, NULL);
}
