/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: the part of the table in core/lifecycle.c that goes round. The interpreter of a session runs a stranger's code and
 * speaks to us over the gate, so what it says can only ever cost its own session its life.
 */
#include "supervisor/internal.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"

#define SECOND_NS 1000000000ull
/*
 * Ordinary processes stop within microseconds; those without CPU time left in this tenth of a second wait for the next, and a
 * task in a long system call ends that first.
 */
#define FREEZE_NS (5 * SECOND_NS)
#define FREEZE_SPINS 10
#define FREEZE_SPIN_NS 30000

static void __attribute__((format(printf, 2, 3))) because(struct box *b, const char *format, ...)
{
	va_list ap;

	if (b->why[0])
		return;
	va_start(ap, format);
	vsnprintf(b->why, sizeof b->why, format, ap);
	va_end(ap);
}

static void become_idle(struct supervisor *s, struct box *b)
{
	unsigned idle_s = s->config.session_idle_s ? s->config.session_idle_s : LIMIT_SESSION_IDLE_S;

	b->deadline_ns = now_ns() + idle_s * SECOND_NS;
}

/* ---- the beginning ---- */

static void on_events(struct supervisor *s, struct source *src, uint32_t events)
{
	(void)events;
	sup_session_check_frozen(s, src->owner);
}

void sup_session_open(struct supervisor *s, struct box *b)
{
	unsigned life_s = s->config.session_life_s ? s->config.session_life_s : LIMIT_SESSION_LIFE_S;
	struct note n;
	int rc;

	b->began_ns = now_ns();
	b->life_ns = b->began_ns + life_s * SECOND_NS;
	become_idle(s, b);
	account_begin(s, b);
	account_renew(s, b);
	note_init_session(&n, NOTE_RUN_BEGIN, b);
	box_note_begin(s, b, &n);
	notes_push(s, &n);
	b->frozen = (struct source){.fn = on_events, .owner = b, .fd = cgroup_box_events(&b->cgroup)};
	rc = b->frozen.fd < 0 ? b->frozen.fd : source_add(s, &b->frozen, EPOLLPRI);
	if (rc < 0) {
		because(b, "its cgroup can't be watched: %s", strerror(-rc));
		box_end(s, b, RUN_END_BROKEN);
	}
}

/* ---- freezing ---- */

void sup_session_check_frozen(struct supervisor *s, struct box *b)
{
	/* Read in any case: that is how the descriptor becomes quiet again. */
	int frozen = cgroup_events_frozen(b->frozen.fd);

	if (!b->pausing || frozen == 0)
		return;
	b->pausing = false;
	if (frozen == 1) {
		box_event(s, b, BOX_FROZEN);
		return;
	}
	because(b, "the kernel does not say whether it is frozen: %s", strerror(-frozen));
	box_end(s, b, RUN_END_BROKEN);
}

void sup_session_freeze(struct supervisor *s, struct box *b)
{
	const struct timespec a_moment = {.tv_nsec = FREEZE_SPIN_NS};
	int rc = cgroup_box_freeze(&b->cgroup, true);

	b->deadline_ns = now_ns() + FREEZE_NS;
	if (rc < 0) {
		because(b, "it can't be frozen: %s", strerror(-rc));
		box_end(s, b, RUN_END_BROKEN);
		return;
	}
	b->pausing = true;
	/* Nearly always it is done before the kernel's notice would be: notices come at most once in ten milliseconds. */
	for (int i = 0; i < FREEZE_SPINS && b->pausing; i++) {
		sup_session_check_frozen(s, b);
		if (b->pausing)
			nanosleep(&a_moment, NULL);
	}
}

static void thaw(struct supervisor *s, struct box *b)
{
	int rc = cgroup_box_freeze(&b->cgroup, false);

	if (rc < 0) {
		because(b, "it can't be thawed: %s", strerror(-rc));
		box_end(s, b, RUN_END_BROKEN);
	}
}

/* ---- accounts ---- */

