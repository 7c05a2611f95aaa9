/* SPDX-License-Identifier: Apache-2.0 */
/* What goes out: a reply in one piece, or events while a run goes on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "api/server.h"
#include "core/limits.h"

/* Of a stream that goes to a client of HTTP/1.0, which knows no chunks: what the daemon asks for at once. */
#define BLOCK_SIZE 16384
/* An answer whose run has left no more than this is made in one piece, and has a Content-Length. */
#define ANSWER_AT_ONCE 65536

static void resume(struct exchange *x)
{
	if (!x->suspended)
		return;
	x->suspended = false;
	/*
	 * libmicrohttpd 0.9.75 takes a resumed connection for readable, reads, and closes it at an end of stream without asking
	 * for the answer: a half-closed client would lose it. Connections with a time-out of their own are asked first, so for
	 * this one reply it gets one.
	 */
	MHD_set_connection_option(x->mhd, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)LIMIT_CONNECTION_IDLE_S + 1);
	MHD_resume_connection(x->mhd);
	x->server->resumed = true;
}

/* ---- in one piece ---- */

void exchange_reply_text(struct exchange *x, int status, char *text, size_t len)
{
	/* A request that waits may have run code; one that does not has not. */
	static const char *const last_resort[] = {
	    "{\"error\": {\"code\": \"internal\", \"message\": \"out of memory\", \"hint\": \"try again\", \"ran\": false}}\n",
	    "{\"error\": {\"code\": \"internal\", \"message\": \"out of memory\", \"hint\": \"try again\", \"ran\": true}}\n"};
	const char *fallback = last_resort[x->state == EXCHANGE_WAIT];

	exchange_drop_body(x);
	x->status = text ? status : 500;
	x->text = text ? text : strdup(fallback);
	x->text_len = text ? len : strlen(fallback);
	if (x->conn)
		conn_unwatch(x->conn);
	x->state = EXCHANGE_REPLY;
	resume(x);
}

void exchange_reply_json(struct exchange *x, int status, json_t *value)
{
	size_t len = 0;
	char *text = answer_text(value, &len);

	json_decref(value);
	exchange_reply_text(x, status, text, len);
}

void exchange_reply_error(struct exchange *x, const struct api_error *e)
{
	const struct error_row *row = error_row(e->kase);

	if (x->mcp) {
		mcp_reply_error(x, e);
		return;
	}
	x->retry_after_s = row->retry_after_s;
	exchange_reply_json(x, row->status, error_json(e));
}

void exchange_reply_case(struct exchange *x, enum error_case kase, const char *message)
{
	struct api_error e;

	if (message)
		error_set(&e, kase, "%s", message);
	else
		error_set(&e, kase, NULL);
	exchange_reply_error(x, &e);
}

/* ---- a run's answer, which may be long ---- */

void exchange_reply_answer(struct exchange *x, struct run_result *result)
{
	size_t len, n, done = 0;
	char *text;
	size_t left = answer_held(&x->answer) + result->files.len;

	for (int i = 0; i < RUN_PIPES; i++)
		left += result->out_len[i];
	if (left > ANSWER_AT_ONCE) {
		answer_own(&x->answer, result);
		exchange_hold_answer(x);
		x->long_answer = true;
		x->status = 200;
		x->state = EXCHANGE_REPLY;
		if (x->conn)
			conn_unwatch(x->conn);
		resume(x);
		return;
	}
	len = answer_len(&x->answer);
	text = malloc(len + ANSWER_READ_MIN);
	while (text && (n = answer_read(&x->answer, text + done, len + ANSWER_READ_MIN - done)) > 0)
		done += n;
	answer_clear(&x->answer);
	exchange_reply_text(x, 200, text, len);
}

static ssize_t read_answer(void *cls, uint64_t at, char *buf, size_t max)
{
	struct exchange *x = cls;
	size_t n;

	(void)at;
	if (x->dropped || max < ANSWER_READ_MIN)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	n = answer_read(&x->answer, buf, max);
	return n > 0 ? (ssize_t)n : MHD_CONTENT_READER_END_OF_STREAM;
}

