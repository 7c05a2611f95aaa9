/* SPDX-License-Identifier: Apache-2.0 */
/* Records of no run (gaps, policies, who wrote): the digests that entries have over them, each over those that were new. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "auditor/verify_internal.h"

#define THE_RECORDS "the records of no run"
#define DIGESTS_MAX (1u << 20)

static int add(struct verify_digests *d, const json_t *others, uint64_t by)
{
	const char *told = json_string_value(json_object_get(others, "sha256"));
	size_t room = d->room ? d->room * 2 : 64;
	struct verify_digest *bigger;

	if (!told)
		return 0;
	if (d->count == d->room) {
		bigger = room <= DIGESTS_MAX ? realloc(d->of, room * sizeof *bigger) : NULL;
		if (!bigger)
			return -ENOMEM;
		d->of = bigger;
		d->room = room;
	}
	d->of[d->count] = (struct verify_digest){.first = verify_member(others, "first_seq"),
						 .last = verify_member(others, "last_seq"),
						 .count = verify_member(others, "count"),
						 .by = by};
	snprintf(d->of[d->count++].sha256, sizeof d->of->sha256, "%s", told);
	return 0;
}

/* Its own, and those of entries that it removed. */
void verify_digests_add(struct verify *v, const struct verify_entry *entry)
{
	const json_t *one;
	size_t i;
	int bad = add(&v->digests, json_object_get(entry->json, "others"), entry->n);

	json_array_foreach(json_object_get(entry->json, "others_kept"), i, one)
	{
		bad |= add(&v->digests, one, entry->n);
	}
	if (bad)
		verify_find(v->report, VERIFY_DAMAGED, entry->n, NULL,
			    "there are more digests over records of no run than can be checked");
}

static int by_first(const void *a, const void *b)
{
	const struct verify_digest *x = a, *y = b;

	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return x->last < y->last ? -1 : x->last > y->last;
}

/* Where the walk along the records is. */
struct at {
	size_t i; /* the digest that the next record may be under */
	struct chain_records digest;
	uint64_t there, wrong, strange, first_strange;
};

static void end_digest(struct verify *v, struct at *at)
{
	const struct verify_digest *d = &v->digests.of[at->i++];
	uint8_t hash[CHAIN_HASH];
	char hex[2 * CHAIN_HASH + 1];

	(void)chain_records_end(&at->digest, hash);
	chain_hex(hash, hex);
	/* Of one whose first records were removed for their age the rest can't be known. */
	if (d->first <= v->others_pruned)
		v->report->nobodys += at->there;
	else if (at->there < d->count)
		verify_find(v->report, VERIFY_REMOVED, d->by, NULL,
			    "%" PRIu64 " of the %" PRIu64 " records of no run (gaps, policies, who wrote) from %" PRIu64
			    " to %" PRIu64 " are there",
			    at->there, d->count, d->first, d->last);
	else if (at->there > d->count)
		verify_find(v->report, VERIFY_INSERTED, d->by, NULL,
			    "there are %" PRIu64 " records of no run from %" PRIu64 " to %" PRIu64 ", and %" PRIu64
			    " were hashed",
			    at->there, d->first, d->last, d->count);
	else if (strcmp(hex, d->sha256) != 0)
		verify_find(v->report, VERIFY_CHANGED, d->by, NULL,
			    "records of no run (gaps, policies, who wrote) from %" PRIu64 " to %" PRIu64
			    " are not what was hashed",
			    d->first, d->last);
	at->there = 0;
}

static void take_record(struct verify *v, struct at *at, sqlite3_stmt *st)
{
	const uint64_t seq = (uint64_t)sqlite3_column_int64(st, 0),
		       end = v->digests.count ? v->digests.of[v->digests.count - 1].last : 0;
	json_t *json = verify_record_json(st, 3);
	const char *body = verify_text(st, 3);

	while (at->i < v->digests.count && v->digests.of[at->i].last < seq && sqlite3_column_int64(st, 0) > 0)
		end_digest(v, at);
	if (sqlite3_column_int64(st, 0) > 0 && seq > end) {
		v->report->nobodys++;
	} else if (at->i < v->digests.count && seq >= v->digests.of[at->i].first && sqlite3_column_int64(st, 0) > 0) {
		(void)chain_records_add(&at->digest, body ? body : "", body ? (size_t)sqlite3_column_bytes(st, 3) : 0);
		at->there++;
	} else if (!(seq <= v->others_pruned && v->pending)) {
		at->first_strange = at->strange++ ? at->first_strange : seq;
	}
	at->wrong += !verify_record_columns(json, verify_text(st, 1), (uint64_t)sqlite3_column_int64(st, 2));
	json_decref(json);
}

static void settle(struct verify_digests *d)
{
	size_t kept = 0;

	if (d->count)
		qsort(d->of, d->count, sizeof *d->of, by_first);
	for (size_t i = 0; i < d->count; i++)
		if (!kept || d->of[i].first > d->of[kept - 1].last)
			d->of[kept++] = d->of[i];
	d->count = kept;
}

void verify_others(struct verify *v)
{
	sqlite3_stmt *st =
	    verify_prepare(v, "SELECT seq, type, time_ns, body FROM record WHERE run IS NULL ORDER BY seq", THE_RECORDS);
	struct at at = {0};

	settle(&v->digests);
	while (at.i < v->digests.count && v->digests.of[at.i].last <= v->others_pruned)
		at.i++;
	while (verify_step(v, st, THE_RECORDS))
		take_record(v, &at, st);
	sqlite3_finalize(st);
	while (at.i < v->digests.count)
		end_digest(v, &at);
	if (at.strange && v->blind)
		v->report->nobodys += at.strange;
	else if (at.strange)
		verify_find(v->report, VERIFY_INSERTED, 0, NULL,
			    "%" PRIu64 " records of no run (the first is %" PRIu64
			    ") are under no entry, and entries were made after them",
			    at.strange, at.first_strange);
	if (at.wrong)
		verify_find(v->report, VERIFY_CHANGED, 0, NULL,
			    "the type or time of %" PRIu64 " records of no run is not what the record says", at.wrong);
}
