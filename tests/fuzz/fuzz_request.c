/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target for the body of POST /v1/execute. Besides not crashing: a refusal has words that are valid UTF-8, an
 * accepted code is within its limits, and what counts as JSON is what another parser, jansson, says.
 */
#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/request.h"
#include "core/jtext.h"
#include "core/limits.h"
#include "core/utf8.h"

static void require(int truth)
{
	if (!truth)
		abort();
}

static void require_utf8(const char *text, size_t len)
{
	bool valid = true;

	for (size_t at = 0; at < len && valid;)
		at += utf8_next(text + at, len - at, &valid);
	require(valid);
}

/* Two parsers, one grammar. They may differ where a number does not fit jansson's types, and at our depth. */
static void compare(const char *text, size_t len)
{
	struct err e = {0};
	json_error_t other = {0};
	int ours = jtext_check(text, len, LIMIT_JSON_DEPTH, &e);
	json_t *theirs = json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &other);

	if (ours == 0 && !theirs)
		require(json_error_code(&other) == json_error_numeric_overflow);
	if (ours < 0 && theirs) /* a raw NUL ends the text for jansson; it is an error */
		require(e.code == E2BIG || memchr(text, 0, len));
	if (ours < 0) {
		require_utf8(e.where, strlen(e.where));
		require_utf8(e.msg, strlen(e.msg));
	}
	if (ours == 0 && theirs) {
		struct jtext root = jtext_root(text, len);

		if (root.kind == JTEXT_STRING) {
			size_t n;
			char *plain = jtext_string(&root, &n);

			require(json_is_string(theirs) && n == json_string_length(theirs) &&
				!memcmp(plain, json_string_value(theirs), n));
			free(plain);
		}
	}
	json_decref(theirs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct execute_request request = {0};
	struct api_error e = {0};
	json_t *body;

	compare((const char *)data, size);
	if (request_parse_execute((const char *)data, size, &request, &e) == 0) {
		require(request.timeout_s >= LIMIT_TIMEOUT_MIN_S && request.timeout_s <= LIMIT_TIMEOUT_MAX_S);
		require(request.code_len <= LIMIT_CODE_BYTES);
		require_utf8(request.code, request.code_len);
		free(request.code);
		return 0;
	}
	require(e.kase > ERROR_NONE && e.kase < ERROR_CASES && *e.message && !e.ran);
	body = error_json(&e);
	require(body != NULL);
	json_decref(body);
	return 0;
}
