/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/note_queue.h"

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define BUCKETS 256
#define RECORD_PART 4 /* of what its project has left */
#define FLOOD 4096    /* after so many at once, memory goes back to the system */

/* As long as its type needs. */
struct waiting {
	STAILQ_ENTRY(waiting) link;
	size_t len;
	unsigned char note[];
};
STAILQ_HEAD(waiting_list, waiting);

/* Of one record, in order. There is none without a note. */
struct lane {
	TAILQ_ENTRY(lane) link;
	LIST_ENTRY(lane) in_bucket;
	struct lane_project *project;
	char run_id[IPC_ID_MAX];
	struct waiting_list notes;
	size_t details;
};

struct lane_project {
	TAILQ_ENTRY(lane_project) link;
	char name[IPC_PROJECT_MAX];
	TAILQ_HEAD(lane_list, lane) lanes; /* whose turn it is comes first */
	size_t details;
};

struct note_queue {
	TAILQ_HEAD(lane_project_list, lane_project) projects; /* likewise */
	LIST_HEAD(lane_bucket, lane) buckets[BUCKETS];
	struct waiting_list first, last;
	size_t count, details, most;
};

struct note_queue *note_queue_new(void)
{
	struct note_queue *q = calloc(1, sizeof *q);

	if (!q)
		return NULL;
	TAILQ_INIT(&q->projects);
	STAILQ_INIT(&q->first);
	STAILQ_INIT(&q->last);
	return q;
}

struct note_queue *note_queue_free(struct note_queue *q)
{
	while (q && q->count)
		note_queue_drop_next(q);
	free(q);
	return NULL;
}

bool note_is_detail(uint32_t type)
{
	switch (type) {
	case NOTE_EVENT:
	case NOTE_FLOW:
	case NOTE_SOCKET:
	case NOTE_EXEC:
	case NOTE_SYSCALL:
	case NOTE_SAMPLES:
		return true;
	default:
		return false;
	}
}

/* What of it says something: the rest of the union is zeros. */
static size_t length_of(const struct note *n)
{
	const size_t head = offsetof(struct note, event);

	switch (n->type) {
	case NOTE_EVENT:
		return head + sizeof n->event;
	case NOTE_FLOW:
		return head + sizeof n->flow;
	case NOTE_SOCKET:
		return head + sizeof n->socket;
	case NOTE_EXEC:
		return head + sizeof n->exec;
	case NOTE_SYSCALL:
		return head + sizeof n->syscall;
	case NOTE_SAMPLES:
		return head + sizeof n->samples;
	default:
		return sizeof *n;
	}
}

static struct waiting *copy_of(const struct note *n)
{
	const size_t len = length_of(n);
	struct waiting *w = malloc(sizeof *w + len);

	if (!w)
		return NULL;
	w->len = len;
	memcpy(w->note, n, len);
	return w;
}

/* ---- lanes ---- */

static size_t bucket_of(const char *run_id)
{
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (; *run_id; run_id++)
		hash = (hash ^ (unsigned char)*run_id) * 16777619u;
	return hash % BUCKETS;
}

static struct lane *find_lane(const struct note_queue *q, const char *run_id)
{
	struct lane *l = NULL;

	LIST_FOREACH(l, &q->buckets[bucket_of(run_id)], in_bucket)
	if (!strcmp(l->run_id, run_id))
		break;
	return l;
}

static struct lane_project *find_project(const struct note_queue *q, const char *name)
{
	struct lane_project *p = NULL;

	TAILQ_FOREACH (p, &q->projects, link)
		if (!strcmp(p->name, name))
			break;
	return p;
}

static struct lane_project *add_project(struct note_queue *q, const char *name)
{
	struct lane_project *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	memcpy(p->name, name, sizeof p->name);
	TAILQ_INIT(&p->lanes);
	TAILQ_INSERT_TAIL(&q->projects, p, link);
	return p;
}

static void end_lane(struct note_queue *q, struct lane *l)
{
	struct lane_project *p = l->project;

	TAILQ_REMOVE(&p->lanes, l, link);
	LIST_REMOVE(l, in_bucket);
	free(l);
	if (!TAILQ_EMPTY(&p->lanes))
		return;
	TAILQ_REMOVE(&q->projects, p, link);
	free(p);
}

static struct lane *add_lane(struct note_queue *q, struct lane_project *p, const struct note *n)
{
	struct lane *l = calloc(1, sizeof *l);

	if (l && !p)
		p = add_project(q, n->project);
	if (!l || !p) {
		free(l);
		return NULL;
	}
	l->project = p;
	memcpy(l->run_id, n->run_id, sizeof l->run_id);
	STAILQ_INIT(&l->notes);
	TAILQ_INSERT_TAIL(&p->lanes, l, link);
	LIST_INSERT_HEAD(&q->buckets[bucket_of(l->run_id)], l, in_bucket);
	return l;
}

