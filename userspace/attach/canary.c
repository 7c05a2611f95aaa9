/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/canary.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "attach/canary_priv.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/event.h"
#include "core/keyline.h"
#include "core/netaddr.h"

#define LAYER "policy"
#define DIRECTORIES 512 /* of the target's that are looked at: a workload makes as many as it likes */
#define FIRST_PORT 20000
#define PORTS 40000

/* ---- where ---- */

struct place {
	char *paths[DIRECTORIES]; /* below the target; "" itself */
	size_t count;
	struct canary_leaf leaves[CANARY_LEAVES]; /* in the order in which they are tried */
	size_t leaf_count;
	bool frozen; /* at least one was left out for that */
};

static void close_leaves(struct place *p)
{
	for (size_t i = 0; i < p->leaf_count; i++)
		close(p->leaves[i].fd);
}

static void cleanup_placep(struct place **p)
{
	if (!*p)
		return;
	close_leaves(*p);
	for (size_t i = 0; i < (*p)->count; i++)
		free((*p)->paths[i]);
	free(*p);
}

/* Of a small file; "" when it can't be read. */
static void read_file(int dir, const char *name, char *ret, size_t size)
{
	_cleanup_fd_ int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);

	ret[n > 0 ? n : 0] = '\0';
}

static bool is_frozen(int dir)
{
	char events[256];
	const char *value;

	read_file(dir, "cgroup.events", events, sizeof events);
	value = keyline_find(events, "frozen", ' ');
	return value && value[strspn(value, " ")] == '1';
}

static void add_path(struct place *p, const char *above, const char *name)
{
	char *path;

	if (p->count < DIRECTORIES && asprintf(&path, "%s%s%s", above, *above ? "/" : "", name) >= 0)
		p->paths[p->count++] = path;
}

static void add_children(struct place *p, int dir, const char *path)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	if (!d && fd >= 0)
		close(fd);
	while (d && (de = readdir(d)))
		if (de->d_type == DT_DIR && de->d_name[0] != '.')
			add_path(p, path, de->d_name);
}

/* Those with processes come first: there the workload lives, and the kernel takes one more. */
static void add_leaf(struct place *p, int fd, const char *path)
{
	char procs[16];
	struct canary_leaf *leaf;
	bool populated;
	size_t at;

	if (is_frozen(fd)) {
		p->frozen = true;
		return;
	}
	read_file(fd, "cgroup.procs", procs, sizeof procs);
	populated = procs[0] != '\0';
	for (at = 0; at < p->leaf_count && (!populated || p->leaves[at].populated); at++)
		;
	if (at == CANARY_LEAVES)
		return;
	if (p->leaf_count == CANARY_LEAVES)
		close(p->leaves[--p->leaf_count].fd);
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return;
	memmove(&p->leaves[at + 1], &p->leaves[at], (p->leaf_count - at) * sizeof *p->leaves);
	p->leaf_count++;
	leaf = &p->leaves[at];
	leaf->fd = fd;
	leaf->populated = populated;
	leaf->below = path;
}

