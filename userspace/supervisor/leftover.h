/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command's connections still hold when it is gone. The kernel would go on sending it when nobody judges any more, so
 * none of it may be there by then: what the policy denies is destroyed, what it allows is waited for, within bounds.
 */
#ifndef WEIR_SUPERVISOR_LEFTOVER_H
#define WEIR_SUPERVISOR_LEFTOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/image.h"

/* Zero but for `cgroup` at the beginning. */
struct leftover {
	uint64_t cgroup;
	uint64_t began_ns, moved_ns; /* when any of it was last taken */
	uint64_t queued;
	unsigned rounds, closings; /* closings: rounds in a row that destroyed something */
	bool told_stuck;
};

/*
 * One look, by the policy in force; the programs are still attached. Returns for how many milliseconds to wait before the
 * next, or 0 when all is done. `hurry`: nothing is waited for.
 */
int leftover_round(struct leftover *l, const struct policy_image *image, bool hurry);

/* Of a cgroup whose policy is not known any more: all of it is destroyed. In the caller's network namespace. */
void leftover_destroy(uint64_t cgroup);

#endif
