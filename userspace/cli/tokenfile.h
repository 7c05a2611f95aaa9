/* SPDX-License-Identifier: Apache-2.0 */
/* The files behind core/tokens.h, in the state directory: `tokens` and `tokens.used`, root's alone. */
#ifndef WEIR_CLI_TOKENFILE_H
#define WEIR_CLI_TOKENFILE_H

#include "core/err.h"
#include "core/tokens.h"

#define TOKENFILE_TABLE "tokens"
#define TOKENFILE_USED "tokens.used"

enum tokenfile_access {
	TOKENFILE_LIST,	  /* reads both; makes neither */
	TOKENFILE_SERVE,  /* reads the table, writes the times of use; makes what is missing */
	TOKENFILE_CHANGE, /* writes both, makes what is missing, and holds the lock that orders writers */
};

struct tokenfile {
	struct tokens_file *file; /* mapped; read-only unless CHANGE */
	struct tokens_used *used; /* mapped; NULL with LIST when there is none */
	int lock_fd;		  /* CHANGE: the table, locked; else -1 */
};

/*
 * Maps the files of the state directory `dir_fd`; `dir` is its path, for messages. A file that is not Weir's, has another size
 * or version, or that others than root can read or write is refused: the message says what to do. With LIST, -ENOENT when
 * there is no table. *ret is the caller's (tokenfile_close), touched only on success.
 */
int tokenfile_open(int dir_fd, const char *dir, enum tokenfile_access access, struct tokenfile *ret, struct err *e);

/* What has been changed is on the disk when this returns 0. */
int tokenfile_sync(const struct tokenfile *t, struct err *e);

/* Unmaps and unlocks. An empty one ({NULL, NULL, -1}) is fine. */
void tokenfile_close(struct tokenfile *t);

#endif
