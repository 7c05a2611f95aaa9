/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/api.h"
#include "collector/collector.h"
#include "core/clock.h"
#include "ipc/metrics.h"

#define NOBODY 65534

/* What the fakes remove at their end, however that comes. */
static const char *base_path;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void remove_tree(const char *path)
{
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* In the fakes' process, where no test could catch a failed assertion. */
#define REQUIRE(truth)                                                                                                         \
	do {                                                                                                                   \
		if (!(truth)) {                                                                                                \
			fprintf(stderr, "fake: %s:%d: %s\n", __FILE__, __LINE__, #truth);                                      \
			remove_tree(base_path);                                                                                \
			_exit(3);                                                                                              \
		}                                                                                                              \
	} while (0)

/* A sandbox, for single use or kept. */
struct fake_run {
	struct fake_run *next;
	uint64_t req;
	unsigned number;
	int request, out[2], result; /* our ends; -1 when closed */
	int dir;
	char *payload; /* what follows the header */
	size_t payload_len, got, echoed;
	struct request_header header;
	char *code; /* a copy with a NUL, after its `file` lines */
	size_t code_len;
	bool started, echo, raw;
	const char *text; /* what `echo` writes */
	uint64_t left[2]; /* bytes still to write on each stream */
	uint64_t end_ns;  /* 0: not by time */
	bool hold;
	const char *say; /* pieces that are still to be written */
	uint64_t say_ns, say_every_ns;
	struct tell_end end;
	/* of a call */
	bool call, result_flood, result_stays;
	char *frame;
	size_t frame_len, frame_at;
	/* of a session */
	bool session, frozen, stubborn, over;
	bool ends_after;
	unsigned cells;
	char late[64];
};

static void tell(struct rig *r, struct tell *t, const int *fds, size_t nfds)
{
	while (ipc_send(r->supervisor, t, sizeof *t, fds, nfds) == -EAGAIN)
		usleep(200);
}

static void tell_state(struct rig *r)
{
	struct tell t = {.type = TELL_STATE, .pool = {.size = 3, .warm = 3, .ready = r->ready}};

	memcpy(t.pool.not_ready, r->not_ready, sizeof t.pool.not_ready);
	tell(r, &t, NULL, 0);
	r->state_due = false;
}

void rig_tell_state(struct rig *r, bool ready, const char *why)
{
	r->ready = ready;
	snprintf(r->not_ready, sizeof r->not_ready, "%s", why);
	r->state_due = true;
	while (r->state_due)
		usleep(1000);
}

/* ---- working directories ---- */

static void dir_path(const struct rig *r, unsigned number, char path[128])
{
	snprintf(path, 128, "%s/%u", r->base_path, number);
}

/* Makes the directories on the way, then the file. Over whatever was there. */
static void put_file(int dir, const char *name, const void *content, size_t len)
{
	char path[1100];
	int fd;

	snprintf(path, sizeof path, "%s", name);
	for (char *slash = path; (slash = strchr(slash, '/')); *slash++ = '/') {
		*slash = 0;
		(void)mkdirat(dir, path, 0755);
	}
	fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	REQUIRE(fd >= 0);
	for (size_t done = 0; done < len;) {
		ssize_t n = write(fd, (const char *)content + done, len - done);

		REQUIRE(n > 0);
		done += (size_t)n;
	}
	close(fd);
}

/* As the harness does: the request's files, and the script of a run for single use. */
static void place_files(const struct fake_run *run)
{
	const struct request_header *h = &run->header;
	const char *at = run->payload + h->code_len + h->stdin_len + h->env_len;

	if (!run->session && !run->call)
		put_file(run->dir, "main.py", run->payload, h->code_len);
	for (uint32_t i = 0; i < h->file_count; i++) {
		struct request_file f;
		char path[1100];

		memcpy(&f, at, sizeof f);
		REQUIRE(f.path_len < sizeof path);
		memcpy(path, at + sizeof f, f.path_len);
		path[f.path_len] = 0;
		put_file(run->dir, path, at + sizeof f + f.path_len, f.size);
		at += sizeof f + f.path_len + f.size;
	}
	REQUIRE(at == run->payload + run->payload_len);
}

/* ---- the supervisor ---- */

static void forget_request(struct fake_run *run)
{
	free(run->code);
	free(run->payload);
	free(run->frame);
	run->code = run->payload = run->frame = NULL;
	run->got = run->payload_len = run->echoed = 0;
	run->started = run->echo = run->raw = run->hold = false;
	run->end_ns = 0;
}

static void run_free(struct rig *r, struct fake_run *run)
{
	for (struct fake_run **at = &r->runs; *at; at = &(*at)->next)
		if (*at == run) {
			*at = run->next;
			break;
		}
	for (int i = 0; i < 2; i++)
		if (run->out[i] >= 0)
			close(run->out[i]);
	if (run->result >= 0 && !run->result_stays)
		close(run->result);
	if (run->request >= 0)
		close(run->request);
	close(run->dir);
	forget_request(run);
	if (run->session)
		r->sessions--;
	free(run);
	r->open--;
}

static void new_ending(struct fake_run *run)
{
	run->end = (struct tell_end){.ran = 1, .duration_us = 1500, .cpu_us = 1250, .memory_peak = 9 << 20};
	strcpy(run->end.cpu_source, "fake cpu");
	strcpy(run->end.memory_source, "fake memory");
	run->end.attempts = 2;
	run->end.denied = 2;
}

static void run_end(struct rig *r, struct fake_run *run)
{
	struct tell t = {.type = TELL_END, .req = run->req};

	run->end.over = !run->session || run->over;
	if (!run->end.over) {
		run->end.cell = run->cells;
		t.end = run->end;
		run->frozen = true;
		tell(r, &t, NULL, 0);
		forget_request(run);
		return;
	}
	for (int i = 0; i < 2; i++) {
		close(run->out[i]);
		run->out[i] = -1;
	}
	if (run->result >= 0 && !run->result_stays) {
		close(run->result);
		run->result = -1;
	}
	t.end = run->end;
	tell(r, &t, NULL, 0);
	run_free(r, run);
}

/* A session's own end, for a reason that is no cell's unless one runs. */
static void session_over(struct rig *r, struct fake_run *run, enum run_end end, const char *detail)
{
	if (!run->started)
		new_ending(run);
	run->end.ran = run->started;
	run->end.cell = run->started ? run->cells : 0;
	run->end.end = end;
	run->end.exit_code = 137;
	snprintf(run->end.detail, sizeof run->end.detail, "%s", detail);
	run->over = true;
	run_end(r, run);
}

/* Agents whose sandboxes never come. Returns whether this is one. */
static bool grant_refused(struct rig *r, const struct ask *ask)
{
	static const struct {
		const char *agent, *layer, *text;
		int code;
	} rows[] = {
	    {"none", "agent", "there is no agent none in project a", ENOENT},
	    {"slow", "load", "the import of app took longer than that", ETIMEDOUT},
	    {"crash", "tools", "main ended with signal 11 while it imported app", ECHILD},
	    {"many", "pool", "too many agents are being called at once", EAGAIN},
	    {"unsafe", "mounts", "proc could not be mounted", EPERM},
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct tell t = {.type = TELL_FAIL, .req = ask->req, .fail = {.code = (uint32_t)rows[i].code}};

		if (strcmp(rows[i].agent, ask->agent) != 0)
			continue;
		strcpy(t.fail.layer, rows[i].layer);
		strcpy(t.fail.text, rows[i].text);
		tell(r, &t, NULL, 0);
		return true;
	}
	return false;
}

static void grant(struct rig *r, const struct ask *ask)
{
	struct tell t = {.req = ask->req};
	struct fake_run *run;
	int sv[2], out[2], err[2], result[2] = {-1, -1};
	enum rig_grant mode = r->grant;
	char path[128];

	r->asked++;
	memcpy(r->last_agent, ask->agent, sizeof r->last_agent);
	memcpy(r->last_asked_for, ask->project, sizeof r->last_asked_for);
	memcpy(r->last_caller, ask->caller, sizeof r->last_caller);
	REQUIRE(!*ask->agent || !ask->session);
	if (mode == RIG_NEVER || grant_refused(r, ask))
		return;
	if (mode == RIG_FAIL) {
		t.type = TELL_FAIL;
		t.fail.code = EPERM;
		strcpy(t.fail.layer, "mounts");
		strcpy(t.fail.step, "proc");
		strcpy(t.fail.text, "proc could not be mounted");
		tell(r, &t, NULL, 0);
		return;
	}
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) == 0);
	REQUIRE(pipe2(out, O_CLOEXEC) == 0);
	REQUIRE(pipe2(err, O_CLOEXEC) == 0);
	run = calloc(1, sizeof *run);
	run->req = ask->req;
	run->session = ask->session;
	run->call = *ask->agent;
	if (run->call)
		REQUIRE(pipe2(result, O_CLOEXEC | O_NONBLOCK) == 0);
	run->result = result[1];
	run->number = r->next_id++;
	dir_path(r, run->number, path);
	REQUIRE(mkdir(path, 0700) == 0);
	run->dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	REQUIRE(run->dir >= 0);
	run->request = sv[0];
	run->out[0] = out[1];
	run->out[1] = err[1];
	fcntl(run->out[0], F_SETFL, O_NONBLOCK);
	fcntl(run->out[1], F_SETFL, O_NONBLOCK);
	run->next = r->runs;
	r->runs = run;
	r->granted++;
	r->open++;
	if (run->session)
		r->sessions++;
	new_ending(run);
	t.type = TELL_GRANT;
	snprintf(t.grant.sandbox_id, sizeof t.grant.sandbox_id, "sandbox-%05u", run->number);
	strcpy(t.grant.run_id, t.grant.sandbox_id);
	strcpy(t.grant.python, "3.12.1");
	{
		const int fds[5] = {sv[1], out[0], err[0], run->dir, result[0]};

		t.grant.build_us = 30000;
		t.grant.load_us = 250500;
		t.grant.waited_us = 1000;
		tell(r, &t, fds, run->call ? 5 : 4);
		for (int i = 0; i < 5; i++)
			if (fds[i] >= 0 && fds[i] != run->dir)
				close(fds[i]);
	}
	if (mode == RIG_DEAF) {
		/* As a sandbox that died: nobody will ever read, and the end is told without a gate having opened. */
		run->end.ran = 0;
		run->end.end = RUN_END_BROKEN;
		strcpy(run->end.detail, "init died");
		run->over = true;
		run_end(r, run);
	}
}

