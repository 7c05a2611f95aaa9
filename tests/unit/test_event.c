/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel events and supervisor notes as JSON: names, addresses, times, hostile bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "auditor/record.h"
#include "core/event.h"
#include "core/netaddr.h"

#define LINE_BYTES 16384 /* bytes of a record, far more than there can be */

/* ---- addresses and protocols ---- */

static void test_addresses(void **state)
{
	static const struct {
		uint8_t family;
		const char *in, *out;
	} rows[] = {
	    {4, "::ffff:10.0.0.1", "10.0.0.1"},
	    {6, "::ffff:10.0.0.1", "::ffff:10.0.0.1"},
	    {4, "2001:db8::1.2.3.4", "1.2.3.4"},
	    {6, "::", "::"},
	    {6, "::1", "::1"},
	    {6, "1::", "1::"},
	    {6, "2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"},
	    {6, "2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"},
	    {6, "0:0:1:0:0:0:0:2", "0:0:1::2"},
	    {6, "64:ff9b::a9fe:a9fe", "64:ff9b::a9fe:a9fe"},
	    {0, "::1", ""},
	    {7, "::1", ""},
	};
	char text[NETADDR_TEXT_MAX];
	uint8_t addr[16];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		assert_int_equal(inet_pton(AF_INET6, rows[i].in, addr), 1);
		netaddr_text(text, addr, rows[i].family);
		assert_string_equal(text, rows[i].out);
	}
}

/* Against the C library, over addresses with many zero groups; it prints ::a.b.c.d where RFC 5952 has plain groups. */
static void test_addresses_random(void **state)
{
	(void)state;
	srandom(2);
	for (int i = 0; i < 200000; i++) {
		char text[NETADDR_TEXT_MAX], want[INET6_ADDRSTRLEN];
		uint8_t addr[16] = {0};

		for (int g = 0; g < 8; g++)
			if (random() % 3 == 0) {
				addr[2 * g] = (uint8_t)(random() % 2 ? random() : 0);
				addr[2 * g + 1] = (uint8_t)random();
			}
		netaddr_text(text, addr, 6);
		inet_ntop(AF_INET6, addr, want, sizeof want);
		if (strchr(want, '.') && strncmp(want, "::ffff:", 7) != 0)
			continue;
		assert_string_equal(text, want);
	}
}

