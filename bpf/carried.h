/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * IPv4 addresses inside IPv6 addresses. Pure. A destination that a translator, tunnel or the kernel itself would turn into
 * another one is judged as both, or a denied address could be reached by another spelling.
 */
#ifndef WEIR_BPF_CARRIED_H
#define WEIR_BPF_CARRIED_H

#include "verdict.h"

/* The first `n` bytes; n is a constant wherever this is called, so that it becomes a few compares. */
WEIR_INLINE int weir_starts(const __u8 *addr, const __u8 *with, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (addr[i] != with[i])
			return 0;
	return 1;
}

WEIR_INLINE int weir_zeros(const __u8 *addr, int from, int to)
{
	int i;

	for (i = from; i < to; i++)
		if (addr[i])
			return 0;
	return 1;
}

WEIR_INLINE void weir_take4(__u8 ret[4], const __u8 *from, __u8 flip)
{
	int i;

	for (i = 0; i < 4; i++)
		ret[i] = from[i] ^ flip;
}

/* ::ffff:a.b.c.d: to a socket this is a.b.c.d and nothing else. */
WEIR_INLINE int weir_is_mapped(const __u8 addr[16])
{
	return weir_zeros(addr, 0, 10) && addr[10] == 0xff && addr[11] == 0xff;
}

/* By the address's first bits: at most one of these. Teredo holds two: this gives the server's. */
WEIR_INLINE __u8 weir_carried_by_prefix(const __u8 addr[16], __u8 ret[4])
{
	if (weir_zeros(addr, 0, 8)) {
		if (addr[8] == 0xff && addr[9] == 0xff && !addr[10] && !addr[11]) {
			weir_take4(ret, addr + 12, 0);
			return WEIR_VIA_TRANSLATED;
		}
		if (addr[8] || addr[9])
			return WEIR_VIA_NONE;
		weir_take4(ret, addr + 12, 0);
		if (addr[10] == 0xff && addr[11] == 0xff)
			return WEIR_VIA_MAPPED;
		/* ::/128 and ::1/128 lie in ::/96 and carry nothing. */
		if (!addr[10] && !addr[11] && !(weir_zeros(addr, 12, 15) && addr[15] <= 1))
			return WEIR_VIA_COMPATIBLE;
		return WEIR_VIA_NONE;
	}
	if (addr[0] == 0x00 && addr[1] == 0x64 && addr[2] == 0xff && addr[3] == 0x9b) {
		if (!weir_zeros(addr, 4, 12) && !(addr[4] == 0 && addr[5] == 1))
			return WEIR_VIA_NONE;
		weir_take4(ret, addr + 12, 0);
		return WEIR_VIA_NAT64;
	}
	if (addr[0] == 0x20 && addr[1] == 0x02) {
		weir_take4(ret, addr + 2, 0);
		return WEIR_VIA_6TO4;
	}
	if (addr[0] == 0x20 && addr[1] == 0x01 && !addr[2] && !addr[3]) {
		weir_take4(ret, addr + 4, 0);
		return WEIR_VIA_TEREDO_SERVER;
	}
	return WEIR_VIA_NONE;
}

/* The client's address behind its NAT, every bit turned over (RFC 4380 section 4). Only of a Teredo address. */
WEIR_INLINE void weir_teredo_client(const __u8 addr[16], __u8 ret[4])
{
	weir_take4(ret, addr + 12, 0xff);
}

WEIR_INLINE int weir_carried_isatap(const __u8 addr[16], __u8 ret[4])
{
	/* The "universal" bit of the interface id says whether the address is a public one. */
	if ((addr[8] & 0xfd) || addr[9] || addr[10] != 0x5e || addr[11] != 0xfe)
		return 0;
	weir_take4(ret, addr + 12, 0);
	return 1;
}

/* RFC 6052 section 2.2: the four bytes come behind the prefix and skip byte 8. Constant indices for each of the lengths. */
WEIR_INLINE int weir_carried_nat64(const __u8 addr[16], const struct weir_nat64 *n, __u8 ret[4])
{
	switch (n->len) {
	case 32:
		weir_take4(ret, addr + 4, 0);
		return weir_starts(addr, n->addr, 4);
	case 40:
		ret[0] = addr[5];
		ret[1] = addr[6];
		ret[2] = addr[7];
		ret[3] = addr[9];
		return weir_starts(addr, n->addr, 5);
	case 48:
		ret[0] = addr[6];
		ret[1] = addr[7];
		ret[2] = addr[9];
		ret[3] = addr[10];
		return weir_starts(addr, n->addr, 6);
	case 56:
		ret[0] = addr[7];
		ret[1] = addr[9];
		ret[2] = addr[10];
		ret[3] = addr[11];
		return weir_starts(addr, n->addr, 7);
	case 64:
		weir_take4(ret, addr + 9, 0);
		return weir_starts(addr, n->addr, 8);
	case 96:
		weir_take4(ret, addr + 12, 0);
		return weir_starts(addr, n->addr, 12);
	default:
		return 0;
	}
}

#endif
