/* SPDX-License-Identifier: Apache-2.0 */
/* Moments as RFC 3339 writes them. Pure. */
#ifndef WEIR_CORE_RFC3339_H
#define WEIR_CORE_RFC3339_H

#include <stdint.h>

/*
 * "2026-11-30T09:05:00Z", with a fraction of up to nine digits and an offset in the place of the Z if need be: nanoseconds
 * since 1970. A date alone is its midnight in UTC. Returns 0, or -EINVAL: it is none, has no such day, or is before 1970 or
 * after 2261. A leap second is the moment after it.
 */
int rfc3339_parse(const char *text, uint64_t *ret_ns);

#endif
