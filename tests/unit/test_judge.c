/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy says of a destination: the lines the kernel judges with, over compiled policies. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "policy_fixture.h"

/* The same lines over images of our own making, for what no policy compiles to. */
struct bare {
	const struct weir_image *head;
	const struct weir_list *list;
};
#define WEIR_IMAGE const struct bare *
#define WEIR_SUBPROGRAM static
#define weir_image_head(image) ((image)->head)
#define weir_image_find(image, key) ((void)(key), (image)->list)
#include "judge.h"

enum { ICMP = 1, TCP = 6, UDP = 17, GRE = 47, ICMPV6 = 58 };

static void expect(const struct fixture *f, const struct weir_dest *d, uint8_t verdict, uint8_t reason, uint16_t rule,
		   uint8_t via, const char *what)
{
	uint32_t j = image_judge(f->image, d);

	if (weir_verdict_of(j) != verdict || weir_reason_of(j) != reason || weir_rule_of(j) != rule || weir_via_of(j) != via)
		fail_msg("%s: verdict %u, reason %u, rule %u, via %u; expected %u, %u, %u, %u", what, weir_verdict_of(j),
			 weir_reason_of(j), weir_rule_of(j), weir_via_of(j), verdict, reason, rule, via);
}

/* ---- what denies whatever the policy ---- */

static void test_nothing_allows(void **state)
{
	struct weir_image head = {.present = 1, .default_verdict = WEIR_ALLOW};
	struct weir_list list = {0};
	struct weir_dest d = packet_to("192.0.2.1", TCP, 80, 0);
	struct bare image = {&head, &list};

	(void)state;
	assert_int_equal(weir_verdict_of(weir_judge_dest(&image, &d)), WEIR_ALLOW);
	assert_int_equal(weir_judge_dest(&image, NULL), weir_judgement_of(WEIR_DENY, WEIR_REASON_NO_POLICY));
	image.list = NULL;
	assert_int_equal(weir_judge_dest(&image, &d), weir_judgement_of(WEIR_DENY, WEIR_REASON_NO_POLICY));
	image.list = &list;
	image.head = NULL;
	assert_int_equal(weir_judge_dest(&image, &d), weir_judgement_of(WEIR_DENY, WEIR_REASON_NO_POLICY));
	image.head = &head;
	for (uint32_t present = 0; present < 4; present++) {
		head.present = present;
		assert_int_equal(weir_verdict_of(weir_judge_dest(&image, &d)), present == 1 ? WEIR_ALLOW : WEIR_DENY);
	}
	head.present = 1;
	/* Only one value of a default allows. */
	for (unsigned v = 0; v < 256; v++) {
		head.default_verdict = (uint8_t)v;
		assert_int_equal(weir_verdict_of(weir_judge_dest(&image, &d)), v == WEIR_ALLOW ? WEIR_ALLOW : WEIR_DENY);
	}
	assert_int_equal(image_judge(NULL, &d), weir_judgement_of(WEIR_DENY, WEIR_REASON_NO_POLICY));
}

/* A list that claims to be longer than it can be is read to its end and no further; so is one that is full. */
static void test_list_full(void **state)
{
	struct weir_image head = {.present = 1, .default_verdict = WEIR_DENY};
	static struct {
		struct weir_list list;
		struct weir_atom beyond;
	} mem;
	struct bare image = {&head, &mem.list};
	struct weir_dest d = packet_to("192.0.2.1", TCP, 0, 0);

	(void)state;
	for (uint16_t i = 0; i < WEIR_LIST_ATOMS; i++)
		mem.list.atoms[i] = (struct weir_atom){i + 1, i, i, TCP, 0, WEIR_ALLOW, 0};
	mem.beyond = (struct weir_atom){999, 0, 65535, TCP, 0, WEIR_ALLOW, 0};
	for (uint32_t count = 0; count < 3 * WEIR_LIST_ATOMS; count++) {
		uint32_t holds = count < WEIR_LIST_ATOMS ? count : WEIR_LIST_ATOMS;

		mem.list.count = count;
		for (uint16_t port = 0; port <= WEIR_LIST_ATOMS; port++) {
			d.port = port;
			assert_int_equal(weir_judge_dest(&image, &d), port < holds
									  ? weir_judgement_by_rule(WEIR_ALLOW, port + 1)
									  : weir_judgement_of(WEIR_DENY, WEIR_REASON_DEFAULT));
		}
	}
}

