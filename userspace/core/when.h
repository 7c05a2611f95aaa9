/* SPDX-License-Identifier: Apache-2.0 */
/* Moments as people type them. */
#ifndef WEIR_CORE_WHEN_H
#define WEIR_CORE_WHEN_H

#include <stdint.h>

/*
 * What rfc3339_parse() takes, or how long ago: "30m", "2h", "3d", "2h ago", counted back from `now_ns`. Returns 0 and
 * nanoseconds of CLOCK_REALTIME, or -EINVAL.
 */
int when_parse(const char *text, uint64_t now_ns, uint64_t *ret_ns);

#endif
