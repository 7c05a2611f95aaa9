/* SPDX-License-Identifier: Apache-2.0 */
/* Where it tried to go, with every detail that there is of each attempt. */
#include <string.h>

#include "report/page.h"
#include "report/parts.h"

/* Why the verdict is what it is; names as in the record. A rule has its own words. */
static const struct {
	const char *reason, *words;
} reasons[] = {
    {"default", "no rule names it"},
    {"no_entry", "its cgroup has no policy"},
    {"no_policy", "its policy was not there"},
    {"malformed", "no packet that can be read"},
    {"socket", "the socket was made where it is denied"},
    {"socket_limit", "it holds as many datagram sockets as it may"},
    {"loopback", "the policy’s loopback setting"},
    {"inbound", "the policy’s inbound setting"},
    {"ipv4_options", "IPv4 options are not permitted"},
    {"routing_header", "routing headers are not permitted"},
    {"fragment", "fragments without a port are not permitted"},
};

static void why_cell(struct html *h, const json_t *event)
{
	const char *reason = member_text(event, "reason"), *errno_name = member_text(event, "errno"), *words = reason;
	const json_t *step;
	size_t i;

	html(h, "<td class=\"why\">");
	for (i = 0; i < sizeof reasons / sizeof *reasons; i++)
		if (!strcmp(reasons[i].reason, reason))
			words = reasons[i].words;
	if (member_text(event, "rule_name")[0])
		html(h, "rule <code>%s</code>", member_text(event, "rule_name"));
	else if (json_is_integer(member(event, "rule")))
		html(h, "rule %lld", member_int(event, "rule"));
	else
		html(h, "%s", words);
	if (member_text(event, "decode_kind")[0])
		html(h, "<br><span class=\"soft\">read as %s: ", member_text(event, "decode_kind"));
	json_array_foreach(member(event, "decode"), i, step)
	{
		html(h, "%s<code>%s</code>", i ? " → " : "", json_string_value(step));
	}
	if (member_text(event, "decode_kind")[0])
		html(h, "</span>");
	if (errno_name[0])
		html(h, "<br><span class=\"soft\">%s to the caller</span>", errno_name);
	html(h, "</td>");
}

static void put_port(struct html *h, const json_t *event, const char *port)
{
	if (has_number(event, port))
		html(h, " <span class=\"keep\">port %lld</span>", member_int(event, port));
}

/* Whether what the program named is not what went out: the host's own NAT lies between. */
static bool was_translated(const json_t *event)
{
	const char *requested = member_text(event, "requested_address");

	if (!requested[0])
		return false;
	if (strcmp(requested, member_text(event, "address")) != 0)
		return true;
	return has_number(event, "requested_port") && has_number(event, "port") &&
	       member_int(event, "requested_port") != member_int(event, "port");
}

static void destination_cell(struct html *h, const json_t *event)
{
	html(h, "<td>%s <code>%s</code>", member_text(event, "protocol"), member_text(event, "address"));
	put_port(h, event, "port");
	if (has_number(event, "icmp_type"))
		html(h, " <span class=\"keep\">type %lld code %lld</span>", member_int(event, "icmp_type"),
		     member_int(event, "icmp_code"));
	if (was_translated(event)) {
		html(h, "<br><span class=\"soft\">asked for <code>%s</code>", member_text(event, "requested_address"));
		put_port(h, event, "requested_port");
		html(h, "</span>");
	}
	html(h, "</td>");
}

static void name_cell(struct html *h, const json_t *event)
{
	html(h, "<td class=\"name\">");
	if (json_is_string(member(event, "dns_name")))
		html(h, "<code>%s</code>", member_text(event, "dns_name"));
	if (member_text(event, "dns_type")[0])
		html(h, " <span class=\"soft\">%s</span>", member_text(event, "dns_type"));
	if (json_is_true(member(event, "dns_malformed")))
		html(h, " <span class=\"soft\">malformed</span>");
	html(h, "</td>");
}

static void when_cell(struct html *h, const json_t *event, const char *day)
{
	const char *first = member_text(event, "first"), *last = member_text(event, "last");

	html(h, "<td>");
	moment_of_day(h, first[0] ? first : member_text(event, "time"), day);
	if (last[0] && strcmp(first, last) != 0) {
		html(h, "<br><span class=\"keep\">to ");
		moment_of_day(h, last, day);
		html(h, "</span>");
	}
	html(h, "</td>");
}

static void who_cell(struct html *h, const json_t *event)
{
	html(h, "<td>");
	if (json_is_string(member(event, "command")))
		html(h, "<code>%s</code>", member_text(event, "command"));
	else
		html(h, "not known");
	if (has_number(event, "pid"))
		html(h, "<br><span class=\"soft\">pid %lld", member_int(event, "pid"));
	if (has_number(event, "pid") && has_number(event, "host_pid") &&
	    member_int(event, "pid") != member_int(event, "host_pid"))
		html(h, ", on the host %lld", member_int(event, "host_pid"));
	if (has_number(event, "pid") && has_number(event, "uid"))
		html(h, ", uid %lld", member_int(event, "uid"));
	if (has_number(event, "pid"))
		html(h, "</span>");
	if (member(event, "cgroup"))
		html(h, "<br><span class=\"soft\">in <code>%s</code></span>",
		     member_text(event, "cgroup")[0] ? member_text(event, "cgroup") : "a cgroup that was gone by then");
	html(h, "</td>");
}

/* Denied ones first, what would have been next: that is what a reviewer looks for. What is none of the three comes last. */
static int rank(const json_t *event)
{
	static const char *const order[] = {"denied", "would_deny", "allowed"};
	int i;

	for (i = 0; i < 3; i++)
		if (!strcmp(member_text(event, "verdict"), order[i]))
			break;
	return i;
}

static void event_row(struct html *h, const json_t *event, const char *day)
{
	static const char *const classes[] = {"denied", "watched", "allowed", "other"};
	const char *verdict = member_text(event, "verdict");

	html(h, "<tr class=\"%s\"><td>", classes[rank(event)]);
	verdict_badge(h, verdict);
	if (!strcmp(member_text(event, "hook"), "ingress"))
		html(h, "<br><span class=\"soft\">from outside</span>");
	html(h, "</td>");
	destination_cell(h, event);
	name_cell(h, event);
	html(h, "<td class=\"number\">%s</td>", COUNT(member_count(event, "count")));
	when_cell(h, event, day);
	who_cell(h, event);
	why_cell(h, event);
	html(h, "</tr>\n");
}

void part_destinations(struct html *h, const json_t *run)
{
	static const char *const heads[] = {"Verdict", "Destination", "Name asked for", "#Attempts", "First and last", "Who",
					    "Why",     NULL};
	const json_t *events = member(run, "events"), *event;
	size_t i;

	section_open(h, "destinations", "Destinations");
	if (!json_array_size(events)) {
		html(h, "<p>%s</p>\n",
		     member_count(member(run, "egress"), "attempts") ? "None is listed." : "None: it tried nothing.");
		section_close(h);
		return;
	}
	table_open(h, "Every destination, the denied ones first", heads);
	for (int wanted = 0; wanted <= 3; wanted++) {
		json_array_foreach(events, i, event)
		{
			if (rank(event) == wanted)
				event_row(h, event, member_text(run, "began"));
		}
	}
	table_close(h);
	section_close(h);
}
