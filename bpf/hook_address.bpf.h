/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * connect() and sendmsg(): the task is at hand, a packet is not.
 *
 * A stream socket is judged here, so that connect() fails at once instead of resending a SYN until it gives up. Datagram
 * and raw sockets are not: refused here, no packet would exist, and the DNS name inside would never be seen. Who asked is
 * remembered, the packet hook does the rest, and the sender gets EPERM all the same. But a socket can hold its data back, so
 * that there is no packet either: they are counted here, each once, and one too many is refused. And of what goes to many in
 * IPv4, the kernel makes a copy for this host's own listeners before the packet hook is asked: that is judged here as well.
 *
 * The kernel picks these programs by the socket's cgroup; a task may use a socket that another cgroup made. Both are asked.
 */
#ifndef WEIR_BPF_HOOK_ADDRESS_H
#define WEIR_BPF_HOOK_ADDRESS_H

enum {
	ADDR_REFUSE = 0,
	ADDR_PASS = 1,
};

/*
 * The verifier allows no arithmetic on a socket pointer from the context. Stored on the stack and read back by a helper it
 * is a plain address, which probe reads may follow.
 */
static __always_inline struct sock *plain_sock(struct bpf_sock *sk)
{
	struct bpf_sock *slot = sk;
	struct sock *ret = NULL;

	bpf_probe_read_kernel(&ret, sizeof ret, &slot);
	return ret;
}

static __always_inline struct cgroup *socket_cgroup(struct bpf_sock *sk)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	if (tcp)
		return tcp->inet_conn.icsk_inet.sk.sk_cgrp_data.cgroup;
	return BPF_CORE_READ(plain_sock(sk), sk_cgrp_data.cgroup);
}

static __always_inline int is_deferred(const struct bpf_sock_addr *ctx)
{
	return ctx->type == SOCK_DGRAM || ctx->type == SOCK_RAW;
}

/* `own`: the task's governed cgroup, or what tells that it has to be found out first. */
#define OWN_UNKNOWN (~0ULL)

static __always_inline struct weir_owner *owner_of(struct bpf_sock *sk, __u8 hook)
{
	struct weir_owner *o = bpf_sk_storage_get(&owners, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);

	if (!o)
		weir_stat_inc(hook, WEIR_STAT_STORAGE);
	return o;
}

static __always_inline void remember(struct weir_owner *o, struct task_struct *t, __u64 own)
{
	__u64 lives_in = bpf_get_current_cgroup_id();
	__u32 host_pid = bpf_get_current_pid_tgid() >> 32;

	o->accepts = 0; /* whoever connects has accepted nothing */
	if (o->host_pid == host_pid && o->lives_in == lives_in)
		return;
	o->cgroup = own == OWN_UNKNOWN ? governed(BPF_CORE_READ(t, cgroups, dfl_cgrp)) : own;
	o->lives_in = lives_in;
	o->host_pid = host_pid;
	o->pid = inner_pid(t);
	o->uid = BPF_CORE_READ(t, cred, uid.val);
	BPF_CORE_READ_INTO(&o->comm, t, comm);
}

/*
 * What was named, for packets that leave later or elsewhere. Threads that name several at once on one socket write over each
 * other: none of them takes another's for its own, but for bytes of two that meet in the middle.
 */
static __always_inline void remember_named(struct weir_owner *o, const struct weir_flow_key *key)
{
	const bool connects = key->hook == WEIR_HOOK_CONNECT4 || key->hook == WEIR_HOOK_CONNECT6;

	__builtin_memcpy(o->requested, key->daddr, sizeof o->requested);
	o->requested_port_be = key->dport_be;
	o->requested_family = key->hook == WEIR_HOOK_CONNECT6 || key->hook == WEIR_HOOK_SENDMSG6 ? 6 : 4;
	o->requested_by = connects ? 0 : (__u32)bpf_get_current_pid_tgid();
}

struct connect_who {
	__u64 made_in; /* the cgroup the socket answers to: the governed one it was made in, else where it is */
	__u64 own;     /* the task's governed cgroup; 0 */
};

/* Nearly always both are the same cgroup, and there is one walk. */
static __always_inline void find_connect_who(struct cgroup *cg, struct task_struct *t, struct connect_who *w)
{

	w->own = t ? bpf_get_current_ancestor_cgroup_id((int)level) : 0;
	if (t && w->own && cg == BPF_CORE_READ(t, cgroups, dfl_cgrp)) {
		w->made_in = w->own;
		return;
	}
	if (w->own && bpf_get_current_ancestor_cgroup_id((int)root_level) != root_cgroup)
		w->own = 0;
	w->made_in = ancestor_id(cg, level);
	if (!w->made_in)
		w->made_in = BPF_CORE_READ(cg, kn, id);
}

