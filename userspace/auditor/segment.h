/* SPDX-License-Identifier: Apache-2.0 */
/* One record file and its index. Reading only; store.c is what writes. */
#ifndef WEIR_AUDITOR_SEGMENT_H
#define WEIR_AUDITOR_SEGMENT_H

#include <stdint.h>
#include <sys/types.h>

#include "auditor/index.h"
#include "core/err.h"

struct segment {
	int fd; /* owned; -1 for a file that is not there */
	struct index index;
	uint64_t end;		  /* bytes scanned: up to here every line is complete */
	uint64_t last_seq;	  /* 0 for none */
	uint64_t interrupted_seq; /* of the newest gap record of that kind, 0 for none */
	uint64_t unreadable;	  /* lines that are no records; they stay where they are and are not indexed */
	uint64_t unindexed;	  /* records the index had no room for */
};

/* A segment without a file. */
#define SEGMENT_NONE ((struct segment){.fd = -1})

/* Closes and forgets; leaves SEGMENT_NONE. */
void segment_close(struct segment *s);

/*
 * Opens `name` in `dir` with the given open(2) flags (O_CLOEXEC and O_NOFOLLOW are added, mode 0600) without scanning.
 * Returns -ENOENT when it is not there (and flags don't create it); other failures fill e.
 */
int segment_open(struct segment *ret, int dir, const char *name, int flags, struct err *e);

/*
 * Indexes what was appended since the last call. *ret_torn is the number of bytes behind the last complete line. Returns 0
 * or a negative errno; -ESTALE when the file is now shorter than what was scanned.
 */
int segment_scan(struct segment *s, uint64_t *ret_torn, struct err *e);

/* Indexes one record just written at `offset`, the end of the file. */
void segment_added(struct segment *s, const struct record_head *head, const char *gap_kind, uint64_t offset, uint32_t len);

/* Reads and parses an indexed line. NULL when it can't be read or is no JSON. The caller's. */
json_t *segment_read(const struct segment *s, const struct index_line *line);

#endif
