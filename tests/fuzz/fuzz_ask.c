/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes as what clients say: a run of struct ask, as one connection would bring them, and the same bytes as a struct collect.
 * What is not refused is acted on as the supervisor does: the queue of those who wait must then say what a plain count says,
 * and whose turn it is must be the oldest of its project.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/fair.h"
#include "core/limits.h"
#include "ipc/decode.h"

#define GRANTS 32

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
	if (!truth)
		abort();
}

struct pool {
	struct fair fair;
	int client;
	unsigned warm, waiting;
	struct {
		struct fair_project *project;
		uint64_t req;
	} granted[GRANTS];
	unsigned granted_count;
};

static void hand_out(struct pool *p)
{
	struct fair_waiter *w;

	while (p->granted_count < GRANTS && (w = fair_next(&p->fair, p->warm, 1))) {
		require(p->warm > 0 && w == TAILQ_FIRST(&w->project->waiters));
		p->granted[p->granted_count].req = w->req;
		p->granted[p->granted_count++].project = fair_take(&p->fair, w);
		p->warm--;
		p->waiting--;
	}
	/* Only who came beside others may be kept from the last one. */
	require(!p->warm || p->granted_count == GRANTS || !p->waiting || !fair_first(&p->fair)->alone);
}

static bool end_run(struct pool *p, uint64_t req)
{
	for (unsigned i = 0; i < p->granted_count; i++)
		if (p->granted[i].req == req) {
			fair_done(&p->fair, p->granted[i].project);
			p->granted[i] = p->granted[--p->granted_count];
			return true;
		}
	return false;
}

static void act(struct pool *p, const struct ask *a)
{
	struct fair_waiter *w;

	switch ((enum ask_type)a->type) {
	case ASK_SANDBOX:
		require(memchr(a->project, 0, sizeof a->project) && a->project[0] && a->session <= 1);
		require(memchr(a->caller, 0, sizeof a->caller) && a->caller[0]);
		require(memchr(a->agent, 0, sizeof a->agent) && !strchr(a->agent, '/') && (!a->agent[0] || !a->session));
		if (a->agent[0])
			return; /* a line of its own, of the same kind */
		if (fair_push(&p->fair, a->project, &p->client, a->req, a->session) == 0)
			p->waiting++;
		hand_out(p);
		return;
	case ASK_KILL:
		require(a->reason == RUN_END_OUTPUT || a->reason == RUN_END_CANCELLED);
		/* fall through */
	case ASK_CLOSE:
		w = fair_find(&p->fair, &p->client, a->req);
		if (w) {
			require(w->req == a->req);
			fair_drop(&p->fair, w);
			p->waiting--;
		} else if (end_run(p, a->req)) {
			p->warm++;
			hand_out(p);
		}
		return;
	case ASK_START:
		require(a->timeout_s >= 1 && a->timeout_s <= LIMIT_CELL_TIMEOUT_MAX_S);
		require(memchr(a->caller, 0, sizeof a->caller) && a->caller[0]);
		return;
	case ASK_USAGE:
		require(memchr(a->run_id, 0, sizeof a->run_id) && a->run_id[0]);
		return;
	case ASK_COLLECTED:
	case ASK_POOL:
	case ASK_METRICS:
		return;
	case ASK_NONE:
		break;
	}
	abort();
}

static void try_collect(const uint8_t *data, size_t size)
{
	static struct collect c;

	memset(&c, 0, sizeof c);
	memcpy(&c, data, size < sizeof c ? size : sizeof c);
	if (!collect_problem(&c))
		require(c.digest_count <= COLLECT_DIGESTS_MAX && c.have_manifest <= 1 && c.want_manifest <= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct pool p;

	try_collect(data, size);
	memset(&p, 0, sizeof p);
	p.warm = 3;
	for (size_t at = 0; at + sizeof(struct ask) <= size; at += sizeof(struct ask)) {
		struct ask a;

		memcpy(&a, data + at, sizeof a);
		if (ask_problem(&a))
			break; /* the connection is closed */
		act(&p, &a);
		require(p.fair.waiting == p.waiting);
	}
	fair_drop_owner(&p.fair, &p.client);
	require(!p.fair.waiting && !fair_first(&p.fair));
	while (p.granted_count)
		fair_done(&p.fair, p.granted[--p.granted_count].project);
	for (size_t i = 0; i < FAIR_BUCKETS; i++)
		require(!p.fair.projects[i] && !p.fair.waiters[i]);
	return 0;
}
