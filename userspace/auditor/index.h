/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which lines of one record file belong to which run. Memory only, rebuilt by scanning the file; bounded by
 * INDEX_RECORDS_MAX lines, after which the store starts a new file. Twelve bytes a line and about 90 a run.
 */
#ifndef WEIR_AUDITOR_INDEX_H
#define WEIR_AUDITOR_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "auditor/record.h"

#define INDEX_RECORDS_MAX (1u << 21)
#define INDEX_NONE UINT32_MAX

struct index_line {
	uint32_t offset, len; /* in the file; len without the newline */
	uint32_t next;	      /* the run's next line, INDEX_NONE for the last */
};

struct index_run {
	char run_id[IPC_ID_MAX];
	uint64_t first_seq;
	uint32_t first, last; /* its lines, in the order of the file */
	uint32_t begin, end;  /* of type run_begin and run_end; INDEX_NONE when there is none */
};

/* Zeroed is empty. */
struct index {
	struct index_line *lines;
	size_t nlines, lines_room;
	struct index_run *runs; /* in the order of their first line */
	size_t nruns, runs_room;
	uint32_t *buckets; /* open addressing: position in runs plus one, 0 for empty */
	size_t nbuckets;   /* a power of two, at least twice nruns */
};

void index_clear(struct index *index);

/* Adds a line of a run (head->run_id is not ""). Returns 0, -ENOMEM, or -ENOSPC when it holds INDEX_RECORDS_MAX lines. */
int index_add(struct index *index, const struct record_head *head, uint32_t offset, uint32_t len);

/* Borrowed until the next index_add; NULL when the run is not in it. */
const struct index_run *index_find(const struct index *index, const char *run_id);

#endif
