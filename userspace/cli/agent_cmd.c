/* SPDX-License-Identifier: Apache-2.0 */
/* `weir agent add | ls | rm | env`: which agents there are, and what their processes are started with. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/agent_env.h"
#include "cli/agent_modules.h"
#include "cli/agent_show.h"
#include "cli/cli.h"
#include "cli/config_load.h"
#include "cli/instance.h"
#include "cli/launch.h"
#include "cli/token_mint.h"
#include "cli/token_show.h"
#include "cli/tokenfile.h"
#include "core/cleanup.h"
#include "registry/store.h"

#define NOTE "weir agent env"

enum {
	KEY_PROJECT = 256,
	KEY_IMAGE,
	KEY_TOOLS,
	KEY_ENV,
	KEY_REPLACE,
	KEY_EXPIRES,
	KEY_ROTATE,
	KEY_URL,
	KEY_DOTENV,
	KEY_STATE,
	KEY_CONFIG,
	KEY_JSON
};
#define GIVEN(key) (1u << ((key)-KEY_PROJECT))

struct options {
	const struct command *command;
	const char *name, *project, *image, *url, *state_dir, *config;
	struct agent_entry entry; /* add: modules and variables */
	int64_t now_s, expires_s;
	unsigned given;
	bool in_tools; /* the last option was --tools: bare words are modules */
};

static bool has(const struct options *o, int key)
{
	return o->given & GIVEN(key);
}

/* ---- the state directory ---- */

struct state {
	const char *dir;
	int fd, lock;
	struct image_table images;
	struct agent_table agents;
};

static void state_clear(struct state *s)
{
	image_table_clear(&s->images);
	agent_table_clear(&s->agents);
	cleanup_fdp(&s->lock);
	cleanup_fdp(&s->fd);
}
#define _cleanup_state_ __attribute__((cleanup(state_clear)))

/* Both tables; `change`: held against other writers. A directory that is not there has neither. */
static int state_open(struct state *s, bool change, struct err *e)
{
	struct stat st;
	int rc;

	s->fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->fd < 0 && errno == ENOENT)
		return 0;
	if (s->fd < 0 || fstat(s->fd, &st) < 0)
		return err_errno(e, errno, "--state-dir", "open %s", s->dir);
	rc = launch_state_dir_fit(&st, s->dir, e);
	if (rc == 0 && change)
		rc = registry_lock(s->fd, &s->lock, e);
	if (rc == 0)
		rc = registry_load_images(s->fd, &s->images, NULL, e);
	if (rc == 0)
		rc = registry_load_agents(s->fd, &s->agents, NULL, e);
	return rc;
}

/* " --state-dir DIR" for what people are to type, unless it is the usual one. */
static const char *dir_option(const struct state *s, char *buf, size_t size)
{
	buf[0] = 0;
	if (strcmp(s->dir, DEFAULT_STATE_DIR) != 0)
		snprintf(buf, size, " --state-dir %s", s->dir);
	return buf;
}
#define DIR_OPTION(s) dir_option((s), (char[4200]){0}, 4200)

/* Which one is meant; without a project the only one of that name. */
static int find(const struct state *s, const struct options *o, size_t *ret, struct err *e)
{
	char projects[512] = "";
	size_t count = 0, used = 0;

	for (size_t i = 0; i < s->agents.count; i++) {
		const struct agent_entry *a = &s->agents.entries[i];

		if (strcmp(a->name, o->name) != 0 || (o->project && strcmp(a->project, o->project) != 0))
			continue;
		if (used < sizeof projects)
			used += (size_t)snprintf(projects + used, sizeof projects - used, "%s%s", used ? ", " : "", a->project);
		*ret = i;
		count++;
	}
	if (count == 1)
		return 0;
	if (count > 1)
		return err_set(e, EINVAL, "", "%zu projects have an agent %s: say --project (%s)", count, o->name, projects);
	return err_set(e, ENOENT, "", "there is no agent %s%s%s in %s; `weir agent ls%s` lists them", o->name,
		       o->project ? " of project " : "", o->project ? o->project : "", s->dir, DIR_OPTION(s));
}

