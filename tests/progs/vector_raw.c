/* SPDX-License-Identifier: Apache-2.0 */
/* Packets made by hand: raw sockets write their own headers, packet sockets their own frames. */
#include "vector.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <string.h>

enum { EXPERIMENT = 253, PACKET_MAX = 512 }; /* a protocol number for experiments, RFC 3692 */

static size_t put_udp(unsigned char *at, const struct way_args *a)
{
	struct udphdr h = {.source = htons(7777), .dest = a->to.v4.sin_port, .len = htons((unsigned short)(sizeof h + a->len))};

	memcpy(at, &h, sizeof h);
	memcpy(at + sizeof h, a->payload, a->len);
	return sizeof h + a->len;
}

/* UDP over IPv6 must have a sum. */
static void sum_udp6(unsigned char *udp, size_t len, const struct in6_addr *from, const struct in6_addr *to)
{
	unsigned char pseudo[40 + PACKET_MAX] = {};
	unsigned short sum;

	memcpy(pseudo, from, 16);
	memcpy(pseudo + 16, to, 16);
	pseudo[34] = (unsigned char)(len >> 8);
	pseudo[35] = (unsigned char)len;
	pseudo[39] = IPPROTO_UDP;
	memcpy(pseudo + 40, udp, len);
	sum = checksum(pseudo, 40 + len);
	memcpy(udp + 6, &sum, 2);
}

/* A raw socket that takes packets with their headers. Made for UDP, so that a filter which knows protocols lets it be. */
static int raw_socket(int family)
{
	int on = 1, fd = open_socket(family, SOCK_RAW, IPPROTO_UDP), rc;

	if (fd < 0)
		return -1;
	if (family == AF_INET)
		rc = setsockopt(fd, IPPROTO_IP, IP_HDRINCL, &on, sizeof on);
	else
		rc = setsockopt(fd, IPPROTO_IPV6, IPV6_HDRINCL, &on, sizeof on);
	return did("hdrincl", rc) ? fd : -1;
}

/* `fragment`: flags and offset as on the wire, host order; `options`: a record-route option too. The kernel adds the source. */
static size_t packet4(unsigned char ret[PACKET_MAX], const struct way_args *a, unsigned short fragment, bool options)
{
	struct iphdr h = {
	    .version = 4, .ihl = options ? 7 : 5, .ttl = 64, .protocol = IPPROTO_UDP, .frag_off = htons(fragment)};
	static const unsigned char record_route[8] = {7, 7, 4};
	size_t n = sizeof h;

	h.daddr = a->to.v4.sin_addr.s_addr;
	h.id = htons(77);
	if (options) {
		memcpy(ret + n, record_route, 8);
		n += 8;
	}
	n += put_udp(ret + n, a);
	h.tot_len = htons((unsigned short)n);
	memcpy(ret, &h, sizeof h);
	return n;
}

static void send_packet4(const struct way_args *a, unsigned short fragment, bool options, const struct place *claim)
{
	unsigned char packet[PACKET_MAX];
	size_t n = packet4(packet, a, fragment, options);
	int fd = raw_socket(AF_INET);

	if (fd >= 0)
		did("sendto", sendto(fd, packet, n, 0, &claim->sa, claim->len));
}

static void way_raw_hdrincl(const struct way_args *a)
{
	send_packet4(a, 0, false, &a->to);
}

/* The call names one place, the header in the packet another. */
static void way_raw_lie(const struct way_args *a)
{
	send_packet4(a, 0, false, &a->other);
}

static void way_raw_options(const struct way_args *a)
{
	send_packet4(a, 0, true, &a->to);
}

static void way_raw_first_fragment(const struct way_args *a)
{
	send_packet4(a, IP_MF, false, &a->to);
}

/* A first fragment that ends before the ports do. */
static void way_raw_tiny_fragment(const struct way_args *a)
{
	unsigned char packet[PACKET_MAX];
	int fd = raw_socket(AF_INET);

	packet4(packet, a, IP_MF, false);
	if (fd >= 0)
		did("sendto", sendto(fd, packet, sizeof(struct iphdr) + 2, 0, &a->to.sa, a->to.len));
}

