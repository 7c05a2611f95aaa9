/* SPDX-License-Identifier: Apache-2.0 */
#include "core/ocsf.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/event.h"
#include "core/netaddr.h"
#include "core/rfc3339.h"

#define CATEGORY_NETWORK 4
#define CLASS_NETWORK_ACTIVITY 4001

enum activity { ACTIVITY_OPEN = 1, ACTIVITY_REFUSE = 5, ACTIVITY_TRAFFIC = 6, ACTIVITY_OTHER = 99 };

/* What a verdict is in the schema's enumerations, each with the caption that its sibling has. */
static const struct verdict {
	int status_id, severity_id, action_id, disposition_id;
	const char *status, *severity, *action, *disposition;
} verdicts[WEIR_VERDICT_COUNT] = {
    [WEIR_DENY] = {2, 3, 2, 2, "Failure", "Medium", "Denied", "Blocked"},
    [WEIR_ALLOW] = {1, 1, 1, 1, "Success", "Informational", "Allowed", "Allowed"},
    /* It went out: a policy that only watches would have refused it. */
    [WEIR_WOULD_DENY] = {1, 2, 3, 17, "Success", "Low", "Observed", "Logged"},
};

static const char *text_of(const json_t *from, const char *name)
{
	const char *text = json_string_value(json_object_get(from, name));

	return text ? text : "";
}

static bool is(const json_t *event, const char *name, const char *value)
{
	return strcmp(text_of(event, name), value) == 0;
}

static bool is_known(const json_t *from, const char *name)
{
	const json_t *value = json_object_get(from, name);

	return value && !json_is_null(value);
}

static enum weir_verdict verdict_of(const json_t *event)
{
	for (int i = 0; i < WEIR_VERDICT_COUNT; i++)
		if (is(event, "verdict", event_verdict_names[i]))
			return (enum weir_verdict)i;
	return WEIR_DENY;
}

/* From outside: its address is the sender's. */
static bool is_inbound(const json_t *event)
{
	return is(event, "hook", event_hook_names[WEIR_HOOK_INGRESS]);
}

static enum activity activity_of(const json_t *event, enum weir_verdict verdict)
{
	if (is(event, "hook", event_hook_names[WEIR_HOOK_SETSOCKOPT]))
		return ACTIVITY_OTHER;
	if (verdict == WEIR_DENY)
		return ACTIVITY_REFUSE;
	return is(event, "protocol", "tcp") ? ACTIVITY_OPEN : ACTIVITY_TRAFFIC;
}

static const char *activity_name(enum activity a)
{
	switch (a) {
	case ACTIVITY_OPEN:
		return "Open";
	case ACTIVITY_REFUSE:
		return "Refuse";
	case ACTIVITY_TRAFFIC:
		return "Traffic";
	case ACTIVITY_OTHER:
		break;
	}
	return "Socket option refused";
}

/* ---- members; each returns 0 or -1, and takes the value ---- */

static int put(json_t *into, const char *name, json_t *value)
{
	return json_object_set_new(into, name, value);
}

/* What the record does not know is left out. */
static int copy_as(json_t *into, const char *name, const json_t *from, const char *of)
{
	return is_known(from, of) ? json_object_set(into, name, json_object_get(from, of)) : 0;
}

static int copy_text(json_t *into, const char *name, const json_t *from, const char *of)
{
	return text_of(from, of)[0] ? copy_as(into, name, from, of) : 0;
}

/* An integer as text: the schema's *_uid members are strings. */
static int copy_number_text(json_t *into, const char *name, const json_t *from, const char *of)
{
	const json_t *value = json_object_get(from, of);
	char text[24];

	if (!json_is_integer(value))
		return 0;
	snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
	return put(into, name, json_string(text));
}

/* Milliseconds since the epoch. -1: it is no moment. */
static int put_time(json_t *into, const char *name, const char *rfc3339)
{
	uint64_t ns;

	if (rfc3339_parse(rfc3339, &ns) < 0)
		return -1;
	return put(into, name, json_integer((json_int_t)(ns / 1000000)));
}

/* Nothing for an object that says nothing. */
static int put_object(json_t *into, const char *name, json_t *object)
{
	if (!object || json_object_size(object))
		return put(into, name, object);
	json_decref(object);
	return 0;
}

/* ---- objects; NULL without memory ---- */

static json_t *unless(json_t *object, int bad)
{
	if (!bad)
		return object;
	json_decref(object);
	return NULL;
}

static json_t *metadata_of(const json_t *run, const json_t *event, const char *version)
{
	json_t *m = json_pack("{s:s, s:{s:s, s:s, s:s}, s:[s, s], s:s}", "version", OCSF_VERSION, "product", "name", "Weir",
			      "vendor_name", "Weir", "version", version, "profiles", "host", "security_control", "log_name",
			      "weir audit");
	char uid[128];

	snprintf(uid, sizeof uid, "%.64s/%lld", text_of(run, "run_id"),
		 (long long)json_integer_value(json_object_get(event, "seq")));
	return unless(m, put(m, "uid", json_string(uid)) | copy_text(m, "correlation_uid", run, "run_id") |
			     copy_text(m, "tenant_uid", run, "project") | copy_as(m, "sequence", event, "seq") |
			     copy_text(m, "original_time", event, "time"));
}

