/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy compiles to: prefixes, the order within them, what is left out, limits. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <time.h>

#include "core/limits.h"
#include "policy_fixture.h"

#if defined(__SANITIZE_ADDRESS__)
#define SLOWER 10
#else
#define SLOWER 1
#endif

/* The list of the image's own prefix `text`, or NULL when it has none such. */
static const struct weir_list *list_at(const struct policy_image *img, const char *text)
{
	struct cidr c = addr_of(text);

	for (size_t i = 0; i < img->prefix_count; i++) {
		const struct weir_prefix *p = &img->prefixes[i];

		if (p->family[3] == c.family && p->len == WEIR_PREFIX_FAMILY_BITS + c.len &&
		    !memcmp(p->addr, c.addr + (c.family == 4 ? 12 : 0), c.family == 4 ? 4 : 16))
			return &img->lists[img->list_of[i]];
	}
	return NULL;
}

/* The rules of a list's atoms, in order: "1 3 2". */
static const char *rules_of(const struct weir_list *list)
{
	static char text[16 * WEIR_LIST_ATOMS];
	size_t n = 0;

	text[0] = 0;
	for (uint32_t i = 0; i < list->count; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%u", i ? " " : "", list->atoms[i].rule);
	return text;
}

static void test_empty(void **state)
{
	struct fixture f = compiled("{\"name\": \"x\", \"default\": \"deny\"}");

	(void)state;
	assert_int_equal(f.image->prefix_count, 2);
	assert_int_equal(f.image->list_count, 1);
	assert_int_equal(f.image->lists[0].count, 0);
	assert_int_equal(f.image->prefixes[0].family[3], 4);
	assert_int_equal(f.image->prefixes[1].family[3], 6);
	assert_int_equal(f.image->prefixes[0].len, WEIR_PREFIX_FAMILY_BITS);
	assert_int_equal(f.image->head.present, 1);
	assert_int_equal(f.image->head.default_verdict, WEIR_DENY);
	assert_int_equal(f.image->head.flags, 0);
	assert_int_equal(f.image->head.sockets_max, WEIR_SOCKETS_PER_SANDBOX);
	release(&f);
}

static void test_head(void **state)
{
	static const struct {
		const char *keys;
		uint32_t flags;
	} rows[] = {
	    {"\"mode\": \"monitor\"", WEIR_IMG_MONITOR},
	    {"\"packets\": {\"ipv4_options\": \"allow\"}", WEIR_IMG_OPTIONS},
	    {"\"packets\": {\"routing_headers\": \"allow\"}", WEIR_IMG_ROUTING},
	    {"\"packets\": {\"fragments\": \"allow\"}", WEIR_IMG_FRAGMENTS},
	    {"\"inbound\": \"allow\"", WEIR_IMG_INBOUND},
	    {"\"audit\": {\"allowed\": false}", WEIR_IMG_QUIET_ALLOW},
	    {"\"audit\": {\"allowed\": true}", 0},
	};
	struct fixture f;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char text[200];

		snprintf(text, sizeof text, "{\"name\": \"x\", \"default\": \"allow\", %s}", rows[i].keys);
		f = compiled(text);
		assert_int_equal(f.image->head.flags, rows[i].flags);
		assert_int_equal(f.image->head.default_verdict, WEIR_ALLOW);
		release(&f);
	}
	f = compiled("{\"name\": \"x\", \"default\": \"deny\", \"loopback\": \"self\", \"limits\": {\"datagram_sockets\": 7}, "
		     "\"nat64_prefixes\": [\"2001:db8:64::/96\", \"2001:db8:1::/48\"]}");
	assert_int_equal(f.image->head.loopback, WEIR_LOOPBACK_SELF);
	assert_int_equal(f.image->head.sockets_max, 7);
	assert_int_equal(f.image->head.nat64_count, 2);
	assert_int_equal(f.image->head.nat64[0].len, 96);
	assert_int_equal(f.image->head.nat64[1].len, 48);
	assert_int_equal(f.image->head.nat64[1].addr[5], 1);
	release(&f);
}

#define TCP_RULE(verdict, to, ports)                                                                                           \
	"{\"verdict\": \"" verdict "\", \"to\": \"" to "\", \"protocol\": \"tcp\", \"ports\": " ports "}"
#define RULE(verdict, to) "{\"verdict\": \"" verdict "\", \"to\": \"" to "\"}"
#define POLICY(rules)                                                                                                          \
	"{\"name\": \"x\", \"default\": \"deny\", \"packets\": {\"fragments\": \"allow\"}, \"rules\": [" rules "]}"

