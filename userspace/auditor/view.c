/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auditor/record.h"
#include "core/event.h"
#include "core/limits.h"

struct entry {
	json_t *event;		 /* the object that answers list, but for its counts */
	uint64_t first_attempts; /* egress records seen; usually one */
	uint64_t count, bytes;	 /* from flow records */
	bool counted;		 /* there was one */
};

/* What a record of an attachment's has any number of, and an answer at most so many. */
enum list { LIST_REASONS, LIST_SOCKETS, LIST_DRIFT, LIST_GAPS, LISTS };
static const struct {
	const char *type, *name;
	size_t max;
} lists[LISTS] = {
    [LIST_REASONS] = {"coverage", "reasons", 32},
    [LIST_SOCKETS] = {"socket", "sockets", 1024},
    [LIST_DRIFT] = {"drift", "drift", 256},
    [LIST_GAPS] = {"gap", "gaps", 64},
};

struct view {
	json_t *begin, *end, *first; /* records: references */
	json_t *by_flow;	     /* flow identity -> index into entries */
	json_t *changes;	     /* policies that took another's place while it ran */
	json_t *cgroups;	     /* of a carried parent: who is below it, id -> path; NULL: none that tried anything */
	json_t *target;		     /* of an attachment: what has the policy; NULL: it is none */
	json_t *lists[LISTS];	     /* .. and what is known of it; NULL where there is nothing */
	uint64_t lists_omitted[LISTS];
	struct entry *entries;
	size_t n, room;
	uint64_t omitted; /* records beyond VIEW_EVENTS_MAX */
	uint64_t unwritten;
	uint64_t changes_omitted; /* of the policy, beyond LIMIT_POLICY_CHANGES */
	bool quiet;		  /* a policy of this run's wants allowed attempts counted, not listed */
};

struct totals {
	uint64_t attempts, denied, allowed, would_deny, lost;
	uint64_t inbound; /* what came from outside and was refused: among the events, not among the attempts */
	bool exact;	  /* from the kernel's counters; else from what is listed so far */
};

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
	free(v);
	return NULL;
}

static const char *text_of(const json_t *record, const char *name)
{
	const char *text = json_string_value(json_object_get(record, name));

	return text ? text : "";
}

static uint64_t number_of(const json_t *record, const char *name)
{
	json_int_t n = json_integer_value(json_object_get(record, name));

	return n > 0 ? (uint64_t)n : 0;
}

static int set_copy(json_t *into, const char *name, const json_t *from, const char *from_name)
{
	json_t *value = json_object_get(from, from_name);

	return value ? json_object_set(into, name, value) : json_object_set_new(into, name, json_null());
}

static void flow_identity(char *ret, size_t size, const json_t *r)
{
	snprintf(ret, size, "%s|%s|%s|%lld|%s|%lld|%s|%s|%lld|%lld|%lld|%s|%lld", text_of(r, "hook"), text_of(r, "verdict"),
		 text_of(r, "reason"), (long long)number_of(r, "rule"), text_of(r, "decode_kind"),
		 (long long)number_of(r, "policy_generation"), text_of(r, "protocol"), text_of(r, "address"),
		 (long long)(json_is_integer(json_object_get(r, "port")) ? (json_int_t)number_of(r, "port") : -1),
		 (long long)number_of(r, "icmp_type"), (long long)number_of(r, "icmp_code"), text_of(r, "name_hash"),
		 (long long)number_of(r, "cgroup"));
}

/* The members an answer shows; those only an egress record has are null until one comes. */
static json_t *event_from(const json_t *record)
{
	static const char *const members[] = {
	    "seq",     "time", "hook",	   "verdict",  "reason", "rule",     "rule_name", "policy_generation", "protocol",
	    "address", "port", "dns_name", "dns_type", "pid",	 "host_pid", "uid",	  "command",	       "attribution"};
	static const char *const optional[] = {"decode_kind", "decode", "dns_malformed", "icmp_type", "icmp_code"};
	json_t *event = json_object();
	int bad = event ? 0 : -1;

	for (size_t i = 0; !bad && i < sizeof members / sizeof members[0]; i++)
		bad = set_copy(event, members[i], record, members[i]);
	for (size_t i = 0; !bad && i < sizeof optional / sizeof optional[0]; i++)
		if (json_object_get(record, optional[i]))
			bad = set_copy(event, optional[i], record, optional[i]);
	if (!bad && !json_object_get(record, "attribution"))
		bad = json_object_set_new(event, "attribution", json_string("unknown"));
	if (!bad) {
		bad |= set_copy(event, "first", record, json_object_get(record, "first") ? "first" : "time");
		bad |= set_copy(event, "last", record, json_object_get(record, "last") ? "last" : "time");
	}
	if (bad) {
		json_decref(event);
		return NULL;
	}
	return event;
}

