/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/attach.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "attach/attach_priv.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/utf8.h"
#include "kernel/guardpins.h"
#include "kernel/inforce.h"

#define VERIFY_MAX 4096 /* cgroups below the target that are asked; what is born later inherits, as these did */
#define VERIFY_DEPTH 32
#define BPFFS "/sys/fs/bpf"
/* Weaknesses that are found anew each time, and those that are about a filter or limits. */
#define ONCE (1u << WEAK_EMPTY | 1u << WEAK_UNPROVEN | 1u << WEAK_REWRITE)
#define FILTERS (1u << WEAK_SECCOMP | 1u << WEAK_LIMITS | 1u << WEAK_LISTEN)

const char *const attach_state_names[ATTACH_STATES] = {"in force", "drift", "recreated", "gone"};

void attach_step(const char *step)
{
#ifdef WEIR_TEST_HOOKS
	const char *die = getenv("WEIR_ATTACH_DIE"), *trace = getenv("WEIR_ATTACH_TRACE");

	if (trace)
		fprintf(stderr, "step %llu %s\n", (unsigned long long)(clock_now_ns() / 1000), step);
	if (die && !strcmp(die, step))
		kill(getpid(), SIGKILL);
#else
	(void)step;
#endif
}

/* One attaching, from the request to the record. */
struct making {
	const struct attach_request *r;
	struct attach_result *ret;
	struct attachment *a; /* of ret */
	struct target_roots roots;
	char room[256];
	struct target t;	      /* open */
	struct coverage_found beside; /* of a pod in which a container is being created: what runs there */
	struct inforce policy;
	struct attachment_list list;
	const struct attachment *same; /* what this cgroup has already, and in good order: its policy is swapped */
	struct guard *g;
	int lock; /* -1: not ours yet */
	char pins[PATH_MAX];
	struct attachment *old;	   /* of `same`, as it was written down .. */
	struct inforce old_policy; /* .. and the document that was in force */
	bool made;		   /* pins are there that failing has to remove */
	bool leave;		   /* given by us */
	bool swapped;
};

/* ---- before anything is touched ---- */

static int read_resolvers(const struct making *m, struct cidr ret[ATTACHED_RESOLVERS], struct err *e)
{
	const struct attach_request *r = m->r;

	_Static_assert(ATTACHED_RESOLVERS == RESOLVCONF_SERVERS, "as many as a resolver asks");
	if (r->resolver_count > ATTACHED_RESOLVERS)
		return err_set(e, EINVAL, "--resolver", "at most %d of them can be given", ATTACHED_RESOLVERS);
	for (size_t i = 0; i < r->resolver_count; i++) {
		struct err why = {0};

		if (cidr_parse_addr(r->resolvers[i], strlen(r->resolvers[i]), &ret[i], &why) < 0)
			return err_set(e, EINVAL, "--resolver", "\"%.60s\" is no address: %s", r->resolvers[i], why.msg);
	}
	return 0;
}

static int load_policy(struct making *m, struct err *e)
{
	struct cidr servers[ATTACHED_RESOLVERS];
	struct attachment *a = m->a;
	int rc = read_resolvers(m, servers, e);

	if (rc < 0 || a->parent)
		return rc;
	if (!m->r->policy)
		return err_set(e, EINVAL, "--policy", "is missing: give a file or the name of a shipped policy");
	rc = inforce_load_seeing(&m->policy, m->r->policy, servers, m->r->resolver_count, e);
	if (rc < 0)
		return rc;
	snprintf(a->policy, sizeof a->policy, "%s", m->policy.path);
	snprintf(a->policy_name, sizeof a->policy_name, "%s", m->policy.policy->name);
	memcpy(a->policy_hash, m->policy.policy->hash, sizeof a->policy_hash);
	a->resolver_count = m->r->resolver_count;
	for (size_t i = 0; i < a->resolver_count; i++) {
		char text[CIDR_TEXT_MAX];

		cidr_text(text, &servers[i], true);
		snprintf(a->resolvers[i], sizeof a->resolvers[i], "%.45s", text);
	}
	return 0;
}