static void test_as_enforced(void **state)
{
	struct weir_image head = {0};
	weir_judgement denied = weir_judgement_via(weir_judgement_by_rule(WEIR_DENY, 7), WEIR_VIA_NAT64), j;

	(void)state;
	assert_int_equal(weir_as_enforced(&head, denied), denied);
	assert_int_equal(weir_as_enforced(NULL, denied), denied);
	head.flags = ~WEIR_IMG_MONITOR;
	assert_int_equal(weir_as_enforced(&head, denied), denied);
	head.flags = WEIR_IMG_MONITOR;
	j = weir_as_enforced(&head, denied);
	assert_int_equal(weir_verdict_of(j), WEIR_WOULD_DENY);
	assert_int_equal(weir_rule_of(j), 7);
	assert_int_equal(weir_via_of(j), WEIR_VIA_NAT64);
	j = weir_judgement_by_rule(WEIR_ALLOW, 3);
	assert_int_equal(weir_as_enforced(&head, j), j);
}

static void test_empty_policy(void **state)
{
	static const char *const addrs[] = {"0.0.0.0", "127.0.0.1", "8.8.8.8",	   "255.255.255.255",
					    "::",      "::1",	    "2001:db8::1", "64:ff9b::808:808"};
	struct fixture deny = compiled("{\"name\": \"x\", \"default\": \"deny\"}");
	struct fixture allow = compiled("{\"name\": \"x\", \"default\": \"allow\"}");

	(void)state;
	for (size_t i = 0; i < sizeof addrs / sizeof *addrs; i++)
		for (int protocol = 0; protocol < 256; protocol++) {
			struct weir_dest d = packet_to(addrs[i], (uint8_t)protocol, 443, 0);

			expect(&deny, &d, WEIR_DENY, WEIR_REASON_DEFAULT, 0, WEIR_VIA_NONE, addrs[i]);
			expect(&allow, &d, WEIR_ALLOW, WEIR_REASON_DEFAULT, 0, WEIR_VIA_NONE, addrs[i]);
		}
	release(&deny);
	release(&allow);
}

/* ---- carried addresses ---- */

#define DENY_ONE                                                                                                               \
	"{\"name\": \"x\", \"default\": \"allow\", \"nat64_prefixes\": [\"2001:db8::/32\", \"2001:db9:100::/40\", "            \
	"\"2001:dba:1::/48\", \"2001:dbb:1:100::/56\", \"2001:dbc:1:2::/64\", \"2001:dbd:1:2:0:3::/96\"], "                    \
	"\"rules\": [{\"verdict\": \"deny\", \"to\": \"10.1.2.3\"}]}"

