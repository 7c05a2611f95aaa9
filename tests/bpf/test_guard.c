/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel programs on the kernel that runs this: real sockets in a scratch cgroup and a network namespace of our own,
 * whose default route is its loopback, so that any address arrives at a wildcard listener. The listeners are outside the
 * governed cgroups. "Denied" is the sender's errno, the listener's silence, the counters and the event; and the same vector
 * under an allowing policy is heard. Needs root.
 */
#include "scratch.h"

#include "core/event.h"

/* ---- every way out that a socket has ---- */

enum how {
	CONNECT,
	SENDTO,
	CONNECT_SEND,
	MMSG,  /* three at once */
	CHILD, /* connected by one process, sent on by its child */
	FASTOPEN,
	OPTIONS, /* with IP options */
	MULTI,	 /* multicast out of lo */
	BROAD,
	HDRINCL, /* the IP header is in the payload */
};

static const struct vector {
	const char *what;
	int family, type, protocol;
	enum how how;
	const char *to;
	uint16_t port;
	/* The event. */
	uint8_t hook, wire_family, wire_protocol;
	uint16_t wire_port;
	/* The listener. */
	int l_family, l_type, l_protocol;
	int allowed_attempts;
	const char *payload;
	size_t payload_len;
} vectors[] = {
#define PAY "weir", 4
#define UDP4 4, IPPROTO_UDP
#define UDP6 6, IPPROTO_UDP
#define TCP4 4, IPPROTO_TCP
#define TCP6 6, IPPROTO_TCP
#define L_UDP4 AF_INET, SOCK_DGRAM, 0
#define L_UDP6 AF_INET6, SOCK_DGRAM, 0
    {"tcp4", AF_INET, SOCK_STREAM, 0, CONNECT, "192.0.2.1", 443, WEIR_HOOK_CONNECT4, TCP4, 443, AF_INET, SOCK_STREAM, 0, 1,
     PAY},
    {"tcp4 to 53", AF_INET, SOCK_STREAM, 0, CONNECT, "10.1.2.3", 53, WEIR_HOOK_CONNECT4, TCP4, 53, AF_INET, SOCK_STREAM, 0, 1,
     PAY},
    {"tcp4 to loopback", AF_INET, SOCK_STREAM, 0, CONNECT, "127.0.0.1", 8080, WEIR_HOOK_CONNECT4, TCP4, 8080, AF_INET,
     SOCK_STREAM, 0, 1, PAY},
    {"tcp4 to 0.0.0.0", AF_INET, SOCK_STREAM, 0, CONNECT, "0.0.0.0", 8080, WEIR_HOOK_CONNECT4, TCP4, 8080, AF_INET, SOCK_STREAM,
     0, 1, PAY},
    {"tcp6", AF_INET6, SOCK_STREAM, 0, CONNECT, "2001:db8::1", 443, WEIR_HOOK_CONNECT6, TCP6, 443, AF_INET6, SOCK_STREAM, 0, 1,
     PAY},
    {"tcp mapped", AF_INET6, SOCK_STREAM, 0, CONNECT, "::ffff:192.0.2.1", 443, WEIR_HOOK_CONNECT6, TCP4, 443, AF_INET,
     SOCK_STREAM, 0, 1, PAY},
    {"tcp fast open", AF_INET, SOCK_STREAM, 0, FASTOPEN, "192.0.2.1", 443, WEIR_HOOK_CONNECT4, TCP4, 443, AF_INET, SOCK_STREAM,
     0, 1, PAY},
    {"mptcp", AF_INET, SOCK_STREAM, MPTCP, CONNECT, "192.0.2.1", 443, WEIR_HOOK_CONNECT4, TCP4, 443, AF_INET, SOCK_STREAM, 0, 1,
     PAY},
    {"udp4", AF_INET, SOCK_DGRAM, 0, SENDTO, "192.0.2.1", 9, WEIR_HOOK_EGRESS, UDP4, 9, L_UDP4, 1, PAY},
    {"udp4 connected", AF_INET, SOCK_DGRAM, 0, CONNECT_SEND, "169.254.169.254", 80, WEIR_HOOK_EGRESS, UDP4, 80, L_UDP4, 1, PAY},
    {"udp4 sendmmsg", AF_INET, SOCK_DGRAM, 0, MMSG, "10.0.0.1", 99, WEIR_HOOK_EGRESS, UDP4, 99, L_UDP4, 3, PAY},
    {"udp4 on an inherited socket", AF_INET, SOCK_DGRAM, 0, CHILD, "10.0.0.1", 99, WEIR_HOOK_EGRESS, UDP4, 99, L_UDP4, 1, PAY},
    {"udp4 to loopback", AF_INET, SOCK_DGRAM, 0, SENDTO, "127.0.0.1", 9, WEIR_HOOK_EGRESS, UDP4, 9, L_UDP4, 1, PAY},
    {"udp4 with options", AF_INET, SOCK_DGRAM, 0, OPTIONS, "192.0.2.1", 9, WEIR_HOOK_EGRESS, UDP4, 9, L_UDP4, 1, PAY},
    {"udp4 multicast", AF_INET, SOCK_DGRAM, 0, MULTI, "224.0.0.251", 9, WEIR_HOOK_EGRESS, UDP4, 9, L_UDP4, 1, PAY},
    {"udp4 broadcast", AF_INET, SOCK_DGRAM, 0, BROAD, "255.255.255.255", 9, WEIR_HOOK_EGRESS, UDP4, 9, L_UDP4, 1, PAY},
    {"udp6", AF_INET6, SOCK_DGRAM, 0, SENDTO, "2001:db8::9", 9, WEIR_HOOK_EGRESS, UDP6, 9, L_UDP6, 1, PAY},
    {"udp6 connected", AF_INET6, SOCK_DGRAM, 0, CONNECT_SEND, "2001:db8::9", 9, WEIR_HOOK_EGRESS, UDP6, 9, L_UDP6, 1, PAY},
    {"udp6 to loopback", AF_INET6, SOCK_DGRAM, 0, SENDTO, "::1", 9, WEIR_HOOK_EGRESS, UDP6, 9, L_UDP6, 1, PAY},
    {"udp6 multicast", AF_INET6, SOCK_DGRAM, 0, MULTI, "ff02::fb", 9, WEIR_HOOK_EGRESS, UDP6, 9, L_UDP6, 1, PAY},
    {"udp mapped", AF_INET6, SOCK_DGRAM, 0, SENDTO, "::ffff:192.0.2.7", 9, WEIR_HOOK_EGRESS, UDP4, 9, L_UDP4, 1, PAY},
    {"udp-lite", AF_INET, SOCK_DGRAM, UDPLITE, SENDTO, "192.0.2.1", 9, WEIR_HOOK_EGRESS, 4, UDPLITE, 9, AF_INET, SOCK_DGRAM,
     UDPLITE, 1, PAY},
    {"udp-lite connected", AF_INET, SOCK_DGRAM, UDPLITE, CONNECT_SEND, "192.0.2.1", 9, WEIR_HOOK_EGRESS, 4, UDPLITE, 9, AF_INET,
     SOCK_DGRAM, UDPLITE, 1, PAY},
    {"ping", AF_INET, SOCK_DGRAM, IPPROTO_ICMP, SENDTO, "192.0.2.1", 0, WEIR_HOOK_EGRESS, 4, IPPROTO_ICMP, 0x0800, AF_INET,
     SOCK_RAW, IPPROTO_ICMP, 1, "\10\0\0\0\0\0\0\0", 8},
    {"ping connected", AF_INET, SOCK_DGRAM, IPPROTO_ICMP, CONNECT_SEND, "192.0.2.1", 0, WEIR_HOOK_EGRESS, 4, IPPROTO_ICMP,
     0x0800, AF_INET, SOCK_RAW, IPPROTO_ICMP, 1, "\10\0\0\0\0\0\0\0", 8},
    {"ping6", AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6, SENDTO, "2001:db8::9", 0, WEIR_HOOK_EGRESS, 6, IPPROTO_ICMPV6, 0x8000,
     AF_INET6, SOCK_RAW, IPPROTO_ICMPV6, 1, "\200\0\0\0\0\0\0\0", 8},
    {"raw icmp", AF_INET, SOCK_RAW, IPPROTO_ICMP, SENDTO, "192.0.2.1", 0, WEIR_HOOK_EGRESS, 4, IPPROTO_ICMP, 0x0d01, AF_INET,
     SOCK_RAW, IPPROTO_ICMP, 1, "\15\1\0\0\0\0\0\0", 8},
    {"raw tcp", AF_INET, SOCK_RAW, IPPROTO_TCP, SENDTO, "192.0.2.1", 0, WEIR_HOOK_EGRESS, TCP4, 443, AF_INET, SOCK_RAW,
     IPPROTO_TCP, 1, "\0\1\1\273\0\0\0\0\0\0\0\0\120\2\0\0\0\0\0\0", 20},
    {"raw sctp", AF_INET, SOCK_RAW, SCTP, SENDTO, "192.0.2.1", 0, WEIR_HOOK_EGRESS, 4, SCTP, 36412, AF_INET, SOCK_RAW, SCTP, 1,
     "\0\1\216\74\0\0\0\0\0\0\0\0", 12},
    {"raw unknown protocol", AF_INET, SOCK_RAW, 253, SENDTO, "192.0.2.1", 0, WEIR_HOOK_EGRESS, 4, 253, 0, AF_INET, SOCK_RAW,
     253, 1, PAY},
    {"raw6 unknown protocol", AF_INET6, SOCK_RAW, 253, SENDTO, "2001:db8::9", 0, WEIR_HOOK_EGRESS, 6, 253, 0, AF_INET6,
     SOCK_RAW, 253, 1, PAY},
    /* Headers of our own: destination and port are what the bytes say. */
    {"hand-made udp4", AF_INET, SOCK_RAW, IPPROTO_RAW, HDRINCL, "192.0.2.1", 0, WEIR_HOOK_EGRESS, UDP4, 9, L_UDP4, 1,
     "\x45\0\0\x20\0\1\0\0\x40\x11\0\0\xc0\0\2\2\xc0\0\2\1"
     "\0\7\0\11\0\14\0\0weir",
     32},
    {"hand-made later fragment", AF_INET, SOCK_RAW, IPPROTO_RAW, HDRINCL, "192.0.2.1", 0, WEIR_HOOK_EGRESS, UDP4, 0, -1, 0, 0,
     1,
     "\x45\0\0\x20\0\1\0\5\x40\x11\0\0\xc0\0\2\2\xc0\0\2\1"
     "\0\7\0\11\0\14\0\0weir",
     32},
    {"hand-made udp6 behind destination options", AF_INET6, SOCK_RAW, IPPROTO_RAW, HDRINCL, "2001:db8::9", 0, WEIR_HOOK_EGRESS,
     UDP6, 9, -1, 0, 0, 1,
     "\x60\0\0\0\0\x14\x3c\x40"
     "\x20\1\15\xb8\0\0\0\0\0\0\0\0\0\0\0\1"
     "\x20\1\15\xb8\0\0\0\0\0\0\0\0\0\0\0\11"
     "\x11\0\1\4\0\0\0\0"
     "\0\7\0\11\0\14\0\0weir",
     60},
#undef PAY
};
#define VECTORS (sizeof vectors / sizeof *vectors)

