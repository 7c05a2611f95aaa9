/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The snippet image: a read-only root with just what the contract lists, made without copying a file.
 *
 * A small tmpfs (`image/`) holds the tree as an overlayfs layer: directories, links and, for each file that is exposed, an
 * empty stub that overlayfs's metacopy feature fills with the data of the host's file in the layer below. Directories that
 * are exposed whole (the standard library, time zones) are redirects. Nothing that is not named here is in the image,
 * whatever is installed on the host later; no path of the host shows in /proc/self/mountinfo, since there is one mount,
 * and its options speak of `image:base`.
 */
#ifndef WEIR_RUNNER_IMAGE_H
#define WEIR_RUNNER_IMAGE_H

#include <stdbool.h>

#include "core/err.h"
#include "python.h"

struct image;

/*
 * Builds it in `stage` (created if missing), where a tmpfs is mounted: call it in a mount namespace of your own. Ends with
 * a trial mount that compares every exposed file with its source, so that a layout that does not work is found here.
 */
int image_build(struct image **ret, const char *stage, const struct python *py, struct err *e);

/* Unmounts and frees. NULL-safe, returns NULL. */
struct image *image_release(struct image *im);

/* Whether a file of the host that the image exposes has changed since (an upgrade): then sandboxes need a new image. */
bool image_stale(const struct image *im);

const char *image_overlay(const struct image *im);     /* overlay mount options, with paths relative to the stage */
const char *image_interpreter(const struct image *im); /* path inside */
const char *image_missing(const struct image *im);     /* what the contract lists and this host lacks; "" for nothing */

#endif
