/* SPDX-License-Identifier: Apache-2.0 */
/* What a run has any number of, each list with a bound of its own; and what had a policy put on it while it ran. */
#include "auditor/view_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "auditor/record.h"
#include "core/event.h"
#include "core/limits.h"

/* A record's own members: those that every record has are the run's. */
static json_t *own_members(const json_t *record)
{
	static const char *const everybodys[] = {"type", "run_id", "boot_ns", "sandbox_id", "project"};
	json_t *own = json_copy((json_t *)record);

	for (size_t i = 0; own && i < sizeof everybodys / sizeof everybodys[0]; i++)
		json_object_del(own, everybodys[i]);
	return own;
}

static int append(struct view *v, enum list which, json_t *take);

static int add_record(struct view *v, enum list which, const json_t *record)
{
	return append(v, which, own_members(record));
}

/* Of one number that is told twice, the second is what it has grown by. */
static int add_call(struct view *v, enum list which, const json_t *record)
{
	json_t *call, *copy;
	size_t i;

	json_array_foreach(v->lists[which], i, call)
	{
		if (!json_equal(json_object_get(call, "number"), json_object_get(record, "number")))
			continue;
		return json_object_set_new(call, "count",
					   event_u64(view_number(call, "count") + view_number(record, "count"))) ||
			       json_object_set_new(
				   call, "interrupted",
				   event_u64(view_number(call, "interrupted") + view_number(record, "interrupted"))) ||
			       view_set_copy(call, "last", record, "last")
			   ? -ENOMEM
			   : 0;
	}
	copy = own_members(record);
	json_object_del(copy, "seq");
	json_object_del(copy, "time");
	return append(v, which, copy);
}

static int add_moments(struct view *v, enum list which, const json_t *record)
{
	json_t *moment;
	size_t i;

	json_array_foreach(json_object_get(record, "samples"), i, moment)
	{
		if (append(v, which, json_incref(moment)) < 0)
			return -ENOMEM;
	}
	return 0;
}

static const struct {
	const char *type, *name;
	size_t max;
	bool attached; /* of nothing else */
	int (*add)(struct view *v, enum list which, const json_t *record);
} lists[LISTS] = {
    [LIST_REASONS] = {"coverage", "reasons", 32, true, add_record},
    [LIST_SOCKETS] = {"socket", "sockets", 1024, true, add_record},
    [LIST_DRIFT] = {"drift", "drift", 256, true, add_record},
    [LIST_GAPS] = {"gap", "gaps", 64, false, add_record},
    [LIST_PROGRAMS] = {"exec", "programs", LIMIT_AUDIT_EXECS, false, add_record},
    [LIST_CALLS] = {"syscall", "calls", LIMIT_AUDIT_SYSCALLS, false, add_call},
    [LIST_OOM] = {"oom", "oom_killed", 16, false, add_record},
    [LIST_LATE] = {"late", "late", 64, false, add_record},
    [LIST_MOMENTS] = {"samples", "timeline", LIMIT_AUDIT_SAMPLES, false, add_moments},
};

static int append(struct view *v, enum list which, json_t *take)
{
	json_t **list = &v->lists[which];

	if (!*list && !(*list = json_array())) {
		json_decref(take);
		return -ENOMEM;
	}
	if (json_array_size(*list) >= lists[which].max) {
		v->omitted_of[which]++;
		v->calls_omitted += which == LIST_CALLS ? view_number(take, "count") : 0;
		json_decref(take);
		return 0;
	}
	return json_array_append_new(*list, take) < 0 ? -ENOMEM : 0;
}

/* With its type, which those of one kind need not say. */
int view_list_late(struct view *v, const json_t *record)
{
	json_t *own = own_members(record);

	if (own && view_set_copy(own, "type", record, "type") < 0) {
		json_decref(own);
		return -ENOMEM;
	}
	return append(v, LIST_LATE, own);
}

int view_put_list(json_t *into, const struct view *v, enum list which)
{
	const char *name = lists[which].name;
	char omitted[32];
	int bad = json_object_set_new(into, name, v->lists[which] ? json_incref(v->lists[which]) : json_array());

	if (v->omitted_of[which]) {
		snprintf(omitted, sizeof omitted, "%s_omitted", name);
		bad |= json_object_set_new(into, omitted, event_u64(v->omitted_of[which]));
	}
	return bad;
}

/* ---- of what had a policy put on it while it ran ---- */

/* "281474976712345", as a name in `cgroups`. */
const char *view_cgroup_key(char ret[24], const json_t *with_id)
{
	snprintf(ret, 24, "%llu", (unsigned long long)view_number(with_id, "cgroup_id"));
	return ret;
}

/* Of one that is told twice the path stays: it may be gone the second time. */
static int add_cgroup(struct view *v, const json_t *record)
{
	const char *path = view_text(record, "cgroup");
	char key[24];

	if (!v->cgroups && !(v->cgroups = json_object()))
		return -ENOMEM;
	if (!path[0] || json_object_size(v->cgroups) >= VIEW_EVENTS_MAX)
		return 0;
	return json_object_set_new(v->cgroups, view_cgroup_key(key, record), json_string(path)) < 0 ? -ENOMEM : 0;
}

static int add_target(struct view *v, const json_t *record)
{
	json_t *own = own_members(record);
	int r;

	if (!v->target)
		v->target = json_object();
	json_object_del(own, "seq");
	json_object_del(own, "time");
	r = own && v->target ? json_object_update(v->target, own) : -1;
	json_decref(own);
	return r < 0 ? -ENOMEM : 0;
}

int view_add_listed(struct view *v, const char *type, const json_t *record)
{
	for (enum list i = 0; i < LISTS; i++)
		if (!strcmp(type, lists[i].type))
			return lists[i].add(v, i, record);
	if (!strcmp(type, record_type_names[RECORD_CGROUP]))
		return add_cgroup(v, record);
	if (!strcmp(type, record_type_names[RECORD_TARGET]) || !strcmp(type, record_type_names[RECORD_PLACE]))
		return add_target(v, record);
	return 1;
}

int view_put_attached(json_t *run, const struct view *v)
{
	int bad = 0;

	if (!v->target)
		return 0;
	bad |= json_object_set(run, "target", v->target);
	for (enum list i = 0; i < LISTS; i++)
		if (lists[i].attached)
			bad |= view_put_list(run, v, i);
	return bad;
}
