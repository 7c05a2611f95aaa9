/* SPDX-License-Identifier: Apache-2.0 */
/* POST /mcp through the real api process: what clients send, in order and out of order, and what the transport demands. */
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

#define JSON "Content-Type: application/json"
#define BOTH "Accept: application/json, text/event-stream"
#define PING "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\"}"

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
	assert_int_equal(rig->open, 0);
	assert_int_equal(rig_stop(rig), 0);
}

/* As the clients of 2025 do it; `header` NULL or one more. */
static struct reply post(const char *message, const char *header)
{
	return call(rig, (struct call){.method = "POST", .path = "/mcp", .body = message, .header = {JSON, BOTH, header}});
}

static char *call_message(const char *code, const char *more)
{
	json_t *value = json_string(code);
	char *quoted = json_dumps(value, JSON_ENCODE_ANY), *message;

	assert_true(asprintf(&message,
			     "{\"jsonrpc\": \"2.0\", \"id\": \"c-1\", \"method\": \"tools/call\", \"params\": "
			     "{\"name\": \"run_python\", \"arguments\": {\"code\": %s%s}}}",
			     quoted, more) > 0);
	free(quoted);
	json_decref(value);
	return message;
}

/* Calls the tool; asserts that there is a result. */
static struct reply run(const char *code, const char *more)
{
	char *message = call_message(code, more);
	struct reply reply = post(message, "MCP-Protocol-Version: 2025-11-25");

	free(message);
	if (reply.status != 200 || !json_object_get(reply.json, "result"))
		fail_msg("%s: status %ld: %s", code, reply.status, reply.body ? reply.body : "");
	assert_string_equal(text_at(reply.json, "id"), "c-1");
	return reply;
}

static const char *block(const struct reply *reply, size_t i)
{
	const json_t *content = json_object_get(json_object_get(reply->json, "result"), "content");
	const char *text = json_string_value(json_object_get(json_array_get(content, i), "text"));

	return text ? text : "(no such block)";
}

static bool is_error(const struct reply *reply)
{
	return json_is_true(json_object_get(json_object_get(reply->json, "result"), "isError"));
}

static void expect_rpc_error(struct reply reply, long status, int code)
{
	if (reply.status != status || number_at(reply.json, "error.code") != code)
		fail_msg("status %ld: %s", reply.status, reply.body ? reply.body : "");
	reply_free(&reply);
}

static void a_conversation(void **state)
{
	struct reply reply =
	    post("{\"jsonrpc\": \"2.0\", \"id\": 0, \"method\": \"initialize\", \"params\": {\"protocolVersion\": "
		 "\"2025-06-18\", \"capabilities\": {}, \"clientInfo\": {\"name\": \"t\", \"version\": \"1\"}}}",
		 NULL);
	(void)state;
	assert_int_equal(reply.status, 200);
	assert_string_equal(text_at(reply.json, "result.protocolVersion"), "2025-06-18");
	assert_non_null(strstr(reply.head, "Content-Type: application/json\r\n"));
	assert_null(strcasestr(reply.head, "mcp-session-id"));
	reply_free(&reply);

	reply = post("{\"jsonrpc\": \"2.0\", \"method\": \"notifications/initialized\"}", "MCP-Protocol-Version: 2025-06-18");
	assert_int_equal(reply.status, 202);
	assert_int_equal(reply.body_len, 0);
	reply_free(&reply);

	reply = post("{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/list\"}", "MCP-Protocol-Version: 2025-06-18");
	assert_int_equal(json_array_size(json_object_get(json_object_get(reply.json, "result"), "tools")), 1);
	reply_free(&reply);

	reply = run("echo 42", "");
	assert_string_equal(block(&reply, 0), "echo 42");
	assert_string_equal(block(&reply, 1), "2 attempts to reach the network were refused.");
	assert_string_equal(text_at(reply.json, "result.structuredContent.stdout"), "echo 42");
	assert_string_equal(text_at(reply.json, "result.structuredContent.python"), "3.12.1");
	assert_false(is_error(&reply));
	assert_non_null(strstr(reply.head, "Content-Type: application/json\r\n")); /* although events would have been taken */
	assert_string_equal(rig->last_run_id, text_at(reply.json, "result.structuredContent.run_id"));
	reply_free(&reply);
}

