/* SPDX-License-Identifier: Apache-2.0 */
/* The child of `weir exec` before it is the command. It has one thread and its memory to itself: any call may be made. */
#include "supervisor/command.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "kernel/confine.h"

#ifndef LANDLOCK_ACCESS_FS_REFER
#define LANDLOCK_ACCESS_FS_REFER (1ull << 13)
#endif
#define LANDLOCK_ABI_NEEDED 2 /* the first that can allow renames across directories; older ones would refuse them */

const struct command_step_info command_steps[COMMAND_STEP_COUNT] = {
#define STEP(id, layer, what) {#id, layer, what},
    COMMAND_STEPS(STEP)
#undef STEP
};

static bool same_name(const char *id, const char *name)
{
	for (; *id && *name; id++, name++) {
		char c = *id == '_' ? '-' : (char)(*id | 0x20);

		if (*id >= '0' && *id <= '9')
			c = *id;
		if (c != *name)
			return false;
	}
	return !*id && !*name;
}

enum command_step command_step_by_name(const char *name)
{
	for (int i = 0; i < COMMAND_STEP_COUNT; i++)
		if (same_name(command_steps[i].name, name))
			return (enum command_step)i;
	return COMMAND_NO_STEP;
}

bool command_hook(const struct command *c, enum command_step step, int *rc, struct err *e)
{
#ifdef WEIR_TEST_HOOKS
	if (c->fault == step) {
		*rc = err_set(e, EIO, command_steps[step].layer, "made to fail by a test");
		return true;
	}
	*rc = 0;
	return c->skip & (1ull << step);
#else
	(void)c;
	(void)step;
	(void)rc;
	(void)e;
	return false;
#endif
}

/* ---- what the child tells ---- */

struct child_report {
	int32_t step;
	int32_t error; /* 0 with step EXEC: everything is in place, and the program comes next */
	uint32_t unshielded;
	char detail[160];
};

struct child {
	const struct command *c;
	int tasks[CG_CONTROLLERS]; /* of the v1 hierarchies */
	int task_count;
	int report_fd;
	pid_t parent;
	bool unshielded;
	char detail[160]; /* beside the errno */
};

/* ---- mounts ---- */

static bool holds_our_objects(const char *type)
{
	return !strcmp(type, "cgroup2") || !strcmp(type, "cgroup") || !strcmp(type, "bpf") || !strcmp(type, "sysfs");
}

/* "\040" is a space, as the kernel writes it. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] && s[2] && s[3]) {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = 0;
}

/*
 * The mount that this row of mountinfo is, or -ENOENT when no path leads to it: something else is mounted over it, and
 * nothing can take that away: mounts of the host do not come through to here.
 */
static int open_mount(unsigned id, const char *point)
{
	_cleanup_fd_ int fd = open(point, O_PATH | O_CLOEXEC);
	struct statx st;

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? -ENOENT : -errno;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0)
		return -errno;
	if (!(st.stx_mask & STATX_MNT_ID))
		return -ENOTSUP;
	return st.stx_mnt_id == id ? TAKE_FD(fd) : -ENOENT;
}

static int make_read_only(int fd)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};

	return mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0 ? -errno : 0;
}

static int must_be_read_only(int fd)
{
	struct statvfs st;

	if (fstatvfs(fd, &st) < 0)
		return -errno;
	return st.f_flag & ST_RDONLY ? 0 : -EPERM;
}

static int each_mount(struct child *x, int (*fn)(int fd))
{
	_cleanup_file_ FILE *f = fopen("/proc/self/mountinfo", "re");
	_cleanup_free_ char *line = NULL;
	size_t room = 0;

	if (!f)
		return -errno;
	while (getline(&line, &room, f) > 0) {
		char point[4096], type[64];
		const char *tail = strstr(line, " - ");
		unsigned id;
		int fd, rc;

		if (!tail || sscanf(line, "%u %*s %*s %*s %4095s", &id, point) != 2 || sscanf(tail, " - %63s", type) != 1)
			return -EBADMSG;
		if (!holds_our_objects(type))
			continue;
		unescape(point);
		fd = open_mount(id, point);
		if (fd == -ENOENT)
			continue;
		rc = fd < 0 ? fd : fn(fd);
		if (fd >= 0)
			close(fd);
		if (rc < 0) {
			snprintf(x->detail, sizeof x->detail, "%.150s", point);
			return rc;
		}
	}
	return ferror(f) ? -EIO : 0;
}

