/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tool call came to. How it ended is the supervisor's word; only of one whose process ended by itself is the result pipe
 * looked at, and whoever wrote the tool can write there too: see struct result_header (ipc.h). Pure.
 */
#ifndef WEIR_API_CALL_RESULT_H
#define WEIR_API_CALL_RESULT_H

#include <stdbool.h>
#include <stddef.h>

#include "api/runclient.h"

enum call_outcome {
	CALL_RETURNED,
	CALL_RAISED,  /* the tool, or what stands in for its error */
	CALL_UNKNOWN, /* there is no such tool */
};

struct call_text {
	const char *text;
	size_t len;
};

struct call_result {
	enum call_outcome outcome;
	struct call_text value;			   /* CALL_RETURNED: JSON */
	struct call_text type, message, traceback; /* CALL_RAISED: valid UTF-8, may hold NUL */
	bool told; /* CALL_RAISED: by the sandbox; then its texts may be over their limits. Else `message` is in `words` */
	char words[256];
};

/*
 * Reads it. `r` is RUN_DONE of a call. Texts of the sandbox's borrow from r->out[RUN_RESULT], which is read in place. Returns 0
 * or -ENOMEM.
 */
int call_result_read(struct run_result *r, struct call_result *ret);

#endif
