/* SPDX-License-Identifier: Apache-2.0 */
#include "runclient_rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- the clock ---- */

uint64_t skew_ns;

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

struct runclient *rc;
int sup, aud, col;
unsigned idle_calls, gone_calls;
struct session *last_idle;
static int fds_before;

int count_fds(void)
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

int setup(void **state)
{
	(void)state;
	return setup_with(true);
}

int setup_without_collector(void **state)
{
	(void)state;
	return setup_with(false);
}

int teardown(void **state)
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

void step(void)
{
	assert_int_equal(runclient_step(rc), 0);
}

void pass_ms(uint64_t ms)
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

void on_done(void *ctx, struct run_result *r)
{
	struct seen *s = ctx;
	struct collected_entry e;
	const char *path, *content;
	size_t at = 0, used = 0;

	s->done++;
	s->result = *r;
	for (int i = 0; i < RUN_PIPES; i++)
		snprintf(s->out[i], sizeof s->out[i], "%.*s", (int)r->out_len[i], r->out[i] ? r->out[i] : "");
	while (run_files_next(&r->files, &at, &e, &path, &content))
		used += (size_t)snprintf(s->files + used, sizeof s->files - used, "%u %.*s %llu, ", e.kind, (int)e.path_len,
					 path, (unsigned long long)e.size);
	if (s->next_cell_on)
		s->next_result = try_start(s->next_cell, "p1", s->next_cell_on, "next");
}

struct payload payload_of(const char *code, bool session)
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

