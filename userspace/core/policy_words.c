/* SPDX-License-Identifier: Apache-2.0 */
#include "core/policy_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cidr.h"
#include "core/netaddr.h"
#include "core/netset.h"

/* ---- one rule ---- */

static bool is_all_of(const struct policy_place *place, uint8_t family)
{
	return !place->is_set && place->prefix.family == family && place->prefix.len == 0;
}

/* "any" in the document: every address of both families. */
static bool is_anywhere(const struct policy_rule *r)
{
	bool v4 = false, v6 = false;

	for (size_t i = 0; i < r->place_count; i++) {
		v4 |= is_all_of(&r->places[i], 4);
		v6 |= is_all_of(&r->places[i], 6);
	}
	return v4 && v6;
}

static void say_places(FILE *out, const struct policy_rule *r, size_t max)
{
	size_t shown = max && r->place_count > max ? max : r->place_count;

	if (is_anywhere(r)) {
		fputs("any address", out);
		return;
	}
	for (size_t i = 0; i < shown; i++) {
		const struct policy_place *place = &r->places[i];
		char text[CIDR_TEXT_MAX];

		fputs(i ? ", " : "", out);
		if (place->is_set) {
			fprintf(out, "%s (%s)", netset_info[place->set].name, netset_info[place->set].help);
		} else {
			cidr_text(text, &place->prefix, true);
			fputs(text, out);
		}
	}
	if (shown < r->place_count)
		fprintf(out, " and %zu more", r->place_count - shown);
}

static void say_ports(FILE *out, const struct policy_rule *r)
{
	for (size_t i = 0; i < r->port_count; i++) {
		const struct policy_ports *p = &r->ports[i];

		if (!i)
			fputs(r->port_count > 1 || p->lo != p->hi ? " ports " : " port ", out);
		fprintf(out, p->lo == p->hi ? "%s%u" : "%s%u-%u", i ? ", " : "", p->lo, p->hi);
	}
}

static void say_protocols(FILE *out, const struct policy_rule *r)
{
	if (!r->protocol_count)
		fputs("everything", out);
	for (size_t i = 0; i < r->protocol_count; i++) {
		char buf[NETPROTO_TEXT_MAX];

		fprintf(out, "%s%s", i ? ", " : "", netproto_text(buf, r->protocols[i]));
	}
	say_ports(out, r);
}

static void say_rules(FILE *out, const struct policy *p, size_t places)
{
	for (size_t i = 0; i < p->rule_count; i++) {
		const struct policy_rule *r = &p->rules[i];

		fprintf(out, "Rule %s %s ", r->name, r->verdict == WEIR_ALLOW ? "allows" : "denies");
		say_protocols(out, r);
		fputs(" to ", out);
		say_places(out, r, places);
		fputs(".\n", out);
	}
	if (p->rule_count > 1)
		fputs("Where several rules fit a destination, the one with the longest prefix decides, whatever their order.\n",
		      out);
	if (p->rule_count)
		fputs("An IPv6 address that carries an IPv4 address is denied where either is.\n", out);
}

/* ---- the rest of the document ---- */

static void say_mode(FILE *out, const struct policy *p)
{
	fputs(p->monitor
		  ? "It only watches: nothing is blocked, and what it denies is recorded as what would have been denied.\n"
		  : "It is enforced: what it denies does not leave, and the program gets an error.\n",
	      out);
}

static void say_default(FILE *out, const struct policy *p)
{
	if (p->default_verdict == WEIR_ALLOW)
		fputs(p->rule_count ? "What no rule names is allowed.\n" : "Every destination is allowed.\n", out);
	else
		fputs(p->rule_count ? "What no rule names is denied, name servers included.\n"
				    : "Every destination is denied, name servers included.\n",
		      out);
}

static void say_loopback(FILE *out, const struct policy *p)
{
	static const char *const words[] = {
	    [WEIR_LOOPBACK_RULES] = "Loopback addresses are judged like all others.\n",
	    [WEIR_LOOPBACK_DENY] = "Loopback addresses are denied, whatever the rules say.\n",
	    [WEIR_LOOPBACK_SELF] = "Loopback addresses are allowed: the sandbox may talk to itself.\n",
	};

	fputs(words[p->loopback], out);
}

static void say_inbound(FILE *out, const struct policy *p)
{
	fputs(p->inbound ? "Connections from outside are accepted, and answered whoever asks.\n"
			 : "Connections from outside are refused.\n",
	      out);
	if (!p->listen)
		fputs("Nothing may listen, on Unix sockets neither.\n", out);
}

