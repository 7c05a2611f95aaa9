/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/call against fake peers: who may, what is refused, what is handed over, and what is made of whatever a tool leaves
 * in its result pipe. Tools are told what to do by their names (rig.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/server.h"
#include "client.h"
#include "core/limits.h"

#define AGENTS 7
static const char *const agents[AGENTS] = {"helper", "none", "slow", "crash", "many", "unsafe", "other"};
#define PROJECT_TOKEN "token-of-a-project"

static struct rig *rig;
static struct tokens tokens;
static struct tokens_file *file;

static void add_token(const char *token, const char *project, const char *agent, unsigned scopes)
{
	struct token_slot slot = {.scopes = scopes, .created_s = time(NULL) - 10};

	token_digest(token, strlen(token), slot.sha256);
	snprintf(slot.id, sizeof slot.id, "tok-%08x", (unsigned)file->head.used);
	snprintf(slot.project, sizeof slot.project, "%s", project);
	snprintf(slot.agent, sizeof slot.agent, "%s", agent);
	assert_true(tokens_add(file, tokens.used, &slot, time(NULL)) >= 0);
}

static int begin(void **state)
{
	(void)state;
	file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	file->head.magic = TOKENS_MAGIC;
	file->head.version = TOKENS_VERSION;
	tokens.file = file;
	tokens.used = mmap(NULL, sizeof *tokens.used, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < AGENTS; i++)
		add_token(agents[i], i < AGENTS - 1 ? "a" : "b", agents[i], SCOPE_PROJECT | SCOPE_AGENT);
	add_token(PROJECT_TOKEN, "a", "", SCOPE_PROJECT);
	rig = rig_start_with(&(struct rig_options){.ready = true, .tokens = &tokens});
	return 0;
}

static void ends_well(void **state)
{
	(void)state;
	assert_int_equal(rig->open, 0);
	assert_int_equal(rig->collections, 1); /* of the run; what a tool leaves in its directory is nobody's */
	assert_int_equal(rig_stop(rig), 0);
	munmap(file, sizeof *file);
	munmap(tokens.used, sizeof *tokens.used);
}

static struct reply post(const char *agent, const char *body)
{
	return call(rig, (struct call){.method = "POST", .path = "/v1/call", .body = body, .token = agent});
}

/* A call of the tool `name`, whose characters need no escapes, with these arguments as JSON text. */
static struct reply tool(const char *agent, const char *name, const char *arguments)
{
	struct reply reply;
	char *body;

	assert_true(asprintf(&body, "{\"name\": \"%s\", \"arguments\": %s}", name, arguments) > 0);
	reply = post(agent, body);
	free(body);
	return reply;
}

static void expect_result(struct reply reply, const char *result)
{
	json_t *got, *want = json_loads(result, JSON_DECODE_ANY, NULL);

	if (reply.status != 200 || !reply.json)
		fail_msg("%ld %s", reply.status, reply.body ? reply.body : "");
	got = json_object_get(reply.json, "result");
	if (!got || json_object_get(reply.json, "error"))
		fail_msg("no result: %.400s", reply.body);
	assert_non_null(want);
	if (!json_equal(got, want))
		fail_msg("%.400s, not %s", reply.body, result);
	json_decref(want);
	reply_free(&reply);
}

/* An error of this type and with these words in its message, and no result. */
static void expect_tool_error(struct reply reply, const char *type, const char *words)
{
	if (reply.status != 200 || !reply.json || json_object_get(reply.json, "result") ||
	    !json_object_get(reply.json, "error"))
		fail_msg("no error: %ld %.400s", reply.status, reply.body ? reply.body : "");
	if (strcmp(text_at(reply.json, "error.type"), type) != 0 || !strstr(text_at(reply.json, "error.message"), words))
		fail_msg("%.400s, not %s %s", reply.body, type, words);
	assert_int_equal(json_object_size(json_object_get(reply.json, "error")), 3);
	reply_free(&reply);
}

/* ---- who, and what ---- */

static void the_whole_answer(void **state)
{
	static const char *const members[] = {"sandbox_id",	  "run_id",	 "result",	"stdout",    "stderr",
					      "exit_code",	  "duration_ms", "termination", "truncated", "stdout_bytes",
					      "stderr_bytes",	  "usage",	 "egress",	"python",    "processes",
					      "refused_syscalls", "audit_hash"};
	struct reply reply = tool("helper", "value", "{\"city\": \"Z\\u00fcrich\", \"n\": 1152921504606846976}");

	(void)state;
	assert_int_equal(reply.status, 200);
	assert_string_equal(rig->last_agent, "helper");
	assert_string_equal(rig->last_asked_for, "a");
	assert_memory_equal(rig->last_caller, "token:tok-0000000", 17);
	assert_string_equal(rig->last_starter, rig->last_caller);
	assert_int_equal(rig->last_timeout_s, LIMIT_CALL_TIMEOUT_DEFAULT_S);
	for (size_t i = 0; i < sizeof members / sizeof *members; i++)
		if (!json_object_get(reply.json, members[i]))
			fail_msg("no %s in %s", members[i], reply.body);
	assert_int_equal(json_object_size(reply.json), sizeof members / sizeof *members);
	/* Byte for byte: what was handed over is what has come back, escapes and all. */
	assert_non_null(strstr(reply.body, "\"result\": {\"city\": \"Z\\u00fcrich\", \"n\": 1152921504606846976}, "));
	assert_int_equal(number_at(reply.json, "usage.stages.build_ms"), 30);
	assert_int_equal(json_object_size(json_object_get(json_object_get(reply.json, "usage"), "stages")), 6);
	assert_string_equal(text_at(reply.json, "termination.reason"), "exit");
	assert_string_equal(rig->last_run_id, text_at(reply.json, "run_id"));
	reply_free(&reply);
}

static void only_an_agents_token(void **state)
{
	const char *body = "{\"name\": \"value\", \"arguments\": {}}";
	struct reply reply = post(PROJECT_TOKEN, body);

	(void)state;
	assert_int_equal(reply.status, 403);
	assert_non_null(strstr(text_at(reply.json, "error.hint"), "scope agent"));
	reply_free(&reply);
	reply = post(RIG_TOKEN, body); /* of every scope, but nobody's */
	assert_int_equal(reply.status, 403);
	assert_string_equal(text_at(reply.json, "error.message"), "missing or invalid project token");
	assert_non_null(strstr(text_at(reply.json, "error.hint"), "weir agent env NAME"));
	reply_free(&reply);
	expect_error(post("no-such-token", body), 401, "unauthorized", NULL);
	expect_result(post("other", body), "{}");
	assert_string_equal(rig->last_asked_for, "b");
	assert_string_equal(rig->last_agent, "other");
	expect_error(call(rig, (struct call){.method = "GET", .path = "/v1/call", .token = "helper"}), 405,
		     "method_not_allowed", NULL);
}

static void bodies_that_are_refused(void **state)
{
	static const struct {
		const char *body, *code, *words;
	} rows[] = {
	    {"", "invalid_request", "found nothing"},
	    {"[]", "invalid_request", "(the whole body)"},
	    {"{\"arguments\": {}}", "invalid_request", "at \"/name\""},
	    {"{\"name\": \"t\"}", "invalid_request", "at \"/arguments\""},
	    {"{\"name\": 1, \"arguments\": {}}", "invalid_request", "at \"/name\": expected a string"},
	    {"{\"name\": \"\", \"arguments\": {}}", "invalid_request", "an empty one"},
	    {"{\"name\": \"a\\u0000b\", \"arguments\": {}}", "invalid_request", "without control characters"},
	    {"{\"name\": \"a\\nb\", \"arguments\": {}}", "invalid_request", "without control characters"},
	    {"{\"name\": \"a\\u0085b\", \"arguments\": {}}", "invalid_request", "without control characters"},
	    {"{\"name\": \"t\", \"arguments\": []}", "invalid_request", "at \"/arguments\": expected an object"},
	    {"{\"name\": \"t\", \"arguments\": null}", "invalid_request", "at \"/arguments\""},
	    {"{\"name\": \"t\", \"arguments\": {}, \"name\": \"u\"}", "invalid_request",
	     "at \"/name\": expected each name once"},
	    {"{\"name\": \"t\", \"arguments\": {\"a\": 1, \"\\u0061\": 2}}", "invalid_request", "at \"/arguments/\\u0061\""},
	    {"{\"name\": \"t\", \"arguments\": {\"x\": [{}, {\"b\": 1, \"c\": 2, \"b\": 3}]}}", "invalid_request",
	     "at \"/arguments/x/1/b\""},
	    {"{\"name\": \"t\", \"arguments\": {\"x\": [0, 1e999]}}", "invalid_request", "at \"/arguments/x/1\""},
	    {"{\"name\": \"t\", \"arguments\": {\"a\": \"\\ud800\"}}", "invalid_request", "surrogate"},
	    {"{\"name\": \"t\", \"arguments\": {\"a\": NaN}}", "invalid_request", "at \"/arguments/a\""},
	    {"{\"name\": \"t\", \"arguments\": {}, \"timeout\": 3}", "invalid_request", "at \"/timeout\""},
	    {"{\"name\": \"t\", \"arguments\": {}, \"agent\": \"b\"}", "invalid_request", "at \"/agent\""},
	    {"{\"name\": \"t\", \"arguments\": {}, \"timeout_s\": 0}", "invalid_timeout",
	     "timeout_s must be between 1 and 120"},
	    {"{\"name\": \"t\", \"arguments\": {}, \"timeout_s\": 121}", "invalid_timeout",
	     "timeout_s must be between 1 and 120"},
	    {"{\"name\": \"t\", \"arguments\": {}, \"timeout_s\": 1.0}", "invalid_timeout",
	     "timeout_s must be between 1 and 120"},
	    {"{\"name\": \"t\", \"arguments\": {}, \"timeout_s\": \"5\"}", "invalid_timeout", NULL},
	    {"{\"name\": \"t\", \"arguments\": {}, \"timeout_s\": null}", "invalid_timeout", NULL},
	};
	unsigned asked = rig->asked;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct reply reply = post("helper", rows[i].body);

		if (reply.status != 400 || strcmp(text_at(reply.json, "error.code"), rows[i].code) != 0 ||
		    (rows[i].words && !strstr(text_at(reply.json, "error.message"), rows[i].words)))
			fail_msg("%s: %s", rows[i].body, reply.body);
		reply_free(&reply);
	}
	for (int image = 0; image < 2; image++) {
		struct reply reply = post("helper", image ? "{\"name\": \"t\", \"arguments\": {}, \"image\": \"x\"}"
							  : "{\"agent\": \"x\", \"name\": \"t\", \"arguments\": {}}");

		assert_int_equal(reply.status, 400);
		assert_non_null(strstr(text_at(reply.json, "error.hint"), "the agent is the token's"));
		reply_free(&reply);
	}
	assert_int_equal(rig->asked, asked);
}

