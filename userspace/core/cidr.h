/* SPDX-License-Identifier: Apache-2.0 */
/* Prefixes: an address of either family and how many of its bits count. Pure. */
#ifndef WEIR_CORE_CIDR_H
#define WEIR_CORE_CIDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct cidr {
	uint8_t addr[16]; /* network order; IPv4 as ::ffff:a.b.c.d; bits beyond `len` are 0 */
	uint8_t family;	  /* 4 or 6 */
	uint8_t len;	  /* of the family's own address: 0-32 or 0-128 */
};

#define CIDR_TEXT_MAX 50

/*
 * Reads "10.0.0.0/8", "2001:db8::/32", or an address alone (its full length). Strict: four decimal parts without leading
 * zeros, no zone, no space, and no bits set beyond the length (the error then names the prefix that was probably meant).
 * `text` need not be terminated. e->where stays "".
 */
int cidr_parse(const char *text, size_t len, struct cidr *ret, struct err *e);

/* An address alone; a mapped one ("::ffff:1.2.3.4") stays family 6. */
int cidr_parse_addr(const char *text, size_t len, struct cidr *ret, struct err *e);

/* "10.0.0.0/8"; the length is left out when it is the whole address and `short_form` is set. */
void cidr_text(char ret[CIDR_TEXT_MAX], const struct cidr *c, bool short_form);

/* Whether every address of `inner` is in `outer`: the same family, and no longer a prefix. */
bool cidr_contains(const struct cidr *outer, const struct cidr *inner);

/* Order for sorting: family, address, then length, so that a prefix comes right before what lies in it. */
int cidr_compare(const struct cidr *a, const struct cidr *b);

#endif
