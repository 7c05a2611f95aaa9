/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "core/cleanup.h"
#include "guard.skel.h"
#include "kernel/cgroupid.h"

#define LAYER "policy"
#define BPFFS "/sys/fs/bpf"
#define BPFFS_MAGIC 0xcafe4a11L
/* With more programs than this on one hook, guard_verify() could miss ours; it fails then. */
#define EFFECTIVE_MAX 64
/* A guard for few cgroups has room for what they may list, and as much again for what nobody has read yet. */
#define FLOWS_FOR(cgroups) (2U * ((cgroups) + 1U) * (WEIR_FLOWS_PER_SANDBOX + WEIR_INBOUND_FLOWS_PER_SANDBOX))
/* Before 6.4 a verifier log that does not fit hides the reason behind ENOSPC. Untouched pages cost nothing. */
#define VERIFIER_LOG_BYTES (16UL << 20)

/* What is attached where, and the name of each link's pin. Release comes first: no socket is counted that it would miss. */
static const struct hook {
	const char *prog;
	const char *pin;
	enum bpf_attach_type type;
} hooks[] = {
    {"weir_release", "link_release", BPF_CGROUP_INET_SOCK_RELEASE},
    {"weir_connect4", "link_connect4", BPF_CGROUP_INET4_CONNECT},
    {"weir_connect6", "link_connect6", BPF_CGROUP_INET6_CONNECT},
    {"weir_sendmsg4", "link_sendmsg4", BPF_CGROUP_UDP4_SENDMSG},
    {"weir_sendmsg6", "link_sendmsg6", BPF_CGROUP_UDP6_SENDMSG},
    {"weir_egress", "link_egress", BPF_CGROUP_INET_EGRESS},
    {"weir_ingress", "link_ingress", BPF_CGROUP_INET_INGRESS},
    {"weir_setsockopt", "link_setsockopt", BPF_CGROUP_SETSOCKOPT},
};
#define HOOKS (sizeof hooks / sizeof *hooks)
#define LINK_PIN "link_" /* a hook's name follows */
_Static_assert(HOOKS == GUARD_HOOKS, "a caller has room for each");

enum map_index {
	MAP_SANDBOXES,
	MAP_POLICIES,
	MAP_FLOWS,
	MAP_EVENTS,
	MAP_STATS,
	MAP_STRANGERS,
	MAP_RENEWED,
	MAP_IMAGES,
	MAP_TRIES,
	MAP_LISTS,
	MAPS
};

/* Pinned under the same names. The others (settings, socket storage) live as long as the programs do. */
static const char *const map_names[MAPS] = {"sandboxes", "policies", "flows",  "events", "stats",
					    "strangers", "renewed",  "images", "tries",	 "lists"};

/* The kernel maps whole pages. */
#define POLICIES_BYTES (WEIR_POLICIES_MAX * sizeof(struct weir_policy))
_Static_assert(POLICIES_BYTES <= 4096, "the slots are mapped as one page");

struct guard {
	int maps[MAPS];
	int links[HOOKS];
	uint32_t prog_ids[HOOKS];
	uint32_t sandboxes_max;
	struct ring_buffer *ring;
	struct weir_sandbox *strangers; /* shared with the kernel programs */
	struct weir_renewed *renewed;	/* likewise */
	struct weir_policy *policies;	/* likewise: the slots */
	/* Of the drain that is running. */
	int budget;
	int drained;
	void (*cb)(void *ctx, const struct weir_event *ev);
	void *ctx;
};

/* ---- loading: libbpf is quiet, its last words explain a failure ---- */

static char last_words[192];

__attribute__((format(printf, 2, 0))) static int hear(enum libbpf_print_level lvl, const char *fmt, va_list ap)
{
	if (lvl == LIBBPF_WARN) {
		vsnprintf(last_words, sizeof last_words, fmt, ap);
		last_words[strcspn(last_words, "\n")] = '\0';
	}
	return 0;
}

