/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the filter of a command of the host goes by, for whoever says the same in another form (filter_host_oci.c). What is
 * refused altogether is in filter_host.h.
 */
#ifndef WEIR_RUNNER_FILTER_HOST_TABLES_H
#define WEIR_RUNNER_FILTER_HOST_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/policy.h"

#define FILTER_HOST_TYPE_BITS 0xf  /* of the type argument: the rest is flags */
#define FILTER_HOST_TYPE_PACKET 10 /* SOCK_PACKET: whatever the family says, it makes a packet socket */

/* Flags of clone() and unshare() that make a namespace. CLONE_NEWTIME besides, of unshare() alone. */
extern const uint64_t filter_host_namespaces[];
extern const size_t filter_host_namespace_count;

/* Requests that lead around the policy. */
extern const uint32_t filter_host_ioctls[];
extern const size_t filter_host_ioctl_count;

/* Bits of struct policy_sockets, and the kernel's numbers. */
struct filter_host_number {
	uint32_t bit;
	int number;
};
extern const struct filter_host_number filter_host_families[], filter_host_types[];
extern const size_t filter_host_family_count, filter_host_type_count;

/* Numbers a protocol goes by. With a type in `by_default`, 0 means it too; SOCK_RAW has no default. */
struct filter_host_protocol {
	uint32_t bit;
	unsigned number;
	uint32_t by_default;
};
extern const struct filter_host_protocol filter_host_protocols[];
extern const size_t filter_host_protocol_count;

/* Whether the protocol argument counts. */
bool filter_host_is_internet(int family);
bool filter_host_type_is_allowed(const struct policy_sockets *s, int family, uint32_t bit);

#endif