static void say_packets(FILE *out, const struct policy *p)
{
	if (p->ipv4_options)
		fputs("Packets with IPv4 options are let out, judged by the address in their header alone.\n", out);
	if (p->routing_headers)
		fputs("Packets with IPv6 routing headers are let out, judged by the address in their header alone.\n", out);
	if (p->fragments)
		fputs("Fragments that show no port are let out, judged by address and protocol.\n", out);
	for (size_t i = 0; i < p->nat64_count; i++) {
		struct cidr c = {.family = 6, .len = p->nat64[i].len};
		char text[CIDR_TEXT_MAX];

		memcpy(c.addr, p->nat64[i].addr, sizeof c.addr);
		cidr_text(text, &c, false);
		fprintf(out, "Addresses in %s are translated to IPv4 by this network: the address inside is judged as well.\n",
			text);
	}
}

/* Names of single bits, the lowest first. */
static void say_bits(FILE *out, uint32_t bits, const char *const *names, size_t count)
{
	const char *before = "";

	for (size_t i = 0; i < count; i++) {
		if (!(bits >> i & 1))
			continue;
		fprintf(out, "%s%s", before, names[i]);
		before = ", ";
	}
	if (!bits)
		fputs("none", out);
}

static void say_sockets(FILE *out, const struct policy *p)
{
	static const char *const families[] = {"unix", "inet", "inet6", "netlink", "packet", "vsock"};
	static const char *const types[] = {"stream", "dgram", "seqpacket", "raw"};
	static const char *const protocols[] = {"tcp", "udp", "icmp", "udplite", "sctp", "dccp", "mptcp"};

	fputs("Sockets that may be made: families ", out);
	say_bits(out, p->sockets.families, families, sizeof families / sizeof *families);
	fputs("; types ", out);
	say_bits(out, p->sockets.types, types, sizeof types / sizeof *types);
	fputs("; protocols ", out);
	say_bits(out, p->sockets.protocols, protocols, sizeof protocols / sizeof *protocols);
	fputs(".\n", out);
}

static void say_syscalls(FILE *out, const struct policy *p)
{
	if (!p->syscall_count)
		return;
	fputs("System calls refused beyond those that are refused to everybody: ", out);
	for (size_t i = 0; i < p->syscall_count; i++) {
		const struct policy_syscall_rule *r = &p->syscalls[i];
		const char *name = strerrorname_np(r->error);

		fprintf(out, "%s%s (", i ? ", " : "", r->name);
		if (r->kill)
			fputs("the process ends)", out);
		else if (name)
			fprintf(out, "%s)", name);
		else
			fprintf(out, "errno %d)", r->error);
	}
	fputs(".\n", out);
}

static void say_limits(FILE *out, const struct policy *p)
{
	const struct policy_limits *l = &p->limits;
	bool whole = l->memory_bytes % (1 << 20) == 0;
	const struct {
		uint64_t value;
		const char *what, *unit;
	} rows[] = {{whole ? l->memory_bytes >> 20 : l->memory_bytes, "memory", whole ? " MiB" : " bytes"},
		    {l->cpu_percent, "CPU", " % of one processor"},
		    {l->processes, "processes and threads", ""},
		    {l->open_files, "open files of one process", ""},
		    {l->datagram_sockets == WEIR_SOCKETS_PER_SANDBOX ? 0 : l->datagram_sockets,
		     "datagram sockets with a destination", ""}};
	const char *before = "Limits of its own: ";

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (!rows[i].value)
			continue;
		fprintf(out, "%s%s %llu%s", before, rows[i].what, (unsigned long long)rows[i].value, rows[i].unit);
		before = ", ";
	}
	if (before[0] == ',')
		fputs(".\n", out);
}

static void say_audit(FILE *out, const struct policy *p)
{
	if (!p->list_allowed)
		fputs("Allowed attempts are counted and not listed.\n", out);
}

char *policy_words(const struct policy *p, size_t places)
{
	static void (*const rest[])(FILE *, const struct policy *) = {say_loopback, say_inbound, say_packets, say_sockets,
								      say_syscalls, say_limits,	 say_audit};
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	bool bad;

	if (!out)
		return NULL;
	say_mode(out, p);
	say_default(out, p);
	say_rules(out, p, places);
	for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
		rest[i](out, p);
	bad = ferror(out);
	if (fclose(out) != 0 || bad) {
		free(text);
		return NULL;
	}
	return text;
}
