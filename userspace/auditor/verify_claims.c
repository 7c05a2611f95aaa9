/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What entries say of others: which were pruned, and which a start found unsigned. It is believed of those alone that have a
 * good signature of their own: a prune is signed before anything goes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "auditor/verify_internal.h"

#define THE_CHAIN "the chain"
#define RANGES_MAX (1u << 20)

static int add_range(struct verify_ranges *r, uint64_t from, uint64_t to, uint64_t by)
{
	size_t room = r->room ? r->room * 2 : 64;
	struct verify_range *bigger;

	if (r->count == r->room) {
		bigger = room <= RANGES_MAX ? realloc(r->of, room * sizeof *bigger) : NULL;
		if (!bigger)
			return -ENOMEM;
		r->of = bigger;
		r->room = room;
	}
	r->of[r->count++] = (struct verify_range){from, to, by};
	return 0;
}

uint64_t verify_member(const json_t *object, const char *name)
{
	json_int_t n = json_integer_value(json_object_get(object, name));

	return n > 0 ? (uint64_t)n : 0;
}

static int add_ranges(struct verify_ranges *r, uint64_t n, const json_t *list)
{
	const json_t *range;
	size_t i;

	json_array_foreach(list, i, range)
	{
		json_int_t from = json_integer_value(json_array_get(range, 0)),
			   to = json_integer_value(json_array_get(range, 1));

		if (from > 0 && to >= from && (uint64_t)to < n && add_range(r, (uint64_t)from, (uint64_t)to, n) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int by_from(const void *a, const void *b)
{
	const struct verify_range *x = a, *y = b;

	return x->from < y->from ? -1 : x->from > y->from;
}

/* In order, and each number in one of them at most. */
static void settle(struct verify_ranges *r)
{
	size_t kept = 0;

	if (r->count)
		qsort(r->of, r->count, sizeof *r->of, by_from);
	for (size_t i = 0; i < r->count; i++) {
		struct verify_range *last = kept ? &r->of[kept - 1] : NULL, one = r->of[i];

		if (last && one.from <= last->to) {
			if (one.to <= last->to)
				continue;
			one.from = last->to + 1;
		}
		r->of[kept++] = one;
	}
	r->count = kept;
}

/* The index of the first range that begins after n. */
static size_t after(const struct verify_ranges *r, uint64_t n)
{
	size_t low = 0, high = r->count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (r->of[middle].from <= n)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct verify_range *verify_range_of(const struct verify_ranges *r, uint64_t n)
{
	size_t i = after(r, n);

	return i && r->of[i - 1].to >= n ? &r->of[i - 1] : NULL;
}

uint64_t verify_next_range(const struct verify_ranges *r, uint64_t n, uint64_t otherwise)
{
	size_t i = after(r, n);

	return i < r->count && r->of[i].from < otherwise ? r->of[i].from : otherwise;
}

/* ---- whose word it is ---- */

/* n, body, digest, before, hash, signature. Where nobody has a key everything is said once, and this is believed. */
static bool is_signed(const struct verify *v, sqlite3_stmt *st, uint64_t n)
{
	uint8_t digest[CHAIN_HASH], before[CHAIN_HASH], told[CHAIN_HASH], hash[CHAIN_HASH], signature[CHAIN_SIGNATURE];

	if (!verify_text(st, 1) || !verify_hash(st, 2, CHAIN_HASH, before) || !verify_hash(st, 3, CHAIN_HASH, told))
		return false;
	chain_body_digest(verify_text(st, 1), (size_t)sqlite3_column_bytes(st, 1), digest);
	chain_hash(n, before, digest, hash);
	if (memcmp(hash, told, sizeof hash) != 0)
		return false;
	return !v->checker ||
	       (verify_hash(st, 4, CHAIN_SIGNATURE, signature) && signing_check(v->checker, hash, signature) == 0);
}

static int read_prune(struct verify *v, uint64_t n, const json_t *body)
{
	const char *hash = json_string_value(json_object_get(body, "prefix_hash"));
	const json_t *total = json_object_get(body, "total");
	uint64_t others = verify_member(json_object_get(body, "others_pruned"), "to");

	if (add_ranges(&v->bodies, n, json_object_get(body, "entries")) < 0 ||
	    add_ranges(&v->rows, n, json_object_get(body, "skeletons")) < 0)
		return -ENOMEM;
	if (verify_member(body, "prefix") > v->prefix && verify_member(body, "prefix") < n && hash &&
	    chain_from_hex(hash, v->prefix_hash) == 0) {
		v->prefix = verify_member(body, "prefix");
		v->prefix_by = n;
	}
	v->others_pruned = others > v->others_pruned ? others : v->others_pruned;
	for (int i = 0; i < 3; i++)
		v->pruned[i] = verify_member(total, (const char *const[]){"runs", "records", "bytes"}[i]);
	return 0;
}

/* Whether those that are there are what they were then. Some may have been pruned since: then it can't be known any more. */
static bool same_hashes(struct verify *v, const json_t *body)
{
	const char *told = json_string_value(json_object_get(body, "hashes_sha256"));
	sqlite3_stmt *st = verify_prepare(v, "SELECT hash FROM chain WHERE n BETWEEN ? AND ? ORDER BY n", THE_CHAIN);
	struct chain_records all = {0};
	char hex[2 * CHAIN_HASH + 1];
	uint8_t digest[CHAIN_HASH];
	uint64_t should = 0;
	const json_t *range;
	bool whole;
	size_t i;

	json_array_foreach(json_object_get(body, "entries"), i, range)
	{
		json_int_t from = json_integer_value(json_array_get(range, 0)),
			   to = json_integer_value(json_array_get(range, 1));

		if (!st || from < 1 || to < from || sqlite3_bind_int64(st, 1, from) || sqlite3_bind_int64(st, 2, to))
			continue;
		should += (uint64_t)(to - from) + 1;
		while (verify_step(v, st, THE_CHAIN))
			(void)chain_records_add(&all, sqlite3_column_blob(st, 0) ? sqlite3_column_blob(st, 0) : "",
						(size_t)sqlite3_column_bytes(st, 0));
		sqlite3_reset(st);
	}
	sqlite3_finalize(st);
	whole = all.count == should;
	(void)chain_records_end(&all, digest);
	chain_hex(digest, hex);
	return !whole || (told && strcmp(told, hex) == 0);
}

static int read_break(struct verify *v, uint64_t n, const json_t *body)
{
	if (!json_array_size(json_object_get(body, "entries")))
		return 0;
	if (!same_hashes(v, body))
		verify_find(v->report, VERIFY_CHANGED, n, NULL,
			    "entries that it took over, as a start found them, are not what they were then");
	return add_ranges(&v->adopted, n, json_object_get(body, "entries"));
}

/* Prunes of what was taken over have removed nothing, unless they were signed before that. */
static bool is_void(const json_t *voids, uint64_t n)
{
	const json_t *one;
	size_t i;

	json_array_foreach(voids, i, one)
	{
		if (json_integer_value(one) == (json_int_t)n)
			return true;
	}
	return false;
}

static int read_all(struct verify *v, const char *kind, json_t *voids,
		    int (*fn)(struct verify *v, uint64_t n, const json_t *body))
{
	sqlite3_stmt *st =
	    verify_prepare(v,
			   "SELECT n, body, before, hash, signature FROM chain WHERE kind = ? AND kind <> 'run' AND"
			   " body IS NOT NULL ORDER BY n",
			   THE_CHAIN);
	int r = st && sqlite3_bind_text(st, 1, kind, -1, SQLITE_STATIC) != SQLITE_OK ? -ENOMEM : 0;

	while (r == 0 && verify_step(v, st, THE_CHAIN)) {
		const uint64_t n = (uint64_t)sqlite3_column_int64(st, 0);
		json_t *body =
		    is_signed(v, st, n) ? json_loadb(verify_text(st, 1), (size_t)sqlite3_column_bytes(st, 1), 0, NULL) : NULL;

		if (body && !is_void(voids, n))
			r = fn(v, n, body);
		if (r == 0 && fn == read_break && json_array_extend(voids, json_object_get(body, "void")) < 0 &&
		    json_is_array(json_object_get(body, "void")))
			r = -ENOMEM;
		json_decref(body);
	}
	sqlite3_finalize(st);
	return r;
}

int verify_claims(struct verify *v, struct err *e)
{
	json_t *voids = json_array();
	int r = voids ? read_all(v, chain_kind_names[CHAIN_BREAK], voids, read_break) : -ENOMEM;

	if (r == 0)
		r = read_all(v, chain_kind_names[CHAIN_PRUNE], voids, read_prune);
	json_decref(voids);
	if (r < 0)
		return err_set(e, ENOMEM, "audit", "out of memory for what was pruned");
	settle(&v->bodies);
	settle(&v->rows);
	settle(&v->adopted);
	return 0;
}
