/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that hang up, half-close, crawl or crowd; and the end of the service, its supervisor and its auditor. */
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
#include <unistd.h>

#include <cmocka.h>

#include "client.h"
#include "core/clock.h"
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

/* Sends it and waits until its run goes on. Takes the request; returns the connection. */
static int start_request(struct rig *r, int fd, char *request)
{
	unsigned before = r->started;

	raw_send(fd, request, strlen(request));
	free(request);
	rig_await(&r->started, before + 1, 2000);
	return fd;
}

/* A connection with a run open on it. */
static int start_run_with(struct rig *r, const char *version, const char *code, const char *headers)
{
	return start_request(r, raw_connect(r), raw_request(version, code, headers));
}

static int start_run(struct rig *r, const char *version, const char *code)
{
	return start_run_with(r, version, code, "");
}

static void hanging_up_cancels(void **state)
{
	(void)state;
	for (int hard = 0; hard < 2; hard++) {
		unsigned before = rig->killed_cancelled;
		int fd = start_run(rig, "1.1", "hold");

		if (hard)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
		close(fd);
		rig_await(&rig->killed_cancelled, before + 1, 1000);
	}
	/* HTTP/1.0: a reset is noticed. */
	{
		unsigned before = rig->killed_cancelled;
		int fd = start_run(rig, "1.0", "hold");

		setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
		close(fd);
		rig_await(&rig->killed_cancelled, before + 1, 1000);
	}
}

/* A client that has only shut down its sending half gets its answer, over a second or more. */
static void half_closing_does_not(void **state)
{
	static const char *const versions[] = {"1.1", "1.0"};
	unsigned before = rig->killed_cancelled;
	int fds[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		fds[i] = start_run(rig, versions[i], "sleep 2500");
		shutdown(fds[i], SHUT_WR);
	}
	for (int i = 0; i < 2; i++) {
		char *text = raw_read(fds[i], 5000), *final = strstr(text, " 200 OK\r\n");

		assert_non_null(final);
		assert_non_null(strstr(final, "\"reason\": \"exit\""));
		/* Nothing before it but interim answers, and none of those in HTTP/1.0. */
		if (i == 1)
			assert_ptr_equal(text + strcspn(text, " "), final);
		else
			assert_memory_equal(text, "HTTP/1.1 100 Continue\r\n\r\n", 25);
		assert_int_equal(rig->killed_cancelled, before);
		free(text);
		close(fds[i]);
	}
}

/* Many whose answers come in one moment: none is taken for gone, whatever order they are served in. */
static void half_closed_together(void **state)
{
	int fds[16], n = sizeof fds / sizeof *fds;
	int busy = raw_connect(rig); /* one more connection, so that no other is ever the only or the oldest one */

	(void)state;
	for (int i = 0; i < n; i++) {
		fds[i] = start_run(rig, i % 2 ? "1.0" : "1.1", "sleep 300");
		shutdown(fds[i], SHUT_WR);
	}
	usleep(100000);
	kill(rig->api, SIGSTOP);
	usleep(400000);
	kill(rig->api, SIGCONT);
	for (int i = 0; i < n; i++) {
		char *text = raw_read(fds[i], 3000);

		assert_non_null(strstr(text, " 200 OK\r\n"));
		free(text);
		close(fds[i]);
	}
	close(busy);
}

/* The two together: it half-closes first and goes away for good later. */
static void half_closed_then_gone(void **state)
{
	unsigned before = rig->killed_cancelled;
	int fd = start_run(rig, "1.1", "hold");
	char *text;

	(void)state;
	shutdown(fd, SHUT_WR);
	/* Everything that came is read, or the kernel would tell of the close by itself. */
	text = raw_read(fd, 300);
	assert_string_equal(text, "HTTP/1.1 100 Continue\r\n\r\n");
	free(text);
	assert_int_equal(rig->killed_cancelled, before);
	close(fd);
	rig_await(&rig->killed_cancelled, before + 1, 5000);
}

