/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets which sandbox (core/fair.h has the order), and when to build the next: refilled as soon as one is taken. */
#include "supervisor/internal.h"

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

#define BUILDING_MAX 4		     /* at once: more would only slow each other down */
#define RETRY_FIRST_NS 200000000ull  /* after a failed build; doubled up to .. */
#define RETRY_LAST_NS 10000000000ull /* .. this */
#define QUIET_NS 1000000ull	     /* what a client takes from a grant to its order to start, and some more */

_Static_assert(FAIR_PROJECT_MAX >= IPC_PROJECT_MAX, "the queue's names hold a project's");

static unsigned alive(const struct supervisor *s)
{
	unsigned n = 0;

	for (int i = 0; i < BOX_STATES; i++)
		n += s->counts[i];
	return n;
}

/* Warm ones that only a project without any may take. A pool of one has none to spare. */
static unsigned reserve(const struct supervisor *s)
{
	return !s->config.single && s->config.pool_size >= 2 ? 1 : 0;
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

	return !dying && poll(p, sizeof p / sizeof p[0], 0) == 0;
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
static struct box *first_warm(struct supervisor *s)
{
	struct box *b, *next;

	for (b = TAILQ_FIRST(&s->boxes); b; b = next) {
		next = TAILQ_NEXT(b, link);
		if (b->state != BOX_WARM)
			continue;
		if (is_fit_and_silent(b))
			return b;
		log_warn("%s: died while warm, or was stopped", b->id);
		pool_warm_died(s);
		box_event(s, b, BOX_FAILED);
	}
	return NULL;
}

static void weigh(struct supervisor *s, struct box *b)
{
	int rc = cgroup_box_weigh(&b->cgroup, &s->cgroups, fair_weight(b->held, POOL_WEIGHT_RUN));

	if (rc < 0)
		log_warn("%s: its share of the CPU stays what it was: %s", b->id, strerror(-rc));
}

/* Of all that a project has. */
static void weigh_all(struct supervisor *s, const struct fair_project *p)
{
	struct box *b;

	TAILQ_FOREACH (b, &s->boxes, link)
		if (b->held == p)
			weigh(s, b);
}

static void give(struct supervisor *s, struct box *b, struct fair_waiter *w)
{
	bool weights;

	b->client = w->owner;
	b->req = w->req;
	b->session = w->session;
	snprintf(b->project, sizeof b->project, "%s", w->project->name);
	b->held = fair_take(&s->fair, w, &weights); /* frees w */
	s->granted++;
	s->quiet_ns = now_ns() + QUIET_NS;
	if (weights)
		weigh_all(s, b->held);
	else
		weigh(s, b);
	box_event(s, b, b->session ? BOX_OPEN : BOX_CLAIM);
}

void pool_gone(struct supervisor *s, struct box *b)
{
	struct fair_project *p = b->held;

	b->held = NULL;
	if (p && fair_done(&s->fair, p))
		weigh_all(s, p);
}

/* Gives what is warm to those whose turn it is. */
static void hand_out(struct supervisor *s)
{
	struct fair_waiter *w;
	struct box *b;

	while (!s->stopping && (w = fair_next(&s->fair, s->counts[BOX_WARM], reserve(s))) && (b = first_warm(s))) {
		/* Some may have turned out dead: then it is another's turn, or nobody's. */
		if (w == fair_next(&s->fair, s->counts[BOX_WARM], reserve(s)))
			give(s, b, w);
	}
}

static void send_fail(struct client *c, uint64_t req, const struct tell_fail *f)
{
	struct tell t = {.type = TELL_FAIL, .req = req, .fail = *f};

	client_tell(c, &t, NULL, 0);
}

void pool_offer(struct supervisor *s, struct box *b)
{
	(void)b;
	hand_out(s);
	if (s->counts[BOX_WARM] >= s->config.pool_size && !s->was_full) {
		s->was_full = true;
		log_info("ready: %u warm sandboxes, Python %s", s->counts[BOX_WARM], supervisor_python(s));
	}
}

void pool_ask(struct supervisor *s, struct client *c, const struct ask *a)
{
	if (fair_push(&s->fair, a->project, c, a->req, a->session) < 0) {
		struct tell_fail f = {.code = EAGAIN, .layer = "pool", .text = "too many requests wait for a sandbox"};

		s->misses++;
		send_fail(c, a->req, &f);
		return;
	}
	hand_out(s);
	if (!fair_find(&s->fair, c, a->req))
		return;
	s->misses++;
	/* Somebody waits: try at once, however the last attempt went. */
	s->retry_ns = 0;
}

bool pool_withdraw(struct supervisor *s, struct client *c, uint64_t req)
{
	struct fair_waiter *w = fair_find(&s->fair, c, req);

	if (w)
		fair_drop(&s->fair, w);
	return w != NULL;
}

void pool_forget_client(struct supervisor *s, struct client *c)
{
	struct box *b = TAILQ_FIRST(&s->boxes), *next;

	fair_drop_owner(&s->fair, c);
	for (; b; b = next) {
		next = TAILQ_NEXT(b, link);
		if (b->client == c)
			box_end(s, b, RUN_END_CANCELLED);
	}
}

static void back_off(struct supervisor *s)
{
	uint64_t wait = RETRY_FIRST_NS;

	for (unsigned i = 0; i < s->failures && wait < RETRY_LAST_NS; i++)
		wait *= 2;
	s->failures++;
	s->retry_ns = now_ns() + (wait < RETRY_LAST_NS ? wait : RETRY_LAST_NS);
}

static void fail_first_waiter(struct supervisor *s)
{
	struct fair_waiter *w = fair_first(&s->fair);

	send_fail(w->owner, w->req, &s->last_fail);
	fair_drop(&s->fair, w);
}

void pool_build_failed(struct supervisor *s)
{
	back_off(s);
	/* One build was for one who waits; he learns which layer it was, and that nothing ran. The next is tried for the next.
	 */
	if (s->fair.waiting)
		fail_first_waiter(s);
	if (s->fair.waiting)
		s->retry_ns = 0;
}

void pool_warm_died(struct supervisor *s)
{
	/* Whatever kills them (the host's OOM killer, say) would only be fed by building at full speed. Whoever waits is
	 * served. */
	if (!s->fair.waiting)
		s->retry_ns = now_ns() + RETRY_FIRST_NS;
}

/* No image, so no sandbox for anybody: all who wait are told at once. */
static void no_image(struct supervisor *s)
{
	back_off(s);
	while (s->fair.waiting)
		fail_first_waiter(s);
}

/* Whether there should be one more. */
static bool wanting(const struct supervisor *s)
{
	unsigned target = s->config.single ? s->granted == 0 : s->config.pool_size + s->fair.waiting;

	return s->counts[BOX_WARM] + s->counts[BOX_BUILDING] < target;
}

/*
 * Not before. A client that was given a sandbox a moment ago is about to say "start", on this CPU, and building takes
 * milliseconds: it goes first.
 */
static uint64_t not_before_ns(const struct supervisor *s)
{
	uint64_t quiet = s->counts[BOX_CLAIMED] ? s->quiet_ns : 0;

	return quiet > s->retry_ns ? quiet : s->retry_ns;
}

static bool room(const struct supervisor *s)
{
	return s->counts[BOX_BUILDING] < BUILDING_MAX && alive(s) < LIMIT_SANDBOXES;
}

uint64_t pool_wake_ns(const struct supervisor *s)
{
	uint64_t at = not_before_ns(s);

	/* 1 is long ago: at once, after whatever else has happened. */
	return wanting(s) && room(s) ? (at ? at : 1) : 0;
}

void pool_fill(struct supervisor *s)
{
	if (s->stopping || s->fatal || now_ns() < not_before_ns(s))
		return;
	s->retry_ns = 0;
	if (s->image_bad)
		check_image(s);
	if (s->image_bad) {
		no_image(s);
		return;
	}
	if (!wanting(s) || !room(s) || box_build(s))
		return;
	memset(&s->last_fail, 0, sizeof s->last_fail);
	s->last_fail.code = ENOMEM;
	snprintf(s->last_fail.layer, sizeof s->last_fail.layer, "supervisor");
	snprintf(s->last_fail.text, sizeof s->last_fail.text, "out of memory");
	pool_build_failed(s);
}

void pool_state(struct supervisor *s, struct tell_pool *ret)
{
	struct tell_pool p = {
	    .size = s->config.pool_size,
	    .warm = s->counts[BOX_WARM],
	    .starting = s->counts[BOX_BUILDING],
	    .in_use = s->fair.held,
	    .waiting = s->fair.waiting,
	    .served = s->served,
	    .misses = s->misses,
	};

	/* Ready means: the pool was full once, each of its sandboxes after its own proof, and building still works. */
	p.ready = s->was_full && !s->failures && !s->unguarded;
	if (s->unguarded)
		snprintf(p.not_ready, sizeof p.not_ready, "the policy's programs are not in force (layer policy)");
	else if (s->failures)
		snprintf(p.not_ready, sizeof p.not_ready, "no sandbox can be built: layer %s: %.130s", s->last_fail.layer,
			 s->last_fail.text);
	else if (!s->was_full)
		snprintf(p.not_ready, sizeof p.not_ready, "the pool is being filled: %u of %u warm", p.warm, p.size);
	*ret = p;
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
