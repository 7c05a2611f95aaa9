/* SPDX-License-Identifier: Apache-2.0 */
/* The socket a service listens on. */
#ifndef WEIR_CLI_LISTENER_H
#define WEIR_CLI_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "core/err.h"

struct listener_rules {
	bool protected; /* TLS, or somebody who said that plain text will do */
	bool dev_token; /* there is one: for loopback and unix sockets alone */
};

/* Whether `address` (core/listen.h) can be listened on by these rules. Opens nothing. */
int listener_check(const char *address, const struct listener_rules *rules, struct err *e);

/* The same, and opens it: *ret is the caller's, non-blocking. A unix socket has mode 0660. */
int listener_open(const char *address, const struct listener_rules *rules, int *ret, struct err *e);

/* The file of a unix socket that was just opened, to be removed at the end; one that has taken its place is left alone. */
void listener_note(const char *address, struct stat *ret);
void listener_remove(const char *address, const struct stat *made);

/* What to tell people: port 0 has become a real one. */
void listener_name(int fd, const char *address, char *ret, size_t size);

#endif
