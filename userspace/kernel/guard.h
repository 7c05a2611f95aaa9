/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The enforcing programs of one instance: loaded, attached once at the instance's root cgroup, pinned.
 *
 * Links and maps are pinned below `pin_dir`, so verdicts hold when every Weir process is dead. One guard belongs to one
 * process and is not thread-safe. Errors of this module have where = "policy" (the layer) and say what would mend them.
 */
#ifndef WEIR_KERNEL_GUARD_H
#define WEIR_KERNEL_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"
#include "core/err.h"
#include "core/image.h"

struct guard;

struct guard_opts {
	const char *pin_dir;	/* e.g. /sys/fs/bpf/weir/serve; created 0700, must not exist; on a bpffs (mounted if missing) */
	int cgroup_fd;		/* the instance's root cgroup (v2): where the programs are attached */
	unsigned level;		/* depth of the governed cgroups below the cgroup2 root (root = 0): instance root's depth + 1 */
	bool whole;		/* the cgroup itself is governed, with all below it, as one; `level` is its own depth then */
	uint32_t sandboxes_max; /* 0: WEIR_SANDBOXES_MAX */
	/*
	 * Of the ring of denials, a power of two, at least a page. What was let through has one of a quarter of it, but with
	 * room for what one cgroup may list as far as this has. 0: WEIR_RING_BYTES.
	 */
	uint32_t ring_bytes;
	/*
	 * Called when the maps can be written and before the first program is attached, so that none ever meets an empty map
	 * (what has no entry is denied). An error undoes all. NULL: nothing is written.
	 */
	int (*prepare)(struct guard *g, void *ctx, struct err *e);
	void *prepare_ctx;
};

/* Loads, attaches and pins. On failure nothing stays pinned or attached. */
int guard_create(struct guard **ret, const struct guard_opts *opts, struct err *e);

/*
 * Opens what an earlier instance pinned, to drain its rings and read its counters; -ENOENT when there are no pins, -EPROTO when
 * another version of Weir pinned them, with maps of another shape.
 */
int guard_adopt(struct guard **ret, const char *pin_dir, struct err *e);

/* Closes fds; pins, links and verdicts stay. NULL-safe, returns NULL. */
struct guard *guard_free(struct guard *g);

/* Removes every pin below pin_dir and the directory: links without another holder detach. Missing directory is fine. */
int guard_unpin(const char *pin_dir, struct err *e);
/* Detaches what is pinned there at once, whoever else has it open. What is missing is fine; pins and maps stay. */
int guard_detach(const char *pin_dir, struct err *e);

/* Asks the kernel whether each program is effective on `cgroup_fd` (a governed cgroup): not whether we once attached it. */
int guard_verify(const struct guard *g, int cgroup_fd, struct err *e);

#define GUARD_HOOKS 8

/* Of one program: its pin, its link, and whether the kernel would run it for the cgroup asked about. */
struct guard_link {
	const char *hook; /* "connect4", "egress" … */
	const char *pin;  /* its link's name below the pin directory */
	uint32_t prog_id; /* 0: not known */
	bool pinned;	  /* the pin is there */
	bool attached;	  /* .. and its link is attached to that very cgroup (its id) */
	bool effective;	  /* .. and its program is among those in force on it */
};

/*
 * Looks at each hook of what is pinned below `pin_dir`, with whatever is missing told and nothing opened for longer. `held`: a
 * guard that the caller has open on the same pins, whose links count where a pin is missing; or NULL. An error only when
 * nothing could be asked at all.
 */
int guard_examine(const char *pin_dir, const struct guard *held, int cgroup_fd, uint64_t cgroup_id,
		  struct guard_link ret[GUARD_HOOKS], struct err *e);

/* Ids of its own programs, for who looks at those of others. */
void guard_programs(const struct guard *g, uint32_t ret[GUARD_HOOKS]);

/* What has no entry is denied, as ever; with `pass` it is let through, and recorded as WEIR_WOULD_DENY, NO_ENTRY. In one store.
 */
void guard_set_unknown(struct guard *g, bool pass);
bool guard_get_unknown(const struct guard *g, struct weir_sandbox *ret_account);

