/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files that make records share: each adds the members of one kind of note to `into` (borrowed) and returns 0, or
 * anything else when there was no memory. Notes have no problem (record_note_problem).
 */
#ifndef WEIR_AUDITOR_RECORD_PARTS_H
#define WEIR_AUDITOR_RECORD_PARTS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "auditor/record.h"
#include "core/event.h"
#include "ipc/ipc.h"

/* At most `size` bytes of text that somebody else wrote: ASCII, the rest as \xNN. */
int record_set_safe(json_t *into, const char *name, const char *text, size_t size);
/* Lower-case hex. */
json_t *record_hash(const uint8_t hash[32]);
/* RFC 3339; null for 0. */
json_t *record_wall(uint64_t wall_ns);

/* Of a run: record_run.c */
int record_begin(json_t *into, const struct note *note);
int record_change(json_t *into, const struct note *note);
int record_end(json_t *into, const struct tell_end *end);

/* Of what was counted in it: record_use.c */
int record_use(json_t *into, const struct tell_meter *m, uint64_t net_bytes); /* members of run_end */
int record_exec(json_t *into, const struct weir_meter_event *ev);
int record_syscall(json_t *into, const struct note *note);
int record_samples(json_t *into, const struct note *note);

/* Of what had a policy put on it while it ran: record_attached.c */
int record_attached(json_t *into, const struct note *note);

#endif
