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
#ifndef weir_load /* a test hands its packets in with a link-layer header */
#define weir_load(skb, off, dst, len) bpf_skb_load_bytes(skb, off, dst, len)
#endif
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

__attribute__((noinline)) __u64 weir_hash_question(struct __sk_buff *skb, __u32 off, __u32 len)
{
	return weir_name_hash(skb, off, len, name_key[0], name_key[1]);
}

struct packet_who {
	__u64 made_in; /* the socket's cgroup */
	__u64 subject; /* whose attempt it is */
	struct task_struct *task;
	struct weir_owner *socket;
	bool stream;
	bool listens;
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
	w->listens = w->stream && sk->state == BPF_TCP_LISTEN;
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

/* A packet that cannot give a name gives none. */
static __always_inline void read_name(struct __sk_buff *skb, const struct weir_packet *pk, struct attempt *a)
{
	__u32 off = pk->transport + 8U, found = weir_read_question(skb, off);
	__u32 len = found & 0xff;

	if (!len)
		return;
	a->dns_len = (__u16)len;
	a->dns_qtype = (__u16)(found >> 16);
	a->dns_off = off + 12;
	a->key.name_hash = weir_hash_question(skb, a->dns_off, len);
}

/* By verdict; what is only watched is among what was let out. */
static __always_inline void count_packet(struct weir_sandbox *sb, __u8 verdict, __u32 len)
{
	if (!sb)
		sb = account_of_strangers();
	if (!sb || (sb->flags & WEIR_SB_PROBE))
		return;
	if (verdict == WEIR_DENY) {
		__sync_fetch_and_add(&sb->denied_packets, 1);
		__sync_fetch_and_add(&sb->denied_bytes, len);
		return;
	}
	__sync_fetch_and_add(&sb->packets, 1);
	__sync_fetch_and_add(&sb->bytes, len);
	if (verdict == WEIR_WOULD_DENY) {
		__sync_fetch_and_add(&sb->watched_packets, 1);
		__sync_fetch_and_add(&sb->watched_bytes, len);
	}
}

static __always_inline void dest_of_packet(const struct weir_packet *pk, struct weir_dest *d)
{
	__builtin_memcpy(d->addr, pk->daddr, sizeof d->addr);
	d->port = __builtin_bswap16(pk->dport_be);
	d->family = pk->family;
	d->protocol = pk->protocol;
	d->flags = (pk->headless ? WEIR_DEST_HEADLESS : 0) | (pk->options ? WEIR_DEST_OPTIONS : 0) |
		   (pk->routing ? WEIR_DEST_ROUTING : 0);
}

/*
 * This socket has sent something that was let out, so it may be answered. Sockets without storage were never seen by an address
 * hook (they are older than the policy); without memory for it the answers are refused.
 */
static __always_inline void note_asked(struct __sk_buff *skb, const struct in_force *f)
{
	struct bpf_sock *sk = skb->sk;
	struct weir_owner *o;

	if (f->head ? f->head->flags & WEIR_IMG_INBOUND : !f->passes)
		return;
	if (sk)
		sk = bpf_sk_fullsock(sk);
	if (!sk)
		return;
	o = bpf_sk_storage_get(&owners, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!o)
		weir_stat_inc(WEIR_HOOK_EGRESS, WEIR_STAT_STORAGE);
	else if (!o->asked)
		o->asked = 1;
}

/* What a listener or a socket that it accepted sends is an answer; the policy that let the question in lets it out. */
static __always_inline weir_judgement judge_answer(weir_judgement j, const struct in_force *f, const struct packet_who *w)
{
	if (weir_verdict_of(j) == WEIR_ALLOW || !f->head || !(f->head->flags & WEIR_IMG_INBOUND))
		return j;
	if (w->listens || (w->stream && w->socket && w->socket->accepts))
		return weir_judgement_of(WEIR_ALLOW, WEIR_REASON_INBOUND);
	return j;
}

/*
 * A stream's packet that needs no record of its own: allowed, or watched by a policy that has recorded the connection already
 * when it was made.
 */
static __always_inline bool is_told(weir_judgement j, const struct in_force *f, const struct packet_who *w)
{
	if (!w->stream)
		return false;
	if (weir_verdict_of(j) == WEIR_ALLOW)
		return true;
	return weir_verdict_of(j) == WEIR_WOULD_DENY && w->socket && w->socket->judged == judged_by(f);
}

SEC("cgroup_skb/egress")
int weir_egress(struct __sk_buff *skb)
{
	struct weir_packet pk = {};
	struct packet_who w = {};
	struct weir_dest d = {};
	struct attempt a = {};
	struct in_force f;
	weir_judgement j;
	int readable;
	bool pass;

	find_who(skb, &w);
	find_in_force(w.subject, &f);
	if (is_below(&f) && w.subject != w.made_in) {
		w.subject = w.made_in;
		find_in_force(w.subject, &f);
	}
	if (is_below(&f))
		return PACKET_PASS;
	readable = weir_read_packet(skb, &pk) == 0;
	dest_of_packet(&pk, &d);
	j = judge_answer(judge_in_force(&f, readable, &d), &f, &w);
	if (w.subject != w.made_in) {
		struct in_force other;

		find_in_force(w.made_in, &other);
		j = weir_judge_both(j, judge_answer(judge_in_force(&other, readable, &d), &other, &w));
	}
	pass = weir_verdict_of(j) != WEIR_DENY;
	if (pass && !w.stream)
		note_asked(skb, &f);
	count_packet(f.sb, weir_verdict_of(j), skb->len);
	if (pass && pk.protocol == WEIR_P_TCP && is_told(j, &f, &w))
		return PACKET_PASS;

	a.key.cgroup = w.subject;
	__builtin_memcpy(a.key.daddr, pk.daddr, sizeof a.key.daddr);
	a.key.dport_be = pk.dport_be;
	a.key.family = pk.family;
	a.key.protocol = pk.protocol;
	a.key.hook = WEIR_HOOK_EGRESS;
	set_judgement(&a.key, j, &f);
	a.len = skb->len;
	a.task = w.task;
	a.socket = w.socket;
	if (weir_is_dns(&pk))
		read_name(skb, &pk, &a);
	count_attempt(skb, skb, f.sb, &a, is_quiet(&f));
	return pass ? PACKET_PASS : PACKET_DROP;
}

#endif
