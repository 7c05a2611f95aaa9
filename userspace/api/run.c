/* SPDX-License-Identifier: Apache-2.0 */
/* One run's way through the protocol, from the grant to the answer. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/runclient_priv.h"
#include "core/limits.h"
#include "core/log.h"

/* Every process is dead when TELL_END comes, so both pipes are at their end; a moment is all it can take to read them. */
#define DRAIN_S 5
/* The supervisor gives up on a tool's sandbox at its own limit and says which stage was slow: its words are waited for. */
#define CALL_READY_MORE_S 5
/* After the order to start, a sandbox that was dead already is told at once. Until then its request is kept for another one. */
#define PROOF_NS SECOND_NS
static const char *const stream_names[RUN_STREAMS] = {[RUN_STDOUT] = "stdout", [RUN_STDERR] = "stderr"};

/* A cell's fds are its session's: let go of, not closed. */
static void close_fd(struct runclient *rc, struct run *run, enum watch watch)
{
	int fd = run->fds[watch];

	run->fds[watch] = -1;
	if (fd >= 0 && run->session)
		unwatch_fd(rc, fd);
	else if (fd >= 0)
		close(fd); /* leaves the epoll set with it */
}

static void close_fds(struct runclient *rc, struct run *run)
{
	for (size_t i = 0; i < sizeof run->fds / sizeof *run->fds; i++)
		close_fd(rc, run, (enum watch)i);
	if (run->dir >= 0 && !run->session)
		close(run->dir);
	run->dir = -1;
}

/* The request itself, which is the greater part; the digests are needed to the end. */
static void drop_request(struct run *run)
{
	free(run->payload.data);
	run->payload.data = NULL;
	run->payload.len = 0;
}

void run_finish(struct runclient *rc, struct run *run, enum run_outcome outcome)
{
	struct run_result *r = &run->result;
	struct session *s = run->session;

	close_fds(rc, run);
	collect_forget(rc, run);
	run_unlink(rc, run);
	r->outcome = outcome;
	r->timeout_s = run->request.timeout_s;
	if (s)
		session_release(rc, run);
	run->request.done(run->request.ctx, r);
	for (int i = 0; i < RUN_PIPES; i++)
		free(r->out[i]);
	free(r->summary);
	content_clear(&run->content);
	free(r->files.data);
	payload_clear(&run->payload);
	free(run);
	if (s)
		session_released(rc, s);
}

void run_ask_kill(struct runclient *rc, struct run *run, enum run_end reason)
{
	struct ask ask = {.type = ASK_KILL, .req = run->session ? run->session->req : run->req, .reason = reason};

	if (run->kill_asked)
		return;
	run->kill_asked = true;
	(void)peer_send(rc, &rc->supervisor, &ask, -1); /* the supervisor's own deadline is the second line */
}

void run_fail(struct runclient *rc, struct run *run, const char *layer, const char *fmt, ...)
{
	struct tell_fail *f = &run->result.fail;
	va_list ap;

	if (layer) {
		memset(f, 0, sizeof *f);
		f->code = EIO;
		snprintf(f->layer, sizeof f->layer, "%s", layer);
		va_start(ap, fmt);
		vsnprintf(f->text, sizeof f->text, fmt, ap);
		va_end(ap);
	}
	if (run->state == RUN_RUNNING)
		run->result.ran = true; /* the gate may be open by now; once it is over, the supervisor has said */
	if (run->state < RUN_ENDED && run->session)
		runclient_session_close(rc, run->session); /* nobody knows where it is: no more cells for it */
	else if (run->state < RUN_ENDED)
		run_ask_kill(rc, run, RUN_END_CANCELLED);
	run_finish(rc, run, RUN_FAILED);
}

void run_gone(struct runclient *rc, struct run *run, const char *why)
{
	struct tell_fail *f = &run->result.fail;

	snprintf(f->layer, sizeof f->layer, "session");
	snprintf(f->text, sizeof f->text, "%s", why);
	run_finish(rc, run, RUN_GONE);
}

static uint64_t end_deadline(const struct run *run)
{
	return run->started_ns + (run->request.timeout_s + END_SLACK_S) * SECOND_NS;
}

