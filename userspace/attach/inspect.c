/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes. They run on while they are looked at and may be hostile: what /proc tells of one can be old a moment later,
 * and reading some of it (the command line, a file of its root) waits for memory and file systems that the process itself may
 * have made. So a child does the looking, with a deadline, and hands its findings over in shared memory.
 *
 * What a process does after this look, and what others hand it later, is not in it.
 *
 * Names prove nothing. A workload that calls itself "runsc" would be refused, and so go without a policy, which may be just
 * what it wants: gVisor and virtual machines count as such only when the program is a file of the host's.
 */
#include "attach/inspect.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <linux/nsfs.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/inspect_priv.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/keyline.h"
#include "core/resolvconf.h"

#define DEADLINE_MS 5000
#define STATUS_BYTES 65536	/* of /proc/PID/status; a long list of groups is in it */
#define RESOLV_CONF_BYTES 65536 /* what is longer is nobody's resolv.conf */
#define RESOLV_CONF_TRIES 4	/* processes asked for theirs */
#define CGROUPS_MAX 16384	/* looked through for others of the same container */
#define OTHERS_MAX 65536	/* processes of the host likewise */
#define ANCESTORS_MAX 64
#define PASSES_MAX 12	/* over the list, as long as it changes under our eyes */
#define USERNS_DEPTH 34 /* user namespaces in each other: the kernel allows 32 */
/* Inodes of the initial namespaces: part of the kernel's ABI (linux/proc_ns.h). */
#define INIT_USER_NS 0xEFFFFFFDu
#define INIT_PID_NS 0xEFFFFFFCu

/* ---- what the host is ---- */

enum ns { NS_USER, NS_NET, NS_PID, NS_MNT, NAMESPACES };
static const char *const ns_files[NAMESPACES] = {"ns/user", "ns/net", "ns/pid", "ns/mnt"};

/*
 * The host's namespaces: those of pid 1, and of the kernel's own threads, which never leave the initial ones. Not all of the
 * two can be asked everywhere; in a cluster made of containers they differ, and both count as the host.
 */
struct host {
	struct {
		dev_t dev;
		ino_t ino;
	} ns[NAMESPACES][2];
	size_t count[NAMESPACES];
	int root; /* its root directory; -1 */
	struct statx root_at;
};

/* Shared with the child. */
struct shared {
	struct coverage_found found;
	char resolvers[3][46];
	size_t resolver_count;
	unsigned processes, resolv_tries;
	bool host_network;
	struct inspect_hints hints;
	int caller;  /* Weir itself can be in there: a unit that attaches as it starts. It is over when the workload runs */
	int created; /* a process of a container that is being created, whose cgroup is left out; 0: none */
	int at;	     /* the process that is being looked at; 0: none */
};

/* Mount namespaces that were looked through already. */
#define MOUNTS_KNOWN 64
struct known_mounts {
	ino_t ns;
	int tree; /* enum tree: a cgroup tree beyond the target, or Weir's pins */
};

#define NETS_KNOWN 64

struct look {
	const struct target *t;
	struct shared *to;
	struct host host;
	struct known_mounts mounts[MOUNTS_KNOWN];
	size_t mount_count;
	ino_t nets[NETS_KNOWN]; /* network namespaces that were asked for packet sockets already */
	size_t net_count;
	struct stat above[ANCESTORS_MAX]; /* cgroup.procs of each cgroup above the target */
	size_t above_count;
	unsigned gone;		/* processes that were listed, and over when they were looked at */
	dev_t pins;		/* the file system that Weir's pins are on */
	char *buf;		/* STATUS_BYTES */
	char created[PATH_MAX]; /* the cgroup of to->created; "" */
};

/* One thread: each has rights and namespaces of its own, and the first one may be over while others go on. */
struct who {
	int pid, dir; /* the process; dir: /proc/PID/task/TID, which has all that /proc/PID has */
	char comm[16];
	uint32_t uids[4];
	uint64_t permitted, bounding; /* permitted: or effective */
	bool no_new_privs, host_user;
	bool shares_group; /* with a cgroup above, that its group may write to */
	bool own_files;	   /* its programs are those of an image, not the host's */
	struct stat ns[NAMESPACES];
};

void inspect_show_comm(char ret[16], const char *comm)
{
	size_t n = 0;

	for (; n < 15 && *comm && *comm != '\n'; comm++)
		ret[n++] = (char)(*comm < ' ' || *comm > '~' ? '?' : *comm);
	ret[n] = '\0';
}

static ssize_t read_some(int dir, const char *file, char *buf, size_t size)
{
	_cleanup_fd_ int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
	size_t have = 0;

	if (fd < 0)
		return -errno;
	while (have < size - 1) {
		ssize_t n = read(fd, buf + have, size - 1 - have);

		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		have += (size_t)n;
	}
	buf[have] = '\0';
	return (ssize_t)have;
}

