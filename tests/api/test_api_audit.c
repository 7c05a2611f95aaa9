/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/audit, /v1/audit/stream and /metrics, against the real api process. */
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
#include "core/limits.h"

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
	(void)state;
	assert_int_equal(rig_stop(rig), 0);
}

/* ---- searching ---- */

static void a_search(void **state)
{
	struct reply reply = call(rig, (struct call){.method = "GET",
						     .path = "/v1/audit?since=1970-01-02T00:00:00Z&project=acme&verdict=denied"
							     "&destination=%2A.Example.com&end=exit&limit=5&cursor=77"
							     "&until=1970-01-03&policy=p"});

	(void)state;
	assert_int_equal(reply.status, 200);
	assert_string_equal(reply.body, "{\"runs\": [{\"run_id\": \"sandbox-found\"}], \"next\": null}\n");
	assert_string_equal(rig->last_project, "");
	assert_int_equal(rig->last_find.since_ns, 86400000000000);
	assert_int_equal(rig->last_find.until_ns, 172800000000000);
	assert_string_equal(rig->last_find.project, "acme");
	assert_string_equal(rig->last_find.policy, "p");
	assert_string_equal(rig->last_find.destination, "*.example.com");
	assert_int_equal(rig->last_find.verdicts, 1u << WEIR_DENY);
	assert_int_equal(rig->last_find.ends, 1u << RUN_END_EXIT);
	assert_int_equal(rig->last_find.limit, 5);
	assert_int_equal(rig->last_find.after, 77);
	reply_free(&reply);
	reply = call(rig, (struct call){.method = "GET", .path = "/v1/audit"});
	assert_int_equal(reply.status, 200);
	assert_int_equal(rig->last_find.since_ns + rig->last_find.limit + rig->last_find.after, 0);
	reply_free(&reply);
}

