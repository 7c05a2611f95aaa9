/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines the kernel programs decide and parse with, on the host: every cell of the verdict, and the parser against a slow
 * one that was written from the RFCs without looking at it.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verdict.h"

struct bytes {
	const uint8_t *p;
	uint32_t len;
};

static int load(const struct bytes *b, uint32_t off, void *dst, uint32_t len)
{
	if (off > b->len || len > b->len - off) {
		memset(dst, 0, len); /* as the kernel's helper does */
		return -14;
	}
	memcpy(dst, b->p + off, len);
	return 0;
}

#define WEIR_PACKET struct bytes
#define weir_load(pkt, off, dst, len) load(pkt, off, dst, len)
#include "parse.h"

/* ---- verdict ---- */

static void test_judge(void **state)
{
	int listed, present, readable;

	(void)state;
	/* All combinations, impossible values included; the policy is asked in exactly one of them. */
	for (listed = 0; listed < 2; listed++)
		for (present = -1; present < 4; present++)
			for (readable = 0; readable < 2; readable++) {
				struct weir_image head = {.present = (uint32_t)present, .default_verdict = WEIR_ALLOW};
				weir_judgement j = weir_judge_entry(listed, present < 0 ? NULL : &head, readable);
				int ok = listed && present == 1 && readable;
				int reason = !listed	    ? WEIR_REASON_NO_ENTRY
					     : present != 1 ? WEIR_REASON_NO_POLICY
					     : !readable    ? WEIR_REASON_MALFORMED
							    : WEIR_REASON_DEFAULT;

				assert_int_equal(weir_verdict_of(j), ok ? WEIR_ALLOW : WEIR_DENY);
				assert_int_equal(weir_reason_of(j), reason);
			}
	assert_int_equal(weir_verdict_of(0), WEIR_DENY);
}

/* Each field keeps its value whatever the others hold. */
static void test_judgement(void **state)
{
	int verdict, reason, via, rule;

	(void)state;
	for (verdict = 0; verdict < WEIR_VERDICT_COUNT; verdict++)
		for (reason = 0; reason < 256; reason += 5)
			for (via = 0; via < WEIR_VIA_COUNT; via++)
				for (rule = 0; rule < 65536; rule += 4369) {
					weir_judgement j = weir_judgement_by_rule(WEIR_DENY, (uint16_t)rule);

					assert_int_equal(weir_reason_of(j), WEIR_REASON_RULE);
					assert_int_equal(weir_rule_of(j), rule);
					j = weir_judgement_via(weir_judgement_of((uint8_t)verdict, (uint8_t)reason),
							       (uint8_t)via);
					assert_int_equal(weir_verdict_of(j), verdict);
					assert_int_equal(weir_reason_of(j), reason);
					assert_int_equal(weir_via_of(j), via);
				}
}

/* A policy that only watches denies nothing; nobody else's denial becomes anything else. */
static void test_as_enforced(void **state)
{
	struct weir_image enforce = {.present = 1}, watch = {.present = 1, .flags = WEIR_IMG_MONITOR};
	weir_judgement deny = weir_judgement_by_rule(WEIR_DENY, 7), allow = weir_judgement_by_rule(WEIR_ALLOW, 7);

	(void)state;
	assert_int_equal(weir_as_enforced(&enforce, deny), deny);
	assert_int_equal(weir_as_enforced(NULL, deny), deny);
	assert_int_equal(weir_as_enforced(&watch, allow), allow);
	assert_int_equal(weir_verdict_of(weir_as_enforced(&watch, deny)), WEIR_WOULD_DENY);
	assert_int_equal(weir_rule_of(weir_as_enforced(&watch, deny)), 7);
}

static void test_judge_both(void **state)
{
	int tv, tr, sv, sr;

	(void)state;
	for (tv = 0; tv < WEIR_VERDICT_COUNT; tv++)
		for (sv = 0; sv < WEIR_VERDICT_COUNT; sv++)
			for (tr = 0; tr < WEIR_REASON_COUNT; tr++)
				for (sr = 0; sr < WEIR_REASON_COUNT; sr++) {
					weir_judgement j = weir_judge_both(weir_judgement_of((uint8_t)tv, (uint8_t)tr),
									   weir_judgement_of((uint8_t)sv, (uint8_t)sr));

					assert_int_equal(weir_verdict_of(j), sv == WEIR_DENY ? WEIR_DENY : tv);
					assert_int_equal(weir_reason_of(j), tv && !sv ? WEIR_REASON_SOCKET : tr);
				}
}

