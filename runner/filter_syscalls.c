/* SPDX-License-Identifier: Apache-2.0 */
#include "filter_syscalls.h"

#include <errno.h>
#include <seccomp.h>
#include <stdbool.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/sysgroups.h"

static bool is_known(const char *name)
{
	/* Pseudo numbers, below zero too, are calls that another machine has. */
	return seccomp_syscall_resolve_name(name) != __NR_SCMP_ERROR;
}

int filter_syscalls_of(const struct policy *p, struct filter_syscalls *ret, struct err *e)
{
	_cleanup_free_ struct sysgroups_refusal *list = NULL;
	size_t count;
	int rc = sysgroups_refusals(p, sysgroups_shipped(), is_known, &list, &count, e);

	if (rc < 0)
		return rc;
	memset(ret, 0, sizeof *ret);
	for (size_t i = 0; i < count; i++) {
		int nr = seccomp_syscall_resolve_name(list[i].name);

		if (nr >= 0 && nr < FILTER_SYSCALLS_MAX)
			ret->action[nr] = list[i].kill ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_ERRNO((uint32_t)list[i].error);
	}
	return 0;
}

uint32_t filter_syscalls_action(const struct filter_syscalls *s, int nr)
{
	return nr >= 0 && nr < FILTER_SYSCALLS_MAX ? s->action[nr] : 0;
}
