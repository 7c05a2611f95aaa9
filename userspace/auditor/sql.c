/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/sql.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "auditor/schema.h"

static const char *const texts[SQL_COUNT] = {
    [SQL_BEGIN] = "BEGIN IMMEDIATE",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
    [SQL_SAVEPOINT] = "SAVEPOINT part",
    [SQL_SAVEPOINT_UNDO] = "ROLLBACK TO part",
    [SQL_SAVEPOINT_END] = "RELEASE part",
    [SQL_META] = "SELECT value FROM meta WHERE key = ?1",
    [SQL_META_SET] = "INSERT INTO meta VALUES(?1, ?2) ON CONFLICT(key) DO UPDATE SET value = excluded.value",
    [SQL_META_ADD] = "UPDATE meta SET value = value + ?2 WHERE key = ?1",
    [SQL_META_DROP] = "DELETE FROM meta WHERE key = ?1",
    [SQL_SEQUENCE] = "SELECT seq FROM sqlite_sequence WHERE name = ?1",

    [SQL_PROJECT_OF] = "SELECT p.name FROM run r JOIN project p ON p.id = r.project WHERE r.run_id = ?1",
    [SQL_PROJECT] = "SELECT id FROM project WHERE name = ?1",
    [SQL_PROJECT_NAME] = "SELECT name FROM project WHERE id = ?1",
    [SQL_PROJECT_ADD] = "INSERT INTO project(name) VALUES(?1)",
    [SQL_PROJECT_BYTES] = "UPDATE project SET bytes = max(0, bytes + ?2) WHERE id = ?1",
    [SQL_RUN] = "SELECT id, project, chain_n IS NOT NULL FROM run WHERE run_id = ?1",
    [SQL_RUN_ADD] = "INSERT INTO run(run_id, project, sandbox_id, kind, began_ns, state) VALUES(?1, ?2, ?3, ?4, ?5, 'running')",
    [SQL_RUN_BEGIN] = "UPDATE run SET sandbox_id = ?2, agent = ?3, began_ns = ?4, policy = ?5, policy_hash = ?6, caller = ?7,"
		      " kind = CASE WHEN ?3 IS NOT NULL THEN 'call' ELSE kind END WHERE id = ?1",
    [SQL_RUN_PROJECT] = "UPDATE run SET project = ?2 WHERE id = ?1",
    [SQL_RUN_BYTES] = "SELECT bytes FROM run WHERE id = ?1",
    [SQL_POLICY_SEEN] = "UPDATE policy SET seen_ns = max(seen_ns, ?2) WHERE hash = ?1",
    [SQL_RUN_SESSION] = "UPDATE run SET kind = 'session' WHERE run_id = ?1 AND kind = 'run' AND chain_n IS NULL",
    [SQL_RUN_TARGET] = "UPDATE run SET kind = 'attached', target = ?2 WHERE id = ?1",
    [SQL_RUN_REF] = "UPDATE run SET ref = ?2 WHERE id = ?1",
    [SQL_RUN_END] = "UPDATE run SET state = 'ended', ended_ns = ?2, \"end\" = ?3, attempts = ?4, denied = ?5, would_deny = ?6"
		    " WHERE id = ?1",
    [SQL_RUN_COUNT] = "UPDATE run SET records = records + ?2, bytes = bytes + ?3,"
		      " attempts = attempts + iif(\"end\" IS NULL AND chain_n IS NULL, ?4, 0),"
		      " denied = denied + iif(\"end\" IS NULL AND chain_n IS NULL, ?5, 0),"
		      " would_deny = would_deny + iif(\"end\" IS NULL AND chain_n IS NULL, ?6, 0), verdicts = verdicts | ?7,"
		      " late = late + iif(chain_n IS NULL, 0, ?2) WHERE id = ?1",
    [SQL_RUN_UNWRITTEN] = "UPDATE run SET unwritten = unwritten + ?2,"
			  " ended_ns = CASE WHEN ?3 AND state = 'running' THEN ?4 ELSE ended_ns END,"
			  " state = CASE WHEN ?3 AND state = 'running' THEN 'ended' ELSE state END"
			  " WHERE run_id = ?1 AND chain_n IS NULL",
    [SQL_RUN_INTERRUPT] = "UPDATE run SET state = 'interrupted', ended_ns = ?1 WHERE state = 'running' AND chain_n IS NULL",
    [SQL_RECORD_ADD] = "INSERT INTO record VALUES(?1, ?2, ?3, ?4, ?5)",
    [SQL_DESTINATION_ADD] = "INSERT OR IGNORE INTO destination VALUES(?1, ?2, ?3, ?4, ?5)",
    [SQL_POLICY_ADD] = "INSERT INTO policy VALUES(?1, ?2, ?3, ?4) ON CONFLICT(hash) DO UPDATE SET seen_ns = excluded.seen_ns",
    [SQL_CONTENT_ADD] = "INSERT OR REPLACE INTO content VALUES(?1, ?2, ?3)",

    [SQL_CHAIN_LAST] = "SELECT n, hash FROM chain WHERE n < ?1 ORDER BY n DESC LIMIT 1",
    [SQL_CHAIN_MAX] = "SELECT max(n) FROM chain",
    [SQL_CHAIN_AT] = "SELECT hash, kind, before FROM chain WHERE n = ?1",
    [SQL_CHAIN_ENTRY] = "SELECT hash, signature, body FROM chain WHERE n = ?1",
    [SQL_CHAIN_ADD] = "INSERT INTO chain VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL, ?8)",
    [SQL_CHAIN_SIGN] = "UPDATE chain SET signature = ?2 WHERE n = ?1",
    /* Those after ?2, and of those up to ?3 the ones whose signature got lost on its way here. */
    [SQL_CHAIN_WAITING] = "SELECT n, body_digest, kind, iif(json_valid(body), json_extract(body, '$.reason'), NULL) FROM chain"
			  " WHERE n > ?1 AND n < ?4 AND (n > ?2 OR (signature IS NULL AND n <= ?3)) ORDER BY n LIMIT ?5",
    [SQL_CHAIN_LAST_BREAK] = "SELECT n FROM chain WHERE kind <> 'run' AND kind = 'break' AND n <= ?1 ORDER BY n DESC LIMIT 1",
    /* Those that only adopt are no breaks of what was signed. */
    [SQL_BREAKS_COUNT] = "SELECT count(*) FROM chain WHERE kind <> 'run' AND kind = 'break'"
			 " AND iif(json_valid(body), json_extract(body, '$.reason'), '') IS NOT 'unsigned'",
    [SQL_ADOPTED_COUNT] = "SELECT coalesce(sum(json_extract(e.value, '$[1]') - json_extract(e.value, '$[0]') + 1), 0)"
			  " FROM chain c, json_each(iif(json_valid(c.body), c.body, '{}'), '$.entries') e"
			  " WHERE c.kind <> 'run' AND c.kind = 'break'",
    [SQL_CHAIN_BREAKS] = "SELECT body FROM chain WHERE kind <> 'run' AND kind = 'break' AND body IS NOT NULL",
    [SQL_CHAIN_AFTER] = "SELECT n, hash, kind FROM chain WHERE n > ?1 ORDER BY n",
    [SQL_CHAIN_BEYOND] = "SELECT count(*), min(n) FROM chain WHERE n >= ?1 OR n < 1",
    [SQL_DROP_BEYOND] = "DELETE FROM chain WHERE n >= ?1 OR n < 1",
    [SQL_CHAIN_SEQUENCE] = "UPDATE sqlite_sequence SET seq = max(?2, (SELECT coalesce(max(n), 0) FROM chain))"
			   " WHERE name = 'chain' AND seq >= ?1",
    [SQL_CHAIN_WAITING_COUNT] = "SELECT count(*) FROM chain WHERE n > ?1",
    [SQL_CHAIN_BREAK] = "SELECT n FROM chain WHERE kind = 'break' AND n > ?1 AND before = ?2 ORDER BY n DESC LIMIT 1",
    [SQL_RUN_FINISH] = "UPDATE run SET chain_n = ?2, lost = ?3, bytes = bytes + ?4, last_seq = ?5 WHERE id = ?1",
    [SQL_RUN_ALIGN] = "UPDATE run SET sandbox_id = coalesce(?2, sandbox_id), agent = ?3, policy = ?4, policy_hash = ?5,"
		      " \"end\" = ?6, attempts = ?7, denied = ?8, would_deny = ?9, began_ns = iif(?10 < 0, began_ns, ?10),"
		      " ended_ns = iif(?11 < 0, ended_ns, ?11), caller = ?12 WHERE id = ?1",
    [SQL_RUN_COLUMNS] =
	"SELECT kind, state, began_ns, ended_ns, verdicts, ref, target, bytes, unwritten FROM run WHERE id = ?1",
    [SQL_RUN_LAST_SEQ] = "SELECT max(seq) FROM record WHERE run = ?1",
    [SQL_RUN_CONTENT] = "SELECT kind, bytes FROM content WHERE run = ?1 ORDER BY kind",
    [SQL_POLICY_THERE] = "SELECT 1 FROM policy WHERE hash = ?1 AND text IS NOT NULL",
    [SQL_UNFINISHED] = "SELECT run_id FROM run WHERE chain_n IS NULL AND ended_ns < ?1 ORDER BY ended_ns LIMIT ?2"
		       " OFFSET ?3",
    [SQL_OTHERS] = "SELECT seq, body FROM record WHERE run IS NULL AND seq > ?1 ORDER BY seq LIMIT 1000",

    [SQL_RUN_ROW] =
	"SELECT r.id, r.state, r.unwritten, r.chain_n, p.name, c.hash, c.signature, r.records, r.sandbox_id, r.project,"
	" r.last_seq"
	" FROM run r JOIN project p ON p.id = r.project LEFT JOIN chain c ON c.n = r.chain_n WHERE r.run_id = ?1",
    [SQL_RUN_RECORDS] = "SELECT seq, body, type FROM record WHERE run = ?1 ORDER BY seq",
    [SQL_RUNS_AFTER] = "SELECT id, run_id FROM run WHERE id > ?1 ORDER BY id LIMIT ?2",
    [SQL_POLICY] = "SELECT text FROM policy WHERE hash = ?1 AND text IS NOT NULL",
    [SQL_CONTENT] = "SELECT c.bytes FROM content c JOIN run r ON r.id = c.run WHERE r.run_id = ?1 AND c.kind = ?2",
    /* Which project and agent may see is decided here, before anything is counted. */
    [SQL_FOLLOW] = "SELECT d.seq, d.body, r.policy, r.\"end\", r.kind, r.chain_n IS NOT NULL AND d.seq > r.last_seq,"
		   " r.caller FROM record d LEFT JOIN run r ON r.id = d.run"
		   " WHERE d.seq > ?1 AND d.seq <= ?2 AND (?3 < 0 OR r.project = ?3)"
		   " AND (?4 = '' OR (r.id IS NOT NULL AND (r.agent IS NULL OR r.agent = ?4)))"
		   " AND d.time_ns >= ?5 AND d.time_ns < ?6 ORDER BY d.seq",
    [SQL_NOTICES] = "SELECT seq, body FROM record WHERE run IS NULL AND type = 'gap' AND time_ns >= ?1 AND time_ns < ?2"
		    " ORDER BY seq DESC LIMIT ?3",
    [SQL_NOTICES_CHAIN] = "SELECT n, body FROM chain WHERE kind <> 'run' AND kind IN ('prune', 'break') AND body IS NOT NULL"
			  " ORDER BY n DESC",
    [SQL_RUN_OLDEST] = "SELECT began_ns FROM run ORDER BY id LIMIT 1",
    [SQL_RUNS] = "SELECT count(*) FROM run",
    [SQL_UNENDED] = "SELECT count(*) FROM run WHERE chain_n IS NULL AND state = 'running'",
    [SQL_PAGES] = "PRAGMA page_count",
    [SQL_FREE_PAGES] = "PRAGMA freelist_count",

#define VICTIM "SELECT records, bytes, chain_n, began_ns FROM run "
    [SQL_OLD] = VICTIM "WHERE chain_n IS NOT NULL AND ended_ns < ?1 ORDER BY ended_ns LIMIT ?2",
    [SQL_OVER] = "SELECT id, name, bytes FROM project WHERE bytes > ?1 AND EXISTS"
		 " (SELECT 1 FROM run WHERE run.project = project.id AND chain_n IS NOT NULL) ORDER BY bytes DESC LIMIT 1",
    [SQL_LARGEST] = "SELECT id, name, bytes FROM project WHERE EXISTS"
		    " (SELECT 1 FROM run WHERE run.project = project.id AND chain_n IS NOT NULL) ORDER BY bytes DESC LIMIT 1",
    [SQL_OF_PROJECT] = VICTIM "WHERE project = ?1 AND chain_n IS NOT NULL ORDER BY id LIMIT ?2",
    [SQL_DROP_RECORDS] = "DELETE FROM record WHERE run = ?1",
    [SQL_DROP_DESTINATIONS] = "DELETE FROM destination WHERE run = ?1",
    [SQL_DROP_CONTENT] = "DELETE FROM content WHERE run = ?1",
    [SQL_DROP_RUN] = "DELETE FROM run WHERE id = ?1",
    [SQL_DROP_BODY] = "UPDATE chain SET body = NULL WHERE n = ?1",
    [SQL_DROP_PROJECT] = "DELETE FROM project WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM run WHERE project = ?1)",
    [SQL_OTHERS_OLD] = "SELECT seq, time_ns FROM record WHERE run IS NULL AND seq <= ?1 ORDER BY seq LIMIT 1000",
    [SQL_DROP_OTHERS] = "DELETE FROM record WHERE run IS NULL AND seq <= ?1",
    [SQL_BREAK_BEHIND] = "SELECT 1 FROM chain WHERE kind <> 'run' AND kind = 'break' AND n > ?1 LIMIT 1",
#define OTHERS                                                                                                                 \
	"iif(json_valid(body), json_extract(body, '$.others'), NULL), iif(json_valid(body), json_extract(body, "               \
	"'$.others_kept'), NULL)"
    [SQL_ENTRY_OTHERS] = "SELECT " OTHERS " FROM chain WHERE n = ?1",
    [SQL_ENTRY_RUN] = "SELECT r.id, r.project, r.bytes FROM chain c JOIN run r ON r.run_id = c.run_id"
		      " WHERE c.n = ?1 AND r.chain_n = ?1",
    [SQL_DROP_POLICIES] = "DELETE FROM policy WHERE seen_ns < ?1 AND NOT EXISTS"
			  " (SELECT 1 FROM run WHERE run.policy_hash = policy.hash)",
    [SQL_CHAIN_FIRST] =
	"SELECT n, kind, body IS NULL, signature IS NOT NULL, hash, added_ns, " OTHERS " FROM chain ORDER BY n LIMIT ?1",
    [SQL_SKELETONS] = "SELECT count(*) FROM chain WHERE body IS NULL",
    [SQL_SKELETON_OLDEST] = "SELECT n FROM chain WHERE body IS NULL AND n <= ?1 ORDER BY n LIMIT ?2",
    [SQL_DROP_ENTRIES] = "DELETE FROM chain WHERE n >= ?1 AND n <= ?2",
    [SQL_DROP_PREFIX] = "DELETE FROM chain WHERE n <= ?1",
};

