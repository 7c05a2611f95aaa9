/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/token_mint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define SECRET_TEXT (TOKEN_MINTED_LEN - sizeof TOKEN_PREFIX)

static int random_bytes(void *ret, size_t len, struct err *e)
{
	if (getrandom(ret, len, 0) != (ssize_t)len)
		return err_errno(e, errno, "", "get random bytes");
	return 0;
}

static int new_id(const struct tokens_file *f, char ret[TOKEN_ID_MAX], struct err *e)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	uint32_t r[8];

	do {
		int rc = random_bytes(r, sizeof r, e);

		if (rc < 0)
			return rc;
		memset(ret, 0, TOKEN_ID_MAX);
		memcpy(ret, "tok-", 4);
		for (size_t i = 0; i < sizeof r / sizeof r[0]; i++)
			ret[4 + i] = letters[r[i] % (sizeof letters - 1)];
	} while (tokens_by_id(f, ret) >= 0);
	return 0;
}

/* weir_ and 43 characters of base64url: 256 bits. */
static int new_secret(char ret[TOKEN_MINTED_LEN], struct err *e)
{
	char text[BASE64_LEN(TOKEN_SECRET_LEN)];
	unsigned char secret[TOKEN_SECRET_LEN];
	int rc = random_bytes(secret, sizeof secret, e);

	if (rc < 0)
		return rc;
	base64_encode(text, secret, sizeof secret);
	for (size_t i = 0; i < SECRET_TEXT; i++)
		text[i] = text[i] == '+' ? '-' : text[i] == '/' ? '_' : text[i];
	snprintf(ret, TOKEN_MINTED_LEN, TOKEN_PREFIX "%.*s", (int)SECRET_TEXT, text);
	explicit_bzero(secret, sizeof secret);
	return 0;
}

int token_mint(struct tokenfile *t, const struct token_wish *wish, char ret[TOKEN_MINTED_LEN], struct err *e)
{
	struct token_slot slot = {.scopes = wish->scopes, .created_s = wish->now_s, .expires_s = wish->expires_s};
	int rc = new_id(t->file, slot.id, e), index;

	if (rc == 0)
		rc = new_secret(ret, e);
	if (rc < 0)
		return rc;
	snprintf(slot.project, sizeof slot.project, "%s", wish->project);
	snprintf(slot.agent, sizeof slot.agent, "%s", wish->agent ? wish->agent : "");
	snprintf(slot.note, sizeof slot.note, "%s", wish->note ? wish->note : "");
	token_digest(ret, strlen(ret), slot.sha256);
	index = tokens_add(t->file, t->used, &slot, wish->now_s);
	if (index < 0)
		return err_set(e, ENOSPC, "",
			       "all %d tokens that a table holds are active: revoke one that is not needed any more "
			       "(`weir token ls` says when each was last used)",
			       LIMIT_TOKENS);
	rc = tokenfile_sync(t, e);
	if (rc < 0)
		token_unmint(t, index, wish->now_s);
	return rc < 0 ? rc : index;
}

void token_unmint(struct tokenfile *t, int index, int64_t now_s)
{
	tokens_revoke(t->file, index, now_s);
	tokenfile_sync(t, NULL);
}

/* Valid, and of that agent. */
static bool is_agents(const struct token_slot *slot, const char *project, const char *agent, int64_t now_s)
{
	return token_slot_valid(slot, now_s) && slot->scopes & SCOPE_AGENT &&
	       !strncmp(slot->project, project, sizeof slot->project) && !strncmp(slot->agent, agent, sizeof slot->agent);
}

unsigned token_revoke_agents(struct tokens_file *f, const char *project, const char *agent, int keep, int64_t now_s)
{
	unsigned revoked = 0;

	for (unsigned i = 0; i < tokens_count(f); i++)
		if ((int)i != keep && is_agents(&f->slots[i], project, agent, now_s)) {
			tokens_revoke(f, (int)i, now_s);
			revoked++;
		}
	return revoked;
}

unsigned token_count_agents(const struct tokens_file *f, const char *project, const char *agent, int64_t now_s)
{
	unsigned count = 0;

	for (unsigned i = 0; f && i < tokens_count(f); i++)
		count += is_agents(&f->slots[i], project, agent, now_s);
	return count;
}
