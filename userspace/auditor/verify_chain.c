/* SPDX-License-Identifier: Apache-2.0 */
/* The walk along the chain: what each entry should be from the one before it, and when it is not, what was done to it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auditor/verify_internal.h"
#include "core/rfc3339.h"

#define THE_CHAIN "the chain"
/* So many signatures may be on their way to the record when it is looked at, for so long. */
#define ON_ITS_WAY 128
#define ON_ITS_WAY_NS (60 * 1000000000ull)
#define SEARCHES_MAX 16 /* so many look for where an entry was: each may look at all of them */
#define FAR 1000000
#define TEXT_MAX (4u << 20) /* of an entry: more than what is ever written into one */

static const uint8_t zeros[CHAIN_HASH];

/* An entry's columns, and what they should be. */
struct row {
	struct verify_entry entry;
	uint8_t digest[CHAIN_HASH], before[CHAIN_HASH], hash[CHAIN_HASH], signature[CHAIN_SIGNATURE];
	bool is_signed, whole; /* whole: each column has the length that it must have */
	bool is_its_text;      /* the text is what its digest is of; else nothing that it says is looked at */
};

/* Where the walk is. */
struct walk {
	uint64_t n; /* 0: at the beginning */
	uint8_t hash[CHAIN_HASH];
	bool known;  /* the hash is what was signed, as far as anybody can tell */
	bool recent; /* of what was asked for: signatures and records are looked at */
};

/* ---- one entry ---- */

static void read_row(sqlite3_stmt *st, struct row *ret)
{
	struct verify_entry *entry = &ret->entry;

	memset(ret, 0, sizeof *ret);
	entry->n = entry->place = (uint64_t)sqlite3_column_int64(st, 0);
	entry->kind = verify_text(st, 1) ? verify_text(st, 1) : "";
	entry->run_id = verify_text(st, 2);
	entry->body = verify_text(st, 3);
	entry->body_len = entry->body ? (size_t)sqlite3_column_bytes(st, 3) : 0;
	ret->whole = verify_hash(st, 4, CHAIN_HASH, ret->digest) & verify_hash(st, 5, CHAIN_HASH, ret->before) &
		     verify_hash(st, 6, CHAIN_HASH, ret->hash) & (entry->body || sqlite3_column_type(st, 3) == SQLITE_NULL);
	ret->is_signed = sqlite3_column_type(st, 7) != SQLITE_NULL;
	if (ret->is_signed && !verify_hash(st, 7, CHAIN_SIGNATURE, ret->signature))
		memset(ret->signature, 0, sizeof ret->signature); /* no key's over anything */
}

static bool same(const uint8_t *a, const uint8_t *b)
{
	return memcmp(a, b, CHAIN_HASH) == 0;
}

static bool signature_fits(const struct verify *v, const struct row *row, const uint8_t hash[CHAIN_HASH])
{
	return v->checker && row->is_signed && signing_check(v->checker, hash, row->signature) == 0;
}

/* The number of the entry that has `what` as its column, 0: none. Only for what is wrong already: it looks at all of them. */
static uint64_t find_by(struct verify *v, const char *sql, const uint8_t what[CHAIN_HASH])
{
	sqlite3_stmt *st = v->searches++ < SEARCHES_MAX ? verify_prepare(v, sql, THE_CHAIN) : NULL;
	uint64_t n = 0;

	if (st && sqlite3_bind_blob(st, 1, what, CHAIN_HASH, SQLITE_STATIC) == SQLITE_OK && verify_step(v, st, THE_CHAIN))
		n = (uint64_t)sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return n;
}

/* Which number it was made for; 0: none. */
static uint64_t made_for(struct verify *v, const struct row *row)
{
	uint64_t first = row->entry.n > FAR ? row->entry.n - FAR : 1;
	uint8_t hash[CHAIN_HASH];

	if (v->searches++ >= SEARCHES_MAX)
		return 0;
	for (uint64_t n = first; n <= v->max_n && n - first <= 2 * FAR; n++) {
		chain_hash(n, row->before, row->digest, hash);
		if (same(hash, row->hash))
			return n;
	}
	return 0;
}

