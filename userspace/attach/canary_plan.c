/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which destinations the canary tries. Nothing leaves its namespace, so any will do for which the policy has the wanted answer:
 * first a few addresses that every kind of policy has an opinion on, then those that the policy names itself.
 */
#include <netinet/in.h>
#include <string.h>

#include "attach/canary_priv.h"
#include "verdict.h"

#define PREFIXES_ASKED 1024 /* of one family: of a long list every n-th is asked */
#define ATOMS_ASKED 8
#define SENDER_V4 "\300\0\2\143"    /* 192.0.2.99 */
#define GROUP_V4 "\357\377\125\143" /* 239.255.85.99 */

/* IPv4 in the last four bytes, as everywhere. Private, link-local, documentation, and two of the open internet. */
static const struct {
	uint8_t family;
	uint8_t addr[16];
} usual[] = {
#define V4(a, b, c, d)                                                                                                         \
	{                                                                                                                      \
		4,                                                                                                             \
		{                                                                                                              \
			0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d                                                   \
		}                                                                                                              \
	}
    V4(192, 0, 2, 7),
    V4(10, 0, 0, 7),
    V4(169, 254, 169, 254),
    V4(11, 0, 0, 7),
    V4(203, 0, 113, 7),
    {6, {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7}},
    {6, {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7}},
    {6, {0x2a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7}},
};
/* Asked last: a policy that allows nothing else may allow this host itself. */
static const uint8_t loopback4[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1},
		     loopback6[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

/* What is looked for, and what was found. */
struct search {
	const struct policy_image *img;
	struct weir_dest d; /* family and protocol are fixed */
	uint16_t port;	    /* one that nobody uses */
	struct canary_plan *plan;
	bool found[2]; /* denied, allowed */
};

static void set_key(struct canary_try *t, const struct policy_image *img, weir_judgement j, uint8_t hook)
{
	t->key.dport_be = htons(t->to.port);
	t->key.family = t->to.family;
	t->key.protocol = t->to.protocol;
	t->key.hook = hook;
	t->key.verdict = weir_verdict_of(j);
	t->key.reason = weir_reason_of(j);
	t->key.via = weir_via_of(j);
	t->key.rule = weir_rule_of(j);
	t->passes = t->key.verdict != WEIR_DENY;
	t->listed = t->key.verdict != WEIR_ALLOW || !(img->head.flags & WEIR_IMG_QUIET_ALLOW);
}

static void add_try(struct canary_plan *plan, const struct policy_image *img, enum canary_way way, const struct weir_dest *d,
		    weir_judgement j, uint8_t hook)
{
	struct canary_try *t = &plan->tries[plan->count];

	if (plan->count == CANARY_TRIES)
		return;
	plan->count++;
	*t = (struct canary_try){.way = way, .to = *d};
	memcpy(t->key.daddr, d->addr, sizeof t->key.daddr);
	set_key(t, img, weir_as_enforced(&img->head, j), hook);
}

static uint8_t hook_of(const struct weir_dest *d)
{
	if (d->protocol == IPPROTO_UDP)
		return WEIR_HOOK_EGRESS;
	return d->family == 4 ? WEIR_HOOK_CONNECT4 : WEIR_HOOK_CONNECT6;
}

/* Whether that was all. */
static bool ask(struct search *s, uint16_t port)
{
	weir_judgement j;
	bool allows;

	s->d.port = port;
	j = image_judge(s->img, &s->d);
	allows = !weir_denies(j);
	if (!s->found[allows]) {
		s->found[allows] = true;
		add_try(s->plan, s->img, s->d.protocol == IPPROTO_UDP ? CANARY_DATAGRAM : CANARY_STREAM, &s->d, j,
			hook_of(&s->d));
	}
	return s->found[0] && s->found[1];
}

/* One that a socket can be pointed at without more ado: one host, no zone, no IPv4 in it. */
static bool is_plain(const struct weir_dest *d)
{
	const uint8_t *a = d->addr;

	if (d->family == 4)
		return a[12] >= 1 && a[12] < 224 && a[12] != 127;
	return (a[0] & 0xe0) == 0x20 || (a[0] & 0xfe) == 0xfc;
}

static void address_of(const struct weir_prefix *p, struct weir_dest *d)
{
	const unsigned len = p->len - WEIR_PREFIX_FAMILY_BITS, bits = d->family == 4 ? 32 : 128;

	memset(d->addr, 0, sizeof d->addr);
	if (d->family == 4) {
		d->addr[10] = d->addr[11] = 0xff;
		memcpy(d->addr + 12, p->addr, 4);
	} else {
		memcpy(d->addr, p->addr, 16);
	}
	if (len < bits)
		d->addr[15] |= 1;
}

/* The ports that its rules name, in the address as it stands. */
static bool ask_ports(struct search *s, const struct weir_list *list)
{
	if (ask(s, s->port))
		return true;
	for (uint32_t i = 0; i < list->count && i < ATOMS_ASKED; i++) {
		const struct weir_atom *a = &list->atoms[i];

		if (!(a->flags & WEIR_ATOM_ANY_PROTOCOL) && a->protocol != s->d.protocol)
			continue;
		if (!(a->flags & WEIR_ATOM_ANY_PORT) && a->port_lo && ask(s, a->port_lo))
			return true;
	}
	return false;
}

static bool ask_prefixes(struct search *s)
{
	const size_t step = s->img->prefix_count / PREFIXES_ASKED + 1;

	for (size_t i = 0; i < s->img->prefix_count; i += step) {
		if (s->img->prefixes[i].family[3] != s->d.family)
			continue;
		address_of(&s->img->prefixes[i], &s->d);
		if (is_plain(&s->d) && ask_ports(s, &s->img->lists[s->img->list_of[i]]))
			return true;
	}
	return false;
}

/* Ports named in rules for everybody: those of the family's own prefix of no length. */
static const struct weir_list *general_rules(const struct policy_image *img, uint8_t family)
{
	static const struct weir_list none;

	for (size_t i = 0; i < img->prefix_count; i++)
		if (img->prefixes[i].family[3] == family && img->prefixes[i].len == WEIR_PREFIX_FAMILY_BITS)
			return &img->lists[img->list_of[i]];
	return &none;
}

static void search(const struct policy_image *img, uint8_t family, uint8_t protocol, uint16_t port, struct canary_plan *plan)
{
	struct search s = {.img = img, .d = {.family = family, .protocol = protocol}, .port = port, .plan = plan};
	const struct weir_list *general = general_rules(img, family);

	for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
		if (usual[i].family != family)
			continue;
		memcpy(s.d.addr, usual[i].addr, sizeof s.d.addr);
		if (ask_ports(&s, general))
			return;
	}
	if (ask_prefixes(&s))
		return;
	memcpy(s.d.addr, family == 4 ? loopback4 : loopback6, sizeof s.d.addr);
	ask(&s, s.port);
}

