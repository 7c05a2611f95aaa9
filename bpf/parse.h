/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads a packet's own bytes: destination, transport, the first DNS question. Pure: the includer defines
 *
 *	WEIR_PACKET			what a packet is (struct __sk_buff in the kernel, a byte buffer in the tests)
 *	weir_load(pkt, off, dst, len)	copies bytes at `off` from the network header on; 0, or negative when they are not there
 *
 * The context's own fields (remote_ip4, family ..) are never asked: on a connected socket they describe the peer, not the
 * packet.
 */
#ifndef WEIR_BPF_PARSE_H
#define WEIR_BPF_PARSE_H

#include "verdict.h"

enum {
	WEIR_P_HOPOPTS = 0,
	WEIR_P_ICMP = 1,
	WEIR_P_TCP = 6,
	WEIR_P_UDP = 17,
	WEIR_P_DCCP = 33,
	WEIR_P_ROUTING = 43,
	WEIR_P_FRAGMENT = 44,
	WEIR_P_AH = 51,
	WEIR_P_ICMPV6 = 58,
	WEIR_P_DSTOPTS = 60,
	WEIR_P_SCTP = 132,
	WEIR_P_UDPLITE = 136,
};

#define WEIR_ETH_IP 0x0800
#define WEIR_ETH_IPV6 0x86DD
#define WEIR_EXT_HEADERS 8  /* of an IPv6 packet; a longer chain is malformed to us, so denied */
#define WEIR_DNS_LABELS 128 /* the most that fit into WEIR_DNS_MAX bytes, root included */

/* What a packet says about itself. On failure the fields read so far stay, family is 0. */
struct weir_packet {
	__u8 daddr[16];
	__u16 dport_be;
	__u8 family;
	__u8 protocol;
	__u16 transport; /* offset of the transport header */
	__u8 headless;	 /* a later fragment: there is no transport header in it */
	__u8 options;	 /* the IPv4 header has options */
	__u8 routing;	 /* there is an IPv6 routing header */
	__u8 pad[7];
};

/* Fills in the port, or what stands for one. Bytes that should be there and are not make the packet malformed. */
WEIR_INLINE int weir_parse_transport(WEIR_PACKET *pkt, struct weir_packet *pk)
{
	__u16 two[2] = {0, 0};

	if (pk->headless)
		return 0;
	switch (pk->protocol) {
	case WEIR_P_TCP:
	case WEIR_P_UDP:
	case WEIR_P_UDPLITE:
	case WEIR_P_SCTP:
	case WEIR_P_DCCP:
		if (weir_load(pkt, pk->transport, two, 4) < 0)
			return -1;
		pk->dport_be = two[1];
		return 0;
	case WEIR_P_ICMP:
	case WEIR_P_ICMPV6:
		if (weir_load(pkt, pk->transport, two, 2) < 0)
			return -1;
		pk->dport_be = two[0];
		return 0;
	default:
		return 0;
	}
}

WEIR_INLINE int weir_parse_ip4(WEIR_PACKET *pkt, struct weir_packet *pk)
{
	__u8 h[20], last;
	__u32 ihl;

	if (weir_load(pkt, 0, h, sizeof h) < 0 || h[0] >> 4 != 4)
		return -1;
	pk->daddr[10] = pk->daddr[11] = 0xff;
	__builtin_memcpy(pk->daddr + 12, h + 16, 4);
	pk->protocol = h[9];
	ihl = (h[0] & 15) * 4U;
	if (ihl < sizeof h || weir_load(pkt, ihl - 1, &last, 1) < 0)
		return -1;
	pk->transport = (__u16)ihl;
	pk->options = ihl > sizeof h;
	pk->headless = (h[6] & 0x1f) || h[7];
	pk->family = 4;
	return 0;
}

WEIR_INLINE int weir_is_extension(__u8 header)
{
	return header == WEIR_P_HOPOPTS || header == WEIR_P_DSTOPTS || header == WEIR_P_ROUTING || header == WEIR_P_AH ||
	       header == WEIR_P_FRAGMENT;
}

WEIR_INLINE int weir_parse_ip6(WEIR_PACKET *pkt, struct weir_packet *pk)
{
	__u8 h[8], next;
	__u32 off = 40;
	int i;

	if (weir_load(pkt, 0, h, sizeof h) < 0 || h[0] >> 4 != 6 || weir_load(pkt, 24, pk->daddr, 16) < 0)
		return -1;
	next = h[6];
	for (i = 0; i < WEIR_EXT_HEADERS && weir_is_extension(next); i++) {
		__u8 x[4];

		if (weir_load(pkt, off, x, sizeof x) < 0)
			return -1;
		if (next == WEIR_P_ROUTING)
			pk->routing = 1;
		if (next == WEIR_P_AH)
			off += (x[1] + 2U) * 4;
		else
			off += next == WEIR_P_FRAGMENT ? 8 : (x[1] + 1U) * 8;
		pk->headless = next == WEIR_P_FRAGMENT && (x[2] || x[3] & 0xf8);
		next = x[0];
		if (pk->headless)
			break;
	}
	pk->protocol = next;
	pk->transport = (__u16)off;
	/* Behind a later fragment's header, `next` only names what the first one began with. */
	if (!pk->headless && weir_is_extension(next))
		return -1;
	pk->family = 6;
	return 0;
}

