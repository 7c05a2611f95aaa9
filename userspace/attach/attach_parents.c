/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parents that are carried: what has no policy of its own directly below them is unknown, and denied or recorded. What has
 * one has leave there: an entry that says that programs further down judge it. So leave is given when those are in force, and
 * taken before they go.
 */
#include "attach/attach_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/samefile.h"
#include "kernel/guardpins.h"

#define SETTLED_S 10
#define KERNFS_HANDLE 0xfe /* FILEID_KERNFS: the handle is the id */

bool attach_lies_in(const char *path, const char *above)
{
	size_t n = strlen(above);

	return !strncmp(path, above, n) && path[n] == '/' && path[n + 1];
}

bool attach_is_child(const char *path, const char *above)
{
	return attach_lies_in(path, above) && !strchr(path + strlen(above) + 1, '/');
}

/* The one on the way from `above` down to `path` that is its child. */
static void child_on_the_way(char ret[PATH_MAX], const char *path, const char *above)
{
	const char *end = strchr(path + strlen(above) + 1, '/');

	snprintf(ret, PATH_MAX, "%.*s", (int)(end ? (size_t)(end - path) : strlen(path)), path);
}

void attach_pin_dir(char ret[PATH_MAX], const char *id)
{
	snprintf(ret, PATH_MAX, "%s/%s", attachment_pins, id);
}

bool attach_is_held(const struct attachment *a)
{
	char pins[PATH_MAX];

	attach_pin_dir(pins, a->id);
	return guardpins_cgroup(pins) == a->target.id;
}

/* In a directory that was removed no name leads anywhere, not even those that every cgroup has. */
bool attach_is_dead(int cgroup_fd)
{
	return faccessat(cgroup_fd, "cgroup.procs", F_OK, 0) < 0 && errno == ENOENT;
}

/*
 * Whether a cgroup of that id lives: what is mounted here may be a part of the hierarchy only, and the kernel finds it all the
 * same. 1, 0, or a negative errno when it does not say.
 */
static int lives(uint64_t id, const struct target_roots *roots)
{
	union {
		struct file_handle head;
		char room[sizeof(struct file_handle) + sizeof id];
	} by = {.head = {.handle_bytes = sizeof id, .handle_type = KERNFS_HANDLE}};
	_cleanup_fd_ int top = open(roots->cgroup2, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
	struct statfs fs;

	if (top < 0 || fstatfs(top, &fs) < 0)
		return -errno;
	if (fs.f_type != CGROUP2_SUPER_MAGIC)
		return -ENOTSUP;
	memcpy(by.room + offsetof(struct file_handle, f_handle), &id, sizeof id);
	fd = open_by_handle_at(top, &by.head, O_PATH | O_CLOEXEC);
	if (fd >= 0)
		return 1;
	return errno == ESTALE ? 0 : -errno;
}

/* Its path leads nowhere, or to another. */
static bool is_hidden(const struct attachment *a, const struct target_roots *roots)
{
	int rc = lives(a->target.id, roots);

	return rc < 0 ? attach_is_held(a) : rc;
}

enum attach_place attach_place(const struct attachment *a, const struct target_roots *roots, int *ret_fd)
{
	struct target t = a->target;
	struct err why = {0};
	int rc;

	t.fd = -1;
	rc = target_open(&t, roots, &why);
	/* What can't be looked at for another reason is not gone. */
	if (rc < 0 && rc != -ENOENT && rc != -ENODEV)
		return PLACE_THERE;
	if (rc == 0 && t.id == a->target.id) {
		if (ret_fd)
			*ret_fd = TAKE_FD(t.fd);
		target_close(&t);
		return PLACE_THERE;
	}
	target_close(&t);
	if (is_hidden(a, roots))
		return PLACE_HIDDEN;
	return rc < 0 ? PLACE_GONE : PLACE_OTHER;
}

bool attach_holds(const struct attachment *a, const struct target_roots *roots)
{
	struct guard_link links[GUARD_HOOKS];
	_cleanup_fd_ int fd = -1;
	char pins[PATH_MAX];

	if (a->gone_ns || attach_place(a, roots, &fd) != PLACE_THERE || fd < 0)
		return false;
	attach_pin_dir(pins, a->id);
	if (guard_examine(pins, NULL, fd, a->target.id, links, NULL) < 0)
		return false;
	for (size_t i = 0; i < GUARD_HOOKS; i++)
		if (!links[i].pinned || !links[i].attached || !links[i].effective)
			return false;
	return true;
}

/* Whether one of them judges what is at that path. */
static bool is_judged(const struct attachment_list *l, const char *path, const struct target_roots *roots)
{
	for (size_t i = 0; i < l->count; i++)
		if (!strcmp(l->each[i].target.path, path) && attach_holds(&l->each[i], roots))
			return true;
	return false;
}

static bool denies_unknown(const struct attachment *parent)
{
	struct guardpins pins;
	char dir[PATH_MAX];

	attach_pin_dir(dir, parent->id);
	guardpins_read(dir, 0, &pins);
	return pins.has_unknown ? !(pins.unknown.flags & WEIR_SB_PASS_UNKNOWN) : !parent->unknown_passes;
}

int parents_permit(const struct attachment_list *l, const struct target *t, const struct target_roots *roots, struct err *e)
{
	char between[PATH_MAX];

	for (size_t i = 0; i < l->count; i++) {
		const struct attachment *p = &l->each[i];

		if (!p->parent || p->gone_ns || !attach_lies_in(t->path, p->target.path) ||
		    attach_is_child(t->path, p->target.path) || attach_place(p, roots, NULL) != PLACE_THERE)
			continue;
		child_on_the_way(between, t->path, p->target.path);
		if (denies_unknown(p) && !is_judged(l, between, roots))
			return err_set(
			    e, EPERM, target_kind_options[t->kind],
			    "%.200s lies in %.200s, which has no policy, and %.200s denies all of what has none (%s): "
			    "attach one to %.200s, or carry it as a parent too",
			    t->path, between, p->target.path, p->id, between);
	}
	return 0;
}

int parents_give_leave(const struct attachment_list *l, const struct target *t, const struct target_roots *roots, struct err *e)
{
	char dir[PATH_MAX];
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < l->count; i++) {
		const struct attachment *p = &l->each[i];

		if (!p->parent || p->gone_ns || !attach_is_child(t->path, p->target.path) ||
		    attach_place(p, roots, NULL) != PLACE_THERE)
			continue;
		attach_pin_dir(dir, p->id);
		rc = guardpins_give_leave(dir, t->id, e);
		if (rc < 0)
			rc = err_wrap(e, "%s carries %.200s: attach that parent again, then this", p->id, p->target.path);
	}
	return rc;
}

