/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/meter.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "core/cleanup.h"
#include "meter.skel.h"

#define LAYER "meter"
#define WALK_BYTES 4096 /* the walk says nothing: it ends with nothing read */
#define WALK_PASSES 256 /* .. but is interrupted by signals, and asked to go on */

struct meter {
	struct meter_bpf *skel;
	struct ring_buffer *ring;
	unsigned at[WEIR_METER_DEPTH]; /* how many are metered at each depth */
	/* Of the drain that is running. */
	int budget, drained;
	void (*cb)(void *ctx, const struct weir_meter_event *ev);
	void *ctx;
};

/* ---- loading: libbpf is quiet, its first word explains a failure ---- */

static char first_word[192];

__attribute__((format(printf, 2, 0))) static int hear(enum libbpf_print_level level, const char *format, va_list ap)
{
	if (level == LIBBPF_WARN && !first_word[0]) {
		vsnprintf(first_word, sizeof first_word, format, ap);
		first_word[strcspn(first_word, "\n")] = '\0';
	}
	return 0;
}

static int load(struct meter *m, struct err *e)
{
	int rc;

	first_word[0] = '\0';
	libbpf_set_print(hear);
	m->skel = meter_bpf__open();
	if (!m->skel)
		return err_errno(e, errno, LAYER, "open the programs (%s)", first_word);
	m->skel->rodata->page_bytes = (uint32_t)sysconf(_SC_PAGESIZE);
	rc = meter_bpf__load(m->skel);
	if (rc == 0)
		rc = meter_bpf__attach(m->skel);
	return rc < 0 ? err_errno(e, -rc, LAYER,
				  "the kernel refused a program that accounting is made with (%s); it needs CAP_BPF and "
				  "CAP_PERFMON, and tracing programs to be allowed",
				  first_word)
		      : 0;
}

static int on_event(void *ctx, void *data, size_t size)
{
	struct meter *m = ctx;

	if (size >= sizeof(struct weir_meter_event))
		m->cb(m->ctx, data);
	return ++m->drained < m->budget ? 0 : -ECANCELED;
}

static void free_meterp(struct meter **m)
{
	meter_free(*m);
}

int meter_open(struct meter **ret, struct err *e)
{
	__attribute__((cleanup(free_meterp))) struct meter *m = calloc(1, sizeof *m);
	int rc;

	if (!m)
		return err_set(e, ENOMEM, LAYER, "out of memory");
	rc = load(m, e);
	if (rc < 0)
		return rc;
	m->ring = ring_buffer__new(bpf_map__fd(m->skel->maps.meter_events), on_event, m, NULL);
	if (!m->ring)
		return err_errno(e, errno, LAYER, "map the ring of events");
	*ret = m;
	m = NULL;
	return 0;
}

struct meter *meter_free(struct meter *m)
{
	if (!m)
		return NULL;
	ring_buffer__free(m->ring);
	meter_bpf__destroy(m->skel);
	free(m);
	return NULL;
}

/* ---- which cgroups ---- */

static bool is_any(const struct meter *m)
{
	for (unsigned i = 0; i < WEIR_METER_DEPTH; i++)
		if (m->at[i])
			return true;
	return false;
}

static void forget_all(int fd, void *key)
{
	while (bpf_map_get_next_key(fd, NULL, key) == 0 && bpf_map_delete_elem(fd, key) == 0)
		;
}

/* Of processes that ended while nothing was metered: nobody has taken theirs away, and their numbers are others' now. */
static void forget_ended(const struct meter *m)
{
	uint32_t process;
	uint64_t task;

	forget_all(bpf_map__fd(m->skel->maps.images), &process);
	forget_all(bpf_map__fd(m->skel->maps.ending), &task);
}

/* The programs look at depths that have one, and at no others. */
static void count_at(struct meter *m, unsigned level, int more)
{
	if (!is_any(m))
		forget_ended(m);
	m->at[level] = (unsigned)((int)m->at[level] + more);
	if (m->at[level])
		m->skel->bss->levels |= 1u << level;
	else
		m->skel->bss->levels &= ~(1u << level);
}

int meter_add(struct meter *m, uint64_t cgroup, unsigned level, struct err *e)
{
	const struct weir_meter zero = {0};

	if (level >= WEIR_METER_DEPTH)
		return err_set(e, ENOTSUP, LAYER, "a cgroup %u levels below the root: at most %d are looked at", level,
			       WEIR_METER_DEPTH - 1);
	if (bpf_map_update_elem(bpf_map__fd(m->skel->maps.meters), &cgroup, &zero, BPF_NOEXIST) < 0)
		return errno == E2BIG ? err_set(e, E2BIG, LAYER, "%d cgroups are metered already", WEIR_METERED_MAX)
				      : err_errno(e, errno, LAYER, "meter a cgroup");
	count_at(m, level, 1);
	return 0;
}

