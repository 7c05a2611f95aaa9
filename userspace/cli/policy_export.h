/* SPDX-License-Identifier: Apache-2.0 */
/* `weir policy export`: a policy in the words of other programs. */
#ifndef WEIR_CLI_POLICY_EXPORT_H
#define WEIR_CLI_POLICY_EXPORT_H

#include <stdbool.h>

#include "core/policy.h"

extern const char *const policy_export_formats[]; /* NULL at the end */

bool policy_export_knows(const char *format);

/* Writes to stdout; what the format can't say, as notes to stderr. `name`: of the policy, as it was given. Returns the exit
 * status: 0, or 1 for an error. */
int policy_export(const char *name, const struct policy *p, const char *format);

#endif
