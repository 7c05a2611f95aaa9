/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cgroups of one instance: `weir/<instance>/<sandbox>` on the cgroup2 hierarchy, and the same path on those v1 hierarchies
 * whose controllers a hybrid host keeps there. Nobody else's cgroup is touched; on a pure v2 host the controllers we need
 * are switched on for the root's children, as systemd does.
 */
#ifndef WEIR_KERNEL_CGROUP_H
#define WEIR_KERNEL_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

#define CGROUP_TOP "weir"

/* The controllers a sandbox needs, wherever the host keeps them. */
enum cgroup_controller { CG_MEMORY, CG_CPU, CG_PIDS, CG_CONTROLLERS };
extern const char *const cgroup_controller_names[CG_CONTROLLERS];

struct cgroup_host {
	char v2_path[256]; /* mount point */
	unsigned v2_depth; /* depth of the mount point below the hierarchy's root */
	bool v2_has[CG_CONTROLLERS];
	char v1_path[CG_CONTROLLERS][256]; /* mount point of the v1 hierarchy; "" when the controller is on v2 */
};

/* Reads mountinfo. A controller that is nowhere is an error that says how to get it. */
int cgroup_host_find(struct cgroup_host *ret, struct err *e);

struct cgroup_instance {
	struct cgroup_host host;
	char name[64];
	int v2_fd;		   /* directory weir/<instance> */
	int v1_fd[CG_CONTROLLERS]; /* the same on v1, -1 where v2 has the controller */
	int v1_count;
	unsigned level; /* depth of a sandbox's cgroup, as eBPF counts */
};

/* Makes (or opens) the instance's directories and switches controllers on down to them. */
int cgroup_instance_open(struct cgroup_instance *ret, const struct cgroup_host *host, const char *name, struct err *e);
void cgroup_instance_close(struct cgroup_instance *in);

/* Removes weir/<instance> everywhere, and weir itself when that was the last one. Sandboxes must be gone. */
int cgroup_instance_remove(const struct cgroup_host *host, const char *name, struct err *e);

/* 0: none. */
struct cgroup_limits {
	uint64_t memory_bytes;
	unsigned cpu_percent; /* of one CPU */
	unsigned cpu_weight;  /* against others when there is not enough for all, as cpu.weight counts: 100 is everybody's */
	unsigned pids;
};

struct cgroup_box {
	char name[64];
	uint64_t id; /* what eBPF calls it */
	int v2_fd;
	int v1_fd[CG_CONTROLLERS];
	int oom_event; /* v1: eventfd that fires when the memory limit is hit; -1 on v2, where oom.group ends the whole cgroup
			*/
	int peak_fd;   /* v2: memory.peak, once it was set back: the kernel does so for one descriptor; else -1 */
	bool peak_old; /* the highest use could not be set back: what is read is that of its whole life */
};

void cgroup_box_init(struct cgroup_box *box);

/* Makes the v2 directory; sets box->id. */
int cgroup_box_make_v2(struct cgroup_box *box, const struct cgroup_instance *in, const char *name, struct err *e);
int cgroup_box_limit_v2(const struct cgroup_box *box, const struct cgroup_instance *in, const struct cgroup_limits *l,
			struct err *e);
int cgroup_box_make_v1(struct cgroup_box *box, const struct cgroup_instance *in, const struct cgroup_limits *l, struct err *e);

/* Gives it another cpu_weight. Returns 0 or a negative errno; -ENOENT where there is no CPU controller. */
int cgroup_box_weigh(const struct cgroup_box *box, const struct cgroup_instance *in, unsigned weight);

/* Opens `tasks` of each v1 hierarchy for writing; returns how many, or a negative errno. The fds are the caller's. */
int cgroup_box_tasks(const struct cgroup_box *box, int ret_fds[CG_CONTROLLERS], struct err *e);

/* Kills everything in it, children included, at once. */
int cgroup_box_kill(const struct cgroup_box *box);
/* Takes its CPU limit away, and lets every thread in it run on every CPU: for one that has been killed and is not dead yet. */
void cgroup_box_unleash(const struct cgroup_box *box, const struct cgroup_instance *in);
/* 1 populated, 0 empty, negative errno. */
int cgroup_box_populated(const struct cgroup_box *box);

/* Stops every process in it, or lets them go on; a kill reaches them in any case. The kernel takes a moment to stop them all.
 */
int cgroup_box_freeze(const struct cgroup_box *box, bool frozen);
/* Opens its cgroup.events, which is EPOLLPRI when something in it has changed since it was read. The fd is the caller's. */
int cgroup_box_events(const struct cgroup_box *box);
/* Reads such an fd: 1 all of it is frozen, 0 not, negative errno. */
int cgroup_events_frozen(int events_fd);

/* From here on the highest use of memory counts anew, where the kernel can do that: see `memory_source`. */
void cgroup_box_reset_peak(struct cgroup_box *box, const struct cgroup_instance *in);

struct cgroup_usage {
	uint64_t cpu_us, memory_peak;
	const char *cpu_source, *memory_source; /* "" when unknown */
	uint64_t oom_kills;
};
void cgroup_box_usage(const struct cgroup_box *box, const struct cgroup_instance *in, struct cgroup_usage *ret);

/* As of this moment. Zeros: not known. Cheap enough to be asked many times a second. */
struct cgroup_moment {
	uint64_t cpu_us, memory_bytes;
	uint64_t tasks; /* processes and threads, alive */
};
void cgroup_box_moment(const struct cgroup_box *box, const struct cgroup_instance *in, struct cgroup_moment *ret);

/* Closes fds and removes the directories. -EBUSY: try again later (the fds stay open then). */
int cgroup_box_remove(struct cgroup_box *box, const struct cgroup_instance *in);

/* Kills everything in an instance's cgroups, and leaves the directories. */
void cgroup_instance_kill(const struct cgroup_host *host, const char *name);

/* Kills and removes every sandbox cgroup of an instance (dead or to be ended), calling `each` with its name and id first. */
struct cgroup_swept {
	unsigned sandboxes, processes;
};
int cgroup_instance_sweep(const struct cgroup_host *host, const char *name,
			  void (*each)(void *ctx, const char *name, uint64_t id), void *ctx, struct cgroup_swept *ret,
			  struct err *e);

#endif
