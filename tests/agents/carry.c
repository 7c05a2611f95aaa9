/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way out of a tool's sandbox, without the sandbox: a network namespace with a tap as init makes it, the gateway, and one
 * carrier in a cgroup of its own, with or without a policy there. A command runs in that namespace, under no policy at all.
 *
 *   carry [-p POLICY] [-m BYTES] [-n SOCKETS] [-o FILE] -- COMMAND…
 *
 * What it took, and what the carrier's policy saw, is written to FILE as JSON. Exits with the command's status. Needs root.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"
#include "gateway/gateway.h"
#include "init_steps.h"
#include "kernel/inforce.h"
#include "supervisor/internal.h"

#define CARRIER_UID 0x7f100000u

char init_detail[96];

static struct {
	const char *policy, *out;
	uint64_t memory;
	unsigned sockets;
	struct cgroup_instance cgroups;
	struct cgroup_box box;
	struct guard *guard;
	struct inforce inforce;
	char name[64], pins[128];
	int gateway, control;
	pid_t gateway_pid, command_pid;
	json_t *events;
	struct carrying carrying;
	double carry_ms;
} rig = {.memory = LIMIT_WAY_OUT_MEMORY_BYTES, .sockets = LIMIT_WAY_OUT_SOCKETS};

static void __attribute__((noreturn)) die(const char *what, const struct err *e)
{
	fprintf(stderr, "carry: %s: %s\n", what, e && e->msg[0] ? e->msg : strerror(errno));
	cgroup_box_kill(&rig.box);
	if (rig.guard)
		guard_unpin(rig.pins, NULL);
	exit(125);
}

static double ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

/* ---- the host's side ---- */

static void start_gateway(void)
{
	int sv[2];
	pid_t self = getpid();

	if (ipc_pair(sv, 1 << 20) < 0)
		die("socket pair", NULL);
	rig.gateway_pid = fork();
	if (rig.gateway_pid == 0) {
		const struct gateway_config config = {.supervisor_fd = sv[1], .parent = self};

		close(sv[0]);
		_exit(gateway_main(&config));
	}
	close(sv[1]);
	rig.gateway = sv[0];
}

