/* SPDX-License-Identifier: Apache-2.0 */
/* `weir token mint | ls | revoke`: the table of tokens of a state directory, with a service running on it or not. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/config_load.h"
#include "cli/launch.h"
#include "cli/token_mint.h"
#include "cli/token_show.h"
#include "cli/tokenfile.h"
#include "core/cleanup.h"
#include "registry/store.h"

enum { KEY_PROJECT = 256, KEY_SCOPE, KEY_AGENT, KEY_EXPIRES, KEY_NOTE, KEY_STATE, KEY_CONFIG, KEY_JSON };
#define GIVEN(key) (1u << ((key)-KEY_PROJECT))

struct options {
	const struct command *command;
	const char *project, *agent, *note, *state_dir, *config;
	const char *expires_text;
	int64_t now_s, expires_s;
	unsigned scopes, given;
	bool json;
	char **ids;
	size_t id_count;
};

/* ---- mint ---- */

static int show_minted(const struct token_slot *slot, const char *text, const struct options *o, struct err *e)
{
	if (o->json) {
		json_t *j = token_json(slot);

		json_object_set_new(j, "token", json_string(text));
		return token_print_json(j, e);
	}
	if (puts(text) == EOF || fflush(stdout) == EOF)
		return err_set(e, EIO, "", "can't write to standard output");
	fprintf(stderr, "weir: %s: project %s, scope %s%s%s, expires %s%s. The token is shown this once.\n", slot->id,
		slot->project, token_scopes_text((char[TOKEN_SCOPES_LEN]){0}, slot->scopes), slot->agent[0] ? ", agent " : "",
		slot->agent, token_time_text((char[TOKEN_TIME_LEN]){0}, slot->expires_s),
		o->expires_text ? "" : " (--expires 30d makes it expire)");
	return 0;
}

static int mint_into(struct tokenfile *t, const struct options *o, struct err *e)
{
	const struct token_wish wish = {.scopes = o->scopes,
					.project = o->project,
					.agent = o->agent,
					.note = o->note,
					.now_s = o->now_s,
					.expires_s = o->expires_s};
	char text[TOKEN_MINTED_LEN];
	int index = token_mint(t, &wish, text, e), rc;

	if (index < 0)
		return index;
	rc = show_minted(&t->file->slots[index], text, o, e);
	if (rc < 0)
		token_unmint(t, index, o->now_s);
	explicit_bzero(text, sizeof text);
	return rc;
}

/* The token is good and the agent may come later; a name that is misspelt is seen here first. */
static void say_if_unknown(int dir_fd, const struct options *o)
{
	struct agent_table t = {NULL, 0};
	struct err e = {0};

	if (registry_load_agents(dir_fd, &t, NULL, &e) < 0)
		fprintf(stderr, "weir: %s\n", e.msg);
	else if (!agent_table_find(&t, o->project, o->agent))
		fprintf(stderr,
			"weir: project %s has no agent %s yet: its calls are refused until `weir agent add` makes it known\n",
			o->project, o->agent);
	agent_table_clear(&t);
}

static int do_mint(const struct options *o, const char *dir, struct err *e)
{
	struct tokenfile t = {NULL, NULL, -1};
	_cleanup_fd_ int fd = -1;
	int rc = launch_state_dir(dir, &fd, e);

	if (rc == 0)
		rc = tokenfile_open(fd, dir, TOKENFILE_CHANGE, &t, e);
	if (rc == 0)
		rc = mint_into(&t, o, e);
	tokenfile_close(&t);
	if (rc == 0 && o->agent)
		say_if_unknown(fd, o);
	return rc;
}

/* ---- ls ---- */