/* The target and what is below it, level by level. */
static struct place *find_leaves(const struct target *t)
{
	struct place *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	add_path(p, "", "");
	for (size_t i = 0; i < p->count; i++) {
		const char *path = p->paths[i];
		_cleanup_fd_ int fd = openat(t->fd, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (fd < 0)
			continue; /* it went */
		add_leaf(p, fd, path);
		add_children(p, fd, path);
	}
	return p;
}

/* ---- what must be ---- */

static const char *const ways[] = {
    [CANARY_DATAGRAM] = "a datagram",
    [CANARY_STREAM] = "a connection",
    [CANARY_JOIN] = "joining the group",
    [CANARY_RECEIVE] = "a datagram from outside",
};

static int wrong(const struct canary_try *t, const char *hook, const char *what, struct err *e)
{
	char addr[NETADDR_TEXT_MAX];

	netaddr_text(addr, t->to.addr, t->to.family);
	return err_set(
	    e, ENOLINK, LAYER,
	    "a try from inside the cgroup: %s %s %s port %u %s; %s does not do its work there: attach again, and look "
	    "with `weir status` who else attaches programs",
	    ways[t->way], t->way == CANARY_JOIN ? "of" : "to", addr, t->to.port, what, hook);
}

/* The programs that count datagram sockets decide nothing else of them. `Nothing ever moved` in all rounds is no coincidence.
 */
static int check_counted(const struct canary_try *t, const struct canary_met *met, struct err *e)
{
	if (!met->counted)
		return wrong(t, t->to.family == 4 ? "sendmsg4" : "sendmsg6", "was not counted as a socket", e);
	if (!met->let_go)
		return wrong(t, "release", "was still counted when its socket was closed", e);
	return 0;
}

enum answer { ANSWER_NONE, ANSWER_RIGHT, ANSWER_WRONG };

/* The kernel's own refusal of a datagram socket too many: in that moment the workload had them all. */
static struct weir_flow_key too_many_sockets(const struct canary_try *t)
{
	struct weir_flow_key key = t->key;

	key.hook = t->to.family == 4 ? WEIR_HOOK_SENDMSG4 : WEIR_HOOK_SENDMSG6;
	key.verdict = WEIR_DENY;
	key.reason = WEIR_REASON_SOCKETS;
	key.via = 0;
	key.rule = 0;
	return key;
}

/*
 * `seen`: how many of them the kernel wrote down; `unlisted`: it had no room to write down everything. Somebody else's programs
 * may deny what this policy allows: that is right when ours was asked.
 */
static enum answer check(const struct canary_try *t, const struct canary_met *met, uint64_t seen, bool unlisted, struct err *e)
{
	const char *hook = event_hook_names[t->key.hook];
	const bool told = !t->listed || seen >= met->sent || unlisted;
	const bool went = t->way == CANARY_RECEIVE ? met->heard : met->error == 0;

