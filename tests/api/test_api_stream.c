/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/execute as server-sent events. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "client.h"
#include "core/clock.h"
#include "core/limits.h"

#define EVENTS "Accept: text/event-stream\r\n"
#define ONCE EVENTS "Connection: close\r\n"

static struct rig *rig;

static int begin(void **state)
{
	(void)state;
	rig = rig_start(true);
	return 0;
}

/* The last test, since a teardown that fails would not be counted. */
static void ends_well(void **state)
{
	uint64_t started = clock_now_ns();

	(void)state;
	assert_int_equal(rig_stop(rig), 0);
	/* Nothing that it would have to wait for is left. */
	assert_true(clock_now_ns() - started < LIMIT_DRAIN_S * SECOND_NS);
}

static int ask(struct rig *r, const char *version, const char *code, const char *headers)
{
	char *request = raw_request(version, code, headers);
	int fd = raw_connect(r);

	raw_send(fd, request, strlen(request));
	free(request);
	return fd;
}

static struct heard listen_to(const char *code)
{
	int fd = ask(rig, "1.1", code, ONCE);
	struct heard h = hear(fd, 3000);

	close(fd);
	return h;
}

/* Reads until the text has come, or fails. */
static void await_text(int fd, const char *text)
{
	char got[65536] = "";
	size_t len = 0;

	while (!strstr(got, text)) {
		ssize_t n = poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 3000) > 0
				? recv(fd, got + len, sizeof got - 1 - len, 0)
				: 0;

		if (n <= 0)
			fail_msg("\"%s\" did not come, but: %s", text, got);
		len += (size_t)n;
		got[len] = 0;
	}
}

/* What the events say and what the result says is the same, and it is what a plain request is told. */
static void events_and_then_the_result(void **state)
{
	struct heard h = listen_to("say 5 o6f6e65 e74776f0a o7468726565 o21");
	struct reply plain = execute(rig, "say 5 o6f6e65 e74776f0a o7468726565 o21");
	const json_t *result = last_event(&h, "result");
	const char *key;
	json_t *value;

	(void)state;
	assert_int_equal(h.status, 200);
	assert_true(h.chunked && h.whole && !h.cut);
	assert_non_null(strcasestr(h.head, "\r\nCache-Control: no-store"));
	assert_string_equal(h.events[0].name, "stdout");
	assert_string_equal(text_at(h.events[0].data, "text"), "one");
	assert_string_equal(h.events[1].name, "stderr");
	assert_string_equal(text_at(h.events[1].data, "text"), "two\n");
	assert_string_equal(h.text[0], "onethree!");
	assert_string_equal(text_at(result, "stdout"), h.text[0]);
	assert_string_equal(text_at(result, "stderr"), h.text[1]);
	assert_string_equal(text_at(result, "stdout"), text_at(plain.json, "stdout"));
	assert_int_equal(json_object_size(result), json_object_size(plain.json));
	json_object_foreach(plain.json, key, value)
	{
		assert_non_null(json_object_get(result, key));
		(void)value;
	}
	reply_free(&plain);
	heard_free(&h);
}

/* Each beginning of a character is held back until the rest has come, or the end. */
static void no_character_is_split(void **state)
{
	struct heard h = listen_to("say 40 o61f0 e62 o9f e98 o9880 oe282 eac o62 oe2");

	(void)state;
	assert_string_equal(h.text[0], "a\xf0\x9f\x98\x80\xef\xbf\xbd"
				       "b\xef\xbf\xbd");
	assert_string_equal(h.text[1], "b\xef\xbf\xbd\xef\xbf\xbd");
	assert_string_equal(text_at(last_event(&h, "result"), "stdout"), h.text[0]);
	assert_string_equal(text_at(last_event(&h, "result"), "stderr"), h.text[1]);
	assert_true(h.count >= 6); /* that is: it was cut there */
	heard_free(&h);
}

