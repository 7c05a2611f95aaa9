/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/cleanup.h"
#include "core/log.h"
#include "ipc/metrics.h"
#include "kernel/bpfcost.h"
#include "supervisor/attached.h"
#include "supervisor/internal.h"

_Static_assert(METRICS_ATTACHED == ATTACH_STATES, "the table of states");

/* What is counted as it happens; everything else is asked for when somebody wants it. */
struct counted {
	struct metrics m;
	int measuring; /* keeps the kernel measuring; -1: it is not asked to */
	/* Ids of our own programs and of their maps: neither changes while they are loaded. */
	uint32_t program_ids[METRICS_BPF_PROGRAMS], map_ids[METRICS_BPF_MAPS];
	bool looked;
};

/* Made when it is needed first. NULL without memory: what was counted by then is lost, and a reset, as after a restart. */
static struct counted *counted(struct supervisor *s)
{
	if (s->counted)
		return s->counted;
	s->counted = calloc(1, sizeof *s->counted);
	if (!s->counted)
		return NULL;
	s->counted->measuring = -1;
	s->counted->m.started_ns = clock_boot_ns();
	return s->counted;
}

void metrics_open(struct supervisor *s)
{
	struct counted *c = counted(s);

	if (!c || !s->config.bpf_run_time)
		return;
	c->measuring = bpfcost_measure();
	if (c->measuring < 0)
		log_warn("metrics: the kernel does not measure how long programs run: %s", strerror(-c->measuring));
}

/* ---- what has ended ---- */

static void add_network(struct metrics_network *to, const uint64_t attempts[WEIR_VERDICT_COUNT], uint64_t bytes,
			const struct tell_meter *m)
{
	for (int i = 0; i < WEIR_VERDICT_COUNT; i++)
		to->attempts[i] += attempts[i];
	to->packets[WEIR_DENY] += m->denied_packets;
	to->bytes[WEIR_DENY] += m->denied_bytes;
	to->packets[WEIR_WOULD_DENY] += m->watched_packets;
	to->bytes[WEIR_WOULD_DENY] += m->watched_bytes;
	/* Both readings are of one moment, and what is watched is a part of what is let out. */
	if (m->packets >= m->watched_packets)
		to->packets[WEIR_ALLOW] += m->packets - m->watched_packets;
	if (bytes >= m->watched_bytes)
		to->bytes[WEIR_ALLOW] += bytes - m->watched_bytes;
}

static enum metrics_kind kind_of(const struct box *b)
{
	if (b->session)
		return METRICS_CELL;
	return b->t && b->t->call ? METRICS_CALL : METRICS_RUN;
}

/* Of the sandbox of the run; a session's is made once for all of its cells. */
static void add_stages(struct metrics *m, const struct box *b)
{
	if ((b->session && b->cell > 1) || b->verified_ns < b->made_ns || !b->made_ns)
		return;
	histogram_add(&m->build, (b->verified_ns - b->made_ns) / 1000);
	if (b->t && b->t->call && b->loaded_ns > b->verified_ns)
		histogram_add(&m->load, (b->loaded_ns - b->verified_ns) / 1000);
}

/* What was used and tried, in a run or between two cells. */
static void add_use(struct metrics *m, const struct tell_end *end)
{
	const uint64_t attempts[WEIR_VERDICT_COUNT] = {
	    [WEIR_DENY] = end->denied, [WEIR_ALLOW] = end->allowed, [WEIR_WOULD_DENY] = end->would_deny};

	add_network(&m->runs_network, attempts, end->net_bytes, &end->meter);
	m->runs_network.inbound += end->inbound;
	m->runs_network.unlisted += end->unlisted; /* every lost event's attempt is one of them */
	m->cpu_us += end->cpu_us;
	m->oom_kills += end->meter.oom_kills > end->meter.oom_victims ? end->meter.oom_kills : end->meter.oom_victims;
	m->execs += end->meter.execs;
	if (end->meter.syscalls_refused != UINT64_MAX)
		m->refused_syscalls += end->meter.syscalls_refused;
	if (end->meter.syscalls_interrupted != UINT64_MAX)
		m->interrupted_syscalls += end->meter.syscalls_interrupted;
}

