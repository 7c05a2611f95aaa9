/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system call filter, asked one call at a time: each question is put in a child under the real filter, and the kernel
 * answers. No root is needed: no_new_privs is enough.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "elfdeps.h"
#include "core/policy.h"
#include "filter.h"
#include "plan.h"

static struct sock_fprog program;

/* The errno of one call under the filter, 0 when it worked, or minus the signal that ended the child. */
static int ask(long nr, unsigned long a, unsigned long b, unsigned long c)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		long rc;

		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
		    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
			syscall(SYS_exit_group, 255);
		rc = syscall(nr, a, b, c, 0, 0, 0);
		syscall(SYS_exit_group, rc < 0 ? errno : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

#define HIGH (1ul << 32)

static const struct {
	const char *what;
	long nr;
	unsigned long a, b, c;
	int want;
} questions[] = {
    {"TCP", SYS_socket, AF_INET, SOCK_STREAM, 0, 0},
    {"TCP by number", SYS_socket, AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 6, 0},
    {"UDP", SYS_socket, AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 17, 0},
    {"unix", SYS_socket, AF_UNIX, SOCK_SEQPACKET, 0, 0},
    {"raw", SYS_socket, AF_INET, SOCK_RAW, 1, EPERM},
    {"raw IPv6", SYS_socket, AF_INET6, SOCK_RAW, 58, EPERM},
    {"ping", SYS_socket, AF_INET, SOCK_DGRAM, 1, EPROTONOSUPPORT},
    {"UDP-Lite", SYS_socket, AF_INET, SOCK_DGRAM, 136, EPROTONOSUPPORT},
    {"SCTP", SYS_socket, AF_INET, SOCK_STREAM, 132, EPROTONOSUPPORT},
    {"SCTP seqpacket", SYS_socket, AF_INET, SOCK_SEQPACKET, 132, EPERM},
    {"MPTCP", SYS_socket, AF_INET, SOCK_STREAM, 262, EPROTONOSUPPORT},
    {"DCCP", SYS_socket, AF_INET, 6, 33, EPERM},
    {"packet", SYS_socket, AF_PACKET, SOCK_RAW, 0, EAFNOSUPPORT},
    {"packet, high half set", SYS_socket, HIGH | AF_PACKET, SOCK_RAW, 0, EAFNOSUPPORT},
    {"raw, high half set", SYS_socket, AF_INET, HIGH | SOCK_RAW, 1, EPERM},
    {"netlink", SYS_socket, AF_NETLINK, SOCK_RAW, 0, EAFNOSUPPORT},
    {"vsock", SYS_socket, AF_VSOCK, SOCK_STREAM, 0, EAFNOSUPPORT},
    {"alg", SYS_socket, AF_ALG, SOCK_SEQPACKET, 0, EAFNOSUPPORT},
    {"a family of tomorrow", SYS_socket, 99, SOCK_STREAM, 0, ENOSYS},
    {"clone into a user namespace", SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, EPERM},
    {"clone into a network namespace", SYS_clone, CLONE_NEWNET | SIGCHLD, 0, 0, EPERM},
    {"unshare", SYS_unshare, CLONE_NEWUSER, 0, 0, EPERM},
    {"setns", SYS_setns, 0, 0, 0, EPERM},
    {"mount", SYS_mount, 0, 0, 0, EPERM},
    {"bpf", SYS_bpf, 0, 0, 0, EPERM},
    {"ptrace", SYS_ptrace, 0, 0, 0, EPERM},
    {"keyctl", SYS_keyctl, 0, 0, 0, EPERM},
    {"clone3", SYS_clone3, 0, 0, 0, ENOSYS},
    {"io_uring", SYS_io_uring_setup, 1, 0, 0, ENOSYS},
    {"a number of tomorrow", 1000, 0, 0, 0, ENOSYS},
    {"TIOCSTI", SYS_ioctl, 0, TIOCSTI, 0, EPERM},
    {"TIOCSTI, high half set", SYS_ioctl, 0, HIGH | TIOCSTI, 0, EPERM},
    {"TIOCLINUX", SYS_ioctl, 0, TIOCLINUX, 0, EPERM},
    {"core limit", SYS_setrlimit, RLIMIT_CORE, 0, 0, EPERM},
    {"core limit by prlimit", SYS_prlimit64, 0, RLIMIT_CORE, 1, EPERM},
    {"another limit", SYS_prlimit64, 0, RLIMIT_NOFILE, 0, 0},
    {"send", SYS_sendto, 99, 0, 0, EBADF},
    {"sync is not done", SYS_sync, 0, 0, 0, 0},
    {"syncfs is not done", SYS_syncfs, 99, 0, 0, 0},
    {"an option of sockets", SYS_setsockopt, 99, SOL_SOCKET, SO_REUSEADDR, EBADF},
    {"UDP_CORK", SYS_setsockopt, 99, IPPROTO_UDP, 1, EPERM},
    {"UDP_CORK, high half set", SYS_setsockopt, 99, HIGH | IPPROTO_UDP, HIGH | 1, EPERM},
    {"UDP_SEGMENT", SYS_setsockopt, 99, IPPROTO_UDP, 103, EBADF},
    {"more to come, sendmsg", SYS_sendmsg, 99, 0, MSG_MORE, EOPNOTSUPP},
    {"more to come, high half set", SYS_sendmsg, 99, 0, HIGH | MSG_MORE | MSG_DONTWAIT, EOPNOTSUPP},
    {"error reports are not made", SYS_setsockopt, 99, IPPROTO_IP, 11, 0},
    {"error reports over IPv6 are not made", SYS_setsockopt, 99, IPPROTO_IPV6, 25, 0},
    {"joining a group", SYS_setsockopt, 99, IPPROTO_IP, 35, EPERM},
    {"joining an IPv6 group", SYS_setsockopt, 99, IPPROTO_IPV6, 20, EPERM},
    {"sticky IPv6 options", SYS_setsockopt, 99, HIGH | IPPROTO_IPV6, 6, EPERM},
    {"IP options", SYS_setsockopt, 99, IPPROTO_IP, 4, EPERM},
    {"a routing header", SYS_setsockopt, 99, IPPROTO_IPV6, 57, EPERM},
    {"no delay", SYS_setsockopt, 99, 6, 1, EBADF},
    {"IPv6 only", SYS_setsockopt, 99, IPPROTO_IPV6, 26, EBADF},
    {"an option of tomorrow", SYS_setsockopt, 99, IPPROTO_IP, 300, ENOSYS},
    {"splice of nothing", SYS_splice, 99, 0, 99, 0},
    {"a socket filter", SYS_setsockopt, 99, SOL_SOCKET, SO_ATTACH_FILTER, EPERM},
    {"a socket filter, high half set", SYS_setsockopt, 99, HIGH | SOL_SOCKET, HIGH | SO_ATTACH_BPF, EPERM},
    {"a seccomp filter of its own", SYS_prctl, PR_SET_SECCOMP, 2, 0, EPERM},
    {"a name", SYS_prctl, PR_SET_NAME, (unsigned long)"x", 0, 0},
    {"huge pages by memfd", SYS_memfd_create, (unsigned long)"x", 4, 0, ENOMEM},
    {"huge pages by shmget", SYS_shmget, 0, 4096, 04000, ENOMEM},
    {"x32", 0x40000000 | SYS_getpid, 0, 0, 0, -SIGSYS},
};

static void each_call_has_its_answer(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
		int got = ask(questions[i].nr, questions[i].a, questions[i].b, questions[i].c);

		if (got != questions[i].want)
			fail_msg("%s: %d, should be %d", questions[i].what, got, questions[i].want);
	}
}

