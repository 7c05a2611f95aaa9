/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the image module share. Paths named `to` are of the sandbox, with a leading slash. */
#ifndef WEIR_RUNNER_IMAGE_PRIV_H
#define WEIR_RUNNER_IMAGE_PRIV_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "image.h"

#define IMAGE_BASES_MAX 4
#define IMAGE_FILES_MAX 1024
#define IMAGE_WARNINGS_MAX 8
#define IMAGE_LAYER "image" /* of the stage: our layer */

/* A mount of the host that holds exposed files, or a root directory: one lower layer each. */
struct image_base {
	uint64_t mount_id;
	char mountpoint[PATH_MAX];
	bool bound; /* is bound at base<N> of the stage */
};

/* A file or directory of the host as it was when the image was made: another one now makes the image stale. */
struct image_source {
	char *from; /* on the host */
	char *to;   /* in the sandbox; NULL: it is only watched */
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec mtime;
};

struct image {
	char stage[128];
	int stage_fd;
	bool mounted;
	const char *top; /* of the layer, from the stage: what becomes "/" of a sandbox */
	struct image_base bases[IMAGE_BASES_MAX];
	size_t base_count;
	struct image_source files[IMAGE_FILES_MAX];
	size_t file_count;
	char overlay[256];
	char interpreter[128];
	char root[16]; /* from the stage, once it is mounted: what becomes "/" */
	bool etc_below;
	unsigned cpus;	    /* that programs inside are to count on */
	char toolcall[256]; /* path inside of toolcall.py */
	char site[256];	    /* of a root: where in the layer the harness is */
	struct python python;
	char warnings[IMAGE_WARNINGS_MAX][512];
	size_t warning_count;
};

/* ---- image.c ---- */

/* As snprintf(), but 0 or -ENAMETOOLONG. */
int image_format(char *buf, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Adds a sentence for the operator; beyond IMAGE_WARNINGS_MAX they are dropped. */
void image_warn(struct image *im, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* From now on the image is stale when `from` is another than `st` says. `to` may be NULL. Both are copied. */
int image_watch(struct image *im, const char *from, const char *to, const struct stat *st, struct err *e);

/* Whether `path`, from the stage, is a regular file that holds these bytes: 0, or a negative errno. */
int image_compare(const struct image *im, const char *path, const char *data, size_t len);

/* ---- image_layer.c: making things in the layer ---- */

/* mkdir -p; the last component is made only when `leaf`. */
int layer_dirs(struct image *im, const char *to, bool leaf, struct err *e);
int layer_link(struct image *im, const char *to, const char *target, struct err *e);
int layer_file(struct image *im, const char *to, const char *data, size_t len, struct err *e);

/* A directory of our own that hides the one below, if there is one. */
int layer_own_dir(struct image *im, const char *to, struct err *e);

/* Sets trusted.overlay.<name> on `rel`, a path from the stage. */
int layer_mark(struct image *im, const char *rel, const char *name, const char *value, struct err *e);

/*
 * The harness, the file that makes the interpreter start it, and the one that makes tool calls, in the interpreter's site
 * directory `to`. Sets im->toolcall.
 */
int layer_harness(struct image *im, const char *to, struct err *e);

/* What both kinds of image have and no package brings: the number of CPUs. */
int layer_common(struct image *im, struct err *e);

/* ---- image_host.c, image_root.c: the two kinds ---- */

/* Fill the layer and set bases, overlay, root, interpreter, python. */
int image_fill_host(struct image *im, const struct image_spec *spec, struct err *e);
int image_fill_root(struct image *im, const struct image_spec *spec, struct err *e);

/* With the overlay mounted for a trial: whether what was laid out is what is there. */
int image_check_host(const struct image *im, struct err *e);
int image_check_root(const struct image *im, struct err *e);

#endif
