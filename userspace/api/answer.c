/* SPDX-License-Identifier: Apache-2.0 */
#include "api/answer.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/answer_priv.h"
#include "core/base64.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/limits.h"
#include "core/media_type.h"
#include "core/utf8.h"

/* 15 digits: 1.234 as it was put in, not as the nearest double is spelt. */
#define DUMP_FLAGS JSON_REAL_PRECISION(15)

/* ---- parts ---- */

static int append(const char *data, size_t len, void *ctx)
{
	struct answer_body *a = ctx;

	if (!a->failed && a->literal_room - a->literal_len < len) {
		size_t room = (a->literal_room + len) * 2;
		char *grown = realloc(a->literal, room);

		if (grown) {
			a->literal = grown;
			a->literal_room = room;
		} else {
			a->failed = true;
		}
	}
	if (a->failed)
		return -1;
	memcpy(a->literal + a->literal_len, data, len);
	a->literal_len += len;
	return 0;
}

static struct answer_part *add_part(struct answer_body *a)
{
	if (!a->failed && a->count == a->room) {
		size_t room = a->room ? a->room * 2 : 8;
		struct answer_part *grown = realloc(a->parts, room * sizeof *grown);

		if (grown) {
			a->parts = grown;
			a->room = room;
		} else {
			a->failed = true;
		}
	}
	return a->failed ? NULL : &a->parts[a->count++];
}

/* What has been appended since the last part. */
static void end_literal(struct answer_body *a)
{
	const struct answer_part *last = NULL;
	struct answer_part *p;
	size_t from = 0;

	for (size_t i = a->count; i > 0 && !last; i--)
		if (a->parts[i - 1].kind == ANSWER_LITERAL)
			last = &a->parts[i - 1];
	if (last)
		from = last->from + last->len;
	if (from == a->literal_len)
		return;
	p = add_part(a);
	if (p)
		*p = (struct answer_part){.kind = ANSWER_LITERAL, .from = from, .len = a->literal_len - from};
}

void answer_add_part(struct answer_body *a, int kind, const char *data, size_t len)
{
	struct answer_part *p;

	end_literal(a);
	if (len == 0)
		return;
	p = add_part(a);
	if (p)
		*p = (struct answer_part){.kind = kind, .data = data, .len = len};
}

void answer_add(struct answer_body *a, const char *literal)
{
	(void)append(literal, strlen(literal), a);
}

void answer_add_json(struct answer_body *a, json_t *value, size_t flags)
{
	if (!value || json_dump_callback(value, append, a, DUMP_FLAGS | flags) < 0)
		a->failed = true;
	json_decref(value);
}

int answer_end(struct answer_body *a)
{
	answer_add(a, "\n");
	end_literal(a);
	if (!a->failed)
		return 0;
	answer_clear(a);
	return -ENOMEM;
}

int answer_make_json(struct answer_body *a, json_t *value)
{
	*a = (struct answer_body){0};
	answer_add_json(a, value, 0);
	return answer_end(a);
}

char *answer_text(const json_t *value, size_t *ret_len)
{
	struct answer_body a = {0};

	if (!value || json_dump_callback(value, append, &a, DUMP_FLAGS) < 0)
		a.failed = true;
	answer_add(&a, "\n");
	(void)append("", 1, &a);
	if (a.failed) {
		answer_clear(&a);
		return NULL;
	}
	*ret_len = a.literal_len - 1;
	return a.literal;
}

/* ---- files ---- */

/*
 * A path that is no text, so that it is one and can be had back: bytes that are no UTF-8 become \xNN, a backslash \\. Only
 * where the reason is `name`: all other paths are text and are as they are.
 */
static json_t *escaped(const char *path, size_t len)
{
	_cleanup_free_ char *text = malloc(len * 4 + 1);
	size_t used = 0, n;

	if (!text)
		return NULL;
	for (size_t at = 0; at < len; at += n) {
		bool valid;

		n = utf8_next(path + at, len - at, &valid);
		if (!valid) {
			for (size_t i = 0; i < n; i++)
				used += (size_t)sprintf(text + used, "\\x%02x", (unsigned char)path[at + i]);
			continue;
		}
		if (path[at] == '\\')
			text[used++] = '\\';
		memcpy(text + used, path + at, n);
		used += n;
	}
	return json_stringn(text, used);
}

