/* SPDX-License-Identifier: Apache-2.0 */
/* From notes to records to what answers say: what a run used, what was started and refused in it, and what of it is not known.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "auditor/record.h"
#include "auditor/view.h"
#include "core/limits.h"

static struct note note(uint32_t type)
{
	struct note n = {.type = type, .wall_ns = 1738324800000000000u, .boot_ns = 9000000000u};

	strcpy(n.run_id, "r1");
	strcpy(n.sandbox_id, "s1");
	strcpy(n.project, "dev");
	return n;
}

/* As the store does: the body, with its number. */
static void add(struct view *v, const struct note *n)
{
	static json_int_t seq;
	json_t *body;

	assert_null(record_note_problem(n));
	body = record_body(n);
	assert_non_null(body);
	assert_int_equal(json_object_set_new(body, "seq", json_integer(++seq)), 0);
	assert_int_equal(view_add(v, body), 0);
	json_decref(body);
}

static struct note an_end(uint64_t attempts)
{
	struct note n = note(NOTE_RUN_END);

	n.end = (struct tell_end){.ran = 1, .attempts = attempts, .denied = attempts, .cpu_us = 1500, .memory_peak = 4096};
	strcpy(n.end.cpu_source, "cgroup2 cpu.stat");
	strcpy(n.end.memory_source, "cgroup2 memory.peak");
	return n;
}

static struct note an_event(uint64_t number, uint8_t address)
{
	struct note n = note(NOTE_EVENT);

	n.event.key =
	    (struct weir_flow_key){.family = 4, .protocol = 17, .hook = WEIR_HOOK_EGRESS, .cgroup = 5, .generation = 1};
	n.event.key.daddr[15] = address;
	n.event.seq = number;
	n.event.time_ns = 8000000000u;
	return n;
}

static struct note a_program(const char *path, size_t len)
{
	struct note n = note(NOTE_EXEC);

	n.exec =
	    (struct weir_meter_event){.type = WEIR_METER_EXEC, .pid = 3, .host_pid = 1003, .seq = 1, .time_ns = 8000000000u};
	n.exec.path_len = (uint16_t)len;
	memcpy(n.exec.path, path, len);
	memset(n.exec.comm, 0xff, sizeof n.exec.comm);
	return n;
}

static struct note a_call(uint32_t number, uint64_t count)
{
	struct note n = note(NOTE_SYSCALL);

	n.syscall.number = number;
	n.syscall.error = EPERM;
	n.syscall.count = count;
	n.syscall.first_ns = 8000000000u;
	n.syscall.last_ns = 8500000000u;
	snprintf(n.syscall.name, sizeof n.syscall.name, "call%u", number);
	return n;
}

/* json_pack's way: the object at the end of a path of names. */
static const json_t *at(const json_t *json, const char *path)
{
	char name[64];

	for (const char *p = path; *p;) {
		size_t n = strcspn(p, ".");

		memcpy(name, p, n);
		name[n] = 0;
		json = json_is_array(json) ? json_array_get(json, (size_t)atoi(name)) : json_object_get(json, name);
		p += n + (p[n] == '.');
	}
	assert_non_null(json);
	return json;
}

static long long number(const json_t *json, const char *path)
{
	assert_true(json_is_integer(at(json, path)));
	return json_integer_value(at(json, path));
}

static const char *text(const json_t *json, const char *path)
{
	assert_true(json_is_string(at(json, path)));
	return json_string_value(at(json, path));
}

static bool is_null(const json_t *json, const char *path)
{
	return json_is_null(at(json, path));
}

static json_t *finished(struct view *v)
{
	json_t *run = view_run(v, "ended");

	assert_non_null(run);
	view_free(v);
	return run;
}

static struct tell_usage an_usage(void)
{
	struct tell_usage u = {.end = an_end(5).end, .flow_bytes = 90, .there = 1};

	u.end.duration_us = 2000999;
	u.end.denied = 3;
	u.end.would_deny = 0;
	u.end.net_bytes = 100;
	u.end.meter = (struct tell_meter){
	    .there = 1, .cpu_us = 1250, .written_bytes = 77, .processes = 4, .threads = 9, .execs = 3, .syscalls_refused = 6};
	return u;
}

