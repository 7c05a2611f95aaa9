/* SPDX-License-Identifier: Apache-2.0 */
/* The table of agents: what may stand in it, where an error says it is, and that text and table are the same thing. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/cleanup.h"
#include "registry/agents.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const char whole_text[] =
    "{\"version\": 1, \"agents\": [\n"
    " {\"name\": \"weather\", \"project\": \"demo\", \"digest\": \"" HEX "\", \"image\": \"weather:2\",\n"
    "  \"modules\": [\"app.tools\", \"app\"], \"variables\": {\"KEY\": \"a 'b' \\u00e9\\n\", \"EMPTY\": \"\"},\n"
    "  \"added\": 1800000000},\n"
    " {\"name\": \"weather\", \"project\": \"other\", \"digest\": \"" HEX "\", \"image\": \"x\",\n"
    "  \"modules\": [\"t\"], \"variables\": {}, \"added\": 0}]}";

static int parse(const char *text, struct agent_table *t, struct err *e)
{
	memset(t, 0, sizeof *t);
	*e = (struct err){.code = -1};
	return agent_table_parse(text, strlen(text), t, e);
}

static void check_whole(const struct agent_table *t)
{
	static const char variables[] = "KEY=a 'b' \xc3\xa9\n\0EMPTY=\0";
	const struct agent_entry *a = agent_table_find(t, "demo", "weather"), *b = agent_table_find(t, "other", "weather");

	assert_int_equal(t->count, 2);
	assert_non_null(a);
	assert_non_null(b);
	assert_null(agent_table_find(t, "demo", "weathe"));
	assert_null(agent_table_find(t, "another", "weather"));
	assert_string_equal(a->digest, HEX);
	assert_string_equal(a->image, "weather:2");
	assert_int_equal(a->module_count, 2);
	assert_string_equal(a->modules[0], "app.tools");
	assert_string_equal(a->modules[1], "app");
	assert_int_equal(a->variables_len, sizeof variables);
	assert_memory_equal(a->variables, variables, sizeof variables);
	assert_int_equal(a->added_s, 1800000000);
	/* Nothing is an end by itself. */
	assert_int_equal(b->variables_len, 1);
	assert_int_equal(b->variables[0], 0);
}

static void there_and_back(void **state)
{
	struct agent_table t, again;
	_cleanup_free_ char *text = NULL, *second = NULL;
	struct err e;
	size_t len = 0;

	(void)state;
	assert_int_equal(parse(whole_text, &t, &e), 0);
	check_whole(&t);
	text = agent_table_text(&t, &len);
	assert_non_null(text);
	assert_int_equal(len, strlen(text));
	assert_int_equal(parse(text, &again, &e), 0);
	check_whole(&again);
	second = agent_table_text(&again, &len);
	assert_string_equal(text, second);
	agent_table_clear(&t);
	agent_table_clear(&again);
	assert_null(t.entries);
	/* An empty table is one too. */
	assert_int_equal(parse("{\"version\": 1, \"agents\": []}", &t, &e), 0);
	assert_int_equal(t.count, 0);
	agent_table_clear(&t);
}

/* The whole document with `from` replaced by `to`, once. */
static char *changed(const char *from, const char *to)
{
	const char *at = strstr(whole_text, from);
	char *text = NULL;

	assert_non_null(at);
	assert_true(asprintf(&text, "%.*s%s%s", (int)(at - whole_text), whole_text, to, at + strlen(from)) > 0);
	return text;
}

