/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a directory holds that its client does not know yet. What was there before is told apart by digest and by nothing else:
 * sizes and times are the program's to set. Limits cut in the order of paths, so that the same directory gives the same answer.
 * A directory is what its files say it is: an empty one is not reported, and neither are modes, owners and times.
 */
#include "collector/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collector/tree.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/utf8.h"

/*
 * Bytes read in one job, those of files that turn out to be unchanged too. A full disk can be read whole; only files with
 * holes, or with many names, look like more, and a few of them could otherwise keep the collector busy for everybody.
 */
#define BUDGET LIMIT_TMPFS_BYTES
#define CHUNK (256 << 10)
/* Files no answer has room for, that are read all the same: to tell whether they are new. More of them the budget can't pay. */
#define LARGE_MAX (BUDGET / LIMIT_FILE_OUT_BYTES)

struct skipped {
	uint32_t kind, path_len;
	uint64_t size;
	char *path; /* NULL: taken back */
};

struct large {
	int fd;
	uint32_t path_len;
	uint32_t listed; /* where in `skipped`; LIMIT_FILES_SKIPPED: it is only counted */
	uint64_t size;
	char *path;
};

struct walk {
	uint64_t deadline_ns;
	struct file_digest *known; /* sorted */
	size_t known_count;
	struct file_digest *seen; /* the next manifest */
	size_t seen_count, seen_room;
	bool want_manifest;
	gnutls_hash_hd_t hash;
	int data;
	uint64_t at;		/* where the next entry goes */
	uint64_t content, read; /* bytes of content given, and read */
	uint32_t files, skipped_count, unlisted;
	bool late; /* out of time */
	struct skipped skipped[LIMIT_FILES_SKIPPED];
	struct large large[LARGE_MAX];
	size_t large_count;
	struct tree tree;
	uint8_t chunk[CHUNK];
};

static int by_digest(const void *a, const void *b)
{
	const struct file_digest *x = a, *y = b;

	if (x->size != y->size)
		return x->size < y->size ? -1 : 1;
	return memcmp(x->sha256, y->sha256, sizeof x->sha256);
}

static int read_all(int fd, void *buf, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = pread(fd, (char *)buf + done, len - done, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EINVAL;
		done += (size_t)n;
	}
	return 0;
}

