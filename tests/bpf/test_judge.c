/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What user space says of a packet is what the kernel says of it: random policies, compiled and written to the kernel's maps by
 * guard_set_policy(), and random packets (well-formed, odd and broken) that the kernel's programs and image_judge() both judge.
 * WEIR_PAIRS says how many (policy, packet) pairs, WEIR_SEED with which seed. Also: many large policies at once, what they
 * cost, and that a swap is never seen half done. Needs root.
 */
#include "judge_rig.h"

#define PAIRS_DEFAULT 20000
#define PACKETS_PER_POLICY 100

/* ---- chance, the same on every machine ---- */

static uint64_t seed_now, seed_first;

static uint64_t rnd(void)
{
	/* SplitMix64 */
	uint64_t z = (seed_now += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static unsigned below(unsigned n)
{
	return (unsigned)(rnd() % n);
}

/* ---- random policies: few prefixes, close to each other, so that nesting and ties are common ---- */

static const char *const bases[] = {
    "10.0.0.0",
    "10.1.0.0",
    "169.254.169.254",
    "192.168.1.0",
    "203.0.113.7",
    "127.0.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "8.8.8.8",
    "2001:db8::",
    "2001:db8:64::",
    "64:ff9b::a00:1",
    "2002:a00:1::",
    "2001:0:a9fe:a9fe::",
    "fe80::5efe:a00:1",
    "::1",
    "::",
    "::ffff:10.0.0.1",
    "::ffff:0:a00:1",
    "::a00:1",
    "fd00:ec2::254",
    "ff02::1",
    "2001:db8:1:2::",
};

static void random_prefix(char *ret, size_t size)
{
	const char *base = bases[below(sizeof bases / sizeof *bases)];
	struct cidr c;
	struct err e;
	unsigned len, bits;
	int i;

	must(cidr_parse_addr(base, strlen(base), &c, &e), &e);
	bits = c.family == 4 ? 32 : 128;
	len = below(4) ? below(bits + 1) : bits - below(3);
	c.len = (uint8_t)len;
	for (i = 0; i < 16; i++) {
		int keep = (int)len + (c.family == 4 ? 96 : 0) - 8 * i;

		if (keep <= 0)
			c.addr[i] = 0;
		else if (keep < 8)
			c.addr[i] &= (uint8_t)(0xff << (8 - keep));
	}
	if (c.family == 4)
		c.addr[10] = c.addr[11] = 0xff;
	cidr_text(ret, &c, false);
	(void)size;
}

#define DOC_MAX 65536
static char doc[DOC_MAX];
static size_t doc_len;

__attribute__((format(printf, 1, 2))) static void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	doc_len += (size_t)vsnprintf(doc + doc_len, DOC_MAX - doc_len, fmt, ap);
	va_end(ap);
	assert_true(doc_len < DOC_MAX);
}

static const unsigned some_ports[] = {0, 1, 53, 80, 443, 444, 8080, 65535};
#define PORT some_ports[below(sizeof some_ports / sizeof *some_ports)]

static void random_rule(unsigned n)
{
	static const char *const sets[] = {"@private", "@metadata", "@special-purpose", "any"};
	char prefix[CIDR_TEXT_MAX];
	unsigned i, places = 1 + below(3), ports;
	unsigned kind = below(4);

	say("%s{\"verdict\":\"%s\",\"to\":[", n ? "," : "", below(2) ? "allow" : "deny");
	for (i = 0; i < places; i++) {
		random_prefix(prefix, sizeof prefix);
		say("%s\"%s\"", i ? "," : "", below(10) ? prefix : sets[below(4)]);
	}
	say("]");
	if (kind == 1)
		say(",\"protocol\":%u", (unsigned[]){1, 6, 17, 47, 58, 0, 136}[below(7)]);
	if (kind >= 2) {
		say(",\"protocol\":%s,\"ports\":[", kind == 2 ? "\"tcp\"" : "[\"udp\",\"tcp\"]");
		for (i = 0, ports = 1 + below(2); i < ports; i++) {
			unsigned a = PORT, b = PORT;

			if (below(2))
				say("%s%u", i ? "," : "", a);
			else
				say("%s\"%u-%u\"", i ? "," : "", a < b ? a : b, a < b ? b : a);
		}
		say("]");
	}
	say("}");
}

static void random_policy(void)
{
	static const char *const loopbacks[] = {"rules", "deny", "self"};
	unsigned i, rules = below(10) ? 2 + below(24) : 0;

	doc_len = 0;
	say("{\"name\":\"r\",\"default\":\"%s\",\"mode\":\"%s\",\"loopback\":\"%s\"", below(2) ? "allow" : "deny",
	    below(8) ? "enforce" : "monitor", loopbacks[below(4) ? 0 : below(3)]);
	say(",\"packets\":{\"ipv4_options\":\"%s\",\"routing_headers\":\"%s\",\"fragments\":\"%s\"}",
	    below(2) ? "allow" : "deny", below(2) ? "allow" : "deny", below(2) ? "allow" : "deny");
	if (!below(3))
		say(",\"nat64_prefixes\":[%s]",
		    below(2) ? "\"2001:db8::/32\"" : "\"2001:db8:64::/96\",\"2001:db8:1:2::/64\",\"2001:db8:0::/48\"");
	say(",\"rules\":[");
	for (i = 0; i < rules; i++)
		random_rule(i);
	say("]}");
}

/* ---- random packets ---- */

/* One of the addresses that policies are made of, or a neighbour of it. */
static void random_addr(uint8_t ret[16], int family)
{
	struct cidr c;
	struct err e;
	unsigned i, bit;

	do {
		const char *base = bases[below(sizeof bases / sizeof *bases)];

		must(cidr_parse_addr(base, strlen(base), &c, &e), &e);
	} while (c.family != family);
	memcpy(ret, c.addr, 16);
	for (i = below(3); i; i--) {
		bit = family == 4 ? 96 + below(32) : below(4) ? 112 + below(16) : below(128);
		ret[bit / 8] ^= (uint8_t)(1 << (7 - bit % 8));
	}
}

static const uint8_t protocols[] = {6, 17, 6, 17, 1, 58, 47, 132, 136, 33, 0, 255};

static void random_packet4(struct packet *p)
{
	uint8_t *h = p->b + ETH_HEADER, a[16];
	unsigned ihl = below(6) ? 5 : 4 + below(4);
	uint8_t proto = protocols[below(sizeof protocols)];

	put16(p->b + 12, 0x0800);
	random_addr(a, 4);
	h[0] = (uint8_t)(0x40 | ihl);
	put16(h + 6, below(6) ? 0x4000 : rnd() & 0x3fff);
	h[8] = 64;
	h[9] = proto;
	memcpy(h + 16, a + 12, 4);
	put16(h + ihl * 4 + 2, PORT);
	p->len = ETH_HEADER + ihl * 4 + (below(10) ? 20 : below(8));
	if (p->len < ETH_HEADER + 20)
		p->len = ETH_HEADER + 20; /* the kernel runs a program on no less */
}

static void random_packet6(struct packet *p)
{
	static const uint8_t exts[] = {0, 60, 43, 44, 51};
	uint8_t *h = p->b + ETH_HEADER, *next = h + 6, *at = h + 40;
	unsigned n = below(4) ? 0 : 1 + below(3);

	put16(p->b + 12, 0x86dd);
	h[0] = 0x60;
	h[7] = 64;
	random_addr(h + 24, 6);
	for (; n; n--) {
		uint8_t x = exts[below(sizeof exts)];

		*next = x;
		next = at;
		at[1] = (uint8_t)below(3);
		if (x == 44)
			put16(at + 2, below(2) ? 0 : rnd() & 0xfff9);
		/* In units of four bytes without two of them, or of eight without one; a fragment's is always one. */
		at += x == 51 ? (at[1] + 2) * 4 : x == 44 ? 8 : (at[1] + 1) * 8;
	}
	*next = protocols[below(sizeof protocols)];
	put16(at + 2, PORT);
	p->len = (uint32_t)(at - p->b) + (below(10) ? 20 : below(8));
}

static void random_packet(struct packet *p)
{
	unsigned i;

	for (i = 0; i < sizeof p->b; i++)
		p->b[i] = below(3) ? 0 : (uint8_t)rnd();
	if (below(2))
		random_packet4(p);
	else
		random_packet6(p);
	if (!below(50))
		p->b[ETH_HEADER] = (uint8_t)rnd();
}

/* ---- both sides ---- */

struct bytes {
	const uint8_t *p;
	uint32_t len;
};

static int load(const struct bytes *b, uint32_t off, void *dst, uint32_t len)
{
	if (off > b->len || len > b->len - off) {
		memset(dst, 0, len);
		return -EFAULT;
	}
	memcpy(dst, b->p + off, len);
	return 0;
}

#define WEIR_PACKET struct bytes
#define weir_load(pkt, off, dst, len) load(pkt, off, dst, len)
#include "parse.h"

static uint32_t host_judgement(const struct policy_image *img, const struct packet *p)
{
	struct bytes b = {p->b + ETH_HEADER, p->len - ETH_HEADER};
	struct weir_packet pk;
	struct weir_dest d = {0};
	weir_judgement j;
	int readable = weir_parse(&b, (uint32_t)p->b[12] << 8 | p->b[13], &pk) == 0;

	j = weir_judge_entry(1, &img->head, readable);
	if (!weir_denies(j)) {
		memcpy(d.addr, pk.daddr, sizeof d.addr);
		d.port = __builtin_bswap16(pk.dport_be);
		d.family = pk.family;
		d.protocol = pk.protocol;
		d.flags = (pk.headless ? WEIR_DEST_HEADLESS : 0) | (pk.options ? WEIR_DEST_OPTIONS : 0) |
			  (pk.routing ? WEIR_DEST_ROUTING : 0);
		j = image_judge(img, &d);
	}
	return weir_as_enforced(&img->head, j);
}

static void test_pairs(void **state)
{
	const char *want = getenv("WEIR_PAIRS");
	unsigned long pairs = want ? strtoul(want, NULL, 10) : PAIRS_DEFAULT, done = 0;
	unsigned by_verdict[WEIR_VERDICT_COUNT] = {0}, by_reason[WEIR_REASON_COUNT] = {0}, by_via[WEIR_VIA_COUNT] = {0}, i;
	/* Swapping a policy in waits for the kernel: fewer policies and more packets when there are many pairs. */
	unsigned per_policy = pairs > 10 * PAIRS_DEFAULT ? 10 * PACKETS_PER_POLICY : PACKETS_PER_POLICY;
	struct err e = {0};

	(void)state;
	govern(5);
	while (done < pairs) {
		struct policy_image *img;

		random_policy();
		img = compile(doc, doc_len);
		must(guard_set_policy(t.guard, 5, img, NULL, &e), &e);
		for (i = 0; i < per_policy && done < pairs; i++, done++) {
			struct packet p = {0};
			uint32_t host, kernel;

			random_packet(&p);
			host = host_judgement(img, &p);
			kernel = kernel_judgement(&p);
			if (host != kernel) {
				uint32_t k;

				for (k = 0; k < p.len; k++)
					fprintf(stderr, "%02x", p.b[k]);
				fail_msg("seed %llu, pair %lu: user space says %#x, the kernel %#x\n%s",
					 (unsigned long long)seed_first, done, host, kernel, doc);
			}
			by_verdict[weir_verdict_of(host)]++;
			by_reason[weir_reason_of(host)]++;
			by_via[weir_via_of(host)]++;
		}
		image_free(img);
	}
	print_message("  %lu pairs, seed %llu; denied %u, allowed %u, would deny %u; reasons", done,
		      (unsigned long long)seed_first, by_verdict[0], by_verdict[1], by_verdict[2]);
	for (i = 0; i < WEIR_REASON_COUNT; i++)
		print_message(" %u", by_reason[i]);
	print_message("; via");
	for (i = 0; i < WEIR_VIA_COUNT; i++)
		print_message(" %u", by_via[i]);
	print_message("\n");
	/* A generator that no longer reaches a verdict, a reason or a decoder would prove nothing of it. */
	if (done >= PAIRS_DEFAULT) {
		for (i = 0; i < WEIR_VERDICT_COUNT; i++)
			assert_true(by_verdict[i] > done / 100);
		for (i = 1; i < WEIR_VIA_COUNT; i++)
			assert_true(by_via[i] > 0);
		assert_true(by_reason[WEIR_REASON_RULE] > done / 4);
		assert_true(by_reason[WEIR_REASON_MALFORMED] && by_reason[WEIR_REASON_LOOPBACK] &&
			    by_reason[WEIR_REASON_OPTIONS] && by_reason[WEIR_REASON_ROUTING] &&
			    by_reason[WEIR_REASON_FRAGMENT]);
	}
}

/* ---- many and large ---- */

#define MANY 100 /* WEIR_MANY: on a machine that is slow, fewer */

static long available_kib(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];
	long kib = -1;

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "MemAvailable: %ld", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

/* 10,000 /32 prefixes, in policy `n` those whose address differs from the other policies' by `n`. */
static struct policy_image *large(unsigned n)
{
	static char text[LIMIT_POLICY_BYTES];
	size_t at =
	    (size_t)sprintf(text, "{\"name\":\"large\",\"default\":\"deny\",\"rules\":[{\"verdict\":\"allow\",\"to\":[");
	unsigned i;

	for (i = 0; i < LIMIT_POLICY_PREFIXES; i++)
		at += (size_t)sprintf(text + at, "%s\"11.%u.%u.%u/32\"", i ? "," : "", n, i >> 8, i & 255);
	at += (size_t)sprintf(text + at, "]}]}");
	return compile(text, at);
}

static void test_many_large(void **state)
{
	const char *want = getenv("WEIR_MANY");
	unsigned n, many = want ? (unsigned)strtoul(want, NULL, 10) : MANY;
	long before = available_kib();
	double started = seconds(), loaded, worst = 0;
	struct err e = {0};

	(void)state;
	assert_true(many > 0 && many <= WEIR_POLICIES_MAX);
	for (n = 0; n < many; n++) {
		struct policy_image *img = large(n);
		double begun = seconds();

		assert_true(img->prefix_count == LIMIT_POLICY_PREFIXES + 2);
		must(guard_set_policy(t.guard, n, img, NULL, &e), &e);
		if (seconds() - begun > worst)
			worst = seconds() - begun;
		image_free(img);
	}
	loaded = seconds() - started;
	print_message("  %d policies of %d prefixes in %.1f s (longest load %.0f ms), about %ld MiB of kernel memory\n", many,
		      (int)LIMIT_POLICY_PREFIXES, loaded, worst * 1e3, (before - available_kib()) / 1024);
	for (n = 0; n < many; n++) {
		struct packet p;

		govern(n);
		udp4_to(&p, 11u << 24 | n << 16 | 9999, 9);
		assert_int_equal(weir_verdict_of(kernel_judgement(&p)), WEIR_ALLOW);
		udp4_to(&p, 11u << 24 | n << 16 | 10000, 9);
		assert_int_equal(weir_verdict_of(kernel_judgement(&p)), WEIR_DENY);
		udp4_to(&p, 11u << 24 | (n + 1) << 16 | 9999, 9);
		assert_int_equal(weir_verdict_of(kernel_judgement(&p)), WEIR_DENY);
	}
	for (n = 0; n < many; n++)
		must(guard_del_policy(t.guard, n, &e), &e);
	govern(many - 1);
	{
		struct packet p;

		udp4_to(&p, 11u << 24, 9);
		assert_int_equal(weir_reason_of(kernel_judgement(&p)), WEIR_REASON_NO_POLICY);
	}
}

/* ---- swaps ---- */

#define SWAPS 40

static int stop;

/*
 * Two policies that both deny a NAT64 destination, one for the address as written, the other for the one in it: whoever saw a
 * part of each would let it through. And each one's verdicts on two other addresses name it.
 */
static void *swapper(void *arg)
{
	struct policy_image **img = arg;
	struct err e = {0};
	long n = 0;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		if (guard_set_policy(t.guard, 6, img[n & 1], NULL, &e) < 0)
			return (void *)-1;
		n++;
	}
	return (void *)n;
}

