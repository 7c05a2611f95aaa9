/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libmicrohttpd's side of the api process. The daemon is run by our loop, never by a thread of its own. What it refuses by
 * itself (a broken request line, headers far over their limit, a broken chunk) it answers in its own words, before any of
 * our code runs; everything else has our one shape.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "api/server.h"
#include "core/limits.h"
#include "core/log.h"

#define BODY_FIRST 4096
/* What the daemon keeps per connection: headers twice, as they came and as a list, so that ours is the limit that counts. */
#define CONNECTION_MEMORY (4 * LIMIT_HEADER_BYTES)

/* ---- replies ---- */

void exchange_refuse(struct exchange *x, enum error_case kase, const char *fmt, ...)
{
	char text[sizeof x->error.message];
	va_list ap;

	if (x->refused)
		return; /* the first reason is the one to tell */
	x->refused = true;
	if (!fmt) {
		error_set(&x->error, kase, NULL);
		return;
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	error_set(&x->error, kase, "%s", text);
}

static void drop_body(struct server *s, struct exchange *x)
{
	s->bodies_bytes -= x->body_room;
	free(x->body);
	x->body = NULL;
	x->body_len = x->body_room = 0;
}

void exchange_reply_text(struct server *s, struct exchange *x, int status, char *text, size_t len)
{
	/* A request that waits may have run code; one that does not has not. */
	static const char *const last_resort[] = {
	    "{\"error\": {\"code\": \"internal\", \"message\": \"out of memory\", \"hint\": \"try again\", \"ran\": false}}\n",
	    "{\"error\": {\"code\": \"internal\", \"message\": \"out of memory\", \"hint\": \"try again\", \"ran\": true}}\n"};
	const char *fallback = last_resort[x->state == EXCHANGE_WAIT];

	drop_body(s, x);
	x->status = text ? status : 500;
	x->text = text ? text : strdup(fallback);
	x->text_len = text ? len : strlen(fallback);
	if (x->state == EXCHANGE_WAIT) {
		if (x->conn)
			conn_unwatch(x->conn);
		/*
		 * libmicrohttpd 0.9.75 takes a resumed connection for readable, reads, and closes it at an end of stream
		 * without asking for the answer: a half-closed client would lose it. Connections with a time-out of their own
		 * are asked first, so for this one reply it gets one.
		 */
		MHD_set_connection_option(x->mhd, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)LIMIT_CONNECTION_IDLE_S + 1);
		MHD_resume_connection(x->mhd);
		s->resumed = true;
	}
	x->state = EXCHANGE_REPLY;
}

void exchange_reply_json(struct server *s, struct exchange *x, int status, json_t *value)
{
	size_t len = 0;
	char *text = answer_text(value, &len);

	json_decref(value);
	exchange_reply_text(s, x, status, text, len);
}

void exchange_reply_error(struct server *s, struct exchange *x, const struct api_error *e)
{
	const struct error_row *row = error_row(e->kase);

	x->retry_after_s = row->retry_after_s;
	exchange_reply_json(s, x, row->status, error_json(e));
}

static enum MHD_Result queue_reply(struct exchange *x)
{
	struct MHD_Response *response;
	enum MHD_Result ok = MHD_YES;
	char number[16];

	if (!x->text)
		return MHD_NO; /* not even memory for the last resort */
	response = MHD_create_response_from_buffer(x->text_len, x->text, MHD_RESPMEM_MUST_FREE);
	if (!response)
		return MHD_NO;
	x->text = NULL;
	ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
	ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	if (x->retry_after_s) {
		snprintf(number, sizeof number, "%u", x->retry_after_s);
		ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, number);
	}
	if (*x->allow)
		ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, x->allow);
	if (x->status == 401)
		ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
	if (x->close || x->conn->server->stopping)
		ok &= MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	if (ok)
		ok = MHD_queue_response(x->mhd, (unsigned)x->status, response);
	MHD_destroy_response(response);
	x->conn->receiving = false;
	x->conn->deadline_ns = clock_now_ns() + TRANSFER_S * SECOND_NS;
	return ok;
}

/* ---- requests ---- */

struct headers {
	unsigned lengths, encodings; /* how often Content-Length and Transfer-Encoding stand there */
	bool chunked;
};

static enum MHD_Result count_header(void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct headers *h = ctx;

	(void)kind;
	if (!strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH))
		h->lengths++;
	if (!strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
		h->encodings++;
		h->chunked = value && !strcasecmp(value, "chunked");
	}
	return MHD_YES;
}

