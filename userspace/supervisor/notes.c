/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way to the auditor. The ring is drained only while the auditor keeps up, so that a flood waits in the kernel's ring
 * (which counts what it can't take) and not in our memory; what we must say, that a run began or ended, is never dropped.
 */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "core/log.h"
#include "supervisor/attached.h"

#define QUEUE_MAX 16384	 /* notes held for a slow auditor; beyond it details are dropped and counted */
#define QUEUE_PAUSE 4096 /* stop draining the ring above this */
#define FLUSH_MS 3000

struct note_queue {
	struct note *ring;
	size_t head, count, room;
	bool want_out;
};

static uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

void note_init(struct note *n, enum note_type type, const struct box *b)
{
	memset(n, 0, sizeof *n);
	n->type = type;
	n->wall_ns = clock_ns(CLOCK_REALTIME);
	n->boot_ns = clock_ns(CLOCK_BOOTTIME);
	if (!b)
		return;
	snprintf(n->run_id, sizeof n->run_id, "%s", b->run_id[0] ? b->run_id : b->id);
	snprintf(n->sandbox_id, sizeof n->sandbox_id, "%s", b->id);
	snprintf(n->project, sizeof n->project, "%s", b->project);
}

void note_init_session(struct note *n, enum note_type type, const struct box *b)
{
	note_init(n, type, b);
	snprintf(n->run_id, sizeof n->run_id, "%s", b->id);
}

static void push_as(struct supervisor *s, const struct note *like, struct note *n)
{
	/* What follows the head, and the head's own clock, are everybody's. */
	memcpy((char *)n + offsetof(struct note, judged), (const char *)like + offsetof(struct note, judged),
	       sizeof *n - offsetof(struct note, judged));
	n->wall_ns = like->wall_ns;
	n->boot_ns = like->boot_ns;
	notes_push(s, n);
}

void notes_push_to_runs(struct supervisor *s, enum slot slot, const struct note *like)
{
	const struct box *b = NULL;
	struct note n;

	TAILQ_FOREACH (b, &s->boxes, link) {
		if (b->t && b->t->slot != slot)
			continue;
		if (b->session) {
			note_init_session(&n, like->type, b);
			push_as(s, like, &n);
		}
		if (b->begun) {
			note_init(&n, like->type, b);
			push_as(s, like, &n);
		}
	}
}

static void on_auditor(struct supervisor *s, struct source *src, uint32_t events)
{
	if (events & (EPOLLHUP | EPOLLERR)) {
		/* Without an auditor nothing may run unseen. */
		source_close(s, src);
		if (!s->fatal)
			s->fatal = err_set(&s->fatal_err, EPIPE, "audit", "the auditor is gone");
		return;
	}
	notes_pump(s);
}

int notes_new(struct supervisor *s, int auditor_fd, struct err *e)
{
	struct note_queue *q = calloc(1, sizeof *q);

	s->auditor_src.fd = auditor_fd;
	s->auditor_src.fn = on_auditor;
	if (!q)
		return err_set(e, ENOMEM, "supervisor", "out of memory");
	s->notes = q;
	return auditor_fd >= 0 ? source_add(s, &s->auditor_src, 0) : 0;
}

void notes_free(struct supervisor *s)
{
	if (!s->notes)
		return;
	free(s->notes->ring);
	free(s->notes);
	s->notes = NULL;
}

static bool grow(struct note_queue *q)
{
	size_t room = q->room ? q->room * 2 : 64;
	struct note *bigger;

	if (room > QUEUE_MAX)
		return false;
	bigger = malloc(room * sizeof *bigger);
	if (!bigger)
		return false;
	for (size_t i = 0; i < q->count; i++)
		bigger[i] = q->ring[(q->head + i) % q->room];
	free(q->ring);
	q->ring = bigger;
	q->room = room;
	q->head = 0;
	return true;
}

static void want_out(struct supervisor *s, bool want)
{
	struct epoll_event ev = {.events = want ? EPOLLOUT : 0, .data.ptr = &s->auditor_src};

	if (s->notes->want_out == want || s->auditor_src.fd < 0)
		return;
	if (epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, s->auditor_src.fd, &ev) == 0)
		s->notes->want_out = want;
}

