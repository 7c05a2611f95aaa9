/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/execute through the real api process: every ending, every error, bodies and outputs at their limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client.h"
#include "core/limits.h"

static struct rig *rig;

static int begin(void **state)
{
	(void)state;
	rig = rig_start(true);
	return 0;
}

/* The last test, since a teardown that fails would not be counted. */
static void ends_well(void **state)
{
	(void)state;
	assert_int_equal(rig_stop(rig), 0);
}

static struct reply run(const char *code)
{
	struct reply reply = execute(rig, code);

	if (reply.status != 200)
		fail_msg("%s: status %ld (curl %d): %s", code, reply.status, reply.error, reply.body ? reply.body : "");
	return reply;
}

static void expect_end(const json_t *json, const char *reason, const char *signal, const char *detail, int exit_code)
{
	assert_string_equal(text_at(json, "termination.reason"), reason);
	if (signal)
		assert_string_equal(text_at(json, "termination.signal"), signal);
	else
		assert_true(json_is_null(json_object_get(json_object_get(json, "termination"), "signal")));
	assert_string_equal(text_at(json, "termination.detail"), detail);
	assert_int_equal(number_at(json, "exit_code"), exit_code);
}

static void all_fields(void **state)
{
	static const char *const names[] = {
	    "sandbox_id", "run_id",	   "stdout",	  "stderr",    "exit_code",	   "duration_ms",
	    "files",	  "files_skipped", "termination", "truncated", "stdout_bytes",	   "stderr_bytes",
	    "usage",	  "egress",	   "python",	  "processes", "refused_syscalls", "audit_hash"};
	struct reply reply = run("echo 42");

	(void)state;
	assert_int_equal(json_object_size(reply.json), sizeof names / sizeof *names);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		assert_non_null(json_object_get(reply.json, names[i]));
	assert_memory_equal(text_at(reply.json, "sandbox_id"), "sandbox-", 8);
	assert_string_equal(text_at(reply.json, "run_id"), text_at(reply.json, "sandbox_id"));
	assert_string_equal(text_at(reply.json, "stdout"), "echo 42");
	assert_string_equal(text_at(reply.json, "stderr"), "");
	assert_int_equal(number_at(reply.json, "stdout_bytes"), 7);
	assert_int_equal(number_at(reply.json, "duration_ms"), 1);
	assert_string_equal(text_at(reply.json, "usage.cpu_ms.source"), "fake cpu");
	assert_int_equal(number_at(reply.json, "usage.memory_peak_bytes.value"), 9 << 20);
	assert_string_equal(text_at(reply.json, "usage.output_bytes.source"), "pipe reader");
	assert_int_equal(json_array_size(json_object_get(json_object_get(reply.json, "egress"), "destinations")), 1);
	assert_string_equal(text_at(reply.json, "python"), "3.12.1");
	assert_string_equal(text_at(reply.json, "audit_hash"), RIG_HASH);
	assert_int_equal(rig->last_content.told,
			 1u << CONTENT_CODE | 1u << CONTENT_STDOUT | 1u << CONTENT_STDERR | 1u << CONTENT_FILES_OUT);
	assert_int_equal(rig->last_content.of[CONTENT_STDOUT].bytes, 7);
	assert_int_equal(rig->last_content.stored, 0);
	expect_end(reply.json, "exit", NULL, "", 0);
	assert_int_equal(rig->last_timeout_s, LIMIT_TIMEOUT_DEFAULT_S);
	reply_free(&reply);
}

static void endings(void **state)
{
	static const struct {
		const char *code, *reason, *signal, *detail;
		int exit_code;
	} rows[] = {
	    {"", "exit", NULL, "", 0},
	    {"exit 1", "exit", NULL, "", 1},
	    {"exit 120", "exit", NULL, "", 120},
	    {"exit 255", "exit", NULL, "", 255},
	    {"signal 11", "signal", "SIGSEGV", "", 139},
	    {"signal 6", "signal", "SIGABRT", "", 134},
	    {"signal 40", "signal", "SIG40", "", 168},
	    {"timeout", "timeout", NULL, "timed out after 20s", -1},
	    {"memory", "memory", NULL, "memory limit of 512 MiB exceeded", 137},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct reply reply = run(rows[i].code);

		expect_end(reply.json, rows[i].reason, rows[i].signal, rows[i].detail, rows[i].exit_code);
		reply_free(&reply);
	}
}

