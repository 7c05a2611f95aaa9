/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe: the one program in the containers of these tests. Static, so that it is all a root directory needs.
 *
 *	probe pause			sleeps until SIGTERM
 *	probe talk WAY...		keeps saying something to each, every 20 ms, until SIGTERM: over one TCP connection, or
 *by datagrams; a connection that ends is made again
 *	probe try LABEL WAY...		says LABEL to each, once, as the first thing it does. Prints "WAY ok", or errno's name.
 *					Exit status: 0 all got out; 42 none, each refused with EPERM; 43 anything else
 *	probe frame DEVICE MAC SOURCE ADDRESS PORT LABEL
 *					the same by a packet socket, below everything that judges sockets
 *
 * WAY is tcp:ADDRESS:PORT, udp:ADDRESS:PORT, or dns:ADDRESS:NAME, which asks for nN.NAME at port 53; `talk` counts N up.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { WAYS_MAX = 16, TICK_NS = 20 * 1000 * 1000, NONE_GOT_OUT = 42, MIXED = 43, NOT_HERE = 99 };

struct way {
	const char *text;
	int type; /* SOCK_STREAM or SOCK_DGRAM */
	const char *name;
	union {
		struct sockaddr sa;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} to;
	socklen_t len;
	int fd;
};

static void on_term(int sig)
{
	(void)sig;
	_exit(0);
}

/*
 * Whether this is the client's side of the fake internet, by the address of its device (tests/system/internet.py): a mistake
 * in a test must not become a packet to somebody.
 */
static bool on_fake_internet(void)
{
	static const unsigned char own[ETH_ALEN] = {2, 0, 0, 0, 0, 2};
	struct ifreq r = {.ifr_name = "eth0"};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* of a kind that nobody judges */
	bool here = fd >= 0 && !ioctl(fd, SIOCGIFHWADDR, &r) && !memcmp(r.ifr_hwaddr.sa_data, own, sizeof own);

	close(fd);
	return here;
}

static bool read_way(struct way *w, const char *text)
{
	char address[64] = "";
	const char *start = strchr(text, ':'), *end = strrchr(text, ':');
	bool dns = !strncmp(text, "dns:", 4);
	uint16_t port;

	*w = (struct way){.text = text, .type = strncmp(text, "tcp:", 4) ? SOCK_DGRAM : SOCK_STREAM, .fd = -1};
	if (!start || start == end || (size_t)(end - start) > sizeof address)
		return false;
	memcpy(address, start + 1, (size_t)(end - start) - 1);
	w->name = dns ? end + 1 : NULL;
	port = htons(dns ? 53 : (uint16_t)atoi(end + 1));
	if (inet_pton(AF_INET, address, &w->to.v4.sin_addr) == 1) {
		w->to.v4.sin_family = AF_INET;
		w->to.v4.sin_port = port;
		w->len = sizeof w->to.v4;
	} else if (inet_pton(AF_INET6, address, &w->to.v6.sin6_addr) == 1) {
		w->to.v6.sin6_family = AF_INET6;
		w->to.v6.sin6_port = port;
		w->len = sizeof w->to.v6;
	}
	return w->len > 0;
}

/* A question for the address of n<number>.<name>: its length. */
static size_t question(unsigned char out[256], unsigned number, const char *name)
{
	static const unsigned char head[12] = {0, 0, 1, 0, 0, 1}, tail[5] = {0, 0, 1, 0, 1};
	char whole[200];
	size_t at = sizeof head;

	snprintf(whole, sizeof whole, "n%u.%s", number, name);
	memcpy(out, head, sizeof head);
	out[0] = (unsigned char)(number >> 8);
	out[1] = (unsigned char)number;
	for (char *rest, *label = strtok_r(whole, ".", &rest); label; label = strtok_r(NULL, ".", &rest)) {
		size_t n = strlen(label);

		out[at++] = (unsigned char)n;
		memcpy(out + at, label, n);
		at += n;
	}
	memcpy(out + at, tail, sizeof tail);
	return at + sizeof tail;
}

