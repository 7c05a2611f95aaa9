/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether an attachment still holds. Asked of the kernel each time, of every attachment every few seconds: so nothing is
 * opened that need not be, and what hardly changes is remembered.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach_priv.h"
#include "core/cleanup.h"
#include "kernel/guardpins.h"

/* Cgroups below the target that are asked too. The kernel lets nobody take a program from those below; this is to see it. */
#define BELOW_MAX 16

struct looking {
	const struct attachment *a;
	struct attach_check *c;
	struct target_roots roots;
	char pins[PATH_MAX];
	struct target t;
};

/* Where cgroups are: the same for as long as this process lives. */
static int find_roots(struct target_roots *ret, struct err *e)
{
	static struct target_roots roots;
	static char room[256];
	int rc = roots.cgroup2 ? 0 : target_host_roots(&roots, room, e);

	if (rc == 0)
		*ret = roots;
	else
		roots.cgroup2 = NULL;
	return rc;
}

__attribute__((format(printf, 3, 4))) static void problem(struct looking *k, const char *name, const char *fmt, ...)
{
	va_list ap;
	size_t n = k->c->problem_count;

	if (n == ATTACH_PROBLEMS)
		return;
	snprintf(k->c->problems[n].name, sizeof k->c->problems[n].name, "%s", name);
	va_start(ap, fmt);
	vsnprintf(k->c->problems[n].text, sizeof k->c->problems[n].text, fmt, ap);
	va_end(ap);
	k->c->problem_count++;
}

/* What mends nearly all of it. */
static const char *again(const struct looking *k)
{
	return k->a->parent ? "weir attach --parent ... again" : "weir attach --policy ... again";
}

/* ---- links ---- */

/* The names of those hooks for which `bad` is set, as far as they fit. Returns how many there are. */
static size_t name_hooks(char *ret, size_t size, const struct guard_link links[GUARD_HOOKS], const bool bad[GUARD_HOOKS])
{
	size_t used = 0, count = 0;

	ret[0] = 0;
	for (size_t i = 0; i < GUARD_HOOKS; i++)
		if (bad[i]) {
			if (used < size)
				used += (size_t)snprintf(ret + used, size - used, "%s%s", used ? ", " : "", links[i].hook);
			count++;
		}
	return count;
}

static void tell_links(struct looking *k, const struct guard_link links[GUARD_HOOKS])
{
	bool pin[GUARD_HOOKS], detached[GUARD_HOOKS], idle[GUARD_HOOKS];
	char hooks[100];

	for (size_t i = 0; i < GUARD_HOOKS; i++) {
		pin[i] = !links[i].pinned;
		detached[i] = links[i].pinned && !links[i].attached;
		idle[i] = links[i].pinned && links[i].attached && !links[i].effective;
	}
	if (name_hooks(hooks, sizeof hooks, links, pin) == GUARD_HOOKS)
		problem(k, "pin", "no program is pinned in %.100s: nothing holds; %s", k->pins, again(k));
	else if (hooks[0])
		problem(k, "pin", "not pinned: %s; nothing is judged there once no process holds the link; %s", hooks,
			again(k));
	if (name_hooks(hooks, sizeof hooks, links, detached))
		problem(k, "detached", "detached from the cgroup: %s; nothing is judged there; %s", hooks, again(k));
	if (name_hooks(hooks, sizeof hooks, links, idle))
		problem(k, "not effective", "attached, but the kernel would not run it: %s; %s", hooks, again(k));
}

