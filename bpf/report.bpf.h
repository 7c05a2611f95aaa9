/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who acts, what is counted, what is told. All of an attempt is on the stack: a per-CPU buffer could be overwritten by a
 * packet that leaves in an interrupt on the same CPU.
 */
#ifndef WEIR_BPF_REPORT_H
#define WEIR_BPF_REPORT_H

#define PF_KTHREAD 0x00200000

/* struct bpf_sock.type */
enum {
	SOCK_STREAM = 1,
	SOCK_DGRAM = 2,
	SOCK_RAW = 3,
};

/* ---- who ---- */

/*
 * Tasks and what hangs off them are read as typed pointers, one load each, where every packet comes by. On slower paths a
 * helper reads: each typed load costs the verifier a search through the kernel's types, which makes a start slower.
 */

/* The id of `cg`'s ancestor `at` levels below the cgroup2 root, 0 when it is not that deep. */
static __always_inline __u64 ancestor_id(struct cgroup *cg, __u32 at)
{
	struct cgroup *up = NULL;

	if (!cg || BPF_CORE_READ(cg, level) < (int)at)
		return 0;
	bpf_probe_read_kernel(&up, sizeof up,
			      (void *)cg + bpf_core_field_offset(struct cgroup, ancestors) + at * sizeof(struct cgroup *));
	return up ? BPF_CORE_READ(up, kn, id) : 0;
}

/* The governed cgroup a task in `cg` is in, 0 when it is not below our root. */
static __always_inline __u64 governed(struct cgroup *cg)
{
	return ancestor_id(cg, root_level) == root_cgroup ? ancestor_id(cg, level) : 0;
}

/* A kernel thread acts on nobody's behalf that we could name (MPTCP's opens further subflows). */
static __always_inline struct task_struct *credible_task(void)
{
	struct task_struct *t = bpf_get_current_task_btf();

	return !(t->flags & PF_KTHREAD) && t->tgid ? t : NULL;
}

/* The leader's pid in its own, innermost namespace. */
static __always_inline __u32 inner_pid(struct task_struct *t)
{
	struct pid *pid = BPF_CORE_READ(t, group_leader, thread_pid); /* no typed pointer: 6.1 allows those no sums */
	__u32 nr = 0;

	if (pid)
		bpf_probe_read_kernel(&nr, sizeof nr,
				      (void *)pid + bpf_core_field_offset(struct pid, numbers) +
					  BPF_CORE_READ(pid, level) * bpf_core_type_size(struct upid) +
					  bpf_core_field_offset(struct upid, nr));
	return nr;
}

/* ---- what a cgroup says ---- */

#define WEIR_IMAGE __u32
#define WEIR_SUBPROGRAM __attribute__((noinline))

static __always_inline const struct weir_image *weir_image_head(__u32 image)
{
	return bpf_map_lookup_elem(&images, &image);
}

static __always_inline const struct weir_list *weir_image_find(__u32 image, const struct weir_prefix *key)
{
	void *trie = bpf_map_lookup_elem(&tries, &image), *of;
	struct weir_prefix own = *key; /* 6.1 takes no argument of a function for a map's key */
	__u32 *index;

	if (!trie)
		return NULL;
	index = bpf_map_lookup_elem(trie, &own);
	if (!index)
		return NULL;
	of = bpf_map_lookup_elem(&lists, &image);
	return of ? bpf_map_lookup_elem(of, index) : NULL;
}

#include "judge.h"

/* What governs one cgroup at this moment. */
struct in_force {
	struct weir_sandbox *sb;
	const struct weir_image *head;
	__u32 image;
	__u32 generation;
	bool passes; /* it has no entry, and is let through */
};

static __always_inline struct weir_sandbox *account_of_strangers(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&strangers, &zero);
}

static __always_inline void find_in_force(__u64 cgroup, struct in_force *f)
{
	f->head = NULL;
	f->image = f->generation = 0;
	f->passes = false;
	f->sb = bpf_map_lookup_elem(&sandboxes, &cgroup);
	if (!f->sb) {
		struct weir_sandbox *all = account_of_strangers();

		f->passes = all && (all->flags & WEIR_SB_PASS_UNKNOWN);
	}
	if (f->sb) {
		__u32 slot = f->sb->policy;
		const volatile __u64 *p = bpf_map_lookup_elem(&policies, &slot);

		if (p) {
			__u64 both = *p; /* one load: image and generation belong together */

			f->image = (__u32)both;
			f->generation = (__u32)(both >> 32);
		}
		if (f->image)
			f->head = weir_image_head(f->image);
	}
}

