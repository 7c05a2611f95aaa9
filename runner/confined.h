/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child for work on what nobody has vetted, while a sandbox is not there yet: an interpreter of an image that is asked where
 * its library is, layers that are unpacked. It is pid 1 of namespaces of its own (pid, mount, network, ipc, uts), sees only
 * the directories it is given, and dies with its parent.
 */
#ifndef WEIR_RUNNER_CONFINED_H
#define WEIR_RUNNER_CONFINED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/err.h"

/* Starts it as fork() does: 0 in the child, its pid in the parent, or a negative errno. *ret_pidfd is the parent's to close. */
pid_t confined_fork(int *ret_pidfd, struct err *e);

#define CONFINED_DIRS_MAX 2

/* One directory of the host to be seen in the child. */
struct confined_dir {
	const char *from; /* absolute */
	const char *to;	  /* a name in the new root; NULL: it is the new root (then it is the only one) */
	bool writable;
};

/* In the child: the new root, with those directories (nosuid, nodev) and nothing else; the working directory is "/". */
int confined_root(const struct confined_dir *dirs, size_t count, struct err *e);

/*
 * In the child: becomes uid:gid UID_IMAGE for good, with no capability and no_new_privs, keeps the `count` descriptors of
 * `keep` and 0 to 2, and asks again to die with its parent.
 */
int confined_drop(const int *keep, size_t count, struct err *e);

/* Waits for its end, at most until python_now_ms() is `until`, then kills it. Returns what waitpid() said; always reaped. */
int confined_wait(pid_t pid, int pidfd, long long until, bool *ret_late);

#endif