/* The verifier says why on its last line but the statistics. Cuts `log` up; "" when it holds nothing. */
static const char *verdict_line(char *log)
{
	const char *why = "";
	char *save, *line;

	for (line = strtok_r(log, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (!strncmp(line, "processed ", 10) || !strncmp(line, "verification time", 17) ||
		    !strncmp(line, "stack depth", 11))
			continue;
		why = line;
	}
	return why;
}

static int open_programs(struct guard_bpf **ret, char *log, struct err *e)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .kernel_log_buf = log, .kernel_log_size = VERIFIER_LOG_BYTES);

	last_words[0] = log[0] = '\0';
	libbpf_set_print(hear);
	*ret = guard_bpf__open_opts(&opts);
	return *ret ? 0 : err_set(e, errno ? errno : EIO, LAYER, "opening the kernel programs failed (%s)", last_words);
}

/*
 * Everything the programs are told before they are verified; also of a probe, so that it loads what guard_create() would. A
 * cgroup that is governed as a whole is its own and only sandbox: root and sandbox are one.
 */
static int configure(struct guard_bpf *s, const struct guard_opts *opts, uint64_t root, struct err *e)
{
	uint64_t key[2];

	if (getrandom(key, sizeof key, 0) != sizeof key)
		return err_errno(e, errno, LAYER, "no random key");
	s->rodata->level = opts->level;
	s->rodata->root_level = opts->whole ? opts->level : opts->level - 1;
	s->rodata->root_cgroup = root;
	s->rodata->name_key[0] = key[0];
	s->rodata->name_key[1] = key[1];
	return 0;
}

/* How many, when it is not what bpf/maps.bpf.h says. */
static int size_maps(struct guard_bpf *s, const struct guard_opts *opts, struct err *e)
{
	const uint32_t cgroups = opts->sandboxes_max;
	const uint32_t flows = FLOWS_FOR(cgroups) < WEIR_FLOWS_MAX ? FLOWS_FOR(cgroups) : WEIR_FLOWS_MAX;

	if (cgroups &&
	    (bpf_map__set_max_entries(s->maps.sandboxes, cgroups) < 0 || bpf_map__set_max_entries(s->maps.flows, flows) < 0))
		return err_errno(e, errno, LAYER, "cannot size the maps for %u cgroups", cgroups);
	if (opts->ring_bytes && bpf_map__set_max_entries(s->maps.events, opts->ring_bytes) < 0)
		return err_errno(e, errno, LAYER, "cannot make the ring of events %u bytes long", opts->ring_bytes);
	return 0;
}

static int check_sizes(const struct guard_opts *opts, struct err *e)
{
	const uint32_t ring = opts->ring_bytes;

	if (opts->sandboxes_max > WEIR_SANDBOXES_MAX)
		return err_set(e, EINVAL, LAYER, "%u cgroups: one guard has room for %d at most", opts->sandboxes_max,
			       WEIR_SANDBOXES_MAX);
	if (ring && (ring & (ring - 1) || ring % (uint32_t)sysconf(_SC_PAGESIZE)))
		return err_set(e, EINVAL, LAYER, "a ring of %u bytes: it must be a power of two, and whole pages", ring);
	return 0;
}

static int load(struct guard_bpf *s, char *log, struct err *e)
{
	int rc = guard_bpf__load(s);
	const char *why;

	if (!rc)
		return 0;
	why = verdict_line(log);
	return err_errno(e, -rc, LAYER, "the kernel refused a program (%s)", *why ? why : last_words);
}

/* ---- pins ---- */

static int pin_path(char ret[PATH_MAX], const char *dir, const char *name, struct err *e)
{
	if (snprintf(ret, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
		return err_set(e, ENAMETOOLONG, LAYER, "the pin directory's name is too long");
	return 0;
}

static int is_bpffs(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) == 0 && (unsigned long)fs.f_type == BPFFS_MAGIC;
}

static int make_parents(const char *dir, struct err *e)
{
	char path[PATH_MAX], *p;

	if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path)
		return err_set(e, ENAMETOOLONG, LAYER, "the pin directory's name is too long");
	for (p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		if (mkdir(path, 0700) < 0 && errno != EEXIST)
			return err_errno(e, errno, LAYER, "cannot make %s", path);
		*p = '/';
	}
	return 0;
}

