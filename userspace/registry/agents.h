/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which agents there are: for each, whose it is, the digest of the image that its tools run in, and the modules that hold them.
 * A table in <state-dir>/agents.json, written by `weir agent`, read by the supervisor. Text to table and back is pure.
 */
#ifndef WEIR_REGISTRY_AGENTS_H
#define WEIR_REGISTRY_AGENTS_H

#include "core/err.h"
#include "core/limits.h"
#include "core/tokens.h"
#include "registry/images.h"

#define AGENT_MODULE_MAX 128

struct agent_entry {
	char name[TOKEN_AGENT_MAX]; /* token_project_ok(); unique within its project */
	char project[TOKEN_PROJECT_MAX];
	char digest[IMAGE_HEX + 1];	   /* pinned when it was added */
	char image[IMAGE_NAME_MAX];	   /* what was asked for then, for people */
	char (*modules)[AGENT_MODULE_MAX]; /* dotted names, in the order in which a bare tool name is looked for */
	size_t module_count;
	char *variables; /* of the agent's own process, shown by `weir agent env`; never a tool's. As in struct image_entry */
	size_t variables_len;
	int64_t added_s; /* Unix time */
};

struct agent_table {
	struct agent_entry *entries;
	size_t count;
};

/* Strict: unknown or repeated keys, wrong types and values out of their range are errors with the place in `where`. */
int agent_table_parse(const char *text, size_t len, struct agent_table *ret, struct err *e);
/* malloc'd text, or NULL without memory. */
char *agent_table_text(const struct agent_table *t, size_t *ret_len);
void agent_table_clear(struct agent_table *t);

/*
 * Building an entry ({0}): the same rules as for what is read. Errors are -EINVAL, -E2BIG or -ENOMEM with an empty `where`. The
 * name of a variable is an identifier, since it is printed as a line for a shell.
 */
int agent_entry_add_module(struct agent_entry *a, const char *module, struct err *e);
int agent_entry_add_variable(struct agent_entry *a, const char *name, const char *value, struct err *e);
void agent_entry_clear(struct agent_entry *a);

/* Takes *entry, in the place of one of the same project and name or behind the others. -E2BIG, -ENOMEM: it is left. */
int agent_table_put(struct agent_table *t, struct agent_entry *entry, struct err *e);
void agent_table_remove(struct agent_table *t, size_t index);

const struct agent_entry *agent_table_find(const struct agent_table *t, const char *project, const char *name);

/* Identifiers with dots between, less than AGENT_MODULE_MAX bytes. */
bool agent_module_ok(const char *module);

#endif
