/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The image that is a root directory of its own. Links in it lead where they would lead a program inside: every path of the
 * image is resolved with RESOLVE_IN_ROOT, and what our layer adds is added where that ends.
 */
#include "image_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "blobs.h"
#include "core/cleanup.h"
#include "core/limits.h"

#define BASE "base0"
#define CACHES "/usr/share/weir/cache/matplotlib"

/* A sandbox has file systems of its own there, so nothing of the image is seen. Always directories of our layer: a link of the
 * image's can't lead a mount elsewhere. */
static const char *const mount_points[] = {"/etc", "/dev", "/proc", "/tmp", "/box", "/sys"};

static int open_inside(const struct image *im, const char *below, const char *path, int flags)
{
	struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC), .resolve = RESOLVE_IN_ROOT};
	_cleanup_fd_ int top = openat(im->stage_fd, below, O_PATH | O_DIRECTORY | O_CLOEXEC);

	return top < 0 ? -1 : (int)syscall(SYS_openat2, top, path, &how, sizeof how);
}

static bool has(const struct image *im, const char *path)
{
	_cleanup_fd_ int fd = open_inside(im, BASE, path, O_PATH);

	return fd >= 0;
}

/* The path of an open file as a program inside has it, without links. "" for the root itself. */
static int path_of(const struct image *im, int fd, char *ret, size_t size, struct err *e)
{
	char self[64], real[PATH_MAX];
	size_t n = strlen(im->stage) + strlen("/" BASE);
	ssize_t len;

	snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	len = readlink(self, real, sizeof real - 1);
	if (len < 0)
		return err_errno(e, errno, "image", "read %s", self);
	real[len] = 0;
	if ((size_t)len < n || strncmp(real + strlen(im->stage), "/" BASE, strlen("/" BASE)) != 0 ||
	    (size_t)snprintf(ret, size, "%s", real + n) >= size)
		return err_set(e, EINVAL, "image", "a path of the image is too long, or not in it");
	return 0;
}

/* The same for a path that need not be there: the part that is, resolved, and the rest. */
static int resolve(const struct image *im, const char *path, char *ret, size_t size, struct err *e)
{
	char part[PATH_MAX], real[PATH_MAX];
	size_t n = strlen(path);

	for (;;) {
		_cleanup_fd_ int fd = -1;

		snprintf(part, sizeof part, "%.*s", (int)n, path);
		fd = open_inside(im, BASE, n ? part : "/", O_PATH);
		if (fd >= 0) {
			int rc = path_of(im, fd, real, sizeof real, e);

			if (rc < 0)
				return rc;
			break;
		}
		if (!n || errno != ENOENT)
			return err_errno(e, errno, "image", "look up %s in the image", path);
		while (n && path[n - 1] != '/')
			n--;
		while (n && path[n - 1] == '/')
			n--;
	}
	if ((size_t)snprintf(ret, size, "%s%s", real, path + n) >= size)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", path);
	return 0;
}

/* Resolves a path that a sandbox needs; one that it would not see is an error. */
static int resolve_seen(const struct image *im, const char *path, char *ret, size_t size, struct err *e)
{
	int rc = resolve(im, path, ret, size, e);

	for (size_t i = 0; rc == 0 && i < sizeof mount_points / sizeof mount_points[0]; i++) {
		size_t n = strlen(mount_points[i]);

		if (!strncmp(ret, mount_points[i], n) && (ret[n] == '/' || !ret[n]))
			rc = err_set(e, EINVAL, "image", "%s lies in %s, where a sandbox has a file system of its own", path,
				     mount_points[i]);
	}
	return rc;
}

/* ---- the layer below ---- */

