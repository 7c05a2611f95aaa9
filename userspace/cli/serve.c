/* SPDX-License-Identifier: Apache-2.0 */
/* `weir serve`: the supervisor, with the api and the auditor as children that have given up root. */
#include <argp.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/api.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "core/cleanup.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/token.h"

#define BACKLOG 512

struct options {
	const char *listen, *state_dir, *policy, *python;
	char *dev_token;
	uint8_t dev_token_sha256[TOKEN_DIGEST_LEN];
	bool plaintext;
	unsigned pool;
	enum plan_step fault, skip;
	struct err bad;
};

enum { KEY_LISTEN = 256, KEY_STATE, KEY_TOKEN, KEY_POLICY, KEY_PYTHON, KEY_PLAIN, KEY_POOL, KEY_FAULT, KEY_SKIP, KEY_STEPS };

static const struct argp_option option_table[] = {
    {"listen", KEY_LISTEN, "ADDR:PORT", 0, "where to listen: host:port, [v6]:port or unix:/path (default " DEFAULT_LISTEN ")",
     0},
    {"state-dir", KEY_STATE, "DIR", 0, "where the audit record lives (default " DEFAULT_STATE_DIR ")", 0},
    {"dev-token", KEY_TOKEN, "T", 0, "a token with every scope for project `dev`, known to this process alone; loopback only",
     0},
    {"policy", KEY_POLICY, "P", 0,
     "policy of snippets: a file, or the name of a shipped one (default: snippet, which denies everything)", 0},
    {"python", KEY_PYTHON, "FILE", 0, "the interpreter that snippets run on (default: a Python 3.12, else python3)", 0},
    {"pool", KEY_POOL, "N", 0, "sandboxes kept warm (default 3)", 0},
    {"plaintext", KEY_PLAIN, 0, 0, "allow an address that is not loopback although there is no TLS", 0},
#ifdef WEIR_TEST_HOOKS
    {"test-fault", KEY_FAULT, "STEP", 0, "make this set-up step fail in every sandbox", 0},
    {"test-skip", KEY_SKIP, "STEP", 0, "leave this set-up step out in every sandbox", 0},
    {"list-steps", KEY_STEPS, 0, 0, "print the steps and their layers", 0},
#endif
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case KEY_LISTEN:
		o->listen = arg;
		break;
	case KEY_STATE:
		o->state_dir = arg;
		break;
	case KEY_TOKEN:
		o->dev_token = arg;
		break;
	case KEY_POLICY:
		o->policy = arg;
		break;
	case KEY_PYTHON:
		o->python = arg;
		break;
	case KEY_PLAIN:
		o->plaintext = true;
		break;
	case KEY_POOL: {
		char *end;
		long n = strtol(arg, &end, 10);

		if (*end || !*arg || n < 1 || n > LIMIT_SANDBOXES / 2)
			argp_error(state, "--pool must be between 1 and %d", LIMIT_SANDBOXES / 2);
		o->pool = (unsigned)n;
		break;
	}
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
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const char doc[] =
    "Run the service: POST /v1/execute runs one Python snippet in a warm, single-use sandbox."
    "\vExamples:\n"
    "  weir serve --dev-token \"$TOKEN\"\n"
    "  weir serve --listen unix:/run/weir.sock --dev-token \"$TOKEN\"\n\n"
    "SIGTERM stops it in order: running snippets get a moment, then are killed, and nothing is left behind. SIGHUP reads the "
    "policy again: what is wrong with it is logged, and what was in force stays; else the new one binds from the next packet "
    "on, of snippets under way too.";
static const struct argp argp = {option_table, parse, NULL, doc, NULL, NULL, NULL};

/* ---- listening ---- */

static int listen_unix(const char *path, int *ret, struct err *e)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	_cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct stat st;

	if ((size_t)snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path) >= sizeof sa.sun_path)
		return err_set(e, ENAMETOOLONG, "--listen", "a unix socket's path has at most %zu bytes",
			       sizeof sa.sun_path - 1);
	/* A socket that a dead instance left; never anything else. */
	if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) && connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0 &&
	    errno == ECONNREFUSED)
		unlink(path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0 || chmod(path, 0660) < 0 || listen(fd, BACKLOG) < 0)
		return err_errno(e, errno, "--listen", "listen on %s", path);
	*ret = TAKE_FD(fd);
	return 0;
}

static bool is_loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return (ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr) >> 24) == 127;
	return sa->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)sa)->sin6_addr);
}

