/* SPDX-License-Identifier: Apache-2.0 */
#include "image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/stat.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "blobs.h"
#include "core/cleanup.h"
#include "elfdeps.h"

#define BASES_MAX 4
#define FILES_MAX 1024
#define LAYER "image"
#define TOP LAYER "/r" /* becomes "/" of a sandbox; opaque, so nothing of the layer below shows through */

/* A mount of the host that holds exposed files: one lower layer each. Nearly always there is one, "/". */
struct base {
	uint64_t mount_id;
	char mountpoint[PATH_MAX];
	bool bound; /* is bound at base<N> of the stage */
};

struct source {
	char *from; /* on the host */
	char *to;   /* below TOP, with a leading slash */
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec mtime;
};

struct image {
	char stage[128];
	int stage_fd;
	bool mounted;
	struct base bases[BASES_MAX];
	size_t base_count;
	struct source files[FILES_MAX];
	size_t file_count;
	char overlay[256];
	char interpreter[128];
	char libdir[256];
	char missing[256];
};

/* The base commands: coreutils and what scripts lean on. No tool that changes identity or talks to a network. */
static const char *const commands[] = {
    "[",	"awk",	    "b2sum",   "base32",    "base64",	 "basename",  "bash",	   "bunzip2", "bzip2",	  "cat",
    "chmod",	"cksum",    "cmp",     "comm",	    "cp",	 "csplit",    "cut",	   "date",    "dd",	  "diff",
    "dirname",	"du",	    "echo",    "egrep",	    "env",	 "expand",    "expr",	   "factor",  "false",	  "fgrep",
    "find",	"fmt",	    "fold",    "grep",	    "groups",	 "gunzip",    "gzip",	   "head",    "hostname", "id",
    "install",	"join",	    "kill",    "link",	    "ln",	 "ls",	      "md5sum",	   "mkdir",   "mkfifo",	  "mktemp",
    "mv",	"nice",	    "nl",      "nohup",	    "nproc",	 "numfmt",    "od",	   "paste",   "patch",	  "pathchk",
    "pr",	"printenv", "printf",  "ptx",	    "pwd",	 "readlink",  "realpath",  "rm",      "rmdir",	  "sed",
    "seq",	"sh",	    "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "shred",   "shuf",	  "sleep",
    "sort",	"split",    "stat",    "stdbuf",    "stty",	 "sum",	      "sync",	   "tac",     "tail",	  "tar",
    "tee",	"test",	    "timeout", "touch",	    "tr",	 "true",      "truncate",  "tsort",   "tty",	  "uname",
    "unexpand", "uniq",	    "unlink",  "wc",	    "which",	 "whoami",    "xargs",	   "xz",      "yes",	  "zcat",
};

static const char *const command_dirs[] = {"/usr/bin", "/bin"};

/* Asked for by dlopen() only, so no ELF file names it: thread cancellation. */
static const char *const extra_libs[] = {"libgcc_s.so.1"};

/* ---- small helpers, all relative to the stage ---- */

