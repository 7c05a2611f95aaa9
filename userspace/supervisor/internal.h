/* SPDX-License-Identifier: Apache-2.0 */
/* What the supervisor's files share: one section a file. */
#ifndef WEIR_SUPERVISOR_INTERNAL_H
#define WEIR_SUPERVISOR_INTERNAL_H

#include <sched.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include "core/fair.h"
#include "core/lifecycle.h"
#include "core/limits.h"
#include "image.h"
#include "ipc/ipc.h"
#include "kernel/cgroup.h"
#include "kernel/guard.h"
#include "kernel/inforce.h"
#include "kernel/meter.h"
#include "plan.h"
#include "registry/agents.h"
#include "registry/store.h"
#include "supervisor/metrics.h"
#include "supervisor/refused.h"
#include "supervisor/remember.h"
#include "supervisor/signer.h"
#include "supervisor/supervisor.h"
#include "supervisor/timeline.h"

struct supervisor;
struct box;
struct box_template;

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
	struct weir_meter meter; /* with what lived then */
	bool meter_known;	 /* .. and it could be read */
	uint64_t cpu_us;
	uint64_t oom_kills;
	uint64_t main_cpu_us; /* of its main process alone */
	uint64_t events;      /* of its own that have come: box.events */
};

/*
 * The policies in force: what snippets' sandboxes are under, what tools' are, and what the carriers of tools' packets are: the
 * same document as TOOL, with the host's own name servers where a tool sees those of its plan, and without listing what is
 * allowed, which the sandbox's own record has.
 */
enum slot { SLOT_SNIPPET, SLOT_TOOL, SLOT_CARRIER, SLOTS };

/* What the host has for tools: wayout.c. */
struct way_host {
	bool known, ipv6;
	char resolvers[3][46]; /* for plans */
};

/* A tool's way out: wayout.c. All of it is gone before its sandbox is. */
struct way_out {
	bool wanted;
	struct cgroup_box cgroup; /* "<sandbox id>.out" */
	bool guarded;		  /* has an entry in the sandboxes map */
	bool asked, ready;	  /* the gateway was asked for a carrier; it has answered that there is one */
};

/* What was told of a run that goes on, and when (CLOCK_MONOTONIC): usage.c. */
struct told_usage {
	uint64_t at_ns;
	char run_id[IPC_ID_MAX];
	struct tell_usage told;
};

struct box {
	TAILQ_ENTRY(box) link;
	struct box_template *t; /* what it is made from; NULL: a command of `weir exec` */
	enum box_state state;
	char id[IPC_ID_MAX];
	uint32_t uid;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC: of what it is doing, see box_expired(); 0 none */
	bool in_making;	      /* counted in supervisor.making */
	/* CLOCK_MONOTONIC: its first step, its verification, and when its modules were imported (or could not be) */
	uint64_t made_ns, verified_ns, loaded_ns;

	struct cgroup_box cgroup;
	uint64_t memory_bytes; /* its limit */
	bool guarded;	       /* has an entry in the sandboxes map */
	bool metered;	       /* has one in the meter's */
	pid_t init_pid;
	pid_t payload_pid; /* as the host sees it, from the credentials of the gate */
	int main_fd;	   /* pidfd of the payload; -1 before it is verified */
	struct source pidfd, control, gate, oom;
	bool watched;	       /* its end will be told by the pidfd */
	int request, out, err; /* the client's ends, until it is granted; -1 after */
	int workdir;	       /* O_PATH, likewise */
	int result;	       /* a tool's, likewise */
	struct way_out way;
	bool probed;	       /* the policy has been proven from inside */
	bool started, at_gate; /* init has dropped everything; the harness has said it is ready */
	int cpu;	       /* that it was put on; -1: none */

	/* What went wrong while building; the first thing counts. */
	bool failing; /* counted in its template's */
	enum plan_step failed_step;
	int failed_errno;
	char failed_text[256];

