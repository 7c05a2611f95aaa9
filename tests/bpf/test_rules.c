/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies in force on real sockets: which rule an attempt is told to have met, in which spelling of the address; policies that
 * only watch; what comes in from outside; and what must not be gained by having been let in. Needs root.
 */
#include "scratch.h"

enum { RULES = 9 };

/* Allow everything but 10.0.0.0/8 (rule 2) and, of 192.0.2.0/24, UDP to 53 (rule 5, a longer prefix than rule 4). */
static struct policy_image image_with_rules(uint32_t flags, uint8_t rest)
{
	static struct weir_prefix prefixes[] = {
	    {.len = 32, .family = {0, 0, 0, 4}},
	    {.len = 40, .family = {0, 0, 0, 4}, .addr = {10}},
	    {.len = 56, .family = {0, 0, 0, 4}, .addr = {192, 0, 2}},
	    {.len = 32, .family = {0, 0, 0, 6}},
	    {.len = 96, .family = {0, 0, 0, 6}, .addr = {0x20, 0x01, 0x0d, 0xb8, 0, 0x64}},
	};
	static uint32_t list_of[] = {0, 1, 2, 0, 3};
	static struct weir_list lists[] = {
	    {0},
	    {.count = 1, .atoms = {{2, 0, 65535, 0, WEIR_ATOM_ANY_PROTOCOL | WEIR_ATOM_ANY_PORT, WEIR_DENY, 0}}},
	    {.count = 2,
	     .atoms = {{5, 53, 53, IPPROTO_UDP, 0, WEIR_DENY, 0},
		       {4, 0, 65535, 0, WEIR_ATOM_ANY_PROTOCOL | WEIR_ATOM_ANY_PORT, WEIR_ALLOW, 0}}},
	    {.count = 1, .atoms = {{6, 0, 65535, 0, WEIR_ATOM_ANY_PROTOCOL | WEIR_ATOM_ANY_PORT, WEIR_ALLOW, 0}}},
	};
	struct policy_image img = {
	    .head = {.present = 1,
		     .flags = flags,
		     .sockets_max = WEIR_SOCKETS_PER_SANDBOX,
		     .default_verdict = rest,
		     .nat64_count = 1,
		     .nat64 = {{.addr = {0x20, 0x01, 0x0d, 0xb8, 0, 0x64}, .len = 96}}},
	    .prefixes = prefixes,
	    .list_of = list_of,
	    .prefix_count = sizeof prefixes / sizeof *prefixes,
	    .lists = lists,
	    .list_count = sizeof lists / sizeof *lists,
	};

	return img;
}

static void use_rules(uint32_t flags, uint8_t rest)
{
	struct policy_image img = image_with_rules(flags, rest);
	struct err e = {0};

	must(guard_set_policy(t.guard, RULES, &img, NULL, &e), &e);
	govern(BOX_A, RULES, 0);
}

/* ---- which rule, in which spelling ---- */