static void without_the_filter_they_differ(void **state)
{
	/* So that the test above can fail: an empty filter lets the same calls through to the kernel. */
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog saved = program;

	(void)state;
	program = (struct sock_fprog){1, &allow};
	assert_int_equal(ask(SYS_socket, AF_NETLINK, SOCK_RAW, 0), 0);
	assert_int_equal(ask(SYS_setrlimit, RLIMIT_CORE, 0, 0), EFAULT);
	program = saved;
}

/* ---- a policy can tighten it ---- */

static struct policy *parse(const char *members)
{
	struct policy *p = NULL;
	char text[1024];
	struct err e = {0};

	snprintf(text, sizeof text, "{\"name\": \"t\", \"default\": \"deny\"%s%s}", members[0] ? ", " : "", members);
	if (policy_parse(text, strlen(text), &p, &e) < 0)
		fail_msg("%s: %s: %s", members, e.where, e.msg);
	return p;
}

static struct sock_fprog read_program(int fd, size_t bytes, size_t at)
{
	struct sock_fprog ret = {.len = (unsigned short)(bytes / sizeof *ret.filter), .filter = calloc(1, bytes)};

	assert_int_equal(bytes % sizeof *ret.filter, 0);
	assert_int_equal(pread(fd, ret.filter, bytes, (off_t)at), (ssize_t)bytes);
	return ret;
}

