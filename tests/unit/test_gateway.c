/* SPDX-License-Identifier: Apache-2.0 */
/* What a carrier may ask of the kernel, by asking it; whose datagrams it takes; which name servers a sandbox is told of. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/answers.h"
#include "gateway/internal.h"
#include "supervisor/internal.h"

/* ---- system calls ---- */

#define KILLED (-1) /* the process ended with SIGSYS */

static const struct call {
	const char *what;
	long number, a, b, c, d;
	int expect; /* an errno, 0 for success, or KILLED */
} calls[] = {
    {"a TCP socket", SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, 0, 0},
    {"a UDP socket", SYS_socket, AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP, 0, 0},
    {"a ping socket", SYS_socket, AF_INET, SOCK_DGRAM, IPPROTO_ICMP, 0, EPERM},
    {"a raw socket", SYS_socket, AF_INET, SOCK_RAW, IPPROTO_ICMP, 0, EPERM},
    {"another protocol", SYS_socket, AF_INET, SOCK_STREAM, IPPROTO_MPTCP, 0, EPERM},
    {"a UNIX socket", SYS_socket, AF_UNIX, SOCK_STREAM, 0, 0, EPERM},
    {"a netlink socket", SYS_socket, AF_NETLINK, SOCK_RAW, 0, 0, EPERM},
    {"a packet socket", SYS_socket, AF_PACKET, SOCK_RAW, 0, 0, EPERM},
    {"a vsock", SYS_socket, AF_VSOCK, SOCK_STREAM, 0, 0, EPERM},
    {"two connected sockets", SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, 0, EPERM},
    {"a socket to be connected to", SYS_listen, 0, 1, 0, 0, EPERM},
    {"an address of its own", SYS_bind, 0, 0, 0, 0, EPERM},
    {"to read a file", SYS_openat, AT_FDCWD, (long)"/", O_RDONLY | O_CLOEXEC, 0, 0},
    {"to write to a file", SYS_openat, AT_FDCWD, (long)"/dev/null", O_WRONLY, 0, EPERM},
    {"to read and write a file", SYS_openat, AT_FDCWD, (long)"/dev/null", O_RDWR, 0, EPERM},
    {"to make a file", SYS_openat, AT_FDCWD, (long)"/x", O_RDONLY | O_CREAT, 0600, EPERM},
    {"to hold a file", SYS_openat, AT_FDCWD, (long)"/", O_PATH, 0, EPERM},
    {"to remove a file", SYS_unlinkat, AT_FDCWD, (long)"/x", 0, 0, EPERM},
    {"memory that can be run", SYS_mprotect, 0, 4096, PROT_READ | PROT_EXEC, 0, EPERM},
    {"another program", SYS_execve, (long)"/bin/true", 0, 0, 0, KILLED},
    {"another process", SYS_fork, 0, 0, 0, 0, KILLED},
    {"another thread", SYS_clone, CLONE_VM, 0, 0, 0, KILLED},
    {"another process, the new way", SYS_clone3, 0, 0, 0, 0, KILLED},
    {"to trace", SYS_ptrace, 0, 0, 0, 0, KILLED},
    {"to read another process", SYS_process_vm_readv, 1, 0, 0, 0, KILLED},
    {"to mount", SYS_mount, 0, 0, 0, 0, KILLED},
    {"another namespace", SYS_setns, 0, 0, 0, 0, KILLED},
    {"new namespaces", SYS_unshare, CLONE_NEWNET, 0, 0, 0, KILLED},
    {"another root", SYS_chroot, (long)"/", 0, 0, 0, KILLED},
    {"to be somebody else", SYS_setresuid, 0, 0, 0, 0, KILLED},
    {"eBPF", SYS_bpf, 0, 0, 0, 0, KILLED},
    {"io_uring", SYS_io_uring_setup, 0, 0, 0, 0, KILLED},
    {"a file by its handle", SYS_open_by_handle_at, 0, 0, 0, 0, KILLED},
    {"to end somebody else", SYS_kill, 1, 0, 0, 0, EPERM},
};

static struct carrier_filter filter;