	/* The run; of a session, the cell. */
	struct client *client;
	struct fair_project *held; /* who is counted as having it; NULL before the grant */
	unsigned halvings;	   /* of its weight: see pool.c */
	bool weighed;		   /* as a run, no more as what is being made ready */
	uint64_t req;
	uint64_t waited_us; /* how much of its making the client had to wait for */
	char project[IPC_PROJECT_MAX];
	char caller[IPC_CALLER_MAX]; /* who asked for it; of a session its opener */
	char cell_caller[IPC_CALLER_MAX];
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
	uint32_t cell;		 /* asked for so far */
	bool any_ran;		 /* one of its gates was opened */
	bool asked;		 /* one of its cells is on its way, from ASK_START to TELL_END */
	char why[96];		 /* what ended it, in words; "" nothing to say */
	uint64_t life_ns;	 /* when it ends, whatever it does */
	uint64_t began_ns;	 /* the grant */
	struct tell_end between; /* what was used and tried in the times between cells: the session's own record */
	struct source frozen;	 /* cgroup.events; fd -1 unless it is a session */
	bool pausing;		 /* waits for the kernel to say that it is frozen */

	struct timeline *timeline; /* timeline.c; NULL: none */
	struct told_usage usage;
	struct weir_meter walk; /* found by the last metered_look(), if that was since the baseline */
	bool walk_known;
	struct refused *refused; /* refused.c; NULL: nothing was */
	uint64_t rusage_cpu_us;	 /* of main, as init reported its end; 0: it has not */
	uint64_t events;	 /* that have come from the kernel's ring, its carrier's not among them */
	/* Programs that an agent's modules started while they were imported: told when its record begins. */
	struct weir_meter_event *execs;
	unsigned exec_count;
	unsigned execs_dropped;			  /* since the beginning: not told, as there was no room for them */
	unsigned events_dropped, details_dropped; /* likewise */

	/* Of it and of its carrier: remembered so that final counts can be asked for without walking the kernel's whole map. */
	struct weir_flow_key *flows;
	unsigned flow_count, flow_room;
	bool flows_forgotten; /* there was no memory for one */
};

TAILQ_HEAD(box_list, box);

/*
 * What sandboxes of one kind are made from, how many there are of them, and who waits for one. There is one of snippets as long
 * as there is a supervisor, and one of each agent that is being called. An agent's goes when nothing of it is left and nobody
 * has called for a while, or its entry in the registry has become another: then it is `retired` until its last sandbox is gone,
 * and nobody gets any of it any more.
 */
struct box_template {
	TAILQ_ENTRY(box_template) link; /* whose turn it is to have one built */
	enum slot slot;			/* its policy, and with it the limits of its sandboxes */

	/* Of an agent; all of it empty for snippets. */
	bool call;
	bool retired;
	char project[IPC_PROJECT_MAX], agent[IPC_PROJECT_MAX];
	char digest[IMAGE_HEX + 1];
	char root[PATH_MAX];  /* where the image is unpacked */
	struct python python; /* as the registry has it */
	char modules[sizeof((struct init_plan *)0)->modules];
	char workdir[sizeof((struct init_plan *)0)->workdir];
	char variables[sizeof((struct init_plan *)0)->variables];
	uint64_t used_ns; /* when it was last asked for */
	bool not_ahead;	  /* the last one did not get ready, or its modules could not be imported: none is made ahead */

	struct image *image;
	char stage[128];
	uint64_t image_next_ns; /* not looked at before */
	bool image_bad;		/* its files changed, and no image could be made of what is there now */

	unsigned counts[BOX_STATES];
	unsigned failing; /* of those that end: were never ready, and whoever waits for one has not been told yet */
	struct fair fair; /* who waits for one, and what each project has */
	uint64_t granted, served, misses;
	bool was_full;	   /* as many as are kept ready were there once */
	uint64_t retry_ns; /* after a failed build: not before, unless somebody waits */
	unsigned failures; /* builds in a row */
	struct tell_fail last_fail;
};

TAILQ_HEAD(template_list, box_template);

struct note_queue;

/* What a sandbox is made with, beside the policy's rules: fixed while it lives. */
struct tightening {
	struct cgroup_limits cgroup;
	uint32_t open_files;
	int filter_fd; /* of the payload; -1: none */
	uint32_t filter_len;
};

