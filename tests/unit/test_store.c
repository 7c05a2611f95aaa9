/* SPDX-License-Identifier: Apache-2.0 */
/* The record: what is written can be asked for, what is lost shows, whatever the disk or a stranger does. */
#include "store_fixture.h"

static void test_summary(void **state)
{
	struct store *s = open_store(BIG);
	struct weir_flow_key dns = key(8, 53, WEIR_DENY), tcp = key(9, 443, WEIR_DENY);
	json_t *json, *d;

	(void)state;
	tcp.protocol = 6;
	dns.name_hash = 5;
	assert_int_equal(put(s, note(NOTE_RUN_BEGIN, "r1")), 0);
	assert_int_equal(put(s, event("r1", dns, "\7example\3com", 13)), 0);
	assert_int_equal(put(s, event("r1", tcp, "", 0)), 0);
	tcp.hook = WEIR_HOOK_CONNECT4; /* another flow, the same destination */
	assert_int_equal(put(s, event("r1", tcp, "", 0)), 0);
	assert_int_equal(store_state(s, "r1"), STORE_RUNNING);
	assert_false(store_run_ended(s, "r1"));
	json = run_json(s, "r1", false);
	assert_text(json, "state", "running");
	assert_true(json_is_false(json_object_get(json_object_get(json, "egress"), "exact")));
	json_decref(json);

	assert_int_equal(put(s, flow("r1", tcp, 4)), 0);
	tcp.hook = WEIR_HOOK_EGRESS;
	assert_int_equal(put(s, flow("r1", tcp, 2)), 0);
	assert_int_equal(put(s, flow("r1", dns, 100)), 0);
	assert_int_equal(put(s, flow("r1", key(7, 9, WEIR_ALLOW), 3)), 0); /* its first attempt never came */
	assert_int_equal(put(s, run_end("r1", 114, 106, 5)), 0);
	assert_true(store_run_ended(s, "r1"));

	json = run_json(s, "r1", true);
	assert_int_equal(json_object_size(json), 7);
	assert_int_equal(number(json, "would_deny"), 0);
	assert_int_equal(number(json, "attempts"), 114);
	assert_int_equal(number(json, "denied"), 106);
	assert_int_equal(number(json, "allowed"), 8);
	assert_int_equal(number(json, "lost"), 6);
	assert_int_equal(json_array_size(json_object_get(json, "destinations")), 3);
	d = json_array_get(json_object_get(json, "destinations"), 0);
	assert_text(d, "dns_name", "example.com");
	assert_text(d, "address", "10.0.0.8");
	assert_text(d, "protocol", "udp");
	assert_text(d, "verdict", "denied");
	assert_int_equal(number(d, "port"), 53);
	assert_int_equal(number(d, "count"), 100);
	d = json_array_get(json_object_get(json, "destinations"), 1);
	assert_int_equal(number(d, "count"), 6);
	assert_true(json_is_null(json_object_get(d, "dns_name")));
	json_decref(json);

	json = run_json(s, "r1", false);
	assert_text(json, "state", "ended");
	assert_int_equal(json_array_size(json_object_get(json, "events")), 4);
	d = json_array_get(json_object_get(json, "events"), 0);
	assert_text(d, "command", "python3");
	assert_int_equal(number(d, "count"), 100);
	assert_int_equal(number(d, "bytes"), 4000);
	d = json_array_get(json_object_get(json, "events"), 3);
	assert_text(d, "attribution", "unknown");
	json_decref(json);
	assert_int_equal(store_state(s, "r2"), STORE_UNKNOWN);
	assert_int_equal(store_run(s, "r2", &(struct view *){NULL}), -ENOENT);
	store_free(s);
}

static void test_first_sixteen(void **state)
{
	struct store *s = open_store(BIG);
	json_t *json, *list;

	(void)state;
	store_begin(s);
	for (int i = 0; i < 40; i++) {
		struct note n = event("r1", key((uint8_t)(i % 20), 53, WEIR_DENY), "", 0);

		store_append(s, &n);
	}
	assert_int_equal(store_commit(s, NULL), 0);
	assert_int_equal(put(s, run_end("r1", 40, 40, 0)), 0);
	json = run_json(s, "r1", true);
	list = json_object_get(json, "destinations");
	assert_int_equal(json_array_size(list), 16);
	assert_text(json_array_get(list, 15), "address", "10.0.0.15");
	assert_int_equal(number(json_array_get(list, 15), "count"), 2);
	assert_int_equal(number(json, "lost"), 0);
	json_decref(json);
	store_free(s);
}

