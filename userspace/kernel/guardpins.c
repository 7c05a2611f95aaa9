/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/guardpins.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "core/cleanup.h"

#define LAYER "policy"
#define LINK_PIN "link_"

static int open_pin(const char *dir, const char *name)
{
	char path[PATH_MAX];
	int fd;

	if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
		return -ENAMETOOLONG;
	fd = bpf_obj_get(path);
	return fd < 0 ? -errno : fd;
}

/* What this version's programs and its user space take for granted of each map; 0: as whoever made it wanted. */
static const struct shape {
	const char *name;
	uint32_t key, value, entries;
} shapes[] = {
    {"sandboxes", sizeof(uint64_t), sizeof(struct weir_sandbox), 0},
    {"policies", sizeof(uint32_t), sizeof(struct weir_policy), WEIR_POLICIES_MAX},
    {"flows", sizeof(struct weir_flow_key), sizeof(struct weir_flow), 0},
    {"stats", sizeof(uint32_t), sizeof(uint64_t), WEIR_HOOK_COUNT *WEIR_STAT_COUNT},
    {"strangers", sizeof(uint32_t), sizeof(struct weir_sandbox), 1},
    {"renewed", sizeof(uint32_t), sizeof(struct weir_renewed), 1},
    {"images", sizeof(uint32_t), sizeof(struct weir_image), WEIR_IMAGES_MAX},
};

static bool is_of_shape(const char *name, const struct bpf_map_info *map)
{
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		const struct shape *s = &shapes[i];

		if (!strcmp(s->name, name))
			return map->key_size == s->key && map->value_size == s->value &&
			       (!s->entries || map->max_entries == s->entries);
	}
	return true; /* rings, and maps of maps */
}

/* A descriptor, or a negative errno. */
static int open_map(const char *dir, const char *name)
{
	_cleanup_fd_ int fd = open_pin(dir, name);
	struct bpf_map_info info = {0};
	uint32_t len = sizeof info;

	if (fd < 0)
		return fd;
	if (bpf_obj_get_info_by_fd(fd, &info, &len) < 0)
		return -errno;
	return is_of_shape(name, &info) ? TAKE_FD(fd) : -EPROTO;
}

int guardpins_open_map(int *ret, const char *pin_dir, const char *name, struct err *e)
{
	int fd = open_map(pin_dir, name);

	/* The ring of denials came later than the others. */
	if (fd == -EPROTO || (fd == -ENOENT && !strcmp(name, "denials") && guardpins_cgroup(pin_dir)))
		return err_set(e, EPROTO, LAYER,
			       "%s was pinned by another version of Weir (its map \"%s\"): it goes on judging, but its events "
			       "and counters can't be read; attach it anew with this version",
			       pin_dir, name);
	if (fd < 0)
		return err_errno(e, -fd, LAYER, "cannot open the pin %s/%s", pin_dir, name);
	*ret = fd;
	return 0;
}

bool guardpins_exist(const char *pin_dir)
{
	return access(pin_dir, F_OK) == 0;
}

static bool read_link(const char *dir, const char *name, struct bpf_link_info *ret)
{
	_cleanup_fd_ int fd = open_pin(dir, name);
	uint32_t len = sizeof *ret;

	*ret = (struct bpf_link_info){0};
	return fd >= 0 && bpf_obj_get_info_by_fd(fd, ret, &len) == 0 && ret->type == BPF_LINK_TYPE_CGROUP;
}

/* The next pin of a link; NULL at the end. */
static const char *next_link(DIR *d)
{
	struct dirent *de;

	while (d && (de = readdir(d)))
		if (!strncmp(de->d_name, LINK_PIN, sizeof LINK_PIN - 1))
			return de->d_name;
	return NULL;
}

uint64_t guardpins_cgroup(const char *pin_dir)
{
	_cleanup_dir_ DIR *d = opendir(pin_dir);
	struct bpf_link_info info;
	const char *name;
	uint64_t id = 0;

	while (!id && (name = next_link(d)))
		id = read_link(pin_dir, name, &info) ? info.cgroup.cgroup_id : 0; /* 0 once it is detached */
	return id;
}

void guardpins_programs(const char *pin_dir, uint32_t ret[GUARD_HOOKS])
{
	_cleanup_dir_ DIR *d = opendir(pin_dir);
	struct bpf_link_info info;
	const char *name;
	size_t n = 0;

	memset(ret, 0, GUARD_HOOKS * sizeof *ret);
	while (n < GUARD_HOOKS && (name = next_link(d)))
		if (read_link(pin_dir, name, &info))
			ret[n++] = info.prog_id;
}

static bool look_up(const char *dir, const char *map, const void *key, void *ret)
{
	_cleanup_fd_ int fd = open_map(dir, map);

	return fd >= 0 && bpf_map_lookup_elem(fd, key, ret) == 0;
}

