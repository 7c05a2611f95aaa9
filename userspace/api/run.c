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

/* Between the order to start and the end: the deadline itself, and what killing and confirming may take. */
#define END_SLACK_S 15
/* Every process is dead when TELL_END comes, so both pipes are at their end; a moment is all it can take to read them. */
#define DRAIN_S 5
/* What is kept grows from here, doubling, to LIMIT_OUTPUT_BYTES: most runs print little. */
#define OUT_FIRST 4096
/* Reads from one pipe before the others get their turn. */
#define READ_BATCH 8

static const char *const stream_names[RUN_STREAMS] = {[RUN_STDOUT] = "stdout", [RUN_STDERR] = "stderr"};

static void close_fd(struct run *run, enum watch watch)
{
	if (run->fds[watch] >= 0)
		close(run->fds[watch]); /* leaves the epoll set with it */
	run->fds[watch] = -1;
}

void run_finish(struct runclient *rc, struct run *run, enum run_outcome outcome)
{
	struct run_result *r = &run->result;

	for (int i = 0; i < 3; i++)
		close_fd(run, (enum watch)i);
	run_unlink(rc, run);
	r->outcome = outcome;
	r->timeout_s = run->request.timeout_s;
	run->request.done(run->request.ctx, r);
	free(r->out[RUN_STDOUT]);
	free(r->out[RUN_STDERR]);
	free(r->egress);
	free(run->request.code);
	free(run);
}

void run_ask_kill(struct runclient *rc, struct run *run, enum run_end reason)
{
	struct ask ask = {.type = ASK_KILL, .req = run->req, .reason = reason};

	if (run->kill_asked)
		return;
	run->kill_asked = true;
	(void)peer_send(rc, &rc->supervisor, &ask); /* the supervisor's own deadline is the second line */
}

/* `layer` NULL: result.fail is filled in already. */
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
	if (run->state < RUN_ENDED)
		run_ask_kill(rc, run, RUN_END_CANCELLED);
	run_finish(rc, run, RUN_FAILED);
}

static void start(struct runclient *rc, struct run *run)
{
	struct ask ask = {.type = ASK_START, .req = run->req, .timeout_s = run->request.timeout_s};
	uint64_t now = clock_now_ns();

	/* The sandbox has its code and needs nothing more from us; our copy is a quarter of what a run costs here. */
	close_fd(run, WATCH_REQUEST);
	free(run->request.code);
	run->request.code = NULL;
	run->result.send_us = (now - run->granted_ns) / 1000;
	run->state = RUN_RUNNING;
	run->deadline_ns = now + (run->request.timeout_s + END_SLACK_S) * SECOND_NS;
	if (peer_send(rc, &rc->supervisor, &ask) < 0)
		run_fail(rc, run, "supervisor", "the order to start could not be sent");
}

static void send_request(struct runclient *rc, struct run *run)
{
	struct request_header header = {.magic = REQUEST_MAGIC, .code_len = (uint32_t)run->request.code_len};
	size_t total = sizeof header + run->request.code_len;

	while (run->sent < total) {
		struct iovec iov[2];
		struct msghdr mh = {.msg_iov = iov};
		ssize_t n;

		if (run->sent < sizeof header)
			iov[mh.msg_iovlen++] =
			    (struct iovec){.iov_base = (char *)&header + run->sent, .iov_len = sizeof header - run->sent};
		if (run->request.code_len > 0) {
			size_t skip = run->sent > sizeof header ? run->sent - sizeof header : 0;

			iov[mh.msg_iovlen++] =
			    (struct iovec){.iov_base = run->request.code + skip, .iov_len = run->request.code_len - skip};
		}
		n = sendmsg(run->fds[WATCH_REQUEST], &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == ENOBUFS))
			return;
		if (n < 0) {
			/* It died under our hands. The supervisor knows why and is about to say so; its words are better. */
			close_fd(run, WATCH_REQUEST);
			run->deadline_ns = clock_now_ns() + DRAIN_S * SECOND_NS;
			return;
		}
		run->sent += (size_t)n;
	}
	start(rc, run);
}

