/* SPDX-License-Identifier: Apache-2.0 */
/* What a snippet may do with sockets: which it may make, how it may send, and what it may set on them. */
#include "filter_build.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/in6.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define LOW32 0xffffffffu /* the kernel takes these arguments as 32 bits */
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static const int refused_families[] = {
    0, /* unspecified */
    3,
    4,
    5,
    6,
    7,
    8,
    9, /* AX.25 .. X.25 */
    11,
    12,
    13,
    14,
    15, /* .., PF_KEY 15 */
    AF_NETLINK,
    AF_PACKET,
    18,
    19,
    20,
    AF_RDS,
    22,
    23,
    24,
    25,
    26,
    27,
    28,
    AF_CAN,
    AF_TIPC,
    AF_BLUETOOTH,
    32,
    AF_RXRPC,
    34,
    35,
    36,
    37,
    AF_ALG,
    39,
    AF_VSOCK,
    AF_KCM,
    42,
    43,
    44 /* XDP */,
    45 /* MCTP */,
};

/* The protocols of the two internet families that are not plain TCP or UDP, with the type they go with. */
static const struct {
	int type, protocol;
} refused_protocols[] = {
    {SOCK_STREAM, 17},
    {SOCK_STREAM, 132 /* SCTP */},
    {SOCK_STREAM, 262 /* MPTCP */},
    {SOCK_STREAM, 256 /* SMC */},
    {SOCK_STREAM, 1},
    {SOCK_STREAM, 33},
    {SOCK_STREAM, 136},
    {SOCK_STREAM, 58},
    {SOCK_DGRAM, 6},
    {SOCK_DGRAM, 1 /* ping */},
    {SOCK_DGRAM, 58 /* ping6 */},
    {SOCK_DGRAM, 136 /* UDP-Lite */},
    {SOCK_DGRAM, 33},
    {SOCK_DGRAM, 115 /* L2TP */},
    {SOCK_DGRAM, 132},
    {SOCK_DGRAM, 262},
};

#define TYPE_MASK 0xf /* SOCK_TYPE_MASK: the rest are flags */

/* Everything a sandbox can have; what the policy does not name of it is refused. */
static const struct policy_sockets everything = {
    .families = POLICY_AF_UNIX | POLICY_AF_INET | POLICY_AF_INET6,
    .types = POLICY_SOCK_STREAM | POLICY_SOCK_DGRAM | POLICY_SOCK_SEQPACKET,
    .protocols = POLICY_PROTO_TCP | POLICY_PROTO_UDP,
};

static int refuse_family(const struct filter_build *b, int call, int family)
{
	return filter_rule(b, SCMP_ACT_ERRNO(EAFNOSUPPORT), call, 1, SCMP_A0(SCMP_CMP_MASKED_EQ, LOW32, (scmp_datum_t)family));
}

static int by_type(const struct filter_build *b, uint32_t action, int call, int family, int type)
{
	return filter_rule(b, action, call, 2, SCMP_A0(SCMP_CMP_MASKED_EQ, LOW32, (scmp_datum_t)family),
			   SCMP_A1(SCMP_CMP_MASKED_EQ, TYPE_MASK, (scmp_datum_t)type));
}

static int by_protocol(const struct filter_build *b, uint32_t action, int family, int type, int protocol)
{
	return filter_rule(b, action, SCMP_SYS(socket), 3, SCMP_A0(SCMP_CMP_MASKED_EQ, LOW32, (scmp_datum_t)family),
			   SCMP_A1(SCMP_CMP_MASKED_EQ, TYPE_MASK, (scmp_datum_t)type),
			   SCMP_A2(SCMP_CMP_MASKED_EQ, LOW32, (scmp_datum_t)protocol));
}

static int add_unix(const struct filter_build *b, const struct policy_sockets *may)
{
	static const struct {
		int type;
		uint32_t bit;
	} types[] = {
	    {SOCK_STREAM, POLICY_SOCK_STREAM}, {SOCK_DGRAM, POLICY_SOCK_DGRAM}, {SOCK_SEQPACKET, POLICY_SOCK_SEQPACKET}};
	const int calls[] = {SCMP_SYS(socket), SCMP_SYS(socketpair)};
	int rc = 0;

	for (size_t c = 0; rc == 0 && c < COUNT(calls); c++) {
		if (!(may->families & POLICY_AF_UNIX))
			rc = refuse_family(b, calls[c], AF_UNIX);
		else
			for (size_t i = 0; rc == 0 && i < COUNT(types); i++)
				rc = by_type(b, may->types & types[i].bit ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM), calls[c],
					     AF_UNIX, types[i].type);
	}
	return rc;
}

