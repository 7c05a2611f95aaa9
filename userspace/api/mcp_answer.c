/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/answer_priv.h"
#include "api/mcp_priv.h"
#include "core/cleanup.h"
#include "core/limits.h"
#include "core/media_type.h"

/* Of the files in the words for the model; all of them are in structuredContent. */
#define NAMED_MAX 32

/* ---- pictures ---- */

/*
 * What models' services take as pictures; one that is none makes them refuse the whole conversation. So both the name and the
 * first bytes have to say that it is one, and the bytes say which.
 */
static const struct {
	const char *type, *magic;
	size_t len, at;
} pictures[] = {
    {"image/png", "\x89PNG\r\n\x1a\n", 8, 0},
    {"image/jpeg", "\xff\xd8\xff", 3, 0},
    {"image/gif", "GIF87a", 6, 0},
    {"image/gif", "GIF89a", 6, 0},
    {"image/webp", "WEBP", 4, 8},
};

/* NULL when it is none. */
static const char *picture_type(const struct collected_entry *e, const char *path, const char *content)
{
	const char *named = media_type(path, e->path_len), *found = NULL;
	bool listed = false;

	for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++) {
		size_t at = pictures[i].at, len = pictures[i].len;

		listed = listed || !strcmp(named, pictures[i].type);
		if (!found && e->size >= at + len && !memcmp(content + at, pictures[i].magic, len))
			found = pictures[i].type;
	}
	return listed ? found : NULL;
}

/* ---- words for the model ---- */

/* Lines, with no newline at the end. Missing memory shows when it is closed. */
struct words {
	FILE *to;
	char *text;
	size_t len;
	bool begun;
};

static FILE *line(struct words *w)
{
	if (w->begun)
		fputc('\n', w->to);
	w->begun = true;
	return w->to;
}

static void say_ending(struct words *w, const struct run_result *r)
{
	const struct tell_end *end = &r->end;
	bool silent = r->out_len[RUN_STDOUT] + r->out_len[RUN_STDERR] == 0;
	json_t *how = answer_termination(end);
	const char *signal = json_string_value(json_object_get(how, "signal"));

	switch (end->end) {
	case RUN_END_EXIT:
		if (end->exit_code)
			fprintf(line(w), "The code ended with exit code %d%s.", end->exit_code,
				silent ? " and wrote nothing" : "");
		else if (silent)
			fprintf(line(w), "The code ended with exit code 0 and wrote nothing: print() what you want to see.");
		break;
	case RUN_END_SIGNAL:
		fprintf(line(w), "The code was ended by %s (exit code %d).", signal ? signal : "a signal", end->exit_code);
		break;
	case RUN_END_TIMEOUT:
		fprintf(line(w), "The code was stopped after %u s, its deadline%s.", r->timeout_s,
			r->timeout_s < LIMIT_TIMEOUT_MAX_S ? "; timeout_s can make it longer"
							   : ", which is the longest there is");
		break;
	default:
		fprintf(line(w), "The code was stopped: %s (exit code %d).",
			*end->detail ? end->detail : run_end_names[end->end], end->exit_code);
		break;
	}
	json_decref(how);
	for (int i = 0; r->truncated && i < RUN_STREAMS; i++)
		if (r->out_bytes[i] > r->out_len[i])
			fprintf(line(w), "Only the first %zu of at least %llu bytes on %s are here.", r->out_len[i],
				(unsigned long long)r->out_bytes[i], i == RUN_STDOUT ? "standard output" : "standard error");
	if (end->denied)
		fprintf(line(w), "%llu attempt%s to reach the network %s refused.", (unsigned long long)end->denied,
			end->denied == 1 ? "" : "s", end->denied == 1 ? "was" : "were");
}

/* A name as a JSON string, since it may hold anything that a name can: also what looks like our own words. */
static void say_name(FILE *to, const char *path, size_t len)
{
	json_t *name = json_stringn(path, len);
	_cleanup_free_ char *text = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;

	json_decref(name);
	fputs(text ? text : "a file whose name is no text", to);
}

/* Those that were kept, or those that were not. */
static void say_files(struct words *w, const struct run_files *f, bool kept)
{
	const char *before = kept ? "Files left by the code: " : "Not read of what the code left: ";
	uint64_t more = kept ? 0 : f->skipped_unlisted;
	struct collected_entry e;
	const char *path, *content;
	unsigned named = 0;

	for (size_t at = 0; run_files_next(f, &at, &e, &path, &content);) {
		if ((e.kind == COLLECTED_FILE) != kept)
			continue;
		if (named == NAMED_MAX) {
			more++;
			continue;
		}
		fputs(named ? ", " : before, named ? w->to : line(w));
		say_name(w->to, path, e.path_len);
		if (kept)
			fprintf(w->to, " (%llu bytes%s)", (unsigned long long)e.size,
				picture_type(&e, path, content) ? ", below" : "");
		else
			fprintf(w->to, " (%s)", skip_names[e.kind]);
		named++;
	}
	if (more)
		fprintf(named ? w->to : line(w), "%s%llu more", named ? " and " : before, (unsigned long long)more);
	if (named || more)
		fputc('.', w->to);
	if (!kept && f->problem)
		fprintf(line(w), "The files that the code left could not be read: %s.", f->problem);
}

