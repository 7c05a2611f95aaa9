/* SPDX-License-Identifier: Apache-2.0 */
#include "api/quota.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"

struct quota_project {
	char name[IPC_PROJECT_MAX];
	struct quota_project *prev, *next;
	struct quota_slot *first, *last; /* queued */
	unsigned asking; /* asked or running: what LIMIT_PROJECT_RUNNING bounds, so that no grant can exceed it */
	unsigned running;
	unsigned slots; /* all of them */
};

static struct quota_project *project_get(struct quota *q, const char *name)
{
	struct quota_project *p = q->projects;

	if (p)
		do {
			if (!strcmp(p->name, name))
				return p;
			p = p->next;
		} while (p != q->projects);
	p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	snprintf(p->name, sizeof p->name, "%s", name);
	if (q->projects) { /* last in the ring */
		p->next = q->projects;
		p->prev = q->projects->prev;
		p->prev->next = p;
		p->next->prev = p;
	} else {
		p->next = p->prev = p;
		q->projects = p;
	}
	return p;
}

static void project_put(struct quota *q, struct quota_project *p)
{
	if (p->slots > 0)
		return;
	p->prev->next = p->next;
	p->next->prev = p->prev;
	if (q->projects == p)
		q->projects = p->next == p ? NULL : p->next;
	free(p);
}

static void unqueue(struct quota *q, struct quota_slot *slot)
{
	struct quota_project *p = slot->project;

	q->queued--;
	if (slot->prev)
		slot->prev->next = slot->next;
	else
		p->first = slot->next;
	if (slot->next)
		slot->next->prev = slot->prev;
	else
		p->last = slot->prev;
	slot->prev = slot->next = NULL;
}

int quota_park(struct quota *q, struct quota_slot *slot, const char *project)
{
	struct quota_project *p = project_get(q, project);

	if (!p)
		return -ENOMEM;
	if (p->slots - p->running >= LIMIT_PROJECT_WAITING) {
		project_put(q, p);
		return -EDQUOT;
	}
	p->slots++;
	slot->project = p;
	slot->state = QUOTA_PARKED;
	return 0;
}

int quota_unpark(struct quota *q, struct quota_slot *slot)
{
	struct quota_project *p = slot->project;

	if (p->asking < LIMIT_PROJECT_RUNNING) {
		p->asking++;
		slot->state = QUOTA_ASKED;
		return 1;
	}
	q->queued++;
	slot->state = QUOTA_QUEUED;
	slot->next = NULL;
	slot->prev = p->last;
	if (p->last)
		p->last->next = slot;
	else
		p->first = slot;
	p->last = slot;
	return 0;
}

int quota_enter(struct quota *q, struct quota_slot *slot, const char *project)
{
	int r = quota_park(q, slot, project);

	return r < 0 ? r : quota_unpark(q, slot);
}

void quota_granted(struct quota_slot *slot)
{
	if (slot->state != QUOTA_ASKED)
		return;
	slot->state = QUOTA_RUNNING;
	slot->project->running++;
}

void quota_leave(struct quota *q, struct quota_slot *slot)
{
	struct quota_project *p = slot->project;

	switch (slot->state) {
	case QUOTA_OUT:
		return;
	case QUOTA_PARKED:
		break;
	case QUOTA_QUEUED:
		unqueue(q, slot);
		break;
	case QUOTA_RUNNING:
		p->running--;
		p->asking--;
		break;
	case QUOTA_ASKED:
		p->asking--;
		break;
	}
	p->slots--;
	slot->state = QUOTA_OUT;
	slot->project = NULL;
	project_put(q, p);
}

struct quota_slot *quota_next(struct quota *q)
{
	struct quota_project *p = q->projects;

	if (!p)
		return NULL;
	do {
		struct quota_slot *slot = p->first;

		if (slot && p->asking < LIMIT_PROJECT_RUNNING) {
			unqueue(q, slot);
			p->asking++;
			slot->state = QUOTA_ASKED;
			q->projects = p->next; /* its turn is over */
			return slot;
		}
		p = p->next;
	} while (p != q->projects);
	return NULL;
}
