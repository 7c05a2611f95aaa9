/* SPDX-License-Identifier: Apache-2.0 */
/* When init stops listening for refused calls: with a real listener, and what poll() can say of one. No root is needed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init_steps.h"

/* A child with a listener, which waits to be killed; both have one table of descriptors, as in init. */
static pid_t start(int *ret_listener)
{
	struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	const struct sock_fprog program = {.len = 1, .filter = allow};
	int sv[2], listener;
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, 0);
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
		if (write(sv[1], &listener, sizeof listener) == sizeof listener)
			pause();
		_exit(1);
	}
	assert_int_equal(read(sv[0], ret_listener, sizeof *ret_listener), sizeof *ret_listener);
	assert_true(*ret_listener >= 0);
	close(sv[0]);
	close(sv[1]);
	return pid;
}

static void with_the_last_that_could_ask(void **state)
{
	struct pollfd p = {.events = POLLIN};
	pid_t pid = start(&p.fd);

	(void)state;
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_false(init_is_over(p.revents));
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(poll(&p, 1, 10000), 1);
	assert_true(init_is_over(p.revents));
	close(p.fd);
	assert_int_equal(poll(&p, 1, 0), 1);
	assert_true(init_is_over(p.revents));
}

/* The kernel says so when it could not look: somebody else had the lock, and a signal came. */
static void not_with_an_error(void **state)
{
	(void)state;
	assert_false(init_is_over(POLLERR));
	assert_false(init_is_over(POLLIN | POLLERR));
	assert_true(init_is_over(POLLIN | POLLHUP));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(with_the_last_that_could_ask),
	    cmocka_unit_test(not_with_an_error),
	};

	return cmocka_run_group_tests_name("init_listener", tests, NULL, NULL);
}
