/* SPDX-License-Identifier: Apache-2.0 */
/* policy_parse(): what it takes and makes of it, and for all else where the error is and what it says. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "blobs.h"
#include "core/limits.h"
#include "core/policy.h"
#include "sysnames.h"

#define A10 "aaaaaaaaaa"
#define A60 A10 A10 A10 A10 A10 A10
#define NAME_63 A60 "aaa"

/* A document with more keys; one rule with more keys. */
#define DOC(more) "{\"name\":\"x\",\"default\":\"deny\"," more "}"
#define RULE(more) DOC("\"rules\":[{\"verdict\":\"allow\"," more "}]")
#define LIT(s) s, sizeof s - 1

static struct policy *must_parse(const char *text)
{
	struct err e = {.code = 77};
	struct policy *p = NULL;

	if (policy_parse(text, strlen(text), &p, &e) < 0)
		fail_msg("%s: %s: %s", text, e.where, e.msg);
	assert_int_equal(e.code, 77); /* untouched */
	return p;
}

static const struct accepted {
	const char *text;
	const char *name;
	int verdict;
} accepted[] = {
    {"{\"name\":\"x\",\"default\":\"deny\"}", "x", WEIR_DENY},
    {"{\"name\":\"x\",\"default\":\"allow\"}", "x", WEIR_ALLOW},
    {" \n\t{ \"default\" : \"allow\" , \"name\" : \"a.B-9_\" }\r\n", "a.B-9_", WEIR_ALLOW},
    {"{\"name\":\"x\",\"default\":\"deny\",\"mode\":\"enforce\"}", "x", WEIR_DENY},
    {"{\"name\":\"x\",\"default\":\"deny\",\"description\":\"\"}", "x", WEIR_DENY},
    {"{\"n\\u0061me\":\"x\",\"default\":\"den\\u0079\"}", "x", WEIR_DENY},
    {"{\"name\":\"" NAME_63 "\",\"default\":\"deny\"}", NAME_63, WEIR_DENY},
};

static void test_accepted(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
		const struct accepted *c = &accepted[i];
		struct policy *p = must_parse(c->text);

		assert_string_equal(p->name, c->name);
		assert_int_equal(p->default_verdict, c->verdict);
		policy_free(p);
	}
}

static void test_defaults(void **state)
{
	struct policy *p = must_parse("{\"name\":\"x\",\"default\":\"deny\"}");

	(void)state;
	assert_false(p->monitor);
	assert_true(p->list_allowed);
	assert_int_equal(p->loopback, WEIR_LOOPBACK_RULES);
	assert_false(p->inbound);
	assert_true(p->listen);
	assert_false(p->ipv4_options || p->routing_headers || p->fragments);
	assert_int_equal(p->rule_count, 0);
	assert_int_equal(p->nat64_count, 0);
	assert_int_equal(p->sockets.families, POLICY_AF_UNIX | POLICY_AF_INET | POLICY_AF_INET6);
	assert_int_equal(p->sockets.types, POLICY_SOCK_STREAM | POLICY_SOCK_DGRAM | POLICY_SOCK_SEQPACKET);
	assert_int_equal(p->sockets.protocols, POLICY_PROTO_TCP | POLICY_PROTO_UDP);
	assert_int_equal(p->syscall_count, 0);
	assert_int_equal(p->limits.memory_bytes, 0);
	assert_int_equal(p->limits.cpu_percent, 0);
	assert_int_equal(p->limits.processes, 0);
	assert_int_equal(p->limits.open_files, 0);
	assert_int_equal(p->limits.datagram_sockets, WEIR_SOCKETS_PER_SANDBOX);
	assert_string_equal(p->description, "");
	policy_free(p);
	assert_null(policy_free(NULL));
}

static const char everything[] =
    "{\"name\":\"all\",\"description\":\"every key\",\"default\":\"allow\",\"mode\":\"monitor\",\"rules\":["
    "{\"name\":\"web\",\"verdict\":\"allow\",\"to\":[\"192.0.2.0/"
    "24\",\"@host\",\"2001:db8::1\"],\"protocol\":[\"tcp\",17,\"tcp\"],"
    "\"ports\":[443,\"8000-8999\",443,\"0-65535\"]},"
    "{\"verdict\":\"deny\",\"to\":\"@private\"},"
    "{\"verdict\":\"deny\",\"to\":\"any\",\"protocol\":[\"icmp\",\"icmpv6\",\"sctp\",\"dccp\",\"udplite\",\"igmp\",\"gre\","
    "\"esp\",\"ah\",0,255]},"
    "{\"verdict\":\"allow\",\"to\":\"10.0.0.1\",\"protocol\":\"udp\",\"ports\":[\"1-1023\",\"80-80\"]},"
    "{\"verdict\":\"allow\",\"to\":[\"@resolver\",\"@resolver\"],\"protocol\":[\"udp\",\"tcp\"],\"ports\":53}],"
    "\"nat64_prefixes\":[\"2001:db8:64::/96\",\"2001:db9::/"
    "32\"],\"loopback\":\"self\",\"inbound\":\"allow\",\"listen\":\"deny\","
    "\"packets\":{\"ipv4_options\":\"allow\",\"routing_headers\":\"deny\",\"fragments\":\"allow\"},"
    "\"sockets\":{\"families\":[\"unix\",\"inet\",\"netlink\",\"packet\",\"vsock\"],\"types\":[\"raw\",\"raw\"],\"protocols\":["
    "]},"
    "\"syscalls\":[{\"names\":[\"@debug\",\"ptrace\"]},{\"names\":[\"mount\"],\"action\":\"kill\"},"
    "{\"names\":[\"umount2\"],\"action\":\"errno\",\"errno\":\"ENOSYS\"},{\"names\":[\"bpf\"],\"errno\":4095}],"
    "\"limits\":{\"memory_bytes\":1073741824,\"cpu_percent\":50,\"processes\":10,\"open_files\":64,\"datagram_sockets\":8},"
    "\"audit\":{\"allowed\":false}}";

