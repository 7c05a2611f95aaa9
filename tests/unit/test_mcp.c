/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the Model Context Protocol: what is done with each, what is answered, and in which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/mcp_priv.h"
#include "api/request.h"
#include "core/limits.h"

#define META(version) "\"_meta\": {\"" MCP_META "protocolVersion\": \"" version "\", \"" MCP_META "clientCapabilities\": {}}"
#define NEWEST "2026-07-28"
#define ASK(method, more) "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"" method "\"" more "}"
#define CALL(arguments) ASK("tools/call", ", \"params\": {\"name\": \"run_python\", \"arguments\": " arguments "}")

static struct mcp_plan plan;
static json_t *told; /* the reply */

static void forget(void)
{
	free(plan.text);
	free(plan.call);
	json_decref(told);
	plan = (struct mcp_plan){0};
	told = NULL;
}

/* The message is freed before the plan is looked at: nothing that is kept may point into it. */
static void read_with(const char *message, const struct mcp_headers *headers)
{
	size_t len = strlen(message);
	char *body = malloc(len + 1);

	forget();
	memcpy(body, message, len); /* without its NUL: ASan sees a step too far */
	body = realloc(body, len ? len : 1);
	mcp_read(body, len, headers, &plan);
	if (plan.step == MCP_RUN) {
		struct execute_request request = {0};
		struct api_error e;

		if (request_parse_execute(plan.arguments, plan.arguments_len, &request, &e) < 0)
			plan.text = mcp_answer_error(plan.call, &e, &plan.text_len);
		payload_clear(&request.payload);
	}
	free(body);
	if (!plan.text)
		return;
	assert_int_equal(strlen(plan.text), plan.text_len);
	assert_ptr_equal(strchr(plan.text, '\n'), plan.text + plan.text_len - 1);
	told = json_loads(plan.text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	if (!told) /* an id that is a large number */
		told = json_loads(plan.text, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);
	if (!told)
		fail_msg("%s", plan.text);
	assert_string_equal(json_string_value(json_object_get(told, "jsonrpc")), "2.0");
	assert_int_equal(json_object_size(told), 3);
}

static void read_plain(const char *message)
{
	static const struct mcp_headers none;

	read_with(message, &none);
}

static const json_t *at(const char *path)
{
	const json_t *v = told;
	char part[64];

	for (; *path; path += *path == '|') {
		size_t n = strcspn(path, "|");

		snprintf(part, sizeof part, "%.*s", (int)n, path);
		v = json_is_array(v) ? json_array_get(v, (size_t)atoi(part)) : json_object_get(v, part);
		if (!v)
			fail_msg("no %s in %s", part, plan.text);
		path += n;
	}
	return v;
}

static const char *text_of(const char *path)
{
	const char *text = json_string_value(at(path));

	assert_non_null(text);
	return text;
}

static void expect_error(int status, int code, const char *message)
{
	assert_int_equal(plan.step, MCP_REPLY);
	if (plan.status != status || !told || json_integer_value(at("error|code")) != code)
		fail_msg("status %d: %s", plan.status, plan.text);
	if (message)
		assert_string_equal(text_of("error|message"), message);
}

/* ---- messages that are none ---- */

static void bad_messages(void **state)
{
	static const struct {
		const char *message;
		int code;
		const char *id, *words;
	} rows[] = {
	    {"", -32700, "null", "at \"\": expected a JSON value, found the end of the body"},
	    {"{", -32700, "null", NULL},
	    {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\"", -32700, "null", NULL},
	    {"nonsense", -32700, "null", NULL},
	    {ASK("ping", "") "x", -32700, "null", "at \"\": expected nothing after the value at byte 45"},
	    {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"\xff\"}", -32700, "null",
	     "at \"/method\": expected valid UTF-8 at byte 39"},
	    {"{\"jsonrpc\": \"2.0\", \"id\": \"\\ud800\", \"method\": \"ping\"}", -32700, "null", NULL},
	    {"[" ASK("ping", "") "]", -32600, "null",
	     "expected one message, found a batch: send each message in a request of its own"},
	    {"[]", -32600, "null", NULL},
	    {"\"ping\"", -32600, "null", "expected a JSON-RPC message, found a string"},
	    {"{}", -32600, "null", "at \"/jsonrpc\": expected the string \"2.0\""},
	    {"{\"id\": 1, \"method\": \"ping\"}", -32600, "1", NULL},
	    {"{\"jsonrpc\": \"1.0\", \"id\": 1, \"method\": \"ping\"}", -32600, "1", NULL},
	    {"{\"jsonrpc\": 2.0, \"id\": 1, \"method\": \"ping\"}", -32600, "1", NULL},
	    {"{\"jsonrpc\": \"2.0\", \"id\": 1}", -32600, "null", NULL},
	    {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": 5}", -32600, "1", NULL},
	    {ASK("ping", ", \"id\": 1"), -32600, "1", "at \"/id\": expected each name once, found it again"},
	    {ASK("ping", ", \"\\u0069d\": 1"), -32600, "1", "at \"/id\": expected each name once, found it again"},
	    {ASK("ping", ", \"method\": \"ping\""), -32600, "1", NULL},
	    {ASK("ping", ", \"result\": 1"), -32600, "1", NULL},
	    {ASK("ping", ", \"session\": 1"), -32600, "1",
	     "at \"/session\": expected jsonrpc, id, method and params, found an unknown name"},
	    {"{\"jsonrpc\": \"2.0\", \"id\": null, \"method\": \"ping\"}", -32600, "null", NULL},
	    {"{\"jsonrpc\": \"2.0\", \"id\": 1.0, \"method\": \"ping\"}", -32600, "null", NULL},
	    {"{\"jsonrpc\": \"2.0\", \"id\": 1e1, \"method\": \"ping\"}", -32600, "null", NULL},
	    {"{\"jsonrpc\": \"2.0\", \"id\": true, \"method\": \"ping\"}", -32600, "null", NULL},
	    {"{\"jsonrpc\": \"2.0\", \"id\": [1], \"method\": \"ping\"}", -32600, "null", NULL},
	    {"{\"jsonrpc\": \"2.0\", \"method\": \"tools/call\"}", -32600, "null",
	     "at \"/id\": expected the id of a request \"tools/call\", found none"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char id[32];

		read_plain(rows[i].message);
		if (!told)
			fail_msg("%s: no reply", rows[i].message);
		expect_error(400, rows[i].code, rows[i].words);
		snprintf(id, sizeof id, "\"id\": %s, ", rows[i].id);
		if (!strstr(plan.text, id))
			fail_msg("%s: %s", rows[i].message, plan.text);
	}
}

static void depth_at_its_limit(void **state)
{
	char message[512];

	(void)state;
	for (int over = 0; over < 2; over++) {
		size_t n =
		    (size_t)sprintf(message, "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\", \"params\": {\"x\": ");
		size_t depth = LIMIT_JSON_DEPTH - 2 + (size_t)over;

		memset(message + n, '[', depth);
		memset(message + n + depth, ']', depth);
		strcpy(message + n + 2 * depth, "}}");
		read_plain(message);
		if (over)
			expect_error(400, -32600, NULL);
		else
			assert_int_equal(plan.status, 200);
	}
}

/* As written: a client compares it with what it sent. */
static void ids_are_kept_exactly(void **state)
{
	static const char *const ids[] = {"0",
					  "-0",
					  "-7",
					  "9007199254740993",
					  "123456789012345678901234567890",
					  "\"\"",
					  "\"a\\u0062\\n\"",
					  "\"\\u0000\"",
					  "\"\xc3\xa9 \\ud83d\\ude00\""};
	char message[512], want[400];

	(void)state;
	for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
		snprintf(message, sizeof message, "{\"jsonrpc\": \"2.0\", \"id\":%s, \"method\": \"nothing\"}", ids[i]);
		read_plain(message);
		snprintf(want, sizeof want, "{\"jsonrpc\": \"2.0\", \"id\": %s, \"error\": ", ids[i]);
		assert_memory_equal(plan.text, want, strlen(want));
	}
}

static void id_at_its_limit(void **state)
{
	char message[512];

	(void)state;
	for (int over = 0; over < 2; over++) {
		snprintf(message, sizeof message, "{\"jsonrpc\": \"2.0\", \"method\": \"ping\", \"id\": %0*d}",
			 LIMIT_MCP_ID_BYTES + over, 0);
		memset(strstr(message, "00"), '1', (size_t)LIMIT_MCP_ID_BYTES + (size_t)over);
		read_plain(message);
		if (over)
			expect_error(
			    400, -32600,
			    "at \"/id\": expected a string or an integer of at most 256 bytes as JSON, found a longer one");
		else
			assert_int_equal(plan.status, 200);
	}
}

/* ---- what wants no answer ---- */

static void accepted(void **state)
{
	static const char *const messages[] = {
	    "{\"jsonrpc\": \"2.0\", \"method\": \"notifications/initialized\"}",
	    "{\"jsonrpc\": \"2.0\", \"method\": \"notifications/cancelled\", \"params\": {\"requestId\": 1}}",
	    "{\"jsonrpc\": \"2.0\", \"method\": \"notifications/of/tomorrow\"}",
	    "{\"jsonrpc\": \"2.0\", \"id\": 7, \"result\": {}}",
	    "{\"jsonrpc\": \"2.0\", \"id\": 7, \"error\": {\"code\": 1, \"message\": \"\"}}",
	};
	static const struct mcp_headers unknown = {.version = "1900-01-01"};

	(void)state;
	for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
		read_plain(messages[i]);
		assert_int_equal(plan.step, MCP_ACCEPT);
		assert_null(plan.text);
		read_with(messages[i], &unknown);
		expect_error(400, -32022, NULL);
	}
}

