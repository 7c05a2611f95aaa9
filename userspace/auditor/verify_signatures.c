/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/verify_signatures.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH 1024
#define THREADS_MAX 16

struct job {
	uint64_t n;
	uint8_t hash[CHAIN_HASH], signature[CHAIN_SIGNATURE];
	bool good;
};

struct batch {
	struct job jobs[BATCH];
	size_t count;
};

struct worker {
	pthread_t thread;
	struct signing_checker *checker; /* of its own: one is for one thread */
	struct batch *batch;
	size_t first, step;
};

struct signatures {
	struct batch batches[2], *filling, *checked; /* checked: what threads work on; NULL: none */
	struct worker workers[THREADS_MAX];
	size_t worker_count, running;
	signatures_fn *fn;
	void *ctx;
};

int signatures_new(struct signatures **ret, const uint8_t pub[SIGNING_PUBLIC], signatures_fn *fn, void *ctx, struct err *e)
{
	struct signatures *s = calloc(1, sizeof *s);
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int rc = 0;

	if (!s)
		return err_set(e, ENOMEM, "audit", "out of memory");
	s->filling = &s->batches[0];
	s->fn = fn;
	s->ctx = ctx;
	for (; rc == 0 && s->worker_count < THREADS_MAX && (long)s->worker_count < (cpus > 1 ? cpus : 1); s->worker_count++)
		rc = signing_checker_new(&s->workers[s->worker_count].checker, pub, e);
	if (rc < 0)
		signatures_free(s);
	else
		*ret = s;
	return rc;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (size_t i = w->first; i < w->batch->count; i += w->step) {
		struct job *j = &w->batch->jobs[i];

		j->good = signing_check(w->checker, j->hash, j->signature) == 0;
	}
	return NULL;
}

static void wait_for(struct signatures *s)
{
	for (size_t i = 0; i < s->running; i++)
		(void)pthread_join(s->workers[i].thread, NULL);
	s->running = 0;
}

static void tell(struct signatures *s)
{
	wait_for(s);
	for (size_t i = 0; s->checked && i < s->checked->count; i++)
		s->fn(s->ctx, s->checked->jobs[i].n, s->checked->jobs[i].good);
	s->checked = NULL;
}

/* Where no thread can be had, its part is done here and now. */
static void hand_over(struct signatures *s)
{
	tell(s);
	s->checked = s->filling;
	s->filling = s->filling == &s->batches[0] ? &s->batches[1] : &s->batches[0];
	s->filling->count = 0;
	for (size_t i = 0; i < s->worker_count; i++) {
		struct worker *w = &s->workers[i];

		w->batch = s->checked;
		w->first = i;
		w->step = s->worker_count;
	}
	while (s->running < s->worker_count &&
	       pthread_create(&s->workers[s->running].thread, NULL, work, &s->workers[s->running]) == 0)
		s->running++;
	for (size_t i = s->running; i < s->worker_count; i++)
		(void)work(&s->workers[i]);
}

void signatures_add(struct signatures *s, uint64_t n, const uint8_t hash[CHAIN_HASH], const uint8_t signature[CHAIN_SIGNATURE])
{
	struct job *j = &s->filling->jobs[s->filling->count++];

	j->n = n;
	memcpy(j->hash, hash, CHAIN_HASH);
	memcpy(j->signature, signature, CHAIN_SIGNATURE);
	if (s->filling->count == BATCH)
		hand_over(s);
}

void signatures_finish(struct signatures *s)
{
	hand_over(s);
	tell(s);
}

struct signatures *signatures_free(struct signatures *s)
{
	if (!s)
		return NULL;
	wait_for(s);
	for (size_t i = 0; i < THREADS_MAX; i++)
		signing_checker_free(s->workers[i].checker);
	free(s);
	return NULL;
}
