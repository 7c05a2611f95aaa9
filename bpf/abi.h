/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the kernel programs and user space share: the only header both sides include.
 *
 * Every struct here crosses the kernel boundary through a map or the ring buffer, so fields have fixed widths, padding is
 * named, and byte order is in the name (`_be` = network order, otherwise host order). Sizes are asserted at the end.
 */
#ifndef WEIR_BPF_ABI_H
#define WEIR_BPF_ABI_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define WEIR_COMM_LEN 16
#define WEIR_DNS_MAX 255 /* RFC 1035 section 2.3.4: a name on the wire, length bytes and root included */

/* Map sizes. A full map denies (sandboxes) or loses detail but not the count (flows). */
#define WEIR_SANDBOXES_MAX 4096
#define WEIR_POLICIES_MAX 128
#define WEIR_FLOWS_MAX 65536
#define WEIR_FLOWS_PER_SANDBOX 1024
#define WEIR_RING_BYTES (4 * 1024 * 1024)

/*
 * Live datagram sockets of one sandbox that were ever pointed at a destination. Such a socket can hold back about 60 KB of
 * data (splice with more to come) that no memory cgroup is charged for and no packet hook sees: 60 MB are the most here,
 * where 256 processes of 1,024 descriptors could hold 15 GB. Ordinary programs stay far below: one per query or worker.
 */
#define WEIR_SOCKETS_PER_SANDBOX 1024

enum weir_verdict {
	WEIR_DENY = 0, /* zero: a value nobody wrote denies */
	WEIR_ALLOW = 1,
};

/* Where an attempt was judged. */
enum weir_hook {
	WEIR_HOOK_NONE = 0,
	WEIR_HOOK_CONNECT4 = 1,
	WEIR_HOOK_CONNECT6 = 2,
	WEIR_HOOK_SENDMSG4 = 3,
	WEIR_HOOK_SENDMSG6 = 4,
	WEIR_HOOK_EGRESS = 5, /* cgroup_skb egress: the packet itself */
	WEIR_HOOK_COUNT = 6,
};

/* Why a verdict is what it is. */
enum weir_reason {
	WEIR_REASON_DEFAULT = 0,   /* the policy's default verdict */
	WEIR_REASON_NO_ENTRY = 1,  /* a cgroup below ours that no policy names: denied */
	WEIR_REASON_NO_POLICY = 2, /* its policy id holds no policy: denied */
	WEIR_REASON_MALFORMED = 3, /* not an IPv4 or IPv6 packet we can read to its transport header: denied */
	WEIR_REASON_SOCKET = 4,	   /* the socket was made in a cgroup that is denied */
	WEIR_REASON_SOCKETS = 5,   /* its cgroup holds as many datagram sockets as it may, or this one can't be counted */
	WEIR_REASON_COUNT = 6,
};

/* How far to trust `pid` and `comm` of an event. */
enum weir_attribution {
	WEIR_ATTR_UNKNOWN = 0,
	WEIR_ATTR_CURRENT = 1, /* the task that made the system call */
	WEIR_ATTR_SOCKET = 2,  /* remembered on the socket by an earlier connect or sendmsg */
};

/* struct weir_sandbox.flags */
#define WEIR_SB_PROBE 0x1u /* set-up probe: judged as always, counted in `probes`, no event */

/* One policy. Written whole by user space, read by every hook. */
struct weir_policy {
	__u32 present;	      /* 1 when this slot holds a policy; 0 denies with NO_POLICY */
	__u32 generation;     /* grows by one each time the slot is replaced */
	__u8 default_verdict; /* enum weir_verdict */
	__u8 pad[7];
};

/*
 * One sandbox or other governed cgroup, keyed by cgroup id. `policy` and `flags` are written by user space; the counters
 * by the hooks, atomically. An attempt is one connect() of a stream socket, or one packet of anything else; allowed
 * packets of a stream are counted in packets/bytes only, denied ones are attempts. Pointing a datagram socket somewhere is
 * an attempt only when it is refused there (SOCKETS).
 */
struct weir_sandbox {
	__u32 policy; /* index into the policies map */
	__u32 flags;
	__u64 attempts;
	__u64 denied;
	__u64 allowed;
	__u64 probes;	     /* attempts made while WEIR_SB_PROBE was set, and .. */
	__u64 probes_denied; /* .. how many of them were denied */
	__u64 flows;	     /* distinct flows that got an entry in the flows map */
	__u64 unlisted; /* attempts with neither a flow entry nor an event (limit, full map or full ring): detail is lost */
	__u64 packets;	/* allowed to leave */
	__u64 bytes;
	/*
	 * Datagram sockets made in this cgroup (UDP; ping too) that were pointed at a destination and still exist, however
	 * many descriptors or processes share one. A level, not a counter, and signed: were it ever off by one below zero, a
	 * huge number would refuse every socket.
	 */
	__s64 sockets;
	__u64 epoch; /* not 0, new whenever the entry is written: sockets that an earlier entry counted are not taken off it */
};

/* What makes two attempts the same in the audit: they share an entry and only its count grows. */
struct weir_flow_key {
	__u64 cgroup;
	__u64 name_hash; /* of the DNS name on the wire; 0 without one */
	__u8 daddr[16];	 /* IPv4 as ::ffff:a.b.c.d when family is 4 */
	__u16 dport_be;	 /* 0 for protocols without ports; ICMP: type << 8 | code in network order */
	__u8 family;	 /* 4 or 6, as on the wire (connect: as asked); 0 when malformed */
	__u8 protocol;	 /* IPPROTO_* */
	__u8 hook;
	__u8 verdict;
	__u8 reason;
	__u8 pad;
};

struct weir_flow {
	__u64 count;
	__u64 bytes;
	__u64 first_ns; /* CLOCK_BOOTTIME */
	__u64 last_ns;
};

/* The first attempt of a flow, in full. */
struct weir_event {
	struct weir_flow_key key;
	__u64 time_ns; /* CLOCK_BOOTTIME */
	__u64 socket_cookie;
	__u32 host_pid; /* thread group id in the host's pid namespace; 0 when unknown */
	__u32 pid;	/* the same in the innermost pid namespace: what the process itself sees */
	__u32 uid;
	__u32 len; /* bytes of the packet, or 0 at an address hook */
	char comm[WEIR_COMM_LEN];
	__u8 attribution;
	__u8 pad[3];
	__u16 dns_qtype;	    /* host order; 0 without a name */
	__u16 dns_len;		    /* bytes used in dns[], 0 without a name */
	__u8 dns[WEIR_DNS_MAX + 1]; /* the first question's name, as on the wire: untrusted, decoded in the auditor */
};

/* Failures inside the programs, one counter each: never silent. */
enum weir_stat {
	WEIR_STAT_RING_FULL = 0, /* event dropped, ring full */
	WEIR_STAT_FLOW_FULL = 1, /* flow not listed, map full or limit reached */
	WEIR_STAT_NO_ENTRY = 2,	 /* packet or connect denied because the cgroup has no entry */
	WEIR_STAT_STORAGE = 3,	 /* no socket storage: a stream's attribution is lost, a datagram socket is refused */
	WEIR_STAT_COUNT = 4,
};

_Static_assert(sizeof(struct weir_policy) == 16, "ABI");
_Static_assert(sizeof(struct weir_sandbox) == 96, "ABI");
_Static_assert(sizeof(struct weir_flow_key) == 40, "ABI");
_Static_assert(sizeof(struct weir_flow) == 32, "ABI");
_Static_assert(sizeof(struct weir_event) == 40 + 16 + 16 + 16 + 8 + 256, "ABI");

#endif