/* ---- initialize and what comes after it ---- */

static void initialize_negotiates(void **state)
{
	static const struct {
		const char *asked, *got;
	} rows[] = {{"2024-11-05", "2024-11-05"},
		    {"2025-03-26", "2025-03-26"},
		    {"2025-06-18", "2025-06-18"},
		    {"2025-11-25", "2025-11-25"},
		    {NEWEST, "2025-11-25"},
		    {"2099-01-01", "2025-11-25"},
		    {"", "2025-11-25"}};
	char message[256];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		snprintf(
		    message, sizeof message,
		    ASK("initialize", ", \"params\": {\"protocolVersion\": \"%s\", \"capabilities\": {}, \"clientInfo\": {}}"),
		    rows[i].asked);
		read_plain(message);
		assert_int_equal(plan.status, 200);
		assert_string_equal(text_of("result|protocolVersion"), rows[i].got);
	}
	assert_string_equal(text_of("result|serverInfo|name"), "weir");
	assert_true(*text_of("result|serverInfo|version"));
	assert_int_equal(json_object_size(at("result|capabilities")), 1);
	assert_true(json_is_object(at("result|capabilities|tools")));
	assert_non_null(strstr(text_of("result|instructions"), "no network"));
	assert_non_null(
	    strstr(text_of("result|instructions"), "Limits: 20 s unless timeout_s says otherwise (at most 60), 512 MiB"));
	read_plain(ASK("initialize", ""));
	expect_error(200, -32602, "at \"/params/protocolVersion\": expected a string");
	read_plain(ASK("initialize", ", \"params\": []"));
	expect_error(200, -32602, "at \"/params\": expected an object, found an array");
}

