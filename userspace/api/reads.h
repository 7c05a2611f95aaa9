/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may have the auditor read whole records now: each takes it up to some tenths of a second, and so many at a time. What
 * one project reads is not to keep the others from reading, nor a reviewer. Pure.
 */
#ifndef WEIR_API_READS_H
#define WEIR_API_READS_H

#include <stdbool.h>

#include "core/limits.h"
#include "core/tokens.h"

#define READS_SHARE 2 /* of each project, whatever the others do, as long as there is room */
#define READS_ALONE 4 /* a project may have more than its share while fewer than these are under way in all */
#define READS_KEPT 2  /* that only reviewers get */
_Static_assert(READS_ALONE + READS_SHARE + READS_KEPT <= LIMIT_AUDIT_READS, "who has the most leaves another its share");

struct reads {
	unsigned count;
	struct {
		bool taken;
		char project[TOKEN_PROJECT_MAX]; /* "": a reviewer's */
	} of[LIMIT_AUDIT_READS];
};

/* A place for one more of `project` ("": a reviewer's), to be given to reads_end(); -1: it may not now. */
int reads_begin(struct reads *r, const char *project);
void reads_end(struct reads *r, int place);

#endif
