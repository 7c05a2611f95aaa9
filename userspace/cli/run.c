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
#include "cli/asked_by.h"
#include "cli/cli.h"
#include "cli/config_load.h"
#include "cli/launch.h"
#include "cli/look.h"
#include "cli/prime.h"
#include "cli/run_input.h"
#include "cli/run_report.h"
#include "core/cleanup.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/tokens.h"
#include "kernel/confine.h"

struct options {
	const char *config, *policy, *python, *image, *state_dir;
	struct run_input input;
	char caller[IPC_CALLER_MAX];
	bool json;
	unsigned timeout_s;
	enum plan_step fault, skip;
	struct err bad;
};

enum {
	KEY_JSON = 256,
	KEY_POLICY,
	KEY_PYTHON,
	KEY_IMAGE,
	KEY_CONFIG,
	KEY_STATE,
	KEY_TIMEOUT,
	KEY_FILE,
	KEY_STDIN,
	KEY_ENV,
	KEY_FAULT,
	KEY_SKIP
};

static const struct argp_option option_table[] = {
    {"code", 'c', "CODE", 0, "the snippet itself", 0},
    {"file", KEY_FILE, "PATH", 0, "a file for the snippet, under its base name in the working directory; may be repeated", 0},
    {"stdin", KEY_STDIN, "FILE", 0, "the snippet's standard input; - for this command's own (default: none)", 0},
    {"env", KEY_ENV, "NAME=VALUE", 0, "a variable for the snippet's environment; may be repeated", 0},
    {"timeout", KEY_TIMEOUT, "N", 0, "deadline in seconds, 1 to 60 (default 20)", 0},
    {"policy", KEY_POLICY, "P", 0, "a policy: a file, or the name of a shipped one (default: snippet, which denies everything)",
     0},
    {"python", KEY_PYTHON, "FILE", 0, "the interpreter (default: a Python 3.12, else python3)", 0},
    {"image", KEY_IMAGE, "DIR", 0,
     "the root: a directory, or an OCI layout, which may have :NAME behind it; --python is then a path in it (default: made of "
     "the host's files)",
     0},
    {"config", KEY_CONFIG, "FILE", 0,
     "where policy, image and interpreter come from when no option names them (default: " CONFIG_FILE_DEFAULT
     ", if it is there)",
     0},
    {"json", KEY_JSON, 0, 0, "print what /v1/execute answers", 0},
    {"state-dir", KEY_STATE, "DIR", 0, "keep the audit record there (default: nothing is kept)", 0},
#ifdef WEIR_TEST_HOOKS
    {"test-fault", KEY_FAULT, "STEP", 0, "make this set-up step fail", 0},
    {"test-skip", KEY_SKIP, "STEP", 0, "leave this set-up step out", 0},
#endif
    {0},
};

