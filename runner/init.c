/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir-init: pid 1 of a sandbox.
 *
 * A static program of its own, started from a sealed memfd: so it carries nothing of the supervisor's memory, and there is
 * no file of it inside the sandbox. It applies the plan step by step, starts pid 2, drops everything, reaps, and leaves
 * when main does, which makes the kernel kill the rest of the pid namespace. The first step that fails is reported with
 * its errno and ends it all; nothing is retried, nothing is worked around.
 */
#include "init_steps.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc/decode.h"

static struct init_plan plan;
static int report_fd = INIT_FD_CONTROL;

static void report(const struct init_report *r)
{
	/* A supervisor that is gone can't be told anything, and nothing may go on without it. */
	if (send(report_fd, r, sizeof *r, MSG_NOSIGNAL) < 0)
		_exit(125);
}

static void __attribute__((noreturn)) fail(enum plan_step step, int error)
{
	struct init_report r = {.type = REPORT_FAILED, .step = step, .error = error};

	snprintf(r.detail, sizeof r.detail, "%s", init_detail);
	report(&r);
	_exit(125);
}

/* Runs one step; does not return when it failed. */
static void run(enum plan_step step, int (*fn)(const struct init_plan *))
{
	init_detail[0] = 0;
#ifdef WEIR_TEST_HOOKS
	if (plan.fault == step)
		fail(step, EIO);
	if (plan.skip == step)
		return;
#endif
	if (fn(&plan) < 0)
		fail(step, errno);
}

static int step_parent_death(const struct init_plan *p)
{
	(void)p;
	return prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* The supervisor answers what was reported with a byte; silence is a refusal. */
static int wait_for_go(void)
{
	char go;

	if (recv(INIT_FD_CONTROL, &go, 1, 0) == 1)
		return 0;
	errno = EPERM;
	return -1;
}

static int step_probe(const struct init_plan *p)
{
	struct init_report r = {.type = REPORT_PROBED};

	(void)p;
	init_probe(r.probe_errno);
	report(&r);
	/* It compares with the kernel's counters and clears the probe flag. */
	return wait_for_go();
}

/* Hands the tap over: a device that only the one who made it could open, and nothing in here is to hold. */
static int send_tap(int fd)
{
	struct init_report r = {.type = REPORT_TAP};
	struct iovec iov = {&r, sizeof r};
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof fd)];
	} control = {.head = {.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	struct msghdr message = {
	    .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space};

	memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
	return sendmsg(INIT_FD_CONTROL, &message, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

/* What leads out, instead of NETWORK: the supervisor answers when somebody carries its packets. */
static int step_tap(const struct init_plan *p)
{
	int fd = -1, rc;

	if (init_tap(p, &fd) < 0)
		return -1;
	rc = send_tap(fd);
	close(fd);
	return rc < 0 ? -1 : wait_for_go();
}

/*
 * Pid 2 starts with init's own table of descriptors, so what its filter's listener is to it, it is to init as well: nothing has
 * to be sent, whatever system calls a policy leaves it. Init takes a table of its own when the payload has said that the filter
 * is loaded.
 */
#define HIGH_FD 64		/* out of the way of everything that has a fixed number */
static int words[2] = {-1, -1}; /* init's end, the payload's */
static int signal_fd = -1, control_fd = -1;
static int loaded = -ENOENT, listener = -ENOENT; /* the listener as the payload got it, and as init has it; or -errno */

static int move_high(int fd)
{
	int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);

	if (fd >= 0)
		close(fd);
	return high;
}

static int prepare_fork(const struct init_plan *p)
{
	sigset_t child;

	if (init_read_filters(p) < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, words) < 0)
		return -1;
	words[0] = move_high(words[0]);
	words[1] = move_high(words[1]);
	control_fd = fcntl(INIT_FD_CONTROL, F_DUPFD_CLOEXEC, HIGH_FD);
	/* Blocked and not ignored: so it is kept until somebody reads it. */
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &child, NULL) < 0)
		return -1;
	signal_fd = move_high(signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
	return words[0] < 0 || words[1] < 0 || control_fd < 0 || signal_fd < 0 ? -1 : 0;
}

