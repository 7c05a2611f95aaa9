/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meter against what processes know of themselves: CPU time against their own clocks, memory against what wait4() says of
 * them, bytes against what they were told to write, programs against what was started.
 */
#include "scratch.h"

#include <sys/sysmacros.h>
#include <sys/uio.h>

#include "kernel/meter.h"

#define MS 1000000ull
#define MIB (1024ull * 1024)
#define DEEP 40	      /* cgroups one below the other: more than the meter looks at */
#define TRIES_MS 5000 /* until what is moments away is there */

static struct meter *m;

/* What children say of themselves. */
static struct said {
	_Atomic uint64_t cpu_ns;
	_Atomic int ready;
} * said;

static uint64_t clock_of(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static void burn(clockid_t id, uint64_t ns)
{
	uint64_t until = clock_of(id) + ns;

	while (clock_of(id) < until)
		;
}

static char *touch(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; p != MAP_FAILED && i < bytes; i += 4096)
		p[i] = 1;
	return p;
}

static void meter_it(enum box box)
{
	struct err e = {0};

	must(meter_add(m, t.id[box], box == BOX_DEEP ? t.level + 1 : t.level, &e), &e);
}

static struct weir_meter sum(enum box box, bool live)
{
	struct weir_meter got;
	struct err e = {0};

	must(meter_read(m, t.id[box], live, &got, &e), &e);
	return got;
}

static int setup(void **state)
{
	struct err e = {0};

	(void)state;
	memset(said, 0, sizeof *said);
	memset(told, 0, sizeof *told);
	must(meter_open(&m, &e), &e);
	meter_it(BOX_A);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	m = meter_free(m);
	return 0;
}

static uint64_t cpu_now(enum box box)
{
	struct err e = {0};

	must(meter_settle(m, &e), &e);
	return sum(box, true).cpu_ns;
}

/* What the cgroup itself says. */
static uint64_t cpu_stat_ns(enum box box)
{
	int fd = openat(t.fd[box], "cpu.stat", O_RDONLY | O_CLOEXEC);
	char text[512] = "";

	assert_true(read(fd, text, sizeof text - 1) > 0);
	close(fd);
	return strtoull(strstr(text, "usage_usec ") + 11, NULL, 10) * 1000;
}

/*
 * Within 2 % or 5 ms of what the cgroup itself says, since `before`, and no less than what its processes say, who don't see
 * what the kernel does for them when they begin and end. At once: a task is waited for a moment before the scheduler has
 * written its time down for the last time.
 */
static void expect_cpu(enum box box, uint64_t before, uint64_t least)
{
	uint64_t got = 0, ns = 0, slack;

	for (int64_t until = now_ms() + TRIES_MS; now_ms() < until; usleep(1000)) {
		got = cpu_now(box);
		ns = cpu_stat_ns(box) - before;
		slack = ns / 50 > 5 * MS ? ns / 50 : 5 * MS;
		if (got + slack >= ns && got <= ns + slack && got + slack >= least)
			return;
	}
	fail_msg("%.3f ms, and its cgroup says %.3f, its processes %.3f", (double)got / 1e6, (double)ns / 1e6,
		 (double)least / 1e6);
}

/* ---- CPU ---- */

static void *thread_burns(void *arg)
{
	(void)arg;
	burn(CLOCK_THREAD_CPUTIME_ID, 20 * MS);
	said->cpu_ns += clock_of(CLOCK_THREAD_CPUTIME_ID);
	return NULL;
}

static void child_burns(int threads)
{
	pthread_t all[8];

	for (int i = 0; i < threads; i++)
		pthread_create(&all[i], NULL, thread_burns, NULL);
	for (int i = 0; i < threads; i++)
		pthread_join(all[i], NULL);
	burn(CLOCK_THREAD_CPUTIME_ID, 10 * MS);
	said->cpu_ns += clock_of(CLOCK_THREAD_CPUTIME_ID);
	_exit(0);
}

