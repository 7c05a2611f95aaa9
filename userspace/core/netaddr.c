/* SPDX-License-Identifier: Apache-2.0 */
#include "core/netaddr.h"

#include <stdio.h>
#include <string.h>

enum { ICMP = 1, IGMP = 2, TCP = 6, UDP = 17, DCCP = 33, GRE = 47, ESP = 50, AH = 51, ICMPV6 = 58, SCTP = 132, UDPLITE = 136 };

static int put_ipv4(char *out, const uint8_t a[4])
{
	return sprintf(out, "%u.%u.%u.%u", a[0], a[1], a[2], a[3]);
}

static void put_ipv6(char *out, const uint8_t addr[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	unsigned group[8];
	int run = -1, run_len = 1, n = 0;

	if (memcmp(addr, mapped, sizeof mapped) == 0) {
		put_ipv4(out + sprintf(out, "::ffff:"), addr + 12);
		return;
	}
	for (int i = 0; i < 8; i++)
		group[i] = (unsigned)addr[2 * i] << 8 | addr[2 * i + 1];
	/* The longest run of at least two zero groups, the first of equals, becomes "::". */
	for (int i = 0, len; i < 8; i += len + 1) {
		for (len = 0; i + len < 8 && group[i + len] == 0; len++)
			;
		if (len > run_len) {
			run = i;
			run_len = len;
		}
	}
	for (int i = 0; i < 8; i++) {
		if (i == run) {
			n += sprintf(out + n, "::");
			i += run_len - 1;
			continue;
		}
		n += sprintf(out + n, "%s%x", i && i != run + run_len ? ":" : "", group[i]);
	}
	out[n] = 0;
}

void netaddr_text(char ret[NETADDR_TEXT_MAX], const uint8_t addr[16], uint8_t family)
{
	ret[0] = 0;
	if (family == 4)
		put_ipv4(ret, addr + 12);
	else if (family == 6)
		put_ipv6(ret, addr);
}

const char *netproto_text(char buf[NETPROTO_TEXT_MAX], uint8_t protocol)
{
	static const char *const names[256] = {
	    [ICMP] = "icmp", [IGMP] = "igmp", [TCP] = "tcp",	   [UDP] = "udp",   [DCCP] = "dccp",	   [GRE] = "gre",
	    [ESP] = "esp",   [AH] = "ah",     [ICMPV6] = "icmpv6", [SCTP] = "sctp", [UDPLITE] = "udplite",
	};

	if (names[protocol])
		return names[protocol];
	snprintf(buf, NETPROTO_TEXT_MAX, "ip-proto-%u", (unsigned)protocol);
	return buf;
}

bool netproto_has_port(uint8_t protocol)
{
	return protocol == TCP || protocol == UDP || protocol == DCCP || protocol == SCTP || protocol == UDPLITE;
}

bool netproto_is_icmp(uint8_t protocol)
{
	return protocol == ICMP || protocol == ICMPV6;
}
