/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/confine.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static int by_value(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

int confine_fds(const char *who, const int *keep, size_t count, struct err *e)
{
	int sorted[CONFINE_KEEP_MAX];
	unsigned from = STDERR_FILENO + 1;
	size_t n = 0;

	if (count > CONFINE_KEEP_MAX)
		return err_set(e, EINVAL, who, "more than %d fds to keep", CONFINE_KEEP_MAX);
	for (size_t i = 0; i < count; i++)
		if (keep[i] > STDERR_FILENO)
			sorted[n++] = keep[i];
	qsort(sorted, n, sizeof *sorted, by_value);
	for (size_t i = 0; i <= n; i++) {
		unsigned to = i < n ? (unsigned)sorted[i] - 1 : ~0u;

		if (from <= to && close_range(from, to, 0) < 0)
			return err_errno(e, errno, who, "close inherited files");
		if (i < n)
			from = (unsigned)sorted[i] + 1;
	}
	return 0;
}

static bool has_capabilities(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}, {0}}, none[2] = {{0}, {0}};

	return syscall(SYS_capget, &head, data) < 0 || memcmp(data, none, sizeof none) != 0;
}

static int become(const char *who, uid_t uid, gid_t gid, struct err *e)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}, {0}};

	if (geteuid() == 0) {
		/* The bounding set first: it takes a capability to give these up. An unknown number ends the list. */
		for (unsigned long cap = 0; prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
			;
		if (setgroups(0, NULL) < 0)
			return err_errno(e, errno, who, "drop supplementary groups");
	}
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		return err_errno(e, errno, who, "become uid %u, gid %u", (unsigned)uid, (unsigned)gid);
	if (syscall(SYS_capset, &head, none) < 0)
		return err_errno(e, errno, who, "drop capabilities");
	return 0;
}

int confine_identity(const char *who, uid_t uid, gid_t gid, struct err *e)
{
	const struct rlimit no_core = {0, 0};
	int rc;

	if (uid == 0 || gid == 0)
		return err_set(e, EINVAL, who, "the %s process never runs as root: name another user and group", who);
	rc = become(who, uid, gid, e);
	if (rc < 0)
		return rc;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_errno(e, errno, who, "set no_new_privs");
	/* What clients sent is in here; a leak checker has to look all the same. */
	if (prctl(PR_SET_DUMPABLE, SANITIZED, 0, 0, 0) < 0 || setrlimit(RLIMIT_CORE, &no_core) < 0)
		return err_errno(e, errno, who, "switch core dumps off");
	if (getuid() != uid || geteuid() != uid || getgid() != gid || getegid() != gid || has_capabilities() ||
	    setresuid(0, 0, 0) == 0)
		return err_set(e, EPERM, who, "privileges are still there after dropping them");
	return 0;
}

static int add_rules(scmp_filter_ctx ctx, const struct confine_calls *calls)
{
	static const int memory[] = {SCMP_SYS(mmap), SCMP_SYS(mprotect)};
	/* A foreign ABI has other numbers for the same calls: whoever uses one is not us. */
	int rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);

	for (size_t i = 0; rc == 0 && i < calls->allowed_count; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, calls->allowed[i], 0);
	for (size_t i = 0; rc == 0 && i < calls->fatal_count; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_KILL_PROCESS, calls->fatal[i], 0);
	for (size_t i = 0; rc == 0 && i < calls->ioctl_count; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1(SCMP_CMP_EQ, calls->ioctls[i]));
	for (size_t i = 0; rc == 0 && i < sizeof memory / sizeof memory[0]; i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, memory[i], 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (rc == 0) /* abort() */
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
	return rc;
}

int confine_syscalls(const char *who, const struct confine_calls *calls, bool *ret_skipped, struct err *e)
{
	scmp_filter_ctx ctx;
	int rc;

	*ret_skipped = SANITIZED;
	if (SANITIZED)
		return 0;
	ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	if (!ctx)
		return err_set(e, ENOMEM, who, "out of memory");
	rc = add_rules(ctx, calls);
	if (rc == 0)
		rc = seccomp_load(ctx);
	seccomp_release(ctx);
	return rc < 0 ? err_errno(e, -rc, who, "load the system call filter") : 0;
}
