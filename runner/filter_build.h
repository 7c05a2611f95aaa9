/* SPDX-License-Identifier: Apache-2.0 */
/* A filter in the making: what the files of filter.c share. */
#ifndef WEIR_RUNNER_FILTER_BUILD_H
#define WEIR_RUNNER_FILTER_BUILD_H

#include <seccomp.h>

#include "core/policy.h"
#include "filter_syscalls.h"

struct filter_build {
	scmp_filter_ctx ctx;
	uint32_t otherwise;		       /* the action for what no rule names */
	const struct policy_sockets *sockets;  /* NULL: all that the table has */
	const struct filter_syscalls *refused; /* calls that the policy refuses altogether; NULL: none */
	struct filter_answers
	    *answers; /* what is refused by number alone is left to the listener, which says this; NULL: it is not */
};

/* Adds a rule of the table, unless the policy refuses the whole call. 0 or a negative errno of libseccomp's. */
#define filter_rule(b, act, nr, ...)                                                                                           \
	((b)->refused && filter_syscalls_action((b)->refused, (nr)) ? 0 : seccomp_rule_add((b)->ctx, (act), (nr), __VA_ARGS__))

/* ---- filter_sockets.c ---- */

/* Every rule for socket, socketpair, the send calls, splice and setsockopt. 0 or a negative errno of libseccomp's. */
int filter_add_sockets(const struct filter_build *b);

#endif