static void limits_of_a_request(void **state)
{
	char name[LIMIT_CALL_NAME_BYTES + 2], *body;
	struct reply reply;

	(void)state;
	expect_result(post("helper", "{\"name\": \"value\", \"arguments\": {}, \"timeout_s\": 120}"), "{}");
	assert_int_equal(rig->last_timeout_s, 120);
	expect_result(post("helper", "{\"name\": \"value\", \"arguments\": {}, \"timeout_s\": 1}"), "{}");
	memset(name, 'n', sizeof name);
	memcpy(name, "value ", 6);
	name[LIMIT_CALL_NAME_BYTES + 1] = 0;
	expect_error(tool("helper", name, "{}"), 400, "invalid_request", NULL);
	name[LIMIT_CALL_NAME_BYTES] = 0;
	expect_result(tool("helper", name, "{}"), "{}");
	for (int over = 0; over < 2; over++) {
		static const char head[] = "{\"name\": \"value\", \"arguments\": {\"a\": \"", tail[] = "\"}}";
		size_t len = LIMIT_CALL_BODY_BYTES + (size_t)over;

		body = malloc(len + 1);
		memset(body, 'x', len);
		body[len] = 0;
		memcpy(body, head, sizeof head - 1);
		memcpy(body + len - (sizeof tail - 1), tail, sizeof tail - 1);
		reply = post("helper", body);
		if (over) {
			assert_int_equal(reply.status, 413);
			assert_non_null(strstr(text_at(reply.json, "error.message"), "over the limit of 1048576 bytes"));
		} else {
			assert_int_equal(reply.status, 200);
			assert_int_equal(json_string_length(json_object_get(json_object_get(reply.json, "result"), "a")),
					 len - (sizeof head - 1) - (sizeof tail - 1));
		}
		reply_free(&reply);
		free(body);
	}
}