void sql_close(struct sql *q)
{
	for (int i = 0; i < SQL_COUNT; i++)
		sqlite3_finalize(q->stmts[i]);
	sqlite3_close(q->db);
	memset(q, 0, sizeof *q);
}

static int bind(sqlite3_stmt *st, const char *types, va_list values)
{
	int rc = SQLITE_OK;

	for (int i = 1; rc == SQLITE_OK && types[i - 1]; i++) {
		if (types[i - 1] == 'i') {
			rc = sqlite3_bind_int64(st, i, va_arg(values, int64_t));
		} else if (types[i - 1] == 't') {
			rc = sqlite3_bind_text(st, i, va_arg(values, const char *), -1, SQLITE_STATIC);
		} else {
			const void *bytes = va_arg(values, const void *);

			rc = sqlite3_bind_blob64(st, i, bytes, va_arg(values, size_t), SQLITE_STATIC);
		}
	}
	return rc;
}

static sqlite3_stmt *start(struct sql *q, enum sql_id which, const char *types, va_list values)
{
	sqlite3_stmt **st = &q->stmts[which];

	if (!*st && sqlite3_prepare_v3(q->db, texts[which], -1, SQLITE_PREPARE_PERSISTENT, st, NULL) != SQLITE_OK)
		return NULL;
	(void)sqlite3_reset(*st); /* its result is that of the run before */
	return bind(*st, types, values) == SQLITE_OK ? *st : NULL;
}

