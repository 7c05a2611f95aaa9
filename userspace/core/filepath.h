/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of files that a request puts into a working directory. Text only; links are the harness's to refuse. Pure. */
#ifndef WEIR_CORE_FILEPATH_H
#define WEIR_CORE_FILEPATH_H

#include <stddef.h>

enum filepath_problem {
	FILEPATH_OK,
	FILEPATH_NUL,	  /* a NUL byte */
	FILEPATH_ESCAPES, /* absolute, or leaves through ".." at any point of the way */
	FILEPATH_EMPTY,	  /* "", ".", "a/..": it names the directory itself */
	FILEPATH_DIR,	  /* ends in "/", "/." or "/..": it names a directory */
	FILEPATH_LONG,	  /* over LIMIT_FILE_PATH_BYTES, as it came */
	FILEPATH_NAME,	  /* a name over LIMIT_FILE_NAME_BYTES */
	FILEPATH_DEEP,	  /* over LIMIT_FILES_IN_DEPTH levels */
};

/*
 * Writes the path without ".", ".." and empty components to ret (at least len bytes; not terminated; may be `path` itself)
 * and its length to *ret_len. "folder/../hm" is "hm". A backslash is a letter like any other. Of several problems, the first
 * in the order above is told; ret may have been written to all the same.
 */
enum filepath_problem filepath_normalise(const char *path, size_t len, char *ret, size_t *ret_len);

#endif
