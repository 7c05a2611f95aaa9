/* SPDX-License-Identifier: Apache-2.0 */
/* `weir audit ls` and `weir audit show ID`. */
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/audit_cmd.h"
#include "cli/audit_open.h"
#include "cli/audit_print.h"
#include "core/limits.h"
#include "core/policy_read.h"

#define LS_DEFAULT 50

static json_t *run_of(const struct store *store, const char *run_id, int *ret_error)
{
	struct view *v = NULL;
	json_t *run = NULL;

	*ret_error = store_run(store, run_id, &v);
	if (*ret_error == 0) {
		run = view_run(v, store_state_names[store_state(store, run_id)]);
		*ret_error = run ? 0 : -ENOMEM;
	}
	view_free(v);
	return run;
}

struct listing {
	const struct store *store;
	const char *window; /* those of this attachment */
	json_t *runs;
};

/* "attached-x.3" of "attached-x". */
static bool is_window(const char *run_id, const char *attachment)
{
	size_t len = strlen(attachment);

	return !strncmp(run_id, attachment, len) && run_id[len] == '.';
}

static int list_run(void *ctx, const char *run_id)
{
	struct listing *l = ctx;
	json_t *run;
	int r;

	if (!is_window(run_id, l->window))
		return 0;
	run = run_of(l->store, run_id, &r);
	if (!run)
		return r;
	json_object_del(run, "events");
	return json_array_append_new(l->runs, run) < 0 ? -ENOMEM : 0;
}

/* Without a number it names no run, but a row of them. -ENOENT: there are none. */
static int show_windows(const struct store *store, const struct audit_args *a)
{
	struct listing l = {.store = store, .window = a->id, .runs = json_array()};
	_cleanup_json_ json_t *whole = NULL;
	const json_t *run;
	size_t i;
	int r = l.runs ? store_each_run(store, list_run, &l) : -ENOMEM;

	whole = json_pack("{s:o}", "runs", l.runs);
	if (r < 0 || !whole)
		return r < 0 ? r : -ENOMEM;
	if (!json_array_size(l.runs))
		return -ENOENT;
	if (a->json)
		return audit_print_json(whole);
	audit_print_header();
	json_array_foreach(l.runs, i, run)
	{
		audit_print_row(run);
	}
	printf("The record of %s has these parts, the newest last; `weir audit show %s` shows one.\n", a->id,
	       GET(json_array_get(l.runs, i - 1), "run_id"));
	return 0;
}

static int show(const struct store *store, const struct audit_args *a, struct err *e)
{
	int r;
	json_t *run = run_of(store, a->id, &r);

	if (r == -ENOENT && (r = show_windows(store, a)) == 0)
		return 0;
	if (r == -ENOENT)
		return err_set(e, ENOENT, "", "no run \"%s\" in the record; `weir audit ls` lists them", a->id);
	if (r < 0)
		return err_errno(e, -r, "", "can't read the run");
	if (a->json)
		r = audit_print_json(run);
	else
		audit_print_run(run);
	json_decref(run);
	return r;
}

/* ---- ls ---- */

static json_t *member(const json_t *row, const char *name)
{
	json_t *value = json_object_get(row, name);

	return value ? value : json_null();
}

/* A row of a search, with those of its members that show has elsewhere where show has them. */
static json_t *as_listed(json_t *row)
{
	const json_int_t attempts = json_integer_value(member(row, "attempts")),
			 denied = json_integer_value(member(row, "denied")),
			 would = json_integer_value(member(row, "would_deny"));
	json_t *egress = json_pack("{s:I, s:I, s:I, s:I, s:O}", "attempts", attempts, "denied", denied, "allowed",
				   attempts - denied - would, "would_deny", would, "lost", member(row, "lost"));
	json_t *end = json_is_null(member(row, "end")) ? json_null() : json_pack("{s:O}", "reason", member(row, "end"));
	bool is_target = json_is_string(member(row, "ref"));
	json_t *target = is_target ? json_pack("{s:O, s:O}", "kind", member(row, "target"), "ref", member(row, "ref")) : NULL;

	json_object_set_new(row, "egress", egress);
	json_object_set_new(row, "termination", end);
	for (const char *const *name =
		 (const char *const[]){"attempts", "denied", "would_deny", "lost", "end", "ref", "target", NULL};
	     *name; name++)
		json_object_del(row, *name);
	if (target)
		json_object_set_new(row, "target", target);
	return row;
}

/* As many as were asked for, the newest first; *ret_more: there are older ones. */
static int gather(const struct store *store, const struct audit_args *a, long limit, json_t *runs, bool *ret_more)
{
	struct find find = a->find;
	json_t *row;
	size_t i;

	*ret_more = true;
	while (*ret_more && (!limit || json_array_size(runs) < (size_t)limit)) {
		_cleanup_json_ json_t *page = NULL;
		size_t left = limit ? (size_t)limit - json_array_size(runs) : LIMIT_AUDIT_SEARCH;
		int r;

		find.limit = left < LIMIT_AUDIT_SEARCH ? (uint32_t)left : LIMIT_AUDIT_SEARCH;
		r = store_search(store, &find, "", "", &page);
		if (r < 0)
			return r;
		json_array_foreach(json_object_get(page, "runs"), i, row)
		{
			if (json_array_append(runs, as_listed(row)) < 0)
				return -ENOMEM;
		}
		*ret_more = json_is_string(json_object_get(page, "next"));
		find.after = *ret_more ? strtoull(json_string_value(json_object_get(page, "next")), NULL, 10) : 0;
	}
	return 0;
}

static json_t *reversed(const json_t *list)
{
	json_t *all = json_array();

	for (size_t i = json_array_size(list); i > 0; i--)
		json_array_append(all, json_array_get(list, i - 1));
	return all;
}

static int print_list(const struct audit_args *a, json_t *take_runs, bool more)
{
	_cleanup_json_ json_t *runs = take_runs, *whole = NULL;
	const json_t *run;
	size_t i;

	if (a->json) {
		whole = json_pack("{s:O, s:b}", "runs", runs, "more", more);
		return whole ? audit_print_json(whole) : -ENOMEM;
	}
	audit_print_header();
	json_array_foreach(runs, i, run)
	{
		audit_print_row(run);
	}
	if (more)
		printf("There are older runs; --limit 0 lists all\n");
	return 0;
}

static int ls(const struct store *store, const struct audit_args *a, struct err *e)
{
	_cleanup_json_ json_t *runs = json_array();
	bool more = false;
	int r = runs ? gather(store, a, a->limit < 0 ? LS_DEFAULT : a->limit, runs, &more) : -ENOMEM;

	if (r < 0)
		return err_errno(e, -r, "", "can't read the record");
	return print_list(a, reversed(runs), more);
}

static int with_record(int (*fn)(const struct store *store, const struct audit_args *a, struct err *e),
		       const struct audit_args *a, struct err *e)
{
	struct audit_record record;
	int r = audit_open(&record, a->state_dir, e);

	if (r < 0)
		return r;
	r = fn(record.store, a, e);
	audit_close(&record);
	return r;
}

int audit_ls(const struct audit_args *args, struct err *e)
{
	return with_record(ls, args, e);
}

int audit_show(const struct audit_args *args, struct err *e)
{
	return with_record(show, args, e);
}