static bool is_json(const char *type)
{
	static const char json[] = "application/json";
	size_t n = sizeof json - 1;

	if (strncasecmp(type, json, n) != 0)
		return false;
	return type[n] == 0 || type[n] == ';' || type[n] == ' ' || type[n] == '\t';
}

/* What can be said about the body from the headers alone. Returns the announced length, 0 when there is none. */
static uint64_t check_headers(struct exchange *x)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	struct headers h = {0};
	const char *value;
	uint64_t length = 0;

	if (info && info->header_size > LIMIT_HEADER_BYTES) {
		exchange_refuse(x, ERROR_HEADERS, "request line and headers are %zu bytes, over the limit of %d bytes",
				info->header_size, LIMIT_HEADER_BYTES);
		x->close = true;
		return 0;
	}
	MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, count_header, &h);
	if (h.lengths > 1 || h.encodings > 1 || (h.lengths && h.encodings) || (h.encodings && !h.chunked)) {
		/* Two readers could disagree on where this request ends: nothing after it can be trusted. */
		exchange_refuse(x, ERROR_FRAMING, "ambiguous Content-Length and Transfer-Encoding");
		x->close = true;
		return 0;
	}
	value = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
	if (value)
		length = strtoull(value, NULL, 10); /* the daemon has refused what is no number, or too big a one */
	if (x->refused || !x->route->max_body)
		return length;
	if (length > x->route->max_body)
		exchange_refuse(x, ERROR_TOO_LARGE, "request body is %llu bytes, over the limit of %zu bytes",
				(unsigned long long)length, x->route->max_body);
	value = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_TYPE);
	if (value && !is_json(value))
		exchange_refuse(x, ERROR_MEDIA_TYPE, "request body must be application/json");
	value = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_ENCODING);
	if (value && strcasecmp(value, "identity") != 0)
		exchange_refuse(x, ERROR_MEDIA_TYPE, "request body must not be compressed");
	return length;
}

static enum MHD_Result reply_refusal(struct server *s, struct exchange *x)
{
	exchange_reply_error(s, x, &x->error);
	return queue_reply(x);
}

static enum MHD_Result begin(struct server *s, struct exchange *x, const char *method, const char *url, const char *version)
{
	const char *expect = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_EXPECT);
	uint64_t length, patience = DISCARD_BYTES;

	x->http10 = !strcmp(version, MHD_HTTP_VERSION_1_0);
	x->conn->receiving = true;
	x->conn->deadline_ns = x->arrived_ns + TRANSFER_S * SECOND_NS;
	route_exchange(s, x, method, url);
	if (s->stopping)
		exchange_refuse(x, ERROR_STOPPING, NULL);
	length = check_headers(x);
	/* Who has no token gets no more of our time than it takes to say so. */
	if (x->refused && x->error.kase == ERROR_UNAUTHORIZED) {
		patience = STRANGER_BYTES;
		x->conn->deadline_ns = x->arrived_ns + STRANGER_S * SECOND_NS;
	}
	/*
	 * A refusal waits for the body to be read and thrown away, since many clients read no answer before they have sent
	 * everything. Not where the client waits for leave to send it, and not for more than there is patience for.
	 */
	if (x->refused && (x->close || length > patience || (length > 0 && expect && !strcasecmp(expect, "100-continue"))))
		return reply_refusal(s, x);
	return MHD_YES;
}

static int keep(struct server *s, struct exchange *x, const char *data, size_t size)
{
	if (x->body_room - x->body_len < size) {
		size_t room = x->body_room ? x->body_room : BODY_FIRST;
		char *grown;

		while (room - x->body_len < size)
			room *= 2;
		if (room > x->route->max_body)
			room = x->route->max_body;
		if (s->bodies_bytes + room - x->body_room > BODIES_BYTES) {
			exchange_refuse(x, ERROR_OVERLOADED, "too many request bodies at once");
			return -1;
		}
		grown = realloc(x->body, room);
		if (!grown) {
			exchange_refuse(x, ERROR_INTERNAL, NULL);
			return -1;
		}
		s->bodies_bytes += room - x->body_room;
		x->body = grown;
		x->body_room = room;
	}
	memcpy(x->body + x->body_len, data, size);
	x->body_len += size;
	return 0;
}

