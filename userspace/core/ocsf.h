/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attempt to reach the network in the words of the Open Cybersecurity Schema Framework, for a SIEM: class Network Activity
 * (4001) with the profiles host and security_control. Pure.
 *
 * What is text here came from the record, where everything that a program could choose is escaped ASCII already.
 */
#ifndef WEIR_CORE_OCSF_H
#define WEIR_CORE_OCSF_H

#include <jansson.h>

#define OCSF_VERSION "1.7.0"

/*
 * One event of a run's record. `run` is the run as `weir audit show --json` has it, `event` one of its "events"; both are
 * borrowed. `version` is the product's. NULL without memory, or when the event has no time. The caller's.
 *
 * An event of the record stands for all attempts of one flow: `count` says how many, start_time and end_time from when to when.
 */
json_t *ocsf_network_activity(const json_t *run, const json_t *event, const char *version);

#endif
