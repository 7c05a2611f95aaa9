/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which network sockets the processes of one cgroup hold, and in which cgroup each was made: the kernel judges a socket by the
 * latter, and tells it in no other way for all kinds of sockets. And what else they hold that leads past a policy: a tun
 * device, descriptors that are in no table, the cgroup tree itself. Run by whoever reads it, over every descriptor there is;
 * each thread's own table is seen, nothing is opened or duplicated, and the holders do not notice.
 */
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#include "held.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Before loading. */
const volatile __u64 target = 0; /* the cgroup */
const volatile __u32 level = 0;	 /* its depth */

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define AF_KEY 15
#define AF_NETLINK 16
#define AF_PACKET 17
#define AF_ALG 38
#define S_IFMT 0170000
#define S_IFCHR 0020000
#define S_IFDIR 0040000
#define FMODE_WRITE 2
#define MNT_READONLY 0x40
#define TCP_LISTEN 10
#define CGROUP2_MAGIC 0x63677270ul
#define BPF_FS_MAGIC 0xcafe4a11ul
#define ANON_INODE_MAGIC 0x09041934ul
#define CGROUP_DEPTH 32		     /* looked up; what lies deeper counts as beyond the target */
#define TUN_DEVICE (10u << 20 | 200) /* as the kernel itself keeps a device's number */

static __always_inline bool is_below(struct cgroup *cg)
{
	struct cgroup *up = NULL;

	if (!cg || BPF_CORE_READ(cg, level) < (int)level)
		return false;
	bpf_probe_read_kernel(&up, sizeof up,
			      (void *)cg + bpf_core_field_offset(struct cgroup, ancestors) + level * sizeof(struct cgroup *));
	return up && BPF_CORE_READ(up, kn, id) == target;
}

/* The process's number in the namespace of whoever reads; 0 when it has none there. */
static __always_inline __u32 pid_of(struct task_struct *t)
{
	struct task_struct *reader = (void *)bpf_get_current_task();
	struct pid *pid = BPF_CORE_READ(t, group_leader, thread_pid);
	__u32 depth = BPF_CORE_READ(reader, thread_pid, level), nr = 0;

	if (pid && BPF_CORE_READ(pid, level) >= depth)
		bpf_probe_read_kernel(&nr, sizeof nr,
				      (void *)pid + bpf_core_field_offset(struct pid, numbers) +
					  depth * bpf_core_type_size(struct upid) + bpf_core_field_offset(struct upid, nr));
	return nr;
}

static __always_inline void read_addresses(struct sock *sk, struct weir_held *h)
{
	if (h->family == AF_INET) {
		__be32 local = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr), remote = BPF_CORE_READ(sk, __sk_common.skc_daddr);

		if (local) {
			h->local[10] = h->local[11] = 0xff;
			__builtin_memcpy(h->local + 12, &local, sizeof local);
		}
		if (remote) {
			h->remote[10] = h->remote[11] = 0xff;
			__builtin_memcpy(h->remote + 12, &remote, sizeof remote);
		}
	} else if (h->family == AF_INET6 && bpf_core_field_exists(struct sock_common, skc_v6_daddr)) {
		bpf_probe_read_kernel(h->local, sizeof h->local,
				      (void *)sk + bpf_core_field_offset(struct sock, __sk_common.skc_v6_rcv_saddr));
		bpf_probe_read_kernel(h->remote, sizeof h->remote,
				      (void *)sk + bpf_core_field_offset(struct sock, __sk_common.skc_v6_daddr));
	}
	h->local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	h->remote_port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	h->state = BPF_CORE_READ(sk, __sk_common.skc_state);
}

/* ---- descriptors that are in nobody's table ---- */

/* Whoever wants them back takes them out of a socket that is held, or accepts one; those further in are behind that. */
static __always_inline bool hides_some(struct sock *sk)
{
	if (BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_LISTEN)
		return BPF_CORE_READ(sk, sk_receive_queue.qlen) != 0;
	return BPF_CORE_READ((struct unix_sock *)sk, scm_stat.nr_fds.counter) != 0;
}

static __always_inline bool is_ring_with_files(struct file *file, unsigned long magic)
{
	static const char ring[] = "[io_uring]";
	void *ctx = BPF_CORE_READ(file, private_data);
	char name[sizeof ring] = {};

	if (magic != ANON_INODE_MAGIC || !ctx)
		return false;
	bpf_probe_read_kernel_str(name, sizeof name, BPF_CORE_READ(file, f_path.dentry, d_name.name));
	for (unsigned i = 0; i < sizeof ring; i++)
		if (name[i] != ring[i])
			return false;
	if (bpf_core_field_exists(struct io_ring_ctx, nr_user_files))
		return BPF_CORE_READ((struct io_ring_ctx *)ctx, nr_user_files) != 0;
	if (bpf_core_field_exists(struct io_ring_ctx___6_13, file_table.data.nr))
		return BPF_CORE_READ((struct io_ring_ctx___6_13 *)ctx, file_table.data.nr) != 0;
	return true;
}

