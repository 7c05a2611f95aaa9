/* SPDX-License-Identifier: Apache-2.0 */
/* What is written to a guard's maps and read from them. */
#include "kernel/guard_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <bpf/bpf.h>

#include "core/cleanup.h"
#include "kernel/guardpins.h"

void guard_set_unknown(struct guard *g, bool pass)
{
	__atomic_store_n(&g->strangers->flags, pass ? WEIR_SB_PASS_UNKNOWN : 0, __ATOMIC_RELEASE);
}

bool guard_get_unknown(const struct guard *g, struct weir_sandbox *ret_account)
{
	if (ret_account)
		*ret_account = *g->strangers;
	return __atomic_load_n(&g->strangers->flags, __ATOMIC_ACQUIRE) & WEIR_SB_PASS_UNKNOWN;
}

/* ---- policies and sandboxes ---- */

static struct weir_policy read_slot(const struct guard *g, uint32_t id)
{
	struct weir_policy p;
	uint64_t both = __atomic_load_n((const uint64_t *)(const void *)&g->policies[id], __ATOMIC_ACQUIRE);

	memcpy(&p, &both, sizeof p);
	return p;
}

/* One store of eight bytes: no program sees half of it. */
static void write_slot(struct guard *g, uint32_t id, struct weir_policy p)
{
	uint64_t both;

	memcpy(&both, &p, sizeof both);
	__atomic_store_n((uint64_t *)(void *)&g->policies[id], both, __ATOMIC_RELEASE);
}

/* A number that no slot names. There are twice as many images as slots, so there always is one. */
static uint32_t free_image(const struct guard *g)
{
	bool used[WEIR_IMAGES_MAX] = {true};
	uint32_t id, image;

	for (id = 0; id < WEIR_POLICIES_MAX; id++)
		used[read_slot(g, id).image % WEIR_IMAGES_MAX] = true;
	for (image = 1; used[image]; image++)
		;
	return image;
}

static int fill_map(int fd, const void *keys, const void *values, uint32_t count, const char *what, struct err *e)
{
	LIBBPF_OPTS(bpf_map_batch_opts, opts, .elem_flags = BPF_ANY);
	uint32_t done = count;

	if (bpf_map_update_batch(fd, keys, values, &done, &opts) < 0)
		return err_errno(e, errno, LAYER, "writing the policy's %s failed after %u of %u", what, done, count);
	return 0;
}

static int make_trie(const struct policy_image *img, int *ret, struct err *e)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_NO_PREALLOC);
	_cleanup_fd_ int fd = bpf_map_create(BPF_MAP_TYPE_LPM_TRIE, "weir_trie", sizeof(struct weir_prefix), sizeof(uint32_t),
					     (uint32_t)img->prefix_count, &opts);
	int rc;

	if (fd < 0)
		return err_errno(e, errno, LAYER, "cannot make the policy's prefix trie");
	rc = fill_map(fd, img->prefixes, img->list_of, (uint32_t)img->prefix_count, "prefixes", e);
	if (rc == 0)
		*ret = TAKE_FD(fd);
	return rc;
}

static int make_lists(const struct policy_image *img, int *ret, struct err *e)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_INNER_MAP);
	uint32_t count = (uint32_t)img->list_count, i;
	_cleanup_fd_ int fd =
	    bpf_map_create(BPF_MAP_TYPE_ARRAY, "weir_lists", sizeof(uint32_t), sizeof(struct weir_list), count, &opts);
	_cleanup_free_ uint32_t *keys = malloc(count * sizeof *keys);
	int rc;

	if (fd < 0)
		return err_errno(e, errno, LAYER, "cannot make the policy's rule lists");
	if (!keys)
		return err_set(e, ENOMEM, LAYER, "out of memory");
	for (i = 0; i < count; i++)
		keys[i] = i;
	rc = fill_map(fd, keys, img->lists, count, "rules", e);
	if (rc == 0)
		*ret = TAKE_FD(fd);
	return rc;
}