static void test_cpu_of_threads(void **state)
{
	const uint64_t before = cpu_stat_ns(BOX_A);
	pid_t pid = spawn(BOX_A, 0);
	struct weir_meter got;

	(void)state;
	if (pid == 0)
		child_burns(4);
	assert_int_equal(reap(pid), 0);
	expect_cpu(BOX_A, before, said->cpu_ns);
	got = sum(BOX_A, false);
	assert_int_equal(got.threads, 5);
	assert_int_equal(got.processes, 1);
}

/*
 * Each shorter than a tick or two: what the scheduler has not written down when they end is a good part of them. What they say
 * themselves lacks what the kernel does for them at their ends.
 */
static void test_cpu_of_many_short_ones(void **state)
{
	enum { MANY = 60 };
	const uint64_t before = cpu_stat_ns(BOX_A);

	(void)state;
	for (int i = 0; i < MANY; i++) {
		pid_t pid = spawn(BOX_A, 0);

		if (pid == 0) {
			burn(CLOCK_PROCESS_CPUTIME_ID, 3 * MS);
			said->cpu_ns += clock_of(CLOCK_PROCESS_CPUTIME_ID);
			_exit(0);
		}
		assert_int_equal(reap(pid), 0);
	}
	expect_cpu(BOX_A, before, said->cpu_ns);
	assert_int_equal(sum(BOX_A, false).processes, MANY);
}

/* With what the kernel did at its end, which is a good part of it here; counted once, however often it is asked for. */
static void test_cpu_of_a_teardown(void **state)
{
	const uint64_t before = cpu_stat_ns(BOX_A);
	uint64_t early, late;
	struct err e = {0};
	pid_t pid = spawn(BOX_A, 0);

	(void)state;
	if (pid == 0) {
		touch(300 * MIB);
		_exit(0);
	}
	assert_int_equal(reap(pid), 0);
	expect_cpu(BOX_A, before, 0);
	early = cpu_now(BOX_A);
	must(meter_walk(m, &e), &e);
	late = sum(BOX_A, true).cpu_ns;
	assert_in_range(late, early, early + 5 * MS);
}

/* What was not asked for is in the sum all the same, as soon as the kernel lets go of the task: its own affair when. */
static void test_the_rest_comes_by_itself(void **state)
{
	uint64_t now = cpu_now(BOX_A), got = 0;
	pid_t pid = spawn(BOX_A, 0);

	(void)state;
	if (pid == 0) {
		touch(100 * MIB);
		_exit(0);
	}
	assert_int_equal(reap(pid), 0);
	now = cpu_now(BOX_A);
	for (int64_t until = now_ms() + 4 * TRIES_MS; now_ms() < until && got < now; usleep(1000))
		got = sum(BOX_A, false).cpu_ns;
	assert_in_range(got, now, now + 5 * MS);
}

static void test_a_killed_one_counts(void **state)
{
	const uint64_t before = cpu_stat_ns(BOX_A);
	pid_t pid = spawn(BOX_A, 0);
	int status;

	(void)state;
	if (pid == 0) {
		burn(CLOCK_PROCESS_CPUTIME_ID, 30 * MS);
		said->cpu_ns = clock_of(CLOCK_PROCESS_CPUTIME_ID);
		said->ready = 1;
		for (;;)
			pause();
	}
	while (!said->ready)
		usleep(1000);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	expect_cpu(BOX_A, before, said->cpu_ns);
}

/* ---- memory ---- */

/* The same figure that the parent is told, whatever was given back before the end. */
static void test_memory(void **state)
{
	struct rusage ru;
	int status;
	pid_t pid = spawn(BOX_A, 0);

	(void)state;
	if (pid == 0) {
		char *p = touch(64 * MIB);

		munmap(p, 64 * MIB);
		_exit(0);
	}
	assert_int_equal(wait4(pid, &status, 0, &ru), pid);
	assert_int_equal(sum(BOX_A, false).peak_rss, (uint64_t)ru.ru_maxrss * 1024);
	assert_true(sum(BOX_A, false).peak_rss >= 64 * MIB);
	assert_int_equal(udp_from(BOX_A, "127.0.0.1", 9), 0); /* a small one changes nothing */
	assert_int_equal(sum(BOX_A, false).peak_rss, (uint64_t)ru.ru_maxrss * 1024);
}