static void test_both_sources(void **state)
{
	struct note n = an_end(0);
	struct content_told told = {.told = 1 << CONTENT_STDOUT | 1 << CONTENT_STDERR};
	struct view *v = view_new();
	json_t *run, *content;

	(void)state;
	n.end.net_bytes = 100;
	n.end.meter = (struct tell_meter){.there = 1,
					  .cpu_us = 1250,
					  .peak_rss = 4000,
					  .written_bytes = 77,
					  .processes = 2,
					  .threads = 5,
					  .execs = 3,
					  .packets = 4,
					  .watched_packets = 1,
					  .watched_bytes = 40,
					  .denied_packets = 9,
					  .denied_bytes = 90};
	told.of[CONTENT_STDOUT].bytes = 50;
	told.of[CONTENT_STDERR].bytes = 20;
	content = record_content("r1", "s1", "dev", &told);
	assert_int_equal(view_add(v, content), 0);
	json_decref(content);
	add(v, &n);
	run = finished(v);
	assert_true(json_real_value(at(run, "usage.cpu_ms.value")) == 1.5);
	assert_true(json_real_value(at(run, "usage.cpu_ms.checked.value")) == 1.25);
	assert_string_equal(text(run, "usage.cpu_ms.source"), "cgroup2 cpu.stat");
	assert_string_equal(text(run, "usage.cpu_ms.checked.source"), "sched_process_exit");
	assert_null(json_object_get(at(run, "usage.cpu_ms.checked"), "exact"));
	assert_int_equal(number(run, "usage.memory_peak_bytes.checked.value"), 4000);
	assert_int_equal(number(run, "usage.output_bytes.value"), 70);
	assert_string_equal(text(run, "usage.output_bytes.source"), "pipe reader");
	assert_int_equal(number(run, "usage.output_bytes.checked.value"), 77);
	assert_int_equal(number(run, "usage.net_bytes.checked.value"), 0);
	assert_int_equal(number(run, "packets.allowed.packets"), 3);
	assert_int_equal(number(run, "packets.allowed.bytes"), 60);
	assert_int_equal(number(run, "packets.denied.bytes"), 90);
	assert_int_equal(number(run, "processes"), 2);
	assert_int_equal(number(run, "execs.count"), 3);
	assert_int_equal(number(run, "execs.unlisted"), 3);
	assert_int_equal(number(run, "refused_syscalls.count"), 0);
	json_decref(run);
}

static void test_who_asked(void **state)
{
	struct note n = note(NOTE_RUN_BEGIN);
	struct view *v = view_new();
	json_t *run, *chained;

	(void)state;
	strcpy(n.begin.caller, "uid:0,sudo:1000");
	n.begin.command.known = 1;
	strcpy(n.begin.command.path, "./make\n\xff");
	memset(n.begin.command.sha256, 0xab, sizeof n.begin.command.sha256);
	add(v, &n);
	chained = view_chained(v, 1, "00");
	run = view_run(v, "running");
	for (int i = 0; i < 2; i++) {
		const json_t *one = i ? run : chained;

		assert_string_equal(text(one, "caller"), "uid:0,sudo:1000");
		assert_string_equal(text(one, "command.path"), "./make\\x0a\\xff");
		assert_true(json_is_false(at(one, "command.path_cut")));
		assert_memory_equal(text(one, "command.sha256"), "abababab", 8);
	}
	json_decref(chained);
	json_decref(run);
	view_free(v);
	/* Nobody, and no command: a caller is never left out, a command is no run's but `weir exec`'s. */
	v = view_new();
	n = note(NOTE_RUN_BEGIN);
	add(v, &n);
	run = view_run(v, "running");
	assert_true(json_is_null(at(run, "caller")));
	assert_null(json_object_get(run, "command"));
	json_decref(run);
	view_free(v);
	/* Whoever names a caller that none can be is not believed. */
	strcpy(n.begin.caller, "a b");
	assert_string_equal(record_note_problem(&n), "begin.caller");
	memset(n.begin.caller, 'a', sizeof n.begin.caller);
	assert_string_equal(record_note_problem(&n), "begin.caller");
	n.begin.caller[0] = 0;
	memset(n.begin.command.path, 'a', sizeof n.begin.command.path);
	assert_string_equal(record_note_problem(&n), "begin.command");
}

