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

/*
 * What came from outside has an allowance of its own: else somebody out there could use up a sandbox's flows by writing from a
 * thousand addresses, and hide what it tries itself.
 */
#define WEIR_INBOUND_FLOWS_PER_SANDBOX 64

/* Map sizes. A full map denies (sandboxes) or loses detail but not the count (flows). */
#define WEIR_SANDBOXES_MAX 4096
#define WEIR_POLICIES_MAX 128
#define WEIR_IMAGES_MAX 264 /* compiled policies: each one's present and next, and a few that are being let go of */
#define WEIR_FLOWS_MAX 65536
#define WEIR_FLOWS_PER_SANDBOX 1024
#define WEIR_RING_BYTES (4 * 1024 * 1024) /* of denials; what was let through has a ring of its own .. */
#define WEIR_RING_SHARE 4		  /* .. of one part in this many; where that is small, guard.c gives it more */

/*
 * Live datagram sockets of one sandbox that were ever pointed at a destination. Such a socket can hold back about 60 KB of
 * data (splice with more to come) that no memory cgroup is charged for and no packet hook sees: 60 MB are the most here,
 * where 256 processes of 1,024 descriptors could hold 15 GB. Ordinary programs stay far below: one per query or worker.
 */
#define WEIR_SOCKETS_PER_SANDBOX 1024

enum weir_verdict {
	WEIR_DENY = 0, /* zero: a value nobody wrote denies */
	WEIR_ALLOW = 1,
	WEIR_WOULD_DENY = 2, /* the policy denies and only watches (mode monitor): passed */
	WEIR_VERDICT_COUNT = 3,
};

/* Where an attempt was judged. */
enum weir_hook {
	WEIR_HOOK_NONE = 0,
	WEIR_HOOK_CONNECT4 = 1,
	WEIR_HOOK_CONNECT6 = 2,
	WEIR_HOOK_SENDMSG4 = 3,
	WEIR_HOOK_SENDMSG6 = 4,
	WEIR_HOOK_EGRESS = 5,	  /* cgroup_skb egress: the packet itself */
	WEIR_HOOK_INGRESS = 6,	  /* cgroup_skb ingress: a packet from outside; the address is the sender's, the port its own */
	WEIR_HOOK_SETSOCKOPT = 7, /* joining a group: the kernel itself reports it to the network, with the address in it */
	WEIR_HOOK_COUNT = 8,
};

/* Why a verdict is what it is. */
enum weir_reason {
	WEIR_REASON_DEFAULT = 0,   /* no rule matched: the policy's default verdict */
	WEIR_REASON_NO_ENTRY = 1,  /* a cgroup below ours that no policy names: denied */
	WEIR_REASON_NO_POLICY = 2, /* its policy id holds no policy: denied */
	WEIR_REASON_MALFORMED = 3, /* not an IPv4 or IPv6 packet we can read to its transport header: denied */
	WEIR_REASON_SOCKET = 4,	   /* the socket was made in a cgroup that is denied */
	WEIR_REASON_SOCKETS = 5,   /* its cgroup holds as many datagram sockets as it may, or this one can't be counted */
	WEIR_REASON_RULE = 6,	   /* the policy's rule number `rule` */
	WEIR_REASON_LOOPBACK = 7,  /* the policy's `loopback` */
	WEIR_REASON_INBOUND = 8,   /* the policy's `inbound`: a connection from outside, or the answer on one */
	WEIR_REASON_OPTIONS = 9,   /* IPv4 options, and the policy does not permit them */
	WEIR_REASON_ROUTING = 10,  /* an IPv6 routing header, and the policy does not permit it */
	WEIR_REASON_FRAGMENT = 11, /* a fragment without a transport header, and the policy does not permit it */
	WEIR_REASON_COUNT = 12,
};

/* How far to trust `pid` and `comm` of an event. */
enum weir_attribution {
	WEIR_ATTR_UNKNOWN = 0,
	WEIR_ATTR_CURRENT = 1, /* the task that made the system call */
	WEIR_ATTR_SOCKET = 2,  /* remembered on the socket by an earlier connect or sendmsg */
};

/* struct weir_sandbox.flags */
#define WEIR_SB_PROBE 0x1u /* set-up probe: judged as always, counted in `probes`, no event */
/* Its network namespace is its own: what the kernel copies for listeners "on this host" goes to itself, so that IPv4 datagrams
 * to many can be judged at the packet like all others, and their DNS names are seen. */
