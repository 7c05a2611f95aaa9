/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a request: names that stay inside the working directory and fit together, and contents within their limits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/request_priv.h"
#include "core/base64.h"
#include "core/filepath.h"
#include "core/limits.h"

const struct request_member request_file_members[FILE_MEMBERS] = {
    [FILE_PATH] = {.name = "path",
		   .type = "string",
		   .required = true,
		   .max = LIMIT_FILE_PATH_BYTES,
		   .description = "where, relative to the working directory; directories on the way are made"},
    [FILE_CONTENT] = {.name = "content",
		      .type = "string",
		      .one_of = true,
		      .max = LIMIT_FILES_IN_BYTES,
		      .description = "text, written as UTF-8, byte for byte"},
    [FILE_CONTENT_BASE64] = {.name = "content_base64",
			     .type = "string",
			     .one_of = true,
			     .base64 = true,
			     .max = BASE64_LEN(LIMIT_FILES_IN_BYTES),
			     .description = "bytes, as base64 with padding and without line breaks"},
};

/* Less in one request would not help here. */
static int refuse_long_path(struct parse *p)
{
	error_set_hint(p->error, "use a shorter path, with fewer directories and shorter names");
	return -1;
}

static int take_path(struct parse *p, const char *where, const struct jtext *value, struct payload_file *f)
{
	size_t len;
	char *path = jtext_string_in_place(p->body, value, &len);

	f->path = path;
	switch (filepath_normalise(path, len, path, &f->path_len)) {
	case FILEPATH_OK:
		return 0;
	case FILEPATH_NUL:
		return request_refuse(p, where, "expected a path without NUL");
	case FILEPATH_ESCAPES:
		error_set(p->error, ERROR_PATH_ESCAPES, NULL);
		error_set_hint(p->error, "at \"%s\": %s", where, error_row(ERROR_PATH_ESCAPES)->hint);
		return -1;
	case FILEPATH_EMPTY:
		return request_refuse(p, where, "expected a file's path, found that of the working directory itself");
	case FILEPATH_DIR:
		return request_refuse(p, where, "expected a file's path, found a directory's");
	case FILEPATH_LONG:
		request_too_large(p, "the path at \"%s\" is %zu bytes, over the limit of %d bytes", where, len,
				  LIMIT_FILE_PATH_BYTES);
		return refuse_long_path(p);
	case FILEPATH_NAME:
		request_too_large(p, "a name in the path at \"%s\" is over the limit of %d bytes", where,
				  LIMIT_FILE_NAME_BYTES);
		return refuse_long_path(p);
	case FILEPATH_DEEP:
		request_too_large(p, "the path at \"%s\" is over the limit of %d levels", where, LIMIT_FILES_IN_DEPTH);
		return refuse_long_path(p);
	}
	return request_refuse(p, where, "expected a path");
}

/* How two normalised paths stand to each other. */
enum relation { RELATION_NONE, RELATION_SAME, RELATION_BELOW, RELATION_ABOVE };

static enum relation relate(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t common = a_len < b_len ? a_len : b_len;

	if (memcmp(a, b, common) != 0)
		return RELATION_NONE;
	if (a_len == b_len)
		return RELATION_SAME;
	if (a_len > b_len)
		return a[b_len] == '/' ? RELATION_BELOW : RELATION_NONE;
	return b[a_len] == '/' ? RELATION_ABOVE : RELATION_NONE;
}

/* Whether `f` can be in one directory with what came before it, and with the script. */
static int check_place(struct parse *p, const char *where, const struct payload_file *f)
{
	enum relation r = relate(f->path, f->path_len, PAYLOAD_SCRIPT, strlen(PAYLOAD_SCRIPT));

	if (r != RELATION_NONE)
		return request_refuse(p, where, "expected another name than %s, which is the script's", PAYLOAD_SCRIPT);
	for (size_t i = 0; i < p->parts.file_count; i++) {
		const struct payload_file *other = &p->files[i];

		r = relate(f->path, f->path_len, other->path, other->path_len);
		if (r == RELATION_SAME)
			return request_refuse(p, where, "expected each path once, found that of \"/files/%zu/path\" again", i);
		if (r == RELATION_BELOW)
			return request_refuse(p, where,
					      "expected a directory on the way, found the file of \"/files/%zu/path\"", i);
		if (r == RELATION_ABOVE)
			return request_refuse(p, where, "expected a file, found a directory on the way to \"/files/%zu/path\"",
					      i);
	}
	return 0;
}

static int take_content(struct parse *p, const char *where, const struct jtext *values, struct payload_file *f, size_t used)
{
	bool encoded = values[FILE_CONTENT_BASE64].text;
	char *text = jtext_string_in_place(p->body, &values[encoded ? FILE_CONTENT_BASE64 : FILE_CONTENT], &f->len);
	size_t text_len = f->len;

	f->content = text;
	if (encoded) {
		ssize_t n = base64_decoded_len(text, text_len);
		char inner[WHERE_MAX];

		if (n < 0) {
			request_point(inner, where, "content_base64", strlen("content_base64"));
			return request_refuse(p, inner,
					      "expected base64 with padding, without line breaks and of the standard alphabet");
		}
		f->len = (size_t)n;
	}
	if (f->len > LIMIT_FILES_IN_BYTES - used)
		return request_too_large(p, "files are over the limit of %d bytes together", LIMIT_FILES_IN_BYTES);
	if (encoded)
		base64_decode(text, text, text_len);
	return 0;
}

static int take_file(struct parse *p, const char *where, const struct jtext *value, size_t used)
{
	struct payload_file *f = &p->files[p->parts.file_count];
	struct jtext values[FILE_MEMBERS];
	char inner[WHERE_MAX];

	if (request_read_members(p, where, value, request_file_members, FILE_MEMBERS, values) < 0)
		return -1;
	request_point(inner, where, "path", strlen("path"));
	if (take_path(p, inner, &values[FILE_PATH], f) < 0 || check_place(p, inner, f) < 0 ||
	    take_content(p, where, values, f, used) < 0)
		return -1;
	p->parts.file_count++;
	return 0;
}

int request_take_files(struct parse *p, const char *where, const struct jtext *array)
{
	const char *at = NULL;
	struct jtext value;
	size_t used = 0;

	p->parts.files = p->files = calloc(LIMIT_FILES_IN, sizeof *p->files);
	if (!p->files)
		return request_no_memory(p);
	while (jtext_next(array, &at, NULL, &value)) {
		char inner[WHERE_MAX];

		if (p->parts.file_count == LIMIT_FILES_IN)
			return request_too_large(p, "files are over the limit of %d files", LIMIT_FILES_IN);
		request_point_index(inner, where, p->parts.file_count);
		if (take_file(p, inner, &value, used) < 0)
			return -1;
		used += p->files[p->parts.file_count - 1].len;
	}
	return 0;
}
