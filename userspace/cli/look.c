/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/look.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/launch.h"
#include "core/cleanup.h"
#include "oci.h"

#define IMAGE "--image"
#define PYTHON "--python"
#define STATE "--state-dir"

static bool is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int look_image(const char *image, struct err *e)
{
	const char *colon = strrchr(image, ':');
	char layout[PATH_MAX];
	struct stat st;

	if (is_directory(image))
		return 0;
	if (colon && colon[1] && (size_t)snprintf(layout, sizeof layout, "%.*s", (int)(colon - image), image) < sizeof layout &&
	    is_directory(layout)) {
		if (oci_is_layout(layout))
			return 0;
		return err_set(e, EINVAL, IMAGE,
			       "%s is no OCI image layout (it has no file oci-layout), so there is no \"%s\" in it", layout,
			       colon + 1);
	}
	if (stat(image, &st) < 0 && errno == ENOENT)
		return err_set(
		    e, ENOENT, IMAGE,
		    "%s: No such file or directory: name a root directory or an OCI image layout (the names that `weir "
		    "image ls` shows are for agents)",
		    image);
	if (stat(image, &st) < 0)
		return err_errno(e, errno, IMAGE, "%s", image);
	return err_set(e, ENOTDIR, IMAGE, "%s is no directory: name a root directory or an OCI image layout", image);
}

/* Neither root's answer to access() nor a directory's x bit says that something can be run. */
static int check_program(const char *path, struct err *e)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return err_errno(e, errno, PYTHON, "%s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EACCES, PYTHON, "%s is no regular file", path);
	return access(path, X_OK) < 0 ? err_errno(e, errno, PYTHON, "%s", path) : 0;
}

static int find_on_path(const char *name, struct err *e)
{
	const char *path = getenv("PATH");

	for (const char *p = path && *path ? path : "/bin:/usr/bin"; *p; p += *p == ':') {
		int n = (int)strcspn(p, ":");
		char file[PATH_MAX];

		if ((size_t)snprintf(file, sizeof file, "%.*s/%s", n, p, name) < sizeof file && check_program(file, NULL) == 0)
			return 0;
		p += n;
	}
	return err_set(e, ENOENT, PYTHON, "no program \"%s\" on PATH: install it, or name another", name);
}

static int find_in_image(const char *python, const char *image, struct err *e)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
	_cleanup_fd_ int top = open(image, O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -1;
	struct stat st;

	if (top >= 0)
		fd = (int)syscall(SYS_openat2, top, python, &how, sizeof how);
	if (fd < 0)
		return errno == ENOENT ? err_set(e, ENOENT, PYTHON, "there is no %s in the image %s", python, image)
				       : err_errno(e, errno, PYTHON, "%s of the image %s", python, image);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !(st.st_mode & 0111))
		return err_set(e, EACCES, PYTHON, "%s of the image %s is no program", python, image);
	return 0;
}

int look_python(const char *python, const char *image, struct err *e)
{
	if (!image)
		return strchr(python, '/') ? check_program(python, e) : find_on_path(python, e);
	/* What is in a layout is known when it is unpacked. */
	return python[0] == '/' && is_directory(image) && !oci_is_layout(image) ? find_in_image(python, image, e) : 0;
}

int look_state_dir(const char *path, struct err *e)
{
	char part[PATH_MAX];
	struct stat st;
	char *slash;

	if (stat(path, &st) == 0)
		return launch_state_dir_fit(&st, path, e);
	if ((size_t)snprintf(part, sizeof part, "%s", path) >= sizeof part)
		return err_set(e, ENAMETOOLONG, STATE, "the path is too long");
	/* It will be made, with whatever is missing above it; what is above that must let it. */
	while ((errno == ENOENT) && (slash = strrchr(part, '/')) && slash != part) {
		*slash = 0;
		if (stat(part, &st) == 0 && !S_ISDIR(st.st_mode))
			errno = ENOTDIR;
		else if (stat(part, &st) == 0)
			return 0;
	}
	/* Others than root may be kept from looking: that says nothing against it. */
	return errno == ENOENT || (errno == EACCES && geteuid() != 0) ? 0 : err_errno(e, errno, STATE, "%s", path);
}
