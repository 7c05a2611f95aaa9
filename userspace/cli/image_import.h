/* SPDX-License-Identifier: Apache-2.0 */
/* `weir image import`: from a file or directory to an entry in the table of images. */
#ifndef WEIR_CLI_IMAGE_IMPORT_H
#define WEIR_CLI_IMAGE_IMPORT_H

#include <stdbool.h>

#include "core/err.h"

#define IMAGE_IMPORT_STDIN "-"

struct image_import {
	const char *source;    /* PATH, PATH:REF, or IMAGE_IMPORT_STDIN: an archive on standard input */
	const char *name;      /* image_name_ok(), or NULL: what it is called where it comes from */
	const char *state_dir; /* made if it is missing */
	bool json;
};

/* Prints what came of it to standard output, what was left out and how far it is to standard error. */
int image_import(const struct image_import *r, struct err *e);

#endif
