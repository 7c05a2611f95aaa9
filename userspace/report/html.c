/* SPDX-License-Identifier: Apache-2.0 */
#include "report/html.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"

/* Code points that a reader does not see, or that make him see something else: Unicode's default ignorables, controls,
 * directions. */
static const struct {
	uint32_t lo, hi;
} unseen[] = {
    {0x0000, 0x001f},	{0x007f, 0x009f},   {0x00ad, 0x00ad},	{0x034f, 0x034f}, {0x061c, 0x061c}, {0x115f, 0x1160},
    {0x17b4, 0x17b5},	{0x180b, 0x180f},   {0x200b, 0x200f},	{0x2028, 0x202e}, {0x2060, 0x206f}, {0x2800, 0x2800},
    {0x3164, 0x3164},	{0xfdd0, 0xfdef},   {0xfe00, 0xfe0f},	{0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff0, 0xfffb},
    {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
};

static bool is_unseen(uint32_t cp)
{
	if ((cp & 0xfffe) == 0xfffe) /* the two noncharacters at the end of each plane */
		return true;
	for (size_t i = 0; i < sizeof unseen / sizeof *unseen; i++)
		if (cp >= unseen[i].lo && cp <= unseen[i].hi)
			return true;
	return false;
}

static void append(struct html *h, const char *text, size_t len)
{
	if (h->failed)
		return;
	if (!h->text || h->room - h->len <= len) {
		size_t room = h->room ? h->room : 16384;
		char *more;

		while (room - h->len <= len)
			room *= 2;
		more = realloc(h->text, room);
		if (!more) {
			h->failed = true;
			return;
		}
		h->text = more;
		h->room = room;
	}
	memcpy(h->text + h->len, text, len);
	h->len += len;
	h->text[h->len] = '\0';
}

static const char *entity(char c)
{
	return c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : c == '\'' ? "&#39;" : NULL;
}

/* Of a character that utf8_next() takes for one. */
static uint32_t code_point(const char *text, size_t len)
{
	static const uint8_t first_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
	uint32_t cp = (uint8_t)text[0] & first_bits[len];

	for (size_t i = 1; i < len; i++)
		cp = cp << 6 | ((uint8_t)text[i] & 0x3f);
	return cp;
}

static void append_character(struct html *h, const char *text, size_t len)
{
	const char *e = entity(*text);
	uint32_t cp = code_point(text, len);
	char shown[16];

	if (e) {
		append(h, e, strlen(e));
	} else if (is_unseen(cp)) {
		append(h, shown, (size_t)snprintf(shown, sizeof shown, "\\u{%x}", cp));
	} else {
		append(h, text, len);
	}
}

/* `kept`: characters that are written as they are, though they would be shown as escapes. */
static void append_escaped(struct html *h, const char *text, const char *kept)
{
	size_t len = text ? strlen(text) : 0;

	for (size_t at = 0, n; at < len; at += n) {
		bool valid;

		n = utf8_next(text + at, len - at, &valid);
		if (!valid)
			append(h, "\xef\xbf\xbd", 3);
		else if (strchr(kept, text[at]))
			append(h, text + at, n);
		else
			append_character(h, text + at, n);
	}
}

void html_literal_(struct html *h, const char *literal)
{
	append(h, literal, strlen(literal));
}

void html_lines(struct html *h, const char *text)
{
	append_escaped(h, text, "\n\t");
}

enum argument { ARG_NONE, ARG_STRING, ARG_INT, ARG_UNSIGNED, ARG_SIZE, ARG_LONG_LONG, ARG_UNSIGNED_LONG_LONG, ARG_DOUBLE };

/* Which conversion stands at `spec` ("%..."), and how long it is. */
static enum argument conversion(const char *spec, size_t *ret_len)
{
	static const struct {
		const char *spec;
		enum argument argument;
	} known[] = {{"%s", ARG_STRING}, {"%d", ARG_INT},	  {"%u", ARG_UNSIGNED},
		     {"%zu", ARG_SIZE},	 {"%lld", ARG_LONG_LONG}, {"%llu", ARG_UNSIGNED_LONG_LONG}};

	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		*ret_len = strlen(known[i].spec);
		if (!strncmp(spec, known[i].spec, *ret_len))
			return known[i].argument;
	}
	*ret_len = 4;
	return spec[1] == '.' && spec[2] >= '0' && spec[2] <= '9' && spec[3] == 'f' ? ARG_DOUBLE : ARG_NONE;
}

/* Into `buf` what the next argument is; returns it, or what it points to. */
static const char *argument_text(char *buf, size_t size, enum argument argument, int digits, va_list *ap)
{
	switch (argument) {
	case ARG_STRING:
		return va_arg(*ap, const char *);
	case ARG_INT:
		snprintf(buf, size, "%d", va_arg(*ap, int));
		return buf;
	case ARG_UNSIGNED:
		snprintf(buf, size, "%u", va_arg(*ap, unsigned));
		return buf;
	case ARG_SIZE:
		snprintf(buf, size, "%zu", va_arg(*ap, size_t));
		return buf;
	case ARG_LONG_LONG:
		snprintf(buf, size, "%lld", va_arg(*ap, long long));
		return buf;
	case ARG_UNSIGNED_LONG_LONG:
		snprintf(buf, size, "%llu", va_arg(*ap, unsigned long long));
		return buf;
	case ARG_DOUBLE:
		snprintf(buf, size, "%.*f", digits, va_arg(*ap, double));
		return buf;
	case ARG_NONE:
		break;
	}
	return NULL;
}

void html_template_(struct html *h, const char *template, ...)
{
	va_list ap;

	va_start(ap, template);
	while (*template && !h->failed) {
		size_t len = strcspn(template, "%");
		enum argument argument;
		char buf[400]; /* the longest double */

		append(h, template, len);
		template += len;
		if (!*template)
			break;
		if (template[1] == '%') {
			append(h, "%", 1);
			template += 2;
			continue;
		}
		argument = conversion(template, &len);
		if (argument == ARG_NONE) {
			h->failed = true;
			break;
		}
		append_escaped(h, argument_text(buf, sizeof buf, argument, template[2] - '0', &ap), "");
		template += len;
	}
	va_end(ap);
}

char *html_take(struct html *h, size_t *ret_len)
{
	char *text = h->text;

	if (!h->failed && !text) /* nothing was written: an empty document is one, too */
		append(h, "", 0);
	text = h->text;
	if (h->failed) {
		free(text);
		text = NULL;
	} else if (ret_len) {
		*ret_len = h->len;
	}
	*h = (struct html){0};
	return text;
}
