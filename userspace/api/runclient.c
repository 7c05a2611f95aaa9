/* SPDX-License-Identifier: Apache-2.0 */
#include "api/runclient.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "api/runclient_priv.h"
#include "core/cleanup.h"
#include "core/limits.h"
#include "core/log.h"

/* What it is asked is at hand there. */
#define SUPERVISOR_ANSWER_S 2
#define EVENTS 64
/* Rounds of one step: the owner has other things to do, and what is left makes the fd readable again. */
#define ROUNDS 4
#define STEP_NS 5000000ull

struct run *run_find(struct runclient *rc, uint64_t req)
{
	for (struct run *run = rc->runs; run; run = run->next)
		if (run->req == req)
			return run;
	return NULL;
}

void run_link(struct runclient *rc, struct run *run)
{
	run->prev = rc->last_run;
	*(rc->last_run ? &rc->last_run->next : &rc->runs) = run;
	rc->last_run = run;
	rc->open_runs++;
}

void run_unlink(struct runclient *rc, struct run *run)
{
	*(run->prev ? &run->prev->next : &rc->runs) = run->next;
	*(run->next ? &run->next->prev : &rc->last_run) = run->prev;
	rc->open_runs--;
}

int watch_fd(struct runclient *rc, int fd, uint64_t req, enum watch watch, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.u64 = req << WATCH_BITS | watch};

	return epoll_ctl(rc->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

void unwatch_fd(struct runclient *rc, int fd)
{
	(void)epoll_ctl(rc->epoll_fd, EPOLL_CTL_DEL, fd, NULL); /* the fd is open and in the set: it can't fail */
}

/* Takes the questions of one kind off the list and answers them with "nothing". */
static void drop_questions(struct runclient *rc, bool of_auditor, int status, uint64_t older_than)
{
	struct question *q, *dropped = NULL, **at = &rc->questions;

	while ((q = *at)) {
		if ((q->audit != NULL) == of_auditor && q->deadline_ns <= older_than) {
			*at = q->next;
			q->next = dropped;
			dropped = q;
		} else {
			at = &q->next;
		}
	}
	while ((q = dropped)) {
		dropped = q->next;
		if (q->audit)
			q->audit(q->ctx, status, "", 0);
		else if (q->metrics)
			q->metrics(q->ctx, NULL);
		else if (q->usage)
			q->usage(q->ctx, NULL);
		else
			q->pool(q->ctx, NULL);
		free(q);
	}
}

void supervisor_lost(struct runclient *rc, const char *why)
{
	if (rc->supervisor.fd < 0)
		return;
	log_error("supervisor lost: %s", why);
	peer_close(&rc->supervisor);
	rc->pool.ready = 0;
	snprintf(rc->pool.not_ready, sizeof rc->pool.not_ready, "the supervisor is gone");
	rc->pool_known = true;
	sessions_doom(rc);
	while (rc->runs)
		run_fail(rc, rc->runs, "supervisor", "it ended while the request was open");
	sessions_free(rc, "supervisor", "it ended while the session was being opened");
	drop_questions(rc, false, EPIPE, UINT64_MAX);
}

void auditor_lost(struct runclient *rc, const char *why)
{
	if (rc->auditor.fd < 0)
		return;
	log_error("auditor lost: %s; answers have counters only", why);
	peer_close(&rc->auditor);
	/* Restarted after each: the callback may start or cancel others. */
	for (struct run *run = rc->runs; run;) {
		if (run->state == RUN_SUMMARY && !run->summarised) {
			run_summary(rc, run, EPIPE, "", 0);
			run = rc->runs;
		} else {
			run = run->next;
		}
	}
	drop_questions(rc, true, EPIPE, UINT64_MAX);
}

void runclient_arm(struct runclient *rc)
{
	struct itimerspec its = {0};
	uint64_t nearest = UINT64_MAX;

	for (const struct run *run = rc->runs; run; run = run->next)
		if (run->deadline_ns < nearest)
			nearest = run->deadline_ns;
	for (const struct session *s = rc->sessions; s; s = s->next)
		if (s->deadline_ns < nearest)
			nearest = s->deadline_ns;
	for (const struct question *q = rc->questions; q; q = q->next)
		if (q->deadline_ns < nearest)
			nearest = q->deadline_ns;
	if (nearest == UINT64_MAX)
		nearest = 0;
	if (nearest == rc->timer_ns)
		return;
	rc->timer_ns = nearest;
	its.it_value.tv_sec = (time_t)(nearest / SECOND_NS);
	its.it_value.tv_nsec = (long)(nearest % SECOND_NS);
	(void)timerfd_settime(rc->timer_fd, TFD_TIMER_ABSTIME, &its, NULL); /* can't fail with a valid time */
}

static void expire(struct runclient *rc)
{
	uint64_t now = clock_now_ns();

	/* Each expiry moves the run to a later deadline or ends it, so this comes to an end. */
	for (struct run *run = rc->runs; run;) {
		if (run->deadline_ns <= now) {
			run_expired(rc, run);
			run = rc->runs;
		} else {
			run = run->next;
		}
	}
	for (struct session *s = rc->sessions; s;) {
		if (s->deadline_ns <= now) {
			session_expired(rc, s);
			s = rc->sessions;
		} else {
			s = s->next;
		}
	}
	drop_questions(rc, false, ETIMEDOUT, now);
	drop_questions(rc, true, ETIMEDOUT, now);
}

static void dispatch(struct runclient *rc, const struct epoll_event *ev)
{
	enum watch watch = (enum watch)(ev->data.u64 & ((1u << WATCH_BITS) - 1));
	struct run *run;
	uint64_t ticks;

	switch (watch) {
	case WATCH_SUPERVISOR:
		if (ev->events & EPOLLOUT)
			(void)peer_flush(rc, &rc->supervisor);
		if (ev->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
			supervisor_read(rc);
		return;
	case WATCH_AUDITOR:
		if (ev->events & EPOLLOUT)
			(void)peer_flush(rc, &rc->auditor);
		if (ev->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
			auditor_read(rc);
		return;
	case WATCH_COLLECTOR:
		if (ev->events & EPOLLOUT)
			collect_next(rc);
		if (ev->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
			collector_read(rc);
		return;
	case WATCH_TIMER:
		(void)!read(rc->timer_fd, &ticks, sizeof ticks);
		rc->timer_ns = 0;
		return;
	default:
		run = run_find(rc, ev->data.u64 >> WATCH_BITS);
		if (run)
			run_event(rc, run, watch);
		return;
	}
}

int runclient_step(struct runclient *rc)
{
	/* A big answer takes its owner a tenth of a second to write out: then the others first. What is left is still there. */
	uint64_t until = clock_now_ns() + STEP_NS;

	for (int round = 0; round < ROUNDS && clock_now_ns() < until; round++) {
		struct epoll_event events[EVENTS];
		int n = epoll_wait(rc->epoll_fd, events, EVENTS, 0);

		for (int i = 0; i < n && (i == 0 || clock_now_ns() < until); i++)
			dispatch(rc, &events[i]);
		if (n < EVENTS)
			break;
	}
	expire(rc);
	runclient_arm(rc);
	return rc->supervisor.fd < 0 ? -EPIPE : 0;
}

int runclient_new(int supervisor_fd, int auditor_fd, int collector_fd, struct runclient **ret, struct err *e)
{
	struct runclient *rc = calloc(1, sizeof *rc);
	int r = 0;

	if (!rc) {
		const int fds[] = {supervisor_fd, auditor_fd, collector_fd};

		for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
			if (fds[i] >= 0)
				close(fds[i]);
		return err_errno(e, ENOMEM, "api", "run protocol");
	}
	rc->supervisor = (struct peer){.fd = supervisor_fd, .watch = WATCH_SUPERVISOR, .size = sizeof(struct ask)};
	rc->auditor = (struct peer){.fd = auditor_fd, .watch = WATCH_AUDITOR, .size = sizeof(struct query)};
	rc->collector = (struct peer){.fd = collector_fd, .watch = WATCH_COLLECTOR};
	rc->next_req = 1;
	rc->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	rc->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	rc->answer = malloc(sizeof(struct answer) + ANSWER_INLINE_MAX);
	if (rc->epoll_fd < 0 || rc->timer_fd < 0 || !rc->answer)
		r = -(errno ? errno : ENOMEM);
	if (r == 0)
		r = watch_fd(rc, rc->timer_fd, 0, WATCH_TIMER, EPOLLIN);
	if (r == 0)
		r = watch_fd(rc, supervisor_fd, 0, WATCH_SUPERVISOR, EPOLLIN);
	if (r == 0 && auditor_fd >= 0)
		r = watch_fd(rc, auditor_fd, 0, WATCH_AUDITOR, EPOLLIN);
	if (r == 0 && collector_fd >= 0)
		r = watch_fd(rc, collector_fd, 0, WATCH_COLLECTOR, EPOLLIN);
	if (r < 0) {
		runclient_free(rc);
		return err_errno(e, -r, "api", "run protocol");
	}
	*ret = rc;
	return 0;
}

struct runclient *runclient_free(struct runclient *rc)
{
	if (!rc)
		return NULL;
	rc->on_session = NULL;
	sessions_doom(rc);
	while (rc->runs)
		run_fail(rc, rc->runs, "api", "it is stopping");
	sessions_free(rc, "api", "it is stopping");
	drop_questions(rc, false, EPIPE, UINT64_MAX);
	drop_questions(rc, true, EPIPE, UINT64_MAX);
	peer_close(&rc->supervisor);
	peer_close(&rc->auditor);
	peer_close(&rc->collector);
	if (rc->epoll_fd >= 0)
		close(rc->epoll_fd);
	if (rc->timer_fd >= 0)
		close(rc->timer_fd);
	free(rc->answer);
	free(rc);
	return NULL;
}

int runclient_fd(const struct runclient *rc)
{
	return rc->epoll_fd;
}

/* Whether it is a payload of the kind that is wanted, and one that the collector can be told of. */
static bool payload_ok(const struct payload *p, bool cell, bool call)
{
	struct request_header h;

	if (!p->data || p->len < sizeof h || p->digest_count > COLLECT_DIGESTS_MAX)
		return false;
	memcpy(&h, p->data, sizeof h);
	return h.magic == REQUEST_MAGIC && ((h.flags & REQUEST_SESSION) != 0) == cell &&
	       ((h.flags & REQUEST_CALL) != 0) == call;
}

static bool request_ok(const struct run_request *r, const struct payload *p)
{
	if (strlen(r->project) >= IPC_PROJECT_MAX || (r->agent && r->session))
		return false;
	if (!caller_fits(r->caller))
		return false;
	if (r->agent && (!*r->agent || strlen(r->agent) >= IPC_PROJECT_MAX))
		return false;
	return payload_ok(p, r->session != NULL, r->agent != NULL);
}

static int begin_cell(struct runclient *rc, struct run *run)
{
	struct session *s = run->session;
	int r;

	if (rc->supervisor.fd < 0)
		return -EPIPE;
	if (s->state != SESSION_IDLE)
		return -EBUSY;
	r = run_begin_cell(rc, run);
	if (r < 0)
		return r;
	s->state = SESSION_BUSY;
	s->run = run;
	return 0;
}

int runclient_start(struct runclient *rc, const struct run_request *request, uint64_t *ret_req)
{
	struct payload payload = *request->payload;
	struct run *run = NULL;
	int r = -EINVAL;

	*request->payload = (struct payload){0};
	if (request_ok(request, &payload)) {
		run = calloc(1, sizeof *run);
		r = run ? 0 : -ENOMEM;
	}
	if (run) {
		run->req = rc->next_req++;
		run->request = *request;
		run->request.payload = NULL;
		run->session = request->session;
		run->result.session = run->session != NULL;
		memcpy(run->project, request->project, strlen(request->project) + 1);
		run->request.project = run->project;
		memcpy(run->caller, request->caller, strlen(request->caller) + 1);
		run->request.caller = run->caller;
		if (request->agent)
			memcpy(run->agent, request->agent, strlen(request->agent) + 1);
		run->request.agent = NULL;
		run->result.call = *run->agent != 0;
		if (!run->request.output_bytes)
			run->request.output_bytes = LIMIT_OUTPUT_BYTES;
		if (!run->request.arrived_ns)
			run->request.arrived_ns = clock_now_ns();
		run->asked_ns = clock_now_ns();
		run->deadline_ns = run_ask_deadline(run);
		run->first_over = -1;
		run->dir = -1;
		run->content.keep = rc->keep_content;
		for (size_t i = 0; i < sizeof run->fds / sizeof *run->fds; i++)
			run->fds[i] = -1;
		r = run->session ? begin_cell(rc, run) : run_ask_sandbox(rc, run);
	}
	if (r < 0) {
		free(run);
		payload_clear(&payload);
		return r;
	}
	run->payload = payload;
	run_link(rc, run);
	*ret_req = run->req;
	runclient_arm(rc);
	return 0;
}

void runclient_cancel(struct runclient *rc, uint64_t req)
{
	struct run *run = run_find(rc, req);
	struct session *s = run ? NULL : session_by_req(rc, req);

	if (run)
		run_cancel(rc, run);
	else if (s)
		session_cancel(s);
	runclient_arm(rc);
}

void runclient_cancel_all(struct runclient *rc)
{
	for (struct run *run = rc->runs; run; run = run->next)
		run_cancel(rc, run);
	for (struct session *s = rc->sessions; s; s = s->next)
		session_cancel(s);
	runclient_arm(rc);
}

size_t runclient_open_runs(const struct runclient *rc)
{
	return rc->open_runs;
}

const struct tell_pool *runclient_pool(const struct runclient *rc)
{
	return rc->pool_known ? &rc->pool : NULL;
}

bool runclient_auditor_up(const struct runclient *rc)
{
	return rc->auditor.fd >= 0;
}

bool runclient_collector_up(const struct runclient *rc)
{
	return rc->collector.fd >= 0;
}

static struct question *question_new(struct runclient *rc, unsigned seconds, void *ctx)
{
	struct question *q = calloc(1, sizeof *q);

	if (!q)
		return NULL;
	q->req = rc->next_req++;
	q->deadline_ns = clock_now_ns() + seconds * SECOND_NS;
	q->ctx = ctx;
	return q;
}

static int question_ask(struct runclient *rc, struct question *q, struct peer *peer, const void *msg)
{
	int r = peer_send(rc, peer, msg, -1);

	if (r < 0) {
		free(q);
		return r;
	}
	q->next = rc->questions;
	rc->questions = q;
	runclient_arm(rc);
	return 0;
}

int runclient_ask_pool(struct runclient *rc, void (*done)(void *ctx, const struct tell_pool *pool), void *ctx)
{
	struct question *q = question_new(rc, SUPERVISOR_ANSWER_S, ctx);
	struct ask ask = {.type = ASK_POOL};

	if (!q)
		return -ENOMEM;
	q->pool = done;
	ask.req = q->req;
	return question_ask(rc, q, &rc->supervisor, &ask);
}

int runclient_ask_metrics(struct runclient *rc, void (*done)(void *ctx, const struct metrics *m), void *ctx)
{
	struct question *q = question_new(rc, SUPERVISOR_ANSWER_S, ctx);
	struct ask ask = {.type = ASK_METRICS};

	if (!q)
		return -ENOMEM;
	q->metrics = done;
	ask.req = q->req;
	return question_ask(rc, q, &rc->supervisor, &ask);
}

int runclient_ask_usage(struct runclient *rc, const char *run_id, void (*done)(void *ctx, const struct tell_usage *u),
			void *ctx)
{
	struct question *q = question_new(rc, SUPERVISOR_ANSWER_S, ctx);
	struct ask ask = {.type = ASK_USAGE};

	if (!q)
		return -ENOMEM;
	q->usage = done;
	ask.req = q->req;
	snprintf(ask.run_id, sizeof ask.run_id, "%s", run_id);
	return question_ask(rc, q, &rc->supervisor, &ask);
}

bool runclient_output(const struct runclient *rc, const char *run_id, uint64_t *ret_bytes)
{
	for (const struct run *run = rc->runs; run; run = run->next) {
		if (run->state < RUN_RUNNING || strcmp(run->result.grant.run_id, run_id) != 0)
			continue;
		*ret_bytes = run->result.out_bytes[RUN_STDOUT] + run->result.out_bytes[RUN_STDERR];
		return true;
	}
	return false;
}

int runclient_query(struct runclient *rc, const struct query *asked, unsigned seconds,
		    void (*done)(void *ctx, int status, const char *text, size_t len), void *ctx, uint64_t *ret_req)
{
	struct question *q = question_new(rc, seconds, ctx);
	struct query query = *asked;
	int r;

	if (!q)
		return -ENOMEM;
	q->audit = done;
	query.req = q->req;
	r = question_ask(rc, q, &rc->auditor, &query);
	if (r == 0 && ret_req)
		*ret_req = query.req;
	return r;
}

static void nobody(void *ctx, int status, const char *text, size_t len)
{
	(void)ctx, (void)status, (void)text, (void)len;
}

void runclient_forget(struct runclient *rc, uint64_t req)
{
	for (struct question *q = rc->questions; q; q = q->next)
		if (q->req == req && q->audit)
			q->audit = nobody;
}

void runclient_keep_content(struct runclient *rc, bool keep)
{
	rc->keep_content = keep;
}
