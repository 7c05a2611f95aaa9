/* SPDX-License-Identifier: Apache-2.0 */
/* A difference in words: addresses as few prefixes with exceptions, ports and protocols as people write them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/netaddr.h"
#include "core/policy_diff_priv.h"

/* ---- addresses as prefixes ---- */

/* "PREFIX", or one of the exceptions from the last such. */
struct term {
	struct cidr prefix;
	bool except;
};

struct terms {
	struct term *list;
	size_t count, room;
	bool failed;
};

/* The addresses of one prefix, as part of a sorted list of spans. */
struct node {
	address lo;
	unsigned len, bits; /* of the prefix, and of the family */
	const struct span *spans;
	size_t count; /* that reach into it */
};

static address last_of(const struct node *n)
{
	unsigned rest = n->bits - n->len;

	return rest == 128 ? ~(address)0 : n->lo | (((address)1 << rest) - 1);
}

static bool is_full(const struct node *n)
{
	return n->count == 1 && n->spans->lo <= n->lo && last_of(n) <= n->spans->hi;
}

static struct node half(const struct node *n, int which)
{
	struct node h = *n;
	address hi;

	h.len++;
	if (which)
		h.lo |= (address)1 << (n->bits - h.len);
	hi = last_of(&h);
	while (h.count && h.spans->hi < h.lo) {
		h.spans++;
		h.count--;
	}
	while (h.count && h.spans[h.count - 1].lo > hi)
		h.count--;
	return h;
}

static void add_term(struct terms *t, const struct node *n, bool except)
{
	struct term *term;

	if (t->count == t->room) {
		struct term *more = reallocarray(t->list, t->room ? 2 * t->room : 16, sizeof *more);

		if (!more) {
			t->failed = true;
			return;
		}
		t->list = more;
		t->room = t->room ? 2 * t->room : 16;
	}
	term = &t->list[t->count++];
	*term = (struct term){.prefix = {.family = n->bits == 32 ? 4 : 6, .len = (uint8_t)n->len}, .except = except};
	if (n->bits == 32)
		term->prefix.addr[10] = term->prefix.addr[11] = 0xff;
	for (size_t i = 0, bytes = n->bits / 8; i < bytes; i++)
		term->prefix.addr[15 - i] = (uint8_t)(n->lo >> 8 * i);
}

static void add_exceptions(struct terms *t, const struct node *n)
{
	struct node h[2];

	if (!n->count) {
		add_term(t, n, true);
		return;
	}
	if (is_full(n))
		return;
	for (int i = 0; i < 2; i++) {
		h[i] = half(n, i);
		add_exceptions(t, &h[i]);
	}
}

/*
 * The fewest terms: for each prefix either the terms of its halves, or itself with all that is not in it as exceptions. Halves
 * are worked out first and thrown away when the exceptions are fewer. Returns how many exceptions that takes.
 */
static size_t describe(struct terms *t, const struct node *n)
{
	size_t before = t->count, exceptions = 0;

	if (!n->count)
		return 1;
	if (is_full(n)) {
		add_term(t, n, false);
		return 0;
	}
	for (int i = 0; i < 2; i++) {
		struct node h = half(n, i);

		exceptions += describe(t, &h);
	}
	/* A prefix with one exception is no simpler than two prefixes. */
	if (t->count - before > 2 && 1 + exceptions < t->count - before) {
		t->count = before;
		add_term(t, n, false);
		add_exceptions(t, n);
	}
	return exceptions;
}

static struct terms terms_of(const struct change *c)
{
	struct terms t = {0};

	for (int family = 4; family <= 6; family += 2) {
		struct node n = {.bits = family == 4 ? 32 : 128, .spans = c->spans, .count = c->span_count};

		while (n.count && n.spans->family != family) {
			n.spans++;
			n.count--;
		}
		while (n.count && n.spans[n.count - 1].family != family)
			n.count--;
		describe(&t, &n);
	}
	return t;
}

static void print_terms(FILE *out, const struct terms *t, size_t max)
{
	size_t shown = max && t->count > max ? max : t->count;
	bool excepting = false;

	for (size_t i = 0; i < shown; i++) {
		char text[CIDR_TEXT_MAX];

		cidr_text(text, &t->list[i].prefix, true);
		if (t->list[i].except)
			fputs(excepting ? ", " : " except ", out);
		else if (i)
			fputs(excepting ? "; " : ", ", out);
		excepting = t->list[i].except;
		fputs(text, out);
	}
	if (shown < t->count)
		fprintf(out, " … and %zu more", t->count - shown);
}

/* ---- protocols and ports ---- */

static unsigned count_protocols(const uint64_t set[4])
{
	unsigned n = 0;

	for (int k = 0; k < 4; k++)
		n += (unsigned)__builtin_popcountll(set[k]);
	return n;
}

