/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client half of the run protocol alone. One thread is both sides: it starts runs, and it plays supervisor, harness,
 * auditor and collector, message by message; so every order of events is this file's to choose. Time is, too: the monotonic
 * clock is moved, never waited for.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/runclient.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"

/* ---- the clock ---- */

static uint64_t skew_ns;

/* In place of the library's. */
int clock_gettime(clockid_t id, struct timespec *ts)
{
	int r = (int)syscall(SYS_clock_gettime, id, ts);

	if (r == 0 && id == CLOCK_MONOTONIC) {
		ts->tv_sec += (time_t)(skew_ns / SECOND_NS);
		ts->tv_nsec += (long)(skew_ns % SECOND_NS);
		if (ts->tv_nsec >= (long)SECOND_NS) {
			ts->tv_sec++;
			ts->tv_nsec -= (long)SECOND_NS;
		}
	}
	return r;
}

/* ---- both sides ---- */

static struct runclient *rc;
static int sup, aud, col; /* the peers' ends */
static int fds_before;
static unsigned idle_calls, gone_calls;
static struct session *last_idle;

/* One sandbox, the peer's side. */
struct box {
	uint64_t req;
	bool session;
	int request, out, err, dir;
};

/* What a run's callbacks have told. */
struct seen {
	struct run_request request;
	uint64_t req;
	unsigned granted, progressed, done;
	size_t progress_len;
	struct run_result result;
	char out[2][256];
	char files[256];	      /* "kind path size, …" */
	struct session *next_cell_on; /* done() starts a cell there */
	struct seen *next_cell;
	int next_result;
};

/* What a session's opening has told. */
struct opened {
	uint64_t req;
	unsigned calls;
	struct session *s;
	enum run_outcome outcome;
	struct tell_fail fail;
	bool close_at_once;
};

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void on_session(void *ctx, struct session *s)
{
	(void)ctx;
	if (!s) {
		gone_calls++;
		return;
	}
	assert_int_equal(s->state, SESSION_IDLE);
	idle_calls++;
	last_idle = s;
}

static int setup_with(bool with_collector)
{
	int supervisor[2], auditor[2], collector[2] = {-1, -1};
	struct err e;

	fds_before = count_fds();
	skew_ns = 0;
	idle_calls = gone_calls = 0;
	last_idle = NULL;
	assert_int_equal(ipc_pair(supervisor, 1 << 18), 0);
	assert_int_equal(ipc_pair(auditor, 1 << 18), 0);
	if (with_collector)
		assert_int_equal(ipc_pair(collector, 1 << 18), 0);
	sup = supervisor[0];
	aud = auditor[0];
	col = collector[0];
	assert_int_equal(runclient_new(supervisor[1], auditor[1], collector[1], &rc, &e), 0);
	runclient_on_session(rc, on_session, NULL);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	return setup_with(true);
}

static int setup_without_collector(void **state)
{
	(void)state;
	return setup_with(false);
}

static int teardown(void **state)
{
	(void)state;
	rc = runclient_free(rc);
	if (sup >= 0)
		close(sup);
	if (aud >= 0)
		close(aud);
	if (col >= 0)
		close(col);
	if (count_fds() != fds_before)
		fail_msg("%d fds, not %d", count_fds(), fds_before);
	return 0;
}

static void step(void)
{
	assert_int_equal(runclient_step(rc), 0);
}

static void pass_ms(uint64_t ms)
{
	skew_ns += ms * (SECOND_NS / 1000);
	step();
}

static void on_granted(void *ctx)
{
	((struct seen *)ctx)->granted++;
}

static void on_progress(void *ctx, const struct run_result *so_far)
{
	struct seen *s = ctx;

	assert_int_equal(s->done, 0);
	s->progressed++;
	s->progress_len = so_far->out_len[0] + so_far->out_len[1];
}

static int try_start(struct seen *seen, const char *project, struct session *s, const char *code);

static void on_done(void *ctx, struct run_result *r)
{
	struct seen *s = ctx;
	struct collected_entry e;
	const char *path, *content;
	size_t at = 0, used = 0;

	s->done++;
	s->result = *r;
	for (int i = 0; i < 2; i++)
		snprintf(s->out[i], sizeof s->out[i], "%.*s", (int)r->out_len[i], r->out[i] ? r->out[i] : "");
	while (run_files_next(&r->files, &at, &e, &path, &content))
		used += (size_t)snprintf(s->files + used, sizeof s->files - used, "%u %.*s %llu, ", e.kind, (int)e.path_len,
					 path, (unsigned long long)e.size);
	if (s->next_cell_on)
		s->next_result = try_start(s->next_cell, "p1", s->next_cell_on, "next");
}

static struct payload payload_of(const char *code, bool session)
{
	const struct payload_file file = {.path = "in.txt", .path_len = 6, .content = "input", .len = 5};
	const struct payload_parts parts = {.session = session,
					    .code = code,
					    .code_len = strlen(code),
					    .stdin_text = "stdin",
					    .stdin_len = 5,
					    .env = "A=b",
					    .env_len = 4,
					    .files = &file,
					    .file_count = 1};
	struct payload p;

	assert_int_equal(payload_make(&p, &parts), 0);
	return p;
}

static int try_start(struct seen *seen, const char *project, struct session *s, const char *code)
{
	struct payload p = payload_of(code, s != NULL);
	int r;

	seen->request = (struct run_request){.project = project,
					     .payload = &p,
					     .session = s,
					     .timeout_s = 7,
					     .granted = on_granted,
					     .progress = on_progress,
					     .done = on_done,
					     .ctx = seen};
	r = runclient_start(rc, &seen->request, &seen->req);
	assert_null(p.data); /* taken, whatever came of it */
	assert_null(p.digests);
	return r;
}

static void start_run(struct seen *seen, const char *project)
{
	*seen = (struct seen){0};
	assert_int_equal(try_start(seen, project, NULL, "code"), 0);
}

static void start_cell(struct seen *seen, struct session *s, const char *code)
{
	*seen = (struct seen){0};
	assert_int_equal(try_start(seen, s->project, s, code), 0);
}

/* ---- the supervisor's part ---- */

static struct ask heard(uint32_t type)
{
	struct ask a;
	ssize_t n = ipc_recv(sup, &a, sizeof a, NULL, NULL);

	if (n != (ssize_t)sizeof a)
		fail_msg("nothing heard, but %u expected", type);
	if (a.type != type)
		fail_msg("heard %u, not %u", a.type, type);
	return a;
}

static void heard_nothing(void)
{
	struct ask a;
	ssize_t n = ipc_recv(sup, &a, sizeof a, NULL, NULL);

	if (n != -EAGAIN)
		fail_msg("heard %u, but nothing was expected", a.type);
}

static void tell(const struct tell *t, const int *fds, size_t nfds)
{
	assert_int_equal(ipc_send(sup, t, sizeof *t, fds, nfds), 0);
}

/* Answers the next ASK_SANDBOX. */
static struct box grant_to(uint64_t req, bool session, const char *id)
{
	struct tell t = {.type = TELL_GRANT, .req = req};
	struct box b = {.req = req, .session = session};
	int sv[2], out[2], err[2], fds[4];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(pipe2(err, O_CLOEXEC), 0);
	b.request = sv[0];
	b.out = out[1];
	b.err = err[1];
	b.dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	fds[0] = sv[1];
	fds[1] = out[0];
	fds[2] = err[0];
	fds[3] = b.dir;
	snprintf(t.grant.sandbox_id, sizeof t.grant.sandbox_id, "%s", id);
	strcpy(t.grant.run_id, t.grant.sandbox_id);
	strcpy(t.grant.python, "3.12.1");
	tell(&t, fds, 4);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	step();
	return b;
}

static struct box grant(void)
{
	struct ask a = heard(ASK_SANDBOX);

	assert_int_equal(a.session, 0);
	return grant_to(a.req, false, "sandbox-one11");
}

static void box_close(struct box *b)
{
	close(b->request);
	close(b->dir);
	if (b->out >= 0) {
		close(b->out);
		close(b->err);
	}
}

/* The processes are dead: the pipes have no writer. */
static void box_dies(struct box *b)
{
	close(b->out);
	close(b->err);
	b->out = b->err = -1;
}

