/* SPDX-License-Identifier: Apache-2.0 */
/* What the supervisor counts for /metrics: struct metrics (ipc/metrics.h), filled when it is asked for. */
#ifndef WEIR_SUPERVISOR_METRICS_H
#define WEIR_SUPERVISOR_METRICS_H

#include "ipc/ipc.h"

struct supervisor;
struct box;
struct client;

/* Where the configuration wants it, has the kernel measure from here on. A kernel that can't is a warning. */
void metrics_open(struct supervisor *s);
/* A run has ended (of a session: a cell), as it was told. */
void metrics_run_ended(struct supervisor *s, const struct box *b, const struct tell_end *end);
/* So has a time between two cells of a session, which is no run. */
void metrics_between_ended(struct supervisor *s, const struct tell_end *t);
/* So has a window of an attachment; `n` is its NOTE_WINDOW_END. */
void metrics_window_ended(struct supervisor *s, const struct note *n);
/* Answers ASK_METRICS. */
void metrics_tell(struct supervisor *s, struct client *c, uint64_t req);
void metrics_free(struct supervisor *s);

#endif
