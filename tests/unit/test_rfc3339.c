/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "core/rfc3339.h"

static void moments(void **state)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} rows[] = {
	    {"1970-01-01T00:00:00Z", 0},
	    {"1970-01-01", 0},
	    {"2000-02-29T12:00:00z", 951825600000000000ull},
	    {"2026-11-30T09:05:06.5Z", 1796029506500000000ull},
	    {"2026-11-30t11:05:06.123456789+02:00", 1796029506123456789ull},
	    {"2026-11-30 04:05:06-05:00", 1796029506000000000ull},
	    {"2026-11-30", 1795996800000000000ull},
	    {"2016-12-31T23:59:60Z", 1483228800000000000ull},
	    {"1970-01-01T00:00:00-00:01", 60000000000ull},
	    {"2261-12-31T23:59:59Z", 9214646399000000000ull},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		uint64_t ns = 1;

		assert_int_equal(rfc3339_parse(rows[i].text, &ns), 0);
		assert_int_equal(ns, rows[i].ns);
	}
}

static void none(void **state)
{
	static const char *const rows[] = {
	    "",
	    "yesterday",
	    "2026-11-31",
	    "2026-02-29",
	    "2100-02-29",
	    "2026-13-01",
	    "2026-00-01",
	    "2026-1-1",
	    "1969-12-31",
	    "2262-01-01",
	    "2026-11-30T",
	    "2026-11-30T09",
	    "2026-11-30T09:05",
	    "2026-11-30T09:05:06",
	    "2026-11-30T24:00:00Z",
	    "2026-11-30T09:60:00Z",
	    "2026-11-30T09:05:61Z",
	    "2026-11-30T09:05:06.Z",
	    "2026-11-30T09:05:06.1234567890Z",
	    "2026-11-30T09:05:06Zx",
	    "2026-11-30T09:05:06+0200",
	    "2026-11-30T09:05:06+24:00",
	    "2026-11-30T09:05:06,5Z",
	    "1970-01-01T00:00:00+00:01",
	    " 2026-11-30",
	    "+026-11-30",
	    "1796029506",
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		uint64_t ns = 7;

		assert_int_equal(rfc3339_parse(rows[i], &ns), -EINVAL);
		assert_int_equal(ns, 7);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(moments), cmocka_unit_test(none)};

	return cmocka_run_group_tests_name("rfc3339", tests, NULL, NULL);
}
