/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a sandbox's name server is one of this host's that has no address of its own outside (127.0.0.53), libslirp puts the
 * host's in its place, and reads /etc/resolv.conf for that. Carriers see a copy: a mount of the file itself would stay what it
 * was when the host puts another in its place, which is what every program does that writes it.
 */
#include "gateway/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"
#include "core/samefile.h"

#define HOST_FILE "/etc/resolv.conf"
#define FILE_NAME "resolv.conf"
#define FILE_BYTES 65536 /* more is none that anything reads: see kernel/netenv.c */

static int make_root(struct names *n)
{
	_cleanup_fd_ int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);

	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "mode", "755", 0) < 0 ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "size", "1m", 0) < 0 || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	n->root = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (n->root < 0 || mkdirat(n->root, "etc", 0755) < 0)
		return -errno;
	n->etc = openat(n->root, "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return n->etc < 0 ? -errno : 0;
}

static int copy(int from, int to)
{
	char buf[4096];
	size_t sum = 0;
	ssize_t n;

	while ((n = read(from, buf, sizeof buf)) > 0) {
		sum += (size_t)n;
		if (sum > FILE_BYTES)
			return -E2BIG;
		if (write(to, buf, (size_t)n) != n)
			return errno ? -errno : -EIO;
	}
	return n < 0 ? -errno : 0;
}

/* Without a file there is no name server: then there is none to put in a sandbox's place either. */
static int open_host_file(struct stat *st)
{
	int fd = open(HOST_FILE, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	memset(st, 0, sizeof *st);
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
	if (fstat(fd, st) == 0 && S_ISREG(st->st_mode))
		return fd;
	close(fd);
	errno = EINVAL;
	return -1;
}

/* Whole or not at all: a carrier may be reading it. */
static int replace(struct names *n, int from)
{
	_cleanup_fd_ int to = openat(n->etc, "new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	int rc = to < 0 ? -errno : copy(from, to);

	if (rc == 0 && (fchmod(to, 0644) < 0 || renameat(n->etc, "new", n->etc, FILE_NAME) < 0))
		rc = -errno;
	return rc;
}

static int refresh(struct names *n)
{
	_cleanup_fd_ int from = -1;
	struct stat now;
	int rc;

	/* Whoever reads it all the time to find it unchanged should not open it either: a look is enough. */
	if (n->copied && stat(HOST_FILE, &now) == 0 && same_file(&now, &n->seen))
		return 0;
	from = open_host_file(&now);
	rc = from < 0 ? -errno : replace(n, from);
	if (rc < 0)
		return rc;
	n->seen = now;
	n->copied = true;
	return 0;
}

int names_open(struct names *n, struct err *e)
{
	int rc;

	*n = (struct names){.root = -1, .etc = -1};
	rc = make_root(n);
	if (rc == 0)
		rc = refresh(n);
	return rc < 0 ? err_errno(e, -rc, GATEWAY, "make the root directory of carriers, with a copy of " HOST_FILE) : 0;
}

void names_refresh(struct names *n)
{
	int rc = refresh(n);

	if (rc < 0 && n->copied) /* once: the old one stays until it can be copied again */
		log_warn(HOST_FILE " can't be copied for the carriers of tools' packets: %s", strerror(-rc));
	if (rc < 0)
		n->copied = false;
}
