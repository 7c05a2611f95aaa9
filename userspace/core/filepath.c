/* SPDX-License-Identifier: Apache-2.0 */
#include "core/filepath.h"

#include <stdbool.h>
#include <string.h>

#include "core/limits.h"

/* Where the last component of `path` begins. */
static size_t last_component(const char *path, size_t len)
{
	const char *slash = memrchr(path, '/', len);

	return slash ? (size_t)(slash - path) + 1 : 0;
}

enum filepath_problem filepath_normalise(const char *path, size_t len, char *ret, size_t *ret_len)
{
	size_t used = 0, levels = 0, longest = 0;
	bool directory = false;

	if (memchr(path, 0, len))
		return FILEPATH_NUL;
	if (len > 0 && path[0] == '/')
		return FILEPATH_ESCAPES;
	for (size_t at = 0; at < len;) {
		const char *slash = memchr(path + at, '/', len - at);
		size_t end = slash ? (size_t)(slash - path) : len, n = end - at;
		bool up = n == 2 && path[at] == '.' && path[at + 1] == '.';

		directory = up || n == 0 || (n == 1 && path[at] == '.') || end + 1 == len;
		if (up) {
			size_t from = last_component(ret, used);

			if (levels == 0)
				return FILEPATH_ESCAPES;
			levels--;
			used = from ? from - 1 : 0;
		} else if (n > 0 && !(n == 1 && path[at] == '.')) {
			if (levels++ > 0)
				ret[used++] = '/';
			/* What is written never overtakes what is read: ret may be path. */
			memmove(ret + used, path + at, n);
			used += n;
			if (n > longest)
				longest = n;
		}
		at = end + 1;
	}
	if (used == 0)
		return FILEPATH_EMPTY;
	if (directory)
		return FILEPATH_DIR;
	if (len > LIMIT_FILE_PATH_BYTES)
		return FILEPATH_LONG;
	if (longest > LIMIT_FILE_NAME_BYTES)
		return FILEPATH_NAME;
	if (levels > LIMIT_FILES_IN_DEPTH)
		return FILEPATH_DEEP;
	*ret_len = used;
	return FILEPATH_OK;
}