static const struct meeting {
	int family, type;
	const char *to;
	uint16_t port;
	uint8_t hook, verdict, reason, via, wire_family;
	uint16_t rule;
} meetings[] = {
    {AF_INET, SOCK_STREAM, "10.1.2.3", 80, WEIR_HOOK_CONNECT4, WEIR_DENY, WEIR_REASON_RULE, 0, 4, 2},
    {AF_INET, SOCK_DGRAM, "10.1.2.3", 80, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_RULE, 0, 4, 2},
    {AF_INET, SOCK_DGRAM, "192.0.2.7", 53, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_RULE, 0, 4, 5},
    {AF_INET, SOCK_DGRAM, "192.0.2.7", 54, WEIR_HOOK_EGRESS, WEIR_ALLOW, WEIR_REASON_RULE, 0, 4, 4},
    {AF_INET, SOCK_DGRAM, "198.51.100.1", 53, WEIR_HOOK_EGRESS, WEIR_ALLOW, WEIR_REASON_DEFAULT, 0, 4, 0},
    {AF_INET6, SOCK_STREAM, "::ffff:10.1.2.3", 80, WEIR_HOOK_CONNECT6, WEIR_DENY, WEIR_REASON_RULE, WEIR_VIA_MAPPED, 4, 2},
    {AF_INET6, SOCK_DGRAM, "::ffff:10.1.2.3", 80, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_RULE, 0, 4, 2},
    {AF_INET6, SOCK_STREAM, "64:ff9b::a01:203", 80, WEIR_HOOK_CONNECT6, WEIR_DENY, WEIR_REASON_RULE, WEIR_VIA_NAT64, 6, 2},
    {AF_INET6, SOCK_DGRAM, "64:ff9b::a01:203", 80, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_RULE, WEIR_VIA_NAT64, 6, 2},
    {AF_INET6, SOCK_DGRAM, "64:ff9b::c633:6401", 80, WEIR_HOOK_EGRESS, WEIR_ALLOW, WEIR_REASON_DEFAULT, 0, 6, 0},
    {AF_INET6, SOCK_DGRAM, "2001:db8:64::a01:203", 80, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_RULE, WEIR_VIA_NAT64_CONFIGURED,
     6, 2},
    {AF_INET6, SOCK_DGRAM, "2001:db8:64::c633:6401", 80, WEIR_HOOK_EGRESS, WEIR_ALLOW, WEIR_REASON_RULE, 0, 6, 6},
    {AF_INET6, SOCK_DGRAM, "2002:a01:203::1", 80, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_RULE, WEIR_VIA_6TO4, 6, 2},
    {AF_INET6, SOCK_DGRAM, "2001:0:a01:203::f5fe:fdfc", 80, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_RULE,
     WEIR_VIA_TEREDO_SERVER, 6, 2},
    {AF_INET6, SOCK_DGRAM, "2001:0:c633:6401::f5fe:fdfc", 80, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_RULE,
     WEIR_VIA_TEREDO_CLIENT, 6, 2},
    {AF_INET6, SOCK_DGRAM, "2001:db8::5efe:a01:203", 80, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_RULE, WEIR_VIA_ISATAP, 6, 2},
    {AF_INET6, SOCK_DGRAM, "::ffff:0:a01:203", 80, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_RULE, WEIR_VIA_TRANSLATED, 6, 2},
    {AF_INET6, SOCK_DGRAM, "::a01:203", 80, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_RULE, WEIR_VIA_COMPATIBLE, 6, 2},
};

static int meet(const struct meeting *m)
{
	int s = socket(m->family, m->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	union addr to;
	socklen_t len = addr_of(&to, m->family, m->to, m->port);

	if (m->type == SOCK_STREAM)
		return connect(s, &to.sa, len) < 0 && errno != EINPROGRESS ? errno : 0;
	return sendto(s, "weir", 4, 0, &to.sa, len) < 0 ? errno : 0;
}

static void test_which_rule(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof meetings / sizeof *meetings; i++) {
		const struct meeting *m = &meetings[i];
		uint8_t daddr[16];
		pid_t pid;
		int rc;

		use_rules(ANY_PACKET, WEIR_ALLOW);
		pid = spawn(BOX_A, 0);
		if (pid == 0)
			_exit(meet(m));
		rc = reap(pid);
		if (rc != (m->verdict == WEIR_DENY ? EPERM : 0))
			fail_msg("%s port %u: %s", m->to, m->port, strerror(rc));
		expect_one(BOX_A, m->hook, m->verdict, m->reason);
		if (seen.ev[0].key.rule != m->rule || seen.ev[0].key.via != m->via || seen.ev[0].key.family != m->wire_family)
			fail_msg("%s port %u: rule %u, via %u, family %u", m->to, m->port, seen.ev[0].key.rule,
				 seen.ev[0].key.via, seen.ev[0].key.family);
		daddr_of(daddr, m->wire_family == 4 && strchr(m->to, ':') ? strrchr(m->to, ':') + 1 : m->to);
		assert_memory_equal(seen.ev[0].key.daddr, daddr, 16);
	}
}

/* ---- a policy that only watches ---- */

