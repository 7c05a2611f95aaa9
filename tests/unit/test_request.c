/* SPDX-License-Identifier: Apache-2.0 */
/* The body of POST /v1/execute: every way to be wrong, and the exact words it gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/request.h"
#include "core/jtext.h"
#include "core/limits.h"

#define TIMEOUT "timeout_s must be between 1 and 60"
#define WITH(member) "{\"code\": \"x\", " member "}"

static const struct bad {
	const char *body;
	enum error_case kase;
	const char *message; /* exact, or with a leading '~' a part */
} bad[] = {
    /* not a JSON object */
    {"", ERROR_INVALID_REQUEST, "at \"\" (the whole body): expected a JSON object, found nothing"},
    {"  ", ERROR_INVALID_REQUEST, "at \"\" (the whole body): expected a JSON value, found the end of the body"},
    {"[]", ERROR_INVALID_REQUEST, "at \"\" (the whole body): expected a JSON object, found an array"},
    {"\"code\"", ERROR_INVALID_REQUEST, "at \"\" (the whole body): expected a JSON object, found a string"},
    {"null", ERROR_INVALID_REQUEST, "at \"\" (the whole body): expected a JSON object, found null"},
    {"1e9", ERROR_INVALID_REQUEST, "at \"\" (the whole body): expected a JSON object, found a number"},
    {"{}", ERROR_INVALID_REQUEST, "at \"/code\": expected a string, found no such member"},
    /* not JSON */
    {"{", ERROR_INVALID_REQUEST, "~expected a member's name, found the end of the body"},
    {"{\"code\"", ERROR_INVALID_REQUEST, "at \"/code\": expected a colon after the member's name, found the end of the body"},
    {"{\"code\":", ERROR_INVALID_REQUEST, "at \"/code\": expected a JSON value, found the end of the body"},
    {"{\"code\": \"x", ERROR_INVALID_REQUEST,
     "at \"/code\": expected the closing quote of a string, found the end of the body"},
    {"{\"code\": \"x\"", ERROR_INVALID_REQUEST,
     "at \"/code\": expected a comma or a closing bracket, found the end of the body"},
    {"{\"code\": \"x\",}", ERROR_INVALID_REQUEST, "at \"/code\": expected a member's name in double quotes at byte 13"},
    {"{\"code\": \"x\"} {}", ERROR_INVALID_REQUEST, "at \"\" (the whole body): expected nothing after the value at byte 14"},
    {"{code: 1}", ERROR_INVALID_REQUEST, "~a member's name in double quotes"},
    {"{'code': 1}", ERROR_INVALID_REQUEST, "~a member's name in double quotes"},
    {"{\"code\": \"x\" \"y\"}", ERROR_INVALID_REQUEST, "at \"/code\": expected a comma or } after a member at byte 13"},
    {"{\"code\": 'x'}", ERROR_INVALID_REQUEST, "at \"/code\": expected a JSON value at byte 9"},
    {"{\"code\": \"a\nb\"}", ERROR_INVALID_REQUEST, "~control characters to be escaped"},
    {"{\"code\": \"\\x41\"}", ERROR_INVALID_REQUEST, "at \"/code\": expected an escape that JSON has at byte 10"},
    {"{\"code\": \"\\u12g4\"}", ERROR_INVALID_REQUEST, "~four hexadecimal digits"},
    {"{\"code\": \"\\", ERROR_INVALID_REQUEST, "~the closing quote"},
    {"{\"code\": \"\\u00", ERROR_INVALID_REQUEST, "~four hexadecimal digits"},
    {"{\"code\": tru}", ERROR_INVALID_REQUEST, "~expected a JSON value"},
    {"{\"code\": NaN}", ERROR_INVALID_REQUEST, "~expected a JSON value"},
    {"{\"code\": \"x\", \"timeout_s\": 01}", ERROR_INVALID_REQUEST,
     "at \"/timeout_s\": expected a number without leading zeros at byte 28"},
    {"{\"code\": \"x\", \"timeout_s\": -}", ERROR_INVALID_REQUEST, "~expected a digit"},
    {"{\"code\": \"x\", \"timeout_s\": 1.}", ERROR_INVALID_REQUEST, "~a digit after the decimal point"},
    {"{\"code\": \"x\", \"timeout_s\": 1e}", ERROR_INVALID_REQUEST, "~a digit in the exponent"},
    {"\xef\xbb\xbf{\"code\": \"x\"}", ERROR_INVALID_REQUEST, "at \"\" (the whole body): expected a JSON value at byte 0"},
    {"{\"code\": \"\xff\"}", ERROR_INVALID_REQUEST, "at \"/code\": expected valid UTF-8 at byte 10"},
    {"{\"code\": \"\xed\xa0\x80\"}", ERROR_INVALID_REQUEST, "~expected valid UTF-8"},
    {"{\"code\": \"\xc0\x80\"}", ERROR_INVALID_REQUEST, "~expected valid UTF-8"},
    /* surrogates and NUL */
    {"{\"code\": \"\\ud800\"}", ERROR_INVALID_REQUEST, "at \"/code\": expected no lone surrogate in a string at byte 10"},
    {"{\"code\": \"\\udc00\"}", ERROR_INVALID_REQUEST, "~no lone surrogate"},
    {"{\"code\": \"\\ud800\\u0041\"}", ERROR_INVALID_REQUEST, "~no lone surrogate"},
    {"{\"\\ud800\": 1}", ERROR_INVALID_REQUEST, "~no lone surrogate"},
    {"{\"co\\u0000de\": \"x\"}", ERROR_INVALID_REQUEST, "at \"/co\": expected a name without NUL at byte 4"},
    {"{\"env\": {\"A\\u0000\": 1}}", ERROR_INVALID_REQUEST, "at \"/env/A\": expected a name without NUL at byte 11"},
    {"{\"files\": [1, {\"a/b~\": [}]}", ERROR_INVALID_REQUEST, "at \"/files/1/a~1b~0/0\": expected a JSON value at byte 24"},
    /* names */
    {WITH("\"cod\": 1"), ERROR_INVALID_REQUEST,
     "at \"/cod\": expected one of code, language, timeout_s, found an unknown name"},
    {WITH("\"Code\": 1"), ERROR_INVALID_REQUEST,
     "at \"/Code\": expected one of code, language, timeout_s, found an unknown name"},
    {WITH("\"\": 1"), ERROR_INVALID_REQUEST, "at \"/\": expected one of code, language, timeout_s, found an unknown name"},
    {WITH("\"code\": \"x\""), ERROR_INVALID_REQUEST, "at \"/code\": expected each name once, found it again"},
    {WITH("\"c\\u006fde\": \"x\""), ERROR_INVALID_REQUEST, "at \"/code\": expected each name once, found it again"},
    {WITH("\"timeout_s\": 1, \"timeout_s\": 1"), ERROR_INVALID_REQUEST, "~at \"/timeout_s\": expected each name once"},
    {WITH("\"files\": []"), ERROR_UNSUPPORTED_FIELD, "at \"/files\": this version does not support `files`"},
    {WITH("\"stdin\": \"\""), ERROR_UNSUPPORTED_FIELD, "at \"/stdin\": this version does not support `stdin`"},
    {WITH("\"env\": {}"), ERROR_UNSUPPORTED_FIELD, "at \"/env\": this version does not support `env`"},
    {WITH("\"session_id\": null"), ERROR_UNSUPPORTED_FIELD, "at \"/session_id\": this version does not support `session_id`"},
    /* types */
    {"{\"code\": 1}", ERROR_INVALID_REQUEST, "at \"/code\": expected a string, found a number"},
    {"{\"code\": null}", ERROR_INVALID_REQUEST, "at \"/code\": expected a string, found null"},
    {"{\"code\": [\"x\"]}", ERROR_INVALID_REQUEST, "at \"/code\": expected a string, found an array"},
    {"{\"code\": {}}", ERROR_INVALID_REQUEST, "at \"/code\": expected a string, found an object"},
    {WITH("\"language\": null"), ERROR_INVALID_REQUEST, "at \"/language\": expected the string \"python\", found null"},
    /* language */
    {WITH("\"language\": \"ruby\""), ERROR_UNSUPPORTED_LANGUAGE, "unsupported language \"ruby\""},
    {WITH("\"language\": \"Python\""), ERROR_UNSUPPORTED_LANGUAGE, "unsupported language \"Python\""},
    {WITH("\"language\": \"\""), ERROR_UNSUPPORTED_LANGUAGE, "unsupported language \"\""},
    {WITH("\"language\": \"python\\u0000\""), ERROR_UNSUPPORTED_LANGUAGE, "unsupported language \"python\\u0000\""},
    {WITH("\"language\": \"\\u00e9\\n\""), ERROR_UNSUPPORTED_LANGUAGE, "unsupported language \"\xc3\xa9\\u000a\""},
    /* timeout_s: refused, never clamped or coerced */
    {WITH("\"timeout_s\": 0"), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": 61"), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": -1"), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": -0"), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": 1.0"), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": 0.0001"), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": 1e1"), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": 1e3"), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": 1e999"), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": 2147483648"), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": 4294967297"), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": 18446744073709551617"), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": \"5\""), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": true"), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": false"), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": null"), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": [5]"), ERROR_TIMEOUT_RANGE, TIMEOUT},
    {WITH("\"timeout_s\": {}"), ERROR_TIMEOUT_RANGE, TIMEOUT},
};

