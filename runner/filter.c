/* SPDX-License-Identifier: Apache-2.0 */
#include "filter.h"
#include "filter_build.h"

#include <asm/termbits.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/personality.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/cleanup.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

/* The kernel takes these arguments as 32 bits: comparing more would let a value with other high bits through. */
#define LOW32 0xffffffffu
#define NEW_NAMESPACES                                                                                                         \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET |           \
	 CLONE_NEWTIME)

/* What an ordinary Python program and the base commands call. Calls with conditions are below, not here. */
/* clang-format off */
static const char *const snippet_allowed[] = {
	/* files */
	"access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat", "dup", "dup2", "dup3",
	"faccessat", "faccessat2", "fallocate", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown",
	"fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock", "fremovexattr", "fsetxattr", "fstat",
	"fstatfs", "fsync", "ftruncate", "futimesat", "getcwd", "getdents", "getdents64", "getxattr",
	"inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch", "lchown", "lgetxattr", "link",
	"linkat", "listxattr", "llistxattr", "lremovexattr", "lseek", "lsetxattr", "lstat", "mkdir",
	"mkdirat", "newfstatat", "open", "openat", "openat2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev",
	"pwritev2", "read", "readahead", "readlink", "readlinkat", "readv", "removexattr", "rename", "renameat",
	"renameat2", "rmdir", "sendfile", "setxattr", "stat", "statfs", "statx", "symlink", "symlinkat",
	"sync_file_range", "tee", "truncate", "umask", "unlink", "unlinkat", "utime", "utimensat", "utimes",
	"vmsplice", "write", "writev", "mknod", "mknodat",
	/* memory */
	"brk", "madvise", "membarrier", "mincore", "mlock", "mlock2", "mlockall", "mprotect", "mremap",
	"msync", "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect", "remap_file_pages",
	"get_mempolicy", "set_mempolicy", "mbind",
	/* processes, threads, signals */
	"alarm", "arch_prctl", "capget", "execve", "execveat", "exit", "exit_group", "fork", "futex", "futex_waitv",
	"get_robust_list", "get_thread_area", "getcpu", "getegid", "geteuid", "getgid", "getgroups", "getitimer",
	"getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getresgid", "getresuid", "getrlimit", "getrusage",
	"getsid", "gettid", "getuid", "ioprio_get", "ioprio_set", "kill", "pause", "pidfd_open", "pidfd_send_signal",
	"restart_syscall", "rseq", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo",
	"rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo", "sched_get_priority_max",
	"sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler",
	"sched_rr_get_interval", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler",
	"sched_yield", "set_robust_list", "set_thread_area", "set_tid_address", "setfsgid", "setfsuid", "setgid",
	"setgroups", "setitimer", "setpgid", "setpriority", "setregid", "setresgid", "setresuid", "setreuid", "setsid",
	"setuid", "sigaltstack", "signalfd", "signalfd4", "tgkill", "time", "times", "tkill", "vfork", "wait4",
	"waitid",
	/* time, events, information */
	"clock_getres", "clock_gettime", "clock_nanosleep", "epoll_create", "epoll_create1", "epoll_ctl",
	"epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2", "getrandom", "gettimeofday", "nanosleep",
	"pipe", "pipe2", "poll", "ppoll", "pselect6", "select", "sysinfo", "timer_create", "timer_delete",
	"timer_getoverrun", "timer_gettime", "timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime",
	"uname",
	/* sockets, once made (see socket below) */
	"accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen", "recvfrom",
	"recvmmsg", "recvmsg", "shutdown",
	/* System V and POSIX ipc, inside its own namespace */
	"mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink", "msgctl", "msgget",
	"msgrcv", "msgsnd", "semctl", "semget", "semop", "semtimedop", "shmat", "shmctl", "shmdt",
};
/* clang-format on */