static void hanging_up_while_waiting(void **state)
{
	char *request = raw_request("1.1", "echo", "");
	unsigned asked = rig->asked, withdrawn = rig->withdrawn;
	int fd = raw_connect(rig);

	(void)state;
	rig->grant = RIG_NEVER;
	raw_send(fd, request, strlen(request));
	rig_await(&rig->asked, asked + 1, 1000);
	close(fd);
	rig_await(&rig->withdrawn, withdrawn + 1, 1000);
	rig->grant = RIG_GRANT;
	free(request);
}

/* A client that leaves in the middle of its request costs nothing. */
static void leaving_midway(void **state)
{
	char *request = raw_request("1.1", "echo", "");
	unsigned asked = rig->asked;

	(void)state;
	for (size_t n = 1; n < strlen(request); n += 7) {
		int fd = raw_connect(rig);

		raw_send(fd, request, n);
		close(fd);
	}
	free(request);
	usleep(100000);
	assert_int_equal(rig->asked, asked);
}

/* An answer of 8 MiB to one who does not read holds up nobody else. */
static void a_slow_reader_holds_up_nobody(void **state)
{
	char *request = raw_request("1.1", "both 4000000", "");
	int fd = raw_connect(rig);
	size_t total = 0;
	char part[65536];
	ssize_t n;

	(void)state;
	raw_send(fd, request, strlen(request));
	usleep(300000);
	for (int i = 0; i < 20; i++) {
		struct reply reply = execute(rig, "echo");

		assert_int_equal(reply.status, 200);
		assert_true(reply.seconds < 1);
		reply_free(&reply);
	}
	shutdown(fd, SHUT_WR);
	while ((n = recv(fd, part, sizeof part, 0)) > 0)
		total += (size_t)n;
	assert_true(total > 8000000);
	free(request);
	close(fd);
}

struct tally {
	unsigned ok, quota, busy, other;
	double slowest;
};

static void count(void *ctx, struct reply *reply)
{
	struct tally *t = ctx;
	const char *code = reply->status == 200 ? "" : text_at(reply->json, "error.code");

	if (reply->status == 200) {
		t->ok++;
	} else if (reply->status == 429 && !strcmp(code, "quota_exceeded")) {
		t->quota++;
		assert_string_equal(text_at(reply->json, "error.message"), "project dev is over its quota of 256 waiting runs");
		assert_non_null(strcasestr(reply->head, "\r\nRetry-After: "));
	} else if (reply->status == 503 && !strcmp(code, "no_sandbox")) {
		t->busy++;
		assert_string_equal(text_at(reply->json, "error.message"), "no warm sandbox pod available, try again shortly");
		assert_non_null(strcasestr(reply->head, "\r\nRetry-After: "));
	} else {
		t->other++;
	}
	if (reply->seconds > t->slowest)
		t->slowest = reply->seconds;
}

/* 64 running and 256 waiting at once all get their answer; no more than 64 ever have a sandbox. */
static void quotas_at_their_limits(void **state)
{
	struct tally t = {0};
	struct rig *own = rig_start(true);
	int fds[LIMIT_PROJECT_RUNNING];

	(void)state;
	for (int i = 0; i < LIMIT_PROJECT_RUNNING; i++)
		fds[i] = start_run(own, "1.1", "sleep 1500");
	execute_many(own, "{\"code\": \"sleep 1\"}", LIMIT_PROJECT_WAITING + 1, count, &t);
	assert_int_equal(t.quota, 1);
	assert_int_equal(t.ok, LIMIT_PROJECT_WAITING);
	assert_int_equal(t.other + t.busy, 0);
	for (int i = 0; i < LIMIT_PROJECT_RUNNING; i++) {
		char *text = raw_read(fds[i], i ? 20 : 2000);

		assert_non_null(strstr(text, " 200 OK"));
		free(text);
		close(fds[i]);
	}
	assert_int_equal(rig_stop(own), 0);
}

/* What waits for its own session, or for a session of its own, waits as long, and a stream without a word has comments. */
struct patient {
	unsigned killed;
	int cell, second_cell, opening, stream, unread, stranger;
};

