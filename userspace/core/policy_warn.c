/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a policy says and cannot do. Reachability is asked of the compiled policy, so that a warning and the kernel can't
 * disagree; the rest is read from the document.
 */
#include "core/policy.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/image.h"
#include "core/policy_read.h"
#include "verdict.h"

enum { ICMP = 1, IGMP = 2, TCP = 6, UDP = 17, DCCP = 33, ICMPV6 = 58, SCTP = 132, UDPLITE = 136 };
enum { PORT_DNS = 53, PORT_HTTP = 80, PORT_HTTPS = 443 };

struct warnings {
	const struct policy *policy;
	const struct policy_env *env;
	const struct policy_image *image; /* NULL when it does not compile */
	struct policy_warning *ret;
	size_t max, count;
};

static void warn(struct warnings *w, const char *where, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void warn(struct warnings *w, const char *where, const char *fmt, ...)
{
	va_list ap;

	if (w->count < w->max) {
		struct policy_warning *out = &w->ret[w->count];

		snprintf(out->where, sizeof out->where, "%s", where);
		va_start(ap, fmt);
		vsnprintf(out->text, sizeof out->text, fmt, ap);
		va_end(ap);
	}
	w->count++;
}

static void rule_pointer(char ret[64], size_t rule, const char *key)
{
	snprintf(ret, 64, "/rules/%zu%s%s", rule, key ? "/" : "", key ? key : "");
}

/* Who decided: where it stands in the document, and how it is called in a sentence. */
struct decider {
	char where[64];
	char text[POLICY_NAME_MAX + 16];
};

static struct decider decider_of(const struct policy *p, weir_judgement j)
{
	struct decider d = {"/default", "the default verdict"};
	size_t rule = weir_rule_of(j);

	if (weir_reason_of(j) == WEIR_REASON_RULE && rule >= 1 && rule <= p->rule_count) {
		rule_pointer(d.where, rule - 1, NULL);
		snprintf(d.text, sizeof d.text, "rule \"%s\"", p->rules[rule - 1].name);
	} else if (weir_reason_of(j) == WEIR_REASON_LOOPBACK) {
		d = (struct decider){"/loopback", "\"loopback\""};
	}
	return d;
}

static weir_judgement judge(const struct warnings *w, const struct cidr *addr, uint8_t protocol, uint16_t port)
{
	bool mapped;
	struct weir_dest d = dest_of_call(addr, protocol, port, &mapped);

	return image_judge(w->image, &d);
}

static bool allows(weir_judgement j)
{
	return weir_verdict_of(j) == WEIR_ALLOW;
}

static bool has_allow_rule(const struct policy *p)
{
	for (size_t i = 0; i < p->rule_count; i++)
		if (p->rules[i].verdict == WEIR_ALLOW)
			return true;
	return false;
}

static bool names_protocol(const struct policy_rule *r, uint8_t protocol)
{
	return r->protocol_count == 0 || memchr(r->protocols, protocol, r->protocol_count);
}

static bool names_port(const struct policy_rule *r, uint16_t port)
{
	for (size_t i = 0; i < r->port_count; i++)
		if (r->ports[i].lo <= port && port <= r->ports[i].hi)
			return true;
	return r->port_count == 0;
}

/* ---- single keys ---- */

static void warn_mode(struct warnings *w)
{
	if (w->policy->monitor)
		warn(w, "/mode", "monitor blocks nothing: what the policy denies is recorded and passes");
}

static void warn_packets(struct warnings *w)
{
	if (w->policy->ipv4_options)
		warn(w, "/packets/ipv4_options",
		     "a source route is an IPv4 option: only the first hop of such a packet is judged, not where it goes");
	if (w->policy->routing_headers)
		warn(w, "/packets/routing_headers",
		     "only the first hop of a packet with a routing header is judged, not where it goes");
}

static void warn_inbound(struct warnings *w)
{
	if (w->policy->inbound && !w->policy->listen)
		warn(w, "/inbound", "connections from outside are allowed and \"listen\" denies to wait for them");
}

static void warn_loopback(struct warnings *w)
{
	static const struct cidr loopbacks[] = {
	    {.addr = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}, .family = 4, .len = 32},
	    {.addr = {[15] = 1}, .family = 6, .len = 128},
	};
	const struct policy *p = w->policy;

	if (!w->image || p->loopback != WEIR_LOOPBACK_RULES || p->default_verdict != WEIR_ALLOW)
		return;
	for (size_t i = 0; i < READ_COUNT(loopbacks); i++) {
		char text[CIDR_TEXT_MAX];

		if (!allows(judge(w, &loopbacks[i], TCP, PORT_HTTP)))
			continue;
		cidr_text(text, &loopbacks[i], true);
		warn(w, "/loopback",
		     "services that listen on %s can be reached; where those are the host's, deny @special-purpose or set "
		     "\"loopback\" to \"deny\"",
		     text);
		return;
	}
}

