/* SPDX-License-Identifier: Apache-2.0 */
/* What the supervisor has counted, in the memfd of a TELL_METRICS: one struct, of this binary alone. */
#ifndef WEIR_IPC_METRICS_H
#define WEIR_IPC_METRICS_H

#include "core/histogram.h"
#include "ipc/ipc.h"

/* What kinds of runs there are, as metrics tell them apart. Names are in metrics_kind_names[]. */
enum metrics_kind { METRICS_RUN, METRICS_CALL, METRICS_CELL, METRICS_KINDS };
extern const char *const metrics_kind_names[METRICS_KINDS];

#define METRICS_POLICIES 2 /* of snippets, of tools */
#define METRICS_ATTACHED 4 /* states of attachments, as attach_state_names[] */
#define METRICS_BPF_PROGRAMS 24
#define METRICS_BPF_MAPS 32

/* What was tried and let out, by verdict (enum weir_verdict); of what is only watched, both packets and bytes were let out. */
struct metrics_network {
	uint64_t attempts[WEIR_VERDICT_COUNT], packets[WEIR_VERDICT_COUNT], bytes[WEIR_VERDICT_COUNT];
	uint64_t inbound;  /* packets from outside that were refused */
	uint64_t unlisted; /* attempts of which there is no detail, or events that never came */
};

struct metrics_program {
	char name[16];
	uint64_t run_ns, runs; /* 0 while the kernel does not measure */
	uint64_t memory;       /* bytes */
};

struct metrics_map {
	char name[16];
	uint64_t memory; /* bytes */
};

struct metrics {
	uint64_t at_ns; /* CLOCK_BOOTTIME */
	uint64_t started_ns;
	struct tell_pool pool;
	uint64_t runs[METRICS_KINDS][RUN_END_COUNT];
	struct histogram build, load; /* of the sandboxes of runs that have ended; load: of an agent's modules */
	uint64_t cpu_us;	      /* of runs that have ended */
	uint64_t oom_kills, processes, execs, refused_syscalls,
	    interrupted_syscalls; /* of these, and of sessions between cells */
	struct metrics_network runs_network, attached_network;
	uint64_t events_lost[WEIR_HOOK_COUNT][WEIR_STAT_COUNT]; /* inside the kernel's programs */
	uint64_t meter_stats[WEIR_METER_STAT_COUNT];
	uint32_t losses_known, meter_known; /* whether these two could be read */
	uint32_t sandboxes, sessions;
	struct {
		uint32_t in_use; /* there is such a policy */
		uint32_t generation;
	} policy[METRICS_POLICIES];
	uint64_t reloads_failed;
	uint32_t guarded; /* the programs were in force when they were looked at last */
	uint32_t attached[METRICS_ATTACHED];
	uint32_t attached_broken; /* records of attachments that can't be read */
	uint32_t run_time;	  /* the kernel measures how long programs run, because this service asked for it */
	uint32_t program_count, map_count;
	struct metrics_program programs[METRICS_BPF_PROGRAMS];
	struct metrics_map maps[METRICS_BPF_MAPS];
};

#endif