static const struct {
	const char *addr;
	uint8_t via; /* NONE: it carries 10.1.2.3 in no way we know */
} carried_rows[] = {
    {"::ffff:10.1.2.3", WEIR_VIA_MAPPED},
    {"::10.1.2.3", WEIR_VIA_COMPATIBLE},
    {"::ffff:0:10.1.2.3", WEIR_VIA_TRANSLATED},
    {"64:ff9b::10.1.2.3", WEIR_VIA_NAT64},
    {"64:ff9b:1::10.1.2.3", WEIR_VIA_NAT64},
    {"64:ff9b:1:ffff:1234:5678:a01:203", WEIR_VIA_NAT64},
    {"2002:a01:203::1", WEIR_VIA_6TO4},
    {"2002:a01:203:ffff:ffff:ffff:ffff:ffff", WEIR_VIA_6TO4},
    {"2001:0:a01:203::1", WEIR_VIA_TEREDO_SERVER},
    {"2001:0:1:2:3:4:f5fe:fdfc", WEIR_VIA_TEREDO_CLIENT},
    {"2001:db8:a01:203::", WEIR_VIA_NAT64_CONFIGURED},
    {"2001:db9:10a:102:3::", WEIR_VIA_NAT64_CONFIGURED},
    {"2001:dba:1:a01:2:300::", WEIR_VIA_NAT64_CONFIGURED},
    {"2001:dbb:1:10a:1:203::", WEIR_VIA_NAT64_CONFIGURED},
    {"2001:dbc:1:2:a:102:300:0", WEIR_VIA_NAT64_CONFIGURED},
    {"2001:dbd:1:2:0:3:a01:203", WEIR_VIA_NAT64_CONFIGURED},
    /* RFC 6052: what stands in byte 8 is no part of the address. */
    {"2001:db9:10a:102:ff03::", WEIR_VIA_NAT64_CONFIGURED},
    {"fe80::5efe:10.1.2.3", WEIR_VIA_ISATAP},
    {"2001:470:1:2:0:5efe:10.1.2.3", WEIR_VIA_ISATAP},
    {"2001:470:1:2:200:5efe:10.1.2.3", WEIR_VIA_ISATAP},
    /* close by */
    {"::1:ffff:10.1.2.3", WEIR_VIA_NONE},
    {"::fffe:10.1.2.3", WEIR_VIA_NONE},
    {"::1:0:10.1.2.3", WEIR_VIA_NONE},
    {"0:0:0:1:ffff:0:a01:203", WEIR_VIA_NONE},
    {"64:ff9b:2::10.1.2.3", WEIR_VIA_NONE},
    {"64:ff9b:0:1::10.1.2.3", WEIR_VIA_NONE},
    {"64:ff9c::10.1.2.3", WEIR_VIA_NONE},
    {"2003:a01:203::1", WEIR_VIA_NONE},
    {"2001:1:a01:203::1", WEIR_VIA_NONE},
    {"2001:0:1:2:3:4:a01:203", WEIR_VIA_NONE}, /* not turned over */
    {"2001:470:1:2:100:5efe:10.1.2.3", WEIR_VIA_NONE},
    {"2001:470:1:2:300:5efe:10.1.2.3", WEIR_VIA_NONE},
    {"2001:470:1:2:0:5eff:10.1.2.3", WEIR_VIA_NONE},
    {"2001:470::10.1.2.3", WEIR_VIA_NONE},
    {"2001:dbd:1:2:0:4:a01:203", WEIR_VIA_NONE},
};
#define CARRIED (sizeof carried_rows / sizeof *carried_rows)

static void test_carried(void **state)
{
	struct fixture f = compiled(DENY_ONE);
	bool seen[WEIR_VIA_COUNT] = {0};

	(void)state;
	for (size_t i = 0; i < CARRIED; i++) {
		struct weir_dest d = packet_to(carried_rows[i].addr, UDP, 53, 0);
		uint8_t via = carried_rows[i].via;
		struct cidr c, plain = addr_of("10.1.2.3");

		if (via == WEIR_VIA_NONE) {
			expect(&f, &d, WEIR_ALLOW, WEIR_REASON_DEFAULT, 0, WEIR_VIA_NONE, carried_rows[i].addr);
			continue;
		}
		seen[via] = true;
		expect(&f, &d, WEIR_DENY, WEIR_REASON_RULE, 1, via, carried_rows[i].addr);
		assert_true(image_carried(f.image, d.addr, via, &c));
		assert_int_equal(cidr_compare(&c, &plain), 0);
		assert_false(image_carried(f.image, d.addr, via == WEIR_VIA_MAPPED ? WEIR_VIA_6TO4 : WEIR_VIA_MAPPED, &c));
		assert_int_equal(image_prefix_of(f.image, &d, via)->len, WEIR_PREFIX_FAMILY_BITS + 32);
	}
	for (int via = WEIR_VIA_MAPPED; via <= WEIR_VIA_ISATAP; via++)
		assert_true(seen[via]);
	release(&f);
	/* ::1 and :: lie in ::/96 and carry nothing; the next one does. */
	f = compiled("{\"name\": \"x\", \"default\": \"allow\", \"rules\": [{\"verdict\": \"deny\", \"to\": \"0.0.0.0/30\"}]}");
	for (unsigned last = 0; last < 5; last++) {
		struct weir_dest d = packet_to("::", UDP, 53, 0);

		d.addr[15] = (uint8_t)last;
		if (last == 2 || last == 3)
			expect(&f, &d, WEIR_DENY, WEIR_REASON_RULE, 1, WEIR_VIA_COMPATIBLE, "::2 and ::3");
		else
			expect(&f, &d, WEIR_ALLOW, WEIR_REASON_DEFAULT, 0, WEIR_VIA_NONE, "::, ::1, ::4");
	}
	release(&f);
}

