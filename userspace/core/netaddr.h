/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses and transport protocols as text: pure, no resolver, no locale. */
#ifndef WEIR_CORE_NETADDR_H
#define WEIR_CORE_NETADDR_H

#include <stdbool.h>
#include <stdint.h>

#define NETADDR_TEXT_MAX 46
#define NETPROTO_TEXT_MAX 16

/*
 * Writes the address: family 4 takes the last four bytes ("10.0.0.1", however the first twelve look); family 6 all
 * sixteen in the canonical form of RFC 5952, mapped ones as "::ffff:10.0.0.1"; any other family gives "".
 */
void netaddr_text(char ret[NETADDR_TEXT_MAX], const uint8_t addr[16], uint8_t family);

/* Name of an IP protocol number, or "ip-proto-<n>" written to buf. Returns a literal or buf. */
const char *netproto_text(char buf[NETPROTO_TEXT_MAX], uint8_t protocol);

/* Whether the protocol has a destination port. */
bool netproto_has_port(uint8_t protocol);

/* Whether it is ICMP or ICMPv6, whose "port" in a flow key is type << 8 | code. */
bool netproto_is_icmp(uint8_t protocol);

#endif
