/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client half of the run protocol, without HTTP: what the api process and `weir run` share.
 *
 * A runclient owns the two SEQPACKET connections (supervisor, auditor) and a table of open runs. It never blocks, starts
 * no thread and calls back only from runclient_step(): the owner waits until runclient_fd() is readable (it is an epoll
 * fd that covers the connections, every pipe and a timer, so no separate time-out is needed) and then calls
 * runclient_step(). One run goes
 *
 *   ASKED     ASK_SANDBOX is out; at most until its wait limit, then it is withdrawn
 *   SENDING   TELL_GRANT came: the request is being written to the sandbox's socket
 *   RUNNING   ASK_START is out; both pipes are read, each kept up to LIMIT_OUTPUT_BYTES and counted beyond
 *   ENDED     TELL_END came: the rest of both pipes is read to its end of stream
 *   SUMMARY   QUERY_SUMMARY is out, for at most RUNCLIENT_SUMMARY_MS
 *
 * and every state has a deadline, so that no peer can hold a run open for ever.
 */
#ifndef WEIR_API_RUNCLIENT_H
#define WEIR_API_RUNCLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "ipc/ipc.h"

/* The auditor's time to tell what a run tried on the network; then the answer falls back on the supervisor's counters. */
#define RUNCLIENT_SUMMARY_MS 2000

struct runclient;

/* The two output streams, as indices. */
enum run_stream { RUN_STDOUT, RUN_STDERR, RUN_STREAMS };

enum run_outcome {
	RUN_DONE,   /* user code ran and ended, however it ended: a 200 */
	RUN_BUSY,   /* no sandbox within the wait limit: a 503, nothing ran */
	RUN_FAILED, /* Weir failed: a 500 that names `fail.layer`; see `ran` */
	RUN_GONE,   /* withdrawn by runclient_cancel() before there was a sandbox; nothing ran */
};

/* Everything there is to know about an ended run. Borrowed by the done callback, freed after it returns. */
struct run_result {
	enum run_outcome outcome;
	bool ran;		 /* whether any user code may have run, so whether a retry could run it twice */
	uint32_t timeout_s;	 /* as asked */
	struct tell_grant grant; /* ids and Python version; all "" when there was no sandbox */
	struct tell_fail fail;	 /* RUN_FAILED: layer and a sentence */
	struct tell_end end; /* RUN_DONE: exit code, usage, counters; `detail` filled in where the supervisor left it empty */
	char *out[RUN_STREAMS]; /* raw bytes; may hold NUL, not terminated; NULL when empty. At a deadline kill stderr has */
	size_t out_len[RUN_STREAMS]; /* "timed out after <N>s" added as its own last line (it counts here, not in out_bytes) */
	uint64_t out_bytes[RUN_STREAMS]; /* what the program wrote, cut or not */
	bool truncated;			 /* whether out_bytes is more than was kept */
	char *egress;			 /* JSON text of the `egress` object from the auditor; NULL when it did not answer */
	size_t egress_len;		 /* bytes */
	uint64_t queue_us;		 /* from arrival to the grant */
	uint64_t send_us;		 /* from the grant to the order to start */
	uint64_t collect_us;		 /* from the run's end being known to the answer being complete */
};

struct run_request {
	const char *project;	    /* NUL-terminated, < IPC_PROJECT_MAX bytes; copied */
	char *code;		    /* malloc'd; taken, also on failure. May be NULL when code_len is 0 */
	size_t code_len;	    /* at most LIMIT_CODE_BYTES */
	uint32_t timeout_s;	    /* within the limits table; the supervisor checks it again */
	uint64_t arrived_ns;	    /* CLOCK_MONOTONIC when the request came; 0: now. Wait limit and queue_us count from here */
	void (*granted)(void *ctx); /* a sandbox was granted; may be NULL */
	void (*done)(void *ctx, const struct run_result *result); /* exactly once per started run */
	void *ctx;
};

/*
 * Takes both fds (connected SEQPACKET, non-blocking), also on failure. `auditor_fd` may be -1: then every answer's
 * egress falls back on the counters. `*ret` is touched only on success.
 */
int runclient_new(int supervisor_fd, int auditor_fd, struct runclient **ret, struct err *e);

/* NULL is fine. Open runs get their done callback (RUN_FAILED, or RUN_GONE) before this returns. Returns NULL. */
struct runclient *runclient_free(struct runclient *rc);

/* Readable whenever runclient_step() has something to do. Stays the runclient's. */
int runclient_fd(const struct runclient *rc);

/*
 * Does what can be done now. Returns 0, or -EPIPE once the supervisor's connection is lost: every open run has then had
 * its done callback, and the runclient can only be freed. Callbacks may call runclient_start() and runclient_cancel().
 */
int runclient_step(struct runclient *rc);

/* Starts a run. *ret_req names it until its done callback. Returns 0, -ENOMEM, -EINVAL or -EPIPE; on failure no callback. */
int runclient_start(struct runclient *rc, const struct run_request *request, uint64_t *ret_req);

/*
 * Ends a run because nobody wants its answer any more. The done callback still comes, when the run has really ended
 * (RUN_DONE with RUN_END_CANCELLED, or RUN_GONE). Unknown names are ignored.
 */
void runclient_cancel(struct runclient *rc, uint64_t req);
void runclient_cancel_all(struct runclient *rc);

/* Runs that have not had their done callback. */
size_t runclient_open_runs(const struct runclient *rc);

/* The newest pool state the supervisor told, or NULL before the first. Borrowed until the next step. */
const struct tell_pool *runclient_pool(const struct runclient *rc);

/* Whether the auditor's connection still stands. */
bool runclient_auditor_up(const struct runclient *rc);

/*
 * Asks the supervisor for fresh pool counts. The callback comes exactly once, from runclient_step() or runclient_free();
 * `pool` is NULL when no answer came in time or the connection is lost.
 */
int runclient_ask_pool(struct runclient *rc, void (*done)(void *ctx, const struct tell_pool *pool), void *ctx);

/*
 * Asks the auditor for the whole record of one run. `project` "" sees every project. The callback comes exactly once:
 * `status` 0 with `len` bytes of JSON text (borrowed), or an errno: ENOENT not found (or another project's), ETIMEDOUT
 * no answer or the end was never recorded, EPIPE auditor gone.
 */
int runclient_audit(struct runclient *rc, const char *run_id, const char *project,
		    void (*done)(void *ctx, int status, const char *text, size_t len), void *ctx);

#endif
