/* SPDX-License-Identifier: Apache-2.0 */
/* `rules` of a policy document. */
#include "core/policy_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/netaddr.h"

#define ANY "any" /* every address, of both families */

static const struct word verdicts[] = {{"allow", WEIR_ALLOW}, {"deny", WEIR_DENY}, {NULL, 0}};

static const struct word protocol_names[] = {
    {"tcp", 6},	      {"udp", 17}, {"icmp", 1}, {"icmpv6", 58}, {"sctp", 132}, {"dccp", 33},
    {"udplite", 136}, {"igmp", 2}, {"gre", 47}, {"esp", 50},	{"ah", 51},    {NULL, 0},
};

/* What all rules of a document share while they are read. */
struct rules {
	size_t places; /* written so far */
};

/* A rule being read. */
struct reading {
	struct policy_rule *rule;
	struct rules *all;
	unsigned sets; /* 1 << enum netset of those it names: a set is many prefixes, and once is enough */
};

/* One value, or a list of them: calls `one` for each. An empty list is refused; `none` says what was meant instead. */
static int read_each(const json_t *v, const struct spot *at, const char *none,
		     int (*one)(const json_t *v, const struct spot *at, struct reading *r, struct err *e), struct reading *r,
		     struct err *e)
{
	if (!json_is_array(v))
		return one(v, at, r, e);
	if (json_array_size(v) == 0)
		return spot_fail(at, e, EINVAL, "must not be empty; %s", none);
	for (size_t i = 0; i < json_array_size(v); i++) {
		struct spot here = {.up = at, .index = i};
		int rc = one(json_array_get(v, i), &here, r, e);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static size_t written(const json_t *v)
{
	return json_is_array(v) ? json_array_size(v) : 1;
}

static int no_memory(const struct spot *at, struct err *e)
{
	return spot_fail(at, e, ENOMEM, "out of memory");
}

/* ---- to ---- */

static int unknown_set(const struct spot *at, struct err *e)
{
	struct word words[NETSETS + 1] = {{NULL, 0}};
	char list[120];

	for (int i = 0; i < NETSETS; i++)
		words[i].text = netset_info[i].name;
	words_list(list, sizeof list, words);
	return spot_fail(at, e, EINVAL, "is not a set of addresses; the sets are %s", list);
}

/* What somebody who wrote this may have meant. */
static const char *other_reading(const char *s, size_t len)
{
	char set[32];

	snprintf(set, sizeof set, "@%.30s", s);
	if (netset_find(set, strlen(set)) >= 0)
		return "; a named set is written with an @ in front";
	if (!strcmp(s, "*") || !strcmp(s, "all") || !strcmp(s, "0/0"))
		return "; every address is written \"any\"";
	if (memchr(s, ':', len) && memchr(s, '.', len) && !strstr(s, "::"))
		return "; a port goes into \"ports\"";
	for (size_t i = 0; i < len; i++)
		if ((s[i] | 0x20) > 'f' && (s[i] | 0x20) <= 'z')
			return "; names are not resolved here: `getent ahosts NAME` lists a name's addresses";
	return "";
}

static int read_place(const json_t *v, const struct spot *at, struct reading *r, struct err *e)
{
	static const struct cidr whole[] = {{.addr = {[10] = 0xff, [11] = 0xff}, .family = 4}, {.family = 6}};
	struct policy_place *next = &r->rule->places[r->rule->place_count];
	const char *s = json_string_value(v);
	size_t len = json_string_length(v);
	struct err inner;
	int set;

	if (!s)
		return spot_wrong_kind(at, e, "an address, a prefix, a set such as \"@private\", or \"any\"", v);
	if (!strcmp(s, ANY)) {
		for (size_t i = 0; i < READ_COUNT(whole); i++)
			next[i] = (struct policy_place){.prefix = whole[i]};
		r->rule->place_count += READ_COUNT(whole);
		return 0;
	}
	if (s[0] == '@') {
		set = netset_find(s, len);
		if (set < 0)
			return unknown_set(at, e);
		if (r->sets & 1u << set)
			return 0;
		r->sets |= 1u << set;
		*next = (struct policy_place){.is_set = true, .set = (enum netset)set};
	} else {
		*next = (struct policy_place){0};
		if (cidr_parse(s, len, &next->prefix, &inner) < 0)
			return spot_fail(at, e, inner.code, "%s%s", inner.msg, other_reading(s, len));
	}
	r->rule->place_count++;
	return 0;
}

static int read_to(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	struct reading *r = field;
	size_t n = written(v);

	(void)key;
	r->all->places += n;
	if (r->all->places > LIMIT_POLICY_PREFIXES)
		return spot_fail(at, e, E2BIG,
				 "makes more than %d places in the rules of one policy; a shorter prefix may hold several",
				 LIMIT_POLICY_PREFIXES);
	/* Each may be "any", which is two. */
	r->rule->places = calloc(2 * n + 1, sizeof *r->rule->places);
	if (!r->rule->places)
		return no_memory(at, e);
	return read_each(v, at, "write \"any\" for every address", read_place, r, e);
}

/* ---- protocol ---- */

static int read_protocol(const json_t *v, const struct spot *at, struct reading *r, struct err *e)
{
	static const struct range numbers = {0, 255};
	struct policy_rule *rule = r->rule;
	const char *s = json_string_value(v);
	uint64_t number;
	char list[120];
	size_t i;
	int rc;

	if (!s) {
		if (!json_is_integer(v))
			return spot_wrong_kind(at, e, "a protocol's name or number, or a list of them", v);
		rc = read_number(v, at, &numbers, &number, e);
		if (rc < 0)
			return rc;
	} else {
		for (i = 0; protocol_names[i].text && strcmp(protocol_names[i].text, s) != 0; i++)
			;
		if (!protocol_names[i].text && !strcmp(s, ANY))
			return spot_fail(at, e, EINVAL, "can't be \"any\"; leave \"protocol\" out for every protocol");
		words_list(list, sizeof list, protocol_names);
		if (!protocol_names[i].text)
			return spot_fail(at, e, EINVAL, "must be %s, or a number from 0 to 255", list);
		number = protocol_names[i].value;
	}
	if (!memchr(rule->protocols, (int)number, rule->protocol_count))
		rule->protocols[rule->protocol_count++] = (uint8_t)number;
	return 0;
}

static int read_protocols(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	struct reading *r = field;

	(void)key;
	if (written(v) > LIMIT_POLICY_PROTOCOLS)
		return spot_fail(at, e, E2BIG, "has %zu protocols; one rule may have %d", written(v), LIMIT_POLICY_PROTOCOLS);
	r->rule->protocols = calloc(LIMIT_POLICY_PROTOCOLS, sizeof *r->rule->protocols);
	if (!r->rule->protocols)
		return no_memory(at, e);
	return read_each(v, at, "leave it out for every protocol", read_protocol, r, e);
}

/* ---- ports ---- */

static bool read_port(const char **s, uint16_t *ret)
{
	unsigned v = 0, digits = 0;

	for (; **s >= '0' && **s <= '9' && digits < 6; digits++)
		v = v * 10 + (unsigned)(*(*s)++ - '0');
	*ret = (uint16_t)v;
	return digits > 0 && v <= 65535;
}

static int read_port_range(const json_t *v, const struct spot *at, struct policy_ports *ret, struct err *e)
{
	static const struct range numbers = {0, 65535};
	const char *s = json_string_value(v);
	uint64_t number;
	int rc;

	if (!s) {
		if (!json_is_integer(v))
			return spot_wrong_kind(at, e, "a port, a range such as \"8000-8999\", or a list of them", v);
		rc = read_number(v, at, &numbers, &number, e);
		if (rc == 0)
			ret->lo = ret->hi = (uint16_t)number;
		return rc;
	}
	if (!read_port(&s, &ret->lo))
		return spot_fail(at, e, EINVAL, "must be a port, or a range such as \"8000-8999\", within 0 to 65535");
	if (!*s)
		return spot_fail(at, e, EINVAL, "must be a range such as \"8000-8999\"; write the one port %u without quotes",
				 (unsigned)ret->lo);
	if (*s++ != '-' || !read_port(&s, &ret->hi) || *s)
		return spot_fail(at, e, EINVAL, "must be a port, or a range such as \"8000-8999\", within 0 to 65535");
	if (ret->lo > ret->hi)
		return spot_fail(at, e, EINVAL, "is backwards; write \"%u-%u\"", (unsigned)ret->hi, (unsigned)ret->lo);
	return 0;
}

static int read_port_element(const json_t *v, const struct spot *at, struct reading *r, struct err *e)
{
	struct policy_rule *rule = r->rule;
	struct policy_ports ports = {0};
	int rc = read_port_range(v, at, &ports, e);

	for (size_t i = 0; rc == 0 && i < rule->port_count; i++)
		if (rule->ports[i].lo == ports.lo && rule->ports[i].hi == ports.hi)
			return 0;
	if (rc == 0)
		rule->ports[rule->port_count++] = ports;
	return rc;
}

static int read_ports(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	struct reading *r = field;
	char buf[NETPROTO_TEXT_MAX];

	(void)key;
	if (r->rule->protocol_count == 0)
		return spot_fail(at, e, EINVAL, "needs \"protocol\": only tcp, udp, udplite, sctp and dccp have ports");
	for (size_t i = 0; i < r->rule->protocol_count; i++)
		if (!netproto_has_port(r->rule->protocols[i]))
			return spot_fail(at, e, EINVAL, "can't be: %s has no ports; give it a rule of its own",
					 netproto_text(buf, r->rule->protocols[i]));
	if (written(v) > LIMIT_POLICY_PORTS)
		return spot_fail(at, e, E2BIG, "has %zu port ranges; one rule may have %d", written(v), LIMIT_POLICY_PORTS);
	r->rule->ports = calloc(LIMIT_POLICY_PORTS, sizeof *r->rule->ports);
	if (!r->rule->ports)
		return no_memory(at, e);
	return read_each(v, at, "leave it out for every port", read_port_element, r, e);
}

/* ---- a rule ---- */

static int read_rule_name(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	return read_name(v, at, key, ((struct reading *)field)->rule->name, e);
}

static int read_rule_verdict(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	return read_word(v, at, key, &((struct reading *)field)->rule->verdict, e);
}

/* Ports come last: they depend on the protocol. */
static const struct key rule_keys[] = {
    {"name", false, read_rule_name, 0, NULL}, {"verdict", true, read_rule_verdict, 0, verdicts},
    {"to", true, read_to, 0, NULL},	      {"protocol", false, read_protocols, 0, NULL},
    {"ports", false, read_ports, 0, NULL},
};

struct named {
	const char *name;
	size_t index;
};

static int compare_named(const void *a, const void *b)
{
	const struct named *x = a, *y = b;
	int rc = strcmp(x->name, y->name);

	return rc ? rc : x->index < y->index ? -1 : 1;
}

static int second_of_name(const json_t *list, const struct spot *at, const struct named *first, const struct named *second,
			  struct err *e)
{
	/* A default name is no mistake: then the other rule's written one is. */
	bool written_name = json_object_get(json_array_get(list, second->index), "name") != NULL;
	const struct named *guilty = written_name ? second : first, *other = written_name ? first : second;
	struct spot rule = {.up = at, .index = guilty->index}, name = {.up = &rule, .key = "name"};

	return spot_fail(
	    &name, e, EINVAL,
	    "is the name of rule %zu too; names of rules are unique (a rule without one is \"rule-\" and its number)",
	    other->index + 1);
}

static int check_unique(const json_t *list, const struct spot *at, const struct policy_rule *rules, size_t count, struct err *e)
{
	struct named *names = calloc(count + 1, sizeof *names);
	int rc = 0;

	if (!names)
		return no_memory(at, e);
	for (size_t i = 0; i < count; i++)
		names[i] = (struct named){rules[i].name, i};
	qsort(names, count, sizeof *names, compare_named);
	for (size_t i = 1; rc == 0 && i < count; i++)
		if (!strcmp(names[i - 1].name, names[i].name))
			rc = second_of_name(list, at, &names[i - 1], &names[i], e);
	free(names);
	return rc;
}

void policy_free_rules(struct policy_rule *rules, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		free(rules[i].places);
		free(rules[i].protocols);
		free(rules[i].ports);
	}
	free(rules);
}

int policy_read_rules(const json_t *v, const struct spot *at, const struct key *key, void *field, struct err *e)
{
	struct policy *p = field;
	struct rules all = {0};

	(void)key;
	if (!json_is_array(v))
		return spot_wrong_kind(at, e, "a list of rules", v);
	if (json_array_size(v) > LIMIT_POLICY_RULES)
		return spot_fail(at, e, E2BIG, "has %zu rules; one policy may have %d", json_array_size(v), LIMIT_POLICY_RULES);
	p->rules = calloc(json_array_size(v) + 1, sizeof *p->rules);
	if (!p->rules)
		return no_memory(at, e);
	for (size_t i = 0; i < json_array_size(v); i++) {
		struct reading r = {.rule = &p->rules[p->rule_count++], .all = &all};
		struct spot here = {.up = at, .index = i};
		int rc;

		snprintf(r.rule->name, sizeof r.rule->name, "rule-%zu", i + 1);
		rc = read_object(json_array_get(v, i), &here, "a rule", rule_keys, READ_COUNT(rule_keys), &r, e);
		if (rc < 0)
			return rc;
	}
	return check_unique(v, at, p->rules, p->rule_count, e);
}