static void deadline_words_end_stderr(void **state)
{
	static const struct {
		const char *code, *stderr_text;
	} rows[] = {
	    {"timeout", "timed out after 7s"},
	    {"partial abc", "abc\ntimed out after 7s"},
	    {"partial abc\n", "abc\ntimed out after 7s"},
	    {"partial abc\n\n", "abc\n\ntimed out after 7s"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char *body = execute_body(rows[i].code, strlen(rows[i].code), ", \"timeout_s\": 7, \"language\": \"python\"");
		struct reply reply = call(rig, (struct call){.method = "POST", .path = "/v1/execute", .body = body});

		assert_string_equal(text_at(reply.json, "stderr"), rows[i].stderr_text);
		assert_int_equal(rig->last_timeout_s, 7);
		/* The words are ours: the count is of what the program wrote. */
		assert_int_equal(number_at(reply.json, "stderr_bytes"),
				 strlen(rows[i].code) > 8 ? strlen(rows[i].code) - 8 : 0);
		reply_free(&reply);
		free(body);
	}
}

static void failures_of_the_sandbox(void **state)
{
	struct reply reply;

	(void)state;
	expect_error(execute(rig, "broken"), 500, "sandbox_failed", "sandbox failed at layer sandbox: a fault of ours");
	reply = execute(rig, "lost");
	assert_true(json_is_true(json_object_get(json_object_get(reply.json, "error"), "ran")));
	expect_error(reply, 500, "sandbox_failed", "the run was lost (sandbox): a fault of ours");
	rig->grant = RIG_FAIL;
	reply = execute(rig, "echo");
	assert_false(json_is_true(json_object_get(json_object_get(reply.json, "error"), "ran")));
	expect_error(reply, 500, "sandbox_failed", "sandbox failed at layer mounts: proc could not be mounted");
	rig->grant = RIG_DEAF;
	expect_error(execute(rig, "echo"), 500, "sandbox_failed", "sandbox failed at layer sandbox: init died");
	rig->grant = RIG_GRANT;
	reply = run("echo still works");
	reply_free(&reply);
}

static void code_byte_for_byte(void **state)
{
	static const char code[] =
	    "echo \xef\xbb\xbf\r\n\t\f\x01\x1b[31m\xe2\x80\xa8 \xf0\x9f\x98\x80 \"\\\0 end without newline";
	char *body = execute_body(code, sizeof code - 1, "");
	struct reply reply = call(rig, (struct call){.method = "POST", .path = "/v1/execute", .body = body});
	json_t *out = json_object_get(reply.json, "stdout");

	(void)state;
	assert_int_equal(json_string_length(out), sizeof code - 1);
	assert_memory_equal(json_string_value(out), code, sizeof code - 1);
	reply_free(&reply);
	free(body);
}

static void code_at_its_limit(void **state)
{
	char *code = malloc(LIMIT_CODE_BYTES + 2), *body;
	struct reply reply;

	(void)state;
	memset(code, '#', LIMIT_CODE_BYTES + 1);
	memcpy(code, "echo ", 5);
	code[LIMIT_CODE_BYTES] = 0;
	reply = run(code);
	assert_int_equal(number_at(reply.json, "stdout_bytes"), LIMIT_CODE_BYTES);
	assert_string_equal(text_at(reply.json, "stdout"), code);
	reply_free(&reply);
	code[LIMIT_CODE_BYTES] = '#';
	body = execute_body(code, LIMIT_CODE_BYTES + 1, "");
	expect_error(call(rig, (struct call){.method = "POST", .path = "/v1/execute", .body = body}), 413, "too_large",
		     "code is 1048577 bytes, over the limit of 1048576 bytes");
	free(body);
	free(code);
}

/* With a length, in chunks, and with the client asking for leave first. */
static void body_at_its_limit(void **state)
{
	char *body = malloc(LIMIT_BODY_BYTES + 2);
	size_t n = (size_t)sprintf(body, "{\"code\": \"exit 3\"}");

	(void)state;
	memset(body + n, ' ', LIMIT_BODY_BYTES + 1 - n);
	for (int how = 0; how < 3; how++) {
		struct call c = {.method = "POST", .path = "/v1/execute", .body = body, .body_len = LIMIT_BODY_BYTES};
		struct reply reply;

		c.chunked = how == 1;
		c.header[0] = how == 2 ? "Expect: 100-continue" : "Expect:";
		c.header[1] = "Content-Type: application/json";
		reply = call(rig, c);
		if (reply.status != 200)
			fail_msg("way %d: status %ld, curl %d: %s", how, reply.status, reply.error,
				 reply.body ? reply.body : "");
		assert_int_equal(number_at(reply.json, "exit_code"), 3);
		assert_true(reply.seconds < 5);
		reply_free(&reply);
		c.body_len++;
		expect_error(call(rig, c), 413, "too_large",
			     how == 1 ? "request body is over the limit of 16777216 bytes"
				      : "request body is 16777217 bytes, over the limit of 16777216 bytes");
	}
	free(body);
}

/* Far over: refused from the headers, before a byte of it is sent. */
static void announced_too_large(void **state)
{
	static const char head[] = "POST /v1/execute HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " RIG_TOKEN
				   "\r\nContent-Length: 1000000000000\r\n\r\n";
	int fd = raw_connect(rig);
	char *text;

	(void)state;
	raw_send(fd, head, sizeof head - 1);
	text = raw_read(fd, 2000);
	assert_non_null(strstr(text, "HTTP/1.1 413 "));
	assert_non_null(strstr(text, "request body is 1000000000000 bytes, over the limit of 16777216 bytes"));
	free(text);
	close(fd);
}

static void bad_bodies(void **state)
{
	static const struct {
		const char *body, *code, *message;
	} rows[] = {
	    {"", "invalid_request", "at \"\" (the whole body): expected a JSON object, found nothing"},
	    {"[1]", "invalid_request", "at \"\" (the whole body): expected a JSON object, found an array"},
	    {"{\"code\": 1}", "invalid_request", "at \"/code\": expected a string, found a number"},
	    {"{\"code\": \"x\", \"language\": \"ruby\"}", "unsupported_language", "unsupported language \"ruby\""},
	    {"{\"code\": \"x\", \"timeout_s\": 0}", "invalid_timeout", "timeout_s must be between 1 and 60"},
	    {"{\"code\": \"x\", \"timeout_s\": 61}", "invalid_timeout", "timeout_s must be between 1 and 60"},
	    {"{\"code\": \"x\", \"stdin\": 1}", "invalid_request", "at \"/stdin\": expected a string, found a number"},
	    {"{\"code\": \"x\"} trailing", "invalid_request", NULL},
	};
	unsigned asked = rig->asked;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		for (int chunked = 0; chunked < 2; chunked++)
			expect_error(call(rig, (struct call){.method = "POST",
							     .path = "/v1/execute",
							     .body = rows[i].body,
							     .chunked = chunked}),
				     400, rows[i].code, rows[i].message);
	expect_error(call(rig, (struct call){.method = "POST", .path = "/v1/execute"}), 400, "invalid_request", NULL);
	assert_int_equal(rig->asked, asked); /* not one of them cost a sandbox */
}

static void output_at_its_cap(void **state)
{
	static const char *const streams[] = {"stdout", "stderr"};
	char code[32], name[32], detail[64];

	(void)state;
	for (int s = 0; s < 2; s++)
		for (int over = 0; over < 2; over++) {
			struct reply reply;

			snprintf(code, sizeof code, "%s %d", s ? "err" : "out", LIMIT_OUTPUT_BYTES + over);
			reply = run(code);
			snprintf(name, sizeof name, "%s_bytes", streams[s]);
			snprintf(detail, sizeof detail, "%s limit of 4 MiB exceeded", streams[s]);
			assert_int_equal(number_at(reply.json, name), LIMIT_OUTPUT_BYTES + over);
			assert_int_equal(strlen(text_at(reply.json, streams[s])), LIMIT_OUTPUT_BYTES);
			assert_int_equal(json_is_true(json_object_get(reply.json, "truncated")), over);
			if (!over)
				expect_end(reply.json, "exit", NULL, "", 0);
			else {
				/* The kill and the exit race; what the answer says does not. */
				assert_string_equal(text_at(reply.json, "termination.reason"), "output");
				assert_string_equal(text_at(reply.json, "termination.detail"), detail);
				assert_int_equal(number_at(reply.json, "exit_code"), 137);
			}
			reply_free(&reply);
		}
}

static void both_streams_full(void **state)
{
	struct reply reply = run("both 4194304");

	(void)state;
	expect_end(reply.json, "exit", NULL, "", 0);
	assert_int_equal(number_at(reply.json, "usage.output_bytes.value"), 2 * LIMIT_OUTPUT_BYTES);
	reply_free(&reply);
}

static void flood(void **state)
{
	unsigned before = rig->killed_output;
	struct reply reply = run("flood");

	(void)state;
	assert_string_equal(text_at(reply.json, "termination.reason"), "output");
	assert_int_equal(number_at(reply.json, "exit_code"), 137);
	assert_true(json_is_true(json_object_get(reply.json, "truncated")));
	assert_true(number_at(reply.json, "usage.output_bytes.value") > LIMIT_OUTPUT_BYTES);
	assert_int_equal(rig->killed_output, before + 1);
	reply_free(&reply);
}

static void any_bytes(void **state)
{
	struct reply reply = run("raw");
	json_t *out = json_object_get(reply.json, "stdout");

	(void)state;
	assert_int_equal(number_at(reply.json, "stdout_bytes"), 256);
	assert_int_equal(json_string_length(out), 128 + 3 * 128); /* each byte above 0x7f is one U+FFFD */
	assert_int_equal(json_string_value(out)[0], 0);
	reply_free(&reply);
}

static void auditor_by_memfd(void **state)
{
	struct reply reply;

	(void)state;
	rig->audit = RIG_MEMFD;
	reply = run("echo");
	assert_string_equal(
	    json_string_value(json_object_get(
		json_array_get(json_object_get(json_object_get(reply.json, "egress"), "destinations"), 0), "dns_name")),
	    "leak.example");
	reply_free(&reply);
	rig->audit = RIG_ANSWER;
}

/* The run happened: it is answered, with exact counters and every detail counted as lost, nothing invented. */
static void auditor_silent(void **state)
{
	(void)state;
	for (enum rig_audit how = RIG_ERROR; how <= RIG_SILENT; how++) {
		struct reply reply;

		rig->audit = how;
		reply = run("echo");
		assert_int_equal(number_at(reply.json, "egress.attempts"), 2);
		assert_int_equal(number_at(reply.json, "egress.denied"), 2);
		assert_int_equal(number_at(reply.json, "egress.would_deny"), 0);
		assert_int_equal(number_at(reply.json, "egress.lost"), 2);
		assert_int_equal(json_array_size(json_object_get(json_object_get(reply.json, "egress"), "destinations")), 0);
		if (how == RIG_SILENT)
			assert_true(reply.seconds > 1.9 && reply.seconds < 3);
		reply_free(&reply);
	}
	rig->audit = RIG_ANSWER;
}

struct tally {
	unsigned right, wrong;
};

static void tally_echo(void *ctx, struct reply *reply)
{
	struct tally *t = ctx;

	if (reply->status == 200 && !strcmp(text_at(reply->json, "stdout"), "echo same") && reply->seconds < 20)
		t->right++;
	else
		t->wrong++;
}

static void many_at_once(void **state)
{
	struct tally t = {0};

	(void)state;
	for (int round = 0; round < 5; round++)
		execute_many(rig, "{\"code\": \"echo same\"}", 100, tally_echo, &t);
	assert_int_equal(t.wrong, 0);
	assert_int_equal(t.right, 500);
}

static long api_memory_kib(void)
{
	char path[64], line[128];
	long kib = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/status", rig->api);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "VmRSS: %ld kB", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

/* Many runs leave nothing behind; an fd left over by each would end in EMFILE, memory shows in the figure. */
static void nothing_piles_up(void **state)
{
	static const char *const codes[] = {"echo a", "exit 1", "timeout", "broken", "raw", "memory"};
	long before = 0, after;

	(void)state;
	for (int i = 0; i < 1600; i++) {
		struct reply reply = execute(rig, codes[i % 6]);

		assert_true(reply.status == 200 || reply.status == 500);
		reply_free(&reply);
		if (i == 400)
			before = api_memory_kib();
	}
	after = api_memory_kib();
	print_message("1,200 runs: the api process grew by %ld KiB\n", after - before);
#ifndef __SANITIZE_ADDRESS__
	assert_true(after - before < 512);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(all_fields),
	    cmocka_unit_test(endings),
	    cmocka_unit_test(deadline_words_end_stderr),
	    cmocka_unit_test(failures_of_the_sandbox),
	    cmocka_unit_test(code_byte_for_byte),
	    cmocka_unit_test(code_at_its_limit),
	    cmocka_unit_test(body_at_its_limit),
	    cmocka_unit_test(announced_too_large),
	    cmocka_unit_test(bad_bodies),
	    cmocka_unit_test(output_at_its_cap),
	    cmocka_unit_test(both_streams_full),
	    cmocka_unit_test(flood),
	    cmocka_unit_test(any_bytes),
	    cmocka_unit_test(auditor_by_memfd),
	    cmocka_unit_test(auditor_silent),
	    cmocka_unit_test(many_at_once),
	    cmocka_unit_test(nothing_piles_up),
	    cmocka_unit_test(ends_well),
	};

	return cmocka_run_group_tests_name("api_execute", tests, begin, NULL);
}