/* Few are named; of many those that are missing. */
static void print_protocols(FILE *out, const uint64_t set[4])
{
	bool most = count_protocols(set) > 128;
	const char *before = "";

	if (count_protocols(set) == 256) {
		fputs("everything", out);
		return;
	}
	if (most)
		fputs("everything but ", out);
	for (unsigned p = 0; p < 256; p++) {
		char buf[NETPROTO_TEXT_MAX];

		if ((set[p / 64] >> p % 64 & 1) == most)
			continue;
		fprintf(out, "%s%s", before, netproto_text(buf, (uint8_t)p));
		before = "/";
	}
}

static bool all_ports(const struct change_kind *k)
{
	return k->lo == 0 && k->hi == UINT16_MAX;
}

static void print_range(FILE *out, const struct change_kind *k)
{
	if (k->lo == k->hi)
		fprintf(out, "%u", k->lo);
	else
		fprintf(out, "%u-%u", k->lo, k->hi);
}

/* "tcp/udp 53, 443; fragments of udp". */
static void print_what(FILE *out, const struct change *c, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct change_kind *k = &c[i].kind, *before = i ? &c[i - 1].kind : NULL;

		if (before && before->fragments == k->fragments &&
		    !memcmp(before->protocols, k->protocols, sizeof k->protocols)) {
			fputs(", ", out);
			print_range(out, k);
			continue;
		}
		fputs(before ? "; " : "", out);
		if (k->fragments)
			fputs("fragments of ", out);
		print_protocols(out, k->protocols);
		if (!all_ports(k)) {
			fputc(' ', out);
			print_range(out, k);
		}
	}
}

/* ---- lines ---- */

static const char *rule_name(const struct policy *p, uint16_t rule)
{
	return rule && rule <= p->rule_count ? p->rules[rule - 1].name : NULL;
}

static bool has_rule(const struct policy *p, const char *name)
{
	for (size_t i = 0; i < p->rule_count; i++)
		if (!strcmp(p->rules[i].name, name))
			return true;
	return false;
}

static void print_by(FILE *out, const struct policy *p, uint16_t by)
{
	if (by == BY_LOOPBACK)
		fputs("by \"loopback\"", out);
	else if (by == BY_DEFAULT || !rule_name(p, by))
		fputs("by default", out);
	else
		fprintf(out, "by rule %s", rule_name(p, by));
}

static void print_change(FILE *out, const struct policy_diff *d, const struct change *c, size_t count, size_t max)
{
	const struct change_kind *k = &c->kind;
	const char *name = k->new_by == BY_LOOPBACK ? NULL : rule_name(d->new, k->new_by);
	struct terms t = terms_of(c);

	fprintf(out, "becomes %s: ", k->reachable ? "reachable" : "unreachable");
	print_what(out, c, count);
	fputs(" to ", out);
	print_terms(out, &t, max);
	if (k->carried)
		fputs(" carried in an IPv6 address", out);
	fputs(" (", out);
	if (name && !has_rule(d->old, name))
		fprintf(out, "new rule %s", name);
	else
		print_by(out, d->new, k->new_by);
	fprintf(out, "; was %s ", k->reachable ? "denied" : "allowed");
	print_by(out, d->old, k->old_by);
	fputc(')', out);
	free(t.list);
}

static bool in_list(char *const *list, size_t count, const char *word)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(list[i], word))
			return true;
	return false;
}

static size_t print_missing(FILE *out, const char *before, char *const *list, size_t count, char *const *from,
			    size_t from_count)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++) {
		if (in_list(from, from_count, list[i]))
			continue;
		fprintf(out, "%s%s", n++ ? ", " : before, list[i]);
	}
	return n;
}

static void print_setting(FILE *out, const struct setting *s)
{
	size_t n;

	fprintf(out, "%s:", s->key);
	if (s->old_count == 1 && s->new_count == 1) {
		fprintf(out, " %s -> %s", s->old[0], s->new[0]);
		return;
	}
	n = print_missing(out, " now also ", s->new, s->new_count, s->old, s->old_count);
	n += print_missing(out, n ? "; no longer " : " no longer ", s->old, s->old_count, s->new, s->new_count);
	if (!n)
		fputs(" the same in another order", out);
}

/* How many of the changes from `c` on make one line. */
static size_t joined(const struct policy_diff *d, size_t from)
{
	size_t n = 1;

	while (from + n < d->change_count && change_joins(&d->changes[from], &d->changes[from + n]))
		n++;
	return n;
}

static void print_notes(FILE *out, const struct policy_diff *d)
{
	if (d->change_count)
		fputs(
		    "An IPv6 address that carries an IPv4 address (NAT64, 6to4, Teredo, …) is reachable only where both are.\n",
		    out);
	if (d->change_count && (d->old->monitor || d->new->monitor))
		fprintf(out, "%s in mode monitor, which blocks nothing: the lines say what the verdict is.\n",
			d->old->monitor && d->new->monitor ? "Both are"
			: d->new->monitor		   ? "The new policy is"
							   : "The old policy was");
}

