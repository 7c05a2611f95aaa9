/* SPDX-License-Identifier: Apache-2.0 */
/* cidr_*(): what is an address and a prefix, and that nothing else is. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cidr.h"

/* Parses an exact copy without a terminator, so that the sanitizer sees a read beyond the end. */
static int parse(const char *text, struct cidr *ret, struct err *e)
{
	size_t n = strlen(text);
	char *copy = malloc(n ? n : 1);
	int rc;

	memcpy(copy, text, n);
	rc = cidr_parse(copy, n, ret, e);
	free(copy);
	return rc;
}

static struct cidr must_parse(const char *text)
{
	struct err e = {.code = 77};
	struct cidr c;

	if (parse(text, &c, &e) < 0)
		fail_msg("%s: %s", text, e.msg);
	assert_int_equal(e.code, 77); /* untouched */
	return c;
}

static const struct accepted {
	const char *text, *canonical;
} accepted[] = {
    {"0.0.0.0/0", "0.0.0.0/0"},
    {"10.0.0.0/8", "10.0.0.0/8"},
    {"10.1.2.3", "10.1.2.3/32"},
    {"255.255.255.255/32", "255.255.255.255/32"},
    {"128.0.0.0/1", "128.0.0.0/1"},
    {"192.168.0.128/25", "192.168.0.128/25"},
    {"::/0", "::/0"},
    {"::", "::/128"},
    {"::1", "::1/128"},
    {"1::", "1::/128"},
    {"1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0/128"},
    {"::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8/128"},
    {"1:2:3::5:6:7:8", "1:2:3:0:5:6:7:8/128"},
    {"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8/128"},
    {"0001:0002:0003:0004:0005:0006:0007:0008", "1:2:3:4:5:6:7:8/128"},
    {"2001:DB8::/32", "2001:db8::/32"},
    {"8000::/1", "8000::/1"},
    {"fe80::/10", "fe80::/10"},
    {"::ffff:10.0.0.1", "::ffff:10.0.0.1/128"},
    {"::ffff:a00:0/104", "::ffff:10.0.0.0/104"},
    {"64:ff9b::1.2.3.4", "64:ff9b::102:304/128"},
    {"1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304/128"},
    {"::1.2.3.4", "::102:304/128"},
    {"2001:db8:1234:5678:9abc:def0:1234:5678", "2001:db8:1234:5678:9abc:def0:1234:5678/128"},
};

static void test_accepted(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
		struct cidr c = must_parse(accepted[i].text), again;
		char text[CIDR_TEXT_MAX];

		cidr_text(text, &c, false);
		assert_string_equal(text, accepted[i].canonical);
		again = must_parse(text);
		assert_memory_equal(&c, &again, sizeof c);
	}
}

static void test_short_form(void **state)
{
	struct cidr c = must_parse("10.0.0.1"), p = must_parse("10.0.0.0/31"), six = must_parse("::1");
	char text[CIDR_TEXT_MAX];

	(void)state;
	cidr_text(text, &c, true);
	assert_string_equal(text, "10.0.0.1");
	cidr_text(text, &p, true);
	assert_string_equal(text, "10.0.0.0/31");
	cidr_text(text, &six, true);
	assert_string_equal(text, "::1");
}

