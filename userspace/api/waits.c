/* SPDX-License-Identifier: Apache-2.0 */
#include "api/waits.h"

#include <stdlib.h>
#include <string.h>

void waits_add(struct waits *w, uint64_t us)
{
	w->us[w->next] = us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
	w->next = (w->next + 1) % WAITS_KEPT;
	if (w->count < WAITS_KEPT)
		w->count++;
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Of `count` > 0 sorted values. */
static uint32_t percentile(const uint32_t *sorted, size_t count, unsigned percent)
{
	return sorted[(count * percent + 99) / 100 - 1];
}

void waits_sum_up(const struct waits *w, struct waits_summary *ret)
{
	uint32_t sorted[WAITS_KEPT];

	*ret = (struct waits_summary){.count = w->count};
	if (w->count == 0)
		return;
	memcpy(sorted, w->us, w->count * sizeof *sorted);
	qsort(sorted, w->count, sizeof *sorted, compare);
	ret->p50 = percentile(sorted, w->count, 50);
	ret->p90 = percentile(sorted, w->count, 90);
	ret->p99 = percentile(sorted, w->count, 99);
	ret->max = sorted[w->count - 1];
}
