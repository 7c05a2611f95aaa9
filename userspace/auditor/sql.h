/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record's statements, each prepared once and kept, and the few lines it takes to use one. No thread but one; a statement
 * must not be started again while its rows are still read.
 */
#ifndef WEIR_AUDITOR_SQL_H
#define WEIR_AUDITOR_SQL_H

#include <sqlite3.h>
#include <stdint.h>

enum sql_id {
	SQL_BEGIN,
	SQL_COMMIT,
	SQL_ROLLBACK,
	SQL_SAVEPOINT,
	SQL_SAVEPOINT_UNDO,
	SQL_SAVEPOINT_END,
	SQL_META,
	SQL_META_SET,
	SQL_META_ADD,
	SQL_META_DROP,
	SQL_SEQUENCE,
	/* writing records */
	SQL_PROJECT,
	SQL_PROJECT_OF,
	SQL_PROJECT_NAME,
	SQL_PROJECT_ADD,
	SQL_PROJECT_BYTES,
	SQL_RUN,
	SQL_RUN_ADD,
	SQL_RUN_BEGIN,
	SQL_RUN_PROJECT,
	SQL_RUN_BYTES,
	SQL_POLICY_SEEN,
	SQL_RUN_SESSION,
	SQL_RUN_TARGET,
	SQL_RUN_REF,
	SQL_RUN_END,
	SQL_RUN_COUNT,
	SQL_RUN_UNWRITTEN,
	SQL_RUN_INTERRUPT,
	SQL_RECORD_ADD,
	SQL_DESTINATION_ADD,
	SQL_POLICY_ADD,
	SQL_CONTENT_ADD,
	/* the chain */
	SQL_CHAIN_LAST,
	SQL_CHAIN_MAX,
	SQL_CHAIN_AT,
	SQL_CHAIN_ENTRY,
	SQL_CHAIN_ADD,
	SQL_CHAIN_SIGN,
	SQL_CHAIN_WAITING,
	SQL_CHAIN_LAST_BREAK,
	SQL_CHAIN_BREAKS,
	SQL_BREAKS_COUNT,
	SQL_ADOPTED_COUNT,
	SQL_CHAIN_AFTER,
	SQL_CHAIN_BEYOND,
	SQL_DROP_BEYOND,
	SQL_CHAIN_SEQUENCE,
	SQL_CHAIN_WAITING_COUNT,
	SQL_CHAIN_BREAK,
	SQL_RUN_FINISH,
	SQL_RUN_ALIGN,
	SQL_RUN_COLUMNS,
	SQL_RUN_LAST_SEQ,
	SQL_RUN_CONTENT,
	SQL_POLICY_THERE,
	SQL_UNFINISHED,
	SQL_OTHERS,
	/* reading */
	SQL_RUN_ROW,
	SQL_RUN_RECORDS,
	SQL_RUNS_AFTER,
	SQL_POLICY,
	SQL_CONTENT,
	SQL_FOLLOW,
	SQL_NOTICES,
	SQL_NOTICES_CHAIN,
	SQL_RUN_OLDEST,
	SQL_RUNS,
	SQL_UNENDED,
	SQL_PAGES,
	SQL_FREE_PAGES,
	/* retention */
	SQL_OLD,
	SQL_OVER,
	SQL_LARGEST,
	SQL_OF_PROJECT,
	SQL_DROP_RECORDS,
	SQL_DROP_DESTINATIONS,
	SQL_DROP_CONTENT,
	SQL_DROP_RUN,
	SQL_DROP_BODY,
	SQL_DROP_PROJECT,
	SQL_OTHERS_OLD,
	SQL_DROP_OTHERS,
	SQL_BREAK_BEHIND,
	SQL_ENTRY_OTHERS,
	SQL_ENTRY_RUN,
	SQL_DROP_POLICIES,
	SQL_CHAIN_FIRST,
	SQL_DROP_PREFIX,
	SQL_SKELETONS,
	SQL_SKELETON_OLDEST,
	SQL_DROP_ENTRIES,
	SQL_COUNT,
};

struct sql {
	sqlite3 *db; /* owned */
	sqlite3_stmt *stmts[SQL_COUNT];
};

/* Closes and forgets. Safe to repeat. */
void sql_close(struct sql *q);

/*
 * Starts a statement with its parameters in order: each letter of `types` is one: 'i' int64_t, 't' const char * (NULL: null),
 * 'b' const void * and size_t (NULL: null). What they point to must live until the last row. NULL: it failed, see
 * schema_errno().
 */
sqlite3_stmt *sql_start(struct sql *q, enum sql_id which, const char *types, ...);

/* The next row: 1, 0 at the end, or a negative errno. After 0 or less the statement is done with. */
int sql_row(struct sql *q, sqlite3_stmt *st);

/* Done with the rows before their end. */
void sql_done(sqlite3_stmt *st);

/* Starts, and runs to its end. 0 or a negative errno. */
int sql_run(struct sql *q, enum sql_id which, const char *types, ...);

/* The first column of the first row, or `otherwise` when there is no row. A negative errno only by *ret_error (may be NULL). */
int64_t sql_number(struct sql *q, enum sql_id which, int64_t otherwise, int *ret_error, const char *types, ...);

/* A column's text, "" for null. */
const char *sql_text(sqlite3_stmt *st, int column);

#endif
