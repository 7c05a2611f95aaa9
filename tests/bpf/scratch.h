/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the kernel programs share: scratch cgroups, a network namespace whose default route is its loopback, a
 * guard for each test, children, listeners, events. Included by one file a program.
 */
#ifndef WEIR_TESTS_BPF_SCRATCH_H
#define WEIR_TESTS_BPF_SCRATCH_H

/* Not every program needs all of it. */
#pragma GCC diagnostic ignored "-Wunused-function"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "kernel/guard.h"

#define COMM "weirtest"
#define QUIET_MS 30 /* how long a listener must stay silent; a packet over loopback needs microseconds */
#define HEAR_MS 2000
#define UDPLITE 136
#define SCTP 132
#define MPTCP 262

enum { DENYING = 1, ALLOWING = 2, EMPTY_SLOT = 3 };

/* ---- the scratch cgroups ---- */

enum box { BOX_ROOT, BOX_A, BOX_B, BOX_NONE, BOX_DEEP, BOX_OUT_TOP, BOX_OUT, BOXES };
/* The last two are none of ours: beside our root, as deep as a sandbox. */
static const char *const box_names[BOXES] = {"", "/a", "/b", "/none", "/a/deep", "-out", "-out/x"};

static struct {
	char path[256];
	int fd[BOXES];
	uint64_t id[BOXES];
	unsigned level; /* of /a */
	char pins[64];
	struct guard *guard;
} t;

/* What children tell: shared, written before they exit. */
static struct told {
	pid_t pid;
	int count;
	int go;
	int ports; /* to flood */
} * told;

static uint64_t inode_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

static int find_cgroup2(char *ret, size_t size)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[1024], mnt[192];

	while (f && fgets(line, sizeof line, f))
		if (strstr(line, " - cgroup2 ") && sscanf(line, "%*s %*s %*s %*s %191s", mnt) == 1) {
			snprintf(ret, size, "%s/weir-test-%d", mnt, getpid());
			fclose(f);
			return 0;
		}
	if (f)
		fclose(f);
	return -1;
}

static void make_boxes(void)
{
	char path[512];
	int i;

	assert_int_equal(find_cgroup2(t.path, sizeof t.path), 0);
	for (i = 0; i < BOXES; i++) {
		snprintf(path, sizeof path, "%s%s", t.path, box_names[i]);
		assert_int_equal(mkdir(path, 0755), 0);
		t.fd[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(t.fd[i] >= 0);
		t.id[i] = inode_of(t.fd[i]);
	}
	t.level = 2;
}

static void remove_boxes(void)
{
	char path[512];
	int i, tries;

	snprintf(path, sizeof path, "%s/cgroup.kill", t.path);
	i = open(path, O_WRONLY | O_CLOEXEC);
	if (i >= 0) {
		if (write(i, "1", 1) != 1)
			perror(path);
		close(i);
	}
	for (i = BOXES - 1; i >= 0; i--) {
		snprintf(path, sizeof path, "%s%s", t.path, box_names[i]);
		/* A child that was reaped a moment ago may still be leaving. */
		for (tries = 0; rmdir(path) < 0 && errno == EBUSY && tries < 100; tries++)
			usleep(10000);
	}
}

/* One more, below one of the scratch cgroups. */
static int make_below(enum box box, const char *name)
{
	int fd;

	assert_int_equal(mkdirat(t.fd[box], name, 0755), 0);
	fd = openat(t.fd[box], name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void remove_below(enum box box, const char *name, int fd)
{
	int i;

	close(fd);
	for (i = 0; unlinkat(t.fd[box], name, AT_REMOVEDIR) < 0 && errno == EBUSY && i < 200; i++)
		usleep(5000);
}

/* ---- the network namespace ---- */

struct nl {
	struct nlmsghdr h;
	union {
		struct ifinfomsg link;
		struct rtmsg route;
	} u;
	uint8_t attrs[64];
};

static void netlink(struct nl *m)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
		uint8_t rest[512];
	} answer;

	m->h.nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
	assert_int_equal(send(fd, m, m->h.nlmsg_len, 0), (int)m->h.nlmsg_len);
	assert_true(recv(fd, &answer, sizeof answer, 0) > 0);
	close(fd);
	assert_int_equal(answer.e.error, 0);
}

static void lo_up(void)
{
	struct nl m = {.h.nlmsg_len = NLMSG_LENGTH(sizeof m.u.link), .h.nlmsg_type = RTM_NEWLINK};

	m.u.link.ifi_index = 1;
	m.u.link.ifi_flags = m.u.link.ifi_change = IFF_UP;
	netlink(&m);
}

/* ip route add local default dev lo */
static void everything_is_here(uint8_t family)
{
	struct nl m = {.h.nlmsg_len = NLMSG_LENGTH(sizeof m.u.route), .h.nlmsg_type = RTM_NEWROUTE};
	struct rtattr *a = (void *)((char *)&m + NLMSG_ALIGN(m.h.nlmsg_len));
	int lo = 1;

	m.h.nlmsg_flags = NLM_F_CREATE;
	m.u.route.rtm_family = family;
	m.u.route.rtm_table = RT_TABLE_LOCAL;
	m.u.route.rtm_protocol = RTPROT_BOOT;
	m.u.route.rtm_scope = family == AF_INET ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE;
	m.u.route.rtm_type = RTN_LOCAL;
	a->rta_type = RTA_OIF;
	a->rta_len = RTA_LENGTH(sizeof lo);
	memcpy(RTA_DATA(a), &lo, sizeof lo);
	m.h.nlmsg_len = NLMSG_ALIGN(m.h.nlmsg_len) + a->rta_len;
	netlink(&m);
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd >= 0) {
		assert_int_equal(write(fd, text, strlen(text)), (int)strlen(text));
		close(fd);
	}
}