/* The same destination judged by other rules, in other ways and by another policy: never one event. */
static void test_judged_differently(void **state)
{
	struct store *s = open_store(BIG);
	struct weir_flow_key keys[5];
	json_t *json, *list;

	(void)state;
	for (int i = 0; i < 5; i++) {
		keys[i] = key(8, 53, WEIR_DENY);
		keys[i].reason = WEIR_REASON_RULE;
		keys[i].rule = 1;
		keys[i].generation = 1;
	}
	keys[1].rule = 2;
	keys[2].generation = 2;
	keys[3].via = WEIR_VIA_MAPPED;
	keys[4].verdict = WEIR_WOULD_DENY;
	assert_int_equal(put(s, note(NOTE_RUN_BEGIN, "r1")), 0);
	for (int i = 0; i < 5; i++) {
		struct note n = event("r1", keys[i], "", 0), f = flow("r1", keys[i], (uint64_t)i + 2);

		snprintf(n.judged.rule_name, sizeof n.judged.rule_name, keys[i].rule == 2 ? "second" : "first");
		f.judged = n.judged;
		assert_int_equal(put(s, n), 0);
		assert_int_equal(put(s, f), 0);
	}
	json = run_json(s, "r1", false); /* before the end: the counts are what is listed */
	assert_int_equal(number(json_object_get(json, "egress"), "denied"), 2 + 3 + 4 + 5);
	assert_int_equal(number(json_object_get(json, "egress"), "would_deny"), 6);
	assert_int_equal(number(json_object_get(json, "egress"), "allowed"), 0);
	json_decref(json);
	assert_int_equal(put(s, run_end("r1", 20, 14, 0)), 0);
	json = run_json(s, "r1", false);
	list = json_object_get(json, "events");
	assert_int_equal(json_array_size(list), 5);
	for (size_t i = 0; i < 5; i++)
		assert_int_equal(number(json_array_get(list, i), "count"), (long long)i + 2);
	assert_text(json_array_get(list, 1), "rule_name", "second");
	assert_text(json_array_get(list, 3), "decode_kind", "mapped");
	assert_int_equal(json_array_size(json_object_get(json_array_get(list, 3), "decode")), 2);
	json_decref(json);
	/* An answer's destinations go by what people wrote: generation and spelling aside. */
	json = run_json(s, "r1", true);
	list = json_object_get(json, "destinations");
	assert_int_equal(json_array_size(list), 3);
	assert_text(json_array_get(list, 0), "rule", "first");
	assert_text(json_array_get(list, 0), "reason", "rule");
	assert_int_equal(number(json_array_get(list, 0), "count"), 2 + 4 + 5);
	json_decref(json);
	store_free(s);
}

/* What a policy does not want listed is not lost; what the kernel could not list still is. */
static void test_quiet(void **state)
{
	struct store *s = open_store(BIG);
	struct note begin = note(NOTE_RUN_BEGIN, "quiet"), end = run_end("quiet", 100, 10, 0);
	json_t *json;

	(void)state;
	begin.begin.policy.quiet = 1;
	put(s, begin);
	put(s, event("quiet", key(8, 53, WEIR_DENY), "", 0));
	put(s, flow("quiet", key(8, 53, WEIR_DENY), 10));
	put(s, end);
	json = run_json(s, "quiet", true);
	assert_int_equal(number(json, "allowed"), 90);
	assert_int_equal(number(json, "lost"), 0);
	json_decref(json);

	begin = note(NOTE_RUN_BEGIN, "loud");
	end = run_end("loud", 100, 10, 0);
	put(s, begin);
	put(s, event("loud", key(8, 53, WEIR_DENY), "", 0));
	put(s, flow("loud", key(8, 53, WEIR_DENY), 10));
	put(s, end);
	json = run_json(s, "loud", true);
	assert_int_equal(number(json, "lost"), 90);
	json_decref(json);

	begin = note(NOTE_RUN_BEGIN, "flood");
	begin.begin.policy.quiet = 1;
	put(s, begin);
	put(s, event("flood", key(8, 53, WEIR_DENY), "", 0));
	put(s, flow("flood", key(8, 53, WEIR_DENY), 10));
	put(s, run_end("flood", 100, 20, 10));
	json = run_json(s, "flood", true);
	assert_int_equal(number(json, "lost"), 10);
	json_decref(json);
	store_free(s);
}

