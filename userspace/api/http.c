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

/* ---- requests ---- */

void exchange_refuse(struct exchange *x, enum error_case kase, const char *fmt, ...)
{
	char text[sizeof x->error.message];
	va_list ap;

	if (x->refused)
		return;
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

void exchange_hold_request(struct exchange *x, size_t bytes)
{
	budget_force(&x->server->requests, &x->request_held, x->who.project, bytes);
}

void exchange_drop_body(struct exchange *x)
{
	free(x->body);
	x->body = NULL;
	x->body_len = x->body_room = 0;
	exchange_hold_request(x, 0);
}

/* Who holds most is who does not read, or asks for too much at once: nobody else has to pay for it. */
void exchange_hold_answer(struct exchange *x)
{
	struct server *s = x->server;

	budget_force(&s->answers, &x->answer_held, x->who.project, answer_held(&x->answer));
	while (s->answers.total > LIMIT_ANSWERS_BYTES) {
		const char *most = budget_largest(&s->answers);
		struct exchange *oldest = NULL;

		for (struct conn *c = s->conns; c; c = c->next)
			if (c->exchange && c->exchange->answer_held.bytes && !strcmp(c->exchange->who.project, most) &&
			    (!oldest || c->exchange->arrived_ns < oldest->arrived_ns))
				oldest = c->exchange;
		if (!oldest)
			return;
		log_warn("project %s: an answer of %zu bytes is dropped, since too much of it is not read", most,
			 (size_t)oldest->answer_held.bytes);
		oldest->dropped = true;
		answer_clear(&oldest->answer);
		budget_force(&s->answers, &oldest->answer_held, oldest->who.project, 0);
		(void)shutdown(oldest->conn->fd, SHUT_RDWR);
	}
}

struct headers {
	unsigned lengths, encodings; /* how often Content-Length and Transfer-Encoding stand there */
	unsigned types;		     /* Content-Type */
	bool chunked, broken;
};

static enum MHD_Result count_header(void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct headers *h = ctx;

	(void)kind;
	/* A blank before the colon, or another character that no name has: others may read another name there. */
	if (!*name || name[strspn(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")])
		h->broken = true;
	if (!strcasecmp(name, MHD_HTTP_HEADER_CONTENT_TYPE))
		h->types++;
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
	if (h.broken) {
		exchange_refuse(x, ERROR_FRAMING, "a header has a name that is none");
		x->close = true;
		return 0;
	}
	value = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
	if (value)
		length = strtoull(value, NULL, 10); /* the daemon has refused what is no number, or too big a one */
	if (!x->route->max_body && length > LIMIT_SESSION_BODY_BYTES)
		exchange_refuse(x, ERROR_TOO_LARGE, "this request takes no body");
	if (x->refused || !x->route->max_body)
		return length;
	if (length > x->route->max_body)
		exchange_refuse(x, ERROR_TOO_LARGE, "request body is %llu bytes, over the limit of %zu bytes",
				(unsigned long long)length, x->route->max_body);
	value = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_TYPE);
	if (h.types > 1 || (value && !is_json(value)))
		exchange_refuse(x, ERROR_MEDIA_TYPE, "request body must be application/json");
	value = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_ENCODING);
	if (value && strcasecmp(value, "identity") != 0)
		exchange_refuse(x, ERROR_MEDIA_TYPE, "request body must not be compressed");
	return length;
}

static enum MHD_Result reply_refusal(struct exchange *x)
{
	exchange_reply_error(x, &x->error);
	return reply_queue(x);
}

static enum MHD_Result find_accept(void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
	bool *found = ctx;

	(void)kind;
	if (value && !strcasecmp(name, MHD_HTTP_HEADER_ACCEPT) && stream_accepted(value))
		*found = true;
	return MHD_YES;
}

static enum MHD_Result begin(struct server *s, struct exchange *x, const char *method, const char *url, const char *version)
{
	const char *expect = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_EXPECT);
	uint64_t length, patience = LIMIT_DISCARD_BYTES;

	x->http10 = !strcmp(version, MHD_HTTP_VERSION_1_0);
	MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, find_accept, &x->wants_events);
	x->conn->receiving = true;
	x->conn->deadline_ns = x->arrived_ns + LIMIT_TRANSFER_S * SECOND_NS;
	route_exchange(s, x, method, url);
	if (x->who.scopes)
		x->conn->known = true;
	if (s->stopping)
		exchange_refuse(x, ERROR_STOPPING, NULL);
	length = check_headers(x);
	/* Who has no token gets no more of our time than it takes to say so. */
	if (x->refused && x->error.kase == ERROR_UNAUTHORIZED) {
		patience = LIMIT_STRANGER_BYTES;
		x->conn->deadline_ns = x->arrived_ns + LIMIT_STRANGER_S * SECOND_NS;
	}
	/*
	 * A refusal waits for the body to be read and thrown away, since many clients read no answer before they have sent
	 * everything. Not where the client waits for leave to send it, and not for more than there is patience for.
	 */
	if (x->refused && (x->close || length > patience || (length > 0 && expect && !strcasecmp(expect, "100-continue"))))
		return reply_refusal(x);
	return MHD_YES;
}

