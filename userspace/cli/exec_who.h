/* SPDX-License-Identifier: Apache-2.0 */
/* Who a command of `weir exec` runs as, and which capabilities it may keep. */
#ifndef WEIR_CLI_EXEC_WHO_H
#define WEIR_CLI_EXEC_WHO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/err.h"

struct who {
	uid_t uid;
	gid_t gid;
	gid_t *groups; /* owned */
	size_t group_count;
	bool another;  /* not whom the caller's environment is made for: HOME and USER are set */
	char name[64]; /* "" for a uid without an account */
	char home[256], shell[256];
};

/*
 * `user`: a name or a number, or NULL: then whoever called sudo (SUDO_UID, SUDO_GID), else root. A uid without an account gets
 * the group of the same number and no others.
 */
int who_find(const char *user, struct who *ret, struct err *e);
void who_clear(struct who *w);

/* The environment for them: the caller's, with HOME, USER, LOGNAME and SHELL set when they are another. Owned: who_env_free().
 */
char **who_env(const struct who *w, char *const *caller);
void who_env_free(char **env);

/*
 * "net_raw,net_bind_service" to bits. Those that would let a command leave its policy are refused, with the reason; so is any
 * that is not known here.
 */
int who_caps(const char *list, uint64_t *ret, struct err *e);

#endif
