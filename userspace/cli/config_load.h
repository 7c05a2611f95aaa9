/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the configuration file. */
#ifndef WEIR_CLI_CONFIG_LOAD_H
#define WEIR_CLI_CONFIG_LOAD_H

#include "core/config.h"

#define CONFIG_FILE_DEFAULT "/etc/weir/weir.json"

/*
 * Reads `file`, which must be there; or, with NULL, CONFIG_FILE_DEFAULT, which need not. Paths in *ret are absolute: those of
 * the file count from its own directory. Nothing that the file does not say is filled in (config_merge does that). *ret is the
 * caller's (config_clear), touched only on success; its `file` says what was read.
 */
int config_load(const char *file, struct config *ret, struct err *e);

/*
 * Makes every path in *c absolute that is not: it counts from `dir`. Names of shipped policies, and of interpreters to be
 * looked for on PATH, stay as they are.
 */
int config_absolute(struct config *c, const char *dir, struct err *e);

/* An error about an option (`where` names it) is about the file when that is where the value came from: says so. */
void config_blame(const struct config *c, struct err *e);

/*
 * Where the state directory is, for commands that look into a service's: `option` if it is given, else what the file says
 * (`file` as above), else the default. malloc'd into *ret.
 */
int config_state_dir(const char *option, const char *file, char **ret, struct err *e);

#endif