static void test_everything(void **state)
{
	static const uint8_t protocols[] = {1, 58, 132, 33, 136, 2, 47, 50, 51, 0, 255};
	struct policy *p = must_parse(everything);
	struct cidr c;

	(void)state;
	assert_string_equal(p->description, "every key");
	assert_int_equal(p->default_verdict, WEIR_ALLOW);
	assert_true(p->monitor);
	assert_int_equal(p->rule_count, 5);

	assert_string_equal(p->rules[0].name, "web");
	assert_int_equal(p->rules[0].verdict, WEIR_ALLOW);
	assert_int_equal(p->rules[0].place_count, 3);
	assert_int_equal(cidr_parse("192.0.2.0/24", 12, &c, NULL), 0);
	assert_false(p->rules[0].places[0].is_set);
	assert_memory_equal(&p->rules[0].places[0].prefix, &c, sizeof c);
	assert_true(p->rules[0].places[1].is_set);
	assert_int_equal(p->rules[0].places[1].set, NETSET_HOST);
	assert_int_equal(p->rules[0].places[2].prefix.len, 128);
	assert_int_equal(p->rules[0].protocol_count, 2);
	assert_int_equal(p->rules[0].protocols[0], 6);
	assert_int_equal(p->rules[0].protocols[1], 17);
	assert_int_equal(p->rules[0].port_count, 3);
	assert_int_equal(p->rules[0].ports[0].lo, 443);
	assert_int_equal(p->rules[0].ports[0].hi, 443);
	assert_int_equal(p->rules[0].ports[1].lo, 8000);
	assert_int_equal(p->rules[0].ports[1].hi, 8999);
	assert_int_equal(p->rules[0].ports[2].lo, 0);
	assert_int_equal(p->rules[0].ports[2].hi, 65535);

	assert_string_equal(p->rules[1].name, "rule-2");
	assert_int_equal(p->rules[1].verdict, WEIR_DENY);
	assert_int_equal(p->rules[1].protocol_count, 0);
	assert_int_equal(p->rules[1].port_count, 0);

	assert_int_equal(p->rules[2].place_count, 2); /* any: both families */
	assert_int_equal(cidr_parse("0.0.0.0/0", 9, &c, NULL), 0);
	assert_memory_equal(&p->rules[2].places[0].prefix, &c, sizeof c);
	assert_int_equal(cidr_parse("::/0", 4, &c, NULL), 0);
	assert_memory_equal(&p->rules[2].places[1].prefix, &c, sizeof c);
	assert_int_equal(p->rules[2].protocol_count, sizeof protocols);
	assert_memory_equal(p->rules[2].protocols, protocols, sizeof protocols);

	assert_int_equal(p->rules[3].ports[0].lo, 1);
	assert_int_equal(p->rules[3].ports[0].hi, 1023);
	assert_int_equal(p->rules[3].ports[1].lo, 80);
	assert_int_equal(p->rules[3].ports[1].hi, 80);
	assert_int_equal(p->rules[4].place_count, 1);

	assert_int_equal(p->nat64_count, 2);
	assert_int_equal(p->nat64[0].len, 96);
	assert_int_equal(p->nat64[0].addr[5], 0x64);
	assert_int_equal(p->nat64[1].len, 32);
	assert_int_equal(p->loopback, WEIR_LOOPBACK_SELF);
	assert_true(p->inbound);
	assert_false(p->listen);
	assert_true(p->ipv4_options && !p->routing_headers && p->fragments);
	assert_int_equal(p->sockets.families,
			 POLICY_AF_UNIX | POLICY_AF_INET | POLICY_AF_NETLINK | POLICY_AF_PACKET | POLICY_AF_VSOCK);
	assert_int_equal(p->sockets.types, POLICY_SOCK_RAW);
	assert_int_equal(p->sockets.protocols, 0);

	assert_int_equal(p->syscall_count, 5);
	assert_string_equal(p->syscalls[0].name, "@debug");
	assert_false(p->syscalls[0].kill);
	assert_int_equal(p->syscalls[0].error, EPERM);
	assert_string_equal(p->syscalls[1].name, "ptrace");
	assert_int_equal(p->syscalls[1].entry, 0);
	assert_int_equal(p->syscalls[1].index, 1);
	assert_true(p->syscalls[2].kill);
	assert_int_equal(p->syscalls[3].error, ENOSYS);
	assert_int_equal(p->syscalls[4].error, 4095);
	assert_int_equal(p->syscalls[4].entry, 3);

	assert_int_equal(p->limits.memory_bytes, 1 << 30);
	assert_int_equal(p->limits.cpu_percent, 50);
	assert_int_equal(p->limits.processes, 10);
	assert_int_equal(p->limits.open_files, 64);
	assert_int_equal(p->limits.datagram_sockets, 8);
	assert_false(p->list_allowed);
	policy_free(p);
}

/* The description is shown on terminals: nothing in it may steer one, and a cut leaves no half character. */
static void test_description(void **state)
{
	char doc[1024], text[700];
	struct policy *p;

	(void)state;
	p = must_parse(DOC("\"description\":\"\xc3\xa9 \\u0007\\u001b[2J\\u009b \\ud83d\\ude00\""));
	assert_string_equal(p->description, "\xc3\xa9   [2J   \xf0\x9f\x98\x80");
	policy_free(p);
	for (size_t i = 0; i < 3; i++) {
		memset(text, 'k', i);
		for (size_t n = i; n < 600; n += 3)
			memcpy(text + n, "\xe2\x82\xac", 4);
		snprintf(doc, sizeof doc, DOC("\"description\":\"%s\""), text);
		p = must_parse(doc);
		assert_in_range(strlen(p->description), POLICY_TEXT_MAX - 3, POLICY_TEXT_MAX - 1);
		assert_int_equal((strlen(p->description) - i) % 3, 0);
		policy_free(p);
	}
}

static void test_hash(void **state)
{
	/* printf '{"name":"x","default":"deny"}' | sha256sum */
	static const uint8_t expected[32] = {0xe2, 0xed, 0x0d, 0x60, 0xce, 0x7f, 0xee, 0x7c, 0x07, 0x43, 0x48,
					     0xe2, 0x8d, 0x1c, 0xca, 0x9d, 0xa9, 0xaa, 0xfc, 0x9b, 0x0d, 0x73,
					     0x19, 0x61, 0x1d, 0xf0, 0x3f, 0x82, 0x21, 0xc7, 0x25, 0x01};
	struct policy *a = must_parse("{\"name\":\"x\",\"default\":\"deny\"}"),
		      *b = must_parse("{\"name\":\"x\",\"default\":\"deny\"} ");

	(void)state;
	assert_memory_equal(a->hash, expected, sizeof expected);
	assert_memory_not_equal(a->hash, b->hash, sizeof expected); /* of the bytes, not of the meaning */
	policy_free(a);
	policy_free(b);
}