/* What is told of a run that goes on is in the places of its end's figures; its list is what the record has so far. */
static void test_live(void **state)
{
	struct note begin = note(NOTE_RUN_BEGIN), event = an_event(1, 7), program = a_program("/bin/true", 9);
	struct tell_usage now = an_usage();
	const uint64_t output = 70;
	struct view *v = view_new();
	json_t *run;

	(void)state;
	add(v, &begin);
	add(v, &event);
	add(v, &program);
	run = view_run(v, "running");
	assert_null(json_object_get(run, "usage"));
	assert_true(json_is_false(at(run, "egress.exact")));
	assert_int_equal(view_put_live(run, &now, &output), 0);
	assert_true(json_is_true(at(run, "live")));
	assert_int_equal(number(run, "duration_ms"), 2000);
	assert_true(json_real_value(at(run, "usage.cpu_ms.value")) == 1.5);
	assert_true(json_real_value(at(run, "usage.cpu_ms.checked.value")) == 1.25);
	assert_int_equal(number(run, "usage.output_bytes.value"), 70);
	assert_int_equal(number(run, "usage.output_bytes.checked.value"), 77);
	assert_int_equal(number(run, "usage.net_bytes.value"), 100);
	assert_int_equal(number(run, "usage.net_bytes.checked.value"), 90);
	assert_int_equal(number(run, "egress.attempts"), 5);
	assert_int_equal(number(run, "egress.denied"), 3);
	assert_true(json_is_true(at(run, "egress.exact")));
	assert_int_equal(number(run, "processes"), 4);
	assert_int_equal(number(run, "execs.count"), 3);
	assert_int_equal(number(run, "execs.unlisted"), 2);
	assert_int_equal(number(run, "refused_syscalls.count"), 6);
	assert_true(json_is_null(at(run, "termination")));
	/* What nobody has is null. */
	now.end.meter.there = 0;
	now.flow_bytes = UINT64_MAX;
	assert_int_equal(view_put_live(run, &now, NULL), 0);
	assert_true(json_is_null(at(run, "usage.cpu_ms.checked")));
	assert_true(json_is_null(at(run, "usage.net_bytes.checked")));
	assert_true(json_is_null(at(run, "usage.output_bytes.value")));
	assert_true(json_is_null(at(run, "processes")));
	json_decref(run);
	view_free(v);
}

/* What nobody has measured is null, and never nought. */
static void test_not_known(void **state)
{
	struct note n = an_end(0);
	struct view *v = view_new();
	json_t *run;

	(void)state;
	n.end.cpu_source[0] = n.end.memory_source[0] = 0;
	n.end.meter.syscalls_refused = UINT64_MAX;
	add(v, &n);
	run = finished(v);
	for (const char *const *path =
		 (const char *const[]){"usage.cpu_ms.value", "usage.cpu_ms.source", "usage.cpu_ms.checked",
				       "usage.memory_peak_bytes.value", "usage.output_bytes.value",
				       "usage.output_bytes.checked", "processes", "threads", "execs.count", "oom_victims",
				       "refused_syscalls", "content", "limits", "boot_id", "chain", "audit_hash", NULL};
	     *path; path++)
		if (!is_null(run, *path))
			fail_msg("%s is not null", *path);
	json_decref(run);
}