static void say(const struct box *b, int stream, const char *text)
{
	assert_int_equal(write(stream ? b->err : b->out, text, strlen(text)), (int)strlen(text));
}

/* What was written to the request socket. */
static size_t take_request(const struct box *b, char *text, size_t room)
{
	size_t len = 0;
	ssize_t n;

	while ((n = recv(b->request, text + len, room - len, MSG_DONTWAIT)) > 0)
		len += (size_t)n;
	return len;
}

static struct ask takes_request(const struct box *b)
{
	char text[4096];

	assert_true(take_request(b, text, sizeof text) > sizeof(struct request_header));
	return heard(ASK_START);
}

static struct tell ending(const struct box *b, uint32_t cell, bool over)
{
	struct tell t = {.type = TELL_END, .req = b->req, .end = {.end = RUN_END_EXIT, .ran = 1, .cell = cell, .over = over}};

	return t;
}

static void ends(struct box *b, uint32_t cell, bool over)
{
	struct tell t = ending(b, cell, over);

	if (over)
		box_dies(b);
	tell(&t, NULL, 0);
	step();
}

/* ---- the auditor's and the collector's ---- */

static struct query asked_auditor(void)
{
	struct query q = {0};

	assert_int_equal(ipc_recv(aud, &q, sizeof q, NULL, NULL), (int)sizeof q);
	assert_int_equal(q.type, QUERY_SUMMARY);
	return q;
}

static void auditor_answers(uint64_t req)
{
	struct {
		struct answer a;
		char text[4];
	} m = {.a = {.len = 2, .req = req}, .text = "{}"};

	assert_int_equal(ipc_send(aud, &m, sizeof m.a + 2, NULL, 0), 0);
	step();
}

struct job {
	struct collect c;
	int dir, manifest;
};

static struct job asked_collector(void)
{
	struct job j = {.dir = -1, .manifest = -1};
	int fds[2] = {-1, -1};
	size_t nfds = 2;

	if (ipc_recv(col, &j.c, sizeof j.c, fds, &nfds) != (ssize_t)sizeof j.c)
		fail_msg("the collector was not asked");
	assert_int_equal(nfds, j.c.have_manifest ? 2 : 1);
	j.dir = fds[0];
	j.manifest = fds[1];
	return j;
}

static void collector_not_asked(void)
{
	char c;

	assert_int_equal(ipc_recv(col, &c, sizeof c, NULL, NULL), -EAGAIN);
}

static void job_close(struct job *j)
{
	close(j->dir);
	if (j->manifest >= 0)
		close(j->manifest);
}

static int memfd_of(const void *data, size_t len)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_int_equal(write(fd, data, len), (int)len);
	return fd;
}

static size_t entry(char *text, enum collected_kind kind, const char *path, const char *content)
{
	struct collected_entry e = {.kind = kind, .path_len = (uint32_t)strlen(path), .size = strlen(content)};
	size_t len = 0;

	memcpy(text, &e, sizeof e);
	len += sizeof e;
	memcpy(text + len, path, e.path_len);
	len += e.path_len;
	if (kind == COLLECTED_FILE)
		memcpy(text + len, content, e.size);
	return len + (kind == COLLECTED_FILE ? e.size : 0);
}

/* One file `name`, and with `manifest` that text as the manifest. */
static void collector_answers(uint64_t req, const char *name, const char *manifest)
{
	char text[512];
	size_t len = entry(text, COLLECTED_FILE, name, "content");
	struct collected c = {.req = req, .len = len, .files = 1, .skipped_unlisted = 3};
	int fds[2] = {memfd_of(text, len), manifest ? memfd_of(manifest, strlen(manifest)) : -1};

	assert_int_equal(ipc_send(col, &c, sizeof c, fds, manifest ? 2 : 1), 0);
	close(fds[0]);
	if (manifest)
		close(fds[1]);
	step();
}

/* The rest of an ended run: both are asked and answer. */
static void finish(const char *name, const char *manifest)
{
	struct query q = asked_auditor();
	struct job j = asked_collector();

	assert_int_equal(j.c.req, q.req);
	auditor_answers(q.req);
	collector_answers(j.c.req, name, manifest);
	job_close(&j);
}

/* ---- sessions ---- */

static void on_opened(void *ctx, struct session *s, const struct run_result *failure)
{
	struct opened *o = ctx;

	o->calls++;
	o->s = s;
	assert_true((s != NULL) != (failure != NULL));
	if (failure) {
		o->outcome = failure->outcome;
		o->fail = failure->fail;
	} else if (o->close_at_once) {
		runclient_session_close(rc, s);
	}
}

static int try_open(struct opened *o, const char *project)
{
	struct session_request request = {.project = project, .opened = on_opened, .ctx = o};

	return runclient_session_open(rc, &request, &o->req);
}

static struct box open_session(struct opened *o, const char *project, const char *id)
{
	struct ask a;
	struct box b;

	*o = (struct opened){0};
	assert_int_equal(try_open(o, project), 0);
	a = heard(ASK_SANDBOX);
	assert_int_equal(a.session, 1);
	assert_int_equal(a.req, o->req);
	assert_string_equal(a.project, project);
	b = grant_to(a.req, true, id);
	assert_int_equal(o->calls, 1);
	assert_non_null(o->s);
	return b;
}

/* A whole cell that leaves one file. */
static void whole_cell(const struct box *b, struct session *s, uint32_t n, const char *manifest)
{
	struct seen seen;
	struct tell t = ending(b, n, false);

	start_cell(&seen, s, "cell");
	step();
	takes_request(b);
	tell(&t, NULL, 0);
	step();
	finish("file", manifest);
	assert_int_equal(seen.done, 1);
	heard(ASK_COLLECTED);
	heard_nothing();
}

/* ---- single runs ---- */