/* ---- add ---- */

static void warn_of_modules(const struct state *s, const struct image_entry *image, const struct agent_entry *a)
{
	char root[PATH_MAX];

	snprintf(root, sizeof root, "%s/" IMAGES_DIR "/%s", s->dir, image->digest);
	agent_modules_warn(root, image, a);
}

static int check_free(const struct state *s, const struct options *o, struct err *e)
{
	const struct agent_entry *a = agent_table_find(&s->agents, o->project, o->name);

	if (!a || has(o, KEY_REPLACE))
		return 0;
	return err_set(e, EEXIST, "",
		       "project %s has an agent %s already (image %s, sha256:%.12s): --replace puts this one in its place",
		       a->project, a->name, a->image, a->digest);
}

static int do_add(struct options *o, const char *dir, struct err *e)
{
	_cleanup_state_ struct state s = {.dir = dir, .fd = -1, .lock = -1};
	struct agent_entry *a = &o->entry;
	const struct image_entry *image;
	int rc = state_open(&s, true, e);

	if (rc < 0)
		return rc;
	image = image_table_find(&s.images, o->image, e);
	if (!image)
		return -ENOENT;
	rc = check_free(&s, o, e);
	if (rc < 0)
		return rc;
	snprintf(a->name, sizeof a->name, "%s", o->name);
	snprintf(a->project, sizeof a->project, "%s", o->project);
	snprintf(a->image, sizeof a->image, "%s", o->image);
	snprintf(a->digest, sizeof a->digest, "%s", image->digest);
	a->added_s = o->now_s;
	rc = agent_table_put(&s.agents, a, e);
	if (rc == 0)
		rc = registry_save_agents(s.fd, &s.agents, e);
	if (rc < 0)
		return rc;
	warn_of_modules(&s, image, agent_table_find(&s.agents, o->project, o->name));
	rc = agent_show_added(agent_table_find(&s.agents, o->project, o->name), image, has(o, KEY_JSON), e);
	if (rc == 0 && !has(o, KEY_JSON))
		fprintf(stderr, "weir: `weir agent env %s --project %s%s` prints what the agent's process is started with\n",
			o->name, o->project, DIR_OPTION(&s));
	return rc;
}

/* ---- ls ---- */

static int open_tokens(const struct state *s, enum tokenfile_access access, struct tokenfile *ret, struct err *e)
{
	struct err e2 = {0};
	int rc = s->fd < 0 ? 0 : tokenfile_open(s->fd, s->dir, access, ret, &e2);

	/* No table: no tokens. */
	if (rc == -ENOENT && access == TOKENFILE_LIST)
		return 0;
	if (rc < 0)
		*e = e2;
	return rc;
}

static int do_ls(struct options *o, const char *dir, struct err *e)
{
	_cleanup_state_ struct state s = {.dir = dir, .fd = -1, .lock = -1};
	struct tokenfile t = {NULL, NULL, -1};
	int rc = state_open(&s, false, e);

	if (rc == 0)
		rc = open_tokens(&s, TOKENFILE_LIST, &t, e);
	if (rc == 0) {
		const struct agent_list list = {&s.agents, &s.images, t.file, o->project, o->now_s};

		rc = agent_show_list(&list, has(o, KEY_JSON), e);
		if (rc == 0 && !has(o, KEY_JSON) && !agent_list_count(&list))
			fprintf(stderr,
				"weir: no agents%s%s in %s; `weir agent add NAME --project P --image REF --tools MODULE%s` "
				"makes one known\n",
				o->project ? " of project " : "", o->project ? o->project : "", dir, DIR_OPTION(&s));
	}
	tokenfile_close(&t);
	return rc;
}

/* ---- rm ---- */

static int revoke_tokens(struct tokenfile *t, const struct agent_entry *a, int keep, int64_t now_s, unsigned *ret,
			 struct err *e)
{
	unsigned n = token_revoke_agents(t->file, a->project, a->name, keep, now_s);
	int rc = n ? tokenfile_sync(t, e) : 0;

