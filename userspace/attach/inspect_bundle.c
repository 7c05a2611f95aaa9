/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same look before a container's first instruction, from its OCI bundle. The runtime wrote config.json, from what an image
 * and a pod's author said: it is read as hostile, and whatever is used of it must have the type that the specification gives
 * it. What is missing counts as the runtimes take it: no capabilities, and the host's namespaces.
 *
 * Here a filter of system calls and limits can be there already. They count when they do what the policy asks for, whoever
 * wrote them: each call is looked up as libseccomp would, and what might pass is taken to pass.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <linux/magic.h>
#include <unistd.h>

#include <jansson.h>

#include "attach/inspect_priv.h"
#include "core/cleanup.h"
#include "core/policy_read.h"
#include "core/sysgroups.h"

#define LAYER "coverage"
#define CONFIG_BYTES (4 << 20)

/* ---- typed members: absent is NULL, another type is an error ---- */

static int wrong(struct err *e, const char *path, const char *what)
{
	return err_set(e, EINVAL, LAYER, "config.json of the bundle: %s must be %s", path, what);
}

static int take(const json_t *object, const char *key, const char *path, json_type type, const json_t **ret, struct err *e)
{
	static const char *const words[] = {[JSON_OBJECT] = "an object",    [JSON_ARRAY] = "a list",
					    [JSON_STRING] = "a string",	    [JSON_INTEGER] = "a whole number",
					    [JSON_REAL] = "a whole number", [JSON_TRUE] = "true or false",
					    [JSON_FALSE] = "true or false", [JSON_NULL] = "null"};
	const json_t *v = json_object_get(object, key);

	*ret = json_is_null(v) ? NULL : v;
	if (!*ret || json_typeof(v) == type || (type == JSON_TRUE && json_is_boolean(v)))
		return 0;
	return wrong(e, path, words[type]);
}

/* Numbers are read as doubles: an endless limit is written as 2^64 - 1. What is too large or too small is brought within range.
 */
static int64_t whole(const json_t *v)
{
	double d = json_is_real(v) ? json_real_value(v) : 0;

	return d >= 9.2e18 ? INT64_MAX : d <= -9.2e18 ? INT64_MIN : (int64_t)d;
}

/* A number, 0 when it is absent. */
static int take_whole(const json_t *object, const char *key, const char *path, int64_t *ret, struct err *e)
{
	const json_t *v = NULL;
	int rc = take(object, key, path, JSON_REAL, &v, e);

	*ret = rc == 0 ? whole(v) : 0;
	return rc < 0 || !v || json_real_value(v) == (double)*ret || *ret == INT64_MAX || *ret == INT64_MIN
		   ? rc
		   : wrong(e, path, "a whole number");
}

/* An element of a list of strings. */
static int text_at(const json_t *list, size_t i, const char *path, const char **ret, struct err *e)
{
	*ret = json_string_value(json_array_get(list, i));
	return *ret ? 0 : wrong(e, path, "a list of strings");
}

/* ---- what is read of it ---- */

enum placed { NS_HOSTS, NS_OWN, NS_SOMEBODYS }; /* of a namespace: missing, new, with a path */

struct bundle {
	bool raw, admin, undoing, ptrace; /* capabilities that it has or, without no_new_privs, could get */
	bool now_raw, now_admin;
	const char *undoing_name;
	bool root; /* is or could become root */
	enum placed user, network, pid, cgroup;
	char network_path[PATH_MAX];
	bool maps_root; /* its user namespace has the host's root in it */
	const json_t *seccomp;
	struct inspect_limits limits;
	bundle_holds holds;
	const char *bundle;
	const char *cgroup_mount; /* a cgroup tree, or the pins, that it may write to; NULL */
	char resolv_conf[PATH_MAX];
};

/* ---- process ---- */

static const char *const undoing[] = {"CAP_SYS_ADMIN",	     "CAP_BPF",	     "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_BOOT",
				      "CAP_DAC_READ_SEARCH", "CAP_MAC_ADMIN"};

