/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of /v1/audit: what they mean, and what is refused and how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "api/find_args.h"
#include "auditor/record.h"
#include "core/limits.h"

static struct find_args take(enum find_route route, const char *name, const char *value)
{
	struct find_args a = {0};
	struct api_error e;

	if (find_args_take(&a, route, name, value, &e) < 0)
		fail_msg("%s=%s: %s", name, value, e.message);
	return a;
}

static void values(void **state)
{
	(void)state;
	assert_int_equal(take(FIND_SEARCH, "since", "1970-01-02").find.since_ns, 86400000000000);
	assert_int_equal(take(FIND_SEARCH, "until", "1970-01-01T02:00:00%2B01:00").find.until_ns, 3600000000000);
	assert_int_equal(take(FIND_SEARCH, "until", "1970-01-01T02:00:00 01:00").find.until_ns, 3600000000000);
	assert_int_equal(take(FIND_SEARCH, "until", "1970-01-01%2002:00:00Z").find.until_ns, 7200000000000);
	assert_string_equal(take(FIND_SEARCH, "project", "acme").find.project, "acme");
	assert_string_equal(take(FIND_SEARCH, "policy", "tool-call").find.policy, "tool-call");
	assert_string_equal(take(FIND_SEARCH, "agent", "bot").find.agent, "bot");
	assert_string_equal(take(FIND_SEARCH, "caller", "uid:0%2Csudo:1000").find.caller, "uid:0,sudo:1000");
	assert_string_equal(take(FIND_STREAM, "destination", "*.Example.COM").find.destination, "*.example.com");
	assert_string_equal(take(FIND_STREAM, "destination", "10.%2a").find.destination, "10.*");
	assert_string_equal(take(FIND_SEARCH, "destination", "a%5C032b").find.destination, "a\\032b");
	assert_int_equal(take(FIND_SEARCH, "verdict", "denied").find.verdicts, 1u << WEIR_DENY);
	assert_int_equal(take(FIND_STREAM, "verdict", "allowed,would_deny").find.verdicts,
			 1u << WEIR_ALLOW | 1u << WEIR_WOULD_DENY);
	assert_int_equal(take(FIND_SEARCH, "end", "exit,timeout").find.ends, 1u << RUN_END_EXIT | 1u << RUN_END_TIMEOUT);
	assert_int_equal(take(FIND_SEARCH, "limit", "1").find.limit, 1);
	assert_int_equal(take(FIND_SEARCH, "limit", "500").find.limit, LIMIT_AUDIT_SEARCH);
	assert_int_equal(take(FIND_SEARCH, "cursor", "123456789012345678").find.after, 123456789012345678);
	assert_int_equal(take(FIND_STREAM, "after", "0").find.after, 0);
	assert_true(take(FIND_STREAM, "after", "0").has_after);
	assert_int_equal(take(FIND_STREAM, "type", "egress,gap").types, 1u << RECORD_EGRESS | 1u << RECORD_GAP);
}