static void ping_and_unknown_methods(void **state)
{
	(void)state;
	read_plain(ASK("ping", ""));
	assert_int_equal(json_object_size(at("result")), 0);
	read_plain(ASK("resources/list", ""));
	expect_error(200, -32601, "Method not found: resources/list");
	read_plain(ASK("server/discover", ""));
	expect_error(200, -32601, NULL);
	read_plain(ASK("tools/call\\u0000", ""));
	expect_error(200, -32601, NULL);
	read_plain(ASK("notifications/initialized", ""));
	expect_error(200, -32601, NULL);
}

static void tools_list(void **state)
{
	(void)state;
	read_plain(ASK("tools/list", ", \"params\": {\"_meta\": {\"progressToken\": 5}, \"of tomorrow\": 1}"));
	assert_int_equal(plan.status, 200);
	assert_int_equal(json_object_size(at("result")), 1);
	assert_int_equal(json_array_size(at("result|tools")), 1);
	assert_string_equal(text_of("result|tools|0|name"), "run_python");
	assert_int_equal(json_integer_value(at("result|tools|0|inputSchema|properties|timeout_s|maximum")),
			 LIMIT_TIMEOUT_MAX_S);
	assert_string_equal(text_of("result|tools|0|inputSchema|required|0"), "code");
	assert_true(json_is_false(at("result|tools|0|inputSchema|additionalProperties")));
	assert_string_equal(text_of("result|tools|0|outputSchema|type"), "object");
	for (int i = 0; i < 4; i++) {
		static const char *const hints[] = {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"};
		char path[64];

		snprintf(path, sizeof path, "result|tools|0|annotations|%s", hints[i]);
		assert_true(json_is_false(at(path)));
	}
	for (size_t i = 0; mcp_arguments[i]; i++)
		assert_non_null(json_object_get(at("result|tools|0|inputSchema|properties"), mcp_arguments[i]));
	assert_int_equal(json_object_size(at("result|tools|0|inputSchema|properties")), 4);
	read_plain(ASK("tools/list", ", \"params\": {\"cursor\": \"x\"}"));
	expect_error(200, -32602, NULL);
	read_plain(ASK("tools/list", ", \"params\": {\"cursor\": \"x\", \"cursor\": \"x\"}"));
	expect_error(200, -32602, "at \"/params/cursor\": expected each name once, found it again");
}

/* ---- tools/call ---- */

static void calls_that_run(void **state)
{
	static const char *const arguments[] = {
	    "{\"code\": \"\"}",
	    "{\"code\": \"print(1)\", \"timeout_s\": 60, \"stdin\": \"x\", \"files\": [{\"path\": \"a\", \"content\": \"b\"}]}",
	};
	char message[512];

	(void)state;
	for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
		snprintf(message, sizeof message,
			 "{\"jsonrpc\": \"2.0\", \"id\": \"x\", \"method\": \"tools/call\", \"params\": "
			 "{\"_meta\": {}, \"arguments\": %s, \"name\": \"run_python\"}}",
			 arguments[i]);
		read_plain(message);
		assert_int_equal(plan.step, MCP_RUN);
		assert_null(plan.text);
		assert_string_equal(plan.call->id, "\"x\"");
		assert_false(plan.call->modern);
		assert_int_equal(plan.arguments_len, strlen(arguments[i]));
	}
}

