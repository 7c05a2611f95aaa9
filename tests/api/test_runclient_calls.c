/* SPDX-License-Identifier: Apache-2.0 */
/* Tool calls: a third pipe, a longer wait, other caps, and no files. */
#include "runclient_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* The rest of an ended call: the auditor is asked, the collector is not. */
static void finish_call(void)
{
	struct query q = asked_auditor();

	collector_not_asked();
	auditor_answers(q.req);
	heard_nothing();
}

static void a_call_from_end_to_end(void **state)
{
	struct request_header h;
	struct seen seen;
	char text[4096];
	struct ask a;
	struct box b;
	size_t len;

	(void)state;
	start_call(&seen, "p1", "helper");
	a = heard(ASK_SANDBOX);
	assert_int_equal(a.session, 0);
	assert_string_equal(a.project, "p1");
	assert_string_equal(a.agent, "helper");
	runclient_cancel(rc, seen.req);
	step();
	assert_int_equal(seen.result.outcome, RUN_GONE);
	heard(ASK_KILL);

	start_call(&seen, "p1", "helper");
	b = grant_call("sandbox-tool1");
	assert_int_equal(seen.granted, 1);
	len = take_request(&b, text, sizeof text);
	memcpy(&h, text, sizeof h);
	assert_int_equal(h.flags, REQUEST_CALL);
	assert_int_equal(h.file_count + h.files_len + h.env_len, 0);
	assert_int_equal(len, sizeof h + 8 + 8);
	assert_memory_equal(text + sizeof h, "app:tool{\"a\": 1}", 16);
	assert_int_equal(heard(ASK_START).timeout_s, 120);
	say(&b, 0, "out");
	assert_int_equal(write(b.result, "frame", 5), 5);
	step();
	assert_int_equal(seen.progress_len, 3); /* a result is no output */
	ends(&b, 0, true);
	finish_call();
	assert_int_equal(seen.done, 1);
	assert_int_equal(seen.result.outcome, RUN_DONE);
	assert_true(seen.result.call && seen.result.result_ended);
	assert_string_equal(seen.out[RUN_STDOUT], "out");
	assert_string_equal(seen.out[RUN_RESULT], "frame");
	assert_false(seen.result.truncated);
	assert_null(seen.result.files.problem);
	assert_int_equal(seen.result.grant.load_us, 2000);
	box_close(&b);
}

/* Whoever writes too much there is stopped by it, and nothing else is. */
static void a_result_without_end(void **state)
{
	static char junk[65536];
	size_t written = 0;
	struct seen seen;
	struct box b;

	(void)state;
	start_call(&seen, "p1", "helper");
	b = grant_call("sandbox-tool1");
	takes_request(&b);
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(fcntl(b.result, F_SETFL, O_NONBLOCK), 0);
	for (;;) {
		ssize_t n = write(b.result, junk, sizeof junk);

		if (n < 0 && errno == EPIPE)
			break;
		if (n > 0)
			written += (size_t)n;
		assert_true(written < (16u << 20));
		step();
	}
	assert_in_range(written, RUN_RESULT_BYTES, RUN_RESULT_BYTES + (1 << 20));
	heard_nothing();
	assert_int_equal(seen.done, 0);
	ends(&b, 0, true);
	finish_call();
	assert_int_equal(seen.result.end.end, RUN_END_EXIT);
	assert_int_equal(seen.result.out_len[RUN_RESULT], RUN_RESULT_BYTES);
	assert_false(seen.result.result_ended);
	assert_false(seen.result.truncated);
	box_close(&b);
}

static void a_result_pipe_that_stays_open(void **state)
{
	struct seen seen;
	struct box b;
	struct tell t;

	(void)state;
	start_call(&seen, "p1", "helper");
	b = grant_call("sandbox-tool1");
	takes_request(&b);
	assert_int_equal(write(b.result, "frame", 5), 5);
	t = ending(&b, 0, true);
	tell(&t, NULL, 0);
	close(b.out);
	close(b.err);
	b.out = b.err = dup(b.request); /* for box_close() */
	b.err = dup(b.request);
	step();
	pass_ms(4900);
	assert_int_equal(seen.done, 0);
	pass_ms(200);
	finish_call();
	assert_int_equal(seen.done, 1);
	assert_string_equal(seen.out[RUN_RESULT], "frame");
	assert_false(seen.result.result_ended);
	box_close(&b);
}

