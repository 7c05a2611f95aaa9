/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/dirvfs.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* "/@weir/7/audit.db": no file of that name is ever looked for. */
#define PREFIX "/@weir/"

void dirvfs_path(char ret[DIRVFS_PATH_MAX], int dir, const char *name)
{
	snprintf(ret, DIRVFS_PATH_MAX, PREFIX "%d/%s", dir, name);
}

/* The name within *ret_dir, "." for the directory itself; NULL when the path is not one of ours. */
static const char *split(const char *path, int *ret_dir)
{
	char *end;
	long dir;

	if (strncmp(path, PREFIX, strlen(PREFIX)) != 0)
		return NULL;
	dir = strtol(path + strlen(PREFIX), &end, 10);
	*ret_dir = (int)dir;
	return *end == '/' && end[1] ? end + 1 : ".";
}

static int open_there(const char *path, int flags, int mode)
{
	int dir;
	const char *name = split(path, &dir);

	if (!name)
		return open(path, flags | O_CLOEXEC, mode);
	return openat(dir, name, flags | O_CLOEXEC | O_NOFOLLOW, mode & 0600);
}

static int access_there(const char *path, int mode)
{
	int dir;
	const char *name = split(path, &dir);

	return name ? faccessat(dir, name, mode, 0) : access(path, mode);
}

static int stat_there(const char *path, struct stat *ret)
{
	int dir;
	const char *name = split(path, &dir);

	return name ? fstatat(dir, name, ret, AT_SYMLINK_NOFOLLOW) : stat(path, ret);
}

static int unlink_there(const char *path)
{
	int dir;
	const char *name = split(path, &dir);

	return name ? unlinkat(dir, name, 0) : unlink(path);
}

static int full_name(sqlite3_vfs *vfs, const char *name, int size, char *ret)
{
	(void)vfs;
	if (snprintf(ret, (size_t)size, "%s", name) >= size)
		return SQLITE_CANTOPEN;
	return SQLITE_OK;
}

static int random_bytes(sqlite3_vfs *vfs, int size, char *ret)
{
	ssize_t n;

	(void)vfs;
	do
		n = getrandom(ret, (size_t)size, 0);
	while (n < 0 && errno == EINTR);
	return n < 0 ? 0 : (int)n;
}

int dirvfs_register(struct err *e)
{
	static const struct {
		const char *name;
		sqlite3_syscall_ptr call;
	} calls[] = {{"open", (sqlite3_syscall_ptr)open_there},
		     {"access", (sqlite3_syscall_ptr)access_there},
		     {"stat", (sqlite3_syscall_ptr)stat_there},
		     {"unlink", (sqlite3_syscall_ptr)unlink_there}};
	static sqlite3_vfs vfs;
	sqlite3_vfs *own;

	if (vfs.zName)
		return 0;
	own = sqlite3_initialize() == SQLITE_OK ? sqlite3_vfs_find("unix") : NULL;
	if (!own || own->iVersion < 3)
		return err_set(e, ENOSYS, "audit", "this SQLite (%s) has no file layer that Weir can use",
			       sqlite3_libversion());
	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
		if (own->xSetSystemCall(own, calls[i].name, calls[i].call) != SQLITE_OK)
			return err_set(e, ENOSYS, "audit", "this SQLite (%s) opens files in another way than Weir knows",
				       sqlite3_libversion());
	/* Asked of whichever is the default, once, for the whole process. */
	own->xRandomness = random_bytes;
	vfs = *own;
	vfs.pNext = NULL;
	vfs.zName = DIRVFS_NAME;
	vfs.xFullPathname = full_name;
	if (sqlite3_vfs_register(&vfs, 0) != SQLITE_OK) {
		vfs.zName = NULL;
		return err_set(e, ENOMEM, "audit", "no memory for the record");
	}
	return 0;
}
