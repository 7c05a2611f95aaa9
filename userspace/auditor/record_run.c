/* SPDX-License-Identifier: Apache-2.0 */
/* Records of a run: how it began, what was counted of it, what its client saw, how it ended. */
#include "auditor/record_parts.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* 0 is no bound of its own. */
static int set_bound(json_t *into, const char *name, uint64_t value)
{
	return json_object_set_new(into, name, value ? event_u64(value) : json_null());
}

static int limits_json(json_t *into, const struct note *note)
{
	json_t *limits = json_object();
	int bad = set_bound(limits, "timeout_s", note->begin.timeout_s);

	bad |= set_bound(limits, "memory_bytes", note->begin.memory_bytes);
	bad |= set_bound(limits, "cpu_percent", note->begin.cpu_percent);
	bad |= set_bound(limits, "processes", note->begin.processes);
	bad |= set_bound(limits, "open_files", note->begin.open_files);
	bad |= set_bound(limits, "output_bytes", note->begin.output_bytes);
	return json_object_set_new(into, "limits", limits) | bad;
}

/* Of the host's, under `weir exec`. */
static int set_command(json_t *into, const struct note *note)
{
	const __typeof__(note->begin.command) *c = &note->begin.command;
	json_t *command = json_object();
	int bad = record_set_safe(command, "path", c->path, sizeof c->path);

	bad |= json_object_set_new(command, "path_cut", json_boolean(c->path_cut));
	bad |= json_object_set_new(command, "sha256", record_hash(c->sha256));
	return json_object_set_new(into, "command", command) | bad;
}

int record_begin(json_t *into, const struct note *note)
{
	const struct note_policy *p = &note->begin.policy;
	int bad = record_set_safe(into, "policy", p->name, sizeof p->name);

	bad |= json_object_set_new(into, "policy_hash", record_hash(p->hash));
	bad |= json_object_set_new(into, "policy_generation", json_integer(p->generation));
	bad |= json_object_set_new(into, "audit_allowed", json_boolean(!p->quiet));
	bad |= json_object_set_new(into, "timeout_s", json_integer(note->begin.timeout_s));
	bad |= record_set_safe(into, "python", note->begin.python, sizeof note->begin.python);
	bad |= note->begin.caller[0] ? record_set_safe(into, "caller", note->begin.caller, sizeof note->begin.caller)
				     : json_object_set_new(into, "caller", json_null());
	if (note->begin.command.known)
		bad |= set_command(into, note);
	/* Only a tool call's. */
	if (note->begin.agent[0])
		bad |= record_set_safe(into, "agent", note->begin.agent, sizeof note->begin.agent);
	if (note->begin.image[0])
		bad |= record_set_safe(into, "image", note->begin.image, sizeof note->begin.image);
	bad |= note->begin.boot_id[0] ? record_set_safe(into, "boot_id", note->begin.boot_id, sizeof note->begin.boot_id)
				      : json_object_set_new(into, "boot_id", json_null());
	return bad | limits_json(into, note);
}

int record_change(json_t *into, const struct note *note)
{
	const struct note_policy *old = &note->policy.old, *now = &note->policy.now;
	int bad = json_object_set_new(into, "reason", json_string(policy_change_names[note->policy.reason]));

	bad |= record_set_safe(into, "policy", now->name, sizeof now->name);
	bad |= json_object_set_new(into, "policy_hash", record_hash(now->hash));
	bad |= json_object_set_new(into, "policy_generation", json_integer(now->generation));
	bad |= json_object_set_new(into, "audit_allowed", json_boolean(!now->quiet));
	bad |= record_set_safe(into, "old_policy", old->name, sizeof old->name);
	bad |= json_object_set_new(into, "old_policy_hash", record_hash(old->hash));
	bad |= json_object_set_new(into, "old_policy_generation", json_integer(old->generation));
	return bad;
}

/* "SIGSEGV", null for none; numbers nobody named (real-time signals) as "SIG<n>". */
static json_t *signal_json(int32_t number)
{
	const char *name = sigabbrev_np(number);
	char buf[24];

	if (number == 0)
		return json_null();
	if (name)
		snprintf(buf, sizeof buf, "SIG%s", name);
	else
		snprintf(buf, sizeof buf, "SIG%d", number);
	return json_string(buf);
}

int record_end(json_t *into, const struct tell_end *end)
{
	int bad = json_object_set_new(into, "end", json_string(run_end_names[end->end]));

	bad |= json_object_set_new(into, "exit_code", json_integer(end->exit_code));
	bad |= json_object_set_new(into, "signal", signal_json(end->signal));
	bad |= record_set_safe(into, "detail", end->detail, sizeof end->detail);
	bad |= json_object_set_new(into, "ran", json_boolean(end->ran));
	bad |= json_object_set_new(into, "duration_us", event_u64(end->duration_us));
	bad |= json_object_set_new(into, "cpu_us", event_u64(end->cpu_us));
	bad |= record_set_safe(into, "cpu_source", end->cpu_source, sizeof end->cpu_source);
	bad |= json_object_set_new(into, "memory_peak", event_u64(end->memory_peak));
	bad |= record_set_safe(into, "memory_source", end->memory_source, sizeof end->memory_source);
	bad |= json_object_set_new(into, "attempts", event_u64(end->attempts));
	bad |= json_object_set_new(into, "denied", event_u64(end->denied));
	bad |= json_object_set_new(into, "allowed", event_u64(end->allowed));
	bad |= json_object_set_new(into, "would_deny", event_u64(end->would_deny));
	bad |= json_object_set_new(into, "inbound", event_u64(end->inbound));
	bad |= json_object_set_new(into, "unlisted", event_u64(end->unlisted));
	bad |= json_object_set_new(into, "net_bytes", event_u64(end->net_bytes));
	/* Of a session's own record how many there were, of a cell's which. */
	if (end->cell)
		bad |= json_object_set_new(into, "cell", json_integer(end->cell));
	return bad | record_use(into, &end->meter, end->net_bytes);
}