static unsigned reads_stdin(const struct run_input *in)
{
	unsigned n = (in->script && !strcmp(in->script, "-")) + (in->stdin_file && !strcmp(in->stdin_file, "-"));

	for (size_t i = 0; i < in->file_count; i++)
		n += !strcmp(in->files[i], "-");
	return n;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'c':
		o->input.code = arg;
		break;
	case KEY_FILE:
		if (o->input.file_count == LIMIT_FILES_IN)
			argp_error(state, "--file: no more than %d files", LIMIT_FILES_IN);
		o->input.files[o->input.file_count++] = arg;
		break;
	case KEY_STDIN:
		o->input.stdin_file = arg;
		break;
	case KEY_ENV:
		if (o->input.env_count == LIMIT_ENV_NAMES)
			argp_error(state, "--env: no more than %d variables", LIMIT_ENV_NAMES);
		o->input.env[o->input.env_count++] = arg;
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
	case KEY_IMAGE:
		o->image = arg;
		break;
	case KEY_CONFIG:
		o->config = arg;
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
		if (o->input.script || o->input.code)
			argp_error(state, "one snippet at a time");
		o->input.script = arg;
		break;
	case ARGP_KEY_END:
		if (!o->input.script && !o->input.code)
			argp_error(state, "what to run? -c CODE, a FILE, or - for standard input");
		if (reads_stdin(&o->input) > 1)
			argp_error(state, "standard input can be read once: by the snippet, --stdin or --file");
		if (run_input_check(&o->input, &o->bad) < 0)
			argp_error(state, "%s: %s", o->bad.where, o->bad.msg);
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
			  "  weir run --file data.csv -c 'print(open(\"data.csv\").read())'\n"
			  "  weir run --stdin - --env MODE=fast script.py <input.txt\n"
			  "  echo 'print(1)' | weir run -\n\n"
			  "Exit status: the snippet's own; 124 when the deadline ended it; 125 when Weir could not run it or\n"
			  "its output could not be written; 64 for arguments that make no sense.";
static const struct argp argp = {option_table, parse, "[FILE | -]", doc, NULL, NULL, NULL};

/* ---- the client ---- */

struct outcome {
	bool done, json;
	int exit_status;
};

static bool write_all(int fd, const char *data, size_t len)
{
	while (len) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data += n;
		len -= (size_t)n;
	}
	return true;
}

/* Half an answer must not pass for one: whoever reads the exit status learns that the output is not whole. */
static void say_unwritten(struct outcome *out, int error, const struct run_result *r)
{
	fprintf(stderr, "weir: can't write to standard output: %s (the run itself ended with %d)\n", strerror(error),
		r->end.exit_code);
	out->exit_status = EXIT_WEIR;
}

static void on_done(void *ctx, struct run_result *r)
{
	struct outcome *out = ctx;
	bool written;
	int code;

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
		size_t len = 0;
		_cleanup_free_ char *text = answer_result(r, &len);

		if (!text) {
			fprintf(stderr, "weir: out of memory\n");
			out->exit_status = EXIT_WEIR;
			return;
		}
		written = write_all(STDOUT_FILENO, text, len);
		code = errno;
	} else {
		written = write_all(STDOUT_FILENO, r->out[RUN_STDOUT], r->out_len[RUN_STDOUT]);
		code = errno;
		write_all(STDERR_FILENO, r->out[RUN_STDERR], r->out_len[RUN_STDERR]);
		/* The contract's last line has no newline of its own; a terminal wants one. */
		if (r->end.end == RUN_END_TIMEOUT)
			write_all(STDERR_FILENO, "\n", 1);
		else if (r->end.end != RUN_END_EXIT && r->end.detail[0])
			fprintf(stderr, "weir: %s\n", r->end.detail);
		run_report_attempts(r);
		run_report_files(r);
	}
	out->exit_status = r->end.end == RUN_END_TIMEOUT ? EXIT_DEADLINE : r->end.exit_code & 0xff;
	if (!written)
		say_unwritten(out, code, r);
}

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
}

