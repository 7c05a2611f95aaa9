/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets. The kernel itself lists them (bpf/held.bpf.c): every descriptor of every thread in the cgroup, with the cgroup
 * that each socket was made in, which decides by whose programs it is judged. No other interface tells that for sockets that
 * are not connected, or of every kind.
 *
 * What is in no table of descriptors (a message in a Unix socket's queue, a file registered with io_uring alone) can't be
 * looked at; that there is something can, and /proc/net/packet has every packet socket, also one that nobody holds. Not seen is
 * what comes between this look and the policy. A socket that the workload itself makes meanwhile is judged all the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "attach/inspect_priv.h"
#include "core/cleanup.h"
#include "core/netaddr.h"
#include "held.h"
#include "held.skel.h"
#include "verdict.h"

#define RECORDS_MAX 262144 /* holders of sockets looked at */
#define SEEN_SLOTS 32768   /* distinct sockets told apart: a power of two */
#define READ_BYTES 32768
#define PASSES_MAX 256 /* the kernel interrupts itself on busy hosts, and is asked to go on */

/* ---- which sockets were seen already: several processes hold one ---- */

struct seen {
	uint64_t *slots; /* inodes, 0 free */
	size_t count;
};

/* True when it is new. A full table takes everything for new: then a socket may be listed twice. */
static bool seen_add(struct seen *s, uint64_t inode)
{
	size_t at = (size_t)(inode * 0x9e3779b97f4a7c15u >> 40) % SEEN_SLOTS;

	while (s->slots[at] && s->slots[at] != inode)
		at = (at + 1) % SEEN_SLOTS;
	if (s->slots[at] == inode)
		return false;
	if (s->count < SEEN_SLOTS * 3 / 4) {
		s->slots[at] = inode;
		s->count++;
	}
	return true;
}

/* ---- words ---- */

static const char *family_name(uint16_t family)
{
	static const struct {
		uint16_t family;
		const char *name;
	} names[] = {
	    {AF_VSOCK, "vsock"}, {AF_XDP, "XDP"},   {AF_TIPC, "TIPC"},	     {AF_CAN, "CAN"},  {AF_BLUETOOTH, "Bluetooth"},
	    {AF_SMC, "SMC"},	 {AF_RDS, "RDS"},   {AF_QIPCRTR, "QIPCRTR"}, {AF_LLC, "LLC"},  {AF_PPPOX, "PPPoX"},
	    {AF_KCM, "KCM"},	 {AF_MCTP, "MCTP"}, {AF_PHONET, "Phonet"},   {AF_X25, "X.25"}, {AF_IEEE802154, "IEEE 802.15.4"},
	};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (names[i].family == family)
			return names[i].name;
	return NULL;
}

/* The directory of a cgroup by its id: "/system.slice/docker.service". */
static void cgroup_path(const struct target *t, uint64_t id, char *ret, size_t size)
{
	struct {
		struct file_handle h;
		uint64_t id;
	} fh = {.h = {.handle_bytes = sizeof fh.id, .handle_type = 0xfe /* FILEID_KERNFS */}, .id = id};
	_cleanup_fd_ int fd = id ? open_by_handle_at(t->fd, &fh.h, O_PATH | O_CLOEXEC) : -1;
	char link[64], path[PATH_MAX], own[PATH_MAX];
	ssize_t n = -1, top = -1;

	if (fd >= 0) {
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		n = readlink(link, path, sizeof path - 1);
		snprintf(link, sizeof link, "/proc/self/fd/%d", t->fd);
		top = readlink(link, own, sizeof own - 1) - (ssize_t)strlen(t->path);
	}
	if (n < 0 || top < 0 || n < top) {
		snprintf(ret, size, "%s", "a cgroup that is gone");
		return;
	}
	path[n] = '\0';
	snprintf(ret, size, "the cgroup %.80s", path[top] ? path + top : "/");
}

/* ---- one of them ---- */

static bool is_mapped(const uint8_t addr[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, 0xff};

	return !memcmp(addr, mapped, sizeof mapped);
}

static bool is_zero(const uint8_t addr[16])
{
	static const uint8_t none[16];

	return !memcmp(addr, none, sizeof none);
}

/* As an address hook would judge it were it connected now. */
static uint8_t judge(const struct policy_image *image, const struct open_socket *s)
{
	struct weir_dest d = {.port = s->remote_port, .family = s->family, .protocol = s->protocol};

	if (!image)
		return WEIR_ALLOW;
	memcpy(d.addr, s->remote, sizeof d.addr);
	return (uint8_t)weir_verdict_of(weir_as_enforced(&image->head, image_judge(image, &d)));
}

static struct open_socket socket_of(const struct weir_held *h, const struct policy_image *image)
{
	struct open_socket s = {.pid = (int)h->pid, .elsewhere = h->flags & WEIR_HELD_ELSEWHERE};
	bool stream = h->type == SOCK_STREAM && (h->protocol == IPPROTO_TCP || h->protocol == IPPROTO_MPTCP);

	inspect_show_comm(s.comm, h->comm);
	if (h->family == AF_PACKET)
		return s;
	/* MPTCP is TCP on the wire. */
	s.protocol = h->protocol == IPPROTO_MPTCP ? IPPROTO_TCP : (uint8_t)h->protocol;
	s.family = h->family == AF_INET || is_mapped(h->remote) ? 4 : 6;
	s.state = stream ? h->state : 0;
	memcpy(s.local, h->local, sizeof s.local);
	memcpy(s.remote, h->remote, sizeof s.remote);
	/* What is in the place of ports is another thing for raw and ping sockets. */
	if (h->type != SOCK_RAW && s.protocol != IPPROTO_ICMP && s.protocol != IPPROTO_ICMPV6) {
		s.local_port = h->local_port;
		s.remote_port = h->remote_port;
	}
	s.connected = !is_zero(s.remote) && (!stream || (s.state != TCP_CLOSE && s.state != TCP_LISTEN));
	if (s.connected)
		s.verdict = judge(image, &s);
	return s;
}

static void weigh_foreign(const struct target *t, const struct weir_held *h, const struct open_socket *s,
			  struct coverage_found *f)
{
	char remote[NETADDR_TEXT_MAX + 16] = "", where[112], addr[NETADDR_TEXT_MAX], protocol[NETPROTO_TEXT_MAX];

	if (f->weak & 1u << WEAK_FOREIGN_SOCKET)
		return;
	cgroup_path(t, h->cgroup, where, sizeof where);
	netaddr_text(addr, s->remote, s->family);
	if (s->connected)
		snprintf(remote, sizeof remote, s->family == 6 ? " to [%s]:%u" : " to %s:%u", addr, (unsigned)s->remote_port);
	coverage_add(f, WEAK_FOREIGN_SOCKET, "pid %d (%s): %s%s, made in %s", s->pid, s->comm,
		     netproto_text(protocol, s->protocol), remote, where);
}

static void weigh(const struct target *t, bool boxed, const struct weir_held *h, const struct open_socket *s,
		  struct coverage_found *f)
{
	const char *family = family_name(h->family);

	if (h->flags & WEIR_HELD_TUN)
		coverage_add(f, WEAK_UNSEEN_SOCKET, "pid %d (%s): a tun or tap device", s->pid, s->comm);
	else if (h->flags & WEIR_HELD_HIDES)
		coverage_add(f, WEAK_UNSEEN_SOCKET, "pid %d (%s): descriptors that wait in a Unix socket or in io_uring",
			     s->pid, s->comm);
	else if (h->flags & WEIR_HELD_CGROUP)
		coverage_add(f, boxed ? WEAK_PRIVILEGED : WEAK_ROOT, "pid %d (%s) has the host's cgroups or pins open", s->pid,
			     s->comm);
	else if (h->family == AF_PACKET)
		coverage_add(f, WEAK_PACKET_SOCKET, "pid %d (%s)", s->pid, s->comm);
	else if (h->family != AF_INET && h->family != AF_INET6 && family)
		coverage_add(f, WEAK_UNSEEN_SOCKET, "pid %d (%s): a socket of the family %s", s->pid, s->comm, family);
	else if (h->family != AF_INET && h->family != AF_INET6)
		coverage_add(f, WEAK_UNSEEN_SOCKET, "pid %d (%s): a socket of the family %u", s->pid, s->comm, h->family);
	else if (s->elsewhere)
		weigh_foreign(t, h, s, f);
}

/* ---- the list ---- */

struct list {
	const struct target *t;
	const struct policy_image *image;
	struct inspection *to;
	struct seen seen;
	size_t room, records;
	struct inspect_hints *hints;
	uint32_t netns; /* the last one that was asked about .. */
	bool host;	/* .. and whether it is the host's */
};

/* A socket stays in the network namespace it was made in, wherever its holder goes. */
static void weigh_network(struct list *l, const struct weir_held *h, const struct open_socket *s)
{
	if ((h->flags & WEIR_HELD_NO_SOCKET) || !h->netns || l->to->host_network)
		return;
	if (h->netns != l->netns) {
		l->netns = h->netns;
		l->host = inspect_is_host_netns(h->netns);
	}
	if (!l->host)
		return;
	l->to->host_network = true;
	coverage_add(&l->to->found, WEAK_HOST_NETWORK, "pid %d (%s) holds a socket of the host's network", s->pid, s->comm);
}

static int take(struct list *l, const struct weir_held *h)
{
	struct inspection *to = l->to;
	struct open_socket s = socket_of(h, l->image);
	bool listed =
	    !(h->flags & WEIR_HELD_NO_SOCKET) && (h->family == AF_INET || h->family == AF_INET6 || h->family == AF_PACKET);

	for (size_t i = 0; (h->family == AF_PACKET || (h->flags & WEIR_HELD_OUTSIDE)) && i < l->hints->frame_count; i++)
		if (l->hints->frames[i] == h->inode)
			l->hints->frames[i] = 0;
	if (h->flags & WEIR_HELD_OUTSIDE)
		return 0;
	if (!(h->flags & WEIR_HELD_NO_SOCKET) && !seen_add(&l->seen, h->inode))
		return 0;
	weigh(l->t, l->hints->boxed, h, &s, &to->found);
	weigh_network(l, h, &s);
	if (!listed)
		return 0;
	if (to->socket_count == INSPECT_SOCKETS_MAX) {
		to->sockets_beyond++;
		return 0;
	}
	if (to->socket_count == l->room) {
		size_t room = l->room ? l->room * 2 : 16;
		struct open_socket *bigger = reallocarray(to->sockets, room, sizeof *bigger);

		if (!bigger)
			return -ENOMEM;
		to->sockets = bigger;
		l->room = room;
	}
	to->sockets[to->socket_count++] = s;
	return 0;
}

static int read_all(int fd, struct list *l)
{
	_cleanup_free_ struct weir_held *buf = malloc(READ_BYTES);
	size_t have = 0;
	unsigned passes = 0;

	if (!buf)
		return -ENOMEM;
	for (;;) {
		ssize_t n = read(fd, (char *)buf + have, READ_BYTES - have);

		if (n < 0 && (errno == EINTR || errno == EAGAIN) && ++passes < PASSES_MAX)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		have += (size_t)n;
		for (size_t i = 0; i < have / sizeof *buf; i++) {
			int rc = buf[i].pid == (uint32_t)getpid() ? 0 : take(l, &buf[i]);

			if (rc < 0)
				return rc;
			if (++l->records == RECORDS_MAX)
				return -E2BIG;
		}
		memmove(buf, buf + have / sizeof *buf, have % sizeof *buf);
		have %= sizeof *buf;
	}
}

/* ---- asking ---- */

__attribute__((format(printf, 2, 0))) static int say_nothing(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	(void)level;
	(void)fmt;
	(void)ap;
	return 0;
}

/* A descriptor to read the records from, or a negative errno. */
static int open_list(const struct target *t, struct held_bpf *s)
{
	_cleanup_fd_ int link = -1;
	int rc, fd;

	s->rodata->target = t->id;
	s->rodata->level = t->level;
	rc = held_bpf__load(s);
	if (rc < 0)
		return rc;
	link = bpf_link_create(bpf_program__fd(s->progs.weir_held), 0, BPF_TRACE_ITER, NULL);
	if (link < 0)
		return -errno;
	fd = bpf_iter_create(link);
	return fd < 0 ? -errno : fd;
}

static int list_sockets(struct list *l)
{
	libbpf_print_fn_t before = libbpf_set_print(say_nothing);
	struct held_bpf *s = held_bpf__open();
	_cleanup_fd_ int fd = s ? open_list(l->t, s) : -errno;

	held_bpf__destroy(s);
	libbpf_set_print(before);
	return fd < 0 ? fd : read_all(fd, l);
}

int inspect_sockets(const struct target *t, const struct policy_image *image, struct inspect_hints *hints,
		    struct inspection *ret, struct err *e)
{
	struct list l = {.t = t, .image = image, .to = ret, .hints = hints};
	_cleanup_free_ uint64_t *slots = calloc(SEEN_SLOTS, sizeof *slots);
	int rc;

	if (!slots)
		return err_set(e, ENOMEM, "coverage", "out of memory");
	l.seen.slots = slots;
	rc = list_sockets(&l);
	for (size_t i = 0; i < hints->frame_count; i++)
		if (hints->frames[i])
			coverage_add(&ret->found, WEAK_PACKET_SOCKET,
				     "one in the network namespace of pid %d, which nobody holds", hints->frame_pid);
	if (rc == -ENOMEM)
		return err_set(e, ENOMEM, "coverage", "out of memory");
	if (rc == -E2BIG)
		coverage_add(&ret->found, WEAK_UNSEEN_SOCKET, "there are more than %d", RECORDS_MAX);
	else if (rc < 0)
		coverage_add(&ret->found, WEAK_UNSEEN_SOCKET, "the kernel does not list them (%s)", strerror(-rc));
	return 0;
}
