/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/sessions, and the cells of a session: one at a time, the others in the order in which they came. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
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

/* Polls until *counter == want. */
static void settle(_Atomic unsigned *counter, unsigned want)
{
	for (int i = 0; i < 2000 && *counter != want; i++)
		usleep(1000);
	assert_int_equal(*counter, want);
}

static void open_one(struct rig *r, char id[64])
{
	struct reply reply = call(r, (struct call){.method = "POST", .path = "/v1/sessions"});

	if (reply.status != 201)
		fail_msg("status %ld: %s", reply.status, reply.body);
	snprintf(id, 64, "%s", text_at(reply.json, "session_id"));
	reply_free(&reply);
}

static struct reply on_session(struct rig *r, const char *method, const char *id)
{
	char path[128];

	snprintf(path, sizeof path, "/v1/sessions/%s", id);
	return call(r, (struct call){.method = method, .path = path});
}

static void close_one(struct rig *r, const char *id)
{
	struct reply reply = on_session(r, "DELETE", id);

	if (reply.status != 200)
		fail_msg("DELETE %s: %ld", id, reply.status);
	assert_string_equal(text_at(reply.json, "state"), "ended");
	reply_free(&reply);
}

static struct reply cell(struct rig *r, const char *id, const char *code)
{
	char more[128], *body;
	struct reply reply;

	snprintf(more, sizeof more, ", \"session_id\": \"%s\"", id);
	body = execute_body(code, strlen(code), more);
	reply = call(r, (struct call){.method = "POST", .path = "/v1/execute", .body = body});
	free(body);
	return reply;
}

/* A connection that has sent a cell, and closes after its answer. */
static int send_cell(struct rig *r, const char *id, const char *code, const char *headers)
{
	char more[128], all[256], *request;
	int fd = raw_connect(r);

	snprintf(more, sizeof more, ", \"session_id\": \"%s\"", id);
	snprintf(all, sizeof all, "Connection: close\r\n%s", headers);
	request = raw_request_more("1.1", code, more, all);
	raw_send(fd, request, strlen(request));
	free(request);
	return fd;
}

/* Sends it and knows that the service has it. */
static int queue_cell(struct rig *r, const char *id, const char *code)
{
	int fd = send_cell(r, id, code, "");
	struct reply reply;

	usleep(20000);
	reply = call(r, (struct call){.method = "GET", .path = "/healthz"});
	assert_int_equal(reply.status, 200);
	reply_free(&reply);
	return fd;
}

static struct heard answer(int fd)
{
	struct heard h = hear(fd, 5000);

	close(fd);
	return h;
}

static void expect_cell(int fd, const char *out, const char *run_id)
{
	struct heard h = answer(fd);

	if (h.status != 200)
		fail_msg("status %ld instead of %s", h.status, out);
	assert_string_equal(text_at(h.plain, "stdout"), out);
	assert_string_equal(text_at(h.plain, "run_id"), run_id);
	heard_free(&h);
}

static void expect_refusal(int fd, long status, const char *code)
{
	struct heard h = answer(fd);

	assert_int_equal(h.status, status);
	assert_string_equal(text_at(h.plain, "error.code"), code);
	assert_true(json_is_false(json_object_get(json_object_get(h.plain, "error"), "ran")));
	heard_free(&h);
}

static void expect_time(const json_t *json, const char *name, time_t want)
{
	struct tm tm = {0};
	const char *end = strptime(text_at(json, name), "%Y-%m-%dT%H:%M:%SZ", &tm);
	time_t got = timegm(&tm);

	if (!end || *end || got < want - 5 || got > want + 5)
		fail_msg("%s is %s", name, text_at(json, name));
}

