/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who gets which sandbox (core/fair.h has the order), and when to build the next: refilled as soon as one is taken. Each
 * template has a line of its own; building is one at a time, turn by turn between templates, and first for those that somebody
 * waits for.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"
#include "supervisor/attached.h"

#define BUILDING_MAX 4		     /* at once, of all templates: more would only slow each other down */
#define RETRY_FIRST_NS 200000000ull  /* after a failed build; doubled up to .. */
#define RETRY_LAST_NS 10000000000ull /* .. this */
#define QUIET_NS 1000000ull	     /* what a client takes from a grant to its order to start, and some more */

_Static_assert(FAIR_PROJECT_MAX >= IPC_PROJECT_MAX, "the queue's names hold a project's");
_Static_assert(FAIR_CALLER_MAX == IPC_CALLER_MAX, "and who asked");

static unsigned alive(const struct supervisor *s)
{
	unsigned n = 0;

	for (int i = 0; i < BOX_STATES; i++)
		n += s->counts[i];
	return n;
}

static unsigned waiting(const struct supervisor *s)
{
	const struct box_template *t;
	unsigned n = 0;

	for (t = TAILQ_FIRST(&s->templates); t; t = TAILQ_NEXT(t, link))
		n += t->fair.waiting;
	return n;
}

unsigned pool_making(const struct box_template *t)
{
	return t->counts[BOX_BUILDING] + t->counts[BOX_LOADING];
}

/*
 * Warm ones that only a project without any may take. A pool of one has none to spare, and an agent is one project's.
 */
static unsigned reserve(const struct supervisor *s, const struct box_template *t)
{
	return !t->call && !s->config.single && s->config.pool_size >= 2 ? 1 : 0;
}

/*
 * Whether a process that was alive a moment ago is about to be dead, or does nothing until somebody tells it to. Killing takes
 * its time: the signal is there at once, then memory is given back, and descriptors that would tell us are closed only after.
 */
static bool is_dying(pid_t pid)
{
	enum { STATE = 3, FLAGS = 9, PENDING = 31 }; /* fields of proc(5)'s stat */
	const unsigned long exiting = 0x4, killed = 1ul << (SIGKILL - 1);
	char path[32], text[1024], *at;
	_cleanup_fd_ int fd = -1;
	bool dying = false;
	ssize_t n;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (n < 0)
		return errno == ENOENT || errno == ESRCH;
	text[n] = 0;
	at = strrchr(text, ')'); /* the end of field 2, which may hold anything */
	for (int field = STATE; at && field <= PENDING; field++) {
		at = strchr(at, ' ');
		at += at ? 1 : 0;
		if (at && field == STATE)
			dying = strchr("ZXTt", *at) != NULL;
		else if (at && field == FLAGS)
			dying = dying || strtoul(at, NULL, 10) & exiting;
		else if (at && field == PENDING)
			dying = dying || strtoul(at, NULL, 10) & killed;
	}
	return dying;
}

bool pool_fit(const struct box *b)
{
	/* In this order: a pid can't be another's while its pidfd says nothing. */
	bool dying = is_dying(b->payload_pid) || is_dying(b->init_pid);
	struct pollfd p[] = {{.fd = b->pidfd.fd, .events = POLLIN}, {.fd = b->main_fd, .events = POLLIN}};
	/* A carrier ends with its sandbox; one that is gone before has left it without a network. */
	bool cut_off = b->way.ready && cgroup_box_populated(&b->way.cgroup) != 1;

	return !dying && !cut_off && poll(p, sizeof p / sizeof p[0], 0) == 0;
}

/*
 * Its init and its interpreter have nothing to say while they wait: whatever can be read from either means that one of them is
 * gone, be it that nobody has come to hear it yet.
 */
static bool is_fit_and_silent(const struct box *b)
{
	struct pollfd p[] = {{.fd = b->gate.fd, .events = POLLIN}, {.fd = b->control.fd, .events = POLLIN}};

	return pool_fit(b) && poll(p, sizeof p / sizeof p[0], 0) == 0;
}

