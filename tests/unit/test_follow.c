/* SPDX-License-Identifier: Apache-2.0 */
/* Records as events: in batches, and what is left when a reader is too slow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "api/follow.h"
#include "auditor/record.h"

#define BATCH                                                                                                                  \
	"{\"records\": [{\"type\": \"run_begin\", \"seq\": 7, \"run_id\": \"a\"}, {\"type\": \"egress\", \"seq\": 8, "         \
	"\"dns_name\": \"x\\\\010y\"}, {\"type\": \"of_tomorrow\", \"seq\": 9}, {\"type\": \"gap\", \"seq\": 10}], "           \
	"\"cursor\": "                                                                                                         \
	"12}"
#define FIRST "id: 7\nevent: run_begin\ndata: {\"type\":\"run_begin\",\"seq\":7,\"run_id\":\"a\"}\n\n"
#define SECOND "id: 8\nevent: egress\ndata: {\"type\":\"egress\",\"seq\":8,\"dns_name\":\"x\\\\010y\"}\n\n"
#define THIRD "id: 10\nevent: gap\ndata: {\"type\":\"gap\",\"seq\":10}\n\n"

static void assert_text(const struct follow *f, const char *want)
{
	assert_int_equal(f->len - f->at, strlen(want));
	assert_memory_equal(f->text + f->at, want, strlen(want));
}

static void a_batch(void **state)
{
	struct follow f = {0};

	(void)state;
	assert_int_equal(follow_add(&f, BATCH, strlen(BATCH)), 0);
	assert_text(&f, FIRST SECOND THIRD);
	assert_int_equal(f.args.find.after, 12);
	/* Records that nobody asked for, or that are no kind of this version's, have moved the cursor. */
	f.at = f.len;
	assert_int_equal(follow_add_comment(&f), 0);
	assert_text(&f, ": keep-alive\nid: 12\n\n");
	f.at = f.len;
	assert_int_equal(follow_add_comment(&f), 0);
	assert_text(&f, ": keep-alive\n\n");
	follow_clear(&f);
}

static void some_types(void **state)
{
	struct follow f = {.args = {.types = 1u << RECORD_GAP}};

	(void)state;
	assert_int_equal(follow_add(&f, BATCH, strlen(BATCH)), 0);
	assert_text(&f, THIRD);
	follow_clear(&f);
}

static void from_now_on(void **state)
{
	struct follow f = {.args = {.find = {.after = UINT64_MAX}}, .named = UINT64_MAX};
	static const char none[] = "{\"records\": [], \"cursor\": 40}";

	(void)state;
	assert_int_equal(follow_add_comment(&f), 0);
	assert_text(&f, ": keep-alive\n\n");
	f.at = f.len;
	assert_int_equal(follow_add(&f, none, strlen(none)), 0);
	assert_int_equal(f.args.find.after, 40);
	assert_int_equal(follow_add_comment(&f), 0);
	assert_text(&f, ": keep-alive\nid: 40\n\n");
	follow_clear(&f);
}

/* Wherever a reader stopped, the event it is in comes whole, nothing behind it, and the cursor is that event's. */
static void too_slow(void **state)
{
	static const char all[] = FIRST SECOND THIRD;
	const size_t first = strlen(FIRST), second = first + strlen(SECOND);

	(void)state;
	for (size_t at = 0; at < sizeof all - 1; at++) {
		struct follow f = {.args = {.find = {.after = 5}}};
		size_t end = at == 0 ? 0 : at <= first ? first : at <= second ? second : sizeof all - 1;

		assert_int_equal(follow_add(&f, BATCH, strlen(BATCH)), 0);
		f.at = at;
		follow_cut(&f);
		assert_int_equal(f.len, end);
		assert_int_equal(f.args.find.after, at == 0 ? 5 : at <= first ? 7 : at <= second ? 8 : 12);
		assert_int_equal(follow_add_last(&f, "end", json_pack("{s:s}", "reason", "slow")), 0);
		assert_true(f.over);
		assert_memory_equal(f.text, all + at, end - at);
		assert_string_equal(strstr(f.text, "event: end"), "event: end\ndata: {\"reason\":\"slow\"}\n\n");
		follow_clear(&f);
	}
}

static void no_answer(void **state)
{
	static const char *const rows[] = {"",
					   "{}",
					   "[]",
					   "{\"records\": [], \"cursor\": -1}",
					   "{\"records\": {}, \"cursor\": 1}",
					   "{\"records\": [1], \"cursor\": 1}",
					   "{\"records\": [{\"seq\": 1}], \"cursor\": 1}",
					   "{\"records\": [{\"type\": \"gap\"}], \"cursor\": 1}",
					   "{\"records\": [{\"type\": \"gap\", \"seq\": \"1\"}], \"cursor\": 1}"};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct follow f = {0};

		assert_int_equal(follow_add(&f, rows[i], strlen(rows[i])), -EPROTO);
		assert_null(f.text);
		follow_clear(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_batch), cmocka_unit_test(some_types),
					   cmocka_unit_test(from_now_on), cmocka_unit_test(too_slow),
					   cmocka_unit_test(no_answer)};

	return cmocka_run_group_tests_name("follow", tests, NULL, NULL);
}