/* Writes the parts under a number that nothing names yet. */
static int write_image(struct guard *g, uint32_t image, const struct policy_image *img, struct err *e)
{
	_cleanup_fd_ int trie = -1, lists = -1;
	int rc = make_trie(img, &trie, e);

	if (rc == 0)
		rc = make_lists(img, &lists, e);
	if (rc < 0)
		return rc;
	if (bpf_map_update_elem(g->maps[MAP_TRIES], &image, &trie, BPF_ANY) < 0 ||
	    bpf_map_update_elem(g->maps[MAP_LISTS], &image, &lists, BPF_ANY) < 0 ||
	    bpf_map_update_elem(g->maps[MAP_IMAGES], &image, &img->head, BPF_ANY) < 0)
		return err_errno(e, errno, LAYER, "cannot write image %u", image);
	return 0;
}

/* Takes an image's parts away. What can't be removed now is overwritten when the number is used again. */
static void clear_image(struct guard *g, uint32_t image)
{
	const struct weir_image none = {0};

	bpf_map_update_elem(g->maps[MAP_IMAGES], &image, &none, BPF_ANY);
	bpf_map_delete_elem(g->maps[MAP_TRIES], &image);
	bpf_map_delete_elem(g->maps[MAP_LISTS], &image);
}

/*
 * Points slot `id` at `image`, waits until no program that has read the old number still runs, and lets go of the old image.
 * The kernel waits for just that when a map in a map is written: so the place 0, which no program asks for, is. Should it
 * refuse, the old image keeps its memory; the new one is in force all the same.
 */
static int swap_slot(struct guard *g, uint32_t id, uint32_t image, uint32_t generation, struct err *e)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_NO_PREALLOC);
	struct weir_policy old = read_slot(g, id), next = {.image = image, .generation = generation};
	_cleanup_fd_ int any = -1;
	uint32_t zero = 0;

	any = bpf_map_create(BPF_MAP_TYPE_LPM_TRIE, "weir_wait", sizeof(struct weir_prefix), sizeof(uint32_t), 1, &opts);
	if (any < 0)
		return err_errno(e, errno, LAYER, "no memory to swap the policy in");
	write_slot(g, id, next);
	if (!old.image)
		return 0;
	if (bpf_map_update_elem(g->maps[MAP_TRIES], &zero, &any, BPF_ANY) == 0)
		clear_image(g, old.image);
	bpf_map_delete_elem(g->maps[MAP_TRIES], &zero);
	return 0;
}

static int put_policy(struct guard *g, uint32_t id, const struct policy_image *img, uint32_t generation, struct err *e)
{
	uint32_t image = free_image(g);
	int rc = write_image(g, image, img, e);

	if (rc == 0)
		rc = swap_slot(g, id, image, generation, e);
	if (rc < 0)
		clear_image(g, image);
	return rc;
}

static int check_slot(uint32_t id, struct err *e)
{
	return id < WEIR_POLICIES_MAX ? 0 : err_set(e, EINVAL, LAYER, "policy slot %u: there are %d", id, WEIR_POLICIES_MAX);
}

int guard_set_policy(struct guard *g, uint32_t id, const struct policy_image *img, uint32_t *ret_generation, struct err *e)
{
	uint32_t generation;
	int rc = check_slot(id, e);

	if (rc < 0)
		return rc;
	generation = read_slot(g, id).generation + 1;
	rc = put_policy(g, id, img, generation, e);
	if (rc == 0 && ret_generation)
		*ret_generation = generation;
	return rc;
}

int guard_renew_policy(struct guard *g, uint32_t id, const struct policy_image *img, struct err *e)
{
	int rc = check_slot(id, e);

	if (rc < 0)
		return rc;
	if (!read_slot(g, id).image)
		return err_set(e, ENOENT, LAYER, "policy slot %u is empty", id);
	return put_policy(g, id, img, read_slot(g, id).generation, e);
}

uint32_t guard_get_generation(const struct guard *g, uint32_t id)
{
	return id < WEIR_POLICIES_MAX ? read_slot(g, id).generation : 0;
}

