/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named sets of prefixes, from one table in which every row names its source. Pure.
 *
 * @private, @metadata and @special-purpose are fixed. @host (this host's own addresses) and @resolver (the name servers in
 * Weir's own resolv.conf) come from where the policy is used, in a struct policy_env.
 */
#ifndef WEIR_CORE_NETSET_H
#define WEIR_CORE_NETSET_H

#include <stdbool.h>
#include <stddef.h>

#include "core/cidr.h"

enum netset {
	NETSET_PRIVATE,		/* RFC 1918, RFC 4193, RFC 6598 and the deprecated site-local range */
	NETSET_METADATA,	/* where clouds hand out credentials, and their platform endpoints */
	NETSET_SPECIAL_PURPOSE, /* both IANA special-purpose registries, multicast, class E: nothing of it is a public host */
	NETSET_HOST,
	NETSET_RESOLVER,
	NETSETS,
};

struct netset_info {
	const char *name; /* with the '@' */
	const char *help; /* one line, for `weir policy --help`, the documents and errors */
	bool dynamic;	  /* from the environment, not from rows */
};
extern const struct netset_info netset_info[NETSETS];

struct netset_row {
	enum netset set;
	const char *prefix; /* canonical text */
	const char *what;   /* "AWS instance metadata" */
	const char *source; /* "RFC 1918 section 3", "IANA IPv4 special-purpose registry", a vendor's document by name */
};
extern const struct netset_row netset_rows[];
extern const size_t netset_row_count;

/* -1 when there is no such set. `name` with the '@', `len` bytes. */
int netset_find(const char *name, size_t len);

/* What the dynamic sets hold, as seen by whoever is governed. Borrowed arrays. */
struct policy_env {
	const struct cidr *hosts;
	size_t host_count;
	const struct cidr *resolvers;
	size_t resolver_count;
};

#endif
