/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets the next sandbox: turns between projects, the reserve, and a model that the queue is compared with. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fair.h"
#include "core/limits.h"

static int client, other_client;

/* Gives one; the number of whose it was, 0: nobody's turn. */
static uint64_t give(struct fair *f, unsigned warm, unsigned reserve, struct fair_project **ret)
{
	struct fair_waiter *w = fair_next(f, warm, reserve);
	uint64_t req = w ? w->req : 0;
	struct fair_project *p = w ? fair_take(f, w) : NULL;

	if (ret)
		*ret = p;
	return req;
}

static void push(struct fair *f, const char *project, uint64_t req)
{
	assert_int_equal(fair_push(f, project, &client, req, false), 0);
}

static int make(void **state)
{
	*state = calloc(1, sizeof(struct fair));
	return *state ? 0 : -1;
}

static int unmake(void **state)
{
	fair_clear(*state);
	free(*state);
	return 0;
}

static void first_come_first_served_within_a_project(void **state)
{
	struct fair *f = *state;

	assert_null(fair_first(f));
	assert_null(fair_next(f, 5, 0));
	for (uint64_t req = 1; req <= 5; req++)
		push(f, "a", req);
	assert_int_equal(f->waiting, 5);
	for (uint64_t req = 1; req <= 5; req++)
		assert_int_equal(give(f, 1, 0, NULL), req);
	assert_int_equal(f->waiting, 0);
}

static void turn_by_turn_between_projects(void **state)
{
	struct fair *f = *state;
	static const uint64_t order[] = {1, 101, 201, 2, 102, 3, 4};

	for (uint64_t req = 1; req <= 4; req++)
		push(f, "a", req);
	push(f, "b", 101);
	push(f, "b", 102);
	push(f, "c", 201);
	for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
		assert_int_equal(give(f, 9, 0, NULL), order[i]);
}

/* The line that the whole thing is for. */
static void one_request_beside_a_flood_is_next(void **state)
{
	struct fair *f = *state;

	for (uint64_t req = 1; req <= 200; req++)
		push(f, "flood", req);
	assert_int_equal(give(f, 3, 1, NULL), 1);
	assert_int_equal(give(f, 2, 1, NULL), 2);
	/* The last one stays, however many wait .. */
	assert_int_equal(give(f, 1, 1, NULL), 0);
	/* .. and is there at once for another. */
	push(f, "single", 1000);
	assert_int_equal(give(f, 1, 1, NULL), 1000);
	assert_int_equal(give(f, 0, 1, NULL), 0);
	/* The next one that is ready is the reserve again, the one after it goes on with the flood. */
	assert_int_equal(give(f, 1, 1, NULL), 0);
	assert_int_equal(give(f, 2, 1, NULL), 3);
}

/* Its runs may be over faster than sandboxes are made: that it holds none for a moment makes it no single request. */
static void a_flood_of_short_runs_is_a_flood(void **state)
{
	struct fair *f = *state;
	struct fair_project *p;

	for (uint64_t req = 1; req <= 9; req++)
		push(f, "flood", req);
	assert_int_equal(give(f, 1, 1, &p), 1);
	fair_done(f, p);
	assert_int_equal(give(f, 1, 1, NULL), 0);
	push(f, "single", 1000);
	assert_int_equal(give(f, 1, 1, NULL), 1000);
	/* Nor that its first one is withdrawn, whichever that was. */
	push(f, "other", 2000);
	push(f, "other", 2001);
	fair_drop(f, fair_find(f, &client, 2));
	fair_drop(f, fair_find(f, &client, 2000));
	assert_int_equal(give(f, 1, 1, NULL), 0);
	assert_int_equal(give(f, 2, 1, NULL), 3);
	assert_int_equal(give(f, 2, 1, NULL), 2001);
}

static void a_withdrawal_costs_no_turn(void **state)
{
	struct fair *f = *state;

	push(f, "a", 1);
	push(f, "a", 2);
	push(f, "b", 3);
	assert_int_equal(give(f, 2, 0, NULL), 1);
	push(f, "a", 4);
	assert_int_equal(give(f, 2, 0, NULL), 3);
	push(f, "b", 5);
	fair_drop(f, fair_find(f, &client, 2));
	assert_int_equal(give(f, 2, 0, NULL), 4);
	assert_int_equal(give(f, 2, 0, NULL), 5);
}

static void a_project_that_gave_all_back_is_like_new(void **state)
{
	struct fair *f = *state;
	struct fair_project *p;

	push(f, "a", 1);
	assert_int_equal(give(f, 1, 1, &p), 1);
	push(f, "a", 2);
	assert_int_equal(give(f, 1, 1, NULL), 0);
	fair_drop(f, fair_find(f, &client, 2));
	fair_done(f, p);
	push(f, "a", 3);
	assert_int_equal(give(f, 1, 1, &p), 3);
	fair_done(f, p);
	/* Forgotten altogether. */
	for (size_t i = 0; i < FAIR_BUCKETS; i++)
		assert_null(f->projects[i]);
}

