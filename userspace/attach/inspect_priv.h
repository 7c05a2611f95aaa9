/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files inspect*.c, and for their tests. */
#ifndef WEIR_ATTACH_INSPECT_PRIV_H
#define WEIR_ATTACH_INSPECT_PRIV_H

#include "attach/inspect.h"

/* inspect.c: a process's name as people may see it: printable, whatever the process calls itself. */
void inspect_show_comm(char ret[16], const char *comm);

/*
 * inspect_sockets.c: the network sockets, into ret->sockets, and what of them weakens coverage. `image` may be NULL: nothing is
 * judged then.
 */
int inspect_sockets(const struct target *t, const struct policy_image *image, struct inspection *ret, struct err *e);

/* inspect_policy.c: the same for what a bundle says. One limit of a policy, and whether `has` (0: none) is enough. */
struct inspect_limits {
	uint64_t memory_bytes, processes, open_files;
	uint64_t cpu_percent; /* rounded up */
};
void inspect_limits_asked(const struct policy *p, const struct inspect_limits *has, struct coverage_found *f);

/* inspect_bundle.c: what the text of a config.json says. Pure. */
struct bundle_seen {
	struct coverage_found found;
	bool host_network;
	char network_path[PATH_MAX]; /* of the network namespace that it joins; "" */
	char resolv_conf[PATH_MAX];  /* what is mounted there; "" */
};
int inspect_bundle_text(const char *text, size_t len, const struct policy *p, struct bundle_seen *ret, struct err *e);

/* inspect.c: whether the file is the host's network namespace. */
bool inspect_is_host_network(const char *path);

/* inspect.c: the name servers of a resolv.conf below `root`, which is anybody's: nothing but a regular file is read. */
size_t inspect_resolv_conf(int root, const char *path, char ret[3][46]);

#endif
