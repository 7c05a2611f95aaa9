/* SPDX-License-Identifier: Apache-2.0 */
/* A run's records: the digest over them, and the columns and the table of destinations that are made from them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "auditor/destination.h"
#include "auditor/record.h"
#include "auditor/verify_internal.h"
#include "core/rfc3339.h"

#define THE_RECORDS "the records"
#define THE_DESTINATIONS "the destinations"

/* Of a type that a run has once, and nobody writes behind its sum. */
static const enum record_type once[] = {RECORD_RUN_BEGIN, RECORD_RUN_END, RECORD_CONTENT, RECORD_START};

json_t *verify_record_json(sqlite3_stmt *st, int column)
{
	const char *body = verify_text(st, column);
	size_t len = body ? (size_t)sqlite3_column_bytes(st, column) : 0;
	json_t *json = body && len < RECORD_TEXT_MAX ? json_loadb(body, len, 0, NULL) : NULL;

	if (json_is_object(json))
		return json;
	json_decref(json);
	return NULL;
}

bool verify_record_columns(const json_t *json, const char *type, uint64_t time_ns)
{
	const char *told = json_string_value(json_object_get(json, "type")),
		   *time = json_string_value(json_object_get(json, "time"));
	uint64_t ns;

	return told && type && strcmp(told, type) == 0 && time && rfc3339_parse(time, &ns) == 0 && ns == time_ns;
}

/* ---- destinations ---- */

static void key_of(char *ret, size_t size, sqlite3_int64 verdict, const char *address, const char *name, const char *mirrored)
{
	snprintf(ret, size, "%lld %s %s %s", verdict, address ? address : "?", name ? name : "?", mirrored ? mirrored : "?");
}

static void expect(json_t *expected, struct verify_records *r, const json_t *json)
{
	char key[2 * DESTINATION_NAME_MAX + 100];
	struct destination d;

	if (!destination_of(json, &d))
		return;
	r->verdicts |= 1u << d.verdict;
	key_of(key, sizeof key, d.verdict, d.address, d.name, d.mirrored);
	json_object_set_new(expected, key, json_true());
}

static void check_destinations(struct verify *v, uint64_t n, const char *run_id, sqlite3_int64 id, json_t *expected)
{
	uint64_t strange = 0;

	if (!v->destinations)
		v->destinations = verify_prepare(v, "SELECT verdict, address, name, mirrored FROM destination WHERE run = ?",
						 THE_DESTINATIONS);
	if (!v->destinations || sqlite3_bind_int64(v->destinations, 1, id) != SQLITE_OK)
		return;
	while (verify_step(v, v->destinations, THE_DESTINATIONS)) {
		char key[2 * DESTINATION_NAME_MAX + 100];

		key_of(key, sizeof key, sqlite3_column_int64(v->destinations, 0), verify_text(v->destinations, 1),
		       verify_text(v->destinations, 2), verify_text(v->destinations, 3));
		strange += json_object_del(expected, key) < 0;
	}
	sqlite3_reset(v->destinations);
	if (strange)
		verify_find(v->report, VERIFY_INSERTED, n, run_id,
			    "a search finds it under %" PRIu64 " destinations that none of its records has", strange);
	if (json_object_size(expected))
		verify_find(v->report, VERIFY_REMOVED, n, run_id,
			    "a search does not find it any more under %zu destinations that its records have",
			    json_object_size(expected));
}

/* ---- records ---- */

static bool is_once(const char *type)
{
	for (size_t i = 0; i < sizeof once / sizeof once[0]; i++)
		if (type && strcmp(type, record_type_names[once[i]]) == 0)
			return true;
	return false;
}

static bool feed(struct chain_records *digest, sqlite3_stmt *st, int column)
{
	const char *body = verify_text(st, column);

	return body && chain_records_add(digest, body, (size_t)sqlite3_column_bytes(st, column)) == 0;
}

static void compare(struct verify *v, uint64_t n, const char *run_id, const struct verify_records *r, bool fits)
{
	if (r->there < r->should)
		verify_find(v->report, VERIFY_REMOVED, n, run_id, "%" PRIu64 " of the run's %" PRIu64 " records are there",
			    r->there, r->should);
	else if (!fits && r->there > r->should)
		verify_find(v->report, VERIFY_INSERTED, n, run_id,
			    "of the run's records the first %" PRIu64 " are not those that were hashed, and there are %" PRIu64,
			    r->should, r->there);
	else if (!fits)
		verify_find(v->report, VERIFY_CHANGED, n, run_id, "the run's records are not what was hashed");
}

bool verify_records(struct verify *v, uint64_t n, const char *run_id, sqlite3_int64 id, struct verify_records *r)
{
	json_t *expected = json_object();
	struct chain_records digest = {0};
	char hex[2 * CHAIN_HASH + 1];
	uint8_t hash[CHAIN_HASH];
	uint64_t wrong = 0;
	bool fits = true;

	if (!v->records)
		v->records =
		    verify_prepare(v, "SELECT seq, type, time_ns, body FROM record WHERE run = ? ORDER BY seq", THE_RECORDS);
	if (!v->records || sqlite3_bind_int64(v->records, 1, id) != SQLITE_OK) {
		json_decref(expected);
		return false;
	}
	for (; verify_step(v, v->records, THE_RECORDS); r->there++) {
		json_t *json = verify_record_json(v->records, 3);

		if (r->there < r->should) {
			fits &= feed(&digest, v->records, 3);
			r->last_seq = (uint64_t)sqlite3_column_int64(v->records, 0);
		} else if (r->chained) {
			r->late_once +=
			    is_once(verify_text(v->records, 1)) || is_once(json_string_value(json_object_get(json, "type")));
		}
		wrong +=
		    !verify_record_columns(json, verify_text(v->records, 1), (uint64_t)sqlite3_column_int64(v->records, 2));
		expect(expected, r, json);
		json_decref(json);
	}
	sqlite3_reset(v->records);
	fits &= chain_records_end(&digest, hash) == 0;
	chain_hex(hash, hex);
	fits = !r->chained || (fits && r->sha256 && strcmp(hex, r->sha256) == 0 && r->there >= r->should);
	compare(v, n, run_id, r, fits);
	if (fits && wrong)
		verify_find(v->report, VERIFY_CHANGED, n, run_id,
			    "the type or time of %" PRIu64 " of its records is not what the record says", wrong);
	if (fits)
		check_destinations(v, n, run_id, id, expected);
	json_decref(expected);
	v->report->records += r->there;
	return fits;
}
