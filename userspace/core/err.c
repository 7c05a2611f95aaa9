/* SPDX-License-Identifier: Apache-2.0 */
#include "core/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WHOLE 12288 /* two of the longest paths and some words; what is longer is cut at its end after all */
#define HEAD 400    /* of a message that does not fit: enough for what was done, and the beginning of a name */

/* A message begins with what was done and ends in the reason and what mends it: of one that is too long the middle goes. */
static void put(char to[sizeof((struct err *)0)->msg], const char *whole)
{
	const size_t size = sizeof((struct err *)0)->msg;
	static const char gap[] = "...";
	size_t n = strlen(whole), tail = size - 1 - HEAD - (sizeof gap - 1);

	if (n < size)
		memcpy(to, whole, n + 1);
	else
		snprintf(to, size, "%.*s%s%s", HEAD, whole, gap, whole + n - tail);
}

static void fill(struct err *e, int code, const char *where, const char *text)
{
	e->code = code;
	snprintf(e->where, sizeof e->where, "%s", where ? where : "");
	put(e->msg, text);
}

int err_set(struct err *e, int code, const char *where, const char *fmt, ...)
{
	char whole[WHOLE];
	va_list ap;

	if (e) {
		va_start(ap, fmt);
		vsnprintf(whole, sizeof whole, fmt, ap);
		va_end(ap);
		fill(e, code, where, whole);
	}
	return -code;
}

int err_errno(struct err *e, int code, const char *where, const char *fmt, ...)
{
	char whole[WHOLE + 128];
	va_list ap;

	if (e) {
		size_t n;

		va_start(ap, fmt);
		vsnprintf(whole, WHOLE, fmt, ap);
		va_end(ap);
		n = strlen(whole);
		snprintf(whole + n, sizeof whole - n, ": %s", strerror(code));
		fill(e, code, where, whole);
	}
	return -code;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	char whole[WHOLE + sizeof e->msg + 2];
	va_list ap;
	size_t n;

	if (!e)
		return -1;
	va_start(ap, fmt);
	vsnprintf(whole, WHOLE, fmt, ap);
	va_end(ap);
	n = strlen(whole);
	snprintf(whole + n, sizeof whole - n, ": %s", e->msg);
	put(e->msg, whole);
	return -e->code;
}
