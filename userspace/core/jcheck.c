/* SPDX-License-Identifier: Apache-2.0 */
#include "core/jcheck.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/jtext.h"
#include "core/jtext_priv.h"
#include "core/limits.h"
#include "core/utf8.h"

/* Of an object with no more names than this, each is compared with each. */
#define FEW_NAMES 16
#define NAMES_FIRST 64

/* A member's name: where its opening quote is, and the hash of its text. */
struct name {
	uint32_t at, hash;
};

struct level {
	bool object;
	size_t first; /* of its names, in `names` */
};

struct scan {
	const char *start, *at, *end;
	unsigned depth, max_depth;
	struct level levels[JTEXT_DEPTH_MAX];
	struct name *names; /* of all objects that are open, the innermost one's last */
	size_t count, room;
	uint32_t *slots; /* of one object with many names: 0, or one more than a name's place in it */
	size_t slot_room;
	const char *why;
};

static int fail(struct scan *s, const char *why)
{
	s->why = why;
	return -EINVAL;
}

/* ---- names ---- */

#define PRIME ((UINT64_C(1) << 61) - 1)

/*
 * A name's bytes as the coefficients of a polynomial, at a place that is drawn at random: two given names of n bytes meet at no
 * more than n of 2^61 places. So nobody can write names that do.
 */
static uint64_t key;

static void draw_key(void)
{
	if (key)
		return;
	/* Without it the answers are as right, and only the time is not certain. */
	if (getrandom(&key, sizeof key, GRND_NONBLOCK) != (ssize_t)sizeof key)
		key = UINT64_C(0x9e3779b97f4a7c15);
	key = key % (PRIME - 512) + 512;
}

static uint64_t hash_byte(uint64_t h, unsigned char byte)
{
	unsigned __int128 product = (unsigned __int128)h * key;
	uint64_t sum = (uint64_t)(product & PRIME) + (uint64_t)(product >> 61) + byte + 1;

	sum = (sum & PRIME) + (sum >> 61);
	return sum;
}

static uint64_t hash_bytes(uint64_t h, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		h = hash_byte(h, (unsigned char)text[i]);
	return h;
}