static void no_events(void **state)
{
	struct reply reply =
	    call(rig, (struct call){.method = "POST",
				    .path = "/v1/call",
				    .token = "helper",
				    .body = "{\"name\": \"value\", \"arguments\": {}}",
				    .header = {"Content-Type: application/json", "Accept: text/event-stream"}});

	(void)state;
	assert_int_equal(reply.status, 200);
	assert_non_null(strstr(reply.head, "application/json"));
	expect_result(reply, "{}");
}

static void no_sandbox(void **state)
{
	struct reply reply;

	(void)state;
	reply = tool("none", "value", "{}");
	assert_string_equal(text_at(reply.json, "error.hint"), "there is no agent none in project a");
	expect_error(reply, 404, "no_agent", "there is no such agent");
	reply = tool("slow", "value", "{}");
	assert_non_null(strstr(reply.head, "Retry-After: 5"));
	expect_error(reply, 503, "tool_not_ready",
		     "tool sandbox not ready within 110 s: the import of app took longer than that");
	expect_error(tool("crash", "value", "{}"), 500, "tools_failed",
		     "the agent's tools could not be loaded: main ended with signal 11 while it imported app");
	expect_error(tool("many", "value", "{}"), 503, "overloaded", "too many agents are being called at once");
	expect_error(tool("unsafe", "value", "{}"), 500, "sandbox_failed",
		     "sandbox failed at layer mounts: proc could not be mounted");
}

