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
#define LOCK_NS 2000000000ull	      /* how often it is tried to become the one that writes */
#define RESCAN_NS 10000000000ull      /* the directory is read anew in any case */
#define CLEAR_NS 60000000000ull	      /* likewise what is remembered is looked through */
#define CLEAR_LEAST_NS 1000000000ull  /* .. and what can't be cleared up is not tried more often */
#define PARK_NS 2000000000ull	      /* how long an event waits for its policy's name */
#define REFRESH_A_TICK 8	      /* policies compiled anew: each takes a millisecond or two */
#define LISTED_MAX (2 * ATTACHED_MAX) /* those that are gone and remembered among them */
#define RINGS_A_TURN 8
#define GUARD_FDS 22  /* that an open guard takes */
#define OTHER_FDS 256 /* of the process, beside sandboxes and guards */
#define BOX_FDS 20

bool attached_writes(const struct attached *all)
{
	return all->drain_fd >= 0;
}

/* Of a path the end says more than the beginning. */
const char *one_path(const struct one *o)
{
	const size_t len = strlen(o->a.target.path), room = 90;

	return len > room ? o->a.target.path + len - room : o->a.target.path;
}

struct stat attached_stat(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? (struct stat){0} : st;
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

	one_close(o);
	if (o->slot)
		progress_forget(o->slot);
	TAILQ_REMOVE(&all->list, o, link);
	all->count--;
	inforce_clear(&o->policy);
	remembered_clear(&o->names);
	window_use_close(all->s, o);
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
	char path[PATH_MAX];
	struct stat file;
	struct one *o;
	struct err e;
	int rc;

	if (all->count >= LISTED_MAX)
		return;
	snprintf(path, sizeof path, "%.200s/%.47s/attachment.json", attachment_dir, id);
	file = attached_stat(path);
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
	o->file = file;
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

	all->dir = attached_stat(attachment_dir);
	all->scan_ns = now_ns() + RESCAN_NS;
	all->broken = 0;
	for (o = TAILQ_FIRST(&all->list); o; o = TAILQ_NEXT(o, link))
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
		one_end(all->s, o, WINDOW_DETACHED, "");
		forget(o);
	}
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

	all->lock_ns = now_ns() + LOCK_NS;
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

	for (o = TAILQ_FIRST(&all->list); o; o = TAILQ_NEXT(o, link))
		o->slot = NULL;
	all->progress = progress_close(all->progress);
	cleanup_fdp(&all->drain_fd);
	all->drain_fd = -1;
}

/* ---- what is due ---- */

/* The lock is held by who calls. */
static void last(void *ctx, const struct attachment *a)
{
	struct attached *all = ctx;
	struct one *o = find(all, a->id);

	/* It may have come and gone between two looks. */
	if (!o) {
		add(all, a->id);
		o = find(all, a->id);
	}
	if (o && !o->mine)
		(void)one_begin_locked(all->s, o, NULL);
	if (o && o->mine)
		one_end_removed(all->s, o);
}

static void clear_up(struct attached *all)
{
	struct err e = {0};
	int rc;

	all->clear_now = false;
	all->cleared_ns = now_ns();
	all->clear_ns = all->cleared_ns + CLEAR_NS;
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
		now = one_file(o);
		if (!same_file(&now, &o->file))
			o->check_ns = 0;
		else
			one_renew_policy(o, false);
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
		one_check(all->s, o);
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
	dir = attached_stat(attachment_dir);
	if (!same_file(&dir, &all->dir) || now >= all->scan_ns)
		scan(all);
	if (attached_writes(all) && !lock_is_there(all))
		drop_lock(all);
	if (!attached_writes(all) && now >= all->lock_ns && dir.st_ino)
		take_lock(all);
	check_due(all);
	if (!attached_writes(all))
		return;
	refresh_some(all);
	if ((all->clear_now && now >= all->cleared_ns + CLEAR_LEAST_NS) || now >= all->clear_ns)
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
	for (o = TAILQ_FIRST(&s->attached->list); o; o = TAILQ_NEXT(o, link))
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
			snprintf(ret, size, "%s (%s) has not been looked at yet", o->a.id, one_path(o));
		else
			snprintf(ret, size, "%s (%s) is not in force: %s%s%.100s", o->a.id, one_path(o),
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
	/* Each gets as much as the others: a flood in one is a flood in its own ring. */
	n = epoll_wait(src->fd, ready, RINGS_A_TURN, 0);
	for (int i = 0; i < n; i++) {
		struct one *o = ready[i].data.ptr;

		if (o->mine)
			window_drain(s, o, ATTACHED_BUDGET);
	}
}

/* ---- beginning and end ---- */

/* How many guards can be open at once beside everything else. */
static unsigned guards_max(const struct supervisor *s)
{
	rlim_t taken = OTHER_FDS + (s->config.policy_only ? 0 : (rlim_t)LIMIT_SANDBOXES * BOX_FDS);
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur <= taken)
		return 0;
	return r.rlim_cur - taken > (rlim_t)ATTACHED_MAX * GUARD_FDS ? ATTACHED_MAX
								     : (unsigned)((r.rlim_cur - taken) / GUARD_FDS);
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
	all->clear_ns = now_ns() + LOCK_NS;
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
		if (s->notes && attached_writes(all)) {
			if (notes_behind(s))
				notes_flush(s);
			one_end(s, o, WINDOW_STOPPED, "");
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