/* What a model wrote and can mend: a result that says what is wrong. */
static void arguments_that_are_wrong(void **state)
{
	static const struct {
		const char *message, *words, *code;
	} rows[] = {
	    {ASK("tools/call", ", \"params\": {\"name\": \"run_python\"}"),
	     "at \"/code\": expected a string, found no such member", "invalid_request"},
	    {CALL("{}"), "at \"/code\": expected a string, found no such member", "invalid_request"},
	    {CALL("{\"code\": 5}"), "at \"/code\": expected a string, found a number", "invalid_request"},
	    {CALL("{\"code\": \"\", \"code\": \"\"}"), "at \"/code\": expected each name once, found it again",
	     "invalid_request"},
	    {CALL("{\"code\": \"\", \"timeout_s\": 61}"), "timeout_s must be between 1 and 60", "invalid_timeout"},
	    {CALL("{\"code\": \"\", \"timeout_s\": \"5\"}"), "timeout_s must be between 1 and 60", "invalid_timeout"},
	    {CALL("{\"code\": \"\", \"files\": [{\"path\": \"../a\", \"content\": \"\"}]}"),
	     "file path escapes working directory", "path_escapes"},
	    {CALL("{\"code\": \"\", \"language\": \"python\"}"),
	     "at \"/language\": expected one of code, timeout_s, stdin, files, found an unknown name", "invalid_request"},
	    {CALL("{\"code\": \"\", \"session_id\": \"sandbox-a\"}"),
	     "at \"/session_id\": expected one of code, timeout_s, stdin, files, found an unknown name", "invalid_request"},
	    {CALL("{\"code\": \"\", \"env\": {}}"),
	     "at \"/env\": expected one of code, timeout_s, stdin, files, found an unknown name", "invalid_request"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t n = strlen(rows[i].words);

		read_plain(rows[i].message);
		assert_true(json_is_true(at("result|isError")));
		if (strncmp(text_of("result|content|0|text"), rows[i].words, n) != 0)
			fail_msg("%s", plan.text);
		assert_memory_equal(text_of("result|content|0|text") + n, "\nNothing ran.\n", 14);
		assert_string_equal(text_of("result|_meta|weir/error|code"), rows[i].code);
		assert_true(json_is_false(at("result|_meta|weir/error|ran")));
		assert_null(json_object_get(at("result"), "structuredContent"));
	}
}

static void calls_of_nothing(void **state)
{
	(void)state;
	read_plain(ASK("tools/call", ""));
	expect_error(200, -32602, "at \"/params/name\": expected a tool's name");
	read_plain(ASK("tools/call", ", \"params\": {\"name\": 5}"));
	expect_error(200, -32602, NULL);
	read_plain(ASK("tools/call", ", \"params\": {\"name\": \"run_ruby\"}"));
	expect_error(200, -32602, "Unknown tool: run_ruby");
	read_plain(ASK("tools/call", ", \"params\": {\"name\": \"run_python\", \"arguments\": [\"code\"]}"));
	expect_error(200, -32602, "at \"/params/arguments\": expected an object, found an array");
	read_plain(ASK("tools/call", ", \"params\": {\"name\": \"run_python\", \"name\": \"run_python\"}"));
	expect_error(200, -32602, "at \"/params/name\": expected each name once, found it again");
}

/* ---- the newest revision ---- */

#define MODERN(method, more) ASK(method, ", \"params\": {" META(NEWEST) more "}")

static void modern_requests(void **state)
{
	struct mcp_headers h = {.version = NEWEST, .method = "server/discover"};

	(void)state;
	read_with(MODERN("server/discover", ""), &h);
	assert_int_equal(plan.status, 200);
	assert_string_equal(text_of("result|supportedVersions|0"), NEWEST);
	assert_string_equal(text_of("result|supportedVersions|1"), "2025-11-25");
	assert_string_equal(text_of("result|resultType"), "complete");
	assert_string_equal(text_of("result|_meta|" MCP_META "serverInfo|name"), "weir");
	assert_true(json_is_integer(at("result|ttlMs")));
	assert_non_null(strstr(text_of("result|instructions"), "no network"));
	h.method = "tools/list";
	read_with(MODERN("tools/list", ""), &h);
	assert_string_equal(text_of("result|tools|0|name"), "run_python");
	assert_string_equal(text_of("result|resultType"), "complete");
	assert_string_equal(text_of("result|cacheScope"), "private");
	h.method = "tools/call";
	h.name = "run_python";
	read_with(MODERN("tools/call", ", \"name\": \"run_python\", \"arguments\": {\"code\": \"\"}"), &h);
	assert_int_equal(plan.step, MCP_RUN);
	assert_true(plan.call->modern);
	read_with(MODERN("tools/call", ", \"name\": \"run_python\", \"arguments\": {}"), &h);
	assert_true(json_is_true(at("result|isError")));
	assert_string_equal(text_of("result|resultType"), "complete");
	assert_string_equal(text_of("result|_meta|weir/error|code"), "invalid_request");
	assert_string_equal(text_of("result|_meta|" MCP_META "serverInfo|name"), "weir");
	h.name = "=?base64?cnVuX3B5dGhvbg==?=";
	read_with(MODERN("tools/call", ", \"name\": \"run_python\", \"arguments\": {\"code\": \"\"}"), &h);
	assert_int_equal(plan.step, MCP_RUN);
	h = (struct mcp_headers){.version = NEWEST, .method = "ping"};
	read_with(MODERN("ping", ""), &h);
	expect_error(404, -32601, "Method not found: ping");
	h.method = "initialize";
	read_with(MODERN("initialize", ", \"protocolVersion\": \"2025-11-25\""), &h);
	expect_error(404, -32601, NULL);
}

static void headers_that_say_something_else(void **state)
{
	static const char call[] = MODERN("tools/call", ", \"name\": \"run_python\", \"arguments\": {\"code\": \"\"}");
	static const struct {
		const char *message;
		struct mcp_headers headers;
		int code;
		const char *words;
	} rows[] = {
	    {call, {NULL, "tools/call", "run_python"}, -32020, "header MCP-Protocol-Version is missing"},
	    {call, {"2025-11-25", "tools/call", "run_python"}, -32020, NULL},
	    {call, {NEWEST, NULL, "run_python"}, -32020, "header Mcp-Method is missing"},
	    {call,
	     {NEWEST, "tools/list", "run_python"},
	     -32020,
	     "header Mcp-Method does not say what the message says at \"/method\""},
	    {call, {NEWEST, "Tools/call", "run_python"}, -32020, NULL},
	    {call, {NEWEST, "tools/call", NULL}, -32020, "header Mcp-Name is missing"},
	    {call,
	     {NEWEST, "tools/call", "run_ruby"},
	     -32020,
	     "header Mcp-Name does not say what the message says at \"/params/name\""},
	    {call, {NEWEST, "tools/call", "=?base64?cnVuX3J1Ynk=?="}, -32020, NULL},
	    {call, {NEWEST, "tools/call", "=?base64?no base64?="}, -32020, NULL},
	    {call, {NEWEST, "tools/call", "=?base64?="}, -32020, NULL},
	    {call,
	     {"1900-01-01", "tools/call", "run_python"},
	     -32022,
	     "this revision of the protocol is not served: 1900-01-01"},
	    {call, {"", "tools/call", "run_python"}, -32022, NULL},
	    {call, {"\xff", "tools/call", "run_python"}, -32022, "this revision of the protocol is not served: ?"},
	    {ASK("tools/list", ", \"params\": {" META("1900-01-01") "}"), {"1900-01-01", "tools/list", NULL}, -32022, NULL},
	    {ASK("tools/list", ", \"params\": {" META("1900-01-01") "}"), {NEWEST, "tools/list", NULL}, -32020, NULL},
	    {ASK("tools/list", ", \"params\": {" META("1900-01-01") "}"), {NULL, "tools/list", NULL}, -32020, NULL},
	    {ASK("tools/list", ""), {NEWEST, "tools/list", NULL}, -32602, NULL},
	    {ASK("tools/list", ", \"params\": {\"_meta\": {\"" MCP_META "protocolVersion\": 5}}"),
	     {NEWEST, "tools/list", NULL},
	     -32602,
	     NULL},
	    {ASK("tools/list", ", \"params\": {\"_meta\": {\"" MCP_META "protocolVersion\": \"" NEWEST "\"}}"),
	     {NEWEST, "tools/list", NULL},
	     -32602,
	     "at \"/params/_meta\": expected an object as io.modelcontextprotocol/clientCapabilities"},
	    {MODERN("tools/call", ""), {NEWEST, "tools/call", "run_python"}, -32020, NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		read_with(rows[i].message, &rows[i].headers);
		if (!told || plan.step != MCP_REPLY)
			fail_msg("row %zu runs", i);
		expect_error(400, rows[i].code, rows[i].words);
		assert_int_equal(json_integer_value(at("id")), 1); /* so that a client takes it for the answer */
		if (rows[i].code == -32022)
			assert_string_equal(text_of("error|data|supported|0"), NEWEST);
	}
}

/* Of an older revision, headers and _meta of the newest mean nothing. */
static void older_requests_with_headers(void **state)
{
	static const struct mcp_headers h = {.version = "2025-06-18", .method = "something", .name = "else"};

	(void)state;
	read_with(CALL("{\"code\": \"\"}"), &h);
	assert_int_equal(plan.step, MCP_RUN);
	assert_false(plan.call->modern);
	read_with(ASK("tools/list", ", \"params\": {" META("2025-06-18") "}"), &h);
	assert_int_equal(plan.status, 200);
	assert_null(json_object_get(at("result"), "resultType"));
}

/* ---- results ---- */

static char files[8192];
static size_t files_len;

static void add_file(uint32_t kind, const char *path, const char *content, size_t size)
{
	struct collected_entry e = {.kind = kind, .path_len = (uint32_t)strlen(path), .size = size};

	memcpy(files + files_len, &e, sizeof e);
	memcpy(files + files_len + sizeof e, path, e.path_len);
	files_len += sizeof e + e.path_len;
	if (kind == COLLECTED_FILE) {
		memcpy(files + files_len, content, size);
		files_len += size;
	}
}

static struct run_result sample(const char *out, const char *err)
{
	struct run_result r = {.outcome = RUN_DONE,
			       .ran = true,
			       .timeout_s = 20,
			       .grant = {.sandbox_id = "sandbox-a", .run_id = "sandbox-a", .python = "3.12.1"},
			       .end = {.ran = 1, .duration_us = 4999},
			       .out = {(char *)out, (char *)err}};

	r.out_bytes[0] = r.out_len[0] = strlen(out);
	r.out_bytes[1] = r.out_len[1] = strlen(err);
	return r;
}

/* Read in pieces of the least size, as it goes out. */
static void answer(const struct run_result *r, bool modern)
{
	static const char id[] = "\"an id\"";
	struct mcp_call *call = calloc(1, sizeof *call + sizeof id);
	struct answer_body a;
	size_t len, done = 0, n;

	forget();
	call->modern = modern;
	memcpy(call->id, id, sizeof id);
	assert_int_equal(mcp_answer_make(&a, call, r), 0);
	free(call);
	len = answer_len(&a);
	plan.text = malloc(len + ANSWER_READ_MIN);
	while ((n = answer_read(&a, plan.text + done, ANSWER_READ_MIN)) > 0)
		done += n;
	answer_clear(&a);
	assert_int_equal(done, len);
	plan.text[len] = 0;
	told = json_loads(plan.text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	if (!told)
		fail_msg("%s", plan.text);
	assert_string_equal(text_of("id"), "an id");
}

static void whole_result(void **state)
{
	static const char want[] =
	    "{\"jsonrpc\": \"2.0\", \"id\": \"an id\", \"result\": {\"content\": [{\"type\": \"text\", \"text\": \"42\\n\"}], "
	    "\"structuredContent\": {\"stdout\": \"42\\n\", \"stderr\": \"\", \"exit_code\": 0, \"files\": [], "
	    "\"termination\": {\"reason\": \"exit\", \"signal\": null, \"detail\": \"\"}, \"truncated\": false, "
	    "\"duration_ms\": 4, "
	    "\"run_id\": \"sandbox-a\", \"python\": \"3.12.1\"}, \"isError\": false, \"_meta\": {\"weir/run\": ";
	static const char answered[] = "{\"egress\": {\"attempts\": 9, \"destinations\": []}, \"audit_hash\": \"00ff\"}";
	struct run_result r = sample("42\n", "");
	const char *name;
	json_t *value, *told_before;

	(void)state;
	r.summary = (char *)answered;
	r.summary_len = strlen(answered);
	answer(&r, false);
	assert_memory_equal(plan.text, want, sizeof want - 1);
	/* For the client, not for the model. */
	assert_int_equal(json_object_size(at("result|_meta")), 1);
	assert_string_equal(text_of("result|_meta|weir/run|audit_hash"), "00ff");
	assert_int_equal(json_integer_value(at("result|_meta|weir/run|egress|attempts")), 9);
	assert_true(json_is_object(at("result|_meta|weir/run|usage|cpu_ms")));
	answer(&r, true);
	assert_string_equal(text_of("result|_meta|weir/run|audit_hash"), "00ff");
	assert_string_equal(text_of("result|resultType"), "complete");
	assert_string_equal(text_of("result|_meta|" MCP_META "serverInfo|name"), "weir");
	/* All that the schema promises, and nothing that it does not know. */
	told_before = json_deep_copy(at("result|structuredContent"));
	read_plain(ASK("tools/list", ""));
	assert_int_equal(json_array_size(at("result|tools|0|outputSchema|required")), json_object_size(told_before));
	json_object_foreach((json_t *)at("result|tools|0|outputSchema|properties"), name, value)
	    assert_non_null(json_object_get(told_before, name));
	json_decref(told_before);
}

static void words_of_endings(void **state)
{
	static const struct {
		struct tell_end end;
		const char *out, *words;
	} rows[] = {
	    {{.end = RUN_END_EXIT}, "", "The code ended with exit code 0 and wrote nothing: print() what you want to see."},
	    {{.end = RUN_END_EXIT, .exit_code = 3}, "", "The code ended with exit code 3 and wrote nothing."},
	    {{.end = RUN_END_EXIT, .exit_code = 1}, "x", "The code ended with exit code 1."},
	    {{.end = RUN_END_SIGNAL, .exit_code = 139, .signal = SIGSEGV},
	     "x",
	     "The code was ended by SIGSEGV (exit code 139)."},
	    {{.end = RUN_END_TIMEOUT, .exit_code = -1, .signal = SIGKILL},
	     "x",
	     "The code was stopped after 20 s, its deadline; timeout_s can make it longer."},
	    {{.end = RUN_END_MEMORY, .exit_code = 137, .detail = "memory limit of 512 MiB exceeded"},
	     "x",
	     "The code was stopped: memory limit of 512 MiB exceeded (exit code 137)."},
	    {{.end = RUN_END_CANCELLED, .exit_code = 137}, "x", "The code was stopped: cancelled (exit code 137)."},
	    {{.end = RUN_END_EXIT, .attempts = 1, .denied = 1}, "x", "1 attempt to reach the network was refused."},
	    {{.end = RUN_END_EXIT, .attempts = 7, .denied = 6}, "x", "6 attempts to reach the network were refused."},
	};
	struct run_result r;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		r = sample(rows[i].out, "");
		r.end = rows[i].end;
		answer(&r, false);
		assert_string_equal(text_of(*rows[i].out ? "result|content|1|text" : "result|content|0|text"), rows[i].words);
		assert_int_equal(json_is_true(at("result|isError")), rows[i].end.exit_code != 0);
		assert_int_equal(json_integer_value(at("result|structuredContent|exit_code")), rows[i].end.exit_code);
	}
	r = sample("xx", "oh\n\xff");
	r.end = (struct tell_end){.end = RUN_END_TIMEOUT, .exit_code = -1};
	r.timeout_s = LIMIT_TIMEOUT_MAX_S;
	r.truncated = true;
	r.out_bytes[0] = 9;
	answer(&r, false);
	assert_string_equal(text_of("result|content|0|text"), "xx");
	assert_string_equal(text_of("result|content|1|text"), "stderr:\noh\n\xef\xbf\xbd");
	assert_string_equal(text_of("result|content|2|text"),
			    "The code was stopped after 60 s, its deadline, which is the longest there is.\n"
			    "Only the first 2 of at least 9 bytes on standard output are here.");
	assert_true(json_is_true(at("result|structuredContent|truncated")));
}

static void pictures_and_other_files(void **state)
{
	static const char png[] = "\x89PNG\r\n\x1a\n\0\xff", webp[] = "RIFF\1\2\3\4WEBP";
	struct run_result r = sample("", "");

	(void)state;
	files_len = 0;
	add_file(COLLECTED_FILE, "a.png", png, sizeof png - 1);
	add_file(COLLECTED_FILE, "b.PNG", "GIF89a", 6);
	add_file(COLLECTED_FILE, "c\n\"evil\".csv", "1,2", 3);
	add_file(COLLECTED_SYMLINK, "d", NULL, 0);
	add_file(COLLECTED_FILE, "e.png", "no picture", 10);
	add_file(COLLECTED_FILE, "f.bin", png, sizeof png - 1);
	add_file(COLLECTED_FILE, "g.jpg", "\xff\xd8\xff", 3);
	add_file(COLLECTED_TOO_LARGE, "h", NULL, 9 << 20);
	add_file(COLLECTED_FILE, "i.webp", webp, sizeof webp - 1);
	add_file(COLLECTED_FILE, "j.png", "", 0);
	add_file(COLLECTED_FILE, "k.svg", "<svg/>", 6);
	assert_true(run_files_ok(files, files_len));
	r.files = (struct run_files){.data = files, .len = files_len, .skipped_unlisted = 4};
	answer(&r, false);
	assert_int_equal(json_array_size(at("result|content")), 5);
	assert_string_equal(
	    text_of("result|content|0|text"),
	    "The code ended with exit code 0 and wrote nothing: print() what you want to see.\n"
	    "Files left by the code: \"a.png\" (10 bytes, below), \"b.PNG\" (6 bytes, below), \"c\\n\\\"evil\\\".csv\" (3 "
	    "bytes), "
	    "\"e.png\" (10 bytes), \"f.bin\" (10 bytes), \"g.jpg\" (3 bytes, below), \"i.webp\" (12 bytes, below), "
	    "\"j.png\" (0 bytes), \"k.svg\" (6 bytes).\n"
	    "Not read of what the code left: \"d\" (symlink), \"h\" (too large) and 4 more.");
	for (int i = 1; i < 5; i++) {
		static const char *const types[] = {"", "image/png", "image/gif", "image/jpeg", "image/webp"};
		char path[64];

		snprintf(path, sizeof path, "result|content|%d|type", i);
		assert_string_equal(text_of(path), "image");
		snprintf(path, sizeof path, "result|content|%d|mimeType", i);
		assert_string_equal(text_of(path), types[i]);
	}
	assert_string_equal(text_of("result|content|1|data"), "iVBORw0KGgoA/w==");
	assert_int_equal(json_array_size(at("result|structuredContent|files")), 9);
	assert_string_equal(text_of("result|structuredContent|files|2"), "c\n\"evil\".csv");
}

static void many_files(void **state)
{
	struct run_result r = sample("x", "");
	char name[16];

	(void)state;
	files_len = 0;
	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof name, "f%02d", i);
		add_file(COLLECTED_FILE, name, "", 0);
	}
	r.files = (struct run_files){.data = files, .len = files_len};
	answer(&r, false);
	assert_non_null(strstr(text_of("result|content|1|text"), "\"f31\" (0 bytes) and 8 more."));
	assert_int_equal(json_array_size(at("result|structuredContent|files")), 40);
	r.files = (struct run_files){.problem = "the collector is gone"};
	answer(&r, false);
	assert_string_equal(text_of("result|content|1|text"),
			    "The files that the code left could not be read: the collector is gone.");
}

