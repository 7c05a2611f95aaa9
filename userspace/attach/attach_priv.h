/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that attach, check and clear up share. */
#ifndef WEIR_ATTACH_ATTACH_PRIV_H
#define WEIR_ATTACH_ATTACH_PRIV_H

#include "attach/attach.h"

#define ATTACH_LAYER "attachment"
#define ATTACH_LOCK_MS 120000 /* of many that start at once each takes some tenths of a second */
#define ATTACH_RING_BYTES (512u << 10)

void attach_pin_dir(char ret[PATH_MAX], const char *id);

/* Whether `above` is a cgroup that `path` lies in, at whatever depth; not the same one. */
bool attach_lies_in(const char *path, const char *above);
/* Whether it lies directly in it. */
bool attach_is_child(const char *path, const char *above);

/*
 * The cgroup of an attachment: there, another of its name, or gone, by the kernel's word. Hidden: it lives, or may, but its
 * path does not lead to it from here. With *ret_fd (when it is not NULL) open, if it is there.
 */
enum attach_place { PLACE_THERE, PLACE_OTHER, PLACE_GONE, PLACE_HIDDEN };
enum attach_place attach_place(const struct attachment *a, const struct target_roots *roots, int *ret_fd);

/* Whether the kernel has links of it on its cgroup still: of one that is removed it keeps them as long as sockets of it live.
 */
bool attach_is_held(const struct attachment *a);
/* Whether a descriptor is of a cgroup that was removed, whatever there is of its name by now. */
bool attach_is_dead(int cgroup_fd);

/* Whether all of an attachment's programs are pinned, attached to its cgroup and in force on it. */
bool attach_holds(const struct attachment *a, const struct target_roots *roots);

/* ---- carried parents (attach_parents.c) ---- */

/*
 * What lies further down below a parent that denies unknown cgroups is cut off there, whatever policy it has itself: -EPERM,
 * unless the cgroup between them that is the parent's child is judged by programs of its own.
 */
int parents_permit(const struct attachment_list *l, const struct target *t, const struct target_roots *roots, struct err *e);

/* Leave at every parent that `t` is a child of, and taking it. */
int parents_give_leave(const struct attachment_list *l, const struct target *t, const struct target_roots *roots,
		       struct err *e);
int parents_take_leave(const struct attachment_list *l, const struct target *t, struct err *e);

/* Leave at a parent that is being made, for those of its children that have an attachment. */
int parents_enter_children(const struct attachment_list *l, const struct target *parent, const struct target_roots *roots,
			   struct guard *g, struct err *e);

/* Takes leave from all that nobody judges any more. How many. */
unsigned parents_prune(const struct attachment_list *l, const struct target_roots *roots);

/* Whether a carried parent keeps it from what its own policy allows; says how. Reads as little as it can: for every check. */
bool parents_cut_off(const struct attachment *a, const struct target_roots *roots, char *why, size_t size);

/* ---- who else is there ---- */

/* Ids of the programs of all attachments, remembered as long as no pins come or go. Borrowed, until the next call. */
const unsigned *attach_all_programs(size_t *ret_count);
/* Ids of Weir's own programs on this line of cgroups, *ret owned. `more`: those of a guard that has no attachment yet. */
int attach_own_programs(const struct attachment_list *l, const struct target *t, const struct guard *more, unsigned **ret,
			size_t *ret_count, struct err *e);

/* ---- taking off (attach_clear.c), under the lock ---- */

/* Everything of it: leave, pins, files. `l`: all there are. */
int attach_take_off(const struct attachment_list *l, const struct attachment *a, struct err *e);
/* The same without a look at parents: of what something else judges by now, or what is gone. */
int attach_drop(const char *id, struct err *e);
/* Drops pins without a record that are attached to this cgroup; 0: to none. */
void attach_clear_orphans(const struct attachment_list *l, uint64_t cgroup);

/* ---- tests: a build with hooks ends itself at the step that WEIR_ATTACH_DIE names ---- */
void attach_step(const char *step);

#endif
