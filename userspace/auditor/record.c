/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/record.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/cleanup.h"
#include "core/coverage.h"
#include "core/event.h"
#include "core/netaddr.h"

const char *const record_type_names[RECORD_TYPE_COUNT] = {
    [RECORD_OTHER] = "other",	    [RECORD_RUN_BEGIN] = "run_begin", [RECORD_EGRESS] = "egress",
    [RECORD_FLOW] = "flow",	    [RECORD_RUN_END] = "run_end",     [RECORD_GAP] = "gap",
    [RECORD_POLICY] = "policy",	    [RECORD_TARGET] = "target",	      [RECORD_PLACE] = "place",
    [RECORD_COVERAGE] = "coverage", [RECORD_SOCKET] = "socket",	      [RECORD_DRIFT] = "drift",
    [RECORD_CGROUP] = "cgroup",
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

static const char *target_problem(const struct note *note)
{
	const __typeof__(note->target) *t = &note->target;

	if (t->coverage > COVERAGE_REFUSED)
		return "target.coverage";
	if (!ipc_text_ok(t->kind, sizeof t->kind))
		return "target.kind";
	if (!ipc_text_ok(t->runtime, sizeof t->runtime))
		return "target.runtime";
	if (!ipc_text_ok(t->container, sizeof t->container))
		return "target.container";
	if (!ipc_text_ok(t->pod, sizeof t->pod))
		return "target.pod";
	return ipc_text_ok(t->why, sizeof t->why) ? NULL : "target.why";
}

static const char *socket_problem(const struct note *note)
{
	if (note->socket.family != 0 && note->socket.family != 4 && note->socket.family != 6)
		return "socket.family";
	if (note->socket.verdict >= WEIR_VERDICT_COUNT)
		return "socket.verdict";
	return NULL; /* its `comm` may fill the array, as the kernel's does */
}

/* Of what had a policy put on it while it ran. */
static const char *attached_problem(const struct note *note)
{
	switch (note->type) {
	case NOTE_TARGET:
		return target_problem(note);
	case NOTE_PLACE:
		if (note->place.which >= PLACES)
			return "place.which";
		return ipc_text_ok(note->place.text, sizeof note->place.text) ? NULL : "place.text";
	case NOTE_WEAKNESS:
		if (note->weak.weakness >= WEAKNESSES)
			return "weak.weakness";
		return ipc_text_ok(note->weak.detail, sizeof note->weak.detail) ? NULL : "weak.detail";
	case NOTE_SOCKET:
		return socket_problem(note);
	case NOTE_DRIFT:
		if (!ipc_text_ok(note->drift.name, sizeof note->drift.name))
			return "drift.name";
		return ipc_text_ok(note->drift.text, sizeof note->drift.text) ? NULL : "drift.text";
	case NOTE_UNDRAINED:
		return ipc_text_ok(note->undrained.text, sizeof note->undrained.text) ? NULL : "undrained.text";
	case NOTE_CGROUP:
		return ipc_text_ok(note->cgroup.path, sizeof note->cgroup.path) ? NULL : "cgroup.path";
	case NOTE_WINDOW_END:
		if (note->window.why >= WINDOW_ENDS)
			return "window.why";
		return ipc_text_ok(note->window.detail, sizeof note->window.detail) ? NULL : "window.detail";
	default:
		return "type";
	}
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
		return attached_problem(note);
	}
}

static bool is_attached(uint32_t type)
{
	return type >= NOTE_TARGET && type <= NOTE_WINDOW_END;
}