/* An instance of its own, so that a service that starts meanwhile does not take it for one that died. */
static void claim(void)
{
	char path[192];
	int fd;

	snprintf(rig.name, sizeof rig.name, "run-carry-%d", getpid());
	snprintf(rig.pins, sizeof rig.pins, PIN_DIR "/%s", rig.name);
	snprintf(path, sizeof path, RUN_DIR "/%s", rig.name);
	(void)mkdir(RUN_DIR, 0755);
	if (mkdir(path, 0700) < 0)
		die("run directory", NULL);
	snprintf(path, sizeof path, RUN_DIR "/%s/lock", rig.name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		die("lock", NULL);
}

static void unclaim(void)
{
	char path[192];

	snprintf(path, sizeof path, RUN_DIR "/%s/lock", rig.name);
	unlink(path);
	snprintf(path, sizeof path, RUN_DIR "/%s", rig.name);
	rmdir(path);
}

static void make_cgroup(void)
{
	const struct cgroup_limits limits = {.memory_bytes = rig.memory, .cpu_percent = 100, .cpu_weight = 100, .pids = 1};
	struct cgroup_host host;
	struct err e = {0};

	if (cgroup_host_find(&host, &e) < 0 || cgroup_instance_open(&rig.cgroups, &host, rig.name, &e) < 0 ||
	    cgroup_box_make_v2(&rig.box, &rig.cgroups, "one.out", &e) < 0 ||
	    cgroup_box_limit_v2(&rig.box, &rig.cgroups, &limits, &e) < 0 ||
	    cgroup_box_make_v1(&rig.box, &rig.cgroups, &limits, &e) < 0)
		die("cgroup", &e);
}

/* As the supervisor does it: the document with the host's own name servers. */
static void set_policy(void)
{
	struct guard_opts opts = {.pin_dir = rig.pins, .cgroup_fd = rig.cgroups.v2_fd, .level = rig.cgroups.level};
	struct err e = {0};

	if (guard_create(&rig.guard, &opts, &e) < 0 || inforce_load(&rig.inforce, rig.policy, &e) < 0 ||
	    inforce_apply(&rig.inforce, rig.guard, SLOT_CARRIER, &e) < 0 ||
	    guard_set_sandbox(rig.guard, rig.box.id, SLOT_CARRIER, 0, &e) < 0)
		die("policy", &e);
}

static void carry(int tap)
{
	struct carry job = {.req = rig.box.id, .uid = CARRIER_UID, .nofile = CARRIER_FDS_OWN + rig.sockets};
	int fds[2 + CG_CONTROLLERS] = {rig.box.v2_fd, tap};
	struct err e = {0};
	int tasks = cgroup_box_tasks(&rig.box, fds + 2, &e);
	double began;
	ssize_t n;

	if (tasks < 0)
		die("tasks", &e);
	job.v1_count = (uint32_t)tasks;
	began = ms();
	if (ipc_send(rig.gateway, &job, sizeof job, fds, 2 + (size_t)tasks) < 0)
		die("ask the gateway", NULL);
	while ((n = ipc_recv(rig.gateway, &rig.carrying, sizeof rig.carrying, NULL, NULL)) == -EAGAIN)
		usleep(100);
	rig.carry_ms = ms() - began;
	for (int i = 0; i < tasks; i++)
		close(fds[2 + i]);
	close(tap);
	if (n != (ssize_t)sizeof rig.carrying || rig.carrying.status < 0) {
		errno = n == (ssize_t)sizeof rig.carrying ? -rig.carrying.status : EPIPE;
		fprintf(stderr, "carry: %s\n", rig.carrying.text);
		die("carry", NULL);
	}
}

/* ---- the sandbox's ---- */

static void plan(struct init_plan *p)
{
	struct cidr servers[RESOLVCONF_SERVERS];
	struct netenv env;
	struct err e = {0};
	size_t n;

	memset(p, 0, sizeof *p);
	if (netenv_read(&env, NULL, &e) < 0)
		die("host's network", &e);
	n = wayout_servers(&env, servers);
	for (size_t i = 0; i < n; i++) {
		char text[CIDR_TEXT_MAX];

		cidr_text(text, &servers[i], true);
		snprintf(p->resolvers[i], sizeof p->resolvers[i], "%.45s", text);
	}
	p->ipv6 = env.ipv6_out;
	netenv_clear(&env);
}

static void __attribute__((noreturn)) sandbox(char **command, int control)
{
	char path[] = "/tmp/carry-resolv-XXXXXX", go;
	struct init_plan p;
	int tap = -1, file;

	plan(&p);
	if (unshare(CLONE_NEWNET | CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		die("namespaces", NULL);
	if (init_tap(&p, &tap) < 0)
		die(init_detail, NULL);
	file = mkstemp(path);
	for (int i = 0; i < 3 && p.resolvers[i][0]; i++)
		dprintf(file, "nameserver %s\n", p.resolvers[i]);
	dprintf(file, "options timeout:2 attempts:1\n");
	fchmod(file, 0644);
	close(file);
	if (mount(path, "/etc/resolv.conf", NULL, MS_BIND, NULL) < 0)
		die("resolv.conf", NULL);
	unlink(path);
	if (ipc_send(control, "t", 1, &tap, 1) < 0)
		die("hand over the tap", NULL);
	close(tap);
	if (recv(control, &go, 1, 0) != 1)
		exit(125);
	close(control);
	execvp(command[0], command);
	die(command[0], NULL);
}

/* ---- afterwards ---- */

static long status_kib(const char *file, const char *key)
{
	char path[64], line[256];
	_cleanup_file_ FILE *f = NULL;
	long sum = 0, value;

	snprintf(path, sizeof path, "/proc/%d/%s", rig.carrying.pid, file);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, key, strlen(key)) && sscanf(line + strlen(key), ": %ld", &value) == 1)
			sum += value;
	return sum;
}

static void on_event(void *ctx, const struct weir_event *ev)
{
	struct note_judged unused = {0};
	char to[INET6_ADDRSTRLEN] = "";
	const bool v4 = ev->key.family == 4;

	(void)ctx;
	(void)unused;
	inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? ev->key.daddr + 12 : ev->key.daddr, to, sizeof to);
	json_array_append_new(rig.events,
			      json_pack("{s:s, s:i, s:i, s:b, s:s}", "address", to, "port", ntohs(ev->key.dport_be), "protocol",
					ev->key.protocol, "allowed", ev->key.verdict == WEIR_ALLOW, "rule",
					ev->key.rule ? rig.inforce.policy->rules[ev->key.rule - 1].name : ""));
}

