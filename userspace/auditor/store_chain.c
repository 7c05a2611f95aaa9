/* SPDX-License-Identifier: Apache-2.0 */
/* The chain: what a run was becomes an entry, and entries get their signatures. */
#include "auditor/store_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/event.h"
#include "core/rfc3339.h"

static const uint8_t zeros[CHAIN_HASH];

/* ---- entries ---- */

/* Records of nobody (gaps, policies, who writes) belong to no run's digest: each entry has one over those that are new. */
static int add_others(struct store *s, json_t *body)
{
	uint64_t last = (uint64_t)sql_number(s->q, SQL_META, 0, NULL, "t", "others_seq"), first = 0;
	sqlite3_stmt *st = sql_start(s->q, SQL_OTHERS, "i", (int64_t)last);
	struct chain_records hash = {0};
	uint8_t digest[CHAIN_HASH];
	char hex[2 * CHAIN_HASH + 1];
	int64_t count = 0;
	int r, bad = 0;

	for (; (r = sql_row(s->q, st)) > 0; count++) {
		last = (uint64_t)sqlite3_column_int64(st, 0);
		first = first ? first : last;
		bad |= chain_records_add(&hash, sql_text(st, 1), (size_t)sqlite3_column_bytes(st, 1));
	}
	bad |= chain_records_end(&hash, digest);
	if (r < 0 || bad < 0)
		return r < 0 ? r : bad;
	if (!first)
		return 0;
	chain_hex(digest, hex);
	if (json_object_set_new(body, "others",
				json_pack("{s:I, s:I, s:I, s:s}", "count", (json_int_t)count, "first_seq", (json_int_t)first,
					  "last_seq", (json_int_t)last, "sha256", hex)) < 0)
		return -ENOMEM;
	return sql_run(s->q, SQL_META_SET, "ti", "others_seq", (int64_t)last);
}

/* Numbers from here on are nobody's who knows where the chain is. */
static uint64_t beyond(const struct store *s)
{
	return s->head_known && !s->keyless && s->keeper_n ? s->keeper_n + CHAIN_AHEAD : CHAIN_N_MAX - CHAIN_AHEAD;
}

static int chain_last(const struct store *s, uint64_t *ret_n, uint8_t ret_hash[CHAIN_HASH])
{
	sqlite3_stmt *st = sql_start(s->q, SQL_CHAIN_LAST, "i", (int64_t)beyond(s));
	int r = sql_row(s->q, st);

	*ret_n = 0;
	memset(ret_hash, 0, CHAIN_HASH);
	if (r <= 0)
		return r;
	*ret_n = (uint64_t)sqlite3_column_int64(st, 0);
	r = sqlite3_column_bytes(st, 1) == CHAIN_HASH ? 0 : -EUCLEAN;
	if (r == 0)
		memcpy(ret_hash, sqlite3_column_blob(st, 1), CHAIN_HASH);
	sql_done(st);
	return r;
}

int store_chain_add(struct store *s, enum chain_kind kind, const char *run_id, json_t *body, uint64_t at, const uint8_t *before,
		    uint64_t *ret_n, size_t *ret_bytes)
{
	uint8_t last[CHAIN_HASH], digest[CHAIN_HASH], hash[CHAIN_HASH];
	_cleanup_free_ char *text = NULL;
	uint64_t n;
	int r = chain_last(s, &n, last);

	if (r == 0)
		r = add_others(s, body);
	if (r < 0)
		return r;
	n = at ? at : n + 1;
	text = json_dumps(body, JSON_SORT_KEYS | JSON_COMPACT);
	if (!text)
		return -ENOMEM;
	chain_body_digest(text, strlen(text), digest);
	chain_hash(n, before ? before : last, digest, hash);
	*ret_n = n;
	*ret_bytes = strlen(text) + STORE_ENTRY_BYTES;
	return sql_run(s->q, SQL_CHAIN_ADD, "itttbbbi", (int64_t)n, chain_kind_names[kind], run_id, text, digest, sizeof digest,
		       before ? before : last, (size_t)CHAIN_HASH, hash, sizeof hash, (int64_t)store_now_ns());
}

/* ---- runs ---- */

