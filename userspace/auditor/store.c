/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/event.h"

/* ---- locks: open file description locks, so that they end with the process and don't follow a fork's close ---- */

static int lock_once(int fd, short type, off_t byte)
{
	struct flock fl = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &fl) < 0 ? -errno : 0;
}

static int lock_wait(int fd, short type, off_t byte)
{
	unsigned waited_us = 0, us = 200;
	int r;

	for (;;) {
		r = lock_once(fd, type, byte);
		if ((r != -EAGAIN && r != -EACCES) || waited_us >= STORE_LOCK_WAIT_MS * 1000)
			return r;
		(void)nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
		waited_us += us;
		/* Ever shorter: the longer somebody has waited, the likelier to be the next. */
		us = us > 50 ? us / 2 : us;
	}
}

/*
 * Whoever holds the write lock lets go of it for a moment only before wanting it again, so that polling for it alone might
 * never hit that moment. Hence the turnstile: the one who waits holds NEXT, and the holder has to pass there first.
 */
static int lock_for_writing(int fd)
{
	int r = lock_wait(fd, F_WRLCK, STORE_LOCK_NEXT);

	if (r < 0)
		return r;
	r = lock_wait(fd, F_WRLCK, STORE_LOCK_WRITE);
	(void)lock_once(fd, F_UNLCK, STORE_LOCK_NEXT);
	return r;
}

/* ---- what could not be written ---- */

static void loss_clear(struct store_loss *loss)
{
	json_decref(loss->begin);
	json_decref(loss->end);
	memset(loss, 0, sizeof *loss);
}

static void loss_add(struct store *s, const struct store_pending *p)
{
	struct store_loss *loss;

	s->stats.unwritten++;
	s->lost_since_gap++;
	if (!p->head.run_id[0])
		return;
	loss = (struct store_loss *)store_loss_of(s, p->head.run_id);
	if (!loss) {
		loss = &s->losses[s->next_loss];
		s->next_loss = (s->next_loss + 1) % STORE_LOSSES_MAX;
		loss_clear(loss);
		memcpy(loss->run_id, p->head.run_id, sizeof loss->run_id);
	}
	loss->records++;
	if (p->head.type == RECORD_RUN_BEGIN && !loss->begin)
		loss->begin = json_incref(p->body);
	if (p->head.type == RECORD_RUN_END && !loss->end)
		loss->end = json_incref(p->body);
}

static void fail(struct store *s, const struct err *e)
{
	if (!s->failed.code)
		s->failed = *e;
}

/* ---- catching up: with a crash, with other writers, with a rotation by one of them ---- */

/* Cuts off what is behind the last complete line. Only under the write lock: then nobody is in the middle of writing it. */
static void mend_torn(struct store *s, uint64_t torn)
{
	char head[24];
	ssize_t n = pread(s->now.fd, head, sizeof head, (off_t)s->now.end);

	event_safe_text(s->torn_text, sizeof s->torn_text, head, n > 0 ? (size_t)n : 0);
	if (ftruncate(s->now.fd, (off_t)s->now.end) < 0 && write(s->now.fd, "\n", 1) == 1)
		s->now.end += torn + 1; /* can't be cut: closed off instead, a line that is no record */
	s->stats.torn++;
	s->torn_since_gap += torn;
	s->dirty = true;
}

/* Whether `audit.ndjson` is still the file we have open. */
static bool still_current(const struct store *s)
{
	struct stat named, open;

	return fstatat(s->dir, STORE_FILE, &named, AT_SYMLINK_NOFOLLOW) == 0 && fstat(s->now.fd, &open) == 0 &&
	       named.st_ino == open.st_ino && named.st_dev == open.st_dev;
}

