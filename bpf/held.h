/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What bpf/held.bpf.c tells: a socket, or another way out, in somebody's table of descriptors. */
#ifndef WEIR_BPF_HELD_H
#define WEIR_BPF_HELD_H

#include "abi.h"

/* struct weir_held.flags */
#define WEIR_HELD_ELSEWHERE 0x1u /* made in a cgroup that is not below the one asked about */
/* No sockets; only pid and comm are told of these: */
#define WEIR_HELD_TUN 0x2u    /* /dev/net/tun */
#define WEIR_HELD_HIDES 0x4u  /* a Unix socket in whose queue descriptors wait, or an io_uring that holds some */
#define WEIR_HELD_CGROUP 0x8u /* a directory of cgroups beyond the target, or a file there to write to; or of pins */
/* A packet socket of somebody who is not below the cgroup asked about; only its inode is told. */
#define WEIR_HELD_OUTSIDE 0x10u
#define WEIR_HELD_NO_SOCKET (WEIR_HELD_TUN | WEIR_HELD_HIDES | WEIR_HELD_CGROUP)

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
	__u32 netns; /* inode of its network namespace */
	__u32 pid;   /* of the holder, in the reader's pid namespace; 0: not to be seen there */
	char comm[WEIR_COMM_LEN];
	__u32 pad;
};
_Static_assert(sizeof(struct weir_held) == 88, "ABI");

#endif
