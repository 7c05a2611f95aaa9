/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weir audit export`: the record for other tools, one JSON object a line. As it is, record by record in the order in which it
 * was written; or each attempt to reach the network as an event of OCSF, run by run, the newest run first. One run at a time is
 * in memory.
 */
#include "cli/audit_cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/audit_open.h"
#include "cli/audit_output.h"
#include "core/cleanup.h"
#include "core/event.h"
#include "core/ocsf.h"
#include "core/policy_read.h"
#include "version.h"

struct export
{
	const struct audit_args *args;
	const struct store *store;
	FILE *out;
	uint64_t lines, running, lost; /* what was not finished yet, and what was counted without being listed */
};

static int put_line(struct export *x, const json_t *object)
{
	errno = 0;
	if (json_dumpf(object, x->out, JSON_COMPACT | JSON_ENSURE_ASCII) < 0 || putc('\n', x->out) == EOF)
		return errno ? -errno : -EIO;
	x->lines++;
	return 0;
}

/* ---- ndjson ---- */

/* What is there now: a record that is being written does not keep this from coming to an end. */
static int export_records(struct export *x)
{
	const uint64_t last = store_last_seq(x->store);
	struct find find = x->args->find;
	int r = 0;

	find.after = 0;
	while (r == 0 && find.after < last) {
		_cleanup_json_ json_t *page = NULL;
		const json_t *record;
		size_t i;

		r = store_follow(x->store, &find, "", "", &page);
		json_array_foreach(json_object_get(page, "records"), i, record)
		{
			if (r == 0)
				r = put_line(x, record);
		}
		find.after = (uint64_t)json_integer_value(json_object_get(page, "cursor"));
	}
	return r;
}

/* ---- ocsf ---- */

static bool is_wanted(const struct export *x, const json_t *event)
{
	const char *verdict = json_string_value(json_object_get(event, "verdict"));
	const uint32_t wanted = x->args->find.verdicts;

	for (int i = 0; verdict && wanted && i < WEIR_VERDICT_COUNT; i++)
		if (!strcmp(verdict, event_verdict_names[i]))
			return wanted & 1u << i;
	return true;
}

static int export_events(struct export *x, const json_t *run)
{
	const json_t *event;
	size_t i;
	int r = 0;

	json_array_foreach(json_object_get(run, "events"), i, event)
	{
		_cleanup_json_ json_t *line = NULL;

		if (r < 0 || !is_wanted(x, event))
			continue;
		line = ocsf_network_activity(run, event, WEIR_VERSION);
		r = line ? put_line(x, line) : -ENOMEM;
	}
	x->lost += (uint64_t)json_integer_value(json_object_get(json_object_get(run, "egress"), "lost"));
	return r;
}

static int export_run(struct export *x, const char *run_id)
{
	const enum store_state state = store_state(x->store, run_id);
	_cleanup_json_ json_t *run = NULL;
	struct view *v = NULL;
	int r;

	/* Its counts are not final: the next export has it. */
	if (state == STORE_RUNNING) {
		x->running++;
		return 0;
	}
	r = store_run(x->store, run_id, &v);
	if (r == -ENOENT) /* pruned in the meantime */
		return 0;
	if (r == 0)
		run = view_run(v, store_state_names[state]);
	view_free(v);
	if (r < 0)
		return r;
	return run ? export_events(x, run) : -ENOMEM;
}

static int export_attempts(struct export *x)
{
	struct find find = x->args->find;
	int r = 0;

	do {
		_cleanup_json_ json_t *page = NULL;
		const char *next;
		const json_t *row;
		size_t i;

		r = store_search(x->store, &find, "", "", &page);
		json_array_foreach(json_object_get(page, "runs"), i, row)
		{
			const char *run_id = json_string_value(json_object_get(row, "run_id"));

			if (r == 0 && run_id)
				r = export_run(x, run_id);
		}
		next = json_string_value(json_object_get(page, "next"));
		find.after = next ? strtoull(next, NULL, 10) : 0;
	} while (r == 0 && find.after);
	if (x->running)
		fprintf(stderr, "weir audit: %" PRIu64 " runs have not ended and are left out\n", x->running);
	if (x->lost)
		fprintf(stderr,
			"weir audit: %" PRIu64 " attempts of these runs were counted and not listed: they have no line\n",
			x->lost);
	return r;
}

int audit_export(const struct audit_args *args, struct err *e)
{
	const bool ocsf = args->format && !strcmp(args->format, "ocsf");
	struct export x = {.args = args};
	struct audit_record record;
	int r = audit_output_open(args->output, &x.out, e), closed;

	if (r < 0)
		return r;
	r = audit_open(&record, args->state_dir, e);
	if (r == 0) {
		x.store = record.store;
		r = ocsf ? export_attempts(&x) : export_records(&x);
		if (r < 0)
			err_errno(e, -r, "", "the export is not whole: after %" PRIu64 " lines", x.lines);
		audit_close(&record);
	}
	closed = audit_output_close(x.out, args->output, r < 0 ? NULL : e);
	return r < 0 ? r : closed;
}
