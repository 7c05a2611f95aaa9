/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the collector says about a working directory, read in place. It has looked at a stranger's files, so it is not believed
 * either: a client's paths and sizes come from here.
 */
#include <string.h>

#include "api/runclient.h"
#include "core/limits.h"
#include "core/utf8.h"

/* Cuts the next entry off the front. Returns its whole length, 0 when there is none that is whole. */
static size_t entry_at(const char *data, size_t len, struct collected_entry *ret)
{
	size_t rest;

	if (len < sizeof *ret)
		return 0;
	memcpy(ret, data, sizeof *ret); /* the path before it has any length, so nothing is aligned */
	rest = len - sizeof *ret;
	if (ret->path_len > rest)
		return 0;
	rest -= ret->path_len;
	if (ret->kind != COLLECTED_FILE)
		return len - rest;
	return ret->size > rest ? 0 : len - rest + (size_t)ret->size;
}

/* Relative, without an empty component, "." or "..": a client may write a file below a directory of its own under this name. */
static bool plain_path(const char *path, size_t len)
{
	while (len) {
		const char *slash = memchr(path, '/', len);
		size_t name = slash ? (size_t)(slash - path) : len;

		if (name == 0 || (name == 1 && path[0] == '.') || (name == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		if (!slash)
			return true;
		path += name + 1;
		len -= name + 1;
	}
	return false;
}

static bool utf8_ok(const char *text, size_t len)
{
	bool valid = true;

	for (size_t at = 0; valid && at < len;)
		at += utf8_next(text + at, len - at, &valid);
	return valid;
}

bool run_files_ok(const char *data, size_t len)
{
	size_t files = 0, skipped = 0, n;

	for (size_t at = 0; at < len; at += n) {
		struct collected_entry e;
		const char *path = data + at + sizeof e;

		n = entry_at(data + at, len - at, &e);
		if (!n || e.kind >= COLLECTED_KINDS || memchr(path, 0, e.path_len) || !plain_path(path, e.path_len))
			return false;
		if (utf8_ok(path, e.path_len) == (e.kind == COLLECTED_NAME))
			return false;
		if (e.kind == COLLECTED_FILE ? e.size > LIMIT_FILE_OUT_BYTES || ++files > LIMIT_FILES_OUT
					     : ++skipped > LIMIT_FILES_SKIPPED)
			return false;
	}
	return true;
}

bool run_files_next(const struct run_files *f, size_t *at, struct collected_entry *ret, const char **ret_path,
		    const char **ret_content)
{
	size_t n = *at < f->len ? entry_at(f->data + *at, f->len - *at, ret) : 0;

	if (!n)
		return false;
	*ret_path = f->data + *at + sizeof *ret;
	*ret_content = ret->kind == COLLECTED_FILE ? *ret_path + ret->path_len : NULL;
	*at += n;
	return true;
}
