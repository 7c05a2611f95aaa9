/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a policy asks for beyond the network. A limit of the target's own cgroup or of one above it counts, wherever the host
 * keeps the controller: on cgroup2, or on a hierarchy of version 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/inspect_priv.h"
#include "core/cleanup.h"
#include "core/keyline.h"
#include "kernel/cgroup.h"

#define UNLIMITED UINT64_MAX
#define V1_UNLIMITED (1ull << 62) /* memory.limit_in_bytes has a number of about this size for "none" */

/* ---- one file of limits ---- */

static bool read_text(int dir, const char *file, char *buf, size_t size)
{
	_cleanup_fd_ int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

	buf[n < 0 ? 0 : n] = '\0';
	return n > 0;
}

static uint64_t number_in(int dir, const char *file)
{
	char text[64];
	uint64_t n;

	if (!read_text(dir, file, text, sizeof text) || text[0] < '0' || text[0] > '9')
		return UNLIMITED; /* "max", "-1", or no such file */
	n = strtoull(text, NULL, 10);
	return n >= V1_UNLIMITED ? UNLIMITED : n;
}

/* Hundredths of one CPU, rounded up. */
static uint64_t percent_of(uint64_t quota, uint64_t period)
{
	return !period || quota > UINT64_MAX / 200 ? UNLIMITED : (quota * 100 + period - 1) / period;
}

static uint64_t read_memory(int dir, bool v2)
{
	return number_in(dir, v2 ? "memory.max" : "memory.limit_in_bytes");
}

static uint64_t read_processes(int dir, bool v2)
{
	(void)v2;
	return number_in(dir, "pids.max");
}

static uint64_t read_cpu(int dir, bool v2)
{
	char text[64];
	uint64_t quota, period;

	if (!v2)
		return percent_of(number_in(dir, "cpu.cfs_quota_us"), number_in(dir, "cpu.cfs_period_us"));
	if (!read_text(dir, "cpu.max", text, sizeof text) || sscanf(text, "%" SCNu64 " %" SCNu64, &quota, &period) != 2)
		return UNLIMITED;
	return percent_of(quota, period);
}

static uint64_t (*const readers[CG_CONTROLLERS])(int dir, bool v2) = {
    [CG_MEMORY] = read_memory, [CG_CPU] = read_cpu, [CG_PIDS] = read_processes};

/* The least of a directory and those above it, `levels` of them. */
static uint64_t least_of(int dir, unsigned levels, bool v2, enum cgroup_controller c)
{
	_cleanup_fd_ int at = openat(dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	uint64_t least = UNLIMITED;

	for (unsigned i = 0; at >= 0 && i < levels; i++) {
		uint64_t n = readers[c](at, v2);
		int up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);

		least = n < least ? n : least;
		close(at);
		at = up;
	}
	return least;
}

/* ---- version 1: the directory that is the target's there ---- */

static unsigned depth_of(const char *path)
{
	unsigned depth = 0;

	for (const char *p = path; *p; p++)
		depth += p[0] == '/' && p[1];
	return depth;
}

struct member {
	int pid;
	char below[PATH_MAX]; /* its cgroup's path from the target on; "" the target itself */
	size_t target_len;
};

static int first_member(void *ctx, int pid, const char *cgroup)
{
	struct member *m = ctx;

	m->pid = pid;
	snprintf(m->below, sizeof m->below, "%s", cgroup + m->target_len);
	return 1;
}

/* The path behind "N:memory:" in /proc/PID/cgroup; the controllers are a list. */
static bool v1_path_of(char *text, const char *controller, char ret[PATH_MAX])
{
	char *save = NULL;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL, *inner = NULL;

		if (!path)
			continue;
		*path++ = '\0';
		for (char *word = strtok_r(list + 1, ",", &inner); word; word = strtok_r(NULL, ",", &inner))
			if (!strcmp(word, controller)) {
				snprintf(ret, PATH_MAX, "%s", path);
				return true;
			}
	}
	return false;
}

/*
 * A member's place on the old hierarchy, without what of it lies below the target. Where the two trees are not alike the
 * member's own place is no answer for the others, and nothing counts.
 */