/* What a process is before its first program is a copy of its maker; what it grew to in one is its own, also when it starts
 * another. */
static void test_memory_before_a_program(void **state)
{
	char command[] = "x=$(head -c 50000000 /dev/zero | tr '\\0' x); exec /bin/true";
	pid_t pid = spawn(BOX_A, 0);

	(void)state;
	if (pid == 0) {
		touch(96 * MIB);
		execl("/bin/true", "true", (char *)NULL);
		_exit(errno);
	}
	assert_int_equal(reap(pid), 0);
	assert_true(sum(BOX_A, false).peak_rss < 48 * MIB);
	pid = spawn(BOX_A, 0);
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(errno);
	}
	assert_int_equal(reap(pid), 0);
	assert_in_range(sum(BOX_A, false).peak_rss, 48 * MIB, 400 * MIB);
}

/* ---- bytes ---- */

static void test_written(void **state)
{
	pid_t pid = spawn(BOX_A, 0);

	(void)state;
	if (pid == 0) {
		static char data[100001];
		struct iovec iov[2] = {{data, 70000}, {data, 30000}};
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC), zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
		int file = (int)syscall(SYS_memfd_create, "x", 0);

		MUST(write(null, data, sizeof data) == sizeof data);
		MUST(writev(null, iov, 2) == 100000);
		MUST(pwritev2(file, iov, 2, 0, 0) == 100000);
		MUST(read(zero, data, 4321) == 4321);
		_exit(0);
	}
	assert_int_equal(reap(pid), 0);
	assert_int_equal(told->count, 0);
	assert_int_equal(sum(BOX_A, false).written_bytes, 300001);
	assert_int_equal(sum(BOX_A, false).read_bytes, 4321);
}

/* ---- which cgroups ---- */

static void write_as(enum box box, size_t bytes)
{
	static char data[65536];
	pid_t pid = spawn(box, 0);

	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		_exit(write(null, data, bytes) == (ssize_t)bytes ? 0 : 1);
	}
	assert_int_equal(reap(pid), 0);
}

static void test_one_below_another_adds_to_both(void **state)
{
	struct err e = {0};

	(void)state;
	meter_it(BOX_DEEP);
	write_as(BOX_A, 1000);
	write_as(BOX_DEEP, 200);
	write_as(BOX_B, 30);
	write_as(BOX_OUT, 4);
	assert_int_equal(sum(BOX_A, false).written_bytes, 1200);
	assert_int_equal(sum(BOX_DEEP, false).written_bytes, 200);
	assert_int_equal(meter_remove(m, t.id[BOX_A], t.level), 0);
	write_as(BOX_DEEP, 200);
	assert_int_equal(sum(BOX_DEEP, false).written_bytes, 400);
	assert_int_equal(meter_remove(m, t.id[BOX_A], t.level), -ENOENT);
	must(meter_add(m, t.id[BOX_A], t.level, &e), &e);
	assert_int_equal(sum(BOX_A, false).written_bytes, 0);
	assert_int_equal(meter_add(m, 1, WEIR_METER_DEPTH, &e), -ENOTSUP);
}

/* Whoever may make cgroups below its own can go far down, and is in it still. */
static void test_far_down(void **state)
{
	char name[3 * DEEP + 1] = "";
	size_t len = 0;

	(void)state;
	for (int i = 0; i < DEEP; i++) {
		len += (size_t)snprintf(name + len, sizeof name - len, "%sx", i ? "/" : "");
		assert_int_equal(mkdirat(t.fd[BOX_A], name, 0755), 0);
	}
	pid_t pid = spawn(BOXES, 0);

	if (pid == 0) {
		char procs[sizeof name + 16];
		int fd, null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		snprintf(procs, sizeof procs, "%s/cgroup.procs", name);
		fd = openat(t.fd[BOX_A], procs, O_WRONLY | O_CLOEXEC);
		MUST(write(fd, "0", 1) == 1);
		MUST(write(null, name, 100) == 100);
		_exit(0);
	}
	assert_int_equal(reap(pid), 0);
	for (size_t at = len; at; at = at > 2 ? at - 2 : 0) {
		name[at] = '\0';
		for (int i = 0; unlinkat(t.fd[BOX_A], name, AT_REMOVEDIR) < 0 && errno == EBUSY && i < 200; i++)
			usleep(5000);
	}
	assert_int_equal(told->count, 0);
	assert_int_equal(sum(BOX_A, false).written_bytes, 101);
}

