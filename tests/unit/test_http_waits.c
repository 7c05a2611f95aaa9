/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of `GET /v1/pool` about waiting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "api/waits.h"

static void expect(const struct waits *w, size_t count, uint32_t p50, uint32_t p90, uint32_t p99, uint32_t max)
{
	struct waits_summary s;

	waits_sum_up(w, &s);
	assert_int_equal(s.count, count);
	assert_int_equal(s.p50, p50);
	assert_int_equal(s.p90, p90);
	assert_int_equal(s.p99, p99);
	assert_int_equal(s.max, max);
}

static void by_nearest_rank(void **state)
{
	struct waits *w = calloc(1, sizeof *w);

	(void)state;
	expect(w, 0, 0, 0, 0, 0);
	waits_add(w, 7);
	expect(w, 1, 7, 7, 7, 7);
	waits_add(w, 3);
	expect(w, 2, 3, 7, 7, 7);
	free(w);
	w = calloc(1, sizeof *w);
	for (uint32_t i = 100; i > 0; i--)
		waits_add(w, i * 10);
	expect(w, 100, 500, 900, 990, 1000);
	free(w);
}

static void only_the_last_ones(void **state)
{
	struct waits *w = calloc(1, sizeof *w);

	(void)state;
	for (uint32_t i = 0; i < WAITS_KEPT; i++)
		waits_add(w, 1000000);
	expect(w, WAITS_KEPT, 1000000, 1000000, 1000000, 1000000);
	for (uint32_t i = 0; i < WAITS_KEPT - 1; i++)
		waits_add(w, 5);
	expect(w, WAITS_KEPT, 5, 5, 5, 1000000);
	waits_add(w, 5);
	expect(w, WAITS_KEPT, 5, 5, 5, 5);
	waits_add(w, UINT64_MAX);
	expect(w, WAITS_KEPT, 5, 5, 5, UINT32_MAX);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(by_nearest_rank), cmocka_unit_test(only_the_last_ones)};

	return cmocka_run_group_tests_name("http_waits", tests, NULL, NULL);
}
