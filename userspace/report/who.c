/* SPDX-License-Identifier: Apache-2.0 */
/* Who ran what, and what had the policy. */
#include <string.h>

#include "report/page.h"
#include "report/parts.h"

static void fact_moment(struct html *h, const char *name, const char *time)
{
	if (!time[0])
		return;
	html(h, "<div><dt>%s</dt><dd>", name);
	moment(h, time);
	html(h, "</dd></div>\n");
}

static const char *kind_of(const json_t *run)
{
	if (json_is_object(member(run, "target")))
		return "a workload that was there before the policy";
	if (member_text(run, "agent")[0])
		return "a tool call";
	if (json_is_object(member(run, "command")))
		return "a command of the host";
	if (json_is_true(member(run, "session")))
		return "a session: what was tried and used between its cells, each of which has a record of its own";
	return strcmp(member_text(run, "run_id"), member_text(run, "sandbox_id")) ? "a cell of a session"
										  : "a snippet, single use";
}

/* What goes in and what comes out, in that order; names as in the record. */
static const struct {
	const char *member, *what;
} contents[] = {
    {"code", "Code, or the tool’s name"},
    {"arguments", "Arguments, or standard input"},
    {"files_in", "Files that came with it"},
    {"stdout", "Standard output"},
    {"stderr", "Standard error"},
    {"result", "Result of the tool"},
    {"files_out", "Files that came back"},
};

static void content_row(struct html *h, const char *what, const json_t *content)
{
	uint64_t bytes = member_count(content, "bytes"), kept = member_count(content, "kept");

	html(h, "<tr><th scope=\"row\">%s</th><td class=\"number\">%s</td><td class=\"number\">", what, COUNT(bytes));
	if (has_number(content, "kept") && kept != bytes)
		html(h, "%s", COUNT(kept));
	else
		html(h, "all");
	html(h, "</td><td><code class=\"long\">%s</code></td></tr>\n", member_text(content, "sha256"));
}

static void content_table(struct html *h, const json_t *run)
{
	static const char *const heads[] = {"What", "#Bytes", "#Of them hashed", "SHA-256", NULL};
	const json_t *content = member(run, "content");

	html(h, "<h3>Code, arguments and output</h3>\n");
	if (!json_object_size(content)) {
		html(h, "<p>%s</p>\n",
		     json_is_object(member(run, "command")) ? "The record has nothing of them: what a command of the host "
							      "reads and writes does not pass through Weir."
							    : "The record has nothing of them: whoever ran it did not say.");
		return;
	}
	html(h, "<p>They are not in this report; these are the hashes of what was sent and received, with which a copy can be "
		"recognised.</p>\n");
	table_open(h, "Hashes of what went in and what came out", heads);
	for (size_t i = 0; i < sizeof contents / sizeof *contents; i++)
		if (json_is_object(member(content, contents[i].member)))
			content_row(h, contents[i].what, member(content, contents[i].member));
	table_close(h);
}

/* The arguments themselves are nobody's to print: they may hold what is secret. */
static void command_facts(struct html *h, const json_t *command)
{
	if (!json_is_object(command))
		return;
	html(h, "<div><dt>Command</dt><dd><code class=\"long\">%s%s</code></dd></div>\n", member_text(command, "path"),
	     json_is_true(member(command, "path_cut")) ? "…" : "");
	fact_code(h, "SHA-256 of its arguments", member_text(command, "sha256"));
}

void part_who(struct html *h, const json_t *run)
{
	section_open(h, "who", "Who ran what");
	html(h, "<dl class=\"facts\">\n");
	fact(h, "Project", member_text(run, "project"));
	fact_code(h, "Caller", member_text(run, "caller"));
	fact(h, "Kind", kind_of(run));
	command_facts(h, member(run, "command"));
	fact(h, "Agent", member_text(run, "agent"));
	fact_code(h, "Image", member_text(run, "image"));
	fact(h, "Python", member_text(run, "python"));
	fact_code(h, "Run", member_text(run, "run_id"));
	fact_code(h, json_is_object(member(run, "target")) ? "Attachment" : "Sandbox", member_text(run, "sandbox_id"));
	fact_moment(h, "Began", member_text(run, "began"));
	fact_moment(h, "Ended", member_text(run, "ended"));
	if (has_number(run, "duration_ms"))
		fact(h, "Took", MS(member_number(run, "duration_ms")));
	fact(h, "Ending", member_text(member(run, "termination"), "reason"));
	if (has_number(run, "processes") && has_number(run, "threads"))
		html(h, "<div><dt>Processes</dt><dd>%s, with %s in all</dd></div>\n", COUNT(member_count(run, "processes")),
		     SOME(member_count(run, "threads"), "thread", "threads"));
	if (member_count(run, "oom_victims"))
		fact(h, "Out of memory",
		     SOME(member_count(run, "oom_victims"), "process was chosen to be killed",
			  "processes were chosen to be killed"));
	html(h, "</dl>\n");
	if (!json_is_object(member(run, "target")))
		content_table(h, run);
	section_close(h);
}