static void make_netns(void)
{
	assert_int_equal(unshare(CLONE_NEWNET), 0);
	lo_up();
	everything_is_here(AF_INET);
	everything_is_here(AF_INET6);
	write_file("/proc/sys/net/ipv4/ping_group_range", "0 0");
}

/* ---- children ---- */

static pid_t spawn(enum box box, uint64_t flags)
{
	struct clone_args a = {.flags = flags, .exit_signal = SIGCHLD};

	if (box != BOXES) {
		a.flags |= CLONE_INTO_CGROUP;
		a.cgroup = (uint64_t)t.fd[box];
	}
	pid_t pid = (pid_t)syscall(SYS_clone3, &a, sizeof a);

	if (pid == 0) {
		signal(SIGTERM, SIG_DFL);
		signal(SIGINT, SIG_DFL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, COMM);
		told->pid = (pid_t)syscall(SYS_getpid);
	}
	return pid;
}

/* 0, or the errno the child ended with. */
static int reap(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void move_to(enum box box)
{
	int fd = openat(t.fd[box], "cgroup.procs", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "0", 1) != 1)
		_exit(250);
	close(fd);
}

/* ---- addresses ---- */

union addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

static socklen_t addr_of(union addr *ret, int family, const char *text, uint16_t port)
{
	memset(ret, 0, sizeof *ret);
	ret->sa.sa_family = (sa_family_t)family;
	if (family == AF_INET) {
		ret->in.sin_port = htons(port);
		if (inet_pton(AF_INET, text, &ret->in.sin_addr) != 1)
			abort();
		return sizeof ret->in;
	}
	ret->in6.sin6_port = htons(port);
	if (inet_pton(AF_INET6, text, &ret->in6.sin6_addr) != 1)
		abort();
	if (text[0] == 'f' && text[1] == 'f')
		ret->in6.sin6_scope_id = 1;
	return sizeof ret->in6;
}

/* As the programs write it. */
static void daddr_of(uint8_t ret[16], const char *text)
{
	memset(ret, 0, 16);
	if (strchr(text, ':')) {
		assert_int_equal(inet_pton(AF_INET6, text, ret), 1);
		return;
	}
	ret[10] = ret[11] = 0xff;
	assert_int_equal(inet_pton(AF_INET, text, ret + 12), 1);
}

