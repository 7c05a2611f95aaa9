/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/netenv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/resolvconf.h"

#define RESOLV_CONF "/etc/resolv.conf"
#define RESOLV_CONF_BYTES 65536
#define WIDE_PREFIX 8	 /* ::/0, or 2000::/3 and its like in its place */
#define DUMP_TRIES 16	 /* the kernel says when addresses changed while it was listing them */
#define DUMP_BYTES 65536 /* no message of a dump is longer than half of this */

/* ---- a list of addresses ---- */

struct list {
	struct cidr *at;
	size_t count, room;
};

static int list_add(struct list *l, const struct cidr *c)
{
	if (l->count == l->room) {
		size_t room = l->room ? l->room * 2 : 16;
		struct cidr *bigger = reallocarray(l->at, room, sizeof *bigger);

		if (!bigger)
			return -ENOMEM;
		l->at = bigger;
		l->room = room;
	}
	l->at[l->count++] = *c;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	return cidr_compare(a, b);
}

/* One address may stand on several interfaces. Sorted, two lists can be compared. */
static void list_normalize(struct list *l)
{
	size_t kept = 0;

	if (l->count)
		qsort(l->at, l->count, sizeof *l->at, by_value);
	for (size_t i = 0; i < l->count; i++)
		if (kept == 0 || cidr_compare(&l->at[kept - 1], &l->at[i]) != 0)
			l->at[kept++] = l->at[i];
	l->count = kept;
}

/* ---- the interfaces' addresses ---- */

static int open_netlink(uint32_t groups)
{
	_cleanup_fd_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | (groups ? SOCK_NONBLOCK : 0), NETLINK_ROUTE);
	const struct sockaddr_nl addr = {.nl_family = AF_NETLINK, .nl_groups = groups};

	if (fd < 0 || bind(fd, (const struct sockaddr *)&addr, sizeof addr) < 0)
		return -errno;
	return TAKE_FD(fd);
}

/* One datagram of the kernel's; what any other process may have sent us is thrown away. */
static ssize_t receive(int fd, void *buf, size_t size)
{
	for (;;) {
		struct sockaddr_nl from = {0};
		socklen_t from_len = sizeof from;
		ssize_t n = recvfrom(fd, buf, size, MSG_TRUNC, (struct sockaddr *)&from, &from_len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (from_len != sizeof from || from.nl_pid != 0)
			continue;
		return (size_t)n > size ? -EMSGSIZE : n;
	}
}

/* With a point-to-point link IFA_ADDRESS is the other end's, and IFA_LOCAL ours; without one, only one of them may be there. */
static int take_address(const struct nlmsghdr *h, struct list *l)
{
	const struct ifaddrmsg *m = NLMSG_DATA(h);
	const size_t size = m->ifa_family == AF_INET ? 4 : 16;
	const void *local = NULL, *address = NULL;
	int left = (int)IFA_PAYLOAD(h);
	struct cidr c = {.family = size == 4 ? 4 : 6, .len = size == 4 ? 32 : 128};

	if (m->ifa_family != AF_INET && m->ifa_family != AF_INET6)
		return 0;
	for (const struct rtattr *a = IFA_RTA(m); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (RTA_PAYLOAD(a) != size)
			continue;
		if (a->rta_type == IFA_LOCAL)
			local = RTA_DATA(a);
		else if (a->rta_type == IFA_ADDRESS)
			address = RTA_DATA(a);
	}
	if (!local)
		local = address;
	if (!local)
		return 0;
	if (size == 4)
		c.addr[10] = c.addr[11] = 0xff;
	memcpy(c.addr + sizeof c.addr - size, local, size);
	return list_add(l, &c);
}

/*
 * An entry of the table `local`: what the kernel itself takes for this host. Beside the interfaces' addresses that is the
 * subnets' broadcast addresses, anycast addresses and prefixes that an operator made local.
 */
static int take_route(const struct nlmsghdr *h, struct list *l)
{
	const struct rtmsg *m = NLMSG_DATA(h);
	const size_t size = m->rtm_family == AF_INET ? 4 : 16;
	int left = (int)RTM_PAYLOAD(h);
	struct cidr c = {.family = size == 4 ? 4 : 6, .len = m->rtm_dst_len};
	bool here = m->rtm_type == RTN_LOCAL || m->rtm_type == RTN_BROADCAST || m->rtm_type == RTN_ANYCAST;

	if ((m->rtm_family != AF_INET && m->rtm_family != AF_INET6) || m->rtm_table != RT_TABLE_LOCAL || !here)
		return 0;
	if (size == 4)
		c.addr[10] = c.addr[11] = 0xff;
	for (const struct rtattr *a = RTM_RTA(m); RTA_OK(a, left); a = RTA_NEXT(a, left))
		if (a->rta_type == RTA_DST && RTA_PAYLOAD(a) == size)
			memcpy(c.addr + sizeof c.addr - size, RTA_DATA(a), size);
	return list_add(l, &c);
}

/* 1: the list is whole, 0: there is more to come, -EINTR: it changed under the kernel's hands. */
static int take_datagram(const void *buf, size_t size, struct list *l)
{
	int left = (int)size;

	for (const struct nlmsghdr *h = buf; NLMSG_OK(h, (unsigned)left); h = NLMSG_NEXT(h, left)) {
		int rc = 0;

		if (h->nlmsg_flags & NLM_F_DUMP_INTR)
			return -EINTR;
		if (h->nlmsg_type == NLMSG_DONE) {
			/* A dump that failed on the way says so here. */
			if (h->nlmsg_len >= NLMSG_LENGTH(sizeof(int)))
				rc = *(const int *)NLMSG_DATA(h);
			return rc < 0 ? rc : 1;
		}
		if (h->nlmsg_type == NLMSG_ERROR)
			return h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct nlmsgerr))
				   ? ((const struct nlmsgerr *)NLMSG_DATA(h))->error
				   : -EBADMSG;
		if (h->nlmsg_type == RTM_NEWADDR && h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct ifaddrmsg)))
			rc = take_address(h, l);
		else if (h->nlmsg_type == RTM_NEWROUTE && h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct rtmsg)))
			rc = take_route(h, l);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int dump(const void *ask, size_t ask_size, struct list *l)
{
	_cleanup_fd_ int fd = open_netlink(0);
	_cleanup_free_ void *buf = malloc(DUMP_BYTES);
	const int on = 1;
	int rc = 0;

	if (fd < 0)
		return fd;
	if (!buf)
		return -ENOMEM;
	/* Then the kernel leaves out the tables we do not ask for; without it we do. */
	setsockopt(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, &on, sizeof on);
	if (send(fd, ask, ask_size, 0) != (ssize_t)ask_size)
		return -errno;
	while (rc == 0) {
		ssize_t n = receive(fd, buf, DUMP_BYTES);

		rc = n < 0 ? (int)n : take_datagram(buf, (size_t)n, l);
	}
	return rc < 0 ? rc : 0;
}

