/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the operator's Python: the interpreter that snippets run on. */
#ifndef WEIR_RUNNER_PYTHON_H
#define WEIR_RUNNER_PYTHON_H

#include "core/err.h"

#define PYTHON_WANTED "3.12"

struct python {
	char version[32];     /* "3.12.1" */
	char executable[256]; /* the real file, no shim, no link */
	char prefix[256];     /* sys.base_prefix */
	char stdlib[256];     /* directory of the standard library, below prefix */
	char platlib[256];    /* directory of its extension modules' parent; often the same */
	char site[256];	      /* first site directory, below prefix: where a .pth file is read */
};

/*
 * `configured`: path of an interpreter, used as it is; NULL to look for PYTHON_WANTED on PATH, in pyenv and in the usual
 * places, and only then for another Python 3. The candidates are run, as the caller, isolated (-I) and under a time
 * limit: nothing is guessed from a path.
 */
int python_find(const char *configured, struct python *ret, struct err *e);

#endif
