/* SPDX-License-Identifier: Apache-2.0 */
/* Which cgroup is meant: the options that attach and detach have in common, and what to ask the host for. */
#ifndef WEIR_CLI_ATTACH_PICK_H
#define WEIR_CLI_ATTACH_PICK_H

#include <argp.h>
#include <stdbool.h>

#include "attach/attach.h"

/* Keys of the options: one for each enum target_kind, in its order. Commands begin with theirs behind these. */
#define PICK_KEY 256
#define PICK_KEY_END (PICK_KEY + TARGET_KINDS)

/* Rows of a table of options, for who has the selectors. */
#define PICK_OPTIONS                                                                                                            \
	{"cgroup", PICK_KEY + TARGET_CGROUP, "DIR", 0, "a cgroup: its directory, or its path below the hierarchy's root", 0},   \
	    {"pid",                                                                                                             \
	     PICK_KEY + TARGET_PID,                                                                                             \
	     "N",                                                                                                               \
	     0,                                                                                                                 \
	     "the pod or container that this process is in, or else its cgroup; self is the caller",                            \
	     0},                                                                                                                \
	    {"container", PICK_KEY + TARGET_CONTAINER, "ID", 0, "a container, by its id: the whole, or 12 digits and more", 0}, \
	    {"pod", PICK_KEY + TARGET_POD, "UID", 0, "a pod, by its UID (Kubernetes) or id (Podman)", 0},                       \
	{                                                                                                                       \
		"parent", PICK_KEY + TARGET_PARENT, "DIR", 0, "a cgroup in which others are made: what is unknown there", 0     \
	}

struct pick {
	enum target_kind kind;
	const char *ref; /* NULL: none was given */
};

/*
 * Takes one option. What makes no sense ends the program with a message that names the option (argp_error): a second selector,
 * an empty value, a number that is no pid, an id that can be none.
 */
void pick_take(struct pick *p, int key, const char *arg, const struct argp_state *state);

/* Adds an address to a request's name servers, or ends the program. */
void pick_resolver(const char *arg, const char *list[ATTACHED_RESOLVERS], size_t *count, const struct argp_state *state);

/*
 * The option that an argument without one is likely to belong to: "--container" for 12 to 64 hexadecimal digits, "--pod" for a
 * UID, "--pid", "--cgroup"; NULL when it looks like none of them.
 */
const char *pick_option_of(const char *arg);

/* Ends the program when `arg` is empty; else returns it. `fix`: what to give. */
const char *pick_filled(const char *option, const char *arg, const char *fix, const struct argp_state *state);

/*
 * Whether an attachment is on what was picked. `found`: where that is now, NULL when it is nowhere any more: then what the
 * attachment itself remembers is compared. `roots` may be NULL.
 */
bool pick_matches(const struct pick *p, const struct target *found, const struct target_roots *roots,
		  const struct attachment *a);

#endif
