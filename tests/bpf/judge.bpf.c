/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's own verdict on a packet that a test hands in: the parser, the policy slot and the judge of bpf/, as the packet
 * hook uses them, behind a program type that the kernel runs on demand. It shares the maps of a real guard.
 */
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "abi.h"
#include "verdict.h"
#include "maps.bpf.h"
#include "report.bpf.h"

#define ETH_HEADER 14
#define weir_load(skb, off, dst, len) bpf_skb_load_bytes(skb, (off) + ETH_HEADER, dst, len)
#include "hook_packet.bpf.h"

__u64 test_cgroup;
__u32 test_judgement;
__u32 test_generation;

SEC("tc")
int weir_test_judge(struct __sk_buff *skb)
{
	struct weir_packet pk = {};
	struct weir_dest d = {};
	struct in_force f;
	int readable = weir_read_packet(skb, &pk) == 0;

	dest_of_packet(&pk, &d);
	find_in_force(test_cgroup, &f);
	test_judgement = judge_in_force(&f, readable, &d);
	test_generation = f.generation;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
