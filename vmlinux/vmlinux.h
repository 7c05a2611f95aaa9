/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel types our programs touch, and no others: written by hand, field by field. Every struct is relocated at load
 * time against the running kernel's BTF, so order, size and the fields left out do not matter; names and types do.
 * README.md beside this file says how to check it against a kernel.
 */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u16 __sum16;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

/* Constants of the bpf(2) interface: fixed for ever. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};
enum {
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_CLONE = 1 << 9,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_F_INNER_MAP = 1 << 12,
};
enum {
	BPF_SK_STORAGE_GET_F_CREATE = 1 << 0,
};
enum {
	BPF_TCP_LISTEN = 10, /* struct bpf_sock.state */
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* ---- what a program is handed ---- */

struct bpf_sock {
	__u32 family;
	__u32 type;
	__u32 protocol;
	__u32 state;
};

struct bpf_sock_addr {
	__u32 user_ip4;
	__u32 user_ip6[4];
	__u32 user_port;
	__u32 type;
	__u32 protocol;
	struct bpf_sock *sk;
};

struct bpf_sockopt {
	struct bpf_sock *sk;
	void *optval;
	void *optval_end;
	__s32 level;
	__s32 optname;
	__s32 optlen;
};

struct __sk_buff {
	__u32 len;
	__u32 protocol;
	__u32 ifindex;
	struct bpf_sock *sk;
};

/* ---- what it reads of the kernel ---- */

struct kernfs_node {
	__u64 id;
	struct kernfs_node *parent; /* before 6.15 */
};

struct kernfs_node___6_15 {
	struct kernfs_node *__parent;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[]; /* kernel 6.1 and later */
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

typedef struct {
	int counter;
} atomic_t;

struct sk_buff_head {
	__u32 qlen;
};

struct in6_addr {
	__u8 whole; /* 16 bytes; only its place is asked for */
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	unsigned long skc_flags;
	possible_net_t skc_net;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	__be16 skc_dport;
	__u16 skc_num;
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

enum sock_flags {
	SOCK_BROADCAST = 6, /* the running kernel's own number is taken at load time */
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_type;
	__u16 sk_protocol;
	struct sk_buff_head sk_receive_queue;
	struct sock_cgroup_data sk_cgrp_data;
};

struct scm_stat {
	atomic_t nr_fds;
};

struct unix_sock {
	struct sock sk;
	struct scm_stat scm_stat;
};

struct socket {
	struct sock *sk;
};

struct super_block {
	unsigned long s_magic;
};

struct inode {
	__u16 i_mode;
	__u32 i_rdev;
	unsigned long i_ino;
	struct super_block *i_sb;
	void *i_private;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
	struct inode *d_inode;
};

struct vfsmount {
	struct dentry *mnt_root;
	int mnt_flags;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	unsigned int f_mode;
	struct path f_path;
	struct inode *f_inode;
	void *private_data;
};

struct io_ring_ctx {
	unsigned int nr_user_files; /* before 6.13 */
};

struct io_rsrc_data {
	unsigned int nr;
};

struct io_file_table {
	struct io_rsrc_data data;
};

struct io_ring_ctx___6_13 {
	struct io_file_table file_table;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
};

struct upid {
	int nr;
};

struct pid {
	unsigned int level;
	struct upid numbers[];
};

typedef struct {
	__u32 val;
} kuid_t;

struct cred {
	kuid_t uid;
};

struct percpu_counter {
	__s64 count;
};

typedef struct {
	__s64 counter;
} atomic_long_t;

struct mm_rss_stat { /* before 6.2 */
	atomic_long_t count[4];
};

struct mm_struct {
	unsigned long hiwater_rss;
	struct percpu_counter rss_stat[4];
};

struct mm_struct___6_1 {
	struct mm_rss_stat rss_stat;
};

struct signal_struct {
	atomic_t live;
	unsigned long maxrss;
	struct mm_struct *oom_mm;
};

struct sched_entity {
	__u64 sum_exec_runtime;
};

struct task_io_accounting {
	__u64 rchar; /* with CONFIG_TASK_XACCT */
	__u64 wchar;
};

struct task_struct {
	unsigned int __state;
	unsigned int flags;
	int on_cpu;
	int exit_state;
	int pid;
	int tgid;
	struct sched_entity se;
	struct mm_struct *mm;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	const struct cred *cred;
	char comm[16];
	struct signal_struct *signal;
	struct task_io_accounting ioac;
	struct css_set *cgroups;
};

struct linux_binprm {
	const char *filename;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

#pragma clang attribute pop

#endif
