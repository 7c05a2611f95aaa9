/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the api process. One thread, one epoll set:
 *
 *   api.c             start, the loop, the sweep once a second, the orderly end
 *   http.c            libmicrohttpd's callbacks: a request's bytes in, and what lies between them and a route
 *   reply.c           what goes out: an answer in one piece, or server-sent events (stream.c)
 *   conn.c            one TCP connection: its deadline, and noticing that its client hung up while a run is open
 *   routes.c          the route table, and whose token it is
 *   execute.c         POST /v1/execute; cells.c the cells that wait for their session
 *   call.c            POST /v1/call
 *   mcp.c             POST /mcp
 *   session_routes.c  /v1/sessions
 *   status_routes.c   what only reports
 *   audit_routes.c    /v1/audit
 *   follow_routes.c   /v1/audit/stream
 *   metrics_route.c   /metrics
 *
 * An exchange is one request and its reply. Its handler either replies at once or suspends the connection; whatever ends the
 * wait calls exchange_reply_*(), which resumes it. A suspended exchange costs memory and fds, never a thread.
 */
#ifndef WEIR_API_SERVER_H
#define WEIR_API_SERVER_H

#include <microhttpd.h>
#include <sys/epoll.h>

#include "api/answer.h"
#include "api/api.h"
#include "api/budget.h"
#include "api/error.h"
#include "api/find_args.h"
#include "api/follow.h"
#include "api/mcp.h"
#include "api/metrics_text.h"
#include "api/quota.h"
#include "api/reads.h"
#include "api/request.h"
#include "api/runclient.h"
#include "api/stream.h"
#include "api/waits.h"
#include "core/clock.h"
#include "core/tokens.h"

/* Records are on the auditor's disk. */
#define AUDIT_ANSWER_S 10

struct server;
struct exchange;
struct cell_line;
struct scrape;

/* What an epoll event of the loop points to: its first member says what it is. */
enum source { SOURCE_HTTP, SOURCE_RUNS, SOURCE_SIGNAL, SOURCE_CONN };

struct conn {
	enum source source;
	struct server *server;
	struct conn *prev, *next;
	struct exchange *exchange; /* at most one at a time */
	int fd;			   /* libmicrohttpd's */
	uint64_t since_ns;
	uint64_t deadline_ns; /* 0: none, its run has one */
	uint64_t probe_ns;    /* when to ask a half-closed client again whether it is there; 0: not half-closed */
	bool known;	      /* has sent a valid token */
	bool leaving;	      /* shut down, and about to be closed */
	bool watched;
	bool receiving; /* a request's body is under way: a 408 can be said */
};

/* STREAM: the reply has begun and grows as the run goes on. REPLY: nothing more will be added to it. */
enum exchange_state { EXCHANGE_BODY, EXCHANGE_WAIT, EXCHANGE_STREAM, EXCHANGE_REPLY };

struct exchange {
	struct server *server;
	struct conn *conn; /* NULL once the connection is through with it: then only its run keeps it */
	struct MHD_Connection *mhd;
	enum exchange_state state;
	bool suspended; /* the connection is */
	const struct route *route;
	char param[IPC_ID_MAX]; /* the path's variable segment */
	struct identity who;
	bool http10;

	bool refused; /* `error` is the answer, whatever the body says */
	bool close;   /* and the connection ends with it */
	struct api_error error;
	char allow[48]; /* of a 405 */
	char *body;
	size_t body_len, body_room;
	uint64_t discarded;

	struct quota_slot slot;
	struct execute_request execute;
	char *tool;		/* it is a call of this tool; NULL: it is none */
	struct mcp_call *mcp;	/* it is a tool call of the Model Context Protocol, and answered as one */
	struct cell_line *line; /* that of its session, while it stands in it */
	struct exchange *line_prev, *line_next;
	uint64_t arrived_ns;
	uint64_t run;		 /* runclient's name for it; 0: none is open */
	bool gone;		 /* its client hung up */
	int read;		 /* its place in server.reads, while the auditor reads for it */
	struct follow *follow;	 /* it follows the record; NULL: it does not */
	json_t *record;		 /* of a run that goes on, while its figures are asked for */
	struct exchange *scrape; /* the next of those that wait for the same figures */
	bool opening;		 /* it is a session that is being opened, and no run */
	char opened[IPC_ID_MAX]; /* the session that this reply tells of: nobody else knows it yet */