static int send_connected(int s, const struct vector *v, const union addr *to, socklen_t len)
{
	if (connect(s, &to->sa, len) < 0)
		return errno;
	return send(s, v->payload, v->payload_len, 0) < 0 ? errno : 0;
}

static int send_three(int s, const struct vector *v, const union addr *to, socklen_t len)
{
	struct iovec io = {.iov_base = (void *)(uintptr_t)v->payload, .iov_len = v->payload_len};
	struct mmsghdr m[3];
	int i, n;

	memset(m, 0, sizeof m);
	for (i = 0; i < 3; i++) {
		m[i].msg_hdr.msg_name = (void *)(uintptr_t)to;
		m[i].msg_hdr.msg_namelen = len;
		m[i].msg_hdr.msg_iov = &io;
		m[i].msg_hdr.msg_iovlen = 1;
	}
	n = sendmmsg(s, m, 3, 0);
	return n < 0 ? errno : n == 3 ? 0 : 251;
}

static int send_from_child(int s, const struct vector *v, const union addr *to, socklen_t len)
{
	pid_t pid;
	int status;

	if (connect(s, &to->sa, len) < 0)
		return errno;
	pid = fork();
	if (pid == 0) {
		told->pid = getpid();
		_exit(send(s, v->payload, v->payload_len, 0) < 0 ? errno : 0);
	}
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

static void prepare(int s, const struct vector *v)
{
	struct ip_mreqn lo = {.imr_ifindex = 1};
	int one = 1;

	switch (v->how) {
	case OPTIONS:
		if (setsockopt(s, IPPROTO_IP, IP_OPTIONS, "\1\1\1\1\1\1\1\1", 8) < 0)
			_exit(252);
		break;
	case MULTI:
		if (v->family == AF_INET ? setsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &lo, sizeof lo)
					 : setsockopt(s, IPPROTO_IPV6, IPV6_MULTICAST_IF, &one, sizeof one))
			_exit(252);
		break;
	case BROAD:
		if (setsockopt(s, SOL_SOCKET, SO_BROADCAST, &one, sizeof one) < 0 ||
		    setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) < 0)
			_exit(252);
		break;
	default:
		break;
	}
}

/* In the child. The errno of what failed. */
static int attempt(const struct vector *v)
{
	int s = socket(v->family, v->type, v->protocol);
	union addr to;
	socklen_t len = addr_of(&to, v->family, v->to, v->type == SOCK_RAW ? 0 : v->port);

	if (s < 0)
		return 253;
	prepare(s, v);
	switch (v->how) {
	case CONNECT:
		return connect(s, &to.sa, len) < 0 ? errno : 0;
	case CONNECT_SEND:
		return send_connected(s, v, &to, len);
	case MMSG:
		return send_three(s, v, &to, len);
	case CHILD:
		return send_from_child(s, v, &to, len);
	case FASTOPEN:
		return sendto(s, v->payload, v->payload_len, MSG_FASTOPEN, &to.sa, len) < 0 ? errno : 0;
	default:
		return sendto(s, v->payload, v->payload_len, 0, &to.sa, len) < 0 ? errno : 0;
	}
}

static int listen_for(const struct vector *v)
{
	struct ip_mreqn mc4 = {.imr_ifindex = 1};
	struct ipv6_mreq mc6 = {.ipv6mr_interface = 1};
	int s, one = 1;
	union addr any;
	socklen_t len;

	s = socket(v->family, v->type | SOCK_CLOEXEC, v->protocol);
	if (s < 0)
		return -2;
	close(s);
	if (v->l_family < 0)
		return -1;
	s = socket(v->l_family, v->l_type | SOCK_CLOEXEC | SOCK_NONBLOCK, v->l_protocol);
	if (s < 0)
		return -2;
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (v->l_family == AF_INET6)
		setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
	len = addr_of(&any, v->l_family, v->l_family == AF_INET ? "0.0.0.0" : "::", v->l_type == SOCK_RAW ? 0 : v->wire_port);
	assert_int_equal(bind(s, &any.sa, len), 0);
	if (v->l_type == SOCK_STREAM)
		assert_int_equal(listen(s, 8), 0);
	if (v->how == MULTI && v->l_family == AF_INET) {
		inet_pton(AF_INET, v->to, &mc4.imr_multiaddr);
		assert_int_equal(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &mc4, sizeof mc4), 0);
	} else if (v->how == MULTI) {
		inet_pton(AF_INET6, v->to, &mc6.ipv6mr_multiaddr);
		assert_int_equal(setsockopt(s, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &mc6, sizeof mc6), 0);
	}
	return s;
}

/* A raw listener also gets what the kernel says of its own (multicast reports, errors): only our first bytes count. */
static int heard_vector(const struct vector *v, int s, int ms)
{
	int64_t end = now_ms() + ms, left;

	while ((left = end - now_ms()) > 0) {
		uint8_t b[256];
		ssize_t n;
		int at;

		if (!heard(s, (int)left))
			return 0;
		if (v->l_type != SOCK_RAW)
			return 1;
		n = recv(s, b, sizeof b, 0);
		at = v->l_family == AF_INET ? (b[0] & 15) * 4 : 0;
		if (n >= at + 2 && !memcmp(b + at, v->payload, 2))
			return 1;
	}
	return 0;
}

static void check_event(const struct vector *v, uint8_t verdict, const struct weir_event *ev)
{
	uint8_t daddr[16];

	daddr_of(daddr, v->wire_family == 4 && strchr(v->to, ':') ? strrchr(v->to, ':') + 1 : v->to);
	assert_int_equal(ev->key.cgroup, t.id[BOX_A]);
	/* Of what goes to many, the kernel copies for listeners here before it asks about the packet: refused earlier. */
	if ((v->how == MULTI || v->how == BROAD) && v->wire_family == 4 && verdict == WEIR_DENY)
		assert_int_equal(ev->key.hook, WEIR_HOOK_SENDMSG4);
	else
		assert_int_equal(ev->key.hook, v->hook);
	assert_int_equal(ev->key.verdict, verdict);
	assert_int_equal(ev->key.reason, WEIR_REASON_DEFAULT);
	assert_int_equal(ev->key.family, v->wire_family);
	assert_int_equal(ev->key.protocol, v->wire_protocol);
	assert_int_equal(ntohs(ev->key.dport_be), v->wire_port);
	assert_memory_equal(ev->key.daddr, daddr, 16);
	assert_int_equal(ev->key.name_hash, 0);
	assert_int_equal(ev->key.via, !strncmp(v->to, "::ffff:", 7) && v->hook != WEIR_HOOK_EGRESS ? WEIR_VIA_MAPPED : 0);
	assert_int_equal(ev->key.rule, 0);
	assert_int_equal(ev->key.generation, 1);
	assert_int_equal(ev->attribution, WEIR_ATTR_CURRENT);
	assert_int_equal(ev->pid, told->pid);
	assert_int_equal(ev->uid, 0);
	assert_string_equal(ev->comm, COMM);
	assert_int_equal(ev->dns_len, 0);
	assert_int_equal(ev->seq, 1);
	assert_int_equal(ev->socket_type, v->type);
	assert_true(ev->time_ns != 0 && ev->socket_cookie != 0);
	if (ev->key.hook == WEIR_HOOK_EGRESS)
		assert_true(ev->len >= v->payload_len);
	else
		assert_int_equal(ev->len, 0);
}

/* An ICMPv6 ping socket drops the packet like any other and tells the sender nothing: the kernel ignores the result. */
static int is_untold(const struct vector *v)
{
	return v->type == SOCK_DGRAM && v->protocol == IPPROTO_ICMPV6;
}

