/* SPDX-License-Identifier: Apache-2.0 */
/* `weir run`: one snippet, no service. The same processes as a service has, for one run: this one is the client. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/answer.h"
#include "api/confine.h"
#include "api/error.h"
#include "api/runclient.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "core/cleanup.h"
#include "core/limits.h"
#include "core/log.h"
#include "kernel/confine.h"

struct options {
	const char *policy, *code, *file, *python, *state_dir;
	bool have_code, json;
	unsigned timeout_s;
	enum plan_step fault, skip;
	struct err bad;
};

enum { KEY_JSON = 256, KEY_POLICY, KEY_PYTHON, KEY_STATE, KEY_TIMEOUT, KEY_FAULT, KEY_SKIP };

static const struct argp_option option_table[] = {
    {"code", 'c', "CODE", 0, "the snippet itself", 0},
    {"timeout", KEY_TIMEOUT, "N", 0, "deadline in seconds, 1 to 60 (default 20)", 0},
    {"policy", KEY_POLICY, "P", 0, "a policy: a file, or the name of a shipped one (default: snippet, which denies everything)",
     0},
    {"python", KEY_PYTHON, "FILE", 0, "the interpreter (default: a Python 3.12, else python3)", 0},
    {"json", KEY_JSON, 0, 0, "print what /v1/execute answers", 0},
    {"state-dir", KEY_STATE, "DIR", 0, "keep the audit record there (default: nothing is kept)", 0},
#ifdef WEIR_TEST_HOOKS
    {"test-fault", KEY_FAULT, "STEP", 0, "make this set-up step fail", 0},
    {"test-skip", KEY_SKIP, "STEP", 0, "leave this set-up step out", 0},
#endif
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'c':
		o->code = arg;
		o->have_code = true;
		break;
	case KEY_TIMEOUT: {
		char *end;
		long n = strtol(arg, &end, 10);

		if (*end || !*arg || n < LIMIT_TIMEOUT_MIN_S || n > LIMIT_TIMEOUT_MAX_S)
			argp_error(state, "--timeout must be between %d and %d", LIMIT_TIMEOUT_MIN_S, LIMIT_TIMEOUT_MAX_S);
		o->timeout_s = (unsigned)n;
		break;
	}
	case KEY_POLICY:
		o->policy = arg;
		break;
	case KEY_PYTHON:
		o->python = arg;
		break;
	case KEY_STATE:
		o->state_dir = arg;
		break;
	case KEY_JSON:
		o->json = true;
		break;
	case KEY_FAULT:
		if (launch_step(arg, &o->fault, &o->bad) < 0)
			argp_error(state, "%s", o->bad.msg);
		break;
	case KEY_SKIP:
		if (launch_step(arg, &o->skip, &o->bad) < 0)
			argp_error(state, "%s", o->bad.msg);
		break;
	case ARGP_KEY_ARG:
		if (o->file || o->have_code)
			argp_error(state, "one snippet at a time");
		o->file = arg;
		break;
	case ARGP_KEY_END:
		if (!o->file && !o->have_code)
			argp_error(state, "what to run? -c CODE, a FILE, or - for standard input");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const char doc[] = "Run one Python snippet in a single-use sandbox and exit with its code."
			  "\vExamples:\n"
			  "  weir run -c 'print(6*7)'\n"
			  "  weir run --json script.py\n"
			  "  echo 'print(1)' | weir run -\n\n"
			  "Exit status: the snippet's own; 124 when the deadline ended it; 125 when Weir could not run it.";
static const struct argp argp = {option_table, parse, "[FILE | -]", doc, NULL, NULL, NULL};

static int read_code(const struct options *o, char **ret, size_t *ret_len, struct err *e)
{
	_cleanup_file_ FILE *f = NULL;
	_cleanup_free_ char *text = malloc(LIMIT_CODE_BYTES + 1);
	size_t n;

	if (!text)
		return err_set(e, ENOMEM, "", "out of memory");
	if (o->have_code) {
		n = strlen(o->code);
		memcpy(text, o->code, n <= LIMIT_CODE_BYTES ? n : 0);
	} else {
		f = strcmp(o->file, "-") != 0 ? fopen(o->file, "re") : fdopen(dup(STDIN_FILENO), "r");
		if (!f)
			return err_errno(e, errno, "", "open %s", o->file);
		n = fread(text, 1, LIMIT_CODE_BYTES + 1, f);
		if (ferror(f))
			return err_errno(e, errno, "", "read %s", o->file);
	}
	if (n > LIMIT_CODE_BYTES)
		return err_set(e, E2BIG, "", "the snippet is over %d bytes", (int)LIMIT_CODE_BYTES);
	*ret = TAKE_PTR(text);
	*ret_len = n;
	return 0;
}

/* ---- the client ---- */

