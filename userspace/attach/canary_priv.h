/* SPDX-License-Identifier: Apache-2.0 */
/* The canary's three parts: what it tries (canary_plan.c, pure), the processes that try it (canary_child.c), and the rest. */
#ifndef WEIR_ATTACH_CANARY_PRIV_H
#define WEIR_ATTACH_CANARY_PRIV_H

#include <sys/types.h>

#include "attach/canary.h"
#include "judge_types.h"

#define CANARY_COMM "weir-canary"
#define CANARY_TRIES 12
#define CANARY_ROUNDS 5 /* of a datagram: its socket is looked for among the entry's, which others open and close as well */
#define CANARY_LEAVES 16

enum canary_way {
	CANARY_DATAGRAM,
	CANARY_STREAM,
	CANARY_JOIN,	/* a multicast group */
	CANARY_RECEIVE, /* a datagram from outside, to `to` */
};

struct canary_try {
	enum canary_way way;
	struct weir_dest to;
	struct weir_flow_key key; /* what the kernel writes down of it, but for cgroup and generation */
	bool passes;		  /* by the policy, or because that only watches */
	bool listed;		  /* it gets an entry */
};

struct canary_plan {
	struct canary_try tries[CANARY_TRIES];
	size_t count;
};

/*
 * Of each kind one that is denied and one that passes, as far as the policy has them. `first_port`: from here on nobody else
 * is likely to send. Pure.
 */
void canary_plan(const struct policy_image *img, uint16_t first_port, struct canary_plan *ret);

/* What a try met. */
struct canary_met {
	bool tried;
	int error;	  /* of the last time; 0 it passed */
	unsigned sent;	  /* times */
	unsigned counted; /* datagrams: times that its socket appeared among the entry's sockets .. */
	unsigned let_go;  /* .. and times that it left them */
	bool heard;	  /* CANARY_RECEIVE */
};

enum canary_stage {
	CANARY_STARTS,	/* the process outside */
	CANARY_NETWORK, /* a network namespace, and what leads nowhere in it */
	CANARY_ENTERS,	/* the process inside */
	CANARY_TRIES_OUT,
	CANARY_DONE
};

/* Shared memory: written by the two processes, read when they are gone. */
struct canary_report {
	enum canary_stage stage; /* reached */
	int error;		 /* why it went no further */
	pid_t pid;		 /* of the process inside; 0 there never was one */
	size_t leaf;		 /* .. in which of the leaves */
	unsigned families;	 /* LOCALNET_* */
	struct canary_met met[CANARY_TRIES];
};

struct canary_leaf {
	int fd;
	const char *below; /* the target's directory; "": that itself */
	bool populated;
};

struct canary_run {
	const struct canary_plan *plan;
	const struct canary_leaf *leaves;
	size_t leaf_count;
	const struct guard *guard; /* whose entry `cgroup` is */
	uint64_t cgroup;
	uint64_t until_ns; /* CLOCK_MONOTONIC */
	struct canary_report *report;
};

/* Lets them try, and ends both whatever happens: 0, or a negative errno when not even the first could be started. */
int canary_run(const struct canary_run *r);

#endif
