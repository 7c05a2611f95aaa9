/* SPDX-License-Identifier: Apache-2.0 */
/* Where a service listens, as people write it: `host:port`, `[v6]:port` or `unix:/path`. Text only. Pure. */
#ifndef WEIR_CORE_LISTEN_H
#define WEIR_CORE_LISTEN_H

#include <stdbool.h>

#include "core/err.h"

struct listen_address {
	bool is_unix;
	char host[256]; /* a name or an address, without brackets */
	char port[6];	/* "0" to "65535" */
	char path[108]; /* of a unix socket; may be relative */
};

/* Returns 0, or -EINVAL, or -ENAMETOOLONG; `where` is left empty. */
int listen_parse(const char *text, struct listen_address *ret, struct err *e);

#endif