/* From when it is asked for, whatever the quota has made of its time before; and a second sandbox has no more time. */
static void how_long_a_sandbox_is_waited_for(void **state)
{
	struct seen seen;
	struct tell t;
	struct box b;

	(void)state;
	start_call(&seen, "p1", "helper");
	heard(ASK_SANDBOX);
	pass_ms((LIMIT_CALL_READY_S + 4) * 1000ull);
	assert_int_equal(seen.done, 0);
	pass_ms(1100);
	assert_int_equal(seen.result.outcome, RUN_BUSY);
	assert_true(seen.result.call);
	heard(ASK_KILL);

	start_call(&seen, "p1", "helper");
	pass_ms(60000);
	b = grant_call("sandbox-tool1");
	takes_request(&b);
	t = ending(&b, 0, true);
	t.end.end = RUN_END_BROKEN;
	t.end.ran = 0;
	assert_int_equal(write(b.result, "old", 3), 3);
	box_dies(&b);
	tell(&t, NULL, 0);
	step();
	assert_int_equal(seen.done, 0);
	assert_string_equal(heard(ASK_SANDBOX).agent, "helper");
	pass_ms((LIMIT_CALL_READY_S + 4 - 60) * 1000ull);
	assert_int_equal(seen.done, 0);
	pass_ms(1100);
	assert_int_equal(seen.result.outcome, RUN_BUSY);
	assert_int_equal(seen.result.out_len[RUN_RESULT], 0);
	heard(ASK_KILL);
	box_close(&b);
}

static void a_dead_sandbox_is_replaced(void **state)
{
	struct seen seen;
	struct box b, second;
	struct tell t;

	(void)state;
	start_call(&seen, "p1", "helper");
	b = grant_call("sandbox-tool1");
	takes_request(&b);
	assert_int_equal(write(b.result, "old", 3), 3);
	step();
	t = ending(&b, 0, true);
	t.end.end = RUN_END_BROKEN;
	t.end.ran = 0;
	box_dies(&b);
	tell(&t, NULL, 0);
	step();
	second = grant_call("sandbox-tool2");
	takes_request(&second);
	assert_int_equal(write(second.result, "new", 3), 3);
	ends(&second, 0, true);
	finish_call();
	assert_int_equal(seen.granted, 1);
	assert_string_equal(seen.result.grant.sandbox_id, "sandbox-tool2");
	assert_string_equal(seen.out[RUN_RESULT], "new");
	box_close(&b);
	box_close(&second);
}

static void output_over_a_calls_cap(void **state)
{
	static char junk[65536];
	struct seen seen;
	struct tell t;
	struct box b;

	(void)state;
	for (int over = 0; over < 2; over++) {
		start_call(&seen, "p1", "helper");
		b = grant_call("sandbox-tool1");
		takes_request(&b);
		for (int i = 0; i < LIMIT_CALL_OUTPUT_BYTES / (int)sizeof junk; i++) {
			assert_int_equal(write(b.err, junk, sizeof junk), (int)sizeof junk);
			step();
		}
		if (over) {
			say(&b, 1, "x");
			step();
			assert_int_equal(heard(ASK_KILL).reason, RUN_END_OUTPUT);
		}
		t = ending(&b, 0, true);
		if (over)
			t.end.end = RUN_END_OUTPUT;
		box_dies(&b);
		tell(&t, NULL, 0);
		step();
		finish_call();
		assert_int_equal(seen.result.out_len[RUN_STDERR], LIMIT_CALL_OUTPUT_BYTES);
		assert_int_equal(seen.result.truncated, over);
		assert_string_equal(seen.result.end.detail, over ? "stderr limit of 1 MiB exceeded" : "");
		box_close(&b);
	}
}

static void memory_of_a_call(void **state)
{
	struct seen seen;
	struct tell t;
	struct box b;

	(void)state;
	start_call(&seen, "p1", "helper");
	b = grant_call("sandbox-tool1");
	takes_request(&b);
	t = ending(&b, 0, true);
	t.end.end = RUN_END_MEMORY;
	box_dies(&b);
	tell(&t, NULL, 0);
	step();
	finish_call();
	assert_string_equal(seen.result.end.detail, "memory limit of 1024 MiB exceeded");
	box_close(&b);
}

