/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/audit_cmd.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "auditor/auditor.h"
#include "auditor/store.h"
#include "cli/cli.h"
#include "cli/config_load.h"
#include "core/cleanup.h"
#include "core/err.h"
#include "core/policy_read.h"

#define LS_DEFAULT 50

enum { KEY_CONFIG = 256 };

struct options {
	const char *state_dir, *config;
	const char *command, *run_id;
	long limit;
	bool json;
};

/* ---- printing: the record is ASCII already, but a file may hold anything, and a terminal obeys control characters ---- */

static const char *cell(char *buf, size_t size, const json_t *value)
{
	if (json_is_string(value))
		snprintf(buf, size, "%s", json_string_value(value));
	else if (json_is_integer(value))
		snprintf(buf, size, "%lld", (long long)json_integer_value(value));
	else if (json_is_boolean(value))
		snprintf(buf, size, "%s", json_is_true(value) ? "yes" : "no");
	else
		snprintf(buf, size, "-");
	for (char *p = buf; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	return buf;
}

#define CELL(value) cell((char[1100]){0}, 1100, (value))
#define GET(object, name) CELL(json_object_get(object, name))

static void print_destination(const json_t *event)
{
	const json_t *port = json_object_get(event, "port"), *name = json_object_get(event, "dns_name");
	bool v6 = json_is_string(json_object_get(event, "address")) && strchr(GET(event, "address"), ':');

	printf("%s %s%s%s", GET(event, "protocol"), v6 && json_is_integer(port) ? "[" : "", GET(event, "address"),
	       v6 && json_is_integer(port) ? "]" : "");
	if (json_is_integer(port))
		printf(":%s", CELL(port));
	else if (json_object_get(event, "icmp_type"))
		printf(" type %s code %s", GET(event, "icmp_type"), GET(event, "icmp_code"));
	if (json_is_string(name))
		printf("  %s %s%s", GET(event, "dns_type"), CELL(name),
		       json_is_true(json_object_get(event, "dns_malformed")) ? " (malformed)" : "");
}

/* As the process sees it, and where that is another, as the host does. */
static void print_pid(const json_t *event)
{
	const json_t *pid = json_object_get(event, "pid"), *host = json_object_get(event, "host_pid");

	printf("pid %s", CELL(pid));
	if (json_is_integer(host) && !json_equal(pid, host))
		printf(", on the host %s", CELL(host));
}

/* The reason; a rule by its name, or by number when the name is gone; and how the address was read. */
static void print_why(const json_t *event)
{
	const json_t *name = json_object_get(event, "rule_name"), *decode = json_object_get(event, "decode"), *step;
	size_t i;

	printf("%s", GET(event, "reason"));
	if (json_is_integer(json_object_get(event, "rule")))
		printf(" %s", json_is_string(name) ? CELL(name) : GET(event, "rule"));
	if (json_object_get(event, "decode_kind"))
		printf(", read as %s", GET(event, "decode_kind"));
	json_array_foreach(decode, i, step)
	{
		printf("%s%s", i ? " -> " : ": ", CELL(step));
	}
	putchar('\n');
}

/* ---- of what had a policy put on it while it ran ---- */

static void print_target(const json_t *run)
{
	const json_t *target = json_object_get(run, "target"), *canary = json_object_get(target, "canary"), *reason;
	size_t i;

	printf("target   %s %s: %s", GET(target, "kind"), GET(target, "ref"), GET(target, "cgroup"));
	if (json_string_length(json_object_get(target, "runtime")))
		printf(" (%s)", GET(target, "runtime"));
	printf("\n         attached %s\n", GET(target, "attached"));
	if (json_object_get(target, "unknown"))
		printf("         what has no policy of its own below it: %s\n",
		       strcmp(GET(target, "unknown"), "allow") ? "denied" : "let through and recorded");
	else
		printf("coverage %s\n", GET(target, "coverage"));
	json_array_foreach(json_object_get(run, "reasons"), i, reason)
	{
		bool more = json_string_length(json_object_get(reason, "detail")) > 0;

		printf("  %-14s %s%s%s%s\n", GET(reason, "name"), GET(reason, "text"), more ? " (" : "", GET(reason, "detail"),
		       more ? ")" : "");
	}
	if (json_is_true(json_object_get(canary, "proven")))
		printf("proven   from inside %s: %s attempts, %s denied\n", GET(target, "canary_leaf"), GET(canary, "attempts"),
		       GET(canary, "denied"));
	else if (!json_object_get(target, "unknown"))
		printf("proven   no: %s\n", GET(canary, "why"));
}

static void print_address(const json_t *socket, const char *address, const char *port)
{
	bool v6 = strchr(GET(socket, address), ':') != NULL;

	printf("%s%s%s:%s", v6 ? "[" : "", GET(socket, address), v6 ? "]" : "", GET(socket, port));
}

static void print_sockets(const json_t *run)
{
	const json_t *socket, *target = json_object_get(run, "target");
	size_t i;

	if (!json_array_size(json_object_get(run, "sockets")))
		return;
	printf("open     %s sockets when the policy came", GET(target, "sockets_open"));
	if (json_integer_value(json_object_get(target, "sockets_beyond")))
		printf(", and %s that are not listed", GET(target, "sockets_beyond"));
	putchar('\n');
	json_array_foreach(json_object_get(run, "sockets"), i, socket)
	{
		printf("  %-10s %-9s ", json_is_string(json_object_get(socket, "verdict")) ? GET(socket, "verdict") : "",
		       GET(socket, "protocol"));
		print_address(socket, "local", "local_port");
		if (json_is_string(json_object_get(socket, "remote"))) {
			printf(" -> ");
			print_address(socket, "remote", "remote_port");
		}
		printf("  %s (pid %s)%s\n", GET(socket, "command"), GET(socket, "pid"),
		       json_is_true(json_object_get(socket, "elsewhere")) ? ", made in another cgroup: not judged here" : "");
	}
}

static void print_drift(const json_t *run)
{
	const json_t *drift, *gap;
	size_t i;

	json_array_foreach(json_object_get(run, "gaps"), i, gap)
	{
		printf("gap      since %s nobody wrote events: %s attempts, %s denied", GET(gap, "since"), GET(gap, "attempts"),
		       GET(gap, "denied"));
		if (json_integer_value(json_object_get(gap, "unlisted")))
			printf(", %s of them without details", GET(gap, "unlisted"));
		printf("; %s\n", GET(gap, "text"));
	}
	json_array_foreach(json_object_get(run, "drift"), i, drift)
	{
		printf("drift    %s %s%s: %s\n", GET(drift, "time"), GET(drift, "name"),
		       json_is_true(json_object_get(drift, "over")) ? " is over" : "", GET(drift, "text"));
	}
}

/* Its beginning differs in what there is to say; the rest does not. */
static void print_attached(const json_t *run)
{
	printf("record   %s (attachment %s, project %s)\n", GET(run, "run_id"), GET(run, "sandbox_id"), GET(run, "project"));
	print_target(run);
	if (!json_object_get(json_object_get(run, "target"), "unknown"))
		printf("policy   %s, generation %s (%.16s)\n", GET(run, "policy"), GET(run, "policy_generation"),
		       GET(run, "policy_hash"));
	print_drift(run);
	print_sockets(run);
}

static void print_head(const json_t *run)
{
	printf("run      %s (sandbox %s, project %s)\n", GET(run, "run_id"), GET(run, "sandbox_id"), GET(run, "project"));
	if (json_object_get(run, "agent"))
		printf("call     of a tool of agent %s, image %s\n", GET(run, "agent"), GET(run, "image"));
	printf("policy   %s, generation %s (%.16s); Python %s; deadline %s s\n", GET(run, "policy"),
	       GET(run, "policy_generation"), GET(run, "policy_hash"), GET(run, "python"), GET(run, "timeout_s"));
}

static void print_run(const json_t *run)
{
	const json_t *end = json_object_get(run, "termination"), *egress = json_object_get(run, "egress"), *event, *change;
	size_t i;

	if (json_object_get(run, "target"))
		print_attached(run);
	else
		print_head(run);
	json_array_foreach(json_object_get(run, "policy_changes"), i, change)
	{
		printf("then     %s, generation %s (%.16s) from %s on (%s)\n", GET(change, "policy"),
		       GET(change, "policy_generation"), GET(change, "policy_hash"), GET(change, "time"),
		       GET(change, "reason"));
	}
	printf("began    %s\n", GET(run, "began"));
	printf("state    %s", GET(run, "state"));
	if (json_is_object(end) && json_object_get(run, "target"))
		printf(": %s, after %s ms%s%s", GET(end, "reason"), GET(run, "duration_ms"),
		       json_string_length(json_object_get(end, "detail")) ? "; " : "", GET(end, "detail"));
	else if (json_is_object(end))
		printf(": %s, exit code %s, after %s ms%s%s", GET(end, "reason"), GET(run, "exit_code"),
		       GET(run, "duration_ms"), json_string_length(json_object_get(end, "detail")) ? "; " : "",
		       json_string_length(json_object_get(end, "detail")) ? GET(end, "detail") : "");
	printf("\negress   %s attempt%s: %s denied, %s allowed, %s would be denied; %s lost%s\n", GET(egress, "attempts"),
	       json_integer_value(json_object_get(egress, "attempts")) == 1 ? "" : "s", GET(egress, "denied"),
	       GET(egress, "allowed"), GET(egress, "would_deny"), GET(egress, "lost"),
	       json_is_false(json_object_get(egress, "exact")) ? " (so far listed; the exact counters come with the end)" : "");
	json_array_foreach(json_object_get(run, "events"), i, event)
	{
		printf("  %-10s %6sx  ", GET(event, "verdict"), GET(event, "count"));
		print_destination(event);
		printf("\n            %s  %s (", GET(event, "time"), GET(event, "command"));
		print_pid(event);
		printf(", uid %s) at %s, ", GET(event, "uid"), GET(event, "hook"));
		print_why(event);
		if (json_object_get(event, "cgroup"))
			printf("            in %s (id %s)\n",
			       json_string_length(json_object_get(event, "cgroup")) ? GET(event, "cgroup")
										    : "a cgroup that was gone by then",
			       GET(event, "cgroup_id"));
	}
}

static void print_header(void)
{
	printf("%-28s %-16s %-16s %-19s %-11s %-9s %8s %8s %8s %6s\n", "RUN", "PROJECT", "AGENT", "BEGAN (UTC)", "STATE", "END",
	       "ATTEMPTS", "DENIED", "WOULD", "LOST");
}

static void print_row(const json_t *run)
{
	const json_t *egress = json_object_get(run, "egress"), *target = json_object_get(run, "target");

	printf("%-28s %-16s %-16s %-19.19s %-11s %-9s %8s %8s %8s %6s", GET(run, "run_id"), GET(run, "project"),
	       GET(run, "agent"), GET(run, "began"), GET(run, "state"), GET(json_object_get(run, "termination"), "reason"),
	       GET(egress, "attempts"), GET(egress, "denied"), GET(egress, "would_deny"), GET(egress, "lost"));
	/* Of an attachment, whose id says nothing of what it is on. */
	if (json_object_get(target, "ref"))
		printf("  %s %s", GET(target, "kind"), GET(target, "ref"));
	putchar('\n');
}

static int print_json(const json_t *json)
{
	int r = json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));

	return putchar('\n') == EOF || r < 0 ? -EIO : 0;
}