const char *record_note_problem(const struct note *note)
{
	bool run =
	    note->type == NOTE_RUN_BEGIN || note->type == NOTE_FLOW || note->type == NOTE_RUN_END || is_attached(note->type);

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
	case NOTE_TARGET:
		return RECORD_TARGET;
	case NOTE_PLACE:
		return RECORD_PLACE;
	case NOTE_WEAKNESS:
		return RECORD_COVERAGE;
	case NOTE_SOCKET:
		return RECORD_SOCKET;
	case NOTE_DRIFT:
		return RECORD_DRIFT;
	case NOTE_UNDRAINED:
		return RECORD_GAP;
	case NOTE_CGROUP:
		return RECORD_CGROUP;
	case NOTE_WINDOW_END:
		return RECORD_RUN_END;
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

/* ---- of what had a policy put on it while it ran ---- */

static int counts_json(json_t *into, const struct note_counts *c)
{
	int bad = json_object_set_new(into, "attempts", event_u64(c->attempts));

	bad |= json_object_set_new(into, "denied", event_u64(c->denied));
	bad |= json_object_set_new(into, "allowed", event_u64(c->allowed));
	bad |= json_object_set_new(into, "would_deny", event_u64(c->would_deny));
	bad |= json_object_set_new(into, "inbound", event_u64(c->inbound));
	bad |= json_object_set_new(into, "unlisted", event_u64(c->unlisted));
	bad |= json_object_set_new(into, "net_bytes", event_u64(c->net_bytes));
	return bad;
}

static json_t *wall_json(uint64_t wall_ns)
{
	char text[EVENT_TIME_MAX];

	if (!wall_ns)
		return json_null();
	event_time_text(text, wall_ns);
	return json_string(text);
}

static int target_json(json_t *into, const struct note *note)
{
	const __typeof__(note->target) *t = &note->target;
	json_t *canary = json_pack("{s:b, s:I, s:I}", "proven", t->proven, "attempts", (json_int_t)t->canary_attempts, "denied",
				   (json_int_t)t->canary_denied);
	int bad = set_safe(into, "kind", t->kind, sizeof t->kind);

	bad |= json_object_set_new(into, "cgroup_id", event_u64(t->cgroup));
	bad |= json_object_set_new(into, "level", json_integer(t->level));
	bad |= set_safe(into, "runtime", t->runtime, sizeof t->runtime);
	bad |= set_safe(into, "container", t->container, sizeof t->container);
	bad |= set_safe(into, "pod", t->pod, sizeof t->pod);
	bad |= json_object_set_new(into, "attached", wall_json(t->attached_ns));
	bad |= json_object_set_new(into, "coverage", json_string(coverage_names[t->coverage]));
	if (t->parent)
		bad |= json_object_set_new(into, "unknown", json_string(t->passes ? "allow" : "deny"));
	bad |= json_object_set_new(into, "sockets_open", json_integer(t->sockets));
	bad |= json_object_set_new(into, "sockets_beyond", json_integer(t->sockets_beyond));
	bad |= set_safe(canary, "why", t->why, sizeof t->why);
	bad |= json_object_set_new(into, "canary", canary);
	return bad;
}

static int place_json(json_t *into, const struct note *note)
{
	static const char *const names[PLACES] = {
	    [PLACE_CGROUP] = "cgroup", [PLACE_REF] = "ref", [PLACE_PROVEN] = "canary_leaf"};
	char safe[4 * sizeof note->place.text + 1];

	event_safe_text(safe, sizeof safe, note->place.text, sizeof note->place.text);
	return json_object_set_new(into, names[note->place.which], json_string(safe));
}

static int cgroup_json(json_t *into, const struct note *note)
{
	char safe[4 * sizeof note->cgroup.path + 1];

	event_safe_text(safe, sizeof safe, note->cgroup.path, sizeof note->cgroup.path);
	return json_object_set_new(into, "cgroup_id", event_u64(note->cgroup.id)) |
	       json_object_set_new(into, "cgroup", json_string(safe));
}

static int weak_json(json_t *into, const struct note *note)
{
	const struct weakness_row *row = &weakness_rows[note->weak.weakness];
	int bad = json_object_set_new(into, "name", json_string(row->name));

	bad |= json_object_set_new(into, "grade", json_string(coverage_names[row->grade]));
	bad |= set_safe(into, "detail", note->weak.detail, sizeof note->weak.detail);
	bad |= json_object_set_new(into, "text", json_string(row->text));
	bad |= json_object_set_new(into, "mend", json_string(row->mend));
	return bad;
}

/* As the kernel numbers them (include/net/tcp_states.h). */
static const char *const tcp_states[] = {NULL,	      "established", "syn_sent",    "syn_recv",	  "fin_wait1",
					 "fin_wait2", "time_wait",   "close",	    "close_wait", "last_ack",
					 "listen",    "closing",     "new_syn_recv"};
#define TCP_STATES (sizeof tcp_states / sizeof tcp_states[0])

/* "10.0.0.1", "::1"; null for none. */
static json_t *address_json(uint8_t family, const uint8_t address[16])
{
	static const uint8_t none[16], mapped[12] = {[10] = 0xff, [11] = 0xff};
	char text[INET6_ADDRSTRLEN];
	bool v4 = family == 4 && !memcmp(address, mapped, sizeof mapped);

	if (!family || !memcmp(address, none, sizeof none))
		return json_null();
	return json_string(inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? address + 12 : address, text, sizeof text));
}

