/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "api/mcp.h"

/* ---- Accept ---- */

static void trim(const char **text, size_t *len)
{
	while (*len > 0 && (**text == ' ' || **text == '\t')) {
		(*text)++;
		(*len)--;
	}
	while (*len > 0 && ((*text)[*len - 1] == ' ' || (*text)[*len - 1] == '\t'))
		(*len)--;
}

/* Cuts the part up to the next `by` off the front of what is left. */
static void split(const char **text, size_t *len, char by, const char **ret, size_t *ret_len)
{
	const char *end = memchr(*text, by, *len);
	size_t used;

	*ret = *text;
	*ret_len = end ? (size_t)(end - *text) : *len;
	used = *ret_len + (end != NULL);
	*text += used;
	*len -= used;
	trim(ret, ret_len);
}

static bool is(const char *text, size_t len, const char *wanted)
{
	return len == strlen(wanted) && !strncasecmp(text, wanted, len);
}

/* "q=0", "q=0.0", …: not wanted. */
static bool is_q_zero(const char *text, size_t len)
{
	if (len < 3 || strncasecmp(text, "q=0", 3) != 0)
		return false;
	for (size_t i = 3; i < len; i++)
		if (text[i] != '0' && !(i == 3 && text[i] == '.'))
			return false;
	return true;
}

bool mcp_accepts_json(const char *accept)
{
	/* The more exactly a range names it, the more its word counts: "application/json;q=0, *" is a no. */
	static const char *const ranges[] = {"*/*", "application/*", "application/json"};
	size_t left = strlen(accept), exact = 0;
	bool wanted = false;

	while (left > 0) {
		const char *range, *part;
		size_t len, part_len, i = sizeof ranges / sizeof *ranges;
		bool zero = false;

		split(&accept, &left, ',', &range, &len);
		split(&range, &len, ';', &part, &part_len);
		while (i > 0 && !is(part, part_len, ranges[i - 1]))
			i--;
		while (len > 0) {
			split(&range, &len, ';', &part, &part_len);
			zero = zero || is_q_zero(part, part_len);
		}
		if (i > 0 && i >= exact) {
			wanted = !zero || (wanted && i == exact);
			exact = i;
		}
	}
	return wanted;
}

/* ---- Origin ---- */

/* "host", "host:port", "[v6]:port": what stands for the host, without brackets. False when it is none of them. */
static bool host_of(const char *authority, char ret[64])
{
	const char *from = authority, *end;
	size_t len;

	if (*authority == '[') {
		from++;
		end = strchr(from, ']');
		if (!end || (end[1] && end[1] != ':'))
			return false;
		len = (size_t)(end++ - from);
	} else {
		len = strcspn(from, ":");
		end = from + len;
	}
	if (len == 0 || len >= 64 || (*end == ':' && end[1 + strspn(end + 1, "0123456789")]))
		return false;
	memcpy(ret, from, len);
	ret[len] = 0;
	return true;
}

bool mcp_origin_ok(const char *origin, const char *host)
{
	static const char *const schemes[] = {"http://", "https://"};
	struct in_addr v4;
	struct in6_addr v6;
	const char *authority = NULL;
	char name[64];
	bool is_v4, is_v6;

	for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
		if (!strncasecmp(origin, schemes[i], strlen(schemes[i])))
			authority = origin + strlen(schemes[i]);
	if (!authority || !host_of(authority, name))
		return false;
	is_v4 = inet_pton(AF_INET, name, &v4) == 1;
	is_v6 = inet_pton(AF_INET6, name, &v6) == 1;
	if (!strcasecmp(name, "localhost") || (is_v4 && ntohl(v4.s_addr) >> 24 == 127) || (is_v6 && IN6_IS_ADDR_LOOPBACK(&v6)))
		return true;
	return (is_v4 || is_v6) && host && !strcasecmp(authority, host);
}