static void test_order(void **state)
{
	static const struct {
		const char *what, *rules, *expected;
	} rows[] = {
	    {"a named protocol before any", RULE("allow", "10.0.0.0/8") ", " TCP_RULE("deny", "10.0.0.0/8", "80"), "2 1"},
	    {"fewer ports before more",
	     TCP_RULE("allow", "10.0.0.0/8", "\"1-100\"") ", " TCP_RULE("deny", "10.0.0.0/8",
									"\"50-51\"") ", " TCP_RULE("allow", "10.0.0.0/8", "7"),
	     "3 2 1"},
	    {"deny before allow of equally many", TCP_RULE("allow", "10.0.0.0/8", "7") ", " TCP_RULE("deny", "10.0.0.0/8", "7"),
	     "2"},
	    {"deny before allow where they only overlap",
	     TCP_RULE("allow", "10.0.0.0/8", "\"5-7\"") ", " TCP_RULE("deny", "10.0.0.0/8", "\"6-8\""), "2 1"},
	    {"then the earlier rule", RULE("deny", "10.0.0.0/8") ", " RULE("deny", "10.0.0.0/8"), "1"},
	    {"all ports of a protocol after a range of it",
	     "{\"verdict\": \"allow\", \"to\": \"10.0.0.0/8\", \"protocol\": \"tcp\"}, " TCP_RULE("deny", "10.0.0.0/8",
												  "\"0-65534\""),
	     "2 1"},
	    {"what is around comes after",
	     RULE("deny", "0.0.0.0/0") ", " TCP_RULE("allow", "10.0.0.0/8", "\"1-9\"") ", " TCP_RULE("deny", "0.0.0.0/0", "80"),
	     "2 3 1"},
	    {"nothing follows what always matches",
	     TCP_RULE("allow", "0.0.0.0/0", "80") ", " RULE("deny", "10.0.0.0/8") ", " TCP_RULE("allow", "10.0.0.0/8", "443"),
	     "3 2"},
	    {"what is covered is left out",
	     TCP_RULE("deny", "0.0.0.0/0", "\"10-20\"") ", " TCP_RULE("deny", "10.0.0.0/8", "\"1-100\""), "2"},
	    {"not a denial by a permission of its ports: a fragment meets it",
	     TCP_RULE("deny", "0.0.0.0/0", "\"10-20\"") ", " TCP_RULE("allow", "10.0.0.0/8", "\"1-100\""), "2 1"},
	    {"a permission by a permission",
	     TCP_RULE("allow", "0.0.0.0/0", "\"10-20\"") ", " TCP_RULE("allow", "10.0.0.0/8", "\"1-100\""), "2"},
	    {"every port denied is the protocol denied",
	     TCP_RULE("deny", "10.0.0.0/8",
		      "\"0-65535\"") ", {\"verdict\": \"allow\", \"to\": \"0.0.0.0/0\", \"protocol\": \"tcp\"}",
	     "1"},
	    {"every port allowed is not: of a fragment",
	     TCP_RULE("allow", "10.0.0.0/8",
		      "\"0-65535\"") ", {\"verdict\": \"deny\", \"to\": \"0.0.0.0/0\", \"protocol\": \"tcp\"}",
	     "1 2"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char text[2000];
		struct fixture f;

		snprintf(text, sizeof text, POLICY("%s"), rows[i].rules);
		f = compiled(text);
		assert_non_null(list_at(f.image, "10.0.0.0/8"));
		if (strcmp(rules_of(list_at(f.image, "10.0.0.0/8")), rows[i].expected) != 0)
			fail_msg("%s: %s, not %s", rows[i].what, rules_of(list_at(f.image, "10.0.0.0/8")), rows[i].expected);
		release(&f);
	}
}

static void test_nesting(void **state)
{
	struct fixture f =
	    compiled(POLICY(TCP_RULE("allow", "10.0.0.0/8", "1") ", " TCP_RULE("allow", "10.1.0.0/16", "2") ", " TCP_RULE(
		"allow", "10.1.1.0/24", "3") ", " TCP_RULE("allow", "10.2.0.0/16", "4") ", " TCP_RULE("allow", "any", "5")));

	(void)state;
	assert_string_equal(rules_of(list_at(f.image, "10.1.1.0/24")), "3 2 1 5");
	assert_string_equal(rules_of(list_at(f.image, "10.1.0.0/16")), "2 1 5");
	assert_string_equal(rules_of(list_at(f.image, "10.2.0.0/16")), "4 1 5");
	assert_string_equal(rules_of(list_at(f.image, "0.0.0.0/0")), "5");
	assert_string_equal(rules_of(list_at(f.image, "::/0")), "5");
	assert_int_equal(f.image->prefix_count, 6);
	assert_int_equal(f.image->list_count, 5); /* both /0 share one */
	for (size_t i = 1; i < f.image->prefix_count; i++) {
		const struct weir_prefix *a = &f.image->prefixes[i - 1], *b = a + 1;
		int order = memcmp(a->family, b->family, sizeof a->family + sizeof a->addr);

		assert_true(order < 0 || (order == 0 && a->len < b->len));
	}
	release(&f);
}

/* Lengths that are no whole bytes. */
static void test_nesting_bits(void **state)
{
	struct fixture f =
	    compiled(POLICY(TCP_RULE("allow", "10.0.0.0/12", "1") ", " TCP_RULE("allow", "10.15.0.0/16", "2") ", " TCP_RULE(
		"allow", "10.16.0.0/16", "3") ", " TCP_RULE("allow", "2001:db8::/33",
							    "4") ", " TCP_RULE("allow", "2001:db8:7fff::/127",
									       "5") ", " TCP_RULE("allow", "2001:db8:8000::/48",
												  "6")));

	(void)state;
	assert_string_equal(rules_of(list_at(f.image, "10.15.0.0/16")), "2 1");
	assert_string_equal(rules_of(list_at(f.image, "10.16.0.0/16")), "3");
	assert_string_equal(rules_of(list_at(f.image, "2001:db8:7fff::/127")), "5 4");
	assert_string_equal(rules_of(list_at(f.image, "2001:db8:8000::/48")), "6");
	release(&f);
}

static void test_sets(void **state)
{
	struct cidr hosts[] = {addr_of("192.0.2.7/32"), addr_of("2001:db8::7/128")}, resolvers[] = {addr_of("192.0.2.53/32")};
	struct policy_env env = {hosts, 2, resolvers, 1};
	const char *text =
	    POLICY(RULE("deny", "@host") ", " TCP_RULE("allow", "@resolver", "53") ", " RULE("deny", "@private"));
	struct fixture with = compiled_in(text, &env), without = compiled(text);
	size_t rows = 0;

	(void)state;
	assert_string_equal(rules_of(list_at(with.image, "192.0.2.7/32")), "1");
	assert_string_equal(rules_of(list_at(with.image, "2001:db8::7/128")), "1");
	assert_string_equal(rules_of(list_at(with.image, "192.0.2.53/32")), "2");
	assert_null(list_at(without.image, "192.0.2.7/32"));
	for (size_t i = 0; i < netset_row_count; i++)
		if (netset_rows[i].set == NETSET_PRIVATE) {
			assert_string_equal(rules_of(list_at(without.image, netset_rows[i].prefix)), "3");
			rows++;
		}
	assert_int_equal(without.image->prefix_count, 2 + rows);
	assert_int_equal(with.image->prefix_count, 5 + rows);
	assert_false(image_equal(with.image, without.image));
	release(&with);
	release(&without);
}

static void test_equal(void **state)
{
	struct fixture a = compiled(POLICY(RULE("allow", "10.0.0.0/8"))), b = compiled(POLICY(RULE("allow", "10.0.0.0/8")));
	struct fixture others[] = {
	    compiled(POLICY(RULE("allow", "10.0.0.0/9"))),
	    compiled(POLICY(RULE("deny", "10.0.0.0/8"))),
	    compiled(POLICY(TCP_RULE("allow", "10.0.0.0/8", "80"))),
	    compiled("{\"name\": \"x\", \"default\": \"deny\", \"rules\": [" RULE("allow", "10.0.0.0/8") "]}"),
	};

	(void)state;
	assert_true(image_equal(a.image, b.image));
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		assert_false(image_equal(a.image, others[i].image));
		release(&others[i]);
	}
	release(&a);
	release(&b);
}