static void bad(void **state)
{
	static const struct {
		const char *from, *to, *where, *part;
	} rows[] = {
	    {"{\"version\"", "[\"version\"", "", "line 1"},
	    {"\"version\": 1", "\"version\": 2", "/version", "the only version"},
	    {"\"version\": 1", "\"version\": \"1\"", "/version", "the only version"},
	    {"\"version\": 1, ", "", "", "\"version\" is missing"},
	    {"\"version\": 1", "\"version\": 1, \"more\": 1", "/more", "there is no such key"},
	    {"\"version\": 1", "\"version\": 1, \"version\": 1", "", "duplicate"},
	    {"\"added\": 1800000000", "\"added\": -1", "/agents/0/added", "expected seconds"},
	    {"\"added\": 1800000000", "\"added\": 1.5", "/agents/0/added", "expected seconds"},
	    {"\"added\": 1800000000", "\"added\": 1, \"a/b\": 1", "/agents/0/a~1b", "there is no such key"},
	    {"\"name\": \"weather\", \"project\": \"other\"", "\"name\": \"-w\", \"project\": \"other\"", "/agents/1/name",
	     "an agent's name"},
	    {"\"name\": \"weather\"", "\"name\": \"Weather\"", "/agents/0/name", "an agent's name"},
	    {"\"name\": \"weather\"", "\"name\": 7", "/agents/0/name", "an agent's name"},
	    {"\"name\": \"weather\", ", "", "/agents/0", "\"name\" is missing"},
	    {"\"project\": \"demo\"", "\"project\": \"\"", "/agents/0/project", "a project's name"},
	    {"\"project\": \"demo\"", "\"project\": \"other\"", "/agents/1",
	     "the agent weather of project other is there twice"},
	    {"\"digest\": \"0", "\"digest\": \"", "/agents/0/digest", "64 digits"},
	    {"\"digest\": \"0", "\"digest\": \"A", "/agents/0/digest", "64 digits"},
	    {"\"digest\": \"0", "\"digest\": \"../", "/agents/0/digest", "64 digits"},
	    {"\"image\": \"weather:2\"", "\"image\": \"a\\nb\"", "/agents/0/image", "the name of an image"},
	    {"\"image\": \"weather:2\"", "\"image\": null", "/agents/0/image", "the name of an image"},
	    {"\"app.tools\", \"app\"", "", "/agents/0/modules", "a module or more"},
	    {"[\"app.tools\", \"app\"]", "\"app\"", "/agents/0/modules", "a module or more"},
	    {"\"app.tools\", \"app\"", "\"app\", \"app\"", "/agents/0/modules/1", "the module app is there twice"},
	    {"\"app.tools\", \"app\"", "\"app\", 1", "/agents/0/modules/1", "expected a string"},
	    {"\"app.tools\"", "\"app..tools\"", "/agents/0/modules/0", "is no module's name"},
	    {"\"app.tools\"", "\"app/tools\"", "/agents/0/modules/0", "is no module's name"},
	    {"\"KEY\"", "\"SANDBOX_URL\"", "/agents/0/variables/SANDBOX_URL", "SANDBOX_URL is reserved by the platform"},
	    {"\"KEY\"", "\"K;reboot\"", "/agents/0/variables/K;reboot", "is no variable's name"},
	    {"\"EMPTY\": \"\"", "\"EMPTY\": 1", "/agents/0/variables/EMPTY", "expected a string"},
	    {"\"EMPTY\": \"\"", "\"EMPTY\": \"a\\u0000b\"", "", "line"},
	    {"\"variables\": {}", "\"variables\": []", "/agents/1/variables", "expected an object"},
	    {" {\"name\": \"weather\", \"project\": \"demo\"", "1, {\"name\": \"weather\", \"project\": \"demo\"", "/agents/0",
	     "expected an object"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		_cleanup_free_ char *text = changed(rows[i].from, rows[i].to);
		struct agent_table t;
		struct err e;
		int rc = parse(text, &t, &e);

		if (rc != -EINVAL || e.code != EINVAL || strcmp(e.where, rows[i].where) != 0 || !strstr(e.msg, rows[i].part))
			fail_msg("%s: %d, at \"%s\": %s", rows[i].to, rc, e.where, e.msg);
		assert_null(t.entries);
	}
}

static void modules(void **state)
{
	static const char *const good[] = {"a", "_", "app.tools", "A1._b.c"}, *const none[] = {
										  "",	  ".",	      "a.",   ".a",
										  "a..b", "1a",	      "a.1b", "a-b",
										  "a b",  "a/b",      "a:f",  "../a",
										  "a\n",  "\xc3\xa9", "a.b.", "a.b,c"};
	char longest[AGENT_MODULE_MAX + 1];
	struct agent_entry a = {0};
	struct err e = {0};

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		if (!agent_module_ok(good[i]))
			fail_msg("%s", good[i]);
	for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
		if (agent_module_ok(none[i]))
			fail_msg("%s", none[i]);
	memset(longest, 'm', sizeof longest);
	longest[AGENT_MODULE_MAX] = 0;
	assert_false(agent_module_ok(longest));
	longest[AGENT_MODULE_MAX - 1] = 0;
	assert_true(agent_module_ok(longest));
	/* As many as there may be, and one more. */
	for (int i = 0; i < LIMIT_AGENT_TOOLS; i++) {
		char name[16];

		snprintf(name, sizeof name, "m%d", i);
		assert_int_equal(agent_entry_add_module(&a, name, &e), 0);
	}
	assert_int_equal(agent_entry_add_module(&a, "more", &e), -E2BIG);
	assert_int_equal(a.module_count, LIMIT_AGENT_TOOLS);
	agent_entry_clear(&a);
	/* 32 names of 127 bytes and what is between them are as many bytes as there may be. */
	for (int i = 0; i < 31; i++) {
		snprintf(longest, sizeof longest, "m%d_", i);
		memset(longest + strlen(longest), 'm', AGENT_MODULE_MAX - 1 - strlen(longest));
		assert_int_equal(agent_entry_add_module(&a, longest, &e), 0);
	}
	assert_int_equal(agent_entry_add_module(&a, "m", &e), 0);
	longest[0] = 'x';
	assert_int_equal(agent_entry_add_module(&a, longest, &e), -E2BIG);
	longest[AGENT_MODULE_MAX - 3] = 0;
	assert_int_equal(agent_entry_add_module(&a, longest, &e), 0);
	assert_int_equal(agent_entry_add_module(&a, "y", &e), -E2BIG);
	agent_entry_clear(&a);
}

static void reserved_names(void **state)
{
	static const char *const names[] = {
	    "SANDBOX_URL", "SANDBOX_TOKEN", "SANDBOX_", "TOOL_SANDBOX", "CODE_INTERPRETER_SESSION", "CODE_INTERPRETER_X"};
	struct agent_entry a = {0};
	char words[128];
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		assert_int_equal(agent_entry_add_variable(&a, names[i], "", &e), -EINVAL);
		snprintf(words, sizeof words, "%s is reserved by the platform", names[i]);
		assert_string_equal(e.msg, words);
	}
	assert_null(a.variables);
	assert_int_equal(agent_entry_add_variable(&a, "TOOL_SANDBOX_X", "", &e), 0);
	assert_int_equal(agent_entry_add_variable(&a, "SANDBOX", "", &e), 0);
	agent_entry_clear(&a);
}