/* A swap's records survive a restart, and belong to the run they name or to nobody. */
static void test_policy_changes(void **state)
{
	struct store *s = open_store(BIG);
	struct note n = note(NOTE_POLICY, "");
	json_t *json, *list;

	(void)state;
	n.sandbox_id[0] = n.project[0] = 0;
	strcpy(n.policy.old.name, "old");
	strcpy(n.policy.now.name, "new");
	n.policy.now.generation = 2;
	put(s, note(NOTE_RUN_BEGIN, "r1"));
	put(s, n);
	strcpy(n.run_id, "r1");
	put(s, n);
	put(s, note(NOTE_RUN_BEGIN, "r2"));
	store_free(s);
	s = open_store(BIG);
	json = run_json(s, "r1", false);
	list = json_object_get(json, "policy_changes");
	assert_int_equal(json_array_size(list), 1);
	assert_text(json_array_get(list, 0), "policy", "new");
	assert_text(json_array_get(list, 0), "reason", "reload");
	assert_int_equal(number(json_array_get(list, 0), "policy_generation"), 2);
	json_decref(json);
	json = run_json(s, "r2", false);
	assert_int_equal(json_array_size(json_object_get(json, "policy_changes")), 0);
	json_decref(json);
	assert_int_equal(store_state(s, ""), STORE_UNKNOWN);
	store_free(s);
}

static void test_restart(void **state)
{
	struct store *s = open_store(BIG);
	long long last = 0;
	json_t *json;

	(void)state;
	put(s, note(NOTE_RUN_BEGIN, "ended"));
	put(s, run_end("ended", 0, 0, 0));
	put(s, note(NOTE_RUN_BEGIN, "cut"));
	store_free(s);

	s = open_store(BIG);
	assert_int_equal(store_stats(s)->last_seq, 4); /* three, and the gap record about the run that was cut */
	assert_int_equal(gaps(RECORD_GAP_INTERRUPTED).n, 1);
	assert_int_equal(store_state(s, "ended"), STORE_ENDED);
	assert_int_equal(store_state(s, "cut"), STORE_INTERRUPTED);
	json = run_json(s, "cut", false);
	assert_text(json, "state", "interrupted");
	json_decref(json);
	put(s, note(NOTE_RUN_BEGIN, "new"));
	assert_int_equal(store_state(s, "new"), STORE_RUNNING);
	put(s, run_end("new", 0, 0, 0));
	store_free(s);
	s = open_store(BIG);
	assert_int_equal(gaps(RECORD_GAP_INTERRUPTED).n, 1); /* said once is enough */
	store_free(s);
	each_line(check_order, &last);
}

/* What a tool's modules try comes before anybody calls the tool: those are lines of a run that has not begun. */
static void test_tried_before_the_beginning(void **state)
{
	struct store *s = open_store(BIG);
	json_t *json;

	(void)state;
	put(s, event("never", key(1, 80, WEIR_DENY), "", 0));
	put(s, event("late", key(2, 80, WEIR_DENY), "", 0));
	put(s, note(NOTE_RUN_BEGIN, "late"));
	put(s, flow("late", key(2, 80, WEIR_DENY), 3));
	put(s, run_end("late", 3, 3, 0));
	assert_int_equal(store_state(s, "never"), STORE_RUNNING);
	json = run_json(s, "late", true);
	assert_int_equal(number(json, "attempts"), 3);
	assert_int_equal(number(json, "lost"), 0);
	json_decref(json);
	store_free(s);
	s = open_store(BIG);
	assert_int_equal(gaps(RECORD_GAP_INTERRUPTED).n, 1);
	assert_int_equal(store_state(s, "never"), STORE_INTERRUPTED);
	assert_int_equal(store_state(s, "late"), STORE_ENDED);
	store_free(s);
}

