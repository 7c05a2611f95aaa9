/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/policy_cmd.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "blobs.h"
#include "cli/policy_export.h"
#include "core/cleanup.h"
#include "core/event.h"
#include "core/explain.h"
#include "core/image.h"
#include "core/limits.h"
#include "core/netset.h"
#include "core/policy.h"
#include "core/policy_diff.h"
#include "kernel/netenv.h"
#include "sysnames.h"

#define EXIT_DIFFERENT 1
#define EXIT_TROUBLE 2
#define EXIT_DENIED 3
#define WARNINGS_MAX 64
#define DIFF_PLACES 24 /* prefixes that one line of a diff names; --json has all */

struct options {
	char **args; /* FILEs, policies */
	size_t arg_count;
	const char *to, *format;
	const char **with;
	size_t with_count;
	struct cidr *hosts, *resolvers;
	size_t host_count, resolver_count;
	bool json, batch, all;
};

/* A policy with all that is made of it. */
struct subject {
	const char *name; /* as it was given */
	struct policy *policy;
	struct policy_image *image;
	size_t text_len;
};

static const char *colour(const char *code)
{
	static int on = -1;

	if (on < 0)
		on = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
	return on ? code : "";
}
#define GREEN colour("\033[32m")
#define RED colour("\033[31m")
#define YELLOW colour("\033[33m")
#define PLAIN colour("\033[0m")

/* Takes the object. */
static int print_json(json_t *json)
{
	int r = json ? json_dumpf(json, stdout, JSON_INDENT(2)) : -1;

	json_decref(json);
	if (putchar('\n') == EOF || r < 0) {
		fputs("weir policy: can't write the JSON\n", stderr);
		return -EIO;
	}
	return 0;
}

/* ---- reading ---- */

static int read_file(const char *path, char **ret, size_t *ret_len, struct err *e)
{
	_cleanup_free_ char *data = malloc(LIMIT_POLICY_BYTES + 1);
	_cleanup_fd_ int fd = -1;
	struct stat st;
	size_t n = 0;
	ssize_t got = 1;

	if (!data)
		return err_set(e, ENOMEM, "", "no memory");
	/* O_NONBLOCK: a FIFO without a writer must not hang us. */
	fd = !strcmp(path, "-") ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, errno, "", "can't open it");
	if (S_ISDIR(st.st_mode))
		return err_set(e, EISDIR, "", "is a directory");
	/* A pipe that somebody is still writing to is waited for. */
	if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) < 0)
		return err_errno(e, errno, "", "can't read it");
	while (got > 0 && n <= LIMIT_POLICY_BYTES) {
		got = read(fd, data + n, LIMIT_POLICY_BYTES + 1 - n);
		if (got < 0 && errno != EINTR)
			return err_errno(e, errno, "", "can't read it");
		n += got > 0 ? (size_t)got : 0;
		got = got < 0 ? 1 : got;
	}
	*ret = TAKE_PTR(data);
	*ret_len = n;
	return 0;
}

/* Errors have a place in the document in `where`, or nothing. */
static int load_policy(const char *name, struct subject *ret, struct err *e)
{
	_cleanup_free_ char *data = NULL;
	struct subject s = {.name = name};
	struct blob shipped;
	int rc;

	if (blob_policy(name, &shipped)) {
		s.text_len = shipped.len;
		rc = policy_parse(shipped.data, shipped.len, &s.policy, e);
	} else {
		rc = read_file(name, &data, &s.text_len, e);
		if (rc == 0)
			rc = policy_parse(data, s.text_len, &s.policy, e);
	}
	if (rc == 0)
		rc = sysnames_check(s.policy, e);
	if (rc < 0) {
		policy_free(s.policy);
		return rc;
	}
	*ret = s;
	return 0;
}

static void subject_clear(struct subject *s)
{
	s->policy = policy_free(s->policy);
	s->image = image_free(s->image);
}

