/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions and their cells; and, with every state open, the end of the supervisor and of the client. */
#include "runclient_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- sessions: opening ---- */

static void opening_a_session(void **state)
{
	struct opened o, second;
	struct box b = open_session(&o, "p1", "sandbox-sess1"), b2;
	time_t now = time(NULL);

	(void)state;
	assert_string_equal(o.s->id, "sandbox-sess1");
	assert_string_equal(o.s->project, "p1");
	assert_string_equal(o.s->python, "3.12.1");
	assert_int_equal(o.s->state, SESSION_IDLE);
	assert_int_equal(o.s->cells, 0);
	assert_in_range(o.s->created_s, now - 5, now);
	assert_null(o.s->owner);
	assert_ptr_equal(runclient_session_find(rc, "sandbox-sess1", "p1"), o.s);
	assert_null(runclient_session_find(rc, "sandbox-sess1", "p2"));
	assert_null(runclient_session_find(rc, "sandbox-sess", "p1"));
	b2 = open_session(&second, "p2", "sandbox-sess2");
	assert_ptr_equal(runclient_session_next(rc, NULL), second.s);
	assert_ptr_equal(runclient_session_next(rc, second.s), o.s);
	assert_null(runclient_session_next(rc, o.s));
	assert_int_equal(runclient_session_count(rc, "p1"), 1);
	assert_int_equal(idle_calls + gone_calls, 0);
	/* What it costs to wait is nothing: no deadline of the client's ends it. */
	pass_ms(3600 * 1000);
	assert_ptr_equal(runclient_session_find(rc, "sandbox-sess1", "p1"), o.s);
	heard_nothing();
	box_close(&b);
	box_close(&b2);
}

static void sessions_that_do_not_open(void **state)
{
	struct tell t = {.type = TELL_FAIL, .fail = {.layer = "mounts", .text = "no proc"}};
	struct opened o = {0};
	struct box b;

	(void)state;
	assert_int_equal(try_open(&o, "p1"), 0);
	t.req = heard(ASK_SANDBOX).req;
	assert_null(runclient_session_next(rc, NULL));
	assert_int_equal(runclient_session_count(rc, "p1"), 1);
	tell(&t, NULL, 0);
	step();
	assert_int_equal(o.calls, 1);
	assert_int_equal(o.outcome, RUN_FAILED);
	assert_string_equal(o.fail.layer, "mounts");
	heard_nothing();

	assert_int_equal(try_open(&o, "p1"), 0);
	heard(ASK_SANDBOX);
	pass_ms(LIMIT_POOL_WAIT_S * 1000 + 100);
	assert_int_equal(o.calls, 2);
	assert_int_equal(o.outcome, RUN_BUSY);
	assert_int_equal(heard(ASK_CLOSE).req, o.req);

	assert_int_equal(try_open(&o, "p1"), 0);
	heard(ASK_SANDBOX);
	runclient_cancel(rc, o.req);
	assert_int_equal(o.calls, 2); /* not before the step */
	step();
	assert_int_equal(o.calls, 3);
	assert_int_equal(o.outcome, RUN_GONE);
	assert_int_equal(heard(ASK_CLOSE).req, o.req);
	/* A grant that crossed it leaves nothing open. */
	b = grant_to(o.req, true, "sandbox-late1");
	assert_int_equal(recv(b.request, (char[1]){0}, 1, MSG_DONTWAIT), 0);
	box_close(&b);

	/* Cancelled and granted in one step. */
	assert_int_equal(try_open(&o, "p1"), 0);
	heard(ASK_SANDBOX);
	runclient_cancel(rc, o.req);
	b = grant_to(o.req, true, "sandbox-late2");
	assert_int_equal(o.calls, 4);
	assert_int_equal(o.outcome, RUN_GONE);
	assert_int_equal(heard(ASK_CLOSE).req, o.req);
	heard_nothing();
	box_close(&b);
	assert_int_equal(runclient_session_count(rc, "p1"), 0);
	assert_int_equal(idle_calls + gone_calls, 0); /* none was ever open */
}