/* ---- pid 2 ---- */

static int step_session(const struct init_plan *p)
{
	sigset_t none;

	(void)p;
	sigemptyset(&none);
	if (sigprocmask(SIG_SETMASK, &none, NULL) < 0)
		return -1;
	umask(022);
	/* A starter's execution domain comes down to here: without this, one that switched address randomisation off would give
	 * every sandbox the same layout. */
	if (personality(PER_LINUX) < 0)
		return -1;
	return setsid() < 0 ? -1 : 0;
}

static int step_rlimits(const struct init_plan *p)
{
	/* A sandbox's limits are its cgroup's. What the starter had set for itself is not ours to hand down: infinity means as
	 * high as its hard limit, which cannot be raised here. */
	const struct {
		int resource;
		rlim_t value;
	} rows[] = {
	    {RLIMIT_NOFILE, p->nofile},
	    /* 1, not 0: a piped core_pattern helper runs even at 0, and is skipped only at this value (core(5)). */
	    {RLIMIT_CORE, 1},
	    {RLIMIT_MEMLOCK, 64 << 10},
	    {RLIMIT_MSGQUEUE, 0},
	    {RLIMIT_NICE, 0},
	    {RLIMIT_RTPRIO, 0},
	    {RLIMIT_STACK, 8 << 20},
	    {RLIMIT_AS, RLIM_INFINITY},
	    {RLIMIT_DATA, RLIM_INFINITY},
	    {RLIMIT_RSS, RLIM_INFINITY},
	    {RLIMIT_CPU, RLIM_INFINITY},
	    {RLIMIT_FSIZE, RLIM_INFINITY},
	    {RLIMIT_NPROC, RLIM_INFINITY},
	    {RLIMIT_SIGPENDING, RLIM_INFINITY},
	    {RLIMIT_LOCKS, RLIM_INFINITY},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rlimit now, want = {rows[i].value, rows[i].value};

		if (getrlimit(rows[i].resource, &now) < 0)
			return -1;
		/* A hard limit below ours can't be raised without CAP_SYS_RESOURCE, and is stricter anyway. */
		if (now.rlim_max != RLIM_INFINITY && now.rlim_max < want.rlim_max)
			want.rlim_cur = want.rlim_max = now.rlim_max;
		if (setrlimit(rows[i].resource, &want) < 0)
			return -1;
	}
	return 0;
}

static int step_stdio(const struct init_plan *p)
{
	/* Sources are above every target but request, gate and what is moved out of the way first; these go down in an order
	 * that never overwrites one. */
	int null = open("/dev/null", O_RDONLY); /* may well be 0 already: then dup2 changes nothing, so no close-on-exec */

	if (null < 0)
		return -1;
	if (dup2(null, 0) < 0 || dup2(INIT_FD_STDOUT, 1) < 0 || dup2(INIT_FD_STDERR, 2) < 0 ||
	    dup2(INIT_FD_REQUEST, PAYLOAD_FD_REQUEST) < 0 || dup2(INIT_FD_GATE, PAYLOAD_FD_GATE) < 0 ||
	    dup3(control_fd, PAYLOAD_FD_REPORT, O_CLOEXEC) < 0)
		return -1;
	if (p->call && dup2(INIT_FD_RESULT, PAYLOAD_FD_RESULT) < 0)
		return -1;
	report_fd = PAYLOAD_FD_REPORT;
	return 0;
}

