/* SPDX-License-Identifier: Apache-2.0 */
/* From a run's result to the answer's JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/answer.h"

static char out[] = "42\n", err[] = "a\0\xff"
				    "b";
static char summary[] = "{\"attempts\": 1, \"denied\": 1, \"allowed\": 0, \"lost\": 0, \"destinations\": [{\"port\": 53}]}";

static struct run_result sample(void)
{
	struct run_result r = {
	    .outcome = RUN_DONE,
	    .ran = true,
	    .timeout_s = 20,
	    .grant = {.sandbox_id = "sandbox-abcde", .run_id = "sandbox-abcde", .python = "3.12.1"},
	    .end = {.end = RUN_END_SIGNAL,
		    .exit_code = 139,
		    .signal = SIGSEGV,
		    .ran = 1,
		    .duration_us = 12999,
		    .cpu_us = 1500,
		    .memory_peak = 1 << 20,
		    .cpu_source = "cgroup2 cpu.stat",
		    .attempts = 3,
		    .denied = 2,
		    .allowed = 1,
		    .net_bytes = 60},
	    .out = {out, err},
	    .out_len = {3, 4},
	    .out_bytes = {3, 5},
	    .truncated = true,
	    .egress = summary,
	    .egress_len = sizeof summary - 1,
	    .queue_us = 123,
	    .send_us = 2000,
	};

	return r;
}

/* The whole answer, member by member, as text: what a client sees. */
static void whole_answer(void **state)
{
	static const char want[] =
	    "{\"sandbox_id\": \"sandbox-abcde\", \"run_id\": \"sandbox-abcde\", \"stdout\": \"42\\n\", "
	    "\"stderr\": \"a\\u0000\xef\xbf\xbd"
	    "b\", \"exit_code\": 139, \"duration_ms\": 12, "
	    "\"termination\": {\"reason\": \"signal\", \"signal\": \"SIGSEGV\", \"detail\": \"\"}, \"truncated\": true, "
	    "\"stdout_bytes\": 3, \"stderr_bytes\": 5, "
	    "\"usage\": {\"cpu_ms\": {\"value\": 1.5, \"source\": \"cgroup2 cpu.stat\"}, "
	    "\"memory_peak_bytes\": {\"value\": null, \"source\": null}, "
	    "\"output_bytes\": {\"value\": 8, \"source\": \"pipe reader\"}, "
	    "\"net_bytes\": {\"value\": 60, \"source\": \"cgroup_skb\"}, "
	    "\"stages\": {\"queue_ms\": 0.123, \"send_ms\": 2, \"run_ms\": 12.999, \"collect_ms\": 0}}, "
	    "\"egress\": {\"attempts\": 1, \"denied\": 1, \"allowed\": 0, \"lost\": 0, \"destinations\": [{\"port\": 53}]}, "
	    "\"python\": \"3.12.1\"}\n";
	struct run_result r = sample();
	json_t *body = answer_result(&r);
	size_t len;
	char *text = answer_text(body, &len);

	(void)state;
	assert_string_equal(text, want);
	assert_int_equal(len, sizeof want - 1);
	free(text);
	json_decref(body);
}

/* No auditor, or nonsense from it: exact counters, and all detail counted as lost. Never an invented destination. */
static void egress_without_the_auditor(void **state)
{
	static const char *const bad[] = {NULL, "", "[]", "{}", "{\"destinations\": 1}", "{\"attempts\": 1", "null"};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct run_result r = sample();
		json_t *body, *egress;

		r.egress = (char *)bad[i];
		r.egress_len = bad[i] ? strlen(bad[i]) : 0;
		body = answer_result(&r);
		egress = json_object_get(body, "egress");
		assert_int_equal(json_integer_value(json_object_get(egress, "attempts")), 3);
		assert_int_equal(json_integer_value(json_object_get(egress, "denied")), 2);
		assert_int_equal(json_integer_value(json_object_get(egress, "allowed")), 1);
		assert_int_equal(json_integer_value(json_object_get(egress, "lost")), 3);
		assert_int_equal(json_array_size(json_object_get(egress, "destinations")), 0);
		json_decref(body);
	}
}

static void every_ending_has_its_name(void **state)
{
	static const char *const names[] = {"exit", "signal", "timeout", "memory", "output", "cancelled"};

	(void)state;
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		struct run_result r = sample();
		json_t *body;
		const char *reason = NULL, *signal_name = NULL;

		r.end.end = i;
		r.end.signal = i == 1 ? SIGRTMIN : 0;
		body = answer_result(&r);
		json_unpack(body, "{s:{s:s, s?:s}}", "termination", "reason", &reason, "signal", &signal_name);
		assert_string_equal(reason, names[i]);
		if (i == 1)
			assert_string_equal(signal_name, "SIG34");
		else
			assert_true(json_is_null(json_object_get(json_object_get(body, "termination"), "signal")));
		json_decref(body);
	}
}

static void errors(void **state)
{
	struct run_result r = {.outcome = RUN_FAILED, .fail = {.layer = "seccomp", .text = "no such system call"}};
	struct api_error e;

	(void)state;
	answer_error(&r, &e);
	assert_int_equal(e.kase, ERROR_SANDBOX);
	assert_string_equal(e.message, "sandbox failed at layer seccomp: no such system call");
	assert_false(e.ran);
	r.ran = true;
	answer_error(&r, &e);
	assert_string_equal(e.message, "the run was lost (seccomp): no such system call");
	assert_true(e.ran);
	r = (struct run_result){.outcome = RUN_BUSY};
	answer_error(&r, &e);
	assert_string_equal(e.message, "no warm sandbox pod available, try again shortly");
	assert_false(e.ran);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(whole_answer),
	    cmocka_unit_test(egress_without_the_auditor),
	    cmocka_unit_test(every_ending_has_its_name),
	    cmocka_unit_test(errors),
	};

	return cmocka_run_group_tests_name("http_answer", tests, NULL, NULL);
}
