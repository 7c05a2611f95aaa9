/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "plan.h"

#define EVERY_NS 50000000ull /* looks, at first */

struct timeline {
	uint64_t began_ns, next_ns, every_ns;
	/* What counters said at the beginning: the run's own baseline is another's when its end is told. */
	uint64_t cpu_us;
	struct weir_sandbox counters;
	unsigned count;
	struct note_sample of[LIMIT_AUDIT_SAMPLES];
};

/* A command may run for months. */
static uint32_t at_most_32(uint64_t value)
{
	return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

/* Every second one goes, so that the rest are as far from each other as those that follow. */
static void thin_out(struct timeline *t)
{
	unsigned kept = 0;

	for (unsigned i = 1; i < t->count; i += 2)
		t->of[kept++] = t->of[i];
	t->count = kept;
	t->every_ns *= 2;
}

/* Nothing of it counts any more once it has ended, but for the last look. */
static bool is_watched(const struct box *b)
{
	return b->timeline && !b->ended_ns;
}

static void look(struct supervisor *s, const struct box *b, uint64_t at_ns)
{
	struct timeline *t = b->timeline;
	struct weir_sandbox counters = t->counters;
	const uint64_t own = b->t ? SANDBOX_PIDS_OWN : 0;
	struct cgroup_moment now;

	if (t->count == LIMIT_AUDIT_SAMPLES)
		thin_out(t);
	cgroup_box_moment(&b->cgroup, &s->cgroups, &now);
	if (b->guarded)
		account_counters(s, b, &counters);
	t->of[t->count++] = (struct note_sample){
	    .at_ms = at_most_32(grown(at_ns, t->began_ns) / 1000000),
	    .memory_kib = at_most_32(now.memory_bytes >> 10),
	    .cpu_ms = at_most_32(grown(now.cpu_us, t->cpu_us) / 1000),
	    .processes = at_most_32(grown(now.tasks, own)),
	    .attempts = grown(counters.attempts, t->counters.attempts),
	    .denied = grown(counters.denied, t->counters.denied),
	    .refused = refused_so_far(b),
	};
}

void timeline_begin(struct supervisor *s, struct box *b)
{
	struct timeline *t = calloc(1, sizeof *t);

	(void)s;
	timeline_drop(b);
	if (!t) {
		log_error("%s: no memory for its timeline", b->id);
		return;
	}
	t->began_ns = b->opened_ns;
	t->every_ns = EVERY_NS;
	t->next_ns = t->began_ns + EVERY_NS;
	t->cpu_us = b->base.cpu_us;
	t->counters = b->base.counters;
	b->timeline = t;
}

static void push(struct supervisor *s, struct box *b, const struct timeline *t)
{
	for (unsigned at = 0; at < t->count; at += NOTE_SAMPLES_MAX) {
		const unsigned left = t->count - at, some = left < NOTE_SAMPLES_MAX ? left : NOTE_SAMPLES_MAX;
		struct note n;

		note_init(&n, NOTE_SAMPLES, b);
		n.samples.count = some;
		memcpy(n.samples.of, &t->of[at], some * sizeof n.samples.of[0]);
		notes_push_detail(s, b, &n);
	}
}

void timeline_end(struct supervisor *s, struct box *b)
{
	if (!b->timeline)
		return;
	look(s, b, b->ended_ns ? b->ended_ns : now_ns());
	push(s, b, b->timeline);
	timeline_drop(b);
}

void timeline_drop(struct box *b)
{
	free(b->timeline);
	b->timeline = NULL;
}

void timeline_tick(struct supervisor *s)
{
	uint64_t now = 0;
	struct box *b = NULL;

	TAILQ_FOREACH (b, &s->boxes, link) {
		if (!is_watched(b))
			continue;
		now = now ? now : now_ns();
		if (b->timeline->next_ns > now)
			continue;
		look(s, b, now);
		/* One that was late is not made up for. */
		b->timeline->next_ns = now + b->timeline->every_ns;
	}
}

uint64_t timeline_wake_ns(const struct supervisor *s)
{
	const struct box *b;
	uint64_t at = 0;

	TAILQ_FOREACH (b, &s->boxes, link)
		if (is_watched(b) && (!at || b->timeline->next_ns < at))
			at = b->timeline->next_ns;
	return at;
}
