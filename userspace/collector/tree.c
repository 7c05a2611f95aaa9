/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cleanup.h"

#define READ_BYTES 32768

struct tree_name {
	size_t at; /* in the level's text while it grows, then by pointer */
	const char *name;
	uint16_t len;
	bool dir;
};

static int open_beneath(int dir, const char *name, int flags)
{
	/* O_NONBLOCK: neither a FIFO nor a lease that a frozen process holds makes us wait. */
	struct open_how how = {.flags = (uint64_t)(O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags),
			       .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
	long fd = syscall(SYS_openat2, dir, name, &how, sizeof how);

	return fd < 0 ? -errno : (int)fd;
}

static bool is_dir(int dir, const struct dirent64 *d)
{
	struct stat st;

	if (d->d_type != DT_UNKNOWN)
		return d->d_type == DT_DIR;
	return fstatat(dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* A directory is sorted as what comes from it is spelt, with its slash. */
static int by_name(const void *a, const void *b)
{
	const struct tree_name *x = a, *y = b;
	size_t lx = x->len, ly = y->len, shorter = lx < ly ? lx : ly;
	int order = memcmp(x->name, y->name, shorter);
	unsigned char cx, cy;

	if (order)
		return order;
	cx = lx > shorter ? (unsigned char)x->name[shorter] : x->dir ? '/' : 0;
	cy = ly > shorter ? (unsigned char)y->name[shorter] : y->dir ? '/' : 0;
	return cx - cy;
}

struct growing {
	size_t text_len, text_room, room;
};

static int add_name(struct tree *t, struct tree_level *l, struct growing *g, const struct dirent64 *d)
{
	size_t len = strnlen(d->d_name, TREE_NAME_MAX + 1);

	if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
		return 0;
	if (len > TREE_NAME_MAX)
		return -ENAMETOOLONG;
	if (t->held + l->count == TREE_NAMES_MAX)
		return -E2BIG;
	if (g->text_room - g->text_len < len + 1) {
		size_t room = g->text_room * 2 + READ_BYTES;
		char *text = realloc(l->text, room);

		if (!text)
			return -ENOMEM;
		l->text = text;
		g->text_room = room;
	}
	if (l->count == g->room) {
		size_t room = g->room * 2 + 64;
		struct tree_name *names = reallocarray(l->names, room, sizeof *names);

		if (!names)
			return -ENOMEM;
		l->names = names;
		g->room = room;
	}
	l->names[l->count++] = (struct tree_name){.at = g->text_len, .len = (uint16_t)len, .dir = is_dir(l->fd, d)};
	memcpy(l->text + g->text_len, d->d_name, len + 1);
	g->text_len += len + 1;
	return 0;
}

static void clear(struct tree_level *l)
{
	cleanup_fdp(&l->fd);
	free(l->text);
	free(l->names);
	*l = (struct tree_level){.fd = -1};
}

/* Reads and sorts all names of the directory `l->fd`. */
static int read_names(struct tree *t, struct tree_level *l)
{
	_Alignas(struct dirent64) char buf[READ_BYTES];
	struct growing g = {0};
	ssize_t n;
	int r = 0;

	while (r == 0 && (n = getdents64(l->fd, buf, sizeof buf)) != 0) {
		if (n < 0)
			return -errno;
		for (ssize_t at = 0; r == 0 && at < n;) {
			const struct dirent64 *d = (const struct dirent64 *)(buf + at);

			r = add_name(t, l, &g, d);
			at += d->d_reclen;
		}
	}
	for (size_t i = 0; i < l->count; i++)
		l->names[i].name = l->text + l->names[i].at;
	if (r == 0 && l->count > 1)
		qsort(l->names, l->count, sizeof *l->names, by_name);
	return r;
}

static int push(struct tree *t, int fd, size_t prefix)
{
	struct tree_level *l = &t->levels[t->depth];
	int r;

	*l = (struct tree_level){.fd = fd, .prefix = prefix};
	r = read_names(t, l);
	if (r < 0) {
		clear(l);
		return r;
	}
	t->held += l->count;
	t->depth++;
	return (int)l->count;
}

static void pop(struct tree *t)
{
	struct tree_level *l = &t->levels[--t->depth];

	t->held -= l->count;
	clear(l);
}

int tree_start(struct tree *t, int dir)
{
	int fd = open_beneath(dir, ".", O_DIRECTORY), r;

	if (fd < 0)
		return fd;
	r = push(t, fd, 0);
	return r < 0 ? r : 0;
}

void tree_free(struct tree *t)
{
	while (t->depth)
		pop(t);
}

bool tree_next(struct tree *t)
{
	while (t->depth) {
		struct tree_level *l = &t->levels[t->depth - 1];
		const struct tree_name *n;

		if (l->next == l->count) {
			pop(t);
			continue;
		}
		n = &l->names[l->next++];
		memcpy(t->path + l->prefix, n->name, n->len + 1u);
		t->path_len = l->prefix + n->len;
		return true;
	}
	return false;
}

int tree_dir(const struct tree *t)
{
	return t->levels[t->depth - 1].fd;
}

const char *tree_name(const struct tree *t)
{
	return t->path + t->levels[t->depth - 1].prefix;
}

int tree_open(const struct tree *t, int flags)
{
	return open_beneath(tree_dir(t), tree_name(t), flags);
}

int tree_enter(struct tree *t)
{
	int fd = tree_open(t, O_DIRECTORY), r;

	if (fd < 0)
		return fd;
	r = push(t, fd, t->path_len + 1);
	t->path[t->path_len] = '/'; /* what comes next is written behind it */
	return r;
}

void tree_skip(struct tree *t)
{
	pop(t);
	t->path[t->path_len] = 0;
}
