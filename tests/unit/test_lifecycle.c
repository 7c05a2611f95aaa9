/* SPDX-License-Identifier: Apache-2.0 */
/* The life-cycle table and the plan's table: walked whole. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "core/lifecycle.h"
#include "plan.h"

static void no_way_back(void **state)
{
	(void)state;
	for (int s = 0; s < BOX_STATES; s++)
		for (int ev = 0; ev < BOX_EVENTS; ev++) {
			struct box_transition t = box_next((enum box_state)s, (enum box_event)ev);

			assert_true(t.next >= (enum box_state)s);
			assert_true(t.next < BOX_STATES);
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
			assert_int_equal(t.action == BOX_DO_OFFER, s == BOX_BUILDING && ev == BOX_READY);
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

static void plan_is_in_order(void **state)
{
	int previous = 0;
	static const enum plan_step order[] = {
	    STEP_CGROUP2,      STEP_POLICY_ENTRY, STEP_CLONE,	    STEP_CGROUP_NS, STEP_NETWORK,  STEP_PROBE,
	    STEP_PROBE_COUNT,  STEP_MOUNT_ROOT,	  STEP_PIVOT,	    STEP_FORK,	    STEP_IDENTITY, STEP_CAPABILITIES,
	    STEP_NO_NEW_PRIVS, STEP_SECCOMP,	  STEP_DESCRIPTORS, STEP_EXEC,	    STEP_VERIFY};

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
	    cmocka_unit_test(no_way_back),	cmocka_unit_test(code_runs_only_through_the_gate),
	    cmocka_unit_test(every_state_ends), cmocka_unit_test(names_are_there),
	    cmocka_unit_test(plan_is_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