/* An address inside takes away and never gives: the address as written must be allowed too. */
static void test_carried_only_denies(void **state)
{
	struct fixture f =
	    compiled("{\"name\": \"x\", \"default\": \"deny\", \"rules\": [{\"verdict\": \"allow\", \"to\": \"8.8.8.8\"}, "
		     "{\"verdict\": \"allow\", \"to\": \"64:ff9b::/96\"}]}");
	struct weir_dest d;

	(void)state;
	d = packet_to("64:ff9b::8.8.8.8", TCP, 443, 0);
	expect(&f, &d, WEIR_ALLOW, WEIR_REASON_RULE, 2, WEIR_VIA_NONE, "both are allowed");
	d = packet_to("64:ff9b::8.8.4.4", TCP, 443, 0);
	expect(&f, &d, WEIR_DENY, WEIR_REASON_DEFAULT, 0, WEIR_VIA_NAT64, "what is inside is not");
	d = packet_to("2002:808:808::1", TCP, 443, 0);
	expect(&f, &d, WEIR_DENY, WEIR_REASON_DEFAULT, 0, WEIR_VIA_NONE, "what is written is not");
	release(&f);
}

/* Two ways at once: both are judged, the first that is denied is named. */
static void test_carried_twice(void **state)
{
	struct fixture f =
	    compiled("{\"name\": \"x\", \"default\": \"allow\", \"rules\": [{\"verdict\": \"deny\", \"to\": \"10.0.0.0/8\"}, "
		     "{\"verdict\": \"deny\", \"to\": \"172.16.0.0/12\"}]}");
	struct weir_dest d;

	(void)state;
	d = packet_to("2002:a00:1:0:0:5efe:172.16.0.1", TCP, 443, 0);
	expect(&f, &d, WEIR_DENY, WEIR_REASON_RULE, 1, WEIR_VIA_6TO4, "both denied");
	d = packet_to("2002:808:808:0:0:5efe:172.16.0.1", TCP, 443, 0);
	expect(&f, &d, WEIR_DENY, WEIR_REASON_RULE, 2, WEIR_VIA_ISATAP, "the second denied");
	d = packet_to("2001:0:808:808:0:0:53ef:fffe", TCP, 443, 0);
	expect(&f, &d, WEIR_DENY, WEIR_REASON_RULE, 2, WEIR_VIA_TEREDO_CLIENT, "the Teredo client behind a public server");
	d = packet_to("2002:808:808:0:0:5efe:8.8.8.8", TCP, 443, 0);
	expect(&f, &d, WEIR_ALLOW, WEIR_REASON_DEFAULT, 0, WEIR_VIA_NONE, "neither");
	release(&f);
}

static void test_dest_of_call(void **state)
{
	struct cidr c = addr_of("::ffff:10.1.2.3");
	struct fixture f = compiled(DENY_ONE);
	struct weir_dest d;
	bool mapped = false;

	(void)state;
	d = dest_of_call(&c, TCP, 80, &mapped);
	assert_true(mapped);
	assert_int_equal(d.family, 4);
	expect(&f, &d, WEIR_DENY, WEIR_REASON_RULE, 1, WEIR_VIA_NONE, "a call to a mapped address");
	c = addr_of("2001:db8::1");
	d = dest_of_call(&c, TCP, 80, &mapped);
	assert_false(mapped);
	assert_int_equal(d.family, 6);
	c = addr_of("10.1.2.3");
	d = dest_of_call(&c, TCP, 80, &mapped);
	assert_false(mapped);
	assert_int_equal(d.family, 4);
	assert_int_equal(d.port, 80);
	release(&f);
}

/* ---- loopback ---- */

