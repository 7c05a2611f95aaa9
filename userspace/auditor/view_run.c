/* SPDX-License-Identifier: Apache-2.0 */
/* A run as a whole: what its record answers, and what of it goes into the chain. */
#include "auditor/view_internal.h"

#include "core/event.h"

/* Of a window: nothing of its kind has an exit code. */
static int put_end(json_t *run, const struct view *v)
{
	const json_t *end = v->end;
	int bad = json_object_set_new(run, "ended", json_string(view_text(end, "time")));

	if (view_is_window(v)) {
		bad |= view_set_copy(run, "counters_readable", end, "readable");
	} else {
		bad |= view_set_copy(run, "ran", end, "ran");
		bad |= view_set_copy(run, "exit_code", end, "exit_code");
	}
	bad |= json_object_set_new(run, "duration_ms", event_u64(view_number(end, "duration_us") / 1000));
	bad |= json_object_set_new(run, "termination",
				   json_pack("{s:s, s:O?, s:s}", "reason", view_text(end, "end"), "signal",
					     json_object_get(end, "signal"), "detail", view_text(end, "detail")));
	return bad;
}

/* Who ran what, under which policy, since when. */
static int put_begin(json_t *run, const struct view *v)
{
	int bad = view_set_copy(run, "run_id", v->first, "run_id");

	bad |= view_set_copy(run, "sandbox_id", v->first, "sandbox_id");
	bad |= view_set_copy(run, "project", v->first, "project");
	bad |= view_set_copy(run, "policy", v->begin, "policy");
	bad |= view_set_copy(run, "policy_hash", v->begin, "policy_hash");
	bad |= view_set_copy(run, "policy_generation", v->begin, "policy_generation");
	bad |= json_object_set(run, "policy_changes", v->changes);
	if (v->changes_omitted)
		bad |= json_object_set_new(run, "policy_changes_omitted", event_u64(v->changes_omitted));
	bad |= view_set_copy(run, "timeout_s", v->begin, "timeout_s");
	bad |= view_set_copy(run, "python", v->begin, "python");
	bad |= view_set_copy(run, "caller", v->begin, "caller");
	/* A tool call's, and a command's of the host. */
	for (const char *const *name = (const char *const[]){"agent", "image", "command", NULL}; *name; name++)
		if (json_object_get(v->begin, *name))
			bad |= view_set_copy(run, *name, v->begin, *name);
	bad |= view_set_copy(run, "began", v->begin, "time");
	return bad;
}

static int put_egress(json_t *run, const struct view *v)
{
	const struct totals totals = view_totals(v);
	json_t *egress = view_totals_json(&totals);
	int bad = json_object_set_new(egress, "exact", json_boolean(totals.exact));

	bad |= json_object_set_new(egress, "events_missing", v->end ? event_u64(view_events_missing(v)) : json_null());
	bad |= json_object_set_new(run, "egress", egress);
	bad |= json_object_set_new(run, "records_unwritten", event_u64(v->unwritten));
	return bad | json_object_set_new(run, "events_omitted", event_u64(v->omitted));
}

/* What both have. */
static int put_all(json_t *run, const struct view *v, bool lists)
{
	int bad = put_begin(run, v);

	bad |= v->end ? put_end(run, v) : json_object_set_new(run, "termination", json_null());
	bad |= put_egress(run, v);
	return bad | view_put_use(run, v, lists);
}

static json_t *finished(json_t *run, int bad)
{
	if (!bad)
		return run;
	json_decref(run);
	return NULL;
}

static int put_chain(json_t *run, const struct view *v)
{
	if (!v->chain_n)
		return json_object_set_new(run, "chain", json_null()) | json_object_set_new(run, "audit_hash", json_null());
	return json_object_set_new(
		   run, "chain",
		   json_pack("{s:o, s:s, s:b}", "n", event_u64(v->chain_n), "hash", v->chain_hash, "signed", v->chain_signed)) |
	       json_object_set_new(run, "audit_hash", json_string(v->chain_hash));
}

json_t *view_run(const struct view *v, const char *state)
{
	json_t *run = json_object();
	int bad = put_all(run, v, true);

	bad |= json_object_set_new(run, "state", json_string(state));
	bad |= view_put_attached(run, v);
	bad |= view_put_list(run, v, LIST_GAPS);
	if (v->lists[LIST_LATE])
		bad |= view_put_list(run, v, LIST_LATE);
	bad |= put_chain(run, v);
	return finished(run, bad | json_object_set_new(run, "events", view_events(v)));
}

json_t *view_chained(const struct view *v, uint64_t records, const char *records_sha256)
{
	json_t *run = json_object();
	int bad = put_all(run, v, false);

	bad |= json_object_set_new(run, "kind", json_string(chain_kind_names[CHAIN_RUN]));
	bad |= json_object_set_new(run, "records", event_u64(records));
	bad |= json_object_set_new(run, "records_sha256", json_string(records_sha256));
	if (v->target)
		bad |= json_object_set(run, "target", v->target);
	return finished(run, bad);
}
