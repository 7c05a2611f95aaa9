/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening the record from the command line. Its database is written by a process that reads what strangers wrote, so root does
 * not read it: what is root's in the state directory (public key, head) is read first, then this process becomes, for good, who
 * the record belongs to, with no capability left, and only then the database is opened.
 */
#ifndef WEIR_CLI_AUDIT_OPEN_H
#define WEIR_CLI_AUDIT_OPEN_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "auditor/store.h"
#include "core/err.h"
#include "core/signing.h"

struct audit_record {
	int dir;		   /* the record's directory; -1: not open */
	char path[PATH_MAX];	   /* of it, for messages */
	struct store *store;	   /* NULL after audit_enter() */
	bool has_public, has_head; /* the files are there */
	uint8_t public[SIGNING_PUBLIC];
	struct chain_head head;
};

/*
 * Everything but opening the database: from here on this process is nobody. Files that are to be written must be open by then.
 * -ENOENT when no record is there. *ret is the caller's (audit_close), touched only on success.
 */
int audit_enter(struct audit_record *ret, const char *state_dir, struct err *e);
/* That, and the database. */
int audit_open(struct audit_record *ret, const char *state_dir, struct err *e);
/* What to do about a record that can't be read for want of rights: fills e, returns -EACCES. */
int audit_open_refused(const struct audit_record *r, struct err *e);
void audit_close(struct audit_record *r);

#endif