/* Paths and names are a program's own: any bytes, told apart whatever they are. */
static void test_programs(void **state)
{
	static const char hostile[] = "/tmp/\"<b>\x1b[2J\\x\xe2\x80\xae\n";
	char longest[WEIR_EXEC_PATH_MAX];
	struct view *v = view_new();
	struct note n;
	json_t *run;

	(void)state;
	n = a_program(hostile, sizeof hostile - 1);
	add(v, &n);
	memset(longest, 0xff, sizeof longest);
	n = a_program(longest, sizeof longest - 1);
	n.exec.path_cut = 1;
	add(v, &n);
	for (int i = 0; i < LIMIT_AUDIT_EXECS; i++) {
		n = a_program("/bin/true", 9);
		add(v, &n);
	}
	n = a_program("", 0);
	n.exec.type = WEIR_METER_OOM;
	add(v, &n);
	n = an_end(0);
	n.end.meter.there = 1;
	n.end.meter.execs = LIMIT_AUDIT_EXECS + 10;
	n.end.meter.incomplete = 2;
	n.end.meter.details_dropped = 5;
	add(v, &n);
	run = finished(v);
	assert_string_equal(text(run, "execs.programs.0.path"), "/tmp/\"<b>\\x1b[2J\\x5cx\\xe2\\x80\\xae\\x0a");
	assert_string_equal(text(run, "execs.programs.0.time"), "2025-01-31T11:59:59.000000000Z");
	assert_int_equal(number(run, "execs.programs.0.host_pid"), 1003);
	assert_int_equal(strlen(text(run, "execs.programs.1.path")), 4 * (sizeof longest - 1));
	assert_true(json_is_true(at(run, "execs.programs.1.path_cut")));
	assert_int_equal(json_array_size(at(run, "execs.programs")), LIMIT_AUDIT_EXECS);
	assert_int_equal(number(run, "execs.count"), LIMIT_AUDIT_EXECS + 10);
	assert_int_equal(number(run, "execs.unlisted"), 10);
	assert_int_equal(json_array_size(at(run, "oom_killed")), 1);
	/* None of them has told how large it was. */
	assert_true(is_null(run, "usage.memory_peak_bytes.checked"));
	assert_false(is_null(run, "usage.cpu_ms.checked"));
	/* Of two tasks the meter could not see the end. */
	assert_true(json_is_false(at(run, "usage.cpu_ms.checked.exact")));
	assert_null(json_object_get(at(run, "usage.output_bytes.checked"), "exact"));
	assert_int_equal(number(run, "details_dropped"), 5);
	json_decref(run);
}

static void test_calls(void **state)
{
	struct view *v = view_new();
	struct note n;
	json_t *run;

	(void)state;
	for (uint32_t i = 0; i < LIMIT_AUDIT_SYSCALLS + 6; i++) {
		n = a_call(i, 2);
		add(v, &n);
	}
	n = a_call(0, 5); /* more of the first */
	n.syscall.last_ns = 8900000000u;
	add(v, &n);
	n = an_end(0);
	n.end.meter.syscalls_refused = 2 * (LIMIT_AUDIT_SYSCALLS + 6) + 5;
	add(v, &n);
	run = finished(v);
	assert_int_equal(json_array_size(at(run, "refused_syscalls.calls")), LIMIT_AUDIT_SYSCALLS);
	assert_int_equal(number(run, "refused_syscalls.calls_omitted"), 6);
	assert_int_equal(number(run, "refused_syscalls.count"), 2 * (LIMIT_AUDIT_SYSCALLS + 6) + 5);
	assert_string_equal(text(run, "refused_syscalls.calls.0.name"), "call0");
	assert_string_equal(text(run, "refused_syscalls.calls.0.errno"), "EPERM");
	assert_int_equal(number(run, "refused_syscalls.calls.0.count"), 7);
	assert_string_equal(text(run, "refused_syscalls.calls.0.first"), "2025-01-31T11:59:59.000000000Z");
	assert_string_equal(text(run, "refused_syscalls.calls.0.last"), "2025-01-31T11:59:59.900000000Z");
	assert_int_equal(number(run, "refused_syscalls.calls.1.count"), 2);
	json_decref(run);
}

static void test_moments(void **state)
{
	struct view *v = view_new();
	struct note n = note(NOTE_SAMPLES);
	json_t *run;

	(void)state;
	n.samples.count = NOTE_SAMPLES_MAX;
	for (uint32_t i = 0; i < NOTE_SAMPLES_MAX; i++)
		n.samples.of[i] = (struct note_sample){.at_ms = 50 * i, .memory_kib = 3, .processes = i, .denied = i};
	for (int i = 0; i < LIMIT_AUDIT_SAMPLES / NOTE_SAMPLES_MAX + 1; i++)
		add(v, &n);
	n.samples.count = NOTE_SAMPLES_MAX + 1;
	assert_string_equal(record_note_problem(&n), "samples.count");
	run = finished(v);
	assert_int_equal(json_array_size(at(run, "timeline")), LIMIT_AUDIT_SAMPLES);
	assert_int_equal(number(run, "timeline_omitted"), NOTE_SAMPLES_MAX);
	assert_int_equal(number(run, "timeline.2.at_ms"), 100);
	assert_int_equal(number(run, "timeline.2.memory_bytes"), 3072);
	assert_true(is_null(run, "timeline.0.processes"));
	json_decref(run);
}

/* A number that is missing is an event that is missing, whatever the counters add up to; who shares its account does not count.
 */
