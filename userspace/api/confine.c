/* SPDX-License-Identifier: Apache-2.0 */
#include "api/confine.h"

#include <errno.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/log.h"
#include "kernel/confine.h"

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
    SCMP_SYS(memfd_create), /* content for the record, where it is stored at all */
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

/* After the change of identity, which clears it, and before the filter, which forbids it. */
static int die_with(pid_t parent, struct err *e)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return err_errno(e, errno, "api", "ask to end with the parent");
	return getppid() == parent ? 0 : err_set(e, ESRCH, "api", "the parent is gone");
}

int api_confine(uid_t uid, gid_t gid, pid_t parent, struct err *e)
{
	static const struct confine_calls calls = {.allowed = allowed, .allowed_count = sizeof allowed / sizeof allowed[0]};
	bool skipped;
	int rc = confine_identity("api", uid, gid, e);

	if (rc == 0 && parent > 0)
		rc = die_with(parent, e);
	if (rc == 0)
		rc = confine_syscalls("api", &calls, &skipped, e);
	if (rc == 0 && skipped)
		log_warn("built with sanitizers: running without the system call filter");
	return rc;
}
