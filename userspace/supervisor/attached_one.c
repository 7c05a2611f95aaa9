/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One attachment: its guard, its policy, the windows of its record, and whether it still holds. Most looks at it are quick; all
 * of it is looked at every few seconds, and whenever a quick look finds a difference.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/cidr.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/samefile.h"
#include "supervisor/attached.h"

#define CHECK_NS 2000000000ull	       /* between two looks at one .. */
#define FULL_NS 7500000000ull	       /* .. and between two at all of it, which takes many times as long */
#define CHECK_GONE_NS 8000000000ull    /* .. whose cgroup is gone: it may come back, without its policy */
#define RETRY_NS 250000000ull	       /* somebody else has the lock */
#define WINDOW_NS 3600000000000ull     /* a window is at most so long .. */
#define WINDOW_LEAST_NS 60000000000ull /* .. and so long at least, whatever a flood of flows does */
#define TOLD_S 5		       /* nobody misses a service for so long after it was attached */

static bool is_gone(const struct one *o)
{
	return o->a.gone_ns != 0;
}

static void path_of(const struct one *o, const char *file, char ret[PATH_MAX])
{
	snprintf(ret, PATH_MAX, "%.200s/%.47s/%.40s", attachment_dir, o->a.id, file);
}

struct stat one_file(const struct one *o)
{
	char path[PATH_MAX];

	path_of(o, "attachment.json", path);
	return attached_stat(path);
}

/* ---- its guard: open as long as there are descriptors for it ---- */

static void leave_rings(struct one *o)
{
	if (o->in_rings)
		(void)epoll_ctl(o->all->rings.fd, EPOLL_CTL_DEL, guard_ring_fd(o->guard), NULL);
	o->in_rings = false;
}

/* While there is a window to write to, and descriptors: else what waits there would wake us without end. */
static void join_rings(struct one *o)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = o};

	if (o->guard && o->open && !o->in_rings && o->all->open_guards <= o->all->guards_max)
		o->in_rings = epoll_ctl(o->all->rings.fd, EPOLL_CTL_ADD, guard_ring_fd(o->guard), &ev) == 0;
}

void one_close(struct one *o)
{
	if (!o->guard)
		return;
	leave_rings(o);
	o->guard = guard_free(o->guard);
	o->all->open_guards--;
}

/* Quiet: what keeps it from being opened is told by the look that follows. */
static void open_guard(struct one *o)
{
	char pins[PATH_MAX];
	struct err e;

	if (o->guard)
		return;
	snprintf(pins, sizeof pins, "%.200s/%.47s", attachment_pins, o->a.id);
	if (guard_adopt(&o->guard, pins, &e) < 0) {
		o->guard = NULL;
		return;
	}
	o->all->open_guards++;
	join_rings(o);
}

/* More than there are descriptors for are opened in their turn, drained and closed again. */
static void close_if_scarce(struct one *o)
{
	struct attached *all = o->all;

	if (!o->guard || o->in_rings)
		return;
	window_drain(all->s, o, ATTACHED_BUDGET);
	one_close(o);
}

/* ---- its policy ---- */

static size_t resolvers_of(const struct attachment *a, struct cidr ret[RESOLVCONF_SERVERS])
{
	size_t n = 0;
	struct err e;

	for (size_t i = 0; i < a->resolver_count && n < RESOLVCONF_SERVERS; i++)
		if (cidr_parse_addr(a->resolvers[i], strlen(a->resolvers[i]), &ret[n], &e) == 0)
			n++;
	return n;
}

/* What was judged by it can't be named without it, and its sets grow old; it goes on judging. */
static void load_policy(struct supervisor *s, struct one *o)
{
	struct inforce fresh = {0};
	struct cidr servers[RESOLVCONF_SERVERS];
	char path[PATH_MAX];
	struct err e;

	if (o->a.parent)
		return;
	path_of(o, "policy.json", path);
	if (inforce_load_seeing(&fresh, path, servers, resolvers_of(&o->a, servers), &e) < 0) {
		log_error("%s: its policy's document can't be read (%s: %s); what is in force stays, and is not kept current",
			  o->a.id, e.where, e.msg);
		inforce_clear(&o->policy);
		return;
	}
	fresh.generation = o->a.generation;
	inforce_clear(&o->policy);
	o->policy = fresh;
	if (remembered_has(&o->names, fresh.generation))
		return;
	if (remembered_add(&o->names, &o->policy))
		window_drain(s, o, ATTACHED_BUDGET);
	remembered_make_room(&o->names);
}

/*
 * Under the lock, and `o->a` is what the file says: nobody replaces the policy meanwhile. The first time what is in force was
 * compiled by another process, at another time.
 */