static int load(const char *name, const struct policy_env *env, struct subject *ret, struct err *e)
{
	struct subject s;
	int rc = load_policy(name, &s, e);

	if (rc < 0)
		return rc;
	rc = image_compile(s.policy, env, &s.image, e);
	if (rc < 0)
		subject_clear(&s);
	else
		*ret = s;
	return rc;
}

/* This host's addresses and name servers, but for what the command line says they are. */
static int load_env(const struct options *o, struct netenv *net, struct policy_env *ret, struct err *e)
{
	int rc = o->host_count && o->resolver_count ? 0 : netenv_read(net, NULL, e);

	if (rc < 0)
		return rc;
	*ret = net->env;
	if (o->host_count) {
		ret->hosts = o->hosts;
		ret->host_count = o->host_count;
	}
	if (o->resolver_count) {
		ret->resolvers = o->resolvers;
		ret->resolver_count = o->resolver_count;
	}
	return 0;
}

/* "FILE:3:7: text", "FILE:/rules/0: text" or "FILE: text". */
static void complain(const char *name, const char *kind, const char *where, const char *text)
{
	fprintf(stderr, "%s%s%s: %s%s\n", name, where[0] ? ":" : "", where, kind, text);
}

/* ---- check ---- */

static json_t *place_json(const char *where, const char *text)
{
	/* What an error quotes of a document is UTF-8 that was cut somewhere, perhaps within a character. */
	json_t *message = json_string(text);
	char safe[1100];

	if (!message) {
		event_safe_text(safe, sizeof safe, text, strlen(text));
		message = json_string(safe);
	}
	return json_pack("{s:s, s:o}", "where", where, "message", message);
}

static json_t *warnings_json(const struct policy_warning *warnings, size_t count)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, place_json(warnings[i].where, warnings[i].text));
	return list;
}

static json_t *checked_json(const struct subject *s, size_t bytes, const struct policy_warning *warnings, size_t count)
{
	return json_pack("{s:s, s:b, s:s, s:i, s:i, s:i, s:o}", "file", s->name, "ok", 1, "name", s->policy->name, "rules",
			 (int)s->policy->rule_count, "prefixes", (int)s->image->prefix_count, "image_bytes", (int)bytes,
			 "warnings", warnings_json(warnings, count));
}

static size_t image_bytes(const struct policy_image *img)
{
	return sizeof img->head + img->prefix_count * (sizeof *img->prefixes + sizeof *img->list_of) +
	       img->list_count * sizeof *img->lists;
}

static bool check_one(const char *name, const struct policy_env *env, json_t *results)
{
	struct policy_warning warnings[WARNINGS_MAX];
	struct subject s;
	struct err e;
	size_t count, shown, bytes;

	if (load(name, env, &s, &e) < 0) {
		if (results)
			json_array_append_new(
			    results, json_pack("{s:s, s:b, s:o}", "file", name, "ok", 0, "error", place_json(e.where, e.msg)));
		else
			complain(name, "", e.where, e.msg);
		return false;
	}
	bytes = image_bytes(s.image);
	count = policy_warnings(s.policy, env, warnings, WARNINGS_MAX);
	shown = count < WARNINGS_MAX ? count : WARNINGS_MAX;
	if (results) {
		json_array_append_new(results, checked_json(&s, bytes, warnings, shown));
	} else {
		printf("%s: %sok%s, %zu rules, %zu prefixes, image %zu bytes\n", name, GREEN, PLAIN, s.policy->rule_count,
		       s.image->prefix_count, bytes);
		fflush(stdout);
		for (size_t i = 0; i < shown; i++)
			complain(name, "warning: ", warnings[i].where, warnings[i].text);
		if (shown < count)
			fprintf(stderr, "%s: %zu more warnings\n", name, count - shown);
	}
	subject_clear(&s);
	return true;
}

