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

#define NAMES "code, language, timeout_s, files, stdin, env, session_id"
#define TIMEOUT "timeout_s must be between 1 and 60"
#define ESCAPES "file path escapes working directory"
#define CELL_TIMEOUT "timeout_s must be between 1 and 120"
#define WITH(member) "{\"code\": \"x\", " member "}"
#define FILES(list) WITH("\"files\": [" list "]")
#define ONE_FILE(path) FILES("{\"path\": \"" path "\", \"content\": \"\"}")
#define BASE64(text) FILES("{\"path\": \"f\", \"content_base64\": \"" text "\"}")
#define NOT_BASE64                                                                                                             \
	"at \"/files/0/content_base64\": expected base64 with padding, without line breaks and of the standard alphabet"
#define ENV(members) WITH("\"env\": {" members "}")

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
    {WITH("\"cod\": 1"), ERROR_INVALID_REQUEST, "at \"/cod\": expected one of " NAMES ", found an unknown name"},
    {WITH("\"Code\": 1"), ERROR_INVALID_REQUEST, "at \"/Code\": expected one of " NAMES ", found an unknown name"},
    {WITH("\"\": 1"), ERROR_INVALID_REQUEST, "at \"/\": expected one of " NAMES ", found an unknown name"},
    {WITH("\"code\": \"x\""), ERROR_INVALID_REQUEST, "at \"/code\": expected each name once, found it again"},
    {WITH("\"c\\u006fde\": \"x\""), ERROR_INVALID_REQUEST, "at \"/code\": expected each name once, found it again"},
    {WITH("\"timeout_s\": 1, \"timeout_s\": 1"), ERROR_INVALID_REQUEST, "~at \"/timeout_s\": expected each name once"},
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
    {WITH("\"timeout_s\": 121, \"session_id\": \"sandbox-a\""), ERROR_TIMEOUT_RANGE, CELL_TIMEOUT},
    {WITH("\"session_id\": \"sandbox-a\", \"timeout_s\": 121"), ERROR_TIMEOUT_RANGE, CELL_TIMEOUT},
    {WITH("\"session_id\": \"sandbox-a\", \"timeout_s\": 0"), ERROR_TIMEOUT_RANGE, CELL_TIMEOUT},
    {WITH("\"session_id\": \"sandbox-a\", \"timeout_s\": null"), ERROR_TIMEOUT_RANGE, CELL_TIMEOUT},
    /* session_id: what cannot be one is not found, and that is told last */
    {WITH("\"session_id\": null"), ERROR_INVALID_REQUEST, "at \"/session_id\": expected a string, found null"},
    {WITH("\"session_id\": 1"), ERROR_INVALID_REQUEST, "at \"/session_id\": expected a string, found a number"},
    {WITH("\"session_id\": \"\""), ERROR_NOT_FOUND, "not found"},
    {WITH("\"session_id\": \"Sandbox\""), ERROR_NOT_FOUND, "not found"},
    {WITH("\"session_id\": \"a/b\""), ERROR_NOT_FOUND, "not found"},
    {WITH("\"session_id\": \"a\\u0000\""), ERROR_NOT_FOUND, "not found"},
    {WITH("\"session_id\": \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\""), ERROR_NOT_FOUND, "not found"},
    {"{\"session_id\": \"\", \"code\": 1}", ERROR_INVALID_REQUEST, "at \"/code\": expected a string, found a number"},
    {WITH("\"session_id\": \"\", \"files\": [1]"), ERROR_INVALID_REQUEST, "~at \"/files/0\""},
    /* stdin */
    {WITH("\"stdin\": null"), ERROR_INVALID_REQUEST, "at \"/stdin\": expected a string, found null"},
    {WITH("\"stdin\": [\"a\"]"), ERROR_INVALID_REQUEST, "at \"/stdin\": expected a string, found an array"},
    {WITH("\"stdin\": \"\", \"stdin\": \"\""), ERROR_INVALID_REQUEST, "at \"/stdin\": expected each name once, found it again"},
    /* files: form */
    {WITH("\"files\": null"), ERROR_INVALID_REQUEST, "at \"/files\": expected an array, found null"},
    {WITH("\"files\": {\"a.txt\": \"hello\"}"), ERROR_INVALID_REQUEST, "at \"/files\": expected an array, found an object"},
    {FILES("\"a.txt\""), ERROR_INVALID_REQUEST, "at \"/files/0\": expected an object, found a string"},
    {FILES("{\"path\": \"a\", \"content\": \"\"}, null"), ERROR_INVALID_REQUEST,
     "at \"/files/1\": expected an object, found null"},
    {FILES("{}"), ERROR_INVALID_REQUEST, "at \"/files/0/path\": expected a string, found no such member"},
    {FILES("{\"content\": \"a\"}"), ERROR_INVALID_REQUEST, "at \"/files/0/path\": expected a string, found no such member"},
    {FILES("{\"path\": 7, \"content\": \"a\"}"), ERROR_INVALID_REQUEST,
     "at \"/files/0/path\": expected a string, found a number"},
    {FILES("{\"path\": \"a\", \"content\": null}"), ERROR_INVALID_REQUEST,
     "at \"/files/0/content\": expected a string, found null"},
    {FILES("{\"path\": \"a\", \"content_base64\": 1}"), ERROR_INVALID_REQUEST,
     "at \"/files/0/content_base64\": expected a string, found a number"},
    {FILES("{\"path\": \"a\"}"), ERROR_INVALID_REQUEST,
     "at \"/files/0\": expected exactly one of content, content_base64, found none"},
    {FILES("{\"path\": \"a\", \"content\": \"\", \"content_base64\": \"\"}"), ERROR_INVALID_REQUEST,
     "at \"/files/0\": expected exactly one of content, content_base64, found more"},
    {FILES("{\"path\": \"a\", \"content\": \"\", \"mode\": 493}"), ERROR_INVALID_REQUEST,
     "at \"/files/0/mode\": expected one of path, content, content_base64, found an unknown name"},
    {FILES("{\"path\": \"a\", \"content\": \"\", \"p\\u0061th\": \"b\"}"), ERROR_INVALID_REQUEST,
     "at \"/files/0/path\": expected each name once, found it again"},
    {FILES("{\"path\": \"a\", \"content\": \"\", \"content\": \"\"}"), ERROR_INVALID_REQUEST,
     "at \"/files/0/content\": expected each name once, found it again"},
    /* files: paths */
    {ONE_FILE("/etc/x"), ERROR_PATH_ESCAPES, ESCAPES},
    {ONE_FILE("/"), ERROR_PATH_ESCAPES, ESCAPES},
    {ONE_FILE("/box/a"), ERROR_PATH_ESCAPES, ESCAPES},
    {ONE_FILE(".."), ERROR_PATH_ESCAPES, ESCAPES},
    {ONE_FILE("../x"), ERROR_PATH_ESCAPES, ESCAPES},
    {ONE_FILE("../box/x"), ERROR_PATH_ESCAPES, ESCAPES},
    {ONE_FILE("a/../../a/b"), ERROR_PATH_ESCAPES, ESCAPES},
    {ONE_FILE("\\u002e./x"), ERROR_PATH_ESCAPES, ESCAPES},
    {ONE_FILE("\\/x"), ERROR_PATH_ESCAPES, ESCAPES},
    {ONE_FILE(""), ERROR_INVALID_REQUEST,
     "at \"/files/0/path\": expected a file's path, found that of the working directory itself"},
    {ONE_FILE("."), ERROR_INVALID_REQUEST, "~at \"/files/0/path\": expected a file's path"},
    {ONE_FILE("a/.."), ERROR_INVALID_REQUEST, "~at \"/files/0/path\": expected a file's path"},
    {ONE_FILE("a/"), ERROR_INVALID_REQUEST, "at \"/files/0/path\": expected a file's path, found a directory's"},
    {ONE_FILE("a/."), ERROR_INVALID_REQUEST, "~found a directory's"},
    {ONE_FILE("a/b/.."), ERROR_INVALID_REQUEST, "~found a directory's"},
    {ONE_FILE("a\\u0000b"), ERROR_INVALID_REQUEST, "at \"/files/0/path\": expected a path without NUL"},
    {ONE_FILE("main.py"), ERROR_INVALID_REQUEST,
     "at \"/files/0/path\": expected another name than main.py, which is the script's"},
    {ONE_FILE("./x/..//main.py"), ERROR_INVALID_REQUEST, "~at \"/files/0/path\": expected another name than main.py"},
    {ONE_FILE("main.py/x"), ERROR_INVALID_REQUEST, "~at \"/files/0/path\": expected another name than main.py"},
    {WITH("\"session_id\": \"s\", \"files\": [{\"path\": \"main.py\", \"content\": \"\"}]"), ERROR_INVALID_REQUEST,
     "~at \"/files/0/path\": expected another name than main.py"},
    {FILES("{\"path\": \"a\", \"content\": \"\"}, {\"path\": \"b\", \"content\": \"\"}, {\"path\": \"./c/../a\", \"content\": "
	   "\"\"}"),
     ERROR_INVALID_REQUEST, "at \"/files/2/path\": expected each path once, found that of \"/files/0/path\" again"},
    {FILES("{\"path\": \"a\", \"content\": \"\"}, {\"path\": \"a/b\", \"content\": \"\"}"), ERROR_INVALID_REQUEST,
     "at \"/files/1/path\": expected a directory on the way, found the file of \"/files/0/path\""},
    {FILES("{\"path\": \"a/b/c\", \"content\": \"\"}, {\"path\": \"a\", \"content\": \"\"}"), ERROR_INVALID_REQUEST,
     "at \"/files/1/path\": expected a file, found a directory on the way to \"/files/0/path\""},
    /* files: base64 */
    {BASE64("9"), ERROR_INVALID_REQUEST, NOT_BASE64},
    {BASE64("QQ"), ERROR_INVALID_REQUEST, NOT_BASE64},
    {BASE64("QQ=="
	    "\\n"),
     ERROR_INVALID_REQUEST, NOT_BASE64},
    {BASE64("_-=="), ERROR_INVALID_REQUEST, NOT_BASE64},
    {BASE64("QR=="), ERROR_INVALID_REQUEST, NOT_BASE64},
    /* env */
    {WITH("\"env\": []"), ERROR_INVALID_REQUEST, "at \"/env\": expected an object, found an array"},
    {WITH("\"env\": null"), ERROR_INVALID_REQUEST, "at \"/env\": expected an object, found null"},
    {ENV("\"A\": 1"), ERROR_INVALID_REQUEST, "at \"/env/A\": expected a string, found a number"},
    {ENV("\"A\": null"), ERROR_INVALID_REQUEST, "at \"/env/A\": expected a string, found null"},
    {ENV("\"\": \"x\""), ERROR_INVALID_REQUEST, "at \"/env/\": expected a variable's name, found an empty one"},
    {ENV("\"A=B\": \"x\""), ERROR_INVALID_REQUEST, "at \"/env/A=B\": expected a variable's name without ="},
    {ENV("\"A\\u003d\": \"x\""), ERROR_INVALID_REQUEST, "~expected a variable's name without ="},
    {ENV("\"A\\u0000\": \"x\""), ERROR_INVALID_REQUEST, "at \"/env/A\": expected a name without NUL at byte 24"},
    {ENV("\"A\\nB\": \"x\""), ERROR_INVALID_REQUEST,
     "at \"/env/A\\nB\": expected a variable's name without control characters"},
    {ENV("\"A\x7f\": \"x\""), ERROR_INVALID_REQUEST, "~expected a variable's name without control characters"},
    {ENV("\"A\\u0085\": \"x\""), ERROR_INVALID_REQUEST, "~expected a variable's name without control characters"},
    {ENV("\"A\": \"x\\u0000y\""), ERROR_INVALID_REQUEST, "at \"/env/A\": expected a value without NUL"},
    {ENV("\"A\": \"1\", \"B\": \"2\", \"\\u0041\": \"3\""), ERROR_INVALID_REQUEST,
     "at \"/env/\\u0041\": expected each name once, found it again"},
    {ENV("\"SANDBOX_URL\": \"x\""), ERROR_RESERVED_NAME, "SANDBOX_URL is reserved by the platform"},
    {ENV("\"SANDBOX_\": \"\""), ERROR_RESERVED_NAME, "SANDBOX_ is reserved by the platform"},
    {ENV("\"\\u0053ANDBOX_X\": \"\""), ERROR_RESERVED_NAME, "SANDBOX_X is reserved by the platform"},
    {ENV("\"CODE_INTERPRETER_TIMEOUT_S\": \"9\""), ERROR_RESERVED_NAME,
     "CODE_INTERPRETER_TIMEOUT_S is reserved by the platform"},
    {ENV("\"TOOL_SANDBOX\": \"false\""), ERROR_RESERVED_NAME, "TOOL_SANDBOX is reserved by the platform"},
    {WITH("\"session_id\": \"s\", \"env\": {\"TOOL_SANDBOX\": \"false\"}"), ERROR_RESERVED_NAME,
     "TOOL_SANDBOX is reserved by the platform"},
};

