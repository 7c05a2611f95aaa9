/* SPDX-License-Identifier: Apache-2.0 */
/* The interpreter inside an image: found by its path, then asked, confined, what it is and where its library lies. */
#include "python.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "confined.h"
#include "core/cleanup.h"
#include "filter.h"

#define PROBE_MS 10000

static const char probe_code[] = PYTHON_PROBE_COMMON
    "found['executable'] = sys.executable or '?'\n"
    "found['site'] = site.getsitepackages()[0]\n"
    "if sys.version_info >= (3, 8):\n"
    "  import importlib.util, struct, time\n"
    "  spec = importlib.util.find_spec('matplotlib')\n"
    "  found['matplotlib'] = os.path.dirname(spec.origin) if spec and spec.origin else ''\n"
    /* Bytecode that fits: right magic number, and made from the source as it is; or checked by nobody. */
    "  def fits(path, cached):\n"
    "    try:\n"
    "      with open(cached, 'rb') as f: head = f.read(16)\n"
    "      st = os.stat(path)\n"
    "      flags, mtime, size = struct.unpack('<III', head[4:])\n"
    "    except Exception: return False\n"
    "    same = (mtime, size) == (int(st.st_mtime) & 0xffffffff, st.st_size & 0xffffffff)\n"
    "    return head[:4] == importlib.util.MAGIC_NUMBER and (flags != 0 or same)\n"
    "  modules = compiled = 0\n"
    "  slow = set()\n"
    "  end, tag = time.monotonic() + 3, '.' + (sys.implementation.cache_tag or '?') + '.pyc'\n"
    "  for top in set([found['stdlib']] + site.getsitepackages()):\n"
    "    for base, dirs, names in os.walk(top):\n"
    "      if modules > 50000 or time.monotonic() > end: break\n"
    "      if top == found['stdlib']: dirs[:] = [d for d in dirs if d not in ('site-packages', 'dist-packages')]\n"
    "      dirs[:] = [d for d in dirs if d not in ('test', 'tests', 'lib2to3')]\n"
    "      for name in names:\n"
    "        if name.endswith('.py'):\n"
    "          modules += 1\n"
    "          ready = fits(base + '/' + name, base + '/__pycache__/' + name[:-3] + tag)\n"
    "          compiled += ready\n"
    "          if not ready: slow.add(top)\n"
    "  found.update(modules=modules, compiled=compiled, slow=' '.join(sorted(slow))[:200])\n"
    "print(json.dumps(found))\n";

/* Where programs usually are, for names. */
static const char *const places[] = {"/usr/local/bin", "/usr/bin", "/bin", "/opt/conda/bin"};

/* What kept the child from starting the interpreter; not sent when it started. */
struct failure {
	char what[16]; /* "" : execve */
	int error;
};

struct probe {
	const char *root, *path;
	int null, out, err, status, filter; /* of the child */
	uint32_t filter_len;
};

static int set_limits(void)
{
	/* CORE: at 1 no helper of the host's is started for a core (core(5)). */
	static const struct {
		int resource;
		rlim_t value;
	} rows[] = {{RLIMIT_CORE, 1},  {RLIMIT_CPU, PROBE_MS / 1000}, {RLIMIT_AS, 1 << 30},
		    {RLIMIT_FSIZE, 0}, {RLIMIT_NOFILE, 64},	      {RLIMIT_NPROC, 16}};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rlimit now, want = {rows[i].value, rows[i].value};

		if (getrlimit(rows[i].resource, &now) < 0)
			return -1;
		if (now.rlim_max < want.rlim_max)
			want.rlim_cur = want.rlim_max = now.rlim_max;
		if (setrlimit(rows[i].resource, &want) < 0)
			return -1;
	}
	return 0;
}

static int load_filter(const struct probe *p)
{
	static struct sock_filter filter[BPF_MAXINSNS];
	struct sock_fprog prog = {.len = (unsigned short)p->filter_len, .filter = filter};
	size_t bytes = p->filter_len * sizeof filter[0];

	if (p->filter_len > BPF_MAXINSNS || pread(p->filter, filter, bytes, 0) != (ssize_t)bytes) {
		errno = EINVAL;
		return -1;
	}
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog);
}