/*
 * Answered with success, and not done: nothing that a sandbox can write is on a disk, and these would flush every file system
 * of the host, or drop the host's own files from memory.
 */
static const char *const snippet_pretended[] = {"sync", "syncfs", "fadvise64"};

/* Refused by name: a program that tries one of these learns that it may not, not that the kernel is old. */
/* clang-format off */
static const char *const snippet_refused[] = {
	/* namespaces and mounts */
	"unshare", "setns", "mount", "umount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree",
	"open_tree_attr", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "statmount", "listmount",
	"swapon", "swapoff", "quotactl", "quotactl_fd", "name_to_handle_at", "open_by_handle_at", "fanotify_init",
	"fanotify_mark",
	/* keys, kernel, tracing */
	"add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd", "ptrace", "process_vm_readv",
	"process_vm_writev", "process_madvise", "process_mrelease", "pidfd_getfd", "kcmp", "seccomp",
	"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "init_module", "finit_module",
	"delete_module", "kexec_load", "kexec_file_load", "create_module", "query_module", "get_kernel_syms",
	"lookup_dcookie", "syslog", "reboot", "acct", "iopl", "ioperm", "modify_ldt", "vhangup", "vm86", "vm86old",
	"nfsservctl", "uselib", "ustat", "sysfs", "_sysctl", "bdflush", "memfd_secret", "lsm_set_self_attr",
	/* the host's identity and clock */
	"sethostname", "setdomainname", "settimeofday", "stime", "clock_settime", "clock_adjtime", "adjtimex",
	"capset",
	/* memory placement of other processes */
	"migrate_pages", "move_pages", "set_mempolicy_home_node",
};
/* clang-format on */

/* Requests on pipes, sockets, files and terminals that read, or set what belongs to the caller alone. */
/* clang-format off */
static const unsigned ioctl_allowed[] = {
	TCGETS, TCSETS, TCSETSW, TCSETSF, TCGETS2, TIOCGWINSZ, TIOCSWINSZ, TIOCGPGRP, TIOCSPGRP, TIOCOUTQ, TIOCGPTN,
	TIOCSPTLCK, FIONREAD, FIONBIO, FIOASYNC, FIOCLEX, FIONCLEX, FIOQSIZE, 0x8910 /* SIOCGIFNAME */, 0x8912 /*
	SIOCGIFCONF */, 0x8913 /* SIOCGIFFLAGS */, 0x8915 /* SIOCGIFADDR */, 0x8933 /* SIOCGIFINDEX */, 0x8905 /*
	SIOCATMARK */,
};
/* clang-format on */

/* Putting bytes into a terminal's input: how a sandbox types into its caller's shell. */
static const unsigned ioctl_refused[] = {TIOCSTI, TIOCLINUX, TIOCSCTTY, TIOCCONS, TIOCSETD};

/* Init after INIT_DROP: it reaps, reports and leaves .. */
static const char *const init_allowed[] = {"wait4", "sendto",	  "poll",	  "read",	    "clock_gettime",
					   "exit",  "exit_group", "rt_sigreturn", "restart_syscall"};
