/* SPDX-License-Identifier: Apache-2.0 */
/* What comes after a run's end: the collector's files, the auditor's summary; and a client with too many open files. */
#include "runclient_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- the collector ---- */

/* Ends with an ended run whose files are asked for. */
static struct box until_collected(struct seen *seen, const char *project)
{
	struct box b;

	start_run(seen, project);
	b = grant();
	takes_request(&b);
	ends(&b, 0, true);
	return b;
}

static void no_collector(void **state)
{
	struct seen seen;
	struct box b = until_collected(&seen, "p1");

	(void)state;
	assert_false(summed_up().content.told & 1u << CONTENT_FILES_OUT);
	without_files(&seen);
	assert_false(runclient_collector_up(rc));
	box_close(&b);
}

static void a_collector_that_fails(void **state)
{
	struct seen seen;
	struct box b = until_collected(&seen, "p1");
	struct job j = asked_collector();
	struct collected c = {.req = j.c.req, .status = EACCES};

	(void)state;
	assert_int_equal(ipc_send(col, &c, sizeof c, NULL, 0), 0);
	step();
	summed_up();
	without_files(&seen);
	assert_true(runclient_collector_up(rc));
	job_close(&j);
	box_close(&b);
}

static void a_collector_that_is_gone(void **state)
{
	struct seen seen[3];
	struct box b[3];

	(void)state;
	for (int i = 0; i < 2; i++)
		b[i] = until_collected(&seen[i], "p1");
	close(col);
	col = -1;
	step();
	b[2] = until_collected(&seen[2], "p1");
	for (int i = 0; i < 3; i++) {
		summed_up();
		without_files(&seen[i]);
		box_close(&b[i]);
	}
	assert_false(runclient_collector_up(rc));
}

/* Its part in time, and no part of it any more when that is over; the files take longer, and it does not wait for those. */
static void an_auditor_that_is_slow(void **state)
{
	struct seen seen;
	struct query q;
	struct box b;
	struct job j;

	(void)state;
	for (int late = 0; late < 3; late++) {
		b = until_collected(&seen, "p1");
		j = asked_collector();
		if (late == 0)
			collector_answers(j.c.req, "f", NULL);
		else
			pass_ms(2500);
		q = asked_auditor();
		assert_int_equal((q.content.told & 1u << CONTENT_FILES_OUT) != 0, late == 0);
		pass_ms(RUNCLIENT_SUMMARY_MS - 100);
		assert_int_equal(seen.done, 0);
		pass_ms(200);
		if (late == 1) {
			auditor_answers(q.req);
		} else if (late == 2) {
			close(aud);
			aud = -1;
			step();
		}
		if (late)
			collector_answers(q.req, "f", NULL);
		assert_int_equal(seen.done, 1);
		assert_null(seen.result.summary);
		assert_string_equal(seen.files, "0 f 7, ");
		job_close(&j);
		box_close(&b);
	}
	assert_false(runclient_auditor_up(rc));
}

static void a_collector_that_is_slow(void **state)
{
	struct seen first, second;
	struct box b1 = until_collected(&first, "p1"), b2 = until_collected(&second, "p1");
	struct job j1 = asked_collector(), j2;

	(void)state;
	collector_not_asked(); /* one at a time */
	collector_answers(second.req, "guess", NULL);
	assert_int_equal(second.done, 0);
	pass_ms(LIMIT_FILES_OUT_MS + 2900);
	for (int i = 0; i < 2; i++)
		summed_up();
	assert_int_equal(first.done, 0);
	pass_ms(200);
	without_files(&first);
	assert_int_equal(second.done, 0);
	j2 = asked_collector();
	/* The late answer is nobody's. */
	collector_answers(j1.c.req, "first", NULL);
	assert_int_equal(second.done, 0);
	collector_answers(j2.c.req, "second", NULL);
	assert_int_equal(second.done, 1);
	assert_string_equal(second.files, "0 second 7, ");
	job_close(&j1);
	job_close(&j2);
	box_close(&b1);
	box_close(&b2);
}

static void nobody_waits_for_ever_in_line(void **state)
{
	struct seen seen[5];
	struct box b[5];

	(void)state;
	for (int i = 0; i < 5; i++)
		b[i] = until_collected(&seen[i], "p1");
	for (int s = 0; s < 14; s++)
		pass_ms(1000);
	for (int i = 0; i < 5; i++)
		asked_auditor();
	assert_int_equal(seen[4].done, 0);
	pass_ms(1100);
	without_files(&seen[4]);
	for (int i = 0; i < 4; i++) {
		struct job j = asked_collector();

		if (i == 3) /* its turn came when the third's time was over */
			collector_answers(j.c.req, "f", NULL);
		job_close(&j);
	}
	for (int i = 0; i < 5; i++) {
		assert_int_equal(seen[i].done, 1);
		box_close(&b[i]);
	}
}

