/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guards on cgroups that are there already: one that governs a cgroup and everything below it as one; one that carries a
 * parent, whose children are unknown, let through, or judged further down; what is told of a guard that somebody damaged; and
 * the try from inside. Needs root.
 */
#include "scratch.h"

/* A second guard, for a parent that carries one while the first governs below it. */
static struct guard *over;
static char over_pins[80];

static void set_default(struct guard *g, uint32_t slot, uint8_t verdict, uint32_t flags)
{
	struct guard *was = t.guard;

	t.guard = g;
	set_policy(slot, verdict, flags);
	t.guard = was;
}

/* Of BOX_ROOT: what is directly below it is unknown. */
static struct guard *parent_guard(const char *pins)
{
	struct guard_opts o = {
	    .pin_dir = pins, .cgroup_fd = t.fd[BOX_ROOT], .level = t.level, .sandboxes_max = 8, .ring_bytes = SMALL_RING};
	struct guard *g = NULL;
	struct err e = {0};

	must(guard_create(&g, &o, &e), &e);
	return g;
}

static int setup_parent(void **state)
{
	(void)state;
	memset(told, 0, sizeof *told);
	t.guard = parent_guard(t.pins);
	return 0;
}

static int teardown_both(void **state)
{
	over = guard_free(over);
	guard_unpin(over_pins, NULL);
	return teardown_guard(state);
}

static struct weir_sandbox unknown(void)
{
	struct weir_sandbox account;

	guard_get_unknown(t.guard, &account);
	return account;
}

static void leave(enum box box)
{
	govern(box, 0, WEIR_SB_BELOW);
}

/* What an address hook or the packet hook passed: nobody listens, so a stream is refused by the other end. */
static int passed(int type)
{
	return type == SOCK_STREAM ? ECONNREFUSED : 0;
}

static int from(enum box box, int type)
{
	return type == SOCK_STREAM ? tcp_from(box, "192.0.2.1", 9) : udp_from(box, "192.0.2.1", 9);
}

static uint8_t hook_of(int type)
{
	return type == SOCK_STREAM ? WEIR_HOOK_CONNECT4 : WEIR_HOOK_EGRESS;
}

static const int types[] = {SOCK_DGRAM, SOCK_STREAM};

#define WITH(f, setup) cmocka_unit_test_setup_teardown(f, setup, teardown_both)

/* ---- a cgroup as one ---- */

static int udp_from_fd(int cgroup_fd)
{
	int was = t.fd[BOX_NONE], rc;

	t.fd[BOX_NONE] = cgroup_fd;
	rc = udp_from(BOX_NONE, "192.0.2.1", 9);
	t.fd[BOX_NONE] = was;
	return rc;
}

/* The cgroup, its child and its grandchild are one entry; what is beside and above it is nobody's business. */
static void test_whole(void **state)
{
	int below = make_below(BOX_DEEP, "er");
	struct err e = {0};
	size_t i;

	(void)state;
	/* Nothing is known of it yet: denied, in its name. */
	assert_int_equal(udp_from(BOX_DEEP, "192.0.2.1", 9), EPERM);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_NO_ENTRY);
	govern(BOX_A, WHOLE_SLOT, 0);
	for (i = 0; i < 2; i++) {
		assert_int_equal(from(BOX_A, types[i]), EPERM);
		expect_one(BOX_A, hook_of(types[i]), WEIR_DENY, WEIR_REASON_DEFAULT);
		assert_int_equal(from(BOX_DEEP, types[i]), EPERM);
		assert_int_equal(from(BOX_B, types[i]), passed(types[i]));
		assert_int_equal(from(BOX_ROOT, types[i]), passed(types[i]));
	}
	assert_int_equal(udp_from_fd(below), EPERM);
	assert_int_equal(drain(), 0); /* the same two flows */
	assert_int_equal(counters(BOX_A).denied, 5);
	assert_int_equal(counters(BOX_A).flows, 2);
	/* An entry of a child's own would never be asked, and there is no room for one. */
	assert_int_equal(guard_set_sandbox(t.guard, t.id[BOX_DEEP], WHOLE_SLOT, 0, &e), -ENOSPC);
	must(guard_verify(t.guard, t.fd[BOX_A], &e), &e);
	must(guard_verify(t.guard, t.fd[BOX_DEEP], &e), &e);
	assert_int_equal(guard_verify(t.guard, t.fd[BOX_B], &e), -ENOLINK);
	/* In one store, also for what runs in the grandchild. */
	set_policy(WHOLE_SLOT, WEIR_ALLOW, ANY_PACKET);
	assert_int_equal(udp_from_fd(below), 0);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_ALLOW, WEIR_REASON_DEFAULT);
	remove_below(BOX_DEEP, "er", below);
}

static int setup_whole_deeper(void **state)
{
	(void)state;
	t.guard = whole_guard(t.pins, BOX_DEEP, t.level + 1, SMALL_RING);
	set_policy(WHOLE_SLOT, WEIR_DENY, ANY_PACKET);
	return 0;
}

static void test_whole_deeper(void **state)
{
	int below = make_below(BOX_DEEP, "er");

	(void)state;
	govern(BOX_DEEP, WHOLE_SLOT, 0);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), 0);
	assert_int_equal(udp_from_fd(below), EPERM);
	expect_one(BOX_DEEP, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_DEFAULT);
	assert_int_equal(tcp_from(BOX_DEEP, "192.0.2.1", 9), EPERM);
	expect_one(BOX_DEEP, WEIR_HOOK_CONNECT4, WEIR_DENY, WEIR_REASON_DEFAULT);
	assert_int_equal(counters(BOX_DEEP).denied, 2);
	remove_below(BOX_DEEP, "er", below);
}