static void add_capability(struct bundle *b, const char *name, bool now)
{
	if (!strcasecmp(name, "CAP_NET_RAW")) {
		b->raw = true;
		b->now_raw |= now;
	} else if (!strcasecmp(name, "CAP_NET_ADMIN")) {
		b->admin = true;
		b->now_admin |= now;
	} else if (!strcasecmp(name, "CAP_SYS_PTRACE")) {
		b->ptrace = true;
	}
	for (size_t i = 0; i < sizeof undoing / sizeof undoing[0]; i++)
		if (!b->undoing && !strcasecmp(name, undoing[i])) {
			b->undoing = true;
			b->undoing_name = undoing[i] + 4;
		}
}

static int read_capabilities(const json_t *process, bool no_new_privs, struct bundle *b, struct err *e)
{
	/* Inheritable ones are no more than a program's file can ask for, of those that are permitted. */
	static const struct {
		const char *set, *path;
		bool now;
	} sets[] = {{"bounding", "/process/capabilities/bounding", false},
		    {"effective", "/process/capabilities/effective", true},
		    {"permitted", "/process/capabilities/permitted", true},
		    {"ambient", "/process/capabilities/ambient", true}};
	const json_t *all = NULL, *list = NULL;
	int rc = take(process, "capabilities", "/process/capabilities", JSON_OBJECT, &all, e);

	for (size_t s = 0; rc == 0 && s < sizeof sets / sizeof sets[0]; s++) {
		rc = take(all, sets[s].set, sets[s].path, JSON_ARRAY, &list, e);
		for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
			const char *name;

			rc = text_at(list, i, sets[s].path, &name, e);
			if (rc == 0 && (sets[s].now || !no_new_privs))
				add_capability(b, name, sets[s].now);
		}
	}
	return rc;
}

static int read_rlimits(const json_t *process, struct bundle *b, struct err *e)
{
	const json_t *list = NULL, *type = NULL;
	int64_t hard = 0;
	int rc = take(process, "rlimits", "/process/rlimits", JSON_ARRAY, &list, e);

	for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
		const json_t *row = json_array_get(list, i);

		if (!json_is_object(row))
			return wrong(e, "/process/rlimits", "a list of objects");
		rc = take(row, "type", "/process/rlimits/type", JSON_STRING, &type, e);
		if (rc == 0)
			rc = take_whole(row, "hard", "/process/rlimits/hard", &hard, e);
		if (rc == 0 && type && hard > 0 && !strcmp(json_string_value(type), "RLIMIT_NOFILE"))
			b->limits.open_files = (uint64_t)hard;
	}
	return rc;
}

static int read_process(const json_t *doc, struct bundle *b, struct err *e)
{
	const json_t *process = NULL, *nnp = NULL, *user = NULL;
	int64_t uid = 0;
	int rc = take(doc, "process", "/process", JSON_OBJECT, &process, e);

	if (rc < 0)
		return rc;
	if (!process)
		return wrong(e, "/process", "there");
	rc = take(process, "noNewPrivileges", "/process/noNewPrivileges", JSON_TRUE, &nnp, e);
	if (rc == 0)
		rc = take(process, "user", "/process/user", JSON_OBJECT, &user, e);
	if (rc == 0)
		rc = take_whole(user, "uid", "/process/user/uid", &uid, e);
	if (rc == 0)
		rc = read_capabilities(process, json_is_true(nnp), b, e);
	if (rc == 0)
		rc = read_rlimits(process, b, e);
	b->root = uid == 0 || !json_is_true(nnp);
	return rc;
}

/* ---- linux ---- */

