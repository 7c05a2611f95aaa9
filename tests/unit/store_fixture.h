/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the record share: a directory of their own, notes, and a look into the database. */
#ifndef WEIR_TESTS_STORE_FIXTURE_H
#define WEIR_TESTS_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "auditor/record.h"
#include "auditor/schema.h"
#include "auditor/store.h"

#define BIG (1u << 30)

static char dir_path[64];
static int dir = -1;

static inline int setup(void **state)
{
	(void)state;
	strcpy(dir_path, "/tmp/weir-test-store-XXXXXX");
	if (!mkdtemp(dir_path))
		return -1;
	dir = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0 ? -1 : 0;
}

static inline void empty_directory(int fd)
{
	DIR *d = fdopendir(openat(fd, ".", O_RDONLY | O_DIRECTORY));

	for (struct dirent *e; d && (e = readdir(d));)
		(void)unlinkat(fd, e->d_name, 0);
	closedir(d);
}

static inline int teardown(void **state)
{
	(void)state;
	empty_directory(dir);
	close(dir);
	return rmdir(dir_path);
}

/* ---- notes ---- */

static inline struct note note(uint32_t type, const char *run_id)
{
	struct note n = {.type = type, .wall_ns = 1738324800000000000u, .boot_ns = 9000};

	snprintf(n.run_id, sizeof n.run_id, "%s", run_id);
	snprintf(n.sandbox_id, sizeof n.sandbox_id, "%s", run_id);
	strcpy(n.project, "dev");
	return n;
}

static inline struct weir_flow_key key(uint8_t last, uint16_t port, uint8_t verdict)
{
	struct weir_flow_key k = {.cgroup = 1, .family = 4, .protocol = 17, .hook = WEIR_HOOK_EGRESS, .verdict = verdict};

	memcpy(k.daddr, "\0\0\0\0\0\0\0\0\0\0\377\377\12\0\0", 15);
	k.daddr[15] = last;
	k.dport_be = (uint16_t)(port >> 8 | port << 8);
	return k;
}

static inline struct note event(const char *run_id, struct weir_flow_key k, const char *wire, uint16_t len)
{
	struct note n = note(NOTE_EVENT, run_id);

	n.event.key = k;
	n.event.attribution = WEIR_ATTR_CURRENT;
	n.event.pid = 2;
	strcpy(n.event.comm, "python3");
	n.event.dns_len = len;
	n.event.dns_qtype = 1;
	if (len)
		memcpy(n.event.dns, wire, len);
	return n;
}

static inline struct note flow(const char *run_id, struct weir_flow_key k, uint64_t count)
{
	struct note n = note(NOTE_FLOW, run_id);

	n.flow.key = k;
	n.flow.count = (struct weir_flow){.count = count, .bytes = 40 * count, .first_ns = 8000, .last_ns = 8500};
	return n;
}

static inline struct note run_end(const char *run_id, uint64_t attempts, uint64_t denied, uint64_t unlisted)
{
	struct note n = note(NOTE_RUN_END, run_id);

	n.end = (struct tell_end){.end = RUN_END_EXIT, .ran = 1, .attempts = attempts, .denied = denied, .unlisted = unlisted};
	n.end.allowed = attempts - denied;
	return n;
}

static inline int put(struct store *s, struct note n)
{
	store_begin(s);
	store_append(s, &n);
	return store_commit(s, NULL);
}

static inline struct store *open_as(struct audit_opts opts)
{
	struct store *s = NULL;
	struct err e = {0};

	if (store_open(&s, dir, &opts, &e) < 0)
		fail_msg("store_open: %s", e.msg);
	return s;
}

static inline struct store *open_store(uint64_t max)
{
	return open_as((struct audit_opts){.max_bytes = max});
}

static inline json_t *run_json(struct store *s, const char *run_id, bool summary)
{
	struct view *v = NULL;
	json_t *json;

	assert_int_equal(store_run(s, run_id, &v), 0);
	json = summary ? view_summary(v) : view_run(v, store_state_names[store_state(s, run_id)]);
	view_free(v);
	assert_non_null(json);
	return json;
}

static inline long long number(const json_t *json, const char *name)
{
	assert_true(json_is_integer(json_object_get(json, name)));
	return json_integer_value(json_object_get(json, name));
}

static inline void assert_text(const json_t *json, const char *name, const char *want)
{
	assert_non_null(json_string_value(json_object_get(json, name)));
	assert_string_equal(json_string_value(json_object_get(json, name)), want);
}

/* ---- a look of one's own into the database ---- */

static inline sqlite3 *look(void)
{
	sqlite3 *db = NULL;
	struct err e = {0};

	if (schema_open(&db, dir, true, false, &e) < 0)
		fail_msg("schema_open: %s", e.msg);
	return db;
}

/* The first column of the first row; -1 when there is none. */
static inline long long look_number(const char *sql)
{
	sqlite3 *db = look();
	sqlite3_stmt *st = NULL;
	long long n = -1;

	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
	if (sqlite3_step(st) == SQLITE_ROW)
		n = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	sqlite3_close(db);
	return n;
}

static inline void assert_intact(void)
{
	sqlite3 *db = look();
	sqlite3_stmt *st = NULL;

	assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &st, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	assert_string_equal((const char *)sqlite3_column_text(st, 0), "ok");
	sqlite3_finalize(st);
	sqlite3_close(db);
}

/* Calls fn with each record, with its seq, in order; every one must parse. Returns how many. */
static inline size_t each_record(void (*fn)(void *ctx, const json_t *record), void *ctx)
{
	sqlite3 *db = look();
	sqlite3_stmt *st = NULL;
	size_t n = 0;

	assert_int_equal(sqlite3_prepare_v2(db, "SELECT seq, body FROM record ORDER BY seq", -1, &st, NULL), SQLITE_OK);
	for (; sqlite3_step(st) == SQLITE_ROW; n++) {
		json_t *record = json_loads((const char *)sqlite3_column_text(st, 1), 0, NULL);

		assert_non_null(record);
		json_object_set_new(record, "seq", json_integer(sqlite3_column_int64(st, 0)));
		if (fn)
			fn(ctx, record);
		json_decref(record);
	}
	sqlite3_finalize(st);
	sqlite3_close(db);
	return n;
}

struct gaps {
	const char *kind;
	size_t n;
	long long count;
};

static inline void find_gap(void *ctx, const json_t *record)
{
	struct gaps *g = ctx;
	const char *kind = json_string_value(json_object_get(record, "kind"));

	if (kind && strcmp(kind, g->kind) == 0) {
		g->n++;
		g->count = number(record, "count");
	}
}

static inline struct gaps gaps(const char *kind)
{
	struct gaps g = {.kind = kind};

	each_record(find_gap, &g);
	return g;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static inline void check_order(void *ctx, const json_t *record)
{
	long long *last = ctx, seq = number(record, "seq");

	assert_true(seq > *last);
	*last = seq;
}

#endif
