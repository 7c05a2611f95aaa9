/* SPDX-License-Identifier: Apache-2.0 */
/* From a run's result to the answer's JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "api/answer.h"
#include "core/limits.h"

static char out[] = "42\n", err[] = "a\0\xff"
				    "b";
static char summary[] =
    "{\"egress\": {\"attempts\": 1, \"denied\": 1, \"allowed\": 0, \"lost\": 0, \"destinations\": [{\"port\": "
    "53}]}, \"audit_hash\": \"00ff\"}";

static struct run_result sample(void)
{
	struct run_result r = {
	    .outcome = RUN_DONE,
	    .ran = true,
	    .timeout_s = 20,
	    .grant = {.sandbox_id = "sandbox-abcde", .run_id = "sandbox-abcde", .python = "3.12.1"},
	    .end = {.end = RUN_END_SIGNAL,
		    .exit_code = 139,
		    .signal = SIGSEGV,
		    .ran = 1,
		    .duration_us = 12999,
		    .cpu_us = 1500,
		    .memory_peak = 1 << 20,
		    .cpu_source = "cgroup2 cpu.stat",
		    .attempts = 3,
		    .denied = 2,
		    .allowed = 1,
		    .net_bytes = 60,
		    .meter = {.there = 1,
			      .cpu_us = 1250,
			      .peak_rss = 4096,
			      .written_bytes = 20,
			      .processes = 2,
			      .syscalls_refused = 5}},
	    .out = {out, err},
	    .out_len = {3, 4},
	    .out_bytes = {3, 5},
	    .truncated = true,
	    .summary = summary,
	    .summary_len = sizeof summary - 1,
	    .queue_us = 123,
	    .send_us = 2000,
	};

	return r;
}

/* An answer read as a client reads it: one line, one newline at its end. */
static json_t *answer(const struct run_result *r)
{
	size_t len = 0;
	char *text = answer_result(r, &len);
	json_t *body;

	assert_non_null(text);
	assert_int_equal(strlen(text), len);
	assert_ptr_equal(strchr(text, '\n'), text + len - 1);
	body = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	assert_non_null(body);
	free(text);
	return body;
}

static char files[4096];
static size_t files_len;

static void add(uint32_t kind, const char *path, uint64_t size, const void *content)
{
	struct collected_entry e = {.kind = kind, .path_len = (uint32_t)strlen(path), .size = size};

	memcpy(files + files_len, &e, sizeof e);
	memcpy(files + files_len + sizeof e, path, e.path_len);
	files_len += sizeof e + e.path_len;
	if (kind == COLLECTED_FILE) {
		memcpy(files + files_len, content, size);
		files_len += size;
	}
}

static struct run_result with_files(void)
{
	struct run_result r = sample();

	assert_true(run_files_ok(files, files_len));
	r.files = (struct run_files){.data = files, .len = files_len};
	return r;
}

/* The whole answer, member by member, as text: what a client sees. */
static void whole_answer(void **state)
{
	static const char want[] =
	    "{\"sandbox_id\": \"sandbox-abcde\", \"run_id\": \"sandbox-abcde\", \"stdout\": \"42\\n\", "
	    "\"stderr\": \"a\\u0000\xef\xbf\xbd"
	    "b\", \"exit_code\": 139, \"duration_ms\": 12, "
	    "\"termination\": {\"reason\": \"signal\", \"signal\": \"SIGSEGV\", \"detail\": \"\"}, \"truncated\": true, "
	    "\"stdout_bytes\": 3, \"stderr_bytes\": 5, "
	    "\"usage\": {\"cpu_ms\": {\"value\": 1.5, \"source\": \"cgroup2 cpu.stat\", "
	    "\"checked\": {\"value\": 1.25, \"source\": \"sched_process_exit\"}}, "
	    "\"memory_peak_bytes\": {\"value\": null, \"source\": null, "
	    "\"checked\": {\"value\": 4096, \"source\": \"largest process, sched_process_exit\"}}, "
	    "\"output_bytes\": {\"value\": 8, \"source\": \"pipe reader\", "
	    "\"checked\": {\"value\": 20, \"source\": \"task io accounting\"}}, "
	    "\"net_bytes\": {\"value\": 60, \"source\": \"cgroup_skb\", \"checked\": null}, "
	    "\"stages\": {\"queue_ms\": 0.123, \"send_ms\": 2, \"run_ms\": 12.999, \"collect_ms\": 0}}, \"processes\": 2, "
	    "\"refused_syscalls\": {\"count\": 5}, "
	    "\"egress\": {\"attempts\": 1, \"denied\": 1, \"allowed\": 0, \"lost\": 0, \"destinations\": [{\"port\": 53}]}, "
	    "\"audit_hash\": \"00ff\", \"python\": \"3.12.1\", "
	    "\"files\": [{\"path\": \"a\\\"b.png\", \"size\": 3, \"content_base64\": \"AP/+\", \"media_type\": \"image/png\"}, "
	    "{\"path\": \"dir/e\", \"size\": 0, \"content_base64\": \"\", \"media_type\": \"application/octet-stream\"}], "
	    "\"files_skipped\": [{\"path\": \"l\", \"reason\": \"symlink\"}, "
	    "{\"path\": \"x\", \"reason\": \"too large\", \"size\": 1125899906842624}], "
	    "\"files_skipped_unlisted\": 7}\n";
	struct run_result r;
	size_t len;
	char *text;

	(void)state;
	files_len = 0;
	add(COLLECTED_FILE, "a\"b.png", 3, "\0\xff\xfe");
	add(COLLECTED_FILE, "dir/e", 0, "");
	add(COLLECTED_SYMLINK, "l", 11, NULL);
	add(COLLECTED_TOO_LARGE, "x", 1ull << 50, NULL);
	r = with_files();
	r.files.skipped_unlisted = 7;
	text = answer_result(&r, &len);
	assert_string_equal(text, want);
	assert_int_equal(len, sizeof want - 1);
	free(text);
}

