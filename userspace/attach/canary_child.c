/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes. The first stays in our own cgroup and makes a network namespace that leads nowhere: what that costs is not the
 * workload's. Then it lets a second be born in the workload's cgroup, where every socket that it makes is judged by the policy,
 * and hands it a socket from outside. Both end by themselves; whoever waits ends them if they don't.
 *
 * Between clone3() and _exit() there are system calls and nothing else: the caller may have threads.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/canary_priv.h"
#include "core/clock.h"
#include "localnet.h"

#define HEAR_MS 100 /* what was sent over loopback is there at once */
#define SILENT_MS 10
#define SENDER "192.0.2.99"

union address {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* ---- inside ---- */

static socklen_t address_of(const struct weir_dest *d, union address *ret)
{
	memset(ret, 0, sizeof *ret);
	if (d->family == 4) {
		ret->in.sin_family = AF_INET;
		ret->in.sin_port = htons(d->port);
		memcpy(&ret->in.sin_addr, d->addr + 12, 4);
		return sizeof ret->in;
	}
	ret->in6.sin6_family = AF_INET6;
	ret->in6.sin6_port = htons(d->port);
	memcpy(&ret->in6.sin6_addr, d->addr, 16);
	return sizeof ret->in6;
}

static int make_socket(const struct weir_dest *d, int type)
{
	return socket(d->family == 4 ? AF_INET : AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* How many datagram sockets the entry says there are. */
static int64_t sockets_of(const struct canary_run *r)
{
	struct weir_sandbox sb;

	return guard_get_sandbox(r->guard, r->cgroup, &sb, NULL) == 0 ? sb.sockets : 0;
}

/* A socket of its own each time: it must be counted when it is used and no more when it is closed. */
static void try_datagram(const struct canary_run *r, const struct canary_try *t, struct canary_met *met)
{
	union address to;
	const socklen_t len = address_of(&t->to, &to);

	for (int round = 0; round < CANARY_ROUNDS; round++) {
		int s = make_socket(&t->to, SOCK_DGRAM);
		int64_t before, while_open, after;

		if (s < 0)
			return;
		before = sockets_of(r);
		met->error = sendto(s, "?", 1, 0, &to.sa, len) < 0 ? errno : 0;
		while_open = sockets_of(r);
		close(s);
		after = sockets_of(r);
		met->tried = true;
		met->sent++;
		met->counted += while_open > before;
		met->let_go += after < while_open;
		if (while_open == before + 1 && after == before)
			return;
	}
}

/* Not waited for: nobody listens. */
static void try_stream(const struct canary_try *t, struct canary_met *met)
{
	union address to;
	const socklen_t len = address_of(&t->to, &to);
	int s = make_socket(&t->to, SOCK_STREAM);

	if (s < 0)
		return;
	met->error = connect(s, &to.sa, len) < 0 ? errno : 0;
	if (met->error == EINPROGRESS || met->error == ECONNREFUSED)
		met->error = 0;
	met->tried = true;
	met->sent = 1;
	close(s);
}

static void try_join(const struct canary_try *t, struct canary_met *met)
{
	struct ip_mreqn group = {.imr_ifindex = LOOPBACK_INDEX};
	int s = make_socket(&t->to, SOCK_DGRAM);

	if (s < 0)
		return;
	memcpy(&group.imr_multiaddr, t->to.addr + 12, 4);
	met->error = setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) < 0 ? errno : 0;
	met->tried = true;
	met->sent = 1;
	close(s);
}

/* `sender` may be governed itself (whoever attaches is below what it attaches to): then there is nothing to be received. */
static void try_receive(const struct canary_try *t, int sender, struct canary_met *met)
{
	union address here;
	const socklen_t len = address_of(&t->to, &here);
	int s = make_socket(&t->to, SOCK_DGRAM);
	struct pollfd p = {.fd = s, .events = POLLIN};

	if (s < 0)
		return;
	if (bind(s, &here.sa, len) == 0 && sendto(sender, "?", 1, 0, &here.sa, len) == 1) {
		met->heard = poll(&p, 1, t->passes ? HEAR_MS : SILENT_MS) == 1;
		met->tried = true;
		met->sent = 1;
	}
	close(s);
}

static void try_one(const struct canary_run *r, size_t i, int sender)
{
	const struct canary_try *t = &r->plan->tries[i];
	struct canary_met *met = &r->report->met[i];

	if (t->to.family == 6 && !(r->report->families & LOCALNET_IPV6))
		return;
	switch (t->way) {
	case CANARY_DATAGRAM:
		try_datagram(r, t, met);
		break;
	case CANARY_STREAM:
		try_stream(t, met);
		break;
	case CANARY_JOIN:
		try_join(t, met);
		break;
	case CANARY_RECEIVE:
		try_receive(t, sender, met);
		break;
	}
}

/* Nobody of ours is to outlive who asked. */
static void begin(pid_t parent)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)prctl(PR_SET_NAME, CANARY_COMM);
	if (getppid() != parent)
		_exit(1);
}

