/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a run's use went: at most LIMIT_AUDIT_SAMPLES moments of it. Looked at every so often while it runs; when there are as
 * many as fit, every second one goes and looks are half as frequent from there on, so that a run of any length costs the same.
 */
#ifndef WEIR_SUPERVISOR_TIMELINE_H
#define WEIR_SUPERVISOR_TIMELINE_H

#include <stdint.h>

struct supervisor;
struct box;

void timeline_begin(struct supervisor *s, struct box *b); /* its gate opens */
/* Its last moment, and all of them into the record: before its NOTE_RUN_END. */
void timeline_end(struct supervisor *s, struct box *b);
void timeline_drop(struct box *b); /* without a word */
void timeline_tick(struct supervisor *s);
uint64_t timeline_wake_ns(const struct supervisor *s); /* when the next look is due; 0: never */

#endif
