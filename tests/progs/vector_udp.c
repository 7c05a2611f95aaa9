/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams, and the sockets that look like datagram sockets: UDP-Lite and ping. */
#include "vector.h"

#include <errno.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef IPPROTO_UDPLITE
#define IPPROTO_UDPLITE 136
#endif
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

static int datagram(const struct way_args *a, int protocol)
{
	return open_socket(a->to.sa.sa_family, SOCK_DGRAM, protocol);
}

static void send_to(int fd, const struct way_args *a)
{
	if (fd >= 0)
		did("sendto", sendto(fd, a->payload, a->len, 0, &a->to.sa, a->to.len));
}

static void connect_send(int fd, const struct way_args *a)
{
	if (fd >= 0 && did("connect", connect(fd, &a->to.sa, a->to.len)))
		did("send", send(fd, a->payload, a->len, 0));
}

static void way_udp(const struct way_args *a)
{
	send_to(datagram(a, 0), a);
}

static void way_udp_connected(const struct way_args *a)
{
	connect_send(datagram(a, 0), a);
}

static void way_udp_write(const struct way_args *a)
{
	int fd = datagram(a, 0);

	if (fd >= 0 && did("connect", connect(fd, &a->to.sa, a->to.len)))
		did("write", write(fd, a->payload, a->len));
}

static void way_udp_splice(const struct way_args *a)
{
	int fd = datagram(a, 0), p[2];

	if (fd < 0 || pipe(p) < 0 || write(p[1], a->payload, a->len) < 0)
		return;
	if (did("connect", connect(fd, &a->to.sa, a->to.len)))
		did("splice", splice(p[0], NULL, fd, NULL, a->len, 0));
}

static void message_to(struct msghdr *m, struct place *to, struct iovec *part, const struct way_args *a)
{
	*part = (struct iovec){.iov_base = (void *)a->payload, .iov_len = a->len};
	*m = (struct msghdr){.msg_name = &to->sa, .msg_namelen = to->len, .msg_iov = part, .msg_iovlen = 1};
}

static void way_udp_sendmsg(const struct way_args *a)
{
	struct place to = a->to;
	struct iovec part;
	struct msghdr m;
	int fd = datagram(a, 0);

	message_to(&m, &to, &part, a);
	if (fd >= 0)
		did("sendmsg", sendmsg(fd, &m, 0));
}

/* The first of two goes where it may: the second must be judged by itself. */
static void way_udp_sendmmsg(const struct way_args *a)
{
	struct place to[2] = {a->other, a->to};
	struct mmsghdr m[2] = {};
	struct iovec part[2];
	int fd = datagram(a, 0), n;

	if (fd < 0)
		return;
	for (int i = 0; i < 2; i++)
		message_to(&m[i].msg_hdr, &to[i], &part[i], a);
	n = sendmmsg(fd, m, 2, 0);
	if (did("sendmmsg", n) && n == 1)
		did("second", sendmmsg(fd, m + 1, 1, 0));
}

/* Connected to one place, sent to another. */
static void way_udp_elsewhere(const struct way_args *a)
{
	int fd = datagram(a, 0);

	if (fd >= 0 && did("connect", connect(fd, &a->other.sa, a->other.len)))
		send_to(fd, a);
}

static void way_udp_reconnect(const struct way_args *a)
{
	const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
	int fd = datagram(a, 0);

	if (fd < 0 || !did("connect elsewhere", connect(fd, &a->other.sa, a->other.len)))
		return;
	if (did("send elsewhere", send(fd, a->payload, a->len, 0)) && did("disconnect", connect(fd, &nowhere, sizeof nowhere)))
		connect_send(fd, a);
}

/* UDP takes AF_UNSPEC for AF_INET. */
static void way_udp_unspec(const struct way_args *a)
{
	struct place to = a->to;
	int fd = datagram(a, 0);

	to.sa.sa_family = AF_UNSPEC;
	if (fd >= 0)
		did("sendto", sendto(fd, a->payload, a->len, 0, &to.sa, to.len));
}

static void way_udp_connect_unspec(const struct way_args *a)
{
	struct place to = a->to;
	int fd = datagram(a, 0);

	to.sa.sa_family = AF_UNSPEC;
	/* Disconnects, whatever the address says. */
	if (fd >= 0 && did("connect", connect(fd, &to.sa, to.len)))
		did("send", send(fd, a->payload, a->len, 0));
}

/* A v4 address given to a v6 socket. */
static void way_udp_v4_on_v6(const struct way_args *a)
{
	send_to(open_socket(AF_INET6, SOCK_DGRAM, 0), a);
}

static void way_udp_v4_on_v6_connected(const struct way_args *a)
{
	connect_send(open_socket(AF_INET6, SOCK_DGRAM, 0), a);
}

/* The kernel keeps what it has until the last part; `more` may itself be refused. */
static void way_udp_more(const struct way_args *a)
{
	int fd = datagram(a, 0);

	if (fd < 0 || !did("sendto more", sendto(fd, a->payload, a->len - 1, MSG_MORE, &a->to.sa, a->to.len)))
		return;
	did("sendto", sendto(fd, a->payload + a->len - 1, 1, 0, &a->to.sa, a->to.len));
}

/* Cut into fragments behind the hook; judged whole. */
static void way_udp_big(const struct way_args *a)
{
	static char big[20000];
	int fd = datagram(a, 0);

	for (size_t i = 0; i < sizeof big; i++)
		big[i] = a->payload[i % a->len];
	if (fd >= 0)
		did("sendto", sendto(fd, big, sizeof big, 0, &a->to.sa, a->to.len));
}

