/* SPDX-License-Identifier: Apache-2.0 */
#include "auditor/record.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "auditor/record_parts.h"
#include "core/limits.h"

const char *const record_type_names[RECORD_TYPE_COUNT] = {
    [RECORD_OTHER] = "other",	    [RECORD_RUN_BEGIN] = "run_begin", [RECORD_EGRESS] = "egress",
    [RECORD_FLOW] = "flow",	    [RECORD_RUN_END] = "run_end",     [RECORD_GAP] = "gap",
    [RECORD_POLICY] = "policy",	    [RECORD_TARGET] = "target",	      [RECORD_PLACE] = "place",
    [RECORD_COVERAGE] = "coverage", [RECORD_SOCKET] = "socket",	      [RECORD_DRIFT] = "drift",
    [RECORD_CGROUP] = "cgroup",	    [RECORD_EXEC] = "exec",	      [RECORD_OOM] = "oom",
    [RECORD_SYSCALL] = "syscall",   [RECORD_SAMPLES] = "samples",     [RECORD_CONTENT] = "content",
    [RECORD_START] = "start",
};

/* Those of NOTE_POLICY_TEXT and of what ends a conversation make none. */
static const enum record_type types[NOTE_FLUSH + 1] = {
    [NOTE_RUN_BEGIN] = RECORD_RUN_BEGIN,
    [NOTE_EVENT] = RECORD_EGRESS,
    [NOTE_FLOW] = RECORD_FLOW,
    [NOTE_RUN_END] = RECORD_RUN_END,
    [NOTE_GAP] = RECORD_GAP,
    [NOTE_POLICY] = RECORD_POLICY,
    [NOTE_TARGET] = RECORD_TARGET,
    [NOTE_PLACE] = RECORD_PLACE,
    [NOTE_WEAKNESS] = RECORD_COVERAGE,
    [NOTE_SOCKET] = RECORD_SOCKET,
    [NOTE_DRIFT] = RECORD_DRIFT,
    [NOTE_UNDRAINED] = RECORD_GAP,
    [NOTE_CGROUP] = RECORD_CGROUP,
    [NOTE_WINDOW_END] = RECORD_RUN_END,
    [NOTE_EXEC] = RECORD_EXEC,
    [NOTE_SYSCALL] = RECORD_SYSCALL,
    [NOTE_SAMPLES] = RECORD_SAMPLES,
    [NOTE_START] = RECORD_START,
};

enum record_type record_type_of(const struct note *note)
{
	if (note->type == NOTE_EXEC && note->exec.type == WEIR_METER_OOM)
		return RECORD_OOM;
	return note->type <= NOTE_FLUSH ? types[note->type] : RECORD_OTHER;
}

int record_set_safe(json_t *into, const char *name, const char *text, size_t size)
{
	char safe[4 * 256 + 1];

	event_safe_text(safe, sizeof safe, text, size);
	return json_object_set_new(into, name, json_string(safe));
}

json_t *record_hash(const uint8_t hash[32])
{
	char text[2 * 32 + 1];

	for (int i = 0; i < 32; i++)
		snprintf(text + 2 * i, 3, "%02x", hash[i]);
	return json_string(text);
}

json_t *record_wall(uint64_t wall_ns)
{
	char text[EVENT_TIME_MAX];

	if (!wall_ns)
		return json_null();
	event_time_text(text, wall_ns);
	return json_string(text);
}

/* What the policy knew of a key: the name of its rule, and an address that only its own prefixes lead to. */
static int judged_json(json_t *into, const struct note *note, const struct weir_flow_key *key)
{
	const struct note_judged *j = &note->judged;
	int bad = j->rule_name[0] ? record_set_safe(into, "rule_name", j->rule_name, sizeof j->rule_name)
				  : json_object_set_new(into, "rule_name", json_null());

	if (j->has_carried && key->via == WEIR_VIA_NAT64_CONFIGURED)
		bad |= event_carried_json(into, key, j->carried);
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
	bad |= record_set_safe(into, "instance", note->gap.instance, sizeof note->gap.instance);
	bad |= record_set_safe(into, "text", note->gap.text, sizeof note->gap.text);
	return bad;
}

