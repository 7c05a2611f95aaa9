/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/sessions: one interpreter for one conversation. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/answer.h"
#include "api/server.h"
#include "core/limits.h"

static const char *const state_names[] = {
    [SESSION_OPENING] = "opening", [SESSION_IDLE] = "idle", [SESSION_BUSY] = "busy", [SESSION_CLOSING] = "ended"};

/* As the record writes times, without a fraction. */
static json_t *time_text(int64_t seconds)
{
	time_t t = (time_t)seconds;
	char text[32];
	struct tm tm;

	if (!gmtime_r(&t, &tm) || strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		return json_null();
	return json_string(text);
}

static json_t *session_json(const struct session *session, enum session_state state)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:i}", "session_id", session->id, "sandbox_id", session->id,
			 "state", state_names[state], "python", session->python, "cells", (json_int_t)session->cells, "created",
			 time_text(session->created_s), "last_used", time_text(session->used_s), "expires",
			 time_text(session->created_s + LIMIT_SESSION_LIFE_S), "idle_timeout_s", LIMIT_SESSION_IDLE_S);
}

struct session *session_of(const struct exchange *x, const char *id)
{
	struct session *session = runclient_session_find(x->server->runs, id, x->who.project);

	return session && (!x->who.agent[0] || !strcmp(x->who.agent, session->agent)) ? session : NULL;
}

static void on_opened(void *ctx, struct session *session, const struct run_result *failure)
{
	struct exchange *x = ctx;
	struct server *s = x->server;
	struct api_error e;

	x->run = 0;
	x->opening = false;
	s->opening--;
	if (!session && s->stopping) {
		exchange_reply_case(x, ERROR_STOPPING, NULL);
		return;
	}
	if (!session) {
		answer_error(failure, &e);
		exchange_reply_error(x, &e);
		return;
	}
	waits_add(&s->waits, (clock_now_ns() - x->arrived_ns) / 1000);
	snprintf(x->opened, sizeof x->opened, "%s", session->id);
	snprintf(x->location, sizeof x->location, "/v1/sessions/%s", session->id);
	exchange_reply_json(x, 201, session_json(session, session->state));
}

void handle_session_open(struct server *s, struct exchange *x)
{
	char caller[IPC_CALLER_MAX], text[128];
	struct session_request request = {.project = x->who.project,
					  .caller = caller,
					  .agent = x->who.agent,
					  .arrived_ns = x->arrived_ns,
					  .opened = on_opened,
					  .ctx = x};
	struct api_error e;
	int r;

	if (request_parse_session(x->body, x->body_len, &e) < 0) {
		exchange_reply_error(x, &e);
		return;
	}
	if (runclient_session_count(s->runs, x->who.project) >= LIMIT_SESSIONS) {
		snprintf(text, sizeof text, "project %s is over its quota of %d sessions", x->who.project, LIMIT_SESSIONS);
		exchange_reply_case(x, ERROR_SESSIONS, text);
		return;
	}
	if (!execute_has_room(s, x))
		return;
	exchange_caller(x, caller);
	r = runclient_session_open(s->runs, &request, &x->run);
	if (r == -EPIPE)
		exchange_reply_case(x, ERROR_SANDBOX, "sandbox failed at layer supervisor: it is gone");
	else if (r == -EAGAIN)
		exchange_reply_case(x, ERROR_OVERLOADED, "every place for a session is taken");
	else if (r < 0)
		exchange_reply_case(x, ERROR_INTERNAL, NULL);
	if (r < 0)
		return;
	x->opening = true;
	s->opening++;
	exchange_drop_body(x);
}

void handle_session_list(struct server *s, struct exchange *x)
{
	json_t *list = json_array();

	for (struct session *i = runclient_session_next(s->runs, NULL); i; i = runclient_session_next(s->runs, i))
		if (session_of(x, i->id) == i)
			json_array_append_new(list, session_json(i, i->state));
	exchange_reply_json(x, 200, json_pack("{s:o}", "sessions", list));
}

/* The one that the path names; NULL when it has been answered that there is none. */
static struct session *wanted(struct exchange *x)
{
	struct session *session = session_of(x, x->param);

	if (!session)
		exchange_reply_case(x, ERROR_NOT_FOUND, NULL);
	return session;
}

void handle_session_get(struct server *s, struct exchange *x)
{
	struct session *session = wanted(x);

	(void)s;
	if (session)
		exchange_reply_json(x, 200, session_json(session, session->state));
}

void handle_session_delete(struct server *s, struct exchange *x)
{
	struct session *session = wanted(x);

	if (!session)
		return;
	exchange_reply_json(x, 200, session_json(session, SESSION_CLOSING));
	runclient_session_close(s->runs, session);
}

void session_undelivered(struct server *s, struct exchange *x)
{
	struct session *session = s->runs && *x->opened ? session_of(x, x->opened) : NULL;

	if (session)
		runclient_session_close(s->runs, session);
}

void sessions_close(struct server *s, bool busy_too)
{
	struct session *next;

	for (struct session *i = runclient_session_next(s->runs, NULL); i; i = next) {
		next = runclient_session_next(s->runs, i);
		if (i->state == SESSION_IDLE || (busy_too && i->state == SESSION_BUSY))
			runclient_session_close(s->runs, i);
	}
}