/* What was made inside is judged wherever it is used; what was made outside, where these programs are not, is not. */
static void test_whole_carried(void **state)
{
	static const enum box outside[] = {BOX_ROOT, BOX_B, BOX_OUT};
	size_t i, n;

	(void)state;
	govern(BOX_A, WHOLE_SLOT, 0);
	for (i = 0; i < 2; i++)
		for (n = 0; n < sizeof outside / sizeof *outside; n++) {
			govern(BOX_A, WHOLE_SLOT, 0);
			assert_int_equal(carry(BOX_A, outside[n], types[i]), EPERM);
			expect_one(BOX_A, hook_of(types[i]), WEIR_DENY, WEIR_REASON_DEFAULT);
			assert_int_equal(carry(outside[n], BOX_A, types[i]), passed(types[i]));
			assert_int_equal(counters(BOX_A).attempts, 1);
			/* Between parts of it. */
			assert_int_equal(carry(BOX_A, BOX_DEEP, types[i]), EPERM);
			assert_int_equal(carry(BOX_DEEP, BOX_A, types[i]), EPERM);
			assert_int_equal(counters(BOX_A).denied, 3);
		}
}

/* Nobody has it open, then somebody takes it up. */
static void test_whole_adopted(void **state)
{
	struct weir_event first;
	struct err e = {0};

	(void)state;
	govern(BOX_A, WHOLE_SLOT, 0);
	t.guard = guard_free(t.guard);
	assert_int_equal(from(BOX_DEEP, SOCK_DGRAM), EPERM);
	must(guard_adopt(&t.guard, t.pins, &e), &e);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_DEFAULT);
	first = seen.ev[0];
	assert_int_equal(guard_get_generation(t.guard, WHOLE_SLOT), first.key.generation);
	assert_int_equal(guard_get_generation(t.guard, WHOLE_SLOT + 1), 0);
	assert_int_equal(guard_set_sandbox(t.guard, t.id[BOX_B], WHOLE_SLOT, 0, &e), -ENOSPC);
	assert_string_equal(e.msg, "1 cgroups are governed already");
	set_policy(WHOLE_SLOT, WEIR_ALLOW, ANY_PACKET);
	assert_int_equal(from(BOX_DEEP, SOCK_DGRAM), 0);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_ALLOW, WEIR_REASON_DEFAULT);
	assert_int_equal(seen.ev[0].key.generation, first.key.generation + 1);
}

static int prepared;

static int prepare(struct guard *g, void *ctx, struct err *e)
{
	/* No program is attached yet. */
	prepared = udp_from(BOX_A, "192.0.2.1", 9) == 0;
	if (ctx)
		return err_set(e, EDOM, "policy", "not today");
	set_default(g, WHOLE_SLOT, WEIR_ALLOW, ANY_PACKET);
	return guard_set_sandbox(g, t.id[BOX_A], WHOLE_SLOT, 0, e);
}

static int setup_nothing(void **state)
{
	(void)state;
	memset(told, 0, sizeof *told);
	return 0;
}

/* What is written before the programs are there holds from their first packet on. */
static void test_prepared(void **state)
{
	struct guard_opts o = {.pin_dir = t.pins,
			       .cgroup_fd = t.fd[BOX_A],
			       .level = t.level,
			       .whole = true,
			       .sandboxes_max = 1,
			       .prepare = prepare,
			       .prepare_ctx = &o};
	struct err e = {0};

	(void)state;
	assert_int_equal(guard_create(&t.guard, &o, &e), -EDOM);
	assert_int_equal(access(t.pins, F_OK), -1);
	o.prepare_ctx = NULL;
	prepared = 0;
	must(guard_create(&t.guard, &o, &e), &e);
	assert_true(prepared);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), 0);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_ALLOW, WEIR_REASON_DEFAULT);
}

static void test_bad_sizes(void **state)
{
	struct guard_opts o = {.pin_dir = t.pins, .cgroup_fd = t.fd[BOX_A], .level = t.level, .whole = true};
	static const uint32_t rings[] = {1, 4095, 4097, 3 * 4096, 2048};
	struct err e = {0};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof rings / sizeof *rings; i++) {
		o.ring_bytes = rings[i];
		assert_int_equal(guard_create(&t.guard, &o, &e), -EINVAL);
		assert_string_equal(e.where, "policy");
	}
	o.ring_bytes = 0;
	o.sandboxes_max = WEIR_SANDBOXES_MAX + 1;
	assert_int_equal(guard_create(&t.guard, &o, &e), -EINVAL);
	assert_int_equal(access(t.pins, F_OK), -1);
	/* Sizes of their own are for whoever asks: without, as ever. */
	o.sandboxes_max = 0;
	must(guard_create(&t.guard, &o, &e), &e);
	must(guard_set_sandbox(t.guard, 1, 0, 0, &e), &e);
	must(guard_set_sandbox(t.guard, 2, 0, 0, &e), &e);
}

static int spray(enum box box, int ports, int want)
{
	pid_t pid = spawn(box, 0);

	if (pid == 0) {
		int i;

		for (i = 0; i < ports; i++)
			if (udp_to("192.0.2.1", (uint16_t)(1000 + i), "x", 1) != want)
				_exit(1);
		_exit(0);
	}
	return reap(pid);
}

static int setup_tiny(void **state)
{
	(void)state;
	t.guard = whole_guard(t.pins, BOX_A, t.level, 4096);
	set_policy(WHOLE_SLOT, WEIR_DENY, ANY_PACKET);
	return 0;
}

/* A ring with room for eleven events: nothing is lost but the detail, and that is counted. */
static void test_tiny_ring(void **state)
{
	uint64_t stats[WEIR_STAT_COUNT];
	struct weir_sandbox sb;
	struct err e = {0};

	(void)state;
	govern(BOX_A, WHOLE_SLOT, 0);
	assert_int_equal(spray(BOX_A, 200, EPERM), 0);
	must(guard_stats(t.guard, stats, &e), &e);
	sb = counters(BOX_A);
	assert_int_equal(sb.denied, 200);
	assert_int_equal(sb.flows + sb.unlisted, 200);
	assert_int_equal(stats[WEIR_STAT_RING_FULL], sb.unlisted);
	assert_true(sb.flows >= 8 && sb.flows <= 11);
	assert_int_equal(drain(), sb.flows);
	/* With room again it is told again. */
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 1150), EPERM);
	assert_int_equal(drain(), 1);
}

