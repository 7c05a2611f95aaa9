/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/keyfiles.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "core/cleanup.h"
#include "supervisor/headtext.h"

#define WHERE "audit key"
#define PEM_MAX 4096
#define AGAIN " (or, to begin a new record, move audit, audit-head and audit-key.* out of the state directory)"

/* ---- the lock ---- */

int keyfiles_lock(int dir, unsigned wait_ms)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	/* The directory itself, opened anew: no file of its own, and not shared with a process that we are a copy of. */
	_cleanup_fd_ int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	for (unsigned i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (i >= wait_ms)
			return -EAGAIN;
		nanosleep(&pause, NULL);
	}
	return TAKE_FD(fd);
}

void keyfiles_unlock(int fd)
{
	close(fd);
}

/* ---- the head ---- */

int keyfiles_head_reread(int fd, struct signed_head *r, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	char first[HEADTEXT_PLACES][HEADTEXT_FIRST];
	bool news = false;
	ssize_t n;

	/* Who writes takes the next turn: when neither place has one beyond ours, ours is what is there. */
	for (int i = 0; i < HEADTEXT_PLACES; i++) {
		n = pread(fd, first[i], sizeof first[i], (off_t)i * HEADTEXT_SIZE);
		news |= n != sizeof first[i] || headtext_turn(first[i]) > r->turn;
	}
	if (r->turn && !news)
		return 0;
	text = calloc(HEADTEXT_PLACES, HEADTEXT_SIZE);
	if (!text)
		return err_set(e, ENOMEM, WHERE, "out of memory");
	n = pread(fd, text, (size_t)HEADTEXT_PLACES * HEADTEXT_SIZE, 0);
	if (n < 0)
		return err_errno(e, errno, WHERE, "can't read " KEYFILES_HEAD);
	if (headtext_read(text, (size_t)n, r) < 0)
		return err_set(e, EBADMSG, WHERE,
			       KEYFILES_HEAD
			       " is damaged: it says where the record's chain ends, and without it nothing is signed; "
			       "put a copy of it back" AGAIN);
	return 0;
}

int keyfiles_head_write(int fd, struct signed_head *r, struct err *e)
{
	char text[HEADTEXT_SIZE];
	ssize_t n;

	r->turn++;
	headtext_write(text, r);
	n = pwrite(fd, text, sizeof text, (off_t)(r->turn % HEADTEXT_PLACES) * HEADTEXT_SIZE);
	if (n == sizeof text)
		return 0;
	return n < 0 ? err_errno(e, errno, WHERE, "can't write " KEYFILES_HEAD)
		     : err_set(e, EIO, WHERE, "can't write " KEYFILES_HEAD ": it took %zd bytes", n);
}

/* ---- making them ---- */

static int write_all(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = write(fd, text, len);

		if (n < 0)
			return -errno;
		text += n;
		len -= (size_t)n;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

/* Whole and durable under its name, or not at all. With `fresh` only where nothing of that name is. */
static int put(int dir, const char *name, mode_t mode, const char *text, size_t len, bool fresh, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	int rc = unlinkat(dir, KEYFILES_NEW, 0) < 0 && errno != ENOENT ? -errno : 0;

	if (rc == 0) {
		fd = openat(dir, KEYFILES_NEW, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
		rc = fd < 0 || fchmod(fd, mode) < 0 ? -errno : write_all(fd, text, len);
	}
	if (rc == 0 && fresh)
		rc = linkat(dir, KEYFILES_NEW, dir, name, 0) < 0 ? -errno : 0;
	else if (rc == 0)
		rc = renameat(dir, KEYFILES_NEW, dir, name) < 0 ? -errno : 0;
	(void)unlinkat(dir, KEYFILES_NEW, 0);
	if (rc == 0)
		rc = fsync(dir) < 0 ? -errno : 0;
	return rc < 0 ? err_errno(e, -rc, WHERE, "can't make %s in the state directory", name) : 0;
}

/* A file of root's alone, a regular one. -ENOENT, with *e untouched, when it is not there. */
static int open_own(int dir, const char *name, int flags, mode_t forbidden, int *ret, struct err *e)
{
	_cleanup_fd_ int fd = openat(dir, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return errno == ENOENT ? -ENOENT : err_errno(e, errno, WHERE, "can't open %s in the state directory", name);
	if (fstat(fd, &st) < 0)
		return err_errno(e, errno, WHERE, "can't examine %s", name);
	if (!S_ISREG(st.st_mode) || st.st_uid != 0 || (st.st_mode & forbidden))
		return err_set(
		    e, EPERM, WHERE,
		    "%s in the state directory must be a file of root's that nobody else can %s: chown root and chmod %s it",
		    name, forbidden & 0444 ? "read" : "write", forbidden & 0444 ? "600" : "644");
	*ret = TAKE_FD(fd);
	return 0;
}

static int read_file(int fd, const char *name, char *buf, size_t size, size_t *ret_len, struct err *e)
{
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, buf + len, size - len)) > 0)
		len += (size_t)n;
	if (n < 0)
		return err_errno(e, errno, WHERE, "can't read %s", name);
	if (len == size)
		return err_set(e, EFBIG, WHERE, "%s is longer than a key is", name);
	*ret_len = len;
	return 0;
}

