/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at what runs in a cgroup before a policy is put on it: its processes' privileges and namespaces, who their runtime is,
 * and every network socket they hold open.
 */
#ifndef WEIR_ATTACH_INSPECT_H
#define WEIR_ATTACH_INSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attach/target.h"
#include "core/coverage.h"
#include "core/image.h"
#include "core/policy.h"

#define INSPECT_SOCKETS_MAX 1024   /* listed; the rest is counted */
#define INSPECT_PROCESSES_MAX 8192 /* looked at; beyond it WEAK_UNREADABLE */

/* One socket that was open when the policy came. */
struct open_socket {
	int pid; /* one of its holders */
	char comm[16];
	uint8_t family;		       /* 4 or 6; 0: packet */
	uint8_t protocol;	       /* IPPROTO_* */
	uint8_t state;		       /* as the kernel numbers TCP's; 0 otherwise */
	uint8_t local[16], remote[16]; /* IPv4 as ::ffff:a.b.c.d; zeros: none */
	uint16_t local_port, remote_port;
	bool elsewhere;	 /* made in another cgroup: not judged by this policy */
	bool connected;	 /* has a remote address .. */
	uint8_t verdict; /* .. and this is what the policy says of it: WEIR_DENY, WEIR_ALLOW, WEIR_WOULD_DENY */
};

struct inspection {
	struct coverage_found found;
	struct open_socket *sockets;
	size_t socket_count, sockets_beyond;
	unsigned processes;
	bool host_network;
	char resolvers[3][46]; /* what a process's own /etc/resolv.conf says: the workload's word, shown and never believed */
	size_t resolver_count;
};

/* `t` is open. `image`: what the policy compiled to; it and `p` may be NULL. The caller itself, when it is in there, is left
 * out. */
int inspect_target(const struct target *t, const struct policy *p, const struct policy_image *image, struct inspection *ret,
		   struct err *e);
/*
 * The same of what runs there beside a container that is being created: `pid` is in that one, and what is in its cgroup is
 * left out, as are the runtime's own processes beside each container of a pod.
 */
int inspect_beside(const struct target *t, int pid, const struct policy *p, const struct policy_image *image,
		   struct inspection *ret, struct err *e);
void inspection_clear(struct inspection *i);

/*
 * The same before anything of a container runs: from its OCI bundle's config.json (read as hostile: bounded, strict about
 * types). There are no sockets then. `seccomp` of the bundle and its limits count as what they are.
 */
int inspect_bundle(const char *bundle, const struct policy *p, struct inspection *ret, struct err *e);

/* What the policy asks for that only a filter or a cgroup limit could give; `t` may be NULL: then no limit is there. */
void inspect_policy(const struct target *t, const struct policy *p, struct coverage_found *f);

#endif