static void as_many_as_a_project_may_have(void **state)
{
	struct opened o[LIMIT_SESSIONS], more = {0};
	struct box b[LIMIT_SESSIONS];
	char id[32];

	(void)state;
	for (int i = 0; i < LIMIT_SESSIONS; i++) {
		snprintf(id, sizeof id, "sandbox-%05d", i);
		b[i] = open_session(&o[i], "p1", id);
	}
	assert_int_equal(try_open(&more, "p1"), -EDQUOT);
	heard_nothing();
	assert_int_equal(try_open(&more, "p2"), 0);
	heard(ASK_SANDBOX);
	/* One that is being closed makes room. */
	runclient_session_close(rc, o[7].s);
	heard(ASK_CLOSE);
	assert_int_equal(try_open(&more, "p1"), 0);
	for (int i = 0; i < LIMIT_SESSIONS; i++)
		box_close(&b[i]);
}

static void as_many_as_there_may_be(void **state)
{
	struct opened *o = calloc(LIMIT_SESSIONS_ALL + 1, sizeof *o);
	char project[IPC_PROJECT_MAX];

	(void)state;
	assert_non_null(o);
	for (int i = 0; i < LIMIT_SESSIONS_ALL; i++) {
		snprintf(project, sizeof project, "p%d", i / LIMIT_SESSIONS);
		assert_int_equal(try_open(&o[i], project), 0);
		heard(ASK_SANDBOX);
	}
	assert_int_equal(try_open(&o[LIMIT_SESSIONS_ALL], "another"), -EAGAIN);
	heard_nothing();
	runclient_cancel(rc, o[0].req);
	step();
	heard(ASK_CLOSE);
	assert_int_equal(try_open(&o[LIMIT_SESSIONS_ALL], "another"), 0);
	heard(ASK_SANDBOX);
	/* What is still being opened is told of its end by the one who stops, into what is freed below. */
	teardown(state);
	setup(state);
	free(o);
}

/* ---- sessions: cells ---- */

static void cells_one_after_the_other(void **state)
{
	struct seen seen, second = {0};
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct payload expected = payload_of("first", true);
	struct query q;
	struct job j;
	struct ask a;
	char text[4096];

	(void)state;
	start_cell(&seen, o.s, "first");
	assert_int_equal(o.s->state, SESSION_BUSY);
	assert_int_equal(seen.granted, 0); /* callbacks come from the step alone */
	assert_int_equal(try_start(&second, "p1", o.s, "x"), -EBUSY);
	step();
	assert_int_equal(seen.granted, 1);
	assert_int_equal(take_request(&b, text, sizeof text), expected.len);
	assert_memory_equal(text, expected.data, expected.len);
	a = heard(ASK_START);
	assert_int_equal(a.req, o.req);
	assert_int_equal(a.timeout_s, 7);
	say(&b, 0, "out");
	say(&b, 1, "err");
	ends(&b, 1, false);
	heard_nothing(); /* it stays frozen until its files have been read */
	j = asked_collector();
	assert_int_equal(j.c.have_manifest, 0);
	assert_int_equal(j.c.want_manifest, 1);
	assert_int_equal(j.c.digest_count, 1);
	assert_memory_equal(j.c.digests, expected.digests, sizeof *expected.digests);
	collector_answers(j.c.req, "one", "manifest 1");
	job_close(&j);
	q = asked_auditor();
	assert_string_equal(q.run_id, "sandbox-sess1.1");
	/* And no longer, whatever the auditor does. */
	assert_int_equal(heard(ASK_COLLECTED).req, o.req);
	assert_int_equal(seen.done, 0);
	assert_int_equal(o.s->state, SESSION_BUSY);
	auditor_answers(q.req);
	assert_int_equal(seen.done, 1);
	assert_int_equal(seen.result.outcome, RUN_DONE);
	assert_true(seen.result.session);
	assert_int_equal(seen.result.end.over, 0);
	assert_string_equal(seen.result.grant.sandbox_id, "sandbox-sess1");
	assert_string_equal(seen.result.grant.run_id, "sandbox-sess1.1");
	assert_string_equal(seen.result.grant.python, "3.12.1");
	assert_string_equal(seen.out[0], "out");
	assert_string_equal(seen.out[1], "err");
	assert_string_equal(seen.files, "0 one 7, ");
	assert_int_equal(o.s->state, SESSION_IDLE);
	assert_int_equal(o.s->cells, 1);
	assert_int_equal(idle_calls, 1);
	assert_ptr_equal(last_idle, o.s);

	/* What is written while no cell runs is the next one's, and wakes nobody before. */
	say(&b, 0, "between ");
	step();
	start_cell(&second, o.s, "second");
	step();
	takes_request(&b);
	say(&b, 0, "cells");
	ends(&b, 2, false);
	j = asked_collector();
	assert_int_equal(j.c.have_manifest, 1);
	assert_int_equal(pread(j.manifest, text, sizeof text, 0), 10);
	assert_memory_equal(text, "manifest 1", 10);
	collector_answers(j.c.req, "two", "manifest 2");
	job_close(&j);
	assert_string_equal(summed_up().run_id, "sandbox-sess1.2");
	assert_string_equal(second.out[0], "between cells");
	assert_string_equal(second.result.grant.run_id, "sandbox-sess1.2");
	heard(ASK_COLLECTED);
	heard_nothing();
	assert_int_equal(idle_calls, 2);
	payload_clear(&expected);
	box_close(&b);
}