static int scan_current(struct store *s, struct err *e)
{
	uint64_t torn;
	int r = segment_scan(&s->now, &torn, e);

	if (r == -ESTALE) {
		/* Somebody who is no auditor cut the file. What is left is indexed anew; the missing numbers show the hole. */
		int fd = s->now.fd;
		uint64_t seq = s->now.last_seq;

		s->now.fd = -1;
		segment_close(&s->now);
		s->now.fd = fd;
		r = segment_scan(&s->now, &torn, e);
		s->now.last_seq = seq > s->now.last_seq ? seq : s->now.last_seq;
	}
	if (r < 0)
		return r;
	if (torn)
		mend_torn(s, torn);
	if (s->next_seq <= s->now.last_seq)
		s->next_seq = s->now.last_seq + 1;
	return 0;
}

static int open_current(struct store *s, struct err *e)
{
	int r = segment_open(&s->now, s->dir, STORE_FILE, O_RDWR | O_APPEND | O_CREAT, e);

	return r < 0 ? r : scan_current(s, e);
}

/* Brings both segments up to the state of the files. Under the write lock. */
static int catch_up(struct store *s, struct err *e)
{
	int r = s->now.fd >= 0 ? scan_current(s, e) : 0;

	if (r < 0 || (s->now.fd >= 0 && still_current(s)))
		return r;
	if (s->now.fd >= 0) {
		segment_close(&s->old);
		s->old = s->now;
		s->now = SEGMENT_NONE;
	}
	return open_current(s, e);
}

static int rotate(struct store *s, struct err *e)
{
	if (fdatasync(s->now.fd) < 0)
		s->unsynced_since_gap++;
	if (renameat(s->dir, STORE_FILE, s->dir, STORE_OLD_FILE) < 0)
		return err_errno(e, errno, "audit", "can't move the full record file aside");
	segment_close(&s->old);
	s->old = s->now;
	s->now = SEGMENT_NONE;
	s->stats.rotations++;
	/* The new name must not outlive a power cut less than its records do. */
	if (fsync(s->dir) < 0)
		s->unsynced_since_gap++;
	return open_current(s, e);
}

/* ---- batches ---- */

static int grow(struct store *s, size_t need)
{
	size_t room = s->room ? s->room : 65536;
	char *buf;

	while (room - s->len < need)
		room *= 2;
	if (room == s->room)
		return 0;
	buf = realloc(s->buf, room);
	if (!buf)
		return -ENOMEM;
	s->buf = buf;
	s->room = room;
	return 0;
}

static struct store_pending *pending_add(struct store *s)
{
	if (s->npending == s->pending_room) {
		size_t room = s->pending_room ? 2 * s->pending_room : 64;
		struct store_pending *p = reallocarray(s->pending, room, sizeof *p);

		if (!p)
			return NULL;
		s->pending = p;
		s->pending_room = room;
	}
	s->pending[s->npending] = (struct store_pending){.head = {.seq = s->next_seq}};
	return &s->pending[s->npending++];
}

/* Takes `body` (NULL: there was no memory for it). */
static void append(struct store *s, enum record_type type, const char *run_id, const char *gap_kind, json_t *body)
{
	struct store_pending *p = pending_add(s), lost = {.head = {.type = type}};
	struct err e;

	if (!p) {
		/* Not even room to remember it: counted at once. */
		snprintf(lost.head.run_id, sizeof lost.head.run_id, "%s", run_id);
		lost.body = body;
		loss_add(s, &lost);
		err_set(&e, ENOMEM, "audit", "no memory for a record");
		fail(s, &e);
		json_decref(body);
		return;
	}
	p->head.type = type;
	snprintf(p->head.run_id, sizeof p->head.run_id, "%s", run_id);
	p->gap_kind = gap_kind;
	p->body = type == RECORD_RUN_BEGIN || type == RECORD_RUN_END ? json_incref(body) : NULL;
	p->offset = (uint32_t)s->len;
	/* The number is used up whether or not the record makes it: a hole in the numbers is a loss that shows. */
	s->next_seq++;
	if (!s->failed.code && body && grow(s, RECORD_LINE_MAX) == 0) {
		size_t n = record_line(s->buf + s->len, RECORD_LINE_MAX, p->head.seq, body);

		s->len += n;
		p->len = n ? (uint32_t)n - 1 : 0;
	}
	if (!p->len && !s->failed.code) {
		err_set(&e, ENOMEM, "audit", "no memory for a record");
		fail(s, &e);
	}
	json_decref(body);
}

