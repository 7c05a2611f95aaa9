/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of tokens: a file of fixed size that `weir token` changes in place and the api maps, so that a token is known, and
 * a revoked one unknown, with the next request and without anybody being told. Only digests are in it. Times of last use are
 * in a second file, the only thing about tokens that the api can write.
 *
 * A slot is written whole before its state says so. A reader copies a slot and then looks at the state again: every change of
 * a slot changes that word, so a copy is of one token or is thrown away. Slots of revoked and expired tokens are used again
 * when no free one is left, the longest dead first. One writer at a time. Pure: files are cli/tokenfile.c's.
 */
#ifndef WEIR_CORE_TOKENS_H
#define WEIR_CORE_TOKENS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/limits.h"
#include "core/token.h"

enum token_scope { SCOPE_PROJECT = 1, SCOPE_AGENT = 2, SCOPE_OPERATOR = 4, SCOPE_REVIEWER = 8, SCOPE_ALL = 15 };

#define TOKEN_SCOPES 4
extern const struct token_scope_name {
	const char *name; /* "project" */
	unsigned bit;
} token_scope_names[TOKEN_SCOPES];

enum token_state { TOKEN_FREE, TOKEN_ACTIVE, TOKEN_REVOKED };

#define TOKEN_PROJECT_MAX 64
#define TOKEN_AGENT_MAX 64
#define TOKEN_NOTE_MAX 48
#define TOKEN_ID_MAX 16 /* "tok-xxxxxxxx" */

/* Slots are of 256 bytes and aligned like it: none crosses a page or a disk's sector, so none is written to disk by halves. */
struct token_slot {
	_Atomic uint32_t word; /* enum token_state in the low two bits, above them a count of changes */
	uint32_t scopes;       /* enum token_scope, never none */
	uint8_t sha256[TOKEN_DIGEST_LEN];
	char id[TOKEN_ID_MAX];
	char project[TOKEN_PROJECT_MAX];
	char agent[TOKEN_AGENT_MAX];		 /* scope agent: which */
	char note[TOKEN_NOTE_MAX];		 /* the operator's own words */
	int64_t created_s, expires_s, revoked_s; /* Unix time; 0: never, not */
};

#define TOKENS_MAGIC 0x4b4f5457u
#define TOKENS_VERSION 1u
struct tokens_head {
	uint32_t magic, version;
	_Atomic uint32_t used; /* slots from here on were never used */
	uint32_t reserved[61];
};
struct tokens_file {
	struct tokens_head head;
	struct token_slot slots[LIMIT_TOKENS];
};
_Static_assert(sizeof(struct token_slot) == 256 && offsetof(struct tokens_file, slots) == 256, "slots are aligned");

/* The other file: one Unix time a slot, 0 for never. */
struct tokens_used {
	_Atomic int64_t last_s[LIMIT_TOKENS];
};

struct tokens {
	const struct tokens_file *file;
	struct tokens_used *used;
};

/* Who a token speaks for. */
struct identity {
	char project[TOKEN_PROJECT_MAX];
	char agent[TOKEN_AGENT_MAX];
	char id[TOKEN_ID_MAX]; /* its public one: [A-Za-z0-9-] */
	unsigned scopes;
};

/*
 * Looks a digest up, comparing with every active slot in constant time, and notes the use. `now_s`: Unix time, for the expiry.
 * Returns false for one that is unknown, revoked or expired; *ret is then untouched.
 */
bool tokens_find(const struct tokens *t, const uint8_t sha256[TOKEN_DIGEST_LEN], int64_t now_s, struct identity *ret);

/*
 * Puts a token into a free slot, or into one that is dead. `slot` is whole but for its word. Returns its index, or -ENOSPC
 * when all are active.
 */
int tokens_add(struct tokens_file *f, struct tokens_used *used, const struct token_slot *slot, int64_t now_s);

/* Index of the slot with that id, -ENOENT. */
int tokens_by_id(const struct tokens_file *f, const char *id);

void tokens_revoke(struct tokens_file *f, int index, int64_t now_s);

/* Slots that may hold something: the loop bound for whoever lists them. Never over LIMIT_TOKENS. */
unsigned tokens_count(const struct tokens_file *f);

/* How many are valid. */
unsigned tokens_active(const struct tokens_file *f, int64_t now_s);

enum token_state token_slot_state(const struct token_slot *slot);

/* Whether a slot is active and not expired. */
bool token_slot_valid(const struct token_slot *slot, int64_t now_s);

/* [a-z0-9] and then [a-z0-9-], less than 64 bytes. Of an agent's name too. */
bool token_project_ok(const char *project);

/*
 * What the host's own records are listed under: of attachments (supervisor/attached.h), of `weir run` and of `weir exec`. They
 * are for reviewers alone: no token is of these projects, whatever the table says.
 */
#define PROJECT_ATTACHED "attached"
#define PROJECT_CLI "cli"
#define PROJECT_EXEC "exec"
bool token_project_reserved(const char *project);

/* The operator's words: UTF-8 without control characters, less than TOKEN_NOTE_MAX bytes. */
bool token_note_ok(const char *note);

/*
 * When a token is to expire: a time from now ("45s", "90m", "12h", "30d"), a day ("2027-01-31": its beginning, UTC) or "never".
 * Returns 0 and the Unix time (0: never), -EINVAL for another form, -ERANGE for the past or over a hundred years.
 */
int token_expiry_parse(const char *text, int64_t now_s, int64_t *ret_s);

#endif
