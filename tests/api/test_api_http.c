/* SPDX-License-Identifier: Apache-2.0 */
/* Routes, tokens, methods, framing: HTTP as such, against the real api process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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

static void expect_ok(struct reply reply)
{
	if (reply.status != 200)
		fail_msg("status %ld (curl %d): %s", reply.status, reply.error, reply.body ? reply.body : "");
	reply_free(&reply);
}

static void liveness_needs_no_token(void **state)
{
	(void)state;
	expect_ok(call(rig, (struct call){.method = "GET", .path = "/healthz", .token = ""}));
	expect_ok(call(rig, (struct call){.method = "GET", .path = "/healthz", .token = "wrong"}));
	expect_ok(call(rig, (struct call){.method = "GET", .path = "/readyz?verbose=1", .token = ""}));
}

static void readiness_follows_the_supervisor(void **state)
{
	struct call get = {.method = "GET", .path = "/readyz", .token = ""};
	struct rig *own = rig_start(false);

	(void)state;
	expect_error(call(own, get), 503, "not_ready", "the supervisor has not reported yet");
	rig_tell_state(own, false, "policy not verified: probe was not refused");
	usleep(100000);
	expect_error(call(own, get), 503, "not_ready", "policy not verified: probe was not refused");
	rig_tell_state(own, true, "");
	usleep(100000);
	expect_ok(call(own, get));
	own->hang_up_auditor = true;
	usleep(100000);
	expect_error(call(own, get), 503, "not_ready", "the auditor is gone");
	assert_int_equal(rig_stop(own), 0);
}

static void head_is_get_without_a_body(void **state)
{
	struct reply reply = call(rig, (struct call){.method = "HEAD", .path = "/healthz", .token = ""});

	(void)state;
	assert_int_equal(reply.status, 200);
	assert_int_equal(reply.body_len, 0);
	assert_non_null(strcasestr(reply.head, "\r\nContent-Length: "));
	reply_free(&reply);
	reply = call(rig, (struct call){.method = "HEAD", .path = "/v1/pool"});
	assert_int_equal(reply.status, 200);
	assert_int_equal(reply.body_len, 0);
	reply_free(&reply);
}

static void tokens(void **state)
{
	static const char *const paths[] = {"/v1/execute", "/v1/pool", "/v1/runs/sandbox-known.7/audit", "/nothing/here"};
	static const char *const headers[] = {"Authorization: Bearer",
					      "Authorization: Basic " RIG_TOKEN,
					      "Authorization: " RIG_TOKEN,
					      "X-Authorization: Bearer " RIG_TOKEN,
					      "Authorization: Bearer " RIG_TOKEN "x",
					      "Authorization: Bearer a, Bearer " RIG_TOKEN};

	(void)state;
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		expect_error(call(rig, (struct call){.method = "GET", .path = paths[i], .token = ""}), 401, "unauthorized",
			     "missing or invalid project token");
		expect_error(call(rig, (struct call){.method = "GET", .path = paths[i], .token = "wrong"}), 401, "unauthorized",
			     "missing or invalid project token");
	}
	for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
		expect_error(call(rig, (struct call){.method = "GET", .path = "/v1/pool", .token = "", .header = {headers[i]}}),
			     401, "unauthorized", NULL);
	/* Two of them, one right: which one counts is nobody's guess. */
	expect_error(call(rig, (struct call){.method = "GET", .path = "/v1/pool", .header = {"Authorization: Bearer wrong"}}),
		     401, "unauthorized", NULL);
	expect_error(call(rig, (struct call){.method = "GET",
					     .path = "/v1/pool",
					     .token = "wrong",
					     .header = {"Authorization: Bearer " RIG_TOKEN}}),
		     401, "unauthorized", NULL);
	/* Before the body is looked at, and before methods. */
	expect_error(call(rig, (struct call){.method = "POST", .path = "/v1/execute", .token = "", .body = "{nonsense"}), 401,
		     "unauthorized", NULL);
	expect_error(call(rig, (struct call){.method = "DELETE", .path = "/v1/execute", .token = ""}), 401, "unauthorized",
		     NULL);
	expect_ok(call(
	    rig,
	    (struct call){.method = "GET", .path = "/v1/pool", .token = "", .header = {"authorization: bearer " RIG_TOKEN}}));
}

