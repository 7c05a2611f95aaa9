/* SPDX-License-Identifier: Apache-2.0 */
/* Where an image's Python will find an agent's modules. Only names of files are looked at: nothing of an image is run. */
#ifndef WEIR_CLI_AGENT_MODULES_H
#define WEIR_CLI_AGENT_MODULES_H

#include <stddef.h>

#include "registry/agents.h"
#include "registry/images.h"

/*
 * Of a name that is a file's ("tools.py", "./app/tools.py"), the module's in `ret`; NULL when it is not. `size` cuts it.
 */
const char *agent_module_of_file(const char *text, char *ret, size_t size);

/*
 * Says on standard error what will be in the way of an import: modules that are not where Python looks (the working directory,
 * PYTHONPATH, its library, its packages, what .pth files name), those that are a directory without __init__.py, an image whose
 * files are gone. `root`: the image's directory. All of it is a warning: a hook of the image's may find more.
 */
void agent_modules_warn(const char *root, const struct image_entry *image, const struct agent_entry *a);

#endif
