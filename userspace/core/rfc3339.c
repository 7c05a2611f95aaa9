/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rfc3339.h"

#include <errno.h>
#include <stdbool.h>

#define NS 1000000000ll
#define YEAR_FIRST 1970
#define YEAR_LAST 2261 /* the last whole one of which 64 bits hold the nanoseconds, signed */

/* Exactly `digits` of them, at most `max`. -1: not so. Moves *text on. */
static long number(const char **text, int digits, long min, long max)
{
	long n = 0;

	for (int i = 0; i < digits; i++, (*text)++) {
		if (**text < '0' || **text > '9')
			return -1;
		n = n * 10 + (**text - '0');
	}
	return n < min || n > max ? -1 : n;
}

static bool is_leap(long y)
{
	return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
}

static long days_of(long y, long month)
{
	static const unsigned char days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

	return days[month - 1] + (month == 2 && is_leap(y));
}

/* Days since 1970 of a date that there is; -1: there is none. */
static long read_date(const char **text)
{
	long y = number(text, 4, YEAR_FIRST, YEAR_LAST), month, day, days = 0;

	if (y < 0 || *(*text)++ != '-' || (month = number(text, 2, 1, 12)) < 0 || *(*text)++ != '-')
		return -1;
	day = number(text, 2, 1, days_of(y, month));
	if (day < 0)
		return -1;
	for (long i = YEAR_FIRST; i < y; i++)
		days += is_leap(i) ? 366 : 365;
	for (long i = 1; i < month; i++)
		days += days_of(y, i);
	return days + day - 1;
}

/* ".5": nanoseconds. None is 0. -1: it is malformed. */
static long read_fraction(const char **text)
{
	long ns = 0, unit = NS / 10;

	if (**text != '.')
		return 0;
	(*text)++;
	if (**text < '0' || **text > '9')
		return -1;
	for (; **text >= '0' && **text <= '9'; (*text)++, unit /= 10) {
		if (unit == 0)
			return -1;
		ns += (**text - '0') * unit;
	}
	return ns;
}

/* Seconds to take off: "Z", "+02:00". False: it is none. */
static bool read_offset(const char **text, long *ret)
{
	char sign = *(*text)++;
	long h, m;

	*ret = 0;
	if (sign == 'Z' || sign == 'z')
		return true;
	if ((sign != '+' && sign != '-') || (h = number(text, 2, 0, 23)) < 0 || *(*text)++ != ':' ||
	    (m = number(text, 2, 0, 59)) < 0)
		return false;
	*ret = (h * 60 + m) * (sign == '+' ? 60 : -60);
	return true;
}

int rfc3339_parse(const char *text, uint64_t *ret_ns)
{
	long days = read_date(&text), h, m, s, fraction, offset;
	int64_t at;

	if (days < 0)
		return -EINVAL;
	if (*text == 0) {
		*ret_ns = (uint64_t)days * 86400 * NS;
		return 0;
	}
	if (*text != 'T' && *text != 't' && *text != ' ')
		return -EINVAL;
	text++;
	if ((h = number(&text, 2, 0, 23)) < 0 || *text++ != ':' || (m = number(&text, 2, 0, 59)) < 0 || *text++ != ':' ||
	    (s = number(&text, 2, 0, 60)) < 0)
		return -EINVAL;
	fraction = read_fraction(&text);
	if (fraction < 0 || !read_offset(&text, &offset) || *text)
		return -EINVAL;
	at = ((int64_t)days * 86400 + h * 3600 + m * 60 + s - offset) * NS + fraction;
	if (at < 0)
		return -EINVAL;
	*ret_ns = (uint64_t)at;
	return 0;
}