static void refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct execute_request request = {.code_len = 77};
		struct api_error e = {0};

		if (request_parse_execute(bad[i].body, strlen(bad[i].body), &request, &e) == 0)
			fail_msg("accepted: %s", bad[i].body);
		assert_int_equal(request.code_len, 77); /* untouched */
		if (bad[i].message[0] == '~' ? !strstr(e.message, bad[i].message + 1) : strcmp(e.message, bad[i].message) != 0)
			fail_msg("%s\n  got  %s\n  want %s", bad[i].body, e.message, bad[i].message);
		assert_int_equal(e.kase, bad[i].kase);
		assert_false(e.ran);
	}
}

#define BYTES(text) text, sizeof text - 1
static const struct {
	const char *body, *code;
	size_t code_len;
	uint32_t timeout_s;
} good[] = {
    {"{\"code\": \"\"}", BYTES(""), 20},
    {" \t\r\n{ \"code\" : \"print(6*7)\" } \n", BYTES("print(6*7)"), 20},
    {"{\"timeout_s\": 1, \"language\": \"python\", \"code\": \"x\"}", BYTES("x"), 1},
    {"{\"code\":\"x\",\"timeout_s\":60}", BYTES("x"), 60},
    {"{\"c\\u006Fde\": \"x\", \"language\": \"\\u0070ython\"}", BYTES("x"), 20},
    /* byte for byte: byte order mark, CRLF, tab, form feed, NUL, no final newline */
    {"{\"code\": \"\\ufeffa\\r\\n\\tb\\f\\u0000c\"}",
     BYTES("\xef\xbb\xbf"
	   "a\r\n\tb\f\0c"),
     20},
    {"{\"code\": \"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", BYTES("\"\\/\b\f\n\r\t"), 20},
    {"{\"code\": \"\\ud83d\\ude00\\u20ac\xc3\xa9\"}", BYTES("\xf0\x9f\x98\x80\xe2\x82\xac\xc3\xa9"), 20},
    {"{\"code\": \"}]{[\\\"\"}", BYTES("}]{[\""), 20},
};