static int fmt(char *buf, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int fmt(char *buf, size_t size, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(buf, size, format, ap);
	va_end(ap);
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

static int set_overlay_xattr(struct image *im, const char *rel, const char *name, const char *value, struct err *e)
{
	char path[PATH_MAX], attr[64];

	if (fmt(path, sizeof path, "%s/%s", im->stage, rel) < 0 || fmt(attr, sizeof attr, "trusted.overlay.%s", name) < 0)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", rel);
	if (lsetxattr(path, attr, value, strlen(value), 0) < 0)
		return err_errno(e, errno, "image", "mark %s as %s for overlayfs", rel, name);
	return 0;
}

/* mkdir -p below TOP; `to` has a leading slash. The last component is made only when `leaf`. */
static int make_dirs(struct image *im, const char *to, bool leaf, struct err *e)
{
	char path[PATH_MAX];

	if (fmt(path, sizeof path, TOP "%s", to) < 0)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", to);
	for (char *p = path + sizeof TOP; *p; p++)
		if (*p == '/') {
			*p = 0;
			if (mkdirat(im->stage_fd, path, 0755) < 0 && errno != EEXIST)
				return err_errno(e, errno, "image", "make %s", path);
			*p = '/';
		}
	if (leaf && mkdirat(im->stage_fd, path, 0755) < 0 && errno != EEXIST)
		return err_errno(e, errno, "image", "make %s", path);
	return 0;
}

static int make_link(struct image *im, const char *to, const char *target, struct err *e)
{
	char path[PATH_MAX];
	int rc = make_dirs(im, to, false, e);

	if (rc < 0)
		return rc;
	if (fmt(path, sizeof path, TOP "%s", to) < 0)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", to);
	if (symlinkat(target, im->stage_fd, path) < 0 && errno != EEXIST)
		return err_errno(e, errno, "image", "link %s", to);
	return 0;
}

static int make_file(struct image *im, const char *to, const char *data, size_t len, struct err *e)
{
	char path[PATH_MAX];
	_cleanup_fd_ int fd = -1;
	int rc = make_dirs(im, to, false, e);

	if (rc < 0)
		return rc;
	if (fmt(path, sizeof path, TOP "%s", to) < 0)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", to);
	fd = openat(im->stage_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, data, len) != (ssize_t)len)
		return err_errno(e, errno, "image", "write %s", to);
	return 0;
}

/* ---- layers below ---- */

static void unescape_mountinfo(char *s)
{
	char *to = s;

	for (; *s; s++)
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	*to = 0;
}

static int find_mountpoint(uint64_t id, char ret[PATH_MAX], struct err *e)
{
	_cleanup_file_ FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[8192];

	while (f && fgets(line, sizeof line, f)) {
		unsigned long long got;

		if (sscanf(line, "%llu %*s %*s %*s %4095s", &got, ret) == 2 && got == id) {
			unescape_mountinfo(ret);
			return 0;
		}
	}
	return err_set(e, ENOENT, "image", "mount %llu is not in /proc/self/mountinfo", (unsigned long long)id);
}

/* The layer that holds `real` (a resolved path), bound into the stage on first use. */
static int base_of(struct image *im, const char *real, struct base **ret, struct err *e)
{
	struct statx sx;
	struct base *b;
	char target[32];
	int rc;

	if (statx(AT_FDCWD, real, AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &sx) < 0 || !(sx.stx_mask & STATX_MNT_ID))
		return err_errno(e, errno ? errno : ENOSYS, "image", "find the mount of %s", real);
	for (size_t i = 0; i < im->base_count; i++)
		if (im->bases[i].mount_id == sx.stx_mnt_id) {
			*ret = &im->bases[i];
			return 0;
		}
	if (im->base_count == BASES_MAX)
		return err_set(e, E2BIG, "image", "Python and its libraries lie on more than %d file systems", BASES_MAX);
	b = &im->bases[im->base_count];
	b->mount_id = sx.stx_mnt_id;
	rc = find_mountpoint(b->mount_id, b->mountpoint, e);
	if (rc < 0)
		return rc;
	snprintf(target, sizeof target, "base%zu", im->base_count);
	if (mkdirat(im->stage_fd, target, 0700) < 0)
		return err_errno(e, errno, "image", "make %s", target);
	if (fchdir(im->stage_fd) < 0 || mount(b->mountpoint, target, NULL, MS_BIND, NULL) < 0)
		return err_errno(e, errno, "image", "bind %s as a layer", b->mountpoint);
	b->bound = true;
	im->base_count++;
	*ret = b;
	return 0;
}

/* `real` as overlayfs must look it up in its layer. */
static int redirect_path(struct image *im, const char *real, char ret[PATH_MAX], struct err *e)
{
	struct base *b;
	size_t n;
	int rc = base_of(im, real, &b, e);

	if (rc < 0)
		return rc;
	n = strlen(b->mountpoint);
	if (n == 1)
		n = 0; /* "/" */
	snprintf(ret, PATH_MAX, "%s", real + n);
	return 0;
}

/* ---- exposing ---- */

static bool exposed(const struct image *im, const char *to)
{
	for (size_t i = 0; i < im->file_count; i++)
		if (!strcmp(im->files[i].to, to))
			return true;
	return false;
}

/* Exposes the host's file `from` as `to`. */
static int expose_file(struct image *im, const char *from, const char *to, struct err *e)
{
	char real[PATH_MAX], redirect[PATH_MAX], rel[PATH_MAX];
	struct source *s = &im->files[im->file_count];
	_cleanup_fd_ int fd = -1;
	struct stat st;
	struct timespec times[2];
	int rc;

	if (exposed(im, to))
		return 0;
	if (im->file_count == FILES_MAX)
		return err_set(e, E2BIG, "image", "more than %d files", FILES_MAX);
	if (!realpath(from, real) || stat(real, &st) < 0)
		return err_errno(e, errno, "image", "%s", from);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EINVAL, "image", "%s is not a regular file", real);
	rc = redirect_path(im, real, redirect, e);
	if (rc == 0)
		rc = make_dirs(im, to, false, e);
	if (rc < 0)
		return rc;
	if (fmt(rel, sizeof rel, TOP "%s", to) < 0)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", to);
	/* Only these two modes exist in the image: no set-id bit of the host's can come along. */
	fd = openat(im->stage_fd, rel, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, st.st_mode & 0111 ? 0755 : 0644);
	if (fd < 0 || ftruncate(fd, st.st_size) < 0)
		return err_errno(e, errno, "image", "make %s", to);
	rc = set_overlay_xattr(im, rel, "metacopy", "", e);
	if (rc == 0)
		rc = set_overlay_xattr(im, rel, "redirect", redirect, e);
	if (rc < 0)
		return rc;
	times[0] = times[1] = st.st_mtim;
	if (futimens(fd, times) < 0)
		return err_errno(e, errno, "image", "date %s", to);
	s->from = strdup(from);
	s->to = strdup(to);
	if (!s->from || !s->to)
		return err_set(e, ENOMEM, "image", "out of memory");
	s->dev = st.st_dev;
	s->ino = st.st_ino;
	s->size = st.st_size;
	s->mtime = st.st_mtim;
	im->file_count++;
	return 0;
}