/* Also of every byte there is, and of the line that a deadline leaves. */
static void texts_are_the_output(void **state)
{
	static const char *const codes[] = {"raw", "say 5 e7061 e7274 timeout", "partial abc\n", "say 5 eff timeout", "timeout",
					    ""};
	static const char *const stderrs[] = {"",
					      "part\ntimed out after 20s",
					      "abc\n\ntimed out after 20s",
					      "\xef\xbf\xbd\ntimed out after 20s",
					      "timed out after 20s",
					      ""};

	(void)state;
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
		struct heard h = listen_to(codes[i]);
		json_t *out = json_object_get(last_event(&h, "result"), "stdout");

		assert_int_equal(h.text_len[0], json_string_length(out));
		assert_memory_equal(h.text[0], json_string_value(out), h.text_len[0]);
		assert_string_equal(h.text[1], text_at(last_event(&h, "result"), "stderr"));
		if (i != 2)
			assert_string_equal(h.text[1], stderrs[i]);
		heard_free(&h);
	}
}

/* It comes while the run goes on; and a client that goes away ends the run, however it goes. */
static void shown_at_once_and_hanging_up_cancels(void **state)
{
	(void)state;
	for (int way = 0; way < 4; way++) {
		unsigned before = rig->killed_cancelled;
		int fd = ask(rig, way < 2 ? "1.1" : "1.0", "say 1 o68690a hold", EVENTS);

		await_text(fd, "{\"text\": \"hi\\n\"}\n\n");
		assert_int_equal(rig->open, 1);
		if (way % 2)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
		close(fd);
		rig_await(&rig->killed_cancelled, before + 1, 1000);
	}
	for (int i = 0; i < 1000 && rig->open; i++)
		usleep(1000);
	assert_int_equal(rig->open, 0);
}

/* One who has not read a byte of it. */
static void hanging_up_unread(void **state)
{
	unsigned before = rig->killed_cancelled, started = rig->started;
	int fd = ask(rig, "1.1", "say 0 o61 hold", EVENTS);

	(void)state;
	rig_await(&rig->started, started + 1, 1000);
	usleep(50000);
	close(fd); /* with bytes unread: a reset */
	rig_await(&rig->killed_cancelled, before + 1, 1000);
	/* And when the service is in the middle of writing. */
	for (unsigned i = 2; i < 5; i++) {
		fd = ask(rig, i % 2 ? "1.1" : "1.0", "stall 4000000", EVENTS);
		rig_await(&rig->started, started + i, 1000);
		usleep(100000);
		close(fd);
		rig_await(&rig->killed_cancelled, before + i, 1000);
	}
}

static void half_closing_does_not_cancel(void **state)
{
	unsigned before = rig->killed_cancelled;

	(void)state;
	for (int old = 0; old < 2; old++) {
		int fd = ask(rig, old ? "1.0" : "1.1", "say 100 o61 o62 o63 o64", ONCE);
		struct heard h;

		if (old)
			usleep(150000); /* once before it has begun, once in the middle */
		shutdown(fd, SHUT_WR);
		h = hear(fd, 3000);
		assert_string_equal(h.text[0], "abcd");
		assert_string_equal(text_at(last_event(&h, "result"), "termination.reason"), "exit");
		assert_true(h.chunked == !old);
		heard_free(&h);
		close(fd);
	}
	assert_int_equal(rig->killed_cancelled, before);
}

static void http_1_0_has_no_chunks(void **state)
{
	int fd = ask(rig, "1.0", "both 300000", EVENTS);
	struct heard h = hear(fd, 3000);

	(void)state;
	assert_false(h.chunked);
	assert_int_equal(h.text_len[0], 300000);
	assert_int_equal(h.text_len[1], 300000);
	assert_string_equal(text_at(last_event(&h, "result"), "stdout"), h.text[0]);
	assert_int_equal(recv(fd, (char[1]){0}, 1, MSG_DONTWAIT), 0);
	heard_free(&h);
	close(fd);
}

