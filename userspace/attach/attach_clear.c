/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/attach_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/clock.h"
#include "kernel/guardpins.h"

#define GONE_KEPT 256		  /* remembered at once */
#define GRACE_NS (10 * SECOND_NS) /* how long pins of a cgroup that is gone are left to a service that drains them */
#define PATIENCE 20
#define KEPT_NS (ATTACHED_GONE_KEPT_S * SECOND_NS)

/* Whether another attachment judges the same cgroup: then its leave at parents stays. */
static bool judged_by_another(const struct attachment_list *l, const struct attachment *a, const struct target_roots *roots)
{
	for (size_t i = 0; i < l->count; i++)
		if (l->each[i].target.id == a->target.id && strcmp(l->each[i].id, a->id) != 0 &&
		    attach_holds(&l->each[i], roots))
			return true;
	return false;
}

int attach_drop(const char *id, struct err *e)
{
	char pins[PATH_MAX];
	int rc;

	attach_pin_dir(pins, id);
	/* Detached and not only let go of: a service that drains it holds its links too. */
	rc = guard_detach(pins, e);
	attach_step("detached");
	if (rc == 0)
		rc = guard_unpin(pins, e);
	attach_step("unpinned");
	if (rc == 0)
		rc = attachment_forget(id, e);
	attach_step("forgotten");
	return rc;
}

/* In this order: leave first, or for a moment nobody would judge it; the record last, so that what is left has a name. */
int attach_take_off(const struct attachment_list *l, const struct attachment *a, struct err *e)
{
	struct target_roots roots = {0};
	struct target t = a->target;
	char room[256], pins[PATH_MAX];
	int rc = target_host_roots(&roots, room, e);

	attach_pin_dir(pins, a->id);
	if (!t.id)
		t.id = guardpins_cgroup(pins);
	if (rc == 0 && t.id && !judged_by_another(l, a, &roots))
		rc = parents_take_leave(l, &t, e);
	attach_step("leave taken");
	return rc == 0 ? attach_drop(a->id, e) : rc;
}

int attach_remove(const struct attachment *a, struct err *e)
{
	struct attachment_list l = {0};
	_cleanup_fd_ int lock = -1;
	int rc = attachment_lock(ATTACH_LOCK_MS, &lock, e);

	if (rc == 0)
		rc = attachment_list_locked(&l, e);
	if (rc == 0)
		rc = attach_take_off(&l, a, e);
	attachment_list_clear(&l);
	return rc;
}

/* ---- all ---- */

static int take_off_id(const struct attachment_list *l, const char *id, struct err *e)
{
	struct attachment *a = calloc(1, sizeof *a);
	int rc;

	if (!a)
		return err_set(e, ENOMEM, ATTACH_LAYER, "out of memory");
	snprintf(a->id, sizeof a->id, "%s", id);
	a->target.fd = -1;
	rc = attach_take_off(l, a, e);
	free(a);
	return rc;
}

/* Directories that hold nothing any more. One whose lock a service holds stays. */
static void remove_dirs(void)
{
	char path[PATH_MAX];

	rmdir(attachment_pins);
	if (attachment_drained_by())
		return;
	snprintf(path, sizeof path, "%s/drain", attachment_dir);
	unlink(path);
	snprintf(path, sizeof path, "%s/drained", attachment_dir);
	unlink(path);
	snprintf(path, sizeof path, "%s/making", attachment_dir);
	if (!attachment_being_made())
		unlink(path);
	snprintf(path, sizeof path, "%s/lock", attachment_dir);
	unlink(path);
	rmdir(attachment_dir);
}

/* Somebody has loaded programs, and waits for the lock to attach them: it begins after this, and needs its pins. */
static bool is_beginning(const char *id)
{
	char pins[PATH_MAX];

	attach_pin_dir(pins, id);
	return attachment_being_made() && guardpins_exist(pins) && !guardpins_cgroup(pins);
}