/* Exposes a directory of the host whole, with whatever it will hold. */
static int expose_dir(struct image *im, const char *from, const char *to, struct err *e)
{
	char real[PATH_MAX], redirect[PATH_MAX], rel[PATH_MAX];
	int rc;

	if (!realpath(from, real))
		return err_errno(e, errno, "image", "%s", from);
	rc = redirect_path(im, real, redirect, e);
	if (rc == 0)
		rc = make_dirs(im, to, true, e);
	if (rc < 0)
		return rc;
	if (fmt(rel, sizeof rel, TOP "%s", to) < 0)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", to);
	return set_overlay_xattr(im, rel, "redirect", redirect, e);
}

/* A directory of our own inside one that is exposed whole: hides the host's. */
static int own_dir(struct image *im, const char *to, struct err *e)
{
	char rel[PATH_MAX];
	int rc = make_dirs(im, to, true, e);

	if (rc < 0)
		return rc;
	if (fmt(rel, sizeof rel, TOP "%s", to) < 0)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", to);
	return set_overlay_xattr(im, rel, "opaque", "y", e);
}

static void note_missing(struct image *im, const char *what)
{
	size_t n = strlen(im->missing);

	snprintf(im->missing + n, sizeof im->missing - n, "%s%s", n ? ", " : "", what);
}

/* ---- contents ---- */

