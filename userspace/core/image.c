/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiling: every rule becomes (prefix, rule) pairs, the pairs are sorted, and each distinct prefix gets one list: its own
 * atoms, then the list of the closest prefix around it, which is complete by then because it sorts before it.
 */
#include "core/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/image_priv.h"

/* A place of a rule, once for each prefix it stands for. `rule` counts from 0; NO_RULE only makes the prefix be there. */
struct pair {
	struct weir_prefix prefix;
	uint32_t rule;
};
#define NO_RULE UINT32_MAX

/* A prefix under way: what is around the next ones. */
struct open_prefix {
	uint32_t prefix, list;
};
#define OPEN_MAX 130 /* as deep as prefixes of one family can nest */

struct compiler {
	const struct policy *policy;
	const struct policy_env *env;
	struct pair *pairs;
	size_t pair_count, pair_room;
	struct cidr *rows; /* netset_rows, parsed; one for one */
	struct policy_image *image;
	size_t list_room;
	uint32_t *buckets; /* of lists by hash: index + 1, or 0 */
	size_t bucket_count;
	struct weir_atom *own; /* of the prefix at hand */
	size_t own_room;
	struct err *err;
};

static int no_memory(struct err *e)
{
	return err_set(e, ENOMEM, "", "no memory for the compiled policy");
}

static int compare_pairs(const void *x, const void *y)
{
	const struct pair *a = x, *b = y;
	int order = image_compare_prefix(&a->prefix, &b->prefix);

	return order ? order : a->rule < b->rule ? -1 : a->rule > b->rule;
}

static struct weir_prefix prefix_of(const struct cidr *c)
{
	struct weir_prefix p = {.len = WEIR_PREFIX_FAMILY_BITS + c->len, .family = {0, 0, 0, c->family}};

	if (c->family == 4)
		memcpy(p.addr, c->addr + 12, 4);
	else
		memcpy(p.addr, c->addr, 16);
	return p;
}

static bool prefix_holds(const struct weir_prefix *outer, const struct weir_prefix *inner)
{
	unsigned bits = outer->len - WEIR_PREFIX_FAMILY_BITS, whole = bits / 8, rest = bits % 8;

	if (outer->len > inner->len || outer->family[3] != inner->family[3] || memcmp(outer->addr, inner->addr, whole) != 0)
		return false;
	return rest == 0 || (outer->addr[whole] ^ inner->addr[whole]) >> (8 - rest) == 0;
}

/* ---- places to pairs ---- */

static int add_pair(struct compiler *c, const struct cidr *prefix, uint32_t rule)
{
	if (c->pair_count == c->pair_room) {
		size_t room = c->pair_room ? 2 * c->pair_room : 256;
		struct pair *more = reallocarray(c->pairs, room, sizeof *more);

		if (!more)
			return no_memory(c->err);
		c->pairs = more;
		c->pair_room = room;
	}
	c->pairs[c->pair_count++] = (struct pair){.prefix = prefix_of(prefix), .rule = rule};
	return 0;
}

static int add_prefixes(struct compiler *c, const struct cidr *prefixes, size_t count, uint32_t rule)
{
	int rc = 0;

	for (size_t i = 0; i < count && rc == 0; i++)
		rc = add_pair(c, &prefixes[i], rule);
	return rc;
}

static int parse_rows(struct compiler *c)
{
	c->rows = calloc(netset_row_count + 1, sizeof *c->rows);
	if (!c->rows)
		return no_memory(c->err);
	for (size_t i = 0; i < netset_row_count; i++)
		if (cidr_parse(netset_rows[i].prefix, strlen(netset_rows[i].prefix), &c->rows[i], c->err) < 0)
			return err_wrap(c->err, "%s in the table of named sets", netset_rows[i].prefix);
	return 0;
}

static int add_set(struct compiler *c, enum netset set, uint32_t rule)
{
	int rc = 0;

	if (set == NETSET_HOST)
		return c->env ? add_prefixes(c, c->env->hosts, c->env->host_count, rule) : 0;
	if (set == NETSET_RESOLVER)
		return c->env ? add_prefixes(c, c->env->resolvers, c->env->resolver_count, rule) : 0;
	if (!c->rows)
		rc = parse_rows(c);
	for (size_t i = 0; i < netset_row_count && rc == 0; i++)
		if (netset_rows[i].set == set)
			rc = add_pair(c, &c->rows[i], rule);
	return rc;
}