/* ---- programs ---- */

struct heard {
	int n;
	struct weir_meter_event ev[2 * WEIR_EXECS_PER_CGROUP];
};
static struct heard heard_events;

static void hear_event(void *ctx, const struct weir_meter_event *ev)
{
	struct heard *h = ctx;

	if (h->n < (int)(sizeof h->ev / sizeof *h->ev))
		h->ev[h->n] = *ev;
	h->n++;
}

static int hear_all(void)
{
	heard_events.n = 0;
	assert_true(meter_drain(m, 1 << 20, hear_event, &heard_events) >= 0);
	return heard_events.n;
}

static int start_program(enum box box, const char *path)
{
	pid_t pid = spawn(box, 0);

	if (pid == 0) {
		execl(path, "any name", (char *)NULL);
		_exit(errno);
	}
	reap(pid);
	return pid;
}

static void test_programs(void **state)
{
	const struct weir_meter_event *ev = heard_events.ev;
	char lengthy[400] = "/bin";
	int pid;

	(void)state;
	pid = start_program(BOX_A, "/bin/true");
	assert_int_equal(hear_all(), 1);
	assert_int_equal(ev->cgroup, t.id[BOX_A]);
	assert_int_equal(ev->type, WEIR_METER_EXEC);
	assert_int_equal(ev->host_pid, pid);
	assert_int_equal(ev->pid, pid);
	assert_int_equal(ev->uid, 0);
	assert_int_equal(ev->seq, 1);
	assert_string_equal(ev->path, "/bin/true");
	assert_int_equal(ev->path_len, 9);
	assert_int_equal(ev->path_cut, 0);
	assert_string_equal(ev->comm, "true");
	assert_true(clock_of(CLOCK_BOOTTIME) - ev->time_ns < 60000 * MS);
	start_program(BOX_B, "/bin/true"); /* nobody's */
	assert_int_equal(start_program(BOX_A, "/no/such/program") > 0, 1);
	assert_int_equal(hear_all(), 0);
	assert_int_equal(sum(BOX_A, false).execs, 1);

	for (size_t i = 4; i + 6 < sizeof lengthy; i += 2)
		memcpy(lengthy + i, "/.", 3);
	strcat(lengthy, "/true");
	start_program(BOX_A, lengthy);
	assert_int_equal(hear_all(), 1);
	assert_int_equal(ev->path_cut, 1);
	assert_int_equal(ev->path_len, WEIR_EXEC_PATH_MAX - 1);
	assert_memory_equal(ev->path, lengthy, WEIR_EXEC_PATH_MAX - 1);
}

/* In its own pid namespace it is another number, and that is told as well. */
static void test_a_program_in_a_namespace(void **state)
{
	pid_t pid = spawn(BOX_A, CLONE_NEWPID);

	(void)state;
	if (pid == 0) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(errno);
	}
	assert_int_equal(reap(pid), 0);
	assert_int_equal(hear_all(), 1);
	assert_int_equal(heard_events.ev[0].host_pid, pid);
	assert_int_equal(heard_events.ev[0].pid, 1);
}

