/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The meter: what the kernel has counted of each task anyway, added up by cgroup when the task ends. It decides nothing. A task
 * outside of every metered cgroup costs a look at a number, and a lookup when it lies deep enough to be in one.
 *
 * A task is counted twice over: when its end begins (sched_process_exit), with all but what its end itself takes; and when the
 * kernel lets go of it (sched_process_free), with the rest: what it ran since the scheduler had last written its time down, and
 * the teardown of its memory where that comes after the first.
 */
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "abi.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define PF_KTHREAD 0x00200000u
#define TASK_DEAD 0x80u
#define MAX_TRIES 16	 /* for a new maximum: each failure is another task that raised it */
#define ENDING_MAX 4096	 /* tasks between the two moments; all of it is looked through, which takes some 10 ns for each */
#define IMAGES_MAX 32768 /* processes that have started a program and live */

/* The kernel's own list of a process's pages: file, anonymous, (swap), shared. */
enum { RSS_FILE = 0, RSS_ANON = 1, RSS_SHARED = 3 };

/* How arguments of tracepoints differ: said by the kernel's types when the programs are loaded. */
typedef void (*btf_trace_sched_process_exit___dead)(void *, struct task_struct *, bool); /* 6.16 and later */
typedef void (*btf_trace_mark_victim___task)(void *, struct task_struct *, __u32);	 /* 6.9, and stable releases before */

/* Before loading. */
const volatile __u32 page_bytes = 4096;

/* At which depths below the root of cgroup2 something is metered, a bit each. Written by user space at any time. */
__u32 levels = 0;

/* Cgroup id -> what it came to. Entries are made and removed by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, WEIR_METERED_MAX);
	__type(key, __u64);
	__type(value, struct weir_meter);
} meters SEC(".maps");

/* The same with what lives added, as of the last walk; cleared by user space before it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, WEIR_METERED_MAX);
	__type(key, __u64);
	__type(value, struct weir_meter);
} living SEC(".maps");

/* Up to which of its programs a cgroup has them listed. Not there: WEIR_EXECS_PER_CGROUP. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, WEIR_METERED_MAX);
	__type(key, __u64);
	__type(value, __u64);
} listed SEC(".maps");

/*
 * Tasks between the two moments of their end, by address: the CPU time that was counted at the first. Those that nobody waits
 * for are between them for as long as they like: when it is full, the rest of all that run no more is added at once.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ENDING_MAX);
	__type(key, __u64);
	__type(value, __u64);
} ending SEC(".maps");

/*
 * Processes that have started a program, by number: the most memory, in pages, that they had had by then. What a process is
 * before its first program is a copy of who made it, and not its own. An entry goes with its process, whichever cgroup that
 * ends in; of one that ended while nothing was metered, user space takes it away.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, IMAGES_MAX);
	__type(key, __u32);
	__type(value, __u64);
} images SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, WEIR_METER_RING_BYTES);
} meter_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WEIR_METER_STAT_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} meter_stats SEC(".maps");

static __always_inline void stat_inc(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&meter_stats, &which);

	if (n)
		__sync_fetch_and_add(n, 1);
}

/* ---- whose a task is ---- */

static __always_inline __u64 ancestor_id(struct cgroup *cg, __u32 depth)
{
	struct cgroup *up = NULL;

	bpf_probe_read_kernel(&up, sizeof up,
			      (void *)cg + bpf_core_field_offset(struct cgroup, ancestors) + depth * sizeof(struct cgroup *));
	return up ? BPF_CORE_READ(up, kn, id) : 0;
}

struct use {
	__u64 cpu_ns, written, read, rss; /* rss: bytes */
	__u64 threads, processes, victims;
	__u64 incomplete; /* 1: there was no room to follow it */
};

/* A task's way through the cgroups that it is in. */
struct way {
	struct cgroup *cg;
	__u64 nearest; /* id of the deepest that is metered */
	__u32 look;    /* depths at which one may be, a bit each */
	__u32 depths;  /* .. all below this */
	struct use use;
	struct task_struct *task;
	struct linux_binprm *bprm;
};

