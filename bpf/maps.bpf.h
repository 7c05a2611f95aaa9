/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every map, once, and the settings user space writes before loading. */
#ifndef WEIR_BPF_MAPS_H
#define WEIR_BPF_MAPS_H

/* Where the governed cgroups are, as depth below the cgroup2 root: an instance's root is at `root_level` and has the id
 * `root_cgroup`; what lies at `level` below it is one sandbox, with everything further down. */
const volatile __u32 level = 0;
const volatile __u32 root_level = 0;
const volatile __u64 root_cgroup = 0;
const volatile __u64 name_key[2] = {0, 0};

/* Cgroup id -> entry. Not there: denied, NO_ENTRY. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WEIR_SANDBOXES_MAX);
	__type(key, __u64);
	__type(value, struct weir_sandbox);
} sandboxes SEC(".maps");

/* An entry's policy: which image is in force. Out of range or 0: denied, NO_POLICY. Mapped by user space, which swaps a
 * policy by one store. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WEIR_POLICIES_MAX);
	__type(key, __u32);
	__type(value, struct weir_policy);
} policies SEC(".maps");

/* Compiled policies: head, trie and lists under the same number, never changed while a policy names it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_IMAGES_MAX);
	__type(key, __u32);
	__type(value, struct weir_image);
} images SEC(".maps");

struct weir_trie {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, WEIR_PREFIXES_MAX);
	__uint(key_size, sizeof(struct weir_prefix));
	__uint(value_size, sizeof(__u32)); /* index into the image's lists */
};

struct weir_lists {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP); /* each as long as it has to be */
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct weir_list));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, WEIR_IMAGES_MAX);
	__type(key, __u32);
	__array(values, struct weir_trie);
} tries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, WEIR_IMAGES_MAX);
	__type(key, __u32);
	__array(values, struct weir_lists);
} lists SEC(".maps");

/* One flow per distinct attempt. Full: the attempt is judged and counted as ever, and `unlisted`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, WEIR_FLOWS_MAX);
	__type(key, struct weir_flow_key);
	__type(value, struct weir_flow);
} flows SEC(".maps");

/*
 * The first attempt of each flow. Full: as a full `flows`, and the next attempt tries again. What was refused has a ring of its
 * own, so that no amount of what is permitted can keep it out of the record.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, WEIR_RING_BYTES);
} denials SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, WEIR_RING_BYTES / WEIR_RING_SHARE);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WEIR_HOOK_COUNT *WEIR_STAT_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} stats SEC(".maps");

/* The account of every cgroup below ours without an entry, together: their flows are bounded here. Mapped by user space,
 * which takes swept flows off `flows` atomically, and says in `flags` whether they are let through. Never replaced, so its
 * epoch is not asked. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_sandbox);
} strangers SEC(".maps");

/* Mapped by user space, which writes it; all zeros in a guard with room for more than one entry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_renewed);
} renewed SEC(".maps");

/* `counted` of a socket that is in the account of the strangers, and of one that programs further down count (`counted_in` is
 * 0 then, which is no entry's key). */
#define WEIR_EPOCH_STRANGER (~0ULL)
#define WEIR_EPOCH_BELOW (~0ULL - 1)

/* Who connected or first sent, for packets that leave in somebody else's context; and of a datagram socket, which entry's
 * `sockets` it is in. */
struct weir_owner {
	__u64 counted_in; /* that entry's key .. */
	__u64 counted;	  /* .. and epoch; 0: in none */
	__u64 cgroup;	  /* governed cgroup of that task, 0 when it is not below our root */
	__u64 lives_in;	  /* the cgroup it is in, to notice that it moved */
	__u32 host_pid;	  /* 0: nobody we could name */
	__u32 pid;
	__u32 uid;
	__u32 judged; /* judged_by() of what this socket's connect() was judged by; 0: by nothing */
	char comm[WEIR_COMM_LEN];
	__u8 accepts;	       /* a listener that may take connections from outside, and the sockets it accepted */
	__u8 asked;	       /* a datagram of it was let out: it may be answered */
	__u8 requested_family; /* of what was named last; 0: nothing */
	__u8 pad;
	__u32 broadcast;    /* it may broadcast, or will in a moment: see hook_option.bpf.h */
	__u32 requested_by; /* the thread that named it in a sendmsg(); 0: a connect() did, so it holds for everybody */
	__u16 requested_port_be;
	__u16 pad2;
	__u8 requested[16];
};

/* Made at connect and sendmsg only: at socket() it would tax every socket. No memory: a stream's attribution is lost; a
 * datagram socket is refused, as it could not be counted. An accepted socket starts with what its listener had. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct weir_owner);
} owners SEC(".maps");

/* A function of its own, so that the verifier walks it once and not once per path to a failure. */
__attribute__((noinline)) int weir_stat_inc(__u32 hook, __u32 which)
{
	__u32 at = hook * WEIR_STAT_COUNT + which;
	__u64 *n = bpf_map_lookup_elem(&stats, &at);

	if (n)
		__sync_fetch_and_add(n, 1);
	return 0;
}

#endif
