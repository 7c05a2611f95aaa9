/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "report/checked.h"
#include "report/page.h"
#include "report/period.h"

/* ---- the top ---- */

static void asked_for(struct html *h, const json_t *period)
{
	const char *since = member_text(period, "since"), *until = member_text(period, "until"),
		   *project = member_text(period, "project");

	html(h, "<p class=\"kind\">Weir audit report");
	if (project[0])
		html(h, " · project %s", project);
	if (member_text(period, "attachment")[0])
		html(h, "</p>\n<h1>Record of %s", member_text(period, "attachment"));
	else
		html(h, "</p>\n<h1>Runs");
	if (since[0]) {
		html(h, " since ");
		moment(h, since);
	}
	if (until[0]) {
		html(h, " until ");
		moment(h, until);
	}
	html(h, "</h1>\n");
}

static void verdict(struct html *h, const struct report_period *p)
{
	if (!p->sums[SUM_RUNS]) {
		html(h, "<p class=\"lead\">No run of this time is on record.</p>\n");
		return;
	}
	html(h, "<p class=\"lead\">%s", SOME(p->sums[SUM_RUNS], "run", "runs"));
	if (!p->sums[SUM_ATTEMPTS])
		html(h, " made no attempt to reach the network.");
	else
		html(h, " made %s to reach the network: %s denied, %s allowed",
		     SOME(p->sums[SUM_ATTEMPTS], "attempt", "attempts"), COUNT(p->sums[SUM_DENIED]),
		     COUNT(p->sums[SUM_ALLOWED]));
	if (p->sums[SUM_WOULD_DENY])
		html(h, ", %s let through that an enforced policy would have denied", COUNT(p->sums[SUM_WOULD_DENY]));
	html(h, "%s</p>\n", p->sums[SUM_ATTEMPTS] ? "." : "");
}

/* ---- tables ---- */

/* The column of what is only watched is left out where nothing was: most policies are enforced. */
static bool shows(const struct report_period *p, int sum)
{
	return sum != SUM_WOULD_DENY || p->sums[SUM_WOULD_DENY];
}

/* Heads of the sums from `from` on, into `heads` (SUMS of them at most); returns how many. */
static size_t sum_heads(const struct report_period *p, int from, const char **heads)
{
	static const char *const titles[SUMS] = {"#Runs",    "#Attempts",  "#Denied", "#Would be denied",
						 "#Allowed", "#Not listed"};
	size_t n = 0;

	for (int i = from; i < SUMS; i++)
		if (shows(p, i))
			heads[n++] = titles[i];
	return n;
}

static void sum_cells(struct html *h, const struct report_period *p, int from, const json_t *sums)
{
	for (int i = from; i < SUMS; i++)
		if (shows(p, i))
			html(h, "<td class=\"number\">%s</td>", COUNT(member_count(sums, sum_names[i])));
}

static void use_table(struct html *h, const struct report_period *p)
{
	static const char *const heads[] = {"Project", "#Runs measured", "#CPU time", "#Peak memory, the largest", "#Sent",
					    NULL};
	const char *name;
	json_t *use;

	table_open(h, "What they used, by project", heads);
	json_object_foreach(p->use, name, use)
	{
		html(h, "<tr><th scope=\"row\">%s</th><td class=\"number\">%s</td>", *name ? name : "none",
		     COUNT(member_count(use, "measured")));
		html(h, "<td class=\"number\">%s</td><td class=\"number\">%s</td><td class=\"number\">%s</td></tr>\n",
		     MS(member_number(use, "cpu_ms")), BYTES(member_count(use, "memory_peak_bytes")),
		     BYTES(member_count(use, "net_bytes")));
	}
	table_close(h);
}

