/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a policy asks of a sandbox beside its rules: it can only tighten what the limits table and the filter's table say. Fixed
 * when a sandbox is made, so a policy that asks for something else makes those that wait worthless.
 */
#include "supervisor/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/log.h"
#include "filter.h"

/* Below these the set-up itself fails, and a reload would leave nothing to run in. An interpreter takes some 7 MiB to start. */
#define LEAST_MEMORY_BYTES (16ull << 20)
#define LEAST_OPEN_FILES 40

/* What a sandbox has when its policy asks for nothing. */
struct most {
	uint64_t memory_bytes, cpu_percent, processes, open_files;
};

static const struct most mosts[SLOTS] = {
    [SLOT_SNIPPET] = {LIMIT_MEMORY_BYTES, LIMIT_CPU_PERCENT, LIMIT_PIDS, LIMIT_OPEN_FILES},
    [SLOT_TOOL] = {LIMIT_CALL_MEMORY_BYTES, LIMIT_CALL_CPU_PERCENT, LIMIT_CALL_PIDS, LIMIT_CALL_OPEN_FILES},
};

static int check_limits(const struct policy_limits *l, const struct most *most, struct err *e)
{
	const struct {
		const char *where;
		uint64_t asked, least, most;
	} rows[] = {
	    {"/limits/memory_bytes", l->memory_bytes, LEAST_MEMORY_BYTES, most->memory_bytes},
	    {"/limits/cpu_percent", l->cpu_percent, 1, most->cpu_percent},
	    {"/limits/processes", l->processes, 1, most->processes},
	    {"/limits/open_files", l->open_files, LEAST_OPEN_FILES, most->open_files},
	    {"/limits/datagram_sockets", l->datagram_sockets, 1, WEIR_SOCKETS_PER_SANDBOX},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		if (rows[i].asked && rows[i].asked < rows[i].least)
			return err_set(e, EOPNOTSUPP, rows[i].where,
				       "is %" PRIu64 ", and no sandbox starts with less than %" PRIu64, rows[i].asked,
				       rows[i].least);
		if (rows[i].asked > rows[i].most)
			return err_set(e, EOPNOTSUPP, rows[i].where,
				       "is %" PRIu64 ", and a sandbox has at most %" PRIu64 ": a policy can only tighten that",
				       rows[i].asked, rows[i].most);
	}
	return 0;
}

static int check(const struct inforce *f, enum slot slot, struct err *e)
{
	struct err inner = {0};
	int rc = filter_check(f->policy, &inner);

	if (rc == 0)
		rc = check_limits(&f->policy->limits, &mosts[slot], &inner);
	if (rc < 0 && e) {
		*e = inner;
		inforce_at_place(f, e);
	}
	return rc;
}

int supervisor_check_policy(const struct inforce *f, bool tools, struct err *e)
{
	return check(f, tools ? SLOT_TOOL : SLOT_SNIPPET, e);
}

void tighten_init(struct tightening *t)
{
	*t = (struct tightening){.filter_fd = -1};
}

void tighten_clear(struct tightening *t)
{
	cleanup_fdp(&t->filter_fd);
	tighten_init(t);
}

static uint64_t or_table(uint64_t asked, uint64_t table)
{
	return asked ? asked : table;
}

int tighten_make(struct tightening *ret, enum slot slot, const struct inforce *f, struct err *e)
{
	const struct policy_limits *l = &f->policy->limits;
	const struct most *most = &mosts[slot];
	struct tightening t = {
	    .cgroup = {.memory_bytes = or_table(l->memory_bytes, most->memory_bytes),
		       .cpu_percent = (unsigned)or_table(l->cpu_percent, most->cpu_percent),
		       .cpu_weight = POOL_WEIGHT_BUILDING,
		       .pids = (unsigned)or_table(l->processes, most->processes) + SANDBOX_PIDS_OWN},
	    .open_files = (uint32_t)or_table(l->open_files, most->open_files),
	    .filter_fd = -1,
	};
	int rc = check(f, slot, e);

	if (rc == 0)
		rc = filter_compile_snippet(f->policy, &t.filter_fd, &t.filter_len, e);
	if (rc == 0)
		*ret = t;
	return rc;
}

/* Whether a sandbox made under the one is as good under the other. */
static bool same_kind(const struct policy *a, const struct policy *b)
{
	bool same = !memcmp(&a->sockets, &b->sockets, sizeof a->sockets) && a->listen == b->listen &&
		    a->limits.memory_bytes == b->limits.memory_bytes && a->limits.cpu_percent == b->limits.cpu_percent &&
		    a->limits.processes == b->limits.processes && a->limits.open_files == b->limits.open_files &&
		    a->syscall_count == b->syscall_count;

	for (size_t i = 0; same && i < a->syscall_count; i++) {
		const struct policy_syscall_rule *x = &a->syscalls[i], *y = &b->syscalls[i];

		same = !strcmp(x->name, y->name) && x->kill == y->kill && x->error == y->error;
	}
	return same;
}

int tighten_admit(struct supervisor *s, enum slot slot, const struct inforce *fresh, struct err *e)
{
	s->rebuild = !same_kind(s->inforce[slot].policy, fresh->policy);
	return tighten_make(&s->next_tight, slot, fresh, e);
}

/* Between its probes and their judgement a policy may not change: such a sandbox is made anew. */
static bool is_worthless(const struct supervisor *s, const struct box *b)
{
	if (b->state == BOX_BUILDING)
		return s->rebuild || !b->probed;
	return (b->state == BOX_LOADING || b->state == BOX_WARM) && s->rebuild;
}

/* Of those that are made under this policy. */
static unsigned under_way(const struct supervisor *s, enum slot slot)
{
	const struct box *b;
	unsigned n = 0;

	TAILQ_FOREACH (b, &s->boxes, link)
		n += b->t->slot == slot && b->state >= BOX_CLAIMED && b->state <= BOX_ENDING;
	return n;
}

void tighten_admitted(struct supervisor *s, enum slot slot, bool in_force)
{
	unsigned running = under_way(s, slot);
	struct box *b, *next;

	if (in_force && s->next_tight.filter_fd >= 0) {
		tighten_clear(&s->tight[slot]);
		s->tight[slot] = s->next_tight;
		tighten_init(&s->next_tight);
	}
	tighten_clear(&s->next_tight);
	for (b = TAILQ_FIRST(&s->boxes); in_force && b; b = next) {
		next = TAILQ_NEXT(b, link);
		if (b->t->slot == slot && is_worthless(s, b))
			box_event(s, b, BOX_KILL);
	}
	if (in_force && s->rebuild)
		log_info(
		    "sockets, listen, syscalls or limits are others: the sandboxes that wait are made anew; %u under way keep "
		    "those they began with",
		    running);
	s->rebuild = false;
}
