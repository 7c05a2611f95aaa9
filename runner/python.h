/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the Python that snippets run on: the operator's own, or the one inside an image. */
#ifndef WEIR_RUNNER_PYTHON_H
#define WEIR_RUNNER_PYTHON_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"

#define PYTHON_WANTED "3.12"
#define PYTHON_OLDEST_MINOR 8 /* of Python 3, in an image */

struct python {
	char version[32];     /* "3.12.1" */
	char executable[256]; /* of the host: the real file, no shim, no link. Inside an image: the path to start it by */
	char prefix[256];     /* sys.base_prefix */
	char stdlib[256];     /* directory of the standard library, below prefix */
	char platlib[256];    /* directory of its extension modules' parent; often the same */
	char site[256];	      /* first site directory: where a .pth file is read */
	/* Inside an image only: */
	char matplotlib[256]; /* the package's directory; "" when there is none */
	unsigned modules,
	    compiled;	/* .py files below the site and library directories (up to 50,000); with bytecode that fits */
	char slow[201]; /* those of these directories, with blanks between, where some have none */
};

/*
 * `configured`: path of an interpreter, used as it is; NULL to look for PYTHON_WANTED on PATH, in pyenv and in the usual
 * places, and only then for another Python 3. The candidates are run, as the caller, isolated (-I) and under a time
 * limit: nothing is guessed from a path.
 */
int python_find(const char *configured, struct python *ret, struct err *e);

/*
 * The same inside the root directory `root` (absolute). `configured`: a path in there, or a name that is looked for where
 * programs usually are; NULL: python3. What is in an image is not trusted: the interpreter is run, to be asked, as pid 1 of
 * namespaces of its own with nothing but that directory (read-only), as uid UID_IMAGE, with no capability, under the system
 * call filter of snippets, with limits and for at most 10 s. The caller is root; errors name what is wrong with the image.
 */
int python_find_inside(const char *root, const char *configured, struct python *ret, struct err *e);

/*
 * The same where nobody has said which: python3, then python, in each directory of `path` (a PATH as an image's environment
 * says it; NULL or "": none), then where programs usually are. The first that answers as it should is the one: so a virtual
 * environment's comes before the interpreter it was made with, and is started by its own path, by which it finds its packages.
 */
int python_find_on(const char *root, const char *path, struct python *ret, struct err *e);

/* ---- what the two share ---- */

/* Milliseconds of CLOCK_MONOTONIC. */
long long python_now_ms(void);

/* Reads until the end, `until`, or one byte too many; `buf` is terminated. Returns whether it was the end. */
bool python_read_all(int fd, char *buf, size_t size, long long until);

/* Reads what the probe printed: 0, -ENOEXEC (not that), or -EINVAL (fields too long). */
int python_parse(const char *text, struct python *ret);

/* What every probe prints, as lines of a dictionary `found`; then comes what only one of them asks. */
#define PYTHON_PROBE_COMMON                                                                                                    \
	"import sys, os, json, site, sysconfig\n"                                                                              \
	"found = {\n"                                                                                                          \
	"  'version': '%d.%d.%d' % sys.version_info[:3],\n"                                                                    \
	"  'prefix': sys.base_prefix,\n"                                                                                       \
	"  'stdlib': sysconfig.get_path('stdlib'),\n"                                                                          \
	"  'platlib': sysconfig.get_path('platstdlib')}\n"

#endif