struct outcome {
	bool done, json;
	int exit_status;
};

static void write_all(int fd, const char *data, size_t len)
{
	while (len) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return; /* the reader of our output has gone; the exit status still tells */
		data += n;
		len -= (size_t)n;
	}
}

/* One line: how much was tried, and the first of it. */
static void tell_attempts(const struct run_result *r)
{
	json_t *egress = r->egress ? json_loadb(r->egress, r->egress_len, 0, NULL) : NULL;
	json_t *first = json_array_get(json_object_get(egress, "destinations"), 0);
	const char *name = json_string_value(json_object_get(first, "dns_name"));
	const char *address = json_string_value(json_object_get(first, "address"));

	fprintf(stderr, "weir: %llu %s to reach the network, %llu denied", (unsigned long long)r->end.attempts,
		r->end.attempts == 1 ? "attempt" : "attempts", (unsigned long long)r->end.denied);
	if (r->end.would_deny)
		fprintf(stderr, ", %llu would be denied", (unsigned long long)r->end.would_deny);
	if (address)
		fprintf(stderr, "; first: %s %s port %lld%s%s", json_string_value(json_object_get(first, "protocol")), address,
			(long long)json_integer_value(json_object_get(first, "port")), name ? ", name " : "", name ? name : "");
	fprintf(stderr, " (--json lists them)\n");
	json_decref(egress);
}

static void on_done(void *ctx, const struct run_result *r)
{
	struct outcome *out = ctx;

	out->done = true;
	if (r->outcome != RUN_DONE) {
		struct api_error error;

		answer_error(r, &error);
		fprintf(stderr, "weir: %s\n", error.message);
		if (error_row(error.kase)->hint)
			fprintf(stderr, "weir: hint: %s\n", error_row(error.kase)->hint);
		out->exit_status = EXIT_WEIR;
		return;
	}
	if (out->json) {
		json_t *j = answer_result(r);
		size_t len = 0;
		_cleanup_free_ char *text = j ? answer_text(j, &len) : NULL;

		write_all(STDOUT_FILENO, text ? text : "", len);
		json_decref(j);
	} else {
		write_all(STDOUT_FILENO, r->out[RUN_STDOUT], r->out_len[RUN_STDOUT]);
		write_all(STDERR_FILENO, r->out[RUN_STDERR], r->out_len[RUN_STDERR]);
		/* The contract's last line has no newline of its own; a terminal wants one. */
		if (r->end.end == RUN_END_TIMEOUT)
			write_all(STDERR_FILENO, "\n", 1);
		else if (r->end.end != RUN_END_EXIT && r->end.detail[0])
			fprintf(stderr, "weir: %s\n", r->end.detail);
		if (r->end.attempts)
			tell_attempts(r);
	}
	out->exit_status = r->end.end == RUN_END_TIMEOUT ? EXIT_DEADLINE : r->end.exit_code & 0xff;
}

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
}

static int client(struct wiring *w, const struct options *o, char *code, size_t len, struct err *e)
{
	struct outcome out = {.json = o->json, .exit_status = EXIT_WEIR};
	struct run_request request = {
	    .project = "cli", .code = code, .code_len = len, .timeout_s = o->timeout_s, .done = on_done, .ctx = &out};
	struct sigaction sa = {.sa_handler = on_interrupt};
	struct runclient *rc = NULL;
	uint64_t req;
	int err = runclient_new(w->client_sup, w->client_auditor, &rc, e);

	w->client_sup = w->client_auditor = -1;
	if (err < 0) {
		free(code);
		return err;
	}
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	err = runclient_start(rc, &request, &req);
	if (err < 0)
		err_errno(e, -err, "", "start the run");
	while (err == 0 && !out.done) {
		struct pollfd p = {.fd = runclient_fd(rc), .events = POLLIN};

		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			err = err_errno(e, errno, "", "wait for the run");
		if (interrupted) {
			interrupted = 0;
			runclient_cancel(rc, req);
		}
		if (err == 0 && runclient_step(rc) < 0)
			break;
	}
	runclient_free(rc);
	return err < 0 ? err : out.exit_status;
}

/*
 * The client part reads what the snippet wrote, so it is the api without HTTP: as little may come of it. Its standard streams
 * and the two sockets are all it keeps. With it everything else ends in order; so it ends with the one that was asked for the
 * run.
 */
static int confine_client(const struct wiring *w, pid_t parent, struct err *e)
{
	const int keep[] = {w->client_sup, w->client_auditor};
	int rc = confine_fds("run", keep, sizeof keep / sizeof keep[0], e);

	json_object_seed(0); /* reads a file, which is not possible later */
	return rc < 0 ? rc : api_confine(UID_API, UID_API, parent, e);
}

