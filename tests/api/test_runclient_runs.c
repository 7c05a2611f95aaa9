/* SPDX-License-Identifier: Apache-2.0 */
/* Runs for single use: from their start to their end, and what goes wrong on the way. */
#include "runclient_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- single runs ---- */

static void a_run_from_end_to_end(void **state)
{
	struct payload expected = payload_of("code", false);
	struct seen seen;
	char text[4096];
	struct query q;
	struct box b;
	struct job j;

	(void)state;
	start_run(&seen, "p1");
	b = grant();
	assert_int_equal(seen.granted, 1);
	assert_int_equal(take_request(&b, text, sizeof text), expected.len);
	assert_memory_equal(text, expected.data, expected.len);
	assert_int_equal(heard(ASK_START).timeout_s, 7);
	assert_int_equal(seen.progressed, 1);
	assert_int_equal(seen.progress_len, 0);
	say(&b, 0, "out");
	step();
	assert_int_equal(seen.progressed, 2);
	assert_int_equal(seen.progress_len, 3);
	step();
	assert_int_equal(seen.progressed, 2);
	say(&b, 1, "err");
	ends(&b, 0, true);
	assert_int_equal(seen.progressed, 3);

	auditor_not_asked(); /* it hears of the files, too */
	j = asked_collector();
	assert_int_equal(j.c.want_manifest, 0);
	assert_int_equal(j.c.digest_count, 2);
	assert_memory_equal(j.c.digests, expected.digests, 2 * sizeof *expected.digests);
	assert_true(same_file(j.dir, b.dir));
	job_close(&j);
	collector_answers(j.c.req, "out.txt", NULL);
	assert_int_equal(seen.done, 0);
	q = asked_auditor();
	assert_int_equal(j.c.req, q.req);
	assert_string_equal(q.run_id, "sandbox-one11");
	assert_string_equal(q.project, "p1");
	auditor_answers(q.req);
	assert_int_equal(seen.done, 1);
	assert_int_equal(seen.result.outcome, RUN_DONE);
	assert_string_equal(seen.out[0], "out");
	assert_string_equal(seen.out[1], "err");
	assert_string_equal(seen.files, "0 out.txt 7, ");
	assert_int_equal(seen.result.files.skipped_unlisted, 3);
	assert_null(seen.result.files.problem);
	assert_false(seen.result.session);
	heard_nothing();
	payload_clear(&expected);
	box_close(&b);
}

static void output_beyond_the_cap_is_no_progress(void **state)
{
	static char filler[65536];
	struct seen seen;
	struct box b;
	unsigned n;

	(void)state;
	start_run(&seen, "p1");
	b = grant();
	takes_request(&b);
	fcntl(b.out, F_SETFL, O_NONBLOCK);
	for (size_t done = 0; done < LIMIT_OUTPUT_BYTES; done += sizeof filler) {
		assert_int_equal(write(b.out, filler, sizeof filler), (int)sizeof filler);
		step();
		step();
	}
	heard_nothing();
	n = seen.progressed;
	assert_true(n > 2);
	say(&b, 0, "x");
	step();
	assert_int_equal(seen.progressed, n);
	assert_int_equal(heard(ASK_KILL).reason, RUN_END_OUTPUT);
	ends(&b, 0, true);
	finish("f", NULL);
	assert_int_equal(seen.result.out_bytes[0], LIMIT_OUTPUT_BYTES + 1);
	assert_int_equal(seen.result.end.end, RUN_END_OUTPUT);
	box_close(&b);
}

static void requests_that_are_none(void **state)
{
	static const char *const nobody[] = {NULL, "", "a b", "token:tok-0123456789012345678901234567890123456789"};
	struct seen seen = {0};
	char project[IPC_PROJECT_MAX + 1];
	struct payload p = payload_of("x", true);
	struct run_request request = {.project = "p1", .caller = "token:tok-rig", .payload = &p, .done = on_done, .ctx = &seen};

	(void)state;
	assert_int_equal(runclient_start(rc, &request, &seen.req), -EINVAL); /* a cell's, without a session */
	assert_null(p.data);
	assert_int_equal(runclient_start(rc, &request, &seen.req), -EINVAL); /* empty */
	memset(project, 'p', IPC_PROJECT_MAX);
	project[IPC_PROJECT_MAX] = 0;
	assert_int_equal(try_start(&seen, project, NULL, "x"), -EINVAL);
	/* The supervisor hangs up on one that does not say who asks. */
	for (size_t i = 0; i < sizeof nobody / sizeof nobody[0]; i++) {
		p = payload_of("x", false);
		request.caller = nobody[i];
		assert_int_equal(runclient_start(rc, &request, &seen.req), -EINVAL);
		assert_null(p.data);
	}
	request.caller = "token:tok-rig";
	p = payload_of("x", false);
	p.digest_count = COLLECT_DIGESTS_MAX + 1;
	assert_int_equal(runclient_start(rc, &request, &seen.req), -EINVAL);
	assert_int_equal(seen.done, 0);
	assert_int_equal(runclient_open_runs(rc), 0);
	heard_nothing();
}

