/* SPDX-License-Identifier: Apache-2.0 */
/* `weir policy explain` and `diff`: what is asked, what is found, and what is said of it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/explain.h"
#include "core/policy_diff.h"
#include "policy_fixture.h"

/* ---- destinations ---- */

static void test_parse_good(void **state)
{
	static const struct {
		const char *text;
		uint8_t protocol;
		uint16_t port;
		const char *addr;
	} rows[] = {
	    {"tcp://10.0.0.1:443", 6, 443, "10.0.0.1"},
	    {"udp://[2001:db8::1]:53", 17, 53, "2001:db8::1"},
	    {"tcp://[::ffff:10.0.0.1]:0", 6, 0, "::ffff:10.0.0.1"},
	    {"udplite://10.0.0.1:65535", 136, 65535, "10.0.0.1"},
	    {"sctp://10.0.0.1:1", 132, 1, "10.0.0.1"},
	    {"dccp://10.0.0.1:1", 33, 1, "10.0.0.1"},
	    {"icmp://10.0.0.1", 1, 0, "10.0.0.1"},
	    {"icmpv6://[fe80::1]", 58, 0, "fe80::1"},
	    {"igmp://224.0.0.1", 2, 0, "224.0.0.1"},
	    {"gre://10.0.0.1", 47, 0, "10.0.0.1"},
	    {"esp://10.0.0.1", 50, 0, "10.0.0.1"},
	    {"ah://10.0.0.1", 51, 0, "10.0.0.1"},
	    {"ip-proto-47://10.0.0.1", 47, 0, "10.0.0.1"},
	    {"ip-proto-6://10.0.0.1:80", 6, 80, "10.0.0.1"},
	    {"ip-proto-0://10.0.0.1", 0, 0, "10.0.0.1"},
	    {"ip-proto-255://[::]", 255, 0, "::"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct explain_to to;
		struct cidr addr = addr_of(rows[i].addr);
		struct err e = {0};

		if (explain_parse_to(rows[i].text, &to, &e) < 0)
			fail_msg("%s: %s", rows[i].text, e.msg);
		assert_int_equal(to.protocol, rows[i].protocol);
		assert_int_equal(to.port, rows[i].port);
		assert_int_equal(cidr_compare(&to.addr, &addr), 0);
		assert_false(to.packet);
		assert_int_equal(to.flags, 0);
	}
}

static void test_parse_bad(void **state)
{
	static const struct {
		const char *text, *says;
	} rows[] = {
	    {"", "PROTOCOL://"},
	    {"10.0.0.1:443", "PROTOCOL://"},
	    {"tcp:/10.0.0.1:443", "PROTOCOL://"},
	    {"http://10.0.0.1:443", "\"http\" is no protocol"},
	    {"TCP://10.0.0.1:443", "no protocol"},
	    {"tcpx://10.0.0.1:443", "no protocol"},
	    {"://10.0.0.1:443", "no protocol"},
	    {"ip-proto-256://10.0.0.1", "no protocol"},
	    {"ip-proto-047://10.0.0.1", "no protocol"},
	    {"tcp://example.org:443", "resolves no names"},
	    {"tcp://localhost:443", "resolves no names"},
	    {"tcp://cafe:443", "resolves no names"},
	    {"tcp://[example.org]:443", "resolves no names"},
	    {"tcp://10.0.0.1", "the port is missing"},
	    {"tcp://[::1]", "the port is missing"},
	    {"icmp://10.0.0.1:3", "icmp has no ports"},
	    {"tcp://10.0.0.1:", "no port"},
	    {"tcp://10.0.0.1:65536", "no port"},
	    {"tcp://10.0.0.1:080", "no port"},
	    {"tcp://10.0.0.1:80 ", "no port"},
	    {"tcp://10.0.0.1:-1", "no port"},
	    {"tcp://10.0.0.1:99999999999", "no port"},
	    {"tcp://::1:443", "in brackets"},
	    {"icmpv6://fe80::1", "in brackets"},
	    {"tcp://[10.0.0.1]:443", "only IPv6"},
	    {"tcp://[::1:443", "closing bracket"},
	    {"tcp://[::1]x:443", "after the address"},
	    {"tcp://:443", "no address"},
	    {"tcp://[]:443", "no address"},
	    {"tcp://10.0.0:443", ""},
	    {"tcp://10.0.0.256:443", ""},
	    {"tcp://10.0.0.1/8:443", ""},
	    {"tcp://[fe80::1%eth0]:443", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct explain_to to = {.port = 12345};
		struct err e = {0};

		if (explain_parse_to(rows[i].text, &to, &e) >= 0)
			fail_msg("%s is taken", rows[i].text);
		if (!e.msg[0] || !strstr(e.msg, rows[i].says))
			fail_msg("%s: \"%s\" does not say \"%s\"", rows[i].text, e.msg, rows[i].says);
		assert_int_equal(to.port, 12345);
	}
}

static void test_parse_with(void **state)
{
	struct explain_to to = {0};
	struct err e = {0};

	(void)state;
	assert_int_equal(explain_parse_with("ipv4_options", &to, &e), 0);
	assert_int_equal(to.flags, WEIR_DEST_OPTIONS);
	assert_int_equal(explain_parse_with("routing_header", &to, &e), 0);
	assert_int_equal(explain_parse_with("fragment", &to, &e), 0);
	assert_int_equal(to.flags, WEIR_DEST_OPTIONS | WEIR_DEST_ROUTING | WEIR_DEST_HEADLESS);
	assert_false(to.packet);
	assert_int_equal(explain_parse_with("packet", &to, &e), 0);
	assert_true(to.packet);
	assert_true(explain_parse_with("packets", &to, &e) < 0);
	assert_true(explain_parse_with("", &to, &e) < 0);
}

/* ---- explanations ---- */

static struct explanation explained(const struct fixture *f, const struct policy_env *env, const char *to_text,
				    const char *with)
{
	struct explanation x;
	struct explain_to to;
	struct err e = {0};

	if (explain_parse_to(to_text, &to, &e) < 0 || (with && explain_parse_with(with, &to, &e) < 0))
		fail_msg("%s: %s", to_text, e.msg);
	explain(f->policy, f->image, env, &to, &x);
	return x;
}

/* The rules allow it, and there is no socket to send it with: refused all the same. */
static void test_sockets(void **state)
{
	static const struct {
		const char *sockets, *to, *with, *refused;
	} rows[] = {
	    {"", "tcp://192.0.2.1:80", NULL, NULL},
	    {"", "udp://[2001:db8::1]:53", NULL, NULL},
	    {"", "icmp://192.0.2.1", NULL, "EPROTONOSUPPORT"},
	    {"", "sctp://192.0.2.1:80", NULL, "EPROTONOSUPPORT"},
	    {"", "gre://192.0.2.1", NULL, "EPROTONOSUPPORT"},
	    {"", "sctp://192.0.2.1:80", "packet", NULL}, /* it is on its way already */
	    {", \"sockets\": {\"protocols\": [\"udp\", \"icmp\"]}", "tcp://192.0.2.1:80", NULL, "EPROTONOSUPPORT"},
	    {", \"sockets\": {\"protocols\": [\"udp\", \"icmp\"]}", "icmp://192.0.2.1", NULL, NULL},
	    {", \"sockets\": {\"families\": [\"inet\"]}", "tcp://[2001:db8::1]:80", NULL, "EAFNOSUPPORT"},
	    {", \"sockets\": {\"families\": [\"inet6\"]}", "tcp://192.0.2.1:80", NULL, NULL}, /* by its mapped address */
	    {", \"sockets\": {\"families\": [\"unix\"]}", "tcp://192.0.2.1:80", NULL, "EAFNOSUPPORT"},
	    {", \"sockets\": {\"types\": [\"raw\"]}", "gre://192.0.2.1", NULL, NULL},
	    {", \"mode\": \"monitor\"", "sctp://192.0.2.1:80", NULL, NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char doc[256];
		struct fixture f;
		struct explanation x;
		json_t *j;
		const char *said;

		snprintf(doc, sizeof doc, "{\"name\": \"x\", \"default\": \"allow\"%s}", rows[i].sockets);
		f = compiled(doc);
		x = explained(&f, NULL, rows[i].to, rows[i].with);
		assert_int_equal(x.verdict, WEIR_ALLOW);
		if (explain_is_refused(&x) != (rows[i].refused != NULL))
			fail_msg("%s, %s", doc, rows[i].to);
		j = explain_json(&x);
		said = json_string_value(json_object_get(j, "socket_refused"));
		if (rows[i].refused)
			assert_string_equal(said, rows[i].refused);
		else
			assert_true(json_is_null(json_object_get(j, "socket_refused")));
		json_decref(j);
		release(&f);
	}
}

/* The whole text, line by line. */
static void expect_text(const struct explanation *x, const char *lines)
{
	char *text = explain_text(x);

	assert_non_null(text);
	if (strcmp(text, lines) != 0)
		fail_msg("said:\n%sexpected:\n%s", text, lines);
	free(text);
}

static json_t *as_json(const struct explanation *x)
{
	json_t *j = explain_json(x);

	assert_non_null(j);
	return j;
}

#define OFFICE                                                                                                                 \
	"{\"name\": \"office\", \"default\": \"allow\", \"rules\": ["                                                          \
	"{\"name\": \"inner\", \"verdict\": \"deny\", \"to\": [\"@private\", \"10.1.0.0/16\"]}, "                              \
	"{\"name\": \"names\", \"verdict\": \"allow\", \"to\": \"@resolver\", \"protocol\": \"udp\", \"ports\": 53}, "         \
	"{\"name\": \"here\", \"verdict\": \"deny\", \"to\": \"@host\"}]%s}"

static struct fixture office(const char *more, const struct policy_env *env)
{
	char text[1000];

	snprintf(text, sizeof text, OFFICE, more);
	return compiled_in(text, env);
}

static void test_words(void **state)
{
	struct cidr hosts[] = {addr_of("192.0.2.7")}, resolvers[] = {addr_of("10.0.0.53")};
	struct policy_env env = {hosts, 1, resolvers, 1};
	struct fixture f = office("", &env);
	struct explanation x;

	(void)state;
	x = explained(&f, &env, "tcp://10.0.0.1:443", NULL);
	expect_text(&x, "denied    tcp://10.0.0.1:443 under policy office\n"
			"rule      inner (/rules/0) denies it\n"
			"prefix    10.0.0.0/8, of @private: private network (RFC 1918 section 3)\n"
			"decided   at connect(), which fails with EPERM at once\n"
			"@host     stood for 192.0.2.7\n"
			"@resolver stood for 10.0.0.53\n");
	/* The longest place of the rule that holds the address. */
	x = explained(&f, &env, "udp://10.1.2.3:443", NULL);
	expect_text(&x, "denied    udp://10.1.2.3:443 under policy office\n"
			"rule      inner (/rules/0) denies it\n"
			"prefix    10.1.0.0/16\n"
			"decided   at the packet; what sends it fails with EPERM\n"
			"@host     stood for 192.0.2.7\n"
			"@resolver stood for 10.0.0.53\n");
	x = explained(&f, &env, "udp://10.0.0.53:53", NULL);
	expect_text(&x, "allowed   udp://10.0.0.53:53 under policy office\n"
			"rule      names (/rules/1) allows it\n"
			"prefix    10.0.0.53, of @resolver\n"
			"@host     stood for 192.0.2.7\n"
			"@resolver stood for 10.0.0.53\n");
	x = explained(&f, &env, "udp://[64:ff9b::a00:1]:53", NULL);
	expect_text(&x, "denied    udp://[64:ff9b::a00:1]:53 under policy office\n"
			"rule      inner (/rules/0) denies it\n"
			"prefix    10.0.0.0/8, of @private: private network (RFC 1918 section 3)\n"
			"decoded   64:ff9b::a00:1 -> 10.0.0.1 (nat64)\n"
			"judged    64:ff9b::a00:1: allowed by default; 10.0.0.1, nat64: denied by rule inner\n"
			"decided   at the packet; what sends it fails with EPERM\n"
			"@host     stood for 192.0.2.7\n"
			"@resolver stood for 10.0.0.53\n");
	release(&f);

	f = compiled("{\"name\": \"none\", \"default\": \"deny\"}");
	x = explained(&f, NULL, "icmpv6://[2001:db8::1]", NULL);
	expect_text(&x, "denied    icmpv6://[2001:db8::1] under policy none\n"
			"socket    refused before any rule is asked: socket() fails with EPROTONOSUPPORT, by \"sockets\"\n"
			"rule      none matches: the default, deny\n"
			"decided   at the packet, which is dropped; a ping socket is not told\n");
	x = explained(&f, NULL, "udp://192.0.2.1:53", "fragment");
	expect_text(&x, "denied    udp://192.0.2.1 under policy none\n"
			"reason    fragment: the packet is a fragment without a port, and \"packets\" does not permit it\n"
			"decided   at the packet; what sends it fails with EPERM\n");
	release(&f);

	f = compiled("{\"name\": \"watch\", \"default\": \"deny\", \"mode\": \"monitor\"}");
	x = explained(&f, NULL, "tcp://192.0.2.1:53", NULL);
	assert_int_equal(x.verdict, WEIR_WOULD_DENY);
	expect_text(
	    &x, "denied    tcp://192.0.2.1:53 under policy watch, if it did not only watch: its mode is monitor, which blocks "
		"nothing and records would_deny\n"
		"rule      none matches: the default, deny\n");
	release(&f);

	f = compiled("{\"name\": \"lo\", \"default\": \"allow\", \"loopback\": \"deny\"}");
	x = explained(&f, NULL, "tcp://[::ffff:127.0.0.1]:53", NULL);
	expect_text(&x, "denied    tcp://[::ffff:127.0.0.1]:53 under policy lo\n"
			"reason    loopback: the policy's \"loopback\" decides, no rule is asked\n"
			"decoded   ::ffff:127.0.0.1 -> 127.0.0.1 (mapped)\n"
			"decided   at connect(), which fails with EPERM at once\n");
	release(&f);
}

static void test_dynamic_sets_unknown(void **state)
{
	struct fixture f = office("", NULL);
	struct explanation x = explained(&f, NULL, "tcp://8.8.8.8:443", NULL);

	(void)state;
	expect_text(&x, "allowed   tcp://8.8.8.8:443 under policy office\n"
			"rule      none matches: the default, allow\n"
			"@host     stood for nothing\n"
			"@resolver stood for nothing\n");
	release(&f);
}

static void expect_member(const json_t *j, const char *key, const char *value)
{
	const char *got = json_string_value(json_object_get(j, key));

	if (value ? !got || strcmp(got, value) != 0 : !json_is_null(json_object_get(j, key)))
		fail_msg("%s is %s, not %s", key, got ? got : "no string", value ? value : "null");
}

static void test_json(void **state)
{
	struct cidr resolvers[] = {addr_of("10.0.0.53")};
	struct policy_env env = {NULL, 0, resolvers, 1};
	struct fixture f = office(", \"nat64_prefixes\": [\"2001:db8:64::/96\"]", &env);
	struct explanation x = explained(&f, &env, "tcp://[2001:db8:64::10.0.0.1]:443", NULL);
	json_t *j = as_json(&x), *path = json_object_get(j, "decode");

	(void)state;
	expect_member(j, "verdict", "denied");
	expect_member(j, "policy", "office");
	expect_member(j, "mode", "enforce");
	expect_member(j, "reason", "rule");
	expect_member(j, "prefix", "10.0.0.0/8");
	expect_member(j, "decode_kind", "nat64_configured");
	expect_member(j, "hook", "connect6");
	expect_member(j, "errno", "EPERM");
	expect_member(json_object_get(j, "rule"), "name", "inner");
	expect_member(json_object_get(j, "rule"), "pointer", "/rules/0");
	assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "rule"), "number")), 1);
	expect_member(json_object_get(j, "set"), "name", "@private");
	expect_member(json_object_get(j, "set"), "source", "RFC 1918 section 3");
	assert_int_equal(json_array_size(path), 2);
	assert_string_equal(json_string_value(json_array_get(path, 0)), "2001:db8:64::a00:1");
	assert_string_equal(json_string_value(json_array_get(path, 1)), "10.0.0.1");
	assert_int_equal(json_array_size(json_object_get(j, "judged")), 2);
	assert_int_equal(json_array_size(json_object_get(json_object_get(j, "sets"), "@resolver")), 1);
	assert_int_equal(json_array_size(json_object_get(json_object_get(j, "sets"), "@host")), 0);
	json_decref(j);

	x = explained(&f, &env, "icmp://8.8.8.8", NULL);
	j = as_json(&x);
	expect_member(j, "verdict", "allowed");
	expect_member(j, "reason", "default");
	expect_member(j, "rule", NULL);
	expect_member(j, "set", NULL);
	expect_member(j, "prefix", NULL);
	expect_member(j, "decode_kind", NULL);
	expect_member(j, "errno", NULL);
	expect_member(j, "hook", "egress");
	assert_true(json_is_null(json_object_get(json_object_get(j, "destination"), "port")));
	json_decref(j);

	/* A call to a mapped address, and such a packet. */
	x = explained(&f, &env, "tcp://[::ffff:10.0.0.1]:80", NULL);
	j = as_json(&x);
	expect_member(j, "decode_kind", "mapped");
	expect_member(j, "hook", "connect6");
	assert_int_equal(json_array_size(json_object_get(j, "judged")), 1);
	json_decref(j);
	x = explained(&f, &env, "tcp://[::ffff:10.0.0.1]:80", "packet");
	j = as_json(&x);
	expect_member(j, "decode_kind", "mapped");
	expect_member(j, "hook", "egress");
	expect_member(j, "errno", NULL);
	assert_int_equal(json_array_size(json_object_get(j, "judged")), 2);
	json_decref(j);
	/* Where it is decided: more than a call can know, or before a copy for listeners here. */
	{
		static const struct {
			const char *to, *with, *hook, *error;
		} rows[] = {{"tcp://10.0.0.1:80", NULL, "connect4", "EPERM"},
			    {"tcp://10.0.0.1:80", "packet", "egress", NULL},
			    {"tcp://10.0.0.1:80", "ipv4_options", "egress", NULL},
			    {"udp://10.0.0.1:80", NULL, "egress", "EPERM"},
			    {"icmpv6://[fc00::1]", NULL, "egress", NULL}};
		struct fixture many = compiled("{\"name\": \"none\", \"default\": \"deny\"}");

		for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
			x = explained(&f, &env, rows[i].to, rows[i].with);
			j = as_json(&x);
			expect_member(j, "hook", rows[i].hook);
			expect_member(j, "errno", rows[i].error);
			json_decref(j);
		}
		x = explained(&many, NULL, "udp://224.0.0.251:5353", NULL);
		j = as_json(&x);
		expect_member(j, "hook", "sendmsg4");
		json_decref(j);
		x = explained(&many, NULL, "udp://223.255.255.255:5353", NULL);
		j = as_json(&x);
		expect_member(j, "hook", "egress");
		json_decref(j);
		release(&many);
	}
	release(&f);
}

