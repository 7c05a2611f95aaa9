/* SPDX-License-Identifier: Apache-2.0 */
/* policies/groups.json, and what a policy's `syscalls` come to. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/policy.h"
#include "core/sysgroups.h"
#include "sysnames.h"

static void test_shipped(void **state)
{
	static const char *const expected[] = {"@mount",    "@namespaces", "@ptrace",	     "@debug",	 "@module",
					       "@reboot",   "@raw-io",	   "@clock",	     "@keyring", "@bpf",
					       "@io-uring", "@swap",	   "@cpu-emulation", "@obsolete"};
	const struct sysgroups *g = sysgroups_shipped();

	(void)state;
	for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
		if (!sysgroups_find(g, expected[i]))
			fail_msg("no group %s", expected[i]);
	for (size_t i = 0; i < g->count; i++) {
		const struct sysgroup *group = &g->groups[i];

		assert_true(group->help[0] && !strchr(group->help, '\n'));
		for (size_t k = 0; k < group->member_count; k++) {
			if (seccomp_syscall_resolve_name(group->members[k]) == __NR_SCMP_ERROR)
				fail_msg("%s: %s is no system call", group->name, group->members[k]);
			if (k > 0 && strcmp(group->members[k - 1], group->members[k]) >= 0)
				fail_msg("%s: %s is not in order", group->name, group->members[k]);
		}
	}
	assert_null(sysgroups_find(g, "@nothing"));
	assert_null(sysgroups_find(g, "mount"));
}

#define GROUP(name, members) "{\"name\":\"" name "\",\"help\":\"h\",\"members\":" members "}"

static void test_refused(void **state)
{
	static const struct {
		const char *text, *where, *says;
	} rows[] = {
	    {"[", "1:1", "too early"},
	    {"{}", "", "list of groups"},
	    {"[1]", "/0", "object"},
	    {"[{\"name\":\"@a\",\"help\":\"h\"}]", "/0", "\"members\" is missing"},
	    {"[" GROUP("a", "[\"x\"]") "]", "/0/name", "'@'"},
	    {"[" GROUP("@a", "[]") "]", "/0/members", "not empty"},
	    {"[" GROUP("@a", "[\"x\",\"\"]") "]", "/0/members/1", "not empty"},
	    {"[" GROUP("@a", "[\"x\",3]") "]", "/0/members/1", "string"},
	    {"[" GROUP("@a", "[\"x\"]") "," GROUP("@a", "[\"y\"]") "]", "/1/name", "two groups"},
	    {"[{\"name\":\"@a\",\"help\":\"h\",\"members\":[\"x\"],\"more\":1}]", "/0/more", "not a key"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct sysgroups *g = (struct sysgroups *)state;
		struct err e = {0};

		if (sysgroups_parse(rows[i].text, strlen(rows[i].text), &g, &e) != -EINVAL)
			fail_msg("not refused: %s", rows[i].text);
		assert_ptr_equal(g, state); /* untouched */
		if (strcmp(e.where, rows[i].where) || !strstr(e.msg, rows[i].says))
			fail_msg("%s: %s: %s", rows[i].text, e.where, e.msg);
	}
}

static struct policy *policy_with(const char *syscalls)
{
	struct policy *p = NULL;
	struct err e;
	char doc[1024];
	int n = snprintf(doc, sizeof doc, "{\"name\":\"x\",\"default\":\"deny\",\"syscalls\":%s}", syscalls);

	if (policy_parse(doc, (size_t)n, &p, &e) < 0)
		fail_msg("%s: %s: %s", doc, e.where, e.msg);
	return p;
}

static const struct sysgroups_refusal *find(const struct sysgroups_refusal *list, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(list[i].name, name))
			return &list[i];
	fail_msg("%s is not refused", name);
	return NULL;
}

static void test_refusals(void **state)
{
	struct policy *p = policy_with("[{\"names\":[\"@ptrace\",\"mount\"],\"errno\":\"ENOSYS\"},"
				       "{\"names\":[\"ptrace\",\"@debug\"],\"action\":\"kill\"},{\"names\":[\"ptrace\"]}]");
	struct sysgroups_refusal *list = NULL;
	size_t count = 0;
	struct err e;

	(void)state;
	assert_int_equal(sysgroups_refusals(p, sysgroups_shipped(), sysnames_known, &list, &count, &e), 0);
	for (size_t i = 1; i < count; i++)
		assert_true(strcmp(list[i - 1].name, list[i].name) < 0); /* sorted, each once */
	/* The call's own name before any group, and the first of those. */
	assert_true(find(list, count, "ptrace")->kill);
	assert_false(find(list, count, "ptrace")->by_group);
	/* In two groups: the first entry. */
	assert_false(find(list, count, "kcmp")->kill);
	assert_int_equal(find(list, count, "kcmp")->error, ENOSYS);
	assert_true(find(list, count, "kcmp")->by_group);
	assert_true(find(list, count, "perf_event_open")->kill);
	assert_int_equal(find(list, count, "mount")->error, ENOSYS);
	free(list);
	policy_free(p);
}

static void test_no_refusals(void **state)
{
	struct policy *p = policy_with("[]");
	struct sysgroups_refusal *list = NULL;
	size_t count = 7;
	struct err e;

	(void)state;
	assert_int_equal(sysgroups_refusals(p, sysgroups_shipped(), NULL, &list, &count, &e), 0);
	assert_int_equal(count, 0);
	free(list);
	policy_free(p);
}

static void test_unknown(void **state)
{
	static const struct {
		const char *syscalls, *where, *says;
	} rows[] = {
	    {"[{\"names\":[\"mount\",\"ptracee\"]}]", "/syscalls/0/names/1", "ptracee is not a system call"},
	    {"[{\"names\":[\"mount\"]},{\"names\":[\"@mount\",\"@nothing\"]}]", "/syscalls/1/names/1",
	     "@nothing is not a group"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct policy *p = policy_with(rows[i].syscalls);
		struct err e = {0};

		assert_int_equal(sysnames_check(p, &e), -EINVAL);
		assert_string_equal(e.where, rows[i].where);
		assert_non_null(strstr(e.msg, rows[i].says));
		policy_free(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_shipped),	cmocka_unit_test(test_refused), cmocka_unit_test(test_refusals),
	    cmocka_unit_test(test_no_refusals), cmocka_unit_test(test_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
