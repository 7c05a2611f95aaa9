/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/confine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"
#include "kernel/confine.h"

#define OPEN_FILES 512 /* four clients with full queues of memfds need 128 */

/* Whether it holds nothing, or what only we put there. */
static bool is_ours(int fd)
{
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool empty = true;

	if (faccessat(fd, "audit.lock", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		close(copy);
	else if (!(d = fdopendir(copy)))
		return false;
	while (d && (de = readdir(d)))
		empty = empty && (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0);
	return empty;
}

int confine_directory(int *ret, int parent, const char *name, uid_t uid, gid_t gid, struct err *e)
{
	bool fresh = mkdirat(parent, name, 0700) == 0;
	_cleanup_fd_ int fd = -1;
	struct stat st;

	if (!fresh && errno != EEXIST)
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
	/* Somebody else's logs may live under this name, /var/log/audit for one: they are not ours to take over. */
	if (!fresh && st.st_uid != uid && !is_ours(fd))
		return err_set(
		    e, EEXIST, "audit",
		    "the directory %s in the state directory holds files that are not Weir's: choose another --state-dir",
		    name);
	if ((st.st_uid != uid || st.st_gid != gid) && fchown(fd, uid, gid) < 0)
		return err_errno(e, errno, "audit", "can't give the directory %s to uid %u", name, (unsigned)uid);
	if ((st.st_mode & 07777) != 0700 && fchmod(fd, 0700) < 0)
		return err_errno(e, errno, "audit", "can't make the directory %s private", name);
	*ret = TAKE_FD(fd);
	return 0;
}

static const int allowed[] = {
    /* the record: SQLite's files, its log and the log's index (which is mapped: see confine_syscalls), its locks */
    SCMP_SYS(openat),
    SCMP_SYS(close),
    SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(ftruncate),
    SCMP_SYS(fdatasync),
    SCMP_SYS(unlinkat), /* the journal of the first transaction; log and index when the last one closes */
    SCMP_SYS(fcntl),
    SCMP_SYS(geteuid), /* whether files should be given to the database's owner */
    /* a journal that a killed auditor left; log lines */
    SCMP_SYS(read),
    SCMP_SYS(write),
    /* messages and the loop; answers too long for one go by memfd */
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendmsg),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(memfd_create),
    SCMP_SYS(lseek),
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

/* How much a peer has left unread. */
static const unsigned ioctls[] = {SIOCOUTQ};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static int limit_files(struct err *e)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_errno(e, errno, "audit", "can't read limits");
	files.rlim_max = files.rlim_max < OPEN_FILES ? files.rlim_max : OPEN_FILES;
	files.rlim_cur = files.rlim_max;
	return setrlimit(RLIMIT_NOFILE, &files) < 0 ? err_errno(e, errno, "audit", "can't set limits") : 0;
}

int auditor_confine(uid_t uid, gid_t gid, struct err *e)
{
	static const struct confine_calls calls = {allowed, COUNT(allowed), fatal, COUNT(fatal), ioctls, COUNT(ioctls)};
	bool skipped;
	int rc = limit_files(e);

	if (rc == 0)
		rc = confine_identity("audit", uid, gid, e);
	if (rc == 0)
		rc = confine_syscalls("audit", &calls, &skipped, e);
	if (rc == 0 && skipped)
		log_warn("built with sanitizers: running without the system call filter");
	return rc;
}