static int read_namespaces(const json_t *os, struct bundle *b, struct err *e)
{
	const json_t *list = NULL, *type = NULL, *path = NULL;
	int rc = take(os, "namespaces", "/linux/namespaces", JSON_ARRAY, &list, e);

	for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
		const json_t *row = json_array_get(list, i);
		enum placed placed;
		const char *name;

		if (!json_is_object(row))
			return wrong(e, "/linux/namespaces", "a list of objects");
		rc = take(row, "type", "/linux/namespaces/type", JSON_STRING, &type, e);
		if (rc == 0)
			rc = take(row, "path", "/linux/namespaces/path", JSON_STRING, &path, e);
		if (rc < 0)
			return rc;
		placed = path && json_string_length(path) ? NS_SOMEBODYS : NS_OWN;
		name = type ? json_string_value(type) : "";
		if (!strcmp(name, "user"))
			b->user = placed;
		else if (!strcmp(name, "pid"))
			b->pid = placed;
		else if (!strcmp(name, "cgroup"))
			b->cgroup = placed;
		else if (!strcmp(name, "network")) {
			b->network = placed;
			snprintf(b->network_path, sizeof b->network_path, "%s", path ? json_string_value(path) : "");
		}
	}
	return rc;
}

static int read_mappings(const json_t *os, struct bundle *b, struct err *e)
{
	const json_t *list = NULL;
	int64_t host = 0;
	int rc = take(os, "uidMappings", "/linux/uidMappings", JSON_ARRAY, &list, e);

	for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
		const json_t *row = json_array_get(list, i);

		if (!json_is_object(row))
			return wrong(e, "/linux/uidMappings", "a list of objects");
		rc = take_whole(row, "hostID", "/linux/uidMappings/hostID", &host, e);
		if (rc == 0 && host == 0)
			b->maps_root = true;
	}
	return rc;
}

/* Hundredths of one CPU, rounded up; 0 no limit. */
static uint64_t percent_of(int64_t quota, int64_t period)
{
	return quota <= 0 || period <= 0 || quota > INT64_MAX / 200
		   ? 0
		   : ((uint64_t)quota * 100 + (uint64_t)period - 1) / (uint64_t)period;
}

static int take_limit(const json_t *resources, const char *object, const char *key, const char *path, int64_t *ret,
		      struct err *e)
{
	const json_t *o = NULL;
	int rc = take(resources, object, path, JSON_OBJECT, &o, e);

	return rc == 0 ? take_whole(o, key, path, ret, e) : rc;
}

/* Files of cgroup2 by name, which win over the rest where there are both. */
static int read_unified(const json_t *resources, struct inspect_limits *l, struct err *e)
{
	const json_t *all = NULL;
	const char *text;
	long long quota, period;
	int rc = take(resources, "unified", "/linux/resources/unified", JSON_OBJECT, &all, e);

	if (rc < 0)
		return rc;
	text = json_string_value(json_object_get(all, "memory.max"));
	if (text)
		l->memory_bytes = strtoull(text, NULL, 10); /* "max": 0, none */
	text = json_string_value(json_object_get(all, "pids.max"));
	if (text)
		l->processes = strtoull(text, NULL, 10);
	text = json_string_value(json_object_get(all, "cpu.max"));
	if (text)
		l->cpu_percent = sscanf(text, "%lld %lld", &quota, &period) == 2 ? percent_of(quota, period) : 0;
	return 0;
}

static int read_resources(const json_t *os, struct bundle *b, struct err *e)
{
	const json_t *r = NULL;
	int64_t memory = 0, pids = 0, quota = 0, period = 0;
	int rc = take(os, "resources", "/linux/resources", JSON_OBJECT, &r, e);

	if (rc == 0)
		rc = take_limit(r, "memory", "limit", "/linux/resources/memory/limit", &memory, e);
	if (rc == 0)
		rc = take_limit(r, "pids", "limit", "/linux/resources/pids/limit", &pids, e);
	if (rc == 0)
		rc = take_limit(r, "cpu", "quota", "/linux/resources/cpu/quota", &quota, e);
	if (rc == 0)
		rc = take_limit(r, "cpu", "period", "/linux/resources/cpu/period", &period, e);
	if (rc < 0)
		return rc;
	b->limits.memory_bytes = memory > 0 ? (uint64_t)memory : 0;
	b->limits.processes = pids > 0 ? (uint64_t)pids : 0;
	b->limits.cpu_percent = percent_of(quota, period ? period : 100000);
	return read_unified(r, &b->limits, e);
}