	if (rc == 0)
		*ret = n;
	return rc;
}

/* First the tokens: one that outlived its agent would be found by nobody who looks for the agent again. */
static int forget(struct state *s, size_t at, int64_t now_s, unsigned *ret_revoked, struct err *e)
{
	struct tokenfile t = {NULL, NULL, -1};
	int rc = open_tokens(s, TOKENFILE_CHANGE, &t, e);

	if (rc == 0)
		rc = revoke_tokens(&t, &s->agents.entries[at], -1, now_s, ret_revoked, e);
	tokenfile_close(&t);
	if (rc < 0)
		return rc;
	agent_table_remove(&s->agents, at);
	return registry_save_agents(s->fd, &s->agents, e);
}

static int do_rm(struct options *o, const char *dir, struct err *e)
{
	_cleanup_state_ struct state s = {.dir = dir, .fd = -1, .lock = -1};
	char project[TOKEN_PROJECT_MAX];
	unsigned revoked = 0;
	size_t at = 0;
	int rc = state_open(&s, true, e);

	if (rc == 0)
		rc = find(&s, o, &at, e);
	if (rc < 0)
		return rc;
	snprintf(project, sizeof project, "%s", s.agents.entries[at].project);
	rc = forget(&s, at, o->now_s, &revoked, e);
	if (rc < 0)
		return rc;
	printf("%s (project %s) is removed; %u of its tokens %s revoked\n", o->name, project, revoked,
	       revoked == 1 ? "is" : "are");
	return cli_flush(e);
}

/* ---- env ---- */

static enum agent_env_form form_of(const struct options *o)
{
	return has(o, KEY_JSON) ? AGENT_ENV_JSON : has(o, KEY_DOTENV) ? AGENT_ENV_DOTENV : AGENT_ENV_SHELL;
}

/* Where the configuration says that it listens; nobody knows whether that is so. */
static int configured_url(const struct options *o, char **ret, struct err *e)
{
	_cleanup_config_ struct config c = {0};
	const struct config none = {0};
	int rc = config_load(o->config, &c, e);

	if (rc == 0)
		rc = config_merge(&c, &none, e);
	return rc == 0 ? agent_env_url(&c, ret, e) : rc;
}

/* What was asked for; else where the service of this state directory does listen, whatever it was started with. */
static int service_url(const struct options *o, const char *dir, char **ret, struct err *e)
{
	int rc;

	if (o->url) {
		*ret = strdup(o->url);
		return *ret ? 0 : err_set(e, ENOMEM, "", "out of memory");
	}
	rc = instance_url(dir, ret, e);
	if (rc < 0 || *ret)
		return rc;
	rc = configured_url(o, ret, e);
	if (rc == 0)
		fprintf(
		    stderr,
		    "weir: no service runs on %s: SANDBOX_URL is %s, where the configuration says that it will listen; --url "
		    "names another address\n",
		    dir, *ret);
	return rc;
}

static void say_minted(const struct tokens_file *file, int index, const struct options *o, unsigned revoked)
{
	const struct token_slot *slot = &file->slots[index];
	const unsigned good = token_count_agents(file, slot->project, slot->agent, o->now_s);

	fprintf(stderr, "weir: %s: project %s, agent %s, expires %s. The token is shown this once.\n", slot->id, slot->project,
		slot->agent, token_time_text((char[TOKEN_TIME_LEN]){0}, slot->expires_s));
	if (has(o, KEY_ROTATE))
		fprintf(stderr, "weir: %u earlier token%s revoked\n", revoked, revoked == 1 ? " is" : "s are");
	else if (good > 1)
		fprintf(stderr, "weir: %u tokens of this agent are good now; --rotate ends the earlier ones\n", good);
}