/* The end of a cell is heard before anything of its output: all of it is read, though the pipe has no end. */
static void what_is_still_in_the_pipes(void **state)
{
	static char filler[60000];
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct tell t = ending(&b, 1, false);
	struct seen seen;

	(void)state;
	start_cell(&seen, o.s, "x");
	step();
	takes_request(&b);
	tell(&t, NULL, 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(write(i ? b.err : b.out, filler, sizeof filler), (int)sizeof filler);
	step();
	assert_int_equal(seen.progress_len, 2 * sizeof filler);
	finish("f", "m");
	for (int i = 0; i < 2; i++)
		assert_int_equal(seen.result.out_len[i], sizeof filler);
	assert_false(seen.result.truncated);
	box_close(&b);
}

static void many_cells_leave_nothing(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	int fds;

	(void)state;
	whole_cell(&b, o.s, 1, "m");
	fds = count_fds();
	for (uint32_t n = 2; n < 200; n++)
		whole_cell(&b, o.s, n, "m");
	assert_int_equal(count_fds(), fds);
	box_close(&b);
}

/* Files that came with an answer that nobody was there to read are new for the next one. */
static void a_manifest_that_nobody_saw_the_files_of(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen;
	struct job j;
	char text[16];

	(void)state;
	whole_cell(&b, o.s, 1, "manifest 1");
	start_cell(&seen, o.s, "hold");
	step();
	takes_request(&b);
	runclient_cancel(rc, seen.req);
	assert_int_equal(heard(ASK_KILL).req, o.req);
	ends(&b, 2, false);
	finish("unseen", "manifest 2");
	assert_int_equal(seen.done, 1);
	heard(ASK_COLLECTED);
	assert_int_equal(o.s->state, SESSION_IDLE);
	start_cell(&seen, o.s, "third");
	step();
	takes_request(&b);
	ends(&b, 3, false);
	j = asked_collector();
	assert_int_equal(pread(j.manifest, text, sizeof text, 0), 10);
	assert_memory_equal(text, "manifest 1", 10);
	job_close(&j);
	box_close(&b);
}

static void a_cell_without_files_thaws_too(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen;
	struct job j;

	(void)state;
	start_cell(&seen, o.s, "x");
	step();
	takes_request(&b);
	ends(&b, 1, false);
	j = asked_collector();
	job_close(&j);
	heard_nothing();
	pass_ms(2500);
	summed_up(); /* it does not wait so long for the files */
	pass_ms(LIMIT_FILES_OUT_MS + 600);
	heard(ASK_COLLECTED);
	without_files(&seen);
	assert_int_equal(o.s->state, SESSION_IDLE);
	box_close(&b);
}

static void a_cell_that_ends_its_session(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen;
	struct job j;

	(void)state;
	whole_cell(&b, o.s, 1, "m");
	start_cell(&seen, o.s, "die");
	step();
	takes_request(&b);
	say(&b, 0, "last words");
	ends(&b, 2, true);
	assert_null(runclient_session_find(rc, "sandbox-sess1", "p1"));
	j = asked_collector();
	assert_int_equal(j.c.have_manifest, 1);
	assert_int_equal(j.c.want_manifest, 0);
	collector_answers(j.c.req, "left", NULL);
	summed_up();
	job_close(&j);
	assert_int_equal(seen.result.outcome, RUN_DONE);
	assert_int_equal(seen.result.end.over, 1);
	assert_string_equal(seen.out[0], "last words");
	assert_string_equal(seen.files, "0 left 7, ");
	assert_int_equal(gone_calls, 1);
	assert_int_equal(recv(b.request, (char[1]){0}, 1, MSG_DONTWAIT), 0); /* nothing of it is kept */
	heard_nothing();
	assert_int_equal(runclient_session_count(rc, "p1"), 0);
	box_close(&b);
}

static void a_session_that_ends_while_it_waits(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");

	(void)state;
	ends(&b, 0, true);
	assert_int_equal(gone_calls, 1);
	assert_null(runclient_session_next(rc, NULL));
	heard_nothing();
	box_close(&b);
}

/* Before its request is whole, and when the order to start has crossed its end. */
static void a_session_that_ends_before_the_cell(void **state)
{
	(void)state;
	for (int started = 0; started < 2; started++) {
		struct opened o;
		struct box b = open_session(&o, "p1", "sandbox-sess1");
		struct seen seen;
		struct tell t = ending(&b, 0, true);

		t.end.ran = 0;
		strcpy(t.end.detail, "idle for 15 minutes");
		start_cell(&seen, o.s, "x");
		if (started) {
			step();
			takes_request(&b);
		}
		box_dies(&b);
		tell(&t, NULL, 0);
		step();
		if (!started) /* the order of its events within the step is the kernel's */
			take_request(&b, (char[4096]){0}, 4096);
		assert_int_equal(seen.done, 1);
		assert_int_equal(seen.result.outcome, RUN_GONE);
		assert_false(seen.result.ran);
		assert_int_equal(seen.result.end.over, 1);
		assert_string_equal(seen.result.fail.text, "idle for 15 minutes");
		assert_int_equal(gone_calls, started + 1);
		assert_null(runclient_session_next(rc, NULL));
		box_close(&b);
		while (ipc_recv(sup, &(struct ask){0}, sizeof(struct ask), NULL, NULL) > 0)
			;
	}
	collector_not_asked();
}

/* Its cell's answer is still being put together: that one stands, and says that it was the last. */
static void a_session_that_ends_after_the_cell(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen;
	struct query q;

	(void)state;
	start_cell(&seen, o.s, "x");
	step();
	takes_request(&b);
	ends(&b, 1, false);
	{
		struct job j = asked_collector();

		collector_answers(j.c.req, "f", "m");
		job_close(&j);
	}
	q = asked_auditor();
	heard(ASK_COLLECTED);
	ends(&b, 0, true);
	assert_int_equal(seen.done, 0);
	auditor_answers(q.req);
	assert_int_equal(seen.result.outcome, RUN_DONE);
	assert_int_equal(seen.result.end.over, 1);
	assert_string_equal(seen.files, "0 f 7, ");
	assert_int_equal(gone_calls, 1);
	assert_int_equal(idle_calls, 0);
	box_close(&b);
}

static void a_refused_cell(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct tell t = ending(&b, 1, false);
	struct seen seen;

	(void)state;
	start_cell(&seen, o.s, "x");
	step();
	takes_request(&b);
	t.end.ran = 0;
	t.end.refused_errno = EISDIR;
	tell(&t, NULL, 0);
	step();
	assert_int_equal(seen.result.outcome, RUN_REFUSED);
	assert_int_equal(seen.result.end.refused_errno, EISDIR);
	heard(ASK_COLLECTED);
	collector_not_asked();
	assert_int_equal(o.s->state, SESSION_IDLE);
	whole_cell(&b, o.s, 2, "m");
	box_close(&b);
}

/* ---- cells: cancelled, too loud, too late ---- */

static void a_cell_withdrawn_before_it_was_sent(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen;

	(void)state;
	start_cell(&seen, o.s, "x");
	runclient_cancel(rc, seen.req);
	step();
	assert_int_equal(seen.done, 1);
	assert_int_equal(seen.result.outcome, RUN_GONE);
	assert_int_equal(seen.result.end.over, 0);
	heard_nothing();
	assert_int_equal(o.s->state, SESSION_IDLE);
	assert_int_equal(idle_calls, 1);
	whole_cell(&b, o.s, 1, "m");
	box_close(&b);
}

/* A harness that takes only a part of it. */
static void start_large_cell(struct seen *seen, struct session *s)
{
	char *code = malloc(LIMIT_CODE_BYTES + 1);

	memset(code, '#', LIMIT_CODE_BYTES);
	code[LIMIT_CODE_BYTES] = 0;
	start_cell(seen, s, code);
	free(code);
	step();
}

static void a_request_that_is_not_taken(void **state)
{
	(void)state;
	for (int cancelled = 0; cancelled < 2; cancelled++) {
		struct opened o;
		struct box b = open_session(&o, "p1", "sandbox-sess1");
		struct seen seen;

		gone_calls = 0;
		start_large_cell(&seen, o.s);
		assert_int_equal(seen.granted, 1);
		heard_nothing();
		if (cancelled) {
			runclient_cancel(rc, seen.req);
			step();
		} else {
			pass_ms(LIMIT_READY_S * 1000 - 500);
			assert_int_equal(seen.done, 0);
			pass_ms(1000);
		}
		assert_int_equal(heard(ASK_CLOSE).req, o.req);
		assert_int_equal(seen.done, 1);
		assert_int_equal(seen.result.outcome, RUN_GONE);
		assert_int_equal(seen.result.end.over, 1);
		assert_true(*seen.result.fail.text);
		assert_null(runclient_session_find(rc, "sandbox-sess1", "p1"));
		assert_true(gone_calls > 0);
		ends(&b, 0, true);
		assert_int_equal(runclient_session_count(rc, "p1"), 0);
		heard_nothing();
		box_close(&b);
	}
}

static void a_request_that_is_taken_slowly(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	char *text = malloc(2 * LIMIT_CODE_BYTES);
	struct seen seen;
	size_t len = 0;

	(void)state;
	say(&b, 0, "between");
	start_large_cell(&seen, o.s);
	step();
	assert_int_equal(seen.progressed, 0);
	for (int i = 0; i < 1000 && len < LIMIT_CODE_BYTES + sizeof(struct request_header); i++) {
		len += take_request(&b, text, 2 * LIMIT_CODE_BYTES);
		step();
	}
	heard(ASK_START);
	assert_int_equal(seen.progressed, 1);
	assert_int_equal(seen.progress_len, 7);
	ends(&b, 1, false);
	finish("f", "m");
	assert_int_equal(seen.result.outcome, RUN_DONE);
	free(text);
	box_close(&b);
}

static void a_cell_over_its_output(void **state)
{
	static char filler[65536];
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen;
	struct ask a;

	(void)state;
	start_cell(&seen, o.s, "flood");
	step();
	takes_request(&b);
	fcntl(b.out, F_SETFL, O_NONBLOCK);
	for (size_t done = 0; done < LIMIT_OUTPUT_BYTES + sizeof filler; done += sizeof filler) {
		assert_int_equal(write(b.out, filler, sizeof filler), (int)sizeof filler);
		step();
		step();
	}
	a = heard(ASK_KILL);
	assert_int_equal(a.req, o.req);
	assert_int_equal(a.reason, RUN_END_OUTPUT);
	/* It is not stopped at once: who has nothing to write to would not get to hear that it was interrupted. */
	for (int i = 0; i < 3; i++) {
		assert_int_equal(write(b.out, filler, sizeof filler), (int)sizeof filler);
		step();
	}
	heard_nothing();
	{
		struct tell t = ending(&b, 1, false);

		t.end.end = RUN_END_OUTPUT;
		t.end.exit_code = 137;
		tell(&t, NULL, 0);
		step();
	}
	finish("f", "m");
	heard(ASK_COLLECTED);
	assert_int_equal(seen.result.end.end, RUN_END_OUTPUT);
	assert_string_equal(seen.result.end.detail, "stdout limit of 4 MiB exceeded");
	assert_int_equal(seen.result.out_len[0], LIMIT_OUTPUT_BYTES);
	assert_true(seen.result.truncated);
	assert_int_equal(seen.result.end.over, 0);
	assert_int_equal(o.s->state, SESSION_IDLE);
	box_close(&b);
}

static void a_cell_whose_end_is_never_told(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen;

	(void)state;
	start_cell(&seen, o.s, "x");
	step();
	takes_request(&b);
	pass_ms((7 + 119) * 1000);
	assert_int_equal(seen.done, 0);
	pass_ms(2000);
	assert_int_equal(seen.result.outcome, RUN_FAILED);
	assert_true(seen.result.ran);
	assert_int_equal(heard(ASK_CLOSE).req, o.req);
	assert_null(runclient_session_find(rc, "sandbox-sess1", "p1"));
	/* Nor that of the session: it is let go of all the same. */
	pass_ms(121000);
	assert_int_equal(recv(b.request, (char[1]){0}, 1, MSG_DONTWAIT), 0);
	heard_nothing();
	ends(&b, 1, true); /* and hearing it at last does no harm */
	box_close(&b);
}

/* ---- closing ---- */

static void closing_an_idle_session(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen = {0};

	(void)state;
	runclient_session_close(rc, o.s);
	runclient_session_close(rc, o.s);
	assert_int_equal(heard(ASK_CLOSE).req, o.req);
	heard_nothing();
	assert_null(runclient_session_find(rc, "sandbox-sess1", "p1"));
	assert_null(runclient_session_next(rc, NULL));
	assert_int_equal(try_start(&seen, "p1", o.s, "x"), -EBUSY);
	assert_int_equal(gone_calls, 0);
	ends(&b, 0, true);
	assert_int_equal(gone_calls, 1);
	box_close(&b);
}

static void closing_a_busy_session(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen;
	struct tell t = ending(&b, 1, true);

	(void)state;
	start_cell(&seen, o.s, "hold");
	step();
	takes_request(&b);
	say(&b, 0, "so far");
	runclient_session_close(rc, o.s);
	heard(ASK_CLOSE);
	t.end.end = RUN_END_CANCELLED;
	box_dies(&b);
	tell(&t, NULL, 0);
	step();
	finish("f", NULL);
	assert_int_equal(seen.result.outcome, RUN_DONE);
	assert_int_equal(seen.result.end.end, RUN_END_CANCELLED);
	assert_int_equal(seen.result.end.over, 1);
	assert_string_equal(seen.out[0], "so far");
	assert_int_equal(gone_calls, 1);
	heard_nothing();
	box_close(&b);

	/* While its request is under way: it is not started any more. */
	b = open_session(&o, "p1", "sandbox-sess2");
	start_cell(&seen, o.s, "x");
	runclient_session_close(rc, o.s);
	step();
	heard(ASK_CLOSE);
	heard_nothing();
	t = ending(&b, 0, true);
	t.end.ran = 0;
	box_dies(&b);
	tell(&t, NULL, 0);
	step();
	assert_int_equal(seen.result.outcome, RUN_GONE);
	assert_int_equal(seen.result.end.over, 1);
	box_close(&b);

	/* While its files are being read: they are, and nobody is told to thaw what is gone. */
	b = open_session(&o, "p1", "sandbox-sess3");
	start_cell(&seen, o.s, "x");
	step();
	takes_request(&b);
	ends(&b, 1, false);
	runclient_session_close(rc, o.s);
	heard(ASK_CLOSE);
	ends(&b, 0, true);
	{
		struct job j = asked_collector();

		collector_answers(j.c.req, "f", "m");
		summed_up();
		job_close(&j);
	}
	assert_int_equal(seen.result.outcome, RUN_DONE);
	assert_int_equal(seen.result.end.over, 1);
	assert_string_equal(seen.files, "0 f 7, ");
	heard_nothing();
	assert_int_equal(runclient_session_count(rc, "p1"), 0);
	box_close(&b);
}

/* ---- from inside callbacks ---- */

static void close_when_idle(void *ctx, struct session *s)
{
	(void)ctx;
	if (s)
		runclient_session_close(rc, s);
	else
		gone_calls++;
}

static void callbacks_may_do_it_all(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen first, second = {0};

	(void)state;
	/* A cell from another's done: the session is idle by then, and nobody is told that it is. */
	start_cell(&first, o.s, "first");
	first.next_cell_on = o.s;
	first.next_cell = &second;
	step();
	takes_request(&b);
	ends(&b, 1, false);
	finish("f", "m");
	heard(ASK_COLLECTED);
	assert_int_equal(first.done, 1);
	assert_int_equal(first.next_result, 0);
	assert_int_equal(idle_calls, 0);
	step();
	takes_request(&b);
	/* Closing from on_session. */
	runclient_on_session(rc, close_when_idle, NULL);
	ends(&b, 2, false);
	finish("f", "m");
	heard(ASK_COLLECTED);
	assert_int_equal(second.done, 1);
	heard(ASK_CLOSE);
	ends(&b, 0, true);
	assert_int_equal(gone_calls, 1);
	box_close(&b);

	/* Closing from opened. */
	o = (struct opened){.close_at_once = true};
	assert_int_equal(try_open(&o, "p1"), 0);
	b = grant_to(heard(ASK_SANDBOX).req, true, "sandbox-sess2");
	heard(ASK_CLOSE);
	ends(&b, 0, true);
	assert_int_equal(runclient_session_count(rc, "p1"), 0);
	box_close(&b);
}

/* ---- the end of the supervisor, and of the client ---- */

/* Every state at once. */
struct everything {
	struct opened idle, busy, after, closing, opening;
	struct seen sending, running, summary, asked;
	struct box b[4];
};

static void make_everything(struct everything *e)
{
	*e = (struct everything){0};
	e->b[0] = open_session(&e->idle, "p1", "sandbox-idle1");
	e->b[1] = open_session(&e->busy, "p1", "sandbox-busy1");
	e->b[2] = open_session(&e->after, "p1", "sandbox-after");
	e->b[3] = open_session(&e->closing, "p1", "sandbox-close");
	start_cell(&e->running, e->busy.s, "x");
	start_cell(&e->summary, e->after.s, "x");
	step();
	takes_request(&e->b[1]);
	takes_request(&e->b[2]);
	ends(&e->b[2], 1, false);
	runclient_session_close(rc, e->closing.s);
	heard(ASK_CLOSE);
	assert_int_equal(try_open(&e->opening, "p1"), 0);
	heard(ASK_SANDBOX);
	start_run(&e->asked, "p1");
	heard(ASK_SANDBOX);
	start_cell(&e->sending, e->idle.s, "x");
}

static void check_everything(struct everything *e)
{
	const struct seen *seen[] = {&e->sending, &e->running, &e->summary, &e->asked};

	assert_int_equal(e->opening.calls, 1);
	assert_null(e->opening.s);
	assert_int_equal(e->opening.outcome, RUN_FAILED);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(seen[i]->done, 1);
		assert_int_equal(seen[i]->result.outcome, RUN_FAILED);
		box_close(&e->b[i]);
	}
	assert_false(e->sending.result.ran);
	assert_true(e->running.result.ran);
	assert_true(e->summary.result.ran);
}