/* Programs attached further down judge what it does: here it passes, whatever else is known of it. */
static __always_inline bool is_below(const struct in_force *f)
{
	return f->sb && (f->sb->flags & WEIR_SB_BELOW);
}

/* Nothing of it is refused; what would be is told. */
static __always_inline bool is_watched(const struct in_force *f)
{
	return f->head ? f->head->flags & WEIR_IMG_MONITOR : f->passes;
}

/* The same for a policy's generation, or for those who have none; never 0. */
static __always_inline __u32 judged_by(const struct in_force *f)
{
	return f->generation + 1;
}

/* `d` is filled in whole when `readable`. */
static __always_inline weir_judgement judge_in_force(const struct in_force *f, int readable, const struct weir_dest *d)
{
	weir_judgement j = weir_judge_entry(f->sb != NULL, f->head, readable);

	if (is_below(f))
		return weir_judgement_of(WEIR_ALLOW, WEIR_REASON_DEFAULT);
	if (!weir_denies(j))
		j = weir_judge_dest(f->image, d);
	return weir_as_unknown(f->passes, weir_as_enforced(f->head, j));
}

/* ---- counted and told ---- */

struct attempt {
	struct weir_flow_key key;
	__u32 len;	   /* bytes of the packet */
	__u32 socket_type; /* at the hooks that are handed the socket */
	__u16 dns_qtype;
	__u16 dns_len;
	struct task_struct *task;  /* who, when it is the current task .. */
	struct weir_owner *socket; /* .. or as remembered on the socket; neither: unknown */
	__u32 dns_off;		   /* of the name in the packet, with dns_len */
};

static __always_inline void set_judgement(struct weir_flow_key *key, weir_judgement j, const struct in_force *f)
{
	key->verdict = weir_verdict_of(j);
	key->reason = weir_reason_of(j);
	if (weir_via_of(j))
		key->via = weir_via_of(j);
	key->rule = weir_rule_of(j);
	key->generation = f->generation;
}

/* Straight into the event: the packet hook has no stack left for a copy. */
static __always_inline void fill_who(struct weir_event *ev, const struct attempt *a)
{
	struct task_struct *t = a->task;

	ev->host_pid = ev->pid = ev->uid = 0;
	ev->attribution = WEIR_ATTR_UNKNOWN;
	__builtin_memset(ev->comm, 0, sizeof ev->comm);
	if (t) {
		ev->attribution = WEIR_ATTR_CURRENT;
		ev->host_pid = (__u32)BPF_CORE_READ(t, tgid);
		ev->pid = inner_pid(t);
		ev->uid = BPF_CORE_READ(t, cred, uid.val);
		BPF_CORE_READ_INTO(&ev->comm, t, comm);
	} else if (a->socket && a->socket->host_pid) {
		ev->attribution = WEIR_ATTR_SOCKET;
		ev->host_pid = a->socket->host_pid;
		ev->pid = a->socket->pid;
		ev->uid = a->socket->uid;
		__builtin_memcpy(ev->comm, a->socket->comm, sizeof ev->comm);
	}
}

/*
 * The name straight out of the packet: there is no room for it on the stack. Bytes shared with user space (splice) may have
 * changed since they were hashed; then the record shows what is there now.
 */
static __always_inline void fill_name(struct __sk_buff *skb, struct weir_event *ev, const struct attempt *a)
{
	__u32 len = a->dns_len;

	if (!skb || !len)
		return;
	/* 1 .. 256 in a form that 6.1 understands: it does not learn from `!len`. */
	len--;
	asm volatile("" : "+r"(len));
	len = (len & 0xff) + 1;
	if (bpf_skb_load_bytes(skb, a->dns_off, ev->dns, len) < 0)
		__builtin_memset(ev->dns, 0, sizeof ev->dns);
}

static __always_inline void forget_named(struct weir_event *ev)
{
	__builtin_memset(ev->requested, 0, sizeof ev->requested);
	ev->requested_port_be = 0;
	ev->requested_family = 0;
}

