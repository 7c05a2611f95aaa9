/* SPDX-License-Identifier: Apache-2.0 */
/* Replacement of invalid bytes in output: rows as Python's bytes.decode("utf-8", "replace") gives them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/utf8.h"

#define R "\xef\xbf\xbd"
#define BYTES(text) text, sizeof text - 1

static const struct {
	const char *in;
	size_t in_len;
	const char *out;
	size_t out_len;
} rows[] = {
    {BYTES(""), BYTES("")},
    {BYTES("plain"), BYTES("plain")},
    {BYTES("a\0b"), BYTES("a\0b")},
    {BYTES("\x1b[0m\r\xef\xbb\xbf\xe2\x80\xa8"), BYTES("\x1b[0m\r\xef\xbb\xbf\xe2\x80\xa8")},
    {BYTES("\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80"), BYTES("\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80")},
    {BYTES("\xf4\x8f\xbf\xbf"), BYTES("\xf4\x8f\xbf\xbf")},
    {BYTES("\x80"), BYTES(R)},
    {BYTES("\xff\xfe"), BYTES(R R)},
    {BYTES("\xc0\x80"), BYTES(R R)},
    {BYTES("\xc1\xbf"), BYTES(R R)},
    {BYTES("\xc3"), BYTES(R)},
    {BYTES("\xc3x"), BYTES(R "x")},
    {BYTES("\xe2\x82"), BYTES(R)},
    {BYTES("\xe2\x82x"), BYTES(R "x")},
    {BYTES("\xe0\x80\x80"), BYTES(R R R)},
    {BYTES("\xe0\x9f\xbf"), BYTES(R R R)},
    {BYTES("\xed\xa0\x80"), BYTES(R R R)},
    {BYTES("\xed\x9f\xbf"), BYTES("\xed\x9f\xbf")},
    {BYTES("\xf0\x9f\x98"), BYTES(R)},
    {BYTES("\xf0\x9f\x98\x41"), BYTES(R "A")},
    {BYTES("\xf0\x80\x80\x80"), BYTES(R R R R)},
    {BYTES("\xf4\x90\x80\x80"), BYTES(R R R R)},
    {BYTES("\xf5\x80"), BYTES(R R)},
    {BYTES("\xe2\xe2\x82\xac"), BYTES(R "\xe2\x82\xac")},
    /* Same length, another text. */
    {BYTES("\xe2\x82\xe2\x82\xe2\x82"), BYTES(R R R)},
};

static void replacement(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t len = 99;
		char *out = utf8_replace(rows[i].in, rows[i].in_len, &len);

		assert_non_null(out);
		assert_int_equal(len, rows[i].out_len);
		assert_memory_equal(out, rows[i].out, len + 1);
		free(out);
	}
}

/* Whatever the bytes, what comes out is valid, and replacing it again changes nothing. */
static void always_valid(void **state)
{
	uint32_t seed = 1;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		char in[16], *out, *again;
		size_t n = 0, len, len2;

		seed = seed * 1664525 + 1013904223;
		n = (seed >> 8) % sizeof in;
		for (size_t i = 0; i < n; i++) {
			seed = seed * 1664525 + 1013904223;
			in[i] = (char)(seed >> 24 | (seed & 0x100 ? 0x80 : 0));
		}
		out = utf8_replace(in, n, &len);
		for (size_t at = 0; at < len;) {
			bool valid;

			at += utf8_next(out + at, len - at, &valid);
			assert_true(valid);
		}
		again = utf8_replace(out, len, &len2);
		assert_int_equal(len, len2);
		assert_memory_equal(out, again, len);
		free(out);
		free(again);
	}
}

static void encoding(void **state)
{
	static const uint32_t edges[] = {0, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x10ffff};
	static const size_t lengths[] = {1, 1, 2, 2, 3, 3, 3, 3, 4, 4};

	(void)state;
	for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
		char text[4];
		bool valid;

		assert_int_equal(utf8_encode(edges[i], text), lengths[i]);
		assert_int_equal(utf8_next(text, lengths[i], &valid), lengths[i]);
		assert_true(valid);
	}
}

static void cutting(void **state)
{
	const char text[] = "a\xf0\x9f\x98\x80z";

	(void)state;
	assert_int_equal(utf8_cut(text, 6, 9), 6);
	assert_int_equal(utf8_cut(text, 6, 5), 5);
	for (size_t max = 1; max < 5; max++)
		assert_int_equal(utf8_cut(text, 6, max), 1);
	assert_int_equal(utf8_cut(text, 6, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(replacement),
	    cmocka_unit_test(always_valid),
	    cmocka_unit_test(encoding),
	    cmocka_unit_test(cutting),
	};

	return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}