/* .. and hears of the payload's refused calls, and answers. */
static const uint64_t init_ioctl_allowed[] = {SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* One rule for a call, whatever its arguments are. */
static int add_whole(const struct filter_build *b, uint32_t action, int nr)
{
	const uint32_t error = action & SECCOMP_RET_DATA;

	if (b->answers && action == SCMP_ACT_ERRNO(error) && error) {
		b->answers->error[nr] = (uint16_t)error;
		action = SCMP_ACT_NOTIFY;
	}
	return seccomp_rule_add(b->ctx, action, nr, 0);
}

static int add_names(const struct filter_build *b, uint32_t action, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		int nr = seccomp_syscall_resolve_name(names[i]);
		int rc;

		/* A name that this libseccomp does not know, or that x86-64 does not have, stays unknown: ENOSYS. */
		if (nr < 0 || (b->refused && filter_syscalls_action(b->refused, nr)))
			continue;
		rc = add_whole(b, action, nr);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* What a process may ask about itself or set for itself. */
static int add_prctl(const struct filter_build *b)
{
	static const unsigned allowed[] = {
	    PR_SET_PDEATHSIG,
	    PR_GET_PDEATHSIG,
	    PR_GET_DUMPABLE,
	    PR_SET_DUMPABLE,
	    PR_GET_KEEPCAPS,
	    PR_SET_KEEPCAPS,
	    PR_SET_NAME,
	    PR_GET_NAME,
	    PR_GET_SECCOMP,
	    PR_CAPBSET_READ,
	    PR_CAPBSET_DROP,
	    PR_GET_SECUREBITS,
	    PR_SET_TIMERSLACK,
	    PR_GET_TIMERSLACK,
	    PR_MCE_KILL_GET,
	    PR_SET_CHILD_SUBREAPER,
	    PR_GET_CHILD_SUBREAPER,
	    PR_SET_NO_NEW_PRIVS,
	    PR_GET_NO_NEW_PRIVS,
	    PR_GET_TID_ADDRESS,
	    PR_SET_THP_DISABLE,
	    PR_GET_THP_DISABLE,
	    PR_CAP_AMBIENT,
	    PR_GET_SPECULATION_CTRL,
	    PR_SET_SPECULATION_CTRL,
	    PR_SET_PTRACER,
	    0x53564d41 /* PR_SET_VMA: names of mappings */,
	};
	int rc = filter_rule(b, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prctl), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, LOW32, PR_SET_SECCOMP));

	for (size_t i = 0; rc == 0 && i < COUNT(allowed); i++)
		rc = filter_rule(b, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, LOW32, allowed[i]));
	return rc;
}

/* The host's huge pages are outside every memory limit: a sandbox is told that there are none. */
static int add_huge_pages(const struct filter_build *b)
{
	static const struct {
		const char *name;
		unsigned arg, flag;
	} calls[] = {{"mmap", 3, MAP_HUGETLB}, {"shmget", 2, SHM_HUGETLB}, {"memfd_create", 1, MFD_HUGETLB}};
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < COUNT(calls); i++) {
		const int nr = seccomp_syscall_resolve_name(calls[i].name);
		const unsigned arg = calls[i].arg, flag = calls[i].flag;

		rc = filter_rule(b, SCMP_ACT_ALLOW, nr, 1, SCMP_CMP(arg, SCMP_CMP_MASKED_EQ, flag, 0));
		if (rc == 0)
			rc = filter_rule(b, SCMP_ACT_ERRNO(ENOMEM), nr, 1, SCMP_CMP(arg, SCMP_CMP_MASKED_EQ, flag, flag));
	}
	return rc;
}

static int add_clone(const struct filter_build *b)
{
	int rc = filter_rule(b, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, NEW_NAMESPACES, 0));

	/* One bit at a time: together they are every value the rule above lets through to here. */
	for (uint64_t bit = 1; rc == 0 && bit && bit <= NEW_NAMESPACES; bit <<= 1)
		if (bit & NEW_NAMESPACES)
			rc = filter_rule(b, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, bit, bit));
	return rc;
}

static int add_ioctl(const struct filter_build *b)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < COUNT(ioctl_allowed); i++)
		rc = filter_rule(b, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, ioctl_allowed[i]));
	for (size_t i = 0; rc == 0 && i < COUNT(ioctl_refused); i++)
		rc = filter_rule(b, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
				 SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, ioctl_refused[i]));
	return rc;
}

/*
 * Reading any limit, and lowering any but RLIMIT_CORE: at 1 the kernel writes no core and starts no core_pattern helper; at 0
 * it would start the helper, as root of the host, on an image that the snippet made.
 */
