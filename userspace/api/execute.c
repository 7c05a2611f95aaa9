/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/execute: from a checked request, past the project's quota, to a run and its answer. */
#include <errno.h>
#include <stddef.h>

#include "api/answer.h"
#include "api/server.h"
#include "core/limits.h"

/*
 * A stream begins with the first output, or with the end, or after this time: what the sandbox refuses before it starts is
 * known much sooner, and then still has a status of its own.
 */
#define STREAM_BEGIN_S 1

static void on_granted(void *ctx)
{
	struct exchange *x = ctx;

	quota_granted(&x->slot);
	if (!*x->execute.session_id && !x->tool) /* of the pool */
		waits_add(&x->server->waits, (clock_now_ns() - x->arrived_ns) / 1000);
}

static void on_progress(void *ctx, const struct run_result *so_far)
{
	struct exchange *x = ctx;

	exchange_hold_request(x, 0); /* the sandbox has it now */
	if (!x->mhd || !x->wants_events)
		return;
	if (!x->started_ns)
		x->started_ns = clock_now_ns();
	stream_note(&x->stream, so_far);
	if (so_far->out_len[RUN_STDOUT] + so_far->out_len[RUN_STDERR] > 0)
		exchange_stream_begin(x);
	exchange_stream_more(x);
}

/* The session ended before the cell could begin. Its client knows it by an id that names nothing any more. */
static bool lost_its_session(const struct exchange *x, const struct run_result *result)
{
	return result->outcome == RUN_GONE && result->session && result->end.over && !x->gone;
}

/* Why there is no answer. */
static void explain(const struct exchange *x, const struct run_result *result, struct api_error *ret_error)
{
	if (lost_its_session(x, result)) {
		error_set(ret_error, ERROR_NOT_FOUND, NULL);
	} else if (result->outcome == RUN_GONE && x->server->stopping && !x->gone) {
		error_set(ret_error, ERROR_STOPPING, NULL);
	} else if (result->outcome == RUN_DONE && x->gone) { /* under TLS it may still be reading */
		error_set(ret_error, ERROR_CANCELLED, "the client hung up");
		ret_error->ran = true;
	} else {
		answer_error(result, ret_error);
	}
}

/* Returns whether x->answer is the answer; else *ret_error says why there is none. */
static bool make_answer(struct exchange *x, struct run_result *result, struct api_error *ret_error)
{
	int r = -ENODATA;

	if (result->outcome == RUN_DONE && !x->gone) {
		if (x->tool)
			return call_make_answer(x, result, ret_error);
		r = x->mcp ? mcp_answer_make(&x->answer, x->mcp, result) : answer_make(&x->answer, result);
	}
	if (r < 0)
		explain(x, result, ret_error);
	return r == 0;
}

static void count_stages(struct server *s, const struct run_result *r)
{
	struct histogram *stages = s->counts.stages;

	if (r->outcome != RUN_DONE)
		return;
	if (!r->session) /* a cell's sandbox is its session's, and is there */
		histogram_add(&stages[STAGE_QUEUE], r->queue_us);
	histogram_add(&stages[STAGE_SEND], r->send_us);
	histogram_add(&stages[STAGE_RUN], r->end.duration_us);
	histogram_add(&stages[STAGE_COLLECT], r->collect_us);
}

static void on_done(void *ctx, struct run_result *result)
{
	struct exchange *x = ctx;
	struct api_error e;
	bool answered;

	x->run = 0;
	exchange_hold_request(x, 0);
	count_stages(x->server, result);
	if (!x->mhd) {
		exchange_free(x);
		return;
	}
	answered = make_answer(x, result, &e);
	if (x->state == EXCHANGE_STREAM || (answered && x->wants_events))
		exchange_stream_end(x, result, answered ? NULL : &e);
	else if (answered)
		exchange_reply_answer(x, result);
	else
		exchange_reply_error(x, &e);
}

void execute_start(struct server *s, struct exchange *x, struct session *session)
{
	char caller[IPC_CALLER_MAX];
	struct run_request request = {.project = x->who.project,
				      .caller = caller,
				      .payload = &x->execute.payload,
				      .agent = x->tool ? x->who.agent : NULL,
				      .session = session,
				      .timeout_s = x->execute.timeout_s,
				      .output_bytes = x->tool ? LIMIT_CALL_OUTPUT_BYTES : 0,
				      .arrived_ns = x->arrived_ns,
				      .granted = on_granted,
				      .progress = on_progress,
				      .done = on_done,
				      .ctx = x};
	int r;

	exchange_caller(x, caller);
	r = runclient_start(s->runs, &request, &x->run);
	if (r == -EPIPE)
		exchange_reply_case(x, ERROR_SANDBOX, "sandbox failed at layer supervisor: it is gone");
	else if (r < 0)
		exchange_reply_case(x, ERROR_INTERNAL, NULL);
}