static int load_key(int dir, struct signing_key **ret, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	char pem[PEM_MAX];
	size_t len = 0;
	int rc = open_own(dir, KEYFILES_KEY, O_RDONLY, 07077, &fd, e);

	if (rc == 0)
		rc = read_file(fd, KEYFILES_KEY, pem, sizeof pem, &len, e);
	if (rc == 0 && (rc = signing_load(ret, pem, len, e)) < 0)
		err_wrap(e, "can't use " KEYFILES_KEY " of the state directory (put a copy of it back" AGAIN ")");
	explicit_bzero(pem, sizeof pem);
	return rc;
}

static int put_head(int dir, const struct signing_key *key, struct err *e)
{
	struct signed_head *r = calloc(1, sizeof *r);
	_cleanup_free_ char *text = calloc(HEADTEXT_PLACES, HEADTEXT_SIZE);
	uint8_t pub[SIGNING_PUBLIC];
	int rc = -ENOMEM;

	if (r && text) {
		signing_public(key, pub);
		signing_key_id(pub, r->key_id);
		r->count = 1; /* hash(0) */
		for (int i = 0; i < HEADTEXT_PLACES; i++) {
			r->turn++;
			headtext_write(text + (r->turn % HEADTEXT_PLACES) * HEADTEXT_SIZE, r);
		}
		rc = put(dir, KEYFILES_HEAD, 0600, text, (size_t)HEADTEXT_PLACES * HEADTEXT_SIZE, false, e);
	} else {
		err_set(e, ENOMEM, WHERE, "out of memory");
	}
	free(r);
	return rc;
}

/* The head first: a key always has one, and a head of nothing without a key is a start that was cut off. */
static int make_key(int dir, struct signing_key **ret, struct err *e)
{
	struct signing_key *key = NULL;
	char *pem = NULL;
	size_t len = 0;
	int rc = signing_generate(&pem, &len, e);

	if (rc == 0)
		rc = signing_load(&key, pem, len, e);
	if (rc == 0)
		rc = put_head(dir, key, e);
	if (rc == 0)
		rc = put(dir, KEYFILES_KEY, 0600, pem, len, true, e);
	if (pem)
		explicit_bzero(pem, len);
	free(pem);
	if (rc < 0)
		signing_free(key);
	else
		*ret = key;
	return rc;
}

/* The public half is there for others to copy: made again when it is gone, and never another key's. */
static int check_public(int dir, const struct signing_key *key, struct err *e)
{
	uint8_t own[SIGNING_PUBLIC], pub[SIGNING_PUBLIC];
	char pem[512];
	bool there;
	int rc = keyfiles_public(dir, &there, pub, e);

	signing_public(key, own);
	if (rc == 0 && !there) {
		rc = signing_public_pem(own, pem, sizeof pem, e);
		return rc == 0 ? put(dir, KEYFILES_PUBLIC, 0644, pem, strlen(pem), false, e) : rc;
	}
	if (rc == 0 && memcmp(own, pub, sizeof own) != 0)
		return err_set(e, EKEYREJECTED, WHERE,
			       KEYFILES_PUBLIC " in the state directory is not the public half of " KEYFILES_KEY
					       ": put the key back that it belongs to" AGAIN);
	return rc;
}