static int bind_root(struct image *im, const char *root, struct err *e)
{
	struct image_base *b = &im->bases[0];
	struct stat st, host;
	int rc;

	if (stat(root, &st) < 0)
		return err_errno(e, errno, "image", "%s", root);
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ENOTDIR, "image", "%s is neither a root directory nor an OCI image layout", root);
	if (stat("/", &host) == 0 && host.st_dev == st.st_dev && host.st_ino == st.st_ino)
		return err_set(e, EINVAL, "image", "%s is the host's own root: snippets would see all of the host", root);
	rc = image_watch(im, root, NULL, &st, e);
	if (rc < 0)
		return rc;
	if (fchdir(im->stage_fd) < 0 || mkdir(BASE, 0700) < 0 || mount(root, BASE, NULL, MS_BIND, NULL) < 0)
		return err_errno(e, errno, "image", "bind %s", root);
	b->bound = true;
	im->base_count = 1;
	if (mount(NULL, BASE, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
		return err_errno(e, errno, "image", "bind %s read-only", root);
	(void)!chdir("/");
	return 0;
}

/* ---- our layer ---- */

static int layout(struct image *im, struct err *e)
{
	int rc = 0;

	if (mkdirat(im->stage_fd, "root", 0700) < 0 || mkdirat(im->stage_fd, IMAGE_LAYER, 0755) < 0 ||
	    mkdirat(im->stage_fd, "etc", 0755) < 0)
		return err_errno(e, errno, "image", "make the layer");
	for (size_t i = 0; rc == 0 && i < sizeof mount_points / sizeof mount_points[0]; i++)
		rc = layer_dirs(im, mount_points[i], true, e);
	if (rc == 0)
		rc = layer_common(im, e);
	return rc;
}

static int add_cache(struct image *im, int dir, const char *name, const char *to, struct err *e)
{
	_cleanup_fd_ int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	_cleanup_free_ char *data = NULL;
	char path[PATH_MAX];
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, errno, "image", "open the cache %s", name);
	if (!S_ISREG(st.st_mode) || st.st_size > LIMIT_IMAGE_CACHE_BYTES)
		return 0;
	data = malloc((size_t)st.st_size + 1);
	if (!data)
		return err_set(e, ENOMEM, "image", "out of memory");
	if (read(fd, data, (size_t)st.st_size) != (ssize_t)st.st_size)
		return err_errno(e, EIO, "image", "read the cache %s", name);
	if (image_format(path, sizeof path, "%s/%s", to, name) < 0)
		return 0;
	return layer_file(im, path, data, (size_t)st.st_size, e);
}

/* Copies, so that what a service has started with stays. */
static int add_caches(struct image *im, const char *caches, struct err *e)
{
	char from[PATH_MAX], to[256];
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	int rc;

	if (!caches || image_format(from, sizeof from, "%s/matplotlib", caches) < 0 || !(d = opendir(from)))
		return 0;
	rc = resolve(im, CACHES, to, sizeof to, e);
	while (rc == 0 && (de = readdir(d)))
		if (!strncmp(de->d_name, "fontlist-", 9))
			rc = add_cache(im, dirfd(d), de->d_name, to, e);
	return rc;
}

/* Where SSL_CERT_FILE says: the image's own, or a link to where other distributions have it. */
static int add_certificates(struct image *im, struct err *e)
{
	static const char *const bundles[] = {"/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem",
					      "/etc/ssl/ca-bundle.pem"};
	char to[256];
	int rc;

	if (has(im, "/etc/ssl/certs/ca-certificates.crt"))
		return 0;
	for (size_t i = 0; i < sizeof bundles / sizeof bundles[0]; i++)
		if (has(im, bundles[i])) {
			rc = resolve(im, "/usr/share/weir/ca-certificates.crt", to, sizeof to, e);
			return rc < 0 ? rc : layer_link(im, to, bundles[i], e);
		}
	image_warn(im, "not in the image: CA certificates (package ca-certificates)");
	return 0;
}

static int add_harness(struct image *im, struct err *e)
{
	const struct python *py = &im->python;
	char unused[PATH_MAX];
	int rc = resolve_seen(im, py->site, im->site, sizeof im->site, e);

	if (rc == 0)
		rc = resolve_seen(im, py->stdlib, unused, sizeof unused, e);
	if (rc == 0)
		rc = resolve_seen(im, py->executable, unused, sizeof unused, e);
	if (rc == 0)
		rc = layer_dirs(im, im->site, true, e);
	return rc < 0 ? rc : layer_harness(im, im->site, e);
}

/* ---- what to look at later, and what to say now ---- */

