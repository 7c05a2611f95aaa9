/* SPDX-License-Identifier: Apache-2.0 */
/* What the record says of an attachment, note by note; how far it is, for who comes after; and whose it is. */
#include "store_fixture.h"

#include "core/coverage.h"
#include "core/tokens.h"
#include "supervisor/progress.h"

#define RUN "attached-0123456789.1"

static struct note a_target(void)
{
	struct note n = note(NOTE_TARGET, RUN);

	n.target.cgroup = 77;
	n.target.level = 3;
	n.target.coverage = COVERAGE_PARTIAL;
	n.target.attached_ns = 1738324800000000000u;
	n.target.sockets = 3;
	n.target.sockets_beyond = 2;
	n.target.proven = 1;
	n.target.canary_attempts = 4;
	n.target.canary_denied = 3;
	strcpy(n.target.kind, "container");
	strcpy(n.target.runtime, "podman");
	strcpy(n.target.container, "0123456789ab");
	return n;
}

static struct note a_place(uint32_t which, const char *text)
{
	struct note n = note(NOTE_PLACE, RUN);

	n.place.which = which;
	snprintf(n.place.text, sizeof n.place.text, "%s", text);
	return n;
}

static struct note a_weakness(uint32_t which, const char *detail)
{
	struct note n = note(NOTE_WEAKNESS, RUN);

	n.weak.weakness = which;
	snprintf(n.weak.detail, sizeof n.weak.detail, "%s", detail);
	return n;
}

static struct note a_socket(uint8_t verdict)
{
	struct note n = note(NOTE_SOCKET, RUN);

	n.socket.pid = 812;
	memcpy(n.socket.comm, "sixteen_letters_", 16); /* no terminator: the kernel's own may have none */
	n.socket.family = 4;
	n.socket.protocol = 6;
	n.socket.state = 1;
	n.socket.verdict = verdict;
	n.socket.connected = 1;
	memcpy(n.socket.local, "\0\0\0\0\0\0\0\0\0\0\377\377\12\0\0\1", 16);
	memcpy(n.socket.remote, "\0\0\0\0\0\0\0\0\0\0\377\377\12\0\0\2", 16);
	n.socket.local_port = 40000;
	n.socket.remote_port = 443;
	return n;
}

static struct note a_drift(const char *name, uint32_t over)
{
	struct note n = note(NOTE_DRIFT, RUN);

	n.drift.over = over;
	snprintf(n.drift.name, sizeof n.drift.name, "%s", name);
	strcpy(n.drift.text, "a link was taken away\033[2J");
	return n;
}

static struct note a_gap(void)
{
	struct note n = note(NOTE_UNDRAINED, RUN);

	n.undrained.since_ns = 1738324700000000000u;
	n.undrained.counts = (struct note_counts){.attempts = 50, .denied = 49, .allowed = 1, .unlisted = 7};
	n.undrained.unfinished = 4;
	return n;
}

static struct note a_window_end(uint64_t attempts, uint64_t unlisted, uint64_t dropped)
{
	struct note n = note(NOTE_WINDOW_END, RUN);

	n.window.why = WINDOW_HOUR;
	n.window.duration_us = 5000000;
	n.window.counts = (struct note_counts){.attempts = attempts, .denied = attempts, .unlisted = unlisted, .net_bytes = 9};
	n.window.dropped = dropped;
	return n;
}

static json_t *get(const json_t *json, const char *name)
{
	return json_object_get(json, name);
}

