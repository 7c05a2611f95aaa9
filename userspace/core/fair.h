/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who gets the next sandbox: between projects turn by turn, within one first come, first served. The last warm ones are a
 * reserve for a request whose project had nothing when it came, neither a sandbox nor another request: so a single one finds
 * one at once while another project floods. Pure; every
 * call but fair_drop_owner() and fair_clear() takes the same short time, however many wait.
 */
#ifndef WEIR_CORE_FAIR_H
#define WEIR_CORE_FAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define FAIR_PROJECT_MAX 64 /* bytes of a name, with its terminator */
#define FAIR_CALLER_MAX 48
#define FAIR_BUCKETS 1024
/* So many of those may pass one that waits beside others of its project; then even the reserve is given to it. */
#define FAIR_PASSES 8

struct fair_project;

struct fair_waiter {
	TAILQ_ENTRY(fair_waiter) link; /* of its project, oldest first */
	struct fair_waiter *next_hashed;
	struct fair_project *project;
	void *owner;		      /* who asked, and .. */
	uint64_t req;		      /* .. by which number: together the name of a waiter */
	uint64_t since_ns;	      /* for whoever wants to note it; 0 at first */
	char caller[FAIR_CALLER_MAX]; /* likewise; "" at first */
	bool session;
	bool alone; /* its project had nothing when it came */
};

TAILQ_HEAD(fair_waiters, fair_waiter);
TAILQ_HEAD(fair_turns, fair_project);

struct fair_project {
	TAILQ_ENTRY(fair_project) link; /* among those of its kind that wait, whose turn is nearest first */
	struct fair_project *next_hashed;
	char name[FAIR_PROJECT_MAX];
	struct fair_waiters waiters;
	uint64_t turn;
	unsigned held; /* sandboxes that it has */
};

/* By what its first waiter is. */
enum fair_kind { FAIR_ALONE, FAIR_BESIDE, FAIR_KINDS };

/* All zero is an empty one. */
struct fair {
	struct fair_turns turns[FAIR_KINDS];
	struct fair_project *projects[FAIR_BUCKETS];
	struct fair_waiter *waiters[FAIR_BUCKETS];
	uint64_t turn;
	unsigned waiting, held; /* of all projects */
	unsigned passed;	/* grants in a row to one that came alone, while another kind waited */
};

/* Takes a place. `project` is a terminated name and copied. Returns 0, -EAGAIN (LIMIT_POOL_WAITING wait), -ENOMEM. */
int fair_push(struct fair *f, const char *project, void *owner, uint64_t req, bool session);

/*
 * Whose turn it is when `warm` sandboxes are at hand, of which `reserve` are only for those who came alone. NULL: nobody's.
 * The waiter stays the queue's.
 */
struct fair_waiter *fair_next(const struct fair *f, unsigned warm, unsigned reserve);

/* Whose turn it is, whatever is at hand. NULL: nobody waits. */
struct fair_waiter *fair_first(const struct fair *f);

/*
 * `w` gets a sandbox: it is no waiter any more (and freed). The project counts it until fair_done(), after which it may be
 * gone.
 */
struct fair_project *fair_take(struct fair *f, struct fair_waiter *w);
void fair_done(struct fair *f, struct fair_project *p);

/*
 * How often the weight of each sandbox of a project is halved when it has `held`, one more or less than when it was `halvings`:
 * once more whenever there are twice as many, so that together they weigh no more than two of another's, and changed for all of
 * them alike, and seldom.
 */
unsigned fair_halvings(unsigned held, unsigned halvings);
/* What is left of `whole`. At least 1. */
unsigned fair_weight(unsigned halvings, unsigned whole);

/* `w` gets none: freed. */
void fair_drop(struct fair *f, struct fair_waiter *w);

/* NULL when there is no such waiter. */
struct fair_waiter *fair_find(const struct fair *f, const void *owner, uint64_t req);

/* Every waiter of one owner goes. */
void fair_drop_owner(struct fair *f, const void *owner);

/* Frees everything; nothing that fair_take() returned may be used after it. */
void fair_clear(struct fair *f);

#endif
