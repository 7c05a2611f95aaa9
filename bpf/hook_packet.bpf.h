/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * cgroup_skb/egress: every IP packet of a socket made below our root, after routing, before fragmentation and segmentation
 * (so a large send counts as one). What it decides holds for sockets that were open before a policy changed, for raw
 * sockets, and for protocols that no address hook sees. A refused sender gets EPERM, except TCP, which resends.
 */
#ifndef WEIR_BPF_HOOK_PACKET_H
#define WEIR_BPF_HOOK_PACKET_H

enum {
	PACKET_DROP = 0,
	PACKET_PASS = 1,
};

#define WEIR_PACKET struct __sk_buff
#define weir_load(skb, off, dst, len) bpf_skb_load_bytes(skb, off, dst, len)
#include "parse.h"

/* Functions of their own, so that the verifier walks them once and not once per path of the caller. */
__attribute__((noinline)) int weir_read_packet(struct __sk_buff *skb, struct weir_packet *pk)
{
	if (!pk)
		return -1;
	return weir_parse(skb, __builtin_bswap16((__u16)skb->protocol), pk);
}

__attribute__((noinline)) __u32 weir_read_question(struct __sk_buff *skb, __u32 off)
{
	return weir_dns_question(skb, off, skb->len);
}

struct packet_who {
	__u64 made_in; /* the socket's cgroup */
	__u64 subject; /* whose attempt it is */
	struct task_struct *task;
	struct weir_owner *socket;
	bool stream;
};

/*
 * Datagram and raw sockets send in the context of the caller, always: the current task is the sender, also when it is a
 * child that inherited the socket. A stream's packets leave when acknowledgements and timers want it: whoever connected is
 * on the socket.
 */
static __always_inline void find_who(struct __sk_buff *skb, struct packet_who *w)
{
	struct bpf_sock *sk = skb->sk;

	w->made_in = bpf_skb_ancestor_cgroup_id(skb, (int)level);
	if (!w->made_in)
		w->made_in = bpf_skb_cgroup_id(skb);
	w->subject = w->made_in;
	if (sk)
		sk = bpf_sk_fullsock(sk);
	if (!sk)
		return;
	w->stream = sk->type == SOCK_STREAM;
	if (!w->stream)
		w->task = credible_task();
	if (w->task) {
		struct cgroup *cg = w->task->cgroups->dfl_cgrp;
		/* Nearly always the socket was made where its user is. */
		__u64 own = cg->kn->id == bpf_skb_cgroup_id(skb) ? 0 : governed(cg);

		if (own)
			w->subject = own;
		return;
	}
	w->socket = bpf_sk_storage_get(&owners, sk, NULL, 0);
	if (w->socket && w->socket->cgroup)
		w->subject = w->socket->cgroup;
}

/* The name goes onto the caller's zeroed buffer; a packet that cannot give it gives none. */
static __always_inline void read_name(struct __sk_buff *skb, const struct weir_packet *pk, struct attempt *a, __u64 *name)
{
	__u32 off = pk->transport + 8U, found = weir_read_question(skb, off);
	__u32 len = found & 0xff;

	if (!len)
		return;
	/* 1 .. 256 in a form that 6.1 understands: it does not learn from `!len`. */
	len--;
	asm volatile("" : "+r"(len));
	len = (len & 0xff) + 1;
	if (bpf_skb_load_bytes(skb, off + 12, name, len) < 0)
		return;
	a->dns_len = (__u16)len;
	a->dns_qtype = (__u16)(found >> 16);
	a->dns = name;
	a->key.name_hash = weir_name_hash(name, len, name_key[0], name_key[1]);
}

static __always_inline void count_passed(struct weir_sandbox *sb, __u32 len)
{
	if (sb->flags & WEIR_SB_PROBE)
		return;
	__sync_fetch_and_add(&sb->packets, 1);
	__sync_fetch_and_add(&sb->bytes, len);
}

SEC("cgroup_skb/egress")
int weir_egress(struct __sk_buff *skb)
{
	struct weir_sandbox *sb = NULL, *other = NULL;
	struct weir_packet pk = {};
	struct packet_who w = {};
	struct attempt a = {};
	__u64 name[32];
	weir_judgement j;
	int readable = weir_read_packet(skb, &pk) == 0;
	bool pass;

	find_who(skb, &w);
	j = judge_cgroup(w.subject, readable, &sb);
	if (w.subject != w.made_in)
		j = weir_judge_both(j, judge_cgroup(w.made_in, readable, &other));
	pass = weir_verdict_of(j) == WEIR_ALLOW;
	if (pass && sb)
		count_passed(sb, skb->len);
	if (pass && w.stream && pk.protocol == WEIR_P_TCP)
		return PACKET_PASS;

	a.key.cgroup = w.subject;
	__builtin_memcpy(a.key.daddr, pk.daddr, sizeof a.key.daddr);
	a.key.dport_be = pk.dport_be;
	a.key.family = pk.family;
	a.key.protocol = pk.protocol;
	a.key.hook = WEIR_HOOK_EGRESS;
	a.key.verdict = weir_verdict_of(j);
	a.key.reason = weir_reason_of(j);
	a.len = skb->len;
	a.task = w.task;
	a.socket = w.socket;
	if (weir_is_dns(&pk)) {
		__builtin_memset(name, 0, sizeof name);
		read_name(skb, &pk, &a, name);
	}
	count_attempt(skb, sb, &a);
	return pass ? PACKET_PASS : PACKET_DROP;
}

#endif
