/* SPDX-License-Identifier: Apache-2.0 */
/* What a message may say: a good one of each type, and for each member the values that turn it into a bad one. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/limits.h"
#include "ipc/decode.h"

/* NULL is a value like any other here. */
static void same(const char *got, const char *want)
{
	assert_string_equal(got ? got : "fine", want ? want : "fine");
}

static struct ask ask(uint32_t type)
{
	struct ask a = {.type = type, .timeout_s = 20, .req = 7, .reason = RUN_END_CANCELLED};

	snprintf(a.project, sizeof a.project, "a-project-9");
	snprintf(a.caller, sizeof a.caller, "token:tok-0a1b2c3d");
	snprintf(a.run_id, sizeof a.run_id, "sandbox-b9exkyc4c44ff.2");
	return a;
}

static void asks_of_every_type(void **state)
{
	(void)state;
	for (uint32_t type = ASK_SANDBOX; type <= ASK_USAGE; type++) {
		struct ask a = ask(type);

		same(ask_problem(&a), NULL);
	}
	for (uint32_t i = 0; i < 2; i++) {
		struct ask a = ask(i ? ASK_USAGE + 1 : ASK_NONE);

		same(ask_problem(&a), "type");
		a.type = UINT32_MAX - i;
		same(ask_problem(&a), "type");
	}
}

static void asks_in_range(void **state)
{
	struct ask a = ask(ASK_START);

	(void)state;
	a.timeout_s = LIMIT_TIMEOUT_MIN_S;
	same(ask_problem(&a), NULL);
	a.timeout_s = LIMIT_CELL_TIMEOUT_MAX_S;
	same(ask_problem(&a), NULL);
	a.timeout_s = LIMIT_TIMEOUT_MIN_S - 1;
	same(ask_problem(&a), "timeout_s");
	a.timeout_s = LIMIT_CELL_TIMEOUT_MAX_S + 1;
	same(ask_problem(&a), "timeout_s");
	a.timeout_s = UINT32_MAX;
	same(ask_problem(&a), "timeout_s");

	a = ask(ASK_KILL);
	for (uint32_t reason = 0; reason <= RUN_END_COUNT; reason++) {
		a.reason = reason;
		same(ask_problem(&a), reason == RUN_END_OUTPUT || reason == RUN_END_CANCELLED ? NULL : "reason");
	}
	a = ask(ASK_SANDBOX);
	a.session = 1;
	same(ask_problem(&a), NULL);
	a.session = 2;
	same(ask_problem(&a), "session");
}

static void agents_are_names(void **state)
{
	static const char *const bad[] = {"A", "a b", "a/b", "../a", "a_b", "\xc3\xa9", "a\n", "."};
	struct ask a = ask(ASK_SANDBOX);

	(void)state;
	snprintf(a.agent, sizeof a.agent, "weather-2");
	same(ask_problem(&a), NULL);
	/* One call each: there is no session with a tool. */
	a.session = 1;
	same(ask_problem(&a), "agent");
	a.session = 0;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		snprintf(a.agent, sizeof a.agent, "%s", bad[i]);
		same(ask_problem(&a), "agent");
	}
	memset(a.agent, 'a', sizeof a.agent);
	same(ask_problem(&a), "agent"); /* no end */
	a.agent[sizeof a.agent - 1] = 0;
	same(ask_problem(&a), NULL);
	/* Whose it is has to be said in any case. */
	a.project[0] = 0;
	same(ask_problem(&a), "project");
}

static void projects_are_names(void **state)
{
	static const char *const bad[] = {"", "A", "a b", "a/b", "a_b", "\xc3\xa9", "a\n"};
	struct ask a = ask(ASK_SANDBOX);

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		snprintf(a.project, sizeof a.project, "%s", bad[i]);
		same(ask_problem(&a), "project");
	}
	memset(a.project, 'a', sizeof a.project);
	same(ask_problem(&a), "project"); /* no end */
	a.project[sizeof a.project - 1] = 0;
	same(ask_problem(&a), NULL);
	/* It is nobody's business in the others. */
	memset(a.project, 'A', sizeof a.project);
	a.type = ASK_CLOSE;
	same(ask_problem(&a), NULL);
}

static void callers_are_said(void **state)
{
	static const char *const good[] = {"token:tok-0a1b2c3d", "token:dev", "uid:0", "uid:0,sudo:1000", "a@b_c.d"};
	static const char *const bad[] = {"", " ", "uid:0 ", "a/b", "a\"b", "a\nb", "\xc3\xa9", "a=b"};

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		struct ask a = ask(i ? ASK_START : ASK_SANDBOX);

		for (size_t k = 0; k < sizeof good / sizeof good[0]; k++) {
			snprintf(a.caller, sizeof a.caller, "%s", good[k]);
			same(ask_problem(&a), NULL);
		}
		for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
			snprintf(a.caller, sizeof a.caller, "%s", bad[k]);
			same(ask_problem(&a), "caller");
		}
		memset(a.caller, 'a', sizeof a.caller);
		same(ask_problem(&a), "caller"); /* no end */
		a.caller[sizeof a.caller - 1] = 0;
		same(ask_problem(&a), NULL);
	}
}

