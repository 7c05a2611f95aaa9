/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and ids are strangers': a container may make cgroups below its own, as many as it likes and with any name. So what a
 * search looks for is looked for outside of containers first, where only the host's own software makes directories; only when
 * it is not there, inside of them. Nobody in a container can then keep the host's workloads from being found, or pass for one.
 */
#include "attach/target.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/escape.h"
#include "core/keyline.h"
#include "kernel/cgroup.h"
#include "kernel/cgroupid.h"

#define WALK_LEVELS 64	       /* of directories below the one where a walk starts */
#define WALK_DIRECTORIES 65536 /* the kernel's own default limit is far above; no host has that many workloads */
#define LISTED 5	       /* of several that fit */
#define SHOWN 320	       /* of a path, in a message */
#define PROC_FILE 65536	       /* /proc/PID/cgroup: a line for each hierarchy */
#define SYSTEMD_MOUNT "/sys/fs/cgroup"
#define KERNEL_THREAD 0x00200000u /* PF_KTHREAD, in the flags of /proc/PID/stat */

const char *const target_kind_names[TARGET_KINDS] = {"cgroup", "pid", "container", "pod", "parent"};
const char *const target_kind_options[TARGET_KINDS] = {"--cgroup", "--pid", "--container", "--pod", "--parent"};

/* A path or a word of somebody else's, fit for a message. */
static const char *shown(char buf[SHOWN], const char *text)
{
	size_t len = strlen(text), used, n;

	n = escape_json(buf, SHOWN - sizeof "…", text, len, &used);
	snprintf(buf + n, SHOWN - n, "%s", used < len ? "…" : "");
	return buf;
}

/* ---- the hierarchy ---- */

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *p = text; *p; p++) {
		unsigned c;

		if (*p == '\\' && sscanf(p + 1, "%3o", &c) == 1) {
			*to++ = (char)c;
			p += 3;
		} else {
			*to++ = *p;
		}
	}
	*to = '\0';
}

struct mount {
	char root[PATH_MAX], point[PATH_MAX];
};

/* The next mount of cgroup2. */
static bool next_mount(FILE *mountinfo, struct mount *ret)
{
	char line[2 * PATH_MAX + 512];

	while (fgets(line, sizeof line, mountinfo)) {
		const char *tail = strstr(line, " - ");

		/* 4095: PATH_MAX, less the end */
		if (!tail || strncmp(tail, " - cgroup2 ", strlen(" - cgroup2 ")) != 0 ||
		    sscanf(line, "%*s %*s %*s %4095s %4095s", ret->root, ret->point) != 2)
			continue;
		unescape(ret->root);
		unescape(ret->point);
		return true;
	}
	return false;
}

/* What of the hierarchy is mounted at roots->cgroup2: "" all of it, else the path of a cgroup. The uppermost mount there
 * counts. */
static void mounted_root(const struct target_roots *roots, char ret[PATH_MAX])
{
	_cleanup_file_ FILE *f = NULL;
	char path[PATH_MAX];
	struct mount m;

	ret[0] = '\0';
	snprintf(path, sizeof path, "%s/self/mountinfo", roots->proc);
	f = fopen(path, "re");
	while (f && next_mount(f, &m))
		if (!strcmp(m.point, roots->cgroup2))
			snprintf(ret, PATH_MAX, "%s", strcmp(m.root, "/") != 0 ? m.root : "");
}

int target_host_roots(struct target_roots *ret, char room[256], struct err *e)
{
	_cleanup_file_ FILE *f = NULL;
	struct cgroup_host host;
	struct mount m;
	size_t least;
	int rc = cgroup_host_find(&host, e);

	if (rc < 0)
		return rc;
	*ret = (struct target_roots){.cgroup2 = room, .proc = "/proc"};
	snprintf(room, 256, "%s", host.v2_path);
	if (host.v2_depth == 0)
		return 0;
	/* Inside a container there can be a mount of its own part of the tree, and beside it one of all. */
	mounted_root(ret, m.root);
	least = strlen(m.root);
	f = fopen("/proc/self/mountinfo", "re");
	while (f && next_mount(f, &m)) {
		size_t len = strcmp(m.root, "/") != 0 ? strlen(m.root) : 0;

		if (len < least && strlen(m.point) < 256) {
			least = len;
			snprintf(room, 256, "%.255s", m.point);
		}
	}
	return 0;
}

