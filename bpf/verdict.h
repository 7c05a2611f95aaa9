/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The decisions, and nothing else: no map, no helper, no packet. The kernel programs and the unit tests compile the same
 * lines. Whatever is missing, unknown or unreadable denies.
 */
#ifndef WEIR_BPF_VERDICT_H
#define WEIR_BPF_VERDICT_H

#include "abi.h"

#define WEIR_INLINE static inline __attribute__((always_inline))

/*
 * A verdict and why, in one register: a struct would cost the kernel programs stack. Bits 0-3 enum weir_verdict, 4-11 enum
 * weir_reason, 12-15 enum weir_via, 16-31 the rule. Zero denies.
 */
typedef __u32 weir_judgement;

WEIR_INLINE weir_judgement weir_judgement_of(__u8 verdict, __u8 reason)
{
	return (verdict & 15u) | (__u32)reason << 4;
}

WEIR_INLINE weir_judgement weir_judgement_by_rule(__u8 verdict, __u16 rule)
{
	return weir_judgement_of(verdict, WEIR_REASON_RULE) | (__u32)rule << 16;
}

WEIR_INLINE weir_judgement weir_judgement_via(weir_judgement j, __u8 via)
{
	return (j & ~(15u << 12)) | (via & 15u) << 12;
}

WEIR_INLINE weir_judgement weir_judgement_with_verdict(weir_judgement j, __u8 verdict)
{
	return (j & ~15u) | (verdict & 15u);
}

WEIR_INLINE __u8 weir_verdict_of(weir_judgement j)
{
	return j & 15u;
}

WEIR_INLINE __u8 weir_reason_of(weir_judgement j)
{
	return (__u8)(j >> 4);
}

WEIR_INLINE __u8 weir_via_of(weir_judgement j)
{
	return j >> 12 & 15u;
}

WEIR_INLINE __u16 weir_rule_of(weir_judgement j)
{
	return (__u16)(j >> 16);
}

/*
 * What can be said of a governed cgroup before its policy is asked. `listed`: it has an entry; `head`: the image that its
 * policy names, or NULL; `readable`: the packet could be parsed (true at an address hook). ALLOW means: ask the policy.
 */
WEIR_INLINE weir_judgement weir_judge_entry(int listed, const struct weir_image *head, int readable)
{
	if (!listed)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_NO_ENTRY);
	if (!head || head->present != 1)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_NO_POLICY);
	if (!readable)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_MALFORMED);
	return weir_judgement_of(WEIR_ALLOW, WEIR_REASON_DEFAULT);
}

WEIR_INLINE int weir_denies(weir_judgement j)
{
	return weir_verdict_of(j) != WEIR_ALLOW;
}

/* As a policy in force says it: one that only watches denies nothing. */
WEIR_INLINE weir_judgement weir_as_enforced(const struct weir_image *head, weir_judgement j)
{
	if (weir_denies(j) && head && (head->flags & WEIR_IMG_MONITOR))
		return weir_judgement_with_verdict(j, WEIR_WOULD_DENY);
	return j;
}

/* What has no entry, where the operator wants to see what would be denied. */
WEIR_INLINE weir_judgement weir_as_unknown(int passes, weir_judgement j)
{
	if (passes && weir_denies(j) && weir_reason_of(j) == WEIR_REASON_NO_ENTRY)
		return weir_judgement_with_verdict(j, WEIR_WOULD_DENY);
	return j;
}

/*
 * A task of one governed cgroup uses a socket made in another: both are asked, either can deny. The attempt is the
 * task's; its own denial names the reason, the socket's shows as SOCKET.
 */
WEIR_INLINE weir_judgement weir_judge_both(weir_judgement task, weir_judgement socket)
{
	if (weir_verdict_of(task) == WEIR_DENY)
		return task;
	if (weir_verdict_of(socket) == WEIR_DENY)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_SOCKET);
	return task;
}

/*
 * May a datagram socket be pointed at a destination for the first time? `live`: how many its cgroup holds already; `counted`
 * is 0 when there is no memory to count this one (the kernel allows each socket a little, and its owner can use that up). An
 * uncounted socket would escape the bound, so it is refused like one too many.
 */
WEIR_INLINE weir_judgement weir_judge_socket(int counted, __s64 live, __s64 max)
{
	if (!counted || live >= max)
		return weir_judgement_of(WEIR_DENY, WEIR_REASON_SOCKETS);
	return weir_judgement_of(WEIR_ALLOW, WEIR_REASON_DEFAULT);
}

#endif
