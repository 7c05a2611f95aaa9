/* SPDX-License-Identifier: Apache-2.0 */
/* What the collector says is checked before a byte of it is used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/runclient.h"
#include "core/limits.h"

static char *data;
static size_t len;

static void add(uint32_t kind, const char *path, size_t path_len, uint64_t size, const char *content)
{
	struct collected_entry e = {.kind = kind, .path_len = (uint32_t)path_len, .size = size};
	size_t body = kind == COLLECTED_FILE && content ? (size_t)size : 0;

	data = realloc(data, len + sizeof e + path_len + body);
	memcpy(data + len, &e, sizeof e);
	memcpy(data + len + sizeof e, path, path_len);
	if (body)
		memcpy(data + len + sizeof e + path_len, content, body);
	len += sizeof e + path_len + body;
}

static void reset(void)
{
	free(data);
	data = NULL;
	len = 0;
}

static bool one(uint32_t kind, const char *path, size_t path_len)
{
	reset();
	add(kind, path, path_len, 1, "x");
	return run_files_ok(data, len);
}

static void reads_what_was_written(void **state)
{
	struct run_files f;
	struct collected_entry e;
	const char *path, *content;
	size_t at = 0;

	(void)state;
	reset();
	add(COLLECTED_FILE, "a", 1, 3, "abc"); /* what follows is not aligned */
	add(COLLECTED_FILE, "dir/empty", 9, 0, "");
	add(COLLECTED_TOO_LARGE, "big", 3, 1ull << 50, NULL);
	assert_true(run_files_ok(data, len));
	f = (struct run_files){.data = data, .len = len};
	assert_true(run_files_next(&f, &at, &e, &path, &content));
	assert_int_equal(e.kind, COLLECTED_FILE);
	assert_memory_equal(path, "a", 1);
	assert_memory_equal(content, "abc", 3);
	assert_true(run_files_next(&f, &at, &e, &path, &content));
	assert_int_equal(e.path_len, 9);
	assert_int_equal(e.size, 0);
	assert_true(run_files_next(&f, &at, &e, &path, &content));
	assert_int_equal(e.kind, COLLECTED_TOO_LARGE);
	assert_int_equal(e.size, 1ull << 50);
	assert_null(content);
	assert_false(run_files_next(&f, &at, &e, &path, &content));
	assert_int_equal(at, len);
	at = 0;
	assert_false(run_files_next(&(struct run_files){0}, &at, &e, &path, &content));
	assert_true(run_files_ok(NULL, 0));
}

/* Cut anywhere, or with lengths that lead outside. */
static void lengths(void **state)
{
	struct collected_entry e;

	(void)state;
	reset();
	add(COLLECTED_FILE, "name", 4, 5, "12345");
	for (size_t cut = 1; cut < len; cut++) {
		/* In an area of its own, so that a look past its end is seen. */
		char *copy = malloc(cut);

		memcpy(copy, data, cut);
		assert_false(run_files_ok(copy, cut));
		free(copy);
	}
	for (const uint64_t *size = (const uint64_t[]){6, 1ull << 32, UINT64_MAX, UINT64_MAX - 24, 0}; *size; size++) {
		memcpy(&e, data, sizeof e);
		e.size = *size;
		memcpy(data, &e, sizeof e);
		assert_false(run_files_ok(data, len));
	}
	e.size = 5;
	for (const uint32_t *n = (const uint32_t[]){10, 1u << 31, UINT32_MAX, UINT32_MAX - 15, 0}; *n; n++) {
		e.path_len = *n;
		memcpy(data, &e, sizeof e);
		assert_false(run_files_ok(data, len));
	}
}

static void kinds_and_paths(void **state)
{
	static const char *const bad[] = {"/etc/passwd", "..",	"../x", "a/..", "a/../b", ".",
					  "./a",	 "a/.", "a//b", "a/",	"/",	  ""};
	static const char *const good[] = {"a", "a/b", "...", "..a", "a..", ".a/.b", "a\\..\\b", "\n", "\xc3\xa9"};

	(void)state;
	assert_false(one(COLLECTED_KINDS, "a", 1));
	assert_false(one(UINT32_MAX, "a", 1));
	assert_false(one(COLLECTED_FILE, "a\0b", 3));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_false(one(COLLECTED_FILE, bad[i], strlen(bad[i])));
		assert_false(one(COLLECTED_SYMLINK, bad[i], strlen(bad[i])));
	}
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		assert_true(one(COLLECTED_FILE, good[i], strlen(good[i])));
	/* A path is text, but for one reason; and that one is for no others. */
	assert_false(one(COLLECTED_FILE, "\xff", 1));
	assert_false(one(COLLECTED_FIFO, "a/\xed\xa0\x80", 5));
	assert_true(one(COLLECTED_NAME, "\xff", 1));
	assert_false(one(COLLECTED_NAME, "a", 1));
}

static void no_more_than_the_limits(void **state)
{
	char *content = calloc(1, LIMIT_FILE_OUT_BYTES + 1);

	(void)state;
	reset();
	add(COLLECTED_FILE, "a", 1, LIMIT_FILE_OUT_BYTES, content);
	assert_true(run_files_ok(data, len));
	reset();
	add(COLLECTED_FILE, "a", 1, LIMIT_FILE_OUT_BYTES + 1, content);
	assert_false(run_files_ok(data, len));
	free(content);
	reset();
	for (int i = 0; i < LIMIT_FILES_OUT; i++)
		add(COLLECTED_FILE, "a", 1, 0, "");
	for (int i = 0; i < LIMIT_FILES_SKIPPED; i++)
		add(COLLECTED_FIFO, "a", 1, 0, NULL);
	assert_true(run_files_ok(data, len));
	add(COLLECTED_FIFO, "a", 1, 0, NULL);
	assert_false(run_files_ok(data, len));
	len -= sizeof(struct collected_entry) + 1;
	add(COLLECTED_FILE, "a", 1, 0, "");
	assert_false(run_files_ok(data, len));
	reset();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(reads_what_was_written),
	    cmocka_unit_test(lengths),
	    cmocka_unit_test(kinds_and_paths),
	    cmocka_unit_test(no_more_than_the_limits),
	};

	return cmocka_run_group_tests_name("run_files", tests, NULL, NULL);
}
