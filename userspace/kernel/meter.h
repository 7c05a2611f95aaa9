/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meter: what the kernel has counted of the tasks of some cgroups, read when each of them ends (bpf/meter.bpf.c). It
 * refuses nothing and is not pinned: it lives as long as its process. Nothing of it runs at system calls, context switches or
 * page faults, so the rest of the host pays for a lookup when a task ends or starts a program, and for nothing else.
 *
 * Cgroups are those of cgroup2, by id. One that lies below another that is metered adds to both. Errors have where "meter".
 *
 * A task's CPU time as its end begins lacks what it ran since the scheduler wrote its time down last, a tick at most, and what
 * its end takes, which before 6.16 is little and from then on has the teardown of its memory in it. See meter_settle().
 */
#ifndef WEIR_KERNEL_METER_H
#define WEIR_KERNEL_METER_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"
#include "core/err.h"

struct meter;

int meter_open(struct meter **ret, struct err *e);
struct meter *meter_free(struct meter *m); /* NULL-safe, returns NULL */

/*
 * From here on, from zero: what of it has ended before is not counted, what lives is counted whole when it ends. `level`: its
 * depth below the root of cgroup2, as eBPF counts. ENOTSUP when that is WEIR_METER_DEPTH or more, E2BIG when there are
 * WEIR_METERED_MAX.
 */
int meter_add(struct meter *m, uint64_t cgroup, unsigned level, struct err *e);
/* With the level that it was added with. 0, or a negative errno. */
int meter_remove(struct meter *m, uint64_t cgroup, unsigned level);
/* From zero again, with everything that a new one has: of one in which nothing ends meanwhile. 0, or a negative errno. */
int meter_reset(struct meter *m, uint64_t cgroup);
/* As many more of its programs are listed as of a new one. 0, or a negative errno. */
int meter_renew(struct meter *m, uint64_t cgroup);

/*
 * What it has come to: what its tasks had when their ends began, and the rest of it when the kernel lets go of them. With `now`
 * what was found at the last meter_walk() or meter_settle() is added: of a walk what lived by then, as far as it had come, and
 * of both the rest of what had ended. A walk looks at every task of the host, so ask for several with one, and read them after
 * it.
 */
int meter_read(const struct meter *m, uint64_t cgroup, bool now, struct weir_meter *ret, struct err *e);
int meter_walk(struct meter *m, struct err *e);
int meter_settle(struct meter *m, struct err *e); /* where nothing lives any more, this is enough */

int meter_ring_fd(const struct meter *m); /* readable (epoll) when events wait; the meter's */
/* Hands at most `budget` waiting events to `cb`; returns how many, or a negative errno. */
int meter_drain(struct meter *m, int budget, void (*cb)(void *ctx, const struct weir_meter_event *ev), void *ctx);
int meter_stats(const struct meter *m, uint64_t ret[WEIR_METER_STAT_COUNT], struct err *e);

#define METER_PROGRAMS 6
/* Ids of its programs, for metrics. */
void meter_programs(const struct meter *m, uint32_t ret[METER_PROGRAMS]);

#endif
