/* SPDX-License-Identifier: Apache-2.0 */
#include "image_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "core/cleanup.h"

int image_format(char *buf, size_t size, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(buf, size, format, ap);
	va_end(ap);
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

void image_warn(struct image *im, const char *format, ...)
{
	va_list ap;

	if (im->warning_count == IMAGE_WARNINGS_MAX)
		return;
	va_start(ap, format);
	vsnprintf(im->warnings[im->warning_count++], sizeof im->warnings[0], format, ap);
	va_end(ap);
}

int image_watch(struct image *im, const char *from, const char *to, const struct stat *st, struct err *e)
{
	struct image_source *s = &im->files[im->file_count];

	if (im->file_count == IMAGE_FILES_MAX)
		return err_set(e, E2BIG, "image", "more than %d files", IMAGE_FILES_MAX);
	s->from = strdup(from);
	s->to = to ? strdup(to) : NULL;
	if (!s->from || (to && !s->to)) /* freed with the image */
		return err_set(e, ENOMEM, "image", "out of memory");
	s->dev = st->st_dev;
	s->ino = st->st_ino;
	s->size = st->st_size;
	s->mtime = st->st_mtim;
	im->file_count++;
	return 0;
}

int image_compare(const struct image *im, const char *path, const char *data, size_t len)
{
	_cleanup_fd_ int fd = openat(im->stage_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	_cleanup_free_ char *got = malloc(len + 1);
	size_t used = 0;
	ssize_t n = 1;

	if (fd < 0)
		return -errno;
	if (!got)
		return -ENOMEM;
	while (used <= len && (n = read(fd, got + used, len + 1 - used)) > 0)
		used += (size_t)n;
	if (n < 0)
		return -errno;
	return used == len && !memcmp(got, data, len) ? 0 : -ESTALE;
}

static int trial(const struct image *im, int (*check)(const struct image *, struct err *), struct err *e)
{
	int rc;

	if (fchdir(im->stage_fd) < 0)
		return err_errno(e, errno, "image", "enter the stage");
	if (mount("weir", "root", "overlay", MS_RDONLY | MS_NOSUID | MS_NODEV, im->overlay) < 0)
		return err_errno(e, errno, "image", "mount an overlay for the image (kernel module `overlay`)");
	rc = check(im, e);
	if (umount2("root", MNT_DETACH) < 0 && rc == 0)
		rc = err_errno(e, errno, "image", "unmount the trial");
	(void)!chdir("/");
	return rc;
}

int image_build(struct image **ret, const char *stage, const struct image_spec *spec, struct err *e)
{
	struct image *im = calloc(1, sizeof *im);
	int (*fill)(struct image *, const struct image_spec *, struct err *) = spec->root ? image_fill_root : image_fill_host;
	int (*check)(const struct image *, struct err *) = spec->root ? image_check_root : image_check_host;
	int rc;

	if (!im)
		return err_set(e, ENOMEM, "image", "out of memory");
	im->stage_fd = -1;
	im->cpus = spec->cpus ? spec->cpus : 1;
	if (image_format(im->stage, sizeof im->stage, "%s", stage) < 0) {
		free(im);
		return err_set(e, ENAMETOOLONG, "image", "path too long: %s", stage);
	}
	if (mkdir(stage, 0700) < 0 && errno != EEXIST) {
		rc = err_errno(e, errno, "image", "make %s", stage);
	} else if (mount("weir", stage, "tmpfs", MS_NOSUID | MS_NODEV, "mode=700,size=16m,nr_inodes=4096") < 0) {
		rc = err_errno(e, errno, "image", "mount a tmpfs on %s", stage);
	} else {
		im->mounted = true;
		im->stage_fd = open(stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = im->stage_fd < 0 ? err_errno(e, errno, "image", "open %s", stage) : fill(im, spec, e);
		if (rc == 0)
			rc = trial(im, check, e);
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
			if (im->bases[i].bound && image_format(path, sizeof path, "%s/base%zu", im->stage, i) == 0)
				umount2(path, MNT_DETACH);
		}
		close(im->stage_fd);
	}
	if (im->mounted && umount2(im->stage, MNT_DETACH) == 0)
		rmdir(im->stage);
	for (size_t i = 0; i < IMAGE_FILES_MAX; i++) {
		free(im->files[i].from);
		free(im->files[i].to);
	}
	free(im);
	return NULL;
}

bool image_stale(const struct image *im)
{
	for (size_t i = 0; i < im->file_count; i++) {
		const struct image_source *s = &im->files[i];
		struct stat st;

		if (stat(s->from, &st) < 0 || st.st_dev != s->dev || st.st_ino != s->ino || st.st_size != s->size ||
		    st.st_mtim.tv_sec != s->mtime.tv_sec || st.st_mtim.tv_nsec != s->mtime.tv_nsec)
			return true;
	}
	return false;
}

void image_plan(const struct image *im, struct init_plan *plan)
{
	snprintf(plan->overlay, sizeof plan->overlay, "%s", im->overlay);
	snprintf(plan->root, sizeof plan->root, "%s", im->root);
	snprintf(plan->interpreter, sizeof plan->interpreter, "%s", im->interpreter);
	snprintf(plan->program, sizeof plan->program, "%s", im->toolcall);
	plan->etc_below = im->etc_below;
}

const char *image_toolcall(const struct image *im)
{
	return im->toolcall;
}

const struct python *image_python(const struct image *im)
{
	return &im->python;
}

const char *image_warning(const struct image *im, size_t i)
{
	return i < im->warning_count ? im->warnings[i] : NULL;
}
