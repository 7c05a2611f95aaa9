/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy may ask of a sandbox's filter. */
#include "filter.h"

#include <errno.h>
#include <seccomp.h>
#include <stddef.h>

#include "filter_syscalls.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* What there is on a host and not in a sandbox. A packet socket reads what others send; the rest leaves unseen or unjudged. */
static const struct {
	size_t member;
	uint32_t bit;
	const char *where, *name, *has;
} impossible[] = {
#define FAMILY(bit, name)                                                                                                      \
	{                                                                                                                      \
		offsetof(struct policy_sockets, families), bit, "/sockets/families", name, "unix, inet and inet6"              \
	}
#define TYPE(bit, name)                                                                                                        \
	{                                                                                                                      \
		offsetof(struct policy_sockets, types), bit, "/sockets/types", name, "stream, dgram and seqpacket"             \
	}
#define PROTOCOL(bit, name)                                                                                                    \
	{                                                                                                                      \
		offsetof(struct policy_sockets, protocols), bit, "/sockets/protocols", name, "tcp and udp"                     \
	}
    FAMILY(POLICY_AF_NETLINK, "netlink"), FAMILY(POLICY_AF_PACKET, "packet"),  FAMILY(POLICY_AF_VSOCK, "vsock"),
    TYPE(POLICY_SOCK_RAW, "raw"),	  PROTOCOL(POLICY_PROTO_ICMP, "icmp"), PROTOCOL(POLICY_PROTO_UDPLITE, "udplite"),
    PROTOCOL(POLICY_PROTO_SCTP, "sctp"),  PROTOCOL(POLICY_PROTO_DCCP, "dccp"), PROTOCOL(POLICY_PROTO_MPTCP, "mptcp"),
#undef FAMILY
#undef TYPE
#undef PROTOCOL
};

/* Without these no interpreter gets as far as the code it is to run; the last two are the set-up's own. */
static const char *const needed[] = {
    "execve", "exit_group", "read",	"write",	"close",      "openat",	  "newfstatat", "lseek",       "mmap",
    "munmap", "brk",	    "mprotect", "rt_sigaction", "getdents64", "recvfrom", "sendto",	"close_range", "chdir",
};

int filter_check(const struct policy *p, struct err *e)
{
	struct filter_syscalls refused;
	int rc;

	for (size_t i = 0; i < COUNT(impossible); i++) {
		uint32_t asked = *(const uint32_t *)((const char *)&p->sockets + impossible[i].member);

		if (asked & impossible[i].bit)
			return err_set(e, EOPNOTSUPP, impossible[i].where,
				       "\"%s\" is nothing a sandbox can have: take it out (a sandbox has %s)",
				       impossible[i].name, impossible[i].has);
	}
	rc = filter_syscalls_of(p, &refused, e);
	for (size_t i = 0; rc == 0 && i < COUNT(needed); i++)
		if (filter_syscalls_action(&refused, seccomp_syscall_resolve_name(needed[i])))
			rc =
			    err_set(e, EOPNOTSUPP, "/syscalls", "no sandbox can start without %s: do not refuse it", needed[i]);
	return rc;
}