void one_renew_policy(struct one *o, bool first)
{
	struct err e = {0};
	int rc;

	o->stale = false;
	if (!o->policy.policy || !o->guard)
		return;
	/* What the kernel has is another by now, whatever the file says: it is read first. */
	if (guard_get_generation(o->guard, 0) != o->a.generation) {
		o->stale = true;
		o->check_ns = 0;
		return;
	}
	rc = first ? inforce_resume(&o->policy, o->guard, 0, o->a.generation, &e) : inforce_refresh(&o->policy, o->guard, &e);
	if (rc < 0) {
		log_error("%s: its policy does not know the host's new addresses yet (%s: %s)", o->a.id, e.where, e.msg);
		o->stale = true;
	}
}

/* ---- taking over, and windows ---- */

/* Takes the number of a new window, in the file. The lock is the caller's. With its sockets: *ret is to be cleared. */
static int take_number(struct one *o, struct attachment *ret, struct err *e)
{
	int rc = attachment_load(o->a.id, ret, e);

	if (rc < 0)
		return rc;
	ret->record++;
	rc = attachment_save(ret, NULL, 0, e);
	if (rc < 0)
		attachment_clear(ret);
	return rc;
}

/* Everything but the sockets, which are needed once. `file`: as it was before it was read, so that no change is missed. */
static void copy_attachment(struct one *o, const struct attachment *a, const struct stat *file)
{
	o->a = *a;
	o->a.sockets = NULL;
	o->file = *file;
}

static bool is_same_policy(const struct attachment *a, const struct attachment *b)
{
	return a->unknown_passes == b->unknown_passes && a->generation == b->generation &&
	       !memcmp(a->policy_hash, b->policy_hash, sizeof a->policy_hash) && a->resolver_count == b->resolver_count &&
	       !memcmp(a->resolvers, b->resolvers, sizeof a->resolvers);
}

/* `gap` of a window that follows one of our own: nothing was missed. */
static struct window_gap no_gap(const struct one *o)
{
	return (struct window_gap){.before = o->at, .known = true};
}

/* Since when nobody wrote; nothing to tell of one that was made a moment ago. */
static struct window_gap find_gap(struct one *o, uint32_t record)
{
	struct window_gap gap = {0};

	o->slot = o->all->progress ? progress_of(o->all->progress, o->a.id) : NULL;
	gap.known = o->slot && progress_read(o->slot, &gap.before) && gap.before.record == record;
	if (!gap.known)
		memset(&gap.before, 0, sizeof gap.before);
	gap.told = record > 0 || clock_wall_ns() - o->a.attached_ns > TOLD_S * SECOND_NS;
	return gap;
}

/* Its next window, with its policy as the file has it. Under the lock. */
int one_begin_locked(struct supervisor *s, struct one *o, const struct window_gap *follows)
{
	struct attachment a = {0};
	struct window_gap gap;
	struct stat file;
	struct err e = {0};
	int rc = take_number(o, &a, &e);

	if (rc < 0) {
		if (rc != -ENOENT)
			log_error("%s: its record can't go on: %s", o->a.id, e.msg);
		return rc;
	}
	file = one_file(o); /* we have just written it */
	copy_attachment(o, &a, &file);
	gap = follows ? *follows : find_gap(o, a.record - 1);
	open_guard(o);
	load_policy(s, o);
	one_renew_policy(o, true);
	o->mine = true;
	o->follows = false;
	window_begin(s, o, &gap, a.record == 1 ? &a : NULL);
	join_rings(o);
	attachment_clear(&a);
	window_unpark(s, o, false);
	return 0;
}

/* -EAGAIN: somebody else has the lock, or the auditor is behind: later. The beginning may have a thousand sockets. */
static int begin(struct supervisor *s, struct one *o, const struct window_gap *follows)
{
	_cleanup_fd_ int lock = -1;
	struct err e;

	if (notes_behind(s) || attachment_lock(0, &lock, &e) < 0)
		return -EAGAIN;
	return one_begin_locked(s, o, follows);
}

/* One window after the other. When the next can't begin now, it is tried again when it is looked at next. */
static void roll(struct supervisor *s, struct one *o, enum window_end why, const char *detail)
{
	struct window_gap gap;

	if (notes_behind(s))
		return; /* it can wait, and stays due */
	window_end(s, o, why, detail);
	leave_rings(o);
	o->mine = false;
	o->follows = true;
	o->check_ns = now_ns();
	gap = no_gap(o);
	(void)begin(s, o, &gap);
}

