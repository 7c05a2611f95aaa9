/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector: reads what runs have left in their working directories. Names, links, sizes and kinds of files in there are
 * a stranger's; so this is a process of its own, with no root, no network, an empty file system, a short list of system calls,
 * and the one capability that lets it read a file whose owner has taken every permission away. It is given directories as
 * descriptors, only when nobody can change them any more: every process is dead, or frozen.
 *
 *   collector.c  the loop: one job in, one answer out
 *   confine.c    what it gives up before the first job
 *   walk.c       one job: what is new, what is passed over and why
 *   tree.c       every path of a directory once, in order, by descriptor and without following anything
 */
#ifndef WEIR_COLLECTOR_COLLECTOR_H
#define WEIR_COLLECTOR_COLLECTOR_H

#include <stdbool.h>
#include <sys/types.h>

#include "ipc/ipc.h"

struct collector_config {
	int client_fd; /* the other end of `struct collect`; taken */
	int empty_dir; /* becomes its root; taken; -1 (tests without root): none, and no other identity or capability */
	uid_t uid;     /* who to become */
	gid_t gid;
	pid_t parent; /* dies with it; 0: with nobody */
};

/* Serves until the client hangs up, in a process that was forked for it. Returns the exit status. */
int collector_main(const struct collector_config *config);

/*
 * One job: walks `dir`, writes entries to the memfd *ret_data and, when asked for, digests to *ret_manifest (both the
 * caller's, -1 otherwise), and fills *ret but for `req`. `manifest` is the one of the cell before, or -1. Files come first,
 * then what is passed over, each sorted by path. Never blocks on what it finds, follows no link, leaves no mount, and stops
 * looking after LIMIT_FILES_OUT_MS. Returns 0 or a negative errno.
 */
int collector_walk(int dir, const struct collect *job, int manifest, struct collected *ret, int *ret_data, int *ret_manifest);

#endif