static int make_pin_dir(const char *dir, struct err *e)
{
	int rc;

	if (!strncmp(dir, BPFFS "/", sizeof BPFFS) && !is_bpffs(BPFFS) &&
	    mount("bpf", BPFFS, "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700") < 0)
		return err_errno(e, errno, LAYER, "mounting a bpf file system at %s failed; mount one there", BPFFS);
	rc = make_parents(dir, e);
	if (rc < 0)
		return rc;
	if (mkdir(dir, 0700) < 0)
		return err_errno(e, errno, LAYER, "cannot make the pin directory %s", dir);
	if (!is_bpffs(dir)) {
		rmdir(dir);
		return err_set(e, EINVAL, LAYER, "%s is not on a bpf file system: nothing can be pinned there", dir);
	}
	return 0;
}

static int pin(int fd, const char *dir, const char *name, struct err *e)
{
	char path[PATH_MAX];
	int rc = pin_path(path, dir, name, e);

	if (rc < 0)
		return rc;
	if (bpf_obj_pin(fd, path) < 0)
		return err_errno(e, errno, LAYER, "pinning %s failed", path);
	return 0;
}

int guard_unpin(const char *pin_dir, struct err *e)
{
	_cleanup_dir_ DIR *d = opendir(pin_dir);
	struct dirent *de;

	if (!d)
		return errno == ENOENT ? 0 : err_errno(e, errno, LAYER, "cannot open %s", pin_dir);
	while ((de = readdir(d))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if (unlinkat(dirfd(d), de->d_name, 0) < 0 && errno != ENOENT)
			return err_errno(e, errno, LAYER, "cannot remove the pin %s/%s", pin_dir, de->d_name);
	}
	if (rmdir(pin_dir) < 0 && errno != ENOENT)
		return err_errno(e, errno, LAYER, "cannot remove %s", pin_dir);
	return 0;
}

/* ---- life ---- */

static struct guard *guard_new(struct err *e)
{
	struct guard *g = calloc(1, sizeof *g);
	size_t i;

	if (!g) {
		err_set(e, ENOMEM, LAYER, "out of memory");
		return NULL;
	}
	for (i = 0; i < MAPS; i++)
		g->maps[i] = -1;
	for (i = 0; i < HOOKS; i++)
		g->links[i] = -1;
	return g;
}

struct guard *guard_free(struct guard *g)
{
	size_t i;

	if (!g)
		return NULL;
	ring_buffer__free(g->ring);
	if (g->strangers)
		munmap(g->strangers, (size_t)sysconf(_SC_PAGESIZE));
	if (g->renewed)
		munmap(g->renewed, (size_t)sysconf(_SC_PAGESIZE));
	if (g->policies)
		munmap(g->policies, POLICIES_BYTES);
	for (i = 0; i < MAPS; i++)
		cleanup_fdp(&g->maps[i]);
	for (i = 0; i < HOOKS; i++)
		cleanup_fdp(&g->links[i]);
	free(g);
	return NULL;
}

static void cleanup_guardp(struct guard **g)
{
	guard_free(*g);
}
#define _cleanup_guard_ __attribute__((cleanup(cleanup_guardp)))

/* The first event with nothing left of the budget stays; libbpf counts one as taken when its callback has it. */
static int on_event(void *ctx, void *data, size_t size)
{
	struct guard *g = ctx;

	if (size >= sizeof(struct weir_event))
		g->cb(g->ctx, data);
	return ++g->drained < g->budget ? 0 : -ECANCELED;
}

/* Of the link behind `fd`; what is no link of this hook's kind is none. */
static int read_link(int fd, size_t hook, struct bpf_link_info *ret)
{
	struct bpf_link_info info = {0};
	uint32_t len = sizeof info;

	if (bpf_obj_get_info_by_fd(fd, &info, &len) < 0)
		return -errno;
	if (info.type != BPF_LINK_TYPE_CGROUP || info.cgroup.attach_type != hooks[hook].type)
		return -EINVAL;
	*ret = info;
	return 0;
}

/* Of a map that the programs and we write. NULL on failure. */
static void *map_shared(const struct guard *g, enum map_index map, size_t bytes, struct err *e)
{
	void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g->maps[map], 0);

	if (shared != MAP_FAILED)
		return shared;
	err_errno(e, errno, LAYER, "cannot map \"%s\"", map_names[map]);
	return NULL;
}