static void append_file(struct answer_body *a, const struct collected_entry *e, const char *path, const char *content)
{
	answer_add(a, "{\"path\": ");
	answer_add_json(a, json_stringn(path, e->path_len), JSON_ENCODE_ANY);
	answer_add(a, ", \"size\": ");
	answer_add_json(a, json_integer((json_int_t)e->size), JSON_ENCODE_ANY);
	answer_add(a, ", \"content_base64\": \"");
	answer_add_part(a, ANSWER_BASE64, content, (size_t)e->size);
	answer_add(a, "\", \"media_type\": \"");
	answer_add(a, media_type(path, e->path_len));
	answer_add(a, "\"}");
}

static json_t *skipped(const struct collected_entry *e, const char *path)
{
	json_t *shown = e->kind == COLLECTED_NAME ? escaped(path, e->path_len) : json_stringn(path, e->path_len);
	json_t *j = json_pack("{s:o, s:s}", "path", shown, "reason", skip_names[e->kind]);

	/* How much too large; of the others it says nothing that anybody could want. */
	if (j && e->kind == COLLECTED_TOO_LARGE && json_object_set_new(j, "size", json_integer((json_int_t)e->size)) < 0) {
		json_decref(j);
		return NULL;
	}
	return j;
}

static void append_files(struct answer_body *a, const struct run_files *f)
{
	struct collected_entry e;
	const char *path, *content, *between = "";

	answer_add(a, ", \"files\": [");
	for (size_t at = 0; run_files_next(f, &at, &e, &path, &content);) {
		if (e.kind != COLLECTED_FILE)
			continue;
		answer_add(a, between);
		append_file(a, &e, path, content);
		between = ", ";
	}
	answer_add(a, "], \"files_skipped\": [");
	between = "";
	for (size_t at = 0; run_files_next(f, &at, &e, &path, &content);) {
		if (e.kind == COLLECTED_FILE)
			continue;
		answer_add(a, between);
		answer_add_json(a, skipped(&e, path), 0);
		between = ", ";
	}
	/* Nothing is known about any file: an empty list would look as if there were none. */
	if (f->problem)
		answer_add_json(
		    a,
		    json_pack("{s:s, s:s, s:s}", "path", ".", "reason", skip_names[COLLECTED_UNREADABLE], "detail", f->problem),
		    0);
	answer_add(a, "]");
	if (f->skipped_unlisted) {
		answer_add(a, ", \"files_skipped_unlisted\": ");
		answer_add_json(a, json_integer(f->skipped_unlisted), JSON_ENCODE_ANY);
	}
}

/* ---- the answer ---- */

static void append_stream(struct answer_body *a, const char *before, const struct run_result *r, enum run_stream which)
{
	answer_add(a, before);
	answer_add_part(a, ANSWER_TEXT, r->out[which], r->out_len[which]);
}

static json_t *after_output(const struct run_result *r)
{
	const struct tell_end *end = &r->end;
	json_t *j = json_pack("{s:i, s:I, s:o, s:b, s:I, s:I}", "exit_code", (int)end->exit_code, "duration_ms",
			      (json_int_t)(end->duration_us / 1000), "termination", answer_termination(end), "truncated",
			      r->truncated, "stdout_bytes", (json_int_t)r->out_bytes[RUN_STDOUT], "stderr_bytes",
			      (json_int_t)r->out_bytes[RUN_STDERR]);
	json_t *account = answer_account(r);
	bool ok = json_object_update(j, account) == 0 && json_object_set_new(j, "python", json_string(r->grant.python)) == 0;

	if (ok && r->session)
		ok = json_object_set_new(j, "session_ended", json_boolean(end->over)) == 0;
	json_decref(account);
	if (ok)
		return j;
	json_decref(j);
	return NULL;
}

static void append_ids(struct answer_body *a, const struct run_result *r)
{
	answer_add_json(a, json_pack("{s:s, s:s}", "sandbox_id", r->grant.sandbox_id, "run_id", r->grant.run_id), 0);
	if (!a->failed)
		a->literal_len--; /* its "}" comes last */
}

static void append_output(struct answer_body *a, const struct run_result *r)
{
	append_stream(a, ", \"stdout\": \"", r, RUN_STDOUT);
	append_stream(a, "\", \"stderr\": \"", r, RUN_STDERR);
	answer_add(a, "\", ");
	answer_add_json(a, after_output(r), JSON_EMBED);
}

/* ---- a tool's error ---- */

#define CUT "\xe2\x80\xa6"