/* ---- limits ---- */

/* A rule of our own making: `places` /32s from `from` on, or 0.0.0.0/0 when 0; tcp, `ports` single ports. */
static struct policy_rule make_rule(size_t places, uint32_t from, size_t ports, uint16_t first_port)
{
	static uint8_t tcp = 6;
	struct policy_rule r = {.verdict = WEIR_ALLOW, .place_count = places ? places : 1, .port_count = ports};

	r.protocols = &tcp;
	r.protocol_count = 1;
	r.places = calloc(r.place_count, sizeof *r.places);
	r.ports = calloc(ports + 1, sizeof *r.ports);
	assert_true(r.places && r.ports);
	for (size_t i = 0; i < r.place_count; i++) {
		struct cidr *c = &r.places[i].prefix;
		uint32_t a = places ? from + (uint32_t)i : 0;

		*c = (struct cidr){.family = 4, .len = places ? 32 : 0, .addr = {[10] = 0xff, 0xff}};
		c->addr[12] = (uint8_t)(a >> 24);
		c->addr[13] = (uint8_t)(a >> 16);
		c->addr[14] = (uint8_t)(a >> 8);
		c->addr[15] = (uint8_t)a;
	}
	for (size_t i = 0; i < ports; i++)
		r.ports[i] = (struct policy_ports){(uint16_t)(first_port + 2 * i), (uint16_t)(first_port + 2 * i)};
	return r;
}

