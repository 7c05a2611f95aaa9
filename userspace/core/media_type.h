/* SPDX-License-Identifier: Apache-2.0 */
/* The media type of a file, guessed from its name and from nothing else. Pure. */
#ifndef WEIR_CORE_MEDIA_TYPE_H
#define WEIR_CORE_MEDIA_TYPE_H

#include <stddef.h>

/* By the extension of the last component, whatever its case. Never NULL: "application/octet-stream" for what is not known. */
const char *media_type(const char *path, size_t len);

#endif