/* What an address hook was asked for is in the key: as the program named it, but for the family of a mapped address. */
static __always_inline void fill_named(struct weir_event *ev, const struct weir_flow_key *key)
{
	__builtin_memcpy(ev->requested, key->daddr, sizeof ev->requested);
	ev->requested_port_be = key->dport_be;
	ev->requested_family = key->hook == WEIR_HOOK_CONNECT6 || key->hook == WEIR_HOOK_SENDMSG6 ? 6 : 4;
}

/*
 * What was named for this packet, as far as the socket remembers. What another thread named in a sendmsg() was for another
 * packet. (A thread that names addresses and also sends to where its socket is connected is told the last it named.) A function
 * of its own, so that the verifier walks it once.
 */
__attribute__((noinline)) int weir_fill_remembered(struct __sk_buff *skb, struct weir_event *ev)
{
	struct bpf_sock *sk = skb->sk;
	struct weir_owner *o;

	if (!ev)
		return 0;
	forget_named(ev);
	ev->socket_type = 0;
	if (sk)
		sk = bpf_sk_fullsock(sk);
	if (!sk)
		return 0;
	ev->socket_type = (__u8)sk->type;
	o = bpf_sk_storage_get(&owners, sk, NULL, 0);
	if (!o || !o->requested_family || (o->requested_by && o->requested_by != (__u32)bpf_get_current_task_btf()->pid))
		return 0;
	__builtin_memcpy(ev->requested, o->requested, sizeof ev->requested);
	ev->requested_port_be = o->requested_port_be;
	ev->requested_family = o->requested_family;
	return 0;
}

static __always_inline void fill_requested(struct __sk_buff *skb, struct weir_event *ev, const struct attempt *a)
{
	if (skb) {
		weir_fill_remembered(skb, ev);
		return;
	}
	ev->socket_type = a->socket_type;
	if (a->key.hook == WEIR_HOOK_INGRESS || a->key.hook == WEIR_HOOK_SETSOCKOPT)
		forget_named(ev);
	else
		fill_named(ev, &a->key);
}

/* Every byte: the buffer holds what an earlier event left there. */
static __always_inline void fill_event(void *ctx, struct __sk_buff *skb, struct weir_event *ev, const struct attempt *a,
				       __u64 now)
{
	ev->key = a->key;
	ev->time_ns = now;
	ev->socket_cookie = ctx ? bpf_get_socket_cookie(ctx) : 0;
	ev->len = a->len;
	fill_who(ev, a);
	__builtin_memset(ev->pad, 0, sizeof ev->pad);
	ev->dns_qtype = a->dns_qtype;
	ev->dns_len = a->dns_len;
	__builtin_memset(ev->dns, 0, sizeof ev->dns);
	fill_name(skb, ev, a);
	fill_requested(skb, ev, a);
}

static __always_inline int add_to_flow(const struct weir_flow_key *key, __u32 len, __u64 now)
{
	struct weir_flow *f = bpf_map_lookup_elem(&flows, key);

	if (!f)
		return 0;
	__sync_fetch_and_add(&f->count, 1);
	__sync_fetch_and_add(&f->bytes, len);
	f->last_ns = now;
	return 1;
}

/* The allowance that a flow's place is taken from, and where it ends. */
static __always_inline __u64 *places(struct weir_sandbox *sb, __u8 hook, __s64 *ret_end)
{
	const bool inbound = hook == WEIR_HOOK_INGRESS;
	struct weir_renewed *r;
	__u32 zero = 0;

	*ret_end = inbound ? WEIR_INBOUND_FLOWS_PER_SANDBOX : WEIR_FLOWS_PER_SANDBOX;
	r = bpf_map_lookup_elem(&renewed, &zero);
	if (r)
		*ret_end += (__s64)(inbound ? r->inbound_flows : r->flows);
	return inbound ? &sb->inbound_flows : &sb->flows;
}

static __always_inline struct weir_event *reserve_event(__u8 verdict)
{
	if (verdict == WEIR_DENY)
		return bpf_ringbuf_reserve(&denials, sizeof(struct weir_event), 0);
	return bpf_ringbuf_reserve(&events, sizeof(struct weir_event), 0);
}