static void sums_table(struct html *h, const struct report_period *p, const char *caption, const char *what,
		       const json_t *groups)
{
	const char *heads[SUMS + 2] = {what}, *name;
	json_t *sums;

	sum_heads(p, SUM_RUNS, heads + 1);
	table_open(h, caption, heads);
	json_object_foreach((json_t *)groups, name, sums)
	{
		html(h, "<tr><th scope=\"row\">%s</th>", *name ? name : "none");
		sum_cells(h, p, SUM_RUNS, sums);
		html(h, "</tr>\n");
	}
	table_close(h);
}

/* Each project is named whose rows had no room, with how many attempts these are. */
static void left_out_table(struct html *h, const struct report_period *p)
{
	static const char *const heads[] = {"Project", "#Runs", "#Denied destinations", "#Attempts at these", NULL};
	static const char *const members[] = {"runs", "destinations", "attempts"};
	const char *name;
	json_t *sums;

	if (!json_object_size(p->left_out))
		return;
	html(h, "<div id=\"left-out\">\n");
	table_open(h, "In the sums above and not in the lists below", heads);
	json_object_foreach(p->left_out, name, sums)
	{
		html(h, "<tr><th scope=\"row\">%s</th>", *name ? name : "none");
		for (size_t i = 0; i < sizeof members / sizeof *members; i++)
			html(h, "<td class=\"number\">%s</td>", COUNT(member_count(sums, members[i])));
		html(h, "</tr>\n");
	}
	table_close(h);
	html(h, "<p>Narrow the time, or name one project: <code>--project</code>.</p>\n</div>\n");
}

static void part_sums(struct html *h, const struct report_period *p)
{
	section_open(h, "sums", "Sums");
	if (!p->sums[SUM_RUNS]) {
		html(h, "<p>None: there is no run.</p>\n");
		section_close(h);
		return;
	}
	sums_table(h, p, "By project", "Project", p->projects);
	sums_table(h, p, "By policy", "Policy", p->policies);
	sums_table(h, p, "By how they ended", "Ending", p->ends);
	use_table(h, p);
	left_out_table(h, p);
	section_close(h);
}