/* The record could not hold it. Runtimes name their cgroups in ASCII. */
static int check_path(const struct target *t, struct err *e)
{
	size_t n = strlen(t->path);

	for (size_t at = 0; at < n;) {
		bool valid = false;

		at += utf8_next(t->path + at, n - at, &valid);
		if (!valid)
			return err_set(e, EILSEQ, target_kind_options[t->kind],
				       "the cgroup's path is not UTF-8: give it another name");
	}
	return 0;
}

/*
 * The guard mounts a bpffs when there is none. In a mount namespace that is not the host's it would go with that, and the
 * policy with it. What the kernel's own threads have is the host's.
 */
static int check_pins(struct err *e)
{
	struct stat own, host;
	struct statfs fs;

	if (statfs(BPFFS, &fs) == 0 && fs.f_type == BPF_FS_MAGIC)
		return 0;
	if (stat("/proc/self/ns/mnt", &own) == 0 && stat("/proc/1/ns/mnt", &host) == 0 && own.st_dev == host.st_dev &&
	    own.st_ino == host.st_ino)
		return 0;
	return err_set(e, ENOTSUP, ATTACH_LAYER,
		       BPFFS " is no bpf file system here, and this is not the host's mount namespace: what is pinned in one "
			     "of its own would go with it. Mount the host's: -v " BPFFS ":" BPFFS
			     " in a container (hostPath " BPFFS " in a pod), or mount -t bpf bpf " BPFFS " on the host");
}

static int find_target(struct making *m, struct err *e)
{
	int rc = check_pins(e);

	if (rc == 0)
		rc = target_host_roots(&m->roots, m->room, e);

	if (rc == 0)
		rc = target_find(&m->t, m->r->kind, m->r->ref, &m->roots, e);
	if (rc == 0)
		rc = check_path(&m->t, e);
	if (rc == 0)
		rc = target_open(&m->t, &m->roots, e);
	if (rc == 0) {
		m->a->target = m->t;
		m->a->target.fd = -1;
	}
	return rc;
}

/* An own network namespace has a loopback of its own; the host's is the host's. */
static int check_loopback(const struct making *m, struct err *e)
{
	const uint32_t weak = m->a->found.weak;

	if (m->policy.policy->loopback != WEIR_LOOPBACK_SELF)
		return 0;
	if (weak & 1u << WEAK_EMPTY)
		return err_set(e, ENOTSUP, "--policy",
			       "\"loopback\": \"self\" is for those whose loopback is their own, and nothing runs in %.200s "
			       "yet, so that what starts there may be in the host's network namespace: attach when it runs, or "
			       "leave it out, and write rules for 127.0.0.0/8 and ::1",
			       m->t.path);
	if (!m->ret->seen.host_network && !(weak & 1u << WEAK_HOST_NETWORK))
		return 0;
	return err_set(e, ENOTSUP, "--policy",
		       "\"loopback\": \"self\" is for those whose loopback is their own, and %.200s is in the host's network "
		       "namespace: leave it out, and write rules for 127.0.0.0/8 and ::1",
		       m->t.path);
}

/* Those of `bits` that `more` has, with their details. */
static void join(struct coverage_found *f, const struct coverage_found *more, uint32_t bits)
{
	for (unsigned w = 0; w < WEAKNESSES; w++)
		if (more->weak & bits & 1u << w)
			coverage_add(f, (enum weakness)w, "%s", more->detail[w]);
}

/* A container that is being created may not be the first of its pod, and the policy is on all of that. */
static int look_beside(struct making *m, struct err *e)
{
	struct inspection *seen = &m->ret->seen, beside = {0};
	int rc;

	if (!m->t.workload.pod[0] || m->t.workload.container[0])
		return 0;
	rc = inspect_beside(&m->t, atoi(m->r->ref), m->policy.policy, m->policy.image, &beside, e);
	if (rc < 0)
		return rc;
	m->beside = beside.found;
	join(&m->a->found, &beside.found, ~(ONCE | FILTERS));
	seen->host_network |= beside.host_network;
	seen->processes += beside.processes;
	seen->sockets = TAKE_PTR(beside.sockets);
	seen->socket_count = beside.socket_count;
	seen->sockets_beyond = beside.sockets_beyond;
	inspection_clear(&beside);
	return 0;
}