static void test_holes(void **state)
{
	static const uint64_t numbers[] = {4, 2, 7}; /* two rings: they come in any order */
	struct view *v = view_new();
	struct note n;
	json_t *run;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		n = an_event(numbers[i], (uint8_t)i);
		add(v, &n);
	}
	n = an_event(900, 9); /* of its packets' carrier */
	n.event.key.cgroup = 6;
	add(v, &n);
	n = an_end(4);
	add(v, &n);
	run = finished(v);
	assert_int_equal(number(run, "egress.events_missing"), 3);
	assert_int_equal(number(run, "egress.lost"), 3);
	json_decref(run);

	v = view_new();
	for (uint64_t i = 1; i <= 3; i++) {
		n = an_event(i, (uint8_t)i);
		add(v, &n);
	}
	n = an_end(3);
	add(v, &n);
	run = finished(v);
	assert_int_equal(number(run, "egress.events_missing"), 0);
	assert_int_equal(number(run, "egress.lost"), 0);
	json_decref(run);
}

/* Between the cells of a session: numbers that are missing here are in the cells' own records; what the kernel counts is not.
 */
static void test_holes_of_a_session(void **state)
{
	struct view *v = view_new();
	struct note n;
	json_t *run;

	(void)state;
	for (uint64_t i = 1; i <= 9; i += 4) {
		n = an_event(i, (uint8_t)i);
		strcpy(n.run_id, "s1");
		add(v, &n);
	}
	run = view_run(v, "running");
	assert_true(is_null(run, "egress.events_missing"));
	assert_int_equal(number(run, "egress.lost"), 0);
	json_decref(run);
	n = an_end(4);
	strcpy(n.run_id, "s1");
	n.end.cell = 2;
	n.end.meter.events_lost = 1;
	add(v, &n);
	run = finished(v);
	assert_int_equal(number(run, "egress.events_missing"), 1);
	assert_int_equal(number(run, "egress.lost"), 1);
	json_decref(run);
}

/* Which document judged an event, when it was replaced in between. */
static void test_policy_of_event(void **state)
{
	struct view *v = view_new();
	struct note n = note(NOTE_RUN_BEGIN);
	json_t *run;

	(void)state;
	n.begin.policy.generation = 1;
	memset(n.begin.policy.hash, 0x11, 32);
	n.begin.memory_bytes = 1 << 20;
	strcpy(n.begin.boot_id, "0ab3");
	add(v, &n);
	n = note(NOTE_POLICY);
	n.policy.now.generation = 2;
	memset(n.policy.now.hash, 0x22, 32);
	add(v, &n);
	for (uint8_t i = 1; i <= 3; i++) {
		n = an_event(i, i);
		n.event.key.generation = i;
		add(v, &n);
	}
	run = finished(v);
	assert_memory_equal(text(run, "events.0.policy_hash"), "1111", 4);
	assert_memory_equal(text(run, "events.1.policy_hash"), "2222", 4);
	assert_true(is_null(run, "events.2.policy_hash"));
	assert_int_equal(number(run, "limits.memory_bytes"), 1 << 20);
	assert_true(is_null(run, "limits.cpu_percent"));
	assert_string_equal(text(run, "boot_id"), "0ab3");
	json_decref(run);
}

/* What goes into the chain: sums, and no list that the digest over the records covers. */
static void test_chained(void **state)
{
	uint8_t hash[CHAIN_HASH] = {0xab};
	struct view *v = view_new();
	struct note n = note(NOTE_RUN_BEGIN);
	json_t *body;

	(void)state;
	add(v, &n);
	n = a_program("/bin/true", 9);
	add(v, &n);
	n = an_event(1, 1);
	add(v, &n);
	n = an_end(1);
	add(v, &n);
	body = view_chained(v, 4, "cafe");
	assert_string_equal(text(body, "kind"), "run");
	assert_string_equal(text(body, "run_id"), "r1");
	assert_int_equal(number(body, "records"), 4);
	assert_string_equal(text(body, "records_sha256"), "cafe");
	assert_int_equal(number(body, "egress.denied"), 1);
	for (const char *const *name = (const char *const[]){"events", "timeline", "chain", "audit_hash", "state", NULL}; *name;
	     name++)
		assert_null(json_object_get(body, *name));
	assert_null(json_object_get(json_object_get(body, "execs"), "programs"));
	json_decref(body);
	view_set_chain(v, 12, hash, true);
	body = finished(v);
	assert_int_equal(number(body, "chain.n"), 12);
	assert_memory_equal(text(body, "chain.hash"), "ab00", 4);
	assert_string_equal(text(body, "audit_hash"), text(body, "chain.hash"));
	assert_true(json_is_true(at(body, "chain.signed")));
	json_decref(body);
}

