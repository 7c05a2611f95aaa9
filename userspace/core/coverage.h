/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a policy holds on something that already runs. What it can't hold is said: each weakness is a row of one table, and
 * the worst of those found is the grade. Pure.
 */
#ifndef WEIR_CORE_COVERAGE_H
#define WEIR_CORE_COVERAGE_H

#include <stdbool.h>
#include <stdint.h>

enum coverage { COVERAGE_FULL, COVERAGE_PARTIAL, COVERAGE_REFUSED };
extern const char *const coverage_names[3]; /* "full", "partial", "refused" */

enum weakness {
	WEAK_SECCOMP,	/* the policy asks for socket kinds or system calls: no filter can be put on a process from outside */
	WEAK_LIMITS,	/* the policy asks for limits that the cgroup does not have */
	WEAK_LISTEN,	/* "listen": "deny", which is the filter's too */
	WEAK_NET_RAW,	/* CAP_NET_RAW in its user namespace: packet sockets send frames below the hooks */
	WEAK_NET_ADMIN, /* CAP_NET_ADMIN there: tunnels and traffic control change packets behind the hooks */
	WEAK_PACKET_SOCKET,  /* it has one open */
	WEAK_FOREIGN_SOCKET, /* it holds a network socket that was made in another cgroup: judged there, not here */
	WEAK_UNSEEN_SOCKET,  /* a socket of another family that can leave, an open tun device, or none could be looked at */
	WEAK_HOST_NETWORK,   /* it is in the host's network namespace */
	WEAK_ROOT, /* a process of the host itself that could undo the policy: root, a capability, a cgroup tree it may write */
	WEAK_PRIVILEGED, /* the same of a container: CAP_SYS_ADMIN or CAP_BPF of the host, or the host's cgroup tree */
	WEAK_REWRITE,	 /* a foreign program may change destinations after ours has judged a connect(): the packet is judged */
	WEAK_OUTSIDE,	 /* processes of its pod or container are in other cgroups */
	WEAK_UNPROVEN,	 /* no process could be started inside to try it */
	WEAK_UNREADABLE, /* its processes could not all be looked at */
	WEAK_EMPTY,	 /* nothing runs there yet */
	WEAK_GVISOR,	 /* gVisor: the workload's network is in a process of its own, or the workload is not in this cgroup */
	WEAK_KATA,	 /* a virtual machine: the same */
	WEAKNESSES
};
_Static_assert(WEAKNESSES <= 32, "bits of coverage_found.weak");

struct weakness_row {
	const char *name; /* in JSON: "net_raw" */
	enum coverage grade;
	bool forceable;	  /* --force: it counts as partial */
	const char *text; /* a sentence: what is not covered */
	const char *mend; /* .. and what would cover it */
};
extern const struct weakness_row weakness_rows[WEAKNESSES];

#define WEAKNESS_DETAIL 192

struct coverage_found {
	uint32_t weak;				  /* bits of enum weakness */
	char detail[WEAKNESSES][WEAKNESS_DETAIL]; /* who, in words: "pid 812 (nginx)"; "" nothing to add */
};

/* Adds one; the first detail stays. */
__attribute__((format(printf, 3, 4))) void coverage_add(struct coverage_found *f, enum weakness w, const char *fmt, ...);

enum coverage coverage_grade(const struct coverage_found *f, bool force);

#endif
