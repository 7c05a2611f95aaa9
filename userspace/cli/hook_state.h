/* SPDX-License-Identifier: Apache-2.0 */
/* What an OCI runtime tells its hooks: the state of a container, as JSON. Pure. */
#ifndef WEIR_CLI_HOOK_STATE_H
#define WEIR_CLI_HOOK_STATE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"

#define HOOK_STATE_MAX (1 << 20)
#define HOOK_ID_MAX 256
#define HOOK_POLICY_MAX 64 /* [a-z0-9-]{1,63} */
#define HOOK_ANNOTATION "weir.dev/policy"

struct hook_state {
	char id[HOOK_ID_MAX]; /* printable ASCII */
	int pid;	      /* > 0 */
	char bundle[PATH_MAX];
	bool labelled; /* it has the annotation, and this is what it says: */
	char policy[HOOK_POLICY_MAX];
};

/*
 * Reads the state of a container that is being created. Strict about what is used, and about what it says of the moment: one
 * that runs already would have run its first instructions without a policy. Other members are ignored: the specification may
 * grow. Errors: the JSON pointer or line:column in e->where.
 */
int hook_state_read(const char *text, size_t len, struct hook_state *ret, struct err *e);

/* A policy's name, as an annotation may give it: never a path. */
bool hook_policy_name_ok(const char *name);

#endif