static json_t *summary_of(const struct store *s, const char *run_id, const struct store_row *row, int *ret_error)
{
	struct chain_records hash = {0};
	uint8_t digest[CHAIN_HASH];
	char hex[2 * CHAIN_HASH + 1];
	struct view *v = NULL;
	json_t *body = NULL;
	uint64_t count;
	int r = store_fold(s, run_id, row, &hash, &v);

	count = hash.count;
	if (chain_records_end(&hash, digest) < 0)
		r = r < 0 ? r : -ENOMEM;
	if (r == 0) {
		chain_hex(digest, hex);
		body = view_chained(v, count, hex);
		r = body ? 0 : -ENOMEM;
	}
	view_free(v);
	*ret_error = r;
	return body;
}

static json_t *column(sqlite3_stmt *st, int i)
{
	switch (sqlite3_column_type(st, i)) {
	case SQLITE_INTEGER:
		return json_integer(sqlite3_column_int64(st, i));
	case SQLITE_TEXT:
		return json_string(sql_text(st, i));
	default:
		return json_null();
	}
}

static int64_t time_in(const json_t *body, const char *name)
{
	const char *text = json_string_value(json_object_get(body, name));
	uint64_t ns;

	return text && rfc3339_parse(text, &ns) == 0 && ns <= INT64_MAX ? (int64_t)ns : -1;
}

static const char *text_in(const json_t *body, const char *name)
{
	return json_string_value(json_object_get(body, name));
}

/* Of a run with records that could not be written the sum knows more than its row, which then says the same. */
static int align_row(struct store *s, const struct store_row *row, const json_t *body)
{
	const json_t *egress = json_object_get(body, "egress");

	return sql_run(s->q, SQL_RUN_ALIGN, "itttttiiiiit", row->id, text_in(body, "sandbox_id"), text_in(body, "agent"),
		       text_in(body, "policy"), text_in(body, "policy_hash"),
		       text_in(json_object_get(body, "termination"), "reason"),
		       (int64_t)json_integer_value(json_object_get(egress, "attempts")),
		       (int64_t)json_integer_value(json_object_get(egress, "denied")),
		       (int64_t)json_integer_value(json_object_get(egress, "would_deny")), time_in(body, "began"),
		       time_in(body, "ended"), text_in(body, "caller"));
}

/* What the row has and neither the summary nor the records say. */
static int put_row(struct store *s, const struct store_row *row, int64_t last_seq, json_t *body)
{
	sqlite3_stmt *st = sql_start(s->q, SQL_RUN_COLUMNS, "i", row->id);
	json_t *columns = json_object();
	int r = sql_row(s->q, st), bad = r > 0 && columns ? 0 : -1;

	for (int i = 0; r > 0 && i < sqlite3_column_count(st); i++)
		bad |= json_object_set_new(columns, sqlite3_column_name(st, i), column(st, i));
	if (r > 0)
		sql_done(st);
	bad |= json_object_set_new(columns, "last_seq", json_integer(last_seq));
	return json_object_set_new(body, "row", columns) || bad ? (r < 0 ? r : -ENOMEM) : 0;
}

/* Of what is stored of its content: length and digest of just that, which is the beginning of what the run had. */
static int put_stored(struct store *s, const struct store_row *row, json_t *body)
{
	sqlite3_stmt *st = sql_start(s->q, SQL_RUN_CONTENT, "i", row->id);
	json_t *stored = json_object();
	int r, bad = stored ? 0 : -1;

	while ((r = sql_row(s->q, st)) > 0) {
		int kind = sqlite3_column_int(st, 0);
		size_t len = (size_t)sqlite3_column_bytes(st, 1);
		char hex[2 * CHAIN_HASH + 1];
		uint8_t digest[CHAIN_HASH];

		chain_body_digest(len ? sqlite3_column_blob(st, 1) : "", len, digest);
		chain_hex(digest, hex);
		bad |= json_object_set_new(stored, kind >= 0 && kind < CONTENT_KINDS ? content_names[kind] : "?",
					   json_pack("{s:I, s:s}", "bytes", (json_int_t)len, "sha256", hex));
	}
	if (!json_object_size(stored))
		json_decref(stored);
	else
		bad |= json_object_set_new(body, "stored", stored);
	return bad ? -ENOMEM : r;
}

static int add_document(struct store *s, json_t *documents, const char *hash)
{
	int r = 0;

	if (hash && sql_number(s->q, SQL_POLICY_THERE, 0, &r, "t", hash)) {
		if (json_array_append_new(documents, json_string(hash)))
			return -ENOMEM;
		return sql_run(s->q, SQL_POLICY_SEEN, "ti", hash, (int64_t)store_now_ns()); /* kept for as long as this run */
	}
	return r;
}

