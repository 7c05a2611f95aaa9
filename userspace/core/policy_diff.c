/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The edges of all prefixes of both images cut the addresses into spans within which neither image makes a difference. For each
 * span the edges of the port ranges of its two lists do the same to the ports, and of every such cell one member is judged.
 * What it says holds for the cell, so that nothing is sampled.
 */
#include "core/policy_diff.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/netaddr.h"
#include "core/policy_diff_priv.h"
#include "verdict.h"

#define PORTS 65536u
/* Lists that say something of one address: of each image one, and for an unspecified address the loopback address's as well. */
#define LISTS_MAX 4
/* Each of their atoms makes two edges at most, and each protocol one cell more and one for its fragments. */
#define CELLS_MAX (LISTS_MAX * WEIR_LIST_ATOMS * 4 + 8)
#define EDGES_MAX (LISTS_MAX * WEIR_LIST_ATOMS * 2 + 2)
#define NOTHING UINT32_MAX

/* Addresses that `loopback` is about, and that edges must go around whatever the prefixes are. */
enum special { ORDINARY, LOOPBACK, UNSPECIFIED };
static const struct {
	uint8_t family, special;
	address lo, hi;
} specials[] = {
    {4, UNSPECIFIED, 0, 0},
    {4, LOOPBACK, 127u << 24, (127u << 24) + 0xffffff},
    {6, UNSPECIFIED, 0, 0},
    {6, LOOPBACK, 1, 1},
};
#define SPECIALS (sizeof specials / sizeof *specials)

/* What is known of a pair of lists: a slice of `kinds`. */
struct memo {
	uint32_t old_list, new_list;
	uint32_t at, count;
};

struct differ {
	const struct policy_side *old, *new;
	struct policy_diff *out;
	address *edges;
	size_t edge_count;
	uint32_t *kinds; /* indices into out->changes */
	size_t kind_count, kind_room;
	struct memo *memos;    /* open addressing; .at == NOTHING: free */
	uint32_t *change_slot; /* of changes by their kind; index + 1, or 0 */
	size_t memo_slots, memo_count, change_slots;
	struct err *err;
};

static int no_memory(struct err *e)
{
	return err_set(e, ENOMEM, "", "no memory to compare the policies");
}

static uint64_t hash_bytes(const void *data, size_t len)
{
	const uint8_t *p = data;
	uint64_t h = 14695981039346656037u;

	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * 1099511628211u;
	return h ^ h >> 32;
}

/* Room for one more in an array that grows. */
static int grow(void *array, size_t count, size_t *room, size_t size, struct err *e)
{
	void **at = array, *more;

	if (count < *room)
		return 0;
	more = reallocarray(*at, *room ? 2 * *room : 16, size);
	if (!more)
		return no_memory(e);
	*at = more;
	*room = *room ? 2 * *room : 16;
	return 0;
}

/* ---- edges ---- */

static address number_of(const uint8_t *addr, size_t bytes)
{
	address a = 0;

	for (size_t i = 0; i < bytes; i++)
		a = a << 8 | addr[i];
	return a;
}

static int compare_edges(const void *x, const void *y)
{
	const address *a = x, *b = y;

	return *a < *b ? -1 : *a > *b;
}

/* Where a span begins, and where the next one does: nowhere after the very last address. */
static void add_edges(struct differ *d, uint8_t family, address lo, address hi)
{
	address last = family == 4 ? UINT32_MAX : ~(address)0;

	d->edges[d->edge_count++] = lo;
	if (hi != last)
		d->edges[d->edge_count++] = hi + 1;
}

static void add_image_edges(struct differ *d, const struct policy_image *img, uint8_t family)
{
	unsigned bits = family == 4 ? 32 : 128;

	for (size_t i = 0; i < img->prefix_count; i++) {
		const struct weir_prefix *p = &img->prefixes[i];
		unsigned rest = bits - (p->len - WEIR_PREFIX_FAMILY_BITS);
		address lo;

		if (p->family[3] != family)
			continue;
		lo = number_of(p->addr, bits / 8);
		add_edges(d, family, lo, rest == 128 ? ~(address)0 : lo | (((address)1 << rest) - 1));
	}
}