/* A new allowance while everything goes on: not one attempt is lost, and no more is listed than was allowed each time. */
static void test_renewed_while_running(void **state)
{
	struct weir_sandbox sb;
	uint64_t listed = 0;
	struct err e = {0};
	int renewals = 0, status, i;
	pid_t pid;

	(void)state;
	govern(BOX_A, WHOLE_SLOT, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0) {
		for (i = 0; i < 40000; i++)
			if (udp_to("192.0.2.1", (uint16_t)(1000 + i % 20000), "x", 1) != EPERM)
				_exit(1);
		_exit(0);
	}
	seen.n = 0;
	while (waitpid(pid, &status, WNOHANG) == 0) {
		struct weir_flow f;

		sb = counters(BOX_A);
		if (renewals < 3 && guard_taken_flows(t.guard, &sb) >= WEIR_FLOWS_PER_SANDBOX) {
			must(guard_renew_flows(t.guard, t.id[BOX_A], &e), &e);
			renewals++;
		}
		seen.n = 0;
		assert_true(guard_drain(t.guard, 4096, see, &seen) >= 0);
		for (i = 0; i < seen.n; i++)
			if (seen.ev[i].key.dport_be % 2 && guard_take_flow(t.guard, &seen.ev[i].key, &f) == 0)
				listed += f.count;
		usleep(200);
	}
	assert_int_equal(status, 0);
	assert_int_equal(renewals, 3);
	sb = counters(BOX_A);
	assert_int_equal(sb.denied, 40000);
	assert_true(guard_taken_flows(t.guard, &sb) <= WEIR_FLOWS_PER_SANDBOX);
	assert_true(sb.flows <= 4 * WEIR_FLOWS_PER_SANDBOX);
	assert_true(sb.flows > 3 * WEIR_FLOWS_PER_SANDBOX - 64);
	assert_true(listed > 0);
	/* A fresh entry has its whole allowance. */
	govern(BOX_A, WHOLE_SLOT, 0);
	sb = counters(BOX_A);
	assert_int_equal(guard_taken_flows(t.guard, &sb), 0);
	assert_int_equal(guard_taken_inbound(t.guard, &sb), 0);
	assert_int_equal(spray(BOX_A, WEIR_FLOWS_PER_SANDBOX + 10, EPERM), 0);
	assert_int_equal(counters(BOX_A).flows, WEIR_FLOWS_PER_SANDBOX);
	assert_int_equal(counters(BOX_A).unlisted, 10);
}

/* ---- what has no entry below a parent ---- */

/* Every way out in a few: what a child with no entry can do. */
static void test_unknown_denied(void **state)
{
	static const enum box boxes[] = {BOX_A, BOX_DEEP, BOX_ROOT};
	static const enum box owner[] = {BOX_A, BOX_A, BOX_ROOT};
	uint64_t stats[WEIR_STAT_COUNT];
	struct err e = {0};
	size_t i, n;

	(void)state;
	assert_false(guard_get_unknown(t.guard, NULL));
	for (i = 0; i < 3; i++)
		for (n = 0; n < 2; n++) {
			guard_sweep_flows(t.guard, t.id[owner[i]]);
			assert_int_equal(from(boxes[i], types[n]), EPERM);
			expect_one(owner[i], hook_of(types[n]), WEIR_DENY, WEIR_REASON_NO_ENTRY);
		}
	assert_int_equal(unknown().denied, 6);
	assert_int_equal(unknown().attempts, 6);
	must(guard_stats(t.guard, stats, &e), &e);
	assert_int_equal(stats[WEIR_STAT_NO_ENTRY], 6);
	assert_int_equal(from(BOX_OUT, SOCK_DGRAM), 0);
}

static void test_unknown_passes(void **state)
{
	uint64_t stats[WEIR_STAT_COUNT];
	struct err e = {0};
	int l = udp_listener(9);
	struct weir_flow f;

	(void)state;
	guard_set_unknown(t.guard, true);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), 0);
	assert_true(heard(l, HEAR_MS));
	close(l);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_WOULD_DENY, WEIR_REASON_NO_ENTRY);
	assert_int_equal(udp_from(BOX_DEEP, "192.0.2.1", 9), 0);
	assert_int_equal(drain(), 0);
	assert_int_equal(guard_get_flow(t.guard, &seen.ev[0].key, &f), 0);
	assert_int_equal(f.count, 2);
	assert_int_equal(from(BOX_A, SOCK_STREAM), ECONNREFUSED);
	expect_one(BOX_A, WEIR_HOOK_CONNECT4, WEIR_WOULD_DENY, WEIR_REASON_NO_ENTRY);
	assert_int_equal(from(BOX_ROOT, SOCK_DGRAM), 0);
	expect_one(BOX_ROOT, WEIR_HOOK_EGRESS, WEIR_WOULD_DENY, WEIR_REASON_NO_ENTRY);
	assert_int_equal(unknown().attempts, 4);
	assert_int_equal(unknown().would_deny, 4);
	assert_int_equal(unknown().denied + unknown().unlisted, 0);
	assert_int_equal(unknown().packets, 4);
	must(guard_stats(t.guard, stats, &e), &e);
	assert_int_equal(stats[WEIR_STAT_NO_ENTRY], 0); /* nothing was denied */
	/* Who has an entry is judged as ever. */
	set_policy(DENYING, WEIR_DENY, ANY_PACKET);
	govern(BOX_B, DENYING, 0);
	assert_int_equal(from(BOX_B, SOCK_DGRAM), EPERM);
	govern(BOX_B, EMPTY_SLOT, 0);
	assert_int_equal(from(BOX_B, SOCK_DGRAM), EPERM);
	/* One store, seen by whoever takes the guard up. */
	guard_free(t.guard);
	must(guard_adopt(&t.guard, t.pins, &e), &e);
	assert_true(guard_get_unknown(t.guard, NULL));
	guard_set_unknown(t.guard, false);
	assert_int_equal(from(BOX_A, SOCK_DGRAM), EPERM);
	assert_int_equal(from(BOX_A, SOCK_STREAM), EPERM);
	assert_int_equal(unknown().denied, 2);
}

