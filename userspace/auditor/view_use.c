/* SPDX-License-Identifier: Apache-2.0 */
/* What a run used, and what of it is known from where: each figure with the second source that it is checked against. */
#include "auditor/view_internal.h"

#include "core/event.h"

static bool is_number(const json_t *record, const char *name)
{
	return json_is_integer(json_object_get(record, name));
}

/* A figure that nobody has is null, and so is its source. */
static json_t *figure(json_t *value, const char *source)
{
	return json_pack("{s:o, s:s?}", "value", value, "source", json_is_null(value) ? NULL : source);
}

static int put_figure(json_t *usage, const char *name, json_t *first, json_t *checked)
{
	int bad = json_object_set_new(first, "checked", checked);

	return json_object_set_new(usage, name, first) | bad;
}

/* Of the meter; null where it was not there. */
static json_t *metered(const json_t *end, const char *name, const char *source, json_t *(*as)(uint64_t))
{
	const json_t *meter = json_object_get(end, "meter");

	return is_number(meter, name) ? figure(as(view_number(meter, name)), source) : json_null();
}

/* .. of what is followed to each task's end: for some of them there was no room, and then it is not exact. */
static json_t *followed(const json_t *end, const char *name, const char *source, json_t *(*as)(uint64_t))
{
	json_t *checked = metered(end, name, source, as);

	if (view_number(json_object_get(end, "meter"), "incomplete") && json_is_object(checked))
		json_object_set_new(checked, "exact", json_false());
	return checked;
}

static json_t *as_ms(uint64_t us)
{
	return json_real((double)us / 1000);
}

static json_t *measured(const json_t *end, const char *name, const char *source_name, json_t *(*as)(uint64_t))
{
	const char *source = view_text(end, source_name);

	return figure(source[0] ? as(view_number(end, name)) : json_null(), source);
}

/* What its client read of both streams; nobody else has seen all of it. */
static json_t *read_output(const json_t *record)
{
	const json_t *content = json_object_get(record, "content"), *out = json_object_get(content, "stdout"),
		     *err = json_object_get(content, "stderr");
	bool known = out || err;

	return figure(known ? event_u64(view_number(out, "bytes") + view_number(err, "bytes")) : json_null(), "pipe reader");
}

json_t *view_usage(const json_t *end, const json_t *content, json_t *flow_bytes)
{
	json_t *usage = json_object();
	int bad = put_figure(usage, "cpu_ms", measured(end, "cpu_us", "cpu_source", as_ms),
			     followed(end, "cpu_us", "sched_process_exit", as_ms));

	bad |= put_figure(usage, "memory_peak_bytes", measured(end, "memory_peak", "memory_source", event_u64),
			  followed(end, "peak_rss", "largest process, sched_process_exit", event_u64));
	bad |= put_figure(usage, "output_bytes", read_output(content),
			  metered(end, "written_bytes", "task io accounting", event_u64));
	bad |= put_figure(usage, "net_bytes", figure(event_u64(view_number(end, "net_bytes")), "cgroup_skb"),
			  json_is_null(flow_bytes) ? flow_bytes : figure(flow_bytes, "flows"));
	if (bad) {
		json_decref(usage);
		return NULL;
	}
	return usage;
}

/* Counted by the meter; of a run that goes on, as far as it is told. */
static json_t *execs_json(const struct view *v, bool lists)
{
	const json_t *meter = json_object_get(v->end, "meter");
	const uint64_t listed = json_array_size(v->lists[LIST_PROGRAMS]), told = listed + v->omitted_of[LIST_PROGRAMS];
	const uint64_t count = view_number(meter, "execs") > told ? view_number(meter, "execs") : told;
	bool known = meter ? json_is_object(meter) : !v->end;
	json_t *execs = json_object();
	int bad = json_object_set_new(execs, "count", known ? event_u64(count) : json_null());

	bad |= json_object_set_new(execs, "unlisted", known ? event_u64(count - listed) : json_null());
	if (lists)
		bad |= view_put_list(execs, v, LIST_PROGRAMS);
	if (bad) {
		json_decref(execs);
		return NULL;
	}
	return execs;
}

/* Null: nobody counted them. */
static json_t *refused_json(const struct view *v, bool lists)
{
	uint64_t told = v->calls_omitted, count = view_number(v->end, "syscalls_refused"), interrupted = 0;
	json_t *refused, *call;
	size_t i;
	int bad;

	json_array_foreach(v->lists[LIST_CALLS], i, call)
	{
		told += view_number(call, "count");
		interrupted += view_number(call, "interrupted");
	}
	if (v->end && !is_number(v->end, "syscalls_refused") && !told)
		return json_null();
	refused = json_object();
	bad = json_object_set_new(refused, "count", event_u64(count > told ? count : told));
	if (view_number(v->end, "syscalls_interrupted") > interrupted)
		interrupted = view_number(v->end, "syscalls_interrupted");
	bad |= json_object_set_new(refused, "interrupted", event_u64(interrupted));
	if (lists)
		bad |= view_put_list(refused, v, LIST_CALLS);
	if (bad) {
		json_decref(refused);
		return NULL;
	}
	return refused;
}

int view_put_use(json_t *run, const struct view *v, bool lists)
{
	const json_t *meter = json_object_get(v->end, "meter");
	int bad = 0;

	if (v->end)
		bad |= json_object_set_new(run, "usage", view_usage(v->end, v->content, event_u64(view_flow_bytes(v))));
	bad |= view_set_copy(run, "processes", meter, "processes");
	bad |= view_set_copy(run, "threads", meter, "threads");
	bad |= json_object_set_new(run, "execs", execs_json(v, lists));
	bad |= json_object_set_new(run, "refused_syscalls", refused_json(v, lists));
	bad |= view_set_copy(run, "oom_victims", meter, "oom_victims");
	bad |= view_set_copy(run, "oom_kills", v->end, "oom_kills");
	bad |= view_set_copy(run, "packets", v->end, "packets");
	if (view_number(v->end, "details_dropped"))
		bad |= view_set_copy(run, "details_dropped", v->end, "details_dropped");
	bad |= view_set_copy(run, "limits", v->begin, "limits");
	bad |= view_set_copy(run, "content", v->content, "content");
	bad |= view_set_copy(run, "boot_id", v->begin, "boot_id");
	for (enum list i = LIST_OOM; lists && i <= LIST_MOMENTS; i++)
		bad |= view_put_list(run, v, i);
	return bad;
}