static void start(struct runclient *rc, struct run *run)
{
	struct ask ask = {.type = ASK_START, .req = run->req, .timeout_s = run->request.timeout_s};
	uint64_t now = clock_now_ns();

	memcpy(ask.caller, run->caller, sizeof ask.caller);
	close_fd(rc, run, WATCH_REQUEST);
	run->result.send_us = (now - run->granted_ns) / 1000;
	run->state = RUN_RUNNING;
	run->started_ns = now;
	run->deadline_ns = now + PROOF_NS;
	if (run->session) {
		ask.req = run->session->req;
		run->session->cells++;
		drop_request(run);
		run->deadline_ns = end_deadline(run);
	}
	if (peer_send(rc, &rc->supervisor, &ask, -1) < 0)
		run_fail(rc, run, "supervisor", "the order to start could not be sent");
	else
		run_tell_progress(run);
}

static void note_sent(struct run *run, size_t n)
{
	struct request_header h;

	memcpy(&h, run->payload.data, sizeof h);
	content_request(&run->content, &h, run->sent, run->payload.data + run->sent, n);
	run->sent += n;
}

static void send_request(struct runclient *rc, struct run *run)
{
	while (run->sent < run->payload.len) {
		ssize_t n = send(run->fds[WATCH_REQUEST], run->payload.data + run->sent, run->payload.len - run->sent,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == ENOBUFS))
			return;
		if (n < 0) {
			/* It died under our hands. The supervisor knows why and is about to say so; its words are better. */
			close_fd(rc, run, WATCH_REQUEST);
			run->deadline_ns = clock_now_ns() + DRAIN_S * SECOND_NS;
			return;
		}
		note_sent(run, (size_t)n);
	}
	start(rc, run);
}

int run_ask_sandbox(struct runclient *rc, const struct run *run)
{
	struct ask ask = {.type = ASK_SANDBOX, .req = run->req};

	memcpy(ask.project, run->project, sizeof ask.project);
	memcpy(ask.agent, run->agent, sizeof ask.agent);
	memcpy(ask.caller, run->caller, sizeof ask.caller);
	return peer_send(rc, &rc->supervisor, &ask, -1);
}

uint64_t run_ask_deadline(const struct run *run)
{
	if (*run->agent)
		return run->asked_ns + (LIMIT_CALL_READY_S + CALL_READY_MORE_S) * SECOND_NS;
	return run->request.arrived_ns + LIMIT_POOL_WAIT_S * SECOND_NS;
}

static void granted(struct run *run)
{
	if (run->request.granted && !run->granted_told)
		run->request.granted(run->request.ctx);
	run->granted_told = true;
}

