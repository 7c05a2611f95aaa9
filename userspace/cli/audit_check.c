/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/audit_check.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "auditor/schema.h"
#include "auditor/verify.h"

/* A copy that is complete without a log, where nobody can write: SQLite need not look for writers, and could not. */
static bool is_still(int dir)
{
	return faccessat(dir, ".", W_OK, AT_EACCESS) < 0 && faccessat(dir, STORE_WAL_FILE, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
}

int audit_database(sqlite3 **ret, const struct audit_record *record, bool *ret_still, struct err *e)
{
	*ret_still = is_still(record->dir);
	return schema_open(ret, record->dir, true, *ret_still, e);
}

json_t *audit_check(const struct audit_record *record, uint64_t since_ns)
{
	const struct verify_opts opts = {.public_key = record->has_public ? record->public : NULL,
					 .head = record->has_head ? &record->head : NULL,
					 .since_ns = since_ns};
	struct verify_report *report = verify_report_new();
	sqlite3 *db = NULL;
	json_t *ret;
	struct err e;
	bool still;
	int r = report ? audit_database(&db, record, &still, &e) : err_set(&e, ENOMEM, "", "out of memory");

	if (r == 0)
		r = verify_record(db, &opts, report, &e);
	ret = r < 0 ? json_pack("{s:s}", "problem", e.msg) : verify_report_json(report);
	sqlite3_close(db);
	verify_report_free(report);
	return ret;
}