/* The oldest that is fit for use. */
static struct box *first_warm(struct supervisor *s, struct box_template *t)
{
	struct box *b, *next;

	for (b = TAILQ_FIRST(&s->boxes); b; b = next) {
		next = TAILQ_NEXT(b, link);
		if (b->t != t || b->state != BOX_WARM)
			continue;
		if (is_fit_and_silent(b))
			return b;
		log_warn("%s: died while warm, was stopped, or has lost its network", b->id);
		box_event(s, b, BOX_FAILED);
	}
	return NULL;
}

/* Of what carries a sandbox's packets. */
static unsigned way_weight(unsigned weight)
{
	return weight / 4 ? weight / 4 : 1;
}

static void weigh(struct supervisor *s, struct box *b)
{
	const unsigned weight = fair_weight(b->halvings, POOL_WEIGHT_RUN);
	int rc = cgroup_box_weigh(&b->cgroup, &s->cgroups, weight);

	if (rc == 0 && b->way.cgroup.name[0])
		rc = cgroup_box_weigh(&b->way.cgroup, &s->cgroups, way_weight(weight));
	if (rc < 0)
		log_warn("%s: its share of the CPU stays what it was: %s", b->id, strerror(-rc));
}

/* While its modules are imported: what one sandbox that is being built has is for all that an agent has in the making. */
void pool_weigh_loading(struct supervisor *s, struct box *b)
{
	const unsigned making = pool_making(b->t), weight = POOL_WEIGHT_BUILDING / (making ? making : 1);
	int rc = cgroup_box_weigh(&b->cgroup, &s->cgroups, weight ? weight : 1);

	if (rc == 0 && b->way.cgroup.name[0])
		rc = cgroup_box_weigh(&b->way.cgroup, &s->cgroups, way_weight(weight));
	if (rc < 0)
		log_warn("%s: its share of the CPU stays what it was: %s", b->id, strerror(-rc));
}

static bool is_of(const struct box *b, const char *project)
{
	return b->held && !strcmp(b->project, project);
}

/* All that a project has, of whichever template: it has one more now, or one less. */
static void weigh_project(struct supervisor *s, const char *project)
{
	unsigned held = 0, halvings = 0;
	struct box *b;

	for (b = TAILQ_FIRST(&s->boxes); b; b = TAILQ_NEXT(b, link)) {
		held += is_of(b, project);
		if (is_of(b, project) && b->halvings > halvings)
			halvings = b->halvings;
	}
	halvings = fair_halvings(held, halvings);
	for (b = TAILQ_FIRST(&s->boxes); b; b = TAILQ_NEXT(b, link)) {
		if (!is_of(b, project) || (b->weighed && b->halvings == halvings))
			continue;
		b->halvings = halvings;
		b->weighed = true;
		weigh(s, b);
	}
}

static void give(struct supervisor *s, struct box *b, struct fair_waiter *w)
{
	uint64_t now = now_ns();

	b->client = w->owner;
	b->req = w->req;
	b->waited_us = w->since_ns ? (now - w->since_ns) / 1000 : 0;
	b->session = w->session;
	snprintf(b->project, sizeof b->project, "%s", w->project->name);
	memcpy(b->caller, w->caller, sizeof b->caller);
	b->held = fair_take(&b->t->fair, w); /* frees w */
	b->t->granted++;
	s->quiet_ns = now + QUIET_NS;
	weigh_project(s, b->project);
	box_event(s, b, b->session ? BOX_OPEN : BOX_CLAIM);
}

void pool_gone(struct supervisor *s, struct box *b)
{
	struct fair_project *p = b->held;

	b->held = NULL;
	if (!p)
		return;
	fair_done(&b->t->fair, p);
	weigh_project(s, b->project);
}