static int dump_addresses(struct list *l)
{
	const struct {
		struct nlmsghdr head;
		struct ifaddrmsg body;
	} ask = {.head = {.nlmsg_len = sizeof ask, .nlmsg_type = RTM_GETADDR, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
		 .body = {.ifa_family = AF_UNSPEC}};

	return dump(&ask, sizeof ask, l);
}

static int dump_local_table(uint8_t family, struct list *l)
{
	const struct {
		struct nlmsghdr head;
		struct rtmsg body;
	} ask = {.head = {.nlmsg_len = sizeof ask, .nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
		 .body = {.rtm_family = family, .rtm_table = RT_TABLE_LOCAL}};

	int rc = dump(&ask, sizeof ask, l);

	/* A namespace that never had an address of the family has no such table. */
	return rc == -ENOENT ? 0 : rc;
}

static int read_addresses(struct list *ret, struct err *e)
{
	struct list l = {0};
	int rc = -EINTR;

	for (int i = 0; rc == -EINTR && i < DUMP_TRIES; i++) {
		l.count = 0;
		rc = dump_addresses(&l);
		if (rc == 0)
			rc = dump_local_table(AF_INET, &l);
		if (rc == 0)
			rc = dump_local_table(AF_INET6, &l);
	}
	if (rc < 0) {
		free(l.at);
		return err_errno(e, -rc, "network", "list this host's addresses");
	}
	list_normalize(&l);
	*ret = l;
	return 0;
}

/* ---- the way out over IPv6 ---- */

/*
 * An address of the internet that is nobody's (2000::1). Asked for one route rather than for all of them: there may be a
 * million, and what counts is what the kernel would do, rules and all.
 */
#define OUTSIDE6                                                                                                               \
	{                                                                                                                      \
		0x20, 0x01, [15] = 0x01                                                                                        \
	}

/* Whether it would be sent to somebody else: not refused, not dropped, not an address of this host. */
static bool leads_out(const void *buf, size_t size)
{
	const struct nlmsghdr *h = buf;

	return NLMSG_OK(h, (unsigned)size) && h->nlmsg_type == RTM_NEWROUTE &&
	       h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct rtmsg)) &&
	       ((const struct rtmsg *)NLMSG_DATA(h))->rtm_type == RTN_UNICAST;
}

static int read_ipv6_out(bool *ret, struct err *e)
{
	const struct {
		struct nlmsghdr head;
		struct rtmsg body;
		struct rtattr to_attr;
		unsigned char to[16];
	} ask = {.head = {.nlmsg_len = sizeof ask, .nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST},
		 .body = {.rtm_family = AF_INET6, .rtm_dst_len = 128},
		 .to_attr = {.rta_len = RTA_LENGTH(sizeof ask.to), .rta_type = RTA_DST},
		 .to = OUTSIDE6};
	_cleanup_fd_ int fd = open_netlink(0);
	_Alignas(struct nlmsghdr) char buf[4096] = "";
	ssize_t n;

	if (fd < 0)
		return err_errno(e, -fd, "network", "ask for the route to the outside");
	/* An error is the answer that there is none; so is a kernel without IPv6. */
	n = send(fd, &ask, sizeof ask, 0) == (ssize_t)sizeof ask ? receive(fd, buf, sizeof buf) : -errno;
	*ret = n > 0 && leads_out(buf, (size_t)n);
	return 0;
}