static const struct refused {
	const char *text;
	size_t len;
	const char *where;
	const char *says;
} refused[] = {
    /* syntax: line:column */
    {LIT(""), "1:0", "too early"},
    {LIT("  \n "), "2:1", "too early"},
    {LIT("{"), "1:1", "too early"},
    {LIT("{\"name\":\"x\",\n \"default\":deny}"), "2:15", "JSON"},
    {LIT("{\"name\":\"x\",\"default\":\"deny\",}"), "1:30", "JSON"},
    {LIT("{\"name\":\"x\",\"default\":\"deny\"} {}"), "1:31", "follows"},
    {LIT("{\"name\":\"x\",\"name\":\"y\",\"default\":\"deny\"}"), "1:18", "twice"},
    {LIT("{\"name\":\"x\",\"n\\u0061me\":\"y\",\"default\":\"deny\"}"), "1:23", "twice"},
    {LIT(RULE("\"to\":\"any\",\"to\":\"@host\"")), "1:72", "twice"},
    {LIT(DOC("\"limits\":{\"processes\":1,\n\"processes\":2}")), "2:11", "twice"},
    {LIT("{\"name\":\"\xff\",\"default\":\"deny\"}"), "1:9", "UTF-8"},
    {LIT("{\"name\":\"\xc0\xaf\",\"default\":\"deny\"}"), "1:9", "UTF-8"},
    {LIT("{\"name\":\"\xed\xa0\x80\",\"default\":\"deny\"}"), "1:9", "UTF-8"},
    {LIT("{\"name\":\"x\\u0000\",\"default\":\"deny\"}"), "1:17", "NUL"},
    {LIT("{\"na\\u0000me\":\"x\",\"default\":\"deny\"}"), "1:13", "NUL"},
    {LIT("{\"name\":\"x\0\",\"default\":\"deny\"}"), "1:10", "JSON"},
    {LIT("{\"name\":\"x\",\"default\":\"deny\"}\0"), NULL, NULL},
    {LIT("\xef\xbb\xbf{\"name\":\"x\",\"default\":\"deny\"}"), NULL, NULL},
    {LIT("{\"name\":\"\xc3\xa9\" x"), NULL, "JSON"},
    {LIT(DOC("\"limits\":{\"processes\":99999999999999999999}")), "1:71", "too large"},
    /* meaning: a pointer */
    {LIT("[]"), "", "object"},
    {LIT("null"), "", "object"},
    {LIT("\"deny\""), "", "object"},
    {LIT("1e3"), "", "object"},
    {LIT("{}"), "", "\"name\" is missing"},
    {LIT("{\"name\":\"x\"}"), "", "\"default\" is missing"},
    {LIT("{\"default\":\"deny\"}"), "", "\"name\" is missing"},
    {LIT("{\"name\":1,\"default\":\"deny\"}"), "/name", "must be a string, and is a number"},
    {LIT("{\"name\":null,\"default\":\"deny\"}"), "/name", "is null"},
    {LIT("{\"name\":[\"x\"],\"default\":\"deny\"}"), "/name", "is a list"},
    {LIT("{\"name\":\"\",\"default\":\"deny\"}"), "/name", "empty"},
    {LIT("{\"name\":\"a b\",\"default\":\"deny\"}"), "/name", "letters"},
    {LIT("{\"name\":\"a/b\",\"default\":\"deny\"}"), "/name", "letters"},
    {LIT("{\"name\":\"..\",\"default\":\"deny\"}"), "/name", "letters"},
    {LIT("{\"name\":\"-x\",\"default\":\"deny\"}"), "/name", "letters"},
    {LIT("{\"name\":\"\xc3\xa9\",\"default\":\"deny\"}"), "/name", "letters"},
    {LIT("{\"name\":\"" NAME_63 "a\",\"default\":\"deny\"}"), "/name", "64 bytes"},
    {LIT("{\"name\":\"x\",\"default\":\"Deny\"}"), "/default", "must be \"deny\" or \"allow\""},
    {LIT("{\"name\":\"x\",\"default\":\"\"}"), "/default", "deny"},
    {LIT("{\"name\":\"x\",\"default\":false}"), "/default", "must be \"deny\" or \"allow\", and is false"},
    {LIT(DOC("\"mode\":\"watch\"")), "/mode", "must be \"enforce\" or \"monitor\""},
    {LIT(DOC("\"mode\":null")), "/mode", "null"},
    {LIT(DOC("\"description\":3")), "/description", "string"},
    {LIT(DOC("\"Name\":\"x\"")), "/Name", "not a key of a policy; its keys are name, description"},
    {LIT(DOC("\"\":1")), "/", "not a key"},
    {LIT(DOC("\"a/b~c\":1")), "/a~1b~0c", "not a key"},
    {LIT(DOC("\"a\\u001b[2J\":1")), "/a?[2J", "not a key"},
    {LIT(DOC("\"a\\u009b2J\":1")), "/a??2J", "not a key"},
    {LIT(DOC("\"loopback\":\"allow\"")), "/loopback", "\"rules\", \"deny\" or \"self\""},
    {LIT(DOC("\"inbound\":true")), "/inbound", "is true"},
    {LIT(DOC("\"listen\":\"rules\"")), "/listen", "\"deny\" or \"allow\""},
    /* rules */
    {LIT(DOC("\"rules\":{}")), "/rules", "a list of rules, and is an object"},
    {LIT(DOC("\"rules\":[7]")), "/rules/0", "an object, and is a number"},
    {LIT(DOC("\"rules\":[{}]")), "/rules/0", "\"verdict\" is missing"},
    {LIT(DOC("\"rules\":[{\"verdict\":\"deny\"}]")), "/rules/0", "\"to\" is missing"},
    {LIT(DOC("\"rules\":[{\"verdict\":\"drop\",\"to\":\"any\"}]")), "/rules/0/verdict", "\"allow\" or \"deny\""},
    {LIT(RULE("\"to\":\"any\",\"port\":53")), "/rules/0/port",
     "not a key of a rule; its keys are name, verdict, to, protocol, ports"},
    {LIT(RULE("\"to\":\"any\",\"name\":\"a b\"")), "/rules/0/name", "letters"},
    {LIT(RULE("\"to\":[]")), "/rules/0/to", "not be empty; write \"any\""},
    {LIT(RULE("\"to\":7")), "/rules/0/to", "a prefix, a set"},
    {LIT(RULE("\"to\":[\"any\",null]")), "/rules/0/to/1", "is null"},
    {LIT(RULE("\"to\":\"all\"")), "/rules/0/to", "neither an address nor a prefix"},
    {LIT(RULE("\"to\":\"example.com\"")), "/rules/0/to", "neither an address nor a prefix"},
    {LIT(RULE("\"to\":[\"10.0.0.0/8\",\"10.0.0.1/8\"]")), "/rules/0/to/1", "write 10.0.0.0/8"},
    {LIT(RULE("\"to\":\"\"")), "/rules/0/to", "is empty"},
    {LIT(RULE("\"to\":\"@privat\"")), "/rules/0/to",
     "the sets are \"@private\", \"@metadata\", \"@special-purpose\", \"@host\" or \"@resolver\""},
    {LIT(RULE("\"to\":\"@\"")), "/rules/0/to", "the sets are"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":\"any\"")), "/rules/0/protocol", "leave \"protocol\" out"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":\"TCP\"")), "/rules/0/protocol", "\"tcp\", \"udp\""},
    {LIT(RULE("\"to\":\"any\",\"protocol\":\"6\"")), "/rules/0/protocol", "or a number from 0 to 255"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":[\"tcp\",256]")), "/rules/0/protocol/1", "from 0 to 255, and is 256"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":-1")), "/rules/0/protocol", "from 0 to 255"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":6.0")), "/rules/0/protocol", "is a fraction"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":[]")), "/rules/0/protocol", "leave it out for every protocol"},
    {LIT(RULE("\"to\":\"any\",\"ports\":53")), "/rules/0/ports", "needs \"protocol\""},
    {LIT(RULE("\"to\":\"any\",\"protocol\":[\"tcp\",\"icmp\"],\"ports\":53")), "/rules/0/ports", "icmp has no ports"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":47,\"ports\":53")), "/rules/0/ports", "has no ports"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":\"tcp\",\"ports\":[]")), "/rules/0/ports", "leave it out for every port"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":\"tcp\",\"ports\":\"443\"")), "/rules/0/ports", "the one port 443 without quotes"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":\"tcp\",\"ports\":[1,\"9-8\"]")), "/rules/0/ports/1", "is backwards; write \"8-9\""},
    {LIT(RULE("\"to\":\"any\",\"protocol\":\"tcp\",\"ports\":65536")), "/rules/0/ports", "from 0 to 65535, and is 65536"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":\"tcp\",\"ports\":\"1-65536\"")), "/rules/0/ports", "0 to 65535"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":\"tcp\",\"ports\":\"1-4294967297\"")), "/rules/0/ports", "0 to 65535"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":\"tcp\",\"ports\":\"1-\"")), "/rules/0/ports", "0 to 65535"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":\"tcp\",\"ports\":\"-1\"")), "/rules/0/ports", "0 to 65535"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":\"tcp\",\"ports\":\"1 - 2\"")), "/rules/0/ports", "0 to 65535"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":\"tcp\",\"ports\":\"1-2-3\"")), "/rules/0/ports", "0 to 65535"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":\"tcp\",\"ports\":\"\"")), "/rules/0/ports", "0 to 65535"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":\"tcp\",\"ports\":443.0")), "/rules/0/ports", "is a fraction"},
    {LIT(RULE("\"to\":\"any\",\"protocol\":\"tcp\",\"ports\":[true]")), "/rules/0/ports/0", "is true"},
    {LIT(DOC("\"rules\":[{\"name\":\"a\",\"verdict\":\"deny\",\"to\":\"any\"},{\"verdict\":\"deny\",\"to\":\"any\"},"
	     "{\"name\":\"a\",\"verdict\":\"deny\",\"to\":\"any\"}]")),
     "/rules/2/name", "is the name of rule 1 too"},
    /* The default name is nobody's mistake. */
    {LIT(DOC("\"rules\":[{\"name\":\"rule-2\",\"verdict\":\"deny\",\"to\":\"any\"},{\"verdict\":\"deny\",\"to\":\"any\"}]")),
     "/rules/0/name", "is the name of rule 2 too"},
    {LIT(DOC("\"rules\":[{\"verdict\":\"deny\",\"to\":\"any\"},{\"name\":\"rule-1\",\"verdict\":\"deny\",\"to\":\"any\"}]")),
     "/rules/1/name", "is the name of rule 1 too"},
    /* the other parts */
    {LIT(DOC("\"nat64_prefixes\":\"2001:db8:64::/96\"")), "/nat64_prefixes", "a list of IPv6 prefixes, and is a string"},
    {LIT(DOC("\"nat64_prefixes\":[1]")), "/nat64_prefixes/0", "is a number"},
    {LIT(DOC("\"nat64_prefixes\":[\"64:ff9b::/96\",\"10.0.0.0/8\"]")), "/nat64_prefixes/1", "IPv6 prefix"},
    {LIT(DOC("\"nat64_prefixes\":[\"2001:db8::/33\"]")), "/nat64_prefixes/0", "32, 40, 48, 56, 64 or 96"},
    {LIT(DOC("\"nat64_prefixes\":[\"2001:db8::1/96\"]")), "/nat64_prefixes/0", "write 2001:db8::/96"},
    {LIT(DOC("\"nat64_prefixes\":[\"2001:db8::/32\",\"2001:db9::/96\",\"2001:db8:64::/96\"]")), "/nat64_prefixes/2",
     "overlaps /nat64_prefixes/0"},
    {LIT(DOC("\"nat64_prefixes\":[\"2001:db8:64::/96\",\"2001:db8::/32\"]")), "/nat64_prefixes/1",
     "overlaps /nat64_prefixes/0"},
    {LIT(DOC("\"nat64_prefixes\":[\"2001:db8:64::/96\",\"2001:db8:64::/96\"]")), "/nat64_prefixes/1", "overlaps"},
    {LIT(DOC("\"nat64_prefixes\":[\"2001:db8:0:0:100::/96\"]")), "/nat64_prefixes/0", "bits 64 to 71 zero"},
    {LIT(DOC("\"packets\":[]")), "/packets", "an object, and is a list"},
    {LIT(DOC("\"packets\":{\"options\":\"deny\"}")), "/packets/options",
     "its keys are ipv4_options, routing_headers, fragments"},
    {LIT(DOC("\"packets\":{\"fragments\":true}")), "/packets/fragments", "\"allow\" or \"deny\""},
    {LIT(DOC("\"sockets\":{\"families\":[\"ipv4\"]}")), "/sockets/families/0", "\"unix\", \"inet\""},
    {LIT(DOC("\"sockets\":{\"families\":\"unix\"}")), "/sockets/families", "a list of words, and is a string"},
    {LIT(DOC("\"sockets\":{\"types\":[\"dgram\",2]}")), "/sockets/types/1", "is a number"},
    {LIT(DOC("\"sockets\":{\"protocols\":[\"igmp\"]}")), "/sockets/protocols/0", "\"mptcp\""},
    {LIT(DOC("\"sockets\":{\"domains\":[]}")), "/sockets/domains", "not a key"},
    {LIT(DOC("\"syscalls\":{}")), "/syscalls", "a list"},
    {LIT(DOC("\"syscalls\":[\"ptrace\"]")), "/syscalls/0", "an object, and is a string"},
    {LIT(DOC("\"syscalls\":[{}]")), "/syscalls/0", "\"names\" is missing"},
    {LIT(DOC("\"syscalls\":[{\"names\":[]}]")), "/syscalls/0/names", "empty"},
    {LIT(DOC("\"syscalls\":[{\"names\":\"ptrace\"}]")), "/syscalls/0/names", "a list"},
    {LIT(DOC("\"syscalls\":[{\"names\":[\"ptrace\",\"\"]}]")), "/syscalls/0/names/1", "a system call's name"},
    {LIT(DOC("\"syscalls\":[{\"names\":[\"@\"]}]")), "/syscalls/0/names/0", "a system call's name"},
    {LIT(DOC("\"syscalls\":[{\"names\":[\"a b\"]}]")), "/syscalls/0/names/0", "a system call's name"},
    {LIT(DOC("\"syscalls\":[{\"names\":[\"@a_b\"]}]")), "/syscalls/0/names/0", "a system call's name"},
    {LIT(DOC("\"syscalls\":[{\"names\":[\"" NAME_63 "a\"]}]")), "/syscalls/0/names/0", "a system call's name"},
    {LIT(DOC("\"syscalls\":[{\"names\":[5]}]")), "/syscalls/0/names/0", "is a number"},
    {LIT(DOC("\"syscalls\":[{\"names\":[\"bpf\"],\"action\":\"log\"}]")), "/syscalls/0/action", "\"errno\" or \"kill\""},
    {LIT(DOC("\"syscalls\":[{\"names\":[\"bpf\"],\"errno\":\"EFOO\"}]")), "/syscalls/0/errno", "\"EPERM\""},
    {LIT(DOC("\"syscalls\":[{\"names\":[\"bpf\"],\"errno\":\"eperm\"}]")), "/syscalls/0/errno", "\"EPERM\""},
    {LIT(DOC("\"syscalls\":[{\"names\":[\"bpf\"],\"errno\":0}]")), "/syscalls/0/errno", "from 1 to 4095"},
    {LIT(DOC("\"syscalls\":[{\"names\":[\"bpf\"],\"errno\":4096}]")), "/syscalls/0/errno", "from 1 to 4095"},
    {LIT(DOC("\"syscalls\":[{\"names\":[\"bpf\"],\"action\":\"kill\",\"errno\":1}]")), "/syscalls/0/errno",
     "leave one of the two out"},
    {LIT(DOC("\"limits\":{\"memory\":1}")), "/limits/memory", "its keys are memory_bytes, cpu_percent"},
    {LIT(DOC("\"limits\":{\"memory_bytes\":\"1G\"}")), "/limits/memory_bytes", "a whole number from 1048576 to"},
    {LIT(DOC("\"limits\":{\"memory_bytes\":1048575}")), "/limits/memory_bytes", "and is 1048575"},
    {LIT(DOC("\"limits\":{\"processes\":0}")), "/limits/processes", "from 1 to"},
    {LIT(DOC("\"limits\":{\"processes\":-1}")), "/limits/processes", "from 1 to"},
    {LIT(DOC("\"limits\":{\"open_files\":1.0}")), "/limits/open_files", "is a fraction"},
    {LIT(DOC("\"limits\":{\"open_files\":1e3}")), "/limits/open_files", "is a fraction"},
    {LIT(DOC("\"limits\":{\"datagram_sockets\":0}")), "/limits/datagram_sockets", "from 1 to"},
    {LIT(DOC("\"audit\":{\"allowed\":\"false\"}")), "/audit/allowed", "true or false, and is a string"},
    {LIT(DOC("\"audit\":{\"allowed\":0}")), "/audit/allowed", "true or false, and is a number"},
    {LIT(DOC("\"audit\":{\"denied\":true}")), "/audit/denied", "not a key of \"audit\""},
};

