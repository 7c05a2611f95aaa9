/* SPDX-License-Identifier: Apache-2.0 */
/* The database that the record is: its file, how it is opened, its tables. What is written into them is store.c's. */
#ifndef WEIR_AUDITOR_SCHEMA_H
#define WEIR_AUDITOR_SCHEMA_H

#include <sqlite3.h>
#include <stdbool.h>

#include "core/err.h"

#define SCHEMA_APPLICATION 0x57656972 /* "Weir" */
#define SCHEMA_VERSION 1

/*
 * Opens the database in `dir` (borrowed; must stay open until sqlite3_close()). Whoever wrote it may have been taken over by
 * what it wrote down: no triggers, no views, no extensions, nothing of the schema is trusted. -ENOENT: there is none.
 *
 * For writing (a directory of one's own) it is made when it is not there, with its tables; the caller sees to it that nobody
 * else does that at the same time. `immutable`: of a copy that nobody writes and whose directory can't be written either.
 */
int schema_open(sqlite3 **ret, int dir, bool readonly, bool immutable, struct err *e);

/*
 * Whether the database has the tables and indexes that this Weir makes, each by the same words, and nothing beside them: calls
 * fn for each that differs ("table", "run", "is another"). Returns how many, or a negative errno.
 */
typedef void schema_differs_fn(void *ctx, const char *type, const char *name, const char *what);
int schema_compare(sqlite3 *db, schema_differs_fn *fn, void *ctx);

/* A negative errno for what the last call on `db` failed with. */
int schema_errno(sqlite3 *db);

/* Fills e with it: "<what>: <SQLite's words>", and where the file is damaged what to do. Returns the negative errno. */
int schema_err(sqlite3 *db, struct err *e, const char *what);

#endif
