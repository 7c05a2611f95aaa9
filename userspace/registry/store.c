/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/samefile.h"

#define WHERE "registry"
#define NEW(file) "." file ".new"

/* What a file is called while it is written. */
static const struct {
	const char *file, *fresh;
} files[] = {{IMAGES_FILE, NEW(IMAGES_FILE)}, {AGENTS_FILE, NEW(AGENTS_FILE)}};

static const char *fresh_name(const char *file)
{
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
		if (!strcmp(files[i].file, file))
			return files[i].fresh;
	return NULL;
}

int registry_open(const char *state_dir, int *ret_dir, struct err *e)
{
	_cleanup_fd_ int fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, errno, "--state-dir", "open %s", state_dir);
	if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 022))
		return err_set(e, EPERM, "--state-dir", "%s must belong to root and be nobody else's to write to", state_dir);
	*ret_dir = TAKE_FD(fd);
	return 0;
}

int registry_lock(int dir, int *ret_fd, struct err *e)
{
	/* The directory itself: no file of its own that could be removed while somebody holds it. */
	_cleanup_fd_ int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc;

	if (fd < 0)
		return err_errno(e, errno, WHERE, "open the state directory");
	do
		rc = flock(fd, LOCK_EX);
	while (rc < 0 && errno == EINTR);
	if (rc < 0)
		return err_errno(e, errno, WHERE, "lock the state directory");
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* ---- reading ---- */

static int read_all(int fd, size_t expected, char **ret, size_t *ret_len)
{
	_cleanup_free_ char *text = malloc(expected + 1);
	size_t used = 0;

	if (!text)
		return -ENOMEM;
	/* Files are replaced, never changed: one that ends elsewhere than it said is nobody's we know. */
	while (used <= expected) {
		ssize_t n = read(fd, text + used, expected + 1 - used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		used += (size_t)n;
	}
	if (used != expected)
		return -ESTALE;
	*ret = TAKE_PTR(text);
	*ret_len = used;
	return 0;
}

/* -ENOENT, without a message, when there is none. *ret is malloc'd. */
static int load(int dir, const char *file, char **ret, size_t *ret_len, struct stat *ret_seen, struct err *e)
{
	_cleanup_fd_ int fd = openat(dir, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	int rc;

	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, errno, WHERE, "open %s", file);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EINVAL, WHERE, "%s is not a regular file", file);
	if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 022))
		return err_set(e, EPERM, WHERE,
			       "%s must belong to root and be nobody else's to write to: chown root and chmod 600 it", file);
	if (st.st_size > LIMIT_REGISTRY_BYTES)
		return err_set(e, EFBIG, WHERE, "%s has over %lld bytes", file, (long long)LIMIT_REGISTRY_BYTES);
	rc = read_all(fd, (size_t)st.st_size, ret, ret_len);
	if (rc < 0)
		return err_errno(e, -rc, WHERE, "read %s", file);
	*ret_seen = st;
	return 0;
}

/* "images.json at /images/0/digest: …". */
static int at_place(const char *file, struct err *e)
{
	struct err inner = *e;

	return err_set(e, inner.code, WHERE, "%s%s%s: %s", file, inner.where[0] ? " at " : "", inner.where, inner.msg);
}

int registry_load_images(int dir, struct image_table *ret, struct stat *ret_seen, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	struct stat seen = {0};
	size_t len = 0;
	int rc = load(dir, IMAGES_FILE, &text, &len, &seen, e);

	if (rc == -ENOENT) {
		*ret = (struct image_table){0};
		rc = 0;
	} else if (rc == 0 && image_table_parse(text, len, ret, e) < 0) {
		rc = at_place(IMAGES_FILE, e);
	}
	if (rc == 0 && ret_seen)
		*ret_seen = seen;
	return rc;
}

int registry_load_agents(int dir, struct agent_table *ret, struct stat *ret_seen, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	struct stat seen = {0};
	size_t len = 0;
	int rc = load(dir, AGENTS_FILE, &text, &len, &seen, e);

	if (rc == -ENOENT) {
		*ret = (struct agent_table){0};
		rc = 0;
	} else if (rc == 0 && agent_table_parse(text, len, ret, e) < 0) {
		rc = at_place(AGENTS_FILE, e);
	}
	if (rc == 0 && ret_seen)
		*ret_seen = seen;
	return rc;
}

bool registry_changed(int dir, const char *file, const struct stat *seen)
{
	struct stat now;

	if (fstatat(dir, file, &now, AT_SYMLINK_NOFOLLOW) < 0)
		now = (struct stat){0};
	return !same_file(&now, seen);
}

/* ---- writing ---- */

static int write_all(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Complete and on the disk before it has its name: whoever is killed leaves the old file or the new one. */
static int save(int dir, const char *file, const char *text, size_t len, struct err *e)
{
	const char *fresh = fresh_name(file);
	_cleanup_fd_ int fd = -1;
	int rc;

	if (len > LIMIT_REGISTRY_BYTES)
		return err_set(e, EFBIG, WHERE, "%s would have over %lld bytes", file, (long long)LIMIT_REGISTRY_BYTES);
	if (unlinkat(dir, fresh, 0) < 0 && errno != ENOENT)
		return err_errno(e, errno, WHERE, "remove %s", fresh);
	fd = openat(dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_errno(e, errno, WHERE, "write %s", file);
	rc = write_all(fd, text, len);
	if (rc == 0 && (fsync(fd) < 0 || renameat(dir, fresh, dir, file) < 0))
		rc = -errno;
	if (rc < 0) {
		(void)unlinkat(dir, fresh, 0);
		return err_errno(e, -rc, WHERE, "write %s", file);
	}
	return fsync(dir) < 0 ? err_errno(e, errno, WHERE, "write %s to the disk", file) : 0;
}

int registry_save_images(int dir, const struct image_table *t, struct err *e)
{
	size_t len = 0;
	_cleanup_free_ char *text = image_table_text(t, &len);

	return text ? save(dir, IMAGES_FILE, text, len, e) : err_set(e, ENOMEM, WHERE, "out of memory");
}

int registry_save_agents(int dir, const struct agent_table *t, struct err *e)
{
	size_t len = 0;
	_cleanup_free_ char *text = agent_table_text(t, &len);

	return text ? save(dir, AGENTS_FILE, text, len, e) : err_set(e, ENOMEM, WHERE, "out of memory");
}

int registry_remove(int dir, struct err *e)
{
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
		if ((unlinkat(dir, files[i].file, 0) < 0 && errno != ENOENT) ||
		    (unlinkat(dir, files[i].fresh, 0) < 0 && errno != ENOENT))
			return err_errno(e, errno, "", "remove %s", files[i].file);
	return 0;
}