static void usage_is_of_a_run(void **state)
{
	static const char *const bad[] = {"", "A", "a b", "a/b", "\xc3\xa9", "a\n"};
	struct ask a = ask(ASK_USAGE);

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		snprintf(a.run_id, sizeof a.run_id, "%s", bad[i]);
		same(ask_problem(&a), "run_id");
	}
	memset(a.run_id, 'a', sizeof a.run_id);
	same(ask_problem(&a), "run_id"); /* no end */
	a.run_id[sizeof a.run_id - 1] = 0;
	same(ask_problem(&a), NULL);
}

static void collects(void **state)
{
	static struct collect c;

	(void)state;
	same(collect_problem(&c), NULL);
	c.digest_count = COLLECT_DIGESTS_MAX;
	c.have_manifest = c.want_manifest = 1;
	same(collect_problem(&c), NULL);
	c.digest_count++;
	same(collect_problem(&c), "digest_count");
	c.digest_count = UINT32_MAX;
	same(collect_problem(&c), "digest_count");
	c.digest_count = 0;
	c.have_manifest = 2;
	same(collect_problem(&c), "have_manifest");
	c.have_manifest = 0;
	c.want_manifest = 0x100;
	same(collect_problem(&c), "want_manifest");
}

static void what_init_reports(void **state)
{
	struct init_report r = {.type = REPORT_PROBED, .probe_errno = {EPERM, EAFNOSUPPORT, 0, 4095}};

	(void)state;
	same(init_report_problem(&r), NULL);
	r.probe_errno[PLAN_PROBES - 1] = 4096;
	same(init_report_problem(&r), "probe_errno");
	r.probe_errno[PLAN_PROBES - 1] = -1;
	same(init_report_problem(&r), "probe_errno");

	r = (struct init_report){.type = REPORT_FAILED, .step = STEP_PIVOT, .error = EINVAL};
	same(init_report_problem(&r), NULL);
	r.step = STEP_NONE;
	same(init_report_problem(&r), "step");
	r.step = STEP_COUNT;
	same(init_report_problem(&r), "step");
	r.step = STEP_COUNT - 1;
	same(init_report_problem(&r), NULL);
	r.error = -EINVAL;
	same(init_report_problem(&r), "error");
	r.error = 0;
	memset(r.detail, 'x', sizeof r.detail);
	same(init_report_problem(&r), "detail");
	r.detail[sizeof r.detail - 1] = 0;
	same(init_report_problem(&r), NULL);

	r = (struct init_report){.type = REPORT_STARTED};
	same(init_report_problem(&r), NULL);
	r.type = REPORT_TAP;
	same(init_report_problem(&r), NULL);
	r.type = 0;
	same(init_report_problem(&r), "type");
	r.type = REPORT_TAP + 1;
	same(init_report_problem(&r), "type");
}

