/* SPDX-License-Identifier: Apache-2.0 */
/* What a packet can carry besides its destination: source routes and extension headers. `other` is the hop it really goes to.
 */
#include "vector.h"

#include <netinet/ip.h>
#include <string.h>

enum { LSRR = 131, SSRR = 137, RECORD_ROUTE = 7, OPTION_MAX = 12 };

/* One hop: type, length, pointer to it, the hop, filled up to four bytes. A recorded route has room for one. */
static socklen_t route_option(unsigned char ret[OPTION_MAX], unsigned char type, const struct way_args *a)
{
	memset(ret, 0, OPTION_MAX);
	ret[0] = type;
	ret[1] = 7;
	ret[2] = 4;
	if (type != RECORD_ROUTE)
		memcpy(ret + 3, &a->other.v4.sin_addr, 4);
	return 8;
}

static int socket_with_option(const struct way_args *a, int kind, unsigned char type)
{
	unsigned char option[OPTION_MAX];
	socklen_t len = route_option(option, type, a);
	int fd = open_socket(AF_INET, kind, 0);

	if (fd < 0 || !did("setsockopt", setsockopt(fd, IPPROTO_IP, IP_OPTIONS, option, len)))
		return -1;
	return fd;
}

static void udp_with_option(const struct way_args *a, unsigned char type)
{
	int fd = socket_with_option(a, SOCK_DGRAM, type);

	if (fd >= 0)
		did("sendto", sendto(fd, a->payload, a->len, 0, &a->to.sa, a->to.len));
}

static void way_udp_lsrr(const struct way_args *a)
{
	udp_with_option(a, LSRR);
}

static void way_udp_ssrr(const struct way_args *a)
{
	udp_with_option(a, SSRR);
}

static void way_udp_record_route(const struct way_args *a)
{
	udp_with_option(a, RECORD_ROUTE);
}

static void way_tcp_lsrr(const struct way_args *a)
{
	int fd = socket_with_option(a, SOCK_STREAM, LSRR);

	if (fd >= 0 && did("connect", connect_soon(fd, &a->to)))
		did("send", send(fd, a->payload, a->len, MSG_NOSIGNAL));
}

/* sendmsg() with one ancillary item. */
static void send_with(int fd, const struct way_args *a, int level, int type, const void *data, size_t len)
{
	union {
		char bytes[CMSG_SPACE(64)];
		struct cmsghdr align;
	} control = {};
	struct iovec part = {.iov_base = (void *)a->payload, .iov_len = a->len};
	struct place to = a->to;
	struct msghdr m = {
	    .msg_name = &to.sa, .msg_namelen = to.len, .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes};
	struct cmsghdr *c;

	m.msg_controllen = CMSG_SPACE(len);
	c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(len);
	memcpy(CMSG_DATA(c), data, len);
	if (fd >= 0)
		did("sendmsg", sendmsg(fd, &m, 0));
}

static void way_udp_lsrr_cmsg(const struct way_args *a)
{
	unsigned char option[OPTION_MAX];
	socklen_t len = route_option(option, LSRR, a);

	send_with(open_socket(AF_INET, SOCK_DGRAM, 0), a, IPPROTO_IP, IP_RETOPTS, option, len);
}

/* RFC 8754: two segments, of which the one it goes to first is `other`. */
struct segment_routing {
	unsigned char next, words, type, left, last, flags;
	unsigned short tag;
	struct in6_addr segments[2];
};

static struct segment_routing routing_header(const struct way_args *a)
{
	return (struct segment_routing){
	    .words = 4, .type = 4, .left = 1, .last = 1, .segments = {a->to.v6.sin6_addr, a->other.v6.sin6_addr}};
}

static void way_udp_rthdr(const struct way_args *a)
{
	struct segment_routing h = routing_header(a);
	int fd = open_socket(AF_INET6, SOCK_DGRAM, 0);

	if (fd >= 0 && did("setsockopt", setsockopt(fd, IPPROTO_IPV6, IPV6_RTHDR, &h, sizeof h)))
		did("sendto", sendto(fd, a->payload, a->len, 0, &a->to.sa, a->to.len));
}

static void way_udp_rthdr_cmsg(const struct way_args *a)
{
	struct segment_routing h = routing_header(a);

	send_with(open_socket(AF_INET6, SOCK_DGRAM, 0), a, IPPROTO_IPV6, IPV6_RTHDR, &h, sizeof h);
}

static void way_tcp_rthdr(const struct way_args *a)
{
	struct segment_routing h = routing_header(a);
	int fd = open_socket(AF_INET6, SOCK_STREAM, 0);

	if (fd >= 0 && did("setsockopt", setsockopt(fd, IPPROTO_IPV6, IPV6_RTHDR, &h, sizeof h)) &&
	    did("connect", connect_soon(fd, &a->to)))
		did("send", send(fd, a->payload, a->len, MSG_NOSIGNAL));
}

/* A header that only has padding in it: the transport header lies behind. */
static const unsigned char padding[8] = {0, 0, 1, 4};

static void udp_behind(const struct way_args *a, int option)
{
	int fd = open_socket(AF_INET6, SOCK_DGRAM, 0);

	if (fd >= 0 && did("setsockopt", setsockopt(fd, IPPROTO_IPV6, option, padding, sizeof padding)))
		did("sendto", sendto(fd, a->payload, a->len, 0, &a->to.sa, a->to.len));
}

static void way_udp_hopopts(const struct way_args *a)
{
	udp_behind(a, IPV6_HOPOPTS);
}

static void way_udp_dstopts(const struct way_args *a)
{
	udp_behind(a, IPV6_DSTOPTS);
}

static void way_udp_dstopts_cmsg(const struct way_args *a)
{
	send_with(open_socket(AF_INET6, SOCK_DGRAM, 0), a, IPPROTO_IPV6, IPV6_DSTOPTS, padding, sizeof padding);
}

const struct way option_ways[] = {
    {"udp_lsrr", way_udp_lsrr},
    {"udp_ssrr", way_udp_ssrr},
    {"udp_record_route", way_udp_record_route},
    {"udp_lsrr_cmsg", way_udp_lsrr_cmsg},
    {"tcp_lsrr", way_tcp_lsrr},
    {"udp_rthdr", way_udp_rthdr},
    {"udp_rthdr_cmsg", way_udp_rthdr_cmsg},
    {"tcp_rthdr", way_tcp_rthdr},
    {"udp_hopopts", way_udp_hopopts},
    {"udp_dstopts", way_udp_dstopts},
    {"udp_dstopts_cmsg", way_udp_dstopts_cmsg},
    {NULL, NULL},
};
