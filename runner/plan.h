/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a sandbox is made: the table of steps, and the plan that the supervisor hands to init.
 *
 * The table is the one place that knows the order. Fault tests are generated from it (`weir-hooks serve --list-steps`),
 * so a new row is tested by being there. A step that fails ends the sandbox and names its layer to the client.
 *
 * Actors: SUP runs in the supervisor, INIT in pid 1 of the sandbox while it is still root, PAY in pid 2 on its way to the
 * interpreter. Rows stand in the order in which they happen.
 */
#ifndef WEIR_RUNNER_PLAN_H
#define WEIR_RUNNER_PLAN_H

#include <stdint.h>

#include "core/limits.h"

#define PLAN_STEPS(STEP)                                                                                                       \
	STEP(CGROUP2, "cgroup", SUP, "make the cgroup2 directory")                                                             \
	STEP(CGROUP2_LIMITS, "cgroup", SUP, "set limits through cgroup2 controllers")                                          \
	STEP(CGROUP1, "cgroup", SUP, "make and limit the v1 cgroups of a hybrid host")                                         \
	STEP(POLICY_ENTRY, "policy", SUP, "put the sandbox under its policy")                                                  \
	STEP(POLICY_EFFECTIVE, "policy", SUP, "ask the kernel whether the programs are effective on the cgroup")               \
	STEP(CHANNELS, "channels", SUP, "make the request socket, the gate and the output pipes")                              \
	STEP(WAY_OUT, "network", SUP, "make the cgroup of a tool's way out and put it under its policy")                       \
	STEP(CLONE, "namespaces", SUP, "clone init into new pid, mount, net, ipc and uts namespaces and into its cgroup")      \
	STEP(PLAN, "init", SUP, "hand the plan to init")                                                                       \
	STEP(PARENT_DEATH, "init", INIT, "ask to be killed when the supervisor dies")                                          \
	STEP(SCHEDULING, "limits", INIT, "take ordinary scheduling, and be the first to go when the host is out of memory")    \
	STEP(CGROUP1_JOIN, "cgroup", INIT, "join the v1 cgroups")                                                              \
	STEP(CGROUP_NS, "namespaces", INIT, "enter a cgroup namespace of its own")                                             \
	STEP(HOSTNAME, "namespaces", INIT, "take a neutral host name")                                                         \
	STEP(NETWORK, "network", INIT, "bring loopback up and make it the default route of both families")                     \
	STEP(TAP, "network", INIT, "make a tool's network device, its addresses and routes")                                   \
	STEP(CARRY, "network", SUP, "start the process that carries its packets")                                              \
	STEP(PROBE, "policy", INIT, "send probes from inside the cgroup and network namespace")                                \
	STEP(PROBE_COUNT, "policy", SUP, "check that the kernel refused and counted every probe")                              \
	STEP(MOUNT_PRIVATE, "mounts", INIT, "cut mount propagation")                                                           \
	STEP(MOUNT_ROOT, "mounts", INIT, "mount the image read-only")                                                          \
	STEP(MOUNT_ETC, "mounts", INIT, "mount and fill /etc read-only")                                                       \
	STEP(MOUNT_DEV, "mounts", INIT, "mount and fill /dev read-only")                                                       \
	STEP(MOUNT_SHM, "mounts", INIT, "mount /dev/shm, sized")                                                               \
	STEP(MOUNT_TMP, "mounts", INIT, "mount /tmp, sized")                                                                   \
	STEP(MOUNT_WORK, "mounts", INIT, "mount the working directory, sized")                                                 \
	STEP(MOUNT_PROC, "mounts", INIT, "mount a /proc that shows only this pid namespace")                                   \
	STEP(PIVOT, "mounts", INIT, "make the image the root and let go of the host's")                                        \
	STEP(FORK, "init", INIT, "fork pid 2")                                                                                 \
	STEP(SESSION, "process", PAY, "start a session without a terminal")                                                    \
	STEP(RLIMITS, "limits", PAY, "set the process limits")                                                                 \
	STEP(STDIO, "descriptors", PAY, "put stdin, stdout, stderr, request socket and gate in place")                         \
	STEP(BOUNDING, "capabilities", PAY, "empty the bounding set")                                                          \
	STEP(IDENTITY, "identity", PAY, "take the sandbox's own uid and gid")                                                  \
	STEP(CAPABILITIES, "capabilities", PAY, "empty the other capability sets")                                             \
	STEP(NO_NEW_PRIVS, "no_new_privs", PAY, "set no_new_privs")                                                            \
	STEP(SECCOMP, "seccomp", PAY, "load the system call filter")                                                           \
	STEP(LISTENER, "seccomp", INIT, "take over what refused system calls are told to")                                     \
	STEP(INIT_DROP, "init", INIT, "drop init's own identity, capabilities and system calls")                               \
	STEP(DESCRIPTORS, "descriptors", PAY, "close every other descriptor")                                                  \
	STEP(EXEC, "interpreter", PAY, "start the interpreter")                                                                \
	STEP(READY, "interpreter", SUP, "hear from the harness that it waits at the gate")                                     \
	STEP(VERIFY, "verify", SUP, "read back from the kernel what the payload is")                                           \
	STEP(LOAD, "tools", SUP, "let the interpreter import an agent's modules")

