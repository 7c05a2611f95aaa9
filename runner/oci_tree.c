/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory as an image. Its digest is one of its content: of kind, name, and what is in it, of each entry in the order of
 * names; times and owners are not in it, and of modes only whether a file can be executed. The directory is read twice, for
 * the digest and for the image: what changed between is an error.
 *
 * The child is nobody, so what others than its owner may not read stays out: an image is readable for every tool.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "oci_priv.h"

#define DEPTH_MAX 128
#define MAGIC "weir directory 1\n"

struct tree {
	struct oci_work *w;
	struct unpack *u; /* NULL: for the digest only */
	gnutls_hash_hd_t hash;
	uint64_t bytes, entries, left_out, hidden;
	char path[PATH_MAX]; /* of the entry that is looked at */
	size_t len;
};

struct tree_file {
	struct tree *t;
	int fd;
	gnutls_hash_hd_t hash;
	char chunk[OCI_CHUNK];
};

/* ---- one entry ---- */

static int note(struct tree *t, const void *data, size_t len, struct err *e)
{
	return gnutls_hash(t->hash, data, len) < 0 ? err_set(e, EIO, "image", "compute a digest") : 0;
}

/* Kind and name, which end in a NUL. */
static int note_entry(struct tree *t, char kind, struct err *e)
{
	int rc = note(t, &kind, 1, e);

	return rc < 0 ? rc : note(t, t->path, t->len + 1, e);
}

static void hide(struct tree *t)
{
	char *to = t->w->report.first_hidden;
	size_t n = t->len < sizeof t->w->report.first_hidden ? t->len : sizeof t->w->report.first_hidden - 1;

	if (t->hidden++)
		return;
	memcpy(to, t->path, n);
	to[n] = 0;
}

static ssize_t file_read(void *ctx, const void **ret)
{
	struct tree_file *f = ctx;
	ssize_t n;

	do
		n = read(f->fd, f->chunk, sizeof f->chunk);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	f->t->bytes += (uint64_t)n;
	oci_progress(f->t->w, (uint64_t)n);
	if (gnutls_hash(f->hash, f->chunk, (size_t)n) < 0)
		return -EIO;
	*ret = f->chunk;
	return n;
}

static int put(struct tree *t, const struct unpack_entry *entry, struct err *e)
{
	return t->u ? unpack_put(t->u, entry, e) : 0;
}

/* Reads a file through: into the image, or for its digest. */
static int pass_content(struct tree *t, struct tree_file *f, const struct stat *st, struct err *e)
{
	const struct unpack_entry entry = {.path = t->path,
					   .kind = S_IFREG,
					   .executable = st->st_mode & 0111,
					   .mtime = st->st_mtim,
					   .read = file_read,
					   .ctx = f};
	const void *data = NULL;
	ssize_t n;

	if (t->u)
		return unpack_put(t->u, &entry, e);
	while ((n = file_read(f, &data)) > 0)
		if (t->bytes > LIMIT_IMAGE_BYTES)
			return err_set(e, E2BIG, "image", "the files of the directory are over %lld bytes together",
				       (long long)LIMIT_IMAGE_BYTES);
	return n < 0 ? err_errno(e, (int)-n, "image", "read %s", t->path) : 0;
}

static int pass_file(struct tree *t, int dir, const char *name, struct err *e)
{
	static struct tree_file f;
	_cleanup_fd_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char hex[OCI_HEX + 1];
	struct stat st;
	int rc;

	if (fd < 0 && errno == EACCES) {
		hide(t);
		return 0;
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, errno, "image", "open %s", t->path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EAGAIN, "image", "%s changed while it was read", t->path);
	if (gnutls_hash_init(&f.hash, GNUTLS_DIG_SHA256) < 0)
		return err_set(e, ENOMEM, "image", "out of memory");
	f.t = t;
	f.fd = fd;
	rc = pass_content(t, &f, &st, e);
	oci_hash_hex(f.hash, hex);
	if (rc == 0)
		rc = note_entry(t, st.st_mode & 0111 ? 'x' : 'f', e);
	return rc < 0 ? rc : note(t, hex, OCI_HEX, e);
}

static int pass_link(struct tree *t, int dir, const char *name, const struct stat *st, struct err *e)
{
	char target[PATH_MAX];
	const struct unpack_entry entry = {.path = t->path, .kind = S_IFLNK, .mtime = st->st_mtim, .target = target};
	ssize_t n = readlinkat(dir, name, target, sizeof target - 1);
	int rc;

	if (n < 0)
		return err_errno(e, errno, "image", "read %s", t->path);
	target[n] = 0;
	rc = put(t, &entry, e);
	if (rc == 0)
		rc = note_entry(t, 'l', e);
	return rc < 0 ? rc : note(t, target, (size_t)n + 1, e);
}

/* ---- a directory ---- */

struct names {
	char **list;
	size_t count, room;
};