static void test_loopback(void **state)
{
	/* verdict, reason, via under each mode; the rules deny 127.0.0.1 and ::1 alone. */
	static const struct {
		const char *addr;
		uint8_t rules_verdict, rules_via, rule;
		bool special;
	} rows[] = {
	    {"127.0.0.1", WEIR_DENY, WEIR_VIA_NONE, 1, true},
	    {"127.255.255.255", WEIR_ALLOW, WEIR_VIA_NONE, 0, true},
	    {"127.0.0.0", WEIR_ALLOW, WEIR_VIA_NONE, 0, true},
	    {"126.255.255.255", WEIR_ALLOW, WEIR_VIA_NONE, 0, false},
	    {"128.0.0.0", WEIR_ALLOW, WEIR_VIA_NONE, 0, false},
	    {"0.0.0.0", WEIR_DENY, WEIR_VIA_UNSPECIFIED, 1, true},
	    {"0.0.0.1", WEIR_ALLOW, WEIR_VIA_NONE, 0, false},
	    {"::1", WEIR_DENY, WEIR_VIA_NONE, 2, true},
	    {"::", WEIR_DENY, WEIR_VIA_UNSPECIFIED, 2, true},
	    {"::2", WEIR_ALLOW, WEIR_VIA_NONE, 0, false},
	    {"1::1", WEIR_ALLOW, WEIR_VIA_NONE, 0, false},
	    /* Carried, it is no loopback of ours: the rules decide under every mode. */
	    {"64:ff9b::127.0.0.1", WEIR_DENY, WEIR_VIA_NAT64, 1, false},
	};
	static const char *const modes[] = {"rules", "deny", "self"};

	(void)state;
	for (int mode = 0; mode < 3; mode++) {
		char text[400];
		struct fixture f;

		snprintf(text, sizeof text,
			 "{\"name\": \"x\", \"default\": \"allow\", \"loopback\": \"%s\", \"rules\": [{\"verdict\": \"deny\", "
			 "\"to\": "
			 "\"127.0.0.1\"}, {\"verdict\": \"deny\", \"to\": \"::1\"}]}",
			 modes[mode]);
		f = compiled(text);
		for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
			struct weir_dest d = packet_to(rows[i].addr, UDP, 53, 0);

			if (mode != WEIR_LOOPBACK_RULES && rows[i].special)
				expect(&f, &d, mode == WEIR_LOOPBACK_SELF ? WEIR_ALLOW : WEIR_DENY, WEIR_REASON_LOOPBACK, 0,
				       WEIR_VIA_NONE, rows[i].addr);
			else
				expect(&f, &d, rows[i].rules_verdict, rows[i].rule ? WEIR_REASON_RULE : WEIR_REASON_DEFAULT,
				       rows[i].rule, rows[i].rules_via, rows[i].addr);
		}
		release(&f);
	}
}

/* 0.0.0.0 itself denied: that is said, not the loopback address. */
static void test_unspecified_itself(void **state)
{
	struct fixture f = compiled(
	    "{\"name\": \"x\", \"default\": \"deny\", \"rules\": [{\"verdict\": \"allow\", \"to\": \"127.0.0.0/8\"}]}");
	struct weir_dest d = packet_to("0.0.0.0", TCP, 80, 0);

	(void)state;
	expect(&f, &d, WEIR_DENY, WEIR_REASON_DEFAULT, 0, WEIR_VIA_NONE, "0.0.0.0 as written");
	release(&f);
}

/* ---- which rule decides ---- */

#define ON(to, what, verdict) "{\"verdict\": \"" verdict "\", \"to\": \"" to "\"" what "}"
#define TCP_ON ", \"protocol\": \"tcp\""
#define PORTS(p) ", \"protocol\": \"tcp\", \"ports\": " p