static int read_linux(const json_t *doc, struct bundle *b, struct err *e)
{
	const json_t *os = NULL;
	int rc = take(doc, "linux", "/linux", JSON_OBJECT, &os, e);

	if (rc == 0)
		rc = read_namespaces(os, b, e);
	if (rc == 0)
		rc = read_mappings(os, b, e);
	if (rc == 0)
		rc = read_resources(os, b, e);
	if (rc == 0)
		rc = take(os, "seccomp", "/linux/seccomp", JSON_OBJECT, &b->seccomp, e);
	return rc;
}

/* ---- mounts ---- */

/* The place or something in it; or something around it. */
static bool overlaps(const char *source, const char *place)
{
	size_t n = strlen(source), m = strlen(place);

	while (n > 1 && source[n - 1] == '/')
		n--;
	return (!strncmp(source, place, m) && (source[m] == '\0' || source[m] == '/')) ||
	       (n < m && !strncmp(place, source, n) && (place[n] == '/' || n == 1)) || (n == m && !strncmp(place, source, n));
}

/* Whether what is bound from `source` holds a place from where the policy could be undone: as it is written .. */
static const char *holds_by_name(const char *source, const char *bundle)
{
	static const char *const places[] = {"/sys/fs/cgroup", "/sys/fs/bpf"};

	(void)bundle;
	for (size_t i = 0; source[0] == '/' && i < sizeof places / sizeof places[0]; i++)
		if (overlaps(source, places[i]))
			return places[i];
	return NULL;
}

/* .. and as it is: links resolved, by what is mounted there, in it, or around it. */
static const char *holds_for_real(const char *source, const char *bundle)
{
	_cleanup_free_ char *path = NULL, *real = NULL, *line = NULL;
	_cleanup_file_ FILE *f = fopen("/proc/self/mountinfo", "re");
	const char *place = holds_by_name(source, bundle);
	size_t room = 0;
	struct statfs fs;

	if (place)
		return place;
	if (!f || asprintf(&path, "%s%s%s", source[0] == '/' ? "" : bundle, source[0] == '/' ? "" : "/", source) < 0)
		return "a place that can't be looked at";
	real = realpath(path, NULL);
	if (!real)
		return errno == ENOENT ? NULL : "a place that can't be looked at";
	place = holds_by_name(real, bundle);
	if (place)
		return place;
	if (statfs(real, &fs) == 0 && (fs.f_type == CGROUP2_SUPER_MAGIC || fs.f_type == BPF_FS_MAGIC))
		return fs.f_type == BPF_FS_MAGIC ? "a bpf file system" : "a cgroup tree";
	while (getline(&line, &room, f) >= 0) {
		_cleanup_free_ char *point = NULL;
		const char *tail = strstr(line, " - ");

		if (tail && (!strncmp(tail, " - cgroup2 ", 11) || !strncmp(tail, " - bpf ", 7)) &&
		    sscanf(line, "%*s %*s %*s %*s %ms", &point) == 1 && overlaps(real, point))
			return tail[3] == 'b' ? "a bpf file system" : "a cgroup tree";
	}
	return NULL;
}

/* Runtimes go by the option as well as by the type; a file system of its own has something else for a source. */
static bool is_bind(const json_t *type, const json_t *options)
{
	bool bind = type && !strcmp(json_string_value(type), "bind");

	for (size_t i = 0; i < json_array_size(options); i++) {
		const char *option = json_string_value(json_array_get(options, i));

		bind = bind || (option && (!strcmp(option, "bind") || !strcmp(option, "rbind")));
	}
	return bind;
}