/* Says it, opening or connecting first when need be. 0 or errno. */
static int say(struct way *w, unsigned number, const char *text)
{
	static const struct timeval patience = {.tv_sec = 1};
	unsigned char buf[256];
	size_t len = w->name ? question(buf, number, w->name) : (size_t)snprintf((char *)buf, sizeof buf, "%s\n", text);
	int error = 0;

	if (w->fd < 0) {
		w->fd = socket(w->to.sa.sa_family, w->type | SOCK_CLOEXEC, 0);
		if (w->fd < 0)
			return errno;
		setsockopt(w->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); /* of connect() too */
		if (w->type == SOCK_STREAM && connect(w->fd, &w->to.sa, w->len) < 0)
			error = errno;
	}
	if (!error && w->type == SOCK_STREAM && send(w->fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
		error = errno;
	if (w->type == SOCK_DGRAM && sendto(w->fd, buf, len, MSG_DONTWAIT, &w->to.sa, w->len) < 0)
		error = errno;
	if (error && w->type == SOCK_STREAM) {
		close(w->fd);
		w->fd = -1;
	}
	return error;
}

_Noreturn static void talk(struct way *ways, int count)
{
	for (unsigned number = 0;; number++) {
		char text[16];

		snprintf(text, sizeof text, "%u", number);
		for (int i = 0; i < count; i++) {
			char answer[512];

			say(&ways[i], number, text);
			/* Answers are read and forgotten, lest the queue fills. */
			while (ways[i].fd >= 0 && recv(ways[i].fd, answer, sizeof answer, MSG_DONTWAIT) > 0)
				;
		}
		nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
	}
}

static int try_once(struct way *ways, int count, const char *label)
{
	int errors[WAYS_MAX], out = 0, refused = 0;

	for (int i = 0; i < count; i++)
		errors[i] = say(&ways[i], 0, label);
	for (int i = 0; i < count; i++) {
		out += !errors[i];
		refused += errors[i] == EPERM;
		printf("%s %s\n", ways[i].text, errors[i] ? strerrorname_np(errors[i]) : "ok");
	}
	fflush(stdout);
	return out == count ? 0 : refused == count ? NONE_GOT_OUT : MIXED;
}

static uint16_t checksum(const void *data, size_t len)
{
	const uint16_t *words = data;
	uint32_t sum = 0;

	for (size_t i = 0; i < len / 2; i++)
		sum += words[i];
	sum = (sum >> 16) + (sum & 0xffff);
	return (uint16_t) ~(sum + (sum >> 16));
}

static int frame(char **a)
{
	struct {
		struct iphdr ip;
		struct udphdr udp;
		char text[64];
	} __attribute__((packed)) p = {.ip = {.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_UDP}};
	size_t len = sizeof p.ip + sizeof p.udp + (size_t)snprintf(p.text, sizeof p.text, "%s", a[5]);
	struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_halen = ETH_ALEN};
	unsigned char *mac = to.sll_addr;
	int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	to.sll_ifindex = (int)if_nametoindex(a[0]);
	p.ip.tot_len = htons((uint16_t)len);
	p.udp = (struct udphdr){
	    .source = htons(4321), .dest = htons((uint16_t)atoi(a[4])), .len = htons((uint16_t)(len - sizeof p.ip))};
	if (sscanf(a[1], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) != 6 ||
	    inet_pton(AF_INET, a[2], &p.ip.saddr) != 1 || inet_pton(AF_INET, a[3], &p.ip.daddr) != 1)
		return 2;
	p.ip.check = checksum(&p.ip, sizeof p.ip);
	if (fd < 0 || sendto(fd, &p, len, 0, (struct sockaddr *)&to, sizeof to) < 0) {
		printf("frame %s\n", strerrorname_np(errno));
		return errno == EPERM ? NONE_GOT_OUT : MIXED;
	}
	puts("frame ok");
	return 0;
}

int main(int argc, char **argv)
{
	struct way ways[WAYS_MAX];
	const char *verb = argc > 1 ? argv[1] : "";
	int first = strcmp(verb, "try") ? 2 : 3, count = 0;

	signal(SIGTERM, on_term); /* pid 1 of a container ends on no signal that it does not take */
	if (!strcmp(verb, "pause"))
		for (;;)
			pause();
	if (!on_fake_internet()) {
		fputs("probe: this is not the fake internet\n", stderr);
		return NOT_HERE;
	}
	if (!strcmp(verb, "frame") && argc == 8)
		return frame(argv + 2);
	for (int i = first; i < argc && count < WAYS_MAX; i++)
		if (!read_way(&ways[count++], argv[i]))
			return 2;
	if (!count || (strcmp(verb, "try") && strcmp(verb, "talk")))
		return 2;
	if (first == 2)
		talk(ways, count);
	return try_once(ways, count, argv[2]);
}
