/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a tool call: what is refused, and what is handed to the sandbox, byte for byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/request.h"
#include "core/limits.h"

static struct call_request request;
static struct api_error error;

static int parse(const char *text)
{
	size_t len = strlen(text);
	char *body = malloc(len + !len); /* of its own length, and read in place */
	int r;

	memcpy(body, text, len);
	request = (struct call_request){0};
	r = request_parse_call(body, len, &request, &error);
	free(body);
	return r;
}

static void expect(const char *text, const char *name, const char *arguments, unsigned timeout_s)
{
	struct request_header h;
	size_t name_len = strlen(name), len = strlen(arguments);

	if (parse(text) < 0)
		fail_msg("%s: %s", text, error.message);
	assert_true(request.payload.len >= sizeof h);
	memcpy(&h, request.payload.data, sizeof h);
	assert_int_equal(h.magic, REQUEST_MAGIC);
	assert_int_equal(h.flags, REQUEST_CALL);
	assert_int_equal(h.code_len, name_len);
	assert_int_equal(h.stdin_len, len);
	assert_int_equal(h.env_len + h.file_count + h.files_len, 0);
	assert_int_equal(request.payload.len, sizeof h + name_len + len);
	assert_memory_equal(request.payload.data + sizeof h, name, name_len);
	assert_memory_equal(request.payload.data + sizeof h + name_len, arguments, len);
	assert_int_equal(request.payload.digest_count, 0);
	assert_int_equal(request.timeout_s, timeout_s);
	payload_clear(&request.payload);
}

static void what_is_handed_over(void **state)
{
	(void)state;
	expect("{\"name\": \"weather\", \"arguments\": {}}", "weather", "{}", LIMIT_CALL_TIMEOUT_DEFAULT_S);
	/* Blanks, escapes, order and spelling of numbers: the harness gets what the client has written. */
	expect(" { \"timeout_s\" : 120 , \"arguments\" : { \"b\" : 1.50 , \"\\u0061\" : \"\\ud83d\\ude00\\n\" } , \"name\" : "
	       "\"m:f\" } ",
	       "m:f", "{ \"b\" : 1.50 , \"\\u0061\" : \"\\ud83d\\ude00\\n\" }", 120);
	expect("{\"name\": \"\\u00e9\\\"\\\\\", \"arguments\": {\"n\": 115792089237316195423570985008687907853}}",
	       "\xc3\xa9\"\\", "{\"n\": 115792089237316195423570985008687907853}", 30);
	expect("{\"name\": \"a b\", \"arguments\": {\"self\": 1, \"class\": 2, \"not-an-identifier\": null, \"\": []}, "
	       "\"timeout_s\": 1}",
	       "a b", "{\"self\": 1, \"class\": 2, \"not-an-identifier\": null, \"\": []}", 1);
}

/* Where an error is, as a JSON pointer, and what was wrong there. */
static void places(void **state)
{
	static const struct {
		const char *arguments, *where, *what;
	} rows[] = {
	    {"{\"a\": 1, \"a\": 2}", "/arguments/a", "a name twice"},
	    {"{\"a\": {\"b\": [1, 2, {\"x\": 1, \"y\": 2, \"x\": 3}]}}", "/arguments/a/b/2/x", "a name twice"},
	    {"{\"q/r~\": {\"x\": 1, \"x\": 3}}", "/arguments/q~1r~0/x", "a name twice"},
	    {"{\"a\": [[], [1e400]]}", "/arguments/a/1/0", "not finite"},
	    {"{\"a\": -1E+400}", "/arguments/a", "not finite"},
	};
	char text[512], want[64];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		snprintf(text, sizeof text, "{\"name\": \"t\", \"arguments\": %s}", rows[i].arguments);
		snprintf(want, sizeof want, "at \"%s\": ", rows[i].where);
		assert_int_equal(parse(text), -1);
		assert_int_equal(error.kase, ERROR_INVALID_REQUEST);
		if (strncmp(error.message, want, strlen(want)) != 0 || !strstr(error.message, rows[i].what))
			fail_msg("%s: %s", text, error.message);
		assert_false(error.ran);
	}
}

static void depth_and_digits(void **state)
{
	char *text = malloc(3 * LIMIT_JSON_DIGITS), *at;

	(void)state;
	for (int over = 0; over < 2; over++) {
		/* The body is one level, the arguments are another. */
		at = text + sprintf(text, "{\"name\": \"t\", \"arguments\": {\"a\": ");
		for (int i = 0; i < LIMIT_JSON_DEPTH - 2 + over; i++)
			*at++ = '[';
		for (int i = 0; i < LIMIT_JSON_DEPTH - 2 + over; i++)
			*at++ = ']';
		strcpy(at, "}}");
		assert_int_equal(parse(text), over ? -1 : 0);
		payload_clear(&request.payload);
		at = text + sprintf(text, "{\"name\": \"t\", \"arguments\": {\"a\": ");
		memset(at, '7', LIMIT_JSON_DIGITS + (size_t)over);
		strcpy(at + LIMIT_JSON_DIGITS + over, "}}");
		assert_int_equal(parse(text), over ? -1 : 0);
		payload_clear(&request.payload);
		if (over)
			assert_non_null(strstr(error.message, "at \"/arguments/a\": "));
	}
	free(text);
}

static void hints(void **state)
{
	(void)state;
	assert_int_equal(parse("{\"name\": \"t\", \"arguments\": {}, \"agent\": \"x\"}"), -1);
	assert_non_null(strstr(error_hint(&error), "leave `agent` out: the agent is the token's"));
	assert_int_equal(parse("{\"imag\\u0065\": \"t\"}"), -1);
	assert_non_null(strstr(error_hint(&error), "leave `image` out"));
	assert_int_equal(parse("{\"tool\": \"t\"}"), -1);
	assert_null(strstr(error_hint(&error), "leave"));
	/* In the arguments these are names like all others. */
	assert_int_equal(parse("{\"name\": \"t\", \"arguments\": {\"agent\": 1, \"image\": 2}}"), 0);
	payload_clear(&request.payload);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_handed_over),
	    cmocka_unit_test(places),
	    cmocka_unit_test(depth_and_digits),
	    cmocka_unit_test(hints),
	};

	return cmocka_run_group_tests_name("request call", tests, NULL, NULL);
}