/* A thread of the kernel's: it has no program. */
static bool is_kernels(const char *dir)
{
	char path[64], link[8];

	snprintf(path, sizeof path, "%s/exe", dir);
	return readlink(path, link, sizeof link) < 0 && errno == ENOENT;
}

static bool is_hosts(const struct host *h, enum ns n, const struct stat *st)
{
	if ((n == NS_USER && st->st_ino == INIT_USER_NS) || (n == NS_PID && st->st_ino == INIT_PID_NS))
		return true;
	for (size_t i = 0; i < h->count[n]; i++)
		if (h->ns[n][i].dev == st->st_dev && h->ns[n][i].ino == st->st_ino)
			return true;
	return false;
}

/* Pid 1's. Where it can't be had our own, if we are in the host's mount namespace; a kernel thread's may be what the machine
 * was started from, and comes last. */
static void learn_root(struct host *h)
{
	struct stat own;
	const char *path = "/proc/2/root";

	if (stat("/proc/self/ns/mnt", &own) == 0 && is_hosts(h, NS_MNT, &own))
		path = "/";
	h->root = open("/proc/1/root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (h->root < 0)
		h->root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (h->root >= 0 && statx(h->root, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &h->root_at) < 0) {
		close(h->root);
		h->root = -1;
	}
}

static void learn_host(struct host *h)
{
	static const char *const dirs[] = {"/proc/2", "/proc/1"};

	h->root = -1;
	for (size_t d = 0; d < 2; d++) {
		char path[64];

		if (d == 0 && !is_kernels(dirs[d]))
			continue;
		for (int n = 0; n < NAMESPACES; n++) {
			struct stat st;

			snprintf(path, sizeof path, "%s/%s", dirs[d], ns_files[n]);
			if (stat(path, &st) < 0)
				continue;
			h->ns[n][h->count[n]].dev = st.st_dev;
			h->ns[n][h->count[n]++].ino = st.st_ino;
		}
	}
	learn_root(h);
}

bool inspect_is_host_netns(uint32_t inode)
{
	struct host h = {0};
	bool is = false;

	learn_host(&h);
	for (size_t i = 0; i < h.count[NS_NET]; i++)
		is = is || h.ns[NS_NET][i].ino == inode;
	cleanup_fdp(&h.root);
	return is;
}

bool inspect_is_host_network(const char *path)
{
	struct host h = {0};
	struct stat st;
	bool is;

	learn_host(&h);
	is = stat(path, &st) == 0 && is_hosts(&h, NS_NET, &st);
	cleanup_fdp(&h.root);
	return is;
}

/* ---- one process: who it is ---- */

static uint64_t hex_after(const char *status, const char *key)
{
	const char *at = keyline_find(status, key, ':');

	return at ? strtoull(at, NULL, 16) : 0;
}

/* Whether `gid` stands on one of the two lines of groups. */
static bool has_group(const char *status, gid_t gid)
{
	static const char *const keys[] = {"Gid", "Groups"};

	for (size_t k = 0; k < 2; k++) {
		const char *at = keyline_find(status, keys[k], ':');

		while (at && *at && *at != '\n') {
			char *end;
			unsigned long n = strtoul(at, &end, 10);

			if (end == at)
				at++;
			else if (n == gid)
				return true;
			else
				at = end;
		}
	}
	return false;
}

static bool same_inode(const struct statx *a, const struct statx *b)
{
	return a->stx_ino == b->stx_ino && a->stx_dev_major == b->stx_dev_major && a->stx_dev_minor == b->stx_dev_minor;
}

/* A mount namespace of its own is no sign: services have one for their /tmp. (Asked without the file system's help, which might
 * be the process itself.) */
static bool is_hosts_root(const struct look *l, const struct who *w)
{
	struct statx root;

	if (l->host.root < 0 || statx(w->dir, "root", AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &root) < 0)
		return is_hosts(&l->host, NS_MNT, &w->ns[NS_MNT]);
	return same_inode(&root, &l->host.root_at);
}

/* 0, or a negative errno; -ESRCH: it is over; a zombie has no namespaces left. w->dir is the caller's to close. */
static int read_who(struct look *l, int pid, int tasks, const char *tid, struct who *w)
{
	const char *at;
	ssize_t n;

	*w = (struct who){.pid = pid, .dir = openat(tasks, tid, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
	if (w->dir < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	n = read_some(w->dir, "status", l->buf, STATUS_BYTES);
	if (n < 0)
		return n == -ENOENT ? -ESRCH : (int)n;
	at = keyline_find(l->buf, "Name", ':');
	inspect_show_comm(w->comm, at ? at + 1 : "");
	at = keyline_find(l->buf, "Uid", ':');
	if (!at || sscanf(at, "%u %u %u %u", &w->uids[0], &w->uids[1], &w->uids[2], &w->uids[3]) != 4 ||
	    !keyline_find(l->buf, "CapBnd", ':'))
		return -EIO;
	w->permitted = hex_after(l->buf, "CapPrm") | hex_after(l->buf, "CapEff");
	w->bounding = hex_after(l->buf, "CapBnd");
	at = keyline_find(l->buf, "NoNewPrivs", ':');
	w->no_new_privs = at && at[1] == '1';
	for (size_t i = 0; i < l->above_count; i++)
		w->shares_group |= (l->above[i].st_mode & S_IWGRP) && has_group(l->buf, l->above[i].st_gid);
	for (int i = 0; i < NAMESPACES; i++)
		if (fstatat(w->dir, ns_files[i], &w->ns[i], 0) < 0)
			return errno == ENOENT ? -ESRCH : -errno;
	w->host_user = is_hosts(&l->host, NS_USER, &w->ns[NS_USER]);
	w->own_files = !is_hosts_root(l, w);
	return 0;
}

static bool is_root(const struct who *w)
{
	for (size_t i = 0; i < 4; i++)
		if (w->uids[i] == 0)
			return true;
	return false;
}

#define CAP(c) (1ull << CAP_##c)

/* With these in the host's user namespace somebody can become root, or be taken for it by the file system. */
#define TO_ROOT (CAP(SETUID) | CAP(SETGID) | CAP(SETFCAP))
#define LIKE_ROOT (TO_ROOT | CAP(DAC_OVERRIDE) | CAP(CHOWN) | CAP(FOWNER) | CAP(MKNOD))

/*
 * Whether it has one of `caps`, 2, or could get one, 1: by starting a program, when it is root; by a set-uid program or one
 * with file capabilities, when its programs are those of an image, which anybody may have made. Those of the host itself ask
 * who wants something.
 */
static int may(const struct who *w, uint64_t caps)
{
	if (w->permitted & caps)
		return 2;
	return (w->bounding & caps) && !w->no_new_privs &&
	       ((w->host_user && (is_root(w) || (w->permitted & TO_ROOT))) || w->own_files);
}

/* Whether its capabilities count in its network namespace: that belongs to its user namespace, or to one inside of that. */
static bool owns_network(const struct who *w)
{
	_cleanup_fd_ int net = openat(w->dir, ns_files[NS_NET], O_RDONLY | O_CLOEXEC);
	int at = net < 0 ? -1 : ioctl(net, NS_GET_USERNS);
	bool owns = at < 0; /* unknown: as if */

	for (unsigned depth = 0; at >= 0 && !owns && depth < USERNS_DEPTH; depth++) {
		struct stat st;
		int up;

		owns = fstat(at, &st) < 0 || (st.st_ino == w->ns[NS_USER].st_ino && st.st_dev == w->ns[NS_USER].st_dev);
		up = owns ? -1 : ioctl(at, NS_GET_PARENT);
		close(at);
		at = up;
	}
	cleanup_fdp(&at);
	return owns;
}

__attribute__((format(printf, 4, 5))) static void add(struct look *l, enum weakness weak, const struct who *w, const char *fmt,
						      ...)
{
	char more[96];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(more, sizeof more, fmt, ap);
	va_end(ap);
	coverage_add(&l->to->found, weak, "pid %d (%s)%s", w->pid, w->comm, more);
}

/* ---- what it may do ---- */

/* Each of these, in the host's user namespace, is a way to undo what the kernel was told, or to become somebody who can. */
#define UNDOING                                                                                                                \
	(CAP(SYS_ADMIN) | CAP(SYS_MODULE) | CAP(SYS_RAWIO) | CAP(SYS_BOOT) | CAP(BPF) | CAP(DAC_READ_SEARCH) | CAP(MAC_ADMIN))

static const struct {
	uint64_t cap;
	const char *name;
} undoing_names[] = {
    {CAP(SYS_ADMIN), "SYS_ADMIN"},   {CAP(BPF), "BPF"},
    {CAP(SYS_MODULE), "SYS_MODULE"}, {CAP(SYS_RAWIO), "SYS_RAWIO"},
    {CAP(SYS_BOOT), "SYS_BOOT"},     {CAP(DAC_READ_SEARCH), "DAC_READ_SEARCH"},
    {CAP(MAC_ADMIN), "MAC_ADMIN"},   {CAP(SYS_PTRACE), "SYS_PTRACE and the host's processes"},
};

/* A container that could undo the policy is one thing; that root of the host could is no surprise. */
static enum weakness undoing_by(const struct look *l, const struct who *w)
{
	const struct workload *of = &l->t->workload;

	return of->container[0] || of->pod[0] || w->own_files || !is_hosts(&l->host, NS_PID, &w->ns[NS_PID]) ? WEAK_PRIVILEGED
													     : WEAK_ROOT;
}

static void look_at_capabilities(struct look *l, const struct who *w)
{
	static const char *const how[] = {"", ", by a program that gives it more rights than it has", ""};
	uint64_t undoing = UNDOING;
	bool owns = owns_network(w);
	int raw = owns ? may(w, CAP(NET_RAW)) : 0, admin = owns ? may(w, CAP(NET_ADMIN)) : 0, undo;

	if (raw)
		add(l, WEAK_NET_RAW, w, "%s", how[raw]);
	if (admin)
		add(l, WEAK_NET_ADMIN, w, "%s", how[admin]);
	if (!w->host_user)
		return;
	if (is_hosts(&l->host, NS_PID, &w->ns[NS_PID]))
		undoing |= CAP(SYS_PTRACE);
	undo = may(w, undoing);
	for (size_t i = 0; undo && i < sizeof undoing_names / sizeof undoing_names[0]; i++)
		if (undoing_names[i].cap & undoing & (undo == 2 ? w->permitted : w->bounding)) {
			add(l, undoing_by(l, w), w, " has %s%s", undoing_names[i].name, how[undo]);
			break;
		}
}

/* ---- whether it could leave the cgroup ---- */

/* "/a/b" is within "/a". */
static bool is_within(const char *path, const char *of)
{
	size_t n = strlen(of);

	return !strncmp(path, of, n) && (path[n] == '\0' || path[n] == '/');
}

static bool has_option(const char *list, const char *option)
{
	size_t n = strlen(option);

	for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (!strncmp(p, option, n) && (p[n] == ',' || p[n] == '\0' || isspace((unsigned char)p[n])))
			return true;
	return false;
}

/* Whether a list of mounts has the cgroup2 tree for writing, with more of it than the target and what is below, or Weir's pins.
 */
static bool has_mounts(const struct look *l, FILE *f)
{
	_cleanup_free_ char *line = NULL;
	size_t room = 0;

	while (getline(&line, &room, f) >= 0) {
		_cleanup_free_ char *root = NULL, *options = NULL, *super = NULL;
		const char *tail = strstr(line, " - ");
		unsigned major, minor;
		char type[16];

		if (!tail || sscanf(tail, " - %15s", type) != 1 || (strcmp(type, "cgroup2") != 0 && strcmp(type, "bpf") != 0))
			continue;
		if (sscanf(line, "%*s %*s %u:%u %ms %*s %ms", &major, &minor, &root, &options) != 4 ||
		    sscanf(tail, " - %*s %*s %ms", &super) != 1 || !has_option(options, "rw") || !has_option(super, "rw"))
			continue;
		if (!strcmp(type, "bpf") ? makedev(major, minor) == l->pins : !is_within(root, l->t->path))
			return true;
	}
	return false;
}

enum tree { TREE_NONE, TREE_WRITABLE, TREE_UNKNOWN };

/*
 * What /proc tells of a process's mounts ends at its root directory, and whoever holds a descriptor from before a chroot() gets
 * out of there. So a child enters the mount namespace, and reads what it has of itself then.
 */
static enum tree read_mounts(const struct look *l, const struct who *w)
{
	_cleanup_fd_ int ns = openat(w->dir, ns_files[NS_MNT], O_RDONLY | O_CLOEXEC);
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		int self = open("/proc/self/", O_PATH | O_DIRECTORY | O_CLOEXEC), fd;
		FILE *f;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setns(ns, CLONE_NEWNS) < 0)
			_exit(TREE_UNKNOWN);
		fd = openat(self, "mountinfo", O_RDONLY | O_CLOEXEC);
		f = fd < 0 ? NULL : fdopen(fd, "r");
		_exit(!f ? TREE_UNKNOWN : has_mounts(l, f) ? TREE_WRITABLE : TREE_NONE);
	}
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) <= TREE_UNKNOWN ? (enum tree)WEXITSTATUS(status)
										     : TREE_UNKNOWN;
}

static enum tree has_tree(struct look *l, const struct who *w)
{
	struct known_mounts *k;

	for (size_t i = 0; i < l->mount_count && i < MOUNTS_KNOWN; i++)
		if (l->mounts[i].ns == w->ns[NS_MNT].st_ino)
			return l->mounts[i].tree;
	k = &l->mounts[l->mount_count++ % MOUNTS_KNOWN];
	*k = (struct known_mounts){.ns = w->ns[NS_MNT].st_ino, .tree = read_mounts(l, w)};
	return k->tree;
}

/* Who moves writes to the new cgroup and to one that is above both: any of those above the target. */
static bool may_write_tree(const struct look *l, const struct who *w)
{
	bool becomes_root = !w->no_new_privs && w->own_files; /* by a program of its image */

	if (w->host_user && (is_root(w) || becomes_root || (w->permitted & LIKE_ROOT)))
		return true;
	for (size_t a = 0; a < l->above_count; a++) {
		if (l->above[a].st_mode & S_IWOTH)
			return true;
		for (size_t i = 0; i < 4; i++)
			if (w->uids[i] == l->above[a].st_uid && (l->above[a].st_mode & S_IWUSR))
				return true;
	}
	return w->shares_group;
}

/* A directory that it stands in counts like a mount: it may have been left there from outside. */
static bool stands_in_tree(const struct who *w)
{
	_cleanup_fd_ int fd = openat(w->dir, "cwd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct statfs fs;

	return fd >= 0 && fstatfs(fd, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

static void look_at_cgroups(struct look *l, const struct who *w)
{
	enum tree tree = TREE_NONE;

	if (!may_write_tree(l, w))
		return;
	tree = has_tree(l, w);
	if (tree == TREE_WRITABLE)
		add(l, undoing_by(l, w), w, " may write to the host's cgroups or to Weir's pins");
	else if (stands_in_tree(w))
		add(l, undoing_by(l, w), w, " is in a directory of the host's cgroups");
	else if (tree == TREE_UNKNOWN)
		add(l, WEAK_UNREADABLE, w, ": its mounts");
}

/* Packet sockets of its network namespace, whoever holds them: one can wait in a queue until nobody looks. */
static void look_at_frames(struct look *l, const struct who *w)
{
	struct inspect_hints *hints = &l->to->hints;
	const char *line;

	for (size_t i = 0; i < l->net_count && i < NETS_KNOWN; i++)
		if (l->nets[i] == w->ns[NS_NET].st_ino)
			return;
	l->nets[l->net_count++ % NETS_KNOWN] = w->ns[NS_NET].st_ino;
	if (is_hosts(&l->host, NS_NET, &w->ns[NS_NET]) || read_some(w->dir, "net/packet", l->buf, STATUS_BYTES) <= 0)
		return;
	/* The inode is the last word of each line but the first. */
	for (line = strchr(l->buf, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
		const char *end = line + 1 + strcspn(line + 1, "\n");

		if (hints->frame_count == INSPECT_FRAMES_MAX)
			break;
		while (end > line && isspace((unsigned char)end[-1]))
			end--;
		while (end > line && isdigit((unsigned char)end[-1]))
			end--;
		hints->frame_pid = w->pid;
		hints->frames[hints->frame_count++] = strtoull(end, NULL, 10);
	}
}

/* In a cgroup of threads the others of its process can be anywhere, and their sockets are its own as well. */
static void look_at_place(struct look *l, const struct who *w)
{
	const char *line = read_some(w->dir, "cgroup", l->buf, STATUS_BYTES) > 0 ? keyline_find(l->buf, "0", ':') : NULL;
	char *path = line && line[0] == ':' ? l->buf + (line - l->buf) + 1 : NULL;

	if (!path)
		return;
	path[strcspn(path, "\n")] = '\0';
	if (!is_within(path, l->t->path))
		add(l, WEAK_OUTSIDE, w, " has a thread in %.60s", path);
}

/* ---- gVisor and virtual machines ---- */

static const struct {
	const char *name; /* of the program; "-" at its end: and more */
	enum weakness weak;
} machines[] = {
    {"runsc", WEAK_GVISOR},
    {"runsc-", WEAK_GVISOR},
    {"qemu-system-", WEAK_KATA},
    {"qemu-kvm", WEAK_KATA},
    {"cloud-hypervisor", WEAK_KATA},
    {"firecracker", WEAK_KATA},
    {"kata-", WEAK_KATA},
    {"containerd-shim-kata-", WEAK_KATA},
    {"stratovirt", WEAK_KATA},
    {"virtiofsd", WEAK_KATA},
};

static int machine_of(const char *name)
{
	for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
		size_t n = strlen(machines[i].name);

		if (machines[i].name[n - 1] == '-' ? !strncmp(name, machines[i].name, n) : !strcmp(name, machines[i].name))
			return (int)machines[i].weak;
	}
	return -1;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/*
 * Whether the program is a file of the host's, root's own: found at the same path there. (What is asked here is answered from
 * memory, without the file system's help, which might be the process itself.)
 */
static bool is_hosts_file(const struct look *l, const struct who *w, const char *path)
{
	struct statx of, at;

	if (l->host.root < 0 || statx(w->dir, "exe", AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &of) < 0 || of.stx_uid != 0 ||
	    (of.stx_mode & (S_IWGRP | S_IWOTH)))
		return false;
	if (is_hosts(&l->host, NS_MNT, &w->ns[NS_MNT]))
		return true;
	return statx(l->host.root, path + 1, AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &at) == 0 && same_inode(&of, &at);
}

/* Which kind of machine it is part of, or -1. */
static int find_machine(struct look *l, const struct who *w)
{
	static const char gone[] = " (deleted)";
	char path[PATH_MAX];
	ssize_t n = readlinkat(w->dir, "exe", path, sizeof path - 1);
	int weak;

	if (n <= 0 || path[0] != '/')
		return -1;
	path[n] = '\0';
	if ((size_t)n > sizeof gone && !strcmp(path + n - (sizeof gone - 1), gone))
		path[n - (ssize_t)(sizeof gone - 1)] = '\0';
	weak = machine_of(base_name(path));
	/* gVisor's processes have words of their own as first argument, whatever its binary was called when it was installed.
	 */
	if (weak < 0 && !is_hosts(&l->host, NS_MNT, &w->ns[NS_MNT]) && read_some(w->dir, "cmdline", l->buf, PATH_MAX) > 0 &&
	    !strncmp(base_name(l->buf), "runsc-", 6))
		weak = WEAK_GVISOR;
	return weak >= 0 && is_hosts_file(l, w, path) ? weak : -1;
}

/* ---- its name servers ---- */

size_t inspect_resolv_conf(int root, const char *path, char ret[3][46])
{
	const struct open_how how = {.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
				     .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	_cleanup_fd_ int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
	_cleanup_free_ char *text = malloc(RESOLV_CONF_BYTES);
	struct cidr servers[RESOLVCONF_SERVERS];
	struct stat st;
	size_t count;
	ssize_t n;

	if (fd < 0 || !text || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > RESOLV_CONF_BYTES)
		return 0;
	n = read(fd, text, RESOLV_CONF_BYTES);
	if (n <= 0)
		return 0;
	count = resolvconf_parse(text, (size_t)n, servers);
	for (size_t i = 0; i < count; i++) {
		char shown[CIDR_TEXT_MAX];

		cidr_text(shown, &servers[i], true);
		snprintf(ret[i], 46, "%.45s", shown);
	}
	return count;
}

static void look_at_resolvers(struct look *l, const struct who *w)
{
	_cleanup_fd_ int root = -1;

	if (l->to->resolver_count || l->to->resolv_tries >= RESOLV_CONF_TRIES)
		return;
	l->to->resolv_tries++;
	root = openat(w->dir, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root >= 0)
		l->to->resolver_count = inspect_resolv_conf(root, "etc/resolv.conf", l->to->resolvers);
}

/* ---- all of them ---- */

static void look_at_thread(struct look *l, const struct who *w, bool first)
{
	int machine = first ? find_machine(l, w) : -1;

	if (is_hosts(&l->host, NS_NET, &w->ns[NS_NET])) {
		l->to->host_network = true;
		add(l, WEAK_HOST_NETWORK, w, "%s", "");
	}
	if (machine >= 0)
		add(l, (enum weakness)machine, w, "%s", "");
	look_at_capabilities(l, w);
	look_at_cgroups(l, w);
	look_at_place(l, w);
	look_at_frames(l, w);
	l->to->hints.boxed |= w->own_files || !is_hosts(&l->host, NS_PID, &w->ns[NS_PID]);
	if (first)
		look_at_resolvers(l, w);
}

/* Every thread; how many of them live, or a negative errno. */
static int look_at_threads(struct look *l, int pid)
{
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	char path[32];
	int live = 0;

	snprintf(path, sizeof path, "/proc/%d/task", pid);
	d = opendir(path);
	if (!d)
		return errno == ENOENT || errno == ESRCH ? 0 : -errno;
	while ((de = readdir(d))) {
		struct who w;
		int rc;

		if (de->d_name[0] == '.')
			continue;
		rc = read_who(l, pid, dirfd(d), de->d_name, &w);
		if (rc == 0)
			look_at_thread(l, &w, live++ == 0);
		cleanup_fdp(&w.dir);
		if (rc < 0 && rc != -ESRCH)
			return rc;
	}
	return live;
}

/* With one that is being created: it, and the runtime's own process for each container, directly in the pod's cgroup. */
static bool is_left_out(const struct look *l, const char *cgroup)
{
	size_t n = strlen(l->t->path);
	struct workload w;

	if (!l->created[0])
		return false;
	if (is_within(cgroup, l->created))
		return true;
	if (!is_within(cgroup, l->t->path) || !cgroup[n] || strchr(cgroup + n + 1, '/'))
		return false;
	workload_of_path(cgroup, &w);
	return w.monitor;
}

static int find_created(void *ctx, int pid, const char *cgroup)
{
	struct look *l = ctx;

	if (pid != l->to->created)
		return 0;
	snprintf(l->created, sizeof l->created, "%s", cgroup);
	return 1;
}

static int look_at_process(void *ctx, int pid, const char *cgroup)
{
	struct look *l = ctx;
	int live;

	if (l->to->processes == INSPECT_PROCESSES_MAX) {
		coverage_add(&l->to->found, WEAK_UNREADABLE, "there are more than %d", INSPECT_PROCESSES_MAX);
		return 1;
	}
	if (pid <= 0) {
		coverage_add(&l->to->found, WEAK_UNREADABLE, "some are in a pid namespace that is not to be seen from here");
		return 0;
	}
	if (pid == l->to->caller || pid == getpid() || is_left_out(l, cgroup))
		return 0;
	__atomic_store_n(&l->to->at, pid, __ATOMIC_RELAXED);
	live = look_at_threads(l, pid);
	l->to->processes += live != 0;
	l->gone += live == 0;
	if (live < 0)
		coverage_add(&l->to->found, WEAK_UNREADABLE, "pid %d: %s", pid, strerror(-live));
	__atomic_store_n(&l->to->at, 0, __ATOMIC_RELAXED);
	return 0;
}

/* ---- the same container's or pod's elsewhere ---- */

static bool has_processes(int dir)
{
	char text[16];

	return read_some(dir, "cgroup.procs", text, sizeof text) > 0;
}

/* Whether what is at `path` belongs with the target. A pod's runtime has a process of its own beside each container. */
static bool is_kin(const struct target *t, const char *path)
{
	struct workload w;

	workload_of_path(path, &w);
	if (w.monitor)
		return false;
	if (t->workload.container[0])
		return !strcmp(w.container, t->workload.container);
	return t->workload.pod[0] && !strcmp(w.pod, t->workload.pod);
}

static void walk_cgroups(struct look *l, int dir, char *path, size_t len, unsigned *budget)
{
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_dir_ DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *de;

	if (!d)
		cleanup_fdp(&copy);
	while (d && *budget && (de = readdir(d))) {
		_cleanup_fd_ int below = -1;
		int n;

		if (de->d_type != DT_DIR || de->d_name[0] == '.')
			continue;
		n = snprintf(path + len, PATH_MAX - len, "/%s", de->d_name);
		if (n < 0 || len + (size_t)n >= PATH_MAX || is_within(path, l->t->path))
			continue;
		--*budget;
		below = openat(copy, de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (below < 0)
			continue;
		if (is_kin(l->t, path) && has_processes(below))
			coverage_add(&l->to->found, WEAK_OUTSIDE, "%.*s", WEAKNESS_DETAIL - 1, path);
		walk_cgroups(l, below, path, len + (size_t)n, budget);
	}
	path[len] = '\0';
}

/* Where the hierarchy is mounted: what the target's directory is called without its path below the root. */
static int open_hierarchy(const struct target *t)
{
	char link[64], path[PATH_MAX];
	size_t tail = strlen(t->path);
	ssize_t n;

	snprintf(link, sizeof link, "/proc/self/fd/%d", t->fd);
	n = readlink(link, path, sizeof path - 1);
	if (n <= (ssize_t)tail)
		return -1;
	path[n] = '\0';
	if (strcmp(path + (size_t)n - tail, t->path) != 0)
		return -1;
	path[(size_t)n - tail] = '\0';
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void look_elsewhere(struct look *l)
{
	_cleanup_fd_ int top = open_hierarchy(l->t);
	char path[PATH_MAX] = "";
	unsigned budget = CGROUPS_MAX;

	if (top >= 0)
		walk_cgroups(l, top, path, 0, &budget);
	if (top < 0 || !budget)
		coverage_add(&l->to->found, WEAK_UNREADABLE, "there are more than %d cgroups to look for its others in",
			     CGROUPS_MAX);
}

/*
 * A machine's own processes need not be in the container's cgroup; but they are told its id. A runtime's are root's: else any
 * user could keep a policy off a container by starting a machine with its id.
 */
static bool is_told(struct look *l, const struct who *w)
{
	const char *id = l->t->workload.container[0] ? l->t->workload.container : l->t->workload.pod;
	ssize_t n = read_some(w->dir, "status", l->buf, STATUS_BYTES);
	const char *at = n > 0 ? keyline_find(l->buf, "Uid", ':') : NULL;
	unsigned uid;

	if (!at || sscanf(at, "%u", &uid) != 1 || uid != 0)
		return false;
	n = read_some(w->dir, "cmdline", l->buf, STATUS_BYTES);
	return n > 0 && memmem(l->buf, (size_t)n, id, strlen(id));
}

static void look_for_machines(struct look *l)
{
	_cleanup_dir_ DIR *d = opendir("/proc");
	unsigned budget = OTHERS_MAX;
	struct dirent *de;

	while (d && budget && (de = readdir(d))) {
		struct who w = {.dir = -1, .pid = atoi(de->d_name)};
		int weak = -1;

		if (w.pid <= 0)
			continue;
		budget--;
		w.dir = openat(dirfd(d), de->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (w.dir >= 0 && fstatat(w.dir, ns_files[NS_MNT], &w.ns[NS_MNT], 0) == 0)
			weak = find_machine(l, &w);
		if (weak >= 0 && is_told(l, &w)) {
			char comm[32] = "";

			read_some(w.dir, "comm", comm, sizeof comm);
			inspect_show_comm(w.comm, comm);
			add(l, (enum weakness)weak, &w, ", which was started for it");
		}
		cleanup_fdp(&w.dir);
	}
	if (!d || !budget)
		coverage_add(&l->to->found, WEAK_UNREADABLE, "there are more than %d processes to look for a machine in",
			     OTHERS_MAX);
}

/* ---- the child ---- */

/* The root of the hierarchy has such a file as well. */
static void learn_above(struct look *l)
{
	char path[3 * ANCESTORS_MAX + 16] = "";

	for (size_t i = 0; i < ANCESTORS_MAX && i < l->t->level; i++) {
		size_t len = 3 * i;

		snprintf(path + len, sizeof path - len, "../cgroup.procs");
		if (fstatat(l->t->fd, path, &l->above[l->above_count], 0) == 0)
			l->above_count++;
	}
}

static void look_at_all(const struct target *t, struct shared *to)
{
	struct look l = {.t = t, .to = to, .buf = malloc(STATUS_BYTES)};
	struct stat pins;
	struct err e;
	int rc = 0;

	if (!l.buf) {
		coverage_add(&to->found, WEAK_UNREADABLE, "out of memory");
		return;
	}
	learn_host(&l.host);
	learn_above(&l);
	if (stat("/sys/fs/bpf", &pins) == 0)
		l.pins = pins.st_dev;
	if (to->created && target_each_process(t, find_created, &l, &e) < 0)
		coverage_add(&to->found, WEAK_UNREADABLE, "%.150s", e.msg);
	/* What ends as soon as it was listed may have handed on its rights: the list must hold still once. */
	for (unsigned pass = 0; pass == 0 || (rc >= 0 && l.gone && pass < PASSES_MAX); pass++) {
		l.gone = to->processes = 0;
		rc = target_each_process(t, look_at_process, &l, &e);
	}
	if (rc < 0)
		coverage_add(&to->found, WEAK_UNREADABLE, "%.150s", e.msg);
	else if (l.gone)
		coverage_add(&to->found, WEAK_UNREADABLE, "its processes end faster than they can be looked at");
	else if (!to->processes && !(to->found.weak & 1u << WEAK_UNREADABLE))
		coverage_add(&to->found, WEAK_EMPTY, "%s", "");
	if (t->workload.container[0] || t->workload.pod[0]) {
		look_elsewhere(&l);
		look_for_machines(&l);
	}
	cleanup_fdp(&l.host.root);
	free(l.buf);
}

/* Waits for the child's end, and brings it about when that takes too long. Whether it ended by itself. */
static bool wait_for(pid_t child)
{
	_cleanup_fd_ int fd = (int)syscall(SYS_pidfd_open, child, 0);
	uint64_t end = clock_now_ns() + DEADLINE_MS * 1000000ull, now;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int status = -1;

	while (fd >= 0 && (now = clock_now_ns()) < end && poll(&p, 1, (int)((end - now) / 1000000) + 1) < 0 && errno == EINTR)
		;
	if (fd < 0 || !(p.revents & POLLIN))
		kill(child, SIGKILL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int look_at_processes(const struct target *t, int created, struct inspection *ret, struct inspect_hints *ret_hints,
			     struct err *e)
{
	struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child;

	if (s == MAP_FAILED)
		return err_errno(e, errno, "coverage", "look at its processes");
	s->caller = getpid();
	s->created = created;
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		look_at_all(t, s);
		_exit(0);
	}
	if (child < 0) {
		int error = errno;

		munmap(s, sizeof *s);
		return err_errno(e, error, "coverage", "start a process to look at others");
	}
	if (!wait_for(child)) {
		if (s->at)
			coverage_add(&s->found, WEAK_UNREADABLE, "pid %d does not let itself be looked at", s->at);
		else
			coverage_add(&s->found, WEAK_UNREADABLE, "it took longer than %d s", DEADLINE_MS / 1000);
	}
	ret->found = s->found;
	ret->processes = s->processes;
	ret->host_network = s->host_network;
	*ret_hints = s->hints;
	ret->resolver_count = s->resolver_count;
	memcpy(ret->resolvers, s->resolvers, sizeof ret->resolvers);
	munmap(s, sizeof *s);
	return 0;
}

int inspect_target(const struct target *t, const struct policy *p, const struct policy_image *image, struct inspection *ret,
		   struct err *e)
{
	return inspect_beside(t, 0, p, image, ret, e);
}

int inspect_beside(const struct target *t, int pid, const struct policy *p, const struct policy_image *image,
		   struct inspection *ret, struct err *e)
{
	struct inspection i = {0};
	struct inspect_hints hints = {0};
	int rc = look_at_processes(t, pid, &i, &hints, e);

	hints.boxed |= t->workload.container[0] || t->workload.pod[0];
	if (rc == 0)
		rc = inspect_sockets(t, image, &hints, &i, e);
	if (rc == 0 && p)
		inspect_policy(t, p, &i.found);
	if (rc < 0) {
		inspection_clear(&i);
		return rc;
	}
	*ret = i;
	return 0;
}

void inspection_clear(struct inspection *i)
{
	free(i->sockets);
	*i = (struct inspection){0};
}