static void test_protocols(void **state)
{
	static const struct {
		uint8_t number;
		const char *name;
	} rows[] = {{6, "tcp"},	   {17, "udp"},	 {1, "icmp"}, {58, "icmpv6"},	     {136, "udplite"},
		    {132, "sctp"}, {33, "dccp"}, {2, "igmp"}, {255, "ip-proto-255"}, {0, "ip-proto-0"}};
	char buf[NETPROTO_TEXT_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		assert_string_equal(netproto_text(buf, rows[i].number), rows[i].name);
}

/* ---- times ---- */

static void test_times(void **state)
{
	char text[EVENT_TIME_MAX], want[EVENT_TIME_MAX];

	(void)state;
	event_time_text(text, 1738324800000000001u);
	assert_string_equal(text, "2025-01-31T12:00:00.000000001Z");
	event_time_text(text, UINT64_MAX);
	assert_string_equal(text, "2554-07-21T23:34:33.709551615Z");
	srandom(3);
	for (int i = 0; i < 100000; i++) {
		time_t t = (time_t)(random() % 1000) * 16000000 + random() % 16000000;
		struct tm tm;

		event_time_text(text, (uint64_t)t * 1000000000u + 5);
		gmtime_r(&t, &tm);
		strftime(want, sizeof want, "%Y-%m-%dT%H:%M:%S.000000005Z", &tm);
		assert_string_equal(text, want);
	}
}

static void test_wall(void **state)
{
	struct event_clock now = {.wall_ns = 1000000, .boot_ns = 5000};

	(void)state;
	assert_int_equal(event_wall_ns(now, 4000), 999000);
	assert_int_equal(event_wall_ns(now, 5000), 1000000);
	assert_int_equal(event_wall_ns(now, 6000), 1000000); /* in the future: no better guess */
	assert_int_equal(event_wall_ns(now, 0), 1000000);
}

/* ---- text ---- */

static void test_safe_text(void **state)
{
	char buf[65], small[6];

	(void)state;
	event_safe_text(buf, sizeof buf, "py\n\33[2J\\\"\xff", 16);
	assert_string_equal(buf, "py\\x0a\\x1b[2J\\x5c\"\\xff");
	event_safe_text(buf, sizeof buf, "0123456789abcdefXXXX", 16); /* no terminator in a comm field */
	assert_string_equal(buf, "0123456789abcdef");
	event_safe_text(small, sizeof small, "ab\n\n", 4);
	assert_string_equal(small, "ab");
}

/* ---- notes ---- */

static struct note event_note(void)
{
	struct note n = {.type = NOTE_EVENT, .wall_ns = 1738324800000000000u, .boot_ns = 9000};
	struct weir_event *v = &n.event;

	strcpy(n.run_id, "sandbox-ab12c");
	strcpy(n.sandbox_id, "sandbox-ab12c");
	strcpy(n.project, "dev");
	v->key =
	    (struct weir_flow_key){.cgroup = 77, .name_hash = 0xabc, .family = 4, .protocol = 17, .hook = WEIR_HOOK_EGRESS};
	memcpy(v->key.daddr, "\0\0\0\0\0\0\0\0\0\0\377\377\10\10\10\10", 16);
	v->key.dport_be = htons(53);
	v->time_ns = 8000;
	v->pid = 2;
	v->host_pid = 4242;
	v->uid = 100000;
	v->attribution = WEIR_ATTR_CURRENT;
	memcpy(v->comm, "py\"thon\n", 9);
	v->seq = 3;
	v->socket_type = SOCK_DGRAM;
	v->dns_qtype = 1;
	v->dns_len = 13;
	memcpy(v->dns, "\7example\3com", 13);
	return n;
}

/* The record's body as it is stored, and as it is read back. */
static json_t *line_of(const struct note *n, char *line, size_t size)
{
	json_t *body, *json;
	size_t len;

	assert_null(record_note_problem(n));
	body = record_body(n);
	assert_non_null(body);
	len = json_dumpb(body, line, size - 1, JSON_COMPACT);
	json_decref(body);
	assert_in_range(len, 2, size - 1);
	line[len] = 0;
	for (size_t i = 0; i < len; i++)
		assert_true(line[i] >= ' ' && line[i] <= '~');
	json = json_loads(line, 0, NULL);
	assert_non_null(json);
	return json;
}

static void test_event_record(void **state)
{
	struct note n = event_note();
	char line[LINE_BYTES];
	json_t *json = line_of(&n, line, sizeof line);

	(void)state;
	assert_string_equal(
	    line, "{\"type\":\"egress\",\"run_id\":\"sandbox-ab12c\",\"time\":\"2025-01-31T11:59:59.999999000Z\","
		  "\"boot_ns\":8000,"
		  "\"sandbox_id\":\"sandbox-ab12c\",\"project\":\"dev\",\"hook\":\"egress\",\"verdict\":\"denied\",\"reason\":"
		  "\"default\",\"rule\":null,\"policy_generation\":0,"
		  "\"protocol\":\"udp\",\"address\":\"8.8.8.8\",\"port\":53,\"cgroup\":77,\"name_hash\":\"0000000000000abc\","
		  "\"event_seq\":3,\"errno\":\"EPERM\",\"requested_address\":null,\"requested_port\":null,\"pid\":2,"
		  "\"host_pid\":4242,\"uid\":100000,\"command\":\"py\\\"thon\\\\x0a\",\"attribution\":\"current\",\"len\":0,"
		  "\"socket_cookie\":0,\"dns_name\":\"example.com\",\"dns_type\":\"A\",\"rule_name\":null}");
	json_decref(json);
}

/* ---- the rule and how the address was read ---- */

static void test_rule(void **state)
{
	struct note n = event_note();
	char line[LINE_BYTES];
	json_t *json;

	(void)state;
	n.event.key.reason = WEIR_REASON_RULE;
	n.event.key.verdict = WEIR_WOULD_DENY;
	n.event.key.rule = 7;
	n.event.key.generation = 3;
	strcpy(n.judged.rule_name, "no \"private\"");
	json = line_of(&n, line, sizeof line);
	assert_int_equal(json_integer_value(json_object_get(json, "rule")), 7);
	assert_string_equal(json_string_value(json_object_get(json, "rule_name")), "no \"private\"");
	assert_string_equal(json_string_value(json_object_get(json, "reason")), "rule");
	assert_string_equal(json_string_value(json_object_get(json, "verdict")), "would_deny");
	assert_int_equal(json_integer_value(json_object_get(json, "policy_generation")), 3);
	assert_null(json_object_get(json, "decode"));
	assert_null(json_object_get(json, "decode_kind"));
	json_decref(json);
	/* The flow's final count says the same of itself. */
	n.type = NOTE_FLOW;
	n.flow.key = n.event.key;
	json = line_of(&n, line, sizeof line);
	assert_string_equal(json_string_value(json_object_get(json, "rule_name")), "no \"private\"");
	assert_int_equal(json_integer_value(json_object_get(json, "rule")), 7);
	json_decref(json);
}

static void test_decode(void **state)
{
	static const struct {
		uint8_t via, family;
		const char *addr, *kind, *from, *to; /* from NULL: no path */
	} rows[] = {
	    {WEIR_VIA_MAPPED, 4, "::ffff:10.0.0.1", "mapped", "::ffff:10.0.0.1", "10.0.0.1"},
	    {WEIR_VIA_MAPPED, 6, "::ffff:10.0.0.1", "mapped", "::ffff:10.0.0.1", "10.0.0.1"},
	    {WEIR_VIA_COMPATIBLE, 6, "::a00:1", "compatible", "::a00:1", "10.0.0.1"},
	    {WEIR_VIA_TRANSLATED, 6, "::ffff:0:a00:1", "translated", "::ffff:0:a00:1", "10.0.0.1"},
	    {WEIR_VIA_NAT64, 6, "64:ff9b::a9fe:a9fe", "nat64", "64:ff9b::a9fe:a9fe", "169.254.169.254"},
	    {WEIR_VIA_NAT64, 6, "64:ff9b:1::a9fe:a9fe", "nat64", "64:ff9b:1::a9fe:a9fe", "169.254.169.254"},
	    {WEIR_VIA_6TO4, 6, "2002:a00:1::", "6to4", "2002:a00:1::", "10.0.0.1"},
	    {WEIR_VIA_TEREDO_SERVER, 6, "2001:0:a00:1::", "teredo_server", "2001:0:a00:1::", "10.0.0.1"},
	    {WEIR_VIA_TEREDO_CLIENT, 6, "2001:0:808:808::f5ff:fffe", "teredo_client", "2001:0:808:808::f5ff:fffe", "10.0.0.1"},
	    {WEIR_VIA_ISATAP, 6, "2001:db8::5efe:a00:1", "isatap", "2001:db8::5efe:a00:1", "10.0.0.1"},
	    {WEIR_VIA_UNSPECIFIED, 4, "::ffff:0.0.0.0", "unspecified", "0.0.0.0", "127.0.0.1"},
	    {WEIR_VIA_UNSPECIFIED, 6, "::", "unspecified", "::", "::1"},
	    /* Only the policy knows its prefixes; and a kind that the address does not bear out has no path. */
	    {WEIR_VIA_NAT64_CONFIGURED, 6, "2001:db8:64::a00:1", "nat64_configured", NULL, NULL},
	    {WEIR_VIA_6TO4, 6, "2001:db8::1", "6to4", NULL, NULL},
	    {WEIR_VIA_TEREDO_CLIENT, 6, "2001:db8::1", "teredo_client", NULL, NULL},
	    {WEIR_VIA_ISATAP, 6, "2001:db8::1", "isatap", NULL, NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct note n = event_note();
		char line[LINE_BYTES];
		const json_t *path;
		json_t *json;

		n.event.key.via = rows[i].via;
		n.event.key.family = rows[i].family;
		assert_int_equal(inet_pton(AF_INET6, rows[i].addr, n.event.key.daddr), 1);
		json = line_of(&n, line, sizeof line);
		path = json_object_get(json, "decode");
		assert_string_equal(json_string_value(json_object_get(json, "decode_kind")), rows[i].kind);
		if (rows[i].from) {
			assert_int_equal(json_array_size(path), 2);
			assert_string_equal(json_string_value(json_array_get(path, 0)), rows[i].from);
			assert_string_equal(json_string_value(json_array_get(path, 1)), rows[i].to);
		} else {
			assert_null(path);
		}
		json_decref(json);
	}
}

/* ---- what it returned, and what was asked for ---- */

static void test_errno(void **state)
{
	static const struct {
		uint8_t hook, verdict, type, protocol;
		bool told;
	} rows[] = {
	    {WEIR_HOOK_CONNECT4, WEIR_DENY, SOCK_STREAM, IPPROTO_TCP, true},
	    {WEIR_HOOK_CONNECT6, WEIR_DENY, SOCK_STREAM, IPPROTO_TCP, true},
	    {WEIR_HOOK_CONNECT6, WEIR_DENY, SOCK_DGRAM, IPPROTO_UDP, true},
	    {WEIR_HOOK_SENDMSG4, WEIR_DENY, SOCK_DGRAM, IPPROTO_UDP, true},
	    {WEIR_HOOK_SENDMSG6, WEIR_DENY, SOCK_DGRAM, IPPROTO_UDP, true},
	    {WEIR_HOOK_SETSOCKOPT, WEIR_DENY, SOCK_DGRAM, IPPROTO_IGMP, true},
	    {WEIR_HOOK_EGRESS, WEIR_DENY, SOCK_DGRAM, IPPROTO_UDP, true},
	    {WEIR_HOOK_EGRESS, WEIR_DENY, SOCK_DGRAM, IPPROTO_ICMP, true},
	    {WEIR_HOOK_EGRESS, WEIR_DENY, SOCK_RAW, IPPROTO_TCP, true},
	    {WEIR_HOOK_EGRESS, WEIR_DENY, SOCK_RAW, IPPROTO_ICMPV6, true},
	    /* the kernel tells nobody */
	    {WEIR_HOOK_EGRESS, WEIR_DENY, SOCK_DGRAM, IPPROTO_ICMPV6, false},
	    {WEIR_HOOK_EGRESS, WEIR_DENY, SOCK_STREAM, IPPROTO_TCP, false},
	    {WEIR_HOOK_EGRESS, WEIR_DENY, 0, IPPROTO_UDP, false},
	    {WEIR_HOOK_INGRESS, WEIR_DENY, SOCK_DGRAM, IPPROTO_UDP, false},
	    /* nothing was refused */
	    {WEIR_HOOK_CONNECT4, WEIR_ALLOW, SOCK_STREAM, IPPROTO_TCP, false},
	    {WEIR_HOOK_EGRESS, WEIR_WOULD_DENY, SOCK_DGRAM, IPPROTO_UDP, false},
	    {WEIR_HOOK_SETSOCKOPT, WEIR_WOULD_DENY, SOCK_DGRAM, IPPROTO_IGMP, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct weir_event ev = {.key = {.hook = rows[i].hook, .verdict = rows[i].verdict, .protocol = rows[i].protocol},
					.socket_type = rows[i].type};
		const char *name = event_errno_name(&ev);

		if ((name != NULL) != rows[i].told || (name && strcmp(name, "EPERM") != 0))
			fail_msg("row %zu: %s", i, name ? name : "nothing");
	}
}

static void test_requested(void **state)
{
	static const struct {
		uint8_t family, protocol;
		const char *named, *text;
		bool has_port;
	} rows[] = {
	    {4, IPPROTO_TCP, "::ffff:10.0.0.1", "10.0.0.1", true}, {6, IPPROTO_TCP, "::ffff:10.0.0.1", "::ffff:10.0.0.1", true},
	    {6, IPPROTO_UDP, "2001:db8::1", "2001:db8::1", true},  {4, IPPROTO_ICMP, "::ffff:10.0.0.1", "10.0.0.1", false},
	    {0, IPPROTO_UDP, "2001:db8::1", NULL, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct weir_event ev = event_note().event;
		json_t *json = json_object();

		ev.key.protocol = rows[i].protocol;
		ev.requested_family = rows[i].family;
		ev.requested_port_be = htons(40000);
		assert_int_equal(inet_pton(AF_INET6, rows[i].named, ev.requested), 1);
		assert_null(event_problem(&ev));
		assert_int_equal(event_json(json, &ev), 0);
		if (rows[i].text)
			assert_string_equal(json_string_value(json_object_get(json, "requested_address")), rows[i].text);
		else
			assert_true(json_is_null(json_object_get(json, "requested_address")));
		if (rows[i].has_port)
			assert_int_equal(json_integer_value(json_object_get(json, "requested_port")), 40000);
		else
			assert_true(json_is_null(json_object_get(json, "requested_port")));
		json_decref(json);
	}
}

static void test_new_fields_checked(void **state)
{
	struct weir_event ev = event_note().event;

	(void)state;
	assert_null(event_problem(&ev));
	ev.requested_family = 5;
	assert_string_equal(event_problem(&ev), "requested_family");
	ev.requested_family = 6;
	ev.socket_type = 11;
	assert_string_equal(event_problem(&ev), "socket_type");
	ev.socket_type = 10;
	assert_null(event_problem(&ev));
}

/* What the supervisor decoded for us, and only where nobody else can. */
static void test_configured_prefix(void **state)
{
	struct note n = event_note();
	char line[LINE_BYTES];
	json_t *json;

	(void)state;
	n.event.key.family = 6;
	assert_int_equal(inet_pton(AF_INET6, "2001:db8:64::a00:1", n.event.key.daddr), 1);
	n.event.key.via = WEIR_VIA_NAT64_CONFIGURED;
	memcpy(n.judged.carried, "\12\0\0\1", 4);
	n.judged.has_carried = 1;
	json = line_of(&n, line, sizeof line);
	assert_string_equal(json_string_value(json_array_get(json_object_get(json, "decode"), 0)), "2001:db8:64::a00:1");
	assert_string_equal(json_string_value(json_array_get(json_object_get(json, "decode"), 1)), "10.0.0.1");
	json_decref(json);
	n.event.key.via = WEIR_VIA_NONE;
	json = line_of(&n, line, sizeof line);
	assert_null(json_object_get(json, "decode"));
	json_decref(json);
}

static void test_names(void **state)
{
	static const char *const reasons[] = {"default", "no_entry",	 "no_policy",	   "malformed",
					      "socket",	 "socket_limit", "rule",	   "loopback",
					      "inbound", "ipv4_options", "routing_header", "fragment"};

	(void)state;
	for (int i = 0; i < WEIR_REASON_COUNT; i++)
		assert_string_equal(event_reason_names[i], reasons[i]);
	for (int i = 0; i < WEIR_VERDICT_COUNT; i++)
		assert_non_null(event_verdict_names[i]);
	for (int i = 0; i < WEIR_HOOK_COUNT; i++)
		assert_non_null(event_hook_names[i]);
	for (int i = WEIR_VIA_NONE + 1; i < WEIR_VIA_COUNT; i++)
		assert_non_null(event_via_names[i]);
}

static void test_policy_record(void **state)
{
	struct note n = {.type = NOTE_POLICY};
	char line[LINE_BYTES], hash[65];
	json_t *json;

	(void)state;
	strcpy(n.policy.old.name, "before");
	strcpy(n.policy.now.name, "after\n");
	for (int i = 0; i < 32; i++) {
		n.policy.now.hash[i] = (uint8_t)(0xf0 - i);
		snprintf(hash + 2 * i, 3, "%02x", 0xf0 - i);
	}
	n.policy.old.generation = 4;
	n.policy.now.generation = 5;
	n.policy.reason = POLICY_CHANGE_ADDRESSES;
	json = line_of(&n, line, sizeof line);
	assert_string_equal(json_string_value(json_object_get(json, "type")), "policy");
	assert_string_equal(json_string_value(json_object_get(json, "run_id")), "");
	assert_string_equal(json_string_value(json_object_get(json, "reason")), "addresses");
	assert_string_equal(json_string_value(json_object_get(json, "policy")), "after\\x0a");
	assert_string_equal(json_string_value(json_object_get(json, "policy_hash")), hash);
	assert_int_equal(json_integer_value(json_object_get(json, "policy_generation")), 5);
	assert_string_equal(json_string_value(json_object_get(json, "old_policy")), "before");
	assert_int_equal(json_integer_value(json_object_get(json, "old_policy_generation")), 4);
	assert_int_equal(strlen(json_string_value(json_object_get(json, "old_policy_hash"))), 64);
	json_decref(json);
}

static void test_icmp_and_unknown(void **state)
{
	struct note n = event_note();
	char line[LINE_BYTES];
	json_t *json;

	(void)state;
	n.event.key.protocol = 1;
	n.event.key.dport_be = htons(8 << 8 | 3);
	n.event.dns_len = 0;
	n.event.attribution = WEIR_ATTR_UNKNOWN;
	n.event.pid = n.event.host_pid = 0;
	json = line_of(&n, line, sizeof line);
	assert_true(json_is_null(json_object_get(json, "port")));
	assert_int_equal(json_integer_value(json_object_get(json, "icmp_type")), 8);
	assert_int_equal(json_integer_value(json_object_get(json, "icmp_code")), 3);
	assert_true(json_is_null(json_object_get(json, "pid")));
	assert_true(json_is_null(json_object_get(json, "uid")));
	assert_null(json_object_get(json, "dns_name"));
	json_decref(json);

	n.event.key.family = 0;
	n.event.key.protocol = 0;
	n.event.key.reason = WEIR_REASON_MALFORMED;
	json = line_of(&n, line, sizeof line);
	assert_true(json_is_null(json_object_get(json, "address")));
	assert_true(json_is_null(json_object_get(json, "protocol")));
	json_decref(json);
}

/* The longest line there is stays well under what readers take. */
static void test_longest_line(void **state)
{
	struct note n = event_note();
	char line[LINE_BYTES];

	(void)state;
	memset(n.run_id, 'r', sizeof n.run_id - 1);
	memset(n.sandbox_id, 's', sizeof n.sandbox_id - 1);
	memset(n.project, 'p', sizeof n.project - 1);
	memset(n.event.comm, 0xff, sizeof n.event.comm);
	memset(n.event.dns, 0xff, sizeof n.event.dns);
	for (size_t i = 0; i < 255; i += 64)
		n.event.dns[i] = 63;
	n.event.dns_len = 255;
	n.event.key.cgroup = n.event.key.name_hash = n.event.socket_cookie = UINT64_MAX;
	memset(n.judged.rule_name, '\n', sizeof n.judged.rule_name - 1);
	n.event.key.via = WEIR_VIA_NAT64_CONFIGURED;
	n.event.key.family = 6;
	memset(n.event.key.daddr, 0xff, sizeof n.event.key.daddr);
	memset(n.judged.carried, 0xff, sizeof n.judged.carried);
	n.judged.has_carried = 1;
	n.event.seq = UINT64_MAX;
	memset(n.event.requested, 0xff, sizeof n.event.requested);
	n.event.requested_port_be = UINT16_MAX;
	n.event.requested_family = 6;
	json_decref(line_of(&n, line, sizeof line));
	assert_in_range(strlen(line), 1500, LINE_BYTES / 4);
}

static void test_end_and_gap(void **state)
{
	struct note n = {.type = NOTE_RUN_END};
	char line[LINE_BYTES];
	json_t *json;

	(void)state;
	strcpy(n.run_id, "r");
	n.end = (struct tell_end){
	    .end = RUN_END_SIGNAL, .signal = 11, .exit_code = 139, .attempts = UINT64_MAX, .would_deny = 6, .ran = 1};
	strcpy(n.end.cpu_source, "cgroup2 cpu.stat");
	json = line_of(&n, line, sizeof line);
	assert_string_equal(json_string_value(json_object_get(json, "signal")), "SIGSEGV");
	assert_true(json_integer_value(json_object_get(json, "attempts")) == INT64_MAX);
	assert_int_equal(json_integer_value(json_object_get(json, "would_deny")), 6);
	json_decref(json);

	n = (struct note){.type = NOTE_GAP, .gap = {.sandboxes = 3, .ring_lost = 9, .text = "swept\n"}};
	json = line_of(&n, line, sizeof line);
	assert_string_equal(json_string_value(json_object_get(json, "kind")), "sweep");
	assert_string_equal(json_string_value(json_object_get(json, "text")), "swept\\x0a");
	assert_string_equal(json_string_value(json_object_get(json, "run_id")), "");
	json_decref(json);
}

#define REFUSED(change, field)                                                                                                 \
	do {                                                                                                                   \
		struct note n = event_note();                                                                                  \
		change;                                                                                                        \
		assert_non_null(record_note_problem(&n));                                                                      \
		assert_string_equal(record_note_problem(&n), field);                                                           \
	} while (0)

static void test_refused(void **state)
{
	(void)state;
	REFUSED(n.type = NOTE_NONE, "type");
	REFUSED(n.type = 99, "type");
	REFUSED(memset(n.run_id, 'a', sizeof n.run_id), "run_id");
	REFUSED(strcpy(n.run_id, "a\"b"), "run_id");
	REFUSED((n.type = NOTE_FLOW, n.run_id[0] = 0), "run_id");
	REFUSED(strcpy(n.sandbox_id, "a/b"), "sandbox_id");
	REFUSED(memset(n.project, 'a', sizeof n.project), "project");
	REFUSED(n.event.key.hook = WEIR_HOOK_COUNT, "hook");
	REFUSED(n.event.key.verdict = WEIR_VERDICT_COUNT, "verdict");
	REFUSED(n.event.key.via = WEIR_VIA_COUNT, "via");
	REFUSED(memset(n.judged.rule_name, 'x', sizeof n.judged.rule_name), "judged.rule_name");
	REFUSED((n.type = NOTE_POLICY, memset(n.policy.old.name, 'x', sizeof n.policy.old.name)), "policy.old");
	REFUSED((n.type = NOTE_POLICY, memset(n.policy.now.name, 'x', sizeof n.policy.now.name)), "policy.now");
	REFUSED((memset(&n.policy, 0, sizeof n.policy), n.type = NOTE_POLICY, n.policy.reason = POLICY_CHANGE_COUNT),
		"policy.reason");
	REFUSED(n.event.key.reason = WEIR_REASON_COUNT, "reason");
	REFUSED(n.event.key.family = 5, "family");
	REFUSED(n.event.attribution = 3, "attribution");
	REFUSED(n.event.dns_len = 256, "dns_len");
	REFUSED(n.event.requested_family = 1, "requested_family");
	REFUSED(n.event.socket_type = 99, "socket_type");
	REFUSED((n.type = NOTE_RUN_END, n.end.end = RUN_END_COUNT), "end.end");
	REFUSED((n.type = NOTE_RUN_END, n.end.end = 0, memset(n.end.detail, 'x', sizeof n.end.detail)), "end.detail");
	REFUSED((n.type = NOTE_RUN_BEGIN, memset(n.begin.policy.name, 'x', sizeof n.begin.policy.name)), "begin.policy");
	REFUSED((n.type = NOTE_RUN_BEGIN, memset(&n.begin, 0, sizeof n.begin), strcpy(n.begin.agent, "a b")), "begin.agent");
	REFUSED(
	    (n.type = NOTE_RUN_BEGIN, memset(&n.begin, 0, sizeof n.begin), memset(n.begin.image, 'x', sizeof n.begin.image)),
	    "begin.image");
	REFUSED((n.type = NOTE_GAP, memset(n.gap.text, 'x', sizeof n.gap.text)), "gap.text");
}

/* Random bytes of the right size, with a type that exists: refused, or a record that parses. */
static void test_random_notes(void **state)
{
	unsigned good = 0;

	(void)state;
	srandom(4);
	for (int i = 0; i < 100000; i++) {
		struct note n;
		char line[LINE_BYTES];

		for (size_t j = 0; j < sizeof n; j += 4) {
			uint32_t r = (uint32_t)random() ^ (uint32_t)random() << 16;

			memcpy((char *)&n + j, &r, sizeof n - j < 4 ? sizeof n - j : 4);
		}
		n.type = (uint32_t)(i % (NOTE_FLUSH + 1));
		if (i % 2) {
			n = event_note();
			((char *)&n)[random() % (long)sizeof n] = (char)random();
		}
		if (record_note_problem(&n) || n.type == NOTE_FLUSH)
			continue;
		json_decref(line_of(&n, line, sizeof line));
		good++;
	}
	assert_in_range(good, 1000, 100000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_addresses),
	    cmocka_unit_test(test_addresses_random),
	    cmocka_unit_test(test_protocols),
	    cmocka_unit_test(test_times),
	    cmocka_unit_test(test_wall),
	    cmocka_unit_test(test_safe_text),
	    cmocka_unit_test(test_rule),
	    cmocka_unit_test(test_decode),
	    cmocka_unit_test(test_errno),
	    cmocka_unit_test(test_requested),
	    cmocka_unit_test(test_new_fields_checked),
	    cmocka_unit_test(test_configured_prefix),
	    cmocka_unit_test(test_names),
	    cmocka_unit_test(test_policy_record),
	    cmocka_unit_test(test_event_record),
	    cmocka_unit_test(test_icmp_and_unknown),
	    cmocka_unit_test(test_longest_line),
	    cmocka_unit_test(test_end_and_gap),
	    cmocka_unit_test(test_refused),
	    cmocka_unit_test(test_random_notes),
	};

	return cmocka_run_group_tests_name("event", tests, NULL, NULL);
}