/* Parses a copy: the parser reads its body in place. Exactly as long as the body, so that the sanitizers see a step too far. */
static int parse(const char *body, size_t len, struct execute_request *ret, struct api_error *e)
{
	char *copy = malloc(len + !len);
	int r;

	memcpy(copy, body, len);
	r = request_parse_execute(copy, len, ret, e);
	free(copy);
	return r;
}

static void refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct execute_request request = {.timeout_s = 77};
		struct api_error e = {0};

		if (parse(bad[i].body, strlen(bad[i].body), &request, &e) == 0)
			fail_msg("accepted: %s", bad[i].body);
		assert_int_equal(request.timeout_s, 77); /* untouched */
		assert_null(request.payload.data);
		if (bad[i].message[0] == '~' ? !strstr(e.message, bad[i].message + 1) : strcmp(e.message, bad[i].message) != 0)
			fail_msg("%s\n  got  %s\n  want %s", bad[i].body, e.message, bad[i].message);
		assert_int_equal(e.kase, bad[i].kase);
		assert_false(e.ran);
	}
}

static void hints_say_what_would_mend_it(void **state)
{
	static const struct {
		const char *body, *hint;
	} rows[] = {
	    {"{'code': 1}", "let a JSON library write it"},
	    {"code=print(1)", "let a JSON library write it"},
	    {"{\"code\": \"print(\"hi\")\"}", "let a JSON library write it"},
	    {"{}", "JSON pointer"},
	    {WITH("\"cod\": 1"), "JSON pointer"},
	    {FILES("{\"path\": \"a\", \"content\": \"\"}, {\"path\": \"../b\", \"content\": \"\"}"),
	     "at \"/files/1/path\": name files"},
	    {ONE_FILE("a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a"), "a shorter path"},
	    {WITH("\"session_id\": \"no\""), NULL},
	    {WITH("\"session_id\": \"No\""), "open a new one with POST /v1/sessions"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct execute_request request = {0};
		struct api_error e;
		int r = parse(rows[i].body, strlen(rows[i].body), &request, &e);

		assert_int_equal(r, rows[i].hint ? -1 : 0);
		if (r < 0 && !strstr(error_hint(&e), rows[i].hint))
			fail_msg("%s\n  got  %s\n  want %s", rows[i].body, error_hint(&e), rows[i].hint);
		payload_clear(&request.payload);
	}
}

/* ---- what was accepted, read back from the payload ---- */

struct reading {
	struct request_header header;
	const char *code, *stdin_text, *env, *files;
};

static struct reading read_back(const struct payload *p)
{
	struct reading r;

	assert_true(p->len >= sizeof r.header);
	memcpy(&r.header, p->data, sizeof r.header);
	assert_int_equal(r.header.magic, REQUEST_MAGIC);
	r.code = p->data + sizeof r.header;
	r.stdin_text = r.code + r.header.code_len;
	r.env = r.stdin_text + r.header.stdin_len;
	r.files = r.env + r.header.env_len;
	assert_ptr_equal(r.files + r.header.files_len, p->data + p->len);
	return r;
}

/* The next file, from *at. */
static struct payload_file next_file(const char **at)
{
	struct request_file head;
	struct payload_file f;

	memcpy(&head, *at, sizeof head);
	f.path = *at + sizeof head;
	f.path_len = head.path_len;
	f.content = f.path + head.path_len;
	f.len = head.size;
	*at = f.content + f.len;
	return f;
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
    {"{\"code\":\"x\",\"timeout_s\":120,\"session_id\":\"s\"}", BYTES("x"), 120},
    {"{\"session_id\":\"s\",\"code\":\"x\",\"timeout_s\":61}", BYTES("x"), 61},
    {"{\"session_id\":\"s\",\"code\":\"x\"}", BYTES("x"), 20},
    {"{\"c\\u006Fde\": \"x\", \"language\": \"\\u0070ython\"}", BYTES("x"), 20},
    /* byte for byte: byte order mark, CRLF, tab, form feed, NUL, no final newline */
    {"{\"code\": \"\\ufeffa\\r\\n\\tb\\f\\u0000c\"}",
     BYTES("\xef\xbb\xbf"
	   "a\r\n\tb\f\0c"),
     20},
    {"{\"code\": \"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", BYTES("\"\\/\b\f\n\r\t"), 20},
    {"{\"code\": \"\\ud83d\\ude00\\u20ac\xc3\xa9\"}", BYTES("\xf0\x9f\x98\x80\xe2\x82\xac\xc3\xa9"), 20},
    {"{\"code\": \"}]{[\\\"\"}", BYTES("}]{[\""), 20},
    {"{\"code\": \"\\\\\\\\\\\\\", \"timeout_s\": 3}", BYTES("\\\\\\"), 3},
};

static void accepted(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		struct execute_request request = {0};
		struct api_error e = {0};
		struct reading r;

		if (parse(good[i].body, strlen(good[i].body), &request, &e) < 0)
			fail_msg("%s: %s", good[i].body, e.message);
		r = read_back(&request.payload);
		assert_int_equal(r.header.code_len, good[i].code_len);
		assert_memory_equal(r.code, good[i].code, good[i].code_len);
		assert_int_equal(request.timeout_s, good[i].timeout_s);
		assert_int_equal(r.header.flags, strstr(good[i].body, "session_id") ? REQUEST_SESSION : 0);
		payload_clear(&request.payload);
	}
}