static int find_edges(struct differ *d, uint8_t family)
{
	size_t room = 2 * (d->old->image->prefix_count + d->new->image->prefix_count + SPECIALS), n = 0;

	free(d->edges);
	d->edge_count = 0;
	d->edges = calloc(room, sizeof *d->edges);
	if (!d->edges)
		return no_memory(d->err);
	add_image_edges(d, d->old->image, family);
	add_image_edges(d, d->new->image, family);
	for (size_t i = 0; i < SPECIALS; i++)
		if (specials[i].family == family)
			add_edges(d, family, specials[i].lo, specials[i].hi);
	qsort(d->edges, d->edge_count, sizeof *d->edges, compare_edges);
	for (size_t i = 0; i < d->edge_count; i++)
		if (i == 0 || d->edges[i] != d->edges[n - 1])
			d->edges[n++] = d->edges[i];
	d->edge_count = n;
	return 0;
}

/* ---- one span ---- */

/* A member of a span, and how it is to be judged. */
struct sample {
	struct cidr addr;
	enum special special;
	bool carried;
};

static void put_number(uint8_t *ret, size_t bytes, address a)
{
	for (size_t i = bytes; i-- > 0; a >>= 8)
		ret[i] = (uint8_t)a;
}

static struct sample sample_of(uint8_t family, address a, bool carried)
{
	struct sample s = {.addr = {.family = family, .len = family == 4 ? 32 : 128}, .carried = carried};

	if (family == 4)
		s.addr.addr[10] = s.addr.addr[11] = 0xff;
	put_number(s.addr.addr + (family == 4 ? 12 : 0), family == 4 ? 4 : 16, a);
	for (size_t i = 0; i < SPECIALS && !carried; i++)
		if (specials[i].family == family && specials[i].lo <= a && a <= specials[i].hi)
			s.special = specials[i].special;
	return s;
}

/* Ordinary addresses by the rules alone: what an IPv6 address carries is compared where it is written. */
static uint32_t judge(const struct policy_image *img, const struct sample *s, struct weir_dest *d)
{
	memcpy(d->addr, s->addr.addr, sizeof d->addr);
	d->family = s->addr.family;
	if (s->special == UNSPECIFIED || (s->special == LOOPBACK && img->head.loopback != WEIR_LOOPBACK_RULES))
		return image_judge(img, d);
	return image_judge_rules(img, &s->addr, d);
}

static uint16_t by(uint32_t j)
{
	return weir_reason_of(j) == WEIR_REASON_RULE	   ? weir_rule_of(j)
	       : weir_reason_of(j) == WEIR_REASON_LOOPBACK ? BY_LOOPBACK
							   : BY_DEFAULT;
}

/* Of the address itself, or of the one that it stands for. */
static uint32_t list_index(const struct policy_image *img, const struct sample *s, uint8_t via)
{
	struct weir_dest d = {.family = s->addr.family};
	const struct weir_prefix *p;

	memcpy(d.addr, s->addr.addr, sizeof d.addr);
	p = image_prefix_of(img, &d, via);
	return p ? img->list_of[p - img->prefixes] : 0;
}

struct lists {
	const struct weir_list *list[LISTS_MAX];
	int count;
};

static struct lists lists_of(const struct differ *d, const struct sample *s)
{
	const struct policy_image *images[2] = {d->old->image, d->new->image};
	struct lists l = {.count = 0};

	for (int i = 0; i < 2; i++) {
		l.list[l.count++] = &images[i]->lists[list_index(images[i], s, WEIR_VIA_NONE)];
		if (s->special == UNSPECIFIED)
			l.list[l.count++] = &images[i]->lists[list_index(images[i], s, WEIR_VIA_UNSPECIFIED)];
	}
	return l;
}