/* All three parts of a payload's filter. */
static struct sock_fprog under_counted(const char *members, struct filter_answers *ret_answers, struct sock_fprog *ret_counted)
{
	struct policy *p = parse(members);
	struct sock_fprog ret;
	struct err e = {0};
	size_t first;
	uint32_t len;
	off_t end;
	int fd;

	if (filter_compile_snippet(p, &fd, &len, &e) < 0)
		fail_msg("%s: %s: %s", members, e.where, e.msg);
	first = len * sizeof *ret.filter;
	end = lseek(fd, 0, SEEK_END);
	ret = read_program(fd, first, 0);
	assert_int_equal(pread(fd, ret_answers, sizeof *ret_answers, (off_t)first), sizeof *ret_answers);
	*ret_counted = read_program(fd, (size_t)end - first - sizeof *ret_answers, first + sizeof *ret_answers);
	close(fd);
	policy_free(p);
	return ret;
}

static struct sock_fprog under(const char *members)
{
	struct filter_answers answers;
	struct sock_fprog counted, ret = under_counted(members, &answers, &counted);

	free(counted.filter);
	return ret;
}

#define NO_UNIX "\"sockets\": {\"families\": [\"inet\", \"inet6\"]}"
#define NO_INET6 "\"sockets\": {\"families\": [\"unix\", \"inet\"]}"
#define ONLY_STREAM "\"sockets\": {\"types\": [\"stream\"]}"
#define ONLY_TCP "\"sockets\": {\"protocols\": [\"tcp\"]}"
#define NO_SOCKETS "\"sockets\": {\"families\": [], \"types\": [], \"protocols\": []}"