static void free_rules(struct policy_rule *rules, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		free(rules[i].places);
		free(rules[i].ports);
	}
}

static void test_list_full(void **state)
{
	struct policy_image *img = NULL;
	struct policy p = {.rule_count = 2};
	struct err e = {0};

	(void)state;
	/* Half of them around the prefix, half its own: exactly as many as there may be. */
	p.rules = (struct policy_rule[]){make_rule(0, 0, 24, 0), make_rule(1, 0x0a000001, WEIR_LIST_ATOMS - 24, 1000)};
	assert_int_equal(image_compile(&p, NULL, &img, &e), 0);
	assert_int_equal(list_at(img, "10.0.0.1/32")->count, WEIR_LIST_ATOMS);
	img = image_free(img);
	free_rules(p.rules, 2);

	p.rules = (struct policy_rule[]){make_rule(0, 0, 24, 0), make_rule(1, 0x0a000001, WEIR_LIST_ATOMS - 23, 1000)};
	assert_int_equal(image_compile(&p, NULL, &img, &e), -E2BIG);
	assert_null(img);
	assert_string_equal(e.where, "/rules/0"); /* the one that found no room, behind the prefix's own */
	assert_non_null(strstr(e.msg, "10.0.0.1/32"));
	free_rules(p.rules, 2);
}

static void test_prefixes_full(void **state)
{
	struct policy_image *img = NULL;
	struct policy p = {.rule_count = 1};
	struct err e = {0};

	(void)state;
	p.rules = (struct policy_rule[]){make_rule(WEIR_PREFIXES_MAX - 2, 0x0a000000, 1, 80)};
	assert_int_equal(image_compile(&p, NULL, &img, &e), 0);
	assert_int_equal(img->prefix_count, WEIR_PREFIXES_MAX);
	assert_int_equal(img->list_count, 2);
	img = image_free(img);
	free_rules(p.rules, 1);

	p.rules = (struct policy_rule[]){make_rule(WEIR_PREFIXES_MAX - 1, 0x0a000000, 1, 80)};
	assert_int_equal(image_compile(&p, NULL, &img, &e), -E2BIG);
	assert_null(img);
	assert_string_equal(e.where, "/rules");
	free_rules(p.rules, 1);
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* As many prefixes as a document may have, a thousand different lists, all of them nearly full: within 100 ms. */
static void test_fast(void **state)
{
	enum { AROUND = 20, PLACES = 10, RULES = AROUND + LIMIT_POLICY_PREFIXES / PLACES };
	static struct policy_rule rules[RULES];
	struct policy_image *img = NULL;
	struct policy p = {.rules = rules, .rule_count = RULES};
	struct err e = {0};
	double took;

	(void)state;
	for (uint32_t i = 0; i < RULES; i++)
		rules[i] = i < AROUND ? make_rule(0, 0, 2, (uint16_t)(10 * i))
				      : make_rule(PLACES, 0x0a000000 + PLACES * i, 2, (uint16_t)(300 + i));
	took = now_ms();
	assert_int_equal(image_compile(&p, NULL, &img, &e), 0);
	took = now_ms() - took;
	assert_int_equal(img->prefix_count, LIMIT_POLICY_PREFIXES + 2);
	assert_int_equal(img->list_count, LIMIT_POLICY_PREFIXES / PLACES + 2);
	printf("          compiled %zu prefixes, %zu lists in %.1f ms\n", img->prefix_count, img->list_count, took);
	assert_true(took < 100 * SLOWER);
	image_free(img);
	free_rules(rules, RULES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_empty),   cmocka_unit_test(test_head),	 cmocka_unit_test(test_order),
	    cmocka_unit_test(test_nesting), cmocka_unit_test(test_nesting_bits), cmocka_unit_test(test_sets),
	    cmocka_unit_test(test_equal),   cmocka_unit_test(test_list_full),	 cmocka_unit_test(test_prefixes_full),
	    cmocka_unit_test(test_fast),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
