/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_IMAGE_TRY_H
#define WEIR_CLI_IMAGE_TRY_H

#include "core/err.h"
#include "python.h"

/*
 * Whether sandboxes can be made of the root directory `root` and its interpreter: our layer is laid over it and looked at, as
 * the supervisor will (runner/image.h), in a mount namespace that is gone afterwards. Nothing of the root is run.
 */
int image_try(const char *root, const struct python *py, struct err *e);

#endif
