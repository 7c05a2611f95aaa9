/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const store_state_names[4] = {
    [STORE_UNKNOWN] = "unknown",
    [STORE_RUNNING] = "running",
    [STORE_ENDED] = "ended",
    [STORE_INTERRUPTED] = "interrupted",
};

const struct store_loss *store_loss_of(const struct store *s, const char *run_id)
{
	for (size_t i = 0; i < STORE_LOSSES_MAX; i++)
		if (s->losses[i].run_id[0] && strcmp(s->losses[i].run_id, run_id) == 0)
			return &s->losses[i];
	return NULL;
}

static bool someone_lives(int lock)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = STORE_LOCK_ALIVE, .l_len = 1};

	return lock >= 0 && fcntl(lock, F_OFD_GETLK, &fl) == 0 && fl.l_type != F_UNLCK;
}

static int open_files(struct store *s, struct err *e)
{
	uint64_t torn;
	int r;

	/* Newest first: when a writer moves files between the two opens, the older one is met twice rather than missed. */
	r = segment_open(&s->now, s->dir, STORE_FILE, O_RDONLY, e);
	if (r < 0)
		return r;
	r = segment_open(&s->old, s->dir, STORE_OLD_FILE, O_RDONLY, e);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (s->old.fd >= 0) {
		struct stat a, b;

		if (fstat(s->old.fd, &a) == 0 && fstat(s->now.fd, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev) {
			segment_close(&s->now);
			r = segment_open(&s->now, s->dir, STORE_FILE, O_RDONLY, e);
			if (r < 0)
				return r;
		}
	}
	return segment_scan(&s->old, &torn, e);
}

int store_open_readonly(struct store **ret, int dir, struct err *e)
{
	struct store *s = calloc(1, sizeof *s);
	uint64_t torn; /* a line that is being written right now, or the next writer's to mend */
	int r;

	if (!s)
		return err_set(e, ENOMEM, "audit", "no memory for the record");
	s->dir = dir;
	s->readonly = true;
	s->old = s->now = SEGMENT_NONE;
	s->lock = openat(dir, STORE_LOCK_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	s->alive = someone_lives(s->lock);
	r = open_files(s, e);
	if (r == 0)
		r = segment_scan(&s->now, &torn, e);
	if (r < 0)
		store_free(s);
	else
		*ret = s;
	return r;
}

bool store_run_ended(const struct store *s, const char *run_id)
{
	const struct index_run *now = index_find(&s->now.index, run_id), *old = index_find(&s->old.index, run_id);
	const struct store_loss *loss = store_loss_of(s, run_id);

	return (now && now->end != INDEX_NONE) || (old && old->end != INDEX_NONE) || (loss && loss->end);
}

enum store_state store_state(const struct store *s, const char *run_id)
{
	const struct index_run *now = index_find(&s->now.index, run_id), *old = index_find(&s->old.index, run_id);
	uint64_t cut = s->now.interrupted_seq ? s->now.interrupted_seq : s->old.interrupted_seq;

	if (!now && !old)
		return store_loss_of(s, run_id) ? (store_run_ended(s, run_id) ? STORE_ENDED : STORE_RUNNING) : STORE_UNKNOWN;
	if (store_run_ended(s, run_id))
		return STORE_ENDED;
	return !s->alive || (old ? old : now)->first_seq < cut ? STORE_INTERRUPTED : STORE_RUNNING;
}

static int add_line(struct view *v, const struct segment *seg, const struct index_line *line)
{
	json_t *record = segment_read(seg, line);
	int r;

	if (!record) {
		/* Indexed once, unreadable now: the file was changed under us. */
		view_unwritten(v, 1);
		return 0;
	}
	r = view_add(v, record);
	json_decref(record);
	return r;
}

static int add_segment(struct view *v, const struct segment *seg, const char *run_id, unsigned *left)
{
	const struct index_run *run = index_find(&seg->index, run_id);
	bool end_seen = false;
	int r = 0;

	if (!run)
		return 0;
	for (uint32_t i = run->first; i != INDEX_NONE && r == 0; i = seg->index.lines[i].next) {
		if (*left == 0) {
			view_unwritten(v, 1);
			continue;
		}
		(*left)--;
		end_seen |= i == run->end;
		r = add_line(v, seg, &seg->index.lines[i]);
	}
	if (r == 0 && run->end != INDEX_NONE && !end_seen)
		r = add_line(v, seg, &seg->index.lines[run->end]);
	return r;
}

int store_run_project(const struct store *s, const char *run_id, char ret[IPC_PROJECT_MAX])
{
	const struct segment *seg = index_find(&s->old.index, run_id) ? &s->old : &s->now;
	const struct index_run *run = index_find(&seg->index, run_id);
	const struct store_loss *loss = store_loss_of(s, run_id);
	json_t *record = run ? segment_read(seg, &seg->index.lines[run->first]) : NULL;
	const char *project;

	if (!record && loss)
		record = json_incref(loss->begin ? loss->begin : loss->end);
	project = json_string_value(json_object_get(record, "project"));
	if (project)
		snprintf(ret, IPC_PROJECT_MAX, "%s", project);
	json_decref(record);
	return project ? 0 : -ENOENT;
}

int store_run(const struct store *s, const char *run_id, struct view **ret)
{
	const struct store_loss *loss = store_loss_of(s, run_id);
	unsigned left = STORE_RUN_LINES_MAX;
	struct view *v;
	int r = 0;

	if (store_state(s, run_id) == STORE_UNKNOWN)
		return -ENOENT;
	v = view_new();
	if (!v)
		return -ENOMEM;
	if (loss && loss->begin)
		r = view_add(v, loss->begin);
	if (r == 0)
		r = add_segment(v, &s->old, run_id, &left);
	if (r == 0)
		r = add_segment(v, &s->now, run_id, &left);
	if (r == 0 && loss && loss->end)
		r = view_add(v, loss->end);
	if (loss)
		view_unwritten(v, loss->records);
	if (r < 0)
		view_free(v);
	else
		*ret = v;
	return r;
}

int store_each_run(const struct store *s, int (*fn)(void *ctx, const char *run_id), void *ctx)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->old.index.nruns; i++)
		r = fn(ctx, s->old.index.runs[i].run_id);
	for (size_t i = 0; r == 0 && i < s->now.index.nruns; i++)
		if (!index_find(&s->old.index, s->now.index.runs[i].run_id))
			r = fn(ctx, s->now.index.runs[i].run_id);
	return r;
}

const struct store_stats *store_stats(struct store *s)
{
	s->stats.unreadable = s->old.unreadable + s->now.unreadable;
	s->stats.last_seq = s->next_seq ? s->next_seq - 1 : 0;
	return &s->stats;
}
