/* SPDX-License-Identifier: Apache-2.0 */
/* What a container runtime tells its hooks. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/hook_state.h"

#define GOOD "{\"ociVersion\":\"1.0.2\",\"id\":\"c1\",\"status\":\"creating\",\"pid\":42,\"bundle\":\"/b\""
#define ASKS(name) GOOD ",\"annotations\":{\"weir.dev/policy\":\"" name "\"}}"

static struct hook_state s;

static int read_text(const char *text, struct err *e)
{
	memset(&s, 0, sizeof s);
	memset(e, 0, sizeof *e);
	return hook_state_read(text, strlen(text), &s, e);
}

static void taken(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(read_text(GOOD "}", &e), 0);
	assert_int_equal(s.pid, 42);
	assert_string_equal(s.id, "c1");
	assert_string_equal(s.bundle, "/b");
	assert_false(s.labelled);
	assert_int_equal(read_text(ASKS("tool-call"), &e), 0);
	assert_true(s.labelled);
	assert_string_equal(s.policy, "tool-call");
	/* Other members, of whatever kind: the specification may grow. */
	assert_int_equal(read_text(GOOD ",\"root\":\"/\",\"fds\":[1,{\"a\":null}],\"annotations\":{\"x\":\"\"}}", &e), 0);
	assert_false(s.labelled);
	assert_int_equal(
	    read_text("{\"ociVersion\":\"1.2\",\"id\":\"c\",\"status\":\"created\",\"pid\":4194304,\"bundle\":\"/\"}", &e), 0);
}

