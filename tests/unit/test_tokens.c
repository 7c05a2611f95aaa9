/* SPDX-License-Identifier: Apache-2.0 */
/* The table of tokens: who is found, which slot is used again, what a torn write and a change under a reader's hands leave. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/tokens.h"

#define NOW 1800000000ll

struct table {
	struct tokens_file file;
	struct tokens_used used;
	struct tokens tokens;
};

static int set_up(void **state)
{
	struct table *t = calloc(1, sizeof *t);

	if (!t)
		return -1;
	t->tokens = (struct tokens){&t->file, &t->used};
	*state = t;
	return 0;
}

static int tear_down(void **state)
{
	free(*state);
	return 0;
}

/* Token number n: its digest, and an id of its own. */
static void digest(uint8_t ret[TOKEN_DIGEST_LEN], unsigned n)
{
	char text[32];

	token_digest(text, (size_t)snprintf(text, sizeof text, "token %u", n), ret);
}

static struct token_slot numbered(unsigned n)
{
	struct token_slot s = {.scopes = SCOPE_PROJECT, .created_s = NOW};

	digest(s.sha256, n);
	snprintf(s.id, sizeof s.id, "tok-%08u", n);
	snprintf(s.project, sizeof s.project, "p%u", n);
	return s;
}

static int add(struct table *t, unsigned n, int64_t expires_s, int64_t now_s)
{
	struct token_slot s = numbered(n);

	s.expires_s = expires_s;
	return tokens_add(&t->file, &t->used, &s, now_s);
}

static bool find(struct table *t, unsigned n, int64_t now_s, struct identity *who)
{
	uint8_t d[TOKEN_DIGEST_LEN];
	struct identity dummy;

	digest(d, n);
	return tokens_find(&t->tokens, d, now_s, who ? who : &dummy);
}

static void found_and_not(void **state)
{
	struct table *t = *state;
	struct token_slot s = numbered(2);
	struct identity who = {.project = "untouched"};

	assert_false(find(t, 1, NOW, &who)); /* an empty table */
	assert_int_equal(add(t, 1, 0, NOW), 0);
	s.scopes = SCOPE_PROJECT | SCOPE_AGENT;
	strcpy(s.agent, "helper");
	assert_int_equal(tokens_add(&t->file, &t->used, &s, NOW), 1);
	assert_false(find(t, 3, NOW, &who));
	assert_string_equal(who.project, "untouched");
	assert_int_equal(t->used.last_s[0], 0);
	assert_true(find(t, 1, NOW + 5, &who));
	assert_string_equal(who.project, "p1");
	assert_string_equal(who.agent, "");
	assert_int_equal(who.scopes, SCOPE_PROJECT);
	assert_int_equal(t->used.last_s[0], NOW + 5);
	assert_int_equal(t->used.last_s[1], 0);
	assert_true(find(t, 2, NOW + 6, &who));
	assert_string_equal(who.agent, "helper");
	assert_int_equal(who.scopes, SCOPE_PROJECT | SCOPE_AGENT);
	assert_int_equal(t->used.last_s[1], NOW + 6);
}