static void accepted(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		struct execute_request request = {0};
		struct api_error e = {0};

		if (request_parse_execute(good[i].body, strlen(good[i].body), &request, &e) < 0)
			fail_msg("%s: %s", good[i].body, e.message);
		assert_int_equal(request.code_len, good[i].code_len);
		assert_memory_equal(request.code, good[i].code, good[i].code_len);
		assert_int_equal(request.timeout_s, good[i].timeout_s);
		free(request.code);
	}
}

static void code_at_its_limit(void **state)
{
	static const char head[] = "{\"code\": \"", tail[] = "\"}";

	(void)state;
	for (size_t over = 0; over < 2; over++) {
		size_t n = LIMIT_CODE_BYTES + over, len = sizeof head - 1 + n + sizeof tail - 1;
		char *body = malloc(len + 1);
		struct execute_request request = {0};
		struct api_error e = {0};
		int r;

		memcpy(body, head, sizeof head - 1);
		memset(body + sizeof head - 1, '#', n);
		memcpy(body + sizeof head - 1 + n, tail, sizeof tail);
		r = request_parse_execute(body, len, &request, &e);
		assert_int_equal(r, over ? -1 : 0);
		if (over) {
			assert_int_equal(e.kase, ERROR_TOO_LARGE);
			assert_string_equal(e.message, "code is 1048577 bytes, over the limit of 1048576 bytes");
		} else {
			assert_int_equal(request.code_len, LIMIT_CODE_BYTES);
			free(request.code);
		}
		free(body);
	}
}

