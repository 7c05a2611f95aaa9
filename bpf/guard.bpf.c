/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Everything the kernel enforces for Weir. Attached once, at an instance's root cgroup: a sandbox is an entry of `sandboxes`,
 *and a cgroup below the root without one may send nothing. Or attached to a cgroup that somebody else made, which is one entry
 *whole.
 *
 *	verdict.h, judge.h, carried.h, parse.h
 *				pure: also compiled into user space and the unit tests
 *	maps.bpf.h		every map and setting
 *	report.bpf.h		who acts, exact counters, flows and events
 *	hook_address.bpf.h	connect4/6, sendmsg4/6
 *	hook_packet.bpf.h	cgroup_skb/egress
 *	hook_inbound.bpf.h	cgroup_skb/ingress
 *	hook_option.bpf.h	setsockopt
 *	hook_release.bpf.h	sock_release
 */
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "abi.h"
#include "verdict.h"
#include "maps.bpf.h"
#include "report.bpf.h"
#include "hook_address.bpf.h"
#include "hook_packet.bpf.h"
#include "hook_inbound.bpf.h"
#include "hook_option.bpf.h"
#include "hook_release.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
