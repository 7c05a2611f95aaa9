/* SPDX-License-Identifier: Apache-2.0 */
/* The record of one attachment: what its windows begin with, what is written meanwhile, and the sums at their end. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/tokens.h"
#include "supervisor/attached.h"

#define FULL_PARTS 4	   /* a window is full when so many parts, less one, of its flows are used */
#define KERNFS_HANDLE 0xfe /* the kernel's FILEID_KERNFS */
#define RING_EVENTS 4096   /* more than the ring of one holds */

static void init(const struct one *o, struct note *n, enum note_type type)
{
	note_init(n, type, NULL);
	snprintf(n->run_id, sizeof n->run_id, "%.36s.%u", o->a.id, o->a.record);
	snprintf(n->sandbox_id, sizeof n->sandbox_id, "%.47s", o->a.id);
	snprintf(n->project, sizeof n->project, PROJECT_ATTACHED);
}

static void push(struct supervisor *s, struct one *o, const struct note *n)
{
	o->dropped += !notes_push(s, n);
}

/* ---- what the kernel has counted ---- */

static bool has_moved(const struct weir_sandbox *now, const struct weir_sandbox *before)
{
	return now->attempts != before->attempts || now->inbound != before->inbound;
}

/* False when it can't be asked: its guard is not there. Nothing is lost where nothing was tried: that is not asked. */
static bool read_counters(const struct one *o, struct weir_sandbox *ret, uint64_t *ret_lost)
{
	uint64_t stats[WEIR_STAT_COUNT] = {[WEIR_STAT_RING_FULL] = o->at.seen_lost};
	struct weir_sandbox now = {0};
	struct err e;

	if (!o->guard)
		return false;
	if (o->a.parent)
		(void)guard_get_unknown(o->guard, &now);
	else if (guard_get_sandbox(o->guard, o->a.target.id, &now, &e) < 0)
		return false;
	if (has_moved(&now, &o->at.seen) && guard_stats(o->guard, stats, &e) < 0)
		return false;
	*ret = now;
	*ret_lost = stats[WEIR_STAT_RING_FULL];
	return true;
}

/* Counters only grow; one that does not is another's, made since. */
static uint64_t since(uint64_t now, uint64_t before)
{
	return now >= before ? now - before : now;
}

static void count(struct note_counts *ret, const struct weir_sandbox *now, const struct weir_sandbox *before)
{
	ret->attempts = since(now->attempts, before->attempts);
	ret->denied = since(now->denied, before->denied);
	ret->allowed = since(now->allowed, before->allowed);
	ret->would_deny = since(now->would_deny, before->would_deny);
	ret->inbound = since(now->inbound, before->inbound);
	ret->unlisted = since(now->unlisted, before->unlisted);
	ret->net_bytes = since(now->bytes, before->bytes);
}

static void keep(struct one *o)
{
	if (o->slot)
		progress_write(o->slot, &o->at);
}

static bool is_full(const struct one *o, const struct weir_sandbox *now)
{
	const uint64_t most = WEIR_FLOWS_PER_SANDBOX, most_inbound = WEIR_INBOUND_FLOWS_PER_SANDBOX;
	uint64_t flows = o->a.parent ? now->flows : guard_taken_flows(o->guard, now);
	uint64_t inbound = o->a.parent ? now->inbound_flows : guard_taken_inbound(o->guard, now);

	return flows >= most - most / FULL_PARTS || inbound >= most_inbound - most_inbound / FULL_PARTS;
}

void window_look(struct supervisor *s, struct one *o)
{
	(void)s;
	o->at.wall_ns = clock_wall_ns();
	if (read_counters(o, &o->at.seen, &o->at.seen_lost))
		o->full = is_full(o, &o->at.seen);
	window_use_look(o);
	keep(o);
}

/* ---- who of those below a carried parent ---- */

/* Its path from its id, which the kernel finds without a walk through a directory that may have thousands. */
static void find_cgroup(const char *root, uint64_t id, char *ret, size_t size)
{
	struct {
		struct file_handle head;
		uint64_t id;
	} by = {.head = {.handle_bytes = sizeof id, .handle_type = KERNFS_HANDLE}, .id = id};
	_cleanup_fd_ int top = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
	char link[64], path[PATH_MAX];
	const size_t skip = strlen(root);
	size_t len;
	ssize_t n;

	ret[0] = '\0';
	fd = top < 0 ? -1 : open_by_handle_at(top, &by.head, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof path - 1);
	if (n < (ssize_t)skip || strncmp(path, root, skip) != 0)
		return;
	path[n] = '\0';
	len = (size_t)n - skip;
	snprintf(ret, size, "%s%s", len >= size ? "..." : "", len >= size ? path + n - (size - 4) : path + skip);
}