static void test_judge_socket(void **state)
{
	static const int64_t lives[] = {
	    INT64_MIN, -1, 0, 1, WEIR_SOCKETS_PER_SANDBOX - 1, WEIR_SOCKETS_PER_SANDBOX, WEIR_SOCKETS_PER_SANDBOX + 1,
	    INT64_MAX};
	size_t i;
	int counted;

	(void)state;
	for (counted = 0; counted < 2; counted++)
		for (i = 0; i < sizeof lives / sizeof *lives; i++) {
			weir_judgement j = weir_judge_socket(counted, lives[i], WEIR_SOCKETS_PER_SANDBOX);
			int ok = counted && lives[i] < WEIR_SOCKETS_PER_SANDBOX;

			assert_int_equal(weir_verdict_of(j), ok ? WEIR_ALLOW : WEIR_DENY);
			assert_int_equal(weir_reason_of(j), ok ? WEIR_REASON_DEFAULT : WEIR_REASON_SOCKETS);
		}
}

/* ---- the slow parser ---- */

struct slow {
	int family; /* 0: malformed */
	uint8_t daddr[16];
	int protocol;
	int transport;
	int later_fragment;
	int port;
};

static int byte_at(const struct bytes *b, int at)
{
	return at >= 0 && (uint32_t)at < b->len ? b->p[at] : -1;
}

static int carries_ports(int protocol)
{
	static const int with[] = {6, 17, 33, 132, 136};
	size_t i;

	for (i = 0; i < sizeof with / sizeof *with; i++)
		if (with[i] == protocol)
			return 1;
	return 0;
}

static int slow_port(const struct bytes *b, struct slow *s)
{
	int at = carries_ports(s->protocol) ? 2 : s->protocol == 1 || s->protocol == 58 ? 0 : -1;

	if (s->later_fragment || at < 0)
		return 1;
	if (byte_at(b, s->transport + at + 1) < 0)
		return 0;
	s->port = byte_at(b, s->transport + at) * 256 + byte_at(b, s->transport + at + 1);
	return 1;
}

static int slow_ip4(const struct bytes *b, struct slow *s)
{
	int i;

	if (b->len < 20 || b->p[0] / 16 != 4)
		return 0;
	s->transport = b->p[0] % 16 * 4;
	if (s->transport < 20 || b->len < (uint32_t)s->transport)
		return 0;
	s->protocol = b->p[9];
	s->later_fragment = (b->p[6] * 256 + b->p[7]) % 8192 != 0;
	s->daddr[10] = s->daddr[11] = 255;
	for (i = 0; i < 4; i++)
		s->daddr[12 + i] = b->p[16 + i];
	return slow_port(b, s);
}

static int slow_ip6(const struct bytes *b, struct slow *s)
{
	int at = 40, header, headers = 0;

	if (b->len < 40 || b->p[0] / 16 != 6)
		return 0;
	memcpy(s->daddr, b->p + 24, 16);
	header = b->p[6];
	while (header == 0 || header == 43 || header == 44 || header == 51 || header == 60) {
		int size = byte_at(b, at + 1), next = byte_at(b, at);

		/* Four bytes say all we need of any of them. */
		if (byte_at(b, at + 3) < 0 || ++headers > 8)
			return 0;
		if (header == 44) {
			s->later_fragment = (b->p[at + 2] * 256 + b->p[at + 3]) / 8 != 0;
			at += 8;
		} else {
			at += header == 51 ? (size + 2) * 4 : (size + 1) * 8;
		}
		header = next;
		if (s->later_fragment)
			break;
	}
	s->protocol = header;
	s->transport = at;
	return slow_port(b, s);
}

static struct slow slow_parse(const struct bytes *b, int ethertype)
{
	struct slow s = {0};

	if (ethertype == 0x0800 && slow_ip4(b, &s))
		s.family = 4;
	if (ethertype == 0x86dd && slow_ip6(b, &s))
		s.family = 6;
	return s;
}

/* ---- packets ---- */

static uint64_t seed = 0x9e3779b97f4a7c15ULL;

static uint32_t rnd(uint32_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 33) % below;
}

static uint8_t rnd_protocol(void)
{
	static const uint8_t p[] = {0, 1, 6, 17, 33, 43, 44, 50, 51, 58, 59, 60, 132, 135, 136, 255};

	return rnd(8) ? p[rnd(sizeof p)] : (uint8_t)rnd(256);
}

static uint32_t make_ip4(uint8_t *p)
{
	uint32_t len = 20 + rnd(60), i;

	for (i = 0; i < len; i++)
		p[i] = (uint8_t)rnd(256);
	p[0] = (uint8_t)(0x40 | (rnd(4) ? 5 + rnd(11) : rnd(16)));
	p[6] = rnd(3) ? (uint8_t)(rnd(8) << 5) : p[6];
	p[7] = rnd(3) ? 0 : p[7];
	p[9] = rnd_protocol();
	return len;
}