static void what_the_supervisor_says_instead(void **state)
{
	struct seen seen;

	(void)state;
	start_call(&seen, "p1", "helper");
	{
		struct tell t = {.type = TELL_FAIL, .req = heard(ASK_SANDBOX).req, .fail = {.code = ENOENT, .layer = "agent"}};

		tell(&t, NULL, 0);
	}
	step();
	assert_int_equal(seen.result.outcome, RUN_FAILED);
	assert_int_equal(seen.result.fail.code, ENOENT);
	assert_string_equal(seen.result.fail.layer, "agent");
	heard_nothing();
}

/* A grant has as many descriptors as what was asked for takes. */
static void grants_that_do_not_fit(void **state)
{
	for (int call = 0; call < 2; call++) {
		int pipes[2], fds[5];
		struct seen seen;
		struct tell t = {.type = TELL_GRANT, .grant = {.sandbox_id = "sandbox-tool1"}};

		if (call) {
			teardown(state);
			setup(state);
		}
		if (call)
			start_call(&seen, "p1", "helper");
		else
			start_run(&seen, "p1");
		t.req = heard(ASK_SANDBOX).req;
		assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
		for (int i = 0; i < 5; i++)
			fds[i] = pipes[0];
		tell(&t, fds, call ? 4 : 5);
		assert_int_equal(runclient_step(rc), -EPIPE);
		assert_int_equal(seen.result.outcome, RUN_FAILED);
		assert_string_equal(seen.result.fail.layer, "supervisor");
		close(pipes[0]);
		close(pipes[1]);
	}
}

static void a_grant_without_room(void **state)
{
	struct rlimit rl, none;
	struct seen seen;
	struct tell t = {.type = TELL_GRANT, .grant = {.sandbox_id = "sandbox-tool1"}};
	int fds[5] = {sup, sup, sup, sup, sup};

	(void)state;
	start_call(&seen, "p1", "helper");
	t.req = heard(ASK_SANDBOX).req;
	tell(&t, fds, 5);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &rl), 0);
	none = (struct rlimit){3, rl.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	step();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &rl), 0);
	assert_int_equal(seen.result.outcome, RUN_FAILED);
	assert_string_equal(seen.result.fail.layer, "api");
	heard(ASK_KILL);
}

static void requests_that_are_none(void **state)
{
	static const char long_name[IPC_PROJECT_MAX + 1] = "a123456789a123456789a123456789a123456789a123456789a123456789abcd";
	const struct payload_parts call_parts = {.call = true, .code = "t", .code_len = 1, .stdin_text = "{}", .stdin_len = 2};
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	const struct {
		const char *agent;
		struct session *session;
		bool call;
	} rows[] = {
	    {NULL, NULL, true}, {"helper", NULL, false}, {"", NULL, true}, {long_name, NULL, true}, {"helper", o.s, true},
	};
	uint64_t req;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct seen seen = {0};
		struct payload p;
		struct run_request request = {.project = "p1",
					      .caller = "token:tok-rig",
					      .agent = rows[i].agent,
					      .session = rows[i].session,
					      .payload = &p,
					      .timeout_s = 7,
					      .done = on_done,
					      .ctx = &seen};

		if (rows[i].call)
			assert_int_equal(payload_make(&p, &call_parts), 0);
		else
			p = payload_of("code", false);
		assert_int_equal(runclient_start(rc, &request, &req), -EINVAL);
		assert_null(p.data);
		assert_int_equal(seen.done, 0);
	}
	heard_nothing();
	box_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_call_from_end_to_end),
	    TEST(a_result_without_end),
	    TEST(a_result_pipe_that_stays_open),
	    TEST(how_long_a_sandbox_is_waited_for),
	    TEST(a_dead_sandbox_is_replaced),
	    TEST(output_over_a_calls_cap),
	    TEST(memory_of_a_call),
	    TEST(what_the_supervisor_says_instead),
	    TEST(grants_that_do_not_fit),
	    TEST(a_grant_without_room),
	    TEST(requests_that_are_none),
	};

	return RUN_TESTS("runclient calls", tests);
}