/* With the maps open: what writing policies and reading events needs. */
static int open_maps(struct guard *g, struct err *e)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct bpf_map_info info = {0};
	uint32_t len = sizeof info;

	if (bpf_obj_get_info_by_fd(g->maps[MAP_SANDBOXES], &info, &len) < 0)
		return err_errno(e, errno, LAYER, "cannot read the size of the map of cgroups");
	g->sandboxes_max = info.max_entries;
	g->strangers = map_shared(g, MAP_STRANGERS, page, e);
	g->renewed = g->strangers ? map_shared(g, MAP_RENEWED, page, e) : NULL;
	g->policies = g->renewed ? map_shared(g, MAP_POLICIES, POLICIES_BYTES, e) : NULL;
	if (!g->policies)
		return -ENOMEM;
	g->ring = ring_buffer__new(g->maps[MAP_EVENTS], on_event, g, NULL);
	if (!g->ring)
		return err_errno(e, errno, LAYER, "cannot map the ring of events");
	return 0;
}

/* With the links open. */
static int read_programs(struct guard *g, struct err *e)
{
	size_t i;

	for (i = 0; i < HOOKS; i++) {
		struct bpf_link_info link = {0};
		int rc = read_link(g->links[i], i, &link);

		if (rc < 0)
			return err_errno(e, -rc, LAYER, "cannot read the link of %s", hooks[i].prog);
		g->prog_ids[i] = link.prog_id;
	}
	return 0;
}

static int keep_maps(struct guard *g, const struct guard_bpf *s, struct err *e)
{
	size_t i;

	for (i = 0; i < MAPS; i++) {
		g->maps[i] = fcntl(bpf_object__find_map_fd_by_name(s->obj, map_names[i]), F_DUPFD_CLOEXEC, 3);
		if (g->maps[i] < 0)
			return err_errno(e, errno, LAYER, "map %s", map_names[i]);
	}
	return 0;
}

static int attach(struct guard *g, const struct guard_bpf *s, int cgroup_fd, struct err *e)
{
	size_t i;

	for (i = 0; i < HOOKS; i++) {
		int prog = bpf_program__fd(bpf_object__find_program_by_name(s->obj, hooks[i].prog));

		g->links[i] = bpf_link_create(prog, cgroup_fd, hooks[i].type, NULL);
		if (g->links[i] < 0)
			return err_errno(e, errno, LAYER, "attaching %s to the cgroup failed", hooks[i].prog);
	}
	return 0;
}

static int pin_all(const struct guard *g, const char *dir, struct err *e)
{
	size_t i;
	int rc = 0;

	for (i = 0; i < MAPS && rc == 0; i++)
		rc = pin(g->maps[i], dir, map_names[i], e);
	for (i = 0; i < HOOKS && rc == 0; i++)
		rc = pin(g->links[i], dir, hooks[i].pin, e);
	return rc;
}

/* Into a pin directory that is ours already. */
static int create_in(struct guard *g, const struct guard_opts *opts, struct err *e)
{
	_cleanup_free_ char *log = malloc(VERIFIER_LOG_BYTES);
	uint64_t root = cgroup_id_of(opts->cgroup_fd);
	struct guard_bpf *s;
	int rc;

	if (!log)
		return err_set(e, ENOMEM, LAYER, "out of memory");
	if (!root || opts->level < 1)
		return err_set(e, EINVAL, LAYER, "the programs need a cgroup of version 2, below its root, to be attached to");
	rc = open_programs(&s, log, e);
	if (rc < 0)
		return rc;
	rc = configure(s, opts, root, e);
	if (rc == 0)
		rc = size_maps(s, opts, e);
	if (rc == 0)
		rc = load(s, log, e);
	if (rc == 0)
		rc = keep_maps(g, s, e);
	if (rc == 0)
		rc = open_maps(g, e);
	if (rc == 0 && opts->prepare)
		rc = opts->prepare(g, opts->prepare_ctx, e);
	if (rc == 0)
		rc = attach(g, s, opts->cgroup_fd, e);
	guard_bpf__destroy(s);
	if (rc == 0)
		rc = read_programs(g, e);
	if (rc == 0)
		rc = pin_all(g, opts->pin_dir, e);
	return rc;
}

