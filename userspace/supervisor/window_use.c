/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processes of an attachment's cgroup use in one window of its record: the files of cgroup2, which are its own
 * whoever made it, and the meter. Controllers of version 1 have hierarchies of their own, in which it has another place, or
 * none: what can't be read here has no source.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"
#include "supervisor/attached.h"

/* Where every file that there may be is looked for. */
static const struct cgroup_instance anywhere = {
    .host.v2_has = {[CG_MEMORY] = true, [CG_CPU] = true, [CG_PIDS] = true}, .v2_fd = -1, .v1_fd = {-1, -1, -1}};

static void start_meter(struct supervisor *s, struct one *o)
{
	struct window_use *u = &o->use;
	struct err e;

	if (u->metered || u->refused || !s->meter)
		return;
	u->metered = meter_add(s->meter, o->a.target.id, o->a.target.level, &e) == 0;
	u->refused = !u->metered;
	if (u->refused)
		log_error("%s (%s): what its tasks use is not in its record: %s", o->a.id, one_path(o), e.msg);
}

/* What it has come to, with what lives. */
static bool read_sum(struct supervisor *s, const struct one *o, struct weir_meter *ret, struct weir_meter *ret_ended)
{
	struct err e;

	if (!o->use.metered)
		return false;
	if (meter_walk(s->meter, &e) == 0 && meter_read(s->meter, o->a.target.id, false, ret_ended, &e) == 0 &&
	    meter_read(s->meter, o->a.target.id, true, ret, &e) == 0)
		return true;
	log_error("%s (%s): what its tasks used is not known: %s", o->a.id, one_path(o), e.msg);
	return false;
}

static void set_base(struct window_use *u, const struct weir_meter *now, const struct weir_meter *ended)
{
	u->walk_known = false;
	u->base = *now;
	u->processes_ended = ended->processes;
	u->threads_ended = ended->threads;
	u->base_cpu_us = u->seen.cpu_us;
	u->base_oom_kills = u->seen.oom_kills;
}

