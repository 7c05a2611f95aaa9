/* SPDX-License-Identifier: Apache-2.0 */
#include "core/event.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "carried.h"
#include "core/dnsname.h"
#include "core/netaddr.h"

/* Of a socket, as struct weir_event has them: the same on every architecture that we run on. */
enum { TYPE_DGRAM = 2, TYPE_RAW = 3, SOCK_TYPE_MAX = 10 };
enum { PROTOCOL_ICMPV6 = 58 };

const char *const event_hook_names[WEIR_HOOK_COUNT] = {
    [WEIR_HOOK_NONE] = "none",	       [WEIR_HOOK_CONNECT4] = "connect4",     [WEIR_HOOK_CONNECT6] = "connect6",
    [WEIR_HOOK_SENDMSG4] = "sendmsg4", [WEIR_HOOK_SENDMSG6] = "sendmsg6",     [WEIR_HOOK_EGRESS] = "egress",
    [WEIR_HOOK_INGRESS] = "ingress",   [WEIR_HOOK_SETSOCKOPT] = "setsockopt",
};
const char *const event_verdict_names[WEIR_VERDICT_COUNT] = {
    [WEIR_DENY] = "denied",
    [WEIR_ALLOW] = "allowed",
    [WEIR_WOULD_DENY] = "would_deny",
};
const char *const event_reason_names[WEIR_REASON_COUNT] = {
    [WEIR_REASON_DEFAULT] = "default",
    [WEIR_REASON_NO_ENTRY] = "no_entry",
    [WEIR_REASON_NO_POLICY] = "no_policy",
    [WEIR_REASON_MALFORMED] = "malformed",
    [WEIR_REASON_SOCKET] = "socket",
    [WEIR_REASON_SOCKETS] = "socket_limit",
    [WEIR_REASON_RULE] = "rule",
    [WEIR_REASON_LOOPBACK] = "loopback",
    [WEIR_REASON_INBOUND] = "inbound",
    [WEIR_REASON_OPTIONS] = "ipv4_options",
    [WEIR_REASON_ROUTING] = "routing_header",
    [WEIR_REASON_FRAGMENT] = "fragment",
};
const char *const event_via_names[WEIR_VIA_COUNT] = {
    [WEIR_VIA_MAPPED] = "mapped",
    [WEIR_VIA_COMPATIBLE] = "compatible",
    [WEIR_VIA_TRANSLATED] = "translated",
    [WEIR_VIA_NAT64] = "nat64",
    [WEIR_VIA_6TO4] = "6to4",
    [WEIR_VIA_TEREDO_SERVER] = "teredo_server",
    [WEIR_VIA_TEREDO_CLIENT] = "teredo_client",
    [WEIR_VIA_NAT64_CONFIGURED] = "nat64_configured",
    [WEIR_VIA_ISATAP] = "isatap",
    [WEIR_VIA_UNSPECIFIED] = "unspecified",
};
const char *const event_attribution_names[3] = {
    [WEIR_ATTR_UNKNOWN] = "unknown",
    [WEIR_ATTR_CURRENT] = "current",
    [WEIR_ATTR_SOCKET] = "socket",
};

const char *event_key_problem(const struct weir_flow_key *key)
{
	if (key->hook >= WEIR_HOOK_COUNT || !event_hook_names[key->hook])
		return "hook";
	if (key->verdict >= WEIR_VERDICT_COUNT)
		return "verdict";
	if (key->reason >= WEIR_REASON_COUNT || !event_reason_names[key->reason])
		return "reason";
	if (key->family != 0 && key->family != 4 && key->family != 6)
		return "family";
	if (key->via >= WEIR_VIA_COUNT)
		return "via";
	return NULL;
}