static void test_ties(void **state)
{
	static const struct {
		const char *what, *rules;
		uint8_t protocol;
		uint16_t port, rule;
	} rows[] = {
	    {"the longer prefix, whatever is named", ON("10.0.0.0/8", PORTS("80"), "deny") ", " ON("10.0.0.1", "", "allow"),
	     TCP, 80, 2},
	    {"the longer prefix, in the other order", ON("10.0.0.1", "", "allow") ", " ON("10.0.0.0/8", PORTS("80"), "deny"),
	     TCP, 80, 1},
	    {"a longer one that does not match gives way",
	     ON("10.0.0.1", PORTS("81"), "allow") ", " ON("10.0.0.0/8", "", "deny"), TCP, 80, 2},
	    {"a named protocol beats any", ON("10.0.0.0/8", "", "deny") ", " ON("10.0.0.0/8", TCP_ON, "allow"), TCP, 80, 2},
	    {".. and not of another protocol", ON("10.0.0.0/8", "", "deny") ", " ON("10.0.0.0/8", TCP_ON, "allow"), UDP, 80, 1},
	    {"ports beat none", ON("10.0.0.0/8", TCP_ON, "deny") ", " ON("10.0.0.0/8", PORTS("\"0-65534\""), "allow"), TCP, 80,
	     2},
	    {"every port is no fewer than none named",
	     ON("10.0.0.0/8", TCP_ON, "deny") ", " ON("10.0.0.0/8", PORTS("\"0-65535\""), "allow"), TCP, 80, 1},
	    {"fewer ports beat more",
	     ON("10.0.0.0/8", PORTS("\"80-90\""), "deny") ", " ON("10.0.0.0/8", PORTS("\"71-80\""), "allow"), TCP, 80, 2},
	    {"deny beats allow", ON("10.0.0.0/8", PORTS("80"), "allow") ", " ON("10.0.0.0/8", PORTS("80"), "deny"), TCP, 80, 2},
	    {"deny beats allow of as many",
	     ON("10.0.0.0/8", PORTS("\"79-80\""), "allow") ", " ON("10.0.0.0/8", PORTS("\"80-81\""), "deny"), TCP, 80, 2},
	    {"then the earlier", ON("10.0.0.0/8", PORTS("80"), "deny") ", " ON("10.0.0.0/8", PORTS("80"), "deny"), TCP, 80, 1},
	    {"first port of a range", ON("10.0.0.0/8", PORTS("\"80-90\""), "allow"), TCP, 80, 1},
	    {"last port of a range", ON("10.0.0.0/8", PORTS("\"80-90\""), "allow"), TCP, 90, 1},
	    {"one before", ON("10.0.0.0/8", PORTS("\"80-90\""), "allow"), TCP, 79, 0},
	    {"one after", ON("10.0.0.0/8", PORTS("\"80-90\""), "allow"), TCP, 91, 0},
	    {"port 0 is one", ON("10.0.0.0/8", PORTS("0"), "allow"), TCP, 0, 1},
	    {"port 65535 too", ON("10.0.0.0/8", PORTS("65535"), "allow"), TCP, 65535, 1},
	    {"any protocol is any", ON("10.0.0.0/8", "", "allow"), GRE, 0, 1},
	    {"any place is any", ON("any", "", "allow"), ICMP, 0, 1},
	    {"a number", ON("any", ", \"protocol\": 47", "allow"), GRE, 0, 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char text[1000];
		struct fixture f;
		uint32_t j;

		snprintf(text, sizeof text, "{\"name\": \"x\", \"default\": \"deny\", \"rules\": [%s]}", rows[i].rules);
		f = compiled(text);
		j = judged(&f, "10.0.0.1", rows[i].protocol, rows[i].port, 0);
		if (weir_rule_of(j) != rows[i].rule)
			fail_msg("%s: rule %u, not %u", rows[i].what, weir_rule_of(j), rows[i].rule);
		if (rows[i].rule)
			assert_int_equal(weir_verdict_of(j), f.policy->rules[rows[i].rule - 1].verdict);
		release(&f);
	}
}

/* A v4 rule says nothing of v6 addresses, and the other way round. */
static void test_families(void **state)
{
	struct fixture f =
	    compiled("{\"name\": \"x\", \"default\": \"deny\", \"rules\": [{\"verdict\": \"allow\", \"to\": \"0.0.0.0/0\"}]}");

	(void)state;
	assert_int_equal(weir_verdict_of(judged(&f, "192.0.2.1", TCP, 1, 0)), WEIR_ALLOW);
	assert_int_equal(weir_verdict_of(judged(&f, "2001:db8::1", TCP, 1, 0)), WEIR_DENY);
	release(&f);
	f = compiled("{\"name\": \"x\", \"default\": \"deny\", \"rules\": [{\"verdict\": \"allow\", \"to\": \"::/0\"}]}");
	assert_int_equal(weir_verdict_of(judged(&f, "192.0.2.1", TCP, 1, 0)), WEIR_DENY);
	assert_int_equal(weir_verdict_of(judged(&f, "2001:db8::1", TCP, 1, 0)), WEIR_ALLOW);
	release(&f);
}

/* ---- what the packet is ---- */

static void test_packets(void **state)
{
	static const struct {
		const char *key;
		uint32_t flag;
		uint8_t reason;
	} rows[] = {{"ipv4_options", WEIR_DEST_OPTIONS, WEIR_REASON_OPTIONS},
		    {"routing_headers", WEIR_DEST_ROUTING, WEIR_REASON_ROUTING},
		    {"fragments", WEIR_DEST_HEADLESS, WEIR_REASON_FRAGMENT}};

	(void)state;
	for (int i = 0; i < 3; i++) {
		char text[300];
		struct fixture f;

		/* Only one of them permitted; loopback allowed, which comes after. */
		snprintf(text, sizeof text,
			 "{\"name\": \"x\", \"default\": \"allow\", \"loopback\": \"self\", \"packets\": {\"%s\": \"allow\"}}",
			 rows[i].key);
		f = compiled(text);
		for (int k = 0; k < 3; k++) {
			struct weir_dest d = packet_to("192.0.2.1", UDP, 53, rows[k].flag),
					 self = packet_to("127.0.0.1", UDP, 53, rows[k].flag);

			expect(&f, &d, i == k ? WEIR_ALLOW : WEIR_DENY, i == k ? WEIR_REASON_DEFAULT : rows[k].reason, 0,
			       WEIR_VIA_NONE, rows[k].key);
			expect(&f, &self, i == k ? WEIR_ALLOW : WEIR_DENY, i == k ? WEIR_REASON_LOOPBACK : rows[k].reason, 0,
			       WEIR_VIA_NONE, rows[k].key);
		}
		release(&f);
	}
}

static void test_fragments(void **state)
{
	static const struct {
		const char *what, *rules;
		uint8_t protocol;
		uint16_t rule;
	} rows[] = {
	    {"a permission of ports does not permit it", ON("10.0.0.0/8", PORTS("\"0-65535\""), "allow"), TCP, 0},
	    {"a denial of a port denies it", ON("10.0.0.0/8", PORTS("443"), "deny") ", " ON("10.0.0.0/8", TCP_ON, "allow"), TCP,
	     1},
	    {"of its protocol only", ON("10.0.0.0/8", PORTS("443"), "deny") ", " ON("10.0.0.0/8", "", "allow"), UDP, 2},
	    {"a permission of the protocol permits it", ON("10.0.0.0/8", TCP_ON, "allow"), TCP, 1},
	    {"a permission of a port is passed over", ON("10.0.0.0/8", PORTS("443"), "allow") ", " ON("10.0.0.0/8", "", "deny"),
	     TCP, 2},
	    {"a denial around it holds", ON("10.0.0.1", PORTS("443"), "allow") ", " ON("10.0.0.0/8", PORTS("80"), "deny"), TCP,
	     2},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char text[1000];
		struct fixture f;
		uint32_t j;

		snprintf(text, sizeof text,
			 "{\"name\": \"x\", \"default\": \"deny\", \"packets\": {\"fragments\": \"allow\"}, \"rules\": [%s]}",
			 rows[i].rules);
		f = compiled(text);
		j = judged(&f, "10.0.0.1", rows[i].protocol, 0, WEIR_DEST_HEADLESS);
		if (weir_rule_of(j) != rows[i].rule)
			fail_msg("%s: rule %u, not %u", rows[i].what, weir_rule_of(j), rows[i].rule);
		assert_int_equal(weir_verdict_of(j),
				 rows[i].rule ? f.policy->rules[rows[i].rule - 1].verdict : (unsigned)WEIR_DENY);
		release(&f);
	}
}

/* Monitor or not, the judgement is the policy's. */
static void test_monitor(void **state)
{
	struct fixture f = compiled("{\"name\": \"x\", \"default\": \"deny\", \"mode\": \"monitor\"}");
	struct weir_dest d = packet_to("192.0.2.1", UDP, 53, 0);

	(void)state;
	expect(&f, &d, WEIR_DENY, WEIR_REASON_DEFAULT, 0, WEIR_VIA_NONE, "monitor");
	assert_int_equal(weir_verdict_of(weir_as_enforced(&f.image->head, image_judge(f.image, &d))), WEIR_WOULD_DENY);
	release(&f);
}

/* ---- finding the longest prefix ---- */

static uint32_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*seed >> 32);
}