/* ---- events ---- */

struct seen {
	int n;
	struct weir_event ev[4096];
};
static struct seen seen;

static void see(void *ctx, const struct weir_event *ev)
{
	struct seen *s = ctx;

	if (s->n < (int)(sizeof s->ev / sizeof *s->ev))
		s->ev[s->n] = *ev;
	s->n++;
}

static int drain(void)
{
	seen.n = 0;
	assert_true(guard_drain(t.guard, 1 << 20, see, &seen) >= 0);
	return seen.n;
}

static struct weir_sandbox counters(enum box box)
{
	struct weir_sandbox sb;
	struct err e = {0};

	assert_int_equal(guard_get_sandbox(t.guard, t.id[box], &sb, &e), 0);
	return sb;
}

/* A fresh entry: counters at zero, nothing in the ring, no flows. */
static void govern(enum box box, uint32_t policy, uint32_t flags)
{
	struct err e = {0};

	drain();
	guard_sweep_flows(t.guard, t.id[box]);
	assert_int_equal(guard_set_sandbox(t.guard, t.id[box], policy, flags, &e), 0);
}

/* ---- a guard for each test ---- */

static void must(int rc, const struct err *e)
{
	if (rc < 0)
		fail_msg("%s: %s", e->where, e->msg);
}

/* Packets of every kind are judged by where they go, unless a test is about them. */
#define ANY_PACKET (WEIR_IMG_OPTIONS | WEIR_IMG_ROUTING | WEIR_IMG_FRAGMENTS)

/* A policy without rules: its default for everything. */
static void set_policy(uint32_t slot, uint8_t verdict, uint32_t flags)
{
	struct weir_prefix all[2] = {{.len = 32, .family = {0, 0, 0, 4}}, {.len = 32, .family = {0, 0, 0, 6}}};
	struct weir_list none = {0};
	uint32_t list_of[2] = {0, 0};
	struct policy_image img = {
	    .head = {.present = 1, .flags = flags, .sockets_max = WEIR_SOCKETS_PER_SANDBOX, .default_verdict = verdict},
	    .prefixes = all,
	    .list_of = list_of,
	    .prefix_count = 2,
	    .lists = &none,
	    .list_count = 1,
	};
	struct err e = {0};

	must(guard_set_policy(t.guard, slot, &img, NULL, &e), &e);
}

static int setup_guard(void **state)
{
	struct guard_opts o = {.pin_dir = t.pins, .cgroup_fd = t.fd[BOX_ROOT], .level = t.level};
	struct err e = {0};

	(void)state;
	must(guard_create(&t.guard, &o, &e), &e);
	set_policy(DENYING, WEIR_DENY, ANY_PACKET);
	set_policy(ALLOWING, WEIR_ALLOW, ANY_PACKET | WEIR_IMG_INBOUND);
	memset(told, 0, sizeof *told);
	return 0;
}

/* ---- a guard of a cgroup as a whole ---- */

enum { WHOLE_SLOT = 0 };
#define SMALL_RING (512 * 1024)

static struct guard *whole_guard(const char *pins, enum box box, unsigned level, uint32_t ring)
{
	struct guard_opts o = {
	    .pin_dir = pins, .cgroup_fd = t.fd[box], .level = level, .whole = true, .sandboxes_max = 1, .ring_bytes = ring};
	struct guard *g = NULL;
	struct err e = {0};

	must(guard_create(&g, &o, &e), &e);
	return g;
}

static int setup_whole(void **state)
{
	(void)state;
	memset(told, 0, sizeof *told);
	t.guard = whole_guard(t.pins, BOX_A, t.level, SMALL_RING);
	set_policy(WHOLE_SLOT, WEIR_DENY, ANY_PACKET);
	return 0;
}

static char *pin_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof path, "%s/%s", t.pins, name);
	return path;
}

static void detach_pin(const char *name)
{
	int fd = bpf_obj_get(pin_of(name));

	assert_true(fd >= 0);
	assert_int_equal(bpf_link_detach(fd), 0);
	close(fd);
}

