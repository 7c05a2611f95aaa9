/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who gets a place where there is not room for all. A list that is cut by age or by number is one that a flood empties of
 * everything else; here each group has the same share, within it each part, within that each kind, and what one does not need
 * goes to the others. Pure.
 */
#ifndef WEIR_REPORT_PLACES_H
#define WEIR_REPORT_PLACES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct places_row {
	const char *group; /* a project; borrowed */
	uint64_t part;	   /* of it: a run */
	uint64_t kind;	   /* the lower goes first when there is one place */
	uint64_t count;	   /* then the higher */
	uint64_t order;	   /* then the lower; no two rows have the same */
	const char *key;   /* the caller's, as is `row`; borrowed */
	json_t *row;
	size_t rank; /* places_sort()'s own */
};

/* Into the order in which they get a place: the first n are those to keep, whatever n is. */
void places_sort(struct places_row *rows, size_t count);

#endif
