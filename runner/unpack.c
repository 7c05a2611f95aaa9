/* SPDX-License-Identifier: Apache-2.0 */
#include "unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
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

#include "core/cleanup.h"

#define DEPTH_MAX 128	     /* components of a name */
#define REMOVE_DEPTH_MAX 256 /* of directories in each other; links can make more than a name has */
#define HEADER_BYTES 4096    /* what an entry may cost beside its content: names, padding, pax records */

/* Inode numbers of what the present layer has put down: whiteouts are for what was there before. */
struct inode_set {
	uint64_t *slots;   /* 0: free */
	size_t size, used; /* size: 0 or a power of two */
};

/* A directory's time is set when the layer is through: until then every file in it changes it. */
struct dir_time {
	char *path;
	struct timespec mtime;
};

struct unpack {
	int root;
	struct unpack_limits limits;
	struct unpack_tally tally;
	struct inode_set own;
	struct dir_time *times;
	size_t time_count, time_room;
	char parent[PATH_MAX];	  /* of the last entry, and */
	int parent_fd;		  /* .. it opened; -1: look again */
	const char *what, *whole; /* is read, for messages: this part, and all of it */
};

/* ---- inodes ---- */

static size_t slot_of(const struct inode_set *s, uint64_t ino)
{
	size_t i = (size_t)(ino * 0x9e3779b97f4a7c15ull >> 20) & (s->size - 1);

	while (s->slots[i] && s->slots[i] != ino)
		i = (i + 1) & (s->size - 1);
	return i;
}

static bool inode_has(const struct inode_set *s, uint64_t ino)
{
	return s->size && s->slots[slot_of(s, ino)];
}

static int inode_add(struct inode_set *s, uint64_t ino)
{
	if (s->used * 2 >= s->size) {
		struct inode_set bigger = {.size = s->size ? s->size * 2 : 1024, .used = s->used};

		bigger.slots = calloc(bigger.size, sizeof *bigger.slots);
		if (!bigger.slots)
			return -ENOMEM;
		for (size_t i = 0; i < s->size; i++)
			if (s->slots[i])
				bigger.slots[slot_of(&bigger, s->slots[i])] = s->slots[i];
		free(s->slots);
		*s = bigger;
	}
	if (!inode_has(s, ino))
		s->used++;
	s->slots[slot_of(s, ino)] = ino;
	return 0;
}

static void inode_clear(struct inode_set *s)
{
	free(s->slots);
	*s = (struct inode_set){0};
}

/* ---- names ---- */

/* For messages: printable, and not longer than they need. */
static const char *shown(const char *name)
{
	static char text[80];
	size_t n = strnlen(name, sizeof text - 1);

	for (size_t i = 0; i < n; i++)
		text[i] = (char)(name[i] < ' ' || name[i] > '~' ? '?' : name[i]);
	text[n] = 0;
	return text;
}

/* Writes `name` without leading, doubled and trailing slashes and without "."; "" is the root. 0, or what is wrong with it. */
static int normalise(const char *name, char ret[PATH_MAX], struct err *e)
{
	size_t used = 0, depth = 0;

	for (const char *p = name; *p;) {
		size_t n = strcspn(p, "/");

		if (n == 2 && !memcmp(p, "..", 2))
			return err_set(e, EINVAL, "image", "an entry's name leads up: %s", shown(name));
		if (n && !(n == 1 && *p == '.')) {
			if (n > NAME_MAX || used + n + 2 > PATH_MAX || ++depth > DEPTH_MAX)
				return err_set(e, ENAMETOOLONG, "image", "an entry's name is too long or too deep: %s",
					       shown(name));
			if (used)
				ret[used++] = '/';
			memcpy(ret + used, p, n);
			used += n;
		}
		p += n + (p[n] == '/');
	}
	ret[used] = 0;
	return 0;
}

/* Opens a path as a program would whose root the directory is. */
static int open_inside(const struct unpack *u, const char *path, int flags)
{
	struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};

	return (int)syscall(SYS_openat2, u->root, *path ? path : ".", &how, sizeof how);
}