static void test_refused(void **state)
{
	size_t i;

	for (i = 0; i < sizeof refused / sizeof *refused; i++) {
		const struct refused *c = &refused[i];
		struct policy *p = (struct policy *)state;
		struct err e = {0};

		if (policy_parse(c->text, c->len, &p, &e) != -EINVAL || e.code != EINVAL)
			fail_msg("not refused: %s", c->text);
		assert_ptr_equal(p, state); /* untouched */
		if (c->where && strcmp(e.where, c->where))
			fail_msg("%s: error at %s (%s), expected at %s", c->text, e.where, e.msg, c->where);
		if (c->says && !strstr(e.msg, c->says))
			fail_msg("%s: says %s, expected %s", c->text, e.msg, c->says);
	}
}

/* Every prefix of a good document is an error, and never read beyond its end (the copy is exact, for the sanitizer). */
static void test_truncated(void **state)
{
	size_t n;

	(void)state;
	for (n = 0; n < sizeof everything - 1; n++) {
		char *copy = malloc(n ? n : 1);
		struct policy *p;
		struct err e;

		memcpy(copy, everything, n);
		assert_int_equal(policy_parse(copy, n, &p, &e), -EINVAL);
		assert_non_null(strchr(e.where, ':'));
		free(copy);
	}
}