static void test_monitor(void **state)
{
	struct weir_sandbox sb;
	int l;

	(void)state;
	use_rules(WEIR_IMG_MONITOR, WEIR_DENY);
	l = udp_listener(9);
	assert_int_equal(udp_from(BOX_A, "10.0.0.1", 9), 0);
	assert_true(heard(l, HEAR_MS));
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_WOULD_DENY, WEIR_REASON_RULE);
	assert_int_equal(seen.ev[0].key.rule, 2);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), 0);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_ALLOW, WEIR_REASON_RULE);
	sb = counters(BOX_A);
	assert_int_equal(sb.attempts, 2);
	assert_int_equal(sb.allowed, 1);
	assert_int_equal(sb.would_deny, 1);
	assert_int_equal(sb.denied, 0);
	assert_int_equal(sb.packets, 2);
	close(l);
	/* Where no policy is, nobody watches: denied. */
	assert_int_equal(udp_from(BOX_NONE, "192.0.2.1", 9), EPERM);
	govern(BOX_A, EMPTY_SLOT, 0);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), EPERM);
}

/* What is allowed is counted, and told only when the policy asks for it. */
static void test_quiet(void **state)
{
	struct weir_sandbox sb;

	(void)state;
	use_rules(WEIR_IMG_QUIET_ALLOW, WEIR_ALLOW);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), 0);
	assert_int_equal(drain(), 0);
	assert_int_equal(udp_from(BOX_A, "10.0.0.1", 9), EPERM);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_RULE);
	sb = counters(BOX_A);
	assert_int_equal(sb.attempts, 2);
	assert_int_equal(sb.allowed, 1);
	assert_int_equal(sb.flows, 1);
	assert_int_equal(sb.unlisted, 0);
}

/* ---- from outside ---- */

#define IN_PORT 7790

static void wait_for_child(void)
{
	int i;

	for (i = 0; i < 2000 && !__atomic_load_n(&told->go, __ATOMIC_ACQUIRE); i++)
		usleep(1000);
	assert_true(told->go != 0);
}

enum first { NOTHING, CONNECTS, IS_DENIED, SENDS };

