/* SPDX-License-Identifier: Apache-2.0 */
/* Roads through the kernel: io_uring, other network namespaces, tap devices, keys, cgroups. */
#include "vector.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/io_uring.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- io_uring, with nothing but its system calls ---- */

struct uring {
	int fd;
	unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
};

static bool uring_open(struct uring *u)
{
	struct io_uring_params p = {};
	char *sq, *cq;

	u->fd = (int)syscall(SYS_io_uring_setup, 4, &p);
	if (!did("io_uring_setup", u->fd))
		return false;
	sq = mmap(NULL, p.sq_off.array + p.sq_entries * sizeof(unsigned), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
		  u->fd, IORING_OFF_SQ_RING);
	cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_POPULATE, u->fd, IORING_OFF_CQ_RING);
	u->sqes = mmap(NULL, p.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
		       u->fd, IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || u->sqes == MAP_FAILED)
		return did("mmap", -1);
	u->sq_tail = (unsigned *)(sq + p.sq_off.tail);
	u->sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
	u->sq_array = (unsigned *)(sq + p.sq_off.array);
	u->cq_head = (unsigned *)(cq + p.cq_off.head);
	u->cq_tail = (unsigned *)(cq + p.cq_off.tail);
	u->cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
	u->cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
	return true;
}

/* One operation, waited for; its result as a system call's. */
static int uring_do(struct uring *u, const struct io_uring_sqe *what)
{
	unsigned tail = *u->sq_tail, at = tail & *u->sq_mask, head;
	int rc;

	u->sqes[at] = *what;
	u->sq_array[at] = at;
	__atomic_store_n(u->sq_tail, tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, u->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
		return -1;
	head = *u->cq_head;
	if (head == __atomic_load_n(u->cq_tail, __ATOMIC_ACQUIRE)) {
		errno = ETIME;
		return -1;
	}
	rc = u->cqes[head & *u->cq_mask].res;
	__atomic_store_n(u->cq_head, head + 1, __ATOMIC_RELEASE);
	if (rc >= 0)
		return rc;
	errno = -rc;
	return -1;
}

static int uring_socket(struct uring *u, int family, int type)
{
	struct io_uring_sqe s = {.opcode = IORING_OP_SOCKET, .fd = family, .off = (unsigned)type};
	int fd = uring_do(u, &s);

	did("socket", fd);
	return fd;
}

static void way_uring_tcp(const struct way_args *a)
{
	struct io_uring_sqe s = {.opcode = IORING_OP_CONNECT, .addr = (unsigned long)&a->to, .off = a->to.len};
	struct uring u;

	if (!uring_open(&u))
		return;
	s.fd = uring_socket(&u, a->to.sa.sa_family, SOCK_STREAM);
	if (s.fd < 0 || !did("connect", uring_do(&u, &s)))
		return;
	s = (struct io_uring_sqe){
	    .opcode = IORING_OP_SEND, .fd = s.fd, .addr = (unsigned long)a->payload, .len = (unsigned)a->len};
	did("send", uring_do(&u, &s));
}

static void way_uring_udp(const struct way_args *a)
{
	struct iovec part = {.iov_base = (void *)a->payload, .iov_len = a->len};
	struct place to = a->to;
	struct msghdr m = {.msg_name = &to.sa, .msg_namelen = to.len, .msg_iov = &part, .msg_iovlen = 1};
	struct io_uring_sqe s = {.opcode = IORING_OP_SENDMSG, .addr = (unsigned long)&m, .len = 1};
	struct uring u;

	if (!uring_open(&u))
		return;
	s.fd = uring_socket(&u, a->to.sa.sa_family, SOCK_DGRAM);
	if (s.fd >= 0)
		did("sendmsg", uring_do(&u, &s));
}

/* A filter on socket() does not see this one. */
static void way_uring_packet(const struct way_args *a)
{
	struct uring u;

	(void)a;
	if (uring_open(&u))
		uring_socket(&u, AF_PACKET, SOCK_DGRAM);
}

/* ---- another network namespace ---- */

static bool lo_has(const struct place *at)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct ifreq r = {.ifr_name = "lo"};

	if (ioctl(fd, SIOCGIFFLAGS, &r) < 0)
		return did("flags", -1);
	r.ifr_flags |= IFF_UP;
	if (ioctl(fd, SIOCSIFFLAGS, &r) < 0)
		return did("up", -1);
	memset(&r, 0, sizeof r);
	strcpy(r.ifr_name, "lo:1");
	memcpy(&r.ifr_addr, &at->v4, sizeof at->v4);
	((struct sockaddr_in *)&r.ifr_addr)->sin_port = 0;
	return did("address", ioctl(fd, SIOCSIFADDR, &r));
}

/* In a namespace of its own, where the forbidden address is its own too: "heard" is the listener there. */
static void way_newnet(const struct way_args *a)
{
	int ear, fd;
	char buf[128];

	if (!did("unshare", unshare(CLONE_NEWUSER | CLONE_NEWNET)) || !lo_has(&a->to))
		return;
	ear = socket(AF_INET, SOCK_DGRAM, 0);
	if (bind(ear, &a->to.sa, a->to.len) < 0) {
		did("bind", -1);
		return;
	}
	fd = open_socket(AF_INET, SOCK_DGRAM, 0);
	if (fd >= 0)
		did("sendto", sendto(fd, a->payload, a->len, 0, &a->to.sa, a->to.len));
	did("heard", recv(ear, buf, sizeof buf, MSG_DONTWAIT));
}

/* In somebody else's: `word` is its file. */
static void way_setns(const struct way_args *a)
{
	int ns = open(a->word, O_RDONLY | O_CLOEXEC), fd;

	if (!did("open", ns) || !did("setns", setns(ns, CLONE_NEWNET)))
		return;
	fd = open_socket(a->to.sa.sa_family, SOCK_DGRAM, 0);
	if (fd >= 0)
		did("sendto", sendto(fd, a->payload, a->len, 0, &a->to.sa, a->to.len));
}

/* ---- the rest ---- */

static void way_tun(const struct way_args *a)
{
	struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	(void)a;
	if (did("open", fd))
		did("TUNSETIFF", ioctl(fd, TUNSETIFF, &r));
}

/* Asks the kernel to have a name looked up for it, by a helper outside of every namespace. */
static void way_request_key(const struct way_args *a)
{
	did("request_key", syscall(SYS_request_key, "dns_resolver", a->payload + 5, "", -3));
}

/* Out of the cgroup, by hand. `word`: a cgroup.procs. */
static void way_leave_cgroup(const struct way_args *a)
{
	int procs = open(a->word, O_WRONLY | O_CLOEXEC), fd;

	if (!did("open", procs) || !did("write", write(procs, "0", 1)))
		return;
	fd = open_socket(a->to.sa.sa_family, SOCK_DGRAM, 0);
	if (fd >= 0)
		did("sendto", sendto(fd, a->payload, a->len, 0, &a->to.sa, a->to.len));
}

const struct way kernel_ways[] = {
    {"uring_tcp", way_uring_tcp},
    {"uring_udp", way_uring_udp},
    {"uring_packet", way_uring_packet},
    {"newnet", way_newnet},
    {"setns", way_setns},
    {"tun", way_tun},
    {"request_key", way_request_key},
    {"leave_cgroup", way_leave_cgroup},
    {NULL, NULL},
};