static void test_long_unknown_key(void **state)
{
	char doc[4096], key[2000];
	struct policy *p;
	struct err e;
	size_t i;

	(void)state;
	/* Three bytes a character: the cut must not leave half of one, wherever it falls. */
	for (i = 0; i < 3; i++) {
		size_t n = i, at;

		memset(key, 'k', i);
		while (n + 3 < sizeof key) {
			memcpy(key + n, "\xe2\x82\xac", 3);
			n += 3;
		}
		key[n] = '\0';
		at = (size_t)snprintf(doc, sizeof doc, "{\"%s\":1}", key);
		assert_int_equal(policy_parse(doc, at, &p, &e), -EINVAL);
		assert_true(strlen(e.where) < sizeof e.where);
		assert_int_equal((strlen(e.where) - 1 - i) % 3, 0);
		assert_string_equal(e.where + strlen(e.where) - 3, "\xe2\x80\xa6"); /* shown as cut */
	}
}

static void test_size_limit(void **state)
{
	size_t max = LIMIT_POLICY_BYTES;
	static const char doc[] = "{\"name\":\"x\",\"default\":\"deny\"}";
	char *text = malloc(max + 1);
	struct policy *p;
	struct err e;

	(void)state;
	memset(text, ' ', max + 1);
	memcpy(text, doc, sizeof doc - 1);
	assert_int_equal(policy_parse(text, max, &p, &e), 0);
	policy_free(p);
	assert_int_equal(policy_parse(text, max + 1, &p, &e), -EFBIG);
	memset(text, 'a', max);
	memcpy(text, "{\"name\":\"", 9);
	memcpy(text + max - 19, "\",\"default\":\"deny\"}", 19);
	assert_int_equal(policy_parse(text, max, &p, &e), -EINVAL);
	assert_string_equal(e.where, "/name");
	free(text);
}

static void test_depth_limit(void **state)
{
	char text[4096], *big = malloc(LIMIT_POLICY_BYTES);
	struct policy *p;
	struct err e;
	size_t n = 0;

	(void)state;
	/* At the limit it is read and refused for what it says; one deeper it is not read. */
	n = (size_t)snprintf(text, sizeof text, "{\"description\":\"[[[[\\\"[[[[[[[[[[[[[[[[[[[[\\\\\",\n\"k\":%.*s%.*s}",
			     LIMIT_POLICY_DEPTH - 1, "[[[[[[[[[[[[[[[[[[[[[[[[", LIMIT_POLICY_DEPTH - 1,
			     "]]]]]]]]]]]]]]]]]]]]]]]]");
	assert_int_equal(policy_parse(text, n, &p, &e), -EINVAL);
	assert_string_equal(e.where, "/k");
	n = (size_t)snprintf(text, sizeof text, "{\"description\":\"\xc3\xa9\",\n\"\xc3\xa9\":%.*s%.*s}", LIMIT_POLICY_DEPTH,
			     "[[[[[[[[[[[[[[[[[[[[[[[[", LIMIT_POLICY_DEPTH, "]]]]]]]]]]]]]]]]]]]]]]]]");
	assert_int_equal(policy_parse(text, n, &p, &e), -E2BIG);
	assert_string_equal(e.where, "2:20");
	assert_string_equal(e.msg, "nested deeper than 16 levels");
	/* Side by side is not deep. */
	n = (size_t)snprintf(text, sizeof text, "{\"k\":[%s[]]}", "[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],");
	assert_int_equal(policy_parse(text, n, &p, &e), -EINVAL);
	assert_string_equal(e.where, "/k");
	memset(big, '[', LIMIT_POLICY_BYTES);
	assert_int_equal(policy_parse(big, LIMIT_POLICY_BYTES, &p, &e), -E2BIG);
	assert_string_equal(e.where, "1:17");
	free(big);
}

/* Text that grows. */
struct text {
	char *data;
	size_t len;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	t->len += (size_t)vsnprintf(t->data + t->len, 2 * LIMIT_POLICY_BYTES - t->len, fmt, ap);
	va_end(ap);
}

static void start(struct text *t, const char *head)
{
	if (!t->data)
		t->data = malloc(2 * LIMIT_POLICY_BYTES);
	t->len = 0;
	add(t, "{\"name\":\"x\",\"default\":\"deny\",%s", head);
}

/* Accepted; or refused with E2BIG, the place and a message that names the limit. */
static void check_limit(struct text *t, int limit, const char *where)
{
	struct policy *p = NULL;
	char number[24];
	struct err e = {0};
	int rc = policy_parse(t->data, t->len, &p, &e);

	policy_free(p);
	if (!where) {
		if (rc < 0)
			fail_msg("%s: %s", e.where, e.msg);
		return;
	}
	assert_int_equal(rc, -E2BIG);
	assert_string_equal(e.where, where);
	snprintf(number, sizeof number, "%d", limit);
	if (!strstr(e.msg, number))
		fail_msg("%s does not name the limit %d", e.msg, limit);
}