/* Those of its policies that the record has whole. */
static int put_documents(struct store *s, json_t *body)
{
	json_t *documents = json_array(), *change;
	int r = add_document(s, documents, json_string_value(json_object_get(body, "policy_hash")));
	size_t i;

	json_array_foreach(json_object_get(body, "policy_changes"), i, change)
	{
		if (r == 0)
			r = add_document(s, documents, json_string_value(json_object_get(change, "policy_hash")));
	}
	return json_object_set_new(body, "documents", documents) < 0 ? -ENOMEM : r;
}

static int64_t lost_of(const json_t *body)
{
	return json_integer_value(json_object_get(json_object_get(body, "egress"), "lost"));
}

static int finish(struct store *s, const char *run_id)
{
	struct store_row row;
	int64_t last_seq;
	json_t *body;
	uint64_t n;
	size_t bytes;
	int r = store_row(s, run_id, &row);

	if (r < 0 || row.chain_n || row.last_seq || row.state == STORE_RUNNING)
		return r == -ENOENT ? 0 : r;
	r = store_settle(s);
	if (r < 0)
		return r;
	last_seq = sql_number(s->q, SQL_RUN_LAST_SEQ, 0, NULL, "i", row.id);
	body = summary_of(s, run_id, &row, &r);
	if (r == 0 && store_loss_of(s, run_id))
		r = align_row(s, &row, body);
	if (r == 0)
		r = put_row(s, &row, last_seq, body);
	if (r == 0)
		r = put_stored(s, &row, body);
	if (r == 0)
		r = put_documents(s, body);
	if (r == 0)
		r = store_chain_add(s, CHAIN_RUN, run_id, body, 0, NULL, &n, &bytes);
	if (r == 0)
		r = sql_run(s->q, SQL_RUN_FINISH, "iiiii", row.id, (int64_t)n, lost_of(body), (int64_t)bytes, last_seq);
	if (r == 0)
		r = sql_run(s->q, SQL_PROJECT_BYTES, "ii", row.project_id, (int64_t)bytes);
	json_decref(body);
	return r;
}

/* In a part of the transaction of its own: what can't be summed up takes nothing else along. */
int store_finish(struct store *s, const char *run_id)
{
	struct err e;
	int r, undone;

	if (s->failed.code)
		return -s->failed.code;
	r = store_settle(s);
	if (r == 0)
		r = sql_run(s->q, SQL_SAVEPOINT, "");
	if (r == 0) {
		r = finish(s, run_id);
		undone = r < 0 ? sql_run(s->q, SQL_SAVEPOINT_UNDO, "") : 0;
		if (undone == 0 && sql_run(s->q, SQL_SAVEPOINT_END, "") == 0)
			return r;
		r = r < 0 ? r : -EIO; /* some failures undo the whole transaction */
	}
	err_errno(&e, -r, "audit", "can't sum up the run %s", run_id);
	store_fail(s, &e);
	return r;
}

size_t store_unfinished(struct store *s, uint64_t wall_ns, size_t skip, char (*ret)[IPC_ID_MAX], size_t max)
{
	int64_t before = wall_ns > INT64_MAX ? INT64_MAX : (int64_t)wall_ns;
	sqlite3_stmt *st = sql_start(s->q, SQL_UNFINISHED, "iii", before, (int64_t)max, (int64_t)skip);
	size_t n = 0;

	while (sql_row(s->q, st) > 0)
		snprintf(ret[n++], IPC_ID_MAX, "%s", sql_text(st, 0));
	return n;
}

int store_run_hash(const struct store *s, const char *run_id, uint8_t ret[CHAIN_HASH])
{
	struct store_row row;
	int r = store_row(s, run_id, &row);

	if (r < 0 || !row.chain_n)
		return r < 0 ? r : -ENOENT;
	memcpy(ret, row.hash, CHAIN_HASH);
	return 0;
}

