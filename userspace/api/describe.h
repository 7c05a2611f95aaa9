/* SPDX-License-Identifier: Apache-2.0 */
/* The service's description of itself, made from the tables that it works by. Pure. */
#ifndef WEIR_API_DESCRIBE_H
#define WEIR_API_DESCRIBE_H

#include <jansson.h>
#include <stddef.h>

/* A route as the route table has it; all borrowed. */
struct described_route {
	const char *method, *pattern, *summary;
	unsigned scopes; /* enum token_scope, any of which will do; 0: no token needed */
	size_t max_body; /* bytes; 0: it takes none */
};

/* {"limits": [{"name", "value", "unit", "why"}]} of the whole limits table. New reference, NULL when out of memory. */
json_t *describe_limits(void);

/*
 * An OpenAPI 3.1 document of these routes: their parameters, bodies, answers, and every error with its status. What a route
 * answers is looked up by method and pattern; of one that is not known there, the document says no more than that it answers.
 * New reference, NULL when out of memory.
 */
json_t *describe_openapi(const struct described_route *routes, size_t count);

#endif
