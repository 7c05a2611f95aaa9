/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The query parameters of GET /v1/audit and GET /v1/audit/stream: one table of them, which the reader, its errors and
 * /openapi.json come from. Pure.
 */
#ifndef WEIR_API_FIND_ARGS_H
#define WEIR_API_FIND_ARGS_H

#include <stdbool.h>
#include <stddef.h>

#include "api/error.h"
#include "ipc/ipc.h"

/* Which route takes a parameter: bits. */
enum find_route { FIND_NONE = 0, FIND_SEARCH = 1, FIND_STREAM = 2 };

struct find_parameter {
	const char *name;
	unsigned routes;	   /* enum find_route */
	const char *type;	   /* of JSON Schema */
	const char *format;	   /* likewise; NULL: none */
	long min, max;		   /* of an integer */
	const char *const *values; /* one or more of these, with commas between; NULL: any. Some may be NULL: none */
	size_t value_count;
	const char *description;
};
/* Static. */
const struct find_parameter *find_parameters(size_t *ret_count);

/* All zero: nothing is asked for. */
struct find_args {
	struct find find;
	unsigned types; /* bits 1 << enum record_type; 0: all */
	bool has_after; /* find.after was given */
	unsigned seen;	/* bits: places in the table */
};

/*
 * Takes one parameter as it stands in the request: `value` percent-encoded, or NULL without a "=". Returns 0, or -EINVAL and
 * fills *e: unknown to this route, there twice, or not what is expected; named as `?since`.
 */
int find_args_take(struct find_args *a, enum find_route route, const char *name, const char *value, struct api_error *e);

/* A number as cursors are: digits alone. `where`: for the error. */
int find_args_number(const char *text, const char *where, uint64_t *ret, struct api_error *e);

#endif