int store_entry(const struct store *s, uint64_t n, json_t **ret)
{
	char hash[2 * CHAIN_HASH + 1] = "", signature[2 * CHAIN_SIGNATURE + 1] = "";
	sqlite3_stmt *st = sql_start(s->q, SQL_CHAIN_ENTRY, "i", (int64_t)n);
	int r = sql_row(s->q, st);
	bool is_signed;

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	is_signed = sqlite3_column_bytes(st, 1) == CHAIN_SIGNATURE;
	if (sqlite3_column_bytes(st, 0) == CHAIN_HASH)
		chain_hex(sqlite3_column_blob(st, 0), hash);
	for (size_t i = 0; is_signed && i < CHAIN_SIGNATURE; i += CHAIN_HASH)
		chain_hex((const uint8_t *)sqlite3_column_blob(st, 1) + i, signature + 2 * i);
	*ret = json_pack("{s:I, s:s, s:b, s:s?, s:o?}", "n", (json_int_t)n, "hash", hash, "signed",
			 is_signed || n <= s->signed_to, "signature", is_signed ? signature : NULL, "body",
			 json_loadb(sql_text(st, 2), (size_t)sqlite3_column_bytes(st, 2), 0, NULL));
	sql_done(st);
	return *ret ? 0 : -ENOMEM;
}

/* ---- signatures ---- */

#define KEEPER_REMEMBERS 126 /* entries before its last one: a little fewer than it does */

static const struct {
	const char *reason, *text;
} breaks[] = {
    {"missing", "entries that were signed are not in the record any more: it was cut or put back to an earlier state"},
    {"other", "the record has another entry where one was signed: it was changed"},
    {"key", "entries from here on are signed with another key"},
    {"unsigned",
     "entries were written before this start and are signed only now, as they were found: a service that was killed "
     "leaves such, and whoever writes to the record without its key"},
};
enum { BREAK_MISSING, BREAK_OTHER, BREAK_KEY, BREAK_UNSIGNED };

int store_head(const struct store *s, struct chain_head *ret)
{
	memset(ret, 0, sizeof *ret);
	return chain_last(s, &ret->n, ret->hash);
}

/* After which one signatures may have got lost that the keeper can give again: it remembers so many, since the last break. */
static uint64_t lost_from(const struct store *s)
{
	uint64_t first = s->keeper_n > KEEPER_REMEMBERS ? s->keeper_n - KEEPER_REMEMBERS : 0,
		 last_break = (uint64_t)sql_number(s->q, SQL_CHAIN_LAST_BREAK, 0, NULL, "i", (int64_t)s->keeper_n);

	first = first > last_break ? first : last_break;
	return first < s->signed_to ? first : s->signed_to;
}

size_t store_unsigned(const struct store *s, uint64_t after, struct sign_ask *ret, size_t max)
{
	sqlite3_stmt *st;
	uint64_t lost, end;
	size_t n = 0;

	if (!s->head_known || s->keyless)
		return 0;
	lost = lost_from(s);
	end = s->durable_to < beyond(s) ? s->durable_to : beyond(s);
	st = sql_start(s->q, SQL_CHAIN_WAITING, "iiiii", (int64_t)(after > lost ? after : lost), (int64_t)s->signed_to,
		       (int64_t)s->keeper_n, (int64_t)end + 1, (int64_t)max);
	while (sql_row(s->q, st) > 0) {
		if (sqlite3_column_bytes(st, 1) != CHAIN_HASH)
			continue;
		ret[n] = (struct sign_ask){.n = (uint64_t)sqlite3_column_int64(st, 0)};
		if (strcmp(sql_text(st, 2), chain_kind_names[CHAIN_BREAK]) == 0)
			ret[n].after_break = strcmp(sql_text(st, 3), breaks[BREAK_UNSIGNED].reason) ? SIGN_BREAK : SIGN_ADOPTED;
		memcpy(ret[n].body, sqlite3_column_blob(st, 1), CHAIN_HASH);
		n++;
	}
	return n;
}

/* The hash of entry n: 1 and *ret, 0 when there is none, or a negative errno. */
static int hash_at(const struct store *s, uint64_t n, uint8_t ret[CHAIN_HASH])
{
	sqlite3_stmt *st = sql_start(s->q, SQL_CHAIN_AT, "i", (int64_t)n);
	int r = sql_row(s->q, st);

	if (r <= 0)
		return r;
	if (sqlite3_column_bytes(st, 0) == CHAIN_HASH)
		memcpy(ret, sqlite3_column_blob(st, 0), CHAIN_HASH);
	else
		r = -EUCLEAN;
	sql_done(st);
	return r;
}

int store_signed(struct store *s, uint64_t n, const uint8_t hash[CHAIN_HASH], const uint8_t signature[CHAIN_SIGNATURE],
		 struct err *e)
{
	uint8_t ours[CHAIN_HASH];
	bool joined;
	int r = store_txn_begin(s, &joined, e);