static void a_life(void **state)
{
	static const char *const names[] = {"session_id", "sandbox_id", "state",   "python",	    "cells",
					    "created",	  "last_used",	"expires", "idle_timeout_s"};
	struct reply reply =
	    call(rig, (struct call){.method = "POST", .path = "/v1/sessions", .body = "{\"language\": \"python\"}"});
	char id[64], location[128];

	(void)state;
	assert_int_equal(reply.status, 201);
	assert_int_equal(json_object_size(reply.json), sizeof names / sizeof *names);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		assert_non_null(json_object_get(reply.json, names[i]));
	snprintf(id, sizeof id, "%s", text_at(reply.json, "session_id"));
	snprintf(location, sizeof location, "\r\nLocation: /v1/sessions/%s\r\n", id);
	assert_non_null(strcasestr(reply.head, location));
	assert_string_equal(text_at(reply.json, "sandbox_id"), id);
	assert_string_equal(text_at(reply.json, "state"), "idle");
	assert_string_equal(text_at(reply.json, "python"), "3.12.1");
	assert_int_equal(number_at(reply.json, "cells"), 0);
	assert_int_equal(number_at(reply.json, "idle_timeout_s"), LIMIT_SESSION_IDLE_S);
	expect_time(reply.json, "created", time(NULL));
	expect_time(reply.json, "last_used", time(NULL));
	expect_time(reply.json, "expires", time(NULL) + LIMIT_SESSION_LIFE_S);
	reply_free(&reply);

	for (int n = 1; n <= 3; n++) {
		char run_id[80];

		reply = cell(rig, id, "echo cell");
		assert_int_equal(reply.status, 200);
		snprintf(run_id, sizeof run_id, "%s.%d", id, n);
		assert_string_equal(text_at(reply.json, "run_id"), run_id);
		assert_string_equal(text_at(reply.json, "sandbox_id"), id);
		assert_true(json_is_false(json_object_get(reply.json, "session_ended")));
		assert_int_equal(rig->last_timeout_s, LIMIT_TIMEOUT_DEFAULT_S);
		reply_free(&reply);
	}
	reply = on_session(rig, "GET", id);
	assert_int_equal(number_at(reply.json, "cells"), 3);
	assert_string_equal(text_at(reply.json, "state"), "idle");
	reply_free(&reply);
	reply = call(rig, (struct call){.method = "GET", .path = "/v1/sessions"});
	assert_int_equal(json_object_size(reply.json), 1);
	assert_int_equal(json_array_size(json_object_get(reply.json, "sessions")), 1);
	assert_string_equal(text_at(json_array_get(json_object_get(reply.json, "sessions"), 0), "session_id"), id);
	reply_free(&reply);

	close_one(rig, id);
	settle(&rig->sessions, 0);
	expect_error(on_session(rig, "GET", id), 404, "not_found", "not found");
	expect_error(on_session(rig, "DELETE", id), 404, "not_found", "not found");
	expect_error(cell(rig, id, "echo"), 404, "not_found", "not found");
	expect_error(cell(rig, "sandbox-neverwas", "echo"), 404, "not_found", "not found");
	reply = call(rig, (struct call){.method = "GET", .path = "/v1/sessions"});
	assert_string_equal(reply.body, "{\"sessions\": []}\n");
	reply_free(&reply);
}

static void openings_refused(void **state)
{
	(void)state;
	expect_error(call(rig, (struct call){.method = "POST", .path = "/v1/sessions", .body = "{\"language\": \"ruby\"}"}),
		     400, "unsupported_language", "unsupported language \"ruby\"");
	expect_error(call(rig, (struct call){.method = "POST", .path = "/v1/sessions", .body = "[]"}), 400, "invalid_request",
		     NULL);
	expect_error(call(rig, (struct call){.method = "POST", .path = "/v1/sessions", .body = "{\"x\": 1}"}), 400,
		     "invalid_request", NULL);
	rig->grant = RIG_FAIL;
	expect_error(call(rig, (struct call){.method = "POST", .path = "/v1/sessions"}), 500, "sandbox_failed",
		     "sandbox failed at layer mounts: proc could not be mounted");
	rig->grant = RIG_GRANT;
}

