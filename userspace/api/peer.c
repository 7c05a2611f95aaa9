/* SPDX-License-Identifier: Apache-2.0 */
/* The two connections of a runclient: messages out that wait for room, messages in that are checked before use. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/runclient_priv.h"
#include "core/cleanup.h"
#include "core/log.h"

/* Messages taken from one peer per step, so that a busy supervisor can't starve the pipes. */
#define PEER_BATCH 64
/* The longest audit record taken: far above what LIMIT_AUDIT_FLOWS can fill. */
#define ANSWER_MAX (16u << 20)

void peer_arm(struct runclient *rc, struct peer *peer, bool armed)
{
	struct epoll_event ev = {.events = armed ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.u64 = peer->watch};

	if (peer->armed == armed)
		return;
	peer->armed = armed;
	(void)epoll_ctl(rc->epoll_fd, EPOLL_CTL_MOD, peer->fd, &ev); /* it is in the set since runclient_new() */
}

int peer_flush(struct runclient *rc, struct peer *peer)
{
	size_t done = 0;
	int r = 0;

	if (peer->fd < 0)
		return -EPIPE;
	while (done < peer->count) {
		r = ipc_send(peer->fd, peer->queue + done * peer->size, peer->size, &peer->fds[done], peer->fds[done] >= 0);
		if (r < 0)
			break;
		cleanup_fdp(&peer->fds[done]);
		done++;
	}
	if (done > 0) {
		memmove(peer->queue, peer->queue + done * peer->size, (peer->count - done) * peer->size);
		memmove(peer->fds, peer->fds + done, (peer->count - done) * sizeof *peer->fds);
		peer->count -= done;
	}
	if (r < 0 && r != -EAGAIN && r != -ENOBUFS && r != -ETOOMANYREFS)
		return -EPIPE;
	peer_arm(rc, peer, peer->count > 0);
	return 0;
}

static int make_room(struct peer *peer)
{
	size_t room = peer->room ? peer->room * 2 : 16;
	char *queue = reallocarray(peer->queue, room, peer->size);
	int *fds;

	if (queue)
		peer->queue = queue;
	fds = queue ? reallocarray(peer->fds, room, sizeof *fds) : NULL;
	if (!fds)
		return -ENOMEM;
	peer->fds = fds;
	peer->room = room;
	return 0;
}

int peer_send(struct runclient *rc, struct peer *peer, const void *msg, int fd)
{
	int r = peer->fd < 0 ? -EPIPE : 0;

	if (r == 0 && peer->count == peer->room)
		r = make_room(peer);
	if (r < 0) {
		cleanup_fdp(&fd);
		return r;
	}
	peer->fds[peer->count] = fd;
	memcpy(peer->queue + peer->count++ * peer->size, msg, peer->size);
	/* A lost peer is noticed by its end of stream in the next step, where runs can be ended. */
	(void)peer_flush(rc, peer);
	return 0;
}

void peer_close(struct peer *peer)
{
	if (peer->fd >= 0)
		close(peer->fd);
	peer->fd = -1;
	for (size_t i = 0; i < peer->count; i++)
		cleanup_fdp(&peer->fds[i]);
	free(peer->fds);
	free(peer->queue);
	peer->queue = NULL;
	peer->fds = NULL;
	peer->count = peer->room = 0;
}

static bool pool_ok(const struct tell_pool *p)
{
	return ipc_text_ok(p->not_ready, sizeof p->not_ready);
}