/* ---- reading ---- */

static json_t *run_of(const struct store *store, const char *run_id, int *ret_error)
{
	struct view *v = NULL;
	json_t *run = NULL;

	*ret_error = store_run(store, run_id, &v);
	if (*ret_error == 0) {
		run = view_run(v, store_state_names[store_state(store, run_id)]);
		*ret_error = run ? 0 : -ENOMEM;
	}
	view_free(v);
	return run;
}

struct listing {
	const struct store *store;
	size_t skip;	    /* older ones than were asked for */
	const char *window; /* only those of this attachment; NULL: all */
	json_t *runs;
};

/* "attached-x.3" of "attached-x". */
static bool is_window(const char *run_id, const char *attachment)
{
	size_t len = strlen(attachment);

	return !strncmp(run_id, attachment, len) && run_id[len] == '.';
}

static int list_run(void *ctx, const char *run_id)
{
	struct listing *l = ctx;
	json_t *run;
	int r;

	if (l->window && !is_window(run_id, l->window))
		return 0;
	if (l->skip) {
		l->skip--;
		return 0;
	}
	run = run_of(l->store, run_id, &r);
	if (!run)
		return r;
	json_object_del(run, "events");
	return json_array_append_new(l->runs, run) < 0 ? -ENOMEM : 0;
}