/* ---- name servers ---- */

/* A policy that denies everything means it. */
static bool denies_all(const struct policy *p)
{
	return p->default_verdict == WEIR_DENY && !has_allow_rule(p);
}

static void warn_resolver_unknown(struct warnings *w)
{
	const struct policy *p = w->policy;

	if (p->default_verdict != WEIR_DENY)
		return;
	for (size_t i = 0; i < p->rule_count; i++)
		if (p->rules[i].verdict == WEIR_ALLOW && names_protocol(&p->rules[i], UDP) &&
		    names_port(&p->rules[i], PORT_DNS))
			return;
	warn(w, "/default",
	     "names can't be resolved under this policy: no rule allows udp port %d to anything; "
	     "allow it to @resolver, or use addresses only",
	     PORT_DNS);
}

/* How many of the name servers are denied; of the first, the judgement and its address. */
static size_t denied_resolvers(const struct warnings *w, uint8_t protocol, weir_judgement *ret_first,
			       char ret_addr[CIDR_TEXT_MAX])
{
	size_t denied = 0;

	for (size_t i = 0; i < w->env->resolver_count; i++) {
		weir_judgement j = judge(w, &w->env->resolvers[i], protocol, PORT_DNS);

		if (allows(j) || denied++ > 0)
			continue;
		*ret_first = j;
		cidr_text(ret_addr, &w->env->resolvers[i], true);
	}
	return denied;
}

static void warn_resolver(struct warnings *w)
{
	size_t known = w->env ? w->env->resolver_count : 0, udp, tcp;
	weir_judgement first = 0;
	char addr[CIDR_TEXT_MAX] = "";
	struct decider d;

	if (denies_all(w->policy))
		return;
	if (known == 0 || !w->image) {
		warn_resolver_unknown(w);
		return;
	}
	udp = denied_resolvers(w, UDP, &first, addr);
	if (udp > 0) {
		d = decider_of(w->policy, first);
		if (udp == known)
			warn(w, d.where,
			     "names can't be resolved under this policy: %s denies udp port %d of the name server %s; allow it "
			     "to @resolver",
			     d.text, PORT_DNS, addr);
		else
			warn(w, d.where,
			     "%s denies udp port %d of the name server %s (%zu of %zu are denied): names resolve slowly",
			     d.text, PORT_DNS, addr, udp, known);
		return;
	}
	tcp = denied_resolvers(w, TCP, &first, addr);
	if (tcp > 0) {
		d = decider_of(w->policy, first);
		warn(w, d.where, "%s denies tcp port %d of the name server %s: answers too long for one datagram can't be had",
		     d.text, PORT_DNS, addr);
	}
}

/* ---- metadata ---- */

