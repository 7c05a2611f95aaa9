/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets which sandbox, and when to build the next: first come, first served; refilled as soon as one is taken. */
#include "supervisor/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

#define BUILDING_MAX 4		     /* at once: more would only slow each other down */
#define RETRY_FIRST_NS 200000000ull  /* after a failed build; doubled up to .. */
#define RETRY_LAST_NS 10000000000ull /* .. this */

static unsigned alive(const struct supervisor *s)
{
	unsigned n = 0;

	for (int i = 0; i < BOX_STATES; i++)
		n += s->counts[i];
	return n;
}

static struct box *first_warm(struct supervisor *s)
{
	struct box *b;

	TAILQ_FOREACH (b, &s->boxes, link)
		if (b->state == BOX_WARM)
			return b;
	return NULL;
}

static void give(struct supervisor *s, struct box *b, struct client *c, uint64_t req, const char *project)
{
	b->client = c;
	b->req = req;
	snprintf(b->project, sizeof b->project, "%s", project);
	s->granted++;
	box_event(s, b, BOX_CLAIM);
}

static void drop_waiter(struct supervisor *s, struct waiter *w)
{
	TAILQ_REMOVE(&s->waiters, w, link);
	s->waiting--;
	free(w);
}

static void send_fail(struct client *c, uint64_t req, const struct tell_fail *f)
{
	struct tell t = {.type = TELL_FAIL, .req = req, .fail = *f};

	client_tell(c, &t, NULL, 0);
}

void pool_offer(struct supervisor *s, struct box *b)
{
	struct waiter *w = TAILQ_FIRST(&s->waiters);

	if (w) {
		give(s, b, w->client, w->req, w->project);
		drop_waiter(s, w);
	}
	if (s->counts[BOX_WARM] >= s->config.pool_size && !s->was_full) {
		s->was_full = true;
		log_info("ready: %u warm sandboxes, Python %s", s->counts[BOX_WARM], s->python.version);
	}
}

void pool_ask(struct supervisor *s, struct client *c, const struct ask *a)
{
	struct box *b = first_warm(s);
	struct waiter *w;

	if (!ipc_text_ok(a->project, sizeof a->project))
		return;
	if (b && TAILQ_EMPTY(&s->waiters)) {
		give(s, b, c, a->req, a->project);
		return;
	}
	s->misses++;
	w = s->waiting < LIMIT_POOL_WAITING ? calloc(1, sizeof *w) : NULL;
	if (!w) {
		struct tell_fail f = {.code = EAGAIN, .layer = "pool", .text = "too many requests wait for a sandbox"};

		send_fail(c, a->req, &f);
		return;
	}
	w->client = c;
	w->req = a->req;
	snprintf(w->project, sizeof w->project, "%s", a->project);
	TAILQ_INSERT_TAIL(&s->waiters, w, link);
	s->waiting++;
	/* Somebody waits: try at once, however the last attempt went. */
	s->retry_ns = 0;
}

bool pool_withdraw(struct supervisor *s, struct client *c, uint64_t req)
{
	struct waiter *w;

	TAILQ_FOREACH (w, &s->waiters, link)
		if (w->client == c && w->req == req) {
			drop_waiter(s, w);
			return true;
		}
	return false;
}

void pool_forget_client(struct supervisor *s, struct client *c)
{
	struct waiter *w = TAILQ_FIRST(&s->waiters), *next_waiter;
	struct box *b = TAILQ_FIRST(&s->boxes), *next;

	for (; w; w = next_waiter) {
		next_waiter = TAILQ_NEXT(w, link);
		if (w->client == c)
			drop_waiter(s, w);
	}
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
	struct waiter *w = TAILQ_FIRST(&s->waiters);

	send_fail(w->client, w->req, &s->last_fail);
	drop_waiter(s, w);
}

void pool_build_failed(struct supervisor *s)
{
	back_off(s);
	/* One build was for one who waits; he learns which layer it was, and that nothing ran. The next is tried for the next.
	 */
	if (!TAILQ_EMPTY(&s->waiters))
		fail_first_waiter(s);
	if (!TAILQ_EMPTY(&s->waiters))
		s->retry_ns = 0;
}

void pool_warm_died(struct supervisor *s)
{
	/* Whatever kills them (the host's OOM killer, say) would only be fed by building at full speed. Whoever waits is
	 * served. */
	if (TAILQ_EMPTY(&s->waiters))
		s->retry_ns = now_ns() + RETRY_FIRST_NS;
}

/* No image, so no sandbox for anybody: all who wait are told at once. */
static void no_image(struct supervisor *s)
{
	back_off(s);
	while (!TAILQ_EMPTY(&s->waiters))
		fail_first_waiter(s);
}

/* Whether there should be one more. */
static bool wanting(const struct supervisor *s)
{
	unsigned target = s->config.single ? s->granted == 0 : s->config.pool_size + s->waiting;

	return s->counts[BOX_WARM] + s->counts[BOX_BUILDING] < target;
}

uint64_t pool_wake_ns(const struct supervisor *s)
{
	return wanting(s) ? s->retry_ns : 0;
}

void pool_fill(struct supervisor *s)
{
	if (s->stopping || s->fatal || (s->retry_ns && now_ns() < s->retry_ns))
		return;
	s->retry_ns = 0;
	if (s->image_bad)
		check_image(s);
	if (s->image_bad) {
		no_image(s);
		return;
	}
	while (!s->retry_ns && wanting(s) && s->counts[BOX_BUILDING] < BUILDING_MAX && alive(s) < LIMIT_SANDBOXES)
		if (!box_build(s)) {
			memset(&s->last_fail, 0, sizeof s->last_fail);
			s->last_fail.code = ENOMEM;
			snprintf(s->last_fail.layer, sizeof s->last_fail.layer, "supervisor");
			snprintf(s->last_fail.text, sizeof s->last_fail.text, "out of memory");
			pool_build_failed(s);
		}
}

void pool_state(struct supervisor *s, struct tell_pool *ret)
{
	struct tell_pool p = {
	    .size = s->config.pool_size,
	    .warm = s->counts[BOX_WARM],
	    .starting = s->counts[BOX_BUILDING],
	    .in_use = s->counts[BOX_CLAIMED] + s->counts[BOX_RUNNING] + s->counts[BOX_ENDING],
	    .waiting = s->waiting,
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
