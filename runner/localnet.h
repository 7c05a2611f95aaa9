/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network of a namespace that leads nowhere, and what configuring any takes: netlink requests, each acknowledged, by system
 * calls alone. Functions return 0, or -1 with errno.
 */
#ifndef WEIR_RUNNER_LOCALNET_H
#define WEIR_RUNNER_LOCALNET_H

#include <linux/netlink.h>
#include <stdbool.h>

#define LOOPBACK_INDEX 1 /* the first device of every network namespace */

enum { LOCALNET_IPV4 = 1, LOCALNET_IPV6 = 2 };

/*
 * Loopback is up, and the default route of both families (IPv6 where the kernel has it), as addresses of this host: whatever is
 * sent arrives here. Also of a failure: *ret_what names the step, *ret_families (either may be NULL) what was ready before it.
 */
int localnet_up(const char **ret_what, unsigned *ret_families);

/* Of a NETLINK_ROUTE socket: sends one request and waits for its acknowledgement. */
int localnet_talk(int fd, struct nlmsghdr *request);
int localnet_link_up(int fd, int index, unsigned more_flags);

/* Whether this kernel has IPv6 at all. */
bool localnet_have_ipv6(void);
int localnet_set_sysctl(const char *path, const char *value);
/* A setting of a device for IPv6. One that this kernel does not have, or that does not take, shows in what follows. */
void localnet_set_ipv6(const char *device, const char *name, const char *value);

#endif
