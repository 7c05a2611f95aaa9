/* SPDX-License-Identifier: Apache-2.0 */
/* policy_parse(): what it takes, and for all else where the error is. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/policy.h"

#define A10 "aaaaaaaaaa"
#define A60 A10 A10 A10 A10 A10 A10
#define NAME_63 A60 "aaa"

static const struct accepted {
	const char *text;
	const char *name;
	int verdict;
} accepted[] = {
    {"{\"name\":\"x\",\"default\":\"deny\"}", "x", WEIR_DENY},
    {"{\"name\":\"x\",\"default\":\"allow\"}", "x", WEIR_ALLOW},
    {" \n\t{ \"default\" : \"allow\" , \"name\" : \"a.B-9_\" }\r\n", "a.B-9_", WEIR_ALLOW},
    {"{\"name\":\"x\",\"default\":\"deny\",\"mode\":\"enforce\"}", "x", WEIR_DENY},
    {"{\"name\":\"x\",\"default\":\"deny\",\"description\":\"\"}", "x", WEIR_DENY},
    {"{\"name\":\"x\",\"default\":\"deny\",\"description\":\"\xc3\xa9 \\u0007 \\ud83d\\ude00\"}", "x", WEIR_DENY},
    {"{\"n\\u0061me\":\"x\",\"default\":\"den\\u0079\"}", "x", WEIR_DENY},
    {"{\"name\":\"" NAME_63 "\",\"default\":\"deny\"}", NAME_63, WEIR_DENY},
};

static void test_accepted(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof accepted / sizeof *accepted; i++) {
		const struct accepted *c = &accepted[i];
		struct err e = {.code = 77};
		struct policy p;

		memset(&p, 0xff, sizeof p);
		assert_int_equal(policy_parse(c->text, strlen(c->text), &p, &e), 0);
		assert_int_equal(e.code, 77); /* untouched */
		assert_string_equal(p.name, c->name);
		assert_int_equal(p.image.present, 1);
		assert_int_equal(p.image.generation, 0);
		assert_int_equal(p.image.default_verdict, c->verdict);
	}
}

#define LIT(s) s, sizeof s - 1

static const struct refused {
	const char *text;
	size_t len;
	const char *where;
	const char *says;
} refused[] = {
    /* syntax: line:column */
    {LIT(""), "1:0", "too early"},
    {LIT("  \n "), "2:1", "too early"},
    {LIT("{"), "1:1", "too early"},
    {LIT("{\"name\":\"x\",\n \"default\":deny}"), "2:15", "JSON"},
    {LIT("{\"name\":\"x\",\"default\":\"deny\",}"), "1:30", "JSON"},
    {LIT("{\"name\":\"x\",\"default\":\"deny\"} {}"), "1:31", "follows"},
    {LIT("{\"name\":\"x\",\"name\":\"y\",\"default\":\"deny\"}"), "1:18", "twice"},
    {LIT("{\"name\":\"x\",\"n\\u0061me\":\"y\",\"default\":\"deny\"}"), "1:23", "twice"},
    {LIT("{\"name\":\"\xff\",\"default\":\"deny\"}"), "1:9", "UTF-8"},
    {LIT("{\"name\":\"\xc0\xaf\",\"default\":\"deny\"}"), "1:9", "UTF-8"},
    {LIT("{\"name\":\"\xed\xa0\x80\",\"default\":\"deny\"}"), "1:9", "UTF-8"},
    {LIT("{\"name\":\"x\\u0000\",\"default\":\"deny\"}"), "1:17", "NUL"},
    {LIT("{\"na\\u0000me\":\"x\",\"default\":\"deny\"}"), "1:13", "NUL"},
    {LIT("{\"name\":\"x\0\",\"default\":\"deny\"}"), "1:10", "JSON"},
    {LIT("{\"name\":\"x\",\"default\":\"deny\"}\0"), NULL, NULL},
    {LIT("\xef\xbb\xbf{\"name\":\"x\",\"default\":\"deny\"}"), NULL, NULL},
    {LIT("{\"name\":\"\xc3\xa9\" x"), NULL, "JSON"},
    /* meaning: a pointer */
    {LIT("[]"), "", "object"},
    {LIT("null"), "", "object"},
    {LIT("\"deny\""), "", "object"},
    {LIT("1e3"), "", "object"},
    {LIT("{}"), "", "\"name\" is missing"},
    {LIT("{\"name\":\"x\"}"), "", "\"default\" is missing"},
    {LIT("{\"default\":\"deny\"}"), "", "\"name\" is missing"},
    {LIT("{\"name\":1,\"default\":\"deny\"}"), "/name", "string"},
    {LIT("{\"name\":null,\"default\":\"deny\"}"), "/name", "string"},
    {LIT("{\"name\":[\"x\"],\"default\":\"deny\"}"), "/name", "string"},
    {LIT("{\"name\":\"\",\"default\":\"deny\"}"), "/name", "empty"},
    {LIT("{\"name\":\"a b\",\"default\":\"deny\"}"), "/name", "letters"},
    {LIT("{\"name\":\"a/b\",\"default\":\"deny\"}"), "/name", "letters"},
    {LIT("{\"name\":\"..\",\"default\":\"deny\"}"), "/name", "letters"},
    {LIT("{\"name\":\"-x\",\"default\":\"deny\"}"), "/name", "letters"},
    {LIT("{\"name\":\"\xc3\xa9\",\"default\":\"deny\"}"), "/name", "letters"},
    {LIT("{\"name\":\"" NAME_63 "a\",\"default\":\"deny\"}"), "/name", "64 bytes"},
    {LIT("{\"name\":\"x\",\"default\":\"Deny\"}"), "/default", "deny"},
    {LIT("{\"name\":\"x\",\"default\":\"\"}"), "/default", "deny"},
    {LIT("{\"name\":\"x\",\"default\":false}"), "/default", "string"},
    {LIT("{\"name\":\"x\",\"default\":\"deny\",\"mode\":\"monitor\"}"), "/mode", "enforce"},
    {LIT("{\"name\":\"x\",\"default\":\"deny\",\"mode\":null}"), "/mode", "string"},
    {LIT("{\"name\":\"x\",\"default\":\"deny\",\"description\":3}"), "/description", "string"},
    {LIT("{\"name\":\"x\",\"default\":\"deny\",\"rules\":[]}"), "/rules", "not a key"},
    {LIT("{\"name\":\"x\",\"default\":\"deny\",\"Name\":\"x\"}"), "/Name", "not a key"},
    {LIT("{\"name\":\"x\",\"default\":\"deny\",\"\":1}"), "/", "not a key"},
    {LIT("{\"name\":\"x\",\"default\":\"deny\",\"a/b~c\":1}"), "/a~1b~0c", "not a key"},
    {LIT("{\"name\":\"x\",\"default\":\"deny\",\"a\\u001b[2J\":1}"), "/a?[2J", "not a key"},
};

