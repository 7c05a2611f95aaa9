/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what an operator names (a cgroup, a process, a container, a pod) to one directory of the cgroup2 hierarchy. Errors have
 * where = the option's name ("--pod") and say what was looked for and where.
 */
#ifndef WEIR_ATTACH_TARGET_H
#define WEIR_ATTACH_TARGET_H

#include <limits.h>
#include <stdint.h>

#include "core/err.h"
#include "core/workload.h"

enum target_kind { TARGET_CGROUP, TARGET_PID, TARGET_CONTAINER, TARGET_POD, TARGET_PARENT, TARGET_KINDS };
extern const char *const target_kind_names[TARGET_KINDS];   /* "cgroup", "pid", … as JSON has them */
extern const char *const target_kind_options[TARGET_KINDS]; /* "--cgroup", … */

#define TARGET_REF_MAX 512

/* Where to look; tests have trees of their own. */
struct target_roots {
	const char *cgroup2; /* mount point of cgroup2 */
	const char *proc;    /* "/proc" */
};

struct target {
	enum target_kind kind;
	char ref[TARGET_REF_MAX]; /* as it was asked for; an id that was cut is whole here */
	char path[PATH_MAX];	  /* below the hierarchy's root: "/kubepods.slice/…"; never the root itself */
	struct workload workload; /* of that path */
	/* Filled in by target_open(): */
	int fd;		/* the directory, for reading; -1 (or 0) before */
	uint64_t id;	/* what eBPF calls it */
	unsigned level; /* its depth below the hierarchy's root, as eBPF counts */
};

/*
 * Finds it; opens nothing. TARGET_CGROUP and TARGET_PARENT take a directory (absolute, below roots->cgroup2, or
 * "/sys/fs/cgroup/…" on a host that has cgroup2 elsewhere) or a path below the hierarchy's root. TARGET_PID: "self" is the
 * caller; the cgroup that the process is in, or, in a pod or container, the pod's or else the container's own.
 * TARGET_CONTAINER: the container's own; TARGET_POD: the pod's. Refused, each with a reason: the root, what is not on cgroup2
 * (a process of a host that keeps it on v1 alone), Weir's own cgroups, an id that fits several (they are listed), none.
 */
int target_find(struct target *ret, enum target_kind kind, const char *ref, const struct target_roots *roots, struct err *e);

/* Opens its directory; -ENOENT when it is gone. target_close() is fine with one that was never opened. */
int target_open(struct target *t, const struct target_roots *roots, struct err *e);
void target_close(struct target *t);

/*
 * Calls `each` with every process of the cgroup and of those below it, until it returns something else than 0, which is
 * returned. Pid 0: one that this pid namespace does not show. Of a cgroup of threads that is the target itself, its threads.
 */
int target_each_process(const struct target *t, int (*each)(void *ctx, int pid, const char *cgroup), void *ctx, struct err *e);

/* Of the host: its cgroup2 mount and /proc. `room` holds the path. */
int target_host_roots(struct target_roots *ret, char room[256], struct err *e);

#endif
