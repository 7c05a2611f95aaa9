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
	each_record(check_order, &last);
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

/* A disk without room, played by a file size limit: in a child, since lowering it is for good. */
static void full_disk(void)
{
	struct store *s = open_store(BIG);
	struct rlimit limit = {0, 0};
	struct rlimit back = {RLIM_INFINITY, RLIM_INFINITY};
	uint8_t hash[CHAIN_HASH];
	uint64_t before;
	json_t *json;
	struct stat st;

	getrlimit(RLIMIT_FSIZE, &back);
	limit.rlim_max = back.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	put(s, note(NOTE_RUN_BEGIN, "r1"));
	assert_int_equal(fstatat(dir, STORE_WAL_FILE, &st, 0), 0);
	limit.rlim_cur = (rlim_t)st.st_size + 100000;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	for (int i = 0; i < 20; i++)
		put(s, event("r1", key((uint8_t)i, 1, WEIR_DENY), "", 0));
	assert_int_equal(put(s, run_end("r1", 20, 20, 0)), -EFBIG);
	before = store_stats(s)->unwritten;
	assert_in_range(before, 10, 20);
	assert_int_equal(fstatat(dir, STORE_WAL_FILE, &st, 0), 0);
	assert_true(st.st_size <= (off_t)limit.rlim_cur);

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
	/* and so does the run: it can be summed up, and asked for after a restart */
	store_begin(s);
	store_finish(s, "r1");
	assert_int_equal(store_commit(s, NULL), 0);
	assert_int_equal(store_run_hash(s, "r1", hash), 0);
	/* its row says what its entry does, though the record of its end is lost */
	assert_int_equal(look_number("SELECT denied FROM run WHERE run_id = 'r1' AND \"end\" = 'exit' AND attempts = 20"), 20);
	store_free(s);
	s = open_store(BIG);
	json = run_json(s, "r1", false);
	assert_int_equal(number(json, "records_unwritten"), before);
	assert_text(json, "state", "ended");
	json_decref(json);
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

/* ---- a record that is not as it should be ---- */

static void write_at(const char *name, off_t at, const char *text)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, text, strlen(text), at), (ssize_t)strlen(text));
	close(fd);
}

static void assert_refused(int code, const char *part)
{
	struct store *s = NULL;
	struct err e = {0};

	assert_int_equal(store_open(&s, dir, &(struct audit_opts){0}, &e), -code);
	if (!strstr(e.msg, part))
		fail_msg("\"%s\" does not say \"%s\"", e.msg, part);
	assert_non_null(strstr(e.msg, "audit.db"));
	assert_non_null(strstr(e.msg, "away"));
}

/* Never the beginning of another record: it says what to do, and leaves everything where it is. */
static void test_damaged(void **state)
{
	struct store *s = open_store(BIG);
	struct stat before, after;

	(void)state;
	put(s, note(NOTE_RUN_BEGIN, "r1"));
	store_free(s);
	assert_int_equal(fstatat(dir, STORE_FILE, &before, 0), 0);
	write_at(STORE_FILE, 0, "no database");
	assert_refused(EUCLEAN, "weir audit verify");
	assert_int_equal(fstatat(dir, STORE_FILE, &after, 0), 0);
	assert_int_equal(before.st_size, after.st_size);
	write_at(STORE_FILE, 0, "SQLite format 3"); /* as it was */
	s = open_store(BIG);
	assert_int_equal(store_state(s, "r1"), STORE_INTERRUPTED);
	store_free(s);
	/* the page with its tables' names */
	write_at(STORE_FILE, 100, "\1\1\1\1\1\1\1\1");
	assert_refused(EUCLEAN, "malformed");
}

static void test_half_of_it(void **state)
{
	(void)state;
	write_at(STORE_WAL_FILE, 0, "what is left of a log");
	assert_refused(EUCLEAN, "part of the record is missing");
}