/* Its first bytes look like a UDP header, and are none. */
static void way_raw_later_fragment(const struct way_args *a)
{
	send_packet4(a, 8, false, &a->to);
}

static void way_raw_icmp(const struct way_args *a)
{
	unsigned char echo[256] = {a->to.sa.sa_family == AF_INET ? ICMP_ECHO : ICMP6_ECHO_REQUEST};
	int fd = open_socket(a->to.sa.sa_family, SOCK_RAW, a->to.sa.sa_family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6);
	struct place to = a->to;
	unsigned short sum;

	to.v4.sin_port = 0;
	memcpy(echo + 8, a->payload, a->len);
	sum = checksum(echo, 8 + a->len);
	if (to.sa.sa_family == AF_INET)
		memcpy(echo + 2, &sum, 2);
	if (fd >= 0)
		did("sendto", sendto(fd, echo, 8 + a->len, 0, &to.sa, to.len));
}

/* The kernel makes the IP header. */
static void way_raw_udp(const struct way_args *a)
{
	int fd = open_socket(a->to.sa.sa_family, SOCK_RAW, IPPROTO_UDP);
	unsigned char udp[PACKET_MAX];
	size_t n = put_udp(udp, a);
	struct place to = a->to;

	to.v4.sin_port = 0;
	if (fd >= 0)
		did("sendto", sendto(fd, udp, n, 0, &to.sa, to.len));
}

static void way_raw_connected(const struct way_args *a)
{
	int fd = open_socket(a->to.sa.sa_family, SOCK_RAW, IPPROTO_UDP);
	unsigned char udp[PACKET_MAX];
	size_t n = put_udp(udp, a);
	struct place to = a->to;

	to.v4.sin_port = 0;
	if (fd >= 0 && did("connect", connect(fd, &to.sa, to.len)))
		did("send", send(fd, udp, n, 0));
}

static void way_raw_other(const struct way_args *a)
{
	int fd = open_socket(a->to.sa.sa_family, SOCK_RAW, EXPERIMENT);
	struct place to = a->to;

	to.v4.sin_port = 0;
	if (fd >= 0)
		did("sendto", sendto(fd, a->payload, a->len, 0, &to.sa, to.len));
}

/* An IPv6 packet: header, `ext` (whose first byte becomes UDP where it is 0), then UDP. Source: what a UDP socket would get. */
static void send_packet6(const struct way_args *a, const void *ext, size_t ext_len, unsigned char ext_type,
			 const struct place *claim)
{
	struct ip6_hdr h = {.ip6_dst = a->to.v6.sin6_addr};
	unsigned char packet[PACKET_MAX];
	size_t n = sizeof h, udp;
	struct sockaddr_in6 own;
	socklen_t own_len = sizeof own;
	struct place to = *claim;
	int probe = socket(AF_INET6, SOCK_DGRAM, 0), fd;

	if (!did("source", connect(probe, &claim->sa, claim->len)) || getsockname(probe, (struct sockaddr *)&own, &own_len) < 0)
		return;
	h.ip6_src = own.sin6_addr;
	h.ip6_vfc = 0x60;
	h.ip6_hlim = 64;
	h.ip6_nxt = ext_len ? ext_type : IPPROTO_UDP;
	if (ext_len)
		memcpy(packet + n, ext, ext_len);
	n += ext_len;
	udp = put_udp(packet + n, a);
	sum_udp6(packet + n, udp, &h.ip6_src, &h.ip6_dst);
	n += udp;
	h.ip6_plen = htons((unsigned short)(n - sizeof h));
	memcpy(packet, &h, sizeof h);
	fd = raw_socket(AF_INET6);
	to.v6.sin6_port = 0;
	if (fd >= 0)
		did("sendto", sendto(fd, packet, n, 0, &to.sa, to.len));
}

static void way_raw6(const struct way_args *a)
{
	send_packet6(a, NULL, 0, 0, &a->to);
}

static void way_raw6_lie(const struct way_args *a)
{
	send_packet6(a, NULL, 0, 0, &a->other);
}

static void way_raw6_first_fragment(const struct way_args *a)
{
	const unsigned char fragment[8] = {IPPROTO_UDP, 0, 0, 1, 0, 0, 0, 77};

	send_packet6(a, fragment, sizeof fragment, IPPROTO_FRAGMENT, &a->to);
}

