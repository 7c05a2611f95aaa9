/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instances that died: found, killed, drained, removed.
 *
 * An instance is a name. Its run directory holds a lock file; whoever holds the lock is the instance. A name whose lock can be
 * taken is dead: whatever is left of it in the cgroup trees and among the pins is swept before a new instance starts. Starts
 * and sweeps are serialised by one global lock.
 */
#include "supervisor/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"
#include "supervisor/governed.h"
#include "supervisor/leftover.h"

#define NAMES_MAX 256
#define ATTACHED_NAME "attached" /* last part of ATTACHED_DIR and of ATTACHED_PINS */
#define GLOBAL_LOCK RUN_DIR "/lock"
#define WAY_OUT ".out" /* what the name of a carrier's cgroup has behind its sandbox's */

static int lock_file(const char *path, int flags, int *ret_fd, struct err *e)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_errno(e, errno, "supervisor", "open %s", path);
	if (flock(fd, flags) < 0) {
		int code = errno;

		close(fd);
		return err_errno(e, code, "supervisor", "lock %s", path);
	}
	*ret_fd = fd;
	return 0;
}

/* Whether the file that `fd` holds is still the one at `path`: an uninstall may have removed it while we waited. */
static bool is_at(int fd, const char *path)
{
	struct stat held, there;

	return fstat(fd, &held) == 0 && stat(path, &there) == 0 && held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

int supervisor_lock(int *ret_fd, struct err *e)
{
	for (;;) {
		int fd = -1, rc;

		if (mkdir(RUN_DIR, 0755) < 0 && errno != EEXIST)
			return err_errno(e, errno, "supervisor", "make " RUN_DIR);
		rc = lock_file(GLOBAL_LOCK, LOCK_EX, &fd, e);
		if (rc == -ENOENT)
			continue;
		if (rc < 0)
			return rc;
		if (is_at(fd, GLOBAL_LOCK)) {
			*ret_fd = fd;
			return 0;
		}
		close(fd);
	}
}

static int note_state_dir(const struct supervisor *s, struct err *e)
{
	char path[192], real[PATH_MAX];
	_cleanup_fd_ int fd = -1;

	if (!s->config.state_dir)
		return 0;
	snprintf(path, sizeof path, "%s/state-dir", s->run_dir);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (!realpath(s->config.state_dir, real) || fd < 0 || write(fd, real, strlen(real)) != (ssize_t)strlen(real))
		return err_errno(e, errno, "supervisor", "note the state directory in %s", path);
	return 0;
}

int sweep_claim(struct supervisor *s, struct err *e)
{
	char path[192];
	int rc;

	if (mkdir(s->run_dir, 0700) < 0 && errno != EEXIST)
		return err_errno(e, errno, "supervisor", "make %s", s->run_dir);
	snprintf(path, sizeof path, "%s/lock", s->run_dir);
	rc = lock_file(path, LOCK_EX | LOCK_NB, &s->lock_fd, e);
	if (rc == -EWOULDBLOCK)
		return err_set(e, EBUSY, "supervisor", "another weir already runs on this state directory (instance %s)",
			       s->instance);
	/* For whoever looks for what runs. */
	if (rc == 0 && (ftruncate(s->lock_fd, 0) < 0 || dprintf(s->lock_fd, "%d\n", getpid()) < 0))
		return err_errno(e, errno, "supervisor", "write %s", path);
	return rc < 0 ? rc : note_state_dir(s, e);
}

/* Names of instances that left anything anywhere. Attachments are no instance's: they are meant to outlive us all. */
struct names {
	char name[NAMES_MAX][64];
	unsigned count;
};

static void add_names(struct names *n, const char *dir)
{
	_cleanup_dir_ DIR *d = opendir(dir);
	struct dirent *de;

	while (d && (de = readdir(d))) {
		bool known = de->d_name[0] == '.' || strlen(de->d_name) >= sizeof n->name[0] || de->d_type != DT_DIR ||
			     !strcmp(de->d_name, ATTACHED_NAME);

		for (unsigned i = 0; !known && i < n->count; i++)
			known = !strcmp(n->name[i], de->d_name);
		if (!known && n->count < NAMES_MAX)
			snprintf(n->name[n->count++], sizeof n->name[0], "%.63s", de->d_name);
	}
}

static void find_names(const struct cgroup_host *host, struct names *n)
{
	char path[320];

	add_names(n, RUN_DIR);
	add_names(n, PIN_DIR);
	for (int c = -1; c < CG_CONTROLLERS; c++) {
		const char *mount = c < 0 ? host->v2_path : host->v1_path[c];

		if (!mount[0])
			continue;
		snprintf(path, sizeof path, "%s/" CGROUP_TOP, mount);
		add_names(n, path);
	}
}

/* 1: nobody holds it (and now we do, through *ret_fd; -1 when it has no lock file), 0: alive. */
static int is_dead(const char *name, int *ret_fd)
{
	char path[192];
	int fd;

	*ret_fd = -1;
	snprintf(path, sizeof path, RUN_DIR "/%s/lock", name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT; /* what we can't look at is not ours to end */
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		close(fd);
		return 0;
	}
	*ret_fd = fd;
	return 1;
}

/* What one dead instance left, gathered for its gap record. */
struct dead {
	struct supervisor *s; /* NULL: nobody to report to */
	struct guard *guard;
	struct {
		char name[IPC_ID_MAX];
		uint64_t id;
	} boxes[2 * LIMIT_SANDBOXES]; /* sandboxes and their carriers */
	unsigned box_count;
	unsigned carriers;
	bool readable; /* its maps could be opened */
	unsigned events;
	uint64_t last_boot_ns;
};

/* What a carrier was refused is its sandbox's. */
static void see_box(void *ctx, const char *name, uint64_t id)
{
	const size_t len = strlen(name), tail = strlen(WAY_OUT);
	const bool carrier = len > tail && !strcmp(name + len - tail, WAY_OUT);
	struct dead *d = ctx;

	d->carriers += carrier;
	if (d->box_count < sizeof d->boxes / sizeof d->boxes[0]) {
		snprintf(d->boxes[d->box_count].name, IPC_ID_MAX, "%.*s", (int)(carrier ? len - tail : len), name);
		d->boxes[d->box_count++].id = id;
	}
}

/* Nothing else runs yet, so the auditor can be waited for (bounded): a whole ring may be on its way. */
static void keep_up(struct dead *d)
{
	if (d->s && notes_behind(d->s))
		notes_flush(d->s);
}

/* A sandbox's cgroup bears its id: that is how its events find their run again. */
static void name_of(const struct dead *d, uint64_t cgroup, struct note *n)
{
	for (unsigned i = 0; i < d->box_count; i++)
		if (d->boxes[i].id == cgroup) {
			snprintf(n->run_id, sizeof n->run_id, "%s", d->boxes[i].name);
			snprintf(n->sandbox_id, sizeof n->sandbox_id, "%s", d->boxes[i].name);
		}
}

static void see_event(void *ctx, const struct weir_event *ev)
{
	struct dead *d = ctx;
	struct note n;

	d->events++;
	keep_up(d);
	if (ev->time_ns > d->last_boot_ns)
		d->last_boot_ns = ev->time_ns;
	if (!d->s)
		return;
	note_init(&n, NOTE_EVENT, NULL);
	name_of(d, ev->key.cgroup, &n);
	n.event = *ev;
	notes_push(d->s, &n);
}

/* The counts went on in the kernel while nobody was there: the interrupted runs get theirs. */
static void see_flow(void *ctx, const struct weir_flow_key *key, const struct weir_flow *flow)
{
	struct dead *d = ctx;
	struct note n;

	note_init(&n, NOTE_FLOW, NULL);
	name_of(d, key->cgroup, &n);
	if (!n.run_id[0])
		return;
	n.flow.key = *key;
	n.flow.count = *flow;
	keep_up(d);
	notes_push(d->s, &n);
}

static void remove_run_dir(const char *name)
{
	char path[192], sub[256];
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;

	snprintf(path, sizeof path, RUN_DIR "/%s", name);
	d = opendir(path);
	while (d && (de = readdir(d))) {
		if (de->d_name[0] == '.')
			continue;
		snprintf(sub, sizeof sub, "%.120s/%.120s", path, de->d_name);
		if (de->d_type != DT_DIR) {
			unlink(sub);
			continue;
		}
		/* A stage is a mount only in the dead supervisor's own namespace; here it is a plain directory. */
		rmdir(sub);
	}
	rmdir(path);
}

/*
 * Whether a dead instance has an heir: a state directory that is still there, whose next service will take over what the
 * kernel still knows and put it into its own record. Then we only end what is alive.
 */
static bool has_heir(const char *name)
{
	char path[192], state[PATH_MAX] = "", audit[PATH_MAX + 8];
	_cleanup_fd_ int fd = -1;
	ssize_t n;

	snprintf(path, sizeof path, RUN_DIR "/%s/state-dir", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, state, sizeof state - 1);
	if (n <= 0)
		return false;
	state[n] = 0;
	snprintf(audit, sizeof audit, "%s/audit", state);
	return access(audit, F_OK) == 0;
}

/* A command's connections outlive it, and the programs that judge them go now. A sandbox's are gone with its own network. */
static void end_connections(const struct dead *d, const char *instance)
{
	if (strncmp(instance, GOVERNED_INSTANCE, strlen(GOVERNED_INSTANCE)) != 0)
		return;
	for (unsigned i = 0; i < d->box_count; i++)
		leftover_destroy(d->boxes[i].id);
}

static int sweep_one(const struct cgroup_host *host, const char *name, struct supervisor *s, struct sweep_result *r,
		     struct err *e)
{
	char pins[128];
	struct dead *d = calloc(1, sizeof *d);
	struct cgroup_swept swept = {0};
	uint64_t stats[WEIR_STAT_COUNT] = {0};
	struct err ignored;
	struct note n;
	int rc, rc2;

	if (!d)
		return err_set(e, ENOMEM, "supervisor", "out of memory");
	d->s = s;
	snprintf(pins, sizeof pins, PIN_DIR "/%s", name);
	/* The old programs judge until the last process is dead: only then are their pins removed. */
	if (guard_adopt(&d->guard, pins, &ignored) < 0) {
		d->guard = NULL;
		if (ignored.code != ENOENT)
			log_warn("%s: %s", name, ignored.msg);
	}
	d->readable = d->guard != NULL;
	rc = cgroup_instance_sweep(host, name, see_box, d, &swept, e);
	swept.sandboxes -= d->carriers < swept.sandboxes ? d->carriers : swept.sandboxes;
	end_connections(d, name);
	if (d->guard) {
		while (guard_drain(d->guard, 4096, see_event, d) > 0)
			;
		if (s)
			guard_walk_flows(d->guard, see_flow, d);
		(void)guard_stats(d->guard, stats, &ignored);
		guard_free(d->guard);
	}
	rc2 = rc < 0 ? rc : guard_unpin(pins, e);
	if (rc2 == 0)
		rc2 = cgroup_instance_remove(host, name, e);
	if (rc == 0)
		rc = rc2;
	if (s && rc == 0) {
		note_init(&n, NOTE_GAP, NULL);
		n.gap.sandboxes = swept.sandboxes;
		n.gap.processes = swept.processes;
		n.gap.events = d->events;
		n.gap.ring_lost = stats[WEIR_STAT_RING_FULL];
		n.gap.last_boot_ns = d->last_boot_ns;
		snprintf(n.gap.instance, sizeof n.gap.instance, "%.31s", name);
		snprintf(n.gap.text, sizeof n.gap.text, "%s",
			 d->readable
			     ? "an instance ended without cleaning up; what it left was killed and removed"
			     : "an instance ended without cleaning up and its maps could not be read: attempts may be missing");
		notes_push(s, &n);
		log_warn("swept what instance %s left: %u sandboxes, %u processes, %u events", name, swept.sandboxes,
			 swept.processes, d->events);
	}
	r->instances++;
	r->sandboxes += swept.sandboxes;
	r->processes += swept.processes;
	r->events += d->events;
	free(d);
	return rc;
}

static bool left_anything(const struct cgroup_host *host, const char *name)
{
	char pins[128], tree[512];

	snprintf(pins, sizeof pins, PIN_DIR "/%s", name);
	snprintf(tree, sizeof tree, "%s/" CGROUP_TOP "/%s", host->v2_path, name);
	return access(pins, F_OK) == 0 || access(tree, F_OK) == 0;
}

static int sweep(const struct cgroup_host *host, const char *except, struct supervisor *s, struct sweep_result *ret,
		 struct err *e)
{
	struct names *names = calloc(1, sizeof *names);
	struct sweep_result r = {0};
	int rc = 0;

	if (!names)
		return err_set(e, ENOMEM, "supervisor", "out of memory");
	find_names(host, names);
	for (unsigned i = 0; i < names->count; i++) {
		const char *name = names->name[i];
		bool own = except && !strcmp(name, except);
		int fd = -1, one;

		if (!own && !is_dead(name, &fd)) {
			r.live++;
			continue;
		}
		/* Our own name: we hold its lock, so what stands there is an earlier life of ours. */
		if (own && !left_anything(host, name))
			continue;
		if (!own && s && has_heir(name)) {
			cgroup_instance_kill(host, name);
			if (fd >= 0)
				close(fd);
			continue;
		}
		one = sweep_one(host, name, s, &r, rc == 0 ? e : NULL);
		/* Another's remains that will not go are no reason not to start; our own are. An uninstall wants to know in any
		 * case. */
		if (one < 0 && !own && s)
			log_warn("what instance %s left can't all be removed: %s", name, e ? e->msg : "");
		else if (one < 0 && rc == 0)
			rc = one;
		if (!own && one == 0)
			remove_run_dir(name);
		if (fd >= 0)
			close(fd);
	}
	free(names);
	if (ret)
		*ret = r;
	return rc;
}

int sweep_dead(struct supervisor *s, struct err *e)
{
	return sweep(&s->cgroups.host, s->instance, s, NULL, e);
}

int sweep_own(struct supervisor *s, struct err *e)
{
	struct sweep_result unused = {0};
	struct cgroup_host host;
	int rc;

	rc = cgroup_host_find(&host, e);
	if (rc == 0 && left_anything(&host, s->instance))
		rc = sweep_one(&host, s->instance, s, &unused, e);
	return rc;
}

int supervisor_sweep_all(struct sweep_result *ret, struct err *e)
{
	struct cgroup_host host;
	int rc = cgroup_host_find(&host, e);

	return rc < 0 ? rc : sweep(&host, NULL, NULL, ret, e);
}