/* Waits for one datagram for as long as it takes, and does something before. */
static void receive_child(enum first first)
{
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	union addr any, a, denied;
	socklen_t len = addr_of(&a, AF_INET, "192.0.2.8", 4000), denied_len = addr_of(&denied, AF_INET, "10.0.0.1", 4000);
	union addr none = {.sa = {.sa_family = AF_UNSPEC}};
	char line[8];

	MUST(bind(s, &any.sa, addr_of(&any, AF_INET, "0.0.0.0", IN_PORT)) == 0);
	if (first == SENDS)
		MUST(sendto(s, "x", 1, 0, &a.sa, len) == 1);
	if (first == IS_DENIED)
		MUST(sendto(s, "x", 1, 0, &denied.sa, denied_len) < 0 && errno == EPERM);
	if (first == CONNECTS)
		MUST(connect(s, &a.sa, len) == 0 && connect(s, &none.sa, sizeof none.sa) == 0);
	__atomic_store_n(&told->go, 1, __ATOMIC_RELEASE);
	MUST(recv(s, line, sizeof line, 0) == 4);
	_exit(0);
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

/* The address it comes to is one that the rules deny: what is on the same machine counts as outside. */
static void ask_from_outside(void)
{
	assert_int_equal(udp_to("203.0.113.9", IN_PORT, "weir", 4), 0);
}

static pid_t receiver(enum first first)
{
	pid_t pid;

	told->go = 0;
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		receive_child(first);
	wait_for_child();
	return pid;
}

static void test_inbound_datagram(void **state)
{
	enum first first;
	pid_t pid;

	(void)state;
	/* Neither pointing the socket somewhere nor a send that was refused opens it. */
	for (first = NOTHING; first <= IS_DENIED; first++) {
		use_rules(0, WEIR_DENY);
		pid = receiver(first);
		drain();
		ask_from_outside();
		assert_false(is_over(pid, 100));
		expect_one(BOX_A, WEIR_HOOK_INGRESS, WEIR_DENY, WEIR_REASON_INBOUND);
		assert_int_equal(seen.ev[0].key.protocol, IPPROTO_UDP);
		assert_int_equal(ntohs(seen.ev[0].key.dport_be), IN_PORT);
		assert_int_equal(counters(BOX_A).inbound, 1);
		assert_int_equal(counters(BOX_A).attempts, first == IS_DENIED);
		/* The same datagram when connections from outside are welcome. */
		use_rules(WEIR_IMG_INBOUND, WEIR_DENY);
		ask_from_outside();
		child_ok(pid);
	}
	/* When they are only watched. */
	use_rules(WEIR_IMG_MONITOR, WEIR_DENY);
	pid = receiver(NOTHING);
	ask_from_outside();
	child_ok(pid);
	expect_one(BOX_A, WEIR_HOOK_INGRESS, WEIR_WOULD_DENY, WEIR_REASON_INBOUND);
	/* Whoever has asked may be answered. */
	use_rules(0, WEIR_DENY);
	pid = receiver(SENDS);
	ask_from_outside();
	child_ok(pid);
	assert_int_equal(counters(BOX_A).inbound, 0);
	/* And whoever is on this host may come where the rules would let one go oneself. */
	use_rules(0, WEIR_ALLOW);
	pid = receiver(NOTHING);
	ask_from_outside();
	child_ok(pid);
}

/* A thousand senders hide nothing: what comes in has places of its own. */
static void test_inbound_flood(void **state)
{
	struct weir_sandbox sb;
	char from[32];
	pid_t pid;
	int i;

	(void)state;
	use_rules(0, WEIR_DENY);
	pid = receiver(NOTHING);
	for (i = 0; i < 1100; i++) {
		int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		union addr a;
		socklen_t len;

		snprintf(from, sizeof from, "203.0.%d.%d", 112 + (i >> 8), i & 255);
		len = addr_of(&a, AF_INET, from, 0);
		assert_int_equal(bind(s, &a.sa, len), 0);
		len = addr_of(&a, AF_INET, "203.0.113.9", IN_PORT);
		assert_int_equal(sendto(s, "weir", 4, 0, &a.sa, len), 4);
		close(s);
	}
	sb = counters(BOX_A);
	assert_int_equal(sb.inbound, 1100);
	assert_int_equal(sb.inbound_flows, WEIR_INBOUND_FLOWS_PER_SANDBOX);
	assert_int_equal(sb.attempts + sb.flows + sb.unlisted, 0);
	assert_int_equal(drain(), WEIR_INBOUND_FLOWS_PER_SANDBOX);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Accepts one, answers it, then tries to go somewhere else with the sockets that may answer. */
static void answer_child(void)
{
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), s, fresh = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	union addr any, a, none = {.sa = {.sa_family = AF_UNSPEC}};
	socklen_t len = addr_of(&a, AF_INET, "198.51.100.9", 4001);

	MUST(bind(l, &any.sa, addr_of(&any, AF_INET, "0.0.0.0", IN_PORT)) == 0 && listen(l, 1) == 0);
	__atomic_store_n(&told->go, 1, __ATOMIC_RELEASE);
	s = accept(l, NULL, NULL);
	MUST(s >= 0 && send(s, "weir", 4, 0) == 4);
	MUST(connect(fresh, &a.sa, len) < 0 && errno == EPERM);
	/* Letting go resets the connection: not before the answer has been read. */
	while (__atomic_load_n(&told->go, __ATOMIC_ACQUIRE) != 2)
		usleep(1000);
	MUST(connect(s, &none.sa, sizeof none.sa) == 0);
	MUST(connect(s, &a.sa, len) < 0 && errno == EPERM);
	MUST(connect(l, &none.sa, sizeof none.sa) == 0);
	MUST(connect(l, &a.sa, len) < 0 && errno == EPERM);
	_exit(0);
}

static void test_answers_only(void **state)
{
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
	    elsewhere = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	union addr a;
	socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", IN_PORT);
	char line[4];
	pid_t pid;

	(void)state;
	assert_int_equal(bind(elsewhere, &a.sa, addr_of(&a, AF_INET, "0.0.0.0", 4001)), 0);
	assert_int_equal(listen(elsewhere, 8), 0);
	addr_of(&a, AF_INET, "192.0.2.1", IN_PORT);
	/* Deny every destination, the asker's included. */
	set_policy(DENYING, WEIR_DENY, WEIR_IMG_INBOUND);
	govern(BOX_A, DENYING, 0);
	told->go = 0;
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		answer_child();
	wait_for_child();
	if (connect(s, &a.sa, len) < 0)
		fail_msg("not let in: %s", strerror(errno));
	assert_true(heard(s, HEAR_MS));
	assert_int_equal(recv(s, line, 4, 0), 4);
	__atomic_store_n(&told->go, 2, __ATOMIC_RELEASE);
	child_ok(pid);
	assert_false(heard(elsewhere, QUIET_MS));
	assert_int_equal(counters(BOX_A).denied, 3);
	close(s);
	close(elsewhere);
}

/* ---- to many ---- */

#define GROUP "224.0.0.250" /* of the link: others would take the default route */

static int group_listener(uint16_t port)
{
	struct ip_mreqn m = {.imr_ifindex = 1};
	int s = udp_listener(port);

	inet_pton(AF_INET, GROUP, &m.imr_multiaddr);
	assert_int_equal(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m), 0);
	return s;
}