/* Reads the request as a harness does. Returns whether it is whole. */
static bool read_request(struct fake_run *run)
{
	const struct request_header *h = &run->header;

	for (;;) {
		size_t head = sizeof run->header;
		ssize_t n;

		if (run->got < head)
			n = recv(run->request, (char *)&run->header + run->got, head - run->got, MSG_DONTWAIT);
		else if (run->got < head + run->payload_len)
			n = recv(run->request, run->payload + run->got - head, head + run->payload_len - run->got,
				 MSG_DONTWAIT);
		else
			return true;
		if (n <= 0)
			return false;
		run->got += (size_t)n;
		if (run->got == head) {
			REQUIRE(h->magic == REQUEST_MAGIC);
			REQUIRE(((h->flags & REQUEST_SESSION) != 0) == run->session);
			REQUIRE((h->flags == REQUEST_CALL) == run->call);
			REQUIRE(!run->call || (h->code_len && h->stdin_len && !h->env_len && !h->file_count));
			run->payload_len = (size_t)h->code_len + h->stdin_len + h->env_len + h->files_len;
			run->payload = calloc(1, run->payload_len + 1);
		}
	}
}

/* Obeys the lines at the beginning of the code that ask for files. */
static char *leave_files(struct fake_run *run, char *code)
{
	char name[1024];
	unsigned long long size;
	int used;

	while (sscanf(code, "file %1023s %llu%n", name, &size, &used) == 2) {
		char *content = malloc(size + 1);

		/* Another content for another cell: what has its old size is changed all the same. */
		memset(content, 'a' + (int)(run->cells % 26), size);
		put_file(run->dir, name, content, size);
		free(content);
		code += used;
		code += *code == '\n';
	}
	return code;
}