static void patient_start(struct patient *p)
{
	static const char slow[] = "POST /v1/execute HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
			  minute[] = ", \"timeout_s\": 60", events[] = "Accept: text/event-stream\r\n";
	struct reply reply = call(rig, (struct call){.method = "POST", .path = "/v1/sessions"});
	char more[128], *request;

	p->killed = rig->killed_cancelled;
	snprintf(more, sizeof more, ", \"session_id\": \"%s\"%s", text_at(reply.json, "session_id"), minute);
	reply_free(&reply);
	p->cell = start_request(rig, raw_connect(rig), raw_request_more("1.1", "hold", more, ""));
	p->second_cell = raw_connect(rig);
	request = raw_request_more("1.1", "hold", more, "Connection: close\r\n");
	raw_send(p->second_cell, request, strlen(request));
	free(request);
	p->stream = start_request(rig, raw_connect(rig), raw_request_more("1.1", "hold", minute, events));
	p->unread = start_request(rig, raw_connect_room(rig, 4096), raw_request_more("1.1", "stall 4000000", minute, events));
	p->stranger = raw_connect(rig);
	raw_send(p->stranger, slow, sizeof slow - 1);
}

static void patient_ask(struct patient *p)
{
	static const char post[] = "POST /v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " RIG_TOKEN
				   "\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

	p->opening = raw_connect(rig);
	raw_send(p->opening, post, sizeof post - 1);
}

static void patient_end(struct patient *p)
{
	char *text = raw_read(p->second_cell, 2000), *at;
	unsigned comments = 0;

	assert_non_null(strstr(text, "HTTP/1.1 409 "));
	assert_non_null(strstr(text, "\"code\": \"session_busy\""));
	assert_non_null(strstr(text, "\"ran\": false"));
	free(text);
	text = raw_read(p->opening, 2000);
	assert_non_null(strstr(text, "HTTP/1.1 503 "));
	assert_non_null(strcasestr(text, "\r\nRetry-After: "));
	assert_non_null(strstr(text, "\"message\": \"no warm sandbox pod available, try again shortly\""));
	free(text);
	text = raw_read(p->stream, 100);
	assert_non_null(strstr(text, "HTTP/1.1 200 "));
	for (at = text; (at = strstr(at, ": keep-alive\n\n")); at++)
		comments++;
	assert_in_range(comments, 2, 3);
	assert_null(strstr(text, "event:"));
	free(text);
	text = raw_read(p->stranger, 100);
	assert_non_null(strstr(text, "HTTP/1.1 408 "));
	free(text);
	assert_int_equal(recv(p->stranger, (char[1]){0}, 1, MSG_DONTWAIT), 0);
	close(p->second_cell);
	close(p->opening);
	close(p->stranger);
	close(p->cell);
	close(p->stream);
	/* Also the run of the one who has read nothing of 8 MB for as long as that. */
	rig_await(&rig->killed_cancelled, p->killed + 3, 5000);
	close(p->unread);
}

