/* SPDX-License-Identifier: Apache-2.0 */
/* The payload's environment: whose word counts for which name. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "init_env.c" /* a part of weir-init, which is a program of its own */
#include "ipc/decode.h"

#define FIXED 18 /* variables of every payload */

static const char *value_of(char **variables, const char *name)
{
	const char *found = NULL;

	for (; *variables; variables++)
		if (names(*variables, name, strlen(name))) {
			assert_null(found); /* once */
			found = *variables + strlen(name) + 1;
		}
	return found;
}

static size_t count_of(char **variables)
{
	size_t n = 0;

	while (variables[n])
		n++;
	return n;
}

static void of_a_snippet(void **state)
{
	static struct init_plan p;
	char **variables;

	(void)state;
	/* Nobody's: a snippet's plan has none, and none would be used. */
	memcpy(p.variables, "PATH=/evil\0X=1\0", 16);
	variables = init_environment(&p);
	assert_int_equal(count_of(variables), FIXED);
	assert_string_equal(value_of(variables, "PATH"), "/usr/local/bin:/usr/bin:/bin");
	assert_string_equal(value_of(variables, "OMP_NUM_THREADS"), "1");
	assert_string_equal(value_of(variables, "PYTHON_CPU_COUNT"), "1");
	assert_null(value_of(variables, "X"));
	assert_null(value_of(variables, "PYTHONVERBOSE"));
}

static void of_a_tool(void **state)
{
	static const struct {
		const char *variable, *name, *value; /* NULL: not there */
	} table[] = {
	    {"PATH=/opt/bin", "PATH", "/opt/bin"},
	    {"PYTHONPATH=/srv", "PYTHONPATH", "/srv"},
	    {"LANG=de_DE.UTF-8", "LANG", "de_DE.UTF-8"},
	    {"OMP_NUM_THREADS=9", "OMP_NUM_THREADS", "9"},
	    {"EMPTY=", "EMPTY", ""},
	    {"EQUALS=a=b", "EQUALS", "a=b"},
	    {"HOMER=x", "HOMER", "x"},
	    /* Ours */
	    {"HOME=/root", "HOME", SANDBOX_HOME},
	    {"USER=root", "USER", SANDBOX_USER},
	    {"LOGNAME=root", "LOGNAME", SANDBOX_USER},
	    {"SHELL=/bin/zsh", "SHELL", "/bin/sh"},
	    {"TMPDIR=/var/tmp", "TMPDIR", "/tmp"},
	    {"XDG_CACHE_HOME=/root/.cache", "XDG_CACHE_HOME", SANDBOX_HOME "/.cache"},
	    {"PYTHONIOENCODING=latin-1", "PYTHONIOENCODING", "utf-8"},
	    {"PYTHONDONTWRITEBYTECODE=", "PYTHONDONTWRITEBYTECODE", "1"},
	    {"PYTHONVERBOSE=1", "PYTHONVERBOSE", NULL},
	    {"PYTHONPROFILEIMPORTTIME=1", "PYTHONPROFILEIMPORTTIME", NULL},
	    /* What the platform tells agents */
	    {"SANDBOX_URL=x", "SANDBOX_URL", NULL},
	    {"SANDBOX_ANYTHING=x", "SANDBOX_ANYTHING", NULL},
	    {"CODE_INTERPRETER_SESSION=x", "CODE_INTERPRETER_SESSION", NULL},
	    {"TOOL_SANDBOX=false", "TOOL_SANDBOX", NULL},
	    {"TOOL_SANDBOXES=2", "TOOL_SANDBOXES", "2"},
	    {"A\nB=2", "A\nB", NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		static struct init_plan p;
		char **variables;
		const char *got;

		p = (struct init_plan){.call = 1};
		snprintf(p.variables, sizeof p.variables - 1, "%s", table[i].variable);
		variables = init_environment(&p);
		got = value_of(variables, table[i].name);
		if (table[i].value)
			assert_string_equal(got, table[i].value);
		else
			assert_null(got);
		assert_string_equal(value_of(variables, "PYTHON_CPU_COUNT"), "2");
	}
}

static void the_last_word_counts(void **state)
{
	static struct init_plan p = {.call = 1};
	char **variables;

	(void)state;
	memcpy(p.variables, "A=1\0B=2\0A=3\0", 13);
	variables = init_environment(&p);
	assert_int_equal(count_of(variables), FIXED + 2);
	assert_string_equal(value_of(variables, "A"), "3");
}

/* As many as a plan can hold: there is room for all of them. */
static void the_most_there_can_be(void **state)
{
	static struct init_plan p = {.call = 1};
	size_t used = 0, count = 0;

	(void)state;
	for (;; count++) {
		int n = snprintf(p.variables + used, sizeof p.variables - used, "%zX=", count);

		if (used + (size_t)n + 2 > sizeof p.variables)
			break;
		used += (size_t)n + 1;
	}
	memset(p.variables + used, 0, sizeof p.variables - used);
	assert_true(count > 2000);
	assert_int_equal(count_of(init_environment(&p)), FIXED + count);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(of_a_snippet),
	    cmocka_unit_test(of_a_tool),
	    cmocka_unit_test(the_last_word_counts),
	    cmocka_unit_test(the_most_there_can_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