static void add_frame(struct fake_run *run, uint32_t kind, uint64_t says, const char *content, size_t len)
{
	struct result_header h = {.magic = RESULT_MAGIC, .kind = kind, .len = says};

	run->frame = realloc(run->frame, run->frame_len + sizeof h + len);
	memcpy(run->frame + run->frame_len, &h, sizeof h);
	memcpy(run->frame + run->frame_len + sizeof h, content, len);
	run->frame_len += sizeof h + len;
}

/* What a call's name asks for as its result. Returns whether it does. */
static bool obey_result(struct fake_run *run, const char *word, const char *rest, unsigned long long n)
{
	const char *arguments = run->payload + run->header.code_len;
	size_t len = run->header.stdin_len;
	unsigned byte;

	run->end.exit_code = (int)n;
	if (!strcmp(word, "value") || !strcmp(word, "open") || !strcmp(word, "twice")) {
		add_frame(run, RESULT_VALUE, len, arguments, len);
		if (!strcmp(word, "twice"))
			add_frame(run, RESULT_VALUE, len, arguments, len);
		run->result_stays = !strcmp(word, "open");
	} else if (!strcmp(word, "error")) {
		add_frame(run, RESULT_ERROR, len, arguments, len);
	} else if (!strcmp(word, "unknown")) {
		add_frame(run, RESULT_UNKNOWN, 0, "", 0);
	} else if (!strcmp(word, "kind")) {
		add_frame(run, (uint32_t)n, len, arguments, len);
		run->end.exit_code = 0;
	} else if (!strcmp(word, "says")) {
		add_frame(run, RESULT_VALUE, n, arguments, len);
		run->end.exit_code = 0;
	} else if (!strcmp(word, "large")) {
		char *text = malloc(n);

		memset(text, 'x', n);
		text[0] = text[n - 1] = '"';
		add_frame(run, RESULT_VALUE, n, text, n);
		free(text);
		run->end.exit_code = 0;
	} else if (!strcmp(word, "bytes")) {
		run->frame = calloc(1, strlen(rest));
		run->end.exit_code = 0;
		for (rest += strspn(rest, " "); sscanf(rest, "%2x", &byte) == 1; rest += 2)
			run->frame[run->frame_len++] = (char)byte;
	} else if (!strcmp(word, "flood-result")) {
		run->result_flood = true;
		run->end.exit_code = 0;
	} else {
		return false;
	}
	return true;
}

