/* SPDX-License-Identifier: Apache-2.0 */
/* Ways out, each a function; what the files of the program `vector` share. See vector.c. */
#ifndef WEIR_TESTS_VECTOR_H
#define WEIR_TESTS_VECTOR_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* An address and port of either family; len 0: none was given. */
struct place {
	union {
		struct sockaddr sa;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	};
	socklen_t len;
};

struct way_args {
	struct place to, other; /* what `other` means is each way's own affair */
	const char *word;	/* third argument as it was written: a path, a pid */
	const char *payload;	/* "weir LABEL" */
	size_t len;
};

struct way {
	const char *name;
	void (*run)(const struct way_args *a);
};

extern const struct way tcp_ways[], udp_ways[], option_ways[], raw_ways[], family_ways[], kernel_ways[], import_ways[];

/* Notes a step and how it ended: ok, or errno's name when `rc` is negative. True when it is not. */
bool did(const char *step, long rc);

/* As did(), with `error` for errno (0: ok). */
bool ended(const char *step, int error);

int open_socket(int family, int type, int protocol);

/* connect() with an end: ETIMEDOUT after CONNECT_MS. */
#define CONNECT_MS 400
int connect_soon(int fd, const struct place *to);

/* Waits for what connect() or a first send has begun; 0 or -1 and errno. */
int finish_connect(int fd);

unsigned short checksum(const void *data, size_t len);

#endif