/* The entry of a record's flow, made when it is new. *ret stays NULL when there are too many. */
static int entry_of(struct view *v, const json_t *record, struct entry **ret)
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
	v->entries[v->n] = (struct entry){.event = event_from(record)};
	if (!v->entries[v->n].event || (v->cgroups && set_copy(v->entries[v->n].event, "cgroup_id", record, "cgroup") < 0)) {
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

static int add_attempt(struct view *v, const json_t *record, bool flow)
{
	struct entry *e = NULL;

	if (entry_of(v, record, &e) < 0)
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
	e->count += number_of(record, "count");
	e->bytes += number_of(record, "bytes");
	if (set_copy(e->event, "first", record, "first") < 0 || set_copy(e->event, "last", record, "last") < 0)
		return -ENOMEM;
	return 0;
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
		bad = set_copy(change, members[i], record, members[i]);
	if (bad) {
		json_decref(change);
		return -ENOMEM;
	}
	return json_array_append_new(v->changes, change) < 0 ? -ENOMEM : 0;
}

/* ---- of what had a policy put on it while it ran ---- */

/* A record's own members: those that every record has are the run's. */
static json_t *own_members(const json_t *record)
{
	static const char *const everybodys[] = {"type", "run_id", "boot_ns", "sandbox_id", "project"};
	json_t *own = json_copy((json_t *)record);

	for (size_t i = 0; own && i < sizeof everybodys / sizeof everybodys[0]; i++)
		json_object_del(own, everybodys[i]);
	return own;
}

static int add_to_list(struct view *v, enum list which, const json_t *record)
{
	json_t **list = &v->lists[which];

	if (!*list && !(*list = json_array()))
		return -ENOMEM;
	if (json_array_size(*list) >= lists[which].max) {
		v->lists_omitted[which]++;
		return 0;
	}
	return json_array_append_new(*list, own_members(record)) < 0 ? -ENOMEM : 0;
}

/* "281474976712345", as a name in `cgroups`. */
static const char *cgroup_key(char ret[24], const json_t *with_id)
{
	snprintf(ret, 24, "%llu", (unsigned long long)number_of(with_id, "cgroup_id"));
	return ret;
}

/* Of one that is told twice the path stays: it may be gone the second time. */
static int add_cgroup(struct view *v, const json_t *record)
{
	const char *path = text_of(record, "cgroup");
	char key[24];

	if (!v->cgroups && !(v->cgroups = json_object()))
		return -ENOMEM;
	if (!path[0] || json_object_size(v->cgroups) >= VIEW_EVENTS_MAX)
		return 0;
	return json_object_set_new(v->cgroups, cgroup_key(key, record), json_string(path)) < 0 ? -ENOMEM : 0;
}

/* 1: it was none of these. */
static int add_attached(struct view *v, const char *type, const json_t *record)
{
	json_t *own;
	int r;

	for (enum list i = 0; i < LISTS; i++)
		if (!strcmp(type, lists[i].type))
			return add_to_list(v, i, record);
	if (!strcmp(type, record_type_names[RECORD_CGROUP]))
		return add_cgroup(v, record);
	if (strcmp(type, "target") != 0 && strcmp(type, "place") != 0)
		return 1;
	own = own_members(record);
	if (!v->target)
		v->target = json_object();
	json_object_del(own, "seq");
	json_object_del(own, "time");
	r = own && v->target ? json_object_update(v->target, own) : -1;
	json_decref(own);
	return r < 0 ? -ENOMEM : 0;
}

static int attached_json(json_t *run, const struct view *v)
{
	int bad = 0;

	if (!v->target)
		return 0;
	bad |= json_object_set(run, "target", v->target);
	for (enum list i = 0; i < LISTS; i++) {
		char omitted[32];

		bad |= v->lists[i] ? json_object_set(run, lists[i].name, v->lists[i])
				   : json_object_set_new(run, lists[i].name, json_array());
		if (!v->lists_omitted[i])
			continue;
		snprintf(omitted, sizeof omitted, "%s_omitted", lists[i].name);
		bad |= json_object_set_new(run, omitted, event_u64(v->lists_omitted[i]));
	}
	return bad;
}

int view_add(struct view *v, const json_t *record)
{
	const char *type = text_of(record, "type");
	int r;

	if (!v->first)
		v->first = json_incref((json_t *)record);
	if (json_is_false(json_object_get(record, "audit_allowed")))
		v->quiet = true;
	if (strcmp(type, "run_begin") == 0) {
		json_decref(v->begin);
		v->begin = json_incref((json_t *)record);
	} else if (strcmp(type, "run_end") == 0) {
		json_decref(v->end);
		v->end = json_incref((json_t *)record);
	} else if (strcmp(type, "egress") == 0 || strcmp(type, "flow") == 0) {
		return add_attempt(v, record, type[0] == 'f');
	} else if (strcmp(type, "policy") == 0) {
		return add_change(v, record);
	} else if ((r = add_attached(v, type, record)) < 0) {
		return r;
	}
	return 0;
}

void view_unwritten(struct view *v, uint64_t records)
{
	v->unwritten += records;
}

const char *view_project(const struct view *v)
{
	return v->first ? text_of(v->first, "project") : NULL;
}

const char *view_agent(const struct view *v)
{
	return v->begin ? json_string_value(json_object_get(v->begin, "agent")) : NULL;
}

bool view_ended(const struct view *v)
{
	return v->end != NULL;
}

static uint64_t entry_count(const struct entry *e)
{
	return e->counted ? e->count : e->first_attempts;
}

static bool entry_is(const struct entry *e, const char *verdict)
{
	return strcmp(text_of(e->event, "verdict"), verdict) == 0;
}

/* Its address is a sender's: nobody in the run has tried to reach it. */
static bool is_inbound(const struct entry *e)
{
	return strcmp(text_of(e->event, "hook"), event_hook_names[WEIR_HOOK_INGRESS]) == 0;
}

static struct totals totals_of(const struct view *v)
{
	uint64_t listed = 0, denied = 0, would_deny = 0, inbound = 0, no_event = 0, unlisted = number_of(v->end, "unlisted");
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
	t.attempts = t.exact ? number_of(v->end, "attempts") : listed;
	t.denied = t.exact ? number_of(v->end, "denied") : denied;
	t.would_deny = t.exact ? number_of(v->end, "would_deny") : would_deny;
	t.allowed = t.exact ? number_of(v->end, "allowed") : listed - denied - would_deny;
	t.inbound = t.exact ? number_of(v->end, "inbound") : inbound;
	/*
	 * A window ends while what it watches goes on: what is counted between the list and the counters is in one and not in
	 * the other, in this window and the opposite way in the next. What is really lost is known there.
	 */
	if (json_object_get(v->end, "dropped")) {
		t.lost = number_of(v->end, "unlisted") + number_of(v->end, "dropped");
		if (t.lost < v->unwritten + v->omitted)
			t.lost = v->unwritten + v->omitted;
		return t;
	}
	t.lost = unlisted + no_event;
	/* Not lost but not asked for: allowed attempts of a policy that does not list those. */
	if (v->quiet && t.allowed > listed - denied - would_deny)
		unlisted += t.allowed - (listed - denied - would_deny);
	if (t.attempts > listed && t.attempts - listed > unlisted)
		t.lost += t.attempts - listed - unlisted;
	/* A record that could not be written is a loss even when the counters happen to add up without it. */
	if (t.lost < v->unwritten + v->omitted)
		t.lost = v->unwritten + v->omitted;
	/* Records are counted there, and one flow has two: no more attempts can have lost their detail than were made. */
	if (t.exact && t.lost > t.attempts)
		t.lost = t.attempts;
	return t;
}

static json_t *totals_json(struct totals t)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "attempts", event_u64(t.attempts), "denied", event_u64(t.denied),
			 "allowed", event_u64(t.allowed), "would_deny", event_u64(t.would_deny), "inbound",
			 event_u64(t.inbound), "lost", event_u64(t.lost));
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
		return json_object_set_new(d, "count", event_u64(number_of(d, "count") + entry_count(e)));
	}
	if (json_array_size(list) == LIMIT_EGRESS_DESTINATIONS)
		return 0;
	d = json_object();
	bad = d ? 0 : -1;
	for (size_t k = 0; k < DESTINATION_MEMBERS; k++)
		bad |= set_copy(d, destination_members[k].name, e->event, destination_members[k].of_event);
	bad |= json_object_set_new(d, "count", event_u64(entry_count(e)));
	if (bad) {
		json_decref(d);
		return -1;
	}
	return json_array_append_new(list, d);
}