/* Writes what fits of the result. Returns whether nothing more is to come. */
static bool advance_result(struct fake_run *run)
{
	static char filler[65536];
	ssize_t n = 1;

	while (n > 0 && (run->result_flood || run->frame_at < run->frame_len)) {
		n = run->result_flood ? write(run->result, filler, sizeof filler)
				      : write(run->result, run->frame + run->frame_at, run->frame_len - run->frame_at);
		if (n > 0 && !run->result_flood)
			run->frame_at += (size_t)n;
	}
	return n > 0 || errno == EPIPE;
}

static void obey(struct fake_run *run)
{
	unsigned long long n = 0, m = 0;
	char word[16] = "";
	char *code;

	run->started = true;
	run->stubborn = false;
	new_ending(run);
	run->code = calloc(1, run->header.code_len + 1);
	memcpy(run->code, run->payload, run->header.code_len);
	code = leave_files(run, run->code);
	run->code_len = run->header.code_len - (size_t)(code - run->code);
	if (sscanf(code, "%15s %llu %llu", word, &n, &m) < 1)
		return; /* empty code: exit 0 */
	if (run->call && obey_result(run, word, code + strlen(word), n))
		return;
	if (!strcmp(word, "echo")) {
		run->echo = true;
		run->text = code;
		run->left[0] = run->code_len;
	} else if (!strcmp(word, "cat")) {
		run->echo = true;
		run->text = run->payload + run->header.code_len;
		run->left[0] = (uint64_t)run->header.stdin_len + run->header.env_len;
	} else if (!strcmp(word, "raw")) {
		run->raw = true;
		run->left[0] = 256;
	} else if (!strcmp(word, "out")) {
		run->left[0] = n;
	} else if (!strcmp(word, "err")) {
		run->left[1] = n;
	} else if (!strcmp(word, "both")) {
		run->left[0] = run->left[1] = n;
	} else if (!strcmp(word, "stall")) {
		run->left[0] = run->left[1] = n;
		run->hold = true;
	} else if (!strcmp(word, "flood")) {
		run->left[0] = run->left[1] = UINT64_MAX;
	} else if (!strcmp(word, "say")) {
		run->say_every_ns = n * 1000000;
		run->say_ns = clock_now_ns();
		run->say = code + 4 + strspn(code + 4, "0123456789");
	} else if (!strcmp(word, "hold") || !strcmp(word, "stubborn")) {
		run->hold = true;
		run->stubborn = !strcmp(word, "stubborn");
	} else if (!strcmp(word, "sleep")) {
		run->hold = true;
		run->end_ns = clock_now_ns() + n * 1000000;
	} else if (!strcmp(word, "exit")) {
		run->end.exit_code = (int)n;
	} else if (!strcmp(word, "signal")) {
		run->end.end = RUN_END_SIGNAL;
		run->end.signal = (int)n;
		run->end.exit_code = 128 + (int)n;
	} else if (!strcmp(word, "timeout") || !strcmp(word, "partial")) {
		run->end.end = RUN_END_TIMEOUT;
		run->end.exit_code = -1;
		if (!strcmp(word, "partial"))
			(void)!write(run->out[1], code + 8, run->code_len - 8);
	} else if (!strcmp(word, "memory")) {
		run->end.end = RUN_END_MEMORY;
		run->end.exit_code = 137;
		run->over = true;
	} else if (!strcmp(word, "broken") || !strcmp(word, "lost")) {
		run->end.end = RUN_END_BROKEN;
		run->end.ran = !strcmp(word, "lost");
		strcpy(run->end.detail, "a fault of ours");
		run->over = true;
	} else if (!strcmp(word, "refuse")) {
		run->end.ran = 0;
		run->end.refused_errno = (uint32_t)n;
		run->end.refused_index = (uint32_t)m;
	} else if (!strcmp(word, "die")) {
		run->end.exit_code = 3;
		run->over = true;
	} else if (!strcmp(word, "late")) {
		snprintf(run->late, sizeof run->late, "%s", code + 5);
	} else if (!strcmp(word, "after")) {
		run->ends_after = true;
	}
	run->end.cell = run->cells;
}

static void start(struct rig *r, struct fake_run *run, const struct ask *ask)
{
	REQUIRE(!run->started && !run->frozen);
	r->last_timeout_s = ask->timeout_s;
	REQUIRE(read_request(run)); /* the order comes after the last byte */
	if (run->session) {
		run->cells++;
		r->cells++;
	}
	place_files(run);
	obey(run);
	r->started++;
}

