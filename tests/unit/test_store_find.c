/* SPDX-License-Identifier: Apache-2.0 */
/* Searching runs and following records: what is found, in which order, and what nobody else's may see. */
#include "store_fixture.h"

static struct note of(struct note n, const char *project)
{
	snprintf(n.project, sizeof n.project, "%s", project);
	return n;
}

static struct weir_flow_key to(const char *address, uint8_t verdict)
{
	struct weir_flow_key k = key(0, 443, verdict);
	unsigned a, b, c, d;

	assert_int_equal(sscanf(address, "%u.%u.%u.%u", &a, &b, &c, &d), 4);
	k.daddr[12] = (uint8_t)a, k.daddr[13] = (uint8_t)b, k.daddr[14] = (uint8_t)c, k.daddr[15] = (uint8_t)d;
	return k;
}

/* `name`: as in a packet, "" for none. */
static void run(struct store *s, const char *id, const char *project, const char *agent, const char *address, uint8_t verdict,
		const char *name)
{
	struct note n = of(note(NOTE_RUN_BEGIN, id), project);

	snprintf(n.begin.agent, sizeof n.begin.agent, "%s", agent);
	snprintf(n.begin.caller, sizeof n.begin.caller, "token:tok-%.2s", id + 2); /* the same ones in both projects */
	strcpy(n.begin.policy.name, strcmp(project, "a") == 0 ? "strict" : "loose");
	store_begin(s);
	store_append(s, &n);
	n = of(event(id, to(address, verdict), name, (uint16_t)(name[0] ? strlen(name) + 1 : 0)), project);
	store_append(s, &n);
	n = of(run_end(id, 1, verdict == WEIR_DENY, 0), project);
	n.end.end = strcmp(id, "a-3") == 0 ? RUN_END_TIMEOUT : RUN_END_EXIT;
	store_append(s, &n);
	store_finish(s, id);
	assert_int_equal(store_commit(s, NULL), 0);
}

static struct store *some_runs(void)
{
	struct store *s = open_store(BIG);

	run(s, "a-1", "a", "", "10.0.0.1", WEIR_DENY, "\3www\7Example\3com");
	run(s, "a-2", "a", "bot", "10.0.0.2", WEIR_ALLOW, "\7example\3com");
	run(s, "a-3", "a", "other", "192.0.2.7", WEIR_DENY, "");
	run(s, "b-1", "b", "", "10.0.0.1", WEIR_WOULD_DENY, "\3www\7example\3org");
	run(s, "b-2", "b", "bot", "10.0.1.1", WEIR_DENY, "\12notexample\3com");
	put(s, of(note(NOTE_RUN_BEGIN, "b-3"), "b"));
	return s;
}

/* The ids of the answer, one after the other: "b-2 b-1". */
static void assert_found(struct store *s, struct find f, const char *project, const char *agent, const char *want)
{
	char found[512] = "";
	json_t *answer = NULL, *run_found;
	size_t i;

	assert_int_equal(store_search(s, &f, project, agent, &answer), 0);
	json_array_foreach(json_object_get(answer, "runs"), i, run_found)
	{
		snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s", i ? " " : "",
			 json_string_value(json_object_get(run_found, "run_id")));
	}
	json_decref(answer);
	assert_string_equal(found, want);
}