static void warn_metadata_group(struct warnings *w, size_t first, const weir_judgement *judged, int port)
{
	struct decider d = decider_of(w->policy, judged[first]);
	const struct netset_row *row = &netset_rows[first];
	char more[48] = "";
	size_t others = 0;

	for (size_t i = first + 1; i < netset_row_count; i++)
		others += judged[i] == judged[first];
	if (others > 0)
		snprintf(more, sizeof more, " and %zu more of @metadata", others);
	warn(w, d.where, "%s lets %.*s (%s)%s be reached on tcp port %d; deny @metadata", d.text,
	     (int)strcspn(row->prefix, "/"), row->prefix, row->what, more, port);
}

/* One warning for each rule that lets some of them be reached. False when there is none. */
static bool warn_metadata_on(struct warnings *w, weir_judgement *judged, uint16_t port)
{
	struct cidr addr;
	bool any = false;
	size_t i, k;

	for (i = 0; i < netset_row_count; i++) {
		const char *prefix = netset_rows[i].prefix;
		weir_judgement j = 0;

		/* Zero is a denial: of rows that are not asked about too. */
		if (netset_rows[i].set == NETSET_METADATA && cidr_parse(prefix, strlen(prefix), &addr, NULL) == 0)
			j = judge(w, &addr, TCP, port);
		judged[i] = allows(j) ? j : 0;
	}
	for (i = 0; i < netset_row_count; i++) {
		for (k = 0; k < i && judged[k] != judged[i]; k++)
			;
		if (!judged[i] || k < i)
			continue;
		any = true;
		warn_metadata_group(w, i, judged, port);
	}
	return any;
}

static void warn_metadata(struct warnings *w)
{
	weir_judgement *judged;

	if (!w->image)
		return;
	judged = calloc(netset_row_count, sizeof *judged);
	if (!judged) {
		warn(w, "", "no memory to look for metadata services");
		return;
	}
	/* Most speak HTTP; a cluster's API speaks HTTPS. What is open to both is said once. */
	if (!warn_metadata_on(w, judged, PORT_HTTP))
		warn_metadata_on(w, judged, PORT_HTTPS);
	free(judged);
}

/* ---- single rules ---- */

static void warn_places(struct warnings *w, size_t rule)
{
	static const struct cidr mapped = {.addr = {[10] = 0xff, [11] = 0xff}, .family = 6, .len = 96};
	const struct policy_rule *r = &w->policy->rules[rule];
	char where[64], text[CIDR_TEXT_MAX], v4_text[CIDR_TEXT_MAX];

	rule_pointer(where, rule, "to");
	for (size_t i = 0; i < r->place_count; i++) {
		const struct policy_place *place = &r->places[i];
		struct cidr v4 = place->prefix;

		if (place->is_set && place->set == NETSET_RESOLVER && r->verdict == WEIR_ALLOW && r->port_count == 0)
			warn(w, where,
			     "everything on the name servers is allowed, not only names; add \"protocol\": [\"udp\", \"tcp\"], "
			     "\"ports\": %d",
			     PORT_DNS);
		if (place->is_set || !cidr_contains(&mapped, &place->prefix))
			continue;
		v4.family = 4;
		v4.len = (uint8_t)(v4.len - mapped.len);
		cidr_text(text, &place->prefix, false);
		cidr_text(v4_text, &v4, false);
		warn(w, where,
		     "a socket takes an address in %s for the IPv4 address in it, so this never matches one; write %s", text,
		     v4_text);
	}
}

/* Numbers that in IPv6 are headers between the address and the transport: what is judged there is what comes behind them. */
static void warn_extensions(struct warnings *w, size_t rule)
{
	static const uint8_t numbers[] = {0, 43, 44, 51, 60};
	const struct policy_rule *r = &w->policy->rules[rule];
	char where[64];

	for (size_t i = 0; i < r->protocol_count; i++) {
		if (!memchr(numbers, r->protocols[i], sizeof numbers))
			continue;
		rule_pointer(where, rule, "protocol");
		warn(w, where,
		     "%u is an extension header in IPv6, where a packet is judged by what is behind it: this holds for "
		     "IPv4 only",
		     r->protocols[i]);
		return;
	}
}

