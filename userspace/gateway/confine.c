/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"
#include "gateway/gateway.h"
#include "kernel/confine.h"

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define TYPE_FLAGS ((scmp_datum_t)(SOCK_CLOEXEC | SOCK_NONBLOCK))

/* ---- system calls ---- */

/* A tap, sockets that are made without a protocol of their own, and a look at resolv.conf. */
static const int carrying[] = {
    SCMP_SYS(read),
    SCMP_SYS(readv),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(connect),
    SCMP_SYS(shutdown),
    SCMP_SYS(sendto),
    SCMP_SYS(sendmsg),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(getsockopt),
    SCMP_SYS(setsockopt),
    SCMP_SYS(getsockname),
    SCMP_SYS(getpeername),
    SCMP_SYS(close),
    SCMP_SYS(fcntl),
    SCMP_SYS(fstat),
    SCMP_SYS(stat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(lseek),
    /* the C library: memory, time, signals, the end */
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
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

/* How many bytes wait; and what number a device has, for a name server that is reached through one. */
static const unsigned ioctls[] = {FIONREAD, SIOCGIFINDEX};

/* .. and what it takes to start a carrier: from here on only the gateway. */
static const int starting[] = {
    SCMP_SYS(clone3),  SCMP_SYS(wait4),	    SCMP_SYS(kill),	 SCMP_SYS(pipe2),	SCMP_SYS(dup2),
    SCMP_SYS(openat),  SCMP_SYS(fchmod),    SCMP_SYS(renameat),	 SCMP_SYS(close_range), SCMP_SYS(rt_sigaction),
    SCMP_SYS(getppid), SCMP_SYS(prctl),	    SCMP_SYS(prlimit64), SCMP_SYS(fchdir),	SCMP_SYS(chroot),
    SCMP_SYS(chdir),   SCMP_SYS(setgroups), SCMP_SYS(setresgid), SCMP_SYS(setresuid),	SCMP_SYS(getuid),
    SCMP_SYS(geteuid), SCMP_SYS(getgid),    SCMP_SYS(getegid),	 SCMP_SYS(capget),	SCMP_SYS(capset),
    SCMP_SYS(seccomp),
};

/* Neither has a use for these, so whoever asks is not us any more. */
static const int fatal[] = {
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
    SCMP_SYS(clone),
    SCMP_SYS(fork),
    SCMP_SYS(vfork),
    SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(bpf),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(mount),
    SCMP_SYS(open_tree),
    SCMP_SYS(move_mount),
    SCMP_SYS(fsopen),
    SCMP_SYS(pivot_root),
    SCMP_SYS(umount2),
    SCMP_SYS(keyctl),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(name_to_handle_at),
    SCMP_SYS(open_by_handle_at),
};
/* .. and a carrier has none for these. */
static const int fatal_to_carriers[] = {
    SCMP_SYS(clone3), SCMP_SYS(chroot), SCMP_SYS(setresuid), SCMP_SYS(setresgid), SCMP_SYS(setgroups), SCMP_SYS(capset),
};

/* What is sent for a tool is TCP or UDP. A socket of another kind is refused, not fatal: for an echo request libslirp asks. */
static int allow_sockets(scmp_filter_ctx ctx)
{
	static const struct {
		int type, protocol;
	} kinds[] = {{SOCK_STREAM, 0}, {SOCK_STREAM, IPPROTO_TCP}, {SOCK_DGRAM, 0}, {SOCK_DGRAM, IPPROTO_UDP}};
	static const int families[] = {AF_INET, AF_INET6};
	int rc = 0;

	for (size_t f = 0; f < COUNT(families); f++)
		for (size_t i = 0; rc == 0 && i < COUNT(kinds); i++)
			rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 3,
					      SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)families[f]),
					      SCMP_A1(SCMP_CMP_MASKED_EQ, ~TYPE_FLAGS, (scmp_datum_t)kinds[i].type),
					      SCMP_A2(SCMP_CMP_EQ, (scmp_datum_t)kinds[i].protocol));
	return rc;
}