json_t *view_summary(const struct view *v)
{
	json_t *egress = totals_json(totals_of(v)), *list = json_array();
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
	return json_object_set_new(event, "cgroup", json_string(text_of(v->cgroups, cgroup_key(key, event))));
}

static json_t *events_json(const struct view *v)
{
	json_t *events = json_array();

	for (size_t i = 0; events && i < v->n; i++) {
		const struct entry *e = &v->entries[i];
		json_t *event = json_copy(e->event);

		if (name_cgroup(v, event) < 0 || json_object_set_new(event, "count", event_u64(entry_count(e))) < 0 ||
		    json_object_set_new(event, "bytes", e->counted ? event_u64(e->bytes) : json_null()) < 0 ||
		    json_array_append(events, event) < 0) {
			json_decref(events);
			events = NULL;
		}
		json_decref(event);
	}
	return events;
}

/* Of a window: nothing of its kind has an exit code, and nobody counted its CPU. */
static int add_window_end(json_t *run, const json_t *end)
{
	int bad = json_object_set_new(run, "duration_ms", event_u64(number_of(end, "duration_us") / 1000));

	bad |= set_copy(run, "counters_readable", end, "readable");
	bad |= json_object_set_new(
	    run, "termination",
	    json_pack("{s:s, s:n, s:s}", "reason", text_of(end, "end"), "signal", "detail", text_of(end, "detail")));
	bad |= json_object_set_new(
	    run, "usage",
	    json_pack("{s:{s:o, s:s}}", "net_bytes", "value", event_u64(number_of(end, "net_bytes")), "source", "cgroup_skb"));
	return bad;
}