static void names_clear(struct names *n)
{
	for (size_t i = 0; i < n->count; i++)
		free(n->list[i]);
	free(n->list);
}
#define _cleanup_names_ __attribute__((cleanup(names_clear)))

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int names_read(struct tree *t, int dir, struct names *n, struct err *e)
{
	/* Not opened again: that takes a right that one which only lists its names does not give. */
	int copy = fcntl(dir, F_DUPFD_CLOEXEC, 3);
	_cleanup_dir_ DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *de;

	if (!d) {
		int error = errno;

		cleanup_fdp(&copy);
		return err_errno(e, error, "image", "read %s", t->len ? t->path : "the directory");
	}
	rewinddir(d); /* its place is shared with the original's */
	while ((errno = 0, de = readdir(d))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if (t->entries + n->count >= LIMIT_IMAGE_ENTRIES)
			return err_set(e, E2BIG, "image", "the directory has more than %d entries", LIMIT_IMAGE_ENTRIES);
		if (n->count == n->room) {
			size_t room = n->room ? n->room * 2 : 64;
			char **more = reallocarray(n->list, room, sizeof *more);

			if (!more)
				return err_set(e, ENOMEM, "image", "out of memory");
			n->list = more;
			n->room = room;
		}
		n->list[n->count] = strdup(de->d_name);
		if (!n->list[n->count++])
			return err_set(e, ENOMEM, "image", "out of memory");
	}
	if (errno)
		return err_errno(e, errno, "image", "read %s", t->len ? t->path : "the directory");
	if (n->count)
		qsort(n->list, n->count, sizeof *n->list, by_bytes);
	return 0;
}

static int pass_directory(struct tree *t, int dir, unsigned depth, struct err *e);

static int pass_subdirectory(struct tree *t, int dir, const char *name, unsigned depth, struct err *e)
{
	_cleanup_fd_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct unpack_entry entry = {.path = t->path, .kind = S_IFDIR};
	struct stat st;
	int rc;

	if (fd < 0 && errno == EACCES) {
		hide(t);
		return 0;
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, errno, "image", "open %s", t->path);
	if (depth == DEPTH_MAX)
		return err_set(e, ENAMETOOLONG, "image", "directories in each other deeper than %d: %.200s…", DEPTH_MAX,
			       t->path);
	entry.mtime = st.st_mtim;
	rc = put(t, &entry, e);
	if (rc == 0)
		rc = note_entry(t, 'd', e);
	return rc < 0 ? rc : pass_directory(t, fd, depth + 1, e);
}

static int pass_entry(struct tree *t, int dir, const char *name, unsigned depth, struct err *e)
{
	struct stat st;

	t->entries++;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != EACCES) /* of a directory that lists its names and no more */
			return err_errno(e, errno, "image", "look at %s", t->path);
		hide(t);
		return 0;
	}
	switch (st.st_mode & S_IFMT) {
	case S_IFDIR:
		return pass_subdirectory(t, dir, name, depth, e);
	case S_IFREG:
		return pass_file(t, dir, name, e);
	case S_IFLNK:
		return pass_link(t, dir, name, &st, e);
	default:
		t->left_out++;
		return 0;
	}
}

static int pass_directory(struct tree *t, int dir, unsigned depth, struct err *e)
{
	_cleanup_names_ struct names n = {0};
	int rc = names_read(t, dir, &n, e);
	size_t above = t->len;

	for (size_t i = 0; rc == 0 && i < n.count; i++) {
		int len = snprintf(t->path + above, sizeof t->path - above, "%s%s", above ? "/" : "", n.list[i]);

		if ((size_t)len >= sizeof t->path - above)
			rc = err_set(e, ENAMETOOLONG, "image", "a path is too long: %.200s…", t->path);
		t->len = above + (size_t)len;
		if (rc == 0)
			rc = pass_entry(t, dir, n.list[i], depth, e);
	}
	t->len = above;
	t->path[above] = 0;
	return rc;
}

/* ---- all of it ---- */

static int pass(struct oci_work *w, struct unpack *u, char ret_digest[OCI_HEX + 1], struct err *e)
{
	static struct tree t;
	int rc;

	t = (struct tree){.w = w, .u = u};
	if (gnutls_hash_init(&t.hash, GNUTLS_DIG_SHA256) < 0)
		return err_set(e, ENOMEM, "image", "out of memory");
	oci_progress_begin(w, 0, 0, 0);
	rc = note(&t, MAGIC, sizeof MAGIC - 1, e);
	if (rc == 0)
		rc = pass_directory(&t, w->in, 0, e);
	oci_hash_hex(t.hash, ret_digest);
	w->report.bytes = t.bytes;
	w->report.entries = t.entries;
	w->report.left_out = t.left_out;
	w->report.hidden = t.hidden;
	return rc;
}

int oci_tree_identify(struct oci_work *w, struct err *e)
{
	return pass(w, NULL, w->report.digest, e);
}

int oci_tree_unpack(struct oci_work *w, struct err *e)
{
	char digest[OCI_HEX + 1];
	struct unpack *u = NULL;
	int rc = unpack_new(&u, w->out, &oci_limits, e);

	if (rc < 0)
		return rc;
	rc = pass(w, u, digest, e);
	unpack_finish(u);
	unpack_free(u);
	if (rc == 0 && strcmp(digest, w->report.digest) != 0)
		rc = err_set(e, EAGAIN, "image", "the directory changed while it was read: try again");
	return rc;
}
