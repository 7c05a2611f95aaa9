/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/envname.h"
#include "core/filepath.h"

#define READ_BYTES (256u << 10)

/* What is being put together; freed whatever comes of it. */
struct gathered {
	struct payload_parts parts;
	struct payload_file files[LIMIT_FILES_IN];
	char *code, *stdin_text, *env;
};

/* Reads until the end, or until there is more than `limit`: then *ret_len is over it. */
static int read_limited(const char *name, size_t limit, char **ret, size_t *ret_len, struct err *e)
{
	_cleanup_fd_ int fd = strcmp(name, "-") != 0 ? open(name, O_RDONLY | O_CLOEXEC) : dup(STDIN_FILENO);
	_cleanup_free_ char *text = NULL;
	size_t len = 0, room = 0;
	ssize_t n;

	if (fd < 0)
		return err_errno(e, errno, "", "open %s", name);
	do {
		if (len == room) {
			char *grown = realloc(text, room = room * 2 + READ_BYTES);

			if (!grown)
				return err_set(e, ENOMEM, "", "out of memory");
			text = grown;
		}
		n = read(fd, text + len, room - len);
		if (n < 0 && errno != EINTR)
			return err_errno(e, errno, "", "read %s", name);
		len += n > 0 ? (size_t)n : 0;
	} while (n != 0 && len <= limit);
	*ret = TAKE_PTR(text);
	*ret_len = len;
	return 0;
}

static int read_code(const struct run_input *in, struct gathered *g, struct err *e)
{
	int rc = 0;

	if (in->code) {
		g->parts.code = in->code;
		g->parts.code_len = strlen(in->code);
	} else {
		rc = read_limited(in->script, LIMIT_CODE_BYTES, &g->code, &g->parts.code_len, e);
		g->parts.code = g->code;
	}
	if (rc == 0 && g->parts.code_len > LIMIT_CODE_BYTES)
		return err_set(e, E2BIG, "", "the snippet is over %d bytes", LIMIT_CODE_BYTES);
	return rc;
}

static int read_stdin(const struct run_input *in, struct gathered *g, struct err *e)
{
	int rc;

	if (!in->stdin_file)
		return 0;
	rc = read_limited(in->stdin_file, LIMIT_STDIN_BYTES, &g->stdin_text, &g->parts.stdin_len, e);
	g->parts.stdin_text = g->stdin_text;
	if (rc == 0 && g->parts.stdin_len > LIMIT_STDIN_BYTES)
		return err_set(e, E2BIG, "--stdin", "%s is over %d bytes", in->stdin_file, LIMIT_STDIN_BYTES);
	return rc;
}

static int check_env(const struct run_input *in, struct err *e)
{
	size_t used = 0;

	for (size_t i = 0; i < in->env_count; i++) {
		const char *text = in->env[i];
		size_t name = strcspn(text, "="), len = strlen(text) + 1;
		enum envname_problem problem = envname_check(text, name);

		if (problem == ENVNAME_RESERVED)
			return err_set(e, EINVAL, "--env", "%.*s is reserved by the platform", (int)name, text);
		if (problem != ENVNAME_OK || !text[name])
			return err_set(e, EINVAL, "--env", "expected NAME=VALUE, and no control character in the name");
		for (size_t j = 0; j < i; j++)
			if (!strncmp(in->env[j], text, name + 1))
				return err_set(e, EINVAL, "--env", "%.*s is given twice", (int)name, text);
		if (len > LIMIT_ENV_BYTES - used)
			return err_set(e, E2BIG, "--env", "the variables are over %d bytes together", LIMIT_ENV_BYTES);
		used += len;
	}
	return 0;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int check_files(const struct run_input *in, struct err *e)
{
	for (size_t i = 0; i < in->file_count; i++) {
		const char *base = base_name(in->files[i]);
		char path[LIMIT_FILE_NAME_BYTES + 1];
		size_t len = strlen(base);

		if (len > LIMIT_FILE_NAME_BYTES || filepath_normalise(base, len, path, &len) != FILEPATH_OK)
			return err_set(e, EINVAL, "--file", "%s does not end in the name of a file", in->files[i]);
		if (!strcmp(base, PAYLOAD_SCRIPT))
			return err_set(e, EINVAL, "--file", "%s is the snippet's own name there: give the file another",
				       PAYLOAD_SCRIPT);
		for (size_t j = 0; j < i; j++)
			if (!strcmp(base_name(in->files[j]), base))
				return err_set(e, EINVAL, "--file", "two files would be called %s", base);
	}
	return 0;
}

int run_input_check(const struct run_input *in, struct err *e)
{
	int rc = check_env(in, e);

	return rc == 0 ? check_files(in, e) : rc;
}

static int read_env(const struct run_input *in, struct gathered *g, struct err *e)
{
	if (!in->env_count)
		return 0;
	g->parts.env = g->env = malloc(LIMIT_ENV_BYTES);
	if (!g->env)
		return err_set(e, ENOMEM, "", "out of memory");
	for (size_t i = 0; i < in->env_count; i++) {
		size_t len = strlen(in->env[i]) + 1;

		memcpy(g->env + g->parts.env_len, in->env[i], len);
		g->parts.env_len += len;
	}
	return 0;
}

static int read_file(struct gathered *g, const char *name, size_t *used, struct err *e)
{
	struct payload_file *f = &g->files[g->parts.file_count];
	char *content = NULL;
	int rc = read_limited(name, LIMIT_FILES_IN_BYTES - *used, &content, &f->len, e);

	if (rc < 0)
		return rc;
	f->path = base_name(name);
	f->path_len = strlen(f->path);
	f->content = content;
	g->parts.file_count++;
	if (f->len > LIMIT_FILES_IN_BYTES - *used)
		return err_set(e, E2BIG, "--file", "the files are over %d bytes together", LIMIT_FILES_IN_BYTES);
	*used += f->len;
	return 0;
}

static int read_files(const struct run_input *in, struct gathered *g, struct err *e)
{
	size_t used = 0;
	int rc = 0;

	g->parts.files = g->files;
	for (size_t i = 0; rc == 0 && i < in->file_count; i++)
		rc = read_file(g, in->files[i], &used, e);
	return rc;
}

int run_input_read(const struct run_input *in, struct payload *ret, struct err *e)
{
	struct gathered g = {0};
	int rc = run_input_check(in, e);

	if (rc == 0)
		rc = read_code(in, &g, e);
	if (rc == 0)
		rc = read_stdin(in, &g, e);
	if (rc == 0)
		rc = read_env(in, &g, e);
	if (rc == 0)
		rc = read_files(in, &g, e);
	if (rc == 0 && payload_make(ret, &g.parts) < 0)
		rc = err_set(e, ENOMEM, "", "out of memory");
	for (size_t i = 0; i < g.parts.file_count; i++)
		free((char *)g.files[i].content);
	free(g.code);
	free(g.stdin_text);
	free(g.env);
	return rc;
}