static void test_swap(void **state)
{
	static const char a[] =
	    "{\"name\":\"a\",\"default\":\"allow\",\"rules\":[{\"verdict\":\"deny\",\"to\":\"64:ff9b::/96\"}]}";
	static const char b[] = "{\"name\":\"b\",\"default\":\"allow\",\"rules\":[{\"verdict\":\"allow\",\"to\":\"::/0\"},"
				"{\"verdict\":\"deny\",\"to\":\"10.0.0.0/8\"}]}";
	struct policy_image *img[2] = {compile(a, sizeof a - 1), compile(b, sizeof b - 1)};
	unsigned long judged = 0, first = 0, second = 0, generations = 0;
	uint32_t last = 0;
	struct packet p;
	pthread_t th;
	void *swaps;
	double end;
	struct err e = {0};

	(void)state;
	must(guard_set_policy(t.guard, 6, img[1], NULL, &e), &e);
	govern(6);
	nat64_to(&p);
	stop = 0;
	assert_int_equal(pthread_create(&th, NULL, swapper, img), 0);
	for (end = seconds() + 30; seconds() < end && generations < SWAPS;) {
		uint32_t j = kernel_judgement(&p);

		judged++;
		if (weir_verdict_of(j) != WEIR_DENY)
			fail_msg("packet %lu: let through (%#x) between two policies that both deny it", judged, j);
		/* Rule 1 of the first, or rule 2 of the second by way of the address inside. */
		if (j == weir_judgement_by_rule(WEIR_DENY, 1))
			first++;
		else if (j == weir_judgement_via(weir_judgement_by_rule(WEIR_DENY, 2), WEIR_VIA_NAT64))
			second++;
		else
			fail_msg("packet %lu: judged %#x, which neither policy says", judged, j);
		generations += t.prog->bss->test_generation != last;
		last = t.prog->bss->test_generation;
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(th, &swaps);
	print_message("  %lu packets over %ld swaps: %lu by the one policy, %lu by the other\n", judged, (long)swaps, first,
		      second);
	assert_true((long)swaps >= SWAPS - 1 && generations == SWAPS && first && second);
	image_free(img[0]);
	image_free(img[1]);
}

/* What can't be loaded leaves what is in force. */
static void test_refused_swap(void **state)
{
	static const char a[] = "{\"name\":\"a\",\"default\":\"allow\"}";
	struct policy_image *img = compile(a, sizeof a - 1), broken;
	struct weir_prefix bad = {.len = 4096};
	uint32_t generation = 0, none = 0;
	struct err e = {0};
	struct packet p;

	(void)state;
	must(guard_set_policy(t.guard, 7, img, &generation, &e), &e);
	govern(7);
	udp4_to(&p, 8u << 24, 9);
	broken = *img;
	broken.prefixes = &bad;
	broken.list_of = &none;
	broken.prefix_count = 1;
	assert_true(guard_set_policy(t.guard, 7, &broken, &none, &e) < 0);
	assert_string_equal(e.where, "policy");
	assert_int_equal(none, 0);
	assert_int_equal(weir_verdict_of(kernel_judgement(&p)), WEIR_ALLOW);
	assert_int_equal(t.prog->bss->test_generation, generation);
	assert_true(guard_set_policy(t.guard, WEIR_POLICIES_MAX, img, NULL, &e) == -EINVAL);
	image_free(img);
}

static int setup_all(void **state)
{
	const char *want = getenv("WEIR_SEED");

	(void)state;
	seed_first = seed_now = want ? strtoull(want, NULL, 10) : (uint64_t)time(NULL);
	return setup_rig();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_pairs),
	    cmocka_unit_test(test_many_large),
	    cmocka_unit_test(test_swap),
	    cmocka_unit_test(test_refused_swap),
	};

	if (geteuid() != 0) {
		fprintf(stderr, "test_judge: needs root\n");
		return 1;
	}
	return cmocka_run_group_tests(tests, setup_all, NULL);
}
