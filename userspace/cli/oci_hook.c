/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weir oci-hook`: called by a container runtime. As createRuntime hook it attaches a policy before the container's first
 * instruction; its failure makes the runtime give the container up. As poststop hook it clears up.
 *
 * The runtime may give no environment, any working directory, and whatever descriptors: nothing here depends on them.
 */
#include <argp.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/attach.h"
#include "blobs.h"
#include "cli/attach_pick.h"
#include "cli/attach_show.h"
#include "cli/cli.h"
#include "cli/hook_state.h"
#include "core/cleanup.h"
#include "core/clock.h"

#define POLICIES_DEFAULT "/etc/weir/policies"
#define EXIT_FAILED 1 /* what a runtime takes for a failure, as any status but 0 */
#define EXIT_USAGE 2
#define INPUT_MS 10000 /* for all of the state */

struct options {
	bool stop, skip_unlabelled, named;
	const char *policy, *policies;
	const char *resolvers[ATTACHED_RESOLVERS];
	size_t resolver_count;
};

enum { KEY_POLICY = 256, KEY_POLICIES, KEY_RESOLVER, KEY_UNLABELLED };

static const struct argp_option option_table[] = {
    {"policy", KEY_POLICY, "P", 0,
     "the policy of every container it is called for: an absolute path, or the name of a shipped one (default: what the "
     "annotation \"" HOOK_ANNOTATION "\" names)",
     0},
    {"policies", KEY_POLICIES, "DIR", 0,
     "where an annotation's NAME is looked up, as NAME.json, before the shipped ones (default: " POLICIES_DEFAULT ")", 0},
    {"resolver", KEY_RESOLVER, "ADDR", 0,
     "a name server of the containers, for @resolver; may be repeated (default: this host's own)", 0},
    {"unlabelled", KEY_UNLABELLED, "skip", 0, "let a container without the annotation start without a policy", 0},
    {0},
};

static const char doc[] =
    "A hook of container runtimes (OCI): puts a policy on a container before its first instruction, or stops it from starting. "
    "The runtime gives the container's state on standard input. create (the default) is for the stage createRuntime; stop, for "
    "poststop, clears up."
    "\vConfigurations for Podman and CRI-O are in deploy/oci; weir-oci-hook(1) has the rest.\n\n"
    "Exit status: 0; 1 when no policy could be put on it, so that the runtime gives the container up; 2 for arguments that "
    "make no sense.";

/* ---- arguments ---- */

static void take_command(struct options *o, const char *arg, const struct argp_state *state)
{
	if (o->named)
		argp_error(state, "no second argument \"%s\" is taken", arg);
	if (strcmp(arg, "create") != 0 && strcmp(arg, "stop") != 0)
		argp_error(state, "\"%s\" is none of create, stop", arg);
	o->named = true;
	o->stop = !strcmp(arg, "stop");
}

static const char *absolute(const char *option, const char *arg, const struct argp_state *state)
{
	if (pick_filled(option, arg, "an absolute path", state)[0] != '/')
		argp_error(state, "%s: \"%s\" is no absolute path, and a hook is called in any directory", option, arg);
	return arg;
}

static void take_policy(struct options *o, const char *arg, const struct argp_state *state)
{
	struct blob shipped;

	if (!blob_policy(pick_filled("--policy", arg, "an absolute path, or the name of a shipped policy", state), &shipped))
		(void)absolute("--policy", arg, state);
	o->policy = arg;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case KEY_POLICY:
		take_policy(o, arg, state);
		return 0;
	case KEY_POLICIES:
		o->policies = absolute("--policies", arg, state);
		return 0;
	case KEY_RESOLVER:
		pick_resolver(arg, o->resolvers, &o->resolver_count, state);
		return 0;
	case KEY_UNLABELLED:
		if (strcmp(arg, "skip") != 0)
			argp_error(state, "--unlabelled: \"%s\" is not skip", arg);
		o->skip_unlabelled = true;
		return 0;
	case ARGP_KEY_ARG:
		take_command(o, arg, state);
		return 0;
	case ARGP_KEY_END:
		if (o->stop && (o->policy || o->policies || o->resolver_count || o->skip_unlabelled))
			argp_error(state, "stop takes no options: it clears up what is gone");
		if (o->policy && o->policies)
			argp_error(state,
				   "--policy and --policies: the one says which, the other where an annotation's is looked up");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- create ---- */

/* A runtime that waits for us, and keeps its end open, would have both wait for ever, and the container with them. */
static int wait_for_input(uint64_t until_ns, struct err *e)
{
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};

	for (;;) {
		uint64_t now_ns = clock_now_ns();
		int rc = now_ns < until_ns ? poll(&p, 1, (int)((until_ns - now_ns) / 1000000) + 1) : 0;

		if (rc > 0)
			return 0;
		if (rc == 0)
			return err_set(
			    e, ETIMEDOUT, "",
			    "the container's state on standard input did not end within %d s: whoever calls this has "
			    "to write it and close its end",
			    INPUT_MS / 1000);
		if (errno != EINTR)
			return err_errno(e, errno, "", "wait for the container's state on standard input");
	}
}

/* All of standard input, at most one byte more than is taken. */
static int read_input(char **ret, size_t *ret_len, struct err *e)
{
	_cleanup_free_ char *text = malloc(HOOK_STATE_MAX + 1);
	const uint64_t until_ns = clock_now_ns() + (uint64_t)INPUT_MS * 1000000;
	size_t used = 0;
	int rc;

	if (!text)
		return err_set(e, ENOMEM, "", "out of memory");
	if (isatty(STDIN_FILENO))
		return err_set(e, EINVAL, "", "a container runtime calls this, with the container's state on standard input");
	while (used <= HOOK_STATE_MAX) {
		ssize_t n;

		rc = wait_for_input(until_ns, e);
		if (rc < 0)
			return rc;
		n = read(STDIN_FILENO, text + used, HOOK_STATE_MAX + 1 - used);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0)
			return err_errno(e, errno, "", "read the container's state from standard input");
		if (n == 0)
			break;
		used += (size_t)n;
	}
	*ret = TAKE_PTR(text);
	*ret_len = used;
	return 0;
}

static int read_state(struct hook_state *ret, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	struct err at = {0};
	size_t len = 0;
	int rc = read_input(&text, &len, e);

	if (rc < 0)
		return rc;
	if (hook_state_read(text, len, ret, &at) < 0)
		return err_set(e, at.code, "", "the container's state on standard input: %s%s%s", at.where,
			       at.where[0] ? " " : "", at.msg);
	return 0;
}

/*
 * A file of the directory comes before a shipped policy of that name: only if there is none. One that is there and can't be
 * read must not be taken for none.
 */
static int find_policy(const struct options *o, const struct hook_state *s, char ret[PATH_MAX], struct err *e)
{
	const char *dir = o->policies ? o->policies : POLICIES_DEFAULT;
	struct blob shipped;
	struct stat st;

	if ((size_t)snprintf(ret, PATH_MAX, "%s/%s.json", dir, s->policy) >= PATH_MAX)
		return err_set(e, ENAMETOOLONG, "--policies", "the path is too long");
	if (lstat(ret, &st) == 0)
		return 0;
	if (errno != ENOENT)
		return err_errno(e, errno, "--policies", "look at %.500s", ret);
	if (!blob_policy(s->policy, &shipped))
		return err_set(e, ENOENT, "--policies", "there is no policy \"%s\": no %.500s, and no shipped one of that name",
			       s->policy, ret);
	snprintf(ret, PATH_MAX, "%s", s->policy);
	return 0;
}

static int unlabelled(const struct options *o, struct err *e)
{
	if (o->skip_unlabelled)
		return 0;
	return err_set(
	    e, EINVAL, "",
	    "it has no annotation \"" HOOK_ANNOTATION "\", and no --policy is given. Let the hook be called for those that "
	    "have it, by \"when\": {\"annotations\": {\"^weir\\\\.dev/policy$\": \".*\"}} in its configuration, or give "
	    "--unlabelled skip");
}

static int attach(const struct options *o, const struct hook_state *s, const char *policy, struct err *e)
{
	struct attach_result *r = calloc(1, sizeof *r);
	struct attach_request request = {
	    .kind = TARGET_PID, .policy = policy, .resolver_count = o->resolver_count, .no_other = true, .bundle = s->bundle};
	char pid[16];
	int rc;

	if (!r)
		return err_set(e, ENOMEM, "", "out of memory");
	memcpy(request.resolvers, o->resolvers, sizeof o->resolvers);
	snprintf(pid, sizeof pid, "%d", s->pid);
	request.ref = pid;
	rc = attach_make(&request, r, e);
	attach_result_clear(r);
	free(r);
	return rc;
}

static int create(const struct options *o, struct hook_state *s, struct err *e)
{
	char policy[PATH_MAX];
	int rc = read_state(s, e);

	if (rc < 0)
		return rc;
	if (o->policy) {
		snprintf(policy, sizeof policy, "%s", o->policy);
	} else if (!s->labelled) {
		return unlabelled(o, e);
	} else {
		rc = find_policy(o, s, policy, e);
		if (rc < 0)
			return rc;
	}
	return attach(o, s, policy, e);
}

/* ---- stop ---- */

/* Which container it was makes no difference: its cgroup is gone, or it is not. But the runtime wants its state read. */
static int stop(struct err *e)
{
	_cleanup_free_ char *unread = NULL;
	size_t len;
	int rc = read_input(&unread, &len, e);

	if (rc == 0)
		rc = attach_clear_up(NULL, NULL, e);
	return rc < 0 ? rc : 0;
}

int oci_hook_cmd(int argc, char **argv)
{
	static const struct argp argp = {option_table, parse, "[create|stop]", doc, NULL, NULL, NULL};
	struct options o = {0};
	struct hook_state s = {.labelled = false};
	struct err e = {0};
	char id[HOOK_ID_MAX + 16] = "";
	int rc;

	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &o);
	rc = cli_need_root(&e);
	if (rc == 0)
		rc = o.stop ? stop(&e) : create(&o, &s, &e);
	if (rc < 0) {
		if (s.id[0])
			snprintf(id, sizeof id, "container %.64s: ", s.id);
		fprintf(stderr, "weir: oci-hook: %s%s%s%s\n", id, e.where, e.where[0] ? ": " : "",
			attach_plain(e.msg, sizeof e.msg, e.msg));
	}
	return rc < 0 ? EXIT_FAILED : 0;
}
