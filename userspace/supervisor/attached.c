/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attachments of this host, as a service sees them: found, taken over, looked at in turn, let go of. What is here is
 * looked at by time and not by notice: files whose change is seen by a look at their directory four times a second, so that
 * hundreds of them cost nothing while nothing happens.
 */
#include "supervisor/attached.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/cidr.h"
#include "core/cleanup.h"
#include "core/log.h"
#include "core/samefile.h"

#define TICK_NS 250000000ull
#define CHECK_NS 2000000000ull	       /* between two looks at one .. */
#define FULL_NS 7500000000ull	       /* .. and between two at all of it, which takes many times as long */
#define CHECK_GONE_NS 8000000000ull    /* .. whose cgroup is gone: it may come back, without its policy */
#define RESCAN_NS 10000000000ull       /* the directory is read anew in any case */
#define CLEAR_NS 60000000000ull	       /* likewise what is remembered is looked through */
#define PARK_NS 2000000000ull	       /* how long an event waits for its policy's name */
#define WINDOW_NS 3600000000000ull     /* a window is at most so long .. */
#define WINDOW_LEAST_NS 60000000000ull /* .. and so long at least, whatever a flood of flows does */
#define BUDGET 256		       /* events of one attachment in a turn */
#define REFRESH_A_TICK 8	       /* policies compiled anew: each takes a millisecond or two */
#define RINGS_A_TURN 8
#define GUARD_FDS 22  /* that an open guard takes */
#define OTHER_FDS 256 /* of the process, beside sandboxes and guards */
#define BOX_FDS 20

struct attached {
	struct supervisor *s;
	struct one_list list;
	unsigned count, open_guards, guards_max;
	struct source rings; /* an epoll set of its own: one switch for all of them */
	bool rings_off;
	int drain_fd; /* the lock; -1: somebody else writes, or there is nothing to write */
	struct progress *progress;
	struct attach_check *check; /* too large for the stack */
	struct target_roots roots;
	char room[256]; /* of theirs */

	struct stat dir; /* when it was read */
	uint64_t tick_ns, scan_ns, lock_ns, clear_ns;
	bool clear_now, recheck;
	unsigned broken; /* directories that can't be read */
	char broken_text[256];
	unsigned window_s;
};

static bool writes(const struct attached *all)
{
	return all->drain_fd >= 0;
}

static bool is_gone(const struct one *o)
{
	return o->a.gone_ns != 0;
}

/* Of a path the end says more than the beginning. */
static const char *short_path(const struct one *o)
{
	const size_t len = strlen(o->a.target.path), room = 90;

	return len > room ? o->a.target.path + len - room : o->a.target.path;
}

static void path_of(const struct one *o, const char *file, char ret[PATH_MAX])
{
	snprintf(ret, PATH_MAX, "%.200s/%.47s/%.40s", attachment_dir, o->a.id, file);
}

static struct stat look_at(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? (struct stat){0} : st;
}

static struct stat file_of(const struct one *o)
{
	char path[PATH_MAX];

	path_of(o, "attachment.json", path);
	return look_at(path);
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

static void close_guard(struct one *o)
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

	if (o->guard || is_gone(o))
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
	window_drain(all->s, o, BUDGET);
	close_guard(o);
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
		window_drain(s, o, BUDGET);
	remembered_make_room(&o->names);
}

/*
 * Under the lock, and `o->a` is what the file says: nobody replaces the policy meanwhile. The first time what is in force was
 * compiled by another process, at another time.
 */
