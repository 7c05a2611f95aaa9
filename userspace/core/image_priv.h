/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of core/image.h: the order of prefixes, which compiling makes and judging relies on. */
#ifndef WEIR_CORE_IMAGE_PRIV_H
#define WEIR_CORE_IMAGE_PRIV_H

#include <string.h>

#include "abi.h"

/* By family, address, length: a prefix comes right before what lies in it. */
static inline int image_compare_prefix(const struct weir_prefix *a, const struct weir_prefix *b)
{
	int order = memcmp(a->family, b->family, sizeof a->family);

	if (order == 0)
		order = memcmp(a->addr, b->addr, sizeof a->addr);
	if (order == 0)
		order = a->len < b->len ? -1 : a->len > b->len;
	return order;
}

#endif