static _Noreturn void be_inside(const struct canary_run *r, pid_t parent, int sender)
{
	begin(parent);
	r->report->stage = CANARY_TRIES_OUT;
	for (size_t i = 0; i < r->plan->count; i++)
		try_one(r, i, sender);
	r->report->stage = CANARY_DONE;
	_exit(0);
}

/* ---- outside ---- */

static int make_sender(void)
{
	struct sockaddr_in from = {.sin_family = AF_INET};
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	inet_pton(AF_INET, SENDER, &from.sin_addr);
	if (s >= 0 && bind(s, (struct sockaddr *)&from, sizeof from) == 0)
		return s;
	return -1;
}

/* Into the first leaf that takes it, as a child of whoever waits. */
static void enter(const struct canary_run *r, pid_t parent, int sender)
{
	struct canary_report *report = r->report;

	for (size_t i = 0; i < r->leaf_count; i++) {
		struct clone_args a = {.flags = CLONE_INTO_CGROUP | CLONE_PARENT | CLONE_PARENT_SETTID,
				       .parent_tid = (uint64_t)(uintptr_t)&report->pid,
				       .cgroup = (uint64_t)r->leaves[i].fd};
		long pid;

		report->leaf = i;
		pid = syscall(SYS_clone3, &a, sizeof a);
		if (pid == 0)
			be_inside(r, parent, sender);
		if (pid > 0)
			return;
		report->error = errno;
	}
}

static _Noreturn void be_outside(const struct canary_run *r, pid_t parent)
{
	struct canary_report *report = r->report;

	begin(parent);
	report->stage = CANARY_NETWORK;
	if (unshare(CLONE_NEWNET) < 0 || (localnet_up(NULL, &report->families) < 0 && !(report->families & LOCALNET_IPV4))) {
		report->error = errno;
		_exit(1);
	}
	report->stage = CANARY_ENTERS;
	enter(r, parent, make_sender());
	_exit(0);
}

/* ---- whoever waits ---- */

/* Waits until it has ended, and no longer than that; then it has. */
static void end(pid_t pid, int pidfd, uint64_t until_ns)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};
	siginfo_t si;

	for (;;) {
		uint64_t now = clock_now_ns();

		if (pidfd < 0 || now >= until_ns)
			break;
		if (poll(&p, 1, (int)((until_ns - now) / 1000000) + 1) >= 0 || errno != EINTR)
			break;
	}
	/* It is not reaped yet, so the number is still its own. */
	(void)kill(pid, SIGKILL);
	while (waitid(P_PID, (id_t)pid, &si, WEXITED | __WALL) < 0 && errno == EINTR)
		;
}

int canary_run(const struct canary_run *r)
{
	const pid_t parent = getpid();
	int pidfd = -1, saved;
	/* No signal at its end: whoever reaps all children of this program does not get these. */
	struct clone_args a = {.flags = CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)&pidfd};
	sigset_t all, before;
	long pid;

	/* Our handlers are not theirs. */
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	pid = syscall(SYS_clone3, &a, sizeof a);
	saved = errno;
	if (pid == 0)
		be_outside(r, parent);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (pid < 0)
		return -saved;
	end((pid_t)pid, pidfd, r->until_ns);
	close(pidfd);
	if (r->report->pid > 0) {
		pidfd = (int)syscall(SYS_pidfd_open, r->report->pid, 0);
		end(r->report->pid, pidfd, r->until_ns);
		if (pidfd >= 0)
			close(pidfd);
	}
	return 0;
}
