/* SPDX-License-Identifier: Apache-2.0 */
/* `weir serve`: the supervisor, with the api, the auditor and the collector as children that have given up root. */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "cli/agent_env.h"
#include "cli/cli.h"
#include "cli/config_load.h"
#include "cli/config_show.h"
#include "cli/instance.h"
#include "cli/launch.h"
#include "cli/listener.h"
#include "cli/look.h"
#include "cli/prime.h"
#include "cli/tlsfile.h"
#include "cli/token_show.h"
#include "cli/tokenfile.h"
#include "core/cleanup.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/token.h"
#include "gateway/gateway.h"

struct options {
	struct config given; /* by options of the command line */
	const char *config;
	char *dev_token;
	uint8_t dev_token_sha256[TOKEN_DIGEST_LEN];
	bool check, json, policy_only;
	unsigned window_s, session_idle_s, session_life_s, call_ready_s, agent_idle_s, agents_called;
	enum plan_step fault, skip;
	struct err bad;
};

/* From KEY_FIRST on: enum config_key. */
enum {
	KEY_FIRST = 256,
	KEY_CONFIG = KEY_FIRST + CONFIG_KEYS,
	KEY_CHECK,
	KEY_POLICY_ONLY,
	KEY_WINDOW,
	KEY_JSON,
	KEY_TOKEN,
	KEY_IDLE,
	KEY_LIFE,
	KEY_CALL_READY,
	KEY_AGENT_IDLE,
	KEY_AGENTS_CALLED,
	KEY_FAULT,
	KEY_SKIP,
	KEY_STEPS
};
#define KEY(name) (KEY_FIRST + CONFIG_##name)

static const struct argp_option option_table[] = {
    {"config", KEY_CONFIG, "FILE", 0,
     "the configuration (default: " CONFIG_FILE_DEFAULT ", if it is there); options win over it", 0},
    {"listen", KEY(LISTEN), "ADDR:PORT", 0, "where to listen: host:port, [v6]:port or unix:/path (default " DEFAULT_LISTEN ")",
     0},
    {"state-dir", KEY(STATE_DIR), "DIR", 0, "where tokens and the audit record live (default " DEFAULT_STATE_DIR ")", 0},
    {"dev-token", KEY_TOKEN, "T", 0, "a token with every scope for project `dev`, known to this process alone; loopback only",
     0},
    {"policy", KEY(POLICY), "P", 0,
     "policy of snippets: a file, or the name of a shipped one (default: snippet, which denies everything)", 0},
    {"python", KEY(PYTHON), "FILE", 0, "the interpreter that snippets run on (default: a Python 3.12, else python3)", 0},
    {"image", KEY(IMAGE), "DIR", 0, "the root of snippets: a directory or an OCI layout (default: made of the host's files)",
     0},
    {"pool", KEY(POOL_SIZE), "N", 0, "sandboxes kept warm (default 3)", 0},
    {"tool-policy", KEY(TOOL_POLICY), "P", 0,
     "policy of agents' tools, as --policy (default: tool-call, which lets them reach the public internet alone)", 0},
    {"no-internet-egress", KEY(TOOL_EGRESS), 0, 0, "agents' tools get no way out: nothing leaves, DNS included", 0},
    {"tls-cert", KEY(TLS_CERTIFICATE), "FILE", 0, "serve HTTPS with this certificate (PEM, its chain behind it)", 0},
    {"tls-key", KEY(TLS_KEY), "FILE", 0, "its key (PEM), which nobody but its owner may write nor everybody read", 0},
    {"plaintext", KEY(PLAINTEXT), 0, 0, "allow an address that is not loopback although there is no TLS", 0},
    {"audit-keep-days", KEY(AUDIT_DAYS), "N", 0, "days that a run stays in the audit record (default 30)", 0},
    {"audit-max-mib", KEY(AUDIT_MIB), "N", 0, "MiB of the record; over it whoever has most loses their oldest (default 1024)",
     0},
    {"audit-project-mib", KEY(AUDIT_PROJECT_MIB), "N", 0, "MiB of one project's in it (default 256)", 0},
    {"audit-content", KEY(AUDIT_CONTENT), 0, 0, "keep code, arguments and output in the record, and not only their hashes", 0},
    {"metrics-bpf-run-time", KEY(BPF_RUN_TIME), 0, 0,
     "measure how long BPF programs run, for GET /metrics: the kernel then does so for all programs of the host", 0},
    {"policy-only", KEY_POLICY_ONLY, 0, 0,
     "no sandboxes: only look after the policies that `weir attach` put on what already runs, and write what they see", 0},
    {"check-config", KEY_CHECK, 0, 0, "start nothing: say what would be in force, or what is wrong", 0},
    {"json", KEY_JSON, 0, 0, "with --check-config: print JSON", 0},
#ifdef WEIR_TEST_HOOKS
    {"test-fault", KEY_FAULT, "STEP", 0, "make this set-up step fail in every sandbox", 0},
    {"test-skip", KEY_SKIP, "STEP", 0, "leave this set-up step out in every sandbox", 0},
    {"list-steps", KEY_STEPS, 0, 0, "print the steps and their layers", 0},
    {"test-session-idle", KEY_IDLE, "S", 0, "seconds without a cell after which a session ends", 0},
    {"test-session-life", KEY_LIFE, "S", 0, "seconds after which a session ends whatever it does", 0},
    {"test-call-ready", KEY_CALL_READY, "S", 0, "seconds within which a tool's sandbox has to be ready", 0},
    {"test-agent-idle", KEY_AGENT_IDLE, "S", 0, "seconds without a call after which an agent's sandboxes are let go", 0},
    {"test-window", KEY_WINDOW, "S", 0, "seconds after which an attachment's record goes on in a new window", 0},
    {"test-agents-called", KEY_AGENTS_CALLED, "N", 0, "agents that may have sandboxes at once", 0},
#endif
    {0},
};

