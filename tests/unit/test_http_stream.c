/* SPDX-License-Identifier: Apache-2.0 */
/* Server-sent events: the pieces of a stream put together are the stream, however it was cut, read and interleaved. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/stream.h"
#include "core/utf8.h"

/* What a client has, and what it makes of it. */
struct heard {
	char *bytes;
	size_t len;
	char *text[RUN_STREAMS];
	size_t text_len[RUN_STREAMS];
	char order[4096]; /* o, e: one letter for each event */
	unsigned events, comments;
	char last[32]; /* name of the last event */
	json_t *data;  /* its data */
};

static void add(char **to, size_t *len, const char *more, size_t n)
{
	*to = realloc(*to, *len + n + 1);
	memcpy(*to + *len, more, n);
	*len += n;
	(*to)[*len] = 0;
}

static void take(struct heard *h, char *event)
{
	char *data = strstr(event, "\ndata: ");
	json_t *value;

	if (*event == ':') {
		assert_string_equal(event, ": keep-alive");
		h->comments++;
		return;
	}
	assert_non_null(data);
	*data = 0;
	data += 7;
	assert_memory_equal(event, "event: ", 7);
	assert_null(strpbrk(data, "\n\r")); /* one line, whatever the text has */
	snprintf(h->last, sizeof h->last, "%s", event + 7);
	value = json_loads(data, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(value);
	json_decref(h->data);
	h->data = value;
	for (unsigned i = 0; i < RUN_STREAMS; i++) {
		json_t *text = json_object_get(value, "text");

		if (strcmp(h->last, i ? "stderr" : "stdout") != 0)
			continue;
		assert_int_equal(json_object_size(value), 1);
		assert_true(json_string_length(text) > 0);
		add(&h->text[i], &h->text_len[i], json_string_value(text), json_string_length(text));
		assert_true(h->events < sizeof h->order - 1);
		h->order[h->events++] = i ? 'e' : 'o';
	}
}

/* Reads up to `rounds` times, `max` bytes at once. Returns the last verdict. */
static ssize_t hear(struct heard *h, struct stream *st, unsigned rounds, size_t max)
{
	char buf[65536];
	ssize_t n = 0;

	while (rounds-- > 0 && (n = stream_read(st, buf, max)) > 0) {
		assert_true((size_t)n <= max);
		add(&h->bytes, &h->len, buf, (size_t)n);
	}
	return n;
}

static void understand(struct heard *h)
{
	char *at = h->bytes, *end;

	while (at && (end = strstr(at, "\n\n"))) {
		*end = 0;
		take(h, at);
		at = end + 2;
	}
	assert_true(!at || !*at);
}

static void forget(struct heard *h)
{
	for (unsigned i = 0; i < RUN_STREAMS; i++)
		free(h->text[i]);
	free(h->bytes);
	json_decref(h->data);
	*h = (struct heard){0};
}

static void say(struct run_result *r, unsigned which, const char *bytes, size_t len)
{
	add(&r->out[which], &r->out_len[which], bytes, len);
}

static struct answer_body body;

static void finish(struct stream *st, struct run_result *r, const char *event)
{
	assert_int_equal(answer_make_json(&body, json_pack("{s:i}", "answer", 42)), 0);
	stream_finish(st, r, event, &body);
	/* Nothing of the run is looked at any more. */
	for (unsigned i = 0; i < RUN_STREAMS; i++)
		assert_null(r->out[i]);
}

static void clear(struct stream *st)
{
	stream_clear(st);
	answer_clear(&body);
}

static void one_after_the_other(void **state)
{
	struct run_result r = {0};
	struct stream st = {0};
	struct heard h = {0};

	(void)state;
	stream_note(&st, &r);
	assert_int_equal(hear(&h, &st, 9, 100), 0);
	say(&r, 0, "one\n", 4);
	stream_note(&st, &r);
	say(&r, 1, "two\0\x1b\"\\", 7);
	stream_note(&st, &r);
	say(&r, 0, "three\r\n", 7);
	stream_note(&st, &r);
	assert_int_equal(hear(&h, &st, 9, 8), 8); /* more is to come: nine rounds were not enough */
	assert_int_equal(hear(&h, &st, 99, 8), 0);
	stream_keep_alive(&st);
	assert_int_equal(hear(&h, &st, 99, 100), 0);
	finish(&st, &r, "result");
	assert_int_equal(hear(&h, &st, 99, 100), STREAM_READ_END);
	assert_string_equal(strstr(h.bytes, "event: result"), "event: result\ndata: {\"answer\": 42}\n\n");
	understand(&h);
	assert_string_equal(h.order, "oeo");
	assert_int_equal(h.comments, 1);
	assert_int_equal(h.text_len[0], 11);
	assert_memory_equal(h.text[0], "one\nthree\r\n", 11);
	assert_int_equal(h.text_len[1], 7);
	assert_memory_equal(h.text[1], "two\0\x1b\"\\", 7);
	assert_string_equal(h.last, "result");
	clear(&st);
	forget(&h);
}

/* Each prefix of a character waits for the rest of it, and only when there is none it is what it is: not a character. */
static void cut_inside_a_character(void **state)
{
	static const char face[] = "\xf0\x9f\x98\x80";

	(void)state;
	for (size_t cut = 1; cut < 4; cut++)
		for (int how = 0; how < 3; how++) { /* the rest comes, the end comes, something else comes */
			struct run_result r = {0};
			struct stream st = {0};
			struct heard h = {0};

			say(&r, 0, "a", 1);
			say(&r, 0, face, cut);
			stream_note(&st, &r);
			say(&r, 1, "between", 7);
			stream_note(&st, &r);
			hear(&h, &st, 99, 1000);
			assert_null(strstr(h.bytes, "\xf0"));
			assert_null(strstr(h.bytes, "\xef\xbf\xbd"));
			if (how != 1)
				say(&r, 0, how == 0 ? face + cut : "z", how == 0 ? 4 - cut : 1);
			stream_note(&st, &r);
			finish(&st, &r, "result");
			assert_int_equal(hear(&h, &st, 99, 1000), STREAM_READ_END);
			understand(&h);
			assert_string_equal(h.text[0], how == 0	  ? "a\xf0\x9f\x98\x80"
						       : how == 1 ? "a\xef\xbf\xbd"
								  : "a\xef\xbf\xbdz");
			assert_string_equal(h.text[1], "between");
			clear(&st);
			forget(&h);
		}
}

/* What a slow reader gets is the same, and while it does not read nothing is kept for it. */
static void a_slow_reader_costs_nothing(void **state)
{
	struct run_result r = {0};
	struct stream st = {0};
	struct heard h = {0};

	(void)state;
	for (int i = 0; i < 100000; i++) {
		say(&r, i % 2, i % 2 ? "err\n" : "out\n", 4);
		stream_note(&st, &r);
	}
	assert_null(st.piece);
	assert_int_equal(st.count, STREAM_TURNS);
	finish(&st, &r, "error");
	assert_int_equal(hear(&h, &st, 1000000, 50), STREAM_READ_END);
	understand(&h);
	assert_int_equal(h.text_len[0], 200000);
	assert_int_equal(h.text_len[1], 200000);
	/* The order is kept as long as there is room for it. */
	assert_memory_equal(h.order, "oeoeoeoeoeoeoeoe", 16);
	assert_string_equal(h.last, "error");
	clear(&st);
	forget(&h);
}

static uint64_t seed;

static unsigned rnd(unsigned n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(seed >> 33) % n;
}

/* Bytes that are characters, beginnings of some, and nothing at all. */
static size_t noise(char *to, size_t max)
{
	static const char *const bits[] = {
	    "a",    "\n",   "\"",	"\xc3\xa9",	"\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf0\x9f",
	    "\xe2", "\xff", "\xc0\x80", "\xed\xa0\x80", "\x80",		"\xf4\x90\x80\x80", "\x01",
	    "\xc3"};
	size_t len = 0;

	for (unsigned i = rnd(40); i > 0; i--) {
		const char *bit = bits[rnd(sizeof bits / sizeof *bits)];

		if (len + strlen(bit) > max)
			break;
		memcpy(to + len, bit, strlen(bit));
		len += strlen(bit);
	}
	if (rnd(20) == 0 && len < max)
		to[len++] = 0;
	if (rnd(200) == 0 && len + 20000 < max) {
		memset(to + len, 'x', 20000);
		len += 20000;
	}
	return len;
}

static void any_bytes_any_way(void **state)
{
	static char part[32768];

	(void)state;
	for (seed = 1; seed < 400; seed++) {
		uint64_t own = seed;
		struct run_result r = {0};
		struct stream st = {0};
		struct heard h = {0};
		char *want[RUN_STREAMS];
		size_t want_len[RUN_STREAMS];

		for (unsigned i = rnd(60); i > 0; i--) {
			say(&r, rnd(2), part, noise(part, sizeof part));
			if (rnd(3))
				stream_note(&st, &r);
			if (st.live && rnd(2))
				hear(&h, &st, rnd(5), ANSWER_READ_MIN + rnd(3000));
		}
		for (unsigned i = 0; i < RUN_STREAMS; i++)
			want[i] = utf8_replace(r.out[i] ? r.out[i] : "", r.out_len[i], &want_len[i]);
		finish(&st, &r, "result");
		assert_int_equal(hear(&h, &st, 1000000, ANSWER_READ_MIN + rnd(3000)), STREAM_READ_END);
		understand(&h);
		for (unsigned i = 0; i < RUN_STREAMS; i++) {
			if (h.text_len[i] != want_len[i] || (want_len[i] && memcmp(h.text[i], want[i], want_len[i]) != 0))
				fail_msg("seed %llu, stream %u", (unsigned long long)own, i);
			free(want[i]);
		}
		clear(&st);
		forget(&h);
		seed = own;
	}
}

/* No memory for the answer: the stream breaks off and has no last event. */
static void no_answer_no_end(void **state)
{
	struct run_result r = {0};
	struct stream st = {0};
	struct heard h = {0};

	(void)state;
	say(&r, 0, "x", 1);
	stream_finish(&st, &r, "result", &body);
	assert_int_equal(hear(&h, &st, 99, 100), STREAM_READ_BROKEN);
	clear(&st);
	forget(&h);
}

static void accept_header(void **state)
{
	static const struct {
		const char *value;
		bool events;
	} rows[] = {
	    {"text/event-stream", true},
	    {"Text/Event-Stream", true},
	    {" text/event-stream ", true},
	    {"application/json, text/event-stream", true},
	    {"application/json;q=0.9,text/event-stream;q=0.1", true},
	    {"text/event-stream;charset=utf-8;q=0.001", true},
	    {"text/event-stream ; q=1", true},
	    {"text/event-stream;q=0, text/event-stream", true},
	    {"x/y;a=\"b,\\\"c;d\", text/event-stream", true},
	    {"text/event-stream;q=0", false},
	    {"text/event-stream;q=0.0", false},
	    {"text/event-stream; Q=0.000", false},
	    {"text/event-stream;x=y;q=0.", false},
	    {"", false},
	    {",,;,", false},
	    {"*/*", false},
	    {"text/*", false},
	    {"application/json", false},
	    {"text/event-streams", false},
	    {"text/event-strea", false},
	    {"x/y;a=\"text/event-stream\"", false},
	    {"x/y;a=\", text/event-stream", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (stream_accepted(rows[i].value) != rows[i].events)
			fail_msg("Accept: %s", rows[i].value);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_after_the_other),
	    cmocka_unit_test(cut_inside_a_character),
	    cmocka_unit_test(a_slow_reader_costs_nothing),
	    cmocka_unit_test(any_bytes_any_way),
	    cmocka_unit_test(no_answer_no_end),
	    cmocka_unit_test(accept_header),
	};

	return cmocka_run_group_tests_name("http_stream", tests, NULL, NULL);
}