static void newest_revision(void **state)
{
	static const char meta[] = "\"_meta\": {\"io.modelcontextprotocol/protocolVersion\": \"2026-07-28\", "
				   "\"io.modelcontextprotocol/clientCapabilities\": {}}";
	struct call c = {
	    .method = "POST",
	    .path = "/mcp",
	    .header = {JSON, "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: run_python"}};
	char message[512];
	struct reply reply;

	(void)state;
	snprintf(message, sizeof message,
		 "{\"jsonrpc\": \"2.0\", \"id\": 5, \"method\": \"tools/call\", \"params\": {%s, \"name\": \"run_python\", "
		 "\"arguments\": {\"code\": \"exit 3\"}}}",
		 meta);
	c.body = message;
	reply = call(rig, c);
	assert_int_equal(reply.status, 200);
	assert_true(is_error(&reply));
	assert_string_equal(text_at(reply.json, "result.resultType"), "complete");
	assert_int_equal(number_at(reply.json, "result.structuredContent.exit_code"), 3);
	reply_free(&reply);
	c.header[3] = "Mcp-Name: other";
	expect_rpc_error(call(rig, c), 400, -32020);
	snprintf(message, sizeof message, "{\"jsonrpc\": \"2.0\", \"id\": 5, \"method\": \"ping\", \"params\": {%s}}", meta);
	c.header[2] = "Mcp-Method: ping";
	expect_rpc_error(call(rig, c), 404, -32601);
}

/* ---- the transport's rules ---- */

static void other_methods(void **state)
{
	static const char *const methods[] = {"GET", "DELETE", "PUT"};

	(void)state;
	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
		struct reply reply =
		    call(rig, (struct call){.method = methods[i], .path = "/mcp", .header = {"Accept: text/event-stream"}});

		assert_int_equal(reply.status, 405);
		assert_non_null(strstr(reply.head, "Allow: POST\r\n"));
		reply_free(&reply);
	}
}

static void who_may(void **state)
{
	struct call c = {.method = "POST", .path = "/mcp", .token = "", .body = PING, .header = {JSON, BOTH}};
	struct reply reply = call(rig, c);

	(void)state;
	assert_non_null(strstr(reply.head, "WWW-Authenticate: Bearer\r\n"));
	expect_error(reply, 401, "unauthorized", NULL);
	c.token = "wrong-token-0123456789";
	c.header[2] = "Origin: https://example.com";
	expect_error(call(rig, c), 401, "unauthorized", "missing or invalid project token");
}

static void media_types(void **state)
{
	static const struct {
		const char *type, *accept;
		long status;
	} rows[] = {
	    {"Content-Type:", "Accept:", 200}, /* neither is sent */
	    {"Content-Type: application/json; charset=utf-8", "Accept: */*", 200},
	    {JSON, "Accept: application/json", 200},
	    {JSON, "Accept: text/event-stream", 406},
	    {JSON, "Accept: application/json;q=0", 406},
	    {JSON, "Accept;", 406}, /* an empty one */
	    {"Content-Type: text/plain", BOTH, 415},
	    {"Content-Type: application/json-rpc", BOTH, 415},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct reply reply = call(
		    rig,
		    (struct call){.method = "POST", .path = "/mcp", .body = PING, .header = {rows[i].type, rows[i].accept}});

		if (reply.status != rows[i].status)
			fail_msg("%s, %s: %ld %s", rows[i].type, rows[i].accept, reply.status, reply.body);
		if (reply.status == 406)
			assert_int_equal(number_at(reply.json, "error.code"), -32600);
		reply_free(&reply);
	}
}

