/* SPDX-License-Identifier: Apache-2.0 */
/* The parent's side: where an image goes, and what a child says of it. The child's is oci_child.c. */
#include "oci.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "confined.h"
#include "core/cleanup.h"
#include "oci_child.h"
#include "python.h"
#include "supervisor/supervisor.h"
#include "unpack.h"

#define NEW_PREFIX ".new-"

bool oci_is_layout(const char *path)
{
	char file[PATH_MAX];
	struct stat st;

	return (size_t)snprintf(file, sizeof file, "%s/oci-layout", path) < sizeof file && stat(file, &st) == 0 &&
	       S_ISREG(st.st_mode);
}

/* ---- the directory of images ---- */

/* Opens it, and holds its lock until the descriptor in *ret_lock is closed. */
static int open_images(const char *images, int *ret_dir, int *ret_lock, struct err *e)
{
	_cleanup_fd_ int dir = -1, lock = -1;

	if (mkdir(images, 0700) < 0 && errno != EEXIST)
		return err_errno(e, errno, "image", "make %s", images);
	dir = open(images, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0)
		return err_errno(e, errno, "image", "open %s", images);
	lock = openat(dir, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (lock < 0 || flock(lock, LOCK_EX) < 0)
		return err_errno(e, errno, "image", "lock %s", images);
	*ret_dir = TAKE_FD(dir);
	*ret_lock = TAKE_FD(lock);
	return 0;
}

/* We hold the lock, so whoever made these is dead. */
static int remove_unfinished(int dir)
{
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	_cleanup_dir_ DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *de;

	if (!d) {
		rc = -errno;
		cleanup_fdp(&copy);
		return rc;
	}
	while (rc == 0 && (de = readdir(d)))
		if (!strncmp(de->d_name, NEW_PREFIX, strlen(NEW_PREFIX)))
			rc = unpack_remove(dir, de->d_name);
	return rc;
}

static int make_new(int dir, const char *name, struct err *e)
{
	int rc = remove_unfinished(dir);

	if (rc < 0)
		return err_errno(e, -rc, "image", "remove what an earlier attempt has left");
	if (mkdirat(dir, name, 0755) < 0 || fchownat(dir, name, UID_IMAGE, UID_IMAGE, AT_SYMLINK_NOFOLLOW) < 0)
		return err_errno(e, errno, "image", "make a directory for the image");
	return 0;
}

/* ---- the child ---- */

/* The next report within the time there is. What the child sends is a stranger's word: every field is bounded here. */
static int hear(int fd, long long until, struct oci_report *ret, struct err *e)
{
	struct timeval tv;
	long long left = until - python_now_ms();
	ssize_t n;

	tv.tv_sec = left > 0 ? left / 1000 : 0;
	tv.tv_usec = left > 0 ? left % 1000 * 1000 + 1 : 1;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) < 0)
		return err_errno(e, errno, "image", "wait for the unpacking of the image");
	do
		n = recv(fd, ret, sizeof *ret, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return err_set(e, ETIMEDOUT, "image", "the image was not unpacked within %d s", LIMIT_IMAGE_UNPACK_S);
	if (n != (ssize_t)sizeof *ret)
		return err_set(e, EIO, "image", "the process that unpacks the image has ended early%s",
			       n < 0 ? "" : " (is the host out of memory?)");
	ret->digest[OCI_HEX] = 0;
	ret->error.where[sizeof ret->error.where - 1] = 0;
	ret->error.msg[sizeof ret->error.msg - 1] = 0;
	for (char *c = ret->error.msg; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	if (ret->type == OCI_FAILED)
		return err_set(e, ret->error.code > 0 && ret->error.code < 4096 ? ret->error.code : EINVAL, "image", "%s",
			       ret->error.msg);
	return 0;
}

static int hear_digest(int fd, long long until, struct oci_unpacked *ret, struct err *e)
{
	struct oci_report r = {0};
	int rc = hear(fd, until, &r, e);

	if (rc < 0)
		return rc;
	if (r.type != OCI_DIGEST || strlen(r.digest) != OCI_HEX || strspn(r.digest, "0123456789abcdef") != OCI_HEX)
		return err_set(e, EBADMSG, "image", "the process that unpacks the image says what it should not");
	snprintf(ret->digest, sizeof ret->digest, "%s", r.digest);
	return 0;
}

static int hear_done(int fd, long long until, struct oci_unpacked *ret, struct err *e)
{
	struct oci_report r = {0};
	int rc;

	if (send(fd, "G", 1, MSG_NOSIGNAL) != 1)
		return err_errno(e, errno, "image", "let the unpacking of the image begin");
	rc = hear(fd, until, &r, e);
	if (rc < 0)
		return rc;
	if (r.type != OCI_DONE)
		return err_set(e, EBADMSG, "image", "the process that unpacks the image says what it should not");
	ret->bytes = r.bytes;
	ret->entries = r.entries;
	ret->left_out = r.left_out;
	return 0;
}

/* Complete, and on the disk before it has its name: what has it is whole. */
static int name_it(int dir, const char *from, const char *digest, struct err *e)
{
	_cleanup_fd_ int fd = openat(dir, from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fchmod(fd, 0755) < 0 || syncfs(fd) < 0 || renameat(dir, from, dir, digest) < 0 || fsync(dir) < 0)
		return err_errno(e, errno, "image", "put the unpacked image in its place");
	return 0;
}

static int converse(int dir, const char *new_name, int fd, struct oci_unpacked *ret, struct err *e)
{
	long long until = python_now_ms() + LIMIT_IMAGE_UNPACK_S * 1000LL;
	int rc = hear_digest(fd, until, ret, e);

	if (rc < 0)
		return rc;
	if (faccessat(dir, ret->digest, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	rc = hear_done(fd, until, ret, e);
	if (rc == 0)
		rc = name_it(dir, new_name, ret->digest, e);
	ret->fresh = rc == 0;
	return rc;
}

int oci_unpack(const char *layout, const char *ref, const char *images, struct oci_unpacked *ret, struct err *e)
{
	_cleanup_fd_ int dir = -1, lock = -1, ours = -1, theirs = -1, pidfd = -1;
	struct oci_unpacked got = {0};
	char new_name[32], into[PATH_MAX];
	int sv[2], rc = open_images(images, &dir, &lock, e);
	bool late;
	pid_t pid;

	if (rc < 0)
		return rc;
	snprintf(new_name, sizeof new_name, NEW_PREFIX "%d", getpid());
	if ((size_t)snprintf(into, sizeof into, "%s/%s", images, new_name) >= sizeof into)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", images);
	rc = make_new(dir, new_name, e);
	if (rc < 0)
		return rc;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return err_errno(e, errno, "image", "make a socket pair");
	ours = sv[0];
	theirs = sv[1];
	pid = confined_fork(&pidfd, e);
	if (pid == 0)
		oci_child(layout, into, ref, theirs);
	if (pid < 0)
		return pid;
	close(TAKE_FD(theirs));
	rc = converse(dir, new_name, ours, &got, e);
	close(TAKE_FD(ours)); /* it ends by itself, or is ended */
	(void)confined_wait(pid, pidfd, python_now_ms() + (rc == 0 ? 5000 : 0), &late);
	if (!got.fresh) {
		int rc2 = unpack_remove(dir, new_name);

		if (rc == 0 && rc2 < 0)
			rc = err_errno(e, -rc2, "image", "remove %s", into);
	}
	if (rc == 0 && (size_t)snprintf(got.root, sizeof got.root, "%s/%s", images, got.digest) >= sizeof got.root)
		rc = err_set(e, ENAMETOOLONG, "image", "path too long: %s", images);
	if (rc == 0)
		*ret = got;
	return rc;
}
