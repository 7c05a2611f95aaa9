/* SPDX-License-Identifier: Apache-2.0 */
/* Making things in our layer of an image. */
#include "image_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "blobs.h"
#include "core/cleanup.h"

#define TOOLCALL "_weir_toolcall.py"

int layer_mark(struct image *im, const char *rel, const char *name, const char *value, struct err *e)
{
	char path[PATH_MAX], attr[64];

	if (image_format(path, sizeof path, "%s/%s", im->stage, rel) < 0 ||
	    image_format(attr, sizeof attr, "trusted.overlay.%s", name) < 0)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", rel);
	if (lsetxattr(path, attr, value, strlen(value), 0) < 0)
		return err_errno(e, errno, "image", "mark %s as %s for overlayfs", rel, name);
	return 0;
}

/* `to` as a path from the stage. */
static int place(const struct image *im, const char *to, char ret[PATH_MAX], struct err *e)
{
	if (image_format(ret, PATH_MAX, "%s%s", im->top, to) < 0)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", to);
	return 0;
}

int layer_dirs(struct image *im, const char *to, bool leaf, struct err *e)
{
	char path[PATH_MAX];
	int rc = place(im, to, path, e);

	if (rc < 0)
		return rc;
	for (char *p = path + strlen(im->top) + 1; *p; p++)
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

int layer_link(struct image *im, const char *to, const char *target, struct err *e)
{
	char path[PATH_MAX];
	int rc = layer_dirs(im, to, false, e);

	if (rc == 0)
		rc = place(im, to, path, e);
	if (rc == 0 && symlinkat(target, im->stage_fd, path) < 0 && errno != EEXIST)
		rc = err_errno(e, errno, "image", "link %s", to);
	return rc;
}

int layer_file(struct image *im, const char *to, const char *data, size_t len, struct err *e)
{
	char path[PATH_MAX];
	_cleanup_fd_ int fd = -1;
	int rc = layer_dirs(im, to, false, e);

	if (rc == 0)
		rc = place(im, to, path, e);
	if (rc < 0)
		return rc;
	fd = openat(im->stage_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, data, len) != (ssize_t)len)
		return err_errno(e, errno, "image", "write %s", to);
	return 0;
}

int layer_own_dir(struct image *im, const char *to, struct err *e)
{
	char rel[PATH_MAX];
	int rc = layer_dirs(im, to, true, e);

	if (rc == 0)
		rc = place(im, to, rel, e);
	return rc < 0 ? rc : layer_mark(im, rel, "opaque", "y", e);
}

int layer_harness(struct image *im, const char *to, struct err *e)
{
	/* Imported, and forgotten: a snippet finds no module of ours. */
	static const char pth[] = "import sys, _weir_harness; sys.modules.pop('_weir_harness')\n";
	const struct {
		const char *name;
		struct blob text;
	} files[] = {{"_weir_harness.py", blob_harness()},
		     {"_weir_place.py", blob_place()},
		     {"_weir_session.py", blob_session()},
		     {TOOLCALL, blob_toolcall()},
		     {"_weir_harness.pth", {pth, sizeof pth - 1}}};
	char file[PATH_MAX];
	int rc = 0;

	if (image_format(im->toolcall, sizeof im->toolcall, "%s/" TOOLCALL, to) < 0)
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", to);
	for (size_t i = 0; rc == 0 && i < sizeof files / sizeof files[0]; i++) {
		if (image_format(file, sizeof file, "%s/%s", to, files[i].name) < 0)
			return err_set(e, ENAMETOOLONG, "image", "path too long: %s", to);
		rc = layer_file(im, file, files[i].text.data, files[i].text.len, e);
	}
	return rc;
}

int layer_common(struct image *im, struct err *e)
{
	/* A run has so many CPUs' worth of time: programs that start a thread a CPU should start no more (glibc looks here
	 * first). */
	char cpus[32];
	int n = im->cpus > 1 ? snprintf(cpus, sizeof cpus, "0-%u\n", im->cpus - 1) : snprintf(cpus, sizeof cpus, "0\n");
	int rc = layer_own_dir(im, "/sys", e);

	if (rc == 0)
		rc = layer_file(im, "/sys/devices/system/cpu/online", cpus, (size_t)n, e);
	if (rc == 0)
		rc = layer_file(im, "/sys/devices/system/cpu/possible", cpus, (size_t)n, e);
	return rc;
}