void metrics_run_ended(struct supervisor *s, const struct box *b, const struct tell_end *end)
{
	struct counted *c = counted(s);

	if (!c || end->end >= RUN_END_COUNT)
		return;
	c->m.runs[kind_of(b)][end->end]++;
	c->m.processes += end->meter.processes;
	add_stages(&c->m, b);
	add_use(&c->m, end);
}

void metrics_between_ended(struct supervisor *s, const struct tell_end *t)
{
	struct counted *c = counted(s);

	if (!c)
		return;
	c->m.processes += t->meter.processes - (t->meter.processes > 0); /* its interpreter is its cells' */
	add_use(&c->m, t);
}

void metrics_window_ended(struct supervisor *s, const struct note *n)
{
	const struct note_counts *counts = &n->window.counts;
	const uint64_t attempts[WEIR_VERDICT_COUNT] = {
	    [WEIR_DENY] = counts->denied, [WEIR_ALLOW] = counts->allowed, [WEIR_WOULD_DENY] = counts->would_deny};
	struct counted *c = counted(s);

	if (!c)
		return;
	add_network(&c->m.attached_network, attempts, counts->net_bytes, &n->window.meter);
	c->m.attached_network.inbound += counts->inbound;
	c->m.attached_network.unlisted += counts->unlisted + n->window.dropped;
}

/* ---- what is so now ---- */

static void look_at_boxes(const struct supervisor *s, struct metrics *m)
{
	const struct box *b = NULL;

	TAILQ_FOREACH (b, &s->boxes, link) {
		m->sandboxes++;
		m->sessions += b->session;
	}
}

static void look_at_policies(const struct supervisor *s, struct metrics *m)
{
	static const enum slot slots[METRICS_POLICIES] = {SLOT_SNIPPET, SLOT_TOOL};

	for (int i = 0; i < METRICS_POLICIES; i++) {
		m->policy[i].in_use = s->guard && s->inforce[slots[i]].policy;
		if (m->policy[i].in_use)
			m->policy[i].generation = guard_get_generation(s->guard, slots[i]);
	}
	m->reloads_failed = s->failed_reloads;
	m->guarded = s->guard && !s->unguarded;
}

/* What an open window has seen so far is in no sum yet. */
static void look_at_attached(const struct supervisor *s, struct metrics *m)
{
	const struct one *o = NULL;

	if (!s->attached)
		return;
	m->attached_broken = s->attached->broken;
	TAILQ_FOREACH (o, &s->attached->list, link) {
		const struct weir_sandbox *now = &o->at.seen, *base = &o->at.base;
		const uint64_t attempts[WEIR_VERDICT_COUNT] = {
		    [WEIR_DENY] = now->denied - base->denied,
		    [WEIR_ALLOW] = now->allowed - base->allowed,
		    [WEIR_WOULD_DENY] = now->would_deny - base->would_deny,
		};
		const struct tell_meter packets = {
		    .packets = now->packets - base->packets,
		    .denied_packets = now->denied_packets - base->denied_packets,
		    .denied_bytes = now->denied_bytes - base->denied_bytes,
		    .watched_packets = now->watched_packets - base->watched_packets,
		    .watched_bytes = now->watched_bytes - base->watched_bytes,
		};

		if (o->looked && o->state < ATTACH_STATES)
			m->attached[o->state]++;
		if (!o->mine || !o->open)
			continue;
		add_network(&m->attached_network, attempts, now->bytes - base->bytes, &packets);
		m->attached_network.inbound += now->inbound - base->inbound;
		m->attached_network.unlisted += now->unlisted - base->unlisted;
	}
}