/* Each row is GOOD with one thing wrong, and where the error says that it is. */
static void refused(void **state)
{
	static const struct {
		const char *text, *where, *part;
	} rows[] = {
	    {"", "1:", ""},
	    {"[]", "", "object"},
	    {"{", "1:", ""},
	    {GOOD "} x", "1:", ""},
	    {GOOD ",\"pid\":43}", "1:", ""}, /* twice: which one counts? */
	    {"{\"id\":\"c\",\"status\":\"creating\",\"pid\":42,\"bundle\":\"/b\"}", "/ociVersion", "missing"},
	    {"{\"ociVersion\":\"2.0\",\"id\":\"c\",\"status\":\"creating\",\"pid\":42,\"bundle\":\"/b\"}", "/ociVersion",
	     "version 1"},
	    {"{\"ociVersion\":1,\"id\":\"c\",\"status\":\"creating\",\"pid\":42,\"bundle\":\"/b\"}", "/ociVersion", "text"},
	    {"{\"ociVersion\":\"1.0\",\"status\":\"creating\",\"pid\":42,\"bundle\":\"/b\"}", "/id", "missing"},
	    {"{\"ociVersion\":\"1.0\",\"id\":\"\",\"status\":\"creating\",\"pid\":42,\"bundle\":\"/b\"}", "/id", "text"},
	    {"{\"ociVersion\":\"1.0\",\"id\":\"a\\u001b[2J\",\"status\":\"creating\",\"pid\":42,\"bundle\":\"/b\"}", "/id",
	     "no id"},
	    {"{\"ociVersion\":\"1.0\",\"id\":\"c\",\"pid\":42,\"bundle\":\"/b\"}", "/status", "missing"},
	    {"{\"ociVersion\":\"1.0\",\"id\":\"c\",\"status\":\"running\",\"pid\":42,\"bundle\":\"/b\"}", "/status",
	     "createRuntime"},
	    {"{\"ociVersion\":\"1.0\",\"id\":\"c\",\"status\":\"stopped\",\"pid\":0,\"bundle\":\"/b\"}", "/status", "poststop"},
	    {"{\"ociVersion\":\"1.0\",\"id\":\"c\",\"status\":\"paused\",\"pid\":42,\"bundle\":\"/b\"}", "/status", "must be"},
	    {"{\"ociVersion\":\"1.0\",\"id\":\"c\",\"status\":\"creating\",\"bundle\":\"/b\"}", "/pid", "must be"},
	    {"{\"ociVersion\":\"1.0\",\"id\":\"c\",\"status\":\"creating\",\"pid\":0,\"bundle\":\"/b\"}", "/pid", "must be"},
	    {"{\"ociVersion\":\"1.0\",\"id\":\"c\",\"status\":\"creating\",\"pid\":-1,\"bundle\":\"/b\"}", "/pid", "must be"},
	    {"{\"ociVersion\":\"1.0\",\"id\":\"c\",\"status\":\"creating\",\"pid\":4194305,\"bundle\":\"/b\"}", "/pid",
	     "must be"},
	    {"{\"ociVersion\":\"1.0\",\"id\":\"c\",\"status\":\"creating\",\"pid\":42.0,\"bundle\":\"/b\"}", "/pid", "must be"},
	    {"{\"ociVersion\":\"1.0\",\"id\":\"c\",\"status\":\"creating\",\"pid\":\"42\",\"bundle\":\"/b\"}", "/pid",
	     "must be"},
	    {"{\"ociVersion\":\"1.0\",\"id\":\"c\",\"status\":\"creating\",\"pid\":42}", "/bundle", "missing"},
	    {"{\"ociVersion\":\"1.0\",\"id\":\"c\",\"status\":\"creating\",\"pid\":42,\"bundle\":\"b\"}", "/bundle",
	     "absolute"},
	    {"{\"ociVersion\":\"1.0\",\"id\":\"c\",\"status\":\"creating\",\"pid\":42,\"bundle\":\"/b\\u0000c\"}", "1:", ""},
	    {GOOD ",\"annotations\":[]}", "/annotations", "object of strings"},
	    {GOOD ",\"annotations\":null}", "/annotations", "object of strings"},
	    {GOOD ",\"annotations\":{\"a\":1}}", "/annotations", "object of strings"},
	    {GOOD ",\"annotations\":{\"weir.dev/policy\":true}}", "/annotations", "object of strings"},
	    {ASKS(""), "/annotations", "never a path"},
	    {ASKS("/etc/passwd"), "/annotations", "never a path"},
	    {ASKS("../x"), "/annotations", "never a path"},
	    {ASKS("x.json"), "/annotations", "never a path"},
	    {ASKS("X"), "/annotations", "never a path"},
	    {ASKS("a b"), "/annotations", "never a path"},
	    {ASKS("a\\n"), "/annotations", "never a path"},
	};
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (read_text(rows[i].text, &e) != -EINVAL || strncmp(e.where, rows[i].where, strlen(rows[i].where)) != 0 ||
		    !strstr(e.msg, rows[i].part) || !e.msg[0])
			fail_msg("%s: %d %s: %s", rows[i].text, e.code, e.where, e.msg);
		assert_int_equal(s.pid, 0);
	}
}

static void bounds(void **state)
{
	static char text[HOOK_STATE_MAX + 2], name[80];
	char *p = text;
	struct err e;

	(void)state;
	/* As long as it may be, and one byte longer. */
	p += sprintf(p, "%s", GOOD "}");
	memset(p, ' ', sizeof text - 1 - (size_t)(p - text));
	assert_int_equal(hook_state_read(text, HOOK_STATE_MAX, &s, &e), 0);
	assert_int_equal(hook_state_read(text, HOOK_STATE_MAX + 1, &s, &e), -E2BIG);
	/* Names of 63 and of 64 characters. */
	memset(name, 'a', 64);
	assert_false(hook_policy_name_ok(name));
	name[63] = 0;
	assert_true(hook_policy_name_ok(name));
	/* Nesting. */
	p = text + sprintf(text, "%s", GOOD ",\"x\":");
	memset(p, '[', 100000);
	p[100000] = 0;
	assert_true(read_text(text, &e) < 0);
	assert_true(e.msg[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(taken), cmocka_unit_test(refused), cmocka_unit_test(bounds)};

	return cmocka_run_group_tests_name("hook_state", tests, NULL, NULL);
}
