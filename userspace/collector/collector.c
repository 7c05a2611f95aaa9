/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/collector.h"

#include <errno.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "collector/confine.h"
#include "core/cleanup.h"
#include "core/log.h"
#include "ipc/decode.h"

/* Its place in the message decides what a descriptor is. */
enum { FD_DIR, FD_MANIFEST, FDS };

/*
 * Working directories are file systems in memory, one for each run. Whatever else a client that is not itself any more might
 * hold is not read for it: it has not got the capability that we have.
 */
static int check_place(int dir)
{
	struct statfs fs;

	if (fstatfs(dir, &fs) < 0)
		return -errno;
	return fs.f_type == TMPFS_MAGIC ? 0 : -EXDEV;
}

static int wait_for(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};

	return poll(&p, 1, -1) < 0 && errno != EINTR ? -errno : 0;
}

static int send_answer(int client, const struct collected *answer, const int *fds, size_t count)
{
	int r;

	while ((r = ipc_send(client, answer, sizeof *answer, fds, count)) == -EAGAIN)
		if ((r = wait_for(client, POLLOUT)) < 0)
			return r;
	return r;
}

static int serve_job(int client, const struct collect *job, const int fds[FDS])
{
	_cleanup_fd_ int data = -1, manifest = -1;
	struct collected answer = {0};
	int r = check_place(fds[FD_DIR]);

	if (r == 0)
		r = collector_walk(fds[FD_DIR], job, fds[FD_MANIFEST], &answer, &data, &manifest);
	answer.req = job->req;
	if (r < 0) {
		log_warn("a working directory could not be read: %s", strerror(-r));
		answer.status = (uint32_t)-r;
		return send_answer(client, &answer, NULL, 0);
	}
	return send_answer(client, &answer, (const int[]){data, manifest}, manifest >= 0 ? 2 : 1);
}

/* Returns 0 after a job, -EAGAIN when there is none, -EPIPE when the client has hung up, another negative errno for the end. */
static int next_job(int client)
{
	static struct collect job;
	int fds[FDS] = {-1, -1};
	size_t count = FDS;
	ssize_t n = ipc_recv(client, &job, sizeof job, fds, &count);
	const char *problem = NULL;
	int r;

	if (n <= 0)
		return n < 0 ? (int)n : -EPIPE;
	if (n != sizeof job)
		problem = "size";
	else if (!(problem = collect_problem(&job)) && count != (job.have_manifest ? 2u : 1u))
		problem = "descriptors";
	if (problem)
		log_warn("a client sent what is no job (%s): its connection is closed", problem);
	r = problem ? -EPROTO : serve_job(client, &job, fds);
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
	return r;
}

int collector_main(const struct collector_config *config)
{
	struct err e;
	int r;

	log_init("collector", LOG_LVL_INFO);
	/* It ends with its client, or with its parent: what runs that are being ended have left is read before that. */
	for (const int *sig = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ, 0}; *sig; sig++)
		(void)signal(*sig, SIG_IGN);
	if (collector_confine(config, &e) < 0) {
		log_error("can't start: %s", e.msg);
		return 1;
	}
	do {
		r = next_job(config->client_fd);
		if (r == -EAGAIN)
			r = wait_for(config->client_fd, POLLIN);
	} while (r == 0);
	close(config->client_fd);
	return r == -EPIPE ? 0 : 1;
}