int parents_take_leave(const struct attachment_list *l, const struct target *t, struct err *e)
{
	char dir[PATH_MAX];
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < l->count; i++) {
		const struct attachment *p = &l->each[i];

		/* Of one without a record nobody knows the path, but its id. */
		if (!p->parent || p->gone_ns || (t->path[0] && !attach_is_child(t->path, p->target.path)))
			continue;
		attach_pin_dir(dir, p->id);
		rc = guardpins_take_leave(dir, t->id, e);
	}
	return rc;
}

int parents_enter_children(const struct attachment_list *l, const struct target *parent, const struct target_roots *roots,
			   struct guard *g, struct err *e)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < l->count; i++)
		if (attach_is_child(l->each[i].target.path, parent->path) && attach_holds(&l->each[i], roots))
			rc = guard_set_sandbox(g, l->each[i].target.id, 0, WEIR_SB_BELOW, e);
	return rc;
}

/* ---- leave of those that are gone ---- */

struct judges {
	const struct attachment_list *l;
	const struct target_roots *roots;
};

static bool orphan_judges(const struct attachment_list *l, uint64_t cgroup)
{
	char dir[PATH_MAX];

	for (size_t i = 0; i < l->broken_count; i++) {
		attach_pin_dir(dir, l->broken[i].id);
		if (guardpins_cgroup(dir) == cgroup)
			return true;
	}
	return false;
}

static bool judged(void *ctx, uint64_t cgroup)
{
	const struct judges *j = ctx;

	for (size_t i = 0; i < j->l->count; i++)
		if (j->l->each[i].target.id == cgroup && attach_holds(&j->l->each[i], j->roots))
			return true;
	return orphan_judges(j->l, cgroup);
}

unsigned parents_prune(const struct attachment_list *l, const struct target_roots *roots)
{
	struct judges j = {l, roots};
	unsigned taken = 0;
	char dir[PATH_MAX];

	for (size_t i = 0; i < l->count; i++) {
		if (!l->each[i].parent || l->each[i].gone_ns)
			continue;
		attach_pin_dir(dir, l->each[i].id);
		taken += guardpins_prune_leave(dir, judged, &j);
	}
	return taken;
}

/* ---- for checks: what is read again only when pins came or went ---- */

struct parent {
	char id[IPC_ID_MAX];
	char path[PATH_MAX];
	uint64_t cgroup;
};

static struct {
	struct parent *parents;
	size_t parent_count;
	unsigned *programs; /* of all attachments */
	size_t program_count;
	struct stat pins; /* as they were; all zero: nothing is known */
	uint64_t read_ns;
	bool settled;
} known;

/* A record is written some time after its pins. */
static bool is_settled(const struct stat *st)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec - st->st_mtim.tv_sec > SETTLED_S;
}

