/* SPDX-License-Identifier: Apache-2.0 */
#include "core/histogram.h"

/* From what a warm sandbox takes to what a tool's deadline is. */
const uint64_t histogram_bounds_us[HISTOGRAM_BUCKETS] = {
    100,    250,    500,    1000,    2500,    5000,	10000,	  25000,     50000,
    100000, 250000, 500000, 1000000, 2500000, 10000000, 30000000, 120000000,
};

void histogram_add(struct histogram *h, uint64_t us)
{
	h->count++;
	h->sum_us += us;
	for (int i = 0; i < HISTOGRAM_BUCKETS; i++)
		if (us <= histogram_bounds_us[i]) {
			h->bucket[i]++;
			return;
		}
}
