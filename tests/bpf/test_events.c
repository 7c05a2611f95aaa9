/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is told of an attempt, and that nothing of it is lost in silence: numbers of events, the two rings, packets by verdict,
 * what was asked for beside what was on the wire, failures by hook, and pins that another version left. Needs root.
 */
#include "scratch.h"

#include <linux/bpf.h>

#include "core/event.h"
#include "kernel/guardpins.h"

#define UDP_BYTES(payload) (20 + 8 + (payload))

/* Rings of a page each: room for ten events. */
enum { TINY = 4096, TINY_EVENTS = 10 };

static int setup_small(void **state)
{
	struct guard_opts o = {
	    .pin_dir = t.pins, .cgroup_fd = t.fd[BOX_ROOT], .level = t.level, .sandboxes_max = 8, .ring_bytes = TINY};
	struct err e = {0};

	(void)state;
	must(guard_create(&t.guard, &o, &e), &e);
	set_policy(DENYING, WEIR_DENY, ANY_PACKET);
	set_policy(ALLOWING, WEIR_ALLOW, ANY_PACKET | WEIR_IMG_INBOUND);
	memset(told, 0, sizeof *told);
	return 0;
}

/* One datagram to each of so many ports; `end`: what each must come to. */
static void spray(enum box box, uint16_t first, int ports, int end)
{
	pid_t pid = spawn(box, 0);

	if (pid == 0) {
		for (int i = 0; i < ports; i++)
			MUST(udp_to("192.0.2.1", (uint16_t)(first + i), "weir", 4) == end);
		_exit(0);
	}
	child_ok(pid);
}

/* How many of the numbers 1 .. `last` came; each once, and none beyond. */
static uint64_t numbers_seen(enum box box, uint64_t last)
{
	static bool there[8192];
	uint64_t n = 0;

	memset(there, 0, sizeof there);
	for (int i = 0; i < seen.n; i++) {
		const struct weir_event *ev = &seen.ev[i];

		if (ev->key.cgroup != t.id[box])
			continue;
		assert_in_range(ev->seq, 1, last);
		assert_in_range(ev->seq, 1, sizeof there - 1);
		assert_false(there[ev->seq]);
		there[ev->seq] = true;
		n++;
	}
	return n;
}

/* ---- numbers ---- */

static void test_numbers(void **state)
{
	struct weir_sandbox sb;

	(void)state;
	govern(BOX_A, DENYING, 0);
	govern(BOX_B, ALLOWING, 0);
	spray(BOX_A, 1000, 50, EPERM);
	spray(BOX_A, 1000, 50, EPERM); /* no news */
	spray(BOX_B, 1000, 30, 0);
	drain();
	assert_int_equal(seen.n, 80);
	assert_int_equal(numbers_seen(BOX_A, 50), 50);
	assert_int_equal(numbers_seen(BOX_B, 30), 30);
	sb = counters(BOX_A);
	assert_int_equal(sb.events, 50);
	assert_int_equal(sb.attempts, 100);
	/* What is not allowed to be listed is no event that got lost. */
	spray(BOX_A, 2000, WEIR_FLOWS_PER_SANDBOX, EPERM);
	drain();
	sb = counters(BOX_A);
	assert_int_equal(sb.events, WEIR_FLOWS_PER_SANDBOX);
	assert_int_equal(sb.unlisted, 50);
}

/* A number that never comes is an event that was lost, and an attempt that is counted. */
static void test_holes(void **state)
{
	uint64_t stats[WEIR_HOOK_COUNT][WEIR_STAT_COUNT], came;
	struct weir_sandbox sb;
	struct err e = {0};

	(void)state;
	govern(BOX_A, DENYING, 0);
	spray(BOX_A, 1000, 200, EPERM);
	drain();
	sb = counters(BOX_A);
	came = numbers_seen(BOX_A, 200);
	assert_in_range(came, TINY_EVENTS - 2, TINY_EVENTS);
	assert_int_equal(sb.events, 200);
	assert_int_equal(sb.unlisted, 200 - came);
	must(guard_stats_by_hook(t.guard, stats, &e), &e);
	assert_int_equal(stats[WEIR_HOOK_EGRESS][WEIR_STAT_RING_FULL], 200 - came);
	/* The next one shows where they are missing. */
	spray(BOX_A, 5000, 1, EPERM);
	drain();
	assert_int_equal(seen.n, 1);
	assert_int_equal(seen.ev[0].seq, 201);
}

/* ---- two rings ---- */