/* ---- what is made of the result pipe ---- */

static void results(void **state)
{
	static const char *const values[] = {"null", "false", "0", "\"\"", "[]", "{}", "-1.5e-7", "\"\\u0000\""};

	(void)state;
	expect_result(tool("helper", "value", "{\"a\": [1, {\"b\": null}], \"c\": \"\\ud83d\\ude00\"}"),
		      "{\"a\": [1, {\"b\": null}], \"c\": \"\xf0\x9f\x98\x80\"}");
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) { /* what no arguments can be */
		char name[256] = "bytes 57524553010000000";
		size_t len = strlen(values[i]);
		json_t *want = json_loads(values[i], JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
		struct reply reply;

		snprintf(name, sizeof name, "bytes 5752455301000000%02x00000000000000", (unsigned)len);
		for (size_t k = 0; k < len; k++)
			sprintf(name + strlen(name), "%02x", (unsigned char)values[i][k]);
		reply = tool("helper", name, "{}");
		if (reply.status != 200 || !json_equal(json_object_get(reply.json, "result"), want))
			fail_msg("%s: %s", values[i], reply.body);
		assert_null(json_object_get(reply.json, "error"));
		json_decref(want);
		reply_free(&reply);
	}
	/* The exit code is the supervisor's to tell, and a frame that is whole counts. */
	{
		struct reply reply = tool("helper", "value 3", "{\"a\": 1}");

		assert_int_equal(number_at(reply.json, "exit_code"), 3);
		expect_result(reply, "{\"a\": 1}");
	}
}

static void errors(void **state)
{
	struct reply reply = tool("helper", "error 1",
				  "{\"message\": \"no \\\"city\\\"\\n\\u0000\", \"type\": \"ValueError\", "
				  "\"traceback\": \"Traceback\\n  line 3\\n\"}");

	(void)state;
	assert_int_equal(reply.status, 200);
	assert_null(json_object_get(reply.json, "result"));
	assert_string_equal(text_at(reply.json, "error.type"), "ValueError");
	assert_int_equal(json_string_length(json_object_get(json_object_get(reply.json, "error"), "message")), 11);
	assert_string_equal(text_at(reply.json, "error.traceback"), "Traceback\n  line 3\n");
	assert_int_equal(number_at(reply.json, "exit_code"), 1);
	reply_free(&reply);
}

static json_t *repeated(const char *piece, size_t count)
{
	size_t n = strlen(piece);
	char *text = malloc(n * count + 1);
	json_t *value;

	for (size_t i = 0; i < count; i++)
		memcpy(text + i * n, piece, n);
	value = json_stringn(text, n * count);
	free(text);
	return value;
}