static const struct refused {
	const char *text, *says;
} refused[] = {
    {"", "is empty"},
    {"10", "not a whole IPv4 address"},
    {"10/8", "not a whole IPv4 address"},
    {"10.0.0", "not a whole IPv4 address"},
    {"10.0.0.", "0 to 255"},
    {"10.0.0.0.0", "something behind"},
    {".10.0.0.0", "0 to 255"},
    {"10..0.0", "0 to 255"},
    {"256.0.0.0", "0 to 255"},
    {"1000.0.0.0", "0 to 255"},
    {"99999999999.0.0.0", "0 to 255"},
    {"010.0.0.0", "leading zero"},
    {"10.00.0.0", "leading zero"},
    {"0x10.0.0.0", "neither"},
    {"-1.0.0.0", "neither"},
    {"+1.0.0.0", "neither"},
    {"10.0.0.0/", "0 to 32"},
    {"10.0.0.0/33", "0 to 32"},
    {"10.0.0.0/08", "leading zero"},
    {"10.0.0.0/-1", "neither"},
    {"10.0.0.0/8/8", "something behind"},
    {"10.0.0.0/255.0.0.0", "0 to 32"},
    {"10.0.0.0/8.0.0.0", "dotted mask"},
    {"10.0.0.0/4294967304", "0 to 32"},
    {"10.0.0.1/8", "write 10.0.0.0/8"},
    {"10.0.0.1/0", "write 0.0.0.0/0"},
    {"10.0.0.1/31", "write 10.0.0.0/31"},
    {" 10.0.0.0", "a space"},
    {"10.0.0.0 ", "a space"},
    {"10.0.0.0\n", "a space"},
    {"10.0.0.1:80", "IPv6"},
    {"10.0.0.1-10.0.0.9", "ranges"},
    {"example.com", "names"},
    {"face.cafe", "0 to 255"},
    {"10.0.0.\xd9\xa3", "no address has"},
    {":", "IPv6"},
    {":::", "IPv6"},
    {":1", "IPv6"},
    {"1:", "IPv6"},
    {"1:2:3:4:5:6:7:", "IPv6"},
    {"1:2:3:4:5:6:7", "not a whole IPv6"},
    {"1:2:3:4:5:6:7:8:9", "more than eight"},
    {"1:2:3:4:5:6:7:8::", "stands for no group"},
    {"::1:2:3:4:5:6:7:8", "stands for no group"},
    {"1::2::3", "once"},
    {"::1::", "once"},
    {"1:::2", "IPv6"},
    {"12345::", "IPv6"},
    {"g::", "neither"},
    {"::1.2.3", "IPv4"},
    {"::1.2.3.4.5", "something behind"},
    {"::1.2.3.4:5", "something behind"},
    {"1.2.3.4::", "IPv6"},
    {"1:2:3:4:5:6:7:1.2.3.4", "something behind"},
    {"::01.2.3.4", "leading zero"},
    {"::/129", "0 to 128"},
    {"::1/127", "write ::/127"},
    {"2001:db8::1/32", "write 2001:db8::/32"},
    {"fe80::1%eth0", "a zone"},
    {"[::1]", "brackets"},
    {"::ffff:10.0.0.1/96", "write ::ffff:0.0.0.0/96"},
};

static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		struct cidr c, before;
		struct err e = {0};

		memset(&c, 0x5a, sizeof c);
		before = c;
		if (parse(refused[i].text, &c, &e) != -EINVAL || e.code != EINVAL)
			fail_msg("not refused: %s", refused[i].text);
		assert_memory_equal(&c, &before, sizeof c);
		assert_string_equal(e.where, "");
		if (!strstr(e.msg, refused[i].says))
			fail_msg("%s: says \"%s\", expected \"%s\"", refused[i].text, e.msg, refused[i].says);
	}
	/* A NUL inside is a character like any other that does not belong there. */
	assert_int_equal(cidr_parse("10.0.0.0\0", 9, &(struct cidr){0}, NULL), -EINVAL);
}

static void test_addr(void **state)
{
	struct cidr c;
	struct err e;

	(void)state;
	assert_int_equal(cidr_parse_addr("10.0.0.1", 8, &c, &e), 0);
	assert_int_equal(c.family, 4);
	assert_int_equal(c.len, 32);
	assert_int_equal(cidr_parse_addr("::ffff:10.0.0.1", 15, &c, &e), 0);
	assert_int_equal(c.family, 6);
	assert_int_equal(c.len, 128);
	assert_int_equal(cidr_parse_addr("10.0.0.0/8", 10, &c, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "address alone"));
	assert_int_equal(cidr_parse_addr("10.0.0.1/32", 11, &c, &e), -EINVAL);
}

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

