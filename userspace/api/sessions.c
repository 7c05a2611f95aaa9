/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: sandboxes that are kept for many runs. A session lives in rc->sessions from the asking until the supervisor has
 * said that it is over and its last cell is finished. Its fds rest between cells: what it writes meanwhile waits in its pipes,
 * which hold it up when they are full, and a cell's beginning puts them into the epoll set under the cell's name.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/runclient_priv.h"
#include "core/limits.h"
#include "core/log.h"

static int64_t unix_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts); /* can't fail with this clock */
	return ts.tv_sec;
}

static void notify(struct runclient *rc, struct session *s)
{
	if (rc->on_session)
		rc->on_session(rc->on_session_ctx, s);
}

struct session *session_by_req(struct runclient *rc, uint64_t req)
{
	for (struct session *s = rc->sessions; s; s = s->next)
		if (s->req == req)
			return s;
	return NULL;
}

static void session_free(struct runclient *rc, struct session *s)
{
	bool was_open = *s->id;

	*(s->prev ? &s->prev->next : &rc->sessions) = s->next;
	if (s->next)
		s->next->prev = s->prev;
	for (int i = 0; i < GRANT_FDS; i++)
		if (s->fds[i] >= 0)
			close(s->fds[i]);
	if (s->manifest >= 0)
		close(s->manifest);
	free(s);
	if (was_open)
		notify(rc, NULL);
}

static void ask_close(struct runclient *rc, const struct session *s)
{
	struct ask ask = {.type = ASK_CLOSE, .req = s->req};

	(void)peer_send(rc, &rc->supervisor, &ask, -1); /* its idle limit is the second line */
}

/* It was never open, and is nobody's from here on. */
static void tell_unopened(const struct session *s, struct run_result *failure)
{
	uint64_t now = clock_now_ns();

	failure->queue_us = now > s->arrived_ns ? (now - s->arrived_ns) / 1000 : 0;
	s->opened(s->ctx, NULL, failure);
}

static void open_failed(struct runclient *rc, struct session *s, const struct tell_fail *fail)
{
	struct run_result failure = {.outcome = RUN_FAILED, .fail = *fail};

	tell_unopened(s, &failure);
	session_free(rc, s);
}

int runclient_session_open(struct runclient *rc, const struct session_request *request, uint64_t *ret_req)
{
	struct ask ask = {.type = ASK_SANDBOX, .session = 1};
	unsigned all = 0;
	struct session *s;
	int r;

	if (!caller_fits(request->caller))
		return -EINVAL;
	if (strlen(request->project) >= sizeof ask.project || (request->agent && strlen(request->agent) >= sizeof s->agent))
		return -EINVAL;
	if (runclient_session_count(rc, request->project) >= LIMIT_SESSIONS)
		return -EDQUOT;
	for (s = rc->sessions; s; s = s->next)
		all++;
	if (all >= LIMIT_SESSIONS_ALL)
		return -EAGAIN;
	s = calloc(1, sizeof *s);
	if (!s)
		return -ENOMEM;
	memcpy(s->project, request->project, strlen(request->project) + 1);
	if (request->agent)
		memcpy(s->agent, request->agent, strlen(request->agent) + 1);
	memcpy(ask.project, s->project, sizeof ask.project);
	memcpy(ask.caller, request->caller, strlen(request->caller) + 1);
	s->req = ask.req = rc->next_req++;
	s->state = SESSION_OPENING;
	for (int i = 0; i < GRANT_FDS; i++)
		s->fds[i] = -1;
	s->manifest = -1;
	s->arrived_ns = request->arrived_ns ? request->arrived_ns : clock_now_ns();
	s->deadline_ns = s->arrived_ns + LIMIT_POOL_WAIT_S * SECOND_NS;
	s->opened = request->opened;
	s->ctx = request->ctx;
	r = peer_send(rc, &rc->supervisor, &ask, -1);
	if (r < 0) {
		free(s);
		return r;
	}
	s->next = rc->sessions;
	if (s->next)
		s->next->prev = s;
	rc->sessions = s;
	*ret_req = s->req;
	runclient_arm(rc);
	return 0;
}

void session_grant(struct runclient *rc, struct session *s, const struct tell_grant *grant, int fds[GRANT_FDS])
{
	struct run_result gone = {.outcome = RUN_GONE};

	memcpy(s->fds, fds, sizeof s->fds);
	if (strlen(grant->sandbox_id) > SESSION_ID_LEN) {
		supervisor_lost(rc, "a session's id that leaves no room for numbers");
		return;
	}
	/* Cancelled after the supervisor had granted it, before we heard. */
	if (s->cancelled) {
		ask_close(rc, s);
		tell_unopened(s, &gone);
		session_free(rc, s);
		return;
	}
	memcpy(s->id, grant->sandbox_id, sizeof s->id);
	memcpy(s->python, grant->python, sizeof s->python);
	s->created_s = s->used_s = unix_time();
	s->deadline_ns = NEVER_NS;
	s->state = SESSION_IDLE;
	s->opened(s->ctx, s, NULL);
}

