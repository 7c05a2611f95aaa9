/* SPDX-License-Identifier: Apache-2.0 */
/* Who may ask for a sandbox, who waits, who is turned away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/quota.h"
#include "core/limits.h"

#define MANY (LIMIT_PROJECT_RUNNING + LIMIT_PROJECT_WAITING)

static void at_the_limits_and_one_over(void **state)
{
	struct quota_slot *slots = calloc(MANY + 1, sizeof *slots);
	struct quota q = {0};
	int in = 0;

	(void)state;
	for (; in < LIMIT_PROJECT_RUNNING; in++) {
		assert_int_equal(quota_enter(&q, &slots[in], "a"), 1);
		quota_granted(&slots[in]);
	}
	for (; in < MANY; in++)
		assert_int_equal(quota_enter(&q, &slots[in], "a"), 0);
	assert_int_equal(quota_enter(&q, &slots[in], "a"), -EDQUOT);
	assert_int_equal(slots[in].state, QUOTA_OUT);
	assert_null(quota_next(&q));
	/* First in, first out; a slot that is asked for still waits. */
	quota_leave(&q, &slots[0]);
	assert_ptr_equal(quota_next(&q), &slots[LIMIT_PROJECT_RUNNING]);
	assert_null(quota_next(&q));
	assert_int_equal(quota_enter(&q, &slots[in], "a"), -EDQUOT);
	quota_granted(&slots[LIMIT_PROJECT_RUNNING]);
	assert_int_equal(quota_enter(&q, &slots[in], "a"), 0);
	/* Another project has places of its own. */
	assert_int_equal(quota_enter(&q, &slots[0], "b"), 1);
	for (int i = 0; i <= in; i++)
		quota_leave(&q, &slots[i]);
	assert_null(q.projects);
	free(slots);
}

/* Granted late: until then all of a burst wait, and that is bounded too. */
static void a_burst_before_any_grant(void **state)
{
	struct quota_slot *slots = calloc(MANY, sizeof *slots);
	struct quota q = {0};
	int taken = 0;

	(void)state;
	for (int i = 0; i < MANY; i++)
		taken += quota_enter(&q, &slots[i], "a") >= 0;
	assert_int_equal(taken, LIMIT_PROJECT_WAITING);
	for (int i = 0; i < MANY; i++)
		quota_leave(&q, &slots[i]);
	assert_null(q.projects);
	free(slots);
}

static void projects_take_turns(void **state)
{
	struct quota_slot a[LIMIT_PROJECT_RUNNING + 4] = {0}, b[LIMIT_PROJECT_RUNNING + 4] = {0};
	struct quota_slot *first, *second;
	struct quota q = {0};

	(void)state;
	for (int i = 0; i < LIMIT_PROJECT_RUNNING + 4; i++)
		quota_enter(&q, &a[i], "a");
	for (int i = 0; i < LIMIT_PROJECT_RUNNING + 4; i++)
		quota_enter(&q, &b[i], "b");
	for (int i = 0; i < 2; i++) {
		quota_leave(&q, &a[i]);
		quota_leave(&q, &b[i]);
	}
	first = quota_next(&q);
	second = quota_next(&q);
	assert_ptr_equal(first, &a[LIMIT_PROJECT_RUNNING]);
	assert_ptr_equal(second, &b[LIMIT_PROJECT_RUNNING]);
	assert_ptr_equal(quota_next(&q), &a[LIMIT_PROJECT_RUNNING + 1]);
	/* Leaving from the middle of the line. */
	quota_leave(&q, &b[LIMIT_PROJECT_RUNNING + 2]);
	assert_ptr_equal(quota_next(&q), &b[LIMIT_PROJECT_RUNNING + 1]);
	assert_null(quota_next(&q));
	for (int i = 0; i < LIMIT_PROJECT_RUNNING + 4; i++) {
		quota_leave(&q, &a[i]);
		quota_leave(&q, &b[i]);
	}
	assert_null(q.projects);
}

/* One that waits for something else has a waiting place and holds up nobody. */
static void parked(void **state)
{
	struct quota_slot *slots = calloc(MANY + 1, sizeof *slots);
	struct quota_slot other = {0};
	struct quota q = {0};
	int in = 0;

	(void)state;
	for (; in < LIMIT_PROJECT_WAITING; in++)
		assert_int_equal(quota_park(&q, &slots[in], "a"), 0);
	assert_int_equal(quota_park(&q, &slots[in], "a"), -EDQUOT);
	assert_int_equal(quota_enter(&q, &slots[in], "a"), -EDQUOT);
	assert_int_equal(slots[in].state, QUOTA_OUT);
	assert_int_equal(quota_park(&q, &other, "b"), 0);
	assert_null(quota_next(&q)); /* it is not their turn */
	assert_int_equal(q.queued, 0);
	/* Leaving makes room at once. */
	quota_leave(&q, &slots[0]);
	assert_int_equal(quota_park(&q, &slots[in], "a"), 0);
	/* What it waited for has come: it asks, or stands in its project's line. */
	for (int i = 1; i <= LIMIT_PROJECT_RUNNING; i++)
		assert_int_equal(quota_unpark(&q, &slots[i]), 1);
	assert_int_equal(quota_unpark(&q, &slots[LIMIT_PROJECT_RUNNING + 1]), 0);
	assert_int_equal(quota_unpark(&q, &slots[LIMIT_PROJECT_RUNNING + 2]), 0);
	assert_int_equal(q.queued, 2);
	assert_null(quota_next(&q));
	quota_granted(&slots[1]);
	quota_leave(&q, &slots[1]);
	assert_ptr_equal(quota_next(&q), &slots[LIMIT_PROJECT_RUNNING + 1]);
	assert_int_equal(q.queued, 1);
	for (int i = 0; i <= in; i++)
		quota_leave(&q, &slots[i]);
	quota_leave(&q, &other);
	assert_int_equal(q.queued, 0);
	assert_null(q.projects);
	free(slots);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(at_the_limits_and_one_over),
	    cmocka_unit_test(a_burst_before_any_grant),
	    cmocka_unit_test(projects_take_turns),
	    cmocka_unit_test(parked),
	};

	return cmocka_run_group_tests_name("http_quota", tests, NULL, NULL);
}