static int read_mount(const json_t *row, struct bundle *b, struct err *e)
{
	const json_t *type = NULL, *source = NULL, *destination = NULL, *options = NULL;
	const char *place = NULL;
	bool read_only = false;
	int rc = take(row, "type", "/mounts/type", JSON_STRING, &type, e);

	if (rc == 0)
		rc = take(row, "source", "/mounts/source", JSON_STRING, &source, e);
	if (rc == 0)
		rc = take(row, "destination", "/mounts/destination", JSON_STRING, &destination, e);
	if (rc == 0)
		rc = take(row, "options", "/mounts/options", JSON_ARRAY, &options, e);
	for (size_t i = 0; rc == 0 && i < json_array_size(options); i++) {
		const char *option;

		rc = text_at(options, i, "/mounts/options", &option, e);
		if (rc == 0 && (!strcmp(option, "ro") || !strcmp(option, "rro")))
			read_only = true;
	}
	if (rc < 0)
		return rc;
	if (type && !strncmp(json_string_value(type), "cgroup", 6) && !read_only && b->cgroup == NS_HOSTS)
		b->cgroup_mount = "/sys/fs/cgroup";
	else if (source && !read_only && is_bind(type, options))
		place = b->holds(json_string_value(source), b->bundle);
	if (place)
		b->cgroup_mount = place;
	if (source && destination && !strcmp(json_string_value(destination), "/etc/resolv.conf"))
		snprintf(b->resolv_conf, sizeof b->resolv_conf, "%s", json_string_value(source));
	return 0;
}

static int read_mounts(const json_t *doc, struct bundle *b, struct err *e)
{
	const json_t *list = NULL;
	int rc = take(doc, "mounts", "/mounts", JSON_ARRAY, &list, e);

	for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
		const json_t *row = json_array_get(list, i);

		if (!json_is_object(row))
			return wrong(e, "/mounts", "a list of objects");
		rc = read_mount(row, b, e);
	}
	return rc;
}

/* ---- who runs it ---- */

static bool names(const char *text, const char *const *words)
{
	for (; *words; words++)
		if (strcasestr(text, *words))
			return true;
	return false;
}

/* Their own settings, and the handlers that the ways into a cluster note. Whoever writes one falsely only loses a container. */
static int read_annotations(const json_t *doc, struct coverage_found *f, struct err *e)
{
	static const char *const gvisor[] = {"runsc", "gvisor", NULL}, *const kata[] = {"kata", NULL};
	const json_t *all = NULL, *vm = NULL, *v = NULL;
	const char *key;
	int rc = take(doc, "annotations", "/annotations", JSON_OBJECT, &all, e);

	if (rc == 0)
		rc = take(doc, "vm", "/vm", JSON_OBJECT, &vm, e);
	if (rc < 0)
		return rc;
	if (vm)
		coverage_add(f, WEAK_KATA, "the bundle has \"vm\"");
	json_object_foreach((json_t *)all, key, v)
	{
		const char *text = json_string_value(v);
		bool handler = strcasestr(key, "runtimehandler") || strcasestr(key, "runtime-handler");

		if (!text)
			return wrong(e, "/annotations", "an object of strings");
		if (!strncmp(key, "dev.gvisor.", 11) || (handler && names(text, gvisor)))
			coverage_add(f, WEAK_GVISOR, "the annotation %.80s", key);
		if (!strncmp(key, "io.katacontainers.", 18) || (handler && names(text, kata)))
			coverage_add(f, WEAK_KATA, "the annotation %.80s", key);
	}
	return 0;
}

/* ---- the filter ---- */

#define ANY (-1LL) /* an argument that may be anything */

static bool passes(const char *action)
{
	static const char *const refusing[] = {"SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS",
					       "SCMP_ACT_KILL_THREAD", "SCMP_ACT_TRAP"};

	for (size_t i = 0; action && i < sizeof refusing / sizeof refusing[0]; i++)
		if (!strcmp(action, refusing[i]))
			return false;
	return true;
}

enum match { NEVER, PERHAPS, ALWAYS };

static enum match matches_arg(const json_t *row, const long long args[3])
{
	long long index = whole(json_object_get(row, "index")), value = whole(json_object_get(row, "value")),
		  two = whole(json_object_get(row, "valueTwo")), arg;
	const char *op = json_string_value(json_object_get(row, "op"));
	bool is;