static int check(const struct options *o)
{
	struct policy_env env;
	struct netenv net = {0};
	json_t *results = o->json ? json_array() : NULL;
	struct err e;
	bool ok = true;

	if (load_env(o, &net, &env, &e) < 0) {
		fprintf(stderr, "weir policy check: %s\n", e.msg);
		json_decref(results);
		return 1;
	}
	for (size_t i = 0; i < o->arg_count; i++)
		ok &= check_one(o->args[i], &env, results);
	netenv_clear(&net);
	if (results && print_json(results) < 0)
		return 1;
	return ok ? 0 : 1;
}

/* ---- explain ---- */

static int apply_with(struct explain_to *to, const char *const *words, size_t count, struct err *e)
{
	int rc = 0;

	for (size_t i = 0; i < count && rc == 0; i++)
		rc = explain_parse_with(words[i], to, e);
	return rc;
}

static int explain_one(const struct options *o, const struct subject *s, const struct policy_env *env, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	struct explain_to to;
	struct explanation x;
	size_t word;
	int rc = explain_parse_to(o->to, &to, e);

	if (rc < 0)
		return err_wrap(e, "--to");
	rc = apply_with(&to, o->with, o->with_count, e);
	if (rc < 0)
		return err_wrap(e, "--with");
	explain(s->policy, s->image, env, &to, &x);
	if (o->json) {
		rc = print_json(explain_json(&x));
		return rc < 0 ? err_set(e, EIO, "", "no answer") : explain_is_refused(&x) ? EXIT_DENIED : 0;
	}
	text = explain_text(&x);
	if (!text)
		return err_set(e, ENOMEM, "", "no memory");
	word = strcspn(text, " ");
	printf("%s%.*s%s%s",
	       !explain_is_refused(&x)	      ? GREEN
	       : x.verdict == WEIR_WOULD_DENY ? YELLOW
					      : RED,
	       (int)word, text, PLAIN, text + word);
	return explain_is_refused(&x) ? EXIT_DENIED : 0;
}

/* One line of a batch: a destination and words as for --with. Cuts the line up. */
static int parse_line(char *line, struct explain_to *ret, struct err *e)
{
	char *rest, *word = strtok_r(line, " \t\r\n", &rest);
	int rc = word ? explain_parse_to(word, ret, e) : err_set(e, EINVAL, "", "an empty line");

	while (rc == 0 && (word = strtok_r(NULL, " \t\r\n", &rest)))
		rc = explain_parse_with(word, ret, e);
	return rc;
}

static int explain_batch(const struct subject *s, const struct policy_env *env, struct err *e)
{
	_cleanup_free_ char *line = NULL;
	size_t room = 0;
	int status = 0;

	while (getline(&line, &room, stdin) >= 0) {
		struct explain_to to;
		struct explanation x;
		const char *rule;

		if (parse_line(line, &to, e) < 0) {
			printf("error\t%s\t-\t-\n", e->msg);
			status = EXIT_TROUBLE;
			continue;
		}
		explain(s->policy, s->image, env, &to, &x);
		rule = explain_rule_name(&x);
		printf("%s\t%s\t%s\t%s\n", event_verdict_names[x.verdict], event_reason_names[x.reason], rule ? rule : "-",
		       explain_kind(&x) ? event_via_names[explain_kind(&x)] : "-");
	}
	if (ferror(stdin) || fflush(stdout) != 0)
		return err_errno(e, errno, "", "can't read or write on");
	return status;
}

static int explain_policy(const struct options *o)
{
	struct policy_env env;
	struct netenv net = {0};
	struct subject s = {0};
	struct err e = {0};
	int rc = load_env(o, &net, &env, &e);

	if (rc < 0) {
		fprintf(stderr, "weir policy explain: %s\n", e.msg);
		return EXIT_TROUBLE;
	}
	rc = load(o->args[0], &env, &s, &e);
	if (rc < 0) {
		complain(o->args[0], "", e.where, e.msg);
	} else {
		rc = o->batch ? explain_batch(&s, &env, &e) : explain_one(o, &s, &env, &e);
		if (rc < 0)
			fprintf(stderr, "weir policy explain: %s\n", e.msg);
	}
	subject_clear(&s);
	netenv_clear(&net);
	return rc < 0 ? EXIT_TROUBLE : rc;
}

