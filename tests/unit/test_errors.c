/* SPDX-License-Identifier: Apache-2.0 */
/* The error table: complete, in one shape, with the contract's exact words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/error.h"

static void every_case_is_filled_in(void **state)
{
	(void)state;
	for (int k = ERROR_NONE + 1; k < ERROR_CASES; k++) {
		const struct error_row *row = error_row((enum error_case)k);

		assert_non_null(row->code);
		assert_non_null(row->hint);
		assert_in_range(row->status, 400, 599);
		assert_true(strlen(row->hint) > 0);
		/* Whoever is told to come back is told when. */
		if (row->status == 429 || row->status == 503 || k == ERROR_SESSION_BUSY)
			assert_in_range(row->retry_after_s, 1, 30);
		else
			assert_int_equal(row->retry_after_s, 0);
		/* Programs tell cases apart by the code: those that share one are neighbours, alike but for hint and time. */
		for (int other = ERROR_NONE; other < k; other++) {
			const struct error_row *o = error_row((enum error_case)other);

			if (strcmp(row->code, o->code) != 0)
				continue;
			assert_int_equal(row->status, o->status);
			assert_string_equal(error_row((enum error_case)(k - 1))->code, row->code);
			assert_string_not_equal(row->hint, o->hint);
		}
	}
}

static void contract_words(void **state)
{
	static const struct {
		enum error_case kase;
		int status;
		const char *message;
	} rows[] = {
	    {ERROR_UNAUTHORIZED, 401, "missing or invalid project token"},
	    {ERROR_FORBIDDEN, 403, "missing or invalid project token"},
	    {ERROR_NO_SANDBOX, 503, "no warm sandbox pod available, try again shortly"},
	    {ERROR_NOT_FOUND, 404, "not found"},
	    {ERROR_NO_PATH, 404, "not found"},
	    {ERROR_NO_RUN, 404, "not found"},
	    {ERROR_NO_AGENT, 404, "there is no such agent"},
	    {ERROR_UNKNOWN_TOOL, 404, "unknown_tool"},
	    {ERROR_PATH_ESCAPES, 502, "file path escapes working directory"},
	    {ERROR_SESSION_BUSY, 409, "the session is busy with another cell"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct api_error e;

		error_set(&e, rows[i].kase, NULL);
		assert_int_equal(error_row(e.kase)->status, rows[i].status);
		assert_string_equal(e.message, rows[i].message);
	}
	assert_non_null(strstr(error_row(ERROR_UNAUTHORIZED)->hint, "redeploy the agent to get a current one"));
}

static void one_shape(void **state)
{
	struct api_error e;
	json_t *body, *error;

	(void)state;
	for (int k = ERROR_NONE + 1; k < ERROR_CASES; k++) {
		error_set(&e, (enum error_case)k, "quote \" and %s", "\xc3\xa9");
		e.ran = k % 2;
		body = error_json(&e);
		assert_int_equal(json_object_size(body), 1);
		error = json_object_get(body, "error");
		assert_int_equal(json_object_size(error), 4);
		assert_string_equal(json_string_value(json_object_get(error, "message")), "quote \" and \xc3\xa9");
		assert_int_equal(json_is_true(json_object_get(error, "ran")), k % 2);
		assert_true(json_is_string(json_object_get(error, "code")));
		assert_true(json_is_string(json_object_get(error, "hint")));
		json_decref(body);
	}
}

static void a_hint_of_its_own(void **state)
{
	struct api_error e;
	json_t *body;

	(void)state;
	error_set(&e, ERROR_PATH_ESCAPES, NULL);
	assert_ptr_equal(error_hint(&e), error_row(ERROR_PATH_ESCAPES)->hint);
	error_set_hint(&e, "at \"%s\"", "/files/3/path\xff");
	body = error_json(&e);
	assert_string_equal(json_string_value(json_object_get(json_object_get(body, "error"), "hint")),
			    "at \"/files/3/path?\"");
	json_decref(body);
	error_set(&e, ERROR_NO_SANDBOX, NULL); /* what is set anew has nothing of the old */
	assert_ptr_equal(error_hint(&e), error_row(ERROR_NO_SANDBOX)->hint);
}

static void long_messages_end_between_characters(void **state)
{
	(void)state;
	for (int shift = 0; shift < 4; shift++) {
		char text[1024];
		struct api_error e;
		json_t *body;

		memset(text, 'x', (size_t)shift);
		for (int i = 0; i < 200; i++)
			memcpy(text + shift + 4 * i, "\xf0\x9f\x98\x80", 4);
		text[shift + 800] = 0;
		error_set(&e, ERROR_INTERNAL, "%s", text);
		assert_in_range(strlen(e.message), 300, sizeof e.message - 1);
		body = error_json(&e); /* refuses what is not UTF-8 */
		assert_non_null(body);
		json_decref(body);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_case_is_filled_in),
	    cmocka_unit_test(contract_words),
	    cmocka_unit_test(one_shape),
	    cmocka_unit_test(a_hint_of_its_own),
	    cmocka_unit_test(long_messages_end_between_characters),
	};

	return cmocka_run_group_tests_name("errors", tests, NULL, NULL);
}
