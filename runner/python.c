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
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"

#define PROBE_MS 5000

extern char **environ;

/* `os.path.realpath`: a shim or a venv link says nothing about where the interpreter's files are. */
static const char probe_code[] = PYTHON_PROBE_COMMON "found['executable'] = os.path.realpath(sys._base_executable)\n"
						     "found['site'] = site.getsitepackages([sys.base_prefix])[0]\n"
						     "print(json.dumps(found))\n";

long long python_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (long long)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Starts `path` on the probe: standard output to `out`, nothing else of ours, no signal blocked. */
static int start(const char *path, int out, pid_t *ret)
{
	char *const argv[] = {(char *)path, "-I", "-c", (char *)probe_code, NULL};
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	sigset_t none;
	int rc;

	sigemptyset(&none);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&fa, out, 1);
	posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
	rc = posix_spawnp(ret, path, &fa, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	posix_spawnattr_destroy(&attr);
	return -rc;
}

bool python_read_all(int fd, char *buf, size_t size, long long until)
{
	size_t used = 0;

	for (;;) {
		struct pollfd pfd = {.fd = fd, .events = POLLIN};
		long long left = until - python_now_ms();
		ssize_t n;

		buf[used] = 0;
		if (left <= 0 || used == size - 1)
			return false;
		n = poll(&pfd, 1, (int)left);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		n = read(fd, buf + used, size - 1 - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n == 0;
		used += (size_t)n;
	}
}

/* Runs `path` on the probe and returns its output, terminated, in buf. Whatever it does, it is gone after PROBE_MS. */
static int capture(const char *path, char *buf, size_t size)
{
	long long until = python_now_ms() + PROBE_MS;
	_cleanup_fd_ int out = -1;
	int p[2], rc, status = 0;
	bool whole;
	pid_t pid, got = 0;

	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	out = p[0];
	rc = start(path, p[1], &pid);
	close(p[1]);
	if (rc < 0)
		return rc;
	whole = python_read_all(out, buf, size, until);
	/* It has closed its output; a moment for it to end, then it is ended. */
	while (whole && (got = waitpid(pid, &status, WNOHANG)) == 0 && python_now_ms() < until)
		usleep(1000);
	if (got != pid) {
		kill(pid, SIGKILL);
		do
			got = waitpid(pid, &status, 0);
		while (got < 0 && errno == EINTR);
	}
	return whole && got == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ENOEXEC;
}

static bool below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && path[n] == '/';
}

int python_parse(const char *text, struct python *ret)
{
	struct python py = {0};
	json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	const char *version, *executable, *prefix, *stdlib, *platlib, *site, *matplotlib = "", *slow = "";
	int modules = 0, compiled = 0;
	int rc = json_unpack(j, "{s:s, s:s, s:s, s:s, s:s, s:s, s?:s, s?:s, s?:i, s?:i}", "version", &version, "executable",
			     &executable, "prefix", &prefix, "stdlib", &stdlib, "platlib", &platlib, "site", &site,
			     "matplotlib", &matplotlib, "slow", &slow, "modules", &modules, "compiled", &compiled);

	if (rc == 0) {
		const struct {
			char *to;
			size_t size;
			const char *from;
		} rows[] = {
		    {py.version, sizeof py.version, version},
		    {py.executable, sizeof py.executable, executable},
		    {py.prefix, sizeof py.prefix, prefix},
		    {py.stdlib, sizeof py.stdlib, stdlib},
		    {py.platlib, sizeof py.platlib, platlib},
		    {py.site, sizeof py.site, site},
		    {py.matplotlib, sizeof py.matplotlib, matplotlib},
		    {py.slow, sizeof py.slow, slow},
		};

		for (size_t i = 0; rc == 0 && i < sizeof rows / sizeof rows[0]; i++)
			if ((size_t)snprintf(rows[i].to, rows[i].size, "%s", rows[i].from) >= rows[i].size)
				rc = -EINVAL;
		py.modules = modules > 0 ? (unsigned)modules : 0;
		py.compiled = compiled > 0 ? (unsigned)compiled : 0;
	} else {
		rc = -ENOEXEC;
	}
	json_decref(j);
	if (rc == 0)
		*ret = py;
	return rc;
}

static int probe(const char *path, struct python *ret)
{
	char out[4096];
	struct python py;
	int rc = capture(path, out, sizeof out);

	if (rc == 0)
		rc = python_parse(out, &py);
	if (rc < 0)
		return rc;
	/* A layout with the library outside the prefix can't be mapped into the image. */
	if (!below(py.stdlib, py.prefix) || !below(py.platlib, py.prefix) || !below(py.site, py.prefix))
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