/* Gives what is warm to those whose turn it is. */
static void hand_out(struct supervisor *s, struct box_template *t)
{
	struct fair_waiter *w;
	struct box *b;

	while (!s->stopping && !t->retired && (w = fair_next(&t->fair, t->counts[BOX_WARM], reserve(s, t))) &&
	       (b = first_warm(s, t))) {
		/* Some may have turned out dead: then it is another's turn, or nobody's. */
		if (w == fair_next(&t->fair, t->counts[BOX_WARM], reserve(s, t)))
			give(s, b, w);
	}
}

static void send_fail(struct client *c, uint64_t req, const struct tell_fail *f)
{
	struct tell t = {.type = TELL_FAIL, .req = req, .fail = *f};

	client_tell(c, &t, NULL, 0);
}

static void say_ready(const struct supervisor *s, const struct box *b)
{
	const struct box_template *t = b->t;

	if (!t->call)
		log_info("ready: %u warm sandboxes, Python %s", t->counts[BOX_WARM], supervisor_python(s));
	else
		log_info("agent %s of project %s: ready, made in %u ms and loaded in %u ms, Python %s", t->agent, t->project,
			 (unsigned)((b->verified_ns - b->made_ns) / 1000000),
			 (unsigned)((b->loaded_ns - b->verified_ns) / 1000000), template_python(t));
}

void pool_offer(struct supervisor *s, struct box *b)
{
	struct box_template *t = b->t;
	bool ready;

	hand_out(s, t);
	ready = t->call ? !t->not_ahead : t->counts[BOX_WARM] >= s->config.pool_size;
	if (ready && !t->was_full) {
		t->was_full = true;
		say_ready(s, b);
	}
}

/* Whose line it is, or NULL: then who has asked has been told. */
static struct box_template *line_of(struct supervisor *s, struct client *c, const struct ask *a)
{
	struct tell_fail f = {.code = EAGAIN, .layer = "pool", .text = "too many requests wait for a sandbox"};
	struct box_template *t = a->agent[0] ? template_of(s, a->project, a->agent, &f) : s->snippets;

	if (t)
		template_check_image(s, t);
	if (t && waiting(s) < LIMIT_POOL_WAITING && fair_push(&t->fair, a->project, c, a->req, a->session) == 0) {
		memcpy(fair_find(&t->fair, c, a->req)->caller, a->caller, sizeof a->caller);
		return t;
	}
	if (t)
		t->misses++;
	send_fail(c, a->req, &f);
	return NULL;
}

void pool_ask(struct supervisor *s, struct client *c, const struct ask *a)
{
	struct box_template *t = line_of(s, c, a);
	struct fair_waiter *w;

	if (!t)
		return;
	hand_out(s, t);
	w = fair_find(&t->fair, c, a->req);
	if (!w)
		return;
	w->since_ns = now_ns();
	t->misses++;
	/* Somebody waits: try at once, however the last attempt went. */
	t->retry_ns = 0;
}

bool pool_withdraw(struct supervisor *s, struct client *c, uint64_t req)
{
	struct box_template *t;

	for (t = TAILQ_FIRST(&s->templates); t; t = TAILQ_NEXT(t, link)) {
		struct fair_waiter *w = fair_find(&t->fair, c, req);

		if (!w)
			continue;
		fair_drop(&t->fair, w);
		return true;
	}
	return false;
}

void pool_forget_client(struct supervisor *s, struct client *c)
{
	struct box *b = TAILQ_FIRST(&s->boxes), *next;
	struct box_template *t;

	for (t = TAILQ_FIRST(&s->templates); t; t = TAILQ_NEXT(t, link))
		fair_drop_owner(&t->fair, c);
	for (; b; b = next) {
		next = TAILQ_NEXT(b, link);
		if (b->client == c)
			box_end(s, b, RUN_END_CANCELLED);
	}
}

