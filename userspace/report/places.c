/* SPDX-License-Identifier: Apache-2.0 */
#include "report/places.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* From within outwards: those of one kind are ranked, then the kinds of one part take turns, the parts of a group, the groups.
 */
enum level { OF_KIND, OF_PART, OF_GROUP, OF_ALL, LEVELS };

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* Which of two goes first, of the same set at this level. */
static int by_turn(const struct places_row *a, const struct places_row *b)
{
	int r = compare(a->rank, b->rank);

	if (!r)
		r = compare(a->kind, b->kind);
	if (!r)
		r = compare(b->count, a->count);
	return r ? r : compare(a->order, b->order);
}

static int by_set(const struct places_row *a, const struct places_row *b, enum level level)
{
	int r = level < OF_ALL ? strcmp(a->group, b->group) : 0;

	if (!r && level < OF_GROUP)
		r = compare(a->part, b->part);
	if (!r && level < OF_PART)
		r = compare(a->kind, b->kind);
	return r;
}

static int at_level(const void *a, const void *b, void *level)
{
	int r = by_set(a, b, *(const enum level *)level);

	return r ? r : by_turn(a, b);
}

void places_sort(struct places_row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++)
		rows[i].rank = 0;
	for (enum level level = OF_KIND; level < LEVELS; level++) {
		size_t first = 0;

		qsort_r(rows, count, sizeof *rows, at_level, &level);
		/* The order of the last level is the result; before, each learns its turn in its set. */
		for (size_t i = 0; i < count && level < OF_ALL; i++) {
			if (by_set(&rows[first], &rows[i], level))
				first = i;
			rows[i].rank = i - first;
		}
	}
}
