/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which network sockets the processes of one cgroup hold, and in which cgroup each was made: the kernel judges a socket by the
 * latter, and tells it in no other way for all kinds of sockets. Run by whoever reads it, over every descriptor there is; each
 * thread's own table is seen, nothing is opened or duplicated, and the holders do not notice.
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
#define AF_ALG 38
#define S_IFMT 0170000
#define S_IFCHR 0020000
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

/* Whether it is a socket of a kind that can leave the host. */
static __always_inline bool read_socket(struct file *file, struct weir_held *h)
{
	struct socket *socket = bpf_sock_from_file(file);
	struct sock *sk = socket ? BPF_CORE_READ(socket, sk) : NULL;
	struct cgroup *cg;

	if (!sk)
		return false;
	h->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (h->family == AF_UNIX || h->family == AF_NETLINK || h->family == AF_ALG || h->family == AF_KEY)
		return false;
	h->type = BPF_CORE_READ(sk, sk_type);
	h->protocol = BPF_CORE_READ(sk, sk_protocol);
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

SEC("iter/task_file")
int weir_held(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct weir_held h = {};
	struct inode *inode;

	if (!task || !file || !is_below(BPF_CORE_READ(task, cgroups, dfl_cgrp)))
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	h.inode = BPF_CORE_READ(inode, i_ino);
	if (is_tun(inode))
		h.flags = WEIR_HELD_TUN;
	else if (!read_socket(file, &h))
		return 0;
	h.pid = pid_of(task);
	bpf_probe_read_kernel_str(h.comm, sizeof h.comm,
				  (void *)BPF_CORE_READ(task, group_leader) + bpf_core_field_offset(struct task_struct, comm));
	bpf_seq_write(ctx->meta->seq, &h, sizeof h);
	return 0;
}