/* One of the internet families: streams are TCP, datagrams UDP, and nothing else is either. */
static int add_inet(const struct filter_build *b, const struct policy_sockets *may, int family)
{
	static const struct {
		int type, protocol;
		uint32_t type_bit, protocol_bit;
	} kinds[] = {{SOCK_STREAM, 6, POLICY_SOCK_STREAM, POLICY_PROTO_TCP},
		     {SOCK_DGRAM, 17, POLICY_SOCK_DGRAM, POLICY_PROTO_UDP}};
	uint32_t open = 0; /* types that may be asked for; a bit each */
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < COUNT(kinds); i++) {
		const uint32_t action =
		    may->protocols & kinds[i].protocol_bit ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPROTONOSUPPORT);

		if (!(may->types & kinds[i].type_bit))
			continue;
		open |= 1u << kinds[i].type;
		rc = by_protocol(b, action, family, kinds[i].type, 0);
		if (rc == 0)
			rc = by_protocol(b, action, family, kinds[i].type, kinds[i].protocol);
	}
	for (size_t i = 0; rc == 0 && i < COUNT(refused_protocols); i++)
		if (open & 1u << refused_protocols[i].type)
			rc = by_protocol(b, SCMP_ACT_ERRNO(EPROTONOSUPPORT), family, refused_protocols[i].type,
					 refused_protocols[i].protocol);
	/* Raw, whatever else is neither a stream nor a datagram, and what the policy leaves out. */
	for (int type = 0; rc == 0 && type <= TYPE_MASK; type++)
		if (!(open & 1u << type))
			rc = by_type(b, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), family, type);
	return rc;
}

static int add_socket(const struct filter_build *b)
{
	static const struct {
		int family;
		uint32_t bit;
	} inet[] = {{AF_INET, POLICY_AF_INET}, {AF_INET6, POLICY_AF_INET6}};
	const struct policy_sockets *may = b->sockets ? b->sockets : &everything;
	int rc = add_unix(b, may);

	for (size_t f = 0; rc == 0 && f < COUNT(inet); f++)
		rc = may->families & inet[f].bit ? add_inet(b, may, inet[f].family)
						 : refuse_family(b, SCMP_SYS(socket), inet[f].family);
	/* Families that are known and refused. Any other number is ENOSYS by default: refused as well. */
	for (size_t i = 0; rc == 0 && i < COUNT(refused_families); i++)
		rc = refuse_family(b, SCMP_SYS(socket), refused_families[i]);
	return rc;
}

/*
 * Data that waits on a UDP socket for more of its datagram is memory that no cgroup is charged for, so nothing may be made to
 * wait: no MSG_MORE (and no UDP_CORK, below).
 */
static int add_send(const struct filter_build *b)
{
	static const struct {
		const char *name;
		unsigned flags_arg;
	} calls[] = {{"sendto", 3}, {"sendmsg", 2}, {"sendmmsg", 3}};
	int rc = 0;

	/* splice() hands its own "more" on to the socket. */
	rc = filter_rule(b, SCMP_ACT_ALLOW, SCMP_SYS(splice), 1, SCMP_A5(SCMP_CMP_MASKED_EQ, SPLICE_F_MORE, 0));
	if (rc == 0)
		rc = filter_rule(b, SCMP_ACT_ERRNO(EOPNOTSUPP), SCMP_SYS(splice), 1,
				 SCMP_A5(SCMP_CMP_MASKED_EQ, SPLICE_F_MORE, SPLICE_F_MORE));
	for (size_t i = 0; rc == 0 && i < COUNT(calls); i++) {
		const int nr = seccomp_syscall_resolve_name(calls[i].name);
		const unsigned arg = calls[i].flags_arg;

		rc = filter_rule(b, SCMP_ACT_ALLOW, nr, 1, SCMP_CMP(arg, SCMP_CMP_MASKED_EQ, MSG_MORE, 0));
		if (rc == 0)
			rc = filter_rule(b, SCMP_ACT_ERRNO(EOPNOTSUPP), nr, 1,
					 SCMP_CMP(arg, SCMP_CMP_MASKED_EQ, MSG_MORE, MSG_MORE));
	}
	return rc;
}

/*
 * Options of sockets, one by one. Many of them make the kernel keep something for the socket that no cgroup is charged for
 * (error queues, headers to send with every packet, group memberships, compiled filters), and a snippet can have a great many
 * sockets: so only what ordinary programs use, and what costs nothing, is on the list. What is on neither list is ENOSYS.
 */
struct sockopts {
	int level;
	uint32_t action;
	const int *options;
	size_t count;
};

