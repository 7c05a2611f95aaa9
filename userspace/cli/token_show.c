/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/token_show.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/log.h"

/* The table is root's, but a terminal obeys control characters whoever wrote them. */
static const char *shown(char *buf, size_t size, const char *text, size_t max)
{
	snprintf(buf, size, "%.*s", (int)max, text);
	for (char *p = buf; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	return buf;
}
#define SHOWN(field) shown((char[80]){0}, 80, (field), sizeof(field))

/* `buf` is left as it is when there is no such time. */
static void utc(char buf[TOKEN_TIME_LEN], int64_t t)
{
	time_t tt = (time_t)t;
	struct tm tm;

	if (gmtime_r(&tt, &tm))
		strftime(buf, TOKEN_TIME_LEN, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

const char *token_time_text(char buf[TOKEN_TIME_LEN], int64_t t)
{
	snprintf(buf, TOKEN_TIME_LEN, "never");
	if (t)
		utc(buf, t);
	return buf;
}
#define LONG_TIME(t) token_time_text((char[TOKEN_TIME_LEN]){0}, (t))

/* To the minute, for a table. */
static const char *short_time(char buf[TOKEN_TIME_LEN], int64_t t)
{
	token_time_text(buf, t);
	if (t) {
		buf[strcspn(buf, "T")] = ' ';
		buf[strlen("2026-11-29 12:00")] = 0;
	}
	return buf;
}
#define SHORT_TIME(t) short_time((char[TOKEN_TIME_LEN]){0}, (t))

static json_t *time_json(int64_t t)
{
	return t ? json_string(LONG_TIME(t)) : json_null();
}

const char *token_scopes_text(char buf[TOKEN_SCOPES_LEN], unsigned scopes)
{
	size_t used = 0;

	buf[0] = 0;
	for (size_t i = 0; i < TOKEN_SCOPES; i++)
		if (scopes & token_scope_names[i].bit)
			used += (size_t)snprintf(buf + used, TOKEN_SCOPES_LEN - used, "%s%s", used ? "," : "",
						 token_scope_names[i].name);
	return buf;
}
#define SCOPES_TEXT(scopes) token_scopes_text((char[TOKEN_SCOPES_LEN]){0}, (scopes))

static const char *state_of(const struct token_slot *slot, int64_t now_s)
{
	if (token_slot_state(slot) == TOKEN_REVOKED)
		return "revoked";
	if (token_project_reserved(SHOWN(slot->project)))
		return "reserved"; /* opens nothing */
	return token_slot_valid(slot, now_s) ? "active" : "expired";
}

/* The api writes these; one that cannot be is not shown. */
static int64_t last_used(const struct tokenfile *t, unsigned i, int64_t now_s)
{
	int64_t last = t->used ? atomic_load_explicit(&t->used->last_s[i], memory_order_relaxed) : 0;

	return last > 0 && last <= now_s + 60 ? last : 0;
}

/* Text that may not be UTF-8 after all becomes null rather than no answer. */
static json_t *string_json(const char *text)
{
	json_t *j = *text ? json_string(text) : NULL;

	return j ? j : json_null();
}

json_t *token_json(const struct token_slot *slot)
{
	json_t *j = json_object(), *scopes = json_array();

	for (size_t i = 0; i < TOKEN_SCOPES; i++)
		if (slot->scopes & token_scope_names[i].bit)
			json_array_append_new(scopes, json_string(token_scope_names[i].name));
	json_object_set_new(j, "id", string_json(SHOWN(slot->id)));
	json_object_set_new(j, "project", string_json(SHOWN(slot->project)));
	json_object_set_new(j, "scopes", scopes);
	json_object_set_new(j, "agent", string_json(SHOWN(slot->agent)));
	json_object_set_new(j, "note", string_json(SHOWN(slot->note)));
	json_object_set_new(j, "created", time_json(slot->created_s));
	json_object_set_new(j, "expires", time_json(slot->expires_s));
	return j;
}

int token_print_json(json_t *j, struct err *e)
{
	int rc = j ? json_dumpf(j, stdout, JSON_INDENT(2)) : -1;

	json_decref(j);
	if (putchar('\n') == EOF || fflush(stdout) == EOF || rc < 0)
		return err_set(e, EIO, "", "can't write to standard output");
	return 0;
}

struct listing {
	const struct tokenfile *table;
	const char *dir, *project_only;
	int64_t now_s;
	unsigned rows[LIMIT_TOKENS];
	size_t count;
	int project, scopes, agent; /* widths of columns */
};

static int older_first(const void *a, const void *b, void *ctx)
{
	const struct tokens_file *f = ((const struct listing *)ctx)->table->file;
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
	int64_t d = f->slots[x].created_s - f->slots[y].created_s;

	return d ? (d > 0) - (d < 0) : (x > y) - (x < y);
}

static void widen(int *width, const char *text)
{
	int n = (int)strlen(text);

	*width = n > *width ? n : *width;
}

static void collect(struct listing *l)
{
	unsigned count = l->table->file ? tokens_count(l->table->file) : 0;

	for (unsigned i = 0; i < count; i++) {
		const struct token_slot *slot = &l->table->file->slots[i];

		if (token_slot_state(slot) == TOKEN_FREE ||
		    (l->project_only && strcmp(SHOWN(slot->project), l->project_only) != 0))
			continue;
		l->rows[l->count++] = i;
		widen(&l->project, SHOWN(slot->project));
		widen(&l->scopes, SCOPES_TEXT(slot->scopes));
		widen(&l->agent, SHOWN(slot->agent));
	}
	qsort_r(l->rows, l->count, sizeof l->rows[0], older_first, l);
}

static int print_table(const struct listing *l, struct err *e)
{
	bool colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");

	if (!l->count) {
		bool usual = !strcmp(l->dir, DEFAULT_STATE_DIR);

		fprintf(stderr, "weir: no tokens%s%s in %s; `weir token mint --project NAME%s%s` makes one\n",
			l->project_only ? " of project " : "", l->project_only ? l->project_only : "", l->dir,
			usual ? "" : " --state-dir ", usual ? "" : l->dir);
		return 0;
	}
	printf("%-12s  %-*s  %-*s  %-*s  %-7s  %-16s  %-16s  %-16s  %s\n", "ID", l->project, "PROJECT", l->scopes, "SCOPES",
	       l->agent, "AGENT", "STATE", "CREATED (UTC)", "EXPIRES", "LAST USED", "NOTE");
	for (size_t i = 0; i < l->count; i++) {
		const struct token_slot *slot = &l->table->file->slots[l->rows[i]];
		const char *state = state_of(slot, l->now_s);

		printf("%-12s  %-*s  %-*s  %-*s  %s%-7s%s  %-16s  %-16s  %-16s  %s\n", SHOWN(slot->id), l->project,
		       SHOWN(slot->project), l->scopes, SCOPES_TEXT(slot->scopes), l->agent, SHOWN(slot->agent),
		       !colour			  ? ""
		       : !strcmp(state, "active") ? "\033[32m"
						  : "\033[31m",
		       state, colour ? "\033[0m" : "", SHORT_TIME(slot->created_s), SHORT_TIME(slot->expires_s),
		       SHORT_TIME(last_used(l->table, l->rows[i], l->now_s)), SHOWN(slot->note));
	}
	return fflush(stdout) == EOF ? err_set(e, EIO, "", "can't write to standard output") : 0;
}

static int print_list(const struct listing *l, struct err *e)
{
	json_t *all = json_array(), *top = json_object();

	for (size_t i = 0; i < l->count; i++) {
		const struct token_slot *slot = &l->table->file->slots[l->rows[i]];
		json_t *j = token_json(slot);

		json_object_set_new(j, "last_used", time_json(last_used(l->table, l->rows[i], l->now_s)));
		json_object_set_new(j, "revoked", time_json(token_slot_state(slot) == TOKEN_REVOKED ? slot->revoked_s : 0));
		json_object_set_new(j, "state", json_string(state_of(slot, l->now_s)));
		json_array_append_new(all, j);
	}
	json_object_set_new(top, "tokens", all);
	return token_print_json(top, e);
}

int token_list(const struct tokenfile *table, const char *dir, const char *project, int64_t now_s, bool json, struct err *e)
{
	/* The headings are the least widths. */
	struct listing l = {
	    .table = table, .dir = dir, .project_only = project, .now_s = now_s, .project = 7, .scopes = 6, .agent = 5};

	collect(&l);
	return json ? print_list(&l, e) : print_table(&l, e);
}

void token_warn_of_reserved(const struct tokens_file *f, int64_t now_s)
{
	for (unsigned i = 0; i < tokens_count(f); i++) {
		const struct token_slot *slot = &f->slots[i];

		if (token_slot_valid(slot, now_s) && token_project_reserved(SHOWN(slot->project)))
			log_warn("token %s opens nothing: this host's own records are kept under the name of its project, %s: "
				 "revoke "
				 "it, and mint one of another project",
				 SHOWN(slot->id), SHOWN(slot->project));
	}
}