/* A directory or table that is not there holds no tokens. */
static int open_existing(const char *dir, enum tokenfile_access access, struct tokenfile *ret, struct err *e)
{
	_cleanup_fd_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct err e2 = {0};
	int rc;

	if (fd < 0)
		return errno == ENOENT ? 0 : err_errno(e, errno, "--state-dir", "open %s", dir);
	rc = tokenfile_open(fd, dir, access, ret, &e2);
	if (rc == -ENOENT)
		return 0;
	if (rc < 0)
		*e = e2;
	return rc;
}

static int do_ls(const struct options *o, const char *dir, struct err *e)
{
	struct tokenfile t = {NULL, NULL, -1};
	int rc = open_existing(dir, TOKENFILE_LIST, &t, e);

	if (rc == 0)
		rc = token_list(&t, dir, o->project, o->now_s, o->json, e);
	tokenfile_close(&t);
	return rc;
}

/* ---- revoke ---- */

static int by_text(const struct tokens_file *f, const char *text)
{
	uint8_t sha256[TOKEN_DIGEST_LEN];

	token_digest(text, strlen(text), sha256);
	for (unsigned i = 0; i < tokens_count(f); i++)
		if (token_slot_state(&f->slots[i]) != TOKEN_FREE && !memcmp(f->slots[i].sha256, sha256, sizeof sha256))
			return (int)i;
	return -ENOENT;
}

/*
 * By id, or by the token itself: that is what somebody has in hand who has found it where it should not be. It must not get
 * into a terminal or a log a second time, so what does not look like an id is not repeated.
 */
static int find_token(const struct tokens_file *f, const char *arg)
{
	int index = f ? tokens_by_id(f, arg) : -ENOENT;

	return f && index < 0 ? by_text(f, arg) : index;
}

static void say_unknown(const char *arg, const char *dir)
{
	const bool usual = !strcmp(dir, DEFAULT_STATE_DIR);

	if (!strncmp(arg, "tok-", 4) && strlen(arg) < TOKEN_ID_MAX)
		fprintf(stderr, "weir token: no token \"%s\" in %s; `weir token ls%s%s` lists them\n", arg, dir,
			usual ? "" : " --state-dir ", usual ? "" : dir);
	else
		fprintf(stderr,
			"weir token: one of these is neither an ID (tok-...) nor a token of %s: revoke wants an ID from `weir "
			"token ls%s%s`\n",
			dir, usual ? "" : " --state-dir ", usual ? "" : dir);
}

/* All that are known, whatever else stands beside them: who revokes is in a hurry. Says itself what is unknown. */
static int revoke_all(struct tokenfile *t, const struct options *o, const char *dir, struct err *e)
{
	bool unknown = false;
	int rc;

	for (size_t i = 0; i < o->id_count; i++) {
		int index = find_token(t->file, o->ids[i]);
		bool before = index >= 0 && token_slot_state(&t->file->slots[index]) == TOKEN_REVOKED;

		if (index < 0) {
			say_unknown(o->ids[i], dir);
			unknown = true;
			continue;
		}
		if (!before)
			tokens_revoke(t->file, index, o->now_s);
		printf("%.*s (project %s) %s\n", TOKEN_ID_MAX, t->file->slots[index].id, t->file->slots[index].project,
		       before ? "was revoked before" : "is revoked");
	}
	rc = t->file ? tokenfile_sync(t, e) : 0;
	return rc == 0 && unknown ? -ENOENT : rc;
}

static int do_revoke(const struct options *o, const char *dir, struct err *e)
{
	struct tokenfile t = {NULL, NULL, -1};
	int rc = open_existing(dir, TOKENFILE_CHANGE, &t, e);

	if (rc == 0)
		rc = revoke_all(&t, o, dir, e);
	tokenfile_close(&t);
	return rc;
}

/* ---- arguments ---- */

