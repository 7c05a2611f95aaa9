/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a run's use went, over any length of time: the file itself, with its looks made due by hand, and a socket in the
 * auditor's place that hears what is told.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "supervisor/timeline.c"

static struct supervisor *s;
static struct box b;
static int auditor;

static int setup(void **state)
{
	struct err e;
	int pair[2];

	(void)state;
	s = supervisor_alloc("test");
	assert_non_null(s);
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(ipc_pair(pair, 1 << 20), 0);
	auditor = pair[1];
	assert_int_equal(notes_new(s, pair[0], &e), 0);
	memset(&b, 0, sizeof b);
	box_init(&b);
	b.opened_ns = now_ns();
	snprintf(b.id, sizeof b.id, "sandbox-x");
	TAILQ_INSERT_TAIL(&s->boxes, &b, link);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	timeline_drop(&b);
	close(s->auditor_src.fd);
	close(s->epoll_fd);
	close(auditor);
	notes_free(s);
	free(s);
	return 0;
}

/* The nth look, at its time. */
static void look_at(unsigned ms)
{
	b.timeline->began_ns = now_ns() - ms * 1000000ull;
	b.timeline->next_ns = 0;
	timeline_tick(s);
}

static unsigned hear(struct note_sample ret[LIMIT_AUDIT_SAMPLES])
{
	unsigned count = 0;
	struct note n;

	while (ipc_recv(auditor, &n, sizeof n, NULL, NULL) == (ssize_t)sizeof n) {
		assert_int_equal(n.type, NOTE_SAMPLES);
		assert_string_equal(n.run_id, "sandbox-x");
		assert_in_range(n.samples.count, 1, NOTE_SAMPLES_MAX);
		assert_true(count + n.samples.count <= LIMIT_AUDIT_SAMPLES);
		memcpy(&ret[count], n.samples.of, n.samples.count * sizeof ret[0]);
		count += n.samples.count;
	}
	return count;
}

/* Nothing is due where nothing runs: the loop sleeps. */
static void test_nothing_runs(void **state)
{
	(void)state;
	assert_int_equal(timeline_wake_ns(s), 0);
	timeline_tick(s);
	timeline_end(s, &b);
	timeline_begin(s, &b);
	assert_int_equal(timeline_wake_ns(s), b.opened_ns + EVERY_NS);
	b.ended_ns = now_ns();
	assert_int_equal(timeline_wake_ns(s), 0);
	timeline_drop(&b);
	assert_int_equal(timeline_wake_ns(s), 0);
}

static void test_a_short_run_has_its_end(void **state)
{
	struct note_sample of[LIMIT_AUDIT_SAMPLES];

	(void)state;
	timeline_begin(s, &b);
	b.ended_ns = b.opened_ns + 7 * 1000000;
	timeline_end(s, &b);
	assert_null(b.timeline);
	assert_int_equal(hear(of), 1);
	assert_int_equal(of[0].at_ms, 7);
}

/* However long it is: in order, as far from each other everywhere, no more than fit, and never more than half of them gone. */
static void test_any_length(void **state)
{
	static const unsigned lengths[] = {1, 8, 127, 128, 129, 200, 600};
	struct note_sample of[LIMIT_AUDIT_SAMPLES];

	(void)state;
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
		unsigned at = 0, count, looks = 0;

		timeline_begin(s, &b);
		while (looks < lengths[i]) {
			at += (unsigned)(b.timeline->every_ns / 1000000);
			look_at(at);
			looks++;
		}
		timeline_end(s, &b);
		count = hear(of);
		assert_in_range(count, lengths[i] < LIMIT_AUDIT_SAMPLES ? lengths[i] + 1 : LIMIT_AUDIT_SAMPLES / 2,
				LIMIT_AUDIT_SAMPLES);
		for (unsigned k = 1; k + 1 < count; k++) {
			const unsigned step = of[k].at_ms - of[k - 1].at_ms, first = of[1].at_ms - of[0].at_ms;

			if (of[k].at_ms <= of[k - 1].at_ms)
				fail_msg("of %u looks, %u after %u", lengths[i], of[k].at_ms, of[k - 1].at_ms);
			assert_in_range(step, first / 2,
					first * 2); /* it was looked at a moment late, or the pace has changed */
		}
	}
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
	    CASE(test_nothing_runs),
	    CASE(test_a_short_run_has_its_end),
	    CASE(test_any_length),
	};

	return cmocka_run_group_tests_name("timeline", tests, NULL, NULL);
}