/* Whether the ring may wake us: not while there is nowhere to put what it holds, or it would do so without end. */
static void want_ring(struct supervisor *s, bool want)
{
	struct epoll_event ev = {.events = want ? EPOLLIN : 0, .data.ptr = &s->ring_src};

	if (s->ring_off != want || s->ring_src.fd < 0)
		return;
	if (epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, s->ring_src.fd, &ev) == 0)
		s->ring_off = !want;
}

bool notes_behind(const struct supervisor *s)
{
	return s->notes->count > QUEUE_PAUSE;
}

void notes_pump(struct supervisor *s)
{
	struct note_queue *q = s->notes;

	while (q->count && s->auditor_src.fd >= 0) {
		int rc = ipc_send(s->auditor_src.fd, &q->ring[q->head], sizeof q->ring[0], NULL, 0);

		if (rc == -EAGAIN)
			break;
		if (rc < 0) {
			on_auditor(s, &s->auditor_src, EPOLLHUP);
			return;
		}
		q->head = (q->head + 1) % q->room;
		q->count--;
	}
	want_out(s, q->count > 0);
	want_ring(s, !notes_behind(s));
	attached_want_rings(s, !notes_behind(s));
	if (!q->count && q->room > QUEUE_PAUSE) {
		/* A flood is over: its memory goes back. */
		free(q->ring);
		memset(q, 0, sizeof *q);
	}
}

bool notes_push(struct supervisor *s, const struct note *n)
{
	struct note_queue *q = s->notes;
	bool detail = n->type == NOTE_EVENT || n->type == NOTE_FLOW || n->type == NOTE_SOCKET;

	if (s->auditor_src.fd < 0)
		return false;
	if (!q->count) {
		int rc = ipc_send(s->auditor_src.fd, n, sizeof *n, NULL, 0);

		if (rc == 0)
			return true;
		if (rc != -EAGAIN) {
			on_auditor(s, &s->auditor_src, EPOLLHUP);
			return false;
		}
	}
	if (detail && q->count >= QUEUE_MAX / 2)
		return false;
	if (q->count == q->room && !grow(q)) {
		/* Half of the queue is kept for these: so many beginnings and endings without a reader is an auditor that
		 * hangs. */
		s->fatal = err_set(&s->fatal_err, EPIPE, "audit", "the auditor does not read");
		return false;
	}
	q->ring[(q->head + q->count++) % q->room] = *n;
	want_out(s, true);
	return true;
}

void notes_flush(struct supervisor *s)
{
	uint64_t until = now_ns() + FLUSH_MS * 1000000ull;

	while (s->notes && s->notes->count && s->auditor_src.fd >= 0 && now_ns() < until) {
		struct pollfd p = {.fd = s->auditor_src.fd, .events = POLLOUT};

		poll(&p, 1, 100);
		notes_pump(s);
	}
}

static void on_event(void *ctx, const struct weir_event *ev)
{
	struct supervisor *s = ctx;
	struct box *b = box_by_cgroup(s, ev->key.cgroup);
	const enum slot slot = box_slot(b, ev->key.cgroup);
	struct note n;

	if (b)
		box_remember_flow(b, &ev->key);
	/* What a carrier sends its sandbox has sent before, and that is listed; only what it was refused is news. */
	if (slot == SLOT_CARRIER && ev->key.verdict != WEIR_DENY)
		return;
	note_init(&n, NOTE_EVENT, b);
	n.event = *ev;
	slot_judged(s, slot, &ev->key, &n.judged);
	notes_push(s, &n);
}

void notes_drain_all(struct supervisor *s)
{
	/* As much as a ring can hold: what arrives meanwhile is of others, and can wait. */
	(void)guard_drain(s->guard, WEIR_RING_BYTES / (int)sizeof(struct weir_event), on_event, s);
}

void notes_drain_ring(struct supervisor *s, int budget)
{
	if (notes_behind(s)) {
		want_ring(s, false);
		return;
	}
	(void)guard_drain(s->guard, budget, on_event, s);
}
