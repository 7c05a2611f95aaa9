/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/sockios.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cleanup.h"

#define OPEN_FILES 512 /* four clients with full queues of memfds need 128 */

int confine_directory(int *ret, int parent, const char *name, uid_t uid, gid_t gid, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	struct stat st;

	if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
		return err_errno(e, errno, "audit", "can't make the directory %s in the state directory", name);
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_errno(e, errno, "audit", "can't open the directory %s in the state directory", name);
	if (fstat(fd, &st) < 0)
		return err_errno(e, errno, "audit", "can't examine the directory %s", name);
	if (st.st_uid != 0 && st.st_uid != uid)
		return err_set(e, EPERM, "audit",
			       "the directory %s in the state directory belongs to uid %u, not to the auditor's %u: chown -R "
			       "it or move it away",
			       name, (unsigned)st.st_uid, (unsigned)uid);
	if ((st.st_uid != uid || st.st_gid != gid) && fchown(fd, uid, gid) < 0)
		return err_errno(e, errno, "audit", "can't give the directory %s to uid %u", name, (unsigned)uid);
	if ((st.st_mode & 07777) != 0700 && fchmod(fd, 0700) < 0)
		return err_errno(e, errno, "audit", "can't make the directory %s private", name);
	*ret = TAKE_FD(fd);
	return 0;
}

static int compare_fds(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

int auditor_confine_fds(int *keep, size_t n, struct err *e)
{
	unsigned next = STDERR_FILENO + 1;

	qsort(keep, n, sizeof *keep, compare_fds);
	for (size_t i = 0; i <= n; i++) {
		unsigned last = i < n ? (unsigned)keep[i] - 1 : ~0u;

		if (i < n && keep[i] < (int)next)
			continue;
		if (last >= next && close_range(next, last, 0) < 0)
			return err_errno(e, errno, "audit", "can't close inherited files");
		next = last + 2;
	}
	return 0;
}

static int drop_capabilities(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}, {0}};

	return syscall(SYS_capset, &head, none) < 0 ? -errno : 0;
}

static bool has_capabilities(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}, {0}};

	if (syscall(SYS_capget, &head, data) < 0)
		return true;
	return data[0].effective || data[0].permitted || data[0].inheritable || data[1].effective || data[1].permitted ||
	       data[1].inheritable;
}

int confine_identity(uid_t uid, gid_t gid, struct err *e)
{
	const struct rlimit no_core = {0, 0};
	struct rlimit files;

	if (uid == 0 || gid == 0)
		return err_set(e, EINVAL, "audit", "the auditor must not run as root");
	if (geteuid() == 0) {
		/* The bounding set first: it takes a capability to give these up. An unknown number ends the list. */
		for (unsigned long cap = 0; prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
			;
		if (setgroups(0, NULL) < 0)
			return err_errno(e, errno, "audit", "can't drop supplementary groups");
	}
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		return err_errno(e, errno, "audit", "can't become uid %u, gid %u", (unsigned)uid, (unsigned)gid);
	if (drop_capabilities() < 0)
		return err_errno(e, errno, "audit", "can't drop capabilities");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_errno(e, errno, "audit", "can't set no_new_privs");
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_errno(e, errno, "audit", "can't read limits");
	files.rlim_max = files.rlim_max < OPEN_FILES ? files.rlim_max : OPEN_FILES;
	files.rlim_cur = files.rlim_max;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || setrlimit(RLIMIT_CORE, &no_core) < 0 ||
	    setrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_errno(e, errno, "audit", "can't set limits");
	if (getuid() != uid || geteuid() != uid || getgid() != gid || getegid() != gid || has_capabilities() ||
	    setresuid(0, 0, 0) == 0)
		return err_set(e, EPERM, "audit", "privileges are still there after dropping them");
	return 0;
}

#ifdef __SANITIZE_ADDRESS__

int auditor_confine_syscalls(int *ret_skipped, struct err *e)
{
	(void)e;
	*ret_skipped = 1;
	return 0;
}

#else

static const int allowed[] = {
    /* the record */
    SCMP_SYS(openat),
    SCMP_SYS(close),
    SCMP_SYS(read),
    SCMP_SYS(pread64),
    SCMP_SYS(write),
    SCMP_SYS(lseek),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(ftruncate),
    SCMP_SYS(fdatasync),
    SCMP_SYS(fsync),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(fcntl),
    /* messages and the loop; answers too long for one go by memfd */
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendmsg),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(memfd_create),
    /* the C library: memory, time, signals, the end */
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(getrandom),
    SCMP_SYS(futex),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(tgkill),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

/* Nothing here has a use for these, so whoever asks is not us any more. */
static const int fatal[] = {
    SCMP_SYS(execve),	   SCMP_SYS(execveat), SCMP_SYS(clone),		 SCMP_SYS(clone3),
    SCMP_SYS(fork),	   SCMP_SYS(vfork),    SCMP_SYS(socket),	 SCMP_SYS(connect),
    SCMP_SYS(ptrace),	   SCMP_SYS(bpf),      SCMP_SYS(unshare),	 SCMP_SYS(setns),
    SCMP_SYS(mount),	   SCMP_SYS(keyctl),   SCMP_SYS(io_uring_setup), SCMP_SYS(process_vm_writev),
    SCMP_SYS(userfaultfd),
};

static int add_rules(scmp_filter_ctx ctx)
{
	/* How much a peer has left unread; memory, but never to run code from. */
	const struct scmp_arg_cmp outq = SCMP_A1(SCMP_CMP_EQ, SIOCOUTQ);
	const struct scmp_arg_cmp not_exec = SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof allowed / sizeof allowed[0]; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
	for (size_t i = 0; r == 0 && i < sizeof fatal / sizeof fatal[0]; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_KILL_PROCESS, fatal[i], 0);
	if (r == 0)
		r = seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, &outq);
	if (r == 0)
		r = seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, &not_exec);
	if (r == 0)
		r = seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, &not_exec);
	return r;
}

int auditor_confine_syscalls(int *ret_skipped, struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = ctx ? 0 : -ENOMEM;

	/* A foreign ABI has other numbers for the same calls: whoever uses one is not us. */
	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (r == 0)
		r = add_rules(ctx);
	if (r == 0)
		r = seccomp_load(ctx);
	if (ctx)
		seccomp_release(ctx);
	if (r < 0)
		return err_errno(e, -r, "audit", "can't load the auditor's seccomp filter");
	*ret_skipped = 0;
	return 0;
}

#endif
