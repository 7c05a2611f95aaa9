/* SPDX-License-Identifier: Apache-2.0 */
#include "core/explain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "carried.h"
#include "core/event.h"
#include "core/netaddr.h"

enum { TCP = 6, UDP = 17, ICMPV6 = 58, UDPLITE = 136 };
#define LISTED_MAX 8 /* addresses of a dynamic set that the text names */

/* ---- what is asked ---- */

/* By the names that records and policies use, so that what the audit printed can be pasted here. */
static int find_protocol(const char *name, size_t len, uint8_t *ret)
{
	char buf[NETPROTO_TEXT_MAX], number[NETPROTO_TEXT_MAX];

	for (unsigned p = 0; p < 256; p++) {
		const char *known = netproto_text(buf, (uint8_t)p);

		snprintf(number, sizeof number, "ip-proto-%u", p);
		if ((strlen(known) == len && !memcmp(known, name, len)) ||
		    (strlen(number) == len && !memcmp(number, name, len))) {
			*ret = (uint8_t)p;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse_port(const char *text, uint16_t *ret)
{
	unsigned long v = 0;
	const char *p = text;

	for (; *p >= '0' && *p <= '9' && p - text < 5; p++)
		v = 10 * v + (unsigned long)(*p - '0');
	if (p == text || *p || v > UINT16_MAX || (text[0] == '0' && text[1]))
		return -EINVAL;
	*ret = (uint16_t)v;
	return 0;
}

static bool looks_like_name(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		char c = (char)(text[i] | 0x20);

		if ((c >= 'g' && c <= 'z') || text[i] == '_' || (c >= 'a' && c <= 'f' && !memchr(text, ':', len)))
			return true;
	}
	return false;
}

static int parse_host(const char *text, size_t len, bool brackets, struct cidr *ret, struct err *e)
{
	int rc;

	if (!len)
		return err_set(e, EINVAL, "", "there is no address");
	if (looks_like_name(text, len))
		return err_set(e, EINVAL, "",
			       "\"%.*s\" is no address. Weir resolves no names: ask for each address that the name has "
			       "(`getent ahosts NAME` lists them)",
			       len > 60 ? 60 : (int)len, text);
	rc = cidr_parse_addr(text, len, ret, e);
	if (rc < 0)
		return rc;
	if (brackets != (ret->family == 6))
		return err_set(e, EINVAL, "",
			       brackets ? "only IPv6 addresses stand in brackets" : "an IPv6 address stands in brackets");
	return 0;
}

int explain_parse_to(const char *text, struct explain_to *ret, struct err *e)
{
	const char *host = strstr(text, "://"), *end, *port = NULL;
	struct explain_to to = {0};
	char buf[NETPROTO_TEXT_MAX];
	bool brackets;
	int rc;

	if (!host)
		return err_set(e, EINVAL, "",
			       "must be PROTOCOL://ADDRESS[:PORT], as in tcp://192.0.2.1:443 or udp://[2001:db8::1]:53");
	if (find_protocol(text, (size_t)(host - text), &to.protocol) < 0)
		return err_set(
		    e, EINVAL, "",
		    "\"%.*s\" is no protocol here: tcp, udp, udplite, sctp, dccp, icmp, icmpv6, or a number as in ip-proto-47",
		    host - text > 30 ? 30 : (int)(host - text), text);
	host += 3;
	brackets = *host == '[';
	if (brackets) {
		end = strchr(++host, ']');
		if (!end)
			return err_set(e, EINVAL, "", "the closing bracket of the address is missing");
		port = end + 1;
	} else {
		/* More than one colon: an IPv6 address without brackets, which parse_host() says. */
		end = strchr(host, ':');
		if (!end || strchr(end + 1, ':'))
			end = host + strlen(host);
		port = end;
	}
	rc = parse_host(host, (size_t)(end - host), brackets, &to.addr, e);
	if (rc < 0)
		return rc;
	if (*port && *port != ':')
		return err_set(e, EINVAL, "", "after the address comes :PORT, or nothing");
	if (netproto_has_port(to.protocol) != (*port == ':'))
		return err_set(e, EINVAL, "", *port ? "%s has no ports" : "the port is missing: %s has ports",
			       netproto_text(buf, to.protocol));
	if (*port && parse_port(port + 1, &to.port) < 0)
		return err_set(e, EINVAL, "", "\"%.20s\" is no port: 0 to 65535", port + 1);
	*ret = to;
	return 0;
}

int explain_parse_with(const char *word, struct explain_to *to, struct err *e)
{
	static const struct {
		const char *word;
		uint32_t flag;
	} flags[] = {
	    {"ipv4_options", WEIR_DEST_OPTIONS},
	    {"routing_header", WEIR_DEST_ROUTING},
	    {"fragment", WEIR_DEST_HEADLESS},
	};

	if (!strcmp(word, "packet")) {
		to->packet = true;
		return 0;
	}
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
		if (!strcmp(word, flags[i].word)) {
			to->flags |= flags[i].flag;
			return 0;
		}
	return err_set(e, EINVAL, "", "\"%.40s\" is none of packet, ipv4_options, routing_header, fragment", word);
}

/* ---- the judgement ---- */

static void add_part(struct explanation *x, const struct policy_image *img, const struct cidr *addr, uint8_t via,
		     const struct weir_dest *d)
{
	uint32_t j = image_judge_rules(img, addr, d);

	x->parts[x->part_count++] = (struct explain_part){
	    .addr = *addr, .via = via, .verdict = weir_verdict_of(j), .reason = weir_reason_of(j), .rule = weir_rule_of(j)};
}

/* The loopback address that an unspecified one stands for. */
static bool loopback_of(const struct weir_dest *d, struct cidr *ret)
{
	static const struct cidr loopback[2] = {{.addr = {[10] = 0xff, 0xff, 127, 0, 0, 1}, .family = 4, .len = 32},
						{.addr = {[15] = 1}, .family = 6, .len = 128}};

	*ret = loopback[d->family == 6];
	return weir_zeros(d->addr, d->family == 4 ? 12 : 0, 16);
}

/* Every address in the order it is judged in, up to the first that is denied. */
static void add_parts(struct explanation *x, const struct policy_image *img, const struct weir_dest *d)
{
	struct cidr addr = {.family = d->family, .len = d->family == 4 ? 32 : 128};

	memcpy(addr.addr, d->addr, sizeof addr.addr);
	add_part(x, img, &addr, WEIR_VIA_NONE, d);
	if (loopback_of(d, &addr)) {
		if (x->parts[0].verdict == WEIR_ALLOW)
			add_part(x, img, &addr, WEIR_VIA_UNSPECIFIED, d);
		return;
	}
	for (uint8_t via = WEIR_VIA_MAPPED; via <= WEIR_VIA_ISATAP && d->family == 6; via++) {
		if (x->parts[x->part_count - 1].verdict != WEIR_ALLOW || x->part_count == EXPLAIN_PARTS_MAX)
			return;
		if (image_carried(img, d->addr, via, &addr))
			add_part(x, img, &addr, via, d);
	}
}

static void consider(struct explanation *x, const struct cidr *prefix, const struct cidr *addr, int set,
		     const struct netset_row *row)
{
	if (!cidr_contains(prefix, addr) || (x->has_place && prefix->len <= x->prefix.len))
		return;
	x->has_place = true;
	x->prefix = *prefix;
	x->set = set;
	x->row = row;
}

static void consider_set(struct explanation *x, enum netset set, const struct cidr *addr)
{
	bool host = set == NETSET_HOST;
	const struct cidr *list = !x->env ? NULL : host ? x->env->hosts : x->env->resolvers;
	size_t count = !x->env ? 0 : host ? x->env->host_count : x->env->resolver_count;

	if (netset_info[set].dynamic) {
		for (size_t i = 0; i < count; i++)
			consider(x, &list[i], addr, (int)set, NULL);
		return;
	}
	for (size_t i = 0; i < netset_row_count; i++) {
		struct cidr prefix;

		if (netset_rows[i].set == set &&
		    !cidr_parse(netset_rows[i].prefix, strlen(netset_rows[i].prefix), &prefix, NULL))
			consider(x, &prefix, addr, (int)set, &netset_rows[i]);
	}
}

/* Of the deciding rule: a longer place has all the atoms of a shorter one, so the longest is what matched. */
static void find_place(struct explanation *x, const struct cidr *addr)
{
	const struct policy_rule *r = &x->policy->rules[x->rule - 1];

	for (size_t i = 0; i < r->place_count; i++)
		if (r->places[i].is_set)
			consider_set(x, r->places[i].set, addr);
		else
			consider(x, &r->places[i].prefix, addr, -1, NULL);
}

static const struct explain_part *deciding(const struct explanation *x)
{
	for (size_t i = 0; i < x->part_count; i++)
		if (x->parts[i].via == x->via)
			return &x->parts[i];
	return NULL;
}

void explain(const struct policy *p, const struct policy_image *img, const struct policy_env *env, const struct explain_to *to,
	     struct explanation *ret)
{
	struct explanation x = {.policy = p, .env = env, .to = *to, .set = -1};
	struct weir_dest d = dest_of_call(&to->addr, to->protocol, to->port, &x.mapped);
	uint32_t j;

	if (to->packet) {
		x.mapped = false;
		d.family = to->addr.family;
	}
	d.flags = to->flags;
	j = image_judge(img, &d);
	x.verdict = weir_verdict_of(j);
	x.reason = weir_reason_of(j);
	x.via = weir_via_of(j);
	x.rule = weir_rule_of(j);
	if (x.reason == WEIR_REASON_RULE || x.reason == WEIR_REASON_DEFAULT)
		add_parts(&x, img, &d);
	if (x.rule && x.rule <= p->rule_count && deciding(&x))
		find_place(&x, &deciding(&x)->addr);
	if (x.verdict == WEIR_DENY && p->monitor)
		x.verdict = WEIR_WOULD_DENY;
	*ret = x;
}

const char *explain_rule_name(const struct explanation *x)
{
	return x->rule && x->rule <= x->policy->rule_count ? x->policy->rules[x->rule - 1].name : NULL;
}

uint8_t explain_kind(const struct explanation *x)
{
	return x->via ? x->via : x->mapped ? WEIR_VIA_MAPPED : WEIR_VIA_NONE;
}

/* ---- words ---- */

static const char *place_text(char ret[CIDR_TEXT_MAX], const struct cidr *c)
{
	cidr_text(ret, c, true);
	return ret;
}
#define PLACE(c) place_text((char[CIDR_TEXT_MAX]){0}, (c))

static const char *const reason_words[WEIR_REASON_COUNT] = {
    [WEIR_REASON_LOOPBACK] = "the policy's \"loopback\" decides, no rule is asked",
    [WEIR_REASON_OPTIONS] = "the packet has IPv4 options, and \"packets\" does not permit them",
    [WEIR_REASON_ROUTING] = "the packet has an IPv6 routing header, and \"packets\" does not permit it",
    [WEIR_REASON_FRAGMENT] = "the packet is a fragment without a port, and \"packets\" does not permit it",
    [WEIR_REASON_NO_POLICY] = "there is no such policy",
};

static const char *verdict_word(uint8_t verdict)
{
	return verdict == WEIR_ALLOW ? "allows" : "denies";
}

static const char *default_word(const struct explanation *x)
{
	return x->policy->default_verdict == WEIR_ALLOW ? "allow" : "deny";
}

/* Where it is decided, and what the program that tries sees of a denial. */
struct decided_at {
	const char *hook;  /* as records name it */
	const char *error; /* errno's name, or NULL */
	const char *words;
};

/*
 * UDP to a destination that many listen to: the packet hook would come after the copy for listeners on this host, so a denial
 * is made before.
 */
static bool is_to_many(const struct explain_to *to)
{
	bool v4 = to->addr.family == 4 || weir_is_mapped(to->addr.addr);

	return v4 && to->addr.addr[12] >= 224 && (to->protocol == UDP || to->protocol == UDPLITE);
}

static struct decided_at decided_at(const struct explanation *x)
{
	/* What only a packet can have is not known when it is called for. */
	bool call = !x->to.packet && !x->to.flags;

	if (x->to.protocol == TCP && call)
		return (struct decided_at){x->to.addr.family == 4 ? "connect4" : "connect6", "EPERM",
					   "at connect(), which fails with EPERM at once"};
	if (x->to.protocol == TCP)
		return (struct decided_at){"egress", NULL,
					   "at the packet, which is dropped; TCP resends it and gives up later"};
	if (call && x->verdict == WEIR_DENY && is_to_many(&x->to))
		return (struct decided_at){"sendmsg4", "EPERM",
					   "at sendto(), which fails with EPERM, before anybody on this host gets a copy"};
	if (x->to.protocol == ICMPV6)
		return (struct decided_at){"egress", NULL, "at the packet, which is dropped; a ping socket is not told"};
	return (struct decided_at){"egress", "EPERM", "at the packet; what sends it fails with EPERM"};
}

static void print_destination(FILE *out, const struct explain_to *to)
{
	char buf[NETPROTO_TEXT_MAX];
	bool v6 = to->addr.family == 6;

	fprintf(out, "%s://%s%s%s", netproto_text(buf, to->protocol), v6 ? "[" : "", PLACE(&to->addr), v6 ? "]" : "");
	if (netproto_has_port(to->protocol) && !(to->flags & WEIR_DEST_HEADLESS))
		fprintf(out, ":%u", to->port);
}

static void print_why(FILE *out, const struct explanation *x)
{
	if (x->reason == WEIR_REASON_RULE)
		fprintf(out, "rule      %s (/rules/%u) %s it\n", explain_rule_name(x), x->rule - 1u,
			verdict_word(x->policy->rules[x->rule - 1].verdict));
	else if (x->reason == WEIR_REASON_DEFAULT)
		fprintf(out, "rule      none matches: the default, %s\n", default_word(x));
	else
		fprintf(out, "reason    %s: %s\n", event_reason_names[x->reason], reason_words[x->reason]);
}

static void print_place(FILE *out, const struct explanation *x)
{
	if (!x->has_place)
		return;
	fprintf(out, "prefix    %s", PLACE(&x->prefix));
	if (x->row)
		fprintf(out, ", of %s: %s (%s)", netset_info[x->set].name, x->row->what, x->row->source);
	else if (x->set >= 0)
		fprintf(out, ", of %s", netset_info[x->set].name);
	fputc('\n', out);
}

/* A mapped address as sockets take it. */
static struct cidr unmapped(const struct cidr *addr)
{
	struct cidr v4 = *addr;

	v4.family = 4;
	v4.len = 32;
	return v4;
}

static void print_path(FILE *out, const struct explanation *x)
{
	const struct explain_part *d = deciding(x);
	struct cidr v4 = unmapped(&x->to.addr);

	if (!x->mapped && !(d && d->via))
		return;
	fprintf(out, "decoded   %s", PLACE(&x->to.addr));
	if (x->mapped)
		fprintf(out, " -> %s (%s)", PLACE(&v4), event_via_names[WEIR_VIA_MAPPED]);
	if (d && d->via)
		fprintf(out, " -> %s (%s)", PLACE(&d->addr), event_via_names[d->via]);
	fputc('\n', out);
}

static void print_parts(FILE *out, const struct explanation *x)
{
	if (x->part_count < 2)
		return;
	for (size_t i = 0; i < x->part_count; i++) {
		const struct explain_part *p = &x->parts[i];

		fprintf(out, "%s%s%s%s: %s by ", i ? "; " : "judged    ", PLACE(&p->addr), p->via ? ", " : "",
			p->via ? event_via_names[p->via] : "", p->verdict == WEIR_ALLOW ? "allowed" : "denied");
		if (p->reason == WEIR_REASON_RULE && p->rule <= x->policy->rule_count)
			fprintf(out, "rule %s", x->policy->rules[p->rule - 1].name);
		else
			fputs("default", out);
	}
	fputc('\n', out);
}

static bool names_set(const struct policy *p, enum netset set)
{
	for (size_t i = 0; i < p->rule_count; i++)
		for (size_t k = 0; k < p->rules[i].place_count; k++)
			if (p->rules[i].places[k].is_set && p->rules[i].places[k].set == set)
				return true;
	return false;
}

/* A dynamic set that the policy names: the answer holds for what it stood for. */
static bool dynamic_set(const struct explanation *x, enum netset set, const struct cidr **ret, size_t *ret_count)
{
	if (!netset_info[set].dynamic || !names_set(x->policy, set))
		return false;
	*ret = !x->env ? NULL : set == NETSET_HOST ? x->env->hosts : x->env->resolvers;
	*ret_count = !x->env ? 0 : set == NETSET_HOST ? x->env->host_count : x->env->resolver_count;
	return true;
}

static void print_sets(FILE *out, const struct explanation *x)
{
	for (enum netset set = 0; set < NETSETS; set++) {
		const struct cidr *list;
		size_t count;

		if (!dynamic_set(x, set, &list, &count))
			continue;
		fprintf(out, "%-9s stood for %s", netset_info[set].name, count ? "" : "nothing");
		for (size_t i = 0; i < count && i < LISTED_MAX; i++)
			fprintf(out, "%s%s", i ? ", " : "", PLACE(&list[i]));
		if (count > LISTED_MAX)
			fprintf(out, " and %zu more", count - LISTED_MAX);
		fputc('\n', out);
	}
}

/* As a packet on the wire it has passed the filter already. */
static const char *socket_refusal(const struct explanation *x)
{
	return x->to.packet ? NULL : policy_socket_refusal(x->policy, x->to.addr.family, x->to.protocol);
}

bool explain_is_refused(const struct explanation *x)
{
	return x->verdict != WEIR_ALLOW || socket_refusal(x);
}

char *explain_text(const struct explanation *x)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	bool bad;

	if (!out)
		return NULL;
	fprintf(out, "%-9s ", explain_is_refused(x) ? "denied" : "allowed");
	print_destination(out, &x->to);
	fprintf(out, " under policy %s%s\n", x->policy->name,
		x->policy->monitor
		    ? ", if it did not only watch: its mode is monitor, which blocks nothing and records would_deny"
		    : "");
	if (socket_refusal(x))
		fprintf(out, "socket    refused before any rule is asked: socket() fails with %s, by \"sockets\"\n",
			socket_refusal(x));
	print_why(out, x);
	print_place(out, x);
	print_path(out, x);
	print_parts(out, x);
	if (x->verdict == WEIR_DENY)
		fprintf(out, "decided   %s\n", decided_at(x).words);
	print_sets(out, x);
	bad = ferror(out);
	if (fclose(out) != 0 || bad) {
		free(text);
		return NULL;
	}
	return text;
}

/* ---- JSON ---- */

static json_t *place_json(const struct cidr *c)
{
	return json_string(PLACE(c));
}

static json_t *via_json(uint8_t via)
{
	return via ? json_string(event_via_names[via]) : json_null();
}

static json_t *rule_json(const struct explanation *x, uint16_t rule)
{
	char pointer[24];

	if (!rule || rule > x->policy->rule_count)
		return json_null();
	snprintf(pointer, sizeof pointer, "/rules/%u", rule - 1u);
	return json_pack("{s:i, s:s, s:s, s:s}", "number", rule, "name", x->policy->rules[rule - 1].name, "pointer", pointer,
			 "verdict", x->policy->rules[rule - 1].verdict == WEIR_ALLOW ? "allow" : "deny");
}

static json_t *set_json(const struct explanation *x)
{
	if (x->set < 0)
		return json_null();
	if (!x->row)
		return json_pack("{s:s, s:o}", "name", netset_info[x->set].name, "prefix", place_json(&x->prefix));
	return json_pack("{s:s, s:s, s:s, s:s}", "name", netset_info[x->set].name, "prefix", x->row->prefix, "what",
			 x->row->what, "source", x->row->source);
}

/* From the address as written to the one that decided. */
static json_t *path_json(const struct explanation *x)
{
	const struct explain_part *d = deciding(x);
	struct cidr v4 = unmapped(&x->to.addr);
	json_t *path = json_array();
	int bad = json_array_append_new(path, place_json(&x->to.addr));

	if (x->mapped)
		bad |= json_array_append_new(path, place_json(&v4));
	if (d && d->via)
		bad |= json_array_append_new(path, place_json(&d->addr));
	if (bad) {
		json_decref(path);
		return NULL;
	}
	return path;
}

static json_t *parts_json(const struct explanation *x)
{
	json_t *parts = json_array();

	for (size_t i = 0; i < x->part_count; i++) {
		const struct explain_part *p = &x->parts[i];

		if (json_array_append_new(parts,
					  json_pack("{s:o, s:o, s:s, s:s, s:o}", "address", place_json(&p->addr), "kind",
						    via_json(p->via), "verdict", event_verdict_names[p->verdict], "reason",
						    event_reason_names[p->reason], "rule", rule_json(x, p->rule)))) {
			json_decref(parts);
			return NULL;
		}
	}
	return parts;
}

static json_t *sets_json(const struct explanation *x)
{
	json_t *sets = json_object();

	for (enum netset set = 0; set < NETSETS; set++) {
		json_t *list = NULL;
		const struct cidr *addrs;
		size_t count;
		int bad;

		if (!dynamic_set(x, set, &addrs, &count))
			continue;
		list = json_array();
		bad = json_object_set_new(sets, netset_info[set].name, list);
		for (size_t i = 0; i < count && !bad; i++)
			bad = json_array_append_new(list, place_json(&addrs[i]));
		if (bad) {
			json_decref(sets);
			return NULL;
		}
	}
	return sets;
}

static json_t *destination_json(const struct explain_to *to)
{
	char buf[NETPROTO_TEXT_MAX];

	return json_pack("{s:s, s:o, s:o}", "protocol", netproto_text(buf, to->protocol), "address", place_json(&to->addr),
			 "port", netproto_has_port(to->protocol) ? json_integer(to->port) : json_null());
}

json_t *explain_json(const struct explanation *x)
{
	struct decided_at at = decided_at(x);

	return json_pack("{s:s, s:s, s:s, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:s?}", "verdict",
			 event_verdict_names[x->verdict], "policy", x->policy->name, "mode",
			 x->policy->monitor ? "monitor" : "enforce", "destination", destination_json(&x->to), "reason",
			 event_reason_names[x->reason], "rule", rule_json(x, x->rule), "prefix",
			 x->has_place ? place_json(&x->prefix) : json_null(), "set", set_json(x), "decode_kind",
			 via_json(x->via      ? x->via
				  : x->mapped ? WEIR_VIA_MAPPED
					      : WEIR_VIA_NONE),
			 "decode", path_json(x), "judged", parts_json(x), "hook", at.hook, "errno",
			 x->verdict == WEIR_DENY && at.error ? json_string(at.error) : json_null(), "sets", sets_json(x),
			 "socket_refused", socket_refusal(x));
}
