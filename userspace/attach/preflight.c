/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several programs on one hook, as the kernel has it (kernel/bpf/cgroup.c). Per cgroup and hook there is a list of programs and
 * the mode they were attached with: alone (no flag), overridable (BPF_F_ALLOW_OVERRIDE), or with others (BPF_F_ALLOW_MULTI; a
 * link is always that, and so are ours).
 *
 *   May it be attached?  Not beside programs of another mode in the same cgroup. Above it, the nearest cgroup with a program
 *                        decides (hierarchy_allows_attach()): in mode multi or overridable it may be attached, below one that
 *                        is alone nothing may.
 *   What runs?           Of a cgroup's own programs all; going up, those of a cgroup in mode multi always, and the others only
 *                        as long as none was found further down (compute_effective_progs()). The lower ones run first, all
 *                        of them run, and any can deny.
 *
 * So ours, once attached, run for all that is below, whatever is attached there later. What is alone at the target or next
 * above it refuses ours. What is overridable next above it would silently cease to run for the target: somebody else's rules,
 * perhaps, so that ours are not attached. And a program above that changes destinations does so after ours have judged.
 */
#include "attach/preflight.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "core/cleanup.h"

#define LAYER "policy"
#define PINS "/sys/fs/bpf/weir"
#define PINNED_LINKS_MAX 16384 /* looked at, in all */
#define PROGRAMS_MAX 64	       /* of one cgroup and hook; the kernel allows no more */
#define DEPTH_MAX 128
#define BELOW_MAX 256 /* cgroups below the target that are asked */

const char *const foreign_effect_names[FOREIGN_EFFECTS] = {"beside", "refuses", "stopped", "rewrites"};

static const struct hook {
	const char *name;
	enum bpf_attach_type type;
	bool address; /* may change the destination */
} hooks[] = {
    {"connect4", BPF_CGROUP_INET4_CONNECT, true}, {"connect6", BPF_CGROUP_INET6_CONNECT, true},
    {"sendmsg4", BPF_CGROUP_UDP4_SENDMSG, true},  {"sendmsg6", BPF_CGROUP_UDP6_SENDMSG, true},
    {"egress", BPF_CGROUP_INET_EGRESS, false},	  {"ingress", BPF_CGROUP_INET_INGRESS, false},
    {"setsockopt", BPF_CGROUP_SETSOCKOPT, false}, {"release", BPF_CGROUP_INET_SOCK_RELEASE, false},
};
#define HOOKS (sizeof hooks / sizeof hooks[0])

static const struct owner {
	const char *prefix, *who, *mend;
} owners[] = {
    {"sd_", "systemd",
     "set Delegate=yes for that unit, or take IPAddressAllow=, IPAddressDeny= and the like out of it, and restart it"},
    {"cil_", "Cilium",
     "use a version that attaches with links, or switch off its socket load balancer (socketLB.enabled=false)"},
    {"cali", "Calico", "switch off its connect-time load balancer (bpfConnectTimeLoadBalancing: Disabled)"},
    {"weir_", "Weir, of an instance whose pins are gone", "run `weir uninstall`, then attach again"},
    {"", "of whom its name does not say",
     "have its owner attach it with BPF_F_ALLOW_MULTI or as a link; `bpftool cgroup tree` lists it"},
};

struct look {
	const struct target *t;
	const unsigned *own;
	size_t own_count;
	struct preflight *ret;
	bool gathered; /* the pins were looked through */
};

/* ---- one program ---- */

static void name_of(unsigned id, char ret[17])
{
	_cleanup_fd_ int fd = bpf_prog_get_fd_by_id(id);
	struct bpf_prog_info info = {0};
	uint32_t len = sizeof info;

	ret[0] = '\0';
	if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &len) < 0)
		return;
	snprintf(ret, 17, "%.16s", info.name);
	/* The kernel takes letters, digits, '_' and '.' only; who knows what later ones do. */
	for (char *p = ret; *p; p++)
		if (*p <= ' ' || *p > '~')
			*p = '?';
}

static const struct owner *owner_of(const char *prog)
{
	const struct owner *o = owners;

	while (strncmp(prog, o->prefix, strlen(o->prefix)) != 0)
		o++;
	return o;
}

/* ---- Weir's own: those that a link in Weir's pins holds. A name anybody can give ---- */

/* Sorted. Kept: an id is not used again for as long as it matters, and what was pinned there once is ours. */
static unsigned known[PINNED_LINKS_MAX];
static size_t known_count;

