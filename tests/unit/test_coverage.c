/* SPDX-License-Identifier: Apache-2.0 */
/* The table of weaknesses, and the grade that they come to. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "core/coverage.h"

static void test_every_row_is_whole(void **state)
{
	(void)state;
	for (int w = 0; w < WEAKNESSES; w++) {
		const struct weakness_row *row = &weakness_rows[w];

		assert_non_null(row->name);
		assert_true(strspn(row->name, "abcdefghijklmnopqrstuvwxyz_") == strlen(row->name));
		assert_true(strlen(row->text) > 20 && row->text[strlen(row->text) - 1] == '.');
		assert_true(strlen(row->mend) > 10 && row->mend[strlen(row->mend) - 1] == '.');
		assert_int_not_equal(row->grade, COVERAGE_FULL);
		for (int v = 0; v < w; v++)
			assert_string_not_equal(row->name, weakness_rows[v].name);
	}
}

static void test_grades(void **state)
{
	static const struct {
		const char *what;
		uint32_t weak;
		enum coverage grade, forced;
	} rows[] = {
	    {"nothing", 0, COVERAGE_FULL, COVERAGE_FULL},
	    {"one", 1u << WEAK_NET_RAW, COVERAGE_PARTIAL, COVERAGE_PARTIAL},
	    {"root of the host", 1u << WEAK_ROOT, COVERAGE_PARTIAL, COVERAGE_PARTIAL},
	    {"privileged", 1u << WEAK_PRIVILEGED, COVERAGE_REFUSED, COVERAGE_PARTIAL},
	    {"gVisor", 1u << WEAK_GVISOR, COVERAGE_REFUSED, COVERAGE_REFUSED},
	    {"Kata", 1u << WEAK_KATA, COVERAGE_REFUSED, COVERAGE_REFUSED},
	    {"privileged and Kata", 1u << WEAK_PRIVILEGED | 1u << WEAK_KATA, COVERAGE_REFUSED, COVERAGE_REFUSED},
	    {"the worst counts", 1u << WEAK_PRIVILEGED | 1u << WEAK_LIMITS, COVERAGE_REFUSED, COVERAGE_PARTIAL},
	    {"all", (1u << WEAKNESSES) - 1, COVERAGE_REFUSED, COVERAGE_REFUSED},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const struct coverage_found f = {.weak = rows[i].weak};

		if (coverage_grade(&f, false) != rows[i].grade || coverage_grade(&f, true) != rows[i].forced)
			fail_msg("%s: %s, %s", rows[i].what, coverage_names[coverage_grade(&f, false)],
				 coverage_names[coverage_grade(&f, true)]);
	}
}

/* What is not named here is no reason to refuse, and what is refused can be forced only where this says so. */
static void test_which_are_refused(void **state)
{
	(void)state;
	for (int w = 0; w < WEAKNESSES; w++) {
		bool refused = w == WEAK_PRIVILEGED || w == WEAK_GVISOR || w == WEAK_KATA;

		assert_int_equal(weakness_rows[w].grade, refused ? COVERAGE_REFUSED : COVERAGE_PARTIAL);
		assert_int_equal(weakness_rows[w].forceable, w == WEAK_PRIVILEGED);
	}
}

static void test_the_first_detail_stays(void **state)
{
	static struct coverage_found f;
	char text[2 * WEAKNESS_DETAIL];

	(void)state;
	coverage_add(&f, WEAK_NET_RAW, "pid %d", 7);
	coverage_add(&f, WEAK_NET_RAW, "pid %d", 8);
	assert_string_equal(f.detail[WEAK_NET_RAW], "pid 7");
	assert_int_equal(f.weak, 1u << WEAK_NET_RAW);
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	coverage_add(&f, WEAK_LIMITS, "%s", text);
	assert_int_equal(strlen(f.detail[WEAK_LIMITS]), WEAKNESS_DETAIL - 1);
	assert_string_equal(f.detail[WEAK_LISTEN], "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_row_is_whole),
	    cmocka_unit_test(test_grades),
	    cmocka_unit_test(test_which_are_refused),
	    cmocka_unit_test(test_the_first_detail_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
