/* SPDX-License-Identifier: Apache-2.0 */
/* JSON that every client can read: the grammar, and what many parsers let pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <jansson.h>

#include "core/jcheck.h"
#include "core/jtext.h"
#include "core/limits.h"

#define DEPTH 60

static const char *reason;
static size_t place;

static int check(const char *text, size_t len, enum jcheck_kind kind)
{
	/* Of its own length: the sanitizers then see a step too far. */
	char *copy = malloc(len + !len);
	int r;

	memcpy(copy, text, len);
	reason = NULL;
	place = 0;
	r = jcheck(copy, len, DEPTH, kind, &reason, &place);
	free(copy);
	if (r < 0) {
		assert_int_equal(r, -EINVAL);
		assert_non_null(reason);
		assert_true(place <= len);
	}
	return r;
}

static void what_is_fine(void **state)
{
	static const char *const rows[] = {
	    "null",
	    " true\n",
	    "false",
	    "0",
	    "-0",
	    "10",
	    "-12.50e+3",
	    "1e308",
	    "-1.7976931348623157e308",
	    "0e999999999",
	    "1e-999999999",
	    "0.00001e310",
	    "0.000e999999999999999999999999",
	    "-9.8e-310",
	    "1."
	    "797693134862315807937289714053034150799341327100378269361737789804449682927647509466490179775872070963302864166928"
	    "8791"
	    "094655554785194040263065748867150582068190890200070838367627385484581771153176447573027006985557136695962284291481"
	    "9860834"
	    "93647529271907416844436551070434271155969950809304287e308",
	    "\"\"",
	    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u0000\\ud83d\\ude00\"",
	    "\"\xc3\xa9\xef\xbf\xbe\xf0\x9f\x98\x80\x7f\"",
	    "[]",
	    "[ ]",
	    "{}",
	    "{ }",
	    "[1,2 , 3]",
	    "{\"a\":{\"a\":{\"a\":[{\"a\":1},{\"a\":2}]}},\"b\":{\"a\":1}}",
	    "{\"\":1,\"\\u0000\":2,\"\\u0000\\u0000\":3}",
	    "{\"ab\":1,\"ba\":2,\"a\":3,\"b\":4,\"A\":5,\"a \":6}",
	    "{\"\xc3\xa9\":1,\"e\\u0301\":2}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (check(rows[i], strlen(rows[i]), JCHECK_ANY) < 0)
			fail_msg("%s: %s at %zu", rows[i], reason, place);
	assert_int_equal(check("{}", 2, JCHECK_OBJECT), 0);
	assert_int_equal(check(" \t\r\n{}\n", 7, JCHECK_OBJECT), 0);
}

static void what_is_not(void **state)
{
	static const struct {
		const char *text, *reason;
		int place; /* -1: any */
	} rows[] = {
	    {"", "an end before the value's", 0},
	    {" ", "an end before the value's", 1},
	    {"[", "an end before the value's", 1},
	    {"[1", "an end before the value's", 2},
	    {"[1,", "an end before the value's", 3},
	    {"{\"a\":", "an end before the value's", 5},
	    {"[,1]", "no JSON value", 1},
	    {"[1,]", "no JSON value", 3},
	    {"{,}", "no name in double quotes where a member begins", 1},
	    {"{\"a\":1,}", "no name in double quotes where a member begins", 7},
	    {"{a:1}", "no name in double quotes where a member begins", 1},
	    {"{'a':1}", "no name in double quotes where a member begins", 1},
	    {"{\"a\" 1}", "no colon after a member's name", 5},
	    {"{\"a\"", "no colon after a member's name", 4},
	    {"[1 2]", "no comma and no closing bracket after a value", 3},
	    {"[1}", "no comma and no closing bracket after a value", 2},
	    {"{\"a\":1]", "no comma and no closing bracket after a value", 6},
	    {"1 2", "text after the value", 2},
	    {"{}}", "text after the value", 2},
	    {"]", "no JSON value", 0},
	    {"tru", "no JSON value", 0},
	    {"True", "no JSON value", 0},
	    {"NaN", "no JSON value", 0},
	    {"Infinity", "no JSON value", 0},
	    {"-Infinity", "a number that JSON does not have", -1},
	    {"-", "a number that JSON does not have", -1},
	    {"01", "a number that JSON does not have", -1},
	    {"1.", "a number that JSON does not have", -1},
	    {".5", "no JSON value", 0},
	    {"+1", "no JSON value", 0},
	    {"1e", "a number that JSON does not have", -1},
	    {"1e+", "a number that JSON does not have", -1},
	    {"0x10", "text after the value", 1},
	    {"1e309", "a number that is not finite", 0},
	    {"[-1e999999999]", "a number that is not finite", 1},
	    {"1.7976931348623159e308", "a number that is not finite", 0},
	    {"1797693134862315807937289714053034150799341327100378269361737789804449682927647509466490179775872070"
	     "96330286416692887910946555547851940402630657488671505820681908902000708383676273854845817711531764475730270069"
	     "855571366959622842914819860834936475292719074168444365510704342711559699508093042880177904174497792.0",
	     "a number that is not finite", 0},
	    {"0.0001e313", "a number that is not finite", 0},
	    {"1e99999999999999999999", "a number that is not finite", 0},
	    {"\"", "a string without an end", 1},
	    {"\"abc", "a string without an end", 4},
	    {"\"abc\\", "a string without an end", 4},
	    {"\"abcdefghijklmnop\\\"", "a string without an end", -1},
	    {"\"a\nb\"", "a control character in a string", 2},
	    {"\"\\x41\"", "an escape that JSON does not have", 1},
	    {"\"\\u12g4\"", "an escape that JSON does not have", 1},
	    {"\"\\u12", "an escape that JSON does not have", 1},
	    {"\"\\ud800\"", "a lone surrogate", 1},
	    {"\"\\udc00\"", "a lone surrogate", 1},
	    {"\"\\ud800\\ud800\"", "a lone surrogate", 1},
	    {"\"\\ud800\\n\"", "a lone surrogate", 1},
	    {"{\"\\ud800\":1}", "a lone surrogate", 2},
	    {"\"\xff\"", "invalid UTF-8", 1},
	    {"\"\xc0\x80\"", "invalid UTF-8", 1},
	    {"\"\xed\xa0\x80\"", "invalid UTF-8", 1},
	    {"\"\xf4\x90\x80\x80\"", "invalid UTF-8", 1},
	    {"\"\xe2\x82\"", "invalid UTF-8", 1},
	    {"\xef\xbb\xbf{}", "no JSON value", 0},
	    {"{\"a\":1,\"a\":2}", "a name twice in one object", 7},
	    {"{\"a\":1,\"b\":{},\"a\":2}", "a name twice in one object", 14},
	    {"{\"a\":1,\"\\u0061\":2}", "a name twice in one object", 7},
	    {"{\"\":1,\"\":2}", "a name twice in one object", 6},
	    {"{\"\xc3\xa9\":1,\"\\u00e9\":2}", "a name twice in one object", 8},
	    {"{\"\\ud83d\\ude00\":1,\"\xf0\x9f\x98\x80\":2}", "a name twice in one object", 18},
	    {"{\"\\n\":1,\"\\u000a\":2}", "a name twice in one object", 8},
	    {"[{\"a\":[{\"x\":1,\"y\":2,\"x\":3}]}]", "a name twice in one object", 20},
	    {"/*c*/1", "no JSON value", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (check(rows[i].text, strlen(rows[i].text), JCHECK_ANY) == 0)
			fail_msg("%s passed", rows[i].text);
		if (strcmp(reason, rows[i].reason) != 0 || (rows[i].place >= 0 && place != (size_t)rows[i].place))
			fail_msg("%s: %s at %zu", rows[i].text, reason, place);
	}
	assert_int_equal(check("1\0", 2, JCHECK_ANY), -EINVAL);
	assert_int_equal(check("\"\0\"", 3, JCHECK_ANY), -EINVAL);
	assert_int_equal(check("[]", 2, JCHECK_OBJECT), -EINVAL);
	assert_string_equal(reason, "no object");
	assert_int_equal(check(" null", 5, JCHECK_OBJECT), -EINVAL);
	assert_int_equal(place, 1);
}

static void depth(void **state)
{
	char text[2 * (DEPTH + 1)];

	(void)state;
	for (int over = 0; over < 2; over++) {
		size_t n = DEPTH + (size_t)over;

		memset(text, '[', n);
		memset(text + n, ']', n);
		assert_int_equal(check(text, 2 * n, JCHECK_ANY), over ? -EINVAL : 0);
		if (over) {
			assert_string_equal(reason, "too many levels of arrays and objects");
			assert_int_equal(place, DEPTH);
		}
	}
	{
		size_t n = 10000000;
		char *many = malloc(n);

		memset(many, '[', n);
		assert_int_equal(jcheck(many, n, 1000000, JCHECK_ANY, &reason, &place), -EINVAL);
		assert_int_equal(place, JTEXT_DEPTH_MAX);
		free(many);
	}
}

/* Integers stay what they are up to the digits that Python reads; other numbers have to come near a double. */
static void digits(void **state)
{
	char *text = malloc(1 << 20);

	(void)state;
	for (int over = 0; over < 2; over++)
		for (int fraction = 0; fraction < 2; fraction++) {
			size_t n = LIMIT_JSON_DIGITS + (size_t)over;

			memset(text, '9', n + 1);
			if (fraction)
				text[1] = '.';
			assert_int_equal(check(text, n + (size_t)fraction, JCHECK_ANY), over ? -EINVAL : 0);
			if (over)
				assert_string_equal(reason, "a number of too many digits");
		}
	memset(text, '1', 1 << 20);
	assert_int_equal(check(text, 1 << 20, JCHECK_ANY), -EINVAL);
	/* 309 digits before the point: an integer may have them, a double can't. */
	memset(text, '9', 309);
	assert_int_equal(check(text, 309, JCHECK_ANY), 0);
	memcpy(text + 309, ".5", 2);
	assert_int_equal(check(text, 311, JCHECK_ANY), -EINVAL);
	assert_string_equal(reason, "a number that is not finite");
	memcpy(text + 309, "e0", 2);
	assert_int_equal(check(text, 311, JCHECK_ANY), -EINVAL);
	free(text);
}

/* What the C library says of numbers around where doubles end, digit by digit. */
static void finite_as_doubles(void **state)
{
	/* 2^1024 - 2^970: the first that is not finite. */
	static const char border[] =
	    "1797693134862315807937289714053034150799341327100378269361737789804449682927647509466490179775872070963"
	    "3028641669288791094655554785194040263065748867150582068190890200070838367627385484581771153176447573027"
	    "0069855571366959622842914819860834936475292719074168444365510704342711559699508093042880177904174497792";
	uint64_t seed = 0x9e3779b97f4a7c15u;
	unsigned finite = 0, not = 0;
	char text[1024];

	(void)state;
	for (int round = 0; round < 200000; round++) {
		size_t n, point, zeros;
		bool ours, theirs;

		seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
		n = 1 + (seed >> 8) % (round % 4 ? 25 : 330);
		zeros = (seed >> 20) % 3 * ((seed >> 24) % 5);
		point = 1 + (seed >> 32) % n;
		{ /* its digits, often with one of them changed */
			char digits[400];
			size_t used = 0;

			for (size_t i = 0; i < n; i++)
				digits[i] = i < sizeof border - 1 ? border[i] : (char)('0' + (seed >> (i % 60)) % 10);
			if (seed & 1)
				digits[(seed >> 40) % n] = (char)('0' + (seed >> 50) % 10);
			if (digits[0] == '0')
				digits[0] = '1';
			if (zeros) {
				used = (size_t)sprintf(text, "0.");
				memset(text + used, '0', zeros);
				used += zeros;
				memcpy(text + used, digits, n);
				used += n;
				sprintf(text + used, "e%d", 309 + (int)zeros - (int)((seed >> 60) % 3));
			} else {
				memcpy(text, digits, point);
				used = point;
				text[used++] = '.';
				memcpy(text + used, digits + point, n - point);
				used += n - point;
				if (n == point)
					text[used++] = '0';
				sprintf(text + used, "E%d", 309 - (int)point - (int)((seed >> 60) % 3) + 1);
			}
		}
		ours = check(text, strlen(text), JCHECK_ANY) == 0;
		theirs = isfinite(strtod(text, NULL)) != 0;
		if (ours != theirs)
			fail_msg("%s: %s", text, ours ? "fine" : reason);
		finite += ours;
		not += !ours;
	}
	assert_true(finite > 10000 && not > 10000);
}

static char *object_of(size_t count, size_t again, size_t *ret_len)
{
	char *text = malloc(count * 16 + 32), *at = text;

	*at++ = '{';
	for (size_t i = 0; i < count; i++)
		at += sprintf(at, "%s\"%zx\":%zu", i ? "," : "", i == count - 1 ? again : i, i % 10);
	strcpy(at, "}");
	*ret_len = (size_t)(at + 1 - text);
	return text;
}

/* Around the sizes at which the way of looking changes, and far beyond. */
static void many_names(void **state)
{
	static const size_t counts[] = {2, 15, 16, 17, 18, 31, 32, 33, 63, 64, 65, 100, 1000, 65536, 600000};

	(void)state;
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		for (int twice = 0; twice < 2; twice++) {
			size_t n = counts[i], len;
			char *text = object_of(n, twice ? n / 2 : n - 1, &len);

			if (twice && n / 2 == n - 1) {
				free(text);
				text = object_of(n, 0, &len);
			}
			assert_int_equal(check(text, len, JCHECK_OBJECT), twice ? -EINVAL : 0);
			if (twice) /* the second of the two */
				assert_ptr_equal(strrchr(text, ','), text + place - 1);
			free(text);
		}
}

/* An open object's names are apart from those of the objects in it, however many these have. */
static void names_of_levels(void **state)
{
	char *text = malloc(1 << 20), *at = text;

	(void)state;
	at += sprintf(at, "{\"k\":[");
	for (int i = 0; i < 2000; i++)
		at += sprintf(at, "%s{\"k\":%d,\"k%d\":{\"k\":0,\"k%d\":[]},\"x\":0}", i ? "," : "", i, i, i);
	at += sprintf(at, "],\"k1\":0,\"x\":0");
	strcpy(at, "}");
	assert_int_equal(check(text, strlen(text), JCHECK_ANY), 0);
	strcpy(at, ",\"k\":0}");
	assert_int_equal(check(text, strlen(text), JCHECK_ANY), -EINVAL);
	assert_int_equal(place, (size_t)(at - text) + 1);
	free(text);
}

/* Eight megabytes of whatever costs most, in time that a service with one thread can spare. */
static void time_is_bounded(void **state)
{
	size_t room = 8 << 20, len = 0;
	char *text = malloc(room + 64);

	(void)state;
	for (int what = 0; what < 4; what++) {
		clock_t began = clock();
		int r;

		len = (size_t)sprintf(text, "%s", what == 2 ? "[" : "{");
		for (unsigned i = 0; len < room - 32; i++)
			if (what == 0)
				len += (size_t)sprintf(text + len, "\"%x\":1,", i);
			else if (what == 1)
				len += (size_t)sprintf(text + len, "\"\\u%04x\\u%04x\":1,", 0x100 + i % 0xd000,
						       0x100 + i / 0xd000);
			else if (what == 2)
				len += (size_t)sprintf(text + len, i % 3 ? "9.8e-310," : "1.79e308,");
			else
				len += (size_t)sprintf(text + len, "\"%x\":{\"a\":{\"b\":1,\"c\":2}},", i);
		text[len - 1] = what == 2 ? ']' : '}';
		r = jcheck(text, len, DEPTH, JCHECK_ANY, &reason, &place);
		if (r < 0)
			fail_msg("%d: %s at %zu", what, reason, place);
		if (clock() - began > 10 * CLOCKS_PER_SEC) /* sanitizers and a busy machine; a square of it takes hours */
			fail_msg("%d took %ld ms", what, (long)((clock() - began) / (CLOCKS_PER_SEC / 1000)));
		print_message("  %d: %zu bytes in %ld ms\n", what, len, (long)((clock() - began) / (CLOCKS_PER_SEC / 1000)));
	}
	free(text);
}

/* Another parser, asked about the same text: they may differ only where a number is outside what it can hold, and in depth. */
static void same_as_another(void **state)
{
	static const char *const pieces[] = {"{",
					     "}",
					     "[",
					     "]",
					     ",",
					     ":",
					     "\"a\"",
					     "\"\\u0061\"",
					     "\"b\"",
					     "1",
					     "-0.5e3",
					     "null",
					     "\"\\ud83d\\ude00\"",
					     "\"\xf0\x9f\x98\x80\"",
					     " ",
					     "true",
					     "\"",
					     "x",
					     "\"a\":",
					     "\"b\":[",
					     "{\"c\":"};
	uint64_t seed = 88172645463325252u;
	unsigned fine = 0;

	(void)state;
	for (int round = 0; round < 400000; round++) {
		char text[128] = "";
		json_error_t e;
		json_t *other;
		size_t n;

		seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
		n = 1 + seed % 8;
		for (size_t i = 0; i < n; i++) {
			seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
			strcat(text, pieces[(seed >> 20) % (sizeof pieces / sizeof *pieces)]);
		}
		other = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &e);
		if ((check(text, strlen(text), JCHECK_ANY) == 0) != (other != NULL))
			fail_msg("%s: %s, the other %s", text, reason ? reason : "fine", other ? "fine" : e.text);
		fine += other != NULL;
		json_decref(other);
	}
	assert_true(fine > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_fine),    cmocka_unit_test(what_is_not),	    cmocka_unit_test(depth),
	    cmocka_unit_test(digits),	       cmocka_unit_test(finite_as_doubles), cmocka_unit_test(many_names),
	    cmocka_unit_test(names_of_levels), cmocka_unit_test(time_is_bounded),   cmocka_unit_test(same_as_another),
	};

	return cmocka_run_group_tests_name("jcheck", tests, NULL, NULL);
}
