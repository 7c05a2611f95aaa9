/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/audit_cmd.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/config_load.h"
#include "core/chain.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/event.h"
#include "core/when.h"
#include "core/where.h"

/* One bit each: what was given, and what a command takes. */
enum given {
	OPT_JSON = 1 << 0,
	OPT_LIMIT = 1 << 1,
	OPT_SINCE = 1 << 2,
	OPT_UNTIL = 1 << 3,
	OPT_PROJECT = 1 << 4,
	OPT_POLICY = 1 << 5,
	OPT_DESTINATION = 1 << 6,
	OPT_VERDICT = 1 << 7,
	OPT_END = 1 << 8,
	OPT_FORMAT = 1 << 9,
	OPT_OUTPUT = 1 << 10,
	OPT_EXPECT = 1 << 11,
	OPT_PUBLIC_KEY = 1 << 12,
	OPT_CALLER = 1 << 13,
};
#define OPT_FILTERS (OPT_SINCE | OPT_UNTIL | OPT_PROJECT | OPT_POLICY | OPT_CALLER | OPT_DESTINATION | OPT_VERDICT | OPT_END)

enum id_wanted { ID_NEVER, ID_MAY, ID_MUST };

static const struct command {
	const char *name;
	audit_fn *fn;
	unsigned takes; /* options, beside the record's place */
	enum id_wanted id;
} commands[] = {
    {"ls", audit_ls, OPT_JSON | OPT_LIMIT | OPT_FILTERS, ID_NEVER},
    {"show", audit_show, OPT_JSON, ID_MUST},
    {"verify", audit_verify, OPT_JSON | OPT_SINCE | OPT_EXPECT | OPT_PUBLIC_KEY, ID_NEVER},
    {"export", audit_export, OPT_FILTERS | OPT_FORMAT | OPT_OUTPUT, ID_NEVER},
    {"report", audit_report, OPT_SINCE | OPT_UNTIL | OPT_PROJECT | OPT_LIMIT | OPT_OUTPUT, ID_MAY},
};
#define COMMANDS (sizeof commands / sizeof commands[0])

struct options {
	struct audit_args args;
	const char *state_dir, *config;
	const struct command *command;
	unsigned given;
	uint64_t now_ns;
};

/* ---- values of options ---- */

/* Each returns what it expected, or NULL when the value is that. */
typedef const char *taker_fn(struct options *o, char *arg);

static const char *take_json(struct options *o, char *arg)
{
	(void)arg;
	o->args.json = true;
	return NULL;
}

static const char *take_limit(struct options *o, char *arg)
{
	char *end;

	errno = 0;
	o->args.limit = strtol(arg, &end, 10);
	return end == arg || *end || errno || o->args.limit < 0 ? "a number, 0 for all" : NULL;
}

#define A_TIME "a moment: 2026-11-30T12:00:00Z, 2026-11-30, or how long ago: 2h, 3d"

static const char *take_since(struct options *o, char *arg)
{
	return when_parse(arg, o->now_ns, &o->args.find.since_ns) < 0 ? A_TIME : NULL;
}

static const char *take_until(struct options *o, char *arg)
{
	return when_parse(arg, o->now_ns, &o->args.find.until_ns) < 0 ? A_TIME : NULL;
}

static bool copy(char *into, size_t size, const char *text)
{
	size_t len = strlen(text);

	if (!len || len >= size)
		return false;
	memcpy(into, text, len + 1);
	return true;
}

static const char *take_project(struct options *o, char *arg)
{
	return copy(o->args.find.project, sizeof o->args.find.project, arg) ? NULL : "a project's name";
}

static const char *take_policy(struct options *o, char *arg)
{
	return copy(o->args.find.policy, sizeof o->args.find.policy, arg) ? NULL : "a policy's name";
}

static const char *take_caller(struct options *o, char *arg)
{
	return copy(o->args.find.caller, sizeof o->args.find.caller, arg) ? NULL
									  : "who asked: token:tok-xxxxxxxx, or uid:0,sudo:1000";
}

static const char *take_destination(struct options *o, char *arg)
{
	return !where_problem(arg) && copy(o->args.find.destination, sizeof o->args.find.destination, arg) ? NULL : WHERE_TAKES;
}

/* The bit of a name. 0: there is no such name. */
static uint32_t bit_of(const char *name, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (names[i] && strcmp(name, names[i]) == 0)
			return 1u << i;
	return 0;
}