/* Let through, they are listed within the same bounds. */
static void test_unknown_bounded(void **state)
{
	(void)state;
	guard_set_unknown(t.guard, true);
	assert_int_equal(spray(BOX_A, WEIR_FLOWS_PER_SANDBOX + 100, 0), 0);
	assert_int_equal(drain(), WEIR_FLOWS_PER_SANDBOX);
	assert_int_equal(unknown().would_deny, WEIR_FLOWS_PER_SANDBOX + 100);
	assert_int_equal(unknown().unlisted, 100);
	assert_int_equal(guard_sweep_flows(t.guard, t.id[BOX_A]), WEIR_FLOWS_PER_SANDBOX);
	assert_int_equal(unknown().flows, 0);
	assert_int_equal(spray(BOX_NONE, 10, 0), 0);
	assert_int_equal(drain(), 10);
}

/* A stream is told once when it is made, passes while it may, and stops when it may not. */
static void stream_child(void)
{
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), sent = 0;
	union addr a;
	socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", 7777);

	MUST(connect(s, &a.sa, len) == 0);
	for (;;) {
		int go = __atomic_load_n(&told->go, __ATOMIC_ACQUIRE);

		if (go < 0)
			_exit(0);
		for (; sent < go; sent++)
			MUST(send(s, "weir", 4, 0) == 4);
		usleep(1000);
	}
}

static int stream_listener(uint16_t port)
{
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	union addr any;

	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	assert_int_equal(bind(l, &any.sa, addr_of(&any, AF_INET, "0.0.0.0", port)), 0);
	assert_int_equal(listen(l, 4), 0);
	return l;
}

static int line_comes(int s, int ms)
{
	char line[4];

	__atomic_fetch_add(&told->go, 1, __ATOMIC_RELEASE);
	return heard(s, ms) && recv(s, line, 4, MSG_WAITALL) == 4;
}

static void test_unknown_stream(void **state)
{
	int l = stream_listener(7777), s;
	char line[4];
	pid_t pid;

	(void)state;
	guard_set_unknown(t.guard, true);
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		stream_child();
	assert_true(heard(l, HEAR_MS));
	s = accept(l, NULL, NULL);
	assert_true(line_comes(s, HEAR_MS) && line_comes(s, HEAR_MS));
	expect_one(BOX_A, WEIR_HOOK_CONNECT4, WEIR_WOULD_DENY, WEIR_REASON_NO_ENTRY);
	assert_int_equal(unknown().attempts, 1);
	assert_true(unknown().packets >= 4 && unknown().bytes >= 4 * 40);
	guard_set_unknown(t.guard, false);
	assert_false(line_comes(s, 300));
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_NO_ENTRY);
	guard_set_unknown(t.guard, true);
	assert_true(heard(s, 5000));
	assert_int_equal(recv(s, line, 4, MSG_WAITALL), 4);
	__atomic_store_n(&told->go, -1, __ATOMIC_RELEASE);
	child_ok(pid);
	close(s);
	close(l);
}

/* One that was open before anybody looked: its packets are told, in one flow. */
static void test_unknown_older_stream(void **state)
{
	int l = stream_listener(7777), s;
	pid_t pid;

	(void)state;
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		stream_child();
	assert_true(heard(l, HEAR_MS));
	s = accept(l, NULL, NULL);
	t.guard = parent_guard(t.pins);
	guard_set_unknown(t.guard, true);
	assert_true(line_comes(s, HEAR_MS) && line_comes(s, HEAR_MS));
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_WOULD_DENY, WEIR_REASON_NO_ENTRY);
	assert_int_equal(ntohs(seen.ev[0].key.dport_be), 7777);
	__atomic_store_n(&told->go, -1, __ATOMIC_RELEASE);
	child_ok(pid);
	close(s);
	close(l);
}

#define IN_PORT 7790

static void wait_for_child(void)
{
	int i;

	for (i = 0; i < 2000 && !__atomic_load_n(&told->go, __ATOMIC_ACQUIRE); i++)
		usleep(1000);
	assert_true(told->go != 0);
}

/* Waits for one datagram, and before that, if asked to, sends one itself. */
static pid_t receiver(enum box made, enum box lives, bool asks)
{
	pid_t pid;

	told->go = 0;
	pid = spawn(made, 0);
	if (pid == 0) {
		int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		union addr any, a;
		socklen_t len = addr_of(&a, AF_INET, "192.0.2.8", 4000);
		char line[8];

		MUST(bind(s, &any.sa, addr_of(&any, AF_INET, "0.0.0.0", IN_PORT)) == 0);
		if (lives != made)
			move_to(lives);
		if (asks)
			MUST(sendto(s, "x", 1, 0, &a.sa, len) == 1);
		__atomic_store_n(&told->go, 1, __ATOMIC_RELEASE);
		MUST(recv(s, line, sizeof line, 0) == 4);
		_exit(0);
	}
	wait_for_child();
	return pid;
}

static int is_over(pid_t pid, int ms)
{
	for (; ms > 0; ms--) {
		siginfo_t si = {0};

		if (waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid == pid)
			return 1;
		usleep(1000);
	}
	return 0;
}

static void ask_from_outside(void)
{
	assert_int_equal(udp_to("203.0.113.9", IN_PORT, "weir", 4), 0);
}

static void test_unknown_inbound(void **state)
{
	pid_t pid;

	(void)state;
	pid = receiver(BOX_A, BOX_A, false);
	ask_from_outside();
	assert_false(is_over(pid, 100));
	expect_one(BOX_A, WEIR_HOOK_INGRESS, WEIR_DENY, WEIR_REASON_NO_ENTRY);
	guard_set_unknown(t.guard, true);
	ask_from_outside();
	child_ok(pid);
	expect_one(BOX_A, WEIR_HOOK_INGRESS, WEIR_WOULD_DENY, WEIR_REASON_NO_ENTRY);
	assert_int_equal(unknown().inbound, 2);
	assert_int_equal(unknown().attempts, 0);
	/* An answer to what it was let ask is nothing to be told. */
	pid = receiver(BOX_A, BOX_A, true);
	ask_from_outside();
	child_ok(pid);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_WOULD_DENY, WEIR_REASON_NO_ENTRY);
	assert_int_equal(unknown().inbound, 2);
}