static void test_filters(void **state)
{
	static const struct {
		struct find f;
		const char *want;
	} rows[] = {
	    {{.limit = 0}, "b-3 b-2 b-1 a-3 a-2 a-1"},
	    {{.project = "a"}, "a-3 a-2 a-1"},
	    {{.project = "nobody"}, ""},
	    {{.policy = "strict"}, "a-3 a-2 a-1"},
	    {{.caller = "token:tok-1"}, "b-1 a-1"},
	    {{.caller = "token:tok-1", .project = "a"}, "a-1"},
	    {{.caller = "token:tok-"}, ""},
	    {{.caller = "token:tok-*"}, ""},
	    {{.agent = "bot"}, "b-2 a-2"},
	    {{.agent = "bot", .project = "a"}, "a-2"},
	    {{.agent = "nobody"}, ""},
	    {{.destination = "10.0.0.1"}, "b-1 a-1"},
	    {{.destination = "10.0.0.*"}, "b-1 a-2 a-1"},
	    {{.destination = "10.0.*"}, "b-2 b-1 a-2 a-1"},
	    {{.destination = "example.com"}, "a-2"},
	    {{.destination = "WWW.example.COM"}, "a-1"},
	    {{.destination = "*.example.com"}, "a-1"},
	    {{.destination = "*example.com"}, "b-2 a-2 a-1"},
	    {{.destination = "www.*"}, "b-1 a-1"},
	    {{.destination = "%"}, ""},
	    {{.destination = "www.example.co_"}, ""},
	    {{.destination = "' OR 1 --"}, ""},
	    {{.destination = "*"}, "b-2 b-1 a-3 a-2 a-1"},
	    {{.destination = "10.0.0.1", .verdicts = 1 << WEIR_DENY}, "a-1"},
	    {{.destination = "10.0.0.1", .project = "b"}, "b-1"},
	    {{.verdicts = 1 << WEIR_DENY}, "b-2 a-3 a-1"},
	    {{.verdicts = 1 << WEIR_ALLOW | 1 << WEIR_WOULD_DENY}, "b-1 a-2"},
	    {{.ends = 1 << RUN_END_TIMEOUT}, "a-3"},
	    {{.ends = 1 << RUN_END_TIMEOUT | 1 << RUN_END_EXIT}, "b-2 b-1 a-3 a-2 a-1"},
	    {{.since_ns = 1738324800000000001u}, ""},
	    {{.until_ns = 1738324800000000000u}, ""},
	    {{.since_ns = 1738324800000000000u, .until_ns = 1738324800000000001u}, "b-3 b-2 b-1 a-3 a-2 a-1"},
	    {{.since_ns = UINT64_MAX}, ""},
	};
	struct store *s = some_runs();

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		assert_found(s, rows[i].f, "", "", rows[i].want);
	store_free(s);
}

/* What another project did is not there: not by filter, not by cursor, not in numbers. */
static void test_visibility(void **state)
{
	struct store *s = some_runs();
	json_t *answer = NULL;

	(void)state;
	assert_found(s, (struct find){0}, "a", "", "a-3 a-2 a-1");
	assert_found(s, (struct find){.project = "b"}, "a", "", "");
	assert_found(s, (struct find){.caller = "token:tok-1"}, "a", "", "a-1");
	assert_found(s, (struct find){.agent = "bot"}, "a", "", "a-2");
	assert_found(s, (struct find){.agent = "other"}, "a", "bot", "");
	assert_found(s, (struct find){.destination = "10.0.*"}, "a", "", "a-2 a-1");
	assert_found(s, (struct find){.destination = "*.example.org"}, "a", "", "");
	assert_found(s, (struct find){.after = 100}, "a", "", "a-3 a-2 a-1");
	/* an agent sees its own calls and what is no agent's, as it does by id */
	assert_found(s, (struct find){0}, "a", "bot", "a-2 a-1");
	assert_found(s, (struct find){0}, "nobody", "", "");
	/* the page after the last of one's own is none, whatever others have */
	assert_int_equal(store_search(s, &(struct find){.limit = 3}, "a", "", &answer), 0);
	assert_true(json_is_null(json_object_get(answer, "next")));
	json_decref(answer);
	store_free(s);
}

static void test_pages(void **state)
{
	struct store *s = some_runs();
	struct find f = {.limit = 2};
	json_t *answer = NULL;
	size_t pages = 0, total = 0;

	(void)state;
	for (const char *next = "0"; next; pages++) {
		char cursor[32];

		snprintf(cursor, sizeof cursor, "%s", next);
		f.after = strtoull(cursor, NULL, 10);
		json_decref(answer);
		assert_int_equal(store_search(s, &f, "", "", &answer), 0);
		total += json_array_size(json_object_get(answer, "runs"));
		next = json_string_value(json_object_get(answer, "next"));
	}
	json_decref(answer);
	assert_int_equal(total, 6);
	assert_int_equal(pages, 3);
	store_free(s);
}

