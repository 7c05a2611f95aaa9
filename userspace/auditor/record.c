/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/cleanup.h"
#include "core/event.h"

const char *const record_type_names[RECORD_TYPE_COUNT] = {
    [RECORD_OTHER] = "other",	[RECORD_RUN_BEGIN] = "run_begin", [RECORD_EGRESS] = "egress",
    [RECORD_FLOW] = "flow",	[RECORD_RUN_END] = "run_end",	  [RECORD_GAP] = "gap",
    [RECORD_POLICY] = "policy",
};

static bool id_chars(const char *text)
{
	return text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] == 0;
}

bool record_id_ok(const char *text, size_t size)
{
	return ipc_text_ok(text, size) && text[0] && id_chars(text);
}

bool record_project_ok(const char *text, size_t size)
{
	return ipc_text_ok(text, size) && id_chars(text);
}

static const char *end_problem(const struct tell_end *end)
{
	if (end->end >= RUN_END_COUNT)
		return "end.end";
	if (!ipc_text_ok(end->cpu_source, sizeof end->cpu_source))
		return "end.cpu_source";
	if (!ipc_text_ok(end->memory_source, sizeof end->memory_source))
		return "end.memory_source";
	return ipc_text_ok(end->detail, sizeof end->detail) ? NULL : "end.detail";
}

static const char *change_problem(const struct note *note)
{
	if (!ipc_text_ok(note->policy.old.name, sizeof note->policy.old.name))
		return "policy.old";
	if (!ipc_text_ok(note->policy.now.name, sizeof note->policy.now.name))
		return "policy.now";
	return note->policy.reason < POLICY_CHANGE_COUNT ? NULL : "policy.reason";
}

static const char *payload_problem(const struct note *note)
{
	switch (note->type) {
	case NOTE_RUN_BEGIN:
		if (!ipc_text_ok(note->begin.policy.name, sizeof note->begin.policy.name))
			return "begin.policy";
		if (!record_project_ok(note->begin.agent, sizeof note->begin.agent))
			return "begin.agent";
		if (!ipc_text_ok(note->begin.image, sizeof note->begin.image))
			return "begin.image";
		return ipc_text_ok(note->begin.python, sizeof note->begin.python) ? NULL : "begin.python";
	case NOTE_EVENT:
	case NOTE_FLOW:
		if (!ipc_text_ok(note->judged.rule_name, sizeof note->judged.rule_name))
			return "judged.rule_name";
		return note->type == NOTE_EVENT ? event_problem(&note->event) : event_key_problem(&note->flow.key);
	case NOTE_RUN_END:
		return end_problem(&note->end);
	case NOTE_GAP:
		if (!ipc_text_ok(note->gap.instance, sizeof note->gap.instance))
			return "gap.instance";
		return ipc_text_ok(note->gap.text, sizeof note->gap.text) ? NULL : "gap.text";
	case NOTE_POLICY:
		return change_problem(note);
	case NOTE_FLUSH:
		return NULL;
	default:
		return "type";
	}
}

const char *record_note_problem(const struct note *note)
{
	bool run = note->type == NOTE_RUN_BEGIN || note->type == NOTE_FLOW || note->type == NOTE_RUN_END;

	if (!ipc_text_ok(note->run_id, sizeof note->run_id) || !id_chars(note->run_id) || (run && !note->run_id[0]))
		return "run_id";
	if (!ipc_text_ok(note->sandbox_id, sizeof note->sandbox_id) || !id_chars(note->sandbox_id))
		return "sandbox_id";
	if (!record_project_ok(note->project, sizeof note->project))
		return "project";
	return payload_problem(note);
}

enum record_type record_type_of(const struct note *note)
{
	switch (note->type) {
	case NOTE_RUN_BEGIN:
		return RECORD_RUN_BEGIN;
	case NOTE_EVENT:
		return RECORD_EGRESS;
	case NOTE_FLOW:
		return RECORD_FLOW;
	case NOTE_RUN_END:
		return RECORD_RUN_END;
	case NOTE_GAP:
		return RECORD_GAP;
	case NOTE_POLICY:
		return RECORD_POLICY;
	default:
		return RECORD_OTHER;
	}
}

static int set_safe(json_t *into, const char *name, const char *text, size_t size)
{
	char safe[4 * 256 + 1];

	event_safe_text(safe, sizeof safe, text, size);
	return json_object_set_new(into, name, json_string(safe));
}

static json_t *hash_json(const uint8_t hash[32])
{
	char text[2 * 32 + 1];

	for (int i = 0; i < 32; i++)
		snprintf(text + 2 * i, 3, "%02x", hash[i]);
	return json_string(text);
}

static int begin_json(json_t *into, const struct note *note)
{
	const struct note_policy *p = &note->begin.policy;
	int bad = set_safe(into, "policy", p->name, sizeof p->name);

	bad |= json_object_set_new(into, "policy_hash", hash_json(p->hash));
	bad |= json_object_set_new(into, "policy_generation", json_integer(p->generation));
	bad |= json_object_set_new(into, "audit_allowed", json_boolean(!p->quiet));
	bad |= json_object_set_new(into, "timeout_s", json_integer(note->begin.timeout_s));
	bad |= set_safe(into, "python", note->begin.python, sizeof note->begin.python);
	/* Only a tool call's. */
	if (note->begin.agent[0])
		bad |= set_safe(into, "agent", note->begin.agent, sizeof note->begin.agent);
	if (note->begin.image[0])
		bad |= set_safe(into, "image", note->begin.image, sizeof note->begin.image);
	return bad;
}

