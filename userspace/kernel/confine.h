/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a process of Weir's own gives up, for good, what it does not need: descriptors, identity, capabilities, system calls.
 * Each process has its table; what is done with it is here, once. `who` is the process's name, for errors.
 */
#ifndef WEIR_KERNEL_CONFINE_H
#define WEIR_KERNEL_CONFINE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/err.h"

#define CONFINE_KEEP_MAX 16

/* Closes every fd above 2 that is not in `keep` (entries below 3 are skipped; at most CONFINE_KEEP_MAX). */
int confine_fds(const char *who, const int *keep, size_t count, struct err *e);

/*
 * Becomes uid:gid (never 0; a caller that is not root must be them already): no supplementary groups, no capability in any
 * set, no_new_privs, no core dumps, not to be looked into by its own uid. Checks afterwards that it holds.
 */
int confine_identity(const char *who, uid_t uid, gid_t gid, struct err *e);

struct confine_calls {
	const int *allowed; /* libseccomp's numbers */
	size_t allowed_count;
	const int *fatal; /* nobody but an attacker would make these: the process ends */
	size_t fatal_count;
	const unsigned *ioctls; /* requests allowed */
	size_t ioctl_count;
};

/*
 * Leaves only those calls, memory that is not executable, and abort(); others fail with EPERM, those of a foreign ABI are
 * fatal. Left out of sanitizer builds, whose runtime needs more: then *ret_skipped says so.
 */
int confine_syscalls(const char *who, const struct confine_calls *calls, bool *ret_skipped, struct err *e);

#endif
