/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox is handed, in the form in which it is sent (struct request_header of ipc.h and what follows it), and what is
 * to be remembered of it: the digests by which the collector tells a file that came in from one that is new. Pure.
 */
#ifndef WEIR_API_PAYLOAD_H
#define WEIR_API_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "ipc/ipc.h"

/* The script, as paths of files are: relative to the working directory. */
#define PAYLOAD_SCRIPT "main.py"

struct payload {
	char *data; /* malloc'd: header, code, standard input, environment, files */
	size_t len;
	struct file_digest *digests; /* malloc'd: of every file, and of the script of a run for single use */
	size_t digest_count;
};

/* One file of a request; all borrowed. `path` is normalised (filepath_normalise), not terminated. */
struct payload_file {
	const char *path, *content;
	size_t path_len, len;
};

struct payload_parts {
	bool session;
	bool call; /* of a tool: `code` is its name, `stdin_text` its arguments, and there is nothing else */
	const char *code, *stdin_text; /* stdin_text NULL: none was given */
	size_t code_len, stdin_len;
	const char *env; /* "NAME=VALUE" strings, each with its NUL */
	size_t env_len;
	const struct payload_file *files;
	size_t file_count;
};

/* Copies everything. Returns 0 or -ENOMEM; *ret is touched only on success. Limits are the caller's to have checked. */
int payload_make(struct payload *ret, const struct payload_parts *parts);

/* Frees what it holds and empties it. An empty one is fine. */
void payload_clear(struct payload *p);

/* The digest of one file. */
void payload_digest(struct file_digest *ret, const char *path, size_t path_len, const void *content, size_t len);

#endif