static void killed(struct rig *r, struct fake_run *run, uint32_t reason)
{
	if (reason == RUN_END_OUTPUT)
		r->killed_output++;
	else
		r->killed_cancelled++;
	if (run->session && !run->started)
		return; /* its cell has ended in the meantime */
	run->left[0] = run->left[1] = 0;
	run->end.end = reason;
	run->end.exit_code = 137;
	run->end.signal = SIGKILL;
	run->end.ran = run->started;
	run->over = run->stubborn;
	if (!run->started)
		run->end.end = RUN_END_BROKEN;
	run_end(r, run);
}

static void thaw(struct rig *r, struct fake_run *run)
{
	REQUIRE(run->session && run->frozen);
	run->frozen = false;
	r->cells_collected++;
	if (*run->late)
		(void)!write(run->out[0], run->late, strlen(run->late));
	*run->late = 0;
	if (run->ends_after)
		session_over(r, run, RUN_END_EXIT, "");
}

/* The next piece of `say`, when its time has come. Returns whether there are no more. */
static bool say_next(struct fake_run *run)
{
	unsigned byte;
	int unread;

	/* What was said before has been read: so it is read in the order in which it was said. */
	for (int i = 0; i < 2; i++)
		if (ioctl(run->out[i], FIONREAD, &unread) == 0 && unread > 0)
			return false;
	if (clock_now_ns() < run->say_ns)
		return false;
	run->say_ns = clock_now_ns() + run->say_every_ns;
	run->say += strspn(run->say, " ");
	if (!strncmp(run->say, "hold", 4)) {
		run->hold = true;
		return true;
	}
	if (!strncmp(run->say, "timeout", 7)) {
		run->end.end = RUN_END_TIMEOUT;
		run->end.exit_code = -1;
		return true;
	}
	if (*run->say != 'o' && *run->say != 'e')
		return true;
	{
		int to = run->out[*run->say++ == 'e'];
		char piece[4096];
		size_t n = 0;

		for (; isxdigit((unsigned char)*run->say) && n < sizeof piece; run->say += 2) {
			REQUIRE(sscanf(run->say, "%2x", &byte) == 1);
			piece[n++] = (char)byte;
		}
		REQUIRE(write(to, piece, n) == (ssize_t)n);
	}
	return false;
}

/* Writes what fits. Returns whether the run is over. */
static bool advance(struct fake_run *run)
{
	static char filler[65536];
	char raw[256];

	if (run->say) {
		if (say_next(run))
			run->say = NULL;
		else
			return false;
	}

	for (int i = 0; i < 256; i++)
		raw[i] = (char)i;
	memset(filler, 'x', sizeof filler);
	for (int s = 0; s < 2; s++)
		for (int batch = 0; batch < 16 && run->left[s] > 0; batch++) {
			const char *from = run->echo ? run->text + run->echoed : run->raw ? raw : filler;
			size_t n = run->left[s] < sizeof filler ? run->left[s] : sizeof filler;
			ssize_t w = write(run->out[s], from, n);

			if (w <= 0)
				break;
			if (run->left[s] != UINT64_MAX)
				run->left[s] -= (uint64_t)w;
			run->echoed += run->echo ? (size_t)w : 0;
		}
	if (run->left[0] || run->left[1])
		return false;
	if (run->call && !advance_result(run))
		return false;
	if (run->end_ns)
		return clock_now_ns() >= run->end_ns;
	return !run->hold;
}

static void tell_metrics(struct rig *r, uint64_t req)
{
	static struct metrics m = {.at_ns = 2000000000, .started_ns = 500000000, .policy = {{1, 4}, {0, 0}}, .run_time = 1};
	struct tell t = {.type = TELL_METRICS, .req = req};
	int fd = memfd_create("metrics", MFD_CLOEXEC);

	r->scrapes++;
	m.runs[METRICS_CALL][RUN_END_TIMEOUT] = 3;
	m.runs_network.attempts[WEIR_WOULD_DENY] = 18446744073709551615u;
	m.program_count = 1;
	strcpy(m.programs[0].name, "a\"b\\c");
	m.programs[0].run_ns = 1500000001;
	histogram_add(&m.build, 300);
	REQUIRE(write(fd, &m, r->short_metrics ? 8 : sizeof m) > 0);
	usleep(r->slow_metrics ? 100000 : 0);
	tell(r, &t, &fd, 1);
	close(fd);
}

/* Of a run that goes on; of another, which has just ended, there is nothing. */
static void tell_usage(struct rig *r, const struct ask *ask)
{
	struct tell t = {.type = TELL_USAGE, .req = ask->req};

	r->usages++;
	if (!strcmp(ask->run_id, "sandbox-live")) {
		t.usage =
		    (struct tell_usage){.there = 1, .flow_bytes = 5, .end = {.cpu_us = 2500, .attempts = 4, .net_bytes = 5}};
		strcpy(t.usage.end.cpu_source, "cgroup2 cpu.stat");
	}
	if (!r->slow_usage)
		tell(r, &t, NULL, 0);
}