static int layout(struct image *im, struct err *e)
{
	static const char *const dirs[] = {"/etc",     "/dev",	   "/proc",	 "/tmp",	   "/box",
					   "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/share/weir"};
	static const struct {
		const char *to, *target;
	} links[] = {{"/bin", "usr/bin"}, {"/sbin", "usr/bin"}, {"/lib", "usr/lib"}, {"/lib64", "usr/lib64"}};
	int rc = 0;

	if (mkdirat(im->stage_fd, "root", 0700) < 0 || mkdirat(im->stage_fd, LAYER, 0755) < 0 ||
	    mkdirat(im->stage_fd, TOP, 0755) < 0)
		return err_errno(e, errno, "image", "make the layer");
	rc = set_overlay_xattr(im, TOP, "opaque", "y", e);
	for (size_t i = 0; rc == 0 && i < sizeof dirs / sizeof dirs[0]; i++)
		rc = make_dirs(im, dirs[i], true, e);
	for (size_t i = 0; rc == 0 && i < sizeof links / sizeof links[0]; i++)
		rc = make_link(im, links[i].to, links[i].target, e);
	return rc;
}

static int add_commands(struct image *im, struct elfdeps *deps, struct err *e)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < sizeof commands / sizeof commands[0]; i++) {
		char from[PATH_MAX], to[PATH_MAX];
		bool found = false;

		for (size_t k = 0; !found && k < sizeof command_dirs / sizeof command_dirs[0]; k++) {
			snprintf(from, sizeof from, "%s/%s", command_dirs[k], commands[i]);
			found = access(from, X_OK) == 0;
		}
		if (!found) {
			if (strcmp(commands[i], "sh") == 0)
				return err_set(e, ENOENT, "image", "no sh in /usr/bin or /bin");
			continue; /* the host lacks it, so does the image */
		}
		snprintf(to, sizeof to, "/usr/bin/%s", commands[i]);
		rc = expose_file(im, from, to, e);
		if (rc == 0)
			rc = elfdeps_add(deps, from, e);
	}
	return rc;
}

/* Where a path below Python's prefix is inside: /usr stays, any other prefix becomes /usr/local. */
static int map_prefix(const struct python *py, const char *path, char *ret, size_t size)
{
	if (!strcmp(py->prefix, "/usr"))
		return fmt(ret, size, "%s", path);
	return fmt(ret, size, "/usr/local%s", path + strlen(py->prefix));
}

static int add_extension_deps(struct elfdeps *deps, const char *platlib, struct err *e)
{
	char dir[PATH_MAX];
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	int rc = 0;

	snprintf(dir, sizeof dir, "%s/lib-dynload", platlib);
	d = opendir(dir);
	while (d && rc == 0 && (de = readdir(d))) {
		char path[PATH_MAX];

		if (!strstr(de->d_name, ".so"))
			continue;
		if (fmt(path, sizeof path, "%s/%s", dir, de->d_name) == 0)
			rc = elfdeps_add(deps, path, e);
	}
	return rc;
}

static char *read_whole(const char *path, size_t *ret_len)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *text;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size > 1 << 20)
		return NULL;
	text = malloc((size_t)st.st_size + 1);
	if (!text || read(fd, text, (size_t)st.st_size) != st.st_size) {
		free(text);
		return NULL;
	}
	text[st.st_size] = 0;
	*ret_len = (size_t)st.st_size;
	return text;
}

/* Writes `text` to `to` with every `prefix` replaced by /usr/local. */
static int make_relocated(struct image *im, const char *to, const char *text, const char *prefix, struct err *e)
{
	static const char inside[] = "/usr/local";
	_cleanup_free_ char *out = NULL;
	size_t n = strlen(prefix), used = 0, room = strlen(text) + 1;

	for (const char *p = strstr(text, prefix); p; p = strstr(p + n, prefix))
		room += sizeof inside;
	out = malloc(room);
	if (!out)
		return err_set(e, ENOMEM, "image", "out of memory");
	while (*text) {
		if (!strncmp(text, prefix, n)) {
			memcpy(out + used, inside, sizeof inside - 1);
			used += sizeof inside - 1;
			text += n;
		} else {
			out[used++] = *text++;
		}
	}
	return make_file(im, to, out, used, e);
}