static long find_one(__u32 depth, struct way *w)
{
	__u64 id;

	if (!(w->look >> depth & 1))
		return 0;
	id = ancestor_id(w->cg, depth);
	if (bpf_map_lookup_elem(&meters, &id))
		w->nearest = id;
	else
		w->look &= ~(1u << depth);
	return 0;
}

/*
 * Whether it is in a metered cgroup. They are looked for from the root down, so that nobody gets out of one by making cgroups
 * below it.
 */
static __always_inline bool is_metered(struct way *w, struct task_struct *task)
{
	struct cgroup *cg;
	__u32 own;

	w->look = levels;
	if (!w->look)
		return false;
	w->task = task;
	cg = BPF_CORE_READ(task, cgroups, dfl_cgrp);
	own = (__u32)BPF_CORE_READ(cg, level);
	w->cg = cg;
	w->depths = own + 1 < WEIR_METER_DEPTH ? own + 1 : WEIR_METER_DEPTH;
	bpf_loop(w->depths, find_one, w, 0);
	return w->nearest != 0;
}

/* ---- adding up ---- */

static __always_inline void raise_to(__u64 *most, __u64 value)
{
	__u64 old = *most;

	for (int i = 0; i < MAX_TRIES && value > old; i++) {
		__u64 was = __sync_val_compare_and_swap(most, old, value);

		if (was == old)
			return;
		old = was;
	}
}

static __always_inline void add(struct weir_meter *m, const struct use *u)
{
	__sync_fetch_and_add(&m->cpu_ns, u->cpu_ns);
	__sync_fetch_and_add(&m->written_bytes, u->written);
	__sync_fetch_and_add(&m->read_bytes, u->read);
	__sync_fetch_and_add(&m->threads, u->threads);
	__sync_fetch_and_add(&m->processes, u->processes);
	__sync_fetch_and_add(&m->oom_victims, u->victims);
	__sync_fetch_and_add(&m->incomplete, u->incomplete);
	raise_to(&m->peak_rss, u->rss);
}

static long add_one(__u32 depth, struct way *w)
{
	struct weir_meter *m;
	__u64 id;

	if (!(w->look >> depth & 1))
		return 0;
	id = ancestor_id(w->cg, depth);
	m = bpf_map_lookup_elem(&meters, &id);
	if (m)
		add(m, &w->use);
	return 0;
}

static __always_inline void add_to_all(struct way *w)
{
	bpf_loop(w->depths, add_one, w, 0);
}

/* ---- events ---- */

static __always_inline void fill(struct weir_meter_event *ev, __u32 type, __u64 cgroup, __u64 seq, struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, group_leader, thread_pid);
	__u32 depth = pid ? BPF_CORE_READ(pid, level) : 0;

	__builtin_memset(ev, 0, sizeof *ev);
	ev->cgroup = cgroup;
	ev->time_ns = bpf_ktime_get_boot_ns();
	ev->type = type;
	ev->host_pid = (__u32)BPF_CORE_READ(task, tgid);
	if (pid)
		bpf_probe_read_kernel(&ev->pid, sizeof ev->pid,
				      (void *)pid + bpf_core_field_offset(struct pid, numbers) +
					  depth * bpf_core_type_size(struct upid) + bpf_core_field_offset(struct upid, nr));
	ev->uid = BPF_CORE_READ(task, cred, uid.val);
	ev->seq = seq;
	bpf_probe_read_kernel_str(ev->comm, sizeof ev->comm, (void *)task + bpf_core_field_offset(struct task_struct, comm));
}

/* Its number is given in any case: that of one for which there is no room is missing, and so it can be seen. */
static __always_inline struct weir_meter_event *event_of(struct weir_meter *m, __u32 type, __u64 cgroup,
							 struct task_struct *task)
{
	const __u64 seq = __sync_fetch_and_add(&m->events, 1) + 1;
	struct weir_meter_event *ev = bpf_ringbuf_reserve(&meter_events, sizeof *ev, 0);

	if (!ev) {
		stat_inc(WEIR_METER_STAT_RING_FULL);
		return NULL;
	}
	fill(ev, type, cgroup, seq, task);
	return ev;
}

