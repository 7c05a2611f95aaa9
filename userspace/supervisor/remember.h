/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies that were in force in one slot, by generation: what they judged is told later, when they may have been replaced, and
 * takes words that only they have.
 */
#ifndef WEIR_SUPERVISOR_REMEMBER_H
#define WEIR_SUPERVISOR_REMEMBER_H

#include <stdbool.h>

#include "core/image.h"
#include "ipc/ipc.h"
#include "kernel/inforce.h"

#define REMEMBERED_POLICIES 9 /* one of them is being replaced */

struct remembered_policy {
	uint32_t generation; /* 0: none */
	char (*rule_names)[POLICY_NAME_MAX];
	size_t rule_count;
	struct weir_image head;
};

struct remembered {
	struct remembered_policy each[REMEMBERED_POLICIES];
	unsigned next; /* whose place is always empty: see remembered_make_room() */
};

/*
 * Two halves, since what the oldest judged and the ring still holds must be told while both have a name: true means that the
 * ring is to be drained before remembered_make_room() forgets the oldest.
 */
bool remembered_add(struct remembered *r, const struct inforce *f);
void remembered_make_room(struct remembered *r);
void remembered_clear(struct remembered *r);

bool remembered_has(const struct remembered *r, uint32_t generation);
/* What the policy that judged `k` says of it. */
void remembered_judged(const struct remembered *r, const struct weir_flow_key *k, struct note_judged *ret);

#endif
