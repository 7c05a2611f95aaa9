/* SPDX-License-Identifier: Apache-2.0 */
/* How the auditor gives up what it was started with. */
#ifndef WEIR_AUDITOR_CONFINE_H
#define WEIR_AUDITOR_CONFINE_H

#include <stddef.h>
#include <sys/types.h>

#include "core/err.h"

/*
 * Makes `name` in the directory `parent` if need be, mode 0700 and owned by uid and gid, and opens it. A directory that
 * belongs to somebody else (other than root), or a link of that name, is refused.
 */
int confine_directory(int *ret, int parent, const char *name, uid_t uid, gid_t gid, struct err *e);

/* Closes every fd above 2 but those listed, which it sorts. Entries of -1 are skipped. */
int auditor_confine_fds(int *keep, size_t n, struct err *e);

/*
 * For good: uid, gid, no groups, no capabilities of any kind, no_new_privs, no core dumps, not traceable by its own uid.
 * Checks afterwards that it holds. uid 0 is refused.
 */
int confine_identity(uid_t uid, gid_t gid, struct err *e);

/*
 * The system calls that files, one event loop and its messages need, and no others: the rest fail with EPERM, and those
 * that only an attacker would make (a new program, socket, process or tracer) end the process. Left out of builds with
 * AddressSanitizer, which needs more; *ret_skipped says so.
 */
int auditor_confine_syscalls(int *ret_skipped, struct err *e);

#endif