void execute_next(struct server *s)
{
	struct quota_slot *slot;

	while (!s->stopping && (slot = quota_next(&s->quota))) {
		struct exchange *x = (struct exchange *)((char *)slot - offsetof(struct exchange, slot));

		if (x->line)
			cells_start(s, x);
		else
			execute_start(s, x, NULL);
	}
}

void execute_answer_waiting(struct server *s, struct exchange *x, enum error_case kase, const char *message)
{
	/* Out of the lines first: an answered exchange still in one would be given a run, and be freed under that. */
	struct session *session = x->line ? session_of(x, x->execute.session_id) : NULL;

	cells_leave(x);
	quota_leave(&s->quota, &x->slot);
	exchange_reply_case(x, kase, message);
	if (session)
		cells_next(s, session);
}

/* A request that its project's own other runs keep from even asking waits no longer than one that asked. */
static void expire(struct server *s, struct exchange *x, uint64_t now)
{
	if (s->stopping)
		execute_answer_waiting(s, x, ERROR_STOPPING, NULL);
	else if (now < x->arrived_ns + LIMIT_POOL_WAIT_S * SECOND_NS)
		return;
	else if (x->slot.state == QUOTA_PARKED)
		execute_answer_waiting(s, x, ERROR_SESSION_BUSY, NULL);
	else
		execute_answer_waiting(s, x, ERROR_NO_SANDBOX, NULL);
}

void execute_sweep(struct server *s, struct exchange *x, uint64_t now)
{
	if (x->follow)
		follow_sweep(s, x, now);
	else if (x->state == EXCHANGE_WAIT && (x->slot.state == QUOTA_QUEUED || x->slot.state == QUOTA_PARKED))
		expire(s, x, now);
	else if (x->state == EXCHANGE_WAIT && x->opening && s->stopping)
		runclient_cancel(s->runs, x->run);
	else if (x->state == EXCHANGE_WAIT && x->started_ns && now >= x->started_ns + STREAM_BEGIN_S * SECOND_NS)
		exchange_stream_begin(x);
	else if (x->state == EXCHANGE_STREAM && now >= x->last_event_ns + LIMIT_KEEP_ALIVE_S * SECOND_NS)
		exchange_stream_probe(x);
}

void execute_release(struct server *s, struct exchange *x)
{
	/*
	 * Here, when the answer has been sent, and not when the run ended: answers are the largest thing a project can make
	 * this process hold, and a client that reads them slowly holds up nobody but its own project.
	 */
	quota_leave(&s->quota, &x->slot);
	payload_clear(&x->execute.payload);
}

bool execute_has_room(struct server *s, struct exchange *x)
{
	size_t held = runclient_open_runs(s->runs) + s->opening;

	for (struct session *i = runclient_session_next(s->runs, NULL); i; i = runclient_session_next(s->runs, i))
		held++;
	if (held < s->sandboxes_max)
		return true;
	exchange_reply_case(x, ERROR_OVERLOADED, "too many sandboxes at once for the service's limit on open files");
	return false;
}

static void over_quota(struct exchange *x, int r)
{
	char text[128];

	if (r != -EDQUOT) {
		exchange_reply_case(x, ERROR_INTERNAL, NULL);
		return;
	}
	snprintf(text, sizeof text, "project %s is over its quota of %d waiting runs", x->who.project, LIMIT_PROJECT_WAITING);
	exchange_reply_case(x, ERROR_QUOTA, text);
}

static void enter_session(struct server *s, struct exchange *x)
{
	struct session *session = session_of(x, x->execute.session_id);
	int r;

	if (!session) {
		exchange_reply_case(x, ERROR_NOT_FOUND, NULL);
		return;
	}
	r = quota_park(&s->quota, &x->slot, x->who.project);
	if (r == 0)
		r = cells_enter(s, x, session);
	if (r < 0)
		over_quota(x, r);
	else
		cells_next(s, session);
}

void execute_enter(struct server *s, struct exchange *x)
{
	int r;

	exchange_drop_body(x);
	exchange_hold_request(x, x->execute.payload.len + x->execute.payload.digest_count * sizeof(struct file_digest));
	if (*x->execute.session_id) {
		enter_session(s, x);
		return;
	}
	if (!execute_has_room(s, x))
		return;
	r = quota_enter(&s->quota, &x->slot, x->who.project);
	if (r < 0)
		over_quota(x, r);
	else if (r == 1)
		execute_start(s, x, NULL);
}

void handle_execute(struct server *s, struct exchange *x)
{
	struct api_error e;

	if (request_parse_execute(x->body, x->body_len, &x->execute, &e) < 0)
		exchange_reply_error(x, &e);
	else
		execute_enter(s, x);
}