static void read_parents(void)
{
	struct attachment_list l = {0};

	if (attachment_list(&l, NULL) < 0)
		return;
	known.parents = calloc(l.count + 1, sizeof *known.parents);
	for (size_t i = 0; known.parents && i < l.count; i++) {
		struct parent *p = &known.parents[known.parent_count];

		if (!l.each[i].parent || l.each[i].gone_ns)
			continue;
		snprintf(p->id, sizeof p->id, "%s", l.each[i].id);
		snprintf(p->path, sizeof p->path, "%s", l.each[i].target.path);
		p->cgroup = l.each[i].target.id;
		known.parent_count++;
	}
	attachment_list_clear(&l);
}

static int add_pinned(unsigned **list, size_t *count, const char *id, struct err *e);

static void read_programs(void)
{
	_cleanup_dir_ DIR *d = opendir(attachment_pins);
	struct dirent *de;
	int rc = 0;

	while (d && rc == 0 && (de = readdir(d)))
		if (de->d_name[0] != '.')
			rc = add_pinned(&known.programs, &known.program_count, de->d_name, NULL);
}

static void know(void)
{
	struct stat st = {0};

	(void)stat(attachment_pins, &st);
	if (known.read_ns && same_file(&st, &known.pins) && (known.settled || clock_now_ns() - known.read_ns < SECOND_NS))
		return;
	free(known.parents);
	free(known.programs);
	memset(&known, 0, sizeof known);
	read_parents();
	read_programs();
	known.pins = st;
	known.settled = is_settled(&st);
	known.read_ns = clock_now_ns();
}

const unsigned *attach_all_programs(size_t *ret_count)
{
	know();
	*ret_count = known.program_count;
	return known.programs;
}

static uint64_t id_at(const char *path, const struct target_roots *roots)
{
	struct target t = {.kind = TARGET_CGROUP, .fd = -1};
	uint64_t id;

	snprintf(t.path, sizeof t.path, "%s", path);
	id = target_open(&t, roots, NULL) == 0 ? t.id : 0;
	target_close(&t);
	return id;
}

bool parents_cut_off(const struct attachment *a, const struct target_roots *roots, char *why, size_t size)
{
	char between[PATH_MAX], dir[PATH_MAX];
	struct guardpins pins;

	know();
	for (size_t i = 0; i < known.parent_count; i++) {
		const struct parent *p = &known.parents[i];

		if (!attach_lies_in(a->target.path, p->path))
			continue;
		child_on_the_way(between, a->target.path, p->path);
		attach_pin_dir(dir, p->id);
		guardpins_read(dir, id_at(between, roots), &pins);
		if (!pins.has_unknown || guardpins_cgroup(dir) != p->cgroup || (pins.unknown.flags & WEIR_SB_PASS_UNKNOWN) ||
		    (pins.has_entry && (pins.entry.flags & WEIR_SB_BELOW)))
			continue;
		snprintf(why, size, "its parent (%s) denies it all, as it has no leave there: attach a policy to %.90s again",
			 p->id, between);
		return true;
	}
	return false;
}

/* ---- who else is there ---- */

static int add_programs(unsigned **list, size_t *count, const uint32_t ids[GUARD_HOOKS], struct err *e)
{
	unsigned *more = reallocarray(*list, *count + GUARD_HOOKS, sizeof *more);

	if (!more)
		return err_set(e, ENOMEM, ATTACH_LAYER, "out of memory");
	*list = more;
	for (size_t i = 0; i < GUARD_HOOKS; i++)
		if (ids[i])
			more[(*count)++] = ids[i];
	return 0;
}

static int add_pinned(unsigned **list, size_t *count, const char *id, struct err *e)
{
	uint32_t ids[GUARD_HOOKS] = {0};
	char dir[PATH_MAX];

	attach_pin_dir(dir, id);
	guardpins_programs(dir, ids);
	return add_programs(list, count, ids, e);
}

static bool is_kin(const char *one, const char *other)
{
	return !strcmp(one, other) || attach_lies_in(one, other) || attach_lies_in(other, one);
}

int attach_own_programs(const struct attachment_list *l, const struct target *t, const struct guard *more, unsigned **ret,
			size_t *ret_count, struct err *e)
{
	_cleanup_free_ unsigned *list = NULL;
	uint32_t ids[GUARD_HOOKS];
	size_t count = 0;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < l->count; i++)
		if (is_kin(l->each[i].target.path, t->path))
			rc = add_pinned(&list, &count, l->each[i].id, e);
	for (size_t i = 0; rc == 0 && i < l->broken_count; i++)
		rc = add_pinned(&list, &count, l->broken[i].id, e);
	if (rc == 0 && more) {
		guard_programs(more, ids);
		rc = add_programs(&list, &count, ids, e);
	}
	if (rc < 0)
		return rc;
	*ret = TAKE_PTR(list);
	*ret_count = count;
	return 0;
}