/*
 * An interpreter that was built below somebody's home tells so in the build's record: sysconfig reads it. The image gets the
 * record with the prefix that holds inside, and none of the files for building against that Python.
 */
static int hide_prefix(struct image *im, const struct python *py, struct err *e)
{
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	int rc = 0;

	if (!strcmp(py->prefix, "/usr") || !strcmp(py->prefix, "/usr/local"))
		return 0;
	d = opendir(py->platlib);
	while (d && rc == 0 && (de = readdir(d))) {
		char host[PATH_MAX], to[PATH_MAX];
		size_t len;

		if (fmt(host, sizeof host, "%s/%s", py->platlib, de->d_name) < 0 || map_prefix(py, host, to, sizeof to) < 0)
			continue;
		if (!strncmp(de->d_name, "config-", 7)) {
			rc = own_dir(im, to, e);
		} else if (!strncmp(de->d_name, "_sysconfigdata", 14) && strstr(de->d_name, ".py")) {
			_cleanup_free_ char *text = read_whole(host, &len);

			if (!text)
				return err_set(e, EIO, "image", "can't read %s", host);
			rc = make_relocated(im, to, text, py->prefix, e);
		}
	}
	return rc;
}

static int add_python(struct image *im, const struct python *py, struct elfdeps *deps, struct err *e)
{
	/* Imported, and forgotten: a snippet finds no module of ours. */
	static const char pth[] = "import sys, _weir_harness; sys.modules.pop('_weir_harness')\n";
	const char *name = strrchr(py->executable, '/') + 1;
	struct blob harness = blob_harness();
	char to[PATH_MAX], file[PATH_MAX];
	int rc;

	if (fmt(im->interpreter, sizeof im->interpreter, "%s/bin/%s", strcmp(py->prefix, "/usr") ? "/usr/local" : "/usr",
		name) < 0)
		return err_set(e, ENAMETOOLONG, "image", "interpreter name too long");
	rc = expose_file(im, py->executable, im->interpreter, e);
	if (rc == 0)
		rc = elfdeps_add(deps, py->executable, e);
	if (rc == 0 && map_prefix(py, py->stdlib, to, sizeof to) == 0)
		rc = expose_dir(im, py->stdlib, to, e);
	if (rc == 0 && strcmp(py->stdlib, py->platlib) && map_prefix(py, py->platlib, to, sizeof to) == 0)
		rc = expose_dir(im, py->platlib, to, e);
	if (rc == 0)
		rc = hide_prefix(im, py, e);
	if (rc == 0)
		rc = add_extension_deps(deps, py->platlib, e);
	/* The host's own site directory stays outside: a snippet gets the interpreter and its library, not whatever was
	 * installed beside them. Ours holds the harness and nothing else. */
	if (rc == 0 && map_prefix(py, py->site, to, sizeof to) == 0)
		rc = own_dir(im, to, e);
	if (rc == 0 && fmt(file, sizeof file, "%s/_weir_harness.py", to) == 0)
		rc = make_file(im, file, harness.data, harness.len, e);
	if (rc == 0 && fmt(file, sizeof file, "%s/_weir_harness.pth", to) == 0)
		rc = make_file(im, file, pth, sizeof pth - 1, e);
	if (rc == 0)
		rc = make_link(im, "/usr/bin/python3", im->interpreter, e);
	if (rc == 0)
		rc = make_link(im, "/usr/bin/python", im->interpreter, e);
	return rc;
}