/* The cells of one span that change. */
struct cells {
	struct change_kind kinds[CELLS_MAX];
	size_t count;
};

/* Everything but the protocols: cells that agree in it are one. */
static bool same_but_protocols(const struct change_kind *a, const struct change_kind *b)
{
	return !memcmp(&a->lo, &b->lo, sizeof *a - offsetof(struct change_kind, lo));
}

static void add_cell(struct cells *cells, const struct change_kind *kind)
{
	for (size_t i = 0; i < cells->count; i++)
		if (same_but_protocols(&cells->kinds[i], kind)) {
			for (int k = 0; k < 4; k++)
				cells->kinds[i].protocols[k] |= kind->protocols[k];
			return;
		}
	cells->kinds[cells->count++] = *kind;
}

/* Judges one cell by both; false when nothing changes there. `kind` has the protocols. */
static bool judge_cell(const struct differ *d, const struct sample *s, uint8_t protocol, uint16_t port, bool fragments,
		       struct change_kind *kind)
{
	struct weir_dest dest = {.port = port, .protocol = protocol, .flags = fragments ? WEIR_DEST_HEADLESS : 0};
	uint32_t old = judge(d->old->image, s, &dest), new = judge(d->new->image, s, &dest);

	if (weir_verdict_of(old) == weir_verdict_of(new))
		return false;
	kind->old_by = by(old);
	kind->new_by = by(new);
	kind->reachable = weir_verdict_of(new) == WEIR_ALLOW;
	kind->fragments = fragments;
	kind->carried = s->carried;
	return true;
}

static int compare_u32(const void *x, const void *y)
{
	const uint32_t *a = x, *b = y;

	return *a < *b ? -1 : *a > *b;
}

/* The first ports of the cells, sorted, with PORTS behind the last. At least {0, PORTS}. */
static size_t port_edges(const struct lists *lists, uint8_t protocol, uint32_t ret[EDGES_MAX])
{
	size_t n = 0, kept = 0;

	ret[n++] = 0;
	ret[n++] = PORTS;
	for (int l = 0; l < lists->count; l++)
		for (uint32_t i = 0; i < lists->list[l]->count; i++) {
			const struct weir_atom *a = &lists->list[l]->atoms[i];

			if (a->protocol != protocol || a->flags)
				continue;
			ret[n++] = a->port_lo;
			ret[n++] = a->port_hi + 1u;
		}
	qsort(ret, n, sizeof *ret, compare_u32);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || ret[i] != ret[kept - 1])
			ret[kept++] = ret[i];
	return kept;
}

/* One protocol that stands for all in `protocols`. */
static void compare_protocol(const struct differ *d, const struct sample *s, const struct lists *lists, uint8_t protocol,
			     const uint64_t protocols[4], struct cells *cells)
{
	uint32_t edges[EDGES_MAX];
	struct change_kind run = {0}, kind;
	size_t count;
	bool open = false, whole = false;

	if (netproto_has_port(protocol)) {
		count = port_edges(lists, protocol, edges);
	} else {
		edges[0] = 0;
		edges[1] = PORTS;
		count = 2;
	}
	for (size_t i = 0; i + 1 < count; i++) {
		bool differs;

		memset(&kind, 0, sizeof kind);
		memcpy(kind.protocols, protocols, sizeof kind.protocols);
		differs = judge_cell(d, s, protocol, (uint16_t)edges[i], false, &kind);
		kind.lo = (uint16_t)edges[i];
		kind.hi = (uint16_t)(edges[i + 1] - 1);
		if (differs && open && run.hi + 1u == kind.lo && run.old_by == kind.old_by && run.new_by == kind.new_by &&
		    run.reachable == kind.reachable) {
			run.hi = kind.hi;
			continue;
		}
		if (open)
			add_cell(cells, &run);
		open = differs;
		run = kind;
	}
	if (open) {
		whole = run.lo == 0 && run.hi == UINT16_MAX;
		add_cell(cells, &run);
	}
	/* Of fragments only where both let them through, and not when it is what the whole protocol does. */
	if (!(d->old->image->head.flags & d->new->image->head.flags &WEIR_IMG_FRAGMENTS))
		return;
	memset(&kind, 0, sizeof kind);
	memcpy(kind.protocols, protocols, sizeof kind.protocols);
	kind.hi = UINT16_MAX;
	if (judge_cell(d, s, protocol, 0, true, &kind) && !(whole && run.reachable == kind.reachable))
		add_cell(cells, &kind);
}