static void variables(void **state)
{
	static char value[LIMIT_AGENT_VARIABLES_BYTES];
	static const char *const none[] = {"", "1A", "A-B", "A B", "A$(x)", "A\n", "\xc3\x84"};
	struct agent_entry a = {0};
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
		assert_int_equal(agent_entry_add_variable(&a, none[i], "v", &e), -EINVAL);
	assert_int_equal(agent_entry_add_variable(&a, "A", "\xff", &e), -EINVAL);
	assert_non_null(strstr(e.msg, "not UTF-8"));
	assert_int_equal(agent_entry_add_variable(&a, "A", "1", &e), 0);
	assert_int_equal(agent_entry_add_variable(&a, "A", "2", &e), -EINVAL);
	assert_string_equal(e.msg, "A is there twice");
	assert_int_equal(agent_entry_add_variable(&a, "AA", "3", &e), 0);
	assert_memory_equal(a.variables, "A=1\0AA=3\0", a.variables_len);
	agent_entry_clear(&a);
	for (int i = 0; i < LIMIT_AGENT_VARIABLES; i++) {
		char name[16];

		snprintf(name, sizeof name, "V%d", i);
		assert_int_equal(agent_entry_add_variable(&a, name, "", &e), 0);
	}
	assert_int_equal(agent_entry_add_variable(&a, "MORE", "", &e), -E2BIG);
	agent_entry_clear(&a);
	/* As many bytes as there may be, and one more. */
	memset(value, 'v', sizeof value - 3);
	assert_int_equal(agent_entry_add_variable(&a, "VV", value, &e), -E2BIG);
	assert_int_equal(agent_entry_add_variable(&a, "V", value, &e), 0);
	agent_entry_clear(&a);
}