static void serve_supervisor(struct rig *r)
{
	struct ask ask;
	ssize_t n;

	while ((n = ipc_recv(r->supervisor, &ask, sizeof ask, NULL, NULL)) > 0) {
		struct fake_run *run = r->runs;

		REQUIRE(n == sizeof ask);
		while (run && run->req != ask.req)
			run = run->next;
		if (ask.type == ASK_SANDBOX) {
			grant(r, &ask);
		} else if (ask.type == ASK_START && run) {
			memcpy(r->last_starter, ask.caller, sizeof r->last_starter);
			start(r, run, &ask);
		} else if (ask.type == ASK_KILL) {
			if (run)
				killed(r, run, ask.reason);
			else
				r->withdrawn++;
		} else if (ask.type == ASK_COLLECTED && run) {
			thaw(r, run);
		} else if (ask.type == ASK_CLOSE) {
			if (run)
				session_over(r, run, RUN_END_CANCELLED, "closed");
			else
				r->withdrawn++;
			r->closed += run != NULL;
		} else if (ask.type == ASK_POOL) {
			struct tell t = {.type = TELL_POOL, .req = ask.req, .pool = {3, 2, 1, 4, 5, 1, 6, 7, ""}};

			tell(r, &t, NULL, 0);
		} else if (ask.type == ASK_METRICS) {
			tell_metrics(r, ask.req);
		} else if (ask.type == ASK_USAGE) {
			tell_usage(r, &ask);
		}
	}
}

static void answer(struct rig *r, const struct query *q, int status, const char *text, bool memfd)
{
	char msg[sizeof(struct answer) + ANSWER_INLINE_MAX];
	struct answer a = {.status = (uint32_t)status, .len = (uint32_t)strlen(text), .req = q->req};
	int fd = -1;

	memcpy(msg, &a, sizeof a);
	if (memfd) {
		fd = memfd_create("answer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		REQUIRE(write(fd, text, a.len) == a.len);
		fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
	} else {
		memcpy(msg + sizeof a, text, a.len);
	}
	ipc_send(r->auditor, msg, sizeof a + (memfd ? 0 : a.len), &fd, memfd);
	if (fd >= 0)
		close(fd);
}

/* Records from `after` on, as many as are asked for: all of them egress, but each tenth, which is a gap. */
static void answer_follow(struct rig *r, const struct query *q)
{
	uint64_t after = q->find.after, last = r->records;
	char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);
	unsigned count = 0;

	fprintf(to, "{\"records\": [");
	while (after < last && count < q->find.limit) {
		after++;
		fprintf(to, "%s{\"type\": \"%s\", \"seq\": %llu, \"pad\": \"%0*d\"}", count++ ? ", " : "",
			after % 10 ? "egress" : "gap", (unsigned long long)after, (int)r->record_bytes + 1, 0);
	}
	fprintf(to, "], \"cursor\": %llu}", (unsigned long long)(after > last ? last : after));
	fclose(to);
	answer(r, q, 0, text, len > 1000);
	free(text);
}

/* Those that wait for a record, and now have one. */
static void answer_followers(struct rig *r)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < r->following; i++) {
		const struct query q = r->parked[i];

		if (q.find.after == UINT64_MAX || q.find.after < r->records)
			answer_follow(r, &q);
		else
			r->parked[kept++] = q;
	}
	r->following = kept;
}

