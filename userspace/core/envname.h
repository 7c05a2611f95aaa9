/* SPDX-License-Identifier: Apache-2.0 */
/* Names of environment variables that a request may set. Pure. */
#ifndef WEIR_CORE_ENVNAME_H
#define WEIR_CORE_ENVNAME_H

#include <stddef.h>

enum envname_problem {
	ENVNAME_OK,
	ENVNAME_EMPTY,
	ENVNAME_EQUALS,	  /* "=" in it */
	ENVNAME_CONTROL,  /* a control character in it, NUL among them; in UTF-8, those of Latin-1 too */
	ENVNAME_RESERVED, /* the platform tells its own things by it: SANDBOX_*, CODE_INTERPRETER_*, TOOL_SANDBOX */
};

/* `name` of `len` bytes, not terminated. Of several problems, the first in the order above is told. */
enum envname_problem envname_check(const char *name, size_t len);

#endif