static int add_all(scmp_filter_ctx ctx, uint32_t action, const int *calls, size_t count)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < count; i++)
		rc = seccomp_rule_add(ctx, action, calls[i], 0);
	return rc;
}

static int add_common(scmp_filter_ctx ctx)
{
	static const int memory[] = {SCMP_SYS(mmap), SCMP_SYS(mprotect)};
	/* A foreign ABI has other numbers for the same calls: whoever uses one is not us. */
	int rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);

	if (rc == 0)
		rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree: packets are many */
	if (rc == 0)
		rc = add_all(ctx, SCMP_ACT_ALLOW, carrying, COUNT(carrying));
	if (rc == 0)
		rc = add_all(ctx, SCMP_ACT_KILL_PROCESS, fatal, COUNT(fatal));
	for (size_t i = 0; rc == 0 && i < COUNT(ioctls); i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1(SCMP_CMP_EQ, ioctls[i]));
	for (size_t i = 0; rc == 0 && i < COUNT(memory); i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, memory[i], 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	return rc == 0 ? allow_sockets(ctx) : rc;
}

/* To read a file that is there, and nothing else. */
static int allow_reading(scmp_filter_ctx ctx)
{
	const scmp_datum_t mask = O_ACCMODE | O_CREAT | O_TRUNC | O_PATH | __O_TMPFILE;

	return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, mask, O_RDONLY));
}

/* libseccomp writes programs to files only. */
static int export(scmp_filter_ctx ctx, struct carrier_filter *ret)
{
	_cleanup_fd_ int fd = memfd_create("filter", MFD_CLOEXEC);
	int rc = fd < 0 ? -errno : seccomp_export_bpf(ctx, fd);
	ssize_t n;

	if (rc < 0)
		return rc;
	n = pread(fd, ret->code, sizeof ret->code, 0);
	if (n <= 0 || n == (ssize_t)sizeof ret->code || n % (ssize_t)sizeof ret->code[0])
		return -E2BIG;
	ret->len = (unsigned short)(n / (ssize_t)sizeof ret->code[0]);
	return 0;
}

int carrier_filter_compile(struct carrier_filter *ret, struct err *e)
{
	scmp_filter_ctx ctx;
	int rc;

	ret->len = 0;
	if (SANITIZED)
		return 0;
	ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	if (!ctx)
		return err_set(e, ENOMEM, CARRIER, "out of memory");
	rc = add_common(ctx);
	if (rc == 0)
		rc = allow_reading(ctx);
	if (rc == 0)
		rc = add_all(ctx, SCMP_ACT_KILL_PROCESS, fatal_to_carriers, COUNT(fatal_to_carriers));
	if (rc == 0)
		rc = export(ctx, ret);
	seccomp_release(ctx);
	return rc < 0 ? err_errno(e, -rc, CARRIER, "compile the system call filter") : 0;
}

static int load_own_filter(struct err *e)
{
	scmp_filter_ctx ctx;
	int rc;

	if (SANITIZED) {
		log_warn("built with sanitizers: running without the system call filter");
		return 0;
	}
	ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	if (!ctx)
		return err_set(e, ENOMEM, GATEWAY, "out of memory");
	rc = add_common(ctx);
	if (rc == 0)
		rc = add_all(ctx, SCMP_ACT_ALLOW, starting, COUNT(starting));
	if (rc == 0) /* of the tap, before its carrier is confined */
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1(SCMP_CMP_EQ, SIOCGIFHWADDR));
	if (rc == 0)
		rc = seccomp_load(ctx);
	seccomp_release(ctx);
	return rc < 0 ? err_errno(e, -rc, GATEWAY, "load the system call filter") : 0;
}

/* ---- the gateway ---- */

static int die_with(const char *who, pid_t parent, struct err *e)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return err_errno(e, errno, who, "ask to end with the parent");
	return getppid() == parent ? 0 : err_set(e, ESRCH, who, "the parent is gone");
}