static int add_end(json_t *run, const json_t *end)
{
	int bad = json_object_set_new(run, "ended", json_string(text_of(end, "time")));

	if (json_object_get(end, "dropped"))
		return bad | add_window_end(run, end);

	bad |= set_copy(run, "ran", end, "ran");
	bad |= set_copy(run, "exit_code", end, "exit_code");
	bad |= json_object_set_new(run, "duration_ms", event_u64(number_of(end, "duration_us") / 1000));
	bad |= json_object_set_new(run, "termination",
				   json_pack("{s:s, s:O?, s:s}", "reason", text_of(end, "end"), "signal",
					     json_object_get(end, "signal"), "detail", text_of(end, "detail")));
	bad |= json_object_set_new(run, "usage",
				   json_pack("{s:{s:f, s:s}, s:{s:o, s:s}, s:{s:o, s:s}}", "cpu_ms", "value",
					     (double)number_of(end, "cpu_us") / 1000, "source", text_of(end, "cpu_source"),
					     "memory_peak_bytes", "value", event_u64(number_of(end, "memory_peak")), "source",
					     text_of(end, "memory_source"), "net_bytes", "value",
					     event_u64(number_of(end, "net_bytes")), "source", "cgroup_skb"));
	return bad;
}

json_t *view_run(const struct view *v, const char *state)
{
	struct totals totals = totals_of(v);
	json_t *run = json_object(), *egress = totals_json(totals);
	int bad = run && egress ? 0 : -1;

	bad |= set_copy(run, "run_id", v->first, "run_id");
	bad |= set_copy(run, "sandbox_id", v->first, "sandbox_id");
	bad |= set_copy(run, "project", v->first, "project");
	bad |= set_copy(run, "policy", v->begin, "policy");
	bad |= set_copy(run, "policy_hash", v->begin, "policy_hash");
	bad |= set_copy(run, "policy_generation", v->begin, "policy_generation");
	bad |= json_object_set(run, "policy_changes", v->changes);
	if (v->changes_omitted)
		bad |= json_object_set_new(run, "policy_changes_omitted", event_u64(v->changes_omitted));
	bad |= set_copy(run, "timeout_s", v->begin, "timeout_s");
	bad |= set_copy(run, "python", v->begin, "python");
	/* A tool call's. */
	for (const char *const *name = (const char *const[]){"agent", "image", NULL}; *name; name++)
		if (json_object_get(v->begin, *name))
			bad |= set_copy(run, *name, v->begin, *name);
	bad |= json_object_set_new(run, "state", json_string(state));
	bad |= set_copy(run, "began", v->begin, "time");
	if (v->end)
		bad |= add_end(run, v->end);
	else
		bad |= json_object_set_new(run, "termination", json_null());
	bad |= attached_json(run, v);
	bad |= json_object_set_new(egress, "exact", json_boolean(totals.exact));
	bad |= json_object_set(run, "egress", egress);
	bad |= json_object_set_new(run, "records_unwritten", event_u64(v->unwritten));
	bad |= json_object_set_new(run, "events_omitted", event_u64(v->omitted));
	bad |= json_object_set_new(run, "events", events_json(v));
	json_decref(egress);
	if (bad) {
		json_decref(run);
		return NULL;
	}
	return run;
}