static void compare_sample(const struct differ *d, const struct sample *s, struct cells *cells)
{
	struct lists lists = lists_of(d, s);
	uint64_t named[4] = {0}, others[4];
	int other = -1;

	cells->count = 0;
	for (int l = 0; l < lists.count; l++)
		for (uint32_t i = 0; i < lists.list[l]->count; i++) {
			const struct weir_atom *a = &lists.list[l]->atoms[i];

			if (!(a->flags & WEIR_ATOM_ANY_PROTOCOL))
				named[a->protocol / 64] |= 1ull << a->protocol % 64;
		}
	for (int k = 0; k < 4; k++)
		others[k] = ~named[k];
	for (int p = 0; p < 256; p++) {
		uint64_t one[4] = {0};

		if (!(named[p / 64] >> p % 64 & 1)) {
			if (other < 0)
				other = p;
			continue;
		}
		one[p / 64] = 1ull << p % 64;
		compare_protocol(d, s, &lists, (uint8_t)p, one, cells);
	}
	/* Lists are too short to name every protocol, so there is one that stands for the rest. */
	compare_protocol(d, s, &lists, (uint8_t)other, others, cells);
}

/* ---- collecting ---- */

static int rehash_changes(struct differ *d)
{
	size_t slots = d->change_slots ? 2 * d->change_slots : 64;
	uint32_t *table = calloc(slots, sizeof *table);

	if (!table)
		return no_memory(d->err);
	for (size_t i = 0; i < d->out->change_count; i++) {
		size_t at = hash_bytes(&d->out->changes[i].kind, sizeof(struct change_kind)) & (slots - 1);

		while (table[at])
			at = (at + 1) & (slots - 1);
		table[at] = (uint32_t)i + 1;
	}
	free(d->change_slot);
	d->change_slot = table;
	d->change_slots = slots;
	return 0;
}

static int find_change(struct differ *d, const struct change_kind *kind, uint32_t *ret)
{
	struct policy_diff *out = d->out;
	size_t at;
	int rc = 2 * (out->change_count + 1) > d->change_slots ? rehash_changes(d) : 0;

	if (rc == 0)
		rc = grow(&out->changes, out->change_count, &out->change_room, sizeof *out->changes, d->err);
	if (rc < 0)
		return rc;
	at = hash_bytes(kind, sizeof *kind) & (d->change_slots - 1);
	for (; d->change_slot[at]; at = (at + 1) & (d->change_slots - 1))
		if (!memcmp(&out->changes[d->change_slot[at] - 1].kind, kind, sizeof *kind)) {
			*ret = d->change_slot[at] - 1;
			return 0;
		}
	out->changes[out->change_count] = (struct change){.kind = *kind};
	*ret = (uint32_t)out->change_count++;
	d->change_slot[at] = *ret + 1;
	return 0;
}

static int remember_cells(struct differ *d, const struct cells *cells, struct memo *m)
{
	int rc = 0;

	m->at = (uint32_t)d->kind_count;
	m->count = (uint32_t)cells->count;
	for (size_t i = 0; i < cells->count && rc == 0; i++) {
		rc = grow(&d->kinds, d->kind_count, &d->kind_room, sizeof *d->kinds, d->err);
		if (rc == 0)
			rc = find_change(d, &cells->kinds[i], &d->kinds[d->kind_count]);
		if (rc == 0)
			d->kind_count++;
	}
	return rc;
}