static void serve_auditor(struct rig *r)
{
	static const char summary[] =
	    "{\"audit_hash\": \"" RIG_HASH "\", \"egress\": {\"attempts\": 2, \"denied\": 2, \"allowed\": 0, \"would_deny\": "
	    "0, \"lost\": 0, \"destinations\": "
	    "[{\"protocol\": \"udp\", \"address\": \"8.8.8.8\", \"port\": 53, \"dns_name\": "
	    "\"leak.example\", \"verdict\": \"deny\", \"count\": 2}]}}";
	struct query q;

	while (ipc_recv(r->auditor, &q, sizeof q, NULL, NULL) == (ssize_t)sizeof q) {
		/* Now, and not before: the test has set it before it asked. */
		enum rig_audit mode = __atomic_load_n(&r->audit, __ATOMIC_ACQUIRE);
		if (mode == RIG_SILENT)
			continue;
		if (mode == RIG_ERROR) {
			answer(r, &q, ETIMEDOUT, "", false);
		} else if (q.type == QUERY_SUMMARY) {
			strcpy(r->last_run_id, q.run_id);
			r->last_content = q.content;
			answer(r, &q, 0, summary, mode == RIG_MEMFD);
		} else if (q.type == QUERY_SEARCH) {
			strcpy(r->last_project, q.project);
			r->last_find = q.find;
			answer(r, &q, 0, "{\"runs\": [{\"run_id\": \"sandbox-found\"}], \"next\": null}", mode == RIG_MEMFD);
		} else if (q.type == QUERY_FOLLOW) {
			strcpy(r->last_project, q.project);
			r->last_find = q.find;
			REQUIRE(r->following < sizeof r->parked / sizeof r->parked[0]);
			r->parked[r->following++] = q;
		} else if (q.type == QUERY_STATS) {
			answer(
			    r, &q, 0,
			    "{\"written\": 12, \"unwritten\": 0, \"bytes\": 4096, \"unsigned\": 1, \"chain_n\": 7, \"oldest\": "
			    "null, \"gaps\": {\"sweep\": 2}}",
			    false);
		} else {
			strcpy(r->last_project, q.project);
			if (!strcmp(q.run_id, "sandbox-big")) {
				char *text = malloc(200001);

				memset(text, ' ', 200000);
				memcpy(text, "{\"big\":", 7);
				memcpy(text + 199998, "1}", 3);
				answer(r, &q, 0, text, true);
				free(text);
			} else if (!strcmp(q.run_id, "sandbox-known.7")) {
				answer(r, &q, 0, "{\"run_id\": \"sandbox-known.7\", \"events_omitted\": 0, \"events\": [{}]}",
				       false);
			} else if (!strcmp(q.run_id, "sandbox-live") || !strcmp(q.run_id, "sandbox-ended-now")) {
				const bool seen = !*q.project || !strcmp(q.project, "a");

				answer(r, &q, seen ? 0 : ENOENT,
				       seen ? "{\"state\": \"running\", \"egress\": {\"attempts\": 1, \"exact\": false}, "
					      "\"events\": []}"
					    : "",
				       false);
			} else {
				answer(r, &q, ENOENT, "", false);
			}
		}
	}
	answer_followers(r);
}

/* ---- the collector: the real walk, in our hands ---- */

/* A directory whose sandbox is gone is removed when it has been read; the rest goes at the end. */
static void remove_read(struct rig *r, int dir)
{
	char link[64], path[128];
	ssize_t n;

	snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
	n = readlink(link, path, sizeof path - 1);
	REQUIRE(n > 0);
	path[n] = 0;
	for (const struct fake_run *run = r->runs; run; run = run->next) {
		char own[128];

		dir_path(r, run->number, own);
		if (!strcmp(own, path))
			return;
	}
	remove_tree(path);
}

static void serve_collector(struct rig *r)
{
	struct collect job;
	int fds[2], out[2] = {-1, -1};
	size_t nfds = 2;

	while (ipc_recv(r->collector, &job, sizeof job, fds, &nfds) == (ssize_t)sizeof job) {
		enum rig_collect mode = r->collect;
		struct collected c = {0};
		int status = EACCES;

		r->collections++;
		REQUIRE(nfds == (job.have_manifest ? 2 : 1));
		if (mode == RIG_COLLECT)
			status = -collector_walk(fds[0], &job, nfds == 2 ? fds[1] : -1, &c, &out[0], &out[1]);
		remove_read(r, fds[0]);
		for (size_t i = 0; i < nfds; i++)
			close(fds[i]);
		c.req = job.req;
		c.status = (uint32_t)status;
		if (mode == RIG_COLLECT_NONSENSE)
			c.status = 0; /* but no files */
		if (mode != RIG_COLLECT_SILENT)
			ipc_send(r->collector, &c, sizeof c, out, (size_t)((out[0] >= 0) + (out[1] >= 0)));
		for (int i = 0; i < 2; i++) {
			if (out[i] >= 0)
				close(out[i]);
			out[i] = -1;
		}
		nfds = 2;
	}
}

static void hang_up(_Atomic bool *wanted, int *fd)
{
	if (*wanted && *fd >= 0) {
		close(*fd);
		*fd = -1;
	}
}

static void end_idle_sessions(struct rig *r)
{
	if (!r->end_sessions)
		return;
	for (struct fake_run *run = r->runs, *next; run; run = next) {
		next = run->next;
		if (run->session && !run->started && !run->frozen)
			session_over(r, run, RUN_END_CANCELLED, "idle for too long");
	}
	r->end_sessions = false;
}