static void test_record(void **state)
{
	struct store *s = open_store(BIG);
	json_t *run, *target, *item;

	(void)state;
	assert_int_equal(put(s, note(NOTE_RUN_BEGIN, RUN)), 0);
	assert_int_equal(put(s, a_target()), 0);
	assert_int_equal(put(s, a_place(PLACE_CGROUP, "/machine.slice/x")), 0);
	assert_int_equal(put(s, a_place(PLACE_REF, "0123456789ab")), 0);
	assert_int_equal(put(s, a_weakness(WEAK_NET_RAW, "pid 812 (nginx)")), 0);
	assert_int_equal(put(s, a_socket(WEIR_DENY)), 0);
	assert_int_equal(put(s, a_gap()), 0);
	assert_int_equal(put(s, event(RUN, key(8, 53, WEIR_DENY), "", 0)), 0);
	assert_int_equal(put(s, a_drift("detached", 0)), 0);
	assert_int_equal(put(s, a_drift("detached", 1)), 0);
	assert_int_equal(store_state(s, RUN), STORE_RUNNING);
	assert_int_equal(put(s, a_window_end(60, 7, 2)), 0);
	assert_int_equal(store_state(s, RUN), STORE_ENDED);

	run = run_json(s, RUN, false);
	assert_text(run, "state", "ended");
	target = get(run, "target");
	assert_text(target, "kind", "container");
	assert_text(target, "cgroup", "/machine.slice/x");
	assert_text(target, "ref", "0123456789ab");
	assert_text(target, "coverage", "partial");
	assert_int_equal(number(target, "cgroup_id"), 77);
	assert_int_equal(number(target, "sockets_open"), 3);
	assert_int_equal(number(target, "sockets_beyond"), 2);
	assert_null(get(target, "unknown"));
	assert_true(json_is_true(get(get(target, "canary"), "proven")));

	item = json_array_get(get(run, "reasons"), 0);
	assert_text(item, "name", weakness_rows[WEAK_NET_RAW].name);
	assert_text(item, "detail", "pid 812 (nginx)");
	assert_text(item, "mend", weakness_rows[WEAK_NET_RAW].mend);
	item = json_array_get(get(run, "sockets"), 0);
	assert_text(item, "command", "sixteen_letters_");
	assert_text(item, "state", "established");
	assert_text(item, "remote", "10.0.0.2");
	assert_text(item, "verdict", "denied");
	assert_int_equal(number(item, "remote_port"), 443);
	item = json_array_get(get(run, "gaps"), 0);
	assert_text(item, "kind", "undrained");
	assert_text(item, "since", "2025-01-31T11:58:20.000000000Z");
	assert_int_equal(number(item, "attempts"), 50);
	assert_int_equal(number(item, "unfinished"), 4);
	assert_int_equal(json_array_size(get(run, "drift")), 2);
	item = json_array_get(get(run, "drift"), 0);
	assert_true(json_is_false(get(item, "over")));
	assert_text(item, "text", "a link was taken away\\x1b[2J"); /* nothing that a terminal would obey */
	assert_true(json_is_true(get(json_array_get(get(run, "drift"), 1), "over")));

	assert_text(get(run, "termination"), "reason", "hour");
	assert_null(get(run, "exit_code"));
	assert_true(json_is_true(get(run, "counters_readable")));
	assert_int_equal(number(run, "duration_ms"), 5000);
	item = get(run, "egress");
	assert_int_equal(number(item, "attempts"), 60);
	/* 59 have no event of their own; but only those that the kernel and we know of are lost. */
	assert_int_equal(number(item, "lost"), 9);
	assert_true(json_is_true(get(item, "exact")));
	json_decref(run);
	store_free(s);
}

/* A run of a sandbox's has none of it, and its lost is what its counters say. */
static void test_others(void **state)
{
	struct store *s = open_store(BIG);
	json_t *run;

	(void)state;
	assert_int_equal(put(s, note(NOTE_RUN_BEGIN, "r1")), 0);
	assert_int_equal(put(s, event("r1", key(8, 53, WEIR_DENY), "", 0)), 0);
	assert_int_equal(put(s, run_end("r1", 60, 60, 0)), 0);
	run = run_json(s, "r1", false);
	assert_null(get(run, "target"));
	assert_null(get(run, "drift"));
	assert_int_equal(number(get(run, "egress"), "lost"), 59);
	json_decref(run);
	store_free(s);
}

