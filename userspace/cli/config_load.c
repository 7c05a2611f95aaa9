/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/config_load.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blobs.h"
#include "core/cleanup.h"
#include "core/limits.h"

#define WHERE "--config"
#define UNIX "unix:"

/* ---- the file ---- */

static int read_fd(int fd, char *data, size_t *ret_len)
{
	size_t n = 0;

	while (n <= LIMIT_CONFIG_BYTES) {
		ssize_t got = read(fd, data + n, LIMIT_CONFIG_BYTES + 1 - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		n += (size_t)got;
	}
	*ret_len = n;
	return 0;
}

/* Of root's, or of who runs this; behind sudo that is who called it (whoever can set that for root can do all else as well). */
static bool is_trusted(uid_t owner)
{
	const char *sudo = geteuid() == 0 ? getenv("SUDO_UID") : NULL;
	char *end = NULL;
	unsigned long uid = sudo && *sudo ? strtoul(sudo, &end, 10) : 0;

	return owner == 0 || owner == geteuid() || (end && !*end && owner == (uid_t)uid);
}

/* -ENOENT without a message is for the caller to judge. */
static int read_file(const char *path, char **ret, size_t *ret_len, struct err *e)
{
	/* O_NONBLOCK: a FIFO without a writer must not hang us; it is refused below. */
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	_cleanup_free_ char *data = NULL;
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, errno, WHERE, "open %s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EINVAL, WHERE, "%s is not a regular file", path);
	/* It names the program that root is going to start. */
	if (!is_trusted(st.st_uid))
		return err_set(e, EPERM, WHERE, "%s belongs to uid %u, neither to root nor to who runs this: chown it", path,
			       (unsigned)st.st_uid);
	if (st.st_mode & S_IWOTH || (st.st_mode & S_IWGRP && st.st_gid != 0))
		return err_set(e, EPERM, WHERE, "others than its owner may write to %s: chmod go-w it", path);
	data = malloc(LIMIT_CONFIG_BYTES + 1);
	if (!data)
		return err_set(e, ENOMEM, WHERE, "out of memory");
	rc = read_fd(fd, data, ret_len);
	if (rc < 0)
		return err_errno(e, -rc, WHERE, "read %s", path);
	*ret = TAKE_PTR(data);
	return 0;
}

/* "FILE: at "/pool/size": what is wrong". */
static int at_place(const char *path, struct err *e)
{
	struct err inner = *e;
	size_t n = strlen(path), room = 200;

	/* Of a long path the end says more than the beginning. */
	return err_set(e, inner.code, WHERE, "%s%s: %s%s%s%s", n > room ? "..." : "", n > room ? path + n - room : path,
		       inner.where[0] ? "at \"" : "", inner.where, inner.where[0] ? "\": " : "", inner.msg);
}

void config_blame(const struct config *c, struct err *e)
{
	for (enum config_key key = 0; key < CONFIG_KEYS; key++)
		if (c->file && c->from[key] == CONFIG_FILE && !strcmp(e->where, config_keys[key].option)) {
			config_pointer(key, e->where);
			at_place(c->file, e);
			return;
		}
}

/* ---- its paths ---- */

static int absolute(char **value, const char *dir, const char *prefix, struct err *e)
{
	const char *path = *value + strlen(prefix);
	char *whole = NULL;

	if (path[0] == '/')
		return 0;
	if (asprintf(&whole, "%s%s%s%s", prefix, dir, strcmp(dir, "/") != 0 ? "/" : "", path) < 0)
		return err_set(e, ENOMEM, WHERE, "out of memory");
	free(*value);
	*value = whole;
	return 0;
}

/* A name alone is a shipped policy's, or is looked for on PATH; and what is inside an image is nowhere on the host. */
static bool is_name(const struct config *c, enum config_key key)
{
	struct blob shipped;

	if (key == CONFIG_PYTHON && c->image)
		return true;
	if (config_keys[key].kind != CONFIG_NAME_OR_PATH || strchr(config_text(c, key), '/'))
		return false;
	return key == CONFIG_PYTHON || blob_policy(config_text(c, key), &shipped);
}

int config_absolute(struct config *c, const char *dir, struct err *e)
{
	for (enum config_key key = 0; key < CONFIG_KEYS; key++) {
		char **value = (char **)((char *)c + config_keys[key].offset);
		bool address = config_keys[key].kind == CONFIG_ADDRESS;
		int rc;

		if (!config_text(c, key) || is_name(c, key) || (address && strncmp(*value, UNIX, strlen(UNIX)) != 0))
			continue;
		rc = absolute(value, dir, address ? UNIX : "", e);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/*
 * The file's own path and its directory, both absolute. They are those of the name that was given: a link to a file elsewhere
 * speaks of where the link is.
 */
static int own_path(const char *path, char **ret_file, char **ret_dir, struct err *e)
{
	_cleanup_free_ char *cwd = NULL, *file = NULL, *dir = NULL;
	char *slash;

	if (path[0] == '/') {
		file = strdup(path);
	} else {
		cwd = getcwd(NULL, 0);
		if (!cwd)
			return err_errno(e, errno, WHERE, "find the working directory");
		if (asprintf(&file, "%s/%s", cwd, path) < 0)
			file = NULL;
	}
	dir = file ? strdup(file) : NULL;
	if (!dir)
		return err_set(e, ENOMEM, WHERE, "out of memory");
	slash = strrchr(dir, '/');
	slash[slash == dir] = 0;
	*ret_file = TAKE_PTR(file);
	*ret_dir = TAKE_PTR(dir);
	return 0;
}

int config_load(const char *file, struct config *ret, struct err *e)
{
	const char *path = file ? file : CONFIG_FILE_DEFAULT;
	_cleanup_free_ char *text = NULL, *dir = NULL;
	_cleanup_config_ struct config c = {0};
	struct err e2 = {0};
	size_t len = 0;
	int rc = read_file(path, &text, &len, &e2);

	if (rc == -ENOENT && !file) {
		memset(ret, 0, sizeof *ret);
		return 0;
	}
	if (rc < 0) {
		*e = e2;
		return rc;
	}
	rc = config_parse(text, len, &c, e);
	if (rc < 0)
		return at_place(path, e);
	rc = own_path(path, &c.file, &dir, e);
	if (rc < 0 || !dir)
		return rc;
	rc = config_absolute(&c, dir, e);
	if (rc < 0)
		return rc;
	*ret = c;
	memset(&c, 0, sizeof c);
	return 0;
}

int config_state_dir(const char *option, const char *file, char **ret, struct err *e)
{
	_cleanup_config_ struct config c = {0};
	const struct config none = {0};
	int rc;

	if (option) {
		*ret = strdup(option);
		return *ret ? 0 : err_set(e, ENOMEM, "", "out of memory");
	}
	rc = config_load(file, &c, e);
	if (rc == 0)
		rc = config_merge(&c, &none, e);
	if (rc == 0)
		*ret = TAKE_PTR(c.state_dir);
	return rc;
}
