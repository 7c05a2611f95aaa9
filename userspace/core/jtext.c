/* SPDX-License-Identifier: Apache-2.0 */
#include "core/jtext.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/jtext_priv.h"
#include "core/utf8.h"

const char *const jtext_kind_names[] = {
    [JTEXT_OBJECT] = "an object", [JTEXT_ARRAY] = "an array", [JTEXT_STRING] = "a string", [JTEXT_NUMBER] = "a number",
    [JTEXT_TRUE] = "true",	  [JTEXT_FALSE] = "false",    [JTEXT_NULL] = "null",
};

/* One open array or object, and where in it we are: enough to spell the JSON pointer when something is wrong. */
struct level {
	bool object;
	size_t index;	  /* array: element at hand */
	const char *name; /* object: the member's name as written, without quotes; NULL before the first */
	size_t name_len;
};

struct check {
	const char *start, *at, *end;
	struct level levels[JTEXT_DEPTH_MAX];
	unsigned depth, max_depth;
	bool in_name; /* inside the innermost member's name, whose length is not known yet */
	struct err *err;
};

const char jtext_meanings[256] = {
    ['"'] = '"', ['\\'] = '\\', ['/'] = '/', ['b'] = '\b', ['f'] = '\f', ['n'] = '\n', ['r'] = '\r', ['t'] = '\t',
};

static const char ELLIPSIS[] = "\xe2\x80\xa6";

void jtext_point(char *where, size_t size, const char *token, size_t len)
{
	static const size_t mark = sizeof ELLIPSIS - 1;
	/* Text never goes beyond `room`, so that there is always space left to show a cut. */
	size_t used = strlen(where), room = size - 1 - mark;
	bool slash = true, cut = false;
	size_t i = 0;

	if (used >= mark && !strcmp(where + used - mark, ELLIPSIS))
		return; /* cut before */
	while (!cut && (slash || i < len)) {
		char piece[5] = "/"; /* one character at most */

		if (!slash) {
			bool valid;
			size_t n = utf8_next(token + i, len - i, &valid);

			if (!valid)
				break; /* the error is about this very byte */
			memcpy(piece, token + i, n);
			if (token[i] == '~' || token[i] == '/') {
				piece[0] = '~';
				piece[1] = token[i] == '~' ? '0' : '1';
			}
			i += n;
		}
		slash = false;
		cut = used + strlen(piece) > room;
		memcpy(where + used, cut ? ELLIPSIS : piece, cut ? mark : strlen(piece));
		used += cut ? mark : strlen(piece);
	}
	where[used] = 0;
}

static int fail(struct check *c, int code, const char *expected)
{
	char where[sizeof c->err->where] = "";
	size_t at = (size_t)(c->at - c->start);

	for (unsigned i = 0; i < c->depth; i++) {
		const struct level *l = &c->levels[i];
		char number[24];

		if (l->object) {
			bool open = c->in_name && i + 1 == c->depth;

			if (l->name)
				jtext_point(where, sizeof where, l->name, open ? (size_t)(c->at - l->name) : l->name_len);
		} else {
			snprintf(number, sizeof number, "%zu", l->index);
			jtext_point(where, sizeof where, number, strlen(number));
		}
	}
	if (c->at >= c->end)
		return err_set(c->err, code, where, "expected %s, found the end of the body", expected);
	return err_set(c->err, code, where, "expected %s at byte %zu", expected, at);
}

static void skip_space(const char **at, const char *end)
{
	while (*at < end && (**at == ' ' || **at == '\t' || **at == '\n' || **at == '\r'))
		(*at)++;
}

static int hex4(const char *p, const char *end, uint32_t *ret)
{
	uint32_t v = 0;

	if (end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		char d = p[i];

		if (d >= '0' && d <= '9')
			v = v << 4 | (uint32_t)(d - '0');
		else if ((d | 0x20) >= 'a' && (d | 0x20) <= 'f')
			v = v << 4 | (uint32_t)((d | 0x20) - 'a' + 10);
		else
			return -1;
	}
	*ret = v;
	return 0;
}

