/* SPDX-License-Identifier: Apache-2.0 */
/* Services that run on this host: each has a directory below RUN_DIR, named after its state directory, and holds the lock in
 * it. */
#ifndef WEIR_CLI_INSTANCE_H
#define WEIR_CLI_INSTANCE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"

#define INSTANCE_NAME_MAX 64

/* One per state directory: the same one after a restart, so that it finds what an earlier life left. */
const char *instance_name(const char *state_dir, char ret[INSTANCE_NAME_MAX]);

/* The first line of a small file of an instance's; "" when there is none. */
void instance_line(const char *instance, const char *file, char *ret, size_t size);

/* Whether somebody holds its lock. Under supervisor_lock(): a service that starts just then must not find it taken by us. */
bool instance_is_alive(const char *instance);

/* 0 when no service runs on this state directory, else -EBUSY with its process id. Waits while one starts or is swept. */
int instance_check_free(const char *state_dir, struct err *e);

/* Where its clients find it: said by the service itself once it holds the lock, and taken back before it gives it up. */
int instance_note_url(const char *instance, const char *url, struct err *e);
void instance_forget_url(const char *instance);

/* What the service that runs on this state directory has noted; malloc'd into *ret, NULL when none runs. */
int instance_url(const char *state_dir, char **ret, struct err *e);

#endif