/* Parents first: a child whose own programs went before would be unknown to them for a moment. */
static int take_off_all(const struct attachment_list *l, unsigned *ret_count, struct err *e)
{
	int rc = 0, one;

	for (int parents = 1; parents >= 0; parents--)
		for (size_t i = 0; i < l->count; i++) {
			if (l->each[i].parent != (parents == 1))
				continue;
			one = attach_take_off(l, &l->each[i], rc == 0 ? e : NULL);
			*ret_count += one == 0 && !l->each[i].gone_ns;
			rc = rc == 0 ? one : rc;
		}
	for (size_t i = 0; i < l->broken_count; i++) {
		if (is_beginning(l->broken[i].id))
			continue;
		one = take_off_id(l, l->broken[i].id, rc == 0 ? e : NULL);
		*ret_count += one == 0;
		rc = rc == 0 ? one : rc;
	}
	return rc;
}

int attach_remove_all(unsigned *ret_count, struct err *e)
{
	struct attachment_list l = {0};
	_cleanup_fd_ int lock = -1;
	unsigned count = 0;
	int rc;

	*ret_count = 0;
	if (access(attachment_dir, F_OK) < 0 && access(attachment_pins, F_OK) < 0)
		return 0;
	rc = attachment_lock(ATTACH_LOCK_MS, &lock, e);
	if (rc == 0)
		rc = attachment_list_locked(&l, e);
	if (rc == 0)
		rc = take_off_all(&l, &count, e);
	attachment_list_clear(&l);
	if (rc == 0)
		remove_dirs();
	*ret_count = count;
	return rc;
}

/* ---- what is gone ---- */

void attach_clear_orphans(const struct attachment_list *l, uint64_t cgroup)
{
	char pins[PATH_MAX], record[PATH_MAX];

	for (size_t i = 0; i < l->broken_count; i++) {
		snprintf(record, sizeof record, "%s/%s/attachment.json", attachment_dir, l->broken[i].id);
		attach_pin_dir(pins, l->broken[i].id);
		if (!guardpins_exist(pins) || guardpins_cgroup(pins) != cgroup)
			continue;
		/* A record that can't be read is a person's to look at: what it says may be needed. */
		if (access(record, F_OK) < 0)
			(void)attach_drop(l->broken[i].id, NULL);
		else if (!cgroup)
			(void)guard_unpin(pins, NULL);
	}
}

struct clearing {
	struct attachment_list l;
	struct target_roots roots;
	char room[256];
	uint64_t now;
	bool drained; /* a service drains, and it is not the caller */
	void (*last)(void *ctx, const struct attachment *a);
	void *ctx;
	int cleared;
	unsigned patience; /* how often it is waited for the kernel to let go */
};

/* With its sockets, which the list does not hold and the file must keep. */
static int note_gone(struct attachment *a, uint64_t now, struct err *e)
{
	struct attachment *whole = calloc(1, sizeof *whole);
	int rc;

	if (!whole)
		return err_set(e, ENOMEM, ATTACH_LAYER, "out of memory");
	rc = attachment_load(a->id, whole, e);
	if (rc == 0) {
		a->gone_ns = whole->gone_ns = now;
		rc = attachment_save(whole, NULL, 0, e);
		attachment_clear(whole);
	}
	free(whole);
	return rc;
}

/*
 * A socket of the cgroup may live on, with another process, and is judged by these programs as long as it does. The kernel lets
 * go of the links itself when there is none, a moment after the cgroup was removed: a command has the time.
 */
static bool is_held_still(struct clearing *c, const struct attachment *a)
{
	const struct timespec moment = {.tv_nsec = 10 * 1000 * 1000};

	while (attach_is_held(a)) {
		if (c->last || a->gone_ns != c->now || !c->patience)
			return true;
		c->patience--;
		nanosleep(&moment, NULL);
	}
	return false;
}

static int clear_pins(struct clearing *c, struct attachment *a, struct err *e)
{
	char pins[PATH_MAX];
	int rc;

	attach_pin_dir(pins, a->id);
	if (!guardpins_exist(pins) || (c->drained && c->now - a->gone_ns < GRACE_NS) || is_held_still(c, a))
		return 0;
	if (c->last)
		c->last(c->ctx, a);
	rc = guard_unpin(pins, e);
	c->cleared += rc == 0;
	return rc;
}

