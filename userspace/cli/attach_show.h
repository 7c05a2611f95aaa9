/* SPDX-License-Identifier: Apache-2.0 */
/* Attachments as people and machines read them. What a workload or its runtime named is made safe for a terminal. */
#ifndef WEIR_CLI_ATTACH_SHOW_H
#define WEIR_CLI_ATTACH_SHOW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "attach/attach.h"

/* One attachment and what is known of it now. Borrowed, all of it. */
struct attach_view {
	const struct attachment *a;	  /* its id is "" when it was refused */
	const struct attach_check *check; /* NULL: nothing was put on it, so there is nothing to ask */
	const struct inspection *seen;	  /* what ran there when it was attached; NULL: that is over */
	bool with_sockets;		  /* the attachment's own list is there */
};

/* A new object. */
json_t *attach_show_json(const struct attach_view *v);
/* {"written", "by_pid", "text"}: whether a service writes events. A new object. */
json_t *attach_events_json(int by_pid);
const char *attach_events_text(char ret[160], int by_pid);

/* Takes the object; prints it to standard output, on one line or on many. */
int attach_print_json(json_t *j, bool one_line, struct err *e);

/* Everything of one, in paragraphs. */
void attach_show_text(FILE *to, const struct attach_view *v);
/* Its coverage and each reason: of one that was refused, too. */
void attach_show_coverage(FILE *to, const struct attachment *a);

/* Whether anything of it is on its cgroup: not when that is gone, or was made anew. */
bool attach_is_on(const struct attach_check *c);
/* The workload's own share of the counters, of a parent that of what is unknown: without what the latest canary tried. */
struct weir_sandbox attach_own_counters(const struct attachment *a, const struct attach_check *c);

/* What the table has of one. A whole check is large, and there are hundreds. */
struct attach_row {
	const struct attachment *a; /* borrowed */
	enum attach_state state;
	bool on, readable;
	uint64_t denied, would_deny, attempts;
	__typeof__(((struct attach_check *)0)->problems[0]) *problems; /* owned */
	size_t problem_count;
};
int attach_row_fill(struct attach_row *ret, const struct attachment *a, const struct attach_check *c, struct err *e);
void attach_row_clear(struct attach_row *r);

/* A table, and below it the problems with what mends them. Those whose cgroup is gone come last, and not all of them. */
void attach_show_table(const struct attach_row *rows, size_t count);

/* What is not printable becomes '?'; for a line on a terminal. Cut to `size`. Both may be the same. Returns `ret`. */
char *attach_plain(char *ret, size_t size, const char *text);

/* "pod 6f3d…", "container 3f2a1b…", a path: what it is on, in at most `width` characters. Returns `ret`. */
#define ATTACH_TARGET_TEXT 160
char *attach_target_text(char ret[ATTACH_TARGET_TEXT], const struct attachment *a, size_t width);

#endif