static void check_below(struct looking *k)
{
	int fd = openat(k->t.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	unsigned asked = 0;
	struct dirent *de;

	if (!d && fd >= 0)
		close(fd);
	while (d && asked < BELOW_MAX && (de = readdir(d))) {
		struct guard_link links[GUARD_HOOKS];
		bool idle[GUARD_HOOKS];
		_cleanup_fd_ int below = -1;
		char hooks[80];

		if (de->d_type != DT_DIR || de->d_name[0] == '.')
			continue;
		asked++;
		below = openat(dirfd(d), de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (below < 0 || guard_examine(k->pins, NULL, below, k->a->target.id, links, NULL) < 0)
			continue;
		for (size_t i = 0; i < GUARD_HOOKS; i++)
			idle[i] = links[i].pinned && links[i].attached && !links[i].effective;
		if (name_hooks(hooks, sizeof hooks, links, idle) && !attach_is_dead(below)) {
			problem(k, "not effective", "not in force on %.60s below it: %s; %s", de->d_name, hooks, again(k));
			return;
		}
	}
}

static void check_links(struct looking *k)
{
	struct guard_link links[GUARD_HOOKS] = {0};
	struct err why = {0};

	if (!guardpins_exist(k->pins)) {
		problem(k, "pin", "no program is pinned in %.100s: nothing holds; %s", k->pins, again(k));
		return;
	}
	if (guard_examine(k->pins, NULL, k->t.fd, k->a->target.id, links, &why) < 0) {
		problem(k, "pin", "%.120s; %s", why.msg, again(k));
		return;
	}
	tell_links(k, links);
	if (!k->c->problem_count)
		check_below(k);
}

/* ---- maps ---- */

/* The record that we were given may be older than the last change; then what is written down now counts. */
static bool is_replaced(const struct looking *k)
{
	struct attachment *now = calloc(1, sizeof *now);
	struct guardpins p;
	bool fits = false;

	for (int tries = 0; now && !fits && tries < 2; tries++) {
		if (attachment_load(k->a->id, now, NULL) < 0)
			break;
		guardpins_read(k->pins, k->a->target.id, &p);
		fits = (p.has_slot && p.slot.generation == now->generation) || attachment_being_changed();
		attachment_clear(now);
	}
	free(now);
	return fits;
}

static void check_entry(struct looking *k, const struct guardpins *p)
{
	const struct weir_sandbox *sb = &p->entry;

	if (p->no_entry)
		problem(k, "entry", "the cgroup's entry is gone: all it sends is denied; %s", again(k));
	else if (!p->has_entry)
		problem(k, "pin", "the map of entries can't be read: what it says holds still; %s", again(k));
	else if (sb->policy || (sb->flags & ~WEIR_SB_OWN_NET))
		problem(k, "entry", "the cgroup's entry was changed (policy %u, flags %#x); %s", sb->policy, sb->flags,
			again(k));
	if (p->has_slot && !p->slot.image)
		problem(k, "entry", "the policy's slot is empty: all it sends is denied; %s", again(k));
	else if (p->has_slot && p->slot.generation != k->a->generation && !is_replaced(k))
		problem(k, "entry", "generation %u of the policy is in force, and %u was written down; %s", p->slot.generation,
			k->a->generation, again(k));
}

static void check_unknown(struct looking *k, const struct guardpins *p)
{
	bool passes = p->unknown.flags & WEIR_SB_PASS_UNKNOWN;

	if (p->has_unknown && passes != k->a->unknown_passes)
		problem(k, "entry", "what is unknown is %s, and not %s as was asked for; %s", passes ? "let through" : "denied",
			passes ? "denied" : "let through", again(k));
}

static void check_maps(struct looking *k)
{
	struct guardpins p;

	guardpins_read(k->pins, k->a->target.id, &p);
	k->c->readable = p.has_unknown && p.has_stats && (k->a->parent || p.has_entry);
	k->c->counters = p.entry;
	k->c->unknown = p.unknown;
	k->c->lost = p.stats[WEIR_STAT_RING_FULL] + p.stats[WEIR_STAT_FLOW_FULL] + p.stats[WEIR_STAT_BEYOND];
	if (!guardpins_exist(k->pins))
		return; /* said already */
	if (k->a->parent)
		check_unknown(k, &p);
	else
		check_entry(k, &p);
}

/* ---- others ---- */

static bool was_there(const struct attachment *a, unsigned id)
{
	for (size_t i = 0; i < a->foreign_count; i++)
		if (a->foreign[i] == id)
			return true;
	return false;
}

/* One beside ours takes nothing from it: that is told, and all is in force. Returns whether any does more. */
static bool tell_new(struct looking *k)
{
	static const char *const does[FOREIGN_EFFECTS] = {
	    [FOREIGN_BESIDE] = "runs beside ours, and either can deny",
	    [FOREIGN_REFUSES] = "would keep ours from being attached again",
	    [FOREIGN_STOPPED] = "does not run below here, as ours do",
	    [FOREIGN_REWRITES] = "may change a destination after connect() was judged; the packet is judged still",
	};
	bool weakens = false;

	for (size_t i = 0; i < k->c->others.count; i++) {
		const struct foreign *f = &k->c->others.foreign[i];

		if (was_there(k->a, f->id))
			continue;
		problem(k, "foreign", "%.16s (program %u) came to %s of %.80s: it %s", f->prog[0] ? f->prog : "a program",
			f->id, f->hook, f->path, does[f->effect]);
		weakens = weakens || f->effect != FOREIGN_BESIDE;
	}
	return weakens;
}

static bool check_others(struct looking *k)
{
	struct err why = {0};
	size_t before = k->c->problem_count, count = 0;
	const unsigned *own = attach_all_programs(&count);
	int rc = preflight_look(&k->t, &k->roots, own, count, &k->c->others, &why);
	bool weakens = tell_new(k);

	if (rc < 0 && k->c->problem_count == before)
		problem(k, "foreign", "%.200s", why.msg);
	return weakens;
}

/* ---- all of it ---- */

static void check_there(struct looking *k)
{
	char why[160];

	check_links(k);
	check_maps(k);
	if (parents_cut_off(k->a, &k->roots, why, sizeof why))
		problem(k, "parent", "%s", why);
	k->c->state = k->c->problem_count ? ATTACH_DRIFT : ATTACH_IN_FORCE;
	if (check_others(k))
		k->c->state = ATTACH_DRIFT;
}

static void check_away(struct looking *k, enum attach_place place)
{
	k->c->state = place == PLACE_OTHER ? ATTACH_RECREATED : place == PLACE_HIDDEN ? ATTACH_DRIFT : ATTACH_GONE;
	if (place == PLACE_HIDDEN)
		problem(k, "not effective",
			"%.90s can't be seen from here, so nobody knows: look from where the host's cgroup2 is mounted whole",
			k->a->target.path);
	if (place == PLACE_OTHER)
		problem(k, "recreated", "there is another cgroup of that name now, and nothing of Weir's is on it; %s",
			again(k));
	check_maps(k);
}

/* Not all of it: it is large, and what no count covers is not read. */
static void forget_last(struct attach_check *c)
{
	c->state = ATTACH_IN_FORCE;
	c->problem_count = 0;
	c->readable = false;
	c->counters = c->unknown = (struct weir_sandbox){0};
	c->lost = 0;
	c->others.count = c->others.beyond = 0;
}

void attach_check(const struct attachment *a, struct attach_check *ret)
{
	struct looking k = {.a = a, .c = ret};
	struct err why = {0};
	enum attach_place place;

	forget_last(ret);
	attach_pin_dir(k.pins, a->id);
	k.t = a->target;
	k.t.fd = -1;
	if (find_roots(&k.roots, &why) < 0) {
		ret->state = ATTACH_DRIFT;
		problem(&k, "not effective", "the kernel can't be asked: %.180s", why.msg);
		return;
	}
	place = attach_place(a, &k.roots, &k.t.fd);
	if (place == PLACE_THERE && k.t.fd < 0) {
		ret->state = ATTACH_DRIFT;
		problem(&k, "not effective", "%.150s can't be opened", a->target.path);
	} else if (place == PLACE_THERE) {
		check_there(&k);
	} else {
		check_away(&k, place);
	}
	target_close(&k.t);
}