#define WEIR_SB_OWN_NET 0x2u
/* Programs attached further down judge it: passed here, neither counted nor told. */
#define WEIR_SB_BELOW 0x4u
/* Of the strangers' account alone: what has no entry is let through, as WEIR_WOULD_DENY with NO_ENTRY. */
#define WEIR_SB_PASS_UNKNOWN 0x8u

/* ---- policies, compiled ---- */

/*
 * How a destination was understood. An IPv6 address can carry an IPv4 address that a translator or tunnel would send to:
 * both are judged. The order is the order they are looked for; names are in event.c.
 */
enum weir_via {
	WEIR_VIA_NONE = 0,
	WEIR_VIA_MAPPED = 1,	       /* ::ffff:0:0/96, RFC 4291 section 2.5.5.2 */
	WEIR_VIA_COMPATIBLE = 2,       /* ::/96, RFC 4291 section 2.5.5.1 */
	WEIR_VIA_TRANSLATED = 3,       /* ::ffff:0:0:0/96, RFC 2765 section 2.1 */
	WEIR_VIA_NAT64 = 4,	       /* 64:ff9b::/96, RFC 6052; 64:ff9b:1::/48, RFC 8215, last 32 bits */
	WEIR_VIA_6TO4 = 5,	       /* 2002::/16, RFC 3056 */
	WEIR_VIA_TEREDO_SERVER = 6,    /* 2001::/32, RFC 4380 section 4 */
	WEIR_VIA_TEREDO_CLIENT = 7,    /* .. the other address in it */
	WEIR_VIA_NAT64_CONFIGURED = 8, /* one of the policy's `nat64_prefixes` */
	WEIR_VIA_ISATAP = 9,	       /* interface id ::0:5efe:a.b.c.d or ::200:5efe:a.b.c.d, RFC 5214 section 6.1 */
	WEIR_VIA_UNSPECIFIED = 10,     /* 0.0.0.0 and ::, which the kernel takes for this host */
	WEIR_VIA_COUNT = 11,
};

enum weir_loopback {
	WEIR_LOOPBACK_RULES = 0, /* judged like any other address */
	WEIR_LOOPBACK_DENY = 1,
	WEIR_LOOPBACK_SELF = 2, /* 127.0.0.0/8, ::1 and the unspecified addresses are allowed */
};

/* struct weir_image.flags: what is denied unless its bit is there. */
#define WEIR_IMG_MONITOR 0x1u	   /* deny nothing that the policy judges, say what would have been */
#define WEIR_IMG_OPTIONS 0x2u	   /* IPv4 options may be there */
#define WEIR_IMG_ROUTING 0x4u	   /* IPv6 routing headers may be there */
#define WEIR_IMG_FRAGMENTS 0x8u	   /* fragments without a port may pass, judged by address and protocol */
#define WEIR_IMG_INBOUND 0x10u	   /* connections from outside are accepted, and answered whoever they come from */
#define WEIR_IMG_QUIET_ALLOW 0x20u /* what is allowed is counted, and not listed */

#define WEIR_NAT64_MAX 8

struct weir_nat64 {
	__u8 addr[16];
	__u8 len; /* 32, 40, 48, 56, 64 or 96: RFC 6052 section 2.2 */
	__u8 pad[7];
};

/* The head of one compiled policy. Never changed while a policy names it. */
struct weir_image {
	__u32 present; /* 1 when there is one; 0 denies with NO_POLICY */
	__u32 flags;
	__u32 sockets_max;    /* live datagram sockets, see WEIR_SOCKETS_PER_SANDBOX */
	__u8 default_verdict; /* enum weir_verdict */
	__u8 loopback;	      /* enum weir_loopback */
	__u8 nat64_count;
	__u8 pad;
	struct weir_nat64 nat64[WEIR_NAT64_MAX];
};

/* One slot of `policies`: which image is in force. Eight aligned bytes, read and written at once: never half of each. */
struct weir_policy {
	__u32 image; /* 0: none, denied with NO_POLICY */
	__u32 generation;
} __attribute__((aligned(8)));

/* Key of an image's longest-prefix trie, which holds both families. */
struct weir_prefix {
	__u32 len;	/* 32 + the prefix's own length */
	__u8 family[4]; /* 0, 0, 0, 4 or 6: always matched whole */
	__u8 addr[16];	/* network order; IPv4 in the first four bytes, zeros behind */
};
#define WEIR_PREFIX_FAMILY_BITS 32u

