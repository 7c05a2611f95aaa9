/* SPDX-License-Identifier: Apache-2.0 */
/* collector_walk() with its clock in the caller's hands, for tests. */
#ifndef WEIR_COLLECTOR_WALK_H
#define WEIR_COLLECTOR_WALK_H

#include "collector/collector.h"

/* As collector_walk(); `deadline_ns` of CLOCK_MONOTONIC is when to stop looking: what is left is listed as too many. */
int walk_until(uint64_t deadline_ns, int dir, const struct collect *job, int manifest, struct collected *ret, int *ret_data,
	       int *ret_manifest);

#endif
