/* SPDX-License-Identifier: Apache-2.0 */
#include "api/reads.h"

#include <stdio.h>
#include <string.h>

static unsigned count_of(const struct reads *r, const char *project)
{
	unsigned count = 0;

	for (int i = 0; i < LIMIT_AUDIT_READS; i++)
		count += r->of[i].taken && !strcmp(r->of[i].project, project);
	return count;
}

static bool may_read(const struct reads *r, const char *project)
{
	if (!*project)
		return true;
	if (r->count >= LIMIT_AUDIT_READS - READS_KEPT)
		return false;
	return r->count < READS_ALONE || count_of(r, project) < READS_SHARE;
}

int reads_begin(struct reads *r, const char *project)
{
	int place = 0;

	while (place < LIMIT_AUDIT_READS && r->of[place].taken)
		place++;
	if (place == LIMIT_AUDIT_READS || !may_read(r, project))
		return -1;
	r->of[place].taken = true;
	snprintf(r->of[place].project, sizeof r->of[place].project, "%s", project);
	r->count++;
	return place;
}

void reads_end(struct reads *r, int place)
{
	r->of[place].taken = false;
	r->count--;
}