/*
 * What the host mounts or unmounts later is seen in here as well, so that no disk stays busy because of us; what happens in
 * here is seen by nobody.
 */
static int do_mounts(struct child *x)
{
	(void)x;
	/* Private: what the host mounts or unmounts later must not bring a writable cgroup file system to light in here. */
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	return 0;
}

static bool has_own_mounts(const struct child *x)
{
	struct stat own, parents;
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/ns/mnt", x->parent);
	return stat("/proc/self/ns/mnt", &own) == 0 && stat(path, &parents) == 0 && own.st_ino != parents.st_ino;
}

/*
 * A command that is root owns the files that move it to another cgroup and that unpin the programs. Nothing but our own view
 * of them may change, so this asks once more whose it is.
 */
static int do_read_only(struct child *x)
{
	const unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
	int rc = has_own_mounts(x) ? each_mount(x, make_read_only) : -EPERM;

	if (rc < 0 || x->c->uid != 0)
		return rc;
	/* Of the kernel's settings root owns all: one of them names the program that is run, as root, when another one crashes.
	 */
	if (mount("/proc/sys", "/proc/sys", NULL, MS_BIND | MS_REC, NULL) < 0 ||
	    mount(NULL, "/proc/sys", NULL, flags, NULL) < 0) {
		rc = -errno;
		snprintf(x->detail, sizeof x->detail, "/proc/sys");
	}
	return rc;
}

/* ---- who it is ---- */

static int do_cgroup1_join(struct child *x)
{
	for (int i = 0; i < x->task_count; i++)
		if (write(x->tasks[i], "0", 1) != 1)
			return -errno;
	return 0;
}

static int do_rlimits(struct child *x)
{
	const struct rlimit files = {x->c->open_files, x->c->open_files};
	const int keep[] = {x->report_fd, x->c->stderr_fd};
	struct err e;

	if (!x->c->open_files)
		return 0;
	/* What is inherited from us may be more than the command may have, and the steps to come open a few. */
	if (confine_fds("limits", keep, sizeof keep / sizeof keep[0], &e) < 0)
		return -e.code;
	return setrlimit(RLIMIT_NOFILE, &files) < 0 ? -errno : 0;
}

static bool keeps(const struct command *c, unsigned long cap)
{
	return cap < 64 && (c->caps >> cap & 1);
}

static int do_bounding(struct child *x)
{
	/* An unknown number ends the list. */
	for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (!keeps(x->c, cap) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return -errno;
	return 0;
}

static int do_identity(struct child *x)
{
	const struct command *c = x->c;

	if (setgroups(c->group_count, c->groups) < 0)
		return -errno;
	if (prctl(PR_SET_KEEPCAPS, c->caps != 0, 0, 0, 0) < 0)
		return -errno;
	if (setresgid(c->gid, c->gid, c->gid) < 0 || setresuid(c->uid, c->uid, c->uid) < 0)
		return -errno;
	return prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) < 0 ? -errno : 0;
}

static void caps_wanted(const struct command *c, struct __user_cap_data_struct ret[2])
{
	for (int i = 0; i < 2; i++)
		ret[i].effective = ret[i].permitted = ret[i].inheritable = (uint32_t)(c->caps >> (32 * i));
}

/* Through the start of a program that has no capabilities of its own only the ambient ones stay. */
static int do_capabilities(struct child *x)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	caps_wanted(x->c, data);
	if (syscall(SYS_capset, &head, data) < 0)
		return -errno;
	for (unsigned long cap = 0; cap < 64; cap++)
		if (keeps(x->c, cap) && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
			return -errno;
	return 0;
}

/* After the change of identity, which clears it. What the command starts does not inherit it: see the keeper. */
static int do_parent_death(struct child *x)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return -errno;
	return getppid() == x->parent ? 0 : -ESRCH;
}