static __always_inline void tell_victim(__u64 nearest, struct task_struct *task)
{
	struct weir_meter *m = bpf_map_lookup_elem(&meters, &nearest);
	struct weir_meter_event *ev = m ? event_of(m, WEIR_METER_OOM, nearest, task) : NULL;

	if (ev)
		bpf_ringbuf_submit(ev, 0);
}

/* ---- a task ends ---- */

static __always_inline __u64 pages_now(struct mm_struct *mm)
{
	struct mm_struct___6_1 *old = (void *)mm;
	__s64 now;

	if (bpf_core_type_exists(struct mm_rss_stat))
		now = BPF_CORE_READ(old, rss_stat.count[RSS_FILE].counter) +
		      BPF_CORE_READ(old, rss_stat.count[RSS_ANON].counter) +
		      BPF_CORE_READ(old, rss_stat.count[RSS_SHARED].counter);
	else
		now = BPF_CORE_READ(mm, rss_stat[RSS_FILE].count) + BPF_CORE_READ(mm, rss_stat[RSS_ANON].count) +
		      BPF_CORE_READ(mm, rss_stat[RSS_SHARED].count);
	return now > 0 ? (__u64)now : 0;
}

/* The most that it has had. */
static __always_inline __u64 pages_of(struct mm_struct *mm)
{
	__u64 most = BPF_CORE_READ(mm, hiwater_rss), now = pages_now(mm);

	return now > most ? now : most;
}

/* All but what it is in its process. */
static __always_inline void read_task(struct task_struct *task, struct use *u)
{
	u->cpu_ns = BPF_CORE_READ(task, se.sum_exec_runtime);
	if (bpf_core_field_exists(struct task_io_accounting, wchar)) {
		u->written = BPF_CORE_READ(task, ioac.wchar);
		u->read = BPF_CORE_READ(task, ioac.rchar);
	}
	u->threads = 1;
}

/*
 * Of a process whose last task ends: the kernel has just written down the most that it ever had, and before 6.16 has let go of
 * its memory by now. Where that is less than what it was before its program, it is not known: 0.
 */
static __always_inline __u64 last_pages(struct task_struct *task, struct signal_struct *signal)
{
	const __u32 tgid = (__u32)BPF_CORE_READ(task, tgid);
	const __u64 *before = bpf_map_lookup_elem(&images, &tgid);
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	__u64 most = BPF_CORE_READ(signal, maxrss);

	if (before) {
		if (most <= *before)
			most = mm ? pages_of(mm) : 0;
		bpf_map_delete_elem(&images, &tgid);
	}
	return most;
}

/*
 * Once for each process. The kernel says which task is the last one; before it did, its leader counts, which ends once as well
 * (but for a program that is started by another thread: then the leader that was ends too).
 */
static __always_inline void read_process(__u64 *ctx, struct task_struct *task, struct use *u)
{
	struct signal_struct *signal = BPF_CORE_READ(task, signal);

	if (bpf_core_type_exists(btf_trace_sched_process_exit___dead))
		u->processes = (ctx[1] & 1) != 0;
	else
		u->processes = BPF_CORE_READ(task, group_leader) == task;
	if (!bpf_core_type_exists(btf_trace_mark_victim___task))
		u->victims = u->processes && BPF_CORE_READ(signal, oom_mm);
	if (BPF_CORE_READ(signal, live.counter) == 0)
		u->rss = last_pages(task, signal) * page_bytes;
}

/* Of one that ended outside of what is metered: its number may be another's soon. */
static __always_inline void forget_image(struct task_struct *task)
{
	const __u32 tgid = (__u32)BPF_CORE_READ(task, tgid);

	if (BPF_CORE_READ(task, signal, live.counter) == 0 && bpf_map_lookup_elem(&images, &tgid))
		bpf_map_delete_elem(&images, &tgid);
}

/* The scheduler has had it for the last time: what it has run is final, whoever waits for it. */
static __always_inline bool runs_no_more(struct task_struct *task)
{
	return BPF_CORE_READ(task, __state) == TASK_DEAD && !BPF_CORE_READ(task, on_cpu);
}

