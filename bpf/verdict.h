/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The decisions, and nothing else: no map, no helper, no packet. The kernel programs and the unit tests compile the same
 * lines. Whatever is missing, unknown or unreadable denies.
 */
#ifndef WEIR_BPF_VERDICT_H
#define WEIR_BPF_VERDICT_H

#include "abi.h"

#define WEIR_INLINE static inline __attribute__((always_inline))

/* A verdict and why, in one register: a struct of two bytes costs the kernel programs stack. Zero denies. */
typedef __u32 weir_judgement;

WEIR_INLINE weir_judgement weir_judgement_of(__u8 verdict, __u8 reason)
{
	return verdict | (__u32)reason << 8;
}

WEIR_INLINE __u8 weir_verdict_of(weir_judgement j)
{
	return (__u8)j;
}

WEIR_INLINE __u8 weir_reason_of(weir_judgement j)
{
	return (__u8)(j >> 8);
}

/*
 * What one governed cgroup says. `listed`: it has an entry; `policy`: the slot that entry names, or NULL when there is no
 * such slot; `readable`: the packet could be parsed (true at an address hook).
 */
WEIR_INLINE weir_judgement weir_judge(int listed, const struct weir_policy *policy, int readable)
{
	if (!listed)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_NO_ENTRY);
	if (!policy || policy->present != 1)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_NO_POLICY);
	if (!readable)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_MALFORMED);
	return weir_judgement_of(policy->default_verdict == WEIR_ALLOW ? WEIR_ALLOW : WEIR_DENY, WEIR_REASON_DEFAULT);
}

/*
 * A task of one governed cgroup uses a socket made in another: both are asked, either can deny. The attempt is the
 * task's; its own denial names the reason, the socket's shows as SOCKET.
 */
WEIR_INLINE weir_judgement weir_judge_both(weir_judgement task, weir_judgement socket)
{
	if (weir_verdict_of(task) != WEIR_ALLOW)
		return task;
	if (weir_verdict_of(socket) != WEIR_ALLOW)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_SOCKET);
	return task;
}

/*
 * May a datagram socket be pointed at a destination for the first time? `live`: how many its cgroup holds already; `counted`
 * is 0 when there is no memory to count this one (the kernel allows each socket a little, and its owner can use that up). An
 * uncounted socket would escape the bound, so it is refused like one too many.
 */
WEIR_INLINE weir_judgement weir_judge_socket(int counted, __s64 live)
{
	if (!counted || live >= WEIR_SOCKETS_PER_SANDBOX)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_SOCKETS);
	return weir_judgement_of(WEIR_ALLOW, WEIR_REASON_DEFAULT);
}

#endif