static const struct {
	const char *members;
	long nr;
	unsigned long a, b, c;
	int want;
} tightened[] = {
    {NO_UNIX, SYS_socket, AF_UNIX, SOCK_STREAM, 0, EAFNOSUPPORT},
    {NO_UNIX, SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, EAFNOSUPPORT},
    {NO_UNIX, SYS_socket, AF_INET, SOCK_STREAM, 0, 0},
    {NO_INET6, SYS_socket, AF_INET6, SOCK_STREAM, 0, EAFNOSUPPORT},
    {NO_INET6, SYS_socket, HIGH | AF_INET6, SOCK_DGRAM, 17, EAFNOSUPPORT},
    {NO_INET6, SYS_socket, AF_INET, SOCK_DGRAM, 17, 0},
    {NO_INET6, SYS_socket, AF_NETLINK, SOCK_RAW, 0, EAFNOSUPPORT},
    {ONLY_STREAM, SYS_socket, AF_INET, SOCK_DGRAM, 0, EPERM},
    {ONLY_STREAM, SYS_socket, AF_INET, SOCK_DGRAM, 17, EPERM},
    {ONLY_STREAM, SYS_socket, AF_INET, SOCK_RAW, 1, EPERM},
    {ONLY_STREAM, SYS_socket, AF_UNIX, SOCK_DGRAM, 0, EPERM},
    {ONLY_STREAM, SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0, EPERM},
    {ONLY_STREAM, SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, 0},
    {ONLY_STREAM, SYS_socket, AF_INET6, SOCK_STREAM, 6, 0},
    {ONLY_STREAM, SYS_socket, AF_INET, SOCK_STREAM, 132, EPROTONOSUPPORT},
    {ONLY_TCP, SYS_socket, AF_INET, SOCK_DGRAM, 0, EPROTONOSUPPORT},
    {ONLY_TCP, SYS_socket, AF_INET, SOCK_DGRAM, 17, EPROTONOSUPPORT},
    {ONLY_TCP, SYS_socket, AF_INET, SOCK_DGRAM, 1, EPROTONOSUPPORT},
    {ONLY_TCP, SYS_socket, AF_INET, SOCK_STREAM, 0, 0},
    {ONLY_TCP, SYS_socket, AF_UNIX, SOCK_DGRAM, 0, 0},
    {NO_SOCKETS, SYS_socket, AF_UNIX, SOCK_STREAM, 0, EAFNOSUPPORT},
    {NO_SOCKETS, SYS_socket, AF_INET, SOCK_STREAM, 0, EAFNOSUPPORT},
    {NO_SOCKETS, SYS_socket, AF_INET6, SOCK_DGRAM, 0, EAFNOSUPPORT},
    {"", SYS_listen, 99, 1, 0, EBADF},
    {"\"listen\": \"allow\"", SYS_listen, 99, 1, 0, EBADF},
    {"\"listen\": \"deny\"", SYS_listen, 99, 1, 0, EACCES},
    {"\"listen\": \"deny\"", SYS_bind, 99, 0, 0, EBADF},
    /* allowed by the table, by a condition of it, refused by it, unknown to it */
    {"\"syscalls\": [{\"names\": [\"chmod\"]}]", SYS_chmod, 0, 0, 0, EPERM},
    {"\"syscalls\": [{\"names\": [\"chmod\"], \"errno\": \"EROFS\"}]", SYS_chmod, 0, 0, 0, EROFS},
    {"\"syscalls\": [{\"names\": [\"chmod\"], \"action\": \"kill\"}]", SYS_chmod, 0, 0, 0, -SIGSYS},
    {"\"syscalls\": [{\"names\": [\"chmod\"]}]", SYS_fchmod, 99, 0, 0, EBADF},
    {"\"syscalls\": [{\"names\": [\"socket\"], \"errno\": 13}]", SYS_socket, AF_INET, SOCK_STREAM, 0, EACCES},
    {"\"syscalls\": [{\"names\": [\"prctl\"], \"action\": \"kill\"}]", SYS_prctl, PR_GET_NAME, 0, 0, -SIGSYS},
    {"\"syscalls\": [{\"names\": [\"ptrace\"], \"action\": \"kill\"}]", SYS_ptrace, 0, 0, 0, -SIGSYS},
    {"\"syscalls\": [{\"names\": [\"ptrace\"], \"errno\": \"ENOSYS\"}]", SYS_ptrace, 0, 0, 0, ENOSYS},
    {"\"syscalls\": [{\"names\": [\"clone3\"]}]", SYS_clone3, 0, 0, 0, EPERM},
    {"\"syscalls\": [{\"names\": [\"sync\"]}]", SYS_sync, 0, 0, 0, EPERM},
    {"\"syscalls\": [{\"names\": [\"listen\"]}], \"listen\": \"deny\"", SYS_listen, 99, 1, 0, EPERM},
    {"\"syscalls\": [{\"names\": [\"@debug\"], \"action\": \"kill\"}]", SYS_ptrace, 0, 0, 0, -SIGSYS},
};

static void a_policy_tightens(void **state)
{
	struct sock_fprog saved = program;

	(void)state;
	for (size_t i = 0; i < sizeof tightened / sizeof tightened[0]; i++) {
		int got;

		program = under(tightened[i].members);
		got = ask(tightened[i].nr, tightened[i].a, tightened[i].b, tightened[i].c);
		free(program.filter);
		if (got != tightened[i].want)
			fail_msg("%s, call %ld: %d, should be %d", tightened[i].members, tightened[i].nr, got,
				 tightened[i].want);
	}
	program = saved;
}

/* A policy that says nothing of sockets or calls changes nothing: the same instructions. */
static void a_silent_policy_changes_nothing(void **state)
{
	struct sock_fprog same = under("");

	(void)state;
	assert_int_equal(same.len, program.len);
	assert_memory_equal(same.filter, program.filter, program.len * sizeof *program.filter);
	free(same.filter);
}