static uint32_t make_ip6(uint8_t *p)
{
	uint32_t at = 40, n = rnd(11), i;
	uint8_t *next = p + 6;

	for (i = 0; i < 400; i++)
		p[i] = (uint8_t)rnd(256);
	p[0] = 0x60;
	while (n--) {
		static const uint8_t chain[] = {0, 43, 44, 51, 60};
		uint8_t h = chain[rnd(sizeof chain)];

		*next = h;
		next = p + at;
		p[at + 1] = rnd(6) ? (uint8_t)rnd(3) : p[at + 1];
		if (h == 44 && rnd(4))
			p[at + 2] = 0, p[at + 3] &= 7;
		at += h == 44 ? 8 : h == 51 ? (p[at + 1] + 2U) * 4 : (p[at + 1] + 1U) * 8;
		if (at > 300)
			break;
	}
	*next = rnd_protocol();
	return at < 380 ? at + rnd(20) : 400;
}

static void same(const struct bytes *b, int ethertype)
{
	struct slow s = slow_parse(b, ethertype);
	struct weir_packet pk;
	int rc = weir_parse((struct bytes *)(uintptr_t)b, (uint32_t)ethertype, &pk);

	assert_int_equal(rc, s.family ? 0 : -1);
	assert_int_equal(pk.family, s.family);
	if (!s.family)
		return;
	assert_memory_equal(pk.daddr, s.daddr, 16);
	assert_int_equal(pk.protocol, s.protocol);
	assert_int_equal(pk.transport, s.transport);
	assert_int_equal(pk.headless, s.later_fragment);
	assert_int_equal(__builtin_bswap16(pk.dport_be), s.port);
}

static void test_parse_oracle(void **state)
{
	int i, whole = 0, rounds = 400000;
	static uint8_t p[2048];

	(void)state;
	for (i = 0; i < rounds; i++) {
		int v6 = (int)rnd(2);
		uint32_t len = v6 ? make_ip6(p) : make_ip4(p);
		struct bytes b = {p, len};

		if (!rnd(4))
			b.len = rnd(len + 1);
		same(&b, v6 ? 0x86dd : 0x0800);
		same(&b, v6 ? 0x0800 : 0x86dd);
		same(&b, (int)rnd(65536));
		whole += slow_parse(&b, v6 ? 0x86dd : 0x0800).family != 0;
	}
	/* The generator must not be making junk only. */
	assert_in_range(whole, rounds / 4, rounds * 19 / 20);
}

static void test_parse_limits(void **state)
{
	uint8_t p[128] = {0x60, [6] = 60};
	struct bytes b = {p, 0};
	struct weir_packet pk;
	int headers, i;

	(void)state;
	for (headers = 1; headers < 11; headers++) {
		for (i = 0; i < headers; i++)
			p[40 + i * 8] = i == headers - 1 ? 17 : 60;
		b.len = (uint32_t)(40 + headers * 8 + 8);
		assert_int_equal(weir_parse(&b, 0x86dd, &pk), headers <= WEIR_EXT_HEADERS ? 0 : -1);
	}
	b.len = 0;
	assert_int_equal(weir_parse(&b, 0x0800, &pk), -1);
	assert_int_equal(weir_parse(&b, 0x86dd, &pk), -1);
}

/* ---- DNS ---- */

static const struct question {
	const char *what;
	const char *name; /* what follows the 12 bytes of the header, type included */
	uint32_t len;
	uint32_t found;
	uint32_t qtype;
} questions[] = {
#define Q(s) s, sizeof s - 1
    {"plain", Q("\3www\2ab\0\0\1\0\1"), 8, 1},
    {"AAAA, upper case", Q("\3WwW\0\0\x1c\0\1"), 5, 28},
    {"root", Q("\0\0\2\0\1"), 1, 2},
    {"control characters", Q("\4\0\x1b\n\xff\0\0\x10\0\1"), 6, 16},
    {"type cut off", Q("\3www\0\0"), 5, 0},
    {"name cut off", Q("\3www\5ab"), 7, 0},
    {"label fills the packet", Q("\3www"), 4, 0},
    {"no name", Q(""), 0, 0},
    {"compressed at once", Q("\xc0\x0c\0\1\0\1"), 2, 1},
    {"compressed later", Q("\3www\xc0\x0c\0\x1c\0\1"), 6, 28},
    {"pointer cut off", Q("\3www\xc0"), 5, 0},
    {"reserved label type", Q("\3www\x40xx\0\0\1"), 5, 0},
#undef Q
};

