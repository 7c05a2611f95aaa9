/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite below a directory descriptor: a copy of its own Unix VFS that opens files by openat(2), follows no link of the last
 * name, and takes random bytes from the kernel. For a process that may not walk the path to that directory, has no /dev, and
 * whose working directory nobody may change under it. Process-wide, like SQLite's own: other names open as they always do.
 */
#ifndef WEIR_AUDITOR_DIRVFS_H
#define WEIR_AUDITOR_DIRVFS_H

#include "core/err.h"

#define DIRVFS_NAME "weir"
#define DIRVFS_PATH_MAX 64

/* Registers it; safe to repeat. */
int dirvfs_register(struct err *e);

/* What to open for `name` in `dir` with this VFS. The descriptor must stay open for as long as the database is. */
void dirvfs_path(char ret[DIRVFS_PATH_MAX], int dir, const char *name);

#endif