static int add_rlimits(const struct filter_build *b)
{
	int rc = 0;

	for (unsigned r = 0; rc == 0 && r < RLIM_NLIMITS; r++) {
		uint32_t action = r == RLIMIT_CORE ? SCMP_ACT_ERRNO(EPERM) : SCMP_ACT_ALLOW;

		rc = filter_rule(b, action, SCMP_SYS(setrlimit), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, LOW32, r));
		if (rc == 0 && r != RLIMIT_CORE)
			rc = filter_rule(b, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 1, SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, r));
	}
	if (rc == 0)
		rc = filter_rule(b, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 2, SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, RLIMIT_CORE),
				 SCMP_A2(SCMP_CMP_EQ, 0));
	if (rc == 0)
		rc = filter_rule(b, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prlimit64), 2,
				 SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, RLIMIT_CORE), SCMP_A2(SCMP_CMP_NE, 0));
	return rc;
}

/* Asking for the execution domain, or the one everybody has. ADDR_NO_RANDOMIZE and old-ABI bits are not for a snippet. */
static int add_personality(const struct filter_build *b)
{
	int rc = filter_rule(b, SCMP_ACT_ALLOW, SCMP_SYS(personality), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, LOW32, PER_LINUX));

	if (rc == 0)
		rc = filter_rule(b, SCMP_ACT_ALLOW, SCMP_SYS(personality), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, LOW32, LOW32));
	return rc;
}

/* What the policy refuses altogether. A call that ends like one no table names needs no rule. */
static int add_refused(const struct filter_build *b)
{
	int rc = 0;

	for (int nr = 0; rc == 0 && b->refused && nr < FILTER_SYSCALLS_MAX; nr++) {
		uint32_t action = filter_syscalls_action(b->refused, nr);

		if (action && action != b->otherwise)
			rc = add_whole(b, action, nr);
	}
	return rc;
}

static int add_init(const struct filter_build *b)
{
	int rc = add_names(b, SCMP_ACT_ALLOW, init_allowed, COUNT(init_allowed));

	for (size_t i = 0; rc == 0 && i < COUNT(init_ioctl_allowed); i++)
		rc = filter_rule(b, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1(SCMP_CMP_EQ, init_ioctl_allowed[i]));
	return rc;
}

static int add_snippet(const struct filter_build *b)
{
	/* clone3, io_uring_* and io_setup are in no table on purpose: callers have a fallback for ENOSYS, not for EPERM. */
	int (*const parts[])(const struct filter_build *) = {
	    add_refused, filter_add_sockets, add_prctl, add_huge_pages, add_clone, add_ioctl, add_rlimits, add_personality,
	};
	int rc = add_names(b, SCMP_ACT_ALLOW, snippet_allowed, COUNT(snippet_allowed));

	if (rc == 0)
		rc = add_names(b, SCMP_ACT_ERRNO(EPERM), snippet_refused, COUNT(snippet_refused));
	if (rc == 0)
		rc = add_names(b, SCMP_ACT_ERRNO(0), snippet_pretended, COUNT(snippet_pretended));
	for (size_t i = 0; rc == 0 && i < COUNT(parts); i++)
		rc = parts[i](b);
	return rc;
}