static int to_group(int connected)
{
	struct ip_mreqn m = {.imr_ifindex = 1};
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	union addr a;
	socklen_t len = addr_of(&a, AF_INET, GROUP, 7791);

	if (setsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &m, sizeof m) < 0)
		return 253;
	if (connected)
		return connect(s, &a.sa, len) < 0 || send(s, "weir", 4, 0) < 0 ? errno : 0;
	return sendto(s, "weir", 4, 0, &a.sa, len) < 0 ? errno : 0;
}

/*
 * The kernel copies what goes to a group for listeners on this host, before the packet hook is asked: so who is asked when.
 * It does not over loopback, which is all there is here; the copy itself is heard in tests/system/test_vectors.py.
 */
static void test_to_many(void **state)
{
	int connected, verdict, l = group_listener(7791);

	(void)state;
	/* Of a sandbox with a network of its own the packet is judged, and the copy is its own affair. */
	govern(BOX_A, DENYING, WEIR_SB_OWN_NET);
	{
		pid_t pid = spawn(BOX_A, 0);

		if (pid == 0)
			_exit(to_group(0));
		assert_int_equal(reap(pid), EPERM);
		expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_DEFAULT);
	}
	for (verdict = 0; verdict < 2; verdict++)
		for (connected = 0; connected < 2; connected++) {
			char line[8];
			pid_t pid;

			govern(BOX_A, verdict ? ALLOWING : DENYING, 0);
			pid = spawn(BOX_A, 0);
			if (pid == 0)
				_exit(to_group(connected));
			assert_int_equal(reap(pid), verdict ? 0 : EPERM);
			assert_int_equal(heard(l, verdict ? HEAR_MS : QUIET_MS), verdict);
			while (recv(l, line, sizeof line, 0) > 0)
				;
			if (!verdict)
				expect_one(BOX_A, connected ? WEIR_HOOK_CONNECT4 : WEIR_HOOK_SENDMSG4, WEIR_DENY,
					   WEIR_REASON_DEFAULT);
			else
				expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_ALLOW, WEIR_REASON_DEFAULT);
		}
	close(l);
}

/* ---- joining a group: the kernel reports it, with the address ---- */

static int join(int family, int source)
{
	struct ip_mreqn m = {.imr_ifindex = 1};
	struct ip_mreq_source ms = {0};
	struct group_req g = {.gr_interface = 1};
	struct ipv6_mreq m6 = {.ipv6mr_interface = 1};
	int s = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (family == AF_INET6 && source) {
		addr_of((void *)&g.gr_group, AF_INET6, "ff1e:beef::1", 0);
		return setsockopt(s, IPPROTO_IPV6, MCAST_JOIN_GROUP, &g, sizeof g) < 0 ? errno : 0;
	}
	if (family == AF_INET6) {
		inet_pton(AF_INET6, "ff1e:beef::1", &m6.ipv6mr_multiaddr);
		return setsockopt(s, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &m6, sizeof m6) < 0 ? errno : 0;
	}
	inet_pton(AF_INET, "239.1.2.3", &m.imr_multiaddr);
	inet_pton(AF_INET, "239.1.2.3", &ms.imr_multiaddr);
	inet_pton(AF_INET, "127.0.0.1", &ms.imr_interface);
	inet_pton(AF_INET, "192.0.2.1", &ms.imr_sourceaddr);
	if (source)
		return setsockopt(s, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, &ms, sizeof ms) < 0 ? errno : 0;
	return setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m) < 0 ? errno : 0;
}

