/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer on policy_parse(): whatever comes in, the contract of policy.h holds; what is taken can be compiled, warned of and
 * its system calls looked up. Seeds: corpus/policy.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/image.h"
#include "core/limits.h"
#include "core/netaddr.h"
#include "core/policy.h"
#include "core/sysgroups.h"
#include "sysnames.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

/* What ends up on terminals and in logs. */
static void must_be_text(const char *text, size_t size)
{
	size_t n = strnlen(text, size);

	must(n < size);
	for (size_t i = 0; i < n; i++)
		must((unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
}

static void must_be_name(const char *name)
{
	must_be_text(name, POLICY_NAME_MAX);
	must(name[0] && name[0] != '-' && name[0] != '.');
	must(!strpbrk(name, "/ \"\\"));
}

/* Written out and read again it is the same. */
static void must_be_prefix(const struct cidr *c)
{
	char text[CIDR_TEXT_MAX];
	struct cidr again;

	must(c->family == 4 || c->family == 6);
	cidr_text(text, c, false);
	must(cidr_parse(text, strlen(text), &again, NULL) == 0);
	must(cidr_compare(c, &again) == 0);
}

static void must_be_rule(const struct policy_rule *r)
{
	must_be_name(r->name);
	must(r->verdict == WEIR_DENY || r->verdict == WEIR_ALLOW);
	must(r->place_count >= 1 && r->place_count <= 2 * LIMIT_POLICY_PREFIXES);
	must(r->protocol_count <= LIMIT_POLICY_PROTOCOLS && r->port_count <= LIMIT_POLICY_PORTS);
	for (size_t i = 0; i < r->place_count; i++)
		if (r->places[i].is_set)
			must(r->places[i].set < NETSETS);
		else
			must_be_prefix(&r->places[i].prefix);
	for (size_t i = 0; i < r->protocol_count; i++) {
		must(memchr(r->protocols, r->protocols[i], r->protocol_count) == &r->protocols[i]); /* once */
		must(r->port_count == 0 || netproto_has_port(r->protocols[i]));
	}
	must(r->port_count == 0 || r->protocol_count > 0);
	for (size_t i = 0; i < r->port_count; i++)
		must(r->ports[i].lo <= r->ports[i].hi);
}

static void must_be_parts(const struct policy *p)
{
	must(p->loopback <= WEIR_LOOPBACK_SELF);
	must(p->nat64_count <= WEIR_NAT64_MAX);
	for (size_t i = 0; i < p->nat64_count; i++)
		must(p->nat64[i].len >= 32 && p->nat64[i].len <= 96 && p->nat64[i].len % 8 == 0 && p->nat64[i].addr[8] == 0);
	must(!(p->sockets.families & ~63u) && !(p->sockets.types & ~15u) && !(p->sockets.protocols & ~127u));
	must(p->syscall_count <= LIMIT_POLICY_SYSCALLS);
	for (size_t i = 0; i < p->syscall_count; i++) {
		must(p->syscalls[i].name[0] && strnlen(p->syscalls[i].name, POLICY_NAME_MAX) < POLICY_NAME_MAX);
		must(p->syscalls[i].error >= 1 && p->syscalls[i].error <= 4095);
	}
	must(p->limits.datagram_sockets >= 1);
}

static void must_be_policy(const struct policy *p)
{
	must_be_name(p->name);
	must_be_text(p->description, sizeof p->description);
	must(p->default_verdict == WEIR_DENY || p->default_verdict == WEIR_ALLOW);
	must(p->rule_count <= LIMIT_POLICY_RULES);
	for (size_t i = 0; i < p->rule_count; i++) {
		must_be_rule(&p->rules[i]);
		for (size_t k = 0; k < i && i < 64; k++)
			must(strcmp(p->rules[k].name, p->rules[i].name) != 0);
	}
	must_be_parts(p);
}

static void must_be_error(const struct err *e, int rc)
{
	must(rc < 0 && e->code == -rc);
	must_be_text(e->where, sizeof e->where);
	must_be_text(e->msg, sizeof e->msg);
	must(e->msg[0] != '\0');
	must(e->where[0] == '\0' || e->where[0] == '/' || strchr(e->where, ':'));
}

/* What is done with a policy next. */
static void use(const struct policy *p)
{
	struct cidr resolver = {.addr = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 53}, .family = 4, .len = 32};
	struct policy_env env = {.hosts = &resolver, .host_count = 1, .resolvers = &resolver, .resolver_count = 1};
	struct sysgroups_refusal *refusals = NULL;
	struct policy_image *image = NULL;
	struct policy_warning w[16];
	struct err e = {.code = -1};
	size_t count, n;
	int rc;

	n = policy_warnings(p, &env, w, 16);
	for (size_t i = 0; i < n && i < 16; i++) {
		must_be_text(w[i].where, sizeof w[i].where);
		must_be_text(w[i].text, sizeof w[i].text);
	}
	must(policy_warnings(p, &env, NULL, 0) == n);
	rc = image_compile(p, &env, &image, &e);
	if (rc < 0)
		must_be_error(&e, rc);
	image_free(image);
	rc = sysgroups_refusals(p, sysgroups_shipped(), sysnames_known, &refusals, &count, &e);
	if (rc < 0)
		must_be_error(&e, rc);
	free(refusals);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct policy *const untouched = (struct policy *)&data, *p = untouched;
	struct err e = {.code = -1};
	int rc = policy_parse((const char *)data, size, &p, &e);

	if (rc == 0) {
		must(e.code == -1 && size <= LIMIT_POLICY_BYTES);
		must_be_policy(p);
		use(p);
		policy_free(p);
	} else {
		must(p == untouched);
		must_be_error(&e, rc);
	}
	return 0;
}