static __always_inline void read_dest(const struct weir_flow_key *key, struct weir_dest *d)
{
	__builtin_memcpy(d->addr, key->daddr, sizeof d->addr);
	d->port = __builtin_bswap16(key->dport_be);
	d->family = key->family;
	d->protocol = key->protocol;
}

/*
 * Whose attempt it is, and what governs that: the task's cgroup, else the socket's. A task that is judged further down is in
 * none here, like one outside.
 */
static __always_inline __u64 find_subject(const struct connect_who *w, struct in_force *f)
{
	__u64 cgroup = w->own ? w->own : w->made_in;

	find_in_force(cgroup, f);
	if (cgroup != w->made_in && is_below(f)) {
		cgroup = w->made_in;
		find_in_force(cgroup, f);
	}
	return cgroup;
}

/* Both cgroups are asked of the destination in `key`; fills in the rest of the attempt. */
static __always_inline weir_judgement judge_now(struct attempt *a, const struct connect_who *w, struct in_force *f)
{
	struct weir_dest d = {};
	weir_judgement j;

	a->key.cgroup = find_subject(w, f);
	read_dest(&a->key, &d);
	j = judge_in_force(f, 1, &d);
	if (a->key.cgroup != w->made_in) {
		struct in_force other;

		find_in_force(w->made_in, &other);
		j = weir_judge_both(j, judge_in_force(&other, 1, &d));
	}
	set_judgement(&a->key, j, f);
	return j;
}

/* Judges a stream's connect(); `key` holds the destination. */
static __always_inline int judge_connect(struct bpf_sock_addr *ctx, struct attempt *a)
{
	struct task_struct *t = credible_task();
	struct connect_who w;
	struct in_force f;
	struct weir_owner *o;

	find_connect_who(socket_cgroup(ctx->sk), t, &w);
	judge_now(a, &w, &f);
	a->task = t;
	count_attempt(ctx, NULL, f.sb, a, is_quiet(&f));
	if (a->key.verdict == WEIR_DENY)
		return ADDR_REFUSE;
	if (!t)
		return ADDR_PASS;
	o = owner_of(ctx->sk, a->key.hook);
	if (o) {
		remember(o, t, w.own);
		remember_named(o, &a->key);
		o->judged = is_below(&f) ? 0 : judged_by(&f);
	}
	return ADDR_PASS;
}

/* As many as there are, where strangers are only watched: they are counted for the day when they no longer are. */
#define SOCKETS_UNBOUNDED 0x7fffffffffffffffLL

/*
 * Puts a socket into the account of the cgroup it was made in: once, whoever else tries at the same moment. Without memory
 * for it (`o` is NULL) it is refused.
 */
static __always_inline weir_judgement count_socket(struct weir_owner *o, __u64 made_in)
{
	__s64 max = WEIR_SOCKETS_PER_SANDBOX;
	__u64 as = WEIR_EPOCH_STRANGER;
	struct weir_sandbox *sb;
	struct in_force f;
	weir_judgement j;

	find_in_force(made_in, &f);
	if (is_below(&f)) {
		if (o)
			__sync_val_compare_and_swap(&o->counted, 0, WEIR_EPOCH_BELOW);
		return weir_judgement_of(WEIR_ALLOW, WEIR_REASON_DEFAULT);
	}
	sb = f.sb;
	if (sb)
		as = sb->epoch;
	else
		sb = account_of_strangers();
	if (!sb || !o)
		return f.passes ? weir_judgement_of(WEIR_ALLOW, WEIR_REASON_DEFAULT) : weir_judge_socket(0, 0, 0);
	if (f.head)
		max = f.head->sockets_max;
	else if (f.passes)
		max = SOCKETS_UNBOUNDED;
	j = weir_judge_socket(1, __sync_fetch_and_add(&sb->sockets, 1), max);
	if (weir_verdict_of(j) != WEIR_DENY) {
		o->counted_in = made_in; /* the same for all who try */
		if (__sync_val_compare_and_swap(&o->counted, 0, as) == 0)
			return j;
	}
	__sync_fetch_and_add(&sb->sockets, -1);
	return j;
}

static __always_inline bool may_broadcast(struct bpf_sock *sk)
{
	return BPF_CORE_READ(plain_sock(sk), __sk_common.skc_flags) >> bpf_core_enum_value(enum sock_flags, SOCK_BROADCAST) & 1;
}

/*
 * A destination that many listen to: multicast, or any for a socket that may broadcast (without that option the kernel refuses
 * every broadcast address, the subnets' own included). Asked when the socket is counted: see hook_option.bpf.h.
 */
static __always_inline bool is_to_many(const struct weir_flow_key *key, const struct weir_owner *o)
{
	return key->family == 4 && (key->daddr[12] >= 224 || *(const volatile __u32 *)&o->broadcast);
}

