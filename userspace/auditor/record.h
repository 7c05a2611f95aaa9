/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From notes to records. A record is one JSON object, ASCII alone, whose number the store gives it:
 *
 *   {"type":"egress","run_id":"..","time":"..","boot_ns":N,"sandbox_id":"..","project":"..", ...}
 *
 * types: run_begin, egress (first attempt of a flow), flow (its final count), exec (a program was started), oom (a process was
 * chosen to be killed for want of memory), syscall (one that was refused), samples (moments of its use), content (what its
 * client saw), run_end; policy (another one is in force: once with an empty run_id, and once for each run under way); start
 * (with an empty run_id: who writes from here on); gap (something is missing from the record, and what is known about it). Of
 * what had a policy put on it while it ran also target, place, coverage (what of the policy does not hold), socket (was open
 * before), cgroup (one below it) and drift. Pure: no files here.
 */
#ifndef WEIR_AUDITOR_RECORD_H
#define WEIR_AUDITOR_RECORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/ipc.h"

#define RECORD_TEXT_MAX 16384 /* bytes of one as text; the longest there is takes under a quarter of it */

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
	RECORD_EXEC, /* a program was started in the run .. */
	RECORD_OOM,  /* .. or a process of it was chosen to be killed for want of memory */
	RECORD_SYSCALL,
	RECORD_SAMPLES,
	RECORD_CONTENT, /* what only its client saw */
	RECORD_START,	/* nobody's: who writes from here on */
	RECORD_TYPE_COUNT,
};
extern const char *const record_type_names[RECORD_TYPE_COUNT];

/* Why a gap record was written, its member "kind". */
#define RECORD_GAP_SWEEP "sweep"	     /* NOTE_GAP: a supervisor died; what its successor found */
#define RECORD_GAP_UNWRITTEN "unwritten"     /* records that could not be written, and so are not there */
#define RECORD_GAP_UNSYNCED "unsynced"	     /* the disk did not confirm earlier records: they may not survive a crash */
#define RECORD_GAP_INTERRUPTED "interrupted" /* runs before this record that have no end will never get one */
#define RECORD_GAP_LATE "late-content"	     /* runs whose content was told after they were summed up: it is not kept */
#define RECORD_GAP_REFUSED "refused"	     /* notes that were not well-formed */
#define RECORD_GAP_UNDRAINED "undrained"     /* NOTE_UNDRAINED: nobody wrote an attachment's events; with its run_id */

/* Whether the array holds a terminated, non-empty id of [A-Za-z0-9._-]. */
bool record_id_ok(const char *text, size_t size);

/* The same for a project, which may also be empty. */
bool record_project_ok(const char *text, size_t size);

/* NULL when the note is well-formed, else a literal that names the first bad field. Accepts any bytes. */
const char *record_note_problem(const struct note *note);

/* Which record a well-formed note makes; RECORD_OTHER for those that make none: NOTE_POLICY_TEXT, whose text
 * the store keeps by its hash, NOTE_HEAD, NOTE_SIGNED and NOTE_FLUSH. */
enum record_type record_type_of(const struct note *note);

/* All members but seq, of a note without a problem. NULL without memory. The caller's. */
json_t *record_body(const struct note *note);

/* NULL when what a client says it saw holds together, else a literal that names the first bad member. Accepts any bytes. */
const char *record_content_problem(const struct content_told *content);

/* A record of it, all members but seq, dated now. Without a problem. NULL without memory. The caller's. */
json_t *record_content(const char *run_id, const char *sandbox_id, const char *project, const struct content_told *content);

/* A gap the auditor itself has seen, now. `text` is escaped; `count` goes into the member "count". */
json_t *record_gap(const char *kind, uint64_t count, const char *text);

#endif
