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
#define CLIENT_CONTENTS_MAX 64 /* of those with content to be stored, which is kept mapped until their run has ended */
#define CLIENT_SLOW_MAX 16     /* records and searches asked for and not answered yet: more are told to come back (EAGAIN) */
#define CLIENT_FOLLOWS_MAX 8   /* who follow the record; likewise */
#define CLIENT_OUT_MAX 32
#define CLIENT_OUT_BYTES (8u << 20)
#define CLIENT_FILES_MAX 16 /* answers by memfd that were sent and not yet received: the kernel keeps those for us */
#define CLIENT_RETRY_MS 10  /* nothing tells a sender that its fds were received, so it has to look again */

/* A QUERY_SUMMARY whose run goes on, or a QUERY_FOLLOW without a record for it. */
struct client_parked {
	struct query query;
	int64_t deadline_ms; /* CLOCK_MONOTONIC */
	const char *content; /* owned mapping of what is to be stored; NULL for none */
	size_t content_len;
	bool completed;	 /* its run's record was completed, or could not be: it is answered now */
	uint64_t looked; /* FOLLOW: the last record when it was looked for */
};

struct client_answer {
	void *msg; /* owned: struct answer and, when inline, the text */
	size_t len;
	int memfd; /* owned; -1 when inline */
	size_t bytes;
};

struct client {
	int fd;		    /* owned; -1 once closed */
	bool store_content; /* what runs were given and gave may be stored; else it is not, whatever a client says */
	uint32_t watched;   /* the epoll events last asked for; the loop's */
	struct client_parked parked[CLIENT_PARKED_MAX];
	size_t nparked, ncontents;
	uint64_t seen_ends;		    /* see client_completes() */
	struct query slow[CLIENT_SLOW_MAX]; /* in the order they came: see client_answer_slow() */
	size_t nslow;
	struct client_parked follows[CLIENT_FOLLOWS_MAX];
	size_t nfollows, next_follow;
	bool follows_turn;
	struct client_answer out[CLIENT_OUT_MAX]; /* a ring */
	size_t out_first, nout, out_bytes;
	unsigned files;	     /* sent since the connection was last seen empty */
	int64_t retry_at_ms; /* when sending is held up by those; 0 when it is not */
};

/* Takes fd. */
void client_init(struct client *c, int fd, bool store_content);

/* Closes the connection and forgets everything. Safe to repeat. */
void client_close(struct client *c);

/* Takes what the client has sent, within the bounds. Returns 0, or a negative errno when it must be closed. */
int client_read(struct client *c, int64_t now_ms);

/* Whether client_complete() would do something; asks the store only when `ends`, the ends there were so far and 1, has grown.
 */
bool client_completes(struct client *c, const struct store *store, uint64_t ends);

/*
 * Of a batch of the store: completes the record of each run that has ended and is asked for, with what its client has told of
 * it. Answered by the client_pump() that follows the commit, which says what became of it. Returns of how many what was told
 * came too late: they had been completed without.
 */
size_t client_complete(struct client *c, struct store *store);

/*
 * Answers parked queries whose run is complete or whose time is up, and sends what the connection takes. Returns 0, or a
 * negative errno when it must be closed.
 */
int client_pump(struct client *c, struct store *store, int64_t now_ms);

/*
 * Answers one query that takes a thousand times longer than a note or a summary: a whole record, a search, or records to one
 * who follows. The loop calls this once a turn, when nothing else is waiting. `last_seq`: the last record there is. Returns 1,
 * 0 when there was none that can be answered, or a negative errno.
 */
int client_answer_slow(struct client *c, struct store *store, uint64_t last_seq, int64_t now_ms);

/* Whether client_answer_slow() would do something. */
bool client_slow_waits(const struct client *c, uint64_t last_seq, int64_t now_ms);

/* What to wait for: EPOLLIN, EPOLLOUT, both or neither. */
uint32_t client_events(const struct client *c);

/* When client_pump or client_answer_slow must be called at the latest; INT64_MAX for no reason to. */
int64_t client_deadline(const struct client *c);

/* NULL when the query is well-formed, else a literal naming the bad field. Accepts any bytes; does not judge the type. */
const char *client_query_problem(const struct query *query);

#endif