/* Texts of an error at their limits, and beyond, where they are cut between characters. */
static void errors_are_cut(void **state)
{
	for (int over = 0; over < 2; over++) {
		json_t *arguments =
		    json_pack("{s:o, s:o, s:o}", "type", repeated("T", LIMIT_ERROR_TYPE_BYTES + (size_t)over), "message",
			      repeated("\xc3\xa9", LIMIT_ERROR_MESSAGE_BYTES / 2 + (size_t)over), "traceback",
			      repeated("\xe2\x82\xac\n", LIMIT_ERROR_TRACEBACK_BYTES / 4 + (size_t)over));
		char *text = json_dumps(arguments, 0);
		struct reply reply = tool("helper", "error 1", text);
		static const struct {
			const char *name;
			size_t max;
		} rows[] = {{"type", LIMIT_ERROR_TYPE_BYTES},
			    {"message", LIMIT_ERROR_MESSAGE_BYTES},
			    {"traceback", LIMIT_ERROR_TRACEBACK_BYTES}};

		(void)state;
		assert_int_equal(reply.status, 200);
		for (size_t i = 0; i < 3; i++) {
			const json_t *got = json_object_get(json_object_get(reply.json, "error"), rows[i].name);
			const json_t *sent = json_object_get(arguments, rows[i].name);

			assert_in_range(json_string_length(got), rows[i].max - 8, rows[i].max);
			assert_int_equal(json_equal(got, sent), !over);
			assert_int_equal(strstr(json_string_value(got), "\xe2\x80\xa6") != NULL, over);
		}
		if (over) /* its beginning and its end */
			assert_int_equal(strncmp(text_at(reply.json, "error.traceback"), "\xe2\x82\xac\n", 4), 0);
		reply_free(&reply);
		free(text);
		json_decref(arguments);
	}
}

static void no_result(void **state)
{
	(void)state;
	expect_tool_error(tool("helper", "exit 0", "{}"), "ToolEndedError",
			  "tool ended without returning a value (exit code 0)");
	expect_tool_error(tool("helper", "exit 7", "{}"), "ToolEndedError",
			  "tool ended without returning a value (exit code 7)");
	expect_tool_error(tool("helper", "signal 9", "{}"), "ToolEndedError",
			  "tool ended without returning a value (signal SIGKILL)");
	expect_tool_error(tool("helper", "memory", "{}"), "ToolMemoryError", "memory limit of 1024 MiB exceeded");
	expect_tool_error(tool("helper", "out 1048577", "{}"), "ToolOutputError", "stdout limit of 1 MiB exceeded");
	expect_tool_error(post("helper", "{\"name\": \"timeout\", \"arguments\": {}, \"timeout_s\": 3}"), "ToolTimeoutError",
			  "timed out after 3s");
	{
		struct reply reply = post("helper", "{\"name\": \"partial so far\", \"arguments\": {}, \"timeout_s\": 3}");

		assert_string_equal(text_at(reply.json, "stderr"), "so far\ntimed out after 3s");
		assert_int_equal(number_at(reply.json, "exit_code"), -1);
		assert_string_equal(text_at(reply.json, "termination.reason"), "timeout");
		reply_free(&reply);
	}
	{
		struct reply reply = tool("helper", "out 1048576", "{}");

		assert_false(json_is_true(json_object_get(reply.json, "truncated")));
		assert_int_equal(number_at(reply.json, "stdout_bytes"), 1048576);
		expect_tool_error(reply, "ToolEndedError", "tool ended without");
	}
	expect_error(tool("helper", "broken", "{}"), 500, "sandbox_failed", NULL);
}

/* Whoever wrote the tool can say so too, after whatever it did: it counts as something that ran, and has a record. */
static void an_unknown_tool(void **state)
{
	struct reply reply = tool("helper", "unknown \\\"x\\\"", "{}");

	(void)state;
	assert_int_equal(reply.status, 404);
	assert_true(json_is_true(json_object_get(json_object_get(reply.json, "error"), "ran")));
	assert_non_null(strstr(text_at(reply.json, "error.hint"), "GET /v1/runs/sandbox-"));
	expect_error(reply, 404, "unknown_tool", "unknown tool \"unknown \"x\"\"");
}