static void bad_parameters(void **state)
{
	static const struct {
		const char *path, *message;
	} rows[] = {
	    {"/v1/audit?since=now", "at \"?since\": expected a time like 2026-11-30T09:05:00Z, or a date, found \"now\""},
	    {"/v1/audit?project=a&project=b", "at \"?project\": it is there twice: keep one"},
	    {"/v1/audit?nothing",
	     "at \"?nothing\": there is no such parameter here; those are since, until, project, policy, caller, agent, "
	     "destination, verdict, end, limit, cursor"},
	    {"/v1/audit?limit=501", "at \"?limit\": expected an integer from 1 to 500, found \"501\""},
	    {"/v1/audit/stream?since=1970-01-01",
	     "at \"?since\": there is no such parameter here; those are project, destination, verdict, type, after"},
	    {"/v1/audit/stream?after=-1", "at \"?after\": expected a number of up to 18 digits, found \"-1\""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		expect_error(call(rig, (struct call){.method = "GET", .path = rows[i].path}), 400, "invalid_request",
			     rows[i].message);
	expect_error(call(rig, (struct call){.method = "GET", .path = "/v1/audit/stream", .header = {"Last-Event-ID: 1 or 1"}}),
		     400, "invalid_request", "at \"Last-Event-ID\": expected a number of up to 18 digits, found \"1 or 1\"");
}

static void without_an_auditor(void **state)
{
	(void)state;
	rig->audit = RIG_ERROR;
	expect_error(call(rig, (struct call){.method = "GET", .path = "/v1/audit"}), 500, "audit_unavailable",
		     "the auditor does not answer");
	rig->audit = RIG_ANSWER;
}

/* ---- following ---- */

struct following {
	int fd;
	char *text;
	size_t len;
};

static struct following follow_room(const char *path, const char *headers, int room)
{
	struct following f = {.fd = room ? raw_connect_room(rig, room) : raw_connect(rig), .text = calloc(1, 1)};
	char request[512];

	snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " RIG_TOKEN "\r\n%s\r\n", path,
		 headers);
	raw_send(f.fd, request, strlen(request));
	return f;
}

static struct following follow(const char *path, const char *headers)
{
	return follow_room(path, headers, 0);
}

/* Reads on until that has come. */
static void await(struct following *f, const char *text)
{
	while (!strstr(f->text, text)) {
		char part[65536];
		ssize_t n =
		    poll(&(struct pollfd){.fd = f->fd, .events = POLLIN}, 1, 12000) > 0 ? recv(f->fd, part, sizeof part, 0) : 0;

		if (n <= 0)
			fail_msg("\"%s\" did not come, but: %.2000s", text, f->text);
		f->text = realloc(f->text, f->len + (size_t)n + 1);
		memcpy(f->text + f->len, part, (size_t)n);
		f->len += (size_t)n;
		f->text[f->len] = 0;
	}
}

static void stop_following(struct following *f)
{
	close(f->fd);
	free(f->text);
}

static unsigned count(const char *text, const char *word)
{
	unsigned n = 0;

	for (; (text = strstr(text, word)); text++)
		n++;
	return n;
}

/* So that the next test finds all places free. */
static void await_no_followers(void)
{
	for (int i = 0; i < 300; i++) {
		struct reply reply = call(rig, (struct call){.method = "GET", .path = "/metrics"});
		bool none = strstr(reply.body, "\nweir_audit_streams 0\n");

		reply_free(&reply);
		if (none)
			return;
		usleep(10000);
	}
	fail_msg("there are followers left");
}

static void as_they_are_written(void **state)
{
	struct following f;

	(void)state;
	rig->records = 5;
	f = follow("/v1/audit/stream?verdict=denied&project=acme", "");
	await(&f, "\r\nContent-Type: text/event-stream\r\n");
	await(&f, ": keep-alive\n\n");
	rig_await(&rig->following, 1, 3000);
	assert_string_equal(rig->last_project, "");
	assert_string_equal(rig->last_find.project, "acme");
	assert_int_equal(rig->last_find.verdicts, 1u << WEIR_DENY);
	assert_null(strstr(f.text, "id: "));
	rig->records = 7;
	await(&f, "id: 6\nevent: egress\ndata: {\"type\":\"egress\",\"seq\":6,\"pad\":\"0\"}\n\n"
		  "id: 7\nevent: egress\n");
	rig->records = 10;
	await(&f, "id: 10\nevent: gap\n");
	stop_following(&f);
	await_no_followers();
}

static void from_where_it_was(void **state)
{
	static const struct {
		const char *path, *headers;
	} rows[] = {{"/v1/audit/stream?after=17", ""},
		    {"/v1/audit/stream", "Last-Event-ID: 17\r\n"},
		    {"/v1/audit/stream?after=3", "Last-Event-ID: 17\r\n"}};

	(void)state;
	rig->records = 200;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct following f = follow(rows[i].path, rows[i].headers);

		await(&f, "\"seq\":200,");
		assert_int_equal(count(f.text, "\ndata: "), 183);
		assert_null(strstr(f.text, "id: 17\n"));
		stop_following(&f);
	}
	{
		struct following f = follow("/v1/audit/stream?after=0&type=gap", "");

		await(&f, "id: 200\n");
		assert_int_equal(count(f.text, "\ndata: "), 20);
		assert_int_equal(count(f.text, "event: egress"), 0);
		stop_following(&f);
	}
	await_no_followers();
}

/* Records that pass by unasked move a reader on: in ten seconds it is told where it is. */
static void nothing_to_say(void **state)
{
	struct following f;

	(void)state;
	rig->records = 9;
	f = follow("/v1/audit/stream?type=oom", "");
	await(&f, ": keep-alive\n\n");
	rig_await(&rig->following, 1, 3000);
	rig->records = 12;
	await(&f, ": keep-alive\nid: 12\n\n");
	stop_following(&f);
	await_no_followers();
}

