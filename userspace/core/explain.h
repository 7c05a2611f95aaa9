/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a policy does to one destination, and why: the same judgement as the kernel's (core/image.h), in words and as JSON.
 * Pure.
 */
#ifndef WEIR_CORE_EXPLAIN_H
#define WEIR_CORE_EXPLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "core/cidr.h"
#include "core/err.h"
#include "core/image.h"
#include "core/policy.h"

/* What is asked about. */
struct explain_to {
	struct cidr addr; /* its full length */
	uint16_t port;	  /* 0 for protocols without ports */
	uint8_t protocol;
	bool packet;	/* as a packet on the wire, not as a socket call names it: mapped addresses stay IPv6 */
	uint32_t flags; /* WEIR_DEST_* */
};

/* "proto://addr[:port]", IPv6 in brackets; the port is required where the protocol has one, and an error where not. */
int explain_parse_to(const char *text, struct explain_to *ret, struct err *e);

/* "packet", "ipv4_options", "routing_header", "fragment": something that is true of the packet as well. */
int explain_parse_with(const char *word, struct explain_to *to, struct err *e);

/* One address that was judged. */
struct explain_part {
	struct cidr addr;
	uint8_t via; /* how it comes out of the address as written; NONE: it is that one */
	uint8_t verdict, reason;
	uint16_t rule; /* from 1, with reason RULE */
};
#define EXPLAIN_PARTS_MAX 6

struct explanation {
	const struct policy *policy;  /* borrowed, as is */
	const struct policy_env *env; /* this; may be NULL */
	struct explain_to to;
	uint8_t verdict;			      /* WEIR_DENY, WEIR_ALLOW, or WEIR_WOULD_DENY: as enforced */
	uint8_t reason, via;			      /* of what decided */
	uint16_t rule;				      /* from 1, with reason RULE; else 0 */
	bool mapped;				      /* the address was a mapped one, and is judged as its IPv4 address */
	bool has_place;				      /* the element of the rule's `to` that holds the address, the longest: */
	struct cidr prefix;			      /* its prefix .. */
	int set;				      /* .. and the set it comes from (enum netset), or -1 */
	const struct netset_row *row;		      /* .. and that set's row, of a fixed one */
	struct explain_part parts[EXPLAIN_PARTS_MAX]; /* every address that was judged, in order, up to the first denial */
	size_t part_count;
};

/* `env` as the image was compiled with. The result borrows `p` and `env`. */
void explain(const struct policy *p, const struct policy_image *img, const struct policy_env *env, const struct explain_to *to,
	     struct explanation *ret);

/* Whether it is refused for whoever asks, by the socket filter or by what `explain()` found. */
bool explain_is_refused(const struct explanation *x);

/* The deciding rule's name, or NULL. */
const char *explain_rule_name(const struct explanation *x);

/* How the address that decided comes out of the one that was asked for: enum weir_via, MAPPED also when a socket unmaps it. */
uint8_t explain_kind(const struct explanation *x);

/* Several lines, malloc'd, the first beginning with the verdict's word; NULL without memory. */
char *explain_text(const struct explanation *x);
/* A new object, or NULL without memory. */
json_t *explain_json(const struct explanation *x);

#endif
