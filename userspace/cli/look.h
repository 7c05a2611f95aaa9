/* SPDX-License-Identifier: Apache-2.0 */
/* What can be seen of a configuration's files without starting or making anything. A name or path that passes may still not do.
 */
#ifndef WEIR_CLI_LOOK_H
#define WEIR_CLI_LOOK_H

#include "core/err.h"

/* Whether there is such a root directory or OCI layout (`image` as in struct image_wish). Errors are about "--image". */
int look_image(const char *image, struct err *e);

/*
 * Whether there is such a program: a path, or a name on PATH. With an image: a path inside it; a name, and what is in a layout,
 * is not looked for. Errors are about "--python".
 */
int look_python(const char *python, const char *image, struct err *e);

/* Whether a service may use that state directory, or could make it. Errors are about "--state-dir". */
int look_state_dir(const char *path, struct err *e);

#endif
