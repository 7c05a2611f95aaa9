/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which CPU a run is put on. This is advice, not a limit: what holds it to its share is the cgroup, and a snippet may ask for
 * other CPUs. But libraries ask how many there are and start as many threads, so a run that has the time of one is shown one.
 */
#include "supervisor/internal.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The one with the fewest of our own, among those that we may use; -1 where the kernel does not say. */
static int least_loaded(const struct supervisor *s)
{
	cpu_set_t ours;
	int best = -1;

	if (sched_getaffinity(0, sizeof ours, &ours) < 0)
		return -1;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &ours) && (best < 0 || s->cpu_load[cpu] < s->cpu_load[best]))
			best = cpu;
	return best;
}

void cpus_take(struct supervisor *s, struct box *b)
{
	int cpu = least_loaded(s);
	cpu_set_t one;

	/* Alive a moment ago: then the pid is still its own. */
	if (b->cpu >= 0 || cpu < 0 || b->main_fd < 0 || syscall(SYS_pidfd_send_signal, b->main_fd, 0, NULL, 0) < 0)
		return;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(b->payload_pid, sizeof one, &one) < 0)
		return;
	b->cpu = cpu;
	s->cpu_load[cpu]++;
}

void cpus_give_back(struct supervisor *s, struct box *b)
{
	if (b->cpu >= 0)
		s->cpu_load[b->cpu]--;
	b->cpu = -1;
}