#define REFUSED(kind, change, field)                                                                                           \
	do {                                                                                                                   \
		struct note n = note(kind);                                                                                    \
		n.exec.type = kind == NOTE_EXEC ? WEIR_METER_EXEC : n.exec.type;                                               \
		assert_null(record_note_problem(&n));                                                                          \
		change;                                                                                                        \
		assert_non_null(record_note_problem(&n));                                                                      \
		assert_string_equal(record_note_problem(&n), field);                                                           \
	} while (0)

static void test_refused(void **state)
{
	(void)state;
	REFUSED(NOTE_EXEC, n.exec.type = 3, "exec.type");
	REFUSED(NOTE_EXEC, n.exec.path_len = sizeof n.exec.path, "exec.path_len");
	REFUSED(NOTE_EXEC, n.exec.path_cut = 2, "exec.path_cut");
	REFUSED(NOTE_EXEC, n.run_id[0] = 0, "run_id");
	REFUSED(NOTE_SYSCALL, memset(n.syscall.name, 'x', sizeof n.syscall.name), "syscall.name");
	REFUSED(NOTE_SYSCALL, n.run_id[0] = 0, "run_id");
	REFUSED(NOTE_SAMPLES, n.samples.count = 9, "samples.count");
	REFUSED(NOTE_START, memset(n.start.kernel, 'x', sizeof n.start.kernel), "start.kernel");
	REFUSED(NOTE_RUN_BEGIN, memset(n.begin.boot_id, 'x', sizeof n.begin.boot_id), "begin.boot_id");
	REFUSED(NOTE_WINDOW_END, memset(n.window.cpu_source, 'x', sizeof n.window.cpu_source), "cpu_source");
	REFUSED(NOTE_POLICY_TEXT, n.text.len = sizeof n.text.text + 1, "text.len");
	REFUSED(NOTE_POLICY_TEXT, n.text.len = 1, "text.total");
	REFUSED(NOTE_POLICY_TEXT, (n.text.total = 10, n.text.offset = 8, n.text.len = 3), "text.total");
	REFUSED(NOTE_POLICY_TEXT, (n.text.total = LIMIT_AUDIT_POLICY_BYTES + 1, n.text.len = 1), "text.total");
}

static void test_content_problem(void **state)
{
	struct content_told c = {.told = 1 << CONTENT_CODE, .stored = 1 << CONTENT_CODE};

	(void)state;
	c.of[CONTENT_CODE].bytes = c.of[CONTENT_CODE].kept = c.of[CONTENT_CODE].stored = LIMIT_AUDIT_CONTENT_BYTES;
	assert_null(record_content_problem(&c));
	c.of[CONTENT_CODE].bytes = c.of[CONTENT_CODE].kept = c.of[CONTENT_CODE].stored = LIMIT_AUDIT_CONTENT_BYTES + 1;
	assert_string_equal(record_content_problem(&c), "content.stored");
	c.of[CONTENT_CODE].stored = 0;
	assert_null(record_content_problem(&c));
	c.of[CONTENT_CODE].kept++;
	assert_string_equal(record_content_problem(&c), "content.kept");
	c = (struct content_told){.stored = 1};
	assert_string_equal(record_content_problem(&c), "content.stored");
	c = (struct content_told){.told = 1 << CONTENT_KINDS};
	assert_string_equal(record_content_problem(&c), "content.told");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_who_asked),	    cmocka_unit_test(test_live),     cmocka_unit_test(test_both_sources),
	    cmocka_unit_test(test_not_known),	    cmocka_unit_test(test_programs), cmocka_unit_test(test_calls),
	    cmocka_unit_test(test_moments),	    cmocka_unit_test(test_holes),    cmocka_unit_test(test_holes_of_a_session),
	    cmocka_unit_test(test_policy_of_event), cmocka_unit_test(test_chained),  cmocka_unit_test(test_refused),
	    cmocka_unit_test(test_content_problem),
	};

	return cmocka_run_group_tests_name("view", tests, NULL, NULL);
}