static void way_raw6_later_fragment(const struct way_args *a)
{
	const unsigned char fragment[8] = {IPPROTO_UDP, 0, 0, 8 << 3 & 0xff, 0, 0, 0, 77};

	send_packet6(a, fragment, sizeof fragment, IPPROTO_FRAGMENT, &a->to);
}

/* Type 0, which the socket options no longer make: one hop left. */
static void way_raw6_rthdr0(const struct way_args *a)
{
	unsigned char h[24] = {IPPROTO_UDP, 2, 0, 1};

	memcpy(h + 8, &a->other.v6.sin6_addr, 16);
	send_packet6(a, h, sizeof h, IPPROTO_ROUTING, &a->to);
}

static void way_raw6_hopopts(const struct way_args *a)
{
	const unsigned char h[8] = {IPPROTO_UDP, 0, 1, 4};

	send_packet6(a, h, sizeof h, IPPROTO_HOPOPTS, &a->to);
}

/* Five headers before the transport's: as deep as one may have to look. */
static void way_raw6_chain(const struct way_args *a)
{
	unsigned char h[40] = {};

	for (int i = 0; i < 5; i++) {
		h[i * 8] = i < 4 ? IPPROTO_DSTOPTS : IPPROTO_UDP;
		h[i * 8 + 2] = 1;
		h[i * 8 + 3] = 4;
	}
	send_packet6(a, h, sizeof h, IPPROTO_DSTOPTS, &a->to);
}

/* Below IP: no routing, no cgroup hook. The gateway's hardware address is the fake internet's own. */
static const unsigned char gateway_mac[6] = {2, 0, 0, 0, 0, 1}, own_mac[6] = {2, 0, 0, 0, 0, 2};

static void send_frame(const struct way_args *a, int type)
{
	unsigned char frame[14 + PACKET_MAX];
	struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_protocol = htons(ETHERTYPE_IP), .sll_halen = 6};
	size_t head = type == SOCK_RAW ? 14 : 0, n = head + packet4(frame + head, a, 0, false);
	struct iphdr *ip = (struct iphdr *)(frame + head);
	int fd = open_socket(AF_PACKET, type, htons(ETHERTYPE_IP));

	ip->saddr = inet_addr("10.244.1.5");
	ip->check = checksum(ip, sizeof *ip);
	memcpy(frame, gateway_mac, head ? 6 : 0);
	memcpy(frame + 6, own_mac, head ? 6 : 0);
	if (head) {
		frame[12] = 8;
		frame[13] = 0;
		ip = (struct iphdr *)(frame + head);
	}
	to.sll_ifindex = (int)if_nametoindex("eth0");
	memcpy(to.sll_addr, gateway_mac, 6);
	if (fd >= 0)
		did("sendto", sendto(fd, frame, n, 0, (struct sockaddr *)&to, sizeof to));
}

static void way_packet_dgram(const struct way_args *a)
{
	send_frame(a, SOCK_DGRAM);
}

static void way_packet_raw(const struct way_args *a)
{
	send_frame(a, SOCK_RAW);
}

const struct way raw_ways[] = {
    {"raw_hdrincl", way_raw_hdrincl},
    {"raw_lie", way_raw_lie},
    {"raw_options", way_raw_options},
    {"raw_first_fragment", way_raw_first_fragment},
    {"raw_tiny_fragment", way_raw_tiny_fragment},
    {"raw_later_fragment", way_raw_later_fragment},
    {"raw_icmp", way_raw_icmp},
    {"raw_udp", way_raw_udp},
    {"raw_connected", way_raw_connected},
    {"raw_other", way_raw_other},
    {"raw6", way_raw6},
    {"raw6_lie", way_raw6_lie},
    {"raw6_first_fragment", way_raw6_first_fragment},
    {"raw6_later_fragment", way_raw6_later_fragment},
    {"raw6_rthdr0", way_raw6_rthdr0},
    {"raw6_hopopts", way_raw6_hopopts},
    {"raw6_chain", way_raw6_chain},
    {"packet_dgram", way_packet_dgram},
    {"packet_raw", way_packet_raw},
    {NULL, NULL},
};
