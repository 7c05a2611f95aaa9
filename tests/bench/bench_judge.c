/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel needs for one judgement, parsing the packet included, by the kernel's own count over a million runs: the
 * floor is the same program on a cgroup without an entry, which looks nothing up. Prints JSON. Needs root.
 */
#include "../bpf/judge_rig.h"

#include "blobs.h"

#define REPEAT 1000000
#define ROUNDS 5

static uint32_t once(const struct packet *p)
{
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = p->b, .data_size_in = p->len, .repeat = REPEAT);

	if (bpf_prog_test_run_opts(t.prog_fd, &o) < 0)
		fail_msg("running the program: %s", strerror(errno));
	return o.duration; /* ns each */
}

static uint32_t fastest(const struct packet *p)
{
	uint32_t best = UINT32_MAX;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		uint32_t ns = once(p);

		if (ns < best)
			best = ns;
	}
	return best;
}

static void use(const char *text, size_t len)
{
	struct policy_image *img = compile(text, len);
	struct err e = {0};

	must(guard_set_policy(t.guard, 1, img, NULL, &e), &e);
	image_free(img);
}

static void use_shipped(const char *name)
{
	struct blob b;

	if (!blob_policy(name, &b))
		fail_msg("no policy %s", name);
	use((const char *)b.data, b.len);
}

/* As many /32 prefixes as a document may have, around the address that is asked for. */
static void use_large(void)
{
	static char text[LIMIT_POLICY_BYTES];
	size_t at =
	    (size_t)sprintf(text, "{\"name\":\"large\",\"default\":\"allow\",\"rules\":[{\"verdict\":\"deny\",\"to\":[");
	unsigned i;

	for (i = 0; i < LIMIT_POLICY_PREFIXES; i++)
		at += (size_t)sprintf(text + at, "%s\"8.8.%u.%u\"", i ? "," : "", i >> 8, (i & 255));
	at += (size_t)sprintf(text + at, "]}]}");
	use(text, at);
}

int main(void)
{
	struct packet v4, nat64;
	uint32_t floor_ns;

	if (geteuid() != 0) {
		fprintf(stderr, "bench_judge: needs root\n");
		return 1;
	}
	if (setup_rig() < 0)
		return 1;
	udp4_to(&v4, 0x08080808, 53);
	nat64_to(&nat64);
	floor_ns = fastest(&v4);
	govern(1);
	printf("{\"floor_ns\": %u", floor_ns);
	use_shipped("snippet");
	printf(", \"snippet_ns\": %u", fastest(&v4));
	use_shipped("tool-call");
	printf(", \"tool_call_ns\": %u, \"tool_call_nat64_ns\": %u", fastest(&v4), fastest(&nat64));
	use_large();
	printf(", \"prefixes_10000_ns\": %u}\n", fastest(&v4));
	return 0;
}
