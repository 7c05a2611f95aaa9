/* SPDX-License-Identifier: Apache-2.0 */
/* The parent's side: where an image goes, and what a child says of it. The child's is oci_child.c. */
#include "oci.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
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

#define NEW_PREFIX ".new-" /* what is being unpacked; its maker holds a lock on it */
#define OLD_PREFIX ".old-" /* what is being removed; its remover does */
#define NEW_OUT "out"
#define NEW_SCRATCH "in"

bool oci_is_layout(const char *path)
{
	char file[PATH_MAX];
	struct stat st;

	return (size_t)snprintf(file, sizeof file, "%s/oci-layout", path) < sizeof file && stat(file, &st) == 0 &&
	       S_ISREG(st.st_mode);
}

/* ---- the directory of images ---- */

static int open_images(const char *images, int *ret, struct err *e)
{
	int fd;

	if (mkdir(images, 0700) < 0 && errno != EEXIST)
		return err_errno(e, errno, "image", "make %s", images);
	fd = open(images, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_errno(e, errno, "image", "open %s", images);
	*ret = fd;
	return 0;
}

static int interrupted(const struct oci_request *r, struct err *e)
{
	return r->stop && *r->stop ? err_set(e, ECANCELED, "image", "interrupted; nothing was changed") : 0;
}

/* One image is unpacked at a time. Waits, and says so. */
static int lock_images(int dir, const struct oci_request *r, int *ret, struct err *e)
{
	_cleanup_fd_ int lock = openat(dir, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	int error = lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0 ? errno : 0;

	if (error == EWOULDBLOCK && r->progress)
		r->progress(&(struct oci_progress){.waiting = true}, r->ctx);
	while (error == EWOULDBLOCK || error == EINTR) {
		if (interrupted(r, e) < 0)
			return -ECANCELED;
		error = flock(lock, LOCK_EX) < 0 ? errno : 0;
	}
	if (error)
		return err_errno(e, error, "image", "lock %s", r->images);
	*ret = TAKE_FD(lock);
	return 0;
}

/* Whether somebody is at it. The lock ends with the descriptor. */
static bool is_held(int dir, const char *name, int *ret_fd)
{
	*ret_fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd >= 0 && flock(*ret_fd, LOCK_EX | LOCK_NB) < 0;
}

/* What its maker or remover, who is dead, has left. */
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
	while (rc == 0 && (de = readdir(d))) {
		_cleanup_fd_ int held = -1;

		if ((!strncmp(de->d_name, OLD_PREFIX, strlen(OLD_PREFIX)) ||
		     !strncmp(de->d_name, NEW_PREFIX, strlen(NEW_PREFIX))) &&
		    !is_held(dir, de->d_name, &held))
			rc = unpack_remove(dir, de->d_name);
	}
	return rc;
}

/*
 * Room for the image and, for an archive, for what is in it; both in one directory, which nobody else gets into, and nobody
 * removes before *ret is closed. A lock on all of them covers the moment in which it has none of its own.
 */
static int make_new(int images, const char *name, bool scratch, int *ret, struct err *e)
{
	static const char *const subs[] = {NEW_OUT, NEW_SCRATCH};
	_cleanup_fd_ int all = openat(images, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
	int rc;

	if (all < 0 || flock(all, LOCK_EX) < 0)
		return err_errno(e, errno, "image", "lock the directory of images");
	rc = remove_unfinished(images);
	if (rc < 0)
		return err_errno(e, -rc, "image", "remove what an earlier attempt has left");
	if (mkdirat(images, name, 0700) < 0 ||
	    (fd = openat(images, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0 ||
	    flock(fd, LOCK_EX | LOCK_NB) < 0)
		return err_errno(e, errno, "image", "make a directory for the image");
	for (size_t i = 0; i < (scratch ? 2 : 1); i++)
		if (mkdirat(fd, subs[i], 0755) < 0 || fchownat(fd, subs[i], UID_IMAGE, UID_IMAGE, AT_SYMLINK_NOFOLLOW) < 0)
			return err_errno(e, errno, "image", "make a directory for the image");
	*ret = TAKE_FD(fd);
	return 0;
}

/* ---- the child ---- */

static void make_printable(char *text)
{
	for (char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

struct talk {
	const struct oci_request *r;
	int fd;
	long long until;
	struct oci_report report;
};

static int receive(struct talk *t, struct err *e)
{
	long long left = t->until - python_now_ms();
	struct timeval tv;
	ssize_t n;

	tv.tv_sec = left > 0 ? left / 1000 : 0;
	tv.tv_usec = left > 0 ? left % 1000 * 1000 + 1 : 1;
	if (setsockopt(t->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) < 0)
		return err_errno(e, errno, "image", "wait for the unpacking of the image");
	do {
		if (interrupted(t->r, e) < 0)
			return -ECANCELED;
		n = recv(t->fd, &t->report, sizeof t->report, 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return err_set(e, ETIMEDOUT, "image", "the image was not unpacked within %d s", LIMIT_IMAGE_UNPACK_S);
	if (n != (ssize_t)sizeof t->report)
		return err_set(e, EIO, "image", "the process that unpacks the image has ended early%s",
			       n < 0 ? "" : " (is the host out of memory?)");
	return 0;
}

static int surprised(struct err *e)
{
	return err_set(e, EBADMSG, "image", "the process that unpacks the image says what it should not");
}

/* The next report of that type. What the child sends is a stranger's word: every field is looked at. */
static int hear(struct talk *t, enum oci_report_type type, struct err *e)
{
	struct oci_report *got = &t->report;

	for (;;) {
		int rc = receive(t, e);

		if (rc < 0)
			return rc;
		if (got->type != OCI_PROGRESS)
			break;
		if (t->r->progress)
			t->r->progress(&(struct oci_progress){got->layer, got->layers, got->done, got->total, false},
				       t->r->ctx);
	}
	got->digest[OCI_HEX] = 0;
	got->name[OCI_NAME_MAX - 1] = 0;
	got->workdir[IMAGE_WORKDIR_MAX - 1] = 0;
	got->first_hidden[sizeof got->first_hidden - 1] = 0;
	got->error.where[sizeof got->error.where - 1] = 0;
	got->error.msg[sizeof got->error.msg - 1] = 0;
	make_printable(got->first_hidden);
	make_printable(got->error.msg);
	if (got->type == OCI_FAILED)
		return err_set(e, got->error.code > 0 && got->error.code < 4096 ? got->error.code : EINVAL, "image", "%s",
			       got->error.msg);
	return got->type == type ? 0 : surprised(e);
}

static int hear_digest(struct talk *t, struct oci_unpacked *ret, struct err *e)
{
	static const char *const kinds[OCI_KINDS] = {[OCI_KIND_LAYOUT] = "oci-layout",
						     [OCI_KIND_DIRECTORY] = "directory",
						     [OCI_KIND_OCI_ARCHIVE] = "oci-archive",
						     [OCI_KIND_DOCKER_ARCHIVE] = "docker-archive"};
	const struct oci_report *got = &t->report;
	int rc = hear(t, OCI_DIGEST, e);

	if (rc < 0)
		return rc;
	if (!image_digest_ok(got->digest) || got->kind >= OCI_KINDS || !kinds[got->kind] ||
	    (got->workdir[0] && !image_workdir_ok(got->workdir)) || got->variables_len > sizeof got->variables ||
	    !image_variables_ok(got->variables, got->variables_len))
		return surprised(e);
	memcpy(ret->digest, got->digest, sizeof ret->digest);
	memcpy(ret->name, got->name, sizeof ret->name);
	memcpy(ret->workdir, got->workdir, sizeof ret->workdir);
	memcpy(ret->variables, got->variables, got->variables_len);
	ret->variables_len = got->variables_len;
	ret->kind = kinds[got->kind];
	return 0;
}

static int hear_done(struct talk *t, struct oci_unpacked *ret, struct err *e)
{
	int rc;

	if (send(t->fd, "G", 1, MSG_NOSIGNAL) != 1)
		return err_errno(e, errno, "image", "let the unpacking of the image begin");
	rc = hear(t, OCI_DONE, e);
	if (rc < 0)
		return rc;
	ret->bytes = t->report.bytes;
	ret->entries = t->report.entries;
	ret->left_out = t->report.left_out;
	ret->hidden = t->report.hidden;
	memcpy(ret->first_hidden, t->report.first_hidden, sizeof ret->first_hidden);
	return 0;
}

/* ---- one image ---- */

static int path_in(char ret[PATH_MAX], const char *images, const char *name, const char *sub, struct err *e)
{
	if ((size_t)snprintf(ret, PATH_MAX, "%s/%s%s%s", images, name, sub ? "/" : "", sub ? sub : "") >= PATH_MAX)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", images);
	return 0;
}

static int vet(const struct oci_request *r, const char *root, const struct oci_unpacked *u, struct err *e)
{
	return r->vet ? r->vet(root, u, r->ctx, e) : 0;
}

/* Complete, and on the disk before it has its name: what has it is whole. */
static int name_it(int dir, const char *new_name, const char *digest, struct err *e)
{
	char from[64];
	_cleanup_fd_ int fd = -1;

	snprintf(from, sizeof from, "%s/" NEW_OUT, new_name);
	fd = openat(dir, from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchmod(fd, 0755) < 0 || syncfs(fd) < 0 || renameat(dir, from, dir, digest) < 0 || fsync(dir) < 0)
		return err_errno(e, errno, "image", "put the unpacked image in its place");
	return 0;
}

static void start_clock(struct talk *t)
{
	t->until = python_now_ms() + LIMIT_IMAGE_UNPACK_S * 1000LL;
}

static bool is_there(int dir, const char *digest)
{
	return faccessat(dir, digest, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Only what is going to be written takes the lock: somebody's slow archive, or what is there already, holds nobody up. */
static int converse(struct talk *t, int dir, const char *new_name, struct oci_unpacked *ret, struct err *e)
{
	_cleanup_fd_ int lock = -1;
	char now[PATH_MAX];
	int rc;

	start_clock(t);
	rc = hear_digest(t, ret, e);
	if (rc == 0)
		rc = path_in(ret->root, t->r->images, ret->digest, NULL, e);
	if (rc == 0)
		rc = path_in(now, t->r->images, new_name, NEW_OUT, e);
	if (rc == 0 && !is_there(dir, ret->digest))
		rc = lock_images(dir, t->r, &lock, e);
	if (rc < 0)
		return rc;
	if (is_there(dir, ret->digest))
		return vet(t->r, ret->root, ret, e);
	start_clock(t);
	rc = hear_done(t, ret, e);
	ret->fresh = true;
	if (rc == 0)
		rc = vet(t->r, now, ret, e);
	return rc < 0 ? rc : name_it(dir, new_name, ret->digest, e);
}

static void task_of(const struct oci_request *r, struct oci_task *ret)
{
	ret->archive_fd = -1;
	ret->ref = r->ref;
	ret->source = r->path;
	if (r->path) {
		ret->kind = oci_is_layout(r->path) ? OCI_KIND_LAYOUT : OCI_KIND_DIRECTORY;
	} else {
		ret->kind = OCI_KIND_ARCHIVE;
		ret->archive_fd = r->archive_fd;
	}
}

/* Starts the child, and hears it out. `t->r` is set. */
static int employ(struct talk *t, struct oci_task *task, int dir, const char *new_name, struct oci_unpacked *ret, struct err *e)
{
	_cleanup_fd_ int ours = -1, theirs = -1, pidfd = -1;
	int sv[2], rc;
	bool late;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return err_errno(e, errno, "image", "make a socket pair");
	ours = t->fd = sv[0];
	theirs = task->report_fd = sv[1];
	pid = confined_fork(&pidfd, e);
	if (pid == 0)
		oci_child(task);
	if (pid < 0)
		return pid;
	close(TAKE_FD(theirs));
	rc = converse(t, dir, new_name, ret, e);
	close(TAKE_FD(ours)); /* it ends by itself, or is ended */
	(void)confined_wait(pid, pidfd, python_now_ms() + (rc == 0 ? 5000 : 0), &late);
	return rc;
}

int oci_import(const struct oci_request *r, struct oci_unpacked *ret, struct err *e)
{
	_cleanup_fd_ int dir = -1, held = -1;
	char new_name[32], into[PATH_MAX], scratch[PATH_MAX];
	struct oci_task task = {.into = into, .scratch = scratch};
	_cleanup_free_ struct talk *t = calloc(1, sizeof *t);
	_cleanup_free_ struct oci_unpacked *got = calloc(1, sizeof *got);
	int rc, rc2;

	if (!t || !got)
		return err_set(e, ENOMEM, "image", "out of memory");
	t->r = r;
	task_of(r, &task);
	snprintf(new_name, sizeof new_name, NEW_PREFIX "%d", getpid());
	rc = path_in(into, r->images, new_name, NEW_OUT, e);
	if (rc == 0)
		rc = path_in(scratch, r->images, new_name, NEW_SCRATCH, e);
	if (rc == 0)
		rc = open_images(r->images, &dir, e);
	if (rc < 0)
		return rc;
	rc = make_new(dir, new_name, task.kind == OCI_KIND_ARCHIVE, &held, e);
	if (rc == 0)
		rc = employ(t, &task, dir, new_name, got, e);
	rc2 = unpack_remove(dir, new_name);
	if (rc == 0 && rc2 < 0)
		rc = err_errno(e, -rc2, "image", "remove %s/%s", r->images, new_name);
	if (rc == 0)
		*ret = *got;
	return rc;
}

/* ---- of what is there ---- */

static struct {
	unsigned long long bytes, entries;
} measured; /* nftw() has no context */

static int measure_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)path;
	measured.entries += at->level > 0;
	if (type == FTW_F && S_ISREG(st->st_mode))
		measured.bytes += (unsigned long long)st->st_size / (st->st_nlink ? st->st_nlink : 1);
	return 0;
}

void oci_measure(const char *root, unsigned long long *ret_bytes, unsigned long long *ret_entries)
{
	measured.bytes = measured.entries = 0;
	(void)nftw(root, measure_one, 64, FTW_PHYS | FTW_MOUNT);
	*ret_bytes = measured.bytes;
	*ret_entries = measured.entries;
}

bool oci_is_unpacked(const char *images, const char *digest)
{
	char path[PATH_MAX];
	struct stat st;

	return path_in(path, images, digest, NULL, NULL) == 0 && lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool oci_is_used(const char *images, const char *digest)
{
	_cleanup_fd_ int dir = open(images, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), fd = -1;

	return dir >= 0 && is_held(dir, digest, &fd);
}

int oci_remove(const char *images, const char *digest, struct err *e)
{
	_cleanup_fd_ int dir = open(images, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), held = -1;
	char old_name[32];
	int rc;

	if (dir < 0)
		return errno == ENOENT ? 0 : err_errno(e, errno, "image", "open %s", images);
	held = openat(dir, digest, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (held < 0 && errno == ENOENT)
		return 0;
	if (held < 0 || flock(held, LOCK_EX | LOCK_NB) < 0)
		return err_errno(e, errno, "image", "lock %s/%s", images, digest);
	/* First it is no image any more, then it goes. */
	snprintf(old_name, sizeof old_name, OLD_PREFIX "%d", getpid());
	rc = unpack_remove(dir, old_name); /* of a dead one with our number */
	if (rc < 0)
		return err_errno(e, -rc, "image", "remove %s/%s", images, old_name);
	if (renameat(dir, digest, dir, old_name) < 0 || fsync(dir) < 0)
		return err_errno(e, errno, "image", "remove %s/%s", images, digest);
	rc = unpack_remove(dir, old_name);
	return rc < 0 ? err_errno(e, -rc, "image", "remove %s/%s", images, old_name) : 0;
}
