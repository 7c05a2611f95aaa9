/* SPDX-License-Identifier: Apache-2.0 */
/* Memory held for projects: at the bounds and one over, for one and in all. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/budget.h"

static void bounds(void **state)
{
	struct budget b = {.max = 100, .owner_max = 40};
	struct budget_share a1 = {0}, a2 = {0}, b1 = {0}, c1 = {0};

	(void)state;
	assert_int_equal(budget_ask(&b, &a1, "a", 30), 0);
	assert_int_equal(budget_ask(&b, &a2, "a", 10), 0);
	assert_int_equal(budget_ask(&b, &a2, "a", 11), -EDQUOT);
	assert_int_equal(a2.bytes, 10);
	assert_int_equal(budget_ask(&b, &a2, "a", 5), 0);
	assert_int_equal(budget_ask(&b, &a1, "a", 35), 0);
	assert_int_equal(budget_ask(&b, &b1, "b", 40), 0);
	assert_int_equal(budget_ask(&b, &c1, "c", 21), -ENOBUFS);
	assert_null(c1.owner);
	assert_int_equal(budget_ask(&b, &c1, "c", 20), 0);
	assert_int_equal(b.total, 100);
	assert_string_equal(budget_largest(&b), "b");
	budget_force(&b, &c1, "c", 200);
	assert_string_equal(budget_largest(&b), "c");
	assert_int_equal(budget_ask(&b, &c1, "c", 199), 0); /* less is always granted */
	assert_int_equal(budget_ask(&b, &a1, "a", 36), -EDQUOT);
	budget_force(&b, &a1, "a", 0);
	budget_force(&b, &a1, "a", 0);
	assert_int_equal(budget_ask(&b, &a2, "a", 40), -ENOBUFS);
	budget_force(&b, &c1, "c", 0);
	assert_int_equal(budget_ask(&b, &a2, "a", 40), 0);
	budget_force(&b, &a2, "a", 0);
	budget_force(&b, &b1, "b", 0);
	assert_int_equal(b.total, 0);
	assert_null(b.owners);
	assert_string_equal(budget_largest(&b), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(bounds)};

	return cmocka_run_group_tests_name("http_budget", tests, NULL, NULL);
}
