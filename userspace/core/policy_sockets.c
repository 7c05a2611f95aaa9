/* SPDX-License-Identifier: Apache-2.0 */
/* What `sockets` of a policy leaves to be sent: the socket filter refuses before any rule is asked. */
#include "core/policy.h"

enum { ICMP = 1, IGMP = 2, TCP = 6, UDP = 17, DCCP = 33, ICMPV6 = 58, SCTP = 132, UDPLITE = 136 };

bool policy_can_send(const struct policy_sockets *s, uint8_t protocol)
{
	static const struct {
		uint8_t protocol;
		uint32_t sockets;
	} rows[] = {
	    {TCP, POLICY_PROTO_TCP | POLICY_PROTO_MPTCP},
	    {UDP, POLICY_PROTO_UDP},
	    {ICMP, POLICY_PROTO_ICMP},
	    {ICMPV6, POLICY_PROTO_ICMP},
	    {UDPLITE, POLICY_PROTO_UDPLITE},
	    {SCTP, POLICY_PROTO_SCTP},
	    {DCCP, POLICY_PROTO_DCCP},
	};

	if (s->types & POLICY_SOCK_RAW || protocol == IGMP) /* which the kernel itself sends */
		return true;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (rows[i].protocol == protocol)
			return s->protocols & rows[i].sockets;
	return false;
}

const char *policy_socket_refusal(const struct policy *p, uint8_t family, uint8_t protocol)
{
	/* IPv4 goes out of IPv6 sockets too, by mapped addresses. */
	uint32_t families = family == 4 ? POLICY_AF_INET | POLICY_AF_INET6 : POLICY_AF_INET6;

	if (p->monitor)
		return NULL;
	if (!(p->sockets.families & families))
		return "EAFNOSUPPORT";
	return policy_can_send(&p->sockets, protocol) ? NULL : "EPROTONOSUPPORT";
}