static void test_count_limits(void **state)
{
	struct text t = {0};

	(void)state;
	for (int over = 0; over <= 1; over++) {
		start(&t, "\"rules\":[");
		for (int i = 0; i < LIMIT_POLICY_RULES + over; i++)
			add(&t, "%s{\"verdict\":\"deny\",\"to\":\"any\"}", i ? "," : "");
		add(&t, "]}");
		check_limit(&t, LIMIT_POLICY_RULES, over ? "/rules" : NULL);

		/* Over all rules: the last one is refused. */
		start(&t, "\"rules\":[{\"verdict\":\"deny\",\"to\":[");
		for (int i = 0; i < LIMIT_POLICY_PREFIXES - 2 + over; i++)
			add(&t, "%s\"10.%d.%d.0/24\"", i ? "," : "", i >> 8 & 255, i & 255);
		add(&t, "]},{\"verdict\":\"deny\",\"to\":\"@host\"},{\"verdict\":\"deny\",\"to\":[\"any\"]}]}");
		check_limit(&t, LIMIT_POLICY_PREFIXES, over ? "/rules/2/to" : NULL);

		start(&t, "\"rules\":[{\"verdict\":\"deny\",\"to\":\"any\",\"protocol\":\"tcp\",\"ports\":[");
		for (int i = 0; i < LIMIT_POLICY_PORTS + over; i++)
			add(&t, "%s%d", i ? "," : "", i);
		add(&t, "]}]}");
		check_limit(&t, LIMIT_POLICY_PORTS, over ? "/rules/0/ports" : NULL);

		start(&t, "\"rules\":[{\"verdict\":\"deny\",\"to\":\"any\",\"protocol\":[");
		for (int i = 0; i < LIMIT_POLICY_PROTOCOLS + over; i++)
			add(&t, "%s%d", i ? "," : "", i);
		add(&t, "]}]}");
		check_limit(&t, LIMIT_POLICY_PROTOCOLS, over ? "/rules/0/protocol" : NULL);

		start(&t, "\"syscalls\":[{\"names\":[\"bpf\"]},{\"names\":[");
		for (int i = 0; i < LIMIT_POLICY_SYSCALLS - 1 + over; i++)
			add(&t, "%s\"call%d\"", i ? "," : "", i);
		add(&t, "]}]}");
		check_limit(&t, LIMIT_POLICY_SYSCALLS, over ? "/syscalls/1/names/255" : NULL);

		start(&t, "\"nat64_prefixes\":[");
		for (int i = 0; i < WEIR_NAT64_MAX + over; i++)
			add(&t, "%s\"2001:db8:%d::/48\"", i ? "," : "", i);
		add(&t, "]}");
		check_limit(&t, WEIR_NAT64_MAX, over ? "/nat64_prefixes" : NULL);
	}
	free(t.data);
}

/* One mebibyte with as many prefixes and rules as there may be: no step may grow with the square of either. */
static void test_large(void **state)
{
	struct timespec before, after;
	struct text t = {0};
	struct policy *p;
	struct err e;
	double ms;

	(void)state;
	start(&t, "\"rules\":[");
	for (int i = 0; i < LIMIT_POLICY_RULES; i++) {
		add(&t,
		    "%s{\"name\":\"some-rule-with-a-name-%d\",\"verdict\":\"allow\",\"protocol\":\"tcp\",\"ports\":[443,\"8000-"
		    "8999\"],\"to\":[",
		    i ? "," : "", i);
		for (int k = 0; k < 9; k++)
			add(&t, "%s\"2001:db8:%x:%x:ffff:ffff:abcd:1234/128\"", k ? "," : "", i, k);
		add(&t, "]}");
	}
	add(&t, "]}");
	while (t.len < LIMIT_POLICY_BYTES)
		add(&t, " ");
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	if (policy_parse(t.data, t.len, &p, &e) < 0)
		fail_msg("%s: %s", e.where, e.msg);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	ms = (double)(after.tv_sec - before.tv_sec) * 1e3 + (double)(after.tv_nsec - before.tv_nsec) / 1e6;
	print_message("%zu rules, %d prefixes, %zu bytes: %.1f ms\n", p->rule_count, 9 * LIMIT_POLICY_RULES, t.len, ms);
	assert_true(ms < 1000); /* under a sanitizer too; as built it is some 20 */
	policy_free(p);
	free(t.data);
}

/* ---- what is part of the program ---- */

static void test_shipped(void **state)
{
	struct policy_warning w[8];
	struct cidr resolver;
	struct policy_env env = {.resolvers = &resolver, .resolver_count = 1};

	(void)state;
	assert_int_equal(cidr_parse("10.0.0.53", 9, &resolver, NULL), 0);
	for (size_t i = 0; blob_policy_names[i]; i++) {
		struct policy *p = NULL;
		struct blob text;
		struct err e;
		size_t n;

		assert_true(blob_policy(blob_policy_names[i], &text));
		if (policy_parse(text.data, text.len, &p, &e) < 0 || sysnames_check(p, &e) < 0)
			fail_msg("%s: %s: %s", blob_policy_names[i], e.where, e.msg);
		assert_string_equal(p->name, blob_policy_names[i]);
		assert_true(strlen(p->description) > 20 && strlen(p->description) < POLICY_TEXT_MAX - 1); /* not cut */
		for (size_t k = 0; k < p->rule_count; k++)
			assert_memory_not_equal(p->rules[k].name, "rule-", 5);
		/* Nothing to warn of, with name servers and without. */
		for (int known = 0; known <= 1; known++) {
			n = policy_warnings(p, known ? &env : NULL, w, 8);
			if (n != p->monitor)
				fail_msg("%s: %s: %s", p->name, w[n - 1].where, w[n - 1].text);
		}
		policy_free(p);
	}
	assert_false(blob_policy("nothing", &(struct blob){0}));
	assert_false(blob_policy("", &(struct blob){0}));
}

static void test_snippet(void **state)
{
	const struct policy *p = policy_snippet();

	(void)state;
	assert_ptr_equal(p, policy_snippet());
	assert_string_equal(p->name, "snippet");
	assert_int_equal(p->default_verdict, WEIR_DENY);
	assert_int_equal(p->rule_count, 0);
	assert_false(p->monitor || p->inbound);
	assert_int_equal(p->loopback, WEIR_LOOPBACK_RULES); /* which denies: there are none */
}

/* ---- warnings ---- */

#define OPEN(more)                                                                                                             \
	"{\"name\":\"x\",\"default\":\"allow\",\"rules\":[{\"verdict\":\"deny\",\"to\":\"@metadata\"},{\"verdict\":\"deny\","  \
	"\"to\":\"@special-purpose\"}" more "}"

