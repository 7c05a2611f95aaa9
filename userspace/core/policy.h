/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy document, read. Pure: no kernel, no files.
 *
 * The language is described in docs/policy.md, by policies/schema.json, and by the table of keys in policy.c. What it means
 * for one destination is in bpf/judge.h and nowhere else; core/image.h compiles a document to what that reads.
 */
#ifndef WEIR_CORE_POLICY_H
#define WEIR_CORE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "core/cidr.h"
#include "core/err.h"
#include "core/netset.h"

#define POLICY_NAME_MAX 64
#define POLICY_TEXT_MAX 256 /* a description, a warning */

/* One element of a rule's `to`: a prefix or a named set. */
struct policy_place {
	bool is_set;
	enum netset set;
	struct cidr prefix;
};

struct policy_ports {
	uint16_t lo, hi; /* both included */
};

struct policy_rule {
	char name[POLICY_NAME_MAX]; /* the document's, or "rule-N" (N from 1) */
	uint8_t verdict;	    /* WEIR_DENY or WEIR_ALLOW */
	struct policy_place *places;
	size_t place_count;    /* at least 1 */
	uint8_t *protocols;    /* IPPROTO_* */
	size_t protocol_count; /* 0: every protocol */
	struct policy_ports *ports;
	size_t port_count; /* 0: every port. Never without protocols that all have ports */
};

/* Bits of struct policy_sockets: what socket() may be asked for. */
enum policy_family {
	POLICY_AF_UNIX = 1,
	POLICY_AF_INET = 2,
	POLICY_AF_INET6 = 4,
	POLICY_AF_NETLINK = 8,
	POLICY_AF_PACKET = 16,
	POLICY_AF_VSOCK = 32
};
enum policy_type { POLICY_SOCK_STREAM = 1, POLICY_SOCK_DGRAM = 2, POLICY_SOCK_SEQPACKET = 4, POLICY_SOCK_RAW = 8 };
enum policy_protocol {
	POLICY_PROTO_TCP = 1,
	POLICY_PROTO_UDP = 2,
	POLICY_PROTO_ICMP = 4 /* ping sockets, both families */,
	POLICY_PROTO_UDPLITE = 8,
	POLICY_PROTO_SCTP = 16,
	POLICY_PROTO_DCCP = 32,
	POLICY_PROTO_MPTCP = 64
};

/*
 * Anything that is not named is refused: a family with EAFNOSUPPORT, a protocol with EPROTONOSUPPORT, a type with EPERM.
 * Default: unix, inet, inet6; stream, dgram, seqpacket; tcp, udp.
 */
struct policy_sockets {
	uint32_t families, types, protocols;
};

/*
 * System calls refused on top of what the sandbox refuses anyway, or, of a command of the host, on top of nothing.
 * policy_parse() does not know which calls and groups there are: sysgroups_refusals() does.
 */
struct policy_syscall_rule {
	char name[POLICY_NAME_MAX]; /* a system call, or "@group" of policies/groups.json (core/sysgroups.h) */
	bool kill;		    /* else `error` */
	int error;		    /* positive errno, default EPERM */
	uint16_t entry, index;	    /* it stands at /syscalls/<entry>/names/<index> */
};

/* 0: the limits table's own value (of a sandbox), or none (of a command of the host). */
struct policy_limits {
	uint64_t memory_bytes;
	uint32_t cpu_percent;
	uint32_t processes;
	uint32_t open_files;
	uint32_t datagram_sockets; /* default WEIR_SOCKETS_PER_SANDBOX */
};

struct policy_warning {
	char where[64]; /* JSON pointer */
	char text[POLICY_TEXT_MAX];
};

struct policy {
	char name[POLICY_NAME_MAX];
	char description[POLICY_TEXT_MAX]; /* cut to fit */
	uint8_t default_verdict;
	bool monitor;	   /* mode */
	bool list_allowed; /* audit.allowed: allowed attempts are listed, not only counted; default true */
	uint8_t loopback;  /* enum weir_loopback; default RULES */
	bool inbound;	   /* default deny */
	bool listen;	   /* default allow: refused, listen() fails with EACCES, AF_UNIX too */
	bool ipv4_options, routing_headers, fragments; /* packets.*; default deny */
	struct policy_rule *rules;
	size_t rule_count;
	struct weir_nat64 nat64[WEIR_NAT64_MAX];
	size_t nat64_count;
	struct policy_sockets sockets;
	bool sockets_said; /* the document has `sockets`; else they are the default */
	struct policy_syscall_rule *syscalls;
	size_t syscall_count;
	struct policy_limits limits;
	uint8_t hash[32]; /* SHA-256 of the document's bytes */
};

/*
 * Parses a policy document (JSON, `len` bytes, need not be terminated). Unknown and duplicate keys are errors; syntax errors
 * carry line:column in e->where, errors of meaning a JSON pointer. What is named twice where a set is meant (a protocol, a port
 * range, a place of one rule, a socket family) is taken once. *ret is the caller's (policy_free).
 */
int policy_parse(const char *text, size_t len, struct policy **ret, struct err *e);

/* NULL-safe, returns NULL. */
struct policy *policy_free(struct policy *p);

/* The embedded default: denies everything, DNS and loopback included. Never freed. */
const struct policy *policy_snippet(void);

/* Whether a program can have a socket that sends this protocol. */
bool policy_can_send(const struct policy_sockets *s, uint8_t protocol);

/*
 * The errno's name with which socket() fails for whoever wants to send `protocol` to an address of `family`, or NULL. Of a
 * policy that only watches: NULL.
 */
const char *policy_socket_refusal(const struct policy *p, uint8_t family, uint8_t protocol);

/*
 * What the policy says and cannot do, or probably does not mean: at most `max` warnings into `ret`, returns how many there are.
 * `env` may be NULL: then nothing is said of @host and @resolver.
 */
size_t policy_warnings(const struct policy *p, const struct policy_env *env, struct policy_warning *ret, size_t max);

#endif