char *policy_diff_text(const struct policy_diff *d, size_t places)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	bool bad;

	if (!out)
		return NULL;
	for (size_t i = 0, n; i < d->change_count; i += n) {
		n = joined(d, i);
		print_change(out, d, &d->changes[i], n, places);
		fputc('\n', out);
	}
	for (size_t i = 0; i < d->setting_count; i++) {
		print_setting(out, &d->settings[i]);
		fputc('\n', out);
	}
	print_notes(out, d);
	bad = ferror(out);
	if (fclose(out) != 0 || bad) {
		free(text);
		return NULL;
	}
	return text;
}

/* ---- JSON ---- */

static json_t *protocols_json(const struct change_kind *k, bool missing)
{
	json_t *list = json_array();

	for (unsigned p = 0; p < 256; p++) {
		char buf[NETPROTO_TEXT_MAX];

		if ((k->protocols[p / 64] >> p % 64 & 1) == missing)
			continue;
		if (json_array_append_new(list, json_string(netproto_text(buf, (uint8_t)p))) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *what_json(const struct change *c, size_t count)
{
	json_t *what = json_array();

	for (size_t i = 0; i < count; i++) {
		const struct change_kind *k = &c[i].kind;
		bool most = count_protocols(k->protocols) > 128;
		json_t *row =
		    json_pack("{s:o, s:o, s:b}", most ? "protocols_except" : "protocols", protocols_json(k, most), "ports",
			      all_ports(k) ? json_null() : json_pack("[i, i]", k->lo, k->hi), "fragments", k->fragments);

		if (json_array_append_new(what, row) < 0) {
			json_decref(what);
			return NULL;
		}
	}
	return what;
}

static json_t *terms_json(const struct change *c)
{
	struct terms t = terms_of(c);
	json_t *to = json_array();
	int bad = t.failed;

	for (size_t i = 0; i < t.count && !bad; i++) {
		char text[CIDR_TEXT_MAX];
		json_t *last = json_array_get(to, json_array_size(to) - 1);

		cidr_text(text, &t.list[i].prefix, false);
		if (t.list[i].except)
			bad = json_array_append_new(json_object_get(last, "except"), json_string(text));
		else
			bad = json_array_append_new(to, json_pack("{s:s, s:[]}", "prefix", text, "except"));
	}
	free(t.list);
	if (bad) {
		json_decref(to);
		return NULL;
	}
	return to;
}

static json_t *by_json(const struct policy *p, uint16_t by, bool allowed)
{
	const char *name = by == BY_LOOPBACK ? NULL : rule_name(p, by);

	return json_pack("{s:s, s:s, s:o}", "verdict", allowed ? "allowed" : "denied", "reason",
			 by == BY_LOOPBACK ? "loopback"
			 : name		   ? "rule"
					   : "default",
			 "rule", name ? json_string(name) : json_null());
}

static json_t *change_json(const struct policy_diff *d, const struct change *c, size_t count)
{
	const struct change_kind *k = &c->kind;

	return json_pack("{s:s, s:o, s:o, s:b, s:o, s:o}", "becomes", k->reachable ? "reachable" : "unreachable", "what",
			 what_json(c, count), "to", terms_json(c), "carried", k->carried, "old",
			 by_json(d->old, k->old_by, !k->reachable), "new", by_json(d->new, k->new_by, k->reachable));
}

static json_t *words_json(char *const *list, size_t count)
{
	json_t *words = json_array();

	for (size_t i = 0; i < count; i++)
		if (json_array_append_new(words, json_string(list[i])) < 0) {
			json_decref(words);
			return NULL;
		}
	return words;
}

json_t *policy_diff_json(const struct policy_diff *d)
{
	json_t *changes = json_array(), *settings = json_array();
	int bad = 0;

	for (size_t i = 0, n; i < d->change_count && !bad; i += n) {
		n = joined(d, i);
		bad = json_array_append_new(changes, change_json(d, &d->changes[i], n));
	}
	for (size_t i = 0; i < d->setting_count && !bad; i++) {
		const struct setting *s = &d->settings[i];

		bad = json_array_append_new(settings,
					    json_pack("{s:s, s:o, s:o}", "key", s->key, "old", words_json(s->old, s->old_count),
						      "new", words_json(s->new, s->new_count)));
	}
	if (bad) {
		json_decref(changes);
		json_decref(settings);
		return NULL;
	}
	return json_pack("{s:b, s:o, s:o}", "same", policy_diff_empty(d), "changes", changes, "settings", settings);
}