/*
 * Writes the image beside what is in force and then points slot `id` at it, in one store: every packet is judged by the one or
 * the other, whole; established flows by the new one from their next packet on. `*ret_generation` (may be NULL) is the slot's,
 * from 1. On failure what was in force stays.
 */
int guard_set_policy(struct guard *g, uint32_t id, const struct policy_image *img, uint32_t *ret_generation, struct err *e);

/*
 * The same for another image of the same document (the host's addresses have changed): the generation stays, so that flows go
 * on under their key. -ENOENT when the slot is empty.
 */
int guard_renew_policy(struct guard *g, uint32_t id, const struct policy_image *img, struct err *e);

/* What number the policy in a slot has; 0: none was ever there. */
uint32_t guard_get_generation(const struct guard *g, uint32_t id);

/* Empties the slot: what still names it is denied. An empty slot is fine. */
int guard_del_policy(struct guard *g, uint32_t id, struct err *e);

/* Adds or replaces the entry. Counters start at 0; sockets that the old entry counted are in none and not bounded. */
int guard_set_sandbox(struct guard *g, uint64_t cgroup_id, uint32_t policy, uint32_t flags, struct err *e);
int guard_get_sandbox(const struct guard *g, uint64_t cgroup_id, struct weir_sandbox *ret, struct err *e);
int guard_del_sandbox(struct guard *g, uint64_t cgroup_id, struct err *e);
/*
 * Gives it its allowance of listed flows anew; everything else in its entry stays, its sockets above all. In a guard with room
 * for one cgroup (sandboxes_max 1) it is exact while that runs, and `flows` counts on. In others `flows` begins at 0, and
 * nothing in the cgroup may run: what the kernel itself counts in that very moment would be lost.
 */
int guard_renew_flows(struct guard *g, uint64_t cgroup_id, struct err *e);
/* How much of its allowance an entry, as it was just read, has used up. */
uint64_t guard_taken_flows(const struct guard *g, const struct weir_sandbox *sb);
uint64_t guard_taken_inbound(const struct guard *g, const struct weir_sandbox *sb);

/* A flow's counters, taking the entry away, and both at once. -ENOENT without an entry (no error text then). */
int guard_get_flow(const struct guard *g, const struct weir_flow_key *key, struct weir_flow *ret);
int guard_del_flow(struct guard *g, const struct weir_flow_key *key);
int guard_take_flow(struct guard *g, const struct weir_flow_key *key, struct weir_flow *ret);

/* Calls `cb` for every flow there is, of whatever cgroup; nobody may delete flows meanwhile. For sweeping. */
void guard_walk_flows(const struct guard *g,
		      void (*cb)(void *ctx, const struct weir_flow_key *key, const struct weir_flow *flow), void *ctx);

/* Removes every flow of a cgroup by walking the whole map: for sweeping, not for the run path. Returns how many. */
int guard_sweep_flows(struct guard *g, uint64_t cgroup_id);

/* As many events as both rings can hold. */
#define GUARD_EVENTS_MAX ((WEIR_RING_BYTES + WEIR_RING_BYTES / WEIR_RING_SHARE) / (int)sizeof(struct weir_event))

/* Readable (epoll) when events wait, in either ring: that of denials, or that of what was let through. */
int guard_ring_fd(const struct guard *g);

/* Hands at most `budget` waiting events to `cb`, denials first; returns how many, or a negative errno. */
int guard_drain(struct guard *g, int budget, void (*cb)(void *ctx, const struct weir_event *ev), void *ctx);

/* Sum over CPUs and hooks of each enum weir_stat. */
int guard_stats(const struct guard *g, uint64_t ret[WEIR_STAT_COUNT], struct err *e);
/* .. and of each hook by itself. */
int guard_stats_by_hook(const struct guard *g, uint64_t ret[WEIR_HOOK_COUNT][WEIR_STAT_COUNT], struct err *e);

/*
 * Tries to load each program alone, without attaching, and reports it: for `weir doctor`. `report` is called once per
 * program with its name, 0 or a negative errno, and the verifier's last line ("" on success).
 */
int guard_probe(void (*report)(void *ctx, const char *prog, int rc, const char *why), void *ctx, struct err *e);

#endif
