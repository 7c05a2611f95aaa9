/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Init's network: loopback is up and is the default route of both families, as addresses of this host. So every packet a
 * snippet sends reaches the egress hook, where it is named, audited and dropped; and without the hook there would still
 * be nowhere to go.
 */
#include "init_steps.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOPBACK_INDEX 1 /* the first device of every network namespace */

struct link_request {
	struct nlmsghdr nh;
	struct ifinfomsg link;
};

struct route_request {
	struct nlmsghdr nh;
	struct rtmsg route;
	struct rtattr oif_attr;
	uint32_t oif;
};
_Static_assert(offsetof(struct route_request, oif_attr) == NLMSG_SPACE(sizeof(struct rtmsg)), "attributes follow aligned");

/* Sends one request and waits for its acknowledgement. */
static int talk(int fd, struct nlmsghdr *request)
{
	struct {
		struct nlmsghdr nh;
		struct nlmsgerr err;
		char rest[256]; /* the request, echoed after an error */
	} ack;
	ssize_t n;

	request->nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
	if (send(fd, request, request->nlmsg_len, 0) < 0)
		return -1;
	n = recv(fd, &ack, sizeof ack, 0);
	if (n < 0)
		return -1;
	if (n < (ssize_t)NLMSG_LENGTH(sizeof ack.err) || ack.nh.nlmsg_type != NLMSG_ERROR) {
		errno = EPROTO;
		return -1;
	}
	errno = -ack.err.error;
	return errno ? -1 : 0;
}

static int link_up(int fd)
{
	struct link_request r = {
	    .nh = {.nlmsg_len = sizeof r, .nlmsg_type = RTM_NEWLINK},
	    .link = {.ifi_index = LOOPBACK_INDEX, .ifi_flags = IFF_UP, .ifi_change = IFF_UP},
	};

	return talk(fd, &r.nh);
}

static int route_local_default(int fd, unsigned char family)
{
	struct route_request r = {
	    .nh = {.nlmsg_len = sizeof r, .nlmsg_type = RTM_NEWROUTE, .nlmsg_flags = NLM_F_CREATE | NLM_F_EXCL},
	    .route = {.rtm_family = family,
		      .rtm_table = RT_TABLE_LOCAL,
		      .rtm_protocol = RTPROT_BOOT,
		      .rtm_scope = family == AF_INET ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE,
		      .rtm_type = RTN_LOCAL},
	    .oif_attr = {.rta_len = RTA_LENGTH(sizeof r.oif), .rta_type = RTA_OIF},
	    .oif = LOOPBACK_INDEX,
	};

	return talk(fd, &r.nh);
}

/* Whether this kernel has IPv6 at all. */
static int have_ipv6(void)
{
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return 0;
	close(fd);
	return 1;
}

/* A host with net.ipv6.conf.default.disable_ipv6=1 hands that to new namespaces; the route below needs it off here. */
static void enable_ipv6(void)
{
	int fd = open("/proc/sys/net/ipv6/conf/lo/disable_ipv6", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	/* If it does not take, the route fails, and that is reported. */
	(void)!write(fd, "0", 1);
	close(fd);
}

int init_network(const struct init_plan *p)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	int rc = -1;

	(void)p;
	if (fd < 0)
		return -1;
	if (link_up(fd) < 0)
		snprintf(init_detail, sizeof init_detail, "bring up lo");
	else if (route_local_default(fd, AF_INET) < 0)
		snprintf(init_detail, sizeof init_detail, "IPv4 default route to lo");
	else
		rc = 0;
	if (rc == 0 && have_ipv6()) {
		enable_ipv6();
		rc = route_local_default(fd, AF_INET6);
		if (rc < 0)
			snprintf(init_detail, sizeof init_detail, "IPv6 default route to lo");
	}
	close(fd);
	return rc;
}

static int probe_one(int family, int type)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(PROBE_PORT)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(PROBE_PORT)};
	const struct sockaddr *to = family == AF_INET ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
	socklen_t len = family == AF_INET ? sizeof v4 : sizeof v6;
	int fd = socket(family, type | SOCK_CLOEXEC, 0);
	int rc, saved;

	if (fd < 0)
		return errno;
	inet_pton(AF_INET, PROBE_IPV4, &v4.sin_addr);
	inet_pton(AF_INET6, PROBE_IPV6, &v6.sin6_addr);
	if (type == SOCK_DGRAM)
		rc = (int)sendto(fd, "?", 1, MSG_DONTWAIT, to, len);
	else
		rc = connect(fd, to, len);
	saved = errno;
	close(fd);
	return rc < 0 ? saved : 0;
}

void init_probe(int32_t ret_errno[PLAN_PROBES])
{
	ret_errno[0] = probe_one(AF_INET, SOCK_DGRAM);
	ret_errno[1] = probe_one(AF_INET6, SOCK_DGRAM);
	ret_errno[2] = probe_one(AF_INET, SOCK_STREAM);
	ret_errno[3] = probe_one(AF_INET6, SOCK_STREAM);
}
