/* SPDX-License-Identifier: Apache-2.0 */
/* What the supervisor's files share: one section a file. */
#ifndef WEIR_SUPERVISOR_INTERNAL_H
#define WEIR_SUPERVISOR_INTERNAL_H

#include <sys/queue.h>

#include "core/lifecycle.h"
#include "core/limits.h"
#include "image.h"
#include "ipc/ipc.h"
#include "kernel/cgroup.h"
#include "kernel/guard.h"
#include "kernel/inforce.h"
#include "plan.h"
#include "supervisor/supervisor.h"

struct supervisor;
struct box;

/* Something epoll can wake us for. `fn` runs with the events that came. */
struct source {
	void (*fn)(struct supervisor *s, struct source *src, uint32_t events);
	void *owner;
	int fd;
};

struct client {
	struct source src;
	bool open;
	bool hung; /* it does not take what it is told: to be closed */
};

/* A request that waits for a sandbox. */
struct waiter {
	TAILQ_ENTRY(waiter) link;
	struct client *client;
	uint64_t req;
	char project[IPC_PROJECT_MAX];
};

struct box {
	TAILQ_ENTRY(box) link;
	enum box_state state;
	char id[IPC_ID_MAX];
	uint32_t uid;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC: of the set-up while BUILDING, of the run while RUNNING; 0 none */

	struct cgroup_box cgroup;
	uint64_t memory_bytes; /* its limit */
	bool guarded;	       /* has an entry in the sandboxes map */
	pid_t init_pid;
	pid_t payload_pid; /* as the host sees it, from the credentials of the gate */
	struct source pidfd, control, gate, oom;
	bool watched;	       /* its end will be told by the pidfd */
	int request, out, err; /* the client's ends, until it is granted; -1 after */
	bool probed;	       /* the policy has been proven from inside */
	bool started, at_gate; /* init has dropped everything; the harness has said it is ready */

	/* What went wrong while building; the first thing counts. */
	enum plan_step failed_step;
	int failed_errno;
	char failed_text[256];

	/* The run. */
	struct client *client;
	uint64_t req;
	char project[IPC_PROJECT_MAX];
	uint32_t timeout_s;
	bool ran;
	uint64_t opened_ns, ended_ns;
	uint64_t cpu_base_us; /* spent before the gate: set-up, not the run's */
	bool end_known;
	enum run_end end; /* the first cause */
	int status;	  /* of main, from waitpid, when init reported it */
	bool have_status;
	uint64_t oom_check_ns; /* v1: look again for the kill that a full memory cgroup announced */
	int oom_checks;

	struct weir_flow_key flows[LIMIT_AUDIT_FLOWS + WEIR_INBOUND_FLOWS_PER_SANDBOX];
	unsigned flow_count;
};

TAILQ_HEAD(box_list, box);
TAILQ_HEAD(waiter_list, waiter);

struct note_queue;

/* What it takes to put words to what a policy judged that may have been replaced since. */
#define REMEMBERED_POLICIES 9 /* one of them is being replaced */
struct remembered_policy {
	uint32_t generation; /* 0: none */
	char (*rule_names)[POLICY_NAME_MAX];
	size_t rule_count;
	struct weir_image head;
};

/* What a sandbox is made with, beside the policy's rules: fixed while it lives. */
struct tightening {
	struct cgroup_limits cgroup;
	uint32_t open_files;
	int filter_fd; /* of the payload; -1: none */
	uint32_t filter_len;
};

struct supervisor {
	struct supervisor_config config;
	struct inforce inforce; /* in slot 0 */
	struct remembered_policy remembered[REMEMBERED_POLICIES];
	unsigned next_remembered;
	unsigned failed_reloads;
	uint64_t refresh_ns;	   /* when to read the host's addresses again; 0: when they change */
	uint64_t refreshed_ns;	   /* when they were read last */
	char refresh_problem[256]; /* what kept it from working, as told; "" nothing */
	/*
	 * What must be in order before a document that was read again is in force, and what follows when it is (or, with false,
	 * when it did not come to that). NULL: nothing.
	 */
	int (*admit)(struct supervisor *s, const struct inforce *fresh, struct err *e);
	void (*admitted)(struct supervisor *s, bool in_force);
	struct tightening tight, next_tight; /* next: between admit() and admitted() */
	bool rebuild;			     /* .. and sandboxes of the present kind are not to be used any more */
	char instance[64], pin_dir[128], run_dir[128], stage[128];
	int lock_fd;
	int epoll_fd, signal_fd;
	struct cgroup_instance cgroups;
	bool have_cgroups;
	struct guard *guard;
	struct image *image;
	struct python python;
	int init_fd; /* sealed memfd of weir-init */
	int own_filter_fd;
	uint32_t own_filter_len;

	struct source signal_src, ring_src, auditor_src, addresses_src;
	struct note_queue *notes;
	bool ring_off; /* the ring does not wake us: see notes.c */
	struct client clients[SUPERVISOR_CLIENTS_MAX];
	unsigned client_count;
	struct {
		pid_t pid;
		const char *name;
	} children[4];
	unsigned child_count;

	struct box_list boxes, trash; /* trash: gone, but a directory would not be removed yet */
	unsigned counts[BOX_STATES];
	struct waiter_list waiters;
	unsigned waiting;
	uint64_t granted, served, misses;
	bool was_full;	   /* the pool has been filled once: ready */
	uint64_t retry_ns; /* after a failed build: not before, unless somebody waits */
	unsigned failures; /* builds in a row */
	struct tell_fail last_fail;
	struct tell_pool told;	   /* what clients were told last */
	uint64_t guard_checked_ns; /* when the kernel was last asked whether the programs are effective */
	bool unguarded;		   /* .. and they were not */
	uint64_t image_checked_ns;
	bool image_bad;		 /* the host's files changed, and no image could be made of what is there now */
	unsigned image_number;	 /* of the stage directory in use */
	uint64_t drain_until_ns; /* a stop was asked for: the clients have until then */
	bool stopping;
	int fatal; /* negative errno: the loop ends */
	struct err fatal_err;
};

