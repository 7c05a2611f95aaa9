/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the record is what was written, as far as one answer from it goes: for whoever shows what it says. */
#ifndef WEIR_CLI_AUDIT_CHECK_H
#define WEIR_CLI_AUDIT_CHECK_H

#include <jansson.h>
#include <sqlite3.h>

#include "cli/audit_open.h"
#include "core/err.h"

/*
 * The record's database, to be looked at by verify.h; after audit_enter(). *ret_still: its directory can't be written and has
 * no log, so it is read as it stands there. -ENOENT: there is none. The caller's.
 */
int audit_database(sqlite3 **ret, const struct audit_record *record, bool *ret_still, struct err *e);

/*
 * Checks the chain whole, and signatures and records of runs that ended at `since_ns` (CLOCK_REALTIME) or later; 0: of all.
 * What verify_report_json() gives, or {"problem": why it could not be checked}. NULL without memory. The caller's.
 */
json_t *audit_check(const struct audit_record *record, uint64_t since_ns);

#endif