void run_grant(struct runclient *rc, struct run *run, const struct tell_grant *grant, int fds[3])
{
	static const enum watch order[3] = {WATCH_REQUEST, WATCH_STDOUT, WATCH_STDERR}; /* as TELL_GRANT sends them */
	int r = 0;

	run->granted_ns = clock_now_ns();
	run->result.grant = *grant;
	run->result.queue_us =
	    run->granted_ns > run->request.arrived_ns ? (run->granted_ns - run->request.arrived_ns) / 1000 : 0;
	run->state = RUN_SENDING;
	run->deadline_ns = run->granted_ns + LIMIT_READY_S * SECOND_NS;
	for (int i = 0; i < 3; i++) {
		int flags = fcntl(fds[i], F_GETFL);

		run->fds[order[i]] = fds[i];
		if (flags < 0 || fcntl(fds[i], F_SETFL, flags | O_NONBLOCK) < 0)
			r = -errno;
	}
	for (int i = 0; i < 3 && r == 0; i++)
		r = watch_fd(rc, fds[i], run->req, order[i], order[i] == WATCH_REQUEST ? EPOLLOUT : EPOLLIN);
	if (r < 0) {
		run_fail(rc, run, "api", "cannot watch the sandbox's pipes: %s", strerror(-r));
		return;
	}
	if (run->request.granted)
		run->request.granted(run->request.ctx);
	/* Cancelled after the supervisor had granted it, before we heard: nobody wants it, so its code is not even sent. */
	if (run->cancelled) {
		close_fd(run, WATCH_REQUEST);
		run_ask_kill(rc, run, RUN_END_CANCELLED);
		return;
	}
	send_request(rc, run);
}

/* Both counters at hand: appends the words a deadline leaves at the end of stderr. */
static void add_timeout_words(struct run *run)
{
	struct run_result *r = &run->result;
	size_t len = r->out_len[RUN_STDERR];
	char *grown = realloc(r->out[RUN_STDERR], len + 64);

	if (!grown)
		return; /* termination says the same */
	if (len > 0 && grown[len - 1] != '\n')
		grown[len++] = '\n';
	len += (size_t)sprintf(grown + len, "timed out after %us", run->request.timeout_s);
	r->out[RUN_STDERR] = grown;
	r->out_len[RUN_STDERR] = len;
}

static void complete(struct runclient *rc, struct run *run)
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
		snprintf(end->detail, sizeof end->detail, "%s limit of %d MiB exceeded", stream_names[run->first_over],
			 LIMIT_OUTPUT_BYTES >> 20);
	if (end->end == RUN_END_MEMORY && !*end->detail)
		snprintf(end->detail, sizeof end->detail, "memory limit of %d MiB exceeded", LIMIT_MEMORY_BYTES >> 20);
	if (end->end == RUN_END_TIMEOUT) {
		if (!*end->detail)
			snprintf(end->detail, sizeof end->detail, "timed out after %us", run->request.timeout_s);
		add_timeout_words(run);
	}
	run_finish(rc, run, RUN_DONE);
}

/* Asks for the network summary once there is nothing left to read. */
static void ask_summary(struct runclient *rc, struct run *run)
{
	struct query q = {.type = QUERY_SUMMARY, .req = run->req};

	if (run->state != RUN_ENDED || run->fds[WATCH_STDOUT] >= 0 || run->fds[WATCH_STDERR] >= 0)
		return;
	snprintf(q.run_id, sizeof q.run_id, "%s", run->result.grant.run_id);
	run->state = RUN_SUMMARY;
	run->deadline_ns = clock_now_ns() + RUNCLIENT_SUMMARY_MS * (SECOND_NS / 1000);
	if (peer_send(rc, &rc->auditor, &q) < 0) {
		log_error("run %s: no auditor to ask; its answer has counters only", q.run_id);
		complete(rc, run);
	}
}

void run_summary(struct runclient *rc, struct run *run, int status, const char *text, size_t len)
{
	if (status == 0) {
		run->result.egress = malloc(len + 1);
		if (run->result.egress) {
			memcpy(run->result.egress, text, len);
			run->result.egress[len] = 0;
			run->result.egress_len = len;
		}
	} else {
		log_error("run %s: the auditor has no summary: %s", run->result.grant.run_id, strerror(status));
	}
	complete(rc, run);
}