/* ---- diff ---- */

static int print_diff(const struct options *o, const struct policy_diff *d)
{
	_cleanup_free_ char *text = NULL;

	if (o->json)
		return print_json(policy_diff_json(d));
	text = policy_diff_text(d, o->all ? 0 : DIFF_PLACES);
	if (!text)
		return -ENOMEM;
	for (char *line = text, *end; *line; line = end) {
		const char *mark = !strncmp(line, "becomes reachable", 17)     ? GREEN
				   : !strncmp(line, "becomes unreachable", 19) ? RED
									       : "";

		end = strchrnul(line, '\n');
		end += *end == '\n';
		printf("%s%.*s%s\n", mark, (int)(end - line - (end[-1] == '\n')), line, *mark ? PLAIN : "");
	}
	return 0;
}

static int diff_subjects(const struct options *o, const struct subject s[2])
{
	struct policy_side old = {s[0].policy, s[0].image}, new = {s[1].policy, s[1].image};
	struct policy_diff *d = NULL;
	struct err e;
	int status;

	if (policy_diff(&old, &new, &d, &e) < 0) {
		fprintf(stderr, "weir policy diff: %s\n", e.msg);
		return EXIT_TROUBLE;
	}
	status = policy_diff_empty(d) ? 0 : EXIT_DIFFERENT;
	if (print_diff(o, d) < 0)
		status = EXIT_TROUBLE;
	policy_diff_free(d);
	return status;
}

static int diff(const struct options *o)
{
	struct policy_env env;
	struct netenv net = {0};
	struct subject s[2] = {{0}, {0}};
	struct err e;
	int status = 0;

	if (load_env(o, &net, &env, &e) < 0) {
		fprintf(stderr, "weir policy diff: %s\n", e.msg);
		return EXIT_TROUBLE;
	}
	for (int i = 0; i < 2; i++)
		if (load(o->args[i], &env, &s[i], &e) < 0) {
			complain(o->args[i], "", e.where, e.msg);
			status = EXIT_TROUBLE;
		}
	if (status == 0)
		status = diff_subjects(o, s);
	subject_clear(&s[0]);
	subject_clear(&s[1]);
	netenv_clear(&net);
	return status;
}

/* ---- sets ---- */

static json_t *set_rows_json(enum netset set, const struct policy_env *env)
{
	json_t *rows = json_array();
	const struct cidr *list = set == NETSET_HOST ? env->hosts : env->resolvers;
	size_t count = set == NETSET_HOST ? env->host_count : env->resolver_count;

	for (size_t i = 0; i < netset_row_count; i++)
		if (netset_rows[i].set == set)
			json_array_append_new(rows, json_pack("{s:s, s:s, s:s}", "prefix", netset_rows[i].prefix, "what",
							      netset_rows[i].what, "source", netset_rows[i].source));
	for (size_t i = 0; i < count && netset_info[set].dynamic; i++) {
		char text[CIDR_TEXT_MAX];

		cidr_text(text, &list[i], false);
		json_array_append_new(rows, json_pack("{s:s}", "prefix", text));
	}
	return rows;
}

static void print_set(enum netset set, const struct policy_env *env)
{
	json_t *rows = set_rows_json(set, env), *row;
	size_t i;

	printf("%s: %s\n", netset_info[set].name, netset_info[set].help);
	json_array_foreach(rows, i, row)
	{
		const char *what = json_string_value(json_object_get(row, "what"));

		printf("  %-24s", json_string_value(json_object_get(row, "prefix")));
		if (what)
			printf(" %s (%s)", what, json_string_value(json_object_get(row, "source")));
		putchar('\n');
	}
	json_decref(rows);
}