/* A parent judges nobody, but what runs below it may get around what it denies. */
static int look_inside(struct making *m, struct err *e)
{
	struct inspection *seen = &m->ret->seen;
	int rc = m->r->bundle ? inspect_bundle(m->r->bundle, m->policy.policy, seen, e)
			      : inspect_target(&m->t, m->policy.policy, m->policy.image, seen, e);

	if (rc < 0)
		return rc;
	m->a->found = seen->found;
	if (m->a->parent) {
		m->a->found.weak &= ~(1u << WEAK_EMPTY); /* as it may well be: what comes is unknown */
		inspection_clear(seen);
		return 0;
	}
	if (m->r->bundle)
		rc = look_beside(m, e);
	return rc == 0 ? check_loopback(m, e) : rc;
}

/*
 * What the pod's other containers were found to be when they were created is in its record: of those that run a filter can't be
 * seen, and those that were looked at were looked at whole. Of others nobody knows but that they run.
 */
static void join_others(struct making *m)
{
	bool known = false;

	if (!m->r->bundle)
		return;
	for (size_t i = 0; i < m->list.count; i++) {
		const struct attachment *other = &m->list.each[i];

		if (other->parent || other->target.id != m->t.id)
			continue;
		join(&m->a->found, &other->found, ~ONCE);
		known = true;
	}
	if (!known)
		join(&m->a->found, &m->beside, FILTERS);
}

static int prepare_request(struct making *m, struct err *e)
{
	struct attachment *a = m->a;
	int rc;

	a->parent = m->r->kind == TARGET_PARENT;
	a->unknown_passes = a->parent && m->r->unknown_passes;
	a->force = m->r->force;
	rc = load_policy(m, e);
	attach_step("policy read");
	if (rc == 0)
		rc = find_target(m, e);
	attach_step("target found");
	if (rc == 0)
		rc = look_inside(m, e);
	attach_step("inspected");
	return rc;
}

/* ---- coverage ---- */

/* The worst first, each with who and what would mend it, as far as there is room. */
static void explain(const struct coverage_found *f, enum coverage from, char *ret, size_t size)
{
	size_t used = 0;

	ret[0] = 0;
	for (int grade = COVERAGE_REFUSED; grade >= (int)from; grade--)
		for (unsigned w = 0; w < WEAKNESSES && used < size; w++) {
			const struct weakness_row *row = &weakness_rows[w];
			const char *detail = f->detail[w];

			if (!(f->weak & 1u << w) || row->grade != (enum coverage)grade)
				continue;
			used += (size_t)snprintf(ret + used, size - used, "%s%s%s%s%s%s%s", used ? " - " : "", row->text,
						 detail[0] ? " (" : "", detail, detail[0] ? ")" : "", row->mend ? " " : "",
						 row->mend ? row->mend : "");
		}
}

static int check_coverage(struct making *m, struct err *e)
{
	struct attachment *a = m->a;
	char why[900];

	a->coverage = coverage_grade(&a->found, m->r->force);
	/* A parent holds back what has no policy, whatever else is below it: that gets a grade of its own, or none. */
	if (a->parent && a->coverage == COVERAGE_REFUSED)
		a->coverage = COVERAGE_PARTIAL;
	if (a->coverage == COVERAGE_REFUSED) {
		explain(&a->found, COVERAGE_REFUSED, why, sizeof why);
		return err_set(e, EPERM, "coverage", "refused: %s", why);
	}
	if (a->coverage == COVERAGE_PARTIAL && m->r->require_full) {
		explain(&a->found, COVERAGE_PARTIAL, why, sizeof why);
		return err_set(e, EPERM, "coverage", "partial, and full was asked for: %s", why);
	}
	return 0;
}

static int look_around(struct making *m, struct err *e)
{
	_cleanup_free_ unsigned *own = NULL;
	struct attachment *a = m->a;
	size_t count = 0;
	int rc = attach_own_programs(&m->list, &m->t, m->g, &own, &count, e);

	if (rc == 0)
		rc = preflight_look(&m->t, &m->roots, own, count, &m->ret->others, e);
	if (rc < 0)
		return rc;
	preflight_coverage(&m->ret->others, &a->found);
	a->foreign_count = m->ret->others.count;
	for (size_t i = 0; i < a->foreign_count; i++)
		a->foreign[i] = m->ret->others.foreign[i].id;
	return check_coverage(m, e);
}