int jtext_unicode(const char **at, const char *end, uint32_t *ret)
{
	uint32_t high, low;

	if (hex4(*at, end, &high) < 0)
		return -EINVAL;
	if (high >= 0xdc00 && high <= 0xdfff)
		return -EILSEQ;
	if (high >= 0xd800 && high <= 0xdbff) {
		if (end - *at < 10 || (*at)[4] != '\\' || (*at)[5] != 'u' || hex4(*at + 6, end, &low) < 0 || low < 0xdc00 ||
		    low > 0xdfff)
			return -EILSEQ;
		*at += 10;
		*ret = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
		return 0;
	}
	*at += 4;
	*ret = high;
	return 0;
}

/* At the opening quote. */
static int check_string(struct check *c, bool is_name)
{
	bool valid;

	c->at++;
	for (;;) {
		unsigned char ch;

		c->at = jtext_skip_plain(c->at, c->end, false);
		if (c->at >= c->end)
			break;
		ch = (unsigned char)*c->at;
		if (ch == '"') {
			c->at++;
			return 0;
		}
		if (ch < 0x20)
			return fail(c, EINVAL, "control characters to be escaped in a string");
		if (ch == '\\') {
			const char *escape = c->at + 1;
			uint32_t cp = 1;
			int r;

			if (escape >= c->end)
				break;
			if (*escape == 'u') {
				escape++;
				r = jtext_unicode(&escape, c->end, &cp);
				if (r == -EILSEQ)
					return fail(c, EINVAL, "no lone surrogate in a string");
				if (r < 0)
					return fail(c, EINVAL, "four hexadecimal digits after \\u");
				if (cp == 0 && is_name)
					return fail(c, EINVAL, "a name without NUL");
				c->at = escape;
			} else if (jtext_meanings[(unsigned char)*escape]) {
				c->at += 2;
			} else {
				return fail(c, EINVAL, "an escape that JSON has");
			}
			continue;
		}
		size_t n = utf8_next(c->at, (size_t)(c->end - c->at), &valid);

		if (!valid)
			return fail(c, EINVAL, "valid UTF-8");
		c->at += n;
	}
	c->at = c->end;
	return fail(c, EINVAL, "the closing quote of a string");
}

static bool skip_digits(struct check *c)
{
	const char *from = c->at;

	while (c->at < c->end && *c->at >= '0' && *c->at <= '9')
		c->at++;
	return c->at > from;
}

static int check_number(struct check *c)
{
	if (*c->at == '-')
		c->at++;
	if (c->at < c->end && *c->at == '0') {
		c->at++;
		if (c->at < c->end && *c->at >= '0' && *c->at <= '9')
			return fail(c, EINVAL, "a number without leading zeros");
	} else if (!skip_digits(c)) {
		return fail(c, EINVAL, "a digit");
	}
	if (c->at < c->end && *c->at == '.') {
		c->at++;
		if (!skip_digits(c))
			return fail(c, EINVAL, "a digit after the decimal point");
	}
	if (c->at < c->end && (*c->at == 'e' || *c->at == 'E')) {
		c->at++;
		if (c->at < c->end && (*c->at == '+' || *c->at == '-'))
			c->at++;
		if (!skip_digits(c))
			return fail(c, EINVAL, "a digit in the exponent");
	}
	return 0;
}

static int check_word(struct check *c, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
		return fail(c, EINVAL, "a JSON value");
	c->at += n;
	return 0;
}

enum expect {
	EXPECT_VALUE,
	EXPECT_VALUE_OR_END, /* just after '[' */
	EXPECT_NAME,
	EXPECT_NAME_OR_END, /* just after '{' */
	EXPECT_MORE,	    /* after a value: a comma, the end of its parent, or of the document */
};

