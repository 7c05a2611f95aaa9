/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the dynamic sets of a policy (@host, @resolver) hold here and now, and notice of change: rtnetlink of the caller's own
 * network namespace, and a resolv.conf. Errors have where = "network".
 */
#ifndef WEIR_KERNEL_NETENV_H
#define WEIR_KERNEL_NETENV_H

#include <stdbool.h>

#include "core/err.h"
#include "core/netset.h"
#include "core/resolvconf.h"

struct netenv {
	struct policy_env env; /* points into the two below */
	struct cidr *hosts, *resolvers;
	struct cidr servers[RESOLVCONF_SERVERS]; /* the name servers once more, in the order in which they are asked */
	size_t server_count;
	bool ipv6_out; /* there is a route to what is outside over IPv6 */
};

/*
 * Reads every address of every interface and the kernel's table `local` (broadcast and anycast addresses, prefixes made local;
 * an address is in both, once here), whether IPv6 leads out, and the name servers of
 * `resolv_conf` (NULL: /etc/resolv.conf). A missing file is no resolver; an unreadable one, or a list of addresses that could
 * not be had whole, is an error. Free with netenv_clear().
 */
int netenv_read(struct netenv *ret, const char *resolv_conf, struct err *e);
void netenv_clear(struct netenv *env);

/* Same addresses, in whatever order, same name servers, in the same, and the same ways out. */
bool netenv_equal(const struct netenv *a, const struct netenv *b);

/* A socket, non-blocking and close-on-exec, that becomes readable when an address of either family, or a route, comes or goes.
 */
int netenv_watch(int *ret_fd, struct err *e);

/* Empties it; true when something changed that is read here, also when the kernel had to drop messages. */
bool netenv_changed(int fd);

#endif