/* Whoever takes the entry out adds the rest, so it is added once; and until it is out, the kernel has the task. */
static long take_rest(void *map, const __u64 *key, const __u64 *value, void *ctx)
{
	struct task_struct *task = (void *)*key;
	const __u64 before = *value, now = BPF_CORE_READ(task, se.sum_exec_runtime), again = *key;
	struct way w = {.use.cpu_ns = now > before ? now - before : 0};
	bool metered;

	if (!runs_no_more(task))
		return 0;
	metered = is_metered(&w, task);
	if (bpf_map_delete_elem(&ending, &again) == 0 && metered)
		add_to_all(&w);
	return 0;
}

/* False: what it runs from here on is in no sum. */
static __always_inline bool remember(struct task_struct *task, __u64 cpu_ns)
{
	const __u64 key = (__u64)task;

	if (bpf_map_update_elem(&ending, &key, &cpu_ns, BPF_ANY) == 0)
		return true;
	bpf_for_each_map_elem(&ending, take_rest, NULL, 0);
	if (bpf_map_update_elem(&ending, &key, &cpu_ns, BPF_ANY) == 0)
		return true;
	stat_inc(WEIR_METER_STAT_ENDING_FULL);
	return false;
}

SEC("tp_btf/sched_process_exit")
int weir_exit(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct way w = {};

	if (!levels)
		return 0;
	if (!is_metered(&w, task)) {
		forget_image(task);
		return 0;
	}
	read_task(task, &w.use);
	read_process(ctx, task, &w.use);
	w.use.incomplete = !remember(task, w.use.cpu_ns);
	add_to_all(&w);
	if (w.use.victims)
		tell_victim(w.nearest, task);
	return 0;
}

SEC("tp_btf/sched_process_free")
int weir_free(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	const __u64 key = (__u64)task;
	__u64 *before = levels ? bpf_map_lookup_elem(&ending, &key) : NULL;
	struct way w = {};
	__u64 now;

	if (!before)
		return 0;
	now = BPF_CORE_READ(task, se.sum_exec_runtime);
	w.use.cpu_ns = now > *before ? now - *before : 0;
	if (bpf_map_delete_elem(&ending, &key) == 0 && is_metered(&w, task))
		add_to_all(&w);
	return 0;
}

/* ---- a task is chosen to be killed for want of memory ---- */

SEC("tp_btf/mark_victim")
int weir_victim(__u64 *ctx)
{
	struct way w = {.use.victims = 1};
	struct task_struct *task;

	/* Told a number, of which the task can't be had: weir_exit() sees that it was one. */
	if (!bpf_core_type_exists(btf_trace_mark_victim___task))
		return 0;
	task = (void *)ctx[0];
	if (!is_metered(&w, task))
		return 0;
	add_to_all(&w);
	tell_victim(w.nearest, task);
	return 0;
}

/* ---- a program starts ---- */

static __always_inline void read_path(struct weir_meter_event *ev, struct linux_binprm *bprm)
{
	const char *name = BPF_CORE_READ(bprm, filename);
	long len = bpf_probe_read_kernel_str(ev->path, sizeof ev->path, name);
	char more = 0;

	if (len <= 0)
		return;
	ev->path_len = (__u16)(len - 1);
	if (len == sizeof ev->path)
		bpf_probe_read_kernel(&more, sizeof more, name + sizeof ev->path - 1);
	ev->path_cut = more != 0;
}

static __always_inline void list_exec(struct weir_meter *m, __u64 before, struct way *w)
{
	const __u64 *most = bpf_map_lookup_elem(&listed, &w->nearest);
	struct weir_meter_event *ev = NULL;

	if (before < (most ? *most : WEIR_EXECS_PER_CGROUP))
		ev = event_of(m, WEIR_METER_EXEC, w->nearest, w->task);
	if (!ev) {
		__sync_fetch_and_add(&m->execs_unlisted, 1);
		return;
	}
	read_path(ev, w->bprm);
	bpf_ringbuf_submit(ev, 0);
}

static long exec_one(__u32 depth, struct way *w)
{
	struct weir_meter *m;
	__u64 id, before;

	if (!(w->look >> depth & 1))
		return 0;
	id = ancestor_id(w->cg, depth);
	m = bpf_map_lookup_elem(&meters, &id);
	if (!m)
		return 0;
	before = __sync_fetch_and_add(&m->execs, 1);
	if (id == w->nearest)
		list_exec(m, before, w);
	return 0;
}