/* The earlier ones go when the new one has been handed out, so that no failure leaves the agent without any. */
static int hand_out(const struct agent_entry *a, const char *url, const struct options *o, struct tokenfile *t, struct err *e)
{
	const struct token_wish wish = {.scopes = SCOPE_PROJECT | SCOPE_AGENT,
					.project = a->project,
					.agent = a->name,
					.note = NOTE,
					.now_s = o->now_s,
					.expires_s = o->expires_s};
	char text[TOKEN_MINTED_LEN];
	unsigned revoked = 0;
	int index = token_mint(t, &wish, text, e), rc;

	if (index < 0)
		return index;
	rc = agent_env_print(a, url, text, form_of(o), e);
	explicit_bzero(text, sizeof text);
	if (rc < 0) {
		token_unmint(t, index, o->now_s);
		return rc;
	}
	if (has(o, KEY_ROTATE))
		rc = revoke_tokens(t, a, index, o->now_s, &revoked, e);
	if (rc == 0)
		say_minted(t->file, index, o, revoked);
	return rc;
}

static int do_env(struct options *o, const char *dir, struct err *e)
{
	_cleanup_state_ struct state s = {.dir = dir, .fd = -1, .lock = -1};
	struct tokenfile t = {NULL, NULL, -1};
	_cleanup_free_ char *url = NULL;
	size_t at = 0;
	int rc = state_open(&s, true, e);

	if (rc == 0)
		rc = find(&s, o, &at, e);
	if (rc == 0)
		rc = service_url(o, dir, &url, e);
	if (rc == 0)
		rc = agent_env_check(&s.agents.entries[at], form_of(o), e);
	if (rc == 0)
		rc = open_tokens(&s, TOKENFILE_CHANGE, &t, e);
	if (rc == 0)
		rc = hand_out(&s.agents.entries[at], url, o, &t, e);
	tokenfile_close(&t);
	return rc;
}

/* ---- arguments ---- */

#define EVERYWHERE (GIVEN(KEY_STATE) | GIVEN(KEY_CONFIG) | GIVEN(KEY_PROJECT))
static const struct command {
	const char *name;
	unsigned options; /* GIVEN() of those it takes */
	bool named;	  /* takes an agent's NAME */
	int (*run)(struct options *o, const char *dir, struct err *e);
} commands[] = {
    {"add", EVERYWHERE | GIVEN(KEY_IMAGE) | GIVEN(KEY_TOOLS) | GIVEN(KEY_ENV) | GIVEN(KEY_REPLACE) | GIVEN(KEY_JSON), true,
     do_add},
    {"ls", EVERYWHERE | GIVEN(KEY_JSON), false, do_ls},
    {"rm", EVERYWHERE, true, do_rm},
    {"env", EVERYWHERE | GIVEN(KEY_EXPIRES) | GIVEN(KEY_ROTATE) | GIVEN(KEY_URL) | GIVEN(KEY_DOTENV) | GIVEN(KEY_JSON), true,
     do_env},
};

static const struct argp_option option_table[] = {
    {"project", KEY_PROJECT, "P", 0,
     "whose agent it is; ls: only that project's; rm, env: needed where several projects have one of that name", 0},
    {"image", KEY_IMAGE, "REF", 0, "add: the image that its tools run in: a name or digest that `weir image ls` shows", 0},
    {"tools", KEY_TOOLS, "MODULE...", 0,
     "add: the Python modules in the image that hold the tools; several with blanks or commas between, or the option again", 0},
    {"env", KEY_ENV, "K=V", 0,
     "add: a variable of the agent's own process, for `weir agent env` to print; may be repeated. No tool ever gets it", 0},
    {"replace", KEY_REPLACE, 0, 0, "add: in the place of one that is there; its tokens go on being good", 0},
    {"expires", KEY_EXPIRES, "WHEN", 0,
     "env: when the token ends: 45s, 90m, 12h, 30d, a day like 2027-01-31 (its beginning, UTC), or never (default)", 0},
    {"rotate", KEY_ROTATE, 0, 0, "env: revoke the agent's earlier tokens", 0},
    {"url", KEY_URL, "URL", 0,
     "env: where the agent finds the service (default: where the one of this state directory listens; if none runs, where the "
     "configuration says that it will)",
     0},
    {"dotenv", KEY_DOTENV, 0, 0, "env: print NAME=VALUE lines for a .env file", 0},
    {"json", KEY_JSON, 0, 0, "add, ls, env: print JSON", 0},
    {"state-dir", KEY_STATE, "DIR", 0,
     "the service's state directory (default: the configuration's, else " DEFAULT_STATE_DIR ")", 0},
    {"config", KEY_CONFIG, "FILE", 0, "the service's configuration (default: " CONFIG_FILE_DEFAULT ", if it is there)", 0},
    {0},
};