static void many_sockets_child(int first_refused)
{
	struct rlimit r = {4096, 4096};
	union addr a;
	socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", 9);
	int i;

	MUST(setrlimit(RLIMIT_NOFILE, &r) == 0);
	for (i = 0; i < first_refused + 50; i++) {
		int rc = connect(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), &a.sa, len);

		if (i == first_refused)
			guard_set_unknown(t.guard, false);
		else
			MUST(i < first_refused ? rc == 0 : rc < 0 && errno == EPERM);
	}
	_exit(0);
}

/* Passed, there is no end of datagram sockets; they are counted for the day when it ends. */
static void test_unknown_sockets(void **state)
{
	pid_t pid;

	(void)state;
	guard_set_unknown(t.guard, true);
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		many_sockets_child(WEIR_SOCKETS_PER_SANDBOX + 200);
	child_ok(pid);
	assert_int_equal(unknown().sockets, 0);
	assert_int_equal(drain(), 1);
	assert_int_equal(seen.ev[0].key.reason, WEIR_REASON_SOCKETS);
}

/* ---- options ---- */

/* Which of them took effect. */
enum option { JOIN = 1, LONG_JOIN = 2, FOREIGN = 4, BROADCAST_LATE = 8, ERRORS = 16, JOIN6 = 32 };
#define ALL_OPTIONS (JOIN | LONG_JOIN | FOREIGN | BROADCAST_LATE | ERRORS | JOIN6)

static int read_option(int s, int level, int option)
{
	int value = -1;
	socklen_t len = sizeof value;

	return getsockopt(s, level, option, &value, &len) < 0 ? -1 : value;
}

/* Longer than what a program is handed; the kernel takes it as it is. */
static int long_join(int s)
{
	static uint8_t room[8192];
	struct group_filter *f = (void *)room;
	union addr group;

	memset(room, 0, sizeof room);
	addr_of(&group, AF_INET, "224.0.0.251", 0);
	f->gf_interface = 1;
	memcpy(&f->gf_group, &group.in, sizeof group.in);
	f->gf_fmode = MCAST_EXCLUDE;
	return setsockopt(s, IPPROTO_IP, MCAST_MSFILTER, f, sizeof room);
}

static int try_options(int used, int s, int six)
{
	struct ip_mreqn group = {.imr_ifindex = 1};
	struct ipv6_mreq group6 = {.ipv6mr_interface = 1};
	int one = 1, did = 0;

	inet_pton(AF_INET, "224.0.0.250", &group.imr_multiaddr);
	inet_pton(AF_INET6, "ff02::fa", &group6.ipv6mr_multiaddr);
	if (setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) == 0)
		did |= JOIN;
	inet_pton(AF_INET, "224.0.0.251", &group.imr_multiaddr);
	(void)setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group);
	if (long_join(s) == 0)
		did |= LONG_JOIN;
	if (setsockopt(s, IPPROTO_IP, IP_FREEBIND, &one, sizeof one) == 0)
		did |= FOREIGN;
	if (setsockopt(used, SOL_SOCKET, SO_BROADCAST, &one, sizeof one) == 0)
		did |= BROADCAST_LATE;
	(void)setsockopt(s, IPPROTO_IP, IP_RECVERR, &one, sizeof one);
	if (read_option(s, IPPROTO_IP, IP_RECVERR) == 1)
		did |= ERRORS;
	if (setsockopt(six, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &group6, sizeof group6) == 0)
		did |= JOIN6;
	return did;
}

/* In the child: sockets made in one cgroup, one of them used there, then all options from another. */
static int options_of(enum box made, enum box lives)
{
	pid_t pid = spawn(made, 0);

	if (pid == 0) {
		int used = socket(AF_INET, SOCK_DGRAM, 0), s = socket(AF_INET, SOCK_DGRAM, 0),
		    six = socket(AF_INET6, SOCK_DGRAM, 0);
		union addr a;

		(void)connect(used, &a.sa, addr_of(&a, AF_INET, "192.0.2.1", 9));
		if (lives != made)
			move_to(lives);
		_exit(try_options(used, s, six));
	}
	return reap(pid);
}

static void test_unknown_options(void **state)
{
	int i, joins = 0;

	(void)state;
	assert_int_equal(options_of(BOX_A, BOX_A), 0);
	assert_true(unknown().denied >= 3);
	guard_set_unknown(t.guard, true);
	drain();
	assert_int_equal(options_of(BOX_A, BOX_A), ALL_OPTIONS);
	drain();
	for (i = 0; i < seen.n; i++) {
		assert_int_equal(seen.ev[i].key.verdict, WEIR_WOULD_DENY);
		joins += seen.ev[i].key.hook == WEIR_HOOK_SETSOCKOPT;
	}
	assert_int_equal(joins, 3); /* what is too long to be sure of is told as far as it was read */
}

/* A policy that only watches refuses none of it either; one that denies, all of it. */
static void test_watched_options(void **state)
{
	(void)state;
	set_policy(WHOLE_SLOT, WEIR_DENY, ANY_PACKET | WEIR_IMG_MONITOR);
	govern(BOX_A, WHOLE_SLOT, 0);
	assert_int_equal(options_of(BOX_DEEP, BOX_A), ALL_OPTIONS);
	assert_int_equal(counters(BOX_A).denied, 0);
	assert_int_equal(counters(BOX_A).would_deny, 4);
	set_policy(WHOLE_SLOT, WEIR_DENY, ANY_PACKET);
	govern(BOX_A, WHOLE_SLOT, 0);
	assert_int_equal(options_of(BOX_DEEP, BOX_A), 0);
	/* What is allowed is, but for what can't be judged: foreign sources, and what is too long. */
	set_policy(WHOLE_SLOT, WEIR_ALLOW, ANY_PACKET | WEIR_IMG_INBOUND);
	govern(BOX_A, WHOLE_SLOT, 0);
	assert_int_equal(options_of(BOX_DEEP, BOX_A), JOIN | JOIN6 | ERRORS);
}

/* ---- judged further down ---- */

/* Not a trace of it in the parent's guard. */
static void expect_silence(enum box box, const struct weir_sandbox *before)
{
	const struct weir_sandbox zero = {0};
	struct weir_sandbox sb = counters(box), all = unknown();

	assert_int_equal(drain(), 0);
	sb.epoch = sb.flags = 0;
	assert_memory_equal(&sb, &zero, sizeof sb);
	assert_memory_equal(&all, before, sizeof all);
}

