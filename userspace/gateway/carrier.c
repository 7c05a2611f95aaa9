/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One sandbox's packets: a tap on one side, libslirp's sockets on the other, and a loop between them. Nothing here is decided:
 * what may leave is the policy's, in the kernel, for the sandbox that sends and once more for these sockets.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/icmp6.h>
#include <netinet/if_ether.h>
#include <netinet/ip6.h>
#include <poll.h>
#include <signal.h>
#include <slirp/libslirp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "gateway/answers.h"
#include "gateway/gateway.h"
#include "gateway/internal.h"
#include "plan.h"

#if !SLIRP_CHECK_VERSION(4, 7, 0)
#error "libslirp 4.7 or newer is needed"
#endif

#define TAP_DEVICE "/dev/net/tun"
#define FRAME_BYTES (TAP_MTU + ETH_HLEN + 4) /* with room for a VLAN tag, which nothing in a sandbox can make */
#define FRAMES_A_TURN 64		     /* then the sockets have their turn */

struct carrier {
	Slirp *slirp;
	int tap;
	struct pollfd *polls; /* [0] is the tap's */
	size_t count, room;
	struct answers answers;
	uint8_t frame[FRAME_BYTES];
};

/* ---- what libslirp asks of us ---- */

/*
 * A sandbox that takes no packet loses it, as on any network: its connections send again. What nobody in there has asked for is
 * not for it.
 */
static ssize_t send_packet(const void *buf, size_t len, void *opaque)
{
	const struct carrier *c = opaque;

	if (answers_expected(&c->answers, buf, len))
		(void)!write(c->tap, buf, len);
	return (ssize_t)len;
}

static void guest_error(const char *msg, void *opaque)
{
	(void)msg;
	(void)opaque;
}

