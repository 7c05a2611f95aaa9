/* SPDX-License-Identifier: Apache-2.0 */
/* `weir audit verify`: 0 nothing was found, AUDIT_FINDINGS, or AUDIT_UNCHECKED. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "auditor/schema.h"
#include "auditor/verify.h"
#include "cli/audit_cmd.h"
#include "cli/audit_open.h"
#include "core/chain.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/policy_read.h"

#define PEM_MAX 4096

static int read_key(const char *path, uint8_t ret[SIGNING_PUBLIC], struct err *e)
{
	_cleanup_file_ FILE *f = fopen(path, "re");
	char pem[PEM_MAX];
	size_t len = f ? fread(pem, 1, sizeof pem, f) : 0;

	if (!f || ferror(f))
		return err_errno(e, errno, "", "can't read %s", path);
	return signing_public_read(pem, len, ret, e) < 0 ? err_wrap(e, "can't use %s", path) : 0;
}

/* What can't be opened for what was done to it is a finding. 1: it is, and there is nothing to look at. */
static int open_database(sqlite3 **ret, const struct audit_record *record, struct verify_report *report, struct err *e)
{
	bool still = store_is_still(record->dir);
	int r = schema_open(ret, record->dir, true, still, e);

	if (r == 0 && still)
		verify_note(report, NOTED_COPY, 0, NULL,
			    "it was read as it stands there: its directory can't be written, and has no log");
	if (r == -EUCLEAN) {
		verify_find(report, VERIFY_DAMAGED, 0, NULL, "%s", e->msg);
		return 1;
	}
	if (r == -EACCES || r == -EPERM)
		return audit_open_refused(record, e);
	if (r == -ENOENT && record->has_head && record->head.n) {
		verify_find(report, VERIFY_REMOVED, 0, NULL, "the record is gone: %llu entries of it were signed",
			    (unsigned long long)record->head.n);
		return 1;
	}
	return r < 0 ? err_wrap(e, "can't check %s", record->path) : 0;
}

static int check(const struct audit_args *a, const struct audit_record *record, const uint8_t *key,
		 struct verify_report *report, struct err *e)
{
	struct verify_opts opts = {.public_key = key,
				   .since_ns = a->find.since_ns,
				   .expect = a->expect,
				   .expect_count = a->expect_count,
				   .now_ns = clock_wall_ns(),
				   .alive = store_somebody_writes(record->dir)};
	sqlite3 *db = NULL;
	int r;

	opts.head = record->has_head ? &record->head : NULL;
	r = open_database(&db, record, report, e);
	if (r == 0)
		r = verify_record(db, &opts, report, e);
	sqlite3_close(db);
	return r < 0 ? r : 0;
}

/* ---- printing ---- */

static const char *text(const json_t *object, const char *name)
{
	const char *t = json_string_value(json_object_get(object, name));

	return t ? t : "";
}

static long long number(const json_t *object, const char *name)
{
	return (long long)json_integer_value(json_object_get(object, name));
}

static void print_list(const json_t *all, const char *list, const char *omitted)
{
	const json_t *one;
	size_t i;

	json_array_foreach(json_object_get(all, list), i, one)
	{
		printf("%-16s ", text(one, "kind"));
		if (json_is_integer(json_object_get(one, "n")))
			printf("entry %lld%s", number(one, "n"), *text(one, "run_id") ? ", " : ": ");
		if (*text(one, "run_id"))
			printf("run %s: ", text(one, "run_id"));
		printf("%s\n", text(one, "text"));
	}
	if (number(all, omitted))
		printf("                 and %lld more\n", number(all, omitted));
}

/* What could be written into the record by whoever can write it, and no hash would tell. */
static void print_unvouched(const json_t *all)
{
	static const struct {
		const char *name, *text;
	} rows[] = {{"running", "runs that go on"},
		    {"ended", "runs that have ended and have no entry yet"},
		    {"records", "records of no run"},
		    {"late", "records behind a run's sum"}};
	const json_t *unvouched = json_object_get(all, "unvouched");
	const char *between = "Under no hash: ";

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		if (!number(unvouched, rows[i].name))
			continue;
		printf("%s%lld %s", between, number(unvouched, rows[i].name), rows[i].text);
		between = ", ";
	}
	if (*between == ',')
		printf(".\n");
}

static void print_expected(const json_t *expected)
{
	if (!json_is_integer(json_object_get(expected, "n")))
		return;
	printf("expected         %.16s.. is entry %lld's", text(expected, "hash"), number(expected, "n"));
	if (*text(expected, "run_id"))
		printf(", run %s", text(expected, "run_id"));
	if (json_is_integer(json_object_get(expected, "pruned_by")))
		printf("; its records were removed for their age or for room, as entry %lld says",
		       number(expected, "pruned_by"));
	putchar('\n');
}

static void print_whole(const json_t *all)
{
	const json_t *last = json_object_get(all, "last"), *line;
	size_t i;

	printf("%lld entries, %lld of them signed%s; %lld runs with %lld records were compared.\n", number(all, "entries"),
	       number(all, "signed"), number(all, "adopted") ? " (and some taken over)" : "", number(all, "runs"),
	       number(all, "records"));
	if (json_is_object(last))
		printf("The chain ends at n=%lld, hash %s.\n", number(last, "n"), text(last, "hash"));
	if (*text(all, "key_id"))
		printf("Key %s.\n", text(all, "key_id"));
	print_list(all, "notes", "notes_omitted");
	json_array_foreach(json_object_get(all, "expected"), i, line)
	{
		print_expected(line);
	}
	print_list(all, "findings", "findings_omitted");
	printf(json_is_true(json_object_get(all, "intact")) ? "Nothing was found: the record is what was written.\n"
							    : "The record is not what was written.\n");
	print_unvouched(all);
	printf("What this can't tell:\n");
	json_array_foreach(json_object_get(all, "cannot"), i, line)
	{
		printf("  - %s\n", json_string_value(line));
	}
}

static int print_report(const struct audit_args *a, const struct verify_report *report, struct err *e)
{
	_cleanup_json_ json_t *all = verify_report_json(report);

	if (!all)
		return err_set(e, ENOMEM, "", "out of memory");
	if (!a->json)
		print_whole(all);
	else if (json_dumpf(all, stdout, JSON_INDENT(2)) < 0 || putchar('\n') == EOF)
		return err_set(e, EIO, "", "can't write to standard output");
	return verify_intact(report) ? 0 : AUDIT_FINDINGS;
}

int audit_verify(const struct audit_args *args, struct err *e)
{
	struct verify_report *report = verify_report_new();
	struct audit_record record = {.dir = -1};
	uint8_t given[SIGNING_PUBLIC];
	int r = report ? 0 : err_set(e, ENOMEM, "", "out of memory");

	if (r == 0 && args->public_key)
		r = read_key(args->public_key, given, e);
	if (r == 0)
		r = audit_enter(&record, args->state_dir, e);
	if (r == 0)
		r = check(args, &record, args->public_key ? given : record.has_public ? record.public : NULL, report, e);
	if (r == 0)
		r = print_report(args, report, e);
	audit_close(&record);
	verify_report_free(report);
	return r;
}
