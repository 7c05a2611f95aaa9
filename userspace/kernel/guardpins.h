/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guard's pins, one by one: for who looks often at many of them, and for those of which something is missing, so that
 * guard_adopt() can't open them. Errors have where = "policy".
 */
#ifndef WEIR_KERNEL_GUARDPINS_H
#define WEIR_KERNEL_GUARDPINS_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"
#include "core/err.h"
#include "kernel/guard.h"

/* Whether there is anything at all. */
bool guardpins_exist(const char *pin_dir);

/*
 * Opens the pin of one of a guard's maps: `name` as guard.c has it. -EPROTO when it is there and of another shape, as another
 * version of Weir makes it: what is in it would be misread.
 */
int guardpins_open_map(int *ret, const char *pin_dir, const char *name, struct err *e);

/* Sums up a map "stats" over the CPUs. */
int guardpins_sum_stats(int map, uint64_t ret[WEIR_HOOK_COUNT][WEIR_STAT_COUNT], struct err *e);

/* Id of the cgroup that at least one of its links is attached to; 0: to none that is still there, or nothing is pinned. */
uint64_t guardpins_cgroup(const char *pin_dir);

/* Ids of its programs, as far as their links are pinned; 0 for the others. In whatever order. */
void guardpins_programs(const char *pin_dir, uint32_t ret[GUARD_HOOKS]);

/* What could be read, and what it said. */
struct guardpins {
	bool has_entry, has_unknown, has_slot, has_stats;
	bool no_entry; /* the map is there, and has none for that cgroup */
	struct weir_sandbox entry;
	struct weir_sandbox unknown; /* the account of what has no entry */
	struct weir_policy slot;     /* the first */
	uint64_t stats[WEIR_STAT_COUNT];
};
void guardpins_read(const char *pin_dir, uint64_t cgroup, struct guardpins *ret);

/*
 * Leave for a cgroup directly below a carried parent: its own programs judge it (WEIR_SB_BELOW). Taking it away from one that
 * has none is fine, and so is a guard that is not there any more.
 */
int guardpins_give_leave(const char *pin_dir, uint64_t cgroup, struct err *e);
int guardpins_take_leave(const char *pin_dir, uint64_t cgroup, struct err *e);

/* Calls `judged` for every cgroup that has leave, and takes it from those for which the answer is false. How many it took. */
unsigned guardpins_prune_leave(const char *pin_dir, bool (*judged)(void *ctx, uint64_t cgroup), void *ctx);

#endif
