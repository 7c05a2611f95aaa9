/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target for the body of POST /v1/execute, and for the messages of POST /mcp. Besides not crashing: a refusal has
 * words that are valid UTF-8; what was accepted makes a payload in which every length fits, every text is valid, every path is
 * normalised, inside and alone, and everything is within its limits; and what counts as JSON is what another parser, jansson,
 * says.
 */
#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/mcp_priv.h"
#include "api/request.h"
#include "core/filepath.h"
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

static void check_env(const char *env, size_t len)
{
	const char *names[LIMIT_ENV_NAMES];
	size_t count = 0;

	require(len <= LIMIT_ENV_BYTES && (len == 0 || env[len - 1] == 0));
	for (const char *at = env; at < env + len; at += strlen(at) + 1) {
		const char *end = strchr(at, '=');

		require(count < LIMIT_ENV_NAMES && end && end > at);
		require(strncmp(at, "SANDBOX_", 8) && strncmp(at, "CODE_INTERPRETER_", 17) && strncmp(at, "TOOL_SANDBOX=", 13));
		for (size_t i = 0; i < count; i++)
			require(strncmp(names[i], at, (size_t)(end - at) + 1) != 0);
		names[count++] = at;
	}
	require_utf8(env, len);
}

static bool below(const char *a, size_t a_len, const char *b, size_t b_len)
{
	return a_len > b_len && a[b_len] == '/' && !memcmp(a, b, b_len);
}

static void check_files(const char *at, const char *end, const struct request_header *h, const struct payload *p)
{
	const char *paths[LIMIT_FILES_IN + 1] = {PAYLOAD_SCRIPT};
	size_t lens[LIMIT_FILES_IN + 1] = {strlen(PAYLOAD_SCRIPT)}, total = 0;

	require(h->file_count <= LIMIT_FILES_IN);
	require(p->digest_count == h->file_count + !(h->flags & REQUEST_SESSION));
	for (size_t i = 1; i <= h->file_count; i++) {
		char normal[LIMIT_FILE_PATH_BYTES];
		struct request_file head;
		size_t len = 0;

		require((size_t)(end - at) >= sizeof head);
		memcpy(&head, at, sizeof head);
		at += sizeof head;
		require(head.path_len <= LIMIT_FILE_PATH_BYTES && head.size <= LIMIT_FILES_IN_BYTES);
		require((size_t)(end - at) >= (size_t)head.path_len + head.size);
		require(filepath_normalise(at, head.path_len, normal, &len) == FILEPATH_OK);
		require(len == head.path_len && !memcmp(normal, at, len));
		require_utf8(at, len);
		for (size_t k = 0; k < i; k++) {
			require(lens[k] != len || memcmp(paths[k], at, len) != 0);
			require(!below(at, len, paths[k], lens[k]) && !below(paths[k], lens[k], at, len));
		}
		paths[i] = at;
		lens[i] = len;
		total += head.size;
		require(p->digests[i - 1].size == head.size);
		at += head.path_len + head.size;
	}
	require(at == end && total <= LIMIT_FILES_IN_BYTES);
}

static void check_payload(const struct payload *p)
{
	struct request_header h;
	const char *at, *end = p->data + p->len;

	require(p->len >= sizeof h);
	memcpy(&h, p->data, sizeof h);
	require(h.magic == REQUEST_MAGIC && !(h.flags & ~(uint32_t)(REQUEST_SESSION | REQUEST_STDIN)));
	require(sizeof h + (uint64_t)h.code_len + h.stdin_len + h.env_len + h.files_len == p->len);
	require(h.code_len <= LIMIT_CODE_BYTES && h.stdin_len <= LIMIT_STDIN_BYTES);
	require(h.flags & REQUEST_STDIN || h.stdin_len == 0);
	at = p->data + sizeof h;
	require_utf8(at, h.code_len);
	at += h.code_len;
	require_utf8(at, h.stdin_len);
	at += h.stdin_len;
	check_env(at, h.env_len);
	at += h.env_len;
	check_files(at, end, &h, p);
}

