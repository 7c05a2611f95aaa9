/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run used and tried: the difference between two readings of what the kernel counts. A session is read whenever one of
 * its cells begins or ends, while nothing in it moves, so that every attempt is in one record, and in the right one.
 */
#include "supervisor/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

#define FLOWS_FIRST 16

void box_remember_flow(struct box *b, const struct weir_flow_key *k)
{
	b->events += k->cgroup == b->cgroup.id;
	if (b->flow_count == b->flow_room) {
		unsigned room = b->flow_room ? 2 * b->flow_room : FLOWS_FIRST;
		struct weir_flow_key *more = reallocarray(b->flows, room, sizeof *more);

		if (!more) {
			b->flows_forgotten = true;
			return;
		}
		b->flows = more;
		b->flow_room = room;
	}
	b->flows[b->flow_count++] = *k;
}

/* Final counts of every listed flow, which also frees its place in the kernel's map. */
void box_report_flows(struct supervisor *s, struct box *b)
{
	for (unsigned i = 0; i < b->flow_count; i++) {
		const struct weir_flow_key *k = &b->flows[i];
		const enum slot slot = box_slot(b, k->cgroup);
		struct note n;

		note_init(&n, NOTE_FLOW, b);
		n.flow.key = *k;
		slot_judged(s, slot, k, &n.judged);
		if (guard_get_flow(s->guard, k, &n.flow.count) < 0)
			continue;
		if (slot != SLOT_CARRIER || k->verdict == WEIR_DENY) /* as in the events */
			notes_push_detail(s, b, &n);
		guard_del_flow(s->guard, k);
	}
	b->flow_count = 0;
}

static void begin_use(struct supervisor *s, struct box *b)
{
	struct cgroup_usage u;

	cgroup_box_usage(&b->cgroup, &s->cgroups, &u);
	b->base.cpu_us = u.cpu_us;
	b->base.oom_kills = u.oom_kills;
	metered_begin(s, b);
}

void account_begin(struct supervisor *s, struct box *b)
{
	struct err e;

	begin_use(s, b);
	refused_begin(b);
	if (b->guarded && guard_get_sandbox(s->guard, b->cgroup.id, &b->base.counters, &e) < 0)
		log_error("%s: its counters can't be read: %s", b->id, e.msg);
	b->base.events = b->events;
	b->events_dropped = b->details_dropped = 0;
}

void account_load(struct supervisor *s, struct box *b)
{
	begin_use(s, b);
	refused_begin(b);
}

void account_grant(struct supervisor *s, struct box *b)
{
	struct cgroup_usage u;

	cgroup_box_usage(&b->cgroup, &s->cgroups, &u);
	b->base.cpu_us = u.cpu_us;
	metered_grant(s, b);
}

/*
 * What the kernel has counted of it so far. Of its carrier, whose packets are its own once more, only what was refused there
 * adds to it.
 */
void account_counters(struct supervisor *s, const struct box *b, struct weir_sandbox *ret)
{
	struct weir_sandbox way;
	struct err e;

	if (guard_get_sandbox(s->guard, b->cgroup.id, ret, &e) < 0)
		log_error("%s: its counters can't be read: %s", b->id, e.msg);
	if (!b->way.guarded)
		return;
	if (guard_get_sandbox(s->guard, b->way.cgroup.id, &way, &e) < 0) {
		log_error("%s: the counters of its way out can't be read: %s", b->id, e.msg);
		return;
	}
	ret->attempts += way.denied;
	ret->denied += way.denied;
	ret->inbound += way.inbound;
}

bool account_tried(struct supervisor *s, const struct box *b)
{
	struct weir_sandbox now = b->base.counters;

	if (b->guarded && b->probed)
		account_counters(s, b, &now);
	return now.attempts != b->base.counters.attempts || now.inbound != b->base.counters.inbound;
}