void run_end(struct runclient *rc, struct run *run, const struct tell_end *end)
{
	struct run_result *r = &run->result;

	if (run->state == RUN_ASKED || run->state > RUN_RUNNING) {
		supervisor_lost(rc, "the end of a run out of turn");
		return;
	}
	r->end = *end;
	r->ran = end->ran != 0;
	run->ended_ns = clock_now_ns();
	if (!r->ran && run->cancelled) {
		run_finish(rc, run, RUN_GONE);
		return;
	}
	run->state = RUN_ENDED;
	if (!r->ran || end->end == RUN_END_BROKEN) {
		run_fail(rc, run, *end->layer ? end->layer : "sandbox", "%s",
			 *end->detail ? end->detail
			 : r->ran     ? "the service failed while it ran"
				      : "it ended before its gate was opened");
		return;
	}
	close_fd(run, WATCH_REQUEST);
	run->deadline_ns = run->ended_ns + DRAIN_S * SECOND_NS;
	ask_summary(rc, run);
}

/* Makes room to keep more, up to the cap. Returns how much can be read into the kept buffer, 0 at the cap or without memory. */
static size_t keep_room(struct run *run, enum run_stream s)
{
	struct run_result *r = &run->result;
	size_t room = run->out_room[s];

	if (r->out_len[s] < room)
		return room - r->out_len[s];
	if (room >= LIMIT_OUTPUT_BYTES)
		return 0;
	room = room ? room * 2 : OUT_FIRST;
	if (room > LIMIT_OUTPUT_BYTES)
		room = LIMIT_OUTPUT_BYTES;
	{
		char *grown = realloc(r->out[s], room);

		if (!grown)
			return 0; /* counted as cut; ends the run like the cap does */
		r->out[s] = grown;
	}
	run->out_room[s] = room;
	return room - r->out_len[s];
}

static void read_output(struct runclient *rc, struct run *run, enum run_stream s)
{
	struct run_result *r = &run->result;

	for (int i = 0; i < READ_BATCH; i++) {
		size_t room = keep_room(run, s);
		ssize_t n = read(run->fds[s], room ? r->out[s] + r->out_len[s] : rc->scratch, room ? room : sizeof rc->scratch);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			close_fd(run, (enum watch)s);
			ask_summary(rc, run);
			return;
		}
		r->out_bytes[s] += (uint64_t)n;
		if (room) {
			r->out_len[s] += (size_t)n;
			continue;
		}
		if (run->first_over < 0)
			run->first_over = (int)s;
		if (run->state == RUN_RUNNING)
			run_ask_kill(rc, run, RUN_END_OUTPUT);
	}
}

void run_event(struct runclient *rc, struct run *run, enum watch watch)
{
	if (run->fds[watch] < 0)
		return; /* closed earlier in this batch */
	if (watch == WATCH_REQUEST)
		send_request(rc, run);
	else
		read_output(rc, run, (enum run_stream)watch);
}

void run_expired(struct runclient *rc, struct run *run)
{
	switch (run->state) {
	case RUN_ASKED:
		run_ask_kill(rc, run, RUN_END_CANCELLED);
		run_finish(rc, run, run->cancelled ? RUN_GONE : RUN_BUSY);
		return;
	case RUN_SENDING:
		if (run->fds[WATCH_REQUEST] < 0)
			run_fail(rc, run, "request", "the sandbox was gone before it had its request");
		else
			run_fail(rc, run, "request", "the sandbox did not take its request within %d s", LIMIT_READY_S);
		return;
	case RUN_RUNNING:
		run_fail(rc, run, "supervisor", "it did not report the end of the run within %u s of its deadline",
			 (unsigned)END_SLACK_S);
		return;
	case RUN_ENDED:
		log_error("run %s: its pipes are still open %d s after its end; what was read is in the answer",
			  run->result.grant.run_id, DRAIN_S);
		close_fd(run, WATCH_STDOUT);
		close_fd(run, WATCH_STDERR);
		run->result.truncated = true;
		ask_summary(rc, run);
		return;
	case RUN_SUMMARY:
		log_error("run %s: no summary from the auditor within %d ms; its answer has counters only",
			  run->result.grant.run_id, RUNCLIENT_SUMMARY_MS);
		complete(rc, run);
		return;
	}
}

void run_cancel(struct runclient *rc, struct run *run)
{
	if (run->cancelled)
		return;
	run->cancelled = true;
	if (run->state == RUN_ASKED)
		run->deadline_ns = 1; /* withdrawn by the next step, where callbacks are allowed */
	else if (run->state < RUN_ENDED)
		run_ask_kill(rc, run, RUN_END_CANCELLED);
}
