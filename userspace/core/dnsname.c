/* SPDX-License-Identifier: Apache-2.0 */
#include "core/dnsname.h"

#include <stdio.h>

static bool plain(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static size_t put_byte(char *out, uint8_t c)
{
	if (plain(c)) {
		out[0] = (char)c;
		return 1;
	}
	out[0] = '\\';
	out[1] = (char)('0' + c / 100);
	out[2] = (char)('0' + c / 10 % 10);
	out[3] = (char)('0' + c % 10);
	return 4;
}

/* What stands where a label should, and can't be read as one: `kind` is its first byte, `left` how many follow. */
static size_t put_stop(char *out, uint8_t kind, const uint8_t *next, size_t left)
{
	if ((kind & 0xc0) != 0xc0)
		return (size_t)sprintf(out, "!%u", kind);
	if (left == 0)
		return (size_t)sprintf(out, "@?");
	return (size_t)sprintf(out, "@%u", (kind & 0x3fu) << 8 | next[0]);
}

void dnsname_decode(struct dnsname *ret, const uint8_t *wire, size_t len)
{
	size_t in = 0, out = 0;

	/*
	 * A label of n bytes costs n + 1 on the wire and at most 4n + 1 as text; the last may be a pointer, two bytes and at
	 * most seven characters, or a reserved type, one and five, and has a shorter one before it or no dot. So 255 bytes
	 * of wire fit the text.
	 */
	_Static_assert(4 * DNSNAME_WIRE_MAX < DNSNAME_TEXT_MAX, "escaped name fits");
	ret->malformed = true;
	if (len > DNSNAME_WIRE_MAX)
		len = DNSNAME_WIRE_MAX; /* its root, if it has one, is out of reach: stays malformed */
	while (in < len) {
		uint8_t n = wire[in++];

		if (n == 0) {
			if (in == 1)
				ret->text[out++] = '.';
			ret->malformed = in != len;
			break;
		}
		if (n & 0xc0) { /* 11: pointer; 01 and 10: reserved */
			if (out)
				ret->text[out++] = '.';
			out += put_stop(ret->text + out, n, wire + in, len - in);
			break;
		}
		if (out && in < len)
			ret->text[out++] = '.';
		for (; n && in < len; n--)
			out += put_byte(ret->text + out, wire[in++]);
		if (n)
			break;
	}
	ret->text[out] = 0;
}

const char *dnstype_text(char buf[DNSTYPE_TEXT_MAX], uint16_t type)
{
	static const struct {
		uint16_t type;
		const char *name;
	} names[] = {
	    {1, "A"},	    {2, "NS"},	   {5, "CNAME"}, {6, "SOA"},	{10, "NULL"},  {12, "PTR"},
	    {13, "HINFO"},  {15, "MX"},	   {16, "TXT"},	 {28, "AAAA"},	{33, "SRV"},   {35, "NAPTR"},
	    {39, "DNAME"},  {41, "OPT"},   {43, "DS"},	 {44, "SSHFP"}, {46, "RRSIG"}, {47, "NSEC"},
	    {48, "DNSKEY"}, {50, "NSEC3"}, {52, "TLSA"}, {64, "SVCB"},	{65, "HTTPS"}, {99, "SPF"},
	    {251, "IXFR"},  {252, "AXFR"}, {255, "ANY"}, {256, "URI"},	{257, "CAA"},
	};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (names[i].type == type)
			return names[i].name;
	snprintf(buf, DNSTYPE_TEXT_MAX, "TYPE%u", (unsigned)type);
	return buf;
}