static void set_attempts(struct tell_end *ret, const struct weir_sandbox *now, const struct weir_sandbox *base)
{
	ret->attempts = now->attempts - base->attempts;
	ret->denied = now->denied - base->denied;
	ret->allowed = now->allowed - base->allowed;
	ret->would_deny = now->would_deny - base->would_deny;
	ret->inbound = now->inbound - base->inbound;
	ret->unlisted = now->unlisted - base->unlisted;
	ret->net_bytes = now->bytes - base->bytes;
	ret->meter.packets = now->packets - base->packets;
	ret->meter.denied_packets = now->denied_packets - base->denied_packets;
	ret->meter.denied_bytes = now->denied_bytes - base->denied_bytes;
	ret->meter.watched_packets = now->watched_packets - base->watched_packets;
	ret->meter.watched_bytes = now->watched_bytes - base->watched_bytes;
}

static uint64_t since(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

/* Numbers that the kernel gave to events, less those events that came and were sent on. */
static uint64_t events_lost(const struct box *b, const struct weir_sandbox *now)
{
	return since(now->events - b->base.counters.events, b->events - b->base.events) + b->events_dropped;
}

void account_dropped(struct box *b, struct tell_meter *ret)
{
	ret->details_dropped = b->details_dropped;
	b->details_dropped = 0;
}

static void set_usage(const struct box *b, const struct cgroup_usage *u, struct tell_end *ret)
{
	ret->meter.oom_kills = since(u->oom_kills, b->base.oom_kills);
	ret->cpu_us = since(u->cpu_us, b->base.cpu_us);
	ret->memory_peak = u->memory_peak;
	snprintf(ret->cpu_source, sizeof ret->cpu_source, "%s", u->cpu_source);
	snprintf(ret->memory_source, sizeof ret->memory_source, "%s", u->memory_source);
}

/* As the record adds them up: what was let out, by the run itself. */
static uint64_t flow_bytes(struct supervisor *s, const struct box *b)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < b->flow_count; i++) {
		const struct weir_flow_key *k = &b->flows[i];
		struct weir_flow flow;

		if (k->verdict != WEIR_DENY && k->hook != WEIR_HOOK_INGRESS && k->cgroup == b->cgroup.id &&
		    guard_get_flow(s->guard, k, &flow) == 0)
			bytes += flow.bytes;
	}
	return bytes;
}

void account_now(struct supervisor *s, const struct box *b, struct tell_usage *ret)
{
	struct weir_sandbox now = b->base.counters;
	struct cgroup_usage u;

	cgroup_box_usage(&b->cgroup, &s->cgroups, &u);
	if (b->guarded)
		account_counters(s, b, &now);
	set_attempts(&ret->end, &now, &b->base.counters);
	set_usage(b, &u, &ret->end);
	metered_now(b, &ret->end.meter);
	ret->end.meter.syscalls_refused = b->refused ? refused_so_far(b) : REFUSED_UNKNOWN;
	ret->end.meter.syscalls_interrupted = REFUSED_UNKNOWN;
	ret->flow_bytes = b->guarded ? flow_bytes(s, b) : UINT64_MAX;
}

void account_end(struct supervisor *s, struct box *b, struct tell_end *ret, uint64_t *ret_oom_kills)
{
	struct weir_sandbox now = b->base.counters;
	struct cgroup_usage u;

	cgroup_box_usage(&b->cgroup, &s->cgroups, &u);
	if (b->guarded) {
		/* What the ring still holds is this run's too: out with it before the end is told. */
		notes_drain_all(s);
		account_counters(s, b, &now);
		if (b->begun || b->session || b->t->call)
			box_report_flows(s, b);
	}
	set_attempts(ret, &now, &b->base.counters);
	ret->meter.events_lost = events_lost(b, &now);
	metered_end(s, b, &ret->meter);
	set_usage(b, &u, ret);
	b->base.counters = now;
	b->base.events = b->events;
	b->events_dropped = 0;
	/* What could not be read is 0, and no baseline for the next. */
	if (u.cpu_us > b->base.cpu_us)
		b->base.cpu_us = u.cpu_us;
	if (u.oom_kills > b->base.oom_kills)
		b->base.oom_kills = u.oom_kills;
	*ret_oom_kills = u.oom_kills;
}

void account_renew(struct supervisor *s, struct box *b)
{
	struct err e;

	cgroup_box_reset_peak(&b->cgroup, &s->cgroups);
	metered_renew(s, b);
	if (b->guarded && guard_renew_flows(s->guard, b->cgroup.id, &e) < 0)
		log_error("%s: %s: what it tries from now on may be counted and not listed", b->id, e.msg);
}
