/* SPDX-License-Identifier: Apache-2.0 */
/* `weir audit report`: what the record has, given to report/, which makes a page of it. */
#include "cli/audit_cmd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/audit_check.h"
#include "cli/audit_open.h"
#include "cli/audit_output.h"
#include "core/chain.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/event.h"
#include "core/policy_read.h"
#include "core/rfc3339.h"
#include "report/report.h"
#include "version.h"

#define NOTICES_MAX 200 /* gaps, prunes and breaks on one page */

/* ---- one run ---- */

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

/* What is not in the record is left out: the page says so. */
static int add_policy(const struct store *store, json_t *policies, const char *hash)
{
	_cleanup_free_ char *text = NULL;
	int r;

	if (!hash || json_object_get(policies, hash))
		return 0;
	r = store_policy_text(store, hash, &text);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : json_object_set_new(policies, hash, json_string(text)) < 0 ? -ENOMEM : 0;
}

static int policies_of(const struct store *store, const json_t *run, json_t *policies)
{
	int r = add_policy(store, policies, json_string_value(json_object_get(run, "policy_hash")));
	const json_t *change;
	size_t i;

	json_array_foreach(json_object_get(run, "policy_changes"), i, change)
	{
		if (r == 0)
			r = add_policy(store, policies, json_string_value(json_object_get(change, "policy_hash")));
	}
	return r;
}

/* What its entry has beside what every view shows: how many records, the digest over them, the signature, by which key. */
static int add_entry(const struct audit_record *record, json_t *run)
{
	json_t *chain = json_object_get(run, "chain"), *body;
	_cleanup_json_ json_t *entry = NULL;
	uint8_t key_id[CHAIN_HASH];
	char hex[2 * CHAIN_HASH + 1];
	int r, bad = 0;

	if (!json_is_object(chain))
		return 0;
	r = store_entry(record->store, (uint64_t)json_integer_value(json_object_get(chain, "n")), &entry);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	body = json_object_get(entry, "body");
	for (const char *const *name = (const char *const[]){"records", "records_sha256", NULL}; *name; name++)
		if (json_object_get(body, *name))
			bad |= json_object_set(chain, *name, json_object_get(body, *name));
	bad |= json_object_set(chain, "signature", json_object_get(entry, "signature"));
	if (record->has_public && json_is_true(json_object_get(chain, "signed"))) {
		chain_body_digest(record->public, sizeof record->public, key_id);
		chain_hex(key_id, hex);
		bad |= json_object_set_new(chain, "key_id", json_string(hex));
	}
	return bad ? -ENOMEM : 0;
}

/* What `object`'s page is about began at `since` or later; NULL or no time: the whole record is checked. */
static int set_checked(const struct audit_record *record, json_t *object, const char *since)
{
	uint64_t since_ns = 0;

	if (since && rfc3339_parse(since, &since_ns) < 0)
		since_ns = 0;
	return json_object_set_new(object, "checked", audit_check(record, since_ns)) < 0 ? -ENOMEM : 0;
}

static int page_of_run(const struct audit_record *record, json_t *run, const struct report_about *about, char **ret,
		       size_t *ret_len)
{
	_cleanup_json_ json_t *policies = json_object();
	int r = policies ? policies_of(record->store, run, policies) : -ENOMEM;

	if (r == 0)
		r = add_entry(record, run);
	if (r == 0)
		r = set_checked(record, run, json_string_value(json_object_get(run, "began")));
	if (r < 0)
		return r;
	*ret = report_run(run, policies, about, ret_len);
	return *ret ? 0 : -ENOMEM;
}

/* ---- many ---- */

/* Each run of one answer of a search, read whole and folded, so that one of them at a time is in memory. */
static int add_found(const struct store *store, const json_t *found, struct report_period *p, long *left, bool *more)
{
	const json_t *row;
	size_t i;
	int r = 0;

	json_array_foreach(json_object_get(found, "runs"), i, row)
	{
		const char *run_id = json_string_value(json_object_get(row, "run_id"));
		json_t *run;

		*more |= !*left;
		if (r < 0 || !*left || !run_id)
			break;
		run = run_of(store, run_id, &r);
		if (r == 0)
			r = report_period_add(p, run);
		else if (r == -ENOENT) /* it was pruned while this was read */
			r = 0;
		json_decref(run);
		if (*left > 0)
			(*left)--;
	}
	return r;
}

