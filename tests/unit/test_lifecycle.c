/* SPDX-License-Identifier: Apache-2.0 */
/* The life-cycle table and the plan's table: walked whole. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

#include "core/lifecycle.h"
#include "plan.h"

/* The states of a session's circle. */
static bool goes_round(int s)
{
	return s >= BOX_IDLE && s <= BOX_PAUSED;
}

static void no_way_back(void **state)
{
	(void)state;
	for (int s = 0; s < BOX_STATES; s++)
		for (int ev = 0; ev < BOX_EVENTS; ev++) {
			struct box_transition t = box_next((enum box_state)s, (enum box_event)ev);

			assert_true(t.next < BOX_STATES);
			/* What has been used, or is ending, is never offered again. A session comes back to itself alone. */
			assert_true((int)t.next >= s || (goes_round(s) && t.next == BOX_IDLE));
			if (goes_round(s))
				assert_true(goes_round((int)t.next) || t.next >= BOX_ENDING);
			else if (goes_round((int)t.next))
				assert_true(s == BOX_WARM && ev == BOX_OPEN && t.action == BOX_DO_OPEN);
		}
}

static void code_runs_only_through_the_gate(void **state)
{
	(void)state;
	for (int s = 0; s < BOX_STATES; s++)
		for (int ev = 0; ev < BOX_EVENTS; ev++) {
			struct box_transition t = box_next((enum box_state)s, (enum box_event)ev);

			/* One cell alone opens the gate, one alone grants, and both only move one step on. */
			assert_int_equal(t.action == BOX_DO_OPEN_GATE, s == BOX_CLAIMED && ev == BOX_START);
			assert_int_equal(t.next == BOX_RUNNING && s != BOX_RUNNING, t.action == BOX_DO_OPEN_GATE);
			assert_int_equal(t.action == BOX_DO_GRANT, s == BOX_WARM && ev == BOX_CLAIM);
			assert_int_equal(t.action == BOX_DO_OPEN, s == BOX_WARM && ev == BOX_OPEN);
			/* Ready is what has been verified, and of a tool's, what has its modules besides. */
			assert_int_equal(t.action == BOX_DO_OFFER,
					 (s == BOX_BUILDING && ev == BOX_READY) || (s == BOX_LOADING && ev == BOX_LOADED));
			assert_int_equal(t.next == BOX_WARM && s != BOX_WARM, t.action == BOX_DO_OFFER);
			/* An agent's modules run once, and only after everything is verified. */
			assert_int_equal(t.action == BOX_DO_LOAD, s == BOX_BUILDING && ev == BOX_LOAD);
			assert_int_equal(t.next == BOX_LOADING && s != BOX_LOADING, t.action == BOX_DO_LOAD);
			/* A session's gate opens when the client has said so, the harness has it all, and nothing moves. */
			assert_int_equal(t.action == BOX_DO_OPEN_CELL, s == BOX_STARTING && ev == BOX_FROZEN);
			assert_int_equal(t.next == BOX_CELL && s != BOX_CELL, t.action == BOX_DO_OPEN_CELL);
			assert_int_equal(t.action == BOX_DO_AWAIT, s == BOX_IDLE && ev == BOX_START);
			if (t.next == BOX_STARTING && s != BOX_STARTING)
				assert_true(s == BOX_PLACING && ev == BOX_PLACED && t.action == BOX_DO_FREEZE);
		}
}

/* One path through the table: what is done on the way. */
static void walk(enum box_state from, const enum box_event *events, const struct box_transition *want, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct box_transition t = box_next(from, events[i]);

		assert_int_equal(t.next, want[i].next);
		assert_int_equal(t.action, want[i].action);
		from = t.next;
	}
}

#define WALK(from, events, want) walk(from, events, want, sizeof(events) / sizeof(events)[0])

