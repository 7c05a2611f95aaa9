/* SPDX-License-Identifier: Apache-2.0 */
/* `weir attach`: a policy on what already runs. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attach/attach.h"
#include "cli/attach_pick.h"
#include "cli/attach_show.h"
#include "cli/cli.h"

#define EXIT_REFUSED 1
#define EXIT_USAGE 2

struct options {
	struct pick pick;
	const char *policy, *unknown;
	const char *resolvers[ATTACHED_RESOLVERS];
	size_t resolver_count;
	const char *plain[2]; /* arguments that are no option's: none is taken, but what was meant can be said */
	size_t plain_count;
	bool force, require_full, json;
};

enum { KEY_POLICY = PICK_KEY_END, KEY_UNKNOWN, KEY_RESOLVER, KEY_FORCE, KEY_FULL, KEY_JSON };

static const struct argp_option option_table[] = {
    {"policy", KEY_POLICY, "P", 0, "a policy file, or the name of a shipped policy", 0},
    PICK_OPTIONS,
    {"unknown", KEY_UNKNOWN, "WHAT", 0,
     "with --parent: deny or allow what a cgroup below it without a policy sends; allow records it", 0},
    {"resolver", KEY_RESOLVER, "ADDR", 0,
     "a name server of the workload, for @resolver; may be repeated (default: this host's own)", 0},
    {"force", KEY_FORCE, 0, 0, "attach also where the policy can be got around, where that is said to be possible", 0},
    {"require-full", KEY_FULL, 0, 0, "refuse what would be covered in part", 0},
    {"json", KEY_JSON, 0, 0, "print the result for machines", 0},
    {0},
};

static const char doc[] =
    "Put a policy on what already runs: a container, a pod, a process, a cgroup. It holds from this moment on, also when no "
    "Weir process lives, for everything in there and everything that is started there; what it can't hold is said."
    "\vExamples:\n"
    "  sudo weir attach --policy tool-call --container 3f2a1b0c9d8e\n"
    "  sudo weir attach --policy egress.json --pod 6f3d2c1b-0a99-4e88-8d77-665544332211\n"
    "  sudo weir attach --policy web.json --cgroup /system.slice/nginx.service\n"
    "  sudo weir attach --parent /sys/fs/cgroup/kubepods.slice --unknown deny\n\n"
    "On what has a policy already the new one takes its place, in one step. `weir status` says what is in force, `weir detach` "
    "takes it off.\n\n"
    "Exit status: 0; 1 when it was refused because the policy would not hold; 2 for arguments that make no sense; 125 when "
    "Weir failed. In the last three cases everything is as it was.";

/* ---- arguments ---- */

static void check_parent(const struct options *o, const struct argp_state *state)
{
	if (o->policy)
		argp_error(state,
			   "--parent takes no --policy: it says what happens to those that have none; attach policies to "
			   "what is below it");
	if (o->resolver_count)
		argp_error(state, "--resolver: only with --policy");
	if (o->force)
		argp_error(state, "--force: only with --policy");
	if (o->require_full)
		argp_error(state, "--require-full: only with --policy");
	if (!o->unknown)
		argp_error(state, "--parent: say what happens to a cgroup below it that has no policy: --unknown deny or "
				  "--unknown allow");
}

static void check(const struct options *o, const struct argp_state *state)
{
	if (!o->pick.ref)
		argp_error(state, "on what? --cgroup DIR, --pid N, --container ID, --pod UID, or --parent DIR");
	if (o->pick.kind == TARGET_PARENT) {
		check_parent(o, state);
		return;
	}
	if (o->unknown)
		argp_error(state, "--unknown: only with --parent DIR");
	if (!o->policy)
		argp_error(state, "which policy? --policy FILE, or --policy tool-call");
	if (o->force && o->require_full)
		argp_error(state, "--force and --require-full: one takes what is not whole, the other refuses it");
}

static const char *once(const char *option, const char *before, const char *arg, const struct argp_state *state)
{
	if (before)
		argp_error(state, "%s: given twice", option);
	return arg;
}