/* Every member at once, with escapes in names and values: each arrives whole. */
static void everything_at_once(void **state)
{
	static const char body[] =
	    "{\"env\": {\"A\": \"1=2\", \"\\u00e9\\\"\": \"\\ud83d\\ude00\", \"LD_PRELOAD\": \"\", \"a b\": \"x\\ny\", "
	    "\"TOOL_SANDBOX2\": \"\", \"SANDBOX\": \"\", \"sandbox_url\": \"\", \"sandbox\": \"\"},"
	    "\"files\": [{\"path\": \"d\\/./e/../f\\u002etxt\", \"content\": \"h\\u00e9\\u0000\\n\"},"
	    "{\"content_base64\": \"AP8\\/\\u002b\\u0041==\", \"path\": \"..x\\\\/y\"},"
	    "{\"path\": \"main.py2\", \"content\": \"\"}, {\"content_base64\": \"\", \"path\": \"x/main.py\"}],"
	    "\"session_id\": \"sandbox-ab0.9\", \"stdin\": \"a\\u0000b\", \"timeout_s\": 90, \"code\": \"pa\\u0073s\","
	    "\"language\": \"python\"}";
	static const struct {
		const char *path, *content;
		size_t len;
	} want[] = {{"d/f.txt", BYTES("h\xc3\xa9\0\n")},
		    {"..x\\/y", BYTES("\0\xff\x3f\xf8")},
		    {"main.py2", BYTES("")},
		    {"x/main.py", BYTES("")}};
	static const char env[] =
	    "A=1=2\0\xc3\xa9\"=\xf0\x9f\x98\x80\0LD_PRELOAD=\0a b=x\ny\0TOOL_SANDBOX2=\0SANDBOX=\0sandbox_url=\0sandbox=";
	struct execute_request request = {0};
	struct api_error e = {0};
	struct reading r;
	const char *at;

	(void)state;
	if (parse(body, sizeof body - 1, &request, &e) < 0)
		fail_msg("%s", e.message);
	r = read_back(&request.payload);
	assert_string_equal(request.session_id, "sandbox-ab0.9");
	assert_int_equal(request.timeout_s, 90);
	assert_int_equal(r.header.flags, REQUEST_SESSION | REQUEST_STDIN);
	assert_int_equal(r.header.code_len, 4);
	assert_memory_equal(r.code, "pass", 4);
	assert_int_equal(r.header.stdin_len, 3);
	assert_memory_equal(r.stdin_text, "a\0b", 3);
	assert_int_equal(r.header.env_len, sizeof env);
	assert_memory_equal(r.env, env, sizeof env);
	assert_int_equal(r.header.file_count, 4);
	at = r.files;
	for (size_t i = 0; i < 4; i++) {
		struct payload_file f = next_file(&at);

		assert_int_equal(f.path_len, strlen(want[i].path));
		assert_memory_equal(f.path, want[i].path, f.path_len);
		assert_int_equal(f.len, want[i].len);
		assert_memory_equal(f.content, want[i].content, f.len);
	}
	assert_ptr_equal(at, request.payload.data + request.payload.len);
	payload_clear(&request.payload);
}

