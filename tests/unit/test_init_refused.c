/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Init's part in refused system calls (runner/init_refused.c, a part of weir-init), with the real filter, a real listener and a
 * child under it. No root is needed. What happens between hearing of a call and answering it is made to happen there.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void (*before_answer)(void);

static int ioctl_here(int fd, unsigned long request, void *arg)
{
	if (request == SECCOMP_IOCTL_NOTIF_SEND && before_answer)
		before_answer();
	return ioctl(fd, request, arg);
}

#define ioctl(fd, request, arg) ioctl_here(fd, request, (void *)(uintptr_t)(arg))
#include "init_refused.c"
#undef ioctl

#include "core/policy.h"
#include "filter.h"

char init_detail[96];
static uint32_t plan_len, plan_own_len;
static pid_t child;

/* Everything where init has it before it forks. */
static int place(void **state)
{
	static const char text[] = "{\"name\": \"t\", \"default\": \"deny\", \"syscalls\": "
				   "[{\"names\": [\"chmod\"], \"action\": \"errno\", \"errno\": \"EROFS\"}]}";
	int shared = memfd_create("test-refused", MFD_CLOEXEC), filter, own_filter;
	struct policy *p;
	struct err e;

	(void)state;
	if (policy_parse(text, strlen(text), &p, &e) < 0 || filter_compile_snippet(p, &filter, &plan_len, &e) < 0 ||
	    filter_compile(FILTER_INIT, &own_filter, &plan_own_len, &e) < 0)
		return -1;
	policy_free(p);
	if (ftruncate(shared, sizeof(struct refused_calls)) < 0 || dup2(filter, 50) < 0 || dup2(own_filter, 51) < 0 ||
	    dup2(shared, 52) < 0)
		return -1;
	if (dup2(50, INIT_FD_FILTER) < 0 || dup2(51, INIT_FD_OWN_FILTER) < 0 || dup2(52, INIT_FD_REFUSED) < 0)
		return -1;
	return 0;
}

static void a_file_that_is_none_is_refused(void **state)
{
	const struct init_plan good = {.filter_len = plan_len, .own_filter_len = plan_own_len};
	struct init_plan p = good;

	(void)state;
	p.filter_len = plan_len + 1; /* the rest is no whole number of instructions, or another program */
	assert_int_equal(init_read_filters(&good), 0);
	p.filter_len = 4096;
	assert_int_equal(init_read_filters(&p), -1);
	p = good;
	p.own_filter_len = plan_own_len + 1;
	assert_int_equal(init_read_filters(&p), -1);
	assert_int_equal(init_read_filters(&good), 0);
}

static void what_is_no_listener_is_refused(void **state)
{
	int sv[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	assert_int_equal(init_take_listener(sv[0]), -1);
	assert_int_equal(errno, EPROTO);
	assert_int_equal(init_take_listener(-ENOENT), -1);
	assert_int_equal(init_take_listener(900), -1);
	assert_int_equal(init_take_listener(-EBUSY), 0);
	assert_null(calls);
	close(sv[0]);
	close(sv[1]);
}

/* A child under the counted filter, which makes these calls and exits with the errno of the last. */
static int start(const int *numbers, size_t count)
{
	int listener = -1, number, sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	/* As in init: both have one table of descriptors. */
	child = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, 0);
	assert_true(child >= 0);
	if (child == 0) {
		long rc = 0;

		/* It would wait for its answer for ever. */
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
		    init_load_payload_filter(&listener) < 0 || write(sv[1], &listener, sizeof listener) != sizeof listener)
			syscall(SYS_exit_group, 255);
		for (size_t i = 0; i < count; i++)
			rc = syscall(numbers[i], 0, 0, 0, 0, 0, 0);
		syscall(SYS_exit_group, rc < 0 ? errno : 0);
	}
	assert_int_equal(read(sv[0], &number, sizeof number), sizeof number);
	close(sv[0]);
	close(sv[1]);
	assert_int_equal(init_take_listener(number), 0);
	return number;
}