static const char *body_text(const json_t *json, const char *name, const char *otherwise)
{
	const char *text = json_string_value(json_object_get(json, name));

	return text ? text : otherwise;
}

#define RUN_OF(row) ((row)->entry.run_id)
#define SAY(v, kind, row, ...) verify_find((v)->report, kind, (row)->entry.n, RUN_OF(row), __VA_ARGS__)

/* Its text is not what its digest is of. */
static void explain_body(struct verify *v, const struct row *row, const uint8_t digest[CHAIN_HASH])
{
	uint64_t other = find_by(v, "SELECT n FROM chain WHERE body_digest = ?", digest);

	if (other && other != row->entry.n)
		SAY(v, VERIFY_REORDERED, row, "its text is that of entry %" PRIu64, other);
	else
		SAY(v, VERIFY_CHANGED, row, "its text is not what was hashed");
}

/* Which columns are not what the signature, or the rest of them, says they were. */
static void explain_columns(struct verify *v, const struct row *row, const uint8_t before[CHAIN_HASH],
			    const uint8_t digest[CHAIN_HASH], const uint8_t hash[CHAIN_HASH])
{
	if (!same(row->hash, hash))
		SAY(v, VERIFY_CHANGED, row, "its hash is not what was signed");
	if (!same(row->before, before))
		SAY(v, VERIFY_CHANGED, row, "what it says of the hash before it is not what was hashed");
	if (!same(row->digest, digest))
		SAY(v, VERIFY_CHANGED, row, "the digest of its text is not what was hashed");
}

/*
 * Something of it does not fit. Says what, and returns in `ret` the hash that the next entry should follow: what was signed, as
 * far as that can be known.
 */
static void explain(struct verify *v, struct row *row, struct walk *w, const uint8_t before[CHAIN_HASH],
		    const uint8_t digest[CHAIN_HASH], uint8_t ret[CHAIN_HASH])
{
	const uint64_t n = row->entry.n;
	uint8_t should[CHAIN_HASH], other[CHAIN_HASH];
	uint64_t place;

	chain_hash(n, before, digest, should);
	memcpy(ret, row->hash, CHAIN_HASH);
	if (signature_fits(v, row, should)) {
		memcpy(ret, should, CHAIN_HASH);
		explain_columns(v, row, before, digest, should);
		return;
	}
	chain_hash(n, before, row->digest, other);
	if (same(other, row->hash)) {
		if (!same(row->before, before))
			explain_columns(v, row, before, row->digest, row->hash);
		if (!same(digest, row->digest))
			explain_body(v, row, digest);
		return;
	}
	place = made_for(v, row);
	if (place && place != n) {
		SAY(v, VERIFY_REORDERED, row, "here is what was entry %" PRIu64, place);
		row->entry.place = place;
		w->known = false; /* what should be here is not, and the next is not to blame */
		return;
	}
	chain_hash(n, row->before, row->digest, other);
	if (!same(other, row->hash))
		SAY(v, VERIFY_CHANGED, row, "its hash is not that of what it holds");
	else if (row->is_signed && (!v->checker || signature_fits(v, row, row->hash)))
		verify_find(v->report, VERIFY_CHANGED, w->n, NULL, "it is not what entry %" PRIu64 " was made to follow", n);
	else
		SAY(v, VERIFY_INSERTED, row, "it does not follow the entry before it, and nobody has signed it");
	if (same(other, row->hash) && !same(digest, row->digest))
		explain_body(v, row, digest);
}

/* The hash that it must follow. A break says so itself: it follows what the keeper of the key remembered. */
static const uint8_t *should_follow(const struct row *row, const struct walk *w)
{
	if (row->entry.n == 1)
		return zeros;
	if (strcmp(row->entry.kind, chain_kind_names[CHAIN_BREAK]) == 0 || !w->known || row->entry.n != w->n + 1)
		return row->before;
	return w->hash;
}