/* No auditor, or nonsense from it: exact counters, and all detail counted as lost. Never an invented destination. */
static void egress_without_the_auditor(void **state)
{
	static const char *const bad[] = {NULL,
					  "",
					  "[]",
					  "{}",
					  "{\"destinations\": 1}",
					  "{\"attempts\": 1",
					  "null",
					  "{\"egress\": {\"destinations\": 1}, \"audit_hash\": \"00\"}"};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct run_result r = sample();
		json_t *body, *egress;

		r.summary = (char *)bad[i];
		r.summary_len = bad[i] ? strlen(bad[i]) : 0;
		body = answer(&r);
		egress = json_object_get(body, "egress");
		assert_int_equal(json_integer_value(json_object_get(egress, "attempts")), 3);
		assert_int_equal(json_integer_value(json_object_get(egress, "denied")), 2);
		assert_int_equal(json_integer_value(json_object_get(egress, "allowed")), 1);
		assert_int_equal(json_integer_value(json_object_get(egress, "lost")), 3);
		assert_int_equal(json_array_size(json_object_get(egress, "destinations")), 0);
		assert_true(json_is_null(json_object_get(body, "audit_hash"))); /* nobody vouches for a record */
		json_decref(body);
	}
}

/* What nobody has measured is null, and no zero. */
static void without_the_meter(void **state)
{
	static const char *const figures[] = {"cpu_ms", "memory_peak_bytes", "output_bytes", "net_bytes"};
	struct run_result r = sample();
	json_t *body;

	(void)state;
	r.end.meter = (struct tell_meter){.cpu_us = 7, .syscalls_refused = UINT64_MAX};
	body = answer(&r);
	for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
		assert_true(
		    json_is_null(json_object_get(json_object_get(json_object_get(body, "usage"), figures[i]), "checked")));
	assert_true(json_is_null(json_object_get(body, "processes")));
	assert_true(json_is_null(json_object_get(body, "refused_syscalls")));
	json_decref(body);
}

static void every_ending_has_its_name(void **state)
{
	static const char *const names[] = {"exit", "signal", "timeout", "memory", "output", "cancelled"};

	(void)state;
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		struct run_result r = sample();
		json_t *body;
		const char *reason = NULL, *signal_name = NULL;

		r.end.end = i;
		r.end.signal = i == 1 ? SIGRTMIN : 0;
		body = answer(&r);
		json_unpack(body, "{s:{s:s, s?:s}}", "termination", "reason", &reason, "signal", &signal_name);
		assert_string_equal(reason, names[i]);
		if (i == 1)
			assert_string_equal(signal_name, "SIG34");
		else
			assert_true(json_is_null(json_object_get(json_object_get(body, "termination"), "signal")));
		json_decref(body);
	}
}

/* Always there, also when there is nothing in them. */
static void no_files(void **state)
{
	struct run_result r = sample();
	json_t *body = answer(&r);

	(void)state;
	assert_int_equal(json_array_size(json_object_get(body, "files")), 0);
	assert_true(json_is_array(json_object_get(body, "files")));
	assert_true(json_is_array(json_object_get(body, "files_skipped")));
	assert_int_equal(json_array_size(json_object_get(body, "files_skipped")), 0);
	assert_null(json_object_get(body, "files_skipped_unlisted"));
	assert_null(json_object_get(body, "session_ended"));
	json_decref(body);
}

/* A directory that nobody could look into is not an empty one. */
static void nothing_could_be_collected(void **state)
{
	struct run_result r = sample();
	const char *path, *reason, *detail;
	json_t *body;

	(void)state;
	r.files.problem = "the collector did not answer";
	body = answer(&r);
	assert_int_equal(json_array_size(json_object_get(body, "files")), 0);
	assert_int_equal(
	    json_unpack(body, "{s:[{s:s, s:s, s:s}]}", "files_skipped", "path", &path, "reason", &reason, "detail", &detail),
	    0);
	assert_string_equal(path, ".");
	assert_string_equal(reason, "unreadable");
	assert_string_equal(detail, r.files.problem);
	json_decref(body);
}

