/* SPDX-License-Identifier: Apache-2.0 */
/* From the result of a run to the JSON that answers `POST /v1/execute` and `weir run --json`. Pure. */
#ifndef WEIR_API_ANSWER_H
#define WEIR_API_ANSWER_H

#include <jansson.h>

#include "api/error.h"
#include "api/runclient.h"

/*
 * The answer to a run that ran (RUN_DONE). Invalid UTF-8 of each stream is replaced once over the whole. Returns a new
 * reference, NULL when out of memory.
 */
json_t *answer_result(const struct run_result *result);

/* The error for every other outcome. Fills *ret_error. */
void answer_error(const struct run_result *result, struct api_error *ret_error);

/* Serialises `value` (borrowed) with a final newline. malloc'd, NUL-terminated, *ret_len without the NUL. NULL: no memory. */
char *answer_text(const json_t *value, size_t *ret_len);

#endif