static int64_t clock_ns(void *opaque)
{
	struct timespec ts;

	(void)opaque;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/*
 * Its only timer is for router advertisements, which a sandbox would not hear: its addresses and routes are init's. So a timer
 * is a thing that never fires. What connections wait for comes with the time-out of slirp_pollfds_fill().
 */
_Static_assert(SLIRP_TIMER_NUM == 1 && SLIRP_TIMER_RA == 0, "libslirp has a timer that is not known here");

static void *timer_new(SlirpTimerId id, void *cb_opaque, void *opaque)
{
	(void)id;
	(void)cb_opaque;
	return opaque;
}

static void timer_free(void *timer, void *opaque)
{
	(void)timer;
	(void)opaque;
}

static void timer_mod(void *timer, int64_t expire_ms, void *opaque)
{
	(void)timer;
	(void)expire_ms;
	(void)opaque;
}

/* Each turn asks anew which descriptors to wait for, in one thread. */
static void poll_fd_is(int fd, void *opaque)
{
	(void)fd;
	(void)opaque;
}

static void notify(void *opaque)
{
	(void)opaque;
}

static const SlirpCb callbacks = {
    .send_packet = send_packet,
    .guest_error = guest_error,
    .clock_get_ns = clock_ns,
    .timer_free = timer_free,
    .timer_mod = timer_mod,
    .register_poll_fd = poll_fd_is,
    .unregister_poll_fd = poll_fd_is,
    .notify = notify,
    .timer_new_opaque = timer_new,
};

/* ---- waiting ---- */

static const struct {
	int theirs;
	short ours;
} poll_bits[] = {{SLIRP_POLL_IN, POLLIN},
		 {SLIRP_POLL_OUT, POLLOUT},
		 {SLIRP_POLL_PRI, POLLPRI},
		 {SLIRP_POLL_ERR, POLLERR},
		 {SLIRP_POLL_HUP, POLLHUP}};

static int add_poll(int fd, int events, void *opaque)
{
	struct carrier *c = opaque;
	short ours = 0;

	/* Room for as many as there can be descriptors: more than that it cannot name. */
	if (c->count == c->room)
		return -1;
	for (size_t i = 0; i < sizeof poll_bits / sizeof poll_bits[0]; i++)
		if (events & poll_bits[i].theirs)
			ours = (short)(ours | poll_bits[i].ours);
	c->polls[c->count] = (struct pollfd){.fd = fd, .events = ours};
	return (int)c->count++;
}

static int get_revents(int index, void *opaque)
{
	const struct carrier *c = opaque;
	int theirs = 0;

	if (index < 0 || (size_t)index >= c->count)
		return 0;
	for (size_t i = 0; i < sizeof poll_bits / sizeof poll_bits[0]; i++)
		if (c->polls[index].revents & poll_bits[i].ours)
			theirs |= poll_bits[i].theirs;
	return theirs;
}

/* False when the device is gone. */
static bool take_frames(struct carrier *c)
{
	for (int i = 0; i < FRAMES_A_TURN; i++) {
		ssize_t n = read(c->tap, c->frame, sizeof c->frame);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return true;
		if (n <= 0)
			return false;
		answers_note(&c->answers, c->frame, (size_t)n);
		slirp_input(c->slirp, c->frame, (int)n);
	}
	return true;
}

/* Until the sandbox's network is gone: with the device, which is gone with its namespace. */
static void carry_on(struct carrier *c)
{
	for (;;) {
		uint32_t wait_ms = UINT32_MAX;
		int n;

		c->polls[0] = (struct pollfd){.fd = c->tap, .events = POLLIN};
		c->count = 1;
		slirp_pollfds_fill(c->slirp, &wait_ms, add_poll, c);
		n = poll(c->polls, c->count, wait_ms > INT_MAX ? -1 : (int)wait_ms);
		if (n < 0 && errno != EINTR && errno != ENOMEM)
			return;
		slirp_pollfds_poll(c->slirp, n < 0, get_revents, c);
		if (n > 0 && (c->polls[0].revents & ~POLLIN))
			return;
		if (n > 0 && c->polls[0].revents && !take_frames(c))
			return;
	}
}

/* ---- start ---- */

static struct in_addr v4(const char *text)
{
	struct in_addr a = {0};

	inet_pton(AF_INET, text, &a);
	return a;
}

static struct in6_addr v6(const char *text)
{
	struct in6_addr a = {0};

	inet_pton(AF_INET6, text, &a);
	return a;
}

static Slirp *make_slirp(struct carrier *c)
{
	const SlirpConfig config = {
	    .version = 4,
	    .in_enabled = true,
	    .vnetwork = v4(TAP_NET4),
	    .vnetmask = {htonl(~0u << (32 - TAP_IPV4_LEN))},
	    .vhost = v4(TAP_GATEWAY4),
	    .vnameserver = v4(TAP_RESOLVER4),
	    .in6_enabled = true,
	    .vprefix_addr6 = v6(TAP_NET6),
	    .vprefix_len = TAP_IPV6_LEN,
	    .vhost6 = v6(TAP_GATEWAY6),
	    .vnameserver6 = v6(TAP_RESOLVER6),
	    .vdhcp_start = v4(TAP_IPV4), /* asked for, though nothing is given out */
	    .disable_dhcp = true,
	    /* The gateway's address is no way to this host's own loopback. */
	    .disable_host_loopback = true,
	    .enable_emu = false,
	    .if_mtu = TAP_MTU,
	    .if_mru = TAP_MTU,
	};

	return slirp_new(&config, &callbacks, c);
}

/* ---- who the sandbox is ---- */

/*
 * A sandbox's kernel asks for nobody's hardware address and answers nobody who asks for its own (runner/init_net.c). So
 * libslirp is told, in the way in which neighbours tell each other: with a question that says who asks.
 */
struct arp_question {
	struct ether_header eth;
	struct ether_arp arp;
} __attribute__((packed));

struct ndp_question {
	struct ether_header eth;
	struct ip6_hdr ip;
	struct nd_neighbor_solicit ns;
} __attribute__((packed));

static void introduce_ipv4(struct carrier *c, const uint8_t mac[ETH_ALEN])
{
	struct arp_question q = {
	    .eth = {.ether_type = htons(ETHERTYPE_ARP)},
	    .arp = {.ea_hdr = {htons(ARPHRD_ETHER), htons(ETHERTYPE_IP), ETH_ALEN, sizeof(struct in_addr),
			       htons(ARPOP_REQUEST)}},
	};
	const struct in_addr from = v4(TAP_IPV4), to = v4(TAP_GATEWAY4);

	memset(q.eth.ether_dhost, 0xff, ETH_ALEN);
	memcpy(q.eth.ether_shost, mac, ETH_ALEN);
	memcpy(q.arp.arp_sha, mac, ETH_ALEN);
	memcpy(q.arp.arp_spa, &from, sizeof from);
	memcpy(q.arp.arp_tpa, &to, sizeof to);
	slirp_input(c->slirp, (const uint8_t *)&q, sizeof q);
}

static uint32_t add_words(uint32_t sum, const void *data, size_t bytes)
{
	const uint8_t *p = data;

	for (size_t i = 0; i + 1 < bytes; i += 2)
		sum += (uint32_t)p[i] << 8 | p[i + 1];
	return sum;
}

static uint16_t icmp6_checksum(const struct ndp_question *q)
{
	uint32_t sum = sizeof q->ns + IPPROTO_ICMPV6;

	sum = add_words(sum, &q->ip.ip6_src, 2 * sizeof q->ip.ip6_src);
	sum = add_words(sum, &q->ns, sizeof q->ns);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons((uint16_t)~sum);
}

static void introduce_ipv6(struct carrier *c, const uint8_t mac[ETH_ALEN])
{
	struct ndp_question q = {
	    .eth = {.ether_type = htons(ETHERTYPE_IPV6)},
	    .ip = {.ip6_src = v6(TAP_IPV6), .ip6_dst = v6(TAP_GATEWAY6)},
	    .ns = {.nd_ns_type = ND_NEIGHBOR_SOLICIT, .nd_ns_target = v6(TAP_GATEWAY6)},
	};

	q.ip.ip6_flow = htonl(6u << 28);
	q.ip.ip6_plen = htons(sizeof q.ns);
	q.ip.ip6_nxt = IPPROTO_ICMPV6;
	q.ip.ip6_hops = 255;
	q.ns.nd_ns_cksum = icmp6_checksum(&q);
	memcpy(q.eth.ether_shost, mac, ETH_ALEN);
	slirp_input(c->slirp, (const uint8_t *)&q, sizeof q);
}

static int start(struct carrier *c, const struct carrier_spec *spec, struct err *e)
{
	struct ifreq device = {0};
	int rc;

	if (ioctl(spec->tap, SIOCGIFHWADDR, &device) < 0)
		return err_errno(e, errno, CARRIER, "ask for the device's hardware address");
	rc = carrier_confine(spec, e);
	if (rc < 0)
		return rc;
	c->tap = spec->tap;
	if (fcntl(c->tap, F_SETFL, O_NONBLOCK) < 0)
		return err_errno(e, errno, CARRIER, "use the device without waiting");
	c->room = spec->job->nofile;
	c->polls = calloc(c->room, sizeof *c->polls);
	c->slirp = c->polls ? make_slirp(c) : NULL;
	if (!c->slirp)
		return err_set(e, ENOMEM, CARRIER, "libslirp does not start");
	introduce_ipv4(c, (const uint8_t *)device.ifr_hwaddr.sa_data);
	introduce_ipv6(c, (const uint8_t *)device.ifr_hwaddr.sa_data);
	return 0;
}

void carrier_main(const struct carrier_spec *spec)
{
	static struct carrier c;
	struct carrier_report report = {0};
	struct err e = {0};

	report.status = start(&c, spec, &e);
	snprintf(report.text, sizeof report.text, "%.127s", e.msg);
	(void)!write(spec->report, &report, sizeof report);
	close(spec->report);
	if (report.status == 0)
		carry_on(&c);
	_exit(report.status < 0);
}

int gateway_probe(char ret_version[32], struct err *e)
{
	_cleanup_fd_ int fd = open(TAP_DEVICE, O_RDWR | O_CLOEXEC);

	snprintf(ret_version, 32, "%s", slirp_version_string());
	return fd < 0 ? err_errno(e, errno, GATEWAY, "open " TAP_DEVICE) : 0;
}
