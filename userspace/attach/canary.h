/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process of ours, born in a leaf of the target's cgroup and in a network namespace of its own that leads nowhere, which
 * tries what the policy denies and what it allows. What it meets, and what the kernel counted for it, must be what the policy
 * says. Nothing of it leaves, and nothing of the workload is touched.
 */
#ifndef WEIR_ATTACH_CANARY_H
#define WEIR_ATTACH_CANARY_H

#include <stdbool.h>
#include <stdint.h>

#include "attach/target.h"
#include "core/image.h"
#include "kernel/guard.h"

#define CANARY_MS 3000

struct canary {
	bool proven;
	unsigned attempts, denied, would_deny; /* of the target's counters, these are the canary's */
	char leaf[PATH_MAX];		       /* the cgroup it was in */
	char why[160];			       /* not proven: why */
};

/*
 * An error is what must not be: a verdict that is not the policy's, or an attempt the kernel did not see (where = "policy").
 * That no process could be started there (limit of processes, frozen, no leaf) is no error: `proven` is false, `why` says it.
 */
int canary_try(const struct target *t, struct guard *g, const struct policy_image *image, struct canary *ret, struct err *e);

#endif