/* A search's cursor. 0: there is no more. */
static uint64_t next_of(const json_t *found)
{
	const json_t *next = json_object_get(found, "next");

	return json_is_string(next) ? strtoull(json_string_value(next), NULL, 10) : (uint64_t)json_integer_value(next);
}

/* *ret_more: there are more than --limit lets be read. */
static int add_runs(const struct store *store, const struct audit_args *args, struct report_period *p, bool *ret_more)
{
	struct find find = args->find;
	long left = args->limit > 0 ? args->limit : -1;
	int r;

	do {
		_cleanup_json_ json_t *found = NULL;

		r = store_search(store, &find, "", "", &found);
		if (r == 0)
			r = add_found(store, found, p, &left, ret_more);
		find.after = r == 0 ? next_of(found) : 0;
		*ret_more |= !left && find.after;
	} while (find.after && left);
	return r;
}

static int set_time(json_t *period, const char *name, uint64_t ns)
{
	char text[EVENT_TIME_MAX];

	if (!ns)
		return 0;
	event_time_text(text, ns);
	return json_object_set_new(period, name, json_string(text));
}

/* Where the chain ends, and whether the keeper of the key has signed that far. */
static int set_chain(json_t *period, const struct audit_record *record)
{
	struct chain_head head;
	char hash[2 * CHAIN_HASH + 1];
	bool is_signed;

	if (store_head(record->store, &head) < 0 || !head.n)
		return 0;
	is_signed = record->has_head && (record->head.n > head.n ||
					 (record->head.n == head.n && !memcmp(record->head.hash, head.hash, CHAIN_HASH)));
	chain_hex(head.hash, hash);
	return json_object_set_new(period, "chain",
				   json_pack("{s:I, s:s, s:b}", "n", (json_int_t)head.n, "hash", hash, "signed", is_signed));
}

/* Gaps, prunes and breaks, one more than are shown: then there are more. */
static int set_notices(json_t *period, const struct store *store, const struct find *find)
{
	json_t *notices = NULL;
	int r = store_notices(store, find->since_ns, find->until_ns, NOTICES_MAX + 1, &notices);
	bool more = r == 0 && json_array_size(notices) > NOTICES_MAX;

	if (r < 0)
		return r;
	if (more)
		json_array_remove(notices, NOTICES_MAX);
	return json_object_set_new(period, "notices", notices) |
	       json_object_set_new(period, "notices_more", json_boolean(more));
}

static int describe_period(json_t *period, const struct audit_record *record, const struct audit_args *args)
{
	int bad = set_time(period, "since", args->find.since_ns) | set_time(period, "until", args->find.until_ns);

	if (args->find.project[0])
		bad |= json_object_set_new(period, "project", json_string(args->find.project));
	return bad | set_notices(period, record->store, &args->find) | set_chain(period, record);
}

static int page_of_period(const struct audit_record *record, const struct audit_args *args, const struct report_about *about,
			  char **ret, size_t *ret_len)
{
	struct report_period *p = report_period_new();
	_cleanup_json_ json_t *period = json_object();
	bool more = false;
	int r = p && period ? add_runs(record->store, args, p, &more) : -ENOMEM;

	if (r == 0 && more)
		r = json_object_set_new(period, "limit", json_integer(args->limit)) < 0 ? -ENOMEM : 0;
	if (r == 0)
		r = describe_period(period, record, args);
	if (r == 0)
		r = set_checked(record, period, json_string_value(json_object_get(period, "since")));
	if (r == 0 && !(*ret = report_period_page(p, period, about, ret_len)))
		r = -ENOMEM;
	report_period_free(p);
	return r < 0 ? r : 0;
}