static const char doc[] =
    "Say which agents there are and what their tools run in, and print what an agent's process is started with. Changes count "
    "from a running service's next call on."
    "\vExamples:\n"
    "  sudo weir agent add weather --project demo --image weather --tools app.tools\n"
    "  sudo weir agent add weather --project demo --image weather:2 --tools app.tools app.more --replace\n"
    "  eval \"$(sudo weir agent env weather)\"; python -m weir.agent app:root_agent\n"
    "  sudo weir agent env weather --dotenv --expires 30d --rotate >weather.env\n"
    "  sudo weir agent ls\n"
    "  sudo weir agent rm weather\n\n"
    "An agent is pinned to the image's digest as of when it was added: importing another image under the same name changes "
    "nothing until it is added again with --replace. What --env sets is for the agent's own process, where its model key "
    "belongs; it never reaches a tool, whose environment is the platform's and the image's. SANDBOX_*, CODE_INTERPRETER_* and "
    "TOOL_SANDBOX are reserved. Each `env` mints a token of its own; only its SHA-256 is kept. rm revokes all of the "
    "agent's.\n\n"
    "Exit status: 0; 1 for an unknown or existing agent, an unknown image, a full table, or one that can't be read or written; "
    "64 "
    "for arguments that make no sense.";

static const char *name_of(const char *text, const char *what, const struct argp_state *state)
{
	if (!token_project_ok(text))
		argp_error(state, "%s: \"%.80s\" is not a name: a-z, 0-9 and -, not - first, at most %d characters", what, text,
			   TOKEN_PROJECT_MAX - 1);
	return text;
}

/* "a,b c" and each word of `--tools a b c`. */
static void add_modules(struct options *o, char *text, const struct argp_state *state)
{
	struct err e = {0};
	char *save = NULL, module[AGENT_MODULE_MAX];

	for (char *one = strtok_r(text, ", \t\n", &save); one; one = strtok_r(NULL, ", \t\n", &save)) {
		if (agent_module_of_file(one, module, sizeof module))
			argp_error(state, "--tools: \"%.80s\" is a file's name; what is wanted is the module's: %s", one,
				   module);
		if (agent_entry_add_module(&o->entry, one, &e) < 0)
			argp_error(state, "--tools: %s", e.msg);
	}
}

static void add_variable(struct options *o, char *text, const struct argp_state *state)
{
	char *value = strchr(text, '=');
	struct err e = {0};

	/* The text itself may be a secret that was put in the wrong place. */
	if (!value) {
		argp_error(state, "--env: what is wanted is NAME=VALUE");
		return;
	}
	*value++ = 0;
	if (agent_entry_add_variable(&o->entry, text, value, &e) < 0)
		argp_error(state, "--env: %s", e.msg);
}

static void set_expiry(struct options *o, const char *text, const struct argp_state *state)
{
	int rc = token_expiry_parse(text, o->now_s, &o->expires_s);

	if (rc == -ERANGE)
		argp_error(state, "--expires: \"%s\" is not between now and a hundred years from now", text);
	else if (rc < 0)
		argp_error(state, "--expires: \"%s\" is not a time from now (45s, 90m, 12h, 30d), a day (2027-01-31) or never",
			   text);
}

