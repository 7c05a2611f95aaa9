/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: connect(), and the ways to connect without it. */
#include "vector.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

static void send_payload(int fd, const struct way_args *a)
{
	did("send", send(fd, a->payload, a->len, MSG_NOSIGNAL));
}

static void connect_and_send(int fd, const struct way_args *a)
{
	if (fd >= 0 && did("connect", connect_soon(fd, &a->to)))
		send_payload(fd, a);
}

static void way_tcp(const struct way_args *a)
{
	connect_and_send(open_socket(a->to.sa.sa_family, SOCK_STREAM, 0), a);
}

static void way_mptcp(const struct way_args *a)
{
	connect_and_send(open_socket(a->to.sa.sa_family, SOCK_STREAM, IPPROTO_MPTCP), a);
}

/* What else calls itself a stream: no address hook knows these. */
static void way_sctp(const struct way_args *a)
{
	connect_and_send(open_socket(a->to.sa.sa_family, SOCK_STREAM, IPPROTO_SCTP), a);
}

static void way_dccp(const struct way_args *a)
{
	connect_and_send(open_socket(a->to.sa.sa_family, SOCK_DCCP, IPPROTO_DCCP), a);
}

/* Stays long enough for the peer to name another address of its, to which the kernel then connects by itself. */
static void way_mptcp_join(const struct way_args *a)
{
	const struct timespec moment = {.tv_nsec = 300 * 1000 * 1000};

	connect_and_send(open_socket(a->to.sa.sa_family, SOCK_STREAM, IPPROTO_MPTCP), a);
	nanosleep(&moment, NULL);
}

/* The DNS message of TCP: its length, then itself. */
static void way_dns_tcp(const struct way_args *a)
{
	static const char query[] = "\0\x1d"
				    "ab\1\0\0\1\0\0\0\0\0\0\6secret\4weir\0\0\1\0\1";
	int fd = open_socket(a->to.sa.sa_family, SOCK_STREAM, 0);

	if (fd >= 0 && did("connect", connect_soon(fd, &a->to)))
		did("send", send(fd, query, sizeof query - 1, MSG_NOSIGNAL));
}

/* To the other place first, then to nowhere, then where it should not go: `connected` state must not carry over. */
static void way_tcp_reconnect(const struct way_args *a)
{
	const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
	int fd = open_socket(a->to.sa.sa_family, SOCK_STREAM, 0);

	if (fd < 0 || !did("connect elsewhere", connect_soon(fd, &a->other)))
		return;
	if (did("disconnect", connect(fd, &nowhere, sizeof nowhere)))
		connect_and_send(fd, a);
}

/* From an address of our own, `other`. The kernel takes "no address" for the one that the socket has. */
static void way_tcp_bound(const struct way_args *a)
{
	int fd = open_socket(a->to.sa.sa_family, SOCK_STREAM, 0);
	struct place from = a->other;

	from.v4.sin_port = 0;
	if (fd >= 0 && did("bind", bind(fd, &from.sa, from.len)))
		connect_and_send(fd, a);
}

static void way_tcp_bindtodevice(const struct way_args *a)
{
	int fd = open_socket(a->to.sa.sa_family, SOCK_STREAM, 0);

	if (fd >= 0 &&
	    did("bindtodevice", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, a->word, (socklen_t)strlen(a->word) + 1)))
		connect_and_send(fd, a);
}

static int opener(const struct way_args *a, int protocol)
{
	return open_socket(a->to.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK, protocol);
}

/* Sent along with the SYN where the system lets it, else right behind the handshake. */
static void sent_open(int fd, const struct way_args *a, const char *step, long rc)
{
	if (rc < 0 && errno == EINPROGRESS)
		rc = finish_connect(fd) < 0 ? -1 : send(fd, a->payload, a->len, MSG_NOSIGNAL);
	did(step, rc);
}

static void way_tfo_sendto(const struct way_args *a)
{
	int fd = opener(a, 0);

	if (fd >= 0)
		sent_open(fd, a, "sendto", sendto(fd, a->payload, a->len, MSG_FASTOPEN, &a->to.sa, a->to.len));
}

static void way_mptcp_tfo(const struct way_args *a)
{
	int fd = opener(a, IPPROTO_MPTCP);

	if (fd >= 0)
		sent_open(fd, a, "sendto", sendto(fd, a->payload, a->len, MSG_FASTOPEN, &a->to.sa, a->to.len));
}

static void way_tfo_sendmsg(const struct way_args *a)
{
	struct iovec part = {.iov_base = (void *)a->payload, .iov_len = a->len};
	struct place to = a->to;
	struct msghdr m = {.msg_name = &to.sa, .msg_namelen = to.len, .msg_iov = &part, .msg_iovlen = 1};
	int fd = opener(a, 0);

	if (fd >= 0)
		sent_open(fd, a, "sendmsg", sendmsg(fd, &m, MSG_FASTOPEN));
}

static void way_tfo_sendmmsg(const struct way_args *a)
{
	struct iovec part = {.iov_base = (void *)a->payload, .iov_len = a->len};
	struct place to = a->to;
	struct mmsghdr m = {.msg_hdr = {.msg_name = &to.sa, .msg_namelen = to.len, .msg_iov = &part, .msg_iovlen = 1}};
	int fd = opener(a, 0);

	if (fd >= 0)
		sent_open(fd, a, "sendmmsg", sendmmsg(fd, &m, 1, MSG_FASTOPEN));
}

/* connect() only notes the address; the SYN leaves with the first data. */
static void way_tfo_connect(const struct way_args *a)
{
	int on = 1, fd = opener(a, 0);

	if (fd < 0 || !did("setsockopt", setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on)))
		return;
	if (did("connect", connect(fd, &a->to.sa, a->to.len)))
		sent_open(fd, a, "send", send(fd, a->payload, a->len, MSG_NOSIGNAL));
}

/* A server: says "listening", takes one connection within three seconds, answers it. */
static void way_accept(const struct way_args *a)
{
	struct timeval patience = {.tv_sec = 3};
	int on = 1, fd = open_socket(a->to.sa.sa_family, SOCK_STREAM, 0), c;

	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	if (!did("bind", bind(fd, &a->to.sa, a->to.len)) || !did("listen", listen(fd, 4)))
		return;
	if (write(2, "listening\n", 10) != 10)
		return;
	c = accept(fd, NULL, NULL);
	if (did("accept", c))
		send_payload(c, a);
}

const struct way tcp_ways[] = {
    {"tcp", way_tcp},
    {"mptcp", way_mptcp},
    {"mptcp_join", way_mptcp_join},
    {"sctp", way_sctp},
    {"dccp", way_dccp},
    {"dns_tcp", way_dns_tcp},
    {"tcp_reconnect", way_tcp_reconnect},
    {"tcp_bound", way_tcp_bound},
    {"tcp_bindtodevice", way_tcp_bindtodevice},
    {"tfo_sendto", way_tfo_sendto},
    {"tfo_sendmsg", way_tfo_sendmsg},
    {"tfo_sendmmsg", way_tfo_sendmmsg},
    {"tfo_connect", way_tfo_connect},
    {"mptcp_tfo", way_mptcp_tfo},
    {"accept", way_accept},
    {NULL, NULL},
};