/* The connection goes on after a stream. */
static void the_connection_is_kept(void **state)
{
	static const char get[] = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
	int fd = ask(rig, "1.1", "out 10000", EVENTS);

	(void)state;
	await_text(fd, "\r\n0\r\n\r\n");
	raw_send(fd, get, sizeof get - 1);
	await_text(fd, "{\"status\": \"ok\"}");
	close(fd);
}

static long api_peak_kib(struct rig *r)
{
	char path[64], line[128];
	long kib = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/status", r->api);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "VmHWM: %ld kB", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

/* All of 8 MiB arrives at last; others are served meanwhile; and it costs what the run keeps anyway, and once what is left. */
static void a_slow_reader(void **state)
{
	struct rig *own = rig_start(true);
	long plain, streamed;
	struct heard h;
	int fd;

	(void)state;
	for (int events = 0; events < 2; events++) {
		fd = ask(own, "1.1", "both 4194304", events ? ONCE : "Connection: close\r\n");
		rig_await(&own->started, (unsigned)(1 + 6 * events), 1000);
		usleep(300000);
		for (int i = 0; i < 5; i++) {
			struct reply reply = execute(own, "echo");

			assert_int_equal(reply.status, 200);
			assert_true(reply.seconds < 1);
			reply_free(&reply);
		}
		(events ? &streamed : &plain)[0] = api_peak_kib(own);
		if (!events)
			free(raw_read(fd, 3000));
		else
			h = hear(fd, 3000);
		close(fd);
	}
	assert_true(h.whole);
	assert_int_equal(h.text_len[0], LIMIT_OUTPUT_BYTES);
	assert_int_equal(h.text_len[1], LIMIT_OUTPUT_BYTES);
	assert_string_equal(text_at(last_event(&h, "result"), "stdout"), h.text[0]);
	heard_free(&h);
	print_message("peak of the api process: %ld KiB after a plain answer, %ld KiB after a stream\n", plain, streamed);
#ifndef __SANITIZE_ADDRESS__
	assert_true(streamed - plain < (9 << 10));
#endif
	assert_int_equal(rig_stop(own), 0);
}

static void over_the_cap(void **state)
{
	struct heard h = listen_to("flood");

	(void)state;
	assert_string_equal(text_at(last_event(&h, "result"), "termination.reason"), "output");
	assert_string_equal(text_at(last_event(&h, "result"), "stdout"), h.text[0]);
	assert_string_equal(text_at(last_event(&h, "result"), "stderr"), h.text[1]);
	heard_free(&h);
}

/* What is wrong before the run starts has a status of its own. */
static void errors_before_the_start(void **state)
{
	static const struct {
		const char *code;
		enum rig_grant grant;
		const char *headers;
		long status;
	} rows[] = {
	    {"echo", RIG_FAIL, ONCE, 500},
	    {"broken", RIG_GRANT, ONCE, 500},
	    {"refuse 40 0", RIG_GRANT, ONCE, 502},
	    {"echo", RIG_GRANT, ONCE "Content-Type: text/plain\r\n", 415},
	    {"echo", RIG_GRANT, ONCE "Authorization: Bearer another\r\n", 401},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct heard h;
		int fd;

		rig->grant = rows[i].grant;
		fd = ask(rig, "1.1", rows[i].code, rows[i].headers);
		h = hear(fd, 3000);
		if (h.status != rows[i].status || !h.plain || h.count)
			fail_msg("row %zu: %ld, %zu events", i, h.status, h.count);
		assert_true(json_is_false(json_object_get(json_object_get(h.plain, "error"), "ran")));
		heard_free(&h);
		close(fd);
	}
	rig->grant = RIG_GRANT;
}

/* What is wrong afterwards is the last event, and the answer has its proper end. */
static void an_error_after_the_start(void **state)
{
	struct rig *own = rig_start(true);
	int fd = ask(own, "1.1", "say 1 o61 hold", ONCE);
	struct heard h;

	(void)state;
	rig_await(&own->started, 1, 1000);
	usleep(100000);
	own->hang_up_supervisor = true;
	h = hear(fd, 3000);
	assert_int_equal(h.status, 200);
	assert_true(h.whole && !h.cut);
	assert_string_equal(h.text[0], "a");
	assert_string_equal(text_at(last_event(&h, "error"), "error.code"), "sandbox_failed");
	assert_true(json_is_true(json_object_get(json_object_get(last_event(&h, "error"), "error"), "ran")));
	heard_free(&h);
	close(fd);
	assert_int_equal(rig_wait(own), 1);
}

static void only_for_who_asks(void **state)
{
	static const char *const accepts[] = {"Accept: */*\r\n", "Accept: application/json\r\n",
					      "Accept: text/event-stream;q=0, */*\r\n", ""};
	char headers[128];

	(void)state;
	for (size_t i = 0; i < sizeof accepts / sizeof *accepts; i++) {
		struct heard h;
		int fd;

		snprintf(headers, sizeof headers, "Connection: close\r\n%s", accepts[i]);
		fd = ask(rig, "1.1", "echo plain", headers);
		h = hear(fd, 3000);
		assert_string_equal(text_at(h.plain, "stdout"), "echo plain");
		heard_free(&h);
		close(fd);
	}
	/* Among others, in a header of its own. */
	{
		int fd = ask(rig, "1.1", "echo two", ONCE "Accept: application/json\r\n");
		struct heard h = hear(fd, 3000);

		assert_string_equal(h.text[0], "echo two");
		heard_free(&h);
		close(fd);
	}
	/* Other routes have no events. */
	{
		struct reply reply =
		    call(rig, (struct call){.method = "GET", .path = "/v1/pool", .header = {"Accept: text/event-stream"}});

		assert_int_equal(reply.status, 200);
		assert_int_equal(number_at(reply.json, "size"), 3);
		reply_free(&reply);
	}
}

/* Many at once, of every kind, some of which leave: all is taken back. */
static void many_at_once(void **state)
{
	static const char *const codes[] = {"say 7 o61 e62 o63", "out 100000", "raw", "timeout", "exit 3", "say 20 o61 hold"};
	int fds[60];

	(void)state;
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 60; i++)
			fds[i] = ask(rig, i % 4 ? "1.1" : "1.0", codes[i % 6], ONCE);
		for (int i = 0; i < 60; i++) {
			struct heard h;

			if (i % 6 == 5) {
				close(fds[i]);
				continue;
			}
			h = hear(fds[i], 3000);
			assert_true(h.whole);
			assert_string_equal(text_at(last_event(&h, "result"), "stderr"), h.text[1]);
			heard_free(&h);
			close(fds[i]);
		}
	}
	for (int i = 0; i < 2000 && rig->open; i++)
		usleep(1000);
	assert_int_equal(rig->open, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(events_and_then_the_result),
	    cmocka_unit_test(no_character_is_split),
	    cmocka_unit_test(texts_are_the_output),
	    cmocka_unit_test(shown_at_once_and_hanging_up_cancels),
	    cmocka_unit_test(hanging_up_unread),
	    cmocka_unit_test(half_closing_does_not_cancel),
	    cmocka_unit_test(http_1_0_has_no_chunks),
	    cmocka_unit_test(the_connection_is_kept),
	    cmocka_unit_test(a_slow_reader),
	    cmocka_unit_test(over_the_cap),
	    cmocka_unit_test(errors_before_the_start),
	    cmocka_unit_test(an_error_after_the_start),
	    cmocka_unit_test(only_for_who_asks),
	    cmocka_unit_test(many_at_once),
	    cmocka_unit_test(ends_well),
	};

	return cmocka_run_group_tests_name("api_stream", tests, begin, NULL);
}
