/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/keyline.h"

#define REMOVE_TRIES 200	   /* of 5 ms: exiting tasks leave a cgroup a little after they are reaped */
#define INIT_CGROUP_NS 0xEFFFFFFBu /* inode of the initial cgroup namespace: part of the kernel's ABI (proc_ns.h) */

const char *const cgroup_controller_names[CG_CONTROLLERS] = {"memory", "cpu", "pids"};

/* ---- small files ---- */

static int write_at(int dir, const char *file, const char *text)
{
	_cleanup_fd_ int fd = openat(dir, file, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static int write_number(int dir, const char *file, uint64_t value, struct err *e)
{
	char text[32];
	int rc;

	snprintf(text, sizeof text, "%" PRIu64, value);
	rc = write_at(dir, file, text);
	return rc < 0 ? err_errno(e, -rc, "cgroup", "write %s to %s", text, file) : 0;
}

/* Reads a whole small file, terminated. */
static int read_at(int dir, const char *file, char *buf, size_t size)
{
	_cleanup_fd_ int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, buf, size - 1);
	if (n < 0)
		return -errno;
	buf[n] = 0;
	return 0;
}

/* The number after `key` in a file of "key value" lines; with key NULL the file is the number. */
static int read_number(int dir, const char *file, const char *key, uint64_t *ret)
{
	char buf[4096];
	const char *p = buf;
	int rc = read_at(dir, file, buf, sizeof buf);

	if (rc < 0)
		return rc;
	if (key && !(p = keyline_find(buf, key, ' ')))
		return -ENOENT;
	*ret = strtoull(p, NULL, 10);
	return 0;
}

/* Whether `word` stands alone in a list separated by `sep`. */
static bool has_word(const char *list, const char *word, char sep)
{
	size_t n = strlen(word);

	for (const char *p = list; (p = strstr(p, word)); p += n)
		if ((p == list || p[-1] == sep) && (!p[n] || p[n] == sep || p[n] == '\n'))
			return true;
	return false;
}

/* ---- the host ---- */

static unsigned path_depth(const char *path)
{
	unsigned depth = 0;

	for (const char *p = path; *p; p++)
		if (*p == '/' && p[1])
			depth++;
	return depth;
}

static int read_mounts(struct cgroup_host *h, struct err *e)
{
	_cleanup_file_ FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[4096];

	if (!f)
		return err_errno(e, errno, "cgroup", "open /proc/self/mountinfo");
	while (fgets(line, sizeof line, f)) {
		char root[256], point[256], type[64], options[512];
		const char *tail = strstr(line, " - ");

		if (!tail || sscanf(line, "%*s %*s %*s %255s %255s", root, point) != 2 ||
		    sscanf(tail, " - %63s %*s %511s", type, options) != 2)
			continue;
		if (!strcmp(type, "cgroup2") && !h->v2_path[0]) {
			snprintf(h->v2_path, sizeof h->v2_path, "%s", point);
			h->v2_depth = path_depth(root);
		}
		if (!strcmp(type, "cgroup"))
			for (int c = 0; c < CG_CONTROLLERS; c++)
				if (!h->v1_path[c][0] && has_word(options, cgroup_controller_names[c], ','))
					snprintf(h->v1_path[c], sizeof h->v1_path[c], "%s", point);
	}
	return 0;
}

int cgroup_host_find(struct cgroup_host *ret, struct err *e)
{
	struct cgroup_host h = {0};
	_cleanup_fd_ int fd = -1;
	char list[1024];
	struct stat ns;
	int rc;

	/* eBPF counts a cgroup's depth from the real root, which a cgroup namespace hides. */
	if (stat("/proc/self/ns/cgroup", &ns) == 0 && ns.st_ino != INIT_CGROUP_NS)
		return err_set(e, ENOTSUP, "cgroup",
			       "Weir must run in the host's cgroup namespace; in a container start it with --cgroupns=host");
	rc = read_mounts(&h, e);
	if (rc < 0)
		return rc;
	if (!h.v2_path[0])
		return err_set(e, ENOENT, "cgroup",
			       "no cgroup2 mount; mount one: mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 cgroup2 "
			       "/sys/fs/cgroup/unified");
	fd = open(h.v2_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_errno(e, errno, "cgroup", "open %s", h.v2_path);
	rc = read_at(fd, "cgroup.controllers", list, sizeof list);
	if (rc < 0)
		return err_errno(e, -rc, "cgroup", "read %s/cgroup.controllers", h.v2_path);
	for (int c = 0; c < CG_CONTROLLERS; c++) {
		h.v2_has[c] = has_word(list, cgroup_controller_names[c], ' ');
		if (h.v2_has[c])
			h.v1_path[c][0] = 0;
		else if (!h.v1_path[c][0])
			return err_set(
			    e, ENOENT, "cgroup",
			    "no %s controller, neither in %s/cgroup.controllers nor as a v1 mount; enable it on the kernel "
			    "command line (cgroup_enable=%s)",
			    cgroup_controller_names[c], h.v2_path, cgroup_controller_names[c]);
	}
	*ret = h;
	return 0;
}

/* ---- the instance ---- */

static int open_below(int parent, const char *name, struct err *e)
{
	int fd;

	if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
		return err_errno(e, errno, "cgroup", "make cgroup %s", name);
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_errno(e, errno, "cgroup", "open cgroup %s", name) : fd;
}

/* Hands the controllers we use on to the children of `dir`. */
static int delegate(const struct cgroup_host *h, int dir, const char *what, struct err *e)
{
	char now[1024];

	if (read_at(dir, "cgroup.subtree_control", now, sizeof now) < 0)
		now[0] = 0;
	for (int c = 0; c < CG_CONTROLLERS; c++) {
		char word[32];
		int rc;

		if (!h->v2_has[c] || has_word(now, cgroup_controller_names[c], ' '))
			continue;
		snprintf(word, sizeof word, "+%s", cgroup_controller_names[c]);
		rc = write_at(dir, "cgroup.subtree_control", word);
		if (rc < 0)
			return err_errno(e, -rc, "cgroup", "switch on the %s controller below %s", cgroup_controller_names[c],
					 what);
	}
	return 0;
}

static int open_path(const char *mount, const char *name, const struct cgroup_host *delegating, struct err *e)
{
	_cleanup_fd_ int root = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_fd_ int top = -1, in = -1;
	int rc = 0;

	if (root < 0)
		return err_errno(e, errno, "cgroup", "open %s", mount);
	if (delegating)
		rc = delegate(delegating, root, mount, e);
	if (rc < 0)
		return rc;
	top = open_below(root, CGROUP_TOP, e);
	if (top < 0)
		return top;
	if (delegating)
		rc = delegate(delegating, top, CGROUP_TOP, e);
	if (rc < 0)
		return rc;
	in = open_below(top, name, e);
	if (in < 0)
		return in;
	if (delegating)
		rc = delegate(delegating, in, name, e);
	return rc < 0 ? rc : TAKE_FD(in);
}

int cgroup_instance_open(struct cgroup_instance *ret, const struct cgroup_host *host, const char *name, struct err *e)
{
	struct cgroup_instance in = {.host = *host, .v2_fd = -1, .v1_fd = {-1, -1, -1}};

	snprintf(in.name, sizeof in.name, "%s", name);
	in.level = host->v2_depth + 3; /* weir / instance / sandbox */
	in.v2_fd = open_path(host->v2_path, name, host, e);
	if (in.v2_fd < 0)
		return in.v2_fd;
	for (int c = 0; c < CG_CONTROLLERS; c++) {
		if (!host->v1_path[c][0])
			continue;
		in.v1_fd[c] = open_path(host->v1_path[c], name, NULL, e);
		if (in.v1_fd[c] < 0) {
			int rc = in.v1_fd[c];

			cgroup_instance_close(&in);
			return rc;
		}
		in.v1_count++;
	}
	*ret = in;
	return 0;
}

void cgroup_instance_close(struct cgroup_instance *in)
{
	cleanup_fdp(&in->v2_fd);
	in->v2_fd = -1;
	for (int c = 0; c < CG_CONTROLLERS; c++) {
		cleanup_fdp(&in->v1_fd[c]);
		in->v1_fd[c] = -1;
	}
}

/* rmdir that waits for tasks which are on their way out. Gone already is fine. */
static int remove_patiently(const char *path)
{
	for (int i = 0; rmdir(path) < 0; i++) {
		if (errno == ENOENT)
			return 0;
		if (errno != EBUSY || i == REMOVE_TRIES)
			return -errno;
		usleep(5000);
	}
	return 0;
}

int cgroup_instance_remove(const struct cgroup_host *host, const char *name, struct err *e)
{
	char path[512];

	for (int c = -1; c < CG_CONTROLLERS; c++) {
		const char *mount = c < 0 ? host->v2_path : host->v1_path[c];
		int rc;

		if (!mount[0])
			continue;
		snprintf(path, sizeof path, "%s/" CGROUP_TOP "/%s", mount, name);
		rc = remove_patiently(path);
		if (rc < 0)
			return err_errno(e, -rc, "cgroup", "remove %s", path);
		snprintf(path, sizeof path, "%s/" CGROUP_TOP, mount);
		/* Another instance may be in there: then it stays. */
		(void)rmdir(path);
	}
	return 0;
}

/* ---- a sandbox ---- */

void cgroup_box_init(struct cgroup_box *box)
{
	memset(box, 0, sizeof *box);
	box->v2_fd = box->oom_event = box->peak_fd = -1;
	for (int c = 0; c < CG_CONTROLLERS; c++)
		box->v1_fd[c] = -1;
}

int cgroup_box_make_v2(struct cgroup_box *box, const struct cgroup_instance *in, const char *name, struct err *e)
{
	struct stat st;

	snprintf(box->name, sizeof box->name, "%s", name);
	if (mkdirat(in->v2_fd, name, 0755) < 0)
		return err_errno(e, errno, "cgroup", "make the sandbox's cgroup");
	box->v2_fd = openat(in->v2_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (box->v2_fd < 0 || fstat(box->v2_fd, &st) < 0)
		return err_errno(e, errno, "cgroup", "open the sandbox's cgroup");
	box->id = st.st_ino; /* kernfs: on 64-bit the inode number is the cgroup id */
	return 0;
}

/* Optional knobs: a kernel without swap accounting has no file for it, and then nothing to limit. */
static int write_optional(int dir, const char *file, const char *text, struct err *e)
{
	int rc = write_at(dir, file, text);

	return rc < 0 && rc != -ENOENT ? err_errno(e, -rc, "cgroup", "write %s to %s", text, file) : 0;
}

int cgroup_box_weigh(const struct cgroup_box *box, const struct cgroup_instance *in, unsigned weight)
{
	bool v2 = in->host.v2_has[CG_CPU];
	char text[24];

	if (!v2 && box->v1_fd[CG_CPU] < 0)
		return -ENOENT;
	/* The same scale, where 100 is 1024; v1 takes nothing below 2, which it rounds to. */
	snprintf(text, sizeof text, "%u", v2 ? weight : weight * 1024 / 100);
	return write_at(v2 ? box->v2_fd : box->v1_fd[CG_CPU], v2 ? "cpu.weight" : "cpu.shares", text);
}

static int first_weight(const struct cgroup_box *box, const struct cgroup_instance *in, const struct cgroup_limits *l,
			struct err *e)
{
	int rc = l->cpu_weight ? cgroup_box_weigh(box, in, l->cpu_weight) : 0;

	return rc < 0 ? err_errno(e, -rc, "cgroup", "set its share of the CPU") : 0;
}

int cgroup_box_limit_v2(const struct cgroup_box *box, const struct cgroup_instance *in, const struct cgroup_limits *l,
			struct err *e)
{
	const bool *has = in->host.v2_has;
	int rc = 0;

	if (has[CG_MEMORY] && l->memory_bytes) {
		rc = write_number(box->v2_fd, "memory.max", l->memory_bytes, e);
		if (rc == 0)
			rc = write_number(box->v2_fd, "memory.oom.group", 1, e);
		if (rc == 0)
			rc = write_optional(box->v2_fd, "memory.swap.max", "0", e);
		if (rc == 0)
			rc = write_optional(box->v2_fd, "memory.zswap.max", "0", e);
	}
	if (rc == 0 && has[CG_PIDS] && l->pids)
		rc = write_number(box->v2_fd, "pids.max", l->pids, e);
	if (rc == 0 && has[CG_CPU] && l->cpu_percent) {
		char text[32];

		snprintf(text, sizeof text, "%u 100000", l->cpu_percent * 1000);
		rc = write_at(box->v2_fd, "cpu.max", text);
		if (rc < 0)
			rc = err_errno(e, -rc, "cgroup", "write %s to cpu.max", text);
	}
	if (rc == 0 && has[CG_CPU])
		rc = first_weight(box, in, l, e);
	return rc;
}

static int limit_memory_v1(struct cgroup_box *box, int dir, const struct cgroup_limits *l, struct err *e)
{
	_cleanup_fd_ int control = -1;
	char text[64];
	int rc = write_number(dir, "memory.limit_in_bytes", l->memory_bytes, e);

	if (rc < 0)
		return rc;
	/* Memory and swap together at the same value: no swap. Absent where swap is not accounted. */
	snprintf(text, sizeof text, "%" PRIu64, l->memory_bytes);
	rc = write_optional(dir, "memory.memsw.limit_in_bytes", text, e);
	if (rc < 0)
		return rc;
	/* v1 kills one task and goes on: we want to know, and end the run. */
	control = openat(dir, "memory.oom_control", O_RDONLY | O_CLOEXEC);
	box->oom_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (control < 0 || box->oom_event < 0)
		return err_errno(e, errno, "cgroup", "watch for out-of-memory kills");
	snprintf(text, sizeof text, "%d %d", box->oom_event, control);
	rc = write_at(dir, "cgroup.event_control", text);
	return rc < 0 ? err_errno(e, -rc, "cgroup", "watch for out-of-memory kills") : 0;
}

int cgroup_box_make_v1(struct cgroup_box *box, const struct cgroup_instance *in, const struct cgroup_limits *l, struct err *e)
{
	const bool wanted[CG_CONTROLLERS] = {
	    [CG_MEMORY] = l->memory_bytes != 0, [CG_CPU] = l->cpu_percent != 0, [CG_PIDS] = l->pids != 0};

	for (int c = 0; c < CG_CONTROLLERS; c++) {
		int rc = 0;

		if (in->v1_fd[c] < 0 || !wanted[c])
			continue;
		if (mkdirat(in->v1_fd[c], box->name, 0755) < 0)
			return err_errno(e, errno, "cgroup", "make the sandbox's v1 %s cgroup", cgroup_controller_names[c]);
		box->v1_fd[c] = openat(in->v1_fd[c], box->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (box->v1_fd[c] < 0)
			return err_errno(e, errno, "cgroup", "open the sandbox's v1 %s cgroup", cgroup_controller_names[c]);
		if (c == CG_MEMORY)
			rc = limit_memory_v1(box, box->v1_fd[c], l, e);
		else if (c == CG_PIDS)
			rc = write_number(box->v1_fd[c], "pids.max", l->pids, e);
		else if ((rc = write_number(box->v1_fd[c], "cpu.cfs_period_us", 100000, e)) == 0)
			rc = write_number(box->v1_fd[c], "cpu.cfs_quota_us", (uint64_t)l->cpu_percent * 1000, e);
		if (rc == 0 && c == CG_CPU)
			rc = first_weight(box, in, l, e);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int cgroup_box_tasks(const struct cgroup_box *box, int ret_fds[CG_CONTROLLERS], struct err *e)
{
	int n = 0;

	for (int c = 0; c < CG_CONTROLLERS; c++) {
		if (box->v1_fd[c] < 0)
			continue;
		ret_fds[n] = openat(box->v1_fd[c], "tasks", O_WRONLY | O_CLOEXEC);
		if (ret_fds[n] < 0) {
			int rc = err_errno(e, errno, "cgroup", "open v1 %s tasks", cgroup_controller_names[c]);

			while (n)
				close(ret_fds[--n]);
			return rc;
		}
		n++;
	}
	return n;
}

int cgroup_box_kill(const struct cgroup_box *box)
{
	return box->v2_fd < 0 ? 0 : write_at(box->v2_fd, "cgroup.kill", "1");
}

void cgroup_box_unleash(const struct cgroup_box *box, const struct cgroup_instance *in)
{
	_cleanup_file_ FILE *f = NULL;
	int fd = openat(box->v2_fd, "cgroup.threads", O_RDONLY | O_CLOEXEC);
	cpu_set_t all;
	int tid;

	/* Best effort: the tasks are dying in any case. */
	if (in->host.v2_has[CG_CPU])
		(void)write_at(box->v2_fd, "cpu.max", "max");
	else if (box->v1_fd[CG_CPU] >= 0)
		(void)write_at(box->v1_fd[CG_CPU], "cpu.cfs_quota_us", "-1");
	f = fd < 0 ? NULL : fdopen(fd, "re");
	if (sched_getaffinity(0, sizeof all, &all) < 0)
		return;
	while (f && fscanf(f, "%d", &tid) == 1)
		(void)sched_setaffinity(tid, sizeof all, &all);
}

int cgroup_box_populated(const struct cgroup_box *box)
{
	uint64_t populated;
	int rc = read_number(box->v2_fd, "cgroup.events", "populated", &populated);

	return rc < 0 ? rc : populated != 0;
}

int cgroup_box_freeze(const struct cgroup_box *box, bool frozen)
{
	return write_at(box->v2_fd, "cgroup.freeze", frozen ? "1" : "0");
}

int cgroup_box_events(const struct cgroup_box *box)
{
	int fd = openat(box->v2_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* From its start: kernfs makes up the text anew for each reader that begins there. */
static int reread(int fd, char *buf, size_t size)
{
	ssize_t n = pread(fd, buf, size - 1, 0);

	if (n < 0)
		return -errno;
	buf[n] = 0;
	return 0;
}

int cgroup_events_frozen(int events_fd)
{
	char text[256];
	const char *value;
	int rc = reread(events_fd, text, sizeof text);

	if (rc < 0)
		return rc;
	value = keyline_find(text, "frozen", ' ');
	return value ? *value == '1' : -ENOENT;
}

void cgroup_box_reset_peak(struct cgroup_box *box, const struct cgroup_instance *in)
{
	static const char word[] = "0";

	if (!in->host.v2_has[CG_MEMORY]) {
		box->peak_old = write_at(box->v1_fd[CG_MEMORY], "memory.max_usage_in_bytes", word) < 0;
		return;
	}
	if (box->peak_fd < 0 && !box->peak_old)
		box->peak_fd = openat(box->v2_fd, "memory.peak", O_RDWR | O_CLOEXEC);
	/* Before 6.12 nobody may write there. */
	if (box->peak_fd < 0 || pwrite(box->peak_fd, word, sizeof word - 1, 0) < 0) {
		box->peak_old = true;
		cleanup_fdp(&box->peak_fd);
		box->peak_fd = -1;
	}
}

static int read_peak(const struct cgroup_box *box, const struct cgroup_instance *in, uint64_t *ret)
{
	char text[32];
	int rc;

	if (box->peak_fd < 0)
		return in->host.v2_has[CG_MEMORY] ? read_number(box->v2_fd, "memory.peak", NULL, ret)
						  : read_number(box->v1_fd[CG_MEMORY], "memory.max_usage_in_bytes", NULL, ret);
	rc = reread(box->peak_fd, text, sizeof text);
	if (rc == 0)
		*ret = strtoull(text, NULL, 10);
	return rc;
}

static const char *peak_source(const struct cgroup_box *box, const struct cgroup_instance *in)
{
	static const char *const sources[2][2] = {{"v1 memory.max_usage", "cgroup2 memory.peak"},
						  {"life: memory.max_usage", "life: memory.peak"}};

	return sources[box->peak_old][in->host.v2_has[CG_MEMORY]];
}

void cgroup_box_usage(const struct cgroup_box *box, const struct cgroup_instance *in, struct cgroup_usage *ret)
{
	struct cgroup_usage u = {.cpu_source = "", .memory_source = ""};
	bool v2 = in->host.v2_has[CG_MEMORY];
	int dir = v2 ? box->v2_fd : box->v1_fd[CG_MEMORY];

	/* cpu.stat has the time of every cgroup2, with or without the cpu controller. */
	if (read_number(box->v2_fd, "cpu.stat", "usage_usec", &u.cpu_us) == 0)
		u.cpu_source = "cgroup2 cpu.stat";
	if (read_peak(box, in, &u.memory_peak) == 0)
		u.memory_source = peak_source(box, in);
	if (read_number(dir, v2 ? "memory.events" : "memory.oom_control", "oom_kill", &u.oom_kills) < 0)
		u.oom_kills = 0;
	*ret = u;
}

void cgroup_box_moment(const struct cgroup_box *box, const struct cgroup_instance *in, struct cgroup_moment *ret)
{
	const bool v2 = in->host.v2_has[CG_MEMORY];
	struct cgroup_moment now = {0};

	(void)read_number(box->v2_fd, "cpu.stat", "usage_usec", &now.cpu_us);
	(void)read_number(v2 ? box->v2_fd : box->v1_fd[CG_MEMORY], v2 ? "memory.current" : "memory.usage_in_bytes", NULL,
			  &now.memory_bytes);
	(void)read_number(in->host.v2_has[CG_PIDS] ? box->v2_fd : box->v1_fd[CG_PIDS], "pids.current", NULL, &now.tasks);
	*ret = now;
}

int cgroup_box_remove(struct cgroup_box *box, const struct cgroup_instance *in)
{
	if (!box->name[0])
		return 0;
	for (int c = 0; c < CG_CONTROLLERS; c++)
		if (in->v1_fd[c] >= 0 && unlinkat(in->v1_fd[c], box->name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			return -errno;
	if (unlinkat(in->v2_fd, box->name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return -errno;
	cleanup_fdp(&box->v2_fd);
	cleanup_fdp(&box->oom_event);
	cleanup_fdp(&box->peak_fd);
	for (int c = 0; c < CG_CONTROLLERS; c++)
		cleanup_fdp(&box->v1_fd[c]);
	cgroup_box_init(box);
	return 0;
}

/* ---- sweeping ---- */

static unsigned count_processes(int dir)
{
	_cleanup_file_ FILE *f = NULL;
	int fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	unsigned n = 0;
	int pid;

	f = fd < 0 ? NULL : fdopen(fd, "re");
	while (f && fscanf(f, "%d", &pid) == 1)
		n++;
	return n;
}

void cgroup_instance_kill(const struct cgroup_host *host, const char *name)
{
	char path[512];
	_cleanup_fd_ int fd = -1;

	snprintf(path, sizeof path, "%s/" CGROUP_TOP "/%s", host->v2_path, name);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		(void)write_at(fd, "cgroup.kill", "1");
}

int cgroup_instance_sweep(const struct cgroup_host *host, const char *name,
			  void (*each)(void *ctx, const char *name, uint64_t id), void *ctx, struct cgroup_swept *ret,
			  struct err *e)
{
	struct cgroup_swept swept = {0};
	int failed = 0;

	/* v2 first: its cgroup.kill ends the tasks that keep the v1 directories busy. */
	for (int c = -1; c < CG_CONTROLLERS; c++) {
		const char *mount = c < 0 ? host->v2_path : host->v1_path[c];
		_cleanup_dir_ DIR *d = NULL;
		struct dirent *de;
		char path[512];

		if (!mount[0])
			continue;
		snprintf(path, sizeof path, "%s/" CGROUP_TOP "/%s", mount, name);
		d = opendir(path);
		while (d && (de = readdir(d))) {
			_cleanup_fd_ int box = -1;
			char child[800];
			int rc;

			if (de->d_type != DT_DIR || de->d_name[0] == '.')
				continue;
			snprintf(child, sizeof child, "%s/%s", path, de->d_name);
			if (c < 0) {
				struct stat st;

				box = open(child, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
				if (box >= 0 && fstat(box, &st) == 0 && each)
					each(ctx, de->d_name, st.st_ino);
				swept.sandboxes++;
				swept.processes += box < 0 ? 0 : count_processes(box);
				if (box >= 0)
					(void)write_at(box, "cgroup.kill", "1");
			}
			rc = remove_patiently(child);
			if (rc < 0 && !failed)
				failed = err_errno(e, -rc, "cgroup", "remove %s", child);
		}
	}
	*ret = swept;
	return failed;
}