/*
 * The part that has a listener answer refuses what the other refuses. Without one the kernel says ENOSYS for it: so it shows
 * for which calls the listener is asked, and they are just those that it has an answer for.
 */
static void the_listener_answers_alike(void **state)
{
	struct sock_fprog saved = program, plain, counted;
	struct filter_answers answers;
	unsigned asked = 0, calls = 0;

	(void)state;
	plain = under_counted("", &answers, &counted);
	for (size_t nr = 0; nr < FILTER_NUMBERS; nr++)
		calls += answers.error[nr] != 0;
	assert_true(calls > 60);
	program = counted;
	for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
		const unsigned answer = questions[i].nr < FILTER_NUMBERS ? answers.error[questions[i].nr] : 0;
		const int got = ask(questions[i].nr, questions[i].a, questions[i].b, questions[i].c);

		asked += answer != 0;
		if (answer && (int)answer != questions[i].want)
			fail_msg("%s: the listener says %u, should be %d", questions[i].what, answer, questions[i].want);
		if (got != (answer ? ENOSYS : questions[i].want))
			fail_msg("%s: %d, should be %d", questions[i].what, got, answer ? ENOSYS : questions[i].want);
	}
	assert_true(asked >= 6);
	free(plain.filter);
	free(counted.filter);
	program = saved;
}

/* What a policy refuses by name is asked for too, with its own errno; what it refuses by killing is not. */
static void the_listener_answers_as_the_policy_says(void **state)
{
	static const char members[] =
	    "\"listen\": \"deny\", \"syscalls\": [{\"names\": [\"chmod\"], \"action\": \"errno\", \"errno\": \"EROFS\"}, "
	    "{\"names\": [\"ptrace\"], \"action\": \"kill\"}]";
	struct sock_fprog plain, counted;
	struct filter_answers answers;

	(void)state;
	plain = under_counted(members, &answers, &counted);
	assert_int_equal(answers.error[SYS_listen], EACCES);
	assert_int_equal(answers.error[SYS_chmod], EROFS);
	assert_int_equal(answers.error[SYS_ptrace], 0);
	assert_int_equal(answers.error[SYS_unshare], EPERM);
	assert_int_equal(answers.error[SYS_read], 0);
	assert_int_equal(answers.error[SYS_clone3], 0);
	free(plain.filter);
	free(counted.filter);
}