static void renew_policy(struct one *o, bool first)
{
	struct err e = {0};
	int rc;

	o->stale = false;
	if (!o->policy.policy || !o->guard)
		return;
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

/* Everything but the sockets, which are needed once. */
static void copy_attachment(struct one *o, const struct attachment *a)
{
	o->a = *a;
	o->a.sockets = NULL;
	o->file = file_of(o);
}

static bool is_same_policy(const struct attachment *a, const struct attachment *b)
{
	return a->generation == b->generation && !memcmp(a->policy_hash, b->policy_hash, sizeof a->policy_hash) &&
	       a->resolver_count == b->resolver_count && !memcmp(a->resolvers, b->resolvers, sizeof a->resolvers);
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
	struct timespec now;
	uint64_t now_wall;

	clock_gettime(CLOCK_REALTIME, &now);
	now_wall = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
	o->slot = o->all->progress ? progress_of(o->all->progress, o->a.id) : NULL;
	gap.known = o->slot && progress_read(o->slot, &gap.before) && gap.before.record == record;
	if (!gap.known)
		memset(&gap.before, 0, sizeof gap.before);
	gap.told = record > 0 || now_wall - o->a.attached_ns > 5000000000ull;
	return gap;
}

/*
 * Its next window, with its policy as the file has it. -EAGAIN: somebody else has the lock, or the auditor is behind: later.
 * The record's beginning may have a thousand sockets.
 */
static int begin(struct supervisor *s, struct one *o, const struct window_gap *follows)
{
	_cleanup_fd_ int lock = -1;
	struct attachment a = {0};
	struct window_gap gap;
	struct err e = {0};
	int rc;

	if (notes_behind(s) || attachment_lock(0, &lock, &e) < 0)
		return -EAGAIN;
	rc = take_number(o, &a, &e);
	if (rc < 0) {
		if (rc != -ENOENT)
			log_error("%s: its record can't go on: %s", o->a.id, e.msg);
		return rc;
	}
	copy_attachment(o, &a);
	gap = follows ? *follows : find_gap(o, a.record - 1);
	open_guard(o);
	load_policy(s, o);
	renew_policy(o, true);
	o->mine = true;
	o->follows = false;
	window_begin(s, o, &gap, a.record == 1 ? &a : NULL);
	join_rings(o);
	attachment_clear(&a);
	window_unpark(s, o, false);
	return 0;
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

static void end(struct supervisor *s, struct one *o, enum window_end why, const char *detail)
{
	window_end(s, o, why, detail);
	close_guard(o);
	o->mine = o->follows = false;
}

/* ---- the list ---- */

static struct one *find(const struct attached *all, const char *id)
{
	struct one *o;

	TAILQ_FOREACH (o, &all->list, link)
		if (!strcmp(o->a.id, id))
			return o;
	return NULL;
}

static void forget(struct one *o)
{
	struct attached *all = o->all;

	close_guard(o);
	if (o->slot)
		progress_forget(o->slot);
	TAILQ_REMOVE(&all->list, o, link);
	all->count--;
	inforce_clear(&o->policy);
	remembered_clear(&o->names);
	free(o->parked);
	free(o);
}

static void not_readable(struct attached *all, const char *id, const struct err *e)
{
	char text[sizeof all->broken_text];

	all->broken++;
	snprintf(text, sizeof text, "%.47s: %.180s", id, e->msg);
	if (all->broken == 1 && strcmp(text, all->broken_text) != 0) {
		snprintf(all->broken_text, sizeof all->broken_text, "%s", text);
		log_error("an attachment can't be read; what it enforces stays: %s", text);
	}
}

static void add(struct attached *all, const char *id)
{
	struct attachment a = {0};
	struct one *o;
	struct err e;
	int rc;

	if (all->count >= ATTACHED_MAX)
		return;
	rc = attachment_load(id, &a, &e);
	if (rc < 0) {
		/* Without the file it is being made, or taken away. */
		if (rc != -ENOENT)
			not_readable(all, id, &e);
		return;
	}
	o = calloc(1, sizeof *o);
	if (!o) {
		attachment_clear(&a);
		return;
	}
	o->all = all;
	o->a = a;
	o->a.sockets = NULL;
	o->file = file_of(o);
	o->listed = true;
	o->check_ns = now_ns();
	TAILQ_INSERT_TAIL(&all->list, o, link);
	all->count++;
	attachment_clear(&a);
}

static void scan(struct attached *all)
{
	_cleanup_dir_ DIR *d = NULL;
	struct one *o, *next;
	struct dirent *de;

	all->dir = look_at(attachment_dir);
	all->scan_ns = now_ns() + RESCAN_NS;
	all->broken = 0;
	TAILQ_FOREACH (o, &all->list, link)
		o->listed = false;
	d = opendir(attachment_dir);
	while (d && (de = readdir(d))) {
		if (de->d_type != DT_DIR || de->d_name[0] == '.' || strlen(de->d_name) >= IPC_ID_MAX)
			continue;
		o = find(all, de->d_name);
		if (o)
			o->listed = true;
		else
			add(all, de->d_name);
	}
	if (!all->broken)
		all->broken_text[0] = '\0';
	for (o = TAILQ_FIRST(&all->list); o; o = next) {
		next = TAILQ_NEXT(o, link);
		if (o->listed)
			continue;
		end(all->s, o, WINDOW_DETACHED, "");
		forget(o);
	}
}

/* ---- looking at one ---- */

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
static void reread(struct supervisor *s, struct one *o)
{
	struct attachment a = {0};
	struct err e;
	bool another, same;
	int rc = attachment_load(o->a.id, &a, &e);

	if (rc < 0) {
		if (rc != -ENOENT)
			log_error("%s: %s; what it enforces stays", o->a.id, e.msg);
		return;
	}
	another = a.attached_ns != o->a.attached_ns || a.target.id != o->a.target.id;
	same = is_same_policy(&a, &o->a);
	if (o->mine && (another || a.gone_ns))
		end(s, o, another ? WINDOW_DETACHED : WINDOW_REMOVED, another ? "it was put there anew" : "");
	if (another)
		start_anew(o);
	if (o->mine && !same) {
		roll(s, o, WINDOW_POLICY, "");
	} else {
		copy_attachment(o, &a);
		if (!o->mine && !same)
			load_policy(s, o);
	}
	attachment_clear(&a);
}

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

/* Told once when it begins, and once when it is over. */
static void tell_drift(struct supervisor *s, const struct one *o, const struct attach_check *c)
{
	for (size_t i = 0; i < o->problem_count; i++) {
		if (has(c, o->problems[i].name, o->problems[i].text))
			continue;
		log_info("%s (%s): is as it should be again: %s", o->a.id, short_path(o), o->problems[i].name);
		window_drift(s, o, o->problems[i].name, o->problems[i].text, true);
	}
	for (size_t i = 0; i < c->problem_count; i++) {
		if (knows(o, c->problems[i].name, c->problems[i].text))
			continue;
		log_error("%s (%s): %s: %s", o->a.id, short_path(o), c->problems[i].name, c->problems[i].text);
		window_drift(s, o, c->problems[i].name, c->problems[i].text, false);
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
		o->check_ns = now_ns() + TICK_NS;
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
	return look_at(pins);
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
		end(s, o, WINDOW_DETACHED, "it was put there anew");
		start_anew(o);
		try_begin(s, o);
	}
	if (o->mine) {
		tell_drift(s, o, c);
		open_guard(o); /* of one that was damaged and is whole again */
	}
	all->clear_now = all->clear_now || (!is_gone(o) && (c->state == ATTACH_GONE || c->state == ATTACH_RECREATED));
	remember_problems(o, c);
}

static void check(struct supervisor *s, struct one *o)
{
	struct attached *all = o->all;
	struct stat now = file_of(o);

	o->check_ns = now_ns() + (is_gone(o) ? CHECK_GONE_NS : CHECK_NS);
	if (now.st_ino && !same_file(&now, &o->file))
		reread(s, o);
	/* A window first: what is found now belongs in its record. */
	if (writes(all) && !o->mine && !is_gone(o))
		try_begin(s, o);
	if (!is_as_it_was(o))
		check_fully(s, o);
	if (!writes(all) || !o->mine)
		return;
	check_window(s, o);
	close_if_scarce(o);
}

/* ---- who writes ---- */

static bool known_id(void *ctx, const char *id)
{
	return find(ctx, id) != NULL;
}

static void take_lock(struct attached *all)
{
	_cleanup_fd_ int fd = -1;
	char path[PATH_MAX];
	struct err e;

	all->lock_ns = now_ns() + CHECK_NS;
	snprintf(path, sizeof path, "%.200s/drain", attachment_dir);
	/* The directory is made by whoever attaches first. */
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return;
	if (ftruncate(fd, 0) < 0 || dprintf(fd, "%d\n", getpid()) < 0) {
		log_error("%s can't be written: %s", path, strerror(errno));
		return;
	}
	snprintf(path, sizeof path, "%.200s/drained", attachment_dir);
	if (progress_open(&all->progress, path, &e) < 0)
		log_error("how far records are will not be remembered: %s", e.msg);
	else
		progress_prune(all->progress, known_id, all);
	all->drain_fd = TAKE_FD(fd);
	all->recheck = true;
	log_info("writing the events of what has a policy on this host");
}

/* An uninstall may have taken the directory away, and with it what was locked. */
static bool lock_is_there(const struct attached *all)
{
	char path[PATH_MAX];
	struct stat held, there;

	snprintf(path, sizeof path, "%.200s/drain", attachment_dir);
	return fstat(all->drain_fd, &held) == 0 && stat(path, &there) == 0 && held.st_dev == there.st_dev &&
	       held.st_ino == there.st_ino;
}

static void drop_lock(struct attached *all)
{
	struct one *o;

	TAILQ_FOREACH (o, &all->list, link)
		o->slot = NULL;
	all->progress = progress_close(all->progress);
	cleanup_fdp(&all->drain_fd);
	all->drain_fd = -1;
}

/* ---- what is due ---- */

static void last(void *ctx, const struct attachment *a)
{
	struct attached *all = ctx;
	struct one *o = find(all, a->id);

	if (!o)
		return;
	/* It came and went between two looks: its events have a record all the same, but for the lock, which is held by now. */
	if (!o->mine)
		open_guard(o);
	end(all->s, o, WINDOW_REMOVED, "");
}

static void clear_up(struct attached *all)
{
	struct err e = {0};
	int rc;

	all->clear_now = false;
	all->clear_ns = now_ns() + CLEAR_NS;
	rc = attach_clear_up(last, all, &e);
	if (rc < 0)
		log_error("what is left of cgroups that are gone can't be cleared up: %s", e.msg);
	if (rc != 0)
		scan(all);
}

static void refresh_some(struct attached *all)
{
	_cleanup_fd_ int lock = -1;
	unsigned done = 0;
	struct one *o;
	struct err e;

	TAILQ_FOREACH (o, &all->list, link) {
		struct stat now;

		if (!o->stale || !o->mine)
			continue;
		if (lock < 0 && attachment_lock(0, &lock, &e) < 0)
			return;
		/* Somebody has just swapped the policy: its file is read first, in its turn. */
		now = file_of(o);
		if (!same_file(&now, &o->file))
			o->check_ns = 0;
		else
			renew_policy(o, false);
		if (++done == REFRESH_A_TICK)
			return;
	}
}

static void check_due(struct attached *all)
{
	unsigned most = all->recheck ? all->count : all->count / 4 + 2;
	struct one *o, *next;
	uint64_t now = now_ns();

	for (o = TAILQ_FIRST(&all->list); o && most; o = next) {
		next = TAILQ_NEXT(o, link);
		if (o->parked_count && now - o->parked_ns > PARK_NS)
			window_unpark(all->s, o, true);
		else if (o->parked_count)
			o->check_ns = now;
		if (o->check_ns > now && !all->recheck)
			continue;
		check(all->s, o);
		/* To the end, so that none waits for ever while the first are due again. */
		TAILQ_REMOVE(&all->list, o, link);
		TAILQ_INSERT_TAIL(&all->list, o, link);
		most--;
	}
	all->recheck = false;
}

void attached_tick(struct supervisor *s)
{
	struct attached *all = s->attached;
	uint64_t now = now_ns();
	struct stat dir;

	if (!all || now < all->tick_ns)
		return;
	all->tick_ns = now + TICK_NS;
	dir = look_at(attachment_dir);
	if (!same_file(&dir, &all->dir) || now >= all->scan_ns)
		scan(all);
	if (writes(all) && !lock_is_there(all))
		drop_lock(all);
	if (!writes(all) && now >= all->lock_ns && dir.st_ino)
		take_lock(all);
	check_due(all);
	if (!writes(all))
		return;
	refresh_some(all);
	if (all->clear_now || now >= all->clear_ns)
		clear_up(all);
}

uint64_t attached_wake_ns(const struct supervisor *s)
{
	return s->attached ? s->attached->tick_ns : 0;
}

void attached_refresh(struct supervisor *s)
{
	struct one *o;

	if (!s->attached)
		return;
	TAILQ_FOREACH (o, &s->attached->list, link)
		o->stale = o->policy.policy != NULL;
}

void attached_recheck(struct supervisor *s)
{
	if (!s->attached)
		return;
	s->attached->recheck = true;
	s->attached->tick_ns = s->attached->scan_ns = 0;
}

bool attached_problem(const struct supervisor *s, char *ret, size_t size)
{
	const struct attached *all = s->attached;
	const struct one *o;

	if (!all)
		return false;
	if (all->broken) {
		snprintf(ret, size, "an attachment can't be read: %s", all->broken_text);
		return true;
	}
	TAILQ_FOREACH (o, &all->list, link) {
		if (o->looked && (o->state == ATTACH_IN_FORCE || o->state == ATTACH_GONE))
			continue;
		if (!o->looked)
			snprintf(ret, size, "%s (%s) has not been looked at yet", o->a.id, short_path(o));
		else
			snprintf(ret, size, "%s (%s) is not in force: %s%s%.100s", o->a.id, short_path(o),
				 attach_state_names[o->state], o->problem_count ? ": " : "",
				 o->problem_count ? o->problems[0].text : "");
		return true;
	}
	return false;
}

/* ---- the rings ---- */

static void on_rings(struct supervisor *s, struct source *src, uint32_t events)
{
	struct epoll_event ready[RINGS_A_TURN];
	int n;

	(void)events;
	if (notes_behind(s)) {
		attached_want_rings(s, false);
		return;
	}
	/* Each gets as much as the others: a flood in one is a flood in its own ring. */
	n = epoll_wait(src->fd, ready, RINGS_A_TURN, 0);
	for (int i = 0; i < n; i++) {
		struct one *o = ready[i].data.ptr;

		if (o->mine)
			window_drain(s, o, BUDGET);
	}
}

void attached_want_rings(struct supervisor *s, bool want)
{
	struct attached *all = s->attached;
	struct epoll_event ev = {.events = want ? EPOLLIN : 0};

	if (!all || all->rings_off != want)
		return;
	ev.data.ptr = &all->rings;
	if (epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, all->rings.fd, &ev) == 0)
		all->rings_off = !want;
}

/* ---- beginning and end ---- */

/* How many guards can be open at once beside everything else. */
static unsigned guards_max(const struct supervisor *s)
{
	rlim_t taken = OTHER_FDS + (s->config.policy_only ? 0 : (rlim_t)LIMIT_SANDBOXES * BOX_FDS);
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur <= taken)
		return 0;
	return r.rlim_cur - taken > (rlim_t)ATTACHED_MAX * GUARD_FDS ? ATTACHED_MAX : (unsigned)((r.rlim_cur - taken) / GUARD_FDS);
}