/* An event that was due and can't be told: its number is used up, so that the record shows the hole. */
static __always_inline int lose_event(struct weir_sandbox *sb, __u64 *taken, __u8 hook, __u32 why)
{
	__sync_fetch_and_add(taken, -1);
	__sync_fetch_and_add(&sb->events, 1);
	weir_stat_inc(hook, why);
	return 0;
}

/*
 * Gives a new flow its entry and its event: both or neither, or the flow would never be told. So the event's place is taken
 * first, and the entry, once visible, stays: another CPU may be counting in it already. Returns 0 when the attempt is in
 * neither. Beyond the allowance no event is due, and no number is taken.
 */
static __always_inline int open_flow(void *ctx, struct __sk_buff *skb, struct weir_sandbox *sb, const struct attempt *a,
				     __u64 now)
{
	struct weir_flow first = {.count = 1, .bytes = a->len, .first_ns = now, .last_ns = now};
	__s64 end;
	__u64 *taken = places(sb, a->key.hook, &end);
	struct weir_event *ev;
	long rc;

	if ((__s64)__sync_fetch_and_add(taken, 1) >= end) {
		__sync_fetch_and_add(taken, -1);
		weir_stat_inc(a->key.hook, WEIR_STAT_BEYOND);
		return 0;
	}
	ev = reserve_event(a->key.verdict);
	if (!ev)
		return lose_event(sb, taken, a->key.hook, WEIR_STAT_RING_FULL);
	rc = bpf_map_update_elem(&flows, &a->key, &first, BPF_NOEXIST);
	if (rc) {
		bpf_ringbuf_discard(ev, 0);
		/* Another CPU was first, or there is no room. */
		if (!add_to_flow(&a->key, a->len, now))
			return lose_event(sb, taken, a->key.hook, WEIR_STAT_FLOW_FULL);
		__sync_fetch_and_add(taken, -1);
		return 1;
	}
	fill_event(ctx, skb, ev, a, now);
	ev->seq = __sync_fetch_and_add(&sb->events, 1) + 1;
	bpf_ringbuf_submit(ev, 0);
	return 1;
}

static __always_inline void count_verdict(struct weir_sandbox *sb, __u8 verdict)
{
	__sync_fetch_and_add(&sb->attempts, 1);
	if (verdict == WEIR_ALLOW)
		__sync_fetch_and_add(&sb->allowed, 1);
	else if (verdict == WEIR_WOULD_DENY)
		__sync_fetch_and_add(&sb->would_deny, 1);
	else
		__sync_fetch_and_add(&sb->denied, 1);
}

/*
 * One attempt: exact counters first, then as much detail as there is room for. `sb`: entry of the key's cgroup, or NULL; `skb`:
 * the packet, NULL at an address hook; `quiet`: an allowed attempt is counted and not listed.
 */
static __always_inline void count_attempt(void *ctx, struct __sk_buff *skb, struct weir_sandbox *sb, const struct attempt *a,
					  bool quiet)
{
	__u64 now;

	if (!sb) {
		if (a->key.verdict == WEIR_DENY)
			weir_stat_inc(a->key.hook, WEIR_STAT_NO_ENTRY);
		sb = account_of_strangers();
		if (!sb)
			return;
	}
	if (sb->flags & WEIR_SB_BELOW)
		return;
	if (sb->flags & WEIR_SB_PROBE) {
		__sync_fetch_and_add(&sb->probes, 1);
		if (a->key.verdict == WEIR_DENY)
			__sync_fetch_and_add(&sb->probes_denied, 1);
		return;
	}
	if (a->key.hook == WEIR_HOOK_INGRESS) {
		__sync_fetch_and_add(&sb->inbound, 1);
	} else {
		count_verdict(sb, a->key.verdict);
	}
	if (quiet && a->key.verdict == WEIR_ALLOW)
		return;
	now = bpf_ktime_get_boot_ns();
	if (!add_to_flow(&a->key, a->len, now) && !open_flow(ctx, skb, sb, a, now) && a->key.hook != WEIR_HOOK_INGRESS)
		__sync_fetch_and_add(&sb->unlisted, 1);
}

static __always_inline bool is_quiet(const struct in_force *f)
{
	return f->head && (f->head->flags & WEIR_IMG_QUIET_ALLOW);
}

#endif
