/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second source of what a run used: what the kernel had counted of each of its tasks when it ended. It is added up by
 * cgroup over the life of a sandbox, and made a run's own by differences, in which what lives counts as far as it has come.
 */
#include "supervisor/attached.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"

#define BUDGET 256 /* events a turn */

/* ---- events ---- */

static void push(struct supervisor *s, struct box *b, const struct weir_meter_event *ev)
{
	struct note n;

	note_init(&n, NOTE_EXEC, b);
	n.exec = *ev;
	b->execs_dropped += !notes_push(s, &n);
}

/* Nobody has called it yet, and maybe nobody will. */
static void park(struct box *b, const struct weir_meter_event *ev)
{
	if (!b->execs)
		b->execs = calloc(WEIR_EXECS_PER_CGROUP, sizeof *b->execs);
	if (b->execs && b->exec_count < WEIR_EXECS_PER_CGROUP)
		b->execs[b->exec_count++] = *ev;
	else
		b->execs_dropped++;
}

static void on_event(void *ctx, const struct weir_meter_event *ev)
{
	struct supervisor *s = ctx;
	struct box *b = box_by_cgroup(s, ev->cgroup);

	if (!b) {
		attached_exec(s, ev);
		return;
	}
	if (b->begun || b->began_ns)
		push(s, b, ev);
	else if (b->t && b->t->call && b->state > BOX_BUILDING)
		park(b, ev); /* what its making starts is nobody's */
}

static void forget_parked(struct box *b)
{
	free(b->execs);
	b->execs = NULL;
	b->exec_count = 0;
}

void metered_tell_parked(struct supervisor *s, struct box *b)
{
	for (unsigned i = 0; i < b->exec_count; i++)
		push(s, b, &b->execs[i]);
	forget_parked(b);
}

void metered_drain(struct supervisor *s)
{
	if (s->meter)
		(void)meter_drain(s->meter, WEIR_METER_RING_BYTES / (int)sizeof(struct weir_meter_event), on_event, s);
}

static void on_ring(struct supervisor *s, struct source *src, uint32_t events)
{
	(void)src;
	(void)events;
	(void)meter_drain(s->meter, BUDGET, on_event, s);
}

/* ---- which ---- */

int metered_open(struct supervisor *s, struct err *e)
{
	int rc = meter_open(&s->meter, e);

	if (rc < 0)
		return rc;
	s->meter_src = (struct source){.fn = on_ring, .fd = fcntl(meter_ring_fd(s->meter), F_DUPFD_CLOEXEC, 0)};
	rc = s->meter_src.fd < 0 ? -errno : source_add(s, &s->meter_src, EPOLLIN);
	return rc < 0 ? err_errno(e, -rc, "meter", "watch its events") : 0;
}

int metered_add(struct supervisor *s, struct box *b, struct err *e)
{
	int rc = meter_add(s->meter, b->cgroup.id, s->cgroups.level, e);

	b->metered = rc == 0;
	b->base.meter_known = b->metered; /* it begins with nothing */
	return rc;
}

void metered_remove(struct supervisor *s, struct box *b)
{
	int rc = b->metered ? meter_remove(s->meter, b->cgroup.id, s->cgroups.level) : 0;

	if (rc < 0)
		log_error("%s: the meter keeps its entry: %s", b->id, strerror(-rc));
	b->metered = false;
	forget_parked(b);
}

/* ---- how much ---- */

/* As of now. False: it is not known, and that was logged. */
static bool read_sum(struct supervisor *s, const struct box *b, struct weir_meter *ret)
{
	const bool lives = b->pidfd.fd >= 0;
	struct err e = {0};

	if (!b->metered)
		return false;
	if ((lives ? meter_walk(s->meter, &e) : meter_settle(s->meter, &e)) == 0 &&
	    meter_read(s->meter, b->cgroup.id, true, ret, &e) == 0)
		return true;
	log_error("%s: what its tasks used is not known: %s", b->id, e.msg);
	return false;
}

/* CPU time of a process that has no thread but its first, microseconds. */
static uint64_t cpu_of(pid_t pid)
{
	_cleanup_fd_ int fd = -1;
	char path[64], text[96] = "";

	snprintf(path, sizeof path, "/proc/%d/schedstat", pid);
	fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
		return 0;
	return strtoull(text, NULL, 10) / 1000;
}

/* From zero, while nothing of it ends: what has ended by now is in nobody's difference any more. */
static void start_anew(struct supervisor *s, struct box *b, struct weir_meter *now)
{
	struct weir_meter ended;
	struct err e;

	if (meter_read(s->meter, b->cgroup.id, false, &ended, &e) < 0 || meter_reset(s->meter, b->cgroup.id) < 0)
		return; /* it goes on from where it is: as right, but for the largest process */
	now->cpu_ns -= ended.cpu_ns;
	now->written_bytes -= ended.written_bytes;
	now->read_bytes -= ended.read_bytes;
	now->threads -= ended.threads;
	now->processes -= ended.processes;
	now->execs = now->execs_unlisted = now->oom_victims = now->events = now->incomplete = 0;
}

