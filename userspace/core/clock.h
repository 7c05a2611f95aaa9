/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time in nanoseconds: as deadlines need it (CLOCK_MONOTONIC, never 0), and as records do (CLOCK_REALTIME; CLOCK_BOOTTIME,
 * which the kernel's events have, and which goes on while the host sleeps).
 */
#ifndef WEIR_CORE_CLOCK_H
#define WEIR_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define SECOND_NS 1000000000ull

static inline uint64_t clock_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts); /* can't fail with this clock */
	return (uint64_t)ts.tv_sec * SECOND_NS + (uint64_t)ts.tv_nsec;
}

static inline uint64_t clock_wall_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts); /* likewise */
	return (uint64_t)ts.tv_sec * SECOND_NS + (uint64_t)ts.tv_nsec;
}

static inline uint64_t clock_boot_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts); /* likewise */
	return (uint64_t)ts.tv_sec * SECOND_NS + (uint64_t)ts.tv_nsec;
}

#endif