static bool same_file(int a, int b)
{
	struct stat x, y;

	assert_int_equal(fstat(a, &x), 0);
	assert_int_equal(fstat(b, &y), 0);
	return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static void a_run_from_end_to_end(void **state)
{
	struct payload expected = payload_of("code", false);
	struct seen seen;
	char text[4096];
	struct query q;
	struct box b;
	struct job j;

	(void)state;
	start_run(&seen, "p1");
	b = grant();
	assert_int_equal(seen.granted, 1);
	assert_int_equal(take_request(&b, text, sizeof text), expected.len);
	assert_memory_equal(text, expected.data, expected.len);
	assert_int_equal(heard(ASK_START).timeout_s, 7);
	assert_int_equal(seen.progressed, 1);
	assert_int_equal(seen.progress_len, 0);
	say(&b, 0, "out");
	step();
	assert_int_equal(seen.progressed, 2);
	assert_int_equal(seen.progress_len, 3);
	step();
	assert_int_equal(seen.progressed, 2);
	say(&b, 1, "err");
	ends(&b, 0, true);
	assert_int_equal(seen.progressed, 3);

	q = asked_auditor();
	assert_string_equal(q.run_id, "sandbox-one11");
	j = asked_collector();
	assert_int_equal(j.c.req, q.req);
	assert_int_equal(j.c.want_manifest, 0);
	assert_int_equal(j.c.digest_count, 2);
	assert_memory_equal(j.c.digests, expected.digests, 2 * sizeof *expected.digests);
	assert_true(same_file(j.dir, b.dir));
	job_close(&j);
	collector_answers(q.req, "out.txt", NULL);
	assert_int_equal(seen.done, 0);
	auditor_answers(q.req);
	assert_int_equal(seen.done, 1);
	assert_int_equal(seen.result.outcome, RUN_DONE);
	assert_string_equal(seen.out[0], "out");
	assert_string_equal(seen.out[1], "err");
	assert_string_equal(seen.files, "0 out.txt 7, ");
	assert_int_equal(seen.result.files.skipped_unlisted, 3);
	assert_null(seen.result.files.problem);
	assert_false(seen.result.session);
	heard_nothing();
	payload_clear(&expected);
	box_close(&b);
}

static void output_beyond_the_cap_is_no_progress(void **state)
{
	static char filler[65536];
	struct seen seen;
	struct box b;
	unsigned n;

	(void)state;
	start_run(&seen, "p1");
	b = grant();
	takes_request(&b);
	fcntl(b.out, F_SETFL, O_NONBLOCK);
	for (size_t done = 0; done < LIMIT_OUTPUT_BYTES; done += sizeof filler) {
		assert_int_equal(write(b.out, filler, sizeof filler), (int)sizeof filler);
		step();
		step();
	}
	heard_nothing();
	n = seen.progressed;
	assert_true(n > 2);
	say(&b, 0, "x");
	step();
	assert_int_equal(seen.progressed, n);
	assert_int_equal(heard(ASK_KILL).reason, RUN_END_OUTPUT);
	ends(&b, 0, true);
	finish("f", NULL);
	assert_int_equal(seen.result.out_bytes[0], LIMIT_OUTPUT_BYTES + 1);
	assert_int_equal(seen.result.end.end, RUN_END_OUTPUT);
	box_close(&b);
}

static void requests_that_are_none(void **state)
{
	struct seen seen = {0};
	char project[IPC_PROJECT_MAX + 1];
	struct payload p = payload_of("x", true);
	struct run_request request = {.project = "p1", .payload = &p, .done = on_done, .ctx = &seen};

	(void)state;
	assert_int_equal(runclient_start(rc, &request, &seen.req), -EINVAL); /* a cell's, without a session */
	assert_null(p.data);
	assert_int_equal(runclient_start(rc, &request, &seen.req), -EINVAL); /* empty */
	memset(project, 'p', IPC_PROJECT_MAX);
	project[IPC_PROJECT_MAX] = 0;
	assert_int_equal(try_start(&seen, project, NULL, "x"), -EINVAL);
	p = payload_of("x", false);
	p.digest_count = COLLECT_DIGESTS_MAX + 1;
	assert_int_equal(runclient_start(rc, &request, &seen.req), -EINVAL);
	assert_int_equal(seen.done, 0);
	assert_int_equal(runclient_open_runs(rc), 0);
	heard_nothing();
}

static void a_file_that_could_not_be_placed(void **state)
{
	struct seen seen;
	struct box b;
	struct tell t;

	(void)state;
	start_run(&seen, "p1");
	b = grant();
	takes_request(&b);
	t = ending(&b, 0, true);
	t.end.ran = 0;
	t.end.end = RUN_END_BROKEN;
	t.end.refused_errno = ELOOP;
	t.end.refused_index = 4;
	tell(&t, NULL, 0);
	step();
	assert_int_equal(seen.done, 1);
	assert_int_equal(seen.result.outcome, RUN_REFUSED);
	assert_int_equal(seen.result.end.refused_errno, ELOOP);
	assert_int_equal(seen.result.end.refused_index, 4);
	assert_false(seen.result.ran);
	collector_not_asked();
	heard_nothing();
	box_close(&b);
}

/* ---- a sandbox that was dead already ---- */

static void dead(struct box *b, const char *layer)
{
	struct tell t = ending(b, 0, true);

	t.end.ran = 0;
	t.end.end = RUN_END_BROKEN;
	snprintf(t.end.layer, sizeof t.end.layer, "%s", layer);
	box_dies(b);
	tell(&t, NULL, 0);
	step();
}

static void a_dead_sandbox_is_replaced_once(void **state)
{
	struct seen seen;
	struct box b;

	(void)state;
	start_run(&seen, "p1");
	b = grant();
	takes_request(&b);
	say(&b, 1, "last words");
	step();
	dead(&b, "");
	box_close(&b);
	assert_int_equal(seen.done, 0);
	b = grant();
	takes_request(&b);
	ends(&b, 0, true);
	finish("f", NULL);
	assert_int_equal(seen.done, 1);
	assert_int_equal(seen.result.outcome, RUN_DONE);
	assert_int_equal(seen.granted, 1);
	assert_string_equal(seen.out[1], "");
	box_close(&b);

	start_run(&seen, "p1");
	for (int i = 0; i < 2; i++) {
		b = grant();
		takes_request(&b);
		assert_int_equal(seen.done, 0);
		dead(&b, "");
		box_close(&b);
	}
	assert_int_equal(seen.done, 1);
	assert_int_equal(seen.result.outcome, RUN_FAILED);
	assert_false(seen.result.ran);
	heard_nothing();
}

static void what_is_not_replaced(void **state)
{
	struct seen seen;
	struct box b;

	(void)state;
	for (int why = 0; why < 3; why++) {
		start_run(&seen, "p1");
		b = grant();
		takes_request(&b);
		if (why == 1) {
			runclient_cancel(rc, seen.req);
			heard(ASK_KILL);
		} else if (why == 2) {
			pass_ms(1100); /* it has started: nothing else takes so long, and the request is gone */
		}
		dead(&b, why == 0 ? "seccomp" : "");
		assert_int_equal(seen.done, 1);
		assert_int_equal(seen.result.outcome, why == 1 ? RUN_GONE : RUN_FAILED);
		heard_nothing();
		box_close(&b);
	}
}

static void deadlines_of_a_run(void **state)
{
	struct seen seen;
	struct box b;

	(void)state;
	start_run(&seen, "p1");
	heard(ASK_SANDBOX);
	pass_ms(LIMIT_POOL_WAIT_S * 1000 - 500);
	assert_int_equal(seen.done, 0);
	pass_ms(600);
	assert_int_equal(seen.result.outcome, RUN_BUSY);
	heard(ASK_KILL);

	start_run(&seen, "p1");
	b = grant();
	takes_request(&b);
	pass_ms(1100);
	pass_ms((7 + 118) * 1000);
	assert_int_equal(seen.done, 0);
	pass_ms(2000);
	assert_int_equal(seen.result.outcome, RUN_FAILED);
	assert_true(seen.result.ran);
	heard(ASK_KILL);
	box_close(&b);
}

/* ---- the supervisor talks nonsense ---- */

static void nonsense(void **state)
{
	for (int what = 0; what < 5; what++) {
		struct seen seen;
		struct box b;
		struct tell t;

		if (what) {
			teardown(state);
			setup(state);
		}
		start_run(&seen, "p1");
		b = grant();
		takes_request(&b);
		t = ending(&b, 0, what != 0);
		if (what == 1)
			t.end.refused_errno = EISDIR; /* and yet it ran */
		else if (what == 2)
			memset(t.end.layer, 'x', sizeof t.end.layer);
		else if (what == 3)
			t.end.over = 2;
		else if (what == 4)
			t.end.end = RUN_END_COUNT;
		tell(&t, NULL, 0);
		assert_int_equal(runclient_step(rc), -EPIPE);
		assert_int_equal(seen.done, 1);
		assert_int_equal(seen.result.outcome, RUN_FAILED);
		assert_string_equal(seen.result.fail.layer, "supervisor");
		box_close(&b);
	}
}

/* ---- the collector ---- */

/* Ends with an ended run whose summary has come. */
static struct box until_collected(struct seen *seen, const char *project)
{
	struct box b;

	start_run(seen, project);
	b = grant();
	takes_request(&b);
	ends(&b, 0, true);
	auditor_answers(asked_auditor().req);
	return b;
}

static void without_files(const struct seen *seen)
{
	assert_int_equal(seen->done, 1);
	assert_int_equal(seen->result.outcome, RUN_DONE);
	assert_string_equal(seen->result.files.problem, "files could not be collected");
	assert_int_equal(seen->result.files.len, 0);
	assert_null(seen->result.files.data);
}

static void no_collector(void **state)
{
	struct seen seen;
	struct box b = until_collected(&seen, "p1");

	(void)state;
	without_files(&seen);
	assert_false(runclient_collector_up(rc));
	box_close(&b);
}

static void a_collector_that_fails(void **state)
{
	struct seen seen;
	struct box b = until_collected(&seen, "p1");
	struct job j = asked_collector();
	struct collected c = {.req = j.c.req, .status = EACCES};

	(void)state;
	assert_int_equal(ipc_send(col, &c, sizeof c, NULL, 0), 0);
	step();
	without_files(&seen);
	assert_true(runclient_collector_up(rc));
	job_close(&j);
	box_close(&b);
}

static void a_collector_that_is_gone(void **state)
{
	struct seen seen[3];
	struct box b[3];

	(void)state;
	for (int i = 0; i < 2; i++)
		b[i] = until_collected(&seen[i], "p1");
	close(col);
	col = -1;
	step();
	b[2] = until_collected(&seen[2], "p1");
	for (int i = 0; i < 3; i++) {
		without_files(&seen[i]);
		box_close(&b[i]);
	}
	assert_false(runclient_collector_up(rc));
}

/* Its part in time, and no part of it any more when that is over; the files take longer. */
static void an_auditor_that_is_slow(void **state)
{
	struct seen seen;
	struct query q;
	struct box b;
	struct job j;

	(void)state;
	for (int late = 0; late < 3; late++) {
		start_run(&seen, "p1");
		b = grant();
		takes_request(&b);
		ends(&b, 0, true);
		q = asked_auditor();
		j = asked_collector();
		if (late == 0)
			collector_answers(q.req, "f", NULL);
		pass_ms(RUNCLIENT_SUMMARY_MS - 100);
		assert_int_equal(seen.done, 0);
		pass_ms(200);
		if (late == 1) {
			auditor_answers(q.req);
		} else if (late == 2) {
			close(aud);
			aud = -1;
			step();
		}
		if (late)
			collector_answers(q.req, "f", NULL);
		assert_int_equal(seen.done, 1);
		assert_null(seen.result.egress);
		assert_string_equal(seen.files, "0 f 7, ");
		job_close(&j);
		box_close(&b);
	}
	assert_false(runclient_auditor_up(rc));
}

static void a_collector_that_is_slow(void **state)
{
	struct seen first, second;
	struct box b1 = until_collected(&first, "p1"), b2 = until_collected(&second, "p1");
	struct job j1 = asked_collector(), j2;

	(void)state;
	collector_not_asked(); /* one at a time */
	collector_answers(second.req, "guess", NULL);
	assert_int_equal(second.done, 0);
	pass_ms(LIMIT_FILES_OUT_MS + 2900);
	assert_int_equal(first.done, 0);
	pass_ms(200);
	without_files(&first);
	assert_int_equal(second.done, 0);
	j2 = asked_collector();
	/* The late answer is nobody's. */
	collector_answers(j1.c.req, "first", NULL);
	assert_int_equal(second.done, 0);
	collector_answers(j2.c.req, "second", NULL);
	assert_int_equal(second.done, 1);
	assert_string_equal(second.files, "0 second 7, ");
	job_close(&j1);
	job_close(&j2);
	box_close(&b1);
	box_close(&b2);
}

static void nobody_waits_for_ever_in_line(void **state)
{
	struct seen seen[5];
	struct box b[5];

	(void)state;
	for (int i = 0; i < 5; i++)
		b[i] = until_collected(&seen[i], "p1");
	for (int s = 0; s < 14; s++)
		pass_ms(1000);
	assert_int_equal(seen[4].done, 0);
	pass_ms(1100);
	without_files(&seen[4]);
	for (int i = 0; i < 5; i++)
		box_close(&b[i]);
	for (int i = 0; i < 3; i++) {
		struct job j = asked_collector();

		job_close(&j);
	}
}

static void projects_take_turns(void **state)
{
	static const char *const projects[] = {"p1", "p1", "p1", "p2", "p2", "p3"};
	static const int order[] = {0, 3, 1, 5, 2, 4};
	struct seen seen[6];
	struct box b[6];

	(void)state;
	for (int i = 0; i < 6; i++)
		b[i] = until_collected(&seen[i], projects[i]);
	for (int i = 0; i < 6; i++) {
		struct job j = asked_collector();

		assert_int_equal(j.c.req, seen[order[i]].req);
		collector_answers(j.c.req, "f", NULL);
		assert_int_equal(seen[order[i]].done, 1);
		job_close(&j);
	}
	for (int i = 0; i < 6; i++)
		box_close(&b[i]);
}

static void a_collector_that_lies(void **state)
{
	for (int how = 0; how < 9; how++) {
		struct seen seen;
		struct collected c = {0};
		char text[512];
		struct box b;
		struct job j;
		int fds[2] = {-1, -1}, pipes[2] = {-1, -1};
		size_t nfds = 1, len;

		if (how) {
			teardown(state);
			setup(state);
		}
		b = until_collected(&seen, "p1");
		j = asked_collector();
		len = entry(text, COLLECTED_FILE, how == 0 ? "../up" : "f", "content");
		c.req = j.c.req;
		c.len = len;
		if (how == 1)
			nfds = 0;
		else if (how == 2)
			c.len++; /* more than there is */
		else if (how == 3)
			c.len--; /* less */
		else if (how == 4)
			c.len = 1ull << 40;
		else if (how == 5)
			nfds = 2; /* a manifest that nobody wants */
		if (how == 6) {
			assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
			fds[0] = pipes[0];
			close(pipes[1]);
		} else {
			fds[0] = memfd_of(text, len);
		}
		if (how == 8) { /* it is that large, and costs nothing */
			c.len = 1ull << 40;
			assert_int_equal(ftruncate(fds[0], (off_t)c.len), 0);
		}
		fds[1] = memfd_of("m", 1);
		assert_int_equal(ipc_send(col, &c, how == 7 ? sizeof c - 1 : sizeof c, fds, nfds), 0);
		close(fds[0]);
		close(fds[1]);
		step();
		without_files(&seen);
		assert_false(runclient_collector_up(rc));
		job_close(&j);
		box_close(&b);
	}
}

/* ---- a client with too many open files ---- */

static void room_for_fds(bool any)
{
	struct rlimit rl;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &rl), 0);
	rl.rlim_cur = any ? rl.rlim_max : 3;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &rl), 0);
}

