/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is held for projects: how much in all, and how much for each. Pure. */
#ifndef WEIR_API_BUDGET_H
#define WEIR_API_BUDGET_H

#include <stddef.h>
#include <stdint.h>

struct budget_owner;

/* All zero: nothing is held, and budget_ask() has no bounds to refuse by. */
struct budget {
	struct budget_owner *owners; /* those who hold something */
	uint64_t total;
	uint64_t max, owner_max; /* bytes, in all and for one; 0: none */
};

/* One holder's part; embedded in whatever holds it. All zero: nothing. */
struct budget_share {
	struct budget_owner *owner;
	uint64_t bytes;
};

/*
 * Makes the share `bytes` large. Returns 0, -EDQUOT when it would be too much for its owner, -ENOBUFS when it would be too much
 * in all, -ENOMEM; then nothing has changed. Making it smaller always succeeds. `owner` is copied.
 */
int budget_ask(struct budget *b, struct budget_share *share, const char *owner, uint64_t bytes);

/* The same for what can't be refused any more. (Without memory for a new owner it is in the total alone.) */
void budget_force(struct budget *b, struct budget_share *share, const char *owner, uint64_t bytes);

/* Who holds most; "" when nobody holds anything. Borrowed until the next change. */
const char *budget_largest(const struct budget *b);

#endif