static unsigned seconds(const char *arg, const struct argp_state *state)
{
	char *end;
	long n = strtol(arg, &end, 10);

	if (*end || !*arg || n < 1 || n > LIMIT_SESSION_LIFE_S)
		argp_error(state, "\"%s\" is not 1 to %d seconds", arg, LIMIT_SESSION_LIFE_S);
	return (unsigned)n;
}

/* What only sandboxes have. In the file it may stand: that is one for both kinds of service. */
static void check_policy_only(const struct options *o, const struct argp_state *state)
{
	static const enum config_key of_sandboxes[] = {CONFIG_POLICY, CONFIG_POOL_SIZE,	  CONFIG_PYTHON,
						       CONFIG_IMAGE,  CONFIG_TOOL_EGRESS, CONFIG_TOOL_POLICY};

	for (size_t i = 0; o->policy_only && i < sizeof of_sandboxes / sizeof of_sandboxes[0]; i++)
		if (o->given.from[of_sandboxes[i]] == CONFIG_OPTION)
			argp_error(state,
				   "%s: is for sandboxes, and with --policy-only there are none: leave out one of the two",
				   config_keys[of_sandboxes[i]].option);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	if (key >= KEY_FIRST && key < KEY_FIRST + CONFIG_KEYS) {
		if (config_option(&o->given, (enum config_key)(key - KEY_FIRST), arg, &o->bad) < 0)
			argp_error(state, "%s: %s", o->bad.where, o->bad.msg);
		return 0;
	}
	switch (key) {
	case KEY_CONFIG:
		o->config = arg;
		break;
	case KEY_CHECK:
		o->check = true;
		break;
	case KEY_POLICY_ONLY:
		o->policy_only = true;
		break;
	case KEY_WINDOW:
		o->window_s = seconds(arg, state);
		break;
	case KEY_JSON:
		o->json = true;
		break;
	case KEY_TOKEN:
		o->dev_token = arg;
		break;
	case KEY_IDLE:
		o->session_idle_s = seconds(arg, state);
		break;
	case KEY_LIFE:
		o->session_life_s = seconds(arg, state);
		break;
	case KEY_CALL_READY:
		o->call_ready_s = seconds(arg, state);
		break;
	case KEY_AGENT_IDLE:
		o->agent_idle_s = seconds(arg, state);
		break;
	case KEY_AGENTS_CALLED:
		o->agents_called = seconds(arg, state); /* a number of the same range */
		break;
	case KEY_FAULT:
		if (launch_step(arg, &o->fault, &o->bad) < 0)
			argp_error(state, "%s", o->bad.msg);
		break;
	case KEY_SKIP:
		if (launch_step(arg, &o->skip, &o->bad) < 0)
			argp_error(state, "%s", o->bad.msg);
		break;
	case KEY_STEPS:
		for (int i = STEP_NONE + 1; i < STEP_COUNT; i++)
			printf("%s %s %s\n", plan_steps[i].name, plan_steps[i].layer, plan_steps[i].actor);
		exit(0);
	case ARGP_KEY_END:
		if (o->json && !o->check)
			argp_error(state, "--json: only with --check-config");
		check_policy_only(o, state);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const char doc[] =
    "Run the service: POST /v1/execute runs one Python snippet in a warm, single-use sandbox, POST /v1/call a tool of an "
    "agent's; "
    "POST /mcp is run_python for MCP clients."
    "\vExamples:\n"
    "  weir serve\n"
    "  weir serve --config weir.json --check-config\n"
    "  weir serve --dev-token \"$TOKEN\"\n"
    "  weir serve --listen unix:/run/weir.sock\n"
    "  weir serve --listen 0.0.0.0:8443 --tls-cert weir.crt --tls-key weir.key\n"
    "  weir serve --policy-only\n\n"
    "`weir token mint --project NAME` makes tokens, while the service runs or before. "
    "SIGTERM stops it in order: running snippets get a moment, then are killed, and nothing is left behind. SIGHUP reads the "
    "policy again: what is wrong with it is logged, and what was in force stays; else the new one binds from the next packet "
    "on, of snippets under way too. Nothing else of the configuration is read again. What has a policy by `weir attach` keeps "
    "it "
    "whether a service runs or not.";
static const struct argp argp = {option_table, parse, NULL, doc, NULL, NULL, NULL};

/* ---- what it is to be ---- */

/* Everything that is made before the first process is. */
struct service {
	struct config config;
	struct inforce policy, tool_policy;
	struct listener_rules rules;
	struct image_place place;
};

static void service_clear(struct service *s)
{
	config_clear(&s->config);
	inforce_clear(&s->policy);
	inforce_clear(&s->tool_policy);
}

/* File, options, defaults: in this order, and every path absolute. */
static int settle(const struct options *o, struct config *ret, struct err *e)
{
	_cleanup_config_ struct config c = {0};
	_cleanup_free_ char *cwd = getcwd(NULL, 0);
	struct config given = o->given;
	int rc;

	if (!cwd)
		return err_errno(e, errno, "", "find the working directory");
	rc = config_load(o->config, &c, e);
	if (rc == 0)
		rc = config_merge(&c, &given, e);
	/* Those of the file are absolute by now. */
	if (rc == 0)
		rc = config_absolute(&c, cwd, e);
	if (rc == 0 && (rc = config_check(&c, e)) < 0)
		config_blame(&c, e);
	if (rc < 0)
		return rc;
	*ret = c;
	memset(&c, 0, sizeof c);
	return 0;
}

static int load_tls(const struct config *c, struct tlsfile *ret, const char **ret_warning, struct err *e)
{
	return c->tls_key ? tlsfile_load(c->tls_certificate, c->tls_key, ret, ret_warning, e) : 0;
}

static int load_tool_policy(const char *policy, struct inforce *ret, struct err *e)
{
	int rc = launch_policy(policy, true, ret, e);

	if (rc < 0 && e)
		snprintf(e->where, sizeof e->where, "%s", config_keys[CONFIG_TOOL_POLICY].option);
	return rc;
}

/* What is wrong with the configured one is told also when it is not used: not on the day when tools get a way out. */
static int load_policies(struct service *s, struct err *e)
{
	const struct config *c = &s->config;
	int rc = launch_policy(c->policy, false, &s->policy, e);

	if (rc == 0)
		rc = load_tool_policy(c->tool_policy, &s->tool_policy, e);
	if (rc == 0 && !c->tool_egress) {
		inforce_clear(&s->tool_policy);
		rc = load_tool_policy(config_tool_policy(c), &s->tool_policy, e);
	}
	return rc;
}

/* Whatever can be found wrong before anything is made. The key is read again when the one who needs it is started. */
static int prepare(struct service *s, const struct options *o, struct err *e)
{
	const struct config *c = &s->config;
	struct tlsfile tls = {NULL, NULL};
	const char *warning = NULL;
	int rc = 0;

	s->rules = (struct listener_rules){.protected = c->plaintext || c->tls_key, .dev_token = o->dev_token};
	if (c->image && !o->policy_only)
		rc = look_image(c->image, e);
	if (rc == 0 && c->python && !o->policy_only)
		rc = look_python(c->python, c->image, e);
	if (rc == 0)
		rc = look_state_dir(c->state_dir, e);
	if (rc == 0)
		rc = listener_check(c->listen, &s->rules, e);
	if (rc == 0 && !o->policy_only)
		rc = load_policies(s, e);
	if (rc == 0)
		rc = load_tls(c, &tls, &warning, e);
	tlsfile_clear(&tls);
	if (warning)
		log_warn("%s: %s", c->tls_certificate, warning);
	return rc;
}

/* As a start logs them. */
static void warn_of_policy(const struct inforce *f, enum config_key key)
{
	struct policy_warning warnings[8];
	struct cidr room[RESOLVCONF_SERVERS];
	const struct policy_env env = inforce_env(f, room);
	const size_t max = sizeof warnings / sizeof warnings[0], count = policy_warnings(f->policy, &env, warnings, max);
	char pointer[CONFIG_POINTER_MAX];

	config_pointer(key, pointer);
	for (size_t i = 0; i < count && i < max; i++)
		fprintf(stderr, "weir: warning: %s: policy %s: %s: %s\n", pointer, f->policy->name, warnings[i].where,
			warnings[i].text);
	if (count > max)
		fprintf(stderr, "weir: %zu more warnings of policy %s: `weir policy check` lists them\n", count - max,
			f->policy->name);
}

static int check_only(const struct service *s, const struct options *o, struct err *e)
{
	if (!o->policy_only) {
		warn_of_policy(&s->policy, CONFIG_POLICY);
		warn_of_policy(&s->tool_policy, CONFIG_TOOL_POLICY);
	}
	return config_show(&s->config, o->policy_only, o->json, e);
}

/* ---- processes ---- */

struct child {
	const char *name;
	pid_t pid; /* -1: not started, or gone */
};
enum { CHILD_API, CHILD_AUDITOR, CHILD_COLLECTOR, CHILD_GATEWAY, CHILDREN };

/*
 * Before the other children: what is the api's alone (the key, the times of use of tokens) is forgotten here before they are
 * forked. (The key is not with them who unpack an image either: they have come and gone by now.)
 */
static int launch_api(struct wiring *w, int *listen_fd, const struct options *o, const struct config *c,
		      const struct tokenfile *table, pid_t *ret, struct err *e)
{
	struct tlsfile tls = {NULL, NULL};
	const char *warning;
	int rc = load_tls(c, &tls, &warning, e);
	pid_t pid;

	if (rc < 0)
		return rc;
	pid = fork();
	if (pid < 0) {
		tlsfile_clear(&tls);
		return err_errno(e, errno, "api", "fork the api");
	}
	if (pid == 0) {
		struct tokens tokens = {table->file, table->used};
		struct api_config config = {
		    .listen_fd = *listen_fd,
		    .supervisor_fd = w->client_sup,
		    .auditor_fd = w->client_auditor,
		    .collector_fd = w->client_collector,
		    .tokens = &tokens,
		    .uid = UID_API,
		    .gid = UID_API,
		    .has_dev_token = o->dev_token != NULL,
		    .tls_cert = tls.certificate,
		    .tls_key = tls.key,
		    .audit_content = c->audit_content,
		    .log_level = LOG_LVL_INFO,
		};

		memcpy(config.dev_token_sha256, o->dev_token_sha256, sizeof config.dev_token_sha256);
		w->client_sup = w->client_auditor = w->client_collector = -1;
		wiring_close(w);
		signal(SIGHUP, SIG_IGN); /* the supervisor stops us in its turn */
		launch_unblock_signals();
		log_init("api", LOG_LVL_INFO);
		_exit(api_main(&config));
	}
	cleanup_fdp(&w->client_sup);
	cleanup_fdp(&w->client_auditor);
	cleanup_fdp(&w->client_collector);
	cleanup_fdp(listen_fd);
	w->client_sup = w->client_auditor = w->client_collector = *listen_fd = -1;
	tlsfile_clear(&tls);
	*ret = pid;
	return 0;
}

static void say_who_may_call(const struct tokenfile *table, const struct options *o, const struct config *c)
{
	unsigned active = tokens_active(table->file, time(NULL));
	bool usual = c->state_dir && !strcmp(c->state_dir, DEFAULT_STATE_DIR);

	if (active || o->dev_token)
		log_info("%u %s active%s", active, active == 1 ? "token is" : "tokens are",
			 o->dev_token ? ", and the one of --dev-token" : "");
	else if (o->policy_only)
		log_info("no token is active: records are read with `weir audit` alone, and not over HTTP");
	else
		log_warn(
		    "no token is active, so every request is refused: `weir token mint --project NAME%s%s` makes one, which "
		    "works at once",
		    usual ? "" : " --state-dir ", usual ? "" : c->state_dir);
}

/* A host on which tools have no way out serves snippets all the same; each call then says which layer failed. */
static void say_what_tools_get(const struct service *s)
{
	char version[32];
	struct err e = {0};

	if (!s->config.tool_egress)
		log_info("tools: no way out (/tool_calls/allow_internet_egress is off), policy %s",
			 s->tool_policy.policy->name);
	else if (gateway_probe(version, &e) < 0)
		log_warn(
		    "tools: no call will run, since this host can't give one a way out: %s (--no-internet-egress lets them run "
		    "without)",
		    e.msg);
	else
		log_info("tools: policy %s, libslirp %s", s->tool_policy.policy->name, version);
}

static void say_what_starts(const struct service *s, const struct options *o, const char *where)
{
	const char *https = s->config.tls_key ? " (HTTPS)" : "";

	if (o->policy_only) {
		log_info("starting with --policy-only: no sandboxes, listening on %s%s", where, https);
		return;
	}
	say_what_tools_get(s);
	log_info("starting: policy %s, listening on %s%s", s->policy.policy->name, where, https);
}

static int launch_children(struct service *s, const struct options *o, struct wiring *w, int dir, int *listener,
			   int *ret_gateway, struct child children[CHILDREN], struct err *e)
{
	const struct config *c = &s->config;
	const struct audit_opts audit = {.max_bytes = (uint64_t)c->audit_mib << 20,
					 .project_bytes = (uint64_t)c->audit_project_mib << 20,
					 .keep_s = c->audit_days * 86400ull,
					 .content = c->audit_content};
	struct tokenfile table = {NULL, NULL, -1};
	int rc = tokenfile_open(dir, s->config.state_dir, TOKENFILE_SERVE, &table, e);

	if (rc == 0) {
		token_warn_of_reserved(table.file, time(NULL));
		say_who_may_call(&table, o, &s->config);
		rc = launch_api(w, listener, o, &s->config, &table, &children[CHILD_API].pid, e);
	}
	tokenfile_close(&table);
	if (rc == 0)
		rc = launch_auditor(w, dir, &audit, &children[CHILD_AUDITOR].pid, e);
	if (rc == 0 && !o->policy_only)
		rc = launch_collector(w, &children[CHILD_COLLECTOR].pid, e);
	if (rc == 0 && !o->policy_only && s->config.tool_egress)
		rc = launch_gateway(w, ret_gateway, &children[CHILD_GATEWAY].pid, e);
	return rc;
}

/* They have seen the end of their sockets; what does not leave by itself is ended. */
static void end_children(struct child children[CHILDREN])
{
	unsigned alive = CHILDREN;

	for (int i = 0; i < 50 && alive; i++) {
		if (i)
			usleep(20000);
		alive = 0;
		for (int k = 0; k < CHILDREN; k++) {
			if (children[k].pid > 0 && waitpid(children[k].pid, NULL, WNOHANG) != 0)
				children[k].pid = -1;
			alive += children[k].pid > 0;
		}
	}
	for (int k = 0; k < CHILDREN; k++)
		if (children[k].pid > 0)
			kill(children[k].pid, SIGKILL);
}

/* For `weir agent env`: port 0 has become a real one, and a name is what a certificate is for. */
static int note_url(const struct config *c, const char *instance, const char *where, struct err *e)
{
	struct config real = *c; /* borrows */
	_cleanup_free_ char *url = NULL;
	struct err port_zero;
	int rc = agent_env_url(c, &url, &port_zero);

	if (rc < 0) {
		real.listen = (char *)where;
		rc = agent_env_url(&real, &url, e);
	}
	return rc < 0 ? rc : instance_note_url(instance, url, e);
}

/* Takes `gateway`. `dir`: the state directory. `where`: the address as the socket has it. */
static int supervise(struct service *s, const struct options *o, struct wiring *w, int gateway, int dir,
		     const struct child children[CHILDREN], const char *instance, const char *where, struct err *e)
{
	struct supervisor_config config = {.instance = instance,
					   .state_dir = s->config.state_dir,
					   .image = s->place.root[0] ? s->place.root : NULL,
					   .python = s->config.python,
					   .caches = s->place.caches[0] ? s->place.caches : NULL,
					   .policy = o->policy_only ? NULL : &s->policy,
					   .tool_policy = o->policy_only ? NULL : &s->tool_policy,
					   .tool_egress = s->config.tool_egress,
					   .attached = true,
					   .policy_only = o->policy_only,
					   .gateway_fd = gateway,
					   .key_dir_fd = dir,
					   .bpf_run_time = s->config.bpf_run_time,
					   .pool_size = s->config.pool_size,
					   .session_idle_s = o->session_idle_s,
					   .session_life_s = o->session_life_s,
					   .call_ready_s = o->call_ready_s,
					   .agent_idle_s = o->agent_idle_s,
					   .agents_called = o->agents_called,
					   .window_s = o->window_s,
					   .fault = o->fault,
					   .skip = o->skip};
	struct supervisor *sup = NULL;
	struct err e2;
	const char *text;
	int rc = supervisor_new(&sup, &config, w->sup_auditor, e), rc2;

	w->sup_auditor = -1;
	for (size_t i = 0; rc == 0 && (text = supervisor_warning(sup, i)); i++)
		log_warn("%s", text);
	if (rc == 0) {
		rc = supervisor_add_client(sup, w->sup_client, e);
		w->sup_client = -1;
	}
	if (rc == 0)
		rc = note_url(&s->config, instance, where, e);
	if (rc == 0) {
		for (int i = 0; i < CHILDREN; i++)
			if (children[i].pid > 0)
				supervisor_watch_child(sup, children[i].pid, children[i].name);
		rc = supervisor_run(sup, e);
		instance_forget_url(instance);
	}
	rc2 = supervisor_free(sup, &e2);
	if (rc == 0 && rc2 < 0) {
		*e = e2;
		rc = rc2;
	}
	return rc;
}

static int serve(struct service *s, const struct options *o, struct err *e)
{
	struct child children[CHILDREN] = {{"api", -1}, {"auditor", -1}, {"collector", -1}, {"gateway", -1}};
	_cleanup_fd_ int dir = -1, listener = -1, gateway = -1;
	char instance[INSTANCE_NAME_MAX], where[NI_MAXHOST + NI_MAXSERV + 8];
	const struct config *c = &s->config;
	struct stat socket_file;
	const struct image_wish wish = {
	    .image = c->image, .python = c->python, .state_dir = c->state_dir, .prime = c->image != NULL};
	struct wiring w;
	int rc;

	log_init("supervisor", LOG_LVL_INFO);
	if (c->file)
		log_info("configuration: %s", c->file);
	else
		log_info("configuration: none (there is no " CONFIG_FILE_DEFAULT ")");
	if ((rc = launch_state_dir(c->state_dir, &dir, e)) < 0 || (rc = instance_check_free(c->state_dir, e)) < 0 ||
	    (!o->policy_only && (rc = place_image(&wish, &s->place, e)) < 0) ||
	    (rc = listener_open(c->listen, &s->rules, &listener, e)) < 0 || (rc = wiring_make(&w, e)) < 0)
		return rc;
	if (o->policy_only)
		wiring_no_collector(&w);
	listener_note(c->listen, &socket_file);
	instance_name(c->state_dir, instance);
	listener_name(listener, c->listen, where, sizeof where);
	launch_block_signals();
	rc = launch_children(s, o, &w, dir, &listener, &gateway, children, e);
	if (rc == 0) {
		say_what_starts(s, o, where);
		rc = supervise(s, o, &w, TAKE_FD(gateway), dir, children, instance, where, e);
	}
	wiring_close(&w);
	end_children(children);
	listener_remove(c->listen, &socket_file);
	if (rc == 0)
		log_info(o->policy_only ? "stopped; policies that were put on what runs stay in force"
					: "stopped; nothing is left running");
	return rc;
}

/* From here on only its digest is known, and the list of processes does not show it any more. */
static int forget_token(struct options *o, struct err *e)
{
	if (!token_text_ok(o->dev_token, strlen(o->dev_token)))
		return err_set(e, EINVAL, "--dev-token",
			       "a token has 1 to %d characters of A-Z a-z 0-9 - . _ ~ + / =", TOKEN_TEXT_MAX);
	token_digest(o->dev_token, strlen(o->dev_token), o->dev_token_sha256);
	memset(o->dev_token, 'x', strlen(o->dev_token));
	return 0;
}

int serve_cmd(int argc, char **argv)
{
	struct options o = {0};
	struct service s = {0};
	struct err e = {0};
	int rc = 0;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (!o.check)
		rc = cli_need_root(&e);
	if (rc == 0 && o.dev_token)
		rc = forget_token(&o, &e);
	if (rc == 0)
		rc = settle(&o, &s.config, &e);
	if (rc == 0)
		rc = prepare(&s, &o, &e);
	if (rc == 0)
		rc = o.check ? check_only(&s, &o, &e) : serve(&s, &o, &e);
	if (rc < 0)
		config_blame(&s.config, &e);
	service_clear(&s);
	config_clear(&o.given);
	if (rc < 0)
		cli_fail(&e);
	return rc == 0 ? 0 : o.check ? 1 : EXIT_WEIR;
}