/* One bit of 256 makes another token. */
static void every_bit_counts(void **state)
{
	struct table *t = *state;
	uint8_t d[TOKEN_DIGEST_LEN];
	struct identity who;

	add(t, 1, 0, NOW);
	digest(d, 1);
	for (unsigned bit = 0; bit < 8 * TOKEN_DIGEST_LEN; bit++) {
		d[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_false(tokens_find(&t->tokens, d, NOW, &who));
		d[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_true(tokens_find(&t->tokens, d, NOW, &who));
}

/* The last moment and the first after it. */
static void expiry(void **state)
{
	struct table *t = *state;

	add(t, 1, NOW + 60, NOW);
	assert_true(find(t, 1, NOW + 59, NULL));
	assert_false(find(t, 1, NOW + 60, NULL));
	assert_int_equal(t->used.last_s[0], NOW + 59); /* a refused one is no use */
	assert_true(token_slot_valid(&t->file.slots[0], NOW + 59));
	assert_false(token_slot_valid(&t->file.slots[0], NOW + 60));
}

static void revoked(void **state)
{
	struct table *t = *state;

	add(t, 1, 0, NOW);
	add(t, 2, 0, NOW);
	assert_int_equal(tokens_by_id(&t->file, "tok-00000002"), 1);
	assert_int_equal(tokens_by_id(&t->file, "tok-00000003"), -ENOENT);
	assert_int_equal(tokens_by_id(&t->file, ""), -ENOENT);
	tokens_revoke(&t->file, 0, NOW + 1);
	assert_false(find(t, 1, NOW, NULL));
	assert_true(find(t, 2, NOW, NULL));
	assert_int_equal(token_slot_state(&t->file.slots[0]), TOKEN_REVOKED);
	assert_int_equal(tokens_by_id(&t->file, "tok-00000001"), 0); /* still listed */
}

static void full_table(void **state)
{
	struct table *t = *state;

	for (unsigned n = 0; n < LIMIT_TOKENS; n++)
		assert_int_equal(add(t, n, 0, NOW), (int)n);
	assert_int_equal(add(t, LIMIT_TOKENS, 0, NOW), -ENOSPC);
	assert_int_equal(tokens_count(&t->file), LIMIT_TOKENS);
	assert_true(find(t, 0, NOW, NULL));
	assert_true(find(t, LIMIT_TOKENS - 1, NOW, NULL));
	/* Of the dead, the longest dead goes first: revoked at +30, expired at +10, revoked at +20 but expired at +5. */
	tokens_revoke(&t->file, 7, NOW + 30);
	t->file.slots[8].expires_s = NOW + 10;
	tokens_revoke(&t->file, 9, NOW + 20);
	t->file.slots[9].expires_s = NOW + 5;
	assert_true(find(t, 11, NOW + 40, NULL));
	assert_int_equal(add(t, 5001, 0, NOW + 40), 9);
	assert_int_equal(add(t, 5002, 0, NOW + 40), 8);
	assert_int_equal(add(t, 5003, 0, NOW + 40), 7);
	assert_int_equal(add(t, 5004, 0, NOW + 40), -ENOSPC);
	assert_true(find(t, 5002, NOW + 40, NULL));
	assert_false(find(t, 8, NOW, NULL));
	assert_false(find(t, 9, NOW, NULL));
	/* Whose slot it was, its times of use are not the new one's. */
	assert_int_equal(t->used.last_s[7], 0);
}

/* While there is room, the dead stay listed. */
static void dead_stay_while_there_is_room(void **state)
{
	struct table *t = *state;

	add(t, 1, 0, NOW);
	tokens_revoke(&t->file, 0, NOW);
	assert_int_equal(add(t, 2, 0, NOW + 1), 1);
	assert_int_equal(tokens_by_id(&t->file, "tok-00000001"), 0);
}

/* Whoever died between writing a slot and saying so leaves a free slot: nobody's token, and the next one's place. */
static void torn_write(void **state)
{
	struct table *t = *state;
	struct token_slot s = numbered(1);

	t->file.head.used = 1;
	memcpy((char *)&t->file.slots[0] + sizeof s.word, (char *)&s + sizeof s.word, sizeof s - sizeof s.word);
	assert_false(find(t, 1, NOW, NULL));
	assert_int_equal(tokens_by_id(&t->file, "tok-00000001"), -ENOENT);
	assert_int_equal(add(t, 2, 0, NOW), 0);
	assert_true(find(t, 2, NOW, NULL));
	assert_false(find(t, 1, NOW, NULL));
}

/* Every change of a slot changes its word: a reader that has copied half of one and half of another can tell. */
static void words_never_repeat(void **state)
{
	struct table *t = *state;
	uint32_t before, after;

	add(t, 1, NOW + 1, NOW);
	for (unsigned n = 1; n < LIMIT_TOKENS; n++)
		add(t, 10000 + n, 0, NOW);
	before = t->file.slots[0].word;
	assert_int_equal(add(t, 2, 0, NOW + 2), 0);
	after = t->file.slots[0].word;
	assert_int_equal(token_slot_state(&t->file.slots[0]), TOKEN_ACTIVE);
	assert_int_not_equal(before, after);
}

/* Two tokens take turns in a slot while another thread looks for both: neither is ever taken for the other. */
struct turns {
	struct table *t;
	atomic_bool stop;
	atomic_uint found;
	unsigned mistaken;
};

static void *look(void *ctx)
{
	struct turns *turns = ctx;

	while (!atomic_load(&turns->stop))
		for (unsigned n = 1; n <= 2; n++) {
			struct identity who;
			uint8_t d[TOKEN_DIGEST_LEN];

			memset(d, (int)n, sizeof d);
			if (tokens_find(&turns->t->tokens, d, NOW, &who)) {
				turns->found++;
				turns->mistaken += who.project[1] != '0' + (char)n || who.agent[1] != '0' + (char)n;
			}
		}
	return NULL;
}

static void changed_under_a_reader(void **state)
{
	struct table *t = *state;
	struct turns turns = {.t = t};
	struct token_slot s[2];
	pthread_t thread;

	for (unsigned n = 1; n <= 2; n++) {
		s[n - 1] = numbered(n);
		memset(s[n - 1].sha256, (int)n, TOKEN_DIGEST_LEN);
		memcpy(s[n - 1].agent, s[n - 1].project, sizeof s[n - 1].agent);
	}
	assert_int_equal(pthread_create(&thread, NULL, look, &turns), 0);
	for (unsigned i = 0; i < 2000000 || !turns.found; i++) {
		assert_int_equal(tokens_add(&t->file, &t->used, &s[i % 2], NOW), 0);
		/* As a writer that died leaves it: the first one to be used again. */
		atomic_fetch_and(&t->file.slots[0].word, ~3u);
	}
	atomic_store(&turns.stop, true);
	pthread_join(thread, NULL);
	assert_int_equal(turns.mistaken, 0);
}

/* What a damaged file may hold opens nothing and leads nowhere. */
static void damaged(void **state)
{
	struct table *t = *state;
	struct identity who;

	add(t, 1, 0, NOW);
	t->file.head.used = UINT32_MAX;
	assert_int_equal(tokens_count(&t->file), LIMIT_TOKENS);
	assert_false(find(t, 3, NOW, NULL));
	memset(t->file.slots[0].project, 'x', sizeof t->file.slots[0].project); /* without an end */
	assert_false(find(t, 1, NOW, &who));
	strcpy(t->file.slots[0].project, "../p");
	assert_false(find(t, 1, NOW, &who));
	memset(t->file.slots[0].project, 0, sizeof t->file.slots[0].project);
	strcpy(t->file.slots[0].project, "p1");
	t->file.slots[0].scopes = 0;
	assert_false(find(t, 1, NOW, &who));
	t->file.slots[0].scopes = ~0u;
	assert_true(find(t, 1, NOW, &who));
	assert_int_equal(who.scopes, SCOPE_ALL);
	t->file.slots[0].word |= 3; /* no state */
	assert_int_equal(token_slot_state(&t->file.slots[0]), TOKEN_FREE);
	assert_false(find(t, 1, NOW, &who));
}

static void projects(void **state)
{
	static const char *const good[] = {
	    "a", "0", "demo", "a-b-c-", "9lives", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
	static const char *const bad[] = {
	    "",	   "-a",  "A",	      "a_b", "a.b",
	    "a b", "a/b", "\xc3\xa9", "a\n", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		if (!token_project_ok(good[i]))
			fail_msg("\"%s\" is a project", good[i]);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		if (token_project_ok(bad[i]))
			fail_msg("\"%s\" is no project", bad[i]);
}

static void notes(void **state)
{
	char text[TOKEN_NOTE_MAX + 1];

	(void)state;
	assert_true(token_note_ok(""));
	assert_true(token_note_ok("the dashboard's, \xe2\x80\x9cour\xe2\x80\x9d own"));
	assert_false(token_note_ok("two\nlines"));
	assert_false(token_note_ok("\033[31m"));
	assert_false(token_note_ok("\x7f"));
	assert_false(token_note_ok("\xc2\x9b"
				   "31m")); /* CSI as one character */
	assert_true(token_note_ok("\xc2\xa0"));
	assert_false(token_note_ok("\xff"));
	assert_false(token_note_ok("cut \xe2\x80"));
	memset(text, 'x', sizeof text);
	text[TOKEN_NOTE_MAX - 1] = 0;
	assert_true(token_note_ok(text));
	text[TOKEN_NOTE_MAX - 1] = 'x';
	text[TOKEN_NOTE_MAX] = 0;
	assert_false(token_note_ok(text));
}

static void expiries(void **state)
{
	static const struct {
		const char *text;
		int rc;
		int64_t at;
	} rows[] = {
	    {"never", 0, 0},
	    {"45s", 0, NOW + 45},
	    {"90m", 0, NOW + 5400},
	    {"12h", 0, NOW + 43200},
	    {"30d", 0, NOW + 2592000},
	    {"36600d", 0, NOW + 36600ll * 86400}, /* a hundred years */
	    {"36601d", -ERANGE, 0},
	    {"99999999999999999999d", -ERANGE, 0},
	    {"0d", -ERANGE, 0},
	    {"2027-01-31", 0, 1801353600},
	    {"2028-02-29", 0, 1835395200},
	    {"2027-02-29", -EINVAL, 0},
	    {"2027-13-01", -EINVAL, 0},
	    {"2027-00-01", -EINVAL, 0},
	    {"2027-01-00", -EINVAL, 0},
	    {"2026-01-31", -ERANGE, 0}, /* past */
	    {"9999-01-01", -ERANGE, 0},
	    {"2027-1-31", -EINVAL, 0},
	    {"2027-01-31T00:00", -EINVAL, 0},
	    {"2027-01", -EINVAL, 0},
	    {"-5d", -EINVAL, 0},
	    {"", -EINVAL, 0},
	    {"d", -EINVAL, 0},
	    {"30", -EINVAL, 0},
	    {"30w", -EINVAL, 0},
	    {"30d ", -EINVAL, 0},
	    {"1.5h", -EINVAL, 0},
	    {"Never", -EINVAL, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		int64_t at = -1;
		int rc = token_expiry_parse(rows[i].text, NOW, &at);

		if (rc != rows[i].rc || at != (rc == 0 ? rows[i].at : -1))
			fail_msg("\"%s\": %d, %lld", rows[i].text, rc, (long long)at);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(found_and_not, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(every_bit_counts, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(expiry, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(revoked, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(full_table, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(dead_stay_while_there_is_room, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(torn_write, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(words_never_repeat, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(changed_under_a_reader, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(damaged, set_up, tear_down),
	    cmocka_unit_test(projects),
	    cmocka_unit_test(notes),
	    cmocka_unit_test(expiries),
	};

	return cmocka_run_group_tests_name("tokens", tests, NULL, NULL);
}