/* What becomes of it in a process that has nothing but the filter. */
static int attempt(const struct call *c)
{
	const struct sock_fprog prog = {.len = filter.len, .filter = filter.code};
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		long rc;

		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
			_exit(255);
		rc = syscall(c->number, c->a, c->b, c->c, c->d);
		_exit(rc < 0 ? errno : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
		return KILLED;
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void calls_of_a_carrier(void **state)
{
	struct err e = {0};

	(void)state;
	assert_int_equal(carrier_filter_compile(&filter, &e), 0);
	if (!filter.len) {
		print_message("skip: there is no filter in a build with sanitizers, whose runtime needs more\n");
		skip();
	}
	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
		int got = attempt(&calls[i]);

		if (got != calls[i].expect)
			fail_msg("%s: %d, should be %d", calls[i].what, got, calls[i].expect);
	}
}

/* ---- datagrams ---- */

#define HEAD 14 /* of Ethernet */

struct frame {
	uint8_t bytes[128];
	size_t len;
};

/* A datagram without content. `offset`: of a piece of one, in units of eight bytes. */
static struct frame ipv4(const char *from, uint16_t sport, const char *to, uint16_t dport, uint16_t offset)
{
	struct frame f = {.len = HEAD + 28};
	uint8_t *ip = f.bytes + HEAD;

	f.bytes[12] = 0x08;
	ip[0] = 0x45;
	ip[6] = (uint8_t)(offset >> 8);
	ip[7] = (uint8_t)offset;
	ip[9] = IPPROTO_UDP;
	inet_pton(AF_INET, from, ip + 12);
	inet_pton(AF_INET, to, ip + 16);
	ip[20] = (uint8_t)(sport >> 8);
	ip[21] = (uint8_t)sport;
	ip[22] = (uint8_t)(dport >> 8);
	ip[23] = (uint8_t)dport;
	return f;
}

static struct frame ipv6(const char *from, uint16_t sport, const char *to, uint16_t dport)
{
	struct frame f = {.len = HEAD + 48};
	uint8_t *ip = f.bytes + HEAD;

	f.bytes[12] = 0x86;
	f.bytes[13] = 0xdd;
	ip[0] = 0x60;
	ip[6] = IPPROTO_UDP;
	inet_pton(AF_INET6, from, ip + 8);
	inet_pton(AF_INET6, to, ip + 24);
	ip[40] = (uint8_t)(sport >> 8);
	ip[41] = (uint8_t)sport;
	ip[42] = (uint8_t)(dport >> 8);
	ip[43] = (uint8_t)dport;
	return f;
}

static struct answers answers;

static void note(struct frame f)
{
	answers_note(&answers, f.bytes, f.len);
}

static bool expected(struct frame f)
{
	return answers_expected(&answers, f.bytes, f.len);
}

#define ME TAP_IPV4
#define ME6 TAP_IPV6

static void answers_of_those_who_were_asked(void **state)
{
	(void)state;
	memset(&answers, 0, sizeof answers);
	assert_false(expected(ipv4("8.8.8.8", 53, ME, 4000, 0)));
	note(ipv4(ME, 4000, "8.8.8.8", 53, 0));
	assert_true(expected(ipv4("8.8.8.8", 53, ME, 4000, 0)));
	assert_false(expected(ipv4("8.8.8.8", 54, ME, 4000, 0)));
	assert_false(expected(ipv4("8.8.8.8", 53, ME, 4001, 0)));
	assert_false(expected(ipv4("8.8.8.9", 53, ME, 4000, 0)));
	assert_false(expected(ipv6("::ffff:8.8.8.8", 53, ME6, 4000)));
	note(ipv6(ME6, 4000, "2001:db8::1", 53));
	assert_true(expected(ipv6("2001:db8::1", 53, ME6, 4000)));
	assert_false(expected(ipv6("2001:db8::2", 53, ME6, 4000)));
	/* Further pieces have no ports: of a host that was asked. */
	assert_true(expected(ipv4("8.8.8.8", 0, ME, 0, 100)));
	assert_false(expected(ipv4("10.1.2.3", 0, ME, 0, 100)));
}

static void what_is_no_datagram_passes(void **state)
{
	struct frame f = ipv4("10.1.2.3", 53, ME, 4000, 0);

	(void)state;
	memset(&answers, 0, sizeof answers);
	f.bytes[HEAD + 9] = IPPROTO_TCP;
	assert_true(expected(f));
	f.bytes[HEAD + 9] = IPPROTO_ICMP;
	assert_true(expected(f));
	f.bytes[13] = 0x06; /* ARP */
	assert_true(expected(f));
}

static void what_cannot_be_read_does_not(void **state)
{
	struct frame f = ipv4("8.8.8.8", 53, ME, 4000, 0);

	(void)state;
	memset(&answers, 0, sizeof answers);
	note(ipv4(ME, 4000, "8.8.8.8", 53, 0));
	for (f.len = 0; f.len < HEAD + 28; f.len++) {
		assert_false(expected(f));
		note(f);
	}
	assert_true(expected(f));
	f.bytes[HEAD] = 0x4f; /* options that are not there */
	assert_false(expected(f));
	f.bytes[HEAD] = 0x41;
	assert_false(expected(f));
}

static void the_oldest_go(void **state)
{
	(void)state;
	memset(&answers, 0, sizeof answers);
	for (unsigned i = 0; i < ANSWERS_MAX; i++)
		note(ipv4(ME, (uint16_t)(1000 + i), "8.8.8.8", 53, 0));
	note(ipv4(ME, 1000, "8.8.8.8", 53, 0)); /* again: takes no place */
	assert_true(expected(ipv4("8.8.8.8", 53, ME, 1000, 0)));
	note(ipv4(ME, 9999, "8.8.8.8", 53, 0));
	assert_false(expected(ipv4("8.8.8.8", 53, ME, 1000, 0)));
	assert_true(expected(ipv4("8.8.8.8", 53, ME, 1001, 0)));
	assert_true(expected(ipv4("8.8.8.8", 53, ME, 9999, 0)));
}

/* ---- name servers ---- */

static void expect_servers(const char *resolv_conf, bool ipv6_out, const char *expected)
{
	struct netenv host = {.ipv6_out = ipv6_out};
	struct cidr seen[RESOLVCONF_SERVERS];
	char text[256] = "";
	size_t n;

	host.server_count = resolvconf_parse(resolv_conf, strlen(resolv_conf), host.servers);
	n = wayout_servers(&host, seen);
	for (size_t i = 0; i < n; i++) {
		char one[CIDR_TEXT_MAX];

		cidr_text(one, &seen[i], true);
		strcat(strcat(text, i ? " " : ""), one);
	}
	assert_string_equal(text, expected);
}

static void name_servers_as_tools_see_them(void **state)
{
	(void)state;
	expect_servers("", true, "");
	expect_servers("nameserver 8.8.8.8\nnameserver 10.0.0.2\n", true, "8.8.8.8 10.0.0.2");
	/* In the order in which they are asked. */
	expect_servers("nameserver 9.9.9.9\nnameserver 1.1.1.1\n", true, "9.9.9.9 1.1.1.1");
	/* One that only the host reaches: the address that libslirp answers for. */
	expect_servers("nameserver 127.0.0.53\n", true, TAP_RESOLVER4);
	expect_servers("nameserver ::1\n", true, TAP_RESOLVER6);
	expect_servers("nameserver ::1\n", false, TAP_RESOLVER6);
	expect_servers("nameserver fe80::1%eth0\n", true, TAP_RESOLVER6);
	expect_servers("nameserver 0.0.0.0\n", true, TAP_RESOLVER4);
	expect_servers("nameserver ::\n", true, TAP_RESOLVER6);
	/* It answers for the first of a family: it would ask that one twice. */
	expect_servers("nameserver 8.8.8.8\nnameserver 127.0.0.1\n", true, "8.8.8.8");
	expect_servers("nameserver 127.0.0.1\nnameserver 8.8.8.8\n", true, TAP_RESOLVER4 " 8.8.8.8");
	expect_servers("nameserver 127.0.0.1\nnameserver ::1\n", true, TAP_RESOLVER4 " " TAP_RESOLVER6);
	/* Over IPv6 only where that leads out. */
	expect_servers("nameserver 2001:4860:4860::8888\n", true, "2001:4860:4860::8888");
	expect_servers("nameserver fd00::53\n", false, TAP_RESOLVER6);
	/* What is something else inside. */
	expect_servers("nameserver " TAP_GATEWAY4 "\n", true, TAP_RESOLVER4);
	/* A link-local one over IPv4 needs no device. */
	expect_servers("nameserver 169.254.20.10\n", true, "169.254.20.10");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(calls_of_a_carrier),
	    cmocka_unit_test(answers_of_those_who_were_asked),
	    cmocka_unit_test(what_is_no_datagram_passes),
	    cmocka_unit_test(what_cannot_be_read_does_not),
	    cmocka_unit_test(the_oldest_go),
	    cmocka_unit_test(name_servers_as_tools_see_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
