/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tokenfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"

#define WHERE "tokens"

/* ---- one file ---- */

static int lock(int fd, int how, const char *path, struct err *e)
{
	int rc;

	do
		rc = flock(fd, how);
	while (rc < 0 && errno == EINTR);
	return rc < 0 ? err_errno(e, errno, WHERE, "lock %s", path) : 0;
}

/* In so many words: closing does not unlock a file that is mapped. */
static void unlock(int fd)
{
	flock(fd, LOCK_UN);
}

static int check_owner(const struct stat *st, const char *path, struct err *e)
{
	if (!S_ISREG(st->st_mode))
		return err_set(e, EINVAL, WHERE, "%s is not a regular file", path);
	if (st->st_uid != 0 || (st->st_mode & 077))
		return err_set(e, EPERM, WHERE,
			       "%s must belong to root and be nobody else's to read or write: chown root and "
			       "chmod 600 it",
			       path);
	return 0;
}

/*
 * A file that was just made gets its size, and its blocks at once: a disk that is full is an error here and not a bus error
 * later. Whoever dies in between leaves a file of the whole size with nothing in it, which is what the next one begins with.
 */
static int give_size(int fd, size_t size, const char *path, struct err *e)
{
	int rc;

	if (ftruncate(fd, (off_t)size) < 0)
		return err_errno(e, errno, WHERE, "give %s its size", path);
	do
		rc = posix_fallocate(fd, 0, (off_t)size);
	while (rc == EINTR);
	/* Some file systems have no such thing. */
	if (rc && rc != EOPNOTSUPP && rc != EINVAL)
		return err_errno(e, rc, WHERE, "reserve %zu bytes for %s", size, path);
	return 0;
}

/* The same file again, in a way that no mapping of it can ever be made writable. */
static int reopen_readonly(int dir_fd, const char *path, const char *name, int *fd, struct err *e)
{
	_cleanup_fd_ int again = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat a, b;

	if (again < 0 || fstat(*fd, &a) < 0 || fstat(again, &b) < 0)
		return err_errno(e, errno, WHERE, "open %s", path);
	if (a.st_dev != b.st_dev || a.st_ino != b.st_ino)
		return err_set(e, EAGAIN, WHERE, "%s was replaced just now: try again", path);
	close(*fd);
	*fd = TAKE_FD(again);
	return 0;
}

/*
 * Opens (and makes, when `make`) one of the two, and sees to its size. It is locked on return: whoever makes it holds the lock
 * until it is whole.
 */