/* ---- the cgroup tree ---- */

static __always_inline struct kernfs_node *parent_of(struct kernfs_node *kn)
{
	if (bpf_core_field_exists(struct kernfs_node, parent))
		return BPF_CORE_READ(kn, parent);
	return BPF_CORE_READ((struct kernfs_node___6_15 *)kn, __parent);
}

static __always_inline bool is_node_below(struct kernfs_node *kn)
{
	for (int i = 0; i < CGROUP_DEPTH && kn; i++) {
		if (BPF_CORE_READ(kn, id) == target)
			return true;
		kn = parent_of(kn);
	}
	return false;
}

/* Who opened a file for writing writes with the rights that the opener had; and from a directory one gets as far as its mount.
 */
static __always_inline bool leads_to_cgroups(struct file *file, struct inode *inode, unsigned long magic)
{
	bool directory = (BPF_CORE_READ(inode, i_mode) & S_IFMT) == S_IFDIR;
	struct inode *from = inode;

	if (magic != CGROUP2_MAGIC && magic != BPF_FS_MAGIC)
		return false;
	if (directory ? (BPF_CORE_READ(file, f_path.mnt, mnt_flags) & MNT_READONLY)
		      : !(BPF_CORE_READ(file, f_mode) & FMODE_WRITE))
		return false;
	if (magic == BPF_FS_MAGIC)
		return true;
	if (directory)
		from = BPF_CORE_READ(file, f_path.mnt, mnt_root, d_inode);
	return !is_node_below(BPF_CORE_READ(from, i_private));
}

/* ---- sockets ---- */

/* Whether it is a socket of a kind that can leave the host, or one that hides some. */
static __always_inline bool read_socket(struct file *file, struct weir_held *h)
{
	struct socket *socket = bpf_sock_from_file(file);
	struct sock *sk = socket ? BPF_CORE_READ(socket, sk) : NULL;
	struct cgroup *cg;

	if (!sk)
		return false;
	h->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (h->family == AF_UNIX && hides_some(sk)) {
		h->flags = WEIR_HELD_HIDES;
		return true;
	}
	if (h->family == AF_UNIX || h->family == AF_NETLINK || h->family == AF_ALG || h->family == AF_KEY)
		return false;
	h->type = BPF_CORE_READ(sk, sk_type);
	h->protocol = BPF_CORE_READ(sk, sk_protocol);
	h->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	cg = BPF_CORE_READ(sk, sk_cgrp_data.cgroup);
	h->cgroup = cg ? BPF_CORE_READ(cg, kn, id) : 0;
	if (!is_below(cg))
		h->flags |= WEIR_HELD_ELSEWHERE;
	if (h->family == AF_INET || h->family == AF_INET6)
		read_addresses(sk, h);
	return true;
}

static __always_inline bool is_tun(struct inode *inode)
{
	return (BPF_CORE_READ(inode, i_mode) & S_IFMT) == S_IFCHR && BPF_CORE_READ(inode, i_rdev) == TUN_DEVICE;
}

/* Those of others are told as well: what a network namespace has, and nobody holds, is hidden somewhere. */
static __always_inline bool is_packet_socket(struct file *file)
{
	struct socket *socket = bpf_sock_from_file(file);
	struct sock *sk = socket ? BPF_CORE_READ(socket, sk) : NULL;

	return sk && BPF_CORE_READ(sk, __sk_common.skc_family) == AF_PACKET;
}

SEC("iter/task_file")
int weir_held(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct weir_held h = {};
	struct inode *inode;
	unsigned long magic;

	if (!task || !file)
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	h.inode = BPF_CORE_READ(inode, i_ino);
	if (!is_below(BPF_CORE_READ(task, cgroups, dfl_cgrp))) {
		h.flags = WEIR_HELD_OUTSIDE;
		if (is_packet_socket(file))
			bpf_seq_write(ctx->meta->seq, &h, sizeof h);
		return 0;
	}
	magic = BPF_CORE_READ(inode, i_sb, s_magic);
	if (is_tun(inode))
		h.flags = WEIR_HELD_TUN;
	else if (is_ring_with_files(file, magic))
		h.flags = WEIR_HELD_HIDES;
	else if (leads_to_cgroups(file, inode, magic))
		h.flags = WEIR_HELD_CGROUP;
	else if (!read_socket(file, &h))
		return 0;
	h.pid = pid_of(task);
	bpf_probe_read_kernel_str(h.comm, sizeof h.comm,
				  (void *)BPF_CORE_READ(task, group_leader) + bpf_core_field_offset(struct task_struct, comm));
	bpf_seq_write(ctx->meta->seq, &h, sizeof h);
	return 0;
}