static void make_strange(const char *sql)
{
	struct store *s = open_store(BIG);
	sqlite3 *db = NULL;

	store_free(s);
	assert_int_equal(schema_open(&db, dir, false, false, NULL), 0);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

static void test_somebody_elses(void **state)
{
	(void)state;
	make_strange("PRAGMA application_id = 77");
	assert_refused(EEXIST, "is not Weir's");
}

static void test_newer(void **state)
{
	(void)state;
	make_strange("PRAGMA user_version = 2");
	assert_refused(EPROTONOSUPPORT, "version 2");
}

/* Of a link nobody follows: it might lead out of the directory. */
static void test_link(void **state)
{
	struct store *s = NULL;

	(void)state;
	write_at("elsewhere", 0, "");
	assert_int_equal(symlinkat("elsewhere", dir, STORE_FILE), 0);
	assert_true(store_open(&s, dir, &(struct audit_opts){0}, NULL) < 0);
}

static void write_and_die(void)
{
	struct store *s = open_store(BIG);

	put(s, note(NOTE_RUN_BEGIN, "first"));
	put(s, note(NOTE_RUN_BEGIN, "last"));
}

/* A log whose end did not reach the disk: what is before it is there, and nobody has to mend it. */
static void test_torn_log(void **state)
{
	struct store *s;
	struct stat st;
	int fd;

	(void)state;
	in_child(write_and_die);
	fd = openat(dir, STORE_WAL_FILE, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(ftruncate(fd, st.st_size - 2000), 0);
	close(fd);
	s = open_store(BIG);
	assert_int_equal(store_state(s, "first"), STORE_INTERRUPTED);
	assert_int_equal(store_state(s, "last"), STORE_UNKNOWN);
	assert_int_equal(put(s, note(NOTE_RUN_BEGIN, "next")), 0);
	store_free(s);
	assert_intact();
}

static void test_older_format(void **state)
{
	struct store *s;

	(void)state;
	write_at("audit.ndjson", 0, "{}\n");
	write_at("audit.ndjson.1", 0, "{}\n");
	s = open_store(BIG);
	store_free(s);
	s = open_store(BIG);
	assert_int_equal(gaps(STORE_GAP_OLDER).n, 1);
	assert_int_equal(gaps(STORE_GAP_OLDER).count, 2);
	assert_int_equal(faccessat(dir, "audit.ndjson", F_OK, 0), 0);
	assert_int_equal(faccessat(dir, "audit.ndjson.1", F_OK, 0), 0);
	store_free(s);
}

/* A complete copy in a place that can't be written to, read by somebody who could not either. */
static void read_copy(void)
{
	struct store *s = NULL;
	struct err e = {0};

	if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
		_exit(2);
	if (store_open_readonly(&s, dir, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(store_state(s, "r1"), STORE_INTERRUPTED);
	store_free(s);
}

static void test_copy(void **state)
{
	struct store *s = open_store(BIG);

	(void)state;
	put(s, note(NOTE_RUN_BEGIN, "r1"));
	store_free(s);
	assert_int_equal(faccessat(dir, STORE_WAL_FILE, F_OK, 0), -1); /* the last one to close leaves one file */
	assert_int_equal(fchmodat(dir, STORE_FILE, 0444, 0) | fchmodat(dir, STORE_LOCK_FILE, 0444, 0) | fchmod(dir, 0555), 0);
	in_child(read_copy);
	assert_int_equal(fchmod(dir, 0700), 0);
}

/* ---- what is kept beside the records ---- */

static struct content_told told(const char *code)
{
	struct content_told c = {.told = 1 << CONTENT_CODE, .stored = 1 << CONTENT_CODE};

	c.of[CONTENT_CODE].bytes = c.of[CONTENT_CODE].kept = c.of[CONTENT_CODE].stored = strlen(code);
	return c;
}

static void test_content(void **state)
{
	struct content_told c = told("print(1)");
	char *text = NULL;
	struct store *s;
	size_t len;

	(void)state;
	for (int wanted = 0; wanted < 2; wanted++) {
		const char *id = wanted ? "kept" : "hashed";

		s = open_as((struct audit_opts){.content = wanted});
		put(s, note(NOTE_RUN_BEGIN, id));
		put(s, run_end(id, 0, 0, 0));
		store_begin(s);
		store_append_content(s, id, &c, "print(1)");
		assert_int_equal(store_commit(s, NULL), 0);
		assert_int_equal(store_content(s, id, CONTENT_CODE, &text, &len), wanted ? 0 : -ENOENT);
		store_free(s);
	}
	assert_int_equal(len, 8);
	assert_string_equal(text, "print(1)");
	free(text);
	assert_int_equal(look_number("SELECT count(*) FROM record WHERE type = 'content'"), 2);
}

/* `from`: which byte of the document the part begins with; as much as fits. */
static struct note part(const char *text, uint32_t from)
{
	struct note n = {.type = NOTE_POLICY_TEXT};
	size_t len = strlen(text) - from < NOTE_POLICY_PART ? strlen(text) - from : NOTE_POLICY_PART;

	chain_body_digest(text, strlen(text), n.text.hash);
	strcpy(n.text.name, "p");
	n.text.offset = from;
	n.text.total = (uint32_t)strlen(text);
	n.text.len = (uint32_t)len;
	memcpy(n.text.text, text + from, len);
	return n;
}

static int policy_of(struct store *s, const char *text, char **ret)
{
	uint8_t hash[CHAIN_HASH];
	char hex[2 * CHAIN_HASH + 1];

	chain_body_digest(text, strlen(text), hash);
	chain_hex(hash, hex);
	return store_policy_text(s, hex, ret);
}

static void test_policy_text(void **state)
{
	struct store *s = open_store(BIG);
	char text[1001], *found = NULL;
	struct note n;

	(void)state;
	memset(text, 'p', 1000);
	text[1000] = 0;
	/* a part is missing, parts out of order, one that lies about its length: nothing is kept */
	put(s, part(text, 0));
	put(s, part(text, 768));
	put(s, part(text, 384));
	n = part(text, 0);
	n.text.len = UINT32_MAX;
	put(s, n);
	assert_int_equal(policy_of(s, text, &found), -ENOENT);
	/* another document than its hash says */
	n = part("short", 0);
	n.text.text[0] = 'S';
	put(s, n);
	assert_int_equal(policy_of(s, "short", &found), -ENOENT);
	assert_int_equal(gaps(RECORD_GAP_REFUSED).n, 1);
	for (uint32_t at = 0; at < 1000; at += NOTE_POLICY_PART)
		assert_int_equal(put(s, part(text, at)), 0);
	assert_int_equal(policy_of(s, text, &found), 0);
	assert_string_equal(found, text);
	free(found);
	store_free(s);
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
	    TEST(test_full_disk),
	    TEST(test_readonly),
	    TEST(test_damaged),
	    TEST(test_half_of_it),
	    TEST(test_somebody_elses),
	    TEST(test_newer),
	    TEST(test_link),
	    TEST(test_torn_log),
	    TEST(test_older_format),
	    TEST(test_copy),
	    TEST(test_content),
	    TEST(test_policy_text),
	};

	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