static int write_all(int fd, const void *buf, size_t len, uint64_t at)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = pwrite(fd, (const char *)buf + done, len - done, (off_t)(at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

/* The digests of the request, and those of the manifest: a file like any other, checked as such. */
static int learn(struct walk *w, const struct collect *job, int manifest)
{
	size_t extra = 0;
	struct stat st;
	int r = 0;

	if (manifest >= 0) {
		if (fstat(manifest, &st) < 0)
			return -errno;
		if (!S_ISREG(st.st_mode) || st.st_size < 0 || st.st_size % (off_t)sizeof *w->known ||
		    st.st_size / (off_t)sizeof *w->known > TREE_NAMES_MAX)
			return -EINVAL;
		extra = (size_t)st.st_size / sizeof *w->known;
	}
	w->known_count = job->digest_count + extra;
	if (!w->known_count)
		return 0;
	w->known = reallocarray(NULL, w->known_count, sizeof *w->known);
	if (!w->known)
		return -ENOMEM;
	memcpy(w->known, job->digests, job->digest_count * sizeof *w->known);
	if (extra)
		r = read_all(manifest, w->known + job->digest_count, extra * sizeof *w->known);
	qsort(w->known, w->known_count, sizeof *w->known, by_digest);
	return r;
}

static bool knows(const struct walk *w, const struct file_digest *d)
{
	return w->known_count && bsearch(d, w->known, w->known_count, sizeof *d, by_digest);
}

/* Whether any known file has that size: else there is nothing to compare, and no need to read. */
static bool knows_size(const struct walk *w, uint64_t size)
{
	size_t low = 0, high = w->known_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (w->known[middle].size < size)
			low = middle + 1;
		else
			high = middle;
	}
	return low < w->known_count && w->known[low].size == size;
}

static int skip(struct walk *w, enum collected_kind kind, uint64_t size)
{
	struct skipped *s = &w->skipped[w->skipped_count];

	if (w->skipped_count == LIMIT_FILES_SKIPPED) {
		w->unlisted++;
		return 0;
	}
	*s = (struct skipped){
	    .kind = kind, .path_len = (uint32_t)w->tree.path_len, .size = size, .path = malloc(w->tree.path_len + 1)};
	if (!s->path)
		return -ENOMEM;
	memcpy(s->path, w->tree.path, w->tree.path_len);
	w->skipped_count++;
	return 0;
}

static int remember(struct walk *w, const struct file_digest *d)
{
	if (w->seen_count == w->seen_room) {
		size_t room = w->seen_room * 2 + 256;
		struct file_digest *seen = reallocarray(w->seen, room, sizeof *seen);

		if (!seen)
			return -ENOMEM;
		w->seen = seen;
		w->seen_room = room;
	}
	w->seen[w->seen_count++] = *d;
	return 0;
}

/* Why this much more content can't be given; COLLECTED_FILE: it can. */
static enum collected_kind room_for(const struct walk *w, uint64_t size)
{
	if (w->files == LIMIT_FILES_OUT)
		return COLLECTED_TOO_MANY;
	return size > LIMIT_FILES_OUT_BYTES - w->content ? COLLECTED_TOO_LARGE : COLLECTED_FILE;
}

static int put_entry(struct walk *w, const struct collected_entry *head, const char *path)
{
	int r = write_all(w->data, head, sizeof *head, w->at);

	if (r == 0)
		r = write_all(w->data, path, head->path_len, w->at + sizeof *head);
	w->at += sizeof *head + head->path_len + (head->kind == COLLECTED_FILE ? head->size : 0);
	return r;
}

/* What is done with the bytes of a file. */
enum { KEEP = 1, DIGEST = 2 };

/*
 * Reads up to *size bytes, into the digest and to where the content of the next entry goes. Nobody can change the file; but
 * were it shorter or longer than it said, then less is read, and never more. Sets *size to what was read. Returns 0, a negative
 * errno, or 1 when there is no time or budget left; *failed: it was the file that could not be read.
 */
static int read_file(struct walk *w, int fd, unsigned what, uint64_t *size, bool *failed)
{
	uint64_t to = w->at + sizeof(struct collected_entry) + w->tree.path_len, done = 0;

	while (done < *size) {
		uint64_t left = *size - done;
		ssize_t n;
		int r;

		if (clock_now_ns() >= w->deadline_ns || left > BUDGET - w->read)
			return 1;
		n = read(fd, w->chunk, left < sizeof w->chunk ? left : sizeof w->chunk);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			*failed = true;
			return 0;
		}
		if (n == 0)
			break;
		w->read += (uint64_t)n;
		if ((what & DIGEST) && gnutls_hash(w->hash, w->chunk, (size_t)n) < 0)
			return -EIO;
		r = what & KEEP ? write_all(w->data, w->chunk, (size_t)n, to + done) : 0;
		if (r < 0)
			return r;
		done += (uint64_t)n;
	}
	*size = done;
	return 0;
}

/*
 * A file over the limit is listed, until it turns out to be unchanged. It is read after all the others, with what they have
 * left of budget and time, so that no file that could be given goes without for it.
 */
static int take_large(struct walk *w, uint64_t size)
{
	uint32_t listed = w->skipped_count;
	int r = skip(w, COLLECTED_TOO_LARGE, size);
	_cleanup_fd_ int fd = -1;
	struct stat st;
	char *path;

	if (r < 0 || size > BUDGET || w->large_count == LARGE_MAX || !(w->want_manifest || knows_size(w, size)))
		return r;
	fd = tree_open(&w->tree, 0);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return 0; /* it is too large, whatever else it is */
	path = malloc(w->tree.path_len + 1);
	if (!path)
		return -ENOMEM;
	memcpy(path, w->tree.path, w->tree.path_len);
	path[w->tree.path_len] = '\0';
	w->large[w->large_count++] = (struct large){
	    .fd = TAKE_FD(fd), .path_len = (uint32_t)w->tree.path_len, .listed = listed, .size = size, .path = path};
	return 0;
}

static void take_back(struct walk *w, const struct large *f)
{
	if (f->listed == LIMIT_FILES_SKIPPED) {
		w->unlisted--;
		return;
	}
	free(w->skipped[f->listed].path);
	w->skipped[f->listed].path = NULL;
}

static int look_into(struct walk *w, const struct large *f)
{
	struct file_digest digest = {.size = f->size};
	bool failed = false;
	int r;

	if (gnutls_hash(w->hash, f->path, f->path_len + 1) < 0)
		return -EIO;
	r = read_file(w, f->fd, DIGEST, &digest.size, &failed);
	gnutls_hash_output(w->hash, digest.sha256); /* and back to the start */
	if (r != 0 || failed)
		return r < 0 ? r : 0;
	if (w->want_manifest && (r = remember(w, &digest)) < 0)
		return r;
	if (knows(w, &digest))
		take_back(w, f);
	return 0;
}

