/* SPDX-License-Identifier: Apache-2.0 */
/* What an answer says of a run beside what it wrote and left: how it ended, what it used and tried, and where its record is. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "api/answer_priv.h"

static json_t *text_or_null(const char *text)
{
	return *text ? json_string(text) : json_null();
}

/* Microseconds as milliseconds, without the digits a double would invent. */
static json_t *ms(uint64_t us)
{
	return us % 1000 ? json_real((double)us / 1000) : json_integer((json_int_t)(us / 1000));
}

static json_t *plain_figure(json_t *value, const char *source)
{
	return json_pack("{s:o, s:s}", "value", value, "source", source);
}

/*
 * One figure and where it comes from, and what another one says; a figure without a source was not measured, and is null. Takes
 * both references; `checked` is null when there is nothing to check it against.
 */
static json_t *figure(json_t *value, const char *source, json_t *checked)
{
	if (!*source) {
		json_decref(value);
		value = json_null();
	}
	return json_pack("{s:o, s:o, s:o}", "value", value, "source", text_or_null(source), "checked", checked);
}

json_t *answer_termination(const struct tell_end *end)
{
	const char *abbreviation = end->signal > 0 ? sigabbrev_np(end->signal) : NULL;
	char name[32] = "";

	if (abbreviation)
		snprintf(name, sizeof name, "SIG%s", abbreviation);
	else if (end->signal > 0)
		snprintf(name, sizeof name, "SIG%d", end->signal); /* real-time signals have no abbreviation */
	return json_pack("{s:s, s:o, s:s}", "reason", run_end_names[end->end], "signal", text_or_null(name), "detail",
			 end->detail);
}

static json_t *stages(const struct run_result *r)
{
	const struct tell_grant *g = &r->grant;

	if (r->call)
		return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "queue_ms", ms(r->queue_us), "send_ms", ms(r->send_us),
				 "run_ms", ms(r->end.duration_us), "build_ms", ms(g->build_us), "load_ms", ms(g->load_us),
				 "waited_ms", ms(g->waited_us));
	return json_pack("{s:o, s:o, s:o, s:o}", "queue_ms", ms(r->queue_us), "send_ms", ms(r->send_us), "run_ms",
			 ms(r->end.duration_us), "collect_ms", ms(r->collect_us));
}

/* Of some tasks the meter could not see the end: it is not exact, and says so. */
static json_t *followed_figure(const struct tell_meter *m, json_t *value, const char *source)
{
	json_t *figure = plain_figure(value, source);

	if (m->incomplete)
		json_object_set_new(figure, "exact", json_false());
	return figure;
}

/* What eBPF counted, beside what the cgroup's files and the pipes' reader say. Of the network it is the record that has both.
 */
static json_t *usage(const struct run_result *r)
{
	const struct tell_end *end = &r->end;
	const struct tell_meter *m = &end->meter;
	uint64_t written = r->out_bytes[RUN_STDOUT] + r->out_bytes[RUN_STDERR];
	json_t *cpu = json_null(), *memory = json_null(), *output = json_null();

	if (m->there) {
		cpu = followed_figure(m, ms(m->cpu_us), "sched_process_exit");
		if (m->peak_rss) /* 0: not known */
			memory =
			    followed_figure(m, json_integer((json_int_t)m->peak_rss), "largest process, sched_process_exit");
		output = plain_figure(json_integer((json_int_t)m->written_bytes), "task io accounting");
	}
	return json_pack("{s:o, s:o, s:o, s:o, s:o}", "cpu_ms", figure(ms(end->cpu_us), end->cpu_source, cpu),
			 "memory_peak_bytes", figure(json_integer((json_int_t)end->memory_peak), end->memory_source, memory),
			 "output_bytes", figure(json_integer((json_int_t)written), "pipe reader", output), "net_bytes",
			 figure(json_integer((json_int_t)end->net_bytes), "cgroup_skb", json_null()), "stages", stages(r));
}

/* What the meter knows of its processes, and its filter of what it refused; null: it is not known. */
static json_t *processes(const struct tell_meter *m)
{
	return m->there ? json_integer((json_int_t)m->processes) : json_null();
}

static json_t *refused_syscalls(const struct tell_meter *m)
{
	if (m->syscalls_refused == UINT64_MAX)
		return json_null();
	return json_pack("{s:I}", "count", (json_int_t)m->syscalls_refused);
}

/* The supervisor's exact counters with an empty list. */
static json_t *counted_egress(const struct tell_end *end)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:[]}", "attempts", (json_int_t)end->attempts, "denied",
			 (json_int_t)end->denied, "allowed", (json_int_t)end->allowed, "would_deny",
			 (json_int_t)end->would_deny, "inbound", (json_int_t)end->inbound, "lost", (json_int_t)end->attempts,
			 "destinations");
}

/*
 * The auditor's words: what was tried, and the hash under which the record has it. Without them the detail of every attempt is
 * lost, and the answer says so rather than looking like a quiet run; and nobody vouches for a record.
 */
static void audit(const struct run_result *r, json_t **ret_egress, json_t **ret_hash)
{
	json_t *told = r->summary ? json_loadb(r->summary, r->summary_len, JSON_REJECT_DUPLICATES, NULL) : NULL;
	json_t *egress = json_object_get(told, "egress"), *hash = json_object_get(told, "audit_hash");

	if (json_is_array(json_object_get(egress, "destinations"))) {
		*ret_egress = json_incref(egress);
		*ret_hash = json_is_string(hash) ? json_incref(hash) : json_null();
	} else {
		*ret_egress = counted_egress(&r->end);
		*ret_hash = json_null();
	}
	json_decref(told);
}

json_t *answer_account(const struct run_result *r)
{
	json_t *egress, *hash;

	audit(r, &egress, &hash);
	return json_pack("{s:o, s:o, s:o, s:o, s:o}", "usage", usage(r), "processes", processes(&r->end.meter),
			 "refused_syscalls", refused_syscalls(&r->end.meter), "egress", egress, "audit_hash", hash);
}
