/* SPDX-License-Identifier: Apache-2.0 */
/* What the gateway's files share. */
#ifndef WEIR_GATEWAY_INTERNAL_H
#define WEIR_GATEWAY_INTERNAL_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "core/err.h"
#include "ipc/ipc.h"

#define GATEWAY "gateway"
#define CARRIER "carrier"

/* ---- names.c ---- */

/* A directory in memory with nothing in it but etc/resolv.conf, which follows the host's. */
struct names {
	int root, etc; /* -1: none */
	struct stat seen;
	bool copied;
};

int names_open(struct names *n, struct err *e);
/* Copies the host's resolv.conf again when it is not the one that was copied last. Logs what goes wrong. */
void names_refresh(struct names *n);

/* ---- confine.c ---- */

/* The carriers' filter, compiled once: a carrier only loads it. */
struct carrier_filter {
	struct sock_filter code[4096];
	unsigned short len; /* 0: none, in builds with sanitizers */
};

int carrier_filter_compile(struct carrier_filter *ret, struct err *e);

/* The gateway's own: what it needs to start a carrier, and what a carrier needs after it. After names_open(). */
int gateway_confine(pid_t parent, struct err *e);

struct carrier_spec {
	const struct carry *job;
	int tap, report; /* the only descriptors that stay */
	const int *tasks;
	int root;
	pid_t gateway;
	const struct carrier_filter *filter;
};

int carrier_confine(const struct carrier_spec *spec, struct err *e);

/* ---- carrier.c ---- */

/* What a carrier says on `report`, once: that it serves, or why not. */
struct carrier_report {
	int32_t status;
	char text[128];
};

/* In the process that was made for it. */
void __attribute__((noreturn)) carrier_main(const struct carrier_spec *spec);

#endif
