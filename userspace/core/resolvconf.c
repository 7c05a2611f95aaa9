/* SPDX-License-Identifier: Apache-2.0 */
#include "core/resolvconf.h"

#include <string.h>

static const char keyword[] = "nameserver";

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Where the word that starts at `p` ends. A NUL ends it too: the resolver reads C strings. */
static const char *word_end(const char *p, const char *end)
{
	while (p < end && !is_blank(*p) && *p != '\r' && *p != '\0')
		p++;
	return p;
}

/* Packets to a mapped address are IPv4 packets, and it is packets that are judged. */
static void unmap(struct cidr *c)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (c->family != 6 || memcmp(c->addr, mapped, sizeof mapped) != 0)
		return;
	c->family = 4;
	c->len = 32;
}

static bool parse_server(const char *text, size_t len, struct cidr *ret)
{
	const char *zone = memchr(text, '%', len);
	struct cidr c;

	if (cidr_parse_addr(text, zone ? (size_t)(zone - text) : len, &c, NULL) < 0)
		return false;
	if (zone && c.family != 6)
		return false;
	unmap(&c);
	*ret = c;
	return true;
}

static bool parse_line(const char *p, const char *end, struct cidr *ret)
{
	const size_t n = sizeof keyword - 1;

	/* At the very start of the line, and a word of its own: a comment or an indented line is nothing to the resolver. */
	if ((size_t)(end - p) <= n || memcmp(p, keyword, n) != 0 || !is_blank(p[n]))
		return false;
	for (p += n; p < end && is_blank(*p); p++)
		;
	return parse_server(p, (size_t)(word_end(p, end) - p), ret);
}

size_t resolvconf_parse(const char *text, size_t len, struct cidr ret[RESOLVCONF_SERVERS])
{
	const char *p = text, *end = text + len;
	size_t count = 0;

	while (p < end && count < RESOLVCONF_SERVERS) {
		const char *newline = memchr(p, '\n', (size_t)(end - p));
		const char *line_end = newline ? newline : end;

		if (parse_line(p, line_end, &ret[count]))
			count++;
		p = newline ? newline + 1 : end;
	}
	return count;
}
