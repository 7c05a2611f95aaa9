/* SPDX-License-Identifier: Apache-2.0 */
/* Init's steps: cgroups, host name, identity, capabilities. */
#include "init_steps.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

char init_detail[96];

int init_scheduling(const struct init_plan *p)
{
	static const char first[] = "500";
	const struct sched_param ordinary = {.sched_priority = 0};
	int fd, rc;

	(void)p;
	if (sched_setscheduler(0, SCHED_OTHER, &ordinary) < 0 || setpriority(PRIO_PROCESS, 0, 0) < 0)
		return -1;
	/* A daemon is often protected from the OOM killer; what it runs for others must not be. Raising needs no privilege. */
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	rc = write(fd, first, sizeof first - 1) < 0 ? -1 : 0;
	close(fd);
	return rc;
}

int init_join_v1(const struct init_plan *p)
{
	/* "0" into `tasks` moves the writing thread itself: the one way into a v1 cgroup that does not wait for RCU. */
	for (uint32_t i = 0; i < p->v1_count; i++)
		if (write(INIT_FD_V1 + (int)i, "0", 1) != 1)
			return -1;
	return 0;
}

int init_cgroup_ns(const struct init_plan *p)
{
	(void)p;
	/* After joining: the namespace's root is where a task is when it enters, so no path of the host's shows. */
	return unshare(CLONE_NEWCGROUP);
}

int init_hostname(const struct init_plan *p)
{
	(void)p;
	if (sethostname(SANDBOX_HOSTNAME, strlen(SANDBOX_HOSTNAME)) < 0)
		return -1;
	return setdomainname("", 0);
}

int init_empty_bounding_set(const struct init_plan *p)
{
	(void)p;
	for (int cap = 0; cap <= 63; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
			if (errno == EINVAL && cap > CAP_CHECKPOINT_RESTORE)
				return 0; /* past the last one this kernel knows */
			return -1;
		}
	return 0;
}

int init_take_identity(const struct init_plan *p)
{
	if (setgroups(0, NULL) < 0 || setresgid(p->gid, p->gid, p->gid) < 0)
		return -1;
	return setresuid(p->uid, p->uid, p->uid);
}

int init_empty_capabilities(const struct init_plan *p)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2];

	(void)p;
	memset(none, 0, sizeof none);
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return -1;
	return (int)syscall(SYS_capset, &head, none);
}