static void unknown_paths(void **state)
{
	static const char *const paths[] = {"/",
					    "/v1",
					    "/v1/",
					    "/v1/execute/",
					    "//v1/execute",
					    "/v1/Execute",
					    "/v1/execut",
					    "/healthz/",
					    "/healthz%00",
					    "/%68ealthz",
					    "/v1/runs//audit",
					    "/v1/runs/a/b/audit",
					    "/v1/runs/../audit/x",
					    "/v1/runs/sandbox-x/audit/",
					    "/v1/runs/",
					    "/v1/runs/a/b",
					    "/v1/runs/SANDBOX",
					    "/v1/runs/SANDBOX/audit",
					    "/v1/runs/a%2Fb/audit",
					    "/v1/runs/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/audit",
					    "/v1/sessions/",
					    "/v1/sessions/a/b",
					    "/v1/session",
					    "/v1/limits/x",
					    "/openapi.yaml",
					    "/v1/call/",
					    "/v1/call/x",
					    "/v1/audit/",
					    "/v1/audit/x",
					    "/v1/audit/stream/",
					    "/metrics/"};

	(void)state;
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		expect_error(call(rig, (struct call){.method = "GET", .path = paths[i]}), 404, "not_found", "not found");
		expect_error(call(rig, (struct call){.method = "POST", .path = paths[i], .body = "{}"}), 404, "not_found",
			     NULL);
	}
}

/* What is not asked for is let pass while it is little; and a path may come with its origin. */
static void requests_with_too_much(void **state)
{
	static char body[LIMIT_SESSION_BODY_BYTES + 2];
	static const char get[] = "GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
	int fd = raw_connect(rig);
	char *text;

	(void)state;
	memset(body, ' ', sizeof body - 1);
	for (int over = 0; over < 2; over++)
		for (int chunked = 0; chunked < 2; chunked++) {
			struct reply reply = call(rig, (struct call){.method = "GET",
								     .path = "/v1/pool",
								     .body = body,
								     .body_len = (size_t)(LIMIT_SESSION_BODY_BYTES + over),
								     .chunked = chunked});

			if (over) {
				expect_error(reply, 413, "too_large", "this request takes no body");
				continue;
			}
			assert_int_equal(reply.status, 200);
			reply_free(&reply);
		}
	raw_send(fd, get, sizeof get - 1);
	text = raw_read(fd, 2000);
	assert_non_null(strstr(text, "HTTP/1.1 200 "));
	free(text);
	close(fd);
}

