/* SPDX-License-Identifier: Apache-2.0 */
#include "api/confine.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/log.h"

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static int by_value(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

int confine_fds(const int *keep, size_t count, struct err *e)
{
	unsigned from = 3;
	int sorted[8];
	size_t n = 0;

	if (count > sizeof sorted / sizeof *sorted)
		return err_set(e, EINVAL, "api", "too many fds to keep");
	for (size_t i = 0; i < count; i++)
		if (keep[i] > 2)
			sorted[n++] = keep[i];
	qsort(sorted, n, sizeof *sorted, by_value);
	for (size_t i = 0; i <= n; i++) {
		unsigned to = i < n ? (unsigned)sorted[i] - 1 : ~0u;

		if (from <= to && close_range(from, to, 0) < 0)
			return err_errno(e, errno, "api", "closing inherited fds");
		if (i < n)
			from = (unsigned)sorted[i] + 1;
	}
	return 0;
}

int confine_user(uid_t uid, gid_t gid, struct err *e)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {0};
	struct rlimit no_core = {0, 0};

	if (uid == 0 || gid == 0)
		return err_set(e, EINVAL, "api", "the api process never runs as root: name another user and group");
	if (setrlimit(RLIMIT_CORE, &no_core) < 0)
		return err_errno(e, errno, "api", "core dumps off");
	if (geteuid() == 0) {
		/* Until the first number the kernel does not know. */
		for (int cap = 0; prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
			;
		if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
			return err_errno(e, errno, "api", "becoming uid %u, gid %u", (unsigned)uid, (unsigned)gid);
	}
	if (syscall(SYS_capset, &header, none) < 0)
		return err_errno(e, errno, "api", "dropping capabilities");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_errno(e, errno, "api", "no_new_privs");
	/* Nobody of the same uid may look inside: tokens' digests and clients' code are there. A leak checker has to. */
	if (prctl(PR_SET_DUMPABLE, SANITIZED, 0, 0, 0) < 0)
		return err_errno(e, errno, "api", "dumpable off");
	if (getuid() != uid || geteuid() != uid || getgid() != gid || getegid() != gid || setuid(0) == 0)
		return err_set(e, EPERM, "api", "still not uid %u, gid %u alone", (unsigned)uid, (unsigned)gid);
	return 0;
}

/* What serving takes: waiting, bytes on what is open already, memory, time. No open, no socket, no fork, no exec. */
static const int allowed[] = {
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_pwait2),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(eventfd2),
    SCMP_SYS(pipe2),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(timerfd_create),
    SCMP_SYS(timerfd_settime),
    SCMP_SYS(accept),
    SCMP_SYS(accept4),
    SCMP_SYS(read),
    SCMP_SYS(readv),
    SCMP_SYS(pread64),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(sendmsg),
    SCMP_SYS(shutdown),
    SCMP_SYS(close),
    SCMP_SYS(fcntl),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(lseek),
    SCMP_SYS(getsockopt),
    SCMP_SYS(setsockopt),
    SCMP_SYS(getsockname),
    SCMP_SYS(getpeername),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(brk),
    SCMP_SYS(madvise),
    SCMP_SYS(futex),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time),
    SCMP_SYS(getrandom),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(sched_yield),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

static int add_rules(scmp_filter_ctx ctx)
{
	static const int no_exec[] = {SCMP_SYS(mmap), SCMP_SYS(mprotect)};
	int r = 0;

	for (size_t i = 0; i < sizeof allowed / sizeof *allowed && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
	for (size_t i = 0; i < sizeof no_exec / sizeof *no_exec && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, no_exec[i], 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (r == 0) /* abort() */
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
	return r;
}

int confine_syscalls(struct err *e)
{
	scmp_filter_ctx ctx;
	int r;

	if (SANITIZED) {
		log_warn("built with sanitizers: running without the system call filter");
		return 0;
	}
	ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	if (!ctx)
		return err_errno(e, ENOMEM, "api", "system call filter");
	r = add_rules(ctx);
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r < 0 ? err_errno(e, -r, "api", "system call filter") : 0;
}
