/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runs have left in their working directories, and the collector's connection. The collector works on one job at a time
 * and has no more than one from us: an answer can be as large as all that a run may return, and memory for one of those is held
 * for us by a process that has no account of ours. The other runs wait here, those of different projects in turn, so that a
 * project with many large directories holds up the others by no more than one of them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/runclient_priv.h"
#include "core/cleanup.h"
#include "core/limits.h"
#include "core/log.h"

/* For its turn, then for the answer: the collector's own limit and what a busy machine may add. */
#define TURN_S 15
#define ANSWER_MS (LIMIT_FILES_OUT_MS + 3000)
#define ANSWERS_BATCH 8
/* The longest answer: all contents, and for each entry its struct and a path of as many levels as are gone into. */
#define COLLECTED_MAX                                                                                                          \
	((size_t)LIMIT_FILES_OUT_BYTES + (size_t)(LIMIT_FILES_OUT + LIMIT_FILES_SKIPPED) *                                     \
					     (sizeof(struct collected_entry) + (LIMIT_FILES_OUT_DEPTH + 1) * 256))

void collect_fail(struct run *run, const char *why)
{
	log_error("run %s: its files could not be collected: %s", run->result.grant.run_id, why);
	run->result.files.problem = "files could not be collected";
	run->collect = COLLECT_DONE;
	run_arm_summary(run);
}

/*
 * Projects take turns: a job comes one turn after the one of its project before it, and never before what is served now. So
 * the first job of each project comes before the second of any, however many projects there are.
 */
static void take_turn(const struct runclient *rc, struct run *mine)
{
	uint64_t last = rc->collect_turn;

	for (struct run *run = rc->runs; run; run = run->next)
		if (run != mine && (run->collect == COLLECT_QUEUED || run->collect == COLLECT_SENT) &&
		    run->collect_turn > last && !strcmp(run->project, mine->project))
			last = run->collect_turn;
	mine->collect_turn = last + 1;
}

void collect_begin(struct runclient *rc, struct run *run)
{
	run->collect = COLLECT_QUEUED;
	take_turn(rc, run);
	run->collect_ns = clock_now_ns() + TURN_S * SECOND_NS;
	if (rc->collector.fd < 0)
		collect_fail(run, "there is no collector");
	else
		collect_next(rc);
}

/* In the same turn, a project that was not served last comes first. */
static struct run *choose(struct runclient *rc)
{
	struct run *best = NULL;
	bool best_again = false;

	for (struct run *run = rc->runs; run; run = run->next) {
		bool again = !strcmp(run->project, rc->collect_project);

		if (run->collect != COLLECT_QUEUED)
			continue;
		if (!best || run->collect_turn < best->collect_turn ||
		    (run->collect_turn == best->collect_turn && best_again && !again)) {
			best = run;
			best_again = again;
		}
	}
	return best;
}

static int send_job(struct runclient *rc, const struct run *run)
{
	const struct session *s = run->session;
	struct collect *c = &rc->collect;
	const int fds[2] = {run->dir, s ? s->manifest : -1};

	memset(c, 0, sizeof *c);
	c->req = run->req;
	c->have_manifest = fds[1] >= 0;
	c->want_manifest = s && s->state == SESSION_BUSY;
	c->digest_count = (uint32_t)run->payload.digest_count;
	if (c->digest_count)
		memcpy(c->digests, run->payload.digests, c->digest_count * sizeof *c->digests);
	return ipc_send(rc->collector.fd, c, sizeof *c, fds, c->have_manifest ? 2 : 1);
}

void collect_next(struct runclient *rc)
{
	struct run *run = NULL;
	int r = 0;

	while (!rc->collecting && rc->collector.fd >= 0 && (run = choose(rc))) {
		r = send_job(rc, run);
		/* A lost one is noticed by its end of stream in the next step, where runs can be ended. */
		if (r == -EAGAIN || r == -ENOBUFS || r == -EPIPE)
			break;
		run->collect = COLLECT_SENT;
		if (r < 0) {
			log_error("run %s: the collector can't be asked: %s", run->result.grant.run_id, strerror(-r));
			run->collect_ns = 1; /* ended by the next step */
		} else {
			rc->collecting = run->req;
			run->collect_ns = clock_now_ns() + ANSWER_MS * (SECOND_NS / 1000);
			rc->collect_turn = run->collect_turn;
			memcpy(rc->collect_project, run->project, sizeof rc->collect_project);
		}
		run_arm_summary(run);
	}
	if (rc->collector.fd >= 0)
		peer_arm(rc, &rc->collector, !rc->collecting && run && r != -EPIPE);
}

