/* SPDX-License-Identifier: Apache-2.0 */
/* Making a token: shared by `weir token mint` and `weir agent env`. */
#ifndef WEIR_CLI_TOKEN_MINT_H
#define WEIR_CLI_TOKEN_MINT_H

#include <stdint.h>

#include "cli/tokenfile.h"
#include "core/base64.h"
#include "core/err.h"

#define TOKEN_PREFIX "weir_"
#define TOKEN_SECRET_LEN 32
#define TOKEN_MINTED_LEN (sizeof TOKEN_PREFIX + BASE64_LEN(TOKEN_SECRET_LEN) - 1) /* the padding is left out */

struct token_wish {
	unsigned scopes;	     /* enum token_scope; an agent's has SCOPE_PROJECT too */
	const char *project, *agent; /* token_project_ok(); agent NULL: none */
	const char *note;	     /* NULL: none */
	int64_t now_s, expires_s;    /* Unix time; 0: never */
};

/*
 * Puts a new token into the table (opened with TOKENFILE_CHANGE) and on the disk. Returns its index; its text is in `ret` and
 * nowhere else. Who can't hand it out calls token_unmint(): nobody knows it, so it must not stay.
 */
int token_mint(struct tokenfile *t, const struct token_wish *wish, char ret[TOKEN_MINTED_LEN], struct err *e);
void token_unmint(struct tokenfile *t, int index, int64_t now_s);

/* Revokes what is active of that agent but the token at index `keep` (-1: all). Returns how many; not yet on the disk. */
unsigned token_revoke_agents(struct tokens_file *f, const char *project, const char *agent, int keep, int64_t now_s);

/* How many tokens of that agent are valid. NULL: there is no table. */
unsigned token_count_agents(const struct tokens_file *f, const char *project, const char *agent, int64_t now_s);

#endif