static void projects_take_turns(void **state)
{
	static const char *const projects[] = {"p1", "p1", "p1", "p2", "p2", "p3"};
	static const int order[] = {0, 3, 1, 5, 2, 4};
	struct seen seen[6];
	struct box b[6];

	(void)state;
	for (int i = 0; i < 6; i++)
		b[i] = until_collected(&seen[i], projects[i]);
	for (int i = 0; i < 6; i++) {
		struct job j = asked_collector();

		assert_int_equal(j.c.req, seen[order[i]].req);
		collector_answers(j.c.req, "f", NULL);
		summed_up();
		assert_int_equal(seen[order[i]].done, 1);
		job_close(&j);
	}
	for (int i = 0; i < 6; i++)
		box_close(&b[i]);
}

static void a_collector_that_lies(void **state)
{
	for (int how = 0; how < 9; how++) {
		struct seen seen;
		struct collected c = {0};
		char text[512];
		struct box b;
		struct job j;
		int fds[2] = {-1, -1}, pipes[2] = {-1, -1};
		size_t nfds = 1, len;

		if (how) {
			teardown(state);
			setup(state);
		}
		b = until_collected(&seen, "p1");
		j = asked_collector();
		len = entry(text, COLLECTED_FILE, how == 0 ? "../up" : "f", "content");
		c.req = j.c.req;
		c.len = len;
		if (how == 1)
			nfds = 0;
		else if (how == 2)
			c.len++; /* more than there is */
		else if (how == 3)
			c.len--; /* less */
		else if (how == 4)
			c.len = 1ull << 40;
		else if (how == 5)
			nfds = 2; /* a manifest that nobody wants */
		if (how == 6) {
			assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
			fds[0] = pipes[0];
			close(pipes[1]);
		} else {
			fds[0] = memfd_of(text, len);
		}
		if (how == 8) { /* it is that large, and costs nothing */
			c.len = 1ull << 40;
			assert_int_equal(ftruncate(fds[0], (off_t)c.len), 0);
		}
		fds[1] = memfd_of("m", 1);
		assert_int_equal(ipc_send(col, &c, how == 7 ? sizeof c - 1 : sizeof c, fds, nfds), 0);
		close(fds[0]);
		close(fds[1]);
		step();
		summed_up();
		without_files(&seen);
		assert_false(runclient_collector_up(rc));
		job_close(&j);
		box_close(&b);
	}
}

/* ---- a client with too many open files ---- */

static void room_for_fds(bool any)
{
	struct rlimit rl;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &rl), 0);
	rl.rlim_cur = any ? rl.rlim_max : 3;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &rl), 0);
}

/* What can't be received is lost, and whom it was for is told. Everybody else goes on. */
static void too_many_open_files(void **state)
{
	struct tell t = {.type = TELL_GRANT, .grant = {.sandbox_id = "sandbox-full1"}};
	struct seen seen, second;
	struct opened o = {0};
	struct box b;
	struct job j;
	int fds[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		fds[i] = sup;
	start_run(&seen, "p1");
	t.req = heard(ASK_SANDBOX).req;
	tell(&t, fds, 4);
	room_for_fds(false);
	step();
	room_for_fds(true);
	assert_int_equal(seen.done, 1);
	assert_int_equal(seen.result.outcome, RUN_FAILED);
	assert_string_equal(seen.result.fail.layer, "api");
	heard(ASK_KILL);

	assert_int_equal(try_open(&o, "p1"), 0);
	t.req = heard(ASK_SANDBOX).req;
	tell(&t, fds, 4);
	room_for_fds(false);
	step();
	room_for_fds(true);
	assert_int_equal(o.calls, 1);
	assert_int_equal(o.outcome, RUN_FAILED);
	assert_int_equal(heard(ASK_CLOSE).req, o.req);

	start_run(&seen, "p1");
	b = grant();
	takes_request(&b);
	ends(&b, 0, true);
	{
		struct answer a = {.len = 100000};
		struct collected c = {0};

		j = asked_collector();
		c.req = j.c.req;
		assert_int_equal(ipc_send(col, &c, sizeof c, fds, 1), 0);
		room_for_fds(false);
		step();
		room_for_fds(true);
		a.req = asked_auditor().req;
		assert_int_equal(ipc_send(aud, &a, sizeof a, fds, 1), 0);
		room_for_fds(false);
		step();
		room_for_fds(true);
	}
	without_files(&seen);
	assert_null(seen.result.summary);
	job_close(&j);
	box_close(&b);

	second = (struct seen){0};
	start_run(&second, "p1");
	b = grant();
	takes_request(&b);
	ends(&b, 0, true);
	finish("f", NULL);
	assert_string_equal(second.files, "0 f 7, ");
	assert_non_null(second.result.summary);
	box_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(no_collector, setup_without_collector, teardown),
	    TEST(a_collector_that_fails),
	    TEST(a_collector_that_is_gone),
	    TEST(an_auditor_that_is_slow),
	    TEST(a_collector_that_is_slow),
	    TEST(nobody_waits_for_ever_in_line),
	    TEST(projects_take_turns),
	    TEST(a_collector_that_lies),
	    TEST(too_many_open_files),
	};

	return RUN_TESTS("runclient files", tests);
}
