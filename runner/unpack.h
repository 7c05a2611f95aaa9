/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers of an OCI image, laid one over the other into one directory. What is in them is a stranger's: nothing is written
 * outside the directory whatever names and links say, and of owners, modes and kinds only what a read-only root needs is
 * taken over:
 *
 *   - names: absolute ones are taken from the root; ".." refuses the image; links on the way are followed as inside
 *   - owner: the caller's; directories are 0755, files 0755 or 0644: no set-id bits, no attributes, readable for everybody
 *   - devices, pipes and sockets are left out (and counted)
 *   - whiteouts: ".wh.NAME" and ".wh..wh..opq" take away what earlier layers put there, never what their own did
 *   - tar, plain or compressed with gzip or zstd
 *
 * For an unprivileged process that sees little else (confined.h), though it does not count on that.
 */
#ifndef WEIR_RUNNER_UNPACK_H
#define WEIR_RUNNER_UNPACK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "core/err.h"

struct unpack_limits {
	uint64_t bytes;	  /* of all files, holes included */
	uint64_t entries; /* of all layers */
};

struct unpack_tally {
	uint64_t bytes, entries;
	uint64_t left_out; /* devices, pipes, sockets */
};

struct unpack;

/* Into the directory `root`, which is empty and stays the caller's. */
int unpack_new(struct unpack **ret, int root, const struct unpack_limits *limits, struct err *e);
struct unpack *unpack_free(struct unpack *u); /* NULL-safe, returns NULL */

/*
 * One layer, from the bottom up. `read` gives its next bytes: how many, 0 at the end, or a negative errno. Not everything
 * need be asked for. After an error the directory is of no use.
 */
int unpack_layer(struct unpack *u, ssize_t (*read)(void *ctx, const void **ret), void *ctx, struct err *e);

/*
 * The same for an archive that holds an image's files (what `docker save` writes), which may be compressed with xz or bzip2 as
 * well. `want` (NULL: all) says of each regular file whether it is unpacked.
 */
int unpack_archive(struct unpack *u, ssize_t (*read)(void *ctx, const void **ret), void *ctx,
		   bool (*want)(const char *path, int64_t size), struct err *e);

/* One entry of a directory that is copied. */
struct unpack_entry {
	const char *path; /* relative */
	mode_t kind;	  /* S_IFDIR, S_IFREG, S_IFLNK; any other is left out */
	bool executable;
	struct timespec mtime;
	const char *target;			      /* of a link */
	ssize_t (*read)(void *ctx, const void **ret); /* a file's content, as above */
	void *ctx;
};

/* Puts it down by the same rules; what stood there is replaced. A name is only a name here: none is a whiteout. */
int unpack_put(struct unpack *u, const struct unpack_entry *entry, struct err *e);

/* When all entries of a directory are put: directories get their times. */
void unpack_finish(struct unpack *u);

const struct unpack_tally *unpack_tally(const struct unpack *u);

/*
 * Removes `name` of the directory `dir` with all that is in it, however deep it is, following no link, and whoever else may be
 * removing it at the same time. 0 also when there is none, or a negative errno.
 */
int unpack_remove(int dir, const char *name);

#endif
