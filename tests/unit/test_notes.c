/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way to an auditor that does not read: what is dropped, what never is, and that both are counted; and when a policy's
 * document is told. The files themselves, and a socket in the auditor's place.
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

#include "supervisor/account.c"
#include "supervisor/notes.c"
#include "supervisor/policy_text.c"

#define CGROUP 4711

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
	assert_int_equal(ipc_pair(pair, 1 << 16), 0);
	auditor = pair[1];
	assert_int_equal(notes_new(s, pair[0], &e), 0);
	memset(&b, 0, sizeof b);
	box_init(&b);
	snprintf(b.id, sizeof b.id, "sandbox-x");
	b.cgroup.id = CGROUP;
	TAILQ_INSERT_TAIL(&s->boxes, &b, link);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	policy_text_free(s);
	close(s->auditor_src.fd);
	close(s->epoll_fd);
	close(auditor);
	notes_free(s);
	free(b.flows);
	free(s);
	return 0;
}

/* Reads until there is no more; how many of each type came, and which was the last. */
static enum note_type hear(unsigned ret[NOTE_FLUSH + 1])
{
	enum note_type last = NOTE_NONE;
	struct note n;

	do {
		notes_pump(s);
		while (ipc_recv(auditor, &n, sizeof n, NULL, NULL) == (ssize_t)sizeof n) {
			ret[n.type]++;
			last = n.type;
		}
	} while (note_queue_count(s->notes));
	return last;
}

/* However many details of a tenant's wait for an auditor: its end is told after them, the rest of them is counted. */
static void test_details_never_end_the_service(void **state)
{
	static const enum note_type types[] = {NOTE_SYSCALL, NOTE_SAMPLES, NOTE_FLOW, NOTE_EXEC};
	unsigned heard[NOTE_FLUSH + 1] = {0}, sum = 0;
	struct tell_meter told = {0};
	struct note n;

	(void)state;
	for (unsigned i = 0; i < 2 * NOTE_QUEUE_DETAILS; i++) {
		note_init(&n, types[i % 4], &b);
		notes_push_detail(s, &b, &n);
	}
	assert_int_equal(s->fatal, 0);
	for (unsigned i = 0; i < NOTE_QUEUE_REST / 4; i++) {
		note_init(&n, NOTE_RUN_END, &b);
		assert_true(notes_push(s, &n));
	}
	account_dropped(&b, &told);
	assert_int_equal(hear(heard), NOTE_RUN_END);
	assert_int_equal(heard[NOTE_RUN_END], NOTE_QUEUE_REST / 4);
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
		sum += heard[types[i]];
	assert_true(told.details_dropped > 0);
	assert_int_equal(sum + told.details_dropped, 2 * NOTE_QUEUE_DETAILS);
	assert_int_equal(b.details_dropped, 0);
}

/* What must be said and can't be is the end of it all. */
static void test_beginnings_do(void **state)
{
	struct note n;

	(void)state;
	note_init(&n, NOTE_RUN_BEGIN, &b);
	for (unsigned i = 0; i < 2 * NOTE_QUEUE_REST && !s->fatal; i++)
		notes_push(s, &n);
	assert_int_equal(s->fatal, -EPIPE);
}

/* An event that came from the kernel and could not be sent on is as lost as one that never came. */
static void test_events_that_are_dropped_are_lost(void **state)
{
	const struct weir_event ev = {.key = {.cgroup = CGROUP, .verdict = WEIR_DENY}};
	unsigned heard[NOTE_FLUSH + 1] = {0};
	struct weir_sandbox now = {.events = NOTE_QUEUE_DETAILS + 3}; /* three were lost in the kernel */

	(void)state;
	for (unsigned i = 0; i < NOTE_QUEUE_DETAILS; i++)
		on_event(s, &ev);
	assert_true(b.events_dropped > 0);
	hear(heard);
	assert_int_equal(heard[NOTE_EVENT] + b.events_dropped, NOTE_QUEUE_DETAILS);
	assert_int_equal(events_lost(&b, &now), 3 + b.events_dropped);
}

/* A file that can't be read at the end says 0, and that is less than what there was. */
static void test_a_figure_that_is_gone(void **state)
{
	const struct cgroup_usage u = {.cpu_us = 0, .oom_kills = 0, .cpu_source = "", .memory_source = ""};
	struct tell_end end = {0};

	(void)state;
	b.base.oom_kills = 2;
	b.base.cpu_us = 500;
	set_usage(&b, &u, &end);
	assert_int_equal(end.meter.oom_kills, 0);
	assert_int_equal(end.cpu_us, 0);
}

/* ---- documents ---- */

static unsigned parts_told(const struct inforce *f)
{
	unsigned heard[NOTE_FLUSH + 1] = {0};

	if (f)
		policy_text_tell(s, f);
	else
		policy_text_tick(s);
	hear(heard);
	return heard[NOTE_POLICY_TEXT];
}

static void a_day_passes(void)
{
	for (size_t i = 0; i < s->told_policies->count; i++)
		s->told_policies->of[i].at_ns -= AGAIN_NS;
}

/* Once, and again when a day has passed: both by itself, while it is in force, and when it is back in force. */
static void test_a_document_is_told_once_a_day(void **state)
{
	static char text[NOTE_POLICY_PART + 1];
	struct policy one = {.hash = {1}}, two = {.hash = {2}};
	const struct inforce other = {.policy = &two, .text = text, .text_len = 1};

	(void)state;
	assert_int_equal(parts_told(NULL), 0);
	s->inforce[SLOT_SNIPPET] = (struct inforce){.policy = &one, .text = text, .text_len = sizeof text};
	assert_int_equal(parts_told(&s->inforce[SLOT_SNIPPET]), 2);
	assert_int_equal(parts_told(&s->inforce[SLOT_SNIPPET]), 0);
	assert_int_equal(parts_told(&other), 1);
	assert_int_equal(parts_told(NULL), 0);
	a_day_passes();
	assert_int_equal(parts_told(NULL), 2);
	assert_int_equal(parts_told(NULL), 0);
	assert_int_equal(parts_told(&other), 1);
	assert_int_equal(parts_told(&other), 0);
	assert_int_equal(s->told_policies->count, 2);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
	    CASE(test_details_never_end_the_service),	 CASE(test_beginnings_do),
	    CASE(test_events_that_are_dropped_are_lost), CASE(test_a_figure_that_is_gone),
	    CASE(test_a_document_is_told_once_a_day),
	};

	return cmocka_run_group_tests_name("notes", tests, NULL, NULL);
}