/* Those that may be unchanged come first: a new one stays listed whether it is read or not. */
static int look_into_large(struct walk *w)
{
	int r = 0;

	for (int maybe_known = 1; maybe_known >= 0; maybe_known--)
		for (size_t i = 0; r == 0 && i < w->large_count; i++)
			if (knows_size(w, w->large[i].size) == maybe_known)
				r = look_into(w, &w->large[i]);
	return r;
}

static int take_open_file(struct walk *w, int fd, uint64_t size)
{
	enum collected_kind room = room_for(w, size);
	unsigned what = (room == COLLECTED_FILE ? KEEP : 0) | (w->want_manifest || knows_size(w, size) ? DIGEST : 0);
	struct file_digest digest = {0};
	bool failed = false;
	int r;

	/* The path first: the same content under another name is another file. */
	if ((what & DIGEST) && gnutls_hash(w->hash, w->tree.path, w->tree.path_len + 1) < 0)
		return -EIO;
	r = read_file(w, fd, what, &size, &failed);
	gnutls_hash_output(w->hash, digest.sha256); /* and back to the start */
	if (r < 0)
		return r;
	if (r > 0 || failed)
		return skip(w, failed ? COLLECTED_UNREADABLE : COLLECTED_TOO_MANY, size);
	digest.size = size;
	if (w->want_manifest && (r = remember(w, &digest)) < 0)
		return r;
	if ((what & DIGEST) && knows(w, &digest))
		return 0;
	if (room != COLLECTED_FILE)
		return skip(w, room, size);
	w->files++;
	w->content += size;
	return put_entry(
	    w, &(struct collected_entry){.kind = COLLECTED_FILE, .path_len = (uint32_t)w->tree.path_len, .size = size},
	    w->tree.path);
}

static int take_file(struct walk *w, uint64_t size)
{
	_cleanup_fd_ int fd = -1;
	struct stat st;

	/* A file of a size nobody knows is new: when there is no room for it there is no need to look into it. */
	if (size > LIMIT_FILE_OUT_BYTES)
		return take_large(w, size);
	if (room_for(w, size) != COLLECTED_FILE && !w->want_manifest && !knows_size(w, size))
		return skip(w, room_for(w, size), size);
	fd = tree_open(&w->tree, 0);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return skip(w, COLLECTED_UNREADABLE, size);
	return take_open_file(w, fd, size);
}

static int take_dir(struct walk *w, uint64_t size)
{
	bool last = w->tree.depth == LIMIT_FILES_OUT_DEPTH;
	int n = tree_enter(&w->tree);

	if (n == -ENOMEM)
		return n;
	if (n < 0)
		return skip(w, n == -E2BIG ? COLLECTED_TOO_MANY : COLLECTED_UNREADABLE, size);
	if (!last || n == 0)
		return 0;
	tree_skip(&w->tree);
	return skip(w, COLLECTED_TOO_DEEP, size);
}

static bool utf8_ok(const char *text, size_t len)
{
	bool valid = true;

	for (size_t at = 0; valid && at < len;)
		at += utf8_next(text + at, len - at, &valid);
	return valid;
}

/*
 * A name that is no text comes before the kind: so whoever reads the reason knows that the path is escaped. A directory is
 * passed over with all that is in it.
 */
