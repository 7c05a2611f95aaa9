/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside runclient:
 *
 *   runclient.c  the tables, the step and the deadlines
 *   run.c        one run's way
 *   output.c     its pipes
 *   content.c    hashes of what goes in and comes out
 *   summary.c    and the telling of them
 *   sessions.c   sandboxes that are kept for many runs
 *   collect.c    the files of ended runs, and the collector's connection
 *   peer.c       the connections to supervisor and auditor
 *
 * A run that ends is freed with its done callback, and which function ends it is not to be seen from outside; so after any call
 * that says it may free the run, the caller returns. A session is freed only from the step (sessions.c: session_free).
 */
#ifndef WEIR_API_RUNCLIENT_PRIV_H
#define WEIR_API_RUNCLIENT_PRIV_H

#include <string.h>
#include <sys/epoll.h>

#include "api/content.h"
#include "api/runclient.h"
#include "core/clock.h"
#include "ipc/decode.h"

/* Its fds were lost on the way. */
#define NO_ROOM "no room for more file descriptors: raise the limit on open files"
#define NEVER_NS UINT64_MAX
/* The longest id of a session that leaves room for its cells' numbers. */
#define SESSION_ID_LEN (IPC_ID_MAX - 1 - 11)
/*
 * Between the order to end something, or its own deadline, and the word that it has ended: killing and confirming. A thread
 * that reads gigabytes of holes of a file in memory looks at no signal before it is through, and there can be LIMIT_PIDS of
 * them; an answer before they are dead would be a lie.
 */
#define END_SLACK_S 120

/* What an fd in the epoll set is: kept with the run's name, so that an event for a run that is gone finds nothing. */
enum watch {
	WATCH_STDOUT = RUN_STDOUT,
	WATCH_STDERR = RUN_STDERR,
	WATCH_RESULT = RUN_RESULT,
	WATCH_REQUEST,
	WATCH_SUPERVISOR,
	WATCH_AUDITOR,
	WATCH_COLLECTOR,
	WATCH_TIMER
};
#define WATCH_BITS 3

/* The fds of TELL_GRANT, in its order; of a session too. The fifth is a call's alone. */
enum grant_fd { GRANT_REQUEST, GRANT_STDOUT, GRANT_STDERR, GRANT_DIR, GRANT_FDS, GRANT_RESULT = GRANT_FDS, GRANT_FDS_CALL };
_Static_assert(GRANT_FDS_CALL <= IPC_FDS_MAX, "a grant fits into one message");

/* Messages of one size that the peer could not take yet. Never dropped: every one is somebody's deadline or kill. */
struct peer {
	int fd; /* -1: lost */
	enum watch watch;
	bool armed;  /* waiting for room */
	size_t size; /* 0: has no queue (the collector's jobs wait in their runs) */
	char *queue;
	int *fds;	    /* one for each message: goes with it, and is closed then; -1 none */
	size_t count, room; /* messages */
};

enum run_state { RUN_ASKED, RUN_SENDING, RUN_RUNNING, RUN_ENDED, RUN_SUMMARY };
enum run_collect { COLLECT_NONE, COLLECT_QUEUED, COLLECT_SENT, COLLECT_DONE };

struct run {
	struct run *prev, *next;
	uint64_t req; /* a cell has its own; the supervisor hears its session's */
	enum run_state state;
	uint64_t deadline_ns; /* of the state */
	struct run_request request;
	struct session *session; /* whose cell it is */
	struct payload payload;
	char project[IPC_PROJECT_MAX];
	char agent[IPC_PROJECT_MAX]; /* of a call; "" */
	char caller[IPC_CALLER_MAX];
	struct run_result result;
	size_t out_room[RUN_PIPES];
	int first_over;	      /* the stream that first went over its cap, or -1 */
	bool cancelled;	      /* nobody wants the answer */
	bool kill_asked;      /* ASK_KILL is out */
	bool granted_told;    /* the granted callback has come */
	bool retried;	      /* a sandbox has died under it */
	bool collected_asked; /* ASK_COLLECTED is out */
	int fds[4];	      /* by enum watch, up to WATCH_REQUEST; -1 when closed. A cell's are its session's */
	int dir;	      /* working directory; as fds */
	size_t sent;	      /* bytes of the payload written */
	uint64_t asked_ns, granted_ns, started_ns, ended_ns;
	struct content content;
	/* SUMMARY */
	bool asked;	     /* QUERY_SUMMARY is out */
	size_t files_at;     /* entries of result.files up to here are in the content .. */
	size_t file_at;	     /* .. and so many bytes of the next one's */
	bool summarised;     /* the auditor has answered or won't */
	uint64_t summary_ns; /* its deadline; before it is asked: when it is to be, at the latest */
	enum run_collect collect;
	uint64_t collect_turn; /* while it waits for the collector: the smallest is next */
	uint64_t collect_ns;   /* the collector's */
};