static void test_join(void **state)
{
	int family, source, verdict;

	(void)state;
	for (family = 0; family < 2; family++)
		for (source = 0; source < 2; source++)
			for (verdict = 0; verdict < 2; verdict++) {
				uint8_t daddr[16];
				pid_t pid;

				govern(BOX_A, verdict ? ALLOWING : DENYING, 0);
				pid = spawn(BOX_A, 0);
				if (pid == 0)
					_exit(join(family ? AF_INET6 : AF_INET, source));
				assert_int_equal(reap(pid), verdict ? 0 : EPERM);
				expect_one(BOX_A, WEIR_HOOK_SETSOCKOPT, verdict ? WEIR_ALLOW : WEIR_DENY, WEIR_REASON_DEFAULT);
				daddr_of(daddr, family ? "ff1e:beef::1" : "239.1.2.3");
				assert_memory_equal(seen.ev[0].key.daddr, daddr, 16);
				assert_int_equal(seen.ev[0].key.protocol, family ? IPPROTO_ICMPV6 : IPPROTO_IGMP);
				assert_int_equal(seen.ev[0].attribution, WEIR_ATTR_CURRENT);
			}
}

/* SO_BROADCAST before the first use, not after it; other options, long ones too, are let through untouched. */
static void option_child(void)
{
	int before = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), after = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0),
	    on = 1;
	union addr a;
	socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", 9);
	socklen_t got_len = sizeof on;
	static char big[8192];
	int got;

	MUST(setsockopt(before, SOL_SOCKET, SO_BROADCAST, &on, sizeof on) == 0);
	MUST(connect(before, &a.sa, len) == 0);
	MUST(connect(after, &a.sa, len) == 0);
	MUST(setsockopt(after, SOL_SOCKET, SO_BROADCAST, &on, sizeof on) < 0 && errno == EPERM);
	/* Longer than what the hook is shown: the kernel would read it again. */
	MUST(setsockopt(after, SOL_SOCKET, SO_BROADCAST, big, sizeof big) < 0 && errno == EPERM);
	MUST(getsockopt(after, SOL_SOCKET, SO_BROADCAST, &got, &got_len) == 0 && got == 0);
	on = 0;
	MUST(setsockopt(after, SOL_SOCKET, SO_BROADCAST, &on, sizeof on) == 0);
	on = 4096;
	MUST(setsockopt(after, SOL_SOCKET, SO_RCVBUF, &on, sizeof on) == 0);
	memcpy(big, &on, sizeof on);
	MUST(setsockopt(after, SOL_SOCKET, SO_RCVBUF, big, sizeof big) == 0);
	_exit(0);
}

