/* SPDX-License-Identifier: Apache-2.0 */
/* A policy in words: everything that a document decides is said, and nothing that it does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/policy.h"
#include "core/policy_words.h"

static char *words_of(const char *document, size_t places)
{
	struct policy *p = NULL;
	struct err e;
	char *words;

	if (policy_parse(document, strlen(document), &p, &e) < 0)
		fail_msg("%s: %s", e.where, e.msg);
	words = policy_words(p, places);
	policy_free(p);
	assert_non_null(words);
	return words;
}

static void assert_has(const char *text, const char *line)
{
	if (!strstr(text, line))
		fail_msg("no \"%s\" in:\n%s", line, text);
}

static void assert_lacks(const char *text, const char *line)
{
	if (strstr(text, line))
		fail_msg("\"%s\" in:\n%s", line, text);
}

#define REST                                                                                                                   \
	"Loopback addresses are judged like all others.\n"                                                                     \
	"Connections from outside are refused.\n"                                                                              \
	"Sockets that may be made: families unix, inet, inet6; types stream, dgram, seqpacket; protocols tcp, udp.\n"

static void test_default(void **state)
{
	char *words = policy_words(policy_snippet(), 0);

	(void)state;
	assert_string_equal(words, "It is enforced: what it denies does not leave, and the program gets an error.\n"
				   "Every destination is denied, name servers included.\n" REST);
	free(words);
}

static void test_rules(void **state)
{
	char *words =
	    words_of("{\"name\": \"x\", \"default\": \"deny\", \"rules\": ["
		     "{\"name\": \"names\", \"verdict\": \"allow\", \"to\": \"@resolver\", \"protocol\": [\"udp\", \"tcp\"], "
		     "\"ports\": 53},"
		     "{\"name\": \"web\", \"verdict\": \"allow\", \"to\": [\"203.0.113.0/24\", \"2001:db8::7\"], "
		     "\"protocol\": \"tcp\", \"ports\": [443, \"8000-8999\"]},"
		     "{\"verdict\": \"deny\", \"to\": \"any\", \"protocol\": \"icmp\"}]}",
		     0);

	(void)state;
	assert_string_equal(
	    words, "It is enforced: what it denies does not leave, and the program gets an error.\n"
		   "What no rule names is denied, name servers included.\n"
		   "Rule names allows udp, tcp port 53 to @resolver (the name servers in /etc/resolv.conf, as Weir sees it).\n"
		   "Rule web allows tcp ports 443, 8000-8999 to 203.0.113.0/24, 2001:db8::7.\n"
		   "Rule rule-3 denies icmp to any address.\n"
		   "Where several rules fit a destination, the one with the longest prefix decides, whatever their order.\n"
		   "An IPv6 address that carries an IPv4 address is denied where either is.\n" REST);
	free(words);
}

static void test_one_rule_for_everything(void **state)
{
	char *words = words_of(
	    "{\"name\": \"x\", \"default\": \"allow\", \"rules\": [{\"verdict\": \"deny\", \"to\": \"10.0.0.0/8\"}]}", 0);

	(void)state;
	assert_has(words, "What no rule names is allowed.\n");
	assert_has(words, "Rule rule-1 denies everything to 10.0.0.0/8.\n");
	assert_lacks(words, "Where several rules");
	free(words);
}

static void test_places_are_bounded(void **state)
{
	char *words = words_of("{\"name\": \"x\", \"default\": \"deny\", \"rules\": [{\"verdict\": \"allow\", \"to\": "
			       "[\"192.0.2.1\", \"192.0.2.2\", \"192.0.2.3\", \"192.0.2.4\"]}]}",
			       2);

	(void)state;
	assert_has(words, "to 192.0.2.1, 192.0.2.2 and 2 more.\n");
	free(words);
}

/* One key each, and what it makes of the words: a key that is not said would be a surprise to whoever trusts them. */
static void test_every_key(void **state)
{
	static const struct {
		const char *key, *line;
	} rows[] = {
	    {"\"mode\": \"monitor\"", "It only watches: nothing is blocked"},
	    {"\"loopback\": \"deny\"", "Loopback addresses are denied"},
	    {"\"loopback\": \"self\"", "Loopback addresses are allowed"},
	    {"\"inbound\": \"allow\"", "Connections from outside are accepted"},
	    {"\"listen\": \"deny\"", "Nothing may listen"},
	    {"\"packets\": {\"ipv4_options\": \"allow\"}", "IPv4 options are let out"},
	    {"\"packets\": {\"routing_headers\": \"allow\"}", "IPv6 routing headers are let out"},
	    {"\"packets\": {\"fragments\": \"allow\"}", "Fragments that show no port are let out"},
	    {"\"nat64_prefixes\": [\"2001:db8:64::/96\"]", "Addresses in 2001:db8:64::/96 are translated"},
	    {"\"sockets\": {\"families\": [\"inet\"], \"protocols\": []}",
	     "families inet; types stream, dgram, seqpacket; protocols none."},
	    {"\"syscalls\": [{\"names\": [\"@debug\"]}, {\"names\": [\"userfaultfd\"], \"action\": \"kill\"}]",
	     "@debug (EPERM), userfaultfd (the process ends)."},
	    {"\"limits\": {\"memory_bytes\": 268435456, \"cpu_percent\": 50, \"datagram_sockets\": 8}",
	     "Limits of its own: memory 256 MiB, CPU 50 % of one processor, datagram sockets with a destination 8."},
	    {"\"limits\": {\"memory_bytes\": 1500000, \"processes\": 64, \"open_files\": 32}",
	     "memory 1500000 bytes, processes and threads 64, open files of one process 32."},
	    {"\"audit\": {\"allowed\": false}", "Allowed attempts are counted and not listed."},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char document[512], *words, *plain = words_of("{\"name\": \"x\", \"default\": \"deny\"}", 0);

		snprintf(document, sizeof document, "{\"name\": \"x\", \"default\": \"deny\", %s}", rows[i].key);
		words = words_of(document, 0);
		assert_has(words, rows[i].line);
		assert_lacks(plain, rows[i].line);
		free(words);
		free(plain);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_default),
	    cmocka_unit_test(test_rules),
	    cmocka_unit_test(test_one_rule_for_everything),
	    cmocka_unit_test(test_places_are_bounded),
	    cmocka_unit_test(test_every_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
