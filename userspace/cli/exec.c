/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weir exec`: a command of this host, on the host's own network, under a policy.
 *
 *	root process     makes and keeps everything (supervisor/governed.c)
 *	 |- auditor      unprivileged: reads what the command made the kernel report, keeps the record
 *	 |- report       unprivileged: tells what was denied, and ends the command when the root process is gone
 *	 `- the command  in its cgroup
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/asked_by.h"
#include "cli/cli.h"
#include "cli/exec_report.h"
#include "cli/exec_who.h"
#include "cli/launch.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/log.h"
#include "ipc/ipc.h"
#include "supervisor/governed.h"

#define EXIT_CANT_START 126
#define EXIT_NOT_FOUND 127
#define REPORT_WAIT_S 15 /* longer than the report process waits for the auditor */

struct options {
	const char *policy, *user, *keep_caps, *json, *state_dir;
	bool quiet;
	char **argv; /* the command */
	enum command_step fault;
	uint64_t skip;
};

enum { KEY_POLICY = 256, KEY_USER, KEY_CAPS, KEY_JSON, KEY_QUIET, KEY_STATE, KEY_FAULT, KEY_SKIP };

static const struct argp_option option_table[] = {
    {"policy", KEY_POLICY, "P", 0, "a policy file, or the name of a shipped policy", 0},
    {"user", KEY_USER, "USER", 0, "run as that user, by name or number (default: whoever called sudo, else root)", 0},
    {"keep-caps", KEY_CAPS, "LIST", 0, "capabilities to keep, such as net_bind_service (default: none, root too)", 0},
    {"json", KEY_JSON, "FILE", 0, "write the whole audit record there, one JSON object a line", 0},
    {"state-dir", KEY_STATE, "DIR", 0, "keep the audit record there, for `weir audit` (default: nothing is kept)", 0},
    {"quiet", KEY_QUIET, 0, 0, "say nothing but errors: no notes, no list of what was denied", 0},
#ifdef WEIR_TEST_HOOKS
    {"test-fault", KEY_FAULT, "STEP", 0, "make this step fail", 0},
    {"test-skip", KEY_SKIP, "STEP", 0, "leave this step out; may be given again", 0},
#endif
    {0},
};

static enum command_step step_of(const char *name, struct argp_state *state)
{
	enum command_step step = command_step_by_name(name);

	if (step == COMMAND_NO_STEP)
		argp_error(state, "no step \"%s\"", name);
	return step;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case KEY_POLICY:
		o->policy = arg;
		break;
	case KEY_USER:
		o->user = arg;
		break;
	case KEY_CAPS:
		o->keep_caps = arg;
		break;
	case KEY_JSON:
		o->json = arg;
		break;
	case KEY_STATE:
		o->state_dir = arg;
		break;
	case KEY_QUIET:
		o->quiet = true;
		break;
	case KEY_FAULT:
		o->fault = step_of(arg, state);
		break;
	case KEY_SKIP:
		o->skip |= 1ull << step_of(arg, state);
		break;
	case ARGP_KEY_ARG:
		/* The command and everything behind it, whatever it looks like. */
		o->argv = &state->argv[state->next - 1];
		state->next = state->argc;
		break;
	case ARGP_KEY_END:
		if (!o->policy)
			argp_error(state, "which policy? --policy FILE, or --policy tool-call");
		if (!o->argv)
			argp_error(state, "what to run?");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const char doc[] =
    "Run a command of this host, on the host's own network, under a policy: it and everything it starts reach what the policy "
    "allows, and nothing of it is left when it ends. What was denied is listed on standard error at the end."
    "\vExamples:\n"
    "  sudo weir exec --policy tool-call -- pip download requests\n"
    "  sudo weir exec --policy ci.json --json egress.ndjson -- make test\n"
    "  sudo weir exec --policy monitor-only -- ./installer.sh        (only watches)\n"
    "  sudo weir exec --policy web.json --user www --keep-caps net_bind_service -- nginx -g 'daemon off;'\n\n"
    "SIGHUP reads the policy again; TERM, INT, QUIT, USR1, USR2 and WINCH are passed on to the command.\n\n"
    "It is not a sandbox: the command sees the host's files and processes, and can ask services of the host for what it may "
    "not do itself, by a Unix socket for example. See weir-exec(1).\n\n"
    "Exit status: the command's own; 128+n when signal n ended it; 125 when Weir failed, 126 when the command could not be "
    "started, 127 when there is none of that name.";
static const struct argp argp = {option_table, parse, "[--] COMMAND [ARGUMENT…]", doc, NULL, NULL, NULL};

/* ---- the run ---- */

struct run {
	const struct options *o;
	char instance[64];
	struct inforce policy;
	struct filter_host filter;
	struct who who;
	struct command command;
	char **env;
	int json_fd, state_fd;
	struct wiring w; /* sup_client and client_sup are between us and the report process */
	pid_t auditor, report;
};

/*
 * A socket is judged by the cgroup it was made in. One of the caller's would be a way out that no program looks at, so none is
 * handed on, of whatever family, but Unix sockets: those lead to processes of this host, as any descriptor may.
 */
static int refuse_sockets(struct err *e)
{
	static const char *const names[] = {"standard input", "standard output", "standard error"};

	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		int family;
		socklen_t len = sizeof family;

		if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len) < 0) {
			if (errno != ENOTSOCK)
				return err_errno(e, errno, "descriptors", "look at %s", names[fd]);
		} else if (family != AF_UNIX) {
			return err_set(e, ENOTSUP, "descriptors",
				       "%s is a network socket, made outside and under no policy: put a pipe in between, as in "
				       "`… | weir exec … | cat`",
				       names[fd]);
		}
	}
	return 0;
}