static bool holds(const struct weir_prefix *p, const struct weir_dest *d)
{
	const uint8_t *addr = d->addr + (d->family == 4 ? 12 : 0);
	unsigned bits = p->len - WEIR_PREFIX_FAMILY_BITS;

	if (p->family[3] != d->family)
		return false;
	for (unsigned i = 0; i < bits; i++)
		if ((p->addr[i / 8] ^ addr[i / 8]) >> (7 - i % 8) & 1)
			return false;
	return true;
}

/* Against asking every prefix, bit by bit. Addresses of few bits, so that prefixes nest deeply. */
static void test_longest_prefix(void **state)
{
	uint64_t seed = 20260401;

	(void)state;
	for (int round = 0; round < 60; round++) {
		static struct policy_rule rule;
		struct policy_place places[60] = {0};
		struct policy p = {.rules = &rule, .rule_count = 1};
		struct policy_image *img = NULL;
		struct err e;

		rule = (struct policy_rule){.verdict = WEIR_DENY, .places = places, .place_count = 60};
		for (int i = 0; i < 60; i++) {
			struct cidr *c = &places[i].prefix;
			unsigned bits = i % 2 ? 128 : 32, from = i % 2 ? 0 : 12;

			c->family = i % 2 ? 6 : 4;
			c->len = (uint8_t)(next_random(&seed) % (bits + 1));
			if (c->family == 4)
				c->addr[10] = c->addr[11] = 0xff;
			for (unsigned b = 0; b < c->len; b++)
				if (next_random(&seed) % 8 == 0)
					c->addr[from + b / 8] |= (uint8_t)(0x80 >> b % 8);
		}
		assert_int_equal(image_compile(&p, NULL, &img, &e), 0);
		for (int i = 0; i < 300; i++) {
			const struct cidr *near = &places[next_random(&seed) % 60].prefix;
			struct weir_dest d = {.family = near->family};
			const struct weir_prefix *best = NULL, *got;
			unsigned from = near->family == 4 ? 12 : 0;

			memcpy(d.addr, near->addr, sizeof d.addr);
			for (unsigned b = next_random(&seed) % 3; b > 0; b--)
				d.addr[from + next_random(&seed) % (16 - from)] ^= (uint8_t)(1u << next_random(&seed) % 8);
			for (size_t k = 0; k < img->prefix_count; k++)
				if (holds(&img->prefixes[k], &d) && (!best || img->prefixes[k].len > best->len))
					best = &img->prefixes[k];
			got = image_prefix_of(img, &d, WEIR_VIA_NONE);
			assert_non_null(best);
			assert_ptr_equal(got, best);
		}
		image_free(img);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_nothing_allows), cmocka_unit_test(test_list_full),
	    cmocka_unit_test(test_as_enforced),	   cmocka_unit_test(test_empty_policy),
	    cmocka_unit_test(test_carried),	   cmocka_unit_test(test_carried_only_denies),
	    cmocka_unit_test(test_carried_twice),  cmocka_unit_test(test_dest_of_call),
	    cmocka_unit_test(test_loopback),	   cmocka_unit_test(test_unspecified_itself),
	    cmocka_unit_test(test_ties),	   cmocka_unit_test(test_families),
	    cmocka_unit_test(test_packets),	   cmocka_unit_test(test_fragments),
	    cmocka_unit_test(test_monitor),	   cmocka_unit_test(test_longest_prefix),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
