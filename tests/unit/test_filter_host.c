/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filter of a command of the host, asked one call at a time: each question is put in a child under the real filter, and
 * the kernel answers. No root is needed: no_new_privs is enough.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "filter_host.h"

#define HIGH (1ul << 32)
#define X32 0x40000000l

struct question {
	const char *what;
	long nr;
	unsigned long a, b, c;
	int want; /* an errno, 0 when it works, or minus the signal that ends the caller */
	int fd;	  /* 1: `a` is to be a socket */
};

static int ask(const struct filter_host *f, const struct question *q)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		unsigned long a = q->fd ? (unsigned long)socket(AF_UNIX, SOCK_STREAM, 0) : q->a;
		long rc;

		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || (f && filter_host_load(f) < 0))
			syscall(SYS_exit_group, 255);
		rc = syscall(q->nr, a, q->b, q->c, 0, 0, 0);
		if (q->nr == SYS_fork && rc == 0)
			syscall(SYS_exit_group, 0);
		syscall(SYS_exit_group, rc < 0 ? errno : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void compile(const char *document, struct filter_host *f)
{
	struct policy *p = NULL;
	struct err e = {0};

	if (policy_parse(document, strlen(document), &p, &e) < 0 || filter_host_compile(p, f, &e) < 0)
		fail_msg("%s: %s: %s", document, e.where, e.msg);
	policy_free(p);
}

static void check(const char *document, const struct question *rows, size_t count)
{
	struct filter_host f;

	compile(document, &f);
	for (size_t i = 0; i < count; i++) {
		int got = ask(&f, &rows[i]);

		if (got != rows[i].want)
			print_error("%s: got %d, wanted %d\n", rows[i].what, got, rows[i].want);
		assert_int_equal(got, rows[i].want);
	}
	filter_host_clear(&f);
}

#define CHECK(document, rows) check(document, rows, sizeof(rows) / sizeof(rows)[0])
#define POLICY(more) "{\"name\": \"t\", \"default\": \"allow\"" more "}"

/* What keeps a command under its policy: by number, and in both modes. */
static void test_contained(void **state)
{
	static const char *const documents[] = {POLICY(""), POLICY(", \"mode\": \"monitor\"")};

	(void)state;
	assert_true(filter_host_refused_count > 30);
	for (size_t d = 0; d < 2; d++)
		for (size_t i = 0; i < filter_host_refused_count; i++) {
			const struct filter_host_call *c = &filter_host_refused[i];
			struct question q = {.what = c->name, .nr = c->nr, .want = c->error};
			int nr = seccomp_syscall_resolve_name(c->name);

			/* The table's numbers are this ABI's; a call may be newer than the library. */
			assert_true(nr == c->nr || nr == __NR_SCMP_ERROR);
			check(documents[d], &q, 1);
			q.a = q.b = q.c = HIGH;
			check(documents[d], &q, 1);
		}
}

static const struct question contained[] = {
    {"clone into a user namespace", SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, EPERM, 0},
    {"clone into a mount namespace", SYS_clone, CLONE_NEWNS | SIGCHLD, 0, 0, EPERM, 0},
    {"clone into a network namespace and more", SYS_clone, CLONE_NEWNET | CLONE_NEWIPC | SIGCHLD, 0, 0, EPERM, 0},
    {"clone into a cgroup namespace", SYS_clone, CLONE_NEWCGROUP | SIGCHLD, 0, 0, EPERM, 0},
    {"unshare of users", SYS_unshare, CLONE_NEWUSER, 0, 0, EPERM, 0},
    {"unshare of mounts", SYS_unshare, CLONE_NEWNS | CLONE_FS, 0, 0, EPERM, 0},
    {"unshare of the cgroup", SYS_unshare, CLONE_NEWCGROUP, 0, 0, EPERM, 0},
    {"unshare of the network", SYS_unshare, CLONE_NEWNET, 0, 0, EPERM, 0},
    {"unshare of time", SYS_unshare, CLONE_NEWTIME, 0, 0, EPERM, 0},
    {"unshare of files", SYS_unshare, CLONE_FILES, 0, 0, 0, 0},
    {"fork", SYS_fork, 0, 0, 0, 0, 0},
    {"TIOCSTI", SYS_ioctl, 99, TIOCSTI, 0, EPERM, 0},
    {"TIOCSTI, high half set", SYS_ioctl, 99, HIGH | TIOCSTI, 0, EPERM, 0},
    {"TIOCLINUX", SYS_ioctl, 99, TIOCLINUX, 0, EPERM, 0},
    {"another ioctl", SYS_ioctl, 99, TIOCGWINSZ, 0, EBADF, 0},
    {"x32", X32 | SYS_getpid, 0, 0, 0, -SIGSYS, 0},
    {"x32 socket", X32 | SYS_socket, AF_INET, SOCK_STREAM, 0, -SIGSYS, 0},
    {"an ordinary call", SYS_getpid, 0, 0, 0, 0, 0},
    {"a number of tomorrow", 1000, 0, 0, 0, ENOSYS, 0},
};

static void test_namespaces(void **state)
{
	(void)state;
	CHECK(POLICY(""), contained);
	CHECK(POLICY(", \"mode\": \"monitor\""), contained);
}

static const struct question sockets_by_default[] = {
    {"TCP", SYS_socket, AF_INET, SOCK_STREAM, 0, 0, 0},
    {"TCP by number, with flags", SYS_socket, AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP, 0, 0},
    {"TCP, high halves set", SYS_socket, HIGH | AF_INET, HIGH | SOCK_STREAM, HIGH, 0, 0},
    {"UDP", SYS_socket, AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, IPPROTO_UDP, 0, 0},
    {"unix", SYS_socket, AF_UNIX, SOCK_SEQPACKET, 0, 0, 0},
    {"unix, raw", SYS_socket, AF_UNIX, SOCK_RAW, 0, EPERM, 0},
    {"ping", SYS_socket, AF_INET, SOCK_DGRAM, IPPROTO_ICMP, EPROTONOSUPPORT, 0},
    {"ping, high half set", SYS_socket, AF_INET, SOCK_DGRAM, HIGH | IPPROTO_ICMP, EPROTONOSUPPORT, 0},
    {"MPTCP", SYS_socket, AF_INET, SOCK_STREAM, IPPROTO_MPTCP, EPROTONOSUPPORT, 0},
    {"SMC by protocol", SYS_socket, AF_INET, SOCK_STREAM, 256, EPROTONOSUPPORT, 0},
    {"SCTP", SYS_socket, AF_INET, SOCK_STREAM, IPPROTO_SCTP, EPROTONOSUPPORT, 0},
    {"SCTP by default", SYS_socket, AF_INET, SOCK_SEQPACKET, 0, EPROTONOSUPPORT, 0},
    {"UDP-Lite", SYS_socket, AF_INET6, SOCK_DGRAM, IPPROTO_UDPLITE, EPROTONOSUPPORT, 0},
    {"L2TP", SYS_socket, AF_INET, SOCK_DGRAM, 115, EPROTONOSUPPORT, 0},
    {"a protocol below zero", SYS_socket, AF_INET, SOCK_STREAM, -1ul, EPROTONOSUPPORT, 0},
    {"raw", SYS_socket, AF_INET, SOCK_RAW, IPPROTO_ICMP, EPERM, 0},
    {"raw, high half set", SYS_socket, AF_INET, HIGH | SOCK_RAW, IPPROTO_RAW, EPERM, 0},
    {"DCCP", SYS_socket, AF_INET, SOCK_DCCP, IPPROTO_DCCP, EPERM, 0},
    {"SOCK_PACKET", SYS_socket, AF_INET, 10, 0, EPERM, 0},
    {"netlink", SYS_socket, AF_NETLINK, SOCK_RAW, 0, EAFNOSUPPORT, 0},
    {"packet", SYS_socket, AF_PACKET, SOCK_RAW, 0, EAFNOSUPPORT, 0},
    {"packet, high half set", SYS_socket, HIGH | AF_PACKET, SOCK_DGRAM, 0, EAFNOSUPPORT, 0},
    {"vsock", SYS_socket, AF_VSOCK, SOCK_STREAM, 0, EAFNOSUPPORT, 0},
    {"XDP", SYS_socket, AF_XDP, SOCK_RAW, 0, EAFNOSUPPORT, 0},
    {"SMC", SYS_socket, AF_SMC, SOCK_STREAM, 0, EAFNOSUPPORT, 0},
    {"no family", SYS_socket, 0, SOCK_STREAM, 0, EAFNOSUPPORT, 0},
    {"a family of tomorrow", SYS_socket, 99, SOCK_STREAM, 0, EAFNOSUPPORT, 0},
    {"a family below zero", SYS_socket, -1ul, SOCK_STREAM, 0, EAFNOSUPPORT, 0},
    {"a pair of netlink sockets", SYS_socketpair, AF_NETLINK, SOCK_RAW, 0, EAFNOSUPPORT, 0},
    {"a pair", SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, EFAULT, 0},
};

static const struct question sockets_few[] = {
    {"TCP", SYS_socket, AF_INET, SOCK_STREAM, 0, EPROTONOSUPPORT, 0},
    {"TCP by number", SYS_socket, AF_INET, SOCK_STREAM, IPPROTO_TCP, EPROTONOSUPPORT, 0},
    {"UDP", SYS_socket, AF_INET, SOCK_DGRAM, 0, EPROTONOSUPPORT, 0},
    {"ping is not permitted to everybody, but it may be asked for", SYS_socket, AF_INET, SOCK_DGRAM, 200, EPROTONOSUPPORT, 0},
    {"IPv6", SYS_socket, AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6, EAFNOSUPPORT, 0},
    {"unix", SYS_socket, AF_UNIX, SOCK_STREAM, 0, EAFNOSUPPORT, 0},
    {"netlink, the one type", SYS_socket, AF_NETLINK, SOCK_DGRAM, 0, 0, 0},
    {"netlink, the other, which is the same", SYS_socket, AF_NETLINK, SOCK_RAW, 0, 0, 0},
    {"netlink, a third", SYS_socket, AF_NETLINK, SOCK_SEQPACKET, 0, EPERM, 0},
};

static const struct question sockets_dccp[] = {
    {"DCCP, which this kernel may not have", SYS_socket, AF_INET, SOCK_DCCP, 1, EPROTONOSUPPORT, 0},
    {"a stream of it", SYS_socket, AF_INET, SOCK_STREAM, 0, EPROTONOSUPPORT, 0},
};

/* In mode monitor all of it is done: what the kernel then says is its own answer. */
static const struct question sockets_watched[] = {
    {"netlink", SYS_socket, AF_NETLINK, SOCK_RAW, 0, 0, 0},
    {"MPTCP or the kernel's own refusal", SYS_socket, AF_INET, SOCK_STREAM, 255, EPROTONOSUPPORT, 0},
    {"a type that is none", SYS_socket, AF_UNIX, 7, 0, ESOCKTNOSUPPORT, 0},
    {"packet", SYS_socket, AF_PACKET, SOCK_RAW, 0, EAFNOSUPPORT, 0},
    {"SOCK_PACKET", SYS_socket, AF_INET, 10, 0, EPERM, 0},
    {"XDP", SYS_socket, AF_XDP, SOCK_RAW, 0, EAFNOSUPPORT, 0},
};

static void test_sockets(void **state)
{
	(void)state;
	CHECK(POLICY(""), sockets_by_default);
	CHECK(
	    POLICY(", \"sockets\": {\"families\": [\"inet\", \"netlink\"], \"types\": [\"dgram\", \"stream\"], \"protocols\": "
		   "[\"icmp\"]}"),
	    sockets_few);
	CHECK(POLICY(", \"sockets\": {\"families\": [\"inet\"], \"types\": [\"stream\"], \"protocols\": [\"dccp\"]}"),
	      sockets_dccp);
	CHECK(POLICY(", \"mode\": \"monitor\""), sockets_watched);
}

static const struct question listen_denied[] = {{"listen", SYS_listen, 0, 1, 0, EACCES, 1}};
static const struct question listen_allowed[] = {{"listen", SYS_listen, 99, 1, 0, EBADF, 0}};

static void test_listen(void **state)
{
	(void)state;
	CHECK(POLICY(", \"listen\": \"deny\""), listen_denied);
	CHECK(POLICY(", \"listen\": \"allow\""), listen_allowed);
	CHECK(POLICY(", \"listen\": \"deny\", \"mode\": \"monitor\""), listen_allowed);
}

#define SYSCALLS                                                                                                               \
	", \"syscalls\": [{\"names\": [\"ptrace\", \"getpgrp\"], \"action\": \"kill\"}, {\"names\": [\"listen\", \"clone3\", " \
	"\"unshare\"], \"errno\": \"EBUSY\"}]"

static const struct question by_policy[] = {
    {"one of ours, killed for", SYS_ptrace, 0, 0, 0, -SIGSYS, 0},
    {"another, killed for", SYS_getpgrp, 0, 0, 0, -SIGSYS, 0},
    {"one of ours, another errno", SYS_clone3, 0, 0, 0, EBUSY, 0},
    {"one that we look into, refused whole", SYS_unshare, CLONE_FILES, 0, 0, EBUSY, 0},
    {"its own errno comes before that of `listen`", SYS_listen, 99, 1, 0, EBUSY, 0},
    {"one that is not named", SYS_getppid, 0, 0, 0, 0, 0},
};
static const struct question by_policy_watched[] = {
    {"one of ours", SYS_ptrace, 0, 0, 0, EPERM, 0},
    {"another", SYS_getpgrp, 0, 0, 0, 0, 0},
    {"one that we look into", SYS_unshare, CLONE_FILES, 0, 0, 0, 0},
    {"and still do", SYS_unshare, CLONE_NEWUSER, 0, 0, EPERM, 0},
};

static void test_syscalls(void **state)
{
	(void)state;
	CHECK(POLICY(SYSCALLS ", \"listen\": \"deny\""), by_policy);
	CHECK(POLICY(SYSCALLS ", \"mode\": \"monitor\""), by_policy_watched);
}

/* Without the filter these get another answer, whoever asks: so it is the filter that refuses. */
static void test_without(void **state)
{
	static const struct question rows[] = {
	    {"unix, raw", SYS_socket, AF_UNIX, SOCK_RAW, 0, 0, 0},
	    {"netlink", SYS_socket, AF_NETLINK, SOCK_RAW, 0, 0, 0},
	    {"unshare of nothing", SYS_unshare, 0, 0, 0, 0, 0},
	    {"listen", SYS_listen, 0, 1, 0, EINVAL, 1},
	    {"ptrace", SYS_ptrace, 0, 0, 0, 0, 0},
	    {"clone3", SYS_clone3, 0, 0, 0, EINVAL, 0},
	    {"TIOCSTI", SYS_ioctl, 99, TIOCSTI, 0, EBADF, 0},
	    {"keyctl", SYS_keyctl, 9999, 0, 0, EOPNOTSUPP, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		assert_int_equal(ask(NULL, &rows[i]), rows[i].want);
}

static void test_equal(void **state)
{
	struct filter_host a, b, c;

	(void)state;
	compile(POLICY(""), &a);
	compile(POLICY(", \"description\": \"x\""), &b);
	compile(POLICY(", \"listen\": \"deny\""), &c);
	assert_true(filter_host_equal(&a, &b));
	assert_false(filter_host_equal(&a, &c));
	filter_host_clear(&a);
	filter_host_clear(&b);
	filter_host_clear(&c);
}

static void test_unknown(void **state)
{
	static const char text[] = POLICY(", \"syscalls\": [{\"names\": [\"no_such_call\"]}]");
	struct filter_host f;
	struct policy *p = NULL;
	struct err e = {0};

	(void)state;
	assert_int_equal(policy_parse(text, sizeof text - 1, &p, &e), 0);
	assert_true(filter_host_compile(p, &f, &e) < 0);
	assert_string_equal(e.where, "/syscalls/0/names/0");
	policy_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_contained), cmocka_unit_test(test_namespaces), cmocka_unit_test(test_sockets),
	    cmocka_unit_test(test_listen),    cmocka_unit_test(test_syscalls),	 cmocka_unit_test(test_without),
	    cmocka_unit_test(test_equal),     cmocka_unit_test(test_unknown),
	};

	return cmocka_run_group_tests_name("filter_host", tests, NULL, NULL);
}