/* A cell's limit is higher than a single run's. */
static void deadlines_of_cells(void **state)
{
	char id[64], more[128], *body;

	(void)state;
	open_one(rig, id);
	snprintf(more, sizeof more, ", \"session_id\": \"%s\", \"timeout_s\": %d", id, LIMIT_CELL_TIMEOUT_MAX_S);
	body = execute_body("exit 0", 6, more);
	{
		struct reply reply = call(rig, (struct call){.method = "POST", .path = "/v1/execute", .body = body});

		assert_int_equal(reply.status, 200);
		assert_int_equal(rig->last_timeout_s, LIMIT_CELL_TIMEOUT_MAX_S);
		reply_free(&reply);
	}
	free(body);
	snprintf(more, sizeof more, ", \"session_id\": \"%s\", \"timeout_s\": %d", id, LIMIT_CELL_TIMEOUT_MAX_S + 1);
	body = execute_body("exit 0", 6, more);
	expect_error(call(rig, (struct call){.method = "POST", .path = "/v1/execute", .body = body}), 400, "invalid_timeout",
		     "timeout_s must be between 1 and 120");
	free(body);
	close_one(rig, id);
}

static void cells_take_turns(void **state)
{
	char id[64], run_id[80];
	int fds[12], n = sizeof fds / sizeof *fds;
	unsigned before = rig->cells;
	struct reply reply;

	(void)state;
	open_one(rig, id);
	fds[0] = send_cell(rig, id, "sleep 500", "");
	settle(&rig->cells, before + 1);
	reply = on_session(rig, "GET", id);
	assert_string_equal(text_at(reply.json, "state"), "busy");
	reply_free(&reply);
	for (int i = 1; i < n; i++) {
		char code[16];

		snprintf(code, sizeof code, "echo %d", i);
		fds[i] = queue_cell(rig, id, code);
	}
	for (int i = 0; i < n; i++) {
		char out[16] = "";

		if (i)
			snprintf(out, sizeof out, "echo %d", i);
		snprintf(run_id, sizeof run_id, "%s.%d", id, i + 1);
		expect_cell(fds[i], out, run_id);
	}
	close_one(rig, id);
}

/* Who hangs up in the line leaves it; the others move up. Who hangs up in a cell ends the cell, not the session. */
static void hanging_up(void **state)
{
	unsigned killed = rig->killed_cancelled, cells = rig->cells;
	char id[64], run_id[80];
	int fds[4];

	(void)state;
	open_one(rig, id);
	fds[0] = send_cell(rig, id, "hold", "");
	rig_await(&rig->cells, cells + 1, 1000);
	for (int i = 1; i < 4; i++)
		fds[i] = queue_cell(rig, id, i == 1 ? "echo gone" : i == 2 ? "echo stays" : "echo last");
	close(fds[1]);
	usleep(50000);
	assert_int_equal(rig->cells, cells + 1);
	close(fds[0]);
	rig_await(&rig->killed_cancelled, killed + 1, 1000);
	snprintf(run_id, sizeof run_id, "%s.2", id);
	expect_cell(fds[2], "echo stays", run_id);
	snprintf(run_id, sizeof run_id, "%s.3", id);
	expect_cell(fds[3], "echo last", run_id);
	assert_int_equal(rig->cells, cells + 3);
	close_one(rig, id);
}