static void test_row(void **state)
{
	struct store *s = open_store(BIG);
	struct note n = note(NOTE_RUN_BEGIN, "attached-1.1");
	json_t *answer = NULL, *row;

	(void)state;
	run(s, "r1", "a", "bot", "10.0.0.1", WEIR_DENY, "");
	put(s, n);
	n = note(NOTE_TARGET, "attached-1.1");
	strcpy(n.target.kind, "container");
	put(s, n);
	n = note(NOTE_PLACE, "attached-1.1");
	n.place.which = PLACE_REF;
	strcpy(n.place.text, "web");
	put(s, n);
	n = note(NOTE_RUN_BEGIN, "sess");
	put(s, n);
	n = note(NOTE_RUN_BEGIN, "sess.1");
	strcpy(n.sandbox_id, "sess");
	put(s, n);
	put(s, note(NOTE_RUN_BEGIN, "exec-1"));
	assert_int_equal(store_search(s, &(struct find){0}, "", "", &answer), 0);
	row = json_object_get(answer, "runs");
	assert_int_equal(json_array_size(row), 5);
	assert_text(json_array_get(row, 0), "kind", "exec");
	assert_text(json_array_get(row, 1), "kind", "cell");
	assert_text(json_array_get(row, 2), "kind", "session");
	assert_text(json_array_get(row, 3), "kind", "attached");
	assert_text(json_array_get(row, 3), "target", "container");
	assert_text(json_array_get(row, 3), "ref", "web");
	row = json_array_get(row, 4);
	assert_text(row, "kind", "call");
	assert_text(row, "agent", "bot");
	assert_text(row, "state", "ended");
	assert_text(row, "end", "exit");
	assert_text(row, "began", "2025-01-31T12:00:00.000000000Z");
	assert_int_equal(number(row, "denied"), 1);
	assert_int_equal(strlen(json_string_value(json_object_get(row, "audit_hash"))), 64);
	assert_null(json_object_get(row, "ref"));
	json_decref(answer);
	store_free(s);
}

/* The numbers of the records, and the cursor after them. */
static void assert_follows(struct store *s, struct find f, const char *project, const char *agent, const char *want,
			   long long cursor)
{
	char found[512] = "";
	json_t *answer = NULL, *record;
	size_t i;

	assert_int_equal(store_follow(s, &f, project, agent, &answer), 0);
	json_array_foreach(json_object_get(answer, "records"), i, record)
	{
		snprintf(found + strlen(found), sizeof found - strlen(found), "%s%lld", i ? " " : "", number(record, "seq"));
	}
	assert_string_equal(found, want);
	assert_int_equal(number(answer, "cursor"), cursor);
	json_decref(answer);
}

