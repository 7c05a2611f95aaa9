/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/remember.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

static void forget(struct remembered_policy *r)
{
	free(r->rule_names);
	memset(r, 0, sizeof *r);
}

static void put_down(struct remembered_policy *r, const struct inforce *f)
{
	r->generation = f->generation;
	r->head = f->image->head;
	r->rule_names = calloc(f->policy->rule_count + 1, sizeof *r->rule_names);
	if (!r->rule_names) {
		log_warn("out of memory: rules of policy generation %u will be recorded by number only", f->generation);
		return;
	}
	r->rule_count = f->policy->rule_count;
	for (size_t i = 0; i < r->rule_count; i++)
		snprintf(r->rule_names[i], sizeof r->rule_names[i], "%s", f->policy->rules[i].name);
}

bool remembered_add(struct remembered *r, const struct inforce *f)
{
	put_down(&r->each[r->next], f);
	r->next = (r->next + 1) % REMEMBERED_POLICIES;
	return r->each[r->next].generation != 0;
}

void remembered_make_room(struct remembered *r)
{
	forget(&r->each[r->next]);
}

void remembered_clear(struct remembered *r)
{
	for (unsigned i = 0; i < REMEMBERED_POLICIES; i++)
		forget(&r->each[i]);
}

static const struct remembered_policy *recall(const struct remembered *r, uint32_t generation)
{
	for (unsigned i = 0; generation && i < REMEMBERED_POLICIES; i++)
		if (r->each[i].generation == generation)
			return &r->each[i];
	return NULL;
}

bool remembered_has(const struct remembered *r, uint32_t generation)
{
	return recall(r, generation) != NULL;
}

void remembered_judged(const struct remembered *all, const struct weir_flow_key *k, struct note_judged *ret)
{
	const struct remembered_policy *r = recall(all, k->generation);
	struct cidr carried;

	memset(ret, 0, sizeof *ret);
	if (!r)
		return;
	if (k->rule >= 1 && k->rule <= r->rule_count)
		snprintf(ret->rule_name, sizeof ret->rule_name, "%s", r->rule_names[k->rule - 1]);
	if (k->via == WEIR_VIA_NAT64_CONFIGURED) {
		/* Only the head is asked for its prefixes. */
		const struct policy_image image = {.head = r->head};

		if (image_carried(&image, k->daddr, k->via, &carried)) {
			memcpy(ret->carried, carried.addr + 12, sizeof ret->carried);
			ret->has_carried = 1;
		}
	}
}