/* What it had grown to in the program before; of its first one, see `images`. */
static __always_inline void end_image(struct way *w)
{
	struct task_struct *task = w->task;
	const __u32 tgid = (__u32)BPF_CORE_READ(task, tgid);
	const __u64 most = BPF_CORE_READ(task, signal, maxrss), *before = bpf_map_lookup_elem(&images, &tgid);

	if (before && most > *before)
		w->use.rss = most * page_bytes;
	if (bpf_map_update_elem(&images, &tgid, &most, BPF_ANY) < 0) {
		stat_inc(WEIR_METER_STAT_ENDING_FULL);
		w->use.incomplete = 1;
	}
	if (w->use.rss || w->use.incomplete)
		add_to_all(w);
}

SEC("tp_btf/sched_process_exec")
int weir_exec(__u64 *ctx)
{
	struct way w = {};

	if (!is_metered(&w, (void *)ctx[0]))
		return 0;
	w.bprm = (void *)ctx[2];
	end_image(&w);
	bpf_loop(w.depths, exec_one, &w, 0);
	return 0;
}

/* ---- what lives: when somebody asks ---- */

static __always_inline void read_living(struct task_struct *task, struct use *u)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	const __u32 tgid = (__u32)BPF_CORE_READ(task, tgid);
	const __u64 *before;
	__u64 most, earlier;

	read_task(task, u);
	if (BPF_CORE_READ(task, group_leader) != task)
		return;
	u->processes = 1;
	most = mm ? pages_of(mm) : 0;
	before = bpf_map_lookup_elem(&images, &tgid);
	earlier = BPF_CORE_READ(task, signal, maxrss);
	if (earlier > most && !(before && earlier <= *before))
		most = earlier;
	u->rss = most * page_bytes;
}

/* The first that is seen of a cgroup takes its sum along: what ends from then on is in it once, or not yet. */
static long add_living_one(__u32 depth, struct way *w)
{
	struct weir_meter *m, *ended;
	__u64 id;

	if (!(w->look >> depth & 1))
		return 0;
	id = ancestor_id(w->cg, depth);
	m = bpf_map_lookup_elem(&living, &id);
	if (!m) {
		ended = bpf_map_lookup_elem(&meters, &id);
		if (!ended)
			return 0;
		bpf_map_update_elem(&living, &id, ended, BPF_NOEXIST);
		m = bpf_map_lookup_elem(&living, &id);
	}
	if (m)
		add(m, &w->use);
	return 0;
}

/* What a task that has ended took for that, by now: what weir_free() will add. The kernel still has it, or what is read is
 * void. */
static long add_rest(void *map, const __u64 *key, const __u64 *value, void *ctx)
{
	struct task_struct *task = (void *)*key;
	const __u64 before = *value, now = BPF_CORE_READ(task, se.sum_exec_runtime), again = *key;
	struct way w = {.use.cpu_ns = now > before ? now - before : 0};

	if (is_metered(&w, task) && bpf_map_lookup_elem(&ending, &again))
		bpf_loop(w.depths, add_living_one, &w, 0);
	return 0;
}

/* Run by whoever has waited for all tasks of a cgroup, and wants to know now. */
SEC("syscall")
int weir_settle(void *ctx)
{
	bpf_for_each_map_elem(&ending, add_rest, NULL, 0);
	return 0;
}

SEC("iter/task")
int weir_walk(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	const __u64 key = (__u64)task;
	struct way w = {};

	if (!task) {
		/* The last. */
		bpf_for_each_map_elem(&ending, add_rest, NULL, 0);
		return 0;
	}
	if (BPF_CORE_READ(task, flags) & PF_KTHREAD || !is_metered(&w, task))
		return 0;
	if (BPF_CORE_READ(task, exit_state) || bpf_map_lookup_elem(&ending, &key))
		return 0;
	read_living(task, &w.use);
	bpf_loop(w.depths, add_living_one, &w, 0);
	return 0;
}
