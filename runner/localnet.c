/* SPDX-License-Identifier: Apache-2.0 */
#include "localnet.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

int localnet_talk(int fd, struct nlmsghdr *request)
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

int localnet_link_up(int fd, int index, unsigned more_flags)
{
	struct link_request r = {
	    .nh = {.nlmsg_len = sizeof r, .nlmsg_type = RTM_NEWLINK},
	    .link = {.ifi_index = index, .ifi_flags = IFF_UP | more_flags, .ifi_change = IFF_UP | more_flags},
	};

	return localnet_talk(fd, &r.nh);
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

	return localnet_talk(fd, &r.nh);
}

bool localnet_have_ipv6(void)
{
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return false;
	close(fd);
	return true;
}

int localnet_set_sysctl(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), saved;
	ssize_t n;

	if (fd < 0)
		return -1;
	n = write(fd, value, strlen(value));
	saved = errno;
	close(fd);
	errno = saved;
	return n < 0 ? -1 : 0;
}

void localnet_set_ipv6(const char *device, const char *name, const char *value)
{
	char path[96];

	snprintf(path, sizeof path, "/proc/sys/net/ipv6/conf/%s/%s", device, name);
	(void)localnet_set_sysctl(path, value);
}

static int set_up(int fd, const char **what, unsigned *families)
{
	*what = "bring up lo";
	if (localnet_link_up(fd, LOOPBACK_INDEX, 0) < 0)
		return -1;
	*what = "IPv4 default route to lo";
	if (route_local_default(fd, AF_INET) < 0)
		return -1;
	*families = LOCALNET_IPV4;
	if (!localnet_have_ipv6())
		return 0;
	/* A host with net.ipv6.conf.default.disable_ipv6=1 hands that to new namespaces; the route needs it off here. */
	localnet_set_ipv6("lo", "disable_ipv6", "0");
	*what = "IPv6 default route to lo";
	if (route_local_default(fd, AF_INET6) < 0)
		return -1;
	*families |= LOCALNET_IPV6;
	return 0;
}

int localnet_up(const char **ret_what, unsigned *ret_families)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), rc, saved;
	const char *what = "open a netlink socket";
	unsigned families = 0;

	rc = fd < 0 ? -1 : set_up(fd, &what, &families);
	saved = errno;
	if (fd >= 0)
		close(fd);
	errno = saved;
	if (rc < 0 && ret_what)
		*ret_what = what;
	if (ret_families)
		*ret_families = families;
	return rc;
}
