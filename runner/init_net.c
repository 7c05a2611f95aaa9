/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Init's network. A snippet's: loopback is up and is the default route of both families, as addresses of this host. So every
 * packet a snippet sends reaches the egress hook, where it is named, audited and dropped; and without the hook there would
 * still be nowhere to go.
 *
 * A tool's, when it has a way out: loopback for itself, and a tap, whose packets a process outside carries.
 */
#include "init_steps.h"
#include "localnet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define TUN_DEVICE "/dev/net/tun"
/*
 * There is one other end, and it takes what comes, to whichever hardware address. So nobody is asked for one: what the kernel
 * asks and announces on its own is sent in the sandbox's name, and would be judged and recorded as if the tool had sent it.
 */
#define TAP_FLAGS IFF_NOARP
/*
 * What its sockets may hold unread and unsent, in bytes: least, at first, most. Where the memory controller is v1 the kernel
 * charges a cgroup nothing for it, and all sandboxes of the host share one bound (tcp_mem).
 */
#define TCP_UNREAD "4096 131072 " TCP_MOST
#define TCP_UNSENT "4096 16384 " TCP_MOST
#define TCP_MOST "262144"
#define GEN_NONE "1" /* addr_gen_mode: no link-local address, which nothing here would use */

int init_network(const struct init_plan *p)
{
	const char *what = "";
	int rc = localnet_up(&what, NULL);

	(void)p;
	if (rc < 0)
		snprintf(init_detail, sizeof init_detail, "%s", what);
	return rc;
}

/* ---- a tool's way out ---- */

/* A request with up to two attributes: an address, and a device's number. */
struct attributes {
	struct rtattr address_attr;
	unsigned char address[16];
	struct rtattr device_attr;
	int32_t device;
};

struct address_request {
	struct nlmsghdr nh;
	struct ifaddrmsg body;
	struct attributes tail; /* only as far as it is filled */
};

struct gateway_request {
	struct nlmsghdr nh;
	struct rtmsg body;
	struct attributes tail;
};

static size_t put_address(struct rtattr *at, unsigned short type, int family, const char *text)
{
	const size_t size = family == AF_INET ? 4 : 16;

	at->rta_type = type;
	at->rta_len = (unsigned short)RTA_LENGTH(size);
	inet_pton(family, text, RTA_DATA(at));
	return RTA_SPACE(size);
}

static int add_address(int fd, int index, int family, const char *address, unsigned char len)
{
	struct address_request r = {
	    .nh = {.nlmsg_type = RTM_NEWADDR, .nlmsg_flags = NLM_F_CREATE | NLM_F_EXCL},
	    .body = {.ifa_family = (unsigned char)family,
		     .ifa_prefixlen = len,
		     .ifa_flags = IFA_F_NODAD, /* nobody else is there, and asking takes a second */
		     .ifa_index = (unsigned)index},
	};

	r.nh.nlmsg_len =
	    (uint32_t)(offsetof(struct address_request, tail) + put_address(&r.tail.address_attr, IFA_LOCAL, family, address));
	return localnet_talk(fd, &r.nh);
}

static int add_default_route(int fd, int index, int family, const char *gateway)
{
	struct gateway_request r = {
	    .nh = {.nlmsg_type = RTM_NEWROUTE, .nlmsg_flags = NLM_F_CREATE | NLM_F_EXCL},
	    .body = {.rtm_family = (unsigned char)family,
		     .rtm_table = RT_TABLE_MAIN,
		     .rtm_protocol = RTPROT_BOOT,
		     .rtm_scope = RT_SCOPE_UNIVERSE,
		     .rtm_type = RTN_UNICAST},
	};
	size_t used = put_address(&r.tail.address_attr, RTA_GATEWAY, family, gateway);
	struct rtattr *device = (struct rtattr *)((char *)&r.tail + used);

	device->rta_type = RTA_OIF;
	device->rta_len = RTA_LENGTH(sizeof index);
	memcpy(RTA_DATA(device), &index, sizeof index);
	r.nh.nlmsg_len = (uint32_t)(offsetof(struct gateway_request, tail) + used + RTA_SPACE(sizeof index));
	return localnet_talk(fd, &r.nh);
}

