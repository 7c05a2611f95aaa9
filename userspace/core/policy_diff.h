/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What changes when one policy takes another's place, over every address, protocol and port there is: computed region by
 * region, not sampled. Pure.
 *
 * An IPv6 address that carries an IPv4 address is judged as both; each of the two is compared where it is written, so what
 * follows for such an address is not listed again.
 */
#ifndef WEIR_CORE_POLICY_DIFF_H
#define WEIR_CORE_POLICY_DIFF_H

#include <stdbool.h>

#include <jansson.h>

#include "core/err.h"
#include "core/image.h"
#include "core/policy.h"

struct policy_side {
	const struct policy *policy;
	const struct policy_image *image; /* compiled from it; both sides with the same environment */
};

struct policy_diff;

int policy_diff(const struct policy_side *old, const struct policy_side *new, struct policy_diff **ret, struct err *e);

/* NULL-safe, returns NULL. */
struct policy_diff *policy_diff_free(struct policy_diff *d);

/* Names and descriptions, of policies and of rules, don't count. */
bool policy_diff_empty(const struct policy_diff *d);

/* A line for each change, malloc'd; "" for none. At most `places` prefixes are named in one line (0: all). NULL without memory.
 */
char *policy_diff_text(const struct policy_diff *d, size_t places);
/* A new object, or NULL without memory. */
json_t *policy_diff_json(const struct policy_diff *d);

#endif