static int add_libraries(struct image *im, struct elfdeps *deps, struct err *e)
{
	const char *loader = elfdeps_loader(deps);
	char to[PATH_MAX];
	int rc = 0;

	for (size_t i = 0; i < sizeof extra_libs / sizeof extra_libs[0]; i++)
		if ((rc = elfdeps_add_soname(deps, extra_libs[i], e)) < 0)
			return rc;
	/* All libraries go into the one directory that holds libc: a default of the loader's, so no cache file is needed. */
	for (size_t i = 0; elfdeps_soname(deps, i); i++)
		if (!strcmp(elfdeps_soname(deps, i), "libc.so.6")) {
			const char *path = elfdeps_path(deps, i);

			snprintf(im->libdir, sizeof im->libdir, "%s%.*s", strncmp(path, "/usr/", 5) ? "/usr" : "",
				 (int)(strrchr(path, '/') - path), path);
		}
	if (!im->libdir[0] || !loader[0])
		return err_set(e, ENOENT, "image", "the interpreter is not linked to a C library that can be found");
	for (size_t i = 0; rc == 0 && elfdeps_soname(deps, i); i++) {
		snprintf(to, sizeof to, "%s/%s", im->libdir, elfdeps_soname(deps, i));
		rc = expose_file(im, elfdeps_path(deps, i), to, e);
	}
	if (rc == 0) {
		snprintf(to, sizeof to, "%s%s", strncmp(loader, "/usr/", 5) ? "/usr" : "", loader);
		rc = expose_file(im, loader, to, e);
	}
	return rc;
}

