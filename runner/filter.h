/* SPDX-License-Identifier: Apache-2.0 */
/* The system call filters of a sandbox: tables, compiled once with libseccomp. */
#ifndef WEIR_RUNNER_FILTER_H
#define WEIR_RUNNER_FILTER_H

#include <stdint.h>

#include "core/err.h"
#include "core/policy.h"

enum filter_kind {
	FILTER_SNIPPET, /* pid 2 and everything it starts */
	FILTER_INIT,	/* pid 1, after it has dropped everything */
};

/*
 * Compiles into a sealed memfd that holds an array of struct sock_filter. `*ret_len` is the number of instructions. The fd is
 * the caller's.
 *
 * Verdicts: what the table allows is allowed; what it names as refused is EPERM; io_uring, clone3 and every number it does
 * not know are ENOSYS, so that programs use what they did before those calls existed; a call of a foreign ABI (32-bit, x32)
 * kills the process.
 */
int filter_compile(enum filter_kind kind, int *ret_fd, uint32_t *ret_len, struct err *e);

/*
 * The snippet's filter under a policy, which can only tighten it: socket families, types and protocols that it does not name,
 * listen() when it says so, and its `syscalls`. The file goes on behind it: see struct filter_answers (plan.h).
 */
int filter_compile_snippet(const struct policy *p, int *ret_fd, uint32_t *ret_len, struct err *e);

/*
 * Whether a sandbox can be what the policy asks for: an error names the place (e->where, a JSON pointer) and what would mend
 * it. Never a silent narrowing.
 */
int filter_check(const struct policy *p, struct err *e);

/* Readable text of the filter (libseccomp's PFC) to `fd`: for review and golden tests. */
int filter_print(enum filter_kind kind, int fd, struct err *e);

#endif
