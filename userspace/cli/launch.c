/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auditor/auditor.h"
#include "collector/collector.h"
#include "core/cleanup.h"
#include "core/log.h"
#include "gateway/gateway.h"
#include "ipc/ipc.h"

#define SOCKET_BYTES (4 << 20) /* some thousand messages: a burst waits in the kernel, not in a queue of ours */
#define NOTES_BYTES                                                                                                            \
	(256 << 10) /* .. but for the auditor, where everybody's wait in line: for that they are queued in shares              \
		     */

int wiring_make(struct wiring *w, struct err *e)
{
	const struct {
		int *ends[2], bytes;
	} pairs[] = {{{&w->sup_client, &w->client_sup}, SOCKET_BYTES},
		     {{&w->sup_auditor, &w->auditor_sup}, NOTES_BYTES},
		     {{&w->client_auditor, &w->auditor_client}, SOCKET_BYTES},
		     {{&w->client_collector, &w->collector_client}, SOCKET_BYTES}};

	*w = (struct wiring){-1, -1, -1, -1, -1, -1, -1, -1};
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
		int sv[2], rc = ipc_pair(sv, pairs[i].bytes);

		if (rc < 0) {
			wiring_close(w);
			return err_errno(e, -rc, "", "make a socket pair");
		}
		*pairs[i].ends[0] = sv[0];
		*pairs[i].ends[1] = sv[1];
	}
	return 0;
}

void wiring_close(struct wiring *w)
{
	int *const all[] = {&w->sup_client,	&w->client_sup,	    &w->sup_auditor,	  &w->auditor_sup,
			    &w->client_auditor, &w->auditor_client, &w->client_collector, &w->collector_client};

	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		cleanup_fdp(all[i]);
		*all[i] = -1;
	}
}

void wiring_no_collector(struct wiring *w)
{
	cleanup_fdp(&w->client_collector);
	cleanup_fdp(&w->collector_client);
	w->client_collector = w->collector_client = -1;
}

static void set_blocked(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(how, &set, NULL);
}

void launch_block_signals(void)
{
	set_blocked(SIG_BLOCK);
}

void launch_unblock_signals(void)
{
	set_blocked(SIG_UNBLOCK);
}

int launch_auditor(struct wiring *w, int dir_fd, const struct audit_opts *opts, pid_t *ret, struct err *e)
{
	pid_t pid = fork();

	if (pid < 0)
		return err_errno(e, errno, "audit", "fork the auditor");
	if (pid == 0) {
		struct auditor_config config = {
		    .opts = *opts,
		    .supervisor_fd = w->auditor_sup,
		    .client_fds = {w->auditor_client},
		    .clients = 1,
		    .dir_fd = dir_fd,
		    .uid = UID_AUDITOR,
		    .gid = UID_AUDITOR,
		};

		/* The others' ends must close with the others: an end of stream is how each process learns of a death. */
		w->auditor_sup = w->auditor_client = -1;
		wiring_close(w);
		/* A terminal's ^C is for the parent; the auditor leaves when its supervisor does, with everything written. */
		signal(SIGINT, SIG_IGN);
		signal(SIGTERM, SIG_IGN);
		log_init("auditor", LOG_LVL_INFO);
		_exit(auditor_main(&config));
	}
	cleanup_fdp(&w->auditor_sup);
	cleanup_fdp(&w->auditor_client);
	w->auditor_sup = w->auditor_client = -1;
	*ret = pid;
	return 0;
}

int launch_collector(struct wiring *w, pid_t *ret, struct err *e)
{
	pid_t parent = getpid(), pid;
	_cleanup_fd_ int dir = -1;
	int rc = launch_memory_dir("collector", &dir, e);

	if (rc < 0)
		return rc;
	pid = fork();
	if (pid < 0)
		return err_errno(e, errno, "collector", "fork the collector");
	if (pid == 0) {
		struct collector_config config = {.client_fd = w->collector_client,
						  .empty_dir = dir,
						  .uid = UID_COLLECTOR,
						  .gid = UID_COLLECTOR,
						  .parent = parent};

		w->collector_client = -1;
		wiring_close(w);
		_exit(collector_main(&config));
	}
	cleanup_fdp(&w->collector_client);
	w->collector_client = -1;
	*ret = pid;
	return 0;
}