/* A pool that others empty one at a time as fast as it is filled keeps nobody waiting for ever. */
static void the_reserve_starves_nobody(void **state)
{
	struct fair *f = *state;
	unsigned grants = 0;
	struct fair_project *p;
	char name[16];

	push(f, "a", 1); /* say a session: never given back */
	assert_int_equal(give(f, 2, 1, NULL), 1);
	push(f, "a", 2);
	for (;; grants++) {
		uint64_t got;

		assert_true(grants <= FAIR_PASSES);
		snprintf(name, sizeof name, "p%u", grants);
		push(f, name, 1000 + grants);
		got = give(f, 1, 1, &p);
		if (got == 2)
			break;
		assert_int_equal(got, 1000 + grants);
		fair_done(f, p);
	}
	assert_int_equal(grants, FAIR_PASSES);
	/* And from there the others again. */
	assert_int_equal(give(f, 1, 1, NULL), 1000 + FAIR_PASSES);
}

static void together_they_weigh_like_two_at_most(void **state)
{
	unsigned halvings = 0, changes = 0, was;

	(void)state;
	for (unsigned held = 1; held <= 100; held++) {
		was = halvings;
		halvings = fair_halvings(held, was);
		changes += halvings - was;
		assert_true(held * fair_weight(halvings, 1000) <= 2000);
		assert_true(held * fair_weight(halvings, 1000) >= 950);
	}
	assert_int_equal(changes, 6); /* at 3, 5, 9, 17, 33, 65 */
	assert_int_equal(fair_weight(halvings, 1000), 1000 / 64);
	assert_int_equal(fair_weight(halvings, 10), 1);
	/* To and fro around one number changes nothing .. */
	assert_int_equal(fair_halvings(64, halvings), halvings);
	assert_int_equal(fair_halvings(65, halvings), halvings);
	/* .. and going down to nothing ends where it began. */
	for (unsigned held = 99; held > 0; held--) {
		halvings = fair_halvings(held, halvings);
		assert_true(held * fair_weight(halvings, 1000) <= 2000);
	}
	assert_int_equal(halvings, 0);
	assert_int_equal(fair_halvings(0, 0), 0);
}

static void withdrawn(void **state)
{
	struct fair *f = *state;

	push(f, "a", 1);
	push(f, "a", 2);
	push(f, "b", 3);
	assert_int_equal(fair_push(f, "b", &other_client, 1, true), 0);
	assert_null(fair_find(f, &other_client, 2));
	assert_true(fair_find(f, &other_client, 1)->session);
	assert_false(fair_find(f, &client, 1)->session);
	fair_drop(f, fair_find(f, &client, 1));
	assert_null(fair_find(f, &client, 1));
	assert_non_null(fair_find(f, &other_client, 1));
	fair_drop(f, fair_find(f, &client, 2));
	assert_int_equal(f->waiting, 2);
	assert_int_equal(fair_first(f)->req, 3);
	fair_drop_owner(f, &client);
	assert_int_equal(f->waiting, 1);
	assert_int_equal(fair_first(f)->req, 1);
	fair_drop_owner(f, &other_client);
	assert_null(fair_first(f));
	for (size_t i = 0; i < FAIR_BUCKETS; i++)
		assert_null(f->projects[i]);
}

static void as_many_as_may_wait(void **state)
{
	struct fair *f = *state;
	char name[16];

	for (uint64_t i = 0; i < LIMIT_POOL_WAITING; i++) {
		snprintf(name, sizeof name, "p%u", (unsigned)(i % 3000));
		assert_int_equal(fair_push(f, name, &client, i, false), 0);
	}
	assert_int_equal(fair_push(f, "one-more", &client, LIMIT_POOL_WAITING, false), -EAGAIN);
	assert_null(fair_find(f, &client, LIMIT_POOL_WAITING));
	/* Every project once before any a second time. */
	for (uint64_t i = 0; i < LIMIT_POOL_WAITING; i++)
		assert_int_equal(give(f, 2, 1, NULL), i);
}

/* Steps of one operation with `n` waiting: pointers followed are what grows, and chains must not. */
static void chains_stay_short(void **state)
{
	struct fair *f = *state;
	size_t longest = 0;
	char name[16];

	for (uint64_t i = 0; i < LIMIT_POOL_WAITING; i++) {
		snprintf(name, sizeof name, "p%u", (unsigned)i);
		assert_int_equal(fair_push(f, name, &client, i, false), 0);
	}
	for (size_t i = 0; i < FAIR_BUCKETS; i++) {
		size_t n = 0;

		for (struct fair_waiter *w = f->waiters[i]; w; w = w->next_hashed)
			n++;
		longest = n > longest ? n : longest;
		n = 0;
		for (struct fair_project *p = f->projects[i]; p; p = p->next_hashed)
			n++;
		longest = n > longest ? n : longest;
	}
	assert_true(longest <= 4 * LIMIT_POOL_WAITING / FAIR_BUCKETS);
}

