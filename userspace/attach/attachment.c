/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/attachment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/clock.h"

#define WHERE "attachment"
#define RECORD "attachment.json"
#define DOCUMENT "policy.json"
/* A record with as many sockets as are listed, and as long names as can be, is far below it. */
#define RECORD_MAX (4 << 20)

const char *attachment_dir = ATTACHED_DIR, *attachment_pins = ATTACHED_PINS;

void attachment_clear(struct attachment *a)
{
	free(a->sockets);
	a->sockets = NULL;
	a->socket_count = 0;
}

/* ---- the directory ---- */

/* Only root may have put anything there: else what stands in it is somebody's word. */
static int check_owner(int fd, const char *what, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_errno(e, errno, WHERE, "look at %s", what);
	if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return err_set(e, EPERM, WHERE, "%s can be written by others: remove it, or chown root and chmod 700 it", what);
	return 0;
}

static int make_dirs(struct err *e)
{
	char above[PATH_MAX];
	char *slash;

	snprintf(above, sizeof above, "%s", attachment_dir);
	slash = strrchr(above, '/');
	if (slash && slash != above)
		*slash = 0;
	if (mkdir(above, 0755) < 0 && errno != EEXIST)
		return err_errno(e, errno, WHERE, "make %s", above);
	if (mkdir(attachment_dir, 0700) < 0 && errno != EEXIST)
		return err_errno(e, errno, WHERE, "make %s", attachment_dir);
	return 0;
}