static void test_refused(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof refused / sizeof *refused; i++) {
		const struct refused *c = &refused[i];
		struct policy p, before;
		struct err e = {0};

		memset(&p, 0x5a, sizeof p);
		before = p;
		if (policy_parse(c->text, c->len, &p, &e) != -EINVAL || e.code != EINVAL)
			fail_msg("not refused: %s", c->text);
		assert_memory_equal(&p, &before, sizeof p); /* untouched */
		if (c->where && strcmp(e.where, c->where))
			fail_msg("%s: error at %s (%s), expected at %s", c->text, e.where, e.msg, c->where);
		if (c->says && !strstr(e.msg, c->says))
			fail_msg("%s: says %s, expected %s", c->text, e.msg, c->says);
	}
}

/* Every prefix of a good document is an error, and never read beyond its end (the copy is exact, for the sanitizer). */
static void test_truncated(void **state)
{
	static const char doc[] = "{\"name\":\"x\",\"default\":\"deny\",\"description\":\"\xf0\x9f\x98\x80\"}";
	size_t n;

	(void)state;
	for (n = 0; n < sizeof doc - 1; n++) {
		char *copy = malloc(n ? n : 1);
		struct policy p;
		struct err e;

		memcpy(copy, doc, n);
		assert_int_equal(policy_parse(copy, n, &p, &e), -EINVAL);
		free(copy);
	}
}

static void test_long_unknown_key(void **state)
{
	char doc[4096], key[2000];
	struct policy p;
	struct err e;
	size_t i;

	(void)state;
	/* Three bytes a character: the cut must not leave half of one, wherever it falls. */
	for (i = 0; i < 3; i++) {
		size_t n = i, at;

		memset(key, 'k', i);
		while (n + 3 < sizeof key) {
			memcpy(key + n, "\xe2\x82\xac", 3);
			n += 3;
		}
		key[n] = '\0';
		at = (size_t)snprintf(doc, sizeof doc, "{\"%s\":1}", key);
		assert_int_equal(policy_parse(doc, at, &p, &e), -EINVAL);
		assert_true(strlen(e.where) < sizeof e.where);
		assert_int_equal((strlen(e.where) - 1 - i) % 3, 0);
	}
}

static void test_size_limit(void **state)
{
	size_t max = LIMIT_POLICY_BYTES;
	static const char doc[] = "{\"name\":\"x\",\"default\":\"deny\"}";
	char *text = malloc(max + 1);
	struct policy p;
	struct err e;

	(void)state;
	memset(text, ' ', max + 1);
	memcpy(text, doc, sizeof doc - 1);
	assert_int_equal(policy_parse(text, max, &p, &e), 0);
	assert_int_equal(policy_parse(text, max + 1, &p, &e), -EFBIG);
	/* A long name and deep nesting, within the limit. */
	memset(text, '[', max);
	assert_int_equal(policy_parse(text, max, &p, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "deep"));
	memset(text, 'a', max);
	memcpy(text, "{\"name\":\"", 9);
	memcpy(text + max - 19, "\",\"default\":\"deny\"}", 19);
	assert_int_equal(policy_parse(text, max, &p, &e), -EINVAL);
	assert_string_equal(e.where, "/name");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_accepted),	     cmocka_unit_test(test_refused),	cmocka_unit_test(test_truncated),
	    cmocka_unit_test(test_long_unknown_key), cmocka_unit_test(test_size_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
