/* SPDX-License-Identifier: Apache-2.0 */
#include "api/budget.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/ipc.h"

struct budget_owner {
	struct budget_owner *prev, *next;
	char name[IPC_PROJECT_MAX];
	uint64_t bytes;
	size_t shares;
};

static struct budget_owner *owner_get(struct budget *b, const char *name)
{
	struct budget_owner *o = b->owners;

	while (o && strcmp(o->name, name) != 0)
		o = o->next;
	if (o)
		return o;
	o = calloc(1, sizeof *o);
	if (!o)
		return NULL;
	snprintf(o->name, sizeof o->name, "%s", name);
	o->next = b->owners;
	if (o->next)
		o->next->prev = o;
	b->owners = o;
	return o;
}

static void owner_put(struct budget *b, struct budget_owner *o)
{
	if (o->shares > 0)
		return;
	*(o->prev ? &o->prev->next : &b->owners) = o->next;
	if (o->next)
		o->next->prev = o->prev;
	free(o);
}

void budget_force(struct budget *b, struct budget_share *share, const char *owner, uint64_t bytes)
{
	if (bytes && !share->owner) {
		share->owner = owner_get(b, owner);
		if (share->owner)
			share->owner->shares++;
	}
	b->total += bytes - share->bytes;
	if (share->owner)
		share->owner->bytes += bytes - share->bytes;
	share->bytes = bytes;
	if (!bytes && share->owner) {
		share->owner->shares--;
		owner_put(b, share->owner);
		share->owner = NULL;
	}
}

int budget_ask(struct budget *b, struct budget_share *share, const char *owner, uint64_t bytes)
{
	if (bytes > share->bytes) {
		uint64_t more = bytes - share->bytes;
		struct budget_owner *o = share->owner ? share->owner : owner_get(b, owner);
		int r = 0;

		if (!o)
			return -ENOMEM;
		if (b->owner_max && o->bytes + more > b->owner_max)
			r = -EDQUOT;
		else if (b->max && b->total + more > b->max)
			r = -ENOBUFS;
		owner_put(b, o);
		if (r < 0)
			return r;
	}
	budget_force(b, share, owner, bytes);
	return 0;
}

const char *budget_largest(const struct budget *b)
{
	const struct budget_owner *most = b->owners;

	for (const struct budget_owner *o = b->owners; o; o = o->next)
		if (o->bytes > most->bytes)
			most = o;
	return most ? most->name : "";
}
