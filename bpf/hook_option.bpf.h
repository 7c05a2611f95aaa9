/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * cgroup/setsockopt: two options by which something leaves that no packet hook sees.
 *
 * Joining a group makes the kernel itself report it to the network, with the group's address (and for some options the
 * senders') in the report: twelve bytes of anything in IPv6. So a group is judged like a destination, of protocol IGMP or
 * ICMPv6.
 *
 * SO_BROADCAST decides whether the kernel takes an IPv4 address for a broadcast, of which listeners on this host get a copy
 * before the packet hook is asked; so the address hook judges sockets that have it. Another thread could set it between that
 * hook and the kernel's look. Therefore: this side marks the socket, then looks whether it is counted already, and refuses if
 * it is; the address hook counts it, then looks for the mark. Whoever is second sees the first.
 */
#ifndef WEIR_BPF_HOOK_OPTION_H
#define WEIR_BPF_HOOK_OPTION_H

enum {
	OPTION_REFUSE = 0,
	OPTION_PASS = 1,
	OPTION_BYTES_MAX = 4096, /* what the kernel hands over; more is read again from the caller, so it can't be judged */

	LEVEL_SOCKET = 1,
	LEVEL_IP = 0,
	LEVEL_IPV6 = 41,
	OPT_BROADCAST = 6, /* SO_BROADCAST */
	/* LEVEL_IP */
	OPT_RECVERR = 11,
	OPT_FREEBIND = 15,
	OPT_TRANSPARENT = 19,
	OPT_RECVERR_RFC4884 = 26,
	OPT_ADD_MEMBERSHIP = 35,
	OPT_ADD_SOURCE_MEMBERSHIP = 39,
	OPT_MSFILTER = 41,
	/* LEVEL_IPV6 */
	OPT_ADD_MEMBERSHIP6 = 20,
	OPT_RECVERR6 = 25,
	OPT_JOIN_ANYCAST = 27,
	OPT_RECVERR6_RFC4884 = 31,
	OPT_TRANSPARENT6 = 75,
	OPT_FREEBIND6 = 78,
	/* either */
	OPT_JOIN_GROUP = 42, /* MCAST_* */
	OPT_JOIN_SOURCE_GROUP = 46,
	OPT_MCAST_MSFILTER = 48,

	PROTOCOL_IGMP = 2,
};

/* struct group_req and its kin: an interface, four bytes of nothing, and a sockaddr. */
#define GROUP_AT4 12 /* of the address in it */
#define GROUP_AT6 16

/* Where in the option the group's address is, or -1 when the option joins nothing. */
static __always_inline int group_at(__s32 level, __s32 option)
{
	if (option == OPT_JOIN_GROUP || option == OPT_JOIN_SOURCE_GROUP || option == OPT_MCAST_MSFILTER)
		return level == LEVEL_IP ? GROUP_AT4 : GROUP_AT6;
	if (level == LEVEL_IP)
		return option == OPT_ADD_MEMBERSHIP || option == OPT_ADD_SOURCE_MEMBERSHIP || option == OPT_MSFILTER ? 0 : -1;
	return option == OPT_ADD_MEMBERSHIP6 || option == OPT_JOIN_ANYCAST ? 0 : -1;
}

static __always_inline void find_caller(struct bpf_sockopt *ctx, struct task_struct *t, struct connect_who *w)
{
	find_connect_who(BPF_CORE_READ(plain_sock(ctx->sk), sk_cgrp_data.cgroup), t, w);
}

/* Longer than what we were handed, also when a program before us has said that it did not touch it. */
static __always_inline bool is_too_long(struct bpf_sockopt *ctx)
{
	__u8 *p = ctx->optval, *end = ctx->optval_end;

	return ctx->optlen > OPTION_BYTES_MAX || (!ctx->optlen && p + OPTION_BYTES_MAX <= end);
}

/* What is too long would be refused if we did not say that we have not touched it. */
static __always_inline int pass_untouched(struct bpf_sockopt *ctx)
{
	if (ctx->optlen > OPTION_BYTES_MAX)
		ctx->optlen = 0;
	return OPTION_PASS;
}

/* Whether one of the two cgroups is judged here, and not only watched. */
static __always_inline bool is_bound(const struct connect_who *w)
{
	struct in_force f;

	find_subject(w, &f);
	return !is_below(&f) && !is_watched(&f);
}

