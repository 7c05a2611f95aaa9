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

static int end(void **state)
{
	(void)state;
	return rig_stop(rig);
}

/* A connection with a run open on it. */
static int start_run(struct rig *r, const char *version, const char *code)
{
	char *request = raw_request(version, code, "");
	unsigned before = r->started;
	int fd = raw_connect(r);

	raw_send(fd, request, strlen(request));
	free(request);
	rig_await(&r->started, before + 1, 2000);
	return fd;
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

/* The wait limit, in the api's own line (beyond 64) as in the supervisor's; meanwhile, connections that say too little. */
static void half_a_minute(void **state)
{
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
	rig->grant = RIG_NEVER;
	execute_many(rig, "{\"code\": \"echo\"}", LIMIT_PROJECT_RUNNING + 6, count, &t);
	rig->grant = RIG_GRANT;
	assert_int_equal(t.busy, LIMIT_PROJECT_RUNNING + 6);
	assert_in_range((int)t.slowest, 29, 32);
	rig_await(&rig->withdrawn, withdrawn + LIMIT_PROJECT_RUNNING, 1000);
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
	unsigned at_once = 0;

	for (int i = 0; i < count; i++) {
		char *text = raw_read(fds[i], 7000);

		assert_non_null(strstr(text, "\"ran\": false"));
		at_once += strstr(text, "\"code\": \"stopping\"") != NULL;
		free(text);
		close(fds[i]);
	}
	assert_int_equal(at_once, 1);
}

/* Three services at once, since most of an end is waiting. The third one's supervisor answers nothing any more. */
static void orderly_ends(void **state)
{
	struct rig *runs = rig_start(true), *line = rig_start(true), *deaf = rig_start(true);
	int quick = start_run(runs, "1.1", "sleep 1000"), slow = start_run(runs, "1.1", "hold"), idle = raw_connect(runs);
	int lost = start_run(deaf, "1.1", "hold");
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
	deaf->deaf = true;
	usleep(200000);
	started = clock_now_ns();
	kill(runs->api, SIGTERM);
	kill(line->api, SIGTERM);
	kill(deaf->api, SIGTERM);
	check_quick_and_slow(quick, slow);
	check_line(fds, n);
	assert_int_equal(rig_wait(runs), 0);
	assert_int_equal(rig_wait(line), 0);
	assert_true(clock_now_ns() - started < 7 * SECOND_NS);
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
	    cmocka_unit_test(half_a_minute),
	    cmocka_unit_test(supervisor_gone),
	    cmocka_unit_test(supervisor_talks_nonsense),
	    cmocka_unit_test(auditor_gone),
	    cmocka_unit_test(orderly_ends),
	};

	return cmocka_run_group_tests_name("api_clients", tests, begin, end);
}