static void other_methods(void **state)
{
	static const struct {
		const char *method, *path, *allow;
	} rows[] = {
	    {"GET", "/v1/execute", "\r\nAllow: POST\r\n"},
	    {"HEAD", "/v1/execute", "\r\nAllow: POST\r\n"},
	    {"PUT", "/v1/execute", "\r\nAllow: POST\r\n"},
	    {"OPTIONS", "/v1/execute", "\r\nAllow: POST\r\n"},
	    {"GET", "/v1/call", "\r\nAllow: POST\r\n"},
	    {"POST", "/v1/pool", "\r\nAllow: GET, HEAD\r\n"},
	    {"DELETE", "/healthz", "\r\nAllow: GET, HEAD\r\n"},
	    {"BREW", "/readyz", "\r\nAllow: GET, HEAD\r\n"},
	    {"PATCH", "/v1/runs/x/audit", "\r\nAllow: GET, HEAD\r\n"},
	    {"POST", "/v1/runs/x", "\r\nAllow: GET, HEAD\r\n"},
	    {"PUT", "/v1/sessions", "\r\nAllow: POST, GET, HEAD\r\n"},
	    {"POST", "/v1/sessions/x", "\r\nAllow: GET, HEAD, DELETE\r\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct reply reply = call(rig, (struct call){.method = rows[i].method, .path = rows[i].path});

		if (!strcasestr(reply.head, rows[i].allow))
			fail_msg("%s %s: %s", rows[i].method, rows[i].path, reply.head);
		if (!strcmp(rows[i].method, "HEAD")) {
			assert_int_equal(reply.status, 405);
			reply_free(&reply);
		} else {
			expect_error(reply, 405, "method_not_allowed", NULL);
		}
	}
}

static void pool(void **state)
{
	struct reply reply = call(rig, (struct call){.method = "GET", .path = "/v1/pool"});

	(void)state;
	assert_string_equal(
	    reply.body,
	    "{\"size\": 3, \"warm\": 2, \"starting\": 1, \"in_use\": 4, \"waiting\": 5, \"served\": 6, "
	    "\"misses\": 7, \"wait_ms\": {\"count\": 0, \"p50\": null, \"p90\": null, \"p99\": null, \"max\": null}}\n");
	reply_free(&reply);
	for (int i = 0; i < 3; i++)
		expect_ok(execute(rig, "echo"));
	reply = call(rig, (struct call){.method = "GET", .path = "/v1/pool"});
	{
		static const char *const names[] = {"p50", "p90", "p99", "max"};
		const json_t *waits = json_object_get(reply.json, "wait_ms");
		double before = 0;

		assert_int_equal(number_at(waits, "count"), 3);
		for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
			double ms = json_number_value(json_object_get(waits, names[i]));

			assert_true(ms >= before && ms > 0 && ms < 5000);
			before = ms;
		}
	}
	reply_free(&reply);
}

static void audit(void **state)
{
	struct reply reply = call(rig, (struct call){.method = "GET", .path = "/v1/runs/sandbox-known.7/audit"});

	(void)state;
	assert_int_equal(reply.status, 200);
	assert_string_equal(text_at(reply.json, "run_id"), "sandbox-known.7");
	assert_string_equal(rig->last_project, ""); /* the token has the reviewer's scope */
	reply_free(&reply);
	expect_error(call(rig, (struct call){.method = "GET", .path = "/v1/runs/sandbox-other/audit"}), 404, "not_found",
		     "not found");
	reply = call(rig, (struct call){.method = "GET", .path = "/v1/runs/sandbox-big/audit"});
	assert_int_equal(reply.status, 200);
	assert_int_equal(reply.body_len, 200001); /* and a newline, as every answer ends */
	assert_int_equal(number_at(reply.json, "big"), 1);
	reply_free(&reply);
	rig->audit = RIG_ERROR;
	expect_error(call(rig, (struct call){.method = "GET", .path = "/v1/runs/sandbox-x/audit"}), 500, "audit_unavailable",
		     "the end of this run has not been recorded");
	rig->audit = RIG_ANSWER;
}

static void content_types(void **state)
{
	static const char *const good[] = {"Content-Type:", "Content-Type: application/json", "content-type: Application/JSON",
					   "Content-Type: application/json; charset=utf-8",
					   "Content-Type: application/json ;x=y"};
	static const char *const bad[] = {"Content-Type: text/plain",
					  "Content-Type: application/jsonx",
					  "Content-Type: application/x-www-form-urlencoded",
					  "Content-Type: application/json-patch+json",
					  "Content-Encoding: gzip",
					  "Content-Encoding: deflate, identity"};

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		expect_ok(call(
		    rig, (struct call){
			     .method = "POST", .path = "/v1/execute", .header = {good[i]}, .body = "{\"code\": \"exit 0\"}"}));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		expect_error(call(rig, (struct call){.method = "POST",
						     .path = "/v1/execute",
						     .header = {bad[i], "Content-Type: application/json"},
						     .body = "{\"code\": \"exit 0\"}"}),
			     415, "unsupported_media_type", NULL);
}