/* Up to `max` bytes of text that goes on. */
static void append_head(struct answer_body *a, const struct call_text *t, size_t max)
{
	if (t->len <= max) {
		answer_add_part(a, ANSWER_TEXT, t->text, t->len);
		return;
	}
	answer_add_part(a, ANSWER_TEXT, t->text, utf8_cut(t->text, t->len, max - strlen(CUT)));
	answer_add(a, CUT);
}

/* A traceback says at its beginning what was called, and at its end what went wrong. */
static void append_ends(struct answer_body *a, const struct call_text *t, size_t max)
{
	static const char between[] = "\\n" CUT "\\n";
	size_t half = (max - (sizeof between - 1)) / 2, tail;

	if (t->len <= max) {
		answer_add_part(a, ANSWER_TEXT, t->text, t->len);
		return;
	}
	answer_add_part(a, ANSWER_TEXT, t->text, utf8_cut(t->text, t->len, half));
	answer_add(a, between);
	tail = t->len - half;
	while (tail < t->len && ((unsigned char)t->text[tail] & 0xc0) == 0x80)
		tail++;
	answer_add_part(a, ANSWER_TEXT, t->text + tail, t->len - tail);
}

static void append_error(struct answer_body *a, const struct call_result *c)
{
	if (!c->told) {
		answer_add(a, ", \"error\": ");
		answer_add_json(a,
				json_pack("{s:s, s:s, s:s}", "type", c->type.text, "message", c->message.text, "traceback",
					  c->traceback.text),
				0);
		return;
	}
	answer_add(a, ", \"error\": {\"type\": \"");
	append_head(a, &c->type, LIMIT_ERROR_TYPE_BYTES);
	answer_add(a, "\", \"message\": \"");
	append_head(a, &c->message, LIMIT_ERROR_MESSAGE_BYTES);
	answer_add(a, "\", \"traceback\": \"");
	append_ends(a, &c->traceback, LIMIT_ERROR_TRACEBACK_BYTES);
	answer_add(a, "\"}");
}

int answer_make(struct answer_body *a, const struct run_result *r)
{
	*a = (struct answer_body){0};
	append_ids(a, r);
	append_output(a, r);
	append_files(a, &r->files);
	answer_add(a, "}");
	return answer_end(a);
}

int answer_make_call(struct answer_body *a, const struct run_result *r, const struct call_result *c)
{
	*a = (struct answer_body){0};
	append_ids(a, r);
	if (c->outcome == CALL_RETURNED) {
		answer_add(a, ", \"result\": ");
		answer_add_part(a, ANSWER_RAW, c->value.text, c->value.len);
	} else {
		append_error(a, c);
	}
	append_output(a, r);
	answer_add(a, "}");
	return answer_end(a);
}

void answer_own(struct answer_body *a, struct run_result *r)
{
	for (int i = 0; i < RUN_PIPES; i++) {
		a->out[i] = TAKE_PTR(r->out[i]);
		a->out_len[i] = r->out_len[i];
	}
	a->files = TAKE_PTR(r->files.data);
	a->files_len = r->files.len;
}

size_t answer_len(const struct answer_body *a)
{
	size_t total = 0;

	for (size_t i = 0; i < a->count; i++) {
		const struct answer_part *p = &a->parts[i];

		if (p->kind == ANSWER_TEXT)
			total += escape_json_len(p->data, p->len);
		else if (p->kind == ANSWER_BASE64)
			total += BASE64_LEN(p->len);
		else
			total += p->len;
	}
	return total;
}

size_t answer_held(const struct answer_body *a)
{
	size_t held = a->literal_room + a->room * sizeof *a->parts + a->files_len;

	for (int i = 0; i < RUN_PIPES; i++)
		held += a->out_len[i];
	return held;
}

/* Of one part, from `at` on, what fits. Returns how much was written, *ret_used how much of the part that was. */
static size_t read_part(const struct answer_body *a, const struct answer_part *p, size_t at, char *buf, size_t max,
			size_t *ret_used)
{
	size_t left = p->len - at, n;

	switch (p->kind) {
	case ANSWER_TEXT:
		return escape_json(buf, max, p->data + at, left, ret_used);
	case ANSWER_BASE64:
		n = max / 4 * 3;
		if (n > left)
			n = left;
		base64_encode(buf, p->data + at, n);
		*ret_used = n;
		return BASE64_LEN(n);
	case ANSWER_LITERAL:
	case ANSWER_RAW:
		break;
	}
	n = left < max ? left : max;
	memcpy(buf, (p->kind == ANSWER_RAW ? p->data : a->literal + p->from) + at, n);
	*ret_used = n;
	return n;
}

