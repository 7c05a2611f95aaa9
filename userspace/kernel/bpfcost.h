/* SPDX-License-Identifier: Apache-2.0 */
/* What programs of ours cost: their memory, and, where the kernel is asked to measure it, the time they ran. */
#ifndef WEIR_KERNEL_BPFCOST_H
#define WEIR_KERNEL_BPFCOST_H

#include <stdint.h>

#define BPFCOST_MAPS 16 /* of one program */

struct bpfcost_program {
	char name[16];
	uint64_t run_ns, runs;			/* since it was loaded, while the kernel measured */
	uint64_t memory;			/* bytes, of its code */
	uint32_t map_count, maps[BPFCOST_MAPS]; /* ids of the maps it uses, the first of them */
};

struct bpfcost_map {
	char name[16];
	uint64_t memory; /* bytes */
};

/*
 * Has the kernel measure how long BPF programs run, all of the host's, for as long as the descriptor that it returns is open:
 * two readings of a clock for each run of each. Or a negative errno.
 */
int bpfcost_measure(void);

/* By id. 0, or a negative errno: -ENOENT when there is none any more. */
int bpfcost_program(uint32_t id, struct bpfcost_program *ret);
int bpfcost_map(uint32_t id, struct bpfcost_map *ret);

#endif
