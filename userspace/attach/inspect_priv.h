/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files inspect*.c, and for their tests. */
#ifndef WEIR_ATTACH_INSPECT_PRIV_H
#define WEIR_ATTACH_INSPECT_PRIV_H

#include "attach/inspect.h"

/* inspect.c: a process's name as people may see it: printable, whatever the process calls itself. */
void inspect_show_comm(char ret[16], const char *comm);

/* What was seen of the processes that matters for the sockets. */
#define INSPECT_FRAMES_MAX 256
struct inspect_hints {
	bool boxed;			     /* it is a container, or something like one */
	uint64_t frames[INSPECT_FRAMES_MAX]; /* inodes of the packet sockets in its network namespaces */
	size_t frame_count;
	int frame_pid; /* one that is in there */
};

/*
 * inspect_sockets.c: the network sockets, into ret->sockets, and what of them weakens coverage. `image` may be NULL: nothing is
 * judged then. Strikes out those of hints->frames that somebody holds.
 */
int inspect_sockets(const struct target *t, const struct policy_image *image, struct inspect_hints *hints,
		    struct inspection *ret, struct err *e);

/* inspect_policy.c: adds WEAK_LIMITS when a limit that there is (0: none) is more than the policy asks for. */
struct inspect_limits {
	uint64_t memory_bytes, processes, open_files;
	uint64_t cpu_percent; /* rounded up */
};
void inspect_limits_asked(const struct policy *p, const struct inspect_limits *has, struct coverage_found *f);

/*
 * inspect_bundle.c: what the text of a config.json says. `holds`: whether what is bound from a path of the host has the cgroup
 * tree or the pins in it, NULL or what of it; without that function the path is taken as it is written. Pure then.
 */
struct bundle_seen {
	struct coverage_found found;
	bool host_network;
	char network_path[PATH_MAX]; /* of the network namespace that it joins; "" */
	char resolv_conf[PATH_MAX];  /* what is mounted there; "" */
};
typedef const char *(*bundle_holds)(const char *source, const char *bundle);
int inspect_bundle_text(const char *text, size_t len, const struct policy *p, bundle_holds holds, const char *bundle,
			struct bundle_seen *ret, struct err *e);

/* inspect.c: whether the file is the host's network namespace. */
bool inspect_is_host_network(const char *path);
bool inspect_is_host_netns(uint32_t inode);

/* inspect.c: the name servers of a resolv.conf below `root`, which is anybody's: nothing but a regular file is read. */
size_t inspect_resolv_conf(int root, const char *path, char ret[3][46]);

#endif