static int watch(struct image *im, const char *root, const char *path, struct err *e)
{
	char real[256], host[PATH_MAX];
	struct stat st;

	/* A site directory may be in our layer only, and a link may lead nowhere. */
	if (resolve(im, path, real, sizeof real, NULL) < 0 || image_format(host, sizeof host, "%s%s", root, real) < 0 ||
	    stat(host, &st) < 0)
		return 0;
	return image_watch(im, host, NULL, &st, e);
}

static int watch_all(struct image *im, const char *root, struct err *e)
{
	const char *const paths[] = {
	    im->python.executable,	     im->python.stdlib, im->python.platlib, im->python.site, "/etc",
	    "/usr/lib/python3/dist-packages"};
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < sizeof paths / sizeof paths[0]; i++)
		rc = watch(im, root, paths[i], e);
	return rc;
}

static void say_what_is_odd(struct image *im, const char *root)
{
	const struct python *py = &im->python;
	unsigned without = py->modules - py->compiled;

	if (!has(im, "/bin/sh"))
		image_warn(im, "not in the image: /bin/sh");
	if (!has(im, "/usr/share/zoneinfo/Etc/UTC"))
		image_warn(im, "not in the image: time zones (package tzdata)");
	/* A few always lack it: templates, examples with errors. */
	if (py->compiled <= py->modules && without > 50 && without > py->modules / 5)
		image_warn(im,
			   "%u of %u modules of the image have no bytecode, so every run compiles what it imports; mend it "
			   "with: chroot %s %s -m compileall -q %s",
			   without, py->modules, root, py->executable, py->slow);
}

int image_fill_root(struct image *im, const struct image_spec *spec, struct err *e)
{
	char base[sizeof im->stage + sizeof BASE + 1];
	struct stat st;
	int rc;

	im->top = IMAGE_LAYER;
	snprintf(im->root, sizeof im->root, "root");
	snprintf(base, sizeof base, "%s/" BASE, im->stage);
	rc = bind_root(im, spec->root, e);
	if (rc == 0 && spec->known)
		im->python = *spec->known;
	else if (rc == 0)
		rc = python_find_inside(base, spec->python, &im->python, e);
	if (rc == 0 && image_format(im->interpreter, sizeof im->interpreter, "%s", im->python.executable) < 0)
		rc = err_set(e, ENAMETOOLONG, "image", "path too long: %s", im->python.executable);
	if (rc == 0)
		rc = layout(im, e);
	if (rc == 0)
		rc = add_harness(im, e);
	if (rc == 0)
		rc = add_caches(im, spec->caches, e);
	if (rc == 0)
		rc = add_certificates(im, e);
	if (rc == 0)
		rc = watch_all(im, spec->root, e);
	if (rc < 0)
		return rc;
	say_what_is_odd(im, spec->root);
	/* A link there would lead the kernel out of the image. */
	im->etc_below = fstatat(im->stage_fd, BASE "/etc", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
	/* The image's files are not ours: none of them may redirect to another. */
	snprintf(im->overlay, sizeof im->overlay, "metacopy=off,redirect_dir=nofollow,lowerdir=" IMAGE_LAYER ":" BASE);
	return 0;
}

int image_check_root(const struct image *im, struct err *e)
{
	_cleanup_fd_ int interpreter = open_inside(im, "root", im->interpreter, O_PATH);
	struct blob harness = blob_harness(), toolcall = blob_toolcall();
	char path[PATH_MAX];
	struct stat st;
	int rc;

	if (interpreter < 0 || fstat(interpreter, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(e, ENOENT, "image", "%s is not in the image once our layer is laid over it", im->interpreter);
	if (image_format(path, sizeof path, "root%s/_weir_harness.py", im->site) < 0)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", im->site);
	rc = image_compare(im, path, harness.data, harness.len);
	if (rc == 0 && image_format(path, sizeof path, "root%s", im->toolcall) < 0)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", im->toolcall);
	if (rc == 0)
		rc = image_compare(im, path, toolcall.data, toolcall.len);
	return rc < 0 ? err_errno(e, -rc, "image", "%s is not what was put there", path + strlen("root")) : 0;
}
