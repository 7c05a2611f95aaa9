/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the system calls that a policy names exist. */
#ifndef WEIR_RUNNER_SYSNAMES_H
#define WEIR_RUNNER_SYSNAMES_H

#include <stdbool.h>

#include "core/err.h"
#include "core/policy.h"

/* Whether libseccomp knows a system call of that name, on any architecture. */
bool sysnames_known(const char *name);

/*
 * Checks every name in the policy's `syscalls`, groups by the embedded table. EINVAL with the JSON pointer of the first that is
 * not known. What policy_parse() can't know; whoever loads or checks a document asks this too.
 */
int sysnames_check(const struct policy *p, struct err *e);

#endif
