/* SPDX-License-Identifier: Apache-2.0 */
/* How the api process gives up everything it does not need, before it meets a client. */
#ifndef WEIR_API_CONFINE_H
#define WEIR_API_CONFINE_H

#include <sys/types.h>

#include "core/err.h"

/*
 * Becomes uid and gid (not 0) with no privilege left, and leaves itself the system calls that serving takes: opening a file,
 * making a socket, a process or executable memory is impossible from then on. For good. With `parent` above 0 it also asks to
 * be killed when that process, which must be the parent, dies.
 */
int api_confine(uid_t uid, gid_t gid, pid_t parent, struct err *e);

#endif
