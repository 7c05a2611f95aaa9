/* SPDX-License-Identifier: Apache-2.0 */
#include "core/fair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"

static size_t bucket_of_name(const char *name)
{
	uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 0x100000001b3ull;
	return (hash ^ hash >> 32) % FAIR_BUCKETS;
}

/* Numbers of one owner are given one after the other: these spread them evenly. */
static size_t bucket_of_waiter(const void *owner, uint64_t req)
{
	return (((uintptr_t)owner >> 4) + req) % FAIR_BUCKETS;
}

static bool waits(const struct fair_project *p)
{
	return !TAILQ_EMPTY(&p->waiters);
}

/* Of one that waits. */
static enum fair_kind kind_of(const struct fair_project *p)
{
	return TAILQ_FIRST(&p->waiters)->alone ? FAIR_ALONE : FAIR_BESIDE;
}

/* ---- projects ---- */

static struct fair_project *find_project(const struct fair *f, const char *name)
{
	struct fair_project *p = f->projects[bucket_of_name(name)];

	while (p && strcmp(p->name, name) != 0)
		p = p->next_hashed;
	return p;
}

static struct fair_project *add_project(struct fair *f, const char *name)
{
	struct fair_project *p = calloc(1, sizeof *p), **bucket = &f->projects[bucket_of_name(name)];

	if (!p)
		return NULL;
	snprintf(p->name, sizeof p->name, "%s", name);
	TAILQ_INIT(&p->waiters);
	p->next_hashed = *bucket;
	*bucket = p;
	return p;
}

/* One that neither waits nor holds anything is forgotten. */
static void forget_project(struct fair *f, struct fair_project *p)
{
	struct fair_project **at = &f->projects[bucket_of_name(p->name)];

	if (p->held || waits(p))
		return;
	while (*at != p)
		at = &(*at)->next_hashed;
	*at = p->next_hashed;
	free(p);
}

/* To the end of the line of its kind. A line that nobody has stood in yet is all zero. */
static void line_up(struct fair *f, struct fair_project *p)
{
	struct fair_turns *line = &f->turns[kind_of(p)];

	if (!line->tqh_last)
		TAILQ_INIT(line);
	p->turn = ++f->turn;
	TAILQ_INSERT_TAIL(line, p, link);
}

/* ---- waiters ---- */

/* Its project keeps its place in line, unless its turn is over or it is of another kind now. */
static void take_out(struct fair *f, struct fair_waiter *w, bool turn_over)
{
	struct fair_waiter **at = &f->waiters[bucket_of_waiter(w->owner, w->req)];
	struct fair_project *p = w->project;
	enum fair_kind kind = kind_of(p);

	while (*at != w)
		at = &(*at)->next_hashed;
	*at = w->next_hashed;
	TAILQ_REMOVE(&p->waiters, w, link);
	free(w);
	f->waiting--;
	if (waits(p) && kind_of(p) == kind && !turn_over)
		return;
	TAILQ_REMOVE(&f->turns[kind], p, link);
	if (waits(p))
		line_up(f, p);
}

int fair_push(struct fair *f, const char *project, void *owner, uint64_t req, bool session)
{
	struct fair_project *p = find_project(f, project);
	struct fair_waiter *w, **bucket = &f->waiters[bucket_of_waiter(owner, req)];

	if (f->waiting >= LIMIT_POOL_WAITING)
		return -EAGAIN;
	if (!p && !(p = add_project(f, project)))
		return -ENOMEM;
	w = malloc(sizeof *w);
	if (!w) {
		forget_project(f, p);
		return -ENOMEM;
	}
	*w = (struct fair_waiter){.project = p,
				  .owner = owner,
				  .req = req,
				  .session = session,
				  .alone = !p->held && !waits(p),
				  .next_hashed = *bucket};
	*bucket = w;
	TAILQ_INSERT_TAIL(&p->waiters, w, link);
	f->waiting++;
	if (TAILQ_FIRST(&p->waiters) == w)
		line_up(f, p);
	return 0;
}

struct fair_waiter *fair_find(const struct fair *f, const void *owner, uint64_t req)
{
	struct fair_waiter *w = f->waiters[bucket_of_waiter(owner, req)];

	while (w && (w->owner != owner || w->req != req))
		w = w->next_hashed;
	return w;
}

void fair_drop(struct fair *f, struct fair_waiter *w)
{
	struct fair_project *p = w->project;

	take_out(f, w, false);
	forget_project(f, p);
}

void fair_drop_owner(struct fair *f, const void *owner)
{
	for (size_t i = 0; i < FAIR_BUCKETS; i++)
		for (struct fair_waiter *w = f->waiters[i], *next; w; w = next) {
			next = w->next_hashed;
			if (w->owner == owner)
				fair_drop(f, w);
		}
}

/* ---- turns ---- */

static struct fair_waiter *first_of(const struct fair_project *p)
{
	return p ? TAILQ_FIRST(&p->waiters) : NULL;
}

static const struct fair_project *nearer(const struct fair_project *a, const struct fair_project *b)
{
	return !b || (a && a->turn < b->turn) ? a : b;
}

struct fair_waiter *fair_first(const struct fair *f)
{
	return first_of(nearer(TAILQ_FIRST(&f->turns[FAIR_ALONE]), TAILQ_FIRST(&f->turns[FAIR_BESIDE])));
}

struct fair_waiter *fair_next(const struct fair *f, unsigned warm, unsigned reserve)
{
	const struct fair_project *beside = TAILQ_FIRST(&f->turns[FAIR_BESIDE]);

	if (warm > reserve)
		return fair_first(f);
	if (!warm)
		return NULL;
	/* Without an end to this, those who come and go one at a time could keep it waiting for ever. */
	if (beside && f->passed >= FAIR_PASSES)
		return first_of(beside);
	return first_of(TAILQ_FIRST(&f->turns[FAIR_ALONE]));
}

struct fair_project *fair_take(struct fair *f, struct fair_waiter *w)
{
	struct fair_project *p = w->project;

	f->passed = w->alone && !TAILQ_EMPTY(&f->turns[FAIR_BESIDE]) ? f->passed + 1 : 0;
	take_out(f, w, true);
	p->held++;
	f->held++;
	return p;
}

void fair_done(struct fair *f, struct fair_project *p)
{
	p->held--;
	f->held--;
	forget_project(f, p);
}

unsigned fair_halvings(unsigned held, unsigned halvings)
{
	if (held > 2u << halvings)
		return halvings + 1;
	/* Not where it went up: going to and fro around one number would change everything each time. */
	return halvings && held < 1u << halvings ? halvings - 1 : halvings;
}

unsigned fair_weight(unsigned halvings, unsigned whole)
{
	unsigned weight = whole >> halvings;

	return weight ? weight : 1;
}

void fair_clear(struct fair *f)
{
	for (size_t i = 0; i < FAIR_BUCKETS; i++) {
		for (struct fair_waiter *w = f->waiters[i], *next; w; w = next) {
			next = w->next_hashed;
			free(w);
		}
		for (struct fair_project *p = f->projects[i], *next; p; p = next) {
			next = p->next_hashed;
			free(p);
		}
	}
	memset(f, 0, sizeof *f);
}