static int add_data(struct image *im, struct err *e)
{
	/* A run has one CPU's worth of time: programs that start a thread a CPU should start one (glibc looks here first). */
	static const char one_cpu[] = "0\n";
	static const char *const bundles[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"};
	static const char *const dirs[] = {"/usr/share/zoneinfo", "/usr/lib/locale/C.utf8"};
	bool have_bundle = false;
	int rc = 0;

	rc = make_file(im, "/sys/devices/system/cpu/online", one_cpu, sizeof one_cpu - 1, e);
	if (rc == 0)
		rc = make_file(im, "/sys/devices/system/cpu/possible", one_cpu, sizeof one_cpu - 1, e);
	for (size_t i = 0; rc == 0 && !have_bundle && i < sizeof bundles / sizeof bundles[0]; i++)
		if (access(bundles[i], R_OK) == 0) {
			rc = expose_file(im, bundles[i], "/usr/share/weir/ca-certificates.crt", e);
			have_bundle = true;
		}
	if (!have_bundle)
		note_missing(im, "CA certificates (package ca-certificates)");
	if (access(dirs[0], R_OK) < 0)
		note_missing(im, "time zones (package tzdata)");
	for (size_t i = 0; rc == 0 && i < sizeof dirs / sizeof dirs[0]; i++)
		if (access(dirs[i], R_OK) == 0)
			rc = expose_dir(im, dirs[i], dirs[i], e);
	return rc;
}

/* ---- trial ---- */

static int same_content(const char *a, const char *b)
{
	_cleanup_fd_ int fa = open(a, O_RDONLY | O_CLOEXEC), fb = open(b, O_RDONLY | O_CLOEXEC);
	static char ba[1 << 16], bb[1 << 16];

	if (fa < 0 || fb < 0)
		return -errno;
	for (;;) {
		ssize_t na = read(fa, ba, sizeof ba), nb = read(fb, bb, sizeof bb);

		if (na < 0 || nb < 0)
			return -errno;
		if (na != nb || memcmp(ba, bb, (size_t)na))
			return -ESTALE;
		if (na == 0)
			return 0;
	}
}

static int compare_all(struct image *im, struct err *e)
{
	for (size_t i = 0; i < im->file_count; i++) {
		char path[PATH_MAX];
		int rc;

		if (fmt(path, sizeof path, "root/r%s", im->files[i].to) < 0)
			return err_set(e, ENAMETOOLONG, "image", "path too long: %s", im->files[i].to);
		rc = same_content(im->files[i].from, path);
		if (rc < 0)
			return err_errno(e, -rc, "image", "%s in the image is not %s of the host", im->files[i].to,
					 im->files[i].from);
	}
	return 0;
}

static int trial(struct image *im, struct err *e)
{
	int rc;

	if (fchdir(im->stage_fd) < 0)
		return err_errno(e, errno, "image", "enter the stage");
	if (mount("weir", "root", "overlay", MS_RDONLY | MS_NOSUID | MS_NODEV, im->overlay) < 0)
		return err_errno(e, errno, "image", "mount an overlay with metacopy (kernel module `overlay`)");
	rc = compare_all(im, e);
	if (umount2("root", MNT_DETACH) < 0 && rc == 0)
		rc = err_errno(e, errno, "image", "unmount the trial");
	(void)!chdir("/");
	return rc;
}

static int fill(struct image *im, const struct python *py, struct err *e)
{
	struct elfdeps *deps = elfdeps_new();
	size_t n;
	int rc;

	if (!deps)
		return err_set(e, ENOMEM, "image", "out of memory");
	rc = layout(im, e);
	if (rc == 0)
		rc = add_commands(im, deps, e);
	if (rc == 0)
		rc = add_python(im, py, deps, e);
	if (rc == 0)
		rc = add_libraries(im, deps, e);
	if (rc == 0)
		rc = add_data(im, e);
	elfdeps_free(deps);
	n = (size_t)snprintf(im->overlay, sizeof im->overlay, "metacopy=on,redirect_dir=on,lowerdir=" LAYER);
	for (size_t i = 0; i < im->base_count; i++)
		n += (size_t)snprintf(im->overlay + n, sizeof im->overlay - n, ":base%zu", i);
	return rc;
}

int image_build(struct image **ret, const char *stage, const struct python *py, struct err *e)
{
	struct image *im = calloc(1, sizeof *im);
	int rc;

	if (!im)
		return err_set(e, ENOMEM, "image", "out of memory");
	im->stage_fd = -1;
	if (fmt(im->stage, sizeof im->stage, "%s", stage) < 0) {
		free(im);
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", stage);
	}
	if (mkdir(stage, 0700) < 0 && errno != EEXIST) {
		rc = err_errno(e, errno, "image", "make %s", stage);
	} else if (mount("weir", stage, "tmpfs", MS_NOSUID | MS_NODEV, "mode=700,size=4m,nr_inodes=4096") < 0) {
		rc = err_errno(e, errno, "image", "mount a tmpfs on %s", stage);
	} else {
		im->mounted = true;
		im->stage_fd = open(stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = im->stage_fd < 0 ? err_errno(e, errno, "image", "open %s", stage) : fill(im, py, e);
		if (rc == 0)
			rc = trial(im, e);
	}
	if (rc < 0) {
		image_release(im);
		return rc;
	}
	*ret = im;
	return 0;
}

struct image *image_release(struct image *im)
{
	if (!im)
		return NULL;
	if (im->stage_fd >= 0) {
		for (size_t i = 0; i < im->base_count; i++) {
			char path[PATH_MAX];

			/* Lazily: a sandbox that is still alive holds its own copy of these mounts. */
			if (im->bases[i].bound && fmt(path, sizeof path, "%s/base%zu", im->stage, i) == 0)
				umount2(path, MNT_DETACH);
		}
		close(im->stage_fd);
	}
	if (im->mounted)
		umount2(im->stage, MNT_DETACH);
	for (size_t i = 0; i < FILES_MAX; i++) {
		free(im->files[i].from);
		free(im->files[i].to);
	}
	free(im);
	return NULL;
}

bool image_stale(const struct image *im)
{
	for (size_t i = 0; i < im->file_count; i++) {
		const struct source *s = &im->files[i];
		struct stat st;

		if (stat(s->from, &st) < 0 || st.st_dev != s->dev || st.st_ino != s->ino || st.st_size != s->size ||
		    st.st_mtim.tv_sec != s->mtime.tv_sec || st.st_mtim.tv_nsec != s->mtime.tv_nsec)
			return true;
	}
	return false;
}

const char *image_overlay(const struct image *im)
{
	return im->overlay;
}

const char *image_interpreter(const struct image *im)
{
	return im->interpreter;
}

const char *image_missing(const struct image *im)
{
	return im->missing;
}