/* A session that ends takes its line with it: deleted, by its cell, by a cell that can't be interrupted, while it was idle. */
static void endings_dismiss_the_line(void **state)
{
	static const char *const codes[] = {"hold", "sleep 200", "stubborn", "after"};
	char other[64], run_id[80];
	unsigned before = rig->cells;
	int busy, waits;

	(void)state;
	/* A line of another session, which all this is nothing to. */
	open_one(rig, other);
	busy = send_cell(rig, other, "sleep 2500", "");
	settle(&rig->cells, before + 1);
	waits = queue_cell(rig, other, "echo patient");
	for (int how = 0; how < 4; how++) {
		unsigned cells = rig->cells;
		char id[64];
		int first, second, third;

		open_one(rig, id);
		if (how == 3) { /* the one after has been told to start when the end comes */
			first = send_cell(rig, id, "sleep 200", "");
			rig_await(&rig->cells, cells + 1, 1000);
			second = queue_cell(rig, id, "after");
			third = queue_cell(rig, id, "echo");
			for (int i = 0; i < 2; i++) {
				struct heard h = answer(i ? second : first);

				assert_int_equal(h.status, 200);
				heard_free(&h);
			}
			expect_refusal(third, 404, "not_found");
			settle(&rig->sessions, 1);
			continue;
		}
		first = send_cell(rig, id, codes[how], "");
		rig_await(&rig->cells, cells + 1, 1000);
		second = queue_cell(rig, id, how == 1 ? "die" : "echo");
		third = queue_cell(rig, id, "echo");
		if (how == 0) {
			struct heard h;

			close_one(rig, id);
			h = answer(first);
			assert_string_equal(text_at(h.plain, "termination.reason"), "cancelled");
			assert_true(json_is_true(json_object_get(h.plain, "session_ended")));
			heard_free(&h);
		} else if (how == 1) {
			struct heard h = answer(first);

			assert_true(json_is_false(json_object_get(h.plain, "session_ended")));
			heard_free(&h);
			h = answer(second);
			assert_int_equal(number_at(h.plain, "exit_code"), 3);
			assert_true(json_is_true(json_object_get(h.plain, "session_ended")));
			heard_free(&h);
		} else {
			close(first);
		}
		if (how != 1)
			expect_refusal(second, 404, "not_found");
		expect_refusal(third, 404, "not_found");
		settle(&rig->sessions, 1);
		expect_error(cell(rig, id, "echo"), 404, "not_found", NULL);
	}
	expect_cell(busy, "", strcat(strcpy(run_id, other), ".1"));
	expect_cell(waits, "echo patient", strcat(strcpy(run_id, other), ".2"));
	close_one(rig, other);
	settle(&rig->sessions, 0);
	/* While nobody looked. */
	{
		char id[64];

		open_one(rig, id);
		rig->end_sessions = true;
		settle(&rig->sessions, 0);
		expect_error(cell(rig, id, "echo"), 404, "not_found", NULL);
		expect_error(on_session(rig, "GET", id), 404, "not_found", NULL);
	}
}

static void one_session_over_the_limit(void **state)
{
	char ids[LIMIT_SESSIONS][64];

	(void)state;
	for (int i = 0; i < LIMIT_SESSIONS; i++)
		open_one(rig, ids[i]);
	expect_error(call(rig, (struct call){.method = "POST", .path = "/v1/sessions"}), 429, "quota_exceeded",
		     "project dev is over its quota of 32 sessions");
	close_one(rig, ids[7]);
	open_one(rig, ids[7]);
	{
		struct reply reply = call(rig, (struct call){.method = "GET", .path = "/v1/sessions"});

		assert_int_equal(json_array_size(json_object_get(reply.json, "sessions")), LIMIT_SESSIONS);
		reply_free(&reply);
	}
	for (int i = 0; i < LIMIT_SESSIONS; i++)
		close_one(rig, ids[i]);
	settle(&rig->sessions, 0);
}

/* Nobody is left with a session that nobody knows. */
static void hanging_up_while_opening(void **state)
{
	static const char post[] =
	    "POST /v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " RIG_TOKEN "\r\nContent-Length: 0\r\n\r\n";
	unsigned asked = rig->asked;
	int fd = raw_connect(rig);
	struct reply reply;

	(void)state;
	rig->grant = RIG_NEVER;
	raw_send(fd, post, sizeof post - 1);
	rig_await(&rig->asked, asked + 1, 1000);
	close(fd);
	usleep(50000);
	rig->grant = RIG_GRANT;
	reply = call(rig, (struct call){.method = "GET", .path = "/v1/sessions"});
	assert_string_equal(reply.body, "{\"sessions\": []}\n");
	reply_free(&reply);
	settle(&rig->sessions, 0);
	/* Its place is free again. */
	one_session_over_the_limit(NULL);
}

