/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cgroup's path says of whom it belongs to: which container, which pod, whose runtime. Pure.
 *
 * Known are the layouts of Kubernetes (containerd, CRI-O), Docker, containerd by itself, and Podman, with the systemd and the
 * cgroupfs driver, also one inside the other. docs/operations.md lists them.
 */
#ifndef WEIR_CORE_WORKLOAD_H
#define WEIR_CORE_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>

#define WORKLOAD_ID_MAX 65 /* 64 hex digits */

struct workload {
	char container[WORKLOAD_ID_MAX]; /* its id; "" when the path is no container's */
	char pod[WORKLOAD_ID_MAX];	 /* a Kubernetes pod's UID, with dashes where it has some; a Podman pod's id; "" */
	/* How much of the path is the container's own directory, and the pod's; 0 without one. The innermost of each. */
	size_t container_len, pod_len;
	const char *runtime; /* "podman", "docker", "containerd", "cri-o", or "" when the path does not say */
	bool monitor;	     /* the runtime's own process beside a container (conmon): no workload */
};

/* `path`: of a cgroup, below the hierarchy's root, as in /proc/PID/cgroup. */
void workload_of_path(const char *path, struct workload *ret);

/*
 * Whether `asked` means this container or pod: the whole id, or the beginning of one (12 characters at least, as the tools
 * print them); a pod's UID with dashes, underscores or neither, in whatever case.
 */
bool workload_is_container(const struct workload *w, const char *asked);
bool workload_is_pod(const struct workload *w, const char *asked);

/* What is wrong with an id as it was given, in words that follow its quotation; NULL: nothing. */
const char *workload_id_problem(const char *asked, bool pod);

#endif