/* Puts what was lost before at the head of the batch. */
static void append_owed_gaps(struct store *s)
{
	char text[256];

	if (s->torn_since_gap) {
		snprintf(text, sizeof text, "a line cut off by a crash was removed; it began with: %s", s->torn_text);
		store_append_gap(s, RECORD_GAP_TORN, s->torn_since_gap, text);
	}
	if (s->lost_since_gap)
		store_append_gap(s, RECORD_GAP_UNWRITTEN, s->lost_since_gap, "records could not be written and are missing");
	if (s->unsynced_since_gap)
		store_append_gap(s, RECORD_GAP_UNSYNCED, s->unsynced_since_gap,
				 "the disk did not confirm records before this one");
	s->ngaps = s->npending;
}

void store_begin(struct store *s)
{
	int r = s->locked ? 0 : lock_for_writing(s->lock);
	struct err e;

	s->failed.code = 0;
	s->locked = r == 0;
	if (r < 0) {
		err_errno(&e, -r, "audit", "can't lock the record for writing");
		fail(s, &e);
	} else if (catch_up(s, &e) < 0) {
		fail(s, &e);
	}
	append_owed_gaps(s);
}

void store_append(struct store *s, const struct note *note)
{
	enum record_type type = record_type_of(note);

	if (type != RECORD_OTHER)
		append(s, type, note->run_id, type == RECORD_GAP ? RECORD_GAP_SWEEP : NULL, record_body(note));
}

void store_append_gap(struct store *s, const char *kind, uint64_t count, const char *text)
{
	append(s, RECORD_GAP, "", kind, record_gap(kind, count, text));
}

/* Writes the batch at the end of the file, all of it or none. */
static int write_batch(struct store *s, struct err *e)
{
	size_t done = 0;

	/* The hard ceiling is for the case that rotating fails again and again: offsets have 32 bits. */
	if (s->now.end + s->len > 2 * s->max_bytes)
		return err_set(e, EFBIG, "audit", "the record file is over its limit and can't be moved aside");
	while (done < s->len) {
		ssize_t n = write(s->now.fd, s->buf + done, s->len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			int code = n < 0 ? errno : EIO;

			/* Should this fail too, the half line is found and removed by the next catch_up(). */
			if (done && ftruncate(s->now.fd, (off_t)s->now.end) < 0)
				s->dirty = true;
			return err_errno(e, code, "audit", "can't write to the record");
		}
		done += (size_t)n;
	}
	return 0;
}

static void batch_written(struct store *s)
{
	for (size_t i = 0; i < s->npending; i++) {
		const struct store_pending *p = &s->pending[i];

		segment_added(&s->now, &p->head, p->gap_kind, s->now.end + p->offset, p->len);
	}
	s->now.end += s->len;
	s->stats.written += s->npending;
	s->dirty = true;
	s->torn_since_gap = s->lost_since_gap = s->unsynced_since_gap = 0;
}

static void batch_clear(struct store *s)
{
	for (size_t i = 0; i < s->npending; i++)
		json_decref(s->pending[i].body);
	s->npending = s->ngaps = s->len = 0;
}

int store_commit(struct store *s, struct err *e)
{
	struct err why;
	int r = 0;

	/* An append that failed for lack of memory is counted already, or has no line; nothing of the batch is half there. */
	if (!s->failed.code && s->len) {
		bool full = s->now.end + s->len > s->max_bytes || s->now.index.nlines + s->npending > INDEX_RECORDS_MAX;

		/* A file that can't be moved aside may grow further, up to write_batch()'s ceiling: that loses nothing yet. */
		if (full && s->now.end && rotate(s, &why) < 0)
			s->stats.write_errors++;
		if (s->now.fd < 0 || write_batch(s, &why) < 0)
			fail(s, &why);
	}
	if (s->failed.code) {
		for (size_t i = s->ngaps; i < s->npending; i++)
			loss_add(s, &s->pending[i]);
		s->stats.write_errors++;
		r = -s->failed.code;
		if (e)
			*e = s->failed;
	} else if (s->npending) {
		batch_written(s);
	}
	batch_clear(s);
	if (s->locked)
		(void)lock_once(s->lock, F_UNLCK, STORE_LOCK_WRITE);
	s->locked = false;
	return r;
}

