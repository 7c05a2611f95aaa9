/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records as server-sent events: what one follower is given at a time, as text. A batch is taken whole before the next one is
 * asked for, so that a slow reader makes nothing grow. Pure.
 *
 *   id: 812
 *   event: egress
 *   data: {"seq": 812, "type": "egress", …}
 */
#ifndef WEIR_API_FOLLOW_H
#define WEIR_API_FOLLOW_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/find_args.h"

struct follow {
	struct find_args args; /* find.after moves on with what was given */
	uint64_t named;	       /* the last id that was said */
	uint64_t before;       /* the cursor before the batch that is being read */
	uint64_t request;      /* runclient's name of what the auditor is asked; 0: nothing */
	uint64_t given_ns;     /* when the batch came that is being read */
	char *text;	       /* being read, NUL-terminated; NULL */
	size_t len, at;
	bool over; /* nothing comes after that */
};

/*
 * The auditor's answer to QUERY_FOLLOW: its records, as far as their types are asked for, follow the text that is there. Moves
 * the cursor on. Returns 0, -EPROTO when it is no such answer, or -ENOMEM.
 */
int follow_add(struct follow *f, const char *answer, size_t len);
/* A comment; with it the cursor, when it has moved past records that were not asked for. */
int follow_add_comment(struct follow *f);
/* The last event. Takes the reference. */
int follow_add_last(struct follow *f, const char *event, json_t *data);

/* Forgets what has not been begun to be read, and the cursor goes back to the last record that is read whole. */
void follow_cut(struct follow *f);

void follow_clear(struct follow *f);

#endif
