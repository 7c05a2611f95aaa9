/* SPDX-License-Identifier: Apache-2.0 */
/* Reading whole records: nobody keeps the others from it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "api/reads.h"

/* As many as it gets. */
static unsigned take(struct reads *r, const char *project)
{
	unsigned count = 0;

	while (reads_begin(r, project) >= 0)
		count++;
	return count;
}

static void one_project_leaves_room(void **state)
{
	struct reads r = {0};

	(void)state;
	assert_int_equal(take(&r, "greedy"), READS_ALONE);
	assert_int_equal(take(&r, "greedy"), 0);
	assert_int_equal(take(&r, "other"), READS_SHARE);
	assert_int_equal(take(&r, ""), LIMIT_AUDIT_READS - READS_ALONE - READS_SHARE);
	assert_true(LIMIT_AUDIT_READS - READS_ALONE - READS_SHARE >= READS_KEPT);
}

static void many_projects_leave_room_for_reviewers(void **state)
{
	struct reads r = {0};
	unsigned tenants = take(&r, "a") + take(&r, "b") + take(&r, "c") + take(&r, "d");

	(void)state;
	assert_int_equal(tenants, LIMIT_AUDIT_READS - READS_KEPT);
	assert_int_equal(take(&r, ""), READS_KEPT);
	assert_int_equal(r.count, LIMIT_AUDIT_READS);
}

/* Its own places are what a project gets back: who waits for its share has it with the next that ends. */
static void a_share_comes_free(void **state)
{
	struct reads r = {0};
	int places[READS_ALONE];

	(void)state;
	for (int i = 0; i < READS_ALONE; i++)
		places[i] = reads_begin(&r, "greedy");
	assert_int_equal(take(&r, "other"), READS_SHARE);
	assert_int_equal(reads_begin(&r, "third"), -1);
	reads_end(&r, places[0]);
	assert_int_equal(reads_begin(&r, "greedy"), -1);
	assert_int_equal(reads_begin(&r, "third"), places[0]);
	for (int i = 1; i < READS_ALONE; i++)
		reads_end(&r, places[i]);
	assert_int_equal(r.count, READS_SHARE + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_project_leaves_room),
	    cmocka_unit_test(many_projects_leave_room_for_reviewers),
	    cmocka_unit_test(a_share_comes_free),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