/* `ethertype`: what the stack takes the packet for (host order). A raw socket can write any version into the header. */
WEIR_INLINE int weir_parse(WEIR_PACKET *pkt, __u32 ethertype, struct weir_packet *pk)
{
	int rc = -1;

	__builtin_memset(pk, 0, sizeof *pk);
	if (ethertype == WEIR_ETH_IP)
		rc = weir_parse_ip4(pkt, pk);
	else if (ethertype == WEIR_ETH_IPV6)
		rc = weir_parse_ip6(pkt, pk);
	if (rc == 0)
		rc = weir_parse_transport(pkt, pk);
	if (rc < 0)
		pk->family = 0;
	return rc;
}

WEIR_INLINE int weir_is_dns(const struct weir_packet *pk)
{
	__u16 port = __builtin_bswap16(pk->dport_be);

	return pk->protocol == WEIR_P_UDP && pk->family && !pk->headless && (port == 53 || port == 5353 || port == 5355);
}

/*
 * Measures the first question of the DNS message at `off`, which ends with the packet at `end`. Low half: bytes of its name
 * on the wire, 0 without one; high half: its type, 0 when unread. A name that breaks off keeps what is there: up to a
 * compression pointer or reserved label type and that itself, or to the end of the packet or of WEIR_DNS_MAX. So what tells
 * names apart, their hash, has it too.
 */
WEIR_INLINE __u32 weir_dns_question(WEIR_PACKET *pkt, __u32 off, __u32 end)
{
	__u32 name = off + 12, max, pos = 0, after = 0;
	__u8 b[2];
	int i;

	if (end <= name || weir_load(pkt, off + 4, b, 2) < 0 || !(b[0] | b[1]))
		return 0;
	max = end - name;
	if (max > WEIR_DNS_MAX)
		max = WEIR_DNS_MAX;
	for (i = 0; i < WEIR_DNS_LABELS; i++) {
		if (pos >= max || weir_load(pkt, name + pos, b, 1) < 0)
			return max;
		if (b[0] == 0) {
			pos++;
			after = pos;
			break;
		}
		if (b[0] & 0xc0) {
			pos++;
			if ((b[0] & 0xc0) == 0xc0) {
				pos++;
				after = pos;
			}
			break;
		}
		pos += b[0] + 1U;
	}
	if (pos > max)
		return max;
	if (!after || weir_load(pkt, name + after, b, 2) < 0)
		return pos;
	return pos | (__u32)b[0] << 24 | (__u32)b[1] << 16;
}

#define WEIR_ROTL(x, n) ((x) << (n) | (x) >> (64 - (n)))

WEIR_INLINE void weir_sip_round(__u64 v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = WEIR_ROTL(v[1], 13) ^ v[0];
	v[3] = WEIR_ROTL(v[3], 16) ^ v[2];
	v[0] = WEIR_ROTL(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = WEIR_ROTL(v[1], 17) ^ v[2];
	v[3] = WEIR_ROTL(v[3], 21) ^ v[0];
	v[2] = WEIR_ROTL(v[2], 32);
}

WEIR_INLINE void weir_sip_word(__u64 v[4], __u64 word)
{
	v[3] ^= word;
	weir_sip_round(v);
	v[0] ^= word;
}

/* Up to eight bytes of the name as one word, little end first; what is not there is zero. */
WEIR_INLINE __u64 weir_name_word(WEIR_PACKET *pkt, __u32 off, __u32 left)
{
	__u64 word = 0;
	__u8 b = 0;
	int i;

	if (left >= 8)
		return weir_load(pkt, off, &word, 8) < 0 ? 0 : word;
	for (i = 0; i < 7; i++) {
		if ((__u32)i >= left)
			break;
		if (weir_load(pkt, off + (__u32)i, &b, 1) < 0)
			break;
		word |= (__u64)b << 8 * i;
	}
	return word;
}

/*
 * SipHash-1-3 over the `len` bytes of the name at `off`, padded with zeros to whole words, and the length. Keyed, because
 * whoever could make two names collide could hide the second behind the first in the audit. 0 is kept for "no name".
 */
WEIR_INLINE __u64 weir_name_hash(WEIR_PACKET *pkt, __u32 off, __u32 len, __u64 k0, __u64 k1)
{
	__u64 v[4] = {k0 ^ 0x736f6d6570736575ULL, k1 ^ 0x646f72616e646f6dULL, k0 ^ 0x6c7967656e657261ULL,
		      k1 ^ 0x7465646279746573ULL};
	__u32 at;

	for (at = 0; at < 256; at += 8) {
		if (at >= len)
			break;
		weir_sip_word(v, weir_name_word(pkt, off + at, len - at));
	}
	weir_sip_word(v, len);
	v[2] ^= 0xff;
	weir_sip_round(v);
	weir_sip_round(v);
	weir_sip_round(v);
	v[0] ^= v[1] ^ v[2] ^ v[3];
	return v[0] ? v[0] : 1;
}

#endif