static int add_rules(struct compiler *c)
{
	static const struct cidr everything[2] = {{.addr = {[10] = 0xff, 0xff}, .family = 4}, {.family = 6}};
	const struct policy *p = c->policy;
	int rc = add_prefixes(c, everything, 2, NO_RULE);

	for (uint32_t i = 0; i < p->rule_count; i++) {
		const struct policy_rule *r = &p->rules[i];

		for (size_t k = 0; k < r->place_count && rc == 0; k++)
			rc = r->places[k].is_set ? add_set(c, r->places[k].set, i) : add_pair(c, &r->places[k].prefix, i);
	}
	return rc;
}

/* ---- the atoms of one prefix ---- */

static uint32_t ports_in(const struct weir_atom *a)
{
	return a->flags & WEIR_ATOM_ANY_PORT ? 65536 : a->port_hi - a->port_lo + 1u;
}

/* The rule for ties within a prefix: what is more particular first, then what is stricter, then what was written earlier. */
static int compare_atoms(const void *x, const void *y)
{
	const struct weir_atom *a = x, *b = y;
	bool any_a = a->flags & WEIR_ATOM_ANY_PROTOCOL, any_b = b->flags & WEIR_ATOM_ANY_PROTOCOL;

	if (any_a != any_b)
		return any_a ? 1 : -1;
	if (ports_in(a) != ports_in(b))
		return ports_in(a) < ports_in(b) ? -1 : 1;
	if (a->verdict != b->verdict)
		return a->verdict == WEIR_DENY ? -1 : 1;
	if (a->rule != b->rule)
		return a->rule < b->rule ? -1 : 1;
	/* Of one rule and equally wide: no two of them match the same destination or it does not matter. Any fixed order. */
	if (a->protocol != b->protocol)
		return a->protocol < b->protocol ? -1 : 1;
	return a->port_lo < b->port_lo ? -1 : a->port_lo > b->port_lo;
}

/*
 * Whether `later` can never be reached behind `a`. Not when a range that allows stands before what denies: of a fragment whose
 * port nobody sees only the second is true (weir_atom_matches()).
 */
static bool covers(const struct weir_atom *a, const struct weir_atom *later)
{
	if (!(a->flags & WEIR_ATOM_ANY_PROTOCOL) && ((later->flags & WEIR_ATOM_ANY_PROTOCOL) || a->protocol != later->protocol))
		return false;
	if (a->flags & WEIR_ATOM_ANY_PORT)
		return true;
	if (later->flags & WEIR_ATOM_ANY_PORT)
		return a->verdict == WEIR_DENY && a->port_lo == 0 && a->port_hi == UINT16_MAX;
	return a->port_lo <= later->port_lo && later->port_hi <= a->port_hi &&
	       (a->verdict == WEIR_DENY || later->verdict == WEIR_ALLOW);
}

static int add_own(struct compiler *c, size_t *count, struct weir_atom a)
{
	if (*count == c->own_room) {
		size_t room = c->own_room ? 2 * c->own_room : 64;
		struct weir_atom *more = reallocarray(c->own, room, sizeof *more);

		if (!more)
			return no_memory(c->err);
		c->own = more;
		c->own_room = room;
	}
	c->own[(*count)++] = a;
	return 0;
}

static int add_rule_atoms(struct compiler *c, size_t *count, uint32_t rule)
{
	const struct policy_rule *r = &c->policy->rules[rule];
	struct weir_atom a = {.rule = (uint16_t)(rule + 1), .port_hi = UINT16_MAX, .verdict = r->verdict};
	int rc = 0;

	if (!r->protocol_count)
		a.flags |= WEIR_ATOM_ANY_PROTOCOL;
	if (!r->port_count)
		a.flags |= WEIR_ATOM_ANY_PORT;
	for (size_t i = 0; i < (r->protocol_count ? r->protocol_count : 1) && rc == 0; i++) {
		if (r->protocol_count)
			a.protocol = r->protocols[i];
		for (size_t k = 0; k < (r->port_count ? r->port_count : 1) && rc == 0; k++) {
			if (r->port_count) {
				a.port_lo = r->ports[k].lo;
				a.port_hi = r->ports[k].hi;
			}
			rc = add_own(c, count, a);
		}
	}
	return rc;
}

/* ---- lists ---- */

