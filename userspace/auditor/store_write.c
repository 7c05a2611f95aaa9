/* SPDX-License-Identifier: Apache-2.0 */
/* From a record to its rows. */
#include "auditor/store_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auditor/destination.h"
#include "core/event.h"
#include "core/limits.h"
#include "core/rfc3339.h"

static const char *text_of(const json_t *body, const char *name)
{
	return json_string_value(json_object_get(body, name));
}

/* ---- runs ---- */

static int64_t project_id(struct store *s, const char *name)
{
	int r;

	if (s->project >= 0 && strcmp(s->project_name, name) == 0)
		return s->project;
	s->project = sql_number(s->q, SQL_PROJECT, -1, &r, "t", name);
	if (r == 0 && s->project < 0) {
		r = sql_run(s->q, SQL_PROJECT_ADD, "t", name);
		s->project = sqlite3_last_insert_rowid(s->q->db);
	}
	if (r < 0)
		s->project = -1;
	snprintf(s->project_name, sizeof s->project_name, "%s", name);
	return s->project;
}

/* What it is, as far as its id says: others say so themselves later. */
static const char *kind_by_id(const char *run_id, const char *sandbox_id)
{
	if (strncmp(run_id, "exec-", 5) == 0)
		return "exec";
	return sandbox_id[0] && strcmp(run_id, sandbox_id) != 0 ? "cell" : "run";
}

static int find_run(struct store *s, const char *run_id, struct store_touched *ret)
{
	sqlite3_stmt *st = sql_start(s->q, SQL_RUN, "t", run_id);
	int r = sql_row(s->q, st);

	if (r > 0) {
		ret->id = sqlite3_column_int64(st, 0);
		ret->project = sqlite3_column_int64(st, 1);
		ret->finished = sqlite3_column_int(st, 2) != 0;
		sql_done(st);
	}
	return r;
}

static int make_run(struct store *s, const char *run_id, const char *sandbox_id, const char *project, uint64_t wall_ns,
		    struct store_touched *ret)
{
	int r;

	ret->project = project_id(s, project);
	if (ret->project < 0)
		return -EIO;
	r = sql_run(s->q, SQL_RUN_ADD, "titti", run_id, ret->project, sandbox_id, kind_by_id(run_id, sandbox_id),
		    (int64_t)wall_ns);
	ret->id = sqlite3_last_insert_rowid(s->q->db);
	return r;
}

struct store_touched *store_touch(struct store *s, const char *run_id, const char *sandbox_id, const char *project,
				  uint64_t wall_ns)
{
	struct store_touched t = {0};
	int r;

	for (size_t i = s->ntouched; i-- > 0;)
		if (strcmp(s->touched[i].run_id, run_id) == 0)
			return &s->touched[i];
	if (s->ntouched == STORE_TOUCHED_MAX && store_settle(s) < 0)
		return NULL;
	snprintf(t.run_id, sizeof t.run_id, "%s", run_id);
	r = find_run(s, run_id, &t);
	if (r == 0)
		r = make_run(s, run_id, sandbox_id, project, wall_ns, &t);
	if (r < 0)
		return NULL;
	s->touched[s->ntouched] = t;
	return &s->touched[s->ntouched++];
}

int store_settle(struct store *s)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->ntouched; i++) {
		const struct store_touched *t = &s->touched[i];

		if (!t->bytes)
			continue;
		r = sql_run(s->q, SQL_RUN_COUNT, "iiiiiii", t->id, t->records, t->bytes, t->attempts, t->denied, t->would_deny,
			    t->verdicts);
		if (r == 0)
			r = sql_run(s->q, SQL_PROJECT_BYTES, "ii", t->project, t->bytes);
	}
	s->ntouched = 0;
	return r;
}

/* ---- what each type of record changes ---- */

/* With what it takes: each project's bytes are its runs'. */
static int move_run(struct store *s, const struct store_touched *t, int64_t project)
{
	int64_t bytes;
	int r;

	if (project < 0)
		return -EIO;
	bytes = sql_number(s->q, SQL_RUN_BYTES, 0, &r, "i", t->id);
	if (r == 0)
		r = sql_run(s->q, SQL_PROJECT_BYTES, "ii", t->project, -bytes);
	if (r == 0)
		r = sql_run(s->q, SQL_PROJECT_BYTES, "ii", project, bytes);
	return r == 0 ? sql_run(s->q, SQL_RUN_PROJECT, "ii", t->id, project) : r;
}