static void try_vector(const struct vector *v, uint32_t policy)
{
	uint8_t verdict = policy == ALLOWING ? WEIR_ALLOW : WEIR_DENY;
	uint64_t want = policy == ALLOWING ? (uint64_t)v->allowed_attempts : 1;
	int l = listen_for(v), rc;
	struct weir_sandbox sb;
	struct weir_flow f;
	pid_t pid;

	if (l == -2) {
		print_message("  %s: not on this kernel\n", v->what);
		return;
	}
	govern(BOX_A, policy, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		_exit(attempt(v));
	rc = reap(pid);
	if (rc != (verdict == WEIR_DENY && !is_untold(v) ? EPERM : 0))
		fail_msg("%s: %s", v->what, rc < 250 ? strerror(rc) : "the vector itself failed");
	if (l >= 0 && heard_vector(v, l, verdict == WEIR_DENY ? QUIET_MS : HEAR_MS) != (verdict == WEIR_ALLOW))
		fail_msg("%s: %s", v->what, verdict == WEIR_DENY ? "the listener heard it" : "the listener heard nothing");
	if (l >= 0)
		close(l);
	sb = counters(BOX_A);
	if (sb.attempts != want || sb.denied != (verdict == WEIR_DENY ? want : 0) || sb.allowed != want - sb.denied ||
	    sb.unlisted || sb.flows != 1 || sb.probes)
		fail_msg("%s: attempts %llu denied %llu allowed %llu flows %llu unlisted %llu", v->what, sb.attempts, sb.denied,
			 sb.allowed, sb.flows, sb.unlisted);
	if (verdict == WEIR_DENY ? sb.packets || sb.bytes : sb.packets < want || sb.bytes < sb.packets * 20)
		fail_msg("%s: %llu packets, %llu bytes passed", v->what, sb.packets, sb.bytes);
	if (drain() != 1)
		fail_msg("%s: %d events", v->what, seen.n);
	check_event(v, verdict, &seen.ev[0]);
	/* The record says of the caller what the caller was told. */
	if ((event_errno_name(&seen.ev[0]) != NULL) != (rc == EPERM))
		fail_msg("%s: %s, and its event says otherwise", v->what, strerror(rc));
	assert_int_equal(guard_get_flow(t.guard, &seen.ev[0].key, &f), 0);
	assert_int_equal(f.count, want);
	assert_true(f.last_ns >= f.first_ns && f.first_ns == seen.ev[0].time_ns);
}

static void test_vectors(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < VECTORS; i++) {
		try_vector(&vectors[i], DENYING);
		try_vector(&vectors[i], ALLOWING);
	}
}

/* ---- one-packet helpers for the other tests ---- */

/* ---- reasons ---- */

static void test_no_entry(void **state)
{
	uint64_t stats[WEIR_STAT_COUNT], before[WEIR_STAT_COUNT];
	struct err e = {0};

	(void)state;
	must(guard_stats(t.guard, before, &e), &e);
	assert_int_equal(udp_from(BOX_NONE, "192.0.2.1", 9), EPERM);
	expect_one(BOX_NONE, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_NO_ENTRY);
	assert_int_equal(tcp_from(BOX_NONE, "192.0.2.1", 9), EPERM);
	expect_one(BOX_NONE, WEIR_HOOK_CONNECT4, WEIR_DENY, WEIR_REASON_NO_ENTRY);
	/* Our own root is no sandbox either. */
	assert_int_equal(udp_from(BOX_ROOT, "192.0.2.1", 9), EPERM);
	expect_one(BOX_ROOT, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_NO_ENTRY);
	assert_int_equal(tcp_from(BOX_ROOT, "192.0.2.1", 9), EPERM);
	expect_one(BOX_ROOT, WEIR_HOOK_CONNECT4, WEIR_DENY, WEIR_REASON_NO_ENTRY);
	must(guard_stats(t.guard, stats, &e), &e);
	assert_int_equal(stats[WEIR_STAT_NO_ENTRY] - before[WEIR_STAT_NO_ENTRY], 4);
	/* An entry that goes away denies. */
	govern(BOX_A, ALLOWING, 0);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), 0);
	must(guard_del_sandbox(t.guard, t.id[BOX_A], &e), &e);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), EPERM);
}

/* What lies deeper belongs to the sandbox above it. */
static void test_nested(void **state)
{
	(void)state;
	govern(BOX_A, DENYING, 0);
	assert_int_equal(udp_from(BOX_DEEP, "192.0.2.1", 9), EPERM);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_DEFAULT);
	assert_int_equal(tcp_from(BOX_DEEP, "192.0.2.1", 9), EPERM);
	expect_one(BOX_A, WEIR_HOOK_CONNECT4, WEIR_DENY, WEIR_REASON_DEFAULT);
}

static void test_no_policy(void **state)
{
	(void)state;
	govern(BOX_A, EMPTY_SLOT, 0);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), EPERM);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_NO_POLICY);
	assert_int_equal(tcp_from(BOX_A, "192.0.2.1", 9), EPERM);
	expect_one(BOX_A, WEIR_HOOK_CONNECT4, WEIR_DENY, WEIR_REASON_NO_POLICY);
}

static const struct junk {
	const char *what;
	int family;
	const char *to;
	const char *bytes;
	size_t len;
} junk[] = {
#define J(s) s, sizeof s - 1
    {"udp header cut off", AF_INET, "192.0.2.1", J("\x45\0\0\x16\0\1\0\0\x40\x11\0\0\xc0\0\2\2\xc0\0\2\1\0\7")},
    {"version 6 in an IPv4 packet", AF_INET, "192.0.2.1",
     J("\x65\0\0\x20\0\1\0\0\x40\x11\0\0\xc0\0\2\2\xc0\0\2\1\0\7\0\11\0\14\0\0weir\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")},
    {"header of 16 bytes", AF_INET, "192.0.2.1",
     J("\x44\0\0\x20\0\1\0\0\x40\x11\0\0\xc0\0\2\2\xc0\0\2\1\0\7\0\11\0\14\0\0weir")},
    {"nine extension headers", AF_INET6, "2001:db8::9",
     J("\x60\0\0\0\0\x54\x3c\x40\x20\1\15\xb8\0\0\0\0\0\0\0\0\0\0\0\1\x20\1\15\xb8\0\0\0\0\0\0\0\0\0\0\0\11"
       "\x3c\0\1\4\0\0\0\0\x3c\0\1\4\0\0\0\0\x3c\0\1\4\0\0\0\0\x3c\0\1\4\0\0\0\0\x3c\0\1\4\0\0\0\0\x3c\0\1\4\0\0\0\0"
       "\x3c\0\1\4\0\0\0\0\x3c\0\1\4\0\0\0\0\x11\0\1\4\0\0\0\0\0\7\0\11\0\14\0\0weir")},
    {"extension header beyond the packet", AF_INET6, "2001:db8::9",
     J("\x60\0\0\0\0\x8\x3c\x40\x20\1\15\xb8\0\0\0\0\0\0\0\0\0\0\0\1\x20\1\15\xb8\0\0\0\0\0\0\0\0\0\0\0\11"
       "\x11\xff\1\4\0\0\0\0")},
#undef J
};

static int send_junk(const struct junk *j)
{
	int s = socket(j->family, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
	union addr a;
	socklen_t len = addr_of(&a, j->family, j->to, 0);

	return sendto(s, j->bytes, j->len, 0, &a.sa, len) < 0 ? errno : 0;
}

/* Also under a policy that allows everything: what cannot be read does not leave. */
static void test_malformed(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof junk / sizeof *junk; i++) {
		pid_t pid;
		int rc;

		govern(BOX_A, ALLOWING, 0);
		pid = spawn(BOX_A, 0);
		if (pid == 0)
			_exit(send_junk(&junk[i]));
		rc = reap(pid);
		if (rc == EINVAL) {
			print_message("  %s: refused by this kernel before us\n", junk[i].what);
			continue;
		}
		if (rc != EPERM)
			fail_msg("%s: %s", junk[i].what, strerror(rc));
		expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_MALFORMED);
		assert_int_equal(seen.ev[0].key.family, 0);
		assert_int_equal(counters(BOX_A).denied, 1);
		assert_int_equal(counters(BOX_A).packets, 0);
	}
}

/* ---- a socket made in one cgroup, used in another ---- */

static void test_imported_socket(void **state)
{
	static const struct {
		int type;
		uint8_t hook;
	} kinds[] = {{SOCK_DGRAM, WEIR_HOOK_EGRESS}, {SOCK_STREAM, WEIR_HOOK_CONNECT4}};
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		int type = kinds[i].type;

		govern(BOX_A, ALLOWING, 0);
		govern(BOX_B, DENYING, 0);
		/* The task is denied, its socket was made where it may send. */
		assert_int_equal(carry(BOX_A, BOX_B, type), EPERM);
		expect_one(BOX_B, kinds[i].hook, WEIR_DENY, WEIR_REASON_DEFAULT);
		assert_int_equal(counters(BOX_B).denied, 1);
		assert_int_equal(counters(BOX_A).attempts, 0);
		/* The other way round. */
		assert_int_equal(carry(BOX_B, BOX_A, type), EPERM);
		expect_one(BOX_A, kinds[i].hook, WEIR_DENY, WEIR_REASON_SOCKET);
		assert_int_equal(counters(BOX_A).denied, 1);
		/* A task in a cgroup without an entry. */
		assert_int_equal(carry(BOX_A, BOX_NONE, type), EPERM);
		expect_one(BOX_NONE, kinds[i].hook, WEIR_DENY, WEIR_REASON_NO_ENTRY);
		guard_sweep_flows(t.guard, t.id[BOX_NONE]);
		/* Both may. */
		govern(BOX_B, ALLOWING, 0);
		assert_int_equal(carry(BOX_A, BOX_B, type), type == SOCK_STREAM ? ECONNREFUSED : 0);
		expect_one(BOX_B, kinds[i].hook, WEIR_ALLOW, WEIR_REASON_DEFAULT);
	}
}

