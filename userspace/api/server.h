/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the api process. One thread, one epoll set:
 *
 *   api.c     start, the loop, the sweep once a second, the orderly end
 *   http.c    libmicrohttpd's callbacks: a request's bytes in, a reply's bytes out, and what lies between
 *   conn.c    one TCP connection: its deadline, and noticing that its client hung up while a run is open
 *   routes.c  the route table, tokens, and what each route does
 *
 * An exchange is one request and its reply. Its handler either replies at once or suspends the connection; whatever ends the
 * wait calls exchange_reply_*(), which resumes it. A suspended exchange costs memory and fds, never a thread.
 */
#ifndef WEIR_API_SERVER_H
#define WEIR_API_SERVER_H

#include <microhttpd.h>
#include <sys/epoll.h>

#include "api/api.h"
#include "api/error.h"
#include "api/quota.h"
#include "api/request.h"
#include "api/runclient.h"
#include "core/clock.h"

/* A request's headers, and an idle connection's next request: LIMIT_CONNECTION_IDLE_S. Its body, and its reply: this long. */
#define TRANSFER_S 120
/* Of a refused request, so much body is read and thrown away, so that its client gets to read the refusal. */
#define DISCARD_BYTES (64ll << 20)
/* The same for a client without a valid token, and its time to send all of it. */
#define STRANGER_BYTES (64ll << 10)
#define STRANGER_S 5
/* Bodies in memory at once, all connections together. */
#define BODIES_BYTES (256ll << 20)

enum scope { SCOPE_PROJECT = 1, SCOPE_AGENT = 2, SCOPE_OPERATOR = 4, SCOPE_REVIEWER = 8, SCOPE_ALL = 15 };

/* Whose token it was. */
struct identity {
	char project[IPC_PROJECT_MAX];
	unsigned scopes;
};

struct server;
struct exchange;

/* What an epoll event of the loop points to: its first member says what it is. */
enum source { SOURCE_HTTP, SOURCE_RUNS, SOURCE_SIGNAL, SOURCE_CONN };

struct conn {
	enum source source;
	struct server *server;
	struct conn *prev, *next;
	struct exchange *exchange; /* at most one at a time */
	int fd;			   /* libmicrohttpd's */
	uint64_t deadline_ns;	   /* 0: none, its run has one */
	uint64_t probe_ns;	   /* when to ask a half-closed client again whether it is there; 0: not half-closed */
	bool watched;
	bool receiving; /* a request's body is under way: a 408 can be said */
};

enum exchange_state { EXCHANGE_BODY, EXCHANGE_WAIT, EXCHANGE_REPLY };

struct exchange {
	struct conn *conn;
	struct MHD_Connection *mhd;
	enum exchange_state state;
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
	uint64_t arrived_ns;
	uint64_t run; /* runclient's name for it; 0: none is open */
	bool gone;    /* its client hung up */

	int status; /* of the reply, 0: none yet */
	char *text;
	size_t text_len;
	unsigned retry_after_s;
};

struct server {
	const struct api_config *config;
	int epoll_fd;
	struct MHD_Daemon *http;
	int http_fd; /* the daemon's epoll set */
	struct runclient *runs;
	struct quota quota;
	struct conn *conns;
	size_t exchanges;
	unsigned audit_reads; /* whole records asked for and not answered yet */
	uint64_t bodies_bytes;
	bool resumed;  /* the daemon has something to do that no fd tells */
	bool stopping; /* no new request is served */
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
void execute_next(struct server *s);
/* Answers a request that waits and has no run: it leaves the line first. */
void execute_answer_waiting(struct server *s, struct exchange *x, enum error_case kase);
void execute_expire(struct server *s, struct exchange *x, uint64_t now);
/* Takes back whatever the exchange holds besides memory. */
void execute_release(struct server *s, struct exchange *x);

/* http.c */
/* The daemon serves `listen_fd` (its own from then on) and is run by the caller. */
int http_start(struct server *s, int listen_fd, unsigned connections, struct err *e);
void exchange_refuse(struct exchange *x, enum error_case kase, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The reply; `text` is taken, NULL makes it an internal error. Each resumes the connection if it waits. */
void exchange_reply_text(struct server *s, struct exchange *x, int status, char *text, size_t len);
void exchange_reply_json(struct server *s, struct exchange *x, int status, json_t *value); /* takes the reference */
void exchange_reply_error(struct server *s, struct exchange *x, const struct api_error *e);

/* conn.c */
struct conn *conn_new(struct server *s, int fd);
void conn_free(struct conn *c);
/* From now on the client's hanging up cancels the exchange's run. */
void conn_watch(struct conn *c);
void conn_unwatch(struct conn *c);
void conn_event(struct conn *c, uint32_t events);
void conn_sweep(struct conn *c, uint64_t now);
/* Sends an error on a connection whose request is not complete, past the daemon, and ends it. */
void conn_abort(struct conn *c, const struct api_error *e);

#endif