static int change_json(json_t *into, const struct note *note)
{
	const struct note_policy *old = &note->policy.old, *now = &note->policy.now;
	int bad = json_object_set_new(into, "reason", json_string(policy_change_names[note->policy.reason]));

	bad |= set_safe(into, "policy", now->name, sizeof now->name);
	bad |= json_object_set_new(into, "policy_hash", hash_json(now->hash));
	bad |= json_object_set_new(into, "policy_generation", json_integer(now->generation));
	bad |= json_object_set_new(into, "audit_allowed", json_boolean(!now->quiet));
	bad |= set_safe(into, "old_policy", old->name, sizeof old->name);
	bad |= json_object_set_new(into, "old_policy_hash", hash_json(old->hash));
	bad |= json_object_set_new(into, "old_policy_generation", json_integer(old->generation));
	return bad;
}

/* What the policy knew of a key: the name of its rule, and an address that only its own prefixes lead to. */
static int judged_json(json_t *into, const struct note *note, const struct weir_flow_key *key)
{
	const struct note_judged *j = &note->judged;
	int bad = j->rule_name[0] ? set_safe(into, "rule_name", j->rule_name, sizeof j->rule_name)
				  : json_object_set_new(into, "rule_name", json_null());

	if (j->has_carried && key->via == WEIR_VIA_NAT64_CONFIGURED)
		bad |= event_carried_json(into, key, j->carried);
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

static int end_json(json_t *into, const struct tell_end *end)
{
	int bad = json_object_set_new(into, "end", json_string(run_end_names[end->end]));

	bad |= json_object_set_new(into, "exit_code", json_integer(end->exit_code));
	bad |= json_object_set_new(into, "signal", signal_json(end->signal));
	bad |= set_safe(into, "detail", end->detail, sizeof end->detail);
	bad |= json_object_set_new(into, "ran", json_boolean(end->ran));
	bad |= json_object_set_new(into, "duration_us", event_u64(end->duration_us));
	bad |= json_object_set_new(into, "cpu_us", event_u64(end->cpu_us));
	bad |= set_safe(into, "cpu_source", end->cpu_source, sizeof end->cpu_source);
	bad |= json_object_set_new(into, "memory_peak", event_u64(end->memory_peak));
	bad |= set_safe(into, "memory_source", end->memory_source, sizeof end->memory_source);
	bad |= json_object_set_new(into, "attempts", event_u64(end->attempts));
	bad |= json_object_set_new(into, "denied", event_u64(end->denied));
	bad |= json_object_set_new(into, "allowed", event_u64(end->allowed));
	bad |= json_object_set_new(into, "would_deny", event_u64(end->would_deny));
	bad |= json_object_set_new(into, "inbound", event_u64(end->inbound));
	bad |= json_object_set_new(into, "unlisted", event_u64(end->unlisted));
	bad |= json_object_set_new(into, "net_bytes", event_u64(end->net_bytes));
	return bad;
}

static int gap_json(json_t *into, const struct note *note)
{
	char last[EVENT_TIME_MAX];
	struct event_clock now = {note->wall_ns, note->boot_ns};
	int bad = json_object_set_new(into, "kind", json_string(RECORD_GAP_SWEEP));

	event_time_text(last, event_wall_ns(now, note->gap.last_boot_ns));
	bad |= json_object_set_new(into, "sandboxes", json_integer(note->gap.sandboxes));
	bad |= json_object_set_new(into, "processes", json_integer(note->gap.processes));
	bad |= json_object_set_new(into, "events", json_integer(note->gap.events));
	bad |= json_object_set_new(into, "ring_lost", event_u64(note->gap.ring_lost));
	bad |= json_object_set_new(into, "last_event", note->gap.last_boot_ns ? json_string(last) : json_null());
	bad |= set_safe(into, "instance", note->gap.instance, sizeof note->gap.instance);
	bad |= set_safe(into, "text", note->gap.text, sizeof note->gap.text);
	return bad;
}

/* The members every record has. Strings must be safe already. */
static json_t *common(enum record_type type, const char *run_id, uint64_t wall_ns, uint64_t boot_ns, const char *sandbox_id,
		      const char *project)
{
	char time_text[EVENT_TIME_MAX];

	event_time_text(time_text, wall_ns);
	return json_pack("{s:s, s:s, s:s, s:o, s:s, s:s}", "type", record_type_names[type], "run_id", run_id, "time", time_text,
			 "boot_ns", event_u64(boot_ns), "sandbox_id", sandbox_id, "project", project);
}

json_t *record_body(const struct note *note)
{
	struct event_clock now = {note->wall_ns, note->boot_ns};
	uint64_t wall = note->wall_ns, boot = note->boot_ns;
	json_t *body;
	int bad = 0;

	/* An attempt is dated when it happened, not when the supervisor got round to reading the ring. */
	if (note->type == NOTE_EVENT && note->event.time_ns && note->event.time_ns <= boot) {
		boot = note->event.time_ns;
		wall = event_wall_ns(now, boot);
	}
	body = common(record_type_of(note), note->run_id, wall, boot, note->sandbox_id, note->project);
	if (!body)
		return NULL;
	if (note->type == NOTE_RUN_BEGIN)
		bad = begin_json(body, note);
	else if (note->type == NOTE_EVENT)
		bad = event_json(body, &note->event) | judged_json(body, note, &note->event.key);
	else if (note->type == NOTE_FLOW)
		bad = event_flow_json(body, &note->flow.key, &note->flow.count, now) | judged_json(body, note, &note->flow.key);
	else if (note->type == NOTE_RUN_END)
		bad = end_json(body, &note->end);
	else if (note->type == NOTE_GAP)
		bad = gap_json(body, note);
	else if (note->type == NOTE_POLICY)
		bad = change_json(body, note);
	if (bad) {
		json_decref(body);
		return NULL;
	}
	return body;
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts = {0};

	(void)clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

json_t *record_gap(const char *kind, uint64_t count, const char *text)
{
	json_t *body = common(RECORD_GAP, "", clock_ns(CLOCK_REALTIME), clock_ns(CLOCK_BOOTTIME), "", "");
	int bad;

	if (!body)
		return NULL;
	bad = json_object_set_new(body, "kind", json_string(kind));
	bad |= json_object_set_new(body, "count", event_u64(count));
	bad |= set_safe(body, "text", text, strlen(text));
	if (bad) {
		json_decref(body);
		return NULL;
	}
	return body;
}

size_t record_line(char *buf, size_t size, uint64_t seq, const json_t *body)
{
	int head = snprintf(buf, size, "{\"seq\":%llu,", (unsigned long long)seq);
	size_t room, n;

	if (head < 0 || (size_t)head + 2 >= size)
		return 0;
	/* The body's own opening brace lands on the comma, which is then put back. */
	room = size - (size_t)head + 1;
	n = json_dumpb(body, buf + head - 1, room, JSON_COMPACT);
	if (n < 3 || n >= room)
		return 0;
	buf[head - 1] = ',';
	buf[(size_t)head - 1 + n] = '\n';
	return (size_t)head + n;
}

static bool eat(const char **p, const char *end, const char *want)
{
	size_t n = strlen(want);

	if ((size_t)(end - *p) < n || memcmp(*p, want, n) != 0)
		return false;
	*p += n;
	return true;
}

/* Up to the next quote; false when that is too far or holds an escape, which no record of ours does. */
static bool eat_text(const char **p, const char *end, char *ret, size_t size)
{
	const char *quote = memchr(*p, '"', (size_t)(end - *p));
	size_t n = quote ? (size_t)(quote - *p) : size;

	if (n >= size || memchr(*p, '\\', n))
		return false;
	memcpy(ret, *p, n);
	ret[n] = 0;
	*p = quote + 1;
	return true;
}

static enum record_type type_by_name(const char *name)
{
	for (int i = RECORD_OTHER + 1; i < RECORD_TYPE_COUNT; i++)
		if (strcmp(record_type_names[i], name) == 0)
			return (enum record_type)i;
	return RECORD_OTHER;
}

static bool head_fast(struct record_head *ret, const char *line, size_t len)
{
	const char *p = line, *end = line + len;
	char type[16];

	if (len < 2 || end[-1] != '}' || !eat(&p, end, "{\"seq\":"))
		return false;
	ret->seq = 0;
	for (int digits = 0; p < end && *p >= '0' && *p <= '9'; p++, digits++) {
		if (digits == 18)
			return false;
		ret->seq = ret->seq * 10 + (uint64_t)(*p - '0');
	}
	if (!eat(&p, end, ",\"type\":\"") || !eat_text(&p, end, type, sizeof type))
		return false;
	if (!eat(&p, end, ",\"run_id\":\"") || !eat_text(&p, end, ret->run_id, sizeof ret->run_id))
		return false;
	ret->type = type_by_name(type);
	return true;
}

bool record_head_parse(struct record_head *ret, const char *line, size_t len)
{
	const char *type, *run_id;
	json_t *json, *seq;
	bool ok;

	if (head_fast(ret, line, len))
		return true;
	/* Rewritten by some tool, or damaged: the slow parser decides. */
	json = json_loadb(line, len, 0, NULL);
	type = json_string_value(json_object_get(json, "type"));
	run_id = json_string_value(json_object_get(json, "run_id"));
	seq = json_object_get(json, "seq");
	ok = type && json_is_integer(seq) && json_integer_value(seq) >= 0;
	if (ok) {
		ret->seq = (uint64_t)json_integer_value(seq);
		ret->type = type_by_name(type);
		snprintf(ret->run_id, sizeof ret->run_id, "%s", run_id && strlen(run_id) < sizeof ret->run_id ? run_id : "");
	}
	json_decref(json);
	return ok;
}
