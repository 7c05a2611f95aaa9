/* SPDX-License-Identifier: Apache-2.0 */
#include "api/metrics_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/error.h"
#include "attach/attach.h"
#include "version.h"

static const char *const verdict_names[WEIR_VERDICT_COUNT] = {
    [WEIR_DENY] = "denied", [WEIR_ALLOW] = "allowed", [WEIR_WOULD_DENY] = "would_deny"};
static const char *const stage_names[METRICS_STAGES] = {
    [STAGE_QUEUE] = "queue", [STAGE_SEND] = "send", [STAGE_RUN] = "run", [STAGE_COLLECT] = "collect"};
static const char *const policy_names[METRICS_POLICIES] = {"snippet", "tool"};

/* ---- the format ---- */

/* Every family begins with what it is. Neither text needs escaping: they are ours. */
static void family(FILE *to, const char *name, const char *type, const char *help)
{
	fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* One more label of a sample; `before`: "{" or ",". */
static void label(FILE *to, const char *before, const char *name, const char *value)
{
	fprintf(to, "%s%s=\"", before, name);
	for (; *value; value++) {
		if (*value == '\\' || *value == '"')
			putc('\\', to);
		if (*value == '\n')
			fputs("\\n", to);
		else
			putc(*value, to);
	}
	putc('"', to);
}

static void number(FILE *to, uint64_t n)
{
	fprintf(to, " %llu\n", (unsigned long long)n);
}

/* Whole units of a million parts, without the digits that a double would invent. */
static void millionths(FILE *to, uint64_t n)
{
	fprintf(to, " %llu.%06llu\n", (unsigned long long)(n / 1000000), (unsigned long long)(n % 1000000));
}

static void one(FILE *to, const char *name, const char *type, const char *help, uint64_t n)
{
	family(to, name, type, help);
	fputs(name, to);
	number(to, n);
}

/* A sample with one label. */
static void with(FILE *to, const char *name, const char *label_name, const char *value, uint64_t n)
{
	fputs(name, to);
	label(to, "{", label_name, value);
	fputs("}", to);
	number(to, n);
}

static void histogram(FILE *to, const char *name, const char *stage, const struct histogram *h)
{
	uint64_t sum = 0;

	for (int i = 0; i <= HISTOGRAM_BUCKETS; i++) {
		char bound[32] = "+Inf";

		if (i < HISTOGRAM_BUCKETS)
			snprintf(bound, sizeof bound, "%g", (double)histogram_bounds_us[i] / 1e6);
		sum = i < HISTOGRAM_BUCKETS ? sum + h->bucket[i] : h->count;
		fprintf(to, "%s_bucket", name);
		label(to, "{", "stage", stage);
		label(to, ",", "le", bound);
		fputs("}", to);
		number(to, sum);
	}
	fprintf(to, "%s_sum", name);
	label(to, "{", "stage", stage);
	fputs("}", to);
	millionths(to, h->sum_us);
	fprintf(to, "%s_count", name);
	label(to, "{", "stage", stage);
	fputs("}", to);
	number(to, h->count);
}

/* ---- the api's own ---- */

static void put_statuses(FILE *to, const struct api_counts *c)
{
	static const char name[] = "weir_refused_requests_total";
	bool listed[sizeof c->refused / sizeof *c->refused] = {false};

	family(to, name, "counter", "Requests that were answered with an error, by status.");
	for (int k = ERROR_NONE + 1; k < ERROR_CASES; k++)
		listed[error_row((enum error_case)k)->status - 400] = true;
	for (unsigned i = 0; i < sizeof listed / sizeof *listed; i++) {
		char status[16];

		if (!listed[i] && !c->refused[i])
			continue;
		snprintf(status, sizeof status, "%u", 400 + i);
		with(to, name, "status", status, c->refused[i]);
	}
}

static void put_api(FILE *to, const struct metrics_view *v)
{
	static const char info[] = "weir_build_info", up[] = "weir_process_up";

	family(to, info, "gauge", "Always 1; the version is its label.");
	with(to, info, "version", WEIR_VERSION, 1);
	family(to, up, "gauge", "Whether a process of the service answers.");
	with(to, up, "process", "supervisor", v->supervisor != NULL);
	with(to, up, "process", "auditor", v->auditor != NULL);
	if (v->has_collector)
		with(to, up, "process", "collector", v->collector_up);
	one(to, "weir_http_replies_total", "counter", "Requests that were answered, of whatever status.", v->counts->replies);
	put_statuses(to, v->counts);
	one(to, "weir_connections", "gauge", "Connections of clients.", v->connections);
	one(to, "weir_requests_queued", "gauge", "Requests that wait for their project's quota or their session.", v->waiting);
	one(to, "weir_audit_streams", "gauge", "Clients that follow the record.", v->followers);
	one(to, "weir_request_memory_bytes", "gauge", "Memory held for requests that no sandbox has yet.", v->request_bytes);
	one(to, "weir_answer_memory_bytes", "gauge", "Memory held for answers that are not read yet.", v->answer_bytes);
}

static void put_stages(FILE *to, const struct metrics_view *v)
{
	static const char name[] = "weir_stage_seconds";

	family(
	    to, name, "histogram",
	    "How long stages took: queue, send, run and collect of runs that were answered; build and load of the sandboxes of "
	    "runs that ended, mostly before anybody asked for one.");
	for (int i = 0; i < METRICS_STAGES; i++)
		histogram(to, name, stage_names[i], &v->counts->stages[i]);
	if (!v->supervisor)
		return;
	histogram(to, name, "build", &v->supervisor->build);
	histogram(to, name, "load", &v->supervisor->load);
}

/* ---- the supervisor's ---- */

static void put_runs(FILE *to, const struct metrics *m)
{
	static const char name[] = "weir_runs_total";

	family(to, name, "counter", "Runs that ended, by kind and ending.");
	for (int kind = 0; kind < METRICS_KINDS; kind++)
		for (int end = 0; end < RUN_END_COUNT; end++) {
			fputs(name, to);
			label(to, "{", "kind", metrics_kind_names[kind]);
			label(to, ",", "end", run_end_names[end]);
			fputs("}", to);
			number(to, m->runs[kind][end]);
		}
	family(to, "weir_run_cpu_seconds_total", "counter",
	       "CPU time of runs that ended, and of sessions between their cells.");
	fputs("weir_run_cpu_seconds_total", to);
	millionths(to, m->cpu_us);
	one(to, "weir_run_processes_total", "counter", "Processes of runs that ended.", m->processes);
	one(to, "weir_run_execs_total", "counter", "Programs that runs started.", m->execs);
	one(to, "weir_oom_kills_total", "counter", "Processes of runs that were killed for want of memory.", m->oom_kills);
	one(to, "weir_refused_syscalls_total", "counter", "System calls of runs that their filter refused.",
	    m->refused_syscalls);
	one(to, "weir_interrupted_syscalls_total", "counter",
	    "Times that such a call was interrupted before it was refused; it came again, or its caller got EINTR or was "
	    "killed.",
	    m->interrupted_syscalls);
}

static void put_pool(FILE *to, const struct metrics *m)
{
	const struct tell_pool *p = &m->pool;

	one(to, "weir_ready", "gauge", "Whether GET /readyz says so, as far as the supervisor knows.", p->ready);
	one(to, "weir_pool_size", "gauge", "Sandboxes to be kept warm.", p->size);
	one(to, "weir_pool_warm", "gauge", "Sandboxes that are ready.", p->warm);
	one(to, "weir_pool_starting", "gauge", "Sandboxes of the pool that are being built.", p->starting);
	one(to, "weir_pool_in_use", "gauge", "Sandboxes of the pool that are handed out.", p->in_use);
	one(to, "weir_pool_waiting", "gauge", "Requests that wait for a sandbox of the pool.", p->waiting);
	one(to, "weir_pool_served_total", "counter", "Sandboxes of the pool that were handed out.", p->served);
	one(to, "weir_pool_misses_total", "counter", "Requests that found no warm sandbox.", p->misses);
	one(to, "weir_sandboxes", "gauge", "Sandboxes there are, tools' and sessions' too.", m->sandboxes);
	one(to, "weir_sessions", "gauge", "Sessions that are open.", m->sessions);
}

/* One family of runs' and attachments' counts by verdict. */
static void put_verdicts(FILE *to, const struct metrics *m, const char *name, const char *help, size_t offset)
{
	static const char *const of[] = {"runs", "attached"};
	const struct metrics_network *const networks[] = {&m->runs_network, &m->attached_network};

	family(to, name, "counter", help);
	for (int i = 0; i < 2; i++) {
		const uint64_t *counts = (const uint64_t *)(const void *)((const char *)networks[i] + offset);

		for (int verdict = 0; verdict < WEIR_VERDICT_COUNT; verdict++) {
			fputs(name, to);
			label(to, "{", "of", of[i]);
			label(to, ",", "verdict", verdict_names[verdict]);
			fputs("}", to);
			number(to, counts[verdict]);
		}
	}
}

static void put_network(FILE *to, const struct metrics *m)
{
	put_verdicts(to, m, "weir_egress_attempts_total",
		     "Attempts to reach the network, of runs that ended and of attached workloads.",
		     offsetof(struct metrics_network, attempts));
	put_verdicts(to, m, "weir_egress_packets_total", "Packets on their way out, where the kernel judged them.",
		     offsetof(struct metrics_network, packets));
	put_verdicts(to, m, "weir_egress_bytes_total", "Bytes of these packets.", offsetof(struct metrics_network, bytes));
	family(to, "weir_inbound_refused_total", "counter", "Packets from outside that were refused.");
	with(to, "weir_inbound_refused_total", "of", "runs", m->runs_network.inbound);
	with(to, "weir_inbound_refused_total", "of", "attached", m->attached_network.inbound);
	family(to, "weir_attempts_unlisted_total", "counter",
	       "Attempts that are counted and have no line of their own in the record.");
	with(to, "weir_attempts_unlisted_total", "of", "runs", m->runs_network.unlisted);
	with(to, "weir_attempts_unlisted_total", "of", "attached", m->attached_network.unlisted);
}

static const char *const hook_names[WEIR_HOOK_COUNT] = {
    [WEIR_HOOK_CONNECT4] = "connect4",	   [WEIR_HOOK_CONNECT6] = "connect6", [WEIR_HOOK_SENDMSG4] = "sendmsg4",
    [WEIR_HOOK_SENDMSG6] = "sendmsg6",	   [WEIR_HOOK_EGRESS] = "egress",     [WEIR_HOOK_INGRESS] = "ingress",
    [WEIR_HOOK_SETSOCKOPT] = "setsockopt",
};

static void put_lost(FILE *to, const struct metrics *m)
{
	static const struct {
		enum weir_stat stat;
		const char *name, *reason, *help;
	} rows[] = {
	    {WEIR_STAT_RING_FULL, "weir_events_lost_total", "ring_full",
	     "Events that never came to the record; what they tell of is in its counts all the same."},
	    {WEIR_STAT_FLOW_FULL, "weir_events_lost_total", "flows_full", NULL},
	    {WEIR_STAT_BEYOND, "weir_attempts_beyond_list_total", NULL,
	     "Attempts that no event was due for: their run has as many destinations as are listed of one."},
	    {WEIR_STAT_NO_ENTRY, "weir_denied_without_entry_total", NULL,
	     "Attempts that were denied because the kernel knew no policy for their cgroup."},
	    {WEIR_STAT_STORAGE, "weir_socket_storage_failed_total", NULL,
	     "Sockets that could not be remembered: a stream has no process in its record, a datagram socket was refused."},
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (rows[i].help)
			family(to, rows[i].name, "counter", rows[i].help);
		for (int hook = WEIR_HOOK_NONE + 1; hook < WEIR_HOOK_COUNT; hook++) {
			fputs(rows[i].name, to);
			label(to, "{", "hook", hook_names[hook]);
			if (rows[i].reason)
				label(to, ",", "reason", rows[i].reason);
			fputs("}", to);
			number(to, m->events_lost[hook][rows[i].stat]);
		}
	}
}

static void put_meter(FILE *to, const struct metrics *m)
{
	one(to, "weir_meter_events_lost_total", "counter", "Started programs that the meter counted and could not tell of.",
	    m->meter_stats[WEIR_METER_STAT_RING_FULL]);
	one(to, "weir_meter_incomplete_total", "counter",
	    "Tasks that ended and that the meter had no room to follow: figures it checks others against may be too low.",
	    m->meter_stats[WEIR_METER_STAT_ENDING_FULL]);
}

static void put_policies(FILE *to, const struct metrics *m)
{
	one(to, "weir_policy_in_force", "gauge",
	    "Whether the kernel runs the service's own programs, asked of it again and again. 0 with --policy-only.",
	    m->guarded);
	family(to, "weir_policy_generation", "gauge", "How often the policy has been replaced, from 1.");
	for (int i = 0; i < METRICS_POLICIES; i++)
		if (m->policy[i].in_use)
			with(to, "weir_policy_generation", "of", policy_names[i], m->policy[i].generation);
	one(to, "weir_policy_reload_failures_total", "counter",
	    "Times that a policy was to be read again, and what was in force stayed.", m->reloads_failed);
	family(to, "weir_attachments", "gauge", "Policies on cgroups of others, by what was found when they were looked at.");
	for (int i = 0; i < METRICS_ATTACHED; i++) {
		char state[32];

		snprintf(state, sizeof state, "%s", attach_state_names[i]);
		for (char *c = state; *c; c++)
			*c = *c == ' ' ? '_' : *c;
		with(to, "weir_attachments", "state", state, m->attached[i]);
	}
	one(to, "weir_attachments_unreadable", "gauge", "Attachments whose own files can't be read.", m->attached_broken);
}

static void put_bpf(FILE *to, const struct metrics *m)
{
	one(to, "weir_bpf_run_time_measured", "gauge",
	    "Whether this service has the kernel measure how long programs run (metrics.bpf_run_time).", m->run_time);
	family(to, "weir_bpf_program_memory_bytes", "gauge", "Memory of a program's code.");
	for (uint32_t i = 0; i < m->program_count; i++)
		with(to, "weir_bpf_program_memory_bytes", "program", m->programs[i].name, m->programs[i].memory);
	family(to, "weir_bpf_map_memory_bytes", "gauge", "Memory of a map, as the kernel accounts it.");
	for (uint32_t i = 0; i < m->map_count; i++)
		with(to, "weir_bpf_map_memory_bytes", "map", m->maps[i].name, m->maps[i].memory);
	if (!m->run_time)
		return;
	family(to, "weir_bpf_run_seconds_total", "counter", "How long a program ran, while the kernel measured.");
	for (uint32_t i = 0; i < m->program_count; i++) {
		fputs("weir_bpf_run_seconds_total", to);
		label(to, "{", "program", m->programs[i].name);
		fprintf(to, "} %llu.%09llu\n", (unsigned long long)(m->programs[i].run_ns / 1000000000),
			(unsigned long long)(m->programs[i].run_ns % 1000000000));
	}
	family(to, "weir_bpf_runs_total", "counter", "How often a program ran, while the kernel measured.");
	for (uint32_t i = 0; i < m->program_count; i++)
		with(to, "weir_bpf_runs_total", "program", m->programs[i].name, m->programs[i].runs);
}

static void put_supervisor(FILE *to, const struct metrics *m)
{
	family(to, "weir_uptime_seconds", "gauge", "Since the service began to count.");
	fputs("weir_uptime_seconds", to);
	millionths(to, (m->at_ns - m->started_ns) / 1000);
	put_runs(to, m);
	put_pool(to, m);
	put_network(to, m);
	if (m->losses_known)
		put_lost(to, m);
	if (m->meter_known)
		put_meter(to, m);
	put_policies(to, m);
	put_bpf(to, m);
}

/* ---- the auditor's ---- */

static void put_auditor(FILE *to, const json_t *stats)
{
	static const struct {
		const char *member, *name, *type, *help;
	} rows[] = {
	    {"written", "weir_audit_records_written_total", "counter", "Records that were written."},
	    {"unwritten", "weir_audit_records_unwritten_total", "counter", "Records that are lost because writing failed."},
	    {"write_errors", "weir_audit_write_errors_total", "counter", "Times that writing failed."},
	    {"sync_errors", "weir_audit_sync_errors_total", "counter", "Times that the disk did not confirm what was written."},
	    {"runs", "weir_audit_runs", "gauge", "Runs in the record."},
	    {"bytes", "weir_audit_bytes", "gauge", "Size of the record."},
	    {"bytes_limit", "weir_audit_limit_bytes", "gauge", "The size over which the oldest runs go."},
	    {"pruned_runs", "weir_audit_pruned_runs_total", "counter", "Runs that were removed for their age or for room."},
	    {"chain_n", "weir_audit_chain_entries", "gauge", "The number of the chain's last entry."},
	    {"unsigned", "weir_audit_chain_unsigned", "gauge", "Entries of the chain that wait for their signature."},
	    {"breaks", "weir_audit_chain_breaks", "gauge",
	     "Entries in the record that say that the chain was broken: something before them is missing or is not what was "
	     "signed."},
	    {"adopted", "weir_audit_chain_adopted", "gauge",
	     "Entries in the record that were found unsigned when a service started, and were signed only then."},
	};
	const char *kind;
	json_t *count;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const json_t *value = json_object_get(stats, rows[i].member);

		if (json_is_integer(value) && json_integer_value(value) >= 0)
			one(to, rows[i].name, rows[i].type, rows[i].help, (uint64_t)json_integer_value(value));
	}
	family(to, "weir_audit_gaps_total", "counter", "Records that something is missing or could not be known, by kind.");
	json_object_foreach(json_object_get(stats, "gaps"), kind,
			    count) if (json_is_integer(count) && json_integer_value(count) >= 0)
	    with(to, "weir_audit_gaps_total", "kind", kind, (uint64_t)json_integer_value(count));
}

char *metrics_text(const struct metrics_view *v, size_t *ret_len)
{
	char *text = NULL;
	FILE *to = open_memstream(&text, ret_len);

	if (!to)
		return NULL;
	put_api(to, v);
	put_stages(to, v);
	if (v->supervisor)
		put_supervisor(to, v->supervisor);
	if (v->auditor)
		put_auditor(to, v->auditor);
	if (fclose(to) == 0)
		return text;
	free(text);
	return NULL;
}