static void only_so_many(void **state)
{
	struct following f[LIMIT_AUDIT_STREAMS];

	(void)state;
	for (int i = 0; i < LIMIT_AUDIT_STREAMS; i++) {
		f[i] = follow("/v1/audit/stream", "");
		await(&f[i], ": keep-alive\n\n");
	}
	expect_error(call(rig, (struct call){.method = "GET", .path = "/v1/audit/stream"}), 429, "quota_exceeded",
		     "no more than 8 clients follow the record at once");
	stop_following(&f[0]);
	rig->records = 1000; /* one that is gone is found out by the next record at the latest */
	for (int i = 0; i < 300; i++) {
		struct following more = follow("/v1/audit/stream", "");

		await(&more, "\r\n\r\n");
		f[0] = more;
		if (strstr(more.text, "HTTP/1.1 200 "))
			break;
		stop_following(&more);
		f[0].fd = -1;
		usleep(10000);
	}
	assert_true(f[0].fd >= 0);
	for (int i = 0; i < LIMIT_AUDIT_STREAMS; i++)
		stop_following(&f[i]);
	await_no_followers();
}

/* It is told so, in a last event behind a whole one, and where to go on. */
static void a_reader_that_is_too_slow(void **state)
{
	struct following f;
	char *last, *previous;
	unsigned long long after = 0, whole = 0;

	(void)state;
	rig->records = 3000;
	rig->record_bytes = 100000;
	f = follow_room("/v1/audit/stream?after=0", "", 4096);
	await(&f, "id: 1\n");
	sleep(4);
	await(&f, "\nevent: end\n");
	await(&f, "\"reason\":\"slow\",\"after\":");
	last = strstr(f.text, "\nevent: end\n");
	assert_int_equal(sscanf(strstr(last, "\"after\":"), "\"after\":%llu", &after), 1);
	for (previous = strstr(f.text, "\nid: "); previous; previous = strstr(previous + 1, "\nid: "))
		sscanf(previous, "\nid: %llu", &whole);
	assert_int_equal(after, whole);
	assert_in_range(after, 1, 200);
	stop_following(&f);
	rig->record_bytes = 0;
	await_no_followers();
}

static void the_end_of_the_service(void **state)
{
	struct rig *before = rig, *own = rig_start(true);
	struct following f, g;

	(void)state;
	rig = own;
	own->records = 4;
	f = follow("/v1/audit/stream?after=0", "");
	g = follow("/v1/audit/stream", "");
	await(&f, "id: 4\n");
	await(&g, ": keep-alive");
	rig_await(&own->following, 2, 3000);
	assert_int_equal(rig_stop(own), 0);
	await(&f, "event: end\ndata: {\"reason\":\"stopping\",\"after\":4}\n\n");
	await(&g, "event: end\ndata: {\"reason\":\"stopping\",\"after\":");
	stop_following(&f);
	stop_following(&g);
	rig = before;
}

static void the_end_of_the_auditor(void **state)
{
	struct rig *before = rig, *own = rig_start(true);
	struct following f;

	(void)state;
	rig = own;
	f = follow("/v1/audit/stream", "");
	rig_await(&own->following, 1, 3000);
	own->hang_up_auditor = true;
	await(&f, "event: error\ndata: {\"error\":{\"code\":\"audit_unavailable\"");
	stop_following(&f);
	expect_error(call(rig, (struct call){.method = "GET", .path = "/v1/audit/stream"}), 500, "audit_unavailable",
		     "the auditor is gone");
	assert_int_equal(rig_stop(own), 0);
	rig = before;
}

/* ---- figures ---- */

static void assert_has(const char *text, const char *line)
{
	if (!strstr(text, line))
		fail_msg("no \"%s\" in:\n%s", line, text);
}

