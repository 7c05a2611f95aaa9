/* SPDX-License-Identifier: Apache-2.0 */
#include "sysnames.h"

#include <seccomp.h>
#include <stdlib.h>

#include "core/sysgroups.h"

bool sysnames_known(const char *name)
{
	/* Other architectures' calls have numbers below zero, but not this one. */
	return seccomp_syscall_resolve_name(name) != __NR_SCMP_ERROR;
}

int sysnames_check(const struct policy *p, struct err *e)
{
	struct sysgroups_refusal *list = NULL;
	size_t count = 0;
	int rc = sysgroups_refusals(p, sysgroups_shipped(), sysnames_known, &list, &count, e);

	free(list);
	return rc;
}