static void nesting_at_its_limit(void **state)
{
	(void)state;
	for (size_t depth = LIMIT_JSON_DEPTH; depth <= LIMIT_JSON_DEPTH + 1; depth++) {
		char text[2 * LIMIT_JSON_DEPTH + 8];
		struct err e = {0};
		int r;

		memset(text, '[', depth);
		memset(text + depth, ']', depth);
		r = jtext_check(text, 2 * depth, LIMIT_JSON_DEPTH, &e);
		assert_int_equal(r, depth > LIMIT_JSON_DEPTH ? -7 /* E2BIG */ : 0);
		if (r < 0)
			assert_string_equal(e.msg, "expected at most 64 levels of nesting at byte 64");
	}
}

/* A million brackets, a number of a million digits: refused or passed over in one pass, no stack, no tree. */
static void large_nonsense(void **state)
{
	size_t n = 1000000;
	char *text = malloc(n + 64);
	struct execute_request request;
	struct api_error e = {0};

	(void)state;
	memset(text, '[', n);
	assert_int_equal(request_parse_execute(text, n, &request, &e), -1);
	assert_non_null(strstr(e.message, "at most 64 levels"));
	memcpy(text, "{\"timeout_s\": ", 14);
	memset(text + 14, '9', n - 15);
	text[n - 1] = '}';
	assert_int_equal(request_parse_execute(text, n, &request, &e), -1);
	assert_string_equal(e.message, TIMEOUT);
	free(text);
}

/* A stranger's name or language of any length is cut, between characters, and shown to be cut. */
static void long_names_are_cut(void **state)
{
	char body[4096];
	struct execute_request request;
	struct api_error e = {0};
	size_t n;

	(void)state;
	n = (size_t)sprintf(body, "{\"");
	for (int i = 0; i < 600; i++)
		n += (size_t)sprintf(body + n, "\xc3\xa9");
	n += (size_t)sprintf(body + n, "\": 1}");
	assert_int_equal(request_parse_execute(body, n, &request, &e), -1);
	assert_non_null(strstr(e.message, "\xc3\xa9\xe2\x80\xa6\": expected one of"));
	assert_in_range(strlen(e.message), 1, 200);
	n = (size_t)sprintf(body, "{\"language\": \"");
	for (int i = 0; i < 600; i++)
		n += (size_t)sprintf(body + n, "\xf0\x9f\x98\x80");
	n += (size_t)sprintf(body + n, "\", \"code\": \"\"}");
	assert_int_equal(request_parse_execute(body, n, &request, &e), -1);
	assert_non_null(strstr(e.message, "\xf0\x9f\x98\x80\xe2\x80\xa6\""));
}

/* Every body cut short anywhere is refused, and nothing is read behind its end (the sanitizers watch). */
static void every_prefix(void **state)
{
	static const char whole[] =
	    "{\"code\": \"\\ud83d\\ude00 \\n\xe2\x82\xac\", \"language\": \"python\", \"timeout_s\": 12}";

	(void)state;
	for (size_t n = 0; n < sizeof whole - 1; n++) {
		char *part = malloc(n + !n);
		struct execute_request request;
		struct api_error e;

		memcpy(part, whole, n);
		assert_int_equal(request_parse_execute(part, n, &request, &e), -1);
		free(part);
	}
}

static void walking(void **state)
{
	static const char text[] = " {\"a\" : [1, \"]\", {\"x\":[]}] , \"b\":{} ,\"c\": -1.5e3}";
	struct jtext root, name, value, item;
	const char *at = NULL, *in = NULL;
	struct err e;
	int items = 0;

	(void)state;
	assert_int_equal(jtext_check(text, sizeof text - 1, 64, &e), 0);
	root = jtext_root(text, sizeof text - 1);
	assert_int_equal(root.kind, JTEXT_OBJECT);
	assert_true(jtext_next(&root, &at, &name, &value));
	assert_true(jtext_is(&name, "a"));
	while (jtext_next(&value, &in, NULL, &item))
		items++;
	assert_int_equal(items, 3);
	assert_true(jtext_next(&root, &at, &name, &value));
	in = NULL;
	assert_false(jtext_next(&value, &in, &name, &item));
	assert_true(jtext_next(&root, &at, &name, &value));
	assert_int_equal(value.kind, JTEXT_NUMBER);
	assert_int_equal(value.len, 6);
	assert_false(jtext_next(&root, &at, &name, &value));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(refused),		 cmocka_unit_test(accepted),
	    cmocka_unit_test(code_at_its_limit), cmocka_unit_test(nesting_at_its_limit),
	    cmocka_unit_test(large_nonsense),	 cmocka_unit_test(long_names_are_cut),
	    cmocka_unit_test(every_prefix),	 cmocka_unit_test(walking),
	};

	return cmocka_run_group_tests_name("request", tests, NULL, NULL);
}