struct tally {
	unsigned ok, quota, other;
};

static void count(void *ctx, struct reply *reply)
{
	struct tally *t = ctx;

	if (reply->status == 200)
		t->ok++;
	else if (reply->status == 429 &&
		 !strcmp(text_at(reply->json, "error.message"), "project dev is over its quota of 256 waiting runs"))
		t->quota++;
	else
		t->other++;
}

/* A cell that waits has one of its project's waiting places, a cell that runs one of those of its runs. */
static void quotas_count_cells(void **state)
{
	struct rig *own = rig_start(true);
	int fds[LIMIT_PROJECT_RUNNING], first, waiting;
	struct tally t = {0};
	struct reply reply;
	char id[64], run_id[80], body[128];

	(void)state;
	open_one(own, id);
	for (int i = 0; i < LIMIT_PROJECT_RUNNING; i++) {
		char *request = raw_request("1.1", "hold", "");

		fds[i] = raw_connect(own);
		raw_send(fds[i], request, strlen(request));
		free(request);
	}
	rig_await(&own->started, LIMIT_PROJECT_RUNNING, 3000);
	/* The session is idle, and its cell waits all the same, and is counted among those that wait. */
	first = queue_cell(own, id, "echo never");
	waiting = queue_cell(own, id, "echo at last");
	close(first); /* the next is the first, and asks in its place */
	usleep(50000);
	assert_int_equal(own->cells, 0);
	reply = call(own, (struct call){.method = "GET", .path = "/v1/pool"});
	assert_int_equal(number_at(reply.json, "waiting"), 5 + 1);
	assert_int_equal(number_at(reply.json, "wait_ms.count"), LIMIT_PROJECT_RUNNING + 1);
	reply_free(&reply);
	close(fds[0]);
	snprintf(run_id, sizeof run_id, "%s.1", id);
	expect_cell(waiting, "echo at last", run_id);
	reply = call(own, (struct call){.method = "GET", .path = "/v1/pool"});
	assert_int_equal(number_at(reply.json, "waiting"), 5);
	assert_int_equal(number_at(reply.json, "wait_ms.count"), LIMIT_PROJECT_RUNNING + 1); /* a cell waits for no sandbox */
	reply_free(&reply);
	/* A running cell is one of the 64. */
	waiting = send_cell(own, id, "sleep 1500", "");
	rig_await(&own->cells, 2, 1000);
	snprintf(body, sizeof body, "{\"code\": \"echo\", \"session_id\": \"%s\"}", id);
	execute_many(own, body, LIMIT_PROJECT_WAITING + 1, count, &t);
	assert_int_equal(t.quota, 1);
	assert_int_equal(t.ok, LIMIT_PROJECT_WAITING);
	snprintf(run_id, sizeof run_id, "%s.2", id);
	expect_cell(waiting, "", run_id);
	for (int i = 1; i < LIMIT_PROJECT_RUNNING; i++)
		close(fds[i]);
	assert_int_equal(rig_stop(own), 0);
}