static int step_no_new_privs(const struct init_plan *p)
{
	(void)p;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static int step_seccomp(const struct init_plan *p)
{
	(void)p;
	return init_load_payload_filter(&loaded);
}

/* From here on a call that the filter leaves to the listener waits for init: these two no policy can refuse. */
static void hand_over(void)
{
	char go;

	if (write(words[1], &loaded, sizeof loaded) != sizeof loaded || read(words[1], &go, 1) != 1)
		fail(STEP_LISTENER, EPROTO);
}

static int step_descriptors(const struct init_plan *p)
{
	/* Init's own filter was there. */
	if (!p->call && close(PAYLOAD_FD_RESULT) < 0)
		return -1;
	return (int)syscall(SYS_close_range, PAYLOAD_FD_REPORT + 1, ~0u, 0);
}

static int step_exec(const struct init_plan *p)
{
	/* -u: what was printed is in the pipe, whatever ends the run. -s: no user site. -X weir: tells the harness that it is
	 * the one at the gate, and not imported by a Python that the snippet starts; the program of tool calls, what to do. */
	static char option[sizeof "weir=call::" + sizeof p->modules + sizeof p->workdir] = "weir";
	char *const argv[] = {
	    (char *)p->interpreter, "-s", "-u", "-X", option, p->call ? (char *)p->program : SANDBOX_SCRIPT, NULL};

	if (p->call)
		snprintf(option, sizeof option, "weir=call:%s:%s", p->modules, p->workdir);
	if (chdir(SANDBOX_WORKDIR) < 0)
		return -1;
	execve(p->interpreter, argv, init_environment(p));
	snprintf(init_detail, sizeof init_detail, "exec %.80s", p->interpreter);
	return -1;
}

static void __attribute__((noreturn)) payload(void)
{
	run(STEP_SESSION, step_session);
	run(STEP_RLIMITS, step_rlimits);
	run(STEP_STDIO, step_stdio);
	run(STEP_BOUNDING, init_empty_bounding_set);
	run(STEP_IDENTITY, init_take_identity);
	run(STEP_CAPABILITIES, init_empty_capabilities);
	run(STEP_NO_NEW_PRIVS, step_no_new_privs);
	run(STEP_SECCOMP, step_seccomp);
	hand_over();
	run(STEP_DESCRIPTORS, step_descriptors);
	run(STEP_EXEC, step_exec);
	_exit(125);
}

/* ---- pid 1 ---- */

static pid_t main_pid;

/* Reaps whoever has ended. With main it leaves, and so does everything else. */
static void reap(void)
{
	for (;;) {
		struct init_report r = {.type = REPORT_EXITED};
		struct rusage ru = {0};
		int status = 0; /* without a child there is none */
		pid_t pid = wait4(-1, &status, WNOHANG, &ru);

		if (pid == 0)
			return;
		if (pid > 0 && pid != main_pid)
			continue;
		r.status = status;
		r.cpu_us = (uint64_t)ru.ru_utime.tv_sec * 1000000 + (uint64_t)ru.ru_utime.tv_usec +
			   (uint64_t)ru.ru_stime.tv_sec * 1000000 + (uint64_t)ru.ru_stime.tv_usec;
		report(&r);
		_exit(0);
	}
}

static void children_ended(void)
{
	struct signalfd_siginfo si;

	/* One signal stands for any number of them. */
	while (read(signal_fd, &si, sizeof si) == (ssize_t)sizeof si)
		;
	reap();
}

/* Until the payload's filter is loaded. One that ends before has said why. */
static void await_filter(void)
{
	struct pollfd from[] = {{.fd = words[0], .events = POLLIN}, {.fd = signal_fd, .events = POLLIN}};
	const char go = 'g';

	while (!from[0].revents) {
		if (poll(from, 2, -1) < 0 && errno != EINTR)
			fail(STEP_LISTENER, errno);
		if (from[1].revents)
			children_ended();
	}
	if (read(words[0], &loaded, sizeof loaded) != sizeof loaded)
		fail(STEP_LISTENER, EPROTO);
	/* With the listener in it. */
	if (unshare(CLONE_FILES) < 0)
		fail(STEP_LISTENER, errno);
	if (write(words[0], &go, 1) != 1)
		fail(STEP_LISTENER, EPROTO);
}

static int step_listener(const struct init_plan *p)
{
	(void)p;
	if (init_take_listener(loaded) < 0)
		return -1;
	listener = loaded;
	return 0;
}

/* Nothing but enum init_kept_fd: the output pipes above all, or their readers would never see the end. */
static int keep_descriptors(void)
{
	const int control = control_fd, signals = signal_fd,
		  calls = listener < 0 ? listener : fcntl(listener, F_DUPFD_CLOEXEC, HIGH_FD);

	if (dup3(control, INIT_KEPT_CONTROL, O_CLOEXEC) < 0 || dup3(signals, INIT_KEPT_SIGNALS, O_CLOEXEC) < 0 ||
	    (listener >= 0 && dup3(calls, INIT_KEPT_LISTENER, O_CLOEXEC) < 0))
		return -1;
	report_fd = control_fd = INIT_KEPT_CONTROL;
	signal_fd = INIT_KEPT_SIGNALS;
	if (listener >= 0)
		listener = INIT_KEPT_LISTENER;
	if (syscall(SYS_close_range, 0, INIT_KEPT_CONTROL - 1, 0) < 0)
		return -1;
	return (int)syscall(SYS_close_range, listener < 0 ? INIT_KEPT_LISTENER : INIT_KEPT_END, ~0u, 0);
}

static int step_init_drop(const struct init_plan *p)
{
	struct init_plan own = *p;

	own.uid = own.gid = p->init_uid;
	if (init_empty_bounding_set(&own) < 0 || init_take_identity(&own) < 0 || init_empty_capabilities(&own) < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	/* Changing identity cleared the death signal. A supervisor that died in between has closed its end of the socket,
	 * and the report of the start ends us. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0)
		return -1;
	return keep_descriptors() < 0 ? -1 : init_load_own_filter();
}

static int step_fork(const struct init_plan *p)
{
	if (prepare_fork(p) < 0)
		return -1;
	main_pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, 0);
	if (main_pid == 0)
		payload();
	report_fd = control_fd; /* at its old place is the payload's request socket now, or soon */
	return main_pid < 0 ? -1 : 0;
}

/* A listener that can't be answered would leave whoever is refused waiting: then everything ends. */
static void __attribute__((noreturn)) serve(void)
{
	struct pollfd from[] = {{.fd = signal_fd, .events = POLLIN}, {.fd = listener, .events = POLLIN}};

	reap();
	for (;;) {
		if (poll(from, 2, -1) < 0 && errno != EINTR)
			_exit(125);
		if (from[1].revents & POLLIN && init_answer(listener) < 0)
			_exit(125);
		if (init_is_over(from[1].revents))
			from[1].fd = -1;
		if (from[0].revents)
			children_ended();
	}
}

int main(void)
{
	struct init_report started = {.type = REPORT_STARTED};
	ssize_t n = recv(INIT_FD_CONTROL, &plan, sizeof plan, 0);

	if (n != (ssize_t)sizeof plan || init_plan_problem(&plan))
		fail(STEP_PLAN, EBADMSG);
	run(STEP_PARENT_DEATH, step_parent_death);
	/* The other half of CLONE. No row of its own: a test that left it out would do the rest to the host. */
	if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
		fail(STEP_CLONE, errno);
	run(STEP_SCHEDULING, init_scheduling);
	run(STEP_CGROUP1_JOIN, init_join_v1);
	run(STEP_CGROUP_NS, init_cgroup_ns);
	run(STEP_HOSTNAME, init_hostname);
	if (plan.way_out)
		run(STEP_TAP, step_tap);
	else
		run(STEP_NETWORK, init_network);
	run(STEP_PROBE, step_probe);
	run(STEP_MOUNT_PRIVATE, init_mount_private);
	run(STEP_MOUNT_ROOT, init_mount_root);
	run(STEP_MOUNT_ETC, init_mount_etc);
	run(STEP_MOUNT_DEV, init_mount_dev);
	run(STEP_MOUNT_SHM, init_mount_shm);
	run(STEP_MOUNT_TMP, init_mount_tmp);
	run(STEP_MOUNT_WORK, init_mount_work);
	run(STEP_MOUNT_PROC, init_mount_proc);
	run(STEP_PIVOT, init_pivot);
	run(STEP_FORK, step_fork);
	if (main_pid > 0) {
		await_filter();
		run(STEP_LISTENER, step_listener);
	}
	run(STEP_INIT_DROP, step_init_drop);
	started.error = listener < 0 ? -listener : 0;
	report(&started);
	serve();
}