	if (r < 0)
		return r;
	r = hash_at(s, n, ours);
	if (r >= 0 && (r == 0 || memcmp(ours, hash, CHAIN_HASH) != 0))
		r = err_set(e, EBADMSG, "audit", "the signature of entry %llu is over another hash than the record's",
			    (unsigned long long)n);
	else if (r > 0)
		r = sql_run(s->q, SQL_CHAIN_SIGN, "ib", (int64_t)n, signature, (size_t)CHAIN_SIGNATURE);
	r = store_txn_end(s, joined, r, e);
	if (r == 0 && n > s->signed_to)
		s->signed_to = n;
	if (r == 0 && n > s->keeper_n)
		s->keeper_n = n;
	return r;
}

/* ---- breaks ---- */

static json_t *head_json(uint64_t n, const uint8_t *hash)
{
	char hex[2 * CHAIN_HASH + 1];

	if (!hash)
		return json_pack("{s:I, s:n}", "n", (json_int_t)n, "hash");
	chain_hex(hash, hex);
	return json_pack("{s:I, s:s}", "n", (json_int_t)n, "hash", hex);
}

/*
 * What stands beyond the keeper's end when somebody starts: ranges of it, one digest over its hashes, and which prunes of it
 * are void, since nothing was removed for them yet.
 */
static int put_adopted(struct store *s, const struct chain_head *head, json_t *body)
{
	const int64_t pending = sql_number(s->q, SQL_META, 0, NULL, "t", "prune_n");
	sqlite3_stmt *st = sql_start(s->q, SQL_CHAIN_AFTER, "i", (int64_t)head->n);
	json_t *entries = json_array(), *empty = json_array();
	struct chain_records hash = {0};
	char hex[2 * CHAIN_HASH + 1];
	uint8_t digest[CHAIN_HASH];
	json_int_t from = 0, to = 0;
	int r, bad = entries && empty ? 0 : -1;

	while ((r = sql_row(s->q, st)) > 0) {
		json_int_t n = sqlite3_column_int64(st, 0);

		if (from && n != to + 1) {
			bad |= json_array_append_new(entries, json_pack("[I, I]", from, to));
			from = 0;
		}
		from = from ? from : n;
		to = n;
		bad |= chain_records_add(&hash, sqlite3_column_bytes(st, 1) ? sqlite3_column_blob(st, 1) : "",
					 (size_t)sqlite3_column_bytes(st, 1));
		if (pending && n >= pending && strcmp(sql_text(st, 2), chain_kind_names[CHAIN_PRUNE]) == 0)
			bad |= json_array_append_new(empty, json_integer(n));
	}
	if (from)
		bad |= json_array_append_new(entries, json_pack("[I, I]", from, to));
	bad |= chain_records_end(&hash, digest);
	chain_hex(digest, hex);
	bad |= json_object_set_new(body, "entries", entries) | json_object_set_new(body, "void", empty) |
	       json_object_set_new(body, "hashes_sha256", json_string(hex));
	return bad ? -ENOMEM : r;
}

static int add_break(struct store *s, int why, const struct chain_head *head, const uint8_t *found, bool adopt,
		     uint64_t removed)
{
	char text[EVENT_TIME_MAX];
	uint8_t last[CHAIN_HASH];
	uint64_t n, at;
	size_t bytes;
	json_t *body;
	int r = chain_last(s, &n, last);

	if (r < 0)
		return r;
	event_time_text(text, store_now_ns());
	body = json_pack("{s:s, s:s, s:s, s:o, s:o, s:I, s:s}", "kind", chain_kind_names[CHAIN_BREAK], "time", text, "reason",
			 breaks[why].reason, "expected", head_json(head->n, head->hash), "found", head_json(head->n, found),
			 "last", (json_int_t)n, "text", breaks[why].text);
	if (!body)
		return -ENOMEM;
	if (removed)
		json_object_set_new(body, "beyond", event_u64(removed));
	if (adopt)
		r = put_adopted(s, head, body);
	at = (n > head->n ? n : head->n) + 1;
	if (r == 0)
		r = store_chain_add(s, CHAIN_BREAK, NULL, body, at, head->hash, &n, &bytes);
	json_decref(body);
	if (r == 0)
		s->signed_to = at - 1;
	return r < 0 ? r : why == BREAK_UNSIGNED ? STORE_ADOPTED : STORE_BROKEN;
}

/* A break that follows this head and is not signed yet: said already, by us or by another auditor. */
static uint64_t break_after(const struct store *s, const struct chain_head *head)
{
	return (uint64_t)sql_number(s->q, SQL_CHAIN_BREAK, 0, NULL, "ib", (int64_t)head->n, head->hash, (size_t)CHAIN_HASH);
}