static int do_no_new_privs(struct child *x)
{
	(void)x;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/*
 * In a Landlock domain a process can reach into those of its own domain only, whatever user they are: not into the memory,
 * the descriptors or the root directory (/proc/PID/mem, fd, root) of one that is under no policy. No file is out of reach by
 * it: the one right that the domain is about is granted everywhere. Mounting is refused in a domain, too.
 */
static int do_landlock(struct child *x)
{
	const struct landlock_ruleset_attr domain = {.handled_access_fs = LANDLOCK_ACCESS_FS_REFER};
	struct landlock_path_beneath_attr everywhere = {.allowed_access = LANDLOCK_ACCESS_FS_REFER};
	_cleanup_fd_ int rules = -1, root = -1;

	if (syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) < LANDLOCK_ABI_NEEDED) {
		x->unshielded = true;
		return 0;
	}
	rules = (int)syscall(SYS_landlock_create_ruleset, &domain, sizeof domain, 0);
	root = open("/", O_PATH | O_CLOEXEC);
	if (rules < 0 || root < 0)
		return -errno;
	everywhere.parent_fd = root;
	if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &everywhere, 0) < 0 ||
	    syscall(SYS_landlock_restrict_self, rules, 0) < 0)
		return -errno;
	return 0;
}

static int do_descriptors(struct child *x)
{
	if (x->c->stderr_fd >= 0 && dup2(x->c->stderr_fd, STDERR_FILENO) < 0)
		return -errno;
	return close_range(STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC) < 0 ? -errno : 0;
}

static int do_signals(struct child *x)
{
	const struct command *c = x->c;

	umask(c->umask);
	if (signal(SIGCHLD, c->chld) == SIG_ERR || signal(SIGPIPE, c->pipe) == SIG_ERR || signal(SIGXFSZ, c->xfsz) == SIG_ERR)
		return -errno;
	return sigprocmask(SIG_SETMASK, &c->mask, NULL) < 0 ? -errno : 0;
}

/* ---- proof ---- */

static int wrong(struct child *x, const char *what)
{
	snprintf(x->detail, sizeof x->detail, "%s", what);
	return -EPERM;
}

static int verify_ids(struct child *x)
{
	const struct command *c = x->c;
	uid_t r, e, s;
	gid_t rg, eg, sg;

	if (getresuid(&r, &e, &s) < 0 || getresgid(&rg, &eg, &sg) < 0)
		return -errno;
	if (r != c->uid || e != c->uid || s != c->uid || rg != c->gid || eg != c->gid || sg != c->gid)
		return wrong(x, "it has another user or group");
	if (getgroups(0, NULL) != (int)c->group_count)
		return wrong(x, "it has other supplementary groups");
	return 0;
}

static int verify_caps(struct child *x)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct got[2], want[2];

	caps_wanted(x->c, want);
	if (syscall(SYS_capget, &head, got) < 0)
		return -errno;
	if (memcmp(got, want, sizeof got) != 0)
		return wrong(x, "it has other capabilities");
	for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) != keeps(x->c, cap))
			return wrong(x, "its bounding set is another");
	return 0;
}