static const char *take_verdict(struct options *o, char *arg)
{
	uint32_t bit = bit_of(arg, event_verdict_names, WEIR_VERDICT_COUNT);

	o->args.find.verdicts |= bit;
	return bit ? NULL : "allowed, denied or would_deny";
}

static const char *take_end(struct options *o, char *arg)
{
	uint32_t bit = bit_of(arg, run_end_names, RUN_END_COUNT);

	o->args.find.ends |= bit;
	return bit ? NULL : "exit, signal, timeout, memory, output, cancelled or broken";
}

static const char *take_format(struct options *o, char *arg)
{
	o->args.format = arg;
	return strcmp(arg, "ndjson") && strcmp(arg, "ocsf") ? "ndjson or ocsf" : NULL;
}

static const char *take_output(struct options *o, char *arg)
{
	o->args.output = arg;
	return *arg ? NULL : "a file";
}

static const char *take_expect(struct options *o, char *arg)
{
	struct audit_args *a = &o->args;

	for (char *p = arg; *p; p++)
		*p = *p >= 'A' && *p <= 'F' ? (char)(*p - 'A' + 'a') : *p;
	if (a->expect_count == sizeof a->expect / sizeof a->expect[0])
		return "64 hashes at most";
	return chain_from_hex(arg, a->expect[a->expect_count++]) < 0
		   ? "an entry's hash (a run's audit_hash): 64 hexadecimal digits"
		   : NULL;
}

static const char *take_public_key(struct options *o, char *arg)
{
	o->args.public_key = arg;
	return *arg ? NULL : "a file";
}

enum {
	KEY_CONFIG = 256,
	KEY_SINCE,
	KEY_UNTIL,
	KEY_PROJECT,
	KEY_POLICY,
	KEY_DESTINATION,
	KEY_VERDICT,
	KEY_END,
	KEY_FORMAT,
	KEY_EXPECT,
	KEY_PUBLIC_KEY,
	KEY_CALLER,
};

static const struct value {
	const char *name;
	taker_fn *take;
	int key;
	enum given option;
} values[] = {
    {"json", take_json, 'j', OPT_JSON},
    {"limit", take_limit, 'n', OPT_LIMIT},
    {"since", take_since, KEY_SINCE, OPT_SINCE},
    {"until", take_until, KEY_UNTIL, OPT_UNTIL},
    {"project", take_project, KEY_PROJECT, OPT_PROJECT},
    {"policy", take_policy, KEY_POLICY, OPT_POLICY},
    {"caller", take_caller, KEY_CALLER, OPT_CALLER},
    {"destination", take_destination, KEY_DESTINATION, OPT_DESTINATION},
    {"verdict", take_verdict, KEY_VERDICT, OPT_VERDICT},
    {"end", take_end, KEY_END, OPT_END},
    {"format", take_format, KEY_FORMAT, OPT_FORMAT},
    {"output", take_output, 'o', OPT_OUTPUT},
    {"expect", take_expect, KEY_EXPECT, OPT_EXPECT},
    {"public-key", take_public_key, KEY_PUBLIC_KEY, OPT_PUBLIC_KEY},
};

static const struct argp_option table[] = {
    {"state-dir", 'd', "DIR", 0, "where the record is (default: what the configuration says, else /var/lib/weir)", 0},
    {"config", KEY_CONFIG, "FILE", 0,
     "the service's configuration, whose state directory is meant (default: " CONFIG_FILE_DEFAULT ", if it is there)", 0},
    {"json", 'j', NULL, 0, "ls, show, verify: print JSON", 0},
    {"limit", 'n', "N", 0, "ls, report: the newest N runs, 0 for all (ls: default 50)", 0},
    {NULL, 0, NULL, 0, "Which runs (ls, export; report takes the first three; verify the first):", 1},
    {"since", KEY_SINCE, "TIME", 0, "that began then or later: 2026-11-30T12:00:00Z, 2026-11-30, or ago: 2h, 3d", 1},
    {"until", KEY_UNTIL, "TIME", 0, "that began before", 1},
    {"project", KEY_PROJECT, "NAME", 0, "of this project", 1},
    {"policy", KEY_POLICY, "NAME", 0, "under the policy of this name", 1},
    {"caller", KEY_CALLER, "WHO", 0, "that this one asked for: token:ID, as `weir token ls` shows it, or uid:0,sudo:1000", 1},
    {"destination", KEY_DESTINATION, "WHERE", 0,
     "that tried to reach this address or DNS name; `*` at the end or the beginning stands for anything", 1},
    {"verdict", KEY_VERDICT, "VERDICT", 0, "with an attempt that was so judged: allowed, denied, would_deny; may be repeated",
     1},
    {"end", KEY_END, "END", 0, "that ended so: exit, signal, timeout, memory, output, cancelled, broken; may be repeated", 1},
    {NULL, 0, NULL, 0, "What comes out:", 2},
    {"format", KEY_FORMAT, "FORMAT", 0, "export: ndjson (default), or ocsf", 2},
    {"output", 'o', "FILE", 0, "export, report: write it there", 2},
    {NULL, 0, NULL, 0, "What it is checked against:", 3},
    {"expect", KEY_EXPECT, "HASH", 0, "verify: the record must have this entry: a run's audit_hash; may be repeated", 3},
    {"public-key", KEY_PUBLIC_KEY, "FILE", 0, "verify: the key that signed it (default: audit-key.pub of the state directory)",
     3},
    {0},
};

