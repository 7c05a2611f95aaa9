/* SPDX-License-Identifier: Apache-2.0 */
/* Which rows of many there is room for on one page. */
#include <errno.h>
#include <stdlib.h>

#include "report/places.h"
#include "report/period.h"
#include "report/words.h"

static int leave_out(struct report_period *p, const json_t *table, const json_t *row)
{
	json_t *left_out = period_group(p->left_out, member_text(row, "project"));

	if (!left_out)
		return -1;
	if (table == p->runs) {
		p->runs_left_out++;
		return period_count(left_out, "runs", 1);
	}
	p->destinations_left_out++;
	return period_count(left_out, "destinations", 1) | period_count(left_out, "attempts", member_count(row, "count"));
}

/* All of a table, in the order in which they get a place. */
static struct places_row *rows_of(json_t *table, size_t *ret_count)
{
	struct places_row *rows = calloc(json_object_size(table) + 1, sizeof *rows);
	const char *key;
	json_t *row;
	size_t n = 0;

	if (!rows)
		return NULL;
	json_object_foreach(table, key, row)
	{
		rows[n++] = (struct places_row){.group = member_text(row, "project"),
						.part = member_count(row, "part"),
						.kind = member_count(row, "kind"),
						.count = member_count(row, "count"),
						.order = member_count(row, "order"),
						.key = key,
						.row = row};
	}
	places_sort(rows, n);
	*ret_count = n;
	return rows;
}

int period_thin(struct report_period *p, json_t **table, size_t room)
{
	json_t *kept = json_object();
	size_t count = 0;
	struct places_row *rows = kept ? rows_of(*table, &count) : NULL;
	int bad = !rows;

	for (size_t i = 0; i < count && !bad; i++)
		bad = i < room ? json_object_set_nocheck(kept, rows[i].key, rows[i].row) : leave_out(p, *table, rows[i].row);
	free(rows);
	if (bad) {
		json_decref(kept);
		return -ENOMEM;
	}
	json_decref(*table);
	*table = kept;
	return 0;
}

static int by_count(const void *a, const void *b)
{
	const struct places_row *x = a, *y = b;

	if (x->count != y->count)
		return x->count < y->count ? 1 : -1;
	return x->order < y->order ? -1 : 1;
}

/* What has no count, runs, in the order in which they came. */
static json_t *listed(json_t *table)
{
	size_t count = 0;
	struct places_row *rows = rows_of(table, &count);
	json_t *list = rows ? json_array() : NULL;
	int bad = !list;

	if (rows)
		qsort(rows, count, sizeof *rows, by_count);
	for (size_t i = 0; i < count && !bad; i++)
		bad = json_array_append(list, rows[i].row);
	free(rows);
	if (!bad)
		return list;
	json_decref(list);
	return NULL;
}

int period_settle(struct report_period *p, json_t **ret_runs, json_t **ret_destinations)
{
	json_t *runs, *destinations;

	if (period_thin(p, &p->runs, REPORT_RUNS_MAX) < 0 || period_thin(p, &p->destinations, REPORT_DESTINATIONS_MAX) < 0)
		return -ENOMEM;
	runs = listed(p->runs);
	destinations = runs ? listed(p->destinations) : NULL;
	if (!destinations) {
		json_decref(runs);
		return -ENOMEM;
	}
	*ret_runs = runs;
	*ret_destinations = destinations;
	return 0;
}