static void a_file_that_could_not_be_placed(void **state)
{
	struct seen seen;
	struct box b;
	struct tell t;

	(void)state;
	start_run(&seen, "p1");
	b = grant();
	takes_request(&b);
	t = ending(&b, 0, true);
	t.end.ran = 0;
	t.end.end = RUN_END_BROKEN;
	t.end.refused_errno = ELOOP;
	t.end.refused_index = 4;
	tell(&t, NULL, 0);
	step();
	assert_int_equal(seen.done, 1);
	assert_int_equal(seen.result.outcome, RUN_REFUSED);
	assert_int_equal(seen.result.end.refused_errno, ELOOP);
	assert_int_equal(seen.result.end.refused_index, 4);
	assert_false(seen.result.ran);
	collector_not_asked();
	heard_nothing();
	box_close(&b);
}

/* ---- a sandbox that was dead already ---- */

static void dead(struct box *b, const char *layer)
{
	struct tell t = ending(b, 0, true);

	t.end.ran = 0;
	t.end.end = RUN_END_BROKEN;
	snprintf(t.end.layer, sizeof t.end.layer, "%s", layer);
	box_dies(b);
	tell(&t, NULL, 0);
	step();
}

static void a_dead_sandbox_is_replaced_once(void **state)
{
	struct seen seen;
	struct box b;

	(void)state;
	start_run(&seen, "p1");
	b = grant();
	takes_request(&b);
	say(&b, 1, "last words");
	step();
	dead(&b, "");
	box_close(&b);
	assert_int_equal(seen.done, 0);
	b = grant();
	takes_request(&b);
	ends(&b, 0, true);
	finish("f", NULL);
	assert_int_equal(seen.done, 1);
	assert_int_equal(seen.result.outcome, RUN_DONE);
	assert_int_equal(seen.granted, 1);
	assert_string_equal(seen.out[1], "");
	box_close(&b);

	start_run(&seen, "p1");
	for (int i = 0; i < 2; i++) {
		b = grant();
		takes_request(&b);
		assert_int_equal(seen.done, 0);
		dead(&b, "");
		box_close(&b);
	}
	assert_int_equal(seen.done, 1);
	assert_int_equal(seen.result.outcome, RUN_FAILED);
	assert_false(seen.result.ran);
	heard_nothing();
}

static void what_is_not_replaced(void **state)
{
	struct seen seen;
	struct box b;

	(void)state;
	for (int why = 0; why < 3; why++) {
		start_run(&seen, "p1");
		b = grant();
		takes_request(&b);
		if (why == 1) {
			runclient_cancel(rc, seen.req);
			heard(ASK_KILL);
		} else if (why == 2) {
			pass_ms(1100); /* it has started: nothing else takes so long, and the request is gone */
		}
		dead(&b, why == 0 ? "seccomp" : "");
		assert_int_equal(seen.done, 1);
		assert_int_equal(seen.result.outcome, why == 1 ? RUN_GONE : RUN_FAILED);
		heard_nothing();
		box_close(&b);
	}
}

static void deadlines_of_a_run(void **state)
{
	struct seen seen;
	struct box b;

	(void)state;
	start_run(&seen, "p1");
	heard(ASK_SANDBOX);
	pass_ms(LIMIT_POOL_WAIT_S * 1000 - 500);
	assert_int_equal(seen.done, 0);
	pass_ms(600);
	assert_int_equal(seen.result.outcome, RUN_BUSY);
	heard(ASK_KILL);

	start_run(&seen, "p1");
	b = grant();
	takes_request(&b);
	pass_ms(1100);
	pass_ms((7 + 118) * 1000);
	assert_int_equal(seen.done, 0);
	pass_ms(2000);
	assert_int_equal(seen.result.outcome, RUN_FAILED);
	assert_true(seen.result.ran);
	heard(ASK_KILL);
	box_close(&b);
}

/* ---- the supervisor talks nonsense ---- */

static void nonsense(void **state)
{
	for (int what = 0; what < 5; what++) {
		struct seen seen;
		struct box b;
		struct tell t;

		if (what) {
			teardown(state);
			setup(state);
		}
		start_run(&seen, "p1");
		b = grant();
		takes_request(&b);
		t = ending(&b, 0, what != 0);
		if (what == 1)
			t.end.refused_errno = EISDIR; /* and yet it ran */
		else if (what == 2)
			memset(t.end.layer, 'x', sizeof t.end.layer);
		else if (what == 3)
			t.end.over = 2;
		else if (what == 4)
			t.end.end = RUN_END_COUNT;
		tell(&t, NULL, 0);
		assert_int_equal(runclient_step(rc), -EPIPE);
		assert_int_equal(seen.done, 1);
		assert_int_equal(seen.result.outcome, RUN_FAILED);
		assert_string_equal(seen.result.fail.layer, "supervisor");
		box_close(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_run_from_end_to_end),
	    TEST(output_beyond_the_cap_is_no_progress),
	    TEST(requests_that_are_none),
	    TEST(a_file_that_could_not_be_placed),
	    TEST(a_dead_sandbox_is_replaced_once),
	    TEST(what_is_not_replaced),
	    TEST(deadlines_of_a_run),
	    TEST(nonsense),
	};

	return RUN_TESTS("runclient runs", tests);
}
