/* SPDX-License-Identifier: Apache-2.0 */
#include "python.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"

#define PROBE_MS 10000

extern char **environ;

/* `os.path.realpath`: a shim or a venv link says nothing about where the interpreter's files are. */
static const char probe_code[] = "import sys, os, json, site, sysconfig\n"
				 "print(json.dumps({\n"
				 "  'version': '%d.%d.%d' % sys.version_info[:3],\n"
				 "  'executable': os.path.realpath(sys._base_executable),\n"
				 "  'prefix': sys.base_prefix,\n"
				 "  'stdlib': sysconfig.get_path('stdlib'),\n"
				 "  'platlib': sysconfig.get_path('platstdlib'),\n"
				 "  'site': site.getsitepackages([sys.base_prefix])[0]}))\n";

/* Runs `path` on the probe and returns its output, terminated, in buf. */
static int capture(const char *path, char *buf, size_t size)
{
	char *const argv[] = {(char *)path, "-I", "-c", (char *)probe_code, NULL};
	posix_spawn_file_actions_t fa;
	_cleanup_fd_ int out = -1;
	size_t used = 0;
	int p[2], rc, status;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	out = p[0];
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&fa, p[1], 1);
	posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
	rc = posix_spawnp(&pid, path, &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	close(p[1]);
	if (rc)
		return -rc;
	for (;;) {
		struct pollfd pfd = {.fd = out, .events = POLLIN};
		ssize_t n;

		rc = poll(&pfd, 1, PROBE_MS);
		if (rc <= 0) {
			kill(pid, SIGKILL);
			break;
		}
		n = read(out, buf + used, size - 1 - used);
		if (n <= 0)
			break;
		used += (size_t)n;
	}
	buf[used] = 0;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ENOEXEC;
}

static bool below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && path[n] == '/';
}

static int probe(const char *path, struct python *ret)
{
	char out[4096];
	struct python py = {0};
	json_t *j;
	const char *version, *executable, *prefix, *stdlib, *platlib, *site;
	int rc = capture(path, out, sizeof out);

	if (rc < 0)
		return rc;
	j = json_loads(out, JSON_REJECT_DUPLICATES, NULL);
	if (!j)
		return -ENOEXEC;
	rc = json_unpack(j, "{s:s, s:s, s:s, s:s, s:s, s:s}", "version", &version, "executable", &executable, "prefix", &prefix,
			 "stdlib", &stdlib, "platlib", &platlib, "site", &site);
	if (rc == 0) {
		const struct {
			char *to;
			size_t size;
			const char *from;
		} rows[] = {
		    {py.version, sizeof py.version, version}, {py.executable, sizeof py.executable, executable},
		    {py.prefix, sizeof py.prefix, prefix},    {py.stdlib, sizeof py.stdlib, stdlib},
		    {py.platlib, sizeof py.platlib, platlib}, {py.site, sizeof py.site, site},
		};

		for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
			if ((size_t)snprintf(rows[i].to, rows[i].size, "%s", rows[i].from) >= rows[i].size)
				rc = -1;
	}
	json_decref(j);
	/* A layout with the library outside the prefix can't be mapped into the image. */
	if (rc < 0 || !below(py.stdlib, py.prefix) || !below(py.platlib, py.prefix) || !below(py.site, py.prefix))
		return -EINVAL;
	*ret = py;
	return 0;
}

static bool is_wanted(const struct python *py)
{
	size_t n = strlen(PYTHON_WANTED);

	return !strncmp(py->version, PYTHON_WANTED, n) && (py->version[n] == '.' || !py->version[n]);
}

int python_find(const char *configured, struct python *ret, struct err *e)
{
	/* Patterns for glob(); a name without a slash is looked up on PATH. */
	static const char *const wanted[] = {
	    "python" PYTHON_WANTED,
	    "/usr/local/bin/python" PYTHON_WANTED,
	    "/usr/bin/python" PYTHON_WANTED,
	    "/opt/python*/bin/python" PYTHON_WANTED,
	    "~/.pyenv/versions/" PYTHON_WANTED ".*/bin/python" PYTHON_WANTED,
	};
	static const char *const others[] = {"/usr/bin/python3", "/usr/local/bin/python3", "python3"};
	struct python py;

	if (configured) {
		int rc = probe(configured, &py);

		if (rc < 0)
			return err_set(e, -rc, "interpreter", "%s is not a Python 3 that answers to -c with its own layout",
				       configured);
		*ret = py;
		return 0;
	}
	for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
		glob_t g = {0};
		bool found = false;

		/* GLOB_NOCHECK keeps a plain name as it is, for the PATH look-up. */
		if (glob(wanted[i], GLOB_TILDE | (strchr(wanted[i], '/') ? 0 : GLOB_NOCHECK), NULL, &g) == 0)
			for (size_t k = 0; k < g.gl_pathc && !found; k++)
				found = probe(g.gl_pathv[k], &py) == 0 && is_wanted(&py);
		globfree(&g);
		if (found) {
			*ret = py;
			return 0;
		}
	}
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		if (probe(others[i], &py) == 0 && !strncmp(py.version, "3.", 2)) {
			*ret = py;
			return 0;
		}
	return err_set(e, ENOENT, "interpreter", "no Python 3 found; install the package python3, or name one with --python");
}
