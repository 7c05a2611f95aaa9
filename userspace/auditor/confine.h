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

/*
 * Becomes uid and gid (not 0) with no privilege left, and leaves itself the system calls that files, one event loop and its
 * messages need. For good.
 */
int auditor_confine(uid_t uid, gid_t gid, struct err *e);

#endif