	bool wants_events;    /* Accept: text/event-stream */
	bool streams;	      /* the reply is one of events */
	struct stream stream; /* used when it does */
	struct answer_body answer;
	bool long_answer; /* it is the reply, and made while it is read */
	bool dropped;	  /* it had to make room for others */
	struct budget_share request_held, answer_held;
	uint64_t started_ns;	/* when the order to start was given; 0: not yet */
	uint64_t last_event_ns; /* when something was last said */

	int status; /* of the reply, 0: none yet */
	char *text;
	size_t text_len;
	const char *text_type; /* its media type; NULL: JSON */
	unsigned retry_after_s;
	char location[64]; /* of a 201 */
};

struct server {
	const struct api_config *config;
	int epoll_fd;
	struct MHD_Daemon *http;
	int http_fd; /* the daemon's epoll set */
	struct runclient *runs;
	struct quota quota;
	struct waits waits;
	struct cell_line *lines;
	struct conn *conns; /* the newest first */
	unsigned conn_count, conns_max;
	size_t exchanges;
	unsigned sandboxes_max; /* that there are file descriptors for */
	unsigned opening;	/* sessions that are asked for */
	struct reads reads;	/* whole records asked for and not answered yet */
	unsigned followers;	/* of the record */
	struct api_counts counts;
	struct scrape *scrape;	/* figures that are being gathered; NULL: none are */
	struct budget requests; /* bytes of requests that have not reached their sandboxes */
	struct budget answers;	/* bytes of answers that have not been read */
	bool resumed;		/* the daemon has something to do that no fd tells */
	bool stopping;		/* no new request is served */
};

struct route {
	const char *method;
	const char *pattern;				      /* one segment may be "{…}" */
	unsigned scopes;				      /* any of these; 0: open to all */
	size_t max_body;				      /* bytes */
	void (*handle)(struct server *s, struct exchange *x); /* replies or leaves the exchange waiting */
	const char *summary;
};

/* routes.c */
/* Decides from method, path and headers alone. Fills route, param and who, or refuses. */
void route_exchange(struct server *s, struct exchange *x, const char *method, const char *path);
/* Who asks, as records name him. */
void exchange_caller(const struct exchange *x, char ret[IPC_CALLER_MAX]);
/* The table, without its last row, the one for "anything else". */
const struct route *route_table(size_t *ret_count);

/* execute.c */
void handle_execute(struct server *s, struct exchange *x);
/* x->execute has been read: it is run when its turn comes. */
void execute_enter(struct server *s, struct exchange *x);
/* Starts those whose turn has come. */
void execute_next(struct server *s);
/* Starts one that has its quota's leave. `session` NULL: single use. */
void execute_start(struct server *s, struct exchange *x, struct session *session);
/* Answers a request that waits and has no run: it leaves the lines first. `message` NULL: the case's own. */
void execute_answer_waiting(struct server *s, struct exchange *x, enum error_case kase, const char *message);
void execute_sweep(struct server *s, struct exchange *x, uint64_t now);
/* Whether there are file descriptors for one more sandbox; else x is answered. */
bool execute_has_room(struct server *s, struct exchange *x);
/* Takes back whatever the exchange holds besides memory. */
void execute_release(struct server *s, struct exchange *x);

/* call.c */
void handle_call(struct server *s, struct exchange *x);
/* Of a call that has ended well. Returns whether x->answer is the answer; else *ret_error is. */
bool call_make_answer(struct exchange *x, struct run_result *result, struct api_error *ret_error);

/* mcp.c */
void handle_mcp(struct server *s, struct exchange *x);
/* What went wrong with x->mcp, as its answer. */
void mcp_reply_error(struct exchange *x, const struct api_error *e);

/* cells.c: of each busy session, the cells that wait for it, first in first out */
/* Puts x at the end of the line of `session`. Returns 0 or -ENOMEM. */
int cells_enter(struct server *s, struct exchange *x, struct session *session);
void cells_leave(struct exchange *x);
/* Starts the first of the line, when the session is idle and the project's quota has room. */
void cells_next(struct server *s, struct session *session);
/* x stood first in a line and has got its quota's leave. */
void cells_start(struct server *s, struct exchange *x);
/* runclient_on_session() */
void cells_on_session(void *ctx, struct session *session);

/* session_routes.c */
/* The open session of that id which is x's to use: of its project, and, when its token is an agent's, that agent's own. Or
 * NULL. */
struct session *session_of(const struct exchange *x, const char *id);
void handle_session_open(struct server *s, struct exchange *x);
void handle_session_list(struct server *s, struct exchange *x);
void handle_session_get(struct server *s, struct exchange *x);
void handle_session_delete(struct server *s, struct exchange *x);
/* Closes a session whose opening was answered to nobody. */
void session_undelivered(struct server *s, struct exchange *x);
/* Ends those that do nothing, or all. */
void sessions_close(struct server *s, bool busy_too);