void pool_move(struct supervisor *s, struct box_template *from, struct box_template *to, const struct tell_fail *f)
{
	struct fair_waiter *w;

	while ((w = fair_first(&from->fair))) {
		const struct fair_waiter was = *w;
		struct fair_waiter *now;

		if (to && fair_push(&to->fair, w->project->name, was.owner, was.req, was.session) == 0) {
			now = fair_find(&to->fair, was.owner, was.req);
			now->since_ns = was.since_ns;
			memcpy(now->caller, was.caller, sizeof now->caller);
		} else {
			const struct tell_fail full = {.code = ENOMEM, .layer = "supervisor", .text = "out of memory"};

			send_fail(was.owner, was.req, to ? &full : f);
		}
		fair_drop(&from->fair, w);
	}
	if (to)
		hand_out(s, to);
}

static void back_off(struct box_template *t)
{
	uint64_t wait = RETRY_FIRST_NS;

	for (unsigned i = 0; i < t->failures && wait < RETRY_LAST_NS; i++)
		wait *= 2;
	t->failures++;
	t->retry_ns = now_ns() + (wait < RETRY_LAST_NS ? wait : RETRY_LAST_NS);
}

static void fail_first_waiter(struct box_template *t)
{
	struct fair_waiter *w = fair_first(&t->fair);

	send_fail(w->owner, w->req, &t->last_fail);
	fair_drop(&t->fair, w);
}

/* An agent's sandboxes may take long: as long as one is on its way for everybody who waits, nobody need be told. */
static bool is_somebodys(const struct box_template *t)
{
	return t->fair.waiting > (t->call ? pool_making(t) + t->failing : 0);
}

void pool_build_failed(struct supervisor *s, struct box_template *t)
{
	(void)s;
	back_off(t);
	/* One build was for one who waits; he learns which layer it was. The next is tried for the next. */
	if (is_somebodys(t))
		fail_first_waiter(t);
	if (is_somebodys(t))
		t->retry_ns = 0;
}

void pool_warm_died(struct supervisor *s, struct box_template *t)
{
	(void)s;
	/* Whatever kills them (the host's OOM killer, say) would only be fed by building at full speed. Whoever waits is
	 * served. */
	if (!t->fair.waiting)
		t->retry_ns = now_ns() + RETRY_FIRST_NS;
	/* Modules that end their own interpreter after they were imported would do so again and again. */
	t->not_ahead = t->call;
}

/* No image, so no sandbox for anybody: all who wait are told at once. */
static void no_image(struct box_template *t)
{
	back_off(t);
	while (t->fair.waiting)
		fail_first_waiter(t);
}

/* How many there should be when nobody waits. */
static unsigned kept_ready(const struct supervisor *s, const struct box_template *t)
{
	if (!t->call)
		return s->config.pool_size;
	/* What does not get ready, or can't import its modules, is made when somebody calls, and then told. */
	return t->not_ahead || template_is_idle(s, t, now_ns()) ? 0 : LIMIT_CALL_READY_MADE;
}

/* Whether there should be one more. */
static bool wanting(const struct supervisor *s, const struct box_template *t)
{
	unsigned target = kept_ready(s, t) + t->fair.waiting;

	if (!t->call && s->config.single)
		target = t->granted == 0;
	/* What an agent keeps ready is made when nobody waits any more: importing is slow enough alone. */
	if (t->call && t->fair.waiting)
		target = t->fair.waiting;
	/* One that has failed is somebody's until he has been told. */
	if (t->call && target <= t->counts[BOX_WARM] + pool_making(t) + t->failing)
		return false;
	return !t->retired && t->counts[BOX_WARM] + pool_making(t) < target;
}

/*
 * Not before. A client that was given a sandbox a moment ago is about to say "start", on this CPU, and building takes
 * milliseconds: it goes first.
 */
static uint64_t not_before_ns(const struct supervisor *s, const struct box_template *t)
{
	uint64_t quiet = s->counts[BOX_CLAIMED] ? s->quiet_ns : 0;

	return quiet > t->retry_ns ? quiet : t->retry_ns;
}

static bool room(const struct supervisor *s, const struct box_template *t)
{
	return s->making < BUILDING_MAX && alive(s) < LIMIT_SANDBOXES && (!t->call || pool_making(t) < LIMIT_CALL_LOADING);
}

