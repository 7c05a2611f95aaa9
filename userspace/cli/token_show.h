/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens as people and machines read them. */
#ifndef WEIR_CLI_TOKEN_SHOW_H
#define WEIR_CLI_TOKEN_SHOW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/tokenfile.h"
#include "core/err.h"

#define TOKEN_TIME_LEN 32
#define TOKEN_SCOPES_LEN 64

/* "2026-11-29T12:00:00Z", or "never" for 0. Returns `buf`. */
const char *token_time_text(char buf[TOKEN_TIME_LEN], int64_t t);

/* "project,agent". Returns `buf`. */
const char *token_scopes_text(char buf[TOKEN_SCOPES_LEN], unsigned scopes);

/* What is known of a token but for its use and its end: a new object. */
json_t *token_json(const struct token_slot *slot);

/* Takes the object; prints it to standard output. */
int token_print_json(json_t *j, struct err *e);

/*
 * Prints the table of state directory `dir`, oldest token first; of one project when `project` is not NULL. `table` may be an
 * empty one.
 */
int token_list(const struct tokenfile *table, const char *dir, const char *project, int64_t now_s, bool json, struct err *e);

/* Logs a warning of each token that opens nothing for the name of its project. Of a table that was written otherwise than here.
 */
void token_warn_of_reserved(const struct tokens_file *f, int64_t now_s);

#endif