static struct memo *memo_slot(struct memo *table, size_t slots, uint32_t old_list, uint32_t new_list)
{
	uint32_t pair[2] = {old_list, new_list};
	size_t at = hash_bytes(pair, sizeof pair) & (slots - 1);

	while (table[at].at != NOTHING && (table[at].old_list != old_list || table[at].new_list != new_list))
		at = (at + 1) & (slots - 1);
	return &table[at];
}

static int grow_memos(struct differ *d)
{
	size_t slots = d->memo_slots ? 2 * d->memo_slots : 256;
	struct memo *table = malloc(slots * sizeof *table);

	if (!table)
		return no_memory(d->err);
	for (size_t i = 0; i < slots; i++)
		table[i].at = NOTHING;
	for (size_t i = 0; i < d->memo_slots; i++)
		if (d->memos[i].at != NOTHING)
			*memo_slot(table, slots, d->memos[i].old_list, d->memos[i].new_list) = d->memos[i];
	free(d->memos);
	d->memos = table;
	d->memo_slots = slots;
	return 0;
}

/* What changes for a member of a span. Two lists say it all, unless the address is a special one. */
static int kinds_of(struct differ *d, const struct sample *s, struct memo *ret)
{
	uint32_t old_list = list_index(d->old->image, s, WEIR_VIA_NONE), new_list = list_index(d->new->image, s, WEIR_VIA_NONE);
	bool remember = s->special == ORDINARY && !s->carried;
	struct memo *slot = NULL;
	struct cells cells;
	int rc = 2 * (d->memo_count + 1) > d->memo_slots ? grow_memos(d) : 0;

	if (rc < 0)
		return rc;
	if (remember) {
		slot = memo_slot(d->memos, d->memo_slots, old_list, new_list);
		if (slot->at != NOTHING) {
			*ret = *slot;
			return 0;
		}
	}
	compare_sample(d, s, &cells);
	*ret = (struct memo){.old_list = old_list, .new_list = new_list};
	rc = remember_cells(d, &cells, ret);
	if (rc == 0 && remember) {
		*slot = *ret;
		d->memo_count++;
	}
	return rc;
}

static int add_span(struct differ *d, struct change *c, struct span span)
{
	struct span *last = c->span_count ? &c->spans[c->span_count - 1] : NULL;
	int rc;

	if (last && last->family == span.family && last->hi + 1 == span.lo) {
		last->hi = span.hi;
		return 0;
	}
	rc = grow(&c->spans, c->span_count, &c->span_room, sizeof *c->spans, d->err);
	if (rc < 0 || !c->spans)
		return rc;
	/* Zeros between the fields: spans are hashed and compared as bytes. */
	last = memset(&c->spans[c->span_count++], 0, sizeof *c->spans);
	last->lo = span.lo;
	last->hi = span.hi;
	last->family = span.family;
	return 0;
}

static int compare_span(struct differ *d, struct span span, bool carried)
{
	struct sample s = sample_of(span.family, span.lo, carried);
	struct memo m = {0};
	int rc = kinds_of(d, &s, &m);

	for (uint32_t i = 0; i < m.count && rc == 0; i++)
		rc = add_span(d, &d->out->changes[d->kinds[m.at + i]], span);
	return rc;
}

static int compare_family(struct differ *d, uint8_t family)
{
	address last = family == 4 ? UINT32_MAX : ~(address)0;
	int rc = find_edges(d, family);

	for (size_t i = 0; i < d->edge_count && rc == 0; i++) {
		struct span span = {d->edges[i], i + 1 < d->edge_count ? d->edges[i + 1] - 1 : last, family};

		rc = compare_span(d, span, false);
	}
	return rc;
}