uint64_t pool_wake_ns(const struct supervisor *s)
{
	const struct box_template *t;
	uint64_t first = 0;

	for (t = TAILQ_FIRST(&s->templates); t; t = TAILQ_NEXT(t, link)) {
		uint64_t at = not_before_ns(s, t);

		if (!wanting(s, t) || !room(s, t))
			continue;
		at = at ? at : 1; /* 1 is long ago: at once, after whatever else has happened */
		first = first && first < at ? first : at;
	}
	return first;
}

/* Whose turn it is to have one built; of those that somebody waits for, if there are any. */
static struct box_template *next_to_build(struct supervisor *s)
{
	struct box_template *t, *ahead = NULL;
	uint64_t now = now_ns();

	for (t = TAILQ_FIRST(&s->templates); t; t = TAILQ_NEXT(t, link)) {
		if (now < not_before_ns(s, t) || !wanting(s, t) || !room(s, t))
			continue;
		if (t->fair.waiting)
			return t;
		ahead = ahead ? ahead : t;
	}
	return ahead;
}

void pool_fill(struct supervisor *s)
{
	struct box_template *t = s->stopping || s->fatal ? NULL : next_to_build(s);

	if (!t)
		return;
	TAILQ_REMOVE(&s->templates, t, link);
	TAILQ_INSERT_TAIL(&s->templates, t, link);
	t->retry_ns = 0;
	if (t->image_bad)
		template_check_image(s, t);
	if (t->image_bad) {
		no_image(t);
		return;
	}
	if (box_build(s, t))
		return;
	memset(&t->last_fail, 0, sizeof t->last_fail);
	t->last_fail.code = ENOMEM;
	snprintf(t->last_fail.layer, sizeof t->last_fail.layer, "supervisor");
	snprintf(t->last_fail.text, sizeof t->last_fail.text, "out of memory");
	pool_build_failed(s, t);
}

/* Without sandboxes: ready means that whatever has a policy has it in force. */
static void state_of_attached(const struct supervisor *s, struct tell_pool *ret)
{
	memset(ret, 0, sizeof *ret);
	ret->ready = !attached_problem(s, ret->not_ready, sizeof ret->not_ready);
}

/* That of snippets: an agent's sandboxes are no pool. */
static void state_of_pool(const struct supervisor *s, struct tell_pool *ret)
{
	const struct box_template *t = s->snippets;
	struct tell_pool p = {
	    .size = s->config.pool_size,
	    .warm = t->counts[BOX_WARM],
	    .starting = t->counts[BOX_BUILDING],
	    .in_use = t->fair.held,
	    .waiting = t->fair.waiting,
	    .served = t->served,
	    .misses = t->misses,
	};

	/* Ready means: the pool was full once, each of its sandboxes after its own proof, and building still works. */
	p.ready = t->was_full && !t->failures && !s->unguarded;
	if (s->unguarded)
		snprintf(p.not_ready, sizeof p.not_ready, "the policy's programs are not in force (layer policy)");
	else if (t->failures)
		snprintf(p.not_ready, sizeof p.not_ready, "no sandbox can be built: layer %s: %.130s", t->last_fail.layer,
			 t->last_fail.text);
	else if (!t->was_full)
		snprintf(p.not_ready, sizeof p.not_ready, "the pool is being filled: %u of %u warm", p.warm, p.size);
	*ret = p;
}

void pool_state(struct supervisor *s, struct tell_pool *ret)
{
	if (s->config.policy_only)
		state_of_attached(s, ret);
	else
		state_of_pool(s, ret);
}

void pool_tell(struct supervisor *s, bool always)
{
	struct tell t = {.type = TELL_STATE};

	pool_state(s, &t.pool);
	if (!always && !memcmp(&t.pool, &s->told, sizeof t.pool))
		return;
	s->told = t.pool;
	for (unsigned i = 0; i < s->client_count; i++)
		client_tell(&s->clients[i], &t, NULL, 0);
}
