/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/image_try.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "image.h"
#include "supervisor/supervisor.h"

static int try(const char *root, const struct python *py, const char *stage, struct err *e)
{
	const struct image_spec spec = {.root = root, .known = py};
	struct image *im = NULL;
	int rc;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_errno(e, errno, "image", "make a mount namespace");
	if (mkdir(RUN_DIR, 0755) < 0 && errno != EEXIST)
		return err_errno(e, errno, "image", "make " RUN_DIR);
	rc = image_build(&im, stage, &spec, e);
	image_release(im);
	return rc;
}

int image_try(const char *root, const struct python *py, struct err *e)
{
	struct err said = {.code = EIO, .msg = "the process that tries the image has ended early"};
	_cleanup_fd_ int in = -1, out = -1;
	int p[2], status = 0;
	char stage[64];
	pid_t pid, got;

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_errno(e, errno, "image", "make a pipe");
	in = p[0];
	out = p[1];
	snprintf(stage, sizeof stage, RUN_DIR "/.try-%d", getpid());
	pid = fork();
	if (pid < 0)
		return err_errno(e, errno, "image", "start a process");
	if (pid == 0) {
		said = (struct err){0};
		(void)try(root, py, stage, &said);
		_exit(write(out, &said, sizeof said) == (ssize_t)sizeof said ? 0 : 1);
	}
	close(TAKE_FD(out));
	do
		got = waitpid(pid, &status, 0);
	while (got < 0 && errno == EINTR);
	(void)rmdir(stage); /* when it could not */
	if (read(in, &said, sizeof said) != (ssize_t)sizeof said || said.code)
		return err_set(e, said.code, "image", "%s", said.msg);
	return 0;
}