static int start_json(json_t *into, const struct note *note)
{
	int bad = record_set_safe(into, "instance", note->start.instance, sizeof note->start.instance);

	bad |= record_set_safe(into, "boot_id", note->start.boot_id, sizeof note->start.boot_id);
	bad |= record_set_safe(into, "kernel", note->start.kernel, sizeof note->start.kernel);
	bad |= record_set_safe(into, "version", note->start.version, sizeof note->start.version);
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

static int event_body(json_t *into, const struct note *note)
{
	return event_json(into, &note->event) | judged_json(into, note, &note->event.key);
}

static int flow_body(json_t *into, const struct note *note)
{
	struct event_clock now = {note->wall_ns, note->boot_ns};

	return event_flow_json(into, &note->flow.key, &note->flow.count, now) | judged_json(into, note, &note->flow.key);
}

static int end_body(json_t *into, const struct note *note)
{
	return record_end(into, &note->end);
}

static int exec_body(json_t *into, const struct note *note)
{
	return record_exec(into, &note->exec);
}

/* Those that are not here are an attachment's. */
static int (*const bodies[NOTE_FLUSH + 1])(json_t *into, const struct note *note) = {
    [NOTE_RUN_BEGIN] = record_begin, [NOTE_EVENT] = event_body,	    [NOTE_FLOW] = flow_body, [NOTE_RUN_END] = end_body,
    [NOTE_GAP] = gap_json,	     [NOTE_POLICY] = record_change, [NOTE_EXEC] = exec_body, [NOTE_SYSCALL] = record_syscall,
    [NOTE_SAMPLES] = record_samples, [NOTE_START] = start_json,
};

/* When it happened, not when the supervisor got round to reading the ring. */
static uint64_t happened_ns(const struct note *note)
{
	uint64_t at = note->type == NOTE_EVENT ? note->event.time_ns : note->type == NOTE_EXEC ? note->exec.time_ns : 0;

	return at && at <= note->boot_ns ? at : note->boot_ns;
}

json_t *record_body(const struct note *note)
{
	struct event_clock now = {note->wall_ns, note->boot_ns};
	uint64_t boot = happened_ns(note);
	json_t *body =
	    common(record_type_of(note), note->run_id, event_wall_ns(now, boot), boot, note->sandbox_id, note->project);

	if (!body)
		return NULL;
	if (bodies[note->type] ? bodies[note->type](body, note) : record_attached(body, note)) {
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
	bad |= record_set_safe(body, "text", text, strlen(text));
	if (bad) {
		json_decref(body);
		return NULL;
	}
	return body;
}

/* ---- what only the client saw ---- */

static json_t *told_json(const struct content_told *c, enum content_kind kind)
{
	json_t *one = json_pack("{s:o, s:o, s:o}", "bytes", event_u64(c->of[kind].bytes), "kept", event_u64(c->of[kind].kept),
				"sha256", record_hash(c->of[kind].sha256));

	if (one && c->stored >> kind & 1 && json_object_set_new(one, "stored", event_u64(c->of[kind].stored)) < 0) {
		json_decref(one);
		return NULL;
	}
	return one;
}

json_t *record_content(const char *run_id, const char *sandbox_id, const char *project, const struct content_told *c)
{
	json_t *body = common(RECORD_CONTENT, run_id, clock_ns(CLOCK_REALTIME), clock_ns(CLOCK_BOOTTIME), sandbox_id, project);
	json_t *content = json_object();
	int bad = body && content ? 0 : -1;

	for (enum content_kind kind = 0; !bad && kind < CONTENT_KINDS; kind++)
		if (c->told >> kind & 1)
			bad = json_object_set_new(content, content_names[kind], told_json(c, kind));
	bad |= json_object_set_new(body, "content", content);
	if (bad) {
		json_decref(body);
		return NULL;
	}
	return body;
}

const char *record_content_problem(const struct content_told *c)
{
	const uint32_t all = (1u << CONTENT_KINDS) - 1;

	if (c->told & ~all)
		return "content.told";
	if (c->stored & ~c->told)
		return "content.stored";
	for (enum content_kind kind = 0; kind < CONTENT_KINDS; kind++) {
		uint64_t most = c->stored >> kind & 1 ? LIMIT_AUDIT_CONTENT_BYTES : 0;

		if (c->of[kind].kept > c->of[kind].bytes)
			return "content.kept";
		if (c->of[kind].stored > most || c->of[kind].stored > c->of[kind].kept)
			return "content.stored";
	}
	return NULL;
}