static void __attribute__((noreturn)) child(const struct probe *p)
{
	const struct confined_dir dir = {.from = p->root};
	const int keep[] = {p->status, p->filter};
	char *const argv[] = {(char *)p->path, "-I", "-B", "-c", (char *)probe_code, NULL};
	char *const envp[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", NULL};
	struct failure f = {.what = "confine"};
	struct err e = {0};

	if (confined_root(&dir, 1, &e) < 0 || dup2(p->null, 0) < 0 || dup2(p->out, 1) < 0 || dup2(p->err, 2) < 0 ||
	    confined_drop(keep, sizeof keep / sizeof keep[0], &e) < 0) {
		f.error = e.code ? e.code : errno;
	} else if (set_limits() < 0 || load_filter(p) < 0) {
		f.error = errno;
	} else {
		execve(p->path, argv, envp);
		f = (struct failure){.what = "", .error = errno};
	}
	if (write(p->status, &f, sizeof f) != (ssize_t)sizeof f)
		_exit(124);
	_exit(125);
}

/* One line of what the interpreter had to say, printable. */
static void last_line(char *text)
{
	size_t n = strlen(text);
	char *line;

	while (n && (text[n - 1] == '\n' || text[n - 1] == ' '))
		text[--n] = 0;
	line = strrchr(text, '\n');
	if (line)
		memmove(text, line + 1, strlen(line + 1) + 1);
	for (char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

static int explain_exec(const char *path, int error, struct err *e)
{
	switch (error) {
	case ENOEXEC:
		return err_set(e, error, "image", "%s of the image is not a program for this machine (x86-64)", path);
	case EACCES:
		return err_set(e, error, "image",
			       "%s of the image can't be executed by other users than its owner: chmod a+rx it and the "
			       "directories above it",
			       path);
	case ENOENT:
		return err_set(e, error, "image",
			       "%s of the image can't be started: the loader or program that it names is not in the image",
			       path);
	default:
		return err_errno(e, error, "image", "start %s of the image", path);
	}
}

static int explain_end(const char *path, bool late, int status, char *said, struct err *e)
{
	last_line(said);
	if (late)
		return err_set(e, ETIMEDOUT, "image", "%s of the image did not say within %d s what it is", path,
			       PROBE_MS / 1000);
	if (WIFSIGNALED(status))
		return err_set(e, ENOEXEC, "image", "%s of the image, asked what it is, was ended by signal %d", path,
			       WTERMSIG(status));
	return err_set(e, ENOEXEC, "image", "%s of the image is not a Python that answers to -c with its own layout%s%.100s",
		       path, said[0] ? ": " : "", said);
}

/* Starts the child and reads what it says. The descriptors of the child's side are closed here. */
static int converse(struct probe *p, const int ends[3], char *text, size_t text_size, struct err *e)
{
	long long until = python_now_ms() + PROBE_MS;
	_cleanup_fd_ int pidfd = -1;
	char said[1024] = "";
	struct failure f;
	bool whole, late;
	pid_t pid = confined_fork(&pidfd, e);
	int status;
	ssize_t n;

	if (pid < 0)
		return pid;
	if (pid == 0)
		child(p);
	close(TAKE_FD(p->out));
	close(TAKE_FD(p->err));
	close(TAKE_FD(p->status));
	whole = python_read_all(ends[0], text, text_size, until);
	status = confined_wait(pid, pidfd, whole ? until : 0, &late);
	late = late && python_now_ms() >= until;
	(void)python_read_all(ends[1], said, sizeof said, python_now_ms() + 100); /* its writers are gone */
	n = read(ends[2], &f, sizeof f);					  /* every writer is gone */
	if (n == (ssize_t)sizeof f) {
		f.what[sizeof f.what - 1] = 0;
		return f.what[0] ? err_errno(e, f.error, "image", "confine the interpreter that is asked what it is")
				 : explain_exec(p->path, f.error, e);
	}
	if (!whole || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return explain_end(p->path, late, status, said, e);
	return 0;
}

static int check(const struct python *py, struct err *e)
{
	const char *const paths[] = {py->prefix, py->stdlib, py->platlib, py->site};
	int minor = 0;

	if (sscanf(py->version, "3.%d", &minor) != 1 || minor < PYTHON_OLDEST_MINOR)
		return err_set(e, EINVAL, "image", "%s of the image is Python %s; 3.%d is the oldest that snippets can run on",
			       py->executable, py->version, PYTHON_OLDEST_MINOR);
	for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
		if (paths[i][0] != '/' || strstr(paths[i], "/../"))
			return err_set(e, EINVAL, "image", "%s of the image says that its library is at \"%s\"", py->executable,
				       paths[i]);
	return 0;
}

static int ask(const char *root, const char *path, struct python *ret, struct err *e)
{
	int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
	struct probe p = {.root = root, .path = path, .filter = -1};
	struct python py = {0};
	char text[8192];
	int rc = filter_compile(FILTER_SNIPPET, &p.filter, &p.filter_len, e);

	p.null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (rc == 0 && p.null < 0)
		rc = err_errno(e, errno, "image", "open /dev/null");
	for (size_t i = 0; rc == 0 && i < 3; i++)
		if (pipe2(pipes[i], O_CLOEXEC) < 0)
			rc = err_errno(e, errno, "image", "make a pipe");
	p.out = pipes[0][1];
	p.err = pipes[1][1];
	p.status = pipes[2][1];
	if (rc == 0)
		rc = converse(&p, (const int[]){pipes[0][0], pipes[1][0], pipes[2][0]}, text, sizeof text, e);
	for (size_t i = 0; i < 3; i++)
		cleanup_fdp(&pipes[i][0]);
	cleanup_fdp(&p.out);
	cleanup_fdp(&p.err);
	cleanup_fdp(&p.status);
	cleanup_fdp(&p.null);
	cleanup_fdp(&p.filter);
	if (rc < 0)
		return rc;
	rc = python_parse(text, &py);
	if (rc < 0 || (size_t)snprintf(py.executable, sizeof py.executable, "%s", path) >= sizeof py.executable)
		return err_set(e, EINVAL, "image", "%s of the image says nothing of use about itself", path);
	rc = check(&py, e);
	if (rc == 0)
		*ret = py;
	return rc;
}

/* Whether there is such a file in the image, whatever links lead to it. */
static bool exists(const char *root, const char *path)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
	_cleanup_fd_ int top = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -1;
	struct stat st;

	if (top >= 0)
		fd = (int)syscall(SYS_openat2, top, path, &how, sizeof how);
	return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

int python_find_inside(const char *root, const char *configured, struct python *ret, struct err *e)
{
	const char *name = configured ? configured : "python3";
	char path[256];

	if (name[0] == '/') {
		if (!exists(root, name))
			return err_set(e, ENOENT, "image", "there is no %s in the image", name);
		return ask(root, name, ret, e);
	}
	if (strchr(name, '/'))
		return err_set(e, EINVAL, "image", "\"%s\": an interpreter in an image is named by its whole path, or a name",
			       name);
	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
		if ((size_t)snprintf(path, sizeof path, "%s/%s", places[i], name) < sizeof path && exists(root, path))
			return ask(root, path, ret, e);
	return err_set(
	    e, ENOENT, "image",
	    "no %s in the image: looked in /usr/local/bin, /usr/bin, /bin and /opt/conda/bin; name one, as the image "
	    "has it, with snippet.python or --python",
	    name);
}

/* One directory of a PATH: 0, or -ENOENT when no interpreter is in it. *first_error: what was wrong with the first that is
 * none. */
static int ask_in(const char *root, const char *dir, size_t len, struct python *ret, struct err *first_error)
{
	static const char *const names[] = {"python3", "python"};
	char path[256];

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		struct err e = {0};

		if ((size_t)snprintf(path, sizeof path, "%.*s/%s", (int)len, dir, names[i]) >= sizeof path ||
		    !exists(root, path))
			continue;
		if (ask(root, path, ret, &e) == 0)
			return 0;
		if (!first_error->code)
			*first_error = e;
	}
	return -ENOENT;
}

int python_find_on(const char *root, const char *path, struct python *ret, struct err *e)
{
	struct err first_error = {0};

	for (const char *p = path ? path : ""; *p; p += *p == ':') {
		size_t n = strcspn(p, ":"), len = n;

		while (len > 1 && p[len - 1] == '/')
			len--;
		if (p[0] == '/' && ask_in(root, p, len, ret, &first_error) == 0)
			return 0;
		p += n;
	}
	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
		if (ask_in(root, places[i], strlen(places[i]), ret, &first_error) == 0)
			return 0;
	if (first_error.code) {
		*e = first_error;
		return -e->code;
	}
	return err_set(e, ENOENT, "image",
		       "no python3 and no python in the image: looked in its PATH (%.200s), /usr/local/bin, /usr/bin, /bin and "
		       "/opt/conda/bin",
		       path && *path ? path : "which it does not set");
}