static int client(struct wiring *w, const struct options *o, struct payload *payload, struct err *e)
{
	struct outcome out = {.json = o->json, .exit_status = EXIT_WEIR};
	struct run_request request = {.project = PROJECT_CLI,
				      .caller = o->caller,
				      .payload = payload,
				      .timeout_s = o->timeout_s,
				      .done = on_done,
				      .ctx = &out};
	struct sigaction sa = {.sa_handler = on_interrupt};
	struct runclient *rc = NULL;
	uint64_t req;
	int err = runclient_new(w->client_sup, w->client_auditor, w->client_collector, &rc, e);

	w->client_sup = w->client_auditor = w->client_collector = -1;
	if (err < 0)
		return err;
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
 * and its sockets are all it keeps. With it everything else ends in order; so it ends with the one that was asked for the
 * run.
 */
static int confine_client(const struct wiring *w, pid_t parent, struct err *e)
{
	const int keep[] = {w->client_sup, w->client_auditor, w->client_collector};
	int rc = confine_fds("run", keep, sizeof keep / sizeof keep[0], e);

	json_object_seed(0); /* reads a file, which is not possible later */
	return rc < 0 ? rc : api_confine(UID_API, UID_API, parent, e);
}

/* The supervisor's process: serves until its one client hangs up. */
static void __attribute__((noreturn)) supervise(struct wiring *w, const struct supervisor_config *config, int ready)
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
	if (rc == 0 && write(ready, "", 1) != 1)
		rc = err_errno(&e, errno, "supervisor", "say that it is ready");
	close(ready);
	if (rc == 0)
		rc = supervisor_run(s, &e);
	if (rc < 0)
		fprintf(stderr, "weir: %s: %s\n", e.where, e.msg);
	rc2 = supervisor_free(s, &e2);
	if (rc2 < 0)
		fprintf(stderr, "weir: %s: %s\n", e2.where, e2.msg);
	_exit(rc < 0 || rc2 < 0 ? EXIT_WEIR : 0);
}

static void __attribute__((noreturn))
be_client(struct wiring *w, const struct options *o, struct payload *payload, pid_t parent)
{
	struct err e = {0};
	int rc = confine_client(w, parent, &e);

	if (rc == 0)
		rc = client(w, o, payload, &e);
	payload_clear(payload);
	if (rc < 0)
		fprintf(stderr, "weir: %s: %s\n", e.where, e.msg);
	fflush(NULL);
	_exit(rc < 0 ? EXIT_WEIR : rc);
}