/* What is judged part by part is what is judged as a whole: of every kind of address. */
static void test_parts_agree(void **state)
{
	static const char *const addrs[] = {"10.0.0.1",
					    "0.0.0.0",
					    "127.0.0.1",
					    "[::]",
					    "[::1]",
					    "[::ffff:10.0.0.1]",
					    "[::10.0.0.1]",
					    "[::ffff:0:10.0.0.1]",
					    "[64:ff9b::10.0.0.1]",
					    "[2002:a00:1::1]",
					    "[2001:0:a00:1::1]",
					    "[2001:0:808:808::f5ff:fffe]",
					    "[2001:db8:64::10.0.0.1]",
					    "[fe80::5efe:10.0.0.1]",
					    "[2002:808:808:0:0:5efe:10.0.0.1]",
					    "[2001:db8::1]"};
	static const char *const policies[] = {
	    "{\"name\": \"x\", \"default\": \"allow\", \"nat64_prefixes\": [\"2001:db8:64::/96\"], \"rules\": [{\"verdict\": "
	    "\"deny\", "
	    "\"to\": [\"10.0.0.0/8\", \"127.0.0.1\", \"::1\"]}]}",
	    "{\"name\": \"x\", \"default\": \"deny\", \"nat64_prefixes\": [\"2001:db8:64::/96\"], \"rules\": [{\"verdict\": "
	    "\"allow\", "
	    "\"to\": [\"10.0.0.0/8\", \"::/0\"]}]}",
	    "{\"name\": \"x\", \"default\": \"allow\"}",
	    "{\"name\": \"x\", \"default\": \"deny\"}",
	};

	(void)state;
	for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
		struct fixture f = compiled(policies[p]);

		for (size_t i = 0; i < 2 * sizeof addrs / sizeof *addrs; i++) {
			const struct explain_part *last;
			struct explanation x;
			char to[80];

			snprintf(to, sizeof to, "udp://%s:53", addrs[i / 2]);
			x = explained(&f, NULL, to, i % 2 ? "packet" : NULL);
			assert_true(x.part_count >= 1 && x.part_count <= EXPLAIN_PARTS_MAX);
			last = &x.parts[x.part_count - 1];
			for (size_t k = 0; k + 1 < x.part_count; k++)
				assert_int_equal(x.parts[k].verdict, WEIR_ALLOW);
			if (x.verdict == WEIR_ALLOW) {
				assert_int_equal(last->verdict, WEIR_ALLOW);
				assert_int_equal(x.via, WEIR_VIA_NONE);
				last = &x.parts[0];
			}
			assert_int_equal(last->verdict, x.verdict);
			assert_int_equal(last->via, x.via);
			assert_int_equal(last->rule, x.rule);
			assert_int_equal(last->reason, x.reason);
			assert_int_equal(x.has_place, x.rule != 0);
		}
		release(&f);
	}
}

