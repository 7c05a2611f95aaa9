/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of files: where each one ends, and which lead nowhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/filepath.h"
#include "core/limits.h"

static const struct {
	const char *path, *normal; /* NULL: `problem` */
	enum filepath_problem problem;
} rows[] = {
    {"a", "a", FILEPATH_OK},
    {"a/b", "a/b", FILEPATH_OK},
    {"./a", "a", FILEPATH_OK},
    {"a//b", "a/b", FILEPATH_OK},
    {"a/./b", "a/b", FILEPATH_OK},
    {"folder/../hm", "hm", FILEPATH_OK},
    {"a/b/../../c", "c", FILEPATH_OK},
    {"x/../long/er/than/that", "long/er/than/that", FILEPATH_OK},
    {".//longer", "longer", FILEPATH_OK},
    {"a/b/../c", "a/c", FILEPATH_OK},
    {"ab/cd/../ef/../gh", "ab/gh", FILEPATH_OK},
    {".a", ".a", FILEPATH_OK},
    {"...", "...", FILEPATH_OK},
    {"..a/b..", "..a/b..", FILEPATH_OK},
    {"a\\b", "a\\b", FILEPATH_OK},
    {"..\\..\\a", "..\\..\\a", FILEPATH_OK},
    {"C:\\a", "C:\\a", FILEPATH_OK},
    {"~/a", "~/a", FILEPATH_OK},
    {"a b\n\x01\xff", "a b\n\x01\xff", FILEPATH_OK},
    {"", NULL, FILEPATH_EMPTY},
    {".", NULL, FILEPATH_EMPTY},
    {"./", NULL, FILEPATH_EMPTY},
    {"./.", NULL, FILEPATH_EMPTY},
    {"a/..", NULL, FILEPATH_EMPTY},
    {"a/../", NULL, FILEPATH_EMPTY},
    {"a/b/../..", NULL, FILEPATH_EMPTY},
    {"/", NULL, FILEPATH_ESCAPES},
    {"/a", NULL, FILEPATH_ESCAPES},
    {"//a", NULL, FILEPATH_ESCAPES},
    {"/..", NULL, FILEPATH_ESCAPES},
    {"..", NULL, FILEPATH_ESCAPES},
    {"../", NULL, FILEPATH_ESCAPES},
    {"../a", NULL, FILEPATH_ESCAPES},
    {"./../a", NULL, FILEPATH_ESCAPES},
    {".//../a", NULL, FILEPATH_ESCAPES},
    {"a/../..", NULL, FILEPATH_ESCAPES},
    {"a/../../a/b", NULL, FILEPATH_ESCAPES}, /* out and in again */
    {"a/b/../../../box/c", NULL, FILEPATH_ESCAPES},
    {"a/", NULL, FILEPATH_DIR},
    {"a//", NULL, FILEPATH_DIR},
    {"a/.", NULL, FILEPATH_DIR},
    {"a/./", NULL, FILEPATH_DIR},
    {"a/b/..", NULL, FILEPATH_DIR},
    {"a/b/../", NULL, FILEPATH_DIR},
};

/* Also in place: `ret` may be the path itself. */
static void every_row(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t len = strlen(rows[i].path), n = 99, m = 99;
		char *apart = malloc(len + !len), *place = malloc(len + !len);

		memcpy(place, rows[i].path, len);
		if (filepath_normalise(rows[i].path, len, apart, &n) != rows[i].problem)
			fail_msg("%s", rows[i].path);
		assert_int_equal(filepath_normalise(place, len, place, &m), rows[i].problem);
		assert_int_equal(n, m);
		if (rows[i].normal) {
			assert_int_equal(n, strlen(rows[i].normal));
			assert_memory_equal(apart, rows[i].normal, n);
			assert_memory_equal(place, rows[i].normal, n);
		} else {
			assert_int_equal(n, 99); /* untouched */
		}
		free(apart);
		free(place);
	}
}

static void nul(void **state)
{
	static const char paths[][3] = {{0, 'a', 'b'}, {'a', 0, 'b'}, {'a', 'b', 0}, {'/', 0, 'a'}};
	char out[3];
	size_t n;

	(void)state;
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
		assert_int_equal(filepath_normalise(paths[i], 3, out, &n), FILEPATH_NUL);
}

static enum filepath_problem ask(const char *path, size_t len)
{
	char *out = malloc(len);
	enum filepath_problem r;
	size_t n;

	r = filepath_normalise(path, len, out, &n);
	free(out);
	return r;
}

static void limits(void **state)
{
	char path[4096];
	size_t n;

	(void)state;
	for (int over = 0; over < 2; over++) {
		memset(path, 'n', sizeof path);
		n = (size_t)(LIMIT_FILE_NAME_BYTES + over);
		assert_int_equal(ask(path, n), over ? FILEPATH_NAME : FILEPATH_OK);
		path[n] = '/';
		assert_int_equal(ask(path, n + 2), over ? FILEPATH_NAME : FILEPATH_OK);

		memset(path, 'n', sizeof path);
		for (size_t i = 200; i < sizeof path; i += 200)
			path[i] = '/';
		assert_int_equal(ask(path, (size_t)(LIMIT_FILE_PATH_BYTES + over)), over ? FILEPATH_LONG : FILEPATH_OK);

		n = 0;
		for (int i = 0; i < LIMIT_FILES_IN_DEPTH - 1 + over; i++, n += 2)
			memcpy(path + n, "d/", 2);
		path[n++] = 'f';
		assert_int_equal(ask(path, n), over ? FILEPATH_DEEP : FILEPATH_OK);
		/* What is taken back does not count. */
		memcpy(path + n, "/../../x", 8);
		assert_int_equal(ask(path, n + 8), FILEPATH_OK);
	}
	/* It is the path as it came that must not be too long, and one that escapes does so at any length. */
	memset(path, '/', sizeof path);
	path[0] = path[sizeof path - 1] = 'a';
	assert_int_equal(ask(path, sizeof path), FILEPATH_LONG);
	memcpy(path + sizeof path - 10, "/../../x/y", 10);
	assert_int_equal(ask(path, sizeof path), FILEPATH_ESCAPES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_row),
	    cmocka_unit_test(nul),
	    cmocka_unit_test(limits),
	};

	return cmocka_run_group_tests_name("filepath", tests, NULL, NULL);
}
