/* SPDX-License-Identifier: Apache-2.0 */
/* What a run tried: its events, its destinations and their sums. */
#include "auditor/view_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/event.h"
#include "core/limits.h"

static void flow_identity(char *ret, size_t size, const json_t *r)
{
	snprintf(ret, size, "%s|%s|%s|%lld|%s|%lld|%s|%s|%lld|%lld|%lld|%s|%lld", view_text(r, "hook"), view_text(r, "verdict"),
		 view_text(r, "reason"), (long long)view_number(r, "rule"), view_text(r, "decode_kind"),
		 (long long)view_number(r, "policy_generation"), view_text(r, "protocol"), view_text(r, "address"),
		 (long long)(json_is_integer(json_object_get(r, "port")) ? (json_int_t)view_number(r, "port") : -1),
		 (long long)view_number(r, "icmp_type"), (long long)view_number(r, "icmp_code"), view_text(r, "name_hash"),
		 (long long)view_number(r, "cgroup"));
}

/* The members an answer shows; those only an egress record has are null until one comes. */
static const char *const members[] = {
    "seq",	"time",	     "hook",  "verdict",	   "reason",	     "rule",	     "rule_name", "policy_generation",
    "protocol", "address",   "port",  "dns_name",	   "dns_type",	     "pid",	     "host_pid",  "uid",
    "command",	"event_seq", "errno", "requested_address", "requested_port", "socket_cookie"};
static const char *const optional[] = {"decode_kind", "decode", "dns_malformed", "icmp_type", "icmp_code"};

static int put_members(json_t *event, const json_t *record)
{
	int bad = event ? 0 : -1;

	for (size_t i = 0; !bad && i < sizeof members / sizeof members[0]; i++)
		bad = view_set_copy(event, members[i], record, members[i]);
	for (size_t i = 0; !bad && i < sizeof optional / sizeof optional[0]; i++)
		if (json_object_get(record, optional[i]))
			bad = view_set_copy(event, optional[i], record, optional[i]);
	return bad;
}

static json_t *event_from(const json_t *record, bool flow)
{
	bool known = json_object_get(record, "attribution");
	json_t *event = json_object();
	int bad = put_members(event, record);

	bad |= known ? view_set_copy(event, "attribution", record, "attribution")
		     : json_object_set_new(event, "attribution", json_string("unknown"));
	bad |= view_set_copy(event, "first", record, json_object_get(record, "first") ? "first" : "time");
	bad |= view_set_copy(event, "last", record, json_object_get(record, "last") ? "last" : "time");
	/* A sum is dated when it was taken. */
	bad |= view_set_copy(event, "boot_ns", flow ? NULL : record, "boot_ns");
	if (bad) {
		json_decref(event);
		return NULL;
	}
	return event;
}

/* The entry of a record's flow, made when it is new. *ret stays NULL when there are too many. */
static int entry_of(struct view *v, const json_t *record, bool flow, struct entry **ret)
{
	char id[512];
	json_t *index;

	flow_identity(id, sizeof id, record);
	index = json_object_get(v->by_flow, id);
	if (index) {
		*ret = &v->entries[json_integer_value(index)];
		return 0;
	}
	if (v->n == VIEW_EVENTS_MAX)
		return 0;
	if (v->n == v->room) {
		size_t room = v->room ? 2 * v->room : 8;
		struct entry *entries = reallocarray(v->entries, room, sizeof *entries);

		if (!entries)
			return -ENOMEM;
		v->entries = entries;
		v->room = room;
	}
	v->entries[v->n] = (struct entry){.event = event_from(record, flow)};
	if (!v->entries[v->n].event ||
	    (v->cgroups && view_set_copy(v->entries[v->n].event, "cgroup_id", record, "cgroup") < 0)) {
		json_decref(v->entries[v->n].event);
		return -ENOMEM;
	}
	if (json_object_set_new(v->by_flow, id, json_integer((json_int_t)v->n)) < 0) {
		json_decref(v->entries[v->n].event);
		return -ENOMEM;
	}
	*ret = &v->entries[v->n++];
	return 0;
}

/*
 * The kernel numbers the events of one account. A sandbox whose packets somebody carries has two, and of the second only what
 * was refused is told: its numbers say nothing. Those below a carried parent share one.
 */