/* ---- differences ---- */

static void expect_diff(const char *old_text, const char *new_text, const char *expected)
{
	struct fixture old = compiled(old_text), new = compiled(new_text);
	struct policy_side a = {old.policy, old.image}, b = {new.policy, new.image};
	struct policy_diff *d = NULL;
	struct err e = {0};
	char *text;

	if (policy_diff(&a, &b, &d, &e) < 0)
		fail_msg("%s", e.msg);
	text = policy_diff_text(d, 0);
	assert_non_null(text);
	/* The note at the end is the same whenever anything becomes reachable or unreachable. */
	if (strstr(text, "An IPv6 address"))
		*strstr(text, "An IPv6 address") = 0;
	if (strcmp(text, expected) != 0)
		fail_msg("said:\n%sexpected:\n%s", text, expected);
	assert_int_equal(policy_diff_empty(d), !expected[0]);
	free(text);
	policy_diff_free(d);
	release(&old);
	release(&new);
}

#define DOC(more) "{\"name\": \"x\", \"default\": \"deny\"" more "}"

static void test_diff_rules(void **state)
{
	(void)state;
	expect_diff(DOC(""), DOC(""), "");
	/* Other words for the same. */
	expect_diff(DOC(", \"rules\": [{\"verdict\": \"allow\", \"to\": \"10.0.0.0/8\"}]"),
		    DOC(", \"description\": \"two halves\", \"rules\": [{\"verdict\": \"allow\", \"to\": [\"10.0.0.0/9\", "
			"\"10.128.0.0/9\"]}, {\"verdict\": \"deny\", \"to\": \"any\"}]"),
		    "");
	expect_diff(
	    DOC(""),
	    DOC(", \"rules\": [{\"name\": \"web\", \"verdict\": \"allow\", \"to\": [\"203.0.113.0/25\", \"203.0.113.128/25\"], "
		"\"protocol\": [\"tcp\", \"udp\"], \"ports\": [443, \"8000-8001\"]}]"),
	    "becomes reachable: tcp/udp 443, 8000-8001 to 203.0.113.0/24 (new rule web; was denied by default)\n");
	expect_diff(DOC(""),
		    "{\"name\": \"x\", \"default\": \"allow\", \"rules\": [{\"verdict\": \"deny\", \"to\": [\"10.0.0.0/8\", "
		    "\"192.168.0.0/16\", \"fc00::/7\"]}]}",
		    "becomes reachable: everything to 0.0.0.0/0 except 10.0.0.0/8, 192.168.0.0/16; ::/0 except fc00::/7 (by "
		    "default; was "
		    "denied by default)\n");
	/* Both ways at once, and a port out of the middle. */
	expect_diff(
	    DOC(", \"rules\": [{\"name\": \"a\", \"verdict\": \"allow\", \"to\": \"192.0.2.1\", \"protocol\": \"tcp\"}]"),
	    DOC(", \"rules\": [{\"name\": \"a\", \"verdict\": \"allow\", \"to\": \"192.0.2.1\", \"protocol\": [\"tcp\", "
		"\"icmp\"]}, "
		"{\"name\": \"b\", \"verdict\": \"deny\", \"to\": \"192.0.2.1\", \"protocol\": \"tcp\", \"ports\": 25}]"),
	    "becomes reachable: icmp to 192.0.2.1 (by rule a; was denied by default)\n"
	    "becomes unreachable: tcp 25 to 192.0.2.1 (new rule b; was allowed by rule a)\n");
	expect_diff(
	    DOC(", \"rules\": [{\"name\": \"a\", \"verdict\": \"allow\", \"to\": \"192.0.2.1\"}]"),
	    DOC(", \"rules\": [{\"name\": \"a\", \"verdict\": \"allow\", \"to\": \"192.0.2.1\", \"protocol\": \"tcp\"}]"),
	    "becomes unreachable: everything but tcp to 192.0.2.1 (by default; was allowed by rule a)\n");
	/* Each rule for itself. */
	expect_diff(DOC(""),
		    DOC(", \"rules\": [{\"name\": \"a\", \"verdict\": \"allow\", \"to\": \"192.0.2.1\", \"protocol\": \"tcp\", "
			"\"ports\": \"80-81\"}, {\"name\": \"b\", \"verdict\": \"allow\", \"to\": \"192.0.2.1\", \"protocol\": "
			"\"tcp\", "
			"\"ports\": 82}]"),
		    "becomes reachable: tcp 80-81 to 192.0.2.1 (new rule a; was denied by default)\n"
		    "becomes reachable: tcp 82 to 192.0.2.1 (new rule b; was denied by default)\n");
	/* Fragments are not named when the whole protocol is. */
	expect_diff(
	    DOC(", \"packets\": {\"fragments\": \"allow\"}"),
	    DOC(", \"packets\": {\"fragments\": \"allow\"}, \"rules\": [{\"name\": \"a\", \"verdict\": \"allow\", \"to\": "
		"\"192.0.2.1\", \"protocol\": \"tcp\"}]"),
	    "becomes reachable: tcp to 192.0.2.1 (new rule a; was denied by default)\n");
	/* Only of fragments: every port is not the protocol. */
	expect_diff(
	    DOC(", \"packets\": {\"fragments\": \"allow\"}, \"rules\": [{\"name\": \"a\", \"verdict\": \"allow\", \"to\": "
		"\"192.0.2.1\", \"protocol\": \"tcp\"}]"),
	    DOC(", \"packets\": {\"fragments\": \"allow\"}, \"rules\": [{\"name\": \"a\", \"verdict\": \"allow\", \"to\": "
		"\"192.0.2.1\", \"protocol\": \"tcp\", \"ports\": \"0-65535\"}]"),
	    "becomes unreachable: fragments of tcp to 192.0.2.1 (by default; was allowed by rule a)\n");
}

