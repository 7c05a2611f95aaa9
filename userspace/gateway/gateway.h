/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way out of tools' sandboxes. A tool's network namespace has one device, a tap; a process outside reads its packets and
 * speaks for it with ordinary sockets of the host's (libslirp). So nothing is changed on the host: no interface, no route, no
 * firewall rule, no forwarding; whatever the host may reach, through whatever firewall, a tool may, as far as its policy lets
 * it.
 *
 * Each sandbox has a carrier of its own: a uid of its own, no capability, a root with one file, a short list of system calls,
 * in a cgroup beside the sandbox's under the same policy. So what a sandbox's own verdicts let pass is judged once more where
 * it leaves the host, and one tool's packets are never in one process with another's.
 *
 * The gateway is the process that starts carriers, and keeps root for that alone. It reads struct carry, and the host's
 * resolv.conf, which it copies for the carriers without looking into it.
 *
 *   gateway.c  the loop: one struct carry in, one carrier started
 *   carrier.c  one tap, one libslirp
 *   confine.c  what both give up: the gateway before it serves, a carrier before it reads a packet
 *   answers.c  who may send a sandbox datagrams
 *   names.c    the root directory of carriers, and the one file in it
 */
#ifndef WEIR_GATEWAY_GATEWAY_H
#define WEIR_GATEWAY_GATEWAY_H

#include <sys/types.h>

#include "core/err.h"
#include "ipc/ipc.h"

struct gateway_config {
	int supervisor_fd; /* taken */
	pid_t parent;	   /* dies with it */
};

/* Descriptors a carrier has beside its sockets: 0 to 2, the tap, and one for resolv.conf. */
#define CARRIER_FDS_OWN 5

/* Serves until the supervisor hangs up, in a process that was forked for it. Returns the exit status. */
int gateway_main(const struct gateway_config *config);

/* Whether this host can do it: opens the device for taps, says which libslirp. For `weir doctor` and the start. */
int gateway_probe(char ret_version[32], struct err *e);

#endif