static void the_supervisor_is_gone(void **state)
{
	struct everything e;
	struct seen seen = {0};
	struct opened o = {0};

	(void)state;
	make_everything(&e);
	close(sup);
	sup = -1;
	assert_int_equal(runclient_step(rc), -EPIPE);
	check_everything(&e);
	assert_null(runclient_session_next(rc, NULL));
	assert_int_equal(runclient_session_count(rc, "p1"), 0);
	assert_int_equal(idle_calls, 0);
	assert_true(gone_calls >= 4);
	assert_int_equal(try_start(&seen, "p1", NULL, "x"), -EPIPE);
	assert_int_equal(try_open(&o, "p1"), -EPIPE);
}

static void the_client_stops(void **state)
{
	struct everything e;
	struct seen more = {0};

	(void)state;
	make_everything(&e);
	e.summary.next_cell_on = e.after.s;
	e.summary.next_cell = &more;
	rc = runclient_free(rc);
	assert_int_equal(e.summary.next_result, -EBUSY);
	check_everything(&e);
	assert_int_equal(idle_calls + gone_calls, 0);
}

static void all_are_cancelled(void **state)
{
	struct everything e;
	struct ask a;
	unsigned kills = 0, closes = 0;

	(void)state;
	make_everything(&e);
	runclient_cancel_all(rc);
	step();
	assert_int_equal(e.opening.outcome, RUN_GONE);
	assert_int_equal(e.asked.result.outcome, RUN_GONE);
	assert_int_equal(e.sending.result.outcome, RUN_GONE);
	assert_int_equal(e.running.done + e.summary.done, 0);
	assert_ptr_equal(runclient_session_find(rc, "sandbox-idle1", "p1"), e.idle.s);
	while (ipc_recv(sup, &a, sizeof a, NULL, NULL) > 0) {
		kills += a.type == ASK_KILL;
		closes += a.type == ASK_CLOSE;
	}
	assert_int_equal(kills, 2); /* the one that runs and the one that was asked for */
	assert_int_equal(closes, 1);
	rc = runclient_free(rc); /* here, where what its callbacks fill in is still alive */
	for (int i = 0; i < 4; i++)
		box_close(&e.b[i]);
}

