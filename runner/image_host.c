/* SPDX-License-Identifier: Apache-2.0 */
/* The image that is made of the host's own files. */
#include "image_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "elfdeps.h"

#define HOST_TOP IMAGE_LAYER "/r" /* opaque, so nothing of the layer below shows through */
#define NOT_HERE "not on this host, so not in the image either: "

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
static int base_of(struct image *im, const char *real, struct image_base **ret, struct err *e)
{
	struct statx sx;
	struct image_base *b;
	char target[32];
	int rc;

	if (statx(AT_FDCWD, real, AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &sx) < 0 || !(sx.stx_mask & STATX_MNT_ID))
		return err_errno(e, errno ? errno : ENOSYS, "image", "find the mount of %s", real);
	for (size_t i = 0; i < im->base_count; i++)
		if (im->bases[i].mount_id == sx.stx_mnt_id) {
			*ret = &im->bases[i];
			return 0;
		}
	if (im->base_count == IMAGE_BASES_MAX)
		return err_set(e, E2BIG, "image", "Python and its libraries lie on more than %d file systems", IMAGE_BASES_MAX);
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
	struct image_base *b = NULL;
	size_t n;
	int rc = base_of(im, real, &b, e);

	if (!b)
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
	_cleanup_fd_ int fd = -1;
	struct stat st;
	struct timespec times[2];
	int rc;

	if (exposed(im, to))
		return 0;
	if (!realpath(from, real) || stat(real, &st) < 0)
		return err_errno(e, errno, "image", "%s", from);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EINVAL, "image", "%s is not a regular file", real);
	rc = redirect_path(im, real, redirect, e);
	if (rc == 0)
		rc = layer_dirs(im, to, false, e);
	if (rc < 0)
		return rc;
	if (image_format(rel, sizeof rel, HOST_TOP "%s", to) < 0)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", to);
	/* Only these two modes exist in the image: no set-id bit of the host's can come along. */
	fd = openat(im->stage_fd, rel, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, st.st_mode & 0111 ? 0755 : 0644);
	if (fd < 0 || ftruncate(fd, st.st_size) < 0)
		return err_errno(e, errno, "image", "make %s", to);
	rc = layer_mark(im, rel, "metacopy", "", e);
	if (rc == 0)
		rc = layer_mark(im, rel, "redirect", redirect, e);
	if (rc < 0)
		return rc;
	times[0] = times[1] = st.st_mtim;
	if (futimens(fd, times) < 0)
		return err_errno(e, errno, "image", "date %s", to);
	return image_watch(im, from, to, &st, e);
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
		rc = layer_dirs(im, to, true, e);
	if (rc < 0)
		return rc;
	if (image_format(rel, sizeof rel, HOST_TOP "%s", to) < 0)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", to);
	return layer_mark(im, rel, "redirect", redirect, e);
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

	if (mkdirat(im->stage_fd, "root", 0700) < 0 || mkdirat(im->stage_fd, IMAGE_LAYER, 0755) < 0 ||
	    mkdirat(im->stage_fd, HOST_TOP, 0755) < 0)
		return err_errno(e, errno, "image", "make the layer");
	rc = layer_mark(im, HOST_TOP, "opaque", "y", e);
	for (size_t i = 0; rc == 0 && i < sizeof dirs / sizeof dirs[0]; i++)
		rc = layer_dirs(im, dirs[i], true, e);
	for (size_t i = 0; rc == 0 && i < sizeof links / sizeof links[0]; i++)
		rc = layer_link(im, links[i].to, links[i].target, e);
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
		return image_format(ret, size, "%s", path);
	return image_format(ret, size, "/usr/local%s", path + strlen(py->prefix));
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
		if (image_format(path, sizeof path, "%s/%s", dir, de->d_name) == 0)
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
	return layer_file(im, to, out, used, e);
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

		if (image_format(host, sizeof host, "%s/%s", py->platlib, de->d_name) < 0 ||
		    map_prefix(py, host, to, sizeof to) < 0)
			continue;
		if (!strncmp(de->d_name, "config-", 7)) {
			rc = layer_own_dir(im, to, e);
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
	const char *name = strrchr(py->executable, '/') + 1;
	char to[PATH_MAX];
	int rc;

	if (image_format(im->interpreter, sizeof im->interpreter, "%s/bin/%s",
			 strcmp(py->prefix, "/usr") ? "/usr/local" : "/usr", name) < 0)
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
		rc = layer_own_dir(im, to, e);
	if (rc == 0)
		rc = layer_harness(im, to, e);
	if (rc == 0)
		rc = layer_link(im, "/usr/bin/python3", im->interpreter, e);
	if (rc == 0)
		rc = layer_link(im, "/usr/bin/python", im->interpreter, e);
	return rc;
}