/* Before its first event of a window, while it is most likely to be there still. */
static void put_cgroup(struct supervisor *s, struct one *o, uint64_t id)
{
	uint64_t *told = &o->told[id % ATTACHED_CGROUPS];
	struct note n;

	if (!o->a.parent || !id || *told == id)
		return;
	*told = id;
	init(o, &n, NOTE_CGROUP);
	n.cgroup.id = id;
	find_cgroup(o->all->roots.cgroup2, id, n.cgroup.path, sizeof n.cgroup.path);
	push(s, o, &n);
}

/* ---- events ---- */

static void put_event(struct supervisor *s, struct one *o, const struct weir_event *ev)
{
	struct note n;

	put_cgroup(s, o, ev->key.cgroup);
	init(o, &n, NOTE_EVENT);
	n.event = *ev;
	remembered_judged(&o->names, &ev->key, &n.judged);
	push(s, o, &n);
}

/* Its policy was replaced a moment ago, and the file does not say so yet: it can wait for its rule's name. */
static bool park(struct one *o, const struct weir_event *ev)
{
	if (o->a.parent || !ev->key.generation || remembered_has(&o->names, ev->key.generation) ||
	    o->parked_count == ATTACHED_PARKED)
		return false;
	if (!o->parked && !(o->parked = calloc(ATTACHED_PARKED, sizeof *o->parked)))
		return false;
	if (!o->parked_count)
		o->parked_ns = now_ns();
	o->parked[o->parked_count++] = *ev;
	return true;
}

void window_unpark(struct supervisor *s, struct one *o, bool all)
{
	unsigned kept = 0, count = o->parked_count;

	o->parked_count = 0;
	for (unsigned i = 0; i < count; i++) {
		struct weir_event *ev = &o->parked[i];

		if (!all && !remembered_has(&o->names, ev->key.generation))
			o->parked[kept++] = *ev;
		else
			put_event(s, o, ev);
	}
	o->parked_count = kept;
	if (kept)
		return;
	free(o->parked);
	o->parked = NULL;
}

struct draining {
	struct supervisor *s;
	struct one *o;
};

static void on_event(void *ctx, const struct weir_event *ev)
{
	struct draining *d = ctx;

	window_use_event(d->o, ev);
	if (!park(d->o, ev))
		put_event(d->s, d->o, ev);
}

void window_drain(struct supervisor *s, struct one *o, int budget)
{
	struct draining d = {s, o};

	if (o->guard)
		(void)guard_drain(o->guard, budget, on_event, &d);
}

/* ---- flows ---- */

struct flow_keys {
	struct weir_flow_key *keys;
	size_t count, room;
};

static void add_key(void *ctx, const struct weir_flow_key *key, const struct weir_flow *flow)
{
	struct flow_keys *f = ctx;

	(void)flow;
	if (f->count == f->room) {
		size_t room = f->room ? 2 * f->room : 64;
		struct weir_flow_key *more = reallocarray(f->keys, room, sizeof *more);

		if (!more)
			return; /* it stays, and is the next window's */
		f->keys = more;
		f->room = room;
	}
	f->keys[f->count++] = *key;
}

/* Those of a policy that came a moment ago are the next window's. */
static bool is_next(const struct one *o, const struct weir_flow_key *key)
{
	return !o->a.parent && key->generation > o->a.generation;
}

/* What each came to, which also frees its place in the kernel's map. */
static void put_flows(struct supervisor *s, struct one *o)
{
	struct flow_keys f = {0};
	struct err e = {0};

	if (!o->guard)
		return;
	guard_walk_flows(o->guard, add_key, &f);
	for (size_t i = 0; i < f.count; i++) {
		const struct weir_flow_key *key = &f.keys[i];
		struct note n;

		if (is_next(o, key))
			continue;
		put_cgroup(s, o, key->cgroup);
		init(o, &n, NOTE_FLOW);
		n.flow.key = *key;
		remembered_judged(&o->names, key, &n.judged);
		if (guard_take_flow(o->guard, key, &n.flow.count) == 0)
			push(s, o, &n);
	}
	free(f.keys);
	if (!o->a.parent && guard_renew_flows(o->guard, o->a.target.id, &e) < 0)
		log_error("%s: %s: what it tries from now on may be counted and not listed", o->a.id, e.msg);
}

/* ---- the beginning ---- */

static void put_place(struct supervisor *s, struct one *o, enum note_place which, const char *text)
{
	const size_t room = sizeof((struct note *)0)->place.text - 1, len = strlen(text);
	struct note n;

	if (!len)
		return;
	init(o, &n, NOTE_PLACE);
	n.place.which = which;
	/* Of a long one the end says more than the beginning. */
	snprintf(n.place.text, sizeof n.place.text, "%s%s", len > room ? "..." : "", len > room ? text + len - room + 3 : text);
	push(s, o, &n);
}