static void warn_protocols(struct warnings *w, size_t rule)
{
	const struct policy_rule *r = &w->policy->rules[rule];
	char where[64];

	if (r->verdict != WEIR_ALLOW || r->protocol_count == 0)
		return;
	for (size_t i = 0; i < r->protocol_count; i++)
		if (policy_can_send(&w->policy->sockets, r->protocols[i]))
			return;
	rule_pointer(where, rule, "protocol");
	warn(w, where, "is allowed here, and \"sockets\" refuses every socket that could send it; name it in \"sockets\"");
}

/* ---- rules that never decide ---- */

/*
 * A (prefix, rule) pair. A dynamic set stands for itself: family 0, its number in addr[0]. Only equal prefixes are compared:
 * what a longer one covers is what the language is for.
 */
struct entry {
	struct cidr prefix;
	uint32_t rule;
};

struct shadows {
	const struct policy *policy;
	struct entry *entries;
	size_t count, room;
	bool *open;	     /* rules that do decide somewhere */
	uint32_t *by;	     /* the first rule that took something from it */
	unsigned long steps; /* taken; over STEPS_MAX we stop looking */
	bool failed;	     /* no memory */
};
#define STEPS_MAX 20000000UL

static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int rc = cidr_compare(&x->prefix, &y->prefix);

	return rc ? rc : x->rule < y->rule ? -1 : x->rule > y->rule;
}

static void add_entry(struct shadows *s, const struct cidr *prefix, size_t rule)
{
	if (s->count == s->room) {
		size_t room = s->room ? 2 * s->room : 64;
		struct entry *more = reallocarray(s->entries, room, sizeof *more);

		if (!more) {
			s->failed = true;
			return;
		}
		s->entries = more;
		s->room = room;
	}
	s->entries[s->count++] = (struct entry){*prefix, (uint32_t)rule};
}

static void add_place(struct shadows *s, const struct policy_place *place, size_t rule)
{
	struct cidr prefix = {.addr = {(uint8_t)place->set}};

	if (!place->is_set) {
		add_entry(s, &place->prefix, rule);
		return;
	}
	if (netset_info[place->set].dynamic) {
		add_entry(s, &prefix, rule);
		return;
	}
	for (size_t i = 0; i < netset_row_count; i++)
		if (netset_rows[i].set == place->set &&
		    cidr_parse(netset_rows[i].prefix, strlen(netset_rows[i].prefix), &prefix, NULL) == 0)
			add_entry(s, &prefix, rule);
}

/* Whether `r` has just this pair; `protocol` and `ports` are NULL for any. */
static bool has_pair(const struct policy_rule *r, const uint8_t *protocol, const struct policy_ports *ports)
{
	if ((protocol == NULL) != (r->protocol_count == 0) || (ports == NULL) != (r->port_count == 0))
		return false;
	if (protocol && !memchr(r->protocols, *protocol, r->protocol_count))
		return false;
	for (size_t i = 0; i < r->port_count; i++)
		if (r->ports[i].lo == ports->lo && r->ports[i].hi == ports->hi)
			return true;
	return ports == NULL;
}

/* Of two equal pairs at one prefix: the denial first, then the earlier rule. */
static bool goes_before(const struct policy *p, uint32_t a, uint32_t b)
{
	return p->rules[a].verdict == p->rules[b].verdict ? a < b : p->rules[a].verdict == WEIR_DENY;
}

/* The rule among those of one prefix that takes this pair from `rule`, or `rule` itself. */
static uint32_t taker(struct shadows *s, const struct entry *group, size_t count, uint32_t rule, const uint8_t *protocol,
		      const struct policy_ports *ports)
{
	for (size_t i = 0; i < count && s->steps <= STEPS_MAX; i++) {
		s->steps++;
		if (goes_before(s->policy, group[i].rule, rule) && has_pair(&s->policy->rules[group[i].rule], protocol, ports))
			return group[i].rule;
	}
	return rule;
}