/* Standard input that is empty is not the same as none: a flag tells them apart. */
static void stdin_given_and_not(void **state)
{
	static const struct {
		const char *body;
		uint32_t flags;
	} rows[] = {{WITH("\"stdin\": \"\""), REQUEST_STDIN}, {WITH("\"files\": [], \"env\": {}"), 0}};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct execute_request request = {0};
		struct api_error e = {0};

		assert_int_equal(parse(rows[i].body, strlen(rows[i].body), &request, &e), 0);
		assert_int_equal(read_back(&request.payload).header.flags, rows[i].flags);
		assert_int_equal(request.payload.len, sizeof(struct request_header) + 1);
		payload_clear(&request.payload);
	}
}

/* ---- limits: at the value, and one over ---- */

struct text {
	char *data;
	size_t len, room;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *fmt, ...)
{
	va_list ap;

	if (t->room - t->len < 4096) {
		t->room = t->room * 2 + 8192;
		t->data = realloc(t->data, t->room);
	}
	va_start(ap, fmt);
	t->len += (size_t)vsnprintf(t->data + t->len, t->room - t->len, fmt, ap);
	va_end(ap);
}

static void add_fill(struct text *t, char c, size_t n)
{
	t->data = realloc(t->data, t->room += n);
	memset(t->data + t->len, c, n);
	t->len += n;
}