static int socket_json(json_t *into, const struct note *note)
{
	const __typeof__(note->socket) *k = &note->socket;
	const char *state = k->state < TCP_STATES ? tcp_states[k->state] : NULL;
	char proto[NETPROTO_TEXT_MAX];
	int bad = json_object_set_new(into, "pid", json_integer(k->pid));

	bad |= set_safe(into, "command", k->comm, sizeof k->comm);
	bad |= json_object_set_new(into, "protocol", json_string(k->family ? netproto_text(proto, k->protocol) : "packet"));
	bad |= json_object_set_new(into, "state", state ? json_string(state) : json_null());
	bad |= json_object_set_new(into, "local", address_json(k->family, k->local));
	bad |= json_object_set_new(into, "local_port", json_integer(k->local_port));
	bad |= json_object_set_new(into, "remote", k->connected ? address_json(k->family, k->remote) : json_null());
	bad |= json_object_set_new(into, "remote_port", k->connected ? json_integer(k->remote_port) : json_null());
	bad |= json_object_set_new(into, "elsewhere", json_boolean(k->elsewhere));
	bad |= json_object_set_new(into, "verdict", k->connected ? json_string(event_verdict_names[k->verdict]) : json_null());
	return bad;
}

static int drift_json(json_t *into, const struct note *note)
{
	int bad = json_object_set_new(into, "over", json_boolean(note->drift.over));

	bad |= set_safe(into, "name", note->drift.name, sizeof note->drift.name);
	bad |= set_safe(into, "text", note->drift.text, sizeof note->drift.text);
	return bad;
}

static int undrained_json(json_t *into, const struct note *note)
{
	int bad = json_object_set_new(into, "kind", json_string(RECORD_GAP_UNDRAINED));

	bad |= json_object_set_new(into, "since", wall_json(note->undrained.since_ns));
	bad |= counts_json(into, &note->undrained.counts);
	bad |= json_object_set_new(into, "ring_lost", event_u64(note->undrained.ring_lost));
	bad |= json_object_set_new(into, "unfinished",
				   note->undrained.unfinished ? json_integer(note->undrained.unfinished) : json_null());
	bad |= set_safe(into, "text", note->undrained.text, sizeof note->undrained.text);
	return bad;
}

static int window_json(json_t *into, const struct note *note)
{
	int bad = json_object_set_new(into, "end", json_string(window_end_names[note->window.why]));

	bad |= set_safe(into, "detail", note->window.detail, sizeof note->window.detail);
	bad |= json_object_set_new(into, "readable", json_boolean(!note->window.unreadable));
	bad |= json_object_set_new(into, "duration_us", event_u64(note->window.duration_us));
	bad |= counts_json(into, &note->window.counts);
	bad |= json_object_set_new(into, "dropped", event_u64(note->window.dropped));
	return bad;
}

static int attached_json(json_t *into, const struct note *note)
{
	switch (note->type) {
	case NOTE_TARGET:
		return target_json(into, note);
	case NOTE_PLACE:
		return place_json(into, note);
	case NOTE_WEAKNESS:
		return weak_json(into, note);
	case NOTE_SOCKET:
		return socket_json(into, note);
	case NOTE_DRIFT:
		return drift_json(into, note);
	case NOTE_UNDRAINED:
		return undrained_json(into, note);
	case NOTE_CGROUP:
		return cgroup_json(into, note);
	case NOTE_WINDOW_END:
		return window_json(into, note);
	default:
		return 0;
	}
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
	else
		bad = attached_json(body, note);
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