static int put_begin(struct store *s, struct store_touched *t, const struct note *note, const json_t *body)
{
	int64_t project = project_id(s, note->project);
	int r = sql_run(s->q, SQL_RUN_BEGIN, "ittittt", t->id, note->sandbox_id, text_of(body, "agent"), (int64_t)note->wall_ns,
			text_of(body, "policy"), text_of(body, "policy_hash"), text_of(body, "caller"));

	if (r == 0 && project != t->project)
		r = move_run(s, t, project);
	/* A cell's beginning is what tells that its sandbox is a session. */
	if (r == 0 && strcmp(note->run_id, note->sandbox_id) != 0)
		r = sql_run(s->q, SQL_RUN_SESSION, "t", note->sandbox_id);
	t->project = project;
	return project < 0 ? -EIO : r;
}

static int put_egress(struct store *s, struct store_touched *t, const json_t *body)
{
	struct destination d;

	if (!destination_of(body, &d))
		return 0;
	t->attempts++;
	t->denied += d.verdict == WEIR_DENY;
	t->would_deny += d.verdict == WEIR_WOULD_DENY;
	t->verdicts |= 1 << d.verdict;
	t->bytes += (int64_t)(3 * strlen(d.name) + 2 * strlen(d.address) + 48);
	return sql_run(s->q, SQL_DESTINATION_ADD, "iittt", t->id, (int64_t)d.verdict, d.address, d.name, d.mirrored);
}

static int put_end(struct store *s, struct store_touched *t, const struct note *note, const json_t *body)
{
	const struct note_counts *w = &note->window.counts;
	const struct tell_end *end = &note->end;
	bool window = note->type == NOTE_WINDOW_END;

	/* The kernel's counters, in the place of what was listed so far. */
	t->attempts = t->denied = t->would_deny = 0;
	return sql_run(s->q, SQL_RUN_END, "iitiii", t->id, (int64_t)note->wall_ns, text_of(body, "end"),
		       (int64_t)(window ? w->attempts : end->attempts), (int64_t)(window ? w->denied : end->denied),
		       (int64_t)(window ? w->would_deny : end->would_deny));
}

static int put_kind(struct store *s, struct store_touched *t, const struct note *note, const json_t *body)
{
	/* What comes after the sum was made changes nothing of it; but where it went can be searched for. */
	if (t->finished && note->type != NOTE_EVENT)
		return 0;
	switch (note->type) {
	case NOTE_RUN_BEGIN:
		return put_begin(s, t, note, body);
	case NOTE_EVENT:
		return put_egress(s, t, body);
	case NOTE_RUN_END:
	case NOTE_WINDOW_END:
		return put_end(s, t, note, body);
	case NOTE_TARGET:
		return sql_run(s->q, SQL_RUN_TARGET, "it", t->id, text_of(body, "kind"));
	case NOTE_PLACE:
		return note->place.which == PLACE_REF ? sql_run(s->q, SQL_RUN_REF, "it", t->id, text_of(body, "ref")) : 0;
	default:
		return 0;
	}
}

/* When it happened, as its body says. */
static uint64_t time_of(const json_t *body)
{
	const char *text = text_of(body, "time");
	uint64_t ns;

	return text && rfc3339_parse(text, &ns) == 0 ? ns : store_now_ns();
}