static int teardown_guard(void **state)
{
	struct err e;

	(void)state;
	t.guard = guard_free(t.guard);
	return guard_unpin(t.pins, &e);
}

/* ---- listeners ---- */

static int heard(int s, int ms)
{
	struct pollfd p = {.fd = s, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int udp_to(const char *to, uint16_t port, const void *data, size_t len)
{
	int family = strchr(to, ':') ? AF_INET6 : AF_INET, rc;
	int s = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	union addr a;
	socklen_t alen = addr_of(&a, family, to, port);

	rc = sendto(s, data, len, 0, &a.sa, alen) < 0 ? errno : 0;
	close(s);
	return rc;
}

static int tcp_to(const char *to, uint16_t port)
{
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;
	union addr a;
	socklen_t alen = addr_of(&a, AF_INET, to, port);

	rc = connect(s, &a.sa, alen) < 0 ? errno : 0;
	close(s);
	return rc;
}

static int udp_from(enum box box, const char *to, uint16_t port)
{
	pid_t pid = spawn(box, 0);

	if (pid == 0)
		_exit(udp_to(to, port, "weir", 4));
	return reap(pid);
}

static int tcp_from(enum box box, const char *to, uint16_t port)
{
	pid_t pid = spawn(box, 0);

	if (pid == 0)
		_exit(tcp_to(to, port));
	return reap(pid);
}

/* A socket made in one cgroup, used in another. */
static int carry(enum box from, enum box to, int type)
{
	pid_t pid = spawn(from, 0);

	if (pid == 0) {
		int s = socket(AF_INET, type, 0);
		union addr a;
		socklen_t len = addr_of(&a, AF_INET, "192.0.2.1", 9);

		move_to(to);
		_exit((type == SOCK_STREAM ? connect(s, &a.sa, len) : sendto(s, "x", 1, 0, &a.sa, len)) < 0 ? errno : 0);
	}
	return reap(pid);
}

static int udp_listener(uint16_t port)
{
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	union addr any;

	assert_int_equal(bind(s, &any.sa, addr_of(&any, AF_INET, "0.0.0.0", port)), 0);
	return s;
}

/* In a child, which holds the sockets and reads the counters itself: the line that failed reaches the parent. */
#define MUST(cond)                                                                                                             \
	do {                                                                                                                   \
		if (!(cond)) {                                                                                                 \
			told->count = __LINE__;                                                                                \
			_exit(254);                                                                                            \
		}                                                                                                              \
	} while (0)

static void child_ok(pid_t pid)
{
	int rc = reap(pid);

	if (rc)
		fail_msg("line %d in the child failed", told->count);
}

static void expect_one(enum box box, uint8_t hook, uint8_t verdict, uint8_t reason)
{
	int n = drain();

	if (n != 1)
		fail_msg("%d events", n);
	assert_int_equal(seen.ev[0].key.cgroup, t.id[box]);
	assert_int_equal(seen.ev[0].key.hook, hook);
	assert_int_equal(seen.ev[0].key.verdict, verdict);
	assert_int_equal(seen.ev[0].key.reason, reason);
}

/* Also of a run that failed, hung or was interrupted: pins and cgroups would outlive us. */
static void clean_up(void)
{
	guard_free(t.guard);
	t.guard = NULL;
	if (t.pins[0])
		guard_unpin(t.pins, NULL);
	if (t.path[0])
		remove_boxes();
}

static void stopped(int sig)
{
	(void)sig;
	clean_up();
	_exit(124);
}

static int setup_all(void **state)
{
	(void)state;
	atexit(clean_up);
	signal(SIGALRM, stopped);
	signal(SIGINT, stopped);
	signal(SIGTERM, stopped);
	alarm(getenv("WEIR_VM") ? 900 : 120); /* an emulated machine is slow */
	snprintf(t.pins, sizeof t.pins, "/sys/fs/bpf/weir-test-%d", getpid());
	told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (told == MAP_FAILED)
		return -1;
	make_netns();
	make_boxes();
	return 0;
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup_guard, teardown_guard)

#endif
