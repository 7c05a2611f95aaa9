/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client half of the run protocol, without HTTP: what the api process and `weir run` share.
 *
 * A runclient owns the two SEQPACKET connections (supervisor, auditor) and a table of open runs. It never blocks, starts
 * no thread and calls back only from runclient_step(): the owner waits until runclient_fd() is readable (it is an epoll
 * fd that covers the connections, every pipe and a timer, so no separate time-out is needed) and then calls
 * runclient_step(). One run goes
 *
 *   ASKED     ASK_SANDBOX is out; at most until its wait limit, then it is withdrawn. A call's limit is longer, and counts from
 *             the asking: making its sandbox takes as long as the image's modules take to be imported
 *   SENDING   TELL_GRANT came: the request is being written to the sandbox's socket
 *   RUNNING   ASK_START is out; both output pipes are read, each kept up to its cap and counted beyond; of a call, a third
 *             one with its result, which is closed when there is too much in it
 *   ENDED     TELL_END came: the rest of the pipes is read to its end of stream (of a cell: until they are empty)
 *   SUMMARY   struct collect is out, then QUERY_SUMMARY with the hashes of all that was seen, its files too; each has a
 * deadline of its own, and the second does not wait long for the first. A call leaves no files
 *
 * and every state has a deadline, so that no peer can hold a run open for ever. A sandbox that dies between its grant and its
 * start has run nothing: then another one is asked for, once.
 *
 * A session is a sandbox that is kept: opened by ASK_SANDBOX, it waits for runs of its own (its cells), one after the other.
 * A cell begins with SENDING, and ASK_COLLECTED goes out as soon as the collector has answered or failed. What a session
 * writes while no cell runs waits in its pipes (at most what they hold) and is the next cell's output.
 */
#ifndef WEIR_API_RUNCLIENT_H
#define WEIR_API_RUNCLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/payload.h"
#include "core/err.h"
#include "core/limits.h"
#include "ipc/ipc.h"
#include "ipc/metrics.h"

/* The auditor's time to tell what a run tried on the network; then the answer falls back on the supervisor's counters. */
#define RUNCLIENT_SUMMARY_MS 2000

struct runclient;

/* The two output streams, as indices; and of a tool call a third pipe, with its result. */
enum run_stream { RUN_STDOUT, RUN_STDERR, RUN_STREAMS, RUN_RESULT = RUN_STREAMS, RUN_PIPES };

/* What is kept of a call's result: the longest frame, and a byte that shows that there was more. */
#define RUN_RESULT_BYTES (sizeof(struct result_header) + LIMIT_RESULT_BYTES + 1)

enum run_outcome {
	RUN_DONE,    /* user code ran and ended, however it ended: a 200 */
	RUN_BUSY,    /* no sandbox within the wait limit: a 503, nothing ran */
	RUN_FAILED,  /* Weir failed: a 500 that names `fail.layer`; see `ran` */
	RUN_REFUSED, /* the sandbox could not place a file: `end.refused_errno`, `end.refused_index`; nothing ran */
	/*
	 * Nothing ran: withdrawn by runclient_cancel() before it began. Or, of a cell: its session ended before it began, or
	 * did not take the request and was closed for it; then `end.over` is 1 and `fail.text` says why.
	 */
	RUN_GONE,
};

/* What the collector found, checked: a view into `data`. All zero: nothing was collected, and `problem` says why. */
struct run_files {
	char *data; /* malloc'd: struct collected_entry, path and content, again and again */
	size_t len;
	uint32_t skipped_unlisted;
	const char *problem; /* literal, a short phrase; NULL: they were collected, or nothing ran that could leave any */
};

/* The next entry, from *at == 0; false at the end. Everything is borrowed from `f`. */
bool run_files_next(const struct run_files *f, size_t *at, struct collected_entry *ret, const char **ret_path,
		    const char **ret_content);
/* Whether `data` is what run_files_next() may be given: every length within bounds, kinds known, paths without NUL. */
bool run_files_ok(const char *data, size_t len);