/* Whether an address changes in the same way carried as it does written. */
static bool changes_alike(const struct differ *d, address a)
{
	struct sample s[2] = {sample_of(4, a, false), sample_of(4, a, true)};
	struct cells cells[2];

	for (int i = 0; i < 2; i++) {
		compare_sample(d, &s[i], &cells[i]);
		for (size_t k = 0; k < cells[i].count; k++)
			cells[i].kinds[k].carried = false;
	}
	return cells[0].count == cells[1].count &&
	       !memcmp(cells[0].kinds, cells[1].kinds, cells[0].count * sizeof *cells[0].kinds);
}

/*
 * Carried in an IPv6 address, loopback and unspecified addresses are judged by the rules for them and whatever `loopback` says:
 * where that changes otherwise than what is written, it is a change of its own.
 */
static int compare_carried(struct differ *d)
{
	int rc = find_edges(d, 4);

	for (size_t i = 0; i + 1 < d->edge_count && rc == 0; i++) {
		struct span span = {d->edges[i], d->edges[i + 1] - 1, 4};

		if (sample_of(4, span.lo, false).special != ORDINARY && !changes_alike(d, span.lo))
			rc = compare_span(d, span, true);
	}
	return rc;
}

/* ---- in order ---- */

static int compare_changes(const void *x, const void *y)
{
	const struct change *a = x, *b = y;
	const uint64_t keys[][2] = {
	    {!a->kind.reachable, !b->kind.reachable}, /* what opens comes first */
	    {a->kind.carried, b->kind.carried},	      {a->kind.new_by, b->kind.new_by},	      {a->kind.old_by, b->kind.old_by},
	    {a->spans_hash, b->spans_hash},	      {a->kind.fragments, b->kind.fragments},
	};

	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		if (keys[i][0] != keys[i][1])
			return keys[i][0] < keys[i][1] ? -1 : 1;
	/* Ranges of the same protocols side by side. */
	for (int k = 0; k < 4; k++)
		if (a->kind.protocols[k] != b->kind.protocols[k])
			return a->kind.protocols[k] < b->kind.protocols[k] ? -1 : 1;
	return a->kind.lo < b->kind.lo ? -1 : a->kind.lo > b->kind.lo;
}

bool change_joins(const struct change *a, const struct change *b)
{
	return a->kind.reachable == b->kind.reachable && a->kind.carried == b->kind.carried &&
	       a->kind.old_by == b->kind.old_by && a->kind.new_by == b->kind.new_by && a->span_count == b->span_count &&
	       !memcmp(a->spans, b->spans, a->span_count * sizeof *a->spans);
}

static void order(struct policy_diff *d)
{
	for (size_t i = 0; i < d->change_count; i++)
		d->changes[i].spans_hash =
		    hash_bytes(d->changes[i].spans, d->changes[i].span_count * sizeof *d->changes[i].spans);
	if (d->change_count)
		qsort(d->changes, d->change_count, sizeof *d->changes, compare_changes);
}

int policy_diff(const struct policy_side *old, const struct policy_side *new, struct policy_diff **ret, struct err *e)
{
	struct differ d = {.old = old, .new = new, .err = e};
	int rc;

	d.out = calloc(1, sizeof *d.out);
	if (!d.out)
		return no_memory(e);
	d.out->old = old->policy;
	d.out->new = new->policy;
	rc = compare_family(&d, 4);
	if (rc == 0)
		rc = compare_family(&d, 6);
	if (rc == 0)
		rc = compare_carried(&d);
	if (rc == 0)
		rc = policy_diff_settings(d.out, e);
	free(d.edges);
	free(d.kinds);
	free(d.memos);
	free(d.change_slot);
	if (rc < 0) {
		policy_diff_free(d.out);
		return rc;
	}
	order(d.out);
	*ret = d.out;
	return 0;
}

struct policy_diff *policy_diff_free(struct policy_diff *d)
{
	if (!d)
		return NULL;
	for (size_t i = 0; i < d->change_count; i++)
		free(d->changes[i].spans);
	free(d->changes);
	policy_diff_free_settings(d);
	free(d);
	return NULL;
}

bool policy_diff_empty(const struct policy_diff *d)
{
	return !d->change_count && !d->setting_count;
}