int launch_gateway(struct wiring *w, int *ret_fd, pid_t *ret, struct err *e)
{
	pid_t parent = getpid(), pid;
	_cleanup_fd_ int ours = -1, theirs = -1;
	int sv[2], rc = ipc_pair(sv, SOCKET_BYTES);

	if (rc < 0)
		return err_errno(e, -rc, "network", "make a socket pair");
	ours = sv[0];
	theirs = sv[1];
	pid = fork();
	if (pid < 0)
		return err_errno(e, errno, "network", "fork the gateway");
	if (pid == 0) {
		const struct gateway_config config = {.supervisor_fd = theirs, .parent = parent};

		wiring_close(w);
		_exit(gateway_main(&config)); /* which closes everything else */
	}
	*ret_fd = TAKE_FD(ours);
	*ret = pid;
	return 0;
}

int launch_state_dir_fit(const struct stat *st, const char *path, struct err *e)
{
	if (!S_ISDIR(st->st_mode))
		return err_set(e, ENOTDIR, "--state-dir", "%s is no directory", path);
	/* Whoever may write there could move the record away. */
	if (st->st_uid != 0 || (st->st_mode & (S_IWGRP | S_IWOTH)))
		return err_set(e, EPERM, "--state-dir",
			       "%s must belong to root and be writable by nobody else: chown root and chmod go-w it", path);
	return 0;
}

int launch_state_dir(const char *path, int *ret_fd, struct err *e)
{
	char part[PATH_MAX];
	struct stat st;
	int fd, rc;

	if ((size_t)snprintf(part, sizeof part, "%s", path) >= sizeof part)
		return err_set(e, ENAMETOOLONG, "--state-dir", "the path is too long");
	for (char *p = part + 1; *p; p++)
		if (*p == '/') {
			*p = 0;
			if (mkdir(part, 0755) < 0 && errno != EEXIST)
				return err_errno(e, errno, "--state-dir", "make %s", part);
			*p = '/';
		}
	if (mkdir(part, 0700) < 0 && errno != EEXIST)
		return err_errno(e, errno, "--state-dir", "make %s", path);
	fd = open(part, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_errno(e, errno, "--state-dir", "open %s", path);
	rc = fstat(fd, &st) < 0 ? err_errno(e, errno, "--state-dir", "look at %s", path) : launch_state_dir_fit(&st, path, e);
	if (rc < 0)
		close(fd);
	else
		*ret_fd = fd;
	return rc;
}

int launch_memory_dir(const char *layer, int *ret_fd, struct err *e)
{
	_cleanup_fd_ int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	int fd;

	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "mode", "700", 0) < 0 ||
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return err_errno(e, errno, layer, "make a directory in memory");
	fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (fd < 0)
		return err_errno(e, errno, layer, "mount a directory in memory");
	*ret_fd = fd;
	return 0;
}

const char *launch_absolute(const char *path, char *buf, size_t size)
{
	char cwd[PATH_MAX];

	/* A bare name is looked for on PATH; links are kept, since a shim or a virtual environment depends on its name. */
	if (!path || path[0] == '/' || !strchr(path, '/') || !getcwd(cwd, sizeof cwd) ||
	    (size_t)snprintf(buf, size, "%s/%s", cwd, path) >= size)
		return path;
	return buf;
}

int launch_policy(const char *policy, bool tools, struct inforce *ret, struct err *e)
{
	struct inforce f;
	int rc = inforce_load(&f, policy, e);

	if (rc < 0)
		return rc;
	rc = supervisor_check_policy(&f, tools, e);
	if (rc < 0)
		inforce_clear(&f);
	else
		*ret = f;
	return rc;
}

int launch_step(const char *name, enum plan_step *ret, struct err *e)
{
	enum plan_step step = plan_step_by_name(name);

	if (step == STEP_NONE)
		return err_set(e, EINVAL, "", "no step \"%s\"; --list-steps lists them", name);
	*ret = step;
	return 0;
}