/* Another in its place is not it. Not kept open: there may be hundreds of them. */
static int open_directory(const struct one *o)
{
	char path[PATH_MAX + 256];
	_cleanup_fd_ int fd = -1;
	struct stat st;

	snprintf(path, sizeof path, "%s%s", o->all->roots.cgroup2, o->a.target.path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == o->a.target.id ? TAKE_FD(fd) : -1;
}

void window_use_look(struct one *o)
{
	struct cgroup_usage now;
	struct cgroup_box box;

	cgroup_box_init(&box);
	box.peak_old = true; /* the highest use of memory is that of its life: to set it back is not ours */
	box.v2_fd = open_directory(o);
	if (box.v2_fd < 0)
		return;
	cgroup_box_usage(&box, &anywhere, &now);
	if (now.cpu_source[0])
		o->use.seen = now;
	close(box.v2_fd);
}

void window_use_begin(struct supervisor *s, struct one *o, const struct weir_sandbox *now)
{
	struct window_use *u = &o->use;
	struct weir_meter sum = {0}, ended = {0};

	u->execs_dropped = 0;
	start_meter(s, o);
	if (u->metered && meter_renew(s->meter, o->a.target.id) < 0)
		log_error("%s (%s): programs that it starts may be counted and not listed", o->a.id, one_path(o));
	if (u->known)
		return; /* nothing is left out between two windows */
	u->known = true;
	window_use_look(o);
	u->base_known = read_sum(s, o, &sum, &ended);
	set_base(u, &sum, &ended);
	u->events_from = now->events;
	u->events = 0;
}

/* What waited in the ring when the first window began is this one's. */
void window_use_event(struct one *o, const struct weir_event *ev)
{
	if (ev->seq <= o->use.events_from && !o->use.events)
		o->use.events_from = ev->seq ? ev->seq - 1 : 0;
	o->use.events++;
}

static void put_packets(struct tell_meter *ret, const struct weir_sandbox *now, const struct weir_sandbox *before)
{
	ret->packets = grown(now->packets, before->packets);
	ret->denied_packets = grown(now->denied_packets, before->denied_packets);
	ret->denied_bytes = grown(now->denied_bytes, before->denied_bytes);
	ret->watched_packets = grown(now->watched_packets, before->watched_packets);
	ret->watched_bytes = grown(now->watched_bytes, before->watched_bytes);
}

/* Processes are those that were in it: the ones from before, and the ones that came. */
static void put_meter(struct tell_meter *ret, const struct window_use *u, const struct weir_meter *now)
{
	ret->there = 1;
	ret->cpu_us = grown(now->cpu_ns, u->base.cpu_ns) / 1000;
	ret->peak_rss = now->peak_rss;
	ret->written_bytes = grown(now->written_bytes, u->base.written_bytes);
	ret->processes = grown(now->processes, u->processes_ended);
	ret->threads = grown(now->threads, u->threads_ended);
	ret->execs = grown(now->execs, u->base.execs);
	ret->execs_unlisted = (uint32_t)grown(now->execs_unlisted, u->base.execs_unlisted) + u->execs_dropped;
	ret->oom_victims = grown(now->oom_victims, u->base.oom_victims);
	ret->incomplete = (uint32_t)grown(now->incomplete, u->base.incomplete);
}

void window_use_walked(struct supervisor *s)
{
	struct one *o = NULL;
	struct err e;

	if (!s->attached)
		return;
	TAILQ_FOREACH (o, &s->attached->list, link) {
		o->use.walk_known = o->use.metered && meter_read(s->meter, o->a.target.id, true, &o->use.walk, &e) == 0;
	}
}

static void put_seen(struct tell_end *ret, const struct window_use *u)
{
	if (!u->seen.cpu_source)
		return;
	ret->cpu_us = grown(u->seen.cpu_us, u->base_cpu_us);
	ret->memory_peak = u->seen.memory_peak;
	ret->meter.oom_kills = grown(u->seen.oom_kills, u->base_oom_kills);
	snprintf(ret->cpu_source, sizeof ret->cpu_source, "%s", u->seen.cpu_source);
	snprintf(ret->memory_source, sizeof ret->memory_source, "%s", u->seen.memory_source);
}

void window_use_now(struct one *o, const struct weir_sandbox *now, struct tell_end *ret)
{
	window_use_look(o);
	if (o->use.walk_known && o->use.base_known)
		put_meter(&ret->meter, &o->use, &o->use.walk);
	put_packets(&ret->meter, now, &o->at.base);
	ret->meter.syscalls_refused = ret->meter.syscalls_interrupted = REFUSED_UNKNOWN;
	put_seen(ret, &o->use);
}

void window_use_end(struct supervisor *s, struct one *o, const struct weir_sandbox *now, struct note *ret)
{
	struct window_use *u = &o->use;
	struct weir_meter sum = {0}, ended = {0};
	const bool known = read_sum(s, o, &sum, &ended);

	window_use_look(o);
	if (known && u->base_known)
		put_meter(&ret->window.meter, u, &sum);
	put_packets(&ret->window.meter, now, &o->at.base);
	ret->window.meter.events_lost = grown(grown(now->events, u->events_from), u->events);
	ret->window.meter.syscalls_refused = ret->window.meter.syscalls_interrupted = REFUSED_UNKNOWN;
	if (u->seen.cpu_source) {
		ret->window.cpu_us = grown(u->seen.cpu_us, u->base_cpu_us);
		ret->window.memory_peak = u->seen.memory_peak;
		ret->window.meter.oom_kills = grown(u->seen.oom_kills, u->base_oom_kills);
		snprintf(ret->window.cpu_source, sizeof ret->window.cpu_source, "%s", u->seen.cpu_source);
		snprintf(ret->window.memory_source, sizeof ret->window.memory_source, "%s", u->seen.memory_source);
	}
	/* One that is not known is nobody's: the next has a beginning of its own, or none. */
	set_base(u, &sum, &ended);
	u->base_known = known;
	u->events_from = now->events;
	u->events = 0;
}

void window_use_close(struct supervisor *s, struct one *o)
{
	struct window_use *u = &o->use;
	int rc = u->metered ? meter_remove(s->meter, o->a.target.id, o->a.target.level) : 0;

	if (rc < 0)
		log_error("%s: the meter keeps its entry: %s", o->a.id, strerror(-rc));
	memset(u, 0, sizeof *u);
}
