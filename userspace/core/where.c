/* SPDX-License-Identifier: Apache-2.0 */
#include "core/where.h"

#include <stddef.h>
#include <string.h>

const char *where_problem(const char *text)
{
	const char *star = strchr(text, '*');
	size_t len = strlen(text);

	if (!len || (star && len == 1))
		return "names none";
	if (strchr(text, '/'))
		return "is a prefix";
	if (star && strchr(star + 1, '*'))
		return "has more than one *";
	if (star && star != text && star[1])
		return "has a * in its middle";
	return NULL;
}