static void test_allowed_keep_no_denial_out(void **state)
{
	struct weir_sandbox sb;

	(void)state;
	govern(BOX_A, ALLOWING, 0);
	govern(BOX_B, DENYING, 0);
	spray(BOX_A, 1000, 200, 0);
	sb = counters(BOX_A);
	assert_in_range(sb.unlisted, 200 - TINY_EVENTS, 199); /* that ring is full */
	spray(BOX_B, 3000, 8, EPERM);
	drain();
	assert_int_equal(numbers_seen(BOX_B, 8), 8);
	/* They came later, and are told first. */
	for (int i = 0; i < 8; i++)
		assert_int_equal(ntohs(seen.ev[i].key.dport_be), 3000 + i);
	assert_int_equal(counters(BOX_B).unlisted, 0);
}

static void test_denials_keep_no_allowed_out(void **state)
{
	(void)state;
	govern(BOX_A, DENYING, 0);
	govern(BOX_B, ALLOWING, 0);
	spray(BOX_A, 1000, 200, EPERM);
	spray(BOX_B, 3000, 8, 0);
	drain();
	assert_int_equal(numbers_seen(BOX_B, 8), 8);
	assert_int_equal(counters(BOX_B).unlisted, 0);
}

/* One descriptor says that there is something in either. */
static void test_both_wake(void **state)
{
	struct pollfd p = {.fd = guard_ring_fd(t.guard), .events = POLLIN};

	(void)state;
	govern(BOX_A, DENYING, 0);
	govern(BOX_B, ALLOWING, 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	spray(BOX_B, 3000, 1, 0);
	assert_int_equal(poll(&p, 1, HEAR_MS), 1);
	assert_int_equal(drain(), 1);
	assert_int_equal(poll(&p, 1, 0), 0);
	spray(BOX_A, 3000, 1, EPERM);
	assert_int_equal(poll(&p, 1, HEAR_MS), 1);
	assert_int_equal(drain(), 1);
	/* A budget ends in the middle of the first, and what is left waits. */
	spray(BOX_A, 4000, 3, EPERM);
	spray(BOX_B, 4000, 3, 0);
	seen.n = 0;
	assert_int_equal(guard_drain(t.guard, 2, see, &seen), 2);
	assert_int_equal(guard_drain(t.guard, 2, see, &seen), 2);
	assert_int_equal(guard_drain(t.guard, 9, see, &seen), 2);
	for (int i = 0; i < 6; i++)
		assert_int_equal(seen.ev[i].key.verdict, i < 3 ? WEIR_DENY : WEIR_ALLOW);
}

/* ---- packets by verdict ---- */

static void test_packets(void **state)
{
	struct weir_sandbox sb;

	(void)state;
	govern(BOX_A, DENYING, 0);
	spray(BOX_A, 1000, 7, EPERM);
	sb = counters(BOX_A);
	assert_int_equal(sb.denied_packets, 7);
	assert_int_equal(sb.denied_bytes, 7 * UDP_BYTES(4));
	assert_int_equal(sb.packets + sb.bytes + sb.watched_packets + sb.watched_bytes, 0);
	assert_int_equal(tcp_from(BOX_A, "192.0.2.1", 80), EPERM); /* no packet of it was ever made */
	assert_int_equal(counters(BOX_A).denied_packets, 7);

	set_policy(DENYING, WEIR_DENY, ANY_PACKET | WEIR_IMG_MONITOR);
	spray(BOX_A, 1000, 5, 0);
	sb = counters(BOX_A);
	assert_int_equal(sb.watched_packets, 5);
	assert_int_equal(sb.watched_bytes, 5 * UDP_BYTES(4));
	assert_int_equal(sb.packets, 5);
	assert_int_equal(sb.bytes, 5 * UDP_BYTES(4));
	assert_int_equal(sb.denied_packets, 7);

	govern(BOX_A, ALLOWING, 0);
	spray(BOX_A, 1000, 3, 0);
	sb = counters(BOX_A);
	assert_int_equal(sb.packets, 3);
	assert_int_equal(sb.denied_packets + sb.watched_packets, 0);
	/* A set-up probe is none of the workload's. */
	set_policy(DENYING, WEIR_DENY, ANY_PACKET);
	govern(BOX_A, DENYING, WEIR_SB_PROBE);
	spray(BOX_A, 1000, 3, EPERM);
	assert_int_equal(counters(BOX_A).denied_packets, 0);
}

/* ---- what was asked for ---- */

#define ELSEWHERE "10.9.9.9" /* where somebody else's program sends it all */
enum { ELSEWHERE_PORT = 99 };

/* Attached where ours are, and later: it runs behind them. */
static int rewrite(enum bpf_attach_type hook)
{
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = hook);
	const int32_t port = htons(ELSEWHERE_PORT);
	struct in_addr to;
	int prog, link;

	inet_pton(AF_INET, ELSEWHERE, &to);
	const struct bpf_insn insns[] = {
	    {.code = BPF_ALU | BPF_MOV | BPF_K, .dst_reg = 2, .imm = (int32_t)to.s_addr},
	    {.code = BPF_STX | BPF_MEM | BPF_W, .dst_reg = 1, .src_reg = 2, .off = offsetof(struct bpf_sock_addr, user_ip4)},
	    {.code = BPF_ALU | BPF_MOV | BPF_K, .dst_reg = 2, .imm = port},
	    {.code = BPF_STX | BPF_MEM | BPF_W, .dst_reg = 1, .src_reg = 2, .off = offsetof(struct bpf_sock_addr, user_port)},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 1},
	    {.code = BPF_JMP | BPF_EXIT},
	};

	prog = bpf_prog_load(BPF_PROG_TYPE_CGROUP_SOCK_ADDR, "rewrite", "GPL", insns, sizeof insns / sizeof *insns, &opts);
	assert_true(prog >= 0);
	link = bpf_link_create(prog, t.fd[BOX_ROOT], hook, NULL);
	assert_true(link >= 0);
	close(prog);
	return link;
}