static void every_reason_has_its_name(void **state)
{
	static const char *const reasons[] = {"symlink",  "fifo",     "socket",	    "device", "too large",
					      "too many", "too deep", "unreadable", "name"};
	struct run_result r;
	json_t *body, *skipped;

	(void)state;
	files_len = 0;
	for (uint32_t kind = COLLECTED_SYMLINK; kind < COLLECTED_KINDS; kind++)
		add(kind, kind == COLLECTED_NAME ? "\xff" : "p", 1, NULL);
	r = with_files();
	body = answer(&r);
	skipped = json_object_get(body, "files_skipped");
	assert_int_equal(json_array_size(skipped), COLLECTED_KINDS - 1);
	for (size_t i = 0; i < COLLECTED_KINDS - 1; i++)
		assert_string_equal(json_string_value(json_object_get(json_array_get(skipped, i), "reason")), reasons[i]);
	json_decref(body);
}

/* What is no text can be had back from its escaped form; what is text is not touched, backslashes and all. */
static void paths(void **state)
{
	static const char *const texts[] = {"caf\xc3\xa9/\xf0\x9f\x8e\x89", "a\\xff", "tab\t\x01\x7f\x1b[2J\"", "\xef\xbb\xbf"};
	static const struct {
		const char *path, *escaped;
	} rows[] = {
	    {"\xc3.txt", "\\xc3.txt"},
	    {"a\\\xff\xc3\xa9", "a\\\\\\xff\xc3\xa9"},
	    {"d\xed\xa0\x80", "d\\xed\\xa0\\x80"},
	    {"\xf0\x9f\x8e", "\\xf0\\x9f\\x8e"},
	};
	struct run_result r;
	json_t *body;

	(void)state;
	files_len = 0;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		add(COLLECTED_FILE, texts[i], 0, "");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		add(COLLECTED_NAME, rows[i].path, 0, NULL);
	r = with_files();
	body = answer(&r);
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		assert_string_equal(
		    json_string_value(json_object_get(json_array_get(json_object_get(body, "files"), i), "path")), texts[i]);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_string_equal(
		    json_string_value(json_object_get(json_array_get(json_object_get(body, "files_skipped"), i), "path")),
		    rows[i].escaped);
	json_decref(body);
}

/* Only a cell says whether its session lives on. */
static void sessions(void **state)
{
	(void)state;
	for (uint32_t over = 0; over <= 1; over++) {
		struct run_result r = sample();
		json_t *body;

		r.session = true;
		r.end.over = over;
		body = answer(&r);
		assert_true(json_is_boolean(json_object_get(body, "session_ended")));
		assert_int_equal(json_is_true(json_object_get(body, "session_ended")), over);
		json_decref(body);
	}
}

/* The harness could not place a file: a link on the way is an escape, everything else is named. Nothing has run. */
static void refused_files(void **state)
{
	struct run_result r = {.outcome = RUN_REFUSED, .end = {.refused_errno = ELOOP, .refused_index = 3}};
	struct api_error e;

	(void)state;
	answer_error(&r, &e);
	assert_int_equal(error_row(e.kase)->status, 502);
	assert_string_equal(e.message, "file path escapes working directory");
	assert_false(e.ran);
	r.end.refused_errno = EXDEV;
	answer_error(&r, &e);
	assert_int_equal(e.kase, ERROR_PATH_ESCAPES);
	r.end.refused_errno = EISDIR;
	answer_error(&r, &e);
	assert_int_equal(e.kase, ERROR_FILE_CONFLICT);
	assert_string_equal(e.message, "at \"/files/3/path\": the file can't be written there: Is a directory");
	assert_false(e.ran);
}

static void errors(void **state)
{
	struct run_result r = {.outcome = RUN_FAILED, .fail = {.layer = "seccomp", .text = "no such system call"}};
	struct api_error e;

	(void)state;
	answer_error(&r, &e);
	assert_int_equal(e.kase, ERROR_SANDBOX);
	assert_string_equal(e.message, "sandbox failed at layer seccomp: no such system call");
	assert_false(e.ran);
	r.ran = true;
	answer_error(&r, &e);
	assert_string_equal(e.message, "the run was lost (seccomp): no such system call");
	assert_true(e.ran);
	r = (struct run_result){.outcome = RUN_BUSY};
	answer_error(&r, &e);
	assert_string_equal(e.message, "no warm sandbox pod available, try again shortly");
	assert_false(e.ran);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(whole_answer),
	    cmocka_unit_test(egress_without_the_auditor),
	    cmocka_unit_test(without_the_meter),
	    cmocka_unit_test(every_ending_has_its_name),
	    cmocka_unit_test(no_files),
	    cmocka_unit_test(nothing_could_be_collected),
	    cmocka_unit_test(every_reason_has_its_name),
	    cmocka_unit_test(paths),
	    cmocka_unit_test(sessions),
	    cmocka_unit_test(refused_files),
	    cmocka_unit_test(errors),
	};

	return cmocka_run_group_tests_name("http_answer", tests, NULL, NULL);
}