static uint32_t hash_end(uint64_t h)
{
	if (h >= PRIME)
		h -= PRIME;
	return (uint32_t)((h ^ h >> 32) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

/* A name's text, byte by byte. */
struct reader {
	const char *at;
	char piece[4];
	size_t have, used;
};

static int next_byte(struct reader *r, const char *end)
{
	if (r->used == r->have) {
		if (*r->at == '"')
			return -1;
		r->have = jtext_next_plain(&r->at, end, r->piece);
		r->used = 0;
	}
	return (unsigned char)r->piece[r->used++];
}

static bool same_text(const struct scan *s, const struct name *a, const struct name *b)
{
	struct reader x = {.at = s->start + a->at + 1}, y = {.at = s->start + b->at + 1};
	int byte;

	do {
		byte = next_byte(&x, s->end);
		if (byte != next_byte(&y, s->end))
			return false;
	} while (byte >= 0);
	return true;
}

/* The first of few names that is there a second time, NULL when there is none. */
static const struct name *again_of_few(const struct scan *s, const struct name *names, size_t count)
{
	for (size_t i = 1; i < count; i++)
		for (size_t k = 0; k < i; k++)
			if (names[k].hash == names[i].hash && same_text(s, &names[k], &names[i]))
				return &names[i];
	return NULL;
}

/* The same of many. Returns 0 or -ENOMEM. */
static int again_of_many(struct scan *s, const struct name *names, size_t count, const struct name **ret)
{
	size_t room = FEW_NAMES * 2;

	while (room < count + count / 3)
		room *= 2;
	if (room > s->slot_room) {
		uint32_t *grown = reallocarray(s->slots, room, sizeof *grown);

		if (!grown)
			return -ENOMEM;
		s->slots = grown;
		s->slot_room = room;
	}
	memset(s->slots, 0, room * sizeof *s->slots);
	for (size_t i = 0; i < count; i++) {
		size_t at = names[i].hash & (room - 1);

		for (; s->slots[at]; at = (at + 1) & (room - 1)) {
			const struct name *other = &names[s->slots[at] - 1];

			if (other->hash != names[i].hash || !same_text(s, other, &names[i]))
				continue;
			*ret = &names[i];
			return 0;
		}
		s->slots[at] = (uint32_t)i + 1;
	}
	return 0;
}

static int add_name(struct scan *s, const char *at, uint64_t hash)
{
	if (s->count == s->room) {
		size_t room = s->room ? s->room * 2 : NAMES_FIRST;
		struct name *grown = reallocarray(s->names, room, sizeof *grown);

		if (!grown)
			return -ENOMEM;
		s->names = grown;
		s->room = room;
	}
	s->names[s->count++] = (struct name){.at = (uint32_t)(at - s->start), .hash = hash_end(hash)};
	return 0;
}

/* The innermost object has all its names. */
static int close_object(struct scan *s)
{
	size_t first = s->levels[s->depth - 1].first, count = s->count - first;
	const struct name *again = NULL;
	int r = 0;

	if (count > FEW_NAMES)
		r = again_of_many(s, s->names + first, count, &again);
	else if (count > 1)
		again = again_of_few(s, s->names + first, count);
	s->count = first;
	if (r < 0 || !again)
		return r;
	s->at = s->start + again->at;
	return fail(s, "a name twice in one object");
}

/* ---- values ---- */

static void skip_space(struct scan *s)
{
	while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
		s->at++;
}

/* At the backslash; moves behind the escape. */
static int take_escape(struct scan *s, char ret_piece[4], size_t *ret_len)
{
	const char *at = s->at + 1;
	uint32_t cp;
	int r;

	if (at >= s->end)
		return fail(s, "a string without an end");
	if (*at == 'u') {
		at++;
		r = jtext_unicode(&at, s->end, &cp);
		if (r < 0)
			return fail(s, r == -EILSEQ ? "a lone surrogate" : "an escape that JSON does not have");
		*ret_len = utf8_encode(cp, ret_piece);
	} else {
		ret_piece[0] = jtext_meanings[(unsigned char)*at++];
		*ret_len = 1;
		if (!ret_piece[0])
			return fail(s, "an escape that JSON does not have");
	}
	s->at = at;
	return 0;
}

/* At the opening quote; moves behind the closing one. `hash` NULL: its text is not looked at. */
static int take_string(struct scan *s, uint64_t *hash)
{
	s->at++;
	for (;;) {
		const char *from = s->at;
		char piece[4];
		size_t n = 0;
		bool valid;
		int r;

		s->at = jtext_skip_plain(s->at, s->end, false);
		if (hash)
			*hash = hash_bytes(*hash, from, (size_t)(s->at - from));
		if (s->at >= s->end)
			return fail(s, "a string without an end");
		if (*s->at == '"') {
			s->at++;
			return 0;
		}
		if ((unsigned char)*s->at < 0x20)
			return fail(s, "a control character in a string");
		if (*s->at == '\\') {
			r = take_escape(s, piece, &n);
			if (r < 0)
				return r;
			if (hash)
				*hash = hash_bytes(*hash, piece, n);
			continue;
		}
		n = utf8_next(s->at, (size_t)(s->end - s->at), &valid);
		if (!valid)
			return fail(s, "invalid UTF-8");
		if (hash)
			*hash = hash_bytes(*hash, s->at, n);
		s->at += n;
	}
}

static size_t take_digits(struct scan *s)
{
	const char *from = s->at;

	while (s->at < s->end && *s->at >= '0' && *s->at <= '9')
		s->at++;
	return (size_t)(s->at - from);
}

/* 2^1024 - 2^970, where doubles end: what is as large becomes infinity when it is read. Its first digit means 10^308. */
static const char border[] =
    "1797693134862315807937289714053034150799341327100378269361737789804449682927647509466490179775872070963"
    "3028641669288791094655554785194040263065748867150582068190890200070838367627385484581771153176447573027"
    "0069855571366959622842914819860834936475292719074168444365510704342711559699508093042880177904174497792";
#define BORDER_SCALE ((long)sizeof border - 2)
/* No number of so few digits has an exponent that would make a difference beyond. */
#define EXPONENT_MAX 100000

/* Where the first digit of a number stands that is not 0, as a power of ten; and the digit. Returns false for zeros alone. */
static bool find_scale(const char *digits, const char *end, long exponent, long *ret_scale, const char **ret_first)
{
	const char *point = memchr(digits, '.', (size_t)(end - digits));
	const char *first = digits;

	while (first < end && (*first == '0' || *first == '.'))
		first++;
	if (first == end)
		return false;
	if (!point)
		point = end;
	*ret_scale = exponent + (first < point ? point - first - 1 : point - first);
	*ret_first = first;
	return true;
}

/* Whether a number without its sign and exponent, times ten to that, is finite as a double. Nothing is computed for it. */
static bool is_finite(const char *digits, const char *end, long exponent)
{
	const char *at, *other = border;
	long scale;

	if (!find_scale(digits, end, exponent, &scale, &at) || scale < BORDER_SCALE)
		return true;
	if (scale > BORDER_SCALE)
		return false;
	for (; at < end && *other; at++) {
		if (*at == '.')
			continue;
		if (*at != *other)
			return *at < *other;
		other++;
	}
	return *other != 0; /* it ends before the border does, whose last digit is not 0 */
}

/* At the digits of an exponent. Returns how many there are. */
static size_t take_exponent(struct scan *s, long *ret)
{
	bool minus = *s->at == '-';
	const char *from;
	size_t n;
	long value = 0;

	if (*s->at == '+' || *s->at == '-')
		s->at++;
	from = s->at;
	n = take_digits(s);
	for (size_t i = 0; i < n && value < EXPONENT_MAX; i++)
		value = value * 10 + (from[i] - '0');
	*ret = minus ? -value : value;
	return n;
}

static int take_number(struct scan *s)
{
	const char *from = s->at, *first, *end;
	size_t whole, digits, n;
	long exponent = 0;
	bool integer = true;

	if (*s->at == '-')
		s->at++;
	first = s->at;
	whole = digits = take_digits(s);
	if (whole == 0 || (whole > 1 && *first == '0'))
		return fail(s, "a number that JSON does not have");
	if (s->at < s->end && *s->at == '.') {
		s->at++;
		digits += n = take_digits(s);
		integer = false;
		if (n == 0)
			return fail(s, "a number that JSON does not have");
	}
	end = s->at;
	if (s->at < s->end && (*s->at == 'e' || *s->at == 'E')) {
		s->at++;
		digits += n = s->at < s->end ? take_exponent(s, &exponent) : 0;
		integer = false;
		if (n == 0)
			return fail(s, "a number that JSON does not have");
	}
	if (digits > LIMIT_JSON_DIGITS) {
		s->at = from;
		return fail(s, "a number of too many digits");
	}
	if (integer || is_finite(first, end, exponent))
		return 0;
	s->at = from;
	return fail(s, "a number that is not finite");
}

static int take_word(struct scan *s, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
		return fail(s, "no JSON value");
	s->at += n;
	return 0;
}

/* ---- the document ---- */

enum expect {
	EXPECT_VALUE,
	EXPECT_VALUE_OR_END, /* just after '[' */
	EXPECT_NAME,
	EXPECT_NAME_OR_END, /* just after '{' */
	EXPECT_MORE,	    /* after a value */
};

static int take_value(struct scan *s, enum expect *next)
{
	*next = EXPECT_MORE;
	switch (*s->at) {
	case '{':
	case '[':
		if (s->depth == s->max_depth)
			return fail(s, "too many levels of arrays and objects");
		s->levels[s->depth++] = (struct level){.object = *s->at == '{', .first = s->count};
		*next = *s->at == '{' ? EXPECT_NAME_OR_END : EXPECT_VALUE_OR_END;
		s->at++;
		return 0;
	case '"':
		return take_string(s, NULL);
	case 't':
		return take_word(s, "true");
	case 'f':
		return take_word(s, "false");
	case 'n':
		return take_word(s, "null");
	default:
		if (*s->at == '-' || (*s->at >= '0' && *s->at <= '9'))
			return take_number(s);
		return fail(s, "no JSON value");
	}
}

static int take_name(struct scan *s, enum expect *next)
{
	const char *from = s->at;
	uint64_t hash = 0;
	int r;

	if (*s->at != '"')
		return fail(s, "no name in double quotes where a member begins");
	r = take_string(s, &hash);
	if (r == 0)
		r = add_name(s, from, hash);
	if (r < 0)
		return r;
	skip_space(s);
	if (s->at >= s->end || *s->at != ':')
		return fail(s, "no colon after a member's name");
	s->at++;
	*next = EXPECT_VALUE;
	return 0;
}

/* A comma, or the end of what is open. */
static int take_more(struct scan *s, enum expect *next)
{
	const struct level *l = &s->levels[s->depth - 1];
	int r = 0;

	if (*s->at == (l->object ? '}' : ']')) {
		if (l->object)
			r = close_object(s);
		if (r < 0)
			return r;
		s->at++;
		s->depth--;
		*next = EXPECT_MORE;
		return 0;
	}
	if (*s->at != ',')
		return fail(s, "no comma and no closing bracket after a value");
	s->at++;
	*next = l->object ? EXPECT_NAME : EXPECT_VALUE;
	return 0;
}

static int take_next(struct scan *s, enum expect *next)
{
	switch (*next) {
	case EXPECT_VALUE_OR_END:
		return *s->at == ']' ? take_more(s, next) : take_value(s, next);
	case EXPECT_NAME_OR_END:
		return *s->at == '}' ? take_more(s, next) : take_name(s, next);
	case EXPECT_VALUE:
		return take_value(s, next);
	case EXPECT_NAME:
		return take_name(s, next);
	case EXPECT_MORE:
		break;
	}
	return take_more(s, next);
}

static int scan_all(struct scan *s, enum jcheck_kind kind)
{
	enum expect next = EXPECT_VALUE;
	int r = 0;

	skip_space(s);
	if (kind == JCHECK_OBJECT && s->at < s->end && *s->at != '{')
		return fail(s, "no object");
	while (r == 0) {
		skip_space(s);
		if (next == EXPECT_MORE && s->depth == 0)
			return s->at == s->end ? 0 : fail(s, "text after the value");
		if (s->at == s->end)
			return fail(s, "an end before the value's");
		r = take_next(s, &next);
	}
	return r;
}

int jcheck(const char *text, size_t len, unsigned depth, enum jcheck_kind kind, const char **ret_why, size_t *ret_at)
{
	struct scan s = {.start = text, .at = text, .end = text + len};
	int r;

	s.max_depth = depth < JTEXT_DEPTH_MAX ? depth : JTEXT_DEPTH_MAX;
	draw_key();
	r = len < UINT32_MAX ? scan_all(&s, kind) : fail(&s, "too long");
	free(s.names);
	free(s.slots);
	if (r == -EINVAL) {
		*ret_why = s.why;
		*ret_at = (size_t)(s.at - s.start);
	}
	return r;
}
