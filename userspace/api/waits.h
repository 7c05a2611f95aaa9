/* SPDX-License-Identifier: Apache-2.0 */
/* How long the last requests waited for their sandboxes, for `GET /v1/pool`. Pure. */
#ifndef WEIR_API_WAITS_H
#define WEIR_API_WAITS_H

#include <stddef.h>
#include <stdint.h>

#define WAITS_KEPT 1024

/* All zero: none yet. */
struct waits {
	uint32_t us[WAITS_KEPT]; /* a ring: the newest overwrites the oldest */
	size_t count, next;
};

/* Microseconds; more than fits counts as what fits. */
void waits_add(struct waits *w, uint64_t us);

/* Percentiles by the nearest rank: each is a wait that there was. All 0 when count is 0. Microseconds. */
struct waits_summary {
	size_t count;
	uint32_t p50, p90, p99, max;
};
void waits_sum_up(const struct waits *w, struct waits_summary *ret);

#endif
