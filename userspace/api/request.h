/* SPDX-License-Identifier: Apache-2.0 */
/* The body of `POST /v1/execute`: bytes of a stranger in, a checked request or one error out. Pure. */
#ifndef WEIR_API_REQUEST_H
#define WEIR_API_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "api/error.h"

struct execute_request {
	char *code; /* malloc'd, exactly as sent: may hold NUL, a byte order mark, anything */
	size_t code_len;
	uint32_t timeout_s; /* within the limits table */
};

/*
 * Strict: an unknown, repeated or ill-typed member refuses the whole request, nothing is clamped, coerced or ignored.
 * Returns 0 and fills *ret (the code is the caller's), or -1 and fills *ret_error.
 */
int request_parse_execute(const char *body, size_t len, struct execute_request *ret, struct api_error *ret_error);

#endif