static void test_diff_loopback(void **state)
{
	(void)state;
	/* 127.0.0.1 is what 0.0.0.0 stands for. */
	expect_diff(DOC(", \"rules\": [{\"name\": \"a\", \"verdict\": \"allow\", \"to\": \"0.0.0.0/0\"}]"),
		    DOC(", \"rules\": [{\"name\": \"a\", \"verdict\": \"allow\", \"to\": \"0.0.0.0/0\"}, {\"name\": \"b\", "
			"\"verdict\": "
			"\"deny\", \"to\": \"127.0.0.1\", \"protocol\": \"udp\"}]"),
		    "becomes unreachable: udp to 0.0.0.0, 127.0.0.1 (new rule b; was allowed by rule a)\n");
	expect_diff(DOC(""), DOC(", \"loopback\": \"self\""),
		    "becomes reachable: everything to 0.0.0.0, 127.0.0.0/8, ::/127 (by \"loopback\"; was denied by default)\n"
		    "loopback: rules -> self\n");
	/* Out of the rules' reach as written; within it in an IPv6 address. */
	expect_diff(
	    DOC(", \"loopback\": \"self\""),
	    DOC(", \"loopback\": \"self\", \"rules\": [{\"name\": \"a\", \"verdict\": \"allow\", \"to\": \"127.0.0.1\"}]"),
	    "becomes reachable: everything to 127.0.0.1 carried in an IPv6 address (new rule a; was denied by default)\n");
}