static int sets(const struct options *o)
{
	json_t *all = o->json ? json_object() : NULL;
	struct policy_env env;
	struct netenv net = {0};
	struct err e;
	int rc = 0;

	if (load_env(o, &net, &env, &e) < 0) {
		fprintf(stderr, "weir policy sets: %s\n", e.msg);
		json_decref(all);
		return 1;
	}
	for (enum netset set = 0; set < NETSETS; set++)
		if (all)
			json_object_set_new(all, netset_info[set].name,
					    json_pack("{s:s, s:b, s:o}", "help", netset_info[set].help, "dynamic",
						      netset_info[set].dynamic, "rows", set_rows_json(set, &env)));
		else
			print_set(set, &env);
	if (all)
		rc = print_json(all);
	netenv_clear(&net);
	return rc < 0 ? 1 : 0;
}

/* ---- export ---- */

static int export(const struct options *o)
{
	const char *name = o->arg_count ? o->args[0] : "-";
	struct subject s = {0};
	struct err e;
	int status;

	if (load_policy(name, &s, &e) < 0) {
		complain(name, "", e.where, e.msg);
		return 1;
	}
	status = policy_export(name, s.policy, o->format);
	subject_clear(&s);
	return status;
}

/* ---- arguments ---- */

enum { KEY_TO = 256, KEY_HOST, KEY_RESOLVER, KEY_JSON, KEY_BATCH, KEY_WITH, KEY_ALL, KEY_FORMAT };

#define OPTION_JSON                                                                                                            \
	{                                                                                                                      \
		"json", KEY_JSON, NULL, 0, "print JSON", 0                                                                     \
	}
#define OPTION_HOST                                                                                                            \
	{                                                                                                                      \
		"host", KEY_HOST, "ADDR", 0, "what @host stands for, instead of this host's addresses; may be repeated", 0     \
	}
#define OPTION_RESOLVER                                                                                                        \
	{                                                                                                                      \
		"resolver", KEY_RESOLVER, "ADDR", 0,                                                                           \
		    "what @resolver stands for, instead of /etc/resolv.conf; may be repeated", 0                               \
	}

static const struct argp_option check_options[] = {OPTION_JSON, OPTION_HOST, OPTION_RESOLVER, {0}};
static const struct argp_option explain_options[] = {
    {"to", KEY_TO, "DESTINATION", 0, "PROTOCOL://ADDRESS[:PORT], IPv6 in brackets: tcp://192.0.2.1:443, icmpv6://[2001:db8::1]",
     0},
    {"with", KEY_WITH, "WORD", 0,
     "what else is so: ipv4_options, routing_header, fragment (a later one, without a port), packet (as on the wire, not as a "
     "call "
     "names it); may be repeated",
     0},
    {"batch", KEY_BATCH, NULL, 0,
     "read destinations from stdin, one a line, each with words as for --with behind it; print verdict, reason, rule and kind "
     "of "
     "decoding, tabs between",
     0},
    OPTION_JSON,
    OPTION_HOST,
    OPTION_RESOLVER,
    {0}};
static const struct argp_option diff_options[] = {
    OPTION_JSON, {"all", KEY_ALL, NULL, 0, "name every prefix in the text, too", 0}, OPTION_HOST, OPTION_RESOLVER, {0}};
static const struct argp_option export_options[] = {
    {"format", KEY_FORMAT, "FORMAT", 0, "oci-seccomp: a seccomp profile, as Docker, Podman and Kubernetes take it", 0}, {0}};
static const struct argp_option sets_options[] = {OPTION_JSON, OPTION_HOST, OPTION_RESOLVER, {0}};

static error_t parse(int key, char *arg, struct argp_state *state);