static void failures(void **state)
{
	struct mcp_call *call = calloc(1, sizeof *call + 2);
	struct api_error e;

	(void)state;
	call->id[0] = '5';
	for (int k = ERROR_NONE + 1; k < ERROR_CASES; k++) {
		const struct error_row *row = error_row((enum error_case)k);

		forget();
		error_set(&e, (enum error_case)k, NULL);
		e.ran = k % 2;
		plan.text = mcp_answer_error(call, &e, &plan.text_len);
		told = json_loads(plan.text, JSON_REJECT_DUPLICATES, NULL);
		assert_non_null(told);
		assert_true(json_is_true(at("result|isError")));
		assert_string_equal(text_of("result|_meta|weir/error|code"), row->code);
		assert_int_equal(json_is_true(at("result|_meta|weir/error|ran")), e.ran);
		assert_non_null(strstr(text_of("result|content|0|text"), row->hint));
		assert_non_null(strstr(text_of("result|content|0|text"),
				       e.ran ? "\nSome of the code may have run.\n" : "\nNothing ran.\n"));
		assert_int_equal(json_integer_value(json_object_get(at("result|_meta|weir/error"), "retry_after_s")),
				 row->retry_after_s);
	}
	free(call);
}

/* ---- headers ---- */

static void accept(void **state)
{
	static const char *const yes[] = {"application/json",
					  "application/json, text/event-stream",
					  "text/event-stream,application/json",
					  "*/*",
					  "application/*",
					  "text/html, */*;q=0.8",
					  "Application/JSON; charset=utf-8",
					  "application/json;q=0.1",
					  "application/json;q=0, application/json",
					  "text/*;q=0, application/json ;q=1.0",
					  "*/*;q=0, application/json"};
	static const char *const no[] = {"",
					 "text/event-stream",
					 "text/html",
					 "application/jsonl",
					 "application/json;q=0",
					 "application/json;q=0.000",
					 "application/json;q=0, */*",
					 "*/*, application/json;q=0",
					 "application",
					 ",",
					 ";;,",
					 "text/*"};

	(void)state;
	for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
		if (!mcp_accepts_json(yes[i]))
			fail_msg("%s", yes[i]);
	for (size_t i = 0; i < sizeof no / sizeof *no; i++)
		if (mcp_accepts_json(no[i]))
			fail_msg("%s", no[i]);
}