#define WEIR_ATOM_ANY_PROTOCOL 0x1u /* every protocol, also those without ports */
#define WEIR_ATOM_ANY_PORT 0x2u	    /* no port is asked for */

/* One (protocol, port range) of a rule. */
struct weir_atom {
	__u16 rule;    /* position in the policy's `rules`, from 1 */
	__u16 port_lo; /* host order, both ends included */
	__u16 port_hi;
	__u8 protocol;
	__u8 flags;   /* WEIR_ATOM_* */
	__u8 verdict; /* WEIR_DENY or WEIR_ALLOW */
	__u8 pad;
};

/*
 * What holds for the addresses of one prefix that no longer prefix covers: the atoms of it and of every prefix around it, the
 * first that matches decides, none means the image's default. Value of the trie: the list's index.
 */
#define WEIR_LIST_ATOMS 48
struct weir_list {
	__u32 count;
	struct weir_atom atoms[WEIR_LIST_ATOMS];
};

#define WEIR_PREFIXES_MAX 16384 /* in one image: a document's own (LIMIT_POLICY_PREFIXES) and what sets and hosts add */
#define WEIR_LISTS_MAX 16384

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
	__u64 would_deny;    /* attempts = allowed + denied + would_deny */
	__u64 probes;	     /* attempts made while WEIR_SB_PROBE was set, and .. */
	__u64 probes_denied; /* .. how many of them were denied */
	__u64 inbound;	     /* packets from outside that were refused (or would be): no attempts of this cgroup's */
	__u64 inbound_flows; /* distinct flows of those that got an entry */
	__u64 flows;	     /* distinct flows that got an entry in the flows map */
	__u64 unlisted; /* attempts with neither a flow entry nor an event (limit, full map or full ring): detail is lost */
	__u64 packets;	/* let out, what is only watched included */
	__u64 bytes;
	__u64 denied_packets; /* refused at the packet hook, on their way out */
	__u64 denied_bytes;
	__u64 watched_packets; /* of `packets`: those that WEIR_WOULD_DENY was said of */
	__u64 watched_bytes;
	__u64 events; /* numbers given to events, from 1: one that is missing in the record was lost, see weir_event.seq */
	/*
	 * Datagram sockets made in this cgroup (UDP; ping too) that were pointed at a destination and still exist, however
	 * many descriptors or processes share one. A level, not a counter, and signed: were it ever off by one below zero, a
	 * huge number would refuse every socket.
	 */
	__s64 sockets;
	__u64 epoch; /* not 0, new whenever the entry is written: sockets that an earlier entry counted are not taken off it */
};

/*
 * How many of an entry's `flows` and `inbound_flows` no longer count against its allowance. For a guard with one entry, whose
 * allowance is given anew while it runs: an entry can't be written without losing what is counted in that moment.
 */
struct weir_renewed {
	__u64 flows;
	__u64 inbound_flows;
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
	__u8 via;   /* enum weir_via: what of the address decided */
	__u16 rule; /* with reason RULE: position in the policy's `rules`, from 1; else 0 */
	__u16 pad;
	__u32 generation; /* of the policy slot, when it was judged */
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
	__u64 seq;     /* of its cgroup's entry, from 1, without holes but for what was lost */
	__u64 socket_cookie;
	__u8 requested[16]; /* what the program named in connect() or sendmsg(), as daddr; with requested_family */
	__u16 requested_port_be;
	__u8 requested_family; /* 4 or 6; 0: nothing was named, or it is not known */
	__u8 socket_type;      /* SOCK_STREAM, SOCK_DGRAM, SOCK_RAW ..; 0: not known. Says what a refusal tells the caller */
	__u32 host_pid;	       /* thread group id in the host's pid namespace; 0 when unknown */
	__u32 pid;	       /* the same in the innermost pid namespace: what the process itself sees */
	__u32 uid;
	__u32 len; /* bytes of the packet, or 0 at an address hook */
	char comm[WEIR_COMM_LEN];
	__u8 attribution;
	__u8 pad[7];
	__u16 dns_qtype;	    /* host order; 0 without a name */
	__u16 dns_len;		    /* bytes used in dns[], 0 without a name */
	__u8 dns[WEIR_DNS_MAX + 1]; /* the first question's name, as on the wire: untrusted, decoded in the auditor */
};