static void test_more_programs_than_are_listed(void **state)
{
	enum { MORE = 20 };
	struct weir_meter got;

	(void)state;
	for (int i = 0; i < WEIR_EXECS_PER_CGROUP + MORE; i++)
		start_program(BOX_A, "/bin/true");
	assert_int_equal(hear_all(), WEIR_EXECS_PER_CGROUP);
	got = sum(BOX_A, false);
	assert_int_equal(got.execs, WEIR_EXECS_PER_CGROUP + MORE);
	assert_int_equal(got.execs_unlisted, MORE);
	assert_int_equal(got.events, WEIR_EXECS_PER_CGROUP);
	/* Another cgroup's are listed all the same, and with a new allowance so are this one's. */
	meter_it(BOX_DEEP);
	start_program(BOX_DEEP, "/bin/true");
	assert_int_equal(meter_renew(m, t.id[BOX_A]), 0);
	start_program(BOX_A, "/bin/true");
	assert_int_equal(hear_all(), 2);
	assert_int_equal(heard_events.ev[0].cgroup, t.id[BOX_DEEP]);
	assert_int_equal(heard_events.ev[1].seq, WEIR_EXECS_PER_CGROUP + 1);
}

static void test_a_full_ring(void **state)
{
	enum { EACH = 100, MOST = 2 * WEIR_METER_RING_BYTES / (int)sizeof(struct weir_meter_event) };
	uint64_t stats[WEIR_METER_STAT_COUNT] = {0};
	struct weir_meter got;
	struct err e = {0};
	int started = 0;

	(void)state;
	while (!stats[WEIR_METER_STAT_RING_FULL] && started < MOST) {
		pid_t pid;

		assert_int_equal(meter_renew(m, t.id[BOX_A]), 0);
		pid = spawn(BOX_A, 0);
		if (pid == 0) {
			execl("/bin/sh", "sh", "-c", "n=1; while [ $n -lt 100 ]; do /bin/true; n=$((n+1)); done", (char *)NULL);
			_exit(errno);
		}
		reap(pid);
		started += EACH;
		must(meter_stats(m, stats, &e), &e);
	}
	got = sum(BOX_A, false);
	assert_true(stats[WEIR_METER_STAT_RING_FULL] > 0);
	assert_int_equal(stats[WEIR_METER_STAT_ENDING_FULL], 0);
	assert_int_equal(got.execs, started);
	assert_int_equal(got.execs_unlisted, stats[WEIR_METER_STAT_RING_FULL]);
	assert_int_equal(got.events, started);
	assert_int_equal(hear_all(), started - (int)got.execs_unlisted);
}

/* ---- who was the last of a process ---- */

static void *thread_lives_on(void *arg)
{
	(void)arg;
	usleep(20000);
	touch(16 * MIB);
	syscall(SYS_exit, 0);
	return NULL;
}

static void test_a_leader_that_ends_first(void **state)
{
	struct weir_meter got;
	struct rusage ru;
	int status;
	pid_t pid = spawn(BOX_A, 0);

	(void)state;
	if (pid == 0) {
		pthread_t one, two;

		pthread_create(&one, NULL, thread_lives_on, NULL);
		pthread_create(&two, NULL, thread_lives_on, NULL);
		syscall(SYS_exit, 0);
	}
	assert_int_equal(wait4(pid, &status, 0, &ru), pid);
	got = sum(BOX_A, false);
	assert_int_equal(got.threads, 3);
	assert_int_equal(got.processes, 1);
	assert_true(got.peak_rss >= 32 * MIB);
	assert_int_equal(got.peak_rss, (uint64_t)ru.ru_maxrss * 1024);
}

/* ---- what lives ---- */

static void test_what_lives(void **state)
{
	struct weir_meter ended, now;
	struct err e = {0};
	pid_t pid;

	(void)state;
	write_as(BOX_A, 1000);
	pid = spawn(BOX_A, 0);
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		touch(32 * MIB);
		burn(CLOCK_PROCESS_CPUTIME_ID, 40 * MS);
		MUST(write(null, "12345", 5) == 5);
		said->cpu_ns = clock_of(CLOCK_PROCESS_CPUTIME_ID);
		said->ready = 1;
		for (;;)
			pause();
	}
	while (!said->ready)
		usleep(1000);
	usleep(2000);
	must(meter_walk(m, &e), &e);
	ended = sum(BOX_A, false);
	now = sum(BOX_A, true);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(told->count, 0);
	assert_int_equal(ended.processes, 1);
	assert_int_equal(now.processes, 2);
	assert_int_equal(now.threads, 2);
	assert_int_equal(now.written_bytes - ended.written_bytes, 5);
	assert_true(now.peak_rss >= 32 * MIB);
	if (now.cpu_ns - ended.cpu_ns + 5 * MS < said->cpu_ns || now.cpu_ns - ended.cpu_ns > said->cpu_ns + 5 * MS)
		fail_msg("%.3f ms, and it says %.3f", (double)(now.cpu_ns - ended.cpu_ns) / 1e6, (double)said->cpu_ns / 1e6);
	/* The next walk does not remember it: it has ended, and is counted once. */
	must(meter_walk(m, &e), &e);
	assert_int_equal(sum(BOX_A, true).processes, 2);
	assert_int_equal(sum(BOX_A, true).written_bytes, 1005);
}