static void put_target(struct supervisor *s, struct one *o)
{
	const struct attachment *a = &o->a;
	struct note n;

	init(o, &n, NOTE_TARGET);
	n.target.cgroup = a->target.id;
	n.target.attached_ns = a->attached_ns;
	n.target.level = a->target.level;
	n.target.coverage = a->coverage;
	n.target.parent = a->parent;
	n.target.passes = a->unknown_passes;
	n.target.sockets = (uint32_t)(a->socket_count + a->sockets_beyond);
	n.target.sockets_beyond = (uint32_t)a->sockets_beyond;
	n.target.proven = a->canary.proven;
	n.target.canary_attempts = a->canary.attempts;
	n.target.canary_denied = a->canary.denied;
	snprintf(n.target.kind, sizeof n.target.kind, "%s", target_kind_names[a->target.kind]);
	snprintf(n.target.runtime, sizeof n.target.runtime, "%s", a->target.workload.runtime ? a->target.workload.runtime : "");
	snprintf(n.target.container, sizeof n.target.container, "%s", a->target.workload.container);
	snprintf(n.target.pod, sizeof n.target.pod, "%s", a->target.workload.pod);
	snprintf(n.target.why, sizeof n.target.why, "%.125s", a->canary.why);
	push(s, o, &n);
	put_place(s, o, PLACE_CGROUP, a->target.path);
	put_place(s, o, PLACE_REF, a->target.ref);
	if (a->canary.proven)
		put_place(s, o, PLACE_PROVEN, a->canary.leaf);
}

static void put_weaknesses(struct supervisor *s, struct one *o)
{
	struct note n;

	for (unsigned w = 0; w < WEAKNESSES; w++) {
		if (!(o->a.found.weak >> w & 1))
			continue;
		init(o, &n, NOTE_WEAKNESS);
		n.weak.weakness = w;
		snprintf(n.weak.detail, sizeof n.weak.detail, "%s", o->a.found.detail[w]);
		push(s, o, &n);
	}
}

static void put_sockets(struct supervisor *s, struct one *o, const struct attachment *a)
{
	struct note n;

	for (size_t i = 0; i < a->socket_count; i++) {
		const struct open_socket *k = &a->sockets[i];

		init(o, &n, NOTE_SOCKET);
		n.socket.pid = k->pid;
		n.socket.family = k->family;
		n.socket.protocol = k->protocol;
		n.socket.state = k->state;
		n.socket.verdict = k->verdict;
		n.socket.elsewhere = k->elsewhere;
		n.socket.connected = k->connected;
		n.socket.local_port = k->local_port;
		n.socket.remote_port = k->remote_port;
		memcpy(n.socket.local, k->local, sizeof n.socket.local);
		memcpy(n.socket.remote, k->remote, sizeof n.socket.remote);
		memcpy(n.socket.comm, k->comm, sizeof n.socket.comm);
		push(s, o, &n);
	}
}

static void put_gap(struct supervisor *s, struct one *o, const struct window_gap *gap)
{
	const struct progress_at *before = &gap->before;
	struct note n;

	init(o, &n, NOTE_UNDRAINED);
	n.undrained.since_ns = gap->known ? before->wall_ns : o->a.record > 1 ? 0 : o->a.attached_ns;
	count(&n.undrained.counts, &o->at.seen, &before->seen);
	n.undrained.ring_lost = since(o->at.seen_lost, before->seen_lost);
	n.undrained.unfinished = gap->known && before->open ? before->record : 0;
	snprintf(n.undrained.text, sizeof n.undrained.text, "%s",
		 !gap->known && o->a.record > 1
		     ? "how far the record was is not known any more: sums are those since it was attached"
		 : !gap->known	? "no service ran when it was attached"
		 : before->open ? "the service that wrote its events ended without a word; what it had counted is in this sum"
				: "the service that wrote its events was stopped");
	push(s, o, &n);
	if (!n.undrained.counts.attempts)
		log_info("%s: nobody wrote its events for a while, and nothing was tried meanwhile", o->a.id);
	else if (!n.undrained.counts.unlisted)
		log_info("%s: nobody wrote its events for a while: %" PRIu64 " attempts were made", o->a.id,
			 n.undrained.counts.attempts);
	else
		log_info("%s: nobody wrote its events for a while: %" PRIu64 " attempts were made, %" PRIu64
			 " of them have no details",
			 o->a.id, n.undrained.counts.attempts, n.undrained.counts.unlisted);
}