/* `over` false: must be accepted; true: must be refused as too large, in these words. Frees the text. */
static void at_limit(struct text *t, bool over, const char *message)
{
	struct execute_request request = {0};
	struct api_error e = {0};
	int r = parse(t->data, t->len, &request, &e);

	if (r != (over ? -1 : 0))
		fail_msg("%s: %s", over ? "accepted" : e.message, message);
	if (over) {
		assert_int_equal(e.kase, ERROR_TOO_LARGE);
		assert_string_equal(e.message, message);
	} else {
		(void)read_back(&request.payload);
	}
	payload_clear(&request.payload);
	free(t->data);
	*t = (struct text){0};
}

static void code_at_its_limit(void **state)
{
	(void)state;
	for (size_t over = 0; over < 2; over++) {
		struct text t = {0};

		add(&t, "{\"code\": \"");
		add_fill(&t, '#', LIMIT_CODE_BYTES + over);
		add(&t, "\"}");
		at_limit(&t, over, "code is 1048577 bytes, over the limit of 1048576 bytes");
	}
}

static void stdin_at_its_limit(void **state)
{
	(void)state;
	for (size_t over = 0; over < 2; over++) {
		struct text t = {0};

		add(&t, "{\"code\": \"\", \"stdin\": \"");
		add_fill(&t, 'i', LIMIT_STDIN_BYTES - 2); /* and a character of two bytes, written with six */
		add(&t, "\\u00e9%s\"}", over ? "x" : "");
		at_limit(&t, over, "stdin is 4194305 bytes, over the limit of 4194304 bytes");
	}
}

