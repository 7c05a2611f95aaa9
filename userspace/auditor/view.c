/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/view_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"

struct view *view_new(void)
{
	struct view *v = calloc(1, sizeof *v);

	if (!v)
		return NULL;
	v->by_flow = json_object();
	v->changes = json_array();
	return v->by_flow && v->changes ? v : view_free(v);
}

struct view *view_free(struct view *v)
{
	if (!v)
		return NULL;
	for (size_t i = 0; i < v->n; i++)
		json_decref(v->entries[i].event);
	free(v->entries);
	json_decref(v->by_flow);
	json_decref(v->changes);
	json_decref(v->cgroups);
	json_decref(v->target);
	for (int i = 0; i < LISTS; i++)
		json_decref(v->lists[i]);
	json_decref(v->begin);
	json_decref(v->end);
	json_decref(v->first);
	json_decref(v->content);
	free(v);
	return NULL;
}

const char *view_text(const json_t *record, const char *name)
{
	const char *text = json_string_value(json_object_get(record, name));

	return text ? text : "";
}

uint64_t view_number(const json_t *record, const char *name)
{
	json_int_t n = json_integer_value(json_object_get(record, name));

	return n > 0 ? (uint64_t)n : 0;
}

int view_set_copy(json_t *into, const char *name, const json_t *from, const char *from_name)
{
	json_t *value = json_object_get(from, from_name);

	return value ? json_object_set(into, name, value) : json_object_set_new(into, name, json_null());
}

static int add_change(struct view *v, const json_t *record)
{
	static const char *const members[] = {"seq", "time", "reason", "policy", "policy_hash", "policy_generation"};
	json_t *change;
	int bad;

	if (json_array_size(v->changes) >= LIMIT_POLICY_CHANGES) {
		v->changes_omitted++;
		return 0;
	}
	change = json_object();
	bad = change ? 0 : -1;
	for (size_t i = 0; !bad && i < sizeof members / sizeof members[0]; i++)
		bad = view_set_copy(change, members[i], record, members[i]);
	if (bad) {
		json_decref(change);
		return -ENOMEM;
	}
	return json_array_append_new(v->changes, change) < 0 ? -ENOMEM : 0;
}

static int keep(json_t **into, const json_t *record)
{
	json_decref(*into);
	*into = json_incref((json_t *)record);
	return 0;
}

int view_add(struct view *v, const json_t *record)
{
	const char *type = view_text(record, "type");
	int r;

	if (!v->first)
		v->first = json_incref((json_t *)record);
	if (json_is_false(json_object_get(record, "audit_allowed")))
		v->quiet = true;
	if (strcmp(type, "run_begin") == 0)
		return keep(&v->begin, record);
	if (strcmp(type, "run_end") == 0)
		return keep(&v->end, record);
	if (strcmp(type, "content") == 0)
		return v->content ? 0 : keep(&v->content, record); /* what was said first is what was chained */
	if (strcmp(type, "egress") == 0 || strcmp(type, "flow") == 0)
		return view_add_attempt(v, record, type[0] == 'f');
	if (strcmp(type, "policy") == 0)
		return add_change(v, record);
	r = view_add_listed(v, type, record);
	return r < 0 ? r : 0;
}

int view_add_late(struct view *v, const json_t *record)
{
	if (!v->first)
		v->first = json_incref((json_t *)record);
	return view_list_late(v, record);
}

void view_unwritten(struct view *v, uint64_t records)
{
	v->unwritten += records;
}

const char *view_project(const struct view *v)
{
	return v->first ? view_text(v->first, "project") : NULL;
}

const char *view_agent(const struct view *v)
{
	return v->begin ? json_string_value(json_object_get(v->begin, "agent")) : NULL;
}

bool view_ended(const struct view *v)
{
	return v->end != NULL;
}

void view_set_chain(struct view *v, uint64_t n, const uint8_t hash[CHAIN_HASH], bool is_signed)
{
	v->chain_n = n;
	v->chain_signed = is_signed;
	chain_hex(hash, v->chain_hash);
}

bool view_is_window(const struct view *v)
{
	return json_object_get(v->end, "dropped") != NULL;
}