struct supervisor {
	struct supervisor_config config;
	struct inforce inforce[SLOTS]; /* those without a `policy` are not in use */
	struct remembered remembered[SLOTS];
	unsigned failed_reloads;
	uint64_t refresh_ns;	   /* when to read the host's addresses again; 0: when they change */
	uint64_t refreshed_ns;	   /* when they were read last */
	char refresh_problem[256]; /* what kept it from working, as told; "" nothing */
	/*
	 * What must be in order before a document that was read again is in force, and what follows when it is (or, with false,
	 * when it did not come to that). NULL: nothing. Not asked for carriers: theirs is their tools' document.
	 */
	int (*admit)(struct supervisor *s, enum slot slot, const struct inforce *fresh, struct err *e);
	void (*admitted)(struct supervisor *s, enum slot slot, bool in_force);
	struct tightening tight[SLOTS], next_tight; /* next: between admit() and admitted() */
	bool rebuild;				    /* .. and sandboxes of the present kind are not to be used any more */
	char instance[64], pin_dir[128], run_dir[128];
	int lock_fd;
	int epoll_fd, signal_fd;
	struct cgroup_instance cgroups;
	bool have_cgroups;
	struct guard *guard;
	struct meter *meter; /* NULL: it could not be made, and that was logged */
	uint64_t looked_ns;  /* when figures of what goes on were gathered last: usage.c */
	int init_fd;	     /* sealed memfd of weir-init */
	int own_filter_fd;
	uint32_t own_filter_len;

	struct source signal_src, ring_src, meter_src, auditor_src, addresses_src, gateway_src;
	struct way_host way_host;
	struct stat resolv_conf; /* as it was when name servers were read last */
	struct note_queue *notes;
	struct told_policies *told_policies; /* policy_text.c */
	struct signer *signer;		     /* signer.c */
	bool chain_untold;		     /* no log line says how far the chain is: standard error is a command's */
	struct counted *counted;	     /* metrics.c */
	bool notes_want_out;		     /* some wait for the auditor, and it is told when there is room */
	struct client clients[SUPERVISOR_CLIENTS_MAX];
	unsigned client_count;
	struct {
		pid_t pid;
		const char *name;
	} children[4];
	unsigned child_count;

	struct box_list boxes, trash; /* trash: gone, but a directory would not be removed yet */
	unsigned counts[BOX_STATES];  /* of all templates */
	unsigned making;	      /* sandboxes whose building takes our time; see pool.c */
	struct template_list templates;
	struct box_template *snippets;	/* one of them */
	struct attached *attached;	/* attached.c; NULL: none of our business */
	unsigned stages;		/* stage directories so far: each has a name of its own */
	uint16_t cpu_load[CPU_SETSIZE]; /* granted sandboxes on each CPU */
	uint64_t quiet_ns;		/* after a grant: until then its client has the CPU, see pool.c */
	struct tell_pool told;		/* what clients were told last */

	/* The registry as it was read last; none of it without tool calls. */
	int state_fd; /* the state directory; -1: none */
	struct agent_table agents;
	struct image_table images;
	struct stat agents_seen, images_seen;
	uint64_t registry_checked_ns;
	uint64_t registry_retry_ns; /* it could not be read: not again before */

