/* SPDX-License-Identifier: Apache-2.0 */
/* Part of filter.c: the rules about sockets. */
#ifndef WEIR_RUNNER_FILTER_SOCKETS_H
#define WEIR_RUNNER_FILTER_SOCKETS_H

#include <seccomp.h>

/* Adds every rule for socket, socketpair, the send calls, splice and setsockopt. 0 or a negative errno of libseccomp's. */
int filter_add_sockets(scmp_filter_ctx ctx);

#endif