static int check_value(struct check *c, enum expect *next)
{
	*next = EXPECT_MORE;
	switch (*c->at) {
	case '{':
	case '[':
		if (c->depth >= c->max_depth) {
			char expected[64];

			snprintf(expected, sizeof expected, "at most %u levels of nesting", c->max_depth);
			return fail(c, E2BIG, expected);
		}
		c->levels[c->depth++] = (struct level){.object = *c->at == '{'};
		*next = *c->at == '{' ? EXPECT_NAME_OR_END : EXPECT_VALUE_OR_END;
		c->at++;
		return 0;
	case '"':
		return check_string(c, false);
	case 't':
		return check_word(c, "true");
	case 'f':
		return check_word(c, "false");
	case 'n':
		return check_word(c, "null");
	default:
		if (*c->at == '-' || (*c->at >= '0' && *c->at <= '9'))
			return check_number(c);
		return fail(c, EINVAL, "a JSON value");
	}
}

static int check_name(struct check *c, enum expect *next)
{
	struct level *l = &c->levels[c->depth - 1];
	const char *from = c->at + 1;
	int r;

	if (*c->at != '"')
		return fail(c, EINVAL, "a member's name in double quotes");
	l->name = from;
	c->in_name = true;
	r = check_string(c, true);
	c->in_name = false;
	if (r < 0)
		return r;
	l->name_len = (size_t)(c->at - 1 - from);
	skip_space(&c->at, c->end);
	if (c->at >= c->end || *c->at != ':')
		return fail(c, EINVAL, "a colon after the member's name");
	c->at++;
	*next = EXPECT_VALUE;
	return 0;
}

/* Also closes: `*next` stays EXPECT_MORE then. */
static int check_more(struct check *c, enum expect *next)
{
	struct level *l = &c->levels[c->depth - 1];

	if (*c->at == (l->object ? '}' : ']')) {
		c->at++;
		c->depth--;
		*next = EXPECT_MORE;
		return 0;
	}
	if (*c->at != ',')
		return fail(c, EINVAL, l->object ? "a comma or } after a member" : "a comma or ] after an element");
	c->at++;
	l->index++;
	*next = l->object ? EXPECT_NAME : EXPECT_VALUE;
	return 0;
}

int jtext_check(const char *text, size_t len, unsigned max_depth, struct err *e)
{
	struct check c = {.start = text, .at = text, .end = text + len, .err = e};
	enum expect next = EXPECT_VALUE;
	int r = 0;

	c.max_depth = max_depth < JTEXT_DEPTH_MAX ? max_depth : JTEXT_DEPTH_MAX;
	for (;;) {
		skip_space(&c.at, c.end);
		if (next == EXPECT_MORE && c.depth == 0) {
			if (c.at < c.end)
				return fail(&c, EINVAL, "nothing after the value");
			return 0;
		}
		if (c.at >= c.end)
			return fail(&c, EINVAL,
				    next == EXPECT_NAME || next == EXPECT_NAME_OR_END ? "a member's name"
				    : next == EXPECT_MORE			      ? "a comma or a closing bracket"
										      : "a JSON value");
		switch (next) {
		case EXPECT_VALUE_OR_END:
			r = *c.at == ']' ? check_more(&c, &next) : check_value(&c, &next);
			break;
		case EXPECT_NAME_OR_END:
			r = *c.at == '}' ? check_more(&c, &next) : check_name(&c, &next);
			break;
		case EXPECT_VALUE:
			r = check_value(&c, &next);
			break;
		case EXPECT_NAME:
			r = check_name(&c, &next);
			break;
		case EXPECT_MORE:
			r = check_more(&c, &next);
			break;
		}
		if (r < 0)
			return r;
	}
}

static const char *skip_string(const char *at, const char *end)
{
	for (at = jtext_skip_plain(at + 1, end, true); *at != '"'; at = jtext_skip_plain(at + 2, end, true))
		;
	return at + 1;
}

/* The value that starts at `at`, in checked text. */
static struct jtext value_at(const char *at, const char *end)
{
	static const char digits[] = "+-.eE0123456789";
	struct jtext v = {.text = at};
	unsigned depth = 0;