	uint64_t guard_checked_ns; /* when the kernel was last asked whether the programs are effective */
	bool unguarded;		   /* .. and they were not */
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

/* Tells a client; one whose socket is full is no client any more. */
void client_tell(struct client *c, const struct tell *t, const int *fds, size_t nfds);

/* ---- template.c: what sandboxes are made from ---- */
/* That of snippets; its image is made. */
int template_open(struct supervisor *s, struct err *e);
/* Of agents, when there are tool calls: the state directory. Before the supervisor is in its mount namespace. */
int template_open_registry(struct supervisor *s, struct err *e);
void template_close(struct supervisor *s); /* all of them. No sandbox may be left */
/*
 * That of an agent, made when it is called for the first time. NULL: there is no such agent, or it can't be: *ret says why, for
 * who has asked.
 */
struct box_template *template_of(struct supervisor *s, const char *project, const char *agent, struct tell_fail *ret);
/* Builds its image anew when files of it have changed; looks at most every quarter of a second. */
void template_check_image(struct supervisor *s, struct box_template *t);
/* Lets go of what nobody has called for long, and of what the registry has become another for. Now and then. */
void template_tend(struct supervisor *s);
const char *template_python(const struct box_template *t); /* the version */
/* All that is there and not ended. */
unsigned template_alive(const struct box_template *t);
static inline bool template_is_idle(const struct supervisor *s, const struct box_template *t, uint64_t now)
{
	unsigned idle_s = s->config.agent_idle_s ? s->config.agent_idle_s : LIMIT_AGENT_IDLE_S;

	return t->call && now - t->used_ns > idle_s * 1000000000ull;
}

/* ---- build.c: from nothing to a sandbox at its gate ---- */
/* Starts one. What goes wrong later is an event of the sandbox; false only when there was no memory for one. */
bool box_build(struct supervisor *s, struct box_template *t);
void box_fail(struct supervisor *s, struct box *b, enum plan_step step, int error, const char *text);
void box_load(struct supervisor *s, struct box *b); /* step LOAD */
/* In words: "importing weather_tools and 2 more"; and what of its making takes so long: ".. : 110 s". */
void box_say_loading(const struct box *b, char ret[96]);
void box_say_slow(const struct box *b, char ret[256]);
/* It ended by itself while it imported its modules: that is why there is none. How is found out when all of it is dead. */
void box_loading_died(struct box *b);
/* It does not count as being built any more: the rest of it takes no time of ours. Harmless when it does not. */
void box_made(struct supervisor *s, struct box *b);

/* ---- policy_slot.c: the policy in force, and its replacement ---- */
int slot_apply(struct supervisor *s, struct err *e); /* puts s->inforce, all there are, into force; says their warnings */
int slot_watch(struct supervisor *s, struct err *e); /* the host's addresses, from here on */
void slot_reload(struct supervisor *s);		     /* reads the document again; logs and records what comes of it */
void slot_refresh(struct supervisor *s);
void slot_free(struct supervisor *s);
void slot_check_resolvers(struct supervisor *s); /* reads them again when the host's list of name servers is another */
/* What a policy of `slot` that is remembered says of a key; all empty when it is one of long ago. */
void slot_judged(const struct supervisor *s, enum slot slot, const struct weir_flow_key *k, struct note_judged *ret);
void slot_name(const struct inforce *f, struct note_policy *ret);

/* ---- wayout.c: the network of a tool's sandbox ---- */
int wayout_open(struct supervisor *s, struct err *e); /* takes config.gateway_fd, listens to it */
void wayout_close(struct supervisor *s);
/* Step WAY_OUT: cgroup, limits, entry in SLOT_CARRIER. Nothing when the box wants none. */
int wayout_make(struct supervisor *s, struct box *b, struct err *e);
/* Fills the plan's way_out, ipv6 and resolvers. */
void wayout_plan(const struct supervisor *s, const struct box *b, struct init_plan *plan);
/* Step CARRY: init's tap has come (the descriptor is taken). box_carried() follows, or box_fail(). */
int wayout_carry(struct supervisor *s, struct box *b, int tap, struct err *e);
void wayout_kill(struct box *b); /* with everything else of the box; NULL work is fine */
/* Its cgroup and entry: 0 when they are gone (or never were), else to be tried again. */
int wayout_remove(struct supervisor *s, struct box *b);
/* The name servers of `host` as a tool's sandbox sees them: its own addresses, or the one that stands for them. Pure. */
size_t wayout_servers(const struct netenv *host, struct cidr ret[RESOLVCONF_SERVERS]);
/* The host's network may have become another: new plans say so, and sandboxes that wait with an old one end. */
void wayout_look(struct supervisor *s);
/* build.c's: the carrier is there; goes on as soon as everything else is. */
void box_carried(struct supervisor *s, struct box *b);

/* ---- tighten.c: what a policy asks of a sandbox beside its rules ---- */
void tighten_init(struct tightening *t);
int tighten_make(struct tightening *ret, enum slot slot, const struct inforce *f, struct err *e);
void tighten_clear(struct tightening *t);
/* The admit and admitted of sandboxes: those that wait and are of another kind are thrown away. */
int tighten_admit(struct supervisor *s, enum slot slot, const struct inforce *fresh, struct err *e);
void tighten_admitted(struct supervisor *s, enum slot slot, bool in_force);

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
/* Asks its own cgroup, kills again, bounded; logs what stays. What carries its packets is killed, and not waited for. */
void box_confirm_empty(struct box *b);
struct box *box_by_req(struct supervisor *s, const struct client *c, uint64_t req);
struct box *box_by_cgroup(const struct supervisor *s, uint64_t cgroup); /* its own, or its carrier's */
/* Under which policy a cgroup is that is its own or its carrier's. SLOT_SNIPPET without a box: it is gone. */
enum slot box_slot(const struct box *b, uint64_t cgroup);
/* The record of what begins, and the one whose run or session `b` is. */
void box_note_begin(struct supervisor *s, const struct box *b, struct note *n);
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
/* Of the session's own record, as its end would have it now. */
void sup_session_now(struct supervisor *s, const struct box *b, struct tell_usage *ret);

/* By how much a sum has grown; one that can't be read at the end says 0, and has not. */
static inline uint64_t grown(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

/* ---- account.c: what a run, a cell, or the time between two used and tried ---- */
void account_begin(struct supervisor *s, struct box *b);
/* Of a tool's, whose modules are about to be imported: programs that they start are its own. */
void account_load(struct supervisor *s, struct box *b);
/* .. which is granted: its CPU from now on; what its modules tried while they were imported is its own. */
void account_grant(struct supervisor *s, struct box *b);
/* What the kernel has counted of it by now: of its carrier, what was refused there. */
void account_counters(struct supervisor *s, const struct box *b, struct weir_sandbox *ret);
/* Whether anything was tried since the beginning. */
bool account_tried(struct supervisor *s, const struct box *b);
/* Everything since the beginning: events and flows into the record, sums to *ret. What comes now is the next one's. */
void account_end(struct supervisor *s, struct box *b, struct tell_end *ret, uint64_t *ret_oom_kills);
/* After all of its details, before its end: how many of them were dropped since the last time. */
void account_dropped(struct box *b, struct tell_meter *ret);
/* As account_end(), but as of now: it reads, and changes nothing. No flow and no event is waited for. */
void account_now(struct supervisor *s, const struct box *b, struct tell_usage *ret);
/* For a next one: its own peak of memory and its own allowance of flows. When all of it is frozen. */
void account_renew(struct supervisor *s, struct box *b);
void box_report_flows(struct supervisor *s, struct box *b); /* final counts of every listed flow, to the auditor */
void box_remember_flow(struct box *b, const struct weir_flow_key *k);

/* ---- usage.c: figures of what is under way ---- */
/* Answers ASK_USAGE: of a run, a cell, a session, a command of the host's, or an attachment's open window. */
void usage_tell(struct supervisor *s, struct client *c, const struct ask *a);

/* ---- metered.c: what eBPF has counted of tasks (kernel/meter.h) ---- */
int metered_open(struct supervisor *s, struct err *e);
int metered_add(struct supervisor *s, struct box *b, struct err *e); /* when its cgroup is made; before anything is in it */
void metered_remove(struct supervisor *s, struct box *b);
/* What comes now is what is being accounted: with what it is already, and no event of what was before. */
void metered_begin(struct supervisor *s, struct box *b);
/* The same for the CPU time of a tool's alone. All of it is frozen. */
void metered_grant(struct supervisor *s, struct box *b);
/* Since the beginning; the next one's begins. */
void metered_end(struct supervisor *s, struct box *b, struct tell_meter *ret);
/* Walks once, for all that is metered; and what that has found of one. Nothing is filled in where it has found nothing. */
void metered_look(struct supervisor *s);
void metered_now(const struct box *b, struct tell_meter *ret);
/* For a next one: programs are listed anew, and its own largest process. When all of it is frozen. */
void metered_renew(struct supervisor *s, struct box *b);
/* The record of a tool's begins: programs that were started before it are its own. */
void metered_tell_parked(struct supervisor *s, struct box *b);
/* Its events, all that there are: before an end is told. */
void metered_drain(struct supervisor *s);
const char *boot_id(void); /* of the kernel; "" when it does not say */

/* ---- cpus.c ---- */
void cpus_take(struct supervisor *s, struct box *b);
void cpus_give_back(struct supervisor *s, struct box *b);

/* ---- pool.c: who gets which, and when to build ---- */
/*
 * Of the CPU, when there is not enough for all: fair_weight() says what part of the first each run of a project has, whichever
 * agents' they are, and a quarter of that the process that carries its packets. So one run of a project goes its way beside
 * sixty of another. What is only being made ready has the second; an agent's that import their modules, about that together.
 */
#define POOL_WEIGHT_RUN 100
#define POOL_WEIGHT_BUILDING 25
void pool_fill(struct supervisor *s);		   /* builds one, if there should be one more */
uint64_t pool_wake_ns(const struct supervisor *s); /* when pool_fill() has something to do by itself; 0: never */
void pool_offer(struct supervisor *s, struct box *b);
void pool_ask(struct supervisor *s, struct client *c, const struct ask *a);
bool pool_withdraw(struct supervisor *s, struct client *c, uint64_t req);
void pool_build_failed(struct supervisor *s, struct box_template *t); /* its last_fail says how */
void pool_warm_died(struct supervisor *s,
		    struct box_template *t); /* killed from outside: the pool is refilled, but not as fast as it is killed */
void pool_tell(struct supervisor *s, bool always);
void pool_state(struct supervisor *s, struct tell_pool *ret);
void pool_forget_client(struct supervisor *s, struct client *c);
/* Everybody who waits for one of `from`: waits for one of `to` now, or (NULL) is told `f`. */
void pool_move(struct supervisor *s, struct box_template *from, struct box_template *to, const struct tell_fail *f);
unsigned pool_making(const struct box_template *t); /* not ready yet */
void pool_weigh_loading(struct supervisor *s, struct box *b);
bool pool_fit(const struct box *b);		     /* neither dead nor dying, nor stopped from outside */
void pool_gone(struct supervisor *s, struct box *b); /* it was granted and is gone */

/* ---- notes.c: the way to the auditor ---- */
int notes_new(struct supervisor *s, int auditor_fd, struct err *e);
void notes_free(struct supervisor *s);
/* `b`: NULL, or whose record it belongs to: its run's, its running cell's, or between cells its session's own. */
void note_init(struct note *n, enum note_type type, const struct box *b);
/* The same for the session itself, whatever runs in it. */
void note_init_session(struct note *n, enum note_type type, const struct box *b);
/* Sends it once into the record of each run under way under that policy, of each session and of each of their cells. */
void notes_push_to_runs(struct supervisor *s, enum slot slot, const struct note *n);
/*
 * Sends, or queues (note_queue.h). Details of which its record has too many waiting are dropped, and then it returns false:
 * whoever sent them counts them for the end of the run. Without room for anything else the service ends.
 */
bool notes_push(struct supervisor *s, const struct note *n);
/* A detail of its run: one that is dropped is counted, for account_dropped(). */
void notes_push_detail(struct supervisor *s, struct box *b, const struct note *n);
void notes_pump(struct supervisor *s);
bool notes_behind(const struct supervisor *s); /* more waits for the auditor than should */
void notes_flush(struct supervisor *s);	       /* blocking, bounded */
void notes_finish(
    struct supervisor *s); /* after NOTE_FLUSH: that, and answers what the auditor asks until it hangs up, bounded */
void notes_drain_ring(struct supervisor *s, int budget);
void notes_drain_all(struct supervisor *s); /* in any case: a run ends, and its events must be its own */

/* ---- policy_text.c ---- */
/* Its document into the record, when it was not told lately: before the first record that names its hash. */
void policy_text_tell(struct supervisor *s, const struct inforce *f);
/* Those in force, again, when it is time: the record lets go of what it has not heard of for long. */
void policy_text_tick(struct supervisor *s);
void policy_text_free(struct supervisor *s);

/* ---- sweep.c ---- */
int sweep_claim(struct supervisor *s, struct err *e); /* the instance's lock */
int sweep_dead(struct supervisor *s, struct err *e);  /* under the global lock */
int sweep_own(struct supervisor *s, struct err *e);   /* likewise, and of our own name alone */

#endif