static void connections_are_kept(void **state)
{
	static const char get[] = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
	int fd = raw_connect(rig);

	(void)state;
	for (int i = 0; i < 5; i++) {
		char *text;

		raw_send(fd, get, sizeof get - 1);
		text = raw_read(fd, 150);
		assert_non_null(strstr(text, "HTTP/1.1 200 OK\r\n"));
		free(text);
	}
	close(fd);
}

/* A refusal does not cost the connection when its request was read to the end. */
static void a_refusal_keeps_the_connection(void **state)
{
	static const char bad[] = "POST /v1/execute HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345";
	int fd = raw_connect(rig);

	(void)state;
	for (int i = 0; i < 2; i++) {
		char *text;

		raw_send(fd, bad, sizeof bad - 1);
		text = raw_read(fd, 150);
		assert_non_null(strstr(text, "HTTP/1.1 401 "));
		free(text);
	}
	close(fd);
}

static void pipelined(void **state)
{
	char *run = raw_request("1.1", "sleep 100", ""), *echo = raw_request("1.1", "echo two", ""), *all, *text, *first,
	     *second;
	int fd = raw_connect(rig);

	(void)state;
	assert_true(asprintf(&all, "%s%sGET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", run, echo) > 0);
	raw_send(fd, all, strlen(all));
	text = raw_read(fd, 2000);
	first = strstr(text, "sandbox_id");
	assert_non_null(first);
	second = strstr(first, "echo two");
	assert_non_null(second);
	assert_non_null(strstr(second, "\"status\": \"ok\""));
	free(text);
	free(all);
	free(run);
	free(echo);
	close(fd);
}

static void http_1_0(void **state)
{
	char *request = raw_request("1.0", "echo old", ""), *text;
	int fd = raw_connect(rig);

	(void)state;
	raw_send(fd, request, strlen(request));
	text = raw_read(fd, 2000);
	assert_non_null(strstr(text, " 200 OK\r\n"));
	assert_non_null(strstr(text, "\"stdout\": \"echo old\""));
	free(text);
	free(request);
	close(fd);
}

