/* SPDX-License-Identifier: Apache-2.0 */
#include "core/when.h"

#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "core/rfc3339.h"

static int parse_ago(const char *text, uint64_t now_ns, uint64_t *ret_ns)
{
	static const struct {
		char unit;
		uint64_t seconds;
	} units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 7 * 86400}};
	size_t len = strspn(text, "0123456789");
	uint64_t n = 0;

	if (!len || len > 9)
		return -EINVAL;
	for (size_t i = 0; i < len; i++)
		n = n * 10 + (uint64_t)(text[i] - '0');
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
		if (text[len] != units[i].unit || (text[len + 1] && strcmp(text + len + 1, " ago") != 0))
			continue;
		/* 64 bits hold the seconds of 1e9 weeks, and not their nanoseconds. Before the clock's zero is its zero. */
		n *= units[i].seconds;
		*ret_ns = n >= now_ns / SECOND_NS ? 0 : now_ns - n * SECOND_NS;
		return 0;
	}
	return -EINVAL;
}

int when_parse(const char *text, uint64_t now_ns, uint64_t *ret_ns)
{
	return parse_ago(text, now_ns, ret_ns) == 0 ? 0 : rfc3339_parse(text, ret_ns);
}
