/* SPDX-License-Identifier: Apache-2.0 */
/* What `weir run` hands to its sandbox: read from files and arguments, under the rules of a request. */
#ifndef WEIR_CLI_RUN_INPUT_H
#define WEIR_CLI_RUN_INPUT_H

#include <stddef.h>

#include "api/payload.h"
#include "core/err.h"
#include "core/limits.h"

/* Arguments, all borrowed. "-" as a file is standard input. */
struct run_input {
	const char *code; /* the snippet itself; NULL: it is in `script` */
	const char *script;
	const char *stdin_file;		   /* NULL: none */
	const char *files[LIMIT_FILES_IN]; /* placed under their base names */
	size_t file_count;
	const char *env[LIMIT_ENV_NAMES]; /* "NAME=VALUE" */
	size_t env_count;
};

/* What can be wrong with the arguments by themselves, whatever is in the files. */
int run_input_check(const struct run_input *in, struct err *e);

/* Reads it all, and checks it first. Fills *ret (the caller's), or names the argument that is at fault. */
int run_input_read(const struct run_input *in, struct payload *ret, struct err *e);

#endif
