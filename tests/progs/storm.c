/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm: attempts as fast as one program can make them, on every processor it may use, to as many destinations as it is
 * told, and its own count of what became of each. For the tests that nothing of it is lost but detail, and that is told.
 *
 *	storm WAY MILLISECONDS PORTS ADDRESS
 *
 * WAY: `sendto` names a new destination each time, `send` uses sockets that are connected to them, `connect` tries streams.
 * Destinations are ADDRESS and the ports from 1024 on, PORTS of them in turn. Ends with {"attempts", "refused" (EPERM),
 * "passed", "other", "errno" (the last other), "threads", "ms"}, numbers all. SIGTERM ends it early; its name is "storm",
 * however it was started. Static, so that it runs from wherever it is copied to.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_PORT = 1024, THREADS_MAX = 16, SOCKETS_MAX = 512, BATCH = 64 };

struct storm;
struct way {
	const char *name;
	int (*attempt)(struct storm *s, unsigned at);
};

struct storm {
	const struct way *way;
	struct sockaddr_in to;
	unsigned ports;
	uint64_t until_ns;
	uint64_t attempts, refused, passed, other;
	int last_errno;
	int fd, fds[SOCKETS_MAX];
	pthread_t thread;
};

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

static int by_sendto(struct storm *s, unsigned at)
{
	s->to.sin_port = htons((uint16_t)(FIRST_PORT + at % s->ports));
	return (int)sendto(s->fd, "", 0, MSG_DONTWAIT, (struct sockaddr *)&s->to, sizeof s->to);
}

/* A datagram socket is pointed somewhere without a packet: that is no attempt yet. */
static int by_send(struct storm *s, unsigned at)
{
	int *fd = &s->fds[at % (s->ports < SOCKETS_MAX ? s->ports : SOCKETS_MAX)];

	if (*fd < 0) {
		*fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		s->to.sin_port = htons((uint16_t)(FIRST_PORT + at % s->ports));
		if (*fd < 0 || connect(*fd, (struct sockaddr *)&s->to, sizeof s->to) < 0)
			return -1;
	}
	return (int)send(*fd, "", 0, MSG_DONTWAIT);
}

static int by_connect(struct storm *s, unsigned at)
{
	s->to.sin_port = htons((uint16_t)(FIRST_PORT + at % s->ports));
	return connect(s->fd, (struct sockaddr *)&s->to, sizeof s->to);
}

static void *rage(void *arg)
{
	struct storm *s = arg;
	unsigned at = 0;

	s->fd = socket(AF_INET, (s->way->attempt == by_connect ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);
	memset(s->fds, 0xff, sizeof s->fds);
	do {
		for (unsigned i = 0; i < BATCH; i++, at++) {
			if (s->way->attempt(s, at) >= 0) {
				s->passed++;
			} else if (errno == EPERM) {
				s->refused++;
			} else {
				s->other++;
				s->last_errno = errno;
			}
		}
		s->attempts += BATCH;
	} while (!stopping && now_ns() < s->until_ns);
	return NULL;
}

static const struct way *way_of(const char *name)
{
	static const struct way ways[] = {{"sendto", by_sendto}, {"send", by_send}, {"connect", by_connect}};

	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if (strcmp(ways[i].name, name) == 0)
			return &ways[i];
	return NULL;
}

static int processors(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof set, &set) < 0)
		return 1;
	return CPU_COUNT(&set) < THREADS_MAX ? CPU_COUNT(&set) : THREADS_MAX;
}

int main(int argc, char **argv)
{
	static struct storm storms[THREADS_MAX];
	struct storm sum = {.to = {.sin_family = AF_INET}};
	const uint64_t began = now_ns();
	const int threads = processors();

	if (argc != 5 || !(sum.way = way_of(argv[1])) || inet_pton(AF_INET, argv[4], &sum.to.sin_addr) != 1)
		return 2;
	prctl(PR_SET_NAME, "storm");
	signal(SIGTERM, on_term);
	sum.until_ns = began + strtoull(argv[2], NULL, 10) * 1000000u;
	sum.ports = (unsigned)strtoul(argv[3], NULL, 10);
	if (sum.ports < 1 || sum.ports > 60000)
		return 2;
	for (int i = 0; i < threads; i++) {
		storms[i] = sum;
		if (pthread_create(&storms[i].thread, NULL, rage, &storms[i]) != 0)
			return 1;
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(storms[i].thread, NULL);
		sum.attempts += storms[i].attempts;
		sum.refused += storms[i].refused;
		sum.passed += storms[i].passed;
		sum.other += storms[i].other;
		if (storms[i].last_errno)
			sum.last_errno = storms[i].last_errno;
	}
	printf("{\"attempts\": %llu, \"refused\": %llu, \"passed\": %llu, \"other\": %llu, \"errno\": %d, \"threads\": %d, "
	       "\"ms\": %llu}\n",
	       (unsigned long long)sum.attempts, (unsigned long long)sum.refused, (unsigned long long)sum.passed,
	       (unsigned long long)sum.other, sum.last_errno, threads, (unsigned long long)((now_ns() - began) / 1000000u));
	return 0;
}