static void other_headers(void **state)
{
	static const struct {
		const char *header, *again;
		long status;
	} rows[] = {
	    {"Origin: http://localhost:5173", NULL, 200},
	    {"Origin: http://127.0.0.1", NULL, 200},
	    {"Origin: https://example.com", NULL, 403},
	    {"Origin: null", NULL, 403},
	    {"Origin;", NULL, 403},
	    {"Origin: http://rebound.example", "Host: rebound.example", 403},
	    {"Origin: http://192.0.2.7:80", "Host: 192.0.2.7:80", 200},
	    {"Origin: http://localhost", "Origin: https://example.com", 400},
	    {"MCP-Protocol-Version: 2025-03-26", NULL, 200},
	    {"mcp-protocol-version: 2025-11-25", NULL, 200},
	    {"MCP-Protocol-Version: 2025-06-18", "MCP-Protocol-Version: 2025-06-18", 400},
	    {"MCP-Protocol-Version: 1900-01-01", NULL, 400},
	    {"MCP-Protocol-Version;", NULL, 400},
	    {"Mcp-Session-Id: whatever", "Last-Event-ID: 5", 200},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct reply reply = call(rig, (struct call){.method = "POST",
							     .path = "/mcp",
							     .body = PING,
							     .header = {JSON, BOTH, rows[i].header, rows[i].again}});

		if (reply.status != rows[i].status)
			fail_msg("%s: %ld %s", rows[i].header, reply.status, reply.body);
		if (reply.status != 200)
			assert_true(number_at(reply.json, "error.code") < 0);
		reply_free(&reply);
	}
}

static void messages_that_are_none(void **state)
{
	(void)state;
	expect_rpc_error(post("", NULL), 400, -32700);
	expect_rpc_error(post("{", NULL), 400, -32700);
	expect_rpc_error(post("[" PING "]", NULL), 400, -32600);
	expect_rpc_error(post("{\"jsonrpc\": \"2.0\", \"id\": 1, \"id\": 1, \"method\": \"ping\"}", NULL), 400, -32600);
	expect_rpc_error(post("{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"resources/list\"}", NULL), 200, -32601);
	expect_rpc_error(post("{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/call\"}", NULL), 200, -32602);
}

static void message_at_its_limit(void **state)
{
	char *message = malloc(LIMIT_MCP_BODY_BYTES + 1), *call_text = call_message("exit 0", "");
	size_t n = strlen(call_text);
	struct call c = {.method = "POST", .path = "/mcp", .body = message, .header = {JSON, BOTH, "Expect:"}};
	struct reply reply;

	(void)state;
	memset(message, ' ', LIMIT_MCP_BODY_BYTES + 1);
	memcpy(message + LIMIT_MCP_BODY_BYTES - n, call_text, n);
	c.body_len = LIMIT_MCP_BODY_BYTES;
	reply = call(rig, c);
	assert_int_equal(reply.status, 200);
	assert_false(is_error(&reply));
	reply_free(&reply);
	c.body_len++;
	expect_error(call(rig, c), 413, "too_large", NULL);
	free(call_text);
	free(message);
}

/* ---- calls ---- */

