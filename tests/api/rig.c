/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/api.h"
#include "core/clock.h"

#define NOBODY 65534

/* In the fakes' process, where no test could catch a failed assertion. */
#define REQUIRE(truth)                                                                                                         \
	do {                                                                                                                   \
		if (!(truth)) {                                                                                                \
			fprintf(stderr, "fake: %s:%d: %s\n", __FILE__, __LINE__, #truth);                                      \
			_exit(3);                                                                                              \
		}                                                                                                              \
	} while (0)

struct fake_run {
	struct fake_run *next;
	uint64_t req;
	int request, out[2]; /* our ends; -1 when closed */
	char *code;
	size_t code_len, got, echoed;
	struct request_header header;
	bool started, echo, raw;
	uint64_t left[2]; /* bytes still to write on each stream */
	uint64_t end_ns;  /* 0: not by time */
	bool hold;
	struct tell_end end;
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
	if (run->request >= 0)
		close(run->request);
	free(run->code);
	free(run);
	r->open--;
}

static void run_end(struct rig *r, struct fake_run *run)
{
	struct tell t = {.type = TELL_END, .req = run->req, .end = run->end};

	for (int i = 0; i < 2; i++) {
		close(run->out[i]);
		run->out[i] = -1;
	}
	tell(r, &t, NULL, 0);
	run_free(r, run);
}

static void grant(struct rig *r, const struct ask *ask)
{
	struct tell t = {.req = ask->req};
	struct fake_run *run;
	int sv[2], out[2], err[2];
	enum rig_grant mode = r->grant;

	r->asked++;
	if (mode == RIG_NEVER)
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
	run->request = sv[0];
	run->out[0] = out[1];
	run->out[1] = err[1];
	fcntl(run->out[0], F_SETFL, O_NONBLOCK);
	fcntl(run->out[1], F_SETFL, O_NONBLOCK);
	run->next = r->runs;
	r->runs = run;
	r->granted++;
	r->open++;
	run->end.ran = 1;
	run->end.duration_us = 1500;
	run->end.cpu_us = 1250;
	run->end.memory_peak = 9 << 20;
	strcpy(run->end.cpu_source, "fake cpu");
	strcpy(run->end.memory_source, "fake memory");
	run->end.attempts = 2;
	run->end.denied = 2;
	t.type = TELL_GRANT;
	snprintf(t.grant.sandbox_id, sizeof t.grant.sandbox_id, "sandbox-%05u", r->next_id++);
	strcpy(t.grant.run_id, t.grant.sandbox_id);
	strcpy(t.grant.python, "3.12.1");
	{
		const int fds[3] = {sv[1], out[0], err[0]};

		tell(r, &t, fds, 3);
		for (int i = 0; i < 3; i++)
			close(fds[i]);
	}
	if (mode == RIG_DEAF) {
		/* As a sandbox that died: nobody will ever read, and the end is told without a gate having opened. */
		run->end.ran = 0;
		run->end.end = RUN_END_BROKEN;
		strcpy(run->end.detail, "init died");
		run_end(r, run);
	}
}

/* Reads the request as a harness does. Returns whether it is whole. */
static bool read_request(struct fake_run *run)
{
	for (;;) {
		size_t head = sizeof run->header;
		ssize_t n;

		if (run->got < head)
			n = recv(run->request, (char *)&run->header + run->got, head - run->got, MSG_DONTWAIT);
		else if (run->got < head + run->code_len)
			n = recv(run->request, run->code + run->got - head, head + run->code_len - run->got, MSG_DONTWAIT);
		else
			return true;
		if (n <= 0)
			return false;
		run->got += (size_t)n;
		if (run->got == head) {
			REQUIRE(run->header.magic == REQUEST_MAGIC);
			run->code_len = run->header.code_len;
			run->code = calloc(1, run->code_len + 1);
		}
	}
}

static void obey(struct fake_run *run)
{
	unsigned long long n = 0;
	char word[16] = "";

	run->started = true;
	if (sscanf(run->code, "%15s %llu", word, &n) < 1)
		return; /* empty code: exit 0 */
	if (!strcmp(word, "echo")) {
		run->echo = true;
		run->left[0] = run->code_len;
	} else if (!strcmp(word, "raw")) {
		run->raw = true;
		run->left[0] = 256;
	} else if (!strcmp(word, "out")) {
		run->left[0] = n;
	} else if (!strcmp(word, "err")) {
		run->left[1] = n;
	} else if (!strcmp(word, "both")) {
		run->left[0] = run->left[1] = n;
	} else if (!strcmp(word, "flood")) {
		run->left[0] = run->left[1] = UINT64_MAX;
	} else if (!strcmp(word, "hold")) {
		run->hold = true;
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
			(void)!write(run->out[1], run->code + 8, run->code_len - 8);
	} else if (!strcmp(word, "memory")) {
		run->end.end = RUN_END_MEMORY;
		run->end.exit_code = 137;
	} else if (!strcmp(word, "broken") || !strcmp(word, "lost")) {
		run->end.end = RUN_END_BROKEN;
		run->end.ran = !strcmp(word, "lost");
		strcpy(run->end.detail, "a fault of ours");
	}
}

static void start(struct rig *r, struct fake_run *run, const struct ask *ask)
{
	r->last_timeout_s = ask->timeout_s;
	REQUIRE(read_request(run)); /* the order comes after the last byte */
	obey(run);
	r->started++;
}

static void killed(struct rig *r, struct fake_run *run, uint32_t reason)
{
	if (reason == RUN_END_OUTPUT)
		r->killed_output++;
	else
		r->killed_cancelled++;
	run->end.end = reason;
	run->end.exit_code = 137;
	run->end.signal = SIGKILL;
	run->end.ran = run->started;
	if (!run->started)
		run->end.end = RUN_END_BROKEN;
	run_end(r, run);
}

/* Writes what fits. Returns whether the run is over. */
static bool advance(struct fake_run *run)
{
	static char filler[65536];
	char raw[256];

	for (int i = 0; i < 256; i++)
		raw[i] = (char)i;
	memset(filler, 'x', sizeof filler);
	for (int s = 0; s < 2; s++)
		for (int batch = 0; batch < 16 && run->left[s] > 0; batch++) {
			const char *from = run->echo ? run->code + run->echoed : run->raw ? raw : filler;
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
	if (run->end_ns)
		return clock_now_ns() >= run->end_ns;
	return !run->hold;
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
			start(r, run, &ask);
		} else if (ask.type == ASK_KILL) {
			if (run)
				killed(r, run, ask.reason);
			else
				r->withdrawn++;
		} else if (ask.type == ASK_POOL) {
			struct tell t = {.type = TELL_POOL, .req = ask.req, .pool = {3, 2, 1, 4, 5, 1, 6, 7, ""}};

			tell(r, &t, NULL, 0);
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

static void serve_auditor(struct rig *r)
{
	static const char summary[] =
	    "{\"attempts\": 2, \"denied\": 2, \"allowed\": 0, \"would_deny\": 0, \"lost\": 0, \"destinations\": "
	    "[{\"protocol\": \"udp\", \"address\": \"8.8.8.8\", \"port\": 53, \"dns_name\": "
	    "\"leak.example\", \"verdict\": \"deny\", \"count\": 2}]}";
	struct query q;

	while (ipc_recv(r->auditor, &q, sizeof q, NULL, NULL) == (ssize_t)sizeof q) {
		/* Now, and not before: the test has set it before it asked. */
		enum rig_audit mode = __atomic_load_n(&r->audit, __ATOMIC_ACQUIRE);
		if (mode == RIG_SILENT)
			continue;
		if (mode == RIG_ERROR) {
			answer(r, &q, ETIMEDOUT, "", false);
		} else if (q.type == QUERY_SUMMARY) {
			answer(r, &q, 0, summary, mode == RIG_MEMFD);
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
				answer(r, &q, 0, "{\"run_id\": \"sandbox-known.7\"}", false);
			} else {
				answer(r, &q, ENOENT, "", false);
			}
		}
	}
}

static void serve(struct rig *r)
{
	while (!r->stop) {
		struct pollfd fds[2] = {{.fd = r->supervisor, .events = POLLIN}, {.fd = r->auditor, .events = POLLIN}};

		poll(fds, 2, r->runs ? 1 : 10);
		if (r->deaf) {
			usleep(10000);
			continue;
		}
		if (r->hang_up_supervisor && r->supervisor >= 0) {
			close(r->supervisor);
			r->supervisor = -1;
		}
		if (r->hang_up_auditor && r->auditor >= 0) {
			close(r->auditor);
			r->auditor = -1;
		}
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
		for (struct fake_run *run = r->runs, *next; run; run = next) {
			next = run->next;
			if (!run->started)
				(void)read_request(run);
			else if (r->supervisor >= 0 && advance(run))
				run_end(r, run);
		}
	}
}

struct rig *rig_start(bool start_ready)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rig *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	socklen_t len = sizeof address;
	int supervisor[2], auditor[2], listener;
	pid_t pid;

	signal(SIGPIPE, SIG_IGN);
	strcpy(r->last_project, "-");
	assert_int_equal(ipc_pair(supervisor, 1 << 20), 0);
	assert_int_equal(ipc_pair(auditor, 1 << 20), 0);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(listener, 1024), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &len), 0);
	r->port = ntohs(address.sin_port);
	/* Not into `r` at once: the children share it, and their 0 would be written there too. */
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		bool root = geteuid() == 0;
		struct api_config config = {
		    .listen_fd = listener,
		    .supervisor_fd = supervisor[1],
		    .auditor_fd = auditor[1],
		    .uid = root ? NOBODY : geteuid(),
		    .gid = root ? NOBODY : getegid(),
		    .has_dev_token = true,
		    .log_level = getenv("RIG_LOG") ? LOG_LVL_DEBUG : LOG_LVL_ERROR,
		};

		token_digest(RIG_TOKEN, sizeof RIG_TOKEN - 1, config.dev_token_sha256);
		exit(api_main(&config));
	}
	close(listener);
	close(supervisor[1]);
	close(auditor[1]);
	r->api = pid;
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG,
		      SIGKILL); /* a test that fails leaves nothing behind: the api ends with its supervisor */
		close_range(3, (unsigned)supervisor[0] - 1, 0); /* those of earlier rigs, whose hanging up must be theirs */
		r->supervisor = supervisor[0];
		r->auditor = auditor[0];
		serve(r);
		_exit(0);
	}
	r->fake = pid;
	close(supervisor[0]);
	close(auditor[0]);
	if (start_ready)
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