static const struct command {
	const char *name;
	int (*fn)(const struct options *o);
	size_t args_min, args_max;
	const char *help;
	struct argp argp;
} commands[] = {
    {"check",
     check,
     1,
     SIZE_MAX,
     "is it a policy, and does it do what it says?",
     {.options = check_options,
      .parser = parse,
      .args_doc = "FILE...",
      .doc = "Says whether each FILE is a policy, and warns of what it says and cannot do. FILE may be the name of a shipped "
	     "policy, or - "
	     "for stdin."
	     "\vExit status: 0 when all are policies, warnings or not; 1 when one is not.\n\n"
	     "  weir policy check my.json\n"
	     "  weir policy check --json tool-call mine.json"}},
    {"explain",
     explain_policy,
     1,
     1,
     "what does it do to a destination, and why?",
     {.options = explain_options,
      .parser = parse,
      .args_doc = "POLICY --to DESTINATION\nPOLICY --batch",
      .doc = "Says what POLICY (a file, or the name of a shipped policy) does to a destination: by the same lines of code that "
	     "judge in "
	     "the kernel."
	     "\vExit status: 0 allowed; 3 denied, or would be if the policy did not only watch; 2 for an error.\n\n"
	     "  weir policy explain tool-call --to tcp://169.254.169.254:80\n"
	     "  weir policy explain tool-call --to 'udp://[64:ff9b::a00:1]:53'\n"
	     "  weir policy explain my.json --to udp://10.0.0.53:53 --resolver 10.0.0.53"}},
    {"diff",
     diff,
     2,
     2,
     "what becomes reachable, what unreachable?",
     {.options = diff_options,
      .parser = parse,
      .args_doc = "OLD NEW",
      .doc = "Says in words what changes when NEW takes the place of OLD: exactly, over all addresses, protocols and ports. "
	     "Names and "
	     "descriptions don't count."
	     "\vExit status: 0 when nothing changes; 1 when something does; 2 for an error.\n\n"
	     "  weir policy diff tool-call my.json"}},
    {"export",
     export,
     0,
     1,
     "the same in the words of another program",
     {.options = export_options,
      .parser = parse,
      .args_doc = "--format FORMAT [POLICY]",
      .doc =
	  "Writes what POLICY (a file, the name of a shipped policy, or without one what stdin has) says of sockets, listening "
	  "and system calls as a seccomp profile. It goes on top of a container that a policy is put on with weir attach: "
	  "there a filter can only come from the runtime. What a profile can't say is told on stderr."
	  "\vExit status: 0, or 1 for an error.\n\n"
	  "  weir policy export --format oci-seccomp tool-call > tool-call.seccomp.json\n"
	  "  podman run --security-opt seccomp=tool-call.seccomp.json ..."}},
    {"sets",
     sets,
     0,
     0,
     "what the named sets hold, with a source for each row",
     {.options = sets_options,
      .parser = parse,
      .doc = "Prints every named set: its prefixes, what they are, and who says so."}},
};
#define COMMANDS (sizeof commands / sizeof *commands)

static const struct command *current;

static void add_address(struct argp_state *state, const char *arg, struct cidr **list, size_t *count)
{
	struct cidr *more = reallocarray(*list, *count + 1, sizeof *more);
	struct err e;

	if (!more)
		argp_failure(state, EX_OSERR, ENOMEM, "%s", arg);
	else if (cidr_parse_addr(arg, strlen(arg), &more[*count], &e) < 0)
		argp_error(state, "%s: %s", arg, e.msg);
	else
		++*count;
	if (more)
		*list = more;
}

static void add_word(struct argp_state *state, const char *arg, const char ***list, size_t *count)
{
	const char **more = reallocarray(*list, *count + 1, sizeof *more);

	if (!more) {
		argp_failure(state, EX_OSERR, ENOMEM, "%s", arg);
		return;
	}
	*list = more;
	more[(*count)++] = arg;
}