/* A task that left: its own cgroup is no business of ours, the socket's still is. */
static void test_exported_socket(void **state)
{
	(void)state;
	govern(BOX_A, DENYING, 0);
	assert_int_equal(carry(BOX_A, BOX_OUT, SOCK_DGRAM), EPERM);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_DEFAULT);
	assert_int_equal(carry(BOX_A, BOX_OUT, SOCK_STREAM), EPERM);
	expect_one(BOX_A, WEIR_HOOK_CONNECT4, WEIR_DENY, WEIR_REASON_DEFAULT);
	govern(BOX_A, ALLOWING, 0);
	assert_int_equal(carry(BOX_A, BOX_OUT, SOCK_DGRAM), 0);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_ALLOW, WEIR_REASON_DEFAULT);
	assert_int_equal(carry(BOX_A, BOX_OUT, SOCK_STREAM), ECONNREFUSED);
	expect_one(BOX_A, WEIR_HOOK_CONNECT4, WEIR_ALLOW, WEIR_REASON_DEFAULT);
}

/* ---- attribution ---- */

static void test_pid_namespace(void **state)
{
	struct weir_event *ev = seen.ev;
	pid_t pid;
	int i;

	(void)state;
	govern(BOX_A, DENYING, 0);
	pid = spawn(BOX_A, CLONE_NEWPID);
	if (pid == 0) {
		if (setresuid(4242, 4242, 4242) < 0)
			_exit(252);
		prctl(PR_SET_NAME, "fifteen-chars-x-cut");
		if (tcp_to("192.0.2.1", 1) != EPERM)
			_exit(1);
		_exit(udp_to("192.0.2.1", 2, "x", 1));
	}
	assert_int_equal(reap(pid), EPERM);
	assert_int_equal(drain(), 2);
	for (i = 0; i < 2; i++) {
		assert_int_equal(ev[i].pid, 1);
		assert_int_equal(ev[i].host_pid, pid);
		assert_int_equal(ev[i].uid, 4242);
		assert_string_equal(ev[i].comm, "fifteen-chars-x");
	}
}

static void *thread_sends(void *arg)
{
	*(int *)arg = udp_to("192.0.2.1", 3, "x", 1);
	return NULL;
}

/* A thread is reported as its process. */
static void test_thread(void **state)
{
	pid_t pid;

	(void)state;
	govern(BOX_A, DENYING, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0) {
		pthread_t th;
		int rc = 1;

		pthread_create(&th, NULL, thread_sends, &rc);
		pthread_join(th, NULL);
		_exit(rc);
	}
	assert_int_equal(reap(pid), EPERM);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_DEFAULT);
	assert_int_equal(seen.ev[0].pid, pid);
	assert_int_equal(seen.ev[0].host_pid, pid);
}

/* ---- the set-up probe ---- */

static void test_probe_flag(void **state)
{
	struct weir_sandbox sb;

	(void)state;
	govern(BOX_A, DENYING, WEIR_SB_PROBE);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), EPERM);
	assert_int_equal(tcp_from(BOX_A, "192.0.2.1", 9), EPERM);
	sb = counters(BOX_A);
	assert_int_equal(sb.probes, 2);
	assert_int_equal(sb.probes_denied, 2);
	assert_int_equal(sb.attempts + sb.denied + sb.allowed + sb.flows + sb.unlisted + sb.packets, 0);
	assert_int_equal(sb.sockets, 0);
	assert_int_equal(drain(), 0);
	govern(BOX_A, ALLOWING, WEIR_SB_PROBE);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), 0);
	sb = counters(BOX_A);
	assert_int_equal(sb.probes, 1);
	assert_int_equal(sb.probes_denied + sb.attempts + sb.allowed + sb.packets, 0);
	assert_int_equal(drain(), 0);
}

/* ---- DNS ---- */

#define HEAD "\x12\x34\1\0\0\1\0\0\0\0\0\0"
#define TAIL "\0\1\0\1"
#define L63 "\77aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffff012"

static const struct query {
	const char *what;
	const char *to;
	uint16_t port;
	const char *bytes;
	size_t len;
	const char *name;
	size_t name_len;
	int qtype;
} queries[] = {
#define B(s) s, sizeof s - 1
    {"plain", "192.0.2.53", 53, B(HEAD "\6secret\7example\0" TAIL), B("\6secret\7example\0"), 1},
    {"upper case", "192.0.2.53", 53, B(HEAD "\6SeCrEt\7example\0\0\x1c\0\1"), B("\6SeCrEt\7example\0"), 28},
    {"EDNS", "192.0.2.53", 53, B("\x12\x34\1\0\0\1\0\0\0\0\0\1\3abc\0" TAIL "\0\0\x29\4\xd0\0\0\0\0\0\0"), B("\3abc\0"), 1},
    {"IPv6", "2001:db8::53", 53, B(HEAD "\3six\0\0\xff\0\1"), B("\3six\0"), 255},
    {"multicast DNS port", "192.0.2.53", 5353, B(HEAD "\4mdns\5local\0" TAIL), B("\4mdns\5local\0"), 1},
    {"LLMNR port", "192.0.2.53", 5355, B(HEAD "\5llmnr\0" TAIL), B("\5llmnr\0"), 1},
    {"control characters", "192.0.2.53", 53, B(HEAD "\5\0\x1b\n\xff.\0" TAIL), B("\5\0\x1b\n\xff.\0"), 1},
    {"255 bytes", "192.0.2.53", 53,
     B(HEAD L63 L63 L63 "\75aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffff0\0" TAIL),
     B(L63 L63 L63 "\75aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffff0\0"), 1},
    {"longer than a name can be", "192.0.2.53", 53, B(HEAD L63 L63 L63 L63 "\1x\0" TAIL),
     B(L63 L63 L63 "\77aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffff01"), 0},
    {"compressed later", "192.0.2.53", 53, B(HEAD "\3www\xc0\x0c" TAIL), B("\3www\xc0\x0c"), 1},
    {"compressed at once", "192.0.2.53", 53, B(HEAD "\xc0\x0c" TAIL), B("\xc0\x0c"), 1},
    {"reserved label type", "192.0.2.53", 53, B(HEAD "\2ab\x80zz\0" TAIL), B("\2ab\x80"), 0},
    {"cut off in a label", "192.0.2.53", 53, B(HEAD "\2ab\7cde"), B("\2ab\7cde"), 0},
    {"cut off before the type", "192.0.2.53", 53, B(HEAD "\2zz\0"), B("\2zz\0"), 0},
    {"root", "192.0.2.53", 53, B(HEAD "\0\0\2\0\1"), B("\0"), 2},
    {"no question", "192.0.2.53", 53, B("\x12\x34\1\0\0\0\0\0\0\0\0\0\3abc\0" TAIL), B(""), 0},
    {"no header", "192.0.2.53", 53, B("abc"), B(""), 0},
    {"empty", "192.0.2.53", 53, B(""), B(""), 0},
    {"another port", "192.0.2.53", 54, B(HEAD "\6secret\7example\0" TAIL), B(""), 0},
#undef B
};

static void try_query(const struct query *q, uint32_t policy)
{
	int deny = policy == DENYING, i, rc;
	const struct weir_event *ev = seen.ev;
	struct weir_flow f;
	pid_t pid;

	govern(BOX_A, policy, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0) {
		rc = udp_to(q->to, q->port, q->bytes, q->len);
		_exit(rc == udp_to(q->to, q->port, q->bytes, q->len) ? rc : 251);
	}
	rc = reap(pid);
	if (rc != (deny ? EPERM : 0))
		fail_msg("%s: %s", q->what, strerror(rc));
	if (drain() != 1)
		fail_msg("%s: %d events", q->what, seen.n);
	if (ev->dns_len != q->name_len || memcmp(ev->dns, q->name, q->name_len) || ev->dns_qtype != q->qtype)
		fail_msg("%s: %u bytes, type %u", q->what, ev->dns_len, ev->dns_qtype);
	for (i = (int)q->name_len; i < (int)sizeof ev->dns; i++)
		assert_int_equal(ev->dns[i], 0);
	assert_int_equal(ev->key.name_hash != 0, q->name_len != 0);
	assert_int_equal(ev->key.verdict, deny ? WEIR_DENY : WEIR_ALLOW);
	assert_int_equal(ev->len, q->len + 8 + (ev->key.family == 6 ? 40 : 20));
	assert_int_equal(guard_get_flow(t.guard, &ev->key, &f), 0);
	assert_int_equal(f.count, 2);
	assert_int_equal(f.bytes, 2 * ev->len);
}

static void test_dns(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof queries / sizeof *queries; i++) {
		try_query(&queries[i], DENYING);
		try_query(&queries[i], ALLOWING);
	}
}

/* Different names to one resolver are different flows, the same name again is not. */
static void test_dns_flows(void **state)
{
	pid_t pid;

	(void)state;
	govern(BOX_A, DENYING, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0) {
		char q[] = HEAD "\2xx\7example\0" TAIL;
		int i;

		for (i = 0; i < 600; i++) {
			q[13] = (char)('a' + i % 20);
			q[14] = (char)('a' + i / 20 % 10);
			if (udp_to("192.0.2.53", 53, q, sizeof q - 1) != EPERM)
				_exit(1);
		}
		_exit(0);
	}
	assert_int_equal(reap(pid), 0);
	assert_int_equal(drain(), 200);
	assert_int_equal(counters(BOX_A).attempts, 600);
	assert_int_equal(counters(BOX_A).flows, 200);
}

/* ---- floods ---- */

#define FLOOD_EACH 100000
#define FLOOD_PORTS 2000