static const struct warned {
	const char *text;
	const char *resolver; /* NULL: unknown */
	const char *where;    /* NULL: nothing to warn of */
	const char *says;
} warned[] = {
    {"{\"name\":\"x\",\"default\":\"deny\"}", "10.0.0.53", NULL, NULL}, /* denies everything, and means it */
    {"{\"name\":\"x\",\"default\":\"deny\"}", NULL, NULL, NULL},
    {DOC("\"rules\":[{\"verdict\":\"deny\",\"to\":\"any\"}]"), "10.0.0.53", NULL, NULL},
    {DOC("\"mode\":\"monitor\""), NULL, "/mode", "monitor blocks nothing"},
    /* name servers */
    {RULE("\"to\":\"192.0.2.0/24\",\"protocol\":\"tcp\",\"ports\":443"), NULL, "/default", "no rule allows udp port 53"},
    {RULE("\"to\":\"192.0.2.0/24\",\"protocol\":\"tcp\",\"ports\":53"), NULL, "/default", "no rule allows udp port 53"},
    {RULE("\"to\":\"192.0.2.0/24\",\"protocol\":\"udp\",\"ports\":\"50-60\""), NULL, NULL, NULL},
    {RULE("\"to\":\"192.0.2.0/24\""), NULL, NULL, NULL},
    {RULE("\"to\":\"192.0.2.0/24\""), "192.0.2.53", NULL, NULL},
    {RULE("\"to\":\"192.0.2.0/24\""), "10.0.0.53", "/default",
     "the default verdict denies udp port 53 of the name server 10.0.0.53"},
    {RULE("\"to\":\"10.0.0.53\",\"protocol\":\"udp\",\"ports\":53"), "10.0.0.53", "/default", "denies tcp port 53"},
    {RULE("\"to\":\"@resolver\",\"protocol\":[\"udp\",\"tcp\"],\"ports\":53"), "10.0.0.53", NULL, NULL},
    {OPEN("]"), "10.0.0.53", NULL, NULL},
    {OPEN(",{\"name\":\"lan\",\"verdict\":\"deny\",\"to\":\"10.0.0.0/8\"}]"), "10.0.0.53", "/rules/2",
     "rule \"lan\" denies udp port 53 of the name server 10.0.0.53"},
    {OPEN(",{\"verdict\":\"allow\",\"to\":\"@resolver\",\"protocol\":[\"udp\",\"tcp\"],\"ports\":53}],\"loopback\":\"deny\""),
     "127.0.0.53", "/loopback", "\"loopback\" denies udp port 53"},
    {OPEN(",{\"verdict\":\"allow\",\"to\":\"@resolver\",\"protocol\":[\"udp\",\"tcp\"],\"ports\":53}]"), "127.0.0.53", NULL,
     NULL},
    {RULE("\"to\":\"@resolver\""), NULL, "/rules/0/to", "everything on the name servers is allowed"},
    {OPEN(",{\"verdict\":\"deny\",\"to\":\"@resolver\"}]"), NULL, NULL, NULL},
    {RULE("\"to\":\"@resolver\",\"protocol\":\"udp\""), NULL, "/rules/0/to", "everything on the name servers is allowed"},
    {OPEN(",{\"verdict\":\"deny\",\"to\":\"192.0.2.0/24\",\"protocol\":[\"tcp\",\"ah\"]}]"), NULL, "/rules/2/protocol",
     "51 is an extension header in IPv6"},
    {OPEN(",{\"verdict\":\"deny\",\"to\":\"192.0.2.0/24\",\"protocol\":[\"tcp\",\"esp\"]}]"), NULL, NULL, NULL},
    /* metadata */
    {"{\"name\":\"x\",\"default\":\"allow\",\"rules\":[{\"verdict\":\"deny\",\"to\":\"@special-purpose\"}]}", NULL, "/default",
     "the default verdict lets 10.96.0.1"},
    {"{\"name\":\"x\",\"default\":\"allow\",\"loopback\":\"deny\"}", NULL, "/default",
     "lets 169.254.169.254 (instance metadata"},
    {OPEN(",{\"name\":\"hole\",\"verdict\":\"allow\",\"to\":\"169.254.169.254\",\"protocol\":\"tcp\",\"ports\":[53,80]}]"),
     NULL, "/rules/2", "rule \"hole\" lets 169.254.169.254 (instance metadata"},
    {OPEN(",{\"verdict\":\"allow\",\"to\":\"169.254.169.254\",\"protocol\":\"tcp\",\"ports\":53}]"), NULL, NULL, NULL},
    /* loopback */
    {"{\"name\":\"x\",\"default\":\"allow\",\"rules\":[{\"verdict\":\"deny\",\"to\":\"@metadata\"}]}", NULL, "/loopback",
     "listen on 127.0.0.1"},
    {"{\"name\":\"x\",\"default\":\"allow\",\"rules\":[{\"verdict\":\"deny\",\"to\":[\"@metadata\",\"127.0.0.0/8\"]}]}", NULL,
     "/loopback", "listen on ::1"},
    {"{\"name\":\"x\",\"default\":\"allow\",\"rules\":[{\"verdict\":\"deny\",\"to\":\"@metadata\"}],\"loopback\":\"deny\"}",
     NULL, NULL, NULL},
    /* packets, inbound */
    {DOC("\"packets\":{\"ipv4_options\":\"allow\"}"), NULL, "/packets/ipv4_options", "first hop"},
    {DOC("\"packets\":{\"routing_headers\":\"allow\"}"), NULL, "/packets/routing_headers", "first hop"},
    {DOC("\"packets\":{\"fragments\":\"allow\"}"), NULL, NULL, NULL},
    {DOC("\"inbound\":\"allow\",\"listen\":\"deny\""), NULL, "/inbound", "\"listen\" denies"},
    {DOC("\"inbound\":\"allow\""), NULL, NULL, NULL},
    /* what never matches */
    {RULE("\"to\":[\"10.0.0.0/8\",\"::ffff:10.0.0.0/104\"]"), NULL, "/rules/0/to", "write 10.0.0.0/8"},
    {RULE("\"to\":\"::ffff:10.0.0.1\""), NULL, "/rules/0/to", "write 10.0.0.1/32"},
    {RULE("\"to\":\"::/95\""), NULL, NULL, NULL}, /* holds more than mapped ones */
    {RULE("\"to\":\"::/0\""), NULL, "/rules/0", "lets fd00:42::42"},
    {OPEN(",{\"verdict\":\"allow\",\"to\":\"8.8.8.8\",\"protocol\":\"sctp\"}]"), NULL, "/rules/2/protocol",
     "\"sockets\" refuses"},
    {OPEN(",{\"verdict\":\"allow\",\"to\":\"8.8.8.8\",\"protocol\":[\"sctp\",\"tcp\"]}]"), NULL, NULL, NULL},
    {OPEN(",{\"verdict\":\"allow\",\"to\":\"8.8.8.8\",\"protocol\":\"sctp\"}],\"sockets\":{\"protocols\":[\"sctp\"]}"), NULL,
     NULL, NULL},
    {OPEN(",{\"verdict\":\"allow\",\"to\":\"8.8.8.8\",\"protocol\":\"gre\"}],\"sockets\":{\"types\":[\"raw\"]}"), NULL, NULL,
     NULL},
    {OPEN(",{\"verdict\":\"deny\",\"to\":\"8.8.8.8\",\"protocol\":\"sctp\"}]"), NULL, NULL, NULL},
    /* shadowed: an equal pair at the same prefix goes first */
    {OPEN(",{\"name\":\"a\",\"verdict\":\"deny\",\"to\":\"8.0.0.0/8\"},{\"verdict\":\"deny\",\"to\":\"8.0.0.0/8\"}]"), NULL,
     "/rules/3", "rule \"a\" denies the same"},
    {OPEN(",{\"verdict\":\"allow\",\"to\":\"8.0.0.0/8\"},{\"name\":\"a\",\"verdict\":\"deny\",\"to\":\"8.0.0.0/8\"}]"), NULL,
     "/rules/2", "rule \"a\" denies the same prefixes, protocols and ports, and goes first (at one prefix a denial does)"},
    {OPEN(",{\"verdict\":\"allow\",\"to\":\"192.0.2.0/24\"}]"), NULL, "/rules/2",
     "rule \"rule-2\" denies"}, /* a row of @special-purpose */
    {OPEN(",{\"verdict\":\"allow\",\"to\":[\"192.0.2.0/24\",\"8.8.8.8\"]}]"), NULL, NULL, NULL},
    {OPEN(",{\"verdict\":\"allow\",\"to\":\"192.0.2.0/25\"}]"), NULL, NULL, NULL}, /* longer: decides */
    {OPEN(",{\"verdict\":\"allow\",\"to\":\"192.0.2.0/24\",\"protocol\":\"tcp\"}]"), NULL, NULL,
     NULL}, /* more particular: decides */
    {OPEN(",{\"verdict\":\"deny\",\"to\":\"@host\"},{\"verdict\":\"allow\",\"to\":\"@host\"}]"), NULL, "/rules/3",
     "rule \"rule-3\""},
    {OPEN(",{\"verdict\":\"deny\",\"to\":\"@host\"},{\"verdict\":\"allow\",\"to\":\"@resolver\",\"protocol\":\"udp\",\"ports\":"
	  "53}]"),
     NULL, NULL, NULL},
    {OPEN(",{\"name\":\"a\",\"verdict\":\"deny\",\"to\":\"8.8.8.8\",\"protocol\":\"tcp\",\"ports\":[80,443]},{\"name\":\"b\","
	  "\"verdict\":\"deny\",\"to\":\"8.8.8.8\",\"protocol\":\"udp\",\"ports\":80},"
	  "{\"verdict\":\"allow\",\"to\":\"8.8.8.8\",\"protocol\":[\"tcp\",\"udp\"],\"ports\":80}]"),
     NULL, "/rules/4", "rule \"a\""}, /* between them */
    {OPEN(",{\"verdict\":\"deny\",\"to\":\"8.8.8.8\",\"protocol\":\"tcp\",\"ports\":\"80-81\"},{\"verdict\":\"allow\",\"to\":"
	  "\"8.8.8.8\",\"protocol\":\"tcp\",\"ports\":80}]"),
     NULL, NULL, NULL},
    {OPEN(",{\"verdict\":\"deny\",\"to\":\"8.8.8.8\",\"protocol\":\"tcp\",\"ports\":80},{\"verdict\":\"allow\",\"to\":\"8.8.8."
	  "8\",\"protocol\":\"tcp\"}]"),
     NULL, NULL, NULL},
};

