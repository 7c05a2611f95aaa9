/* SPDX-License-Identifier: Apache-2.0 */
#include "core/tokens.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "core/utf8.h"

#define STATE_MASK 3u
#define CHANGE 4u /* one, in the count of changes */
#define DAY_S 86400
#define EXPIRY_MAX_S (100ll * 366 * DAY_S)

const struct token_scope_name token_scope_names[TOKEN_SCOPES] = {
    {"project", SCOPE_PROJECT}, {"agent", SCOPE_AGENT}, {"operator", SCOPE_OPERATOR}, {"reviewer", SCOPE_REVIEWER}};

/* ---- one slot ---- */

static uint32_t word_of(const struct token_slot *slot)
{
	return atomic_load_explicit(&slot->word, memory_order_acquire);
}

static void set_state(struct token_slot *slot, enum token_state state)
{
	uint32_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);

	atomic_store_explicit(&slot->word, ((word & ~STATE_MASK) + CHANGE) | state, memory_order_release);
	/* What is written next is not seen before this is. */
	atomic_thread_fence(memory_order_seq_cst);
}

enum token_state token_slot_state(const struct token_slot *slot)
{
	uint32_t state = word_of(slot) & STATE_MASK;

	return state == TOKEN_ACTIVE || state == TOKEN_REVOKED ? (enum token_state)state : TOKEN_FREE;
}

static bool expired(const struct token_slot *slot, int64_t now_s)
{
	return slot->expires_s != 0 && slot->expires_s <= now_s;
}

bool token_slot_valid(const struct token_slot *slot, int64_t now_s)
{
	return token_slot_state(slot) == TOKEN_ACTIVE && !expired(slot, now_s);
}

/* Since when it is good for nothing: whichever came first. */
static int64_t dead_since(const struct token_slot *slot)
{
	if (token_slot_state(slot) != TOKEN_REVOKED)
		return slot->expires_s;
	return slot->expires_s && slot->expires_s < slot->revoked_s ? slot->expires_s : slot->revoked_s;
}

unsigned tokens_count(const struct tokens_file *f)
{
	uint32_t used = atomic_load_explicit(&f->head.used, memory_order_acquire);

	return used < LIMIT_TOKENS ? used : LIMIT_TOKENS;
}

unsigned tokens_active(const struct tokens_file *f, int64_t now_s)
{
	unsigned count = tokens_count(f), active = 0;

	for (unsigned i = 0; i < count; i++)
		active += token_slot_valid(&f->slots[i], now_s);
	return active;
}

/* ---- looking up ---- */

/* Zero when both are the same; takes the same time whatever they are. */
static uint64_t difference(const uint8_t a[TOKEN_DIGEST_LEN], const uint8_t b[TOKEN_DIGEST_LEN])
{
	uint64_t x[TOKEN_DIGEST_LEN / 8], y[TOKEN_DIGEST_LEN / 8], d = 0;

	memcpy(x, a, sizeof x);
	memcpy(y, b, sizeof y);
	for (size_t i = 0; i < TOKEN_DIGEST_LEN / 8; i++)
		d |= x[i] ^ y[i];
	return d;
}

/* Index of the active slot with that digest, or -1: without a branch that depends on a digest. */
static int64_t search(const struct tokens_file *f, const uint8_t sha256[TOKEN_DIGEST_LEN])
{
	unsigned count = tokens_count(f);
	int64_t found = -1;

	for (unsigned i = 0; i < count; i++) {
		const struct token_slot *slot = &f->slots[i];
		uint64_t d = difference(slot->sha256, sha256) | ((word_of(slot) & STATE_MASK) ^ TOKEN_ACTIVE);
		/* All ones when d is zero, else zero. */
		uint64_t same = ((d | (0 - d)) >> 63) - 1;

		found = (int64_t)(((uint64_t)found & ~same) | (i & same));
	}
	return found;
}

/* Records name it: a token without one of its own opens nothing. */
static bool id_ok(const char id[TOKEN_ID_MAX])
{
	static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-";

	return !id[TOKEN_ID_MAX - 1] && id[0] && !id[strspn(id, set)];
}

bool tokens_find(const struct tokens *t, const uint8_t sha256[TOKEN_DIGEST_LEN], int64_t now_s, struct identity *ret)
{
	int64_t at = search(t->file, sha256);
	const struct token_slot *slot;
	struct identity who = {0};
	struct token_slot copy;
	uint32_t word;

	if (at < 0)
		return false;
	slot = &t->file->slots[at];
	word = word_of(slot);
	memcpy((char *)&copy + sizeof copy.word, (const char *)slot + sizeof copy.word, sizeof copy - sizeof copy.word);
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&slot->word, memory_order_relaxed) != word || (word & STATE_MASK) != TOKEN_ACTIVE ||
	    difference(copy.sha256, sha256) != 0 || expired(&copy, now_s))
		return false; /* revoked, expired, or its slot was given to another while we looked */
	if (copy.project[sizeof copy.project - 1] || copy.agent[sizeof copy.agent - 1] || !id_ok(copy.id))
		return false;
	memcpy(who.project, copy.project, sizeof who.project);
	memcpy(who.agent, copy.agent, sizeof who.agent);
	memcpy(who.id, copy.id, sizeof who.id);
	who.scopes = copy.scopes & SCOPE_ALL;
	if (!token_project_ok(who.project) || token_project_reserved(who.project) || !who.scopes)
		return false;
	atomic_store_explicit(&t->used->last_s[at], now_s, memory_order_relaxed);
	*ret = who;
	return true;
}

