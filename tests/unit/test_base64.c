/* SPDX-License-Identifier: Apache-2.0 */
/* Base64: one spelling for each content, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base64.h"

/* RFC 4648, section 10. */
static void test_vectors(void **state)
{
	static const char *const rows[][2] = {{"", ""},
					      {"f", "Zg=="},
					      {"fo", "Zm8="},
					      {"foo", "Zm9v"},
					      {"foob", "Zm9vYg=="},
					      {"fooba", "Zm9vYmE="},
					      {"foobar", "Zm9vYmFy"}};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t len = strlen(rows[i][0]), text_len = strlen(rows[i][1]);
		char text[16], data[16];

		assert_int_equal(BASE64_LEN(len), text_len);
		base64_encode(text, rows[i][0], len);
		assert_memory_equal(text, rows[i][1], text_len);
		assert_int_equal(base64_decoded_len(text, text_len), len);
		base64_decode(data, text, text_len);
		assert_memory_equal(data, rows[i][0], len);
	}
}

static void refused(void **state)
{
	static const char *const rows[] = {
	    "9",
	    "QQ",
	    "QUI",
	    "QQ=",
	    "1=",
	    "=",
	    "==",
	    "===",
	    "====",
	    "Q===",
	    "QQ==x",
	    "QQ==\n",
	    "Q\nQ==",
	    " QQ==",
	    "QQ= ",
	    "QQ==QQ==",
	    "QU=I",
	    "=QQQ",
	    "-_-_",
	    "QUJ\xc3",
	    "QUJ.",
	    "QUJ@",
	    "QUJ[",
	    "QUJ`",
	    "QUJ{",
	    "QUJ:",
	    /* bits that the padding leaves unused */
	    "QR==",
	    "QS==",
	    "QY==",
	    "QUJDQh==",
	    "QUJ=",
	    "QUK=",
	    "//9=",
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (base64_decoded_len(rows[i], strlen(rows[i])) >= 0)
			fail_msg("accepted: %s", rows[i]);
	assert_true(base64_decoded_len("QU\0I", 4) < 0);
}

/* Every length, every byte, decoded where it stands; and of all texts of four characters' last two, one for each content. */
static void there_and_back(void **state)
{
	(void)state;
	for (size_t len = 0; len <= 300; len++) {
		size_t text_len = BASE64_LEN(len);
		unsigned char *data = malloc(len + !len);
		char *text = malloc(text_len + !text_len);

		for (size_t i = 0; i < len; i++)
			data[i] = (unsigned char)(i * 37 + len);
		base64_encode(text, data, len);
		assert_int_equal(base64_decoded_len(text, text_len), len);
		base64_decode(text, text, text_len);
		assert_memory_equal(text, data, len);
		free(data);
		free(text);
	}
}

static void one_spelling_each(void **state)
{
	unsigned good[3] = {0};

	(void)state;
	for (int c = 0; c < 256; c++)
		for (int d = 0; d < 256; d++) {
			char text[4] = {'Q', 'U', (char)c, (char)d}, again[4];
			unsigned char data[3];
			ssize_t n = base64_decoded_len(text, 4);

			if (n < 0)
				continue;
			base64_decode(data, text, 4);
			base64_encode(again, data, (size_t)n);
			assert_memory_equal(again, text, 4);
			good[n - 1]++;
		}
	assert_int_equal(good[0], 0); /* "QU==" has bits set that mean nothing */
	assert_int_equal(good[1], 16);
	assert_int_equal(good[2], 64 * 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_vectors),
	    cmocka_unit_test(refused),
	    cmocka_unit_test(there_and_back),
	    cmocka_unit_test(one_spelling_each),
	};

	return cmocka_run_group_tests_name("base64", tests, NULL, NULL);
}