static uint64_t add_known(uint64_t sum, uint64_t more)
{
	return sum == REFUSED_UNKNOWN || more == REFUSED_UNKNOWN ? REFUSED_UNKNOWN : sum + more;
}

/* Its interpreter, which is in each period, is one process. */
static void add_meter(struct tell_meter *sum, const struct tell_meter *t)
{
	sum->processes += t->processes - (sum->there && t->processes);
	sum->threads += t->threads - (sum->there && t->threads);
	sum->there |= t->there;
	sum->execs += t->execs;
	sum->execs_unlisted += t->execs_unlisted;
	sum->cpu_us += t->cpu_us;
	sum->written_bytes += t->written_bytes;
	sum->oom_victims += t->oom_victims;
	sum->oom_kills += t->oom_kills;
	sum->packets += t->packets;
	sum->denied_packets += t->denied_packets;
	sum->denied_bytes += t->denied_bytes;
	sum->watched_packets += t->watched_packets;
	sum->watched_bytes += t->watched_bytes;
	sum->events_lost += t->events_lost;
	sum->incomplete += t->incomplete;
	sum->details_dropped += t->details_dropped;
	sum->syscalls_refused = add_known(sum->syscalls_refused, t->syscalls_refused);
	sum->syscalls_interrupted = add_known(sum->syscalls_interrupted, t->syscalls_interrupted);
	if (t->peak_rss > sum->peak_rss)
		sum->peak_rss = t->peak_rss;
}

/* One more of the times between its cells. What was in a cell is that cell's: each figure is in one record. */
static void add_between(struct tell_end *sum, const struct tell_end *t)
{
	sum->attempts += t->attempts;
	sum->denied += t->denied;
	sum->allowed += t->allowed;
	sum->would_deny += t->would_deny;
	sum->inbound += t->inbound;
	sum->unlisted += t->unlisted;
	sum->net_bytes += t->net_bytes;
	sum->cpu_us += t->cpu_us;
	if (t->memory_peak > sum->memory_peak)
		sum->memory_peak = t->memory_peak;
	memcpy(sum->cpu_source, t->cpu_source, sizeof t->cpu_source);
	memcpy(sum->memory_source, t->memory_source, sizeof t->memory_source);
	add_meter(&sum->meter, &t->meter);
}

static void end_between(struct supervisor *s, struct box *b, uint64_t *ret_oom_kills)
{
	struct tell_end t = {0};

	account_end(s, b, &t, ret_oom_kills);
	refused_report(s, b, &t.meter);
	account_dropped(b, &t.meter);
	metrics_between_ended(s, &t);
	add_between(&b->between, &t);
}

void sup_session_now(struct supervisor *s, const struct box *b, struct tell_usage *ret)
{
	struct tell_usage now = {0};

	ret->end = b->between;
	if (!b->begun) {
		account_now(s, b, &now);
		add_between(&ret->end, &now.end);
	}
	ret->end.cell = b->cell;
	ret->flow_bytes = UINT64_MAX; /* those that were listed before are its record's */
}

/* Of a cell that is over: everything up to here is in its record, what comes now in the session's. */
static void end_cell(struct supervisor *s, struct box *b, struct tell_end *ret, uint64_t *ret_oom_kills)
{
	struct note n;

	account_end(s, b, ret, ret_oom_kills);
	box_describe(b, *ret_oom_kills, b->ran, ret);
	ret->duration_us = b->ended_ns > b->opened_ns ? (b->ended_ns - b->opened_ns) / 1000 : 0;
	timeline_end(s, b); /* before what was refused begins anew */
	refused_report(s, b, &ret->meter);
	account_dropped(b, &ret->meter);
	metrics_run_ended(s, b, ret);
	note_init(&n, NOTE_RUN_END, b);
	n.end = *ret;
	notes_push(s, &n);
	snprintf(b->run_id, sizeof b->run_id, "%s", b->id);
	b->begun = false;
}

