/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/instance.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/cleanup.h"
#include "supervisor/supervisor.h"

#define URL_FILE "url"

static void path_of(const char *instance, const char *file, char ret[PATH_MAX])
{
	snprintf(ret, PATH_MAX, RUN_DIR "/%.64s/%.64s", instance, file);
}

const char *instance_name(const char *state_dir, char ret[INSTANCE_NAME_MAX])
{
	char real[PATH_MAX];
	uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */

	if (!realpath(state_dir, real))
		snprintf(real, sizeof real, "%s", state_dir);
	if (!strcmp(real, DEFAULT_STATE_DIR)) {
		snprintf(ret, INSTANCE_NAME_MAX, "serve");
		return ret;
	}
	for (const char *p = real; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 0x100000001b3ull;
	snprintf(ret, INSTANCE_NAME_MAX, "serve-%08x", (unsigned)(hash ^ hash >> 32));
	return ret;
}

void instance_line(const char *instance, const char *file, char *ret, size_t size)
{
	char path[PATH_MAX];
	_cleanup_fd_ int fd = -1;
	ssize_t n = 0;

	path_of(instance, file, path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		n = read(fd, ret, size - 1);
	ret[n > 0 ? n : 0] = 0;
	ret[strcspn(ret, "\n")] = 0;
}

bool instance_is_alive(const char *instance)
{
	char path[PATH_MAX];
	_cleanup_fd_ int fd = -1;

	path_of(instance, "lock", path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0;
}

/* Whether one runs, and its process id as text. Makes nothing where nothing is. */
static int find(const char *instance, char *ret_pid, size_t size, bool *ret, struct err *e)
{
	_cleanup_fd_ int global = -1;
	char path[PATH_MAX];
	int rc;

	*ret = false;
	path_of(instance, "lock", path);
	if (access(path, F_OK) < 0)
		return errno == ENOENT ? 0 : err_errno(e, errno, "", "look for a service in %s", path);
	rc = supervisor_lock(&global, e);
	if (rc < 0)
		return rc;
	*ret = instance_is_alive(instance);
	instance_line(instance, "lock", ret_pid, size);
	return 0;
}

int instance_check_free(const char *state_dir, struct err *e)
{
	char name[INSTANCE_NAME_MAX], pid[32];
	bool alive;
	int rc = find(instance_name(state_dir, name), pid, sizeof pid, &alive, e);

	if (rc < 0 || !alive)
		return rc;
	return err_set(e, EBUSY, "--state-dir",
		       "another weir already runs on this state directory (instance %s, pid %s): stop it (kill %s), or give "
		       "another --state-dir",
		       name, pid, pid);
}

/* With the process id: what a service that was killed has left is not taken for its successor's. */
int instance_note_url(const char *instance, const char *url, struct err *e)
{
	char path[PATH_MAX];
	_cleanup_fd_ int fd = -1;

	path_of(instance, URL_FILE, path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || dprintf(fd, "%d %s\n", getpid(), url) < 0)
		return err_errno(e, errno, "supervisor", "note the address in %s", path);
	return 0;
}

void instance_forget_url(const char *instance)
{
	char path[PATH_MAX];

	path_of(instance, URL_FILE, path);
	unlink(path);
}

int instance_url(const char *state_dir, char **ret, struct err *e)
{
	char name[INSTANCE_NAME_MAX], pid[32], line[PATH_MAX];
	bool alive;
	int rc = find(instance_name(state_dir, name), pid, sizeof pid, &alive, e);
	const char *url;

	*ret = NULL;
	if (rc < 0 || !alive)
		return rc;
	instance_line(name, URL_FILE, line, sizeof line);
	url = line + strlen(pid);
	if (!*pid || strncmp(line, pid, strlen(pid)) != 0 || *url != ' ')
		return 0; /* it is only just starting */
	*ret = strdup(url + 1);
	return *ret ? 0 : err_set(e, ENOMEM, "", "out of memory");
}
