/* SPDX-License-Identifier: Apache-2.0 */
/* The registry's files in a state directory: read whole, replaced whole (a new file, synced, then renamed), one writer at a
 * time. */
#ifndef WEIR_REGISTRY_STORE_H
#define WEIR_REGISTRY_STORE_H

#include <sys/stat.h>

#include "core/err.h"
#include "registry/agents.h"
#include "registry/images.h"

#define IMAGES_FILE "images.json"
#define AGENTS_FILE "agents.json"
#define IMAGES_DIR "images" /* what is unpacked, a directory for each digest */

/*
 * Opens a state directory that is there, for the functions below; -ENOENT when it is not. Refused: what others than root may
 * write to.
 */
int registry_open(const char *state_dir, int *ret_dir, struct err *e);

/* Holds off other writers of both files until the descriptor is closed. Waits. `dir`: the state directory. */
int registry_lock(int dir, int *ret_fd, struct err *e);

/*
 * A missing file is an empty table. Refused: what is no regular file of root's, or others may write to; over
 * LIMIT_REGISTRY_BYTES. `ret_seen` (may be NULL): what was read, for registry_changed().
 */
int registry_load_images(int dir, struct image_table *ret, struct stat *ret_seen, struct err *e);
int registry_load_agents(int dir, struct agent_table *ret, struct stat *ret_seen, struct err *e);

/* Whether the file is another than the one that was seen (device, inode, size, time); a missing one is all zero. One stat(). */
bool registry_changed(int dir, const char *file, const struct stat *seen);

/* Under the lock. */
int registry_save_images(int dir, const struct image_table *t, struct err *e);
int registry_save_agents(int dir, const struct agent_table *t, struct err *e);

/* Removes both files, and what a writer that was killed left of them. 0 also when there are none. */
int registry_remove(int dir, struct err *e);

#endif
