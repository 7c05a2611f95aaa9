/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/schema.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auditor/dirvfs.h"
#include "auditor/store.h"

/* Names of columns are what `weir audit verify`, and people with an sqlite3 of their own, go by. */
static const char tables[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
    "CREATE TABLE project(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, bytes INTEGER NOT NULL DEFAULT 0);"
    /* One row for whatever has a record: a run, a call, a session and each of its cells, a window of an attachment. */
    "CREATE TABLE run(id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL UNIQUE, project INTEGER NOT NULL,"
    " sandbox_id TEXT NOT NULL, agent TEXT, caller TEXT, kind TEXT NOT NULL, began_ns INTEGER NOT NULL, ended_ns INTEGER,"
    " state TEXT NOT NULL, \"end\" TEXT, policy TEXT, policy_hash TEXT, ref TEXT, target TEXT,"
    " attempts INTEGER NOT NULL DEFAULT 0, denied INTEGER NOT NULL DEFAULT 0, would_deny INTEGER NOT NULL DEFAULT 0,"
    " lost INTEGER NOT NULL DEFAULT 0, verdicts INTEGER NOT NULL DEFAULT 0," /* bits 1 << enum weir_verdict */
    " bytes INTEGER NOT NULL DEFAULT 0, records INTEGER NOT NULL DEFAULT 0,"
    " unwritten INTEGER NOT NULL DEFAULT 0, late INTEGER NOT NULL DEFAULT 0," /* late: records after the sum was made, */
    " last_seq INTEGER, chain_n INTEGER);"				      /* .. which are those beyond last_seq */
    "CREATE INDEX run_project ON run(project, id);"
    "CREATE INDEX run_ended ON run(ended_ns) WHERE chain_n IS NOT NULL;"
    "CREATE INDEX run_prunable ON run(project, id) WHERE chain_n IS NOT NULL;"
    "CREATE INDEX run_unfinished ON run(ended_ns) WHERE chain_n IS NULL;"
    "CREATE INDEX run_policy ON run(policy_hash);"
    "CREATE INDEX run_caller ON run(caller, id) WHERE caller IS NOT NULL;"
    "CREATE TABLE record(seq INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER, type TEXT NOT NULL, time_ns INTEGER NOT NULL,"
    " body TEXT NOT NULL);"
    "CREATE INDEX record_run ON record(run, seq) WHERE run IS NOT NULL;"
    "CREATE INDEX record_nobody ON record(seq) WHERE run IS NULL;"
    /* What a run tried to reach, for searches. Names in lower case; `mirrored` is the name backwards, for "*.example.com". */
    "CREATE TABLE destination(run INTEGER NOT NULL, verdict INTEGER NOT NULL, address TEXT NOT NULL, name TEXT NOT NULL,"
    " mirrored TEXT NOT NULL, PRIMARY KEY(run, verdict, address, name)) WITHOUT ROWID;"
    "CREATE INDEX destination_address ON destination(address, run);"
    "CREATE INDEX destination_name ON destination(name, run) WHERE name <> '';"
    "CREATE INDEX destination_mirrored ON destination(mirrored, run) WHERE mirrored <> '';"
    "CREATE TABLE chain(n INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, run_id TEXT, body TEXT,"
    " body_digest BLOB NOT NULL, before BLOB NOT NULL, hash BLOB NOT NULL, signature BLOB, added_ns INTEGER NOT NULL);"
    "CREATE INDEX chain_skeleton ON chain(n) WHERE body IS NULL;"
    "CREATE INDEX chain_kind ON chain(kind, n) WHERE kind <> 'run';"
    "CREATE TABLE policy(hash TEXT PRIMARY KEY, name TEXT NOT NULL, text TEXT, seen_ns INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE content(run INTEGER NOT NULL, kind INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY(run, kind));"
    "INSERT INTO meta VALUES('schema', 1), ('others_seq', 0), ('pruned_runs', 0), ('pruned_records', 0), ('pruned_bytes', 0);"
    "PRAGMA application_id = 1466263922;"
    "PRAGMA user_version = 1;";

static const char objects[] = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name";

/* A column of both, which may be null in both. */
static bool same_column(sqlite3_stmt *a, sqlite3_stmt *b, int i)
{
	const unsigned char *x = sqlite3_column_text(a, i), *y = sqlite3_column_text(b, i);

	return x && y ? strcmp((const char *)x, (const char *)y) == 0 : x == y;
}

static void differ(sqlite3_stmt *st, const char *what, schema_differs_fn *fn, void *ctx)
{
	const char *type = (const char *)sqlite3_column_text(st, 0), *name = (const char *)sqlite3_column_text(st, 1);

	fn(ctx, type ? type : "?", name ? name : "?", what);
}

/* Both in the same order: what one has and the other has not comes first in its turn. */
static int compare(sqlite3_stmt *here, sqlite3_stmt *ours, schema_differs_fn *fn, void *ctx)
{
	int h = sqlite3_step(here), o = sqlite3_step(ours), differences = 0;

	while (h == SQLITE_ROW || o == SQLITE_ROW) {
		int order = h != SQLITE_ROW ? 1 : o != SQLITE_ROW ? -1 : 0;

		for (int i = 0; !order && i < 2; i++) {
			const char *x = (const char *)sqlite3_column_text(here, i),
				   *y = (const char *)sqlite3_column_text(ours, i);

			order = strcmp(x ? x : "", y ? y : "");
		}
		if (order || !same_column(here, ours, 2) || !same_column(here, ours, 3)) {
			differ(order > 0 ? ours : here,
			       order < 0 ? "is too much"
			       : order	 ? "is not there"
					 : "is another",
			       fn, ctx);
			differences++;
		}
		h = order <= 0 ? sqlite3_step(here) : h;
		o = order >= 0 ? sqlite3_step(ours) : o;
	}
	return h == SQLITE_DONE && o == SQLITE_DONE ? differences : -EIO;
}

int schema_compare(sqlite3 *db, schema_differs_fn *fn, void *ctx)
{
	sqlite3_stmt *here = NULL, *ours = NULL;
	sqlite3 *fresh = NULL;
	int r = -ENOMEM;

	if (sqlite3_open_v2(":memory:", &fresh, SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY | SQLITE_OPEN_NOMUTEX, NULL) ==
		SQLITE_OK &&
	    sqlite3_exec(fresh, tables, NULL, NULL, NULL) == SQLITE_OK &&
	    sqlite3_prepare_v2(fresh, objects, -1, &ours, NULL) == SQLITE_OK)
		r = sqlite3_prepare_v2(db, objects, -1, &here, NULL) == SQLITE_OK ? compare(here, ours, fn, ctx) : -EIO;
	sqlite3_finalize(here);
	sqlite3_finalize(ours);
	sqlite3_close(fresh);
	return r;
}

/* Of every connection. */
static const char careful[] = "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY;"
			      "PRAGMA cache_size = -16384; PRAGMA foreign_keys = OFF;";
/*
 * .. that writes. A commit is a write to the log and outlives this process; store_sync() makes it outlive a power cut, and
 * moves it into the database; that happens in a commit only when nobody calls it. What is pruned is overwritten.
 */
static const char writing[] = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 16384;"
			      "PRAGMA journal_size_limit = 67108864; PRAGMA secure_delete = ON;";

int schema_errno(sqlite3 *db)
{
	/* SQLite notes it for some failures only. */
	int code = sqlite3_system_errno(db) ? sqlite3_system_errno(db) : errno;

	switch (sqlite3_errcode(db) & 0xff) {
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EUCLEAN;
	case SQLITE_READONLY:
		return -EROFS;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_IOERR:
	case SQLITE_CANTOPEN:
		return code > 0 ? -code : -EIO;
	default:
		return -EIO;
	}
}

int schema_err(sqlite3 *db, struct err *e, const char *what)
{
	int r = schema_errno(db);
	const char *mend = "";

	if (r == -EUCLEAN)
		mend = ": the record is damaged. `weir audit verify` says what of it is; move " STORE_FILE ", " STORE_WAL_FILE
		       " and " STORE_SHM_FILE " away together, and a new record begins";
	else if (r == -EBUSY)
		mend = ": another auditor holds the record; stop it or give this one another state directory";
	else if (r == -EACCES || r == -EPERM)
		mend = ": Permission denied";
	return err_set(e, -r, "audit", "%s (%s): %s%s", what, STORE_FILE, sqlite3_errmsg(db), mend);
}

static int number(sqlite3 *db, const char *sql, long long *ret)
{
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

	if (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW)
		*ret = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return rc == SQLITE_ROW ? 0 : -1;
}

static int restrict_db(sqlite3 *db)
{
	static const struct {
		int which, value;
	} config[] = {
	    {SQLITE_DBCONFIG_DEFENSIVE, 1},   {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},	  {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
	    {SQLITE_DBCONFIG_ENABLE_VIEW, 0}, {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0}, {SQLITE_DBCONFIG_DQS_DML, 0},
	    {SQLITE_DBCONFIG_DQS_DDL, 0}};
	int rc = SQLITE_OK;

	for (size_t i = 0; rc == SQLITE_OK && i < sizeof config / sizeof config[0]; i++)
		rc = sqlite3_db_config(db, config[i].which, config[i].value, NULL);
	(void)sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
	(void)sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 16 << 20);
	(void)sqlite3_extended_result_codes(db, 1);
	(void)sqlite3_busy_timeout(db, STORE_LOCK_WAIT_MS);
	return rc;
}

static int check_version(sqlite3 *db, bool *ret_empty, struct err *e)
{
	long long application = 0, version = 0, count = 0;

	if (number(db, "SELECT count(*) FROM sqlite_schema", &count) < 0 ||
	    number(db, "PRAGMA application_id", &application) < 0 || number(db, "PRAGMA user_version", &version) < 0)
		return schema_err(db, e, "can't read the record");
	*ret_empty = count == 0 && application == 0;
	if (*ret_empty)
		return 0;
	if (application != SCHEMA_APPLICATION)
		return err_set(e, EEXIST, "audit", "the database %s is not Weir's: move it away", STORE_FILE);
	if (version != SCHEMA_VERSION)
		return err_set(
		    e, EPROTONOSUPPORT, "audit",
		    "the record %s has version %lld, this Weir knows version %d: use the Weir that wrote it, or move the "
		    "record away",
		    STORE_FILE, version, SCHEMA_VERSION);
	return 0;
}

static int make_tables(sqlite3 *db, struct err *e)
{
	if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK &&
	    sqlite3_exec(db, tables, NULL, NULL, NULL) == SQLITE_OK &&
	    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK)
		return 0;
	return schema_err(db, e, "can't make the record");
}