int store_sync(struct store *s, struct err *e)
{
	if (!s->dirty || s->now.fd < 0)
		return 0;
	s->dirty = false;
	if (fdatasync(s->now.fd) == 0)
		return 0;
	/* The kernel forgets which pages failed, so trying again would only look like success. */
	s->stats.sync_errors++;
	s->unsynced_since_gap++;
	return err_errno(e, errno, "audit", "the disk did not confirm the record");
}

/* ---- opening ---- */

/* Also those without a beginning: a tool's modules may have tried something before anybody called it. */
static uint64_t unended_runs(const struct store *s)
{
	uint64_t n = 0;

	for (size_t i = 0; i < s->old.index.nruns; i++)
		n += store_state(s, s->old.index.runs[i].run_id) == STORE_RUNNING;
	for (size_t i = 0; i < s->now.index.nruns; i++)
		n += !index_find(&s->old.index, s->now.index.runs[i].run_id) &&
		     store_state(s, s->now.index.runs[i].run_id) == STORE_RUNNING;
	return n;
}

/* Becomes one of the living auditors. *ret_alone: there is no other. */
static int join(struct store *s, bool *ret_alone, struct err *e)
{
	int r = lock_once(s->lock, F_WRLCK, STORE_LOCK_ALIVE);

	*ret_alone = r == 0;
	r = lock_wait(s->lock, F_RDLCK, STORE_LOCK_ALIVE);
	return r < 0 ? err_errno(e, -r, "audit", "can't lock the record") : 0;
}

static int open_all(struct store *s, struct err *e)
{
	uint64_t unended, torn;
	bool alone;
	int r;

	s->lock = openat(s->dir, STORE_LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lock < 0)
		return err_errno(e, errno, "audit", "can't open the lock file %s", STORE_LOCK_FILE);
	r = join(s, &alone, e);
	if (r < 0)
		return r;
	r = lock_for_writing(s->lock);
	if (r < 0)
		return err_errno(e, -r, "audit",
				 "another auditor holds the record; stop it or give this one another state directory");
	s->locked = true;
	r = segment_open(&s->old, s->dir, STORE_OLD_FILE, O_RDONLY, e);
	if (r == 0)
		r = segment_scan(&s->old, &torn, e);
	if (r < 0 && r != -ENOENT)
		return r;
	s->next_seq = s->old.last_seq + 1;
	r = catch_up(s, e);
	if (r < 0)
		return r;
	unended = unended_runs(s);
	store_begin(s);
	if (alone && unended)
		store_append_gap(s, RECORD_GAP_INTERRUPTED, unended, "runs before this record that have no end were cut short");
	/* Not being able to write now is not fatal: it is counted, shown, and may pass. */
	(void)store_commit(s, NULL);
	return 0;
}

int store_open(struct store **ret, int dir, uint64_t max_bytes, struct err *e)
{
	struct store *s = calloc(1, sizeof *s);
	int r;

	if (!s)
		return err_set(e, ENOMEM, "audit", "no memory for the record");
	s->dir = dir;
	s->lock = -1;
	s->alive = true;
	s->max_bytes = max_bytes;
	s->old = s->now = SEGMENT_NONE;
	r = open_all(s, e);
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
	batch_clear(s);
	for (size_t i = 0; i < STORE_LOSSES_MAX; i++)
		loss_clear(&s->losses[i]);
	segment_close(&s->old);
	segment_close(&s->now);
	if (s->lock >= 0)
		close(s->lock);
	free(s->buf);
	free(s->pending);
	free(s);
	return NULL;
}

bool store_dirty(const struct store *s)
{
	return s->dirty;
}
