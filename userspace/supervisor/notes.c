/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way to the auditor. The kernel's rings are drained whether or not it keeps up, since they are everybody's, and what waits
 * for it waits here, in shares (note_queue.h). What we must say, that a run began or ended, is never dropped, and what a run
 * can make many of never takes its place.
 */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/clock.h"
#include "core/log.h"
#include "supervisor/internal.h"
#include "supervisor/note_queue.h"

#define BEHIND 4096    /* more than these wait: what can wait for that itself does */
#define FLUSH_MS 5000  /* all that may wait, and more */
#define FINISH_MS 5000 /* longer than the auditor waits for signatures; then its process is waited for elsewhere */

void note_init(struct note *n, enum note_type type, const struct box *b)
{
	memset(n, 0, sizeof *n);
	n->type = type;
	n->wall_ns = clock_wall_ns();
	n->boot_ns = clock_boot_ns();
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
	/* What it asked for is heard before its end. */
	int rc = events & EPOLLIN ? signer_hear(s) : 0;

	if (rc < 0 || (events & (EPOLLHUP | EPOLLERR))) {
		/* Without an auditor nothing may run unseen. */
		source_close(s, src);
		if (!s->fatal)
			s->fatal = rc == -EPROTO
				       ? err_set(&s->fatal_err, EPROTO, "audit", "the auditor sent what is no question")
				       : err_set(&s->fatal_err, EPIPE, "audit", "the auditor is gone");
		return;
	}
	notes_pump(s);
}

int notes_new(struct supervisor *s, int auditor_fd, struct err *e)
{
	struct note_queue *q = note_queue_new();

	s->auditor_src.fd = auditor_fd;
	s->auditor_src.fn = on_auditor;
	if (!q)
		return err_set(e, ENOMEM, "supervisor", "out of memory");
	s->notes = q;
	return auditor_fd >= 0 ? source_add(s, &s->auditor_src, EPOLLIN) : 0;
}

void notes_free(struct supervisor *s)
{
	s->notes = note_queue_free(s->notes);
}

static void want_out(struct supervisor *s, bool want)
{
	struct epoll_event ev = {.events = want ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = &s->auditor_src};

	if (s->notes_want_out == want || s->auditor_src.fd < 0)
		return;
	if (epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, s->auditor_src.fd, &ev) == 0)
		s->notes_want_out = want;
}

bool notes_behind(const struct supervisor *s)
{
	return note_queue_count(s->notes) > BEHIND;
}

void notes_pump(struct supervisor *s)
{
	struct note n;

	while (s->auditor_src.fd >= 0 && note_queue_next(s->notes, &n)) {
		int rc = ipc_send(s->auditor_src.fd, &n, sizeof n, NULL, 0);

		if (rc == -EAGAIN)
			break;
		if (rc < 0) {
			on_auditor(s, &s->auditor_src, EPOLLHUP);
			return;
		}
		note_queue_drop_next(s->notes);
	}
	want_out(s, note_queue_count(s->notes) > 0);
}

bool notes_push(struct supervisor *s, const struct note *n)
{
	int rc = -EAGAIN;

	if (s->auditor_src.fd < 0)
		return false;
	if (!note_queue_count(s->notes))
		rc = ipc_send(s->auditor_src.fd, n, sizeof *n, NULL, 0);
	if (rc == 0)
		return true;
	if (rc != -EAGAIN) {
		on_auditor(s, &s->auditor_src, EPOLLHUP);
		return false;
	}
	rc = note_queue_put(s->notes, n);
	want_out(s, note_queue_count(s->notes) > 0);
	/* So many beginnings and endings without a reader is an auditor that hangs. */
	if (rc == -EPIPE)
		s->fatal = err_set(&s->fatal_err, EPIPE, "audit", "the auditor does not read");
	return rc == 0;
}

void notes_push_detail(struct supervisor *s, struct box *b, const struct note *n)
{
	b->details_dropped += !notes_push(s, n);
}

void notes_flush(struct supervisor *s)
{
	uint64_t until = now_ns() + FLUSH_MS * 1000000ull;

	while (s->notes && note_queue_count(s->notes) && s->auditor_src.fd >= 0 && now_ns() < until) {
		struct pollfd p = {.fd = s->auditor_src.fd, .events = POLLOUT};

		poll(&p, 1, 100);
		notes_pump(s);
	}
}

void notes_finish(struct supervisor *s)
{
	uint64_t until = now_ns() + FINISH_MS * 1000000ull;
	bool had_fatal = s->fatal;

	notes_flush(s);
	while (s->auditor_src.fd >= 0 && now_ns() < until) {
		struct pollfd p = {.fd = s->auditor_src.fd, .events = POLLIN | (note_queue_count(s->notes) ? POLLOUT : 0)};

		if (poll(&p, 1, 100) > 0)
			on_auditor(s, &s->auditor_src,
				   (p.revents & POLLIN ? EPOLLIN : 0) | (p.revents & (POLLHUP | POLLERR) ? EPOLLHUP : 0));
	}
	/* Its end is what it was asked for. */
	if (!had_fatal)
		s->fatal = 0;
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
	if (!notes_push(s, &n) && b)
		*(slot == SLOT_CARRIER ? &b->details_dropped : &b->events_dropped) += 1;
}

void notes_drain_all(struct supervisor *s)
{
	/* As much as the rings can hold: what arrives meanwhile is of others, and can wait. */
	(void)guard_drain(s->guard, GUARD_EVENTS_MAX, on_event, s);
}

void notes_drain_ring(struct supervisor *s, int budget)
{
	(void)guard_drain(s->guard, budget, on_event, s);
}