static void *flood_thread(void *arg)
{
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	union addr a;
	socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", 0);
	int i;

	(void)arg;
	for (i = 0; i < FLOOD_EACH; i++) {
		a.in.sin_port = htons((uint16_t)(1000 + i % told->ports));
		if (sendto(s, "x", 1, 0, &a.sa, len) >= 0 || errno != EPERM)
			__atomic_fetch_add(&told->count, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static pid_t start_flood(int ports)
{
	pid_t pid;

	told->count = 0;
	told->ports = ports;
	pid = spawn(BOX_A, 0);
	if (pid == 0) {
		pthread_t th[2];

		pthread_create(&th[0], NULL, flood_thread, NULL);
		pthread_create(&th[1], NULL, flood_thread, NULL);
		pthread_join(th[0], NULL);
		pthread_join(th[1], NULL);
		_exit(0);
	}
	return pid;
}

static int spray(enum box box, uint16_t first, int ports)
{
	pid_t pid = spawn(box, 0);

	if (pid == 0) {
		int i;

		for (i = 0; i < ports; i++)
			if (udp_to("192.0.2.1", (uint16_t)(first + i), "x", 1) != EPERM)
				_exit(1);
		_exit(0);
	}
	return reap(pid);
}

/* Fills the ring without draining it: one sandbox may not, so its entry is renewed again and again. */
static void fill_ring(void)
{
	uint64_t stats[WEIR_STAT_COUNT];
	struct err e = {0};
	int i;

	for (i = 0; i < 20; i++) {
		guard_sweep_flows(t.guard, t.id[BOX_A]);
		must(guard_set_sandbox(t.guard, t.id[BOX_A], DENYING, 0, &e), &e);
		assert_int_equal(spray(BOX_A, 1000, WEIR_FLOWS_PER_SANDBOX), 0);
		must(guard_stats(t.guard, stats, &e), &e);
		if (stats[WEIR_STAT_RING_FULL])
			return;
	}
	fail_msg("the ring never filled");
}

static void test_flood_ring_full(void **state)
{
	uint64_t before[WEIR_STAT_COUNT], after[WEIR_STAT_COUNT];
	struct weir_sandbox sb;
	struct err e = {0};

	(void)state;
	fill_ring();
	guard_sweep_flows(t.guard, t.id[BOX_A]);
	must(guard_set_sandbox(t.guard, t.id[BOX_A], DENYING, 0, &e), &e);
	must(guard_stats(t.guard, before, &e), &e);
	assert_int_equal(reap(start_flood(FLOOD_PORTS)), 0);
	must(guard_stats(t.guard, after, &e), &e);
	sb = counters(BOX_A);
	assert_int_equal(told->count, 0);
	assert_int_equal(sb.attempts, 2 * FLOOD_EACH);
	assert_int_equal(sb.denied, 2 * FLOOD_EACH);
	assert_int_equal(sb.unlisted, 2 * FLOOD_EACH);
	assert_int_equal(sb.flows, 0);
	assert_int_equal(after[WEIR_STAT_RING_FULL] - before[WEIR_STAT_RING_FULL] + after[WEIR_STAT_BEYOND] -
			     before[WEIR_STAT_BEYOND],
			 2 * FLOOD_EACH);
	/* What could not be told is told at the next attempt. */
	drain();
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 1000), EPERM);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_DEFAULT);
	assert_int_equal(counters(BOX_A).flows, 1);
}

/* More flows than are listed, from two CPUs, while events are being read: each attempt is in a flow or unlisted. */
static void test_flood_flow_limit(void **state)
{
	uint64_t before[WEIR_STAT_COUNT], after[WEIR_STAT_COUNT];
	struct weir_sandbox sb;
	struct err e = {0};
	uint64_t listed = 0;
	int status, i;
	pid_t pid;

	(void)state;
	govern(BOX_A, DENYING, 0);
	must(guard_stats(t.guard, before, &e), &e);
	pid = start_flood(FLOOD_PORTS);
	seen.n = 0;
	while (waitpid(pid, &status, WNOHANG) == 0) {
		assert_true(guard_drain(t.guard, 7, see, &seen) <= 7);
		usleep(100);
	}
	assert_int_equal(status, 0);
	while (guard_drain(t.guard, 100, see, &seen) > 0)
		;
	sb = counters(BOX_A);
	assert_int_equal(sb.attempts, 2 * FLOOD_EACH);
	assert_int_equal(sb.denied, 2 * FLOOD_EACH);
	assert_int_equal(sb.flows, WEIR_FLOWS_PER_SANDBOX);
	assert_int_equal(seen.n, WEIR_FLOWS_PER_SANDBOX);
	for (i = 0; i < seen.n; i++) {
		struct weir_flow f;

		assert_int_equal(guard_get_flow(t.guard, &seen.ev[i].key, &f), 0);
		listed += f.count;
	}
	assert_int_equal(listed + sb.unlisted, sb.attempts);
	/* That is no loss: no event was due, and nobody else lacked one. */
	must(guard_stats(t.guard, after, &e), &e);
	assert_int_equal(after[WEIR_STAT_BEYOND] - before[WEIR_STAT_BEYOND], sb.unlisted);
	assert_int_equal(after[WEIR_STAT_RING_FULL], before[WEIR_STAT_RING_FULL]);
	assert_int_equal(after[WEIR_STAT_FLOW_FULL], before[WEIR_STAT_FLOW_FULL]);
	assert_int_equal(guard_sweep_flows(t.guard, t.id[BOX_A]), WEIR_FLOWS_PER_SANDBOX);
	assert_int_equal(guard_get_flow(t.guard, &seen.ev[0].key, &(struct weir_flow){0}), -ENOENT);
}

#define RACE_PORTS 1000
#define RACE_EACH 20

/* Both threads wait for each other before every new port, then send to it together. */
static void *race_thread(void *arg)
{
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), i, n;
	union addr a;
	socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", 0);

	(void)arg;
	for (i = 0; i < RACE_PORTS; i++) {
		a.in.sin_port = htons((uint16_t)(1000 + i));
		__atomic_fetch_add(&told->go, 1, __ATOMIC_SEQ_CST);
		while (__atomic_load_n(&told->go, __ATOMIC_SEQ_CST) < 2 * (i + 1))
			sched_yield();
		for (n = 0; n < RACE_EACH; n++)
			sendto(s, "x", 1, 0, &a.sa, len);
	}
	return NULL;
}

/* Two CPUs open the same flow at the same moment: one entry, one event, no attempt lost. */
static void race_once(void)
{
	struct weir_sandbox sb;
	int i;
	pid_t pid;

	told->go = 0;
	govern(BOX_A, DENYING, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0) {
		pthread_t th[2];

		pthread_create(&th[0], NULL, race_thread, NULL);
		pthread_create(&th[1], NULL, race_thread, NULL);
		pthread_join(th[0], NULL);
		pthread_join(th[1], NULL);
		_exit(0);
	}
	assert_int_equal(reap(pid), 0);
	sb = counters(BOX_A);
	assert_int_equal(sb.attempts, 2 * RACE_PORTS * RACE_EACH);
	assert_int_equal(sb.flows, RACE_PORTS);
	assert_int_equal(sb.unlisted, 0);
	assert_int_equal(drain(), RACE_PORTS);
	for (i = 0; i < seen.n; i++) {
		struct weir_flow f;

		assert_int_equal(guard_get_flow(t.guard, &seen.ev[i].key, &f), 0);
		assert_int_equal(f.count, 2 * RACE_EACH);
		assert_int_equal(f.bytes, 2 * RACE_EACH * seen.ev[i].len);
	}
}

static void test_flow_race(void **state)
{
	int round;

	(void)state;
	for (round = 0; round < 4; round++)
		race_once();
}

static void test_flood_one_flow(void **state)
{
	struct weir_flow f;

	(void)state;
	govern(BOX_A, DENYING, 0);
	assert_int_equal(reap(start_flood(1)), 0);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_DEFAULT);
	assert_int_equal(counters(BOX_A).attempts, 2 * FLOOD_EACH);
	assert_int_equal(guard_get_flow(t.guard, &seen.ev[0].key, &f), 0);
	assert_int_equal(f.count, 2 * FLOOD_EACH);
	assert_int_equal(f.bytes, 2 * FLOOD_EACH * seen.ev[0].len);
}

/* Cgroups nobody entered share one allowance, which sweeping gives back; others' flows are not touched by it. */
static void test_strangers_are_bounded(void **state)
{
	(void)state;
	drain();
	assert_int_equal(spray(BOX_NONE, 1000, WEIR_FLOWS_PER_SANDBOX + 100), 0);
	assert_int_equal(drain(), WEIR_FLOWS_PER_SANDBOX);
	govern(BOX_A, DENYING, 0);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), EPERM);
	assert_int_equal(drain(), 1);
	assert_int_equal(guard_sweep_flows(t.guard, t.id[BOX_NONE]), WEIR_FLOWS_PER_SANDBOX);
	assert_int_equal(spray(BOX_NONE, 1000, 10), 0);
	assert_int_equal(drain(), 10);
}

/* ---- how many datagram sockets a sandbox may have pointed somewhere ---- */

static int64_t live(enum box box)
{
	struct weir_sandbox sb = {0};

	return guard_get_sandbox(t.guard, t.id[box], &sb, NULL) < 0 ? INT64_MIN : sb.sockets;
}

/* A last reference may be dropped a little later (in flight over a unix socket). */
static int live_becomes(enum box box, int64_t want)
{
	int i;

	for (i = 0; i < 2000 && live(box) != want; i++)
		usleep(1000);
	return live(box) == want;
}

static const struct first_use {
	int family;
	int send;
	const char *to;
	uint8_t hook;
} first_uses[] = {
    {AF_INET, 0, "192.0.2.1", WEIR_HOOK_CONNECT4},
    {AF_INET6, 0, "2001:db8::9", WEIR_HOOK_CONNECT6},
    {AF_INET, 1, "192.0.2.1", WEIR_HOOK_SENDMSG4},
    {AF_INET6, 1, "2001:db8::9", WEIR_HOOK_SENDMSG6},
};
#define FIRST_USES ((int)(sizeof first_uses / sizeof *first_uses))