enum plan_step {
	STEP_NONE,
#define STEP(id, layer, actor, what) STEP_##id,
	PLAN_STEPS(STEP)
#undef STEP
	    STEP_COUNT,
};

#define PLAN_MAGIC 0x4e414c50u
#define PLAN_V1_MAX 4 /* v1 hierarchies a sandbox joins: memory, cpu, pids (and room) */
#define PLAN_PROBES 4 /* UDP and TCP, both families */
/* Where they go. Documentation addresses (RFC 5737, RFC 3849) and the discard port: no packet to them means anything. */
#define PROBE_IPV4 "192.0.2.1"
#define PROBE_IPV6 "2001:db8::1"
#define PROBE_PORT 9
#define SANDBOX_PIDS_OWN 1 /* init, beside what a run may start */

/* Where things are inside a sandbox. */
#define SANDBOX_WORKDIR "/box"
#define SANDBOX_SCRIPT "/box/main.py"
#define SANDBOX_HOME "/tmp/home"
#define SANDBOX_HOSTNAME "sandbox"
#define SANDBOX_USER "sandbox"

/* Init starts with exactly these descriptors. */
enum init_fd {
	INIT_FD_CONTROL = 3, /* SEQPACKET to the supervisor: plan in, struct init_report out */
	INIT_FD_FILTER = 4,  /* memfd: the payload's, see struct filter_answers */
	INIT_FD_OWN_FILTER = 5,
	INIT_FD_REQUEST = 6, /* payload's fd 3 */
	INIT_FD_GATE = 7,    /* payload's fd 4 */
	INIT_FD_STDOUT = 8,
	INIT_FD_STDERR = 9,
	INIT_FD_RESULT = 10,  /* payload's fd 5; of a snippet nobody reads it, and the payload does not get it */
	INIT_FD_REFUSED = 11, /* memfd: struct refused_calls */
	INIT_FD_V1 = 12,      /* .. and up: `tasks` files, plan.v1_count of them */
	INIT_FD_END = INIT_FD_V1 + PLAN_V1_MAX,
};

/* .. and keeps exactly these once it has dropped everything. */
enum init_kept_fd {
	INIT_KEPT_CONTROL = 3,
	INIT_KEPT_SIGNALS = 4,	/* a signalfd: children that ended */
	INIT_KEPT_LISTENER = 5, /* of the payload's filter; not there when the host lets nobody have one */
	INIT_KEPT_END,
};

/*
 * The payload's filter is a file of three parts: plan.filter_len instructions that refuse by themselves; this; and, up to the
 * file's end, instructions that refuse alike, but have the listener answer for the calls that are refused whatever their
 * arguments are. The first is for hosts where no listener is to be had.
 */
#define FILTER_NUMBERS 1024 /* above every number this ABI has */
struct filter_answers {
	uint16_t error[FILTER_NUMBERS]; /* errno by the call's number; 0: the listener is never asked */
};

/*
 * What was refused by number, counted by init in memory that it shares with the supervisor: so the counts are there when all of
 * it is frozen, or was killed. The supervisor begins a new period by raising `period`, which is all that it writes; what is of
 * another period than `counted` counts as nothing.
 *
 * A call that was interrupted before it had its answer, by a signal or by being frozen, either comes again, and is counted
 * then, or ends with its thread or as EINTR. Which of them is not to be known, so these are counted apart.
 */
struct refused_call {
	uint32_t number, error; /* errno */
	uint64_t count;
	uint64_t interrupted;	    /* times; none of them is in `count` */
	uint64_t first_ns, last_ns; /* CLOCK_BOOTTIME */
};
struct refused_calls {
	uint32_t period;
	uint32_t counted; /* the period that the rest is of */
	uint32_t used;	  /* of `of` */
	uint32_t pad;
	uint64_t others;      /* calls of further numbers */
	uint64_t interrupted; /* .. and of numbers that were never seen: gone before init had looked at them */
	struct refused_call of[LIMIT_AUDIT_SYSCALLS];
};

/*
 * A tool's network, as its sandbox sees it: addresses that mean nothing anywhere else (RFC 2544; a ULA of RFC 4193). The
 * resolver is there only when none of the host's name servers can be reached by its own address (127.0.0.53).
 */
