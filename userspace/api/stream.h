/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run as server-sent events: what it writes, while it writes it, as events `stdout` and `stderr` with data
 * {"text": "…"}, and one last event. The texts of a stream, put together, are what the answer has as that stream's text: cut
 * only between characters, invalid UTF-8 replaced as over the whole.
 *
 * A reader that is slow costs nothing: output stays where the run keeps it, and here is only how far it has been shown. Pure.
 */
#ifndef WEIR_API_STREAM_H
#define WEIR_API_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "api/answer.h"
#include "api/runclient.h"

#define STREAM_TURNS 64

/* All zero: nothing has come and nothing has been shown. */
struct stream {
	const struct run_result *live;		       /* the run's own, while it goes on; borrowed */
	struct answer_body *body;		       /* afterwards: has the output, and the last event's data; borrowed */
	size_t noted[RUN_STREAMS], shown[RUN_STREAMS]; /* bytes */
	/*
	 * Which stream wrote how much, in turn. When that is more turns than there is room for, the newest grow: both streams
	 * stay whole and in order, only between each other the order is then a coarse one.
	 */
	struct {
		unsigned which;
		size_t len;
	} turns[STREAM_TURNS];
	size_t first, count;
	size_t held[RUN_STREAMS]; /* bytes of past turns that are the beginning of a character */
	char *piece;		  /* of one event, being read */
	const char *at;
	size_t left;
	bool keep_alive, broken;
	enum { STREAM_OPEN, STREAM_ENDING, STREAM_LAST_DATA, STREAM_LAST_LINE, STREAM_OVER } state;
	const char *last_event;
};

/* There is more in so_far->out, which is looked into until stream_finish(). */
void stream_note(struct stream *st, const struct run_result *so_far);

/*
 * The run is over: what is left of its output, then the event `event` ("result" or "error", borrowed) with what `body` reads as
 * its data. The run's buffers become the body's (answer_own()). An empty body (no memory) breaks the stream off.
 */
void stream_finish(struct stream *st, struct run_result *result, const char *event, struct answer_body *body);

/* A comment, when there is nothing else to say: for proxies, and to find out whether somebody is still there. */
void stream_keep_alive(struct stream *st);

enum { STREAM_READ_END = -1, STREAM_READ_BROKEN = -2 };
/* Fills `buf`, of at least ANSWER_READ_MIN bytes. Returns how much, 0 when there is nothing to say yet, or one of the above. */
ssize_t stream_read(struct stream *st, char *buf, size_t max);

void stream_clear(struct stream *st);

/* Whether the value of an `Accept` header lists text/event-stream, and not with q=0. */
bool stream_accepted(const char *accept);

#endif