static const int socket_allowed[] = {
    SO_REUSEADDR,    SO_DONTROUTE, SO_BROADCAST,   SO_SNDBUF,	SO_RCVBUF,   SO_KEEPALIVE,    SO_OOBINLINE,
    SO_PRIORITY,     SO_LINGER,	   SO_REUSEPORT,   SO_PASSCRED, SO_RCVLOWAT, SO_RCVTIMEO,     SO_SNDTIMEO,
    SO_BINDTODEVICE, SO_TIMESTAMP, SO_TIMESTAMPNS, SO_MARK,	SO_PEEK_OFF, SO_INCOMING_CPU,
};
static const int socket_refused[] = {
    SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF, SO_TIMESTAMPING, SO_ZEROCOPY,
};
static const int ip_allowed[] = {
    IP_TOS,
    IP_TTL,
    IP_PKTINFO,
    IP_MTU_DISCOVER,
    IP_RECVTTL,
    IP_RECVTOS,
    IP_FREEBIND,
    IP_BIND_ADDRESS_NO_PORT,
    IP_RECVORIGDSTADDR,
    IP_MULTICAST_IF,
    IP_MULTICAST_TTL,
    IP_MULTICAST_LOOP,
    51 /* IP_LOCAL_PORT_RANGE */,
};
static const int ip_refused[] = {
    IP_OPTIONS,	     IP_HDRINCL,       IP_ADD_MEMBERSHIP,	IP_ADD_SOURCE_MEMBERSHIP,
    IP_MSFILTER,     MCAST_JOIN_GROUP, MCAST_JOIN_SOURCE_GROUP, MCAST_MSFILTER,
    IP_BLOCK_SOURCE,
};
static const int ip_pretended[] = {IP_RECVERR};
static const int ipv6_allowed[] = {
    IPV6_V6ONLY,       IPV6_UNICAST_HOPS, IPV6_MULTICAST_IF, IPV6_MULTICAST_HOPS, IPV6_MULTICAST_LOOP, IPV6_RECVPKTINFO,
    IPV6_RECVHOPLIMIT, IPV6_MTU_DISCOVER, IPV6_MTU,	     IPV6_RECVTCLASS,	  IPV6_TCLASS,	       IPV6_DONTFRAG,
};
static const int ipv6_refused[] = {
    IPV6_2292PKTOPTIONS, IPV6_ADD_MEMBERSHIP, IPV6_JOIN_ANYCAST, IPV6_FLOWLABEL_MGR,	  IPV6_HOPOPTS,	  IPV6_RTHDRDSTOPTS,
    IPV6_RTHDR,		 IPV6_DSTOPTS,	      MCAST_JOIN_GROUP,	 MCAST_JOIN_SOURCE_GROUP, MCAST_MSFILTER, IPV6_PKTINFO,
};
static const int ipv6_pretended[] = {IPV6_RECVERR};
static const int tcp_allowed[] = {
    TCP_NODELAY,	  TCP_MAXSEG,	     TCP_CORK,	       TCP_KEEPIDLE, TCP_KEEPINTVL,  TCP_KEEPCNT,      TCP_SYNCNT,
    TCP_LINGER2,	  TCP_DEFER_ACCEPT,  TCP_WINDOW_CLAMP, TCP_QUICKACK, TCP_CONGESTION, TCP_USER_TIMEOUT, TCP_FASTOPEN,
    TCP_FASTOPEN_CONNECT, TCP_NOTSENT_LOWAT,
};
static const int udp_allowed[] = {103 /* UDP_SEGMENT */, 104 /* UDP_GRO */};
static const int udp_refused[] = {1 /* UDP_CORK */};

/*
 * "Pretended": the C library's resolver asks for error reports before it sends a query, and gives up without them; it works as
 * well when none ever come, and the query, with its name, is what we want to see.
 */
static const struct sockopts sockopts[] = {
    {SOL_SOCKET, SCMP_ACT_ALLOW, socket_allowed, COUNT(socket_allowed)},
    {SOL_SOCKET, SCMP_ACT_ERRNO(EPERM), socket_refused, COUNT(socket_refused)},
    {IPPROTO_IP, SCMP_ACT_ALLOW, ip_allowed, COUNT(ip_allowed)},
    {IPPROTO_IP, SCMP_ACT_ERRNO(EPERM), ip_refused, COUNT(ip_refused)},
    {IPPROTO_IP, SCMP_ACT_ERRNO(0), ip_pretended, COUNT(ip_pretended)},
    {IPPROTO_IPV6, SCMP_ACT_ALLOW, ipv6_allowed, COUNT(ipv6_allowed)},
    {IPPROTO_IPV6, SCMP_ACT_ERRNO(EPERM), ipv6_refused, COUNT(ipv6_refused)},
    {IPPROTO_IPV6, SCMP_ACT_ERRNO(0), ipv6_pretended, COUNT(ipv6_pretended)},
    {IPPROTO_TCP, SCMP_ACT_ALLOW, tcp_allowed, COUNT(tcp_allowed)},
    {IPPROTO_UDP, SCMP_ACT_ALLOW, udp_allowed, COUNT(udp_allowed)},
    {IPPROTO_UDP, SCMP_ACT_ERRNO(EPERM), udp_refused, COUNT(udp_refused)},
};

static int add_setsockopt(const struct filter_build *b)
{
	int rc = 0;

	for (size_t i = 0; i < COUNT(sockopts); i++)
		for (size_t k = 0; rc == 0 && k < sockopts[i].count; k++)
			rc = filter_rule(b, sockopts[i].action, SCMP_SYS(setsockopt), 2,
					 SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, (scmp_datum_t)sockopts[i].level),
					 SCMP_A2(SCMP_CMP_MASKED_EQ, LOW32, (scmp_datum_t)sockopts[i].options[k]));
	return rc;
}

int filter_add_sockets(const struct filter_build *b)
{
	int rc = add_socket(b);

	if (rc == 0)
		rc = add_send(b);
	if (rc == 0)
		rc = add_setsockopt(b);
	return rc;
}
