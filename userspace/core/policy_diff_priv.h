/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of core/policy_diff.h: what is computed (policy_diff.c, policy_diff_settings.c) and then put in words (.._words.c). */
#ifndef WEIR_CORE_POLICY_DIFF_PRIV_H
#define WEIR_CORE_POLICY_DIFF_PRIV_H

#include <stddef.h>
#include <stdint.h>

#include "core/policy_diff.h"

typedef unsigned __int128 address; /* of either family, as a number */

/* Addresses from lo to hi, both included. Those of one list are sorted, disjoint and don't touch. */
struct span {
	address lo, hi;
	uint8_t family;
};

/* Who decides: a rule's number, or one of these. */
#define BY_DEFAULT 0u
#define BY_LOOPBACK 0xffffu

/* One thing that changes, the same for all addresses in the spans. Without padding: hashed and compared as bytes. */
struct change_kind {
	uint64_t protocols[4]; /* a bit for each number */
	uint16_t lo, hi;       /* ports; 0-65535 when all, and for protocols without ports */
	uint16_t old_by, new_by;
	uint32_t reachable; /* from denied to allowed, or the other way */
	uint16_t fragments; /* only of fragments whose port nobody sees */
	uint16_t carried;   /* only when an IPv6 address carries it */
};

struct change {
	struct change_kind kind;
	struct span *spans;
	size_t span_count, span_room;
	uint64_t spans_hash;
};

/* A key of the document whose value is another one. Owned strings. */
struct setting {
	const char *key;
	char **old, **new;
	size_t old_count, new_count;
};

struct policy_diff {
	const struct policy *old, *new; /* borrowed */
	struct change *changes;		/* those that go into one line stand together */
	size_t change_count, change_room;
	struct setting *settings;
	size_t setting_count;
};

int policy_diff_settings(struct policy_diff *d, struct err *e);
void policy_diff_free_settings(struct policy_diff *d);

/* Whether the two go into one line: the same addresses, for the same reasons. */
bool change_joins(const struct change *a, const struct change *b);

#endif
