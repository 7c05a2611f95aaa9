/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that were started, and system calls that were refused. */
#include "report/page.h"
#include "report/parts.h"

void part_programs(struct html *h, const json_t *run)
{
	static const char *const heads[] = {"Time", "Program, as it was asked for", "By", "#Pid", "#On the host", "#Uid", NULL};
	const json_t *execs = member(run, "execs"), *row;
	size_t i;

	if (!json_is_object(execs))
		return;
	section_open(h, "programs", "Programs started");
	if (!has_number(execs, "count"))
		html(h, "<p>How many is not known.</p>\n");
	else
		html(h, "<p>%s%s.</p>\n",
		     member_count(execs, "count") ? SOME(member_count(execs, "count"), "program", "programs") : "None",
		     member_count(execs, "unlisted") ? ", not all of them listed" : "");
	if (!json_array_size(member(execs, "programs"))) {
		section_close(h);
		return;
	}
	table_open(h, "Programs in the order in which they were started", heads);
	json_array_foreach(member(execs, "programs"), i, row)
	{
		html(h, "<tr><td>");
		moment_of_day(h, member_text(row, "time"), member_text(run, "began"));
		html(h, "</td><td class=\"name\"><code>%s</code>", member_text(row, "path"));
		if (json_is_true(member(row, "path_cut")))
			html(h, " <span class=\"soft\">cut</span>");
		html(h, "</td><td><code>%s</code></td><td class=\"number\">%lld</td><td class=\"number\">%lld</td>",
		     member_text(row, "command"), member_int(row, "pid"), member_int(row, "host_pid"));
		html(h, "<td class=\"number\">%lld</td></tr>\n", member_int(row, "uid"));
	}
	table_close(h);
	section_close(h);
}

void part_killed(struct html *h, const json_t *run)
{
	static const char *const heads[] = {"Time", "Command", "#Pid", "#On the host", "#Uid", NULL};
	const json_t *killed = member(run, "oom_killed"), *row;
	size_t i;

	if (!json_array_size(killed))
		return;
	section_open(h, "killed", "Killed for want of memory");
	table_open(h, "Processes that the kernel chose to kill", heads);
	json_array_foreach(killed, i, row)
	{
		html(h, "<tr><td>");
		moment_of_day(h, member_text(row, "time"), member_text(run, "began"));
		html(h, "</td><td><code>%s</code></td><td class=\"number\">%lld</td><td class=\"number\">%lld</td>",
		     member_text(row, "command"), member_int(row, "pid"), member_int(row, "host_pid"));
		html(h, "<td class=\"number\">%lld</td></tr>\n", member_int(row, "uid"));
	}
	table_close(h);
	section_close(h);
}

void part_refused(struct html *h, const json_t *run)
{
	static const char *const heads[] = {"System call", "#Number", "Answered with", "#Times", "First", "Last", NULL};
	const json_t *refused = member(run, "refused_syscalls"), *row;
	size_t i;

	if (!json_is_object(refused))
		return;
	section_open(h, "refused", "Refused system calls");
	html(h, "<p>%s by the filter of the sandbox",
	     member_count(refused, "count") ? SOME(member_count(refused, "count"), "call was refused", "calls were refused")
					    : "No call was refused");
	if (member_count(refused, "interrupted"))
		html(h, "; %s interrupted before, by a signal or a pause between cells, and made again or given up",
		     SOME(member_count(refused, "interrupted"), "more was", "more were"));
	html(h, ".</p>\n");
	if (!json_array_size(member(refused, "calls"))) {
		section_close(h);
		return;
	}
	table_open(h, "Refused system calls by name", heads);
	json_array_foreach(member(refused, "calls"), i, row)
	{
		html(h,
		     "<tr><th scope=\"row\"><code>%s</code></th><td class=\"number\">%lld</td><td>%s</td><td "
		     "class=\"number\">%s</td><td>",
		     member_text(row, "name")[0] ? member_text(row, "name") : "no name known", member_int(row, "number"),
		     member_text(row, "errno"), COUNT(member_count(row, "count")));
		moment_of_day(h, member_text(row, "first"), member_text(run, "began"));
		html(h, "</td><td>");
		moment_of_day(h, member_text(row, "last"), member_text(run, "began"));
		html(h, "</td></tr>\n");
	}
	table_close(h);
	section_close(h);
}