/* What can't be received is lost, and whom it was for is told. Everybody else goes on. */
static void too_many_open_files(void **state)
{
	struct tell t = {.type = TELL_GRANT, .grant = {.sandbox_id = "sandbox-full1"}};
	struct seen seen, second;
	struct opened o = {0};
	struct box b;
	struct job j;
	int fds[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		fds[i] = sup;
	start_run(&seen, "p1");
	t.req = heard(ASK_SANDBOX).req;
	tell(&t, fds, 4);
	room_for_fds(false);
	step();
	room_for_fds(true);
	assert_int_equal(seen.done, 1);
	assert_int_equal(seen.result.outcome, RUN_FAILED);
	assert_string_equal(seen.result.fail.layer, "api");
	heard(ASK_KILL);

	assert_int_equal(try_open(&o, "p1"), 0);
	t.req = heard(ASK_SANDBOX).req;
	tell(&t, fds, 4);
	room_for_fds(false);
	step();
	room_for_fds(true);
	assert_int_equal(o.calls, 1);
	assert_int_equal(o.outcome, RUN_FAILED);
	assert_int_equal(heard(ASK_CLOSE).req, o.req);

	start_run(&seen, "p1");
	b = grant();
	takes_request(&b);
	ends(&b, 0, true);
	{
		struct answer a = {.len = 100000, .req = asked_auditor().req};
		struct collected c = {.req = a.req};

		j = asked_collector();
		assert_int_equal(ipc_send(aud, &a, sizeof a, fds, 1), 0);
		assert_int_equal(ipc_send(col, &c, sizeof c, fds, 1), 0);
		room_for_fds(false);
		step();
		room_for_fds(true);
	}
	without_files(&seen);
	assert_null(seen.result.egress);
	job_close(&j);
	box_close(&b);

	second = (struct seen){0};
	start_run(&second, "p1");
	b = grant();
	takes_request(&b);
	ends(&b, 0, true);
	finish("f", NULL);
	assert_string_equal(second.files, "0 f 7, ");
	assert_non_null(second.result.egress);
	box_close(&b);
}

/* ---- sessions: opening ---- */

static void opening_a_session(void **state)
{
	struct opened o, second;
	struct box b = open_session(&o, "p1", "sandbox-sess1"), b2;
	time_t now = time(NULL);

	(void)state;
	assert_string_equal(o.s->id, "sandbox-sess1");
	assert_string_equal(o.s->project, "p1");
	assert_string_equal(o.s->python, "3.12.1");
	assert_int_equal(o.s->state, SESSION_IDLE);
	assert_int_equal(o.s->cells, 0);
	assert_in_range(o.s->created_s, now - 5, now);
	assert_null(o.s->owner);
	assert_ptr_equal(runclient_session_find(rc, "sandbox-sess1", "p1"), o.s);
	assert_null(runclient_session_find(rc, "sandbox-sess1", "p2"));
	assert_null(runclient_session_find(rc, "sandbox-sess", "p1"));
	b2 = open_session(&second, "p2", "sandbox-sess2");
	assert_ptr_equal(runclient_session_next(rc, NULL), second.s);
	assert_ptr_equal(runclient_session_next(rc, second.s), o.s);
	assert_null(runclient_session_next(rc, o.s));
	assert_int_equal(runclient_session_count(rc, "p1"), 1);
	assert_int_equal(idle_calls + gone_calls, 0);
	/* What it costs to wait is nothing: no deadline of the client's ends it. */
	pass_ms(3600 * 1000);
	assert_ptr_equal(runclient_session_find(rc, "sandbox-sess1", "p1"), o.s);
	heard_nothing();
	box_close(&b);
	box_close(&b2);
}

static void sessions_that_do_not_open(void **state)
{
	struct tell t = {.type = TELL_FAIL, .fail = {.layer = "mounts", .text = "no proc"}};
	struct opened o = {0};
	struct box b;

	(void)state;
	assert_int_equal(try_open(&o, "p1"), 0);
	t.req = heard(ASK_SANDBOX).req;
	assert_null(runclient_session_next(rc, NULL));
	assert_int_equal(runclient_session_count(rc, "p1"), 1);
	tell(&t, NULL, 0);
	step();
	assert_int_equal(o.calls, 1);
	assert_int_equal(o.outcome, RUN_FAILED);
	assert_string_equal(o.fail.layer, "mounts");
	heard_nothing();

	assert_int_equal(try_open(&o, "p1"), 0);
	heard(ASK_SANDBOX);
	pass_ms(LIMIT_POOL_WAIT_S * 1000 + 100);
	assert_int_equal(o.calls, 2);
	assert_int_equal(o.outcome, RUN_BUSY);
	assert_int_equal(heard(ASK_CLOSE).req, o.req);

	assert_int_equal(try_open(&o, "p1"), 0);
	heard(ASK_SANDBOX);
	runclient_cancel(rc, o.req);
	assert_int_equal(o.calls, 2); /* not before the step */
	step();
	assert_int_equal(o.calls, 3);
	assert_int_equal(o.outcome, RUN_GONE);
	assert_int_equal(heard(ASK_CLOSE).req, o.req);
	/* A grant that crossed it leaves nothing open. */
	b = grant_to(o.req, true, "sandbox-late1");
	assert_int_equal(recv(b.request, (char[1]){0}, 1, MSG_DONTWAIT), 0);
	box_close(&b);

	/* Cancelled and granted in one step. */
	assert_int_equal(try_open(&o, "p1"), 0);
	heard(ASK_SANDBOX);
	runclient_cancel(rc, o.req);
	b = grant_to(o.req, true, "sandbox-late2");
	assert_int_equal(o.calls, 4);
	assert_int_equal(o.outcome, RUN_GONE);
	assert_int_equal(heard(ASK_CLOSE).req, o.req);
	heard_nothing();
	box_close(&b);
	assert_int_equal(runclient_session_count(rc, "p1"), 0);
	assert_int_equal(idle_calls + gone_calls, 0); /* none was ever open */
}

static void as_many_as_a_project_may_have(void **state)
{
	struct opened o[LIMIT_SESSIONS], more = {0};
	struct box b[LIMIT_SESSIONS];
	char id[32];

	(void)state;
	for (int i = 0; i < LIMIT_SESSIONS; i++) {
		snprintf(id, sizeof id, "sandbox-%05d", i);
		b[i] = open_session(&o[i], "p1", id);
	}
	assert_int_equal(try_open(&more, "p1"), -EDQUOT);
	heard_nothing();
	assert_int_equal(try_open(&more, "p2"), 0);
	heard(ASK_SANDBOX);
	/* One that is being closed makes room. */
	runclient_session_close(rc, o[7].s);
	heard(ASK_CLOSE);
	assert_int_equal(try_open(&more, "p1"), 0);
	for (int i = 0; i < LIMIT_SESSIONS; i++)
		box_close(&b[i]);
}

static void as_many_as_there_may_be(void **state)
{
	struct opened *o = calloc(LIMIT_SESSIONS_ALL + 1, sizeof *o);
	char project[IPC_PROJECT_MAX];

	(void)state;
	assert_non_null(o);
	for (int i = 0; i < LIMIT_SESSIONS_ALL; i++) {
		snprintf(project, sizeof project, "p%d", i / LIMIT_SESSIONS);
		assert_int_equal(try_open(&o[i], project), 0);
		heard(ASK_SANDBOX);
	}
	assert_int_equal(try_open(&o[LIMIT_SESSIONS_ALL], "another"), -EAGAIN);
	heard_nothing();
	runclient_cancel(rc, o[0].req);
	step();
	heard(ASK_CLOSE);
	assert_int_equal(try_open(&o[LIMIT_SESSIONS_ALL], "another"), 0);
	heard(ASK_SANDBOX);
	/* What is still being opened is told of its end by the one who stops, into what is freed below. */
	teardown(state);
	setup(state);
	free(o);
}

/* ---- sessions: cells ---- */

static void cells_one_after_the_other(void **state)
{
	struct seen seen, second = {0};
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct payload expected = payload_of("first", true);
	struct query q;
	struct job j;
	struct ask a;
	char text[4096];

	(void)state;
	start_cell(&seen, o.s, "first");
	assert_int_equal(o.s->state, SESSION_BUSY);
	assert_int_equal(seen.granted, 0); /* callbacks come from the step alone */
	assert_int_equal(try_start(&second, "p1", o.s, "x"), -EBUSY);
	step();
	assert_int_equal(seen.granted, 1);
	assert_int_equal(take_request(&b, text, sizeof text), expected.len);
	assert_memory_equal(text, expected.data, expected.len);
	a = heard(ASK_START);
	assert_int_equal(a.req, o.req);
	assert_int_equal(a.timeout_s, 7);
	say(&b, 0, "out");
	say(&b, 1, "err");
	ends(&b, 1, false);
	heard_nothing(); /* it stays frozen until its files have been read */
	q = asked_auditor();
	assert_string_equal(q.run_id, "sandbox-sess1.1");
	j = asked_collector();
	assert_int_equal(j.c.have_manifest, 0);
	assert_int_equal(j.c.want_manifest, 1);
	assert_int_equal(j.c.digest_count, 1);
	assert_memory_equal(j.c.digests, expected.digests, sizeof *expected.digests);
	collector_answers(j.c.req, "one", "manifest 1");
	job_close(&j);
	/* And no longer, whatever the auditor does. */
	assert_int_equal(heard(ASK_COLLECTED).req, o.req);
	assert_int_equal(seen.done, 0);
	assert_int_equal(o.s->state, SESSION_BUSY);
	auditor_answers(q.req);
	assert_int_equal(seen.done, 1);
	assert_int_equal(seen.result.outcome, RUN_DONE);
	assert_true(seen.result.session);
	assert_int_equal(seen.result.end.over, 0);
	assert_string_equal(seen.result.grant.sandbox_id, "sandbox-sess1");
	assert_string_equal(seen.result.grant.run_id, "sandbox-sess1.1");
	assert_string_equal(seen.result.grant.python, "3.12.1");
	assert_string_equal(seen.out[0], "out");
	assert_string_equal(seen.out[1], "err");
	assert_string_equal(seen.files, "0 one 7, ");
	assert_int_equal(o.s->state, SESSION_IDLE);
	assert_int_equal(o.s->cells, 1);
	assert_int_equal(idle_calls, 1);
	assert_ptr_equal(last_idle, o.s);

	/* What is written while no cell runs is the next one's, and wakes nobody before. */
	say(&b, 0, "between ");
	step();
	start_cell(&second, o.s, "second");
	step();
	takes_request(&b);
	say(&b, 0, "cells");
	ends(&b, 2, false);
	q = asked_auditor();
	assert_string_equal(q.run_id, "sandbox-sess1.2");
	auditor_answers(q.req);
	j = asked_collector();
	assert_int_equal(j.c.have_manifest, 1);
	assert_int_equal(pread(j.manifest, text, sizeof text, 0), 10);
	assert_memory_equal(text, "manifest 1", 10);
	collector_answers(j.c.req, "two", "manifest 2");
	job_close(&j);
	assert_string_equal(second.out[0], "between cells");
	assert_string_equal(second.result.grant.run_id, "sandbox-sess1.2");
	heard(ASK_COLLECTED);
	heard_nothing();
	assert_int_equal(idle_calls, 2);
	payload_clear(&expected);
	box_close(&b);
}

/* The end of a cell is heard before anything of its output: all of it is read, though the pipe has no end. */
static void what_is_still_in_the_pipes(void **state)
{
	static char filler[60000];
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct tell t = ending(&b, 1, false);
	struct seen seen;

	(void)state;
	start_cell(&seen, o.s, "x");
	step();
	takes_request(&b);
	tell(&t, NULL, 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(write(i ? b.err : b.out, filler, sizeof filler), (int)sizeof filler);
	step();
	assert_int_equal(seen.progress_len, 2 * sizeof filler);
	finish("f", "m");
	for (int i = 0; i < 2; i++)
		assert_int_equal(seen.result.out_len[i], sizeof filler);
	assert_false(seen.result.truncated);
	box_close(&b);
}

static void many_cells_leave_nothing(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	int fds;

	(void)state;
	whole_cell(&b, o.s, 1, "m");
	fds = count_fds();
	for (uint32_t n = 2; n < 200; n++)
		whole_cell(&b, o.s, n, "m");
	assert_int_equal(count_fds(), fds);
	box_close(&b);
}

/* Files that came with an answer that nobody was there to read are new for the next one. */
static void a_manifest_that_nobody_saw_the_files_of(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen;
	struct job j;
	char text[16];

	(void)state;
	whole_cell(&b, o.s, 1, "manifest 1");
	start_cell(&seen, o.s, "hold");
	step();
	takes_request(&b);
	runclient_cancel(rc, seen.req);
	assert_int_equal(heard(ASK_KILL).req, o.req);
	ends(&b, 2, false);
	finish("unseen", "manifest 2");
	assert_int_equal(seen.done, 1);
	heard(ASK_COLLECTED);
	assert_int_equal(o.s->state, SESSION_IDLE);
	start_cell(&seen, o.s, "third");
	step();
	takes_request(&b);
	ends(&b, 3, false);
	j = asked_collector();
	assert_int_equal(pread(j.manifest, text, sizeof text, 0), 10);
	assert_memory_equal(text, "manifest 1", 10);
	job_close(&j);
	box_close(&b);
}

static void a_cell_without_files_thaws_too(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen;
	struct job j;

	(void)state;
	start_cell(&seen, o.s, "x");
	step();
	takes_request(&b);
	ends(&b, 1, false);
	auditor_answers(asked_auditor().req);
	j = asked_collector();
	job_close(&j);
	heard_nothing();
	pass_ms(LIMIT_FILES_OUT_MS + 3100);
	heard(ASK_COLLECTED);
	without_files(&seen);
	assert_int_equal(o.s->state, SESSION_IDLE);
	box_close(&b);
}

static void a_cell_that_ends_its_session(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen;
	struct query q;
	struct job j;

	(void)state;
	whole_cell(&b, o.s, 1, "m");
	start_cell(&seen, o.s, "die");
	step();
	takes_request(&b);
	say(&b, 0, "last words");
	ends(&b, 2, true);
	assert_null(runclient_session_find(rc, "sandbox-sess1", "p1"));
	q = asked_auditor();
	j = asked_collector();
	assert_int_equal(j.c.have_manifest, 1);
	assert_int_equal(j.c.want_manifest, 0);
	collector_answers(j.c.req, "left", NULL);
	auditor_answers(q.req);
	job_close(&j);
	assert_int_equal(seen.result.outcome, RUN_DONE);
	assert_int_equal(seen.result.end.over, 1);
	assert_string_equal(seen.out[0], "last words");
	assert_string_equal(seen.files, "0 left 7, ");
	assert_int_equal(gone_calls, 1);
	assert_int_equal(recv(b.request, (char[1]){0}, 1, MSG_DONTWAIT), 0); /* nothing of it is kept */
	heard_nothing();
	assert_int_equal(runclient_session_count(rc, "p1"), 0);
	box_close(&b);
}

static void a_session_that_ends_while_it_waits(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");

	(void)state;
	ends(&b, 0, true);
	assert_int_equal(gone_calls, 1);
	assert_null(runclient_session_next(rc, NULL));
	heard_nothing();
	box_close(&b);
}

/* Before its request is whole, and when the order to start has crossed its end. */
static void a_session_that_ends_before_the_cell(void **state)
{
	(void)state;
	for (int started = 0; started < 2; started++) {
		struct opened o;
		struct box b = open_session(&o, "p1", "sandbox-sess1");
		struct seen seen;
		struct tell t = ending(&b, 0, true);

		t.end.ran = 0;
		strcpy(t.end.detail, "idle for 15 minutes");
		start_cell(&seen, o.s, "x");
		if (started) {
			step();
			takes_request(&b);
		}
		box_dies(&b);
		tell(&t, NULL, 0);
		step();
		if (!started) /* the order of its events within the step is the kernel's */
			take_request(&b, (char[4096]){0}, 4096);
		assert_int_equal(seen.done, 1);
		assert_int_equal(seen.result.outcome, RUN_GONE);
		assert_false(seen.result.ran);
		assert_int_equal(seen.result.end.over, 1);
		assert_string_equal(seen.result.fail.text, "idle for 15 minutes");
		assert_int_equal(gone_calls, started + 1);
		assert_null(runclient_session_next(rc, NULL));
		box_close(&b);
		while (ipc_recv(sup, &(struct ask){0}, sizeof(struct ask), NULL, NULL) > 0)
			;
	}
	collector_not_asked();
}

/* Its cell's answer is still being put together: that one stands, and says that it was the last. */
static void a_session_that_ends_after_the_cell(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen;
	struct query q;

	(void)state;
	start_cell(&seen, o.s, "x");
	step();
	takes_request(&b);
	ends(&b, 1, false);
	q = asked_auditor();
	{
		struct job j = asked_collector();

		collector_answers(j.c.req, "f", "m");
		job_close(&j);
	}
	heard(ASK_COLLECTED);
	ends(&b, 0, true);
	assert_int_equal(seen.done, 0);
	auditor_answers(q.req);
	assert_int_equal(seen.result.outcome, RUN_DONE);
	assert_int_equal(seen.result.end.over, 1);
	assert_string_equal(seen.files, "0 f 7, ");
	assert_int_equal(gone_calls, 1);
	assert_int_equal(idle_calls, 0);
	box_close(&b);
}

static void a_refused_cell(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct tell t = ending(&b, 1, false);
	struct seen seen;

	(void)state;
	start_cell(&seen, o.s, "x");
	step();
	takes_request(&b);
	t.end.ran = 0;
	t.end.refused_errno = EISDIR;
	tell(&t, NULL, 0);
	step();
	assert_int_equal(seen.result.outcome, RUN_REFUSED);
	assert_int_equal(seen.result.end.refused_errno, EISDIR);
	heard(ASK_COLLECTED);
	collector_not_asked();
	assert_int_equal(o.s->state, SESSION_IDLE);
	whole_cell(&b, o.s, 2, "m");
	box_close(&b);
}

/* ---- cells: cancelled, too loud, too late ---- */

static void a_cell_withdrawn_before_it_was_sent(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen;

	(void)state;
	start_cell(&seen, o.s, "x");
	runclient_cancel(rc, seen.req);
	step();
	assert_int_equal(seen.done, 1);
	assert_int_equal(seen.result.outcome, RUN_GONE);
	assert_int_equal(seen.result.end.over, 0);
	heard_nothing();
	assert_int_equal(o.s->state, SESSION_IDLE);
	assert_int_equal(idle_calls, 1);
	whole_cell(&b, o.s, 1, "m");
	box_close(&b);
}

/* A harness that takes only a part of it. */
static void start_large_cell(struct seen *seen, struct session *s)
{
	char *code = malloc(LIMIT_CODE_BYTES + 1);

	memset(code, '#', LIMIT_CODE_BYTES);
	code[LIMIT_CODE_BYTES] = 0;
	start_cell(seen, s, code);
	free(code);
	step();
}

static void a_request_that_is_not_taken(void **state)
{
	(void)state;
	for (int cancelled = 0; cancelled < 2; cancelled++) {
		struct opened o;
		struct box b = open_session(&o, "p1", "sandbox-sess1");
		struct seen seen;

		gone_calls = 0;
		start_large_cell(&seen, o.s);
		assert_int_equal(seen.granted, 1);
		heard_nothing();
		if (cancelled) {
			runclient_cancel(rc, seen.req);
			step();
		} else {
			pass_ms(LIMIT_READY_S * 1000 - 500);
			assert_int_equal(seen.done, 0);
			pass_ms(1000);
		}
		assert_int_equal(heard(ASK_CLOSE).req, o.req);
		assert_int_equal(seen.done, 1);
		assert_int_equal(seen.result.outcome, RUN_GONE);
		assert_int_equal(seen.result.end.over, 1);
		assert_true(*seen.result.fail.text);
		assert_null(runclient_session_find(rc, "sandbox-sess1", "p1"));
		assert_true(gone_calls > 0);
		ends(&b, 0, true);
		assert_int_equal(runclient_session_count(rc, "p1"), 0);
		heard_nothing();
		box_close(&b);
	}
}

static void a_request_that_is_taken_slowly(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	char *text = malloc(2 * LIMIT_CODE_BYTES);
	struct seen seen;
	size_t len = 0;

	(void)state;
	say(&b, 0, "between");
	start_large_cell(&seen, o.s);
	step();
	assert_int_equal(seen.progressed, 0);
	for (int i = 0; i < 1000 && len < LIMIT_CODE_BYTES + sizeof(struct request_header); i++) {
		len += take_request(&b, text, 2 * LIMIT_CODE_BYTES);
		step();
	}
	heard(ASK_START);
	assert_int_equal(seen.progressed, 1);
	assert_int_equal(seen.progress_len, 7);
	ends(&b, 1, false);
	finish("f", "m");
	assert_int_equal(seen.result.outcome, RUN_DONE);
	free(text);
	box_close(&b);
}

static void a_cell_over_its_output(void **state)
{
	static char filler[65536];
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen;
	struct ask a;

	(void)state;
	start_cell(&seen, o.s, "flood");
	step();
	takes_request(&b);
	fcntl(b.out, F_SETFL, O_NONBLOCK);
	for (size_t done = 0; done < LIMIT_OUTPUT_BYTES + sizeof filler; done += sizeof filler) {
		assert_int_equal(write(b.out, filler, sizeof filler), (int)sizeof filler);
		step();
		step();
	}
	a = heard(ASK_KILL);
	assert_int_equal(a.req, o.req);
	assert_int_equal(a.reason, RUN_END_OUTPUT);
	/* It is not stopped at once: who has nothing to write to would not get to hear that it was interrupted. */
	for (int i = 0; i < 3; i++) {
		assert_int_equal(write(b.out, filler, sizeof filler), (int)sizeof filler);
		step();
	}
	heard_nothing();
	{
		struct tell t = ending(&b, 1, false);

		t.end.end = RUN_END_OUTPUT;
		t.end.exit_code = 137;
		tell(&t, NULL, 0);
		step();
	}
	finish("f", "m");
	heard(ASK_COLLECTED);
	assert_int_equal(seen.result.end.end, RUN_END_OUTPUT);
	assert_string_equal(seen.result.end.detail, "stdout limit of 4 MiB exceeded");
	assert_int_equal(seen.result.out_len[0], LIMIT_OUTPUT_BYTES);
	assert_true(seen.result.truncated);
	assert_int_equal(seen.result.end.over, 0);
	assert_int_equal(o.s->state, SESSION_IDLE);
	box_close(&b);
}

static void a_cell_whose_end_is_never_told(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen;

	(void)state;
	start_cell(&seen, o.s, "x");
	step();
	takes_request(&b);
	pass_ms((7 + 119) * 1000);
	assert_int_equal(seen.done, 0);
	pass_ms(2000);
	assert_int_equal(seen.result.outcome, RUN_FAILED);
	assert_true(seen.result.ran);
	assert_int_equal(heard(ASK_CLOSE).req, o.req);
	assert_null(runclient_session_find(rc, "sandbox-sess1", "p1"));
	/* Nor that of the session: it is let go of all the same. */
	pass_ms(121000);
	assert_int_equal(recv(b.request, (char[1]){0}, 1, MSG_DONTWAIT), 0);
	heard_nothing();
	ends(&b, 1, true); /* and hearing it at last does no harm */
	box_close(&b);
}

/* ---- closing ---- */

static void closing_an_idle_session(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen = {0};

	(void)state;
	runclient_session_close(rc, o.s);
	runclient_session_close(rc, o.s);
	assert_int_equal(heard(ASK_CLOSE).req, o.req);
	heard_nothing();
	assert_null(runclient_session_find(rc, "sandbox-sess1", "p1"));
	assert_null(runclient_session_next(rc, NULL));
	assert_int_equal(try_start(&seen, "p1", o.s, "x"), -EBUSY);
	assert_int_equal(gone_calls, 0);
	ends(&b, 0, true);
	assert_int_equal(gone_calls, 1);
	box_close(&b);
}

static void closing_a_busy_session(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen seen;
	struct tell t = ending(&b, 1, true);

	(void)state;
	start_cell(&seen, o.s, "hold");
	step();
	takes_request(&b);
	say(&b, 0, "so far");
	runclient_session_close(rc, o.s);
	heard(ASK_CLOSE);
	t.end.end = RUN_END_CANCELLED;
	box_dies(&b);
	tell(&t, NULL, 0);
	step();
	finish("f", NULL);
	assert_int_equal(seen.result.outcome, RUN_DONE);
	assert_int_equal(seen.result.end.end, RUN_END_CANCELLED);
	assert_int_equal(seen.result.end.over, 1);
	assert_string_equal(seen.out[0], "so far");
	assert_int_equal(gone_calls, 1);
	heard_nothing();
	box_close(&b);

	/* While its request is under way: it is not started any more. */
	b = open_session(&o, "p1", "sandbox-sess2");
	start_cell(&seen, o.s, "x");
	runclient_session_close(rc, o.s);
	step();
	heard(ASK_CLOSE);
	heard_nothing();
	t = ending(&b, 0, true);
	t.end.ran = 0;
	box_dies(&b);
	tell(&t, NULL, 0);
	step();
	assert_int_equal(seen.result.outcome, RUN_GONE);
	assert_int_equal(seen.result.end.over, 1);
	box_close(&b);

	/* While its files are being read: they are, and nobody is told to thaw what is gone. */
	b = open_session(&o, "p1", "sandbox-sess3");
	start_cell(&seen, o.s, "x");
	step();
	takes_request(&b);
	ends(&b, 1, false);
	runclient_session_close(rc, o.s);
	heard(ASK_CLOSE);
	ends(&b, 0, true);
	{
		struct query q = asked_auditor();
		struct job j = asked_collector();

		collector_answers(j.c.req, "f", "m");
		auditor_answers(q.req);
		job_close(&j);
	}
	assert_int_equal(seen.result.outcome, RUN_DONE);
	assert_int_equal(seen.result.end.over, 1);
	assert_string_equal(seen.files, "0 f 7, ");
	heard_nothing();
	assert_int_equal(runclient_session_count(rc, "p1"), 0);
	box_close(&b);
}

/* ---- from inside callbacks ---- */

static void close_when_idle(void *ctx, struct session *s)
{
	(void)ctx;
	if (s)
		runclient_session_close(rc, s);
	else
		gone_calls++;
}

static void callbacks_may_do_it_all(void **state)
{
	struct opened o;
	struct box b = open_session(&o, "p1", "sandbox-sess1");
	struct seen first, second = {0};

	(void)state;
	/* A cell from another's done: the session is idle by then, and nobody is told that it is. */
	start_cell(&first, o.s, "first");
	first.next_cell_on = o.s;
	first.next_cell = &second;
	step();
	takes_request(&b);
	ends(&b, 1, false);
	finish("f", "m");
	heard(ASK_COLLECTED);
	assert_int_equal(first.done, 1);
	assert_int_equal(first.next_result, 0);
	assert_int_equal(idle_calls, 0);
	step();
	takes_request(&b);
	/* Closing from on_session. */
	runclient_on_session(rc, close_when_idle, NULL);
	ends(&b, 2, false);
	finish("f", "m");
	heard(ASK_COLLECTED);
	assert_int_equal(second.done, 1);
	heard(ASK_CLOSE);
	ends(&b, 0, true);
	assert_int_equal(gone_calls, 1);
	box_close(&b);

	/* Closing from opened. */
	o = (struct opened){.close_at_once = true};
	assert_int_equal(try_open(&o, "p1"), 0);
	b = grant_to(heard(ASK_SANDBOX).req, true, "sandbox-sess2");
	heard(ASK_CLOSE);
	ends(&b, 0, true);
	assert_int_equal(runclient_session_count(rc, "p1"), 0);
	box_close(&b);
}

/* ---- the end of the supervisor, and of the client ---- */

/* Every state at once. */
struct everything {
	struct opened idle, busy, after, closing, opening;
	struct seen sending, running, summary, asked;
	struct box b[4];
};

static void make_everything(struct everything *e)
{
	*e = (struct everything){0};
	e->b[0] = open_session(&e->idle, "p1", "sandbox-idle1");
	e->b[1] = open_session(&e->busy, "p1", "sandbox-busy1");
	e->b[2] = open_session(&e->after, "p1", "sandbox-after");
	e->b[3] = open_session(&e->closing, "p1", "sandbox-close");
	start_cell(&e->running, e->busy.s, "x");
	start_cell(&e->summary, e->after.s, "x");
	step();
	takes_request(&e->b[1]);
	takes_request(&e->b[2]);
	ends(&e->b[2], 1, false);
	runclient_session_close(rc, e->closing.s);
	heard(ASK_CLOSE);
	assert_int_equal(try_open(&e->opening, "p1"), 0);
	heard(ASK_SANDBOX);
	start_run(&e->asked, "p1");
	heard(ASK_SANDBOX);
	start_cell(&e->sending, e->idle.s, "x");
}

static void check_everything(struct everything *e)
{
	const struct seen *seen[] = {&e->sending, &e->running, &e->summary, &e->asked};

	assert_int_equal(e->opening.calls, 1);
	assert_null(e->opening.s);
	assert_int_equal(e->opening.outcome, RUN_FAILED);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(seen[i]->done, 1);
		assert_int_equal(seen[i]->result.outcome, RUN_FAILED);
		box_close(&e->b[i]);
	}
	assert_false(e->sending.result.ran);
	assert_true(e->running.result.ran);
	assert_true(e->summary.result.ran);
}

static void the_supervisor_is_gone(void **state)
{
	struct everything e;
	struct seen seen = {0};
	struct opened o = {0};

	(void)state;
	make_everything(&e);
	close(sup);
	sup = -1;
	assert_int_equal(runclient_step(rc), -EPIPE);
	check_everything(&e);
	assert_null(runclient_session_next(rc, NULL));
	assert_int_equal(runclient_session_count(rc, "p1"), 0);
	assert_int_equal(idle_calls, 0);
	assert_true(gone_calls >= 4);
	assert_int_equal(try_start(&seen, "p1", NULL, "x"), -EPIPE);
	assert_int_equal(try_open(&o, "p1"), -EPIPE);
}

static void the_client_stops(void **state)
{
	struct everything e;
	struct seen more = {0};

	(void)state;
	make_everything(&e);
	e.summary.next_cell_on = e.after.s;
	e.summary.next_cell = &more;
	rc = runclient_free(rc);
	assert_int_equal(e.summary.next_result, -EBUSY);
	check_everything(&e);
	assert_int_equal(idle_calls + gone_calls, 0);
}

static void all_are_cancelled(void **state)
{
	struct everything e;
	struct ask a;
	unsigned kills = 0, closes = 0;

	(void)state;
	make_everything(&e);
	runclient_cancel_all(rc);
	step();
	assert_int_equal(e.opening.outcome, RUN_GONE);
	assert_int_equal(e.asked.result.outcome, RUN_GONE);
	assert_int_equal(e.sending.result.outcome, RUN_GONE);
	assert_int_equal(e.running.done + e.summary.done, 0);
	assert_ptr_equal(runclient_session_find(rc, "sandbox-idle1", "p1"), e.idle.s);
	while (ipc_recv(sup, &a, sizeof a, NULL, NULL) > 0) {
		kills += a.type == ASK_KILL;
		closes += a.type == ASK_CLOSE;
	}
	assert_int_equal(kills, 2); /* the one that runs and the one that was asked for */
	assert_int_equal(closes, 1);
	for (int i = 0; i < 4; i++)
		box_close(&e.b[i]);
}

static void nonsense_about_sessions(void **state)
{
	for (int what = 0; what < 6; what++) {
		struct opened o;
		struct seen seen;
		struct box b;
		struct tell t;

		if (what) {
			teardown(state);
			setup(state);
		}
		b = open_session(&o, "p1", "sandbox-sess1");
		t = ending(&b, 1, false);
		if (what >= 2) {
			start_cell(&seen, o.s, "x");
			step();
			takes_request(&b);
		}
		if (what == 1) /* 0: the end of a cell that was never started */
			t.type = TELL_FAIL;
		else if (what == 2)
			t.end.cell = 2;
		else if (what == 3)
			t.end.cell = 0; /* its end, and yet not over */
		else if (what == 4)
			t.type = TELL_GRANT;
		if (what == 5) {
			tell(&t, NULL, 0);
			step(); /* that was right; told twice it is not */
		}
		tell(&t, NULL, 0);
		assert_int_equal(runclient_step(rc), -EPIPE);
		if (what >= 2)
			assert_int_equal(seen.result.outcome, RUN_FAILED);
		box_close(&b);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_run_from_end_to_end),
	    TEST(output_beyond_the_cap_is_no_progress),
	    TEST(requests_that_are_none),
	    TEST(a_file_that_could_not_be_placed),
	    TEST(a_dead_sandbox_is_replaced_once),
	    TEST(what_is_not_replaced),
	    TEST(deadlines_of_a_run),
	    TEST(nonsense),
	    cmocka_unit_test_setup_teardown(no_collector, setup_without_collector, teardown),
	    TEST(a_collector_that_fails),
	    TEST(a_collector_that_is_gone),
	    TEST(an_auditor_that_is_slow),
	    TEST(a_collector_that_is_slow),
	    TEST(nobody_waits_for_ever_in_line),
	    TEST(projects_take_turns),
	    TEST(a_collector_that_lies),
	    TEST(too_many_open_files),
	    TEST(opening_a_session),
	    TEST(sessions_that_do_not_open),
	    TEST(as_many_as_a_project_may_have),
	    TEST(as_many_as_there_may_be),
	    TEST(cells_one_after_the_other),
	    TEST(what_is_still_in_the_pipes),
	    TEST(many_cells_leave_nothing),
	    TEST(a_manifest_that_nobody_saw_the_files_of),
	    TEST(a_cell_without_files_thaws_too),
	    TEST(a_cell_that_ends_its_session),
	    TEST(a_session_that_ends_while_it_waits),
	    TEST(a_session_that_ends_before_the_cell),
	    TEST(a_session_that_ends_after_the_cell),
	    TEST(a_refused_cell),
	    TEST(a_cell_withdrawn_before_it_was_sent),
	    TEST(a_request_that_is_not_taken),
	    TEST(a_request_that_is_taken_slowly),
	    TEST(a_cell_over_its_output),
	    TEST(a_cell_whose_end_is_never_told),
	    TEST(closing_an_idle_session),
	    TEST(closing_a_busy_session),
	    TEST(callbacks_may_do_it_all),
	    TEST(the_supervisor_is_gone),
	    TEST(the_client_stops),
	    TEST(all_are_cancelled),
	    TEST(nonsense_about_sessions),
	};

	log_init("test", (enum log_level) - 1); /* what is said about it is said to nobody */
	return cmocka_run_group_tests_name("runclient", tests, NULL, NULL);
}
