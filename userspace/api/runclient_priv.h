/* SPDX-License-Identifier: Apache-2.0 */
/* Inside runclient: runclient.c has the table, the step and the deadlines, run.c one run's way, peer.c the two connections. */
#ifndef WEIR_API_RUNCLIENT_PRIV_H
#define WEIR_API_RUNCLIENT_PRIV_H

#include <sys/epoll.h>

#include "api/runclient.h"
#include "core/clock.h"

/* What an fd in the epoll set is: kept with the run's name, so that an event for a run that is gone finds nothing. */
enum watch {
	WATCH_STDOUT = RUN_STDOUT,
	WATCH_STDERR = RUN_STDERR,
	WATCH_REQUEST,
	WATCH_SUPERVISOR,
	WATCH_AUDITOR,
	WATCH_TIMER
};
#define WATCH_BITS 3

/* Messages of one size that the peer could not take yet. Never dropped: every one is somebody's deadline or kill. */
struct peer {
	int fd; /* -1: lost */
	enum watch watch;
	bool armed; /* waiting for room */
	size_t size;
	char *queue;
	size_t count, room; /* messages */
};

enum run_state { RUN_ASKED, RUN_SENDING, RUN_RUNNING, RUN_ENDED, RUN_SUMMARY };

struct run {
	struct run *prev, *next;
	uint64_t req;
	enum run_state state;
	uint64_t deadline_ns; /* of the state */
	struct run_request request;
	char project[IPC_PROJECT_MAX];
	struct run_result result;
	size_t out_room[RUN_STREAMS];
	int first_over;	 /* the stream that first went over its cap, or -1 */
	bool cancelled;	 /* nobody wants the answer */
	bool kill_asked; /* ASK_KILL is out */
	int fds[3];	 /* stdout, stderr, request socket, by enum watch; -1 when closed */
	size_t sent;	 /* bytes of header and code written */
	uint64_t granted_ns, ended_ns;
};

/* A question without a run: pool counts or an audit record. */
struct question {
	struct question *next;
	uint64_t req;
	uint64_t deadline_ns;
	void (*pool)(void *ctx, const struct tell_pool *pool); /* one of the two */
	void (*audit)(void *ctx, int status, const char *text, size_t len);
	void *ctx;
};

struct runclient {
	int epoll_fd, timer_fd;
	struct peer supervisor, auditor;
	struct run *runs, *last_run;
	size_t open_runs;
	struct question *questions;
	uint64_t next_req;
	struct tell_pool pool;
	bool pool_known;
	uint64_t timer_ns;	 /* what the timer is set to, 0 for off */
	char *answer;		 /* room for one message of the auditor */
	char scratch[64 * 1024]; /* where output beyond a cap goes */
};

/* runclient.c */
struct run *run_find(struct runclient *rc, uint64_t req);
void run_unlink(struct runclient *rc, struct run *run);
int watch_fd(struct runclient *rc, int fd, uint64_t req, enum watch watch, uint32_t events);
/* The supervisor said something no supervisor says, or is gone. Ends every run. */
void supervisor_lost(struct runclient *rc, const char *why);
void auditor_lost(struct runclient *rc, const char *why);

/* run.c: what moves one run on. Any of them may end and free it. */
void run_grant(struct runclient *rc, struct run *run, const struct tell_grant *grant, int fds[3]);
void run_fail(struct runclient *rc, struct run *run, const char *layer, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void run_end(struct runclient *rc, struct run *run, const struct tell_end *end);
void run_event(struct runclient *rc, struct run *run, enum watch watch);
void run_summary(struct runclient *rc, struct run *run, int status, const char *text, size_t len);
void run_expired(struct runclient *rc, struct run *run);
void run_cancel(struct runclient *rc, struct run *run);
void run_ask_kill(struct runclient *rc, struct run *run, enum run_end reason);
/* Closes, unlinks, calls back, frees. */
void run_finish(struct runclient *rc, struct run *run, enum run_outcome outcome);

/* peer.c */
/* Sends or queues one message of peer->size bytes. Returns 0, -EPIPE or -ENOMEM. */
int peer_send(struct runclient *rc, struct peer *peer, const void *msg);
/* Sends what is queued. Returns 0 or -EPIPE. */
int peer_flush(struct runclient *rc, struct peer *peer);
void peer_close(struct peer *peer);
/* Reads what has come, up to a bound; dispatches to the functions above. */
void supervisor_read(struct runclient *rc);
void auditor_read(struct runclient *rc);

#endif