/*
 * Against the C library over random text in the alphabet of addresses: where both take it they mean the same, and what only
 * one of them takes is known (the library has no lengths; it reads no more leniently than we do).
 */
static void test_against_library(void **state)
{
	static const char alphabet[] = "0123456789abcdef::::...1";
	uint32_t seed = 12345;
	unsigned taken = 0;

	(void)state;
	for (int i = 0; i < 2000000; i++) {
		uint8_t addr[16] = {[10] = 0xff, [11] = 0xff};
		char text[24];
		size_t n = next_random(&seed) % (sizeof text - 1);
		int family, library;
		struct cidr c;

		for (size_t k = 0; k < n; k++)
			text[k] = alphabet[next_random(&seed) % (sizeof alphabet - 1)];
		text[n] = '\0';
		family = strchr(text, ':') ? AF_INET6 : AF_INET;
		library = inet_pton(family, text, family == AF_INET ? addr + 12 : addr);
		if ((cidr_parse_addr(text, n, &c, NULL) == 0) != (library == 1))
			fail_msg("%s: the library says %d", text, library);
		if (library != 1)
			continue;
		taken++;
		assert_int_equal(c.family, family == AF_INET ? 4 : 6);
		assert_memory_equal(c.addr, addr, 16);
	}
	assert_true(taken > 1000); /* or this compares nothing */
}

static void test_contains(void **state)
{
	static const struct {
		const char *outer, *inner;
		bool holds;
	} rows[] = {
	    {"10.0.0.0/8", "10.0.0.0/8", true},
	    {"10.0.0.0/8", "10.255.255.255", true},
	    {"10.0.0.0/8", "11.0.0.0", false},
	    {"10.0.0.0/8", "9.255.255.255", false},
	    {"10.0.0.0/8", "10.0.0.0/7", false},
	    {"0.0.0.0/0", "1.2.3.4", true},
	    {"0.0.0.0/0", "::/0", false},
	    {"::/0", "0.0.0.0/0", false},
	    {"::/0", "::ffff:1.2.3.4", true},
	    {"::ffff:0:0/96", "1.2.3.4", false},
	    {"172.16.0.0/12", "172.31.255.255", true},
	    {"172.16.0.0/12", "172.32.0.0", false},
	    {"fe80::/10", "febf:ffff::1", true},
	    {"fe80::/10", "fec0::", false},
	    {"10.0.0.1", "10.0.0.1", true},
	    {"10.0.0.1", "10.0.0.0", false},
	    {"2001:db8::/33", "2001:db8:7fff::", true},
	    {"2001:db8::/33", "2001:db8:8000::", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct cidr outer = must_parse(rows[i].outer), inner = must_parse(rows[i].inner);

		if (cidr_contains(&outer, &inner) != rows[i].holds)
			fail_msg("%s in %s", rows[i].inner, rows[i].outer);
	}
}

static int compare(const void *a, const void *b)
{
	return cidr_compare(a, b);
}

static void test_order(void **state)
{
	static const char *const sorted[] = {"0.0.0.0/0",  "10.0.0.0/8", "10.0.0.0/9", "10.0.0.0", "10.0.0.1", "10.128.0.0/9",
					     "11.0.0.0/8", "::/0",	 "::/96",      "::1",	   "fe80::/10"};
	enum { N = sizeof sorted / sizeof *sorted };
	struct cidr c[N];

	(void)state;
	for (size_t i = 0; i < N; i++)
		c[i] = must_parse(sorted[(i * 7 + 3) % N]);
	qsort(c, N, sizeof *c, compare);
	for (size_t i = 0; i < N; i++) {
		struct cidr expected = must_parse(sorted[i]);

		assert_int_equal(cidr_compare(&c[i], &expected), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_accepted), cmocka_unit_test(test_short_form),	     cmocka_unit_test(test_refused),
	    cmocka_unit_test(test_addr),     cmocka_unit_test(test_against_library), cmocka_unit_test(test_contains),
	    cmocka_unit_test(test_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