static void refused(void **state)
{
	static const struct {
		enum find_route route;
		const char *name, *value, *words;
	} rows[] = {
	    {FIND_SEARCH, "x", "1", "at \"?x\": there is no such parameter here; those are since, until, project, policy"},
	    {FIND_SEARCH, "Since", "1970-01-02", "at \"?Since\": there is no such parameter"},
	    {FIND_SEARCH, "after", "1", "at \"?after\": there is no such parameter"},
	    {FIND_STREAM, "since", "1970-01-02", "those are project, destination, verdict, type, after"},
	    {FIND_STREAM, "cursor", "1", "at \"?cursor\": there is no such parameter"},
	    {FIND_STREAM, "caller", "uid:0", "at \"?caller\": there is no such parameter"},
	    {FIND_STREAM, "agent", "bot", "at \"?agent\": there is no such parameter"},
	    {FIND_NONE, "limit", "1", "at \"?limit\": there is no such parameter here; this route takes none"},
	    {FIND_SEARCH, "caller", "token:tok-0123456789012345678901234567890123456789", "over the limit of 47 bytes"},
	    {FIND_SEARCH, "since", NULL, "at \"?since\": expected a value, found \"\""},
	    {FIND_SEARCH, "since", "", "expected a value"},
	    {FIND_SEARCH, "since", "now", "at \"?since\": expected a time like 2026-11-30T09:05:00Z, or a date, found \"now\""},
	    {FIND_SEARCH, "until", "1970-01-01T02:00:00%01:00", "expected text without control characters"},
	    {FIND_SEARCH, "project", "a%00b", "expected text without control characters"},
	    {FIND_SEARCH, "project", "a%", "percent-encoded"},
	    {FIND_SEARCH, "project", "a%4", "percent-encoded"},
	    {FIND_SEARCH, "project", "a%zz", "percent-encoded"},
	    {FIND_SEARCH, "project", "a\x7f", "percent-encoded"},
	    {FIND_SEARCH, "project", "0123456789012345678901234567890123456789012345678901234567890123",
	     "at \"?project\": it has 64 bytes, over the limit of 63 bytes"},
	    {FIND_SEARCH, "destination", "*", "the beginning of one with * at its end"},
	    {FIND_SEARCH, "destination", "a*b", "the beginning of one with * at its end"},
	    {FIND_SEARCH, "destination", "10.0.0.0%2F8", "prefixes (10.0.0.0/8) and * elsewhere are not supported"},
	    {FIND_SEARCH, "destination", "*a*", "the beginning of one with * at its end"},
	    {FIND_SEARCH, "verdict", "denied,", "of denied, allowed, would_deny, found \"denied,\""},
	    {FIND_SEARCH, "verdict", "DENIED", "of denied, allowed, would_deny"},
	    {FIND_SEARCH, "end", "crash", "of exit, signal, timeout, memory, output, cancelled, broken"},
	    {FIND_SEARCH, "limit", "0", "an integer from 1 to 500, found \"0\""},
	    {FIND_SEARCH, "limit", "501", "an integer from 1 to 500"},
	    {FIND_SEARCH, "limit", "-1", "an integer from 1 to 500"},
	    {FIND_SEARCH, "limit", "99999999999999999999", "an integer from 1 to 500"},
	    {FIND_SEARCH, "cursor", "18446744073709551615", "a number of up to 18 digits"},
	    {FIND_SEARCH, "cursor", "1 or 1", "a number of up to 18 digits"},
	    {FIND_STREAM, "type", "run_start", "one or more, with commas between, of other, run_begin, egress"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct find_args a = {0};
		struct api_error e;

		assert_int_equal(find_args_take(&a, rows[i].route, rows[i].name, rows[i].value, &e), -EINVAL);
		assert_int_equal(error_row(e.kase)->status, 400);
		if (!strstr(e.message, rows[i].words))
			fail_msg("%s=%s: %s", rows[i].name, rows[i].value, e.message);
	}
}

static void twice(void **state)
{
	struct find_args a = {0};
	struct api_error e;

	(void)state;
	assert_int_equal(find_args_take(&a, FIND_SEARCH, "project", "a", &e), 0);
	assert_int_equal(find_args_take(&a, FIND_SEARCH, "policy", "a", &e), 0);
	assert_int_equal(find_args_take(&a, FIND_SEARCH, "project", "a", &e), -EINVAL);
	assert_string_equal(e.message, "at \"?project\": it is there twice: keep one");
}

static void too_long(void **state)
{
	char value[1200];
	struct find_args a = {0};
	struct api_error e;

	(void)state;
	memset(value, 'a', sizeof value);
	value[255] = 0;
	assert_int_equal(find_args_take(&a, FIND_SEARCH, "destination", value, &e), 0);
	a = (struct find_args){0};
	value[255] = 'a';
	value[256] = 0;
	assert_int_equal(find_args_take(&a, FIND_SEARCH, "destination", value, &e), -EINVAL);
	value[256] = 'a';
	value[1199] = 0;
	a = (struct find_args){0};
	assert_int_equal(find_args_take(&a, FIND_SEARCH, "destination", value, &e), -EINVAL);
	assert_true(strlen(e.message) < 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(refused), cmocka_unit_test(twice),
					   cmocka_unit_test(too_long)};

	return cmocka_run_group_tests_name("find_args", tests, NULL, NULL);
}
