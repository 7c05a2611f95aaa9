/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * cgroup_skb/ingress: what comes to a socket from outside without having been asked for. A stream takes connections, and a
 * datagram socket that has sent nothing (or nothing that was let out) takes datagrams, only when the policy says `inbound:
 * allow`, or when they come from this host and the rules allow the address they come to. Everything else passes: it answers
 * something that the other hooks have judged.
 */
#ifndef WEIR_BPF_HOOK_INBOUND_H
#define WEIR_BPF_HOOK_INBOUND_H

/* The sender: the destination of the answer. */
static __always_inline void read_sender(struct __sk_buff *skb, const struct weir_packet *pk, struct weir_dest *d)
{
	d->family = pk->family;
	d->protocol = pk->protocol;
	if (pk->family == 4) {
		d->addr[10] = d->addr[11] = 0xff;
		bpf_skb_load_bytes(skb, 12, d->addr + 12, 4);
	} else if (pk->family == 6) {
		bpf_skb_load_bytes(skb, 8, d->addr, 16);
	}
}

/* What goes over the loopback device comes from this host, whatever addresses are in it. Its index is 1 everywhere. */
#define LOOPBACK_IFINDEX 1

/* `to`: where the packet goes, that is us. Somebody on this host may come where the policy would let ourselves go. */
static __always_inline weir_judgement judge_inbound(const struct in_force *f, int readable, const struct weir_dest *to,
						    bool local)
{
	weir_judgement j = weir_judge_entry(f->sb != NULL, f->head, readable);

	if (weir_denies(j))
		return weir_as_unknown(f->passes, weir_as_enforced(f->head, j));
	if (local) {
		j = weir_judge_dest(f->image, to);
		if (!weir_denies(j))
			return j;
	}
	return weir_as_enforced(f->head, weir_judgement_of(WEIR_DENY, WEIR_REASON_INBOUND));
}

/* Whether this packet is one that nobody here asked for. `sk` is a full socket. */
static __always_inline bool is_unasked(struct bpf_sock *sk)
{
	struct weir_owner *o;

	if (sk->type == SOCK_STREAM)
		return sk->state == BPF_TCP_LISTEN;
	if (sk->protocol != WEIR_P_UDP && sk->protocol != WEIR_P_UDPLITE)
		return false;
	o = bpf_sk_storage_get(&owners, sk, NULL, 0);
	return !o || !o->asked;
}

SEC("cgroup_skb/ingress")
int weir_ingress(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct weir_packet pk = {};
	struct weir_dest from = {}, to = {};
	struct attempt a = {};
	struct weir_owner *o;
	struct in_force f;
	weir_judgement j;
	int readable;

	if (sk)
		sk = bpf_sk_fullsock(sk);
	if (!sk || !is_unasked(sk))
		return PACKET_PASS;
	/* What this socket's connect() was told once, it was told of that connection, and not of what it accepts now. */
	o = sk->type == SOCK_STREAM ? bpf_sk_storage_get(&owners, sk, NULL, 0) : NULL;
	if (o)
		o->judged = o->requested_family = 0;
	a.key.cgroup = bpf_skb_ancestor_cgroup_id(skb, (int)level);
	if (!a.key.cgroup)
		a.key.cgroup = bpf_skb_cgroup_id(skb);
	find_in_force(a.key.cgroup, &f);
	if (is_below(&f))
		return PACKET_PASS;
	if (f.head && (f.head->flags & WEIR_IMG_INBOUND)) {
		if (sk->type != SOCK_STREAM)
			return PACKET_PASS;
		/* What it accepts inherits this. Without memory for it the answers are judged like anything else. */
		o = bpf_sk_storage_get(&owners, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
		if (o)
			o->accepts = 1;
		else
			weir_stat_inc(WEIR_HOOK_INGRESS, WEIR_STAT_STORAGE);
		return PACKET_PASS;
	}
	readable = weir_read_packet(skb, &pk) == 0;
	read_sender(skb, &pk, &from);
	dest_of_packet(&pk, &to);
	j = judge_inbound(&f, readable, &to, skb->ifindex == LOOPBACK_IFINDEX);
	if (weir_verdict_of(j) == WEIR_ALLOW)
		return PACKET_PASS;
	__builtin_memcpy(a.key.daddr, from.addr, sizeof a.key.daddr);
	a.key.dport_be = pk.dport_be;
	a.key.family = pk.family;
	a.key.protocol = pk.protocol;
	a.key.hook = WEIR_HOOK_INGRESS;
	set_judgement(&a.key, j, &f);
	a.len = skb->len;
	a.socket_type = sk->type;
	count_attempt(skb, NULL, f.sb, &a, false);
	return weir_verdict_of(j) == WEIR_DENY ? PACKET_DROP : PACKET_PASS;
}

#endif