static int do_verify(struct child *x)
{
	int rc = verify_ids(x);

	if (rc == 0)
		rc = verify_caps(x);
	if (rc == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		rc = wrong(x, "no_new_privs is not set");
	return rc < 0 ? rc : each_mount(x, must_be_read_only);
}

static int do_seccomp(struct child *x)
{
	return filter_host_load(x->c->filter);
}

/* ---- the child ---- */

static const struct {
	enum command_step step;
	int (*fn)(struct child *x);
} own_steps[] = {
    {COMMAND_CGROUP1_JOIN, do_cgroup1_join},
    {COMMAND_MOUNTS, do_mounts},
    {COMMAND_READ_ONLY, do_read_only},
    {COMMAND_RLIMITS, do_rlimits},
    {COMMAND_BOUNDING, do_bounding},
    {COMMAND_IDENTITY, do_identity},
    {COMMAND_CAPABILITIES, do_capabilities},
    {COMMAND_PARENT_DEATH, do_parent_death},
    {COMMAND_NO_NEW_PRIVS, do_no_new_privs},
    {COMMAND_LANDLOCK, do_landlock},
    {COMMAND_DESCRIPTORS, do_descriptors},
    {COMMAND_SIGNALS, do_signals},
    {COMMAND_VERIFY, do_verify},
    {COMMAND_SECCOMP, do_seccomp},
};

static void tell(const struct child *x, enum command_step step, int error)
{
	struct child_report r = {.step = (int32_t)step, .error = error, .unshielded = x->unshielded};

	memcpy(r.detail, x->detail, sizeof r.detail);
	/* One write below PIPE_BUF is whole or not at all; without it the parent takes our end for what it is. */
	(void)!write(x->report_fd, &r, sizeof r);
}

static void __attribute__((noreturn)) become_command(struct child *x)
{
	for (size_t i = 0; i < sizeof own_steps / sizeof own_steps[0]; i++) {
		struct err e;
		int rc = 0;

		if (!command_hook(x->c, own_steps[i].step, &rc, &e))
			rc = own_steps[i].fn(x);
		if (rc < 0) {
			tell(x, own_steps[i].step, -rc);
			_exit(1);
		}
	}
	tell(x, COMMAND_EXEC, 0);
	execvpe(x->c->argv[0], x->c->argv, x->c->envp);
	tell(x, COMMAND_EXEC, errno);
	_exit(1);
}

/* ---- the parent ---- */

/* The reports, until the pipe is closed by the start of the program or the end of the child. -EPIPE: it said too little. */
static int hear(int fd, struct child_report *last)
{
	bool any = false;

	for (;;) {
		struct child_report r;
		ssize_t n = read(fd, &r, sizeof r);

		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			return any ? 0 : -EPIPE;
		if (n != (ssize_t)sizeof r || r.step < 0 || r.step >= COMMAND_STEP_COUNT)
			return -EPIPE;
		r.detail[sizeof r.detail - 1] = 0;
		*last = r;
		any = true;
	}
}

static int say_failure(const struct child_report *r, const char *program, struct err *e)
{
	const struct command_step_info *step = &command_steps[r->step];

	if (r->step == COMMAND_EXEC)
		return err_errno(e, r->error, step->layer, "%.150s", program);
	return err_errno(e, r->error, step->layer, "%s%s%s", step->what, r->detail[0] ? ": " : "", r->detail);
}

static int clone_child(struct child *x, const struct cgroup_box *box, const int pipe_fd[2], struct command_process *p)
{
	struct clone_args args = {
	    .flags = CLONE_PIDFD | CLONE_INTO_CGROUP,
	    .pidfd = (uint64_t)(uintptr_t)&p->pidfd,
	    .exit_signal = SIGCHLD,
	    .cgroup = (uint64_t)box->v2_fd,
	};
	long pid;

	x->parent = getpid();
	fflush(NULL);
	pid = syscall(SYS_clone3, &args, sizeof args);
	if (pid == 0) {
		close(pipe_fd[0]);
		become_command(x);
	}
	if (pid < 0)
		return -errno;
	p->pid = (pid_t)pid;
	return 0;
}

static int start(struct child *x, const struct cgroup_box *box, struct command_process *ret, struct err *e)
{
	struct command_process p = {.pidfd = -1};
	struct child_report last = {.step = COMMAND_CLONE};
	int pipe_fd[2], rc;

	if (pipe2(pipe_fd, O_CLOEXEC) < 0)
		return err_errno(e, errno, "process", "make a pipe");
	x->report_fd = pipe_fd[1];
	rc = clone_child(x, box, pipe_fd, &p);
	close(pipe_fd[1]);
	if (rc < 0) {
		close(pipe_fd[0]);
		return err_errno(e, -rc, "cgroup", "make a process in the cgroup");
	}
	rc = hear(pipe_fd[0], &last);
	close(pipe_fd[0]);
	if (rc == 0 && last.step == COMMAND_EXEC && last.error == 0) {
		p.unshielded = last.unshielded;
		*ret = p;
		return 0;
	}
	(void)syscall(SYS_pidfd_send_signal, p.pidfd, SIGKILL, NULL, 0);
	while (waitpid(p.pid, NULL, 0) < 0 && errno == EINTR)
		;
	close(p.pidfd);
	if (rc < 0)
		return err_set(e, EPIPE, "process", "the child ended before it could start the program");
	return say_failure(&last, x->c->argv[0], e);
}

int command_start(const struct command *c, const struct cgroup_box *box, struct command_process *ret, struct err *e)
{
	struct child x = {.c = c};
	int rc = cgroup_box_tasks(box, x.tasks, e);

	if (rc < 0)
		return rc;
	x.task_count = rc;
	rc = start(&x, box, ret, e);
	for (int i = 0; i < x.task_count; i++)
		close(x.tasks[i]);
	return rc;
}