	if (!op || index < 0 || index > 2 || args[index] == ANY)
		return PERHAPS;
	arg = args[index];
	if (!strcmp(op, "SCMP_CMP_EQ"))
		is = arg == value;
	else if (!strcmp(op, "SCMP_CMP_NE"))
		is = arg != value;
	else if (!strcmp(op, "SCMP_CMP_LT"))
		is = arg < value;
	else if (!strcmp(op, "SCMP_CMP_LE"))
		is = arg <= value;
	else if (!strcmp(op, "SCMP_CMP_GT"))
		is = arg > value;
	else if (!strcmp(op, "SCMP_CMP_GE"))
		is = arg >= value;
	else if (!strcmp(op, "SCMP_CMP_MASKED_EQ"))
		is = (arg & value) == two;
	else
		return PERHAPS;
	return is ? ALWAYS : NEVER;
}

static enum match matches(const json_t *rule, const char *call, const long long args[3])
{
	const json_t *names_of = json_object_get(rule, "names"), *rows = json_object_get(rule, "args");
	enum match worst = ALWAYS;
	bool named = false;

	for (size_t i = 0; !named && i < json_array_size(names_of); i++) {
		const char *name = json_string_value(json_array_get(names_of, i));

		named = name && !strcmp(name, call);
	}
	for (size_t i = 0; named && i < json_array_size(rows); i++) {
		enum match m = matches_arg(json_array_get(rows, i), args);

		worst = m < worst ? m : worst;
	}
	return named ? worst : NEVER;
}

/* Whether the call is refused for certain. */
static bool refuses(const json_t *seccomp, const char *call, const long long args[3])
{
	bool refused = !passes(json_string_value(json_object_get(seccomp, "defaultAction")));
	const json_t *rules = json_object_get(seccomp, "syscalls");

	if (!seccomp)
		return false;
	for (size_t i = 0; i < json_array_size(rules); i++) {
		const json_t *rule = json_array_get(rules, i);
		enum match m = matches(rule, call, args);

		if (m == NEVER)
			continue;
		if (passes(json_string_value(json_object_get(rule, "action"))))
			return false;
		refused = refused || m == ALWAYS;
	}
	return refused;
}

static const long long anything[3] = {ANY, ANY, ANY};

static bool refuses_socket(const json_t *seccomp, long long family, long long type, long long protocol)
{
	const long long args[3] = {family, type, protocol};

	return refuses(seccomp, "socket", args);
}

/* Ways to a socket that a rule about socket() does not see. */
static bool has_side_door(const json_t *seccomp)
{
	const json_t *list = json_object_get(seccomp, "architectures");

	if (!refuses(seccomp, "io_uring_setup", anything))
		return true;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *name = json_string_value(json_array_get(list, i));

		if (name && !strcmp(name, "SCMP_ARCH_X86"))
			return !refuses(seccomp, "socketcall", anything);
	}
	return false;
}