/* A copy, because the body is read in place; of its own length, because the sanitizers then see a step too far. */
static char *copy_of(const uint8_t *data, size_t size)
{
	char *copy = malloc(size + !size);

	require(copy != NULL);
	memcpy(copy, data, size);
	return copy;
}

/* The id is a string or an integer, whatever its size, and the reply is one that a client takes for its own. */
static void check_reply(const char *text, size_t len)
{
	json_error_t e = {0};
	json_t *reply = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e), *id;

	if (!reply) { /* nothing but a number in the id can be too much for jansson */
		require(json_error_code(&e) == json_error_numeric_overflow);
		return;
	}
	require(json_object_size(reply) == 3 && !strcmp(json_string_value(json_object_get(reply, "jsonrpc")), "2.0"));
	id = json_object_get(reply, "id");
	require(json_is_string(id) || json_is_integer(id) || (json_is_null(id) && json_object_get(reply, "error")));
	require(json_is_object(json_object_get(reply, "result")) || json_is_object(json_object_get(reply, "error")));
	json_decref(reply);
}

static void check_message(const uint8_t *data, size_t size, const struct mcp_headers *headers)
{
	struct execute_request request = {0};
	struct mcp_plan plan;
	struct api_error e;
	char *body = copy_of(data, size);

	mcp_read(body, size, headers, &plan);
	if (plan.step == MCP_RUN) {
		require(plan.call && strlen(plan.call->id) <= LIMIT_MCP_ID_BYTES && !plan.text && plan.arguments_len >= 2);
		require(plan.call->modern == (headers->name != NULL));
		if (request_parse_execute(plan.arguments, plan.arguments_len, &request, &e) < 0) {
			plan.text = mcp_answer_error(plan.call, &e, &plan.text_len);
		} else {
			require(request.timeout_s <= LIMIT_TIMEOUT_MAX_S && !*request.session_id);
			check_payload(&request.payload);
			payload_clear(&request.payload);
		}
	} else if (plan.step == MCP_REPLY) {
		require(plan.text && !plan.call);
		require(plan.status == 200 || plan.status == 400 || plan.status == 404);
	}
	free(body); /* nothing of the plan may lie in it but the arguments */
	if (plan.text)
		check_reply(plan.text, plan.text_len);
	free(plan.text);
	free(plan.call);
}

/* What is read of headers, too. */
static void check_headers(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	memcpy(text, data, size);
	text[size] = 0;
	(void)mcp_accepts_json(text);
	(void)mcp_origin_ok(text, "192.0.2.1:8380");
	(void)mcp_origin_ok(text, NULL);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct mcp_headers headers[] = {{0}, {"2025-11-25", NULL, NULL}, {"2026-07-28", "tools/call", MCP_TOOL}};
	struct execute_request request = {0};
	struct api_error e = {0};
	char *body = copy_of(data, size);
	json_t *answer;
	int r;

	compare((const char *)data, size);
	r = request_parse_execute(body, size, &request, &e);
	free(body);
	if (r == 0) {
		bool cell = *request.session_id;

		require(request.timeout_s >= LIMIT_TIMEOUT_MIN_S &&
			request.timeout_s <= (cell ? LIMIT_CELL_TIMEOUT_MAX_S : LIMIT_TIMEOUT_MAX_S));
		check_payload(&request.payload);
		payload_clear(&request.payload);
	} else {
		require(e.kase > ERROR_NONE && e.kase < ERROR_CASES && *e.message && !e.ran);
		answer = error_json(&e);
		require(answer != NULL);
		json_decref(answer);
	}
	body = copy_of(data, size);
	(void)request_parse_session(body, size, &e);
	free(body);
	for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
		check_message(data, size, &headers[i]);
	check_headers(data, size);
	return 0;
}