/* Two frames, none, parts, lies: nothing of it is taken for a result. */
static void hostile_frames(void **state)
{
#define VALUE "5752455301000000"
#define ERROR "5752455302000000"
	static const struct {
		const char *name, *arguments, *words;
	} rows[] = {
	    {"twice", "{}", "more than one frame"},
	    {"says 1", "{}", "more than one frame"},
	    {"says 3", "{}", "cut short"},
	    {"says 8388609", "{}", "result too large (8388609 bytes), over the limit of 8388608 bytes"},
	    {"says 18446744073709551615", "{}", "result too large"},
	    {"kind 0", "{}", "no frame's header"},
	    {"kind 4", "{}", "no frame's header"},
	    {"kind 3", "{}", "should be empty"},
	    {"bytes 57", "{}", "less than a frame's header"},
	    {"bytes 00524553010000000200000000000000"
	     "7b7d",
	     "{}", "no frame's header"},
	    {"bytes " VALUE "0000000000000000", "{}", "an end before the value's"},
	    {"bytes " VALUE "0300000000000000"
	     "22ff22",
	     "{}", "invalid UTF-8"},
	    {"bytes " VALUE "0800000000000000"
	     "225c756438303022",
	     "{}", "a lone surrogate"},
	    {"bytes " VALUE "0d00000000000000"
	     "7b2261223a312c2261223a327d",
	     "{}", "a name twice in one object"},
	    {"bytes " VALUE "0300000000000000"
	     "4e614e",
	     "{}", "no JSON value"},
	    {"bytes " VALUE "0500000000000000"
	     "3165393939",
	     "{}", "a number that is not finite"},
	    {"bytes " VALUE "0400000000000000"
	     "5b315d5d",
	     "{}", "text after the value"},
	    {"error", "{}", "an error without all of"},
	    {"error", "{\"type\": \"a\", \"message\": \"b\"}", "an error without all of"},
	    {"error", "{\"type\": \"a\", \"message\": \"b\", \"traceback\": null}", "an error with other members"},
	    {"error", "{\"type\": \"a\", \"message\": \"b\", \"traceback\": \"c\", \"d\": \"e\"}",
	     "an error with other members"},
	    {"bytes " ERROR "0200000000000000"
	     "5b5d",
	     "{}", "no object"},
	};
	char deep[256] = "{\"a\": ";
	struct reply reply;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		reply = tool("helper", rows[i].name, rows[i].arguments);
		if (reply.status == 200 && json_object_get(reply.json, "error") &&
		    !strncmp(text_at(reply.json, "error.message"), "the result channel holds what is no result: ", 44)) {
			expect_tool_error(reply, "ToolResultError", rows[i].words);
			continue;
		}
		fail_msg("%s: %s", rows[i].name, reply.body);
	}
	for (int i = 0; i < LIMIT_RESULT_DEPTH - 1; i++)
		strcat(deep, "[");
	for (int i = 0; i < LIMIT_RESULT_DEPTH - 1; i++)
		strcat(deep, "]");
	strcat(deep, "}");
	expect_result(tool("helper", "value", deep), deep);
	memmove(strchr(deep, '[') + 1, strchr(deep, '['), strlen(strchr(deep, '[')) + 1);
	strcpy(deep + strlen(deep) - 1, "]}");
	expect_tool_error(tool("helper", "value", deep), "ToolResultError", "too many levels");
}

static void the_largest_result(void **state)
{
	struct reply reply = tool("helper", "large 8388608", "{}");

	(void)state;
	assert_int_equal(reply.status, 200);
	assert_int_equal(json_string_length(json_object_get(reply.json, "result")), LIMIT_RESULT_BYTES - 2);
	reply_free(&reply);
	expect_tool_error(tool("helper", "large 8388609", "{}"), "ToolResultError", "result too large (8388609 bytes)");
	reply = tool("helper", "flood-result", "{}");
	assert_string_equal(text_at(reply.json, "termination.reason"), "exit");
	expect_tool_error(reply, "ToolResultError", "the result channel holds what is no result");
}

static void a_stream_without_its_end(void **state)
{
	struct reply reply = tool("helper", "open", "{}");

	(void)state;
	assert_in_range(reply.seconds * 1000, 4000, 20000);
	expect_tool_error(reply, "ToolResultError", "a frame without the stream's end");
}

/* ---- clients ---- */