size_t answer_read(struct answer_body *a, char *buf, size_t max)
{
	size_t done = 0, used = 1;

	while (a->part < a->count && used > 0) {
		const struct answer_part *p = &a->parts[a->part];

		done += read_part(a, p, a->at, buf + done, max - done, &used);
		a->at += used;
		if (a->at == p->len) {
			a->part++;
			a->at = 0;
		}
	}
	return done;
}

void answer_clear(struct answer_body *a)
{
	free(a->literal);
	free(a->parts);
	for (int i = 0; i < RUN_PIPES; i++)
		free(a->out[i]);
	free(a->files);
	*a = (struct answer_body){0};
}

char *answer_result(const struct run_result *r, size_t *ret_len)
{
	struct answer_body a;
	size_t len, done = 0, n;
	char *text;

	if (answer_make(&a, r) < 0)
		return NULL;
	len = answer_len(&a);
	text = malloc(len + ANSWER_READ_MIN);
	while (text && (n = answer_read(&a, text + done, len + ANSWER_READ_MIN - done)) > 0)
		done += n;
	answer_clear(&a);
	if (!text)
		return NULL;
	text[len] = 0;
	*ret_len = len;
	return text;
}

/* ---- errors ---- */

/* The harness found something in the way of a file. A link on the way is what the contract calls an escape. */
static void refused(const struct tell_end *end, struct api_error *ret_error)
{
	if (end->refused_errno == ELOOP || end->refused_errno == EXDEV) {
		error_set(ret_error, ERROR_PATH_ESCAPES, NULL);
		error_set_hint(ret_error, "at \"/files/%u/path\": %s", end->refused_index, error_row(ERROR_PATH_ESCAPES)->hint);
	} else {
		error_set(ret_error, ERROR_FILE_CONFLICT, "at \"/files/%u/path\": the file can't be written there: %s",
			  end->refused_index, strerror((int)end->refused_errno));
	}
}

#define NOT_READY "tool sandbox not ready within %d s: "

/* Of a call: what the supervisor knows better than that it failed. Returns whether it is one of these. */
static bool not_called(const struct tell_fail *f, struct api_error *ret_error)
{
	bool tools = !strcmp(f->layer, "tools");

	if (f->code == ENOENT && !strcmp(f->layer, "agent")) {
		error_set(ret_error, ERROR_NO_AGENT, NULL);
		if (*f->text) /* which of several it is, and what to do about it */
			error_set_hint(ret_error, "%s", f->text);
		return true;
	}
	if (f->code == ETIMEDOUT)
		error_set(ret_error, ERROR_TOOL_NOT_READY, NOT_READY "%s", LIMIT_CALL_READY_S, f->text);
	else if (f->code == EAGAIN && !strcmp(f->layer, "pool"))
		error_set(ret_error, ERROR_OVERLOADED, "%s", f->text);
	else if (tools)
		error_set(ret_error, ERROR_TOOLS, "the agent's tools could not be loaded: %s", f->text);
	else
		return false;
	return true;
}

void answer_error(const struct run_result *r, struct api_error *ret_error)
{
	switch (r->outcome) {
	case RUN_BUSY:
		if (r->call)
			error_set(ret_error, ERROR_TOOL_NOT_READY, NOT_READY "others are being made ready before it",
				  LIMIT_CALL_READY_S);
		else
			error_set(ret_error, ERROR_NO_SANDBOX, NULL);
		break;
	case RUN_GONE:
		error_set(ret_error, ERROR_CANCELLED, NULL);
		break;
	case RUN_REFUSED:
		refused(&r->end, ret_error);
		break;
	case RUN_DONE:
		error_set(ret_error, ERROR_INTERNAL, NULL); /* the answer itself could not be made */
		break;
	case RUN_FAILED:
		if (r->call && not_called(&r->fail, ret_error))
			break;
		if (!strcmp(r->fail.layer, FAIL_POLICY_ONLY))
			error_set(ret_error, ERROR_POLICY_ONLY, NULL);
		else if (r->ran)
			error_set(ret_error, ERROR_SANDBOX, "the run was lost (%s): %s", r->fail.layer, r->fail.text);
		else
			error_set(ret_error, ERROR_SANDBOX, "sandbox failed at layer %s: %s", r->fail.layer, r->fail.text);
		break;
	}
	ret_error->ran = r->ran;
}
