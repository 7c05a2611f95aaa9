/* SPDX-License-Identifier: Apache-2.0 */
/* DNS names from the wire: what an untrusted program can put there, and what may come out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/dnsname.h"

#define WIRE(s) s, sizeof(s) - 1

static void test_table(void **state)
{
	static const struct {
		const char *wire;
		size_t len;
		const char *text;
		bool malformed;
	} rows[] = {
	    {WIRE("\7example\3com\0"), "example.com", false},
	    {WIRE("\0"), ".", false},
	    {WIRE("\1a\0"), "a", false},
	    {WIRE("\4_dns\5ex-am\0"), "_dns.ex-am", false},
	    {WIRE("\6Secret\3COM\0"), "Secret.COM", false},
	    /* bytes that text must not hold as they are */
	    {WIRE("\3a.b\3com\0"), "a\\046b.com", false},
	    {WIRE("\4a\\b\"\0"), "a\\092b\\034", false},
	    {WIRE("\5\0\1\n\33\377\0"), "\\000\\001\\010\\027\\255", false},
	    {WIRE("\3a b\0"), "a\\032b", false},
	    {WIRE("\1*\0"), "\\042", false},
	    {WIRE("\4\303\251\303\251\0"), "\\195\\169\\195\\169", false},
	    /* cut off */
	    {WIRE(""), "", true},
	    {WIRE("\7example\3com"), "example.com", true},
	    {WIRE("\7exam"), "exam", true},
	    {WIRE("\7"), "", true},
	    {WIRE("\3abc\7"), "abc", true},
	    /* pointers and reserved label types are told, and not followed; as text they look different */
	    {WIRE("\300\014"), "@12", true},
	    {WIRE("\377\377"), "@16383", true},
	    {WIRE("\300"), "@?", true},
	    {WIRE("\3www\300\014"), "www.@12", true},
	    {WIRE("\3www\300\014\0"), "www.@12", true},
	    {WIRE("\3www\300"), "www.@?", true},
	    {WIRE("\3www\100abc\0"), "www.!64", true},
	    {WIRE("\3www\200abc\0"), "www.!128", true},
	    {WIRE("\3@12\0"), "\\06412", false},
	    {WIRE("\3!64\0"), "\\03364", false},
	    /* something behind the root */
	    {WIRE("\3www\0\3com\0"), "www", true},
	    {WIRE("\0\0"), ".", true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct dnsname name;

		dnsname_decode(&name, (const uint8_t *)rows[i].wire, rows[i].len);
		assert_string_equal(name.text, rows[i].text);
		assert_int_equal(name.malformed, rows[i].malformed);
	}
}

/* 63 + 63 + 63 + 61 bytes and five length bytes: 255, the longest there is; and one more. */
static void test_longest(void **state)
{
	static const uint8_t labels[] = {63, 63, 63, 61};
	uint8_t wire[300];
	struct dnsname name;
	size_t n = 0;

	(void)state;
	for (size_t i = 0; i < sizeof labels; i++) {
		wire[n++] = labels[i];
		memset(wire + n, 0xff, labels[i]);
		n += labels[i];
	}
	wire[n++] = 0;
	assert_int_equal(n, DNSNAME_WIRE_MAX);
	dnsname_decode(&name, wire, n);
	assert_false(name.malformed);
	assert_int_equal(strlen(name.text), 4 * (63 + 63 + 63 + 61) + 3);

	/* As long, and it ends in what takes most room. */
	wire[64 * 3] = 60;
	wire[n - 2] = 0xff;
	wire[n - 1] = 0xff;
	dnsname_decode(&name, wire, n);
	assert_true(name.malformed);
	assert_string_equal(name.text + strlen(name.text) - 7, ".@16383");

	wire[n - 1] = 'x';
	wire[n++] = 0;
	wire[64 * 3] = 62;
	dnsname_decode(&name, wire, n);
	assert_true(name.malformed);
}

/* Whatever comes in: terminated, bounded, only the characters promised, and escapes that can be undone. */
static void test_random(void **state)
{
	(void)state;
	srandom(1);
	for (int i = 0; i < 200000; i++) {
		uint8_t wire[300];
		size_t len = (size_t)(random() % 300);
		struct dnsname name;

		for (size_t j = 0; j < len; j++)
			wire[j] = (uint8_t)(random() % 4 ? random() % 8 : random());
		memset(&name, 0x55, sizeof name);
		dnsname_decode(&name, wire, len);
		assert_non_null(memchr(name.text, 0, sizeof name.text));
		assert_int_equal(strspn(name.text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.\\@!?"),
				 strlen(name.text));
		for (const char *p = name.text; (p = strchr(p, '\\')); p += 4) {
			assert_in_range(p[1], '0', '2');
			assert_in_range(p[2], '0', '9');
			assert_in_range(p[3], '0', '9');
		}
	}
}

static void test_types(void **state)
{
	char buf[DNSTYPE_TEXT_MAX];

	(void)state;
	assert_string_equal(dnstype_text(buf, 1), "A");
	assert_string_equal(dnstype_text(buf, 28), "AAAA");
	assert_string_equal(dnstype_text(buf, 16), "TXT");
	assert_string_equal(dnstype_text(buf, 255), "ANY");
	assert_string_equal(dnstype_text(buf, 0), "TYPE0");
	assert_string_equal(dnstype_text(buf, 65535), "TYPE65535");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_table),
	    cmocka_unit_test(test_longest),
	    cmocka_unit_test(test_random),
	    cmocka_unit_test(test_types),
	};

	return cmocka_run_group_tests_name("dnsname", tests, NULL, NULL);
}