static int end(int listener)
{
	int status;

	close(listener);
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void begin(uint32_t period)
{
	memset(calls, 0, sizeof *calls);
	calls->period = period;
}

static void each_has_its_own_answer(void **state)
{
	static const int numbers[] = {SYS_ptrace, SYS_mount, SYS_ptrace, SYS_chmod};
	const int listener = start(numbers, 4);

	(void)state;
	begin(7);
	for (int i = 0; i < 4; i++)
		assert_int_equal(init_answer(listener), 0);
	assert_int_equal(end(listener), EROFS);
	assert_int_equal(calls->counted, 7);
	assert_int_equal(calls->used, 3);
	assert_int_equal(calls->of[0].number, SYS_ptrace);
	assert_int_equal(calls->of[0].error, EPERM);
	assert_int_equal(calls->of[0].count, 2);
	assert_true(calls->of[0].first_ns && calls->of[0].first_ns < calls->of[0].last_ns);
	assert_int_equal(calls->of[2].number, SYS_chmod);
	assert_int_equal(calls->of[2].error, EROFS);
	assert_int_equal(calls->others, 0);
}

static void a_period_begins_with_nothing(void **state)
{
	static const int numbers[] = {SYS_ptrace, SYS_ptrace, SYS_bpf};
	const int listener = start(numbers, 3);

	(void)state;
	begin(1);
	assert_int_equal(init_answer(listener), 0);
	assert_int_equal(init_answer(listener), 0);
	calls->period = 2; /* as the supervisor does */
	assert_int_equal(calls->of[0].count, 2);
	assert_int_equal(init_answer(listener), 0);
	assert_int_equal(end(listener), EPERM);
	assert_int_equal(calls->counted, 2);
	assert_int_equal(calls->used, 1);
	assert_int_equal(calls->of[0].number, SYS_bpf);
	assert_int_equal(calls->of[0].count, 1);
}

static void more_numbers_than_there_is_room_for(void **state)
{
	int numbers[FILTER_NUMBERS], count_of = 0, listener;

	(void)state;
	for (int nr = 0; nr < FILTER_NUMBERS; nr++)
		if (answers.error[nr])
			numbers[count_of++] = nr;
	assert_true(count_of > LIMIT_AUDIT_SYSCALLS);
	listener = start(numbers, (size_t)count_of);
	begin(1);
	for (int i = 0; i < count_of; i++)
		assert_int_equal(init_answer(listener), 0);
	end(listener);
	assert_int_equal(calls->used, LIMIT_AUDIT_SYSCALLS);
	assert_int_equal(calls->others, count_of - LIMIT_AUDIT_SYSCALLS);
}

static void kill_child(void)
{
	siginfo_t si;

	kill(child, SIGKILL);
	waitid(P_PID, (id_t)child, &si, WEXITED | WNOWAIT);
}

/* Dead before it was told: it was interrupted, not refused. And nothing is wrong. */
static void killed_before_the_answer(void **state)
{
	static const int numbers[] = {SYS_ptrace, SYS_ptrace};
	const int listener = start(numbers, 2);

	(void)state;
	begin(1);
	assert_int_equal(init_answer(listener), 0);
	before_answer = kill_child;
	assert_int_equal(init_answer(listener), 0);
	before_answer = NULL;
	assert_int_equal(end(listener), -SIGKILL);
	assert_int_equal(calls->of[0].count, 1);
	assert_int_equal(calls->of[0].interrupted, 1);
	assert_int_equal(calls->interrupted, 0);
}

static void interrupt_child(void)
{
	kill(child, SIGSTOP);
	waitpid(child, NULL, WUNTRACED);
	kill(child, SIGCONT);
	before_answer = NULL;
}

static bool asks(int listener)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};

	return poll(&p, 1, 10000) == 1;
}

/* Stopped while it waits, as by the freezer, it makes its call once more: it counts once, and so does the interruption. */
static void interrupted_before_the_answer(void **state)
{
	static const int numbers[] = {SYS_ptrace};
	const int listener = start(numbers, 1);

	(void)state;
	begin(1);
	before_answer = interrupt_child;
	assert_int_equal(init_answer(listener), 0);
	assert_null(before_answer);
	assert_int_equal(calls->of[0].count, 0);
	assert_int_equal(calls->of[0].interrupted, 1);
	assert_int_equal(init_answer(listener), 0);
	assert_int_equal(end(listener), EPERM);
	assert_int_equal(calls->used, 1);
	assert_int_equal(calls->of[0].count, 1);
	assert_int_equal(calls->of[0].interrupted, 1);
}

/* What was gone before it was looked at left a hole in the kernel's numbers. */
static void interrupted_before_the_look(void **state)
{
	static const int numbers[] = {SYS_ptrace, SYS_mount};
	const int listener = start(numbers, 2);

	(void)state;
	begin(1);
	assert_int_equal(init_answer(listener), 0);
	for (int i = 0; i < 3; i++) {
		assert_true(asks(listener));
		interrupt_child();
	}
	assert_true(asks(listener));
	assert_int_equal(init_answer(listener), 0);
	assert_int_equal(end(listener), EPERM);
	assert_int_equal(calls->used, 2);
	assert_int_equal(calls->of[1].count, 1);
	assert_int_equal(calls->of[1].interrupted, 0);
	assert_int_equal(calls->interrupted, 3);
}

static void new_period_before_the_answer(void)
{
	calls->period++;
	interrupt_child();
}

/* .. also when it was told of as refused in the meantime: as it comes again, it is not another. */
static void accounted_before_the_answer(void **state)
{
	static const int numbers[] = {SYS_ptrace, SYS_ptrace};
	const int listener = start(numbers, 2);

	(void)state;
	begin(1);
	before_answer = new_period_before_the_answer;
	assert_int_equal(init_answer(listener), 0);
	assert_int_equal(calls->counted, 1);
	assert_int_equal(calls->of[0].count, 1);
	assert_int_equal(init_answer(listener), 0);
	assert_int_equal(calls->counted, 2);
	assert_int_equal(calls->used, 0);
	assert_int_equal(init_answer(listener), 0);
	assert_int_equal(end(listener), EPERM);
	assert_int_equal(calls->used, 1);
	assert_int_equal(calls->of[0].count, 1); /* the next one is one more */
	assert_int_equal(calls->of[0].interrupted, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_file_that_is_none_is_refused),
	    cmocka_unit_test(what_is_no_listener_is_refused),
	    cmocka_unit_test(each_has_its_own_answer),
	    cmocka_unit_test(a_period_begins_with_nothing),
	    cmocka_unit_test(more_numbers_than_there_is_room_for),
	    cmocka_unit_test(killed_before_the_answer),
	    cmocka_unit_test(interrupted_before_the_answer),
	    cmocka_unit_test(interrupted_before_the_look),
	    cmocka_unit_test(accounted_before_the_answer),
	};

	return cmocka_run_group_tests(tests, place, NULL);
}
