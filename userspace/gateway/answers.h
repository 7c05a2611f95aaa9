/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may send a sandbox datagrams: those it has sent some to. libslirp's sockets for datagrams are not connected, since one
 * socket of a tool may talk to many, so they take what anybody sends to their port. Pure.
 */
#ifndef WEIR_GATEWAY_ANSWERS_H
#define WEIR_GATEWAY_ANSWERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ANSWERS_MAX 512 /* of whom answers are awaited at once; the oldest go, until they are sent to again */

struct answers_peer {
	uint8_t address[16]; /* IPv4 in the last four bytes */
	uint16_t port, own;  /* network order; `own` is the sandbox's */
	uint8_t family;	     /* 4 or 6; 0: none */
};

struct answers {
	struct answers_peer peers[ANSWERS_MAX];
	unsigned next;
};

/* A frame that the sandbox sends. */
void answers_note(struct answers *a, const uint8_t *frame, size_t len);

/* Whether a frame for the sandbox is what it may get: no datagram, or one of somebody it has sent to from that port. */
bool answers_expected(const struct answers *a, const uint8_t *frame, size_t len);

#endif