/* A source that is not this host's: errors would be sent there. */
static int foreign_sources(void)
{
	static const struct {
		int family, level, option;
	} rows[] = {
	    {AF_INET, IPPROTO_IP, IP_FREEBIND},
	    {AF_INET, IPPROTO_IP, IP_TRANSPARENT},
	    {AF_INET6, IPPROTO_IPV6, 78 /* IPV6_FREEBIND */},
	    {AF_INET6, IPPROTO_IPV6, IPV6_TRANSPARENT},
	    {AF_INET6, IPPROTO_IP, IP_FREEBIND},
	};
	int refused = 0, on = 1;
	size_t i;

	for (i = 0; i < sizeof rows / sizeof *rows; i++) {
		int s = socket(rows[i].family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		int rc = setsockopt(s, rows[i].level, rows[i].option, &on, sizeof on);

		if (rc < 0 && errno != EPERM)
			return 250;
		refused += rc < 0;
	}
	return refused;
}

static void test_foreign_source(void **state)
{
	pid_t pid;

	(void)state;
	govern(BOX_A, ALLOWING, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		_exit(foreign_sources());
	assert_int_equal(reap(pid), 5);
	govern(BOX_A, ALLOWING, WEIR_SB_OWN_NET);
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		_exit(foreign_sources());
	assert_int_equal(reap(pid), 0);
}

/* Taken and not applied, until something was let out of the socket. */
static void error_queue_child(void)
{
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1, got = -1;
	union addr a;
	socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", 9), got_len = sizeof got;

	MUST(setsockopt(s, IPPROTO_IP, IP_RECVERR, &on, sizeof on) == 0);
	MUST(getsockopt(s, IPPROTO_IP, IP_RECVERR, &got, &got_len) == 0 && got == 0);
	MUST(sendto(s, "x", 1, 0, &a.sa, len) == 1);
	MUST(setsockopt(s, IPPROTO_IP, IP_RECVERR, &on, sizeof on) == 0);
	MUST(getsockopt(s, IPPROTO_IP, IP_RECVERR, &got, &got_len) == 0 && got == 1);
	_exit(0);
}

static void test_error_queue(void **state)
{
	pid_t pid;

	(void)state;
	use_rules(0, WEIR_ALLOW);
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		error_queue_child();
	child_ok(pid);
}

static void test_options(void **state)
{
	pid_t pid;

	(void)state;
	govern(BOX_A, ALLOWING, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		option_child();
	child_ok(pid);
	assert_int_equal(counters(BOX_A).attempts, 0);
}

/* An image's own bound on datagram sockets. */
static void test_socket_bound(void **state)
{
	static const uint32_t modes[] = {0, WEIR_IMG_MONITOR}; /* a bound on memory is no verdict: it holds in either */
	size_t m;
	int i;

	(void)state;
	for (m = 0; m < sizeof modes / sizeof *modes; m++) {
		struct policy_image img = image_with_rules(modes[m], WEIR_ALLOW);
		struct err e = {0};
		pid_t pid;

		img.head.sockets_max = 3;
		must(guard_set_policy(t.guard, RULES, &img, NULL, &e), &e);
		govern(BOX_A, RULES, 0);
		pid = spawn(BOX_A, 0);
		if (pid == 0) {
			union addr a;
			socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", 9);

			for (i = 0; i < 3; i++)
				MUST(connect(socket(AF_INET, SOCK_DGRAM, 0), &a.sa, len) == 0);
			MUST(connect(socket(AF_INET, SOCK_DGRAM, 0), &a.sa, len) < 0 && errno == EPERM);
			_exit(0);
		}
		child_ok(pid);
		expect_one(BOX_A, WEIR_HOOK_CONNECT4, WEIR_DENY, WEIR_REASON_SOCKETS);
	}
}

/* A connection that was judged under an earlier policy is told anew, though numbers of images are used again. */
static void test_monitor_after_swaps(void **state)
{
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), s, on = 1;
	union addr any;
	char line[4];
	pid_t pid;

	(void)state;
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	assert_int_equal(bind(l, &any.sa, addr_of(&any, AF_INET, "0.0.0.0", 7795)), 0);
	assert_int_equal(listen(l, 1), 0);
	set_policy(ALLOWING, WEIR_ALLOW, WEIR_IMG_MONITOR);
	govern(BOX_A, ALLOWING, 0);
	told->go = 0;
	pid = spawn(BOX_A, 0);
	if (pid == 0) {
		int c = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		union addr a;
		socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", 7795);

		MUST(connect(c, &a.sa, len) == 0);
		while (__atomic_load_n(&told->go, __ATOMIC_ACQUIRE) != 1)
			usleep(1000);
		MUST(send(c, "weir", 4, 0) == 4);
		while (__atomic_load_n(&told->go, __ATOMIC_ACQUIRE) != 2)
			usleep(1000);
		_exit(0);
	}
	s = accept(l, NULL, NULL);
	assert_true(s >= 0);
	drain();
	set_policy(ALLOWING, WEIR_ALLOW, WEIR_IMG_MONITOR);
	set_policy(ALLOWING, WEIR_DENY, WEIR_IMG_MONITOR);
	__atomic_store_n(&told->go, 1, __ATOMIC_RELEASE);
	assert_true(heard(s, HEAR_MS));
	assert_int_equal(recv(s, line, 4, 0), 4);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_WOULD_DENY, WEIR_REASON_DEFAULT);
	__atomic_store_n(&told->go, 2, __ATOMIC_RELEASE);
	child_ok(pid);
	close(s);
	close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    T(test_which_rule),		 T(test_monitor),      T(test_quiet),
	    T(test_inbound_datagram),	 T(test_answers_only), T(test_to_many),
	    T(test_inbound_flood),	 T(test_join),	       T(test_options),
	    T(test_foreign_source),	 T(test_error_queue),  T(test_socket_bound),
	    T(test_monitor_after_swaps),
	};

	if (geteuid() != 0) {
		fprintf(stderr, "test_rules: needs root\n");
		return 1;
	}
	return cmocka_run_group_tests(tests, setup_all, NULL);
}