static void test_warnings(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof warned / sizeof *warned; i++) {
		const struct warned *c = &warned[i];
		struct policy *p = must_parse(c->text);
		struct policy_warning w[4] = {0};
		struct policy_env env = {0};
		struct cidr resolver;
		size_t n;

		if (c->resolver) {
			assert_int_equal(cidr_parse(c->resolver, strlen(c->resolver), &resolver, NULL), 0);
			env = (struct policy_env){.resolvers = &resolver, .resolver_count = 1};
		}
		n = policy_warnings(p, c->resolver ? &env : NULL, w, 4);
		if (!c->where && n > 0)
			fail_msg("%s: %s: %s", c->text, w[0].where, w[0].text);
		for (size_t k = 0; c->where && k <= n; k++) {
			if (k == n)
				fail_msg("%s: no warning at %s, but %zu: %s: %s", c->text, c->where, n, w[0].where, w[0].text);
			if (!strcmp(w[k].where, c->where) && strstr(w[k].text, c->says))
				break;
		}
		policy_free(p);
	}
}

/* More than there is room for: counted, and nothing behind the end is touched. */
static void test_many_warnings(void **state)
{
	struct policy *p = must_parse(DOC("\"mode\":\"monitor\",\"inbound\":\"allow\",\"listen\":\"deny\","
					  "\"packets\":{\"ipv4_options\":\"allow\",\"routing_headers\":\"allow\"}"));
	struct policy_warning w[3], untouched;

	(void)state;
	memset(w, 0x5a, sizeof w);
	untouched = w[2];
	assert_int_equal(policy_warnings(p, NULL, w, 2), 4);
	assert_string_equal(w[0].where, "/mode");
	assert_memory_equal(&w[2], &untouched, sizeof untouched);
	assert_int_equal(policy_warnings(p, NULL, NULL, 0), 4);
	policy_free(p);
}

/* Every name server but one is denied. */
static void test_some_resolvers(void **state)
{
	struct policy *p = must_parse(RULE("\"to\":\"10.0.0.0/24\""));
	struct cidr resolvers[3];
	struct policy_env env = {.resolvers = resolvers, .resolver_count = 3};
	struct policy_warning w[4];

	(void)state;
	assert_int_equal(cidr_parse("10.0.0.1", 8, &resolvers[0], NULL), 0);
	assert_int_equal(cidr_parse("10.0.1.1", 8, &resolvers[1], NULL), 0);
	assert_int_equal(cidr_parse("fd00::1", 7, &resolvers[2], NULL), 0);
	assert_int_equal(policy_warnings(p, &env, w, 4), 1);
	assert_string_equal(w[0].where, "/default");
	assert_non_null(strstr(w[0].text, "10.0.1.1 (2 of 3 are denied)"));
	policy_free(p);
}

static bool warns(const struct policy *p, const char *where, const char *says)
{
	struct policy_warning w[8];
	size_t n = policy_warnings(p, NULL, w, 8);

	for (size_t i = 0; i < n && i < 8; i++)
		if (!strcmp(w[i].where, where) && strstr(w[i].text, says))
			return true;
	return false;
}

/* As many rules for one prefix as there may be: found among them all; and where the search is too long, that is said. */
static void test_many_shadows(void **state)
{
	struct text t = {0};
	struct policy *p;
	struct err e;

	(void)state;
	for (int hard = 0; hard <= 1; hard++) {
		start(&t, "\"rules\":[");
		for (int i = 0; i < LIMIT_POLICY_RULES; i++) {
			/* Easy: the last is like the one before it. Hard: each of the first half like one of the second. */
			int like = hard ? i % (LIMIT_POLICY_RULES / 2) : i < LIMIT_POLICY_RULES - 1 ? i : i - 1;

			add(&t, "%s{\"verdict\":\"%s\",\"to\":\"@host\",", i ? "," : "",
			    hard && i < LIMIT_POLICY_RULES / 2 ? "allow" : "deny");
			add(&t, "\"protocol\":[\"tcp\",\"udp\",\"sctp\",\"dccp\",\"udplite\"],\"ports\":[");
			for (int k = 0; k < LIMIT_POLICY_PORTS; k++)
				add(&t, "%s%d", k ? "," : "", like * LIMIT_POLICY_PORTS + k);
			add(&t, "]}");
		}
		add(&t, "]}");
		if (policy_parse(t.data, t.len, &p, &e) < 0)
			fail_msg("%s: %s", e.where, e.msg);
		assert_int_equal(warns(p, "/rules/1023", "rule \"rule-1023\""), !hard);
		assert_int_equal(warns(p, "/rules", "too many rules name the same prefix"), hard);
		policy_free(p);
	}
	free(t.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_accepted),	   cmocka_unit_test(test_defaults),
	    cmocka_unit_test(test_everything),	   cmocka_unit_test(test_description),
	    cmocka_unit_test(test_hash),	   cmocka_unit_test(test_refused),
	    cmocka_unit_test(test_truncated),	   cmocka_unit_test(test_long_unknown_key),
	    cmocka_unit_test(test_size_limit),	   cmocka_unit_test(test_depth_limit),
	    cmocka_unit_test(test_count_limits),   cmocka_unit_test(test_large),
	    cmocka_unit_test(test_shipped),	   cmocka_unit_test(test_snippet),
	    cmocka_unit_test(test_warnings),	   cmocka_unit_test(test_many_warnings),
	    cmocka_unit_test(test_some_resolvers), cmocka_unit_test(test_many_shadows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