/* Whatever the peer made of it: nothing here may block on it. */
static int watch_unblocked(struct runclient *rc, struct run *run, enum watch watch)
{
	int flags = fcntl(run->fds[watch], F_GETFL);

	if (flags < 0 || fcntl(run->fds[watch], F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	return watch_fd(rc, run->fds[watch], run->req, watch, watch == WATCH_REQUEST ? EPOLLOUT : EPOLLIN);
}

/* From now on the run has a sandbox, whose request it sends. */
static int begin_sending(struct runclient *rc, struct run *run, const int *fds)
{
	static const struct {
		enum grant_fd from;
		enum watch to;
	} pipes[] = {{GRANT_REQUEST, WATCH_REQUEST},
		     {GRANT_STDOUT, WATCH_STDOUT},
		     {GRANT_STDERR, WATCH_STDERR},
		     {GRANT_RESULT, WATCH_RESULT}};
	size_t count = *run->agent ? 4 : 3;
	int r = 0;

	run->granted_ns = clock_now_ns();
	run->result.queue_us =
	    run->granted_ns > run->request.arrived_ns ? (run->granted_ns - run->request.arrived_ns) / 1000 : 0;
	run->state = RUN_SENDING;
	run->deadline_ns = run->granted_ns + LIMIT_READY_S * SECOND_NS;
	for (size_t i = 0; i < count; i++)
		run->fds[pipes[i].to] = fds[pipes[i].from];
	run->dir = fds[GRANT_DIR];
	for (size_t i = 0; i < count && r == 0; i++)
		r = watch_unblocked(rc, run, pipes[i].to);
	return r;
}

void run_grant(struct runclient *rc, struct run *run, const struct tell_grant *grant, const int *fds)
{
	int r = begin_sending(rc, run, fds);

	run->result.grant = *grant;
	if (r < 0) {
		run_fail(rc, run, "api", "cannot watch the sandbox's pipes: %s", strerror(-r));
		return;
	}
	granted(run);
	/* Cancelled after the supervisor had granted it, before we heard: nobody wants it, so its code is not even sent. */
	if (run->cancelled) {
		close_fd(rc, run, WATCH_REQUEST);
		run_ask_kill(rc, run, RUN_END_CANCELLED);
		return;
	}
	send_request(rc, run);
}

int run_begin_cell(struct runclient *rc, struct run *run)
{
	const struct session *s = run->session;
	struct tell_grant *g = &run->result.grant;
	int r = begin_sending(rc, run, s->fds);

	memcpy(g->sandbox_id, s->id, sizeof g->sandbox_id);
	memcpy(g->python, s->python, sizeof g->python);
	snprintf(g->run_id, sizeof g->run_id, "%.*s.%u", SESSION_ID_LEN, s->id, s->cells + 1);
	if (r < 0)
		close_fds(rc, run);
	return r;
}

/*
 * The sandbox was dead before its gate was opened, and no layer of ours failed: its processes were killed while it waited.
 * Nothing has run, so nobody need know: another one is asked for. Returns whether it is.
 */
static bool retry(struct runclient *rc, struct run *run, const struct tell_end *end)
{
	struct run_result *r = &run->result;

	if (run->session || run->retried || run->cancelled || run->kill_asked || !run->payload.data)
		return false;
	if (end->ran || end->end != RUN_END_BROKEN || *end->layer || end->refused_errno)
		return false;
	if (run_ask_sandbox(rc, run) < 0)
		return false;
	log_warn("sandbox %s was dead before its run could start: another one is asked for", r->grant.sandbox_id);
	content_restart(&run->content);
	close_fds(rc, run);
	for (int i = 0; i < RUN_PIPES; i++) {
		r->out_len[i] = 0;
		r->out_bytes[i] = 0;
	}
	r->result_ended = false;
	memset(&r->grant, 0, sizeof r->grant);
	run->first_over = -1;
	run->sent = 0;
	run->retried = true;
	run->state = RUN_ASKED;
	run->deadline_ns = run_ask_deadline(run);
	return true;
}

void run_complete(struct runclient *rc, struct run *run)
{
	struct run_result *r = &run->result;
	struct tell_end *end = &r->end;

	r->collect_us = (clock_now_ns() - run->ended_ns) / 1000;
	for (int i = 0; i < RUN_STREAMS; i++)
		r->truncated = r->truncated || r->out_bytes[i] > r->out_len[i];
	/*
	 * A program may write over the cap and exit before its last bytes are seen here. The rule is that a run over the cap
	 * ends by it, and it must not depend on who was faster.
	 */
	if (run->first_over >= 0 && (end->end == RUN_END_EXIT || end->end == RUN_END_SIGNAL)) {
		end->end = RUN_END_OUTPUT;
		end->exit_code = 137;
		end->detail[0] = 0;
	}
	if (end->end == RUN_END_OUTPUT && run->first_over >= 0)
		snprintf(end->detail, sizeof end->detail, "%s limit of %zu MiB exceeded", stream_names[run->first_over],
			 run->request.output_bytes >> 20);
	if (end->end == RUN_END_MEMORY && !*end->detail)
		snprintf(end->detail, sizeof end->detail, "memory limit of %d MiB exceeded",
			 (r->call ? LIMIT_CALL_MEMORY_BYTES : LIMIT_MEMORY_BYTES) >> 20);
	if (end->end == RUN_END_TIMEOUT) {
		if (!*end->detail)
			snprintf(end->detail, sizeof end->detail, "timed out after %us", run->request.timeout_s);
		output_add_timeout_words(run);
	}
	run_finish(rc, run, RUN_DONE);
}

void run_ask_collected(struct runclient *rc, struct run *run)
{
	struct ask ask = {.type = ASK_COLLECTED};

	if (!run->session || run->state < RUN_ENDED || run->collected_asked || run->result.end.over)
		return;
	run->collected_asked = true;
	ask.req = run->session->req;
	(void)peer_send(rc, &rc->supervisor, &ask, -1);
}

/* Asks for the files, and then for the network summary, once there is nothing left to read. */
static void reading_done(struct runclient *rc, struct run *run)
{
	if (run->state != RUN_ENDED || run->fds[WATCH_STDOUT] >= 0 || run->fds[WATCH_STDERR] >= 0 ||
	    run->fds[WATCH_RESULT] >= 0)
		return;
	run->state = RUN_SUMMARY;
	summary_expect(run);
	if (run->result.call)
		run->collect = COLLECT_DONE; /* what it leaves in its directory is nobody's */
	else
		collect_begin(rc, run);
	run_settle(rc, run);
}

/* There was no run, for whatever reason. */
static void not_run(struct runclient *rc, struct run *run)
{
	const struct tell_end *end = &run->result.end;

	if (end->refused_errno)
		run_finish(rc, run, RUN_REFUSED);
	else if (run->cancelled)
		run_gone(rc, run, "it was withdrawn before it began");
	else if (run->session && end->over && !*end->layer)
		run_gone(rc, run, *end->detail ? end->detail : "the session ended before this cell began");
	else
		run_fail(rc, run, *end->layer ? end->layer : "sandbox", "%s",
			 *end->detail ? end->detail : "it ended before its gate was opened");
}

void run_end(struct runclient *rc, struct run *run, const struct tell_end *end)
{
	struct run_result *r = &run->result;

	if (run->state == RUN_ASKED || run->state > RUN_RUNNING) {
		supervisor_lost(rc, "the end of a run out of turn");
		return;
	}
	if (retry(rc, run, end))
		return;
	r->end = *end;
	r->ran = end->ran != 0;
	run->ended_ns = clock_now_ns();
	run->state = RUN_ENDED;
	if (!r->ran) {
		not_run(rc, run);
		return;
	}
	if (end->end == RUN_END_BROKEN) {
		run_fail(rc, run, *end->layer ? end->layer : "sandbox", "%s",
			 *end->detail ? end->detail : "the service failed while it ran");
		return;
	}
	drop_request(run);
	close_fd(rc, run, WATCH_REQUEST);
	run->deadline_ns = run->ended_ns + DRAIN_S * SECOND_NS;
	if (!end->over) {
		output_drain(rc, run);
		close_fd(rc, run, WATCH_STDOUT);
		close_fd(rc, run, WATCH_STDERR);
	}
	reading_done(rc, run);
}

void run_event(struct runclient *rc, struct run *run, enum watch watch)
{
	if (run->fds[watch] < 0)
		return; /* closed earlier in this batch */
	if (watch != WATCH_REQUEST) {
		if (output_read(rc, run, (enum run_stream)watch)) {
			close_fd(rc, run, watch);
			reading_done(rc, run);
		}
		return;
	}
	if (run->session && run->cancelled)
		return; /* ended at the end of this step */
	granted(run);
	send_request(rc, run);
}

/* A cell whose request is not whole in its session's hands. */
static void sending_expired(struct runclient *rc, struct run *run)
{
	if (!run->session) {
		if (run->fds[WATCH_REQUEST] < 0)
			run_fail(rc, run, "request", "the sandbox was gone before it had its request");
		else
			run_fail(rc, run, "request", "the sandbox did not take its request within %d s", LIMIT_READY_S);
		return;
	}
	if (run->cancelled && run->sent == 0) {
		run_gone(rc, run, "it was withdrawn before it began");
		return;
	}
	/* With a part of a request in it, the stream has lost its place: nothing after it could be told from the rest of it. */
	runclient_session_close(rc, run->session);
	run->result.end.over = 1;
	run_gone(rc, run,
		 run->cancelled ? "it was withdrawn while its session took it, which is closed"
				: "the session did not take its request, and is closed");
}

void run_expired(struct runclient *rc, struct run *run)
{
	uint64_t now = clock_now_ns();

	switch (run->state) {
	case RUN_ASKED:
		run_ask_kill(rc, run, RUN_END_CANCELLED);
		run_finish(rc, run, run->cancelled ? RUN_GONE : RUN_BUSY);
		return;
	case RUN_SENDING:
		sending_expired(rc, run);
		return;
	case RUN_RUNNING:
		if (run->payload.data) {
			drop_request(run);
			run->deadline_ns = end_deadline(run);
			return;
		}
		run_fail(rc, run, "supervisor", "it did not report the end of the run within %u s of its deadline",
			 (unsigned)END_SLACK_S);
		return;
	case RUN_ENDED:
		log_error("run %s: its pipes are still open %d s after its end; what was read is in the answer",
			  run->result.grant.run_id, DRAIN_S);
		close_fd(rc, run, WATCH_STDOUT);
		close_fd(rc, run, WATCH_STDERR);
		close_fd(rc, run, WATCH_RESULT);
		run->result.truncated = true;
		reading_done(rc, run);
		return;
	case RUN_SUMMARY:
		if (!run->summarised && now >= run->summary_ns)
			summary_expired(rc, run);
		if (run->collect != COLLECT_DONE && now >= run->collect_ns)
			collect_expired(rc, run);
		run_settle(rc, run);
		return;
	}
}

void run_cancel(struct runclient *rc, struct run *run)
{
	if (run->cancelled)
		return;
	run->cancelled = true;
	if (run->state == RUN_ASKED || (run->state == RUN_SENDING && run->session))
		run->deadline_ns = 1; /* withdrawn by the next step, where callbacks are allowed */
	else if (run->state < RUN_ENDED)
		run_ask_kill(rc, run, RUN_END_CANCELLED);
}