static int add_libraries(struct image *im, struct elfdeps *deps, struct err *e)
{
	const char *loader = elfdeps_loader(deps);
	char to[PATH_MAX], libdir[256] = "";
	int rc = 0;

	for (size_t i = 0; i < sizeof extra_libs / sizeof extra_libs[0]; i++)
		if ((rc = elfdeps_add_soname(deps, extra_libs[i], e)) < 0)
			return rc;
	/* All libraries go into the one directory that holds libc: a default of the loader's, so no cache file is needed. */
	for (size_t i = 0; elfdeps_soname(deps, i); i++)
		if (!strcmp(elfdeps_soname(deps, i), "libc.so.6")) {
			const char *path = elfdeps_path(deps, i);

			snprintf(libdir, sizeof libdir, "%s%.*s", strncmp(path, "/usr/", 5) ? "/usr" : "",
				 (int)(strrchr(path, '/') - path), path);
		}
	if (!libdir[0] || !loader[0])
		return err_set(e, ENOENT, "image", "the interpreter is not linked to a C library that can be found");
	for (size_t i = 0; rc == 0 && elfdeps_soname(deps, i); i++) {
		snprintf(to, sizeof to, "%s/%s", libdir, elfdeps_soname(deps, i));
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
	static const char *const bundles[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"};
	static const char *const dirs[] = {"/usr/share/zoneinfo", "/usr/lib/locale/C.utf8"};
	bool have_bundle = false;
	int rc = 0;

	rc = layer_common(im, e);
	for (size_t i = 0; rc == 0 && !have_bundle && i < sizeof bundles / sizeof bundles[0]; i++)
		if (access(bundles[i], R_OK) == 0) {
			rc = expose_file(im, bundles[i], "/usr/share/weir/ca-certificates.crt", e);
			have_bundle = true;
		}
	if (!have_bundle)
		image_warn(im, NOT_HERE "CA certificates (package ca-certificates)");
	if (access(dirs[0], R_OK) < 0)
		image_warn(im, NOT_HERE "time zones (package tzdata)");
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

int image_check_host(const struct image *im, struct err *e)
{
	for (size_t i = 0; i < im->file_count; i++) {
		char path[PATH_MAX];
		int rc;

		if (image_format(path, sizeof path, "root/r%s", im->files[i].to) < 0)
			return err_set(e, ENAMETOOLONG, "image", "path too long: %s", im->files[i].to);
		rc = same_content(im->files[i].from, path);
		if (rc < 0)
			return err_errno(e, -rc, "image", "%s in the image is not %s of the host", im->files[i].to,
					 im->files[i].from);
	}
	return 0;
}

int image_fill_host(struct image *im, const struct image_spec *spec, struct err *e)
{
	struct elfdeps *deps;
	size_t n;
	int rc = python_find(spec->python, &im->python, e);

	if (rc < 0)
		return rc;
	deps = elfdeps_new();
	if (!deps)
		return err_set(e, ENOMEM, "image", "out of memory");
	im->top = HOST_TOP;
	snprintf(im->root, sizeof im->root, "root/r");
	rc = layout(im, e);
	if (rc == 0)
		rc = add_commands(im, deps, e);
	if (rc == 0)
		rc = add_python(im, &im->python, deps, e);
	if (rc == 0)
		rc = add_libraries(im, deps, e);
	if (rc == 0)
		rc = add_data(im, e);
	elfdeps_free(deps);
	n = (size_t)snprintf(im->overlay, sizeof im->overlay, "metacopy=on,redirect_dir=on,lowerdir=" IMAGE_LAYER);
	for (size_t i = 0; i < im->base_count; i++)
		n += (size_t)snprintf(im->overlay + n, sizeof im->overlay - n, ":base%zu", i);
	return rc;
}