/* Ready for the next cell. */
static void forget_cell(struct box *b)
{
	b->asked = b->ran = b->begun = b->end_known = b->have_status = false;
	b->refused_errno = 0;
	b->refused_index = 0;
	b->opened_ns = b->ended_ns = 0;
	b->status = 0;
	b->why[0] = 0;
}

/* ---- a cell's way ---- */

void sup_session_await(struct supervisor *s, struct box *b)
{
	const char ask = GATE_ASK;

	b->cell++;
	b->asked = true;
	b->deadline_ns = now_ns() + LIMIT_PLACING_S * SECOND_NS;
	if (b->gate.fd < 0 || send(b->gate.fd, &ask, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
		sup_session_goes_wrong(s, b, "its interpreter has closed the gate");
}

void sup_session_decline(struct supervisor *s, struct box *b)
{
	struct tell t = {.type = TELL_END, .req = b->req};

	box_describe(b, 0, false, &t.end);
	t.end.cell = b->cell;
	forget_cell(b);
	become_idle(s, b);
	client_tell(b->client, &t, NULL, 0);
}

void sup_session_open_cell(struct supervisor *s, struct box *b)
{
	/* Withdrawn in the meantime: then its code does not run, and all else goes its way. */
	const bool run = !b->end_known;
	const char byte = run ? GATE_OPEN : GATE_DROP;
	uint64_t oom_kills;
	struct note n;

	if (!box_still_guarded(s, b))
		return;
	end_between(s, b, &oom_kills);
	account_renew(s, b);
	b->opened_ns = now_ns();
	b->deadline_ns = b->opened_ns + b->timeout_s * SECOND_NS;
	if (b->gate.fd < 0 || send(b->gate.fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
		sup_session_goes_wrong(s, b, "its interpreter has closed the gate");
		return;
	}
	if (run) {
		snprintf(b->run_id, sizeof b->run_id, "%.32s.%u", b->id, b->cell);
		b->ran = b->begun = b->any_ran = true;
		b->t->served++;
		note_init(&n, NOTE_RUN_BEGIN, b);
		box_note_begin(s, b, &n);
		memcpy(n.begin.caller, b->cell_caller, sizeof n.begin.caller);
		n.begin.timeout_s = b->timeout_s;
		notes_push(s, &n);
		timeline_begin(s, b);
	}
	thaw(s, b);
}

void sup_session_interrupt(struct supervisor *s, struct box *b)
{
	(void)s;
	b->deadline_ns = now_ns() + LIMIT_INTERRUPT_S * SECOND_NS;
	/* One that is gone already will be told by init. */
	if (syscall(SYS_pidfd_send_signal, b->main_fd, SIGINT, NULL, 0) < 0 && errno != ESRCH)
		log_error("%s: interrupt its cell: %s", b->id, strerror(errno));
}

void sup_session_pause(struct supervisor *s, struct box *b)
{
	struct tell t = {.type = TELL_END, .req = b->req};
	uint64_t oom_kills;

	if (b->begun) {
		end_cell(s, b, &t.end, &oom_kills);
	} else {
		end_between(s, b, &oom_kills);
		box_describe(b, oom_kills, false, &t.end);
	}
	t.end.cell = b->cell;
	account_renew(s, b);
	forget_cell(b);
	b->deadline_ns = now_ns() + LIMIT_COLLECT_S * SECOND_NS;
	client_tell(b->client, &t, NULL, 0);
}

void sup_session_resume(struct supervisor *s, struct box *b)
{
	become_idle(s, b);
	thaw(s, b);
}

void sup_session_hears(struct supervisor *s, struct box *b, const struct gate_report *r)
{
	switch ((enum gate_report_type)r->type) {
	case GATE_PLACED:
		box_event(s, b, BOX_PLACED);
		return;
	case GATE_REFUSED:
		if (b->state == BOX_PLACING) {
			b->refused_errno = r->value;
			b->refused_index = r->index;
		}
		box_event(s, b, BOX_REFUSED);
		return;
	case GATE_DONE:
		if (b->state == BOX_CELL || b->state == BOX_INTERRUPTED) {
			b->status = r->value << 8; /* as waitpid() has it */
			b->have_status = true;
			b->ended_ns = now_ns();
		}
		box_event(s, b, BOX_DONE);
		return;
	case GATE_READY:
	case GATE_LOADED:
	case GATE_FAILED:
		break;
	}
	sup_session_goes_wrong(s, b, "its interpreter said what is not a session's to say");
}

void sup_session_goes_wrong(struct supervisor *s, struct box *b, const char *why)
{
	because(b, "%s", why);
	box_end(s, b, RUN_END_SIGNAL);
}

void sup_session_gate_closed(struct supervisor *s, struct box *b)
{
	/* A cell that has become another program, say, goes on to its end; there is no other after it. */
	if (b->state == BOX_IDLE || b->state == BOX_PLACING)
		sup_session_goes_wrong(s, b, "its interpreter has closed the gate");
}

/* ---- limits ---- */

void sup_session_expired(struct supervisor *s, struct box *b)
{
	switch (b->state) {
	case BOX_IDLE:
		because(b, "the session was idle for %us",
			s->config.session_idle_s ? s->config.session_idle_s : LIMIT_SESSION_IDLE_S);
		box_end(s, b, RUN_END_CANCELLED);
		break;
	case BOX_PLACING:
		sup_session_goes_wrong(s, b, "its interpreter did not take the cell in time");
		break;
	case BOX_CELL:
		box_interrupt(s, b, RUN_END_TIMEOUT);
		break;
	case BOX_INTERRUPTED:
		box_event(s, b, BOX_KILL);
		break;
	case BOX_PAUSED:
		/* Thawed while somebody may still be reading, its files could change under him. */
		sup_session_goes_wrong(s, b, "its files were not collected in time");
		break;
	default:
		sup_session_goes_wrong(s, b, "it did not freeze");
	}
}

void sup_session_outlived(struct supervisor *s, struct box *b)
{
	b->life_ns = 0;
	because(b, "the session's life of %us was over",
		s->config.session_life_s ? s->config.session_life_s : LIMIT_SESSION_LIFE_S);
	box_end(s, b, RUN_END_CANCELLED);
}

void sup_session_close(struct supervisor *s, struct box *b)
{
	because(b, "the session was closed");
	box_end(s, b, RUN_END_CANCELLED);
}

/* ---- the end ---- */

/* Of the session's own record: how it ended, and what was tried and used between its cells. The duration is the whole one. */
static void end_session(struct supervisor *s, struct box *b, const struct tell_end *last)
{
	struct note n;

	note_init_session(&n, NOTE_RUN_END, b);
	n.end = b->between;
	n.end.end = last->end;
	n.end.exit_code = last->exit_code;
	n.end.signal = last->signal;
	n.end.ran = b->any_ran;
	memcpy(n.end.layer, last->layer, sizeof last->layer);
	memcpy(n.end.detail, last->detail, sizeof last->detail);
	n.end.duration_us = (now_ns() - b->began_ns) / 1000;
	n.end.cell = b->cell;
	n.end.over = 1;
	notes_push(s, &n);
}

void sup_session_finish(struct supervisor *s, struct box *b)
{
	struct tell t = {.type = TELL_END, .req = b->req};
	const bool ours = b->asked && (b->failed_step != STEP_NONE || (b->end_known && b->end == RUN_END_BROKEN));
	uint64_t oom_kills = 0;

	t.end.over = 1;
	if (b->begun) {
		end_cell(s, b, &t.end, &oom_kills);
		t.end.cell = b->cell;
	} else {
		end_between(s, b, &oom_kills);
		/*
		 * It is the session that ended, and not some cell before its time; a cell that was asked for meanwhile is told
		 * that there is no session any more. But when it was we who could not go on, that is an error of the cell's.
		 */
		box_describe(b, oom_kills, !ours, &t.end);
		t.end.ran = 0;
		t.end.cell = ours ? b->cell : 0;
	}
	end_session(s, b, &t.end);
	client_tell(b->client, &t, NULL, 0);
}
