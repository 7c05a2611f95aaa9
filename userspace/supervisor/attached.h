/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a service does for policies on cgroups that others made (attach/): it writes what the kernel saw there, keeps what their
 * dynamic sets hold fresh, looks whether they still hold, and clears up after those that are gone. None of it is needed for a
 * verdict: those are the kernel's, and hold when no service runs.
 *
 * One service of a host writes: whoever holds ATTACHED_DIR "/drain". Others look, for their readiness, and wait for it.
 *
 * The record of an attachment is a row of windows, runs of project PROJECT_ATTACHED with the ids "<id>.<n>", n from 1. Each
 * begins with what has the policy and ends with what the kernel counted in it; one that was cut short has no end, and what was
 * counted in it is in the next one's sum. The number is in attachment.json, so none is ever used twice.
 */
#ifndef WEIR_SUPERVISOR_ATTACHED_H
#define WEIR_SUPERVISOR_ATTACHED_H

#include "attach/attach.h"
#include "supervisor/internal.h"
#include "supervisor/progress.h"

#define ATTACHED_CGROUPS 64 /* below a carried parent, that are known to be told of */
#define ATTACHED_PARKED 64  /* events of one attachment that wait for the name of the policy that judged them */

/* What the processes of an attachment's cgroup use: window_use.c. */
struct window_use {
	bool known;		/* what follows was read at the window's beginning, or at the end of the one before */
	bool metered, refused;	/* refused: the meter would not have it, and that was logged */
	bool base_known;	/* the meter could be read then */
	struct weir_meter base; /* with what lived then .. */
	uint64_t processes_ended, threads_ended; /* .. and without */
	uint64_t base_cpu_us, base_oom_kills;
	struct cgroup_usage seen; /* when it was looked at last: a cgroup that is gone says nothing */
	uint64_t events_from;	  /* number of the last event before the window */
	uint64_t events;	  /* that have come since */
	unsigned execs_dropped;
	struct weir_meter walk; /* found by the last metered_look(), if that was since the window began */
	bool walk_known;
};

/* One attachment, as this service has it. */
struct one {
	TAILQ_ENTRY(one) link;
	struct attached *all;
	struct attachment a; /* without its sockets */
	struct stat file;    /* of attachment.json, when it was read */
	bool listed;	     /* it was there when the directory was read last */
	bool mine;	     /* its record is ours to write, and a window is open */
	bool follows;	     /* its last window was ours, and the next one could not begin yet: nothing is missed */
	uint64_t check_ns;   /* CLOCK_MONOTONIC: when to look at it .. */
	uint64_t full_ns;    /* .. and when at all of it, whatever a quick look says */
	struct stat pins;    /* of its pin directory, when all was looked at */

	struct guard *guard;	   /* NULL: not open now */
	bool in_rings;		   /* .. and its ring wakes us */
	struct inforce policy;	   /* not of a parent, nor when it can't be read */
	struct remembered names;   /* its policies, by generation */
	bool stale;		   /* the host's addresses have changed since */
	struct weir_event *parked; /* judged by a policy that the file does not know yet */
	unsigned parked_count;
	uint64_t parked_ns;
	uint64_t told[ATTACHED_CGROUPS]; /* ids of a parent's, each at its place: this window names them */

	/* The window. */
	bool open;
	uint64_t began_ns; /* CLOCK_MONOTONIC */
	struct progress_at at;
	struct progress_slot *slot; /* NULL: there was none free */
	uint64_t dropped;	    /* notes that the auditor has not got */
	bool full;		    /* its flows are nearly as many as are listed */
	struct window_use use;
	struct told_usage told_usage;

	/* What was found when it was looked at. */
	bool looked;
	enum attach_state state;
	struct {
		char name[32], text[224];
	} problems[ATTACH_PROBLEMS];
	size_t problem_count;
};

TAILQ_HEAD(one_list, one);

struct attached {
	struct supervisor *s;
	struct one_list list;
	unsigned count, open_guards, guards_max;
	struct source rings; /* an epoll set of its own: each gets its turn */
	int drain_fd;	     /* the lock; -1: somebody else writes, or there is nothing to write */
	struct progress *progress;
	struct attach_check *check; /* too large for the stack */
	struct target_roots roots;
	char room[256]; /* of theirs */