static void figures(void **state)
{
	struct reply reply = call(rig, (struct call){.method = "GET", .path = "/metrics"});

	(void)state;
	assert_int_equal(reply.status, 200);
	assert_non_null(strstr(reply.head, "Content-Type: text/plain; version=0.0.4; charset=utf-8"));
	assert_has(reply.body, "\nweir_process_up{process=\"supervisor\"} 1\n");
	assert_has(reply.body, "\nweir_process_up{process=\"auditor\"} 1\n");
	assert_has(reply.body, "\nweir_runs_total{kind=\"call\",end=\"timeout\"} 3\n");
	assert_has(reply.body, "\nweir_egress_attempts_total{of=\"runs\",verdict=\"would_deny\"} 18446744073709551615\n");
	assert_has(reply.body, "\nweir_policy_generation{of=\"snippet\"} 4\n");
	assert_null(strstr(reply.body, "weir_policy_generation{of=\"tool\"}"));
	assert_has(reply.body, "\nweir_bpf_run_seconds_total{program=\"a\\\"b\\\\c\"} 1.500000001\n");
	assert_has(reply.body, "\nweir_uptime_seconds 1.500000\n");
	assert_has(reply.body, "\nweir_stage_seconds_bucket{stage=\"build\",le=\"0.00025\"} 0\n");
	assert_has(reply.body, "\nweir_audit_records_written_total 12\n");
	assert_has(reply.body, "\nweir_audit_gaps_total{kind=\"sweep\"} 2\n");
	assert_has(reply.body, "\nweir_audit_chain_entries 7\n");
	assert_null(strstr(reply.body, "weir_audit_write_errors_total")); /* it was not told */
	assert_has(reply.body, "\nweir_refused_requests_total{status=\"400\"} ");
	reply_free(&reply);
}

/* However many ask, the others are asked once at a time. */
static void many_ask_at_once(void **state)
{
	unsigned before = rig->scrapes;
	int fds[20];

	(void)state;
	rig->slow_metrics = true;
	for (int i = 0; i < 20; i++) {
		static const char request[] = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
					      "Authorization: Bearer " RIG_TOKEN "\r\n\r\n";

		fds[i] = raw_connect(rig);
		raw_send(fds[i], request, sizeof request - 1);
	}
	for (int i = 0; i < 20; i++) {
		char *text = raw_read(fds[i], 3000);

		assert_has(text, "\nweir_process_up{process=\"supervisor\"} 1\n");
		free(text);
		close(fds[i]);
	}
	rig->slow_metrics = false;
	assert_true(rig->scrapes - before < 10);
}

static void figures_that_are_not_there(void **state)
{
	struct reply reply;

	(void)state;
	rig->short_metrics = true;
	rig->audit = RIG_ERROR;
	reply = call(rig, (struct call){.method = "GET", .path = "/metrics"});
	rig->short_metrics = false;
	rig->audit = RIG_ANSWER;
	assert_int_equal(reply.status, 200);
	assert_has(reply.body, "\nweir_process_up{process=\"supervisor\"} 0\n");
	assert_has(reply.body, "\nweir_process_up{process=\"auditor\"} 0\n");
	assert_null(strstr(reply.body, "weir_runs_total"));
	assert_null(strstr(reply.body, "weir_audit_records"));
	reply_free(&reply);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_search),
	    cmocka_unit_test(bad_parameters),
	    cmocka_unit_test(without_an_auditor),
	    cmocka_unit_test(as_they_are_written),
	    cmocka_unit_test(from_where_it_was),
	    cmocka_unit_test(nothing_to_say),
	    cmocka_unit_test(only_so_many),
	    cmocka_unit_test(a_reader_that_is_too_slow),
	    cmocka_unit_test(the_end_of_the_service),
	    cmocka_unit_test(the_end_of_the_auditor),
	    cmocka_unit_test(figures),
	    cmocka_unit_test(many_ask_at_once),
	    cmocka_unit_test(figures_that_are_not_there),
	    cmocka_unit_test(ends_well),
	};

	return cmocka_run_group_tests_name("audit", tests, begin, NULL);
}
