/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client of the auditor: its connection, the queries it waits for and the answers it has not taken yet.
 *
 * Bounded whatever the client does: when CLIENT_PARKED_MAX queries wait, or answers of CLIENT_OUT_MAX messages or
 * CLIENT_OUT_BYTES lie about, the connection is not read until there is room again. Nothing here blocks.
 */
#ifndef WEIR_AUDITOR_CLIENT_H
#define WEIR_AUDITOR_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "auditor/store.h"
#include "ipc/ipc.h"

#define CLIENT_PARKED_MAX 1024
#define CLIENT_RUNS_MAX 16 /* whole records asked for and not answered yet: more are told to come back (EAGAIN) */
#define CLIENT_OUT_MAX 32
#define CLIENT_OUT_BYTES (8u << 20)
#define CLIENT_FILES_MAX 16 /* answers by memfd that were sent and not yet received: the kernel keeps those for us */
#define CLIENT_RETRY_MS 10  /* nothing tells a sender that its fds were received, so it has to look again */

struct client_parked {
	struct query query;
	int64_t deadline_ms; /* CLOCK_MONOTONIC */
};

struct client_answer {
	void *msg; /* owned: struct answer and, when inline, the text */
	size_t len;
	int memfd; /* owned; -1 when inline */
	size_t bytes;
};

struct client {
	int fd;		  /* owned; -1 once closed */
	uint32_t watched; /* the epoll events last asked for; the loop's */
	struct client_parked parked[CLIENT_PARKED_MAX];
	size_t nparked;
	struct query runs[CLIENT_RUNS_MAX]; /* QUERY_RUNs in the order they came: see client_answer_run() */
	size_t nruns;
	struct client_answer out[CLIENT_OUT_MAX]; /* a ring */
	size_t out_first, nout, out_bytes;
	unsigned files;	     /* sent since the connection was last seen empty */
	int64_t retry_at_ms; /* when sending is held up by those; 0 when it is not */
};

/* Takes fd. */
void client_init(struct client *c, int fd);

/* Closes the connection and forgets everything. Safe to repeat. */
void client_close(struct client *c);

/* Takes what the client has sent, within the bounds. Returns 0, or a negative errno when it must be closed. */
int client_read(struct client *c, struct store *store, int64_t now_ms);

/*
 * Answers parked queries whose run has ended or whose time is up, and sends what the connection takes. Returns 0, or a
 * negative errno when it must be closed.
 */
int client_pump(struct client *c, struct store *store, int64_t now_ms);

/*
 * Answers the oldest QUERY_RUN, if there is one and room for it. A whole record takes a thousand times longer than a note or
 * a summary: the loop calls this once a turn, when nothing else is waiting. Returns 1, 0 when there was none, or a negative
 * errno.
 */
int client_answer_run(struct client *c, struct store *store);

/* Whether client_answer_run() would do something. */
bool client_run_waits(const struct client *c);

/* What to wait for: EPOLLIN, EPOLLOUT, both or neither. */
uint32_t client_events(const struct client *c);

/* When client_pump must be called at the latest; INT64_MAX for no reason to. */
int64_t client_deadline(const struct client *c);

/* NULL when the query is well-formed, else a literal naming the bad field. Accepts any bytes; does not judge the type. */
const char *client_query_problem(const struct query *query);

#endif
