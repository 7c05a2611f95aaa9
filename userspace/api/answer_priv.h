/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What answers are put together from. Missing memory is remembered in the answer, so that only answer_end() has to be looked
 * at.
 */
#ifndef WEIR_API_ANSWER_PRIV_H
#define WEIR_API_ANSWER_PRIV_H

#include "api/answer.h"

/* JSON text as it is. */
void answer_add(struct answer_body *a, const char *literal);

/* A value in jansson's spelling. Takes the reference; NULL is a failure. */
void answer_add_json(struct answer_body *a, json_t *value, size_t flags);

/*
 * Bytes that are made into `kind` when they are read: ANSWER_TEXT (the inside of a string), ANSWER_BASE64, or ANSWER_RAW (as
 * they are). Borrowed.
 */
void answer_add_part(struct answer_body *a, int kind, const char *data, size_t len);

/* The newline that ends it. Returns 0, or -ENOMEM, and then it is empty. */
int answer_end(struct answer_body *a);

/* {"reason", "signal", "detail"}. New reference, NULL when out of memory. */
json_t *answer_termination(const struct tell_end *end);

/* What it used, tried and was refused, and its audit hash: {"usage", "processes", …}. As above. */
json_t *answer_account(const struct run_result *r);

#endif