/* Whether the supervisor has come up; if not, it has said why, and there is nothing for a client to ask. */
static bool is_ready(int fd)
{
	ssize_t n;
	char c;

	do
		n = read(fd, &c, 1);
	while (n < 0 && errno == EINTR);
	return n == 1;
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

/* What no option says, as the configuration of a service says it. An interpreter belongs to the image it is in. */
static int take_config(struct options *o, struct config *c, struct err *e)
{
	int rc = config_load(o->config, c, e);

	if (rc < 0)
		return rc;
	if (!o->policy)
		o->policy = c->policy;
	else
		c->from[CONFIG_POLICY] = CONFIG_OPTION;
	if (!o->image && !o->python)
		o->python = c->python;
	else
		c->from[CONFIG_PYTHON] = CONFIG_OPTION;
	if (!o->image)
		o->image = c->image;
	else
		c->from[CONFIG_IMAGE] = CONFIG_OPTION;
	return 0;
}

/* Said before anything is started, where it would have to be told from what follows from it. */
static int look(const struct options *o, struct err *e)
{
	int rc = o->image ? look_image(o->image, e) : 0;

	return rc == 0 && o->python ? look_python(o->python, o->image, e) : rc;
}

/* The root that was asked for, into what the supervisor is told. Both arrays are `place`'s and the caller's. */
static int take_image(const struct options *o, const char *state_dir, struct image_place *place,
		      struct supervisor_config *config, struct err *e)
{
	char image[PATH_MAX];
	const struct image_wish wish = {
	    .image = launch_absolute(o->image, image, sizeof image), .python = o->python, .state_dir = state_dir};
	int rc = place_image(&wish, place, e);

	if (rc < 0)
		return rc;
	config->image = place->root[0] ? place->root : NULL;
	config->caches = place->caches[0] ? place->caches : NULL;
	return 0;
}

static void cleanup_payloadp(struct payload *p)
{
	payload_clear(p);
}
#define _cleanup_payload_ __attribute__((cleanup(cleanup_payloadp)))

static int run(const struct options *o, const struct config *c, struct err *e)
{
	_cleanup_fd_ int dir = -1;
	_cleanup_inforce_ struct inforce policy = {0};
	char instance[64], python[PATH_MAX];
	struct supervisor_config config = {.instance = instance,
					   .python = o->image ? o->python : launch_absolute(o->python, python, sizeof python),
					   .policy = &policy,
					   .pool_size = 1,
					   .key_dir_fd = -1,
					   .single = true,
					   .fault = o->fault,
					   .skip = o->skip};
	struct sigaction sa = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
	struct wiring w;
	_cleanup_payload_ struct payload payload = {0};
	struct image_place place;
	pid_t auditor = -1, collector = -1, supervisor = -1, parent = getpid();
	int ready[2] = {-1, -1};
	uint32_t nonce;
	int rc;

	if ((rc = launch_policy(o->policy, false, &policy, e)) < 0 || (rc = run_input_read(&o->input, &payload, e)) < 0)
		return rc;
	rc = take_image(o, o->state_dir ? o->state_dir : c->state_dir, &place, &config, e);
	if (rc < 0)
		return rc;
	if (getrandom(&nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
		return err_errno(e, errno, "", "get a random number");
	snprintf(instance, sizeof instance, "run-%d-%08x", getpid(), nonce);
	rc = o->state_dir ? launch_state_dir(o->state_dir, &dir, e) : launch_memory_dir("audit", &dir, e);
	if (rc < 0 || (rc = wiring_make(&w, e)) < 0)
		return rc;
	config.key_dir_fd = o->state_dir ? dir : -1; /* a record in memory is gone with it: no key either */
	rc = launch_auditor(&w, dir, &(struct audit_opts){.shared = o->state_dir != NULL}, &auditor, e);
	if (rc == 0)
		rc = launch_collector(&w, &collector, e);
	if (rc == 0 && pipe2(ready, O_CLOEXEC) < 0)
		rc = err_errno(e, errno, "supervisor", "make a pipe");
	if (rc == 0 && (supervisor = fork()) < 0)
		rc = err_errno(e, errno, "supervisor", "fork");
	if (supervisor == 0) {
		cleanup_fdp(&w.client_sup);
		cleanup_fdp(&w.client_auditor);
		cleanup_fdp(&w.client_collector);
		payload_clear(&payload);
		if (config.key_dir_fd < 0)
			close(TAKE_FD(dir));
		close(ready[0]);
		log_init("supervisor", LOG_LVL_WARN);
		setsid(); /* a terminal's ^C goes to the client, which cancels the run in order */
		supervise(&w, &config, ready[1]);
	}
	cleanup_fdp(&ready[1]);
	if (supervisor > 0 && !is_ready(ready[0]))
		rc = EXIT_WEIR;
	cleanup_fdp(&ready[0]);
	client_pid = supervisor < 0 || rc ? -1 : fork();
	if (client_pid == 0) {
		cleanup_fdp(&w.sup_client);
		cleanup_fdp(&w.sup_auditor);
		be_client(&w, o, &payload, parent);
	}
	if (rc == 0 && client_pid < 0)
		rc = err_errno(e, errno, "run", "fork the client");
	payload_clear(&payload);
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
	/* With the client's ends of their sockets closed, collector and supervisor clean up and leave; then so does the
	 * auditor. */
	for (const pid_t *pid = (const pid_t[]){collector, supervisor, auditor, 0}; *pid; pid++)
		if (*pid > 0)
			wait_for(*pid);
	return rc;
}

int run_cmd(int argc, char **argv)
{
	struct options o = {.timeout_s = LIMIT_TIMEOUT_DEFAULT_S};
	_cleanup_config_ struct config c = {0};
	struct err e = {0};
	int rc;

	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &o);
	asked_by(o.caller);
	if (cli_need_root(&e) < 0)
		return cli_fail(&e);
	rc = take_config(&o, &c, &e);
	if (rc == 0 && (rc = look(&o, &e)) == 0)
		rc = run(&o, &c, &e);
	if (rc < 0)
		config_blame(&c, &e);
	return rc < 0 ? cli_fail(&e) : rc;
}