static void test_diff_settings(void **state)
{
	static const struct {
		const char *key, *expected;
	} rows[] = {
	    {", \"mode\": \"monitor\"", "mode: enforce -> monitor\n"},
	    {", \"inbound\": \"allow\"", "inbound: deny -> allow\n"},
	    {", \"listen\": \"deny\"", "listen: allow -> deny\n"},
	    {", \"packets\": {\"ipv4_options\": \"allow\"}", "packets.ipv4_options: deny -> allow\n"},
	    {", \"packets\": {\"routing_headers\": \"allow\"}", "packets.routing_headers: deny -> allow\n"},
	    {", \"packets\": {\"fragments\": \"allow\"}", "packets.fragments: deny -> allow\n"},
	    {", \"nat64_prefixes\": [\"2001:db8::/96\"]", "nat64_prefixes: now also 2001:db8::/96\n"},
	    {", \"sockets\": {\"families\": [\"unix\", \"packet\"]}",
	     "sockets.families: now also packet; no longer inet, inet6\n"},
	    {", \"sockets\": {\"types\": [\"stream\"]}", "sockets.types: no longer dgram, seqpacket\n"},
	    {", \"sockets\": {\"protocols\": [\"tcp\", \"udp\", \"icmp\"]}", "sockets.protocols: now also icmp\n"},
	    {", \"syscalls\": [{\"names\": [\"ptrace\"]}, {\"names\": [\"mount\"], \"action\": \"kill\"}]",
	     "syscalls: now also ptrace (EPERM), mount (kills)\n"},
	    {", \"limits\": {\"memory_bytes\": 104857600}", "limits.memory_bytes: none of its own -> 104857600\n"},
	    {", \"limits\": {\"cpu_percent\": 50}", "limits.cpu_percent: none of its own -> 50\n"},
	    {", \"limits\": {\"processes\": 9}", "limits.processes: none of its own -> 9\n"},
	    {", \"limits\": {\"open_files\": 99}", "limits.open_files: none of its own -> 99\n"},
	    {", \"limits\": {\"datagram_sockets\": 5}", "limits.datagram_sockets: 1024 -> 5\n"},
	    {", \"audit\": {\"allowed\": false}", "audit.allowed: true -> false\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char text[300];

		snprintf(text, sizeof text, DOC("%s"), rows[i].key);
		expect_diff(DOC(""), text, rows[i].expected);
		expect_diff(text, text, "");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_parse_good),	  cmocka_unit_test(test_parse_bad),
	    cmocka_unit_test(test_parse_with),	  cmocka_unit_test(test_sockets),
	    cmocka_unit_test(test_words),	  cmocka_unit_test(test_dynamic_sets_unknown),
	    cmocka_unit_test(test_json),	  cmocka_unit_test(test_parts_agree),
	    cmocka_unit_test(test_diff_rules),	  cmocka_unit_test(test_diff_loopback),
	    cmocka_unit_test(test_diff_settings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
