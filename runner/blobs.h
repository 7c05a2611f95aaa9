/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are part of the program: one binary is all there is to install. */
#ifndef WEIR_RUNNER_BLOBS_H
#define WEIR_RUNNER_BLOBS_H

#include <stddef.h>

struct blob {
	const char *data;
	size_t len;
};

struct blob blob_init(void);	/* the static program that is pid 1 of a sandbox */
struct blob blob_harness(void); /* harness.py */
struct blob blob_snippet(void); /* policies/snippet.json */

#endif