/* Failures inside the programs, one counter each and for each hook (index: hook * WEIR_STAT_COUNT + stat): never silent. */
enum weir_stat {
	WEIR_STAT_RING_FULL = 0, /* event dropped, ring full */
	WEIR_STAT_FLOW_FULL = 1, /* event dropped, no room in the map of flows, which all share */
	WEIR_STAT_NO_ENTRY = 2,	 /* packet or connect denied because the cgroup has no entry */
	WEIR_STAT_STORAGE = 3,	 /* no socket storage: a stream's attribution is lost, a datagram socket is refused */
	WEIR_STAT_BEYOND = 4,	 /* no event was due: its cgroup has as many flows as are listed of one */
	WEIR_STAT_COUNT = 5,
};

/* ---- the meter: what the kernel has counted of tasks that ended, and what they were ---- */

#define WEIR_METERED_MAX 8192	  /* cgroups that are metered at once */
#define WEIR_METER_DEPTH 32	  /* levels below the root of cgroup2 at which a cgroup can be metered */
#define WEIR_EXECS_PER_CGROUP 128 /* programs that are listed, until it has a new allowance; all are counted */
#define WEIR_EXEC_PATH_MAX 256	  /* bytes, with the NUL */
#define WEIR_METER_RING_BYTES (512 * 1024)

/* One metered cgroup with everything below it, keyed by cgroup id. All of it is added to by the programs. */
struct weir_meter {
	__u64 cpu_ns;	     /* of tasks that ended: task->se.sum_exec_runtime as their end began */
	__u64 written_bytes; /* .. task->ioac.wchar: what write() and its kin were given and took */
	__u64 read_bytes;    /* .. task->ioac.rchar */
	__u64 peak_rss;	 /* bytes: the largest that any one process was, without what it was before its first program; 0: not
			    known */
	__u64 threads;	 /* tasks that ended */
	__u64 processes; /* .. the last of their process */
	__u64 execs;	 /* programs that were started */
	__u64 execs_unlisted; /* .. without an event */
	__u64 oom_victims;    /* processes that the kernel chose to kill for want of memory */
	__u64 events;	      /* numbers given to events, from 1 */
	__u64 incomplete; /* tasks that there was no room to follow: cpu_ns lacks what their ends took, or peak_rss is not exact
			   */
};

/* A program that was started, or a process that was chosen to be killed for want of memory. */
enum weir_meter_event_type { WEIR_METER_EXEC = 1, WEIR_METER_OOM = 2 };
struct weir_meter_event {
	__u64 cgroup;  /* the metered one that is nearest to the task */
	__u64 time_ns; /* CLOCK_BOOTTIME */
	__u32 type;
	__u32 host_pid;
	__u32 pid; /* in its own pid namespace */
	__u32 uid;
	__u64 seq; /* of its cgroup, from 1 */
	char comm[WEIR_COMM_LEN];
	__u16 path_len; /* bytes of path, without the NUL; cut at WEIR_EXEC_PATH_MAX - 1 */
	__u16 path_cut; /* 1: it is longer */
	__u32 pad;
	char path[WEIR_EXEC_PATH_MAX]; /* of an EXEC, as it was asked for: untrusted */
};

enum weir_meter_stat {
	WEIR_METER_STAT_RING_FULL = 0,	 /* event dropped */
	WEIR_METER_STAT_ENDING_FULL = 1, /* a task's CPU time lacks what its end took, or its memory has its maker's */
	WEIR_METER_STAT_COUNT = 2,
};

_Static_assert(sizeof(struct weir_policy) == 8, "ABI");
_Static_assert(sizeof(struct weir_image) == 16 + 24 * WEIR_NAT64_MAX, "ABI");
_Static_assert(sizeof(struct weir_prefix) == 24, "ABI");
_Static_assert(sizeof(struct weir_atom) == 10, "ABI");
_Static_assert(sizeof(struct weir_list) == 4 + 10 * WEIR_LIST_ATOMS, "ABI");
_Static_assert(sizeof(struct weir_sandbox) == 160, "ABI");
_Static_assert(sizeof(struct weir_renewed) == 16, "ABI");
_Static_assert(sizeof(struct weir_flow_key) == 48, "ABI");
_Static_assert(sizeof(struct weir_flow) == 32, "ABI");

_Static_assert(sizeof(struct weir_event) == 392, "ABI");
_Static_assert(sizeof(struct weir_meter) == 88, "ABI");
_Static_assert(sizeof(struct weir_meter_event) == 320, "ABI");

#endif
