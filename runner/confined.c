/* SPDX-License-Identifier: Apache-2.0 */
#include "confined.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "kernel/confine.h"
#include "python.h"
#include "supervisor/supervisor.h"

pid_t confined_fork(int *ret_pidfd, struct err *e)
{
	int pidfd = -1;
	struct clone_args args = {
	    .flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD,
	    .pidfd = (uint64_t)(uintptr_t)&pidfd,
	    .exit_signal = SIGCHLD,
	};
	long pid = syscall(SYS_clone3, &args, sizeof args);

	if (pid < 0)
		return err_errno(e, errno, "image", "start a confined process");
	if (pid == 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
			_exit(125);
		return 0;
	}
	*ret_pidfd = pidfd;
	return (pid_t)pid;
}

/* A mount of one directory, without those below it, that is nowhere yet. */
static int take_dir(const struct confined_dir *d, struct err *e)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (d->writable ? 0 : MOUNT_ATTR_RDONLY)};
	int fd = open_tree(AT_FDCWD, d->from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (fd < 0)
		return err_errno(e, errno, "image", "bind %s", d->from);
	if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0) {
		close(fd);
		return err_errno(e, errno, "image", "bind %s", d->from);
	}
	return fd;
}

static int make_tmpfs(struct err *e)
{
	_cleanup_fd_ int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	int fd = -1;

	if (fs >= 0 && fsconfig(fs, FSCONFIG_SET_STRING, "mode", "755", 0) == 0 &&
	    fsconfig(fs, FSCONFIG_SET_STRING, "size", "64k", 0) == 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	return fd < 0 ? err_errno(e, errno, "image", "make a tmpfs") : fd;
}

int confined_root(const struct confined_dir *dirs, size_t count, struct err *e)
{
	int trees[CONFINED_DIRS_MAX] = {-1, -1}, root;
	bool single = !dirs[0].to;

	if (count > CONFINED_DIRS_MAX)
		return err_set(e, EINVAL, "image", "more than %d directories", CONFINED_DIRS_MAX);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_errno(e, errno, "image", "cut mount propagation");
	/* All are taken before the first is put anywhere: one could be hidden by another. The descriptors end with
	 * confined_drop(). */
	for (size_t i = 0; i < count; i++)
		if ((trees[i] = take_dir(&dirs[i], e)) < 0)
			return trees[i];
	root = single ? trees[0] : make_tmpfs(e);
	if (root < 0)
		return root;
	if (move_mount(root, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_errno(e, errno, "image", "mount a new root");
	for (size_t i = 0; !single && i < count; i++)
		if (mkdirat(root, dirs[i].to, 0755) < 0 ||
		    move_mount(trees[i], "", root, dirs[i].to, MOVE_MOUNT_F_EMPTY_PATH) < 0)
			return err_errno(e, errno, "image", "mount %s", dirs[i].to);
	if (fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return err_errno(e, errno, "image", "let go of the host's root");
	return 0;
}

int confined_drop(const int *keep, size_t count, struct err *e)
{
	int rc = confine_fds("image", keep, count, e);

	if (rc == 0)
		rc = confine_identity("image", UID_IMAGE, UID_IMAGE, e);
	/* Taking another identity cleared it. */
	if (rc == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		rc = err_errno(e, errno, "image", "ask to die with the parent");
	return rc;
}

int confined_wait(pid_t pid, int pidfd, long long until, bool *ret_late)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};
	int status = 0, n;
	pid_t got;

	do {
		long long left = until - python_now_ms();

		n = poll(&p, 1, left > 0 ? (int)left : 0);
	} while (n < 0 && errno == EINTR);
	*ret_late = n == 0;
	if (n <= 0)
		kill(pid, SIGKILL);
	do
		got = waitpid(pid, &status, 0);
	while (got < 0 && errno == EINTR);
	return status;
}