static void endings(void **state)
{
	static const struct {
		const char *code;
		size_t at;
		const char *words;
		int exit_code;
	} rows[] = {
	    {"exit 3", 0, "The code ended with exit code 3 and wrote nothing.\n", 3},
	    {"signal 11", 0, "The code was ended by SIGSEGV (exit code 139).\n", 139},
	    {"timeout", 1, "The code was stopped after 7 s, its deadline; timeout_s can make it longer.\n", -1},
	    {"memory", 0, "The code was stopped: memory limit of 512 MiB exceeded (exit code 137).\n", 137},
	    {"out 4194305", 1,
	     "The code was stopped: stdout limit of 4 MiB exceeded (exit code 137).\nOnly the first 4194304 of", 137},
	    {"partial no", 0, "stderr:\nno\ntimed out after 7s", -1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct reply reply = run(rows[i].code, ", \"timeout_s\": 7");

		assert_true(is_error(&reply));
		assert_int_equal(number_at(reply.json, "result.structuredContent.exit_code"), rows[i].exit_code);
		if (strncmp(block(&reply, rows[i].at), rows[i].words, strlen(rows[i].words)) != 0)
			fail_msg("%s: %s", rows[i].code, block(&reply, rows[i].at));
		reply_free(&reply);
	}
	assert_int_equal(rig->last_timeout_s, 7);
}

static void expect_failure(struct reply reply, const char *code, bool ran, const char *words)
{
	const json_t *meta = json_object_get(json_object_get(reply.json, "result"), "_meta"),
		     *error = json_object_get(meta, "weir/error");

	assert_true(is_error(&reply));
	assert_string_equal(text_at(error, "code"), code);
	assert_int_equal(json_is_true(json_object_get(error, "ran")), ran);
	assert_memory_equal(block(&reply, 0), words, strlen(words));
	reply_free(&reply);
}

/* Results, so that the model is told; the connection and the protocol are as well as before. */
static void failures_of_the_service(void **state)
{
	unsigned asked;

	(void)state;
	expect_failure(run("broken", ""), "sandbox_failed", false,
		       "sandbox failed at layer sandbox: a fault of ours\nNothing ran.\n");
	expect_failure(run("lost", ""), "sandbox_failed", true,
		       "the run was lost (sandbox): a fault of ours\nSome of the code may have run.\n");
	rig->grant = RIG_FAIL;
	expect_failure(run("echo", ""), "sandbox_failed", false, "sandbox failed at layer mounts: proc could not be mounted\n");
	rig->grant = RIG_GRANT;
	asked = rig->asked;
	expect_failure(run("echo", ", \"timeout_s\": 0"), "invalid_timeout", false, "timeout_s must be between 1 and 60\n");
	expect_failure(run("echo", ", \"session_id\": \"sandbox-a\""), "invalid_request", false, "at \"/session_id\": ");
	assert_int_equal(rig->asked, asked);
}

/* The project's other requests fill its quota: one more is told so, as a result. */
static void over_quota(void **state)
{
	enum { ALL = LIMIT_PROJECT_RUNNING + LIMIT_PROJECT_WAITING };
	unsigned asked = rig->asked;
	int fds[ALL];
	struct reply reply;

	(void)state;
	rig->grant = RIG_NEVER;
	for (int i = 0; i < ALL; i++) {
		char *request = raw_request("1.1", "echo", "");

		fds[i] = raw_connect(rig);
		raw_send(fds[i], request, strlen(request));
		free(request);
	}
	rig_await(&rig->asked, asked + LIMIT_PROJECT_RUNNING, 2000);
	usleep(300000); /* for the rest of them to be read */
	reply = run("echo", "");
	assert_int_equal(
	    number_at(json_object_get(json_object_get(json_object_get(reply.json, "result"), "_meta"), "weir/error"),
		      "retry_after_s"),
	    2);
	expect_failure(reply, "quota_exceeded", false, "project dev is over its quota of 256 waiting runs\nNothing ran.\n");
	for (int i = 0; i < ALL; i++)
		close(fds[i]);
	rig->grant = RIG_GRANT;
	for (int tries = 0; tries < 200; tries++) { /* until it has been seen that they are gone */
		reply = execute(rig, "exit 0");
		if (reply.status == 200)
			break;
		reply_free(&reply);
		usleep(20000);
	}
	assert_int_equal(reply.status, 200);
	reply_free(&reply);
}

static void what_goes_in(void **state)
{
	struct reply reply =
	    run("cat", ", \"stdin\": \"from stdin\", \"files\": [{\"path\": \"d/in.txt\", \"content\": \"x\"}]");

	(void)state;
	assert_string_equal(block(&reply, 0), "from stdin");
	assert_int_equal(json_array_size(json_object_get(
			     json_object_get(json_object_get(reply.json, "result"), "structuredContent"), "files")),
			 0);
	reply_free(&reply);
}

/* Both streams full, and files: each byte of output goes out twice, and none of it is held twice. */
static void long_answers(void **state)
{
	struct reply reply = run("file data.bin 8388608\nfile fake.png 100\nboth 4194304", "");
	const json_t *files =
	    json_object_get(json_object_get(json_object_get(reply.json, "result"), "structuredContent"), "files");

	(void)state;
	assert_int_equal(strlen(block(&reply, 0)), LIMIT_OUTPUT_BYTES);
	assert_int_equal(strlen(block(&reply, 1)), LIMIT_OUTPUT_BYTES + strlen("stderr:\n"));
	assert_int_equal(strlen(text_at(reply.json, "result.structuredContent.stderr")), LIMIT_OUTPUT_BYTES);
	assert_non_null(
	    strstr(block(&reply, 2), "Files left by the code: \"data.bin\" (8388608 bytes), \"fake.png\" (100 bytes)."));
	assert_int_equal(json_array_size(files), 2);
	assert_true(reply.body_len < 4 * LIMIT_OUTPUT_BYTES + 4096);
	reply_free(&reply);
}

static void hanging_up_cancels(void **state)
{
	unsigned started = rig->started, before = rig->killed_cancelled;
	char *message = call_message("hold", ""), *request;
	int fd = raw_connect(rig);

	(void)state;
	assert_true(asprintf(&request,
			     "POST /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " RIG_TOKEN "\r\n" JSON "\r\n" BOTH
			     "\r\nContent-Length: %zu\r\n\r\n%s",
			     strlen(message), message) > 0);
	raw_send(fd, request, strlen(request));
	rig_await(&rig->started, started + 1, 2000);
	close(fd);
	rig_await(&rig->killed_cancelled, before + 1, 2000);
	free(request);
	free(message);
}

/* One after another on one connection, as clients do: messages of every kind, and nothing of one is left in the next. */
static void one_connection(void **state)
{
	static const char *const bodies[] = {PING, "{\"jsonrpc\": \"2.0\", \"method\": \"notifications/initialized\"}", "[]",
					     "{\"jsonrpc\": \"2.0\", \"id\": 2, \"method\": \"tools/call\", \"params\": "
					     "{\"name\": \"run_python\", \"arguments\": "
					     "{\"code\": \"echo one\"}}}",
					     PING};
	static const char *const wanted[] = {"HTTP/1.1 200 OK", "HTTP/1.1 202 Accepted", "HTTP/1.1 400 Bad Request", "echo one",
					     "\"result\": {}}"};
	int fd = raw_connect(rig);
	char head[512], *text;

	(void)state;
	for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
		size_t n = (size_t)snprintf(head, sizeof head,
					    "POST /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " RIG_TOKEN "\r\n" JSON
					    "\r\n" BOTH "\r\nContent-Length: %zu\r\n\r\n",
					    strlen(bodies[i]));

		raw_send(fd, head, n);
		raw_send(fd, bodies[i], strlen(bodies[i]));
		text = raw_read(fd, 300);
		if (!strstr(text, wanted[i]))
			fail_msg("%s: %s", bodies[i], text);
		free(text);
	}
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_conversation),
	    cmocka_unit_test(newest_revision),
	    cmocka_unit_test(other_methods),
	    cmocka_unit_test(who_may),
	    cmocka_unit_test(media_types),
	    cmocka_unit_test(other_headers),
	    cmocka_unit_test(messages_that_are_none),
	    cmocka_unit_test(message_at_its_limit),
	    cmocka_unit_test(endings),
	    cmocka_unit_test(failures_of_the_service),
	    cmocka_unit_test(over_quota),
	    cmocka_unit_test(what_goes_in),
	    cmocka_unit_test(long_answers),
	    cmocka_unit_test(hanging_up_cancels),
	    cmocka_unit_test(one_connection),
	    cmocka_unit_test(ends_well),
	};

	return cmocka_run_group_tests(tests, begin, NULL);
}