static void check_add(const struct options *o, const struct argp_state *state)
{
	if (!o->project)
		argp_error(state, "add: say whose agent it is: --project P");
	if (o->project && token_project_reserved(o->project))
		argp_error(state, "--project: \"%s\" is a reserved name: take another", o->project);
	if (!o->image)
		argp_error(state, "add: say which image its tools run in: --image REF; `weir image ls` lists them");
	if (!o->entry.module_count)
		argp_error(state, "add: say which modules of the image hold its tools: --tools MODULE…");
}

static void check(const struct options *o, const struct argp_state *state)
{
	if (!o->command) {
		argp_error(state, "say add, ls, rm or env");
		return;
	}
	for (int i = 0; option_table[i].name; i++)
		if (o->given & GIVEN(option_table[i].key) & ~o->command->options)
			argp_error(state, "%s does not take --%s", o->command->name, option_table[i].name);
	if (o->command->named && !o->name)
		argp_error(state, "%s: say which agent: its NAME, before the options", o->command->name);
	if (o->command->run == do_add)
		check_add(o, state);
	if (has(o, KEY_JSON) && has(o, KEY_DOTENV))
		argp_error(state, "--json and --dotenv: one of the two");
}

static void parse_word(struct options *o, char *arg, const struct argp_state *state)
{
	if (o->in_tools) {
		add_modules(o, arg, state);
		return;
	}
	if (o->command && o->command->named && !o->name) {
		o->name = name_of(arg, "NAME", state);
		return;
	}
	if (o->command)
		argp_error(state, "%s takes no argument \"%.80s\"", o->command->name, arg);
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
		if (!strcmp(arg, commands[i].name))
			o->command = &commands[i];
	if (!o->command)
		argp_error(state, "\"%.80s\" is none of add, ls, rm, env", arg);
}

/* Options that are a text and no more. */
static const char **text_of(struct options *o, int key)
{
	switch (key) {
	case KEY_IMAGE:
		return &o->image;
	case KEY_URL:
		return &o->url;
	case KEY_STATE:
		return &o->state_dir;
	case KEY_CONFIG:
		return &o->config;
	default:
		return NULL;
	}
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	const char **text = text_of(o, key);

	if (key >= KEY_PROJECT && key <= KEY_JSON) {
		o->given |= GIVEN(key);
		o->in_tools = key == KEY_TOOLS;
	}
	if (text)
		*text = arg;
	switch (key) {
	case KEY_PROJECT:
		o->project = name_of(arg, "--project", state);
		break;
	case KEY_TOOLS:
		add_modules(o, arg, state);
		break;
	case KEY_ENV:
		add_variable(o, arg, state);
		break;
	case KEY_EXPIRES:
		set_expiry(o, arg, state);
		break;
	case KEY_URL:
		if (!agent_env_url_ok(arg))
			argp_error(state, "--url: what is wanted is http://…, https://… or unix:/…, without user, ? and #");
		break;
	case ARGP_KEY_ARG:
		parse_word(o, arg, state);
		break;
	case ARGP_KEY_END:
		check(o, state);
		break;
	default:
		return key >= KEY_PROJECT && key <= KEY_JSON ? 0 : ARGP_ERR_UNKNOWN;
	}
	return 0;
}

int agent_cmd(int argc, char **argv)
{
	static const struct argp argp = {
	    option_table, parse, "add NAME --project P --image REF --tools MODULE...\nls\nrm NAME\nenv NAME", doc, NULL,
	    NULL,	  NULL};
	struct options o = {.now_s = time(NULL)};
	_cleanup_free_ char *dir = NULL;
	struct err e = {0};
	int rc;

	/* In order, so that the words behind --tools are known from a NAME. */
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &o);
	if (geteuid() != 0)
		rc = err_set(&e, EPERM, "", "this needs root: the tables of agents and tokens are nobody else's (try sudo)");
	else
		rc = config_state_dir(o.state_dir, o.config, &dir, &e);
	if (rc == 0)
		rc = o.command->run(&o, dir, &e);
	agent_entry_clear(&o.entry);
	if (e.code)
		fprintf(stderr, "weir agent: %s%s%s\n", e.where, e.where[0] ? ": " : "", e.msg);
	return rc < 0 ? 1 : 0;
}
