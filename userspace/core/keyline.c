/* SPDX-License-Identifier: Apache-2.0 */
#include "core/keyline.h"

#include <string.h>

const char *keyline_find(const char *text, const char *key, char separator)
{
	size_t n = strlen(key);

	while (strncmp(text, key, n) != 0 || text[n] != separator) {
		text = strchr(text, '\n');
		if (!text)
			return NULL;
		text++;
	}
	return text + n + 1;
}
