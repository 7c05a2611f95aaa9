/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weir audit`: what runs did, read from a state directory; needs no running service.
 *
 * audit_cmd.c has the arguments, and a table of what can be done with them: each row is a function below, in a file of its own.
 */
#ifndef WEIR_CLI_AUDIT_CMD_H
#define WEIR_CLI_AUDIT_CMD_H

#include <stdbool.h>

#include "core/chain.h"
#include "core/err.h"
#include "ipc/ipc.h"

/* Checked already; what was not given is NULL, false or zero. */
struct audit_args {
	const char *state_dir; /* the state directory, always there */
	const char *id;	       /* which run */
	struct find find;   /* --since, --until, --project, --policy, --destination, --verdict, --end; `limit` and `after` 0 */
	long limit;	    /* --limit: how many; 0 all, -1 not given */
	const char *format; /* --format: one of those that audit_cmd.c's table has for it */
	const char *output; /* -o: a file instead of standard output; open it before audit_open() drops privileges */
	uint8_t expect[64][CHAIN_HASH]; /* --expect: hashes */
	size_t expect_count;
	const char *public_key; /* --public-key: a file */
	bool json;
};

/*
 * Prints to stdout, or args->output. Returns an exit status that is no error's, 0 when all is well, or a negative errno with *e
 * filled: then 1 is the status, and the message goes to stderr.
 */
typedef int audit_fn(const struct audit_args *args, struct err *e);
audit_fn audit_ls, audit_show; /* audit_show.c */
audit_fn audit_verify;	       /* audit_verify.c */
audit_fn audit_export;	       /* audit_export.c */
audit_fn audit_report;	       /* audit_report.c */

/* `verify`'s own exit statuses, beside 0. */
#define AUDIT_FINDINGS 1
#define AUDIT_UNCHECKED 2

/*
 * argv[0] is "audit". Prints to stdout, complaints to stderr. Returns the exit status: 0, 1 for an unknown run or a
 * record that can't be read, 64 (EX_USAGE) for arguments that make no sense; `verify` has its own (audit_verify.c).
 */
int audit_cmd(int argc, char **argv);

#endif