/* ---- loop.c ---- */
uint64_t now_ns(void);

/* An empty one, for supervisor_free(). */
struct supervisor *supervisor_alloc(const char *instance);

/*
 * The instance itself, whatever will run in it: event loop, way to the auditor, lock, cgroups, and the programs with no policy
 * in any slot. What dead instances left is swept. Takes auditor_fd.
 */
int instance_open(struct supervisor *s, int auditor_fd, struct err *e);

int source_add(struct supervisor *s, struct source *src, uint32_t events);
void source_close(struct supervisor *s, struct source *src); /* removes and closes the fd */

/* Builds the image anew when the host's files have changed; looks at most every two seconds. */
void check_image(struct supervisor *s);
/* Tells a client; one whose socket is full is no client any more. */
void client_tell(struct client *c, const struct tell *t, const int *fds, size_t nfds);

/* ---- build.c: from nothing to a sandbox at its gate ---- */
/* Starts one. What goes wrong later is an event of the sandbox; false only when there was no memory for one. */
bool box_build(struct supervisor *s);
void box_fail(struct supervisor *s, struct box *b, enum plan_step step, int error, const char *text);

/* ---- policy_slot.c: the policy in force, and its replacement ---- */
int slot_apply(struct supervisor *s, struct err *e); /* puts s->inforce into force; says its warnings */
int slot_watch(struct supervisor *s, struct err *e); /* the host's addresses, from here on */
void slot_reload(struct supervisor *s);		     /* reads the document again; logs and records what comes of it */
void slot_refresh(struct supervisor *s);
void slot_free(struct supervisor *s);
/* What a policy that is remembered says of a key; all empty when it is one of long ago. */
void slot_judged(const struct supervisor *s, const struct weir_flow_key *k, struct note_judged *ret);
void slot_name(const struct inforce *f, struct note_policy *ret);

/* ---- tighten.c: what a policy asks of a sandbox beside its rules ---- */
void tighten_init(struct tightening *t);
int tighten_make(struct tightening *ret, const struct inforce *f, struct err *e);
void tighten_clear(struct tightening *t);
/* The admit and admitted of sandboxes: those that wait and are of another kind are thrown away. */
int tighten_admit(struct supervisor *s, const struct inforce *fresh, struct err *e);
void tighten_admitted(struct supervisor *s, bool in_force);

/* ---- verify.c ---- */
/* Whether the policy's verdict is what the probes met: errnos as init saw them, counters as the kernel kept them. */
int verify_probes(struct supervisor *s, struct box *b, const int32_t probe_errno[PLAN_PROBES], struct err *e);
/* Reads back from /proc what the payload is: identity, capabilities, seccomp, namespaces, descriptors. */
int verify_payload(struct supervisor *s, struct box *b, struct err *e);

/* ---- box.c: the rest of its life ---- */
void box_event(struct supervisor *s, struct box *b, enum box_event event);
/* Ends it for `end`, unless something has ended it already. */
void box_end(struct supervisor *s, struct box *b, enum run_end end);
void box_check_oom(struct supervisor *s, struct box *b);
void box_confirm_empty(struct box *b);			    /* asks its cgroup, kills again, bounded; logs what stays */
void box_report_flows(struct supervisor *s, struct box *b); /* final counts of every listed flow, to the auditor */
struct box *box_by_req(struct supervisor *s, const struct client *c, uint64_t req);
struct box *box_by_cgroup(struct supervisor *s, uint64_t cgroup);
void trash_empty(struct supervisor *s);

/* ---- pool.c: who gets which, and when to build ---- */
void pool_fill(struct supervisor *s);
uint64_t pool_wake_ns(const struct supervisor *s); /* when pool_fill() has something to do by itself; 0: never */
void pool_offer(struct supervisor *s, struct box *b);
void pool_ask(struct supervisor *s, struct client *c, const struct ask *a);
bool pool_withdraw(struct supervisor *s, struct client *c, uint64_t req);
void pool_build_failed(struct supervisor *s);
void pool_warm_died(struct supervisor *s); /* killed from outside: the pool is refilled, but not as fast as it is killed */
void pool_tell(struct supervisor *s, bool always);
void pool_state(struct supervisor *s, struct tell_pool *ret);
void pool_forget_client(struct supervisor *s, struct client *c);

/* ---- notes.c: the way to the auditor ---- */
int notes_new(struct supervisor *s, int auditor_fd, struct err *e);
void notes_free(struct supervisor *s);
void note_init(struct note *n, enum note_type type, const struct box *b);
/*
 * Queues; EVENT and FLOW are dropped when the auditor is hopelessly behind: it then misses what the counters of the run's end
 * say, and shows the difference as lost.
 */
bool notes_push(struct supervisor *s, const struct note *n);
void notes_pump(struct supervisor *s);
bool notes_behind(const struct supervisor *s);		 /* more waits for the auditor than should */
void notes_flush(struct supervisor *s);			 /* blocking, bounded: at the end */
void notes_drain_ring(struct supervisor *s, int budget); /* not while the auditor is behind */
void notes_drain_all(struct supervisor *s);		 /* in any case: a run ends, and its events must be its own */

/* ---- sweep.c ---- */
int sweep_claim(struct supervisor *s, struct err *e); /* the instance's lock */
int sweep_dead(struct supervisor *s, struct err *e);  /* under the global lock */

#endif