void metered_begin(struct supervisor *s, struct box *b)
{
	struct weir_meter now = {0};

	metered_drain(s);
	forget_parked(b);
	b->walk_known = false;
	b->execs_dropped = 0;
	b->base.main_cpu_us = cpu_of(b->payload_pid);
	b->base.meter_known = read_sum(s, b, &now);
	if (b->base.meter_known)
		start_anew(s, b, &now);
	b->base.meter = now;
}

void metered_grant(struct supervisor *s, struct box *b)
{
	struct weir_meter now;

	b->walk_known = false;
	b->base.main_cpu_us = cpu_of(b->payload_pid);
	b->base.meter_known = read_sum(s, b, &now) && b->base.meter_known;
	if (b->base.meter_known)
		b->base.meter.cpu_ns = now.cpu_ns;
}

/* What it started, and its main process, which was there at the beginning; a command of the host's was not. */
static void set_counts(const struct box *b, const struct weir_meter *now, struct tell_meter *ret)
{
	const struct weir_meter *base = &b->base.meter;
	const unsigned main = base->processes != 0;

	ret->processes = grown(now->processes, base->processes) + main;
	ret->threads = grown(now->threads, base->threads) + main;
	ret->execs = grown(now->execs, base->execs);
	ret->execs_unlisted = (uint32_t)grown(now->execs_unlisted, base->execs_unlisted) + b->execs_dropped;
	ret->oom_victims = grown(now->oom_victims, base->oom_victims);
	ret->incomplete = (uint32_t)grown(now->incomplete, base->incomplete);
}

static void set_sums(const struct box *b, const struct weir_meter *now, struct tell_meter *ret)
{
	ret->there = 1;
	ret->cpu_us = grown(now->cpu_ns, b->base.meter.cpu_ns) / 1000;
	ret->peak_rss = now->peak_rss;
	ret->written_bytes = grown(now->written_bytes, b->base.meter.written_bytes);
	set_counts(b, now, ret);
}

void metered_look(struct supervisor *s)
{
	struct err e = {0};
	struct box *b = NULL;

	if (!s->meter)
		return;
	if (meter_walk(s->meter, &e) < 0) {
		log_error("what lives has used is not known: %s", e.msg);
		return;
	}
	TAILQ_FOREACH (b, &s->boxes, link) {
		b->walk_known = b->metered && meter_read(s->meter, b->cgroup.id, true, &b->walk, &e) == 0;
	}
	window_use_walked(s);
}

void metered_now(const struct box *b, struct tell_meter *ret)
{
	if (b->walk_known && b->base.meter_known)
		set_sums(b, &b->walk, ret);
}

void metered_end(struct supervisor *s, struct box *b, struct tell_meter *ret)
{
	struct weir_meter now = {0};
	bool known;

	metered_drain(s);
	b->walk_known = false;
	known = read_sum(s, b, &now);
	if (known && b->base.meter_known)
		set_sums(b, &now, ret);
	if (ret->there && !b->session) /* of its whole life, and so of no cell */
		ret->rusage_cpu_us = grown(b->rusage_cpu_us, b->base.main_cpu_us);
	/* One that is not known is nobody's: the next has a beginning of its own, or none. */
	b->execs_dropped = 0;
	b->base.meter = now;
	b->base.meter_known = known;
}

/* The highest use of main's memory counts anew; of its other processes' that live on, it does not. */
static void reset_peak(const struct box *b)
{
	static const char word[] = "5";
	_cleanup_fd_ int fd = -1;
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/clear_refs", b->payload_pid);
	fd = b->payload_pid > 0 ? open(path, O_WRONLY | O_CLOEXEC) : -1;
	if (fd < 0 || write(fd, word, sizeof word - 1) < 0)
		log_warn("%s: the largest process is that of all its cells: %s", b->id, strerror(errno));
}

void metered_renew(struct supervisor *s, struct box *b)
{
	b->walk_known = false;
	if (!b->metered)
		return;
	if (b->base.meter_known)
		start_anew(s, b, &b->base.meter);
	else
		(void)meter_renew(s->meter, b->cgroup.id); /* its sums say nothing; programs are listed all the same */
	reset_peak(b);
}

/* ---- the kernel ---- */

const char *boot_id(void)
{
	static char id[37];
	_cleanup_fd_ int fd = id[0] ? -1 : open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && read(fd, id, sizeof id - 1) != (ssize_t)sizeof id - 1)
		id[0] = '\0';
	return id;
}
