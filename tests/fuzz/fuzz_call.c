/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target for the body of POST /v1/call. Besides not crashing: a refusal has words that are valid UTF-8; what was
 * accepted is a payload of a call whose name is within its limits and free of control characters, and whose arguments are, byte
 * for byte, a part of the body that another parser, jansson, takes for an object without repeated names.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/request.h"
#include "core/limits.h"
#include "core/utf8.h"

static void require(int truth)
{
	if (!truth)
		abort();
}

static void check_name(const char *name, size_t len)
{
	bool valid = true;

	require(len > 0 && len <= LIMIT_CALL_NAME_BYTES);
	for (size_t at = 0, n; at < len; at += n) {
		n = utf8_next(name + at, len - at, &valid);
		require(valid);
		require((unsigned char)name[at] >= 0x20 && name[at] != 0x7f);
		require(n != 2 || (unsigned char)name[at] != 0xc2 || (unsigned char)name[at + 1] >= 0xa0);
	}
}

static void check_payload(const struct payload *p, const uint8_t *body, size_t size)
{
	struct request_header h;
	const char *arguments;
	json_error_t e;
	json_t *value;

	require(p->len >= sizeof h && p->digest_count == 0);
	memcpy(&h, p->data, sizeof h);
	require(h.magic == REQUEST_MAGIC && h.flags == REQUEST_CALL);
	require(h.env_len == 0 && h.files_len == 0 && h.file_count == 0);
	require(sizeof h + (uint64_t)h.code_len + h.stdin_len == p->len);
	check_name(p->data + sizeof h, h.code_len);
	arguments = p->data + sizeof h + h.code_len;
	require(h.stdin_len >= 2 && memmem(body, size, arguments, h.stdin_len) != NULL);
	value = json_loadb(arguments, h.stdin_len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &e);
	/* It has no place for integers that are larger than its own. */
	require(value ? json_is_object(value) : json_error_code(&e) == json_error_numeric_overflow);
	json_decref(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct call_request request = {0};
	struct api_error e = {0};
	char *body = malloc(size + !size);
	int r;

	require(body != NULL);
	memcpy(body, data, size);
	r = request_parse_call(body, size, &request, &e);
	free(body);
	if (r == 0) {
		require(request.timeout_s >= LIMIT_TIMEOUT_MIN_S && request.timeout_s <= LIMIT_CALL_TIMEOUT_MAX_S);
		check_payload(&request.payload, data, size);
		payload_clear(&request.payload);
	} else {
		json_t *answer = error_json(&e);

		require(e.kase > ERROR_NONE && e.kase < ERROR_CASES && *e.message && !e.ran && answer);
		json_decref(answer);
	}
	return 0;
}