static bool tell_ok(const struct tell *t)
{
	switch (t->type) {
	case TELL_GRANT:
		return ipc_text_ok(t->grant.sandbox_id, sizeof t->grant.sandbox_id) &&
		       ipc_text_ok(t->grant.run_id, sizeof t->grant.run_id) &&
		       ipc_text_ok(t->grant.python, sizeof t->grant.python);
	case TELL_FAIL:
		return ipc_text_ok(t->fail.layer, sizeof t->fail.layer) && ipc_text_ok(t->fail.step, sizeof t->fail.step) &&
		       ipc_text_ok(t->fail.text, sizeof t->fail.text);
	case TELL_END:
		return t->end.end < RUN_END_COUNT && ipc_text_ok(t->end.cpu_source, sizeof t->end.cpu_source) &&
		       ipc_text_ok(t->end.memory_source, sizeof t->end.memory_source) &&
		       ipc_text_ok(t->end.layer, sizeof t->end.layer) && ipc_text_ok(t->end.detail, sizeof t->end.detail) &&
		       t->end.over <= 1 && !(t->end.ran && t->end.refused_errno);
	case TELL_POOL:
	case TELL_STATE:
		return pool_ok(&t->pool);
	case TELL_METRICS:
		return true;
	case TELL_USAGE:
		return ipc_text_ok(t->usage.end.cpu_source, sizeof t->usage.end.cpu_source) &&
		       ipc_text_ok(t->usage.end.memory_source, sizeof t->usage.end.memory_source) &&
		       ipc_text_ok(t->usage.end.detail, sizeof t->usage.end.detail) && t->usage.end.end < RUN_END_COUNT &&
		       t->usage.there <= 1;
	default:
		return false;
	}
}

static void told_pool(struct runclient *rc, const struct tell *t)
{
	rc->pool = t->pool;
	rc->pool_known = true;
	if (t->type != TELL_POOL)
		return;
	for (struct question **at = &rc->questions; *at; at = &(*at)->next) {
		struct question *q = *at;

		if (q->req != t->req || !q->pool)
			continue;
		*at = q->next;
		q->pool(q->ctx, &rc->pool);
		free(q);
		return;
	}
}

static void told_usage(struct runclient *rc, const struct tell *t)
{
	struct question **at = &rc->questions, *q;

	while (*at && ((*at)->req != t->req || !(*at)->usage))
		at = &(*at)->next;
	q = *at;
	if (!q)
		return; /* too late */
	*at = q->next;
	q->usage(q->ctx, &t->usage);
	free(q);
}

static void close_all(const int *fds, size_t nfds)
{
	for (size_t i = 0; i < nfds; i++)
		close(fds[i]);
}

/* Without its file, or with one that is no such thing, it is as good as no answer. */
static void told_metrics(struct runclient *rc, const struct tell *t, const int *fds, size_t nfds)
{
	_cleanup_free_ char *copy = NULL;
	struct question **at = &rc->questions, *q;
	struct stat st;

	if (nfds == 1 && fstat(fds[0], &st) == 0 && st.st_size == sizeof(struct metrics))
		copy = memfd_copy(fds[0], sizeof(struct metrics));
	close_all(fds, nfds);
	while (*at && ((*at)->req != t->req || !(*at)->metrics))
		at = &(*at)->next;
	q = *at;
	if (!q)
		return; /* too late */
	if (!copy)
		log_error("the supervisor's figures can't be read");
	*at = q->next;
	q->metrics(q->ctx, (const struct metrics *)(const void *)copy);
	free(q);
}

static void told_session(struct runclient *rc, struct session *s, const struct tell *t, int fds[GRANT_FDS], size_t nfds)
{
	switch (t->type) {
	case TELL_GRANT:
		if (s->state == SESSION_OPENING && nfds == GRANT_FDS) {
			session_grant(rc, s, &t->grant, fds);
			return;
		}
		if (s->state == SESSION_OPENING && !nfds) {
			session_grant_lost(rc, s);
			return;
		}
		close_all(fds, nfds);
		supervisor_lost(rc, "a grant out of turn");
		return;
	case TELL_FAIL:
		session_fail(rc, s, &t->fail);
		return;
	default:
		session_end(rc, s, &t->end);
		return;
	}
}

static void told_run(struct runclient *rc, struct run *run, const struct tell *t, const int *fds, size_t nfds)
{
	switch (t->type) {
	case TELL_GRANT:
		if (run->state == RUN_ASKED && nfds == run_grant_fds(run)) {
			run_grant(rc, run, &t->grant, fds);
			return;
		}
		if (run->state == RUN_ASKED && !nfds) {
			run_fail(rc, run, "api", NO_ROOM);
			return;
		}
		close_all(fds, nfds);
		supervisor_lost(rc, "a grant out of turn");
		return;
	case TELL_FAIL:
		run->result.fail = t->fail;
		run->kill_asked = true; /* there is nothing left to kill */
		run_fail(rc, run, NULL, NULL);
		return;
	default:
		if (t->end.over)
			run_end(rc, run, &t->end);
		else
			supervisor_lost(rc, "the end of a cell in a sandbox for single use");
		return;
	}
}

