/* SPDX-License-Identifier: Apache-2.0 */
/* `weir doctor`: what this host can enforce, each thing tried, none guessed, and what would mend it. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attach/preflight.h"
#include "cli/cli.h"
#include "cli/config_load.h"
#include "cli/listener.h"
#include "cli/look.h"
#include "cli/tlsfile.h"
#include "cli/tokenfile.h"
#include "core/cleanup.h"
#include "core/log.h"
#include "filter.h"
#include "gateway/gateway.h"
#include "kernel/cgroup.h"
#include "kernel/guard.h"
#include "kernel/meter.h"
#include "python.h"
#include "supervisor/supervisor.h"

#define TEXT_MAX 1100
#define ROWS_MAX 48
#define KERNEL_MAJOR 6
#define KERNEL_MINOR 1

enum grade { PASS, CAUTION, FAIL };
static const char *const grade_names[] = {"PASS", "CAUTION", "FAIL"};
static const char *const grade_colours[] = {"\033[32m", "\033[33m", "\033[31m"};

struct row {
	const char *layer;
	char what[64];
	enum grade grade;
	char text[TEXT_MAX]; /* what was found, and for CAUTION and FAIL what would mend it */
};

struct report {
	struct row rows[ROWS_MAX];
	size_t count;
};

static void add(struct report *r, const char *layer, const char *what, enum grade grade, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
static void add(struct report *r, const char *layer, const char *what, enum grade grade, const char *fmt, ...)
{
	struct row *row = &r->rows[r->count];
	va_list ap;

	if (r->count == ROWS_MAX)
		return;
	r->count++;
	row->layer = layer;
	snprintf(row->what, sizeof row->what, "%s", what);
	row->grade = grade;
	va_start(ap, fmt);
	vsnprintf(row->text, sizeof row->text, fmt, ap);
	va_end(ap);
}

/* ---- the checks ---- */

static void check_kernel(struct report *r)
{
	struct utsname u;
	int major = 0, minor = 0;
	bool new_enough;

	uname(&u);
	sscanf(u.release, "%d.%d", &major, &minor);
	new_enough = major > KERNEL_MAJOR || (major == KERNEL_MAJOR && minor >= KERNEL_MINOR);
	add(r, "kernel", "version", new_enough ? PASS : FAIL, "%s%s", u.release,
	    new_enough ? "" : ": Weir needs 6.1 or newer; install the distribution's current kernel");
	if (strcmp(u.machine, "x86_64"))
		add(r, "kernel", "architecture", FAIL, "%s: this version knows x86-64 alone", u.machine);
	if (access("/sys/kernel/btf/vmlinux", R_OK) == 0)
		add(r, "kernel", "type information", PASS, "/sys/kernel/btf/vmlinux");
	else
		add(r, "kernel", "type information", FAIL,
		    "no /sys/kernel/btf/vmlinux: use a kernel with CONFIG_DEBUG_INFO_BTF=y");
}

static bool check_cgroups(struct report *r, struct cgroup_host *host)
{
	struct err e;

	if (cgroup_host_find(host, &e) < 0) {
		add(r, "cgroup", "hierarchies", FAIL, "%s", e.msg);
		return false;
	}
	add(r, "cgroup", "cgroup2", PASS, "at %s", host->v2_path);
	for (int c = 0; c < CG_CONTROLLERS; c++)
		add(r, "cgroup", cgroup_controller_names[c], PASS, "%s",
		    host->v2_has[c] ? "through cgroup2" : host->v1_path[c]);
	return true;
}

struct program_ctx {
	struct report *r;
	unsigned loaded, failed;
};

static void on_program(void *ctx, const char *prog, int rc, const char *why)
{
	struct program_ctx *p = ctx;

	p->loaded += rc == 0;
	p->failed += rc < 0;
	if (rc < 0)
		add(p->r, "policy", prog, FAIL, "%s: %s", strerror(-rc), why[0] ? why : "the kernel refused the program");
}

static void check_programs(struct report *r)
{
	struct program_ctx p = {.r = r};
	struct err e = {0};

	if (guard_probe(on_program, &p, &e) < 0)
		add(r, "policy", "eBPF programs", FAIL, "%s", e.msg);
	else if (!p.failed)
		add(r, "policy", "eBPF programs", PASS, "%u loaded", p.loaded);
}

/* What counts each run's use: a service does not start without it. */
static void check_meter(struct report *r)
{
	uint32_t ids[METER_PROGRAMS], loaded = 0;
	struct meter *m = NULL;
	struct err e;

	if (meter_open(&m, &e) < 0) {
		add(r, "meter", "eBPF programs", FAIL, "%s", e.msg);
		return;
	}
	meter_programs(m, ids);
	for (int i = 0; i < METER_PROGRAMS; i++)
		loaded += ids[i] != 0;
	add(r, "meter", "eBPF programs", PASS, "%u loaded", loaded);
	meter_free(m);
}

/* Whose programs a cgroup below the root would meet, and whether they leave room for ours. */
static int look_at_others(const struct guard *g, const char *name, struct preflight *ret, struct err *e)
{
	uint32_t own[GUARD_HOOKS];
	struct target t = {.kind = TARGET_CGROUP, .fd = -1};
	struct target_roots roots;
	char room[256];
	int rc = target_host_roots(&roots, room, e);

	if (rc < 0)
		return rc;
	snprintf(t.path, sizeof t.path, "/" CGROUP_TOP "/%s", name);
	guard_programs(g, own);
	return preflight_look(&t, &roots, own, GUARD_HOOKS, ret, e);
}

/* As on a cgroup of somebody else's: programs of its own there, none of them Weir's other ones. */
static int try_attach(const struct cgroup_host *host, const char *name, struct preflight *ret, struct err *e)
{
	struct cgroup_instance in;
	struct guard *g = NULL;
	char pins[128];
	int rc = cgroup_instance_open(&in, host, name, e);

	if (rc < 0)
		return rc;
	snprintf(pins, sizeof pins, PIN_DIR "/%s", name);
	{
		const struct guard_opts opts = {.pin_dir = pins,
						.cgroup_fd = in.v2_fd,
						.level = in.level - 1,
						.whole = true,
						.sandboxes_max = 1,
						.ring_bytes = 1u << 16};

		rc = guard_create(&g, &opts, e);
	}
	if (rc == 0)
		rc = guard_verify(g, in.v2_fd, e);
	if (rc == 0)
		rc = look_at_others(g, name, ret, e);
	guard_free(g);
	(void)guard_unpin(pins, &(struct err){0});
	cgroup_instance_close(&in);
	(void)cgroup_instance_remove(host, name, &(struct err){0});
	return rc;
}

/* Snippets have a row of their own: this is about policies on what is not Weir's. */
static void check_attach(struct report *r, const struct cgroup_host *host)
{
	struct preflight *others = calloc(1, sizeof *others);
	_cleanup_fd_ int lock = -1;
	struct err e = {0};
	char name[32], who[200] = "";
	int rc;

	if (!others) {
		add(r, "policy", "policies attached", CAUTION, "out of memory");
		return;
	}
	snprintf(name, sizeof name, "doctor-%d", getpid());
	/* Nobody's sweep takes it for what a dead instance left. */
	rc = supervisor_lock(&lock, &e);
	if (rc == 0)
		rc = try_attach(host, name, others, &e);
	for (size_t i = 0; rc == 0 && i < others->count && strlen(who) < sizeof who / 2; i++)
		snprintf(who + strlen(who), sizeof who - strlen(who), "%s%s (%s) on %.40s", i ? ", " : "",
			 others->foreign[i].prog[0] ? others->foreign[i].prog : "a program", others->foreign[i].hook,
			 others->foreign[i].path);
	if (rc < 0)
		add(r, "policy", "policies attached", CAUTION, "`weir attach` would fail below the root cgroup: %s", e.msg);
	else if (others->count)
		add(r, "policy", "policies attached", PASS,
		    "in force on a cgroup of its own; %zu program(s) of others run beside: %s%s",
		    others->count + others->beyond, who, others->count + others->beyond > 1 ? ", …" : "");
	else
		add(r, "policy", "policies attached", PASS, "in force on a cgroup of its own; nobody else has programs above");
	free(others);
}

static void check_filter(struct report *r)
{
	_cleanup_fd_ int fd = -1;
	uint32_t len = 0;
	struct err e;

	if (filter_compile(FILTER_SNIPPET, &fd, &len, &e) < 0)
		add(r, "seccomp", "filter", FAIL, "%s", e.msg);
	else if (prctl(PR_GET_SECCOMP) < 0)
		add(r, "seccomp", "filter", FAIL, "a kernel without seccomp: use one with CONFIG_SECCOMP_FILTER=y");
	else
		add(r, "seccomp", "filter", PASS, "%u instructions", len);
}

static void check_python(struct report *r, const char *configured)
{
	struct python py;
	struct err e;

	if (python_find(configured, &py, &e) < 0)
		add(r, "interpreter", "Python", FAIL, "%s", e.msg);
	else if (strncmp(py.version, PYTHON_WANTED, strlen(PYTHON_WANTED)))
		add(r, "interpreter", "Python", CAUTION,
		    "%s (%s): the contract's version is " PYTHON_WANTED "; install it or name one with --python", py.version,
		    py.executable);
	else
		add(r, "interpreter", "Python", PASS, "%s (%s)", py.version, py.executable);
}

static void check_core_pattern(struct report *r)
{
	char text[256] = "";
	_cleanup_fd_ int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

	text[n > 0 ? n : 0] = 0;
	text[strcspn(text, "\n")] = 0;
	add(r, "limits", "core dumps", PASS, "%s; off in a sandbox either way (RLIMIT_CORE is 1, and may not be changed)",
	    text[0] == '|' ? "the host pipes them to a helper" : "the host writes them to a file");
}

/* Snippets do without: it is agents' tools that can't run. */
static void check_way_out(struct report *r)
{
	char version[32];
	struct err e;

	if (gateway_probe(version, &e) == 0)
		add(r, "network", "way out of tools", PASS, "a device for each sandbox, and libslirp %s", version);
	else
		add(r, "network", "way out of tools", CAUTION,
		    "%s: agents' tools can't run; %s. \"tool_calls\": {\"allow_internet_egress\": false} lets them run without",
		    e.msg,
		    e.code == EPERM ? "allow the device (character device 10:200) to this container"
				    : "load the kernel's module tun (modprobe tun; a container needs the device 10:200)");
}

/* What a service started now would be told. Returns whether it could be read: *ret is whole then. */
static bool check_configuration(struct report *r, const char *file, struct config *ret)
{
	const struct config none = {0};
	struct err e;

	if (config_load(file, ret, &e) < 0 || config_merge(ret, &none, &e) < 0 || config_check(ret, &e) < 0) {
		add(r, "service", "configuration", FAIL, "%s", e.msg);
		return false;
	}
	if (ret->file)
		add(r, "service", "configuration", PASS, "%s", ret->file);
	else
		add(r, "service", "configuration", PASS, "none: there is no " CONFIG_FILE_DEFAULT);
	return true;
}

static void check_place(struct report *r, const struct config *c)
{
	const struct listener_rules rules = {.protected = c->plaintext || c->tls_key};
	struct err e;

	if (listener_check(c->listen, &rules, &e) < 0)
		add(r, "service", "address", FAIL, "%s", e.msg);
	else
		add(r, "service", "address", PASS, "%s; whether it is free is not tried", c->listen);
	if (look_state_dir(c->state_dir, &e) < 0)
		add(r, "service", "state directory", FAIL, "%s", e.msg);
	else
		add(r, "service", "state directory", PASS, "%s", c->state_dir);
}

static void check_tls(struct report *r, const struct config *c)
{
	struct tlsfile t = {NULL, NULL};
	const char *warning = NULL;
	struct err e;

	if (!c->tls_key)
		return;
	if (tlsfile_load(c->tls_certificate, c->tls_key, &t, &warning, &e) < 0)
		add(r, "service", "TLS", FAIL, "%s", e.msg);
	else
		add(r, "service", "TLS", warning ? CAUTION : PASS, "%s",
		    warning ? warning : "certificate and key belong together");
	tlsfile_clear(&t);
}

static void check_tokens(struct report *r, const struct config *c)
{
	_cleanup_fd_ int dir = open(c->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct tokenfile t = {NULL, NULL, -1};
	struct err e = {0};
	unsigned active = 0;
	bool usual = !strcmp(c->state_dir, DEFAULT_STATE_DIR);
	int rc = dir < 0 ? err_errno(&e, errno, "", "open %s", c->state_dir)
			 : tokenfile_open(dir, c->state_dir, TOKENFILE_LIST, &t, &e);

	if (rc == 0)
		active = tokens_active(t.file, time(NULL));
	tokenfile_close(&t);
	if (rc < 0 && rc != -ENOENT)
		add(r, "service", "tokens", FAIL, "%s", e.msg);
	else if (!active)
		add(r, "service", "tokens", CAUTION,
		    "none is active in %s: `weir token mint --project NAME%s%s` makes one, for a service started without "
		    "--dev-token",
		    c->state_dir, usual ? "" : " --state-dir ", usual ? "" : c->state_dir);
	else
		add(r, "service", "tokens", PASS, "%u active", active);
}

/*
 * The proof: a whole sandbox, built step by step as the service builds one; each step that fails names its layer. In a child,
 * since a supervisor changes its mount namespace.
 */
static void check_sandbox(struct report *r, const char *python, const char *config)
{
	const char *code =
	    "import socket\ntry:\n socket.getaddrinfo('doctor.invalid', 80)\nexcept socket.gaierror:\n print(6*7)\n";
	char *argv[9] = {(char *)"weir run", (char *)"--json", (char *)"-c", (char *)code};
	int argc = 4;
	char out[16384] = "", problem[TEXT_MAX] = "";
	int p[2], q[2], status;
	size_t used = 0;
	ssize_t n;
	json_t *j;
	pid_t pid;

	if (python) {
		argv[argc++] = (char *)"--python";
		argv[argc++] = (char *)python;
	}
	if (config) {
		argv[argc++] = (char *)"--config";
		argv[argc++] = (char *)config;
	}
	if (pipe2(p, O_CLOEXEC) < 0 || pipe2(q, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
		add(r, "sandbox", "one whole sandbox", FAIL, "%s", strerror(errno));
		return;
	}
	if (pid == 0) {
		dup2(p[1], STDOUT_FILENO);
		dup2(q[1], STDERR_FILENO);
		_exit(run_cmd(argc, argv));
	}
	close(p[1]);
	close(q[1]);
	while (used < sizeof out - 1 && (n = read(p[0], out + used, sizeof out - 1 - used)) > 0)
		used += (size_t)n;
	n = read(q[0], problem, sizeof problem - 1);
	problem[n > 0 ? n : 0] = 0;
	problem[strcspn(problem, "\n")] = 0;
	close(p[0]);
	close(q[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	j = json_loads(out, 0, NULL);
	if (!j) {
		add(r, "sandbox", "one whole sandbox", FAIL, "%s", problem[0] ? problem : "it gave no answer");
		return;
	}
	if (strcmp(json_string_value(json_object_get(j, "stdout")) ? json_string_value(json_object_get(j, "stdout")) : "",
		   "42\n"))
		add(r, "sandbox", "one whole sandbox", FAIL, "it ran, but did not print 42: %.300s",
		    json_string_value(json_object_get(j, "stderr")));
	else
		add(r, "sandbox", "one whole sandbox", PASS, "built, proven, ran");
	{
		json_t *first = json_array_get(json_object_get(json_object_get(j, "egress"), "destinations"), 0);
		const char *name = json_string_value(json_object_get(first, "dns_name"));
		const char *verdict = json_string_value(json_object_get(first, "verdict"));

		if (name && verdict && !strcmp(name, "doctor.invalid") && !strcmp(verdict, "denied"))
			add(r, "policy", "DNS from a snippet", PASS, "denied at once, and the audit has the name");
		else
			add(r, "policy", "DNS from a snippet", FAIL, "the query was not denied and named: report this");
	}
	json_decref(j);
}

/* ---- output ---- */

static void print_text(const struct report *r)
{
	bool colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");

	for (size_t i = 0; i < r->count; i++) {
		const struct row *row = &r->rows[i];

		printf("%s%-7s%s %-11s %-22s %s\n", colour ? grade_colours[row->grade] : "", grade_names[row->grade],
		       colour ? "\033[0m" : "", row->layer, row->what, row->text);
	}
}

static void print_json(const struct report *r, bool ok)
{
	json_t *checks = json_array(), *top = json_object();

	for (size_t i = 0; i < r->count; i++)
		json_array_append_new(checks,
				      json_pack("{s:s, s:s, s:s, s:s}", "layer", r->rows[i].layer, "check", r->rows[i].what,
						"result", grade_names[r->rows[i].grade], "text", r->rows[i].text));
	json_object_set_new(top, "ok", json_boolean(ok));
	json_object_set_new(top, "checks", checks);
	json_dumpf(top, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(top);
}

struct options {
	bool json;
	const char *python, *config;
};

static const struct argp_option option_table[] = {
    {"json", 'j', 0, 0, "print the result for machines", 0},
    {"python", 'p', "FILE", 0, "the interpreter to try (default: as `weir serve` looks for one)", 0},
    {"config", 'c', "FILE", 0, "the configuration (default: " CONFIG_FILE_DEFAULT ", if it is there)", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'j':
		o->json = true;
		return 0;
	case 'p':
		o->python = arg;
		return 0;
	case 'c':
		o->config = arg;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const char doc[] = "Try what this host can enforce, and say what to mend."
			  "\vExamples:\n  sudo weir doctor\n  sudo weir doctor --json\n\n"
			  "Exit status 0 only if every layer that the default policy needs is there. No sandbox stays behind.";
static const struct argp argp = {option_table, parse, NULL, doc, NULL, NULL, NULL};

int doctor_cmd(int argc, char **argv)
{
	struct options o = {0};
	struct report *r = calloc(1, sizeof *r);
	_cleanup_config_ struct config config = {0};
	struct cgroup_host host;
	struct err e;
	bool ok = true, cgroups;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (!r)
		return EXIT_WEIR;
	if (cli_need_root(&e) < 0) {
		free(r);
		return cli_fail(&e);
	}
	check_kernel(r);
	cgroups = check_cgroups(r, &host);
	check_programs(r);
	check_meter(r);
	if (cgroups)
		check_attach(r, &host);
	check_filter(r);
	check_core_pattern(r);
	check_way_out(r);
	if (check_configuration(r, o.config, &config)) {
		check_place(r, &config);
		check_tls(r, &config);
		check_tokens(r, &config);
		if (!config.image)
			check_python(r, o.python ? o.python : config.python);
		check_sandbox(r, o.python, o.config);
	}
	for (size_t i = 0; i < r->count; i++)
		ok = ok && r->rows[i].grade != FAIL;
	if (o.json)
		print_json(r, ok);
	else
		print_text(r);
	free(r);
	if (cli_flush(&e) < 0)
		return cli_fail(&e);
	return ok ? 0 : 1;
}