static void check_hashes(struct verify *v, struct row *row, struct walk *w)
{
	const uint8_t *before = should_follow(row, w);
	uint8_t digest[CHAIN_HASH], hash[CHAIN_HASH], next[CHAIN_HASH];

	if (row->entry.body)
		chain_body_digest(row->entry.body, row->entry.body_len, digest);
	else
		memcpy(digest, row->digest, sizeof digest);
	row->is_its_text = same(digest, row->digest);
	chain_hash(row->entry.n, before, digest, hash);
	memcpy(next, row->hash, sizeof next);
	w->known = true;
	if (!row->whole)
		SAY(v, VERIFY_CHANGED, row, "a column of it is not of its kind");
	if (!same(hash, row->hash) || !same(before, row->before) || !same(digest, row->digest))
		explain(v, row, w, before, digest, next);
	memcpy(w->hash, next, sizeof next);
}

/* When it was made, as its text says, which is under its hash; 0: it does not. */
static uint64_t made_ns(const struct row *row)
{
	const char *text;
	json_t *body;
	uint64_t ns;

	if (!row->is_its_text || !row->entry.body || row->entry.body_len > TEXT_MAX)
		return 0;
	body = json_loadb(row->entry.body, row->entry.body_len, 0, NULL);
	text = body_text(body, "ended", body_text(body, "time", NULL));
	if (!text || rfc3339_parse(text, &ns) < 0)
		ns = (uint64_t)json_integer_value(json_object_get(json_object_get(body, "row"), "ended_ns"));
	json_decref(body);
	return ns;
}

/* On its way to the record, or to be asked for by the auditor that lives. What is old or followed by a signed one is not. */
static bool may_wait(const struct verify *v, const struct row *row)
{
	const uint64_t n = row->entry.n, now = v->opts->now_ns, made = v->opts->alive && n > v->last_signed ? made_ns(row) : 0;

	return made && v->max_n - n < ON_ITS_WAY && (made < now ? now - made : made - now) <= ON_ITS_WAY_NS;
}

static void check_unsigned(struct verify *v, const struct row *row)
{
	const uint64_t n = row->entry.n;

	if (!v->checker)
		v->keyless++;
	else if (verify_range_of(&v->adopted, n))
		v->report->adopted++;
	else if (may_wait(v, row))
		verify_note(v->report, NOTED_WAITING, n, RUN_OF(row), "it waits for its signature");
	else if (n <= v->last_signed)
		SAY(v, VERIFY_UNSIGNED, row, "it has no signature, and entries after it have theirs");
	else
		SAY(v, VERIFY_UNSIGNED, row,
		    "it has no signature%s: the next start of a service has it signed, or says that nobody can tell who wrote "
		    "it",
		    v->opts->alive ? "" : ", and no service runs that would get it one");
}

/* Over w->hash, which is what it should be. */
static void check_signature(struct verify *v, const struct row *row, const struct walk *w)
{
	const uint64_t n = row->entry.n;

	if (!row->is_signed) {
		check_unsigned(v, row);
		return;
	}
	v->report->signatures++;
	if (!w->recent)
		return;
	signatures_add(v->signatures, n, w->hash, row->signature);
}

/* What the keeper of the key remembers as the last one. */
static void check_head(struct verify *v, const struct row *row, const struct walk *w)
{
	const struct chain_head *head = v->opts->head;

	if (head && head->n == row->entry.n && !same(head->hash, w->hash))
		SAY(v, VERIFY_ROLLED_BACK, row, "it is another entry than the one that was signed last under this number");
}

static void check_expect(struct verify *v, const struct row *row, const struct walk *w)
{
	struct verify_report *r = v->report;
	const struct verify_range *pruned;

	for (size_t i = 0; i < r->expected_count; i++) {
		struct verify_expected *x = &r->expected[i];

		if (!same(x->hash, w->hash))
			continue;
		x->n = row->entry.n;
		snprintf(x->run, sizeof x->run, "%s", RUN_OF(row) ? RUN_OF(row) : "");
		pruned = row->entry.body ? NULL : verify_range_of(&v->bodies, row->entry.n);
		x->pruned_by = pruned ? pruned->by : 0;
	}
}

