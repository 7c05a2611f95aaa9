/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What bpf/held.bpf.c tells: a socket, or a device that leads out, in somebody's table of descriptors. */
#ifndef WEIR_BPF_HELD_H
#define WEIR_BPF_HELD_H

#include "abi.h"

/* struct weir_held.flags */
#define WEIR_HELD_ELSEWHERE 0x1u /* made in a cgroup that is not below the one asked about */
#define WEIR_HELD_TUN 0x2u	 /* no socket: /dev/net/tun, of which only pid and comm are told */

struct weir_held {
	__u64 inode;	  /* the socket's: the same for all who hold it */
	__u64 cgroup;	  /* the one it was made in; 0 unknown */
	__u8 local[16];	  /* IPv4 as ::ffff:a.b.c.d when family is AF_INET; zeros without an address */
	__u8 remote[16];  /* likewise */
	__u16 local_port; /* host order; of raw sockets the protocol, of ping sockets the id */
	__u16 remote_port;
	__u16 family; /* AF_* */
	__u16 type;
	__u16 protocol;
	__u8 state; /* as TCP's states are numbered */
	__u8 flags;
	__u32 pid; /* of the holder, in the reader's pid namespace; 0: not to be seen there */
	char comm[WEIR_COMM_LEN];
};
_Static_assert(sizeof(struct weir_held) == 80, "ABI");

#endif