/* The wait limit, in the api's own line (beyond 64) as in the supervisor's; meanwhile, connections that say too little. */
static void half_a_minute(void **state)
{
	struct patient patient;
	static const char drip[] =
	    "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
	struct tally t = {0};
	unsigned withdrawn = rig->withdrawn;
	uint64_t started = clock_now_ns();
	int silent = raw_connect(rig), dripping = raw_connect(rig), kept = raw_connect(rig);
	pid_t child;
	char *text;

	(void)state;
	raw_send(kept, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 34);
	text = raw_read(kept, 200);
	assert_non_null(strstr(text, " 200 "));
	free(text);
	child = fork();
	if (child == 0) {
		for (size_t i = 0; i < sizeof drip - 1; i++) {
			(void)!send(dripping, drip + i, 1, MSG_NOSIGNAL);
			usleep(500000);
		}
		_exit(0);
	}
	patient_start(&patient);
	rig->grant = RIG_NEVER;
	patient_ask(&patient);
	execute_many(rig, "{\"code\": \"echo\"}", LIMIT_PROJECT_RUNNING + 6, count, &t);
	rig->grant = RIG_GRANT;
	patient_end(&patient);
	assert_int_equal(t.busy, LIMIT_PROJECT_RUNNING + 6);
	assert_in_range((int)t.slowest, 29, 32);
	rig_await(&rig->withdrawn, withdrawn + LIMIT_PROJECT_RUNNING - 3, 1000); /* three are running */
	/* All three are closed by now or in a moment, none has got an answer to what it has not asked. */
	for (int i = 0; i < 3; i++) {
		int fd = i == 0 ? silent : i == 1 ? dripping : kept;

		text = raw_read(fd, 4000);
		assert_string_equal(text, "");
		assert_true(recv(fd, (char[1]){0}, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET);
		free(text);
		close(fd);
	}
	assert_true(clock_now_ns() - started < 40 * SECOND_NS);
	kill(child, SIGKILL);
	/* And afterwards all is as before. */
	{
		struct reply reply = execute(rig, "echo");

		assert_int_equal(reply.status, 200);
		reply_free(&reply);
	}
}

/* However many connections say nothing, one that has something to say is heard at once. */
static void strangers_give_way(void **state)
{
	static int fds[1200];
	int n = sizeof fds / sizeof *fds;

	(void)state;
	for (int i = 0; i < n; i++) {
		fds[i] = raw_connect(rig);
		if (i % 100 == 99)
			usleep(5000);
	}
	for (int i = 0; i < 5; i++) {
		struct reply reply = execute(rig, "echo");

		assert_int_equal(reply.status, 200);
		assert_true(reply.seconds < 4);
		reply_free(&reply);
	}
	for (int i = 0; i < n; i++)
		close(fds[i]);
}

/* A body that has come as far as that, and not further. */
static int half_a_body(struct rig *r, const char *token, size_t all, size_t sent)
{
	char head[256], *body = calloc(1, sent);
	int fd = raw_connect(r), n;

	memset(body, ' ', sent);
	n = snprintf(head, sizeof head,
		     "POST /v1/execute HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %zu\r\n\r\n", token,
		     all);
	raw_send(fd, head, (size_t)n);
	raw_send(fd, body, sent);
	free(body);
	return fd;
}

/* Large requests that are not sent to their end take their project's share of memory, and small ones are always served. */
static void large_bodies_at_once(void **state)
{
	/* Room is made in powers of two: three times 16 MiB and once 8, which leaves less than the 16 for one more. */
	static const size_t sizes[] = {(8 << 20) + 65536, (8 << 20) + 65536, (8 << 20) + 65536, (4 << 20) + 65536};
	size_t over = (8 << 20) + 1;
	int fds[4], fd;
	char *text;

	(void)state;
	for (int i = 0; i < 4; i++)
		fds[i] = half_a_body(rig, RIG_TOKEN, LIMIT_BODY_BYTES, sizes[i]);
	usleep(200000);
	fd = half_a_body(rig, RIG_TOKEN, over, over);
	text = raw_read(fd, 1000);
	if (!strstr(text, "HTTP/1.1 429 ") ||
	    !strstr(text, "project dev is over its quota of 67108864 bytes of waiting requests"))
		fail_msg("%s", text);
	free(text);
	close(fd);
	for (int i = 0; i < 3; i++) {
		struct reply reply = execute(rig, "echo small");

		assert_int_equal(reply.status, 200);
		reply_free(&reply);
	}
	for (int i = 0; i < 4; i++)
		close(fds[i]);
	usleep(100000);
	fd = half_a_body(rig, RIG_TOKEN, over, over);
	text = raw_read(fd, 1000);
	assert_non_null(strstr(text, "HTTP/1.1 400 ")); /* nothing but blanks */
	free(text);
	close(fd);
}

/* The same holds for requests that have come and wait: those that wait for a session, and those that wait for a sandbox. */
static void large_requests_that_wait(void **state)
{
	struct rig *own = rig_start(true);
	char *input = malloc(4 << 20), *more;
	int fds[40], n = 0, refused = 0;

	(void)state;
	memset(input, 'x', (4 << 20) - 1);
	input[(4 << 20) - 1] = 0;
	assert_true(asprintf(&more, ", \"stdin\": \"%s\"", input) > 0);
	own->grant = RIG_NEVER;
	for (; n < 20; n++) {
		char *request = raw_request_more("1.1", "hold", more, "");

		fds[n] = raw_connect(own);
		raw_send(fds[n], request, strlen(request));
		free(request);
	}
	for (int i = 0; i < n; i++) {
		char *text = raw_read(fds[i], i ? 20 : 500);

		refused += strstr(text, "HTTP/1.1 429 ") != NULL;
		free(text);
	}
	assert_in_range(refused, 4, 8); /* 4 MiB each, and more while they arrive */
	for (int i = 0; i < n; i++)
		close(fds[i]);
	free(input);
	free(more);
	assert_int_equal(rig_stop(own), 0);
}

/* With few file descriptors there are fewer sandboxes: one too many is refused, and the service goes on. */
static void few_open_files(void **state)
{
	struct rig *own = rig_start_with(&(struct rig_options){.ready = true, .files = 256});
	struct reply reply;
	int fds[64], n = 0;

	(void)state;
	for (; n < 20; n++)
		fds[n] = start_run(own, "1.1", "hold");
	for (int i = 0; i < 4; i++) {
		reply = call(own, (struct call){.method = "POST", .path = "/v1/sessions"});
		assert_int_equal(reply.status, 201);
		reply_free(&reply);
	}
	for (int i = 0; i < 3; i++) {
		expect_error(execute(own, "echo"), 503, "overloaded",
			     "too many sandboxes at once for the service's limit on open files");
		expect_error(call(own, (struct call){.method = "POST", .path = "/v1/sessions"}), 503, "overloaded", NULL);
	}
	for (int i = 0; i < n; i++)
		close(fds[i]);
	rig_await(&own->killed_cancelled, (unsigned)n, 2000);
	for (int i = 0; i < 200; i++) {
		bool served;

		reply = execute(own, "echo");
		served = reply.status == 200;
		reply_free(&reply);
		if (served)
			break;
		usleep(10000);
	}
	reply = execute(own, "echo");
	assert_int_equal(reply.status, 200);
	reply_free(&reply);
	assert_int_equal(rig_stop(own), 0);
}

/* ---- the end of things ---- */

static void supervisor_gone(void **state)
{
	struct rig *own = rig_start(true);
	int fd = start_run(own, "1.1", "hold");
	char *text;

	(void)state;
	own->hang_up_supervisor = true;
	text = raw_read(fd, 3000);
	assert_non_null(strstr(text, "HTTP/1.1 500 "));
	assert_non_null(strstr(text, "\"message\": \"the run was lost (supervisor): it ended while the request was open\""));
	assert_non_null(strstr(text, "\"ran\": true"));
	free(text);
	close(fd);
	assert_int_equal(rig_wait(own), 1);
}

static void supervisor_talks_nonsense(void **state)
{
	struct rig *own = rig_start(true);

	(void)state;
	own->talk_nonsense = true;
	assert_int_equal(rig_wait(own), 1);
}

/* Without an auditor runs go on, and their answers say what is not known. */
static void auditor_gone(void **state)
{
	struct rig *own = rig_start(true);
	struct reply reply;

	(void)state;
	own->audit = RIG_SILENT;
	own->hang_up_auditor = true;
	usleep(100000);
	reply = execute(own, "echo");
	assert_int_equal(reply.status, 200);
	assert_int_equal(number_at(reply.json, "egress.lost"), 2);
	reply_free(&reply);
	expect_error(call(own, (struct call){.method = "GET", .path = "/v1/runs/sandbox-x/audit"}), 500, "audit_unavailable",
		     "the auditor is gone");
	assert_int_equal(rig_stop(own), 0);
}

/* A stream ends in its last event, which says how. */
static void check_stream(int fd, const char *text, const char *last)
{
	struct heard h = hear(fd, 9000);

	assert_string_equal(h.text[0], text);
	assert_int_equal(h.count, 2);
	assert_true(h.whole && !h.cut);
	if (!strcmp(last, "result"))
		assert_string_equal(text_at(last_event(&h, last), "termination.reason"), "cancelled");
	else
		assert_true(json_is_true(json_object_get(json_object_get(last_event(&h, last), "error"), "ran")));
	heard_free(&h);
	close(fd);
}

/* SIGTERM: what is quick ends by itself, what is slow is cancelled, all within seconds. */
static void check_quick_and_slow(int quick, int slow)
{
	char *text = raw_read(quick, 3000);

	assert_non_null(strstr(text, "\"reason\": \"exit\""));
	assert_non_null(strcasestr(text, "Connection: close"));
	free(text);
	text = raw_read(slow, 9000);
	assert_non_null(strstr(text, "\"reason\": \"cancelled\""));
	free(text);
	close(quick);
	close(slow);
}

/* What waits for a sandbox is sent away: in our own line at once, in the supervisor's when the drain is over. */
static void check_line(const int *fds, int count)
{
	for (int i = 0; i < count; i++) {
		char *text = raw_read(fds[i], 7000);

		assert_non_null(strstr(text, "HTTP/1.1 503 "));
		assert_non_null(strstr(text, "\"code\": \"stopping\""));
		assert_non_null(strstr(text, "\"ran\": false"));
		free(text);
		close(fds[i]);
	}
}

/* Three services at once, since most of an end is waiting. The third one's supervisor answers nothing any more. */
static void orderly_ends(void **state)
{
	struct rig *runs = rig_start(true), *line = rig_start(true), *deaf = rig_start(true);
	int quick = start_run(runs, "1.1", "sleep 1000"), slow = start_run(runs, "1.1", "hold"), idle = raw_connect(runs);
	int lost = start_run(deaf, "1.1", "hold");
	int stream = start_run_with(runs, "1.1", "say 0 o61 hold", "Accept: text/event-stream\r\n");
	int lost_stream = start_run_with(deaf, "1.1", "say 0 o62 hold", "Accept: text/event-stream\r\n");
	char *request = raw_request("1.1", "echo", "");
	int fds[LIMIT_PROJECT_RUNNING + 1];
	int n = LIMIT_PROJECT_RUNNING + 1;
	uint64_t started;

	(void)state;
	line->grant = RIG_NEVER;
	for (int i = 0; i < n; i++) {
		fds[i] = raw_connect(line);
		raw_send(fds[i], request, strlen(request));
	}
	rig_await(&line->asked, LIMIT_PROJECT_RUNNING, 2000);
	usleep(100000);
	deaf->deaf = true;
	usleep(100000);
	started = clock_now_ns();
	kill(runs->api, SIGTERM);
	kill(line->api, SIGTERM);
	kill(deaf->api, SIGTERM);
	check_quick_and_slow(quick, slow);
	check_line(fds, n);
	check_stream(stream, "a", "result");
	assert_int_equal(rig_wait(runs), 0);
	assert_int_equal(rig_wait(line), 0);
	assert_true(clock_now_ns() - started < 7 * SECOND_NS);
	check_stream(lost_stream, "b", "error");
	assert_int_equal(rig_wait(deaf), 0);
	assert_true(clock_now_ns() - started < 10 * SECOND_NS);
	free(request);
	close(idle);
	close(lost);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(hanging_up_cancels),
	    cmocka_unit_test(half_closing_does_not),
	    cmocka_unit_test(half_closed_together),
	    cmocka_unit_test(half_closed_then_gone),
	    cmocka_unit_test(hanging_up_while_waiting),
	    cmocka_unit_test(leaving_midway),
	    cmocka_unit_test(a_slow_reader_holds_up_nobody),
	    cmocka_unit_test(quotas_at_their_limits),
	    cmocka_unit_test(large_bodies_at_once),
	    cmocka_unit_test(large_requests_that_wait),
	    cmocka_unit_test(strangers_give_way),
	    cmocka_unit_test(few_open_files),
	    cmocka_unit_test(half_a_minute),
	    cmocka_unit_test(supervisor_gone),
	    cmocka_unit_test(supervisor_talks_nonsense),
	    cmocka_unit_test(auditor_gone),
	    cmocka_unit_test(orderly_ends),
	    cmocka_unit_test(ends_well),
	};

	return cmocka_run_group_tests_name("api_clients", tests, begin, NULL);
}