/* The device belongs to this network namespace, and goes with its last descriptor. */
static int open_tap(void)
{
	struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	int fd = open(TUN_DEVICE, O_RDWR | O_CLOEXEC);

	snprintf(init_detail, sizeof init_detail, TUN_DEVICE);
	if (fd < 0)
		return -1;
	snprintf(r.ifr_name, sizeof r.ifr_name, TAP_NAME);
	if (ioctl(fd, TUNSETIFF, &r) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static int set_mtu(int any_socket)
{
	struct ifreq r = {.ifr_name = TAP_NAME, .ifr_mtu = TAP_MTU};

	return ioctl(any_socket, SIOCSIFMTU, &r);
}

static int wants_ipv6(const struct init_plan *p)
{
	if (p->ipv6)
		return 1;
	for (size_t i = 0; i < sizeof p->resolvers / sizeof p->resolvers[0]; i++)
		if (strchr(p->resolvers[i], ':'))
			return 1;
	return 0;
}

/* Everything is written down here: nothing is asked of the other side, and what it announces is not heard. */
static int configure_ipv6(int fd, int index, const struct init_plan *p)
{
	const int wanted = wants_ipv6(p);

	localnet_set_ipv6(TAP_NAME, "accept_ra", "0");
	localnet_set_ipv6(TAP_NAME, "accept_dad", "0");
	localnet_set_ipv6(TAP_NAME, "addr_gen_mode", GEN_NONE);
	localnet_set_ipv6(TAP_NAME, "disable_ipv6", wanted ? "0" : "1");
	if (localnet_link_up(fd, index, TAP_FLAGS) < 0)
		return -1;
	if (wanted && add_address(fd, index, AF_INET6, TAP_IPV6, TAP_IPV6_LEN) < 0)
		return -1;
	return p->ipv6 ? add_default_route(fd, index, AF_INET6, TAP_GATEWAY6) : 0;
}

/* Step by step: the detail is the one that failed. */
static int configure(int fd, const struct init_plan *p)
{
	const int index = (int)if_nametoindex(TAP_NAME);

	snprintf(init_detail, sizeof init_detail, "bound the buffers of TCP");
	if (localnet_set_sysctl("/proc/sys/net/ipv4/tcp_rmem", TCP_UNREAD) < 0 ||
	    localnet_set_sysctl("/proc/sys/net/ipv4/tcp_wmem", TCP_UNSENT) < 0)
		return -1;
	snprintf(init_detail, sizeof init_detail, "bring up lo");
	if (localnet_have_ipv6())
		localnet_set_ipv6("lo", "disable_ipv6", "0");
	if (localnet_link_up(fd, LOOPBACK_INDEX, 0) < 0)
		return -1;
	snprintf(init_detail, sizeof init_detail, "find " TAP_NAME " and set its MTU");
	if (!index || set_mtu(fd) < 0)
		return -1;
	snprintf(init_detail, sizeof init_detail, "bring up " TAP_NAME " with its IPv6 address and route");
	if ((localnet_have_ipv6() ? configure_ipv6(fd, index, p) : localnet_link_up(fd, index, TAP_FLAGS)) < 0)
		return -1;
	snprintf(init_detail, sizeof init_detail, "IPv4 address and route of " TAP_NAME);
	if (add_address(fd, index, AF_INET, TAP_IPV4, TAP_IPV4_LEN) < 0)
		return -1;
	return add_default_route(fd, index, AF_INET, TAP_GATEWAY4);
}

int init_tap(const struct init_plan *p, int *ret_fd)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), tap, rc, saved;

	if (fd < 0)
		return -1;
	tap = open_tap();
	rc = tap < 0 ? -1 : configure(fd, p);
	saved = errno;
	close(fd);
	if (rc < 0 && tap >= 0)
		close(tap);
	errno = saved;
	if (rc == 0)
		*ret_fd = tap;
	return rc;
}

/* ---- probes ---- */

static int probe_one(int family, int type)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(PROBE_PORT)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(PROBE_PORT)};
	const struct sockaddr *to = family == AF_INET ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
	socklen_t len = family == AF_INET ? sizeof v4 : sizeof v6;
	/* Not waited for: what a policy lets out of a tool's sandbox would be answered by nobody. */
	int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rc, saved;

	if (fd < 0)
		return errno;
	inet_pton(AF_INET, PROBE_IPV4, &v4.sin_addr);
	inet_pton(AF_INET6, PROBE_IPV6, &v6.sin6_addr);
	if (type == SOCK_DGRAM)
		rc = (int)sendto(fd, "?", 1, 0, to, len);
	else
		rc = connect(fd, to, len);
	saved = errno;
	close(fd);
	return rc < 0 && saved != EINPROGRESS ? saved : 0;
}

void init_probe(int32_t ret_errno[PLAN_PROBES])
{
	ret_errno[0] = probe_one(AF_INET, SOCK_DGRAM);
	ret_errno[1] = probe_one(AF_INET6, SOCK_DGRAM);
	ret_errno[2] = probe_one(AF_INET, SOCK_STREAM);
	ret_errno[3] = probe_one(AF_INET6, SOCK_STREAM);
}