static __always_inline int judge_join(struct bpf_sockopt *ctx, int at)
{
	struct task_struct *t = credible_task();
	__u8 *p = ctx->optval, *end = ctx->optval_end;
	struct attempt a = {};
	struct connect_who w;
	struct in_force f;
	weir_judgement j;

	find_caller(ctx, t, &w);
	if (is_too_long(ctx) && is_bound(&w))
		return OPTION_REFUSE;
	a.key.hook = WEIR_HOOK_SETSOCKOPT;
	p += at;
	if (ctx->level == LEVEL_IP) {
		if (p + 4 > end)
			return OPTION_PASS; /* too short: the kernel refuses it */
		a.key.family = 4;
		a.key.protocol = PROTOCOL_IGMP;
		a.key.daddr[10] = a.key.daddr[11] = 0xff;
		__builtin_memcpy(a.key.daddr + 12, p, 4);
	} else {
		if (p + 16 > end)
			return OPTION_PASS;
		a.key.family = 6;
		a.key.protocol = WEIR_P_ICMPV6;
		__builtin_memcpy(a.key.daddr, p, 16);
	}
	j = judge_now(&a, &w, &f);
	a.task = t;
	a.socket_type = ctx->sk->type;
	count_attempt(NULL, NULL, f.sb, &a, is_quiet(&f));
	return weir_verdict_of(j) == WEIR_DENY ? OPTION_REFUSE : pass_untouched(ctx);
}

/*
 * What governs the caller; false when a refusal would make no difference (in a network of its own), when it is only watched, or
 * judged further down.
 */
static __always_inline bool is_governed(struct bpf_sockopt *ctx, struct in_force *f)
{
	struct connect_who w;

	find_caller(ctx, credible_task(), &w);
	find_subject(&w, f);
	return !((f->sb && f->sb->flags & (WEIR_SB_OWN_NET | WEIR_SB_BELOW)) || is_watched(f));
}

/* Whether an option that is a number is switched off. Longer than what we are handed, nobody knows. */
static __always_inline bool is_off(struct bpf_sockopt *ctx)
{
	__u8 *p = ctx->optval, *end = ctx->optval_end;

	if (ctx->optlen > OPTION_BYTES_MAX)
		return false;
	if (p + 4 <= end)
		return !(p[0] | p[1] | p[2] | p[3]);
	return p + 1 > end || !p[0]; /* some take a single byte */
}

static __always_inline int mark_broadcast(struct bpf_sockopt *ctx)
{
	struct weir_owner *o;
	struct in_force f;

	if (ctx->sk->type != SOCK_DGRAM || is_off(ctx))
		return OPTION_PASS;
	o = owner_of(ctx->sk, WEIR_HOOK_SETSOCKOPT);
	if (o)
		__sync_val_compare_and_swap(&o->broadcast, 0, 1); /* a full barrier, as the count is on the other side */
	if (o && !*(volatile __u64 *)&o->counted)
		return OPTION_PASS;
	/* Too late, or not to be marked. */
	return is_governed(ctx, &f) ? OPTION_REFUSE : OPTION_PASS;
}

static __always_inline bool is_foreign_source(__s32 level, __s32 option)
{
	return level == LEVEL_IP ? option == OPT_FREEBIND || option == OPT_TRANSPARENT
				 : option == OPT_FREEBIND6 || option == OPT_TRANSPARENT6;
}

static __always_inline bool is_error_queue(__s32 level, __s32 option)
{
	return level == LEVEL_IP ? option == OPT_RECVERR || option == OPT_RECVERR_RFC4884
				 : option == OPT_RECVERR6 || option == OPT_RECVERR6_RFC4884;
}

static __always_inline int refuse_foreign_source(struct bpf_sockopt *ctx)
{
	struct in_force f;

	return is_off(ctx) || !is_governed(ctx, &f) ? OPTION_PASS : OPTION_REFUSE;
}

static __always_inline int pretend_error_queue(struct bpf_sockopt *ctx)
{
	struct weir_owner *o;
	struct in_force f;

	if (ctx->sk->type == SOCK_STREAM || is_off(ctx) || !is_governed(ctx, &f))
		return OPTION_PASS;
	if (f.head && (f.head->flags & WEIR_IMG_INBOUND))
		return OPTION_PASS;
	o = bpf_sk_storage_get(&owners, ctx->sk, NULL, 0);
	if (!o || !o->asked)
		ctx->optlen = -1; /* success, without the kernel */
	return OPTION_PASS;
}

SEC("cgroup/setsockopt")
int weir_setsockopt(struct bpf_sockopt *ctx)
{
	int at;

	if (ctx->level == LEVEL_SOCKET && ctx->optname == OPT_BROADCAST)
		return mark_broadcast(ctx);
	at = ctx->level == LEVEL_IP || ctx->level == LEVEL_IPV6 ? group_at(ctx->level, ctx->optname) : -1;
	if (at >= 0)
		return judge_join(ctx, at);
	if (ctx->level == LEVEL_IP || ctx->level == LEVEL_IPV6) {
		if (is_foreign_source(ctx->level, ctx->optname))
			return refuse_foreign_source(ctx);
		if (is_error_queue(ctx->level, ctx->optname))
			return pretend_error_queue(ctx);
	}
	return pass_untouched(ctx); /* none of ours */
}

#endif
