/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader of its own and not the C library's: that one takes "10.1" for an address, "010" for eight, and a zone behind a
 * percent sign. What a policy means may not depend on which library reads it.
 */
#include "core/cidr.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/netaddr.h"

static const uint8_t mapped_start[12] = {[10] = 0xff, [11] = 0xff};

/* The text at hand, and why reading it failed. */
struct reader {
	const char *at, *end;
	const char *why;
};

static int fail(struct reader *r, const char *why)
{
	if (!r->why)
		r->why = why;
	return -EINVAL;
}

static bool take(struct reader *r, char c)
{
	if (r->at == r->end || *r->at != c)
		return false;
	r->at++;
	return true;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static int hex_value(char c)
{
	if (is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* At most three digits, and no zero in front: elsewhere that would make the number octal. */
static int read_decimal(struct reader *r, unsigned max, unsigned *ret, const char *why)
{
	const char *start = r->at;
	unsigned v = 0;

	while (r->at < r->end && is_digit(*r->at) && r->at - start < 4)
		v = v * 10 + (unsigned)(*r->at++ - '0');
	if (r->at == start || r->at - start > 3 || v > max)
		return fail(r, why);
	if (*start == '0' && r->at - start > 1)
		return fail(r, "has a number with a leading zero, which some programs read as octal; write it without");
	*ret = v;
	return 0;
}

static int read_ipv4(struct reader *r, uint8_t ret[4])
{
	for (int i = 0; i < 4; i++) {
		unsigned part;

		if (i > 0 && !take(r, '.'))
			return fail(r, "is not a whole IPv4 address: four numbers with dots between them, such as 10.0.0.0");
		if (read_decimal(r, 255, &part, "is not an IPv4 address: four numbers from 0 to 255, such as 10.0.0.0") < 0)
			return -EINVAL;
		ret[i] = (uint8_t)part;
	}
	return 0;
}

/* One to four hexadecimal digits. */
static int read_group(struct reader *r, uint8_t ret[2])
{
	unsigned v = 0, n;

	for (n = 0; n < 4 && r->at < r->end && hex_value(*r->at) >= 0; n++)
		v = v << 4 | (unsigned)hex_value(*r->at++);
	if (n == 0)
		return fail(r, "is not an IPv6 address: groups of up to four hexadecimal digits with colons between them");
	ret[0] = (uint8_t)(v >> 8);
	ret[1] = (uint8_t)v;
	return 0;
}

/* Whether the next group is really the dotted tail of "::ffff:10.0.0.1". */
static bool dotted_follows(const struct reader *r)
{
	const char *p = r->at;

	while (p < r->end && is_digit(*p))
		p++;
	return p > r->at && p < r->end && *p == '.';
}

static bool address_ends(const struct reader *r)
{
	return r->at == r->end || *r->at == '/';
}

static int read_ipv6(struct reader *r, uint8_t ret[16])
{
	uint8_t out[16] = {0};
	size_t used = 0, gap = sizeof out + 1; /* where "::" stands; none yet */

	if (r->end - r->at >= 2 && r->at[0] == ':' && r->at[1] == ':') {
		r->at += 2;
		gap = 0;
	}
	while (used < sizeof out && !(gap == used && address_ends(r))) {
		bool dotted = dotted_follows(r) && used <= 12;

		if (dotted ? read_ipv4(r, out + used) < 0 : read_group(r, out + used) < 0)
			return -EINVAL;
		used += dotted ? 4 : 2;
		if (dotted || address_ends(r))
			break;
		if (!take(r, ':'))
			return fail(r, used == sizeof out ? "has something behind the address" : "is not an IPv6 address");
		if (r->at < r->end && *r->at == ':') {
			if (gap <= sizeof out)
				return fail(r, "is not an IPv6 address: \"::\" can stand in it once");
			r->at++;
			gap = used;
		} else if (used == sizeof out) {
			return fail(r, "is not an IPv6 address: it has more than eight groups");
		}
	}
	if (gap > sizeof out && used < sizeof out)
		return fail(r, "is not a whole IPv6 address: eight groups, or \"::\" in place of those that are zero");
	if (gap <= sizeof out && used == sizeof out)
		return fail(r, "is not an IPv6 address: \"::\" stands for no group, as there are eight already");
	memset(ret, 0, 16);
	if (gap > sizeof out)
		gap = used;
	memcpy(ret, out, gap);
	memcpy(ret + 16 - (used - gap), out + gap, used - gap);
	return 0;
}

/* What people write instead of an address. */
static int refuse_kind(struct reader *r)
{
	const char *p;

	if (r->at == r->end)
		return fail(r, "is empty; write an address or a prefix, such as 10.0.0.0/8 or 2001:db8::/32");
	for (p = r->at; p < r->end; p++) {
		if (*p == '%')
			return fail(r, "has a zone (\"%eth0\"), which no packet carries; leave it out");
		if (*p == '[' || *p == ']')
			return fail(r, "has brackets; write the address alone, and ports in \"ports\"");
		if ((unsigned char)*p <= ' ' || (unsigned char)*p > '~')
			return fail(r, "has a space or a character that no address has");
	}
	for (p = r->at; p < r->end; p++)
		if (hex_value(*p) < 0 && *p != '.' && *p != ':' && *p != '/')
			return fail(
			    r, "is neither an address nor a prefix; names and ranges of addresses are not understood here");
	return 0;
}

static int read_addr(struct reader *r, struct cidr *ret)
{
	const char *slash;

	if (refuse_kind(r) < 0)
		return -EINVAL;
	slash = memchr(r->at, '/', (size_t)(r->end - r->at));
	memset(ret, 0, sizeof *ret);
	if (memchr(r->at, ':', (size_t)((slash ? slash : r->end) - r->at))) {
		ret->family = 6;
		ret->len = 128;
		return read_ipv6(r, ret->addr);
	}
	ret->family = 4;
	ret->len = 32;
	memcpy(ret->addr, mapped_start, sizeof mapped_start);
	return read_ipv4(r, ret->addr + 12);
}

static int read_end(struct reader *r, const struct cidr *c)
{
	if (r->at == r->end)
		return 0;
	if (*r->at == '/')
		return fail(r, "is a prefix; an address alone is expected here");
	if (c->family == 4 && *r->at == ':')
		return fail(r, "has something behind the address; ports are written in \"ports\"");
	return fail(r, "has something behind the address");
}

static int read_length(struct reader *r, struct cidr *c)
{
	static const char why4[] = "has a prefix length that is not a number from 0 to 32",
			  why6[] = "has a prefix length that is not a number from 0 to 128";
	unsigned max = c->family == 4 ? 32 : 128, len;

	if (!take(r, '/'))
		return read_end(r, c);
	if (read_decimal(r, max, &len, c->family == 4 ? why4 : why6) < 0)
		return -EINVAL;
	if (r->at < r->end)
		return fail(r, *r->at == '.' ? "has a dotted mask; write how many bits count, such as /8"
					     : "has something behind the prefix length");
	c->len = (uint8_t)len;
	return 0;
}

/* Bit of the sixteen bytes where the address's own bits begin. */
static unsigned first_bit(const struct cidr *c)
{
	return c->family == 4 ? 96 : 0;
}

/* Clears what does not count; says whether there was anything. */
static bool clear_host_bits(struct cidr *c)
{
	unsigned keep = first_bit(c) + c->len;
	bool any = false;

	for (unsigned i = keep / 8; i < 16; i++) {
		uint8_t mask = i == keep / 8 ? (uint8_t)(0xff00 >> (keep % 8)) : 0;

		any = any || (c->addr[i] & ~mask);
		c->addr[i] &= mask;
	}
	return any;
}

int cidr_parse(const char *text, size_t len, struct cidr *ret, struct err *e)
{
	struct reader r = {text, text + len, NULL};
	struct cidr c;

	if (read_addr(&r, &c) < 0 || read_length(&r, &c) < 0)
		return err_set(e, EINVAL, "", "%s", r.why);
	if (clear_host_bits(&c)) {
		char prefix[CIDR_TEXT_MAX];

		cidr_text(prefix, &c, false);
		return err_set(e, EINVAL, "",
			       "has bits set beyond its length; write %s for the prefix, or the address with /%u for it alone",
			       prefix, c.family == 4 ? 32U : 128U);
	}
	*ret = c;
	return 0;
}

int cidr_parse_addr(const char *text, size_t len, struct cidr *ret, struct err *e)
{
	struct reader r = {text, text + len, NULL};
	struct cidr c;

	if (read_addr(&r, &c) < 0 || read_end(&r, &c) < 0)
		return err_set(e, EINVAL, "", "%s", r.why);
	*ret = c;
	return 0;
}

void cidr_text(char ret[CIDR_TEXT_MAX], const struct cidr *c, bool short_form)
{
	char addr[NETADDR_TEXT_MAX];

	netaddr_text(addr, c->addr, c->family);
	if (short_form && c->len == (c->family == 4 ? 32 : 128))
		snprintf(ret, CIDR_TEXT_MAX, "%s", addr);
	else
		snprintf(ret, CIDR_TEXT_MAX, "%s/%u", addr, (unsigned)c->len);
}

bool cidr_contains(const struct cidr *outer, const struct cidr *inner)
{
	unsigned bits = first_bit(outer) + outer->len;

	if (outer->family != inner->family || outer->len > inner->len)
		return false;
	if (memcmp(outer->addr, inner->addr, bits / 8) != 0)
		return false;
	return bits % 8 == 0 || (uint8_t)((outer->addr[bits / 8] ^ inner->addr[bits / 8]) >> (8 - bits % 8)) == 0;
}

int cidr_compare(const struct cidr *a, const struct cidr *b)
{
	int rc;

	if (a->family != b->family)
		return a->family < b->family ? -1 : 1;
	rc = memcmp(a->addr, b->addr, sizeof a->addr);
	if (rc != 0)
		return rc;
	return a->len == b->len ? 0 : a->len < b->len ? -1 : 1;
}
