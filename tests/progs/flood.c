/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flood: datagrams at a steady rate to a list of addresses in turn, for a time, and what became of each; or one stream that is
 * kept busy. For the tests of a policy that is swapped underneath.
 *
 *	flood udp RATE SECONDS PORT ADDRESS...	ends with {"sent": {address: count}, "refused": {address: count}, "other": n,
 *						"seconds": s, "late": n}
 *	flood tcp SECONDS PORT ADDRESS		512 bytes every 10 ms; {"steps": [{"bytes", "queued"}, ...], "bytes"} at the end
 *
 * SIGTERM ends it early. Each datagram holds its number and its address's place in the list, both 32 bits in network order.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { PLACES_MAX = 8, TICK_NS = 1000 * 1000 };

struct target {
	const char *text;
	struct sockaddr_storage addr;
	socklen_t len;
	int fd;
	uint64_t sent, refused;
};

static bool read_target(struct target *t, const char *text, int port)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)&t->addr;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&t->addr;

	memset(t, 0, sizeof *t);
	t->text = text;
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		t->len = sizeof *v4;
	} else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)port);
		t->len = sizeof *v6;
	}
	return t->len > 0;
}

static volatile sig_atomic_t stopping;

static void on_term(int sig)
{
	(void)sig;
	stopping = 1;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void print_counts(const char *name, const struct target *t, int n, bool refused)
{
	printf("\"%s\": {", name);
	for (int i = 0; i < n; i++)
		printf("%s\"%s\": %llu", i ? ", " : "", t[i].text, (unsigned long long)(refused ? t[i].refused : t[i].sent));
	printf("}, ");
}

static int flood_udp(unsigned rate, unsigned seconds, struct target *t, int n)
{
	uint64_t began = now_ns(), end = began + seconds * 1000000000ull, tick = began, number = 0, other = 0, late = 0;
	unsigned each_tick = rate / 1000;
	int last_other = 0;

	for (int i = 0; i < n; i++)
		t[i].fd = socket(t[i].addr.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	fputs("sending\n", stderr);
	while (!stopping && (tick = tick + TICK_NS) < end) {
		if (now_ns() > tick)
			late++;
		else
			sleep_until(tick);
		for (unsigned i = 0; i < each_tick; i++, number++) {
			struct target *to = &t[number % (unsigned)n];
			uint32_t payload[2] = {htonl((uint32_t)number), htonl((uint32_t)(number % (unsigned)n))};

			if (sendto(to->fd, payload, sizeof payload, MSG_DONTWAIT, (struct sockaddr *)&to->addr, to->len) >= 0) {
				to->sent++;
			} else if (errno == EPERM) {
				to->refused++;
			} else {
				other++;
				last_other = errno;
			}
		}
	}
	printf("{");
	print_counts("sent", t, n, false);
	print_counts("refused", t, n, true);
	printf("\"other\": %llu, \"other_errno\": %d, \"late\": %llu, \"seconds\": %.3f}\n", (unsigned long long)other,
	       last_other, (unsigned long long)late, (double)(now_ns() - began) / 1e9);
	return 0;
}

/* What it has been given, and what of that waits for an acknowledgement. */
static void print_progress(int fd, uint64_t bytes, bool last)
{
	int queued = 0;

	ioctl(fd, SIOCOUTQ, &queued);
	printf("{\"bytes\": %llu, \"queued\": %d}%s", (unsigned long long)bytes, queued, last ? "" : ", ");
}

static int stream_tcp(unsigned seconds, struct target *t)
{
	uint64_t end = now_ns() + seconds * 1000000000ull, tick = now_ns(), bytes = 0;
	const unsigned ticks_a_line = 10;
	char block[512];

	memset(block, 'w', sizeof block);
	t->fd = socket(t->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(t->fd, (struct sockaddr *)&t->addr, t->len) < 0) {
		perror("flood: connect");
		return 1;
	}
	fputs("sending\n", stderr);
	printf("{\"steps\": [");
	for (unsigned i = 0; !stopping && tick < end; i++) {
		ssize_t sent = send(t->fd, block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent < 0 && errno != EAGAIN) {
			perror("flood: send");
			return 1;
		}
		bytes += sent < 0 ? 0 : (uint64_t)sent;
		if (i % ticks_a_line == 0)
			print_progress(t->fd, bytes, false);
		sleep_until(tick += 10000000);
	}
	print_progress(t->fd, bytes, true);
	printf("], \"bytes\": %llu}\n", (unsigned long long)bytes);
	return 0;
}

int main(int argc, char **argv)
{
	struct target t[PLACES_MAX];
	int n = 0;

	signal(SIGTERM, on_term);
	if (argc == 5 && strcmp(argv[1], "tcp") == 0 && read_target(&t[0], argv[4], atoi(argv[3])))
		return stream_tcp((unsigned)atoi(argv[2]), &t[0]);
	if (argc < 6 || argc > 5 + PLACES_MAX || strcmp(argv[1], "udp") != 0)
		return 2;
	for (int i = 5; i < argc; i++)
		if (!read_target(&t[n++], argv[i], atoi(argv[4])))
			return 2;
	return flood_udp((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]), t, n);
}