/* 1, 0, or a negative errno: what can't be looked at is not what isn't there. */
static int there(int dir, const char *name, struct err *e)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return st.st_size > 0;
	return errno == ENOENT ? 0 : err_errno(e, errno, "audit", "can't read %s", name);
}

/* A log without its database is what is left of a record somebody took away: SQLite would throw it away unread. */
static int check_files(int dir, bool readonly, struct err *e)
{
	int file = there(dir, STORE_FILE, e), log = file == 0 ? there(dir, STORE_WAL_FILE, e) : 0;

	if (file != 0 || log < 0)
		return file < 0 ? file : log;
	if (log)
		return err_set(
		    e, EUCLEAN, "audit",
		    "%s is not there but %s is: part of the record is missing; put it back, or move the rest away, too",
		    STORE_FILE, STORE_WAL_FILE);
	return readonly ? err_set(e, ENOENT, "audit", "there is no record (%s)", STORE_FILE) : 0;
}

static int prepare(sqlite3 *db, bool readonly, struct err *e)
{
	bool empty = false;
	int r;

	if (restrict_db(db) != SQLITE_OK || sqlite3_exec(db, careful, NULL, NULL, NULL) != SQLITE_OK)
		return schema_err(db, e, "can't set up the record");
	r = check_version(db, &empty, e);
	if (r < 0)
		return r;
	if (readonly)
		return empty ? err_set(e, ENOENT, "audit", "the record %s is empty", STORE_FILE) : 0;
	if (sqlite3_exec(db, writing, NULL, NULL, NULL) != SQLITE_OK)
		return schema_err(db, e, "can't set up the record");
	return empty ? make_tables(db, e) : 0;
}

int schema_open(sqlite3 **ret, int dir, bool readonly, bool immutable, struct err *e)
{
	char path[DIRVFS_PATH_MAX], uri[DIRVFS_PATH_MAX + 32];
	sqlite3 *db = NULL;
	int r = check_files(dir, readonly, e), flags;

	if (r == 0)
		r = dirvfs_register(e);
	if (r < 0)
		return r;
	dirvfs_path(path, dir, STORE_FILE);
	snprintf(uri, sizeof uri, "file:%s%s", path, immutable ? "?immutable=1" : "");
	flags = SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE;
	flags |= readonly || immutable ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
	if (sqlite3_open_v2(uri, &db, flags, DIRVFS_NAME) != SQLITE_OK)
		r = db ? schema_err(db, e, "can't open the record") : err_set(e, ENOMEM, "audit", "no memory for the record");
	if (r == 0)
		r = prepare(db, readonly || immutable, e);
	if (r < 0)
		sqlite3_close(db);
	else
		*ret = db;
	return r;
}
