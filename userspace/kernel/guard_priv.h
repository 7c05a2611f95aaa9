/* SPDX-License-Identifier: Apache-2.0 */
/* What guard.c (programs, links, pins) and guard_maps.c (policies, entries, flows, events) share. */
#ifndef WEIR_KERNEL_GUARD_PRIV_H
#define WEIR_KERNEL_GUARD_PRIV_H

#include <bpf/libbpf.h>

#include "kernel/guard.h"

#define LAYER "policy"

enum map_index {
	MAP_SANDBOXES,
	MAP_POLICIES,
	MAP_FLOWS,
	MAP_DENIALS,
	MAP_EVENTS,
	MAP_STATS,
	MAP_STRANGERS,
	MAP_RENEWED,
	MAP_IMAGES,
	MAP_TRIES,
	MAP_LISTS,
	MAPS
};

/* The kernel maps whole pages. */
#define POLICIES_BYTES (WEIR_POLICIES_MAX * sizeof(struct weir_policy))
_Static_assert(POLICIES_BYTES <= 4096, "the slots are mapped as one page");

struct guard {
	int maps[MAPS];
	int links[GUARD_HOOKS];
	uint32_t prog_ids[GUARD_HOOKS];
	uint32_t sandboxes_max;
	struct ring_buffer *rings;	/* both: of denials, then of the rest */
	struct weir_sandbox *strangers; /* shared with the kernel programs */
	struct weir_renewed *renewed;	/* likewise */
	struct weir_policy *policies;	/* likewise: the slots */
	/* Of the drain that is running. */
	int budget;
	int drained;
	void (*cb)(void *ctx, const struct weir_event *ev);
	void *ctx;
};

/* Maps both rings, with the maps open. */
int guard_open_rings(struct guard *g, struct err *e);

#endif