/* The host names that the schema knows. What a packet asked for may be anything. */
static bool is_hostname(const char *name)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
	const char *label = name;

	if (!*name || strlen(name) > 253)
		return false;
	for (const char *p = name;; p++) {
		if (*p && *p != '.') {
			if (!strchr(letters, *p) && *p != '-' && *p != '_')
				return false;
			continue;
		}
		if (p == label || p - label > 63 || *label == '-' || p[-1] == '-')
			return false;
		label = p + 1;
		if (!*p)
			return true;
	}
}

/* Of the program's question, be it to a name server: what it wanted to reach. */
static json_t *remote_of(const json_t *event)
{
	json_t *r = json_object();
	int bad = copy_text(r, "ip", event, "address") | copy_as(r, "port", event, "port");

	if (is_hostname(text_of(event, "dns_name")))
		bad |= copy_text(r, "hostname", event, "dns_name");
	if (r && !json_object_size(r))
		bad |= put(r, "name", json_string("unknown"));
	return unless(r, bad);
}

static json_t *sandbox_of(const json_t *run)
{
	json_t *s = json_object();
	const char *id = is_known(run, "sandbox_id") ? "sandbox_id" : "run_id";

	return unless(s, copy_text(s, "uid", run, id) | copy_text(s, "name", run, id));
}

static json_t *connection_of(const json_t *event)
{
	const bool inbound = is_inbound(event);
	const char *protocol = text_of(event, "protocol"), *address = text_of(event, "address");
	json_t *c = json_pack("{s:i, s:s}", "direction_id", inbound ? 1 : 2, "direction", inbound ? "Inbound" : "Outbound");
	int bad = copy_text(c, "protocol_name", event, "protocol");
	char buf[NETPROTO_TEXT_MAX];

	for (unsigned n = 0; n < 256; n++)
		if (strcmp(netproto_text(buf, (uint8_t)n), protocol) == 0)
			bad |= put(c, "protocol_num", json_integer(n));
	if (address[0])
		bad |= put(c, "protocol_ver_id", json_integer(strchr(address, ':') ? 6 : 4));
	if (json_integer_value(json_object_get(event, "socket_cookie")))
		bad |= copy_number_text(c, "uid", event, "socket_cookie");
	return unless(c, bad);
}

/* Empty when nobody is known. Process numbers are the host's, as the rest of a SIEM has them. */
static json_t *actor_of(const json_t *run, const json_t *event)
{
	static const char token[] = "token:";
	const char *caller = text_of(run, "caller");
	json_t *actor = json_object(), *process = json_object(), *user = json_object();
	int bad = copy_as(process, "pid", event, "host_pid") | copy_text(process, "name", event, "command") |
		  copy_number_text(user, "uid", event, "uid");

	/* A user of the schema has a name or a number; which token asked for the run goes with it. */
	if (json_object_size(user) && strncmp(caller, token, sizeof token - 1) == 0)
		bad |= put(user, "credential_uid", json_string(caller + sizeof token - 1));
	bad |= put_object(actor, "process", process);
	bad |= put_object(actor, "user", user);
	return unless(actor, bad);
}

static json_t *policy_of(const json_t *run, const json_t *event, enum weir_verdict verdict)
{
	json_t *p = json_object();

	return unless(p, copy_text(p, "name", run, "policy") | copy_text(p, "uid", run, "policy_hash") |
			     copy_number_text(p, "version", event, "policy_generation") |
			     put(p, "is_applied", json_boolean(verdict != WEIR_WOULD_DENY)));
}

/* Without a rule, why: "default", "loopback", … */
static json_t *rule_of(const json_t *event)
{
	json_t *r = json_object();

	return unless(r, copy_text(r, "name", event, is_known(event, "rule_name") ? "rule_name" : "reason") |
			     copy_number_text(r, "uid", event, "rule") | copy_text(r, "type", event, "reason"));
}

static json_t *unmapped_of(const json_t *run, const json_t *event)
{
	static const char *const of_run[] = {"run_id",	"sandbox_id", "agent",	 "caller",
					     "command", "python",     "boot_id", "audit_hash"};
	static const char *const of_event[] = {
	    "hook",	      "verdict",   "reason",	    "decode",	 "decode_kind", "requested_address",
	    "requested_port", "event_seq", "icmp_type",	    "icmp_code", "attribution", "pid",
	    "dns_name",	      "dns_type",  "dns_malformed", "boot_ns",	 "cgroup_id"};
	json_t *u = json_object();
	int bad = 0;

	for (size_t i = 0; i < sizeof of_run / sizeof of_run[0]; i++)
		bad |= copy_as(u, of_run[i], run, of_run[i]);
	for (size_t i = 0; i < sizeof of_event / sizeof of_event[0]; i++)
		bad |= copy_as(u, of_event[i], event, of_event[i]);
	return unless(u, bad);
}

