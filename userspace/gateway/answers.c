/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/answers.h"

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <string.h>

enum kind {
	OTHER,	  /* no datagram */
	DATAGRAM, /* with its ports */
	REST,	  /* a further piece of one: no ports */
	BROKEN,	  /* a datagram that cannot be read */
};

/* The two ends of a frame, without a direction. */
struct ends {
	struct answers_peer from, to; /* .own is not set */
};

static enum kind read_udp(const uint8_t *at, size_t left, struct ends *ret)
{
	struct udphdr udp;

	if (left < sizeof udp)
		return BROKEN;
	memcpy(&udp, at, sizeof udp);
	ret->from.port = udp.source;
	ret->to.port = udp.dest;
	return DATAGRAM;
}

static enum kind read_ipv4(const uint8_t *at, size_t left, struct ends *ret)
{
	struct iphdr ip;
	size_t head;

	if (left < sizeof ip)
		return BROKEN;
	memcpy(&ip, at, sizeof ip);
	head = ip.ihl * 4u;
	if (ip.version != 4 || head < sizeof ip || left < head)
		return BROKEN;
	if (ip.protocol != IPPROTO_UDP)
		return OTHER;
	ret->from.family = ret->to.family = 4;
	memcpy(ret->from.address + 12, &ip.saddr, 4);
	memcpy(ret->to.address + 12, &ip.daddr, 4);
	return ntohs(ip.frag_off) & IP_OFFMASK ? REST : read_udp(at + head, left - head, ret);
}

static enum kind read_ipv6(const uint8_t *at, size_t left, struct ends *ret)
{
	struct ip6_frag piece;
	struct ip6_hdr ip;

	if (left < sizeof ip)
		return BROKEN;
	memcpy(&ip, at, sizeof ip);
	at += sizeof ip;
	left -= sizeof ip;
	ret->from.family = ret->to.family = 6;
	memcpy(ret->from.address, &ip.ip6_src, 16);
	memcpy(ret->to.address, &ip.ip6_dst, 16);
	if (ip.ip6_nxt != IPPROTO_FRAGMENT)
		return ip.ip6_nxt == IPPROTO_UDP ? read_udp(at, left, ret) : OTHER;
	if (left < sizeof piece)
		return BROKEN;
	memcpy(&piece, at, sizeof piece);
	if (piece.ip6f_nxt != IPPROTO_UDP)
		return OTHER;
	return piece.ip6f_offlg & IP6F_OFF_MASK ? REST : read_udp(at + sizeof piece, left - sizeof piece, ret);
}

static enum kind read_frame(const uint8_t *frame, size_t len, struct ends *ret)
{
	struct ether_header eth;

	memset(ret, 0, sizeof *ret);
	if (len < sizeof eth)
		return BROKEN;
	memcpy(&eth, frame, sizeof eth);
	if (eth.ether_type == htons(ETHERTYPE_IP))
		return read_ipv4(frame + sizeof eth, len - sizeof eth, ret);
	if (eth.ether_type == htons(ETHERTYPE_IPV6))
		return read_ipv6(frame + sizeof eth, len - sizeof eth, ret);
	return OTHER;
}

static bool same_host(const struct answers_peer *a, const struct answers_peer *b)
{
	return a->family == b->family && !memcmp(a->address, b->address, sizeof a->address);
}

static bool is_known(const struct answers *a, const struct answers_peer *p, bool whole)
{
	for (unsigned i = 0; i < ANSWERS_MAX; i++) {
		const struct answers_peer *known = &a->peers[i];

		if (same_host(known, p) && (!whole || (known->port == p->port && known->own == p->own)))
			return true;
	}
	return false;
}

void answers_note(struct answers *a, const uint8_t *frame, size_t len)
{
	struct ends e;

	if (read_frame(frame, len, &e) != DATAGRAM)
		return;
	e.to.own = e.from.port;
	if (is_known(a, &e.to, true))
		return;
	a->peers[a->next] = e.to;
	a->next = (a->next + 1) % ANSWERS_MAX;
}

bool answers_expected(const struct answers *a, const uint8_t *frame, size_t len)
{
	struct ends e;

	switch (read_frame(frame, len, &e)) {
	case OTHER:
		return true;
	case DATAGRAM:
		e.from.own = e.to.port;
		return is_known(a, &e.from, true);
	case REST: /* worth nothing without its first piece */
		return is_known(a, &e.from, false);
	case BROKEN:
		break;
	}
	return false;
}