static void take_plain(struct options *o, const char *arg)
{
	if (o->plain_count < sizeof o->plain / sizeof o->plain[0])
		o->plain[o->plain_count++] = arg;
}

/* "weir attach tool-call 2558f007e1d2": a policy, and what to put it on. What was meant is said with the options' names. */
static void refuse_plain(const struct options *o, const struct argp_state *state)
{
	const char *policy = NULL, *target = NULL, *option = NULL;

	for (size_t i = 0; i < o->plain_count; i++) {
		const char *likely = pick_option_of(o->plain[i]);

		if (likely && !target && !o->pick.ref) {
			target = o->plain[i];
			option = likely;
		} else if (!likely && !policy && !o->policy) {
			policy = o->plain[i];
		}
	}
	if (!policy && !target)
		argp_error(
		    state,
		    "no argument \"%s\" is taken: the policy is named by --policy, the target by --container ID, --pod UID, "
		    "--pid N or --cgroup DIR",
		    o->plain[0]);
	argp_error(state, "no argument \"%s\" is taken: name it by an option, such as%s%s%s%s%s%s", o->plain[0],
		   policy ? " --policy " : "", policy ? policy : "", target ? " " : "", target ? option : "", target ? " " : "",
		   target ? target : "");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	if (key >= PICK_KEY && key < PICK_KEY_END) {
		pick_take(&o->pick, key, arg, state);
		return 0;
	}
	switch (key) {
	case KEY_POLICY:
		o->policy = once("--policy", o->policy, arg, state);
		(void)pick_filled("--policy", arg, "a file, or the name of a shipped policy, such as tool-call", state);
		return 0;
	case KEY_UNKNOWN:
		o->unknown = once("--unknown", o->unknown, arg, state);
		if (strcmp(arg, "deny") != 0 && strcmp(arg, "allow") != 0)
			argp_error(state, "--unknown: \"%s\" is none of deny, allow", arg);
		return 0;
	case KEY_RESOLVER:
		pick_resolver(arg, o->resolvers, &o->resolver_count, state);
		return 0;
	case KEY_FORCE:
		o->force = true;
		return 0;
	case KEY_FULL:
		o->require_full = true;
		return 0;
	case KEY_JSON:
		o->json = true;
		return 0;
	case ARGP_KEY_ARG:
		take_plain(o, arg);
		return 0;
	case ARGP_KEY_END:
		if (o->plain_count)
			refuse_plain(o, state);
		check(o, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- the wait ---- */

/*
 * Another change may hold the lock, and a slow kernel takes its time. What waits can't talk, so a thread does: a signal would
 * cut short what is being waited for, and a process would be one more of the workload's, with --pid self.
 */
static void *talk(void *unused)
{
	static const char text[] =
	    "weir: attaching takes a moment: the kernel checks the programs, or another change goes first\n";
	const struct timespec second = {.tv_sec = 1};

	(void)unused;
	if (nanosleep(&second, NULL) == 0 && write(STDERR_FILENO, text, sizeof text - 1) < 0)
		return NULL; /* nobody reads it */
	return NULL;
}

static int make(const struct attach_request *request, struct attach_result *ret, struct err *e)
{
	struct err unused = {0};
	pthread_t talker;
	bool talks = pthread_create(&talker, NULL, talk, NULL) == 0;
	int rc;

	(void)attach_clear_up(NULL, NULL, &unused); /* what fails there is in the way of others, not of this */
	rc = attach_make(request, ret, e);
	if (talks) {
		pthread_cancel(talker);
		pthread_join(talker, NULL);
	}
	return rc;
}

/* ---- the result ---- */

/* What keeps it from being attached even with --force. */
static bool force_helps(const struct coverage_found *f)
{
	return coverage_grade(f, true) != COVERAGE_REFUSED;
}

static int refused(const struct options *o, struct attach_result *r, const struct err *e)
{
	const struct attach_view view = {.a = &r->a, .seen = &r->seen};
	struct err print_e = {0};
	char msg[sizeof e->msg];

	if (o->json && attach_print_json(attach_show_json(&view), false, &print_e) < 0)
		return cli_fail(&print_e);
	/* The error has the reasons in one line: here there is room. */
	if (r->a.found.weak) {
		fprintf(stderr, "weir: refused: %s\n",
			r->a.coverage == COVERAGE_REFUSED ? "the policy would not hold" : "it would be covered in part");
		attach_show_coverage(stderr, &r->a);
	} else {
		fprintf(stderr, "weir: refused: %s\n", attach_plain(msg, sizeof msg, e->msg));
	}
	if (coverage_grade(&r->a.found, o->force) == COVERAGE_REFUSED && !force_helps(&r->a.found))
		fprintf(stderr, "weir: --force would not change that. Nothing was attached.\n");
	else if (coverage_grade(&r->a.found, false) == COVERAGE_REFUSED)
		fprintf(
		    stderr,
		    "weir: --force attaches all the same, and what is said above stays open: it counts as partial. Nothing was "
		    "attached.\n");
	else if (o->require_full)
		fprintf(stderr, "weir: without --require-full it is attached, and covers all but what is said above.\n");
	return EXIT_REFUSED;
}

static int show(const struct options *o, const struct attach_result *r, const struct attach_check *c, struct err *e)
{
	/* The list of sockets is the inspection's until it is read back from the record. */
	struct attachment a = r->a;
	const struct attach_view view = {.a = &a, .check = c, .seen = &r->seen, .with_sockets = true};
	char text[160];

	if (!a.sockets) {
		a.sockets = r->seen.sockets;
		a.socket_count = r->seen.socket_count;
		a.sockets_beyond = r->seen.sockets_beyond;
	}
	if (o->json)
		return attach_print_json(attach_show_json(&view), false, e);
	if (r->again)
		puts("The policy that was there has been replaced.");
	attach_show_text(stdout, &view);
	printf("  events     %s\n", attach_events_text(text, attachment_drained_by()));
	return cli_flush(e);
}

static int attached(const struct options *o, const struct attach_result *r, struct err *e)
{
	struct attach_check *c = calloc(1, sizeof *c);
	enum attach_state state;
	int rc;

	if (!c)
		return err_set(e, ENOMEM, "", "out of memory");
	attach_check(&r->a, c);
	state = c->state;
	rc = show(o, r, c, e);
	free(c);
	if (rc == 0 && state != ATTACH_IN_FORCE)
		return err_set(e, EIO, "policy", "%s is attached, and not in force: `weir status %s` says more", r->a.id,
			       r->a.id);
	return rc;
}

int attach_cmd(int argc, char **argv)
{
	static const struct argp argp = {option_table, parse, NULL, doc, NULL, NULL, NULL};
	struct attach_result *r = calloc(1, sizeof *r);
	struct attach_request request;
	struct options o = {0};
	struct err e = {0};
	int rc, status = 0;

	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (!r)
		return EXIT_WEIR;
	if (cli_need_root(&e) < 0) {
		free(r);
		return cli_fail(&e);
	}
	request = (struct attach_request){.kind = o.pick.kind,
					  .ref = o.pick.ref,
					  .policy = o.policy,
					  .unknown_passes = o.unknown && !strcmp(o.unknown, "allow"),
					  .resolver_count = o.resolver_count,
					  .force = o.force,
					  .require_full = o.require_full};
	memcpy(request.resolvers, o.resolvers, sizeof o.resolvers);
	rc = make(&request, r, &e);
	if (rc < 0 && !strcmp(e.where, "coverage")) {
		status = refused(&o, r, &e);
	} else if (rc < 0 || attached(&o, r, &e) < 0) {
		(void)attach_plain(e.msg, sizeof e.msg, e.msg);
		status = cli_fail(&e);
	}
	attach_result_clear(r);
	free(r);
	return status;
}