/* ---- in force ---- */

static int verify_below(const struct making *m, int dir, unsigned depth, unsigned *left, struct err *e)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	if (!d && fd >= 0)
		close(fd);
	while (d && rc == 0 && *left && depth && (de = readdir(d))) {
		_cleanup_fd_ int below = -1;

		if (de->d_type != DT_DIR || de->d_name[0] == '.')
			continue;
		below = openat(dirfd(d), de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (below < 0)
			continue; /* gone meanwhile */
		(*left)--;
		rc = guard_verify(m->g, below, e);
		/* Of a cgroup that was removed in that moment the kernel says that it is none. There may be a new one by now.
		 */
		if (rc < 0 && attach_is_dead(below))
			rc = 0;
		else if (rc < 0)
			rc = err_wrap(e, "on %.100s below it", de->d_name);
		else
			rc = verify_below(m, below, depth - 1, left, e);
	}
	return rc;
}

static int verify(const struct making *m, struct err *e)
{
	unsigned left = VERIFY_MAX;
	int rc = guard_verify(m->g, m->t.fd, e);

	return rc < 0 ? rc : verify_below(m, m->t.fd, VERIFY_DEPTH, &left, e);
}

static int try_inside(struct making *m, struct err *e)
{
	struct attachment *a = m->a;
	int rc;

	if (a->parent) {
		snprintf(a->canary.why, sizeof a->canary.why, "not tried: it has no policy of its own");
		return 0;
	}
	a->canary = (struct canary){0};
	rc = canary_try(&m->t, m->g, m->policy.image, &a->canary, e);
	if (rc == 0 && !a->canary.proven)
		coverage_add(&a->found, WEAK_UNPROVEN, "%s", a->canary.why);
	return rc;
}

/* The canary takes its time, and somebody may have attached something meanwhile. */
static int prove(struct making *m, struct err *e)
{
	int rc = try_inside(m, e);

#ifdef WEIR_TEST_HOOKS
	if (rc == 0 && getenv("WEIR_ATTACH_FAIL"))
		rc = err_set(e, EIO, "policy", "made to fail by a test");
#endif
	attach_step("tried");
	if (rc == 0)
		rc = look_around(m, e);
	attach_step("looked again");
	return rc;
}

static int write_down(struct making *m, struct err *e)
{
	struct attachment *a = m->a;
	struct inspection *seen = &m->ret->seen;
	int rc;

	/* Both are the caller's; the record has them once. */
	a->sockets = seen->sockets;
	a->socket_count = seen->socket_count;
	a->sockets_beyond = seen->sockets_beyond;
	rc = attachment_save(a, m->policy.text, m->policy.text_len, e);
	a->sockets = NULL;
	a->socket_count = 0;
	attach_step("written");
	return rc;
}

/* ---- a new one ---- */

static int new_id(char ret[IPC_ID_MAX], struct err *e)
{
	static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	uint8_t random[10];
	char *to = ret + snprintf(ret, IPC_ID_MAX, "attached-");

	if (getrandom(random, sizeof random, 0) != sizeof random)
		return err_errno(e, errno, ATTACH_LAYER, "no random name");
	for (size_t i = 0; i < sizeof random; i++)
		*to++ = digits[random[i] % (sizeof digits - 1)];
	*to = 0;
	return 0;
}

static int lock_and_look(struct making *m, struct err *e);

