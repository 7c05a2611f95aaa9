/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/confine.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/log.h"
#include "kernel/confine.h"

#define WHO "collector"

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* One directory that came as a descriptor, files in memory for what is in it, and messages. */
static const int allowed[] = {
    SCMP_SYS(openat2),
    SCMP_SYS(getdents64),
    SCMP_SYS(newfstatat),
    SCMP_SYS(fstat),
    SCMP_SYS(fstatfs),
    SCMP_SYS(read),
    SCMP_SYS(pread64),
    SCMP_SYS(close),
    SCMP_SYS(memfd_create),
    SCMP_SYS(write),
    SCMP_SYS(pwrite64),
    SCMP_SYS(ftruncate),
    SCMP_SYS(fcntl),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendmsg),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    /* the C library: memory, time, sorting (how much memory there is), signals, the end */
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(sysinfo),
    SCMP_SYS(getrandom),
    SCMP_SYS(futex),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

/*
 * Nothing here has a use for these, so whoever asks is not us any more. A file handle would lead past the empty root to any
 * file of the host: the one way in which the capability would be worth something to an attacker.
 */
static const int fatal[] = {
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(name_to_handle_at),
    SCMP_SYS(linkat),
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
    SCMP_SYS(clone),
    SCMP_SYS(clone3),
    SCMP_SYS(fork),
    SCMP_SYS(vfork),
    SCMP_SYS(socket),
    SCMP_SYS(connect),
    SCMP_SYS(ptrace),
    SCMP_SYS(bpf),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(mount),
    SCMP_SYS(chroot),
    SCMP_SYS(keyctl),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(pidfd_getfd),
};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static int change_root(int dir, struct err *e)
{
	if (fchdir(dir) < 0 || chroot(".") < 0 || chdir("/") < 0)
		return err_errno(e, errno, WHO, "make an empty directory the root");
	return close(dir) < 0 ? err_errno(e, errno, WHO, "close the empty directory") : 0;
}

struct caps {
	struct __user_cap_data_struct word[2];
};

/* Permitted and effective. The number is below 32. */
static const struct caps read_only = {
    .word = {{.effective = 1u << CAP_DAC_READ_SEARCH, .permitted = 1u << CAP_DAC_READ_SEARCH}}};

static int become(uid_t uid, gid_t gid, struct err *e)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct caps caps = read_only;

	/* The bounding set first: it takes a capability to give these up. An unknown number ends the list. */
	for (unsigned long cap = 0; prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
		;
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 ||
	    setresuid(uid, uid, uid) < 0)
		return err_errno(e, errno, WHO, "become uid %u, gid %u", (unsigned)uid, (unsigned)gid);
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &head, caps.word) < 0 || prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) < 0)
		return err_errno(e, errno, WHO, "keep one capability and no other");
	return 0;
}

static bool bounding_set_has_any(void)
{
	int r;

	for (unsigned long cap = 0; (r = prctl(PR_CAPBSET_READ, cap, 0, 0, 0)) >= 0; cap++)
		if (r)
			return true;
	return false;
}

static int check(uid_t uid, gid_t gid, struct err *e)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct caps caps;

	if (syscall(SYS_capget, &head, caps.word) < 0 || memcmp(&caps, &read_only, sizeof caps) != 0 || getuid() != uid ||
	    geteuid() != uid || getgid() != gid || getegid() != gid || bounding_set_has_any() || setresuid(0, 0, 0) == 0)
		return err_set(e, EPERM, WHO, "privileges are still there after dropping them");
	return 0;
}

/* After the change of identity, which clears it, and before the filter, which forbids it. */
static int die_with(pid_t parent, struct err *e)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return err_errno(e, errno, WHO, "ask to end with the parent");
	return getppid() == parent ? 0 : err_set(e, ESRCH, WHO, "the parent is gone");
}

static int drop_root(const struct collector_config *config, struct err *e)
{
	int rc = change_root(config->empty_dir, e);

	if (rc == 0)
		rc = become(config->uid, config->gid, e);
	return rc == 0 ? check(config->uid, config->gid, e) : rc;
}

int collector_confine(const struct collector_config *config, struct err *e)
{
	static const struct confine_calls calls = {
	    .allowed = allowed, .allowed_count = COUNT(allowed), .fatal = fatal, .fatal_count = COUNT(fatal)};
	const int keep[] = {config->client_fd, config->empty_dir};
	const struct rlimit no_core = {0, 0};
	bool skipped = false;
	int rc;

	if (config->empty_dir >= 0 && (config->uid == 0 || config->gid == 0))
		return err_set(e, EINVAL, WHO, "the %s process never runs as root: name another user and group", WHO);
	rc = confine_fds(WHO, keep, COUNT(keep), e);
	if (rc == 0 && config->empty_dir >= 0)
		rc = drop_root(config, e);
	if (rc < 0)
		return rc;
	/* What runs wrote is in here; a leak checker has to look all the same. */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, SANITIZED, 0, 0, 0) < 0 ||
	    setrlimit(RLIMIT_CORE, &no_core) < 0)
		return err_errno(e, errno, WHO, "set no_new_privs and switch core dumps off");
	if (config->parent > 0)
		rc = die_with(config->parent, e);
	if (rc == 0)
		rc = confine_syscalls(WHO, &calls, &skipped, e);
	if (rc == 0 && skipped)
		log_warn("built with sanitizers: running without the system call filter");
	return rc;
}