/* One that has ended and that nobody has waited for is still there, and is counted once. */
static void test_a_zombie(void **state)
{
	struct err e = {0};
	siginfo_t si;
	pid_t pid = spawn(BOX_A, 0);

	(void)state;
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		_exit(write(null, "12345", 5) == 5 ? 0 : 1);
	}
	assert_int_equal(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), 0);
	must(meter_walk(m, &e), &e);
	assert_int_equal(sum(BOX_A, true).written_bytes, 5);
	assert_int_equal(sum(BOX_A, true).processes, 1);
	must(meter_settle(m, &e), &e);
	assert_int_equal(sum(BOX_A, true).processes, 1);
	assert_int_equal(reap(pid), 0);
}

/* ---- room ---- */

static uint64_t incomplete(void)
{
	uint64_t stats[WEIR_METER_STAT_COUNT] = {0};
	struct err e = {0};

	must(meter_stats(m, stats, &e), &e);
	return stats[WEIR_METER_STAT_ENDING_FULL];
}

/* Ends at once, and is waited for by nobody. */
static void leave_a_zombie(void)
{
	if (fork() == 0)
		_exit(0);
}

/*
 * Whoever leaves more of its own unwaited for than there is room for takes nobody's end of CPU time, not even its own: the rest
 * of all of them is added as soon as the room is needed.
 */
static void test_more_zombies_than_there_is_room_for(void **state)
{
	enum { MANY = 4096 + 300 };
	const uint64_t before_a = cpu_stat_ns(BOX_A), before_b = cpu_stat_ns(BOX_B);
	pid_t hoarder = spawn(BOX_A, 0), pid;

	(void)state;
	if (hoarder == 0) {
		for (int i = 0; i < MANY; i++)
			leave_a_zombie();
		said->ready = 1;
		for (;;)
			pause();
	}
	while (!said->ready)
		usleep(1000);
	meter_it(BOX_B);
	pid = spawn(BOX_B, 0);
	if (pid == 0) {
		touch(200 * MIB);
		_exit(0);
	}
	assert_int_equal(reap(pid), 0);
	expect_cpu(BOX_B, before_b, 0);
	kill(hoarder, SIGKILL);
	assert_int_equal(waitpid(hoarder, NULL, 0), hoarder);
	expect_cpu(BOX_A, before_a, 0);
	assert_int_equal(sum(BOX_A, false).processes, MANY + 1);
	assert_int_equal(sum(BOX_A, false).incomplete, 0);
	assert_int_equal(sum(BOX_B, false).incomplete, 0);
	assert_int_equal(incomplete(), 0);
}

/* One of the programs' maps. */
static int map_of(const char *name)
{
	uint32_t ids[METER_PROGRAMS], maps[16] = {0};
	struct bpf_prog_info info = {.nr_map_ids = 16, .map_ids = (uint64_t)(uintptr_t)maps};
	uint32_t len = sizeof info;
	int program;

	meter_programs(m, ids);
	program = bpf_prog_get_fd_by_id(ids[0]);
	assert_int_equal(bpf_obj_get_info_by_fd(program, &info, &len), 0);
	close(program);
	for (uint32_t i = 0; i < info.nr_map_ids; i++) {
		struct bpf_map_info map = {0};
		int fd = bpf_map_get_fd_by_id(maps[i]);

		len = sizeof map;
		assert_int_equal(bpf_obj_get_info_by_fd(fd, &map, &len), 0);
		if (!strcmp(map.name, name))
			return fd;
		close(fd);
	}
	fail_msg("no map %s", name);
	return -1;
}

