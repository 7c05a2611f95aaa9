/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes that wait for the auditor: one queue for each record, served in turn, first by project and then by record, so that who
 * has little to say does not wait behind who has much. What is nobody's comes before all of them, NOTE_FLUSH after them.
 *
 * Details, of which a run can make many, have a bound of their own, and each record a share of it that leaves room for whoever
 * comes next: no flood, of however many runs at once, takes the places of another project's.
 */
#ifndef WEIR_SUPERVISOR_NOTE_QUEUE_H
#define WEIR_SUPERVISOR_NOTE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "ipc/ipc.h"

#define NOTE_QUEUE_DETAILS 32768 /* about half a KiB each */
#define NOTE_QUEUE_REST 8192	 /* beginnings, ends and the like: about a KiB each */

struct note_queue;

struct note_queue *note_queue_new(void);		  /* NULL: no memory */
struct note_queue *note_queue_free(struct note_queue *q); /* NULL-safe, returns NULL */

/* One that a run can make many of. The sums of its end have all of it. */
bool note_is_detail(uint32_t type);

/*
 * Puts a copy at the end of its record's. -ENOBUFS: a detail that is more than its record's share, or for which there is no
 * memory. -EPIPE: it is none, and there is no room.
 */
int note_queue_put(struct note_queue *q, const struct note *n);
/* The next to be sent; it stays there. False: none waits. */
bool note_queue_next(const struct note_queue *q, struct note *ret);
void note_queue_drop_next(struct note_queue *q);
size_t note_queue_count(const struct note_queue *q);

#endif