static int send_junk(void)
{
	static const char junk[] = "\x45\0\0\x16\0\1\0\0\x40\x11\0\0\xc0\0\2\2\xc0\0\2\1\0\7"; /* a UDP header cut off */
	int s = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
	union addr a;
	socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", 0);

	return sendto(s, junk, sizeof junk - 1, 0, &a.sa, len) < 0 ? errno : 0;
}

static void below_child(void)
{
	struct rlimit r = {4096, 4096};
	union addr a;
	socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", 9);
	int i;

	MUST(setrlimit(RLIMIT_NOFILE, &r) == 0);
	for (i = 0; i < WEIR_SOCKETS_PER_SANDBOX + 50; i++)
		MUST(connect(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), &a.sa, len) == 0);
	MUST(udp_to("2001:db8::9", 9, "weir", 4) == 0);
	MUST(udp_to("192.0.2.53", 53, "\x12\x34\1\0\0\1\0\0\0\0\0\0\6secret\7example\0\0\1\0\1", 32) == 0);
	MUST(send_junk() == 0);
	_exit(0);
}

static void test_below(void **state)
{
	int passes;

	(void)state;
	for (passes = 0; passes < 2; passes++) {
		int l = stream_listener(7777), s;
		struct weir_sandbox before;
		pid_t pid;

		guard_set_unknown(t.guard, passes);
		before = unknown();
		leave(BOX_A);
		assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), 0);
		assert_int_equal(udp_from(BOX_DEEP, "192.0.2.1", 9), 0);
		assert_int_equal(tcp_from(BOX_DEEP, "192.0.2.1", 9), ECONNREFUSED);
		pid = spawn(BOX_DEEP, 0);
		if (pid == 0)
			below_child();
		child_ok(pid);
		pid = receiver(BOX_A, BOX_A, false);
		ask_from_outside();
		child_ok(pid);
		assert_int_equal(options_of(BOX_A, BOX_DEEP), ALL_OPTIONS);
		told->go = 0;
		pid = spawn(BOX_A, 0);
		if (pid == 0)
			stream_child();
		assert_true(heard(l, HEAR_MS));
		s = accept(l, NULL, NULL);
		assert_true(line_comes(s, HEAR_MS));
		expect_silence(BOX_A, &before);
		/* Once nobody judges it further down, it is unknown like any other. */
		must(guard_del_sandbox(t.guard, t.id[BOX_A], NULL), &(struct err){0});
		assert_int_equal(line_comes(s, passes ? HEAR_MS : 300), passes);
		assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), passes ? 0 : EPERM);
		drain();
		assert_true(seen.n >= 2);
		assert_int_equal(seen.ev[0].key.hook, WEIR_HOOK_EGRESS);
		assert_int_equal(seen.ev[0].key.protocol, IPPROTO_TCP);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		close(s);
		close(l);
		guard_sweep_flows(t.guard, t.id[BOX_A]);
	}
}

/* Leave given to one is no leave for another, whoever made the socket. */
static void test_below_carried(void **state)
{
	int passes;
	size_t i;

	(void)state;
	for (passes = 0; passes < 2; passes++)
		for (i = 0; i < 2; i++) {
			const uint8_t verdict = passes ? WEIR_WOULD_DENY : WEIR_DENY;
			const int rc = passes ? passed(types[i]) : EPERM;

			guard_set_unknown(t.guard, passes);
			leave(BOX_A);
			/* Its socket, used by a cgroup that is unknown. */
			assert_int_equal(carry(BOX_A, BOX_NONE, types[i]), rc);
			expect_one(BOX_NONE, hook_of(types[i]), verdict, WEIR_REASON_NO_ENTRY);
			guard_sweep_flows(t.guard, t.id[BOX_NONE]);
			/* The other's socket, used by it: it is the socket's attempt, as of a task outside. */
			assert_int_equal(carry(BOX_NONE, BOX_A, types[i]), rc);
			expect_one(BOX_NONE, hook_of(types[i]), verdict, WEIR_REASON_NO_ENTRY);
			guard_sweep_flows(t.guard, t.id[BOX_NONE]);
			assert_int_equal(counters(BOX_A).attempts + (uint64_t)counters(BOX_A).sockets, 0);
			/* Two that have leave, and one of them and the world. */
			leave(BOX_B);
			assert_int_equal(carry(BOX_B, BOX_A, types[i]), passed(types[i]));
			assert_int_equal(carry(BOX_A, BOX_OUT, types[i]), passed(types[i]));
			assert_int_equal(drain(), 0);
			must(guard_del_sandbox(t.guard, t.id[BOX_B], NULL), &(struct err){0});
		}
}

static void test_below_options(void **state)
{
	pid_t pid;

	(void)state;
	leave(BOX_A);
	assert_int_equal(options_of(BOX_A, BOX_NONE), 0);
	assert_int_equal(options_of(BOX_NONE, BOX_A), 0);
	assert_int_equal(counters(BOX_A).attempts, 0);
	guard_set_unknown(t.guard, true);
	assert_int_equal(options_of(BOX_A, BOX_NONE), ALL_OPTIONS);
	assert_int_equal(options_of(BOX_NONE, BOX_A), ALL_OPTIONS);
	guard_set_unknown(t.guard, false);
	/* What comes in is the business of whoever made the socket. */
	drain();
	pid = receiver(BOX_NONE, BOX_A, false);
	ask_from_outside();
	assert_false(is_over(pid, 100));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	expect_one(BOX_NONE, WEIR_HOOK_INGRESS, WEIR_DENY, WEIR_REASON_NO_ENTRY);
	pid = receiver(BOX_A, BOX_NONE, false);
	ask_from_outside();
	child_ok(pid);
	assert_int_equal(drain(), 0);
}

/* Datagram sockets count where they were made, and not where leave is. */
static void below_sockets_child(enum box made, enum box lives, int64_t want)
{
	union addr a;
	socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", 9);
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)made;
	move_to(lives);
	MUST(connect(s, &a.sa, len) == 0);
	MUST(unknown().sockets == want && counters(BOX_A).sockets == 0);
	close(s);
	MUST(unknown().sockets == 0 && counters(BOX_A).sockets == 0);
	_exit(0);
}