/* Refuses what the packet hook would see too late. What is only watched, or allowed, that hook records as ever. */
static __always_inline int judge_to_many(struct bpf_sock_addr *ctx, struct attempt *a, struct task_struct *t)
{
	struct connect_who w;
	struct in_force f;

	find_connect_who(socket_cgroup(ctx->sk), t, &w);
	if (weir_verdict_of(judge_now(a, &w, &f)) != WEIR_DENY || (f.sb && f.sb->flags & WEIR_SB_OWN_NET))
		return ADDR_PASS;
	a->task = t;
	count_attempt(ctx, NULL, f.sb, a, false);
	return ADDR_REFUSE;
}

/* The first time that a socket is pointed somewhere. */
static __always_inline int count_first_use(struct bpf_sock_addr *ctx, struct attempt *a, struct task_struct *t,
					   struct weir_owner *o)
{
	struct connect_who w;
	struct in_force f;
	weir_judgement j;

	find_connect_who(socket_cgroup(ctx->sk), t, &w);
	j = count_socket(o, w.made_in);
	if (o && may_broadcast(ctx->sk))
		o->broadcast = 1; /* since before these programs were attached */
	if (weir_verdict_of(j) == WEIR_ALLOW)
		return ADDR_PASS;
	a->key.cgroup = find_subject(&w, &f);
	set_judgement(&a->key, j, &f);
	a->task = t;
	count_attempt(ctx, NULL, f.sb, a, false);
	return weir_verdict_of(j) == WEIR_DENY ? ADDR_REFUSE : ADDR_PASS;
}

/* A datagram socket: counted at its first use, otherwise passed on. `key` holds the destination. */
static __always_inline int defer(struct bpf_sock_addr *ctx, struct attempt *a)
{
	struct task_struct *t = credible_task();
	struct weir_owner *o = owner_of(ctx->sk, a->key.hook);

	if (o && t) {
		remember(o, t, OWN_UNKNOWN);
		remember_named(o, &a->key);
	}
	if ((!o || !o->counted) && count_first_use(ctx, a, t, o) == ADDR_REFUSE)
		return ADDR_REFUSE;
	return o && is_to_many(&a->key, o) ? judge_to_many(ctx, a, t) : ADDR_PASS;
}

static __always_inline void destination4(struct bpf_sock_addr *ctx, struct weir_flow_key *key, __u8 hook)
{
	__u32 ip = ctx->user_ip4;

	key->hook = hook;
	key->protocol = (__u8)ctx->protocol; /* MPTCP asks as a protocol of its own (262), and is TCP (6) on the wire */
	key->family = 4;
	key->daddr[10] = key->daddr[11] = 0xff;
	__builtin_memcpy(key->daddr + 12, &ip, 4);
	key->dport_be = (__u16)ctx->user_port;
}

static __always_inline void destination6(struct bpf_sock_addr *ctx, struct weir_flow_key *key, __u8 hook)
{
	__u32 ip[4] = {ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3]};

	key->hook = hook;
	key->protocol = (__u8)ctx->protocol;
	key->family = 6;
	/* The kernel will send IPv4 to a mapped address, so that is what is judged. */
	if (!ip[0] && !ip[1] && ip[2] == __builtin_bswap32(0xffff)) {
		key->family = 4;
		key->via = WEIR_VIA_MAPPED;
	}
	__builtin_memcpy(key->daddr, ip, sizeof ip);
	key->dport_be = (__u16)ctx->user_port;
}

SEC("cgroup/connect4")
int weir_connect4(struct bpf_sock_addr *ctx)
{
	struct attempt a = {.socket_type = ctx->type};

	destination4(ctx, &a.key, WEIR_HOOK_CONNECT4);
	return is_deferred(ctx) ? defer(ctx, &a) : judge_connect(ctx, &a);
}

SEC("cgroup/connect6")
int weir_connect6(struct bpf_sock_addr *ctx)
{
	struct attempt a = {.socket_type = ctx->type};

	destination6(ctx, &a.key, WEIR_HOOK_CONNECT6);
	return is_deferred(ctx) ? defer(ctx, &a) : judge_connect(ctx, &a);
}

SEC("cgroup/sendmsg4")
int weir_sendmsg4(struct bpf_sock_addr *ctx)
{
	struct attempt a = {.socket_type = ctx->type};

	destination4(ctx, &a.key, WEIR_HOOK_SENDMSG4);
	return defer(ctx, &a);
}

SEC("cgroup/sendmsg6")
int weir_sendmsg6(struct bpf_sock_addr *ctx)
{
	struct attempt a = {.socket_type = ctx->type};

	destination6(ctx, &a.key, WEIR_HOOK_SENDMSG6);
	return defer(ctx, &a);
}

#endif