/* ---- an attachment: many parts ---- */

struct parts {
	const char *attachment;
	char (*ids)[IPC_ID_MAX]; /* owned, REPORT_RUNS_MAX of them, a ring: the oldest come first */
	size_t count;
};

static int add_part(void *ctx, const char *run_id)
{
	struct parts *p = ctx;
	size_t len = strlen(p->attachment);

	if (!strncmp(run_id, p->attachment, len) && run_id[len] == '.')
		snprintf(p->ids[p->count++ % REPORT_RUNS_MAX], IPC_ID_MAX, "%s", run_id);
	return 0;
}

/* The newest first. */
static int add_parts(const struct store *store, const struct parts *parts, struct report_period *p)
{
	const size_t there = parts->count < REPORT_RUNS_MAX ? parts->count : REPORT_RUNS_MAX;
	int r = 0;

	for (size_t i = 0; i < there && r == 0; i++) {
		json_t *run = run_of(store, parts->ids[(parts->count - 1 - i) % REPORT_RUNS_MAX], &r);

		if (r == 0)
			r = report_period_add(p, run);
		else if (r == -ENOENT) /* it was pruned while this was read */
			r = 0;
		json_decref(run);
	}
	report_period_not_read(p, parts->count - there);
	return r;
}

/* -ENOENT: there are none. */
static int page_of_attachment(const struct audit_record *record, const struct audit_args *args,
			      const struct report_about *about, char **ret, size_t *ret_len)
{
	struct report_period *p = report_period_new();
	struct parts parts = {.attachment = args->id, .ids = calloc(REPORT_RUNS_MAX, sizeof *parts.ids)};
	_cleanup_json_ json_t *period = json_pack("{s:s}", "attachment", args->id);
	int r = p && parts.ids && period ? store_each_run(record->store, add_part, &parts) : -ENOMEM;

	if (r == 0)
		r = parts.count ? add_parts(record->store, &parts, p) : -ENOENT;
	if (r == 0)
		r = set_chain(period, record);
	if (r == 0)
		r = set_checked(record, period, NULL);
	if (r == 0 && !(*ret = report_period_page(p, period, about, ret_len)))
		r = -ENOMEM;
	free(parts.ids);
	report_period_free(p);
	return r;
}

static int page_of(const struct audit_record *record, const struct audit_args *args, const struct report_about *about,
		   char **ret, size_t *ret_len, struct err *e)
{
	_cleanup_json_ json_t *run = NULL;
	int r;

	if (!args->id) {
		r = page_of_period(record, args, about, ret, ret_len);
		return r < 0 ? err_errno(e, -r, "", "can't read the runs in %s", record->path) : 0;
	}
	run = run_of(record->store, args->id, &r);
	if (run)
		r = page_of_run(record, run, about, ret, ret_len);
	else if (r == -ENOENT)
		r = page_of_attachment(record, args, about, ret, ret_len);
	if (r == -ENOENT)
		return err_set(e, ENOENT, "", "no record of \"%s\" in %s; `weir audit ls` lists those there are", args->id,
			       record->path);
	return r < 0 ? err_errno(e, -r, "", "can't read the record of %s", args->id) : 0;
}

int audit_report(const struct audit_args *args, struct err *e)
{
	_cleanup_free_ char *page = NULL;
	char made[EVENT_TIME_MAX];
	struct audit_record record;
	FILE *output = NULL;
	size_t len = 0;
	int r = audit_output_open(args->output, &output, e), closed;

	if (r < 0)
		return r;
	r = audit_open(&record, args->state_dir, e);
	if (r == 0) {
		event_time_text(made, clock_wall_ns());
		r = page_of(&record, args, &(struct report_about){.version = WEIR_VERSION, .made = made, .place = record.path},
			    &page, &len, e);
		audit_close(&record);
	}
	if (r == 0)
		(void)fwrite(page, 1, len, output); /* closing tells */
	closed = audit_output_close(output, args->output, r < 0 ? NULL : e);
	return r < 0 ? r : closed;
}