static void check_arguments(struct argp_state *state, const struct options *o)
{
	if (o->arg_count < current->args_min)
		argp_error(state, current->args_min == 1 ? "say which policy" : "say which policies");
	if (current->fn == explain_policy && !o->to == !o->batch)
		argp_error(state, o->to ? "--to or --batch, not both" : "say where to: --to DESTINATION, or --batch");
	if (current->fn == export && (!o->format || !policy_export_knows(o->format)))
		argp_error(state,
			   o->format ? "no format \"%s\": there is oci-seccomp" : "say which format: --format oci-seccomp",
			   o->format);
	if (current->fn == export && !o->arg_count && isatty(STDIN_FILENO))
		argp_error(state, "say which policy");
	if (o->batch && (o->json || o->with_count))
		argp_error(state, "--batch goes with neither --json nor --with");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case KEY_TO:
		o->to = arg;
		return 0;
	case KEY_WITH:
		add_word(state, arg, &o->with, &o->with_count);
		return 0;
	case KEY_BATCH:
		o->batch = true;
		return 0;
	case KEY_JSON:
		o->json = true;
		return 0;
	case KEY_ALL:
		o->all = true;
		return 0;
	case KEY_FORMAT:
		o->format = arg;
		return 0;
	case KEY_HOST:
		add_address(state, arg, &o->hosts, &o->host_count);
		return 0;
	case KEY_RESOLVER:
		add_address(state, arg, &o->resolvers, &o->resolver_count);
		return 0;
	case ARGP_KEY_ARG:
		if (state->arg_num >= current->args_max)
			argp_error(state, "too many arguments: %s", arg);
		add_word(state, arg, (const char ***)&o->args, &o->arg_count);
		return 0;
	case ARGP_KEY_END:
		check_arguments(state, o);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void usage(FILE *to)
{
	fputs("usage: weir policy COMMAND [OPTION…] POLICY…\n\nA policy is a JSON file, or one of the shipped ones:", to);
	for (const char *const *name = blob_policy_names; *name; name++)
		fprintf(to, " %s", *name);
	fputs(".\n\n", to);
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].help);
	fputs("\nNamed sets that a rule's \"to\" can use:\n\n", to);
	for (size_t i = 0; i < NETSETS; i++)
		fprintf(to, "  %-17s %s\n", netset_info[i].name, netset_info[i].help);
	fputs("\nexamples:\n"
	      "  weir policy check my.json\n"
	      "  weir policy explain tool-call --to tcp://169.254.169.254:80\n"
	      "  weir policy diff tool-call my.json\n"
	      "  weir policy export --format oci-seccomp tool-call\n\n"
	      "`weir policy COMMAND --help` says more.\n",
	      to);
}

int policy_cmd(int argc, char **argv)
{
	static char name[64];
	struct options o = {0};
	int status = EX_USAGE;

	if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		usage(argc < 2 ? stderr : stdout);
		return argc < 2 ? EX_USAGE : 0;
	}
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(argv[1], commands[i].name))
			current = &commands[i];
	if (!current) {
		fprintf(stderr, "weir policy: no command \"%s\"\n\n", argv[1]);
		usage(stderr);
		return EX_USAGE;
	}
	snprintf(name, sizeof name, "weir policy %s", current->name);
	argv[1] = name;
	argp_parse(&current->argp, argc - 1, argv + 1, 0, NULL, &o);
	status = current->fn(&o);
	/* A full disk or a closed pipe: what was to be said was not. */
	if (fflush(stdout) != 0) {
		fprintf(stderr, "weir policy: can't write: %s\n", strerror(errno));
		status = current->fn == check || current->fn == sets || current->fn == export ? 1 : EXIT_TROUBLE;
	}
	free(o.args);
	free(o.with);
	free(o.hosts);
	free(o.resolvers);
	return status;
}