/* ---- changing ---- */

static int pick(struct tokens_file *f, int64_t now_s)
{
	unsigned count = tokens_count(f);
	int oldest = -ENOSPC;

	for (unsigned i = 0; i < count; i++)
		if (token_slot_state(&f->slots[i]) == TOKEN_FREE)
			return (int)i; /* one whose writer died */
	if (count < LIMIT_TOKENS) {
		atomic_store_explicit(&f->head.used, count + 1, memory_order_release);
		return (int)count;
	}
	for (unsigned i = 0; i < count; i++)
		if (!token_slot_valid(&f->slots[i], now_s) &&
		    (oldest < 0 || dead_since(&f->slots[i]) < dead_since(&f->slots[oldest])))
			oldest = (int)i;
	return oldest;
}

int tokens_add(struct tokens_file *f, struct tokens_used *used, const struct token_slot *slot, int64_t now_s)
{
	int index = pick(f, now_s);
	struct token_slot *place;

	if (index < 0)
		return index;
	place = &f->slots[index];
	set_state(place, TOKEN_FREE);
	memcpy((char *)place + sizeof place->word, (const char *)slot + sizeof slot->word, sizeof *slot - sizeof slot->word);
	atomic_store_explicit(&used->last_s[index], 0, memory_order_relaxed);
	set_state(place, TOKEN_ACTIVE);
	return index;
}

int tokens_by_id(const struct tokens_file *f, const char *id)
{
	unsigned count = tokens_count(f);

	for (unsigned i = 0; i < count; i++)
		if (token_slot_state(&f->slots[i]) != TOKEN_FREE && !strncmp(f->slots[i].id, id, sizeof f->slots[i].id))
			return (int)i;
	return -ENOENT;
}

void tokens_revoke(struct tokens_file *f, int index, int64_t now_s)
{
	struct token_slot *slot = &f->slots[index];

	/* No reader looks at the time, so it may be there before the state says that it means something. */
	slot->revoked_s = now_s;
	set_state(slot, TOKEN_REVOKED);
}

/* ---- what may stand in it ---- */

bool token_project_ok(const char *project)
{
	size_t n = strspn(project, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return n > 0 && n < TOKEN_PROJECT_MAX && !project[n] && project[0] != '-';
}

bool token_project_reserved(const char *project)
{
	static const char *const hosts[] = {PROJECT_ATTACHED, PROJECT_CLI, PROJECT_EXEC};

	for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++)
		if (!strcmp(project, hosts[i]))
			return true;
	return false;
}

bool token_note_ok(const char *note)
{
	size_t len = strlen(note), n;
	bool valid;

	if (len >= TOKEN_NOTE_MAX)
		return false;
	for (size_t i = 0; i < len; i += n) {
		unsigned char c = (unsigned char)note[i];

		n = utf8_next(note + i, len - i, &valid);
		/* Control characters of both sets: a terminal obeys them. */
		if (!valid || c < 0x20 || c == 0x7f || (c == 0xc2 && (unsigned char)note[i + 1] < 0xa0))
			return false;
	}
	return true;
}

static int parse_day(const char *text, int64_t *ret_s)
{
	int part[3] = {0};
	struct tm tm = {0}, same;
	time_t t;

	for (int i = 0; i < 10; i++) {
		bool dash = i == 4 || i == 7;

		if (dash ? text[i] != '-' : text[i] < '0' || text[i] > '9')
			return -EINVAL; /* the end of a shorter text too */
		if (!dash)
			part[i < 4 ? 0 : i < 7 ? 1 : 2] = part[i < 4 ? 0 : i < 7 ? 1 : 2] * 10 + (text[i] - '0');
	}
	if (text[10])
		return -EINVAL;
	tm.tm_year = part[0] - 1900;
	tm.tm_mon = part[1] - 1;
	tm.tm_mday = part[2];
	same = tm;
	t = timegm(&tm);
	/* The 31st of February is made the 3rd of March, not refused. */
	if (tm.tm_mday != same.tm_mday || tm.tm_mon != same.tm_mon || tm.tm_year != same.tm_year)
		return -EINVAL;
	*ret_s = t;
	return 0;
}

static int parse_span(const char *text, int64_t now_s, int64_t *ret_s)
{
	static const struct {
		char unit;
		int64_t seconds;
	} units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', DAY_S}};
	size_t digits = strspn(text, "0123456789");
	int64_t n = 0;

	if (!digits || !text[digits] || text[digits + 1])
		return -EINVAL;
	for (size_t i = 0; i < digits; i++)
		if ((n = n * 10 + (text[i] - '0')) > EXPIRY_MAX_S)
			n = EXPIRY_MAX_S + 1; /* too far whatever follows */
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
		if (units[i].unit == text[digits]) {
			*ret_s = n > EXPIRY_MAX_S / units[i].seconds ? INT64_MAX : now_s + n * units[i].seconds;
			return 0;
		}
	return -EINVAL;
}

int token_expiry_parse(const char *text, int64_t now_s, int64_t *ret_s)
{
	int64_t t = 0;
	int rc;

	if (!strcmp(text, "never")) {
		*ret_s = 0;
		return 0;
	}
	rc = strchr(text, '-') ? parse_day(text, &t) : parse_span(text, now_s, &t);
	if (rc < 0)
		return rc;
	if (t <= now_s || t > now_s + EXPIRY_MAX_S)
		return -ERANGE;
	*ret_s = t;
	return 0;
}
