/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "core/cleanup.h"
#include "report/checked.h"
#include "report/page.h"
#include "report/parts.h"

static void figure_number(struct html *h, const char *class, const char *name, const json_t *egress, const char *member_name)
{
	uint64_t n = member_count(egress, member_name);

	if (n)
		html(h, "<div class=\"%s\"><dt>%s</dt><dd>%s</dd></div>\n", class, name, COUNT(n));
	else
		html(h, "<div><dt>%s</dt><dd>0</dd></div>\n", name);
}

static void figures_row(struct html *h, const json_t *run)
{
	const json_t *egress = member(run, "egress");

	html(h, "<dl class=\"figures\">\n");
	figure_number(h, "all", "attempts", egress, "attempts");
	figure_number(h, "denied", "denied", egress, "denied");
	if (member_count(egress, "would_deny"))
		figure_number(h, "watched", "would be denied", egress, "would_deny");
	figure_number(h, "allowed", "allowed", egress, "allowed");
	if (member_count(egress, "inbound"))
		figure_number(h, "denied", "refused from outside", egress, "inbound");
	figure_number(h, "lost", "not listed", egress, "lost");
	html(h, "</dl>\n");
}

/* Links to the parts that are there; which are there is decided here as in the parts themselves. */
static void contents(struct html *h, const json_t *run)
{
	bool use = json_is_object(member(run, "usage")) || json_is_object(member(run, "limits"));
	const struct {
		const char *id, *name;
		bool there;
	} rows[] = {
	    {"who", "Who ran what", true},
	    {"target", "What has the policy", json_is_object(member(run, "target"))},
	    {"policy", "The policy", member_text(run, "policy")[0] != '\0'},
	    {"use", "Use and limits", use},
	    {"timeline", "Over time", true},
	    {"destinations", "Destinations", true},
	    {"programs", "Programs started", json_is_object(member(run, "execs"))},
	    {"killed", "Killed for want of memory", json_array_size(member(run, "oom_killed")) > 0},
	    {"refused", "Refused system calls", json_is_object(member(run, "refused_syscalls"))},
	    {"evidence", "Evidence", true},
	};

	html(h, "<nav aria-label=\"Parts of this report\">\n<ul>\n");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (rows[i].there)
			html(h, "<li><a href=\"#%s\">%s</a></li>\n", rows[i].id, rows[i].name);
	html(h, "</ul>\n</nav>\n");
}

static void head(struct html *h, const json_t *run, const char *verdict, const char *ending)
{
	html(h, "<header>\n<p class=\"kind\">Weir audit report · project %s</p>\n<h1>%s</h1>\n", member_text(run, "project"),
	     member_text(run, "run_id"));
	html(h, "<p class=\"lead\">%s %s</p>\n", verdict, ending);
	figures_row(h, run);
	contents(h, run);
	html(h, "</header>\n");
}

char *report_run(const json_t *run, const json_t *policies, const struct report_about *about, size_t *ret_len)
{
	_cleanup_free_ char *verdict = words_verdict(run), *ending = words_ending(run);
	struct html h = {.failed = !verdict || !ending};
	char title[WORDS_MAX + 32];

	snprintf(title, sizeof title, "%.90s · Weir audit report", member_text(run, "run_id"));
	page_open(&h, title);
	head(&h, run, verdict, ending);
	page_main(&h);
	part_findings(&h, member(run, "checked"), run);
	part_missing(&h, run);
	part_who(&h, run);
	part_target(&h, run);
	part_policy(&h, run, policies);
	part_use(&h, run);
	part_timeline(&h, run);
	part_destinations(&h, run);
	part_programs(&h, run);
	part_killed(&h, run);
	part_refused(&h, run);
	part_evidence(&h, run);
	page_close(&h, about);
	return html_take(&h, ret_len);
}