static void a_session_goes_round(void **state)
{
	static const enum box_event whole[] = {BOX_START, BOX_PLACED, BOX_FROZEN, BOX_DONE, BOX_FROZEN, BOX_COLLECTED};
	static const struct box_transition done[] = {{BOX_PLACING, BOX_DO_AWAIT},  {BOX_STARTING, BOX_DO_FREEZE},
						     {BOX_CELL, BOX_DO_OPEN_CELL}, {BOX_FREEZING, BOX_DO_FREEZE},
						     {BOX_PAUSED, BOX_DO_PAUSE},   {BOX_IDLE, BOX_DO_RESUME}};
	static const enum box_event stopped[] = {BOX_INTERRUPT, BOX_INTERRUPT, BOX_DONE};
	static const struct box_transition stops[] = {
	    {BOX_INTERRUPTED, BOX_DO_INTERRUPT}, {BOX_INTERRUPTED, BOX_DO_NOTHING}, {BOX_FREEZING, BOX_DO_FREEZE}};
	static const enum box_event refused[] = {BOX_START, BOX_REFUSED};
	static const struct box_transition declined[] = {{BOX_PLACING, BOX_DO_AWAIT}, {BOX_IDLE, BOX_DO_DECLINE}};

	(void)state;
	WALK(BOX_IDLE, whole, done);
	WALK(BOX_CELL, stopped, stops);
	WALK(BOX_IDLE, refused, declined);
}

static void files_are_read_only_while_all_is_frozen(void **state)
{
	(void)state;
	for (int s = 0; s < BOX_STATES; s++)
		for (int ev = 0; ev < BOX_EVENTS; ev++) {
			struct box_transition t = box_next((enum box_state)s, (enum box_event)ev);

			/* The end of a cell is told from one place: when the kernel has said that nothing moves .. */
			assert_int_equal(t.action == BOX_DO_PAUSE, s == BOX_FREEZING && ev == BOX_FROZEN);
			assert_int_equal(t.next == BOX_PAUSED && s != BOX_PAUSED, t.action == BOX_DO_PAUSE);
			/* .. and it moves again, but to its death, when its files have been read. */
			assert_int_equal(t.action == BOX_DO_RESUME, s == BOX_PAUSED && ev == BOX_COLLECTED);
			if (s == BOX_PAUSED && t.next != BOX_PAUSED)
				assert_true(t.next == BOX_IDLE || t.next == BOX_ENDING || t.next == BOX_GONE);
		}
}

/* Every word that an interpreter can say, in every state where it is not its turn. */
static void who_speaks_out_of_turn_is_ended(void **state)
{
	static const enum box_event words[] = {BOX_LOADED, BOX_PLACED, BOX_REFUSED, BOX_DONE};

	(void)state;
	for (int s = 0; s < BOX_ENDING; s++)
		for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
			enum box_event ev = words[i];
			struct box_transition t = box_next((enum box_state)s, ev);
			bool in_turn = ev == BOX_DONE	  ? s == BOX_CELL || s == BOX_INTERRUPTED
				       : ev == BOX_LOADED ? s == BOX_LOADING
							  : s == BOX_PLACING;

			/* A single run says but that it could not place a file, and ends with it. */
			if (ev == BOX_REFUSED && (s == BOX_CLAIMED || s == BOX_RUNNING)) {
				assert_int_equal(t.action, BOX_DO_KILL);
				continue;
			}
			assert_int_equal(t.action == BOX_DO_REFUSE, !in_turn);
			if (!in_turn)
				assert_int_equal(t.next, BOX_ENDING);
		}
}

static void every_state_ends(void **state)
{
	(void)state;
	for (int s = 0; s < BOX_GONE; s++) {
		struct box_transition kill = box_next((enum box_state)s, BOX_KILL);
		struct box_transition empty = box_next((enum box_state)s, BOX_EMPTY);

		assert_int_equal(kill.next, BOX_ENDING);
		assert_int_equal(kill.action, s == BOX_ENDING ? BOX_DO_NOTHING : BOX_DO_KILL);
		/* Only the death of everything finishes a sandbox, from wherever it comes. */
		assert_int_equal(empty.next, BOX_GONE);
		assert_int_equal(empty.action, BOX_DO_FINISH);
		for (int ev = 0; ev < BOX_EVENTS; ev++)
			if (ev != BOX_EMPTY)
				assert_int_not_equal(box_next((enum box_state)s, (enum box_event)ev).next, BOX_GONE);
	}
	for (int ev = 0; ev < BOX_EVENTS; ev++)
		assert_int_equal(box_next(BOX_GONE, (enum box_event)ev).action, BOX_DO_NOTHING);
}