static void test_below_sockets(void **state)
{
	static const struct {
		enum box made, lives;
		int64_t want;
	} ways[] = {{BOX_A, BOX_NONE, 0}, {BOX_NONE, BOX_A, 1}, {BOX_A, BOX_A, 0}};
	size_t i;

	(void)state;
	leave(BOX_A);
	for (i = 0; i < sizeof ways / sizeof *ways; i++) {
		pid_t pid = spawn(ways[i].made, 0);

		if (pid == 0)
			below_sockets_child(ways[i].made, ways[i].lives, ways[i].want);
		child_ok(pid);
	}
}

/* Both at work: the parent's guard leaves to the child's what is the child's, and denies what nobody attached to. */
static void test_parent_and_child(void **state)
{
	struct guard *parent = t.guard;
	struct err e = {0};

	(void)state;
	over = whole_guard(over_pins, BOX_A, t.level, SMALL_RING);
	t.guard = over;
	set_policy(WHOLE_SLOT, WEIR_ALLOW, ANY_PACKET);
	govern(BOX_A, WHOLE_SLOT, 0);
	/* Without leave, either can deny. */
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), EPERM);
	t.guard = parent;
	leave(BOX_A);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), 0);
	assert_int_equal(udp_from(BOX_NONE, "192.0.2.1", 9), EPERM);
	t.guard = over;
	set_policy(WHOLE_SLOT, WEIR_DENY, ANY_PACKET);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), EPERM);
	assert_int_equal(tcp_from(BOX_A, "192.0.2.1", 9), EPERM);
	must(guard_verify(t.guard, t.fd[BOX_A], &e), &e);
	must(guard_verify(parent, t.fd[BOX_A], &e), &e);
	t.guard = parent;
	assert_int_equal(counters(BOX_A).attempts, 0);
}

/* ---- what is left of a guard ---- */

static int fresh; /* a cgroup that can be removed, directly below BOX_ROOT */

static uint64_t make_fresh(void)
{
	fresh = make_below(BOX_ROOT, "fresh");
	return inode_of(fresh);
}

struct state {
	bool pinned, attached, effective;
};

/* Every hook as `rest`, but for the one named. */
static void expect_links(const char *dir, const struct guard *held, int fd, uint64_t id, const char *but, struct state that,
			 struct state rest)
{
	struct guard_link links[GUARD_HOOKS];
	struct err e = {0};
	int i, found = 0;

	must(guard_examine(dir, held, fd, id, links, &e), &e);
	for (i = 0; i < GUARD_HOOKS; i++) {
		const struct guard_link *l = &links[i];
		const struct state *want = but && !strcmp(l->hook, but) ? &that : &rest;

		found += want == &that;
		if (l->pinned != want->pinned || l->attached != want->attached || l->effective != want->effective)
			fail_msg("%s: pinned %d, attached %d, effective %d", l->hook, l->pinned, l->attached, l->effective);
		assert_int_equal(strncmp(l->pin, "link_", 5), 0);
		assert_string_equal(l->pin + 5, l->hook);
	}
	assert_int_equal(found, but != NULL);
}

static const struct state whole = {true, true, true}, none = {false, false, false}, cut = {true, false, false},
			  unpinned = {false, true, true}, elsewhere = {true, true, false};

static void test_examine(void **state)
{
	struct guard_link links[GUARD_HOOKS];
	uint32_t ids[GUARD_HOOKS];
	struct err e = {0};
	int i;

	(void)state;
	expect_links(t.pins, NULL, t.fd[BOX_A], t.id[BOX_A], NULL, none, whole);
	expect_links(t.pins, t.guard, t.fd[BOX_DEEP], t.id[BOX_A], NULL, none, whole);
	expect_links(t.pins, NULL, t.fd[BOX_B], t.id[BOX_A], NULL, none, elsewhere);
	guard_programs(t.guard, ids);
	must(guard_examine(t.pins, NULL, t.fd[BOX_A], t.id[BOX_A], links, &e), &e);
	for (i = 0; i < GUARD_HOOKS; i++)
		assert_int_equal(links[i].prog_id, ids[i]);
	/* No pins at all. */
	expect_links("/sys/fs/bpf/weir-test-never", NULL, t.fd[BOX_A], t.id[BOX_A], NULL, none, none);
	expect_links("/sys/fs/bpf/weir-test-never", t.guard, t.fd[BOX_A], t.id[BOX_A], NULL, none, unpinned);
	/* Under the name of another's link. */
	assert_int_equal(unlink(pin_of("link_connect4")), 0);
	i = bpf_obj_get(pin_of("link_connect6"));
	assert_int_equal(bpf_obj_pin(i, pin_of("link_connect4")), 0);
	close(i);
	expect_links(t.pins, NULL, t.fd[BOX_A], t.id[BOX_A], "connect4", none, whole);
	expect_links(t.pins, t.guard, t.fd[BOX_A], t.id[BOX_A], "connect4", unpinned, whole);
}

/* A pin that is gone: somebody still has the link, or nobody, and then what it enforced is gone as well. */
static void test_pin_removed(void **state)
{
	int i;

	(void)state;
	govern(BOX_A, WHOLE_SLOT, 0);
	assert_int_equal(unlink(pin_of("link_egress")), 0);
	expect_links(t.pins, t.guard, t.fd[BOX_A], t.id[BOX_A], "egress", unpinned, whole);
	expect_links(t.pins, NULL, t.fd[BOX_A], t.id[BOX_A], "egress", none, whole);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), EPERM);
	t.guard = guard_free(t.guard);
	for (i = 0; i < 50 && udp_from(BOX_A, "192.0.2.1", 9) != 0; i++)
		usleep(20000);
	assert_true(i < 50);
	expect_links(t.pins, NULL, t.fd[BOX_A], t.id[BOX_A], "egress", none, whole);
	assert_int_equal(guard_adopt(&t.guard, t.pins, &(struct err){0}), -ENOENT);
}