	if (!met->tried || (met->error && met->error != EPERM))
		return ANSWER_NONE;
	if (went && !t->passes) {
		wrong(t, hook, "is denied by the policy, and passed", e);
		return ANSWER_WRONG;
	}
	if (!told) {
		wrong(t, hook, went ? "passed, and was not seen" : "was not seen", e);
		return ANSWER_WRONG;
	}
	if (!went && t->passes && !(t->listed && seen)) {
		if (t->way == CANARY_RECEIVE || !t->listed)
			return ANSWER_NONE;
		wrong(t, hook, "is allowed by the policy, and was refused", e);
		return ANSWER_WRONG;
	}
	if (t->way == CANARY_DATAGRAM && check_counted(t, met, e) < 0)
		return ANSWER_WRONG;
	return ANSWER_RIGHT;
}

/* ---- the whole ---- */

struct trial {
	const struct target *target;
	struct guard *guard;
	struct canary_plan plan;
	uint64_t before[CANARY_TRIES]; /* how often each flow was there already */
	struct weir_sandbox entry;     /* .. and the entry as it was */
	int64_t sockets_max;
	struct canary_report *report;
};

static uint64_t count_of(const struct guard *g, const struct weir_flow_key *key)
{
	struct weir_flow f;

	return guard_get_flow(g, key, &f) == 0 ? f.count : 0;
}

static uint16_t random_port(void)
{
	uint16_t r = 0;

	if (getrandom(&r, sizeof r, GRND_NONBLOCK) != sizeof r)
		r = (uint16_t)clock_now_ns();
	return (uint16_t)(FIRST_PORT + r % PORTS);
}

/* With all sockets taken that the policy allows, a datagram would be refused for that. */
static void leave_out_datagrams(struct canary_plan *p)
{
	size_t kept = 0;

	for (size_t i = 0; i < p->count; i++)
		if (p->tries[i].way != CANARY_DATAGRAM)
			p->tries[kept++] = p->tries[i];
	p->count = kept;
}

static int prepare(struct trial *x, const struct policy_image *image, struct err *e)
{
	int rc = guard_get_sandbox(x->guard, x->target->id, &x->entry, e);

	if (rc < 0)
		return rc;
	canary_plan(image, random_port(), &x->plan);
	x->sockets_max = image->head.sockets_max;
	if (x->entry.sockets >= x->sockets_max)
		leave_out_datagrams(&x->plan);
	for (size_t i = 0; i < x->plan.count; i++) {
		struct weir_flow_key *key = &x->plan.tries[i].key;

		key->cgroup = x->target->id;
		key->generation = guard_get_generation(x->guard, x->entry.policy);
		x->before[i] = count_of(x->guard, key);
	}
	return 0;
}

/* Those that the workload has as well stay. */
static void forget_flows(const struct trial *x)
{
	for (size_t i = 0; i < x->plan.count; i++) {
		const struct canary_try *t = &x->plan.tries[i];
		const struct weir_flow_key refused = too_many_sockets(t);

		if (!x->before[i])
			guard_del_flow(x->guard, &t->key);
		if (t->way == CANARY_DATAGRAM)
			guard_del_flow(x->guard, &refused);
	}
}

static int no_proof(struct canary *ret, const char *why, int code)
{
	snprintf(ret->why, sizeof ret->why, "%s%s%s", why, code ? ": " : "", code ? strerror(code) : "");
	return 0;
}

static int why_not_entered(const struct canary_report *report, struct canary *ret)
{
	switch (report->error) {
	case EAGAIN:
		return no_proof(ret, "no process could be started there: its limit of processes is reached", 0);
	case EBUSY:
		return no_proof(ret, "no process could be started there: its controllers are in use further down", 0);
	case ENODEV:
		return no_proof(ret, "no process could be started there: the cgroup is gone", 0);
	case ENOENT:
		return no_proof(ret, "no process could be started there: the cgroup is gone, or outside our cgroup namespace",
				0);
	default:
		return no_proof(ret, "no process could be started there", report->error);
	}
}

/* How far it came; 0 also when it came to nothing, and `why` says so. */
static int judge_end(const struct canary_report *report, struct canary *ret)
{
	switch (report->stage) {
	case CANARY_NETWORK:
		return report->error ? no_proof(ret, "no network namespace that leads nowhere", report->error)
				     : no_proof(ret, "making a network namespace took too long", 0);
	case CANARY_ENTERS:
		return report->pid > 0 ? no_proof(ret, "the process inside did not get to run in time", 0)
				       : why_not_entered(report, ret);
	case CANARY_TRIES_OUT:
		return no_proof(ret, "the process inside was stopped before it had tried everything", 0);
	case CANARY_STARTS:
	case CANARY_DONE:
		break;
	}
	return no_proof(ret, "the process outside was stopped", 0);
}

/* Its datagram was refused for the sockets that others have, which says nothing of the policy. */
static bool is_crowded(const struct trial *x, const struct canary_try *t, const struct canary_met *met,
		       const struct weir_sandbox *now)
{
	struct weir_flow_key key = too_many_sockets(t);

	if (t->way != CANARY_DATAGRAM)
		return false;
	return count_of(x->guard, &key) || (met->error == EPERM && now->sockets >= x->sockets_max);
}

static int judge(const struct trial *x, struct canary *ret, struct err *e)
{
	const struct canary_report *report = x->report;
	unsigned right[2] = {0}, there[2] = {0}; /* denied, passed */
	struct weir_sandbox now;
	bool wrong_once = false;
	int rc = guard_get_sandbox(x->guard, x->target->id, &now, e);

	if (rc < 0)
		return rc;
	if (now.epoch != x->entry.epoch)
		return no_proof(ret, "its entry was written anew meanwhile", 0);
	for (size_t i = 0; i < x->plan.count; i++) {
		const struct canary_try *t = &x->plan.tries[i];
		const struct canary_met *met = &report->met[i];
		uint64_t seen = count_of(x->guard, &t->key) - x->before[i];
		enum answer a = is_crowded(x, t, met, &now)
				    ? ANSWER_NONE
				    : check(t, met, seen, now.unlisted != x->entry.unlisted, wrong_once ? NULL : e);

		wrong_once |= a == ANSWER_WRONG;
		there[t->passes]++;
		if (a == ANSWER_NONE)
			continue;
		right[t->passes]++;
		if (t->way == CANARY_RECEIVE)
			continue;
		ret->attempts += met->sent;
		if (t->key.verdict == WEIR_DENY)
			ret->denied += met->sent;
		else if (t->key.verdict == WEIR_WOULD_DENY)
			ret->would_deny += met->sent;
	}
	if (wrong_once)
		return -ENOLINK;
	if (now.attempts - x->entry.attempts < ret->attempts || now.denied - x->entry.denied < ret->denied)
		return err_set(e, ENOLINK, LAYER,
			       "of %u attempts from inside the cgroup (%u of them denied) the kernel counted %" PRIu64
			       " (%" PRIu64 "): attach again",
			       ret->attempts, ret->denied, (uint64_t)(now.attempts - x->entry.attempts),
			       (uint64_t)(now.denied - x->entry.denied));
	if ((there[0] && !right[0]) || (there[1] && !right[1]))
		return no_proof(ret, "nothing that it tried was answered", 0);
	ret->proven = true;
	return 0;
}

static int run(const struct trial *x, const struct place *place, uint64_t until_ns, struct canary *ret, struct err *e)
{
	const struct canary_run r = {.plan = &x->plan,
				     .leaves = place->leaves,
				     .leaf_count = place->leaf_count,
				     .guard = x->guard,
				     .cgroup = x->target->id,
				     .until_ns = until_ns,
				     .report = x->report};
	int rc = canary_run(&r);

	if (rc < 0)
		return no_proof(ret, "no process could be started", -rc);
	if (x->report->pid > 0) {
		const char *below = place->leaves[x->report->leaf].below;

		if (snprintf(ret->leaf, sizeof ret->leaf, "%s%s%s", x->target->path, *below ? "/" : "", below) >=
		    (int)sizeof ret->leaf)
			ret->leaf[sizeof ret->leaf - 2] = '*'; /* cut: it is for people */
	}
	rc = x->report->stage == CANARY_DONE ? judge(x, ret, e) : judge_end(x->report, ret);
	forget_flows(x);
	return rc;
}

static int try_once(const struct target *t, struct guard *g, const struct policy_image *image, uint64_t until_ns,
		    struct canary *ret, struct err *e)
{
	__attribute__((cleanup(cleanup_placep))) struct place *place = find_leaves(t);
	struct trial x = {.target = t, .guard = g};
	int rc;