static struct agent_entry made(const char *project, const char *name, const char *module)
{
	struct agent_entry a = {.digest = HEX, .image = "i"};
	struct err e;

	snprintf(a.project, sizeof a.project, "%s", project);
	snprintf(a.name, sizeof a.name, "%s", name);
	assert_int_equal(agent_entry_add_module(&a, module, &e), 0);
	return a;
}

static void put_and_remove(void **state)
{
	struct agent_table t = {0};
	struct agent_entry a = made("p", "one", "m");
	struct err e;

	(void)state;
	assert_int_equal(agent_table_put(&t, &a, &e), 0);
	assert_null(a.modules); /* taken */
	a = made("p", "two", "m");
	assert_int_equal(agent_table_put(&t, &a, &e), 0);
	a = made("q", "one", "m");
	assert_int_equal(agent_table_put(&t, &a, &e), 0);
	a = made("p", "one", "n");
	assert_int_equal(agent_table_put(&t, &a, &e), 0);
	assert_int_equal(t.count, 3);
	assert_string_equal(agent_table_find(&t, "p", "one")->modules[0], "n");
	agent_table_remove(&t, 0);
	assert_null(agent_table_find(&t, "p", "one"));
	assert_non_null(agent_table_find(&t, "p", "two"));
	assert_non_null(agent_table_find(&t, "q", "one"));
	agent_table_remove(&t, 1);
	assert_int_equal(t.count, 1);
	agent_table_clear(&t);
}

static void as_many_as_there_may_be(void **state)
{
	struct agent_table t = {0}, again;
	_cleanup_free_ char *text = NULL;
	struct agent_entry a;
	struct err e;
	size_t len = 0;

	(void)state;
	for (int i = 0; i < LIMIT_AGENTS; i++) {
		char name[16];

		snprintf(name, sizeof name, "a%d", i);
		a = made("p", name, "m");
		assert_int_equal(agent_table_put(&t, &a, &e), 0);
	}
	a = made("p", "more", "m");
	assert_int_equal(agent_table_put(&t, &a, &e), -E2BIG);
	assert_non_null(a.modules); /* left */
	agent_entry_clear(&a);
	a = made("p", "a0", "m");
	assert_int_equal(agent_table_put(&t, &a, &e), 0);
	text = agent_table_text(&t, &len);
	assert_non_null(text);
	assert_int_equal(parse(text, &again, &e), 0);
	assert_int_equal(again.count, LIMIT_AGENTS);
	agent_table_clear(&again);
	agent_table_clear(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(there_and_back),	       cmocka_unit_test(bad),	    cmocka_unit_test(modules),
	    cmocka_unit_test(reserved_names),	       cmocka_unit_test(variables), cmocka_unit_test(put_and_remove),
	    cmocka_unit_test(as_many_as_there_may_be),
	};

	return cmocka_run_group_tests_name("agents", tests, NULL, NULL);
}