int guard_create(struct guard **ret, const struct guard_opts *opts, struct err *e)
{
	_cleanup_guard_ struct guard *g = guard_new(e);
	int rc;

	if (!g)
		return -ENOMEM;
	rc = check_sizes(opts, e);
	if (rc == 0)
		rc = make_pin_dir(opts->pin_dir, e);
	if (rc < 0)
		return rc;
	rc = create_in(g, opts, e);
	if (rc < 0) {
		guard_unpin(opts->pin_dir, NULL);
		return rc;
	}
	*ret = TAKE_PTR(g);
	return 0;
}

static int open_pin(int *ret, const char *dir, const char *name, struct err *e)
{
	char path[PATH_MAX];
	int rc = pin_path(path, dir, name, e);

	if (rc < 0)
		return rc;
	*ret = bpf_obj_get(path);
	if (*ret < 0)
		return err_errno(e, errno, LAYER, "cannot open the pin %s", path);
	return 0;
}

int guard_adopt(struct guard **ret, const char *pin_dir, struct err *e)
{
	_cleanup_guard_ struct guard *g = guard_new(e);
	size_t i;
	int rc = 0;

	if (!g)
		return -ENOMEM;
	for (i = 0; i < MAPS && rc == 0; i++)
		rc = open_pin(&g->maps[i], pin_dir, map_names[i], e);
	for (i = 0; i < HOOKS && rc == 0; i++)
		rc = open_pin(&g->links[i], pin_dir, hooks[i].pin, e);
	if (rc == 0)
		rc = open_maps(g, e);
	if (rc == 0)
		rc = read_programs(g, e);
	if (rc < 0)
		return rc;
	*ret = TAKE_PTR(g);
	return 0;
}

int guard_detach(const char *pin_dir, struct err *e)
{
	size_t i;

	for (i = 0; i < HOOKS; i++) {
		_cleanup_fd_ int fd = -1;
		char path[PATH_MAX];
		int rc = pin_path(path, pin_dir, hooks[i].pin, e);

		if (rc < 0)
			return rc;
		fd = bpf_obj_get(path);
		if (fd < 0 && errno == ENOENT)
			continue;
		/* One that is detached already, or whose cgroup is gone, says that it is not there. */
		if (fd < 0 || (bpf_link_detach(fd) < 0 && errno != ENOENT))
			return err_errno(e, errno, LAYER, "cannot detach %s", path);
	}
	return 0;
}

/* ---- is it in force ---- */

/* 1 the kernel would run program `id` for this cgroup, 0 not, or a negative errno. */
static int is_effective(int cgroup_fd, size_t hook, uint32_t id)
{
	uint32_t ids[EFFECTIVE_MAX], n = EFFECTIVE_MAX, at;

	if (bpf_prog_query(cgroup_fd, hooks[hook].type, BPF_F_QUERY_EFFECTIVE, NULL, ids, &n) < 0)
		return -errno;
	for (at = 0; at < n && ids[at] != id; at++)
		;
	return at < n;
}

int guard_verify(const struct guard *g, int cgroup_fd, struct err *e)
{
	size_t i;

	for (i = 0; i < HOOKS; i++) {
		int rc = is_effective(cgroup_fd, i, g->prog_ids[i]);

		if (rc < 0)
			return err_errno(e, -rc, LAYER, "cannot ask which programs are in force");
		if (rc == 0)
			return err_set(e, ENOLINK, LAYER, "%s is not in force on this cgroup", hooks[i].prog);
	}
	return 0;
}

