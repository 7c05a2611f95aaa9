/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a message may say before anybody acts on it: every type known, every number in its range, every text with an end. Pure;
 * the size of a message is its receiver's to check. Each returns NULL, or the name of the first member that is not as it
 * should be (a literal).
 */
#ifndef WEIR_IPC_DECODE_H
#define WEIR_IPC_DECODE_H

#include "ipc/ipc.h"
#include "plan.h"

/* Whether it says who asked for a run: terminated, not empty, and nothing but [A-Za-z0-9:,._@-]. */
bool caller_ok(const char *text, size_t size);

/* From a client. What only the state of a sandbox can tell (the deadline of a single run, say) is not asked here. */
const char *ask_problem(const struct ask *a);

/* From a client, to the collector. */
const char *collect_problem(const struct collect *c);

/* From init, up to the moment it is known dead. */
const char *init_report_problem(const struct init_report *r);

/* What init has counted, at any time. */
const char *refused_calls_problem(const struct refused_calls *c);

/* From the harness: in a session, a snippet's own bytes come this way too, if it wants. */
const char *gate_report_problem(const struct gate_report *r);

/* From the supervisor, to init. */
const char *init_plan_problem(const struct init_plan *p);

#endif
