/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target for what a tool can leave in its result pipe. The first byte says how its process ended; the rest is the
 * pipe. Besides not crashing: every answer is one line of JSON with either a result or an error of three texts within their
 * limits; a result is only believed of a process that ended by itself; and what counts as JSON is what another parser, jansson,
 * says.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "api/call_result.h"
#include "core/jcheck.h"
#include "core/limits.h"

static void require(int truth)
{
	if (!truth)
		abort();
}

/* Two parsers, one grammar. They may differ where a number does not fit the other's types, and in the bounds that are ours. */
static void compare(const char *text, size_t len)
{
	const char *why = NULL;
	size_t at = 0;
	int r = jcheck(text, len, LIMIT_RESULT_DEPTH, JCHECK_ANY, &why, &at);
	json_error_t e = {0};
	json_t *other = json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &e);

	if (r == 0)
		require(other || json_error_code(&e) == json_error_numeric_overflow);
	else
		require(why && at <= len);
	if (r < 0 && other) /* a raw NUL ends the text for jansson; it is an error */
		require(memchr(text, 0, len) || !strcmp(why, "too many levels of arrays and objects") ||
			!strcmp(why, "a number of too many digits"));
	json_decref(other);
}

static json_t *read_answer(struct answer_body *a)
{
	size_t len = answer_len(a), done = 0, n;
	char *text = malloc(len + ANSWER_READ_MIN);
	json_error_t e;
	json_t *answer;

	require(text != NULL);
	/* In small pieces: where one ends is nobody's business. */
	while ((n = answer_read(a, text + done, done + 64 < len ? 64 : len + ANSWER_READ_MIN - done)) > 0)
		done += n;
	require(done == len && len > 0 && text[len - 1] == '\n');
	answer = json_loadb(text, len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &e);
	require(answer || json_error_code(&e) == json_error_numeric_overflow);
	free(text);
	return answer;
}

static void check_error(const json_t *error)
{
	static const struct {
		const char *name;
		size_t max;
	} rows[] = {{"type", LIMIT_ERROR_TYPE_BYTES},
		    {"message", LIMIT_ERROR_MESSAGE_BYTES},
		    {"traceback", LIMIT_ERROR_TRACEBACK_BYTES}};

	require(json_is_object(error) && json_object_size(error) == 3);
	for (size_t i = 0; i < 3; i++) {
		const json_t *text = json_object_get(error, rows[i].name);

		require(json_is_string(text) && json_string_length(text) <= rows[i].max);
	}
}

static void check_answer(struct run_result *r)
{
	struct call_result call;
	struct answer_body a;
	json_t *answer;

	require(call_result_read(r, &call) == 0);
	require(r->end.end == RUN_END_EXIT || (call.outcome == CALL_RAISED && !call.told));
	require(call.outcome == CALL_RAISED || r->result_ended);
	if (call.outcome == CALL_UNKNOWN)
		return;
	require(answer_make_call(&a, r, &call) == 0);
	answer_own(&a, r);
	answer = read_answer(&a);
	if (answer) {
		const json_t *result = json_object_get(answer, "result"), *error = json_object_get(answer, "error");

		require(!result != !error);
		require((call.outcome == CALL_RETURNED) == (result != NULL));
		if (error)
			check_error(error);
	}
	json_decref(answer);
	answer_clear(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run_result r = {.outcome = RUN_DONE, .ran = true, .call = true, .timeout_s = 30};
	size_t len = size ? size - 1 : 0;

	if (size == 0)
		return 0;
	if (len > sizeof(struct result_header))
		compare((const char *)data + 1 + sizeof(struct result_header), len - sizeof(struct result_header));
	r.end.end = (data[0] >> 1) % RUN_END_BROKEN;
	r.end.signal = r.end.end == RUN_END_SIGNAL ? data[0] : 0;
	r.result_ended = data[0] & 1;
	/* Of its own length, and to be changed: the texts of an error are read in place. */
	r.out[RUN_RESULT] = malloc(len + !len);
	require(r.out[RUN_RESULT] != NULL);
	memcpy(r.out[RUN_RESULT], data + 1, len);
	r.out_len[RUN_RESULT] = len;
	r.out_bytes[RUN_RESULT] = len;
	check_answer(&r);
	free(r.out[RUN_RESULT]);
	return 0;
}