static void write_report(int status, long rss, long private_kib, bool alive)
{
	struct cgroup_usage u;
	json_t *j;

	if (rig.guard)
		guard_drain(rig.guard, 1 << 16, on_event, NULL);
	cgroup_box_usage(&rig.box, &rig.cgroups, &u);
	j = json_pack("{s:f, s:I, s:I, s:b, s:i, s:I, s:I, s:O}", "carry_ms", rig.carry_ms, "rss_kib", (json_int_t)rss,
		      "private_kib", (json_int_t)private_kib, "alive", alive, "status", status, "cpu_us", (json_int_t)u.cpu_us,
		      "peak", (json_int_t)u.memory_peak, "events", rig.events);
	if (rig.out && json_dump_file(j, rig.out, 0) < 0)
		fprintf(stderr, "carry: can't write %s\n", rig.out);
	json_decref(j);
}

static void clean_up(void)
{
	struct err e = {0};

	cgroup_box_kill(&rig.box);
	for (int i = 0; i < 500 && cgroup_box_remove(&rig.box, &rig.cgroups) < 0; i++)
		usleep(2000);
	close(rig.gateway);
	waitpid(rig.gateway_pid, NULL, 0);
	inforce_clear(&rig.inforce);
	if (rig.guard) {
		guard_free(rig.guard);
		if (guard_unpin(rig.pins, &e) < 0)
			fprintf(stderr, "carry: %s\n", e.msg);
	}
	cgroup_instance_close(&rig.cgroups);
	if (cgroup_instance_remove(&rig.cgroups.host, rig.name, &e) < 0)
		fprintf(stderr, "carry: %s\n", e.msg);
	unclaim();
}

static void start_command(char **command)
{
	int sv[2], tap = -1;
	size_t count = 1;
	char word;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		die("socket pair", NULL);
	rig.command_pid = fork();
	if (rig.command_pid == 0) {
		close(sv[0]);
		sandbox(command, sv[1]);
	}
	close(sv[1]);
	if (ipc_recv(sv[0], &word, 1, &tap, &count) != 1 || count != 1)
		die("the tap does not come", NULL);
	carry(tap);
	rig.control = sv[0];
}

int main(int argc, char **argv)
{
	int option, status = 0;
	long rss, private_kib;

	while ((option = getopt(argc, argv, "+p:m:n:o:")) > 0) {
		if (option == 'p')
			rig.policy = optarg;
		else if (option == 'm')
			rig.memory = strtoull(optarg, NULL, 10);
		else if (option == 'n')
			rig.sockets = (unsigned)atoi(optarg);
		else if (option == 'o')
			rig.out = optarg;
		else
			return 2;
	}
	if (optind == argc)
		return 2;
	log_init("carry", LOG_LVL_INFO);
	rig.events = json_array();
	cgroup_box_init(&rig.box);
	claim();
	start_gateway();
	make_cgroup();
	if (rig.policy)
		set_policy();
	start_command(argv + optind);
	if (send(rig.control, "g", 1, 0) != 1)
		die("let the command go", NULL);
	waitpid(rig.command_pid, &status, 0);
	rss = status_kib("status", "VmRSS");
	private_kib = status_kib("smaps_rollup", "Private_Dirty");
	write_report(status, rss, private_kib, kill(rig.carrying.pid, 0) == 0 && status_kib("status", "VmRSS") > 0);
	clean_up();
	json_decref(rig.events);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