static bool port_ok(const char *text)
{
	size_t n = strspn(text, "0123456789");

	return n > 0 && n <= 5 && !text[n] && atoi(text) <= 65535;
}

/* What to tell people: port 0 has become a real one. */
static void listening_on(int fd, const char *asked, char *ret, size_t size)
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof sa;
	char host[NI_MAXHOST], port[NI_MAXSERV];

	snprintf(ret, size, "%s", asked);
	if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0 || sa.ss_family == AF_UNIX ||
	    getnameinfo((struct sockaddr *)&sa, len, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV))
		return;
	snprintf(ret, size, sa.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

static int listen_tcp(const struct options *o, int *ret, struct err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_PASSIVE}, *ai = NULL;
	const char *colon = strrchr(o->listen, ':');
	_cleanup_fd_ int fd = -1;
	const int on = 1;
	char host[256];
	size_t n = colon ? (size_t)(colon - o->listen) : 0;
	bool loopback;
	int rc;

	if (!colon || !n || n >= sizeof host || !port_ok(colon + 1))
		return err_set(e, EINVAL, "--listen",
			       "\"%s\" is not ADDR:PORT, [V6]:PORT (port 0 to 65535, 0: any) or unix:/path", o->listen);
	snprintf(host, sizeof host, "%.*s", (int)n, o->listen);
	if (host[0] == '[' && host[n - 1] == ']') {
		host[n - 1] = 0;
		memmove(host, host + 1, n - 1);
	}
	rc = getaddrinfo(host, colon + 1, &hints, &ai);
	if (rc)
		return err_set(e, EINVAL, "--listen", "%s: %s", o->listen, gai_strerror(rc));
	loopback = is_loopback(ai->ai_addr);
	if (!loopback && o->dev_token)
		rc = err_set(e, EPERM, "--dev-token", "%s is not a loopback address; a development token is for loopback alone",
			     host);
	else if (!loopback && !o->plaintext)
		rc = err_set(e, EPERM, "--listen",
			     "%s is not a loopback address and there is no TLS: put a TLS proxy in front, or say --plaintext",
			     host);
	if (rc == 0) {
		fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
		    bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
			rc =
			    errno == EADDRINUSE
				? err_set(
				      e, EADDRINUSE, "--listen",
				      "%s: Address already in use: another program listens there (ss -ltnp says which); choose "
				      "another port",
				      o->listen)
				: err_errno(e, errno, "--listen", "listen on %s", o->listen);
	}
	freeaddrinfo(ai);
	if (rc == 0)
		*ret = TAKE_FD(fd);
	return rc;
}

static int make_listener(const struct options *o, int *ret, struct err *e)
{
	if (!strncmp(o->listen, "unix:", 5))
		return listen_unix(o->listen + 5, ret, e);
	return listen_tcp(o, ret, e);
}

/* ---- processes ---- */

static int launch_api(struct wiring *w, int *listen_fd, struct options *o, pid_t *ret, struct err *e)
{
	pid_t pid = fork();

	if (pid < 0)
		return err_errno(e, errno, "api", "fork the api");
	if (pid == 0) {
		struct api_config config = {
		    .listen_fd = *listen_fd,
		    .supervisor_fd = w->client_sup,
		    .auditor_fd = w->client_auditor,
		    .uid = UID_API,
		    .gid = UID_API,
		    .has_dev_token = o->dev_token != NULL,
		    .log_level = LOG_LVL_INFO,
		};

		memcpy(config.dev_token_sha256, o->dev_token_sha256, sizeof config.dev_token_sha256);
		w->client_sup = w->client_auditor = -1;
		wiring_close(w);
		signal(SIGHUP, SIG_IGN); /* the supervisor stops us in its turn */
		launch_unblock_signals();
		log_init("api", LOG_LVL_INFO);
		_exit(api_main(&config));
	}
	cleanup_fdp(&w->client_sup);
	cleanup_fdp(&w->client_auditor);
	cleanup_fdp(listen_fd);
	w->client_sup = w->client_auditor = *listen_fd = -1;
	*ret = pid;
	return 0;
}