/* To make a process somebody else, in another root, with nothing; and to end one that does not get there. All below 32. */
static int keep_few_capabilities(struct err *e)
{
	const uint32_t few = 1u << CAP_SETUID | 1u << CAP_SETGID | 1u << CAP_SETPCAP | 1u << CAP_SYS_CHROOT | 1u << CAP_KILL;
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{.effective = few, .permitted = few}};

	if (syscall(SYS_capset, &head, data) < 0)
		return err_errno(e, errno, GATEWAY, "keep five capabilities and no other");
	return 0;
}

int gateway_confine(pid_t parent, struct err *e)
{
	const struct rlimit no_core = {0, 0};
	int rc;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, SANITIZED, 0, 0, 0) < 0 ||
	    setrlimit(RLIMIT_CORE, &no_core) < 0)
		return err_errno(e, errno, GATEWAY, "set no_new_privs and switch core dumps off");
	rc = parent > 0 ? die_with(GATEWAY, parent, e) : 0;
	if (rc == 0)
		rc = keep_few_capabilities(e);
	return rc == 0 ? load_own_filter(e) : rc;
}

/* ---- a carrier ---- */

static int join_v1(const struct carrier_spec *s, struct err *e)
{
	for (uint32_t i = 0; i < s->job->v1_count; i++)
		if (write(s->tasks[i], "0", 1) != 1)
			return err_errno(e, errno, CARRIER, "join a v1 cgroup");
	return 0;
}

/* First to go when the host is out of memory, whatever protection the service has: a tool loses its network, and no more. */
static int go_first(struct err *e)
{
	_cleanup_fd_ int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, "1000", 4) != 4 ? err_errno(e, errno, CARRIER, "be the first to go without memory") : 0;
}

static int only_these_files(const struct carrier_spec *s, struct err *e)
{
	const int keep[] = {s->tap, s->report, s->root};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* What libslirp prints is about what its guest does, as often as that likes. */
	for (int fd = 0; fd < 3; fd++)
		if (null < 0 || dup2(null, fd) < 0)
			return err_errno(e, errno, CARRIER, "open /dev/null");
	return confine_fds(CARRIER, keep, COUNT(keep), e);
}

static int few_sockets(const struct carrier_spec *s, struct err *e)
{
	struct rlimit now, want = {s->job->nofile, s->job->nofile};

	if (getrlimit(RLIMIT_NOFILE, &now) < 0)
		return err_errno(e, errno, CARRIER, "read the limit of open files");
	if (now.rlim_max < want.rlim_max)
		want.rlim_cur = want.rlim_max = now.rlim_max;
	return setrlimit(RLIMIT_NOFILE, &want) < 0 ? err_errno(e, errno, CARRIER, "set the limit of open files") : 0;
}

static int change_root(int root, struct err *e)
{
	if (fchdir(root) < 0 || chroot(".") < 0 || chdir("/") < 0 || close(root) < 0)
		return err_errno(e, errno, CARRIER, "change to its own root");
	return 0;
}

static int load_filter(const struct carrier_filter *f, struct err *e)
{
	const struct sock_fprog prog = {.len = f->len, .filter = (struct sock_filter *)f->code};

	if (f->len && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
		return err_errno(e, errno, CARRIER, "load the system call filter");
	return 0;
}

int carrier_confine(const struct carrier_spec *s, struct err *e)
{
	int rc = join_v1(s, e);

	if (rc == 0)
		rc = go_first(e);
	if (rc == 0)
		rc = only_these_files(s, e);
	if (rc == 0)
		rc = few_sockets(s, e);
	if (rc == 0)
		rc = change_root(s->root, e);
	if (rc == 0)
		rc = confine_identity(CARRIER, s->job->uid, s->job->uid, e);
	/* The change of identity has cleared it. */
	if (rc == 0)
		rc = die_with(CARRIER, s->gateway, e);
	return rc == 0 ? load_filter(s->filter, e) : rc;
}