static void expect_asked(const struct weir_event *ev, const char *to, uint16_t port)
{
	uint8_t addr[16];

	if (!to) {
		assert_int_equal(ev->requested_family, 0);
		memset(addr, 0, sizeof addr);
	} else {
		assert_int_equal(ev->requested_family, strchr(to, ':') ? 6 : 4);
		daddr_of(addr, to);
	}
	assert_memory_equal(ev->requested, addr, sizeof addr);
	assert_int_equal(ntohs(ev->requested_port_be), port);
}

static void expect_wire(const struct weir_event *ev, const char *to, uint16_t port)
{
	uint8_t addr[16];

	daddr_of(addr, to);
	assert_memory_equal(ev->key.daddr, addr, sizeof addr);
	assert_int_equal(ntohs(ev->key.dport_be), port);
}

static int send_connected(int s, const char *to, uint16_t port)
{
	union addr a;

	if (connect(s, &a.sa, addr_of(&a, AF_INET, to, port)) < 0)
		return errno;
	return send(s, "x", 1, 0) < 0 ? errno : 0;
}

static void test_asked_and_sent(void **state)
{
	const int links[] = {rewrite(BPF_CGROUP_UDP4_SENDMSG), rewrite(BPF_CGROUP_INET4_CONNECT)};
	pid_t pid;

	(void)state;
	govern(BOX_A, DENYING, 0);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), EPERM);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_DEFAULT);
	expect_asked(&seen.ev[0], "192.0.2.1", 9);
	expect_wire(&seen.ev[0], ELSEWHERE, ELSEWHERE_PORT);

	govern(BOX_A, DENYING, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		_exit(send_connected(socket(AF_INET, SOCK_DGRAM, 0), "192.0.2.7", 53));
	assert_int_equal(reap(pid), EPERM);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_DEFAULT);
	expect_asked(&seen.ev[0], "192.0.2.7", 53);
	expect_wire(&seen.ev[0], ELSEWHERE, ELSEWHERE_PORT);

	/* At a connect() nothing has been rewritten yet. */
	assert_int_equal(tcp_from(BOX_A, "192.0.2.8", 443), EPERM);
	expect_one(BOX_A, WEIR_HOOK_CONNECT4, WEIR_DENY, WEIR_REASON_DEFAULT);
	expect_asked(&seen.ev[0], "192.0.2.8", 443);
	expect_wire(&seen.ev[0], "192.0.2.8", 443);
	close(links[0]);
	close(links[1]);
}

/* In a child of its own: what it sends on a socket that is connected. */
static void child_sends(int s)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(send(s, "x", 1, 0) < 0 ? errno : 0);
	MUST(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == EPERM);
}

static void test_whose_name(void **state)
{
	pid_t pid;

	(void)state;
	govern(BOX_A, DENYING, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0) {
		int s = socket(AF_INET, SOCK_DGRAM, 0);
		union addr a;

		MUST(connect(s, &a.sa, addr_of(&a, AF_INET, "192.0.2.1", 1)) == 0);
		child_sends(s);
		MUST(connect(s, &a.sa, addr_of(&a, AF_INET, "192.0.2.3", 3)) == 0);
		MUST(sendto(s, "x", 1, 0, &a.sa, addr_of(&a, AF_INET, "192.0.2.2", 2)) < 0 && errno == EPERM);
		child_sends(s);
		_exit(0);
	}
	child_ok(pid);
	assert_int_equal(drain(), 3);
	expect_asked(&seen.ev[0], "192.0.2.1", 1); /* connected: that holds for whoever uses it */
	expect_asked(&seen.ev[1], "192.0.2.2", 2);
	/* What its parent named last was for another packet. */
	expect_wire(&seen.ev[2], "192.0.2.3", 3);
	expect_asked(&seen.ev[2], NULL, 0);
}