/* Of one hook: from its pin, else from who still holds the link. 0, or why nobody knows. */
static int examine_link(const char *dir, const struct guard *held, size_t hook, uint64_t cgroup, struct guard_link *ret)
{
	struct bpf_link_info info = {0};
	_cleanup_fd_ int fd = -1;
	char path[PATH_MAX];
	int rc = pin_path(path, dir, hooks[hook].pin, NULL);

	if (rc < 0)
		return rc;
	fd = bpf_obj_get(path);
	/* Something else of that name is no pin of ours. */
	rc = fd < 0 ? -errno : read_link(fd, hook, &info);
	ret->pinned = rc == 0;
	if (rc < 0 && held)
		rc = read_link(held->links[hook], hook, &info);
	if (rc == 0) {
		ret->prog_id = info.prog_id;
		ret->attached = info.cgroup.cgroup_id == cgroup; /* 0 once it is detached, or the cgroup removed */
	}
	return rc == -ENOENT || rc == -EINVAL ? 0 : rc;
}

int guard_examine(const char *pin_dir, const struct guard *held, int cgroup_fd, uint64_t cgroup,
		  struct guard_link ret[GUARD_HOOKS], struct err *e)
{
	struct guard_link each[GUARD_HOOKS] = {0};
	int rc = 0, answers = 0;
	size_t i;

	for (i = 0; i < HOOKS; i++) {
		int asked;

		each[i].hook = hooks[i].pin + sizeof LINK_PIN - 1;
		each[i].pin = hooks[i].pin;
		rc = examine_link(pin_dir, held, i, cgroup, &each[i]);
		answers += rc == 0;
		/* Of a cgroup that is gone the kernel says nothing: not in force. */
		asked = each[i].prog_id ? is_effective(cgroup_fd, i, each[i].prog_id) : 0;
		each[i].effective = asked == 1;
	}
	if (!answers)
		return err_errno(e, -rc, LAYER, "cannot look at the links pinned in %s", pin_dir);
	memcpy(ret, each, sizeof each);
	return 0;
}

void guard_programs(const struct guard *g, uint32_t ret[GUARD_HOOKS])
{
	memcpy(ret, g->prog_ids, sizeof g->prog_ids);
}

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

int guard_ring_fd(const struct guard *g)
{
	return ring_buffer__epoll_fd(g->ring);
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
	rc = ring_buffer__consume(g->ring);
	return rc < 0 && rc != -ECANCELED ? rc : g->drained;
}

int guard_stats(const struct guard *g, uint64_t ret[WEIR_STAT_COUNT], struct err *e)
{
	int cpus = libbpf_num_possible_cpus(), cpu;
	_cleanup_free_ uint64_t *each = cpus > 0 ? calloc((size_t)cpus, sizeof *each) : NULL;
	uint64_t sum[WEIR_STAT_COUNT] = {0};
	uint32_t i;

	if (!each)
		return err_set(e, cpus < 0 ? -cpus : ENOMEM, LAYER, "cannot hold a counter for each CPU");
	for (i = 0; i < WEIR_STAT_COUNT; i++) {
		if (bpf_map_lookup_elem(g->maps[MAP_STATS], &i, each) < 0)
			return err_errno(e, errno, LAYER, "cannot read counter %u", i);
		for (cpu = 0; cpu < cpus; cpu++)
			sum[i] += each[cpu];
	}
	memcpy(ret, sum, sizeof sum);
	return 0;
}

/* ---- doctor ---- */

static int probe_one(size_t which, char *log, struct err *e)
{
	const struct guard_opts any = {.level = 1};
	struct bpf_program *p = NULL;
	struct guard_bpf *s;
	int rc = open_programs(&s, log, e);

	if (rc < 0)
		return rc;
	while ((p = bpf_object__next_program(s->obj, p)))
		bpf_program__set_autoload(p, !strcmp(bpf_program__name(p), hooks[which].prog));
	rc = configure(s, &any, 0, e);
	if (rc == 0)
		rc = guard_bpf__load(s);
	guard_bpf__destroy(s);
	return rc;
}

int guard_probe(void (*report)(void *ctx, const char *prog, int rc, const char *why), void *ctx, struct err *e)
{
	_cleanup_free_ char *log = malloc(VERIFIER_LOG_BYTES);
	size_t i;

	if (!log)
		return err_set(e, ENOMEM, LAYER, "out of memory");
	for (i = 0; i < HOOKS; i++) {
		int rc = probe_one(i, log, e);
		const char *why = rc ? verdict_line(log) : "";

		report(ctx, hooks[i].prog, rc, rc && !*why ? last_words : why);
	}
	return 0;
}