static int open_one(int dir_fd, const char *path, const char *name, size_t size, bool make, int *ret, struct err *e)
{
	_cleanup_fd_ int fd =
	    openat(dir_fd, name, (make ? O_RDWR | O_CREAT : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	struct stat st;
	int rc;

	if (fd < 0)
		return err_errno(e, errno, WHERE, "open %s", path);
	rc = lock(fd, make ? LOCK_EX : LOCK_SH, path, e);
	if (rc < 0)
		return rc;
	if (fstat(fd, &st) < 0)
		return err_errno(e, errno, WHERE, "look at %s", path);
	rc = check_owner(&st, path, e);
	if (rc == 0 && st.st_size == 0)
		rc = make ? give_size(fd, size, path, e) : err_set(e, ENOENT, WHERE, "%s is empty", path);
	else if (rc == 0 && st.st_size != (off_t)size)
		rc = err_set(e, EINVAL, WHERE,
			     "%s has %lld bytes where Weir's has %zu: it is cut off or somebody else's; move it away, and a "
			     "new one is made",
			     path, (long long)st.st_size, size);
	if (rc == 0)
		*ret = TAKE_FD(fd);
	return rc;
}

/* A table's head: what is written last when it is made. */
static int check_head(int fd, const char *path, bool make, struct err *e)
{
	struct tokens_head head = {0};
	bool blank;

	errno = EIO; /* of what is cut short without an error */
	if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head)
		return err_errno(e, errno, WHERE, "read %s", path);
	blank = !head.magic && !head.version && !head.used;
	if (blank && !make)
		return err_set(e, ENOENT, WHERE, "%s is empty", path);
	if (blank) {
		head.magic = TOKENS_MAGIC;
		head.version = TOKENS_VERSION;
		if (pwrite(fd, &head, sizeof head, 0) != (ssize_t)sizeof head || fsync(fd) < 0)
			return err_errno(e, errno, WHERE, "write %s", path);
	}
	if (head.magic != TOKENS_MAGIC)
		return err_set(e, EINVAL, WHERE, "%s is no table of tokens: move it away, and a new one is made", path);
	if (head.version != TOKENS_VERSION)
		return err_set(e, EINVAL, WHERE,
			       "%s is a table of version %u, and this Weir knows %u: use the Weir that made "
			       "it, or move it away",
			       path, head.version, TOKENS_VERSION);
	return 0;
}

static void *map(int fd, size_t size, bool write)
{
	void *p = mmap(NULL, size, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* ---- both ---- */

static int open_used(int dir_fd, const char *dir, bool make, struct tokens_used **ret, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	char path[PATH_MAX];
	struct err e2 = {0};
	int rc;

	snprintf(path, sizeof path, "%s/" TOKENFILE_USED, dir);
	rc = open_one(dir_fd, path, TOKENFILE_USED, sizeof **ret, make, &fd, &e2);
	if (rc == -ENOENT && !make)
		return 0;
	if (rc < 0) {
		*e = e2;
		return rc;
	}
	unlock(fd);
	*ret = map(fd, sizeof **ret, make);
	return *ret ? 0 : err_errno(e, errno, WHERE, "map %s", path);
}

static int open_table(int dir_fd, const char *dir, enum tokenfile_access access, struct tokens_file **ret, int *ret_fd,
		      struct err *e)
{
	bool make = access != TOKENFILE_LIST, change = access == TOKENFILE_CHANGE;
	_cleanup_fd_ int fd = -1;
	char path[PATH_MAX];
	int rc;

	snprintf(path, sizeof path, "%s/" TOKENFILE_TABLE, dir);
	rc = open_one(dir_fd, path, TOKENFILE_TABLE, sizeof **ret, make, &fd, e);
	if (rc == 0)
		rc = check_head(fd, path, make, e);
	if (rc == 0 && access == TOKENFILE_SERVE)
		rc = reopen_readonly(dir_fd, path, TOKENFILE_TABLE, &fd, e);
	if (rc < 0)
		return rc;
	if (!change)
		unlock(fd);
	*ret = map(fd, sizeof **ret, change);
	if (!*ret)
		return err_errno(e, errno, WHERE, "map %s", path);
	if (change)
		*ret_fd = TAKE_FD(fd);
	return 0;
}

int tokenfile_open(int dir_fd, const char *dir, enum tokenfile_access access, struct tokenfile *ret, struct err *e)
{
	struct tokenfile t = {NULL, NULL, -1};
	int rc = open_table(dir_fd, dir, access, &t.file, &t.lock_fd, e);

	if (rc == 0)
		rc = open_used(dir_fd, dir, access != TOKENFILE_LIST, &t.used, e);
	if (rc == 0 && access != TOKENFILE_LIST && fsync(dir_fd) < 0)
		rc = err_errno(e, errno, WHERE, "write %s", dir);
	if (rc < 0) {
		tokenfile_close(&t);
		return rc;
	}
	*ret = t;
	return 0;
}

int tokenfile_sync(const struct tokenfile *t, struct err *e)
{
	if (msync(t->file, sizeof *t->file, MS_SYNC) < 0)
		return err_errno(e, errno, WHERE, "write the table to the disk");
	return 0;
}

void tokenfile_close(struct tokenfile *t)
{
	if (t->file)
		munmap(t->file, sizeof *t->file);
	if (t->used)
		munmap(t->used, sizeof *t->used);
	cleanup_fdp(&t->lock_fd);
	*t = (struct tokenfile){NULL, NULL, -1};
}