void collect_forget(struct runclient *rc, struct run *run)
{
	if (rc->collecting == run->req)
		rc->collecting = 0; /* its answer will be nobody's; only a service that ends comes here */
}

void collect_expired(struct runclient *rc, struct run *run)
{
	bool asked = rc->collecting == run->req;

	collect_fail(run, asked ? "no answer from the collector in time" : "the collector was busy with others for too long");
	collect_forget(rc, run);
	collect_next(rc);
}

void collector_lost(struct runclient *rc, const char *why)
{
	if (rc->collector.fd < 0)
		return;
	log_error("collector lost: %s; answers have no files", why);
	peer_close(&rc->collector);
	rc->collecting = 0;
	/* Restarted after each: the callback may start or cancel others. */
	for (struct run *run = rc->runs; run;) {
		if (run->collect == COLLECT_QUEUED || run->collect == COLLECT_SENT) {
			collect_fail(run, "the collector is gone");
			run_settle(rc, run);
			run = rc->runs;
		} else {
			run = run->next;
		}
	}
}

/* Returns 0, -ENOMEM, or -EPROTO when it is nothing that a collector sends. */
static int take_files(struct run_files *ret, const struct collected *c, int fd)
{
	_cleanup_free_ char *data = NULL;
	struct stat st;

	if (c->len > COLLECTED_MAX || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != c->len)
		return -EPROTO;
	data = memfd_copy(fd, c->len);
	if (!data)
		return -ENOMEM;
	if (!run_files_ok(data, c->len))
		return -EPROTO;
	ret->data = TAKE_PTR(data);
	ret->len = c->len;
	ret->skipped_unlisted = c->skipped_unlisted;
	return 0;
}

/* Whether the answer made sense. May free the run. */
static bool collected(struct runclient *rc, const struct collected *c, int *data, int *manifest)
{
	struct run *run = rc->collecting == c->req ? run_find(rc, c->req) : NULL;
	struct session *s = run ? run->session : NULL;
	bool want_manifest = rc->collect.want_manifest;
	int r;

	if (!run)
		return true; /* too late: it was answered without */
	if (c->status == 0 && (*manifest >= 0) != want_manifest)
		return false;
	r = c->status == 0 ? take_files(&run->result.files, c, *data) : 0;
	if (r == -EPROTO)
		return false;
	rc->collecting = 0;
	if (c->status || r < 0) {
		collect_fail(run, c->status ? strerror((int)c->status) : strerror(-r));
	} else {
		run->collect = COLLECT_DONE;
		/*
		 * What a cancelled cell left nobody gets to see with it: so it stays new, and comes with the next one. The same
		 * goes for one whose files could not be read.
		 */
		if (s && *manifest >= 0 && !run->cancelled) {
			if (s->manifest >= 0)
				close(s->manifest);
			s->manifest = TAKE_FD(*manifest);
		}
	}
	collect_next(rc);
	run_settle(rc, run);
	return true;
}

void collector_read(struct runclient *rc)
{
	for (int i = 0; i < ANSWERS_BATCH && rc->collector.fd >= 0; i++) {
		struct collected c = {0};
		int fds[2] = {-1, -1};
		size_t nfds = 2;
		ssize_t n = ipc_recv(rc->collector.fd, &c, sizeof c, fds, &nfds);
		bool sense;

		if (n == -EAGAIN)
			return;
		if (n == -EMSGSIZE) { /* we have too many fds open for its own */
			c.status = EMFILE;
			n = (ssize_t)sizeof c;
		}
		sense = n == (ssize_t)sizeof c && collected(rc, &c, &fds[0], &fds[1]);
		cleanup_fdp(&fds[0]);
		cleanup_fdp(&fds[1]);
		if (!sense)
			collector_lost(rc, n == 0 ? "its connection is closed" : "it sent an answer that makes no sense");
	}
}