static void note_number(struct view *v, const json_t *record)
{
	const uint64_t number = view_number(record, "event_seq"), cgroup = view_number(record, "cgroup");

	if (!v->numbered)
		v->numbered = cgroup;
	if (!number || (!v->cgroups && cgroup != v->numbered))
		return;
	if (!v->seen_events++ || number < v->first_event)
		v->first_event = number;
	if (number > v->last_event)
		v->last_event = number;
}

/* What was tried between its cells: their own numbers lie between those. */
static bool is_whole_session(const struct view *v)
{
	return view_number(v->end, "cell") && !strcmp(view_text(v->end, "run_id"), view_text(v->end, "sandbox_id"));
}

uint64_t view_events_missing(const struct view *v)
{
	const uint64_t told = view_number(v->end, "events_lost");
	const uint64_t span = v->seen_events ? v->last_event - v->first_event + 1 : 0;
	const uint64_t holes = span > v->seen_events ? span - v->seen_events : 0;

	return is_whole_session(v) || told > holes ? told : holes;
}

int view_add_attempt(struct view *v, const json_t *record, bool flow)
{
	struct entry *e = NULL;

	if (!flow)
		note_number(v, record);
	if (entry_of(v, record, flow, &e) < 0)
		return -ENOMEM;
	if (!e) {
		v->omitted++;
		return 0;
	}
	if (!flow) {
		e->first_attempts++;
		return 0;
	}
	e->counted = true;
	e->count += view_number(record, "count");
	e->bytes += view_number(record, "bytes");
	if (view_set_copy(e->event, "first", record, "first") < 0 || view_set_copy(e->event, "last", record, "last") < 0)
		return -ENOMEM;
	return 0;
}

static uint64_t entry_count(const struct entry *e)
{
	return e->counted ? e->count : e->first_attempts;
}

static bool entry_is(const struct entry *e, const char *verdict)
{
	return strcmp(view_text(e->event, "verdict"), verdict) == 0;
}

/* Its address is a sender's: nobody in the run has tried to reach it. */
static bool is_inbound(const struct entry *e)
{
	return strcmp(view_text(e->event, "hook"), event_hook_names[WEIR_HOOK_INGRESS]) == 0;
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Known to be gone, whatever the counters say: a record that could not be written is a loss even when they add up without it.
 */
static uint64_t gone(const struct view *v)
{
	return most(v->unwritten + v->omitted, v->end ? view_events_missing(v) : 0);
}

/*
 * A window ends while what it watches goes on: what is counted between the list and the counters is in one and not in the
 * other, in this window and the opposite way in the next. What is really lost is known there.
 */
static uint64_t lost_of_window(const struct view *v)
{
	return most(view_number(v->end, "unlisted") + view_number(v->end, "dropped"), gone(v));
}

static uint64_t lost_of_run(const struct view *v, const struct totals *t, uint64_t listed, uint64_t allowed, uint64_t no_event)
{
	uint64_t unlisted = view_number(v->end, "unlisted"), lost = unlisted + no_event;

	/* Not lost but not asked for: allowed attempts of a policy that does not list those. */
	if (v->quiet && t->allowed > allowed)
		unlisted += t->allowed - allowed;
	if (t->attempts > listed && t->attempts - listed > unlisted)
		lost += t->attempts - listed - unlisted;
	lost = most(lost, gone(v));
	/* Records are counted there, and one flow has two: no more attempts can have lost their detail than were made. */
	return t->exact && lost > t->attempts + t->inbound ? t->attempts + t->inbound : lost;
}

struct totals view_totals(const struct view *v)
{
	uint64_t listed = 0, denied = 0, would_deny = 0, inbound = 0, no_event = 0;
	struct totals t = {.exact = v->end != NULL};

	for (size_t i = 0; i < v->n; i++) {
		const struct entry *e = &v->entries[i];

		if (is_inbound(e)) {
			inbound += entry_count(e);
			continue;
		}
		listed += entry_count(e);
		denied += entry_is(e, event_verdict_names[WEIR_DENY]) ? entry_count(e) : 0;
		would_deny += entry_is(e, event_verdict_names[WEIR_WOULD_DENY]) ? entry_count(e) : 0;
		no_event += e->first_attempts == 0;
	}
	t.attempts = t.exact ? view_number(v->end, "attempts") : listed;
	t.denied = t.exact ? view_number(v->end, "denied") : denied;
	t.would_deny = t.exact ? view_number(v->end, "would_deny") : would_deny;
	t.allowed = t.exact ? view_number(v->end, "allowed") : listed - denied - would_deny;
	t.inbound = t.exact ? view_number(v->end, "inbound") : inbound;
	t.lost = view_is_window(v) ? lost_of_window(v) : lost_of_run(v, &t, listed, listed - denied - would_deny, no_event);
	return t;
}

json_t *view_totals_json(const struct totals *t)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "attempts", event_u64(t->attempts), "denied", event_u64(t->denied),
			 "allowed", event_u64(t->allowed), "would_deny", event_u64(t->would_deny), "inbound",
			 event_u64(t->inbound), "lost", event_u64(t->lost));
}

