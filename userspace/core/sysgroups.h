/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of system calls by name (policies/groups.json), and what a policy's `syscalls` come to. Pure: which system calls
 * there are is libseccomp's to know, so whoever asks brings a function.
 */
#ifndef WEIR_CORE_SYSGROUPS_H
#define WEIR_CORE_SYSGROUPS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"

struct policy;

struct sysgroup {
	char *name; /* with the '@' */
	char *help; /* one line */
	char **members;
	size_t member_count;
};

struct sysgroups {
	struct sysgroup *groups;
	size_t count;
};

/* Reads the table: an array of {name, help, members}. Errors as those of policy_parse(). */
int sysgroups_parse(const char *text, size_t len, struct sysgroups **ret, struct err *e);

/* NULL-safe, returns NULL. */
struct sysgroups *sysgroups_free(struct sysgroups *g);

/* NULL when there is no such group. */
const struct sysgroup *sysgroups_find(const struct sysgroups *g, const char *name);

/* The embedded table. Never freed. */
const struct sysgroups *sysgroups_shipped(void);

/* One system call that a policy refuses. */
struct sysgroups_refusal {
	const char *name; /* borrowed from the policy or the groups */
	bool kill;	  /* else `error` */
	int error;
	bool by_group; /* the policy names it by a group only */
};

/*
 * Every system call that `syscalls` of the policy name, groups opened, each once and sorted by name. Of several entries that
 * mean one call, the one with the call's own name counts before any with a group, then the first. `known` (may be NULL: then
 * not asked) says whether there is a call of that name. Fails with EINVAL and the name's JSON pointer when a group or a call is
 * not known. `*ret` is the caller's: free() it.
 */
int sysgroups_refusals(const struct policy *p, const struct sysgroups *g, bool (*known)(const char *name),
		       struct sysgroups_refusal **ret, size_t *ret_count, struct err *e);

#endif
