/* SPDX-License-Identifier: Apache-2.0 */
#include "core/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *e, int code, const char *where, const char *fmt, ...)
{
	va_list ap;

	if (e) {
		e->code = code;
		snprintf(e->where, sizeof e->where, "%s", where ? where : "");
		va_start(ap, fmt);
		vsnprintf(e->msg, sizeof e->msg, fmt, ap);
		va_end(ap);
	}
	return -code;
}

int err_errno(struct err *e, int code, const char *where, const char *fmt, ...)
{
	va_list ap;

	if (e) {
		size_t n;

		e->code = code;
		snprintf(e->where, sizeof e->where, "%s", where ? where : "");
		va_start(ap, fmt);
		vsnprintf(e->msg, sizeof e->msg, fmt, ap);
		va_end(ap);
		n = strlen(e->msg);
		snprintf(e->msg + n, sizeof e->msg - n, ": %s", strerror(code));
	}
	return -code;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	char inner[sizeof e->msg];
	va_list ap;
	size_t n;

	if (!e)
		return -1;
	memcpy(inner, e->msg, sizeof inner);
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof e->msg, fmt, ap);
	va_end(ap);
	n = strlen(e->msg);
	snprintf(e->msg + n, sizeof e->msg - n, ": %s", inner);
	return -e->code;
}