static void serve(struct rig *r)
{
	while (!r->stop) {
		struct pollfd fds[3] = {{.fd = r->supervisor, .events = POLLIN},
					{.fd = r->auditor, .events = POLLIN},
					{.fd = r->collector, .events = POLLIN}};

		poll(fds, 3, r->runs ? 1 : 10);
		if (r->deaf) {
			usleep(10000);
			continue;
		}
		hang_up(&r->hang_up_supervisor, &r->supervisor);
		hang_up(&r->hang_up_auditor, &r->auditor);
		hang_up(&r->hang_up_collector, &r->collector);
		if (r->state_due)
			tell_state(r);
		if (r->talk_nonsense) {
			r->talk_nonsense = false;
			(void)!send(r->supervisor, "nonsense", 8, MSG_NOSIGNAL);
		}
		if (r->supervisor >= 0)
			serve_supervisor(r);
		if (r->auditor >= 0)
			serve_auditor(r);
		if (r->collector >= 0)
			serve_collector(r);
		end_idle_sessions(r);
		for (struct fake_run *run = r->runs, *next; run; run = next) {
			next = run->next;
			if (run->frozen)
				continue;
			if (!run->started && r->grant != RIG_STALL)
				(void)read_request(run);
			else if (run->started && r->supervisor >= 0 && advance(run))
				run_end(r, run);
		}
	}
}

static struct rig *fake;

static void on_parent_gone(int sig)
{
	(void)sig;
	fake->stop = true;
}

struct rig *rig_start(bool start_ready)
{
	return rig_start_with(&(struct rig_options){.ready = start_ready});
}

struct rig *rig_start_with(const struct rig_options *options)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rig *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	socklen_t len = sizeof address;
	int supervisor[2], auditor[2], collector[2], listener;
	pid_t pid;

	signal(SIGPIPE, SIG_IGN);
	strcpy(r->last_project, "-");
	assert_int_equal(ipc_pair(supervisor, 1 << 20), 0);
	assert_int_equal(ipc_pair(auditor, 1 << 20), 0);
	assert_int_equal(ipc_pair(collector, 1 << 20), 0);
	strcpy(r->base_path, "/tmp/weir-rig-XXXXXX");
	assert_non_null(mkdtemp(r->base_path));
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(listener, 1024), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &len), 0);
	r->port = ntohs(address.sin_port);
	r->tls_cert = options->tls_cert;
	/* Not into `r` at once: the children share it, and their 0 would be written there too. */
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		bool root = geteuid() == 0;
		struct api_config config = {
		    .listen_fd = listener,
		    .supervisor_fd = supervisor[1],
		    .auditor_fd = auditor[1],
		    .collector_fd = collector[1],
		    .uid = root ? NOBODY : geteuid(),
		    .gid = root ? NOBODY : getegid(),
		    .has_dev_token = true,
		    .tokens = options->tokens,
		    .tls_cert = options->tls_cert,
		    .tls_key = options->tls_key,
		    .bodies_bytes = 256 << 20, /* less than the limits table's: a test is to fill it */
		    .project_bodies_bytes = 64 << 20,
		    .follow_take_s = 2,
		    .log_level = getenv("RIG_LOG") ? LOG_LVL_DEBUG : LOG_LVL_ERROR,
		};

		if (options->files)
			REQUIRE(setrlimit(RLIMIT_NOFILE, &(struct rlimit){options->files, options->files}) == 0);
		token_digest(RIG_TOKEN, sizeof RIG_TOKEN - 1, config.dev_token_sha256);
		exit(api_main(&config));
	}
	close(listener);
	close(supervisor[1]);
	close(auditor[1]);
	close(collector[1]);
	r->api = pid;
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		/* A test that fails leaves nothing behind: the api ends with its supervisor. */
		fake = r;
		signal(SIGTERM, on_parent_gone);
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		base_path = r->base_path;
		close_range(3, (unsigned)supervisor[0] - 1, 0); /* those of earlier rigs, whose hanging up must be theirs */
		r->supervisor = supervisor[0];
		r->auditor = auditor[0];
		r->collector = collector[0];
		serve(r);
		remove_tree(r->base_path);
		_exit(0);
	}
	r->fake = pid;
	close(supervisor[0]);
	close(auditor[0]);
	close(collector[0]);
	if (options->ready)
		rig_tell_state(r, true, "");
	return r;
}

static int finish(struct rig *r)
{
	int status, fake_status;

	assert_int_equal(waitpid(r->api, &status, 0), r->api);
	r->stop = true;
	assert_int_equal(waitpid(r->fake, &fake_status, 0), r->fake);
	assert_int_equal(fake_status, 0);
	munmap(r, sizeof *r);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int rig_stop(struct rig *r)
{
	assert_true(r->api > 0); /* kill(0) would mean all of us */
	kill(r->api, SIGTERM);
	return finish(r);
}

int rig_wait(struct rig *r)
{
	return finish(r);
}

void rig_await(_Atomic unsigned *counter, unsigned want, int ms)
{
	for (int i = 0; i < ms && *counter < want; i++)
		usleep(1000);
	if (*counter < want)
		fail_msg("counter is %u, not %u, after %d ms", *counter, want, ms);
}