/* status_routes.c */
void handle_healthz(struct server *s, struct exchange *x);
void handle_readyz(struct server *s, struct exchange *x);
void handle_pool(struct server *s, struct exchange *x);
void handle_run(struct server *s, struct exchange *x);
void handle_run_audit(struct server *s, struct exchange *x);
void handle_limits(struct server *s, struct exchange *x);
void handle_openapi(struct server *s, struct exchange *x);

/* audit_routes.c */
/* The query's parameters. 0, or -EINVAL and *e. */
int audit_read_args(struct exchange *x, enum find_route route, struct find_args *ret, struct api_error *e);
/* Asks the auditor, if one more of its project may be read now. `done` is called with x once, and says audit_was_read(x). */
void audit_ask(struct server *s, struct exchange *x, const struct query *q, void (*done)(void *, int, const char *, size_t));
void audit_was_read(struct exchange *x);
/* Such a `done`: what the auditor says is the answer. */
void audit_reply(void *ctx, int status, const char *text, size_t len);
void audit_record_missing(struct exchange *x, int status);
void handle_audit_search(struct server *s, struct exchange *x);

/* follow_routes.c */
void handle_audit_stream(struct server *s, struct exchange *x);
/* As stream_read(). */
ssize_t follow_read(struct exchange *x, char *buf, size_t max);
void follow_sweep(struct server *s, struct exchange *x, uint64_t now);
/* So that a client that is gone is found out; and it is. */
void follow_probe(struct exchange *x);
void follow_hung_up(struct exchange *x);
void follow_release(struct exchange *x);

/* metrics_route.c */
void handle_metrics(struct server *s, struct exchange *x);

/* http.c */
/* The daemon serves `listen_fd` (its own from then on) and is run by the caller. */
int http_start(struct server *s, int listen_fd, unsigned connections, struct err *e);
/* The first reason to refuse is the one that is told. `fmt` NULL: the case's own message. */
void exchange_refuse(struct exchange *x, enum error_case kase, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void exchange_drop_body(struct exchange *x);
/* What the request, once it has been read, takes until its sandbox has it. */
void exchange_hold_request(struct exchange *x, size_t bytes);
/* Counts x->answer. When there is more than LIMIT_ANSWERS_BYTES in all, the project with most of it loses its oldest. */
void exchange_hold_answer(struct exchange *x);
/* Its run has ended and its connection is through with it: frees it. */
void exchange_free(struct exchange *x);

/* reply.c */
/* The reply; `text` is taken, NULL makes it an internal error. Each resumes the connection if it waits. */
void exchange_reply_text(struct exchange *x, int status, char *text, size_t len);
void exchange_reply_json(struct exchange *x, int status, json_t *value); /* takes the reference */
/* Also ends a stream of events, as its last one. */
void exchange_reply_error(struct exchange *x, const struct api_error *e);
/* The case's own message when `message` is NULL. */
void exchange_reply_case(struct exchange *x, enum error_case kase, const char *message);
/* Begins a reply of events. Nothing happens when it has begun. */
void exchange_stream_begin(struct exchange *x);
/* The same from a handler: there is nothing to wait for. */
void exchange_stream_at_once(struct exchange *x);
/* There is more to show. */
void exchange_stream_more(struct exchange *x);
/* The run has ended well, and x->answer is made: the reply is what it reads. The result's buffers become the answer's. */
void exchange_reply_answer(struct exchange *x, struct run_result *result);
/* The run has ended: the rest of its output, then what x->answer reads or, when `e` is given, that. As above. */
void exchange_stream_end(struct exchange *x, struct run_result *result, const struct api_error *e);
/* Says something that means nothing, when nothing else is being said: so that a client that is gone is found out. */
void exchange_stream_probe(struct exchange *x);
/* Hands the reply to the daemon. */
enum MHD_Result reply_queue(struct exchange *x);

/* conn.c */
struct conn *conn_new(struct server *s, int fd);
void conn_free(struct conn *c);
/* When places run out: the oldest that have sent no valid token lose theirs. */
void conns_make_room(struct server *s, uint64_t now);
/* From now on the client's hanging up cancels the exchange's run. */
void conn_watch(struct conn *c);
void conn_unwatch(struct conn *c);
void conn_event(struct conn *c, uint32_t events);
void conn_sweep(struct conn *c, uint64_t now);
/* Sends an error on a connection whose request is not complete, past the daemon, and ends it. Under TLS it only ends it. */
void conn_abort(struct conn *c, const struct api_error *e);

#endif