/* Makes the directories of `path` that are missing. */
static int make_parents(struct unpack *u, const char *path)
{
	char part[PATH_MAX];
	size_t n = 0, len = strlen(path);
	_cleanup_fd_ int above = open_inside(u, "", O_PATH | O_DIRECTORY);
	struct stat st;

	while (above >= 0 && n < len) {
		size_t start = n ? n + 1 : 0;
		int fd;

		n = start + strcspn(path + start, "/");
		snprintf(part, sizeof part, "%.*s", (int)n, path);
		fd = open_inside(u, part, O_PATH | O_DIRECTORY);
		if (fd < 0 && errno == ENOENT) {
			/* EEXIST: a link that leads nowhere stands there. */
			if (mkdirat(above, part + start, 0755) < 0)
				return -errno;
			fd = open_inside(u, part, O_PATH | O_DIRECTORY);
			if (fd >= 0 && (fstat(fd, &st) < 0 || inode_add(&u->own, st.st_ino) < 0)) {
				close(fd);
				return -ENOMEM;
			}
		}
		if (fd < 0)
			return -errno;
		close(above);
		above = fd;
	}
	return above < 0 ? -errno : 0;
}

static void forget_parent(struct unpack *u)
{
	if (u->parent_fd >= 0)
		close(u->parent_fd);
	u->parent_fd = -1;
}

/* The directory that holds `path` (not ""), and the name in it. The descriptor is the caller's. */
static int open_parent(struct unpack *u, const char *path, const char **ret_name, struct err *e)
{
	const char *slash = strrchr(path, '/');
	char parent[PATH_MAX];
	int rc;

	snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - path) : 0, path);
	*ret_name = slash ? slash + 1 : path;
	/* Most entries follow one of the same directory. Where a link has changed what its path means, it is one inside all the
	 * same. */
	if (u->parent_fd < 0 || strcmp(parent, u->parent) != 0) {
		forget_parent(u);
		rc = make_parents(u, parent);
		if (rc == 0 && (u->parent_fd = open_inside(u, parent, O_PATH | O_DIRECTORY)) < 0)
			rc = -errno;
		if (rc < 0)
			return err_errno(e, -rc, "image", "no directory for %s", shown(path));
		snprintf(u->parent, sizeof u->parent, "%s", parent);
	}
	rc = fcntl(u->parent_fd, F_DUPFD_CLOEXEC, 3);
	return rc < 0 ? err_errno(e, errno, "image", "open the directory of %s", shown(path)) : rc;
}

/* ---- removing ---- */