static void nonsense_about_sessions(void **state)
{
	for (int what = 0; what < 6; what++) {
		struct opened o;
		struct seen seen;
		struct box b;
		struct tell t;

		if (what) {
			teardown(state);
			setup(state);
		}
		b = open_session(&o, "p1", "sandbox-sess1");
		t = ending(&b, 1, false);
		if (what >= 2) {
			start_cell(&seen, o.s, "x");
			step();
			takes_request(&b);
		}
		if (what == 1) /* 0: the end of a cell that was never started */
			t.type = TELL_FAIL;
		else if (what == 2)
			t.end.cell = 2;
		else if (what == 3)
			t.end.cell = 0; /* its end, and yet not over */
		else if (what == 4)
			t.type = TELL_GRANT;
		if (what == 5) {
			tell(&t, NULL, 0);
			step(); /* that was right; told twice it is not */
		}
		tell(&t, NULL, 0);
		assert_int_equal(runclient_step(rc), -EPIPE);
		if (what >= 2)
			assert_int_equal(seen.result.outcome, RUN_FAILED);
		box_close(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(opening_a_session),
	    TEST(sessions_that_do_not_open),
	    TEST(as_many_as_a_project_may_have),
	    TEST(as_many_as_there_may_be),
	    TEST(cells_one_after_the_other),
	    TEST(what_is_still_in_the_pipes),
	    TEST(many_cells_leave_nothing),
	    TEST(a_manifest_that_nobody_saw_the_files_of),
	    TEST(a_cell_without_files_thaws_too),
	    TEST(a_cell_that_ends_its_session),
	    TEST(a_session_that_ends_while_it_waits),
	    TEST(a_session_that_ends_before_the_cell),
	    TEST(a_session_that_ends_after_the_cell),
	    TEST(a_refused_cell),
	    TEST(a_cell_withdrawn_before_it_was_sent),
	    TEST(a_request_that_is_not_taken),
	    TEST(a_request_that_is_taken_slowly),
	    TEST(a_cell_over_its_output),
	    TEST(a_cell_whose_end_is_never_told),
	    TEST(closing_an_idle_session),
	    TEST(closing_a_busy_session),
	    TEST(callbacks_may_do_it_all),
	    TEST(the_supervisor_is_gone),
	    TEST(the_client_stops),
	    TEST(all_are_cancelled),
	    TEST(nonsense_about_sessions),
	};

	return RUN_TESTS("runclient sessions", tests);
}