/* -ENOENT when there is none. */
static int open_dir(int *ret, struct err *e)
{
	_cleanup_fd_ int fd = open(attachment_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int rc;

	if (fd < 0)
		return err_errno(e, errno, WHERE, "open %s", attachment_dir);
	rc = check_owner(fd, attachment_dir, e);
	if (rc == 0)
		*ret = TAKE_FD(fd);
	return rc;
}

/* Names are made by us; one that was not is no path of ours. */
static bool is_id(const char *name)
{
	return name[0] && name[0] != '.' && !strchr(name, '/') && strlen(name) < IPC_ID_MAX;
}

static int open_one(const char *id, int *ret, struct err *e)
{
	_cleanup_fd_ int dir = -1;
	int rc = is_id(id) ? open_dir(&dir, e) : err_set(e, EINVAL, WHERE, "\"%.60s\" is no id of an attachment", id);

	if (rc < 0)
		return rc;
	*ret = openat(dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret < 0 ? err_errno(e, errno, WHERE, "open %s/%s", attachment_dir, id) : 0;
}

/* ---- locks ---- */

/*
 * The kernel serves those who wait in flock() in their order, and knows no limit of time. So a thread waits, and if it is not
 * waited for any more it lets go at once of what it gets.
 */
struct waiter {
	pthread_mutex_t mutex;
	pthread_cond_t done_cond;
	int fd, how, error;
	bool done, left;
};

static void waiter_free(struct waiter *w)
{
	pthread_mutex_destroy(&w->mutex);
	pthread_cond_destroy(&w->done_cond);
	free(w);
}

static int wait_for(int fd, int how)
{
	while (flock(fd, how) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static void *waiter_run(void *arg)
{
	struct waiter *w = arg;
	int error = wait_for(w->fd, w->how);
	bool left;

	pthread_mutex_lock(&w->mutex);
	w->error = error;
	w->done = true;
	left = w->left;
	pthread_cond_signal(&w->done_cond);
	pthread_mutex_unlock(&w->mutex);
	if (left) {
		close(w->fd);
		waiter_free(w);
	}
	return NULL;
}

static struct waiter *waiter_start(int fd, int how)
{
	struct waiter *w = calloc(1, sizeof *w);
	sigset_t all, before;
	pthread_condattr_t attr;
	pthread_t thread;
	int rc;

	if (!w)
		return NULL;
	*w = (struct waiter){.fd = fd, .how = how};
	pthread_mutex_init(&w->mutex, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->done_cond, &attr);
	pthread_condattr_destroy(&attr);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for those who expect them */
	rc = pthread_create(&thread, NULL, waiter_run, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc) {
		waiter_free(w);
		return NULL;
	}
	pthread_detach(thread);
	return w;
}

/* 1 locked, 0 not until `until` (then *fd is not the caller's any more), or a negative errno. */
static int wait_until(int *fd, int how, uint64_t until)
{
	const struct timespec end = {.tv_sec = (time_t)(until / SECOND_NS), .tv_nsec = (long)(until % SECOND_NS)};
	struct waiter *w = waiter_start(*fd, how);
	int rc = 0, error;
	bool done;

	if (!w)
		return -ENOMEM;
	pthread_mutex_lock(&w->mutex);
	while (!w->done && rc == 0)
		rc = pthread_cond_timedwait(&w->done_cond, &w->mutex, &end);
	done = w->done;
	error = w->error;
	w->left = !done;
	pthread_mutex_unlock(&w->mutex);
	if (!done) {
		*fd = -1;
		return 0;
	}
	waiter_free(w);
	return error < 0 ? error : 1;
}

/* The same, for ever with UINT64_MAX, and at once if the time is over already. */
static int lock_until(int *fd, int how, uint64_t until, struct err *e)
{
	int rc = flock(*fd, how | LOCK_NB) == 0 ? 1 : -errno;

	if (rc == -EWOULDBLOCK && until != UINT64_MAX) {
		rc = clock_now_ns() < until ? wait_until(fd, how, until) : 0;
	} else if (rc == -EWOULDBLOCK) {
		rc = wait_for(*fd, how);
		rc = rc < 0 ? rc : 1;
	}
	return rc < 0 ? err_errno(e, -rc, WHERE, "lock a file in %s", attachment_dir) : rc;
}

/* Whether what is locked is still what others would lock: an uninstall may have removed it while we waited. */
static bool is_at(int fd, const char *path)
{
	struct stat held, there;

	return fstat(fd, &held) == 0 && stat(path, &there) == 0 && held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

/* 1 with *ret_fd, 0 when it is another's until `until`. */
static int lock_file(const char *name, int how, uint64_t until, int *ret_fd, struct err *e)
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", attachment_dir, name);
	for (;;) {
		_cleanup_fd_ int dir = -1, fd = -1;
		int rc = make_dirs(e);

		if (rc == 0)
			rc = open_dir(&dir, e);
		if (rc == -ENOENT)
			continue;
		if (rc < 0)
			return rc;
		fd = openat(dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0 && errno == ENOENT)
			continue;
		if (fd < 0)
			return err_errno(e, errno, WHERE, "open %s", path);
		rc = lock_until(&fd, how, until, e);
		if (rc <= 0)
			return rc;
		if (is_at(fd, path)) {
			*ret_fd = TAKE_FD(fd);
			return 1;
		}
	}
}

int attachment_lock(int ms, int *ret_fd, struct err *e)
{
	int rc = lock_file("lock", LOCK_EX, ms < 0 ? UINT64_MAX : clock_now_ns() + (uint64_t)ms * 1000000u, ret_fd, e);

	if (rc == 0)
		return err_set(e, EBUSY, WHERE, "another weir is attaching or detaching, for longer than %d ms", ms);
	return rc < 0 ? rc : 0;
}

int attachment_making(int *ret_fd, struct err *e)
{
	int rc = lock_file("making", LOCK_SH, UINT64_MAX, ret_fd, e);

	return rc < 0 ? rc : 0;
}

/* Whether somebody holds the lock file of that name so that `how` can't be had. *ret_fd is the caller's, to read it. */
static bool is_held(const char *name, int how, int *ret_fd)
{
	_cleanup_fd_ int dir = -1, fd = -1;

	if (open_dir(&dir, NULL) < 0)
		return false;
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || flock(fd, how | LOCK_NB) == 0 || errno != EWOULDBLOCK)
		return false;
	if (ret_fd)
		*ret_fd = TAKE_FD(fd);
	return true;
}

bool attachment_being_made(void)
{
	return is_held("making", LOCK_EX, NULL);
}

bool attachment_being_changed(void)
{
	return is_held("lock", LOCK_SH, NULL);
}

int attachment_drained_by(void)
{
	_cleanup_fd_ int fd = -1;
	char text[16] = "";
	ssize_t n;
	long pid;

	if (!is_held("drain", LOCK_SH, &fd))
		return 0;
	n = pread(fd, text, sizeof text - 1, 0);
	pid = n > 0 ? strtol(text, NULL, 10) : 0;
	return pid > 0 && pid < INT32_MAX ? (int)pid : 0;
}

/* ---- reading ---- */

static int read_whole(int dir, const char *id, char **ret, size_t *ret_len, struct err *e)
{
	_cleanup_fd_ int fd = openat(dir, RECORD, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	_cleanup_free_ char *text = NULL;
	size_t got = 0;
	struct stat st;
	ssize_t n = 1;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, errno, WHERE, "open %s/" RECORD, id);
	if (!S_ISREG(st.st_mode) || st.st_size > RECORD_MAX)
		return err_set(e, EINVAL, WHERE, "%s/" RECORD " is no file of at most %d bytes", id, RECORD_MAX);
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return err_set(e, ENOMEM, WHERE, "out of memory");
	while (got < (size_t)st.st_size && n > 0) {
		n = pread(fd, text + got, (size_t)st.st_size - got, (off_t)got);
		if (n < 0 && errno != EINTR)
			return err_errno(e, errno, WHERE, "read %s/" RECORD, id);
		got += n > 0 ? (size_t)n : 0;
	}
	*ret = TAKE_PTR(text);
	*ret_len = got;
	return 0;
}

static int load_from(int dir, const char *id, bool with_sockets, struct attachment *ret, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	struct err inner = {0};
	size_t len = 0;
	int rc = read_whole(dir, id, &text, &len, e);

	if (rc < 0)
		return rc;
	rc = attachment_parse(text, len, with_sockets, ret, &inner);
	if (rc < 0)
		return err_set(e, inner.code, WHERE, "%s/" RECORD ": %s", id, inner.msg);
	if (strcmp(ret->id, id) != 0) {
		attachment_clear(ret);
		return err_set(e, EINVAL, WHERE, "%s/" RECORD ": /id: expected the directory's name", id);
	}
	return 0;
}

int attachment_load(const char *id, struct attachment *ret, struct err *e)
{
	_cleanup_fd_ int dir = -1;
	int rc = open_one(id, &dir, e);

	return rc < 0 ? rc : load_from(dir, id, true, ret, e);
}

/* ---- all of them ---- */

void attachment_list_clear(struct attachment_list *l)
{
	for (size_t i = 0; i < l->count; i++)
		attachment_clear(&l->each[i]);
	free(l->each);
	free(l->broken);
	*l = (struct attachment_list){0};
}

/* Room doubles, so that many cost no more than few. */
static bool is_full(size_t count)
{
	return !(count & (count - 1));
}

static size_t next_room(size_t count)
{
	return count ? 2 * count : 1;
}

static int add_broken(struct attachment_list *l, const char *id, const char *why, struct err *e)
{
	__typeof__(l->broken) to = l->broken;

	if (is_full(l->broken_count)) {
		to = reallocarray(l->broken, next_room(l->broken_count), sizeof *to);
		if (!to)
			return err_set(e, ENOMEM, WHERE, "out of memory");
		l->broken = to;
	}
	to += l->broken_count++;
	snprintf(to->id, sizeof to->id, "%.*s", (int)sizeof to->id - 1, id);
	snprintf(to->why, sizeof to->why, "%.*s", (int)sizeof to->why - 1, why);
	return 0;
}

static struct attachment *next_place(struct attachment_list *l)
{
	struct attachment *more = l->each;

	if (is_full(l->count)) {
		more = reallocarray(l->each, next_room(l->count), sizeof *more);
		if (!more)
			return NULL;
		l->each = more;
	}
	return more + l->count;
}

static int add_one(struct attachment_list *l, int dir, const char *id, struct err *e)
{
	_cleanup_fd_ int fd = openat(dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct attachment *to;
	struct err why = {0};
	int rc;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		return add_broken(l, id, strerror(errno), e);
	to = next_place(l);
	if (!to)
		return err_set(e, ENOMEM, WHERE, "out of memory");
	rc = load_from(fd, id, false, to, &why);
	if (rc == 0)
		l->count++;
	/* Without a record it is being made or removed, or its pins are told by add_orphans(). */
	else if (rc != -ENOENT)
		return add_broken(l, id, why.msg, e);
	return 0;
}

static bool is_known(const struct attachment_list *l, const char *id)
{
	for (size_t i = 0; i < l->count; i++)
		if (!strcmp(l->each[i].id, id))
			return true;
	for (size_t i = 0; l->broken && i < l->broken_count; i++)
		if (!strcmp(l->broken[i].id, id))
			return true;
	return false;
}

/* Pins without a record: somebody was ended in the middle. While one is at work they may be no more than a beginning. */
static int add_orphans(struct attachment_list *l, bool locked, struct err *e)
{
	_cleanup_dir_ DIR *d = opendir(attachment_pins);
	struct dirent *de;
	int rc = 0;

	while (d && rc == 0 && (de = readdir(d)))
		if (is_id(de->d_name) && !is_known(l, de->d_name) &&
		    (locked || (!attachment_being_changed() && !attachment_being_made())))
			rc = add_broken(l, de->d_name,
					"its programs are pinned and hold, but there is no record of it: detach it by its id, "
					"or attach a policy to that cgroup again",
					e);
	return rc;
}

static int by_age(const void *a, const void *b)
{
	const struct attachment *x = a, *y = b;

	if (x->attached_ns != y->attached_ns)
		return x->attached_ns < y->attached_ns ? -1 : 1;
	return strcmp(x->id, y->id);
}

static int add_all(struct attachment_list *l, struct err *e)
{
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	int fd = -1, rc = open_dir(&fd, e);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return err_errno(e, errno, WHERE, "read %s", attachment_dir);
	}
	while (rc == 0 && (de = readdir(d)))
		if (is_id(de->d_name) && de->d_type == DT_DIR)
			rc = add_one(l, dirfd(d), de->d_name, e);
	return rc;
}

static int list_all(struct attachment_list *ret, bool locked, struct err *e)
{
	struct attachment_list l = {0};
	int rc = add_all(&l, e);

	if (rc == 0)
		rc = add_orphans(&l, locked, e);
	if (rc < 0) {
		attachment_list_clear(&l);
		return rc;
	}
	if (l.count)
		qsort(l.each, l.count, sizeof *l.each, by_age);
	*ret = l;
	return 0;
}

int attachment_list(struct attachment_list *ret, struct err *e)
{
	return list_all(ret, false, e);
}

int attachment_list_locked(struct attachment_list *ret, struct err *e)
{
	return list_all(ret, true, e);
}

/* ---- writing ---- */

static int write_all(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Whoever reads has the old one or the new one, whole. */
static int replace(int dir, const char *name, const char *text, size_t len, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	char fresh[64];
	int rc;

	snprintf(fresh, sizeof fresh, "%s.new", name);
	if (unlinkat(dir, fresh, 0) < 0 && errno != ENOENT)
		return err_errno(e, errno, WHERE, "remove an old %s", fresh);
	fd = openat(dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	rc = fd < 0 ? -errno : write_all(fd, text, len);
	if (rc == 0 && renameat(dir, fresh, dir, name) < 0)
		rc = -errno;
	if (rc < 0) {
		if (fd >= 0)
			unlinkat(dir, fresh, 0);
		return err_errno(e, -rc, WHERE, "write %s below %s", name, attachment_dir);
	}
	return 0;
}

int attachment_save(const struct attachment *a, const char *document, size_t len, struct err *e)
{
	_cleanup_free_ char *text = attachment_text(a);
	_cleanup_fd_ int dir = -1, one = -1;
	int rc;

	if (!text)
		return err_set(e, ENOMEM, WHERE, "out of memory");
	rc = make_dirs(e);
	if (rc == 0)
		rc = open_dir(&dir, e);
	if (rc == 0 && is_id(a->id) && mkdirat(dir, a->id, 0700) < 0 && errno != EEXIST)
		rc = err_errno(e, errno, WHERE, "make %s/%s", attachment_dir, a->id);
	if (rc == 0)
		rc = open_one(a->id, &one, e);
	/* The record comes last: it names the document's digest. */
	if (rc == 0 && document)
		rc = replace(one, DOCUMENT, document, len, e);
	return rc == 0 ? replace(one, RECORD, text, strlen(text), e) : rc;
}

int attachment_forget(const char *id, struct err *e)
{
	_cleanup_dir_ DIR *d = NULL;
	_cleanup_fd_ int dir = -1;
	struct dirent *de;
	int fd = -1, rc = open_one(id, &fd, e);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return err_errno(e, errno, WHERE, "read %s/%s", attachment_dir, id);
	}
	/* The record goes first: without it nobody takes what is left for an attachment. */
	unlinkat(dirfd(d), RECORD, 0);
	while ((de = readdir(d)))
		if (de->d_name[0] != '.' || (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0))
			unlinkat(dirfd(d), de->d_name, 0);
	rc = open_dir(&dir, e);
	if (rc == 0 && unlinkat(dir, id, AT_REMOVEDIR) < 0 && errno != ENOENT)
		rc = err_errno(e, errno, WHERE, "remove %s/%s", attachment_dir, id);
	return rc;
}
