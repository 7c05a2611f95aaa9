/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector: tries ways out of a policy and says how each ended, step by step. Never judges.
 *
 *	vector LABEL WAY ADDRESS PORT [OTHER]	one try
 *	vector -				one try for each line of stdin with the same words, each in a child
 *	vector --ways				names of all ways
 *
 * One line of JSON for each try: {"label", "steps": [["socket", "ok"], ["sendto", "EPERM"]], "ms"}. What is sent is
 * "weir LABEL", so that whoever hears it knows whose it is. No try takes longer than TRY_SECONDS.
 */
#include "vector.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <net/if.h>

enum { TRY_SECONDS = 5, WORDS = 5 };

static const struct way *const all_ways[] = {tcp_ways, udp_ways, option_ways, raw_ways, family_ways, kernel_ways, import_ways};
static char steps[4096];

bool ended(const char *step, int error)
{
	const char *how = error ? strerrorname_np(error) : "ok";
	size_t used = strlen(steps);

	snprintf(steps + used, sizeof steps - used, "%s[\"%s\", \"%s\"]", used ? ", " : "", step, how ? how : "?");
	return !error;
}

bool did(const char *step, long rc)
{
	return ended(step, rc < 0 ? errno : 0);
}

int open_socket(int family, int type, int protocol)
{
	int fd = socket(family, type | SOCK_CLOEXEC, protocol);

	did("socket", fd);
	return fd;
}

int finish_connect(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	socklen_t len = sizeof errno;
	int error = 0;

	if (poll(&p, 1, CONNECT_MS) == 0)
		error = ETIMEDOUT;
	else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		return -1;
	errno = error;
	return error ? -1 : 0;
}

int connect_soon(int fd, const struct place *to)
{
	int flags = fcntl(fd, F_GETFL), rc;

	fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	rc = connect(fd, &to->sa, to->len);
	if (rc < 0 && errno == EINPROGRESS)
		rc = finish_connect(fd);
	if (rc == 0)
		fcntl(fd, F_SETFL, flags);
	return rc;
}

unsigned short checksum(const void *data, size_t len)
{
	const unsigned char *p = data;
	unsigned sum = 0;

	for (size_t i = 0; i < len; i++)
		sum += i & 1 ? p[i] : (unsigned)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons((unsigned short)~sum);
}

/* "fe80::1%eth0" names a device. */
static void read_place(struct place *ret, const char *address, unsigned short port)
{
	char text[64];
	char *device;

	memset(ret, 0, sizeof *ret);
	snprintf(text, sizeof text, "%s", address);
	device = strchr(text, '%');
	if (device)
		*device++ = 0;
	if (inet_pton(AF_INET, text, &ret->v4.sin_addr) == 1) {
		ret->v4.sin_family = AF_INET;
		ret->v4.sin_port = htons(port);
		ret->len = sizeof ret->v4;
	} else if (inet_pton(AF_INET6, text, &ret->v6.sin6_addr) == 1) {
		ret->v6.sin6_family = AF_INET6;
		ret->v6.sin6_port = htons(port);
		ret->v6.sin6_scope_id = device ? if_nametoindex(device) : 0;
		ret->len = sizeof ret->v6;
	}
}

static const struct way *find_way(const char *name)
{
	for (size_t t = 0; t < sizeof all_ways / sizeof all_ways[0]; t++)
		for (const struct way *w = all_ways[t]; w->name; w++)
			if (strcmp(w->name, name) == 0)
				return w;
	return NULL;
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int try_one(char *const words[WORDS], int count)
{
	const struct way *way = count >= 4 ? find_way(words[1]) : NULL;
	struct way_args a = {.word = count > 4 ? words[4] : ""};
	char payload[128], line[sizeof steps + 256];
	double began;
	int n;

	if (!way) {
		fprintf(stderr, "vector: no such way: %s\n", count > 1 ? words[1] : "?");
		return 2;
	}
	snprintf(payload, sizeof payload, "weir %s", words[0]);
	a.payload = payload;
	a.len = strlen(payload);
	read_place(&a.to, words[2], (unsigned short)atoi(words[3]));
	if (count > 4)
		read_place(&a.other, words[4], (unsigned short)atoi(words[3]));
	/* The name in the audit. */
	prctl(PR_SET_NAME, words[0]);
	began = now_ms();
	way->run(&a);
	n = snprintf(line, sizeof line, "{\"label\": \"%s\", \"steps\": [%s], \"ms\": %.2f}\n", words[0], steps,
		     now_ms() - began);
	return write(1, line, (size_t)n) == n ? 0 : 1;
}

static int try_in_child(char *const words[WORDS], int count)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		alarm(TRY_SECONDS);
		_exit(try_one(words, count));
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	if (WIFSIGNALED(status)) {
		printf("{\"label\": \"%s\", \"steps\": [[\"signal\", \"SIG%s\"]]}\n", words[0], sigabbrev_np(WTERMSIG(status)));
		fflush(stdout);
		return 0;
	}
	return WEXITSTATUS(status);
}

static int try_lines(void)
{
	char line[512];
	int bad = 0;

	while (fgets(line, sizeof line, stdin)) {
		char *words[WORDS], *save = NULL, *w;
		int count = 0;

		for (w = strtok_r(line, " \n", &save); w && count < WORDS; w = strtok_r(NULL, " \n", &save))
			words[count++] = w;
		if (count)
			bad |= try_in_child(words, count);
	}
	return bad;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--ways") == 0) {
		for (size_t t = 0; t < sizeof all_ways / sizeof all_ways[0]; t++)
			for (const struct way *w = all_ways[t]; w->name; w++)
				puts(w->name);
		return 0;
	}
	if (argc == 2 && strcmp(argv[1], "-") == 0)
		return try_lines();
	return try_one(argv + 1, argc - 1 > WORDS ? WORDS : argc - 1);
}