static int visit(struct walk *w)
{
	const char *name = tree_name(&w->tree);
	struct stat st;

	if (!w->late && clock_now_ns() >= w->deadline_ns)
		w->late = true;
	if (w->late)
		return skip(w, utf8_ok(name, strlen(name)) ? COLLECTED_TOO_MANY : COLLECTED_NAME, 0);
	if (fstatat(tree_dir(&w->tree), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return skip(w, utf8_ok(name, strlen(name)) ? COLLECTED_UNREADABLE : COLLECTED_NAME, 0);
	if (!utf8_ok(name, strlen(name)))
		return skip(w, COLLECTED_NAME, (uint64_t)st.st_size);
	switch (st.st_mode & S_IFMT) {
	case S_IFREG:
		return take_file(w, (uint64_t)st.st_size);
	case S_IFDIR:
		return take_dir(w, (uint64_t)st.st_size);
	case S_IFLNK:
		return skip(w, COLLECTED_SYMLINK, (uint64_t)st.st_size);
	case S_IFIFO:
		return skip(w, COLLECTED_FIFO, (uint64_t)st.st_size);
	case S_IFSOCK:
		return skip(w, COLLECTED_SOCKET, (uint64_t)st.st_size);
	default:
		return skip(w, COLLECTED_DEVICE, (uint64_t)st.st_size);
	}
}

static int by_path(const void *a, const void *b)
{
	const struct skipped *x = a, *y = b;
	uint32_t shorter = x->path_len < y->path_len ? x->path_len : y->path_len;
	int order = memcmp(x->path, y->path, shorter);

	return order ? order : x->path_len < y->path_len ? -1 : x->path_len > y->path_len;
}

static int put_skipped(struct walk *w)
{
	uint32_t count = 0;
	int r = 0;

	for (uint32_t i = 0; i < w->skipped_count; i++)
		if (w->skipped[i].path)
			w->skipped[count++] = w->skipped[i];
	w->skipped_count = count;
	qsort(w->skipped, w->skipped_count, sizeof *w->skipped, by_path);
	for (uint32_t i = 0; r == 0 && i < w->skipped_count; i++) {
		const struct skipped *s = &w->skipped[i];

		r = put_entry(w, &(struct collected_entry){.kind = s->kind, .path_len = s->path_len, .size = s->size}, s->path);
	}
	return r;
}

/* What was written and taken back is cut off; from here on nobody can change it. */
static int seal(int fd, uint64_t len)
{
	if (ftruncate(fd, (off_t)len) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -errno;
	return 0;
}

static int make_memfd(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	return fd < 0 ? -errno : fd;
}

static int put_manifest(const struct walk *w, int *ret)
{
	size_t len = w->seen_count * sizeof *w->seen;
	_cleanup_fd_ int fd = make_memfd("weir-manifest");
	int r = fd < 0 ? fd : write_all(fd, w->seen, len, 0);

	if (r == 0)
		r = seal(fd, len);
	if (r == 0)
		*ret = TAKE_FD(fd);
	return r;
}

static int walk_all(struct walk *w, int dir, const struct collect *job, int manifest)
{
	int r = learn(w, job, manifest);

	if (r == 0 && gnutls_hash_init(&w->hash, GNUTLS_DIG_SHA256) < 0)
		r = -ENOMEM;
	if (r == 0)
		r = tree_start(&w->tree, dir);
	while (r == 0 && tree_next(&w->tree))
		r = visit(w);
	if (r == 0)
		r = look_into_large(w);
	if (r == 0)
		r = put_skipped(w);
	return r == 0 ? seal(w->data, w->at) : r;
}

static void walk_free(struct walk *w)
{
	tree_free(&w->tree);
	for (uint32_t i = 0; i < w->skipped_count; i++)
		free(w->skipped[i].path);
	for (size_t i = 0; i < w->large_count; i++) {
		close(w->large[i].fd);
		free(w->large[i].path);
	}
	if (w->hash)
		gnutls_hash_deinit(w->hash, NULL);
	free(w->known);
	free(w->seen);
	free(w);
}

int walk_until(uint64_t deadline_ns, int dir, const struct collect *job, int manifest, struct collected *ret, int *ret_data,
	       int *ret_manifest)
{
	_cleanup_fd_ int data = make_memfd("weir-files"), next = -1;
	struct walk *w = data < 0 ? NULL : calloc(1, sizeof *w);
	int r;

	if (!w)
		return data < 0 ? data : -ENOMEM;
	w->deadline_ns = deadline_ns;
	w->data = data;
	w->want_manifest = job->want_manifest;
	r = walk_all(w, dir, job, manifest);
	if (r == 0 && w->want_manifest)
		r = put_manifest(w, &next);
	if (r == 0) {
		ret->len = w->at;
		ret->status = 0;
		ret->files = w->files;
		ret->skipped = w->skipped_count;
		ret->skipped_unlisted = w->unlisted;
		*ret_data = TAKE_FD(data);
		*ret_manifest = TAKE_FD(next);
	}
	walk_free(w);
	return r;
}

int collector_walk(int dir, const struct collect *job, int manifest, struct collected *ret, int *ret_data, int *ret_manifest)
{
	return walk_until(clock_now_ns() + LIMIT_FILES_OUT_MS * (SECOND_NS / 1000), dir, job, manifest, ret, ret_data,
			  ret_manifest);
}
