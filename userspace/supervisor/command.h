/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command of the host on its way from a child of ours to the program: the table of steps, and the start itself. Nothing here
 * judges the network; the cgroup it is born into does.
 */
#ifndef WEIR_SUPERVISOR_COMMAND_H
#define WEIR_SUPERVISOR_COMMAND_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/err.h"
#include "filter_host.h"
#include "kernel/cgroup.h"

/* ROOT steps are taken by us, OWN steps by the child itself. Rows stand in the order in which they happen. */
#define COMMAND_STEPS(STEP)                                                                                                    \
	STEP(CGROUP2, "cgroup", "make the command's cgroup2 directory")                                                        \
	STEP(LIMITS, "cgroup", "set the policy's limits")                                                                      \
	STEP(KEEPER, "keeper", "hand the cgroup to the process that ends the command when this one dies")                      \
	STEP(POLICY_ENTRY, "policy", "put the cgroup under the policy")                                                        \
	STEP(POLICY_EFFECTIVE, "policy", "ask the kernel whether the programs are effective on the cgroup")                    \
	STEP(CLONE, "cgroup", "make a process in the cgroup")                                                                  \
	STEP(CGROUP1_JOIN, "cgroup", "join the v1 cgroups")                                                                    \
	STEP(MOUNTS, "mounts", "enter a mount namespace of its own")                                                           \
	STEP(READ_ONLY, "mounts", "make cgroup file systems and bpffs read-only")                                              \
	STEP(RLIMITS, "limits", "set the limit of open files")                                                                 \
	STEP(BOUNDING, "capabilities", "shrink the bounding set")                                                              \
	STEP(IDENTITY, "identity", "take the command's user and groups")                                                       \
	STEP(CAPABILITIES, "capabilities", "drop the other capability sets")                                                   \
	STEP(PARENT_DEATH, "process", "ask to be killed when this process dies")                                               \
	STEP(NO_NEW_PRIVS, "no_new_privs", "set no_new_privs")                                                                 \
	STEP(LANDLOCK, "landlock", "bar it from processes that are not its own")                                               \
	STEP(DESCRIPTORS, "descriptors", "close every other descriptor")                                                       \
	STEP(SIGNALS, "process", "give back the caller's signals and umask")                                                   \
	STEP(VERIFY, "verify", "ask the kernel what the command is")                                                           \
	STEP(SECCOMP, "seccomp", "load the system call filter")                                                                \
	STEP(EXEC, COMMAND_EXEC_LAYER, "start the program")

#define COMMAND_EXEC_LAYER "exec" /* e->where when the program itself could not be started */

enum command_step {
#define STEP(id, layer, what) COMMAND_##id,
	COMMAND_STEPS(STEP)
#undef STEP
	    COMMAND_STEP_COUNT,
};
#define COMMAND_NO_STEP COMMAND_STEP_COUNT

struct command_step_info {
	const char *name, *layer, *what;
};
extern const struct command_step_info command_steps[COMMAND_STEP_COUNT];

/* COMMAND_NO_STEP when there is none. */
enum command_step command_step_by_name(const char *name);

struct command {
	char *const *argv, *const *envp; /* argv[0] is looked for on PATH */
	uid_t uid;
	gid_t gid;
	const gid_t *groups;
	size_t group_count;
	uint64_t caps; /* kept, one bit each */
	const struct filter_host *filter;
	uint32_t open_files; /* 0: as the caller has it */
	int stderr_fd;	     /* what the command gets for 2; -1: what is there */
	/* What the caller had. */
	mode_t umask;
	sigset_t mask;
	void (*chld)(int), (*pipe)(int), (*xfsz)(int);
	/* Only in builds with WEIR_TEST_HOOKS. */
	enum command_step fault;
	uint64_t skip; /* 1 << step */
};

struct command_process {
	pid_t pid;
	int pidfd;	 /* the caller's */
	bool unshielded; /* the kernel has no Landlock, or too old a one: the rest is in place */
};

/*
 * Starts the command in the cgroup, with every step that is not ours done in the child. On failure there is no process of it,
 * and e->where is the layer (COMMAND_EXEC_LAYER: everything was in place, and the program could not be started).
 */
int command_start(const struct command *c, const struct cgroup_box *box, struct command_process *ret, struct err *e);

/* Whether the step is to be left out, or to fail: tests only. */
bool command_hook(const struct command *c, enum command_step step, int *rc, struct err *e);

#endif