	switch (*at) {
	case '"':
		v.kind = JTEXT_STRING;
		at = skip_string(at, end);
		break;
	case '{':
	case '[':
		v.kind = *at == '{' ? JTEXT_OBJECT : JTEXT_ARRAY;
		do {
			if (*at == '"') {
				at = skip_string(at, end);
				continue;
			}
			if (*at == '{' || *at == '[')
				depth++;
			else if (*at == '}' || *at == ']')
				depth--;
			at++;
		} while (depth > 0);
		break;
	case 't':
		v.kind = JTEXT_TRUE;
		at += 4;
		break;
	case 'f':
		v.kind = JTEXT_FALSE;
		at += 5;
		break;
	case 'n':
		v.kind = JTEXT_NULL;
		at += 4;
		break;
	default:
		v.kind = JTEXT_NUMBER;
		while (at < end && memchr(digits, *at, sizeof digits - 1))
			at++;
		break;
	}
	v.len = (size_t)(at - v.text);
	return v;
}

struct jtext jtext_root(const char *text, size_t len)
{
	const char *at = text, *end = text + len;
	skip_space(&at, end);
	while (end > at && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\n' || end[-1] == '\r'))
		end--;
	/* One value and nothing after it: its end is the document's, however long it is. */
	if (*at == '{' || *at == '[')
		return (struct jtext){.kind = *at == '{' ? JTEXT_OBJECT : JTEXT_ARRAY, .text = at, .len = (size_t)(end - at)};
	return value_at(at, end);
}

bool jtext_next(const struct jtext *parent, const char **at, struct jtext *ret_name, struct jtext *ret_value)
{
	const char *p = *at ? *at : parent->text + 1, *end = parent->text + parent->len;

	skip_space(&p, end);
	if (*p == ',') {
		p++;
		skip_space(&p, end);
	}
	if (*p == '}' || *p == ']')
		return false;
	if (parent->kind == JTEXT_OBJECT) {
		*ret_name = value_at(p, end);
		p += ret_name->len;
		skip_space(&p, end);
		p++; /* the colon */
		skip_space(&p, end);
	}
	*ret_value = value_at(p, end);
	*at = p + ret_value->len;
	return true;
}

size_t jtext_next_plain(const char **at, const char *end, char ret[4])
{
	uint32_t cp = 0;

	if (**at != '\\') {
		ret[0] = *(*at)++;
		return 1;
	}
	(*at)++;
	if (**at != 'u') {
		ret[0] = jtext_meanings[(unsigned char)*(*at)++];
		return 1;
	}
	(*at)++;
	(void)jtext_unicode(at, end, &cp); /* jtext_check() has passed it */
	return utf8_encode(cp, ret);
}

/* The whole inside of a checked string, escapes undone: never longer, so `out` may be where it stands. Returns its bytes. */
static size_t undo_escapes(char *out, const char *p, const char *end)
{
	const char *start = out;

	while (p < end) {
		const char *escape = memchr(p, '\\', (size_t)(end - p));
		size_t n = (size_t)((escape ? escape : end) - p);
		char piece[4];

		if (out != p)
			memmove(out, p, n);
		out += n;
		p += n;
		while (p < end && *p == '\\') {
			n = jtext_next_plain(&p, end, piece);
			memcpy(out, piece, n);
			out += n;
		}
	}
	return (size_t)(out - start);
}

char *jtext_string(const struct jtext *value, size_t *ret_len)
{
	char *out = malloc(value->len);

	if (!out)
		return NULL;
	*ret_len = undo_escapes(out, value->text + 1, value->text + value->len - 1);
	out[*ret_len] = 0;
	return out;
}

char *jtext_string_in_place(char *text, const struct jtext *value, size_t *ret_len)
{
	char *out = text + (value->text - text) + 1;

	*ret_len = undo_escapes(out, out, out + value->len - 2);
	return out;
}

bool jtext_is(const struct jtext *value, const char *text)
{
	const char *p = value->text + 1, *end = value->text + value->len - 1;
	size_t left = strlen(text);

	while (p < end) {
		char piece[4];
		size_t got = jtext_next_plain(&p, end, piece);

		if (got > left || memcmp(piece, text, got) != 0)
			return false;
		text += got;
		left -= got;
	}
	return left == 0;
}