/* Appends what can be reached at all. Nothing behind an atom that always matches can: that is what makes lists short. */
static int append(struct compiler *c, struct weir_list *list, const struct weir_atom *atoms, size_t count,
		  const struct weir_prefix *prefix)
{
	for (size_t i = 0; i < count; i++) {
		bool covered = false;

		for (uint32_t k = 0; k < list->count && !covered; k++)
			covered = covers(&list->atoms[k], &atoms[i]);
		if (covered)
			continue;
		if (list->count == WEIR_LIST_ATOMS) {
			struct cidr at = {.family = prefix->family[3], .len = (uint8_t)(prefix->len - WEIR_PREFIX_FAMILY_BITS)};
			char text[CIDR_TEXT_MAX], where[32];

			memcpy(at.addr + (at.family == 4 ? 12 : 0), prefix->addr, at.family == 4 ? 4 : 16);
			if (at.family == 4)
				at.addr[10] = at.addr[11] = 0xff;
			cidr_text(text, &at, false);
			snprintf(where, sizeof where, "/rules/%u", atoms[i].rule - 1u);
			return err_set(
			    c->err, E2BIG, where,
			    "more than %d pairs of protocol and port range hold for addresses in %s, from rules for it and for "
			    "prefixes around it; wider port ranges or fewer rules there would do",
			    WEIR_LIST_ATOMS, text);
		}
		list->atoms[list->count++] = atoms[i];
	}
	return 0;
}

static uint32_t hash_list(const struct weir_list *list)
{
	const uint8_t *p = (const uint8_t *)list->atoms;
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < list->count * sizeof *list->atoms; i++)
		h = (h ^ p[i]) * 16777619u;
	return h ^ h >> 16;
}

/* The index of a list like this one, which is kept when it is new. Unused atoms are zeros, so that whole lists compare. */
static int keep_list(struct compiler *c, const struct weir_list *list, uint32_t *ret)
{
	struct policy_image *img = c->image;
	size_t at = hash_list(list) & (c->bucket_count - 1);

	for (; c->buckets[at]; at = (at + 1) & (c->bucket_count - 1))
		if (!memcmp(&img->lists[c->buckets[at] - 1], list, sizeof *list)) {
			*ret = c->buckets[at] - 1;
			return 0;
		}
	if (img->list_count == WEIR_LISTS_MAX)
		return err_set(c->err, E2BIG, "/rules", "the rules make more than %d different lists", WEIR_LISTS_MAX);
	if (img->list_count == c->list_room) {
		size_t room = c->list_room ? 2 * c->list_room : 16;
		struct weir_list *more = reallocarray(img->lists, room, sizeof *more);

		if (!more)
			return no_memory(c->err);
		img->lists = more;
		c->list_room = room;
	}
	img->lists[img->list_count++] = *list;
	*ret = c->buckets[at] = (uint32_t)img->list_count;
	--*ret;
	return 0;
}

/* The pairs from `from` on that are of one prefix: sorts their atoms, adds those around it. Returns how many pairs, or -errno.
 */
static int compile_prefix(struct compiler *c, size_t from, const struct weir_list *around, uint32_t *ret_list)
{
	const struct weir_prefix *prefix = &c->pairs[from].prefix;
	struct weir_list list;
	size_t count = 0, i;
	int rc = 0;

	memset(&list, 0, sizeof list);
	for (i = from; i < c->pair_count && rc == 0 && !image_compare_prefix(&c->pairs[i].prefix, prefix); i++)
		if (c->pairs[i].rule != NO_RULE && (i == from || c->pairs[i].rule != c->pairs[i - 1].rule))
			rc = add_rule_atoms(c, &count, c->pairs[i].rule);
	if (count)
		qsort(c->own, count, sizeof *c->own, compare_atoms);
	if (rc == 0 && count)
		rc = append(c, &list, c->own, count, prefix);
	if (rc == 0 && around)
		rc = append(c, &list, around->atoms, around->count, prefix);
	if (rc == 0)
		rc = keep_list(c, &list, ret_list);
	return rc < 0 ? rc : (int)(i - from);
}