/* What a start found unsigned, and took over: what a killed service leaves, too. */
static void say_adopted(struct verify *v, const struct row *row)
{
	const json_t *ranges = json_object_get(row->entry.json, "entries"), *last;
	size_t count = json_array_size(ranges);

	last = json_array_get(ranges, count - 1);
	if (count)
		verify_note(v->report, NOTED_ADOPTED, row->entry.n, NULL,
			    "entries %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT
			    " were there unsigned at the start of %s, and taken over as they were: left by a service that was "
			    "killed, or "
			    "written by somebody else",
			    json_integer_value(json_array_get(json_array_get(ranges, 0), 0)),
			    json_integer_value(json_array_get(last, 1)), body_text(row->entry.json, "time", "some time"));
	if (verify_member(row->entry.json, "beyond"))
		SAY(v, VERIFY_INSERTED, row,
		    "the service that started at %s removed %" PRIu64 " entries with numbers that nobody can have got to",
		    body_text(row->entry.json, "time", "some time"), verify_member(row->entry.json, "beyond"));
}

/* An auditor's word for it, signed since. */
static void say_break(struct verify *v, const struct row *row)
{
	const json_t *json = row->entry.json;

	say_adopted(v, row);
	if (strcmp(body_text(json, "reason", ""), "unsigned") == 0)
		return;

	SAY(v, VERIFY_BROKEN, row,
	    "found by a service that started at %s: %s (it had been signed up to n=%" PRIu64 " and ended at n=%" PRIu64 ")",
	    body_text(json, "time", "some time"), body_text(json, "text", "the record was not what had been signed"),
	    verify_member(json_object_get(json, "expected"), "n"), verify_member(json, "last"));
}

static void check_body(struct verify *v, struct row *row, const struct walk *w)
{
	struct verify_entry *entry = &row->entry;
	uint64_t made;

	if (!entry->body) {
		if (!verify_range_of(&v->bodies, entry->n)) {
			SAY(v, VERIFY_REMOVED, row, "its text is gone, and no prune says so");
			v->blind = true;
		}
		return;
	}
	v->blind |= !row->is_its_text;
	if (!row->is_its_text)
		return;
	entry->json = entry->body_len <= TEXT_MAX ? json_loadb(entry->body, entry->body_len, 0, NULL) : NULL;
	if (!entry->json) {
		SAY(v, VERIFY_CHANGED, row, "its text is no JSON");
		return;
	}
	if (rfc3339_parse(body_text(entry->json, "ended", body_text(entry->json, "time", "")), &made) == 0 &&
	    made > v->newest_ns)
		v->newest_ns = made;
	if (strcmp(entry->kind, body_text(entry->json, "kind", "")) != 0)
		SAY(v, VERIFY_CHANGED, row, "its kind is not what its text says");
	if (strcmp(entry->kind, chain_kind_names[CHAIN_BREAK]) == 0)
		say_break(v, row);
	if (w->recent && strcmp(entry->kind, chain_kind_names[CHAIN_RUN]) == 0)
		verify_run(v, entry);
	verify_digests_add(v, entry);
	json_decref(entry->json);
	entry->json = NULL;
}

/* ---- all of them ---- */

/* Entries from..to are not there: says which of them no prune names. From range to range: numbers may be anything. */
static void check_missing(struct verify *v, uint64_t from, uint64_t to)
{
	uint64_t gone = 0, first = 0;

	while (from <= to) {
		const struct verify_range *pruned = verify_range_of(&v->rows, from);
		uint64_t next = pruned ? pruned->to + 1 : verify_next_range(&v->rows, from, to + 1);

		if (!pruned) {
			first = gone ? first : from;
			gone += next - from;
		}
		from = next;
	}
	v->blind |= gone > 0;
	if (gone == 1)
		verify_find(v->report, VERIFY_REMOVED, first, NULL, "it is gone, and no prune says so");
	else if (gone)
		verify_find(v->report, VERIFY_REMOVED, first, NULL,
			    "%" PRIu64 " entries are gone from here to %" PRIu64 ", and no prune says so", gone, to);
}

