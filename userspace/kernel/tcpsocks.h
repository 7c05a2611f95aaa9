/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The TCP sockets that belong to one cgroup, in the caller's network namespace, and their end: a process that exits leaves its
 * connections to the kernel, which goes on sending what they still hold. MPTCP's subflows are TCP sockets too.
 */
#ifndef WEIR_KERNEL_TCPSOCKS_H
#define WEIR_KERNEL_TCPSOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/cidr.h"
#include "core/err.h"

struct tcpsock {
	struct cidr to; /* a mapped address is of family 6 */
	uint16_t port;
	uint32_t queued; /* bytes that are not sent, or not acknowledged; the end of the stream counts as one */
};

struct tcpsocks_result {
	unsigned closed; /* for good, and what they held is gone */
	unsigned stuck;	 /* unwanted, but could not be closed: see `error` */
	unsigned busy;	 /* not unwanted, with something queued */
	uint64_t queued; /* by busy and stuck ones together */
	int error;	 /* negative errno of the first that could not be closed; EOPNOTSUPP: no CONFIG_INET_DIAG_DESTROY */
};

/*
 * Lists the cgroup's sockets in every state but those that can hold no data (LISTEN, TIME_WAIT), asks `unwanted` about each,
 * and destroys those that are. An error: they could not be listed. Kernels before 6.12 go on listing a socket without an owner
 * that was destroyed, emptied as it is: it is counted as closed again.
 */
int tcpsocks_close(uint64_t cgroup, bool (*unwanted)(const void *ctx, const struct tcpsock *s), const void *ctx,
		   struct tcpsocks_result *ret, struct err *e);

#endif