static void what_no_sandbox_has_is_refused(void **state)
{
	static const struct {
		const char *members, *where, *word;
	} rows[] = {
	    {"\"sockets\": {\"families\": [\"inet\", \"netlink\"]}", "/sockets/families", "netlink"},
	    {"\"sockets\": {\"families\": [\"packet\"]}", "/sockets/families", "packet"},
	    {"\"sockets\": {\"families\": [\"vsock\"]}", "/sockets/families", "vsock"},
	    {"\"sockets\": {\"types\": [\"raw\"]}", "/sockets/types", "raw"},
	    {"\"sockets\": {\"protocols\": [\"tcp\", \"icmp\"]}", "/sockets/protocols", "icmp"},
	    {"\"sockets\": {\"protocols\": [\"udplite\"]}", "/sockets/protocols", "udplite"},
	    {"\"sockets\": {\"protocols\": [\"sctp\"]}", "/sockets/protocols", "sctp"},
	    {"\"sockets\": {\"protocols\": [\"dccp\"]}", "/sockets/protocols", "dccp"},
	    {"\"sockets\": {\"protocols\": [\"mptcp\"]}", "/sockets/protocols", "mptcp"},
	    {"\"syscalls\": [{\"names\": [\"execve\"]}]", "/syscalls", "execve"},
	    {"\"syscalls\": [{\"names\": [\"close_range\"]}]", "/syscalls", "close_range"},
	    {"\"syscalls\": [{\"names\": [\"chdir\"]}]", "/syscalls", "chdir"},
	    {"\"syscalls\": [{\"names\": [\"chmod\"]}, {\"names\": [\"read\"], \"action\": \"kill\"}]", "/syscalls", "read"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct policy *p = parse(rows[i].members);
		struct err e = {0};
		uint32_t len = 77;
		int fd = -7;

		assert_int_equal(filter_check(p, &e), -EOPNOTSUPP);
		assert_string_equal(e.where, rows[i].where);
		assert_non_null(strstr(e.msg, rows[i].word));
		assert_int_equal(filter_compile_snippet(p, &fd, &len, &e), -EOPNOTSUPP);
		assert_true(fd == -7 && len == 77);
		policy_free(p);
	}
}

static void init_may_do_next_to_nothing(void **state)
{
	struct err e;
	int fd;
	uint32_t len;
	struct sock_fprog saved = program;

	(void)state;
	assert_int_equal(filter_compile(FILTER_INIT, &fd, &len, &e), 0);
	program.len = (unsigned short)len;
	program.filter = calloc(len, sizeof *program.filter);
	assert_int_equal(pread(fd, program.filter, len * sizeof *program.filter, 0), (ssize_t)(len * sizeof *program.filter));
	assert_int_equal(ask(SYS_wait4, (unsigned long)-1, 0, 0), ECHILD);
	assert_int_equal(ask(SYS_sendto, 99, 0, 0), EBADF);
	assert_int_equal(ask(SYS_poll, 0, 0, 0), 0);
	assert_int_equal(ask(SYS_ioctl, 99, SECCOMP_IOCTL_NOTIF_RECV, 0), EBADF);
	assert_int_equal(ask(SYS_ioctl, 99, SECCOMP_IOCTL_NOTIF_SEND, 0), EBADF);
	assert_int_equal(ask(SYS_ioctl, 99, SECCOMP_IOCTL_NOTIF_ADDFD, 0), -SIGSYS);
	assert_int_equal(ask(SYS_ioctl, 0, TIOCGWINSZ, 0), -SIGSYS);
	assert_int_equal(ask(SYS_openat, 0, 0, 0), -SIGSYS);
	assert_int_equal(ask(SYS_socket, AF_UNIX, SOCK_STREAM, 0), -SIGSYS);
	free(program.filter);
	program = saved;
	close(fd);
}

static void libraries_are_found(void **state)
{
	struct elfdeps *d = elfdeps_new();
	struct err e;
	int libc = 0;

	(void)state;
	assert_non_null(d);
	assert_int_equal(elfdeps_add(d, "/proc/self/exe", &e), 0);
	assert_int_equal(elfdeps_add(d, "/etc/passwd", &e), 0); /* not an ELF file: nothing */
	assert_true(elfdeps_add(d, "/nowhere", &e) < 0);
	for (size_t i = 0; elfdeps_soname(d, i); i++) {
		libc += !strcmp(elfdeps_soname(d, i), "libc.so.6");
		assert_int_equal(access(elfdeps_path(d, i), R_OK), 0);
	}
	assert_int_equal(libc, 1);
	assert_true(strstr(elfdeps_loader(d), "ld-linux") != NULL);
	elfdeps_free(d);
}

static int load(void **state)
{
	struct err e;
	int fd;
	uint32_t len;

	(void)state;
	if (filter_compile(FILTER_SNIPPET, &fd, &len, &e) < 0)
		return -1;
	program.len = (unsigned short)len;
	program.filter = calloc(len, sizeof *program.filter);
	if (pread(fd, program.filter, len * sizeof *program.filter, 0) != (ssize_t)(len * sizeof *program.filter))
		return -1;
	close(fd);
	return 0;
}

static int unload(void **state)
{
	(void)state;
	free(program.filter);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_call_has_its_answer),
	    cmocka_unit_test(without_the_filter_they_differ),
	    cmocka_unit_test(a_policy_tightens),
	    cmocka_unit_test(a_silent_policy_changes_nothing),
	    cmocka_unit_test(the_listener_answers_alike),
	    cmocka_unit_test(the_listener_answers_as_the_policy_says),
	    cmocka_unit_test(what_no_sandbox_has_is_refused),
	    cmocka_unit_test(init_may_do_next_to_nothing),
	    cmocka_unit_test(libraries_are_found),
	};

	return cmocka_run_group_tests(tests, load, unload);
}
