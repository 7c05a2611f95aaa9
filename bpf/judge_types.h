/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One destination, as a call or a packet names it. */
#ifndef WEIR_BPF_JUDGE_TYPES_H
#define WEIR_BPF_JUDGE_TYPES_H

#include "abi.h"

/* struct weir_dest.flags */
#define WEIR_DEST_OPTIONS 0x1u	/* the IPv4 header has options */
#define WEIR_DEST_ROUTING 0x2u	/* there is an IPv6 routing header */
#define WEIR_DEST_HEADLESS 0x4u /* a later fragment: `port` is not known */

struct weir_dest {
	__u8 addr[16]; /* IPv4 as ::ffff:a.b.c.d when family is 4 */
	__u16 port;    /* host order; 0 for protocols without ports */
	__u8 family;   /* 4 or 6 */
	__u8 protocol; /* IPPROTO_* */
	__u32 flags;
};

#endif
