/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system call filter of a command of the host (`weir exec`). Everything is allowed but
 *
 *	what would let the command leave its policy (filter_host_refused[], namespaces, typing into a terminal): in both modes
 *	sockets that the policy's `sockets` do not name, listen() with `listen: deny`, and the policy's `syscalls`: in mode
 *	monitor these are logged by the kernel and done
 *
 * A call of a foreign ABI (32-bit, x32) ends the process.
 */
#ifndef WEIR_RUNNER_FILTER_HOST_H
#define WEIR_RUNNER_FILTER_HOST_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"
#include "core/policy.h"

struct filter_host_call {
	const char *name;
	int nr;	   /* this ABI's */
	int error; /* what the caller gets */
};
extern const struct filter_host_call filter_host_refused[];
extern const size_t filter_host_refused_count;

/* Two programs, since what sockets may be made takes comparisons that libseccomp can't express. The kernel runs both. */
enum filter_host_part { FILTER_HOST_SOCKETS, FILTER_HOST_CALLS, FILTER_HOST_PARTS };

struct filter_host {
	struct sock_filter *code[FILTER_HOST_PARTS]; /* owned */
	unsigned short len[FILTER_HOST_PARTS];
};

/* e->where is "seccomp", or a JSON pointer for what the policy says wrong. */
int filter_host_compile(const struct policy *p, struct filter_host *ret, struct err *e);
void filter_host_clear(struct filter_host *f);
bool filter_host_equal(const struct filter_host *a, const struct filter_host *b);

/* On the calling thread, for good; it has no_new_privs. Async-signal-safe. Returns 0 or a negative errno. */
int filter_host_load(const struct filter_host *f);

#endif
