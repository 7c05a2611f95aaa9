/* SPDX-License-Identifier: Apache-2.0 */
/* The tables behind /openapi.json. */
#ifndef WEIR_API_DESCRIBE_PRIV_H
#define WEIR_API_DESCRIBE_PRIV_H

#include <stdbool.h>
#include <stddef.h>

#include "api/error.h"
#include "api/find_args.h"
#include "api/request.h"

/* One field of an answer; those of one schema in order, a field after what holds it. */
struct answer_field {
	const char *path; /* "usage.cpu_ms", "files[].path" */
	const char *type; /* of JSON Schema, or "*" for any; a final "?" allows null too */
	const char *description;
	bool optional;		   /* not in every answer */
	const char *const *values; /* the only strings there can be, NULLs left out; NULL: any */
	size_t value_count;
};

struct answer_schema {
	const char *name; /* in components/schemas */
	const char *description;
	const struct answer_field *fields;
	size_t count;
	bool message;		/* of a protocol; some refusals have its shape, too */
	const char *media_type; /* when it is no JSON: then it has no fields. NULL: it is */
};

#define DESCRIBE_ERRORS_MAX 8

struct body_schema {
	const char *name; /* in components/schemas */
	enum request_body body;
	bool required;
};

/* What one route takes and answers when all is well, and which errors it knows beside those that every route has. */
struct described_answer {
	const char *method, *pattern;
	const struct body_schema *body; /* NULL: none. One that has a body needs a sandbox for it */
	int status;
	const struct answer_schema *schema;
	bool streams;				     /* also as server-sent events, when the client accepts them */
	enum error_case errors[DESCRIBE_ERRORS_MAX]; /* up to the first ERROR_NONE */
	unsigned parameters;			     /* of its query: bits of enum find_route; 0: none */
};

extern const struct described_answer described_answers[];
extern const size_t described_answer_count;

#endif