/* A question without a run: pool counts, the supervisor's figures, or one to the auditor. */
struct question {
	struct question *next;
	uint64_t req;
	uint64_t deadline_ns;
	void (*pool)(void *ctx, const struct tell_pool *pool); /* one of the four */
	void (*metrics)(void *ctx, const struct metrics *m);
	void (*usage)(void *ctx, const struct tell_usage *u);
	void (*audit)(void *ctx, int status, const char *text, size_t len);
	void *ctx;
};

struct runclient {
	int epoll_fd, timer_fd;
	struct peer supervisor, auditor, collector;
	struct run *runs, *last_run;
	size_t open_runs;
	struct session *sessions;
	void (*on_session)(void *ctx, struct session *s);
	void *on_session_ctx;
	struct question *questions;
	bool keep_content; /* runclient_keep_content() */
	uint64_t next_req;
	struct tell_pool pool;
	bool pool_known;
	uint64_t timer_ns;		       /* what the timer is set to, 0 for off */
	uint64_t collecting;		       /* the run whose files the collector is reading; 0: none */
	uint64_t collect_turn;		       /* of the job that was asked for last */
	char collect_project[IPC_PROJECT_MAX]; /* and whose it was */
	struct collect collect;		       /* room for one message to the collector */
	char *answer;			       /* room for one message of the auditor */
	char scratch[64 * 1024];	       /* where output beyond a cap goes */
};

/* runclient.c */
/* Sets the timer to the nearest deadline of all. */
void runclient_arm(struct runclient *rc);
struct run *run_find(struct runclient *rc, uint64_t req);
void run_link(struct runclient *rc, struct run *run);
void run_unlink(struct runclient *rc, struct run *run);
int watch_fd(struct runclient *rc, int fd, uint64_t req, enum watch watch, uint32_t events);
void unwatch_fd(struct runclient *rc, int fd);
/* They said something that they never say, or are gone. The first ends every run, and all three may free any. */
void supervisor_lost(struct runclient *rc, const char *why);
void auditor_lost(struct runclient *rc, const char *why);
void collector_lost(struct runclient *rc, const char *why);

/* Whether it goes into a struct ask: the supervisor hangs up on one that does not say who asks. */
static inline bool caller_fits(const char *caller)
{
	size_t size = caller ? strlen(caller) + 1 : 0;

	return size > 0 && size <= IPC_CALLER_MAX && caller_ok(caller, size);
}