static void check_hole(struct verify *v, const struct row *row, const struct walk *w)
{
	const uint64_t n = row->entry.n;
	uint64_t from = w->n + 1;

	/* What was missing when there was a break, its entry says. */
	if (n == from || strcmp(row->entry.kind, chain_kind_names[CHAIN_BREAK]) == 0)
		return;
	if (!w->n && v->prefix) {
		from = v->prefix < n ? v->prefix + 1 : n;
		if (from == n && v->prefix == n - 1 && !same(v->prefix_hash, row->before))
			SAY(v, VERIFY_REMOVED, row,
			    "it is the first, and does not follow what entry %" PRIu64 " says was before it", v->prefix_by);
	}
	if (from < n)
		check_missing(v, from, n - 1);
}

/* From when on signatures and records are looked at: a run's own end says. What follows it is newer. */
static bool is_recent(const struct verify *v, const struct row *row, const struct walk *w)
{
	const char *text;
	uint64_t ns = 0;
	json_t *body;

	if (w->recent || !v->opts->since_ns || !row->entry.body || row->entry.body_len > TEXT_MAX)
		return true;
	body = json_loadb(row->entry.body, row->entry.body_len, 0, NULL);
	text = body_text(body, "ended", body_text(body, "time", NULL));
	if (text && rfc3339_parse(text, &ns) < 0)
		ns = UINT64_MAX; /* then it is looked at */
	json_decref(body);
	return ns >= v->opts->since_ns;
}

static int check_row(struct verify *v, struct row *row, struct walk *w, struct err *e)
{
	struct verify_report *r = v->report;

	if (row->is_signed && !v->checker)
		return err_set(
		    e, ENOKEY, "audit",
		    "the record is signed and there is no public key to check it with: audit-key.pub of the state directory "
		    "belongs to it; --public-key names a copy");
	if (r->entries && row->entry.n == w->n)
		SAY(v, VERIFY_INSERTED, row, "two entries have this number");
	check_hole(v, row, w);
	if (row->entry.n != w->n + 1)
		w->known = false;
	w->recent = is_recent(v, row, w);
	check_hashes(v, row, w);
	check_signature(v, row, w);
	check_head(v, row, w);
	check_expect(v, row, w);
	check_body(v, row, w);
	r->first = r->first ? r->first : row->entry.n;
	r->last = w->n = row->entry.n;
	memcpy(r->last_hash, w->hash, CHAIN_HASH);
	r->last_signed = row->is_signed;
	r->entries++;
	return 0;
}

int verify_chain(struct verify *v, struct err *e)
{
	sqlite3_stmt *st = verify_prepare(
	    v, "SELECT n, kind, run_id, body, body_digest, before, hash, signature FROM chain ORDER BY n", THE_CHAIN);
	struct walk w = {.recent = v->opts->since_ns == 0};
	uint64_t skipped = 0;
	int r = 0;

	v->max_n = verify_number(v, "SELECT max(n) FROM chain", 0, THE_CHAIN);
	v->last_signed =
	    verify_number(v, "SELECT n FROM chain WHERE signature IS NOT NULL ORDER BY n DESC LIMIT 1", 0, THE_CHAIN);
	while (r == 0 && verify_step(v, st, THE_CHAIN)) {
		struct row row;

		read_row(st, &row);
		r = check_row(v, &row, &w, e);
		skipped += !w.recent;
	}
	sqlite3_finalize(st);
	if (v->signatures)
		signatures_finish(v->signatures);
	if (skipped)
		verify_note(v->report, NOTED_SKIPPED, 0, NULL,
			    "of the first %" PRIu64
			    " entries, which are older than what was asked for, hashes were checked, and "
			    "signatures and records were not",
			    skipped);
	if (v->keyless)
		verify_find(v->report, VERIFY_UNSIGNED, 0, NULL,
			    "none of the %" PRIu64
			    " entries is signed: the state directory has no key, and anybody who can write the "
			    "record can write another one",
			    v->keyless);
	return r;
}