static void way_udp_segments(const struct way_args *a)
{
	int fd = datagram(a, 0), size = (int)a->len;
	char twice[256];
	int n = snprintf(twice, sizeof twice, "%s%s", a->payload, a->payload);

	if (fd >= 0 && did("setsockopt", setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size)))
		did("sendto", sendto(fd, twice, (size_t)n, 0, &a->to.sa, a->to.len));
}

static void set_and_send(const struct way_args *a, const char *step, int level, int option, const void *value, socklen_t len)
{
	int fd = datagram(a, 0);

	if (fd >= 0 && did(step, setsockopt(fd, level, option, value, len)))
		send_to(fd, a);
}

static void way_udp_broadcast(const struct way_args *a)
{
	int on = 1;

	set_and_send(a, "broadcast", SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
}

static void way_udp_bindtodevice(const struct way_args *a)
{
	set_and_send(a, "bindtodevice", SOL_SOCKET, SO_BINDTODEVICE, a->word, (socklen_t)strlen(a->word) + 1);
}

static void way_udp_mark(const struct way_args *a)
{
	int mark = 77;

	set_and_send(a, "mark", SOL_SOCKET, SO_MARK, &mark, sizeof mark);
}

/* From an address that is not this host's. */
static void way_udp_foreign_source(const struct way_args *a)
{
	int on = 1, fd = datagram(a, 0);
	struct place from = a->other;

	from.v4.sin_port = 0;
	if (fd < 0 || !did("transparent", setsockopt(fd, IPPROTO_IP, IP_TRANSPARENT, &on, sizeof on)))
		return;
	if (did("bind", bind(fd, &from.sa, from.len)))
		send_to(fd, a);
}

static void way_udp_bound(const struct way_args *a)
{
	int fd = datagram(a, 0);
	struct place from = a->other;

	from.v4.sin_port = 0;
	if (fd >= 0 && did("bind", bind(fd, &from.sa, from.len)))
		send_to(fd, a);
}

static void way_udp_join(const struct way_args *a)
{
	struct ip_mreq group = {.imr_multiaddr = a->to.v4.sin_addr};
	struct ipv6_mreq group6 = {.ipv6mr_multiaddr = a->to.v6.sin6_addr, .ipv6mr_interface = if_nametoindex("eth0")};

	if (a->to.v4.sin_family == AF_INET6)
		set_and_send(a, "join", IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &group6, sizeof group6);
	else
		set_and_send(a, "join", IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group);
}

static void way_dns(const struct way_args *a)
{
	static const char query[] = "ab\1\0\0\1\0\0\0\0\0\0\6secret\4weir\0\0\1\0\1";
	int fd = datagram(a, 0);

	if (fd >= 0)
		did("sendto", sendto(fd, query, sizeof query - 1, 0, &a->to.sa, a->to.len));
}

static void way_udplite(const struct way_args *a)
{
	send_to(datagram(a, IPPROTO_UDPLITE), a);
}

static void way_udplite_connected(const struct way_args *a)
{
	connect_send(datagram(a, IPPROTO_UDPLITE), a);
}

static size_t echo_request(char ret[256], const struct way_args *a)
{
	memset(ret, 0, 8);
	ret[0] = a->to.sa.sa_family == AF_INET ? ICMP_ECHO : ICMP6_ECHO_REQUEST;
	memcpy(ret + 8, a->payload, a->len);
	return 8 + a->len;
}

static int ping_socket(const struct way_args *a)
{
	return datagram(a, a->to.sa.sa_family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6);
}

/* No address hook sees this one. */
static void way_ping(const struct way_args *a)
{
	char echo[256];
	size_t n = echo_request(echo, a);
	int fd = ping_socket(a);

	if (fd >= 0)
		did("sendto", sendto(fd, echo, n, 0, &a->to.sa, a->to.len));
}

static void way_ping_connected(const struct way_args *a)
{
	char echo[256];
	size_t n = echo_request(echo, a);
	int fd = ping_socket(a);

	if (fd >= 0 && did("connect", connect(fd, &a->to.sa, a->to.len)))
		did("send", send(fd, echo, n, 0));
}

const struct way udp_ways[] = {
    {"udp", way_udp},
    {"udp_connected", way_udp_connected},
    {"udp_write", way_udp_write},
    {"udp_splice", way_udp_splice},
    {"udp_sendmsg", way_udp_sendmsg},
    {"udp_sendmmsg", way_udp_sendmmsg},
    {"udp_elsewhere", way_udp_elsewhere},
    {"udp_reconnect", way_udp_reconnect},
    {"udp_unspec", way_udp_unspec},
    {"udp_connect_unspec", way_udp_connect_unspec},
    {"udp_v4_on_v6", way_udp_v4_on_v6},
    {"udp_v4_on_v6_connected", way_udp_v4_on_v6_connected},
    {"udp_more", way_udp_more},
    {"udp_big", way_udp_big},
    {"udp_segments", way_udp_segments},
    {"udp_broadcast", way_udp_broadcast},
    {"udp_bindtodevice", way_udp_bindtodevice},
    {"udp_mark", way_udp_mark},
    {"udp_foreign_source", way_udp_foreign_source},
    {"udp_bound", way_udp_bound},
    {"udp_join", way_udp_join},
    {"dns", way_dns},
    {"udplite", way_udplite},
    {"udplite_connected", way_udplite_connected},
    {"ping", way_ping},
    {"ping_connected", way_ping_connected},
    {NULL, NULL},
};