int store_put(struct store *s, const struct note *note, enum record_type type, const char *run_id, uint64_t seq,
	      const json_t *body)
{
	char text[RECORD_TEXT_MAX];
	size_t len = json_dumpb(body, text, sizeof text - 1, JSON_COMPACT);
	const char *name = record_type_names[type];
	uint64_t time_ns = time_of(body);
	struct store_touched *t;
	sqlite3_stmt *st;
	int r = 0;

	if (!len || len >= sizeof text)
		return -EMSGSIZE;
	text[len] = 0;
	if (note && note->type == NOTE_POLICY && text_of(body, "policy_hash"))
		r = sql_run(s->q, SQL_POLICY_SEEN, "ti", text_of(body, "policy_hash"), (int64_t)store_now_ns());
	if (!run_id[0]) {
		st = sql_start(s->q, SQL_RECORD_ADD, "iitit", (int64_t)seq, (int64_t)0, name, (int64_t)time_ns, text);
		if (st && sqlite3_bind_null(st, 2) != SQLITE_OK)
			return -EIO;
		return sql_row(s->q, st);
	}
	t = store_touch(s, run_id, note ? note->sandbox_id : "", note ? note->project : "", time_ns);
	if (!t || r < 0)
		return -EIO;
	r = sql_run(s->q, SQL_RECORD_ADD, "iitit", (int64_t)seq, t->id, name, (int64_t)time_ns, text);
	t->records++;
	t->bytes += (int64_t)len + STORE_ROW_BYTES;
	return r == 0 && note ? put_kind(s, t, note, body) : r;
}

/* ---- what is kept beside the records ---- */

void store_append_content(struct store *s, const char *run_id, const struct content_told *content, const char *bytes)
{
	struct store_touched *t;
	struct store_row row;
	size_t at = 0;

	if (s->failed.code)
		return store_append_body(s, NULL, RECORD_CONTENT, run_id, record_content(run_id, "", "", content));
	if (store_row(s, run_id, &row) < 0)
		return;
	store_append_body(s, NULL, RECORD_CONTENT, run_id, record_content(run_id, row.sandbox_id, row.project, content));
	t = s->opts.content && bytes && !s->failed.code ? store_touch(s, run_id, "", "", 0) : NULL;
	for (int kind = 0; t && kind < CONTENT_KINDS; kind++) {
		size_t len = content->stored & 1u << kind ? (size_t)content->of[kind].stored : 0;

		if (len && sql_run(s->q, SQL_CONTENT_ADD, "iib", t->id, (int64_t)kind, bytes + at, len) < 0)
			store_fail_sql(s, "can't write to the record");
		at += len;
		t->bytes += (int64_t)len;
	}
}

static void text_drop(struct store_text *t)
{
	free(t->text);
	*t = (struct store_text){0};
}

static void text_whole(struct store *s, const struct note *note)
{
	char name[4 * IPC_POLICY_MAX + 1], hex[2 * CHAIN_HASH + 1];
	uint8_t digest[CHAIN_HASH];
	bool there = note->text.total <= LIMIT_AUDIT_POLICY_BYTES;

	if (there) {
		chain_body_digest(s->text.text, s->text.len, digest);
		if (memcmp(digest, note->text.hash, sizeof digest) != 0) {
			store_append_gap(s, RECORD_GAP_REFUSED, 1, "a policy's document that is not what its hash says");
			return;
		}
	}
	chain_hex(note->text.hash, hex);
	event_safe_text(name, sizeof name, note->text.name, sizeof note->text.name);
	if (!s->failed.code &&
	    sql_run(s->q, SQL_POLICY_ADD, "ttti", hex, name, there ? s->text.text : NULL, (int64_t)store_now_ns()) < 0)
		store_fail_sql(s, "can't write to the record");
}

/* A part that does not follow on the one before ends what was under way: the document will be sent again by the next service.
 */
void store_put_text(struct store *s, const struct note *note)
{
	struct store_text *t = &s->text;
	uint32_t offset = note->text.offset, len = note->text.len, total = note->text.total;

	if (total > LIMIT_AUDIT_POLICY_BYTES)
		return text_whole(s, note);
	if (offset == 0) {
		text_drop(t);
		t->text = calloc(1, total + 1);
		t->total = total;
		memcpy(t->hash, note->text.hash, sizeof t->hash);
	}
	if (!t->text || offset != t->len || total != t->total || len > NOTE_POLICY_PART || len > total - offset ||
	    memcmp(t->hash, note->text.hash, sizeof t->hash) != 0)
		return text_drop(t);
	memcpy(t->text + offset, note->text.text, len);
	t->len += len;
	if (t->len < total)
		return;
	text_whole(s, note);
	text_drop(t);
}