/* Everything there is to know about an ended run. Borrowed by the done callback, freed after it returns. */
struct run_result {
	enum run_outcome outcome;
	bool ran;		 /* whether any user code may have run, so whether a retry could run it twice */
	uint32_t timeout_s;	 /* as asked */
	struct tell_grant grant; /* ids and Python version; all "" when there was no sandbox */
	struct tell_fail fail;	 /* RUN_FAILED: layer and a sentence */
	struct tell_end end;  /* RUN_DONE: exit code, usage, counters; `detail` filled in where the supervisor left it empty */
	char *out[RUN_PIPES]; /* raw bytes; may hold NUL, not terminated; NULL when empty. At a deadline kill stderr has */
	size_t out_len[RUN_PIPES]; /* "timed out after <N>s" added as its own last line (it counts here, not in out_bytes) */
	uint64_t out_bytes[RUN_PIPES]; /* what the program wrote, cut or not */
	bool truncated;		       /* of the two output streams, whether out_bytes is more than was kept */
	bool result_ended;	       /* RUN_RESULT was read to its end */
	char *summary;		       /* JSON text of the auditor's answer to QUERY_SUMMARY; NULL when it gave none */
	size_t summary_len;	       /* bytes */
	struct run_files files;	       /* what it left in its working directory */
	bool call;		       /* a tool call */
	bool session;		       /* a session's cell; `end.over` says whether it cost the session its life */
	uint64_t queue_us;	       /* from arrival to the grant */
	uint64_t send_us;	       /* from the grant to the order to start */
	uint64_t collect_us;	       /* from the run's end being known to the answer being complete */
};

struct run_request {
	const char *project;	    /* NUL-terminated, < IPC_PROJECT_MAX bytes; copied */
	const char *caller;	    /* who asks, as in struct ask; < IPC_CALLER_MAX bytes; copied */
	const char *agent;	    /* a tool call of that agent of `project`, < IPC_PROJECT_MAX bytes; copied. NULL: none */
	struct payload *payload;    /* what it holds is taken, also on failure; its kind (flags) fits `session` and `agent` */
	struct session *session;    /* NULL for single use; else an open one that is idle */
	uint32_t timeout_s;	    /* within the limits table; the supervisor checks it again */
	size_t output_bytes;	    /* of each output stream; over it the run ends. 0: LIMIT_OUTPUT_BYTES */
	uint64_t arrived_ns;	    /* CLOCK_MONOTONIC when the request came; 0: now. Wait limit and queue_us count from here */
	void (*granted)(void *ctx); /* a sandbox was granted, or the session's is being used; once at most. May be NULL */
	/*
	 * The order to start is out, or there is more in `so_far->out`: for who shows output while it comes. `so_far` is the
	 * result that done() will bring, and is kept current until then. May be NULL.
	 */
	void (*progress)(void *ctx, const struct run_result *so_far);
	/* Exactly once per started run. It may take `out`, `summary` and `files.data` over by setting them to NULL. */
	void (*done)(void *ctx, struct run_result *result);
	void *ctx;
};

/*
 * Takes the fds (connected SEQPACKET, non-blocking), also on failure. `auditor_fd` may be -1: then every answer's
 * egress falls back on the counters. `collector_fd` may be -1: then no files are collected. `*ret` is touched only on success.
 */
int runclient_new(int supervisor_fd, int auditor_fd, int collector_fd, struct runclient **ret, struct err *e);

/*
 * NULL is fine. Open runs get their done callback (RUN_FAILED, or RUN_GONE) before this returns, sessions that are being opened
 * their opened callback; the end of the others is not told. Returns NULL.
 */
struct runclient *runclient_free(struct runclient *rc);

/* Readable whenever runclient_step() has something to do. Stays the runclient's. */
int runclient_fd(const struct runclient *rc);

/*
 * Does what can be done now. Returns 0, or -EPIPE once the supervisor's connection is lost: every open run has then had
 * its done callback, and the runclient can only be freed. Callbacks may call runclient_start() and runclient_cancel().
 */
int runclient_step(struct runclient *rc);

/*
 * Starts a run. *ret_req names it until its done callback. Returns 0, -ENOMEM, -EINVAL, -EPIPE, or, of a cell, -EBUSY when the
 * session is not idle; on failure no callback.
 */
int runclient_start(struct runclient *rc, const struct run_request *request, uint64_t *ret_req);

/*
 * Ends a run because nobody wants its answer any more. The done callback still comes, when the run has really ended
 * (RUN_DONE with RUN_END_CANCELLED, or RUN_GONE). Unknown names are ignored.
 */
void runclient_cancel(struct runclient *rc, uint64_t req);
void runclient_cancel_all(struct runclient *rc);

/* ---- sessions ---- */

enum session_state { SESSION_OPENING, SESSION_IDLE, SESSION_BUSY, SESSION_CLOSING };

/* An open session. Owned by the runclient; what `owner` points to is the caller's. */
struct session {
	struct session *prev, *next;
	uint64_t req;
	enum session_state state;
	char project[IPC_PROJECT_MAX];
	char agent[IPC_PROJECT_MAX]; /* of the project's, whose token opened it; "" none's */
	char id[IPC_ID_MAX];	     /* of its sandbox, and its own */
	char python[32];
	uint32_t cells;		   /* started so far */
	int64_t created_s, used_s; /* Unix time: opened, and last cell's end */
	int fds[4];		   /* request, stdout, stderr, working directory; -1 before the grant */
	int manifest;		   /* what was in its directory after the last cell, for the collector; -1 */
	struct run *run;	   /* the cell that runs */
	bool over;		   /* the supervisor has said that it ended; kept only for its last cell */
	bool cancelled;		   /* of one that is being opened: nobody wants it any more */
	void *owner;		   /* the caller's; NULL when it is opened */
	uint64_t arrived_ns, deadline_ns;
	void (*opened)(void *ctx, struct session *s, const struct run_result *failure);
	void *ctx;
};

