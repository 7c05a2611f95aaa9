/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/tcpsocks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/cleanup.h"

#define ANSWER_BYTES 65536 /* no message of a dump is longer than half of this */
#define STATES (((1u << (TCP_CLOSING + 1)) - 2) & ~(1u << TCP_LISTEN | 1u << TCP_TIME_WAIT))

/* ---- a list of sockets ---- */

struct found {
	uint8_t family;
	struct inet_diag_sockid id;
	struct tcpsock sock;
};

struct list {
	struct found *at;
	size_t count, room;
};

static void list_clear(struct list *l)
{
	free(l->at);
}

static int list_add(struct list *l, const struct inet_diag_msg *m)
{
	const bool v4 = m->idiag_family == AF_INET;
	struct found *f;

	if (l->count == l->room) {
		size_t room = l->room ? l->room * 2 : 16;
		struct found *bigger = reallocarray(l->at, room, sizeof *bigger);

		if (!bigger)
			return -ENOMEM;
		l->at = bigger;
		l->room = room;
	}
	f = &l->at[l->count++];
	*f = (struct found){.family = m->idiag_family, .id = m->id};
	f->sock.port = ntohs(m->id.idiag_dport);
	f->sock.queued = m->idiag_wqueue;
	f->sock.to.family = v4 ? 4 : 6;
	f->sock.to.len = v4 ? 32 : 128;
	if (v4)
		f->sock.to.addr[10] = f->sock.to.addr[11] = 0xff;
	memcpy(f->sock.to.addr + (v4 ? 12 : 0), m->id.idiag_dst, v4 ? 4 : 16);
	return 0;
}

/* ---- asking ---- */

static int open_netlink(void)
{
	_cleanup_fd_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	const struct sockaddr_nl addr = {.nl_family = AF_NETLINK};

	if (fd < 0 || bind(fd, (const struct sockaddr *)&addr, sizeof addr) < 0)
		return -errno;
	return TAKE_FD(fd);
}

/* One datagram of the kernel's; what any other process may have sent us is thrown away. */
static ssize_t receive(int fd, void *buf)
{
	for (;;) {
		struct sockaddr_nl from = {0};
		socklen_t from_len = sizeof from;
		ssize_t n = recvfrom(fd, buf, ANSWER_BYTES, MSG_TRUNC, (struct sockaddr *)&from, &from_len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (from_len != sizeof from || from.nl_pid != 0)
			continue;
		return n > ANSWER_BYTES ? -EMSGSIZE : n;
	}
}

/* 1: that was the last of it, 0: more will come. An answer to a single request is an error message, of 0 when all is well. */
static int take_datagram(const void *buf, size_t size, struct list *l)
{
	int left = (int)size;

	for (const struct nlmsghdr *h = buf; NLMSG_OK(h, (unsigned)left); h = NLMSG_NEXT(h, left)) {
		int rc = 0;

		if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR) {
			/* Both begin with an errno; a dump that failed on the way says so in its last message. */
			if (h->nlmsg_len >= NLMSG_LENGTH(sizeof(int)))
				rc = *(const int *)NLMSG_DATA(h);
			return rc < 0 ? rc : 1;
		}
		if (l && h->nlmsg_type == SOCK_DIAG_BY_FAMILY && h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
			rc = list_add(l, NLMSG_DATA(h));
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int converse(int fd, void *buf, const void *ask, size_t len, struct list *l)
{
	int rc = 0;

	if (send(fd, ask, len, 0) != (ssize_t)len)
		return -errno;
	while (rc == 0) {
		ssize_t n = receive(fd, buf);

		rc = n < 0 ? (int)n : take_datagram(buf, (size_t)n, l);
	}
	return rc < 0 ? rc : 0;
}

/* The kernel picks: its condition is a little program, in which a jump behind the end means no. */
static int list_family(int fd, void *buf, uint8_t family, uint64_t cgroup, struct list *l)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 body;
		struct nlattr attr;
		struct inet_diag_bc_op op;
		uint32_t cgroup[2]; /* without the padding that a number of eight bytes might get */
	} ask = {
	    .head = {.nlmsg_len = sizeof ask, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
	    .body = {.sdiag_family = family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = STATES},
	    .attr = {.nla_len = sizeof ask.attr + sizeof ask.op + sizeof cgroup, .nla_type = INET_DIAG_REQ_BYTECODE},
	    .op = {.code = INET_DIAG_BC_CGROUP_COND,
		   .yes = sizeof ask.op + sizeof cgroup,
		   .no = sizeof ask.op + sizeof cgroup + 4},
	};

	memcpy(ask.cgroup, &cgroup, sizeof cgroup);
	return converse(fd, buf, &ask, sizeof ask, l);
}

static int destroy(int fd, void *buf, const struct found *f)
{
	const struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 body;
	} ask = {
	    .head = {.nlmsg_len = sizeof ask, .nlmsg_type = SOCK_DESTROY, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
	    .body = {.sdiag_family = f->family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = STATES, .id = f->id},
	};
	int rc = converse(fd, buf, &ask, sizeof ask, NULL);

	return rc == -ENOENT ? 0 : rc; /* gone by itself meanwhile */
}

/* ---- */

int tcpsocks_close(uint64_t cgroup, bool (*unwanted)(const void *ctx, const struct tcpsock *s), const void *ctx,
		   struct tcpsocks_result *ret, struct err *e)
{
	_cleanup_fd_ int fd = open_netlink();
	_cleanup_free_ void *buf = malloc(ANSWER_BYTES);
	__attribute__((cleanup(list_clear))) struct list l = {0};
	struct tcpsocks_result r = {0};
	int rc = fd < 0 ? fd : !buf ? -ENOMEM : 0;

	if (rc == 0)
		rc = list_family(fd, buf, AF_INET, cgroup, &l);
	if (rc == 0)
		rc = list_family(fd, buf, AF_INET6, cgroup, &l);
	if (rc < 0)
		return err_errno(e, -rc, "network", "list the TCP sockets of a cgroup");
	for (size_t i = 0; i < l.count; i++) {
		const struct tcpsock *s = &l.at[i].sock;
		bool close_it = unwanted(ctx, s);

		rc = close_it ? destroy(fd, buf, &l.at[i]) : 0;
		if (rc < 0 && !r.error)
			r.error = rc;
		r.closed += close_it && rc == 0;
		r.stuck += rc < 0;
		r.busy += !close_it && s->queued;
		r.queued += close_it && rc == 0 ? 0 : s->queued;
	}
	*ret = r;
	return 0;
}