	struct stat dir; /* when it was read */
	uint64_t tick_ns, scan_ns, lock_ns, clear_ns, cleared_ns;
	bool clear_now, recheck;
	unsigned broken; /* directories that can't be read */
	char broken_text[256];
	unsigned window_s;
};

#define ATTACHED_BUDGET 256 /* events of one attachment in a turn */

/* ---- window.c: the record ---- */

/* Why a window begins now, if it is not the first that this service has seen begin. */
struct window_gap {
	bool told; /* there was nobody to write */
	struct progress_at before;
	bool known; /* `before` is what was so far; else nothing was written, or it is lost */
};

/* With `o->a.record` its number. `sockets`: an attachment that has them, to list them; or NULL. */
void window_begin(struct supervisor *s, struct one *o, const struct window_gap *gap, const struct attachment *sockets);
/* Writes what the ring still holds, what each flow came to, and the sums. */
void window_end(struct supervisor *s, struct one *o, enum window_end why, const char *detail);
/* Whether it is the open window of that run_id; and its figures as of now, with what metered_look() has found. */
bool window_is(const struct one *o, const char *run_id);
bool window_now(struct one *o, struct tell_usage *ret);
/* What waits in the ring, at most `budget` events. */
void window_drain(struct supervisor *s, struct one *o, int budget);
/* Events that waited for the name of their policy; with `all`, without it. */
void window_unpark(struct supervisor *s, struct one *o, bool all);
void window_drift(struct supervisor *s, const struct one *o, const char *name, const char *text, bool over);
/* Reads the counters and puts them where the next service finds them. */
void window_look(struct supervisor *s, struct one *o);

/* ---- window_use.c ---- */
/* Meters it, if it is not yet; `now`: the counters of its entry. */
void window_use_begin(struct supervisor *s, struct one *o, const struct weir_sandbox *now);
void window_use_look(struct one *o);
void window_use_event(struct one *o, const struct weir_event *ev);
/* Fills in the members of `ret` that are its own, and what the entry says of packets. The next window's begins. */
void window_use_end(struct supervisor *s, struct one *o, const struct weir_sandbox *now, struct note *ret);
void window_use_walked(struct supervisor *s); /* of metered_look() */
void window_use_now(struct one *o, const struct weir_sandbox *now, struct tell_end *ret);
void window_use_close(struct supervisor *s, struct one *o);

/* A program was started in a cgroup that is no sandbox of ours: into the window of its attachment, if there is one. */
void attached_exec(struct supervisor *s, const struct weir_meter_event *ev);

/* ---- attached_one.c ---- */
/* Whatever is due: its file, its window, whether it holds. */
void one_check(struct supervisor *s, struct one *o);
/* Its next window. Under the lock of attachments. */
int one_begin_locked(struct supervisor *s, struct one *o, const struct window_gap *follows);
/* The end of its record, for now, and of its guard here. */
void one_end(struct supervisor *s, struct one *o, enum window_end why, const char *detail);
/* .. of one whose cgroup is gone. */
void one_end_removed(struct supervisor *s, struct one *o);
/*
 * Compiles its policy anew. Under the lock, and `o->a` is what the file says: nobody replaces the policy meanwhile. The first
 * time what is in force was compiled by another process, at another time.
 */
void one_renew_policy(struct one *o, bool first);
void one_close(struct one *o);
struct stat one_file(const struct one *o); /* of attachment.json, now */
const char *one_path(const struct one *o); /* of its cgroup, short */

/* ---- attached.c ---- */
bool attached_writes(const struct attached *all);
struct stat attached_stat(const char *path); /* zeros: it is not there */
int attached_open(struct supervisor *s, struct err *e);
/* Ends every window, and leaves what is in force alone. */
void attached_close(struct supervisor *s);
/* Does what is due. To be called whenever the loop turns; most times it is nothing. */
void attached_tick(struct supervisor *s);
uint64_t attached_wake_ns(const struct supervisor *s); /* when it is; 0: never */
/* The host's addresses or name servers have changed. */
void attached_refresh(struct supervisor *s);
/* Looks at all of them now. */
void attached_recheck(struct supervisor *s);
/* The first that is not in force, in words; false when all are. */
bool attached_problem(const struct supervisor *s, char *ret, size_t size);

#endif