/* What a destination shows of its events, and what makes two of them the same. `rule` is its name: what people wrote. */
static const struct {
	const char *name, *of_event;
} destination_members[] = {{"protocol", "protocol"}, {"address", "address"}, {"port", "port"},	   {"dns_name", "dns_name"},
			   {"verdict", "verdict"},   {"reason", "reason"},   {"rule", "rule_name"}};
#define DESTINATION_MEMBERS (sizeof destination_members / sizeof destination_members[0])

static bool same_destination(const json_t *a, const json_t *event)
{
	for (size_t i = 0; i < DESTINATION_MEMBERS; i++)
		if (!json_equal(json_object_get(a, destination_members[i].name),
				json_object_get(event, destination_members[i].of_event)))
			return false;
	return true;
}

/* Adds an entry to the destination it belongs to, or as a new one while there is room. */
static int add_destination(json_t *list, const struct entry *e)
{
	json_t *d;
	size_t i;
	int bad;

	json_array_foreach(list, i, d)
	{
		if (!same_destination(d, e->event))
			continue;
		return json_object_set_new(d, "count", event_u64(view_number(d, "count") + entry_count(e)));
	}
	if (json_array_size(list) == LIMIT_EGRESS_DESTINATIONS)
		return 0;
	d = json_object();
	bad = d ? 0 : -1;
	for (size_t k = 0; k < DESTINATION_MEMBERS; k++)
		bad |= view_set_copy(d, destination_members[k].name, e->event, destination_members[k].of_event);
	bad |= json_object_set_new(d, "count", event_u64(entry_count(e)));
	if (bad) {
		json_decref(d);
		return -1;
	}
	return json_array_append_new(list, d);
}

json_t *view_summary(const struct view *v)
{
	const struct totals totals = view_totals(v);
	json_t *egress = view_totals_json(&totals), *list = json_array();
	int bad = egress && list ? 0 : -1;

	for (size_t i = 0; !bad && i < v->n; i++)
		bad = is_inbound(&v->entries[i]) ? 0 : add_destination(list, &v->entries[i]);
	if (bad || json_object_set(egress, "destinations", list) < 0) {
		json_decref(egress);
		egress = NULL;
	}
	json_decref(list);
	return egress;
}

static int name_cgroup(const struct view *v, json_t *event)
{
	char key[24];

	if (!json_object_get(event, "cgroup_id"))
		return 0;
	return json_object_set_new(event, "cgroup", json_string(view_text(v->cgroups, view_cgroup_key(key, event))));
}

/* Of the policy that judged it: the one it began under, or one that took its place. */
static int name_policy(const struct view *v, json_t *event)
{
	const json_t *generation = json_object_get(event, "policy_generation"), *change, *found = NULL;
	size_t i;

	if (json_equal(json_object_get(v->begin, "policy_generation"), generation))
		found = v->begin;
	json_array_foreach(v->changes, i, change)
	{
		if (json_equal(json_object_get(change, "policy_generation"), generation))
			found = change;
	}
	return view_set_copy(event, "policy_hash", found, "policy_hash");
}

uint64_t view_flow_bytes(const struct view *v)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < v->n; i++)
		if (!is_inbound(&v->entries[i]) && !entry_is(&v->entries[i], event_verdict_names[WEIR_DENY]))
			bytes += v->entries[i].bytes;
	return bytes;
}

json_t *view_events(const struct view *v)
{
	json_t *events = json_array();

	for (size_t i = 0; events && i < v->n; i++) {
		const struct entry *e = &v->entries[i];
		json_t *event = json_copy(e->event);

		if (name_cgroup(v, event) < 0 || name_policy(v, event) < 0 ||
		    json_object_set_new(event, "count", event_u64(entry_count(e))) < 0 ||
		    json_object_set_new(event, "bytes", e->counted ? event_u64(e->bytes) : json_null()) < 0 ||
		    json_array_append(events, event) < 0) {
			json_decref(events);
			events = NULL;
		}
		json_decref(event);
	}
	return events;
}