static int use(int s, const struct first_use *u)
{
	union addr a;
	socklen_t len = addr_of(&a, u->family, u->to, 9);

	return (u->send ? (int)sendto(s, "x", 1, 0, &a.sa, len) : connect(s, &a.sa, len)) < 0 ? errno : 0;
}

static int udp_socket(int family)
{
	return socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

static void many_files(void)
{
	struct rlimit r = {4096, 4096};

	MUST(setrlimit(RLIMIT_NOFILE, &r) == 0);
}

/* As many as are allowed, each way a quarter; which ones they are is left in `fds`. */
static void fill_sockets(int fds[WEIR_SOCKETS_PER_SANDBOX])
{
	int i;

	many_files();
	for (i = 0; i < WEIR_SOCKETS_PER_SANDBOX; i++) {
		fds[i] = udp_socket(first_uses[i % FIRST_USES].family);
		MUST(fds[i] >= 0 && use(fds[i], &first_uses[i % FIRST_USES]) == 0);
	}
}

static void limit_child(void)
{
	int fds[WEIR_SOCKETS_PER_SANDBOX], extra[FIRST_USES], i;

	fill_sockets(fds);
	MUST(live(BOX_A) == WEIR_SOCKETS_PER_SANDBOX);
	MUST(counters(BOX_A).denied == 0);
	for (i = 0; i < FIRST_USES; i++) {
		extra[i] = udp_socket(first_uses[i].family);
		MUST(use(extra[i], &first_uses[i]) == EPERM);
		MUST(live(BOX_A) == WEIR_SOCKETS_PER_SANDBOX);
	}
	/* Those that are in go on; other kinds are not meant. */
	for (i = 0; i < FIRST_USES; i++)
		MUST(use(fds[i], &first_uses[i]) == 0);
	MUST(tcp_to("192.0.2.1", 9) == ECONNREFUSED);
	/* Place for one, whether it was refused before or not. */
	close(fds[7]);
	MUST(live(BOX_A) == WEIR_SOCKETS_PER_SANDBOX - 1);
	MUST(use(extra[2], &first_uses[2]) == 0);
	MUST(use(extra[1], &first_uses[1]) == EPERM);
	close(extra[1]);
	MUST(live(BOX_A) == WEIR_SOCKETS_PER_SANDBOX);
	close(extra[2]);
	MUST(use(udp_socket(AF_INET), &first_uses[0]) == 0);
	MUST(use(udp_socket(AF_INET), &first_uses[0]) == EPERM);
	_exit(0);
}

static void test_socket_limit(void **state)
{
	int i, refused[WEIR_HOOK_COUNT] = {0};
	struct weir_sandbox sb;
	pid_t pid;

	(void)state;
	govern(BOX_A, ALLOWING, 0);
	govern(BOX_B, ALLOWING, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		limit_child();
	child_ok(pid);
	sb = counters(BOX_A);
	assert_int_equal(sb.sockets, 0);
	assert_int_equal(sb.denied, FIRST_USES + 2);
	assert_int_equal(sb.attempts, sb.denied + sb.allowed);
	assert_int_equal(sb.unlisted, 0);
	drain();
	for (i = 0; i < seen.n; i++) {
		const struct weir_event *ev = &seen.ev[i];
		uint8_t daddr[16];

		if (ev->key.reason != WEIR_REASON_SOCKETS)
			continue;
		refused[ev->key.hook]++;
		daddr_of(daddr, ev->key.family == 4 ? "192.0.2.1" : "2001:db8::9");
		assert_memory_equal(ev->key.daddr, daddr, 16);
		assert_int_equal(ev->key.cgroup, t.id[BOX_A]);
		assert_int_equal(ev->key.verdict, WEIR_DENY);
		assert_int_equal(ev->key.protocol, IPPROTO_UDP);
		assert_int_equal(ntohs(ev->key.dport_be), 9);
		assert_int_equal(ev->attribution, WEIR_ATTR_CURRENT);
		assert_int_equal(ev->pid, pid);
		assert_string_equal(ev->comm, COMM);
	}
	for (i = 0; i < FIRST_USES; i++)
		assert_int_equal(refused[first_uses[i].hook], 1);
	/* Another sandbox never had fewer. */
	assert_int_equal(udp_from(BOX_B, "192.0.2.1", 9), 0);
	assert_int_equal(live(BOX_B), 0);
}

static void pass_fd(int over, int fd)
{
	char control[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec io = {.iov_base = "f", .iov_len = 1};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	MUST(sendmsg(over, &m, 0) == 1);
}

static int take_fd(int over)
{
	char control[CMSG_SPACE(sizeof(int))] = {0}, byte;
	struct iovec io = {.iov_base = &byte, .iov_len = 1};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	int fd;

	MUST(recvmsg(over, &m, 0) == 1 && CMSG_FIRSTHDR(&m));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	return fd;
}

/* Descriptors come and go in three processes of two sandboxes; there is one socket. */
static void shared_child(void)
{
	int pair[2], s, copy, status, i;
	pid_t other;

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	s = udp_socket(AF_INET);
	MUST(live(BOX_A) == 0);
	MUST(use(s, &first_uses[0]) == 0 && use(s, &first_uses[2]) == 0);
	copy = dup(s);
	MUST(copy >= 0 && use(copy, &first_uses[0]) == 0 && live(BOX_A) == 1);
	other = fork();
	if (other == 0) {
		char go;

		MUST(use(s, &first_uses[0]) == 0);
		MUST(read(pair[1], &go, 1) == 1);
		_exit(0); /* the last one: closed by its end */
	}
	close(s);
	close(copy);
	MUST(live(BOX_A) == 1);
	MUST(write(pair[0], "x", 1) == 1 && waitpid(other, &status, 0) == other && status == 0);
	MUST(live_becomes(BOX_A, 0));
	/* Nobody has it, it is on its way to somebody. */
	s = udp_socket(AF_INET);
	MUST(use(s, &first_uses[2]) == 0);
	for (i = 0; i < 3; i++)
		pass_fd(pair[0], s);
	close(s);
	MUST(live(BOX_A) == 1);
	s = take_fd(pair[1]);
	MUST(use(s, &first_uses[2]) == 0 && live(BOX_A) == 1);
	close(s);
	MUST(live(BOX_A) == 1);
	close(pair[0]);
	close(pair[1]);
	MUST(live_becomes(BOX_A, 0));
	/* Whoever points it: it counts where it was made, and is taken off from anywhere. */
	s = udp_socket(AF_INET);
	move_to(BOX_B);
	MUST(use(s, &first_uses[0]) == 0);
	MUST(live(BOX_A) == 1 && live(BOX_B) == 0);
	close(s);
	MUST(live(BOX_A) == 0 && live(BOX_B) == 0);
	_exit(0);
}

static void test_socket_shared(void **state)
{
	pid_t pid;

	(void)state;
	govern(BOX_A, ALLOWING, 0);
	govern(BOX_B, ALLOWING, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		shared_child();
	child_ok(pid);
}

/* Streams, their accepted ends, and datagram sockets that were never pointed anywhere. */
static void uncounted_child(void)
{
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int u = udp_socket(AF_INET), accepted;
	union addr any, a;
	socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", 7779);

	MUST(bind(l, &any.sa, addr_of(&any, AF_INET, "0.0.0.0", 7779)) == 0 && listen(l, 1) == 0);
	MUST(connect(s, &a.sa, len) == 0);
	accepted = accept(l, NULL, NULL);
	MUST(accepted >= 0 && send(accepted, "x", 1, 0) == 1);
	MUST(bind(u, &any.sa, addr_of(&any, AF_INET, "0.0.0.0", 7779)) == 0);
	MUST(live(BOX_A) == 0);
	close(accepted);
	close(s);
	close(l);
	close(u);
	MUST(live(BOX_A) == 0);
	_exit(0);
}

static void test_socket_uncounted(void **state)
{
	pid_t pid;

	(void)state;
	govern(BOX_A, ALLOWING, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		uncounted_child();
	child_ok(pid);
}

#define CYCLES 20000

static void *cycle_thread(void *arg)
{
	const struct first_use *u = arg;
	int i, s;

	for (i = 0; i < CYCLES; i++) {
		s = udp_socket(u->family);
		MUST(use(s, u) == 0);
		close(s);
	}
	return NULL;
}

static void two_threads(void *(*run)(void *), void *first, void *second)
{
	pthread_t th[2];

	MUST(pthread_create(&th[0], NULL, run, first) == 0 && pthread_create(&th[1], NULL, run, second) == 0);
	MUST(pthread_join(th[0], NULL) == 0 && pthread_join(th[1], NULL) == 0);
}

static void *same_thread(void *arg)
{
	__atomic_fetch_add(&told->go, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&told->go, __ATOMIC_SEQ_CST) % 2)
		;
	MUST(use(*(int *)arg, &first_uses[2]) == 0);
	return NULL;
}

static void cycles_child(void)
{
	int i, s;

	two_threads(cycle_thread, (void *)(uintptr_t)&first_uses[0], (void *)(uintptr_t)&first_uses[1]);
	MUST(live(BOX_A) == 0);
	/* Both are the first to use one socket. */
	for (i = 0; i < 500; i++) {
		s = udp_socket(AF_INET);
		two_threads(same_thread, &s, &s);
		MUST(live(BOX_A) == 1);
		close(s);
		MUST(live(BOX_A) == 0);
	}
	_exit(0);
}

static void test_socket_cycles(void **state)
{
	pid_t pid;

	(void)state;
	govern(BOX_A, ALLOWING, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		cycles_child();
	child_ok(pid);
	assert_int_equal(counters(BOX_A).sockets, 0);
	assert_int_equal(counters(BOX_A).denied, 0);
}

/* Two threads at the limit: never one more than that, and nothing is left over. */
static void *crowd_thread(void *arg)
{
	int *fds = arg, i, got = 0;

	for (i = 0; i < WEIR_SOCKETS_PER_SANDBOX; i++) {
		fds[i] = udp_socket(AF_INET);
		got += use(fds[i], &first_uses[0]) == 0;
	}
	__atomic_fetch_add(&told->ports, got, __ATOMIC_SEQ_CST);
	return NULL;
}

static void crowd_child(void)
{
	static int fds[2][WEIR_SOCKETS_PER_SANDBOX];

	many_files();
	told->ports = 0;
	two_threads(crowd_thread, fds[0], fds[1]);
	MUST(told->ports == WEIR_SOCKETS_PER_SANDBOX);
	MUST(live(BOX_A) == WEIR_SOCKETS_PER_SANDBOX);
	_exit(0);
}

static void test_socket_crowd(void **state)
{
	pid_t pid;

	(void)state;
	govern(BOX_A, ALLOWING, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		crowd_child();
	child_ok(pid);
	assert_int_equal(counters(BOX_A).sockets, 0);
	assert_int_equal(counters(BOX_A).denied, WEIR_SOCKETS_PER_SANDBOX);
}

/* The owner of a socket fills the memory the kernel allows it: it can't be counted, so it may not be pointed anywhere. */
static void full_child(void)
{
	int s = udp_socket(AF_INET6), i;
	struct ipv6_mreq group = {.ipv6mr_interface = 1};

	inet_pton(AF_INET6, "ff01::1:0:0", &group.ipv6mr_multiaddr);
	for (i = 0; i < 20000; i++) {
		uint32_t n = htonl((uint32_t)i);

		memcpy(&group.ipv6mr_multiaddr.s6_addr[12], &n, 4);
		if (setsockopt(s, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &group, sizeof group) < 0)
			break;
	}
	MUST(i < 20000 && errno == ENOMEM);
	MUST(use(s, &first_uses[1]) == EPERM && use(s, &first_uses[3]) == EPERM);
	MUST(live(BOX_A) == 0);
	MUST(setsockopt(s, IPPROTO_IPV6, IPV6_DROP_MEMBERSHIP, &group, sizeof group) < 0); /* the one that failed */
	while (i-- > 0) {
		uint32_t n = htonl((uint32_t)i);

		memcpy(&group.ipv6mr_multiaddr.s6_addr[12], &n, 4);
		MUST(setsockopt(s, IPPROTO_IPV6, IPV6_DROP_MEMBERSHIP, &group, sizeof group) == 0);
	}
	MUST(live_becomes(BOX_A, 0));
	for (i = 0; i < 1000 && use(s, &first_uses[1]) != 0; i++)
		usleep(1000); /* the kernel gives it back after a grace period */
	MUST(i < 1000 && live(BOX_A) == 1);
	_exit(0);
}

static void test_socket_uncountable(void **state)
{
	uint64_t before[WEIR_STAT_COUNT], after[WEIR_STAT_COUNT];
	struct err e = {0};
	int i, refused = 0;
	pid_t pid;

	(void)state;
	/* Thousands of groups that it may join are not to be listed one by one. */
	set_policy(ALLOWING, WEIR_ALLOW, ANY_PACKET | WEIR_IMG_QUIET_ALLOW);
	govern(BOX_A, ALLOWING, 0);
	must(guard_stats(t.guard, before, &e), &e);
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		full_child();
	child_ok(pid);
	must(guard_stats(t.guard, after, &e), &e);
	assert_true(after[WEIR_STAT_STORAGE] - before[WEIR_STAT_STORAGE] >= 2);
	assert_int_equal(counters(BOX_A).denied, after[WEIR_STAT_STORAGE] - before[WEIR_STAT_STORAGE]);
	drain();
	for (i = 0; i < seen.n; i++)
		refused += seen.ev[i].key.reason == WEIR_REASON_SOCKETS && seen.ev[i].key.verdict == WEIR_DENY;
	assert_int_equal(refused, 2);
}

/* A socket that outlives the entry it was counted in: the next entry neither has it nor loses one for it. */
static void replaced_child(void)
{
	int s = udp_socket(AF_INET), after;

	MUST(use(s, &first_uses[0]) == 0 && live(BOX_A) == 1);
	MUST(counters(BOX_A).probes == 0 && counters(BOX_A).attempts == 0);
	MUST(guard_set_sandbox(t.guard, t.id[BOX_A], ALLOWING, 0, NULL) == 0);
	MUST(live(BOX_A) == 0);
	after = udp_socket(AF_INET);
	MUST(use(after, &first_uses[0]) == 0 && live(BOX_A) == 1);
	close(s);
	MUST(live(BOX_A) == 1);
	MUST(guard_del_sandbox(t.guard, t.id[BOX_A], NULL) == 0);
	close(after);
	MUST(guard_set_sandbox(t.guard, t.id[BOX_A], ALLOWING, 0, NULL) == 0);
	MUST(live(BOX_A) == 0);
	_exit(0);
}

static void test_socket_replaced(void **state)
{
	pid_t pid;

	(void)state;
	govern(BOX_A, ALLOWING, WEIR_SB_PROBE);
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		replaced_child();
	child_ok(pid);
	assert_int_equal(counters(BOX_A).sockets, 0);
}

/* Cgroups without an entry have one allowance together, and it comes back. */
static void strangers_child(void)
{
	static int fds[WEIR_SOCKETS_PER_SANDBOX];
	int i;

	many_files();
	for (i = 0; i < WEIR_SOCKETS_PER_SANDBOX; i++) {
		fds[i] = udp_socket(AF_INET);
		MUST(use(fds[i], &first_uses[0]) == 0);
	}
	MUST(use(udp_socket(AF_INET), &first_uses[0]) == EPERM);
	move_to(BOX_ROOT);
	MUST(use(udp_socket(AF_INET), &first_uses[0]) == EPERM);
	_exit(0);
}

static void test_socket_strangers(void **state)
{
	int round;

	(void)state;
	for (round = 0; round < 2; round++) {
		pid_t pid = spawn(BOX_NONE, 0);

		if (pid == 0)
			strangers_child();
		child_ok(pid);
	}
	assert_int_equal(drain(), 2);
	assert_int_equal(seen.ev[0].key.reason, WEIR_REASON_SOCKETS);
	assert_int_equal(seen.ev[0].key.cgroup, t.id[BOX_NONE]);
	assert_int_equal(seen.ev[1].key.cgroup, t.id[BOX_ROOT]);
}

/* ---- an established stream when the policy changes ---- */

/* In the child: a line for each number the parent asks for. */
static void stream_child(void)
{
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), sent = 0;
	union addr a;
	socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", 7777);

	if (connect(s, &a.sa, len) < 0)
		_exit(errno);
	for (;;) {
		int go = __atomic_load_n(&told->go, __ATOMIC_ACQUIRE);

		if (go < 0)
			_exit(0);
		if (go > sent) {
			if (send(s, "weir", 4, 0) != 4)
				_exit(errno);
			sent++;
		}
		usleep(1000);
	}
}

static void set_default(uint32_t slot, uint8_t verdict)
{
	set_policy(slot, verdict, ANY_PACKET | WEIR_IMG_INBOUND);
}

static void ask_for_line(void)
{
	__atomic_fetch_add(&told->go, 1, __ATOMIC_RELEASE);
}

static void test_established_stream(void **state)
{
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), s, on = 1;
	struct weir_sandbox sb;
	union addr any;
	char line[4];
	pid_t pid;

	(void)state;
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	assert_int_equal(bind(l, &any.sa, addr_of(&any, AF_INET, "0.0.0.0", 7777)), 0);
	assert_int_equal(listen(l, 1), 0);
	govern(BOX_A, ALLOWING, 0);
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		stream_child();
	assert_true(heard(l, HEAR_MS));
	s = accept(l, NULL, NULL);
	ask_for_line();
	assert_true(heard(s, HEAR_MS));
	assert_int_equal(recv(s, line, 4, 0), 4);
	expect_one(BOX_A, WEIR_HOOK_CONNECT4, WEIR_ALLOW, WEIR_REASON_DEFAULT);
	/* Further packets of an allowed stream are no attempts. */
	sb = counters(BOX_A);
	assert_int_equal(sb.attempts, 1);
	assert_int_equal(sb.allowed, 1);
	assert_true(sb.packets >= 3);

	set_default(ALLOWING, WEIR_DENY);
	ask_for_line();
	assert_false(heard(s, 300));
	sb = counters(BOX_A);
	assert_true(sb.denied >= 1);
	assert_int_equal(sb.attempts, sb.denied + 1);
	expect_one(BOX_A, WEIR_HOOK_EGRESS, WEIR_DENY, WEIR_REASON_DEFAULT);
	/* Whatever context it left in, it is known whose it was. */
	assert_int_equal(seen.ev[0].key.protocol, IPPROTO_TCP);
	assert_int_equal(ntohs(seen.ev[0].key.dport_be), 7777);
	assert_int_equal(seen.ev[0].attribution, WEIR_ATTR_SOCKET);
	assert_int_equal(seen.ev[0].pid, pid);
	assert_string_equal(seen.ev[0].comm, COMM);
	assert_int_equal(seen.ev[0].socket_type, SOCK_STREAM);
	assert_null(event_errno_name(&seen.ev[0])); /* send() has long returned */
	assert_int_equal(seen.ev[0].requested_family, 4);
	assert_memory_equal(seen.ev[0].requested, seen.ev[0].key.daddr, 16);
	assert_int_equal(ntohs(seen.ev[0].requested_port_be), 7777);

	set_default(ALLOWING, WEIR_ALLOW);
	assert_true(heard(s, 5000)); /* at the sender's next retransmission */
	assert_int_equal(recv(s, line, 4, 0), 4);
	__atomic_store_n(&told->go, -1, __ATOMIC_RELEASE);
	assert_int_equal(reap(pid), 0);
	close(s);
	close(l);
}

/* An accepted connection: the sandbox did not ask for it, its packets are judged all the same. */
static int serve_once(void)
{
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), s;
	union addr any;

	if (bind(l, &any.sa, addr_of(&any, AF_INET, "0.0.0.0", 7778)) < 0 || listen(l, 1) < 0)
		return errno;
	__atomic_store_n(&told->go, 1, __ATOMIC_RELEASE);
	s = accept(l, NULL, NULL);
	return s < 0 || send(s, "weir", 4, 0) != 4 ? errno : 0;
}

/* Nobody is let in; then, by a policy that still denies every destination, one is, and gets its answer. */
static void test_accepted_stream(void **state)
{
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), i;
	struct weir_sandbox sb;
	union addr a;
	socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", 7778);
	char line[4];
	pid_t pid;

	(void)state;
	govern(BOX_A, DENYING, 0);
	told->go = 0;
	pid = spawn(BOX_A, 0);
	if (pid == 0)
		_exit(serve_once());
	for (i = 0; i < 2000 && !__atomic_load_n(&told->go, __ATOMIC_ACQUIRE); i++)
		usleep(1000);
	connect(s, &a.sa, len);
	assert_false(heard(s, 200));
	sb = counters(BOX_A);
	assert_int_equal(sb.packets, 0);
	assert_true(sb.inbound >= 1 && sb.inbound_flows == 1);
	assert_int_equal(sb.attempts + sb.denied + sb.flows, 0); /* it has tried nothing */
	expect_one(BOX_A, WEIR_HOOK_INGRESS, WEIR_DENY, WEIR_REASON_INBOUND);
	assert_int_equal(ntohs(seen.ev[0].key.dport_be), 7778);

	set_policy(DENYING, WEIR_DENY, ANY_PACKET | WEIR_IMG_INBOUND);
	assert_true(heard(s, 5000));
	assert_int_equal(reap(pid), 0);
	assert_int_equal(recv(s, line, 4, 0), 4);
	sb = counters(BOX_A);
	assert_int_equal(sb.allowed, 0);
	assert_int_equal(sb.attempts, sb.denied);
	assert_true(sb.packets > 0);
	close(s);
}

/* ---- who holds the programs ---- */

static void test_pins_hold(void **state)
{
	struct guard_opts again = {.pin_dir = t.pins, .cgroup_fd = t.fd[BOX_ROOT], .level = t.level};
	struct guard *second = NULL;
	struct err e = {0};
	int l = udp_listener(9);

	(void)state;
	govern(BOX_A, DENYING, 0);
	/* Another instance in the same place is refused and leaves this one alone. */
	assert_true(guard_create(&second, &again, &e) < 0);
	assert_null(second);
	must(guard_verify(t.guard, t.fd[BOX_A], &e), &e);
	/* Nobody has them open any more. */
	t.guard = guard_free(t.guard);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), EPERM);
	assert_int_equal(tcp_from(BOX_A, "192.0.2.1", 9), EPERM);
	assert_int_equal(udp_from(BOX_NONE, "192.0.2.1", 9), EPERM);
	assert_false(heard(l, QUIET_MS));
	must(guard_adopt(&t.guard, t.pins, &e), &e);
	must(guard_verify(t.guard, t.fd[BOX_A], &e), &e);
	assert_int_equal(drain(), 3);
	assert_int_equal(counters(BOX_A).denied, 2);
	close(l);
}

