/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/ending.h"

#include <string.h>

bool ending_add(struct ending *q, const char *run_id, int64_t at_ms)
{
	size_t at = (q->first + q->count) % ENDING_MAX;

	if (q->count == ENDING_MAX)
		return false;
	memset(q->ids[at], 0, IPC_ID_MAX);
	memcpy(q->ids[at], run_id, strnlen(run_id, IPC_ID_MAX - 1));
	q->at_ms[at] = at_ms;
	q->count++;
	return true;
}

const char *ending_take(struct ending *q, int64_t now_ms)
{
	const char *id = q->ids[q->first];

	if (!q->count || q->at_ms[q->first] > now_ms)
		return NULL;
	q->first = (q->first + 1) % ENDING_MAX;
	q->count--;
	return id;
}

int64_t ending_deadline(const struct ending *q)
{
	return q->count ? q->at_ms[q->first] : INT64_MAX;
}
