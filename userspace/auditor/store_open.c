/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing the record, and what is said of it first. */
#include "auditor/store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auditor/schema.h"
#include "core/limits.h"

/* Becomes one of the living auditors, and learns whether there is another. */
static int join(struct store *s, struct err *e)
{
	int r = store_lock_once(s->lock, F_WRLCK, STORE_LOCK_ALIVE);

	s->alone = r == 0;
	r = store_lock_wait(s->lock, F_RDLCK, STORE_LOCK_ALIVE);
	return r < 0 ? err_errno(e, -r, "audit", "can't lock the record") : 0;
}

/* Files of the Weir that kept its record in lines: they stay, and nothing reads them. */
static void tell_older(struct store *s)
{
	static const char *const names[] = {"audit.ndjson", "audit.ndjson.1"};
	char text[160] = "";
	uint64_t n = 0;
	struct stat st;

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		if (fstatat(s->dir, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s",
			 n ? " and " : "the record before this one is in ", names[i]);
		n++;
	}
	if (!n)
		return;
	snprintf(text + strlen(text), sizeof text - strlen(text), ", one JSON object a line: kept, and not read any more");
	store_append_gap(s, STORE_GAP_OLDER, n, text);
}

/* Also those without a beginning: a tool's modules may have tried something before anybody called it. */
static void tell_interrupted(struct store *s)
{
	int64_t unended = sql_number(s->q, SQL_UNENDED, 0, NULL, "");

	if (!s->alone || !unended || s->failed.code)
		return;
	store_append_gap(s, RECORD_GAP_INTERRUPTED, (uint64_t)unended,
			 "runs before this record that have no end were cut short");
	if (!s->failed.code && sql_run(s->q, SQL_RUN_INTERRUPT, "i", (int64_t)store_now_ns()) < 0)
		store_fail_sql(s, "can't write to the record");
}

/*
 * Far beyond what it may hold nothing is written any more: for when nothing can be pruned, or nobody signs what is. Far, since
 * what is refused then is whatever comes next, and not what there is too much of. What makes room may use a little more.
 */
#define CEILING_MORE (256u << 20)
#define CEILING_SPARE (16u << 20)

void store_set_ceiling(struct store *s, bool spare)
{
	char sql[64];

	if (s->opts.shared)
		return;
	snprintf(sql, sizeof sql, "PRAGMA max_page_count = %" PRIu64,
		 (s->opts.max_bytes * 4 + CEILING_MORE + (spare ? CEILING_SPARE : 0)) / 4096);
	(void)sqlite3_exec(s->q->db, sql, NULL, NULL, NULL);
}

static void keep_difference(void *ctx, const char *type, const char *name, const char *what)
{
	char *text = ctx;

	if (!text[0])
		snprintf(text, 160, "%.20s %.60s %s", type, name, what);
}

/* Answers come from tables that somebody else made, or from none: then there are none. */
static int check_tables(const struct store *s, struct err *e)
{
	char first[160] = "";
	int r = schema_compare(s->q->db, keep_difference, first);

	if (r <= 0)
		return r == 0 ? 0 : schema_err(s->q->db, e, "can't read the record's tables");
	return err_set(
	    e, EPROTO, "audit",
	    "the tables of the record (%s) are not those that this Weir makes (%s): another version wrote it, or somebody "
	    "changed it; `weir audit verify` says more; move it away, and a new record begins",
	    STORE_FILE, first);
}

static int open_all(struct store *s, struct err *e)
{
	int r;

	s->lock = openat(s->dir, STORE_LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lock < 0)
		return err_errno(e, errno, "audit", "can't open the lock file %s", STORE_LOCK_FILE);
	/* Nobody joins, and no run begins, between the look whether anybody lives and the news of those that were cut short. */
	r = store_lock_for_writing(s->lock);
	if (r < 0)
		return err_errno(e, -r, "audit",
				 "another auditor holds the record; stop it or give this one another state directory");
	s->locked = true;
	r = join(s, e);
	if (r == 0)
		r = schema_open(&s->q->db, s->dir, false, false, e);
	if (r == 0)
		r = check_tables(s, e);
	if (r < 0)
		return r;
	store_set_ceiling(s, false);
	s->opened_ns = (int64_t)store_now_ns();
	s->opened_n = (uint64_t)sql_number(s->q, SQL_CHAIN_MAX, 0, NULL, "");
	store_begin(s);
	if (s->failed.code == EUCLEAN) {
		/* A damaged record is for somebody to look at, not to be written on. Other failures may pass: counted, shown.
		 */
		*e = s->failed;
		(void)store_commit(s, NULL);
		return -EUCLEAN;
	}
	if (!s->failed.code && s->next_seq == 1)
		tell_older(s);
	tell_interrupted(s);
	(void)store_commit(s, NULL);
	return 0;
}

static struct store *new_store(int dir)
{
	struct store *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->dir = dir;
	s->lock = s->project = -1;
	s->next_seq = 1;
	s->q = calloc(1, sizeof *s->q);
	s->gaps = json_object();
	return s->q && s->gaps ? s : store_free(s);
}

int store_open(struct store **ret, int dir, const struct audit_opts *opts, struct err *e)
{
	struct store *s = new_store(dir);
	int r;

	if (!s)
		return err_set(e, ENOMEM, "audit", "no memory for the record");
	s->alive = true;
	s->opts = *opts;
	s->opts.max_bytes = opts->max_bytes ? opts->max_bytes : LIMIT_AUDIT_BYTES;
	s->opts.project_bytes = opts->project_bytes ? opts->project_bytes : LIMIT_AUDIT_PROJECT_BYTES;
	s->opts.keep_s = opts->keep_s ? opts->keep_s : LIMIT_AUDIT_KEEP_S;
	r = open_all(s, e);
	if (r < 0)
		store_free(s);
	else
		*ret = s;
	return r;
}

static bool someone_lives(int lock)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = STORE_LOCK_ALIVE, .l_len = 1};

	return lock >= 0 && fcntl(lock, F_OFD_GETLK, &fl) == 0 && fl.l_type != F_UNLCK;
}

bool store_somebody_writes(int dir)
{
	int lock = openat(dir, STORE_LOCK_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	bool lives = someone_lives(lock);

	if (lock >= 0)
		close(lock);
	return lives;
}

bool store_is_still(int dir)
{
	return faccessat(dir, ".", W_OK, AT_EACCESS) < 0 && faccessat(dir, STORE_WAL_FILE, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
}

int store_open_readonly(struct store **ret, int dir, struct err *e)
{
	struct store *s = new_store(dir);
	int r;

	if (!s)
		return err_set(e, ENOMEM, "audit", "no memory for the record");
	s->readonly = true;
	s->lock = openat(dir, STORE_LOCK_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	s->alive = someone_lives(s->lock);
	/* A reader writes, too: its own place in the log's index. Of a copy that is complete without a log it need not. */
	r = schema_open(&s->q->db, dir, true, store_is_still(dir), e);
	if (r == 0)
		r = check_tables(s, e);
	if (r < 0)
		store_free(s);
	else
		*ret = s;
	return r;
}

struct store *store_free(struct store *s)
{
	if (!s)
		return NULL;
	store_batch_clear(s);
	for (size_t i = 0; i < STORE_LOSSES_MAX; i++)
		store_loss_clear(&s->losses[i]);
	if (s->q)
		sql_close(s->q);
	free(s->q);
	json_decref(s->gaps);
	if (s->lock >= 0)
		close(s->lock);
	free(s->text.text);
	free(s->pending);
	free(s);
	return NULL;
}

bool store_alone(const struct store *s)
{
	return s->alone;
}