int meter_remove(struct meter *m, uint64_t cgroup, unsigned level)
{
	(void)bpf_map_delete_elem(bpf_map__fd(m->skel->maps.listed), &cgroup); /* there is none, most times */
	if (bpf_map_delete_elem(bpf_map__fd(m->skel->maps.meters), &cgroup) < 0)
		return -errno;
	count_at(m, level, -1);
	return 0;
}

int meter_reset(struct meter *m, uint64_t cgroup)
{
	const struct weir_meter zero = {0};

	(void)bpf_map_delete_elem(bpf_map__fd(m->skel->maps.listed), &cgroup);
	return bpf_map_update_elem(bpf_map__fd(m->skel->maps.meters), &cgroup, &zero, BPF_EXIST) < 0 ? -errno : 0;
}

int meter_renew(struct meter *m, uint64_t cgroup)
{
	struct weir_meter now;
	uint64_t most;

	if (bpf_map_lookup_elem(bpf_map__fd(m->skel->maps.meters), &cgroup, &now) < 0)
		return -errno;
	most = now.execs + WEIR_EXECS_PER_CGROUP;
	return bpf_map_update_elem(bpf_map__fd(m->skel->maps.listed), &cgroup, &most, BPF_ANY) < 0 ? -errno : 0;
}

/* ---- reading ---- */

int meter_read(const struct meter *m, uint64_t cgroup, bool now, struct weir_meter *ret, struct err *e)
{
	/* One of which nothing was found is not among those. */
	if (now && bpf_map_lookup_elem(bpf_map__fd(m->skel->maps.living), &cgroup, ret) == 0)
		return 0;
	if (bpf_map_lookup_elem(bpf_map__fd(m->skel->maps.meters), &cgroup, ret) < 0)
		return err_errno(e, errno, LAYER, "read what a cgroup has come to");
	return 0;
}

static void forget_living(const struct meter *m)
{
	uint64_t key;

	forget_all(bpf_map__fd(m->skel->maps.living), &key);
}

int meter_walk(struct meter *m, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	char nothing[WALK_BYTES];
	ssize_t n = -1;

	forget_living(m);
	fd = bpf_iter_create(bpf_link__fd(m->skel->links.weir_walk));
	if (fd < 0)
		return err_errno(e, errno, LAYER, "walk the host's tasks");
	for (int i = 0; i < WALK_PASSES && n != 0; i++) {
		n = read(fd, nothing, sizeof nothing);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			break;
	}
	return n < 0 ? err_errno(e, errno, LAYER, "walk the host's tasks") : 0;
}

int meter_settle(struct meter *m, struct err *e)
{
	LIBBPF_OPTS(bpf_test_run_opts, opts);

	forget_living(m);
	if (bpf_prog_test_run_opts(bpf_program__fd(m->skel->progs.weir_settle), &opts) < 0)
		return err_errno(e, errno, LAYER, "look at the tasks that have ended");
	return 0;
}

/* ---- events ---- */

int meter_ring_fd(const struct meter *m)
{
	return ring_buffer__epoll_fd(m->ring);
}

int meter_drain(struct meter *m, int budget, void (*cb)(void *ctx, const struct weir_meter_event *ev), void *ctx)
{
	int rc;

	if (budget <= 0)
		return 0;
	m->budget = budget;
	m->drained = 0;
	m->cb = cb;
	m->ctx = ctx;
	rc = ring_buffer__consume(m->ring);
	return rc < 0 && rc != -ECANCELED ? rc : m->drained;
}

int meter_stats(const struct meter *m, uint64_t ret[WEIR_METER_STAT_COUNT], struct err *e)
{
	const int cpus = libbpf_num_possible_cpus();
	_cleanup_free_ uint64_t *each = cpus > 0 ? calloc((size_t)cpus, sizeof *each) : NULL;

	if (!each)
		return err_set(e, ENOMEM, LAYER, "out of memory");
	for (uint32_t stat = 0; stat < WEIR_METER_STAT_COUNT; stat++) {
		if (bpf_map_lookup_elem(bpf_map__fd(m->skel->maps.meter_stats), &stat, each) < 0)
			return err_errno(e, errno, LAYER, "read what was lost");
		ret[stat] = 0;
		for (int cpu = 0; cpu < cpus; cpu++)
			ret[stat] += each[cpu];
	}
	return 0;
}

static uint32_t id_of(const struct bpf_program *program)
{
	struct bpf_prog_info info = {0};
	uint32_t len = sizeof info;

	return bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &len) < 0 ? 0 : info.id;
}

void meter_programs(const struct meter *m, uint32_t ret[METER_PROGRAMS])
{
	const struct bpf_program *const programs[METER_PROGRAMS] = {m->skel->progs.weir_exit,	m->skel->progs.weir_free,
								    m->skel->progs.weir_victim, m->skel->progs.weir_exec,
								    m->skel->progs.weir_walk,	m->skel->progs.weir_settle};

	for (size_t i = 0; i < METER_PROGRAMS; i++)
		ret[i] = id_of(programs[i]);
}