static void told(struct runclient *rc, const struct tell *t, int fds[GRANT_FDS_CALL], size_t nfds)
{
	struct run *run = run_find(rc, t->req);
	struct session *s = session_by_req(rc, t->req);

	if (t->type == TELL_POOL || t->type == TELL_STATE)
		told_pool(rc, t);
	else if (t->type == TELL_METRICS)
		told_metrics(rc, t, fds, nfds);
	else if (t->type == TELL_USAGE)
		told_usage(rc, t);
	else if (s)
		told_session(rc, s, t, fds, nfds);
	else if (run && !run->session)
		told_run(rc, run, t, fds, nfds);
	else /* a grant that crossed our withdrawal: the supervisor ends that sandbox when it reads it */
		close_all(fds, nfds);
}

void supervisor_read(struct runclient *rc)
{
	for (int i = 0; i < PEER_BATCH && rc->supervisor.fd >= 0; i++) {
		struct tell t = {0};
		int fds[GRANT_FDS_CALL];
		size_t nfds = GRANT_FDS_CALL;
		ssize_t n = ipc_recv(rc->supervisor.fd, &t, sizeof t, fds, &nfds);

		if (n == -EAGAIN)
			return;
		if (n == -EMSGSIZE && (t.type == TELL_GRANT || t.type == TELL_METRICS))
			n = (ssize_t)sizeof t; /* we have too many fds open for its own: that is the asker's misfortune alone */
		if (n != (ssize_t)sizeof t || !tell_ok(&t)) {
			close_all(fds, nfds);
			supervisor_lost(rc, n == 0 ? "its connection is closed" : "it sent a message that makes no sense");
			return;
		}
		if (t.type != TELL_GRANT && t.type != TELL_METRICS) {
			close_all(fds, nfds);
			nfds = 0;
		}
		told(rc, &t, fds, nfds);
	}
}

char *memfd_copy(int fd, size_t len)
{
	_cleanup_free_ char *text = malloc(len ? len : 1);
	size_t got = 0;

	if (!text)
		return NULL;
	while (got < len) {
		ssize_t n = pread(fd, text + got, len - got, (off_t)got);

		if (n <= 0)
			return NULL;
		got += (size_t)n;
	}
	return TAKE_PTR(text);
}

static void answered(struct runclient *rc, const struct answer *a, const char *text)
{
	struct run *run = run_find(rc, a->req);

	if (run) {
		if (run->state == RUN_SUMMARY)
			run_summary(rc, run, (int)a->status, text, a->len);
		return;
	}
	for (struct question **at = &rc->questions; *at; at = &(*at)->next) {
		struct question *q = *at;

		if (q->req != a->req || !q->audit)
			continue;
		*at = q->next;
		q->audit(q->ctx, (int)a->status, text, a->len);
		free(q);
		return;
	}
}

void auditor_read(struct runclient *rc)
{
	for (int i = 0; i < PEER_BATCH && rc->auditor.fd >= 0; i++) {
		_cleanup_free_ char *copy = NULL;
		_cleanup_fd_ int fd = -1;
		const char *text = rc->answer + sizeof(struct answer);
		struct answer a;
		size_t nfds = 1;
		ssize_t n = ipc_recv(rc->auditor.fd, rc->answer, sizeof a + ANSWER_INLINE_MAX, &fd, &nfds);

		if (n == -EAGAIN)
			return;
		if (n < (ssize_t)sizeof a && n != -EMSGSIZE) {
			auditor_lost(rc, n == 0 ? "its connection is closed" : "it sent a message that makes no sense");
			return;
		}
		memcpy(&a, rc->answer, sizeof a);
		if (n == -EMSGSIZE) {
			a.status = EMFILE; /* as with a grant */
			a.len = 0;
		} else if (nfds == 1 && a.len <= ANSWER_MAX) {
			copy = memfd_copy(fd, a.len);
			text = copy;
		} else if ((size_t)n - sizeof a != a.len) {
			auditor_lost(rc, "it sent a message that makes no sense");
			return;
		}
		if (!text) {
			log_error("cannot read an answer of %u bytes from the auditor", a.len);
			a.status = EIO;
			a.len = 0;
		}
		answered(rc, &a, text);
	}
}