static void test_asked_in_ipv6(void **state)
{
	(void)state;
	govern(BOX_A, DENYING, 0);
	assert_int_equal(udp_from(BOX_A, "2001:db8::9", 9), EPERM);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_DEFAULT);
	expect_asked(&seen.ev[0], "2001:db8::9", 9);
}

/* Of a raw socket's packet nobody was told where it was to go. */
static void test_not_asked(void **state)
{
	pid_t pid;

	(void)state;
	govern(BOX_A, DENYING, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0) {
		union addr a;
		socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", 0);

		_exit(sendto(socket(AF_INET, SOCK_RAW, 253), "x", 1, 0, &a.sa, len) < 0 ? errno : 0);
	}
	assert_int_equal(reap(pid), EPERM);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_DEFAULT);
	assert_int_equal(seen.ev[0].socket_type, SOCK_RAW);
	expect_asked(&seen.ev[0], NULL, 0);
}

/* ---- failures ---- */

static void test_stats_by_hook(void **state)
{
	uint64_t by_hook[WEIR_HOOK_COUNT][WEIR_STAT_COUNT], sum[WEIR_STAT_COUNT];
	struct err e = {0};

	(void)state;
	drain();
	assert_int_equal(tcp_from(BOX_NONE, "192.0.2.1", 9), EPERM);
	assert_int_equal(udp_from(BOX_NONE, "192.0.2.1", 9), EPERM);
	assert_int_equal(udp_from(BOX_NONE, "192.0.2.1", 9), EPERM);
	must(guard_stats_by_hook(t.guard, by_hook, &e), &e);
	must(guard_stats(t.guard, sum, &e), &e);
	assert_int_equal(by_hook[WEIR_HOOK_CONNECT4][WEIR_STAT_NO_ENTRY], 1);
	assert_int_equal(by_hook[WEIR_HOOK_EGRESS][WEIR_STAT_NO_ENTRY], 2);
	assert_int_equal(sum[WEIR_STAT_NO_ENTRY], 3);
	for (int hook = 0; hook < WEIR_HOOK_COUNT; hook++)
		assert_int_equal(by_hook[hook][WEIR_STAT_RING_FULL] + by_hook[hook][WEIR_STAT_FLOW_FULL], 0);
	/* Those without an entry are numbered together. */
	drain();
	assert_int_equal(numbers_seen(BOX_NONE, 2), 2);
}

/* ---- pins that another version left ---- */

static void test_other_version(void **state)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = 0);
	struct guardpins pins;
	struct err e = {0};
	int map;

	(void)state;
	govern(BOX_A, DENYING, 0);
	guardpins_read(t.pins, t.id[BOX_A], &pins);
	assert_true(pins.has_entry && pins.has_unknown && pins.has_slot && pins.has_stats);
	t.guard = guard_free(t.guard);
	/* Before denials had a ring of their own. */
	assert_int_equal(unlink(pin_of("denials")), 0);
	assert_int_equal(guard_adopt(&t.guard, t.pins, &e), -EPROTO);
	assert_null(t.guard);
	assert_non_null(strstr(e.msg, "another version of Weir"));
	/* Entries were shorter: read as ours they would say something else. */
	map = bpf_map_create(BPF_MAP_TYPE_HASH, "sandboxes", sizeof(uint64_t), 112, 8, &opts);
	assert_true(map >= 0);
	assert_int_equal(unlink(pin_of("sandboxes")), 0);
	assert_int_equal(bpf_obj_pin(map, pin_of("sandboxes")), 0);
	close(map);
	assert_int_equal(guard_adopt(&t.guard, t.pins, &e), -EPROTO);
	assert_non_null(strstr(e.msg, "\"sandboxes\""));
	guardpins_read(t.pins, t.id[BOX_A], &pins);
	assert_false(pins.has_entry);
	assert_false(pins.no_entry);
	assert_true(pins.has_slot);
	assert_int_equal(guardpins_give_leave(t.pins, t.id[BOX_B], &e), -EPROTO);
	/* It judges all the same. */
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), EPERM);
	/* One that is not there at all is none of another version's. */
	assert_int_equal(guard_adopt(&t.guard, "/sys/fs/bpf/weir-test-none", &e), -ENOENT);
}

#define SMALL(f) cmocka_unit_test_setup_teardown(f, setup_small, teardown_guard)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    T(test_numbers),
	    SMALL(test_holes),
	    SMALL(test_allowed_keep_no_denial_out),
	    SMALL(test_denials_keep_no_allowed_out),
	    SMALL(test_both_wake),
	    T(test_packets),
	    T(test_asked_and_sent),
	    T(test_whose_name),
	    T(test_asked_in_ipv6),
	    T(test_not_asked),
	    T(test_stats_by_hook),
	    T(test_other_version),
	};

	if (geteuid() != 0) {
		fprintf(stderr, "test_events: needs root\n");
		return 1;
	}
	return cmocka_run_group_tests(tests, setup_all, NULL);
}