static int count_of(const char *name)
{
	const int fd = map_of(name);
	uint64_t key = 0;
	int n = 0;

	for (void *at = NULL; bpf_map_get_next_key(fd, at, &key) == 0; at = &key)
		n++;
	close(fd);
	return n;
}

/* With entries of nobody. */
static void fill(const char *name)
{
	const int fd = map_of(name);
	uint64_t value = 0;

	for (uint64_t key = 0x7f000000; bpf_map_update_elem(fd, &key, &value, BPF_ANY) == 0; key++)
		;
	assert_int_equal(errno, E2BIG);
	close(fd);
}

/* Where there really is none, it is said of whom: of the cgroup of the task that could not be followed, and of no other. */
static void test_no_room_is_said(void **state)
{
	(void)state;
	meter_it(BOX_B);
	fill("images");
	write_as(BOX_A, 1);
	assert_int_equal(sum(BOX_A, false).incomplete, 0);
	/* On older kernels each CPU keeps a free place or two of its own. */
	for (int64_t until = now_ms() + TRIES_MS; !sum(BOX_A, false).incomplete && now_ms() < until;) {
		start_program(BOX_A, "/bin/true");
		fill("images");
	}
	assert_int_equal(sum(BOX_A, false).incomplete, 1);
	assert_int_equal(incomplete(), 1);
	/* There is room as long as an earlier one has its place, which the kernel lets go of some moments after its end. */
	for (int64_t until = now_ms() + TRIES_MS; !sum(BOX_B, false).incomplete && now_ms() < until;) {
		usleep(50000);
		fill("ending");
		write_as(BOX_B, 1);
	}
	assert_int_equal(sum(BOX_A, false).incomplete, 1);
	assert_int_equal(sum(BOX_B, false).incomplete, 1);
	assert_int_equal(incomplete(), 2);
}

/* A program that lives until it is told to end. */
static pid_t start_cat(enum box box, int *ret_end)
{
	int pipes[2];
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = spawn(box, 0);
	if (pid == 0) {
		dup2(pipes[0], 0);
		close(pipes[0]);
		close(pipes[1]);
		execl("/bin/cat", "cat", (char *)NULL);
		_exit(errno);
	}
	close(pipes[0]);
	*ret_end = pipes[1];
	for (int64_t until = now_ms() + TRIES_MS; hear_all() == 0 && now_ms() < until;)
		usleep(1000);
	return pid;
}

/* What was remembered of a process goes with it, also where it ends outside: its number will be another's. */
static void test_what_is_moved_out_is_forgotten(void **state)
{
	char path[300], number[16];
	int end;
	pid_t pid = start_cat(BOX_A, &end);

	(void)state;
	assert_int_equal(count_of("images"), 1);
	snprintf(path, sizeof path, "%s%s/cgroup.procs", t.path, box_names[BOX_OUT]);
	snprintf(number, sizeof number, "%d", pid);
	write_file(path, number);
	close(end);
	assert_int_equal(reap(pid), 0);
	assert_int_equal(count_of("images"), 0);
	assert_int_equal(sum(BOX_A, false).processes, 0);
}

/* .. and of what ends while nothing at all is metered. */
static void test_what_ends_unmetered_is_forgotten(void **state)
{
	int end;
	pid_t pid = start_cat(BOX_A, &end);

	(void)state;
	assert_int_equal(meter_remove(m, t.id[BOX_A], t.level), 0);
	close(end);
	assert_int_equal(reap(pid), 0);
	meter_it(BOX_A);
	assert_int_equal(count_of("images"), 0);
	assert_int_equal(count_of("ending"), 0);
}

/* ---- out of memory ---- */