void one_end(struct supervisor *s, struct one *o, enum window_end why, const char *detail)
{
	window_end(s, o, why, detail);
	window_use_close(s, o);
	one_close(o);
	o->mine = o->follows = false;
}

/* ---- looking at one ---- */

static bool knows(const struct one *o, const char *name, const char *text)
{
	for (size_t i = 0; i < o->problem_count; i++)
		if (!strcmp(o->problems[i].name, name) && !strcmp(o->problems[i].text, text))
			return true;
	return false;
}

static bool has(const struct attach_check *c, const char *name, const char *text)
{
	for (size_t i = 0; i < c->problem_count; i++)
		if (!strcmp(c->problems[i].name, name) && !strcmp(c->problems[i].text, text))
			return true;
	return false;
}

/* Whether it has leave at a carried parent, to be judged by its own programs alone. */
static bool has_leave(const struct one *o)
{
	const char *slash = strrchr(o->a.target.path, '/');
	const struct one *p;
	size_t len;

	if (!slash)
		return false;
	len = (size_t)(slash - o->a.target.path);
	TAILQ_FOREACH (p, &o->all->list, link)
		if (p->a.parent && strlen(p->a.target.path) == len && !strncmp(p->a.target.path, o->a.target.path, len))
			return true;
	return false;
}

/* Told once when it begins, and once when it is over. */
static void tell_drift(struct supervisor *s, const struct one *o, const struct attach_check *c)
{
	for (size_t i = 0; i < o->problem_count; i++) {
		if (has(c, o->problems[i].name, o->problems[i].text))
			continue;
		log_info("%s (%s): is as it should be again: %s", o->a.id, one_path(o), o->problems[i].name);
		window_drift(s, o, o->problems[i].name, o->problems[i].text, true);
	}
	for (size_t i = 0; i < c->problem_count; i++) {
		if (knows(o, c->problems[i].name, c->problems[i].text))
			continue;
		log_error("%s (%s): %s: %s", o->a.id, one_path(o), c->problems[i].name, c->problems[i].text);
		window_drift(s, o, c->problems[i].name, c->problems[i].text, false);
		/* When its own programs do not judge it any more, its leave goes at once, and the parent's do. */
		o->all->clear_now = o->all->clear_now || has_leave(o);
	}
}

static void remember_problems(struct one *o, const struct attach_check *c)
{
	o->problem_count = c->problem_count;
	for (size_t i = 0; i < c->problem_count; i++) {
		memcpy(o->problems[i].name, c->problems[i].name, sizeof o->problems[i].name);
		memcpy(o->problems[i].text, c->problems[i].text, sizeof o->problems[i].text);
	}
	o->state = c->state;
	o->looked = true;
}

/* Its cgroup is gone; or there is another in its place by now, which is told before the record ends. */
void one_end_removed(struct supervisor *s, struct one *o)
{
	struct attach_check *c = o->all->check;

	attach_check(&o->a, c);
	tell_drift(s, o, c);
	remember_problems(o, c);
	one_end(s, o, WINDOW_REMOVED, c->state == ATTACH_RECREATED ? "there is another cgroup of that name now" : "");
	/* It will not go on. */
	if (o->slot)
		progress_forget(o->slot);
	o->slot = NULL;
}

/* Its maps are others: counters and generations begin anew. */
static void start_anew(struct one *o)
{
	if (o->slot)
		progress_forget(o->slot);
	o->slot = NULL;
	o->follows = false;
	remembered_clear(&o->names);
}

/* Its file has changed: the policy was replaced, the cgroup is gone, or it was put there anew. */
static void reread(struct supervisor *s, struct one *o, const struct stat *file)
{
	struct attachment a = {0};
	struct err e;
	bool another, same;
	int rc = attachment_load(o->a.id, &a, &e);

	if (rc < 0) {
		if (rc != -ENOENT)
			log_error("%s: %s; what it enforces stays", o->a.id, e.msg);
		o->file = *file; /* told once */
		return;
	}
	another = a.attached_ns != o->a.attached_ns || a.target.id != o->a.target.id;
	same = is_same_policy(&a, &o->a);
	if (o->mine && another)
		one_end(s, o, WINDOW_DETACHED, "it was put there anew");
	else if (o->mine && a.gone_ns)
		one_end_removed(s, o);
	if (another)
		start_anew(o);
	if (o->mine && !same) {
		roll(s, o, WINDOW_POLICY,
		     !a.parent		? ""
		     : a.unknown_passes ? "what has no policy of its own below it is let through from now on"
					: "what has no policy of its own below it is denied from now on");
	} else {
		copy_attachment(o, &a, file);
		if (!o->mine && !same)
			load_policy(s, o);
	}
	attachment_clear(&a);
}