/* Detached behind our back, the pin says nothing any more. */
static void test_link_detached(void **state)
{
	struct err e = {0};

	(void)state;
	govern(BOX_A, WHOLE_SLOT, 0);
	detach_pin("link_connect4");
	expect_links(t.pins, NULL, t.fd[BOX_A], t.id[BOX_A], "connect4", cut, whole);
	expect_links(t.pins, t.guard, t.fd[BOX_A], t.id[BOX_A], "connect4", cut, whole);
	assert_int_equal(guard_verify(t.guard, t.fd[BOX_A], &e), -ENOLINK);
	/* All of them, whoever has them open; twice is fine, and so is one whose pin is missing. */
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), EPERM);
	assert_int_equal(unlink(pin_of("link_release")), 0);
	must(guard_detach(t.pins, &e), &e);
	must(guard_detach(t.pins, &e), &e);
	must(guard_detach("/sys/fs/bpf/weir-test-never", &e), &e);
	expect_links(t.pins, NULL, t.fd[BOX_A], t.id[BOX_A], "release", none, cut);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), 0);
	/* The counters can be read on. */
	assert_int_equal(counters(BOX_A).denied, 1);
}

static bool is_attached(int fd, uint64_t id)
{
	struct guard_link links[GUARD_HOOKS];
	struct err e = {0};
	bool any = false;
	int i;

	must(guard_examine(t.pins, NULL, fd, id, links, &e), &e);
	for (i = 0; i < GUARD_HOOKS; i++)
		any |= links[i].attached;
	return any;
}

/* The cgroup is removed, and then there is another one of its name. */
static void test_cgroup_recreated(void **state)
{
	struct guard_opts o = {.pin_dir = t.pins, .level = t.level, .whole = true, .sandboxes_max = 1};
	uint64_t id = make_fresh(), again;
	struct err e = {0};
	int old = dup(fresh), i;

	(void)state;
	o.cgroup_fd = fresh;
	must(guard_create(&t.guard, &o, &e), &e);
	expect_links(t.pins, NULL, old, id, NULL, none, whole);
	remove_below(BOX_ROOT, "fresh", fresh);
	/* The kernel lets go of the programs a little later. */
	for (i = 0; i < 200 && is_attached(old, id); i++)
		usleep(10000);
	expect_links(t.pins, NULL, old, id, NULL, none, cut);
	expect_links(t.pins, NULL, -1, id, NULL, none, cut);
	again = make_fresh();
	assert_true(again != id);
	expect_links(t.pins, t.guard, fresh, again, NULL, none, cut);
	expect_links(t.pins, NULL, fresh, id, NULL, none, cut);
	must(guard_detach(t.pins, &e), &e);
	close(old);
	remove_below(BOX_ROOT, "fresh", fresh);
}

/* ---- what it takes ---- */

static uint64_t memory_of(int fd)
{
	char path[64], line[128];
	unsigned long long bytes = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof line, f) && sscanf(line, "memlock: %llu", &bytes) != 1)
		;
	fclose(f);
	close(fd);
	return bytes;
}

static uint64_t memory_of_programs(const struct guard *g)
{
	uint32_t ids[GUARD_HOOKS];
	uint64_t bytes = 0;
	int i;

	guard_programs(g, ids);
	for (i = 0; i < GUARD_HOOKS; i++)
		bytes += memory_of(bpf_prog_get_fd_by_id(ids[i]));
	return bytes;
}

static uint64_t memory_of_maps(void)
{
	static const char *const maps[] = {"sandboxes", "policies", "flows",  "denials", "events", "stats",
					   "strangers", "renewed",  "images", "tries",	 "lists"};
	uint64_t bytes = 0;
	size_t i;

	for (i = 0; i < sizeof maps / sizeof *maps; i++)
		bytes += memory_of(bpf_obj_get(pin_of(maps[i])));
	return bytes;
}

static void test_memory(void **state)
{
	uint64_t maps = memory_of_maps(), programs = memory_of_programs(t.guard);

	(void)state;
	print_message("  one attachment: %llu KiB of maps, %llu KiB of programs\n", (unsigned long long)maps >> 10,
		      (unsigned long long)programs >> 10);
	assert_true(maps > 256 * 1024 && maps < 1536 * 1024); /* before 6.4 the rings are not in it */
	assert_true(programs > 0 && programs < 256 * 1024);
}

/* ---- */

int main(void)
{
	const struct CMUnitTest tests[] = {
	    WITH(test_whole, setup_whole),
	    WITH(test_whole_deeper, setup_whole_deeper),
	    WITH(test_whole_carried, setup_whole),
	    WITH(test_whole_adopted, setup_whole),
	    WITH(test_prepared, setup_nothing),
	    WITH(test_bad_sizes, setup_nothing),
	    WITH(test_tiny_ring, setup_tiny),
	    WITH(test_renewed_while_running, setup_whole),
	    WITH(test_unknown_denied, setup_parent),
	    WITH(test_unknown_passes, setup_parent),
	    WITH(test_unknown_bounded, setup_parent),
	    WITH(test_unknown_stream, setup_parent),
	    WITH(test_unknown_older_stream, setup_nothing),
	    WITH(test_unknown_inbound, setup_parent),
	    WITH(test_unknown_sockets, setup_parent),
	    WITH(test_unknown_options, setup_parent),
	    WITH(test_watched_options, setup_whole),
	    WITH(test_below, setup_parent),
	    WITH(test_below_carried, setup_parent),
	    WITH(test_below_options, setup_parent),
	    WITH(test_below_sockets, setup_parent),
	    WITH(test_parent_and_child, setup_parent),
	    WITH(test_examine, setup_whole),
	    WITH(test_pin_removed, setup_whole),
	    WITH(test_link_detached, setup_whole),
	    WITH(test_cgroup_recreated, setup_nothing),
	    WITH(test_memory, setup_whole),
	};

	if (geteuid() != 0) {
		fprintf(stderr, "test_attached: needs root\n");
		return 1;
	}
	snprintf(over_pins, sizeof over_pins, "/sys/fs/bpf/weir-test-%d-over", getpid());
	return cmocka_run_group_tests(tests, setup_all, NULL);
}