static void env_names_at_their_limit(void **state)
{
	(void)state;
	for (int over = 0; over < 2; over++) {
		struct text t = {0};

		add(&t, "{\"code\": \"\", \"env\": {");
		for (int i = 0; i < LIMIT_ENV_NAMES + over; i++)
			add(&t, "%s\"N%d\": \"\"", i ? ", " : "", i);
		add(&t, "}}");
		at_limit(&t, over, "env is over the limit of 64 names");
	}
}

static void env_bytes_at_their_limit(void **state)
{
	(void)state;
	for (int over = 0; over < 2; over++) {
		struct text t = {0};

		add(&t, "{\"code\": \"\", \"env\": {\"A\": \"1\", \"B\": \""); /* 4 bytes, then 3 and the value */
		add_fill(&t, 'v', (size_t)(LIMIT_ENV_BYTES - 7 + over));
		add(&t, "\"}}");
		at_limit(&t, over, "env is over the limit of 32768 bytes, = and an end for each counted");
	}
}

static void file_count_at_its_limit(void **state)
{
	(void)state;
	for (int over = 0; over < 2; over++) {
		struct text t = {0};

		add(&t, "{\"code\": \"\", \"files\": [");
		for (int i = 0; i < LIMIT_FILES_IN + over; i++)
			add(&t, "%s{\"path\": \"f%d\", \"content\": \"%d\"}", i ? ", " : "", i, i);
		add(&t, "]}");
		at_limit(&t, over, "files are over the limit of 256 files");
	}
}

/* Text and base64 count alike: what they decode to. */
static void file_bytes_at_their_limit(void **state)
{
	static const char message[] = "files are over the limit of 10485760 bytes together";

	(void)state;
	for (int over = 0; over < 2; over++) {
		struct text t = {0};

		add(&t, "{\"code\": \"\", \"files\": [{\"path\": \"a\", \"content\": \"");
		add_fill(&t, 'a', LIMIT_FILES_IN_BYTES / 2);
		add(&t, "\"}, {\"path\": \"b\", \"content_base64\": \"");
		add_fill(&t, 'A', (LIMIT_FILES_IN_BYTES / 2 - 2) / 3 * 4); /* 5242880 is 2 more than a multiple of 3 */
		add(&t, "%s\"}]}", over ? "AAAA" : "AAA=");
		at_limit(&t, over, message);

		add(&t, "{\"code\": \"\", \"files\": [{\"path\": \"a\", \"content\": \"");
		add_fill(&t, 'a', (size_t)(LIMIT_FILES_IN_BYTES + over));
		add(&t, "\"}]}");
		at_limit(&t, over, message);
	}
}

