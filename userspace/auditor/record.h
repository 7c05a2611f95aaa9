/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From notes to records. A record is one JSON object on one line:
 *
 *   {"seq":N,"type":"egress","run_id":"..","time":"..","boot_ns":N,"sandbox_id":"..","project":"..", ...}
 *
 * types: run_begin, egress (first attempt of a flow), flow (its final count), run_end, policy (another one is in force: once
 * with an empty run_id, and once for each run under way), gap (something is missing from the record, and what is known about
 * it); of what had a policy put on it while it ran also target, place, coverage (what of the policy does not hold), socket (was
 * open before) and drift. The first three members always come first and in this order, which is what
 * lets an index of half a gigabyte of them be made without parsing each (record_head_parse). Pure: no files here.
 */
#ifndef WEIR_AUDITOR_RECORD_H
#define WEIR_AUDITOR_RECORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/ipc.h"

#define RECORD_LINE_MAX 16384 /* bytes, newline included; the longest that record_line makes is under a quarter of it */

enum record_type {
	RECORD_OTHER, /* a type this version does not know */
	RECORD_RUN_BEGIN,
	RECORD_EGRESS,
	RECORD_FLOW,
	RECORD_RUN_END,
	RECORD_GAP,
	RECORD_POLICY,
	RECORD_TARGET,	 /* of an attachment: what has the policy .. */
	RECORD_PLACE,	 /* .. where it is .. */
	RECORD_COVERAGE, /* .. and what of the policy does not hold on it */
	RECORD_SOCKET,
	RECORD_DRIFT,
	RECORD_CGROUP,
	RECORD_TYPE_COUNT,
};
extern const char *const record_type_names[RECORD_TYPE_COUNT];

/* Why a gap record was written, its member "kind". */
#define RECORD_GAP_SWEEP "sweep"	     /* NOTE_GAP: a supervisor died; what its successor found */
#define RECORD_GAP_TORN "torn"		     /* a line cut off by a crash was removed */
#define RECORD_GAP_UNWRITTEN "unwritten"     /* records that could not be written, and so are not there */
#define RECORD_GAP_UNSYNCED "unsynced"	     /* the disk did not confirm earlier records: they may not survive a crash */
#define RECORD_GAP_INTERRUPTED "interrupted" /* runs before this record that have no end will never get one */
#define RECORD_GAP_REFUSED "refused"	     /* notes that were not well-formed */
#define RECORD_GAP_UNDRAINED "undrained"     /* NOTE_UNDRAINED: nobody wrote an attachment's events; with its run_id */

/* Whether the array holds a terminated, non-empty id of [A-Za-z0-9._-]. */
bool record_id_ok(const char *text, size_t size);

/* The same for a project, which may also be empty. */
bool record_project_ok(const char *text, size_t size);

/* NULL when the note is well-formed, else a literal that names the first bad field. Accepts any bytes. */
const char *record_note_problem(const struct note *note);

/* Which record a well-formed note makes; RECORD_OTHER for NOTE_FLUSH, which makes none. */
enum record_type record_type_of(const struct note *note);

/* All members but seq, of a note without a problem. NULL without memory. The caller's. */
json_t *record_body(const struct note *note);

/* A gap the auditor itself has seen, now. `text` is escaped; `count` goes into the member "count". */
json_t *record_gap(const char *kind, uint64_t count, const char *text);

/* Writes seq, body and newline. Returns the bytes written, or 0 when there is no memory or no room. */
size_t record_line(char *buf, size_t size, uint64_t seq, const json_t *body);

struct record_head {
	uint64_t seq;
	enum record_type type;
	char run_id[IPC_ID_MAX]; /* "" for none */
};

/* Reads a line without its newline. Returns false when it is no record. */
bool record_head_parse(struct record_head *ret, const char *line, size_t len);

#endif