static uint32_t ask(const uint8_t *name, uint32_t len, int qdcount)
{
	uint8_t p[20 + 12 + 600] = {0};
	struct bytes b = {p, 20 + 12 + len};

	p[20 + 4] = (uint8_t)(qdcount >> 8);
	p[20 + 5] = (uint8_t)qdcount;
	memcpy(p + 32, name, len);
	return weir_dns_question(&b, 20, b.len);
}

static void test_dns(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof questions / sizeof *questions; i++) {
		const struct question *q = &questions[i];
		uint32_t r = ask((const uint8_t *)q->name, q->len, 1);

		if ((r & 0xffff) != q->found || r >> 16 != q->qtype)
			fail_msg("%s: %u bytes, type %u", q->what, r & 0xffff, r >> 16);
		assert_int_equal(ask((const uint8_t *)q->name, q->len, 256), r);
		assert_int_equal(ask((const uint8_t *)q->name, q->len, 0), 0);
	}
}

static void test_dns_limits(void **state)
{
	uint8_t name[600];
	uint32_t n, i;

	(void)state;
	/* Labels of one byte each: 127 of them and the root are 255 bytes, the longest legal name. */
	for (n = 1; n < 200; n++) {
		uint32_t r;

		for (i = 0; i < n; i++) {
			name[2 * i] = 1;
			name[2 * i + 1] = 'x';
		}
		memcpy(name + 2 * n, "\0\0\x1c\0\1", 5);
		r = ask(name, 2 * n + 5, 1);
		assert_int_equal(r & 0xffff, 2 * n + 1 <= 255 ? 2 * n + 1 : 255);
		assert_int_equal(r >> 16, 2 * n + 1 <= 255 ? 28 : 0);
	}
	/* Random bytes: never more than there is, nor than fits. */
	for (i = 0; i < 200000; i++) {
		uint32_t len = rnd(300), at, r;

		for (at = 0; at < len; at++)
			name[at] = rnd(3) ? (uint8_t)rnd(8) : (uint8_t)rnd(256);
		r = ask(name, len, 1);
		assert_true((r & 0xffff) <= len && (r & 0xffff) <= WEIR_DNS_MAX);
	}
}

static void test_which_is_dns(void **state)
{
	uint32_t port;

	(void)state;
	for (port = 0; port < 65536; port++) {
		struct weir_packet pk = {.family = 4, .protocol = 17, .dport_be = __builtin_bswap16((uint16_t)port)};
		int want = port == 53 || port == 5353 || port == 5355;

		assert_int_equal(!!weir_is_dns(&pk), want);
		pk.headless = 1;
		assert_false(weir_is_dns(&pk));
		pk.headless = 0;
		pk.protocol = 6;
		assert_false(weir_is_dns(&pk));
		pk.protocol = 17;
		pk.family = 0;
		assert_false(weir_is_dns(&pk));
	}
}

static uint64_t name_hash(const uint8_t *name, uint32_t len, uint64_t k0, uint64_t k1)
{
	struct bytes b = {name, len};

	return weir_name_hash(&b, 0, len, k0, k1);
}

/* Names that differ in one bit, in length only, or in key have different hashes; half of the bits change. */
static void test_name_hash(void **state)
{
	uint32_t len, bit;

	(void)state;
	for (len = 1; len <= WEIR_DNS_MAX; len++) {
		uint8_t name[WEIR_DNS_MAX + 1] = {0};
		uint64_t base = name_hash(name, len, 1, 2);
		uint32_t changed = 0, n;

		assert_true(base != 0);
		assert_true(base == name_hash(name, len, 1, 2));
		assert_true(base != name_hash(name, len + 1, 1, 2));
		assert_true(base != name_hash(name, len, 3, 2));
		assert_true(base != name_hash(name, len, 1, 3));
		for (bit = 0; bit < len * 8; bit++) {
			uint64_t h;

			name[bit / 8] ^= (uint8_t)(1 << bit % 8);
			h = name_hash(name, len, 1, 2);
			name[bit / 8] ^= (uint8_t)(1 << bit % 8);
			n = (uint32_t)__builtin_popcountll(h ^ base);
			assert_in_range(n, 4, 60);
			changed += n;
		}
		assert_in_range(changed, len * 8 * 26, len * 8 * 38);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_judge),	 cmocka_unit_test(test_judgement),    cmocka_unit_test(test_as_enforced),
	    cmocka_unit_test(test_judge_both),	 cmocka_unit_test(test_judge_socket), cmocka_unit_test(test_parse_oracle),
	    cmocka_unit_test(test_parse_limits), cmocka_unit_test(test_dns),	      cmocka_unit_test(test_dns_limits),
	    cmocka_unit_test(test_which_is_dns), cmocka_unit_test(test_name_hash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