/* Before the first program is attached: none ever meets an empty map, so what the policy allows goes on undisturbed. */
static int enter(struct guard *g, void *ctx, struct err *e)
{
	struct making *m = ctx;
	int rc;

	attach_step("loaded");
	rc = m->lock < 0 ? lock_and_look(m, e) : 0;
	if (rc < 0)
		return rc;
	if (m->same)
		return err_set(e, EAGAIN, ATTACH_LAYER, "it got a policy while the programs were loaded");
#ifdef WEIR_TEST_HOOKS
	/* As if the map were written when the programs are there already: a test sees what that costs. */
	if (getenv("WEIR_ATTACH_LATE") && !m->made)
		return 0;
#endif
	if (m->a->parent) {
		guard_set_unknown(g, m->a->unknown_passes);
		rc = parents_enter_children(&m->list, &m->t, &m->roots, g, e);
	} else {
		rc = inforce_apply(&m->policy, g, 0, e);
		if (rc == 0)
			rc = guard_set_sandbox(g, m->t.id, 0, 0, e);
		m->a->generation = m->policy.generation;
	}
	attach_step("entered");
	return rc;
}

static int load_programs(struct making *m, struct err *e)
{
	const struct guard_opts opts = {
	    .pin_dir = m->pins,
	    .cgroup_fd = m->t.fd,
	    .level = m->t.level + m->a->parent, /* of a parent, its children are what is governed */
	    .whole = !m->a->parent,
	    .sandboxes_max = m->a->parent ? 0 : 1,
	    .ring_bytes = ATTACH_RING_BYTES,
	    .prepare = enter,
	    .prepare_ctx = m,
	};
	int rc = new_id(m->a->id, e);

	if (rc < 0)
		return rc;
	attach_pin_dir(m->pins, m->a->id);
	rc = guard_create(&m->g, &opts, e);
	m->made = rc == 0;
#ifdef WEIR_TEST_HOOKS
	if (rc == 0 && getenv("WEIR_ATTACH_LATE"))
		rc = enter(m->g, m, e);
#endif
	attach_step("attached");
	return rc;
}

/* What it had before, in whatever order, and what somebody who was ended left there: ours is in force. */
static void replace_others(const struct making *m)
{
	const struct attachment *a = m->a;

	/* What can't be removed is told by the next look at it. */
	for (size_t i = 0; i < m->list.count; i++) {
		const struct attachment *other = &m->list.each[i];
		bool before = other->gone_ns && !strcmp(other->target.path, a->target.path);

		if (other == m->same || other->parent != a->parent)
			continue;
		/* Sockets of one that is gone may live on, and are judged. */
		if (other->target.id == a->target.id || (before && !attach_is_held(other)))
			(void)attach_drop(other->id, NULL);
	}
	attach_clear_orphans(&m->list, a->target.id);
}

static int give_leave(struct making *m, struct err *e)
{
	int rc = parents_give_leave(&m->list, &m->t, &m->roots, e);

	m->leave = rc == 0;
	attach_step("leave given");
	return rc;
}

static int make_fresh(struct making *m, struct err *e)
{
	int rc = load_programs(m, e);

	if (rc == 0)
		rc = verify(m, e);
	attach_step("verified");
	if (rc == 0)
		rc = give_leave(m, e);
	if (rc == 0)
		rc = prove(m, e);
	m->a->attached_ns = clock_wall_ns();
	if (rc == 0)
		rc = write_down(m, e);
	if (rc == 0)
		replace_others(m);
	return rc;
}

/* Whether another attachment judges the cgroup, so that leave at its parents is due to that one. */
static bool is_judged_by_list(const struct making *m)
{
	for (size_t i = 0; i < m->list.count; i++)
		if (m->list.each[i].target.id == m->t.id && attach_holds(&m->list.each[i], &m->roots))
			return true;
	return false;
}

static void undo_fresh(struct making *m)
{
	if (m->leave && !is_judged_by_list(m))
		(void)parents_take_leave(&m->list, &m->t, NULL);
	(void)attach_drop(m->a->id, NULL);
}

/* ---- another policy for one that is in good order ---- */

/* What was in force, so that it can be put back. */
static int load_old(struct making *m, struct err *e)
{
	struct cidr servers[ATTACHED_RESOLVERS];
	char path[PATH_MAX];
	int rc;

	m->old = calloc(1, sizeof *m->old);
	if (!m->old)
		return err_set(e, ENOMEM, ATTACH_LAYER, "out of memory");
	rc = attachment_load(m->same->id, m->old, e);
	for (size_t i = 0; rc == 0 && i < m->old->resolver_count; i++)
		rc = cidr_parse_addr(m->old->resolvers[i], strlen(m->old->resolvers[i]), &servers[i], e);
	if (rc < 0 || m->a->parent)
		return rc;
	snprintf(path, sizeof path, "%s/%s/policy.json", attachment_dir, m->same->id);
	return inforce_load_seeing(&m->old_policy, path, servers, m->old->resolver_count, e);
}