const char *event_problem(const struct weir_event *event)
{
	if (event->attribution > WEIR_ATTR_SOCKET)
		return "attribution";
	if (event->dns_len > WEIR_DNS_MAX)
		return "dns_len";
	if (event->requested_family != 0 && event->requested_family != 4 && event->requested_family != 6)
		return "requested_family";
	if (event->socket_type > SOCK_TYPE_MAX)
		return "socket_type";
	return event_key_problem(&event->key);
}

json_t *event_u64(uint64_t value)
{
	return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

uint64_t event_wall_ns(struct event_clock now, uint64_t boot_ns)
{
	uint64_t ago;

	if (boot_ns == 0 || boot_ns > now.boot_ns)
		return now.wall_ns;
	ago = now.boot_ns - boot_ns;
	return ago < now.wall_ns ? now.wall_ns - ago : now.wall_ns;
}

static unsigned days_in_year(unsigned y)
{
	return y % 4 == 0 && (y % 100 != 0 || y % 400 == 0) ? 366 : 365;
}

void event_time_text(char ret[EVENT_TIME_MAX], uint64_t wall_ns)
{
	/* Not gmtime_r(): it may read the time zone file, which a confined process can't. 64 bits end in the year 2554. */
	static const uint8_t month_days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	uint64_t s = wall_ns / 1000000000u;
	unsigned day = (unsigned)(s / 86400), t = (unsigned)(s % 86400), year = 1970, month = 0;

	while (day >= days_in_year(year))
		day -= days_in_year(year++);
	for (; month < 11; month++) {
		unsigned n = month_days[month] + (month == 1 && days_in_year(year) == 366);

		if (day < n)
			break;
		day -= n;
	}
	snprintf(ret, EVENT_TIME_MAX, "%04u-%02u-%02uT%02u:%02u:%02u.%09uZ", year, month + 1, day + 1, t / 3600, t / 60 % 60,
		 t % 60, (unsigned)(wall_ns % 1000000000u));
}

void event_safe_text(char *ret, size_t size, const char *text, size_t max)
{
	static const char hex[] = "0123456789abcdef";
	size_t out = 0;

	for (size_t i = 0; i < max && text[i]; i++) {
		unsigned char c = (unsigned char)text[i];
		bool plain = c >= 0x20 && c < 0x7f && c != '\\';

		if (out + (plain ? 1 : 4) >= size)
			break;
		if (plain) {
			ret[out++] = (char)c;
			continue;
		}
		ret[out++] = '\\';
		ret[out++] = 'x';
		ret[out++] = hex[c >> 4];
		ret[out++] = hex[c & 15];
	}
	ret[out] = 0;
}

static json_t *text_or_null(const char *text)
{
	return text[0] ? json_string(text) : json_null();
}

static void mapped(uint8_t ret[16], const uint8_t v4[4])
{
	memset(ret, 0, 10);
	ret[10] = ret[11] = 0xff;
	memcpy(ret + 12, v4, 4);
}

/* What decided, as text, and how the call named it. False when that can't be known from the key alone. */
static bool decode_path(const struct weir_flow_key *key, char ret[2][NETADDR_TEXT_MAX])
{
	uint8_t v4[4] = {0}, inner[16] = {0};
	uint8_t family = 4;

	netaddr_text(ret[0], key->daddr, key->family);
	switch (key->via) {
	case WEIR_VIA_UNSPECIFIED:
		family = key->family;
		if (family == 6)
			inner[15] = 1;
		else
			mapped(inner, (const uint8_t[]){127, 0, 0, 1});
		break;
	case WEIR_VIA_MAPPED:
		/* Asked for as ::ffff:a.b.c.d; the key of a call has the IPv4 address that it became. */
		if (key->family == 4)
			netaddr_text(ret[0], key->daddr, 6);
		memcpy(inner, key->daddr, sizeof inner);
		break;
	case WEIR_VIA_TEREDO_CLIENT:
		if (weir_carried_by_prefix(key->daddr, v4) != WEIR_VIA_TEREDO_SERVER)
			return false;
		weir_teredo_client(key->daddr, v4);
		mapped(inner, v4);
		break;
	case WEIR_VIA_ISATAP:
		if (!weir_carried_isatap(key->daddr, v4))
			return false;
		mapped(inner, v4);
		break;
	default:
		/* A configured prefix is the policy's, which is not here; the rest are told by the address's first bits. */
		if (weir_carried_by_prefix(key->daddr, v4) != key->via)
			return false;
		mapped(inner, v4);
	}
	netaddr_text(ret[1], inner, family);
	return key->family != 0;
}

/* Nothing when the address decided as it is written. */
static int decode_json(json_t *into, const struct weir_flow_key *key)
{
	char path[2][NETADDR_TEXT_MAX];
	int bad;

	if (key->via == WEIR_VIA_NONE)
		return 0;
	bad = json_object_set_new(into, "decode_kind", json_string(event_via_names[key->via]));
	if (decode_path(key, path))
		bad |= json_object_set_new(into, "decode", json_pack("[s, s]", path[0], path[1]));
	return bad;
}

int event_carried_json(json_t *into, const struct weir_flow_key *key, const uint8_t v4[4])
{
	char outer[NETADDR_TEXT_MAX], inner[NETADDR_TEXT_MAX];
	uint8_t addr[16];

	mapped(addr, v4);
	netaddr_text(outer, key->daddr, key->family);
	netaddr_text(inner, addr, 4);
	return json_object_set_new(into, "decode", json_pack("[s, s]", outer, inner)) < 0 ? -ENOMEM : 0;
}

int event_key_json(json_t *into, const struct weir_flow_key *key)
{
	unsigned port = (unsigned)(((const uint8_t *)&key->dport_be)[0] << 8 | ((const uint8_t *)&key->dport_be)[1]);
	char addr[NETADDR_TEXT_MAX], proto[NETPROTO_TEXT_MAX], hash[20];
	/* A packet without a readable header has no protocol; 0 in one that has a header is a real number. */
	bool no_proto = key->protocol == 0 && (key->family == 0 || key->reason == WEIR_REASON_MALFORMED);
	int bad = 0;

	netaddr_text(addr, key->daddr, key->family);
	snprintf(hash, sizeof hash, "%016llx", (unsigned long long)key->name_hash);
	bad |= json_object_set_new(into, "hook", json_string(event_hook_names[key->hook]));
	bad |= json_object_set_new(into, "verdict", json_string(event_verdict_names[key->verdict]));
	bad |= json_object_set_new(into, "reason", json_string(event_reason_names[key->reason]));
	bad |= json_object_set_new(into, "rule", key->rule ? json_integer(key->rule) : json_null());
	bad |= decode_json(into, key);
	bad |= json_object_set_new(into, "policy_generation", json_integer(key->generation));
	bad |= json_object_set_new(into, "protocol", no_proto ? json_null() : json_string(netproto_text(proto, key->protocol)));
	bad |= json_object_set_new(into, "address", text_or_null(addr));
	bad |= json_object_set_new(into, "port", netproto_has_port(key->protocol) ? json_integer(port) : json_null());
	if (netproto_is_icmp(key->protocol)) {
		bad |= json_object_set_new(into, "icmp_type", json_integer(port >> 8));
		bad |= json_object_set_new(into, "icmp_code", json_integer(port & 255));
	}
	bad |= json_object_set_new(into, "cgroup", event_u64(key->cgroup));
	bad |= json_object_set_new(into, "name_hash", json_string(hash));
	return bad ? -ENOMEM : 0;
}

const char *event_errno_name(const struct weir_event *event)
{
	/* What a stream's packets meet on their way, nobody waits for: the kernel resends. */
	const bool told = event->socket_type == TYPE_DGRAM || event->socket_type == TYPE_RAW;

	if (event->key.verdict != WEIR_DENY)
		return NULL;
	switch (event->key.hook) {
	case WEIR_HOOK_CONNECT4:
	case WEIR_HOOK_CONNECT6:
	case WEIR_HOOK_SENDMSG4:
	case WEIR_HOOK_SENDMSG6:
	case WEIR_HOOK_SETSOCKOPT:
		return "EPERM";
	case WEIR_HOOK_EGRESS:
		/* The kernel ignores what becomes of an ICMPv6 ping socket's packet. */
		return told && !(event->socket_type == TYPE_DGRAM && event->key.protocol == PROTOCOL_ICMPV6) ? "EPERM" : NULL;
	default:
		return NULL;
	}
}

/* What was named, where that is known. */
static int requested_json(json_t *into, const struct weir_event *event)
{
	const uint8_t *port = (const uint8_t *)&event->requested_port_be;
	const bool has_port = event->requested_family && netproto_has_port(event->key.protocol);
	char addr[NETADDR_TEXT_MAX];
	int bad;

	netaddr_text(addr, event->requested, event->requested_family);
	bad = json_object_set_new(into, "requested_address", text_or_null(addr));
	bad |= json_object_set_new(into, "requested_port", has_port ? json_integer(port[0] << 8 | port[1]) : json_null());
	return bad;
}

static int dns_json(json_t *into, const struct weir_event *event)
{
	char buf[DNSTYPE_TEXT_MAX];
	struct dnsname name;
	int bad = 0;

	dnsname_decode(&name, event->dns, event->dns_len);
	bad |= json_object_set_new(into, "dns_name", json_string(name.text));
	bad |= json_object_set_new(into, "dns_type", json_string(dnstype_text(buf, event->dns_qtype)));
	if (name.malformed)
		bad |= json_object_set_new(into, "dns_malformed", json_true());
	return bad;
}

int event_json(json_t *into, const struct weir_event *event)
{
	bool known = event->attribution != WEIR_ATTR_UNKNOWN;
	const char *error = event_errno_name(event);
	char comm[EVENT_COMM_TEXT_MAX];
	int bad;

	event_safe_text(comm, sizeof comm, event->comm, sizeof event->comm);
	bad = event_key_json(into, &event->key);
	bad |= json_object_set_new(into, "event_seq", event_u64(event->seq));
	bad |= json_object_set_new(into, "errno", error ? json_string(error) : json_null());
	bad |= requested_json(into, event);
	bad |= json_object_set_new(into, "pid", event->pid ? json_integer(event->pid) : json_null());
	bad |= json_object_set_new(into, "host_pid", event->host_pid ? json_integer(event->host_pid) : json_null());
	bad |= json_object_set_new(into, "uid", known ? json_integer(event->uid) : json_null());
	bad |= json_object_set_new(into, "command", text_or_null(comm));
	bad |= json_object_set_new(into, "attribution", json_string(event_attribution_names[event->attribution]));
	bad |= json_object_set_new(into, "len", json_integer(event->len));
	bad |= json_object_set_new(into, "socket_cookie", event_u64(event->socket_cookie));
	if (event->dns_len)
		bad |= dns_json(into, event);
	return bad ? -ENOMEM : 0;
}

int event_flow_json(json_t *into, const struct weir_flow_key *key, const struct weir_flow *flow, struct event_clock now)
{
	char first[EVENT_TIME_MAX], last[EVENT_TIME_MAX];
	int bad = event_key_json(into, key);

	event_time_text(first, event_wall_ns(now, flow->first_ns));
	event_time_text(last, event_wall_ns(now, flow->last_ns));
	bad |= json_object_set_new(into, "count", event_u64(flow->count));
	bad |= json_object_set_new(into, "bytes", event_u64(flow->bytes));
	bad |= json_object_set_new(into, "first", json_string(first));
	bad |= json_object_set_new(into, "last", json_string(last));
	return bad ? -ENOMEM : 0;
}
