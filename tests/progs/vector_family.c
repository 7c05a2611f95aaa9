/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets that are not the internet's, and system calls from another table. */
#include "vector.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

static void way_family(const struct way_args *a)
{
	/* `word`: the family's number and the type's. */
	int family = 0, type = 0;

	if (sscanf(a->word, "%d:%d", &family, &type) == 2)
		open_socket(family, type, 0);
}

/* Asks for the routes: what a scanner wants to know. */
static void way_netlink(const struct way_args *a)
{
	struct {
		struct nlmsghdr head;
		struct rtmsg route;
	} ask = {{sizeof ask, RTM_GETROUTE, NLM_F_REQUEST | NLM_F_DUMP, 1, 0}, {.rtm_family = AF_INET}};
	char answer[8192];
	int fd = open_socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	(void)a;
	if (fd >= 0 && did("send", send(fd, &ask, sizeof ask, 0)))
		did("recv", recv(fd, answer, sizeof answer, 0));
}

static void way_unix(const struct way_args *a)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = open_socket(AF_UNIX, SOCK_STREAM, 0);

	strncpy(to.sun_path, a->word, sizeof to.sun_path - 1);
	if (fd >= 0 && did("connect", connect(fd, (struct sockaddr *)&to, sizeof to)))
		did("send", send(fd, a->payload, a->len, MSG_NOSIGNAL));
}

/*
 * socket() and sendto() by the numbers of i386, whose table a 64-bit program can reach with `int $0x80`. All pointers must
 * fit in 32 bits.
 */
enum { I386_SOCKET = 359, I386_SENDTO = 369 };

static long call_i386(long nr, long b, long c, long d, long si, long di, long bp)
{
#ifdef __x86_64__
	long ret;

	asm volatile("push %%rbp\n\tmov %[bp], %%rbp\n\tint $0x80\n\tpop %%rbp"
		     : "=a"(ret)
		     : "a"(nr), "b"(b), "c"(c), "d"(d), "S"(si), "D"(di), [bp] "r"(bp)
		     : "memory", "r8", "r9", "r10", "r11");
	ret = (int)ret;
	if (ret >= 0)
		return ret;
	errno = (int)-ret;
	return -1;
#else
	(void)nr, (void)b, (void)c, (void)d, (void)si, (void)di, (void)bp;
	errno = ENOSYS;
	return -1;
#endif
}

static void way_int80_udp(const struct way_args *a)
{
	char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	long fd = call_i386(I386_SOCKET, a->to.sa.sa_family, SOCK_DGRAM, 0, 0, 0, 0);

	if (low == MAP_FAILED || !did("socket", fd))
		return;
	memcpy(low, &a->to.sa, a->to.len);
	memcpy(low + 256, a->payload, a->len);
	did("sendto", call_i386(I386_SENDTO, fd, (long)(low + 256), (long)a->len, 0, (long)low, (long)a->to.len));
}

static void way_int80_packet(const struct way_args *a)
{
	(void)a;
	did("socket", call_i386(I386_SOCKET, AF_PACKET, SOCK_DGRAM, 0, 0, 0, 0));
}

/* The x32 table: the same numbers with one bit more. */
static void way_x32_packet(const struct way_args *a)
{
	(void)a;
	did("socket", syscall(0x40000000 | 41, AF_PACKET, SOCK_DGRAM, 0));
}

const struct way family_ways[] = {
    {"family", way_family},
    {"netlink", way_netlink},
    {"unix", way_unix},
    {"int80_udp", way_int80_udp},
    {"int80_packet", way_int80_packet},
    {"x32_packet", way_x32_packet},
    {NULL, NULL},
};