/* ---- as events ---- */

void exchange_stream_begin(struct exchange *x)
{
	if (x->state != EXCHANGE_WAIT)
		return;
	x->status = 200;
	x->streams = true;
	x->state = EXCHANGE_STREAM;
	x->last_event_ns = clock_now_ns();
	resume(x);
}

void exchange_stream_at_once(struct exchange *x)
{
	x->status = 200;
	x->streams = true;
	x->state = EXCHANGE_STREAM;
	x->last_event_ns = clock_now_ns();
	x->conn->deadline_ns = 0;
	conn_watch(x->conn);
}

void exchange_stream_more(struct exchange *x)
{
	if (x->state == EXCHANGE_STREAM)
		resume(x);
}

void exchange_stream_probe(struct exchange *x)
{
	if (x->state != EXCHANGE_STREAM || !x->suspended)
		return; /* what is being said is as good */
	if (x->follow) {
		follow_probe(x);
		return;
	}
	stream_keep_alive(&x->stream);
	resume(x);
}

void exchange_stream_end(struct exchange *x, struct run_result *result, const struct api_error *e)
{
	if (e)
		(void)answer_make_json(&x->answer, error_json(e));
	stream_finish(&x->stream, result, e ? "error" : "result", &x->answer);
	exchange_hold_answer(x);
	exchange_stream_begin(x); /* it may have ended before anything was said */
	x->state = EXCHANGE_REPLY;
	if (x->conn) {
		conn_unwatch(x->conn);
		x->conn->deadline_ns = clock_now_ns() + LIMIT_TRANSFER_S * SECOND_NS;
	}
	resume(x);
}

static ssize_t read_events(void *cls, uint64_t at, char *buf, size_t max)
{
	struct exchange *x = cls;
	ssize_t n;

	(void)at;
	if (x->dropped)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	n = x->follow ? follow_read(x, buf, max) : stream_read(&x->stream, buf, max);
	if (n > 0) {
		x->last_event_ns = clock_now_ns();
		return n;
	}
	if (n == STREAM_READ_END)
		return MHD_CONTENT_READER_END_OF_STREAM;
	if (n == STREAM_READ_BROKEN)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	MHD_suspend_connection(x->mhd);
	x->suspended = true;
	return 0;
}

/* ---- to the daemon ---- */

static struct MHD_Response *make_response(struct exchange *x)
{
	struct MHD_Response *response;

	if (x->streams)
		return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_SIZE, read_events, x, NULL);
	if (x->long_answer)
		return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_SIZE, read_answer, x, NULL);
	if (!x->text)
		return NULL; /* not even memory for the last resort */
	response = MHD_create_response_from_buffer(x->text_len, x->text, MHD_RESPMEM_MUST_FREE);
	if (response)
		x->text = NULL;
	return response;
}

enum MHD_Result reply_queue(struct exchange *x)
{
	struct MHD_Response *response = make_response(x);
	enum MHD_Result ok = MHD_YES;
	char number[16];

	if (!response)
		return MHD_NO;
	ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
				      x->streams     ? "text/event-stream"
				      : x->text_type ? x->text_type
						     : "application/json");
	ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	if (x->streams) /* for a proxy that would collect them */
		ok &= MHD_add_response_header(response, "X-Accel-Buffering", "no");
	if (x->retry_after_s) {
		snprintf(number, sizeof number, "%u", x->retry_after_s);
		ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, number);
	}
	if (*x->allow)
		ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, x->allow);
	if (*x->location)
		ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_LOCATION, x->location);
	if (x->status == 401)
		ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
	if (x->close || x->server->stopping)
		ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	if (ok)
		ok = MHD_queue_response(x->mhd, (unsigned)x->status, response);
	MHD_destroy_response(response);
	x->conn->receiving = false;
	x->server->counts.replies++;
	if (x->status >= 400 && x->status < 1000)
		x->server->counts.refused[x->status - 400]++;
	if (x->state == EXCHANGE_REPLY)
		x->conn->deadline_ns = clock_now_ns() + LIMIT_TRANSFER_S * SECOND_NS;
	return ok;
}