/* Removes `name` of `dir`, but for what this layer has put there. 1: something of it stays; or a negative errno. */
static int remove_old(struct unpack *u, int dir, const char *name, unsigned depth)
{
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	struct stat st;
	int fd, kept = 0;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISDIR(st.st_mode)) {
		if (inode_has(&u->own, st.st_ino))
			return 1;
		return unlinkat(dir, name, 0) < 0 ? -errno : 0;
	}
	if (depth > REMOVE_DEPTH_MAX)
		return -ELOOP;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	while ((de = readdir(d))) {
		int rc;

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		rc = remove_old(u, fd, de->d_name, depth + 1);
		if (rc < 0)
			return rc;
		kept |= rc;
	}
	if (kept || inode_has(&u->own, st.st_ino))
		return 1;
	return unlinkat(dir, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

/* Makes room for an entry: whatever stands there goes, this layer's own too. */
static int make_room(struct unpack *u, int dir, const char *name)
{
	struct inode_set own = u->own;
	int rc;

	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	forget_parent(u); /* it may be in there */
	u->own = (struct inode_set){0};
	rc = remove_old(u, dir, name, 0);
	u->own = own;
	return rc;
}

static int white_out(struct unpack *u, const char *path, struct err *e)
{
	static const char prefix[] = ".wh.", opaque[] = ".wh..wh..opq";
	_cleanup_fd_ int dir = -1;
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	const char *name;
	_cleanup_fd_ int at = open_parent(u, path, &name, e);
	int rc = 0, copy;

	if (at < 0)
		return at;
	dir = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	forget_parent(u);
	if (dir < 0)
		return err_errno(e, errno, "image", "open the directory of %s", shown(path));
	if (strcmp(name, opaque) != 0) {
		name += strlen(prefix);
		/* Other names of this kind are notes of a file system that once did it. */
		if (!*name || !strcmp(name, ".") || !strcmp(name, "..") || !strncmp(name, prefix, strlen(prefix)))
			return 0;
		rc = remove_old(u, dir, name, 0);
		return rc < 0 ? err_errno(e, -rc, "image", "take away %s", shown(path)) : 0;
	}
	copy = TAKE_FD(dir);
	d = fdopendir(copy);
	if (!d) {
		close(copy);
		return err_set(e, ENOMEM, "image", "out of memory");
	}
	while (rc >= 0 && (de = readdir(d)))
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			rc = remove_old(u, dirfd(d), de->d_name, 0);
	return rc < 0 ? err_errno(e, -rc, "image", "take away what is at %s", shown(path)) : 0;
}

/* ---- making ---- */

static int touch(struct unpack *u, int dir, const char *name, const struct timespec *mtime)
{
	const struct timespec times[2] = {*mtime, *mtime};
	struct stat st;

	if (utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return inode_add(&u->own, st.st_ino);
}

static int remember_time(struct unpack *u, const char *path, const struct timespec *mtime)
{
	if (u->time_count == u->time_room) {
		size_t room = u->time_room ? u->time_room * 2 : 256;
		struct dir_time *more = reallocarray(u->times, room, sizeof *more);

		if (!more)
			return -ENOMEM;
		u->times = more;
		u->time_room = room;
	}
	u->times[u->time_count].path = strdup(path);
	u->times[u->time_count].mtime = *mtime;
	return u->times[u->time_count++].path ? 0 : -ENOMEM;
}

static void set_times(struct unpack *u)
{
	for (size_t i = 0; i < u->time_count; i++) {
		const struct timespec times[2] = {u->times[i].mtime, u->times[i].mtime};
		_cleanup_fd_ int fd = open_inside(u, u->times[i].path, O_RDONLY | O_DIRECTORY);

		if (fd >= 0)
			(void)futimens(fd, times); /* a wrong time is a cache that is made again, no more */
		free(u->times[i].path);
	}
	u->time_count = 0;
}

static int put_directory(struct unpack *u, int dir, const char *name, const char *path, const struct timespec *mtime)
{
	struct stat st;
	int rc;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode)) {
		rc = make_room(u, dir, name);
		if (rc < 0)
			return rc;
		if (mkdirat(dir, name, 0755) < 0)
			return -errno;
	}
	rc = touch(u, dir, name, mtime);
	return rc < 0 ? rc : remember_time(u, path, mtime);
}

/* Counts before it writes: what is over the limit never reaches the disk. */
static int take_bytes(struct unpack *u, uint64_t more, struct err *e)
{
	if (more > u->limits.bytes - u->tally.bytes)
		return err_set(e, E2BIG, "image", "the files of %s are over %llu bytes together", u->whole,
			       (unsigned long long)u->limits.bytes);
	u->tally.bytes += more;
	return 0;
}

