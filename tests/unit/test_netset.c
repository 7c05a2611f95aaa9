/* SPDX-License-Identifier: Apache-2.0 */
/* The table of named sets holds together. Whether it is right is asked of Python's ipaddress in tests/system/test_netset.py. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/netset.h"

static struct cidr row_prefix(size_t i)
{
	struct cidr c;
	struct err e;

	if (cidr_parse(netset_rows[i].prefix, strlen(netset_rows[i].prefix), &c, &e) < 0)
		fail_msg("%s: %s", netset_rows[i].prefix, e.msg);
	return c;
}

static void test_rows(void **state)
{
	size_t of_set[NETSETS] = {0};

	(void)state;
	for (size_t i = 0; i < netset_row_count; i++) {
		const struct netset_row *row = &netset_rows[i];
		struct cidr c = row_prefix(i);
		char text[CIDR_TEXT_MAX];

		cidr_text(text, &c, false);
		assert_string_equal(row->prefix, text);
		assert_true(row->set < NETSETS && !netset_info[row->set].dynamic);
		assert_true(row->what[0] && row->source[0]);
		if (row->set == NETSET_METADATA)
			assert_int_equal(c.len, c.family == 4 ? 32 : 128); /* hosts, not ranges */
		of_set[row->set]++;
	}
	for (int s = 0; s < NETSETS; s++)
		assert_int_equal(of_set[s] > 0, !netset_info[s].dynamic);
}

/* At one prefix a denial wins: were it in two sets, allowing one and denying the other would not do what it says. */
static void test_no_prefix_twice(void **state)
{
	(void)state;
	for (size_t i = 0; i < netset_row_count; i++)
		for (size_t k = 0; k < i; k++) {
			struct cidr a = row_prefix(i), b = row_prefix(k);

			if (!cidr_compare(&a, &b))
				fail_msg("%s is there twice", netset_rows[i].prefix);
		}
}

static const char *set_of(const char *text)
{
	const struct netset_row *best = NULL;
	struct cidr addr;
	int len = -1;

	assert_int_equal(cidr_parse(text, strlen(text), &addr, NULL), 0);
	for (size_t i = 0; i < netset_row_count; i++) {
		struct cidr c = row_prefix(i);

		if (!cidr_contains(&c, &addr) || c.len <= len)
			continue;
		best = &netset_rows[i];
		len = c.len;
	}
	return best ? netset_info[best->set].name : "";
}

static void test_members(void **state)
{
	static const struct {
		const char *addr, *set; /* of the longest row */
	} rows[] = {
	    {"10.0.0.1", "@private"},
	    {"172.31.255.255", "@private"},
	    {"172.32.0.0", ""},
	    {"192.168.1.1", "@private"},
	    {"100.127.255.255", "@private"},
	    {"100.128.0.0", ""},
	    {"fd00::1", "@private"},
	    {"fec0::1", "@private"},
	    {"169.254.169.254", "@metadata"},
	    {"168.63.129.16", "@metadata"},
	    {"168.63.129.17", ""},
	    {"100.100.100.200", "@metadata"},
	    {"192.0.0.192", "@metadata"},
	    {"fd00:ec2::254", "@metadata"},
	    {"fe80::a9fe:a9fe", "@metadata"},
	    {"169.254.1.1", "@special-purpose"},
	    {"127.0.0.1", "@special-purpose"},
	    {"0.0.0.0", "@special-purpose"},
	    {"::", "@special-purpose"},
	    {"::1", "@special-purpose"},
	    {"::1.2.3.4", "@special-purpose"},
	    {"::ffff:8.8.8.8", "@special-purpose"},
	    {"::ffff:0:8.8.8.8", "@special-purpose"},
	    {"224.0.0.251", "@special-purpose"},
	    {"255.255.255.255", "@special-purpose"},
	    {"ff02::fb", "@special-purpose"},
	    {"fe80::1", "@special-purpose"},
	    {"2002:808:808::1", "@special-purpose"},
	    {"2001::1", "@special-purpose"},
	    {"2001:db8::1", "@special-purpose"},
	    {"64:ff9b:1::1", "@special-purpose"},
	    {"64:ff9b::8.8.8.8", ""}, /* decoded, and judged as what it carries */
	    {"8.8.8.8", ""},
	    {"2001:4860:4860::8888", ""},
	    {"2606:4700::1", ""},
	    {"2620:4f:8000::1", "@special-purpose"},
	    {"5f00::1", "@special-purpose"},
	    {"3fff:fff::1", "@special-purpose"},
	    {"3fff:1000::", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (strcmp(set_of(rows[i].addr), rows[i].set) != 0)
			fail_msg("%s: \"%s\", expected \"%s\"", rows[i].addr, set_of(rows[i].addr), rows[i].set);
}

static void test_find(void **state)
{
	(void)state;
	for (int s = 0; s < NETSETS; s++) {
		assert_int_equal(netset_info[s].name[0], '@');
		assert_true(netset_info[s].help[0]);
		assert_int_equal(netset_find(netset_info[s].name, strlen(netset_info[s].name)), s);
	}
	assert_int_equal(netset_find("@privat", 7), -1);
	assert_int_equal(netset_find("@private!", 8), NETSET_PRIVATE); /* only `len` bytes count */
	assert_int_equal(netset_find("@private!", 9), -1);
	assert_int_equal(netset_find("private", 7), -1);
	assert_int_equal(netset_find("", 0), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_rows),
	    cmocka_unit_test(test_no_prefix_twice),
	    cmocka_unit_test(test_members),
	    cmocka_unit_test(test_find),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