int attached_open(struct supervisor *s, struct err *e)
{
	struct attached *all = calloc(1, sizeof *all);
	int rc;

	if (!all)
		return err_set(e, ENOMEM, "attached", "out of memory");
	s->attached = all;
	all->s = s;
	TAILQ_INIT(&all->list);
	all->drain_fd = -1;
	all->guards_max = guards_max(s);
	all->window_s = s->config.window_s;
	all->clear_ns = now_ns() + CHECK_NS;
	all->recheck = true;
	all->rings = (struct source){.fn = on_rings, .fd = epoll_create1(EPOLL_CLOEXEC)};
	all->check = calloc(1, sizeof *all->check);
	if (!all->check)
		return err_set(e, ENOMEM, "attached", "out of memory");
	rc = target_host_roots(&all->roots, all->room, e);
	if (rc < 0)
		return rc;
	if (all->rings.fd < 0 || source_add(s, &all->rings, EPOLLIN) < 0)
		return err_errno(e, errno, "attached", "make an event loop for rings");
	return 0;
}

void attached_close(struct supervisor *s)
{
	struct attached *all = s->attached;
	struct one *o;

	if (!all)
		return;
	while ((o = TAILQ_FIRST(&all->list))) {
		if (s->notes && writes(all)) {
			if (notes_behind(s))
				notes_flush(s);
			end(s, o, WINDOW_STOPPED, "");
		}
		o->slot = NULL; /* what is in it is the next service's */
		forget(o);
	}
	drop_lock(all);
	source_close(s, &all->rings);
	free(all->check);
	free(all);
	s->attached = NULL;
}