static enum MHD_Result take_body(struct server *s, struct exchange *x, const char *data, size_t size)
{
	if (!x->refused && size > x->route->max_body - x->body_len)
		exchange_refuse(x, ERROR_TOO_LARGE, "request body is over the limit of %zu bytes", x->route->max_body);
	if (!x->refused && keep(s, x, data, size) == 0)
		return MHD_YES;
	drop_body(s, x);
	x->discarded += size;
	if (x->discarded <= DISCARD_BYTES)
		return MHD_YES;
	conn_abort(x->conn, &x->error);
	return MHD_NO;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
				  const char *version, const char *data, size_t *size, void **ctx)
{
	struct server *s = cls;
	struct exchange *x = *ctx;
	enum MHD_Result r;

	if (!x) {
		const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

		if (!info || !info->socket_context)
			return MHD_NO; /* there was no memory for it */
		x = calloc(1, sizeof *x);
		if (!x)
			return MHD_NO;
		x->mhd = mhd;
		x->conn = info->socket_context;
		x->conn->exchange = x;
		x->arrived_ns = clock_now_ns();
		s->exchanges++;
		*ctx = x;
		return begin(s, x, method, url, version);
	}
	if (*size > 0) {
		r = take_body(s, x, data, *size);
		*size = 0;
		return r;
	}
	x->conn->receiving = false;
	if (x->state == EXCHANGE_BODY) {
		if (s->stopping) /* since its headers came */
			exchange_refuse(x, ERROR_STOPPING, NULL);
		if (x->refused)
			return reply_refusal(s, x);
		x->arrived_ns = clock_now_ns();
		x->route->handle(s, x);
		if (x->state == EXCHANGE_BODY) {
			x->state = EXCHANGE_WAIT;
			x->conn->deadline_ns = 0;
			MHD_suspend_connection(mhd);
			if (x->route->max_body)
				conn_watch(x->conn);
			return MHD_YES;
		}
	}
	if (x->state == EXCHANGE_REPLY)
		return queue_reply(x);
	return MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **ctx, enum MHD_RequestTerminationCode why)
{
	struct server *s = cls;
	struct exchange *x = *ctx;

	(void)why;
	if (!x)
		return;
	MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)LIMIT_CONNECTION_IDLE_S);
	*ctx = NULL;
	execute_release(s, x);
	drop_body(s, x);
	free(x->text);
	if (x->conn) {
		x->conn->exchange = NULL;
		x->conn->receiving = false;
		x->conn->deadline_ns = clock_now_ns() + LIMIT_CONNECTION_IDLE_S * SECOND_NS;
	}
	free(x);
	s->exchanges--;
	execute_next(s);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **ctx, enum MHD_ConnectionNotificationCode code)
{
	struct server *s = cls;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
		struct conn *c = info ? conn_new(s, info->connect_fd) : NULL;

		if (c)
			c->deadline_ns = clock_now_ns() + LIMIT_CONNECTION_IDLE_S * SECOND_NS;
		*ctx = c;
	} else if (*ctx) {
		conn_free(*ctx);
		*ctx = NULL;
	}
}

static void on_log(void *cls, const char *fmt, va_list ap)
{
	char text[512];
	size_t n;

	(void)cls;
	/* The format is the library's own literal. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	vsnprintf(text, sizeof text, fmt, ap);
#pragma GCC diagnostic pop
	n = strlen(text);
	while (n > 0 && text[n - 1] == '\n')
		text[--n] = 0;
	log_debug("libmicrohttpd: %s", text);
}

/* Paths are compared as sent: no route has a character that needs an escape, so %2F can't stand for a slash. */
static size_t no_unescape(void *cls, struct MHD_Connection *mhd, char *text)
{
	(void)cls, (void)mhd;
	return strlen(text);
}

int http_start(struct server *s, int listen_fd, unsigned connections, struct err *e)
{
	const union MHD_DaemonInfo *info;

	s->http = MHD_start_daemon(
	    MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, s,
	    MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_NOTIFY_COMPLETED,
	    on_completed, s, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_UNESCAPE_CALLBACK, no_unescape, NULL,
	    MHD_OPTION_CONNECTION_LIMIT, connections, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)LIMIT_CONNECTION_IDLE_S,
	    MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
	if (!s->http)
		return err_set(e, EINVAL, "api", "the HTTP server could not be started on the listening socket");
	info = MHD_get_daemon_info(s->http, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info)
		return err_set(e, EINVAL, "api", "the HTTP server has no epoll set");
	s->http_fd = info->epoll_fd;
	return 0;
}
