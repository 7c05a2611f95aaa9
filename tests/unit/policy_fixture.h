/* SPDX-License-Identifier: Apache-2.0 */
/* Policies from JSON text, compiled, for the unit tests of the engine. Included after cmocka.h. */
#ifndef WEIR_TEST_POLICY_FIXTURE_H
#define WEIR_TEST_POLICY_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/image.h"
#include "core/policy.h"
#include "verdict.h"

struct fixture {
	struct policy *policy;
	struct policy_image *image;
};

static inline struct policy *parsed(const char *text)
{
	struct policy *p = NULL;
	struct err e;

	if (policy_parse(text, strlen(text), &p, &e) < 0)
		fail_msg("%s: %s in %s", e.where, e.msg, text);
	return p;
}

static inline struct fixture compiled_in(const char *text, const struct policy_env *env)
{
	struct fixture f = {.policy = parsed(text)};
	struct err e;

	if (image_compile(f.policy, env, &f.image, &e) < 0)
		fail_msg("%s: %s in %s", e.where, e.msg, text);
	return f;
}

static inline struct fixture compiled(const char *text)
{
	return compiled_in(text, NULL);
}

static inline void release(struct fixture *f)
{
	f->policy = policy_free(f->policy);
	f->image = image_free(f->image);
}

static inline struct cidr addr_of(const char *text)
{
	struct cidr c = {0};
	struct err e;

	if (cidr_parse(text, strlen(text), &c, &e) < 0)
		fail_msg("%s: %s", text, e.msg);
	return c;
}

/* As a packet: a mapped address stays an IPv6 address. */
static inline struct weir_dest packet_to(const char *addr, uint8_t protocol, uint16_t port, uint32_t flags)
{
	struct cidr c = addr_of(addr);
	struct weir_dest d = {.family = c.family, .protocol = protocol, .port = port, .flags = flags};

	memcpy(d.addr, c.addr, sizeof d.addr);
	return d;
}

static inline uint32_t judged(const struct fixture *f, const char *addr, uint8_t protocol, uint16_t port, uint32_t flags)
{
	struct weir_dest d = packet_to(addr, protocol, port, flags);

	return image_judge(f->image, &d);
}

#endif