/* Whatever can't be had of it, it is not in such good order that it could be kept. */
static bool load_same(struct making *m)
{
	attach_pin_dir(m->pins, m->same->id);
	return load_old(m, NULL) == 0 && guard_adopt(&m->g, m->pins, NULL) == 0 && verify(m, NULL) == 0;
}

/* The record follows at once: whoever drains events wants to know what judged them. */
static int swap_in(struct making *m, struct err *e)
{
	int rc = 0;

	if (m->a->parent)
		guard_set_unknown(m->g, m->a->unknown_passes);
	else
		rc = inforce_apply(&m->policy, m->g, 0, e);
	if (rc < 0)
		return rc;
	m->swapped = true;
	m->a->generation = m->policy.generation;
	snprintf(m->a->canary.why, sizeof m->a->canary.why, "not tried yet");
	attach_step("swapped");
	return write_down(m, e);
}

static int make_again(struct making *m, struct err *e)
{
	struct attachment *a = m->a;
	int rc;

	snprintf(a->id, sizeof a->id, "%s", m->old->id);
	a->attached_ns = m->old->attached_ns;
	a->record = m->old->record;
	m->ret->again = true;
	rc = swap_in(m, e);
	if (rc == 0)
		rc = give_leave(m, e);
	if (rc == 0)
		rc = prove(m, e);
	if (rc == 0)
		rc = write_down(m, e);
	if (rc == 0)
		replace_others(m);
	return rc;
}

/* The document that was in force, as one generation more, and its record with it. */
static int undo_swap(struct making *m, struct err *e)
{
	struct err why = {0};
	bool back = false;
	int rc = 0;

	if (m->a->parent)
		guard_set_unknown(m->g, m->old->unknown_passes);
	else
		rc = inforce_apply(&m->old_policy, m->g, 0, &why);
	if (rc == 0) {
		back = true;
		m->old->generation = m->old_policy.generation;
		rc = attachment_save(m->old, m->old_policy.text, m->old_policy.text_len, &why);
	}
	if (rc == 0)
		return 0;
	if (back)
		return err_set(e, EIO, ATTACH_LAYER, "the old policy is in force again, but that can't be written down: %s",
			       why.msg);
	return err_set(e, EIO, ATTACH_LAYER, "the new policy is in force, and not in order; the old one can't be put back: %s",
		       why.msg);
}

/* ---- which of both ---- */

static int check_other(const struct making *m, const struct attachment *other, struct err *e)
{
	if (!m->r->no_other || !strcmp(other->policy, m->a->policy))
		return 0;
	return err_set(e, EEXIST, "policy", "%.200s has the policy %.120s already (%s), and not %.120s: detach it first",
		       m->t.path, other->policy, other->id, m->a->policy);
}

/* What its map says has to be what a swap would leave: else it starts anew. */
static bool is_entered(const struct attachment *a)
{
	struct guardpins pins;
	char dir[PATH_MAX];

	attach_pin_dir(dir, a->id);
	guardpins_read(dir, a->target.id, &pins);
	return a->parent ? pins.has_unknown : pins.has_entry && !pins.entry.policy && !pins.entry.flags;
}

static int find_same(struct making *m, struct err *e)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < m->list.count; i++) {
		const struct attachment *other = &m->list.each[i];

		/* Whatever state it is in, for check_other() it is there. */
		if (other->parent != m->a->parent || other->target.id != m->t.id || other->gone_ns)
			continue;
		rc = check_other(m, other, e);
		if (rc == 0 && attach_holds(other, &m->roots) && is_entered(other))
			m->same = other;
	}
	return rc;
}

static int check_room(const struct making *m, struct err *e)
{
	size_t count = 0;

	for (size_t i = 0; i < m->list.count; i++)
		count += !m->list.each[i].gone_ns;
	if (count < ATTACHED_MAX)
		return 0;
	return err_set(e, ENOSPC, ATTACH_LAYER, "%d cgroups of this host have a policy already: detach some", ATTACHED_MAX);
}