static int compare_ids(const void *a, const void *b)
{
	const unsigned *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static bool is_known(unsigned id)
{
	return bsearch(&id, known, known_count, sizeof known[0], compare_ids);
}

static unsigned program_of_pin(const char *dir, const char *name)
{
	char path[PATH_MAX];
	_cleanup_fd_ int fd = -1;
	struct bpf_link_info info = {0};
	uint32_t len = sizeof info;

	if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
		return 0;
	fd = bpf_obj_get(path);
	return fd >= 0 && bpf_obj_get_info_by_fd(fd, &info, &len) == 0 ? info.prog_id : 0;
}

/* Pins of instances are one directory down, of attachments two. */
static void gather(const char *dir, unsigned down)
{
	_cleanup_dir_ DIR *d = opendir(dir);
	struct dirent *de;

	while (d && known_count < PINNED_LINKS_MAX && (de = readdir(d))) {
		char path[PATH_MAX];

		if (!strncmp(de->d_name, "link_", 5))
			known[known_count++] = program_of_pin(dir, de->d_name);
		else if (down && de->d_name[0] != '.' && de->d_type == DT_DIR &&
			 snprintf(path, sizeof path, "%s/%s", dir, de->d_name) < (int)sizeof path)
			gather(path, down - 1);
	}
}

static bool is_own(const struct look *l, unsigned id)
{
	for (size_t i = 0; i < l->own_count; i++)
		if (l->own[i] == id)
			return true;
	return false;
}

/* The name first: most programs are not called so, and looking through the pins takes its time. */
static bool is_weirs(struct look *l, unsigned id, const char *name)
{
	if (is_known(id))
		return true;
	if (l->gathered || strncmp(name, "weir_", 5) != 0)
		return false;
	l->gathered = true;
	known_count = 0;
	gather(PINS, 2);
	qsort(known, known_count, sizeof known[0], compare_ids);
	return is_known(id);
}

/* ---- one cgroup ---- */

struct found {
	uint32_t ids[PROGRAMS_MAX], count, flags;
	bool own; /* one of them is ours */
};

static int ask(const struct look *l, int cgroup, const struct hook *hook, struct found *ret, struct err *e)
{
	ret->count = PROGRAMS_MAX;
	ret->flags = 0;
	ret->own = false;
	if (bpf_prog_query(cgroup, hook->type, 0, &ret->flags, ret->ids, &ret->count) < 0)
		return err_errno(e, errno, LAYER, "cannot ask which programs are attached at %s", hook->name);
	if (ret->count > PROGRAMS_MAX)
		ret->count = PROGRAMS_MAX;
	for (uint32_t i = 0; i < ret->count; i++)
		ret->own = ret->own || is_own(l, ret->ids[i]);
	return 0;
}

static void note(struct look *l, const struct found *f, const struct hook *hook, const char *path, enum foreign_effect effect)
{
	for (uint32_t i = 0; i < f->count; i++) {
		struct preflight *p = l->ret;
		struct foreign *to;
		char name[17];

		if (is_own(l, f->ids[i]) || is_known(f->ids[i]))
			continue;
		name_of(f->ids[i], name);
		if (is_weirs(l, f->ids[i], name))
			continue;
		/* What refuses ours must be told even when the list is full. */
		if (p->count == FOREIGN_MAX) {
			p->beyond++;
			if (effect != FOREIGN_REFUSES && effect != FOREIGN_STOPPED)
				continue;
			p->count--;
		}
		to = &p->foreign[p->count++];
		memcpy(to->prog, name, sizeof to->prog);
		to->id = f->ids[i];
		to->hook = hook->name;
		snprintf(to->path, sizeof to->path, "%s", path[0] ? path : "/");
		to->effect = effect;
	}
}

/* ---- at the target and above ---- */

struct chain {
	int fds[DEPTH_MAX]; /* the root first, the target last */
	size_t count;
};

static void chain_close(struct chain *c)
{
	for (size_t i = 0; i < c->count; i++)
		close(c->fds[i]);
}

static int chain_open(struct chain *c, const struct target *t, const struct target_roots *roots, struct err *e)
{
	char path[PATH_MAX], *save = NULL, *part;
	int fd = open(roots->cgroup2, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	snprintf(path, sizeof path, "%s", t->path);
	for (part = strtok_r(path, "/", &save); fd >= 0; part = strtok_r(NULL, "/", &save)) {
		c->fds[c->count++] = fd;
		if (!part)
			return 0;
		if (c->count == DEPTH_MAX)
			return err_set(e, E2BIG, LAYER, "the cgroup %s lies deeper than %d levels", t->path, DEPTH_MAX - 1);
		fd = openat(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	}
	return err_errno(e, errno, LAYER, "open %s below %s", t->path, roots->cgroup2);
}

/* The first `parts` parts of a path: "/a/b/c", 2 -> "/a/b". */
static void cut_path(char ret[PATH_MAX], const char *path, size_t parts)
{
	size_t n = 0;

	while (path[n] && (path[n] != '/' || parts-- > 0))
		n++;
	snprintf(ret, PATH_MAX, "%.*s", (int)n, path);
}

static int look_up(struct look *l, const struct chain *c, const struct hook *hook, struct err *e)
{
	const enum foreign_effect beside = hook->address ? FOREIGN_REWRITES : FOREIGN_BESIDE;
	struct found f;
	bool ours, below, nearest = true; /* ours are there already; something lower keeps a lone one above from running */
	int rc = ask(l, c->fds[c->count - 1], hook, &f, e);

	if (rc < 0)
		return rc;
	ours = f.own;
	below = f.count > f.own;
	note(l, &f, hook, l->t->path, f.flags & BPF_F_ALLOW_MULTI ? beside : FOREIGN_REFUSES);
	for (size_t i = c->count - 1; i-- > 0;) {
		char path[PATH_MAX];

		rc = ask(l, c->fds[i], hook, &f, e);
		if (rc < 0)
			return rc;
		if (!f.count)
			continue;
		cut_path(path, l->t->path, i);
		if (f.flags & BPF_F_ALLOW_MULTI)
			note(l, &f, hook, path, beside);
		else if (nearest && !ours && !(f.flags & BPF_F_ALLOW_OVERRIDE))
			note(l, &f, hook, path, FOREIGN_REFUSES);
		else if (!below)
			note(l, &f, hook, path, FOREIGN_STOPPED);
		nearest = false;
		below = true;
	}
	return 0;
}

/* ---- below the target ---- */

static int look_down(struct look *l, int dir, const char *path, unsigned depth, unsigned *budget, struct err *e)
{
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	_cleanup_dir_ DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *de;

	if (!d) {
		if (copy >= 0)
			close(copy);
		return errno == ENOENT || errno == ENODEV ? 0 : err_errno(e, errno, LAYER, "read the cgroup %s", path);
	}
	while (rc == 0 && *budget && (de = readdir(d))) {
		_cleanup_fd_ int fd = -1;
		_cleanup_free_ char *below = NULL;

		if (de->d_type != DT_DIR || de->d_name[0] == '.')
			continue;
		--*budget;
		fd = openat(copy, de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 || asprintf(&below, "%s/%s", path, de->d_name) < 0)
			continue; /* gone meanwhile */
		for (size_t i = 0; rc == 0 && i < HOOKS; i++) {
			struct found f;
			struct err inner;

			if (ask(l, fd, &hooks[i], &f, &inner) == 0)
				note(l, &f, &hooks[i], below, FOREIGN_BESIDE);
			else if (inner.code != ENOENT && inner.code != ENODEV && inner.code != EBADF) {
				*e = inner;
				rc = -inner.code;
			}
		}
		if (rc == 0 && depth)
			rc = look_down(l, fd, below, depth - 1, budget, e);
	}
	return rc;
}

/* ---- */

static int complain(const struct look *l, struct err *e)
{
	const struct foreign *worst = NULL;
	const struct owner *o;
	unsigned more = 0;

	for (size_t i = 0; i < l->ret->count; i++) {
		const struct foreign *f = &l->ret->foreign[i];

		if (f->effect != FOREIGN_REFUSES && f->effect != FOREIGN_STOPPED)
			continue;
		if (worst)
			more++;
		else
			worst = f;
	}
	if (!worst)
		return 0;
	o = owner_of(worst->prog);
	return err_set(e, EPERM, LAYER, "the program %s%s%s (number %u, %s) is attached to the cgroup %s at %s %s%s; %s",
		       worst->prog[0] ? "\"" : "without a name", worst->prog, worst->prog[0] ? "\"" : "", worst->id, o->who,
		       worst->path, worst->hook,
		       worst->effect == FOREIGN_REFUSES
			   ? "in a mode that lets no other program be attached there or below"
			   : "in a mode in which it would cease to run for this cgroup when Weir's are attached",
		       more ? ", and it is not the only one" : "", o->mend);
}

int preflight_look(const struct target *t, const struct target_roots *roots, const unsigned *own, size_t own_count,
		   struct preflight *ret, struct err *e)
{
	struct look l = {.t = t, .own = own, .own_count = own_count, .ret = ret};
	__attribute__((cleanup(chain_close))) struct chain c = {.count = 0};
	unsigned budget = BELOW_MAX;
	int rc;

	ret->count = ret->beyond = 0;
	rc = chain_open(&c, t, roots, e);
	for (size_t i = 0; rc == 0 && i < HOOKS; i++)
		rc = look_up(&l, &c, &hooks[i], e);
	if (rc == 0)
		rc = look_down(&l, c.fds[c.count - 1], t->path, DEPTH_MAX, &budget, e);
	return rc < 0 ? rc : complain(&l, e);
}

void preflight_coverage(const struct preflight *p, struct coverage_found *f)
{
	for (size_t i = 0; i < p->count; i++)
		if (p->foreign[i].effect == FOREIGN_REWRITES)
			coverage_add(f, WEAK_REWRITE, "%s (%s) at %s of %.120s",
				     p->foreign[i].prog[0] ? p->foreign[i].prog : "a program without a name",
				     owner_of(p->foreign[i].prog)->who, p->foreign[i].hook, p->foreign[i].path);
}
