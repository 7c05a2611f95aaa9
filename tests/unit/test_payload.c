/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes a sandbox is handed: every length where the header says it is, and digests that anybody can compute. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/payload.h"
#include "core/limits.h"
#include "core/token.h"
#include "plan.h"

static void same_digest(const struct file_digest *d, const char *path, const char *content, size_t len)
{
	uint8_t want[TOKEN_DIGEST_LEN];
	size_t path_len = strlen(path);
	char *whole = malloc(path_len + 1 + len);

	/* token_digest() is SHA-256 of one piece. */
	memcpy(whole, path, path_len + 1);
	memcpy(whole + path_len + 1, content, len);
	token_digest(whole, path_len + 1 + len, want);
	assert_memory_equal(d->sha256, want, sizeof want);
	assert_int_equal(d->size, len);
	free(whole);
}

static void layout(void **state)
{
	static const struct payload_file files[] = {{.path = "d/aXX", .path_len = 3, .content = "A\0A", .len = 3},
						    {.path = "b", .path_len = 1, .content = NULL, .len = 0}};
	struct payload_parts parts = {.code = "co\0de",
				      .code_len = 5,
				      .stdin_text = "in",
				      .stdin_len = 2,
				      .env = "N=v\0M=",
				      .env_len = 7,
				      .files = files,
				      .file_count = 2};
	struct request_header header;
	struct request_file first = {.path_len = 3, .size = 3}, second = {.path_len = 1};
	struct payload p = {0};
	char want[256], *at = want + sizeof header;

	(void)state;
	assert_int_equal(payload_make(&p, &parts), 0);
	memcpy(&header, p.data, sizeof header);
	assert_int_equal(header.magic, REQUEST_MAGIC);
	assert_int_equal(header.flags, REQUEST_STDIN);
	assert_int_equal(header.code_len, 5);
	assert_int_equal(header.stdin_len, 2);
	assert_int_equal(header.env_len, 7);
	assert_int_equal(header.file_count, 2);
	assert_int_equal(header.files_len, 2 * sizeof first + 3 + 3 + 1);
	for (size_t i = 0; i < sizeof header.reserved / sizeof *header.reserved; i++)
		assert_int_equal(header.reserved[i], 0);

	memcpy(at,
	       "co\0dein"
	       "N=v\0M=\0",
	       14);
	at += 14;
	memcpy(at, &first, sizeof first);
	memcpy(at + sizeof first, "d/aA\0A", 6);
	at += sizeof first + 6;
	memcpy(at, &second, sizeof second);
	at[sizeof second] = 'b';
	at += sizeof second + 1;
	assert_int_equal(p.len, at - want);
	assert_memory_equal(p.data + sizeof header, want + sizeof header, p.len - sizeof header);

	assert_int_equal(p.digest_count, 3);
	same_digest(&p.digests[0], "d/a", "A\0A", 3);
	same_digest(&p.digests[1], "b", "", 0);
	same_digest(&p.digests[2], "main.py", "co\0de", 5);
	payload_clear(&p);
	assert_null(p.data);
	assert_null(p.digests);
	assert_int_equal(p.len + p.digest_count, 0);
	payload_clear(&p);
}

static void flags_and_nothing(void **state)
{
	static const struct {
		struct payload_parts parts;
		uint32_t flags;
		size_t digests;
	} rows[] = {{{.code = "", .session = false}, 0, 1},
		    {{.code = "", .session = true}, REQUEST_SESSION, 0},
		    {{.code = "", .stdin_text = ""}, REQUEST_STDIN, 1},
		    {{.code = "", .session = true, .stdin_text = ""}, REQUEST_SESSION | REQUEST_STDIN, 0}};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct payload p = {0};
		struct request_header header;

		assert_int_equal(payload_make(&p, &rows[i].parts), 0);
		assert_int_equal(p.len, sizeof header);
		memcpy(&header, p.data, sizeof header);
		assert_int_equal(header.flags, rows[i].flags);
		assert_int_equal(p.digest_count, rows[i].digests);
		payload_clear(&p);
	}
}

/* Path and content cannot be shifted against each other, and both count. */
static void digests_differ(void **state)
{
	static const char *const rows[][2] = {{"a", "b"},  {"ab", ""},	{"a", "B"}, {"A", "b"},
					      {"a", "bb"}, {"aa", "b"}, {"a", ""}};
	struct file_digest d[7];

	(void)state;
	for (size_t i = 0; i < 7; i++) {
		payload_digest(&d[i], rows[i][0], strlen(rows[i][0]), rows[i][1], strlen(rows[i][1]));
		for (size_t k = 0; k < i; k++)
			assert_memory_not_equal(d[i].sha256, d[k].sha256, 32);
	}
}

/* What the collector is told about is at most what one message holds; and the script's name is the one it is run by. */
static void agrees_with_others(void **state)
{
	(void)state;
	assert_int_equal(COLLECT_DIGESTS_MAX, LIMIT_FILES_IN + 1);
	assert_string_equal(SANDBOX_SCRIPT, SANDBOX_WORKDIR "/" PAYLOAD_SCRIPT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(layout),
	    cmocka_unit_test(flags_and_nothing),
	    cmocka_unit_test(digests_differ),
	    cmocka_unit_test(agrees_with_others),
	};

	return cmocka_run_group_tests_name("payload", tests, NULL, NULL);
}
