/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of what is under way, for whoever asks. What its tasks used is found by a walk over all tasks of the host, and so at
 * most once in EVERY_NS, for all that is metered; who asks more often is told the same again.
 */
#include "supervisor/attached.h"

#include <stdio.h>
#include <string.h>

#define EVERY_NS 100000000ull

static struct box *box_of(const struct supervisor *s, const char *run_id)
{
	struct box *b = NULL;

	TAILQ_FOREACH (b, &s->boxes, link) {
		/* Of one that is gone the end was told. */
		if (b->state == BOX_GONE)
			continue;
		if (b->begun && !strcmp(b->run_id[0] ? b->run_id : b->id, run_id))
			return b;
		if (b->session && b->began_ns && !strcmp(b->id, run_id))
			return b;
	}
	return NULL;
}

static struct one *window_of(const struct supervisor *s, const char *run_id)
{
	struct one *o = NULL;

	if (s->attached) {
		TAILQ_FOREACH (o, &s->attached->list, link)
			if (window_is(o, run_id))
				break;
	}
	return o;
}

static void look_at_box(struct supervisor *s, const struct box *b, const char *run_id, struct tell_usage *ret)
{
	const uint64_t now = now_ns();
	const bool whole = b->session && !strcmp(b->id, run_id);
	const uint64_t began = whole ? b->began_ns : b->opened_ns;

	if (whole)
		sup_session_now(s, b, ret);
	else
		account_now(s, b, ret);
	ret->end.ran = 1;
	ret->end.duration_us = began && now > began ? (now - began) / 1000 : 0;
	ret->there = 1;
}

static void look(struct supervisor *s, const struct box *b, struct one *o, struct told_usage *told, const char *run_id)
{
	const uint64_t now = now_ns();

	if (told->at_ns && now - told->at_ns < EVERY_NS && !strcmp(told->run_id, run_id))
		return;
	if (!s->looked_ns || now - s->looked_ns >= EVERY_NS) {
		metered_look(s);
		s->looked_ns = now;
	}
	memset(told, 0, sizeof *told);
	told->at_ns = now;
	snprintf(told->run_id, sizeof told->run_id, "%s", run_id);
	if (b)
		look_at_box(s, b, run_id, &told->told);
	else
		told->told.there = window_now(o, &told->told);
}

void usage_tell(struct supervisor *s, struct client *c, const struct ask *a)
{
	struct tell t = {.type = TELL_USAGE, .req = a->req};
	struct box *b = box_of(s, a->run_id);
	struct one *o = b ? NULL : window_of(s, a->run_id);
	struct told_usage *told = b ? &b->usage : o ? &o->told_usage : NULL;

	if (told) {
		look(s, b, o, told, a->run_id);
		t.usage = told->told;
	}
	client_tell(c, &t, NULL, 0);
}