/* Without a number it names no run, but a row of them. -ENOENT: there are none. */
static int show_windows(const struct store *store, const struct options *o)
{
	struct listing l = {.store = store, .window = o->run_id, .runs = json_array()};
	_cleanup_json_ json_t *whole = NULL;
	const json_t *run;
	size_t i;
	int r = l.runs ? store_each_run(store, list_run, &l) : -ENOMEM;

	whole = json_pack("{s:o}", "runs", l.runs);
	if (r < 0 || !whole)
		return r < 0 ? r : -ENOMEM;
	if (!json_array_size(l.runs))
		return -ENOENT;
	if (o->json)
		return print_json(whole);
	print_header();
	json_array_foreach(l.runs, i, run)
	{
		print_row(run);
	}
	printf("The record of %s has these parts, the newest last; `weir audit show %s` shows one.\n", o->run_id,
	       GET(json_array_get(l.runs, i - 1), "run_id"));
	return 0;
}

static int show(const struct store *store, const struct options *o, struct err *e)
{
	int r;
	json_t *run = run_of(store, o->run_id, &r);

	if (r == -ENOENT && (r = show_windows(store, o)) == 0)
		return 0;
	if (r == -ENOENT)
		return err_set(e, ENOENT, "", "no run \"%s\" in the record; `weir audit ls` lists them", o->run_id);
	if (r < 0)
		return err_errno(e, -r, "", "can't read the run");
	if (o->json)
		r = print_json(run);
	else
		print_run(run);
	json_decref(run);
	return r;
}