sqlite3_stmt *sql_start(struct sql *q, enum sql_id which, const char *types, ...)
{
	sqlite3_stmt *st;
	va_list values;

	va_start(values, types);
	st = start(q, which, types, values);
	va_end(values);
	return st;
}

int sql_row(struct sql *q, sqlite3_stmt *st)
{
	int rc, r;

	errno = 0;
	rc = st ? sqlite3_step(st) : SQLITE_ERROR;
	if (rc == SQLITE_ROW)
		return 1;
	r = rc == SQLITE_DONE ? 0 : schema_errno(q->db);
	sql_done(st);
	return r;
}

void sql_done(sqlite3_stmt *st)
{
	(void)sqlite3_reset(st); /* says again what sqlite3_step() said */
}

static int finish(struct sql *q, sqlite3_stmt *st)
{
	int r;

	while ((r = sql_row(q, st)) > 0)
		;
	return r;
}

int sql_run(struct sql *q, enum sql_id which, const char *types, ...)
{
	sqlite3_stmt *st;
	va_list values;

	va_start(values, types);
	st = start(q, which, types, values);
	va_end(values);
	return st ? finish(q, st) : schema_errno(q->db);
}

int64_t sql_number(struct sql *q, enum sql_id which, int64_t otherwise, int *ret_error, const char *types, ...)
{
	sqlite3_stmt *st;
	va_list values;
	int r;

	va_start(values, types);
	st = start(q, which, types, values);
	va_end(values);
	r = sql_row(q, st);
	if (r > 0) {
		otherwise = sqlite3_column_int64(st, 0);
		sql_done(st);
	}
	if (ret_error)
		*ret_error = r < 0 ? r : 0;
	return otherwise;
}

const char *sql_text(sqlite3_stmt *st, int column)
{
	const char *text = (const char *)sqlite3_column_text(st, column);

	return text ? text : "";
}