/* ---- the name servers ---- */

static int read_text(const char *path, char *buf, size_t *ret_len, struct err *e)
{
	/* O_NONBLOCK: a FIFO without a writer must not hang us; it is refused below. */
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	size_t len = 0;

	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
		*ret_len = 0;
		return 0;
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, errno, "network", "open %s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EINVAL, "network", "%s is not a regular file", path);
	for (;;) {
		ssize_t n = read(fd, buf + len, RESOLV_CONF_BYTES - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(e, errno, "network", "read %s", path);
		if (n == 0)
			break;
		len += (size_t)n;
		if (len == RESOLV_CONF_BYTES)
			return err_set(e, E2BIG, "network", "%s is over %d bytes", path, RESOLV_CONF_BYTES - 1);
	}
	*ret_len = len;
	return 0;
}

/* As they are asked, and as a set. */
static int read_resolvers(const char *path, struct netenv *ret_servers, struct list *ret, struct err *e)
{
	_cleanup_free_ char *text = malloc(RESOLV_CONF_BYTES);
	struct list l = {0};
	size_t len = 0;
	int rc;

	if (!text)
		return err_set(e, ENOMEM, "network", "out of memory");
	rc = read_text(path, text, &len, e);
	if (rc < 0)
		return rc;
	ret_servers->server_count = resolvconf_parse(text, len, ret_servers->servers);
	for (size_t i = 0; i < ret_servers->server_count; i++)
		if (list_add(&l, &ret_servers->servers[i]) < 0) {
			free(l.at);
			return err_set(e, ENOMEM, "network", "out of memory");
		}
	list_normalize(&l);
	*ret = l;
	return 0;
}

/* ---- all of it ---- */

int netenv_read(struct netenv *ret, const char *resolv_conf, struct err *e)
{
	struct list hosts = {0}, resolvers = {0};
	struct netenv n = {0};
	int rc = read_addresses(&hosts, e);

	if (rc == 0)
		rc = read_ipv6_out(&n.ipv6_out, e);
	if (rc == 0)
		rc = read_resolvers(resolv_conf ? resolv_conf : RESOLV_CONF, &n, &resolvers, e);
	if (rc < 0) {
		free(hosts.at);
		return rc;
	}
	n.env = (struct policy_env){
	    .hosts = hosts.at, .host_count = hosts.count, .resolvers = resolvers.at, .resolver_count = resolvers.count};
	n.hosts = hosts.at;
	n.resolvers = resolvers.at;
	*ret = n;
	return 0;
}

void netenv_clear(struct netenv *env)
{
	free(env->hosts);
	free(env->resolvers);
	memset(env, 0, sizeof *env);
}

static bool same(const struct cidr *a, size_t a_count, const struct cidr *b, size_t b_count)
{
	if (a_count != b_count)
		return false;
	for (size_t i = 0; i < a_count; i++)
		if (cidr_compare(&a[i], &b[i]) != 0)
			return false;
	return true;
}

bool netenv_equal(const struct netenv *a, const struct netenv *b)
{
	/* The first two are sorted. */
	return a->ipv6_out == b->ipv6_out && same(a->servers, a->server_count, b->servers, b->server_count) &&
	       same(a->env.hosts, a->env.host_count, b->env.hosts, b->env.host_count) &&
	       same(a->env.resolvers, a->env.resolver_count, b->env.resolvers, b->env.resolver_count);
}

/* ---- change ---- */

int netenv_watch(int *ret_fd, struct err *e)
{
	/* Routes too: an address is told to be gone before it has left the table. */
	int fd = open_netlink(RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE);

	if (fd < 0)
		return err_errno(e, -fd, "network", "watch this host's addresses");
	*ret_fd = fd;
	return 0;
}

/*
 * Of routes those of the table `local` concern us, and those that may lead everywhere: others come and go by the thousand on a
 * router.
 */
static bool concerns_us(const void *buf, ssize_t n)
{
	const struct nlmsghdr *h = buf;
	const struct rtmsg *m = NLMSG_DATA(h);

	if (n < (ssize_t)NLMSG_LENGTH(sizeof *m) || (h->nlmsg_type != RTM_NEWROUTE && h->nlmsg_type != RTM_DELROUTE))
		return true;
	return m->rtm_table == RT_TABLE_LOCAL || (m->rtm_family == AF_INET6 && m->rtm_dst_len <= WIDE_PREFIX);
}

bool netenv_changed(int fd)
{
	bool changed = false;
	/* Which address it was is read anew, whole; so it does no harm when a message does not fit. */
	_Alignas(struct nlmsghdr) char buf[1024];
	ssize_t n;

	while ((n = receive(fd, buf, sizeof buf)) != -EAGAIN) {
		/* A notice, a longer one (EMSGSIZE), or word that some were dropped (ENOBUFS). */
		changed |= n < 0 || concerns_us(buf, n);
		if (n < 0 && n != -EMSGSIZE && n != -ENOBUFS)
			break;
	}
	return changed;
}
