/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what the configuration says of snippets' image to what a supervisor builds sandboxes from: a root directory as it is,
 * an OCI image unpacked, and caches that the image's programs would otherwise make anew in every run.
 */
#ifndef WEIR_CLI_PRIME_H
#define WEIR_CLI_PRIME_H

#include <limits.h>
#include <stdbool.h>

#include "core/err.h"

struct image_wish {
	const char *image;     /* absolute: a root directory, or an OCI layout, which may have :NAME behind it; NULL: none */
	const char *python;    /* interpreter inside it; NULL: looked for */
	const char *state_dir; /* exists; NULL: the default one, made if it is needed */
	bool prime;	       /* make caches that are missing: takes a run of some seconds, once */
};

/* "" for none. */
struct image_place {
	char root[PATH_MAX];
	char caches[PATH_MAX];
};

/*
 * Unpacked images are in <state_dir>/images, caches in <state_dir>/caches. Call it while the process has no children whose
 * ends it waits for, and signals as they were. That a cache can't be made is a warning, no error.
 */
int place_image(const struct image_wish *wish, struct image_place *ret, struct err *e);

/* Removes both directories, and the tables of images and agents, of the state directory that is open as `state_dir`. */
int prime_remove(int state_dir, struct err *e);

#endif