/* Whether the entry after `n` says that it follows this hash: then n itself was pruned and all is well. */
static bool next_follows(const struct store *s, uint64_t n, const uint8_t hash[CHAIN_HASH])
{
	sqlite3_stmt *st = sql_start(s->q, SQL_CHAIN_AT, "i", (int64_t)n + 1);
	bool follows = sql_row(s->q, st) > 0;

	if (follows) {
		follows = sqlite3_column_bytes(st, 2) == CHAIN_HASH && !memcmp(sqlite3_column_blob(st, 2), hash, CHAIN_HASH);
		sql_done(st);
	}
	return follows;
}

static int check_key(struct store *s, const struct chain_head *head, bool *ret_other)
{
	char hex[2 * CHAIN_HASH + 1], known[2 * CHAIN_HASH + 1] = "";
	sqlite3_stmt *st = sql_start(s->q, SQL_META, "t", "key_id");
	int r = sql_row(s->q, st);

	if (r > 0) {
		snprintf(known, sizeof known, "%s", sql_text(st, 0));
		sql_done(st);
	}
	chain_hex(head->key_id, hex);
	*ret_other = known[0] && strcmp(known, hex) != 0;
	return r < 0 || !strcmp(known, hex) ? (r < 0 ? r : 0) : sql_run(s->q, SQL_META_SET, "tt", "key_id", hex);
}

/* Entries of numbers that nobody can have got to: nothing could ever follow them. */
static int drop_beyond(struct store *s, uint64_t *ret)
{
	int r;

	*ret = (uint64_t)sql_number(s->q, SQL_CHAIN_BEYOND, 0, &r, "i", (int64_t)beyond(s));
	if (r == 0 && *ret)
		r = sql_run(s->q, SQL_DROP_BEYOND, "i", (int64_t)beyond(s));
	if (r == 0 && *ret)
		r = sql_run(s->q, SQL_CHAIN_SEQUENCE, "ii", (int64_t)beyond(s), (int64_t)s->keeper_n);
	return r;
}

/* Whether the record is not what was signed. 1: so, and *ret_why says how. */
static int compare_head(const struct store *s, const struct chain_head *head, int *ret_why, uint8_t found[CHAIN_HASH],
			bool *ret_found)
{
	int r = head->n ? hash_at(s, head->n, found) : 1;

	*ret_found = head->n && r > 0;
	if (r < 0)
		return r;
	*ret_why = *ret_found ? BREAK_OTHER : BREAK_MISSING;
	return *ret_found ? memcmp(found, head->hash, CHAIN_HASH) != 0 : r == 0 && !next_follows(s, head->n, head->hash);
}

static int check_head(struct store *s, const struct chain_head *head)
{
	/* At a start, when no other auditor lives that could have written them, nobody vouches for what is beyond the head. */
	const bool start = s->alone && !s->compared;
	uint64_t said, removed = 0;
	uint8_t found[CHAIN_HASH];
	bool other_key, is_found;
	int why = BREAK_KEY, r = check_key(s, head, &other_key);

	s->compared = true;
	s->keeper_n = head->n;
	if (r == 0 && start)
		r = drop_beyond(s, &removed);
	if (r < 0)
		return r;
	if (!start && (said = break_after(s, head))) {
		s->signed_to = said - 1;
		return 0;
	}
	if (other_key)
		return add_break(s, BREAK_KEY, head, NULL, false, removed);
	r = compare_head(s, head, &why, found, &is_found);
	if (r != 0)
		return r < 0 ? r : add_break(s, why, head, is_found ? found : NULL, start, removed);
	if (start && (s->opened_n > head->n || removed))
		return add_break(s, BREAK_UNSIGNED, head, is_found ? found : NULL, true, removed);
	s->signed_to = head->n;
	return 0;
}

int store_check_head(struct store *s, const struct chain_head *head, struct err *e)
{
	bool joined;
	int r;

	s->keyless = memcmp(head->key_id, zeros, sizeof zeros) == 0;
	s->head_known = true;
	if (s->keyless)
		return 0;
	r = store_txn_begin(s, &joined, e);
	if (r < 0)
		return r;
	r = check_head(s, head);
	if (r < 0)
		err_errno(e, -r, "audit", "can't compare the record with what was signed");
	return store_txn_end(s, joined, r, e);
}