static void test_parent(void **state)
{
	struct store *s = open_store(BIG);
	struct note n = a_target(), who = note(NOTE_CGROUP, RUN);
	struct note known = event(RUN, key(8, 53, WEIR_DENY), "", 0);
	struct note gone = event(RUN, key(9, 53, WEIR_DENY), "", 0);
	json_t *run, *events;

	(void)state;
	n.target.parent = n.target.passes = 1;
	assert_int_equal(put(s, note(NOTE_RUN_BEGIN, RUN)), 0);
	assert_int_equal(put(s, n), 0);
	who.cgroup.id = known.event.key.cgroup;
	snprintf(who.cgroup.path, sizeof who.cgroup.path, "/all/x\033[2J");
	assert_int_equal(put(s, who), 0);
	assert_int_equal(put(s, known), 0);
	gone.event.key.cgroup = known.event.key.cgroup + 1;
	assert_int_equal(put(s, gone), 0);
	memset(who.cgroup.path, 'x', sizeof who.cgroup.path);
	assert_string_equal(record_note_problem(&who), "cgroup.path");
	run = run_json(s, RUN, false);
	assert_text(get(run, "target"), "unknown", "allow");
	/* Who it was, by path and number. */
	events = get(run, "events");
	assert_text(json_array_get(events, 0), "cgroup", "/all/x\\x1b[2J");
	assert_int_equal(number(json_array_get(events, 0), "cgroup_id"), known.event.key.cgroup);
	assert_text(json_array_get(events, 1), "cgroup", "");
	assert_int_equal(number(json_array_get(events, 1), "cgroup_id"), gone.event.key.cgroup);
	json_decref(run);
	store_free(s);
}

/* However often something goes wrong, an answer stays an answer. */
static void test_bounded(void **state)
{
	struct store *s = open_store(BIG);
	struct note drift = a_drift("detached", 0), open_socket = a_socket(WEIR_ALLOW);
	json_t *run;

	(void)state;
	assert_int_equal(put(s, a_target()), 0);
	store_begin(s);
	for (int i = 0; i < 1100; i++) {
		store_append(s, &drift);
		store_append(s, &open_socket);
	}
	assert_int_equal(store_commit(s, NULL), 0);
	run = run_json(s, RUN, false);
	assert_int_equal(json_array_size(get(run, "drift")), 256);
	assert_int_equal(number(run, "drift_omitted"), 1100 - 256);
	assert_int_equal(json_array_size(get(run, "sockets")), 1024);
	assert_int_equal(number(run, "sockets_omitted"), 1100 - 1024);
	json_decref(run);
	store_free(s);
}

static void test_malformed(void **state)
{
	struct note n;

	(void)state;
	n = a_target();
	assert_null(record_note_problem(&n));
	n.target.coverage = 3;
	assert_string_equal(record_note_problem(&n), "target.coverage");
	n = a_target();
	memset(n.target.container, 'a', sizeof n.target.container);
	assert_string_equal(record_note_problem(&n), "target.container");
	n = a_place(PLACES, "/x");
	assert_string_equal(record_note_problem(&n), "place.which");
	n = a_place(PLACE_REF, "/x");
	memset(n.place.text, 'a', sizeof n.place.text);
	assert_string_equal(record_note_problem(&n), "place.text");
	n = a_weakness(WEAKNESSES, "");
	assert_string_equal(record_note_problem(&n), "weak.weakness");
	n = a_socket(WEIR_VERDICT_COUNT);
	assert_string_equal(record_note_problem(&n), "socket.verdict");
	n = a_socket(0);
	n.socket.family = 5;
	assert_string_equal(record_note_problem(&n), "socket.family");
	n = a_drift("x", 0);
	memset(n.drift.text, 'a', sizeof n.drift.text);
	assert_string_equal(record_note_problem(&n), "drift.text");
	n = a_window_end(1, 0, 0);
	n.window.why = WINDOW_ENDS;
	assert_string_equal(record_note_problem(&n), "window.why");
	n = a_gap();
	n.run_id[0] = 0;
	assert_string_equal(record_note_problem(&n), "run_id");
	n = note(NOTE_FLUSH + 1, RUN);
	assert_string_equal(record_note_problem(&n), "type");
	/* All notes are of one size: these must not make each event dearer. */
	assert_true(sizeof(struct note) <= 960);
}

/* ---- how far the record is ---- */

static char progress_path[96];

static struct progress *open_progress(void)
{
	struct progress *p = NULL;
	struct err e;

	snprintf(progress_path, sizeof progress_path, "%s/drained", dir_path);
	assert_int_equal(progress_open(&p, progress_path, &e), 0);
	return p;
}

