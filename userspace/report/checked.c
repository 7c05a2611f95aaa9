/* SPDX-License-Identifier: Apache-2.0 */
#include "report/checked.h"

#include <string.h>

#include "report/page.h"

#define FINDINGS_SHOWN 50

enum checked checked_result(const json_t *checked)
{
	if (!json_is_boolean(member(checked, "intact")))
		return CHECKED_NOT;
	return json_is_true(member(checked, "intact")) ? CHECKED_GOOD : CHECKED_BAD;
}

const char *checked_problem(const json_t *checked)
{
	const char *problem = member_text(checked, "problem");

	return problem[0] ? problem : "nobody did";
}

static bool is_about(const json_t *finding, const json_t *run)
{
	uint64_t n = member_count(member(run, "chain"), "n");

	if (!run)
		return true;
	return (n && member_count(finding, "n") == n) ||
	       (member_text(finding, "run_id")[0] && !strcmp(member_text(finding, "run_id"), member_text(run, "run_id")));
}

static void finding_item(struct html *h, const json_t *finding)
{
	html(h, "<li><strong>%s</strong>", member_text(finding, "kind"));
	if (has_number(finding, "n"))
		html(h, ", entry %s", COUNT(member_count(finding, "n")));
	if (member_text(finding, "run_id")[0])
		html(h, ", run %s", member_text(finding, "run_id"));
	html(h, ": %s</li>\n", member_text(finding, "text"));
}

void part_findings(struct html *h, const json_t *checked, const json_t *run)
{
	uint64_t elsewhere = member_count(checked, "findings_omitted"), shown = 0;
	const json_t *finding;
	size_t i;

	if (checked_result(checked) != CHECKED_BAD)
		return;
	html(h, "<aside class=\"notice warn\" aria-labelledby=\"checked\">\n<h2 id=\"checked\">The record is not what was "
		"written</h2>\n<p>It was checked when this page was made. What the page says is what the record says "
		"now.</p>\n<ul>\n");
	json_array_foreach(member(checked, "findings"), i, finding)
	{
		if (!is_about(finding, run) || shown >= FINDINGS_SHOWN) {
			elsewhere++;
			continue;
		}
		finding_item(h, finding);
		shown++;
	}
	if (run && !shown)
		html(h, "<li>Nothing that was found is about this run.</li>\n");
	if (elsewhere)
		html(h, "<li>%s%s: <code>weir audit verify</code> lists them.</li>\n", SOME(elsewhere, "finding", "findings"),
		     run ? " about something else in the record" : " more");
	html(h, "</ul>\n</aside>\n");
}
