/* SPDX-License-Identifier: Apache-2.0 */
/* Authorization headers and digests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/token.h"

static void headers(void **state)
{
	static const struct {
		const char *value, *token; /* NULL: refused */
	} rows[] = {
	    {"Bearer abc", "abc"},
	    {"bearer abc", "abc"},
	    {"BEARER   a.b-c_d~e+f/g==", "a.b-c_d~e+f/g=="},
	    {"Bearer abc  ", "abc"},
	    {"", NULL},
	    {"Bearer", NULL},
	    {"Bearer ", NULL},
	    {"Bearerabc", NULL},
	    {"Bearer a b", NULL},
	    {"Basic abc", NULL},
	    {"Bearer a,b", NULL},
	    {"Bearer \"a\"", NULL},
	    {"Bearer ==", NULL},
	    {"Bearer a=b", NULL},
	    {"Bearer \xc3\xa9", NULL},
	    {"Bearer\tabc", NULL},
	    {" Bearer abc", NULL},
	    {"Bearer abc, Bearer def", NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const char *text = NULL;
		size_t len = 0;
		bool ok = token_from_header(rows[i].value, &text, &len);

		if (ok != (rows[i].token != NULL))
			fail_msg("\"%s\"", rows[i].value);
		if (ok) {
			assert_int_equal(len, strlen(rows[i].token));
			assert_memory_equal(text, rows[i].token, len);
		}
	}
}

static void length_at_its_limit(void **state)
{
	char value[16 + TOKEN_TEXT_MAX] = "Bearer ";
	const char *text;
	size_t len;

	(void)state;
	memset(value + 7, 'x', TOKEN_TEXT_MAX);
	assert_true(token_from_header(value, &text, &len));
	value[7 + TOKEN_TEXT_MAX] = 'x';
	assert_false(token_from_header(value, &text, &len));
}

static void digests(void **state)
{
	/* FIPS 180-2, appendix B.1 */
	static const uint8_t abc[TOKEN_DIGEST_LEN] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
						      0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
						      0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
	uint8_t digest[TOKEN_DIGEST_LEN], other[TOKEN_DIGEST_LEN];

	(void)state;
	token_digest("abc", 3, digest);
	assert_memory_equal(digest, abc, sizeof abc);
	assert_true(token_digest_equal(digest, abc));
	for (size_t i = 0; i < sizeof abc; i++) {
		memcpy(other, abc, sizeof abc);
		other[i] ^= 1;
		assert_false(token_digest_equal(digest, other));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(headers),
	    cmocka_unit_test(length_at_its_limit),
	    cmocka_unit_test(digests),
	};

	return cmocka_run_group_tests_name("http_token", tests, NULL, NULL);
}
