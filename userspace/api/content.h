/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only the client of a run sees of it: its code, what it was given, what it wrote and left. Each is hashed as it passes,
 * so that no large thing is ever hashed in one go, and told to the auditor when the run is over (struct content_told). Where
 * the record is to have the bytes themselves, the first LIMIT_AUDIT_CONTENT_BYTES of each are kept along the way.
 */
#ifndef WEIR_API_CONTENT_H
#define WEIR_API_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/ipc.h"

/* Where a payload's reader is: in the request's parts, which are found by their lengths, or in one of its files. */
struct content_place {
	enum { CONTENT_AT_HEAD, CONTENT_AT_PATH, CONTENT_AT_DATA } in; /* of a file */
	struct request_file head;
	size_t got; /* of what it is in */
};

/* All zero: nothing has been seen, and nothing is kept. */
struct content {
	bool keep;   /* the bytes too */
	bool failed; /* there was no memory to hash with: nothing is told */
	struct {
		void *hash; /* of the library's; NULL: there is no such thing so far */
		uint64_t bytes, kept;
		char *stored;
		size_t stored_len;
	} of[CONTENT_KINDS];
	struct content_place place;
};

/* There is such a thing, be it empty. */
void content_open(struct content *c, enum content_kind kind);
/* `len` bytes more of it, which were kept. Opens it. */
void content_add(struct content *c, enum content_kind kind, const void *data, size_t len);
/* That many more that were only counted. */
void content_count(struct content *c, enum content_kind kind, uint64_t bytes);

/*
 * `len` bytes of a payload (payload.h) from `from` on, which follow those of the call before: code, arguments and files. The
 * header is at its beginning. content_restart() forgets these: it is sent to another sandbox.
 */
void content_request(struct content *c, const struct request_header *h, size_t from, const char *data, size_t len);
void content_restart(struct content *c);

/* The sums. Ends the hashing: to be asked once. */
void content_sum_up(struct content *c, struct content_told *ret);
/* What is kept, one kind after the other, as a sealed memfd. Negative: it is nothing (-ENODATA), or there was no room. */
int content_memfd(const struct content *c);

void content_clear(struct content *c);

#endif