static uint64_t window_ns(const struct attached *all)
{
	return all->window_s ? all->window_s * 1000000000ull : WINDOW_NS;
}

static uint64_t window_least_ns(const struct attached *all)
{
	return window_ns(all) < WINDOW_LEAST_NS ? window_ns(all) : WINDOW_LEAST_NS;
}

static void check_window(struct supervisor *s, struct one *o)
{
	uint64_t age = now_ns() - o->began_ns;

	if (!o->open)
		return;
	window_look(s, o);
	if (o->full && age >= window_least_ns(o->all))
		roll(s, o, WINDOW_FULL, "its list of flows was nearly full");
	else if (age >= window_ns(o->all))
		roll(s, o, WINDOW_HOUR, "");
}

static void try_begin(struct supervisor *s, struct one *o)
{
	const struct window_gap none = no_gap(o);

	if (begin(s, o, o->follows ? &none : NULL) == -EAGAIN)
		o->check_ns = now_ns() + RETRY_NS;
}

/* Whether the pins are others than those that we have open: an entry's epoch is its own. */
static bool is_replaced(const struct one *o, const struct attach_check *c)
{
	return !o->a.parent && o->guard && c->readable && o->at.seen.epoch && c->counters.epoch != o->at.seen.epoch;
}

static struct stat pins_of(const struct one *o)
{
	char pins[PATH_MAX];

	snprintf(pins, sizeof pins, "%.200s/%.47s", attachment_pins, o->a.id);
	return attached_stat(pins);
}

static bool has_pins(const struct one *o)
{
	return pins_of(o).st_ino != 0;
}

/*
 * Whether all is as it was when all of it was looked at and found in force, as far as a few questions can tell: the cgroup is
 * the same, no pin has come or gone, our programs are in force on it, and its entry says what it said.
 */
static bool is_as_it_was(const struct one *o)
{
	const struct attached *all = o->all;
	_cleanup_fd_ int fd = -1;
	char path[PATH_MAX + 256];
	struct weir_sandbox sb;
	struct stat st, pins;
	struct err e;

	if (!o->looked || o->problem_count || o->state != ATTACH_IN_FORCE || !o->guard || now_ns() >= o->full_ns)
		return false;
	snprintf(path, sizeof path, "%s%s", all->roots.cgroup2, o->a.target.path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_ino != o->a.target.id)
		return false;
	pins = pins_of(o);
	if (!same_file(&pins, &o->pins) || guard_verify(o->guard, fd, &e) < 0)
		return false;
	if (o->a.parent)
		return guard_get_unknown(o->guard, &sb) == o->a.unknown_passes;
	return guard_get_generation(o->guard, 0) == o->a.generation &&
	       guard_get_sandbox(o->guard, o->a.target.id, &sb, &e) == 0 && sb.epoch == o->at.seen.epoch &&
	       sb.policy == o->at.seen.policy && sb.flags == o->at.seen.flags;
}

/* All of it. What is found is told, and remembered for the quick looks that follow. */
static void check_fully(struct supervisor *s, struct one *o)
{
	struct attached *all = o->all;
	struct attach_check *c = all->check;

	o->full_ns = now_ns() + FULL_NS;
	o->pins = pins_of(o);
	attach_check(&o->a, c);
	if (o->mine && is_replaced(o, c)) {
		one_end(s, o, WINDOW_DETACHED, "it was put there anew");
		start_anew(o);
		try_begin(s, o);
	}
	if (attached_writes(all))
		tell_drift(s, o, c);
	if (o->mine)
		open_guard(o); /* of one that was damaged and is whole again */
	all->clear_now = all->clear_now || ((c->state == ATTACH_GONE || c->state == ATTACH_RECREATED) && has_pins(o));
	remember_problems(o, c);
}

void one_check(struct supervisor *s, struct one *o)
{
	struct attached *all = o->all;
	struct stat now = one_file(o);

	o->check_ns = now_ns() + (is_gone(o) ? CHECK_GONE_NS : CHECK_NS);
	if (now.st_ino && !same_file(&now, &o->file))
		reread(s, o, &now);
	/* A window first: what is found now belongs in its record. Of one that came and went meanwhile too: the ring has it. */
	if (attached_writes(all) && !o->mine && (!is_gone(o) || has_pins(o)))
		try_begin(s, o);
	if (!is_as_it_was(o))
		check_fully(s, o);
	if (!attached_writes(all) || !o->mine)
		return;
	check_window(s, o);
	close_if_scarce(o);
}
