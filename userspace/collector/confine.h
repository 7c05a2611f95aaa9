/* SPDX-License-Identifier: Apache-2.0 */
/* How the collector gives up what it was started with. */
#ifndef WEIR_COLLECTOR_CONFINE_H
#define WEIR_COLLECTOR_CONFINE_H

#include "collector/collector.h"
#include "core/err.h"

/*
 * Closes every descriptor but the client's, makes the empty directory its root, becomes uid and gid (not 0) with no capability
 * in any set but CAP_DAC_READ_SEARCH in the permitted and effective ones, and leaves itself the system calls of one walk and
 * its messages. Checks afterwards that it holds. For good. Without a directory (tests): only the system calls.
 */
int collector_confine(const struct collector_config *config, struct err *e);

#endif