/* An id may have no blanks; ours never have, but a record may have been tampered with. */
static const char *anchor(char ret[WORDS_MAX], const char *run_id)
{
	snprintf(ret, WORDS_MAX, "run-%.80s", run_id);
	for (char *c = ret; *c; c++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-", *c))
			*c = '_';
	return ret;
}

/* A link where there is a row to go to. */
static void run_link(struct html *h, const struct report_period *p, const char *run_id)
{
	if (json_object_get(p->runs, run_id))
		html(h, "<a class=\"keep\" href=\"#%s\">%s</a>", anchor(WORDS_ROOM, run_id), run_id);
	else
		html(h, "<code class=\"keep\">%s</code>", run_id);
}

static void runs_cell(struct html *h, const struct report_period *p, const json_t *row)
{
	const json_t *id;
	uint64_t runs = member_count(row, "runs");
	size_t i;

	html(h, "<td><span class=\"keep\">%s</span><br>", member_text(row, "project"));
	json_array_foreach(member(row, "run_ids"), i, id)
	{
		if (i)
			html(h, "<br>");
		run_link(h, p, json_string_value(id));
	}
	if (runs > i)
		html(h, "<br><span class=\"soft\">and %s more</span>", COUNT(runs - i));
	html(h, "</td>");
}

static void destination_row(struct html *h, const struct report_period *p, const json_t *row)
{
	bool denied = !strcmp(member_text(row, "verdict"), "denied");

	html(h, "<tr class=\"%s\"><td>", denied ? "denied" : "watched");
	verdict_badge(h, member_text(row, "verdict"));
	html(h, "</td><td>%s <code>%s</code>", member_text(row, "protocol"), member_text(row, "address"));
	if (has_number(row, "port"))
		html(h, " <span class=\"keep\">port %lld</span>", member_int(row, "port"));
	html(h, "</td><td class=\"name\"><code>%s</code></td>", member_text(row, "dns_name"));
	html(h, "<td class=\"number\">%s</td>", COUNT(member_count(row, "count")));
	html(h, "<td>%s</td>", member_text(row, "rule_name")[0] ? member_text(row, "rule_name") : member_text(row, "reason"));
	html(h, "<td>");
	moment(h, member_text(row, "first"));
	if (strcmp(member_text(row, "first"), member_text(row, "last")) != 0) {
		html(h, "<br><span class=\"keep\">to ");
		moment_of_day(h, member_text(row, "last"), member_text(row, "first"));
		html(h, "</span>");
	}
	html(h, "</td>");
	runs_cell(h, p, row);
	html(h, "</tr>\n");
}

static void part_destinations(struct html *h, const struct report_period *p, const json_t *rows)
{
	static const char *const heads[] = {"Verdict", "Destination",	 "Name asked for",   "#Attempts",
					    "Rule",    "First and last", "Project and runs", NULL};
	const json_t *row;
	size_t i;

	section_open(h, "destinations", "Denied destinations");
	if (!json_array_size(rows)) {
		html(h, "<p>None: nothing was denied.</p>\n");
	} else {
		table_open(h, "What was denied, or would have been, the most often tried first", heads);
		json_array_foreach(rows, i, row)
		{
			destination_row(h, p, row);
		}
		table_close(h);
	}
	section_close(h);
}

static void use_cell(struct html *h, const json_t *usage)
{
	const json_t *cpu = member(usage, "cpu_ms"), *memory = member(usage, "memory_peak_bytes");

	html(h, "<td class=\"number\">");
	if (has_number(cpu, "value"))
		html(h, "%s CPU", MS(member_number(cpu, "value")));
	if (has_number(memory, "value"))
		html(h, "<br><span class=\"soft keep\">%s</span>", BYTES(member_count(memory, "value")));
	html(h, "</td>");
}

static void run_row(struct html *h, const struct report_period *p, const json_t *run)
{
	const json_t *egress = member(run, "egress"), *chain = member(run, "chain");
	const char *end = member_text(member(run, "termination"), "reason");

	html(h, "<tr id=\"%s\"><th scope=\"row\"><code class=\"keep\">%s</code></th><td>",
	     anchor(WORDS_ROOM, member_text(run, "run_id")), member_text(run, "run_id"));
	moment(h, member_text(run, "began"));
	html(h, "</td><td><span class=\"keep\">%s</span>", member_text(run, "project"));
	if (member_text(run, "agent")[0])
		html(h, "<br><span class=\"soft\">agent %s</span>", member_text(run, "agent"));
	html(h, "</td><td class=\"keep\">%s</td><td>%s", member_text(run, "policy"), end[0] ? end : member_text(run, "state"));
	if (has_number(run, "exit_code"))
		html(h, "<br><span class=\"soft\">exit code %lld</span>", member_int(run, "exit_code"));
	html(h, "</td>");
	use_cell(h, member(run, "usage"));
	sum_cells(h, p, SUM_ATTEMPTS, egress);
	if (json_is_object(chain))
		html(h, "<td>%s<br><span class=\"soft keep\">entry %s</span></td></tr>\n",
		     json_is_true(member(chain, "signed")) ? "signed" : "not signed", COUNT(member_count(chain, "n")));
	else
		html(h, "<td>not in it</td></tr>\n");
}

static void part_runs(struct html *h, const struct report_period *p, const json_t *rows)
{
	const char *heads[SUMS + 8] = {"Run", "Began", "Project", "Policy", "Ending", "#Use"};
	size_t n = 6;
	const json_t *run;
	size_t i;

	section_open(h, "runs", "Runs");
	if (!json_array_size(rows)) {
		html(h, "<p>None of this time is in the record.</p>\n");
		section_close(h);
		return;
	}
	n += sum_heads(p, SUM_ATTEMPTS, heads + n);
	heads[n] = "Chain";
	table_open(h, "Runs, the newest first", heads);
	json_array_foreach(rows, i, run)
	{
		run_row(h, p, run);
	}
	table_close(h);
	html(h, "<p><code>weir audit report ID</code> makes the page of one of them.</p>\n");
	section_close(h);
}

/* ---- the end ---- */

/* "12 runs of project notebook with 340 records, 1.2 MiB: older than what is kept". */
static void pruned(struct html *h, const json_t *row)
{
	html(h, "%s", SOME(member_count(row, "runs"), "run", "runs"));
	if (member_text(row, "project")[0])
		html(h, " of project %s", member_text(row, "project"));
	html(h, " with %s, %s: %s", SOME(member_count(row, "records"), "record", "records"), BYTES(member_count(row, "bytes")),
	     period_prune_words(member_text(row, "reason")));
}

static void prunes_table(struct html *h, const json_t *period)
{
	static const char *const heads[] = {"When", "#Entry", "What was removed", NULL};
	const json_t *row;
	size_t i, count = 0;

	json_array_foreach(member(period, "notices"), i, row)
	{
		if (strcmp(member_text(row, "kind"), "prune") != 0)
			continue;
		if (!count++)
			table_open(h,
				   "What was removed for its age or for room, each time with an entry of its own in the chain",
				   heads);
		html(h, "<tr><td>");
		moment(h, member_text(row, "time"));
		html(h, "</td><td class=\"number\">%s</td><td>", COUNT(member_count(row, "n")));
		pruned(h, row);
		html(h, "</td></tr>\n");
	}
	if (count)
		table_close(h);
}

static void part_evidence(struct html *h, const struct report_period *p, const json_t *period)
{
	const json_t *chain = member(period, "chain");
	const char *hash = member_text(chain, "hash");

	section_open(h, "evidence", "Evidence");
	html(h, "<dl class=\"facts one\">\n");
	if (p->last_n)
		html(h, "<div><dt>These runs</dt><dd>entries %s to %s of the chain</dd></div>\n", COUNT(p->first_n),
		     COUNT(p->last_n));
	if (json_is_object(chain))
		html(h, "<div><dt>The chain ends</dt><dd>at entry %s, %s</dd></div>\n", COUNT(member_count(chain, "n")),
		     json_is_true(member(chain, "signed")) ? "signed" : "not signed, or not signed yet");
	fact_code(h, "Its hash there", hash);
	html(h, "</dl>\n");
	prunes_table(h, period);
	html(h,
	     "<p><code class=\"long\">weir audit verify%s%s</code> checks the chain and every record under it. Whoever is root "
	     "on the "
	     "host could have written another history and signed it: compare the hash with one that was kept elsewhere.</p>\n",
	     hash[0] ? " --expect " : "", hash);
	section_close(h);
}

char *report_period_page(struct report_period *p, const json_t *period, const struct report_about *about, size_t *ret_len)
{
	static const char *const parts[][2] = {
	    {"sums", "Sums"}, {"destinations", "Denied destinations"}, {"runs", "Runs"}, {"evidence", "Evidence"}};
	json_t *runs = NULL, *destinations = NULL;
	struct html h = {.failed = period_settle(p, &runs, &destinations) < 0};

	page_open(&h, "Runs · Weir audit report");
	html(&h, "<header>\n");
	asked_for(&h, period);
	verdict(&h, p);
	html(&h, "<nav aria-label=\"Parts of this report\">\n<ul>\n");
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		html(&h, "<li><a href=\"#%s\">%s</a></li>\n", parts[i][0], parts[i][1]);
	html(&h, "</ul>\n</nav>\n</header>\n");
	page_main(&h);
	part_findings(&h, member(period, "checked"), NULL);
	period_missing(&h, p, period);
	part_sums(&h, p);
	part_destinations(&h, p, destinations);
	part_runs(&h, p, runs);
	part_evidence(&h, p, period);
	page_close(&h, about);
	json_decref(runs);
	json_decref(destinations);
	return html_take(&h, ret_len);
}
