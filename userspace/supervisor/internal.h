/* SPDX-License-Identifier: Apache-2.0 */
/* What the supervisor's files share: one section a file. */
#ifndef WEIR_SUPERVISOR_INTERNAL_H
#define WEIR_SUPERVISOR_INTERNAL_H

#include <sched.h>
#include <sys/queue.h>

#include "core/fair.h"
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

/* Where the kernel's counters stood when what is being accounted began: a run, a session's cell, or the time between two. */
struct baseline {
	struct weir_sandbox counters;
	uint64_t cpu_us;
};

struct box {
	TAILQ_ENTRY(box) link;
	enum box_state state;
	char id[IPC_ID_MAX];
	uint32_t uid;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC: of what it is doing, see box_expired(); 0 none */

	struct cgroup_box cgroup;
	uint64_t memory_bytes; /* its limit */
	bool guarded;	       /* has an entry in the sandboxes map */
	pid_t init_pid;
	pid_t payload_pid; /* as the host sees it, from the credentials of the gate */
	int main_fd;	   /* pidfd of the payload; -1 before it is verified */
	struct source pidfd, control, gate, oom;
	bool watched;	       /* its end will be told by the pidfd */
	int request, out, err; /* the client's ends, until it is granted; -1 after */
	int workdir;	       /* O_PATH, likewise */
	bool probed;	       /* the policy has been proven from inside */
	bool started, at_gate; /* init has dropped everything; the harness has said it is ready */
	int cpu;	       /* that it was put on; -1: none */

	/* What went wrong while building; the first thing counts. */
	enum plan_step failed_step;
	int failed_errno;
	char failed_text[256];

	/* The run; of a session, the cell. */
	struct client *client;
	struct fair_project *held; /* who is counted as having it; NULL before the grant */
	uint64_t req;
	char project[IPC_PROJECT_MAX];
	char run_id[IPC_ID_MAX]; /* whose record what happens now belongs to; between cells the session's */
	uint32_t timeout_s;
	bool begun; /* its record has a beginning */
	bool ran;
	uint64_t opened_ns, ended_ns;
	struct baseline base;
	int refused_errno; /* a file could not be placed; 0: none */
	uint32_t refused_index;
	bool end_known;
	enum run_end end; /* the first cause */
	int status;	  /* of main, from waitpid, when init reported it */
	bool have_status;
	uint64_t oom_check_ns; /* v1: look again for the kill that a full memory cgroup announced */
	int oom_checks;

	/* A session. */
	bool session;
	uint32_t cell;		/* asked for so far */
	bool any_ran;		/* one of its gates was opened */
	bool asked;		/* one of its cells is on its way, from ASK_START to TELL_END */
	char why[96];		/* what ended it, in words; "" nothing to say */
	uint64_t life_ns;	/* when it ends, whatever it does */
	uint64_t began_ns;	/* the grant */
	uint64_t cpu_before_us; /* .. what was spent up to then */
	uint64_t memory_peak;	/* the highest of its cells, and of the times between */
	uint64_t net_bytes;
	struct tell_end between; /* counters of the times between cells: what the session's own record lists */
	struct source frozen;	 /* cgroup.events; fd -1 unless it is a session */
	bool pausing;		 /* waits for the kernel to say that it is frozen */

	struct weir_flow_key flows[LIMIT_AUDIT_FLOWS + WEIR_INBOUND_FLOWS_PER_SANDBOX];
	unsigned flow_count;
};

TAILQ_HEAD(box_list, box);

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
	struct fair fair;		/* who waits for one, and what each project has */
	uint16_t cpu_load[CPU_SETSIZE]; /* granted sandboxes on each CPU */
	uint64_t granted, served, misses;
	bool was_full;	   /* the pool has been filled once: ready */
	uint64_t retry_ns; /* after a failed build: not before, unless somebody waits */
	uint64_t quiet_ns; /* after a grant: until then its client has the CPU, see pool.c */
	unsigned failures; /* builds in a row */
	struct tell_fail last_fail;
	struct tell_pool told;	   /* what clients were told last */
	uint64_t guard_checked_ns; /* when the kernel was last asked whether the programs are effective */
	bool unguarded;		   /* .. and they were not */
	uint64_t image_next_ns;	   /* not looked at before */
	bool image_bad;		   /* the host's files changed, and no image could be made of what is there now */
	unsigned image_number;	   /* of the stage directory in use */
	uint64_t drain_until_ns;   /* a stop was asked for: the clients have until then */
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

/* Builds the image anew when the host's files have changed; looks at most every quarter of a second. */
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
/* Whether its working directory is the file system that the plan put there. */
int verify_workdir(const struct box *b, struct err *e);
/* Whether the policy's verdict is what the probes met: errnos as init saw them, counters as the kernel kept them. */
int verify_probes(struct supervisor *s, struct box *b, const int32_t probe_errno[PLAN_PROBES], struct err *e);
/* Reads back from /proc what the payload is: identity, capabilities, seccomp, namespaces, descriptors. */
int verify_payload(struct supervisor *s, struct box *b, struct err *e);