/* What is to be said besides the output. malloc'd; "" when nothing is, NULL when there is no memory. */
static char *words_about(const struct run_result *r)
{
	struct words w = {0};

	w.to = open_memstream(&w.text, &w.len);
	if (!w.to)
		return NULL;
	say_ending(&w, r);
	say_files(&w, &r->files, true);
	say_files(&w, &r->files, false);
	if (fclose(w.to) == 0)
		return w.text;
	free(w.text);
	return NULL;
}

/* ---- the result ---- */

static void add_text(struct answer_body *a, const char **between, const char *before, const char *text, size_t len)
{
	if (len == 0)
		return;
	answer_add(a, *between);
	answer_add(a, "{\"type\": \"text\", \"text\": \"");
	answer_add(a, before);
	answer_add_part(a, ANSWER_TEXT, text, len);
	answer_add(a, "\"}");
	*between = ", ";
}

static void add_content(struct answer_body *a, const struct run_result *r)
{
	_cleanup_free_ char *about = words_about(r);
	struct collected_entry e;
	const char *path, *content, *between = "";

	/* Blocks of their own, so that no output can be taken for ours. */
	add_text(a, &between, "", r->out[RUN_STDOUT], r->out_len[RUN_STDOUT]);
	add_text(a, &between, "stderr:\\n", r->out[RUN_STDERR], r->out_len[RUN_STDERR]);
	if (!about || *about) {
		answer_add(a, between);
		answer_add_json(a, about ? json_pack("{s:s, s:s}", "type", "text", "text", about) : NULL, 0);
		between = ", ";
	}
	for (size_t at = 0; run_files_next(&r->files, &at, &e, &path, &content);) {
		const char *type = e.kind == COLLECTED_FILE ? picture_type(&e, path, content) : NULL;

		if (!type)
			continue;
		answer_add(a, between);
		answer_add(a, "{\"type\": \"image\", \"mimeType\": \"");
		answer_add(a, type);
		answer_add(a, "\", \"data\": \"");
		answer_add_part(a, ANSWER_BASE64, content, (size_t)e.size);
		answer_add(a, "\"}");
		between = ", ";
	}
}

static json_t *file_names(const struct run_files *f)
{
	json_t *names = json_array();
	struct collected_entry e;
	const char *path, *content;

	for (size_t at = 0; run_files_next(f, &at, &e, &path, &content);)
		if (e.kind == COLLECTED_FILE && json_array_append_new(names, json_stringn(path, e.path_len)) < 0) {
			json_decref(names);
			return NULL;
		}
	return names;
}

static void add_structured(struct answer_body *a, const struct run_result *r)
{
	const struct tell_end *end = &r->end;

	answer_add(a, "{\"stdout\": \"");
	answer_add_part(a, ANSWER_TEXT, r->out[RUN_STDOUT], r->out_len[RUN_STDOUT]);
	answer_add(a, "\", \"stderr\": \"");
	answer_add_part(a, ANSWER_TEXT, r->out[RUN_STDERR], r->out_len[RUN_STDERR]);
	answer_add(a, "\", ");
	answer_add_json(a,
			json_pack("{s:i, s:o, s:o, s:b, s:I, s:s, s:s}", "exit_code", (int)end->exit_code, "files",
				  file_names(&r->files), "termination", answer_termination(end), "truncated", r->truncated,
				  "duration_ms", (json_int_t)(end->duration_us / 1000), "run_id", r->grant.run_id, "python",
				  r->grant.python),
			JSON_EMBED);
	answer_add(a, "}");
}

/* What is for the client and not for the model, which pays for every word: beside the content, not in it. */
static json_t *about_run(const struct mcp_call *call, const struct run_result *r)
{
	json_t *account = answer_account(r), *extras = call->modern ? mcp_result_extras(call) : json_object();
	json_t *meta = json_object_get(extras, "_meta");

	if (!meta && json_object_set_new(extras, "_meta", json_object()) == 0)
		meta = json_object_get(extras, "_meta");
	if (json_object_set_new(meta, "weir/run", account) == 0)
		return extras;
	json_decref(extras);
	return NULL;
}

int mcp_answer_make(struct answer_body *a, const struct mcp_call *call, const struct run_result *r)
{
	*a = (struct answer_body){0};
	answer_add(a, "{\"jsonrpc\": \"2.0\", \"id\": ");
	answer_add(a, call->id);
	answer_add(a, ", \"result\": {\"content\": [");
	add_content(a, r);
	answer_add(a, "], \"structuredContent\": ");
	add_structured(a, r);
	answer_add(a, r->end.exit_code ? ", \"isError\": true, " : ", \"isError\": false, ");
	answer_add_json(a, about_run(call, r), JSON_EMBED);
	answer_add(a, "}}");
	return answer_end(a);
}

/* ---- what went wrong ---- */

char *mcp_answer_error(const struct mcp_call *call, const struct api_error *e, size_t *ret_len)
{
	const struct error_row *row = error_row(e->kase);
	json_t *shape = error_json(e), *error = json_object_get(shape, "error"), *result = NULL;
	const char *ran = e->ran ? "Some of the code may have run." : "Nothing ran.";
	_cleanup_free_ char *text = NULL;

	if (row->retry_after_s && error &&
	    json_object_set_new(error, "retry_after_s", json_integer((json_int_t)row->retry_after_s)) < 0)
		error = NULL;
	if (error && asprintf(&text, "%s\n%s\n%s", e->message, ran, error_hint(e)) >= 0)
		result = json_pack("{s:[{s:s, s:s}], s:b, s:{s:O}}", "content", "type", "text", "text", text, "isError", 1,
				   "_meta", "weir/error", error);
	json_decref(shape);
	return mcp_result(call, result, ret_len);
}