/* Whether every kind of socket that the policy does not name is refused. */
static bool keeps_sockets(const json_t *seccomp, const struct policy_sockets *s)
{
	static const struct {
		uint32_t bit;
		int value;
	} families[] = {{POLICY_AF_UNIX, AF_UNIX},	 {POLICY_AF_INET, AF_INET},	{POLICY_AF_INET6, AF_INET6},
			{POLICY_AF_NETLINK, AF_NETLINK}, {POLICY_AF_PACKET, AF_PACKET}, {POLICY_AF_VSOCK, AF_VSOCK}},
	  types[] = {{POLICY_SOCK_STREAM, SOCK_STREAM},
		     {POLICY_SOCK_DGRAM, SOCK_DGRAM},
		     {POLICY_SOCK_SEQPACKET, SOCK_SEQPACKET},
		     {POLICY_SOCK_RAW, SOCK_RAW}};
	static const struct {
		uint32_t bit;
		int type, protocol;
	} protocols[] = {
	    {POLICY_PROTO_TCP, SOCK_STREAM, IPPROTO_TCP},	 {POLICY_PROTO_UDP, SOCK_DGRAM, IPPROTO_UDP},
	    {POLICY_PROTO_ICMP, SOCK_DGRAM, IPPROTO_ICMP},	 {POLICY_PROTO_ICMP, SOCK_DGRAM, IPPROTO_ICMPV6},
	    {POLICY_PROTO_UDPLITE, SOCK_DGRAM, IPPROTO_UDPLITE}, {POLICY_PROTO_SCTP, SOCK_STREAM, IPPROTO_SCTP},
	    {POLICY_PROTO_SCTP, SOCK_SEQPACKET, IPPROTO_SCTP},	 {POLICY_PROTO_MPTCP, SOCK_STREAM, IPPROTO_MPTCP},
	};
	bool allowed[AF_MAX] = {false};

	if (has_side_door(seccomp))
		return false;
	for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
		allowed[families[i].value] = s->families & families[i].bit;
	for (int f = 0; f < AF_MAX; f++)
		if (!allowed[f] && !refuses_socket(seccomp, f, ANY, ANY))
			return false;
	for (int f = 0; f < AF_MAX; f++) {
		for (size_t i = 0; allowed[f] && i < sizeof types / sizeof types[0]; i++)
			if (!(s->types & types[i].bit) && !refuses_socket(seccomp, f, types[i].value, ANY))
				return false;
		for (size_t i = 0; allowed[f] && (f == AF_INET || f == AF_INET6) && i < sizeof protocols / sizeof protocols[0];
		     i++)
			if (!(s->protocols & protocols[i].bit) &&
			    !refuses_socket(seccomp, f, protocols[i].type, protocols[i].protocol))
				return false;
	}
	return true;
}

static int weigh_filter(const json_t *seccomp, const struct policy *p, struct coverage_found *f, struct err *e)
{
	_cleanup_free_ struct sysgroups_refusal *calls = NULL;
	size_t count = 0;
	int rc = p->syscall_count ? sysgroups_refusals(p, sysgroups_shipped(), NULL, &calls, &count, e) : 0;

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < count; i++)
		if (!refuses(seccomp, calls[i].name, anything))
			coverage_add(f, WEAK_SECCOMP, "%s%.64s", seccomp ? "its filter lets through " : "no filter refuses ",
				     calls[i].name);
	if (p->sockets_said && !keeps_sockets(seccomp, &p->sockets))
		coverage_add(f, WEAK_SECCOMP, "%s",
			     seccomp ? "its filter lets sockets through that \"sockets\" refuses"
				     : "\"sockets\" without a filter");
	if (!p->listen && !refuses(seccomp, "listen", anything))
		coverage_add(f, WEAK_LISTEN, "%s", seccomp ? "its filter lets listen() through" : "it has no filter");
	return 0;
}

/* ---- all together ---- */

static void weigh(const struct bundle *b, struct coverage_found *f)
{
	static const char *const how[] = {"by a program that gives it more rights than it has", ""};
	/* Capabilities count in a network namespace that is made with the user namespace, or joined with it. */
	bool owns = b->user == NS_HOSTS || b->network == NS_OWN || (b->user == NS_SOMEBODYS && b->network == NS_SOMEBODYS);

	if (b->network == NS_HOSTS)
		coverage_add(f, WEAK_HOST_NETWORK, "the bundle has no network namespace");
	if (owns && b->raw)
		coverage_add(f, WEAK_NET_RAW, "%s", how[b->now_raw]);
	if (owns && b->admin)
		coverage_add(f, WEAK_NET_ADMIN, "%s", how[b->now_admin]);
	if (b->user == NS_HOSTS && b->undoing)
		coverage_add(f, WEAK_PRIVILEGED, "the bundle gives it %s", b->undoing_name);
	if (b->user == NS_HOSTS && b->ptrace && b->pid == NS_HOSTS)
		coverage_add(f, WEAK_PRIVILEGED, "the bundle gives it SYS_PTRACE and the host's processes");
	if (b->cgroup_mount && b->root && (b->user == NS_HOSTS || b->maps_root))
		coverage_add(f, WEAK_PRIVILEGED, "the bundle lets it write to %s", b->cgroup_mount);
}