/* The supervisor's process: serves until its one client hangs up. */
static void __attribute__((noreturn)) supervise(struct wiring *w, const struct supervisor_config *config)
{
	struct supervisor *s = NULL;
	struct err e = {0}, e2 = {0};
	int rc, rc2;

	launch_block_signals();
	rc = supervisor_new(&s, config, w->sup_auditor, &e);
	w->sup_auditor = -1;
	if (rc == 0) {
		rc = supervisor_add_client(s, w->sup_client, &e);
		w->sup_client = -1;
	}
	if (rc == 0)
		rc = supervisor_run(s, &e);
	if (rc < 0)
		fprintf(stderr, "weir: %s: %s\n", e.where, e.msg);
	rc2 = supervisor_free(s, &e2);
	if (rc2 < 0)
		fprintf(stderr, "weir: %s: %s\n", e2.where, e2.msg);
	_exit(rc < 0 || rc2 < 0 ? EXIT_WEIR : 0);
}

static void __attribute__((noreturn)) be_client(struct wiring *w, const struct options *o, char *code, size_t len, pid_t parent)
{
	struct err e = {0};
	int rc = confine_client(w, parent, &e);

	if (rc == 0)
		rc = client(w, o, code, len, &e);
	else
		free(code);
	if (rc < 0)
		fprintf(stderr, "weir: %s: %s\n", e.where, e.msg);
	fflush(NULL);
	_exit(rc < 0 ? EXIT_WEIR : rc);
}

static pid_t client_pid;

static void pass_on(int sig)
{
	kill(client_pid, sig);
}

static int wait_for(pid_t pid)
{
	int status;
	pid_t got;

	do
		got = waitpid(pid, &status, 0);
	while (got < 0 && errno == EINTR);
	return got == pid && WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_WEIR;
}

static int run(const struct options *o, struct err *e)
{
	_cleanup_fd_ int dir = -1;
	_cleanup_inforce_ struct inforce policy = {0};
	char instance[64], python[PATH_MAX];
	struct supervisor_config config = {.instance = instance,
					   .python = launch_absolute(o->python, python, sizeof python),
					   .policy = &policy,
					   .pool_size = 1,
					   .single = true,
					   .fault = o->fault,
					   .skip = o->skip};
	struct sigaction sa = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
	struct wiring w;
	char *code = NULL;
	size_t len = 0;
	pid_t auditor, supervisor, parent = getpid();
	uint32_t nonce;
	int rc;

	if ((rc = launch_policy(o->policy, &policy, e)) < 0 || (rc = read_code(o, &code, &len, e)) < 0)
		return rc;
	if (getrandom(&nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
		return err_errno(e, errno, "", "get a random number");
	snprintf(instance, sizeof instance, "run-%d-%08x", getpid(), nonce);
	rc = o->state_dir ? launch_state_dir(o->state_dir, &dir, e) : launch_memory_dir(&dir, e);
	if (rc < 0 || (rc = wiring_make(&w, e)) < 0 || (rc = launch_auditor(&w, dir, &auditor, e)) < 0)
		return rc;
	supervisor = fork();
	if (supervisor == 0) {
		cleanup_fdp(&w.client_sup);
		cleanup_fdp(&w.client_auditor);
		close(TAKE_FD(dir));
		log_init("supervisor", LOG_LVL_WARN);
		setsid(); /* a terminal's ^C goes to the client, which cancels the run in order */
		supervise(&w, &config);
	}
	client_pid = supervisor < 0 ? -1 : fork();
	if (client_pid == 0) {
		cleanup_fdp(&w.sup_client);
		cleanup_fdp(&w.sup_auditor);
		be_client(&w, o, code, len, parent);
	}
	free(code);
	if (supervisor < 0 || client_pid < 0)
		rc = err_errno(e, errno, "supervisor", "fork");
	wiring_close(&w);
	if (client_pid > 0) {
		/* A terminal's ^C reaches the client by itself as well; asking it twice to cancel does no harm. */
		sigaction(SIGTERM, &sa, NULL);
		sigaction(SIGINT, &sa, NULL);
		rc = wait_for(client_pid);
	}
	/* Its pid may be another's from now on. */
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	/* With the client's end of its socket closed the supervisor cleans up and leaves; then so does the auditor. */
	if (supervisor > 0)
		wait_for(supervisor);
	wait_for(auditor);
	return rc;
}

int run_cmd(int argc, char **argv)
{
	struct options o = {.timeout_s = LIMIT_TIMEOUT_DEFAULT_S};
	struct err e = {0};
	int rc;

	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &o);
	if (cli_need_root(&e) < 0)
		return cli_fail(&e);
	rc = run(&o, &e);
	return rc < 0 ? cli_fail(&e) : rc;
}