/* ---- in ---- */

/*
 * A project has at most as many waiting as there is room left, so it fills a half at most and whoever comes next has the other
 * half to begin with; a record has a quarter of what its project has left. Sixteen that flood leave the seventeenth, of the
 * same project, room for 600.
 */
static bool may_wait(const struct note_queue *q, const struct lane_project *p, const struct lane *l)
{
	const size_t of_project = p ? p->details : 0, of_record = l ? l->details : 0;

	return of_project + RECORD_PART * of_record < NOTE_QUEUE_DETAILS - q->details;
}

static int put_in_lane(struct note_queue *q, const struct note *n, bool detail)
{
	struct lane *l = find_lane(q, n->run_id);
	struct lane_project *p = l ? l->project : find_project(q, n->project);
	struct waiting *w;

	if (detail && !may_wait(q, p, l))
		return -ENOBUFS;
	w = copy_of(n);
	if (w && !l)
		l = add_lane(q, p, n);
	if (!w || !l) {
		free(w);
		return detail ? -ENOBUFS : -EPIPE;
	}
	STAILQ_INSERT_TAIL(&l->notes, w, link);
	l->details += detail;
	l->project->details += detail;
	return 0;
}

static int put_beside(struct waiting_list *list, const struct note *n)
{
	struct waiting *w = copy_of(n);

	if (!w)
		return -EPIPE;
	STAILQ_INSERT_TAIL(list, w, link);
	return 0;
}

int note_queue_put(struct note_queue *q, const struct note *n)
{
	const bool detail = note_is_detail(n->type);
	int rc;

	if (!detail && q->count - q->details >= NOTE_QUEUE_REST)
		return -EPIPE;
	if (n->type == NOTE_FLUSH)
		rc = put_beside(&q->last, n);
	else if (!detail && !n->run_id[0])
		rc = put_beside(&q->first, n);
	else
		rc = put_in_lane(q, n, detail);
	if (rc < 0)
		return rc;
	q->details += detail;
	q->count++;
	if (q->count > q->most)
		q->most = q->count;
	return 0;
}

/* ---- out ---- */

/* Whose turn it is; NULL: nobody's that is in a lane. */
static struct lane *next_lane(const struct note_queue *q)
{
	const struct lane_project *p = TAILQ_FIRST(&q->projects);

	return STAILQ_EMPTY(&q->first) && p ? TAILQ_FIRST(&p->lanes) : NULL;
}

static struct waiting *next(const struct note_queue *q)
{
	struct lane *l = next_lane(q);

	if (l)
		return STAILQ_FIRST(&l->notes);
	return STAILQ_EMPTY(&q->first) ? STAILQ_FIRST(&q->last) : STAILQ_FIRST(&q->first);
}

bool note_queue_next(const struct note_queue *q, struct note *ret)
{
	const struct waiting *w = next(q);

	if (!w)
		return false;
	memcpy(ret, w->note, w->len);
	memset((char *)ret + w->len, 0, sizeof *ret - w->len);
	return true;
}

/* It was its turn: now it is the others'. */
static void turn_of_others(struct note_queue *q, struct lane *l)
{
	struct lane_project *p = l->project;

	TAILQ_REMOVE(&q->projects, p, link);
	TAILQ_INSERT_TAIL(&q->projects, p, link);
	TAILQ_REMOVE(&p->lanes, l, link);
	TAILQ_INSERT_TAIL(&p->lanes, l, link);
	if (STAILQ_EMPTY(&l->notes))
		end_lane(q, l);
}

static void leave(struct waiting_list *list, struct waiting *w)
{
	STAILQ_REMOVE_HEAD(list, link);
	free(w);
}

void note_queue_drop_next(struct note_queue *q)
{
	struct lane *l = next_lane(q);
	struct waiting *w = next(q);
	uint32_t type;

	if (!w)
		return;
	q->count--;
	if (l) {
		memcpy(&type, w->note + offsetof(struct note, type), sizeof type);
		if (note_is_detail(type)) {
			q->details--;
			l->details--;
			l->project->details--;
		}
		leave(&l->notes, w);
		turn_of_others(q, l);
	} else {
		leave(STAILQ_EMPTY(&q->first) ? &q->last : &q->first, w);
	}
	if (q->count)
		return;
	if (q->most > FLOOD)
		malloc_trim(0);
	q->most = 0;
}

size_t note_queue_count(const struct note_queue *q)
{
	return q->count;
}