/* run.c: what moves one run on. Any of them may end and free it. */
/* `fds`: GRANT_FDS of them, of a call GRANT_FDS_CALL. */
void run_grant(struct runclient *rc, struct run *run, const struct tell_grant *grant, const int *fds);
static inline size_t run_grant_fds(const struct run *run)
{
	return *run->agent ? GRANT_FDS_CALL : GRANT_FDS;
}
/* Until when it waits for its grant. */
uint64_t run_ask_deadline(const struct run *run);
int run_ask_sandbox(struct runclient *rc, const struct run *run);
/* A new cell: watches its session's fds. Returns 0 or a negative errno; then nothing is watched. Never frees it. */
int run_begin_cell(struct runclient *rc, struct run *run);
/* `layer` NULL: result.fail is filled in already. */
void run_fail(struct runclient *rc, struct run *run, const char *layer, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void run_end(struct runclient *rc, struct run *run, const struct tell_end *end);
void run_event(struct runclient *rc, struct run *run, enum watch watch);
/* Of SUMMARY: the nearer of its two deadlines. */
static inline void run_arm_summary(struct run *run)
{
	uint64_t summary = run->summarised ? NEVER_NS : run->summary_ns;
	uint64_t collect = run->collect == COLLECT_DONE ? NEVER_NS : run->collect_ns;

	run->deadline_ns = summary < collect ? summary : collect;
}
void run_expired(struct runclient *rc, struct run *run);
/* Closes, unlinks, calls back, frees. */
void run_finish(struct runclient *rc, struct run *run, enum run_outcome outcome);
/* Nothing of a cell has run and nothing will: RUN_GONE with these words. */
void run_gone(struct runclient *rc, struct run *run, const char *why);
/* A cell that has ended: its files have been read, or won't be, so its session need not stay frozen. Told once. */
void run_ask_collected(struct runclient *rc, struct run *run);
/* These two never free it either. */
void run_cancel(struct runclient *rc, struct run *run);
void run_ask_kill(struct runclient *rc, struct run *run, enum run_end reason);

/* Everything of it is known. */
void run_complete(struct runclient *rc, struct run *run);

/* summary.c. Any of them may end and free the run, but for the first and the last. */
/* When the auditor is to be told at the latest, whatever the collector does. */
void summary_expect(struct run *run);
/* The auditor's answer, or an errno in the place of one. */
void run_summary(struct runclient *rc, struct run *run, int status, const char *text, size_t len);
/* Does what is next: the collector has answered or failed, the auditor has, or some time has passed. */
void run_settle(struct runclient *rc, struct run *run);
/* Its part of the time is over; run_settle() follows. */
void summary_expired(struct runclient *rc, struct run *run);

/* output.c. None of it frees the run. */
/* Reads one turn's worth and tells of it. Returns whether the stream is at its end. */
bool output_read(struct runclient *rc, struct run *run, enum run_stream s);
/* Reads what both pipes hold, of which no more is to come for now. */
void output_drain(struct runclient *rc, struct run *run);
/* The words that a deadline leaves at the end of stderr; counted in out_len, not in out_bytes. */
void output_add_timeout_words(struct run *run);
void run_tell_progress(struct run *run);

/* sessions.c */
struct session *session_by_req(struct runclient *rc, uint64_t req);
/* From the supervisor. Each may free it, and run_end() its cell. */
void session_grant(struct runclient *rc, struct session *s, const struct tell_grant *grant, int fds[GRANT_FDS]);
void session_grant_lost(struct runclient *rc, struct session *s);
void session_fail(struct runclient *rc, struct session *s, const struct tell_fail *fail);
void session_end(struct runclient *rc, struct session *s, const struct tell_end *end);
void session_expired(struct runclient *rc, struct session *s);
void session_cancel(struct session *s);
/* Its cell is finished: before and after the done callback. The second may free it. */
void session_release(struct runclient *rc, struct run *run);
void session_released(struct runclient *rc, struct session *s);
/* All are marked as ending, so that nobody begins a cell; then, when their cells are finished, freed. */
void sessions_doom(struct runclient *rc);
void sessions_free(struct runclient *rc, const char *layer, const char *why);

/* collect.c */
/* Queues the run, or marks it as done with a problem. Never frees it. */
void collect_begin(struct runclient *rc, struct run *run);
/* Its time is over. Never frees it. */
void collect_expired(struct runclient *rc, struct run *run);
/* The run ends: whatever is under way for it is nobody's any more. */
void collect_forget(struct runclient *rc, struct run *run);
/* Sends the next job if the collector is idle. */
void collect_next(struct runclient *rc);
void collect_fail(struct run *run, const char *why);
void collector_read(struct runclient *rc);

/* peer.c */
/* Sends or queues one message of peer->size bytes, and with it `fd` (-1: none), which is taken. Returns 0, -EPIPE or -ENOMEM.
 */
int peer_send(struct runclient *rc, struct peer *peer, const void *msg, int fd);
/* Sends what is queued. Returns 0 or -EPIPE. */
int peer_flush(struct runclient *rc, struct peer *peer);
/* Whether its fd is to be watched for room. */
void peer_arm(struct runclient *rc, struct peer *peer, bool armed);
void peer_close(struct peer *peer);
/* Reads what has come, up to a bound; dispatches to the functions above. */
void supervisor_read(struct runclient *rc);
void auditor_read(struct runclient *rc);
/* The first `len` bytes of a memfd, copied, so that nobody can change them under us. malloc'd (never NULL for 0 bytes), or
 * NULL. */
char *memfd_copy(int fd, size_t len);

#endif