/* What can't be read is not 0. */
static void look_at_losses(const struct supervisor *s, struct metrics *m)
{
	struct err e;

	m->losses_known = !s->guard || guard_stats_by_hook(s->guard, m->events_lost, &e) == 0;
	if (!m->losses_known)
		log_error("metrics: %s", e.msg);
	m->meter_known = !s->meter || meter_stats(s->meter, m->meter_stats, &e) == 0;
	if (!m->meter_known)
		log_error("metrics: %s", e.msg);
}

/* ---- what our programs cost ---- */

static void remember_map(struct counted *c, uint32_t id)
{
	struct metrics *m = &c->m;
	struct bpfcost_map map = {0};

	for (uint32_t i = 0; i < m->map_count; i++)
		if (c->map_ids[i] == id)
			return;
	if (m->map_count == METRICS_BPF_MAPS || bpfcost_map(id, &map) < 0)
		return;
	c->map_ids[m->map_count] = id;
	memcpy(m->maps[m->map_count].name, map.name, sizeof map.name);
	m->maps[m->map_count++].memory = map.memory;
}

static void remember_program(struct counted *c, uint32_t id)
{
	struct metrics *m = &c->m;
	struct bpfcost_program p = {0};

	if (!id || m->program_count == METRICS_BPF_PROGRAMS || bpfcost_program(id, &p) < 0)
		return;
	c->program_ids[m->program_count] = id;
	memcpy(m->programs[m->program_count].name, p.name, sizeof p.name);
	m->programs[m->program_count++].memory = p.memory;
	for (uint32_t i = 0; i < p.map_count; i++)
		remember_map(c, p.maps[i]);
}

static void look_at_programs(struct supervisor *s, struct counted *c)
{
	uint32_t ids[GUARD_HOOKS] = {0}, meter_ids[METER_PROGRAMS] = {0};

	c->m.run_time = c->measuring >= 0;
	if (!c->looked) {
		if (s->guard)
			guard_programs(s->guard, ids);
		if (s->meter)
			meter_programs(s->meter, meter_ids);
		for (int i = 0; i < GUARD_HOOKS; i++)
			remember_program(c, ids[i]);
		for (int i = 0; i < METER_PROGRAMS; i++)
			remember_program(c, meter_ids[i]);
		c->looked = true;
	}
	for (uint32_t i = 0; c->measuring >= 0 && i < c->m.program_count; i++) {
		struct bpfcost_program p = {0};

		if (bpfcost_program(c->program_ids[i], &p) < 0)
			continue;
		c->m.programs[i].run_ns = p.run_ns;
		c->m.programs[i].runs = p.runs;
	}
}

/* ---- the answer ---- */

static int sealed_copy(const struct metrics *m)
{
	_cleanup_fd_ int fd = memfd_create("weir-metrics", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (write(fd, m, sizeof *m) != (ssize_t)sizeof *m)
		return -EIO;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -errno;
	return TAKE_FD(fd);
}

/* Without a file the asker has no answer, and says so. */
void metrics_tell(struct supervisor *s, struct client *c, uint64_t req)
{
	struct tell t = {.type = TELL_METRICS, .req = req};
	struct counted *all = counted(s);
	_cleanup_free_ struct metrics *m = all ? malloc(sizeof *m) : NULL;
	_cleanup_fd_ int fd = -1;

	if (m) {
		look_at_programs(s, all);
		*m = all->m;
		m->at_ns = clock_boot_ns();
		pool_state(s, &m->pool);
		look_at_boxes(s, m);
		look_at_policies(s, m);
		look_at_attached(s, m);
		look_at_losses(s, m);
		fd = sealed_copy(m);
	}
	if (fd < 0)
		log_error("metrics: can't be told: %s", strerror(m ? -fd : ENOMEM));
	client_tell(c, &t, &fd, fd >= 0);
}

void metrics_free(struct supervisor *s)
{
	if (!s->counted)
		return;
	cleanup_fdp(&s->counted->measuring);
	free(s->counted);
	s->counted = NULL;
}