/* Room for `room` bytes of body. Small ones always have it: their number is bounded by that of the connections. */
static int make_room(struct server *s, struct exchange *x, size_t room)
{
	int r = 0;
	char *grown;

	if (room > LIMIT_SMALL_BODY_BYTES)
		r = budget_ask(&s->requests, &x->request_held, x->who.project, room);
	else
		budget_force(&s->requests, &x->request_held, x->who.project, room);
	if (r == -EDQUOT)
		exchange_refuse(x, ERROR_QUOTA, "project %s is over its quota of %llu bytes of waiting requests",
				x->who.project, (unsigned long long)s->requests.owner_max);
	else if (r < 0)
		exchange_refuse(x, ERROR_OVERLOADED, "too many request bodies at once");
	if (r < 0)
		return r;
	grown = realloc(x->body, room);
	if (!grown) {
		exchange_refuse(x, ERROR_INTERNAL, NULL);
		return -ENOMEM;
	}
	x->body = grown;
	x->body_room = room;
	return 0;
}

static int keep(struct server *s, struct exchange *x, const char *data, size_t size)
{
	if (x->body_room - x->body_len < size) {
		size_t room = x->body_room ? x->body_room : BODY_FIRST;

		while (room - x->body_len < size)
			room *= 2;
		if (room > x->route->max_body)
			room = x->route->max_body;
		if (make_room(s, x, room) < 0)
			return -1;
	}
	memcpy(x->body + x->body_len, data, size);
	x->body_len += size;
	return 0;
}

static enum MHD_Result take_body(struct server *s, struct exchange *x, const char *data, size_t size)
{
	if (!x->refused && !x->route->max_body) { /* a little of what is not asked for is let pass */
		x->discarded += size;
		if (x->discarded > LIMIT_SESSION_BODY_BYTES)
			exchange_refuse(x, ERROR_TOO_LARGE, "this request takes no body");
		return MHD_YES;
	}
	if (!x->refused && size > x->route->max_body - x->body_len)
		exchange_refuse(x, ERROR_TOO_LARGE, "request body is over the limit of %zu bytes", x->route->max_body);
	if (!x->refused && keep(s, x, data, size) == 0)
		return MHD_YES;
	exchange_drop_body(x);
	x->discarded += size;
	if (x->discarded <= LIMIT_DISCARD_BYTES)
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
		x->server = s;
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
			return reply_refusal(x);
		x->arrived_ns = clock_now_ns();
		x->route->handle(s, x);
		if (x->state == EXCHANGE_BODY) {
			x->state = EXCHANGE_WAIT;
			x->conn->deadline_ns = 0;
			x->suspended = true;
			MHD_suspend_connection(mhd);
			if (x->route->max_body)
				conn_watch(x->conn);
			return MHD_YES;
		}
	}
	/* Waiting still: it has been asked on the way to the end of the connection, or for no reason. */
	return x->state == EXCHANGE_WAIT ? MHD_YES : reply_queue(x);
}

void exchange_free(struct exchange *x)
{
	struct server *s = x->server;

	execute_release(s, x);
	follow_release(x);
	exchange_drop_body(x);
	stream_clear(&x->stream);
	answer_clear(&x->answer);
	budget_force(&s->answers, &x->answer_held, x->who.project, 0);
	free(x->text);
	free(x->tool);
	free(x->mcp);
	free(x);
	s->exchanges--;
	execute_next(s);
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **ctx, enum MHD_RequestTerminationCode why)
{
	struct server *s = cls;
	struct exchange *x = *ctx;

	if (!x)
		return;
	MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)LIMIT_CONNECTION_IDLE_S);
	*ctx = NULL;
	if (x->conn) {
		conn_unwatch(x->conn);
		x->conn->exchange = NULL;
		x->conn->receiving = false;
		x->conn->deadline_ns =
		    clock_now_ns() + (x->conn->known ? LIMIT_CONNECTION_IDLE_S : LIMIT_STRANGER_S) * SECOND_NS;
	}
	x->conn = NULL;
	x->mhd = NULL;
	if (why != MHD_REQUEST_TERMINATED_COMPLETED_OK)
		session_undelivered(s, x);
	if (x->run) { /* in the middle of its events: the run's end frees it */
		x->gone = true;
		runclient_cancel(s->runs, x->run);
		return;
	}
	exchange_free(x);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **ctx, enum MHD_ConnectionNotificationCode code)
{
	struct server *s = cls;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
		struct conn *c = info ? conn_new(s, info->connect_fd) : NULL;

		if (c)
			c->deadline_ns = clock_now_ns() + LIMIT_STRANGER_S * SECOND_NS;
		conns_make_room(s, clock_now_ns());
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
	const struct api_config *config = s->config;
	struct MHD_OptionItem tls[] = {
	    {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)config->tls_key},
	    {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)config->tls_cert},
	    {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
	    {MHD_OPTION_END, 0, NULL},
	};
	const union MHD_DaemonInfo *info;
	unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;

	if (config->tls_cert && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
		return err_set(e, ENOTSUP, "api", "libmicrohttpd here is built without TLS");
	if (config->tls_cert)
		flags |= MHD_USE_TLS;
	else
		tls[0].option = MHD_OPTION_END;
	s->http = MHD_start_daemon(
	    flags, 0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_LISTEN_SOCKET, listen_fd,
	    MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
	    MHD_OPTION_UNESCAPE_CALLBACK, no_unescape, NULL, MHD_OPTION_CONNECTION_LIMIT, connections,
	    MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)LIMIT_CONNECTION_IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
	    (size_t)CONNECTION_MEMORY, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
	if (!s->http)
		return err_set(e, EINVAL, "api", "the HTTP server could not be started on the listening socket%s",
			       config->tls_cert ? " with this certificate and key" : "");
	info = MHD_get_daemon_info(s->http, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info)
		return err_set(e, EINVAL, "api", "the HTTP server has no epoll set");
	s->http_fd = info->epoll_fd;
	return 0;
}
