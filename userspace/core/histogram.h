/* SPDX-License-Identifier: Apache-2.0 */
/* How long things took, in fixed buckets: the same ones for everything, so that stages can be compared. Pure. */
#ifndef WEIR_CORE_HISTOGRAM_H
#define WEIR_CORE_HISTOGRAM_H

#include <stdint.h>

/* Upper bounds, in microseconds. What is over the last is in the count alone. */
#define HISTOGRAM_BUCKETS 17
extern const uint64_t histogram_bounds_us[HISTOGRAM_BUCKETS];

struct histogram {
	uint64_t count, sum_us;
	uint64_t bucket[HISTOGRAM_BUCKETS]; /* each for itself, not cumulative */
};

void histogram_add(struct histogram *h, uint64_t us);

#endif
