/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader of many runs should not miss: gaps, what was pruned, breaks of the chain. */
#include "auditor/store_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/event.h"

#define ENTRIES_SEEN_MAX 10000

/* A record or an entry as a notice; NULL without memory, or when it is no JSON any more. */
static json_t *notice(const char *number, sqlite3_stmt *st)
{
	static const char *const everybodys[] = {"type", "run_id", "sandbox_id", "project"};
	json_t *n = json_loadb(sql_text(st, 1), (size_t)sqlite3_column_bytes(st, 1), 0, NULL);
	int bad = json_is_object(n) ? json_object_set_new(n, number, json_integer(sqlite3_column_int64(st, 0))) : -1;

	for (size_t i = 0; i < sizeof everybodys / sizeof everybodys[0]; i++)
		json_object_del(n, everybodys[i]);
	if (!bad && strcmp(number, "seq") == 0) {
		json_t *kind = json_object_get(n, "kind");

		bad = json_object_set(n, "gap", kind ? kind : json_null()) | json_object_set_new(n, "kind", json_string("gap"));
	}
	if (bad) {
		json_decref(n);
		return NULL;
	}
	return n;
}

static const char *when(const json_t *n)
{
	const char *text = json_string_value(json_object_get(n, "time"));

	return text ? text : "";
}

/* Both lists are newest first. */
static int merge(json_t *into, const json_t *a, const json_t *b, size_t max)
{
	size_t i = 0, j = 0;

	while (json_array_size(into) < max) {
		json_t *one = json_array_get(a, i), *other = json_array_get(b, j);

		if (!one && !other)
			break;
		if (one && (!other || strcmp(when(one), when(other)) >= 0))
			i++;
		else
			one = other, j++;
		if (json_array_append(into, one) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int gather(const struct store *s, sqlite3_stmt *st, const char *number, const char *since, const char *until, size_t max,
		  json_t *into)
{
	size_t seen = 0;
	int r;

	while ((r = sql_row(s->q, st)) > 0) {
		json_t *n = notice(number, st);
		bool wanted = n && strcmp(when(n), since) >= 0 && strcmp(when(n), until) < 0;

		if (wanted && json_array_append(into, n) < 0)
			r = -ENOMEM;
		json_decref(n);
		if (r < 0 || json_array_size(into) >= max || ++seen == ENTRIES_SEEN_MAX) {
			sql_done(st);
			return r < 0 ? r : 0;
		}
	}
	return r;
}

int store_notices(const struct store *s, uint64_t since_ns, uint64_t until_ns, size_t max, json_t **ret)
{
	json_t *gaps = json_array(), *entries = json_array(), *all = json_array();
	char since[EVENT_TIME_MAX], until[EVENT_TIME_MAX] = "A"; /* after every time of this age */
	int64_t before = until_ns && until_ns < INT64_MAX ? (int64_t)until_ns : INT64_MAX;
	int r = gaps && entries && all ? 0 : -ENOMEM;

	event_time_text(since, since_ns);
	if (before != INT64_MAX)
		event_time_text(until, until_ns);
	if (r == 0)
		r = gather(s, sql_start(s->q, SQL_NOTICES, "iii", (int64_t)since_ns, before, (int64_t)max), "seq", since, until,
			   max, gaps);
	if (r == 0)
		r = gather(s, sql_start(s->q, SQL_NOTICES_CHAIN, ""), "n", since, until, max, entries);
	if (r == 0)
		r = merge(all, gaps, entries, max);
	json_decref(gaps);
	json_decref(entries);
	if (r < 0)
		json_decref(all);
	else
		*ret = all;
	return r;
}
