/* SPDX-License-Identifier: Apache-2.0 */
/* The `syscalls` of a policy, by number: for the filter of a sandbox and for that of a command of the host. */
#ifndef WEIR_RUNNER_FILTER_SYSCALLS_H
#define WEIR_RUNNER_FILTER_SYSCALLS_H

#include <stdint.h>

#include "core/err.h"
#include "core/policy.h"
#include "plan.h"

#define FILTER_SYSCALLS_MAX FILTER_NUMBERS

struct filter_syscalls {
	uint32_t action[FILTER_SYSCALLS_MAX]; /* SCMP_ACT_*; 0: the policy says nothing of this call */
};

/*
 * Of several entries for one call the one that counts is sysgroups_refusals()'. A call that this machine does not have can't be
 * made, so it is left out. Fails as that does: e->where is a JSON pointer.
 */
int filter_syscalls_of(const struct policy *p, struct filter_syscalls *ret, struct err *e);

/* 0 for every number out of range. */
uint32_t filter_syscalls_action(const struct filter_syscalls *s, int nr);

#endif
