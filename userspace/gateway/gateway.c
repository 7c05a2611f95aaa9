/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/gateway.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"
#include "gateway/internal.h"
#include "kernel/confine.h"

/* Its place in the message decides what a descriptor is. */
enum { FD_CGROUP, FD_TAP, FD_TASKS };

#define START_MS 5000	/* a carrier that does not get ready: it takes a millisecond */
#define REFRESH_MS 1000 /* how often the host's resolv.conf is looked at while there are carriers */
#define LAST_MS 2000	/* for carriers that were killed with their sandboxes to be gone: nobody else reaps them soon */

struct gateway {
	int supervisor;
	int deaths; /* signalfd */
	struct names names;
	struct carrier_filter filter;
	unsigned alive;
};

/* What is wrong with a job, or NULL. */
static const char *carry_problem(const struct carry *job, size_t fds)
{
	if (job->uid == 0 || job->uid == (uint32_t)-1)
		return "uid";
	if (job->v1_count > IPC_FDS_MAX - FD_TASKS || fds != FD_TASKS + job->v1_count)
		return "descriptors";
	if (job->nofile <= CARRIER_FDS_OWN || job->nofile > INT16_MAX)
		return "limit of files";
	return NULL;
}

/* ---- one carrier ---- */

static pid_t make_process(int cgroup)
{
	struct clone_args args = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)cgroup};
	long pid = syscall(SYS_clone3, &args, sizeof args);

	return pid < 0 ? -errno : (pid_t)pid;
}

/* What it says of itself. Nothing: it is dead, or does not get there. */
static void hear(int report, struct carrying *ret)
{
	struct pollfd p = {.fd = report, .events = POLLIN};
	struct carrier_report r;
	int n;

	while ((n = poll(&p, 1, START_MS)) < 0 && errno == EINTR)
		;
	if (n <= 0 || read(report, &r, sizeof r) != (ssize_t)sizeof r) {
		ret->status = n == 0 ? -ETIMEDOUT : -EPIPE;
		snprintf(ret->text, sizeof ret->text, "the process that carries packets %s",
			 n == 0 ? "does not get ready" : "died while it started");
		return;
	}
	ret->status = r.status;
	memcpy(ret->text, r.text, sizeof ret->text);
	ret->text[sizeof ret->text - 1] = 0;
}

static void start_carrier(struct gateway *g, const struct carry *job, const int *fds, struct carrying *ret)
{
	_cleanup_fd_ int ours = -1, theirs = -1;
	pid_t self = getpid(), pid;
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0) {
		ret->status = -errno;
		snprintf(ret->text, sizeof ret->text, "make a pipe: %s", strerror(errno));
		return;
	}
	ours = p[0];
	theirs = p[1];
	names_refresh(&g->names);
	pid = make_process(fds[FD_CGROUP]);
	if (pid == 0) {
		const struct carrier_spec spec = {.job = job,
						  .tap = fds[FD_TAP],
						  .report = theirs,
						  .tasks = fds + FD_TASKS,
						  .root = g->names.root,
						  .gateway = self,
						  .filter = &g->filter};

		carrier_main(&spec);
	}
	cleanup_fdp(&theirs);
	theirs = -1;
	if (pid < 0) {
		ret->status = pid;
		snprintf(ret->text, sizeof ret->text, "make a process in its cgroup: %s", strerror(-pid));
		return;
	}
	g->alive++;
	ret->pid = pid;
	hear(ours, ret);
	if (ret->status < 0)
		kill(pid, SIGKILL);
}

/* ---- the loop ---- */

static int send_answer(const struct gateway *g, const struct carrying *answer)
{
	struct pollfd p = {.fd = g->supervisor, .events = POLLOUT};
	int rc;

	while ((rc = ipc_send(g->supervisor, answer, sizeof *answer, NULL, 0)) == -EAGAIN)
		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			return -errno;
	return rc;
}

/* Returns 0 after a job, -EAGAIN when there is none, -EPIPE when the supervisor has hung up, another errno for the end. */
static int next_job(struct gateway *g)
{
	int fds[IPC_FDS_MAX];
	size_t count = IPC_FDS_MAX;
	struct carrying answer = {0};
	struct carry job;
	ssize_t n = ipc_recv(g->supervisor, &job, sizeof job, fds, &count);
	const char *problem;
	int rc = -EPROTO;

	if (n <= 0)
		return n < 0 ? (int)n : -EPIPE;
	problem = n != sizeof job ? "size" : carry_problem(&job, count);
	if (problem) {
		log_error("what came is no job (%s)", problem);
	} else {
		answer.req = job.req;
		start_carrier(g, &job, fds, &answer);
		rc = send_answer(g, &answer);
	}
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
	return rc;
}

/* A carrier ends with its sandbox, killed; or first of all when memory is short. One that dies of itself is news. */
static void reap(struct gateway *g)
{
	struct signalfd_siginfo unused;
	int status;
	pid_t pid;

	while (read(g->deaths, &unused, sizeof unused) > 0)
		;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		g->alive--;
		if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
			log_error("carrier %d died of signal %d: its sandbox has no network any more", (int)pid,
				  WTERMSIG(status));
	}
}

static int serve(struct gateway *g)
{
	struct pollfd p[] = {{.fd = g->supervisor, .events = POLLIN}, {.fd = g->deaths, .events = POLLIN}};
	int rc;

	do {
		if (poll(p, 2, g->alive ? REFRESH_MS : -1) < 0 && errno != EINTR)
			return -errno;
		reap(g);
		if (g->alive)
			names_refresh(&g->names);
		while ((rc = next_job(g)) == 0)
			;
	} while (rc == -EAGAIN);
	return rc;
}

/* The supervisor is gone, and has killed what there was. */
static void reap_last(struct gateway *g)
{
	for (int waited = 0; g->alive && waited < LAST_MS; waited += 10) {
		struct pollfd p = {.fd = g->deaths, .events = POLLIN};

		if (poll(&p, 1, 10) < 0 && errno != EINTR)
			return;
		reap(g);
	}
}

static int open_all(struct gateway *g, const struct gateway_config *config, struct err *e)
{
	sigset_t deaths;
	int rc = confine_fds(GATEWAY, &config->supervisor_fd, 1, e);

	if (rc < 0)
		return rc;
	g->supervisor = config->supervisor_fd;
	sigemptyset(&deaths);
	sigaddset(&deaths, SIGCHLD);
	sigprocmask(SIG_SETMASK, &deaths, NULL);
	g->deaths = signalfd(-1, &deaths, SFD_CLOEXEC | SFD_NONBLOCK);
	if (g->deaths < 0)
		return err_errno(e, errno, GATEWAY, "listen for the end of carriers");
	rc = names_open(&g->names, e);
	if (rc == 0)
		rc = carrier_filter_compile(&g->filter, e);
	return rc == 0 ? gateway_confine(config->parent, e) : rc;
}

int gateway_main(const struct gateway_config *config)
{
	static struct gateway g;
	struct err e;
	int rc;

	log_init(GATEWAY, LOG_LVL_INFO);
	/* It ends with the supervisor. A carrier inherits these: a connection that is reset is no reason to die. */
	for (const int *sig = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ, 0}; *sig; sig++)
		(void)signal(*sig, SIG_IGN);
	if (open_all(&g, config, &e) < 0) {
		log_error("can't start: %s", e.msg);
		return 1;
	}
	rc = serve(&g);
	close(g.supervisor);
	reap_last(&g);
	return rc == -EPIPE ? 0 : 1;
}
