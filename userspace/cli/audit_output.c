/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/audit_output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"

#define TEMPORARY_MAX 32

struct target {
	const char *path, *name; /* as given, and its last part */
	int dir;
	char temporary[TEMPORARY_MAX]; /* beside it */
};

/* ---- the file ---- */

static int open_directory(struct target *t, struct err *e)
{
	const char *slash = strrchr(t->path, '/');
	_cleanup_free_ char *folder = slash ? strndup(t->path, (size_t)(slash - t->path) + 1) : strdup(".");

	t->name = slash ? slash + 1 : t->path;
	if (!folder)
		return err_set(e, ENOMEM, "", "out of memory");
	t->dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return t->dir < 0 ? err_errno(e, errno, "", "can't write %s", t->path) : 0;
}

/* Whether there is something that can't be replaced by a file, since it is none: a pipe, /dev/null. */
static int is_stream(const struct target *t, bool *ret, struct err *e)
{
	struct stat st;

	if (!*t->name)
		return err_errno(e, EISDIR, "", "can't write %s", t->path);
	if (fstatat(t->dir, t->name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		*ret = false;
		return errno == ENOENT ? 0 : err_errno(e, errno, "", "can't write %s", t->path);
	}
	if (S_ISLNK(st.st_mode))
		return err_set(e, ELOOP, "", "can't write %s: it is a symbolic link; name the file itself", t->path);
	if (S_ISDIR(st.st_mode))
		return err_errno(e, EISDIR, "", "can't write %s", t->path);
	*ret = !S_ISREG(st.st_mode);
	return 0;
}

static FILE *opened(int *fd)
{
	FILE *f = *fd < 0 ? NULL : fdopen(*fd, "w");

	if (f)
		*fd = -1;
	return f;
}

/* For its owner's eyes, as the record is. */
static int open_temporary(struct target *t, int *ret, struct err *e)
{
	uint64_t random;

	if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
		return err_errno(e, errno, "", "can't write %s", t->path);
	snprintf(t->temporary, sizeof t->temporary, ".weir-%016" PRIx64, random);
	*ret = openat(t->dir, t->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return *ret < 0 ? err_errno(e, errno, "", "can't write %s: can't make a file beside it", t->path) : 0;
}

/* ---- who waits ---- */

/* What would end this process is the child's to hear, which the file depends on. */
static void signals_to_wait_for(sigset_t *ret)
{
	static const int signals[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT};

	sigemptyset(ret);
	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
		sigaddset(ret, signals[i]);
}

static int wait_for(pid_t child, const sigset_t *signals)
{
	int status, which = SIGCHLD;

	do {
		if (which > 0 && which != SIGCHLD)
			(void)kill(child, which);
		if (waitpid(child, &status, WNOHANG) == child)
			return status;
		which = sigwaitinfo(signals, NULL);
	} while (which >= 0 || errno == EINTR);
	return W_EXITCODE(1, 0);
}

/* As the child ended, so that whoever started this sees no difference. */
static _Noreturn void end_likewise(int status)
{
	if (WIFSIGNALED(status)) {
		sigset_t one;

		sigemptyset(&one);
		sigaddset(&one, WTERMSIG(status));
		(void)signal(WTERMSIG(status), SIG_DFL);
		(void)sigprocmask(SIG_UNBLOCK, &one, NULL);
		(void)raise(WTERMSIG(status));
	}
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* The file's content has to be on the disk before its name is: else a power cut could leave an empty one in its place. */
static int finish(const struct target *t, int fd, int status, struct err *e)
{
	int r;

	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		(void)unlinkat(t->dir, t->temporary, 0);
		end_likewise(status);
	}
	if (fsync(fd) == 0 && renameat(t->dir, t->temporary, t->dir, t->name) == 0)
		_exit(0);
	r = err_errno(e, errno, "", "can't write %s", t->path);
	(void)unlinkat(t->dir, t->temporary, 0);
	return r;
}

/* Returns in the child with 0; here, only when something is wrong. */
static int leave_to_child(const struct target *t, int fd, struct err *e)
{
	sigset_t signals, before;
	pid_t child;
	int r;

	signals_to_wait_for(&signals);
	(void)signal(SIGCHLD, SIG_DFL); /* where it is ignored nobody learns how a child ended */
	(void)fflush(NULL);
	(void)sigprocmask(SIG_BLOCK, &signals, &before);
	child = fork();
	if (child > 0)
		return finish(t, fd, wait_for(child, &signals), e);
	r = child < 0 ? err_errno(e, errno, "", "can't start the process that writes %s", t->path) : 0;
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	if (r < 0)
		(void)unlinkat(t->dir, t->temporary, 0);
	return r;
}

static int open_target(struct target *t, FILE **ret, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	bool stream = false;
	FILE *f;
	int r = open_directory(t, e);

	if (r == 0)
		r = is_stream(t, &stream, e);
	if (r == 0 && stream)
		fd = openat(t->dir, t->name, O_WRONLY | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
	else if (r == 0)
		r = open_temporary(t, &fd, e);
	if (r == 0 && !stream)
		r = leave_to_child(t, fd, e);
	if (r < 0)
		return r;
	f = opened(&fd);
	if (!f)
		return err_errno(e, errno, "", "can't write %s", t->path);
	*ret = f;
	return 0;
}

int audit_output_open(const char *path, FILE **ret, struct err *e)
{
	struct target t = {.path = path, .dir = -1};
	int r;

	if (!path || !strcmp(path, "-")) {
		*ret = stdout;
		return 0;
	}
	r = open_target(&t, ret, e);
	cleanup_fdp(&t.dir);
	return r;
}

int audit_output_close(FILE *f, const char *path, struct err *e)
{
	const bool is_stdout = f == stdout;
	bool bad;

	if (!f)
		return 0;
	bad = ferror(f) != 0;
	if (!is_stdout && fclose(f) != 0)
		bad = true;
	return bad ? err_errno(e, errno ? errno : EIO, "", "can't write %s", is_stdout ? "the output" : path) : 0;
}
