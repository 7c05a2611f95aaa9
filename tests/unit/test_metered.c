/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which run a second source's figures belong to when the kernel could not be asked at its beginning, or at its end: the file
 * itself, over a meter that says what it is told to say. What the real one says is in tests/bpf/test_meter.c.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "kernel/meter.h"

static bool broken;
static struct weir_meter says;

static int walk_here(struct meter *m, struct err *e)
{
	(void)m;
	return broken ? err_set(e, EIO, "meter", "not today") : 0;
}

static int read_here(const struct meter *m, uint64_t cgroup, bool now, struct weir_meter *ret, struct err *e)
{
	(void)m, (void)cgroup, (void)now, (void)e;
	*ret = says;
	return 0;
}

/* It goes on from where it is. */
static int reset_here(struct meter *m, uint64_t cgroup)
{
	(void)m, (void)cgroup;
	return -ENOENT;
}

#define meter_walk walk_here
#define meter_settle walk_here
#define meter_read read_here
#define meter_reset reset_here
#define meter_renew reset_here
#include "supervisor/metered.c"

static struct supervisor *s;
static struct box b;

static int setup(void **state)
{
	(void)state;
	s = supervisor_alloc("test");
	assert_non_null(s);
	memset(&b, 0, sizeof b);
	box_init(&b);
	b.metered = true;
	b.session = true;
	broken = false;
	says = (struct weir_meter){.cpu_ns = 1000000, .execs = 10, .incomplete = 1};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(s);
	return 0;
}

/* The next end: what it says of this much more. */
static struct tell_meter ends_after(uint64_t cpu_us)
{
	struct tell_meter told = {0};

	says.cpu_ns += cpu_us * 1000;
	says.execs++;
	metered_end(s, &b, &told);
	return told;
}

static void test_differences(void **state)
{
	struct tell_meter told;

	(void)state;
	metered_begin(s, &b);
	b.execs_dropped = 3;
	told = ends_after(70);
	assert_int_equal(told.there, 1);
	assert_int_equal(told.cpu_us, 70);
	assert_int_equal(told.execs, 1);
	assert_int_equal(told.execs_unlisted, 3);
	assert_int_equal(told.incomplete, 0);
	says.incomplete += 2;
	told = ends_after(5);
	assert_int_equal(told.cpu_us, 5);
	assert_int_equal(told.execs_unlisted, 0);
	assert_int_equal(told.incomplete, 2);
}

/* Without a beginning nothing is known of it, and all that there ever was is not its own; the next one has its own. */
static void test_no_beginning(void **state)
{
	struct tell_meter told;

	(void)state;
	broken = true;
	metered_begin(s, &b);
	broken = false;
	told = ends_after(70);
	assert_int_equal(told.there, 0);
	assert_int_equal(told.cpu_us, 0);
	told = ends_after(5);
	assert_int_equal(told.there, 1);
	assert_int_equal(told.cpu_us, 5);
}

/* Without an end, neither this one's nor the next one's is known: what the two came to is no cell's. */
static void test_no_end(void **state)
{
	struct tell_meter told;

	(void)state;
	metered_begin(s, &b);
	b.execs_dropped = 3;
	broken = true;
	assert_int_equal(ends_after(70).there, 0);
	broken = false;
	metered_renew(s, &b);
	assert_int_equal(ends_after(5).there, 0);
	told = ends_after(2);
	assert_int_equal(told.there, 1);
	assert_int_equal(told.cpu_us, 2);
	assert_int_equal(told.execs_unlisted, 0);
}

static void test_a_grant_that_can_not_be_read(void **state)
{
	(void)state;
	metered_begin(s, &b);
	broken = true;
	metered_grant(s, &b);
	broken = false;
	assert_int_equal(ends_after(70).there, 0);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
	    CASE(test_differences),
	    CASE(test_no_beginning),
	    CASE(test_no_end),
	    CASE(test_a_grant_that_can_not_be_read),
	};

	return cmocka_run_group_tests_name("metered", tests, NULL, NULL);
}