static void look_at(struct shadows *s, const struct entry *group, size_t count, uint32_t rule)
{
	const struct policy_rule *r = &s->policy->rules[rule];

	for (size_t i = 0; i < (r->protocol_count ? r->protocol_count : 1); i++)
		for (size_t k = 0; k < (r->port_count ? r->port_count : 1) && !s->open[rule]; k++) {
			uint32_t by = taker(s, group, count, rule, r->protocol_count ? &r->protocols[i] : NULL,
					    r->port_count ? &r->ports[k] : NULL);

			s->open[rule] = by == rule;
			if (by != rule && s->by[rule] == UINT32_MAX)
				s->by[rule] = by;
		}
}

static void look_at_all(struct shadows *s)
{
	size_t end;

	for (size_t at = 0; at < s->count; at = end) {
		const struct entry *group = &s->entries[at];

		for (end = at + 1; end < s->count && !cidr_compare(&s->entries[end].prefix, &group->prefix); end++)
			;
		for (size_t i = 0; i < end - at; i++)
			if (!s->open[group[i].rule])
				look_at(s, group, end - at, group[i].rule);
	}
}

static void report_shadows(struct warnings *w, const struct shadows *s)
{
	const struct policy *p = w->policy;

	if (s->failed || s->steps > STEPS_MAX) {
		warn(w, "/rules", "was not searched for rules that never decide: %s",
		     s->failed ? "no memory" : "too many rules name the same prefix");
		return;
	}
	for (size_t i = 0; i < p->rule_count; i++) {
		char where[64];

		if (s->open[i] || s->by[i] == UINT32_MAX)
			continue;
		rule_pointer(where, i, NULL);
		warn(w, where, "never decides: rule \"%s\" %s the same prefixes, protocols and ports, and goes first%s",
		     p->rules[s->by[i]].name, p->rules[s->by[i]].verdict == WEIR_DENY ? "denies" : "allows",
		     p->rules[s->by[i]].verdict == p->rules[i].verdict ? "" : " (at one prefix a denial does)");
	}
}

static void warn_shadowed(struct warnings *w)
{
	const struct policy *p = w->policy;
	struct shadows s = {.policy = p};

	s.open = calloc(p->rule_count + 1, sizeof *s.open);
	s.by = calloc(p->rule_count + 1, sizeof *s.by);
	s.failed = !s.open || !s.by;
	for (size_t i = 0; i < p->rule_count && !s.failed; i++) {
		s.by[i] = UINT32_MAX;
		for (size_t k = 0; k < p->rules[i].place_count && !s.failed; k++)
			add_place(&s, &p->rules[i].places[k], i);
	}
	if (!s.failed && s.count > 0) {
		qsort(s.entries, s.count, sizeof *s.entries, compare_entries);
		look_at_all(&s);
	}
	report_shadows(w, &s);
	free(s.entries);
	free(s.open);
	free(s.by);
}

size_t policy_warnings(const struct policy *p, const struct policy_env *env, struct policy_warning *ret, size_t max)
{
	struct warnings w = {.policy = p, .env = env, .ret = ret, .max = max};
	struct policy_image *image = NULL;
	struct err e;

	if (image_compile(p, env, &image, &e) < 0)
		warn(&w, e.where, "does not compile: %s", e.msg);
	w.image = image;
	warn_mode(&w);
	warn_resolver(&w);
	warn_metadata(&w);
	warn_loopback(&w);
	warn_shadowed(&w);
	for (size_t i = 0; i < p->rule_count; i++) {
		warn_places(&w, i);
		warn_protocols(&w, i);
		warn_extensions(&w, i);
	}
	warn_packets(&w);
	warn_inbound(&w);
	image_free(image);
	return w.count;
}
