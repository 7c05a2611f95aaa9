/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target for the query of GET /v1/audit and its stream, and for a payload as its content is hashed. The first byte
 * chooses. Of a query: names and values as they stand in a request, with & and = between. Besides not crashing: what is taken
 * is within its bounds and ends inside its array, and what is refused says where. Of a payload: whatever its pieces, the sums
 * are those of it in one piece.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/content.h"
#include "api/find_args.h"
#include "core/limits.h"

static void require(int truth)
{
	if (!truth)
		abort();
}

static void check_find(const struct find *f)
{
	const uint64_t last_ns = 9214646400000000000u; /* the end of 2261 */

	require(f->since_ns < last_ns && f->until_ns < last_ns && f->after <= 999999999999999999u);
	require(f->limit <= LIMIT_AUDIT_SEARCH);
	require(f->verdicts < 1u << WEIR_VERDICT_COUNT && f->ends < 1u << RUN_END_COUNT);
	require(ipc_text_ok(f->project, sizeof f->project) && ipc_text_ok(f->policy, sizeof f->policy) &&
		ipc_text_ok(f->destination, sizeof f->destination));
	for (const char *c = f->destination; *c; c++)
		require((unsigned char)*c >= 0x20 && *c != 0x7f && !(*c >= 'A' && *c <= 'Z'));
}

static void query(enum find_route route, char *text)
{
	struct find_args a = {0};
	char *next = text;

	while (next) {
		char *name = next, *value;
		struct api_error e = {0};

		next = strchr(name, '&');
		if (next)
			*next++ = 0;
		value = strchr(name, '=');
		if (value)
			*value++ = 0;
		if (find_args_take(&a, route, name, value, &e) < 0) {
			require(!strncmp(e.message, "at \"?", 5) && error_row(e.kase)->status == 400);
			return; /* nothing of it is used */
		}
		check_find(&a.find);
	}
}

/* The header's lengths are the real ones of the bytes behind it, as payload_make() writes them. */
static void payload(const uint8_t *data, size_t size)
{
	struct request_header h = {.magic = REQUEST_MAGIC};
	struct content whole = {0}, pieces = {0};
	struct content_told a, b;
	size_t len = sizeof h + size, n, step = size ? data[0] % 7 + 1u : 1;
	char *text = malloc(len);

	h.flags = size % 3 ? REQUEST_STDIN : 0;
	h.code_len = (uint32_t)(size / 4);
	h.stdin_len = (uint32_t)(size / 4);
	h.file_count = size > 8;
	h.files_len = size - h.code_len - h.stdin_len;
	memcpy(text, &h, sizeof h);
	if (size)
		memcpy(text + sizeof h, data, size);
	content_request(&whole, &h, 0, text, len);
	for (size_t at = 0; at < len; at += n) {
		n = len - at < step ? len - at : step;
		content_request(&pieces, &h, at, text + at, n);
	}
	content_sum_up(&whole, &a);
	content_sum_up(&pieces, &b);
	require(!memcmp(&a, &b, sizeof a));
	require(a.of[CONTENT_CODE].bytes == h.code_len && a.of[CONTENT_FILES_IN].bytes <= h.files_len + size);
	content_clear(&whole);
	content_clear(&pieces);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (size == 0)
		return 0;
	if (data[0] % 3 == 2) {
		payload(data + 1, size - 1);
		return 0;
	}
	text = malloc(size);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = 0;
	query(data[0] % 3 ? FIND_STREAM : FIND_SEARCH, text);
	free(text);
	return 0;
}