struct session_request {
	const char *project;
	const char *caller; /* who opens it, as in struct ask; < IPC_CALLER_MAX bytes; copied */
	const char *agent;  /* whose it is to be, of the project's agents; NULL or "": the project's own */
	uint64_t arrived_ns;
	/*
	 * Exactly once: with `s` when it is open, else with `failure` (RUN_BUSY, RUN_FAILED, RUN_GONE) and `s` is NULL. `ctx`
	 * is not used after it.
	 */
	void (*opened)(void *ctx, struct session *s, const struct run_result *failure);
	void *ctx;
};

/*
 * Returns 0, -ENOMEM, -EINVAL, -EPIPE or -EDQUOT (the project has LIMIT_SESSIONS); on failure no callback. *ret_req names it
 * for runclient_cancel() until it is open.
 */
int runclient_session_open(struct runclient *rc, const struct session_request *request, uint64_t *ret_req);

/* The open session `id` of that project, or NULL: also while it is being closed. */
struct session *runclient_session_find(struct runclient *rc, const char *id, const char *project);

/*
 * Ends it. A running cell ends with RUN_END_CANCELLED, later. The session is no longer found from here on, and is freed, later
 * too, when the supervisor has confirmed its end. Closing one twice does nothing.
 */
void runclient_session_close(struct runclient *rc, struct session *s);

/*
 * Called whenever a session is idle again (after its cell's done callback), or gone or no longer to be found (`s` is then
 * NULL), from runclient_step(): somebody may wait for it.
 */
void runclient_on_session(struct runclient *rc, void (*fn)(void *ctx, struct session *s), void *ctx);

/* All open sessions, newest first: start with NULL. Those of every project. */
struct session *runclient_session_next(const struct runclient *rc, const struct session *s);

/* Open or opening, of one project. */
unsigned runclient_session_count(const struct runclient *rc, const char *project);

/* Runs that have not had their done callback. */
size_t runclient_open_runs(const struct runclient *rc);

/* The newest pool state the supervisor told, or NULL before the first. Borrowed until the next step. */
const struct tell_pool *runclient_pool(const struct runclient *rc);

/* Whether these connections still stand. */
bool runclient_auditor_up(const struct runclient *rc);
bool runclient_collector_up(const struct runclient *rc);

/*
 * Asks the supervisor for fresh pool counts. The callback comes exactly once, from runclient_step() or runclient_free();
 * `pool` is NULL when no answer came in time or the connection is lost.
 */
int runclient_ask_pool(struct runclient *rc, void (*done)(void *ctx, const struct tell_pool *pool), void *ctx);

/* The same of what it counts; `m` is NULL when no answer came in time or the connection is lost. */
int runclient_ask_metrics(struct runclient *rc, void (*done)(void *ctx, const struct metrics *m), void *ctx);

/*
 * The same of a run that is under way, whoever started it: whether the asker may know of it has been found out before. `u` is
 * NULL when no answer came in time; `u->there` is 0 when no such run is under way.
 */
int runclient_ask_usage(struct runclient *rc, const char *run_id, void (*done)(void *ctx, const struct tell_usage *u),
			void *ctx);

/* What has been read so far of both outputs of one of our own runs, before any of it was cut. False: it is none of ours. */
bool runclient_output(const struct runclient *rc, const char *run_id, uint64_t *ret_bytes);

/*
 * Asks the auditor. `q` says all but its `req`; its texts end inside their arrays. The callback comes exactly once: `status` 0
 * with `len` bytes of JSON text (borrowed), or an errno: ENOENT not found (or another's), EAGAIN too many at once, ETIMEDOUT no
 * answer within `seconds`, or the end of the run was never recorded, EPIPE auditor gone. *ret_req (may be NULL) names it for
 * runclient_forget(). Returns 0, -ENOMEM or -EPIPE; then no callback.
 */
int runclient_query(struct runclient *rc, const struct query *q, unsigned seconds,
		    void (*done)(void *ctx, int status, const char *text, size_t len), void *ctx, uint64_t *ret_req);
/* Nobody wants that answer any more: its callback does not come. */
void runclient_forget(struct runclient *rc, uint64_t req);

/* From now on the auditor is given the beginning of what runs are made of and write, and not only its hash: it is to store it.
 */
void runclient_keep_content(struct runclient *rc, bool keep);

#endif
