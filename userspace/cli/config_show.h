/* SPDX-License-Identifier: Apache-2.0 */
/* What `weir serve --check-config` prints. */
#ifndef WEIR_CLI_CONFIG_SHOW_H
#define WEIR_CLI_CONFIG_SHOW_H

#include <stdbool.h>

#include "core/config.h"

/* Prints every key of a merged configuration: its value and where that comes from. `policy_only`: those of sandboxes are not
 * used. */
int config_show(const struct config *c, bool policy_only, bool json, struct err *e);

#endif