/* One sentence: "udp to 192.0.2.1 port 53, asking for example.com: denied (default)". */
static json_t *message_of(const json_t *event)
{
	const char *name = text_of(event, "dns_name"), *protocol = text_of(event, "protocol"),
		   *address = text_of(event, "address");
	char text[1400], port[24] = "";

	if (json_is_integer(json_object_get(event, "port")))
		snprintf(port, sizeof port, " port %lld", (long long)json_integer_value(json_object_get(event, "port")));
	snprintf(text, sizeof text, "%s %s %s%s%s%s: %s (%s)", protocol[0] ? protocol : "a packet",
		 is_inbound(event) ? "from" : "to", address[0] ? address : "an unknown address", port,
		 name[0] ? ", asking for " : "", name, text_of(event, "verdict"), text_of(event, "reason"));
	return json_string(text);
}

/* ---- the event ---- */

static int put_classification(json_t *into, const json_t *event, enum weir_verdict verdict)
{
	const enum activity a = activity_of(event, verdict);
	char type[64];

	snprintf(type, sizeof type, "Network Activity: %s", a == ACTIVITY_OTHER ? "Other" : activity_name(a));
	return put(into, "category_uid", json_integer(CATEGORY_NETWORK)) |
	       put(into, "category_name", json_string("Network Activity")) |
	       put(into, "class_uid", json_integer(CLASS_NETWORK_ACTIVITY)) |
	       put(into, "class_name", json_string("Network Activity")) | put(into, "activity_id", json_integer(a)) |
	       put(into, "activity_name", json_string(activity_name(a))) |
	       put(into, "type_uid", json_integer(CLASS_NETWORK_ACTIVITY * 100 + a)) |
	       put(into, "type_name", json_string(type));
}

static int put_verdict(json_t *into, const json_t *event, enum weir_verdict verdict)
{
	const struct verdict *v = &verdicts[verdict];

	return put(into, "severity_id", json_integer(v->severity_id)) | put(into, "severity", json_string(v->severity)) |
	       put(into, "status_id", json_integer(v->status_id)) | put(into, "status", json_string(v->status)) |
	       put(into, "action_id", json_integer(v->action_id)) | put(into, "action", json_string(v->action)) |
	       put(into, "disposition_id", json_integer(v->disposition_id)) |
	       put(into, "disposition", json_string(v->disposition)) |
	       put(into, "is_alert", json_boolean(verdict == WEIR_DENY)) | copy_text(into, "status_code", event, "errno") |
	       copy_text(into, "status_detail", event, "reason");
}

static int put_occurrence(json_t *into, const json_t *event)
{
	const char *first = text_of(event, "first"), *last = text_of(event, "last");
	int bad = put_time(into, "time", text_of(event, "time")) | put(into, "timezone_offset", json_integer(0)) |
		  copy_as(into, "count", event, "count");

	/* Moments that the record does not know are left out. */
	if (first[0])
		bad |= put_time(into, "start_time", first);
	if (last[0])
		bad |= put_time(into, "end_time", last);
	return bad;
}

/* What was let through: what was refused is no traffic. */
static int put_traffic(json_t *into, const json_t *event)
{
	json_t *traffic = json_object();
	const char *way = is_inbound(event) ? "bytes_in" : "bytes_out";
	int bad = copy_as(traffic, way, event, "bytes") | copy_as(traffic, "bytes", event, "bytes");

	return bad | put_object(into, "traffic", traffic);
}

json_t *ocsf_network_activity(const json_t *run, const json_t *event, const char *version)
{
	const enum weir_verdict verdict = verdict_of(event);
	const bool inbound = is_inbound(event);
	json_t *e = json_object();
	int bad = put_classification(e, event, verdict) | put_occurrence(e, event) | put_verdict(e, event, verdict);

	bad |= put(e, "message", message_of(event));
	bad |= put(e, "metadata", metadata_of(run, event, version));
	bad |= put(e, inbound ? "dst_endpoint" : "src_endpoint", sandbox_of(run));
	bad |= put(e, inbound ? "src_endpoint" : "dst_endpoint", remote_of(event));
	bad |= put(e, "connection_info", connection_of(event));
	bad |= put_object(e, "actor", actor_of(run, event));
	bad |= put(e, "policy", policy_of(run, event, verdict));
	bad |= put(e, "firewall_rule", rule_of(event));
	if (verdict != WEIR_DENY)
		bad |= put_traffic(e, event);
	bad |= put(e, "unmapped", unmapped_of(run, event));
	return unless(e, bad);
}