/* A memory cgroup of 24 MiB, wherever the host has the controller. */
static int small_memory(char path[512])
{
	char line[1024], mnt[192], options[512];
	FILE *f = fopen("/proc/self/mountinfo", "re");
	bool v1 = false;

	path[0] = '\0';
	while (f && fgets(line, sizeof line, f)) {
		const char *tail = strstr(line, " - cgroup ");

		if (tail && sscanf(line, "%*s %*s %*s %*s %191s", mnt) == 1 &&
		    sscanf(tail, " - cgroup %*s %511s", options) == 1 && strstr(options, "memory")) {
			snprintf(path, 512, "%s/weir-test-%d-oom", mnt, getpid());
			v1 = true;
		}
	}
	if (f)
		fclose(f);
	if (v1) {
		char file[600];

		if (mkdir(path, 0755) < 0)
			return -1;
		snprintf(file, sizeof file, "%s/memory.limit_in_bytes", path);
		write_file(file, "25165824");
		strcat(path, "/tasks");
		return 0;
	}
	return -1;
}

static void test_a_victim(void **state)
{
	char tasks[512];
	pid_t pid;
	int fd, i;

	(void)state;
	if (small_memory(tasks) < 0) {
		/* Version 2: below the root, where the scratch cgroups are, it has to be handed on first. */
		char path[300];

		snprintf(path, sizeof path, "%.*s/cgroup.subtree_control", (int)(strrchr(t.path, '/') - t.path), t.path);
		write_file(path, "+memory");
		snprintf(path, sizeof path, "%s/memory.max", t.path);
		if (access(path, W_OK) < 0) {
			print_message("skip: no memory controller to be had here\n");
			skip();
		}
		write_file(path, "25165824");
		tasks[0] = '\0';
	}
	pid = spawn(BOX_A, 0);
	if (pid == 0) {
		if (tasks[0]) {
			fd = open(tasks, O_WRONLY | O_CLOEXEC);
			if (write(fd, "0", 1) != 1)
				_exit(1);
		}
		touch(64 * MIB);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &i, 0), pid);
	if (tasks[0]) {
		*strrchr(tasks, '/') = '\0';
		for (int n = 0; rmdir(tasks) < 0 && errno == EBUSY && n < 200; n++)
			usleep(5000);
	} else {
		char path[300];

		snprintf(path, sizeof path, "%s/memory.max", t.path);
		write_file(path, "max");
	}
	assert_true(WIFSIGNALED(i) && WTERMSIG(i) == SIGKILL);
	assert_int_equal(sum(BOX_A, false).oom_victims, 1);
	assert_int_equal(hear_all(), 1);
	assert_int_equal(heard_events.ev[0].type, WEIR_METER_OOM);
	assert_int_equal(heard_events.ev[0].host_pid, pid);
	assert_string_equal(heard_events.ev[0].comm, COMM);
}

static void test_ids(void **state)
{
	uint32_t ids[METER_PROGRAMS];

	(void)state;
	meter_programs(m, ids);
	for (int i = 0; i < METER_PROGRAMS; i++)
		assert_true(ids[i] != 0);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
	    CASE(test_cpu_of_threads),
	    CASE(test_cpu_of_many_short_ones),
	    CASE(test_cpu_of_a_teardown),
	    CASE(test_the_rest_comes_by_itself),
	    CASE(test_a_killed_one_counts),
	    CASE(test_memory),
	    CASE(test_memory_before_a_program),
	    CASE(test_written),
	    CASE(test_one_below_another_adds_to_both),
	    CASE(test_far_down),
	    CASE(test_programs),
	    CASE(test_a_program_in_a_namespace),
	    CASE(test_more_programs_than_are_listed),
	    CASE(test_a_full_ring),
	    CASE(test_a_leader_that_ends_first),
	    CASE(test_what_lives),
	    CASE(test_a_zombie),
	    CASE(test_more_zombies_than_there_is_room_for),
	    CASE(test_no_room_is_said),
	    CASE(test_what_is_moved_out_is_forgotten),
	    CASE(test_what_ends_unmetered_is_forgotten),
	    CASE(test_a_victim),
	    CASE(test_ids),
	};
	int rc;

	told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	said = mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	make_netns();
	make_boxes();
	rc = cmocka_run_group_tests_name("meter", tests, NULL, NULL);
	remove_boxes();
	return rc;
}