int guardpins_sum_stats(int map, uint64_t ret[WEIR_HOOK_COUNT][WEIR_STAT_COUNT], struct err *e)
{
	int cpus = libbpf_num_possible_cpus();
	_cleanup_free_ uint64_t *each = cpus > 0 ? calloc((size_t)cpus, sizeof *each) : NULL;
	uint64_t sums[WEIR_HOOK_COUNT][WEIR_STAT_COUNT] = {0};

	if (!each)
		return err_set(e, cpus < 0 ? -cpus : ENOMEM, LAYER, "cannot hold a counter for each CPU");
	for (uint32_t at = 0; at < WEIR_HOOK_COUNT * WEIR_STAT_COUNT; at++) {
		if (bpf_map_lookup_elem(map, &at, each) < 0)
			return err_errno(e, errno, LAYER, "cannot read counter %u", at);
		for (int cpu = 0; cpu < cpus; cpu++)
			sums[at / WEIR_STAT_COUNT][at % WEIR_STAT_COUNT] += each[cpu];
	}
	memcpy(ret, sums, sizeof sums);
	return 0;
}

static bool read_stats(const char *dir, uint64_t ret[WEIR_STAT_COUNT])
{
	_cleanup_fd_ int fd = open_map(dir, "stats");
	uint64_t by_hook[WEIR_HOOK_COUNT][WEIR_STAT_COUNT] = {{0}};

	if (fd < 0 || guardpins_sum_stats(fd, by_hook, NULL) < 0)
		return false;
	for (size_t at = 0; at < WEIR_HOOK_COUNT * WEIR_STAT_COUNT; at++)
		ret[at % WEIR_STAT_COUNT] += by_hook[at / WEIR_STAT_COUNT][at % WEIR_STAT_COUNT];
	return true;
}

void guardpins_read(const char *pin_dir, uint64_t cgroup, struct guardpins *ret)
{
	_cleanup_fd_ int sandboxes = open_map(pin_dir, "sandboxes");
	const uint32_t first = 0;

	*ret = (struct guardpins){0};
	if (sandboxes >= 0) {
		ret->has_entry = bpf_map_lookup_elem(sandboxes, &cgroup, &ret->entry) == 0;
		ret->no_entry = !ret->has_entry && errno == ENOENT;
	}
	ret->has_unknown = look_up(pin_dir, "strangers", &first, &ret->unknown);
	ret->has_slot = look_up(pin_dir, "policies", &first, &ret->slot);
	ret->has_stats = read_stats(pin_dir, ret->stats);
}

int guardpins_give_leave(const char *pin_dir, uint64_t cgroup, struct err *e)
{
	_cleanup_fd_ int fd = open_map(pin_dir, "sandboxes");
	struct weir_sandbox sb = {.flags = WEIR_SB_BELOW};
	struct timespec now;

	if (fd < 0)
		return err_errno(e, -fd, LAYER, "cannot open the pin %s/sandboxes", pin_dir);
	clock_gettime(CLOCK_BOOTTIME, &now);
	sb.epoch = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	if (bpf_map_update_elem(fd, &cgroup, &sb, BPF_ANY) < 0)
		return err_errno(e, errno, LAYER, "cannot enter the cgroup at its parent");
	return 0;
}

/* Only what gives leave: an entry with a policy is nothing of ours to take. */
static int take_leave(int map, uint64_t cgroup)
{
	struct weir_sandbox sb;

	if (bpf_map_lookup_elem(map, &cgroup, &sb) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!(sb.flags & WEIR_SB_BELOW) || bpf_map_delete_elem(map, &cgroup) == 0 || errno == ENOENT)
		return 0;
	return -errno;
}

int guardpins_take_leave(const char *pin_dir, uint64_t cgroup, struct err *e)
{
	_cleanup_fd_ int fd = open_map(pin_dir, "sandboxes");
	int rc;

	if (fd == -ENOENT && !guardpins_cgroup(pin_dir))
		return 0;
	rc = fd < 0 ? fd : take_leave(fd, cgroup);
	return rc < 0 ? err_errno(e, -rc, LAYER, "cannot take the cgroup's leave at its parent (%s/sandboxes)", pin_dir) : 0;
}

unsigned guardpins_prune_leave(const char *pin_dir, bool (*judged)(void *ctx, uint64_t cgroup), void *ctx)
{
	_cleanup_fd_ int fd = open_map(pin_dir, "sandboxes");
	uint64_t key = 0, next = 0;
	unsigned taken = 0;
	bool more = fd >= 0 && bpf_map_get_next_key(fd, NULL, &key) == 0;

	/* The successor is asked for while the key is still there: after a deletion the walk would start again. */
	while (more) {
		struct weir_sandbox sb;

		more = bpf_map_get_next_key(fd, &key, &next) == 0;
		if (bpf_map_lookup_elem(fd, &key, &sb) == 0 && (sb.flags & WEIR_SB_BELOW) && !judged(ctx, key) &&
		    take_leave(fd, key) == 0)
			taken++;
		key = next;
	}
	return taken;
}
