/* SPDX-License-Identifier: Apache-2.0 */
/* Records of what had a policy put on it while it ran. */
#include "auditor/record_parts.h"

#include <arpa/inet.h>
#include <string.h>

#include "core/coverage.h"
#include "core/netaddr.h"

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

static int target_json(json_t *into, const struct note *note)
{
	const __typeof__(note->target) *t = &note->target;
	json_t *canary = json_pack("{s:b, s:I, s:I}", "proven", t->proven, "attempts", (json_int_t)t->canary_attempts, "denied",
				   (json_int_t)t->canary_denied);
	int bad = record_set_safe(into, "kind", t->kind, sizeof t->kind);

	bad |= json_object_set_new(into, "cgroup_id", event_u64(t->cgroup));
	bad |= json_object_set_new(into, "level", json_integer(t->level));
	bad |= record_set_safe(into, "runtime", t->runtime, sizeof t->runtime);
	bad |= record_set_safe(into, "container", t->container, sizeof t->container);
	bad |= record_set_safe(into, "pod", t->pod, sizeof t->pod);
	bad |= json_object_set_new(into, "attached", record_wall(t->attached_ns));
	bad |= json_object_set_new(into, "coverage", json_string(coverage_names[t->coverage]));
	if (t->parent)
		bad |= json_object_set_new(into, "unknown", json_string(t->passes ? "allow" : "deny"));
	bad |= json_object_set_new(into, "sockets_open", json_integer(t->sockets));
	bad |= json_object_set_new(into, "sockets_beyond", json_integer(t->sockets_beyond));
	bad |= record_set_safe(canary, "why", t->why, sizeof t->why);
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
	bad |= record_set_safe(into, "detail", note->weak.detail, sizeof note->weak.detail);
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

	bad |= record_set_safe(into, "command", k->comm, sizeof k->comm);
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

	bad |= record_set_safe(into, "name", note->drift.name, sizeof note->drift.name);
	bad |= record_set_safe(into, "text", note->drift.text, sizeof note->drift.text);
	return bad;
}

static int undrained_json(json_t *into, const struct note *note)
{
	int bad = json_object_set_new(into, "kind", json_string(RECORD_GAP_UNDRAINED));

	bad |= json_object_set_new(into, "since", record_wall(note->undrained.since_ns));
	bad |= counts_json(into, &note->undrained.counts);
	bad |= json_object_set_new(into, "ring_lost", event_u64(note->undrained.ring_lost));
	bad |= json_object_set_new(into, "unfinished",
				   note->undrained.unfinished ? json_integer(note->undrained.unfinished) : json_null());
	bad |= record_set_safe(into, "text", note->undrained.text, sizeof note->undrained.text);
	return bad;
}

static int window_json(json_t *into, const struct note *note)
{
	int bad = json_object_set_new(into, "end", json_string(window_end_names[note->window.why]));

	bad |= record_set_safe(into, "detail", note->window.detail, sizeof note->window.detail);
	bad |= json_object_set_new(into, "readable", json_boolean(!note->window.unreadable));
	bad |= json_object_set_new(into, "duration_us", event_u64(note->window.duration_us));
	bad |= counts_json(into, &note->window.counts);
	bad |= json_object_set_new(into, "dropped", event_u64(note->window.dropped));
	bad |= json_object_set_new(into, "cpu_us", event_u64(note->window.cpu_us));
	bad |= record_set_safe(into, "cpu_source", note->window.cpu_source, sizeof note->window.cpu_source);
	bad |= json_object_set_new(into, "memory_peak", event_u64(note->window.memory_peak));
	bad |= record_set_safe(into, "memory_source", note->window.memory_source, sizeof note->window.memory_source);
	return bad | record_use(into, &note->window.meter, note->window.counts.net_bytes);
}

int record_attached(json_t *into, const struct note *note)
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