static int check_head(const struct signing_key *key, const struct signed_head *head, struct err *e)
{
	uint8_t pub[SIGNING_PUBLIC], id[CHAIN_HASH];

	signing_public(key, pub);
	signing_key_id(pub, id);
	return memcmp(id, head->key_id, sizeof id) == 0
		   ? 0
		   : err_set(e, EKEYREJECTED, WHERE,
			     KEYFILES_HEAD " in the state directory was written with another key than " KEYFILES_KEY
					   ": put that key back" AGAIN);
}

static int open_head(int dir, int *ret, struct signed_head *ret_head, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	int rc = open_own(dir, KEYFILES_HEAD, O_RDWR, 07022, &fd, e);

	if (rc == 0)
		rc = keyfiles_head_reread(fd, ret_head, e);
	if (rc == 0)
		*ret = TAKE_FD(fd);
	return rc;
}

int keyfiles_open(int dir, struct signing_key **ret, struct signed_head *ret_head, int *ret_head_fd, struct err *e)
{
	struct signing_key *key = NULL;
	_cleanup_fd_ int head_fd = -1;
	int head, rc;

	memset(ret_head, 0, sizeof *ret_head);
	head = open_head(dir, &head_fd, ret_head, e);
	if (head < 0 && head != -ENOENT)
		return head;
	rc = load_key(dir, &key, e);
	if (rc == -ENOENT && head == 0 && ret_head->n)
		return err_set(e, ENOKEY, WHERE,
			       KEYFILES_KEY " is gone from the state directory, and " KEYFILES_HEAD
					    " is there: the record goes on with its key only; put it back" AGAIN);
	if (rc == 0 && head == -ENOENT)
		rc = err_set(e, ENOENT, WHERE,
			     KEYFILES_HEAD
			     " is gone from the state directory: it says where the record's chain ends; put it back" AGAIN);
	else if (rc == -ENOENT) {
		cleanup_fdp(&head_fd);
		head_fd = -1;
		memset(ret_head, 0, sizeof *ret_head);
		rc = make_key(dir, &key, e);
		if (rc == 0)
			rc = open_head(dir, &head_fd, ret_head, e);
	}
	if (rc == 0)
		rc = check_head(key, ret_head, e);
	if (rc == 0)
		rc = check_public(dir, key, e);
	if (rc < 0) {
		signing_free(key);
		return rc;
	}
	*ret = key;
	*ret_head_fd = TAKE_FD(head_fd);
	return 0;
}

/* ---- for whoever verifies ---- */

static int open_any(int dir, const char *name, bool *ret_there, int *ret, struct err *e)
{
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	*ret_there = fd >= 0;
	if (fd < 0)
		return errno == ENOENT ? 0 : err_errno(e, errno, WHERE, "can't open %s in the state directory", name);
	*ret = fd;
	return 0;
}

int keyfiles_public(int dir, bool *ret_there, uint8_t ret[SIGNING_PUBLIC], struct err *e)
{
	_cleanup_fd_ int fd = -1;
	char pem[PEM_MAX];
	size_t len = 0;
	int rc = open_any(dir, KEYFILES_PUBLIC, ret_there, &fd, e);

	if (rc < 0 || !*ret_there)
		return rc;
	rc = read_file(fd, KEYFILES_PUBLIC, pem, sizeof pem, &len, e);
	if (rc == 0 && (rc = signing_public_read(pem, len, ret, e)) < 0)
		err_wrap(e, "can't use " KEYFILES_PUBLIC " of the state directory");
	return rc;
}

static int read_head(int fd, struct signed_head *r, struct chain_head *ret, struct err *e)
{
	int rc = keyfiles_head_reread(fd, r, e);

	if (rc < 0)
		return rc;
	ret->n = r->n;
	memcpy(ret->hash, signed_hash(r, r->n), sizeof ret->hash);
	memcpy(ret->key_id, r->key_id, sizeof ret->key_id);
	return 0;
}

int keyfiles_head(int dir, bool *ret_there, struct chain_head *ret, struct err *e)
{
	_cleanup_free_ struct signed_head *r = calloc(1, sizeof *r);
	_cleanup_fd_ int fd = -1;
	int rc;

	if (!r)
		return err_set(e, ENOMEM, WHERE, "out of memory");
	rc = open_any(dir, KEYFILES_HEAD, ret_there, &fd, e);
	return rc == 0 && *ret_there ? read_head(fd, r, ret, e) : rc;
}
