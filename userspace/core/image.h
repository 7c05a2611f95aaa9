/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy compiled to what the kernel reads: flat and sorted, one list of atoms for each distinct prefix. Pure.
 *
 * Within one prefix, and between a prefix and those around it, the order of atoms is: the longer prefix, then a named protocol
 * before any, then the range of fewer ports, then deny before allow, then the earlier rule. The first atom that matches
 * decides; atoms that can never be reached are left out.
 */
#ifndef WEIR_CORE_IMAGE_H
#define WEIR_CORE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "core/err.h"
#include "core/policy.h"
#include "judge_types.h"

struct policy_image {
	struct weir_image head;
	struct weir_prefix *prefixes; /* sorted by family, address, length; both families' /0 are always there */
	uint32_t *list_of;	      /* of each prefix: index into lists */
	size_t prefix_count;
	struct weir_list *lists; /* no two alike */
	size_t list_count;
};

/*
 * Compiles. `env` gives the dynamic sets (NULL: both empty). Fails with E2BIG and a JSON pointer when a limit of the image is
 * exceeded: WEIR_PREFIXES_MAX, WEIR_LISTS_MAX, WEIR_LIST_ATOMS.
 */
int image_compile(const struct policy *p, const struct policy_env *env, struct policy_image **ret, struct err *e);

/* NULL-safe, returns NULL. */
struct policy_image *image_free(struct policy_image *img);

bool image_equal(const struct policy_image *a, const struct policy_image *b);

/*
 * The policy's judgement on one destination, by the kernel's own lines (bpf/judge.h): WEIR_DENY or WEIR_ALLOW whatever the
 * mode. Pure.
 */
uint32_t image_judge(const struct policy_image *img, const struct weir_dest *d);

/* What the rules and the default say of one address, whatever it carries and whatever `loopback` says; of `d`: the rest. */
uint32_t image_judge_rules(const struct policy_image *img, const struct cidr *addr, const struct weir_dest *d);

/*
 * As a socket call names it: a mapped IPv6 address becomes its IPv4 address, as in the kernel. `*ret_mapped` says whether it
 * did (then the judgement's via is NONE, and the decode path begins with MAPPED).
 */
struct weir_dest dest_of_call(const struct cidr *addr, uint8_t protocol, uint16_t port, bool *ret_mapped);

/* The longest prefix of the image that holds the address a judgement was made on (after decoding by `via`). */
const struct weir_prefix *image_prefix_of(const struct policy_image *img, const struct weir_dest *d, uint8_t via);

/* The IPv4 address carried in `addr` the way `via` says; false when there is none. Family 6 in, family 4 out. */
bool image_carried(const struct policy_image *img, const uint8_t addr[16], uint8_t via, struct cidr *ret);

#endif
