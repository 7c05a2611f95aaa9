/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void index_clear(struct index *x)
{
	free(x->lines);
	free(x->runs);
	free(x->buckets);
	memset(x, 0, sizeof *x);
}

/* FNV-1a. Run ids are made by the supervisor, so nobody gets to choose colliding ones. */
static uint64_t hash(const char *text)
{
	uint64_t h = 0xcbf29ce484222325u;

	while (*text)
		h = (h ^ (unsigned char)*text++) * 0x100000001b3u;
	return h;
}

/* The bucket that holds run_id, or the empty one where it would go. */
static uint32_t *bucket_of(const struct index *x, const char *run_id)
{
	size_t i = hash(run_id) & (x->nbuckets - 1);

	while (x->buckets[i] && strcmp(x->runs[x->buckets[i] - 1].run_id, run_id) != 0)
		i = (i + 1) & (x->nbuckets - 1);
	return &x->buckets[i];
}

static int grow_runs(struct index *x)
{
	size_t room = x->runs_room ? 2 * x->runs_room : 64;
	struct index_run *runs;
	uint32_t *buckets;

	if (x->nruns < x->runs_room)
		return 0;
	runs = reallocarray(x->runs, room, sizeof *runs);
	if (!runs)
		return -ENOMEM;
	x->runs = runs;
	buckets = calloc(2 * room, sizeof *buckets);
	if (!buckets)
		return -ENOMEM;
	free(x->buckets);
	x->buckets = buckets;
	x->nbuckets = 2 * room;
	x->runs_room = room;
	for (size_t i = 0; i < x->nruns; i++)
		*bucket_of(x, runs[i].run_id) = (uint32_t)i + 1;
	return 0;
}

static int grow_lines(struct index *x)
{
	size_t room = x->lines_room ? 2 * x->lines_room : 256;
	struct index_line *lines;

	if (x->nlines == INDEX_RECORDS_MAX)
		return -ENOSPC;
	if (x->nlines < x->lines_room)
		return 0;
	lines = reallocarray(x->lines, room, sizeof *lines);
	if (!lines)
		return -ENOMEM;
	x->lines = lines;
	x->lines_room = room;
	return 0;
}

int index_add(struct index *x, const struct record_head *head, uint32_t offset, uint32_t len)
{
	uint32_t at = (uint32_t)x->nlines, *bucket;
	struct index_run *run;
	int r = grow_lines(x);

	if (r == 0)
		r = grow_runs(x);
	if (r < 0)
		return r;
	bucket = bucket_of(x, head->run_id);
	if (!*bucket) {
		run = &x->runs[x->nruns];
		*run =
		    (struct index_run){.first_seq = head->seq, .first = at, .last = at, .begin = INDEX_NONE, .end = INDEX_NONE};
		memcpy(run->run_id, head->run_id, sizeof run->run_id);
		*bucket = (uint32_t)++x->nruns;
	} else {
		run = &x->runs[*bucket - 1];
		x->lines[run->last].next = at;
		run->last = at;
	}
	x->lines[x->nlines++] = (struct index_line){.offset = offset, .len = len, .next = INDEX_NONE};
	if (head->type == RECORD_RUN_BEGIN && run->begin == INDEX_NONE)
		run->begin = at;
	if (head->type == RECORD_RUN_END)
		run->end = at;
	return 0;
}

const struct index_run *index_find(const struct index *x, const char *run_id)
{
	uint32_t *bucket;

	if (!x->nbuckets)
		return NULL;
	bucket = bucket_of(x, run_id);
	return *bucket ? &x->runs[*bucket - 1] : NULL;
}