static int write_block(int fd, const char *data, size_t len, off_t at)
{
	while (len) {
		ssize_t n = pwrite(fd, data, len, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		data += n;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

static int archive_failed(const struct unpack *u, struct archive *a, struct err *e)
{
	const char *why = archive_error_string(a);

	return err_set(e, EINVAL, "image", "%s is damaged, or no tar archive: %s", u->what,
		       why ? shown(why) : "no reason given");
}

static bool is_zero(const char *data, size_t len)
{
	return !len || (!data[0] && !memcmp(data, data + 1, len - 1));
}

/*
 * The content of an archive's entry, which may have holes; what is nothing but zeros becomes one. What is too large by its own
 * account is refused before the first byte of it.
 */
static int put_archived(struct unpack *u, struct archive *a, int64_t size, int fd, struct err *e)
{
	off_t end = 0;

	if (size > 0 && (uint64_t)size > u->limits.bytes - u->tally.bytes)
		return take_bytes(u, (uint64_t)size, e);
	for (;;) {
		const void *data;
		size_t len;
		off_t at;
		int r = archive_read_data_block(a, &data, &len, &at), rc;

		if (r == ARCHIVE_EOF)
			break;
		if (r != ARCHIVE_OK)
			return archive_failed(u, a, e);
		if (at < end)
			return err_set(e, EINVAL, "image", "%s has a file whose parts overlap", u->what);
		rc = take_bytes(u, (uint64_t)(at - end) + len, e);
		if (rc < 0)
			return rc;
		rc = is_zero(data, len) ? 0 : write_block(fd, data, len, at);
		if (rc < 0)
			return err_errno(e, -rc, "image", "write a file of the image");
		end = at + (off_t)len;
	}
	if (size > end) {
		int rc = take_bytes(u, (uint64_t)(size - end), e);

		if (rc < 0)
			return rc;
		end = size;
	}
	return ftruncate(fd, end) < 0 ? err_errno(e, errno, "image", "write a file of the image") : 0;
}

/* The content that a reader gives; holes as above. */
static int put_read(struct unpack *u, const struct unpack_entry *entry, int fd, struct err *e)
{
	const void *data = NULL;
	off_t end = 0;
	ssize_t n;

	while ((n = entry->read(entry->ctx, &data)) > 0) {
		int rc = take_bytes(u, (uint64_t)n, e);

		if (rc < 0)
			return rc;
		rc = is_zero(data, (size_t)n) ? 0 : write_block(fd, data, (size_t)n, end);
		if (rc < 0)
			return err_errno(e, -rc, "image", "write a file of the image");
		end += n;
	}
	if (n < 0)
		return err_errno(e, (int)-n, "image", "read %s", shown(entry->path));
	return ftruncate(fd, end) < 0 ? err_errno(e, errno, "image", "write a file of the image") : 0;
}

/* `a`, `size`: what holds the content; NULL: the entry's reader. */
static int put_file(struct unpack *u, const struct unpack_entry *entry, struct archive *a, int64_t size, int dir,
		    const char *name, struct err *e)
{
	const struct timespec times[2] = {entry->mtime, entry->mtime};
	_cleanup_fd_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct stat st;
	int rc;

	if (fd < 0)
		return err_errno(e, errno, "image", "make %s", shown(name));
	rc = a ? put_archived(u, a, size, fd, e) : put_read(u, entry, fd, e);
	if (rc < 0)
		return rc;
	if (fchmod(fd, entry->executable ? 0755 : 0644) < 0 || futimens(fd, times) < 0 || fstat(fd, &st) < 0)
		return err_errno(e, errno, "image", "finish %s", shown(name));
	return inode_add(&u->own, st.st_ino) < 0 ? err_set(e, ENOMEM, "image", "out of memory") : 0;
}

static int put_hardlink(struct unpack *u, int dir, const char *name, const char *target, struct err *e)
{
	char path[PATH_MAX], above[PATH_MAX];
	_cleanup_fd_ int from = -1;
	const char *base;
	struct stat st, now;
	int rc = normalise(target, path, e);

	if (rc < 0)
		return rc;
	base = strrchr(path, '/');
	snprintf(above, sizeof above, "%.*s", base ? (int)(base - path) : 0, path);
	base = base ? base + 1 : path;
	from = open_inside(u, above, O_PATH | O_DIRECTORY);
	if (from < 0 || fstatat(from, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_errno(e, errno, "image", "%s is a link to a file that is not there", shown(name));
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return err_set(e, EINVAL, "image", "%s is a hard link to something that is no file", shown(name));
	if (fstatat(dir, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_ino == st.st_ino)
		return 0;
	rc = make_room(u, dir, name);
	if (rc == 0 && linkat(from, base, dir, name, 0) < 0)
		rc = -errno;
	if (rc == 0)
		rc = inode_add(&u->own, st.st_ino);
	return rc < 0 ? err_errno(e, -rc, "image", "link %s", shown(name)) : 0;
}

static int put_link(struct unpack *u, const struct unpack_entry *entry, int dir, const char *name)
{
	int rc = make_room(u, dir, name);

	forget_parent(u); /* the link may stand where the next one's way leads */
	if (rc == 0 && (!entry->target || symlinkat(entry->target, dir, name) < 0))
		rc = entry->target ? -errno : -EINVAL;
	return rc < 0 ? rc : touch(u, dir, name, &entry->mtime);
}

/* `entry->path` is normalised and not "". */
static int put_entry(struct unpack *u, const struct unpack_entry *entry, struct archive *a, int64_t size, const char *hardlink,
		     struct err *e)
{
	const char *name;
	_cleanup_fd_ int dir = open_parent(u, entry->path, &name, e);
	int rc = 0;

	if (dir < 0)
		return dir;
	if (hardlink)
		return put_hardlink(u, dir, name, hardlink, e);
	switch (entry->kind) {
	case S_IFDIR:
		rc = put_directory(u, dir, name, entry->path, &entry->mtime);
		break;
	case S_IFREG:
		rc = make_room(u, dir, name);
		if (rc == 0)
			return put_file(u, entry, a, size, dir, name, e);
		break;
	case S_IFLNK:
		rc = put_link(u, entry, dir, name);
		break;
	default:
		u->tally.left_out++;
	}
	return rc < 0 ? err_errno(e, -rc, "image", "unpack %s", shown(entry->path)) : 0;
}

static int count_entry(struct unpack *u, struct err *e)
{
	if (++u->tally.entries > u->limits.entries)
		return err_set(e, E2BIG, "image", "%s has more than %llu entries", u->whole,
			       (unsigned long long)u->limits.entries);
	return 0;
}

/* ---- a layer ---- */

struct source {
	ssize_t (*read)(void *ctx, const void **ret);
	void *ctx;
	int error;
};

static la_ssize_t on_read(struct archive *a, void *ctx, const void **ret)
{
	struct source *s = ctx;
	ssize_t n = s->read(s->ctx, ret);

	if (n >= 0)
		return n;
	s->error = (int)-n;
	archive_set_error(a, s->error, "can't read it");
	return -1;
}

static int one_entry(struct unpack *u, struct archive *a, struct archive_entry *entry,
		     bool (*want)(const char *path, int64_t size), struct err *e)
{
	const char *raw = archive_entry_pathname(entry), *hardlink = archive_entry_hardlink(entry), *name;
	int64_t size = archive_entry_size_is_set(entry) ? archive_entry_size(entry) : 0;
	char path[PATH_MAX] = "";
	struct unpack_entry put = {
	    .path = path,
	    .kind = archive_entry_filetype(entry),
	    .executable = archive_entry_perm(entry) & 0111,
	    .mtime = {.tv_sec = archive_entry_mtime(entry), .tv_nsec = archive_entry_mtime_nsec(entry)},
	    .target = archive_entry_symlink(entry),
	};
	int rc = count_entry(u, e);

	if (rc < 0)
		return rc;
	/* Headers of any length and padding are no file's bytes; they are work all the same. */
	if ((uint64_t)archive_filter_bytes(a, 0) > u->limits.bytes + u->limits.entries * HEADER_BYTES)
		return err_set(e, E2BIG, "image", "%s is over %llu bytes unpacked", u->what,
			       (unsigned long long)u->limits.bytes);
	if (!raw)
		return err_set(e, EINVAL, "image", "an entry's name can't be read");
	rc = normalise(raw, path, e);
	if (rc < 0 || !path[0])
		return rc;
	name = strrchr(path, '/');
	name = name ? name + 1 : path;
	if (strncmp(name, ".wh.", 4) == 0)
		return white_out(u, path, e);
	if (want && !hardlink && put.kind == S_IFREG && !want(path, size))
		return 0;
	return put_entry(u, &put, a, size, hardlink, e);
}

static int unpack_tar(struct unpack *u, struct archive *a, ssize_t (*read)(void *ctx, const void **ret), void *ctx,
		      bool (*want)(const char *path, int64_t size), struct err *e)
{
	struct source source = {.read = read, .ctx = ctx};
	struct archive_entry *entry;
	int rc = 0, r;

	archive_read_support_filter_gzip(a);
	archive_read_support_filter_zstd(a);
	archive_read_support_format_tar(a);
	archive_read_support_format_empty(a);
	r = archive_read_open(a, &source, NULL, on_read, NULL);
	while (rc == 0 && r >= ARCHIVE_WARN) {
		r = archive_read_next_header(a, &entry);
		if (r == ARCHIVE_EOF)
			break;
		if (r >= ARCHIVE_WARN)
			rc = one_entry(u, a, entry, want, e);
	}
	if (rc == 0 && r < ARCHIVE_WARN)
		rc = archive_failed(u, a, e);
	if (source.error) /* whatever came of it */
		rc = err_errno(e, source.error, "image", "read %s", u->what);
	archive_read_free(a);
	unpack_finish(u);
	return rc;
}

int unpack_layer(struct unpack *u, ssize_t (*read)(void *ctx, const void **ret), void *ctx, struct err *e)
{
	struct archive *a = archive_read_new();

	u->what = "a layer";
	u->whole = "the image";
	return a ? unpack_tar(u, a, read, ctx, NULL, e) : err_set(e, ENOMEM, "image", "out of memory");
}

int unpack_archive(struct unpack *u, ssize_t (*read)(void *ctx, const void **ret), void *ctx,
		   bool (*want)(const char *path, int64_t size), struct err *e)
{
	struct archive *a = archive_read_new();

	u->what = u->whole = "the archive";
	if (!a)
		return err_set(e, ENOMEM, "image", "out of memory");
	archive_read_support_filter_xz(a);
	archive_read_support_filter_bzip2(a);
	return unpack_tar(u, a, read, ctx, want, e);
}

int unpack_put(struct unpack *u, const struct unpack_entry *entry, struct err *e)
{
	struct unpack_entry put = *entry;
	char path[PATH_MAX] = "";
	int rc;

	u->what = u->whole = "the directory";
	rc = count_entry(u, e);
	if (rc == 0)
		rc = normalise(entry->path, path, e);
	if (rc < 0 || !path[0])
		return rc;
	put.path = path;
	return put_entry(u, &put, NULL, 0, NULL, e);
}

void unpack_finish(struct unpack *u)
{
	forget_parent(u);
	set_times(u);
	inode_clear(&u->own);
}

int unpack_new(struct unpack **ret, int root, const struct unpack_limits *limits, struct err *e)
{
	struct unpack *u = calloc(1, sizeof *u);

	if (!u)
		return err_set(e, ENOMEM, "image", "out of memory");
	u->root = root;
	u->limits = *limits;
	u->parent_fd = -1;
	u->what = u->whole = "the image";
	*ret = u;
	return 0;
}

struct unpack *unpack_free(struct unpack *u)
{
	if (!u)
		return NULL;
	forget_parent(u);
	inode_clear(&u->own);
	for (size_t i = 0; i < u->time_count; i++)
		free(u->times[i].path);
	free(u->times);
	free(u);
	return NULL;
}

const struct unpack_tally *unpack_tally(const struct unpack *u)
{
	return &u->tally;
}

/* ---- removing a whole tree, of which nothing is known ---- */

#define LEVELS 32 /* deeper ones are moved to the top first: so many directories are open at once */

struct removal {
	int top;
	unsigned moved;
};

static int remove_level(struct removal *r, int dir, const char *name, unsigned depth)
{
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	int fd, rc = 0;

	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (depth == LEVELS) {
		char to[32];

		do /* until it is a name that nobody has */
			snprintf(to, sizeof to, "..moved.%u", r->moved++);
		while ((rc = renameat(dir, name, r->top, to)) < 0 &&
		       (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR));
		return rc < 0 && errno != ENOENT ? -errno : 0;
	}
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	while (rc == 0 && (de = readdir(d)))
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			rc = remove_level(r, fd, de->d_name, depth + 1);
	if (rc == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		rc = -errno;
	return rc;
}

int unpack_remove(int dir, const char *name)
{
	struct removal r = {.top = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
	int rc = 0;

	if (r.top < 0)
		return errno == ENOENT || unlinkat(dir, name, 0) == 0 ? 0 : -errno;
	/* As often as something was moved up. */
	for (bool again = true; rc == 0 && again;) {
		unsigned moved = r.moved;
		int fd = openat(r.top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
		struct dirent *de;

		if (!d) {
			rc = -errno;
			cleanup_fdp(&fd);
			break;
		}
		while (rc == 0 && (de = readdir(d)))
			if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
				rc = remove_level(&r, r.top, de->d_name, 0);
		again = r.moved != moved;
	}
	close(r.top);
	if (rc == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		rc = -errno;
	return rc;
}