#define EVERYWHERE (GIVEN(KEY_STATE) | GIVEN(KEY_CONFIG))
static const struct command {
	const char *name;
	unsigned options; /* GIVEN() of those it takes */
	int (*run)(const struct options *o, const char *dir, struct err *e);
} commands[] = {
    {"mint",
     EVERYWHERE | GIVEN(KEY_PROJECT) | GIVEN(KEY_SCOPE) | GIVEN(KEY_AGENT) | GIVEN(KEY_EXPIRES) | GIVEN(KEY_NOTE) |
	 GIVEN(KEY_JSON),
     do_mint},
    {"ls", EVERYWHERE | GIVEN(KEY_PROJECT) | GIVEN(KEY_JSON), do_ls},
    {"revoke", EVERYWHERE, do_revoke},
};

static const struct argp_option option_table[] = {
    {"project", KEY_PROJECT, "P", 0, "mint: the project the token is for; ls: only that project's", 0},
    {"scope", KEY_SCOPE, "S", 0, "mint: project, agent, operator or reviewer; may be repeated (default: project)", 0},
    {"agent", KEY_AGENT, "NAME", 0, "mint: with --scope agent, the agent", 0},
    {"expires", KEY_EXPIRES, "WHEN", 0,
     "mint: 45s, 90m, 12h, 30d, a day like 2027-01-31 (its beginning, UTC), or never (default)", 0},
    {"note", KEY_NOTE, "TEXT", 0, "mint: your own words, for ls", 0},
    {"json", KEY_JSON, 0, 0, "mint, ls: print JSON", 0},
    {"state-dir", KEY_STATE, "DIR", 0,
     "the service's state directory (default: the configuration's, else " DEFAULT_STATE_DIR ")", 0},
    {"config", KEY_CONFIG, "FILE", 0, "the service's configuration (default: " CONFIG_FILE_DEFAULT ", if it is there)", 0},
    {0},
};

static const char doc[] =
    "Mint, list and revoke the tokens that clients of a service send. Changes count from a running service's next request on."
    "\vExamples:\n"
    "  TOKEN=$(sudo weir token mint --project demo)\n"
    "  sudo weir token mint --project demo --scope operator --expires 30d --note 'dashboard'\n"
    "  sudo weir token ls\n"
    "  sudo weir token revoke tok-x3k9q2ab\n\n"
    "mint prints the token alone to standard output, once: only its SHA-256 is kept. Exit status: 0; 1 for an unknown ID, a "
    "full "
    "table, or one that can't be read or written; 64 for arguments that make no sense.";

static void add_scope(struct options *o, const char *text, const struct argp_state *state)
{
	for (size_t i = 0; i < TOKEN_SCOPES; i++)
		if (!strcmp(text, token_scope_names[i].name)) {
			o->scopes |= token_scope_names[i].bit;
			return;
		}
	argp_error(state, "--scope: \"%s\" is none of project, agent, operator, reviewer", text);
}

static void set_expiry(struct options *o, const char *text, const struct argp_state *state)
{
	int rc = token_expiry_parse(text, o->now_s, &o->expires_s);

	if (rc == -ERANGE)
		argp_error(state, "--expires: \"%s\" is not between now and a hundred years from now", text);
	else if (rc < 0)
		argp_error(state, "--expires: \"%s\" is not a time from now (45s, 90m, 12h, 30d), a day (2027-01-31) or never",
			   text);
	o->expires_text = text;
}

static void check_mint(struct options *o, const struct argp_state *state)
{
	if (!o->project)
		argp_error(state, "mint: say which project the token is for: --project NAME");
	if (o->project && token_project_reserved(o->project))
		argp_error(
		    state,
		    "--project: \"%s\" is a name under which this host's own records are kept, for reviewers alone: take "
		    "another",
		    o->project);
	if (o->scopes & SCOPE_AGENT && !o->agent)
		argp_error(state, "--scope agent: say which agent: --agent NAME");
	if (o->agent && !(o->scopes & SCOPE_AGENT))
		argp_error(state, "--agent: only with --scope agent");
	if (!o->scopes)
		o->scopes = SCOPE_PROJECT;
	/* An agent's token is its project's too, and names the agent besides. */
	if (o->scopes & SCOPE_AGENT)
		o->scopes |= SCOPE_PROJECT;
}