/* ---- arguments ---- */

static void take_command(struct options *o, const char *name, struct argp_state *state)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (strcmp(name, commands[i].name) == 0)
			o->command = &commands[i];
	if (!o->command)
		argp_error(state, "no command \"%s\": say ls, show ID, verify, export or report", name);
}

static void check(struct options *o, struct argp_state *state)
{
	const struct command *c = o->command;

	if (!c) {
		argp_error(state, "say ls, show ID, verify, export or report");
		return;
	}
	for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
		if (o->given & values[i].option & ~c->takes)
			argp_error(state, "%s takes no --%s", c->name, values[i].name);
	if (c->id == ID_MUST && !o->args.id)
		argp_error(state, "say which run to %s", c->name);
	if (c->fn == audit_report && !o->args.id && !(o->given & OPT_SINCE))
		argp_error(state, "say which run to report, or since when");
	if (o->args.id && (o->given & OPT_FILTERS))
		argp_error(state, "name a run, or which ones by options: not both");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'd':
		o->state_dir = arg;
		return 0;
	case KEY_CONFIG:
		o->config = arg;
		return 0;
	case ARGP_KEY_ARG:
		if (state->arg_num == 0)
			take_command(o, arg, state);
		else if (state->arg_num == 1 && o->command && o->command->id != ID_NEVER)
			o->args.id = arg;
		else
			argp_error(state, "too many arguments");
		return 0;
	case ARGP_KEY_END:
		check(o, state);
		return 0;
	}
	for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
		const char *expected;

		if (values[i].key != key)
			continue;
		expected = values[i].take(o, arg);
		if (expected)
			argp_error(state, "--%s takes %s", values[i].name, expected);
		o->given |= values[i].option;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

int audit_cmd(int argc, char **argv)
{
	static const struct argp argp = {
	    .options = table,
	    .parser = parse,
	    .args_doc = "ls\nshow ID\nverify\nexport\nreport [ID]",
	    .doc =
		"What runs did: lists them; shows one with every attempt to reach the network; checks that the record was not "
		"altered; gives it to other tools, or as a page to read."
		"\vExamples:\n  sudo weir audit ls --since 2h --verdict denied\n  sudo weir audit show sandbox-0md1l1bxo3blr\n"
		"  sudo weir audit verify\n  sudo weir audit report --since 7d -o week.html\n\n"
		"Exit status: 0; 1 for an unknown run or a record that can't be read; 64 for arguments that make no sense. "
		"verify: 0 nothing was found, 1 something was, 2 it could not be checked."};
	struct options o = {.args.limit = -1, .now_ns = clock_wall_ns()};
	_cleanup_free_ char *state_dir = NULL;
	struct err e;
	int r;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	r = config_state_dir(o.state_dir, o.config, &state_dir, &e);
	o.args.state_dir = state_dir;
	if (r == 0)
		r = o.command->fn(&o.args, &e);
	if ((r >= 0 || r == -EIO) && cli_flush(&e) < 0)
		r = -EIO;
	if (r < 0)
		fprintf(stderr, "weir audit: %s\n", e.msg);
	if (r < 0)
		return o.command && o.command->fn == audit_verify ? AUDIT_UNCHECKED : 1;
	return r;
}