static int count_run(void *ctx, const char *run_id)
{
	(void)run_id;
	++*(size_t *)ctx;
	return 0;
}

static int ls(const struct store *store, const struct options *o, struct err *e)
{
	struct listing l = {.store = store, .runs = json_array()};
	size_t total = 0, i;
	json_t *run, *whole;
	int r;

	store_each_run(store, count_run, &total);
	if (o->limit && total > (size_t)o->limit)
		l.skip = total - (size_t)o->limit;
	r = l.runs ? store_each_run(store, list_run, &l) : -ENOMEM;
	if (r < 0) {
		json_decref(l.runs);
		return err_errno(e, -r, "", "can't read the record");
	}
	whole = json_pack("{s:o, s:I}", "runs", l.runs, "older", (json_int_t)(total - json_array_size(l.runs)));
	if (o->json) {
		r = print_json(whole);
	} else {
		print_header();
		json_array_foreach(l.runs, i, run)
		{
			print_row(run);
		}
		if (total > json_array_size(l.runs))
			printf("%zu older runs; --limit 0 lists all\n", total - json_array_size(l.runs));
	}
	json_decref(whole);
	return r;
}

static int open_record(struct store **ret, int *ret_dir, const char *state_dir, struct err *e)
{
	_cleanup_fd_ int state = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), dir = -1;
	int r;

	if (state >= 0)
		dir = openat(state, AUDITOR_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0)
		return errno == ENOENT
			   ? err_set(e, ENOENT, "",
				     "can't open %s/%s: No such file or directory: no service has kept a record "
				     "there; --state-dir or --config names another place",
				     state_dir, AUDITOR_DIR)
			   : err_set(e, errno, "", "can't open %s/%s: %s%s", state_dir, AUDITOR_DIR, strerror(errno),
				     errno == EACCES ? ": the record is root's alone (try sudo)" : "");
	r = store_open_readonly(ret, dir, e);
	if (r == 0)
		*ret_dir = TAKE_FD(dir);
	return r;
}

/* ---- arguments ---- */

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	char *end;

	switch (key) {
	case 'd':
		o->state_dir = arg;
		return 0;
	case KEY_CONFIG:
		o->config = arg;
		return 0;
	case 'j':
		o->json = true;
		return 0;
	case 'n':
		o->limit = strtol(arg, &end, 10);
		if (end == arg || *end || o->limit < 0)
			argp_error(state, "--limit takes a number, 0 for all");
		return 0;
	case ARGP_KEY_ARG:
		if (state->arg_num == 0)
			o->command = arg;
		else if (state->arg_num == 1 && o->command && strcmp(o->command, "show") == 0)
			o->run_id = arg;
		else
			argp_error(state, "too many arguments");
		return 0;
	case ARGP_KEY_END:
		if (!o->command || (strcmp(o->command, "ls") != 0 && strcmp(o->command, "show") != 0))
			argp_error(state, "say ls or show ID");
		if (o->command && strcmp(o->command, "show") == 0 && !o->run_id)
			argp_error(state, "say which run to show");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int audit_cmd(int argc, char **argv)
{
	static const struct argp_option table[] = {
	    {"state-dir", 'd', "DIR", 0, "where the record is (default: what the configuration says, else /var/lib/weir)", 0},
	    {"config", KEY_CONFIG, "FILE", 0,
	     "the service's configuration, whose state directory is meant (default: " CONFIG_FILE_DEFAULT ", if it is there)",
	     0},
	    {"json", 'j', NULL, 0, "print JSON", 0},
	    {"limit", 'n', "N", 0, "ls: the newest N runs, 0 for all (default 50)", 0},
	    {0},
	};
	static const struct argp argp = {
	    .options = table,
	    .parser = parse,
	    .args_doc = "ls\nshow ID",
	    .doc = "What runs did: lists them, or shows one with every attempt to reach the network."
		   "\vExamples:\n  sudo weir audit ls\n  sudo weir audit show sandbox-0md1l1bxo3blr\n\n"
		   "Exit status: 0; 1 for an unknown run or a record that can't be read; 64 for arguments that make no sense."};
	struct options o = {.limit = LS_DEFAULT};
	_cleanup_free_ char *state_dir = NULL;
	_cleanup_fd_ int dir = -1;
	struct store *store = NULL;
	struct err e;
	int r;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	r = config_state_dir(o.state_dir, o.config, &state_dir, &e);
	if (r == 0)
		r = open_record(&store, &dir, state_dir, &e);
	if (r == 0)
		r = strcmp(o.command, "ls") == 0 ? ls(store, &o, &e) : show(store, &o, &e);
	if (r == 0 || r == -EIO)
		r = cli_flush(&e) < 0 ? -EIO : r;
	store_free(store);
	if (r < 0)
		fprintf(stderr, "weir audit: %s\n", e.msg);
	return r < 0 ? 1 : 0;
}
