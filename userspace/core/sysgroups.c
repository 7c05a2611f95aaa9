/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sysgroups.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/policy.h"
#include "core/policy_read.h"

static int read_text(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	char *copy;

	(void)key;
	if (!json_is_string(v) || json_string_length(v) == 0)
		return spot_fail(at, e, EINVAL, "must be a string that is not empty");
	copy = strdup(json_string_value(v));
	if (!copy)
		return spot_fail(at, e, ENOMEM, "out of memory");
	*(char **)field = copy;
	return 0;
}

static int read_group_name(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	const char *s = json_string_value(v);

	if (s && (s[0] != '@' || strlen(s) >= POLICY_NAME_MAX))
		return spot_fail(at, e, EINVAL, "must begin with '@' and have at most %d bytes", POLICY_NAME_MAX - 1);
	return read_text(v, at, key, field, e);
}

static int read_members(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	struct sysgroup *g = field;

	if (!json_is_array(v) || json_array_size(v) == 0)
		return spot_fail(at, e, EINVAL, "must be a list of system calls that is not empty");
	g->members = calloc(json_array_size(v), sizeof *g->members);
	if (!g->members)
		return spot_fail(at, e, ENOMEM, "out of memory");
	for (size_t i = 0; i < json_array_size(v); i++) {
		struct spot here = {.up = at, .index = i};
		int rc = read_text(json_array_get(v, i), &here, key, &g->members[i], e);

		if (rc < 0)
			return rc;
		g->member_count++;
	}
	return 0;
}

static const struct key group_keys[] = {
    {"name", true, read_group_name, offsetof(struct sysgroup, name), NULL},
    {"help", true, read_text, offsetof(struct sysgroup, help), NULL},
    {"members", true, read_members, 0, NULL},
};

struct sysgroups *sysgroups_free(struct sysgroups *g)
{
	if (!g)
		return NULL;
	for (size_t i = 0; i < g->count; i++) {
		free(g->groups[i].name);
		free(g->groups[i].help);
		for (size_t j = 0; j < g->groups[i].member_count; j++)
			free(g->groups[i].members[j]);
		free(g->groups[i].members);
	}
	free(g->groups);
	free(g);
	return NULL;
}

static int read_groups(const json_t *v, struct sysgroups *g, struct err *e)
{
	static const struct spot root;

	if (!json_is_array(v))
		return spot_wrong_kind(&root, e, "a list of groups", v);
	g->groups = calloc(json_array_size(v) + 1, sizeof *g->groups);
	if (!g->groups)
		return spot_fail(&root, e, ENOMEM, "out of memory");
	for (size_t i = 0; i < json_array_size(v); i++) {
		struct spot here = {.up = &root, .index = i}, name = {.up = &here, .key = "name"};
		struct sysgroup *group = &g->groups[g->count++];
		int rc = read_object(json_array_get(v, i), &here, "a group", group_keys, READ_COUNT(group_keys), group, e);

		if (rc < 0)
			return rc;
		if (sysgroups_find(g, group->name) != group)
			return spot_fail(&name, e, EINVAL, "is the name of two groups");
	}
	return 0;
}

int sysgroups_parse(const char *text, size_t len, struct sysgroups **ret, struct err *e)
{
	_cleanup_json_ json_t *doc = NULL;
	struct sysgroups *g;
	int rc = read_document(text, len, LIMIT_POLICY_DEPTH, &doc, e);

	if (rc < 0)
		return rc;
	g = calloc(1, sizeof *g);
	if (!g)
		return err_set(e, ENOMEM, "", "out of memory");
	rc = read_groups(doc, g, e);
	if (rc < 0)
		sysgroups_free(g);
	else
		*ret = g;
	return rc;
}

const struct sysgroup *sysgroups_find(const struct sysgroups *g, const char *name)
{
	for (size_t i = 0; i < g->count; i++)
		if (g->groups[i].name && !strcmp(g->groups[i].name, name))
			return &g->groups[i];
	return NULL;
}

/* ---- what a policy's entries come to ---- */

/* One refusal per name written and per member of a group written, and where it was written. */
struct wanted {
	struct sysgroups_refusal refusal;
	size_t position;
};

/* By name; of one name the one that counts first. */
static int compare_wanted(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;
	int rc = strcmp(x->refusal.name, y->refusal.name);

	if (rc != 0)
		return rc;
	if (x->refusal.by_group != y->refusal.by_group)
		return x->refusal.by_group ? 1 : -1;
	return x->position < y->position ? -1 : x->position > y->position;
}

static int unknown(const struct policy_syscall_rule *r, const char *what, struct err *e)
{
	char where[sizeof e->where];

	snprintf(where, sizeof where, "/syscalls/%u/names/%u", (unsigned)r->entry, (unsigned)r->index);
	return err_set(e, EINVAL, where, "%s is not %s", r->name, what);
}

/* How many refusals the policy's names come to, at most; checks that each is known. */
static int count_wanted(const struct policy *p, const struct sysgroups *g, bool (*known)(const char *name), size_t *ret,
			struct err *e)
{
	size_t n = 0;

	for (size_t i = 0; i < p->syscall_count; i++) {
		const struct policy_syscall_rule *r = &p->syscalls[i];
		const struct sysgroup *group = r->name[0] == '@' ? sysgroups_find(g, r->name) : NULL;

		if (r->name[0] == '@' && !group)
			return unknown(r, "a group of system calls; the groups are in policies/groups.json", e);
		if (r->name[0] != '@' && known && !known(r->name))
			return unknown(r, "a system call that this libseccomp knows", e);
		n += group ? group->member_count : 1;
	}
	*ret = n;
	return 0;
}

static void collect_wanted(const struct policy *p, const struct sysgroups *g, struct wanted *out)
{
	size_t n = 0;

	for (size_t i = 0; i < p->syscall_count; i++) {
		const struct policy_syscall_rule *r = &p->syscalls[i];
		const struct sysgroup *group = r->name[0] == '@' ? sysgroups_find(g, r->name) : NULL;

		for (size_t j = 0; j < (group ? group->member_count : 1); j++)
			out[n++] = (struct wanted){
			    {group ? group->members[j] : r->name, r->kill, r->error, group != NULL},
			    i,
			};
	}
}

int sysgroups_refusals(const struct policy *p, const struct sysgroups *g, bool (*known)(const char *name),
		       struct sysgroups_refusal **ret, size_t *ret_count, struct err *e)
{
	struct sysgroups_refusal *list;
	struct wanted *wanted;
	size_t count = 0, n = 0;
	int rc = count_wanted(p, g, known, &count, e);

	if (rc < 0)
		return rc;
	wanted = calloc(count + 1, sizeof *wanted);
	list = calloc(count + 1, sizeof *list);
	if (!wanted || !list) {
		free(wanted);
		free(list);
		return err_set(e, ENOMEM, "/syscalls", "out of memory");
	}
	collect_wanted(p, g, wanted);
	qsort(wanted, count, sizeof *wanted, compare_wanted);
	for (size_t i = 0; i < count; i++)
		if (i == 0 || strcmp(wanted[i].refusal.name, wanted[i - 1].refusal.name) != 0)
			list[n++] = wanted[i].refusal;
	free(wanted);
	*ret = list;
	*ret_count = n;
	return 0;
}