#define TAP_NAME "eth0"
#define TAP_IPV4 "198.18.0.15"
#define TAP_IPV4_LEN 24
#define TAP_NET4 "198.18.0.0"
#define TAP_GATEWAY4 "198.18.0.2"
#define TAP_RESOLVER4 "198.18.0.3"
#define TAP_IPV6 "fd77:6569:7200::15"
#define TAP_IPV6_LEN 64
#define TAP_NET6 "fd77:6569:7200::"
#define TAP_GATEWAY6 "fd77:6569:7200::2"
#define TAP_RESOLVER6 "fd77:6569:7200::3"
#define TAP_MTU 65520

/* Descriptors of the payload while the harness waits; the harness closes both before user code runs. */
#define PAYLOAD_FD_REQUEST 3
#define PAYLOAD_FD_GATE 4
#define PAYLOAD_FD_RESULT 5 /* a tool call's */
#define PAYLOAD_FD_REPORT 6 /* close-on-exec */

/* On the gate: supervisor -> harness one byte, harness -> supervisor this. */
#define GATE_ASK 'A' /* a session's: say whether the next cell is in place */
#define GATE_OPEN 'G'
#define GATE_LOAD 'L' /* a tool's: import the modules */
#define GATE_DROP 'X' /* a session's: the cell was withdrawn; it is over without having run */
enum gate_report_type {
	GATE_READY = 'R',   /* the interpreter waits for a request; a tool's: for GATE_LOAD */
	GATE_LOADED = 'L',  /* a tool's: its modules are imported (`value` 0), or could not be (1); it waits for a request */
	GATE_PLACED = 'P',  /* a session's, when asked: the cell and its files are in place, the gate can be opened */
	GATE_REFUSED = 'E', /* file `index` could not be placed: `value` is the errno. A single run ends with it */
	GATE_DONE = 'D',    /* a session's: the cell is over, `value` is its exit code */
	GATE_FAILED = 'X',  /* a single run's: the harness itself failed, with errno `value` or 0; no user code runs */
};
struct gate_report {
	uint32_t type;
	int32_t value;
	uint32_t index;
};

struct init_plan {
	uint32_t magic;
	uint32_t uid, gid; /* the payload's, of this sandbox alone */
	uint32_t init_uid; /* init's own: no payload has it, so none can signal or read it */
	uint32_t nofile;
	uint32_t v1_count;
	uint32_t filter_len, own_filter_len; /* instructions */
	uint64_t tmpfs_bytes, tmpfs_inodes;
	char stage[128];    /* host directory that holds image/, base*, root/ in the supervisor's mount namespace */
	char overlay[256];  /* mount options of the image, with paths relative to `stage` */
	char root[16];	    /* what becomes "/": "root/r", or "root" when the image is a whole root of its own */
	uint32_t etc_below; /* the image has an /etc of its own, which ours is laid over */
	uint32_t pad;
	char interpreter[128]; /* path inside the sandbox */
	uint32_t fault, skip;  /* enum plan_step; honoured only by builds with WEIR_TEST_HOOKS */

	/* A tool call's sandbox; all zero for a snippet. */
	uint32_t call;
	uint32_t way_out; /* its network leads out (TAP, CARRY); else it is a snippet's */
	uint32_t ipv6;	  /* the host has a way out for it */
	uint32_t pad2;
	char resolvers[3][46]; /* for /etc/resolv.conf, as addresses; "" none */
	char modules[4096];    /* what to import, "," between */
	char program[256];     /* path inside of what makes the calls; of a snippet's too, which does not use it */
	char workdir[256];     /* of the image: first on the path of modules; "" none */
	char variables[LIMIT_IMAGE_VARIABLES_BYTES]; /* the image's own environment: "NAME=VALUE", each ended by NUL, then one
							more */
};

enum init_report_type {
	REPORT_PROBED = 1, /* init waits for a byte on the control socket, then goes on */
	REPORT_FAILED,
	REPORT_STARTED, /* pid 2 exists and init has dropped everything */
	REPORT_EXITED,	/* main is gone; init exits right after, and the kernel kills what is left */
	REPORT_TAP,	/* way_out: the tap device comes along as a descriptor; init waits for a byte */
};

struct init_report {
	uint32_t type;
	uint32_t step;			  /* FAILED: enum plan_step */
	int32_t error;			  /* FAILED: errno. STARTED: 0, or why refused calls are not counted */
	int32_t status;			  /* EXITED: as from waitpid */
	int32_t probe_errno[PLAN_PROBES]; /* PROBED: UDP4, UDP6, TCP4, TCP6; 0 = it left; EAFNOSUPPORT = no such family here */
	uint64_t cpu_us;		  /* EXITED: rusage of main and its reaped children */
	char detail[96];
};

struct plan_step_info {
	const char *name;
	const char *layer;
	const char *actor;
	const char *what;
};
extern const struct plan_step_info plan_steps[STEP_COUNT];

/* STEP_NONE when there is no such step. */
enum plan_step plan_step_by_name(const char *name);

#endif
