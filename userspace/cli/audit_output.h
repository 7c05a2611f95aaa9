/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where `weir audit report` and `weir audit export` write: standard output, or a file that is whole or not there.
 *
 * What goes into the file is written by a process without privileges (audit_open.h), which could not give it its name in a
 * directory of root's. So there are two: the caller goes on in a child, with a temporary beside the file, and the
 * process that was started only waits for its end, with the rights that it has. A child that ends well has its file put in the
 * place of an earlier one, with one rename; after any other end nothing is left and the earlier one is as it was.
 */
#ifndef WEIR_CLI_AUDIT_OUTPUT_H
#define WEIR_CLI_AUDIT_OUTPUT_H

#include <stdio.h>

#include "core/err.h"

/*
 * To be called before anything is printed and before privileges are dropped. `path`: NULL or "-" is stdout; a link is not
 * followed; a pipe or a device is written to directly. Of a file only the child returns with 0 and *ret, for
 * audit_output_close(); its exit status becomes that of the process that was started. That one returns only when something is
 * wrong with the file.
 */
int audit_output_open(const char *path, FILE **ret, struct err *e);

/* Closes it, if it is no stdout: that is its owner's to flush. What could not be written is an error. NULL-safe. */
int audit_output_close(FILE *f, const char *path, struct err *e);

#endif