static void check(struct options *o, const struct argp_state *state)
{
	if (!o->command) {
		argp_error(state, "say mint, ls or revoke ID");
		return;
	}
	for (int i = 0; option_table[i].name; i++)
		if (o->given & GIVEN(option_table[i].key) & ~o->command->options)
			argp_error(state, "%s does not take --%s", o->command->name, option_table[i].name);
	if (o->command->run == do_mint)
		check_mint(o, state);
	if (o->command->run == do_revoke && !o->id_count)
		argp_error(state, "revoke: say which: ID…; `weir token ls` lists them");
}

static const char *name_option(const char *text, const char *option, const struct argp_state *state)
{
	if (!token_project_ok(text))
		argp_error(state, "%s: \"%s\" is not a name: a-z, 0-9 and -, not - first, at most %d characters", option, text,
			   TOKEN_PROJECT_MAX - 1);
	return text;
}

/* For messages: a token that stands in the wrong place is not repeated. */
static const char *unless_secret(const char *arg)
{
	return strncmp(arg, TOKEN_PREFIX, strlen(TOKEN_PREFIX)) != 0 ? arg : TOKEN_PREFIX "...";
}

static error_t parse_arg(struct options *o, char *arg, struct argp_state *state)
{
	if (o->command && o->command->run == do_revoke) {
		o->ids[o->id_count++] = arg;
		return 0;
	}
	if (o->command)
		argp_error(state, "%s takes no argument \"%s\"", o->command->name, unless_secret(arg));
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
		if (!strcmp(arg, commands[i].name))
			o->command = &commands[i];
	if (!o->command)
		argp_error(state, "\"%s\" is none of mint, ls, revoke", unless_secret(arg));
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	if (key >= KEY_PROJECT && key <= KEY_JSON)
		o->given |= GIVEN(key);
	switch (key) {
	case KEY_PROJECT:
		o->project = name_option(arg, "--project", state);
		break;
	case KEY_SCOPE:
		add_scope(o, arg, state);
		break;
	case KEY_AGENT:
		o->agent = name_option(arg, "--agent", state);
		break;
	case KEY_EXPIRES:
		set_expiry(o, arg, state);
		break;
	case KEY_NOTE:
		if (!token_note_ok(arg))
			argp_error(state, "--note: at most %d bytes of UTF-8 without control characters", TOKEN_NOTE_MAX - 1);
		o->note = arg;
		break;
	case KEY_STATE:
		o->state_dir = arg;
		break;
	case KEY_CONFIG:
		o->config = arg;
		break;
	case KEY_JSON:
		o->json = true;
		break;
	case ARGP_KEY_ARG:
		return parse_arg(o, arg, state);
	case ARGP_KEY_END:
		check(o, state);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

int token_cmd(int argc, char **argv)
{
	static const struct argp argp = {option_table, parse, "mint\nls\nrevoke ID…", doc, NULL, NULL, NULL};
	_cleanup_free_ char **ids = calloc((size_t)argc, sizeof *ids);
	struct options o = {.now_s = time(NULL), .ids = ids};
	_cleanup_free_ char *dir = NULL;
	struct err e = {0};
	int rc;

	if (!ids)
		return EXIT_WEIR;
	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (geteuid() != 0)
		rc = err_set(&e, EPERM, "", "this needs root: the table of tokens is nobody else's (try sudo)");
	else
		rc = config_state_dir(o.state_dir, o.config, &dir, &e);
	if (rc == 0)
		rc = o.command->run(&o, dir, &e);
	if (e.code)
		fprintf(stderr, "weir token: %s%s%s\n", e.where, e.where[0] ? ": " : "", e.msg);
	return rc < 0 ? 1 : 0;
}