static int read_bundle(const json_t *doc, const struct policy *p, struct bundle *b, struct coverage_found *f, struct err *e)
{
	int rc = read_process(doc, b, e);

	if (rc == 0)
		rc = read_linux(doc, b, e);
	if (rc == 0)
		rc = read_mounts(doc, b, e);
	if (rc == 0)
		rc = read_annotations(doc, f, e);
	if (rc == 0 && p)
		rc = weigh_filter(b->seccomp, p, f, e);
	if (rc < 0)
		return rc;
	weigh(b, f);
	if (p)
		inspect_limits_asked(p, &b->limits, f);
	return 0;
}

int inspect_bundle_text(const char *text, size_t len, const struct policy *p, bundle_holds holds, const char *bundle,
			struct bundle_seen *ret, struct err *e)
{
	struct coverage_found f = {0};
	struct bundle b = {.holds = holds ? holds : holds_by_name, .bundle = bundle};
	_cleanup_json_ json_t *doc = NULL;
	json_error_t error;
	int rc;

	if (len > CONFIG_BYTES)
		return err_set(e, EFBIG, LAYER, "config.json of the bundle has more than %d bytes", CONFIG_BYTES);
	doc = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
	if (!doc)
		return err_set(e, EINVAL, LAYER, "config.json of the bundle is not JSON: line %d, column %d", error.line,
			       error.column);
	if (!json_is_object(doc))
		return wrong(e, "it", "an object");
	rc = read_bundle(doc, p, &b, &f, e);
	if (rc < 0)
		return rc;
	ret->found = f;
	ret->host_network = b.network == NS_HOSTS;
	snprintf(ret->network_path, sizeof ret->network_path, "%s", b.network_path);
	snprintf(ret->resolv_conf, sizeof ret->resolv_conf, "%s", b.resolv_conf);
	return 0;
}

static int read_config(const char *bundle, char **ret, size_t *ret_len, struct err *e)
{
	_cleanup_free_ char *path = NULL, *text = NULL;
	_cleanup_fd_ int fd = -1;
	struct stat st;
	size_t have = 0;

	if (asprintf(&path, "%s/config.json", bundle) < 0)
		return err_set(e, ENOMEM, LAYER, "out of memory");
	fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, errno, LAYER, "cannot read %s", path);
	if (!S_ISREG(st.st_mode) || st.st_size > CONFIG_BYTES)
		return err_set(e, EINVAL, LAYER, "%s is no file of at most %d bytes", path, CONFIG_BYTES);
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return err_set(e, ENOMEM, LAYER, "out of memory");
	while (have < (size_t)st.st_size) {
		ssize_t n = read(fd, text + have, (size_t)st.st_size - have);

		if (n < 0)
			return err_errno(e, errno, LAYER, "cannot read %s", path);
		if (n == 0)
			break;
		have += (size_t)n;
	}
	*ret_len = have;
	*ret = TAKE_PTR(text);
	return 0;
}

int inspect_bundle(const char *bundle, const struct policy *p, struct inspection *ret, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_free_ struct bundle_seen *seen = calloc(1, sizeof *seen);
	_cleanup_fd_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	size_t len = 0;
	int rc;

	if (!seen)
		return err_set(e, ENOMEM, LAYER, "out of memory");
	rc = read_config(bundle, &text, &len, e);
	if (rc == 0)
		rc = inspect_bundle_text(text, len, p, holds_for_real, bundle, seen, e);
	if (rc < 0)
		return rc;
	*ret = (struct inspection){.found = seen->found, .host_network = seen->host_network};
	if (seen->network_path[0] && inspect_is_host_network(seen->network_path)) {
		ret->host_network = true;
		coverage_add(&ret->found, WEAK_HOST_NETWORK, "the bundle names the host's network namespace");
	}
	if (root >= 0 && seen->resolv_conf[0] == '/')
		ret->resolver_count = inspect_resolv_conf(root, seen->resolv_conf, ret->resolvers);
	return 0;
}