/* With the programs gone, packets pass: the other tests can fail. */
static void test_detached(void **state)
{
	struct err e = {0};
	int l = udp_listener(9), i;

	(void)state;
	govern(BOX_A, DENYING, 0);
	must(guard_verify(t.guard, t.fd[BOX_A], &e), &e);
	must(guard_verify(t.guard, t.fd[BOX_DEEP], &e), &e);
	must(guard_unpin(t.pins, &e), &e);
	assert_int_equal(udp_from(BOX_A, "192.0.2.1", 9), EPERM); /* our fds hold them still */
	t.guard = guard_free(t.guard);
	/* The kernel lets go of them a little later. */
	for (i = 0; i < 50 && udp_from(BOX_A, "192.0.2.1", 9) != 0; i++)
		usleep(20000);
	assert_true(i < 50);
	assert_true(heard(l, HEAR_MS));
	assert_int_equal(guard_adopt(&t.guard, t.pins, &e), -ENOENT);
	assert_null(t.guard);
	must(guard_unpin(t.pins, &e), &e); /* nothing there is fine */
	close(l);
}

static void test_verify_elsewhere(void **state)
{
	struct err e = {0};
	char *slash, top[256];
	int fd;

	(void)state;
	snprintf(top, sizeof top, "%s", t.path);
	slash = strrchr(top, '/');
	*slash = '\0';
	fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(guard_verify(t.guard, fd, &e), -ENOLINK);
	assert_string_equal(e.where, "policy");
	close(fd);
}