int guard_del_policy(struct guard *g, uint32_t id, struct err *e)
{
	int rc = check_slot(id, e);
	struct weir_policy old;

	if (rc < 0)
		return rc;
	old = read_slot(g, id);
	return old.image ? swap_slot(g, id, 0, old.generation + 1, e) : 0;
}

/* The entry's flows so far count no more. */
static void renew(struct guard *g, const struct weir_sandbox *sb)
{
	if (g->sandboxes_max != 1)
		return;
	__atomic_store_n(&g->renewed->flows, sb->flows, __ATOMIC_RELEASE);
	__atomic_store_n(&g->renewed->inbound_flows, sb->inbound_flows, __ATOMIC_RELEASE);
}

uint64_t guard_taken_flows(const struct guard *g, const struct weir_sandbox *sb)
{
	return sb->flows - __atomic_load_n(&g->renewed->flows, __ATOMIC_ACQUIRE);
}

uint64_t guard_taken_inbound(const struct guard *g, const struct weir_sandbox *sb)
{
	return sb->inbound_flows - __atomic_load_n(&g->renewed->inbound_flows, __ATOMIC_ACQUIRE);
}

int guard_set_sandbox(struct guard *g, uint64_t cgroup, uint32_t policy, uint32_t flags, struct err *e)
{
	struct weir_sandbox sb = {.policy = policy, .flags = flags};
	struct timespec now;

	if (policy >= WEIR_POLICIES_MAX)
		return err_set(e, EINVAL, LAYER, "policy slot %u: there are %d", policy, WEIR_POLICIES_MAX);
	/* Any number that no earlier entry of this cgroup had. */
	clock_gettime(CLOCK_BOOTTIME, &now);
	sb.epoch = (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
	if (bpf_map_update_elem(g->maps[MAP_SANDBOXES], &cgroup, &sb, BPF_ANY) == 0) {
		renew(g, &sb);
		return 0;
	}
	if (errno == E2BIG)
		return err_set(e, ENOSPC, LAYER, "%u cgroups are governed already", g->sandboxes_max);
	return err_errno(e, errno, LAYER, "cannot enter the cgroup");
}

int guard_get_sandbox(const struct guard *g, uint64_t cgroup, struct weir_sandbox *ret, struct err *e)
{
	struct weir_sandbox sb;

	if (bpf_map_lookup_elem(g->maps[MAP_SANDBOXES], &cgroup, &sb) < 0)
		return err_errno(e, errno, LAYER, "cannot read the cgroup's entry");
	*ret = sb;
	return 0;
}

int guard_del_sandbox(struct guard *g, uint64_t cgroup, struct err *e)
{
	if (bpf_map_delete_elem(g->maps[MAP_SANDBOXES], &cgroup) < 0)
		return err_errno(e, errno, LAYER, "cannot remove the cgroup's entry");
	return 0;
}

int guard_renew_flows(struct guard *g, uint64_t cgroup, struct err *e)
{
	struct weir_sandbox sb = {0};
	int rc = guard_get_sandbox(g, cgroup, &sb, e);

	if (rc < 0 || (!sb.flows && !sb.inbound_flows))
		return rc;
	if (g->sandboxes_max == 1) {
		renew(g, &sb);
		return 0;
	}
	sb.flows = sb.inbound_flows = 0;
	if (bpf_map_update_elem(g->maps[MAP_SANDBOXES], &cgroup, &sb, BPF_EXIST) < 0)
		return err_errno(e, errno, LAYER, "cannot renew the cgroup's entry");
	return 0;
}

/* ---- flows and events ---- */

int guard_get_flow(const struct guard *g, const struct weir_flow_key *key, struct weir_flow *ret)
{
	struct weir_flow f;

	if (bpf_map_lookup_elem(g->maps[MAP_FLOWS], key, &f) < 0)
		return -errno;
	*ret = f;
	return 0;
}

/* Cgroups without an entry share one allowance; what is swept can be used again. */
static void give_place_back(struct guard *g, const struct weir_flow_key *key)
{
	if (key->reason == WEIR_REASON_NO_ENTRY)
		__atomic_fetch_sub(key->hook == WEIR_HOOK_INGRESS ? &g->strangers->inbound_flows : &g->strangers->flows, 1,
				   __ATOMIC_RELAXED);
}

int guard_del_flow(struct guard *g, const struct weir_flow_key *key)
{
	if (bpf_map_delete_elem(g->maps[MAP_FLOWS], key) < 0)
		return -errno;
	give_place_back(g, key);
	return 0;
}

int guard_take_flow(struct guard *g, const struct weir_flow_key *key, struct weir_flow *ret)
{
	struct weir_flow f;

	if (bpf_map_lookup_and_delete_elem(g->maps[MAP_FLOWS], key, &f) < 0)
		return -errno;
	give_place_back(g, key);
	*ret = f;
	return 0;
}

void guard_walk_flows(const struct guard *g,
		      void (*cb)(void *ctx, const struct weir_flow_key *key, const struct weir_flow *flow), void *ctx)
{
	struct weir_flow_key key, *previous = NULL;
	struct weir_flow flow;

	while (bpf_map_get_next_key(g->maps[MAP_FLOWS], previous, &key) == 0) {
		if (guard_get_flow(g, &key, &flow) == 0)
			cb(ctx, &key, &flow);
		previous = &key;
	}
}

int guard_sweep_flows(struct guard *g, uint64_t cgroup)
{
	struct weir_flow_key key, next;
	int swept = 0, more = bpf_map_get_next_key(g->maps[MAP_FLOWS], NULL, &key) == 0;

	/* The successor is asked for while the key is still there: after a deletion the walk would start again. */
	while (more) {
		more = bpf_map_get_next_key(g->maps[MAP_FLOWS], &key, &next) == 0;
		if (key.cgroup == cgroup && guard_del_flow(g, &key) == 0)
			swept++;
		key = next;
	}
	return swept;
}

/* The first event with nothing left of the budget stays; libbpf counts one as taken when its callback has it. */
static int on_event(void *ctx, void *data, size_t size)
{
	struct guard *g = ctx;

	if (size == sizeof(struct weir_event))
		g->cb(g->ctx, data);
	return ++g->drained < g->budget ? 0 : -ECANCELED;
}

/* libbpf empties them in the order in which they were added. */
int guard_open_rings(struct guard *g, struct err *e)
{
	int rc;

	g->rings = ring_buffer__new(g->maps[MAP_DENIALS], on_event, g, NULL);
	if (!g->rings)
		return err_errno(e, errno, LAYER, "cannot map the ring of denials");
	rc = ring_buffer__add(g->rings, g->maps[MAP_EVENTS], on_event, g);
	return rc < 0 ? err_errno(e, -rc, LAYER, "cannot map the ring of events") : 0;
}

int guard_ring_fd(const struct guard *g)
{
	return ring_buffer__epoll_fd(g->rings);
}

int guard_drain(struct guard *g, int budget, void (*cb)(void *ctx, const struct weir_event *ev), void *ctx)
{
	int rc;

	if (budget <= 0)
		return 0;
	g->budget = budget;
	g->drained = 0;
	g->cb = cb;
	g->ctx = ctx;
	rc = ring_buffer__consume(g->rings);
	return rc < 0 && rc != -ECANCELED ? rc : g->drained;
}

int guard_stats_by_hook(const struct guard *g, uint64_t ret[WEIR_HOOK_COUNT][WEIR_STAT_COUNT], struct err *e)
{
	return guardpins_sum_stats(g->maps[MAP_STATS], ret, e);
}

int guard_stats(const struct guard *g, uint64_t ret[WEIR_STAT_COUNT], struct err *e)
{
	uint64_t by_hook[WEIR_HOOK_COUNT][WEIR_STAT_COUNT];
	int rc = guard_stats_by_hook(g, by_hook, e);

	if (rc < 0)
		return rc;
	memset(ret, 0, WEIR_STAT_COUNT * sizeof *ret);
	for (size_t hook = 0; hook < WEIR_HOOK_COUNT; hook++)
		for (size_t stat = 0; stat < WEIR_STAT_COUNT; stat++)
			ret[stat] += by_hook[hook][stat];
	return 0;
}
