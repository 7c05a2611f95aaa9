/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the result of a run to the JSON that answers `POST /v1/execute`, `POST /v1/call` and `weir run --json`. A long answer is
 * made while it is being read, from the run's own buffers: as text it would be up to three times as large, and making it all at
 * once would keep everybody else waiting. Pure.
 */
#ifndef WEIR_API_ANSWER_H
#define WEIR_API_ANSWER_H

#include <jansson.h>
#include <stdbool.h>

#include "api/call_result.h"
#include "api/error.h"
#include "api/runclient.h"

struct answer_part {
	enum { ANSWER_LITERAL, ANSWER_TEXT, ANSWER_BASE64, ANSWER_RAW } kind;
	const char *data; /* not of a literal: of that it is `from` in `literal` */
	size_t from, len;
};

/* All zero: empty. */
struct answer_body {
	char *literal; /* what is JSON already */
	size_t literal_len, literal_room;
	struct answer_part *parts;
	size_t count, room;
	bool failed;
	size_t part, at; /* read so far */
	/* Of a run, taken over by answer_own(). */
	char *out[RUN_PIPES];
	size_t out_len[RUN_PIPES];
	char *files;
	size_t files_len;
};

/*
 * The answer to a run that ran (RUN_DONE): one line of JSON with its newline, which is the only one in it. Invalid UTF-8 of
 * each stream is replaced once over the whole. Returns 0 or -ENOMEM. The result's buffers are borrowed until answer_clear(),
 * unless answer_own() takes them over.
 */
int answer_make(struct answer_body *a, const struct run_result *result);

/* The same of a tool call: with `c`'s result or error, and without files. `c` is not needed any more afterwards. */
int answer_make_call(struct answer_body *a, const struct run_result *result, const struct call_result *c);

/* An answer of JSON that is there already, e.g. an error. Takes the reference. Returns as above. */
int answer_make_json(struct answer_body *a, json_t *value);

/* From now on the buffers are the answer's and no longer the result's. */
void answer_own(struct answer_body *a, struct run_result *result);

/* What reading all of it comes to, and what it holds in memory. Bytes. */
size_t answer_len(const struct answer_body *a);
size_t answer_held(const struct answer_body *a);

/* Fills `buf`, from where the last call stopped. Returns how much; 0 only at the end. `max` is at least ANSWER_READ_MIN. */
#define ANSWER_READ_MIN 8
size_t answer_read(struct answer_body *a, char *buf, size_t max);

void answer_clear(struct answer_body *a);

/* All of it at once. malloc'd, NUL-terminated, *ret_len without the NUL; NULL: no memory. */
char *answer_result(const struct run_result *result, size_t *ret_len);

/* The error for every other outcome. Fills *ret_error. */
void answer_error(const struct run_result *result, struct api_error *ret_error);

/* Serialises `value` (borrowed) with a final newline. malloc'd, NUL-terminated, *ret_len without the NUL. NULL: no memory. */
char *answer_text(const json_t *value, size_t *ret_len);

#endif
