/* SPDX-License-Identifier: Apache-2.0 */
/* Notes that wait for the auditor: whose turn it is, and who has room while somebody else floods. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "supervisor/note_queue.h"

#define FLOODERS 16
#define DETAILS 420 /* of a run with 200 attempts and 20 programs */

static struct note_queue *q;

static int setup(void **state)
{
	(void)state;
	q = note_queue_new();
	return q ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	q = note_queue_free(q);
	return 0;
}

static struct note a_note(enum note_type type, const char *project, const char *run, unsigned number)
{
	struct note n = {.type = type, .wall_ns = number};

	snprintf(n.project, sizeof n.project, "%s", project);
	snprintf(n.run_id, sizeof n.run_id, "%s", run);
	return n;
}

static int put(enum note_type type, const char *project, const char *run, unsigned number)
{
	const struct note n = a_note(type, project, run, number);

	return note_queue_put(q, &n);
}

/* The next, taken out; type 0: there is none. */
static struct note take(void)
{
	struct note n = {0};

	if (note_queue_next(q, &n))
		note_queue_drop_next(q);
	return n;
}

/* Every run of a project at once, each with as many as it is let. */
static void flood(const char *project)
{
	char run[32];

	for (unsigned i = 0; i < 4096; i++)
		for (int k = 0; k < FLOODERS; k++) {
			snprintf(run, sizeof run, "%s-%d", project, k);
			(void)put(i % 2 ? NOTE_EVENT : NOTE_FLOW, project, run, i);
		}
}

static void test_a_record_is_in_order(void **state)
{
	static const enum note_type types[] = {NOTE_RUN_BEGIN, NOTE_EVENT, NOTE_SAMPLES, NOTE_RUN_END};
	unsigned seen[2] = {0};
	struct note n;

	(void)state;
	for (unsigned i = 0; i < 40; i++)
		for (int k = 0; k < 2; k++)
			assert_int_equal(put(types[i % 4], "p", k ? "one" : "two", i), 0);
	assert_int_equal(note_queue_count(q), 80);
	for (n = take(); n.type; n = take()) {
		unsigned *next = &seen[!strcmp(n.run_id, "one")];

		assert_int_equal(n.wall_ns, *next);
		assert_int_equal(n.type, types[*next % 4]);
		++*next;
	}
	assert_int_equal(seen[0], 40);
	assert_int_equal(seen[1], 40);
	assert_int_equal(note_queue_count(q), 0);
}

/* Whole, with zeros where its type has nothing. */
static void test_what_comes_out(void **state)
{
	struct note in = a_note(NOTE_EXEC, "p", "run", 7), out;

	(void)state;
	memset(&in.exec, 'x', sizeof in.exec);
	assert_int_equal(note_queue_put(q, &in), 0);
	memset(&out, 0xff, sizeof out);
	assert_true(note_queue_next(q, &out));
	assert_memory_equal(&in, &out, offsetof(struct note, exec) + sizeof in.exec);
	for (size_t i = offsetof(struct note, exec) + sizeof in.exec; i < sizeof out; i++)
		assert_int_equal(((unsigned char *)&out)[i], 0);
}

static void test_what_is_nobodys_comes_first(void **state)
{
	(void)state;
	put(NOTE_FLUSH, "", "", 0);
	put(NOTE_EVENT, "p", "run", 0);
	put(NOTE_EVENT, "", "", 0); /* nobody claims it: that may be a flood */
	put(NOTE_POLICY_TEXT, "", "", 1);
	put(NOTE_POLICY_TEXT, "", "", 2);
	assert_int_equal(take().wall_ns, 1);
	assert_int_equal(take().wall_ns, 2);
	assert_int_equal(take().type, NOTE_EVENT);
	assert_int_equal(take().type, NOTE_EVENT);
	assert_int_equal(take().type, NOTE_FLUSH);
	assert_int_equal(take().type, NOTE_NONE);
}

/* Many runs of one project: another project's run has room for all of its details, and is done long before the flood is. */
static void test_a_flood_takes_nobodys_place(void **state)
{
	unsigned heard = 0, taken = 0;
	struct note n;

	(void)state;
	flood("loud");
	assert_int_equal(put(NOTE_EVENT, "loud", "loud-3", 0), -ENOBUFS);
	assert_int_equal(put(NOTE_RUN_BEGIN, "quiet", "run", 0), 0);
	for (unsigned i = 1; i <= DETAILS; i++)
		assert_int_equal(put(NOTE_EVENT, "quiet", "run", i), 0);
	assert_int_equal(put(NOTE_RUN_END, "quiet", "run", DETAILS + 1), 0);
	assert_int_equal(put(NOTE_RUN_END, "loud", "loud-3", 0), 0);
	do {
		n = take();
		taken++;
		if (!strcmp(n.project, "quiet"))
			assert_int_equal(n.wall_ns, heard++);
	} while (n.type && heard < DETAILS + 2);
	assert_int_equal(heard, DETAILS + 2);
	assert_in_range(taken, 1, 2 * (DETAILS + 2));
}

/* Nor do several floods, one after the other. */
static void test_there_is_always_room_for_one_more(void **state)
{
	(void)state;
	flood("one");
	flood("two");
	flood("three");
	for (unsigned i = 0; i < DETAILS; i++)
		assert_int_equal(put(NOTE_EVENT, "quiet", "run", i), 0);
}

/* Among the runs of one project it is alike. */
static void test_another_run_of_the_same_project(void **state)
{
	(void)state;
	flood("p");
	for (unsigned i = 0; i < DETAILS; i++)
		assert_int_equal(put(NOTE_EVENT, "p", "another", i), 0);
}

/* A single run has room for all that one can have: flows, their ends, programs, refused calls, moments. */
static void test_one_run_alone(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 5000; i++)
		assert_int_equal(put(NOTE_EVENT, "p", "run", i), 0);
}

/* When all have been taken, all may be put again. */
static void test_room_comes_back(void **state)
{
	size_t before;

	(void)state;
	flood("p");
	before = note_queue_count(q);
	assert_in_range(before, NOTE_QUEUE_DETAILS / 3, NOTE_QUEUE_DETAILS / 2);
	while (take().type)
		;
	flood("p");
	assert_int_equal(note_queue_count(q), before);
}

static void test_the_rest_has_a_bound(void **state)
{
	unsigned n = 0;

	(void)state;
	flood("p");
	while (put(NOTE_RUN_BEGIN, "p", "run", 0) == 0)
		n++;
	assert_int_equal(n, NOTE_QUEUE_REST);
	assert_int_equal(put(NOTE_RUN_END, "other", "other", 0), -EPIPE);
	assert_int_equal(put(NOTE_POLICY, "", "", 0), -EPIPE);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
	    CASE(test_a_record_is_in_order),
	    CASE(test_what_comes_out),
	    CASE(test_what_is_nobodys_comes_first),
	    CASE(test_a_flood_takes_nobodys_place),
	    CASE(test_there_is_always_room_for_one_more),
	    CASE(test_another_run_of_the_same_project),
	    CASE(test_one_run_alone),
	    CASE(test_room_comes_back),
	    CASE(test_the_rest_has_a_bound),
	};

	return cmocka_run_group_tests_name("note queue", tests, NULL, NULL);
}