/* Everything that can be wrong with what was asked for, before anything is made. */
static int prepare(struct run *r, struct err *e)
{
	const struct options *o = r->o;
	struct command *c = &r->command;
	uint32_t nonce;
	int rc = refuse_sockets(e);

	if (rc == 0)
		rc = inforce_load(&r->policy, o->policy, e);
	if (rc == 0 && o->keep_caps)
		rc = who_caps(o->keep_caps, &c->caps, e);
	if (rc == 0)
		rc = governed_check(&r->policy, c, e);
	if (rc == 0)
		rc = filter_host_compile(r->policy.policy, &r->filter, e);
	if (rc == 0)
		rc = who_find(o->user, &r->who, e);
	if (rc < 0)
		return rc;
	r->env = who_env(&r->who, environ);
	if (!r->env)
		return err_set(e, ENOMEM, "", "out of memory");
	if (getrandom(&nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
		return err_errno(e, errno, "", "get a random number");
	snprintf(r->instance, sizeof r->instance, GOVERNED_INSTANCE "%d-%08x", getpid(), nonce);
	c->argv = o->argv;
	c->envp = r->env;
	c->uid = r->who.uid;
	c->gid = r->who.gid;
	c->groups = r->who.groups;
	c->group_count = r->who.group_count;
	c->filter = &r->filter;
	c->open_files = r->policy.policy->limits.open_files;
	c->umask = cli_caller.umask;
	c->mask = cli_caller.mask;
	c->chld = cli_caller.chld;
	c->pipe = cli_caller.pipe;
	c->xfsz = cli_caller.xfsz;
	c->fault = o->fault;
	c->skip = o->skip;
	return 0;
}

static int open_files(struct run *r, struct err *e)
{
	const struct options *o = r->o;

	if (o->json) {
		r->json_fd = open(o->json, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0600);
		if (r->json_fd < 0)
			return err_errno(e, errno, "--json", "open %s", o->json);
	}
	return o->state_dir ? launch_state_dir(o->state_dir, &r->state_fd, e) : launch_memory_dir("audit", &r->state_fd, e);
}

static int fork_report(struct run *r, struct err *e)
{
	r->report = fork();
	if (r->report < 0)
		return err_errno(e, errno, "report", "fork");
	if (r->report == 0) {
		const struct exec_report report = {.control_fd = r->w.client_sup,
						   .auditor_fd = r->w.client_auditor,
						   .json_fd = r->json_fd,
						   .quiet = r->o->quiet,
						   .run_id = r->instance};

		_exit(exec_report_main(&report));
	}
	/* Theirs alone: an end of stream is how each process learns of a death. */
	cleanup_fdp(&r->w.client_sup);
	cleanup_fdp(&r->w.client_auditor);
	r->w.client_sup = r->w.client_auditor = -1;
	return 0;
}

static void say_what_root_can_do(const struct run *r)
{
	if (!r->o->quiet && r->command.uid == 0)
		fprintf(stderr,
			"weir: note: this command runs as root%s. Its own attempts are judged, but it can change files that "
			"others run as root; --user names somebody else\n",
			r->command.caps ? "" : ", without capabilities");
}

static void say_what_is_not_shielded(const struct run *r, const struct governed *g)
{
	if (!r->o->quiet && governed_unshielded(g))
		fprintf(stderr,
			"weir: note: this kernel has no Landlock: the command can write into other processes of its user, "
			"which are under no policy\n");
}

/* Bounded: whatever the report process does, the command's exit status gets out. */
static void wait_report(pid_t pid)
{
	uint64_t until = clock_now_ns() + REPORT_WAIT_S * SECOND_NS;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (clock_now_ns() >= until) {
			kill(pid, SIGKILL);
			while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
				;
			fprintf(stderr, "weir: report: it did not end, and was killed\n");
			return;
		}
		usleep(1000);
	}
}

static void wait_child(pid_t pid)
{
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static int exit_status(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* From the start of the command to its report. */
static int govern(struct run *r, struct err *e)
{
	char caller[IPC_CALLER_MAX];
	const struct governed_config config = {.instance = r->instance,
					       .caller = caller,
					       .policy = &r->policy,
					       .command = &r->command,
					       .keeper_fd = r->w.sup_client,
					       .key_dir_fd = r->o->state_dir ? r->state_fd : -1};
	struct governed *g = NULL;
	struct err end_e;
	int status = 0, rc;

	asked_by(caller);
	say_what_root_can_do(r);
	rc = governed_new(&g, &config, TAKE_FD(r->w.sup_auditor), e);
	if (rc < 0)
		return rc;
	say_what_is_not_shielded(r, g);
	rc = governed_wait(g, &status, e);
	if (ipc_send(r->w.sup_client, EXEC_REPORT_TELL, 1, NULL, 0) == 0) {
		wait_report(r->report);
		r->report = 0;
	}
	if (governed_free(g, &end_e) < 0) {
		if (rc == 0)
			*e = end_e;
		return -end_e.code;
	}
	return rc < 0 ? rc : exit_status(status);
}

/*
 * Nobody may be reading standard error, and the command itself can fill it: what we say must not wait for that. A description
 * of our own, since the one we were given is the command's too. Files do not block.
 */
static int own_standard_error(struct run *r, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	struct stat st;

	r->command.stderr_fd = -1;
	if (fstat(STDERR_FILENO, &st) < 0 || !(S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)))
		return 0;
	fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return 0; /* it is not ours to open: then it is used as it is */
	r->command.stderr_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (r->command.stderr_fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		return err_errno(e, errno, "descriptors", "take standard error");
	return 0;
}

static int run(struct run *r, struct err *e)
{
	int rc = prepare(r, e);

	if (rc == 0)
		rc = own_standard_error(r, e);
	if (rc == 0)
		rc = open_files(r, e);
	if (rc == 0)
		rc = wiring_make(&r->w, e);
	if (rc < 0)
		return rc;
	governed_block_signals();
	rc = launch_auditor(&r->w, r->state_fd, &(struct audit_opts){.shared = true}, &r->auditor, e);
	if (rc == 0)
		rc = fork_report(r, e);
	if (rc == 0)
		rc = govern(r, e);
	/* With our ends closed both leave, if they have not yet. */
	wiring_close(&r->w);
	wait_child(r->report);
	wait_child(r->auditor);
	return rc;
}

static int failure_status(const struct err *e)
{
	if (strcmp(e->where, COMMAND_EXEC_LAYER))
		return EXIT_WEIR;
	return e->code == ENOENT ? EXIT_NOT_FOUND : EXIT_CANT_START;
}

int exec_cmd(int argc, char **argv)
{
	struct options o = {.fault = COMMAND_NO_STEP};
	struct run r = {.o = &o, .json_fd = -1, .state_fd = -1, .w = {-1, -1, -1, -1, -1, -1}};
	struct err e = {0};
	int rc;

	argp_err_exit_status = EXIT_WEIR;
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &o);
	if (o.quiet)
		log_init("weir", LOG_LVL_ERROR);
	if (cli_need_root(&e) < 0)
		return cli_fail(&e);
	rc = run(&r, &e);
	cleanup_fdp(&r.json_fd);
	cleanup_fdp(&r.state_fd);
	inforce_clear(&r.policy);
	filter_host_clear(&r.filter);
	who_clear(&r.who);
	who_env_free(r.env);
	if (rc >= 0)
		return rc;
	(void)cli_fail(&e);
	return failure_status(&e);
}