static int compile_prefixes(struct compiler *c)
{
	struct open_prefix open[OPEN_MAX];
	struct policy_image *img = c->image;
	size_t depth = 0;
	int used;

	for (size_t at = 0; at < c->pair_count; at += (size_t)used) {
		struct weir_prefix *prefix = &img->prefixes[img->prefix_count];
		struct weir_list around;
		uint32_t list = 0;

		*prefix = c->pairs[at].prefix;
		while (depth && !prefix_holds(&img->prefixes[open[depth - 1].prefix], prefix))
			depth--;
		/* A copy: keeping a list may move them all. */
		if (depth)
			around = img->lists[open[depth - 1].list];
		used = compile_prefix(c, at, depth ? &around : NULL, &list);
		if (used < 0)
			return used;
		img->list_of[img->prefix_count] = list;
		open[depth++] = (struct open_prefix){.prefix = (uint32_t)img->prefix_count++, .list = list};
	}
	return 0;
}

static size_t count_prefixes(const struct compiler *c)
{
	size_t n = 1;

	for (size_t i = 1; i < c->pair_count; i++)
		n += image_compare_prefix(&c->pairs[i].prefix, &c->pairs[i - 1].prefix) != 0;
	return n;
}

/* ---- all of it ---- */

static struct weir_image head_of(const struct policy *p)
{
	const struct {
		bool on;
		uint32_t flag;
	} flags[] = {
	    {p->monitor, WEIR_IMG_MONITOR},	{p->ipv4_options, WEIR_IMG_OPTIONS}, {p->routing_headers, WEIR_IMG_ROUTING},
	    {p->fragments, WEIR_IMG_FRAGMENTS}, {p->inbound, WEIR_IMG_INBOUND},	     {!p->list_allowed, WEIR_IMG_QUIET_ALLOW},
	};
	struct weir_image head;

	memset(&head, 0, sizeof head);
	head.present = 1;
	head.sockets_max = p->limits.datagram_sockets ? p->limits.datagram_sockets : WEIR_SOCKETS_PER_SANDBOX;
	head.default_verdict = p->default_verdict;
	head.loopback = p->loopback;
	head.nat64_count = (uint8_t)p->nat64_count;
	memcpy(head.nat64, p->nat64, p->nat64_count * sizeof *p->nat64);
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
		if (flags[i].on)
			head.flags |= flags[i].flag;
	return head;
}

static int compile(struct compiler *c)
{
	size_t count;
	int rc = add_rules(c);

	if (rc < 0)
		return rc;
	/* There are two at least, which clang-tidy can't see. */
	if (!c->pairs)
		return err_set(c->err, EINVAL, "", "no prefixes");
	qsort(c->pairs, c->pair_count, sizeof *c->pairs, compare_pairs);
	count = count_prefixes(c);
	if (count > WEIR_PREFIXES_MAX)
		return err_set(c->err, E2BIG, "/rules", "the rules name %zu different prefixes; at most %d fit", count,
			       WEIR_PREFIXES_MAX);
	/* Never more than half full. */
	for (c->bucket_count = 16; c->bucket_count < 2 * count; c->bucket_count *= 2)
		;
	c->buckets = calloc(c->bucket_count, sizeof *c->buckets);
	c->image->prefixes = calloc(count, sizeof *c->image->prefixes);
	c->image->list_of = calloc(count, sizeof *c->image->list_of);
	if (!c->buckets || !c->image->prefixes || !c->image->list_of)
		return no_memory(c->err);
	return compile_prefixes(c);
}

int image_compile(const struct policy *p, const struct policy_env *env, struct policy_image **ret, struct err *e)
{
	struct compiler c = {.policy = p, .env = env, .err = e};
	int rc;

	c.image = calloc(1, sizeof *c.image);
	if (!c.image)
		return no_memory(e);
	c.image->head = head_of(p);
	rc = compile(&c);
	free(c.pairs);
	free(c.rows);
	free(c.buckets);
	free(c.own);
	if (rc == 0)
		*ret = TAKE_PTR(c.image);
	image_free(c.image);
	return rc;
}

struct policy_image *image_free(struct policy_image *img)
{
	if (img) {
		free(img->prefixes);
		free(img->list_of);
		free(img->lists);
		free(img);
	}
	return NULL;
}

/* Lists are numbered as they are met, so equal contents are equal bytes. */
bool image_equal(const struct policy_image *a, const struct policy_image *b)
{
	return !memcmp(&a->head, &b->head, sizeof a->head) && a->prefix_count == b->prefix_count &&
	       a->list_count == b->list_count && !memcmp(a->prefixes, b->prefixes, a->prefix_count * sizeof *a->prefixes) &&
	       !memcmp(a->list_of, b->list_of, a->prefix_count * sizeof *a->list_of) &&
	       !memcmp(a->lists, b->lists, a->list_count * sizeof *a->lists);
}