int try_start(struct seen *seen, const char *project, struct session *s, const char *code)
{
	struct payload p = payload_of(code, s != NULL);
	int r;

	seen->request = (struct run_request){.project = project,
					     .caller = "token:tok-rig",
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

void start_run(struct seen *seen, const char *project)
{
	*seen = (struct seen){0};
	assert_int_equal(try_start(seen, project, NULL, "code"), 0);
}

void start_call(struct seen *seen, const char *project, const char *agent)
{
	const struct payload_parts parts = {
	    .call = true, .code = "app:tool", .code_len = 8, .stdin_text = "{\"a\": 1}", .stdin_len = 8};
	struct payload p;

	*seen = (struct seen){0};
	assert_int_equal(payload_make(&p, &parts), 0);
	seen->request = (struct run_request){.project = project,
					     .caller = "token:tok-rig",
					     .agent = agent,
					     .payload = &p,
					     .timeout_s = 120,
					     .output_bytes = LIMIT_CALL_OUTPUT_BYTES,
					     .granted = on_granted,
					     .progress = on_progress,
					     .done = on_done,
					     .ctx = seen};
	assert_int_equal(runclient_start(rc, &seen->request, &seen->req), 0);
}

void start_cell(struct seen *seen, struct session *s, const char *code)
{
	*seen = (struct seen){0};
	assert_int_equal(try_start(seen, s->project, s, code), 0);
}

/* ---- the supervisor's part ---- */

struct ask heard(uint32_t type)
{
	struct ask a;
	ssize_t n = ipc_recv(sup, &a, sizeof a, NULL, NULL);

	if (n != (ssize_t)sizeof a)
		fail_msg("nothing heard, but %u expected", type);
	if (a.type != type)
		fail_msg("heard %u, not %u", a.type, type);
	return a;
}

void heard_nothing(void)
{
	struct ask a;
	ssize_t n = ipc_recv(sup, &a, sizeof a, NULL, NULL);

	if (n != -EAGAIN)
		fail_msg("heard %u, but nothing was expected", a.type);
}

void tell(const struct tell *t, const int *fds, size_t nfds)
{
	assert_int_equal(ipc_send(sup, t, sizeof *t, fds, nfds), 0);
}

static struct box grant_any(uint64_t req, bool session, bool call, const char *id)
{
	struct tell t = {.type = TELL_GRANT, .req = req, .grant = {.build_us = 30000, .load_us = 2000, .waited_us = 500}};
	struct box b = {.req = req, .session = session, .result = -1};
	int sv[2], out[2], err[2], result[2] = {-1, -1}, fds[5];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(pipe2(err, O_CLOEXEC), 0);
	if (call)
		assert_int_equal(pipe2(result, O_CLOEXEC), 0);
	b.request = sv[0];
	b.out = out[1];
	b.err = err[1];
	b.result = result[1];
	b.dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	fds[0] = sv[1];
	fds[1] = out[0];
	fds[2] = err[0];
	fds[3] = b.dir;
	fds[4] = result[0];
	snprintf(t.grant.sandbox_id, sizeof t.grant.sandbox_id, "%s", id);
	strcpy(t.grant.run_id, t.grant.sandbox_id);
	strcpy(t.grant.python, "3.12.1");
	tell(&t, fds, call ? 5 : 4);
	for (int i = 0; i < 5; i++)
		if (i != 3 && fds[i] >= 0)
			close(fds[i]);
	step();
	return b;
}

struct box grant_to(uint64_t req, bool session, const char *id)
{
	return grant_any(req, session, false, id);
}

struct box grant_call(const char *id)
{
	struct ask a = heard(ASK_SANDBOX);

	assert_true(*a.agent);
	return grant_any(a.req, false, true, id);
}

struct box grant(void)
{
	struct ask a = heard(ASK_SANDBOX);

	assert_int_equal(a.session, 0);
	assert_string_equal(a.agent, "");
	return grant_to(a.req, false, "sandbox-one11");
}

/* The processes are dead: the pipes have no writer. */
void box_dies(struct box *b)
{
	close(b->out);
	close(b->err);
	if (b->result >= 0)
		close(b->result);
	b->out = b->err = b->result = -1;
}

void box_close(struct box *b)
{
	close(b->request);
	close(b->dir);
	if (b->out >= 0)
		box_dies(b);
}

void say(const struct box *b, int stream, const char *text)
{
	assert_int_equal(write(stream ? b->err : b->out, text, strlen(text)), (int)strlen(text));
}

/* What was written to the request socket. */
size_t take_request(const struct box *b, char *text, size_t room)
{
	size_t len = 0;
	ssize_t n;

	while ((n = recv(b->request, text + len, room - len, MSG_DONTWAIT)) > 0)
		len += (size_t)n;
	return len;
}

struct ask takes_request(const struct box *b)
{
	char text[4096];

	assert_true(take_request(b, text, sizeof text) > sizeof(struct request_header));
	return heard(ASK_START);
}

struct tell ending(const struct box *b, uint32_t cell, bool over)
{
	struct tell t = {.type = TELL_END, .req = b->req, .end = {.end = RUN_END_EXIT, .ran = 1, .cell = cell, .over = over}};

	return t;
}

void ends(struct box *b, uint32_t cell, bool over)
{
	struct tell t = ending(b, cell, over);

	if (over)
		box_dies(b);
	tell(&t, NULL, 0);
	step();
}

/* ---- the auditor's and the collector's ---- */

struct query asked_auditor(void)
{
	struct query q = {0};

	assert_int_equal(ipc_recv(aud, &q, sizeof q, NULL, NULL), (int)sizeof q);
	assert_int_equal(q.type, QUERY_SUMMARY);
	return q;
}

void auditor_not_asked(void)
{
	char c;

	assert_int_equal(ipc_recv(aud, &c, sizeof c, NULL, NULL), -EAGAIN);
}

void auditor_answers(uint64_t req)
{
	struct {
		struct answer a;
		char text[4];
	} m = {.a = {.len = 2, .req = req}, .text = "{}"};

	assert_int_equal(ipc_send(aud, &m, sizeof m.a + 2, NULL, 0), 0);
	step();
}

struct job asked_collector(void)
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

void collector_not_asked(void)
{
	char c;

	assert_int_equal(ipc_recv(col, &c, sizeof c, NULL, NULL), -EAGAIN);
}

void job_close(struct job *j)
{
	close(j->dir);
	if (j->manifest >= 0)
		close(j->manifest);
}

int memfd_of(const void *data, size_t len)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_int_equal(write(fd, data, len), (int)len);
	return fd;
}

size_t entry(char *text, enum collected_kind kind, const char *path, const char *content)
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
void collector_answers(uint64_t req, const char *name, const char *manifest)
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

struct query summed_up(void)
{
	struct query q = asked_auditor();

	auditor_answers(q.req);
	return q;
}

/* The rest of an ended run: both are asked and answer. */
void finish(const char *name, const char *manifest)
{
	struct job j = asked_collector();

	auditor_not_asked();
	collector_answers(j.c.req, name, manifest);
	assert_int_equal(summed_up().req, j.c.req);
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

int try_open(struct opened *o, const char *project)
{
	struct session_request request = {.project = project, .caller = "token:tok-rig", .opened = on_opened, .ctx = o};

	return runclient_session_open(rc, &request, &o->req);
}

struct box open_session(struct opened *o, const char *project, const char *id)
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
void whole_cell(const struct box *b, struct session *s, uint32_t n, const char *manifest)
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

void without_files(const struct seen *seen)
{
	assert_int_equal(seen->done, 1);
	assert_int_equal(seen->result.outcome, RUN_DONE);
	assert_string_equal(seen->result.files.problem, "files could not be collected");
	assert_int_equal(seen->result.files.len, 0);
	assert_null(seen->result.files.data);
}

bool same_file(int a, int b)
{
	struct stat x, y;

	assert_int_equal(fstat(a, &x), 0);
	assert_int_equal(fstat(b, &y), 0);
	return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}