static void append_raw(const char *text)
{
	int fd = openat(dir, STORE_FILE, O_WRONLY | O_APPEND);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void test_torn(void **state)
{
	static const char torn[] = "{\"seq\":2,\"type\":\"egress\",\"run_id\":\"r1\",\"dns_na";
	struct store *s = open_store(BIG);

	(void)state;
	put(s, note(NOTE_RUN_BEGIN, "r1"));
	store_free(s);
	append_raw(torn);
	assert_int_equal(store_open_readonly(&s, dir, NULL), 0); /* a reader takes no notice */
	assert_int_equal(store_state(s, "r1"), STORE_INTERRUPTED);
	store_free(s);
	s = open_store(BIG);
	assert_int_equal(store_stats(s)->torn, 1);
	assert_int_equal(gaps(RECORD_GAP_TORN).n, 1);
	assert_int_equal(gaps(RECORD_GAP_TORN).count, strlen(torn));
	assert_int_equal(store_state(s, "r1"), STORE_INTERRUPTED);
	/* and while we are running: the other writer died in the middle */
	append_raw("{\"se");
	assert_int_equal(put(s, note(NOTE_RUN_BEGIN, "r2")), 0);
	assert_int_equal(gaps(RECORD_GAP_TORN).n, 2);
	assert_int_equal(store_state(s, "r2"), STORE_RUNNING);
	store_free(s);
}

static void test_garbage(void **state)
{
	struct store *s;
	char *long_line = malloc(3000001);

	(void)state;
	memset(long_line, 'x', 3000000);
	long_line[3000000] = 0;
	s = open_store(BIG);
	put(s, note(NOTE_RUN_BEGIN, "r1"));
	store_free(s);
	append_raw("not json\n\n{\"seq\":true}\n");
	append_raw(long_line);
	append_raw("\n");
	append_raw(long_line); /* torn, and longer than the scan's buffer */
	s = open_store(BIG);
	assert_int_equal(store_stats(s)->unreadable, 4);
	assert_int_equal(store_stats(s)->torn, 1);
	assert_int_equal(store_state(s, "r1"), STORE_INTERRUPTED);
	assert_int_equal(put(s, run_end("r1", 0, 0, 0)), 0);
	assert_int_equal(store_state(s, "r1"), STORE_ENDED);
	store_free(s);
	free(long_line);
}

static void test_rotation(void **state)
{
	struct store *s = open_store(20000);
	struct stat st;
	long long last = 0;
	char id[32];
	json_t *json;

	(void)state;
	for (int i = 0; i < 200; i++) {
		snprintf(id, sizeof id, "run-%d", i);
		assert_int_equal(put(s, note(NOTE_RUN_BEGIN, id)), 0);
		if (i == 199)
			break;
		assert_int_equal(put(s, run_end(id, 0, 0, 0)), 0);
	}
	assert_in_range(store_stats(s)->rotations, 2, 10);
	assert_int_equal(fstatat(dir, STORE_FILE, &st, 0), 0);
	assert_in_range(st.st_size, 1, 20000);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(fstatat(dir, STORE_OLD_FILE, &st, 0), 0);
	assert_in_range(st.st_size, 10000, 20000);
	assert_int_equal(store_state(s, "run-0"), STORE_UNKNOWN);
	assert_int_equal(store_state(s, "run-198"), STORE_ENDED);
	/* a run that lies in both files */
	for (int i = 0; i < 30; i++)
		put(s, event("run-199", key((uint8_t)i, 1, WEIR_DENY), "", 0));
	put(s, run_end("run-199", 30, 30, 0));
	json = run_json(s, "run-199", true);
	assert_int_equal(number(json, "lost"), 0);
	json_decref(json);
	store_free(s);
	each_line(check_order, &last);

	s = open_store(20000);
	assert_int_equal(store_stats(s)->last_seq, last);
	json = run_json(s, "run-199", false);
	assert_int_equal(json_array_size(json_object_get(json, "events")), 30);
	assert_text(json, "state", "ended");
	json_decref(json);
	store_free(s);
}

/* A disk without room, played by a file size limit: in a child, since lowering it is for good. */
static void full_disk(void)
{
	struct store *s = open_store(BIG);
	struct rlimit limit = {3000, 3000};
	struct rlimit back = {RLIM_INFINITY, RLIM_INFINITY};
	uint64_t before;
	json_t *json;
	struct stat st;

	getrlimit(RLIMIT_FSIZE, &back);
	limit.rlim_max = back.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	put(s, note(NOTE_RUN_BEGIN, "r1"));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	for (int i = 0; i < 20; i++)
		put(s, event("r1", key((uint8_t)i, 1, WEIR_DENY), "", 0));
	assert_int_equal(put(s, run_end("r1", 20, 20, 0)), -EFBIG);
	before = store_stats(s)->unwritten;
	assert_in_range(before, 10, 20);
	assert_int_equal(fstatat(dir, STORE_FILE, &st, 0), 0);
	assert_true(st.st_size <= 3000);

	/* the answers say what is missing, and the exact counters are there all the same */
	assert_true(store_run_ended(s, "r1"));
	json = run_json(s, "r1", true);
	assert_int_equal(number(json, "attempts"), 20);
	assert_in_range(number(json, "lost"), before - 1, before);
	json_decref(json);
	json = run_json(s, "r1", false);
	assert_int_equal(number(json, "records_unwritten"), before);
	assert_text(json, "state", "ended");
	json_decref(json);

	/* room again: the record itself says so */
	setrlimit(RLIMIT_FSIZE, &back);
	assert_int_equal(put(s, note(NOTE_RUN_BEGIN, "r2")), 0);
	assert_int_equal(gaps(RECORD_GAP_UNWRITTEN).n, 1);
	assert_int_equal(gaps(RECORD_GAP_UNWRITTEN).count, before);
	assert_int_equal(store_stats(s)->unwritten, before);
	store_free(s);
}

static void in_child(void (*fn)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_full_disk(void **state)
{
	(void)state;
	in_child(full_disk);
}

static void test_cut_by_stranger(void **state)
{
	struct store *s = open_store(BIG);
	uint64_t seq;

	(void)state;
	put(s, note(NOTE_RUN_BEGIN, "r1"));
	put(s, note(NOTE_RUN_BEGIN, "r2"));
	seq = store_stats(s)->last_seq;
	{
		int fd = openat(dir, STORE_FILE, O_WRONLY);

		assert_int_equal(ftruncate(fd, 0), 0);
		close(fd);
	}
	assert_int_equal(put(s, note(NOTE_RUN_BEGIN, "r3")), 0);
	assert_int_equal(store_state(s, "r1"), STORE_UNKNOWN);
	assert_int_equal(store_state(s, "r3"), STORE_RUNNING);
	assert_int_equal(store_stats(s)->last_seq, seq + 1); /* the hole in the numbers stays visible */
	store_free(s);
}

static void test_readonly(void **state)
{
	struct store *w = NULL, *r = NULL;

	(void)state;
	assert_int_equal(store_open_readonly(&r, dir, NULL), -ENOENT);
	w = open_store(BIG);
	put(w, note(NOTE_RUN_BEGIN, "r1"));
	assert_int_equal(store_open_readonly(&r, dir, NULL), 0);
	assert_int_equal(store_state(r, "r1"), STORE_RUNNING);
	r = store_free(r);
	store_free(w);
	assert_int_equal(store_open_readonly(&r, dir, NULL), 0);
	assert_int_equal(store_state(r, "r1"), STORE_INTERRUPTED); /* nobody lives who could end it */
	store_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_summary),
	    TEST(test_first_sixteen),
	    TEST(test_restart),
	    TEST(test_tried_before_the_beginning),
	    TEST(test_judged_differently),
	    TEST(test_policy_changes),
	    TEST(test_quiet),
	    TEST(test_torn),
	    TEST(test_garbage),
	    TEST(test_rotation),
	    TEST(test_full_disk),
	    TEST(test_cut_by_stranger),
	    TEST(test_readonly),
	};

	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