void session_grant_lost(struct runclient *rc, struct session *s)
{
	const struct tell_fail fail = {.code = EMFILE, .layer = "api", .text = NO_ROOM};

	ask_close(rc, s);
	open_failed(rc, s, &fail);
}

void session_fail(struct runclient *rc, struct session *s, const struct tell_fail *fail)
{
	if (s->state == SESSION_OPENING)
		open_failed(rc, s, fail);
	else
		supervisor_lost(rc, "a refusal out of turn");
}

void session_end(struct runclient *rc, struct session *s, const struct tell_end *end)
{
	struct run *run = s->run;
	bool of_cell = run && run->state == RUN_RUNNING && end->cell == s->cells;

	/* It may end at any time. Only the cell that was started ends with its number, and no cell survives its session. */
	if (s->state == SESSION_OPENING || s->over || !(of_cell || (end->over && !end->cell))) {
		supervisor_lost(rc, "the end of a session or its cell out of turn");
		return;
	}
	if (end->over) {
		s->over = true;
		s->state = SESSION_CLOSING;
		s->deadline_ns = NEVER_NS;
	}
	if (!run)
		session_free(rc, s);
	else if (run->state > RUN_RUNNING)
		run->result.end.over = 1; /* it was told of as one that its session survived, which was true for a moment */
	else
		run_end(rc, run, end);
}

void runclient_session_close(struct runclient *rc, struct session *s)
{
	struct run *run = s->run;
	uint64_t limit = clock_now_ns() + END_SLACK_S * SECOND_NS;

	if (s->state == SESSION_CLOSING || s->state == SESSION_OPENING)
		return;
	s->state = SESSION_CLOSING;
	s->deadline_ns = limit;
	ask_close(rc, s);
	if (run && run->state < RUN_ENDED && run->deadline_ns > limit)
		run->deadline_ns = limit;
	/* What it has not been given yet it need not have. */
	if (run && run->fds[WATCH_REQUEST] >= 0) {
		unwatch_fd(rc, run->fds[WATCH_REQUEST]);
		run->fds[WATCH_REQUEST] = -1;
	}
	runclient_arm(rc);
}

void session_expired(struct runclient *rc, struct session *s)
{
	struct run_result failure = {.outcome = s->cancelled ? RUN_GONE : RUN_BUSY};

	if (s->state == SESSION_OPENING) {
		ask_close(rc, s);
		tell_unopened(s, &failure);
		session_free(rc, s);
		return;
	}
	log_error("session %s: the supervisor did not report its end within %d s", s->id, END_SLACK_S);
	s->over = true;
	s->deadline_ns = NEVER_NS;
	if (!s->run)
		session_free(rc, s);
}

void session_cancel(struct session *s)
{
	if (s->state != SESSION_OPENING)
		return;
	s->cancelled = true;
	s->deadline_ns = 1; /* withdrawn by the next step, where callbacks are allowed */
}

void session_release(struct runclient *rc, struct run *run)
{
	struct session *s = run->session;

	/* A cell whose end has been told and whose files nobody will read. */
	run_ask_collected(rc, run);
	s->run = NULL;
	s->used_s = unix_time();
	if (s->state == SESSION_BUSY)
		s->state = SESSION_IDLE;
}

void session_released(struct runclient *rc, struct session *s)
{
	if (s->over && !s->run)
		session_free(rc, s);
	else if (s->state == SESSION_IDLE)
		notify(rc, s);
	else if (s->state == SESSION_CLOSING)
		notify(rc, NULL);
}

void sessions_doom(struct runclient *rc)
{
	for (struct session *s = rc->sessions; s; s = s->next)
		if (s->state != SESSION_OPENING) {
			s->state = SESSION_CLOSING;
			s->over = true;
			s->deadline_ns = NEVER_NS;
		}
}

void sessions_free(struct runclient *rc, const char *layer, const char *why)
{
	struct tell_fail fail = {.code = EIO};

	snprintf(fail.layer, sizeof fail.layer, "%s", layer);
	snprintf(fail.text, sizeof fail.text, "%s", why);
	while (rc->sessions)
		if (rc->sessions->state == SESSION_OPENING)
			open_failed(rc, rc->sessions, &fail);
		else
			session_free(rc, rc->sessions);
}

struct session *runclient_session_next(const struct runclient *rc, const struct session *s)
{
	struct session *next = s ? s->next : rc->sessions;

	while (next && next->state != SESSION_IDLE && next->state != SESSION_BUSY)
		next = next->next;
	return next;
}

struct session *runclient_session_find(struct runclient *rc, const char *id, const char *project)
{
	struct session *s = NULL;

	while ((s = runclient_session_next(rc, s)))
		if (!strcmp(s->id, id) && !strcmp(s->project, project))
			return s;
	return NULL;
}

void runclient_on_session(struct runclient *rc, void (*fn)(void *ctx, struct session *s), void *ctx)
{
	rc->on_session = fn;
	rc->on_session_ctx = ctx;
}

unsigned runclient_session_count(const struct runclient *rc, const char *project)
{
	unsigned n = 0;

	for (const struct session *s = rc->sessions; s; s = s->next)
		n += s->state != SESSION_CLOSING && !strcmp(s->project, project);
	return n;
}