void window_begin(struct supervisor *s, struct one *o, const struct window_gap *gap, const struct attachment *sockets)
{
	const struct progress_at *before = &gap->before;
	struct note n;

	o->open = true;
	o->began_ns = now_ns();
	o->dropped = 0;
	o->full = false;
	memset(o->told, 0, sizeof o->told);
	o->at = (struct progress_at){.began_ns = clock_wall_ns(), .record = o->a.record, .open = 1};
	/* What one without an end had counted is told in this one's sum, with its flows, which are still in the kernel. */
	if (gap->known) {
		o->at.base = before->open ? before->base : before->seen;
		o->at.base_lost = before->open ? before->base_lost : before->seen_lost;
		o->at.seen = before->seen;
		o->at.seen_lost = before->seen_lost;
	}
	policy_text_tell(s, &o->policy);
	init(o, &n, NOTE_RUN_BEGIN);
	snprintf(n.begin.policy.name, sizeof n.begin.policy.name, "%s", o->a.policy_name);
	memcpy(n.begin.policy.hash, o->a.policy_hash, sizeof n.begin.policy.hash);
	n.begin.policy.generation = o->a.generation;
	n.begin.policy.quiet = o->policy.policy && !o->policy.policy->list_allowed;
	snprintf(n.begin.boot_id, sizeof n.begin.boot_id, "%s", boot_id());
	push(s, o, &n);
	put_target(s, o);
	put_weaknesses(s, o);
	if (sockets)
		put_sockets(s, o, sockets);
	window_look(s, o);
	window_use_begin(s, o, &o->at.seen);
	if (gap->told)
		put_gap(s, o, gap);
}

/* ---- as it goes ---- */

bool window_now(struct one *o, struct tell_usage *ret)
{
	struct weir_sandbox now = {0};
	struct note_counts c;
	uint64_t lost;

	if (!o->open || !read_counters(o, &now, &lost))
		return false;
	count(&c, &now, &o->at.base);
	ret->end = (struct tell_end){
	    .duration_us = (now_ns() - o->began_ns) / 1000,
	    .attempts = c.attempts,
	    .denied = c.denied,
	    .allowed = c.allowed,
	    .would_deny = c.would_deny,
	    .inbound = c.inbound,
	    .unlisted = c.unlisted,
	    .net_bytes = c.net_bytes,
	};
	window_use_now(o, &now, &ret->end);
	ret->flow_bytes = UINT64_MAX; /* that would be a walk through the kernel's whole map */
	return true;
}

bool window_is(const struct one *o, const char *run_id)
{
	char id[IPC_ID_MAX];

	snprintf(id, sizeof id, "%.36s.%u", o->a.id, o->a.record);
	return o->open && !strcmp(id, run_id);
}

/* ---- the end ---- */

void window_end(struct supervisor *s, struct one *o, enum window_end why, const char *detail)
{
	struct weir_sandbox now = {0};
	uint64_t lost = 0;
	struct note n;

	if (!o->open)
		return;
	window_drain(s, o, RING_EVENTS);
	/* Those of the policy that takes its place are the next window's. */
	if (why != WINDOW_POLICY)
		window_unpark(s, o, true);
	put_flows(s, o);
	metered_drain(s);
	init(o, &n, NOTE_WINDOW_END);
	n.window.why = why;
	n.window.unreadable = !read_counters(o, &now, &lost);
	if (n.window.unreadable) {
		/* What was seen last is the best that is known. */
		now = o->at.seen;
		lost = o->at.seen_lost;
	}
	n.window.duration_us = (now_ns() - o->began_ns) / 1000;
	count(&n.window.counts, &now, &o->at.base);
	window_use_end(s, o, &now, &n);
	n.window.dropped = o->dropped;
	snprintf(n.window.detail, sizeof n.window.detail, "%s", detail);
	metrics_window_ended(s, &n);
	push(s, o, &n);
	o->open = false;
	o->full = false;
	o->at.open = 0;
	o->at.wall_ns = clock_wall_ns();
	o->at.base = o->at.seen = now;
	o->at.base_lost = o->at.seen_lost = lost;
	keep(o);
}

void attached_exec(struct supervisor *s, const struct weir_meter_event *ev)
{
	struct one *o = NULL;
	struct note n;

	if (!s->attached)
		return;
	TAILQ_FOREACH (o, &s->attached->list, link) {
		if (o->a.target.id != ev->cgroup || !o->open)
			continue;
		init(o, &n, NOTE_EXEC);
		n.exec = *ev;
		o->use.execs_dropped += !notes_push(s, &n);
		return;
	}
}

void window_drift(struct supervisor *s, const struct one *o, const char *name, const char *text, bool over)
{
	struct note n;

	if (!o->open)
		return;
	init(o, &n, NOTE_DRIFT);
	n.drift.over = over;
	snprintf(n.drift.name, sizeof n.drift.name, "%s", name);
	snprintf(n.drift.text, sizeof n.drift.text, "%s", text);
	(void)notes_push(s, &n);
}