static void file_paths_at_their_limits(void **state)
{
	(void)state;
	for (int over = 0; over < 2; over++) {
		struct text t = {0};

		add(&t, "{\"code\": \"\", \"files\": [{\"content\": \"\", \"path\": \"");
		for (int i = 0; i < LIMIT_FILES_IN_DEPTH - 1 + over; i++)
			add(&t, "d/");
		add(&t, "f\"}]}");
		at_limit(&t, over, "the path at \"/files/0/path\" is over the limit of 16 levels");

		add(&t, "{\"code\": \"\", \"files\": [{\"content\": \"\", \"path\": \"d/");
		add_fill(&t, 'n', (size_t)(LIMIT_FILE_NAME_BYTES + over));
		add(&t, "\"}]}");
		at_limit(&t, over, "a name in the path at \"/files/0/path\" is over the limit of 255 bytes");

		add(&t, "{\"code\": \"\", \"files\": [{\"content\": \"\", \"path\": \"");
		for (int i = 0; i < 4; i++) {
			add_fill(&t, 'n', 249);
			add(&t, "/");
		}
		add_fill(&t, 'n', (size_t)(LIMIT_FILE_PATH_BYTES - 1000 + over));
		add(&t, "\"}]}");
		at_limit(&t, over, "the path at \"/files/0/path\" is 1025 bytes, over the limit of 1024 bytes");
	}
}

/* An id one byte short of what none can have. */
static void session_id_at_its_limit(void **state)
{
	char body[128];
	struct execute_request request = {0};
	struct api_error e = {0};
	int n = sprintf(body, "{\"code\": \"\", \"session_id\": \"%047d\"}", 0);

	(void)state;
	assert_int_equal(parse(body, (size_t)n, &request, &e), 0);
	assert_int_equal(strlen(request.session_id), IPC_ID_MAX - 1);
	payload_clear(&request.payload);
}

/* A reserved name of any length is told, cut where it has to be. */
static void long_reserved_name(void **state)
{
	struct text t = {0};
	struct execute_request request;
	struct api_error e = {0};

	(void)state;
	add(&t, "{\"code\": \"\", \"env\": {\"SANDBOX_");
	add_fill(&t, 'X', 20000);
	add(&t, "\": \"\"}}");
	assert_int_equal(parse(t.data, t.len, &request, &e), -1);
	assert_int_equal(e.kase, ERROR_RESERVED_NAME);
	assert_non_null(strstr(e.message, "X\xe2\x80\xa6 is reserved by the platform"));
	free(t.data);
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
	struct text t = {0};
	struct execute_request request;
	struct api_error e = {0};

	(void)state;
	add_fill(&t, '[', 1000000);
	assert_int_equal(parse(t.data, t.len, &request, &e), -1);
	assert_non_null(strstr(e.message, "at most 64 levels"));
	t.len = 0;
	add(&t, "{\"code\": \"\", \"timeout_s\": ");
	add_fill(&t, '9', 1000000);
	add(&t, "}");
	assert_int_equal(parse(t.data, t.len, &request, &e), -1);
	assert_string_equal(e.message, TIMEOUT);
	free(t.data);
}

/* A stranger's name or language of any length is cut, between characters, and shown to be cut. */
static void long_names_are_cut(void **state)
{
	struct text t = {0};
	struct execute_request request;
	struct api_error e = {0};

	(void)state;
	add(&t, "{\"");
	for (int i = 0; i < 600; i++)
		add(&t, "\xc3\xa9");
	add(&t, "\": 1}");
	assert_int_equal(parse(t.data, t.len, &request, &e), -1);
	assert_non_null(strstr(e.message, "\xc3\xa9\xe2\x80\xa6\": expected one of"));
	assert_in_range(strlen(e.message), 1, 240);
	t.len = 0;
	add(&t, "{\"language\": \"");
	for (int i = 0; i < 600; i++)
		add(&t, "\xf0\x9f\x98\x80");
	add(&t, "\", \"code\": \"\"}");
	assert_int_equal(parse(t.data, t.len, &request, &e), -1);
	assert_non_null(strstr(e.message, "\xf0\x9f\x98\x80\xe2\x80\xa6\""));
	t.len = 0;
	add(&t, "{\"code\": \"\", \"files\": [{\"");
	for (int i = 0; i < 600; i++)
		add(&t, "\xc3\xa9");
	add(&t, "\": 1}]}");
	assert_int_equal(parse(t.data, t.len, &request, &e), -1);
	assert_non_null(strstr(e.message, "\xc3\xa9\xe2\x80\xa6\": expected one of path, content, content_base64, found"));
	free(t.data);
}

