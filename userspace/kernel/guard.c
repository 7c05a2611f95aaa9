/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/guard_priv.h"

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
#include "kernel/guardpins.h"

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

/* Pinned under the same names. The others (settings, socket storage) live as long as the programs do. */
static const char *const map_names[MAPS] = {"sandboxes", "policies", "flows",  "denials", "events", "stats",
					    "strangers", "renewed",  "images", "tries",	  "lists"};

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

/* A power of two with room for everything that one cgroup may list; a record in a ring has a head of eight bytes. */
#define ALLOWANCE_BYTES (512u << 10)
_Static_assert((WEIR_FLOWS_PER_SANDBOX + WEIR_INBOUND_FLOWS_PER_SANDBOX) * (sizeof(struct weir_event) + 8) < ALLOWANCE_BYTES,
	       "a cgroup that is only watched lists as much as one that is refused");

/* Of the ring of what was let through, beside so many bytes of denials. */
static uint32_t share_of(uint32_t ring_bytes)
{
	const uint32_t share = ring_bytes / WEIR_RING_SHARE,
		       least = ring_bytes < ALLOWANCE_BYTES ? ring_bytes : ALLOWANCE_BYTES;

	return share < least ? least : share;
}

/* How many, when it is not what bpf/maps.bpf.h says. */
static int size_maps(struct guard_bpf *s, const struct guard_opts *opts, struct err *e)
{
	const uint32_t cgroups = opts->sandboxes_max;
	const uint32_t flows = FLOWS_FOR(cgroups) < WEIR_FLOWS_MAX ? FLOWS_FOR(cgroups) : WEIR_FLOWS_MAX;

	if (cgroups &&
	    (bpf_map__set_max_entries(s->maps.sandboxes, cgroups) < 0 || bpf_map__set_max_entries(s->maps.flows, flows) < 0))
		return err_errno(e, errno, LAYER, "cannot size the maps for %u cgroups", cgroups);
	if (opts->ring_bytes && (bpf_map__set_max_entries(s->maps.denials, opts->ring_bytes) < 0 ||
				 bpf_map__set_max_entries(s->maps.events, share_of(opts->ring_bytes)) < 0))
		return err_errno(e, errno, LAYER, "cannot make the rings of events %u bytes long", opts->ring_bytes);
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
	ring_buffer__free(g->rings);
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
	return guard_open_rings(g, e);
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
		rc = guardpins_open_map(&g->maps[i], pin_dir, map_names[i], e);
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