/* ---- against a model: a plain array, scanned ---- */

#define MODEL_MAX 64
struct model {
	struct {
		uint64_t req;
		unsigned project;
		bool alone;
	} waiting[MODEL_MAX];
	unsigned count;
	unsigned held[8];
};

static void model_remove(struct model *m, unsigned i)
{
	memmove(&m->waiting[i], &m->waiting[i + 1], (m->count - i - 1) * sizeof m->waiting[0]);
	m->count--;
}

static unsigned model_index(const struct model *m, uint64_t req)
{
	unsigned i = 0;

	while (i < m->count && m->waiting[i].req != req)
		i++;
	assert_true(i < m->count);
	return i;
}

static unsigned pick(unsigned n)
{
	return (unsigned)rand() % n;
}

/*
 * What must hold whatever happened before: oldest of its project, the reserve only to who came alone, somebody whenever there
 * is more than the reserve, and nobody passed more often than there are projects (with FAIR_PASSES for the reserve).
 */
static void any_order_of_events(void **state)
{
	struct fair *f = *state;
	static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
	struct fair_project *granted[MODEL_MAX];
	unsigned granted_to[MODEL_MAX], granted_count = 0, passed[8] = {0};
	struct model m = {0};

	srand(20);
	for (uint64_t step = 1; step < 200000; step++) {
		unsigned what = pick(8), warm = pick(4), reserve = pick(2);

		if (what < 3 && m.count < MODEL_MAX) {
			unsigned project = pick(3) ? 0 : pick(8);

			bool alone = !m.held[project];

			for (unsigned k = 0; k < m.count; k++)
				alone = alone && m.waiting[k].project != project;
			assert_int_equal(fair_push(f, names[project], &client, step, false), 0);
			m.waiting[m.count].req = step;
			m.waiting[m.count].alone = alone;
			m.waiting[m.count++].project = project;
		} else if (what == 3 && m.count) {
			unsigned i = pick(m.count);

			fair_drop(f, fair_find(f, &client, m.waiting[i].req));
			model_remove(&m, i);
		} else if (what == 4 && granted_count) {
			unsigned i = pick(granted_count);

			fair_done(f, granted[i]);
			m.held[granted_to[i]]--;
			granted[i] = granted[--granted_count];
			granted_to[i] = granted_to[granted_count];
		} else if (granted_count < MODEL_MAX) {
			struct fair_waiter *w = fair_next(f, warm, reserve);
			unsigned i, project;

			if (!w) {
				bool alone = false;

				for (i = 0; i < m.count; i++)
					alone = alone || m.waiting[i].alone;
				assert_false(m.count && warm > reserve);
				assert_false(warm && alone);
				continue;
			}
			i = model_index(&m, w->req);
			project = m.waiting[i].project;
			assert_string_equal(w->project->name, names[project]);
			for (unsigned k = 0; k < i; k++)
				assert_int_not_equal(m.waiting[k].project, project);
			assert_true(warm > 0);
			if (warm <= reserve && !m.waiting[i].alone)
				assert_true(f->passed >= FAIR_PASSES);
			for (unsigned k = 0; k < 8; k++) {
				bool waits = false;

				for (unsigned j = 0; j < m.count; j++)
					waits = waits || m.waiting[j].project == k;
				passed[k] = waits && k != project ? passed[k] + 1 : 0;
				/* A turn of each, twice when its own last one came back in between, and the passes. */
				assert_true(passed[k] <= (2 + FAIR_PASSES) * 8);
			}
			granted[granted_count] = fair_take(f, w);
			granted_to[granted_count++] = project;
			m.held[project]++;
			model_remove(&m, i);
		}
		assert_int_equal(f->waiting, m.count);
		assert_int_equal(f->held, granted_count);
	}
	while (granted_count)
		fair_done(f, granted[--granted_count]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(first_come_first_served_within_a_project, make, unmake),
	    cmocka_unit_test_setup_teardown(turn_by_turn_between_projects, make, unmake),
	    cmocka_unit_test_setup_teardown(one_request_beside_a_flood_is_next, make, unmake),
	    cmocka_unit_test_setup_teardown(a_flood_of_short_runs_is_a_flood, make, unmake),
	    cmocka_unit_test_setup_teardown(a_withdrawal_costs_no_turn, make, unmake),
	    cmocka_unit_test_setup_teardown(a_project_that_gave_all_back_is_like_new, make, unmake),
	    cmocka_unit_test_setup_teardown(the_reserve_starves_nobody, make, unmake),
	    cmocka_unit_test_setup_teardown(together_they_weigh_like_two_at_most, make, unmake),
	    cmocka_unit_test_setup_teardown(withdrawn, make, unmake),
	    cmocka_unit_test_setup_teardown(as_many_as_may_wait, make, unmake),
	    cmocka_unit_test_setup_teardown(chains_stay_short, make, unmake),
	    cmocka_unit_test_setup_teardown(any_order_of_events, make, unmake),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
