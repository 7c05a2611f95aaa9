/* SPDX-License-Identifier: Apache-2.0 */
/* Which shared objects a program needs: read from the ELF files of the operator, never by running them. */
#ifndef WEIR_RUNNER_ELFDEPS_H
#define WEIR_RUNNER_ELFDEPS_H

#include <stddef.h>

#include "core/err.h"

struct elfdeps;

struct elfdeps *elfdeps_new(void); /* NULL when out of memory */
struct elfdeps *elfdeps_free(struct elfdeps *d);

/*
 * Adds what `path` (an ELF file; anything else is quietly none) and its libraries need. A library that can't be found is
 * not an error here: an optional extension module may lack it on the host as well.
 */
int elfdeps_add(struct elfdeps *d, const char *path, struct err *e);

/* Adds one library by its name, with what it needs. Not found is not an error. */
int elfdeps_add_soname(struct elfdeps *d, const char *soname, struct err *e);

/* The i-th library found: the name it is asked for by (soname) and the file. NULL past the end. */
const char *elfdeps_soname(const struct elfdeps *d, size_t i);
const char *elfdeps_path(const struct elfdeps *d, size_t i);

/* The dynamic loader the programs ask for (PT_INTERP); "" when none did. */
const char *elfdeps_loader(const struct elfdeps *d);

#endif