static void add_join(const struct policy_image *img, struct canary_plan *plan)
{
	struct weir_dest group = {.family = 4, .protocol = IPPROTO_IGMP};

	group.addr[10] = group.addr[11] = 0xff;
	memcpy(group.addr + 12, GROUP_V4, 4);
	add_try(plan, img, CANARY_JOIN, &group, image_judge(img, &group), WEIR_HOOK_SETSOCKOPT);
}

/*
 * A datagram to where the policy would not let us go is refused at the door: unless all may come in. What the policy allows
 * everywhere comes in over loopback as well, and of that nothing is counted; so there is nothing to see.
 */
static void add_receive(const struct policy_image *img, uint16_t port, struct canary_plan *plan)
{
	struct canary_try *t;

	for (size_t i = 0; i < plan->count; i++) {
		struct weir_dest to = plan->tries[i].to;
		weir_judgement j;

		to.port = port;
		if (plan->tries[i].way != CANARY_DATAGRAM || to.family != 4)
			continue;
		j = image_judge(img, &to);
		if (!weir_denies(j) || plan->count == CANARY_TRIES)
			continue;
		t = &plan->tries[plan->count];
		j = weir_judgement_of(img->head.flags & WEIR_IMG_INBOUND ? WEIR_ALLOW : WEIR_DENY, WEIR_REASON_INBOUND);
		add_try(plan, img, CANARY_RECEIVE, &to, j, WEIR_HOOK_INGRESS);
		memcpy(t->key.daddr + 12, SENDER_V4, 4); /* it is told with its sender's address */
		t->listed = t->key.verdict != WEIR_ALLOW;
		return;
	}
}

void canary_plan(const struct policy_image *img, uint16_t first_port, struct canary_plan *ret)
{
	static const struct {
		uint8_t family, protocol;
	} kinds[] = {{4, IPPROTO_UDP}, {6, IPPROTO_UDP}, {4, IPPROTO_TCP}, {6, IPPROTO_TCP}};
	uint16_t port = first_port;

	ret->count = 0;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		search(img, kinds[i].family, kinds[i].protocol, port++, ret);
	add_join(img, ret);
	add_receive(img, port, ret);
}