static void names_are_there(void **state)
{
	(void)state;
	for (int s = 0; s < BOX_STATES; s++)
		assert_non_null(box_state_names[s]);
	for (int ev = 0; ev < BOX_EVENTS; ev++)
		assert_non_null(box_event_names[ev]);
}

static void a_tool_is_loaded_before_it_is_called(void **state)
{
	static const enum box_event whole[] = {BOX_LOAD, BOX_LOADED, BOX_CLAIM, BOX_START, BOX_MAIN_EXIT, BOX_EMPTY};
	static const struct box_transition done[] = {{BOX_LOADING, BOX_DO_LOAD},  {BOX_WARM, BOX_DO_OFFER},
						     {BOX_CLAIMED, BOX_DO_GRANT}, {BOX_RUNNING, BOX_DO_OPEN_GATE},
						     {BOX_ENDING, BOX_DO_KILL},	  {BOX_GONE, BOX_DO_FINISH}};
	static const enum box_event early[] = {BOX_CLAIM, BOX_OPEN, BOX_START};

	(void)state;
	WALK(BOX_BUILDING, whole, done);
	for (size_t i = 0; i < sizeof early / sizeof early[0]; i++)
		assert_int_equal(box_next(BOX_LOADING, early[i]).action, BOX_DO_REFUSE);
	assert_int_equal(box_next(BOX_LOADING, BOX_MAIN_EXIT).action, BOX_DO_KILL);
	assert_int_equal(box_next(BOX_LOADING, BOX_FAILED).action, BOX_DO_KILL);
}

static void plan_is_in_order(void **state)
{
	int previous = 0;
	static const enum plan_step order[] = {
	    STEP_CGROUP2, STEP_POLICY_ENTRY, STEP_WAY_OUT,	STEP_CLONE,	   STEP_CGROUP_NS,  STEP_NETWORK,
	    STEP_TAP,	  STEP_CARRY,	     STEP_PROBE,	STEP_PROBE_COUNT,  STEP_MOUNT_ROOT, STEP_PIVOT,
	    STEP_FORK,	  STEP_IDENTITY,     STEP_CAPABILITIES, STEP_NO_NEW_PRIVS, STEP_SECCOMP,    STEP_DESCRIPTORS,
	    STEP_EXEC,	  STEP_VERIFY,	     STEP_LOAD};

	(void)state;
	/* ARCHITECTURE's order: cgroup, policy proven, namespaces, mounts, identity, seccomp, descriptors, code. */
	for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
		assert_true((int)order[i] > previous);
		previous = (int)order[i];
	}
	for (int i = STEP_NONE + 1; i < STEP_COUNT; i++) {
		assert_int_equal(plan_step_by_name(plan_steps[i].name), i);
		assert_true(strlen(plan_steps[i].layer) > 0 && strlen(plan_steps[i].layer) < 24);
		assert_true(strlen(plan_steps[i].what) > 0);
	}
	assert_int_equal(plan_step_by_name("NOWHERE"), STEP_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(no_way_back),
	    cmocka_unit_test(code_runs_only_through_the_gate),
	    cmocka_unit_test(a_session_goes_round),
	    cmocka_unit_test(files_are_read_only_while_all_is_frozen),
	    cmocka_unit_test(who_speaks_out_of_turn_is_ended),
	    cmocka_unit_test(every_state_ends),
	    cmocka_unit_test(a_tool_is_loaded_before_it_is_called),
	    cmocka_unit_test(names_are_there),
	    cmocka_unit_test(plan_is_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
