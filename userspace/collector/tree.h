/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every path below a directory once, in the order of its bytes, without recursion and without a path that is resolved twice:
 * each directory is opened by its name in the open one above it, follows no link and stays on its mount. Memory is that of the
 * names in the directories on the way down, and bounded.
 */
#ifndef WEIR_COLLECTOR_TREE_H
#define WEIR_COLLECTOR_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/limits.h"

#define TREE_NAME_MAX 255
#define TREE_PATH_MAX (LIMIT_FILES_OUT_DEPTH * (TREE_NAME_MAX + 1))
/* Names held at once. A working directory has room for LIMIT_TMPFS_INODES; this only keeps memory bounded elsewhere. */
#define TREE_NAMES_MAX 65536

struct tree_level {
	int fd;
	char *text; /* names, each with its NUL */
	struct tree_name *names;
	size_t count, next;
	size_t prefix; /* bytes of its path, with the slash at the end; 0 for the top */
};

struct tree {
	struct tree_level levels[LIMIT_FILES_OUT_DEPTH + 1];
	unsigned depth; /* of levels in use: also the number of components in `path` */
	size_t held;	/* names */
	char path[TREE_PATH_MAX + 1];
	size_t path_len;
};

/* Starts at `dir` (borrowed; O_PATH is enough). `t` is all zero. Returns 0 or a negative errno; free it in both cases. */
int tree_start(struct tree *t, int dir);
void tree_free(struct tree *t);

/* Goes to the next entry: `path` is its, tree_dir() and tree_name() say where it is. False at the end. */
bool tree_next(struct tree *t);
int tree_dir(const struct tree *t);
const char *tree_name(const struct tree *t);

/*
 * The current entry is a directory: its content comes next. Returns how many names it has, or a negative errno and nothing of
 * it comes: -E2BIG for too many names. May be called at depth LIMIT_FILES_OUT_DEPTH, if tree_skip() follows when there is any.
 */
int tree_enter(struct tree *t);
/* Leaves the directory just entered; the current entry is that directory again. */
void tree_skip(struct tree *t);

/* Opens the current entry for reading, if it is what it was seen as: no link, no mount, no waiting. Returns a fd or -errno. */
int tree_open(const struct tree *t, int flags);

#endif