static unsigned depth_of(const char *path)
{
	unsigned depth = 0;

	for (const char *p = path; *p; p++)
		if (*p == '/' && p[1])
			depth++;
	return depth;
}

/* Opens a directory of the hierarchy, through no link. */
static int open_below(const struct target_roots *roots, const char *path, int flags)
{
	struct open_how how = {.flags = (uint64_t)(O_DIRECTORY | O_CLOEXEC | flags),
			       .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	_cleanup_fd_ int top = open(roots->cgroup2, O_PATH | O_DIRECTORY | O_CLOEXEC);
	long fd;

	if (top < 0)
		return -errno;
	fd = syscall(SYS_openat2, top, path + strspn(path, "/"), &how, sizeof how);
	return fd < 0 ? -errno : (int)fd;
}

static bool is_weirs(const char *path)
{
	size_t n = strlen("/" CGROUP_TOP);

	return !strncmp(path, "/" CGROUP_TOP, n) && (path[n] == '/' || !path[n]);
}

/* What `path`, below the mount, says when it is seen from the real root. */
static void workload_below(const char *root, const char *path, struct workload *ret)
{
	size_t cut = strlen(root);
	char full[2 * PATH_MAX];

	snprintf(full, sizeof full, "%s%s", root, path);
	workload_of_path(full, ret);
	ret->container_len = ret->container_len > cut ? ret->container_len - cut : 0;
	ret->pod_len = ret->pod_len > cut ? ret->pod_len - cut : 0;
}

/* The last step of every kind: `path` is below roots->cgroup2, and normal. */
static int take_path(struct target *t, const struct target_roots *roots, const char *root, const char *path, struct err *e)
{
	const char *where = target_kind_options[t->kind];
	char text[SHOWN];
	int fd;

	if (!path[0])
		return err_set(
		    e, EPERM, where,
		    "the root of the hierarchy holds every process of the host, Weir's own too: name a cgroup below %s",
		    roots->cgroup2);
	if (is_weirs(path))
		return err_set(e, EPERM, where, "%s is one of Weir's own cgroups: what runs there has a policy already",
			       shown(text, path));
	if (strlen(path) >= sizeof t->path)
		return err_set(e, ENAMETOOLONG, where, "the path %s is too long", shown(text, path));
	fd = open_below(roots, path, O_PATH);
	if (fd == -ELOOP)
		return err_set(e, EINVAL, where, "a symbolic link stands in %s: give the path without it", shown(text, path));
	if (fd == -ENOENT || fd == -ENOTDIR)
		return err_set(e, ENOENT, where, "there is no cgroup %s on cgroup2, which is mounted at %s", shown(text, path),
			       roots->cgroup2);
	if (fd < 0)
		return err_errno(e, -fd, where, "open %s%s", roots->cgroup2, shown(text, path));
	close(fd);
	snprintf(t->path, sizeof t->path, "%s", path);
	workload_below(root, path, &t->workload);
	return 0;
}

/* ---- a directory ---- */

/* One slash before each name, none at the end; "" is the root. */
static int normal_path(const char *ref, char ret[PATH_MAX], const char *where, struct err *e)
{
	size_t n = 0;

	for (const char *p = ref; *p;) {
		size_t len = strcspn(p, "/");

		if (len == 2 && !memcmp(p, "..", 2))
			return err_set(e, EINVAL, where,
				       "a path with \"..\" in it may lead anywhere: give the directory itself");
		if (len && !(len == 1 && *p == '.')) {
			if (n + 1 + len >= PATH_MAX)
				return err_set(e, ENAMETOOLONG, where, "this path is too long");
			ret[n++] = '/';
			memcpy(ret + n, p, len);
			n += len;
		}
		p += len + (p[len] == '/');
	}
	ret[n] = '\0';
	return 0;
}

/* What stands behind `dir` in `path`; NULL when it is not below it. */
static const char *behind(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && (path[n] == '/' || !path[n]) ? path + n : NULL;
}

static int find_directory(struct target *t, const char *ref, const struct target_roots *roots, const char *root, struct err *e)
{
	const char *where = target_kind_options[t->kind], *below;
	char path[PATH_MAX] = "", mount[PATH_MAX] = "";
	bool elsewhere;
	int rc;

	if (!ref[0])
		return err_set(e, EINVAL, where, "an empty path: give a directory below %s", roots->cgroup2);
	rc = normal_path(ref, path, where, e);
	if (rc == 0)
		rc = normal_path(roots->cgroup2, mount, where, e);
	if (rc != 0)
		return rc;
	below = behind(path, mount);
	elsewhere = !below && ref[0] == '/' && behind(path, SYSTEMD_MOUNT);
	if (!below)
		below = elsewhere ? behind(path, SYSTEMD_MOUNT) : path;
	rc = take_path(t, roots, root, below, e);
	/* /sys/fs/cgroup/memory/… and its like */
	if (rc == -ENOENT && elsewhere)
		err_wrap(e, "programs are attached to cgroup2 alone, never to a hierarchy of version 1");
	return rc;
}

/* ---- a process ---- */

/* Reads a whole file of /proc. NULL with errno. */
static char *read_file(int dir, const char *name)
{
	_cleanup_fd_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_free_ char *text = malloc(PROC_FILE);
	size_t len = 0;
	ssize_t n = 1;

	while (fd >= 0 && text && len < PROC_FILE - 1 && n > 0) {
		n = read(fd, text + len, PROC_FILE - 1 - len);
		if (n > 0)
			len += (size_t)n;
	}
	if (fd < 0 || !text || n < 0)
		return NULL;
	if (len == PROC_FILE - 1) {
		errno = E2BIG;
		return NULL;
	}
	text[len] = '\0';
	return TAKE_PTR(text);
}

static int ended(const char *ref, struct err *e)
{
	return err_set(e, ESRCH, "--pid", "process %s has ended", ref);
}

static int check_process(int dir, const char *ref, struct err *e)
{
	_cleanup_free_ char *stat = read_file(dir, "stat"), *status = read_file(dir, "status");
	const char *p = stat ? strrchr(stat, ')') : NULL, *leader;
	unsigned long tgid;
	unsigned flags;
	char state;

	if (!p || !status || sscanf(p + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2)
		return ended(ref, e);
	if (state == 'Z' || state == 'X')
		return err_set(
		    e, ESRCH, "--pid",
		    "process %s has ended, and waits for its parent to take note: there is nothing left of it to judge", ref);
	if (flags & KERNEL_THREAD)
		return err_set(e, EPERM, "--pid", "%s is a thread of the kernel, not a process", ref);
	leader = keyline_find(status, "Tgid", ':');
	tgid = leader ? strtoul(leader, NULL, 10) : 0;
	if (isdigit((unsigned char)ref[0]) && tgid != strtoul(ref, NULL, 10))
		return err_set(e, EINVAL, "--pid", "%s is a thread of process %lu: give --pid %lu", ref, tgid, tgid);
	return 0;
}

/* Of "hierarchy:controllers:path", the path; *ret_end is the end of the line. NULL at the end. */
static const char *next_line(const char **at, bool *ret_v2, const char **ret_end)
{
	while (**at) {
		const char *line = *at, *end = strchrnul(line, '\n');
		const char *names = memchr(line, ':', (size_t)(end - line));
		const char *path = names ? memchr(names + 1, ':', (size_t)(end - names - 1)) : NULL;

		*at = *end ? end + 1 : end;
		if (!path)
			continue;
		*ret_v2 = !strncmp(line, "0::", 3);
		*ret_end = end;
		return path + 1;
	}
	return NULL;
}

/* Its place on cgroup2. *ret_v1: a container or pod that it is in on a hierarchy of version 1. false: no cgroup2. */
static bool read_cgroup(const char *text, char ret[PATH_MAX], struct workload *ret_v1)
{
	const char *at = text, *path, *end;
	bool v2, found = false;

	*ret_v1 = (struct workload){.runtime = ""};
	while ((path = next_line(&at, &v2, &end))) {
		char one[PATH_MAX];

		if ((size_t)(end - path) >= sizeof one)
			continue;
		memcpy(one, path, (size_t)(end - path));
		one[end - path] = '\0';
		if (v2) {
			memcpy(ret, one, sizeof one);
			found = true;
		} else if (!ret_v1->container[0]) {
			workload_of_path(one, ret_v1);
		}
	}
	return found;
}

static int refuse_root(const char *ref, const struct workload *v1, struct err *e)
{
	if (v1->container[0] || v1->pod[0])
		return err_set(e, EPERM, "--pid",
			       "process %s is in %s %s on cgroup version 1 alone, and in the root of cgroup2, where every "
			       "other process is: "
			       "a policy can only be put on a runtime's cgroups of version 2",
			       ref, v1->container[0] ? "container" : "pod", v1->container[0] ? v1->container : v1->pod);
	return err_set(e, EPERM, "--pid",
		       "process %s is in the root cgroup, with everything that has no cgroup of its own: start it in one, with "
		       "systemd-run --scope COMMAND or weir exec --policy P -- COMMAND",
		       ref);
}

static bool is_pid(const char *ref)
{
	size_t n = strlen(ref);

	for (size_t i = 0; i < n; i++)
		if (!isdigit((unsigned char)ref[i]))
			return false;
	return n > 0 && n <= 9 && ref[0] != '0';
}

static int find_pid(struct target *t, const char *ref, const struct target_roots *roots, const char *root, struct err *e)
{
	char path[PATH_MAX], dir_path[PATH_MAX], text[SHOWN];
	_cleanup_free_ char *file = NULL;
	_cleanup_fd_ int dir = -1;
	const char *below;
	struct workload v1, w;
	size_t len;
	int rc;

	if (strcmp(ref, "self") != 0 && !is_pid(ref))
		return err_set(e, EINVAL, "--pid", "\"%.40s\" is no process id: give a number, or \"self\"", shown(text, ref));
	snprintf(dir_path, sizeof dir_path, "%s/%s", roots->proc, ref);
	/* One directory for all that is read: it stays that of this process, whoever gets the number next. */
	dir = open(dir_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return errno == ENOENT ? err_set(e, ESRCH, "--pid", "there is no process %s", ref)
				       : err_errno(e, errno, "--pid", "open %s", dir_path);
	rc = check_process(dir, ref, e);
	if (rc < 0)
		return rc;
	file = read_file(dir, "cgroup");
	if (!file)
		return errno == ENOENT || errno == ESRCH ? ended(ref, e)
							 : err_errno(e, errno, "--pid", "read %s/cgroup", dir_path);
	if (!read_cgroup(file, path, &v1))
		return err_set(e, EPERM, "--pid", "process %s is in no cgroup of version 2: this host keeps all on version 1",
			       ref);
	if (!strncmp(path, "/..", 3) && (path[3] == '/' || !path[3]))
		return err_set(e, EPERM, "--pid",
			       "process %s is in %s, outside of the cgroup namespace that Weir is in: start Weir in the host's",
			       ref, shown(text, path));
	if (!strcmp(path, "/"))
		return refuse_root(ref, &v1, e);
	below = behind(path, root);
	if (!below || !*below)
		return err_set(e, ENOENT, "--pid",
			       "process %s is in %s, and of the hierarchy only what lies below %s is mounted at %s", ref,
			       shown(text, path), root, roots->cgroup2);
	if (is_weirs(below))
		return err_set(e, EPERM, "--pid", "process %s is in %s, one of Weir's own cgroups, and has a policy already",
			       ref, shown(text, below));
	workload_below(root, below, &w);
	if (w.monitor && !w.pod_len && !w.container_len)
		return err_set(e, EPERM, "--pid",
			       "process %s belongs to a container's runtime, which keeps it beside the container: give the "
			       "container, with "
			       "--container ID",
			       ref);
	len = w.pod_len ? w.pod_len : w.container_len;
	if (!len)
		len = strlen(below);
	path[(size_t)(below - path) + len] = '\0';
	return take_path(t, roots, root, below, e);
}

/* ---- walking ---- */

enum walk { WALK_DOWN, WALK_PAST, WALK_STOP };

struct walker {
	enum walk (*visit)(void *ctx, int dir, const char *path);
	void *ctx;
	const char *where; /* for errors */
	bool whole;	   /* what lies too deep is an error, else passed over */
	unsigned seen;
};

static bool is_dir(int dir, const struct dirent *d)
{
	struct stat st;

	if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
		return false;
	if (d->d_type != DT_UNKNOWN)
		return d->d_type == DT_DIR;
	return fstatat(dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static DIR *open_directory(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d && fd >= 0)
		close(fd);
	return d;
}

struct levels {
	struct {
		DIR *dir;
		size_t len; /* of its path */
	} each[WALK_LEVELS + 1];
	int top; /* -1: none */
	char path[PATH_MAX];
};

/* One more below the top. 1: it is to be walked; 0: not; negative: an error, or -ECANCELED. */
static int enter(struct walker *w, struct levels *l, const char *name, struct err *e)
{
	int parent = dirfd(l->each[l->top].dir);
	size_t len = l->each[l->top].len, n = strlen(name);
	enum walk how;
	DIR *dir;

	if (++w->seen > WALK_DIRECTORIES)
		return err_set(e, E2BIG, w->where,
			       "there are more than %d cgroups to look through: give the directory, with --cgroup",
			       WALK_DIRECTORIES);
	if (l->top == WALK_LEVELS || len + 1 + n >= sizeof l->path)
		return w->whole ? err_set(e, E2BIG, w->where,
					  "its cgroups are nested more than %d deep, or with too long a path", WALK_LEVELS)
				: 0;
	dir = open_directory(parent, name);
	/* It may have been removed since its name was read. Whatever else keeps one shut is no reason to miss what is in it. */
	if (!dir)
		return errno == ENOENT || errno == ENODEV || errno == ENOTDIR || errno == ELOOP
			   ? 0
			   : err_errno(e, errno, w->where, "open a cgroup below the one asked for");
	l->path[len] = '/';
	memcpy(l->path + len + 1, name, n + 1);
	how = w->visit(w->ctx, dirfd(dir), l->path);
	if (how == WALK_DOWN) {
		l->each[++l->top].dir = dir;
		l->each[l->top].len = len + 1 + n;
		return 1;
	}
	closedir(dir);
	return how == WALK_STOP ? -ECANCELED : 0;
}

/* Visits all directories below `top`, whose own path is `path`, outer ones first. -ECANCELED when a visit has stopped it. */
static int walk(struct walker *w, int top, const char *path, struct err *e)
{
	struct levels *l = calloc(1, sizeof *l);
	int rc = 0;

	if (!l)
		return err_set(e, ENOMEM, w->where, "out of memory");
	l->top = -1;
	snprintf(l->path, sizeof l->path, "%s", path);
	l->each[0].dir = open_directory(top, ".");
	l->each[0].len = strlen(l->path);
	if (l->each[0].dir)
		l->top = 0;
	else if (errno != ENOENT && errno != ENODEV)
		rc = err_errno(e, errno, w->where, "open the cgroup");
	while (l->top >= 0 && rc >= 0) {
		DIR *dir = l->each[l->top].dir;
		const struct dirent *d = readdir(dir);

		if (!d) {
			closedir(dir);
			l->top--;
		} else if (is_dir(dirfd(dir), d)) {
			rc = enter(w, l, d->d_name, e);
		}
	}
	while (l->top >= 0)
		closedir(l->each[l->top--].dir);
	free(l);
	return rc < 0 ? rc : 0;
}

/* ---- a container, a pod ---- */

struct search {
	const char *asked, *root;
	bool pod, inside;  /* inside: also in containers */
	bool no_directory; /* a pod's container was there, and no directory of the pod */
	unsigned count;
	char found[LISTED][PATH_MAX];
	char id[WORKLOAD_ID_MAX]; /* of the first */
};

static void keep_found(struct search *s, const char *path, size_t len, const char *id)
{
	for (unsigned i = 0; i < s->count && i < LISTED; i++)
		if (strlen(s->found[i]) == len && !memcmp(s->found[i], path, len))
			return;
	if (s->count == 0)
		snprintf(s->id, sizeof s->id, "%s", id);
	if (s->count < LISTED) {
		memcpy(s->found[s->count], path, len);
		s->found[s->count][len] = '\0';
	}
	s->count++;
}

static enum walk look(void *ctx, int dir, const char *path)
{
	struct search *s = ctx;
	size_t len = strlen(path);
	struct workload w;

	(void)dir;
	if (is_weirs(path))
		return WALK_PAST;
	workload_below(s->root, path, &w);
	if (s->pod && workload_is_pod(&w, s->asked)) {
		if (w.pod_len)
			keep_found(s, path, w.pod_len, w.pod);
		else
			s->no_directory = true;
	}
	if (!s->pod && w.container_len == len && workload_is_container(&w, s->asked))
		keep_found(s, path, len, w.container);
	return w.container_len == len && !s->inside ? WALK_PAST : WALK_DOWN;
}

static int search(struct search *s, const struct target_roots *roots, const char *where, struct err *e)
{
	_cleanup_fd_ int top = open(roots->cgroup2, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (top < 0)
		return err_errno(e, errno, where, "open %s", roots->cgroup2);
	for (int inside = 0; inside < 2 && s->count == 0; inside++) {
		struct walker w = {.visit = look, .ctx = s, .where = where};
		int rc;

		s->inside = inside;
		rc = walk(&w, top, "", e);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Whether this host has hierarchies of version 1 as well, where a runtime may keep everything. */
static bool has_v1(const struct target_roots *roots)
{
	_cleanup_free_ char *text = NULL;
	char path[PATH_MAX];
	const char *at, *end;
	bool v2 = true;

	snprintf(path, sizeof path, "%s/self/cgroup", roots->proc);
	text = read_file(AT_FDCWD, path);
	for (at = text; at && v2 && next_line(&at, &v2, &end);)
		;
	return !v2;
}

static int several(const struct search *s, const char *ref, const char *where, struct err *e)
{
	char list[LISTED * (SHOWN + 2)], text[SHOWN];
	size_t n = 0;

	for (unsigned i = 0; i < s->count && i < LISTED; i++)
		n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", shown(text, s->found[i]));
	return err_set(e, ENOTUNIQ, where, "%s fits %u cgroups: give more of the id, or one of them with --cgroup: %s%s", ref,
		       s->count, list, s->count > LISTED ? " …" : "");
}

static int find_id(struct target *t, const char *ref, const struct target_roots *roots, const char *root, struct err *e)
{
	const char *where = target_kind_options[t->kind], *what = target_kind_names[t->kind], *problem;
	_cleanup_free_ struct search *s = calloc(1, sizeof *s);
	char text[SHOWN];
	int rc;

	problem = workload_id_problem(ref, t->kind == TARGET_POD);
	if (problem)
		return err_set(e, EINVAL, where, "\"%.80s\" %s", shown(text, ref), problem);
	if (!s)
		return err_set(e, ENOMEM, where, "out of memory");
	s->asked = ref;
	s->root = root;
	s->pod = t->kind == TARGET_POD;
	rc = search(s, roots, where, e);
	if (rc < 0)
		return rc;
	if (s->count > 1)
		return several(s, ref, where, e);
	if (s->count == 0 && s->no_directory)
		return err_set(e, ENOENT, where,
			       "pod %s has no cgroup of its own, since kubelet and runtime do not use the same cgroup driver: "
			       "put the policy on "
			       "each of its containers, with --container ID",
			       ref);
	if (s->count == 0)
		return err_set(
		    e, ENOENT, where, "no cgroup below %s belongs to a %s %s%s", roots->cgroup2, what, ref,
		    has_v1(roots)
			? "; it may not run, or its runtime keeps it on cgroup version 1 alone, where no policy can be put"
			: "; does it run?");
	rc = take_path(t, roots, root, s->found[0], e);
	if (rc == 0)
		snprintf(t->ref, sizeof t->ref, "%s", s->id);
	return rc;
}

/* ---- the interface ---- */

int target_find(struct target *ret, enum target_kind kind, const char *ref, const struct target_roots *roots, struct err *e)
{
	struct target t = {.kind = kind, .fd = -1, .workload.runtime = ""};
	char root[PATH_MAX];
	int rc;

	if (strlen(ref) >= sizeof t.ref)
		return err_set(e, ENAMETOOLONG, target_kind_options[kind], "longer than %zu characters", sizeof t.ref - 1);
	snprintf(t.ref, sizeof t.ref, "%s", ref);
	mounted_root(roots, root);
	switch (kind) {
	case TARGET_CGROUP:
	case TARGET_PARENT:
		rc = find_directory(&t, ref, roots, root, e);
		break;
	case TARGET_PID:
		rc = find_pid(&t, ref, roots, root, e);
		break;
	case TARGET_CONTAINER:
	case TARGET_POD:
		rc = find_id(&t, ref, roots, root, e);
		break;
	case TARGET_KINDS:
	default:
		rc = err_set(e, EINVAL, "target", "no such kind of target");
	}
	if (rc == 0)
		*ret = t;
	return rc;
}

int target_open(struct target *t, const struct target_roots *roots, struct err *e)
{
	const char *where = target_kind_options[t->kind];
	_cleanup_fd_ int fd = open_below(roots, t->path, O_RDONLY);
	char root[PATH_MAX], text[SHOWN];
	struct statfs fs;
	uint64_t id;

	if (fd == -ENOENT || fd == -ENODEV)
		return err_set(e, ENOENT, where, "the cgroup %s is gone", shown(text, t->path));
	if (fd < 0)
		return err_errno(e, -fd, where, "open %s%s", roots->cgroup2, shown(text, t->path));
	if (fstatfs(fd, &fs) < 0 || fs.f_type != CGROUP2_SUPER_MAGIC)
		return err_set(e, EINVAL, where, "%s%s is no cgroup of version 2", roots->cgroup2, shown(text, t->path));
	id = cgroup_id_of(fd);
	if (!id)
		return err_errno(e, errno, where, "ask for the id of the cgroup %s", shown(text, t->path));
	/* Of one that was open before the depth is known: cgroups do not move. Checks of many come here all the time. */
	if (t->id != id || !t->level) {
		mounted_root(roots, root);
		t->level = depth_of(root) + depth_of(t->path);
	}
	t->id = id;
	t->fd = TAKE_FD(fd);
	return 0;
}

void target_close(struct target *t)
{
	if (t->fd > 0)
		close(t->fd);
	t->fd = -1;
}

struct processes {
	int (*each)(void *ctx, int pid, const char *cgroup);
	void *ctx;
	int answer;
	int error;
};

/* 0, or what `each` said, or -1 with p->error. */
static int list_processes(struct processes *p, int dir, const char *file, const char *path)
{
	_cleanup_file_ FILE *f = NULL;
	int fd = openat(dir, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char line[32];

	f = fd < 0 ? NULL : fdopen(fd, "r");
	if (!f) {
		p->error = errno;
		if (fd >= 0)
			close(fd);
		return -1;
	}
	errno = 0;
	while (fgets(line, sizeof line, f)) {
		int pid;

		if (sscanf(line, "%d", &pid) != 1)
			continue;
		p->answer = p->each(p->ctx, pid, path);
		if (p->answer)
			return p->answer;
		errno = 0;
	}
	p->error = ferror(f) ? errno : 0;
	return p->error ? -1 : 0;
}

static bool vanished(int error)
{
	return error == ENOENT || error == ENODEV;
}

static enum walk visit_processes(void *ctx, int dir, const char *path)
{
	struct processes *p = ctx;

	list_processes(p, dir, "cgroup.procs", path);
	/* A cgroup of threads: their processes are listed further up, or it is the target itself, see below. */
	if (p->error == EOPNOTSUPP || vanished(p->error))
		p->error = 0;
	return p->answer || p->error ? WALK_STOP : WALK_DOWN;
}

int target_each_process(const struct target *t, int (*each)(void *ctx, int pid, const char *cgroup), void *ctx, struct err *e)
{
	struct processes p = {.each = each, .ctx = ctx};
	const char *where = target_kind_options[t->kind];
	struct walker w = {.visit = visit_processes, .ctx = &p, .where = where, .whole = true};
	int rc;

	list_processes(&p, t->fd, "cgroup.procs", t->path);
	if (p.error == EOPNOTSUPP)
		list_processes(&p, t->fd, "cgroup.threads", t->path);
	if (vanished(p.error))
		return 0;
	if (p.answer)
		return p.answer;
	rc = p.error ? -ECANCELED : walk(&w, t->fd, t->path, e);
	if (p.answer)
		return p.answer;
	if (p.error)
		return err_errno(e, p.error, where, "list the processes of a cgroup");
	return rc;
}