static uint64_t least_on_v1(const struct target *t, const struct cgroup_host *host, enum cgroup_controller c)
{
	struct member m = {.target_len = strlen(t->path)};
	char text[16384], file[64], path[PATH_MAX], whole[PATH_MAX + 256];
	_cleanup_fd_ int dir = -1;
	size_t len, tail;

	if (target_each_process(t, first_member, &m, NULL) != 1 || m.pid <= 0)
		return UNLIMITED;
	snprintf(file, sizeof file, "/proc/%d/cgroup", m.pid);
	if (!read_text(AT_FDCWD, file, text, sizeof text) || !v1_path_of(text, cgroup_controller_names[c], path))
		return UNLIMITED;
	len = strlen(path);
	tail = strlen(m.below);
	if (tail > len || strcmp(path + len - tail, m.below) != 0)
		return UNLIMITED;
	path[len - tail] = '\0';
	snprintf(whole, sizeof whole, "%s%s", host->v1_path[c], path);
	dir = open(whole, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return dir < 0 ? UNLIMITED : least_of(dir, depth_of(path), false, c);
}

static uint64_t limit_of(const struct target *t, enum cgroup_controller c)
{
	uint64_t least = least_of(t->fd, t->level, true, c);
	struct cgroup_host host;

	if (least != UNLIMITED || cgroup_host_find(&host, NULL) < 0 || !host.v1_path[c][0])
		return least;
	return least_on_v1(t, &host, c);
}

/* ---- open files: a limit of processes ---- */

/* From /proc: to ask by prlimit() takes a capability that Weir does well without. */
static int look_at_files(void *ctx, int pid, const char *cgroup)
{
	static const char key[] = "Max open files";
	uint64_t *most = ctx, hard;
	char file[64], text[4096], soft[32], word[32];
	const char *at;

	(void)cgroup;
	snprintf(file, sizeof file, "/proc/%d/limits", pid);
	if (!read_text(AT_FDCWD, file, text, sizeof text) && pid > 0 && access(file, F_OK) < 0)
		return 0; /* it is over */
	at = strstr(text, key);
	/* Up to the hard limit each can go by itself. */
	if (!at || sscanf(at + sizeof key - 1, "%31s %31s", soft, word) != 2 || word[0] < '0' || word[0] > '9')
		hard = UNLIMITED;
	else
		hard = strtoull(word, NULL, 10);
	*most = hard > *most ? hard : *most;
	return 0;
}

/* ---- */

void inspect_limits_asked(const struct policy *p, const struct inspect_limits *has, struct coverage_found *f)
{
	const struct {
		const char *name;
		uint64_t asked, has;
	} rows[] = {
	    {"memory_bytes", p->limits.memory_bytes, has->memory_bytes},
	    {"cpu_percent", p->limits.cpu_percent, has->cpu_percent},
	    {"processes", p->limits.processes, has->processes},
	    {"open_files", p->limits.open_files, has->open_files},
	};
	char list[WEAKNESS_DETAIL] = "";
	size_t n = 0;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const char *between = n ? ", " : "";

		if (!rows[i].asked || (rows[i].has && rows[i].has <= rows[i].asked))
			continue;
		if (rows[i].has && rows[i].has != UNLIMITED)
			n += (size_t)snprintf(list + n, sizeof list - n, "%s%s (%" PRIu64 " for %" PRIu64 ")", between,
					      rows[i].name, rows[i].has, rows[i].asked);
		else
			n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", between, rows[i].name);
		if (n >= sizeof list)
			break;
	}
	if (n)
		coverage_add(f, WEAK_LIMITS, "%s", list);
}

void inspect_policy(const struct target *t, const struct policy *p, struct coverage_found *f)
{
	struct inspect_limits has = {0};
	struct err e;

	/* The default of `sockets` is what a sandbox gets; of what runs already only a document that has `sockets` asks. */
	if (p->syscall_count && p->sockets_said)
		coverage_add(f, WEAK_SECCOMP, "\"syscalls\" and \"sockets\"");
	else if (p->syscall_count || p->sockets_said)
		coverage_add(f, WEAK_SECCOMP, "%s", p->syscall_count ? "\"syscalls\"" : "\"sockets\"");
	if (!p->listen)
		coverage_add(f, WEAK_LISTEN, "%s", "");
	if (t && p->limits.memory_bytes)
		has.memory_bytes = limit_of(t, CG_MEMORY);
	if (t && p->limits.cpu_percent)
		has.cpu_percent = limit_of(t, CG_CPU);
	if (t && p->limits.processes)
		has.processes = limit_of(t, CG_PIDS);
	if (t && p->limits.open_files)
		(void)target_each_process(t, look_at_files, &has.open_files, &e);
	inspect_limits_asked(p, &has, f);
}