static void test_follow(void **state)
{
	struct store *s = some_runs(); /* three records a run, and one: 16; a-1 is 1 2 3, b-1 10 11 12 */

	(void)state;
	store_begin(s);
	store_append_gap(s, RECORD_GAP_REFUSED, 1, "nobody's");
	assert_int_equal(store_commit(s, NULL), 0);
	assert_int_equal(store_last_seq(s), 17);
	assert_follows(s, (struct find){0}, "", "", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17", 17);
	assert_follows(s, (struct find){.after = UINT64_MAX}, "", "", "", 17);
	assert_follows(s, (struct find){.after = 17}, "", "", "", 17);
	assert_follows(s, (struct find){.limit = 2}, "", "", "1 2", 2);
	assert_follows(s, (struct find){.after = 2, .limit = 2}, "", "", "3 4", 4);
	/* other projects' records, and nobody's, are not there; the cursor says only how far it has looked */
	assert_follows(s, (struct find){0}, "b", "", "10 11 12 13 14 15 16", 17);
	assert_follows(s, (struct find){.project = "a"}, "b", "", "", 17);
	assert_follows(s, (struct find){0}, "a", "bot", "1 2 3 4 5 6", 17);
	assert_follows(s, (struct find){.destination = "*.example.*"}, "", "", "", 17);
	assert_follows(s, (struct find){.destination = "*.example.com"}, "", "", "2", 17);
	assert_follows(s, (struct find){.destination = "10.0.0.1"}, "", "", "2 11", 17);
	assert_follows(s, (struct find){.verdicts = 1 << WEIR_DENY}, "", "", "2 8 14", 17);
	store_free(s);
}

/* What is found of a dead instance's run has the run's project, though the note does not say it. */
static void test_project_of_what_is_found_later(void **state)
{
	struct store *s = open_store(BIG);
	struct find f = {.project = "a"};
	json_t *answer = NULL;

	(void)state;
	put(s, of(note(NOTE_RUN_BEGIN, "r1"), "a"));
	put(s, of(event("r1", key(1, 53, WEIR_DENY), "", 0), ""));
	assert_int_equal(store_follow(s, &f, "", "", &answer), 0);
	assert_int_equal(json_array_size(json_object_get(answer, "records")), 2);
	assert_string_equal(
	    json_string_value(json_object_get(json_array_get(json_object_get(answer, "records"), 1), "project")), "a");
	json_decref(answer);
	store_free(s);
}

/* However much there is that does not match: one call looks at so much, and the next goes on. */
static void test_follow_in_pieces(void **state)
{
	struct store *s = open_store(BIG);
	struct find f = {.destination = "needle.example"};
	size_t found = 0, calls = 0;

	(void)state;
	store_begin(s);
	for (int i = 0; i < 5000; i++) {
		struct note n = event("r1", key((uint8_t)i, 53, WEIR_DENY), "", 0);

		store_append(s, &n);
	}
	assert_int_equal(store_commit(s, NULL), 0);
	put(s, event("r1", key(1, 53, WEIR_DENY), "\6needle\7example", 16));
	for (; f.after < store_last_seq(s); calls++) {
		json_t *answer = NULL;

		assert_int_equal(store_follow(s, &f, "", "", &answer), 0);
		found += json_array_size(json_object_get(answer, "records"));
		assert_true((uint64_t)number(answer, "cursor") > f.after);
		f.after = (uint64_t)number(answer, "cursor");
		json_decref(answer);
	}
	assert_int_equal(found, 1);
	assert_in_range(calls, 2, 10);
	store_free(s);
}

static void test_notices(void **state)
{
	struct store *s = open_store(BIG);
	struct chain_head head = {.n = 3, .key_id = {1}};
	json_t *all = NULL;

	(void)state;
	store_begin(s);
	store_append_gap(s, RECORD_GAP_REFUSED, 7, "first");
	assert_int_equal(store_commit(s, NULL), 0);
	assert_int_equal(store_check_head(s, &head, NULL), 1);
	store_begin(s);
	store_append_gap(s, RECORD_GAP_UNSYNCED, 1, "last");
	assert_int_equal(store_commit(s, NULL), 0);
	assert_int_equal(store_notices(s, 0, 0, 10, &all), 0);
	assert_int_equal(json_array_size(all), 3);
	assert_text(json_array_get(all, 0), "kind", "gap");
	assert_text(json_array_get(all, 0), "gap", "unsynced");
	assert_text(json_array_get(all, 1), "kind", "break");
	assert_int_equal(number(json_array_get(all, 1), "n"), 4);
	assert_text(json_array_get(all, 2), "text", "first");
	assert_int_equal(number(json_array_get(all, 2), "count"), 7);
	json_decref(all);
	assert_int_equal(store_notices(s, 0, 0, 1, &all), 0);
	assert_int_equal(json_array_size(all), 1);
	json_decref(all);
	assert_int_equal(store_notices(s, 0, 1000, 10, &all), 0);
	assert_int_equal(json_array_size(all), 0);
	json_decref(all);
	store_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_filters),
	    TEST(test_visibility),
	    TEST(test_pages),
	    TEST(test_row),
	    TEST(test_follow),
	    TEST(test_follow_in_pieces),
	    TEST(test_project_of_what_is_found_later),
	    TEST(test_notices),
	};

	return cmocka_run_group_tests_name("store_find", tests, NULL, NULL);
}
