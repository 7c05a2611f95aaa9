/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor: root, one thread, one epoll loop. It loads and pins the programs, builds sandboxes, keeps the pool warm,
 * opens gates, arms deadlines, kills, reaps and reports. It reads nothing that a client or a sandboxed program wrote: code
 * and output pass between the client and the sandbox; names on the wire go to the auditor as raw bytes.
 */
#ifndef WEIR_SUPERVISOR_SUPERVISOR_H
#define WEIR_SUPERVISOR_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/err.h"
#include "kernel/inforce.h"
#include "plan.h"

#define SUPERVISOR_CLIENTS_MAX 2

/* Who Weir's own processes are. Far above any account, DynamicUser or subordinate range that distributions hand out. */
#define UID_BASE 0x70000000u
#define UID_INIT (UID_BASE + 0) /* pid 1 of every sandbox, after set-up */
#define UID_API (UID_BASE + 1)
#define UID_AUDITOR (UID_BASE + 2)
#define UID_COLLECTOR (UID_BASE + 3)
#define UID_IMAGE (UID_BASE + 4) /* reads and unpacks images; owns what it unpacked */
#define UID_CARRIER_FIRST                                                                                                      \
	(UID_BASE + 0x0f100000u) /* .. of a sandbox's way out: the sandbox's own number, above all of theirs */
#define UID_SANDBOX_FIRST (UID_BASE + 1000)
#define UID_SANDBOX_COUNT 0x0f000000u

#define RUN_DIR "/run/weir"
#define BPFFS "/sys/fs/bpf"
#define PIN_DIR BPFFS "/weir"
#define BPFFS_NOTE RUN_DIR "/bpffs" /* exists when it was Weir that mounted the bpffs */

struct supervisor_config {
	const char *instance;	     /* name below weir/, /run/weir and the pins; [a-z0-9-] */
	const char *state_dir;	     /* whose instance this is: it alone reports what an earlier life left; NULL: nobody's */
	const char *image;	     /* root directory of snippets; NULL: made of the host's files */
	const char *python;	     /* interpreter (inside `image`), or NULL to look for one */
	const char *caches;	     /* made beforehand for `image`; NULL: none */
	struct inforce *policy;	     /* loaded, not applied; taken, whatever comes of it */
	struct inforce *tool_policy; /* likewise, of agents' sandboxes; NULL: there are no tool calls here (`weir run`) */
	bool tool_egress;  /* tools have a way out; without it their network is a snippet's, and tool_policy denies all */
	int gateway_fd;	   /* the gateway's end of struct carry; taken; -1: none */
	int key_dir_fd;	   /* the state directory, where the record's key is (signer.h); borrowed; -1: nothing is signed */
	bool bpf_run_time; /* have the kernel measure how long programs run, for metrics: of all programs of the host, which
			      costs */
	unsigned pool_size;
	bool attached;	  /* looks after policies on cgroups that others made: attached.h */
	bool policy_only; /* .. and does nothing else: no sandboxes, so no image, cgroups or programs of its own */
	bool single;	  /* one sandbox is all that will be asked for: none is built after it */
	/* 0: those of the limits table; only tests want others */
	unsigned session_idle_s, session_life_s, call_ready_s, agent_idle_s, agents_called, window_s;
	enum plan_step fault, skip; /* only in builds with WEIR_TEST_HOOKS */
};

struct supervisor;

/*
 * Whether a sandbox (with `tools`: of a tool call) can be what the policy asks for: its sockets, system calls and limits. An
 * error names the place in the document and what would mend it.
 */
int supervisor_check_policy(const struct inforce *policy, bool tools, struct err *e);

/*
 * Makes everything that sandboxes need: sweeps dead instances (reporting to the auditor), makes cgroups, loads, attaches and
 * pins the programs, compiles the filters, builds the image. Enters a mount namespace of its own. Clients' sockets and the
 * auditor's (may be -1) are taken.
 */
int supervisor_new(struct supervisor **ret, const struct supervisor_config *config, int auditor_fd, struct err *e);

/* Takes `fd`: a client's end of the run protocol. */
int supervisor_add_client(struct supervisor *s, int fd, struct err *e);

/*
 * Our own child processes (api, auditor): when one of them ends, the loop ends with an error. Called before
 * supervisor_run().
 */
void supervisor_watch_child(struct supervisor *s, pid_t pid, const char *name);

/*
 * Serves until SIGTERM or SIGINT, or until every client is gone (both are 0), or until it can't go on (negative errno). The
 * caller has blocked SIGTERM, SIGINT and SIGCHLD.
 */
int supervisor_run(struct supervisor *s, struct err *e);

/* Kills every sandbox and removes everything it made, pins included. NULL-safe. Returns the first error, after trying all. */
int supervisor_free(struct supervisor *s, struct err *e);

/* Python that snippets run on, and the i-th sentence about what the image lacks; NULL past the end. */
const char *supervisor_python(const struct supervisor *s);
const char *supervisor_warning(const struct supervisor *s, size_t i);

/* Sweeps every instance whose process is gone: cgroups, pins, run directories. For `weir uninstall` and the start. */
struct sweep_result {
	unsigned instances, sandboxes, processes, events;
	unsigned live; /* instances that somebody still runs: left alone */
};
int supervisor_sweep_all(struct sweep_result *ret, struct err *e); /* under supervisor_lock() */

/* Takes the lock that serialises starts and sweeps of all instances; closing *ret_fd lets go of it. Waits. */
int supervisor_lock(int *ret_fd, struct err *e);

#endif
