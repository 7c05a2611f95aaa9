/* SPDX-License-Identifier: Apache-2.0 */
#include "core/envname.h"

#include <stdbool.h>
#include <string.h>

/* Controls of ASCII and of Latin-1, which in UTF-8 are c2 80 to c2 9f. */
static bool has_control(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c < 0x20 || c == 0x7f || (c == 0xc2 && i + 1 < len && (unsigned char)text[i + 1] < 0xa0))
			return true;
	}
	return false;
}

static bool reserved(const char *name, size_t len)
{
	static const struct {
		const char *text;
		bool whole;
	} rows[] = {{"SANDBOX_", false}, {"CODE_INTERPRETER_", false}, {"TOOL_SANDBOX", true}};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t n = strlen(rows[i].text);

		if (len >= n && !memcmp(name, rows[i].text, n) && (len == n || !rows[i].whole))
			return true;
	}
	return false;
}

enum envname_problem envname_check(const char *name, size_t len)
{
	if (len == 0)
		return ENVNAME_EMPTY;
	if (memchr(name, '=', len))
		return ENVNAME_EQUALS;
	if (has_control(name, len))
		return ENVNAME_CONTROL;
	return reserved(name, len) ? ENVNAME_RESERVED : ENVNAME_OK;
}
