/* SPDX-License-Identifier: Apache-2.0 */
#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static const char *log_component = "weir";
static enum log_level log_max = LOG_LVL_INFO;

void log_init(const char *component, enum log_level max)
{
	log_component = component;
	log_max = max;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};
	char line[1024];
	va_list ap;
	int n, m;

	if (level > log_max)
		return;
	n = snprintf(line, sizeof line, "weir[%s]: %s: ", log_component, names[level]);
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
	va_end(ap);
	if (m < 0)
		return;
	n += m < (int)sizeof line - n - 1 ? m : (int)sizeof line - n - 2;
	line[n++] = '\n';
	/* One write, so that lines of several processes do not mix. Nobody is left to tell when stderr is gone. */
	(void)!write(STDERR_FILENO, line, (size_t)n);
}
