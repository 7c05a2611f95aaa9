/* SPDX-License-Identifier: Apache-2.0 */
/* What a note may say before it becomes a record. */
#include "auditor/record.h"

#include <string.h>

#include "core/coverage.h"
#include "core/event.h"
#include "core/limits.h"
#include "ipc/decode.h"

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

/* Of what was measured of it. */
static const char *sources_problem(const char *cpu, const char *memory, size_t size)
{
	if (!ipc_text_ok(cpu, size))
		return "cpu_source";
	return ipc_text_ok(memory, size) ? NULL : "memory_source";
}

static const char *end_problem(const struct tell_end *end)
{
	if (end->end >= RUN_END_COUNT)
		return "end.end";
	if (!ipc_text_ok(end->detail, sizeof end->detail))
		return "end.detail";
	return sources_problem(end->cpu_source, end->memory_source, sizeof end->cpu_source);
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
		if (!ipc_text_ok(note->window.detail, sizeof note->window.detail))
			return "window.detail";
		return sources_problem(note->window.cpu_source, note->window.memory_source, sizeof note->window.cpu_source);
	default:
		return "type";
	}
}

static const char *begin_problem(const struct note *note)
{
	const __typeof__(note->begin) *b = &note->begin;

	if (!ipc_text_ok(b->policy.name, sizeof b->policy.name))
		return "begin.policy";
	if (!record_project_ok(b->agent, sizeof b->agent))
		return "begin.agent";
	if (!ipc_text_ok(b->image, sizeof b->image))
		return "begin.image";
	if (!ipc_text_ok(b->boot_id, sizeof b->boot_id))
		return "begin.boot_id";
	if (b->caller[0] && !caller_ok(b->caller, sizeof b->caller))
		return "begin.caller";
	/* What it was called as may be any bytes. */
	if (b->command.known > 1 || b->command.path_cut > 1 || !ipc_text_ok(b->command.path, sizeof b->command.path))
		return "begin.command";
	return ipc_text_ok(b->python, sizeof b->python) ? NULL : "begin.python";
}

/* Path and command are a program's own: any bytes, and no more of them than there are. */
static const char *exec_problem(const struct weir_meter_event *ev)
{
	if (ev->type != WEIR_METER_EXEC && ev->type != WEIR_METER_OOM)
		return "exec.type";
	if (ev->path_len >= sizeof ev->path)
		return "exec.path_len";
	return ev->path_cut <= 1 ? NULL : "exec.path_cut";
}

static const char *start_problem(const struct note *note)
{
	if (!ipc_text_ok(note->start.instance, sizeof note->start.instance))
		return "start.instance";
	if (!ipc_text_ok(note->start.boot_id, sizeof note->start.boot_id))
		return "start.boot_id";
	if (!ipc_text_ok(note->start.kernel, sizeof note->start.kernel))
		return "start.kernel";
	return ipc_text_ok(note->start.version, sizeof note->start.version) ? NULL : "start.version";
}

static const char *text_problem(const struct note *note)
{
	const __typeof__(note->text) *t = &note->text;

	if (!ipc_text_ok(t->name, sizeof t->name))
		return "text.name";
	if (t->len > sizeof t->text)
		return "text.len";
	if (t->total > LIMIT_AUDIT_POLICY_BYTES ? t->len != 0 : t->offset > t->total || t->len > t->total - t->offset)
		return "text.total";
	return NULL;
}

static const char *judged_problem(const struct note *note)
{
	if (!ipc_text_ok(note->judged.rule_name, sizeof note->judged.rule_name))
		return "judged.rule_name";
	return note->type == NOTE_EVENT ? event_problem(&note->event) : event_key_problem(&note->flow.key);
}

static const char *gap_problem(const struct note *note)
{
	if (!ipc_text_ok(note->gap.instance, sizeof note->gap.instance))
		return "gap.instance";
	return ipc_text_ok(note->gap.text, sizeof note->gap.text) ? NULL : "gap.text";
}

static const char *payload_problem(const struct note *note)
{
	switch (note->type) {
	case NOTE_RUN_BEGIN:
		return begin_problem(note);
	case NOTE_EVENT:
	case NOTE_FLOW:
		return judged_problem(note);
	case NOTE_RUN_END:
		return end_problem(&note->end);
	case NOTE_GAP:
		return gap_problem(note);
	case NOTE_POLICY:
		return change_problem(note);
	case NOTE_EXEC:
		return exec_problem(&note->exec);
	case NOTE_SYSCALL:
		return ipc_text_ok(note->syscall.name, sizeof note->syscall.name) ? NULL : "syscall.name";
	case NOTE_SAMPLES:
		return note->samples.count <= NOTE_SAMPLES_MAX ? NULL : "samples.count";
	case NOTE_START:
		return start_problem(note);
	case NOTE_POLICY_TEXT:
		return text_problem(note);
	case NOTE_HEAD: /* any numbers */
	case NOTE_SIGNED:
	case NOTE_FLUSH:
		return NULL;
	default:
		return attached_problem(note);
	}
}

static bool has_run(uint32_t type)
{
	return type == NOTE_RUN_BEGIN || type == NOTE_FLOW || type == NOTE_RUN_END ||
	       (type >= NOTE_TARGET && type <= NOTE_SAMPLES);
}

const char *record_note_problem(const struct note *note)
{
	if (!ipc_text_ok(note->run_id, sizeof note->run_id) || !id_chars(note->run_id) ||
	    (has_run(note->type) && !note->run_id[0]))
		return "run_id";
	if (!ipc_text_ok(note->sandbox_id, sizeof note->sandbox_id) || !id_chars(note->sandbox_id))
		return "sandbox_id";
	if (!record_project_ok(note->project, sizeof note->project))
		return "project";
	return payload_problem(note);
}