/* Every body cut short anywhere is refused, and nothing is read behind its end (the sanitizers watch). */
static void every_prefix(void **state)
{
	static const char whole[] =
	    "{\"code\": \"\\ud83d\\ude00 \\n\xe2\x82\xac\", \"language\": \"python\", \"timeout_s\": 12, "
	    "\"files\": [{\"path\": \"a\\\\b/c\", \"content_base64\": \"QUJD\"}], \"env\": {\"A\": \"\\\"\"}}";

	(void)state;
	for (size_t n = 0; n < sizeof whole - 1; n++) {
		struct execute_request request;
		struct api_error e;

		assert_int_equal(parse(whole, n, &request, &e), -1);
	}
	for (size_t at = 0; at < 24; at++) { /* every alignment of an escape and of the quote that ends a string */
		struct execute_request request;
		struct api_error e;
		char body[96];
		int n = sprintf(body, "{\"code\": \"%.*s\\n%.*s\"}", (int)at, "aaaaaaaaaaaaaaaaaaaaaaaa", (int)(23 - at),
				"bbbbbbbbbbbbbbbbbbbbbbbb");

		assert_int_equal(parse(body, (size_t)n, &request, &e), 0);
		assert_int_equal(read_back(&request.payload).header.code_len, 24);
		assert_int_equal(read_back(&request.payload).code[at], '\n');
		payload_clear(&request.payload);
		for (int bad_byte = 0; bad_byte < 3; bad_byte++) {
			body[10 + at] = "\x1f\xff\x00"[bad_byte];
			assert_int_equal(parse(body, (size_t)n, &request, &e), -1);
		}
	}
}

static void opening_a_session(void **state)
{
	static const struct {
		const char *body;
		enum error_case kase; /* ERROR_NONE: accepted */
		const char *message;
	} rows[] = {
	    {"", ERROR_NONE, NULL},
	    {"{}", ERROR_NONE, NULL},
	    {" { \"language\": \"pyth\\u006fn\" } ", ERROR_NONE, NULL},
	    {"[]", ERROR_INVALID_REQUEST, "at \"\" (the whole body): expected a JSON object, found an array"},
	    {" ", ERROR_INVALID_REQUEST, "at \"\" (the whole body): expected a JSON value, found the end of the body"},
	    {"{\"language\": \"ruby\"}", ERROR_UNSUPPORTED_LANGUAGE, "unsupported language \"ruby\""},
	    {"{\"language\": 3}", ERROR_INVALID_REQUEST, "at \"/language\": expected the string \"python\", found a number"},
	    {"{\"code\": \"\"}", ERROR_INVALID_REQUEST, "at \"/code\": expected one of language, found an unknown name"},
	    {"{\"language\": \"python\", \"language\": \"python\"}", ERROR_INVALID_REQUEST,
	     "at \"/language\": expected each name once, found it again"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct api_error e = {0};
		char body[64];
		int r;

		memcpy(body, rows[i].body, strlen(rows[i].body) + 1);
		r = request_parse_session(body, strlen(body), &e);
		assert_int_equal(r, rows[i].kase == ERROR_NONE ? 0 : -1);
		assert_int_equal(e.kase, rows[i].kase);
		if (r < 0)
			assert_string_equal(e.message, rows[i].message);
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
	    cmocka_unit_test(refused),
	    cmocka_unit_test(hints_say_what_would_mend_it),
	    cmocka_unit_test(accepted),
	    cmocka_unit_test(everything_at_once),
	    cmocka_unit_test(stdin_given_and_not),
	    cmocka_unit_test(code_at_its_limit),
	    cmocka_unit_test(stdin_at_its_limit),
	    cmocka_unit_test(env_names_at_their_limit),
	    cmocka_unit_test(env_bytes_at_their_limit),
	    cmocka_unit_test(file_count_at_its_limit),
	    cmocka_unit_test(file_bytes_at_their_limit),
	    cmocka_unit_test(file_paths_at_their_limits),
	    cmocka_unit_test(session_id_at_its_limit),
	    cmocka_unit_test(long_reserved_name),
	    cmocka_unit_test(nesting_at_its_limit),
	    cmocka_unit_test(large_nonsense),
	    cmocka_unit_test(long_names_are_cut),
	    cmocka_unit_test(every_prefix),
	    cmocka_unit_test(opening_a_session),
	    cmocka_unit_test(walking),
	};

	return cmocka_run_group_tests_name("request", tests, NULL, NULL);
}
