/* SPDX-License-Identifier: Apache-2.0 */
/* How the api process gives up everything it does not need, before it meets a client. */
#ifndef WEIR_API_CONFINE_H
#define WEIR_API_CONFINE_H

#include <stddef.h>
#include <sys/types.h>

#include "core/err.h"

/* Closes every fd above 2 that is not in `keep` (entries below 0 are skipped). */
int confine_fds(const int *keep, size_t count, struct err *e);

/*
 * Becomes `uid`:`gid` (never 0; a caller that is not root must be them already) for good: no supplementary groups, no
 * capability in any set, no_new_privs, no core dumps.
 */
int confine_user(uid_t uid, gid_t gid, struct err *e);

/*
 * Leaves only the system calls that serving takes; others fail with EPERM, so that opening a file, making a socket,
 * a process or executable memory is impossible. Left out, with a log line, in sanitizer builds, whose runtime needs more.
 */
int confine_syscalls(struct err *e);

#endif