/* Pins that have no record yet are ours, when the programs were loaded before we had the lock. */
static void skip_own_pins(struct making *m)
{
	struct attachment_list *l = &m->list;

	for (size_t i = 0; i < l->broken_count; i++)
		if (!strcmp(l->broken[i].id, m->a->id))
			l->broken[i--] = l->broken[--l->broken_count];
}

/* From here on nobody else changes anything. */
static int lock_and_look(struct making *m, struct err *e)
{
	int rc = attachment_lock(ATTACH_LOCK_MS, &m->lock, e);

	attach_step("locked");
	if (rc == 0)
		rc = attachment_list_locked(&m->list, e);
	skip_own_pins(m);
	if (rc == 0)
		rc = parents_permit(&m->list, &m->t, &m->roots, e);
	if (rc == 0)
		rc = find_same(m, e);
	if (rc == 0 && !m->same)
		rc = check_room(m, e);
	if (rc == 0) {
		join_others(m);
		rc = look_around(m, e);
	}
	attach_step("looked around");
	return rc;
}

/* As far as can be seen without the lock. */
static bool may_have_one(const struct making *m)
{
	struct attachment_list l = {0};
	bool found = false;

	if (attachment_list(&l, NULL) < 0)
		return true;
	for (size_t i = 0; i < l.count; i++)
		found = found || (l.each[i].target.id == m->t.id && l.each[i].parent == m->a->parent);
	attachment_list_clear(&l);
	return found;
}

static int undo(struct making *m, int rc, struct err *e)
{
	struct err why = {0};

	if (rc == 0)
		return 0;
	if (m->made)
		undo_fresh(m);
	if (m->swapped && undo_swap(m, &why) < 0)
		return err_wrap(e, "%.300s - and the failure was", why.msg);
	return rc;
}

/*
 * The kernel takes its time over the programs, and does so for many at once, as when a host starts all its pods. So they are
 * loaded before the lock is asked for, and what the lock covers is short.
 */
static int make_without_lock(struct making *m, struct err *e)
{
	_cleanup_fd_ int making = -1;
	int rc = attachment_making(&making, e);

	return rc == 0 ? make_fresh(m, e) : rc;
}

static int make_with_lock(struct making *m, struct err *e)
{
	int rc = m->lock < 0 ? lock_and_look(m, e) : 0;

	if (rc < 0)
		return rc;
	if (m->same && !load_same(m)) {
		m->g = guard_free(m->g);
		m->same = NULL;
	}
	return m->same ? make_again(m, e) : make_fresh(m, e);
}

static int make(struct making *m, struct err *e)
{
	struct err why = {0};
	int rc = -EAGAIN;

	if (!may_have_one(m))
		rc = make_without_lock(m, &why);
	if (rc == -EAGAIN && (m->same || m->lock < 0))
		return undo(m, make_with_lock(m, e), e);
	if (rc < 0 && e)
		*e = why;
	return undo(m, rc, e);
}

static void making_clear(struct making *m)
{
	guard_free(m->g);
	attachment_list_clear(&m->list);
	inforce_clear(&m->policy);
	inforce_clear(&m->old_policy);
	if (m->old)
		attachment_clear(m->old);
	free(m->old);
	target_close(&m->t);
	cleanup_fdp(&m->lock);
}

int attach_make(const struct attach_request *r, struct attach_result *ret, struct err *e)
{
	struct making m = {.r = r, .ret = ret, .a = &ret->a, .t.fd = -1, .lock = -1};
	int rc;

	memset(ret, 0, sizeof *ret);
	ret->a.target.fd = -1;
	rc = prepare_request(&m, e);
	/* What is refused whatever others do is refused before anybody waits. */
	if (rc == 0)
		rc = check_coverage(&m, e);
	if (rc == 0)
		rc = make(&m, e);
	making_clear(&m);
	return rc;
}

void attach_result_clear(struct attach_result *r)
{
	attachment_clear(&r->a);
	inspection_clear(&r->seen);
}