/* ---- box.c: the rest of its life ---- */
void box_event(struct supervisor *s, struct box *b, enum box_event event);
/* Ends it for `end`, unless something has ended it already: all of it, a session too. */
void box_end(struct supervisor *s, struct box *b, enum run_end end);
/* The same for a run; a session's cell is only asked to stop, and ended with its session when it does not. */
void box_interrupt(struct supervisor *s, struct box *b, enum run_end end);
/* Its deadline has passed. */
void box_expired(struct supervisor *s, struct box *b);
/* Fills in how it ended, from what was seen; `ran`: whether code of the client's did. `ret->over` is read. */
void box_describe(const struct box *b, uint64_t oom_kills, bool ran, struct tell_end *ret);
bool box_still_guarded(struct supervisor *s, struct box *b); /* asks the kernel; ends it otherwise */
void box_init(struct box *b);				     /* of zeros: nothing is open */
unsigned boxes_in_use(const struct supervisor *s);	     /* granted and not gone */
void box_check_oom(struct supervisor *s, struct box *b);
void box_confirm_empty(struct box *b); /* asks its cgroup, kills again, bounded; logs what stays */
struct box *box_by_req(struct supervisor *s, const struct client *c, uint64_t req);
struct box *box_by_cgroup(struct supervisor *s, uint64_t cgroup);
void trash_empty(struct supervisor *s);

/* ---- session.c: the actions of a session ---- */
void sup_session_open(struct supervisor *s, struct box *b);
void sup_session_await(struct supervisor *s, struct box *b);
void sup_session_decline(struct supervisor *s, struct box *b);
void sup_session_freeze(struct supervisor *s, struct box *b);
void sup_session_open_cell(struct supervisor *s, struct box *b);
void sup_session_interrupt(struct supervisor *s, struct box *b);
void sup_session_pause(struct supervisor *s, struct box *b);
void sup_session_resume(struct supervisor *s, struct box *b);
void sup_session_finish(struct supervisor *s, struct box *b);
/* What happens to one: */
void sup_session_hears(struct supervisor *s, struct box *b, const struct gate_report *r); /* well-formed, from the harness */
void sup_session_gate_closed(struct supervisor *s, struct box *b);
void sup_session_goes_wrong(struct supervisor *s, struct box *b, const char *why); /* its interpreter does what none does */
void sup_session_check_frozen(struct supervisor *s, struct box *b);
void sup_session_expired(struct supervisor *s, struct box *b);
void sup_session_outlived(struct supervisor *s, struct box *b);
void sup_session_close(struct supervisor *s, struct box *b);

/* ---- account.c: what a run, a cell, or the time between two used and tried ---- */
void account_begin(struct supervisor *s, struct box *b);
/* Everything since the beginning: events and flows into the record, sums to *ret. What comes now is the next one's. */
void account_end(struct supervisor *s, struct box *b, struct tell_end *ret, uint64_t *ret_oom_kills);
/* For a next one: its own peak of memory and its own allowance of flows. When all of it is frozen. */
void account_renew(struct supervisor *s, struct box *b);
void box_report_flows(struct supervisor *s, struct box *b); /* final counts of every listed flow, to the auditor */

/* ---- cpus.c ---- */
void cpus_take(struct supervisor *s, struct box *b);
void cpus_give_back(struct supervisor *s, struct box *b);

/* ---- pool.c: who gets which, and when to build ---- */
/*
 * Of the CPU, when there is not enough for all: fair_weight() says what part of the first each run of a project has, and what
 * is only being made ready has the second. So one run of a project goes its way beside sixty of another.
 */
#define POOL_WEIGHT_RUN 100
#define POOL_WEIGHT_BUILDING 25
void pool_fill(struct supervisor *s);		   /* builds one, if there should be one more */
uint64_t pool_wake_ns(const struct supervisor *s); /* when pool_fill() has something to do by itself; 0: never */
void pool_offer(struct supervisor *s, struct box *b);
void pool_ask(struct supervisor *s, struct client *c, const struct ask *a);
bool pool_withdraw(struct supervisor *s, struct client *c, uint64_t req);
void pool_build_failed(struct supervisor *s);
void pool_warm_died(struct supervisor *s); /* killed from outside: the pool is refilled, but not as fast as it is killed */
void pool_tell(struct supervisor *s, bool always);
void pool_state(struct supervisor *s, struct tell_pool *ret);
void pool_forget_client(struct supervisor *s, struct client *c);
bool pool_fit(const struct box *b);		     /* neither dead nor dying, nor stopped from outside */
void pool_gone(struct supervisor *s, struct box *b); /* it was granted and is gone */

/* ---- notes.c: the way to the auditor ---- */
int notes_new(struct supervisor *s, int auditor_fd, struct err *e);
void notes_free(struct supervisor *s);
/* `b`: NULL, or whose record it belongs to: its run's, its running cell's, or between cells its session's own. */
void note_init(struct note *n, enum note_type type, const struct box *b);
/* The same for the session itself, whatever runs in it. */
void note_init_session(struct note *n, enum note_type type, const struct box *b);
/* Sends it once into the record of each run under way, of each session and of each of their cells. */
void notes_push_to_runs(struct supervisor *s, const struct note *n);
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