static void hanging_up(void **state)
{
	static const char body[] = "{\"name\": \"hold\", \"arguments\": {}}";
	unsigned cancelled = rig->killed_cancelled, started = rig->started;
	char request[512];
	int fd = raw_connect(rig);

	(void)state;
	snprintf(request, sizeof request,
		 "POST /v1/call HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer helper\r\nContent-Type: application/json\r\n"
		 "Content-Length: %zu\r\n\r\n%s",
		 sizeof body - 1, body);
	raw_send(fd, request, strlen(request));
	rig_await(&rig->started, started + 1, 3000);
	close(fd);
	rig_await(&rig->killed_cancelled, cancelled + 1, 10000);
}

/* Calls and runs share what their project may have at once. */
static void one_quota(void **state)
{
	static const char body[] = "{\"name\": \"hold\", \"arguments\": {}}";
	unsigned cancelled = rig->killed_cancelled, started = rig->started, asked = rig->asked;
	int fds[LIMIT_PROJECT_RUNNING + 1], other;
	char request[512];

	(void)state;
	snprintf(request, sizeof request,
		 "POST /v1/call HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer helper\r\nContent-Type: application/json\r\n"
		 "Content-Length: %zu\r\n\r\n%s",
		 sizeof body - 1, body);
	for (int i = 0; i <= LIMIT_PROJECT_RUNNING; i++) {
		fds[i] = raw_connect(rig);
		raw_send(fds[i], request, strlen(request));
	}
	rig_await(&rig->started, started + LIMIT_PROJECT_RUNNING, 5000);
	/* One call more than may run, and a run of the same project: neither is even asked for. */
	other = raw_connect(rig);
	snprintf(request, sizeof request,
		 "POST /v1/execute HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " PROJECT_TOKEN
		 "\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{\"code\": \"echo\"}");
	raw_send(other, request, strlen(request));
	expect_result(tool("other", "value", "{}"), "{}"); /* others go on */
	assert_int_equal(rig->asked, asked + LIMIT_PROJECT_RUNNING + 1);
	close(fds[0]);
	rig_await(&rig->killed_cancelled, cancelled + 1, 10000);
	rig_await(&rig->started, started + LIMIT_PROJECT_RUNNING + 2, 5000);
	close(fds[1]);
	{
		char *answer = raw_read(other, 10000);

		assert_non_null(strstr(answer, "\"stdout\": \"echo\""));
		free(answer);
	}
	close(other);
	for (int i = 2; i <= LIMIT_PROJECT_RUNNING; i++)
		close(fds[i]);
	rig_await(&rig->killed_cancelled, cancelled + LIMIT_PROJECT_RUNNING + 1, 10000);
}

static void it_describes_itself(void **state)
{
	struct reply reply = call(rig, (struct call){.method = "GET", .path = "/openapi.json", .token = "helper"});
	const json_t *operation = json_object_get(json_object_get(json_object_get(reply.json, "paths"), "/v1/call"), "post");
	const json_t *schemas = json_object_get(json_object_get(reply.json, "components"), "schemas");
	const json_t *request = json_object_get(schemas, "CallRequest"), *answer = json_object_get(schemas, "CallAnswer");

	(void)state;
	assert_non_null(operation);
	assert_int_equal(json_array_size(json_object_get(operation, "security")), 1);
	assert_null(
	    json_object_get(json_object_get(json_object_get(request, "properties"), "arguments"), "additionalProperties"));
	assert_int_equal(number_at(request, "properties.timeout_s.maximum"), 120);
	assert_null(json_object_get(json_object_get(json_object_get(answer, "properties"), "result"), "type"));
	reply_free(&reply);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_whole_answer),
	    cmocka_unit_test(only_an_agents_token),
	    cmocka_unit_test(bodies_that_are_refused),
	    cmocka_unit_test(limits_of_a_request),
	    cmocka_unit_test(no_events),
	    cmocka_unit_test(no_sandbox),
	    cmocka_unit_test(results),
	    cmocka_unit_test(errors),
	    cmocka_unit_test(errors_are_cut),
	    cmocka_unit_test(no_result),
	    cmocka_unit_test(an_unknown_tool),
	    cmocka_unit_test(hostile_frames),
	    cmocka_unit_test(the_largest_result),
	    cmocka_unit_test(a_stream_without_its_end),
	    cmocka_unit_test(hanging_up),
	    cmocka_unit_test(one_quota),
	    cmocka_unit_test(it_describes_itself),
	    cmocka_unit_test(ends_well),
	};

	return cmocka_run_group_tests_name("api call", tests, begin, NULL);
}