static int start(struct filter_build *b, struct err *e)
{
	int rc;

	b->ctx = seccomp_init(b->otherwise);
	if (!b->ctx)
		return err_set(e, ENOMEM, "seccomp", "libseccomp could not start a filter");
	rc = seccomp_attr_set(b->ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	/* A binary tree over the numbers: half the load time of the sorted list (measured, see DESIGN.md). */
	if (rc == 0)
		rc = seccomp_attr_set(b->ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	return rc < 0 ? err_errno(e, -rc, "seccomp", "libseccomp refused a setting") : 0;
}

/* `*ret`: the caller's, to be released. `answers`: as in struct filter_build. */
static int build(enum filter_kind kind, const struct policy *p, struct filter_answers *answers, scmp_filter_ctx *ret,
		 struct err *e)
{
	struct filter_build b = {.otherwise = kind == FILTER_INIT ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_ERRNO(ENOSYS),
				 .answers = answers};
	struct filter_syscalls refused;
	int rc = p ? filter_syscalls_of(p, &refused, e) : 0;

	if (rc < 0)
		return rc;
	if (p) {
		const int nr = SCMP_SYS(listen);

		if (!p->listen && !refused.action[nr])
			refused.action[nr] = SCMP_ACT_ERRNO(EACCES);
		b.refused = &refused;
		b.sockets = &p->sockets;
	}
	rc = start(&b, e);
	if (rc == 0) {
		rc = kind == FILTER_INIT ? add_init(&b) : add_snippet(&b);
		if (rc < 0)
			err_errno(e, -rc, "seccomp", "libseccomp refused a rule");
	}
	if (rc < 0)
		seccomp_release(b.ctx);
	else
		*ret = b.ctx;
	return rc;
}

static int put(scmp_filter_ctx ctx, int fd, uint32_t *ret_len, struct err *e)
{
	const off_t from = lseek(fd, 0, SEEK_CUR);
	const int rc = seccomp_export_bpf(ctx, fd);
	const off_t bytes = lseek(fd, 0, SEEK_CUR) - from;

	if (rc < 0)
		return err_errno(e, -rc, "seccomp", "export the filter");
	if (bytes <= 0 || (size_t)bytes > BPF_MAXINSNS * sizeof(struct sock_filter))
		return err_set(e, E2BIG, "seccomp", "the filter has %lld bytes, more than the kernel takes", (long long)bytes);
	*ret_len = (uint32_t)((size_t)bytes / sizeof(struct sock_filter));
	return 0;
}

static int build_and_put(enum filter_kind kind, const struct policy *p, struct filter_answers *answers, int fd,
			 uint32_t *ret_len, struct err *e)
{
	scmp_filter_ctx ctx;
	int rc = build(kind, p, answers, &ctx, e);

	if (rc < 0)
		return rc;
	if (answers && write(fd, answers, sizeof *answers) != (ssize_t)sizeof *answers)
		rc = err_errno(e, errno, "seccomp", "write what the listener answers");
	if (rc == 0)
		rc = put(ctx, fd, ret_len, e);
	seccomp_release(ctx);
	return rc;
}

/* Into a sealed memfd; `counted`: with the two further parts. */
static int compile(enum filter_kind kind, const struct policy *p, bool counted, int *ret_fd, uint32_t *ret_len, struct err *e)
{
	_cleanup_fd_ int fd = memfd_create("weir-filter", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct filter_answers answers = {0};
	uint32_t len = 0, counted_len = 0;
	int rc;

	if (fd < 0)
		return err_errno(e, errno, "seccomp", "make a memfd for the filter");
	rc = build_and_put(kind, p, NULL, fd, &len, e);
	if (rc == 0 && counted)
		rc = build_and_put(kind, p, &answers, fd, &counted_len, e);
	if (rc < 0)
		return rc;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return err_errno(e, errno, "seccomp", "seal the filter");
	*ret_len = len;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int filter_compile(enum filter_kind kind, int *ret_fd, uint32_t *ret_len, struct err *e)
{
	return compile(kind, NULL, false, ret_fd, ret_len, e);
}

int filter_compile_snippet(const struct policy *p, int *ret_fd, uint32_t *ret_len, struct err *e)
{
	int rc = filter_check(p, e);

	return rc < 0 ? rc : compile(FILTER_SNIPPET, p, true, ret_fd, ret_len, e);
}

int filter_print(enum filter_kind kind, int fd, struct err *e)
{
	scmp_filter_ctx ctx;
	int rc = build(kind, NULL, NULL, &ctx, e);

	if (rc < 0)
		return rc;
	rc = seccomp_export_pfc(ctx, fd);
	seccomp_release(ctx);
	return rc < 0 ? err_errno(e, -rc, "seccomp", "print the filter") : 0;
}
