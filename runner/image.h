/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The snippet image: the read-only root of a sandbox, made without copying a file. There are two kinds.
 *
 * Made of the host's own files: a small tmpfs (`image/`) holds the tree as an overlayfs layer: directories, links and, for
 * each file that is exposed, an empty stub that overlayfs's metacopy feature fills with the data of the host's file in the
 * layer below. Directories that are exposed whole (the standard library, time zones) are redirects. Nothing that is not named
 * here is in the image, whatever is installed on the host later.
 *
 * A root directory (of an OCI image: what oci.h has unpacked): the layer below is that directory, whole, and the tmpfs only
 * adds mount points, the harness and caches. Its /etc shows through what a sandbox has of its own there.
 *
 * No path of the host shows in /proc/self/mountinfo: the options speak of `image:base0`.
 */
#ifndef WEIR_RUNNER_IMAGE_H
#define WEIR_RUNNER_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"
#include "plan.h"
#include "python.h"

struct image;

struct image_spec {
	const char *root;   /* absolute path of a root directory; NULL: made of the host's own files */
	const char *python; /* the interpreter: of the host (path, or name on PATH), or inside `root`; NULL: looked for */
	const char *caches; /* directory with what a priming run has left (cli/prime.h); NULL: none. With a root only */
	const struct python
	    *known;    /* with a root: the interpreter has been asked before; nothing of the root is run. NULL: it is */
	unsigned cpus; /* that programs inside are to count on; 0: one */
};

/*
 * Finds the interpreter and builds the image in `stage` (created if missing), where a tmpfs is mounted: call it in a mount
 * namespace of your own. Ends with a trial mount that compares what is there with what should be, so that a layout that
 * does not work is found here. Programs of a root are run once to learn about them, confined (python.h), unless
 * they are known. The spec is not kept.
 */
int image_build(struct image **ret, const char *stage, const struct image_spec *spec, struct err *e);

/* Unmounts and frees. NULL-safe, returns NULL. */
struct image *image_release(struct image *im);

/*
 * Whether files of the host that the image exposes have changed since (an upgrade): then sandboxes need a new image. Of a
 * root only a few are looked at: itself, the interpreter, its library and site directory.
 */
bool image_stale(const struct image *im);

/* Where the program that makes tool calls is inside (toolcall.py). */
const char *image_toolcall(const struct image *im);

/* Fills what a plan says of the image: overlay, root, etc_below, interpreter, program. */
void image_plan(const struct image *im, struct init_plan *plan);

const struct python *image_python(const struct image *im); /* the interpreter, as it says itself where it is */

/* The i-th sentence for the operator: what the contract lists and the image lacks, what makes it slow. NULL past the end. */
const char *image_warning(const struct image *im, size_t i);

#endif