/* One instance per state directory: the same one after a restart, so that it finds what an earlier life left. */
static void instance_name(const char *state_dir, char *ret, size_t size)
{
	char real[PATH_MAX];
	uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */

	if (!realpath(state_dir, real))
		snprintf(real, sizeof real, "%s", state_dir);
	if (!strcmp(real, DEFAULT_STATE_DIR)) {
		snprintf(ret, size, "serve");
		return;
	}
	for (const char *p = real; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 0x100000001b3ull;
	snprintf(ret, size, "serve-%08x", (unsigned)(hash ^ hash >> 32));
}

static int serve(struct options *o, struct err *e)
{
	_cleanup_fd_ int dir = -1, listener = -1;
	char python[PATH_MAX];
	struct supervisor_config config = {.python = launch_absolute(o->python, python, sizeof python),
					   .pool_size = o->pool,
					   .fault = o->fault,
					   .skip = o->skip};
	struct supervisor *s = NULL;
	_cleanup_inforce_ struct inforce policy = {0};
	struct wiring w;
	pid_t auditor = -1, api = -1;
	char instance[64], where[NI_MAXHOST + NI_MAXSERV + 8], socket_path[PATH_MAX] = "";
	struct err e2;
	int rc, rc2;

	if (o->python && strchr(o->python, '/') && access(o->python, X_OK) < 0)
		return err_errno(e, errno, "--python", "%s", o->python);
	if ((rc = launch_policy(o->policy, &policy, e)) < 0 || (rc = launch_state_dir(o->state_dir, &dir, e)) < 0 ||
	    (rc = make_listener(o, &listener, e)) < 0 || (rc = wiring_make(&w, e)) < 0)
		return rc;
	/* Found again at the end, when our working directory is another. */
	if (!strncmp(o->listen, "unix:", 5) && !realpath(o->listen + 5, socket_path))
		return err_errno(e, errno, "--listen", "find %s", o->listen + 5);
	instance_name(o->state_dir, instance, sizeof instance);
	config.instance = instance;
	config.state_dir = o->state_dir;
	config.policy = &policy;
	listening_on(listener, o->listen, where, sizeof where);
	log_init("supervisor", LOG_LVL_INFO);
	launch_block_signals();
	rc = launch_auditor(&w, dir, &auditor, e);
	if (rc == 0)
		rc = launch_api(&w, &listener, o, &api, e);
	if (rc == 0) {
		log_info("starting: policy %s, listening on %s", policy.policy->name, where);
		rc = supervisor_new(&s, &config, w.sup_auditor, e);
		w.sup_auditor = -1;
	}
	if (rc == 0) {
		if (supervisor_missing(s)[0])
			log_warn("not on this host, so not in the image either: %s", supervisor_missing(s));
		rc = supervisor_add_client(s, w.sup_client, e);
		w.sup_client = -1;
	}
	if (rc == 0) {
		supervisor_watch_child(s, api, "api");
		supervisor_watch_child(s, auditor, "auditor");
		rc = supervisor_run(s, e);
	}
	rc2 = supervisor_free(s, &e2);
	if (rc == 0 && rc2 < 0) {
		*e = e2;
		rc = rc2;
	}
	wiring_close(&w);
	/* Both have seen the end of their sockets; what does not leave by itself is ended. */
	for (int i = 0; i < 50 && (api > 0 || auditor > 0); i++) {
		if (api > 0 && waitpid(api, NULL, WNOHANG) != 0)
			api = -1;
		if (auditor > 0 && waitpid(auditor, NULL, WNOHANG) != 0)
			auditor = -1;
		if (api > 0 || auditor > 0)
			usleep(20000);
	}
	if (api > 0)
		kill(api, SIGKILL);
	if (auditor > 0)
		kill(auditor, SIGKILL);
	if (socket_path[0])
		unlink(socket_path);
	if (rc == 0)
		log_info("stopped; nothing is left running");
	return rc;
}

/* From here on only its digest is known, and the list of processes does not show it any more. */
static void forget_token(struct options *o)
{
	token_digest(o->dev_token, strlen(o->dev_token), o->dev_token_sha256);
	memset(o->dev_token, 'x', strlen(o->dev_token));
}

int serve_cmd(int argc, char **argv)
{
	struct options o = {.listen = DEFAULT_LISTEN, .state_dir = DEFAULT_STATE_DIR, .pool = LIMIT_POOL_SIZE};
	struct err e = {0};

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (cli_need_root(&e) < 0)
		return cli_fail(&e);
	if (o.dev_token && !token_text_ok(o.dev_token, strlen(o.dev_token))) {
		err_set(&e, EINVAL, "--dev-token",
			"a token has 1 to %d characters of A-Z a-z 0-9 - . _ ~ + / =", TOKEN_TEXT_MAX);
		return cli_fail(&e);
	}
	if (o.dev_token)
		forget_token(&o);
	else
		log_warn("no --dev-token: every request will be refused (start with --dev-token and a random token to use it)");
	return serve(&o, &e) < 0 ? cli_fail(&e) : 0;
}