static void origin(void **state)
{
	static const struct {
		const char *origin, *host;
		bool ok;
	} rows[] = {
	    {"http://localhost", NULL, true},
	    {"http://localhost:5173", "127.0.0.1:8380", true},
	    {"HTTPS://LocalHost:1", "x", true},
	    {"http://127.0.0.1", "127.0.0.1:8380", true},
	    {"http://127.5.5.5:80", "x", true},
	    {"http://[::1]:8380", "x", true},
	    {"http://192.0.2.1:8380", "192.0.2.1:8380", true},
	    {"https://[2001:db8::1]:8380", "[2001:db8::1]:8380", true},
	    {"http://192.0.2.1", "192.0.2.1:8380", false},
	    {"http://192.0.2.1:8380", "192.0.2.2:8380", false},
	    {"http://192.0.2.1:8380", NULL, false},
	    {"http://rebound.example:8380", "rebound.example:8380", false}, /* a name that was rebound to us */
	    {"https://example.com", "127.0.0.1:8380", false},
	    {"http://localhost.example.com", "x", false},
	    {"http://127.0.0.1.example.com", "x", false},
	    {"http://127.1", "x", false},
	    {"http://localhost@example.com", "x", false},
	    {"http://localhost/", "x", false},
	    {"http://localhost:x", "x", false},
	    {"http://[::1", "x", false},
	    {"http://[::1]x", "x", false},
	    {"http://", "", false},
	    {"null", "x", false},
	    {"", "", false},
	    {"file://", "x", false},
	    {"ftp://localhost", "x", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (mcp_origin_ok(rows[i].origin, rows[i].host) != rows[i].ok)
			fail_msg("%s", rows[i].origin);
}

static int end(void **state)
{
	(void)state;
	forget();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(bad_messages),
	    cmocka_unit_test(depth_at_its_limit),
	    cmocka_unit_test(ids_are_kept_exactly),
	    cmocka_unit_test(id_at_its_limit),
	    cmocka_unit_test(accepted),
	    cmocka_unit_test(initialize_negotiates),
	    cmocka_unit_test(ping_and_unknown_methods),
	    cmocka_unit_test(tools_list),
	    cmocka_unit_test(calls_that_run),
	    cmocka_unit_test(arguments_that_are_wrong),
	    cmocka_unit_test(calls_of_nothing),
	    cmocka_unit_test(modern_requests),
	    cmocka_unit_test(headers_that_say_something_else),
	    cmocka_unit_test(older_requests_with_headers),
	    cmocka_unit_test(whole_result),
	    cmocka_unit_test(words_of_endings),
	    cmocka_unit_test(pictures_and_other_files),
	    cmocka_unit_test(many_files),
	    cmocka_unit_test(failures),
	    cmocka_unit_test(accept),
	    cmocka_unit_test(origin),
	};

	return cmocka_run_group_tests(tests, NULL, end);
}
