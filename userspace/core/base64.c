/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base64.h"

#include <errno.h>
#include <stdint.h>

static const char alphabet[64] = {
    'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'J', 'K', 'L', 'M', 'N', 'O', 'P', 'Q', 'R', 'S', 'T', 'U', 'V',
    'W', 'X', 'Y', 'Z', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r',
    's', 't', 'u', 'v', 'w', 'x', 'y', 'z', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '+', '/',
};

/* Value plus one; 0 for what is not in the alphabet. */
static const uint8_t values[256] = {
    ['A'] = 1,	['B'] = 2,  ['C'] = 3,	['D'] = 4,  ['E'] = 5,	['F'] = 6,  ['G'] = 7,	['H'] = 8,  ['I'] = 9,	['J'] = 10,
    ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16, ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20,
    ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24, ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30,
    ['e'] = 31, ['f'] = 32, ['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40,
    ['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48, ['w'] = 49, ['x'] = 50,
    ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56, ['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60,
    ['8'] = 61, ['9'] = 62, ['+'] = 63, ['/'] = 64,
};

/* Of a character that is in the alphabet. */
static uint32_t value_of(char c)
{
	return (uint32_t)values[(uint8_t)c] - 1;
}

void base64_encode(char *ret, const void *data, size_t len)
{
	const uint8_t *p = data;

	for (; len >= 3; len -= 3, p += 3, ret += 4) {
		uint32_t three = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];

		ret[0] = alphabet[three >> 18];
		ret[1] = alphabet[three >> 12 & 63];
		ret[2] = alphabet[three >> 6 & 63];
		ret[3] = alphabet[three & 63];
	}
	if (len > 0) {
		uint32_t rest = (uint32_t)p[0] << 16 | (len > 1 ? (uint32_t)p[1] << 8 : 0);

		ret[0] = alphabet[rest >> 18];
		ret[1] = alphabet[rest >> 12 & 63];
		ret[2] = len > 1 ? alphabet[rest >> 6 & 63] : '=';
		ret[3] = '=';
	}
}

/* How many of the last characters are padding: 0, 1 or 2. */
static size_t padding(const char *text, size_t len)
{
	if (len == 0 || text[len - 1] != '=')
		return 0;
	return text[len - 2] == '=' ? 2 : 1;
}

ssize_t base64_decoded_len(const char *text, size_t len)
{
	size_t pad, strange = 0;

	if (len % 4 != 0)
		return -EINVAL;
	pad = padding(text, len);
	for (size_t i = 0; i < len - pad; i++)
		strange += values[(uint8_t)text[i]] == 0;
	if (strange > 0)
		return -EINVAL;
	if (pad > 0 && value_of(text[len - pad - 1]) & (pad == 1 ? 3u : 15u))
		return -EINVAL;
	return (ssize_t)(len / 4 * 3 - pad);
}

void base64_decode(void *ret, const char *text, size_t len)
{
	size_t pad = padding(text, len);
	uint8_t *out = ret;

	for (; len > (pad ? 4 : 0); len -= 4, text += 4, out += 3) {
		uint32_t four = value_of(text[0]) << 18 | value_of(text[1]) << 12 | value_of(text[2]) << 6 | value_of(text[3]);

		out[0] = (uint8_t)(four >> 16);
		out[1] = (uint8_t)(four >> 8);
		out[2] = (uint8_t)four;
	}
	if (pad > 0) {
		uint32_t rest = value_of(text[0]) << 18 | value_of(text[1]) << 12 | (pad == 1 ? value_of(text[2]) << 6 : 0);

		out[0] = (uint8_t)(rest >> 16);
		if (pad == 1)
			out[1] = (uint8_t)(rest >> 8);
	}
}