static void cells_as_events(void **state)
{
	unsigned killed = rig->killed_cancelled, cells = rig->cells;
	char id[64], run_id[80];
	struct heard h;
	int fd;

	(void)state;
	open_one(rig, id);
	for (int i = 1; i <= 2; i++) {
		h = answer(send_cell(rig, id, "say 5 o61 e62 o63", "Accept: text/event-stream\r\n"));
		assert_string_equal(h.text[0], "ac");
		assert_string_equal(h.text[1], "b");
		snprintf(run_id, sizeof run_id, "%s.%d", id, i);
		assert_string_equal(text_at(last_event(&h, "result"), "run_id"), run_id);
		heard_free(&h);
	}
	fd = send_cell(rig, id, "say 1 o61 hold", "Accept: text/event-stream\r\n");
	rig_await(&rig->cells, cells + 3, 1000);
	usleep(50000);
	close(fd);
	rig_await(&rig->killed_cancelled, killed + 1, 1000);
	h = answer(send_cell(rig, id, "echo alive", "Accept: text/event-stream\r\n"));
	assert_string_equal(h.text[0], "echo alive");
	heard_free(&h);
	/* One that waits and is dismissed has begun nothing. */
	fd = send_cell(rig, id, "hold", "");
	rig_await(&rig->cells, cells + 5, 1000);
	{
		int waits = send_cell(rig, id, "echo", "Accept: text/event-stream\r\n");

		usleep(50000);
		close_one(rig, id);
		expect_refusal(waits, 404, "not_found");
	}
	h = answer(fd);
	heard_free(&h);
	settle(&rig->sessions, 0);
}

/* A session that is being opened when the service stops is not waited for. */
static void the_end_while_opening(void **state)
{
	static const char post[] =
	    "POST /v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " RIG_TOKEN "\r\nContent-Length: 0\r\n\r\n";
	struct rig *own = rig_start(true);
	int fd = raw_connect(own);

	(void)state;
	own->grant = RIG_NEVER;
	raw_send(fd, post, sizeof post - 1);
	rig_await(&own->asked, 1, 1000);
	kill(own->api, SIGTERM);
	expect_refusal(fd, 503, "stopping");
	assert_int_equal(rig_wait(own), 0);
}

/* The end of the service is the end of its sessions; cells that wait are told so. */
static void the_end_of_the_service(void **state)
{
	struct rig *own = rig_start(true);
	char idle[64], busy[64];
	int fd, waits;

	(void)state;
	open_one(own, idle);
	open_one(own, busy);
	fd = send_cell(own, busy, "sleep 500", "");
	rig_await(&own->cells, 1, 1000);
	waits = queue_cell(own, busy, "echo");
	kill(own->api, SIGTERM);
	expect_refusal(waits, 503, "stopping");
	{
		struct heard h = answer(fd);

		assert_string_equal(text_at(h.plain, "termination.reason"), "exit");
		heard_free(&h);
	}
	rig_await(&own->closed, 2, 1000);
	assert_int_equal(rig_wait(own), 0);
}

/* Sessions of every ending, again and again: nothing stays behind. */
static void nothing_piles_up(void **state)
{
	static const char *const codes[] = {"echo a", "exit 1", "timeout", "raw", "out 100000"};

	(void)state;
	for (int i = 0; i < 60; i++) {
		char id[64];
		int fds[3];

		open_one(rig, id);
		for (int k = 0; k < 3; k++)
			fds[k] = send_cell(rig, id, codes[(i + k) % 5], k == 1 ? "Accept: text/event-stream\r\n" : "");
		for (int k = 0; k < 3; k++) {
			if (i % 3 != 1)
				free(raw_read(fds[k], 3000));
			close(fds[k]);
		}
		close_one(rig, id);
	}
	settle(&rig->sessions, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_life),
	    cmocka_unit_test(openings_refused),
	    cmocka_unit_test(deadlines_of_cells),
	    cmocka_unit_test(cells_take_turns),
	    cmocka_unit_test(hanging_up),
	    cmocka_unit_test(endings_dismiss_the_line),
	    cmocka_unit_test(one_session_over_the_limit),
	    cmocka_unit_test(hanging_up_while_opening),
	    cmocka_unit_test(quotas_count_cells),
	    cmocka_unit_test(cells_as_events),
	    cmocka_unit_test(the_end_while_opening),
	    cmocka_unit_test(the_end_of_the_service),
	    cmocka_unit_test(nothing_piles_up),
	    cmocka_unit_test(ends_well),
	};

	return cmocka_run_group_tests_name("api_sessions", tests, begin, NULL);
}