static void test_progress(void **state)
{
	struct progress *p = open_progress();
	struct progress_at at = {.record = 7, .open = 1, .seen.attempts = 5}, got;
	struct progress_slot *slot = progress_of(p, "attached-0123456789");

	(void)state;
	assert_non_null(slot);
	assert_false(progress_read(slot, &got));
	progress_write(slot, &at);
	at.seen.attempts = 6;
	progress_write(slot, &at);
	progress_close(p);

	p = open_progress(); /* the next service */
	slot = progress_of(p, "attached-0123456789");
	assert_true(progress_read(slot, &got));
	assert_int_equal(got.record, 7);
	assert_int_equal(got.seen.attempts, 6);
	progress_forget(slot);
	assert_false(progress_read(progress_of(p, "attached-0123456789"), &got));
	progress_close(p);
	unlink(progress_path);
}

static bool only_first(void *ctx, const char *id)
{
	(void)ctx;
	return strcmp(id, "attached-0000000000") == 0;
}

static void test_progress_full(void **state)
{
	struct progress *p = open_progress();
	char id[IPC_ID_MAX];

	(void)state;
	for (int i = 0; i < 512; i++) {
		snprintf(id, sizeof id, "attached-%010d", i);
		assert_non_null(progress_of(p, id));
	}
	assert_null(progress_of(p, "attached-one-more"));
	progress_prune(p, only_first, NULL);
	assert_non_null(progress_of(p, "attached-one-more"));
	progress_close(p);
	unlink(progress_path);
}

/* Of another form, or cut short: made anew, never believed. */
static void test_progress_damaged(void **state)
{
	struct progress *p = open_progress();
	struct progress_at at = {.record = 7}, got;
	const char *const id = "attached-0123456789";
	int fd;

	(void)state;
	progress_write(progress_of(p, id), &at);
	progress_close(p);
	fd = open(progress_path, O_WRONLY);
	assert_int_equal(pwrite(fd, "no magic", 8, 0), 8);
	p = open_progress();
	assert_false(progress_read(progress_of(p, id), &got));
	progress_write(progress_of(p, id), &at);
	progress_close(p);
	assert_int_equal(ftruncate(fd, 100), 0);
	close(fd);
	p = open_progress();
	assert_false(progress_read(progress_of(p, id), &got));
	progress_close(p);
	unlink(progress_path);
	assert_int_equal(mkdir(progress_path, 0700), 0);
	assert_true(progress_open(&p, progress_path, &(struct err){0}) < 0);
	rmdir(progress_path);
}

/* ---- whose it is ---- */

/* However it got into the table: a token of that name opens nothing. */
static void test_nobodys_token(void **state)
{
	static const char *const hosts[] = {"attached", "cli", "exec"};
	struct tokens_file *file = calloc(1, sizeof *file);
	struct tokens_used *used = calloc(1, sizeof *used);
	const struct tokens t = {file, used};
	struct token_slot slot = {.scopes = SCOPE_PROJECT, .id = "tok-x3k9q2ab"};
	struct identity who;

	(void)state;
	strcpy(slot.project, "ours");
	slot.sha256[0] = 1;
	assert_true(tokens_add(file, used, &slot, 1000) >= 0);
	for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
		strcpy(slot.project, hosts[i]);
		slot.sha256[0] = (uint8_t)(2 + i);
		assert_true(tokens_add(file, used, &slot, 1000) >= 0);
	}
	slot.sha256[0] = 1;
	assert_true(tokens_find(&t, slot.sha256, 1001, &who));
	for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
		slot.sha256[0] = (uint8_t)(2 + i);
		assert_false(tokens_find(&t, slot.sha256, 1001, &who));
		assert_true(token_project_reserved(hosts[i]));
	}
	assert_false(token_project_reserved("attached-2"));
	assert_false(token_project_reserved("execs"));
	free(file);
	free(used);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_record, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_others, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_parent, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_bounded, setup, teardown),
	    cmocka_unit_test(test_malformed),
	    cmocka_unit_test_setup_teardown(test_progress, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_progress_full, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_progress_damaged, setup, teardown),
	    cmocka_unit_test(test_nobodys_token),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