static void test_bad_options(void **state)
{
	struct guard_opts o = {.pin_dir = "/proc/weir-test", .cgroup_fd = t.fd[BOX_ROOT], .level = t.level};
	int other = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct guard *g = NULL;
	struct err e = {0};

	(void)state;
	assert_true(guard_create(&g, &o, &e) < 0);
	o.pin_dir = "/tmp/weir-test-not-bpffs";
	assert_int_equal(guard_create(&g, &o, &e), -EINVAL);
	assert_int_equal(access(o.pin_dir, F_OK), -1);
	o.pin_dir = "/sys/fs/bpf/weir-test-never";
	o.cgroup_fd = other;
	assert_true(guard_create(&g, &o, &e) < 0);
	o.cgroup_fd = t.fd[BOX_ROOT];
	o.level = 0;
	assert_true(guard_create(&g, &o, &e) < 0);
	assert_int_equal(access(o.pin_dir, F_OK), -1);
	assert_null(g);
	assert_int_equal(guard_set_sandbox(t.guard, 1, WEIR_POLICIES_MAX, 0, &e), -EINVAL);
	close(other);
}

/* Instructions the verifier walked through for the program behind a pinned link. */
static uint32_t verified(const char *prog)
{
	struct bpf_link_info link = {0};
	struct bpf_prog_info info = {0};
	uint32_t len = sizeof link;
	char path[128];
	int fd;

	snprintf(path, sizeof path, "%s/link_%s", t.pins, prog + sizeof "weir_" - 1);
	fd = bpf_obj_get(path);
	assert_int_equal(bpf_obj_get_info_by_fd(fd, &link, &len), 0);
	close(fd);
	fd = bpf_prog_get_fd_by_id(link.prog_id);
	len = sizeof info;
	assert_int_equal(bpf_obj_get_info_by_fd(fd, &info, &len), 0);
	close(fd);
	return info.verified_insns;
}

static void test_budget(void **state)
{
	FILE *f = fopen("bpf/budget.txt", "re");
	char line[256], prog[64];
	unsigned budget, n = 0;

	(void)state;
	if (!f)
		fail_msg("bpf/budget.txt: run this from the top of the tree");
	while (fgets(line, sizeof line, f)) {
		uint32_t is;

		if (line[0] == '#' || sscanf(line, "%63s %u", prog, &budget) != 2)
			continue;
		is = verified(prog);
		print_message("  %s: %u of %u instructions\n", prog, is, budget);
		if (is > budget)
			fail_msg("%s: %u instructions verified, the budget is %u", prog, is, budget);
		n++;
	}
	fclose(f);
	assert_int_equal(n, 8);
}

static void count_probe(void *ctx, const char *prog, int rc, const char *why)
{
	(void)why;
	if (rc)
		fail_msg("%s: %d", prog, rc);
	++*(int *)ctx;
}

static void test_probe(void **state)
{
	struct err e = {0};
	int n = 0;

	(void)state;
	must(guard_probe(count_probe, &n, &e), &e);
	assert_int_equal(n, 8);
}

/* ---- */

int main(void)
{
	const struct CMUnitTest tests[] = {
	    T(test_vectors),
	    T(test_no_entry),
	    T(test_nested),
	    T(test_no_policy),
	    T(test_malformed),
	    T(test_imported_socket),
	    T(test_exported_socket),
	    T(test_pid_namespace),
	    T(test_thread),
	    T(test_probe_flag),
	    T(test_dns),
	    T(test_dns_flows),
	    T(test_flood_ring_full),
	    T(test_flood_flow_limit),
	    T(test_flow_race),
	    T(test_flood_one_flow),
	    T(test_strangers_are_bounded),
	    T(test_socket_limit),
	    T(test_socket_shared),
	    T(test_socket_uncounted),
	    T(test_socket_cycles),
	    T(test_socket_crowd),
	    T(test_socket_uncountable),
	    T(test_socket_replaced),
	    T(test_socket_strangers),
	    T(test_established_stream),
	    T(test_accepted_stream),
	    T(test_pins_hold),
	    T(test_detached),
	    T(test_verify_elsewhere),
	    T(test_bad_options),
	    T(test_probe),
	    T(test_budget),
	};

	if (geteuid() != 0) {
		fprintf(stderr, "test_guard: needs root\n");
		return 1;
	}
	return cmocka_run_group_tests(tests, setup_all, NULL);
}