static void ambiguous_framing(void **state)
{
	static const char head[] = "POST /v1/execute HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " RIG_TOKEN "\r\n";
	static const struct {
		const char *rest, *status; /* NULL: the library's own, 400 or a closed connection */
	} rows[] = {
	    {"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
	     "invalid_http"},
	    {"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x", "invalid_http"},
	    {"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", "invalid_http"},
	    {"Content-Length: -1\r\n\r\n", NULL},
	    {"Content-Length: 99999999999999999999999\r\n\r\n", NULL},
	    {"Content-Length: 2x\r\n\r\n{}", NULL},
	    {"Transfer-Encoding: chunked\r\n\r\nZZ\r\n", NULL},
	    {"Transfer-Encoding : chunked\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "invalid_http"},
	    {"Content-Length : 6\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "invalid_http"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int fd = raw_connect(rig);
		char *text, *end_of_first;

		raw_send(fd, head, sizeof head - 1);
		raw_send(fd, rows[i].rest, strlen(rows[i].rest));
		text = raw_read(fd, 3000);
		if (rows[i].status ? !strstr(text, rows[i].status) : *text && !strstr(text, "HTTP/1.1 4"))
			fail_msg("row %zu: %s", i, text);
		/* Nothing that came behind is taken for a request. */
		end_of_first = strstr(text, "HTTP/1.1 ");
		/* (The library repeats the head of an answer of its own. That is no second answer.) */
		if (strstr(text, " 200 ") || (rows[i].status && strstr(end_of_first + 1, "HTTP/1.1 ")))
			fail_msg("row %zu: %s", i, text);
		/* And the connection is over: the next byte is the end of stream. */
		assert_true(recv(fd, (char[1]){0}, 1, MSG_DONTWAIT) <= 0);
		free(text);
		close(fd);
	}
}

/* Deep, long and endless, but well-formed as far as it goes: told fast, and the next request is served. */
static void monstrous_bodies(void **state)
{
	size_t n = 1000000;
	char *body = malloc(n + 64);

	(void)state;
	for (int how = 0; how < 4; how++) {
		struct reply reply;

		memset(body, how == 1 ? '9' : '[', n + 63);
		body[n + 63] = 0;
		if (how == 1)
			memcpy(body, "{\"code\": \"x\", \"timeout_s\": ", 28);
		if (how == 2)
			memcpy(body, "{\"code\": \"x\", \"files\": ", 24);
		if (how == 3)
			for (size_t i = 0; i + 5 < n; i += 5)
				memcpy(body + i, "{\"a\":", 5);
		reply = call(rig, (struct call){.method = "POST", .path = "/v1/execute", .body = body});
		assert_true(reply.seconds < 1);
		expect_error(reply, 400, "invalid_request", NULL);
	}
	free(body);
	expect_ok(execute(rig, "echo"));
}

/* Leave to send is given to who may send, and asked-for refusals come before the body. */
static void expectations(void **state)
{
	static const struct {
		const char *token, *expect, *answer;
	} rows[] = {
	    {RIG_TOKEN, "100-continue", "HTTP/1.1 100 Continue\r\n\r\n"},
	    {RIG_TOKEN, "100-Continue", "HTTP/1.1 100 Continue\r\n\r\n"},
	    {"wrong", "100-continue", "HTTP/1.1 401 "},
	    {RIG_TOKEN, "a-miracle", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char request[256], *text;
		int fd = raw_connect(rig), n;

		n = snprintf(request, sizeof request,
			     "POST /v1/execute HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nExpect: %s\r\n"
			     "Connection: close\r\nContent-Length: 16\r\n\r\n",
			     rows[i].token, rows[i].expect);
		raw_send(fd, request, (size_t)n);
		text = raw_read(fd, 150);
		assert_memory_equal(text, rows[i].answer, strlen(rows[i].answer));
		assert_true(*rows[i].answer || !*text);
		free(text);
		if (i != 2) {
			raw_send(fd, "{\"code\": \"echo\"}", 16);
			text = raw_read(fd, 2000);
			assert_memory_equal(text, "HTTP/1.1 200 ", 13);
			free(text);
		}
		close(fd);
	}
}

/* However a body is cut into chunks, and whatever stands beside them, it is the same body. */
static void chunks(void **state)
{
	static const char head[] = "POST /v1/execute HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " RIG_TOKEN
				   "\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
	static const char *const bodies[] = {
	    "10\r\n{\"code\": \"echo\"}\r\n0\r\n\r\n",
	    "1\r\n{\r\n2\r\n\"c\r\n00d\r\node\": \"echo\"}\r\n0\r\n\r\n",
	    "10;name=value\r\n{\"code\": \"echo\"}\r\n0;x\r\n\r\n",
	    "10\r\n{\"code\": \"echo\"}\r\n0\r\nTrailer: ignored\r\n\r\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
		for (int slow = 0; slow < 2; slow++) {
			int fd = raw_connect(rig);
			char *text;

			raw_send(fd, head, sizeof head - 1);
			for (size_t at = 0; at < strlen(bodies[i]); at += slow ? 1 : strlen(bodies[i])) {
				raw_send(fd, bodies[i] + at, slow ? 1 : strlen(bodies[i]));
				if (slow && at % 8 == 0)
					usleep(1000);
			}
			text = raw_read(fd, 2000);
			if (!strstr(text, "\"stdout\": \"echo\""))
				fail_msg("body %zu: %s", i, text);
			free(text);
			close(fd);
		}
}

static void broken_requests(void **state)
{
	static const char *const rows[] = {"\r\n\r\n\r\n",
					   "GET\r\n\r\n",
					   "NONSENSE\r\n\r\n",
					   "GET / HTTP/9.9\r\nHost: x\r\n\r\n",
					   "\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
					   "GET /healthz HTTP/1.1\r\n\r\n" /* no Host */};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int fd = raw_connect(rig);
		char *text;

		raw_send(fd, rows[i], strlen(rows[i]));
		shutdown(fd, SHUT_WR);
		text = raw_read(fd, 2000);
		assert_null(strstr(text, " 200 "));
		free(text);
		close(fd);
	}
	expect_ok(call(rig, (struct call){.method = "GET", .path = "/healthz"}));
}

static void headers_at_their_limit(void **state)
{
	static const char head[] = "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ", tail[] = "\r\n\r\n";

	(void)state;
	for (int how = 0; how < 3; how++) {
		size_t size = how == 2 ? 100000 : (size_t)LIMIT_HEADER_BYTES + (how == 1);
		char *request = malloc(size), *text;
		int fd = raw_connect(rig);

		memset(request, 'a', size);
		memcpy(request, head, sizeof head - 1);
		memcpy(request + size - sizeof tail + 1, tail, sizeof tail - 1);
		(void)!send(fd, request, size, MSG_NOSIGNAL);
		text = raw_read(fd, how == 0 ? 150 : 2000);
		if (how == 0)
			assert_non_null(strstr(text, " 200 OK"));
		else if (how == 1)
			assert_non_null(
			    strstr(text, "request line and headers are 16385 bytes, over the limit of 16384 bytes"));
		else /* the library's own words, or a reset */
			assert_null(strstr(text, " 200 OK"));
		free(text);
		free(request);
		close(fd);
	}
}

/* What the process is after it has started: as another user, without a capability, and with few fds. */
static void confined(void **state)
{
	char path[64], line[256], fds[64];
	unsigned seen = 0;
	FILE *f;

	(void)state;
	expect_ok(call(rig, (struct call){.method = "GET", .path = "/healthz"}));
	snprintf(path, sizeof path, "/proc/%d/status", rig->api);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof line, f)) {
		unsigned long long value;
		unsigned uid;

		if (sscanf(line, "Uid: %u", &uid) == 1)
			seen += uid != 0;
		else if (sscanf(line, "CapInh: %llx", &value) == 1 || sscanf(line, "CapPrm: %llx", &value) == 1 ||
			 sscanf(line, "CapEff: %llx", &value) == 1 || sscanf(line, "CapAmb: %llx", &value) == 1 ||
			 (geteuid() == 0 && sscanf(line, "CapBnd: %llx", &value) == 1))
			assert_int_equal(value, 0);
		else if (sscanf(line, "NoNewPrivs: %llu", &value) == 1)
			seen += value == 1;
#ifndef __SANITIZE_ADDRESS__
		else if (sscanf(line, "Seccomp: %llu", &value) == 1)
			assert_int_equal(value, 2);
#endif
		else if (sscanf(line, "Groups: %63s", fds) == 1 && geteuid() == 0)
			fail_msg("supplementary groups: %s", line);
	}
	fclose(f);
	assert_int_equal(seen, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(liveness_needs_no_token),
	    cmocka_unit_test(readiness_follows_the_supervisor),
	    cmocka_unit_test(head_is_get_without_a_body),
	    cmocka_unit_test(tokens),
	    cmocka_unit_test(unknown_paths),
	    cmocka_unit_test(requests_with_too_much),
	    cmocka_unit_test(other_methods),
	    cmocka_unit_test(pool),
	    cmocka_unit_test(audit),
	    cmocka_unit_test(content_types),
	    cmocka_unit_test(connections_are_kept),
	    cmocka_unit_test(a_refusal_keeps_the_connection),
	    cmocka_unit_test(pipelined),
	    cmocka_unit_test(http_1_0),
	    cmocka_unit_test(ambiguous_framing),
	    cmocka_unit_test(monstrous_bodies),
	    cmocka_unit_test(expectations),
	    cmocka_unit_test(chunks),
	    cmocka_unit_test(broken_requests),
	    cmocka_unit_test(headers_at_their_limit),
	    cmocka_unit_test(confined),
	    cmocka_unit_test(ends_well),
	};

	return cmocka_run_group_tests_name("api_http", tests, begin, NULL);
}