	if (!place)
		return err_set(e, ENOMEM, LAYER, "out of memory");
	rc = prepare(&x, image, e);
	if (rc < 0)
		return rc;
	if (!place->leaf_count)
		return no_proof(ret, place->frozen ? "the cgroup is frozen" : "the cgroup is gone", 0);
	x.report = mmap(NULL, sizeof *x.report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (x.report == MAP_FAILED)
		return err_errno(e, errno, LAYER, "no memory to try the policy from inside");
	rc = run(&x, place, until_ns, ret, e);
	munmap(x.report, sizeof *x.report);
	return rc;
}

/* A service that reads events may take the flows away just then: what is wrong twice is wrong. */
int canary_try(const struct target *t, struct guard *g, const struct policy_image *image, struct canary *ret, struct err *e)
{
	const uint64_t until_ns = clock_now_ns() + CANARY_MS * (SECOND_NS / 1000);
	struct canary first = {0}, second = {0};
	struct err why;
	int rc = try_once(t, g, image, until_ns, &first, &why);

	if (rc == 0) {
		*ret = first;
		return 0;
	}
	if (rc == -ENOLINK && clock_now_ns() + SECOND_NS < until_ns) {
		rc = try_once(t, g, image, until_ns, &second, &why);
		if (rc == 0) {
			second.attempts += first.attempts;
			second.denied += first.denied;
			second.would_deny += first.would_deny;
			*ret = second;
			return 0;
		}
	}
	if (e)
		*e = why;
	return rc;
}
