/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets that somebody else made, or that are older than the policy. */
#include "vector.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static void send_by(int fd, const struct way_args *a)
{
	did("sendto", sendto(fd, a->payload, a->len, MSG_NOSIGNAL, &a->to.sa, a->to.len));
}

/* Standard input is a datagram socket. */
static void way_inherited(const struct way_args *a)
{
	send_by(0, a);
}

/* Any further descriptor below 64 that is a socket. */
static void way_inherited_other(const struct way_args *a)
{
	int type;
	socklen_t len = sizeof type;

	for (int fd = 3; fd < 64; fd++) {
		if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0) {
			send_by(fd, a);
			return;
		}
	}
	ended("find", ENOENT);
}

/* A donor listens at the path `word` and hands over one descriptor. */
static void way_scm(const struct way_args *a)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	char byte;
	struct iovec part = {.iov_base = &byte, .iov_len = 1};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control};
	int fd = open_socket(AF_UNIX, SOCK_STREAM, 0), gift;
	struct cmsghdr *c;

	strncpy(at.sun_path, a->word, sizeof at.sun_path - 1);
	if (fd < 0 || !did("connect", connect(fd, (struct sockaddr *)&at, sizeof at)) || !did("recvmsg", recvmsg(fd, &m, 0)))
		return;
	c = CMSG_FIRSTHDR(&m);
	if (!c || c->cmsg_type != SCM_RIGHTS) {
		ended("gift", ENOMSG);
		return;
	}
	memcpy(&gift, CMSG_DATA(c), sizeof gift);
	send_by(gift, a);
}

/* A socket taken out of another process: `word` is "PID:FD". */
static void way_pidfd_getfd(const struct way_args *a)
{
	const char *colon = strchr(a->word, ':');
	int pidfd = (int)syscall(SYS_pidfd_open, atoi(a->word), 0), fd;

	if (!did("pidfd_open", pidfd))
		return;
	fd = (int)syscall(SYS_pidfd_getfd, pidfd, colon ? atoi(colon + 1) : 0, 0);
	if (did("pidfd_getfd", fd))
		send_by(fd, a);
}

/* Says something, waits for a line on stdin: the policy changes meanwhile. */
static bool wait_for_word(void)
{
	char line[8];

	return write(2, "open\n", 5) == 5 && did("wait", read(0, line, sizeof line));
}

static void way_early_udp(const struct way_args *a)
{
	int fd = open_socket(a->to.sa.sa_family, SOCK_DGRAM, 0);

	if (fd < 0 || !did("connect", connect(fd, &a->to.sa, a->to.len)) || !did("send", send(fd, a->payload, a->len, 0)))
		return;
	if (wait_for_word())
		did("send later", send(fd, a->payload, a->len, 0));
}

static void way_early_tcp(const struct way_args *a)
{
	const struct timespec moment = {.tv_nsec = 300 * 1000 * 1000};
	int fd = open_socket(a->to.sa.sa_family, SOCK_STREAM, 0);

	if (fd < 0 || !did("connect", connect_soon(fd, &a->to)) || !did("send", send(fd, a->payload, a->len, MSG_NOSIGNAL)))
		return;
	if (!wait_for_word())
		return;
	/* Accepted by the socket: whether it leaves is another matter. */
	did("send later", send(fd, "late", 4, MSG_NOSIGNAL));
	nanosleep(&moment, NULL);
}

/* Leaves data behind in the kernel, which goes on trying to send it. */
static void way_early_tcp_orphan(const struct way_args *a)
{
	int fd = open_socket(a->to.sa.sa_family, SOCK_STREAM, 0);

	if (fd < 0 || !did("connect", connect_soon(fd, &a->to)) || !did("send", send(fd, a->payload, a->len, MSG_NOSIGNAL)))
		return;
	if (wait_for_word())
		did("send later", send(fd, "late", 4, MSG_NOSIGNAL));
}

const struct way import_ways[] = {
    {"inherited", way_inherited},
    {"inherited_other", way_inherited_other},
    {"scm", way_scm},
    {"pidfd_getfd", way_pidfd_getfd},
    {"early_udp", way_early_udp},
    {"early_tcp", way_early_tcp},
    {"early_tcp_orphan", way_early_tcp_orphan},
    {NULL, NULL},
};
