/* SPDX-License-Identifier: Apache-2.0 */
/* resolv.conf as the resolver reads it: which lines count, and what addresses come of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/resolvconf.h"

#define TEXT(s) s, sizeof(s) - 1

static void test_table(void **state)
{
	static const struct {
		const char *text;
		size_t len;
		const char *want; /* addresses with their length, a space between */
	} rows[] = {
	    {TEXT(""), ""},
	    {TEXT("nameserver 10.0.0.53\n"), "10.0.0.53/32"},
	    {TEXT("nameserver 10.0.0.53"), "10.0.0.53/32"},
	    {TEXT("nameserver\t \t10.0.0.53 \n"), "10.0.0.53/32"},
	    {TEXT("nameserver 10.0.0.53\r\n"), "10.0.0.53/32"},
	    {TEXT("nameserver 10.0.0.53 # ours\n"), "10.0.0.53/32"},
	    {TEXT("search a.example\nnameserver 10.0.0.1\noptions edns0\nnameserver 10.0.0.2\n"), "10.0.0.1/32 10.0.0.2/32"},
	    {TEXT("nameserver 2001:db8::53\n"), "2001:db8::53/128"},
	    {TEXT("nameserver fe80::1%eth0\n"), "fe80::1/128"},
	    {TEXT("nameserver ::ffff:10.0.0.53\n"), "10.0.0.53/32"},
	    {TEXT("nameserver ::1\n"), "::1/128"},
	    /* no more than three, whatever stands between them */
	    {TEXT("nameserver 1.1.1.1\nnameserver x\nnameserver 2.2.2.2\nnameserver 3.3.3.3\nnameserver 4.4.4.4\n"),
	     "1.1.1.1/32 2.2.2.2/32 3.3.3.3/32"},
	    {TEXT("nameserver 1.1.1.1\nnameserver 1.1.1.1\n"), "1.1.1.1/32 1.1.1.1/32"},
	    /* not lines of that kind */
	    {TEXT(" nameserver 10.0.0.53\n"), ""},
	    {TEXT("#nameserver 10.0.0.53\n"), ""},
	    {TEXT("; nameserver 10.0.0.53\n"), ""},
	    {TEXT("nameservers 10.0.0.53\n"), ""},
	    {TEXT("nameserver\n"), ""},
	    {TEXT("nameserver"), ""},
	    {TEXT("nameserver \n"), ""},
	    {TEXT("nameserver 10.0.0.53x\n"), ""},
	    {TEXT("Nameserver 10.0.0.53\n"), ""},
	    /* not addresses that a policy could be sure of */
	    {TEXT("nameserver dns.example\n"), ""},
	    {TEXT("nameserver 10.1\n"), ""},
	    {TEXT("nameserver 010.0.0.53\n"), ""},
	    {TEXT("nameserver 10.0.0.53/32\n"), ""},
	    {TEXT("nameserver 10.0.0.53%eth0\n"), ""},
	    {TEXT("nameserver %eth0\n"), ""},
	    {TEXT("nameserver 10.0.0.53\0.1\n"), "10.0.0.53/32"},
	    {TEXT("name\0server 10.0.0.53\n"), ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct cidr servers[RESOLVCONF_SERVERS];
		char got[RESOLVCONF_SERVERS * (CIDR_TEXT_MAX + 1)] = "", one[CIDR_TEXT_MAX];
		size_t n = resolvconf_parse(rows[i].text, rows[i].len, servers);

		for (size_t k = 0; k < n; k++) {
			cidr_text(one, &servers[k], false);
			snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", k ? " " : "", one);
		}
		if (strcmp(got, rows[i].want) != 0)
			print_error("row %zu: %s\n", i, rows[i].text);
		assert_string_equal(got, rows[i].want);
	}
}

/* Each prefix of a good file, in memory of just its size: nothing is read beyond it. */
static void test_cut(void **state)
{
	static const char text[] = "search x\nnameserver 10.0.0.53\nnameserver fe80::1%eth0\n";

	(void)state;
	for (size_t len = 0; len < sizeof text; len++) {
		struct cidr servers[RESOLVCONF_SERVERS];
		char *copy = malloc(len + !len);

		assert_non_null(copy);
		memcpy(copy, text, len);
		assert_in_range(resolvconf_parse(copy, len, servers), 0, 2);
		free(copy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_table),
	    cmocka_unit_test(test_cut),
	};

	return cmocka_run_group_tests_name("resolvconf", tests, NULL, NULL);
}