/* ---- of an attachment ---- */

static void reasons_table(struct html *h, const json_t *run)
{
	static const char *const heads[] = {"What", "Why", "Who", "What would mend it", NULL};
	const json_t *row;
	size_t i;

	if (!json_array_size(member(run, "reasons")))
		return;
	table_open(h, "What of the policy does not hold on it", heads);
	json_array_foreach(member(run, "reasons"), i, row)
	{
		html(h, "<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td><td>%s</td></tr>\n", member_text(row, "name"),
		     member_text(row, "text"), member_text(row, "detail"), member_text(row, "mend"));
	}
	table_close(h);
}

static void address_cell(struct html *h, const json_t *row, const char *address, const char *port)
{
	if (member_text(row, address)[0])
		html(h, "<td><code>%s</code> port %lld</td>", member_text(row, address), member_int(row, port));
	else
		html(h, "<td>none</td>");
}

static void sockets_table(struct html *h, const json_t *run)
{
	static const char *const heads[] = {"Verdict", "Protocol", "Local", "Remote", "Command", "#Pid", NULL};
	const json_t *row;
	size_t i;

	if (!json_array_size(member(run, "sockets")))
		return;
	table_open(h, "Sockets that were open when the policy came", heads);
	json_array_foreach(member(run, "sockets"), i, row)
	{
		html(h, "<tr><td>");
		verdict_badge(h, member_text(row, "verdict"));
		html(h, "</td><td>%s</td>", member_text(row, "protocol"));
		address_cell(h, row, "local", "local_port");
		address_cell(h, row, "remote", "remote_port");
		html(h, "<td><code>%s</code>", member_text(row, "command"));
		if (json_is_true(member(row, "elsewhere")))
			html(h, "<br><span class=\"soft\">made in another cgroup: not judged here</span>");
		html(h, "</td><td class=\"number\">%lld</td></tr>\n", member_int(row, "pid"));
	}
	table_close(h);
}

static void canary_fact(struct html *h, const json_t *target)
{
	const json_t *canary = member(target, "canary");

	if (!json_is_object(canary))
		return;
	if (json_is_true(member(canary, "proven")))
		html(h, "<div><dt>Proven</dt><dd>from inside, by %s of Weir’s own, %s denied as they should be</dd></div>\n",
		     SOME(member_count(canary, "attempts"), "attempt", "attempts"), COUNT(member_count(canary, "denied")));
	else
		html(h, "<div><dt>Proven</dt><dd>no: %s</dd></div>\n", member_text(canary, "why"));
}

void part_target(struct html *h, const json_t *run)
{
	const json_t *target = member(run, "target");
	const char *unknown = member_text(target, "unknown");

	if (!json_is_object(target))
		return;
	section_open(h, "target", "What has the policy");
	html(h, "<dl class=\"facts\">\n");
	fact(h, "Kind", member_text(target, "kind"));
	fact_code(h, "Asked for as", member_text(target, "ref"));
	fact_code(h, "Cgroup", member_text(target, "cgroup"));
	fact(h, "Runtime", member_text(target, "runtime"));
	fact_code(h, "Container", member_text(target, "container"));
	fact_code(h, "Pod", member_text(target, "pod"));
	fact_moment(h, "Attached", member_text(target, "attached"));
	fact(h, "Coverage", member_text(target, "coverage"));
	if (unknown[0])
		fact(h, "Without a policy",
		     strcmp(unknown, "allow") ? "what has none of its own below it is denied"
					      : "what has none of its own below it is let through and recorded");
	canary_fact(h, target);
	html(h, "</dl>\n");
	reasons_table(h, run);
	sockets_table(h, run);
	section_close(h);
}