static int clear_gone(struct clearing *c, struct attachment *a, struct err *e)
{
	enum attach_place place = a->gone_ns ? PLACE_GONE : attach_place(a, &c->roots, NULL);
	int rc = 0;

	if (!a->gone_ns && (place == PLACE_GONE || place == PLACE_OTHER))
		rc = note_gone(a, c->now, e);
	return rc == 0 && a->gone_ns ? clear_pins(c, a, e) : rc;
}

/* The list is in the order of age of the attachments; what is remembered goes by when it was found gone. */
static const struct attachment *oldest_gone(const struct attachment_list *l, const bool *forgotten, size_t *ret_at)
{
	const struct attachment *oldest = NULL;

	for (size_t i = 0; i < l->count; i++)
		if (l->each[i].gone_ns && !forgotten[i] && (!oldest || l->each[i].gone_ns < oldest->gone_ns)) {
			oldest = &l->each[i];
			*ret_at = i;
		}
	return oldest;
}

static int forget_old(struct clearing *c, struct err *e)
{
	_cleanup_free_ bool *forgotten = calloc(c->l.count + 1, sizeof *forgotten);
	size_t gone = 0, at = 0;
	int rc = 0;

	if (!forgotten)
		return err_set(e, ENOMEM, ATTACH_LAYER, "out of memory");
	for (size_t i = 0; i < c->l.count; i++)
		gone += c->l.each[i].gone_ns != 0;
	for (; rc == 0 && gone; gone--) {
		const struct attachment *a = oldest_gone(&c->l, forgotten, &at);
		bool old = a->gone_ns < c->now && c->now - a->gone_ns > KEPT_NS;
		char pins[PATH_MAX];

		attach_pin_dir(pins, a->id);
		if (gone <= GONE_KEPT && !old)
			break;
		forgotten[at] = true;
		if (guardpins_exist(pins))
			continue;
		rc = attachment_forget(a->id, e);
		c->cleared += rc == 0;
	}
	return rc;
}

/* Directories in which nothing was written yet when somebody was ended, and no pins. */
static void clear_empty(void)
{
	_cleanup_dir_ DIR *d = opendir(attachment_dir);
	char pins[PATH_MAX], record[PATH_MAX];
	struct dirent *de;

	while (d && (de = readdir(d))) {
		if (de->d_name[0] == '.' || de->d_type != DT_DIR || strlen(de->d_name) >= IPC_ID_MAX)
			continue;
		attach_pin_dir(pins, de->d_name);
		snprintf(record, sizeof record, "%s/%.60s/attachment.json", attachment_dir, de->d_name);
		if (access(record, F_OK) < 0 && !guardpins_exist(pins))
			(void)attachment_forget(de->d_name, NULL);
	}
}

static int clear_all(struct clearing *c, struct err *e)
{
	int rc = target_host_roots(&c->roots, c->room, e);

	if (rc == 0)
		rc = attachment_list_locked(&c->l, e);
	for (size_t i = 0; rc == 0 && i < c->l.count; i++)
		rc = clear_gone(c, &c->l.each[i], e);
	if (rc < 0)
		return rc;
	if (!attachment_being_made())
		attach_clear_orphans(&c->l, 0);
	clear_empty();
	parents_prune(&c->l, &c->roots);
	return forget_old(c, e);
}

int attach_clear_up(void (*last)(void *ctx, const struct attachment *a), void *ctx, struct err *e)
{
	struct clearing c = {.last = last,
			     .ctx = ctx,
			     .now = clock_wall_ns(),
			     .drained = !last && attachment_drained_by(),
			     .patience = PATIENCE};
	_cleanup_fd_ int lock = -1;
	int rc;

	if (access(attachment_dir, F_OK) < 0 && access(attachment_pins, F_OK) < 0)
		return 0;
	rc = attachment_lock(0, &lock, NULL);
	if (rc < 0)
		return rc == -EBUSY ? 0 : err_set(e, -rc, ATTACH_LAYER, "cannot lock %s", attachment_dir);
	rc = clear_all(&c, e);
	attachment_list_clear(&c.l);
	return rc < 0 ? rc : c.cleared;
}