static void what_waitpid_says(void **state)
{
	static const struct {
		int32_t status;
		bool fine;
	} rows[] = {
	    {0, true},	       /* exit 0 */
	    {0xff00, true},    /* exit 255 */
	    {9, true},	       /* SIGKILL */
	    {11 | 0x80, true}, /* SIGSEGV, with a core */
	    {0x137f, false},   /* stopped */
	    {0xffff, false},   /* goes on */
	    {0x10000, false},  {-1, false}, {INT32_MIN, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct init_report r = {.type = REPORT_EXITED, .status = rows[i].status};

		same(init_report_problem(&r), rows[i].fine ? NULL : "status");
	}
}

static struct refused_calls calls(void)
{
	return (struct refused_calls){.period = 3,
				      .counted = 3,
				      .used = 2,
				      .of = {{.number = 101, .error = EPERM, .count = 2, .first_ns = 5, .last_ns = 6},
					     {.number = 165, .error = EACCES, .count = 0, .first_ns = 7, .last_ns = 7}}};
}

/* Any text of init's memory is what the supervisor may read. */
static void what_init_counts(void **state)
{
	struct refused_calls c = calls();

	(void)state;
	same(refused_calls_problem(&c), NULL);
	c.used = LIMIT_AUDIT_SYSCALLS + 1;
	same(refused_calls_problem(&c), "used");
	c.used = LIMIT_AUDIT_SYSCALLS;
	same(refused_calls_problem(&c), "error"); /* the third has none */
	c = calls();
	c.of[1].number = FILTER_NUMBERS;
	same(refused_calls_problem(&c), "number");
	c.of[1].number = c.of[0].number;
	same(refused_calls_problem(&c), "number");
	c = calls();
	c.of[0].error = 4096;
	same(refused_calls_problem(&c), "error");
	c = calls();
	c.of[0].first_ns = 7;
	same(refused_calls_problem(&c), "first_ns");
	c.used = 0;
	same(refused_calls_problem(&c), NULL);
}

static void what_a_harness_reports(void **state)
{
	static const struct {
		struct gate_report report;
		const char *problem;
	} rows[] = {
	    {{GATE_READY, 0, 0}, NULL},
	    {{GATE_READY, 1, 0}, "value"},
	    {{GATE_READY, 0, 1}, "index"},
	    {{GATE_LOADED, 0, 0}, NULL},
	    {{GATE_LOADED, 1, 0}, NULL},
	    {{GATE_LOADED, 2, 0}, "value"},
	    {{GATE_LOADED, -1, 0}, "value"},
	    {{GATE_LOADED, 0, 1}, "index"},
	    {{GATE_PLACED, 0, 0}, NULL},
	    {{GATE_PLACED, 0, UINT32_MAX}, "index"},
	    {{GATE_REFUSED, ELOOP, 0}, NULL},
	    {{GATE_REFUSED, ELOOP, LIMIT_FILES_IN - 1}, NULL},
	    {{GATE_REFUSED, ELOOP, LIMIT_FILES_IN}, "index"},
	    {{GATE_REFUSED, 0, 0}, "value"},
	    {{GATE_FAILED, 0, 0}, NULL},
	    {{GATE_FAILED, EPERM, 0}, NULL},
	    {{GATE_FAILED, EPERM, 1}, "index"},
	    {{GATE_FAILED, -1, 0}, "value"},
	    {{GATE_REFUSED, -ELOOP, 0}, "value"},
	    {{GATE_REFUSED, 4096, 0}, "value"},
	    {{GATE_DONE, 0, 0}, NULL},
	    {{GATE_DONE, 255, 0}, NULL},
	    {{GATE_DONE, 256, 0}, "value"},
	    {{GATE_DONE, -1, 0}, "value"},
	    {{GATE_DONE, 0, 1}, "index"},
	    {{0, 0, 0}, "type"},
	    {{GATE_OPEN, 0, 0}, "type"},
	    {{GATE_READY | 0x100, 0, 0}, "type"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		same(gate_report_problem(&rows[i].report), rows[i].problem);
}

static struct init_plan plan(void)
{
	struct init_plan p = {
	    .magic = PLAN_MAGIC,
	    .uid = 0x70001000,
	    .gid = 0x70001000,
	    .init_uid = 0x70000000,
	    .nofile = 1024,
	    .v1_count = PLAN_V1_MAX,
	    .filter_len = 900,
	    .own_filter_len = 17,
	    .tmpfs_bytes = LIMIT_TMPFS_BYTES,
	    .tmpfs_inodes = LIMIT_TMPFS_INODES,
	    .stage = "/run/weir/serve/stage1",
	    .overlay = "lowerdir=image:base",
	    .root = "root/r",
	    .interpreter = "/usr/local/bin/python3",
	};

	return p;
}

#define BAD(member_, value_, name_)                                                                                            \
	do {                                                                                                                   \
		struct init_plan bad_ = plan();                                                                                \
		bad_.member_ = (value_);                                                                                       \
		same(init_plan_problem(&bad_), name_);                                                                         \
	} while (0)

static void plans(void **state)
{
	struct init_plan p = plan();

	(void)state;
	same(init_plan_problem(&p), NULL);
	p.overlay[0] = 0; /* an image that is one directory needs none */
	snprintf(p.root, sizeof p.root, "root");
	p.etc_below = 1;
	same(init_plan_problem(&p), NULL);
	BAD(magic, PLAN_MAGIC + 1, "magic");
	BAD(uid, 0, "uid");
	BAD(gid, 0, "gid");
	BAD(uid, UINT32_MAX, "uid");
	BAD(init_uid, 0, "init_uid");
	BAD(init_uid, 0x70001000, "init_uid"); /* the payload's own */
	BAD(nofile, 0, "nofile");
	BAD(nofile, UINT32_MAX, "nofile");
	BAD(v1_count, PLAN_V1_MAX + 1, "v1_count");
	BAD(filter_len, 0, "filter_len");
	BAD(filter_len, 4097, "filter_len");
	BAD(own_filter_len, 0, "own_filter_len");
	BAD(own_filter_len, UINT32_MAX, "own_filter_len");
	BAD(tmpfs_bytes, 0, "tmpfs_bytes"); /* to the kernel: no limit */
	BAD(tmpfs_inodes, 0, "tmpfs_inodes");
	BAD(stage[0], 'r', "stage");
	BAD(stage[0], 0, "stage");
	BAD(interpreter[0], 'u', "interpreter");
	BAD(root[0], '/', "root");
	BAD(root[0], 0, "root");
	BAD(etc_below, 2, "etc_below");
	BAD(fault, STEP_COUNT, "fault");
	BAD(skip, STEP_COUNT, "skip");
}

static struct init_plan call_plan(void)
{
	static const char variables[] = "PATH=/usr/bin\0EMPTY=\0";
	struct init_plan p = plan();

	p.call = p.way_out = p.ipv6 = 1;
	snprintf(p.program, sizeof p.program, "/usr/lib/python3/site-packages/_weir_toolcall.py");
	snprintf(p.resolvers[0], sizeof p.resolvers[0], "192.0.2.53");
	snprintf(p.resolvers[2], sizeof p.resolvers[2], "2001:db8::53");
	snprintf(p.modules, sizeof p.modules, "weather_tools,app.more");
	snprintf(p.workdir, sizeof p.workdir, "/srv/app");
	memcpy(p.variables, variables, sizeof variables);
	return p;
}

#define BAD_CALL(change_, name_)                                                                                               \
	do {                                                                                                                   \
		struct init_plan p = call_plan();                                                                              \
		change_;                                                                                                       \
		same(init_plan_problem(&p), name_);                                                                            \
	} while (0)

static void plans_of_calls(void **state)
{
	(void)state;
	BAD_CALL((void)p, NULL);
	BAD_CALL(p.way_out = p.ipv6 = 0, NULL);
	BAD_CALL(p.workdir[0] = 0, NULL);
	BAD_CALL(p.variables[0] = 0, NULL);
	BAD_CALL(p.call = 2, "call");
	BAD_CALL(p.call = 0, "way_out"); /* a snippet has none */
	BAD_CALL(p.way_out = 2, "way_out");
	BAD_CALL(p.ipv6 = 2, "ipv6");
	BAD_CALL(p.resolvers[1][0] = '\n', "resolvers"); /* they become lines of a file */
	BAD_CALL(memset(p.resolvers[0], '1', sizeof p.resolvers[0]), "resolvers");
	BAD_CALL(p.program[0] = 0, "program");
	BAD_CALL(memset(p.program, '/', sizeof p.program), "program");
	BAD_CALL(p.modules[0] = 0, "modules");
	BAD_CALL(p.modules[1] = ' ', "modules");
	BAD_CALL(memset(p.modules, 'a', sizeof p.modules), "modules");
	BAD_CALL(p.workdir[0] = 's', "workdir");
	BAD_CALL(memset(p.workdir, '/', sizeof p.workdir), "workdir");
	BAD_CALL(p.variables[0] = '=', "variables");
	BAD_CALL(memset(p.variables, 'A', sizeof p.variables), "variables"); /* no end */
	BAD_CALL(snprintf(p.variables, sizeof p.variables, "NO_VALUE"), "variables");
}

static void texts_of_a_plan_have_an_end(void **state)
{
	struct init_plan p = plan();

	(void)state;
	memset(p.stage, '/', sizeof p.stage);
	same(init_plan_problem(&p), "stage");
	p = plan();
	memset(p.overlay, 'a', sizeof p.overlay);
	same(init_plan_problem(&p), "overlay");
	p = plan();
	memset(p.root, 'a', sizeof p.root);
	same(init_plan_problem(&p), "root");
	p = plan();
	memset(p.interpreter, '/', sizeof p.interpreter);
	same(init_plan_problem(&p), "interpreter");
}

static void roots_stay_in_the_stage(void **state)
{
	static const struct {
		const char *root;
		bool fine;
	} rows[] = {{"root", true}, {"root/r", true}, {"..", false}, {"../r", false}, {"r/..", false},	{"a/../b", false},
		    {"...", true},  {"..r", true},    {"r..", true}, {"a//b", true},  {"a/b/..", false}};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct init_plan p = plan();

		snprintf(p.root, sizeof p.root, "%s", rows[i].root);
		same(init_plan_problem(&p), rows[i].fine ? NULL : "root");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(asks_of_every_type),
	    cmocka_unit_test(asks_in_range),
	    cmocka_unit_test(projects_are_names),
	    cmocka_unit_test(agents_are_names),
	    cmocka_unit_test(callers_are_said),
	    cmocka_unit_test(usage_is_of_a_run),
	    cmocka_unit_test(collects),
	    cmocka_unit_test(what_init_reports),
	    cmocka_unit_test(what_waitpid_says),
	    cmocka_unit_test(what_init_counts),
	    cmocka_unit_test(what_a_harness_reports),
	    cmocka_unit_test(plans),
	    cmocka_unit_test(plans_of_calls),
	    cmocka_unit_test(texts_of_a_plan_have_an_end),
	    cmocka_unit_test(roots_stay_in_the_stage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
